// Programs compiled ahead: weights.bin, programs.json and, for Core AI, model.aimodel in a folder.
//
// weights.bin holds every int8 matrix once, 64-byte aligned, in the order in which lowering asks for them. Each is
// quantised in one buffer and written before the next one is made, so packing needs the memory of one matrix; then the
// file is mapped and the weights are its pages. What is made depends on nothing but the model, the lists and the
// runtime: their digest is the key in programs.json, and a folder with that key is not made again.
#include "unit/npu/coreai_int.h"
#include "unit/npu/npu_unit.h"
#include "unit/npu/pack_list.h"
#include <stdio.h>

#define PATH_LEN_MAX 4096
#define COMPILE_WINDOW 64
#define COMPILE_PICK 32
#define COMPILE_LISTS_MAX (3 * NPU_BUCKETS_MAX)
#define COMPILE_RUNS 3 // the fastest is reported; one on Apple's interpreter, which takes seconds
#define MANIFEST_MAX ((size_t)16 << 20)
#define WEIGHT_ALIGN 64

struct compile {
    const struct model *m;
    const struct unit_npu_compile_options *o;
    const struct npu_backend_driver *driver;
    struct npu_store *store;
    struct prog *progs[3]; // fill, last, verify
    const struct npu_list *lists[COMPILE_LISTS_MAX];
    int n_lists;
    // weights.bin
    struct os_writer w;
    void *matrix; // being made
    size_t matrix_bytes, matrix_cap;
    uint64_t offset; // of it
    struct os_map map;
    bool failed;
    struct tern_err why;
    struct tern_err *err;
    char key[65];
};

static enum tern_status path_join(char out[PATH_LEN_MAX], const char *dir, const char *name, struct tern_err *err) {
    if ((size_t)snprintf(out, PATH_LEN_MAX, "%s/%s", dir, name) < PATH_LEN_MAX) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is too long for a path", dir);
}

static enum tern_status progs_build(struct compile *c) {
    const uint32_t outputs[] = {0, PROG_OUT_ARGMAX, PROG_OUT_ARGMAX};
    const int n_out[] = {0, COMPILE_PICK, -1};
    for (int i = 0; i < 3; i++) {
        struct prog_spec spec = {.kind = PROG_WHOLE,
                                 .numerics = PROG_CLASS_INT8,
                                 .kv_type = OP_KV_F16,
                                 .window = COMPILE_WINDOW,
                                 .n_out_max = n_out[i],
                                 .outputs = outputs[i]};
        TRY(prog_build(&c->progs[i], c->m, &spec, c->err));
    }
    return TERN_OK;
}

static void lists_free(struct compile *c) {
    for (int i = 0; i < c->n_lists; i++) npu_list_free((struct npu_list *)(uintptr_t)c->lists[i]);
    c->n_lists = 0;
}

// Every program for every bucket, over the store that is there.
static enum tern_status lists_make(struct compile *c) {
    static const char *const names[] = {"fill", "last", "verify"};
    int buckets[NPU_BUCKETS_MAX], n = npu_buckets(c->m, buckets);
    lists_free(c);
    for (int b = 0; b < n; b++)
        for (int i = 0; i < 3; i++) {
            char name[NPU_NAME_MAX];
            struct npu_list *l = NULL;
            snprintf(name, sizeof name, "%s_%d", names[i], buckets[b]);
            struct npu_lower_options o = {.name = name,
                                          .window = COMPILE_WINDOW,
                                          .bucket = buckets[b],
                                          .n_chunks = 1,
                                          .n_frames = c->m->hyper.conv_len > 0 ? NPU_BLOCK : 0,
                                          .n_pick = i == 1 ? COMPILE_PICK : 0};
            TRY(npu_lower(&l, c->progs[i], c->store, &o, c->err));
            c->lists[c->n_lists++] = l;
        }
    return TERN_OK;
}

