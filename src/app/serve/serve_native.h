// Private to serve_native*.c.
#pragma once
#include "serve_parts.h"

#define NATIVE_FIELDS_MAX 64 // of response_fields

struct native { // a->extra
    struct str prompts[SERVE_PROMPTS_MAX];
    struct str fields[NATIVE_FIELDS_MAX]; // response_fields: paths, by slashes
    int n_fields;
    bool with_tokens, with_probs;
    bool is_silent; // n_predict 0: only the prompt is read
};
extern const struct serve_wire serve_native_wire;
