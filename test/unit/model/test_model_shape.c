// Models without a file: published sizes, equal bytes for equal arguments, blocks whose values have the wanted spread
// in every format, and what cannot be made.
#include "model_test_util.h"
#include <math.h>

// The parameter counts that the model cards state, from sizes alone.
static void test_sizes(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t n_params;
    } published[] = {{"lfm2-350m", 354483968},   {"lfm2-700m", 742489344},    {"lfm2-1.2b", 1170340608},
                     {"lfm2-2.6b", 2569272320},  {"lfm2.5-2.6b", 2697198592}, {"llama-7b", 6738415616},
                     {"lfm2-8b-a1b", 8339930560}};
    for (size_t i = 0; i < ARRAY_LEN(published); i++) {
        const struct model_shape *s = model_shapes;
        while (s->name && strcmp(s->name, published[i].name) != 0) s++;
        assert_non_null(s->name);
        const struct model_hyper *h = &s->hyper;
        uint64_t d = (uint64_t)h->n_embd, n = (uint64_t)h->n_vocab * d * (s->tied ? 1 : 2) + d;
        uint64_t q = (uint64_t)h->n_head * (uint64_t)h->head_dim, kv = (uint64_t)h->n_head_kv * (uint64_t)h->head_dim;
        for (int l = 0; l < h->n_layers; l++) {
            bool is_attn = (s->attn_layers_mask >> l) & 1;
            uint64_t n_ff = (uint64_t)h->n_ff, n_expert = (uint64_t)h->n_expert;
            if (n_expert > 0 && l >= s->n_dense_layers) { // experts, router and its bias
                n_ff = n_expert * (uint64_t)h->n_ff_expert;
                n += n_expert * d + n_expert;
            }
            n += 2 * d + 3 * d * n_ff;
            n += is_attn ? 2 * d * q + 2 * d * kv + (s->is_llama ? 0 : 2 * (uint64_t)h->head_dim)
                         : 4 * d * d + d * (uint64_t)h->conv_len;
        }
        assert_int_equal(n, published[i].n_params);
    }
}

static struct model_shape small(void) {
    struct model_shape s = model_shapes[0]; // lfm2-350m, three layers of it
    s.name = "small";
    s.hyper.n_layers = 3;
    s.hyper.n_embd = 256;
    s.hyper.n_head = 4;
    s.hyper.n_head_kv = 2;
    s.hyper.n_ff = 512;
    s.hyper.n_vocab = 300;
    return s;
}

static struct model *make(const struct model_shape *s, enum format f, uint64_t seed) {
    struct model *m = NULL;
    struct tern_err err = {0};
    if (model_create_shape(&m, s, f, f, seed, &err) != TERN_OK) fail_msg("%s: %s", format_table[f].name, err.message);
    return m;
}

static void test_equal(void **state) {
    (void)state;
    struct model_shape s = small();
    struct model *a = make(&s, FORMAT_Q4_0, 7), *b = make(&s, FORMAT_Q4_0, 7), *c = make(&s, FORMAT_Q4_0, 8);
    assert_string_equal(a->digest, b->digest);
    assert_string_not_equal(a->digest, c->digest);
    assert_int_equal(a->n_tensors, b->n_tensors);
    for (int i = 0; i < a->n_tensors; i++) {
        assert_memory_equal(a->tensors[i].data, b->tensors[i].data, (size_t)a->tensors[i].n_bytes);
        assert_true(memcmp(a->tensors[i].data, c->tensors[i].data, (size_t)a->tensors[i].n_bytes) != 0);
    }
    assert_true(memcmp(a->layers[0].ffn_gate->data, a->layers[0].ffn_up->data, 1000) != 0);
    assert_true(a->layers[2].kind == LAYER_ATTENTION && a->layers[1].kind == LAYER_CONV && a->layers[2].q_norm);
    assert_int_equal(a->layers[0].conv_taps->format, FORMAT_F32);
    assert_ptr_equal(a->output, a->embedding);
    assert_int_equal(a->vocab.n_tokens, 0);
    assert_string_equal(a->name, "small");
    uint64_t before = mem_stats_get().bytes_now;
    const struct tensor *t = a->layers[0].ffn_gate;
    uint64_t n_bytes = t->n_bytes;
    model_tensor_drop(a, t);
    assert_null(t->data);
    assert_true(mem_stats_get().bytes_now + n_bytes <= before);
    model_tensor_drop(a, t);
    model_close(a);
    model_close(b);
    model_close(c);
}

// ------------------------------------------------------------------------------------------------ values

