// Peak of AVX-512 BF16: the product of two pairs for each fp32 sum.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#include <immintrin.h>

#define BF16(i) s[i] = _mm512_dpbf16_ps(s[i], (__m512bh)x, (__m512bh)y);
PEAK_LOOP(peak_bf16__avx512bf16, __m512, _mm512_setzero_ps(), __m512i x = _mm512_set1_epi32(0x3f803f80);
          __m512i y = x,
          __asm__ volatile(""
                           : "+v"(x), "+v"(y)),
          BF16)
