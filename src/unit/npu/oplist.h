// The operation list: what an NPU program is before any runtime sees it. Private to unit/npu: the lowering
// (oplist_lower.c) makes lists from program IR, the evaluator and the back ends (ONNX Runtime, OpenVINO, Core AI) walk
// them.
//
// A list is a straight line of operations over tensors. All tensors are fp16 with static shapes of rank 1 to 5;
// activations are channel-first, (1, C, 1, S) with the window's S rows as columns. The set is exactly what Apple's Core
// AI runtime runs in fp16 and what every other NPU runtime can express; what each operation means there stands beside
// it in enum npu_op_kind. Weights are constants of two kinds: int8 per output channel with an fp16 scale, and fp16.
//
// How a back end walks a list:
//   1. for each tensor with role NPU_CONST: a constant from t->weight (data is borrowed from the weight store)
//   2. for each id in inputs[]: an input of that name and shape; NPU_STATE_OLD tensors are states (below)
//   3. for each op in order: one runtime operation over values made before; op->out is made once, by one op
//   4. for each id in outputs[]: an output of that name. An output may also be read by later ops
//   5. for each state: the value of tensor `old` is read when the call begins, `now` is what it becomes when it ends.
//      Core AI: read_handle / write_handle of one handle; others: an input and an output that the host swaps
// Names are unique in a list, [a-z0-9._] only, and equal in all lists of a model for what is equal (states, weights).
// npu_list_verify() holds the strictest published limits, so a list that exists can be compiled everywhere.
#pragma once
#include "base/base.h"

#define NPU_RANK_MAX 5
#define NPU_BLOCK 32 // positions per KV block; every width is a multiple of it
#define NPU_MASK_OFF (-40000.0f)
#define NPU_SUBRANGE 2000    // ids per max + argmax: an index below 2,048 is exact in fp16
#define NPU_HEAD_PIECE 16000 // output channels of one piece of the head
#define NPU_AXIS_MAX 16384   // of height and width before A16; held for every axis but those of constants
#define NPU_CHANNELS_MAX 65536
#define NPU_ARGMAX_MAX 2048 // longest axis of an arg-reduction
#define NPU_NAME_MAX 40
#define NPU_NONE (-1)

enum npu_op_kind {
    NPU_OP_CONV,       // y (1,O,1,S) = in[0] (1,I,1,S) by in[1], a constant (O,I,1,1): 1x1 convolution = linear
    NPU_OP_MATMUL,     // y (B,M,N) = in[0] (B,M,K) by in[1] (B,K,N): batch_matmul
    NPU_OP_ADD,        // of two operands of equal rank; an axis of size 1 is spread over the other's
    NPU_OP_SUB,        //
    NPU_OP_MUL,        //
    NPU_OP_DIV,        //
    NPU_OP_MAX,        // maximum, elementwise
    NPU_OP_SILU,       // x * sigmoid(x)
    NPU_OP_SIGMOID,    //
    NPU_OP_EXP,        //
    NPU_OP_RSQRT,      // 1 / sqrt(x)
    NPU_OP_SOFTMAX,    // over `axis`
    NPU_OP_SUM,        // over `axis`, which stays with size 1 (the next three too)
    NPU_OP_MEAN,       //
    NPU_OP_REDUCE_MAX, //
    NPU_OP_ARGMAX,     // index of the first maximum, cast to fp16
    NPU_OP_RESHAPE,    // to the shape of out: the same elements in the same order
    NPU_OP_TRANSPOSE,  // out axis i is in axis perm[i]
    NPU_OP_SLICE,      // [begin, end) of `axis`, step 1
    NPU_OP_CONCAT,     // of in[0 … n_in) along `axis`
    NPU_OP_COUNT
};
const char *npu_op_name(enum npu_op_kind k); // "conv"

