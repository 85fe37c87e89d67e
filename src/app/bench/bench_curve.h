// Private to app/: the curves of `tern bench`: rows of one step, depth of the context, sequences of a batch, and a busy
// neighbour. All tests of a curve are interleaved, in an order that turns round from repetition to repetition.
#pragma once
#include "app/app.h"

#define CURVE_POINTS_MAX 32
#define CURVE_REPEATS_MAX 200

enum curve_kind { CURVE_ROWS, CURVE_DEPTH, CURVE_BATCH, CURVE_BUSY };
struct curve_opts {
    enum curve_kind kind;
    int points[CURVE_POINTS_MAX]; // rows, depths or sequences, rising
    int n_points;
    int depth;    // of rows and busy: tokens before
    int n_prompt; // of batch: tokens of each sequence before
    int n_answer; // tokens of one measurement
    int repeats;
    bool kv_given; // depth: only the options' cache type, else f16 and q8
    bool json;
};
// Reads "1,2,4": rising numbers from lo to hi. False after a fault.
bool curve_points_parse(struct curve_opts *o, const char *text, int lo, int hi);
int bench_curve_run(const struct command *c, const struct curve_opts *o, const struct tern_engine_options *engine);
