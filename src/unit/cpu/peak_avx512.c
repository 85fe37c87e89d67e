// Peak of AVX-512: fp32 multiply-add.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#include <immintrin.h>

#define FMA(i) s[i] = _mm512_fmadd_ps(x, y, s[i]);
PEAK_LOOP(peak_fp32__avx512, __m512, _mm512_setzero_ps(), __m512 x = _mm512_set1_ps(1);
          __m512 y = x,
          __asm__ volatile(""
                           : "+v"(x), "+v"(y)),
          FMA)

PEAK_READ(peak_read__avx512, 64)
