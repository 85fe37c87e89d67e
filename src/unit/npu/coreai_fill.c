// Core AI assets: a template's skeleton with the model's weights put between its pieces, written in one pass.
//
// Nothing of a program is held in memory: the skeleton is mapped, weights are borrowed from the store, and main.mlirb
// grows piece by piece while its SHA-256 is taken. The asset says of which lists and model it is, so that a run of
// another model refuses it. metadata.json is written last: an asset without it was not finished.
#include "unit/npu/coreai_int.h"
#include "unit/npu/pack_list.h"
#include <stdio.h>

#define PATH_LEN_MAX 4096
#define PIECE ((size_t)8 << 20)
#define METADATA_MAX ((size_t)1 << 20)

static enum tern_status path_join(char out[PATH_LEN_MAX], const char *dir, const char *name, struct tern_err *err) {
    if ((size_t)snprintf(out, PATH_LEN_MAX, "%s/%s", dir, name) < PATH_LEN_MAX) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is too long for a path", dir);
}

static const struct npu_weight *weight_find(const struct npu_list *const *lists, int n, const char *name) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < lists[i]->n_tensors; k++) {
            const struct npu_tensor *t = &lists[i]->tensors[k];
            if (t->role == NPU_CONST && strcmp(t->weight->name, name) == 0) return t->weight;
        }
    return NULL;
}

// The bytes of a block in the model, or an error that says what is different there.
static enum tern_status block_data(const struct coreai_block *b, const struct npu_list *const *lists, int n,
                                   const void **out, struct tern_err *err) {
    const struct npu_weight *w = weight_find(lists, n, b->name);
    uint64_t len = 1, bytes = 0;
    if (!w)
        return err_set(err, TERN_MISMATCH, "the template wants a weight '%s', which the model does not have", b->name);
    for (int i = 0; i < w->rank; i++) len *= (uint64_t)w->shape[i];
    if (b->part == COREAI_Q) *out = w->q, bytes = len;
    if (b->part == COREAI_SCALE) *out = w->scale, bytes = (uint64_t)w->shape[0] * 2;
    if (b->part == COREAI_HALF) *out = w->half, bytes = len * 2;
    if (*out && bytes == b->bytes) return TERN_OK;
    return err_set(err, TERN_MISMATCH, "the template has %llu bytes for '%s', the model %llu",
                   (unsigned long long)b->bytes, b->name, (unsigned long long)(*out ? bytes : 0));
}

struct output {
    struct os_writer w;
    struct sha256 sha;
};
static enum tern_status put(struct output *o, const void *data, uint64_t len, struct tern_err *err) {
    const uint8_t *at = data;
    while (len > 0) {
        size_t n = (size_t)MIN(len, (uint64_t)PIECE);
        sha256_update(&o->sha, at, n);
        TRY(writer_put(&o->w, at, n, err));
        at += n;
        len -= n;
    }
    return TERN_OK;
}

static enum tern_status program_write(struct output *o, const struct coreai_template *t, const struct os_map *skeleton,
                                      const struct npu_list *const *lists, int n, struct tern_err *err) {
    uint64_t at = 0, taken = 0; // in the program; of the skeleton
    for (int i = 0; i <= t->n_blocks; i++) {
        const struct coreai_block *b = i < t->n_blocks ? &t->blocks[i] : NULL;
        uint64_t piece = (b ? b->offset : t->bytes) - at;
        const void *data = NULL;
        if (piece > skeleton->size - taken) return err_set(err, TERN_BAD_FORMAT, "the skeleton is too short");
        if (piece > 0) TRY(put(o, skeleton->data + taken, piece, err));
        taken += piece;
        if (!b) break;
        TRY(block_data(b, lists, n, &data, err));
        TRY(put(o, data, b->bytes, err));
        at = b->offset + b->bytes;
    }
    return taken == skeleton->size ? TERN_OK : err_set(err, TERN_BAD_FORMAT, "the skeleton is too long");
}

