// Measuring and printing curves. A point is one measurement repeated; a curve is judged against its first point (one
// row, empty context, one sequence, alone) by medians, and rows also against the machine's floor: the larger of the
// time to read the bytes and the time to do the arithmetic at the rates measured in the same run.
#include "base/base.h"
#include "bench_ceiling.h"
#include "bench_curve.h"
#include "bench_lab.h"
#include "bench_stats.h"

#define ROWS_MAX 64
#define SETTLE_NS 2000000000u // a team that yields to others looks again after 1.6 s at most (team.h)
#define BUSY_OK 0.45          // share of the undisturbed speed that a busy neighbour must leave

struct point {
    int value; // rows, depth, sequences; busy: processes beside us
    enum op_kv_type kv;
    double ms[CURVE_REPEATS_MAX]; // of one step
    int n;
    double floor_ms;   // 0: none
    double ops, bytes; // of one step of rows
};
struct curve {
    const struct command *command;
    const struct curve_opts *o;
    struct lab lab;
    struct lab_run runs[2]; // by cache type measured
    enum op_kv_type kv[2];
    int n_kv;
    struct point points[2 * CURVE_POINTS_MAX];
    int n_points;
    struct bench_ceilings ceilings;
    int32_t ids[ROWS_MAX];
    struct prog_argmax first[ROWS_MAX]; // of the widest step so far
    int n_first;
    bool rows_same;
    double neighbour[CURVE_REPEATS_MAX]; // processor share of the busy process
    int n_neighbour;
};
static const char *const kv_names[] = {[OP_KV_F16] = "f16", [OP_KV_Q8] = "q8", [OP_KV_F32] = "f32"};

bool curve_points_parse(struct curve_opts *o, const char *text, int lo, int hi) {
    o->n_points = 0;
    for (;;) {
        const char *end = strchr(text, ',');
        int64_t v;
        struct str one = {text, end ? (size_t)(end - text) : strlen(text)};
        if (o->n_points == CURVE_POINTS_MAX || !str_to_i64(one, &v) || v < lo || v > hi) return false;
        if (o->n_points > 0 && v <= o->points[o->n_points - 1]) return false;
        o->points[o->n_points++] = (int)v;
        if (!end) return true;
        text = end + 1;
    }
}

// ---------------------------------------------------------------------------------------------------------- measuring

// n tokens for each of n_seqs sequences from length len on; seconds of one step.
static enum tern_status decode_time(struct lab_run *r, int n_seqs, int len, int n, double *seconds,
                                    struct tern_err *err) {
    for (int i = 0; i < n_seqs; i++) r->len[i] = len;
    uint64_t start = clock_ns();
    for (int k = 0; k < n; k++) TRY(lab_decode(r, n_seqs, err));
    *seconds = (double)(clock_ns() - start) * 1e-9 / n;
    return TERN_OK;
}

// The same rows give the same result whatever else is in the step: checked on every measurement.
static void rows_compare(struct curve *u, const struct prog_argmax *rows, int n) {
    for (int i = 0; i < MIN(n, u->n_first); i++)
        if (rows[i].id != u->first[i].id || f32_bits(rows[i].max) != f32_bits(u->first[i].max)) u->rows_same = false;
    if (n <= u->n_first) return;
    memcpy(u->first, rows, (size_t)n * sizeof *rows);
    u->n_first = n;
}

// What the neighbour's coming or going changed has settled.
static enum tern_status decode_settle(struct curve *u, struct tern_err *err) {
    double seconds;
    for (uint64_t start = clock_ns(); clock_ns() - start < SETTLE_NS;)
        TRY(decode_time(&u->runs[0], 1, MAX(u->o->depth, 1), u->o->n_answer, &seconds, err));
    return TERN_OK;
}

static enum tern_status busy_time(struct curve *u, double *seconds, struct tern_err *err) {
    static const char *const argv[] = {"sh", "-c", "while :; do :; done", NULL};
    struct os_child child;
    struct child_result result;
    struct child_options co = {.argv = argv};
    TRY(child_open(&child, &co, err));
    enum tern_status status = decode_settle(u, err);
    if (status == TERN_OK) status = decode_time(&u->runs[0], 1, MAX(u->o->depth, 1), u->o->n_answer, seconds, err);
    if (status == TERN_OK) status = child_wait(&child, 0, &result, err); // kills it
    child_close(&child);
    if (status != TERN_OK) return status;
    u->neighbour[u->n_neighbour++] = result.cpu_s / result.wall_s;
    return TERN_OK;
}

