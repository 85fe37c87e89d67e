// Private to app/: a target and its drafter run step by step, below the engine, for studies and benches that decide
// themselves what is drafted and accepted. One sequence. The steps are the engine's own: the same programs, trees and
// commits.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "plan/plan.h"
#include "spec/spec.h"

struct study_options {
    const struct model *target;  // borrowed
    const struct model *drafter; // borrowed; NULL: none
    enum prog_class numerics;
    int n_threads; // 0: one per fast core
    int n_ctx;
};
struct study_runner;
enum tern_status study_runner_create(struct study_runner **out, const struct study_options *o, struct tern_err *err);
void study_runner_free(struct study_runner *r); // NULL is fine
void study_runner_clear(struct study_runner *r);
int study_runner_len(const struct study_runner *r); // committed positions
uint64_t study_runner_drafter_bytes(const struct study_runner *r);
// Commits n tokens; *next: what the target chooses behind them.
enum tern_status study_runner_feed(struct study_runner *r, const int32_t *ids, int n, int32_t *next,
                                   struct tern_err *err);
// A draft behind `context` committed positions (the newest len, or fewer: an earlier place of the same text), whose
// newest token is the tree's root; the tree grows to n nodes. What the drafter has not seen of the context is injected.
enum tern_status study_runner_propose(struct study_runner *r, enum tree_method method, int context, int n,
                                      struct token_tree *t, struct tern_err *err);
// One verify step; rows [t->n] get the target's choice behind each node.
enum tern_status study_runner_verify(struct study_runner *r, const struct token_tree *t,
                                     const struct prog_argmax **rows, struct tern_err *err);
// Takes a path of the last verified tree over.
enum tern_status study_runner_commit(struct study_runner *r, const struct accept_path *path, struct tern_err *err);
