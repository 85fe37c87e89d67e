// What a comparison found: medians, paired ratios with their intervals, shares of the ceilings, and what is missing. As
// one JSON object, or as a table.
#include "base/base.h"
#include "bench_peers.h"
#include "bench_stats.h"

#include <stdio.h>

struct pair_result {
    int cell, engine, n;
    bool dirty;
    double ours, peer;
    struct stats_interval ratio;
};

static void field(struct json_writer *w, const char *key, double v) {
    json_write_key(w, key);
    json_write_f64(w, v);
}
static void text_field(struct json_writer *w, const char *key, const char *v) {
    json_write_key(w, key);
    json_write_str(w, str_from(v));
}
static void count_field(struct json_writer *w, const char *key, int v) {
    json_write_key(w, key);
    json_write_int(w, v);
}

static bool pair_get(const struct peers_bench *b, int cell, int engine, struct pair_result *out) {
    double ours[STATS_MAX], theirs[STATS_MAX];
    *out = (struct pair_result){.cell = cell, .engine = engine};
    out->n = grid_pairs_get(&b->runs, cell, engine, ours, theirs, STATS_MAX, &out->dirty);
    if (out->n == 0) return false;
    out->ours = stats_quantile(ours, out->n, 0.5);
    out->peer = stats_quantile(theirs, out->n, 0.5);
    out->ratio = stats_paired_ratio(ours, theirs, out->n);
    return true;
}

// Our share of what the block's ceiling allows, median: decode of the bytes read, prefill of the int8 arithmetic.
static double share_get(const struct peers_bench *b, int cell) {
    double v[STATS_MAX];
    int n = 0;
    bool prefill = b->grid.cells[cell].test.phase == PHASE_PREFILL;
    for (int i = 0; i < b->runs.n && n < STATS_MAX; i++) {
        const struct grid_row *r = &b->runs.rows[i];
        double work = prefill ? r->ops : r->bytes, ceiling = prefill ? r->int8_gops : r->read_gbs;
        if (r->cell == cell && r->engine == ENGINE_OURS && work > 0 && ceiling > 0)
            v[n++] = r->tps * work / 1e9 / ceiling;
    }
    return n > 0 ? stats_quantile(v, n, 0.5) : 0;
}

// --------------------------------------------------------------------------------------------------------------- JSON

static void cell_fields(const struct peers_bench *b, int cell, struct json_writer *w) {
    const struct grid_cell *c = &b->grid.cells[cell];
    text_field(w, "model", b->manifest.models[c->model].name);
    text_field(w, "format", b->manifest.models[c->model].format);
    text_field(w, "phase", c->test.phase == PHASE_PREFILL ? "prefill" : "decode");
    count_field(w, "tokens", c->test.tokens);
    count_field(w, "threads", c->test.threads);
    count_field(w, "depth", c->test.depth);
}

static void spread_json(struct json_writer *w, const char *key, const double *v, int n) {
    json_write_key(w, key);
    json_write_object(w);
    field(w, "min", stats_quantile(v, n, 0));
    field(w, "median", stats_quantile(v, n, 0.5));
    field(w, "max", stats_quantile(v, n, 1));
    json_write_object_end(w);
}

