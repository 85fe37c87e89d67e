#!/usr/bin/env python3
"""Makes test/data/spec/trees.bin: draft trees by a literal construction (numpy only), to judge src/spec/tree_build.c.

No heap and no best-first search: level by level every node that is among the best 63 so far is expanded, all of its
candidates join one list, and the list's best 63 are the tree, sorted by score. That is what best-first gives, since
scores fall along every path. Scores are float64 from float32 inputs; a case is kept only when neighbouring scores of
the sorted list differ by more than GAP, so that float32 gives the same order.

trees.bin, little-endian: "TREE", u32 cases; each case: u32 vocabulary, used, depths, rank, anchor; f32 temperature,
min_p, top_p; u32 top_k, seed, position; f32 base [depths][vocabulary], w1 [vocabulary][rank], w2 [vocabulary][rank];
u32 trees; each tree: u32 method, exact, successors, nodes; then for each node (root left out): i32 parent (0: the
root), token; f32 score.
"""
import struct
import sys

import numpy as np

BUDGET, SHORT, GAP = 63, 64, 2e-5
CHAIN, FACTORISED, BIASED, CONDITIONED = range(4)


def log_softmax(x):
    m = x.max()
    return x - m - np.log(np.exp(x - m).sum())


def top(x, k):
    """Indices of the k largest, ties to the lowest index."""
    return np.lexsort((np.arange(len(x)), -x))[:k]


