// Operation lists for tests of the NPU back ends: every operation with random operands, and a plain evaluation of any
// list in float, each result rounded to fp16 as runtimes do at least.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_store.h"
#include "unit/npu/oplist.h"

// A list over every operation kind, with two states, inputs of two widths and nine outputs. Never NULL.
struct npu_list *npu_every_op(struct npu_store *s, const char *name, uint64_t seed);
// The memory of a list's inputs, outputs and states, zeroed; random_fill fills inputs and old states in [-1, 1).
struct npu_test_buffers {
    void **inputs, **outputs, **old, **now;
    struct arena arena;
};
void npu_test_buffers_init(struct npu_test_buffers *b, const struct npu_list *l);
void npu_test_buffers_fill(struct npu_test_buffers *b, const struct npu_list *l, uint64_t seed);
void npu_test_buffers_release(struct npu_test_buffers *b);
void npu_test_reference(const struct npu_list *l, const struct npu_test_buffers *b);
