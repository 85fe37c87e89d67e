// Private to the npu unit's driver: its objects, and how a step becomes inputs of a list and outputs become rows.
//
// The driver serves the contract of unit.h with stateless lists: keys, values and convolution frames of committed
// positions go in, those of the window come out, and the host keeps them in the engine's pool. So forks, truncation,
// saved sessions and commits work as on any unit, a window may begin at any position, and a larger bucket is entered
// without moving anything. A program holds one list for each bucket; a step takes the smallest that holds its context.
#pragma once
#include "unit/npu/npu_backend.h"
#include "unit/npu/npu_eval.h"
#include "unit/npu/npu_store.h"
#include "unit/npu/oplist_lower.h"
#include "unit/unit.h"

#define NPU_WINDOW_MAX 128
#define NPU_PATH_MAX 1024
#define NPU_SEQS_MAX 32 // sequences with frames in one step
#define NPU_BUCKETS_MAX 8
#define NPU_BUCKET_FIRST 256
#define NPU_CTX_DEFAULT 4096 // largest bucket; TERN_NPU_CTX overrides
#define NPU_CTX_MAX (NPU_AXIS_MAX - NPU_WINDOW_MAX)

struct unit {
    struct unit_base base;
    const struct npu_rules *rules;
    const struct npu_kernels *kernels;
    enum npu_format format; // asked for; NPU_FORMAT_NONE: by the class
    enum npu_act act;
    char scales[NPU_PATH_MAX]; // file behind the "@" of the variant, else TERN_NPU_SCALES; "": none
    struct team *team;
    int n_threads;
    char detail[192];
    char placed[512]; // detail, and where the runtime put the programs compiled last; "": none yet
    const struct npu_backend_driver *remote_driver; // of a variant that is a back end (pack_unit.c), or NULL
    struct npu_backend *remote;
    float *scratch; // of all programs: one runs at a time
    uint64_t scratch_bytes;
    int n_alive; // buffers, weights, programs
    uint64_t serial;
    struct unit_counters counters;
};
struct unit_buffer {
    uint8_t *host;
    uint64_t bytes;
    bool owned;
};
struct unit_weights {
    const struct model *model;
    enum prog_class numerics;
    struct npu_store *store;
    struct npu_scales scales;
    struct npu_calibration *calibration; // owns what scales point to
    double *rope_freq;                   // [head_dim / 2]
};
struct npu_variant { // one bucket
    int bucket;
    struct npu_list *list;
    struct npu_eval *eval;     // over a back end: only the memory of inputs and outputs
    struct npu_remote *remote; // the list compiled by the back end, or NULL
};
struct unit_program {
    const struct prog *prog;
    struct unit_weights *weights;
    struct npu_variant variants[NPU_BUCKETS_MAX]; // rising
    int n_variants;
    int *state_index; // [n_layers] of the program's pools, by layer; -1
    uint64_t bytes;
};

// npu_programs.c
enum tern_status npu_program_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                     struct unit_weights *w, struct tern_err *err);
void npu_program_free(struct unit *u, struct unit_program *p);
bool npu_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes);
// Buckets of a model on this machine, rising.
int npu_buckets(const struct model *m, int out[NPU_BUCKETS_MAX]);

// npu_calibrate.c
struct npu_calibration;
enum tern_status npu_calibration_create(struct npu_calibration **out, int n_layers, struct tern_err *err);
void npu_calibration_free(struct npu_calibration *c); // NULL is fine
void npu_calibration_add(struct npu_calibration *c, const struct npu_list *l, const struct npu_site *sites);
enum tern_status npu_calibration_write(const struct npu_calibration *c, const struct model *m, int residual,
                                       const char *path, struct tern_err *err);
// Scales of a file; out points into c.
enum tern_status npu_scales_read(struct npu_calibration *c, const char *path, struct npu_scales *out,
                                 struct tern_err *err);

// npu_step.c: one step on one variant.
struct npu_call {
    struct unit *u;
    struct unit_program *p;
    const struct npu_variant *v;
    const struct step *s;
    int column[STEP_SEQS_MAX]; // first cache column of each sequence; -1: it has none
    int frame[STEP_SEQS_MAX];  // first frame column; -1
};
enum tern_status npu_call_begin(struct npu_call *c, struct tern_err *err); // chooses the variant, places sequences
void npu_call_fill(struct npu_call *c);
void npu_call_take(struct npu_call *c);
// npu_state.c: between the engine's pools and a list's columns.
void npu_cache_fill(const struct npu_call *c, int tensor);
void npu_cache_store(const struct npu_call *c, int tensor);
void npu_frames_fill(const struct npu_call *c, int tensor);
void npu_frames_store(const struct npu_call *c, int tensor);
void npu_commit(const struct unit_program *p, const struct step *s);

// pack_unit.c: the unit over a back end.
bool npu_remote_is(const char *variant); // does it begin with a back end's name?
enum tern_status npu_remote_open(struct unit *u, const char *variant, int n_threads, struct tern_err *err);
void npu_remote_close(struct unit *u);
enum tern_status npu_remote_make(struct unit *u, struct npu_variant *v, uint64_t *bytes, struct tern_err *err);
void npu_remote_free(struct unit *u, struct npu_variant *v);
enum tern_status npu_remote_run(struct unit *u, const struct npu_variant *v, struct tern_err *err);
