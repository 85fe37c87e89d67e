// Private to unit/cpu: where things lie in a packed tile. pack.c writes it, the linear kernels read it.
//
// A tile holds CPU_TILE = 16 outputs over the whole row. Its unit is the *quad line*, 64 bytes: four neighbouring k of
// 16 outputs, the operand of one 512-bit dot-product instruction (or four of NEON's, or two of AVX2's).
//
//   quad line      byte 4*o + t is output o, value k = 4*quad + t
//                  | o0: k k+1 k+2 k+3 | o1: k k+1 k+2 k+3 | … | o15: k k+1 k+2 k+3 |
//
// The body of 32 values, by pack (all values unsigned; the kernels take the offset off again as offset * sum(x)):
//   nibbles         4 lines; low nibbles of line j are quad j, high nibbles quad 4 + j
//   pairs           2 lines; bits 2f, 2f+1 of line j are quad 4j + f
//   bits            1 line; bit q of a byte belongs to quad q
//   Q2_K MLX2       pairs                                            128 bytes
//   Q3_K MLX3       pairs, bits: the third of each value             192
//   Q4_0 Q4_1 Q4_K MLX4  nibbles                                     256
//   IQ4_NL IQ4_XS   nibbles, places in op_iq4_values, which kernels look up + 128       256
//   Q5_0 Q5_1 Q5_K MLX5  nibbles, bits: the fifth of each value      320
//   Q6_K MLX6       nibbles, pairs: the upper two of each value      384
//   Q8_0 I8C        8 lines, quads 0 … 7, stored + 128               512
//   MLX8            8 lines, quads 0 … 7, the codes as they are      512
//
// A head is 16 half floats, one per output. Blocks of a tile, in order of k:
//   Q4_0 Q5_0 Q8_0 IQ4_NL   pairs of blocks of 32:   | scales even | scales odd | body even | body odd |
//   Q4_1 Q5_1        blocks of 32:            | scales | minima | body |
//   Q4_K Q5_K        blocks of 256:           | d | dmin | 8 x (16 scale bytes, 16 minimum bytes) | 8 bodies |
//   Q2_K             blocks of 256:           | d | dmin | 16 x 16 bytes as in the file | 8 bodies |
//   Q3_K Q6_K        pairs of blocks of 256:  | d even | d odd | even: 16 x 16 scale bytes, 8 bodies | odd: the same |
//   IQ4_XS           pairs of blocks of 256:  | d even | d odd | even: 8 x 16 scale bytes, 8 bodies | odd: the same |
//   MLX2 … MLX8      blocks of the group:     | scales | biases | a body per 32 values |
//   MLX2 … MLX8 F32  blocks of 32:            | 16 float scales | 16 float biases | body |
//   I8C              bodies, then 16 floats: the scales. Rows end inside a body: the rest is zero
//   F32 F16 BF16     [k][16] elements
//   BF16_PAIRS       [k / 2][16] pairs of elements, zeros up to a multiple of 32 k
// So everything starts on a line border. An odd number of blocks leaves the last pair without its odd body.
#pragma once
#include "unit/cpu/kernel_args.h"

#define PACK_LINE 64
#define PACK_HEAD 32
// A pack is a constant where kernels ask; without the attribute gcc calls functions as large as pack_layout_get, and
// steps, offsets and prefetches of every tile function become variables.
#define PACK_INLINE static inline __attribute__((always_inline))

