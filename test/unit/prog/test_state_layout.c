// Where state lies: no two cells meet, every byte belongs to one, sizes are checked.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "prog/prog.h"
#include "../../common/tiny_model.h"

static struct model *model_make(void) {
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    return tiny_model_create(&shape);
}

static void test_sizes(void **state) {
    (void)state;
    struct model *m = model_make();
    struct state_layout l;
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, 40, NULL), TERN_OK);
    assert_int_equal(l.n_attn, 2);
    assert_int_equal(l.n_conv, 4);
    assert_int_equal(l.half_bytes, 16 * 32 * 2);
    assert_int_equal(l.block_bytes, 2 * 2 * 2 * 16 * 32 * 2); // layers, halves, heads
    assert_int_equal(l.slot_bytes, 4 * 2 * 64 * 4);
    assert_int_equal(l.window_bytes, 4 * 40 * 64 * 4);
    uint64_t bytes = 0;
    assert_true(state_kv_bytes(&l, 5, &bytes));
    assert_int_equal(bytes, 5 * l.block_bytes);
    assert_true(state_conv_bytes(&l, 3, &bytes));
    assert_int_equal(bytes, 3 * l.slot_bytes + l.window_bytes);
    assert_false(state_kv_bytes(&l, -1, &bytes));
    l.block_bytes = UINT64_MAX / 2;
    l.slot_bytes = UINT64_MAX / 2;
    assert_false(state_kv_bytes(&l, 3, &bytes));
    assert_false(state_conv_bytes(&l, 3, &bytes));
    tiny_model_free(m);
}

// Walks all cells in the order that the header draws: each begins where the one before ended.
static void test_offsets_tile_the_pools(void **state) {
    (void)state;
    struct model *m = model_make();
    for (int type = 0; type < 3; type++) {
        struct state_layout l;
        assert_int_equal(state_layout_init(&l, m, (enum op_kv_type)type, 0, 6, 7, NULL), TERN_OK);
        uint64_t at = 0, bytes = 0;
        for (int block = 0; block < 3; block++)
            for (int layer = 0; layer < l.n_attn; layer++) {
                for (int head = 0; head < l.n_head_kv; head++, at += l.half_bytes)
                    assert_int_equal(state_k_offset(&l, block, layer, head), at);
                for (int head = 0; head < l.n_head_kv; head++, at += l.half_bytes)
                    assert_int_equal(state_v_offset(&l, block, layer, head), at);
            }
        assert_true(state_kv_bytes(&l, 3, &bytes));
        assert_int_equal(at, bytes);
        at = 0;
        for (int slot = 0; slot < 3; slot++)
            for (int layer = 0; layer < l.n_conv; layer++, at += 2 * 64 * 4)
                assert_int_equal(state_conv_offset(&l, slot, layer), at);
        for (int layer = 0; layer < l.n_conv; layer++)
            for (int row = 0; row < 7; row++, at += 64 * 4)
                assert_int_equal(state_window_offset(&l, 3, layer, row), at);
        assert_true(state_conv_bytes(&l, 3, &bytes));
        assert_int_equal(at, bytes);
    }
    tiny_model_free(m);
}

// A model of 2^31 blocks of a large layout stays exact: offsets are 64-bit.
static void test_offsets_are_wide(void **state) {
    (void)state;
    struct state_layout l = {.n_head_kv = 8, .half_bytes = 4096, .block_bytes = 6 * 2 * 8 * 4096};
    assert_int_equal(state_k_offset(&l, INT32_MAX, 5, 7),
                     (uint64_t)INT32_MAX * 6 * 2 * 8 * 4096 + 5u * 2 * 8 * 4096 + 7u * 4096);
}

static void test_range(void **state) {
    (void)state;
    struct model *m = model_make();
    struct state_layout l;
    assert_int_equal(state_layout_init(&l, m, OP_KV_Q8, 2, 5, 8, NULL), TERN_OK);
    assert_int_equal(l.n_attn, 2);
    assert_int_equal(l.n_conv, 1);
    // Attention layers alone: no conv slots, no window area.
    assert_int_equal(state_layout_init(&l, m, OP_KV_Q8, 2, 3, 8, NULL), TERN_OK);
    assert_int_equal(l.slot_bytes, 0);
    assert_int_equal(l.window_bytes, 0);
    assert_int_equal(state_layout_init(&l, m, OP_KV_Q8, 0, 2, 8, NULL), TERN_OK);
    assert_int_equal(l.block_bytes, 0);
    tiny_model_free(m);
}

static void test_refused(void **state) {
    (void)state;
    struct model *m = model_make();
    struct state_layout l;
    struct tern_err err = {0};
    static const int ranges[][2] = {{-1, 3}, {3, 3}, {4, 3}, {0, 7}};
    for (size_t i = 0; i < ARRAY_LEN(ranges); i++)
        assert_int_equal(state_layout_init(&l, m, OP_KV_F16, ranges[i][0], ranges[i][1], 8, &err),
                         TERN_INVALID_ARGUMENT);
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, -1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, STEP_WINDOW_MAX + 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(state_layout_init(&l, m, (enum op_kv_type)3, 0, 6, 8, &err), TERN_INVALID_ARGUMENT);
    m->layers[4].n_head_kv = 1;
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, 8, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "layer 4: 1 K/V heads"));
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 4, 8, &err), TERN_OK); // outside the range
    m->layers[4].n_head_kv = 2;
    m->hyper.head_dim = 15;
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, 8, &err), TERN_UNSUPPORTED);
    m->hyper.head_dim = OP_HEAD_DIM_MAX + 2;
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, 8, &err), TERN_UNSUPPORTED);
    m->hyper.head_dim = 16;
    m->hyper.conv_len = OP_CONV_LEN_MAX + 1;
    assert_int_equal(state_layout_init(&l, m, OP_KV_F16, 0, 6, 8, &err), TERN_UNSUPPORTED);
    tiny_model_free(m);
}

static void describe(const struct model *m, enum op_kv_type type, int begin, int end, int window, struct buf *out) {
    struct state_layout l;
    assert_int_equal(state_layout_init(&l, m, type, begin, end, window, NULL), TERN_OK);
    buf_clear(out);
    assert_true(state_layout_describe(&l, out));
}

static void test_describe(void **state) {
    (void)state;
    struct model *m = model_make();
    struct buf a, b;
    buf_init(&a, 1000);
    buf_init(&b, 1000);
    describe(m, OP_KV_F16, 0, 6, 8, &a);
    assert_string_equal(a.data,
                        "state cpu-v1 kv=f16 block=32 layers=0-6 attn=2 kv_heads=2 head_dim=16 conv=4 taps=3 embd=64");
    describe(m, OP_KV_F16, 0, 6, 16, &b); // the window area is scratch
    assert_string_equal(a.data, b.data);
    describe(m, OP_KV_Q8, 0, 6, 8, &b);
    assert_string_not_equal(a.data, b.data);
    describe(m, OP_KV_F16, 0, 5, 8, &b);
    assert_string_not_equal(a.data, b.data);
    buf_release(&a);
    buf_release(&b);
    tiny_model_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_offsets_tile_the_pools),
        cmocka_unit_test(test_offsets_are_wide),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_describe),
    };
    return cmocka_run_group_tests_name("state_layout", tests, NULL, NULL);
}
