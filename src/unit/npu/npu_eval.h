// The evaluator: runs an operation list on this CPU with the arithmetic of a rule set. Private to unit/npu.
//
// Values are floats that hold what the rule set stores (fp16 values, but for rule set fp32). Scratch memory is planned
// by lifetimes when an evaluator is made; a run allocates nothing. Evaluators that never run at the same time may share
// one piece of scratch (npu_eval_bind); inputs lie in it, so they are filled for every run.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_kernels.h"
#include "unit/npu/npu_rules.h"
#include "unit/npu/oplist.h"

// Activations rounded before convolutions, to judge it: int8 with one step for a whole tensor, the largest magnitude by
// 127, taken anew in every run (which no engine can do cheaper, so an engine's fixed steps are worse).
enum npu_act {
    NPU_ACT_PLAIN,
    NPU_ACT_INT8,    // before every convolution (W8A8)
    NPU_ACT_INT8_IN, // before those that read a normed residual: q, k, v, convolution in, gate, up
};

struct npu_eval;
struct npu_eval_options {
    const struct npu_rules *rules;
    const struct npu_kernels *kernels; // NULL: the best here
    struct team *team;                 // NULL: this thread alone
    enum npu_act act;
    bool shared; // scratch and states are given by npu_eval_bind and npu_eval_state_bind
    bool halves; // keys and values of committed positions are fp16 (npu_eval_half_at): half the memory of the scratch
};
// l outlives the evaluator.
enum tern_status npu_eval_create(struct npu_eval **out, const struct npu_list *l, const struct npu_eval_options *o,
                                 struct tern_err *err);
void npu_eval_free(struct npu_eval *e); // NULL is fine
uint64_t npu_eval_scratch_bytes(const struct npu_eval *e);
uint64_t npu_eval_bytes(const struct npu_eval *e); // without scratch
void npu_eval_bind(struct npu_eval *e, void *scratch);
void npu_eval_state_bind(struct npu_eval *e, int state, float *values); // kept by the caller from run to run
float *npu_eval_state(struct npu_eval *e, int state);
// Where an input is written before a run, or an output read after it.
float *npu_eval_at(struct npu_eval *e, int tensor);
// The same of an input that is kept as fp16; NULL: it is not, npu_eval_at has it.
uint16_t *npu_eval_half_at(const struct npu_eval *e, int tensor);
void npu_eval_half_bind(struct npu_eval *e, int tensor, uint16_t *at); // it lies there instead of in the scratch
// Columns of the window (and of the head) from n on are read by nobody in the next runs: products make them zero and
// functions leave them finite instead of computing them. 0: all are wanted.
void npu_eval_columns(struct npu_eval *e, int n);
void npu_eval_run(struct npu_eval *e);

// What an op's results were, over all runs since the last clear, for calibration. Kept when observed.
struct npu_site {
    float max;          // largest finite magnitude
    uint64_t n, n_over; // values; of them beyond fp16 (infinite and NaN too)
    uint64_t n_tiny;    // of them not zero but below the smallest normal fp16 number
};
enum tern_status npu_eval_observe(struct npu_eval *e, bool on, struct tern_err *err);
const struct npu_site *npu_eval_sites(const struct npu_eval *e); // [n_ops], NULL when not observed
