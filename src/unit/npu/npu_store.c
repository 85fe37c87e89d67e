// Constants of NPU programs, made from a model's tensors on first use and kept by name.
#include "base/base.h"
#include <stdio.h>
#include <math.h>
#include "op/op.h"
#include "unit/npu/npu_store.h"

#define WEIGHTS_FIRST 512

struct npu_store {
    const struct model *model;
    enum npu_format format;
    const struct npu_weight **list;
    int n, cap;
    uint64_t bytes;
    struct arena arena; // of names and small constants
    struct {
        void *data;
        size_t bytes;
    } * maps; // of matrices, [n_maps]
    int n_maps, maps_cap;
    void *(*sink)(void *arg, size_t bytes);
    void *sink_arg;
    bool (*source)(void *arg, const char *name, int64_t n_out, int64_t n_in, const void **data, const uint16_t **scale);
    void *source_arg;
    struct team *team;
    bool nibbles;
};

static const char *const format_names[NPU_FORMAT_COUNT] = {
    [NPU_FORMAT_I8] = "int8", [NPU_FORMAT_I4] = "int4", [NPU_FORMAT_F16] = "f16", [NPU_FORMAT_NONE] = "none"};

const char *npu_format_name(enum npu_format f) { return format_names[f]; }

enum tern_status npu_store_create(struct npu_store **out, const struct model *m, enum npu_format format,
                                  struct tern_err *err) {
    struct npu_store *s = mem_calloc(1, sizeof(*s));
    if (!s) return err_set(err, TERN_NO_MEMORY, "npu: no memory for a weight store");
    arena_init(&s->arena, 0);
    s->model = m;
    s->format = format;
    *out = s;
    return TERN_OK;
}

void npu_store_free(struct npu_store *s) {
    if (!s) return;
    for (int i = 0; i < s->n_maps; i++) mem_unmap(s->maps[i].data, s->maps[i].bytes);
    mem_free(s->maps);
    mem_free(s->list);
    arena_release(&s->arena);
    mem_free(s);
}

const struct model *npu_store_model(const struct npu_store *s) { return s->model; }
void npu_store_sink_set(struct npu_store *s, void *(*sink)(void *arg, size_t bytes), void *arg) {
    s->sink = sink;
    s->sink_arg = arg;
}
void npu_store_source_set(struct npu_store *s,
                          bool (*find)(void *arg, const char *name, int64_t n_out, int64_t n_in, const void **data,
                                       const uint16_t **scale),
                          void *arg) {
    s->source = find;
    s->source_arg = arg;
}
void npu_store_team_set(struct npu_store *s, struct team *team) { s->team = team; }
void npu_store_nibbles_set(struct npu_store *s) { s->nibbles = s->format == NPU_FORMAT_I4; }
uint64_t npu_store_bytes(const struct npu_store *s) { return s->bytes; }
int npu_store_count(const struct npu_store *s) { return s->n; }
const struct npu_weight *npu_store_get(const struct npu_store *s, int i) { return s->list[i]; }

// Floats of a constant that is no matrix, one copy for all evaluators.
static bool wide_make(struct npu_store *s, struct npu_weight *w, size_t n) {
    float *wide = arena_alloc(&s->arena, n * sizeof *wide);
    for (size_t i = 0; wide && i < n; i++) wide[i] = f16_to_f32(w->half[i]);
    w->wide = wide;
    return wide != NULL;
}

static const struct npu_weight *find(const struct npu_store *s, const char *name) {
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->list[i]->name, name)) return s->list[i];
    return NULL;
}

static enum tern_status no_memory(const char *name, struct tern_err *err) {
    return err_set(err, TERN_NO_MEMORY, "npu: no memory for the constant %s", name);
}

static bool grow(void **at, int n, int *cap, size_t size) {
    if (n < *cap) return true;
    int more = MAX(2 * *cap, WEIGHTS_FIRST);
    void *bigger = mem_realloc(*at, (size_t)more * size);
    if (!bigger) return false;
    *at = bigger;
    *cap = more;
    return true;
}

