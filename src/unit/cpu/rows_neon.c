// Row kernels for NEON: rows_vec.inc over the words of vec_neon.h.
#include "base/plain.h"
#include "unit/cpu/cpu_kernels.h"
#include "unit/cpu/vec_neon.h"
#include <math.h>

#define VEC_NAME(stem) k_##stem##__neon
#include "unit/cpu/rows_vec.inc"
