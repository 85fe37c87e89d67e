// MLX checkpoints: config.json has an object "quantization" {group_size, bits}, and each quantised matrix lies in the
// file as three tensors: NAME.weight, 32-bit words of codes; NAME.scales and NAME.biases, one per group and row.
//
// The three become one matrix in a format of base/format.h; model_tensor_read() puts its blocks together on the way to
// the unit, so nothing is copied when the file is opened. "quantization" may hold entries for single layers, by name:
// other bits and groups, or false for "left as it was"; they are honoured. What has no format here (other groups, other
// modes) is refused with the tensor's name.
#include "base/base.h"
#include "model/model_int.h"

static bool layer_settings(const struct hf_mlx *x, struct str base, int64_t *bits, int64_t *group) {
    *bits = x->bits;
    *group = x->group_size;
    const int64_t at = x->n_layers > 0 ? name_index_find(&x->index, base) : -1;
    if (at < 0) return true;
    const struct hf_mlx_layer *l = &x->layers[at];
    if (l->is_float) return false;
    if (l->bits != HF_ABSENT) *bits = l->bits;
    if (l->group_size != HF_ABSENT) *group = l->group_size;
    return true;
}

// The tensor base + suffix, of n rows of floats.
static enum tern_status part_get(struct model_source *s, struct str base, const char *suffix, int64_t n,
                                 const struct tensor **out, struct tern_err *err) {
    struct buf name;
    buf_init(&name, 2 * SAFETENSORS_NAME_MAX);
    buf_putf(&name, "%.*s%s", (int)base.len, base.data, suffix);
    const struct tensor *t = name.failed ? NULL : table_find(s, buf_str(&name));
    enum tern_status status = name.failed ? err_set(err, TERN_NO_MEMORY, "out of memory for a tensor's name") : TERN_OK;
    if (status == TERN_OK && !t)
        status =
            err_set(err, TERN_BAD_FORMAT, "tensor %.*s.weight holds codes, but there is no %s", SHOW(base), name.data);
    if (status == TERN_OK && (t->is_codes || t->n_dims != 2 || t->ne[1] != n))
        status = err_set(err, TERN_BAD_FORMAT, "tensor %s must be a matrix of floats with %lld rows, as %.*s.weight",
                         name.data, (long long)n, SHOW(base));
    buf_release(&name);
    *out = t;
    return status;
}

static enum tern_status format_get(struct str base, int64_t bits, int64_t group, enum format scales, enum format *out,
                                   struct tern_err *err) {
    if (format_from_mlx(bits, group, scales, out)) return TERN_OK;
    return err_set(
        err, TERN_UNSUPPORTED,
        "tensor %.*s.weight has codes of %lld bits in groups of %lld; 2, 3, 4, 5, 6 and 8 bits in groups of 32, 64 "
        "and 128 are supported: convert the model again with --q-bits 4 or 8 and --q-group-size 64",
        SHOW(base), (long long)bits, (long long)group);
}

