// Private to app/: the studies of `tern study`.
#pragma once
#include "app/app.h"

struct acceptance_opts {
    const char *model, *drafter; // paths
    const char *prompts;         // file of prompts; NULL: those that come with the program
    const char *csv, *paths;     // files to write; NULL: none
    const char *cycles;          // "P,C,T", see the help; NULL: none
    double cycle_ms[3];          // of these
    int n_max, n_each, n_threads, seed;
};
int study_acceptance_run(const struct command *c, const struct acceptance_opts *o, struct tern_engine *e);
