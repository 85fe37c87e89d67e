#!/usr/bin/env python3
"""Makes test/data/tokenizer/plain.json and plain.txt: a small vocabulary spelled as text (as Gemma's: U+2581 for blanks,
byte fallback), and the ids that the `tokenizers` package gives texts.   (pip install tokenizers)

Merges are made from scores as transformers makes them when it converts a SentencePiece model: every way to cut a piece
into two, pieces of higher score first; a piece's score is minus its id. plain.txt has one text per line: its ids, a tab,
the text as a JSON string.
"""
import json
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "", " ", "  ", "a", "The moon is a moon.", " leading and trailing  ", "two  blanks   three    four",
    "tabs\tand\nlines\n\n", "caf\u00e9 na\u00efve \u4f60\u597d \U0001f600", "a\u2581b \u2581 c", "\u0000\u0001\u007f",
    "<start_of_turn>user\nHi<end_of_turn>\n", "<start_of_turn> <end_of_turn>x", "aaaa aaaaa banana bananas",
    "the theme of these other things is there", "x" * 90 + " " * 45 + "y", "\n\n\n\n", "1234567890 3.14",
]
CORPUS = ["the moon is a moon and the sun is the sun", "banana bananas and other things", "these themes are there",
          "two  blanks and   three", "a line\nanother line\n\nand one more", "aaaa aaaaa aaaaaa", "caf\u00e9 caf\u00e9"] * 3


def main(folder):
    normalizer = normalizers.Replace(" ", "\u2581")
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizer
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=150, special_tokens=[]))
    made = json.loads(trained.to_str())["model"]
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>"]
    pieces += [f"<0x{b:02X}>" for b in range(256)]
    letters = [p for p in made["vocab"] if len(p) == 1]
    whole = [a + b for a, b in (m if isinstance(m, list) else m.split(" ") for m in made["merges"])]
    pieces += list(dict.fromkeys(whole)) + letters
    vocab = {p: i for i, p in enumerate(pieces)}
    merges = []
    for piece in list(dict.fromkeys(whole)):
        cuts = [(piece[:i], piece[i:]) for i in range(1, len(piece)) if piece[:i] in vocab and piece[i:] in vocab]
        merges += sorted(cuts, key=lambda c: (vocab[c[0]], vocab[c[1]]))
    t = Tokenizer(models.BPE(vocab=vocab, merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens([AddedToken(p, normalized=False, special=True) for p in pieces[:6]])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A $B:1",
                                                     special_tokens=[("<bos>", vocab["<bos>"])])
    t.save(f"{folder}/plain.json", pretty=False)
    with open(f"{folder}/plain.txt", "w", encoding="utf-8") as f:
        for text in TEXTS:
            ids = t.encode(text, add_special_tokens=False).ids
            f.write(" ".join(map(str, ids)) + "\t" + json.dumps(text) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "test/data/tokenizer")