enum npu_weight_kind { NPU_WEIGHT_I8, NPU_WEIGHT_F16 };
// A constant's values. Lives in a weight store (npu_store.h) that outlives every list; one object is one blob, shared
// by all lists of a model (compare pointers).
struct npu_weight {
    const char *name; // "l3.q", "head.0", "l3.norm1"
    enum npu_weight_kind kind;
    int rank;
    int32_t shape[NPU_RANK_MAX];
    const int8_t *q;        // I8: [O][I], values in [-127, 127]; value = f16(q * scale of its row)
    const uint16_t *scale;  // I8: [O] fp16
    const uint8_t *nibbles; // I8 within ±7, of a store that makes them: q two to a byte, the first one low; else NULL
    const uint16_t *half;   // F16: all values, C order
    const float *wide;      // the same as floats, of those that are no matrices; NULL: not made
};

enum npu_role {
    NPU_INNER,     // made by an op, or an output
    NPU_CONST,     // .weight
    NPU_STATE_OLD, // see struct npu_state
    // Inputs, filled by the host (npu_host.h) for every call:
    NPU_IN_ROWS, // "x" (1, n, 1, S): embedded tokens, or rows of a port (layer = enum prog_port; "attn_in" from
                 // PORT_ATTN; "q", "k", "v" from PORT_QKV: index 0, 1, 2)
    NPU_IN_COS,  // "cos" (1, head_dim, 1, S)
    NPU_IN_SIN,  // "sin"
    NPU_IN_MASK, // "mask" (1, keys, 1, S): 0 where the column sees the key, else NPU_MASK_OFF
    NPU_IN_TAP,  // "tap.<j>" (F + S, S): column s has a 1 in the row of the frame that tap j of slot s reads; index = j
    NPU_IN_SEL,  // "sel" (F + S, F), stateful lists: which frames of the last call precede this window
    NPU_IN_PLACE,  // "place" (1 + S/32, P), stateful lists: row 0 has 1 for each cache block kept, row 1 + i a 1 where
                   // window block i goes; P = T/32, at least 32, the rest zero
    NPU_IN_PICK,   // "pick" (S, R): one-hot columns, the rows that the head sees
    NPU_IN_K,      // "k.<l>" (1, n_head_kv * head_dim, 1, T), stateless lists: keys of committed positions; layer = l
    NPU_IN_V,      // "v.<l>"
    NPU_IN_FRAMES, // "frames.<l>" (1, n_embd, 1, F), stateless lists: convolution inputs before this window
    // Outputs:
    NPU_OUT_MAX,     // "max.<i>" (1, subranges of head piece i, 1, R)
    NPU_OUT_ARG,     // "arg.<i>": index inside the subrange
    NPU_OUT_LOGITS,  // "logits.<i>" (1, channels of piece i, 1, R)
    NPU_OUT_ROWS,    // "rows" (1, n, 1, S): residual rows, or one weight's result
    NPU_OUT_QKV,     // "q", "k", "v": index 0, 1, 2
    NPU_OUT_ATTN,    // "attn"
    NPU_OUT_FEATURE, // "feature.<i>" (1, n_embd, 1, S)
    NPU_OUT_HIDDEN,  // "hidden" (1, n_embd, 1, R or S)
    NPU_OUT_K,       // "k_new.<l>" (1, n_head_kv * head_dim, 1, S), stateless lists: the host stores them
    NPU_OUT_V,       // "v_new.<l>"
    NPU_OUT_FRAMES,  // "frames_new.<l>" (1, n_embd, 1, S)
    NPU_OUT_DONE,    // "done" (1, c, 1, 32): a program with state only still gives something back
};

