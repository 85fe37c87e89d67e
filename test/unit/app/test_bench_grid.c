// The grid's cells, rows of cells.csv there and back, pairs of a block, and what a broken file says.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include "app/bench/bench_grid.h"

static struct manifest m;
static struct grid g;

static void grid_open(enum grid_size size) {
    static const char *const names[][2] = {{"smollm2-135m", "Q4_0"}, {"smollm2-135m", "Q8_0"}, {"lfm2-350m", "Q4_0"},
                                           {"lfm2-350m", "Q4_K_M"},  {"lfm2-350m", "Q8_0"},    {"lfm2-1.2b", "Q4_0"},
                                           {"lfm2-1.2b", "Q4_K_M"},  {"lfm2-1.2b", "Q8_0"}};
    m = (struct manifest){.n_peers = 2};
    m.peers[0].name = "a";
    m.peers[1].name = "b";
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        m.models[m.n_models++] = (struct bench_model){names[i][0], names[i][1], "x"};
    assert_int_equal(grid_make(&g, &m, size, 2, NULL), TERN_OK);
}

static void test_cells(void **state) {
    (void)state;
    struct tern_err err;
    grid_open(GRID_FULL);
    assert_int_equal(g.n_cells, 8 * 5 * 2);
    assert_int_equal(g.cells[0].test.threads, 2);
    assert_int_equal(g.cells[40].test.threads, 1);
    m.n_models = 7; // the last of the models that it wants is not there
    assert_int_equal(grid_make(&g, &m, GRID_FULL, 2, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "lfm2-1.2b Q8_0"));
    assert_int_equal(grid_make(&g, &m, GRID_SMALL, 4, &err), TERN_OK);
    assert_int_equal(g.n_cells, 7 * 2);
    grid_open(GRID_FULL);
    assert_int_equal(grid_make(&g, &m, GRID_FULL, 1, &err), TERN_OK); // one core: each cell once
    assert_int_equal(g.n_cells, 8 * 5);
}

static struct grid_row row_of(int64_t block, int engine, double tps, bool dirty) {
    return (struct grid_row){.block = block,
                             .cell = 3,
                             .engine = engine,
                             .place = engine + 1,
                             .tps = tps,
                             .dirty = dirty,
                             .foreign = 0.25,
                             .wall_s = 1.5,
                             .rss_mib = 100,
                             .read_gbs = 20.25,
                             .int8_gops = 900.5,
                             .bf16_gops = engine < 0 ? 450.5 : 0,
                             .bytes = engine < 0 ? 90139568 : 0,
                             .ops = 1};
}

static void test_there_and_back(void **state) {
    (void)state;
    grid_open(GRID_FULL);
    struct buf text;
    buf_init(&text, 1 << 16);
    buf_puts(&text, GRID_CSV_HEAD);
    // Blocks 0 and 2 hold both peers, 1 only the first; block 3 has no run of ours, so it pairs with nothing.
    const struct grid_row rows[] = {row_of(0, -1, 100, false), row_of(0, 0, 50, false),  row_of(0, 1, 80, false),
                                    row_of(1, -1, 120, true),  row_of(1, 0, 40, true),   row_of(2, 1, 90, false),
                                    row_of(2, 0, 60, false),   row_of(2, -1, 90, false), row_of(3, 0, 70, false)};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) assert_true(grid_row_put(&text, &g, &m, &rows[i]));
    buf_puts(&text, "2026-11-30T10:00:00,9,0,other,Q4_0,decode,64,0,2,tern,1,0,0,1,1,1,1,1,1\n");
    struct grid_runs r;
    struct tern_err err = {0};
    if (grid_csv_parse(&r, buf_str(&text), &g, &m, &err) != TERN_OK) fail_msg("%s", err.message);
    assert_int_equal(r.n, ARRAY_LEN(rows));
    assert_int_equal(r.n_other, 1);
    assert_int_equal(r.block_next, 10);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct grid_row *x = &r.rows[i], *y = &rows[i];
        assert_true(x->block == y->block && x->cell == y->cell && x->engine == y->engine && x->place == y->place);
        assert_true(x->tps == y->tps && x->foreign == y->foreign && x->dirty == y->dirty && x->wall_s == y->wall_s);
        assert_true(x->rss_mib == y->rss_mib && x->read_gbs == y->read_gbs && x->int8_gops == y->int8_gops);
        assert_true(x->bytes == y->bytes && x->ops == y->ops && x->bf16_gops == y->bf16_gops);
    }
    assert_int_equal(grid_pairs_count(&r, 3, 0, false), 3);
    assert_int_equal(grid_pairs_count(&r, 3, 0, true), 2);
    assert_int_equal(grid_pairs_count(&r, 3, 1, false), 2);
    assert_int_equal(grid_pairs_count(&r, 2, 0, false), 0);
    double ours[8], theirs[8];
    bool dirty;
    assert_int_equal(grid_pairs_get(&r, 3, 1, ours, theirs, 8, &dirty), 2);
    assert_false(dirty);
    assert_true(ours[1] == 90 && theirs[1] == 90);
    assert_int_equal(grid_pairs_get(&r, 3, 0, ours, theirs, 8, &dirty), 3); // too few clean ones
    assert_true(dirty);
    mem_free(r.rows);
    buf_release(&text);
}

