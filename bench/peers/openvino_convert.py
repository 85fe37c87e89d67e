#!/usr/bin/env python3
"""Makes the OpenVINO model that openvino_bench.py runs from a Hugging Face folder.

    openvino_convert.py HF_DIR OUT_DIR 8|4

8: int8 weights, one scale a channel; 4: int4, symmetric, groups of 64. Needs the PyPI packages optimum-intel 2.2.0,
transformers 5.4.0, nncf and openvino-tokenizers.
"""
import subprocess
import sys

from optimum.intel import OVModelForCausalLM, OVWeightQuantizationConfig

source, target, bits = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = OVWeightQuantizationConfig(bits=8) if bits == 8 else \
    OVWeightQuantizationConfig(bits=4, sym=True, group_size=64, ratio=1.0)
OVModelForCausalLM.from_pretrained(source, export=True, quantization_config=config).save_pretrained(target)
subprocess.run(["convert_tokenizer", source, "--with-detokenizer", "-o", target], check=True)
