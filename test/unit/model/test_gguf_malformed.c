// Malformed GGUF: one file for each kind of fault, refused by its own cause with its own words. The kinds are those of
// the format's validation list and of the faults that other loaders had (doc/architecture.md, "Bad input").
#include "model_test_util.h"

struct kind {
    const char *what;
    void (*make)(struct tiny *t);
    int (*keys)(struct buf *b);
    enum tern_status status;
    const char *text;
};

// ------------------------------------------------------------------------------------------------ header
static void magic(struct tiny *t) { t->magic = "GGUX"; }
static void magic_swapped(struct tiny *t) { t->magic = "FUGG"; }
static void magic_old(struct tiny *t) { t->magic = "tjgg"; }
static void version_0(struct tiny *t) { t->version = 0; }
static void version_1(struct tiny *t) { t->version = 1; }
static void version_99(struct tiny *t) { t->version = 99; }
static void version_swapped(struct tiny *t) { t->version = 0x03000000; }
static void tensors_huge(struct tiny *t) { t->n_tensors_off = INT64_MAX / 2; }
static void tensors_many(struct tiny *t) { t->n_tensors_off = MODEL_TENSORS_MAX, t->tail = 4u << 20; }
static void keys_huge(struct tiny *t) { t->n_keys_off = -1000; }
static void keys_many(struct tiny *t) { t->n_keys_off = MODEL_KEYS_MAX, t->tail = 2u << 20; }
static void keys_one_less(struct tiny *t) { t->n_keys_off = -1; }
static void empty(struct tiny *t) { t->cut = 0; }
static void three_bytes(struct tiny *t) { t->cut = 3; }
static void header_cut(struct tiny *t) { t->cut = 20; }

// ------------------------------------------------------------------------------------------------ keys
static int key_huge(struct buf *b) {
    put_u64(b, UINT64_C(1) << 60);
    return 1;
}
static int key_long(struct buf *b) {
    put_u64(b, 65536);
    return 1;
}
static int key_empty(struct buf *b) {
    kv_u32(b, "", 1);
    return 1;
}
static int key_not_ascii(struct buf *b) {
    kv_u32(b, "k\xc3\xa9y", 1);
    return 1;
}
static int key_type(struct buf *b) {
    put_key(b, "odd", 77);
    put_u64(b, 0);
    return 1;
}
static int value_huge(struct buf *b) {
    put_key(b, "odd", 8);
    put_u64(b, UINT64_C(1) << 62);
    return 1;
}
static int value_long(struct buf *b) {
    put_key(b, "odd", 8);
    put_u64(b, 1u << 20);
    return 1;
}
static int key_twice(struct buf *b) {
    kv_u32(b, "lfm2.block_count", 2);
    return 1;
}
static int bool_2(struct buf *b) {
    kv_bool(b, "odd", 2);
    return 1;
}
static int bools_7(struct buf *b) {
    put_array(b, "odd", 7, 3);
    buf_put(b, "\1\0\7", 3);
    return 1;
}
static int align_str(struct buf *b) {
    kv_str(b, "general.alignment", "32");
    return 1;
}
static int align_u64(struct buf *b) {
    put_key(b, "general.alignment", 10);
    put_u64(b, 32);
    return 1;
}
static int align_13(struct buf *b) {
    kv_u32(b, "general.alignment", 13);
    return 1;
}
static int align_0(struct buf *b) {
    kv_u32(b, "general.alignment", 0);
    return 1;
}
static int align_4(struct buf *b) {
    kv_u32(b, "general.alignment", 4);
    return 1;
}
static int align_2m(struct buf *b) {
    kv_u32(b, "general.alignment", 2u << 20);
    return 1;
}
static int align_128(struct buf *b) {
    kv_u32(b, "general.alignment", 128);
    return 1;
}
static int array_type(struct buf *b) {
    put_array(b, "odd", 99, 1);
    put_u64(b, 0);
    return 1;
}
static int array_nested(struct buf *b) {
    put_array(b, "odd", 9, 1);
    put_u32(b, 4);
    put_u64(b, 0);
    return 1;
}
static int array_deep(struct buf *b) {
    put_array(b, "odd", 9, 1);
    for (int i = 0; i < 100000; i++) {
        put_u32(b, 9);
        put_u64(b, 1);
    }
    return 1;
}
static int array_huge(struct buf *b) {
    put_array(b, "odd", 4, UINT64_C(1) << 61);
    return 1;
}
static int array_many(struct buf *b) {
    put_array(b, "odd", 0, MODEL_ARRAY_MAX + 1u);
    put_zeros(b, MODEL_ARRAY_MAX + 1u);
    return 1;
}
static int array_item_long(struct buf *b) {
    put_array(b, "odd", 8, 2);
    put_str(b, "x");
    put_u64(b, 1u << 21);
    return 1;
}