// A new entry under the name with a shape; the caller fills its values.
static struct npu_weight *entry_add(struct npu_store *s, const char *name, enum npu_weight_kind kind, int rank,
                                    const int32_t *shape) {
    void *list = (void *)s->list;
    struct npu_weight *w = arena_calloc(&s->arena, 1, sizeof(*w));
    char *kept = arena_dup(&s->arena, name, strlen(name));
    if (!w || !kept || !grow(&list, s->n, &s->cap, sizeof(*s->list))) return NULL;
    s->list = list;
    w->name = kept;
    w->kind = kind;
    w->rank = rank;
    for (int i = 0; i < NPU_RANK_MAX; i++) w->shape[i] = i < rank ? shape[i] : 1;
    s->list[s->n++] = w;
    return w;
}

// Zeroed memory of a matrix, page-wise: large and long-lived.
static void *matrix_alloc(struct npu_store *s, size_t bytes) {
    void *maps = (void *)s->maps;
    if (!grow(&maps, s->n_maps, &s->maps_cap, sizeof(*s->maps))) return NULL;
    s->maps = maps;
    if (s->sink) {
        s->bytes += bytes;
        return s->sink(s->sink_arg, bytes);
    }
    void *data = mem_map(bytes);
    if (!data) return NULL;
    s->maps[s->n_maps].data = data;
    s->maps[s->n_maps++].bytes = bytes;
    s->bytes += bytes;
    return data;
}

// Row i of a cut is this row of the tensor. Rows of one head: halves (0 … d/2, d/2 …) from pairs (0, 1), (2, 3) …
static int64_t source_row(const struct npu_cut *c, int64_t i) {
    if (c->unpair == 0) return c->row + i;
    int64_t d = c->unpair, head = i / d, j = i % d;
    return c->row + head * d + (j < d / 2 ? 2 * j : 2 * (j - d / 2) + 1);
}

#define ROUND_MAGIC 0x1.8p23f // adding and taking it away rounds half to even, below 2^22

static void row_quantise(const float *row, int64_t n, float levels, int8_t *q, uint16_t *scale) {
    float top[8] = {0};
    int64_t whole = n / 8 * 8;
    for (int64_t i = 0; i < whole; i += 8)
        for (int j = 0; j < 8; j++) top[j] = MAX(top[j], fabsf(row[i + j]));
    for (int64_t i = whole; i < n; i++) top[0] = MAX(top[0], fabsf(row[i]));
    for (int j = 1; j < 8; j++) top[0] = MAX(top[0], top[j]);
    *scale = f32_to_f16(top[0] / levels);
    float s = f16_to_f32(*scale);
    if (!(s > 0)) {
        memset(q, 0, (size_t)n);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float v = MIN(MAX(row[i] / s, -levels), levels);
        q[i] = (int8_t)(int)((v + ROUND_MAGIC) - ROUND_MAGIC);
    }
}

// Rows of one matrix, shared out among the team's members.
struct rows_job {
    const struct tensor *t;
    const struct npu_cut *cut;
    int64_t n_in, n_out;
    float levels;
    int8_t *q;      // or NULL: half is the result
    uint16_t *half; // scales, or values
    uint8_t *bytes; // [members][row_bytes]
    float *rows;    // [members][n_in]
    size_t row_bytes;
};

static void rows_member(void *arg, const struct team_member *self) {
    const struct rows_job *j = arg;
    int begin, end;
    uint8_t *bytes = j->bytes + (size_t)self->index * j->row_bytes;
    float *row = j->rows + (size_t)self->index * (size_t)j->n_in;
    team_share(self, (int)j->n_out, 16, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        model_tensor_read(j->t, source_row(j->cut, i), 0, j->n_in, bytes);
        op_dequant_row(j->t->format, bytes, j->n_in, row);
        for (int64_t k = 0; j->cut->factor != 0 && k < j->n_in; k++) row[k] *= j->cut->factor;
        if (j->q)
            row_quantise(row, j->n_in, j->levels, j->q + i * j->n_in, &j->half[i]);
        else
            for (int64_t k = 0; k < j->n_in; k++) j->half[i * j->n_in + k] = f32_to_f16(row[k]);
    }
}

