// Random blocks of every format, made at memory speed.
//
// A counter-based generator: word k of a tensor is a bijective mix of seed + k * odd constant (the splitmix64
// finaliser), so words do not wait for one another, and equal arguments give equal bytes. Quantised values are uniform
// over their range; scales come from a table of 64 around the one that gives the wanted standard deviation, so no
// rounding function runs per block. Blocks with a minimum get the one that centres them; Q8_0 avoids -128, as
// quantisers do.
#include "base/base.h"
#include "model/model_int.h"
#include <math.h>

#define FLOAT_TABLE 4096 // values of a float tensor: 12 random bits choose
#define SCALE_TABLE 64   // scales of a block: 6 random bits choose
#define Q4_K_SCALES 12   // bytes of packed 6-bit scales and minima
#define Q6_K_SCALES 16
#define Q2_K_SCALES 16 // bytes of a 4-bit scale and minimum each
#define Q3_K_SCALES 12 // bytes of packed 6-bit scales
#define IQ4_XS_SCALES 6

// Block layouts: Q4_0 {d, 16 q}; Q4_1 {d, m, 16 q}; Q5_0 {d, 4 high bits, 16 q}; Q5_1 {d, m, 4 high, 16 q};
// Q8_0 {d, 32 q}; Q4_K {d, dmin, 12 scales, 128 q}; Q5_K {d, dmin, 12 scales, 32 high, 128 q};
// Q6_K {128 low, 64 high, 16 scales, d}; IQ4_NL {d, 16 q}; IQ4_XS {d, 6 scales, 128 q};
// Q2_K {16 scales, 64 q, d, dmin}; Q3_K {32 high, 64 q, 12 scales, d}. d, m and dmin are f16.
#define Q8_0_BYTES 34
#define Q2_K_BYTES 84
#define Q3_K_BYTES 110
#define IQ4_XS_BYTES 136
#define Q5_K_BYTES 176
#define Q4_K_BYTES 144
#define Q6_K_BYTES 210

struct filler {
    uint64_t base, k;
    uint16_t d[SCALE_TABLE], m[SCALE_TABLE]; // f16 scale and its minimum
    union {
        float f32[FLOAT_TABLE];
        uint16_t u16[FLOAT_TABLE];
        uint8_t scales[SCALE_TABLE][16];
    } table;
};

static inline uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t next(struct filler *f) { return mix(f->base + 0x9e3779b97f4a7c15u * ++f->k); }

static inline void put_words(struct filler *f, uint8_t *out, int n_words) {
    for (int i = 0; i < n_words; i++) {
        uint64_t r = next(f);
        memcpy(out + 8 * i, &r, 8);
    }
}

