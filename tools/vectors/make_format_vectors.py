#!/usr/bin/env python3
"""Makes test/data/op/formats.bin: weight blocks with their values, by the Python package `gguf` (pip install gguf).

Records, little-endian: name (8 bytes, zero-padded), u32 number of values n, u32 bytes of the row, u32 has_input;
then, when has_input, n floats that the package encoded into the row; the row; n floats that it decoded from the row.
Rows without input are random bits under sound scales, with zero, subnormal and negative ones among them.
"""
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import quants

N = 512
SCALES_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q6_K": [208],
             "Q5_K": [0, 2], "IQ4_NL": [0], "IQ4_XS": [0], "Q2_K": [80, 82], "Q3_K": [108]}
BLOCK = {"F16": (1, 2), "BF16": (1, 2), "Q4_0": (32, 18), "Q4_1": (32, 20), "Q5_0": (32, 22), "Q5_1": (32, 24),
         "Q8_0": (32, 34), "Q4_K": (256, 144), "Q6_K": (256, 210), "Q5_K": (256, 176), "IQ4_NL": (32, 18),
         "IQ4_XS": (256, 136), "Q2_K": (256, 84), "Q3_K": (256, 110)}
ENCODES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def random_row(rng, name):
    n_block, n_bytes = BLOCK[name]
    blocks = rng.integers(0, 256, (N // n_block, n_bytes), dtype=np.uint8)
    for at in SCALES_AT.get(name, []):
        scale = rng.normal(0, 0.05, len(blocks)).astype(np.float16)
        scale[0] = np.float16(6e-8)  # subnormal
        if len(scale) > 2:
            scale[1] = 0
            scale[2] = np.float16(-1000)
        blocks[:, at:at + 2] = scale.view(np.uint8).reshape(-1, 2)
    if name in ("F16", "BF16"):  # no NaN: its bits are not compared
        v = blocks.view(np.uint16)
        mask = 0x7C00 if name == "F16" else 0x7F80
        v[(v & mask) == mask] = 0x0001
    return blocks.reshape(-1)


def record(out, name, row, values, inputs):
    out.write(struct.pack("<8sIII", name.encode(), N, len(row), int(inputs is not None)))
    if inputs is not None:
        out.write(inputs.astype("<f4").tobytes())
    out.write(row.tobytes())
    out.write(values.astype("<f4").tobytes())


def main():
    rng = np.random.default_rng(20240601)
    with open(sys.argv[1] if len(sys.argv) > 1 else "test/data/op/formats.bin", "wb") as out:
        for name in BLOCK:
            kind = T[name]
            row = random_row(rng, name)
            record(out, name, row, quants.dequantize(row.reshape(1, -1), kind).reshape(-1), None)
            if name not in ENCODES:
                continue
            x = rng.normal(0, 1, N).astype(np.float32)
            x[:32] = 0
            x[32:64] = 0.25
            x[64:96] *= np.float32(1e-3)
            x[96:128] = np.round(x[96:128] * 4) / 4  # ties
            row = quants.quantize(x.reshape(1, -1), kind).reshape(-1).view(np.uint8)
            record(out, name, row, quants.dequantize(row.reshape(1, -1), kind).reshape(-1), x)


main()
