// Packing weights into the kernels' layout (pack_layout.h), one tile of 16 outputs at a time.
//
// Values come from op_decompose_row, so the meaning of each format's bits lives in op/ alone; scales are copied as the
// half floats they are. The formats with super-blocks are taken apart with d and dmin set to one, which gives their
// integer scales.
#include "base/base.h"
#include "unit/cpu/cpu_int.h"
#include "unit/cpu/pack_layout.h"

// Whose bits a pack holds.
static const enum format pack_formats[CPU_PACK_COUNT] = {
    [CPU_PACK_Q4_0] = FORMAT_Q4_0,
    [CPU_PACK_Q4_1] = FORMAT_Q4_1,
    [CPU_PACK_Q5_0] = FORMAT_Q5_0,
    [CPU_PACK_Q5_1] = FORMAT_Q5_1,
    [CPU_PACK_Q8_0] = FORMAT_Q8_0,
    [CPU_PACK_Q4_K] = FORMAT_Q4_K,
    [CPU_PACK_Q6_K] = FORMAT_Q6_K,
    [CPU_PACK_I8C] = FORMAT_I8C,
    [CPU_PACK_F32] = FORMAT_F32,
    [CPU_PACK_F16] = FORMAT_F16,
    [CPU_PACK_BF16] = FORMAT_BF16,
    [CPU_PACK_Q5_K] = FORMAT_Q5_K,
    [CPU_PACK_IQ4_NL] = FORMAT_IQ4_NL,
    [CPU_PACK_IQ4_XS] = FORMAT_IQ4_XS,
    [CPU_PACK_Q2_K] = FORMAT_Q2_K,
    [CPU_PACK_Q3_K] = FORMAT_Q3_K,
    [CPU_PACK_MLX4_32] = FORMAT_MLX4_32_F16,
    [CPU_PACK_MLX4_64] = FORMAT_MLX4_64_F16,
    [CPU_PACK_MLX4_128] = FORMAT_MLX4_128_F16,
    [CPU_PACK_MLX8_32] = FORMAT_MLX8_32_F16,
    [CPU_PACK_MLX8_64] = FORMAT_MLX8_64_F16,
    [CPU_PACK_MLX8_128] = FORMAT_MLX8_128_F16,
    [CPU_PACK_MLX4_F32] = FORMAT_MLX4_32_F32,
    [CPU_PACK_MLX8_F32] = FORMAT_MLX8_32_F32,
    [CPU_PACK_BF16_PAIRS] = FORMAT_BF16,
    [CPU_PACK_MLX2_32] = FORMAT_MLX2_32_F16,
    [CPU_PACK_MLX2_64] = FORMAT_MLX2_64_F16,
    [CPU_PACK_MLX2_128] = FORMAT_MLX2_128_F16,
    [CPU_PACK_MLX2_F32] = FORMAT_MLX2_32_F32,
    [CPU_PACK_MLX3_32] = FORMAT_MLX3_32_F16,
    [CPU_PACK_MLX3_64] = FORMAT_MLX3_64_F16,
    [CPU_PACK_MLX3_128] = FORMAT_MLX3_128_F16,
    [CPU_PACK_MLX3_F32] = FORMAT_MLX3_32_F32,
    [CPU_PACK_MLX5_32] = FORMAT_MLX5_32_F16,
    [CPU_PACK_MLX5_64] = FORMAT_MLX5_64_F16,
    [CPU_PACK_MLX5_128] = FORMAT_MLX5_128_F16,
    [CPU_PACK_MLX5_F32] = FORMAT_MLX5_32_F32,
    [CPU_PACK_MLX6_32] = FORMAT_MLX6_32_F16,
    [CPU_PACK_MLX6_64] = FORMAT_MLX6_64_F16,
    [CPU_PACK_MLX6_128] = FORMAT_MLX6_128_F16,
    [CPU_PACK_MLX6_F32] = FORMAT_MLX6_32_F32,
};

const char *cpu_pack_name(enum cpu_pack p) { return format_table[pack_formats[p]].name; }