// Each byte 0x80 (-128) becomes 0x81.
static inline uint64_t no_minus_128(uint64_t r) {
    uint64_t t = r ^ 0x8080808080808080u;
    uint64_t not_zero = (((t & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) | t) & 0x8080808080808080u;
    return r | ((~not_zero & 0x8080808080808080u) >> 7);
}

static inline void put_bytes_i8(struct filler *f, uint8_t *out, int64_t n) {
    for (; n >= 8; n -= 8, out += 8) {
        uint64_t r = no_minus_128(next(f));
        memcpy(out, &r, 8);
    }
    uint64_t r = no_minus_128(next(f));
    memcpy(out, &r, (size_t)n);
}

// Standard deviation of an integer drawn uniformly from n neighbours, n = 16, 32, 64, 255.
#define STD_4 1.1180
#define STD_8 2.2913
#define STD_16 4.6098
#define STD_32 9.2331
#define STD_64 18.473
#define STD_255 73.612
#define STD_256 73.900
#define STD_IQ4 67.18 // of the sixteen values of IQ4_NL and IQ4_XS, drawn alike

#define SPREAD_RMS 1.0107 // root mean square of the factors 0.75 … 1.25
// unit: std of the integers; centre: their mean, subtracted through the minimum.
static void scales_make(struct filler *f, double std, double unit, double centre) {
    for (int i = 0; i < SCALE_TABLE; i++) {
        double d = std / (unit * SPREAD_RMS) * (0.75 + 0.5 * i / (SCALE_TABLE - 1));
        f->d[i] = f32_to_f16((float)d);
        f->m[i] = f32_to_f16((float)(-centre * (double)f16_to_f32(f->d[i])));
    }
}

// Eight 6-bit scales in 32..63 and minima equal to them, packed as Q4_K has it. Returns the scales' root mean square.
static double scales_q4_k(struct filler *f) {
    double square = 0;
    for (int i = 0; i < SCALE_TABLE; i++) {
        uint8_t sc[8], *out = f->table.scales[i];
        for (int k = 0; k < 8; k++) {
            sc[k] = (uint8_t)(32 + mix((uint64_t)i * 8 + (uint64_t)k) % 32);
            square += (double)sc[k] * sc[k] / (8 * SCALE_TABLE);
        }
        for (int k = 0; k < 4; k++) {
            uint8_t high = (uint8_t)((sc[k + 4] >> 4) << 6), low = sc[k + 4] & 15;
            out[k] = sc[k] | high;
            out[k + 4] = sc[k] | high;
            out[k + 8] = (uint8_t)(low | low << 4);
        }
    }
    return sqrt(square);
}

// Sixteen int8 scales in 32..95. Returns their root mean square.
static double scales_q6_k(struct filler *f) {
    double square = 0;
    for (int i = 0; i < SCALE_TABLE; i++) {
        for (int k = 0; k < Q6_K_SCALES; k++) {
            uint8_t sc = (uint8_t)(32 + mix((uint64_t)i * Q6_K_SCALES + (uint64_t)k) % 64);
            f->table.scales[i][k] = sc;
            square += (double)sc * sc / (Q6_K_SCALES * SCALE_TABLE);
        }
    }
    return sqrt(square);
}

// Sixteen 4-bit scales in 8..15 and minima equal to them. Returns the scales' root mean square.
static double scales_q2_k(struct filler *f) {
    double square = 0;
    for (int i = 0; i < SCALE_TABLE; i++) {
        for (int k = 0; k < Q2_K_SCALES; k++) {
            uint8_t sc = (uint8_t)(8 + mix((uint64_t)i * Q2_K_SCALES + (uint64_t)k) % 8);
            f->table.scales[i][k] = (uint8_t)(sc | sc << 4);
            square += (double)sc * sc / (Q2_K_SCALES * SCALE_TABLE);
        }
    }
    return sqrt(square);
}

// Random bytes of packed 6-bit scales whose upper pairs (those from byte `high` on, n of them) are all 3: scales 16..31
// once 32 is taken off. Returns their root mean square.
static double scales_6_bit(struct filler *f, int high, int n) {
    for (int i = 0; i < SCALE_TABLE; i++) {
        for (int k = 0; k < 16; k++) f->table.scales[i][k] = (uint8_t)mix((uint64_t)i * 16 + (uint64_t)k);
        memset(f->table.scales[i] + high, 0xff, (size_t)n);
    }
    double square = 0;
    for (int sc = 16; sc < 32; sc++) square += sc * sc / 16.0;
    return sqrt(square);
}

static void floats_make(struct filler *f, enum format format, double std) {
    for (int i = 0; i < FLOAT_TABLE; i++) {
        // Uniform in +-sqrt(3)*std.
        float v = (float)(std * 1.7320508 * ((2.0 * i + 1.0) / FLOAT_TABLE - 1.0));
        if (format == FORMAT_F32) f->table.f32[i] = v;
        if (format == FORMAT_F16) f->table.u16[i] = f32_to_f16(v);
        if (format == FORMAT_BF16) f->table.u16[i] = f32_to_bf16(v);
    }
}

static void filler_init(struct filler *f, const struct shape_fill *p) {
    f->base = mix(p->seed ^ 0x7465726eu);
    f->k = 0;
    if (format_is_mlx(p->format)) {
        const double n_codes = (double)(1 << format_mlx_get(p->format).bits);
        scales_make(f, p->std, sqrt((n_codes * n_codes - 1) / 12), (n_codes - 1) / 2);
        return;
    }
    switch (p->format) {
    case FORMAT_F32:
    case FORMAT_F16:
    case FORMAT_BF16: floats_make(f, p->format, p->std); return;
    case FORMAT_Q4_0: scales_make(f, p->std, STD_16, 0); return;
    case FORMAT_Q4_1: scales_make(f, p->std, STD_16, 7.5); return;
    case FORMAT_Q5_0: scales_make(f, p->std, STD_32, 0); return;
    case FORMAT_Q5_1: scales_make(f, p->std, STD_32, 15.5); return;
    case FORMAT_Q8_0: scales_make(f, p->std, STD_255, 0); return;
    case FORMAT_I8C: scales_make(f, p->std, STD_255, 0); return;
    case FORMAT_Q4_K:
        scales_make(f, p->std, STD_16 * scales_q4_k(f), -7.5); // value = d*sc*q - dmin*sc
        return;
    case FORMAT_Q6_K: scales_make(f, p->std, STD_64 * scales_q6_k(f), 0); return;
    case FORMAT_Q5_K: scales_make(f, p->std, STD_32 * scales_q4_k(f), -15.5); return;
    case FORMAT_IQ4_NL: scales_make(f, p->std, STD_IQ4, 0); return;
    case FORMAT_IQ4_XS: scales_make(f, p->std, STD_IQ4 * scales_6_bit(f, 0, 2), 0); return;
    case FORMAT_Q2_K: scales_make(f, p->std, STD_4 * scales_q2_k(f), -1.5); return;
    case FORMAT_Q3_K: scales_make(f, p->std, STD_8 * scales_6_bit(f, 8, 4), 0); return;
    default: break;
    }
    TERN_BUG("format %d", (int)p->format);
}

static void fill_q4(struct filler *f, uint8_t *out, int64_t n, bool has_min) {
    for (int64_t i = 0; i < n; i++) {
        unsigned at = (unsigned)(next(f) >> 58);
        memcpy(out, &f->d[at], 2);
        if (has_min) memcpy(out + 2, &f->m[at], 2);
        out += has_min ? 4 : 2;
        put_words(f, out, 2);
        out += 16;
    }
}

static void fill_q5(struct filler *f, uint8_t *out, int64_t n, bool has_min) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t r = next(f);
        memcpy(out, &f->d[r >> 58], 2);
        if (has_min) memcpy(out + 2, &f->m[r >> 58], 2);
        out += has_min ? 4 : 2;
        memcpy(out, &r, 4); // the fifth bits
        put_words(f, out + 4, 2);
        out += 20;
    }
}

