// A model's weights on the cpu unit: which tensors are needed and in what form, packing them with the team's threads,
// and finding them again by tensor.
//
// All matrices lie in one block in the order of the file, so the source is read once, front to back, and each tensor's
// pages are given up once packed: memory peaks at the pack plus the largest tensor. The block is what the pack cache
// keeps. A cached one is read into huge pages too, by all threads: from the mapped file, whose pages are small, a step
// reads 4 to 8 % slower (350M and 1.2B, Q4_0 and Q8_0, 2 threads of a Xeon, Sapphire Rapids, 2026-11), and reading
// 0.7 GB takes 0.1 s. It stays mapped where memory is short. Vectors are small and always made anew. The embedding's
// rows are read from the source by each step, so its pages stay; where it is also the output matrix it is packed as
// well.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"
#include <stdlib.h>

#define PACK_PIECE ((uint64_t)32 << 20) // bytes of source between two reports of progress
#define PACK_READ_PART 2                // a cached pack is read when this many of it are free as memory, else mapped
#define PACK_READ_PIECE ((size_t)4 << 20)
#define WEIGHTS_PER_LAYER 16 // without experts
#define WEIGHTS_OF_MODEL 5   // that belong to no layer

enum need { NEED_MATRIX, NEED_ROUTER, NEED_VECTOR, NEED_TAPS };

static void need(struct unit_weights *w, const struct tensor *t, enum need kind) {
    if (!t || (w->shared && cpu_weight_find(w->shared, t))) return;
    struct cpu_weight *e = &w->list[w->n++];
    *e = (struct cpu_weight){.tensor = t, .is_taps = kind == NEED_TAPS};
    if (kind != NEED_MATRIX && kind != NEED_ROUTER) return;
    enum prog_class numerics = kind == NEED_ROUTER ? PROG_CLASS_FP32 : w->numerics; // op.h: routers are of that class
    e->matrix = (struct cpu_matrix){.pack = cpu_pack_for(t->format, numerics),
                                    .bf16_scales = cpu_pack_bf16_scales(t->format),
                                    .n_out = (int)t->ne[1],
                                    .n_in = (int)t->ne[0],
                                    .n_tiles = int_div_up((int)t->ne[1], CPU_TILE)};
}

static int by_tensor(const void *a, const void *b) {
    const struct cpu_weight *x = a, *y = b;
    uintptr_t i = (uintptr_t)x->tensor, j = (uintptr_t)y->tensor;
    return (i > j) - (i < j);
}

static enum tern_status collect(struct unit_weights *w, struct tern_err *err) {
    const struct model *m = w->model;
    size_t per_layer = WEIGHTS_PER_LAYER + 3 * (size_t)m->hyper.n_expert;
    size_t cap = (size_t)m->hyper.n_layers * per_layer + WEIGHTS_OF_MODEL;
    w->list = arena_calloc(&w->arena, cap, sizeof *w->list);
    if (!w->list) return err_set(err, TERN_NO_MEMORY, "weights: no memory for a list of %zu", cap);
    for (int i = 0; i < m->hyper.n_layers; i++) {
        const struct model_layer *l = &m->layers[i];
        const struct tensor *matrices[] = {l->q,        l->k,        l->v,      l->o,       l->conv_in,
                                           l->conv_out, l->ffn_gate, l->ffn_up, l->ffn_down};
        const struct tensor *vectors[] = {l->attn_norm, l->attn_post_norm, l->q_norm,
                                          l->k_norm,    l->ffn_norm,       l->ffn_post_norm};
        for (size_t j = 0; j < ARRAY_LEN(matrices); j++) need(w, matrices[j], NEED_MATRIX);
        for (size_t j = 0; j < ARRAY_LEN(vectors); j++) need(w, vectors[j], NEED_VECTOR);
        need(w, l->conv_taps, NEED_TAPS);
        need(w, l->router, NEED_ROUTER);
        need(w, l->router_bias, NEED_VECTOR);
        for (int e = 0; l->experts && e < m->hyper.n_expert; e++) {
            need(w, l->experts[e].gate, NEED_MATRIX);
            need(w, l->experts[e].up, NEED_MATRIX);
            need(w, l->experts[e].down, NEED_MATRIX);
        }
    }
    need(w, m->output_norm, NEED_VECTOR);
    need(w, m->output, NEED_MATRIX);
    if (m->drafter) { // w1 and the confidence head are read row by row, by whoever drafts
        need(w, m->drafter->fc, NEED_MATRIX);
        need(w, m->drafter->hidden_norm, NEED_VECTOR);
        need(w, m->drafter->markov_w2, NEED_MATRIX);
    }
    if (w->n > 0) qsort(w->list, (size_t)w->n, sizeof *w->list, by_tensor);
    int n = 0; // a tensor used twice is kept once
    for (int i = 0; i < w->n; i++)
        if (n == 0 || w->list[n - 1].tensor != w->list[i].tensor) w->list[n++] = w->list[i];
    w->n = n;
    return TERN_OK;
}

