// SHA-1 as FIPS 180-4 states it, in portable C: git names its objects by it, and small files of a model's repository
// are checked against those names.
#include "base/base.h"

static inline uint32_t rotl(uint32_t x, int n) { return (x << n) | (x >> (32 - n)); }
static inline uint32_t load_be32(const uint8_t *p) { return __builtin_bswap32(load_u32(p)); }

static void compress(uint32_t state[5], const uint8_t data[64]) {
    uint32_t w[80];
    for (int i = 0; i < 16; i++) w[i] = load_be32(data + 4 * i);
    for (int i = 16; i < 80; i++) w[i] = rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 80; i++) {
        uint32_t f, k;
        if (i < 20)
            f = (b & c) | (~b & d), k = 0x5a827999;
        else if (i < 40)
            f = b ^ c ^ d, k = 0x6ed9eba1;
        else if (i < 60)
            f = (b & c) | (b & d) | (c & d), k = 0x8f1bbcdc;
        else
            f = b ^ c ^ d, k = 0xca62c1d6;
        const uint32_t t = rotl(a, 5) + f + e + k + w[i];
        e = d;
        d = c;
        c = rotl(b, 30);
        b = a;
        a = t;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

void sha1_init(struct sha1 *s) {
    *s = (struct sha1){.h = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0}};
}

void sha1_update(struct sha1 *s, const void *data, size_t len) {
    const uint8_t *p = data;
    while (len > 0) {
        const size_t held = s->n_bytes % 64, n = MIN(len, 64 - held);
        if (held == 0 && n == 64) {
            compress(s->h, p);
        } else {
            memcpy(s->block + held, p, n);
            if (held + n == 64) compress(s->h, s->block);
        }
        s->n_bytes += n;
        p += n;
        len -= n;
    }
}

void sha1_hex(struct sha1 *s, char out[41]) {
    static const char hex[] = "0123456789abcdef";
    const uint64_t n_bits = s->n_bytes * 8;
    const size_t held = s->n_bytes % 64, n_pad = (held < 56 ? 56 : 120) - held;
    uint8_t pad[128] = {0x80};
    for (int i = 0; i < 8; i++) pad[n_pad + (size_t)i] = (uint8_t)(n_bits >> (56 - 8 * i));
    sha1_update(s, pad, n_pad + 8);
    for (int i = 0; i < 40; i++) out[i] = hex[s->h[i / 8] >> (28 - 4 * (i % 8)) & 15];
    out[40] = 0;
}
