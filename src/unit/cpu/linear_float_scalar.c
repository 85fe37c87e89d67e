// The float linear kernels in plain C.
#include "base/plain.h"

#define LINEAR_ISA scalar
#define LINEAR_ROWS 4
#define LINEAR_ACCS 4
#define UNROLL
#define LINEAR_INLINE inline
#define LINEAR_PREFETCH 1024
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_scalar.h"

#include "unit/cpu/linear_float.inc"
