// What the tests of the NPU back ends share.
#pragma once
#include "../base/base_test.h"
#include "../../common/npu_lists.h"
#include "../../common/tiny_model.h"
#include "unit/npu/npu_backend.h"
#include <math.h>
#include <stdlib.h>

// OpenVINO's thread library loads itself in a way that the address sanitizer ends the process for.
#if defined(__SANITIZE_ADDRESS__)
#define OPENVINO_LOADS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define OPENVINO_LOADS 0
#endif
#endif
#ifndef OPENVINO_LOADS
#define OPENVINO_LOADS 1
#endif

// NULL after skip(): the runtime is not here. With CI set that is a failure; what is here and does not open always is.
static inline struct npu_backend *backend_open_or_skip(const struct npu_backend_driver *d,
                                                       const struct npu_backend_options *options) {
    struct npu_backend_options o = options ? *options : (struct npu_backend_options){.n_threads = 1};
    struct npu_backend *b = NULL;
    struct tern_err err;
    if (d == &npu_openvino_backend && !OPENVINO_LOADS) skip();
    enum tern_status status = d->open(&b, &o, &err);
    if (status == TERN_OK) return b;
    bool is_ci = env_get("CI") && !env_get("TERN_TEST_SHORT"); // not with sanitizers, not in an emulator
    if (status != TERN_NOT_FOUND || is_ci) fail_msg("%s does not open: %s", d->title, err.message);
    print_message("skipped: %s\n", err.message);
    skip();
    return NULL;
}

static inline void check_open_fails(const struct npu_backend_driver *d, const struct npu_backend_options *o,
                                    enum tern_status status, const char *message) {
    struct npu_backend *b = (struct npu_backend *)(uintptr_t)1;
    struct tern_err err;
    uint64_t n_live = mem_stats_get().n_live;
    assert_int_equal(d->open(&b, o, &err), status);
    assert_contains(err.message, message);
    assert_contains(err.message, d->title);
    assert_null(b);
    assert_int_equal(mem_stats_get().n_live, n_live);
}

// A list over every operation, compiled and bound.
struct backend_case {
    const struct npu_backend_driver *d;
    struct model *model;
    struct npu_store *store;
    struct npu_list *list;
    struct npu_compiled *compiled;
    struct npu_binding *binding;
    struct npu_test_buffers io, want;
};
static inline void case_open(struct backend_case *c, const struct npu_backend_driver *d, struct npu_backend *b,
                             uint64_t seed) {
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    *c = (struct backend_case){.d = d, .model = tiny_model_create(&shape)};
    assert_ok(npu_store_create(&c->store, c->model, NPU_FORMAT_I8, &test_err));
    c->list = npu_every_op(c->store, "every", seed);
    npu_test_buffers_init(&c->io, c->list);
    npu_test_buffers_init(&c->want, c->list);
    npu_test_buffers_fill(&c->io, c->list, seed);
    npu_test_buffers_fill(&c->want, c->list, seed);
    assert_ok(d->compile(b, &c->compiled, c->list, &test_err));
    struct npu_buffers io = {.inputs = c->io.inputs, .outputs = c->io.outputs, .old = c->io.old, .now = c->io.now};
    assert_ok(d->bind(c->compiled, &c->binding, &io, &test_err));
}
static inline void case_close(struct backend_case *c) {
    c->d->unbind(c->binding);
    c->d->free(c->compiled);
    npu_test_buffers_release(&c->io);
    npu_test_buffers_release(&c->want);
    npu_list_free(c->list);
    npu_store_free(c->store);
    tiny_model_free(c->model);
}

// The largest |a - b| / (1 + |b|): rounding to fp16 is relative, and absolute only near zero.
static inline float largest_difference(const uint16_t *a, const uint16_t *b, int64_t n) {
    float most = 0;
    for (int64_t i = 0; i < n; i++) {
        float want = f16_to_f32(b[i]), d = fabsf(f16_to_f32(a[i]) - want) / (1 + fabsf(want));
        if (!(d <= most)) most = d;
    }
    return most;
}

// Two runs, the second from the first one's states, against the plain evaluation.
static inline void check_every_op(const struct npu_backend_driver *d, struct npu_backend *b, uint64_t seed,
                                  float bound) {
    struct backend_case c;
    case_open(&c, d, b, seed);
    const struct npu_list *l = c.list;
    for (int round = 0; round < 2; round++) {
        assert_ok(d->run(c.binding, &test_err));
        npu_test_reference(l, &c.want);
        for (int i = 0; i < l->n_outputs; i++) {
            const struct npu_tensor *t = &l->tensors[l->outputs[i]];
            int64_t n = npu_tensor_len(t);
            if (t->role == NPU_OUT_ARG) { // near ties may differ; the value there may not
                int n_equal = 0;
                for (int64_t k = 0; k < n; k++)
                    n_equal += ((uint16_t *)c.io.outputs[i])[k] == ((uint16_t *)c.want.outputs[i])[k];
                assert_true(n_equal * 10 >= n * 9);
                continue;
            }
            float most = largest_difference(c.io.outputs[i], c.want.outputs[i], n);
            if (getenv("TEST_VERBOSE")) print_message("%s seed %d: %g\n", t->name, (int)seed, (double)most);
            if (!(most <= bound)) fail_msg("%s differs by %g", t->name, (double)most);
        }
        for (int i = 0; i < l->n_states; i++) {
            int64_t n = npu_tensor_len(&l->tensors[l->states[i].now]);
            float most = largest_difference(c.io.now[i], c.want.now[i], n);
            if (!(most <= bound)) fail_msg("state %s differs by %g", l->states[i].name, (double)most);
            memcpy(c.io.old[i], c.io.now[i], (size_t)n * 2);
            memcpy(c.want.old[i], c.io.now[i], (size_t)n * 2);
        }
    }
    case_close(&c);
}
