// One block of a comparison: ceilings, then every engine once, each as a process of its own with a time limit; the
// order turns round from block to block (ABBA). A block that lost processor time to others is run again, and in the end
// kept with a mark.
#include "base/base.h"
#include "bench_peers.h"

#define DIRTY_TRIES 2
#define BUSY_TICKS_S 0.02 // what the system's count of processor time can be off by
#define OURS_LIMIT_S 600
#define RAW_BYTES_MAX (1u << 20)
#define WARM_PROMPT "16"

static struct os_child child; // the one that runs, for Ctrl-C
static volatile bool interrupted;

static void on_interrupt(void) {
    interrupted = true;
    child_signal_kill(&child);
}

const char *peers_engine_name(const struct peers_bench *b, int engine) {
    return engine == ENGINE_OURS ? "tern" : b->manifest.peers[engine].name;
}

bool peers_cell_put(const struct peers_bench *b, int cell, struct buf *out) {
    const struct grid_cell *c = &b->grid.cells[cell];
    const struct bench_model *m = &b->manifest.models[c->model];
    return buf_putf(out, "%s %s %s %d behind %d, %d threads", m->name, m->format,
                    c->test.phase == PHASE_PREFILL ? "prefill" : "decode", c->test.tokens, c->test.depth,
                    c->test.threads);
}

static const char *text_keep(struct peers_bench *b, struct buf *text) {
    const char *copy = text->failed ? NULL : arena_dup(&b->arena, text->data ? text->data : "", text->len);
    buf_release(text);
    return copy;
}

const char *peers_raw_name(struct peers_bench *b, int cell, int engine) {
    const struct grid_cell *c = &b->grid.cells[cell];
    const struct bench_model *m = &b->manifest.models[c->model];
    struct buf name;
    buf_init(&name, 4096);
    buf_putf(&name, "raw/%s-%s-%s%d-d%d-t%d-%s.txt", m->name, m->format,
             c->test.phase == PHASE_PREFILL ? "prefill" : "decode", c->test.tokens, c->test.depth, c->test.threads,
             peers_engine_name(b, engine));
    return text_keep(b, &name);
}

static const char *number_keep(struct peers_bench *b, int n) {
    struct buf text;
    buf_init(&text, 32);
    buf_putf(&text, "%d", n);
    return text_keep(b, &text);
}

int peers_command(struct peers_bench *b, int cell, int engine, const char *words[PEER_ARGV_MAX]) {
    const struct grid_cell *c = &b->grid.cells[cell];
    if (engine != ENGINE_OURS)
        return peer_command_make(&b->manifest.peers[engine], c->model, &c->test, &b->arena, words);
    bool prefill = c->test.phase == PHASE_PREFILL;
    const char *const ours[] = {b->exe,
                                "bench",
                                "-m",
                                b->manifest.models[c->model].file,
                                "-t",
                                number_keep(b, c->test.threads),
                                "-p",
                                prefill ? number_keep(b, c->test.tokens) : "1",
                                "-d",
                                number_keep(b, c->test.depth),
                                "-n",
                                prefill ? "0" : number_keep(b, c->test.tokens),
                                "-r",
                                "1",
                                "--warm",
                                WARM_PROMPT,
                                "--no-ceilings",
                                "--json"};
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        if (!ours[i]) return -1;
        words[i] = ours[i];
    }
    words[ARRAY_LEN(ours)] = NULL;
    return (int)ARRAY_LEN(ours);
}

// ------------------------------------------------------------------------------------------------------ our own output

// The number under key in the object that comes next, or under key.sub when sub is given.
static enum tern_status number_read(struct json *j, const char *what, double *out, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, what, err));
    *out = item.number;
    return TERN_OK;
}

static enum tern_status ours_members_read(struct json *j, bool prefill, struct grid_row *row, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "our output", err));
    int depth = item.depth;
    bool in_speed = false;
    while (json_next(j, &item, err) != JSON_END) {
        if (item.event == JSON_ERROR) return err->code;
        if (item.event == JSON_OBJECT_END && item.depth > depth) in_speed = false;
        if (item.event != JSON_KEY) continue;
        if (str_eqz(item.text, prefill ? "prefill_tps" : "decode_tps")) {
            in_speed = true;
        } else if (in_speed && str_eqz(item.text, "median")) {
            TRY(number_read(j, "median", &row->tps, err));
            in_speed = false;
        } else if (str_eqz(item.text, "bytes_token")) {
            TRY(number_read(j, "bytes_token", &row->bytes, err));
        } else if (str_eqz(item.text, "ops_token")) {
            TRY(number_read(j, "ops_token", &row->ops, err));
        }
    }
    return TERN_OK;
}

