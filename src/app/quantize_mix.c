// Which tensor gets which format. The rules are those of llama-quantize without an importance matrix, so that a file of
// ours and one of llama.cpp's by the same name are of the same kind: doc/quantize.md has them in words.
#include "base/base.h"
#include "quantize.h"

#include <stdio.h>

#define FILE_TYPE_UNSAID 1024 // llama.cpp: "guessed"

const struct quantize_mix quantize_mixes[] = {
    {"F32", FORMAT_F32, 0, "as trained, 4 bytes a weight"},
    {"F16", FORMAT_F16, 1, "half precision"},
    {"BF16", FORMAT_BF16, 32, "bfloat16, loses nothing of a BF16 checkpoint"},
    {"Q8_0", FORMAT_Q8_0, 7, "8 bits, scales per 32"},
    {"Q6_K", FORMAT_Q6_K, 18, "6 bits"},
    {"Q5_1", FORMAT_Q5_1, 9, "5 bits, with minima"},
    {"Q5_0", FORMAT_Q5_0, 8, "5 bits"},
    {"Q4_K_M", FORMAT_Q4_K, 15, "4 bits, the sensitive matrices 6: the usual choice"},
    {"Q4_1", FORMAT_Q4_1, 3, "4 bits, with minima"},
    {"Q4_0", FORMAT_Q4_0, 2, "4 bits, fastest"},
    {"I8C", FORMAT_I8C, FILE_TYPE_UNSAID, "int8 per output channel; only tern reads it"},
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
    static const struct { const char *name, *means; } aliases[] = {{"Q4_K", "Q4_K_M"}};
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

static enum format mix_rule(struct choosing *c, const struct model_export_tensor *t) {
    const struct quantize_mix *mix = c->mix;
    const bool is_embedding = str_eqz(t->name, "token_embd.weight");
    if (str_eqz(t->name, "output.weight") || (is_embedding && c->is_tied)) {
        // An error in the last matrix reaches every logit.
        if (mix->format == FORMAT_I8C) return FORMAT_I8C;
        return mix->format == FORMAT_Q8_0 || t->ne[0] % format_table[mix->format].n_block != 0 ? FORMAT_Q8_0
                                                                                               : FORMAT_Q6_K;
    }
    const bool is_value = name_is_value(t->name);
    int i_value = 0; // among the layers that have one
    for (int i = 0; i < layer_of(t->name); i++) i_value += c->has_value[i];
    if (strcmp(mix->name, "Q4_K_M") == 0) {
        if (is_value && layer_counts(i_value, c->n_values)) return FORMAT_Q6_K;
        if (name_has(t->name, "ffn_down") && layer_counts(layer_of(t->name), c->n_layers)) return FORMAT_Q6_K;
    }
    return mix->format;
}

static enum format fallback_of(enum format f) {
    switch (f) {
    case FORMAT_Q4_K: return FORMAT_Q5_0;
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

enum tern_status quantize_choose(struct model_export *x, const struct quantize_mix *mix, bool pure,
                                 struct quantize_override *overrides, int n_overrides, bool tell,
                                 struct tern_err *err) {
    struct choosing c = {.mix = mix, .is_tied = true};
    for (int i = 0; i < x->n_tensors; i++) {
        const struct model_export_tensor *t = &x->tensors[i];
        c.is_tied = c.is_tied && !str_eqz(t->name, "output.weight");
        c.n_layers = MAX(c.n_layers, layer_of(t->name) + 1);
        if (!name_is_value(t->name)) continue;
        c.n_values++;
        if (layer_of(t->name) >= 0) c.has_value[layer_of(t->name)] = true;
    }
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
