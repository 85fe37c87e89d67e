// Element formats of tensors: names and sizes. What the bytes of a block mean is op/'s contract (op/format.c).
//
// Quantised formats store a row as blocks of `n_block` values in `n_bytes` bytes. Numbers and layouts of the GGUF
// formats: github.com/ggml-org/ggml docs/gguf.md and ggml-common.h; FORMAT_I8C (int8 per output channel) is ours: a row
// is its int8 values followed by one float scale; its GGUF type number lies far above those given out, so that others
// refuse the file.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The formats of MLX checkpoints: groups of 32, 64 or 128 values share a scale and a bias, of one of three types each;
// value = scale * code + bias. A block is {scale, bias, codes}: what the file keeps in three tensors, put together by
// model_tensor_read(). b32: bytes of 32 codes.
#define FORMAT_LIST_MLX(X, bits, b32)               \
    X(MLX##bits##_32_F16, -1, 32, 4 + (b32))        \
    X(MLX##bits##_64_F16, -1, 64, 4 + 2 * (b32))    \
    X(MLX##bits##_128_F16, -1, 128, 4 + 4 * (b32))  \
    X(MLX##bits##_32_BF16, -1, 32, 4 + (b32))       \
    X(MLX##bits##_64_BF16, -1, 64, 4 + 2 * (b32))   \
    X(MLX##bits##_128_BF16, -1, 128, 4 + 4 * (b32)) \
    X(MLX##bits##_32_F32, -1, 32, 8 + (b32))        \
    X(MLX##bits##_64_F32, -1, 64, 8 + 2 * (b32))    \
    X(MLX##bits##_128_F32, -1, 128, 8 + 4 * (b32))

// X(NAME, GGUF type number or -1, values per block, bytes per block)
#define FORMAT_LIST(X)        \
    X(F32, 0, 1, 4)           \
    X(F16, 1, 1, 2)           \
    X(BF16, 30, 1, 2)         \
    X(Q4_0, 2, 32, 18)        \
    X(Q4_1, 3, 32, 20)        \
    X(Q5_0, 6, 32, 22)        \
    X(Q5_1, 7, 32, 24)        \
    X(Q8_0, 8, 32, 34)        \
    X(Q4_K, 12, 256, 144)     \
    X(Q6_K, 14, 256, 210)     \
    X(I8C, 1000, 1, 1)        \
    X(Q5_K, 13, 256, 176)     \
    X(IQ4_NL, 20, 32, 18)     \
    X(IQ4_XS, 23, 256, 136)   \
    X(Q2_K, 10, 256, 84)      \
    X(Q3_K, 11, 256, 110)     \
    FORMAT_LIST_MLX(X, 4, 16) \
    FORMAT_LIST_MLX(X, 8, 32) \
    FORMAT_LIST_MLX(X, 2, 8)  \
    FORMAT_LIST_MLX(X, 3, 12) \
    FORMAT_LIST_MLX(X, 5, 20) \
    FORMAT_LIST_MLX(X, 6, 24)

enum format {
#define FORMAT_ENUM(name, gguf, n_block, n_bytes) FORMAT_##name,
    FORMAT_LIST(FORMAT_ENUM)
#undef FORMAT_ENUM
        FORMAT_COUNT
};
struct format_info {
    const char *name; // "Q4_0"
    int gguf_type;    // -1: not a GGUF type
    int n_block;      // values per block
    int n_bytes;      // bytes per block
};
extern const struct format_info format_table[FORMAT_COUNT];
// False for a GGUF type that is unknown here; *name (nullable) then gets the type's name if it is a known GGUF type.
bool format_from_gguf(uint32_t gguf_type, enum format *out, const char **name);
bool format_from_name(const char *name, enum format *out); // case-insensitive
static inline bool format_is_float(enum format f) { return f == FORMAT_F32 || f == FORMAT_F16 || f == FORMAT_BF16; }
static inline bool format_is_mlx(enum format f) { return f >= FORMAT_MLX4_32_F16 && f <= FORMAT_MLX6_128_F32; }
struct format_mlx {
    int bits, group;
    enum format scales; // F16, BF16 or F32
    int scale_bytes;
};
struct format_mlx format_mlx_get(enum format f);
bool format_from_mlx(int64_t bits, int64_t group, enum format scales, enum format *out); // false: no such format
// Bytes of a row of n values; false on overflow or when n is no multiple of the block. FORMAT_I8C adds its scale.
bool format_row_bytes(enum format f, uint64_t n, uint64_t *out);
