// Attention kernels for AVX2: attention_vec.inc over the words of vec_avx2.h.
#include "base/plain.h"
#include "unit/cpu/cpu_kernels.h"
#include "unit/cpu/vec_avx2.h"
#include <math.h>

#define VEC_NAME(stem) k_##stem##__avx2
#include "unit/cpu/attention_vec.inc"
