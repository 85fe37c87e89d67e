// What a path is, the order of the steps, and the end of a model's life.
#include "base/base.h"
#include "model/model_int.h"

enum tern_status model_create(struct model **out, enum source_kind kind, struct tern_err *err) {
    struct model *m = mem_calloc(1, sizeof(*m));
    struct model_source *s = mem_calloc(1, sizeof(*s));
    if (!m || !s) {
        mem_free(m);
        mem_free(s);
        return err_set(err, TERN_NO_MEMORY, "out of memory for a model");
    }
    arena_init(&s->arena, 0);
    s->kind = kind;
    m->source = s;
    m->name = "model";
    m->arch_name = "";
    struct model_vocab *v = &m->vocab;
    v->bos = v->eos = v->eot = v->pad = v->unk = -1;
    v->add_bos = v->add_eos = v->add_blank = -1;
    *out = m;
    return TERN_OK;
}

void model_close(struct model *m) {
    if (!m) return;
    struct model_source *s = m->source;
    for (int i = 0; i < s->n_files; i++) file_close(&s->files[i]);
    for (int i = 0; i < s->n_extra; i++) file_close(&s->extra[i]);
    for (int i = 0; i < s->n_blocks; i++)
        if (s->blocks[i].data) mem_unmap(s->blocks[i].data, s->blocks[i].size);
    buf_release(&s->warning);
    arena_release(&s->arena);
    mem_free(s);
    mem_free(m);
}

void model_totals_make(struct model *m) {
    struct model_source *s = m->source;
    uint64_t bytes[FORMAT_COUNT] = {0};
    m->tensors = s->tensors;
    m->n_tensors = s->n_tensors;
    for (int i = 0; i < s->n_tensors; i++) {
        const struct tensor *t = &s->tensors[i];
        if (t->is_part) continue;
        uint64_t n = 1;
        for (int k = 0; k < MODEL_DIMS_MAX; k++) n *= (uint64_t)t->ne[k]; // checked below 2^63 by table_entry_bytes
        m->n_params += n;
        bytes[t->format] += t->n_bytes;
        if (bytes[t->format] > bytes[m->format_main]) m->format_main = t->format;
    }
    for (int i = 0; i < s->n_files; i++) m->n_bytes_file += s->files[i].size;
    m->warning = buf_str(&s->warning);
    if (!m->warning.data) m->warning = STR("");
}

#define NAME_SHOWN_MAX 256 // bytes of a name from a file or a path

// A name is shown on terminals and in tables: without control bytes, whatever the file says, and of a bounded length.
static enum tern_status name_clean(struct model *m, struct tern_err *err) {
    struct str given = str_from(m->name), copy = {0};
    struct buf shown;
    buf_init(&shown, 8 * NAME_SHOWN_MAX);
    bool good = str_put_escaped(&shown, given, NAME_SHOWN_MAX);
    struct str clean = buf_str(&shown);
    enum tern_status status = TERN_OK;
    if (!good)
        status = err_set(err, TERN_NO_MEMORY, "out of memory for a model's name");
    else if (!str_eq(clean, given))
        status = source_strdup(m->source, &copy, clean, err);
    if (copy.data) m->name = copy.data;
    buf_release(&shown);
    return status;
}

// Hands the model over, or says which path failed and frees what was built.
static enum tern_status open_end(struct model **out, struct model *m, enum tern_status status, const char *path,
                                 struct tern_err *err) {
    if (status == TERN_OK) status = name_clean(m, err);
    if (status == TERN_OK) {
        model_totals_make(m);
        model_digest_make(m);
        *out = m;
        return TERN_OK;
    }
    model_close(m);
    return err_prefix(err, "%s", path);
}

// What to make of a file's tensor table.
enum open_how { OPEN_TABLE, OPEN_MODEL, OPEN_DRAFTER, OPEN_DRAFT };

static enum tern_status gguf_file_open(struct model *m, const char *path, struct tern_err *err) {
    struct model_source *s = m->source;
    TRY(source_files_reserve(s, 1, err));
    TRY(file_map(&s->files[0], s, path, err));
    s->n_files = 1;
    m->name = path_last(s->files[0].path);
    return gguf_open(m, err);
}

// Which reader a regular file needs, by its first bytes.
static enum tern_status kind_find(const char *path, enum file_kind *out, struct tern_err *err) {
    struct os_map map;
    TRY(map_open(&map, path, err));
    *out = file_kind_get(map.data, map.size);
    // A name that claims safetensors is judged by that reader, whose messages are about its header.
    if (*out == FILE_OTHER && map.size > 0 && str_ends(str_from(path), STR(".safetensors"))) {
        struct tern_err looks;
        file_refuse_other(map.data, map.size, &looks);
        if (str_find(str_from(looks.message), STR("this is "), 0) != 0) *out = FILE_SAFETENSORS;
    }
    enum tern_status status = *out == FILE_OTHER ? file_refuse_other(map.data, map.size, err) : TERN_OK;
    map_close(&map);
    return status;
}

