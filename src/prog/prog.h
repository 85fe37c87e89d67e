// The face of prog/: static programs. A program is a model (or a part of it) at a fixed window of W rows with a fixed
// set of outputs, as a list of coarse operations over planned buffers. Shapes never change after it is built; what
// changes from run to run is the step: rows, positions, sequences.
//
//   model ──prog_build──▶ struct prog ──unit: compile──▶ program on a unit ──submit(step)──▶ outputs
//
// The same IR feeds every unit, the cost model and the simulator. Programs and layouts are immutable after building.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "op/op.h"

struct unit_buffer; // memory of a unit (unit.h)

// ------------------------------------------------------------------------------------------------------------ state
//
// What sequences carry, in two pools of a unit's memory shared by all its sequences:
//   KV blocks   block b holds positions 32*j … 32*j+31 of one sequence for all attention layers of the range:
//               [attention layer][K: n_head_kv × K half | V: n_head_kv × V half]   (halves: op_kv_half_bytes)
//   conv slots  slot s holds [conv layer][conv_len - 1][n_embd] floats: the last u rows, oldest first; zeros at the
//   start
// A sequence is a table of block numbers, a length and a slot number: copy, truncate, fork and hand-off are table work
// plus block copies. After the conv slots lies the window area: [conv layer][W][n_embd] floats, the u rows of the last
// step submitted with STEP_KEEP_ROWS, from which a commit program takes the accepted ones.

enum state_tag { STATE_CPU_V1 = 1 }; // layouts that units read; another layout gets its own tag

struct state_layout {
    enum state_tag tag;
    enum op_kv_type kv_type;
    int layer_begin, layer_end; // of the model
    int n_attn, n_conv;         // layers of each kind in the range
    int n_head_kv, head_dim;    // the same in every attention layer (checked)
    int n_embd, conv_len;
    int window;            // rows of the window area
    uint64_t block_bytes;  // one KV block, all layers
    uint64_t half_bytes;   // one K or V half of one head
    uint64_t slot_bytes;   // one conv slot, all layers
    uint64_t window_bytes; // the window area
};
enum tern_status state_layout_init(struct state_layout *out, const struct model *m, enum op_kv_type kv_type,
                                   int layer_begin, int layer_end, int window, struct tern_err *err);
// Byte offsets. attn_index / conv_index count layers of that kind from layer_begin.
uint64_t state_k_offset(const struct state_layout *l, int32_t block, int attn_index, int head);
uint64_t state_v_offset(const struct state_layout *l, int32_t block, int attn_index, int head);
uint64_t state_conv_offset(const struct state_layout *l, int32_t slot, int conv_index);           // in the conv buffer
uint64_t state_window_offset(const struct state_layout *l, int n_slots, int conv_index, int row); // in the conv buffer
bool state_kv_bytes(const struct state_layout *l, int n_blocks, uint64_t *out);                   // false: overflow
bool state_conv_bytes(const struct state_layout *l, int n_slots, uint64_t *out);                  // slots + window area
// Text of what makes states exchangeable (tag, types, sizes, layer range): equal text, equal layout.
bool state_layout_describe(const struct state_layout *l, struct buf *out);

// The pools as allocated on a unit.
struct state_pool {
    struct state_layout layout;
    struct unit_buffer *kv;   // n_blocks * block_bytes
    struct unit_buffer *conv; // n_slots * slot_bytes + window_bytes
    int n_blocks, n_slots;
};

// ------------------------------------------------------------------------------------------------------------ step

#define STEP_WINDOW_MAX 4096
#define STEP_SEQS_MAX 256
#define STEP_TAP_ZERO INT16_MIN
#define STEP_TAP_STORED(k) ((int16_t)(-1 - (k))) // stored u row, k = 0 the newest
#define STEP_NO_PARENT (-1)

enum step_flags {
    STEP_KEEP_ROWS = 1 << 0, // a verify step: u rows go to the window area; conv slots and lengths stay until a commit
    STEP_FULL =
        1 << 1, // rows see all rows of their sequence in the window (encoder, drafter block), not only ancestors
    STEP_SHOW_ROWS = 1 << 2, // u rows go to the window area too, from which the state behind any row can be read
};