static enum tern_status point_measure(struct curve *u, struct point *p, double *ms, struct tern_err *err) {
    struct lab_run *r = &u->runs[p->kv == u->kv[0] ? 0 : 1];
    struct prog_argmax rows[ROWS_MAX];
    double seconds = 0;
    switch (u->o->kind) {
    case CURVE_ROWS: {
        uint64_t start = clock_ns();
        TRY(lab_verify(r, 0, u->ids, p->value, rows, err));
        seconds = (double)(clock_ns() - start) * 1e-9;
        rows_compare(u, rows, p->value);
        break;
    }
    case CURVE_DEPTH: TRY(decode_time(r, 1, MAX(p->value, 1), u->o->n_answer, &seconds, err)); break;
    case CURVE_BATCH: TRY(decode_time(r, p->value, u->o->n_prompt, u->o->n_answer, &seconds, err)); break;
    case CURVE_BUSY:
        if (p->value > 0) {
            TRY(busy_time(u, &seconds, err));
        } else {
            TRY(decode_settle(u, err));
            TRY(decode_time(r, 1, MAX(u->o->depth, 1), u->o->n_answer, &seconds, err));
        }
        break;
    }
    *ms = seconds * 1e3;
    return TERN_OK;
}

static void points_make(struct curve *u) {
    const struct curve_opts *o = u->o;
    for (int k = 0; k < u->n_kv; k++) {
        if (o->kind == CURVE_DEPTH && o->points[0] != 0)
            u->points[u->n_points++] = (struct point){.value = 0, .kv = u->kv[k]};
        for (int i = 0; i < o->n_points; i++)
            u->points[u->n_points++] = (struct point){.value = o->points[i], .kv = u->kv[k]};
    }
}

// Positions and sequences that the curve's points need.
static enum tern_status runs_open(struct curve *u, struct tern_err *err) {
    const struct curve_opts *o = u->o;
    int last = o->points[o->n_points - 1], n_seqs = 1, n_out = 1, held = MAX(o->depth, 1), n_ctx = held + o->n_answer;
    if (o->kind == CURVE_ROWS) n_out = last, n_ctx = held + last;
    if (o->kind == CURVE_DEPTH) held = MAX(last, 1), n_ctx = held + o->n_answer;
    if (o->kind == CURVE_BATCH) n_seqs = last, held = o->n_prompt, n_ctx = held + o->n_answer;
    for (int k = 0; k < u->n_kv; k++) {
        TRY(lab_run_open(&u->runs[k], &u->lab, u->kv[k], n_ctx, n_seqs, n_out, err));
        for (int i = 0; i < n_seqs; i++) TRY(lab_prefill(&u->runs[k], i, held, err));
    }
    for (int i = 0; i < ROWS_MAX; i++) u->ids[i] = lab_token(&u->runs[0]);
    return TERN_OK;
}

static enum tern_status floors_set(struct curve *u, struct tern_err *err) {
    double int8 = bench_ceilings_peak(&u->ceilings, "int8");
    if (u->o->kind != CURVE_ROWS || u->ceilings.read_gbs <= 0 || int8 <= 0 || u->lab.numerics != PROG_CLASS_INT8)
        return TERN_OK;
    for (int i = 0; i < u->n_points; i++) {
        struct prog_cost cost;
        TRY(lab_cost(&u->lab, u->points[i].kv, u->points[i].value, u->o->depth, &cost, err));
        double read = (cost.weight_bytes + cost.kv_bytes) / u->ceilings.read_gbs, ops = cost.flops / int8;
        u->points[i].floor_ms = MAX(read, ops) * 1e-6;
        u->points[i].ops = cost.flops;
        u->points[i].bytes = cost.weight_bytes + cost.kv_bytes;
    }
    return TERN_OK;
}

