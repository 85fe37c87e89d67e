// A library with the three functions of coreai_shim.h for tests: every output becomes the bits of its name's length,
// every state is counted up by one in each value, and a tensor that is not dense is refused.
#include "unit/npu/coreai_shim.h"
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))
static int model;

static void tell(char *message, int64_t cap, const char *text) {
    for (int64_t i = 0; i < cap; i++) {
        message[i] = text[i];
        if (text[i] == 0) break;
    }
}

SHOWN void *tern_coreai_load(const char *path, int32_t unit, char *message, int64_t cap) {
    if (unit != TERN_COREAI_GPU && strstr(path, ".aimodel")) return &model;
    tell(message, cap, "this asset is not for that unit");
    return NULL;
}

static int64_t dense_values(const tern_coreai_tensor *t) { // -1: not dense
    int64_t n = 1;
    for (int i = t->rank - 1; i >= 0; i--) {
        if (t->stride[i] != n) return -1;
        n *= t->shape[i];
    }
    return n * 2 == t->bytes ? n : -1;
}

SHOWN int32_t tern_coreai_run(void *m, const char *function, const tern_coreai_tensor *in, int64_t n_in,
                              const tern_coreai_tensor *state, int64_t n_state, const tern_coreai_tensor *out,
                              int64_t n_out, char *message, int64_t cap) {
    if (m != &model || strcmp(function, "every") != 0) {
        tell(message, cap, "no such function");
        return 1;
    }
    for (int64_t i = 0; i < n_in + n_state + n_out; i++) {
        const tern_coreai_tensor *t = i < n_in             ? &in[i]
                                      : i < n_in + n_state ? &state[i - n_in]
                                                           : &out[i - n_in - n_state];
        int64_t n = dense_values(t);
        uint16_t *v = t->data;
        if (n < 0) {
            tell(message, cap, "a tensor is not dense");
            return 1;
        }
        bool counts = i < n_in + n_state;
        for (int64_t k = 0; k < n && i >= n_in; k++) v[k] = (uint16_t)(counts ? v[k] + 1u : strlen(t->name));
    }
    return 0;
}

SHOWN void tern_coreai_free(void *m) { (void)m; }
