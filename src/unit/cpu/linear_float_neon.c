// The float linear kernels for NEON: a tile's 16 outputs are four registers.
#include "base/plain.h"

#define LINEAR_ISA neon
#define LINEAR_ROWS 4
#define LINEAR_ACCS 4
#define LINEAR_PREFETCH 2048
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_neon.h"
#include "unit/cpu/linear_float.inc"
