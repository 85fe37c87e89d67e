// Row kernels for AVX-512: rows_vec.inc over the words of vec_avx512.h, int8 by sixteen groups.
#include "base/plain.h"
#include "unit/cpu/cpu_kernels.h"
#include "unit/cpu/quantise_avx512.h"
#include "unit/cpu/vec_avx512.h"
#include <math.h>

#define VEC_NAME(stem) k_##stem##__avx512
#include "unit/cpu/rows_vec.inc"