def philox(counter, key):
    """Philox4x32-10 on Python integers."""
    c, k, mask = list(counter), list(key), 0xFFFFFFFF
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & mask, (p0 >> 32) ^ c[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return c


def gumbel(seed, pos, token):
    word = philox((token // 4, 0, pos & 0xFFFFFFFF, pos >> 32), (seed & 0xFFFFFFFF, seed >> 32))[token % 4]
    return float(np.float32(-np.log(-np.log((word + 0.5) / 2.0**32))))


class Case:
    def __init__(self, rng, vocab, used, depths, rank, temperature=0.0, min_p=0.0, top_p=1.0, top_k=0, spread=2.5):
        self.vocab, self.used, self.depths, self.rank = vocab, used, depths, rank
        self.temperature, self.min_p, self.top_p, self.top_k = temperature, min_p, top_p, top_k
        self.seed, self.pos, self.anchor = int(rng.integers(1 << 31)), int(rng.integers(5000)), int(rng.integers(used))
        self.base = (spread * rng.standard_normal((depths, vocab))).astype(np.float32)
        self.w1 = (1.6 * rng.standard_normal((vocab, rank)) / np.sqrt(rank)).astype(np.float32)
        self.w2 = (1.6 * rng.standard_normal((vocab, rank))).astype(np.float32)
        # The product in float32, k ascending: the test's loop, so that both see the same logits.
        bias = np.zeros((vocab, vocab), np.float32)
        for k in range(rank):
            bias = (bias + self.w1[:, k, None] * self.w2[None, :, k]).astype(np.float32)
        self.bias = bias
        self.succ = [top(bias[t, :used], SHORT) for t in range(vocab)]

    def row(self, depth, token, biased, exact, succ):
        """(ids, log-probabilities) of the candidates behind `token`, best first."""
        logits = self.base[depth, : self.used].copy()
        x = logits + self.bias[token, : self.used] if biased else logits
        x = x.astype(np.float64)
        if exact:
            ids = top(x, 2 * SHORT)
        else:
            ids = list(top(logits, SHORT))
            if biased and succ:
                ids += [i for i in self.succ[token] if i not in set(ids)]
            ids = np.array(ids)
        y = x[ids]
        if self.temperature > 0:
            y = log_softmax(self.noisy(y, ids, depth))
        else:
            y = log_softmax(x)[ids] if exact else log_softmax(y)
        order = np.lexsort((ids, -y))
        return ids[order], y[order]

    def noisy(self, y, ids, depth):
        t, floor, keep = self.temperature, -np.inf, len(y)
        best = np.sort(y)[::-1]
        if self.min_p > 0:
            floor = best[0] + t * np.log(self.min_p)
        if self.top_k or self.top_p < 1:
            if self.top_k:
                keep = min(keep, self.top_k)
            p = np.exp((best[:keep] - best[0]) / t)
            if self.top_p < 1:
                keep = int(np.searchsorted(np.cumsum(p), self.top_p * p.sum())) + 1
            floor = max(floor, best[keep - 1])
        noise = np.array([t * gumbel(self.seed, self.pos + depth, int(i)) for i in ids])
        return y + noise - np.maximum(floor - y, 0)

    def tree(self, method, exact, succ):
        """Nodes (parent, token, score), parents counted from 1, 0 the root; None when two scores are too close."""
        chain, rows = [self.anchor], []
        for d in range(self.depths):
            rows.append(self.row(d, chain[-1], method != FACTORISED, exact, succ))
            chain.append(int(rows[-1][0][0]))
        if method == CHAIN:
            scores = np.cumsum([r[1][0] for r in rows])
            gaps = [r[1][0] - r[1][1] for r in rows]
            return None if min(gaps) < GAP else [(i, chain[i + 1], scores[i]) for i in range(self.depths)]
        found = []  # (score, depth, token, path of tokens)
        level = [(0.0, ())]
        for d in range(self.depths):
            for score, path in level:
                last = path[-1] if path else self.anchor
                ids, lp = self.row(d, last, True, exact, succ) if method == CONDITIONED else rows[d]
                found += [(score + float(v), d + 1, int(i), path + (int(i),)) for i, v in zip(ids, lp)]
            found.sort(key=lambda n: (-n[0], n[1], n[2]))
            found = found[: BUDGET + 1]
            level = [(n[0], n[3]) for n in found if n[1] == d + 1]
        scores = np.array([n[0] for n in found])
        if (scores[:-1] - scores[1:]).min() < GAP:
            return None
        at = {(): 0}
        out = []
        for i, n in enumerate(found[:BUDGET]):
            out.append((at[n[3][:-1]], n[2], n[0]))
            at[n[3]] = i + 1
        return out


TREES = [(CHAIN, 1, 0), (CHAIN, 0, 1), (FACTORISED, 1, 0), (BIASED, 1, 0), (BIASED, 0, 1), (CONDITIONED, 1, 0),
         (CONDITIONED, 0, 1), (CONDITIONED, 0, 0)]
KINDS = [dict(vocab=300, used=300, depths=9, rank=8), dict(vocab=260, used=251, depths=9, rank=4, spread=3.5),
         dict(vocab=300, used=290, depths=7, rank=8, temperature=0.8),
         dict(vocab=280, used=280, depths=9, rank=4, temperature=1.2, min_p=0.05, top_k=40),
         dict(vocab=260, used=260, depths=9, rank=4, temperature=0.7, top_p=0.9)]


def main(path):
    rng = np.random.default_rng(20260118)
    out, n_cases = b"", 0
    for kind in KINDS:
        while True:
            case = Case(rng, **kind)
            trees = [case.tree(*t) for t in TREES]
            if all(t is not None for t in trees):
                break
        out += struct.pack("<5I3f3I", case.vocab, case.used, case.depths, case.rank, case.anchor, case.temperature,
                           case.min_p, case.top_p, case.top_k, case.seed, case.pos)
        out += case.base.tobytes() + case.w1.tobytes() + case.w2.tobytes() + struct.pack("<I", len(TREES))
        for (method, exact, succ), nodes in zip(TREES, trees):
            out += struct.pack("<4I", method, exact, succ, len(nodes))
            out += b"".join(struct.pack("<2if", *n) for n in nodes)
        n_cases += 1
    with open(path, "wb") as f:
        f.write(b"TREE" + struct.pack("<I", n_cases) + out)
    print(f"{path}: {n_cases} cases, {len(out) + 8} bytes")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "test/data/spec/trees.bin")
