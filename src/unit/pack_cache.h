// Packed weights as files: of the cpu unit in its kernels' layouts, of the npu unit as int8 or fp16 rows. Private to
// unit/. A file says of which model, layout and class it is; the cache folder holds them by a key of the same, a file
// elsewhere is one that somebody named. pack_cache.c describes the format and what a start checks.
#pragma once
#include "base/base.h"
#include "unit/unit.h"

#define PACK_LAYOUT_CPU 2     // version of all layouts of the cpu unit's kernels (CPU_PACK_VERSION)
#define PACK_LAYOUT_NPU 0x101 // of the npu unit's rows (npu_pack.c)

// One matrix in a pack file: everything that decides what its bytes mean.
struct pack_matrix {
    char name[64]; // of the tensor, cut
    uint32_t pack; // cpu: enum cpu_pack; npu: enum npu_format
    uint32_t format;
    int64_t n_out, n_in;
    uint64_t tile_bytes, n_tiles;
    uint64_t offset; // in the payload
};
// What a pack file must say to be this model's in this class.
struct pack_wanted {
    const char *model_digest, *model_name;
    uint32_t layout, numerics;
    uint64_t variant; // what else decides the bytes, hashed (npu: scales); 0: nothing
    const struct pack_matrix *table;
    uint32_t n_matrices;
    uint64_t payload_bytes;
};
#define PACK_NOTE_MAX 256

// Gives the payload in pieces, in order, by pack_put.
struct pack_sink;
typedef enum tern_status (*pack_produce)(void *arg, struct pack_sink *sink, struct tern_err *err);
enum tern_status pack_put(struct pack_sink *sink, const void *data, size_t n, struct tern_err *err);

// The cache. True: the file is mapped and fits; its payload starts at *payload. False: note says why.
bool pack_cache_load(const struct pack_wanted *w, struct os_map *out, const uint8_t **payload, char *note);
bool pack_cache_has(const struct pack_wanted *w);
// Writes the pack; false: note says why not. Never an error: a run without a cache is a sound run.
bool pack_cache_store(const struct pack_wanted *w, pack_produce produce, void *arg, char *note);

// A named file. TERN_NOT_FOUND: not there; TERN_BAD_FORMAT: damaged; TERN_MISMATCH: of another model, class or version.
enum tern_status pack_file_open(const char *path, const struct pack_wanted *w, struct os_map *out,
                                const uint8_t **payload, struct tern_err *err);
enum tern_status pack_file_write(const char *path, const struct pack_wanted *w, pack_produce produce, void *arg,
                                 struct tern_err *err);
// Is it whole, to the last byte of its weights?
enum tern_status pack_file_verify(const char *path, const struct pack_wanted *w, struct tern_err *err);
