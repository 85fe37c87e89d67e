// A constraint for tests: it bans ids that are 1 more than a multiple of n, where n turns with every token, so that any
// wrong count of tokens shows.
#pragma once
#include "base/base.h"

extern const struct tern_constraint token_rule; // has no owner; any number of requests may use it
