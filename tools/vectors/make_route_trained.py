#!/usr/bin/env python3
"""Makes test/data/route_trained: the encoder of test/data/route with a head that was trained for its task, and cases
that it has not seen, with labels. (pip install numpy tokenizers safetensors)

The task is made up: a text of topic words among others, a route for each of some topics; the label is the topic of the
text. Only the head is trained (softmax over the routes, Adam), on rows of the frozen random encoder, so accuracy is far
from a real router's: it is there so that `tern route --agree` has an accuracy that means something.
The same machine makes the same files; weights are rounded to 1/1024, so others nearly do.
"""
import json
import os
import shutil
import sys

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from make_route_vectors import HEADS, KV, LAYERS, encode, score

TOPICS = {
    "billing": ["invoice", "refund", "charge", "receipt"], "travel": ["hotel", "flight", "train", "luggage"],
    "weather": ["rain", "storm", "sunshine", "frost"], "cooking": ["recipe", "oven", "garlic", "dough"],
    "coding": ["python", "compiler", "function", "bug"], "music": ["guitar", "melody", "piano", "chorus"],
    "sports": ["football", "goal", "referee", "marathon"], "garden": ["tulip", "compost", "lawn", "hedge"],
    "health": ["doctor", "fever", "vitamin", "clinic"], "school": ["exam", "teacher", "homework", "chalk"],
}
FILLER = ["please", "the", "my", "about", "with", "again", "today", "what", "and", "some", "need", "help", "where",
          "is"]
N_TRAIN, N_TEST, STEPS, RATE = 1600, 96, 1500, 0.01


def case_make(rng, i):
    names = list(TOPICS)
    routes = [str(r) for r in rng.choice(names, 8 if i % 2 else 3, replace=False)]
    label = routes[rng.integers(len(routes))]
    words = [str(w) for w in rng.choice(TOPICS[label], 3, replace=False)] + [str(w) for w in rng.choice(FILLER, 2)]
    rng.shuffle(words)
    return " ".join(words), routes, label


def features(t, tokenizer, text, routes):
    """Mean rows of the text and of each route, as src/engine/route.c takes them."""
    head = "Categories:\n" + "".join(f"- {r}\n" for r in routes) + "\nText:\n"
    enc = tokenizer.encode(head + text)
    rows = encode(t, "lfm2.", LAYERS, HEADS, KV, np.array(enc.ids))
    real = [i for i, (a, b) in enumerate(enc.offsets) if b > a]
    q = rows[[i for i in real if enc.offsets[i][1] > len(head)]].mean(0)
    cs, at = [], len("Categories:\n")
    for r in routes:
        a, b = at + 2, at + 2 + len(r)
        cs.append(rows[[i for i in real if enc.offsets[i][0] < b and enc.offsets[i][1] > a]].mean(0))
        at = b + 1
    return q, np.array(cs)


def unit(v):
    n = np.linalg.norm(v, axis=-1, keepdims=True)
    return v / n, n


def unit_back(u, n, d):
    return (d - u * (d * u).sum(-1, keepdims=True)) / n


def train(data, width, hidden, rng, scale=30.0):
    matrix = lambda: rng.normal(0, 1 / np.sqrt(hidden), (width, hidden))
    p = [matrix(), np.zeros(width), matrix(), np.zeros(width)]
    m, v = [np.zeros_like(x) for x in p], [np.zeros_like(x) for x in p]
    for step in range(1, STEPS + 1):
        grad, loss = [np.zeros_like(x) for x in p], 0
        batch = [data[i] for i in rng.integers(0, len(data), 64)]
        for f, cs, label in batch:
            q, qn = unit(p[0] @ f + p[1])
            c, cn = unit(cs @ p[2].T + p[3])
            z = c @ q * scale
            s = np.exp(z - z.max())
            s /= s.sum()
            loss -= np.log(s[label])
            s[label] -= 1
            dq = unit_back(q, qn, scale * s @ c)
            dc = unit_back(c, cn, scale * s[:, None] * q)
            grad[0] += np.outer(dq, f)
            grad[1] += dq
            grad[2] += dc.T @ cs
            grad[3] += dc.sum(0)
        for k in range(4):
            g = grad[k] / len(batch)
            m[k] = 0.9 * m[k] + 0.1 * g
            v[k] = 0.999 * v[k] + 0.001 * g * g
            p[k] -= RATE * (1 - step / STEPS) * (m[k] / (1 - 0.9**step)) / (np.sqrt(v[k] / (1 - 0.999**step)) + 1e-8)
        if step % 250 == 0:
            print("step %d, loss %.3f" % (step, loss / len(batch)))
    return p


def main(source, folder):
    rng = np.random.default_rng(5)
    t = load_file(os.path.join(source, "model.safetensors"))
    tokenizer = Tokenizer.from_file(os.path.join(source, "tokenizer.json"))
    cases = [case_make(rng, i) for i in range(N_TRAIN + N_TEST)]
    seen = {c[0] for c in cases[:N_TRAIN]}
    held = [c for c in cases[N_TRAIN:] if c[0] not in seen]
    data = [(*features(t, tokenizer, text, routes), routes.index(label)) for text, routes, label in cases[:N_TRAIN]]
    p = train(data, t["tok_proj.weight"].shape[0], t["tok_proj.weight"].shape[1], rng)
    top = max(np.abs(x).max() for x in p)
    grid = lambda x: (np.round(x / top * 1024) / 1024).astype(np.float16)  # a factor of both sides changes no direction
    for k, name in enumerate(("tok_proj.weight", "tok_proj.bias", "rule_proj.weight", "rule_proj.bias")):
        t[name] = grid(p[k])
    os.makedirs(folder, exist_ok=True)
    save_file(t, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(os.path.join(source, name), os.path.join(folder, name))
    n_right = 0
    with open(os.path.join(folder, "cases.jsonl"), "w") as f:
        for text, routes, label in held:
            _, logits = score(t, tokenizer, text, routes)
            n_right += routes[int(np.argmax(logits))] == label
            f.write(json.dumps(dict(text=text, routes=routes, kind="ranking" if len(routes) > 3 else "classification",
                                    label=label)) + "\n")
    print("%d of %d cases that it has not seen" % (n_right, len(held)))


if __name__ == "__main__":
    main("test/data/route", sys.argv[1] if len(sys.argv) > 1 else "test/data/route_trained")
