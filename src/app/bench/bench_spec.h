// Private to app/: the part of `tern bench` that measures speculative decoding.
#pragma once
#include "app/app.h"

struct spec_bench_opts {
    const char *prompts; // file, one JSON object a line; NULL: a prompt of each kind that comes with the program
    const char *modes;   // names between commas; NULL: all. Plain always runs
    int n_max;           // tokens of an answer at most
    int n_each;          // prompts of each category, spread over it; 0: all
    bool skip_loops;     // leave out answers in which one 8-gram occurs more than three times
    int repeats;         // counted runs of every prompt in every mode
    bool json;
};
// Does the list (names between commas; NULL: every name) hold this name? plain: the name that always runs.
bool bench_mode_wanted(const char *list, const char *name, const char *plain);
int bench_spec_run(const struct command *c, const struct spec_bench_opts *o, struct tern_engine *e);
