// Does a JSON text fit a JSON schema? Written apart from the product, over jansson, for the keywords that constraints
// support but `format`; patterns by the C library's extended expressions, so tests use those that mean the same there.
#pragma once
#include <stdbool.h>
#include <stddef.h>

// False: it does not, or one of the two is no JSON; why (nullable) gets a line.
bool schema_check(const char *schema, const char *text, size_t len, char *why, size_t why_size);