static enum tern_status curve_measure(struct curve *u, struct tern_err *err) {
    struct progress bar;
    enum tern_status status = TERN_OK;
    int total = (u->o->repeats + 1) * u->n_points, done = 0;
    progress_begin(&bar, "measuring", (uint64_t)total, false);
    for (int rep = 0; rep <= u->o->repeats && status == TERN_OK; rep++) // the first is not counted
        for (int k = 0; k < u->n_points && status == TERN_OK; k++) {
            struct point *p = &u->points[rep % 2 ? u->n_points - 1 - k : k];
            double ms = 0;
            status = point_measure(u, p, &ms, err);
            if (rep > 0) p->ms[p->n++] = ms;
            progress_update(&bar, (uint64_t)++done);
        }
    progress_end(&bar);
    return status;
}

// ------------------------------------------------------------------------------------------------------------ printing

static double point_ms(const struct point *p) { return stats_quantile(p->ms, p->n, 0.5); }
static double point_tps(const struct curve *u, const struct point *p) {
    return (u->o->kind == CURVE_BATCH ? p->value : 1) * 1e3 / point_ms(p);
}
// Over the first point with the same cache: times of rows and depths, speeds of batches; alone over busy.
static double point_over(const struct curve *u, const struct point *p) {
    const struct point *first = p;
    while (first > u->points && first[-1].kv == p->kv) first--;
    return u->o->kind == CURVE_BATCH ? point_tps(u, p) / point_tps(u, first) : point_ms(p) / point_ms(first);
}

static const struct {
    const char *list, *value, *over;
} words[] = {[CURVE_ROWS] = {"rows", "rows", "over_one"},
             [CURVE_DEPTH] = {"depths", "depth", "over_empty"},
             [CURVE_BATCH] = {"batches", "sequences", "gain"},
             [CURVE_BUSY] = {"busy", "processes", "over_alone"}};

static void field(struct json_writer *w, const char *key, double v) {
    json_write_key(w, key);
    json_write_f64(w, v);
}

static void point_json(const struct curve *u, const struct point *p, struct json_writer *w) {
    json_write_object(w);
    json_write_key(w, words[u->o->kind].value);
    json_write_int(w, p->value);
    json_write_key(w, "kv");
    json_write_str(w, str_from(kv_names[p->kv]));
    json_write_key(w, "ms");
    json_write_object(w);
    field(w, "min", stats_quantile(p->ms, p->n, 0));
    field(w, "median", point_ms(p));
    field(w, "max", stats_quantile(p->ms, p->n, 1));
    json_write_object_end(w);
    if (u->o->kind != CURVE_ROWS) field(w, "tokens_per_s", point_tps(u, p));
    field(w, words[u->o->kind].over, point_over(u, p));
    if (p->floor_ms > 0) {
        field(w, "over_floor", point_ms(p) / p->floor_ms);
        field(w, "ops", p->ops);
        field(w, "bytes", p->bytes);
    }
    json_write_object_end(w);
}

static void curve_json(const struct curve *u) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 16u << 20);
    json_write_init(&w, &out);
    json_write_object(&w);
    const char *const texts[][2] = {{"model", u->lab.model->name},
                                    {"format", format_table[u->lab.model->format_main].name},
                                    {"kernels", u->lab.caps.isa},
                                    {"numerics", u->lab.class_name}};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_write_key(&w, texts[i][0]);
        json_write_str(&w, str_from(texts[i][1]));
    }
    json_write_key(&w, "threads");
    json_write_int(&w, u->lab.caps.n_threads);
    json_write_key(&w, "before");
    json_write_int(&w, u->o->kind == CURVE_BATCH ? u->o->n_prompt : u->o->depth);
    json_write_key(&w, "repeats");
    json_write_int(&w, u->o->repeats);
    json_write_key(&w, "ceilings");
    bench_ceilings_json(&u->ceilings, &w);
    json_write_key(&w, words[u->o->kind].list);
    json_write_array(&w);
    for (int i = 0; i < u->n_points; i++) point_json(u, &u->points[i], &w);
    json_write_array_end(&w);
    if (u->o->kind == CURVE_ROWS) {
        json_write_key(&w, "same_rows");
        json_write_bool(&w, u->rows_same);
    }
    if (u->n_neighbour > 0) {
        field(&w, "speed_left", 1 / point_over(u, &u->points[1]));
        field(&w, "neighbour_share", stats_quantile(u->neighbour, u->n_neighbour, 0.5));
    }
    json_write_object_end(&w);
    buf_putc(&out, '\n');
    out_put(buf_str(&out));
    buf_release(&out);
}