struct step_row {
    int32_t token;  // id; ignored by programs that start from rows
    int32_t pos;    // absolute position: committed length + depth
    int32_t slot;   // KV position index where this row's K/V go: == pos in a chain, len + row order in a tree
    int16_t seq;    // index into seqs
    int16_t parent; // row it follows, or STEP_NO_PARENT: it follows the committed context
};
struct step_seq {
    const int32_t *blocks; // block table, [n_blocks]; covers every slot written and every position read
    int n_blocks;
    int32_t len;      // committed positions: every row sees 0 … len-1
    int32_t conv_in;  // conv slot read; -1: zeros (a fresh sequence)
    int32_t conv_out; // conv slot written with the last rows ending at row_last; -1: none
    int16_t row_last; // last row of the sequence's chain in this step, or -1
};
// What one run of a program works on. Arrays are borrowed until the step has been waited for.
struct step {
    uint32_t flags;
    int n_rows;                  // 1 … window
    const struct step_row *rows; // [n_rows]; a parent comes before its children
    const int16_t *taps; // [n_rows][n_taps]: for each tap of the convolution, oldest first, the row it reads; a row
                         // index, STEP_TAP_STORED(k) or STEP_TAP_ZERO. Causal: {grandparent, parent, self};
                         // centred (encoder): {i-1, i, i+1}
    int n_taps;          // the model's conv_len (0 without convolution layers)
    int n_seqs;
    const struct step_seq *seqs;
    const struct state_pool *pool; // NULL for programs without state
    int n_out;                     // rows that want the head's output …
    const int16_t *out_rows;       // … ascending
    int out_begin, out_end;        // PROG_LINEAR: range of output columns of the weight (row split); 0, 0: all
    // Ports (prog.h, enum prog_port): where inputs lie and outputs go; buf NULL where the program has no such port.
    struct step_port {
        struct unit_buffer *buf;
        uint64_t offset; // bytes
    } ports[8];
};

// Storage for building steps without allocation: capacity window rows, n_seqs sequences. Adding beyond either is a bug
// (TERN_BUG). What has no function here (out_begin, ports) is set in `step` between step_begin and step_end.
struct step_builder {
    struct step step;
    int window, n_taps, seqs_cap;
    struct step_row *rows; // [window]
    int16_t *taps;         // [window * n_taps]
    int16_t *out_rows;     // [window]
    struct step_seq *seqs; // [seqs_cap]
    int32_t *last_row;     // [seqs_cap] newest row of each sequence while building
};
enum tern_status step_builder_init(struct step_builder *b, struct arena *a, int window, int n_taps, int seqs_cap,
                                   struct tern_err *err);
void step_begin(struct step_builder *b, const struct state_pool *pool, uint32_t flags);
// Returns the sequence's index. conv_out < 0: the state is not written (verify).
int step_add_seq(struct step_builder *b, const int32_t *blocks, int n_blocks, int32_t len, int32_t conv_in,
                 int32_t conv_out);
// Appends the next row of the sequence's chain (prefill, decode, chain verify). wants_out: the head runs on it.
int step_add_chain_row(struct step_builder *b, int seq, int32_t token, bool wants_out);
// Appends a tree row under parent (a row of the same sequence, or STEP_NO_PARENT for a root that follows the context).
int step_add_tree_row(struct step_builder *b, int seq, int32_t token, int parent, bool wants_out);
// Appends a row of a bidirectional text (STEP_FULL): taps are centred when centred, else causal.
int step_add_full_row(struct step_builder *b, int seq, int32_t token, bool centred, bool wants_out);
// Appends row `row` of the verify step v to the accepted path of a sequence, for PROG_COMMIT: position, slot and taps
// are taken over from v. Rows of a path come in its order, from the root on.
int step_add_path_row(struct step_builder *b, int seq, const struct step *v, int row);
// Sets row_last (-1 where the rows of a sequence are no single chain) and gives the finished step.
const struct step *step_end(struct step_builder *b);

// Parent of row i at distance n (0: itself), or a negative number when it is committed context.
int step_ancestor(const struct step *s, int row, int n);
// True when the rows of sequence seq are one chain with slot == pos: its K/V lie where its positions say.
bool step_seq_is_chain(const struct step *s, int seq);

// ------------------------------------------------------------------------------------------------------------ IR

