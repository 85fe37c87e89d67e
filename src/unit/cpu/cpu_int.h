// Private to unit/cpu: instruction sets, packing and the choice of kernels (what kernels are called with:
// kernel_args.h).
//
// Design. A matrix [n_out, n_in] is packed into tiles of CPU_TILE outputs: within a tile the bytes of one K block lie
// together in the order kernels read them, so that one-row and many-row kernels of every ISA share one pack (and one
// cache file). Lanes of vector kernels are the tile's outputs; K is walked ascending with one float accumulator per
// output (op.h's contract), so all kernels of an int8 pack agree bit for bit.
//
// kernels.inc lists every kernel once: declaration, selection, test and bench are made from its rows. Selection starts
// at the scalar rows and is overwritten upward by ISA, under the mask of cpu_isa_usable().
#pragma once
#include "base/base.h"
#include "op/op.h"
#include "unit/cpu/kernel_args.h"
#include "unit/unit.h"

enum cpu_isa {
    CPU_SCALAR = 1 << 0,
    CPU_AVX2 = 1 << 1,   // with FMA and F16C
    CPU_AVX512 = 1 << 2, // F, BW, VL, DQ
    CPU_AVX512VNNI = 1 << 3,
    CPU_AVX512BF16 = 1 << 4,
    CPU_AMX = 1 << 5, // int8 and bf16 tiles
    CPU_NEON = 1 << 6,
    CPU_NEONDOT = 1 << 7, // dotprod
    CPU_I8MM = 1 << 8,
    CPU_AVXVNNI = 1 << 9, // VNNI in 256-bit registers
};
uint32_t cpu_isa_present(void); // detected once
// Present ISAs up to `bound` ("scalar", "avx2", "avx512", "avx512vnni", "neon", …; NULL: $TERN_CPU, else all).
enum tern_status cpu_isa_usable(const char *bound, uint32_t *mask, struct tern_err *err);
const char *cpu_isa_name(uint32_t mask); // of the highest level in mask

#define CPU_PACK_VERSION 2 // of all layouts together; part of the cache key
const char *cpu_pack_name(enum cpu_pack p);
// The pack that serves a weight format in a class (fp32 class: always CPU_PACK_F32 for quantised formats).
enum cpu_pack cpu_pack_for(enum format f, enum prog_class numerics);
bool cpu_pack_bf16_scales(enum format f); // what struct cpu_matrix says of a matrix from this format
bool cpu_pack_is_int8(enum cpu_pack p);   // activations are quantised
// Bytes of one tile; false on overflow. n_in must fit the format's block.
bool cpu_pack_tile_bytes(enum cpu_pack p, int64_t n_in, size_t *out);
// Packs one tile: outputs [first, first + 16) of the source rows (those past n_out become zeros).
// scratch: cpu_pack_scratch_bytes(n_in) bytes.
void cpu_pack_tile(enum cpu_pack p, enum format f, const uint8_t *src, size_t row_bytes, int64_t n_out, int64_t n_in,
                   int64_t first, uint8_t *tile, void *scratch);
size_t cpu_pack_scratch_bytes(int64_t n_in);

void cpu_kernels_init(struct cpu_kernels *k, uint32_t isa_mask);
uint32_t cpu_kernels_isa(uint32_t isa_mask); // those of the mask that kernels were written for
