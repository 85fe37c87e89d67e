// The int8 linear kernels for AMX: tile registers give the integers, AVX-512 scales them.
#include "base/plain.h"

#define LINEAR_ISA amx
#define LINEAR_PREFETCH 4096
#define LINEAR_BELOW(name) k_linear_##name##_nx16__avx512vnni
#include "unit/cpu/linear_common.h"
#include "unit/cpu/linear_avx512.h"
#include "unit/cpu/tile_amx.h"

static inline void vec_w_store(uint8_t *p, vec_w v) { _mm512_store_si512(p, v); }
static inline vec_w vec_w_minus(vec_w v, int n) {
    return n == 0 ? v : _mm512_sub_epi8(v, _mm512_set1_epi8((char)(uint8_t)n));
}

#include "unit/cpu/linear_amx.inc"