enum prog_kind {
    PROG_WHOLE,   // tokens -> head
    PROG_LAYERS,  // layers [a, b): starts from tokens when a == 0, else from PORT_ROWS_IN; ends with the head when
                  // b == n_layers and outputs ask for it, else PORT_ROWS_OUT
    PROG_SEGMENT, // the part between two attention cores: segment i starts behind the core of attention layer i-1 (from
                  // the residual and PORT_ATTN) and ends before the core of attention layer i (PORT_ROWS_OUT and
                  // PORT_QKV); the first starts from tokens, the last ends with the head
    PROG_ATTN,    // one attention core alone: PORT_QKV -> K/V written, PORT_ATTN
    PROG_LINEAR,  // one weight: PORT_ROWS_IN -> PORT_ROWS_OUT, columns [out_begin, out_end) of the step: rows are n_out
                  // floats apart, columns outside the range stay as they are. Looks at n_rows alone of the step's rows
    PROG_COMMIT, // after a verify step: rows = the accepted path in order (step_add_path_row). Moves their K/V to their
                 // positions (slot -> pos, rows ascending) and writes conv_out. taps are those of the verify step, so a
                 // row index means a row of the window area: the new slot's rows are taps 1 … n_taps-1 of row_last,
                 // from the window area, conv_in's stored rows, or zero (ascending, so conv_out may be conv_in)
    PROG_ENCODER, // tokens -> final normed rows, bidirectional (STEP_FULL): all rows to PORT_HIDDEN, out_rows or not
    // Of a drafter (model.h, struct model_drafter); these two, PROG_LINEAR and no other kind.
    PROG_INJECT, // PORT_ROWS_IN, the target's feature rows of committed positions -> K/V of every layer, at each row's
                 // position. Rows are chains behind the committed length; no outputs
    PROG_DRAFT,  // tokens [anchor, mask, mask, …] (STEP_FULL) over the committed context -> head: base logits, hidden
                 // rows. Writes the block's K/V behind the committed length, where the next PROG_INJECT puts its own
};
enum prog_port {
    PORT_ROWS_IN,  // float [W, n]: residual rows, the input of PROG_LINEAR, or feature rows (PROG_INJECT; laid out as
                   // PORT_FEATURES of the target with the drafter's feature layers)
    PORT_ROWS_OUT, // float [W, n]
    PORT_QKV,      // float [W, (n_head + 2 n_head_kv) * head_dim]: normed and rotated q, k, then v
    PORT_ATTN,     // float [W, n_head * head_dim]: the core's result
    PORT_LOGITS,   // float [n_out, n_vocab]
    PORT_ARGMAX,   // struct prog_argmax [n_out]
    PORT_FEATURES, // float [W, n_features * n_embd]: residual rows right after each feature layer
    PORT_HIDDEN,   // float [n_out, n_embd]: rows after the final norm
};
struct prog_argmax {
    int32_t id;
    float max;
};
enum prog_output { // bit mask
    PROG_OUT_LOGITS = 1 << 0,
    PROG_OUT_ARGMAX = 1 << 1,
    PROG_OUT_FEATURES = 1 << 2,
    PROG_OUT_HIDDEN = 1 << 3,
    PROG_OUT_ROWS = 1 << 4,
};
// PROG_CLASS_BF16: BF16 weights by activations in bf16, all else as PROG_CLASS_INT8.
enum prog_class { PROG_CLASS_INT8, PROG_CLASS_FP32, PROG_CLASS_BF16, PROG_CLASS_COUNT };
const char *prog_class_name(enum prog_class c);
#define PROG_FEATURES_MAX 16

struct prog_spec {
    enum prog_kind kind;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window;                  // W
    int n_out_max;               // rows that the head can serve in one step; 0 with no head output; -1: W
    uint32_t outputs;            // enum prog_output
    int layer_begin, layer_end;  // PROG_LAYERS
    int state_begin, state_end;  // layers of the pools that it runs on (state_layout); 0, 0: the whole model
    int index;                   // PROG_SEGMENT: 0 … n_attn; PROG_ATTN: attention layer 0 … n_attn-1
    const struct tensor *weight; // PROG_LINEAR
    int feature_layers[PROG_FEATURES_MAX];
    int n_features;
};

