#!/usr/bin/env python3
"""Makes test/data/hf: small random models of each family, each as a Hugging Face folder and as a GGUF file, with what
transformers computes from them in float32.   (pip install torch transformers gguf "mlx[cpu]")

Weights are k/1024 with |k| < 256 (norms: 0.75 to 1.25 in steps of 1/128), so F32, F16 and BF16 hold the same numbers
and every file of a model means the same. Models with "mlx" are folders only, quantised and written by MLX (mx.quantize,
mx.save_safetensors); transformers computes with the values that mx.dequantize gives in float32.

expect.bin, little-endian: "TVEC", then u32 rows, vocabulary, layers, width; i32 ids of the rows; float logits [row][vocabulary]; float residual after each layer at the last row [layer][width].
"""
import json
import os
import shutil
import struct
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, Lfm2Config, Lfm2ForCausalLM, Lfm2MoeConfig, Lfm2MoeForCausalLM, LlamaConfig,
                          LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

ROWS = 72  # crosses two block boundaries of 32 positions
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
GGUF_TYPES = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16,
              "BF16": gguf.GGMLQuantizationType.BF16}

MODELS = {
    "lfm2-taps3": dict(
        kind="lfm2", hf="BF16", gguf="F16", layers="caca", hidden=48, heads=3, kv=1, ff=64, vocab=128, taps=3,
        theta=1e6),
    "lfm2-taps4": dict(
        kind="lfm2", hf="F32", gguf="BF16", layers="ccac", hidden=32, heads=4, kv=2, ff=48, vocab=96, taps=4,
        theta=10000.0),
    "llama-plain": dict(
        kind="llama", hf="F16", gguf="F32", layers="aaa", hidden=32, heads=4, kv=2, ff=64, vocab=112, tied=True,
        theta=10000.0),
    "llama-scaled": dict(
        kind="llama", hf="BF16", gguf="F16", layers="aaa", hidden=32, heads=2, kv=1, ff=64, vocab=96, tied=False,
        theta=500000.0,
        rope=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                  original_max_position_embeddings=32)),
    "qwen3-yarn": dict(
        kind="qwen3", hf="BF16", gguf="F16", layers="aaa", hidden=48, heads=4, kv=2, head_dim=16, ff=64, vocab=96,
        tied=False, theta=1e6, rope=dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=32)),
    "qwen3-tied": dict(
        kind="qwen3", hf="F16", gguf="BF16", layers="aa", hidden=32, heads=2, kv=1, head_dim=32, ff=48, vocab=96,
        tied=True, theta=10000.0),
    "lfm2moe": dict(
        kind="lfm2moe", hf="BF16", gguf="F16", layers="cac", hidden=32, heads=2, kv=1, ff=48, vocab=96, taps=3,
        theta=1e6, experts=6, used=2, ff_expert=24, dense=1, scale=1.5, norm=True),
    "qwen3moe": dict(
        kind="qwen3moe", hf="BF16", gguf="BF16", layers="aa", hidden=32, heads=2, kv=1, head_dim=16, ff=48, vocab=96,
        tied=False, theta=1e6, experts=8, used=3, ff_expert=16, dense=0, norm=True),
    "qwen3moe-mixed": dict(  # the second layer dense, weights not normalised: only folders can say so
        kind="qwen3moe", hf="BF16", gguf=None, layers="aaa", hidden=32, heads=2, kv=1, head_dim=16, ff=48, vocab=96,
        tied=True, theta=1e6, experts=5, used=2, ff_expert=16, dense=0, dense_list=[1], norm=False),
    "gemma3": dict(
        kind="gemma3", hf="BF16", gguf="F16", layers="aaa", hidden=32, heads=2, kv=1, head_dim=16, ff=48, vocab=96,
        tied=True, theta=1e6, window=20, pattern=3, scalar=16, linear=8.0),
    "gemma3-plain": dict(  # layer_types of its own, another scale of scores: only folders can say so
        kind="gemma3", hf="F16", gguf=None, layers="aaa", hidden=32, heads=4, kv=2, head_dim=16, ff=32, vocab=96,
        tied=True, theta=1e5, window=33, pattern=None, scalar=24),
    "llama-mlx4": dict(
        kind="llama", layers="aa", hidden=64, heads=2, kv=1, ff=96, vocab=96, tied=False, theta=10000.0,
        mlx=dict(bits=4, group_size=32, dtype="bfloat16", layers={
            "model.layers.1.mlp.down_proj": dict(bits=8, group_size=32),
            "model.layers.0.self_attn.o_proj": False})),
    "lfm2-mlx8": dict(
        kind="lfm2", layers="cac", hidden=64, heads=2, kv=1, ff=64, vocab=96, taps=3, theta=1e6,
        mlx=dict(bits=8, group_size=64, dtype="float16", layers={
            "model.embed_tokens": dict(bits=4, group_size=64)})),
    "qwen3-mlx128": dict(
        kind="qwen3", layers="a", hidden=128, heads=2, kv=1, head_dim=32, ff=128, vocab=96, tied=True, theta=10000.0,
        mlx=dict(bits=4, group_size=128, dtype="float32", layers={
            "model.layers.0.self_attn.o_proj": dict(bits=8, group_size=64),
            "model.layers.0.mlp.up_proj": dict(bits=8, group_size=128)})),
    "lfm2-encoder": dict(  # both directions; tokens are the byte alphabet, so that texts can be given
        kind="lfm2", hf="F16", gguf="F16", layers="caca", hidden=32, heads=2, kv=1, ff=48, vocab=264, taps=3,
        theta=1e6, encoder=True),
    "llama-mlx3": dict(  # the bits whose codes cross bytes and words, and 2
        kind="llama", layers="aa", hidden=64, heads=2, kv=1, ff=128, vocab=96, tied=False, theta=10000.0,
        mlx=dict(bits=3, group_size=32, dtype="float16", layers={
            "model.embed_tokens": dict(bits=6, group_size=64),
            "lm_head": dict(bits=5, group_size=32),
            "model.layers.0.mlp.down_proj": dict(bits=2, group_size=32),
            "model.layers.1.mlp.down_proj": dict(bits=6, group_size=128),
            "model.layers.1.mlp.up_proj": dict(bits=5, group_size=64),
            "model.layers.1.self_attn.o_proj": dict(bits=2, group_size=64)})),
}
CLASSES = {"gemma3": Gemma3ForCausalLM, "lfm2": Lfm2ForCausalLM, "lfm2moe": Lfm2MoeForCausalLM, "llama": LlamaForCausalLM,
           "qwen3": Qwen3ForCausalLM, "qwen3moe": Qwen3MoeForCausalLM}