// ------------------------------------------------------------------------------------------------ tensors
static char long_name[10001];
static void name_65(struct tiny *t) { t->name_bytes = long_name, t->name_len = 65; }
static void name_10k(struct tiny *t) { t->name_bytes = long_name, t->name_len = 10000; }
static void name_empty(struct tiny *t) { t->tensors[1].name = ""; }
static void name_not_utf8(struct tiny *t) { t->name_bytes = "a\xff\xfe", t->name_len = 3; }
static void name_control(struct tiny *t) { t->name_bytes = "a\x1b[2J", t->name_len = 5; }
static void dims_0(struct tiny *t) { t->tensors[3].n_dims = 0; }
static void dims_5(struct tiny *t) { t->tensors[3].n_dims = 5; }
static void dims_max(struct tiny *t) { t->tensors[3].n_dims = UINT32_MAX; }
static void dim_zero(struct tiny *t) { t->tensors[3].ne[1] = 0; }
static void dim_huge(struct tiny *t) { t->tensors[3].ne[1] = UINT64_C(1) << 63; }
static void product_wraps(struct tiny *t) {
    t->tensors[3].n_dims = 4;
    for (int i = 0; i < 4; i++) t->tensors[3].ne[i] = UINT64_C(1) << 32;
}
static void values_too_many(struct tiny *t) { t->tensors[3].ne[0] = t->tensors[3].ne[1] = UINT64_C(3) << 31; }
static void bytes_overflow(struct tiny *t) { t->tensors[3].ne[0] = UINT64_C(1) << 61, t->tensors[3].ne[1] = 2; }
static void type_999(struct tiny *t) { t->tensors[3].type = 999; }
static void type_iq2(struct tiny *t) { t->tensors[3].type = 16; }
static void offset_odd(struct tiny *t) { t->tensors[3].offset = 4128 + 4; }
static void offset_wraps(struct tiny *t) { t->tensors[3].offset = -64; }
static void offset_far(struct tiny *t) { t->tensors[3].offset = INT64_C(1) << 40; }
static void name_twice(struct tiny *t) { t->tensors[4].name = t->tensors[3].name; }
static void block_33(struct tiny *t) { t->tensors[3] = (struct tiny_tensor){"blk.0.x.weight", 2, {33, 32}, 2, -1}; }
static void overlap(struct tiny *t) { t->tensors[3].offset = 32; }
static void overlap_whole(struct tiny *t) { t->tensors[5].offset = 2688 + 0, t->tensors[5].ne[1] = 32; }
static void data_short(struct tiny *t) { t->data_off = -1; }