static enum tern_status path_open(struct model **out, const char *path, enum open_how how, const struct model *target,
                                  struct tern_err *err) {
    struct os_stat st;
    struct model *m;
    enum file_kind kind = FILE_SAFETENSORS;
    if (!os_stat_get(&st, path)) return err_set(err, TERN_NOT_FOUND, "%s: no such file or folder", path);
    if (!st.is_dir) {
        enum tern_status status = kind_find(path, &kind, err);
        if (status != TERN_OK) {
            if (str_find(str_from(err->message), str_from(path), 0) != 0) err_prefix(err, "%s", path);
            return status;
        }
    }
    TRY(model_create(&m, kind == FILE_GGUF ? SOURCE_GGUF : SOURCE_SAFETENSORS, err));
    bool is_gguf = kind == FILE_GGUF;
    enum tern_status status = is_gguf ? gguf_file_open(m, path, err) : hf_open(m, path, st.is_dir, err);
    bool is_drafter = true;
    if (status == TERN_OK && how == OPEN_DRAFT) status = drafter_detect(m, path, st.is_dir, &is_drafter, err);
    if (how == OPEN_DRAFT) how = is_drafter ? OPEN_DRAFTER : OPEN_MODEL;
    if (status == TERN_OK && how == OPEN_MODEL) status = is_gguf ? gguf_bind(m, err) : hf_bind(m, path, st.is_dir, err);
    if (status == TERN_OK && how == OPEN_DRAFTER) status = drafter_bind(m, target, path, st.is_dir, err);
    return open_end(out, m, status, path, err);
}

enum tern_status model_open(struct model **out, const char *path, struct tern_err *err) {
    struct tern_err local;
    return path_open(out, path, OPEN_MODEL, NULL, err ? err : &local);
}

enum tern_status model_open_table(struct model **out, const char *path, struct tern_err *err) {
    struct tern_err local;
    return path_open(out, path, OPEN_TABLE, NULL, err ? err : &local);
}

enum tern_status model_open_drafter(struct model **out, const char *path, const struct model *target,
                                    struct tern_err *err) {
    struct tern_err local;
    return path_open(out, path, OPEN_DRAFTER, target, err ? err : &local);
}

enum tern_status model_open_draft(struct model **out, const char *path, const struct model *target,
                                  struct tern_err *err) {
    struct tern_err local;
    return path_open(out, path, OPEN_DRAFT, target, err ? err : &local);
}

static enum tern_status memory_parse(struct model *m, struct model_file file, const struct model *target,
                                     struct tern_err *err) {
    struct model_source *s = m->source;
    TRY(source_files_reserve(s, 1, err));
    s->files[0] = file;
    s->n_files = 1;
    if (s->kind == SOURCE_SAFETENSORS) {
        TRY(safetensors_parse(s, 0, err));
        return codes_refuse(s, ": no config.json says what its bits mean", err);
    }
    TRY(gguf_open(m, err));
    return target ? drafter_bind(m, target, NULL, false, err) : gguf_bind(m, err);
}

// target: of a drafter, else NULL.
static enum tern_status memory_open(struct model **out, const char *name, const void *data, size_t size,
                                    const struct model *target, struct tern_err *err) {
    struct tern_err local;
    struct model *m;
    struct str copy = {0};
    if (!err) err = &local;
    bool is_safetensors = file_kind_get(data, size) == FILE_SAFETENSORS;
    TRY(model_create(&m, is_safetensors ? SOURCE_SAFETENSORS : SOURCE_GGUF, err));
    enum tern_status status = source_strdup(m->source, &copy, str_from(name), err);
    if (status == TERN_OK) {
        m->name = copy.data;
        status = memory_parse(m, (struct model_file){.path = copy.data, .data = data, .size = size}, target, err);
    }
    return open_end(out, m, status, name, err);
}

enum tern_status model_open_memory(struct model **out, const char *name, const void *data, size_t size,
                                   struct tern_err *err) {
    return memory_open(out, name, data, size, NULL, err);
}

enum tern_status model_open_drafter_memory(struct model **out, const char *name, const void *data, size_t size,
                                           const struct model *target, struct tern_err *err) {
    struct tern_err local;
    if (file_kind_get(data, size) == FILE_SAFETENSORS)
        return err_set(err ? err : &local, TERN_UNSUPPORTED,
                       "%s: a safetensors file alone does not say what drafter it is", name);
    return memory_open(out, name, data, size, target, err);
}

const struct tensor *model_tensor_find(const struct model *m, const char *name) {
    return table_find(m->source, str_from(name));
}

void model_tensor_drop(const struct model *m, const struct tensor *t) {
    struct model_source *s = m->source;
    for (int i = 0; i < s->n_blocks; i++) {
        struct shape_block *b = &s->blocks[i];
        if (&s->tensors[b->tensor] != (t->whole ? t->whole : t) || !b->data) continue;
        if (t->whole) { // the bytes go with the last slice
            b->dropped += t->n_bytes;
            if (b->dropped < s->tensors[b->tensor].n_bytes) return;
        }
        mem_unmap(b->data, b->size);
        b->data = NULL;
        s->tensors[b->tensor].data = NULL;
        return;
    }
    if (s->kind == SOURCE_SHAPE || t->n_bytes == 0) return;
    if (m->drafter && (t == m->drafter->target->embedding || t == m->drafter->target->output)) return; // not ours
    const struct model_file *f = &s->files[t->shard];
    if (f->is_mapped && t->parts) { // the scales, an eighth at most, may lie in other files
        map_drop(&f->map, (size_t)(t->parts->codes - f->data), (size_t)(t->parts->codes_row * (uint64_t)t->ne[1]));
        return;
    }
    uintptr_t at = (uintptr_t)t->data, begin = (uintptr_t)f->data; // a study may have put its own bytes there
    if (f->is_mapped && at >= begin && at - begin < f->map.size)
        map_drop(&f->map, (size_t)(at - begin), (size_t)t->n_bytes);
}
