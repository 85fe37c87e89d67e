#!/usr/bin/env python3
"""Compares our tokenizer with the `tokenizers` package on strings made from a seed.

    tools/tokenizer_differential.py PROGRAM TOKENIZER [--strings N] [--seed S] [--cases FILE]

PROGRAM is test/vector/tokenizer_stream.c, built. TOKENIZER is a tokenizer.json or a GGUF model (for that the reference
is put together from its arrays). Every string is encoded with control tokens read and as plain text; all ids must be
equal. --cases: a file of {"text", "ids"} lines that must come out so too. Ill-formed byte strings must give their bytes back. At least 40 % of the strings are mostly non-Latin. Exit 1 and
up to 20 differences, with the seed, when something differs.
"""
import argparse
import json
import random
import struct
import subprocess
import sys
import time

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
from tokenizers import pre_tokenizers as pre

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SCRIPTS = {  # name: ranges of letters, weight
    "latin": ([(0x41, 0x5A), (0x61, 0x7A)], 22), "latin_more": ([(0xC0, 0x24F), (0x1E00, 0x1EFF)], 6),
    "greek": ([(0x370, 0x3FF)], 3), "cyrillic": ([(0x400, 0x52F)], 8), "armenian": ([(0x531, 0x587)], 1),
    "hebrew": ([(0x591, 0x5F4)], 3), "arabic": ([(0x600, 0x6FF)], 6), "devanagari": ([(0x900, 0x97F)], 5),
    "bengali": ([(0x980, 0x9FE)], 2), "tamil": ([(0xB80, 0xBFA)], 2), "thai": ([(0xE00, 0xE5B)], 4),
    "tibetan": ([(0xF00, 0xFDA)], 1), "georgian": ([(0x10A0, 0x10FF)], 1), "hangul_jamo": ([(0x1100, 0x11FF)], 2),
    "ethiopic": ([(0x1200, 0x139F)], 1), "khmer": ([(0x1780, 0x17F9)], 1), "kana": ([(0x3041, 0x30FF)], 6),
    "han": ([(0x4E00, 0x9FFF)], 12), "han_rare": ([(0x3400, 0x4DBF), (0x20000, 0x2A6DF)], 2),
    "hangul": ([(0xAC00, 0xD7A3)], 6), "gothic": ([(0x10330, 0x1034A)], 1), "any": ([(1, 0xD7FF), (0xE000, 0x10FFFF)], 4),
}
NUMBERS = [(0x30, 0x39)] * 6 + [(0x660, 0x669), (0x966, 0x96F), (0xB2, 0xB3), (0xBC, 0xBE), (0x2070, 0x2079),
                                (0x2160, 0x2188), (0x2460, 0x249B), (0xFF10, 0xFF19), (0x1D7CE, 0x1D7FF),
                                (0x16FF4, 0x16FF6), (0x11DE0, 0x11DE9), (0x3007, 0x3007), (0x4E00, 0x4E09)]
BLANKS = [" "] * 12 + ["  ", "   ", "\t", "\n", "\n\n", "\r\n", "\r", "\r\n\r\n", " \n", "\n ", "\t\t", "\u00a0", "\u2003",
                       "\u3000", "\u200b", "\u2028", "\u2029", "\u0085", "\u000b", "\u000c", "\u1680", "\ufeff", "\u180e"]
MARKS = [(0x300, 0x36F), (0x20D0, 0x20F0), (0xFE00, 0xFE0F), (0x64B, 0x652), (0x93C, 0x94D)]
EMOJI = ["\U0001F468\u200d\U0001F469\u200d\U0001F467\u200d\U0001F466", "\U0001F3F3\ufe0f\u200d\U0001F308",
         "\U0001F44D\U0001F3FD", "\U0001F1E9\U0001F1EA", "\u2764\ufe0f\u200d\U0001F525", "1\ufe0f\u20e3", "\U0001F600",
         "\U0001F9D1\U0001F3FF\u200d\U0001F680", "\u263a\ufe0f", "\U0001F3F4\U000E0067\U000E0062\U000E0065\U000E007F"]
PUNCTUATION = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "\u2019", "\u201c", "\u201d", "\u2014", "\u3002",
                                                            "\u3001", "\u060c", "\u0964", "==", "!=", "->", "://", "||"]
