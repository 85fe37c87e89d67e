// The float linear kernels for AVX-512.
#include "base/plain.h"

#define LINEAR_ISA avx512
#define LINEAR_ROWS 16
#define LINEAR_ACCS 24
#define LINEAR_PREFETCH 4096
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"

#include "unit/cpu/linear_float.inc"