static void fill_q8_0(struct filler *f, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++, out += Q8_0_BYTES) {
        memcpy(out, &f->d[next(f) >> 58], 2);
        for (int k = 0; k < 4; k++) {
            uint64_t r = no_minus_128(next(f));
            memcpy(out + 2 + 8 * k, &r, 8);
        }
    }
}

static void fill_k_min(struct filler *f, uint8_t *out, int64_t n, int n_bytes) {
    for (int64_t i = 0; i < n; i++, out += n_bytes) {
        uint64_t r = next(f);
        memcpy(out, &f->d[r >> 58], 2);
        memcpy(out + 2, &f->m[r >> 58], 2);
        memcpy(out + 4, f->table.scales[r % SCALE_TABLE], Q4_K_SCALES);
        put_words(f, out + 16, (n_bytes - 16) / 8);
    }
}

static void fill_q2_k(struct filler *f, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++, out += Q2_K_BYTES) {
        uint64_t r = next(f);
        memcpy(out, f->table.scales[r % SCALE_TABLE], Q2_K_SCALES);
        put_words(f, out + Q2_K_SCALES, 8);
        memcpy(out + 80, &f->d[r >> 58], 2);
        memcpy(out + 82, &f->m[r >> 58], 2);
    }
}

static void fill_q3_k(struct filler *f, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++, out += Q3_K_BYTES) {
        uint64_t r = next(f);
        put_words(f, out, 12);
        memcpy(out + 96, f->table.scales[r % SCALE_TABLE], Q3_K_SCALES);
        memcpy(out + 108, &f->d[r >> 58], 2);
    }
}

static void fill_iq4_xs(struct filler *f, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++, out += IQ4_XS_BYTES) {
        uint64_t r = next(f);
        memcpy(out, &f->d[r >> 58], 2);
        memcpy(out + 2, f->table.scales[r % SCALE_TABLE], IQ4_XS_SCALES);
        put_words(f, out + 8, 16);
    }
}

