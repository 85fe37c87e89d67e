// Private to unit/null.
#pragma once
#include "unit/unit.h"

// Every object of the unit stands in a list, so that a pointer can be judged without following it.
struct null_object {
    struct null_object *next;
};
struct null_list {
    struct null_object *first;
};

struct unit_buffer {
    struct null_object object;
    uint8_t *host;
    uint64_t bytes;
    bool owned; // else borrowed (buffer_import)
};
struct unit_weights {
    struct null_object object;
    const struct model *model;
    enum prog_class numerics;
    const struct unit_weights *shared; // or NULL
};
struct unit_program {
    struct null_object object;
    const struct prog *prog;
    struct unit_weights *weights;
};

// A step that has been submitted and not yet waited for, and what its arrays were.
struct null_pending {
    uint64_t serial;
    const struct step *step;
    const struct unit_program *program;
    uint64_t hash;
};
#define NULL_PENDING_MAX 64 // steps in flight; whoever submits more never waits

struct unit {
    struct unit_base base;
    struct null_list buffers, weights, programs;
    struct null_pending pending[NULL_PENDING_MAX]; // oldest first
    int n_pending;
    uint64_t serial; // of the last submission
    struct unit_counters counters;
};

bool null_has(const struct null_list *l, const void *object);
enum tern_status null_range_check(const struct unit *u, const struct unit_buffer *b, uint64_t offset, uint64_t bytes,
                                  const char *what, struct tern_err *err);
// null_submit.c
enum tern_status null_submit(struct unit *u, struct unit_program *p, const struct step *s, struct unit_event *event,
                             struct tern_err *err);
enum tern_status null_event_wait(struct unit *u, const struct unit_event *event, struct tern_err *err);
bool null_event_poll(struct unit *u, const struct unit_event *event);
// A bug when a step in flight uses the object.
void null_not_in_flight(const struct unit *u, const void *object, const char *what);
