// How many prompt rows go beside running streams: as many as a step has time for, by costs learned from the steps
// themselves. A step's time is taken as that of its streams alone plus so much for every prompt row.
//
// LFM2-350M Q4_0, 2 threads (2-vCPU Sapphire Rapids Xeon, `tern bench --service`): 7.9, 16.5 and 32 ms without prompt
// rows beside 3, 15 and 31 streams, 0.75 to 0.9 ms a row, where a window of prompt rows alone takes 0.69 to 0.97 ms a
// row. Rows in steps of 8 and not in whole blocks: beside 31 streams the share lies between 32 rows (0.43 of the
// prompt's own rate, 57 ms) and 64 (0.6, 84 ms).
#include "base/base.h"
#include "service_int.h"

#define LEARN 0.2 // weight of the newest step

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
    double rows = SERVICE_ROWS_FIRST, plain = plain_of(p, n_streams), step = plain / (1 - SERVICE_PROMPT_SHARE);
    step = MIN(MAX(step, SERVICE_STEP_NS_MIN), SERVICE_STEP_NS_MAX);
    if (p->row > 0) rows = (step - plain) / p->row;
    if (rows > n_max) return n_max;
    int n = (int)(rows + REQUEST_ROWS_GRAIN / 2) / REQUEST_ROWS_GRAIN * REQUEST_ROWS_GRAIN;
    return MIN(MAX(n, SERVICE_ROWS_MIN), n_max);
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
