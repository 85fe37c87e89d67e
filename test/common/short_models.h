// The models of tests of the service: pico and its draft model; under TERN_TEST_SHORT (sanitizers, emulators: a hundred
// times the time for each weight that is read) the script model and a drafter of random weights.
#pragma once
#include "base/base.h"

struct short_models {
    bool is_short;
    const char *target, *drafter;
    int32_t first_id, n_ids; // plain tokens that a prompt may be made of
};
extern struct short_models short_models;
int short_models_setup(void **state); // of a cmocka group, engine_fixture's with it
int short_models_teardown(void **state);
