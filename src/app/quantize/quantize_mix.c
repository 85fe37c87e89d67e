// Which tensor gets which format. The rules are those of llama-quantize without an importance matrix, so that a file of
// ours and one of llama.cpp's by the same name are of the same kind: doc/quantize.md has them in words.
#include "base/base.h"
#include "quantize.h"

#include <stdio.h>

#define FILE_TYPE_UNSAID 1024 // llama.cpp: "guessed"

const struct quantize_mix quantize_mixes[] = {
    {"F32", FORMAT_F32, 0, MIX_PLAIN, "4 bytes a weight"},
    {"F16", FORMAT_F16, 1, MIX_PLAIN, "half precision"},
    {"BF16", FORMAT_BF16, 32, MIX_PLAIN, "loses nothing of a BF16 checkpoint"},
    {"Q8_0", FORMAT_Q8_0, 7, MIX_PLAIN, "8 bits"},
    {"Q6_K", FORMAT_Q6_K, 18, MIX_PLAIN, "6 bits"},
    {"Q5_K_M", FORMAT_Q5_K, 17, MIX_MORE_BITS, "5 bits, sensitive matrices 6"},
    {"Q5_K_S", FORMAT_Q5_K, 16, MIX_PLAIN, "5 bits"},
    {"Q5_1", FORMAT_Q5_1, 9, MIX_PLAIN, "5 bits, older"},
    {"Q5_0", FORMAT_Q5_0, 8, MIX_PLAIN, "5 bits, older"},
    {"Q4_K_M", FORMAT_Q4_K, 15, MIX_MORE_BITS, "4 bits, sensitive matrices 6: the usual choice"},
    {"Q4_K_S", FORMAT_Q4_K, 14, MIX_4_S, "4 bits, a few 5"},
    {"IQ4_NL", FORMAT_IQ4_NL, 25, MIX_IQ4, "4 bits, uneven steps"},
    {"IQ4_XS", FORMAT_IQ4_XS, 30, MIX_IQ4, "a little over 4 bits, uneven steps"},
    {"Q4_1", FORMAT_Q4_1, 3, MIX_PLAIN, "4 bits, older"},
    {"Q4_0", FORMAT_Q4_0, 2, MIX_PLAIN, "4 bits, older, fastest"},
    {"Q3_K_L", FORMAT_Q3_K, 13, MIX_3_L, "3 bits, sensitive matrices 5"},
    {"Q3_K_M", FORMAT_Q3_K, 12, MIX_3_M, "3 bits, sensitive matrices 4 and 5"},
    {"Q3_K_S", FORMAT_Q3_K, 11, MIX_PLAIN, "3 bits"},
    {"Q2_K", FORMAT_Q2_K, 10, MIX_2_K, "2 bits, sensitive matrices 3 and 4"},
    {"I8C", FORMAT_I8C, FILE_TYPE_UNSAID, MIX_PLAIN, "int8 per output channel; only tern reads it"},
    {0},
};

static bool name_eq(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        char ca = *a >= 'a' && *a <= 'z' ? (char)(*a - 32) : *a, cb = *b >= 'a' && *b <= 'z' ? (char)(*b - 32) : *b;
        if (ca != cb) return false;
    }
    return *a == *b;
}

const struct quantize_mix *quantize_mix_find(const char *name) {
    static const struct {
        const char *name, *means;
    } aliases[] = {{"Q5_K", "Q5_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q3_K", "Q3_K_M"}};
    for (size_t i = 0; i < ARRAY_LEN(aliases); i++)
        if (name_eq(name, aliases[i].name)) name = aliases[i].means;
    for (const struct quantize_mix *m = quantize_mixes; m->name; m++)
        if (name_eq(name, m->name)) return m;
    return NULL;
}

// ------------------------------------------------------------------------------------------------- the rules

#define FALLBACKS_MAX 16
struct fallback { // tensors that were to be of one format and became another because of their rows
    enum format from, to;
    int64_t n_row;
    int n;
    struct str first;
};
struct choosing {
    const struct quantize_mix *mix;
    bool is_tied; // the embedding is the output matrix
    int n_layers; // blk.0 … blk.n-1
    int n_values; // attn_v tensors in all
    bool has_value[MODEL_LAYERS_MAX];
    int64_t n_sharing; // query heads that share a key head, as the rows of attn_q and attn_k say
    int64_t n_experts; // 0 without
    struct fallback fallbacks[FALLBACKS_MAX];
    int n_fallbacks;
};

