// The float linear kernels in plain C.
#include "base/base.h"

#define LINEAR_ISA scalar
#define LINEAR_ROWS 4
#define LINEAR_ACCS 4
#define UNROLL
#define LINEAR_INLINE inline
#define LINEAR_PREFETCH 1024
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_scalar.h"

static inline vec_f vec_f_bf16(const uint8_t *p) {
    vec_f r;
    LANES r.v[i] = bf16_to_f32(load_u16(p + 2 * i));
    return r;
}

#include "unit/cpu/linear_float.inc"