TAILS = ["'s", "'S", "'t", "'T", "'re", "'RE", "'Ve", "'m", "'ll", "'LL", "'d", "'\u017f", "'\u212a", "\u2019s", "'x", "''s",
         "'", "'l", "'r\u0435", "n't"]
LATIN = {"latin", "latin_more"}


class Maker:
    def __init__(self, seed, markers, words):
        self.r = random.Random(seed)
        self.markers, self.words = markers, words
        self.names = list(SCRIPTS)
        self.weights = [SCRIPTS[n][1] for n in self.names]

    def char(self, ranges):
        low, high = self.r.choice(ranges)
        return chr(self.r.randint(low, high))

    def word(self, script):
        r = self.r
        if script == "latin" and r.random() < 0.5:
            w = r.choice(self.words)
            return r.choice([w, w, w.capitalize(), w.upper()])
        w = "".join(self.char(SCRIPTS[script][0]) for _ in range(min(1 + int(r.expovariate(0.25)), 40)))
        if r.random() < 0.1:
            at = r.randint(0, len(w))
            w = w[:at] + self.char(MARKS) * r.randint(1, 3) + w[at:]
        return w

    def number(self):
        low_high = self.r.choice(NUMBERS)
        return "".join(chr(self.r.randint(*low_high)) for _ in range(min(1 + int(self.r.expovariate(0.3)), 30)))

    def text(self):
        r = self.r
        script = r.choices(self.names, self.weights)[0]
        out = []
        for _ in range(min(1 + int(r.expovariate(0.09)), 120)):
            x = r.random()
            if x < 0.50:
                out.append(self.word(script if r.random() < 0.85 else r.choices(self.names, self.weights)[0]))
            elif x < 0.60:
                out.append(self.number())
            elif x < 0.72:
                out.append(r.choice(PUNCTUATION) * (1 if r.random() < 0.9 else r.randint(2, 12)))
            elif x < 0.78:
                out.append(r.choice(TAILS))
            elif x < 0.84:
                out.append(r.choice(EMOJI))
            elif x < 0.88 and self.markers:
                m = r.choice(self.markers)
                out.append(m if r.random() < 0.8 else m[:r.randint(1, len(m))] + r.choice(["", "|", ">", " "]))
            elif x < 0.90:
                out.append(r.choice(BLANKS) * r.randint(2, 20))
            if r.random() < 0.65:
                out.append(r.choice(BLANKS))
        return "".join(out)

    def ill_formed(self):
        data = bytearray(self.text().encode())
        for _ in range(self.r.randint(1, 6)):
            at = self.r.randint(0, len(data))
            x = self.r.random()
            if x < 0.4:
                data[at:at] = bytes(self.r.randrange(256) for _ in range(self.r.randint(1, 4)))
            elif x < 0.7:
                del data[at:at + self.r.randint(1, 2)]
            else:
                data[at:at] = self.r.choice([b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff\xfe", b"\xe2\x82"])
        return bytes(data)


def gguf_metadata(path):
    """The tokenizer keys of a GGUF file."""
    sizes = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    with open(path, "rb") as f:
        def number(code):
            return struct.unpack("<" + code, f.read(struct.calcsize(code)))[0]

        def value(kind):
            if kind == 8:
                return f.read(number("Q"))
            if kind == 9:
                kind, n = number("I"), number("Q")
                return [value(kind) for _ in range(n)]
            return number(sizes[kind])

        if f.read(4) != b"GGUF":
            sys.exit(path + " is no GGUF file")
        f.read(4 + 8)
        n_keys = number("Q")
        out = {}
        for _ in range(n_keys):
            key = value(8).decode()
            out[key] = value(number("I"))
    return {k[len("tokenizer.ggml."):]: v for k, v in out.items() if k.startswith("tokenizer.ggml.")}


def reference_from_gguf(path):
    m = gguf_metadata(path)
    tokens = [t.decode() for t in m["tokens"]]
    merges = [tuple(s.decode().split(" ")) for s in m["merges"]]
    family = m["pre"].decode()
    t = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, merges, ignore_merges=family == "lfm2"))
    if family == "lfm2":
        t.pre_tokenizer = pre.Sequence([pre.Split(Regex(LLAMA3), "isolated"),
                                        pre.ByteLevel(add_prefix_space=False, use_regex=False)])
    elif family == "smollm":
        t.pre_tokenizer = pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])
    else:
        sys.exit("no reference is known for the pre-tokenizer " + family)
    t.decoder = decoders.ByteLevel()
    kinds = m["token_type"]
    t.add_special_tokens([AddedToken(s, normalized=False) for s, k in zip(tokens, kinds) if k == 3])
    t.add_tokens([AddedToken(s, normalized=True) for s, k in zip(tokens, kinds) if k == 4])
    return t