// For each thread count: what the blocks measured, and all peaks of all instruction sets once more, now.
static void ceilings_json(const struct peers_bench *b, struct json_writer *w) {
    int last = 0;
    json_write_key(w, "ceilings");
    json_write_array(w);
    for (int i = 0; i < b->grid.n_cells; i++) {
        int threads = b->grid.cells[i].test.threads, n = 0;
        double read[STATS_MAX], int8[STATS_MAX], bf16[STATS_MAX];
        if (threads == last) continue;
        last = threads;
        for (int k = 0; k < b->runs.n && n < STATS_MAX; k++) {
            const struct grid_row *r = &b->runs.rows[k];
            if (r->engine != ENGINE_OURS || b->grid.cells[r->cell].test.threads != threads) continue;
            read[n] = r->read_gbs;
            bf16[n] = r->bf16_gops;
            int8[n++] = r->int8_gops;
        }
        struct bench_ceilings now;
        json_write_object(w);
        count_field(w, "threads", threads);
        count_field(w, "blocks", n);
        if (n > 0) {
            spread_json(w, "read_gbs", read, n);
            spread_json(w, "int8_gops", int8, n);
            if (stats_quantile(bf16, n, 1) > 0) spread_json(w, "bf16_gops", bf16, n);
        }
        if (bench_ceilings_get(&now, threads)) {
            json_write_key(w, "now");
            bench_ceilings_json(&now, w);
        }
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void command_field(struct peers_bench *b, int cell, int engine, struct json_writer *w) {
    const char *words[PEER_ARGV_MAX];
    struct buf line;
    buf_init(&line, 65536);
    int n = peers_command(b, cell, engine, words);
    for (int i = 0; i < n; i++) buf_putf(&line, "%s%s", i ? " " : "", words[i]);
    json_write_key(w, "peer_command");
    json_write_str(w, buf_str(&line));
    buf_release(&line);
}

static void ratio_json(struct peers_bench *b, const struct pair_result *r, struct json_writer *w) {
    json_write_object(w);
    cell_fields(b, r->cell, w);
    field(w, "ours", r->ours);
    field(w, "peer", r->peer);
    text_field(w, "peer_name", peers_engine_name(b, r->engine));
    command_field(b, r->cell, r->engine, w);
    field(w, "ratio", r->ratio.mid);
    field(w, "lo", r->ratio.lo);
    field(w, "hi", r->ratio.hi);
    count_field(w, "pairs", r->n);
    json_write_key(w, "dirty");
    json_write_bool(w, r->dirty);
    field(w, "share", share_get(b, r->cell));
    const char *raw = peers_raw_name(b, r->cell, r->engine);
    text_field(w, "raw", raw ? raw : "");
    json_write_object_end(w);
}

// ------------------------------------------------------------------------------------------------------------- summary

static bool tests_alike(const struct bench_test *a, const struct bench_test *b) {
    return a->phase == b->phase && a->tokens == b->tokens && a->depth == b->depth && a->threads == b->threads;
}

// Of one test over all models: our ratio to the fastest peer of each, together and at worst.
struct summary {
    int n;
    double geomean, least, hi_least; // hi_least: the least upper end of an interval
};
static struct summary summary_get(const struct peers_bench *b, const struct bench_test *t) {
    double ratios[GRID_CELLS_MAX];
    struct summary s = {.least = 1e9, .hi_least = 1e9};
    for (int i = 0; i < b->grid.n_cells; i++) {
        struct pair_result best = {.peer = 0}, r;
        if (!tests_alike(&b->grid.cells[i].test, t)) continue;
        for (int p = 0; p < b->manifest.n_peers; p++)
            if (pair_get(b, i, p, &r) && r.peer > best.peer) best = r;
        if (best.peer <= 0) continue;
        ratios[s.n++] = best.ratio.mid;
        s.least = MIN(s.least, best.ratio.mid);
        s.hi_least = MIN(s.hi_least, best.ratio.hi);
    }
    s.geomean = stats_geomean(ratios, s.n);
    return s;
}

static bool test_is_first(const struct peers_bench *b, int cell) {
    for (int i = 0; i < cell; i++)
        if (tests_alike(&b->grid.cells[i].test, &b->grid.cells[cell].test)) return false;
    return true;
}

static void summary_json(const struct peers_bench *b, struct json_writer *w) {
    json_write_key(w, "over_fastest");
    json_write_array(w);
    for (int i = 0; i < b->grid.n_cells; i++) {
        const struct bench_test *t = &b->grid.cells[i].test;
        struct summary s = summary_get(b, t);
        if (!test_is_first(b, i) || s.n == 0) continue;
        json_write_object(w);
        text_field(w, "phase", t->phase == PHASE_PREFILL ? "prefill" : "decode");
        count_field(w, "tokens", t->tokens);
        count_field(w, "threads", t->threads);
        count_field(w, "depth", t->depth);
        count_field(w, "models", s.n);
        field(w, "geomean", s.geomean);
        field(w, "least", s.least);
        field(w, "least_hi", s.hi_least);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static int missing_json(const struct peers_bench *b, struct json_writer *w) {
    int n_missing = 0;
    json_write_key(w, "missing");
    json_write_array(w);
    for (int i = 0; i < b->grid.n_cells; i++)
        for (int p = 0; p < b->manifest.n_peers; p++) {
            if (!b->manifest.peers[p].files[b->grid.cells[i].model]) continue;
            int n = grid_pairs_count(&b->runs, i, p, false);
            if (n >= b->o->repeats) continue;
            n_missing++;
            json_write_object(w);
            cell_fields(b, i, w);
            text_field(w, "peer_name", peers_engine_name(b, p));
            count_field(w, "pairs", n);
            count_field(w, "wanted", b->o->repeats);
            json_write_object_end(w);
        }
    json_write_array_end(w);
    return n_missing;
}

static void report_text(const struct peers_bench *b) {
    out_putf("%-48s %9s %-14s %9s %6s %-11s %6s %6s\n", "tokens/s", "tern", "peer", "peer's", "ratio", "95 %", "pairs",
             "share");
    for (int i = 0; i < b->grid.n_cells; i++)
        for (int p = 0; p < b->manifest.n_peers; p++) {
            struct pair_result r;
            struct buf cell;
            if (!pair_get(b, i, p, &r)) continue;
            buf_init(&cell, 512);
            peers_cell_put(b, i, &cell);
            out_putf("%-48s %9.1f %-14s %9.1f %6.2f %5.2f-%-5.2f %5d%s %4.0f %%\n", cell.data ? cell.data : "", r.ours,
                     peers_engine_name(b, p), r.peer, r.ratio.mid, r.ratio.lo, r.ratio.hi, r.n, r.dirty ? "*" : " ",
                     100 * share_get(b, i));
            buf_release(&cell);
        }
    for (int i = 0; i < b->grid.n_cells; i++) {
        const struct bench_test *t = &b->grid.cells[i].test;
        struct summary s = summary_get(b, t);
        if (!test_is_first(b, i) || s.n == 0) continue;
        out_putf("%s %d behind %d, %d threads, %d models: geometric mean %.2f of the fastest peer, least %.2f\n",
                 t->phase == PHASE_PREFILL ? "prefill" : "decode", t->tokens, t->depth, t->threads, s.n, s.geomean,
                 s.least);
    }
}

static void missing_text(const struct peers_bench *b) {
    for (int i = 0; i < b->grid.n_cells; i++)
        for (int p = 0; p < b->manifest.n_peers; p++) {
            struct buf cell;
            int n = grid_pairs_count(&b->runs, i, p, false);
            if (!b->manifest.peers[p].files[b->grid.cells[i].model] || n >= b->o->repeats) continue;
            buf_init(&cell, 512);
            peers_cell_put(b, i, &cell);
            out_putf("missing: %s, %s: %d of %d\n", cell.data ? cell.data : "", peers_engine_name(b, p), n,
                     b->o->repeats);
            buf_release(&cell);
        }
}

int peers_report(struct peers_bench *b) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 64u << 20);
    json_write_init(&w, &out);
    json_write_object(&w);
    ceilings_json(b, &w);
    json_write_key(&w, "ratios");
    json_write_array(&w);
    for (int i = 0; i < b->grid.n_cells; i++)
        for (int p = 0; p < b->manifest.n_peers; p++) {
            struct pair_result r;
            if (pair_get(b, i, p, &r)) ratio_json(b, &r, &w);
        }
    json_write_array_end(&w);
    summary_json(b, &w);
    int n_missing = missing_json(b, &w);
    json_write_object_end(&w);
    buf_putc(&out, '\n');
    if (b->o->json)
        out_put(buf_str(&out));
    else
        report_text(b);
    buf_release(&out);
    if (n_missing > 0 && !b->o->json) {
        missing_text(b);
        out_putf("%d cells have less than %d repeats\n", n_missing, b->o->repeats);
    }
    return n_missing;
}
