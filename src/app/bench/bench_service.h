// Private to app/: many streams at once from one engine, without a network between (`tern bench --service`).
#pragma once
#include "app/app.h"

#define SERVICE_POINTS_MAX 16

struct service_bench_opts {
    int points[SERVICE_POINTS_MAX]; // streams, rising
    int n_points;
    int n_prompt, n_answer; // tokens of each stream
    int n_arrival;          // of the long prompt that comes while they run
    int n_shared, n_own;    // of prompts that begin alike
    const char *prompts;    // a file: of bench_streams_run, which needs none of the prompts above
    int n_each;             // of these, of each category; 0: all
    int repeats;
    uint64_t seed;
    bool json;
};
// Context and sessions that it needs, into the options of an engine.
void bench_service_engine(const struct service_bench_opts *o, struct tern_engine_options *engine);
int bench_service_run(const struct command *c, const struct service_bench_opts *o, struct tern_engine *e);
// Drafts on and off in services of so many streams (bench_streams.c).
int bench_streams_run(const struct command *c, const struct service_bench_opts *o, struct tern_engine *e);
