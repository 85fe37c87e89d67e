// A small drafter of random weights (tiny_drafter.h) for the model in a file, as a folder that an engine opens
// (drafter_folder.h): whatever tests the machinery of drafting without paying for a model whose drafts are good.
#pragma once
#include "base/base.h"

void tiny_drafter_write(const char *target_path, const char *path, bool as_dflash);