static double f16_at(const uint8_t *p) { return (double)f16_to_f32(load_u16(p)); }

static const int iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

static double mlx_value_at(enum format f, const uint8_t *b, int k) {
    const struct format_mlx m = format_mlx_get(f);
    double v[2];
    for (int j = 0; j < 2; j++) {
        const uint8_t *p = b + j * m.scale_bytes;
        v[j] = m.scales == FORMAT_F16    ? f16_at(p)
               : m.scales == FORMAT_BF16 ? (double)bf16_to_f32(load_u16(p))
                                         : (double)f32_from_bits(load_u32(p));
    }
    const uint8_t *codes = b + 2 * m.scale_bytes;
    int code = 0;
    for (int j = 0, at = k * m.bits; j < m.bits; j++, at++) code |= (codes[at / 8] >> at % 8 & 1) << j;
    return v[0] * code + v[1];
}

// Value i of a row, read by the published layout of its block.
static double value_at(enum format f, const uint8_t *row, int64_t n, int64_t i) {
    const uint8_t *b = row + i / format_table[f].n_block * format_table[f].n_bytes;
    int k = (int)(i % format_table[f].n_block);
    int nibble = k < 16 ? 0 : 4;
    switch (f) {
    case FORMAT_F32: return (double)f32_from_bits(load_u32(b));
    case FORMAT_F16: return f16_at(b);
    case FORMAT_BF16: return (double)bf16_to_f32(load_u16(b));
    case FORMAT_Q4_0: return f16_at(b) * (((b[2 + k % 16] >> nibble) & 15) - 8);
    case FORMAT_Q4_1: return f16_at(b) * ((b[4 + k % 16] >> nibble) & 15) + f16_at(b + 2);
    case FORMAT_Q5_0:
        return f16_at(b) * ((((b[6 + k % 16] >> nibble) & 15) | ((int)(load_u32(b + 2) >> k & 1) << 4)) - 16);
    case FORMAT_Q5_1:
        return f16_at(b) * (((b[8 + k % 16] >> nibble) & 15) | ((int)(load_u32(b + 4) >> k & 1) << 4)) + f16_at(b + 2);
    case FORMAT_Q8_0: return f16_at(b) * (int8_t)b[2 + k];
    case FORMAT_Q4_K: {
        int sub = k / 32, sc, min;
        const uint8_t *s = b + 4;
        sc = sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4;
        min = sub < 4 ? s[sub + 4] & 63 : s[sub + 4] >> 4 | (s[sub] >> 6) << 4;
        int q = b[16 + k / 64 * 32 + k % 32] >> (k % 64 < 32 ? 0 : 4) & 15;
        return f16_at(b) * sc * q - f16_at(b + 2) * min;
    }
    case FORMAT_Q6_K: {
        int half = k / 128, in = k % 128, l = in % 32, part = in / 32;
        int low = b[half * 64 + (part & 1) * 32 + l] >> (part < 2 ? 0 : 4) & 15;
        int high = b[128 + half * 32 + l] >> (2 * part) & 3;
        return f16_at(b + 208) * (int8_t)b[192 + half * 8 + l / 16 + 2 * part] * ((low | high << 4) - 32);
    }
    case FORMAT_I8C: return (double)f32_from_bits(load_u32(row + n)) * (int8_t)row[i];
    case FORMAT_Q5_K: {
        int sub = k / 32, sc, min;
        const uint8_t *s = b + 4;
        sc = sub < 4 ? s[sub] & 63 : (s[sub + 4] & 15) | (s[sub - 4] >> 6) << 4;
        min = sub < 4 ? s[sub + 4] & 63 : s[sub + 4] >> 4 | (s[sub] >> 6) << 4;
        int q = (b[48 + k / 64 * 32 + k % 32] >> (k % 64 < 32 ? 0 : 4) & 15) | (b[16 + k % 32] >> sub & 1) << 4;
        return f16_at(b) * sc * q - f16_at(b + 2) * min;
    }
    case FORMAT_IQ4_NL: return f16_at(b) * iq4[(b[2 + k % 16] >> nibble) & 15];
    case FORMAT_IQ4_XS: {
        int g = k / 32, sc = (b[4 + g / 2] >> g % 2 * 4 & 15) | (load_u16(b + 2) >> 2 * g & 3) << 4;
        return f16_at(b) * (sc - 32) * iq4[b[8 + g * 16 + k % 16] >> (k % 32 < 16 ? 0 : 4) & 15];
    }
    case FORMAT_Q2_K: {
        int q = b[16 + k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3;
        return f16_at(b + 80) * (b[k / 16] & 15) * q - f16_at(b + 82) * (b[k / 16] >> 4);
    }
    case FORMAT_Q3_K: {
        const uint8_t *s = b + 96;
        int g = k / 16, sc = (g < 8 ? s[g] & 15 : s[g - 8] >> 4) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4;
        int q = (b[32 + k / 128 * 32 + k % 32] >> k / 32 % 4 * 2 & 3) | (b[k % 32] >> k / 32 & 1) << 2;
        return f16_at(b + 108) * (sc - 32) * (q - 4);
    }
    default: break;
    }
    return format_is_mlx(f) ? mlx_value_at(f, b, k) : NAN;
}

static void spread(const struct tensor *t, double *mean, double *std) {
    double sum = 0, square = 0;
    uint64_t row_bytes;
    assert_true(format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes));
    for (int64_t r = 0; r < t->ne[1]; r++) {
        for (int64_t i = 0; i < t->ne[0]; i++) {
            double v = value_at(t->format, t->data + (size_t)r * row_bytes, t->ne[0], i);
            assert_true(v - v == 0); // finite
            sum += v;
            square += v * v;
        }
    }
    double n = (double)t->ne[0] * (double)t->ne[1];
    *mean = sum / n;
    *std = sqrt(square / n - *mean * *mean);
}

