// A model's matrices for the npu unit as one packed file (unit/pack_cache.h): made once, then mapped, so that opening a
// model quantises nothing and all its programs read the same pages. Private to unit/npu.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_store.h"
#include "unit/npu/oplist_lower.h"
#include "unit/pack_cache.h"

#define NPU_SET_FILE "weights.pack" // in a folder of `tern compile --npu -o`

struct npu_pack {
    const struct model *model;
    enum npu_format format;
    const struct npu_scales *scales;
    struct team *team; // to make one, or NULL
    struct pack_wanted wanted;
    struct arena arena; // of the table
    struct os_map map;  // data NULL: not opened
    const uint8_t *payload;
};
// What the file must hold; makes no values. p is to be released in any case; scales live as long as p.
enum tern_status npu_pack_init(struct npu_pack *p, const struct model *m, enum npu_format format,
                               const struct npu_scales *scales, struct tern_err *err);
void npu_pack_release(struct npu_pack *p); // closes the map: after every store that reads it
// From the cache, made and kept there when it is not; false: note says why, and nothing is mapped. *made: it was not
// there before.
bool npu_pack_from_cache(struct npu_pack *p, bool *made, char note[PACK_NOTE_MAX]);
// A named file, which must be this model's.
enum tern_status npu_pack_open(struct npu_pack *p, const char *path, struct tern_err *err);
enum tern_status npu_pack_write(struct npu_pack *p, const char *path, struct tern_err *err);
// A store whose matrices are the pack's.
enum tern_status npu_pack_store(const struct npu_pack *p, struct npu_store **out, struct tern_err *err);
// Every constant that programs of the model use, by lowering each kind once.
enum tern_status npu_constants_make(struct npu_store *s, const struct npu_scales *scales, struct tern_err *err);
