// The npu unit's packed weights: which matrices a pack holds, making one, and a store over it.
//
// A matrix is its int8 rows, then the fp16 scales of its rows, or its fp16 rows alone; each part from a multiple of 64
// bytes on. Matrices stand in the order in which lowering asks for them, which a store without values tells before any
// is made. Making a pack holds one matrix at a time. Norms, taps and scalars are not in it: they are read anew from the
// model, a few hundred kilobytes.
#include "base/base.h"
#include "unit/npu/npu_pack.h"

#define WEIGHT_ALIGN 64

static uint64_t align_up(uint64_t n) { return (n + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN; }
static bool is_matrix(const struct npu_weight *w) { return w->rank == 4 && w->shape[0] > 1 && w->shape[1] > 1; }

enum tern_status npu_constants_make(struct npu_store *s, const struct npu_scales *scales, struct tern_err *err) {
    const struct model *m = npu_store_model(s);
    enum prog_kind kinds[2] = {PROG_WHOLE};
    int n = 1;
    if (m->drafter) {
        kinds[0] = PROG_INJECT;
        kinds[n++] = PROG_DRAFT;
    } else if (m->hyper.bidirectional) {
        kinds[0] = PROG_ENCODER;
    }
    for (int i = 0; i < n; i++) {
        bool head = kinds[i] == PROG_WHOLE || kinds[i] == PROG_DRAFT;
        struct prog_spec spec = {.kind = kinds[i],
                                 .kv_type = OP_KV_F16,
                                 .window = NPU_BLOCK,
                                 .n_out_max = head ? -1 : 0,
                                 .outputs = head ? PROG_OUT_LOGITS : 0};
        struct npu_lower_options o = {.name = "constants",
                                      .window = NPU_BLOCK,
                                      .bucket = NPU_BLOCK,
                                      .n_chunks = 1,
                                      .n_frames = 2 * NPU_BLOCK,
                                      .scales = scales};
        struct prog *p = NULL;
        struct npu_list *l = NULL;
        TRY(prog_build(&p, m, &spec, err));
        enum tern_status status = npu_lower(&l, p, s, &o, err);
        npu_list_free(l);
        prog_free(p);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

// ----------------------------------------------------------------------------------------------------------- the table

static uint64_t scales_hash(const struct npu_scales *s) {
    struct sha256 sha;
    uint8_t digest[32];
    bool any = s && s->residual != 0;
    if (!s) return 0;
    sha256_init(&sha);
    sha256_update(&sha, &s->residual, sizeof s->residual);
    const int8_t *const lists[] = {s->ffn, s->conv, s->value, s->key};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++)
        for (int l = 0; lists[i] && l < s->n_layers; l++) {
            any = any || lists[i][l] != 0;
            sha256_update(&sha, &lists[i][l], 1);
        }
    sha256_final(&sha, digest);
    return any ? load_u64(digest) : 0;
}

static void table_fill(struct npu_pack *p, const struct npu_store *shapes, struct pack_matrix *table) {
    uint64_t at = 0;
    uint32_t n = 0;
    for (int i = 0; i < npu_store_count(shapes); i++) {
        const struct npu_weight *w = npu_store_get(shapes, i);
        if (!is_matrix(w)) continue;
        struct pack_matrix *m = &table[n++];
        bool half = p->format == NPU_FORMAT_F16;
        uint64_t cells = (uint64_t)w->shape[0] * (uint64_t)w->shape[1]; // each at most NPU_CHANNELS_MAX
        memcpy(m->name, w->name, MIN(strlen(w->name), sizeof m->name - 1));
        m->pack = (uint32_t)p->format;
        m->format = half ? NPU_WEIGHT_F16 : NPU_WEIGHT_I8;
        m->n_out = w->shape[0];
        m->n_in = w->shape[1];
        m->tile_bytes = align_up(cells * (half ? 2 : 1));
        m->n_tiles = 1;
        m->offset = at;
        at += m->tile_bytes + (half ? 0 : align_up((uint64_t)w->shape[0] * 2));
    }
    p->wanted = (struct pack_wanted){.model_digest = p->model->digest,
                                     .model_name = p->model->name,
                                     .layout = PACK_LAYOUT_NPU,
                                     .numerics = (uint32_t)p->format,
                                     .variant = scales_hash(p->scales),
                                     .table = table,
                                     .n_matrices = n,
                                     .payload_bytes = at};
}

enum tern_status npu_pack_init(struct npu_pack *p, const struct model *m, enum npu_format format,
                               const struct npu_scales *scales, struct tern_err *err) {
    struct npu_store *shapes = NULL;
    *p = (struct npu_pack){.model = m, .format = format, .scales = scales, .map = {.fd = -1}};
    arena_init(&p->arena, 0);
    TRY(npu_store_create(&shapes, m, NPU_FORMAT_NONE, err));
    enum tern_status status = npu_constants_make(shapes, scales, err);
    if (status == TERN_OK) {
        struct pack_matrix *table = arena_calloc(&p->arena, (size_t)npu_store_count(shapes) + 1, sizeof *table);
        if (table)
            table_fill(p, shapes, table);
        else
            status = err_set(err, TERN_NO_MEMORY, "npu: no memory for the table of the pack");
    }
    npu_store_free(shapes);
    return status;
}

void npu_pack_release(struct npu_pack *p) {
    if (p->map.data) map_close(&p->map);
    p->map.data = NULL;
    arena_release(&p->arena);
}

// -------------------------------------------------------------------------------------------------------------- making

struct maker {
    struct npu_store *store;
    struct pack_sink *sink;
    void *matrix; // the one being made
    size_t cap;
    int pending; // its number in the store; -1: none
    enum tern_status status;
    struct tern_err err; // the store itself says only that it has no memory
};

static enum tern_status part_put(struct maker *k, const void *data, uint64_t bytes) {
    static const uint8_t zeros[WEIGHT_ALIGN];
    TRY(pack_put(k->sink, data, (size_t)bytes, &k->err));
    return pack_put(k->sink, zeros, (size_t)(align_up(bytes) - bytes), &k->err);
}

static enum tern_status matrix_flush(struct maker *k) {
    if (k->pending < 0) return TERN_OK;
    const struct npu_weight *w = npu_store_get(k->store, k->pending);
    uint64_t rows = (uint64_t)w->shape[0], cells = rows * (uint64_t)w->shape[1];
    k->pending = -1;
    if (w->kind == NPU_WEIGHT_F16) return part_put(k, w->half, cells * 2);
    TRY(part_put(k, w->q, cells));
    return part_put(k, w->scale, rows * 2);
}

static void *matrix_next(void *arg, size_t bytes) {
    struct maker *k = arg;
    if (k->status == TERN_OK) k->status = matrix_flush(k);
    if (k->status != TERN_OK) return NULL;
    if (bytes > k->cap) {
        if (k->matrix) mem_unmap(k->matrix, k->cap);
        k->matrix = mem_map(bytes);
        k->cap = k->matrix ? bytes : 0;
    }
    k->pending = k->matrix ? npu_store_count(k->store) - 1 : -1;
    return k->matrix;
}

static enum tern_status pack_make(void *arg, struct pack_sink *sink, struct tern_err *err) {
    const struct npu_pack *p = arg;
    struct maker k = {.sink = sink, .pending = -1};
    TRY(npu_store_create(&k.store, p->model, p->format, err));
    npu_store_sink_set(k.store, matrix_next, &k);
    npu_store_team_set(k.store, p->team);
    enum tern_status status = npu_constants_make(k.store, p->scales, err);
    if (status == TERN_OK) status = k.status = matrix_flush(&k);
    if (k.status != TERN_OK && err) *err = k.err;
    if (k.matrix) mem_unmap(k.matrix, k.cap);
    npu_store_free(k.store);
    // A file's pages come back when a step reads them; a made model (it has no vocabulary) would be gone.
    for (int i = 0; p->model->vocab.n_tokens > 0 && i < p->model->n_tensors; i++)
        model_tensor_drop(p->model, &p->model->tensors[i]);
    return k.status != TERN_OK ? k.status : status;
}

bool npu_pack_from_cache(struct npu_pack *p, bool *made, char note[PACK_NOTE_MAX]) {
    *made = false;
    if (pack_cache_load(&p->wanted, &p->map, &p->payload, note)) return true;
    char why[PACK_NOTE_MAX];
    p->map.data = NULL;
    if (!pack_cache_store(&p->wanted, pack_make, p, why)) {
        memcpy(note, why, sizeof why);
        return false;
    }
    *made = true;
    return pack_cache_load(&p->wanted, &p->map, &p->payload, note[0] ? why : note);
}

enum tern_status npu_pack_open(struct npu_pack *p, const char *path, struct tern_err *err) {
    enum tern_status status = pack_file_open(path, &p->wanted, &p->map, &p->payload, err);
    if (status != TERN_OK) p->map.data = NULL;
    return status;
}

enum tern_status npu_pack_write(struct npu_pack *p, const char *path, struct tern_err *err) {
    return pack_file_write(path, &p->wanted, pack_make, p, err);
}

// --------------------------------------------------------------------------------------------------------------- using

// Where the matrix lies; false: not in the pack.
static bool matrix_find(void *arg, const char *name, int64_t n_out, int64_t n_in, const void **data,
                        const uint16_t **scale) {
    const struct npu_pack *p = arg;
    for (uint32_t i = 0; i < p->wanted.n_matrices; i++) {
        const struct pack_matrix *m = &p->wanted.table[i];
        if (strcmp(m->name, name) != 0 || m->n_out != n_out || m->n_in != n_in) continue;
        *data = p->payload + m->offset;
        *scale = (const uint16_t *)(const void *)(p->payload + m->offset + m->tile_bytes);
        return true;
    }
    return false;
}

enum tern_status npu_pack_store(const struct npu_pack *p, struct npu_store **out, struct tern_err *err) {
    TRY(npu_store_create(out, p->model, p->format, err));
    npu_store_source_set(*out, matrix_find, (void *)(uintptr_t)p);
    return TERN_OK;
}