def config_of(m):
    common = dict(vocab_size=m["vocab"], hidden_size=m["hidden"], intermediate_size=m["ff"],
                  num_hidden_layers=len(m["layers"]), num_attention_heads=m["heads"], num_key_value_heads=m["kv"],
                  max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    rope = dict(m.get("rope") or dict(rope_type="default"), rope_theta=m["theta"])
    if m["kind"].startswith("lfm2"):
        common.update(norm_eps=1e-5, conv_L_cache=m["taps"], conv_bias=False, rope_parameters=rope,
                      tie_word_embeddings=True,
                      layer_types=["full_attention" if c == "a" else "conv" for c in m["layers"]])
    if m["kind"] == "lfm2":
        return Lfm2Config(**common, block_auto_adjust_ff_dim=False)
    experts = dict(num_experts=m.get("experts"), num_experts_per_tok=m.get("used"),
                   moe_intermediate_size=m.get("ff_expert"), norm_topk_prob=m.get("norm"))
    if m["kind"] == "lfm2moe":
        return Lfm2MoeConfig(**common, **experts, num_dense_layers=m["dense"], routed_scaling_factor=m["scale"],
                             use_expert_bias=True)
    if m["kind"] == "gemma3":
        full = dict(rope_type="linear", factor=m["linear"]) if "linear" in m else dict(rope_type="default")
        types = ["sliding_attention", "full_attention", "sliding_attention"]
        if m["pattern"]:
            types = ["full_attention" if (i + 1) % m["pattern"] == 0 else "sliding_attention"
                     for i in range(len(m["layers"]))]
        return Gemma3TextConfig(
            **common, rms_norm_eps=1e-6, head_dim=m["head_dim"], sliding_window=m["window"], layer_types=types,
            query_pre_attn_scalar=m["scalar"], tie_word_embeddings=True,
            rope_parameters=dict(full_attention=dict(full, rope_theta=m["theta"]),
                                 sliding_attention=dict(rope_type="default", rope_theta=10000.0)))
    common.update(rms_norm_eps=1e-6, rope_parameters=rope, tie_word_embeddings=m["tied"], attention_bias=False)
    if m["kind"] == "qwen3":
        return Qwen3Config(**common, head_dim=m["head_dim"])
    if m["kind"] == "qwen3moe":
        return Qwen3MoeConfig(**common, **experts, head_dim=m["head_dim"], decoder_sparse_step=1,
                              mlp_only_layers=m.get("dense_list", []))
    return LlamaConfig(**common, mlp_bias=False)


def weights_fill(model, rng):
    """Random values that F16 and BF16 hold exactly; matrices scaled so that every part matters."""
    for name, p in model.named_parameters():
        if "norm" in name:
            k = rng.integers(-32, 33, tuple(p.shape)) / 128 + (0 if "gemma3" in type(model).__name__.lower() else 1)
        else:
            n_in = p.shape[-1]  # of the convolution: its taps
            gain = {"q_proj": 2.0, "k_proj": 2.0}.get(name.split(".")[-2], 1.0)
            sigma = min(0.2, gain / np.sqrt(n_in)) * 1024
            k = np.clip(np.round(rng.normal(0, sigma, tuple(p.shape))), -255, 255) / 1024
        p.data = torch.from_numpy(k.astype(np.float32))
    for name, b in model.named_buffers():
        if name.endswith("expert_bias"):
            b.copy_(torch.from_numpy((rng.integers(-64, 65, tuple(b.shape)) / 512).astype(np.float32)))


def config_write(path, model, config, more, encoder=False):
    text = config.to_dict()
    text.update(more)
    text["architectures"] = ["Lfm2BidirectionalModel" if encoder else type(model).__name__]
    for gone in ("transformers_version", "_name_or_path", "torch_dtype"):
        text.pop(gone, None)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump(text, f, indent=1, sort_keys=True)
        f.write("\n")


def mlx_folder_write(path, model, config, q):
    """Quantises the model's matrices in place, and writes them."""
    import mlx.core as mx
    os.makedirs(path)
    kind = getattr(mx, q["dtype"])
    out = {}
    for name, p in model.named_parameters():
        x = mx.array(p.data.numpy()).astype(kind)
        layer = name.removesuffix(".weight")
        mine = q["layers"].get(layer, {})
        if p.data.ndim != 2 or mine is False:
            out[name] = x.swapaxes(1, 2) if p.data.ndim == 3 else x  # convolutions as mlx_lm has them
            continue
        how = dict(bits=mine.get("bits", q["bits"]), group_size=mine.get("group_size", q["group_size"]))
        codes, scales, biases = mx.quantize(x, **how)
        out.update({name: codes, layer + ".scales": scales, layer + ".biases": biases})
        values = mx.dequantize(codes, scales.astype(mx.float32), biases.astype(mx.float32), **how)
        p.data = torch.from_numpy(np.array(values))
    mx.save_safetensors(os.path.join(path, "model.safetensors"), out, metadata={"format": "mlx"})
    settings = dict(q["layers"], group_size=q["group_size"], bits=q["bits"], mode="affine")
    config_write(path, model, config, dict(dtype=q["dtype"], quantization=settings, quantization_config=settings))


def tensors_of(model, config, m):
    """Names as published checkpoints have them: one tensor per expert and matrix."""
    w = {"lfm2moe": ("w1", "w3", "w2"), "qwen3moe": ("gate_proj", "up_proj", "down_proj")}.get(m["kind"])
    for name, t in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        if name.endswith("experts.gate_up_proj"):
            for e in range(m["experts"]):
                yield name.replace("gate_up_proj", f"{e}.{w[0]}.weight"), t[e, :m["ff_expert"]]
                yield name.replace("gate_up_proj", f"{e}.{w[1]}.weight"), t[e, m["ff_expert"]:]
        elif name.endswith("experts.down_proj"):
            for e in range(m["experts"]):
                yield name.replace("down_proj", f"{e}.{w[2]}.weight"), t[e]
        else:
            yield name, t


def folder_write(path, m, model, config):
    os.makedirs(path)
    dtype = m["hf"]
    state = {n: t.to(torch.float32 if n.endswith("expert_bias") else DTYPES[dtype]).contiguous()
             for n, t in tensors_of(model, config, m)}
    save_file(state, os.path.join(path, "model.safetensors"), metadata={"format": "pt"})
    config_write(path, model, config, dict(dtype=str(DTYPES[dtype]).split(".")[-1]), m.get("encoder"))


LFM2_NAMES = {
    "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_output",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm", "feed_forward.w1": "ffn_gate",
    "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down"}
LLAMA_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
QWEN3_NAMES = dict(LLAMA_NAMES, **{"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"})
LFM2MOE_NAMES = dict(LFM2_NAMES, **{"feed_forward.gate": "ffn_gate_inp", "feed_forward.expert_bias": "exp_probs_b.bias",
                                    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps"})
QWEN3MOE_NAMES = dict(QWEN3_NAMES, **{"mlp.gate": "ffn_gate_inp", "gate_proj": "ffn_gate_exps",
                                      "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"})
GEMMA3_NAMES = dict(QWEN3_NAMES, **{"post_attention_layernorm": "post_attention_norm",
                                    "pre_feedforward_layernorm": "ffn_norm",
                                    "post_feedforward_layernorm": "post_ffw_norm"})
NAMES = {"gemma3": GEMMA3_NAMES, "lfm2": LFM2_NAMES, "lfm2moe": LFM2MOE_NAMES, "llama": LLAMA_NAMES, "qwen3": QWEN3_NAMES,
         "qwen3moe": QWEN3MOE_NAMES}
TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
    "model.norm.weight": "output_norm.weight", "model.embedding_norm.weight": "token_embd_norm.weight"}


def interleave(w, n_head):
    """Rows of q and k from half-split to interleaved rotation pairs, as GGUF files of Llama have them."""
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def byte_alphabet():
    """GPT-2's spelling of the 256 bytes."""
    plain = [b for b in range(256) if 0x21 <= b <= 0x7e or 0xa1 <= b <= 0xac or b >= 0xae]
    spelled, n = [], 0
    for b in range(256):
        spelled.append(chr(b) if b in plain else chr(256 + n))
        n += b not in plain
    return spelled


def gguf_write(path, m, model, config):
    w = gguf.GGUFWriter(path, m["kind"])
    head_dim = m.get("head_dim", m["hidden"] // m["heads"])
    w.add_name(os.path.basename(os.path.dirname(path)))
    w.add_block_count(len(m["layers"]))
    w.add_context_length(256)
    w.add_embedding_length(m["hidden"])
    w.add_feed_forward_length(m["ff"])
    w.add_head_count(m["heads"])
    is_lfm2 = m["kind"].startswith("lfm2")
    w.add_head_count_kv([m["kv"] if c == "a" else 0 for c in m["layers"]] if is_lfm2 else m["kv"])
    w.add_layer_norm_rms_eps(1e-5 if is_lfm2 else 1e-6)
    w.add_rope_freq_base(m["theta"])
    w.add_vocab_size(m["vocab"])
    if "experts" in m:
        w.add_expert_count(m["experts"])
        w.add_expert_used_count(m["used"])
        w.add_expert_feed_forward_length(m["ff_expert"])
    if m["kind"] == "lfm2moe":
        w.add_leading_dense_block_count(m["dense"])
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(m["scale"])
    if is_lfm2:
        w.add_shortconv_l_cache(m["taps"])
    if m.get("encoder"):
        w.add_causal_attention(False)
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("lfm2")
        tokens = ["<|pad|>", "<|startoftext|>"] + byte_alphabet()
        w.add_token_list(tokens)
        w.add_token_types([gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * 256)
        w.add_token_merges([])
        w.add_bos_token_id(1)
        w.add_add_bos_token(True)
    else:
        w.add_rope_dimension_count(head_dim)
    if "head_dim" in m:
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    if "window" in m:
        w.add_sliding_window(m["window"])
        w.add_uint32("gemma3.attention.sliding_window_pattern", m["pattern"])
    if "linear" in m:
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(m["linear"])
    if m.get("rope", {}).get("rope_type") == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(m["rope"]["factor"])
        w.add_rope_scaling_orig_ctx_len(m["rope"]["original_max_position_embeddings"])
    names = NAMES[m["kind"]]
    experts = {}
    for name, t in tensors_of(model, config, m):
        x = t.float().numpy()
        if name in TOP_NAMES:
            out = TOP_NAMES[name]
        else:
            _, _, layer, rest = name.split(".", 3)
            if ".experts." in rest:
                experts.setdefault((layer, names[rest.split(".")[-2]]), []).append(x)
                continue
            rest = names[rest.removesuffix(".weight")]
            out = f"blk.{layer}.{rest}" + ("" if rest.endswith(".bias") else ".weight")
            if m["kind"] == "llama" and rest in ("attn_q", "attn_k"):
                x = interleave(x, m["heads"] if rest == "attn_q" else m["kv"])
            if rest == "shortconv.conv":
                x = x.reshape(x.shape[0], x.shape[-1])
        if m["kind"] == "gemma3" and x.ndim == 1:
            x = x + 1
        kind = "F32" if x.ndim == 1 or "shortconv.conv" in out or "ffn_gate_inp" in out else m["gguf"]
        data = gguf.quants.quantize(np.ascontiguousarray(x), GGUF_TYPES[kind])
        w.add_tensor(out, data, raw_dtype=GGUF_TYPES[kind])
    for (layer, rest), list_of_x in experts.items():
        data = gguf.quants.quantize(np.stack(list_of_x), GGUF_TYPES[m["gguf"]])
        w.add_tensor(f"blk.{layer}.{rest}.weight", data, raw_dtype=GGUF_TYPES[m["gguf"]])
    if m.get("rope", {}).get("rope_type") == "llama3":
        plain = 1.0 / m["theta"] ** (np.arange(0, head_dim, 2) / head_dim)
        scaled = model.model.rotary_emb.inv_freq.numpy().astype(np.float64)
        w.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@torch.no_grad()
def encoder_rows(model, ids):
    """LFM2 in both directions: no mask, and the convolution's middle tap at the row itself."""
    core = model.model
    x = core.embed_tokens(torch.tensor([ids]))
    rope = core.rotary_emb(x, torch.arange(len(ids))[None])
    for layer in core.layers:
        n = layer.operator_norm(x)
        if layer.is_attention_layer:
            y = layer.self_attn(n, position_embeddings=rope, attention_mask=None)[0]
        else:
            b, c, u = layer.conv.in_proj(n).transpose(1, 2).chunk(3, dim=1)
            w = layer.conv.conv.weight
            v = torch.nn.functional.conv1d(b * u, w, padding=w.shape[-1] // 2, groups=w.shape[0])
            y = layer.conv.out_proj((c * v).transpose(1, 2))
        x = x + y
        x = x + layer.feed_forward(layer.ffn_norm(x))
    return core.embedding_norm(x)[0]


def encoder_write(path, m, model, ids):
    """"TENC", u32 rows and width, i32 ids, float rows behind the last norm."""
    rows = encoder_rows(model, ids)
    with open(path, "wb") as f:
        f.write(b"TENC" + struct.pack("<2I", len(ids), m["hidden"]) + np.array(ids, np.int32).tobytes())
        f.write(rows.numpy().astype("<f4").tobytes())


@torch.no_grad()
def expect_write(path, m, model, ids):
    residuals = [None] * len(m["layers"])

    def keep(i):
        def hook(_module, _inputs, output):
            residuals[i] = (output[0] if isinstance(output, tuple) else output)[0, -1].clone()
        return hook

    for i, layer in enumerate(model.model.layers):
        layer.register_forward_hook(keep(i))
    logits = model(torch.tensor([ids]), use_cache=False).logits[0]
    assert logits.dtype == torch.float32
    spread = torch.stack(residuals).abs().amax(-1)
    print(os.path.basename(os.path.dirname(path)), "largest logit %.3f" % logits.abs().max().item(),
          "residuals", [round(v, 2) for v in spread.tolist()])
    with open(path, "wb") as f:
        f.write(b"TVEC" + struct.pack("<4I", len(ids), m["vocab"], len(m["layers"]), m["hidden"]))
        f.write(np.array(ids, np.int32).tobytes())
        f.write(logits.numpy().astype("<f4").tobytes())
        f.write(torch.stack(residuals).numpy().astype("<f4").tobytes())


def main(folder, only):
    torch.set_num_threads(1)
    for seed, (name, m) in enumerate(MODELS.items()):
        if only and name not in only:
            continue
        rng = np.random.default_rng(1000 + seed)
        path = os.path.join(folder, name)
        shutil.rmtree(path, ignore_errors=True)
        config = config_of(m)
        config._attn_implementation = "eager"
        model = CLASSES[m["kind"]](config).float().eval()
        weights_fill(model, rng)
        if config.tie_word_embeddings:
            model.tie_weights()
        if "mlx" in m:
            mlx_folder_write(path, model, config, m["mlx"])
        else:
            folder_write(path, m, model, config)
        if m.get("gguf"):
            gguf_write(os.path.join(path, "model.gguf"), m, model, config)
        if m.get("encoder"):
            text = b"A text is read in both directions at once, first and last words alike."
            encoder_write(os.path.join(path, "expect.bin"), m, model, [1] + [b + 2 for b in text])
            continue
        expect_write(os.path.join(path, "expect.bin"), m, model, rng.integers(0, m["vocab"], ROWS).tolist())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "test/data/hf", sys.argv[2:])  # folder, then models (none: all)
