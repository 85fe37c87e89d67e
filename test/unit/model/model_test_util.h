// Shared by the tests of model/: cmocka, a builder of small GGUF and safetensors files with one fault at a time, files
// in a temporary folder, and the judgement of a refusal.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define EXTRA_BYTES_MAX (64u << 20) // memory that a refusal may take
#define REFUSAL_NS_MAX 1000000000u  // and time

// ------------------------------------------------------------------------------------------------ bytes

static inline void put_u32(struct buf *b, uint32_t v) { buf_put(b, &v, 4); }
static inline void put_u64(struct buf *b, uint64_t v) { buf_put(b, &v, 8); }
static inline void put_str(struct buf *b, const char *z) {
    put_u64(b, strlen(z));
    buf_puts(b, z);
}
static inline void put_key(struct buf *b, const char *key, uint32_t type) {
    put_str(b, key);
    put_u32(b, type);
}
static inline void kv_u32(struct buf *b, const char *key, uint32_t v) {
    put_key(b, key, 4);
    put_u32(b, v);
}
static inline void kv_f32(struct buf *b, const char *key, float v) {
    put_key(b, key, 6);
    put_u32(b, f32_bits(v));
}
static inline void kv_bool(struct buf *b, const char *key, uint8_t v) {
    put_key(b, key, 7);
    buf_putc(b, (char)v);
}
static inline void kv_str(struct buf *b, const char *key, const char *v) {
    put_key(b, key, 8);
    put_str(b, v);
}
static inline void put_array(struct buf *b, const char *key, uint32_t item_type, uint64_t n) {
    put_key(b, key, 9);
    put_u32(b, item_type);
    put_u64(b, n);
}

// ------------------------------------------------------------------------------------------------ a small model

// Two layers (convolution, attention), width 32, 2 heads of 16, feed-forward 64, 40 rows, 3 taps, F16 matrices.
#define TINY_EMBD 32
#define TINY_ROWS 40
#define TINY_FF 64
struct tiny_tensor {
    const char *name;
    uint32_t n_dims;
    uint64_t ne[6];
    uint32_t type;
    int64_t offset; // -1: where it belongs
};
#define TINY_TENSORS 21
static const struct tiny_tensor tiny_tensors[TINY_TENSORS] = {
    {"token_embd.weight", 2, {32, 40}, 1, -1},          {"token_embd_norm.weight", 1, {32}, 0, -1},
    {"blk.0.attn_norm.weight", 1, {32}, 0, -1},         {"blk.0.shortconv.in_proj.weight", 2, {32, 96}, 1, -1},
    {"blk.0.shortconv.conv.weight", 2, {3, 32}, 0, -1}, {"blk.0.shortconv.out_proj.weight", 2, {32, 32}, 1, -1},
    {"blk.0.ffn_norm.weight", 1, {32}, 0, -1},          {"blk.0.ffn_gate.weight", 2, {32, 64}, 1, -1},
    {"blk.0.ffn_up.weight", 2, {32, 64}, 1, -1},        {"blk.0.ffn_down.weight", 2, {64, 32}, 1, -1},
    {"blk.1.attn_norm.weight", 1, {32}, 0, -1},         {"blk.1.attn_q.weight", 2, {32, 32}, 1, -1},
    {"blk.1.attn_k.weight", 2, {32, 16}, 1, -1},        {"blk.1.attn_v.weight", 2, {32, 16}, 1, -1},
    {"blk.1.attn_output.weight", 2, {32, 32}, 1, -1},   {"blk.1.attn_q_norm.weight", 1, {16}, 0, -1},
    {"blk.1.attn_k_norm.weight", 1, {16}, 0, -1},       {"blk.1.ffn_norm.weight", 1, {32}, 0, -1},
    {"blk.1.ffn_gate.weight", 2, {32, 64}, 1, -1},      {"blk.1.ffn_up.weight", 2, {32, 64}, 1, -1},
    {"blk.1.ffn_down.weight", 2, {64, 32}, 1, -1},
};

// What one file does otherwise than the sound one.
struct tiny {
    const char *magic;     // "GGUF"
    uint32_t version;      // 3
    int64_t n_keys_off;    // added to the true count
    int64_t n_tensors_off; // likewise
    const char *drop_keys; // comma-separated keys to leave out
    int (*more_keys)(struct buf *b);
    struct tiny_tensor tensors[TINY_TENSORS + 1];
    int n_tensors;
    uint32_t align;   // 32; a key is written only by more_keys
    int64_t data_off; // bytes of data more or less than needed
    const char *name_bytes;
    size_t name_len; // of tensor 0, when name_bytes is set
    int64_t cut;     // file length, when >= 0
    size_t tail;     // zeros after everything
};

static inline void tiny_init(struct tiny *t) {
    *t = (struct tiny){.magic = "GGUF", .version = 3, .n_tensors = TINY_TENSORS, .align = 32, .cut = -1};
    memcpy(t->tensors, tiny_tensors, sizeof(tiny_tensors));
}

