// A whole model computed by op/'s scalar reference in the plainest way: one text, all rows, layer by layer, no state
// kept. What units are compared with, bit for bit, whatever steps, windows, trees or threads they used.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "op/op.h"
#include "prog/prog.h"

struct reference_options {
    enum prog_class numerics;
    enum op_kv_type kv_type;
    bool full; // every row sees all rows, taps are centred: the encoder
};
// Rows after the final norm, [n][n_embd].
void reference_run(const struct model *m, const struct reference_options *o, const int32_t *tokens, int n,
                   float *hidden);
// Logits, [n_vocab], of one such row.
void reference_logits(const struct model *m, const struct reference_options *o, const float *hidden, float *logits);
