// Private to serve_responses*.c.
#pragma once
#include "serve_parts.h"

struct serve_response { // a->extra's extra: what the answer repeats of the request, raw or as text
    struct str instructions, metadata, tools, tool_choice, text, effort, user;
};
extern const struct serve_wire serve_responses_wire;
