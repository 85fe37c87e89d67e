// See tiny_drafter_folder.h.
#include "tiny_drafter_folder.h"
#include "drafter_folder.h"
#include "tiny_drafter.h"

#define LAYERS 2
#define SEED 5

void tiny_drafter_write(const char *target_path, const char *path, bool as_dflash) {
    struct model *target = NULL;
    struct tern_err err = {0};
    if (model_open(&target, target_path, &err) != TERN_OK) TERN_BUG("tiny drafter: %s", err.message);
    struct model *drafter = tiny_drafter_create(target, LAYERS, FORMAT_F32, SEED);
    drafter_folder_write(drafter, path, as_dflash);
    tiny_drafter_free(drafter);
    model_close(target);
}
