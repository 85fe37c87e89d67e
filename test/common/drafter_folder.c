// See drafter_folder.h.
#include "base/base.h"
#include "drafter_folder.h"
#include "op/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#define FILE_MAX (256u << 20)

struct folder {
    struct buf header, data;
    int head_dim;
};

// Entry i of a head in interleaved order lies at this place of the half-split order.
static int64_t half_split_place(int64_t i, int head_dim) {
    int64_t head = i / head_dim, at = i % head_dim;
    return head * head_dim + at / 2 + at % 2 * (head_dim / 2);
}

// permute: rows (of a matrix) or entries (of a vector) are ordered by heads.
static void tensor_put(struct folder *f, const char *name, const struct tensor *t, bool permute) {
    static float row[16384];
    int64_t n_in = t->ne[0], n_out = t->ne[1];
    uint64_t row_bytes = 0;
    size_t begin = f->data.len;
    assert_true(n_in <= (int64_t)ARRAY_LEN(row) && format_row_bytes(t->format, (uint64_t)n_in, &row_bytes));
    bool is_vector = t->n_dims == 1;
    for (int64_t o = 0; o < n_out; o++) {
        int64_t from = permute && !is_vector ? half_split_place(o, f->head_dim) : o;
        op_dequant_row(t->format, t->data + (uint64_t)from * row_bytes, n_in, row);
        for (int64_t i = 0; i < n_in; i++)
            buf_put(&f->data, &row[permute && is_vector ? half_split_place(i, f->head_dim) : i], sizeof(float));
    }
    buf_putf(&f->header, "%c\"%s\":{\"dtype\":\"F32\",\"shape\":[", f->header.len ? ',' : '{', name);
    if (!is_vector) buf_putf(&f->header, "%lld,", (long long)n_out);
    buf_putf(&f->header, "%lld],\"data_offsets\":[%zu,%zu]}", (long long)n_in, begin, f->data.len);
}

static void layer_put(struct folder *f, const struct model_layer *l, int i) {
    const struct {
        const char *name;
        const struct tensor *t;
        bool permute;
    } list[] = {{"input_layernorm", l->attn_norm, false}, {"self_attn.q_proj", l->q, true},
                {"self_attn.k_proj", l->k, true},         {"self_attn.v_proj", l->v, false},
                {"self_attn.o_proj", l->o, false},        {"self_attn.q_norm", l->q_norm, true},
                {"self_attn.k_norm", l->k_norm, true},    {"post_attention_layernorm", l->ffn_norm, false},
                {"mlp.gate_proj", l->ffn_gate, false},    {"mlp.up_proj", l->ffn_up, false},
                {"mlp.down_proj", l->ffn_down, false}};
    for (size_t k = 0; k < ARRAY_LEN(list); k++) {
        char name[96];
        snprintf(name, sizeof name, "layers.%d.%s.weight", i, list[k].name);
        tensor_put(f, name, list[k].t, list[k].permute);
    }
}

static void config_put(struct buf *b, const struct model *m, bool as_dflash) {
    const struct model_hyper *h = &m->hyper;
    const struct model_drafter *d = m->drafter;
    const char *class_name = as_dflash ? "DFlashDraftModel" : "Lfm2DSparkDraftModel";
    buf_putf(b,
             "{\"architectures\":[\"%s\"],\"model_type\":\"qwen3\",\"hidden_size\":%d,"
             "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
             "\"intermediate_size\":%d,\"hidden_act\":\"silu\",\"rms_norm_eps\":%.9g,\"rope_theta\":%.9g,"
             "\"rope_is_neox_style\":false,\"max_position_embeddings\":%d,\"vocab_size\":%d,\"block_size\":%d,",
             class_name, h->n_embd, h->n_layers, h->n_head, h->n_head_kv, h->head_dim, h->n_ff, (double)h->norm_eps,
             (double)h->rope_base, h->n_ctx, h->n_vocab, d->n_rows);
    if (!as_dflash)
        buf_putf(b, "\"markov_rank\":%d,\"markov_head_type\":\"vanilla\",\"enable_confidence_head\":true,",
                 d->markov_rank);
    buf_putf(b, "\"dflash_config\":{\"mask_token_id\":%d,\"num_target_layers\":%d,\"target_layer_ids\":[", d->mask_id,
             d->target->hyper.n_layers);
    for (int i = 0; i < d->n_features; i++) buf_putf(b, "%s%d", i ? "," : "", d->feature_layers[i]);
    buf_puts(b, "]}}\n");
}

static void file_write(const char *folder, const char *name, const struct buf *b) {
    char path[512];
    struct tern_err err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_false(b->failed);
    if (file_write_atomic(path, b->data, b->len, &err) != TERN_OK) fail_msg("%s", err.message);
}

void drafter_folder_write(const struct model *m, const char *path, bool as_dflash) {
    struct folder f = {.head_dim = m->hyper.head_dim};
    const struct model_drafter *d = m->drafter;
    struct tern_err err = {0};
    struct buf file;
    buf_init(&f.header, FILE_MAX);
    buf_init(&f.data, FILE_MAX);
    buf_init(&file, FILE_MAX);
    if (os_mkdirs(path, &err) != TERN_OK) fail_msg("%s", err.message);
    tensor_put(&f, "fc.weight", d->fc, false);
    tensor_put(&f, "hidden_norm.weight", d->hidden_norm, false);
    tensor_put(&f, "norm.weight", m->output_norm, false);
    for (int i = 0; i < m->hyper.n_layers; i++) layer_put(&f, &m->layers[i], i);
    if (!as_dflash) {
        tensor_put(&f, "markov_head.markov_w1.weight", d->markov_w1, false);
        tensor_put(&f, "markov_head.markov_w2.weight", d->markov_w2, false);
        tensor_put(&f, "confidence_head.proj.weight", d->conf, false);
        if (d->conf_bias) tensor_put(&f, "confidence_head.proj.bias", d->conf_bias, false);
    }
    buf_putc(&f.header, '}');
    uint8_t length[8];
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)f.header.len >> (8 * i));
    buf_put(&file, length, sizeof length);
    buf_put(&file, f.header.data, f.header.len);
    buf_put(&file, f.data.data, f.data.len);
    assert_false(f.header.failed || f.data.failed);
    file_write(path, "model.safetensors", &file);
    buf_clear(&file);
    config_put(&file, m, as_dflash);
    file_write(path, "config.json", &file);
    buf_release(&file);
    buf_release(&f.header);
    buf_release(&f.data);
}