static inline struct tiny_tensor *tiny_get(struct tiny *t, const char *name) {
    for (int i = 0; i < t->n_tensors; i++)
        if (strcmp(t->tensors[i].name, name) == 0) return &t->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

static inline bool tiny_dropped(const struct tiny *t, const char *key) {
    const char *at = t->drop_keys ? strstr(t->drop_keys, key) : NULL;
    size_t n = strlen(key);
    return at && (at == t->drop_keys || at[-1] == ',') && (at[n] == 0 || at[n] == ',');
}

static inline int tiny_keys(const struct tiny *t, struct buf *b) {
    static const struct {
        const char *key;
        uint32_t v;
    } numbers[] = {
        {"lfm2.block_count", 2},          {"lfm2.context_length", 64},        {"lfm2.embedding_length", 32},
        {"lfm2.feed_forward_length", 64}, {"lfm2.attention.head_count", 2},   {"lfm2.vocab_size", 40},
        {"lfm2.shortconv.l_cache", 3},    {"tokenizer.ggml.bos_token_id", 1}, {"tokenizer.ggml.eos_token_id", 7},
    };
    int n = 0;
#define TINY_KEY(key, ...)           \
    do {                             \
        if (!tiny_dropped(t, key)) { \
            __VA_ARGS__;             \
            n++;                     \
        }                            \
    } while (0)
    TINY_KEY("general.architecture", kv_str(b, "general.architecture", "lfm2"));
    TINY_KEY("general.name", kv_str(b, "general.name", "tiny test"));
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++) TINY_KEY(numbers[i].key, kv_u32(b, numbers[i].key, numbers[i].v));
    TINY_KEY("lfm2.attention.head_count_kv", {
        put_array(b, "lfm2.attention.head_count_kv", 5, 2);
        put_u32(b, 0);
        put_u32(b, 1);
    });
    TINY_KEY("lfm2.attention.layer_norm_rms_epsilon", kv_f32(b, "lfm2.attention.layer_norm_rms_epsilon", 1e-5f));
    TINY_KEY("lfm2.rope.freq_base", kv_f32(b, "lfm2.rope.freq_base", 1e6f));
    TINY_KEY("tokenizer.ggml.model", kv_str(b, "tokenizer.ggml.model", "gpt2"));
    TINY_KEY("tokenizer.ggml.pre", kv_str(b, "tokenizer.ggml.pre", "lfm2"));
    TINY_KEY("tokenizer.ggml.tokens", {
        put_array(b, "tokenizer.ggml.tokens", 8, TINY_ROWS);
        for (int i = 0; i < TINY_ROWS; i++) {
            char token[4] = {(char)('A' + i / 10), (char)('0' + i % 10), 0, 0};
            put_str(b, token);
        }
    });
    TINY_KEY("tokenizer.ggml.token_type", {
        put_array(b, "tokenizer.ggml.token_type", 5, TINY_ROWS);
        for (int i = 0; i < TINY_ROWS; i++) put_u32(b, i < 8 ? 3 : 1);
    });
    TINY_KEY("tokenizer.ggml.merges", {
        put_array(b, "tokenizer.ggml.merges", 8, 1);
        put_str(b, "A 0");
    });
    TINY_KEY("tokenizer.ggml.add_bos_token", kv_bool(b, "tokenizer.ggml.add_bos_token", 1));
    TINY_KEY("tokenizer.chat_template", kv_str(b, "tokenizer.chat_template", "{{ messages }}"));
    return n;
}

static inline uint64_t tiny_bytes(const struct tiny_tensor *x) {
    uint64_t n = 1, block = 1, bytes = x->type == 0 ? 4 : 2;
    if (x->type == 2) block = 32, bytes = 18; // Q4_0
    if (x->type == 8) block = 32, bytes = 34; // Q8_0
    for (uint32_t k = 0; k < x->n_dims && k < 6; k++) n *= x->ne[k];
    return n / block * bytes;
}

static inline void put_zeros(struct buf *b, size_t n) {
    static const char zeros[4096];
    for (; n > 0; n -= MIN(n, sizeof(zeros))) buf_put(b, zeros, MIN(n, sizeof(zeros)));
}

static inline void tiny_build(const struct tiny *t, struct buf *b) {
    struct buf keys;
    uint64_t offset = 0;
    buf_init(&keys, 16u << 20);
    int n_keys = tiny_keys(t, &keys);
    if (t->more_keys) n_keys += t->more_keys(&keys);
    buf_clear(b);
    buf_puts(b, t->magic);
    put_u32(b, t->version);
    put_u64(b, (uint64_t)(t->n_tensors + t->n_tensors_off));
    put_u64(b, (uint64_t)(n_keys + t->n_keys_off));
    buf_put(b, keys.data, keys.len);
    for (int i = 0; i < t->n_tensors; i++) {
        const struct tiny_tensor *x = &t->tensors[i];
        if (i == 0 && t->name_bytes) {
            put_u64(b, t->name_len);
            buf_put(b, t->name_bytes, t->name_len);
        } else {
            put_str(b, x->name);
        }
        put_u32(b, x->n_dims);
        for (uint32_t k = 0; k < x->n_dims && k < 6; k++) put_u64(b, x->ne[k]);
        put_u32(b, x->type);
        put_u64(b, x->offset >= 0 ? (uint64_t)x->offset : x->offset == -1 ? offset : (uint64_t)x->offset);
        offset += (tiny_bytes(&tiny_tensors[MIN(i, TINY_TENSORS - 1)]) + t->align - 1) / t->align * t->align;
    }
    put_zeros(b, (t->align - b->len % t->align) % t->align);
    size_t data = b->len, n_data = (size_t)((int64_t)offset + t->data_off);
    put_zeros(b, n_data);
    for (size_t i = 0; i < n_data; i += 2) b->data[data + i] = (char)(i >> 3);
    put_zeros(b, t->tail);
    if (t->cut >= 0 && (size_t)t->cut < b->len) b->len = (size_t)t->cut;
    assert_false(b->failed || keys.failed);
    buf_release(&keys);
}