enum cpu_pack cpu_pack_for(enum format f, enum prog_class numerics) {
    if (numerics == PROG_CLASS_FP32 && !format_is_float(f)) return CPU_PACK_F32;
    if (format_is_mlx(f)) {
        const struct format_mlx m = format_mlx_get(f);
        const enum format scales = m.scales == FORMAT_F32 ? FORMAT_F32 : FORMAT_F16;
        enum format same; // the format that names the pack
        if (!format_from_mlx(m.bits, scales == FORMAT_F32 ? 32 : m.group, scales, &same)) TERN_BUG("MLX");
        f = same;
    }
    if (numerics == PROG_CLASS_BF16 && f == FORMAT_BF16) return CPU_PACK_BF16_PAIRS;
    for (int p = 0; p < CPU_PACK_COUNT; p++) {
        if (pack_formats[p] == f) return (enum cpu_pack)p;
    }
    TERN_BUG("no pack for %s", format_table[f].name);
}

bool cpu_pack_bf16_scales(enum format f) { return format_is_mlx(f) && format_mlx_get(f).scales == FORMAT_BF16; }

bool cpu_pack_is_int8(enum cpu_pack p) { return !format_is_float(pack_formats[p]); }

bool cpu_pack_tile_bytes(enum cpu_pack p, int64_t n_in, size_t *out) {
    const struct pack_layout l = pack_layout_get(p);
    if (n_in < 0 || (uint64_t)n_in > SIZE_MAX / 2) return false;
    size_t n = (size_t)n_in, bytes;
    if (p == CPU_PACK_I8C) { // the last body may be part empty
        return size_mul(n / 32 + (n % 32 != 0), (size_t)l.body, &bytes) && size_add(bytes, PACK_LINE, out);
    }
    if (p == CPU_PACK_BF16_PAIRS) return size_mul(n / 32 + (n % 32 != 0), 16 * PACK_LINE, out);
    if (!cpu_pack_is_int8(p)) return size_mul(n, (size_t)l.body, &bytes) && size_align(bytes, CPU_ALIGN, out);
    if (n % (size_t)l.block != 0) return false;
    n /= (size_t)l.block;
    const size_t n_heads = l.pairs ? n / 2 + n % 2 : n;
    size_t heads;
    return size_mul(n, (size_t)l.body, &bytes) && size_mul(n_heads, pack_head_bytes(l), &heads) &&
           size_add(bytes, heads, out);
}

// The widest use: one row as floats.
size_t cpu_pack_scratch_bytes(int64_t n_in) { return (size_t)n_in * sizeof(float); }

// The nibble that stands for a value of IQ4_NL and IQ4_XS.
static int iq4_place(int v) {
    for (int i = 0; i < 16; i++) {
        if (op_iq4_values[i] == v) return i;
    }
    TERN_BUG("%d is no value of IQ4", v);
}

// Two bits of quad q.
static void pair_put(uint8_t *pairs, int q, int at, int v) {
    uint8_t *p = &pairs[q / 4 * PACK_LINE + at];
    *p = (uint8_t)(*p | (v & 3) << (q % 4 * 2));
}

static void bit_put(uint8_t *bits, int q, int at, int v) { bits[at] = (uint8_t)(bits[at] | (v & 1) << q); }

// Four bits of quad line byte: value v of quad q at `at` (4 * output + place in quad) in a body with nibbles.
static void nibble_put(uint8_t *body, int q, int at, int v) {
    uint8_t *p = &body[q % 4 * PACK_LINE + at];
    *p = (uint8_t)(*p | (v & 15) << (q / 4 * 4));
}

// A pack whose bodies look like this one's.
static enum cpu_pack body_like(enum cpu_pack p) {
    switch (pack_mlx_bits(p)) {
    case 2: return CPU_PACK_Q2_K;
    case 3: return CPU_PACK_Q3_K;
    case 4: return CPU_PACK_Q4_1;
    case 5: return CPU_PACK_Q5_1;
    case 6: return CPU_PACK_Q6_K;
    case 8: return CPU_PACK_Q8_0;
    default: return p;
    }
}

