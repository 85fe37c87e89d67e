// Peak of AVX-512 VNNI: the int8 product of four pairs for each 32-bit sum.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#include <immintrin.h>

#define INT8(i) s[i] = _mm512_dpbusd_epi32(s[i], x, y);
PEAK_LOOP(peak_int8__avx512vnni, __m512i, _mm512_setzero_si512(), __m512i x = _mm512_set1_epi32(0x01010101);
          __m512i y = x,
          __asm__ volatile(""
                           : "+v"(x), "+v"(y)),
          INT8)
