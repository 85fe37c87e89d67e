// tern bench --peers DIR: the whole grid beside other engines. Reads the manifest, checks that all files are there,
// measures what cells.csv lacks, cell by cell, and reports. What is measured is kept, so it can be stopped at any time.
#include "base/base.h"
#include "bench_peers.h"
#include "bench_stats.h"

#include <stdio.h>

// Cost of a block, for the time that is left: seconds per engine = start + work / speed, work in weight bytes read per
// decoded token and, for prefill, per PREFILL_TOKENS tokens of arithmetic.
#define COST_START_S 1.0
#define COST_BYTES_S 15e9 // of two threads
#define COST_PREFILL_TOKENS 5.0

static const char *path_of(struct peers_bench *b, const char *folder, const char *name) {
    struct buf path;
    buf_init(&path, 65536);
    if (name[0] == '/')
        buf_puts(&path, name);
    else
        buf_putf(&path, "%s/%s", folder, name);
    const char *copy = path.failed ? NULL : arena_dup(&b->arena, path.data, path.len);
    buf_release(&path);
    return copy;
}

static bool is_there(struct peers_bench *b, const char *name) {
    struct os_stat st;
    const char *path = path_of(b, b->o->dir, name);
    return path && os_stat_get(&st, path);
}

// Programs named by a path, models of ours and of every peer.
static enum tern_status files_check(struct peers_bench *b, const char *manifest_path, struct tern_err *err) {
    const struct manifest *m = &b->manifest;
    for (int i = 0; i < m->n_models; i++)
        if (!is_there(b, m->models[i].file))
            return err_set(err, TERN_NOT_FOUND, "%s: the file '%s' of the model '%s %s' is not there", manifest_path,
                           m->models[i].file, m->models[i].name, m->models[i].format);
    for (int p = 0; p < m->n_peers; p++) {
        const struct bench_peer *peer = &m->peers[p];
        if (strchr(peer->command[0], '/') && !is_there(b, peer->command[0]))
            return err_set(err, TERN_NOT_FOUND, "%s: the program '%s' of the peer '%s' is not there", manifest_path,
                           peer->command[0], peer->name);
        for (int i = 0; i < m->n_models; i++)
            if (peer->files[i] && !is_there(b, peer->files[i]))
                return err_set(err, TERN_NOT_FOUND, "%s: the file '%s' of the peer '%s' is not there", manifest_path,
                               peer->files[i], peer->name);
    }
    return TERN_OK;
}

// Leaves the cells that --only asks for.
static enum tern_status cells_pick(struct peers_bench *b, const char *manifest_path, struct tern_err *err) {
    int n = 0;
    for (int i = 0; b->o->only && i < b->grid.n_cells; i++) {
        struct buf name;
        buf_init(&name, 512);
        bool is_one = peers_cell_put(b, i, &name) && str_find(buf_str(&name), str_from(b->o->only), 0) != (size_t)-1;
        buf_release(&name);
        if (is_one) b->grid.cells[n++] = b->grid.cells[i];
    }
    if (b->o->only) b->grid.n_cells = n;
    if (b->grid.n_cells > 0) return TERN_OK;
    return err_set(err, TERN_NOT_FOUND,
                   "no cell of %s has '%s' in its name; names are like "
                   "'lfm2-350m Q4_0 decode 64 behind 2048, 2 threads'",
                   manifest_path, b->o->only ? b->o->only : "");
}

static enum tern_status bench_open(struct peers_bench *b, struct tern_err *err) {
    const struct peers_opts *o = b->o;
    buf_init(&b->text, MANIFEST_BYTES_MAX);
    arena_init(&b->arena, 0);
    const char *path = path_of(b, o->dir, "peers.json");
    b->out = o->out ? o->out : path_of(b, o->dir, "results");
    const char *raw = b->out ? path_of(b, b->out, "raw") : NULL, *csv = b->out ? path_of(b, b->out, "cells.csv") : NULL;
    if (!path || !raw || !csv) return err_set(err, TERN_NO_MEMORY, "no memory for paths");
    if (!os_exe_path(b->exe, sizeof b->exe)[0]) return err_set(err, TERN_NOT_FOUND, "cannot find this program's file");
    TRY(file_read_all(&b->text, path, err));
    TRY(manifest_parse(&b->manifest, buf_str(&b->text), path, err));
    TRY(files_check(b, path, err));
    int n_threads = o->n_threads ? o->n_threads : cpu_topology_get().n_cores_fast;
    TRY(grid_make(&b->grid, &b->manifest, o->size && strcmp(o->size, "small") == 0 ? GRID_SMALL : GRID_FULL, n_threads,
                  err));
    TRY(cells_pick(b, path, err));
    TRY(os_mkdirs(raw, err));
    struct os_stat st;
    if (!os_stat_get(&st, csv)) return TERN_OK;
    struct buf text;
    buf_init(&text, GRID_CSV_BYTES_MAX);
    enum tern_status status = file_read_all(&text, csv, err);
    if (status == TERN_OK) {
        status = grid_csv_parse(&b->runs, buf_str(&text), &b->grid, &b->manifest, err);
        if (status != TERN_OK) err_prefix(err, "%s", csv);
    }
    buf_release(&text);
    return status;
}

// Which peers of a cell still need blocks; returns how many blocks.
static int blocks_due(const struct peers_bench *b, int cell, bool peers[MANIFEST_PEERS_MAX]) {
    int most = 0;
    for (int p = 0; p < b->manifest.n_peers; p++) {
        peers[p] = false;
        if (!b->manifest.peers[p].files[b->grid.cells[cell].model] || b->failed[cell][p + 1]) continue;
        int due = b->o->repeats - grid_pairs_count(&b->runs, cell, p, false);
        peers[p] = due > 0;
        most = MAX(most, due);
    }
    return most;
}