static void skeleton_digest(const struct os_map *m, char out[65]) {
    struct sha256 s;
    uint8_t digest[32];
    sha256_init(&s);
    sha256_update(&s, m->data, m->size);
    sha256_final(&s, digest);
    sha256_hex(digest, out);
}

static enum tern_status metadata_write(const char *asset, const struct coreai_template *t, const char *model_digest,
                                       struct tern_err *err) {
    char path[PATH_LEN_MAX];
    struct buf text;
    struct json_writer w;
    enum tern_status status;
    TRY(path_join(path, asset, "metadata.json", err));
    buf_init(&text, METADATA_MAX);
    json_write_init(&w, &text);
    json_write_object(&w);
    json_write_key(&w, "assetVersion");
    json_write_str(&w, str_from(t->asset_version));
    json_write_key(&w, "producer");
    json_write_str(&w, STR("tern"));
    json_write_key(&w, "creatorDefinedMetadata");
    json_write_object(&w);
    json_write_key(&w, "tern.lists");
    json_write_str(&w, str_from(t->lists));
    json_write_key(&w, "tern.model");
    json_write_str(&w, str_from(model_digest));
    json_write_object_end(&w);
    json_write_object_end(&w);
    status = text.failed ? err_set(err, TERN_NO_MEMORY, "no memory for the metadata of an asset")
                         : file_write_atomic(path, text.data, text.len, err);
    buf_release(&text);
    return status;
}

static enum tern_status lists_check(const struct coreai_template *t, const struct npu_list *const *lists, int n,
                                    struct tern_err *err) {
    struct buf json;
    char digest[65];
    enum tern_status status = TERN_OK;
    buf_init(&json, COREAI_TEMPLATE_TEXT_MAX);
    if (!npu_lists_json(&json, lists, n)) {
        status = err_set(err, TERN_NO_MEMORY, "no memory for the text of %d programs", n);
    } else {
        npu_lists_digest(&json, digest);
        if (strcmp(digest, t->lists) != 0)
            status = err_set(err, TERN_MISMATCH,
                             "the template was made for other programs (%.12s…) than this model's (%.12s…)", t->lists,
                             digest);
    }
    buf_release(&json);
    return status;
}

static enum tern_status asset_write(const char *asset, const struct coreai_template *t, const struct os_map *skeleton,
                                    const struct npu_list *const *lists, int n, const char *model_digest,
                                    struct tern_err *err) {
    struct output o;
    char path[PATH_LEN_MAX];
    uint8_t digest[32];
    TRY(os_mkdirs(asset, err));
    TRY(path_join(path, asset, "metadata.json", err));
    os_remove(path, NULL); // until the new one is whole
    TRY(path_join(path, asset, "main.mlirb", err));
    sha256_init(&o.sha);
    TRY(writer_open(&o.w, path, err));
    enum tern_status status = program_write(&o, t, skeleton, lists, n, err);
    if (status != TERN_OK) {
        writer_abort(&o.w);
        return status;
    }
    TRY(writer_commit(&o.w, err));
    sha256_final(&o.sha, digest);
    TRY(path_join(path, asset, "main.hash", err));
    TRY(file_write_atomic(path, digest, sizeof digest, err));
    return metadata_write(asset, t, model_digest, err);
}