const struct cpu_weight *cpu_weight_find(const struct unit_weights *w, const struct tensor *t) {
    struct cpu_weight key = {.tensor = t};
    const struct cpu_weight *e = NULL;
    if (w->n > 0) e = bsearch(&key, w->list, (size_t)w->n, sizeof *w->list, by_tensor);
    return e || !w->shared ? e : cpu_weight_find(w->shared, t);
}

// Offsets of the matrices and the size of the block.
static enum tern_status plan(struct unit_weights *w, uint64_t *source_bytes, struct tern_err *err) {
    uint64_t total = 0;
    *source_bytes = 0;
    for (int i = 0; i < w->n; i++) {
        struct cpu_weight *e = &w->list[i];
        struct cpu_matrix *m = &e->matrix;
        if (m->n_tiles == 0) continue;
        uint64_t bytes;
        if (!cpu_pack_tile_bytes(m->pack, m->n_in, &m->tile_bytes) ||
            !u64_mul(m->tile_bytes, (uint64_t)m->n_tiles, &bytes) || !u64_add(bytes, CPU_ALIGN - 1, &bytes))
            return err_set(err, TERN_LIMIT, "weights: tensor '%.*s' is too large to pack", (int)e->tensor->name.len,
                           e->tensor->name.data);
        e->offset = total;
        if (!u64_add(total, bytes & ~(uint64_t)(CPU_ALIGN - 1), &total) || total > PTRDIFF_MAX)
            return err_set(err, TERN_LIMIT, "weights: the packed model does not fit the address space");
        *source_bytes += e->tensor->n_bytes;
    }
    w->pack_bytes = (size_t)total;
    return TERN_OK;
}

