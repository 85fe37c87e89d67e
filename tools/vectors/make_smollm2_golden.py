#!/usr/bin/env python3
"""Makes test/data/smollm2/greedy.json: ten prompts of SmolLM2-135M-Instruct (tools/fetch_smollm2.sh) with their ids by
the `tokenizers` package and 32 greedy tokens by transformers, in float32 on the dequantised weights, with the gap
between first and second logit at each.   (pip install torch transformers gguf tokenizers)

    make_smollm2_golden.py build/models/SmolLM2-135M-Instruct.Q4_1.gguf
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
TOKENS = 32
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
QUESTIONS = [
    "What is the capital of France?", "Write a haiku about the sea.", "Count from 1 to 10, separated by commas.",
    "Explain photosynthesis in one sentence.", "def fibonacci(n):  # complete this Python function",
    "Übersetze ins Englische: Guten Morgen, wie geht es dir?", "What is 12345 + 6789?",
    "List three colours   and\ttwo\n\nanimals 🐈."]
RAW = ["The quick brown fox", "In 1969, the Apollo 11 mission"]


def halves(w, n_head):
    """Undoes the interleaving of q and k rows that GGUF files of Llama have."""
    return w.reshape(n_head, w.shape[0] // n_head // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def load(path):
    reader = gguf.GGUFReader(path)
    field = {k: f.contents() for k, f in reader.fields.items()}
    heads, heads_kv = field["llama.attention.head_count"], field["llama.attention.head_count_kv"]
    state = {}
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        x = x.reshape([int(n) for n in reversed(t.shape)])
        if t.name.startswith("blk."):
            _, layer, rest = t.name.split(".", 2)
            rest = rest.removesuffix(".weight")
            if rest in ("attn_q", "attn_k"):
                x = halves(x, heads if rest == "attn_q" else heads_kv)
            name = f"model.layers.{layer}.{NAMES[rest]}.weight"
        else:
            name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                    "output.weight": "lm_head.weight"}[t.name]
        state[name] = torch.from_numpy(np.ascontiguousarray(x))
    tied = "lm_head.weight" not in state
    config = LlamaConfig(
        vocab_size=len(field["tokenizer.ggml.tokens"]), hidden_size=field["llama.embedding_length"],
        intermediate_size=field["llama.feed_forward_length"], num_hidden_layers=field["llama.block_count"],
        num_attention_heads=heads, num_key_value_heads=heads_kv,
        max_position_embeddings=field["llama.context_length"],
        rms_norm_eps=field["llama.attention.layer_norm_rms_epsilon"], tie_word_embeddings=tied,
        rope_parameters=dict(rope_type="default", rope_theta=field["llama.rope.freq_base"]))
    model = LlamaForCausalLM(config)
    result = model.load_state_dict(state, strict=False)
    assert set(result.missing_keys) <= {"lm_head.weight"} and not result.unexpected_keys, result
    tokens, merges = field["tokenizer.ggml.tokens"], field["tokenizer.ggml.merges"]
    tk = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    tk.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tk.decoder = decoders.ByteLevel()
    tk.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in
                           zip(tokens, field["tokenizer.ggml.token_type"]) if k == 3])
    return field, model.float().eval(), tk


@torch.no_grad()
def greedy(model, ids):
    out, gaps = [], []
    for _ in range(TOKENS):
        first = torch.topk(model(torch.tensor([ids + out]), use_cache=False).logits[0, -1], 2)
        out.append(int(first.indices[0]))
        gaps.append(float(f"{(first.values[0] - first.values[1]).item():.4g}"))
    return out, gaps


def main(path):
    field, model, tk = load(path)
    texts = [f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"
             for q in QUESTIONS] + RAW
    prompts = []
    for text in texts:
        ids = tk.encode(text, add_special_tokens=False).ids
        out, gaps = greedy(model, ids)
        print(repr(tk.decode(out, skip_special_tokens=False)), min(gaps))
        prompts.append(dict(text=text, ids=ids, greedy=out, gaps=gaps))
    with open("test/data/smollm2/greedy.json", "w") as f:
        f.write('{"file": %s, "prompts": [\n' % json.dumps(os.path.basename(path)))
        f.write(",\n".join(json.dumps(p, ensure_ascii=False) for p in prompts) + "\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
