// Writes a drafter as a folder in Liquid AI's form (config.json, model.safetensors in F32) from its GGUF form: the rows
// of q and k and the entries of their norms go back from half-split to interleaved order, as rope_is_neox_style false
// wants them.
#pragma once
#include "base/base.h"
#include "model/model.h"

// path: of the folder, made when it is not there. Fails the test when it cannot be written.
// as_dflash: without Markov and confidence heads, under the class whose first row proposes nothing.
void drafter_folder_write(const struct model *drafter, const char *path, bool as_dflash);
