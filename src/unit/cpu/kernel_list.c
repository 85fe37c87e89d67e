// The kernel list as a table, and what is made from it: selection under an instruction-set mask, names, and the entry
// points of tests and benches. Selection walks the rows in order and lets each usable one overwrite its slot, so a
// machine without a kernel falls to the next lower one, at the end to the scalar row that every slot has.
#include "base/base.h"
#include "unit/cpu/kernel_rows.h"
#include <stddef.h>

const struct kernel_row kernel_rows[] = {
#define KERNEL_LINEAR(isa_, fn_, pack_, rows_class_, flags_)           \
    {.name = #fn_,                                                     \
     .isa = (isa_),                                                    \
     .fn = (kernel_fn)(fn_),                                           \
     .slot = offsetof(struct cpu_kernels, linear[pack_][rows_class_]), \
     .check = kernel_check_linear,                                     \
     .pack = (pack_),                                                  \
     .rows_class = (rows_class_),                                      \
     .flags = (flags_)},
#define KERNEL_ROW(isa_, fn_, slot_, check_, param_) \
    {.name = #fn_,                                   \
     .isa = (isa_),                                  \
     .fn = (kernel_fn)(fn_),                         \
     .slot = offsetof(struct cpu_kernels, slot_),    \
     .check = kernel_check_##check_,                 \
     .param = (param_)},
#include "unit/cpu/kernels.inc"
};
const int kernel_rows_count = (int)ARRAY_LEN(kernel_rows);

void cpu_kernels_init(struct cpu_kernels *k, uint32_t isa_mask) {
    memset(k, 0, sizeof *k);
    for (int i = 0; i < kernel_rows_count; i++) {
        const struct kernel_row *row = &kernel_rows[i];
        if ((isa_mask & row->isa) == 0 || (row->flags & KERNEL_ASIDE)) continue;
        memcpy((char *)k + row->slot, &row->fn, sizeof row->fn);
    }
    for (size_t at = 0; at < sizeof *k; at += sizeof(kernel_fn)) {
        kernel_fn fn;
        memcpy(&fn, (const char *)k + at, sizeof fn);
        if (!fn) TERN_BUG("kernel slot %zu has no row that this machine can run", at / sizeof fn);
    }
}

uint32_t cpu_kernels_isa(uint32_t isa_mask) {
    uint32_t isa = 0;
    for (int i = 0; i < kernel_rows_count; i++) isa |= kernel_rows[i].isa;
    return isa & isa_mask;
}

int unit_cpu_kernels_count(void) { return kernel_rows_count; }

static const struct kernel_row *row_get(int i) {
    if (i < 0 || i >= kernel_rows_count) TERN_BUG("kernel row %d of %d", i, kernel_rows_count);
    return &kernel_rows[i];
}

const char *unit_cpu_kernel_name(int i) { return row_get(i)->name; }

static enum tern_status row_run(int i, struct kernel_trial *t, struct tern_err *err) {
    const struct kernel_row *row = row_get(i);
    if ((cpu_isa_present() & row->isa) == 0)
        return err_set(err, TERN_UNSUPPORTED, "%s: this CPU has no %s", row->name, cpu_isa_name(row->isa));
    return row->check(row, t, err);
}

enum tern_status unit_cpu_kernel_check(int i, uint64_t seed, struct tern_err *err) {
    struct kernel_trial t = {.seed = seed};
    return row_run(i, &t, err);
}

enum tern_status unit_cpu_kernel_bench(int i, double seconds, double *rate, const char **unit_of_rate,
                                       struct tern_err *err) {
    struct kernel_trial t = {.seed = 1, .bench_seconds = seconds > 1e-3 ? seconds : 1e-3};
    TRY(row_run(i, &t, err));
    *rate = t.rate;
    *unit_of_rate = t.rate_unit;
    return TERN_OK;
}
