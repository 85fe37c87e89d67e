// Private to serve_anthropic*.c.
#pragma once
#include "serve_parts.h"

extern const struct serve_wire serve_anthropic_wire;
