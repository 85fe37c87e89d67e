// Private to prog/: the builder's working state, the table of operations, and what the step's builder and its check
// share.
#pragma once
#include "prog/prog.h"

#define PROG_ALIGN 64            // bytes; planned values start on it
#define PROG_LAYER_OPS_MAX 16    // an attention layer with experts and a feature tap has 11
#define PROG_LAYER_VALUES_MAX 14 // values that one layer creates
#define PROG_EDGE_OPS_MAX 8      // embed, rope table, ports, head
#define PROG_HEAD_OUTPUTS (PROG_OUT_LOGITS | PROG_OUT_ARGMAX | PROG_OUT_HIDDEN)
#define PROG_ALL_OUTPUTS (PROG_HEAD_OUTPUTS | PROG_OUT_FEATURES | PROG_OUT_ROWS)
#define PROG_NONE (-1) // no value, no layer, no index

// What an operation looks like; a negative count depends on the op's fields (prog_op_counts).
struct prog_op_info {
    const char *name;
    int n_in, n_out, n_w;
    bool needs_layer, needs_attn_index, needs_conv_index;
};
extern const struct prog_op_info prog_op_table[PROG_OP_COUNT];
const char *prog_kind_name(enum prog_kind k);
const char *prog_port_name(int port);
// Inputs, outputs and weights that op must have.
void prog_op_counts(const struct prog_op *op, int *n_in, int *n_out, int *n_w);

// Layers of `kind` in [begin, end).
int prog_layer_count(const struct model *m, enum layer_kind kind, int begin, int end);
// Columns of PORT_ROWS_IN and PORT_ROWS_OUT.
int64_t prog_rows_cols(const struct prog *p, bool in);
// Layer of the index-th attention layer of the model, or -1.
int prog_attn_layer(const struct model *m, int index);

// prog_spec.c. range: the layers that the program touches.
enum tern_status prog_spec_check(const struct model *m, const struct prog_spec *s, int range[2], struct tern_err *err);
int prog_state_end(const struct model *m, const struct prog_spec *s); // state_end, 0, 0 resolved

struct prog_builder {
    struct prog *p;
    const struct model *m;
    const struct prog_spec *spec;
    int ops_cap, values_cap;
    int x;          // value of the residual stream
    int rope;       // value of the rope table, or PROG_NONE
    int rope_local; // of the one at the local base, or PROG_NONE
    int q, k, v;    // values of the attention layer in work
    int attn;       // its core's result
};
// build_layers.c: parts of programs, each appends ops.
void build_embed(struct prog_builder *b);
void build_rope(struct prog_builder *b);
void build_attn_in(struct prog_builder *b, int layer);   // norm, q, k, v, norm and rotation
void build_attn_core(struct prog_builder *b, int layer); // K/V write, attention
void build_attn_out(struct prog_builder *b, int layer);  // output projection into x
void build_conv_in(struct prog_builder *b, int layer, int *out);
void build_conv_out(struct prog_builder *b, int layer, int in);
void build_ffn(struct prog_builder *b, int layer); // and the feature tap behind it
void build_layers(struct prog_builder *b, int begin, int end, bool cut_last);
void build_inject(struct prog_builder *b); // feature rows to K/V of all layers
int build_port_in(struct prog_builder *b, enum prog_port port, const char *name, int n_cols);
void build_port_out(struct prog_builder *b, enum prog_port port, int value);
struct prog_op *build_op(struct prog_builder *b, enum prog_op_kind kind, int layer);
int build_value(struct prog_builder *b, const char *name, int n_cols);

// prog_memory.c
// First and last op of every value; {-1, -1} for a value that no op touches.
void prog_lifetimes(const struct prog *p, int *first, int *last);
bool prog_value_bytes(const struct prog *p, int value, uint64_t *out); // rounded up to PROG_ALIGN
// Sets lifetimes and offsets of all values and work_bytes.
enum tern_status prog_memory_plan(struct prog *p, struct tern_err *err);

// prog_verify_ops.c: shapes, weights and indices of op number i. The caller puts the op's name before the message.
enum tern_status prog_verify_op(const struct prog *p, int i, struct tern_err *err);

// step.c: the tap at distance n (0: the row itself) of a causal convolution.
int16_t step_causal_tap(const struct step *s, int row, int n);
