// Numbers from text, strict and independent of the locale.
//
// Doubles: up to 19 digits with a small power of ten are exact in one multiplication or division (Clinger's fast path).
// The rest goes, rewritten in a bounded canonical form, to the C library's correctly rounding strtod in the C locale:
// 767 significant digits decide every rounding, so longer ones are cut after 770 and an odd last digit stands for the
// rest.
#define _GNU_SOURCE 1
#include "base/base.h"
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

#define DIGITS_KEPT 770
#define EXPONENT_CLAMP 100000 // beyond it every value is 0 or infinite, and sums stay far from overflow

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool str_to_i64(struct str s, int64_t *out) {
    size_t i = 0;
    bool minus = s.len > 0 && s.data[0] == '-';
    if (minus) i++;
    if (i == s.len) return false;
    int64_t v = 0;
    for (; i < s.len; i++) {
        if (!is_digit(s.data[i])) return false;
        int digit = s.data[i] - '0';
        if (__builtin_mul_overflow(v, 10, &v)) return false;
        if (__builtin_add_overflow(v, minus ? -digit : digit, &v)) return false;
    }
    *out = v;
    return true;
}

// A literal taken apart: value = digits * 10^exponent.
struct literal {
    bool minus;
    char digits[DIGITS_KEPT + 2]; // significant ones, 0-terminated
    int n_digits;
    int64_t exponent;
};

static void literal_digit(struct literal *l, char c, bool after_point) {
    bool leading_zero = l->n_digits == 0 && c == '0';
    if (l->n_digits < DIGITS_KEPT && !leading_zero) {
        l->digits[l->n_digits++] = c;
    } else if (!leading_zero) {
        l->exponent++; // the digit is dropped, but a tie must not become exact by that
        if (c != '0') l->digits[DIGITS_KEPT - 1] |= 1;
    }
    if (after_point) l->exponent--;
}

// JSON's grammar: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
static bool literal_parse(struct literal *l, struct str s) {
    const char *p = s.data, *end = s.data + s.len;
    l->minus = false;
    l->n_digits = 0;
    l->exponent = 0;
    if (p < end && *p == '-') {
        l->minus = true;
        p++;
    }
    if (p == end || !is_digit(*p)) return false;
    if (*p == '0' && end - p > 1 && is_digit(p[1])) return false;
    for (; p < end && is_digit(*p); p++) literal_digit(l, *p, false);
    if (p < end && *p == '.') {
        p++;
        if (p == end || !is_digit(*p)) return false;
        for (; p < end && is_digit(*p); p++) literal_digit(l, *p, true);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        bool minus = p < end && *p == '-';
        if (p < end && (*p == '-' || *p == '+')) p++;
        if (p == end || !is_digit(*p)) return false;
        int64_t e = 0;
        for (; p < end && is_digit(*p); p++) e = MIN(e * 10 + (*p - '0'), (int64_t)1 << 40);
        l->exponent += minus ? -e : e;
    }
    l->digits[l->n_digits] = 0;
    return p == end;
}

static bool fast_double(const struct literal *l, double *out) {
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (l->n_digits > 19 || l->exponent < -22 || l->exponent > 22) return false;
    uint64_t mantissa = 0;
    for (int i = 0; i < l->n_digits; i++) mantissa = mantissa * 10 + (uint64_t)(l->digits[i] - '0');
    if (mantissa > (uint64_t)1 << 53) return false;
    double v = (double)mantissa;
    *out = l->exponent < 0 ? v / power[-l->exponent] : v * power[l->exponent];
    return true;
}

bool str_to_f64(struct str s, double *out) {
    struct literal l;
    if (!literal_parse(&l, s)) return false;
    double v;
    if (l.n_digits == 0) {
        v = 0;
    } else if (!fast_double(&l, &v)) {
        char text[DIGITS_KEPT + 32];
        int exponent = (int)MAX(MIN(l.exponent, EXPONENT_CLAMP), -EXPONENT_CLAMP);
        snprintf(text, sizeof(text), "%se%d", l.digits, exponent);
        locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        if (!c_locale) return false;
        v = strtod_l(text, NULL, c_locale);
        freelocale(c_locale);
        if (isinf(v)) return false;
    }
    *out = l.minus ? -v : v;
    return true;
}

const char *bytes_format(uint64_t bytes, char out[24]) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int i = 0;
    double v = (double)bytes;
    for (; v >= 1024 && i < 6; i++) v /= 1024;
    int tenths = (int)(v * 10 + 0.5);
    if (tenths >= 10240 && i < 6) { // 1023.96 KiB reads 1.0 MiB
        tenths = 10;
        i++;
    }
    if (i == 0) {
        snprintf(out, 24, "%d B", (int)bytes);
    } else {
        snprintf(out, 24, "%d.%d %s", tenths / 10, tenths % 10, unit[i]);
    }
    return out;
}