// ------------------------------------------------------------------------------------------------ meaning
static void drop_arch(struct tiny *t) { t->drop_keys = "general.architecture"; }
static void drop_blocks(struct tiny *t) { t->drop_keys = "lfm2.block_count"; }
static void drop_kv(struct tiny *t) { t->drop_keys = "lfm2.attention.head_count_kv"; }
static void drop_base(struct tiny *t) { t->drop_keys = "lfm2.rope.freq_base"; }
static void drop_taps(struct tiny *t) { t->drop_keys = "lfm2.shortconv.l_cache"; }
static void drop_eps(struct tiny *t) { t->drop_keys = "lfm2.attention.layer_norm_rms_epsilon"; }
static void drop_embd(struct tiny *t) { t->drop_keys = "lfm2.embedding_length"; }
static void drop_heads(struct tiny *t) { t->drop_keys = "lfm2.attention.head_count"; }
static void drop_vocab(struct tiny *t) { t->drop_keys = "lfm2.vocab_size"; }
static void drop_tokens(struct tiny *t) { t->drop_keys = "tokenizer.ggml.tokens"; }
static void drop_types(struct tiny *t) { t->drop_keys = "tokenizer.ggml.token_type"; }
static void drop_merges(struct tiny *t) { t->drop_keys = "tokenizer.ggml.merges"; }
static void drop_eos(struct tiny *t) { t->drop_keys = "tokenizer.ggml.eos_token_id"; }
static void drop_template(struct tiny *t) { t->drop_keys = "tokenizer.chat_template"; }
static void drop_ff(struct tiny *t) { t->drop_keys = "lfm2.feed_forward_length"; }
static void drop_pre(struct tiny *t) { t->drop_keys = "tokenizer.ggml.pre"; }

#define ONE_KEY(name, ...)           \
    static int name(struct buf *b) { \
        __VA_ARGS__;                 \
        return 1;                    \
    }
