// A model with its layers rescaled by powers of two, function kept: what feeds a product carries 2^e, what takes it
// back 2^-e (up and down, V and O, the convolution's B and its taps). Exponents come from the seed, large both ways.
#pragma once
#include "base/base.h"
#include "model/model.h"

// Opens the model at `from`, rescales it and writes all of it to `to` as GGUF; the rescaled tensors become F32.
enum tern_status rescaled_model_write(const char *from, const char *to, uint64_t seed, struct tern_err *err);