// safetensors: the header's text and n data bytes (value i & 255).
static inline void safetensors_build(struct buf *b, struct str header, size_t n_data) {
    buf_clear(b);
    put_u64(b, header.len);
    buf_put(b, header.data, header.len);
    for (size_t i = 0; i < n_data; i++) buf_putc(b, (char)i);
    assert_false(b->failed);
}

// ------------------------------------------------------------------------------------------------ judging

// An exact-size copy, so that a sanitizer sees a read one byte past the end.
static inline enum tern_status open_copy(struct model **out, const char *name, struct str bytes, struct tern_err *err,
                                         void **copy) {
    *copy = malloc(bytes.len ? bytes.len : 1);
    assert_non_null(*copy);
    if (bytes.len) memcpy(*copy, bytes.data, bytes.len);
    return model_open_memory(out, name, *copy, bytes.len, err);
}

// Opens and closes; true when it opened. Fails the test on a leak, on slowness, on much memory.
static inline bool open_quick(const char *name, struct str bytes, struct tern_err *err) {
    struct model *m = NULL;
    void *copy;
    struct mem_stats before = mem_stats_get();
    uint64_t start = clock_ns();
    enum tern_status status = open_copy(&m, "f", bytes, err, &copy); // a name no message is searched for
    if (clock_ns() - start > REFUSAL_NS_MAX) fail_msg("%s took over a second", name);
    if (status == TERN_OK) model_close(m);
    if (status != TERN_OK && (err->code != status || err->message[0] == 0)) fail_msg("%s: no message", name);
    struct mem_stats after = mem_stats_get();
    if (after.n_live != before.n_live) fail_msg("%s: %d blocks leak", name, (int)(after.n_live - before.n_live));
    if (after.bytes_max > before.bytes_now + EXTRA_BYTES_MAX && after.bytes_max > before.bytes_max)
        fail_msg("%s took %llu bytes", name, (unsigned long long)(after.bytes_max - before.bytes_now));
    free(copy);
    return status == TERN_OK;
}

// Prints what is wrong and returns 1; a table of refusals is judged as a whole.
static inline int refusal_wrong(const char *what, struct str bytes, enum tern_status status, const char *text) {
    struct tern_err err = {0};
    if (open_quick(what, bytes, &err)) {
        print_error("%s: opened, expected \"%s\"\n", what, text);
        return 1;
    }
    if (strstr(err.message, text) && err.code == status) return 0;
    print_error("%s: \"%s\" (%s), expected \"%s\" (%s)\n", what, err.message, tern_status_text(err.code), text,
                tern_status_text(status));
    return 1;
}

static inline void expect_open(const char *what, struct str bytes) {
    struct tern_err err = {0};
    if (!open_quick(what, bytes, &err)) fail_msg("%s: %s", what, err.message);
}

// ------------------------------------------------------------------------------------------------ files

static inline const char *tmp_folder(void) {
    static char path[256];
    if (!path[0]) {
        struct tern_err err = {0};
        const char *base = env_get("TMPDIR");
        snprintf(path, sizeof(path), "%s/tern_model_test_%d", base ? base : "/tmp", os_pid());
        if (os_mkdirs(path, &err) != TERN_OK) fail_msg("%s", err.message);
    }
    return path;
}
static inline const char *tmp_path(const char *name, char out[512]) {
    snprintf(out, 512, "%s/%s", tmp_folder(), name);
    return out;
}
static inline void tmp_write(const char *name, struct str bytes) {
    char path[512];
    FILE *f = fopen(tmp_path(name, path), "wb"); // no fsync: hundreds of files are written
    if (!f || fwrite(bytes.data, 1, bytes.len, f) != bytes.len || fclose(f) != 0) fail_msg("cannot write %s", path);
}
static inline void tmp_remove(const char *name) {
    char path[512];
    os_remove(tmp_path(name, path), NULL);
}
static inline int tmp_end(void **state) {
    (void)state;
    char command[600];
    snprintf(command, sizeof(command), "rm -rf '%s'", tmp_folder());
    return system(command);
}
static inline void file_get(struct buf *b, const char *path) {
    struct tern_err err = {0};
    buf_clear(b);
    if (file_read_all(b, path, &err) != TERN_OK) fail_msg("%s", err.message);
}