enum tern_status coreai_fill(const char *template_dir, const char *asset, const struct npu_list *const *lists, int n,
                             const char *model_digest, struct tern_err *err) {
    char path[PATH_LEN_MAX], digest[65];
    struct buf text;
    struct coreai_template t;
    struct os_map skeleton = {.fd = -1};
    enum tern_status status;
    bool mapped = false;
    buf_init(&text, COREAI_TEMPLATE_TEXT_MAX);
    t.arena = (struct arena){0};
    TRY_GOTO(path_join(path, template_dir, "template.json", err), done);
    TRY_GOTO(file_read_all(&text, path, err), done);
    TRY_GOTO(coreai_template_parse(&t, buf_str(&text), path, err), done);
    TRY_GOTO(lists_check(&t, lists, n, err), done);
    TRY_GOTO(path_join(path, template_dir, "skeleton.bin", err), done);
    TRY_GOTO(map_open(&skeleton, path, err), done);
    mapped = true;
    skeleton_digest(&skeleton, digest);
    if (strcmp(digest, t.skeleton) != 0) {
        status = err_set(err, TERN_BAD_FORMAT, "%s is damaged: its SHA-256 is not that of template.json", path);
        goto done;
    }
    status = asset_write(asset, &t, &skeleton, lists, n, model_digest, err);
done:
    if (mapped) map_close(&skeleton);
    coreai_template_release(&t);
    buf_release(&text);
    return status;
}

// Takes tern's two entries of metadata.json.
static enum tern_status metadata_take(struct json *j, struct coreai_asset_info *out, struct tern_err *err) {
    struct json_item item, inner;
    TRY(json_expect(j, JSON_OBJECT, &item, "metadata", err));
    while (json_next(j, &item, err) == JSON_KEY) {
        if (!str_eqz(item.text, "creatorDefinedMetadata")) {
            TRY(json_skip(j, err));
            continue;
        }
        TRY(json_expect(j, JSON_OBJECT, &item, "creatorDefinedMetadata", err));
        while (json_next(j, &item, err) == JSON_KEY) {
            char *at = str_eqz(item.text, "tern.lists")   ? out->lists
                       : str_eqz(item.text, "tern.model") ? out->model
                                                          : NULL;
            if (!at) {
                TRY(json_skip(j, err));
                continue;
            }
            TRY(json_expect(j, JSON_STRING, &inner, "a digest", err));
            if (inner.text.len > COREAI_DIGEST_LEN) return err_set(err, TERN_BAD_FORMAT, "a digest is too long");
            memcpy(at, inner.text.data, inner.text.len);
            at[inner.text.len] = 0;
        }
        if (item.event == JSON_ERROR) return err ? err->code : TERN_BAD_FORMAT;
    }
    return item.event == JSON_OBJECT_END ? TERN_OK : err ? err->code : TERN_BAD_FORMAT;
}

enum tern_status coreai_asset_check(const char *asset, struct coreai_asset_info *out, struct tern_err *err) {
    char path[PATH_LEN_MAX];
    struct buf text, hash;
    struct json *j = NULL;
    struct os_map program;
    struct sha256 s;
    uint8_t digest[32];
    enum tern_status status;
    *out = (struct coreai_asset_info){0};
    buf_init(&text, METADATA_MAX);
    buf_init(&hash, sizeof digest);
    TRY_GOTO(path_join(path, asset, "metadata.json", err), done);
    TRY_GOTO(file_read_all(&text, path, err), done);
    TRY_GOTO(json_create(&j, buf_str(&text), NULL, err), done);
    status = metadata_take(j, out, err);
    if (status != TERN_OK) {
        err_prefix(err, "%s", path);
        goto done;
    }
    TRY_GOTO(path_join(path, asset, "main.hash", err), done);
    TRY_GOTO(file_read_all(&hash, path, err), done);
    TRY_GOTO(path_join(path, asset, "main.mlirb", err), done);
    TRY_GOTO(map_open(&program, path, err), done);
    sha256_init(&s);
    sha256_update(&s, program.data, program.size);
    sha256_final(&s, digest);
    map_close(&program);
    if (hash.len != sizeof digest || memcmp(hash.data, digest, sizeof digest) != 0)
        status = err_set(err, TERN_BAD_FORMAT, "%s is damaged: its SHA-256 is not the one in main.hash", path);
done:
    json_free(j);
    buf_release(&hash);
    buf_release(&text);
    return status;
}