ONE_KEY(arch_other, kv_str(b, "general.architecture", "lfm9"))
ONE_KEY(arch_drafter, kv_str(b, "general.architecture", "dflash"))
ONE_KEY(experts_4, kv_u32(b, "lfm2.expert_count", 4))
ONE_KEY(arch_number, kv_u32(b, "general.architecture", 2))
ONE_KEY(type_adapter, kv_str(b, "general.type", "adapter"))
ONE_KEY(blocks_513, kv_u32(b, "lfm2.block_count", MODEL_LAYERS_MAX + 1))
ONE_KEY(blocks_0, kv_u32(b, "lfm2.block_count", 0))
ONE_KEY(blocks_str, kv_str(b, "lfm2.block_count", "2"))
ONE_KEY(blocks_3, kv_u32(b, "lfm2.block_count", 3))
ONE_KEY(kv_short, {
    put_array(b, "lfm2.attention.head_count_kv", 5, 1);
    put_u32(b, 1);
})
ONE_KEY(kv_float, {
    put_array(b, "lfm2.attention.head_count_kv", 6, 2);
    put_u64(b, 0);
})
ONE_KEY(kv_negative, {
    put_array(b, "lfm2.attention.head_count_kv", 5, 2);
    put_u32(b, 0);
    put_u32(b, UINT32_MAX);
})
ONE_KEY(kv_3, kv_u32(b, "lfm2.attention.head_count_kv", 3))
ONE_KEY(base_nan, put_key(b, "lfm2.rope.freq_base", 6); put_u32(b, 0x7fc00000))
ONE_KEY(eps_negative, kv_f32(b, "lfm2.attention.layer_norm_rms_epsilon", -1e-5f))
ONE_KEY(embd_0, kv_u32(b, "lfm2.embedding_length", 0))
ONE_KEY(embd_64, kv_u32(b, "lfm2.embedding_length", 64))
ONE_KEY(heads_3, kv_u32(b, "lfm2.attention.head_count", 3))
ONE_KEY(heads_differ, {
    put_array(b, "lfm2.attention.head_count", 4, 2);
    put_u32(b, 2);
    put_u32(b, 4);
})
ONE_KEY(widths_differ, {
    put_array(b, "lfm2.feed_forward_length", 4, 2);
    put_u32(b, 64);
    put_u32(b, 32);
})
ONE_KEY(window, kv_u32(b, "lfm2.attention.sliding_window", 64))
ONE_KEY(eps_str, kv_str(b, "lfm2.attention.layer_norm_rms_epsilon", "1e-5"))
ONE_KEY(base_small, kv_f32(b, "lfm2.rope.freq_base", 0.5f))
ONE_KEY(taps_4, kv_u32(b, "lfm2.shortconv.l_cache", 4))
ONE_KEY(taps_1000, kv_u32(b, "lfm2.shortconv.l_cache", 1000))
ONE_KEY(vocab_41, kv_u32(b, "lfm2.vocab_size", 41))
ONE_KEY(vocab_huge, put_key(b, "lfm2.vocab_size", 10); put_u64(b, UINT64_MAX))
ONE_KEY(experts, kv_u32(b, "lfm2.expert_count", 8))
ONE_KEY(rope_partial, kv_u32(b, "lfm2.rope.dimension_count", 8))
ONE_KEY(rope_yarn, kv_str(b, "lfm2.rope.scaling.type", "yarn"))
ONE_KEY(rope_long, kv_str(b, "lfm2.rope.scaling.type", "longrope"))
ONE_KEY(value_length, kv_u32(b, "lfm2.attention.value_length", 8))
ONE_KEY(quant_version, kv_u32(b, "general.quantization_version", 1))
ONE_KEY(tokens_of_int, {
    put_array(b, "tokenizer.ggml.tokens", 5, TINY_ROWS);
    put_zeros(b, 4 * TINY_ROWS);
})
ONE_KEY(tokens_none, put_array(b, "tokenizer.ggml.tokens", 8, 0))
ONE_KEY(tokens_41, {
    put_array(b, "tokenizer.ggml.tokens", 8, TINY_ROWS + 1);
    for (int i = 0; i <= TINY_ROWS; i++) put_str(b, "x");
})
ONE_KEY(tokens_not_utf8, {
    put_array(b, "tokenizer.ggml.tokens", 8, TINY_ROWS);
    for (int i = 0; i < TINY_ROWS; i++) put_str(b, i == 30 ? "\xff" : "x");
})
ONE_KEY(types_of_i8, {
    put_array(b, "tokenizer.ggml.token_type", 1, TINY_ROWS);
    put_zeros(b, TINY_ROWS);
})
ONE_KEY(types_of_float, {
    put_array(b, "tokenizer.ggml.token_type", 6, TINY_ROWS);
    put_zeros(b, 4 * TINY_ROWS);
})
ONE_KEY(types_few, {
    put_array(b, "tokenizer.ggml.token_type", 5, 3);
    put_zeros(b, 12);
})
ONE_KEY(merges_of_u8, {
    put_array(b, "tokenizer.ggml.merges", 0, 8);
    put_u64(b, 0);
})
ONE_KEY(eos_past, kv_u32(b, "tokenizer.ggml.eos_token_id", TINY_ROWS))
ONE_KEY(eos_float, kv_f32(b, "tokenizer.ggml.eos_token_id", 7))
ONE_KEY(template_not_utf8, kv_str(b, "tokenizer.chat_template", "\xc3("))
ONE_KEY(pre_number, kv_u32(b, "tokenizer.ggml.pre", 1))
ONE_KEY(ff_0, kv_u32(b, "lfm2.feed_forward_length", 0))
ONE_KEY(shard_bad, kv_u32(b, "split.no", 3))
ONE_KEY(shards_300, kv_u32(b, "split.count", 300))
static int shard_second(struct buf *b) {
    kv_u32(b, "split.no", 1);
    kv_u32(b, "split.count", 3);
    return 2;
}
ONE_KEY(shard_first, kv_u32(b, "split.count", 3))

static void tensor_missing(struct tiny *t) { tiny_get(t, "blk.1.attn_k.weight")->name = "blk.1.attn_kk.weight"; }
static void tensor_shape(struct tiny *t) { tiny_get(t, "blk.1.attn_k.weight")->ne[1] = 8; }
static void tensor_dims(struct tiny *t) { tiny_get(t, "blk.1.attn_k.weight")->n_dims = 1; }
static void taps_shape(struct tiny *t) { tiny_get(t, "blk.0.shortconv.conv.weight")->ne[0] = 2; }
static void norm_quantised(struct tiny *t) { tiny_get(t, "blk.1.ffn_norm.weight")->type = 8; }
static void width_differs(struct tiny *t) { tiny_get(t, "blk.1.ffn_up.weight")->ne[1] = 32; }
static void matrix_q4(struct tiny *t) { tiny_get(t, "blk.1.attn_q.weight")->type = 2; }
static void tensor_extra(struct tiny *t) {
    t->tensors[t->n_tensors++] = (struct tiny_tensor){"blk.1.attn_q.bias", 1, {32}, 0, -1};
    t->data_off = 4096;
}

