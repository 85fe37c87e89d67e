// The bench of constraints (bench_mask.c).
#pragma once
#include "app/app.h"

int bench_mask_run(const struct command *c, struct tern_engine *e, bool json);
