// Private to app/: the cells that a comparison with peers measures, and the file of runs that it grows by.
//
// A block is one test of one model run by us and by peers beside one another, with the machine's ceilings measured in
// it. A finished block is appended to cells.csv as one piece, one row for each run, so that a comparison can be stopped
// and gone on with; pairs for ratios are runs of the same block.
#pragma once
#include "base/base.h"
#include "bench_ceiling.h"
#include "bench_manifest.h"

#define GRID_CELLS_MAX 1024
#define GRID_ROWS_MAX 100000
#define GRID_CSV_BYTES_MAX (64u << 20)
#define GRID_ENGINES_MAX (MANIFEST_PEERS_MAX + 1)
#define ENGINE_OURS (-1)

struct grid_cell {
    int model; // of the manifest
    struct bench_test test;
};
enum grid_size { GRID_SMALL, GRID_FULL };
struct grid {
    struct grid_cell cells[GRID_CELLS_MAX];
    int n_cells;
};
// small: one decode and one prefill test of every model of the manifest on all fast cores. full: decode behind nothing
// and behind 2,048 tokens, prefill of 64, 512 and 2,048, on all fast cores, then on one; the models that it wants must
// be in the manifest, others there are measured too.
enum tern_status grid_make(struct grid *out, const struct manifest *m, enum grid_size size, int n_threads,
                           struct tern_err *err);

// One run, as a line of cells.csv.
struct grid_row {
    int64_t block;
    int cell;
    int engine; // peer of the manifest, or ENGINE_OURS
    int place;  // in its block's order
    double tps;
    double foreign; // processor time that others took meanwhile, per wall time
    bool dirty;     // more than DIRTY_SHARE, and again when repeated
    double wall_s, rss_mib;
    double read_gbs, int8_gops, bf16_gops; // the block's ceilings on the cell's threads; bf16 0: none, or an older file
    double bytes, ops;                     // ours: weight bytes of one step; operations of one prompt token. Peers: 0
};
#define DIRTY_SHARE 0.05
#define GRID_CSV_HEAD_OLD                                                                                        \
    "time,block,place,model,format,phase,tokens,depth,threads,engine,tokens_per_s,foreign,dirty,wall_s,rss_mib," \
    "read_gbs,int8_gops,bytes,ops" // of files without bf16_gops, which are read too
#define GRID_CSV_HEAD GRID_CSV_HEAD_OLD ",bf16_gops\n"
bool grid_row_put(struct buf *out, const struct grid *g, const struct manifest *m, const struct grid_row *row);

struct grid_runs {
    struct grid_row *rows; // [n]; mem_free
    int n, cap;
    int64_t block_next;
    int n_other; // lines of models, tests or peers that are not in this grid
};
bool grid_runs_add(struct grid_runs *r, const struct grid_row *row); // false: no memory or too many
// Reads cells.csv's text. Lines of other models, tests and engines are counted and left.
enum tern_status grid_csv_parse(struct grid_runs *out, struct str text, const struct grid *g, const struct manifest *m,
                                struct tern_err *err);
// Blocks of a cell in which the peer ran beside us; clean_only: not the dirty ones.
int grid_pairs_count(const struct grid_runs *r, int cell, int engine, bool clean_only);
// Speeds of the paired runs of a cell, ours and the peer's, at most cap; returns the count. Clean ones when there are
// at least three, else all, and *dirty tells.
int grid_pairs_get(const struct grid_runs *r, int cell, int engine, double *ours, double *theirs, int cap, bool *dirty);
