// Private to serve_anthropic*.c.
#pragma once
#include "serve_parts.h"

extern const struct serve_wire serve_anthropic_wire;
// The fields and the conversation of a request, checked and in the engine's form. False: a->fault says what is wrong.
bool serve_anthropic_read(struct serve_ask *a, struct str body);