// Puts 32 values of output o into a zeroed body.
static void body_put(enum cpu_pack p, uint8_t *body, int o, const int8_t *values, int offset) {
    const enum cpu_pack like = body_like(p);
    for (int k = 0; k < 32; k++) {
        const int q = k / 4, at = o * 4 + k % 4, v = values[k] + offset;
        switch (like) {
        case CPU_PACK_Q4_0:
        case CPU_PACK_Q4_1:
        case CPU_PACK_Q4_K: nibble_put(body, q, at, v); break;
        case CPU_PACK_IQ4_NL:
        case CPU_PACK_IQ4_XS: nibble_put(body, q, at, iq4_place(values[k])); break;
        case CPU_PACK_Q5_0:
        case CPU_PACK_Q5_1:
        case CPU_PACK_Q5_K:
            nibble_put(body, q, at, v);
            bit_put(body + 4 * PACK_LINE, q, at, v >> 4);
            break;
        case CPU_PACK_Q6_K:
            nibble_put(body, q, at, v);
            pair_put(body + 4 * PACK_LINE, q, at, v >> 4);
            break;
        case CPU_PACK_Q2_K: pair_put(body, q, at, v); break;
        case CPU_PACK_Q3_K:
            pair_put(body, q, at, v);
            bit_put(body + 2 * PACK_LINE, q, at, v >> 2);
            break;
        default: body[q * PACK_LINE + at] = (uint8_t)v; break; // Q8_0, I8C, MLX8
        }
    }
}

static void pack_blocks32(enum cpu_pack p, struct pack_layout l, const uint8_t *row, int64_t n_in, int o,
                          uint8_t *tile) {
    const size_t block_bytes = (size_t)format_table[pack_formats[p]].n_bytes;
    for (size_t b = 0; b < (size_t)n_in / 32; b++, row += block_bytes) {
        int8_t q[32];
        float scale, min;
        op_decompose_row(pack_formats[p], row, 32, q, &scale, &min);
        uint8_t *head = tile + pack_head(l, b) + 2 * o;
        memcpy(head, row, 2); // d, then (Q4_1, Q5_1) the minimum
        if (!l.pairs) memcpy(head + PACK_HEAD, row + 2, 2);
        body_put(p, tile + pack_body(l, b), o, q, l.offset);
    }
}

// Where a block of 256 keeps its half floats: d and, where it has one, dmin behind it.
static size_t block_d_at(enum cpu_pack p) {
    switch (p) {
    case CPU_PACK_Q6_K: return 208;
    case CPU_PACK_Q2_K: return 80;
    case CPU_PACK_Q3_K: return 108;
    default: return 0; // Q4_K, Q5_K, IQ4_XS
    }
}

// The integer scale and minimum of a group, of output o.
static void scale_put(enum cpu_pack p, uint8_t *scales, int group, int o, int scale, int min) {
    switch (p) {
    case CPU_PACK_Q4_K:
    case CPU_PACK_Q5_K:
        scales[group * 2 * CPU_TILE + o] = (uint8_t)scale;
        scales[(group * 2 + 1) * CPU_TILE + o] = (uint8_t)min;
        break;
    case CPU_PACK_Q2_K: scales[group * CPU_TILE + o] = (uint8_t)(scale | min << 4); break;
    default: scales[group * CPU_TILE + o] = (uint8_t)scale; break; // signed
    }
}

static void pack_blocks256(enum cpu_pack p, struct pack_layout l, const uint8_t *row, int64_t n_in, int o,
                           uint8_t *tile) {
    const bool has_min = pack_has_min(p);
    const size_t block_bytes = (size_t)format_table[pack_formats[p]].n_bytes, d_at = block_d_at(p);
    const int group = op_format_groups(pack_formats[p]).group, body_bytes = (l.body - l.scales) / 8;
    static const uint8_t one[2] = {0x00, 0x3c}; // the half float 1
    for (size_t b = 0; b < (size_t)n_in / 256; b++, row += block_bytes) {
        uint8_t block[256];
        int8_t q[256];
        float scale[16], min[16] = {0};
        memcpy(block, row, block_bytes);
        memcpy(block + d_at, one, 2);
        if (has_min) memcpy(block + d_at + 2, one, 2);
        op_decompose_row(pack_formats[p], block, 256, q, scale, min);
        uint8_t *head = tile + pack_head(l, b) + 2 * o, *scales = tile + pack_body(l, b), *body = scales + l.scales;
        memcpy(head, row + d_at, 2);
        if (has_min) memcpy(head + PACK_HEAD, row + d_at + 2, 2);
        for (int g = 0; g < 256 / group; g++) scale_put(p, scales, g, o, (int)scale[g], (int)-min[g]);
        for (int i = 0; i < 8; i++) body_put(p, body + i * body_bytes, o, q + i * 32, l.offset);
    }
}

