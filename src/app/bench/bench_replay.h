// Private to app/: the part of `tern bench` that runs speculation with recorded acceptance.
#pragma once
#include "app/app.h"

struct replay_bench_opts {
    const char *paths;           // file of `tern study acceptance --paths`
    const char *shape, *format;  // random weights; shape NULL: the model and drafter of the paths below
    const char *model, *drafter; // model NULL: the one that comes with the program
    const char *modes;           // names between commas; NULL: all. Plain always runs
    const char *record;          // file for the times of rounds of random widths, instead of comparing; NULL: compare
    double share;                // a shape's drafter: its own bytes over the target's
    int n_threads, n_each, seed;
    bool json;
};
int bench_replay_run(const struct command *c, const struct replay_bench_opts *o);
