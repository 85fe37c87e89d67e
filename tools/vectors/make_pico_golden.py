#!/usr/bin/env python3
"""Makes test/data/pico/golden.json and rows.json.   (pip install torch transformers gguf tokenizers)

    make_pico_golden.py GOLDEN_FOLDER MODELS_FOLDER [OUT_FOLDER]

GOLDEN_FOLDER holds the model's own reference files (vectors.json, heldout.txt, perplexity.json), MODELS_FOLDER
pico.gguf and tokenizer.json. golden.json is vectors.json without the drafter, drafter.json the drafter alone.
rows.json has, for each row of heldout.txt (begin token and 511 ids), the sum of -log p over its 511 predictions by
transformers in float32 on the dequantised weights, and the likeliest ids of the first two rows; the overall
perplexity is checked against perplexity.json.
"""
import json
import math
import os
import shutil
import sys

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import Lfm2Config, Lfm2ForCausalLM

NAMES = {
    "attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "shortconv.in_proj": "conv.in_proj",
    "shortconv.conv": "conv.conv", "shortconv.out_proj": "conv.out_proj", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.out_proj",
    "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm", "ffn_gate": "feed_forward.w1",
    "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2"}
ROW = 511
ROWS_WITH_IDS = 2


def model_load(path):
    reader = gguf.GGUFReader(path)
    field = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.")}
    state = {}
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        x = torch.from_numpy(x.reshape([int(n) for n in reversed(t.shape)]))
        if t.name == "token_embd.weight":
            state["model.embed_tokens.weight"] = x
        elif t.name == "token_embd_norm.weight":
            state["model.embedding_norm.weight"] = x
        else:
            _, layer, rest = t.name.split(".", 2)
            rest = NAMES[rest.removesuffix(".weight")]
            state[f"model.layers.{layer}.{rest}.weight"] = x[:, None] if rest == "conv.conv" else x
    heads_kv = field["lfm2.attention.head_count_kv"]
    config = Lfm2Config(
        vocab_size=field["lfm2.vocab_size"], hidden_size=field["lfm2.embedding_length"],
        intermediate_size=field["lfm2.feed_forward_length"], num_hidden_layers=field["lfm2.block_count"],
        num_attention_heads=field["lfm2.attention.head_count"], num_key_value_heads=max(heads_kv),
        max_position_embeddings=field["lfm2.context_length"], norm_eps=field["lfm2.attention.layer_norm_rms_epsilon"],
        rope_parameters=dict(rope_type="default", rope_theta=field["lfm2.rope.freq_base"]),
        conv_L_cache=field["lfm2.shortconv.l_cache"], conv_bias=False, block_auto_adjust_ff_dim=False,
        tie_word_embeddings=True, layer_types=["full_attention" if n else "conv" for n in heads_kv])
    model = Lfm2ForCausalLM(config)
    result = model.load_state_dict(state, strict=False)
    assert set(result.missing_keys) <= {"lm_head.weight"} and not result.unexpected_keys, result
    return model.float().eval()


@torch.no_grad()
def rows_score(model, ids):
    nll, top = [], []
    for at in range(0, len(ids) - ROW + 1, ROW):
        row = torch.tensor([[1] + ids[at:at + ROW]])
        logits = model(row, use_cache=False).logits[0, :-1].double()
        log_p = torch.log_softmax(logits, -1).gather(1, row[0, 1:, None])
        nll.append(round(-log_p.sum().item(), 4))
        if len(top) < ROWS_WITH_IDS:
            top.append(logits.argmax(-1).tolist())
    return nll, top


def drafter_write(vectors, out):
    """Of each prompt the first rounds in full and the accepted length of every round."""
    prompts = []
    for p in vectors["prompts"]:
        d = p["drafter"]
        prompts.append(dict(name=p["name"], accepted=d["accepted_per_round"], rounds=d["rounds"]))
    with open(os.path.join(out, "drafter.json"), "w") as f:
        json.dump(dict(prompts=prompts), f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def main(golden, models, out):
    with open(os.path.join(golden, "vectors.json")) as f:
        vectors = json.load(f)
    drafter_write(vectors, out)
    for p in vectors["prompts"]:
        del p["drafter"]
    with open(os.path.join(out, "golden.json"), "w") as f:
        json.dump(vectors, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")
    shutil.copyfile(os.path.join(golden, "heldout.txt"), os.path.join(out, "heldout.txt"))
    with open(os.path.join(golden, "perplexity.json")) as f:
        want = json.load(f)["heldout"]
    with open(os.path.join(golden, "heldout.txt"), encoding="utf-8", newline="") as f:
        text = f.read()
    ids = Tokenizer.from_file(os.path.join(models, "tokenizer.json")).encode(text, add_special_tokens=False).ids
    nll, top = rows_score(model_load(os.path.join(models, "pico.gguf")), ids)
    perplexity = math.exp(sum(nll) / (ROW * len(nll)))
    print("perplexity", perplexity, "published", want["perplexity_shipped"])
    assert len(nll) == want["rows"] and abs(perplexity / want["perplexity_shipped"] - 1) < 1e-4
    with open(os.path.join(out, "rows.json"), "w") as f:
        json.dump(dict(perplexity=want["perplexity_shipped"], row=ROW + 1, nll=nll, top=top), f, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else "test/data/pico")
