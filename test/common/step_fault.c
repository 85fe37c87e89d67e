// Linked into a program by ld's --wrap: every TERN_STEP_FAULT-th step of the model fails, as one of a lost unit does.
#include "base/base.h"
#include "engine/request_int.h"

#include <stdatomic.h>
#include <stdlib.h>

enum tern_status __real_request_rows_run(struct tern_engine *e, struct request_rows *rows, int n, bool show,
                                         uint32_t *want, struct tern_err *err);
enum tern_status __wrap_request_rows_run(struct tern_engine *e, struct request_rows *rows, int n, bool show,
                                         uint32_t *want, struct tern_err *err);
enum tern_status __wrap_request_rows_run(struct tern_engine *e, struct request_rows *rows, int n, bool show,
                                         uint32_t *want, struct tern_err *err) {
    static atomic_int n_steps;
    const char *every = getenv("TERN_STEP_FAULT");
    const int k = atomic_fetch_add(&n_steps, 1) + 1;
    if (every && k % atoi(every) == 0) return err_set(err, TERN_UNIT_LOST, "the unit was lost in step %d (planted)", k);
    return __real_request_rows_run(e, rows, n, show, want, err);
}
