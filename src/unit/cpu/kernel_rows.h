// Private to unit/cpu: the rows of kernels.inc as a table, and what their checks share.
#pragma once
#include "base/base.h"
#include "unit/cpu/cpu_int.h"
#include "unit/cpu/cpu_kernels.h"

// Flags of a linear row.
enum kernel_flags {
    KERNEL_ASIDE = 1 << 2,      // checked and timed, never chosen: no gain over the row before it where it was measured
    KERNEL_BF16_TILES = 1 << 1, // class bf16 in the order OP_BF16_TILES
    KERNEL_OWN_SUMS = 1 << 0,   // sums in an order of its own (16-bit float dot products): judged by error, not by bits
};

typedef void (*kernel_fn)(void);

// One check or one timing of a row.
struct kernel_trial {
    uint64_t seed;
    double bench_seconds;  // 0: check; else call for about so long and fill the rest
    double rate;           // work per second …
    const char *rate_unit; // … in this unit
};
struct kernel_row;
typedef enum tern_status (*kernel_check_fn)(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
struct kernel_row {
    const char *name;
    uint32_t isa; // the one enum cpu_isa it needs
    kernel_fn fn;
    size_t slot; // offset in struct cpu_kernels
    kernel_check_fn check;
    int param;            // of a row kernel: enum op_kv_type, or 0
    int pack, rows_class; // of a linear kernel
    int flags;
};
extern const struct kernel_row kernel_rows[];
extern const int kernel_rows_count;

// Check families: kernels.inc names them without the prefix.
enum tern_status kernel_check_linear(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_quantise(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_quantise_whole(const struct kernel_row *row, struct kernel_trial *t,
                                             struct tern_err *err);
enum tern_status kernel_check_rmsnorm(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_qk_norm_rope(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_swiglu(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_geglu(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_axpy(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_add(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_conv_gate(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_short_conv(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_attention_block(const struct kernel_row *row, struct kernel_trial *t,
                                              struct tern_err *err);
enum tern_status kernel_check_attention_combine(const struct kernel_row *row, struct kernel_trial *t,
                                                struct tern_err *err);
enum tern_status kernel_check_attention_finish(const struct kernel_row *row, struct kernel_trial *t,
                                               struct tern_err *err);
enum tern_status kernel_check_kv_write(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);
enum tern_status kernel_check_argmax(const struct kernel_row *row, struct kernel_trial *t, struct tern_err *err);

// Shared by the check families (kernel_check.c).
struct kernel_rng {
    uint64_t state;
};
uint32_t kernel_rng_next(struct kernel_rng *r);
int kernel_rng_below(struct kernel_rng *r, int n); // 0 … n-1
float kernel_rng_float(struct kernel_rng *r);      // about normal, mean 0, deviation 1
void kernel_rng_fill(struct kernel_rng *r, float *x, int n, float scale);
// Puts zeros of both signs, huge, tiny, infinite and NaN values at a few places.
void kernel_rng_extremes(struct kernel_rng *r, float *x, int n);
// Equal bits, or both NaN.
bool kernel_same(float a, float b);
// Compares n floats; on a difference fills err with the row's name, `what` and the place.
enum tern_status kernel_compare(const struct kernel_row *row, const char *what, const float *have, const float *want,
                                int n, struct tern_err *err);
// Calls fn(arg) until `seconds` have passed; fills t->rate with `work` per call over time.
void kernel_time(struct kernel_trial *t, void (*fn)(void *arg), void *arg, double work, const char *unit);