static bool nibbles_make(struct npu_store *s, struct npu_weight *w, size_t cells) {
    if (!s->nibbles) return true;
    uint8_t *to = matrix_alloc(s, (cells + 1) / 2);
    for (size_t i = 0; to && i < cells; i++) to[i / 2] |= (uint8_t)((w->q[i] & 15) << (i % 2 * 4));
    w->nibbles = to;
    return to != NULL;
}

enum tern_status npu_store_matrix(struct npu_store *s, const char *name, const struct tensor *t, struct npu_cut cut,
                                  const struct npu_weight **out, struct tern_err *err) {
    *out = find(s, name);
    if (*out) return TERN_OK;
    int64_t n_in = t->ne[0], n_out = cut.n_rows > 0 ? cut.n_rows : t->ne[1];
    if (t->n_dims > 2 || cut.row + n_out > t->ne[1] || n_in > NPU_CHANNELS_MAX || n_out > NPU_CHANNELS_MAX)
        return err_set(err, TERN_UNSUPPORTED, "npu: %s is a matrix of %lld by %lld; the engine has at most %d channels",
                       name, (long long)n_out, (long long)n_in, NPU_CHANNELS_MAX);
    const void *data = NULL;
    const uint16_t *scale = NULL;
    bool is_packed = s->source && s->source(s->source_arg, name, n_out, n_in, &data, &scale);
    if (s->format != NPU_FORMAT_NONE && !is_packed && !tensor_has_data(t))
        return err_set(err, TERN_UNSUPPORTED, "npu: the values of %s are not in memory any more", name);
    const int32_t shape[] = {(int32_t)n_out, (int32_t)n_in, 1, 1};
    bool quantised = s->format != NPU_FORMAT_F16;
    uint64_t row_bytes = 0;
    if (!format_row_bytes(t->format, (uint64_t)n_in, &row_bytes))
        return err_set(err, TERN_UNSUPPORTED, "npu: rows of %lld values of %s", (long long)n_in, name);
    struct npu_weight *w = entry_add(s, name, quantised ? NPU_WEIGHT_I8 : NPU_WEIGHT_F16, 4, shape);
    if (!w) return no_memory(name, err);
    if (is_packed) {
        w->q = quantised ? data : NULL;
        w->scale = quantised ? scale : NULL;
        w->half = quantised ? NULL : data;
        s->bytes += (uint64_t)n_in * (uint64_t)n_out * (quantised ? 1 : 2);
    }
    size_t cells = (size_t)n_in * (size_t)n_out; // both at most NPU_CHANNELS_MAX
    if (is_packed && !nibbles_make(s, w, cells)) {
        s->n--; // the entry without values
        return no_memory(name, err);
    }
    if (is_packed || s->format == NPU_FORMAT_NONE) {
        *out = w;
        return TERN_OK;
    }
    int8_t *q = quantised ? matrix_alloc(s, cells) : NULL;
    uint16_t *half = quantised ? arena_calloc(&s->arena, (size_t)n_out, 2) : matrix_alloc(s, cells * 2);
    size_t n_members = s->team ? (size_t)team_size(s->team) : 1;
    uint8_t *bytes = mem_calloc(n_members, (size_t)row_bytes);
    float *rows = mem_calloc(n_members, (size_t)n_in * sizeof(float));
    bool fits = half && bytes && rows && (q || !quantised);
    struct rows_job job = {.t = t,
                           .cut = &cut,
                           .n_in = n_in,
                           .n_out = n_out,
                           .levels = s->format == NPU_FORMAT_I4 ? 7 : 127,
                           .q = q,
                           .half = half,
                           .bytes = bytes,
                           .rows = rows,
                           .row_bytes = (size_t)row_bytes};
    if (fits && s->team)
        team_run(s->team, rows_member, &job);
    else if (fits)
        rows_member(&job, &(struct team_member){.n = 1});
    mem_free(bytes);
    mem_free(rows);
    w->q = q;
    w->scale = quantised ? half : NULL;
    w->half = quantised ? NULL : half;
    if (!fits || !nibbles_make(s, w, cells)) {
        s->n--; // the entry without values
        return no_memory(name, err);
    }
    *out = w;
    return TERN_OK;
}

