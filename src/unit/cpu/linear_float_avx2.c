// The float linear kernels for AVX2: a tile's 16 outputs are two registers.
#include "base/plain.h"

#define LINEAR_ISA avx2
#define LINEAR_ROWS 6
#define LINEAR_ACCS 6
#define LINEAR_PREFETCH 4096
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx2.h"

#include "unit/cpu/linear_float.inc"