static void curve_text(const struct curve *u) {
    struct buf line;
    buf_init(&line, 4096);
    bench_ceilings_put(&u->ceilings, &line);
    out_putf("%s, %s, %s, %s, %d threads, packed weights %.1f MiB, %d repeats; %s\n", u->lab.model->name,
             format_table[u->lab.model->format_main].name, u->lab.caps.isa, u->lab.class_name, u->lab.caps.n_threads,
             (double)u->lab.info.bytes / 1048576.0, u->o->repeats, line.data ? line.data : "");
    buf_release(&line);
    const struct curve_opts *o = u->o;
    const char *by = o->kind == CURVE_BATCH ? "gain" : o->kind == CURVE_ROWS ? "x one" : "x time";
    if (o->kind == CURVE_ROWS) out_putf("rows of one step, all with argmax, behind %d tokens\n", o->depth);
    if (o->kind == CURVE_DEPTH) out_puts("decode behind so many tokens\n");
    if (o->kind == CURVE_BATCH) out_putf("sequences decoded together, each behind %d tokens\n", o->n_prompt);
    if (o->kind == CURVE_BUSY) out_putf("decode beside so many busy processes, behind %d tokens\n", o->depth);
    out_putf("%9s %4s %9s %9s %9s %9s %7s %7s\n", words[o->kind].value, "kv", "ms", "min", "max", "tokens/s", by,
             "x floor");
    for (int i = 0; i < u->n_points; i++) {
        const struct point *p = &u->points[i];
        out_putf("%9d %4s %9.3f %9.3f %9.3f %9.1f %7.2f ", p->value, kv_names[p->kv], point_ms(p),
                 stats_quantile(p->ms, p->n, 0), stats_quantile(p->ms, p->n, 1),
                 o->kind == CURVE_ROWS ? p->value * 1e3 / point_ms(p) : point_tps(u, p), point_over(u, p));
        if (p->floor_ms > 0)
            out_putf("%7.2f\n", point_ms(p) / p->floor_ms);
        else
            out_puts("      -\n");
    }
    if (o->kind == CURVE_ROWS) out_putf("every row the same in steps of all sizes: %s\n", u->rows_same ? "yes" : "NO");
    if (u->n_neighbour > 0)
        out_putf("left of our speed: %.0f %% (at least %.0f %% expected); the neighbour had %.0f %% of a core\n",
                 100 / point_over(u, &u->points[1]), 100 * BUSY_OK,
                 100 * stats_quantile(u->neighbour, u->n_neighbour, 0.5));
}

int bench_curve_run(const struct command *c, const struct curve_opts *o, const struct tern_engine_options *engine) {
    static const enum op_kv_type types[] = {
        [TERN_KV_F16] = OP_KV_F16, [TERN_KV_Q8] = OP_KV_Q8, [TERN_KV_F32] = OP_KV_F32};
    struct curve *u = mem_calloc(1, sizeof *u);
    struct tern_err err = {0};
    if (!u) return EXIT_FAILED;
    *u = (struct curve){.command = c, .o = o, .kv = {types[engine->kv_type], OP_KV_Q8}, .n_kv = 1, .rows_same = true};
    if (o->kind == CURVE_DEPTH && !o->kv_given) u->n_kv = 2;
    points_make(u);
    enum tern_status status;
    TRY_GOTO(lab_open(&u->lab, engine, &err), end);
    if (!bench_ceilings_get(&u->ceilings, u->lab.caps.n_threads)) u->ceilings.n_peaks = 0;
    bench_ceilings_release();
    TRY_GOTO(runs_open(u, &err), end);
    TRY_GOTO(floors_set(u, &err), end);
    TRY_GOTO(curve_measure(u, &err), end);
    if (o->json)
        curve_json(u);
    else
        curve_text(u);
    if (!u->rows_same)
        status =
            err_set(&err, TERN_MISMATCH, "rows differ between steps of different sizes: a kernel breaks the contract");
end:;
    int code = status == TERN_OK ? EXIT_DONE : fail_told(c, &err);
    for (int k = 0; k < 2; k++)
        if (u->runs[k].lab) lab_run_close(&u->runs[k]);
    lab_close(&u->lab);
    mem_free(u);
    return code;
}
