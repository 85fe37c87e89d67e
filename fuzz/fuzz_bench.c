// Fuzz target: what `tern bench --peers` reads. The first byte says as what: the manifest, a file of runs, or a peer's
// output. A manifest that is taken gives a command for every peer and model, and a grid; runs that are taken are of it.
#include "base/base.h"
#include "app/bench/bench_grid.h"

static void manifest_try(struct str text) {
    static struct manifest m;
    static struct grid g;
    struct tern_err err;
    if (manifest_parse(&m, text, "peers.json", &err) != TERN_OK) return;
    const struct bench_test t = {PHASE_DECODE, 64, 2048, 2};
    struct arena a;
    const char *words[PEER_ARGV_MAX];
    arena_init(&a, 1 << 24);
    for (int p = 0; p < m.n_peers; p++)
        for (int i = 0; i < m.n_models; i++) {
            int n = m.peers[p].files[i] ? peer_command_make(&m.peers[p], i, &t, &a, words) : -1;
            if (n >= 0 && (n == 0 || words[n])) TERN_BUG("a command of %d words does not end", n);
        }
    if (grid_make(&g, &m, GRID_SMALL, 2, &err) != TERN_OK || g.n_cells != 2 * m.n_models)
        TERN_BUG("a small grid fails");
    arena_release(&a);
    manifest_release(&m);
}

static void runs_try(struct str text) {
    static struct manifest m = {.n_models = 1, .n_peers = 1};
    static struct grid g;
    struct grid_runs r;
    struct tern_err err;
    m.models[0] = (struct bench_model){"m", "Q4_0", "x"};
    m.peers[0].name = "a";
    if (grid_make(&g, &m, GRID_SMALL, 2, &err) != TERN_OK) TERN_BUG("a small grid fails");
    if (grid_csv_parse(&r, text, &g, &m, &err) != TERN_OK) return;
    for (int i = 0; i < r.n; i++)
        if (r.rows[i].cell < 0 || r.rows[i].cell >= g.n_cells || r.rows[i].engine > 0 || !(r.rows[i].tps > 0))
            TERN_BUG("row %d is of no cell", i);
    double ours[4], theirs[4];
    bool dirty;
    grid_pairs_get(&r, 0, 0, ours, theirs, 4, &dirty);
    mem_free(r.rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct str text = {(const char *)data + 1, size - 1};
    const struct bench_test t = {PHASE_PREFILL, 512, 0, 2};
    double tps;
    if (data[0] == 'm') {
        manifest_try(text);
    } else if (data[0] == 'r') {
        runs_try(text);
    } else if (peer_output_parse((enum peer_kind)(data[0] % 3), &t, text, &tps, NULL) == TERN_OK && !(tps > 0)) {
        TERN_BUG("a speed of nothing");
    }
    return 0;
}