def missing_bytes(t):
    """Bytes that the vocabulary cannot spell."""
    alphabet = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    spelled = {b: chr(b) for b in alphabet}
    spelled.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in spelled)})
    vocab = t.get_vocab()
    return {b for b in range(256) if spelled[b] not in vocab}


def run(program, tokenizer, blobs, plain):
    data = b"".join(struct.pack("<I", len(b)) + b for b in blobs)
    p = subprocess.run([program, tokenizer] + (["--plain"] if plain else []), input=data, stdout=subprocess.PIPE)
    if p.returncode != 0:
        sys.exit("the program ended with %d" % p.returncode)
    lines = p.stdout.decode().split("\n")[:-1]
    if len(lines) != len(blobs):
        sys.exit("the program gave %d lines for %d strings" % (len(lines), len(blobs)))
    return lines


def compare(reference, args, texts, missing):
    n_bad = 0
    for plain in (False, True):
        reference.encode_special_tokens = plain
        lines = run(args.program, args.tokenizer, [t.encode() for t in texts], plain)
        for begin in range(0, len(texts), 4096):
            part = texts[begin:begin + 4096]
            for i, e in enumerate(reference.encode_batch(part, add_special_tokens=False)):
                line = lines[begin + i]
                if line.startswith("E ") and part[i].encode()[int(line[2:])] in missing:
                    continue
                if line != " ".join(map(str, e.ids)):
                    n_bad += 1
                    if n_bad <= 20:
                        print("differs (%s): %s\n  ours      %s\n  reference %s" % (
                            "plain" if plain else "special", json.dumps(part[i]), line, " ".join(map(str, e.ids))))
    return n_bad


def compare_cases(args):
    rows = [json.loads(line) for line in open(args.cases)]
    lines = run(args.program, args.tokenizer, [r["text"].encode() for r in rows], False)
    bad = [r for r, line in zip(rows, lines) if line != " ".join(map(str, r["ids"]))]
    for r in bad:
        print("case %s differs: %s" % (r["case"], json.dumps(r["text"])))
    print("%s: %d cases: %d differences" % (args.tokenizer.split("/")[-1], len(rows), len(bad)))
    return len(bad)


def main():
    a = argparse.ArgumentParser()
    a.add_argument("program")
    a.add_argument("tokenizer")
    a.add_argument("--strings", type=int, default=50000)
    a.add_argument("--cases")
    a.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    args = a.parse_args()
    is_gguf = args.tokenizer.endswith(".gguf")
    reference = reference_from_gguf(args.tokenizer) if is_gguf else Tokenizer.from_file(args.tokenizer)
    added = [t.content for t in reference.get_added_tokens_decoder().values()]
    words = [w for w in ("".join(c for c in t.replace("\u0120", "") if c.isascii()) for t in reference.get_vocab()) if w]
    maker = Maker(args.seed, added, words)
    texts = [maker.text() for _ in range(args.strings)]
    foreign = sum(sum(ord(c) > 0x24F for c in t) * 2 > sum(c.isalpha() for c in t) for t in texts)
    missing = missing_bytes(reference)
    n_bad = compare(reference, args, texts, missing)
    if args.cases:
        n_bad += compare_cases(args)
    ill = [maker.ill_formed() for _ in range(args.strings // 10)]
    for blob, line in zip(ill, run(args.program, args.tokenizer, ill, False)):
        if line == "R" or (line.startswith("E ") and blob[int(line[2:])] not in missing):
            n_bad += 1
            print("round trip fails: %s -> %s" % (blob.hex(), line))
    print("%s: seed %d, %d strings twice (%d %% mostly non-Latin), %d ill-formed: %d differences" % (
        args.tokenizer.split("/")[-1], args.seed, len(texts), foreign * 100 // len(texts), len(ill), n_bad))
    if foreign * 10 < len(texts) * 4:
        sys.exit("fewer than 40 % of the strings are mostly non-Latin")
    sys.exit(1 if n_bad else 0)


if __name__ == "__main__":
    main()
