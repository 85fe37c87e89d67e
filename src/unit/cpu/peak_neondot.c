// Peak of NEON's dot product: the int8 product of four pairs for each 32-bit sum.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#if defined(__aarch64__)
#include <arm_neon.h>

#define INT8(i) s[i] = vdotq_s32(s[i], x, y);
PEAK_LOOP(peak_int8__neondot, int32x4_t, vdupq_n_s32(0), int8x16_t x = vdupq_n_s8(1);
          int8x16_t y = x,
          __asm__ volatile(""
                           : "+w"(x), "+w"(y)),
          INT8)
#endif
