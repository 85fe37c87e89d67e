// Private to serve_responses*.c.
#pragma once
#include "serve_parts.h"

struct serve_response { // a->extra's extra: what the answer repeats of the request, raw or as text
    struct str instructions, metadata, tools, tool_choice, text;
};
struct responses_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str instructions, metadata, text;
    struct str background;
    struct str tools; // as given
};
// The fields and the conversation of a request, checked and in the engine's form. False: q->ask.fault says what is
// wrong.
bool serve_responses_read(struct responses_ask *q, struct str body);
extern const struct serve_wire serve_responses_wire;
