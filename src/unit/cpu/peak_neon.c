// Peak of NEON: fp32 multiply-add.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#if defined(__aarch64__)
#include <arm_neon.h>

#define FMA(i) s[i] = vfmaq_f32(s[i], x, y);
PEAK_LOOP(peak_fp32__neon, float32x4_t, vdupq_n_f32(0), float32x4_t x = vdupq_n_f32(1);
          float32x4_t y = x,
          __asm__ volatile(""
                           : "+w"(x), "+w"(y)),
          FMA)
#endif