static enum tern_status ours_parse(struct str text, bool prefill, struct grid_row *row, struct tern_err *err) {
    struct json *j;
    TRY(json_create(&j, text, NULL, err));
    enum tern_status status = ours_members_read(j, prefill, row, err);
    json_free(j);
    if (status == TERN_OK && !(row->tps > 0)) status = err_set(err, TERN_BAD_FORMAT, "our output has no speed");
    return status;
}

// ------------------------------------------------------------------------------------------------------------- one run

struct run_files {
    const char *out, *err, *raw;
};

static bool files_make(struct peers_bench *b, int cell, int engine, struct run_files *f) {
    const char *raw = peers_raw_name(b, cell, engine);
    const char **const targets[] = {&f->out, &f->err, &f->raw};
    const char *const names[] = {"raw/run.out", "raw/run.err", raw};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct buf path;
        if (!names[i]) return false;
        buf_init(&path, 65536);
        buf_putf(&path, "%s/%s", b->out, names[i]);
        if (!(*targets[i] = text_keep(b, &path))) return false;
    }
    os_remove(f->out, NULL);
    os_remove(f->err, NULL);
    return true;
}

static enum tern_status raw_append(const struct run_files *f, const char *const *words, int64_t block,
                                   const struct child_result *r, struct str out, struct tern_err *err) {
    struct buf text, errors;
    buf_init(&text, 4 * RAW_BYTES_MAX);
    buf_init(&errors, RAW_BYTES_MAX);
    if (file_read_all(&errors, f->err, NULL) != TERN_OK) buf_clear(&errors);
    buf_putf(&text, "# block %lld:", (long long)block);
    for (int i = 0; words[i]; i++) buf_putf(&text, " %s", words[i]);
    buf_putf(&text, "\n# exit %d%s, %.2f s, %.2f s of processor time, %.0f MiB\n", r->code,
             r->timed_out ? " (killed: time limit)" : "", r->wall_s, r->cpu_s, (double)r->rss_max / 1048576.0);
    buf_put(&text, out.data, out.len);
    buf_puts(&text, "# standard error:\n");
    buf_put(&text, errors.data ? errors.data : "", errors.len);
    enum tern_status status = text.failed ? err_set(err, TERN_LIMIT, "a run printed more than %u bytes", RAW_BYTES_MAX)
                                          : file_append(f->raw, text.data, text.len, err);
    buf_release(&text);
    buf_release(&errors);
    return status;
}

static enum tern_status run_judge(struct peers_bench *b, int cell, int engine, const struct child_result *r,
                                  struct str out, struct grid_row *row, struct tern_err *err) {
    const struct bench_test *t = &b->grid.cells[cell].test;
    if (interrupted) return err_set(err, TERN_CANCELLED, "interrupted");
    if (r->timed_out) return err_set(err, TERN_LIMIT, "it was killed after its time limit");
    if (r->code != 0) return err_set(err, TERN_IO, "it ended with exit code %d", r->code);
    if (engine == ENGINE_OURS) return ours_parse(out, t->phase == PHASE_PREFILL, row, err);
    return peer_output_parse(b->manifest.peers[engine].kind, t, out, &row->tps, err);
}

// Runs an engine once; fills speed, time, memory and what others took meanwhile.
static enum tern_status engine_run(struct peers_bench *b, int cell, int engine, int64_t block, struct grid_row *row,
                                   struct tern_err *err) {
    const char *words[PEER_ARGV_MAX];
    struct run_files files;
    if (peers_command(b, cell, engine, words) < 0 || !files_make(b, cell, engine, &files))
        return err_set(err, TERN_NO_MEMORY, "no memory for a command line");
    struct child_options co = {.argv = words, .out_path = files.out, .err_path = files.err, .dir = b->o->dir};
    struct child_result result;
    double busy_before = 0, busy_after = 0, self_before = os_cpu_self();
    bool counts = os_cpu_busy(&busy_before);
    TRY(child_open(&child, &co, err));
    int limit_s = engine == ENGINE_OURS ? OURS_LIMIT_S : b->manifest.peers[engine].limit_s;
    TRY(child_wait(&child, (int64_t)limit_s * 1000, &result, err));
    counts = counts && os_cpu_busy(&busy_after);
    double foreign = counts ? busy_after - busy_before - (os_cpu_self() - self_before) : 0;
    row->wall_s = result.wall_s;
    row->rss_mib = (double)result.rss_max / 1048576.0;
    row->foreign = MAX(0, foreign - BUSY_TICKS_S) / result.wall_s;
    struct buf out;
    buf_init(&out, RAW_BYTES_MAX);
    enum tern_status status = file_read_all(&out, files.out, err);
    if (status == TERN_OK) status = raw_append(&files, words, block, &result, buf_str(&out), err);
    if (status == TERN_OK) status = run_judge(b, cell, engine, &result, buf_str(&out), row, err);
    buf_release(&out);
    return status;
}