// Operations, coarse enough to fuse by hand and fine enough to lower everywhere. In and out are values (buffers) by
// number.
enum prog_op_kind {
    PROG_OP_EMBED,      // out[0] = embedding rows of the tokens
    PROG_OP_ROPE_TABLE, // out[0] = cos/sin of every row's position; index 1: at the local base
    PROG_OP_RMSNORM,    // out[0] = norm(in[0]) * w[0]; add: out[0] = in[1] + that (in[1] == out[0] allowed)
    PROG_OP_LINEAR, // out[i] = w[i] · in[0] for i < n_w (same input, quantised once); swiglu: out[0] = silu(w0·x) *
                    // (w1·x); add: out[0] = in[1] + w0·x (the residual; in[1] == out[0] allowed)
    PROG_OP_QK_NORM_ROPE, // in place on in[0] = q, in[1] = k, with table in[2], norms w[0], w[1] (NULL: none); then q
                          // *= attn_scale
    PROG_OP_K_NORM_ROPE,  // the same for k alone: in place on in[0], table in[1], norm w[0]
    PROG_OP_KV_WRITE,     // k = in[0], v = in[1] -> the layer's blocks at each row's slot
    PROG_OP_ATTENTION,    // out[0] = attention of q = in[0] over the layer's blocks
    PROG_OP_SHORT_CONV,   // in[0] = [B|C|X]; u rows kept (state / window area); out[0] = C * conv(u), taps w[0]
    PROG_OP_ROUTE,        // in[0] = the router's logits; out[0] = n_expert_used experts, as int32, then their weights;
                          // w[0] the bias of the choice (NULL: none)
    PROG_OP_EXPERTS,      // out[0] = in[1] + the chosen experts' result for in[0] (in[1] == out[0]), routes in[2];
                          // scratch: out[1] their gated rows, out[2] the sum. The layer's experts are its weights
    PROG_OP_TAP,          // copies in[0] into PORT_FEATURES at column index * n_embd
    PROG_OP_HEAD,         // rows out_rows of in[0]: norm w[0], then w[1]: logits, argmax, hidden as the outputs ask
    PROG_OP_NORM_OUT,     // encoder: final norm of all rows to PORT_HIDDEN
    PROG_OP_PORT_IN,      // out[0] = port `index` (out[1], out[2] beside it, for PORT_QKV)
    PROG_OP_PORT_OUT,     // port `index` = in[0] (in[1], in[2] beside it, for PORT_QKV)
    PROG_OP_COMMIT,       // see PROG_COMMIT
    PROG_OP_COUNT
};
struct prog_value {
    int n_cols;            // floats per row
    int first_op, last_op; // lifetime, inclusive
    uint64_t offset;       // bytes in the program's work memory (64-byte aligned); size window * n_cols * 4
    const char *name;      // "x", "q", … for the dump
};
#define PROG_OP_INPUTS 4
#define PROG_OP_WEIGHTS 3
struct prog_op {
    enum prog_op_kind kind;
    int layer;              // of the model, or -1
    int state_index;        // attention or conv index inside the state layout, or -1
    int in[PROG_OP_INPUTS]; // value numbers, -1: unused
    int out[PROG_OP_WEIGHTS];
    const struct tensor *w[PROG_OP_WEIGHTS];
    int n_w;
    bool swiglu, add; // PROG_OP_LINEAR, RMSNORM (add); the gate is the model's, silu or gelu
    int index;        // port, or feature index
};
struct prog {
    struct prog_spec spec;
    const struct model *model;
    const struct model_hyper *hyper;
    struct prog_op *ops;
    int n_ops;
    struct prog_value *values;
    int n_values;
    uint64_t work_bytes;        // of the planned values
    bool needs_state;           // steps need a pool
    bool reads_tokens;          // starts with PROG_OP_EMBED
    bool has_attn, has_conv;    // ops that touch KV blocks / conv slots
    bool has_windows;           // layers with a sliding window: rows cannot see one another in both directions
    bool has_head;              // PROG_OP_HEAD: out_rows count
    uint32_t ports;             // bit per enum prog_port that ops read or write
    int n_out_max;              // of the spec, -1 resolved
    int layer_begin, layer_end; // what it covers
    struct arena arena;
};
enum tern_status prog_build(struct prog **out, const struct model *m, const struct prog_spec *spec,
                            struct tern_err *err);
void prog_free(struct prog *p);
// Checks a program against the rules of the IR: shapes, lifetimes, no overlap of live buffers, weights of the right
// size, ports. A failure is a bug of a builder; the message names the op.
enum tern_status prog_verify(const struct prog *p, struct tern_err *err);
// Bytes that a step needs behind its port's offset: 0 when the program has no such port or the step leaves it unused.
uint64_t prog_port_bytes(const struct prog *p, const struct step *s, enum prog_port port);
// Checks a step against a program and its pool: ranges, parents before children, taps, tables, ports bound (their
// buffers' sizes are the unit's to check). Cheap: once per step.
enum tern_status step_check(const struct prog *p, const struct step *s, struct tern_err *err);
bool prog_dump(const struct prog *p, struct buf *out); // one line per op, for people
// Arithmetic and memory traffic of one step with n_rows rows, n_out head rows, behind ctx positions.
struct prog_cost {
    double flops;        // multiply-adds counted as two
    double weight_bytes; // read once per step
    double kv_bytes;
};
struct prog_cost prog_cost_get(const struct prog *p, int n_rows, int n_out, int64_t ctx);
