// Private to unit/cpu: the unit, its weights and its compiled programs, and what one submission works with.
//
// A compiled program is a list of struct cpu_op with every pointer resolved, and all memory a step needs. A step is one
// job of the thread team: each member walks the list and takes its share of every op; ops end with a barrier. Shares
// are static where the work is even (tiles, rows) and taken from a counter where it is not (attention).
#pragma once
#include "base/base.h"
#include "unit/cpu/cpu_int.h"
#include "unit/host_buffer.h"
#include "unit/pack_cache.h"
#include <stdatomic.h>

struct unit {
    struct host_unit host;
    struct team *team;
    int n_threads;
    uint32_t isa; // mask in use
    struct cpu_kernels k;
    char detail[96];
    bool profile; // TERN_PROFILE=1
    struct unit_counters counters;
    uint64_t serial; // of the last submission
};

// ---------------------------------------------------------------------------------------------------------- weights

// One tensor as kernels want it: a packed matrix, or a vector of floats (norms; taps as [len][n]).
struct cpu_weight {
    const struct tensor *tensor;
    bool is_taps;
    struct cpu_matrix matrix; // matrix.n_tiles 0: a vector
    float *vector;
    uint64_t offset; // of the matrix in the pack
};
struct unit_weights {
    struct unit *unit;
    const struct model *model;
    enum prog_class numerics;
    const struct unit_weights *shared; // holds what the list lacks, or NULL
    struct cpu_weight *list;           // [n], rising by tensor address
    int n;
    struct arena arena;   // list and vectors
    uint8_t *pack;        // matrices, own memory …
    size_t pack_bytes;    // (rounded up to pages)
    struct os_map cached; // … or the cache file's map (data NULL: none)
    char cache_note[256];
};
const struct cpu_weight *cpu_weight_find(const struct unit_weights *w, const struct tensor *t); // NULL: not there
enum tern_status cpu_weights_import(struct unit *u, struct unit_weights **out, const struct model *m,
                                    const struct weights_options *o, struct weights_info *info, struct tern_err *err);
void cpu_weights_free(struct unit *u, struct unit_weights *w);

// ---------------------------------------------------------------------------------------------------------- programs

// Forms of activations that a matrix's pack asks for.
enum act_form {
    ACT_FLOAT = 1 << 0,
    ACT_GROUPS = 1 << 1, // int8, one scale per OP_GROUP
    ACT_WHOLE = 1 << 2,  // int8, one scale per row
};
// Rows prepared for products. Strides follow the op's n_in (act_strides).
struct cpu_act {
    float *x;
    int8_t *q, *q_whole;
    float *scale, *scale_whole;
    int32_t *sum, *sum_whole; // sum_whole: [rows][2], the first is the row's
    size_t x_stride, q_stride, scale_stride;
};
// Activations of at most so many values (rows times n_in) are prepared by every member for itself, which is cheaper
// than sharing them and waiting at one more barrier. 2 threads of a Xeon (Sapphire Rapids), 2026-11: a barrier costs
// 0.4 us, norm and quantisation of 1,024 values 0.5 us.
#define ACT_PRIVATE_VALUES 8192
// A product whose result is worked on (added, gated, searched) goes through a member's strip buffers: so many rows
// times as many columns as fit. Kernels rearrange activations per call, so few rows and many columns cost least.
#define STRIP_ROWS 64
#define LINEAR_BY_ROWS 64 // from so many rows per member on, products are shared out by rows, not by columns
#define STRIP_FLOATS (32 * 1024)
#define ATTN_PAIRS 64      // (row, query head) pairs of one attention task
#define ATTN_PARTIALS 4096 // stored split partials; bounds how many splits are in flight

struct cpu_op {
    enum prog_op_kind kind;
    const struct prog_op *op;
    int number;        // in the program
    const float *norm; // LINEAR, HEAD, RMSNORM, NORM_OUT: weight of the norm; LINEAR without one: NULL
    int n_in;          // columns of the input
    uint32_t forms;    // LINEAR, HEAD: enum act_form
    float *in[PROG_OP_INPUTS], *out[PROG_OP_WEIGHTS];
    int in_cols[PROG_OP_INPUTS], out_cols[PROG_OP_WEIGHTS];
    const struct cpu_matrix *m[PROG_OP_WEIGHTS];
    int n_m;
    const struct cpu_matrix *(*experts)[3]; // EXPERTS: [n_expert] gate, up, down
    uint32_t forms_down;                    // EXPERTS: of down's input; forms is that of gate and up
    const float *v[PROG_OP_WEIGHTS];        // vectors: q and k norms, taps
    const struct tensor *table;             // EMBED: read from the source
};

// The (row, expert) pairs of a step, by expert, within an expert by row; every member counts for itself.
struct expert_pairs {
    int32_t *begin; // [n_expert + 1] first pair of each expert
    int32_t *next;  // [n_expert]
    int32_t *row;   // [pairs]
    float *weight;  // [pairs]
    int32_t *place; // [pairs]: where row i's j-th pair lies, at i * n_expert_used + j
};

