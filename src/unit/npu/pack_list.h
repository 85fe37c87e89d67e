// Operation lists as text, for tools outside tern, and what names a set of them. Private to unit/npu.
#pragma once
#include "base/base.h"
#include "unit/npu/oplist.h"

// Elements up to which the text holds an fp16 constant's values: scalars of a geometry, too short to be found again in
// a template. Longer ones are named only.
#define NPU_LITERAL_MAX 15

// {"lists":[…]}: each with its tensors, operations, inputs, outputs and states. Equal geometry gives equal text.
bool npu_lists_json(struct buf *out, const struct npu_list *const *lists, int n);
// SHA-256 of that text, hex.
void npu_lists_digest(const struct buf *json, char out[65]);
