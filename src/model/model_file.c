// Files of a model: maps, what a wrong file looks like, small allocation helpers, warnings.
//
// A file that is not a model gets a message that says what it is instead of "bad magic": most such files are a failed
// download (an error page, a Git LFS pointer) or another format's.
#include "base/base.h"
#include "model/model_int.h"

#define WARNING_BYTES_MAX 4096
#define QUOTE_BYTES_MAX 96

enum tern_status source_alloc(struct model_source *s, void *out, size_t n, size_t size, struct tern_err *err) {
    void *p = arena_calloc(&s->arena, n ? n : 1, size);
    if (!p)
        return err_set(err, TERN_NO_MEMORY, "out of memory for %zu items of %zu bytes while reading the model", n,
                       size);
    memcpy(out, &p, sizeof(p));
    return TERN_OK;
}

enum tern_status source_strdup(struct model_source *s, struct str *out, struct str in, struct tern_err *err) {
    char *p = arena_dup(&s->arena, in.len ? in.data : "", in.len);
    if (!p) return err_set(err, TERN_NO_MEMORY, "out of memory for a string of %zu bytes of the model", in.len);
    *out = (struct str){p, in.len};
    return TERN_OK;
}

enum tern_status source_files_reserve(struct model_source *s, int n, struct tern_err *err) {
    return source_alloc(s, &s->files, (size_t)n, sizeof(*s->files), err);
}

enum tern_status file_map(struct model_file *f, struct model_source *s, const char *path, struct tern_err *err) {
    struct str copy = {0};
    TRY(source_strdup(s, &copy, str_from(path), err));
    struct os_map map;
    TRY(map_open(&map, path, err));
    *f = (struct model_file){.path = copy.data, .data = map.data, .size = map.size, .map = map, .is_mapped = true};
    return TERN_OK;
}

void file_close(struct model_file *f) {
    if (f->is_mapped) map_close(&f->map);
    *f = (struct model_file){0};
}

enum tern_status source_extra_open(struct model_source *s, const char *path, const struct model_file **out,
                                   struct tern_err *err) {
    if (s->n_extra == SOURCE_EXTRA_MAX) TERN_BUG("more than %d extra files", SOURCE_EXTRA_MAX);
    struct model_file *f = &s->extra[s->n_extra];
    TRY(file_map(f, s, path, err));
    s->n_extra++;
    if (f->size > MODEL_STRING_BYTES_MAX)
        return err_set(err, TERN_LIMIT, "%s: %zu bytes, at most %u are read", path_last(path), f->size,
                       MODEL_STRING_BYTES_MAX);
    *out = f;
    return TERN_OK;
}

void source_warn(struct model_source *s, const char *fmt, ...) {
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (s->warning.cap_max == 0) buf_init(&s->warning, WARNING_BYTES_MAX);
    if (s->warning.len) buf_puts(&s->warning, "; ");
    buf_puts(&s->warning, line);
}

int str_shown(struct str s) {
    if (s.len <= QUOTE_BYTES_MAX) return (int)s.len;
    struct str head = {s.data, QUOTE_BYTES_MAX};
    return (int)(QUOTE_BYTES_MAX - utf8_incomplete_tail(head));
}

const char *path_last(const char *path) {
    const char *last = path;
    for (const char *p = path; *p; p++)
        if (*p == '/' && p[1]) last = p + 1;
    return last;
}

static bool has_head(const uint8_t *data, size_t size, const char *head) {
    size_t n = strlen(head);
    return size >= n && memcmp(data, head, n) == 0;
}

enum file_kind file_kind_get(const uint8_t *data, size_t size) {
    if (has_head(data, size, "GGUF")) return FILE_GGUF;
    // A header length below the limit in the first eight bytes, then the object.
    if (size >= 9 && data[8] == '{' && load_u64(data) <= MODEL_SAFETENSORS_HEADER_MAX) return FILE_SAFETENSORS;
    return FILE_OTHER;
}

static bool looks_like_html(const uint8_t *data, size_t size) {
    size_t i = 0;
    while (i < size && i < 256 && (data[i] == ' ' || data[i] == '\n' || data[i] == '\r' || data[i] == '\t')) i++;
    static const char *const heads[] = {"<!doctype html", "<html", "<?xml", "<head"};
    for (size_t k = 0; k < ARRAY_LEN(heads); k++) {
        size_t n = strlen(heads[k]), j = 0;
        while (j < n && i + j < size &&
               (data[i + j] | ((data[i + j] >= 'A' && data[i + j] <= 'Z') ? 0x20 : 0)) == (uint8_t)heads[k][j])
            j++;
        if (j == n) return true;
    }
    return false;
}

enum tern_status file_refuse_other(const uint8_t *data, size_t size, struct tern_err *err) {
    static const struct {
        const char *head, *what;
    } known[] = {
        {"version https://git-lfs", "a Git LFS pointer, not the file itself: fetch it with `git lfs pull`"},
        {"FUGG", "a byte-swapped (big-endian) GGUF file: only little-endian ones are supported"},
        {"PK\x03\x04", "a ZIP archive, perhaps a PyTorch checkpoint: convert it to GGUF or safetensors"},
        {"\x80\x02", "a Python pickle: convert it to GGUF or safetensors"},
        {"\x1f\x8b", "a gzip archive: unpack it first"},
        {"ggml", "a GGML file of before GGUF: convert the model again"},
        {"lmgg", "a GGML file of before GGUF: convert the model again"},
        {"tjgg", "a GGJT file of before GGUF: convert the model again"},
        {"fmgg", "a GGMF file of before GGUF: convert the model again"},
    };
    if (size == 0) return err_set_at(err, TERN_BAD_FORMAT, 0, "the file is empty");
    if (looks_like_html(data, size))
        return err_set_at(
            err, TERN_BAD_FORMAT, 0,
            "this is an HTML page, not a model: the download failed, open the address in a browser to see why");
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (has_head(data, size, known[i].head))
            return err_set_at(err, TERN_BAD_FORMAT, 0, "this is %s", known[i].what);
    }
    if (size < 8)
        return err_set_at(err, TERN_BAD_FORMAT, 0, "the file has only %zu bytes: not a GGUF or safetensors file", size);
    if (data[0] == '{')
        return err_set_at(err, TERN_BAD_FORMAT, 0,
                          "this is a JSON file: give the folder it lies in, or a .gguf or .safetensors file");
    return err_set_at(err, TERN_BAD_FORMAT, 0,
                      "neither a GGUF nor a safetensors file (it starts with bytes %02x %02x %02x %02x)", data[0],
                      data[1], data[2], data[3]);
}