// What each member has for itself.
struct cpu_member {
    struct cpu_act act;                 // private activations
    float *row;                         // [n_in_max]: a normed row on its way to int8
    float *temp[2];                     // [LINEAR_TEMP]: strips of a product
    struct prog_argmax *best;           // [n_out_max]
    struct op_attn_part *split, *total; // [ATTN_PAIRS] each
    float *q;                           // [ATTN_PAIRS][head_dim]: the task's queries side by side
    struct expert_pairs pairs;
    uint8_t *tail;      // [tail_blocks][2 * half_bytes]: a tree row's positions from len/32*32 on
    uint8_t *shifted;   // [2 * half_bytes]: the first block of a row's window
    int32_t *tail_rows; // [window]: row held per depth, -1: none
};

// Rows of one sequence, next to one another in the step, that attention works on together.
struct attn_chunk {
    int row, n_rows;
    int seq;
    bool tree;
    int n_blocks_shared; // blocks read from the sequence's table
    int n_blocks;        // blocks of its longest row
};
struct attn_plan {
    struct attn_chunk *chunks; // [window]
    int n_chunks;
    int32_t *n_visible;            // [window]: positions that a row sees
    int n_blocks_max;              // of any chunk
    bool splits;                   // tasks are (chunk, head, split), combined afterwards; else (chunk, head)
    int wave;                      // splits in flight
    struct op_attn_part *partials; // [ATTN_PARTIALS]: [row][query head][wave]
    struct op_attn_part *totals;   // [ATTN_SPLIT_PAIRS]: running result per (row, query head)
};
#define ATTN_SPLIT_PAIRS 512 // (row, query head) pairs at most for split work; more are parallel enough without

struct unit_program {
    struct unit *unit;
    const struct prog *prog;
    struct unit_weights *weights;
    const struct cpu_matrix *(*experts)[3]; // of all EXPERTS ops, behind one another
    struct cpu_op *ops;
    int n_ops;
    uint8_t *work; // one block of pages: values, and all that the pointers below name
    size_t work_bytes;
    struct cpu_act act;         // shared activations, [window]
    float *conv_u;              // [window][n_embd]
    double *rope_freqs;         // [2][head_dim / 2]: at the base and the local base
    struct cpu_member *members; // [n_threads]
    struct attn_plan attn;
    _Atomic int *counters; // [n_counters]: next task of each counted loop of a step
    int n_counters;
};
enum tern_status cpu_program_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                     struct unit_weights *w, struct tern_err *err);
void cpu_program_free(struct unit *u, struct unit_program *p);
bool cpu_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes);

// ---------------------------------------------------------------------------------------------------------- running

struct cpu_run {
    struct unit *u;
    struct unit_program *p;
    const struct step *s;
    const struct state_layout *layout; // NULL without state
    uint8_t *kv, *conv;                // host addresses of the pools
    int n_rows, n_out;
    uint64_t op_begin_ns; // profiling, member 0
};
enum tern_status cpu_submit(struct unit *u, struct unit_program *p, const struct step *s, struct unit_event *event,
                            struct tern_err *err);
// Where a port lies; NULL when the step does not bind it.
float *cpu_port(const struct cpu_run *r, enum prog_port port);
// Books the time since the last call on an op kind (member 0, when profiling).
void cpu_profile(struct cpu_run *r, const struct team_member *self, enum prog_op_kind kind);
void cpu_profile_tell(const struct unit *u);

// Parts of products (cpu_exec_linear.c). One row of n values as row `at` of a, in the forms; ACT_FLOAT is a copy.
void cpu_act_row(const struct cpu_kernels *k, uint32_t forms, const float *x, int n, const struct cpu_act *a,
                 size_t at);
// Rows [row, row + n) of a by tiles [begin, end) of m into y.
void cpu_product(const struct cpu_run *r, const struct cpu_matrix *m, const struct cpu_act *a, int row, int n,
                 int begin, int end, float *y, size_t y_stride);
// A strip of an op's result, on its way to where it belongs; zeroed before the first. The next one: all rows of some
// tiles, whose weights stay in the second-level cache meanwhile, then the next tiles.
struct cpu_strip {
    int row, n_rows;
    int tile, tile_end;
    int first, n; // columns that exist
};
bool cpu_strip_next(struct cpu_strip *s, int row_begin, int row_end, int begin, int end, int n_out);

// One op each; every member calls it, and it returns behind its last barrier.
void cpu_exec_linear(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);
void cpu_exec_route(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);
void cpu_exec_experts(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);
void cpu_exec_head(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);
void cpu_exec_short_conv(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);
void cpu_exec_attention(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);
void cpu_exec_commit(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op);

// Lays out the attention of a step: chunks, and how they are spread (cpu_exec_attention.c).
void attn_plan_make(struct cpu_run *r);
