// Cells in the order in which they are measured: all fast cores before one, then test by test over all models, the
// telling tests first, so that a stopped comparison has something of every model.
#include "base/base.h"
#include "bench_grid.h"

#define CSV_FIELDS 20
#define CSV_FIELDS_OLD 19 // without bf16_gops, the last
#define PAIRS_CLEAN_MIN 3
enum { F_TIME, F_BLOCK, F_PLACE, F_MODEL, F_FORMAT, F_PHASE, F_TOKENS, F_DEPTH, F_THREADS, F_ENGINE, F_NUMBERS };

static const struct {
    const char *name, *format;
} models_full[] = {{"smollm2-135m", "Q4_0"}, {"smollm2-135m", "Q8_0"}, {"lfm2-350m", "Q4_0"},   {"lfm2-350m", "Q4_K_M"},
                   {"lfm2-350m", "Q8_0"},    {"lfm2-1.2b", "Q4_0"},    {"lfm2-1.2b", "Q4_K_M"}, {"lfm2-1.2b", "Q8_0"}};

static const struct bench_test tests_full[] = {{PHASE_DECODE, 64, 0, 0},
                                               {PHASE_PREFILL, 512, 0, 0},
                                               {PHASE_DECODE, 64, 2048, 0},
                                               {PHASE_PREFILL, 64, 0, 0},
                                               {PHASE_PREFILL, 2048, 0, 0}},
                               tests_small[] = {{PHASE_DECODE, 32, 0, 0}, {PHASE_PREFILL, 128, 0, 0}};

enum tern_status grid_make(struct grid *out, const struct manifest *m, enum grid_size size, int n_threads,
                           struct tern_err *err) {
    const struct bench_test *tests = size == GRID_FULL ? tests_full : tests_small;
    size_t n_tests = size == GRID_FULL ? ARRAY_LEN(tests_full) : ARRAY_LEN(tests_small);
    *out = (struct grid){0};
    for (size_t i = 0; size == GRID_FULL && i < ARRAY_LEN(models_full); i++)
        if (manifest_model_find(m, str_from(models_full[i].name), str_from(models_full[i].format)) < 0)
            return err_set(err, TERN_NOT_FOUND,
                           "the full grid wants the model '%s %s', which the manifest does not list; add it, or take "
                           "--grid small",
                           models_full[i].name, models_full[i].format);
    for (int threads = n_threads; threads > 0; threads = threads > 1 && size == GRID_FULL ? 1 : 0)
        for (size_t k = 0; k < n_tests; k++)
            for (int i = 0; i < m->n_models; i++) {
                TERN_ASSERT(out->n_cells < GRID_CELLS_MAX);
                struct grid_cell *c = &out->cells[out->n_cells++];
                *c = (struct grid_cell){.model = i, .test = tests[k]};
                c->test.threads = threads;
            }
    return TERN_OK;
}

bool grid_row_put(struct buf *out, const struct grid *g, const struct manifest *m, const struct grid_row *r) {
    const struct grid_cell *c = &g->cells[r->cell];
    char time[32];
    clock_format(time, sizeof time, "%Y-%m-%dT%H:%M:%S", clock_wall_s());
    return buf_putf(out, "%s,%lld,%d,%s,%s,%s,%d,%d,%d,%s,%.3f,%.3f,%d,%.2f,%.0f,%.2f,%.1f,%.0f,%.0f,%.1f\n", time,
                    (long long)r->block, r->place, m->models[c->model].name, m->models[c->model].format,
                    c->test.phase == PHASE_PREFILL ? "prefill" : "decode", c->test.tokens, c->test.depth,
                    c->test.threads, r->engine == ENGINE_OURS ? "tern" : m->peers[r->engine].name, r->tps, r->foreign,
                    r->dirty, r->wall_s, r->rss_mib, r->read_gbs, r->int8_gops, r->bytes, r->ops, r->bf16_gops);
}

bool grid_runs_add(struct grid_runs *r, const struct grid_row *row) {
    if (r->n == r->cap) {
        int cap = r->cap ? MIN(2 * r->cap, GRID_ROWS_MAX) : 256;
        struct grid_row *rows = cap > r->cap ? mem_realloc(r->rows, (size_t)cap * sizeof *rows) : NULL;
        if (!rows) return false;
        r->rows = rows;
        r->cap = cap;
    }
    r->rows[r->n++] = *row;
    r->block_next = MAX(r->block_next, row->block + 1);
    return true;
}

static int cell_find(const struct grid *g, int model, const struct bench_test *t) {
    for (int i = 0; i < g->n_cells; i++) {
        const struct bench_test *u = &g->cells[i].test;
        if (g->cells[i].model == model && u->phase == t->phase && u->tokens == t->tokens && u->depth == t->depth &&
            u->threads == t->threads)
            return i;
    }
    return -1;
}

static bool int_take(struct str s, int64_t lo, int64_t hi, int64_t *out) {
    return str_to_i64(s, out) && *out >= lo && *out <= hi;
}