// --------------------------------------------------------------------------------------------------------------- block

static enum tern_status rows_append(struct peers_bench *b, const struct grid_row *rows, int n, struct tern_err *err) {
    struct buf text, path;
    struct os_stat st;
    buf_init(&text, 1u << 20);
    buf_init(&path, 65536);
    buf_putf(&path, "%s/cells.csv", b->out);
    if (!path.failed && !os_stat_get(&st, path.data)) buf_puts(&text, GRID_CSV_HEAD);
    for (int i = 0; i < n; i++) grid_row_put(&text, &b->grid, &b->manifest, &rows[i]);
    enum tern_status status = text.failed || path.failed ? err_set(err, TERN_NO_MEMORY, "no memory for a block's rows")
                                                         : file_append(path.data, text.data, text.len, err);
    buf_release(&text);
    buf_release(&path);
    for (int i = 0; i < n && status == TERN_OK; i++)
        if (!grid_runs_add(&b->runs, &rows[i])) status = err_set(err, TERN_LIMIT, "more than %d runs", GRID_ROWS_MAX);
    return status;
}

static int failure_tell(struct peers_bench *b, int cell, int engine, struct tern_err *err) {
    struct buf where;
    buf_init(&where, 512);
    peers_cell_put(b, cell, &where);
    err_prefix(err, "%s, %s (%s/%s)", where.data, peers_engine_name(b, engine), b->out,
               peers_raw_name(b, cell, engine));
    buf_release(&where);
    fail_told(b->command, err);
    b->failed[cell][engine + 1] = true;
    return engine == ENGINE_OURS || interrupted ? (interrupted ? EXIT_INTERRUPTED : EXIT_FAILED) : EXIT_DONE;
}

int peers_block_run(struct peers_bench *b, int cell, const bool peers[MANIFEST_PEERS_MAX]) {
    int engines[GRID_ENGINES_MAX], n = 0;
    struct grid_row rows[GRID_ENGINES_MAX];
    struct tern_err err = {0};
    engines[n++] = ENGINE_OURS;
    for (int i = 0; i < b->manifest.n_peers; i++)
        if (peers[i]) engines[n++] = i;
    os_on_interrupt(on_interrupt);
    int64_t block = b->runs.block_next;
    for (int try = 0;; try++) {
        struct bench_ceilings ceilings;
        bool dirty = false;
        int n_rows = 0;
        if (!bench_ceilings_get(&ceilings, b->grid.cells[cell].test.threads)) {
            err_set(&err, TERN_NO_MEMORY, "no memory to measure the machine's ceilings");
            return fail_told(b->command, &err);
        }
        bench_ceilings_release(); // a child's memory is counted with ours until it runs its own program
        for (int k = 0; k < n; k++) {
            int engine = engines[block % 2 ? n - 1 - k : k];
            struct grid_row row = {.block = block,
                                   .cell = cell,
                                   .engine = engine,
                                   .place = k,
                                   .read_gbs = ceilings.read_gbs,
                                   .int8_gops = bench_ceilings_peak(&ceilings, "int8"),
                                   .bf16_gops = bench_ceilings_peak(&ceilings, "bf16")};
            if (engine_run(b, cell, engine, block, &row, &err) != TERN_OK) {
                int code = failure_tell(b, cell, engine, &err);
                if (code != EXIT_DONE) return code;
                continue;
            }
            dirty |= row.foreign > DIRTY_SHARE;
            rows[n_rows++] = row;
        }
        if (dirty && try + 1 < DIRTY_TRIES && n_rows > 1) continue;
        for (int i = 0; i < n_rows; i++) rows[i].dirty = dirty;
        if (n_rows > 1 && rows_append(b, rows, n_rows, &err) != TERN_OK) return fail_told(b->command, &err);
        return EXIT_DONE;
    }
}