struct pack_layout {
    int block;  // values per block
    int body;   // bytes of a block behind its head(s)
    bool pairs; // two blocks share a line of heads; else a block has two heads
    int offset; // of stored values
    int scales; // blocks of 256: bytes of integer scales between head and bodies
    bool wide;  // heads are floats, two lines of them before each block
};
PACK_INLINE struct pack_layout pack_layout_get(enum cpu_pack p) {
    switch (p) {
    case CPU_PACK_Q4_0: return (struct pack_layout){32, 256, true, 8, 0, false};
    case CPU_PACK_Q4_1: return (struct pack_layout){32, 256, false, 0, 0, false};
    case CPU_PACK_Q5_0: return (struct pack_layout){32, 320, true, 16, 0, false};
    case CPU_PACK_Q5_1: return (struct pack_layout){32, 320, false, 0, 0, false};
    case CPU_PACK_Q8_0: return (struct pack_layout){32, 512, true, 128, 0, false};
    case CPU_PACK_Q4_K: return (struct pack_layout){256, 256 + 8 * 256, false, 0, 256, false};
    case CPU_PACK_Q6_K: return (struct pack_layout){256, 256 + 8 * 384, true, 32, 256, false};
    case CPU_PACK_I8C: return (struct pack_layout){32, 512, false, 128, 0, false};
    case CPU_PACK_F32: return (struct pack_layout){1, 64, false, 0, 0, false};
    case CPU_PACK_F16: return (struct pack_layout){1, 32, false, 0, 0, false};
    case CPU_PACK_BF16: return (struct pack_layout){1, 32, false, 0, 0, false};
    case CPU_PACK_Q5_K: return (struct pack_layout){256, 256 + 8 * 320, false, 0, 256, false};
    case CPU_PACK_IQ4_NL: return (struct pack_layout){32, 256, true, 128, 0, false};
    case CPU_PACK_IQ4_XS: return (struct pack_layout){256, 128 + 8 * 256, true, 128, 128, false};
    case CPU_PACK_Q2_K: return (struct pack_layout){256, 256 + 8 * 128, false, 0, 256, false};
    case CPU_PACK_Q3_K: return (struct pack_layout){256, 256 + 8 * 192, true, 4, 256, false};
    case CPU_PACK_MLX4_32: return (struct pack_layout){32, 256, false, 0, 0, false};
    case CPU_PACK_MLX4_64: return (struct pack_layout){64, 512, false, 0, 0, false};
    case CPU_PACK_MLX4_128: return (struct pack_layout){128, 1024, false, 0, 0, false};
    case CPU_PACK_MLX8_32: return (struct pack_layout){32, 512, false, 128, 0, false};
    case CPU_PACK_MLX8_64: return (struct pack_layout){64, 1024, false, 128, 0, false};
    case CPU_PACK_MLX8_128: return (struct pack_layout){128, 2048, false, 128, 0, false};
    case CPU_PACK_MLX4_F32: return (struct pack_layout){32, 256, false, 0, 0, true};
    case CPU_PACK_MLX8_F32: return (struct pack_layout){32, 512, false, 128, 0, true};
    case CPU_PACK_BF16_PAIRS: return (struct pack_layout){2, 64, false, 0, 0, false};
    case CPU_PACK_MLX2_32: return (struct pack_layout){32, 128, false, 0, 0, false};
    case CPU_PACK_MLX2_64: return (struct pack_layout){64, 256, false, 0, 0, false};
    case CPU_PACK_MLX2_128: return (struct pack_layout){128, 512, false, 0, 0, false};
    case CPU_PACK_MLX2_F32: return (struct pack_layout){32, 128, false, 0, 0, true};
    case CPU_PACK_MLX3_32: return (struct pack_layout){32, 192, false, 0, 0, false};
    case CPU_PACK_MLX3_64: return (struct pack_layout){64, 384, false, 0, 0, false};
    case CPU_PACK_MLX3_128: return (struct pack_layout){128, 768, false, 0, 0, false};
    case CPU_PACK_MLX3_F32: return (struct pack_layout){32, 192, false, 0, 0, true};
    case CPU_PACK_MLX5_32: return (struct pack_layout){32, 320, false, 0, 0, false};
    case CPU_PACK_MLX5_64: return (struct pack_layout){64, 640, false, 0, 0, false};
    case CPU_PACK_MLX5_128: return (struct pack_layout){128, 1280, false, 0, 0, false};
    case CPU_PACK_MLX5_F32: return (struct pack_layout){32, 320, false, 0, 0, true};
    case CPU_PACK_MLX6_32: return (struct pack_layout){32, 384, false, 0, 0, false};
    case CPU_PACK_MLX6_64: return (struct pack_layout){64, 768, false, 0, 0, false};
    case CPU_PACK_MLX6_128: return (struct pack_layout){128, 1536, false, 0, 0, false};
    case CPU_PACK_MLX6_F32: return (struct pack_layout){32, 384, false, 0, 0, true};
    case CPU_PACK_COUNT: break;
    }
    TERN_BUG("pack %d", (int)p);
}
// What the kernels do with a pack.
// Bits of an MLX pack's codes; 0: it is none.
PACK_INLINE int pack_mlx_bits(enum cpu_pack p) {
    if (p >= CPU_PACK_MLX6_32) return 6;
    if (p >= CPU_PACK_MLX5_32) return 5;
    if (p >= CPU_PACK_MLX3_32) return 3;
    if (p >= CPU_PACK_MLX2_32) return 2;
    if ((p >= CPU_PACK_MLX4_32 && p <= CPU_PACK_MLX4_128) || p == CPU_PACK_MLX4_F32) return 4;
    return (p >= CPU_PACK_MLX8_32 && p <= CPU_PACK_MLX8_128) || p == CPU_PACK_MLX8_F32 ? 8 : 0;
}
PACK_INLINE bool pack_is_mlx8(enum cpu_pack p) { return pack_mlx_bits(p) == 8; }
PACK_INLINE bool pack_has_min(enum cpu_pack p) {
    if (pack_mlx_bits(p)) return true;
    return p == CPU_PACK_Q4_1 || p == CPU_PACK_Q5_1 || p == CPU_PACK_Q4_K || p == CPU_PACK_Q5_K || p == CPU_PACK_Q2_K;
}
PACK_INLINE bool pack_groups16(enum cpu_pack p) { // scales per 16 values, else per 32
    return p == CPU_PACK_Q6_K || p == CPU_PACK_Q2_K || p == CPU_PACK_Q3_K;
}
PACK_INLINE bool pack_is_iq4(enum cpu_pack p) { return p == CPU_PACK_IQ4_NL || p == CPU_PACK_IQ4_XS; }
PACK_INLINE size_t pack_head_bytes(struct pack_layout l) { return l.wide ? 2 * PACK_LINE : PACK_LINE; }
// Start of block i: its line of heads. The body of block i follows at pack_body.
PACK_INLINE size_t pack_head(struct pack_layout l, size_t i) {
    if (l.pairs) return i / 2 * (PACK_LINE + 2 * (size_t)l.body) + i % 2 * PACK_HEAD;
    return i * (pack_head_bytes(l) + (size_t)l.body);
}
PACK_INLINE size_t pack_body(struct pack_layout l, size_t i) {
    if (l.pairs) return i / 2 * (PACK_LINE + 2 * (size_t)l.body) + PACK_LINE + i % 2 * (size_t)l.body;
    return i * (pack_head_bytes(l) + (size_t)l.body) + pack_head_bytes(l);
}