static enum tern_status key_make(struct compile *c, const struct npu_backend_info *info) {
    struct buf json;
    struct sha256 s;
    uint8_t digest[32];
    const char *const parts[] = {"tern npu programs 1", c->m->digest, c->driver->name, info->version, info->provider};
    buf_init(&json, COREAI_TEMPLATE_TEXT_MAX);
    if (!npu_lists_json(&json, c->lists, c->n_lists)) {
        buf_release(&json);
        return err_set(c->err, TERN_NO_MEMORY, "no memory for the text of %d programs", c->n_lists);
    }
    sha256_init(&s);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) sha256_update(&s, parts[i], strlen(parts[i]) + 1);
    sha256_update(&s, json.data, json.len);
    sha256_final(&s, digest);
    sha256_hex(digest, c->key);
    enum tern_status status = TERN_OK;
    char path[PATH_LEN_MAX];
    if (c->driver == &npu_coreai_backend) { // what make_template.py reads
        status = path_join(path, c->o->dir, "lists.json", c->err);
        if (status == TERN_OK) status = file_write_atomic(path, json.data, json.len, c->err);
    }
    buf_release(&json);
    return status;
}

// Does the folder hold these programs, whole?
static bool is_there(const struct compile *c) {
    char path[PATH_LEN_MAX], want[96];
    struct buf text;
    struct os_stat st;
    buf_init(&text, MANIFEST_MAX);
    snprintf(want, sizeof want, "{\"key\":\"%s\",\"whole\":true", c->key);
    bool same = path_join(path, c->o->dir, "programs.json", NULL) == TERN_OK &&
                file_read_all(&text, path, NULL) == TERN_OK && str_starts(buf_str(&text), str_from(want));
    buf_release(&text);
    return same && path_join(path, c->o->dir, "weights.bin", NULL) == TERN_OK && os_stat_get(&st, path) && st.is_file;
}

// ------------------------------------------------------------------------------------------------------- weights.bin

static enum tern_status matrix_flush(struct compile *c) {
    static const uint8_t zeros[WEIGHT_ALIGN];
    size_t pad = (WEIGHT_ALIGN - c->matrix_bytes % WEIGHT_ALIGN) % WEIGHT_ALIGN;
    if (c->matrix_bytes == 0) return TERN_OK;
    TRY(writer_put(&c->w, c->matrix, c->matrix_bytes, c->err));
    TRY(writer_put(&c->w, zeros, pad, c->err));
    c->matrix_bytes = 0;
    return TERN_OK;
}

static void *matrix_next(void *arg, size_t bytes) {
    struct compile *c = arg;
    if (c->failed || matrix_flush(c) != TERN_OK) {
        if (!c->failed && c->err) c->why = *c->err; // the store says only that it has no memory
        c->failed = true;
        return NULL;
    }
    if (bytes > c->matrix_cap) {
        if (c->matrix) mem_unmap(c->matrix, c->matrix_cap);
        c->matrix = mem_map(bytes);
        c->matrix_cap = c->matrix ? bytes : 0;
        if (!c->matrix) return NULL;
    }
    c->matrix_bytes = bytes;
    return c->matrix;
}

static enum tern_status weights_write(struct compile *c) {
    char path[PATH_LEN_MAX];
    TRY(path_join(path, c->o->dir, "weights.bin", c->err));
    TRY(writer_open(&c->w, path, c->err));
    npu_store_sink_set(c->store, matrix_next, c);
    enum tern_status status = lists_make(c);
    if (status == TERN_OK) status = matrix_flush(c);
    if (c->matrix) mem_unmap(c->matrix, c->matrix_cap);
    c->matrix = NULL;
    if (status != TERN_OK) {
        writer_abort(&c->w);
        if (c->failed && c->err) *c->err = c->why;
        return c->failed && c->err ? c->err->code : status;
    }
    TRY(writer_commit(&c->w, c->err));
    TRY(map_open(&c->map, path, c->err));
    uint64_t at = 0;
    for (int i = 0; i < npu_store_count(c->store); i++) {
        const struct npu_weight *w = npu_store_get(c->store, i);
        uint64_t bytes = (uint64_t)w->shape[0] * (uint64_t)w->shape[1];
        if (w->kind != NPU_WEIGHT_I8) continue;
        npu_store_point(c->store, i, (const int8_t *)c->map.data + at);
        at += (bytes + WEIGHT_ALIGN - 1) / WEIGHT_ALIGN * WEIGHT_ALIGN;
    }
    return TERN_OK;
}

