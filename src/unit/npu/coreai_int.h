// The Core AI back end's own parts: coreai_template.c fills assets, coreai_run.c runs them.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_backend.h"

#define COREAI_TEMPLATE_FORMAT 1
#define COREAI_BLOCKS_MAX 65536
#define COREAI_SKELETON_MAX ((size_t)1 << 30) // bytes
#define COREAI_TEMPLATE_TEXT_MAX ((size_t)64 << 20)
#define COREAI_DIGEST_LEN 64 // hex

// Writes asset (a folder *.aimodel, made; what was there is replaced) from a template and the weights of the lists.
// TERN_NOT_FOUND: no template there; TERN_BAD_FORMAT: damaged; TERN_MISMATCH: of another geometry. model_digest is kept
// in the asset. The order of lists is that of npu_lists_json.
enum tern_status coreai_fill(const char *template_dir, const char *asset, const struct npu_list *const *lists, int n,
                             const char *model_digest, struct tern_err *err);
// What an asset says of itself, and whether its program is as it was written (main.hash).
struct coreai_asset_info {
    char lists[COREAI_DIGEST_LEN + 1], model[COREAI_DIGEST_LEN + 1];
};
enum tern_status coreai_asset_check(const char *asset, struct coreai_asset_info *out, struct tern_err *err);

// A template's description, checked: blocks ascend, do not overlap, and lie inside the program.
enum coreai_part { COREAI_Q, COREAI_SCALE, COREAI_HALF };
struct coreai_block {
    const char *name;
    enum coreai_part part;
    uint64_t offset, bytes; // in the filled program
};
struct coreai_template {
    char lists[COREAI_DIGEST_LEN + 1]; // digest of the operation lists it was made from
    char skeleton[COREAI_DIGEST_LEN + 1];
    char asset_version[16];
    uint64_t bytes; // of the filled program
    struct coreai_block *blocks;
    int n_blocks;
    struct arena arena;
};
// t is to be released in any case. name: for messages.
enum tern_status coreai_template_parse(struct coreai_template *t, struct str text, const char *name,
                                       struct tern_err *err);
void coreai_template_release(struct coreai_template *t);
