#!/usr/bin/env python3
"""Makes test/data/route: a small random encoder with a prompt-router head as a Hugging Face folder, and what numpy
computes for a few texts in float64, with the token places that the tokenizers package gives.
(pip install numpy tokenizers safetensors)

The encoder here is first held against test/data/hf/lfm2-encoder, whose rows come from torch.

expect.jsonl, a line each: {"text", "routes", "ids", "logits"}; the last lines have "label" and "kind" too, for the
agreement of two units: labels are what this reference answers, but for one in four.
"""
import json
import os
import struct
import sys

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

HIDDEN, HEADS, KV, FF, LAYERS, TAPS, MERGES, PROJ = 32, 2, 1, 48, "caca", 3, 120, 16
SPECIALS = ["<|pad|>", "<|startoftext|>", "<|endoftext|>"]


def rms(x, w, eps=1e-5):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def rope(x, theta=1e6):  # [n, heads, d]
    n, _, d = x.shape
    angle = np.arange(n)[:, None] / theta ** (np.arange(0, d, 2) / d)[None]
    cos, sin = (np.concatenate([f(angle)] * 2, -1)[:, None] for f in (np.cos, np.sin))
    turned = np.concatenate([-x[..., d // 2:], x[..., :d // 2]], -1)
    return x * cos + turned * sin


def encode(t, prefix, layers, heads, kv, ids):
    w = lambda name: t[prefix + name].astype(np.float64)
    x = w("embed_tokens.weight")[ids]
    n, hidden = x.shape
    d = hidden // heads
    for i, kind in enumerate(layers):
        p = f"layers.{i}."
        h = rms(x, w(p + "operator_norm.weight"))
        if kind == "a":
            q = rope(rms((h @ w(p + "self_attn.q_proj.weight").T).reshape(n, heads, d), w(p + "self_attn.q_layernorm.weight")))
            k = rope(rms((h @ w(p + "self_attn.k_proj.weight").T).reshape(n, kv, d), w(p + "self_attn.k_layernorm.weight")))
            v = (h @ w(p + "self_attn.v_proj.weight").T).reshape(n, kv, d)
            out = np.zeros((n, heads, d))
            for g in range(heads):
                s = q[:, g] @ k[:, g * kv // heads].T / np.sqrt(d)
                s = np.exp(s - s.max(-1, keepdims=True))
                out[:, g] = s / s.sum(-1, keepdims=True) @ v[:, g * kv // heads]
            y = out.reshape(n, hidden) @ w(p + "self_attn.out_proj.weight").T
        else:
            b, c, u = np.split(h @ w(p + "conv.in_proj.weight").T, 3, -1)
            bu = np.pad(b * u, ((1, 1), (0, 0)))
            taps = w(p + "conv.conv.weight").reshape(hidden, TAPS)
            v = sum(bu[j:j + n] * taps[:, j] for j in range(TAPS))
            y = (c * v) @ w(p + "conv.out_proj.weight").T
        x = x + y
        h = rms(x, w(p + "ffn_norm.weight"))
        gate = h @ w(p + "feed_forward.w1.weight").T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w(p + "feed_forward.w3.weight").T)) @ w(p + "feed_forward.w2.weight").T
    return rms(x, w("embedding_norm.weight"))


def encoder_check(folder):
    t = load_file(os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "expect.bin"), "rb") as f:
        assert f.read(4) == b"TENC"
        n, width = struct.unpack("<2I", f.read(8))
        ids = np.frombuffer(f.read(4 * n), "<i4")
        want = np.frombuffer(f.read(), "<f4").reshape(n, width)
    off = np.abs(encode(t, "model.", "caca", 2, 1, ids) - want).max()
    print("lfm2-encoder: largest difference %.2e" % off)
    assert off < 1e-5


def tokenizer_make(source, path):
    with open(source) as f:
        t = json.load(f)
    pico = sorted((i, s) for s, i in t["model"]["vocab"].items())
    vocab = {s: i for i, s in enumerate(SPECIALS)}
    for _, s in pico:
        if len(s) == 1 and s not in vocab:
            vocab[s] = len(vocab)
    assert len(vocab) == len(SPECIALS) + 256
    merges = []
    for a, b in t["model"]["merges"]:
        if len(merges) < MERGES and a in vocab and b in vocab:
            merges.append([a, b])
            vocab.setdefault(a + b, len(vocab))
    t["model"]["vocab"], t["model"]["merges"] = vocab, merges
    t["added_tokens"] = [x for x in t["added_tokens"] if x["content"] in SPECIALS]
    with open(path, "w") as f:
        json.dump(t, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    return len(vocab)


def weights_make(vocab, rng):
    def matrix(rows, cols, gain=1.0):
        sigma = min(0.2, gain / np.sqrt(cols)) * 1024
        return (np.clip(np.round(rng.normal(0, sigma, (rows, cols))), -255, 255) / 1024).astype(np.float16)

    def norm(n):
        return (1 + rng.integers(-32, 33, n) / 128).astype(np.float16)

    d = HIDDEN // HEADS
    t = {"lfm2.embed_tokens.weight": matrix(vocab, HIDDEN), "lfm2.embedding_norm.weight": norm(HIDDEN)}
    for i, kind in enumerate(LAYERS):
        p = f"lfm2.layers.{i}."
        t[p + "operator_norm.weight"], t[p + "ffn_norm.weight"] = norm(HIDDEN), norm(HIDDEN)
        if kind == "a":
            t[p + "self_attn.q_proj.weight"] = matrix(HIDDEN, HIDDEN, 2)
            t[p + "self_attn.k_proj.weight"] = matrix(KV * d, HIDDEN, 2)
            t[p + "self_attn.v_proj.weight"] = matrix(KV * d, HIDDEN)
            t[p + "self_attn.out_proj.weight"] = matrix(HIDDEN, HIDDEN)
            t[p + "self_attn.q_layernorm.weight"], t[p + "self_attn.k_layernorm.weight"] = norm(d), norm(d)
        else:
            t[p + "conv.in_proj.weight"] = matrix(3 * HIDDEN, HIDDEN)
            t[p + "conv.conv.weight"] = matrix(HIDDEN, TAPS).reshape(HIDDEN, 1, TAPS)
            t[p + "conv.out_proj.weight"] = matrix(HIDDEN, HIDDEN)
        t[p + "feed_forward.w1.weight"] = matrix(FF, HIDDEN)
        t[p + "feed_forward.w3.weight"] = matrix(FF, HIDDEN)
        t[p + "feed_forward.w2.weight"] = matrix(HIDDEN, FF)
    for name in ("tok_proj", "rule_proj"):
        t[name + ".weight"] = matrix(PROJ, HIDDEN)
        t[name + ".bias"] = matrix(1, PROJ)[0]
    t["logit_scale"] = np.array(4.0, np.float16)  # beyond the bound: min(exp(4), 30)
    t["score_bias"] = np.array(-1.25, np.float16)
    return t


def score(t, tokenizer, text, routes):
    head = "Categories:\n" + "".join(f"- {r}\n" for r in routes) + "\nText:\n"
    enc = tokenizer.encode(head + text)
    rows = encode(t, "lfm2.", LAYERS, HEADS, KV, np.array(enc.ids))
    real = [i for i, (a, b) in enumerate(enc.offsets) if b > a]

    def unit(name, picked):
        v = rows[picked].mean(0) @ t[name + ".weight"].astype(np.float64).T + t[name + ".bias"].astype(np.float64)
        return v / max(np.linalg.norm(v), 1e-12)

    q = unit("tok_proj", [i for i in real if enc.offsets[i][1] > len(head)])
    scale, bias = min(np.exp(float(t["logit_scale"])), 30), float(t["score_bias"])
    logits, at = [], len("Categories:\n")
    for r in routes:
        a, b = at + 2, at + 2 + len(r)
        c = unit("rule_proj", [i for i in real if enc.offsets[i][0] < b and enc.offsets[i][1] > a])
        logits.append(float(q @ c * scale + bias))
        at = b + 1
    return enc.ids, logits


CASES = [
    ("My parcel never came.", ["billing", "delivery", "returns"]),
    ("Wo bleibt mein Päckchen? 🙂 Grüße aus Köln", ["Rechnung", "Lieferung", "Rückgabe – Käufe"]),
    ("x", ["a"]),
    ("Translate this into French: the cat sleeps.\nThen count its words.", ["translation", "counting words", "code", "chat",
                                                                         "arithmetic"]),
]
WORDS = ["order", "refund", "weather", "poem", "python", "sum", "train", "lamp", "recipe", "hotel", "invoice", "kite"]


def main(folder, source):
    rng = np.random.default_rng(77)
    encoder_check("test/data/hf/lfm2-encoder")
    os.makedirs(folder, exist_ok=True)
    vocab = tokenizer_make(source, os.path.join(folder, "tokenizer.json"))
    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    t = weights_make(vocab, rng)
    save_file(t, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(
            architectures=["Lfm2BidirForSequenceRouting"], model_type="lfm2", hidden_size=HIDDEN, intermediate_size=FF,
            block_auto_adjust_ff_dim=False, num_hidden_layers=len(LAYERS), num_attention_heads=HEADS,
            num_key_value_heads=KV, layer_types=["full_attention" if c == "a" else "conv" for c in LAYERS],
            conv_L_cache=TAPS, conv_bias=False, norm_eps=1e-5, vocab_size=vocab, max_position_embeddings=1024,
            rope_parameters=dict(rope_type="default", rope_theta=1e6), rule_proj_dim=PROJ, tie_word_embeddings=True,
            bos_token_id=1, eos_token_id=2, pad_token_id=0, dtype="float16"), f, indent=1, sort_keys=True)
        f.write("\n")
    with open(os.path.join(folder, "expect.jsonl"), "w") as f:
        for text, routes in CASES:
            ids, logits = score(t, tokenizer, text, routes)
            f.write(json.dumps(dict(text=text, routes=routes, ids=ids, logits=logits), ensure_ascii=False) + "\n")
        for i in range(24):
            ranking = i % 2 == 1
            text = " ".join(rng.choice(WORDS, 3 + i % 5))
            routes = [str(w) for w in rng.choice(WORDS, 8 if ranking else 3, replace=False)]
            _, logits = score(t, tokenizer, text, routes)
            best = int(np.argmax(logits))
            f.write(json.dumps(dict(text=text, routes=routes, kind="ranking" if ranking else "classification",
                                    label=routes[(best + (i % 4 == 3)) % len(routes)], logits=logits)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "test/data/route", "models/tokenizer.json")