// Seconds that one block of a cell may take, before any was measured.
static double block_guess(struct peers_bench *b, int cell, const bool peers[MANIFEST_PEERS_MAX]) {
    const struct grid_cell *c = &b->grid.cells[cell];
    struct os_stat st = {0};
    const char *path = path_of(b, b->o->dir, b->manifest.models[c->model].file);
    if (path) os_stat_get(&st, path);
    double rows = c->test.depth / COST_PREFILL_TOKENS;
    rows += c->test.phase == PHASE_PREFILL ? c->test.tokens / COST_PREFILL_TOKENS : c->test.tokens;
    int n = 1;
    for (int p = 0; p < b->manifest.n_peers; p++) n += peers[p];
    return n * (COST_START_S + rows * (double)st.size / (COST_BYTES_S * MIN(c->test.threads, 2) / 2));
}

// Measured where the cell has blocks already, else the guess, scaled by how other cells' guesses came out.
static double block_cost(struct peers_bench *b, int cell, const bool peers[MANIFEST_PEERS_MAX]) {
    double sum = 0, measured = 0, guessed = 0;
    int64_t last = -1;
    for (int i = 0; i < b->runs.n; i++) {
        const struct grid_row *r = &b->runs.rows[i];
        if (r->cell == cell && r->block != last) sum = 0, last = r->block;
        if (r->cell == cell) sum += r->wall_s;
        measured += r->wall_s;
    }
    if (sum > 0) return sum;
    const bool none[MANIFEST_PEERS_MAX] = {false};
    for (int i = 0; i < b->runs.n; i++) guessed += block_guess(b, b->runs.rows[i].cell, none);
    double scale = guessed > 0 && measured > 0 ? measured / guessed : 1;
    return block_guess(b, cell, peers) * scale;
}

static double time_left(struct peers_bench *b, int *n_blocks) {
    double sum = 0;
    bool peers[MANIFEST_PEERS_MAX];
    *n_blocks = 0;
    for (int i = 0; i < b->grid.n_cells; i++) {
        int due = blocks_due(b, i, peers);
        if (due > 0) sum += due * block_cost(b, i, peers);
        *n_blocks += due;
    }
    return sum;
}

// One line for a cell that has all its blocks.
static void cell_tell(struct peers_bench *b, int cell, int n_left) {
    struct buf line;
    double ours[STATS_MAX], theirs[STATS_MAX];
    buf_init(&line, 4096);
    peers_cell_put(b, cell, &line);
    for (int p = 0; p < b->manifest.n_peers; p++) {
        bool dirty;
        int n = grid_pairs_get(&b->runs, cell, p, ours, theirs, STATS_MAX, &dirty);
        if (n == 0) continue;
        struct stats_interval r = stats_paired_ratio(ours, theirs, n);
        buf_putf(&line, "; %.1f over %s %.1f: %.2f (%.2f-%.2f)%s", stats_quantile(ours, n, 0.5),
                 b->manifest.peers[p].name, stats_quantile(theirs, n, 0.5), r.mid, r.lo, r.hi, dirty ? " dirty" : "");
    }
    fprintf(stderr, "%s; %d blocks left\n", line.data ? line.data : "", n_left);
    buf_release(&line);
}

static int cells_measure(struct peers_bench *b) {
    int n_left, code = EXIT_DONE;
    uint64_t start = clock_ns();
    struct progress bar;
    double seconds = time_left(b, &n_left);
    int n_total = n_left;
    if (n_left > 0) fprintf(stderr, "%d blocks to measure, about %.0f minutes\n", n_left, seconds / 60);
    progress_begin(&bar, "measuring", (uint64_t)n_total, false);
    for (int i = 0; i < b->grid.n_cells && code == EXIT_DONE; i++) {
        bool peers[MANIFEST_PEERS_MAX], any = false;
        while (code == EXIT_DONE && blocks_due(b, i, peers) > 0) {
            double spent = (double)(clock_ns() - start) * 1e-9;
            if (b->o->limit_s > 0 && spent + block_cost(b, i, peers) > b->o->limit_s) {
                progress_end(&bar);
                seconds = time_left(b, &n_left);
                fprintf(stderr,
                        "stopped by its time limit; %d blocks left, about %.0f minutes; the same command goes on\n",
                        n_left, seconds / 60);
                return EXIT_DONE;
            }
            code = peers_block_run(b, i, peers);
            any = true;
            time_left(b, &n_left);
            progress_update(&bar, (uint64_t)MAX(n_total - n_left, 0));
        }
        if (any && code == EXIT_DONE) progress_end(&bar), cell_tell(b, i, n_left);
    }
    progress_end(&bar);
    return code;
}

int bench_peers_run(const struct command *c, const struct peers_opts *o) {
    struct peers_bench *b = mem_calloc(1, sizeof *b);
    struct tern_err err = {.pos = -1};
    if (!b) return EXIT_FAILED;
    b->command = c;
    b->o = o;
    int code = EXIT_DONE;
    if (bench_open(b, &err) != TERN_OK) code = fail_told(c, &err);
    if (code == EXIT_DONE) code = cells_measure(b);
    if (code == EXIT_DONE && peers_report(b) > 0) {
        err_set(&err, TERN_NOT_FOUND, "cells are missing (see above); the same command goes on where this one ended");
        code = fail_told(c, &err);
    }
    mem_free(b->runs.rows);
    manifest_release(&b->manifest);
    buf_release(&b->text);
    arena_release(&b->arena);
    mem_free(b);
    return code;
}
