// From program IR to an operation list. Private to unit/npu.
//
// Every kind of program but a commit is lowered by the same walk over its ops: the whole model (without a head: fill;
// with `n_pick` head columns: last, batch; with the head on all columns: verify), ranges of layers, segments and
// attention cores, an encoder, a drafter's injection and block. What makes the kinds differ beyond that (chain or tree,
// one sequence or 32, which rows see which) is in the inputs that the host fills for each call (npu_host.h).
//
// Refused by name (TERN_UNSUPPORTED): experts, gelu gates, sliding windows, a second RoPE base, commits.
#pragma once
#include "base/base.h"
#include "prog/prog.h"
#include "unit/npu/npu_store.h"
#include "unit/npu/oplist.h"

// Powers of two folded into weights, so that fp16 neither overflows nor vanishes; zeros change nothing. The function of
// the program stays: what is scaled on the way in is unscaled on the way out.
struct npu_scales {
    int residual;        // the residual stream carries x * 2^residual; rows that enter and leave do too
    int n_layers;        // 0: all layer exponents are zero
    const int8_t *ffn;   // [n_layers] silu(gate) * up carries 2^ffn
    const int8_t *conv;  // [n_layers] B * X carries 2^conv, in the stored frames too
    const int8_t *value; // [n_layers] V carries 2^value, in the cache too
    const int8_t *key;   // [n_layers] unused by models whose q and k are normed: q carries 2^-key, K 2^key
};

struct npu_lower_options {
    const char *name; // of the list
    int window;       // S: a multiple of 32, at least the program's window
    int bucket;       // T: cache columns, a multiple of 32
    int n_chunks;     // of attention, 1 or 8: exactly merged
    int n_frames;     // F: a multiple of 32; at least 2 for each sequence of a step. 0 in an encoder
    int n_pick;       // R: head columns chosen by "pick", a multiple of 32; 0: the head sees all S columns
    bool stateful;    // KV and frames are states of the program (blocks of 32, base moves by 0, 32 or S) …
    bool plain_norm;  // x * rsqrt(mean(x^2) + eps): squares overflow from 256 on. Default: safe at any magnitude
    bool logits;      // give full logits beside maximum and index
    const struct npu_scales *scales; // NULL: none
};
enum tern_status npu_lower(struct npu_list **out, const struct prog *p, struct npu_store *s,
                           const struct npu_lower_options *o, struct tern_err *err);
// Why a model's programs cannot be lowered, or TERN_OK: the same refusals, before anything is built.
enum tern_status npu_lower_check(const struct model *m, struct tern_err *err);