#define BAD TERN_BAD_FORMAT
#define NOT TERN_UNSUPPORTED
#define LIM TERN_LIMIT
static const struct kind kinds[] = {
    {"bad magic", magic, NULL, BAD, "neither a GGUF"},
    {"swapped magic", magic_swapped, NULL, BAD, "byte-swapped"},
    {"old format", magic_old, NULL, BAD, "before GGUF"},
    {"version 0", version_0, NULL, BAD, "version 0 does not exist"},
    {"version 1", version_1, NULL, NOT, "version 1 is not supported"},
    {"future version", version_99, NULL, NOT, "version 99"},
    {"swapped version", version_swapped, NULL, NOT, "byte-swapped (big-endian)"},
    {"tensor count", tensors_huge, NULL, BAD, "tensors, but"},
    {"tensors over the cap", tensors_many, NULL, LIM, "at most 65536"},
    {"key count", keys_huge, NULL, BAD, "keys, but"},
    {"keys over the cap", keys_many, NULL, LIM, "at most 65536"},
    {"key count one less", keys_one_less, NULL, BAD, "has 8 dimensions"},
    {"empty file", empty, NULL, BAD, "the file is empty"},
    {"three bytes", three_bytes, NULL, BAD, "only 3 bytes"},
    {"header cut", header_cut, NULL, BAD, "4 bytes are missing"},
    {"key size", NULL, key_huge, LIM, "a key is 1152921504606846976 bytes long"},
    {"key over the cap", NULL, key_long, LIM, "at most 65535"},
    {"key empty", NULL, key_empty, BAD, "is empty"},
    {"key not ASCII", NULL, key_not_ascii, BAD, "keys are ASCII"},
    {"value type", NULL, key_type, BAD, "key odd: unknown value type 77"},
    {"value size", NULL, value_huge, LIM, "key odd: a string value is 4611686018427387904 bytes long"},
    {"value past the end", NULL, value_long, BAD, "inside a string value"},
    {"duplicate key", NULL, key_twice, BAD, "duplicate key lfm2.block_count"},
    {"boolean 2", NULL, bool_2, BAD, "a boolean holds 2"},
    {"boolean array", NULL, bools_7, BAD, "a boolean holds 7"},
    {"alignment a string", NULL, align_str, BAD, "general.alignment has type string"},
    {"alignment uint64", NULL, align_u64, BAD, "general.alignment has type uint64"},
    {"alignment 13", NULL, align_13, BAD, "general.alignment is 13"},
    {"alignment 0", NULL, align_0, BAD, "general.alignment is 0"},
    {"alignment 4", NULL, align_4, BAD, "general.alignment is 4"},
    {"alignment 2 MiB", NULL, align_2m, BAD, "general.alignment is 2097152"},
    {"array type", NULL, array_type, BAD, "array of unknown value type 99"},
    {"nested array", NULL, array_nested, NOT, "key odd: nested arrays"},
    {"array 100,000 deep", NULL, array_deep, NOT, "key odd: nested arrays"},
    {"array size", NULL, array_huge, BAD, "longer than the rest of the file"},
    {"array over the cap", NULL, array_many, LIM, "at most 4194304"},
    {"array item past the end", NULL, array_item_long, BAD, "inside a string of an array"},
    {"name of 65 bytes", name_65, NULL, LIM, "a tensor name is 65 bytes long"},
    {"name of 10,000 bytes", name_10k, NULL, LIM, "at most 64"},
    {"name empty", name_empty, NULL, BAD, "a tensor name is empty"},
    {"name not UTF-8", name_not_utf8, NULL, BAD, "not valid UTF-8"},
    {"name with control bytes", name_control, NULL, BAD, "control byte 0x1b"},
    {"no dimensions", dims_0, NULL, BAD, "has 0 dimensions"},
    {"five dimensions", dims_5, NULL, BAD, "has 5 dimensions"},
    {"2^32-1 dimensions", dims_max, NULL, BAD, "has 4294967295 dimensions"},
    {"dimension zero", dim_zero, NULL, BAD, "dimension 1 is zero"},
    {"dimension 2^63", dim_huge, NULL, BAD, "more than 2^63 - 1"},
    {"product wraps", product_wraps, NULL, BAD, "product of its dimensions overflows"},
    {"over 2^63 values", values_too_many, NULL, BAD, "product of its dimensions overflows"},
    {"bytes overflow", bytes_overflow, NULL, BAD, "size in bytes overflows"},
    {"unknown type", type_999, NULL, BAD, "in_proj.weight has unknown type 999"},
    {"unsupported type", type_iq2, NULL, NOT, "in_proj.weight has type IQ2_XXS"},
    {"offset not aligned", offset_odd, NULL, BAD, "no multiple of the alignment 32"},
    {"offset wraps", offset_wraps, NULL, BAD, "overflows"},
    {"offset past the end", offset_far, NULL, BAD, "bytes are missing"},
    {"duplicate name", name_twice, NULL, BAD, "duplicate tensor name blk.0.shortconv.in_proj.weight"},
    {"row of 33 in Q4_0", block_33, NULL, BAD, "no multiple of the block of 32"},
    {"overlap", overlap, NULL, BAD, "overlap"},
    {"overlap from behind", overlap_whole, NULL, BAD, "overlap"},
    {"alignment inconsistent", NULL, align_128, BAD, "no multiple of the alignment 128"},
    {"one byte short", data_short, NULL, BAD, "1 bytes are missing"},
    {"architecture missing", drop_arch, NULL, BAD, "general.architecture is missing"},
    {"architecture unknown", drop_arch, arch_other, NOT, "architecture 'lfm9' is not supported"},
    {"drafter", drop_arch, arch_drafter, NOT, "a DSpark drafter, not a model that can run alone"},
    {"experts in a dense model", NULL, experts_4, NOT, "a mixture of 4 experts is not supported"},
    {"architecture a number", drop_arch, arch_number, BAD, "general.architecture has type uint32"},
    {"adapter", NULL, type_adapter, NOT, "general.type is adapter"},
    {"block_count missing", drop_blocks, NULL, BAD, "lfm2.block_count is missing"},
    {"block_count 513", drop_blocks, blocks_513, BAD, "lfm2.block_count is 513"},
    {"block_count 0", drop_blocks, blocks_0, BAD, "lfm2.block_count is 0"},
    {"block_count a string", drop_blocks, blocks_str, BAD, "lfm2.block_count has type string"},
    {"block_count 3", drop_blocks, blocks_3, BAD, "head_count_kv has 2 items, must have 3"},
    {"head_count_kv short", drop_kv, kv_short, BAD, "has 1 items, must have 2"},
    {"head_count_kv of floats", drop_kv, kv_float, BAD, "array of float32"},
    {"head_count_kv negative", drop_kv, kv_negative, BAD, "head_count_kv is -1"},
    {"head_count_kv 3", drop_kv, kv_3, BAD, "no multiple of 3 key heads"},
    {"freq_base missing", drop_base, NULL, BAD, "rope.freq_base is missing"},
    {"freq_base NaN", drop_base, base_nan, BAD, "not a finite number"},
    {"epsilon negative", drop_eps, eps_negative, BAD, "epsilon"},
    {"epsilon missing", drop_eps, NULL, BAD, "layer_norm_rms_epsilon is missing"},
    {"embedding_length 0", drop_embd, embd_0, BAD, "lfm2.embedding_length is 0"},
    {"embedding_length 64", drop_embd, embd_64, BAD, "token_embd.weight has shape [40, 32], expected [40, 64]"},
    {"head_count 3", drop_heads, heads_3, BAD, "no multiple of the 3 attention heads"},
    {"head counts differ", drop_heads, heads_differ, NOT, "head_count differs between layers (2 and 4)"},
    {"widths said differ", drop_ff, widths_differ, NOT, "feed_forward_length differs between layers (64 and 32)"},
    {"sliding window", NULL, window, NOT, "sliding-window attention (64)"},
    {"epsilon a string", drop_eps, eps_str, BAD, "layer_norm_rms_epsilon has type string, must be a float"},
    {"freq_base small", drop_base, base_small, BAD, "RoPE base is 0.5"},
    {"l_cache missing", drop_taps, NULL, BAD, "lfm2.shortconv.l_cache is missing"},
    {"l_cache 4", drop_taps, taps_4, BAD, "conv.weight has shape [32, 3], expected [32, 4]"},
    {"l_cache 1000", drop_taps, taps_1000, BAD, "l_cache is 1000"},
    {"vocab_size 41", drop_vocab, vocab_41, BAD, "vocab_size is 41, but tensor token_embd.weight has 40 rows"},
    {"vocab_size 2^64-1", drop_vocab, vocab_huge, BAD, "vocab_size is 18446744073709551615"},
    {"expert_count", NULL, experts, NOT, "8 experts"},
    {"partial rotation", NULL, rope_partial, NOT, "partial rotation"},
    {"yarn without a factor", NULL, rope_yarn, BAD, "YaRN RoPE scaling needs factor >= 1"},
    {"longrope", NULL, rope_long, NOT, "longrope"},
    {"value_length", NULL, value_length, NOT, "16 key and 8 value"},
    {"quantisation version", matrix_q4, quant_version, NOT, "general.quantization_version is 1"},
    {"tokens of int32", drop_tokens, tokens_of_int, BAD, "tokenizer.ggml.tokens has type array of int32"},
    {"tokens missing", drop_tokens, NULL, BAD, "tokenizer.ggml.tokens is missing"},
    {"tokens empty", drop_tokens, tokens_none, BAD, "tokenizer.ggml.tokens is empty"},
    {"more tokens than rows", drop_tokens, tokens_41, BAD, "41 tokens, more than the 40 rows"},
    {"token not UTF-8", drop_tokens, tokens_not_utf8, BAD, "token 30 is not valid UTF-8"},
    {"token_type of int8", drop_types, types_of_i8, BAD, "token_type has type array of int8, must be array of int32"},
    {"token_type of floats", drop_types, types_of_float, BAD, "token_type has type array of float32"},
    {"token_type short", drop_types, types_few, BAD, "token_type has 3 items for 40 tokens"},
    {"merges of uint8", drop_merges, merges_of_u8, BAD, "merges has type array of uint8"},
    {"eos past the table", drop_eos, eos_past, BAD, "eos_token_id is 40, past the last of 40 tokens"},
    {"eos a float", drop_eos, eos_float, BAD, "eos_token_id has type float32"},
    {"template not UTF-8", drop_template, template_not_utf8, BAD, "chat_template is not valid UTF-8"},
    {"pre a number", drop_pre, pre_number, BAD, "tokenizer.ggml.pre has type uint32"},
    {"feed_forward_length 0", drop_ff, ff_0, BAD, "feed_forward_length is 0"},
    {"shard number", NULL, shard_bad, BAD, "split.no is 3 of split.count 1"},
    {"300 shards", NULL, shards_300, BAD, "split.count is 300"},
    {"second shard", NULL, shard_second, TERN_INVALID_ARGUMENT, "shard 2 of 3: open the first one"},
    {"shards of a file in memory", NULL, shard_first, BAD, "others cannot be found"},
    {"tensor missing", tensor_missing, NULL, BAD, "blk.1.attn_k.weight is missing (expected shape [16, 32])"},
    {"tensor shape", tensor_shape, NULL, BAD, "blk.1.attn_k.weight has shape [8, 32], expected [16, 32]"},
    {"tensor of one dimension", tensor_dims, NULL, BAD, "blk.1.attn_k.weight has shape [32], expected [16, 32]"},
    {"taps shape", taps_shape, NULL, BAD, "conv.weight has shape [32, 2], expected [32, 3]"},
    {"norm quantised", norm_quantised, NULL, NOT, "blk.1.ffn_norm.weight has type Q8_0"},
    {"widths differ", width_differs, NULL, BAD, "blk.1.ffn_up.weight has shape [32, 32], expected [64, 32]"},
    {"tensor of no part", tensor_extra, NULL, NOT, "blk.1.attn_q.bias belongs to no part"},
};