static enum tern_status vectors_make(struct unit_weights *w, struct tern_err *err) {
    for (int i = 0; i < w->n; i++) {
        struct cpu_weight *e = &w->list[i];
        const struct tensor *t = e->tensor;
        if (e->matrix.n_tiles > 0) continue;
        if (!t->data)
            return err_set(err, TERN_INVALID_ARGUMENT, "weights: tensor '%.*s' was given up; open the model anew",
                           (int)t->name.len, t->name.data);
        int64_t len = t->ne[0], n = t->ne[1]; // taps: [n][len]; a norm: one row
        float *v = arena_calloc(&w->arena, (size_t)(len * n), sizeof(float));
        float *row = arena_calloc(&w->arena, (size_t)len, sizeof(float));
        if (!v || !row) return err_set(err, TERN_NO_MEMORY, "weights: no memory for %lld floats", (long long)(len * n));
        uint64_t row_bytes;
        if (!format_row_bytes(t->format, (uint64_t)len, &row_bytes))
            return err_set(err, TERN_LIMIT, "weights: a row of %lld values", (long long)len);
        for (int64_t r = 0; r < n; r++) {
            op_dequant_row(t->format, t->data + (uint64_t)r * row_bytes, len, row);
            for (int64_t j = 0; j < len; j++) v[e->is_taps ? j * n + r : r * len + j] = row[j];
        }
        e->vector = v;
    }
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------- packing

struct pack_job {
    const struct cpu_weight *e;
    uint8_t *dst;     // of the matrix
    size_t row_bytes; // of the source
    int begin, end;   // tiles of this piece
    void **scratch;   // [n_threads]
};

// Outputs [first, first + CPU_TILE). Rows in parts are put together behind the scratch of the packing.
static void tile_pack(const struct pack_job *j, int64_t first, uint8_t *tile, void *scratch) {
    const struct tensor *t = j->e->tensor;
    const struct cpu_matrix *m = &j->e->matrix;
    if (!t->parts) {
        cpu_pack_tile(m->pack, t->format, t->data, j->row_bytes, m->n_out, m->n_in, first, tile, scratch);
        return;
    }
    uint8_t *rows = (uint8_t *)scratch + cpu_pack_scratch_bytes(m->n_in);
    const int64_t n = MIN(m->n_out - first, (int64_t)CPU_TILE);
    for (int64_t i = 0; i < n; i++) model_tensor_read(t, first + i, 0, m->n_in, rows + (size_t)i * j->row_bytes);
    cpu_pack_tile(m->pack, t->format, rows, j->row_bytes, n, m->n_in, 0, tile, scratch);
}

static void pack_member(void *arg, const struct team_member *self) {
    const struct pack_job *j = arg;
    const struct cpu_matrix *m = &j->e->matrix;
    int begin, end;
    team_share(self, j->end - j->begin, 1, &begin, &end);
    for (int i = j->begin + begin; i < j->begin + end; i++)
        tile_pack(j, (int64_t)i * CPU_TILE, j->dst + (size_t)i * m->tile_bytes, j->scratch[self->index]);
}

struct progress_state {
    const struct weights_options *o;
    uint64_t done, total;
};

static enum tern_status report(struct progress_state *p, uint64_t bytes, struct tern_err *err) {
    p->done += bytes;
    if (!p->o->on_progress || p->o->on_progress(p->o->on_progress_arg, p->done, p->total)) return TERN_OK;
    return err_set(err, TERN_CANCELLED, "packing the weights was cancelled");
}

// A model made by hand has no source; a drafter borrows tensors of its target; embedding rows are read on.
static bool may_drop(const struct model *m, const struct tensor *t) {
    uintptr_t first = (uintptr_t)m->tensors, at = (uintptr_t)t;
    bool own = at >= first && at < first + (size_t)m->n_tensors * sizeof *t;
    return m->source && (own || t->whole) && t != m->embedding;
}

static enum tern_status pack_matrix_make(struct unit_weights *w, struct cpu_weight *e, void **scratch,
                                         struct progress_state *p, struct tern_err *err) {
    const struct tensor *t = e->tensor;
    uint64_t row_bytes;
    if (!tensor_has_data(t))
        return err_set(err, TERN_INVALID_ARGUMENT, "weights: tensor '%.*s' was given up; open the model anew",
                       (int)t->name.len, t->name.data);
    if (!format_row_bytes(t->format, (uint64_t)e->matrix.n_in, &row_bytes))
        return err_set(err, TERN_LIMIT, "weights: a row of %d values", e->matrix.n_in);
    struct pack_job job = {.e = e, .dst = w->pack + e->offset, .row_bytes = (size_t)row_bytes, .scratch = scratch};
    uint64_t tile_source = row_bytes * CPU_TILE, left = t->n_bytes;
    int step = (int)MAX(PACK_PIECE / tile_source, 1);
    for (job.begin = 0; job.begin < e->matrix.n_tiles; job.begin = job.end) {
        job.end = MIN(job.begin + step, e->matrix.n_tiles);
        team_run(w->unit->team, pack_member, &job);
        uint64_t bytes = MIN((uint64_t)(job.end - job.begin) * tile_source, left);
        left -= bytes;
        TRY(report(p, bytes, err));
    }
    if (may_drop(w->model, t)) model_tensor_drop(w->model, t);
    return TERN_OK;
}

static size_t scratch_need(const struct cpu_weight *e) {
    uint64_t rows = 0;
    if (e->tensor->parts && format_row_bytes(e->tensor->format, (uint64_t)e->matrix.n_in, &rows)) rows *= CPU_TILE;
    return cpu_pack_scratch_bytes(e->matrix.n_in) + (size_t)rows;
}

static enum tern_status pack_all(struct unit_weights *w, const struct weights_options *o, uint64_t source_bytes,
                                 struct tern_err *err) {
    w->pack = mem_map(MAX(w->pack_bytes, 1));
    if (!w->pack) {
        char text[24];
        return err_set(err, TERN_NO_MEMORY, "weights: no memory for the packed model (%s)",
                       bytes_format(w->pack_bytes, text));
    }
    size_t scratch_bytes = 1;
    for (int i = 0; i < w->n; i++)
        if (w->list[i].matrix.n_tiles > 0) scratch_bytes = MAX(scratch_bytes, scratch_need(&w->list[i]));
    struct arena a;
    arena_init(&a, 0);
    enum tern_status status = TERN_OK;
    void *scratch[TEAM_THREADS_MAX];
    for (int i = 0; i < w->unit->n_threads; i++) {
        scratch[i] = arena_alloc(&a, scratch_bytes);
        if (!scratch[i]) {
            status = err_set(err, TERN_NO_MEMORY, "weights: no memory to pack with");
            goto done;
        }
    }
    struct progress_state progress = {.o = o, .total = source_bytes};
    for (int i = 0; i < w->n; i++)
        if (w->list[i].matrix.n_tiles > 0) TRY_GOTO(pack_matrix_make(w, &w->list[i], scratch, &progress, err), done);
done:
    arena_release(&a);
    return status;
}

// ---------------------------------------------------------------------------------------------------------- the cache

static enum tern_status table_make(struct unit_weights *w, struct pack_wanted *wanted, struct tern_err *err) {
    struct pack_matrix *table = arena_calloc(&w->arena, (size_t)w->n + 1, sizeof *table);
    if (!table) return err_set(err, TERN_NO_MEMORY, "weights: no memory for the table of the pack");
    uint32_t n = 0;
    for (int i = 0; i < w->n; i++) {
        const struct cpu_weight *e = &w->list[i];
        const struct cpu_matrix *m = &e->matrix;
        if (m->n_tiles == 0) continue;
        struct pack_matrix *p = &table[n++];
        memcpy(p->name, e->tensor->name.data, MIN(e->tensor->name.len, sizeof p->name - 1));
        p->pack = (uint32_t)m->pack;
        p->format = (uint32_t)e->tensor->format;
        p->n_out = m->n_out;
        p->n_in = m->n_in;
        p->tile_bytes = m->tile_bytes;
        p->n_tiles = (uint64_t)m->n_tiles;
        p->offset = e->offset;
    }
    *wanted = (struct pack_wanted){.model_digest = w->model->digest,
                                   .model_name = w->model->name,
                                   .layout = PACK_LAYOUT_CPU,
                                   .numerics = (uint32_t)w->numerics,
                                   .table = table,
                                   .n_matrices = n,
                                   .payload_bytes = w->pack_bytes};
    return TERN_OK;
}

_Static_assert(PACK_LAYOUT_CPU == CPU_PACK_VERSION, "pack_cache.h knows the version of the cpu unit's layouts");

struct read_job {
    const struct os_map *file;
    size_t offset, bytes; // of the payload
    uint8_t *to;
    _Atomic size_t at; // next piece
    _Atomic int failed;
};

static void read_member(void *arg, const struct team_member *self) {
    (void)self;
    struct read_job *j = arg;
    while (!atomic_load(&j->failed)) {
        size_t at = atomic_fetch_add(&j->at, PACK_READ_PIECE);
        if (at >= j->bytes) return;
        if (map_read(j->file, j->offset + at, j->to + at, MIN(j->bytes - at, PACK_READ_PIECE), NULL) != TERN_OK)
            atomic_store(&j->failed, 1);
    }
}

// The cached pack into memory of our own; what cannot be read so stays mapped, and a page that is broken shows then.
static const uint8_t *cached_read(struct unit_weights *w, const uint8_t *payload) {
    if (os_ram_available() / PACK_READ_PART < w->pack_bytes) return payload;
    struct read_job j = {.file = &w->cached, .offset = (size_t)(payload - w->cached.data), .bytes = w->pack_bytes};
    j.to = w->pack = mem_map(w->pack_bytes);
    if (!w->pack) return payload;
    team_run(w->unit->team, read_member, &j);
    if (atomic_load(&j.failed)) {
        mem_unmap(w->pack, w->pack_bytes);
        w->pack = NULL;
        return payload;
    }
    map_close(&w->cached);
    return w->pack;
}

static enum tern_status pack_give(void *arg, struct pack_sink *sink, struct tern_err *err) {
    const struct unit_weights *w = arg;
    return pack_put(sink, w->pack, w->pack_bytes, err);
}

static enum tern_status matrices_make(struct unit_weights *w, const struct weights_options *o,
                                      struct weights_info *info, struct tern_err *err) {
    uint64_t source_bytes;
    TRY(plan(w, &source_bytes, err));
    struct pack_wanted wanted;
    const uint8_t *payload = NULL;
    bool use_cache = o->pack_cache && w->pack_bytes > 0;
    if (use_cache) TRY(table_make(w, &wanted, err));
    if (use_cache) info->from_cache = pack_cache_load(&wanted, &w->cached, &payload, w->cache_note);
    if (info->from_cache) {
        payload = cached_read(w, payload);
    } else {
        TRY(pack_all(w, o, source_bytes, err));
        payload = w->pack;
        char note[PACK_NOTE_MAX];
        if (use_cache && !pack_cache_store(&wanted, pack_give, w, note)) memcpy(w->cache_note, note, sizeof note);
    }
    for (int i = 0; i < w->n; i++)
        if (w->list[i].matrix.n_tiles > 0) w->list[i].matrix.data = payload + w->list[i].offset;
    info->bytes = w->pack_bytes + w->arena.bytes_total;
    info->cache_note = w->cache_note[0] ? w->cache_note : NULL;
    return TERN_OK;
}

enum tern_status cpu_weights_import(struct unit *u, struct unit_weights **out, const struct model *m,
                                    const struct weights_options *o, struct weights_info *info, struct tern_err *err) {
    static const struct weights_options defaults = {.numerics = PROG_CLASS_INT8};
    struct weights_info unused;
    if (!o) o = &defaults;
    if (!info) info = &unused;
    *info = (struct weights_info){0};
    if ((unsigned)o->numerics >= PROG_CLASS_COUNT)
        return err_set(err, TERN_INVALID_ARGUMENT, "weights: unknown numerics class %d", (int)o->numerics);
    if (o->shared && (o->shared->unit != u || o->shared->numerics != o->numerics))
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "weights of %s: the weights to share are of another unit or numerics class", m->name);
    struct unit_weights *w = mem_calloc(1, sizeof *w);
    if (!w) return err_set(err, TERN_NO_MEMORY, "weights: no memory");
    w->shared = o->shared;
    w->unit = u;
    w->model = m;
    w->numerics = o->numerics;
    arena_init(&w->arena, 0);
    u->host.n_alive++;
    enum tern_status status;
    TRY_GOTO(collect(w, err), fail);
    TRY_GOTO(vectors_make(w, err), fail);
    TRY_GOTO(matrices_make(w, o, info, err), fail);
    *out = w;
    return TERN_OK;
fail:
    cpu_weights_free(u, w);
    return status;
}

void cpu_weights_free(struct unit *u, struct unit_weights *w) {
    if (!w) return;
    if (w->cached.data) map_close(&w->cached);
    mem_unmap(w->pack, MAX(w->pack_bytes, 1));
    arena_release(&w->arena);
    mem_free(w);
    u->host.n_alive--;
}
