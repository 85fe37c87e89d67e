// safetensors bytes, or one JSON file of a Hugging Face folder: an input that begins with "config:", "index:",
// "generation:" or "tokenizer:" takes the place of that file beside a sound model of one Llama layer, and one that
// begins with "mlx:" is the config.json of the same layer quantised by MLX, 4 bits in groups of 32.
#include "base/base.h"
#include "model/model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;
static char folder[256];

#define SHARD "model-00001-of-00001.safetensors"
static const char config[] =
    "{\"model_type\":\"llama\",\"hidden_size\":4,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"intermediate_size\":4,\"vocab_size\":2,"
    "\"max_position_embeddings\":8,\"rms_norm_eps\":1e-5,\"rope_theta\":1e4,"
    "\"tie_word_embeddings\":true}";
static const struct {
    const char *name;
    int rows, cols;
} tensors[] = {
    {"model.embed_tokens.weight", 2, 4},
    {"model.norm.weight", 4, 0},
    {"model.layers.0.input_layernorm.weight", 4, 0},
    {"model.layers.0.post_attention_layernorm.weight", 4, 0},
    {"model.layers.0.self_attn.q_proj.weight", 4, 4},
    {"model.layers.0.self_attn.k_proj.weight", 2, 4},
    {"model.layers.0.self_attn.v_proj.weight", 2, 4},
    {"model.layers.0.self_attn.o_proj.weight", 4, 4},
    {"model.layers.0.mlp.gate_proj.weight", 4, 4},
    {"model.layers.0.mlp.up_proj.weight", 4, 4},
    {"model.layers.0.mlp.down_proj.weight", 4, 4},
};

static void put(const char *name, const void *data, size_t size) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0) TERN_BUG("cannot write %s", path);
}

static void drop(const char *name) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    os_remove(path, NULL);
}

static void folder_remove(void) {
    static const char *const files[] = {
        "config.json",          SHARD, "model.safetensors.index.json", "model.safetensors", "generation_config.json",
        "tokenizer_config.json"};
    for (size_t i = 0; i < ARRAY_LEN(files); i++) drop(files[i]);
    remove(folder);
}

static void entry_put(struct buf *header, const char *name, const char *suffix, const char *dtype, int rows, int cols,
                      size_t n_bytes, size_t *at) {
    buf_putf(header, "%c\"%s%s\":{\"dtype\":\"%s\",\"shape\":[%d", *at ? ',' : '{', name, suffix, dtype, rows);
    if (cols) buf_putf(header, ",%d", cols);
    buf_putf(header, "],\"data_offsets\":[%zu,%zu]}", *at, *at + n_bytes);
    *at += n_bytes;
}

// The layer of `tensors`; as MLX would have it eight times as wide, with 32-bit words of codes, scales and biases.
static void file_build(struct buf *file, bool is_mlx) {
    struct buf header;
    size_t at = 0;
    buf_init(&header, 1u << 16);
    buf_init(file, 1u << 16);
    for (size_t i = 0; i < ARRAY_LEN(tensors); i++) {
        const char *name = tensors[i].name;
        const int cols = tensors[i].cols, rows = is_mlx && tensors[i].rows > 2 + !cols ? 32 : tensors[i].rows;
        if (!is_mlx || !cols) {
            entry_put(&header, name, "", "F16", rows, cols, 2 * (size_t)rows * (size_t)(cols ? cols : 1), &at);
            continue;
        }
        char base[128];
        const int outs = rows == 2 && i > 0 ? 16 : rows; // the embedding has two rows
        snprintf(base, sizeof(base), "%.*s", (int)(strlen(name) - strlen(".weight")), name);
        entry_put(&header, base, ".weight", "U32", outs, 4, 16 * (size_t)outs, &at);
        entry_put(&header, base, ".scales", "BF16", outs, 1, 2 * (size_t)outs, &at);
        entry_put(&header, base, ".biases", "BF16", outs, 1, 2 * (size_t)outs, &at);
    }
    buf_putc(&header, '}');
    uint64_t len = header.len;
    buf_put(file, &len, 8);
    buf_put(file, header.data, header.len);
    for (size_t i = 0; i < at; i++) buf_putc(file, 0);
    buf_release(&header);
}

