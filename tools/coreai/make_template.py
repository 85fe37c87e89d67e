"""Makes a Core AI template from operation lists: an asset whose weights are left out, and where each of them goes.

    python tools/coreai/make_template.py LISTS.json OUT [--keep ASSET.aimodel]

LISTS.json is what `tern compile --npu --backend coreai` writes (src/unit/npu/pack_list.c): every program of a model as a
straight line of operations, with the names and shapes of its constants but not their values. So one template serves
every fine-tune of a geometry, and the program that Apple's compiler sees is the list that tern's evaluator runs. tern
fills it in C (src/unit/npu/coreai_pack.c); Python is needed only here, and on Linux to run the result.

Needs coreai-core (tools/npu_packages.sh). OUT gets template.json and skeleton.bin: main.mlirb without the blocks of the
weights. Constants get random values while the asset is built, so that each is found again once and no two merge.
"""
import argparse
import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
from coreai.authoring import AIProgram, Module
from coreai.authoring.graph_builder import GraphOp
import coreai.runtime as rt
from coreai._compiler.dialects import coreai as mil
from coreai._compiler.ir import F16Type, RankedTensorType

FORMAT = 1
f16 = np.float16


def const(a):
    """A constant of numpy values; lists of integers are si32."""
    a = np.asarray(a, np.int32) if isinstance(a, (int, list, tuple)) else np.asarray(a)
    return mil.constant(a if a.flags.c_contiguous else a.copy())


def u32(*v):
    return const(np.array(v, np.uint32))


class Weights:
    """Values by name: literal ones of the lists, random ones for what tern fills in."""

    def __init__(self):
        self.rng = np.random.default_rng(1)
        self.blocks = {}    # (name, part) -> bytes as they lie in the asset

    def random(self, name, part, shape):
        key = (name, part)
        if key not in self.blocks:
            if part == "q":
                a = self.rng.integers(-127, 128, shape).astype(np.int8)
            else:   # any finite values
                a = self.rng.integers(0x2000, 0x3c00, shape).astype(np.uint16).view(f16)
            self.blocks[key] = a
        return self.blocks[key]

    def value(self, c, shape):
        if "half" in c:
            return const(np.array(c["half"], np.uint16).view(f16).reshape(shape))
        if c["kind"] == "f16":
            return const(self.random(c["name"], "half", shape))
        q, n = self.random(c["name"], "q", shape), shape[0]
        s = self.random(c["name"], "scale", (n,))
        return mil.dequantize(const(q), const(s), const(np.zeros(n, np.int8)), const(np.zeros(n, f16)), const(0))


def same_shape(*values):
    return len({tuple(v.type.shape) for v in values}) == 1


def binary(plain, spread):
    return lambda x, y: plain(x, y) if same_shape(x, y) else spread(x, y)


BINARY = {
    "add": binary(mil.add, mil.broadcasting_add),
    "sub": binary(mil.sub, mil.broadcasting_sub),
    "mul": binary(mil.mul, mil.broadcasting_mul),
    "div": binary(mil.divide, mil.broadcasting_divide),
    "max": binary(mil.maximum, mil.broadcasting_maximum),
}
UNARY = {"silu": mil.silu, "sigmoid": mil.sigmoid, "exp": mil.exp, "rsqrt": mil.rsqrt}
REDUCE = {"sum": mil.reduce_sum, "mean": mil.reduce_mean, "reduce_max": mil.reduce_max}


def operation(o, x, shape):
    """One operation of a list over values x; shape: of its result."""
    k = o["op"]
    if k == "conv":
        return mil.conv2d(x[0], x[1], u32(1, 1), u32(1, 1), const(np.uint32(1)))
    if k == "matmul":
        return mil.batch_matmul(*x)
    if k in BINARY:
        return BINARY[k](*x)
    if k in UNARY:
        return UNARY[k](x[0])
    if k in REDUCE:
        return REDUCE[k](x[0], const([o["axis"]]))
    if k == "softmax":
        return mil.softmax(x[0], const(np.array(o["axis"], np.int32)))
    if k == "argmax":
        return mil.cast(mil.argmax(x[0], const(o["axis"])), f16)
    if k == "reshape":
        return mil.reshape(x[0], u32(*shape))
    if k == "transpose":
        return mil.transpose(x[0], u32(*o["perm"]))
    if k == "slice":
        n = x[0].type.shape
        lo, hi = [0] * len(n), list(n)
        lo[o["axis"]], hi[o["axis"]] = o["begin"], o["end"]
        return mil.slice_(x[0], const(lo), const(hi), const([1] * len(n)))
    if k == "concat":
        return mil.concat(const(o["axis"]), x)
    sys.exit(f"make_template: operation '{k}' is not known")