// ---------------------------------------------------------------------------------------------------------- programs

static void **zero_buffers(struct arena *a, const struct npu_list *l, const int *ids, int n) {
    void **out = arena_calloc(a, (size_t)MAX(n, 1), sizeof *out);
    for (int i = 0; out && i < n; i++) {
        out[i] = arena_calloc(a, (size_t)npu_tensor_len(&l->tensors[ids[i]]), 2);
        if (!out[i]) return NULL;
    }
    return out;
}

// Compiles and runs one list; its milliseconds.
static enum tern_status program_try(struct compile *c, struct npu_backend *b, const struct npu_list *l, double *ms,
                                    char note[256]) {
    struct npu_compiled *compiled = NULL;
    struct npu_binding *binding = NULL;
    struct arena a;
    enum tern_status status;
    arena_init(&a, 0);
    struct npu_buffers io = {.inputs = zero_buffers(&a, l, l->inputs, l->n_inputs),
                             .outputs = zero_buffers(&a, l, l->outputs, l->n_outputs)};
    if (!io.inputs || !io.outputs) {
        status = err_set(c->err, TERN_NO_MEMORY, "no memory for the buffers of %s", l->name);
        goto done;
    }
    TRY_GOTO(c->driver->compile(b, &compiled, l, c->err), done);
    TRY_GOTO(c->driver->bind(compiled, &binding, &io, c->err), done);
    snprintf(note, 256, "%s", npu_compiled_base_of(compiled)->placement.detail);
    for (int i = 0; i < (c->driver == &npu_coreai_backend ? 1 : COMPILE_RUNS); i++) {
        uint64_t start = clock_ns();
        TRY_GOTO(c->driver->run(binding, c->err), done);
        double t = (double)(clock_ns() - start) * 1e-6;
        *ms = i == 0 ? t : MIN(*ms, t);
    }
done:
    if (binding) c->driver->unbind(binding);
    if (compiled) c->driver->free(compiled);
    arena_release(&a);
    return status;
}

static enum tern_status manifest_write(struct compile *c, const struct buf *rows, bool whole) {
    char path[PATH_LEN_MAX];
    struct buf text;
    buf_init(&text, MANIFEST_MAX);
    buf_putf(&text, "{\"key\":\"%s\",\"whole\":%s,\"model\":\"%s\",\"backend\":\"%s\",\"programs\":[%.*s]}\n", c->key,
             whole ? "true" : "false", c->m->digest, c->driver->name, (int)rows->len, rows->data ? rows->data : "");
    enum tern_status status = path_join(path, c->o->dir, "programs.json", c->err);
    if (status == TERN_OK && (text.failed || rows->failed)) status = err_set(c->err, TERN_NO_MEMORY, "no memory");
    if (status == TERN_OK) status = file_write_atomic(path, text.data, text.len, c->err);
    buf_release(&text);
    return status;
}