// False: no sound line. *known false: sound, but not of this grid.
static bool line_parse(struct str f[CSV_FIELDS], const struct grid *g, const struct manifest *m, struct grid_row *row,
                       bool *known) {
    struct bench_test t = {.phase = str_eqz(f[F_PHASE], "prefill") ? PHASE_PREFILL : PHASE_DECODE};
    int64_t block, place, tokens, depth, threads;
    double numbers[CSV_FIELDS - F_NUMBERS];
    if (t.phase == PHASE_DECODE && !str_eqz(f[F_PHASE], "decode")) return false;
    if (!int_take(f[F_BLOCK], 0, INT64_MAX - 1, &block) || !int_take(f[F_PLACE], 0, GRID_ENGINES_MAX, &place) ||
        !int_take(f[F_TOKENS], 1, 1 << 20, &tokens) || !int_take(f[F_DEPTH], 0, 1 << 20, &depth) ||
        !int_take(f[F_THREADS], 1, TEAM_THREADS_MAX, &threads))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (!str_to_f64(f[F_NUMBERS + i], &numbers[i]) || !(numbers[i] >= 0)) return false;
    if (!(numbers[0] > 0)) return false;
    t.tokens = (int)tokens;
    t.depth = (int)depth;
    t.threads = (int)threads;
    int engine = ENGINE_OURS - 1;
    if (str_eqz(f[F_ENGINE], "tern")) engine = ENGINE_OURS;
    for (int i = 0; i < m->n_peers; i++)
        if (str_eqz(f[F_ENGINE], m->peers[i].name)) engine = i;
    *row = (struct grid_row){.block = block,
                             .cell = cell_find(g, manifest_model_find(m, f[F_MODEL], f[F_FORMAT]), &t),
                             .engine = engine,
                             .place = (int)place,
                             .tps = numbers[0],
                             .foreign = numbers[1],
                             .dirty = numbers[2] > 0,
                             .wall_s = numbers[3],
                             .rss_mib = numbers[4],
                             .read_gbs = numbers[5],
                             .int8_gops = numbers[6],
                             .bytes = numbers[7],
                             .ops = numbers[8],
                             .bf16_gops = numbers[9]};
    *known = row->cell >= 0 && engine >= ENGINE_OURS;
    return true;
}

static int fields_split(struct str line, struct str f[CSV_FIELDS]) {
    int n = 0;
    for (size_t i = 0, begin = 0; i <= line.len; i++)
        if (i == line.len || line.data[i] == ',') {
            if (n < CSV_FIELDS) f[n] = (struct str){line.data + begin, i - begin};
            n++;
            begin = i + 1;
        }
    return n;
}

static enum tern_status lines_parse(struct grid_runs *out, struct str text, size_t at, const struct grid *g,
                                    const struct manifest *m, struct tern_err *err) {
    for (int line = 2; at < text.len; line++) {
        size_t end = str_find(text, STR("\n"), at);
        if (end == (size_t)-1)
            return err_set_at(err, TERN_BAD_FORMAT, (int64_t)at,
                              "line %d is cut off (a run was stopped while writing it); remove it", line);
        struct str f[CSV_FIELDS];
        int n = fields_split((struct str){text.data + at, end - at}, f);
        struct grid_row row;
        bool known = false;
        if (n == CSV_FIELDS_OLD) f[n++] = STR("0");
        if (n != CSV_FIELDS || !line_parse(f, g, m, &row, &known))
            return err_set_at(err, TERN_BAD_FORMAT, (int64_t)at,
                              "line %d is no row of runs: %d fields, %d expected, numbers where the head says so", line,
                              n, CSV_FIELDS);
        out->block_next = MAX(out->block_next, row.block + 1);
        if (!known)
            out->n_other++;
        else if (!grid_runs_add(out, &row))
            return err_set(err, TERN_LIMIT, "more than %d runs, or no memory for them", GRID_ROWS_MAX);
        at = end + 1;
    }
    return TERN_OK;
}

enum tern_status grid_csv_parse(struct grid_runs *out, struct str text, const struct grid *g, const struct manifest *m,
                                struct tern_err *err) {
    *out = (struct grid_runs){0};
    if (text.len == 0) return TERN_OK;
    struct str head = STR(GRID_CSV_HEAD), old = STR(GRID_CSV_HEAD_OLD "\n");
    bool is_old = str_starts(text, old);
    if (!is_old && !str_starts(text, head))
        return err_set_at(err, TERN_BAD_FORMAT, 0, "its first line is not that of a file of runs; expected: %.*s",
                          (int)(head.len - 1), head.data);
    enum tern_status status = lines_parse(out, text, is_old ? old.len : head.len, g, m, err);
    if (status == TERN_OK) return TERN_OK;
    mem_free(out->rows);
    *out = (struct grid_runs){0};
    return status;
}

// Ours of the row's block, or NULL.
static const struct grid_row *ours_of(const struct grid_runs *r, const struct grid_row *theirs) {
    for (int i = 0; i < r->n; i++)
        if (r->rows[i].block == theirs->block && r->rows[i].cell == theirs->cell && r->rows[i].engine == ENGINE_OURS)
            return &r->rows[i];
    return NULL;
}

int grid_pairs_count(const struct grid_runs *r, int cell, int engine, bool clean_only) {
    int n = 0;
    for (int i = 0; i < r->n; i++) {
        const struct grid_row *row = &r->rows[i];
        if (row->cell == cell && row->engine == engine && !(clean_only && row->dirty) && ours_of(r, row)) n++;
    }
    return n;
}

int grid_pairs_get(const struct grid_runs *r, int cell, int engine, double *ours, double *theirs, int cap,
                   bool *dirty) {
    int n = 0;
    *dirty = grid_pairs_count(r, cell, engine, true) < MIN(PAIRS_CLEAN_MIN, grid_pairs_count(r, cell, engine, false));
    for (int i = 0; i < r->n && n < cap; i++) {
        const struct grid_row *row = &r->rows[i], *own;
        if (row->cell != cell || row->engine != engine || (row->dirty && !*dirty) || !(own = ours_of(r, row))) continue;
        ours[n] = own->tps;
        theirs[n++] = row->tps;
    }
    return n;
}