static void folder_make(void) {
    struct buf file;
    struct tern_err err = {0};
    const char *base = env_get("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/tern_fuzz_hf_%d", base ? base : "/tmp", os_pid());
    if (os_mkdirs(folder, &err) != TERN_OK) TERN_BUG("%s", err.message);
    atexit(folder_remove);
    file_build(&file, false);
    put(SHARD, file.data, file.len);
    put("model.safetensors", file.data, file.len);
    buf_release(&file);
}

// Puts the quantised weights in place of the others, or those back.
static void weights_put(bool is_mlx) {
    struct buf file;
    file_build(&file, is_mlx);
    put("model.safetensors", file.data, file.len);
    buf_release(&file);
}

// The last block of every tensor.
static void tensors_touch(const struct model *m) {
    for (int i = 0; i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        if (t->parts && t->n_bytes) {
            uint8_t block[256];
            const int n = format_table[t->format].n_block;
            model_tensor_read(t, t->ne[1] - 1, t->ne[0] - n, n, block);
            sink = block[0] ^ block[format_table[t->format].n_bytes - 1];
        } else if (t->n_bytes) {
            sink = t->data[0] ^ t->data[t->n_bytes - 1];
        }
    }
}

static void folder_open(const char *name, bool is_mlx, const uint8_t *data, size_t size) {
    static const char model[] = "model.safetensors";
    bool is_index = strcmp(name, "model.safetensors.index.json") == 0;
    if (!folder[0]) folder_make();
    char single[512], aside[512];
    snprintf(single, sizeof(single), "%s/%s", folder, model);
    snprintf(aside, sizeof(aside), "%s/aside", folder);
    put("config.json", config, sizeof(config) - 1);
    put(name, data, size);
    if (is_mlx) weights_put(true);
    if (is_index) rename(single, aside); // an index counts only without the single file
    struct model *m;
    struct tern_err err = {0};
    enum tern_status status = model_open(&m, folder, &err);
    if (status == TERN_OK) {
        tensors_touch(m);
        model_close(m);
    } else if (err.code != status || err.message[0] == 0) {
        TERN_BUG("a refusal without a message: %d", (int)status);
    }
    if (is_index) rename(aside, single);
    if (is_mlx) weights_put(false);
    if (strcmp(name, "config.json") != 0) drop(name);
}

static void bytes_open(const uint8_t *data, size_t size) {
    struct model *m;
    struct tern_err err = {0};
    enum tern_status status = model_open_memory(&m, "input", data, size, &err);
    if (status != TERN_OK) {
        if (err.code != status || err.message[0] == 0) TERN_BUG("a refusal without a message: %d", (int)status);
        return;
    }
    tensors_touch(m);
    model_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t n_live = mem_stats_get().n_live;
    static const struct {
        const char *prefix, *file;
    } parts[] = {
        {"config:", "config.json"},
        {"mlx:", "config.json"},
        {"index:", "model.safetensors.index.json"},
        {"generation:", "generation_config.json"},
        {"tokenizer:", "tokenizer_config.json"},
    };
    size_t k = 0;
    for (; k < ARRAY_LEN(parts); k++) {
        size_t n = strlen(parts[k].prefix);
        if (size < n || memcmp(data, parts[k].prefix, n) != 0) continue;
        folder_open(parts[k].file, strcmp(parts[k].prefix, "mlx:") == 0, data + n, size - n);
        break;
    }
    if (k == ARRAY_LEN(parts)) bytes_open(data, size);
    if (mem_stats_get().n_live != n_live) TERN_BUG("blocks leak");
    return 0;
}