// Observed: within 3 % of the wanted spread (the scales vary by a quarter), the mean below 0.12 of it (Q4_0's codes are
// not symmetric; Q3_K's, -4 to 3, half a step of 2.3). A wrong layout gives several times as much.
static void test_spread(void **state) {
    (void)state;
    struct model_shape s = small();
    for (int f = 0; f < FORMAT_COUNT; f++) {
        struct model *m = make(&s, (enum format)f, 3);
        const struct tensor *all[] = {m->layers[0].ffn_down, m->layers[2].q, m->embedding};
        for (size_t k = 0; k < ARRAY_LEN(all); k++) {
            double mean, std, want = all[k] == m->embedding ? 0.02 : 1 / sqrt((double)all[k]->ne[0]);
            spread(all[k], &mean, &std);
            if (fabs(std / want - 1) > 0.05 || fabs(mean) > (f == FORMAT_Q3_K ? 0.25 : 0.12) * want)
                fail_msg("%s: mean %g, std %g, wanted %g", format_table[f].name, mean, std, want);
        }
        for (int64_t i = 0; i < 256; i++) {
            float w = f32_from_bits(load_u32(m->output_norm->data + 4 * i));
            assert_true(w > 0.9f && w < 1.1f);
        }
        model_close(m);
    }
}

// Every tensor of the shape through the file reader's checks is how it was made; what cannot be made is refused.
static void test_refused(void **state) {
    (void)state;
    struct model *m;
    struct tern_err err = {0};
    struct model_shape s = small();
    s.hyper.n_embd = 192; // no multiple of 256
    s.hyper.n_head = 3;
    s.hyper.n_head_kv = 1;
    assert_int_equal(model_create_shape(&m, &s, FORMAT_Q4_K, FORMAT_Q8_0, 1, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "small in Q4_K"));
    s = small();
    s.hyper.n_layers = 65;
    assert_int_equal(model_create_shape(&m, &s, FORMAT_Q8_0, FORMAT_Q8_0, 1, &err), TERN_INVALID_ARGUMENT);
    s = small();
    s.is_llama = true; // layers 0 and 1 are convolutions
    assert_int_equal(model_create_shape(&m, &s, FORMAT_Q8_0, FORMAT_Q8_0, 1, NULL), TERN_INVALID_ARGUMENT);
    s = small();
    struct mem_stats before = mem_stats_get();
    mem_limit_set(before.bytes_now + 300000);
    assert_int_equal(model_create_shape(&m, &s, FORMAT_Q8_0, FORMAT_Q8_0, 1, &err), TERN_NO_MEMORY);
    mem_limit_set(0);
    assert_int_equal(mem_stats_get().n_live, before.n_live);
    s.is_llama = true;
    s.attn_layers_mask = 7;
    s.tied = false;
    assert_int_equal(model_create_shape(&m, &s, FORMAT_Q8_0, FORMAT_Q6_K, 1, &err), TERN_OK);
    assert_true(m->output != m->embedding && m->output->format == FORMAT_Q8_0 && m->embedding->format == FORMAT_Q6_K);
    assert_string_equal(m->arch_name, "llama");
    model_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_equal),
                                       cmocka_unit_test(test_spread), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