static void refused(const char *line, const char *message) {
    struct buf text;
    struct grid_runs r;
    struct tern_err err = {0};
    buf_init(&text, 1 << 16);
    buf_putf(&text, "%s%s", GRID_CSV_HEAD, line);
    assert_int_equal(grid_csv_parse(&r, buf_str(&text), &g, &m, &err), TERN_BAD_FORMAT);
    if (!strstr(err.message, message)) fail_msg("'%s' has no '%s'", err.message, message);
    assert_null(r.rows);
    buf_release(&text);
}

static void test_refuse(void **state) {
    (void)state;
    grid_open(GRID_FULL);
    struct grid_runs r;
    struct tern_err err;
    assert_int_equal(grid_csv_parse(&r, STR(""), &g, &m, &err), TERN_OK);
    static const char old[] = GRID_CSV_HEAD_OLD "\n2026,4,0,lfm2-350m,Q4_0,decode,64,0,2,tern,7,0,0,1,1,1,1,1,1\n";
    assert_int_equal(grid_csv_parse(&r, str_from(old), &g, &m, &err), TERN_OK); // without bf16_gops
    assert_true(r.n == 1 && r.rows[0].tps == 7 && r.rows[0].bf16_gops == 0 && r.block_next == 5);
    mem_free(r.rows);
    assert_int_equal(grid_csv_parse(&r, STR("a,b\n"), &g, &m, &err), TERN_BAD_FORMAT);
    assert_non_null(strstr(err.message, "first line"));
    refused("2026,0,0,lfm2-350m,Q4_0,decode,64,0,2,tern,1,0,0,1,1,1,1,1,1", "line 2 is cut off");
    refused("2026,0,0,lfm2-350m,Q4_0,decode,64,0,2,tern,1,0,0,1\n", "14 fields");
    refused("2026,0,0,lfm2-350m,Q4_0,chat,64,0,2,tern,1,0,0,1,1,1,1,1,1\n", "line 2 is no row");
    refused("2026,0,0,lfm2-350m,Q4_0,decode,64,0,2,tern,0,0,0,1,1,1,1,1,1\n", "line 2 is no row"); // no speed
    refused("2026,0,0,lfm2-350m,Q4_0,decode,64,0,2,tern,1,0,0,1,1,1,1,-1,1\n", "line 2 is no row");
    refused("2026,-1,0,lfm2-350m,Q4_0,decode,64,0,2,tern,1,0,0,1,1,1,1,1,1\n", "line 2 is no row");
    refused("2026,0,0,lfm2-350m,Q4_0,decode,64,0,2,tern,1,0,0,1,1,1,1,1,1\nx\n", "line 3");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_there_and_back),
        cmocka_unit_test(test_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