struct npu_tensor {
    char name[NPU_NAME_MAX];
    enum npu_role role;
    int layer, index;                // of the model; within the role; NPU_NONE
    int rank;                        // 1 … NPU_RANK_MAX
    int32_t shape[NPU_RANK_MAX];     // C order; unused are 1
    const struct npu_weight *weight; // NPU_CONST
    int op;                          // that makes it, or NPU_NONE
};
struct npu_op {
    enum npu_op_kind kind;
    const int *in; // [n_in] tensor ids
    int n_in;
    int out;
    int axis;               // SOFTMAX, SUM … ARGMAX, SLICE, CONCAT
    int32_t begin, end;     // SLICE
    int perm[NPU_RANK_MAX]; // TRANSPOSE
    const char *site;       // what the op is for, for calibration and profiles: "l3.ffn.down" (borrowed)
};
struct npu_state {
    char name[NPU_NAME_MAX]; // "k.<l>", "v.<l>", "c.<l>"
    int old, now;            // tensor ids of one shape
};
struct npu_list {
    char name[NPU_NAME_MAX]; // "verify_256"
    int window;              // S
    int bucket;              // T: cache columns
    int n_frames;            // F
    int n_pick;              // R: columns of the head; 0: no head
    bool stateful;           // KV and frames are states that the program updates, else inputs and outputs
    bool picks;              // has "pick"; else R == S and the head sees all columns
    int n_chunks;            // of attention
    struct npu_tensor *tensors;
    int n_tensors, tensors_cap;
    struct npu_op *ops;
    int n_ops, ops_cap;
    int *inputs, *outputs; // tensor ids in the order they were declared
    int n_inputs, n_outputs, io_cap;
    struct npu_state *states;
    int n_states;
    struct arena arena;
    const char *site; // of the next ops
    bool failed;      // out of memory while building: checked once, by npu_list_end
};

// ------------------------------------------------------------------------------------------------------------ building
//
// Builders return the id of the tensor they make. They compute its shape; operands that do not fit are bugs of the
// lowering and abort (TERN_BUG). Nothing else fails before npu_list_end, which checks memory and verifies.
enum tern_status npu_list_begin(struct npu_list **out, const char *name, struct tern_err *err);
enum tern_status npu_list_end(struct npu_list *l,
                              struct tern_err *err); // drops what no output or state needs, verifies
void npu_list_free(struct npu_list *l);              // NULL is fine
uint64_t npu_list_bytes(const struct npu_list *l);

int npu_input(struct npu_list *l, enum npu_role role, int layer, int index, const char *name, int rank,
              const int32_t *shape);
int npu_input4(struct npu_list *l, enum npu_role role, int layer, const char *name, int channels, int width);
int npu_const(struct npu_list *l, const struct npu_weight *w); // one tensor per weight
void npu_output(struct npu_list *l, int id, enum npu_role role, int layer, int index, const char *name);
// Declares a state and returns the tensor of its old value; npu_state_set says what it becomes.
int npu_state(struct npu_list *l, const char *name, int rank, const int32_t *shape);
void npu_state_set(struct npu_list *l, int old, int now);
void npu_site(struct npu_list *l, const char *fmt, ...) PRINTF_LIKE(2, 3); // of the ops that follow

int npu_conv(struct npu_list *l, int x, int weight);
int npu_matmul(struct npu_list *l, int a, int b);
int npu_binary(struct npu_list *l, enum npu_op_kind kind, int a, int b);    // ADD … MAX
int npu_unary(struct npu_list *l, enum npu_op_kind kind, int x);            // SILU … RSQRT
int npu_reduce(struct npu_list *l, enum npu_op_kind kind, int x, int axis); // SOFTMAX … ARGMAX
int npu_reshape(struct npu_list *l, int x, int rank, const int32_t *shape);
int npu_transpose(struct npu_list *l, int x, const int *perm);
int npu_slice(struct npu_list *l, int x, int axis, int begin, int end); // the whole axis: x itself
int npu_concat(struct npu_list *l, int axis, const int *xs, int n);     // one: itself

// ------------------------------------------------------------------------------------------------------------- reading
int64_t npu_tensor_len(const struct npu_tensor *t);                                    // elements
int npu_find(const struct npu_list *l, const char *name);                              // tensor id, or NPU_NONE
int npu_find_role(const struct npu_list *l, enum npu_role role, int layer, int index); // NPU_NONE as layer, index: any
// Checks a list against the rules: shapes, single assignment, rank, axis sizes, arg-reductions, width of inputs and
// outputs, constants. The message names the op or tensor, what was found and the limit.
enum tern_status npu_list_verify(const struct npu_list *l, struct tern_err *err);
bool npu_list_dump(const struct npu_list *l, struct buf *out); // one line per input, op and output, for people
// Multiply-adds of convolutions and of matrix products, for cost models.
struct npu_cost {
    double conv, matmul;
    double weight_bytes;
};
struct npu_cost npu_list_cost(const struct npu_list *l);
