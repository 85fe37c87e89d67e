// Private to app/: `tern quantize`. The mixes and which tensor gets what (quantize_mix.c), writing (quantize_run.c).
#pragma once
#include "app/app.h"
#include "model/model.h"

enum mix_rule { MIX_PLAIN, MIX_2_K, MIX_3_M, MIX_3_L, MIX_4_S, MIX_MORE_BITS, MIX_IQ4 }; // what gets other formats
struct quantize_mix {                                                                    // what --type names
    const char *name;
    enum format format; // of most matrices
    uint32_t file_type; // general.file_type
    enum mix_rule rule;
    const char *text;
};
extern const struct quantize_mix quantize_mixes[];              // ends with name NULL
const struct quantize_mix *quantize_mix_find(const char *name); // case-insensitive; NULL: no such

#define QUANTIZE_OVERRIDES_MAX TERN_STOP_MAX
struct quantize_override { // --tensor-type NAME=TYPE: tensors whose name holds NAME
    struct str name;
    enum format format;
    int n_used;
};

// Sets the format of every tensor of x: overrides, then the mix's rules (doc/quantize.md), then fallbacks for rows that
// are no multiple of a block, each told on stderr when `tell`. pure: no tensor but by the mix's own format.
enum tern_status quantize_choose(struct model_export *x, const struct quantize_mix *mix, bool pure,
                                 struct quantize_override *overrides, int n_overrides, bool tell, struct tern_err *err);

struct quantize_result {
    uint64_t n_bytes;
    double error; // root of (sum of squared errors / sum of squares) over the quantised tensors
    bool interrupted;
};
// Writes x to path: all of it, or nothing. n_threads 0: one per fast core.
enum tern_status quantize_write(struct model_export *x, uint32_t file_type, const char *path, int n_threads,
                                struct quantize_result *out, struct tern_err *err);