static enum tern_status programs_make(struct compile *c, struct npu_backend *b) {
    struct buf rows;
    struct tern_err first = {0};
    enum tern_status worst = TERN_OK;
    struct tern_err *out = c->err, here;
    buf_init(&rows, MANIFEST_MAX);
    c->err = &here;
    for (int i = 0; i < c->n_lists; i++) {
        double ms = 0;
        char note[256] = "";
        enum tern_status status = program_try(c, b, c->lists[i], &ms, note);
        buf_putf(&rows, "%s{\"name\":\"%s\",\"ok\":%s,\"ms\":%.2f}", i > 0 ? "," : "", c->lists[i]->name,
                 status == TERN_OK ? "true" : "false", ms);
        if (status != TERN_OK && worst == TERN_OK) {
            worst = status;
            err_set(&first, status, "%s: %s", c->lists[i]->name, here.message);
        }
        if (c->o->on_program)
            c->o->on_program(c->o->arg, c->lists[i]->name, status == TERN_OK ? NULL : here.message, ms, note);
    }
    c->err = out;
    enum tern_status written = manifest_write(c, &rows, worst == TERN_OK);
    buf_release(&rows);
    if (worst != TERN_OK && out) *out = first;
    return worst != TERN_OK ? worst : written;
}

static enum tern_status asset_make(struct compile *c, char asset[PATH_LEN_MAX]) {
    char dir[PATH_LEN_MAX], text[PATH_LEN_MAX];
    struct os_stat st;
    TRY(path_join(dir, c->o->dir, "template", c->err));
    if (c->o->template_dir) snprintf(dir, sizeof dir, "%s", c->o->template_dir);
    TRY(path_join(asset, c->o->dir, "model.aimodel", c->err));
    TRY(path_join(text, dir, "template.json", c->err));
    if (!os_stat_get(&st, text))
        return err_set(c->err, TERN_NOT_FOUND,
                       "no template for these programs in '%s'; make it once with: python3 "
                       "tools/coreai/make_template.py %s/lists.json %s (coreai-core, see tools/npu_packages.sh)",
                       dir, c->o->dir, dir);
    return coreai_fill(dir, asset, c->lists, c->n_lists, c->m->digest, c->err);
}

static enum tern_status compile_run(struct compile *c, bool *was_there) {
    struct npu_backend *b = NULL;
    struct npu_backend_options o = {.provider = c->o->provider, .plugin = c->o->plugin, .n_threads = c->o->n_threads};
    char asset[PATH_LEN_MAX];
    enum tern_status status;
    TRY(npu_lower_check(c->m, c->err));
    TRY(progs_build(c));
    TRY(os_mkdirs(c->o->dir, c->err));
    TRY(c->driver->open(&b, &o, c->err));
    TRY_GOTO(npu_store_create(&c->store, c->m, NPU_FORMAT_NONE, c->err), done);
    TRY_GOTO(lists_make(c), done);
    TRY_GOTO(key_make(c, &npu_backend_base_of(b)->info), done);
    *was_there = is_there(c);
    if (*was_there) goto done;
    lists_free(c);
    npu_store_free(c->store);
    c->store = NULL;
    TRY_GOTO(npu_store_create(&c->store, c->m, NPU_FORMAT_I8, c->err), done);
    TRY_GOTO(weights_write(c), done);
    if (c->driver == &npu_coreai_backend) { // the runtime opens what is filled now
        TRY_GOTO(asset_make(c, asset), done);
        c->driver->close(b);
        b = NULL;
        o.asset = asset;
        TRY_GOTO(c->driver->open(&b, &o, c->err), done);
    }
    status = programs_make(c, b);
done:
    if (b) c->driver->close(b);
    return status;
}

enum tern_status unit_npu_compile(const struct model *m, const struct unit_npu_compile_options *o, bool *was_there,
                                  struct tern_err *err) {
    struct compile c = {.m = m, .o = o, .map = {.fd = -1}, .err = err};
    *was_there = false;
    TRY(npu_backend_find(&c.driver, o->backend, err));
    enum tern_status status = compile_run(&c, was_there);
    lists_free(&c);
    npu_store_free(c.store);
    for (int i = 0; i < 3; i++) prog_free(c.progs[i]);
    if (c.map.data) map_close(&c.map);
    return status;
}
