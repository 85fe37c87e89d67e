// Peaks of AVX2: the int8 product through maddubs (16-bit pairs, then 32-bit sums, as kernels without VNNI do it) and
// fp32 multiply-add.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#include <immintrin.h>

// The two widening steps and the sum belong to the product: a kernel cannot leave them out.
#define INT8(i) s[i] = _mm256_add_epi32(s[i], _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
PEAK_LOOP(peak_int8__avx2, __m256i, _mm256_setzero_si256(), __m256i x = _mm256_set1_epi8(1); __m256i y = x;
          const __m256i ones = _mm256_set1_epi16(1),
          __asm__ volatile(""
                           : "+x"(x), "+x"(y)),
          INT8)

#define FMA(i) s[i] = _mm256_fmadd_ps(x, y, s[i]);
PEAK_LOOP(peak_fp32__avx2, __m256, _mm256_setzero_ps(), __m256 x = _mm256_set1_ps(1);
          __m256 y = x,
          __asm__ volatile(""
                           : "+x"(x), "+x"(y)),
          FMA)

PEAK_READ(peak_read__avx2, 32)