// A file's group of 64 or 128 is one block, or in the packs with float scales several.
static void pack_mlx(enum cpu_pack p, struct pack_layout l, enum format f, const uint8_t *row, int64_t n_in, int o,
                     uint8_t *tile) {
    const struct format_mlx m = format_mlx_get(f);
    const size_t bytes = (size_t)m.scale_bytes;
    const int body_bytes = l.body / (l.block / 32);
    for (int64_t k = 0; k < n_in; k += m.group, row += format_table[f].n_bytes) {
        int8_t q[128];
        float scale[4], min[4];
        op_decompose_row(f, row, m.group, q, scale, min);
        for (int i = 0; i < m.group; i += 32) {
            const size_t block = (size_t)(k + i) / (size_t)l.block;
            uint8_t *head = tile + pack_head(l, block) + (size_t)o * bytes;
            memcpy(head, row, bytes);
            memcpy(head + CPU_TILE * bytes, row + bytes, bytes);
            body_put(p, tile + pack_body(l, block) + (k + i) % l.block / 32 * body_bytes, o, q + i, l.offset);
        }
    }
}

static void pack_i8c(struct pack_layout l, const uint8_t *row, int64_t n_in, int o, uint8_t *tile) {
    const int64_t n_bodies = (n_in + 31) / 32;
    for (int64_t b = 0; b < n_bodies; b++) {
        int8_t q[32] = {0};
        memcpy(q, row + b * 32, (size_t)MIN(n_in - b * 32, (int64_t)32));
        body_put(CPU_PACK_I8C, tile + b * l.body, o, q, l.offset);
    }
    memcpy(tile + n_bodies * l.body + (size_t)o * sizeof(float), row + n_in, sizeof(float));
}

void cpu_pack_tile(enum cpu_pack p, enum format f, const uint8_t *src, size_t row_bytes, int64_t n_out, int64_t n_in,
                   int64_t first, uint8_t *tile, void *scratch) {
    const struct pack_layout l = pack_layout_get(p);
    size_t tile_bytes;
    const enum prog_class numerics = p == CPU_PACK_BF16_PAIRS ? PROG_CLASS_BF16 : PROG_CLASS_INT8;
    if (!cpu_pack_tile_bytes(p, n_in, &tile_bytes) || (p != CPU_PACK_F32 && cpu_pack_for(f, numerics) != p)) {
        TERN_BUG("%s rows of %lld values do not go into a %s tile", format_table[f].name, (long long)n_in,
                 cpu_pack_name(p));
    }
    memset(tile, 0, tile_bytes);
    for (int o = 0; o < CPU_TILE && first + o < n_out; o++) {
        const uint8_t *row = src + (size_t)(first + o) * row_bytes;
        if (p == CPU_PACK_I8C) {
            pack_i8c(l, row, n_in, o, tile);
        } else if (format_is_mlx(f) && p != CPU_PACK_F32) {
            pack_mlx(p, l, f, row, n_in, o, tile);
        } else if (cpu_pack_is_int8(p)) {
            if (l.block == 32) pack_blocks32(p, l, row, n_in, o, tile);
            if (l.block == 256) pack_blocks256(p, l, row, n_in, o, tile);
        } else if (p == CPU_PACK_F32) {
            op_dequant_row(f, row, n_in, scratch);
            for (int64_t k = 0; k < n_in; k++) memcpy(tile + (k * CPU_TILE + o) * 4, (float *)scratch + k, 4);
        } else if (p == CPU_PACK_BF16_PAIRS) {
            for (int64_t k = 0; k < n_in; k++) memcpy(tile + (k / 2 * CPU_TILE + o) * 4 + k % 2 * 2, row + 2 * k, 2);
        } else {
            for (int64_t k = 0; k < n_in; k++) memcpy(tile + (k * CPU_TILE + o) * 2, row + 2 * k, 2);
        }
    }
}