static void test_kinds(void **state) {
    (void)state;
    struct buf b;
    buf_init(&b, 64u << 20);
    memset(long_name, 'n', sizeof(long_name) - 1);
    assert_true(ARRAY_LEN(kinds) >= 33);
    int n_wrong = 0;
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct tiny t;
        tiny_init(&t);
        if (kinds[i].make) kinds[i].make(&t);
        t.more_keys = kinds[i].keys;
        tiny_build(&t, &b);
        n_wrong += refusal_wrong(kinds[i].what, buf_str(&b), kinds[i].status, kinds[i].text);
    }
    buf_release(&b);
    assert_int_equal(n_wrong, 0);
}

// The refusals above are worthless if the file without a fault is refused.
static int more_harmless(struct buf *b) {
    kv_str(b, "general.description", "x");
    kv_u32(b, "general.alignment", 32);
    kv_u32(b, "general.quantization_version", 2);
    put_array(b, "general.tags", 8, 2);
    put_str(b, "a");
    put_str(b, "");
    put_array(b, "empty", 12, 0);
    kv_u32(b, "split.count", 0);
    return 6;
}
// Integers and floats of every width, one head count per layer.
static int more_widths(struct buf *b) {
    put_key(b, "lfm2.block_count", 0);
    buf_putc(b, 2);
    put_key(b, "lfm2.context_length", 11);
    put_u64(b, 64);
    put_key(b, "lfm2.embedding_length", 3);
    buf_put(b, "\x20\0", 2);
    put_key(b, "lfm2.shortconv.l_cache", 1);
    buf_putc(b, 3);
    double eps = 1e-5;
    put_key(b, "lfm2.attention.layer_norm_rms_epsilon", 12);
    buf_put(b, &eps, sizeof(eps));
    put_array(b, "lfm2.attention.head_count", 10, 2);
    put_u64(b, 2);
    put_u64(b, 2);
    return 6;
}
static void test_sound(void **state) {
    (void)state;
    struct buf b;
    struct tiny t;
    buf_init(&b, 1u << 20);
    tiny_init(&t);
    tiny_build(&t, &b);
    expect_open("tiny", buf_str(&b));
    t.version = 2;
    t.more_keys = more_harmless;
    t.tail = 1000;
    tiny_build(&t, &b);
    expect_open("version 2, more keys, bytes at the end", buf_str(&b));
    tiny_init(&t);
    t.align = 128;
    t.more_keys = align_128;
    tiny_build(&t, &b);
    expect_open("alignment 128", buf_str(&b));
    tiny_init(&t);
    t.drop_keys = "lfm2.block_count,lfm2.context_length,lfm2.embedding_length,lfm2.shortconv.l_cache,"
                  "lfm2.attention.layer_norm_rms_epsilon,lfm2.attention.head_count";
    t.more_keys = more_widths;
    tiny_build(&t, &b);
    expect_open("numbers of other widths", buf_str(&b));
    tiny_init(&t);
    matrix_q4(&t);
    tiny_build(&t, &b);
    expect_open("one matrix in Q4_0", buf_str(&b));
    tiny_init(&t);
    t.drop_keys = "tokenizer.ggml.model,tokenizer.ggml.tokens,tokenizer.ggml.token_type,tokenizer.ggml.merges";
    tiny_build(&t, &b);
    expect_open("without a tokenizer", buf_str(&b));
    tiny_init(&t);
    tiny_get(&t, "token_embd_norm.weight")->name = "output_norm.weight";
    tiny_build(&t, &b);
    expect_open("the other name of the last norm", buf_str(&b));
    buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_sound)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