def entry(lst, weights):
    """A public graph of the module in whose context this is called."""
    t = lst["tensors"]
    tensor = lambda i: RankedTensorType.get(t[i]["shape"], F16Type.get())
    states, inputs = lst["states"], lst["inputs"]
    args = [mil.HandleType.get(tensor(s["old"])) for s in states] + [tensor(i) for i in inputs]
    g = GraphOp(lst["name"], args, [], input_names=[s["name"] for s in states] + [t[i]["name"] for i in inputs])
    with g.block:
        given = list(g.arguments)
        value, token = dict(zip(inputs, given[len(states):])), []
        for s, handle in zip(states, given):
            value[s["old"]], k = mil.read_handle(handle, mil.create_token())
            token.append(k)
        for o in lst["ops"]:
            for i in o["in"]:
                if i not in value:
                    value[i] = weights.value(t[i]["const"], t[i]["shape"])
            value[o["out"]] = operation(o, [value[i] for i in o["in"]], t[o["out"]]["shape"])
        outs = [(t[i]["name"], value[i]) for i in lst["outputs"]]
        for s, handle, k in zip(states, given, token):
            outs.append((s["name"] + "_token", mil.write_handle(handle, value[s["now"]], k)))
        g.outputs_spec = outs


def find_blocks(blob, weights):
    """[(offset, name, part, bytes)] in the order of the file."""
    out = []
    for (name, part), a in weights.blocks.items():
        raw = a.tobytes()
        at = blob.find(raw)
        if at < 0 or blob.find(raw, at + 1) >= 0:
            sys.exit(f"make_template: the constant {name} ({part}) is {'not' if at < 0 else 'more than once'} in the asset")
        out.append((at, name, part, len(raw)))
    return sorted(out)


def build(lists, path, weights):
    module = Module.create()
    with module:
        for lst in lists:
            entry(lst, weights)
    return AIProgram(module).save_asset(Path(path), metadata=rt.AIModelAssetMetadata())


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("lists", type=Path)
    ap.add_argument("out", type=Path)
    ap.add_argument("--keep", help="also keep the asset with its random weights")
    a = ap.parse_args()
    text = a.lists.read_bytes()
    lists, weights = json.loads(text)["lists"], Weights()
    with tempfile.TemporaryDirectory() as d:
        path = Path(a.keep or Path(d) / "template.aimodel")
        asset = build(lists, path, weights)
        if "f32" in str(asset.program).split("{-#")[0]:
            sys.exit("make_template: the program has an fp32 value, which the Neural Engine does not run")
        blob = (path / "main.mlirb").read_bytes()
        metadata = json.loads((path / "metadata.json").read_text())
    blocks, skeleton, at = find_blocks(blob, weights), bytearray(), 0
    for offset, _, _, n in blocks:
        skeleton += blob[at:offset]
        at = offset + n
    skeleton += blob[at:]
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "skeleton.bin").write_bytes(skeleton)
    head = {"format": FORMAT, "runtime": "coreai-core 1.0.0b3", "lists": hashlib.sha256(text).hexdigest(),
            "asset_version": metadata["assetVersion"], "bytes": len(blob),
            "skeleton": hashlib.sha256(skeleton).hexdigest(), "functions": [x["name"] for x in lists],
            "blocks": [{"name": n, "part": p, "offset": o, "bytes": b} for o, n, p, b in blocks]}
    (a.out / "template.json").write_text(json.dumps(head, indent=0) + "\n")
    print(f"{len(lists)} programs, {len(blocks)} constants of {sum(b[3] for b in blocks)} bytes, skeleton {len(skeleton)} bytes")


if __name__ == "__main__":
    main()
