// How many prompt rows go beside running streams: as many as a step has time for, by costs learned from the steps
// themselves. A step's time is taken as that of its streams alone plus so much for every prompt row.
//
// Whole blocks are best: a piece that reaches a block's end stops there (piece_rows), where its state can be kept.
// LFM2-350M Q4_0, 2 threads, 3 streams (2-vCPU Sapphire Rapids Xeon, `tern bench --service 4`): 7.9 ms without prompt
// rows, 0.75 to 0.9 ms a row.
#include "base/base.h"
#include "service_int.h"

#define LEARN 0.2    // weight of the newest step
#define BLOCK_NEAR 8 // rows that may be missing to a whole block

static void learn(double *at, double ns) { *at = *at > 0 ? *at + LEARN * (ns - *at) : ns; }

// Of the nearest number of streams that was measured.
static double plain_of(const struct service_pace *p, int n) {
    for (int d = 0; d <= TERN_STREAMS_MAX; d++) {
        if (n - d > 0 && p->plain[n - d] > 0) return p->plain[n - d];
        if (n + d <= TERN_STREAMS_MAX && p->plain[n + d] > 0) return p->plain[n + d];
    }
    return 0;
}

int service_pace_rows(const struct service_pace *p, int n_streams, int n_max) {
    if (n_streams == 0) return n_max;
    double rows = SERVICE_ROWS_FIRST, plain = plain_of(p, n_streams);
    double step = MIN(MAX(SERVICE_STEP_TIMES * plain, SERVICE_STEP_NS_MIN), SERVICE_STEP_NS_MAX);
    if (p->row > 0) rows = (step - plain) / p->row;
    if (rows > n_max) return n_max;
    int n = MAX((int)rows, SERVICE_ROWS_MIN), whole = (n + BLOCK_NEAR) / OP_BLOCK * OP_BLOCK;
    return MIN(whole > 0 ? whole : SERVICE_ROWS_MIN, n_max);
}

void service_pace_learn(struct service_pace *p, int n_streams, int n_prompt_rows, uint64_t ns) {
    if (n_prompt_rows == 0) {
        if (n_streams > 0) learn(&p->plain[n_streams], (double)ns);
        return;
    }
    double plain = n_streams > 0 ? plain_of(p, n_streams) : 0, rest = (double)ns - plain;
    // A few rows beside many streams say little about the cost of one.
    if ((n_streams == 0 || plain > 0) && n_prompt_rows >= SERVICE_ROWS_MIN && rest > 0)
        learn(&p->row, rest / n_prompt_rows);
}