// Makes one matrix of tensor number i, its scales and biases.
static enum tern_status codes_join(struct model_source *s, const struct hf_mlx *x, int i, struct tern_err *err) {
    struct tensor *t = &s->tensors[i];
    const struct tensor *scales, *biases;
    struct str base = t->name;
    int64_t bits, group;
    if (!str_ends(base, STR(".weight")) || t->n_dims != 2)
        return err_set(err, TERN_UNSUPPORTED,
                       "tensor %.*s holds 32-bit words, but is no matrix with a name that ends in .weight", SHOW(base));
    base.len -= STR(".weight").len;
    if (!layer_settings(x, base, &bits, &group))
        return err_set(err, TERN_BAD_FORMAT, "tensor %.*s.weight holds codes, but config.json says it is not quantised",
                       SHOW(base));
    TRY(part_get(s, base, ".scales", t->ne[1], &scales, err));
    TRY(part_get(s, base, ".biases", t->ne[1], &biases, err));
    TRY(format_get(base, bits, group, scales->format, &t->format, err));
    const int64_t n_words = t->ne[0], n_values = n_words * 32 / bits; // codes of 3, 5 and 6 bits go on in the next word
    if (biases->format != scales->format || biases->ne[0] != scales->ne[0])
        return err_set(err, TERN_BAD_FORMAT, "%.*s.scales and %.*s.biases differ in type or shape", SHOW(base),
                       SHOW(base));
    // Both counts are those of tensors that lie in the file, so the products stay far below 2^63.
    if (n_words * 32 % bits != 0 || n_values != scales->ne[0] * group)
        return err_set(err, TERN_BAD_FORMAT,
                       "tensor %.*s.weight has rows of %lld values of %lld bits, but scales for %lld groups of %lld",
                       SHOW(base), (long long)n_values, (long long)bits, (long long)scales->ne[0], (long long)group);
    struct tensor_parts *p;
    uint64_t row_bytes;
    TRY(source_alloc(s, &p, 1, sizeof(*p), err));
    t->ne[0] = n_values;
    if (!format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes)) TERN_BUG("a row of whole groups");
    *p = (struct tensor_parts){.codes = t->data,
                               .scales = scales->data,
                               .biases = biases->data,
                               .codes_row = (uint64_t)n_words * 4,
                               .scales_row = (uint64_t)scales->ne[0] * (uint64_t)format_table[scales->format].n_bytes};
    t->parts = p;
    t->data = NULL;
    t->n_bytes = row_bytes * (uint64_t)t->ne[1];
    t->is_codes = false;
    s->tensors[scales - s->tensors].is_part = true;
    s->tensors[biases - s->tensors].is_part = true;
    s->n_joined++;
    return TERN_OK;
}

enum tern_status hf_mlx_join(struct model_source *s, const struct hf_config *c, struct tern_err *err) {
    const struct hf_mlx *x = &c->mlx;
    if (x->mode.len && !str_eqz(x->mode, "affine"))
        return err_set(err, TERN_UNSUPPORTED,
                       "config.json: quantization mode %.*s is not supported (affine is): convert the model again with "
                       "--q-mode affine",
                       SHOW(x->mode));
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].is_codes) TRY(codes_join(s, x, i, err));
    return TERN_OK;
}

const struct tensor *codes_find(const struct model_source *s) {
    for (int i = 0; i < s->n_tensors; i++)
        if (s->tensors[i].is_codes) return &s->tensors[i];
    return NULL;
}

enum tern_status codes_refuse(const struct model_source *s, const char *why, struct tern_err *err) {
    const struct tensor *t = codes_find(s);
    if (!t) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "tensor %.*s has dtype U32, which is not supported%s", SHOW(t->name), why);
}

void model_tensor_read(const struct tensor *t, int64_t row, int64_t first, int64_t n, uint8_t *out) {
    const size_t n_block = (size_t)format_table[t->format].n_block, n_bytes = (size_t)format_table[t->format].n_bytes;
    const size_t at = (size_t)first / n_block, n_blocks = (size_t)n / n_block, r = (size_t)row;
    const struct tensor_parts *p = t->parts;
    if (!p) {
        uint64_t row_bytes = 0;
        format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes); // checked when the tensor was
        const size_t end = t->format == FORMAT_I8C && first + n == t->ne[0] ? sizeof(float) : 0;
        memcpy(out, t->data + r * (size_t)row_bytes + at * n_bytes, n_blocks * n_bytes + end);
        return;
    }
    const struct format_mlx m = format_mlx_get(t->format);
    const size_t scale_bytes = (size_t)m.scale_bytes, codes_bytes = n_bytes - 2 * scale_bytes;
    const uint8_t *codes = p->codes + r * p->codes_row + at * codes_bytes;
    const uint8_t *scales = p->scales + r * p->scales_row + at * scale_bytes;
    const uint8_t *biases = p->biases + r * p->scales_row + at * scale_bytes;
    for (size_t i = 0; i < n_blocks; i++, out += n_bytes) {
        memcpy(out, scales + i * scale_bytes, scale_bytes);
        memcpy(out + scale_bytes, biases + i * scale_bytes, scale_bytes);
        memcpy(out + 2 * scale_bytes, codes + i * codes_bytes, codes_bytes);
    }
}
