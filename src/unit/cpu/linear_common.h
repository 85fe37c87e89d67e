// Private to unit/cpu: what the linear kernel templates (linear_int8.inc, linear_float.inc) share.
#pragma once
#include <stdalign.h>
#include "unit/cpu/cpu_kernels.h"
#include "unit/cpu/pack_layout.h"

// Loops over rows, quads and halves have a count that is constant once inlined; unrolled, their arrays are registers.
// Builds with a sanitizer leave the loops as they are and compile fewer row counts: with every access checked, unrolled
// functions take minutes to compile.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LINEAR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(undefined_behavior_sanitizer) || __has_feature(thread_sanitizer)
#define LINEAR_SANITIZED 1
#endif
#endif
#if defined(LINEAR_SANITIZED) && defined(LINEAR_ROWS) && LINEAR_ROWS > 4
#undef LINEAR_ROWS
#define LINEAR_ROWS 4
#endif
#if defined(LINEAR_SANITIZED) && defined(LINEAR_FEW_ROWS) && LINEAR_FEW_ROWS > 2
#undef LINEAR_FEW_ROWS
#define LINEAR_FEW_ROWS 2
#endif
#if defined(UNROLL) // the plain C kernels leave both to the compiler: one function for all packs and rows will do
#elif defined(LINEAR_SANITIZED)
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif
#if !defined(LINEAR_INLINE)
#define LINEAR_INLINE inline __attribute__((always_inline))
#endif

// Rows of activations that share one pass over a chunk of weights.
#define LINEAR_SET_ROWS CPU_ROWS_FEW
// Activations of a set and chunk, rearranged. With several sets: half a first-level cache of 48 KiB, so that weights
// fit beside them. One set alone is bound by reading weights, which is fastest front to back: its chunk is the whole
// row up to 8,192 values, which the second-level cache holds (16 rows, n_in 4,608, 2 threads of a Xeon, Sapphire
// Rapids: Q8_0 564 GOP/s in chunks, 683 whole; Q4_0 830 and 905).
#define LINEAR_PANEL_BYTES (24 * 1024)
#define LINEAR_PANEL_ALONE_BYTES (160 * 1024)
// Few rows read several tiles at once from ranges of at least so many bytes: where each begins nothing was prefetched.
#define LINEAR_FEW_BYTES (32 * 1024)
// Weights of a block of tiles, by chunk: they are read again by each set of rows, from the second-level cache.
#define LINEAR_CACHE_BYTES (640 * 1024)

// What linear_more_<isa>.c compile; linear_int8.inc has the list of the others.
#define LINEAR_PACKS_MLX(X) \
    X(MLX4_64, mlx4_64)     \
    X(MLX8_64, mlx8_64)     \
    X(MLX2_64, mlx2_64) X(MLX3_64, mlx3_64) X(MLX5_64, mlx5_64) X(MLX6_64, mlx6_64)
#define LINEAR_PACKS_MORE(X) \
    X(Q5_K, q5_k)            \
    X(IQ4_NL, iq4_nl) X(IQ4_XS, iq4_xs) X(Q2_K, q2_k) X(Q3_K, q3_k) LINEAR_PACKS_MLX(X)
// Packs that another's tile functions serve, since these take the layout from the job.
#define LINEAR_ALIASES_MLX(X, n)               \
    X(MLX##n##_32, mlx##n##_32, MLX##n##_64)   \
    X(MLX##n##_128, mlx##n##_128, MLX##n##_64) \
    X(MLX##n##_F32, mlx##n##_f32, MLX##n##_64)
#define LINEAR_ALIASES_MORE(X) \
    LINEAR_ALIASES_MLX(X, 2)   \
    LINEAR_ALIASES_MLX(X, 3)   \
    LINEAR_ALIASES_MLX(X, 4) LINEAR_ALIASES_MLX(X, 5) LINEAR_ALIASES_MLX(X, 6) LINEAR_ALIASES_MLX(X, 8)

// Cuts n rows into n_parts parts whose sizes differ by one at most: where part i begins.
static inline int part_begin(int n, int n_parts, int i) { return n / n_parts * i + MIN(i, n % n_parts); }

// One kernel per pack and rows class, k_linear_<pack>_<rows>x16__<isa>, from tile functions for 1 … LINEAR_ROWS rows.
// A template defines tile_run, tile_fn and linear_run, and then names its packs.
#define LINEAR_CAT3(a, b, c) a##b##__##c
#define LINEAR_NAME3(a, b, c) LINEAR_CAT3(a, b, c)
#define LINEAR_NAME(pack, tile) LINEAR_NAME3(k_linear_, pack##_##tile, LINEAR_ISA)
#define TILE_EACH_0(X, pack)
#define TILE_EACH_2(X, pack) X(pack, 1) X(pack, 2)
#define TILE_EACH_4(X, pack) X(pack, 1) X(pack, 2) X(pack, 3) X(pack, 4)
#define TILE_EACH_6(X, pack) TILE_EACH_4(X, pack) X(pack, 5) X(pack, 6)
#define TILE_EACH_8(X, pack) TILE_EACH_6(X, pack) X(pack, 7) X(pack, 8)
#define TILE_EACH_16(X, pack) \
    TILE_EACH_8(X, pack)      \
    X(pack, 9) X(pack, 10) X(pack, 11) X(pack, 12) X(pack, 13) X(pack, 14) X(pack, 15) X(pack, 16)
#define TILE_EACH_CAT(n) TILE_EACH_##n
#define TILE_EACH_N(n) TILE_EACH_CAT(n)
#define TILE_EACH TILE_EACH_N(LINEAR_ROWS)
#define FEW_EACH TILE_EACH_N(LINEAR_FEW_ROWS)
#define TILE_NAME(pack, rows) tile_##pack##_##rows,
