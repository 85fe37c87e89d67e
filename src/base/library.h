// Shared libraries opened at run time: runtimes that tern can use but is not built with.
#pragma once
#include <stdbool.h>
#include "base/err.h"

struct os_library; // stays in memory until the process ends once it was opened: runtimes leave threads behind
typedef void (*os_function)(void);

// A path, or a bare name that the loader looks up. TERN_NOT_FOUND, with the loader's reason, when it is absent;
// TERN_UNSUPPORTED when it is there and cannot be loaded here.
enum tern_status library_open(struct os_library **out, const char *path, struct tern_err *err);
os_function library_symbol(const struct os_library *lib, const char *name); // NULL when it has no such function
