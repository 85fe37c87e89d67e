// The table of element formats, and the names of GGUF types that we know but cannot compute with (for messages).
#include "base/base.h"

const struct format_info format_table[FORMAT_COUNT] = {
#define FORMAT_ROW(name, gguf, n_block, n_bytes) {#name, gguf, n_block, n_bytes},
    FORMAT_LIST(FORMAT_ROW)
#undef FORMAT_ROW
};

// By GGUF type number; NULL where the number was never given out or was withdrawn.
static const char *const gguf_names[] = {
    [0] = "F32",     [1] = "F16",    [2] = "Q4_0",     [3] = "Q4_1",    [6] = "Q5_0",     [7] = "Q5_1",
    [8] = "Q8_0",    [9] = "Q8_1",   [10] = "Q2_K",    [11] = "Q3_K",   [12] = "Q4_K",    [13] = "Q5_K",
    [14] = "Q6_K",   [15] = "Q8_K",  [16] = "IQ2_XXS", [17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
    [20] = "IQ4_NL", [21] = "IQ3_S", [22] = "IQ2_S",   [23] = "IQ4_XS", [24] = "I8",      [25] = "I16",
    [26] = "I32",    [27] = "I64",   [28] = "F64",     [29] = "IQ1_M",  [30] = "BF16",    [34] = "TQ1_0",
    [35] = "TQ2_0",  [39] = "MXFP4",
};

bool format_from_gguf(uint32_t gguf_type, enum format *out, const char **name) {
    if (name) *name = gguf_type < ARRAY_LEN(gguf_names) ? gguf_names[gguf_type] : NULL;
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (format_table[i].gguf_type < 0 || (uint32_t)format_table[i].gguf_type != gguf_type) continue;
        if (name) *name = format_table[i].name; // numbers of our own have no other
        *out = (enum format)i;
        return true;
    }
    return false;
}

struct format_mlx format_mlx_get(enum format f) {
    static const enum format scales[] = {FORMAT_F16, FORMAT_BF16, FORMAT_F32};
    static const int bits[] = {4, 8, 2, 3, 5, 6};
    if (!format_is_mlx(f)) TERN_BUG("%s is no format of MLX", format_table[f].name);
    const int i = (int)(f - FORMAT_MLX4_32_F16);
    return (struct format_mlx){bits[i / 9], format_table[f].n_block, scales[i / 3 % 3], i / 3 % 3 == 2 ? 4 : 2};
}

bool format_from_mlx(int64_t bits, int64_t group, enum format scales, enum format *out) {
    for (int i = FORMAT_MLX4_32_F16; i <= FORMAT_MLX6_128_F32; i++) {
        const struct format_mlx m = format_mlx_get((enum format)i);
        if (m.bits != bits || m.group != group || m.scales != scales) continue;
        *out = (enum format)i;
        return true;
    }
    return false;
}

static bool name_eq(const char *a, const char *b) {
    for (; *a && *b; a++, b++) {
        char ca = *a >= 'a' && *a <= 'z' ? (char)(*a - 32) : *a;
        char cb = *b >= 'a' && *b <= 'z' ? (char)(*b - 32) : *b;
        if (ca != cb) return false;
    }
    return *a == *b;
}

bool format_from_name(const char *name, enum format *out) {
    for (int i = 0; i < FORMAT_COUNT; i++) {
        if (!name_eq(name, format_table[i].name)) continue;
        *out = (enum format)i;
        return true;
    }
    return false;
}

bool format_row_bytes(enum format f, uint64_t n, uint64_t *out) {
    const struct format_info *info = &format_table[f];
    if (n % (uint64_t)info->n_block != 0) return false;
    if (!u64_mul(n / (uint64_t)info->n_block, (uint64_t)info->n_bytes, out)) return false;
    return f != FORMAT_I8C || u64_add(*out, sizeof(float), out);
}
