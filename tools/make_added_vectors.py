#!/usr/bin/env python3
"""Makes test/data/tokenizer/added.jsonl: what the `tokenizers` package does with added tokens and their flags.

Each line: a tokenizer.json (256 byte tokens, no merges, random added tokens), and texts with their ids, once with control
tokens read and once without. Overlapping markers of all kinds are tried, but control tokens overlap only one another:
what a control token that is not read hides from other markers is our own, stricter rule.
"""
import json
import os
import random

from tokenizers import AddedToken, Tokenizer, decoders, models
from tokenizers import pre_tokenizers as pre

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "test/data/tokenizer/added.jsonl")
ORDINARY = ["ab", "abc", "bc", "a", "c ab", " a", "b\u0301", "\u00e9t", "word", "wor", "or", "\u65e5\u672c", "_x", "x", "12", "2",
            "\n", "--"]
CONTROL = ["<|q|>", "<|qz|>", "<|q", "|>", "<s>", "<s><s>"]
PARTS = ["a", "b", "c", "ab", "abc", "word", "12", "1", " ", "  ", "\t", "\n", "\u3000", "\u00e9", "e\u0301", "\u65e5\u672c", "_", "x",
         "<|q|>", "<|qz|>", "<|q", "|>", "<s>", "<s><s>", "-", "--", "!", "\u0661", "\u200d"]


def spelled():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b]
    out = {b: chr(b) for b in plain}
    out.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in plain)})
    return out


def main():
    r = random.Random(20240607)
    vocab = {s: b for b, s in spelled().items()}
    with open(OUT, "w") as f:
        for _ in range(60):
            t = Tokenizer(models.BPE(vocab, []))
            t.pre_tokenizer = pre.ByteLevel(add_prefix_space=False, use_regex=True)
            t.decoder = decoders.ByteLevel()

            def flags():
                return {k: r.random() < 0.3 for k in ("single_word", "lstrip", "rstrip")}

            # A vocabulary entry of one letter cannot be added here: its id would be the byte's.
            for s in r.sample([w for w in ORDINARY if len(w.encode()) > 1], r.randint(1, 6)):
                t.add_tokens([AddedToken(s, normalized=r.random() < 0.5, **flags())])
            for s in r.sample(CONTROL, r.randint(1, 4)):
                t.add_special_tokens([AddedToken(s, normalized=r.random() < 0.2, **flags())])
            rows = []
            for _ in range(14):
                text = "".join(r.choice(PARTS) for _ in range(r.randint(1, 14)))
                t.encode_special_tokens = False
                ids = t.encode(text, add_special_tokens=False).ids
                t.encode_special_tokens = True
                rows.append([text, ids, t.encode(text, add_special_tokens=False).ids])
            added = json.loads(t.to_str())["added_tokens"]
            f.write(json.dumps({"added": added, "rows": rows}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