enum tern_status npu_store_vector(struct npu_store *s, const char *name, const struct tensor *t, int column,
                                  float factor, int unpair, const struct npu_weight **out, struct tern_err *err) {
    *out = find(s, name);
    if (*out) return TERN_OK;
    int64_t cols = column >= 0 ? t->ne[0] : 1, n = column >= 0 ? t->ne[1] : t->ne[0];
    uint64_t row_bytes = 0;
    if (column >= cols || n > NPU_CHANNELS_MAX || !format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes))
        return err_set(err, TERN_UNSUPPORTED, "npu: %s has a shape that no program uses", name);
    const int32_t shape[] = {1, (int32_t)n, 1, 1};
    struct npu_weight *w = entry_add(s, name, NPU_WEIGHT_F16, 4, shape);
    if (!w) return no_memory(name, err);
    uint16_t *half = arena_calloc(&s->arena, (size_t)n, 2);
    if (half && s->format == NPU_FORMAT_NONE) {
        w->half = half;
        *out = w;
        return TERN_OK;
    }
    uint8_t *bytes = mem_alloc((size_t)row_bytes);
    float *row = mem_alloc((size_t)t->ne[0] * sizeof(float));
    struct npu_cut cut = {.unpair = unpair};
    bool fits = half && bytes && row;
    for (int64_t i = 0; fits && i < n; i++) {
        if (column >= 0 || i == 0) {
            model_tensor_read(t, column >= 0 ? i : 0, 0, t->ne[0], bytes);
            op_dequant_row(t->format, bytes, t->ne[0], row);
        }
        float v = row[column >= 0 ? column : source_row(&cut, i)];
        half[i] = f32_to_f16(factor != 0 ? v * factor : v);
    }
    mem_free(bytes);
    mem_free(row);
    w->half = half;
    if (!fits || !wide_make(s, w, (size_t)n)) {
        s->n--; // the entry without values
        return no_memory(name, err);
    }
    *out = w;
    return TERN_OK;
}

enum tern_status npu_store_values(struct npu_store *s, const char *name, int rank, const int32_t *shape,
                                  const float *values, const int8_t *q, const struct npu_weight **out,
                                  struct tern_err *err) {
    *out = find(s, name);
    if (*out) return TERN_OK;
    size_t n = 1, rows = (size_t)shape[0];
    for (int i = 0; i < rank; i++) n *= (size_t)shape[i];
    struct npu_weight *w = entry_add(s, name, q ? NPU_WEIGHT_I8 : NPU_WEIGHT_F16, rank, shape);
    uint16_t *half = w ? arena_calloc(&s->arena, q ? rows : n, 2) : NULL;
    int8_t *codes = w && q ? arena_dup(&s->arena, q, n) : NULL;
    if (!half || (q && !codes)) {
        if (w) s->n--;
        return no_memory(name, err);
    }
    for (size_t i = 0; i < (q ? rows : n); i++) half[i] = f32_to_f16(values[i]);
    w->q = codes;
    w->scale = q ? half : NULL;
    w->half = q ? NULL : half;
    *out = w;
    return TERN_OK;
}

enum tern_status npu_store_scalar(struct npu_store *s, float value, const struct npu_weight **out,
                                  struct tern_err *err) {
    char name[NPU_NAME_MAX];
    const int32_t shape[] = {1, 1, 1, 1};
    (void)snprintf(name, sizeof(name), "scalar.%04x", (unsigned)f32_to_f16(value));
    return npu_store_values(s, name, 4, shape, &value, NULL, out, err);
}
