// Private to app/: `tern bench --peers`, us beside other engines.
#pragma once
#include "app/app.h"
#include "bench_grid.h"

struct peers_opts {
    const char *dir;  // holds peers.json, and what it names
    const char *size; // "small", "full"; NULL: full
    const char *only; // measure and report cells whose name (as reports have it) contains this; NULL: all
    const char *out;  // folder of cells.csv and raw/; NULL: DIR/results
    int n_threads;    // 0: all fast cores
    int repeats;      // blocks of each cell
    int limit_s;      // start no block that would end later; 0: none
    bool json;
};
int bench_peers_run(const struct command *c, const struct peers_opts *o);

// What a comparison works on.
struct peers_bench {
    const struct command *command;
    const struct peers_opts *o;
    struct buf text; // of the manifest
    struct manifest manifest;
    struct grid grid;
    struct grid_runs runs;
    char exe[4096]; // our program
    const char *out;
    struct arena arena;                            // texts of commands and paths
    bool failed[GRID_CELLS_MAX][GRID_ENGINES_MAX]; // [cell][engine + 1] in this process
};
// The words of an engine's command for a cell; -1: no memory.
int peers_command(struct peers_bench *b, int cell, int engine, const char *words[PEER_ARGV_MAX]);
// Where the raw output of an engine's runs of a cell goes, relative to the output folder.
const char *peers_raw_name(struct peers_bench *b, int cell, int engine); // NULL: no memory
const char *peers_engine_name(const struct peers_bench *b, int engine);
// Appends "lfm2-350m Q4_0 decode 64 behind 2048, 2 threads".
bool peers_cell_put(const struct peers_bench *b, int cell, struct buf *out);
// Runs one block of a cell with the peers named and adds its rows; EXIT_*.
int peers_block_run(struct peers_bench *b, int cell, const bool peers[MANIFEST_PEERS_MAX]);
// Prints the result. Returns the number of cells that lack repeats.
int peers_report(struct peers_bench *b);