static void fill_q6_k(struct filler *f, uint8_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++, out += Q6_K_BYTES) {
        uint64_t r = next(f);
        put_words(f, out, 24);
        memcpy(out + 192, f->table.scales[r % SCALE_TABLE], Q6_K_SCALES);
        memcpy(out + 208, &f->d[r >> 58], 2);
    }
}

static void fill_mlx(struct filler *f, uint8_t *out, int64_t n, enum format format) {
    const struct format_mlx m = format_mlx_get(format);
    const int n_bytes = m.group * m.bits / 8;
    for (int64_t i = 0; i < n; i++, out += format_table[format].n_bytes) {
        const unsigned at = (unsigned)(next(f) >> 58);
        const uint16_t pair[2] = {f->d[at], f->m[at]};
        for (int k = 0; k < 2; k++) {
            const float v = f16_to_f32(pair[k]);
            const uint16_t b = f32_to_bf16(v);
            memcpy(out + k * m.scale_bytes,
                   m.scales == FORMAT_F32   ? (const void *)&v
                   : m.scales == FORMAT_F16 ? (const void *)&pair[k]
                                            : &b,
                   (size_t)m.scale_bytes);
        }
        put_words(f, out + 2 * m.scale_bytes, n_bytes / 8);
        const uint64_t rest = n_bytes % 8 ? next(f) : 0; // 32 values of 3 and of 5 bits: half a word more
        memcpy(out + 2 * m.scale_bytes + n_bytes / 8 * 8, &rest, (size_t)(n_bytes % 8));
    }
}

static void fill_i8c(struct filler *f, uint8_t *out, const struct shape_fill *p) {
    for (int64_t i = 0; i < p->n_rows; i++) {
        float d = f16_to_f32(f->d[next(f) >> 58]);
        put_bytes_i8(f, out, p->n_in);
        memcpy(out + p->n_in, &d, sizeof(d));
        out += p->n_in + (int64_t)sizeof(d);
    }
}

// Five values of 12 bits from a word.
#define FILL_FLOATS(type, table)                                                          \
    do {                                                                                  \
        for (int64_t i = 0; i < n;) {                                                     \
            uint64_t r = next(f);                                                         \
            for (int k = 0; k < 5 && i < n; k++, i++, r >>= 12)                           \
                memcpy(out + sizeof(type) * (size_t)i, &(table)[r & 4095], sizeof(type)); \
        }                                                                                 \
    } while (0)

void shape_fill_rows(uint8_t *out, const struct shape_fill *p) {
    struct filler filler, *f = &filler;
    int64_t n = p->n_rows * p->n_in; // values; below, blocks where the format has them
    filler_init(f, p);
    if (format_is_mlx(p->format)) {
        fill_mlx(f, out, n / format_table[p->format].n_block, p->format);
        return;
    }
    switch (p->format) {
    case FORMAT_F32: FILL_FLOATS(float, f->table.f32); return;
    case FORMAT_F16:
    case FORMAT_BF16: FILL_FLOATS(uint16_t, f->table.u16); return;
    case FORMAT_IQ4_NL:
    case FORMAT_Q4_0:
    case FORMAT_Q4_1: fill_q4(f, out, n / 32, p->format == FORMAT_Q4_1); return;
    case FORMAT_Q5_0:
    case FORMAT_Q5_1: fill_q5(f, out, n / 32, p->format == FORMAT_Q5_1); return;
    case FORMAT_Q8_0: fill_q8_0(f, out, n / 32); return;
    case FORMAT_Q4_K: fill_k_min(f, out, n / 256, Q4_K_BYTES); return;
    case FORMAT_Q5_K: fill_k_min(f, out, n / 256, Q5_K_BYTES); return;
    case FORMAT_Q2_K: fill_q2_k(f, out, n / 256); return;
    case FORMAT_Q3_K: fill_q3_k(f, out, n / 256); return;
    case FORMAT_IQ4_XS: fill_iq4_xs(f, out, n / 256); return;
    case FORMAT_Q6_K: fill_q6_k(f, out, n / 256); return;
    case FORMAT_I8C: fill_i8c(f, out, p); return;
    default: break;
    }
    TERN_BUG("format %d", (int)p->format);
}