static bool name_has(struct str name, const char *part) { return str_find(name, str_from(part), 0) != (size_t)-1; }

// The layers that mixes spend more on: the first and last eighth, and every third between.
static bool layer_counts(int i, int n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

static int layer_of(struct str name) { // "blk.12.…": 12; else -1
    if (!str_starts(name, STR("blk."))) return -1;
    size_t end = str_find(name, STR("."), 4);
    int64_t layer;
    if (end == (size_t)-1 || !str_to_i64((struct str){name.data + 4, end - 4}, &layer) || layer < 0 ||
        layer >= MODEL_LAYERS_MAX)
        return -1;
    return (int)layer;
}

static bool name_is_value(struct str name) {
    return name_has(name, "attn_v.weight") || name_has(name, "attn_qkv.weight");
}

// attn_v and attn_qkv, the i-th of n layers that have one.
static enum format value_rule(const struct choosing *c, int i, int n) {
    const enum format f = c->mix->format;
    if (c->n_experts == 8) return FORMAT_Q8_0; // small beside eight experts
    switch (c->mix->rule) {
    case MIX_2_K: return c->n_sharing >= 4 ? FORMAT_Q4_K : FORMAT_Q3_K;
    case MIX_3_M: return i < 2 ? FORMAT_Q5_K : FORMAT_Q4_K;
    case MIX_3_L: return FORMAT_Q5_K;
    case MIX_4_S: return i < 4 ? FORMAT_Q5_K : f;
    case MIX_MORE_BITS: return layer_counts(i, n) ? FORMAT_Q6_K : f;
    case MIX_IQ4: return c->n_sharing >= 4 ? FORMAT_Q5_K : f;
    case MIX_PLAIN: break;
    }
    return f;
}

static enum format down_rule(const struct choosing *c, int layer, int n) {
    const enum format f = c->mix->format;
    switch (c->mix->rule) {
    case MIX_2_K: return FORMAT_Q3_K;
    case MIX_3_M: return layer < n / 16 ? FORMAT_Q5_K : FORMAT_Q4_K;
    case MIX_3_L: return FORMAT_Q5_K;
    case MIX_4_S:
    case MIX_IQ4: return layer < n / 8 ? FORMAT_Q5_K : f;
    case MIX_MORE_BITS: return layer_counts(layer, n) ? FORMAT_Q6_K : f;
    case MIX_PLAIN: break;
    }
    return f;
}

static enum format mix_rule(const struct choosing *c, const struct model_export_tensor *t) {
    const struct quantize_mix *mix = c->mix;
    const int layer = layer_of(t->name);
    if (str_eqz(t->name, "output.weight") || (str_eqz(t->name, "token_embd.weight") && c->is_tied)) {
        // An error in the last matrix reaches every logit.
        if (mix->format == FORMAT_I8C) return FORMAT_I8C;
        return mix->format == FORMAT_Q8_0 || t->ne[0] % format_table[mix->format].n_block != 0 ? FORMAT_Q8_0
                                                                                               : FORMAT_Q6_K;
    }
    if (mix->format == FORMAT_I8C) return FORMAT_I8C;
    if (name_is_value(t->name)) {
        int i = 0; // among the layers that have one
        for (int k = 0; k < layer; k++) i += c->has_value[k];
        return value_rule(c, i, c->n_values);
    }
    if (name_has(t->name, "attn_k.weight") && c->n_experts == 8) return FORMAT_Q8_0;
    if (name_has(t->name, "ffn_down")) return down_rule(c, layer, c->n_layers);
    if (name_has(t->name, "attn_output.weight")) {
        if (c->n_experts == 8) return mix->rule == MIX_PLAIN || mix->format == FORMAT_Q5_K ? mix->format : FORMAT_Q5_K;
        if (mix->rule == MIX_2_K) return FORMAT_Q3_K;
        if (mix->rule == MIX_3_M) return FORMAT_Q4_K;
        if (mix->rule == MIX_3_L) return FORMAT_Q5_K;
    }
    return mix->format;
}

static enum format fallback_of(enum format f) {
    switch (f) {
    case FORMAT_IQ4_XS: return FORMAT_IQ4_NL;
    case FORMAT_Q2_K:
    case FORMAT_Q3_K: return FORMAT_Q4_0;
    case FORMAT_Q4_K: return FORMAT_Q5_0;
    case FORMAT_Q5_K: return FORMAT_Q5_1;
    case FORMAT_Q6_K: return FORMAT_Q8_0;
    default: return f;
    }
}

static void fallback_note(struct choosing *c, const struct model_export_tensor *t, enum format from, enum format to) {
    int i = 0;
    while (i < c->n_fallbacks && (c->fallbacks[i].from != from || c->fallbacks[i].n_row != t->ne[0])) i++;
    if (i == FALLBACKS_MAX) return;
    if (i == c->n_fallbacks) c->fallbacks[c->n_fallbacks++] = (struct fallback){from, to, t->ne[0], 0, t->name};
    c->fallbacks[i].n++;
}

static void fallbacks_tell(const struct choosing *c) {
    for (int i = 0; i < c->n_fallbacks; i++) {
        const struct fallback *f = &c->fallbacks[i];
        fprintf(stderr, "tern quantize: %d tensor(s), first %.*s: rows of %lld values make no whole blocks of %s (%d);",
                f->n, (int)f->first.len, f->first.data, (long long)f->n_row, format_table[f->from].name,
                format_table[f->from].n_block);
        fprintf(stderr, " %s instead\n", format_table[f->to].name);
    }
}

// A format whose blocks the rows fit: the asked for one, its fallback, or F16.
static enum format fit_rows(struct choosing *c, const struct model_export_tensor *t, enum format f) {
    if (t->ne[0] % format_table[f].n_block == 0) return f;
    enum format to = fallback_of(f);
    if (t->ne[0] % format_table[to].n_block != 0) to = FORMAT_F16;
    fallback_note(c, t, f, to);
    return to;
}

static struct quantize_override *override_find(struct quantize_override *o, int n, struct str name) {
    for (int i = 0; i < n; i++)
        if (str_find(name, o[i].name, 0) != (size_t)-1) return &o[i];
    return NULL;
}

static void model_look(struct choosing *c, const struct model_export *x) {
    int64_t n_query = 0, n_key = 0;
    for (int i = 0; i < x->n_tensors; i++) {
        const struct model_export_tensor *t = &x->tensors[i];
        const int layer = layer_of(t->name);
        c->is_tied = c->is_tied && !str_eqz(t->name, "output.weight");
        c->n_layers = MAX(c->n_layers, layer + 1);
        if (name_has(t->name, "attn_q.weight")) n_query = t->ne[1];
        if (name_has(t->name, "attn_k.weight")) n_key = t->ne[1];
        if (name_has(t->name, "ffn_down_exps")) c->n_experts = t->ne[2];
        if (!name_is_value(t->name)) continue;
        c->n_values++;
        if (layer >= 0) c->has_value[layer] = true;
    }
    c->n_sharing = n_key > 0 ? n_query / n_key : 1;
}

enum tern_status quantize_choose(struct model_export *x, const struct quantize_mix *mix, bool pure,
                                 struct quantize_override *overrides, int n_overrides, bool tell,
                                 struct tern_err *err) {
    struct choosing c = {.mix = mix, .is_tied = true};
    model_look(&c, x);
    for (int i = 0; i < x->n_tensors; i++) {
        struct model_export_tensor *t = &x->tensors[i];
        struct quantize_override *o = t->from ? override_find(overrides, n_overrides, t->name) : NULL;
        if (o) {
            o->n_used++;
            t->format = fit_rows(&c, t, o->format);
        } else if (!t->is_small && t->from) {
            bool plain = pure || format_is_float(mix->format);
            t->format = fit_rows(&c, t, plain ? mix->format : mix_rule(&c, t));
        }
        if (t->is_small && !format_is_float(t->format))
            return err_set(err, TERN_INVALID_ARGUMENT,
                           "--tensor-type: %.*s is a vector or a small matrix that stays F32, F16 or BF16, not %s",
                           (int)t->name.len, t->name.data, format_table[t->format].name);
    }
    if (tell) fallbacks_tell(&c);
    for (int i = 0; i < n_overrides; i++)
        if (overrides[i].n_used == 0)
            return err_set(err, TERN_NOT_FOUND, "--tensor-type: no tensor's name holds '%.*s'",
                           (int)overrides[i].name.len, overrides[i].name.data);
    return TERN_OK;
}
