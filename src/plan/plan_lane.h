// Private to plan/: all of a model's programs on one unit, for the plans that run steps on them.
#pragma once
#include "plan/plan_int.h"

#define LANE_WINDOW_STEP 4
#define LANE_WINDOWS_MAX 8 // 1, 4, … 4096 and the full window
enum { LANE_NONE, LANE_LOGITS, LANE_ARGMAX, LANE_GIVES };

struct lane_program {
    struct prog *prog;
    struct unit_program *program;
};
struct plan_lane {
    struct unit *unit;
    struct unit_caps caps;
    const struct state_pool *pool; // what its steps are bound to: the plan's, or the same memory as this unit sees it
    int windows[LANE_WINDOWS_MAX]; // rising; the last is the full window
    int n_windows;
    int n_out_max, n_features;
    struct lane_program programs[LANE_WINDOWS_MAX][LANE_GIVES];
    struct lane_program commit;
    struct unit_buffer *logits, *argmax; // [n_out_max]
    float *logits_host;                  // copies for the caller; NULL when the unit's memory is the host's
    struct prog_argmax *argmax_host;
    uint64_t out_bytes; // of these
};
// NULL, or why the unit cannot serve a lane.
const char *lane_misfit(const struct plan_options *o, const struct plan_unit *u);
enum tern_status lane_open(struct plan_lane *l, const struct plan_options *o, const struct plan_unit *u,
                           struct tern_err *err);
void lane_close(struct plan_lane *l); // half-opened ones too
// Runs a step of the plan's pool; results go to p.
enum tern_status lane_run(struct plan_lane *l, struct plan *p, const struct step *s, uint32_t want,
                          struct tern_err *err);
enum tern_status lane_commit(struct plan_lane *l, const struct plan *p, const struct step *s, struct tern_err *err);
uint64_t lane_bytes(const struct plan_lane *l);
// Adds an upper bound of lane_bytes to *work; false on overflow. What lane_open would refuse adds nothing.
bool lane_bytes_estimate(const struct plan_options *o, const struct plan_unit *u, uint64_t *work);
bool lane_explain(const struct plan_lane *l, struct buf *out);
