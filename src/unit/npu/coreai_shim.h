// What C needs of Core AI on macOS, which has a Swift interface alone: three functions of a library that
// tools/coreai/coreai_shim.swift becomes there. Plain C types only: Swift imports this header.
#pragma once
#include <stdint.h>

enum { TERN_COREAI_DEFAULT = 0, TERN_COREAI_NEURAL_ENGINE = 1, TERN_COREAI_GPU = 2, TERN_COREAI_CPU = 3 };

typedef struct {
    const char *name;
    void *data; // the caller's, fp16, borrowed for the call
    int64_t bytes;
    int32_t rank;
    int64_t shape[5], stride[5]; // strides in elements
} tern_coreai_tensor;

// A compiled asset (*.aimodel) for a preferred unit; NULL after a message. The first use of an asset takes minutes.
void *tern_coreai_load(const char *path, int32_t unit, char *message, int64_t cap);
// One call of a function; blocks. States are updated where they lie. 0: done; else message says why not.
int32_t tern_coreai_run(void *model, const char *function, const tern_coreai_tensor *in, int64_t n_in,
                        const tern_coreai_tensor *state, int64_t n_state, const tern_coreai_tensor *out, int64_t n_out,
                        char *message, int64_t cap);
void tern_coreai_free(void *model);
