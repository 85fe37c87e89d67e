// Private to the npu unit's driver: its objects, and how a step becomes inputs of a list and outputs become rows.
//
// The driver serves the contract of unit.h with stateless lists: keys, values and convolution frames of committed
// positions go in, those of the window come out, and the host keeps them in the engine's pool. So forks, truncation,
// saved sessions and commits work as on any unit, a window may begin at any position, and a larger bucket is entered
// without moving anything. A program holds one list for each bucket; a step takes the smallest that holds its context.
#pragma once
#include "unit/host_buffer.h"
#include "unit/npu/npu_backend.h"
#include "unit/npu/npu_eval.h"
#include "unit/npu/npu_pack.h"
#include "unit/npu/oplist_lower.h"
#include "unit/unit.h"

#define NPU_WINDOW_MAX 128
#define NPU_PATH_MAX 1024
#define NPU_SEQS_MAX 32 // sequences with frames in one step
#define NPU_BUCKETS_MAX 8
#define NPU_BUCKET_FIRST 256
#define NPU_KEY_MAX 512
#define NPU_ASSET_WINDOW 64  // rows of the largest programs of an asset, whose set has not measured others
#define NPU_CTX_DEFAULT 4096 // largest bucket; TERN_NPU_CTX overrides, with one or with all of them
#define NPU_CTX_MAX (NPU_AXIS_MAX - NPU_WINDOW_MAX)

struct unit {
    struct host_unit host; // counts buffers, weights, programs
    const struct npu_rules *rules;
    const struct npu_kernels *kernels;
    enum npu_format format; // asked for; NPU_FORMAT_NONE: by the class
    enum npu_act act;
    char scales[NPU_PATH_MAX]; // file behind the "@" of the variant, else TERN_NPU_SCALES; "": none
    // Folder of the named set: TERN_NPU_SET, else what holds the asset of TERN_COREAI_ASSET; "": none
    char set[NPU_PATH_MAX];
    struct team *team;
    int n_threads;
    char detail[320], named[192]; // for people; without what a set chose
    char placed[768];             // detail, and where the runtime put the program that ran first lately; "": none yet
    const struct npu_backend_driver *remote_driver; // of a variant that is a back end (npu_remote.c), or NULL
    struct npu_backend *remote;
    char remote_label[64];       // npu_backend_label
    struct npu_opener *opener;   // over a back end
    const struct npu_call *call; // that runs on the back end
    float *scratch;              // of all programs: one runs at a time
    uint64_t scratch_bytes;
    uint8_t *io; // inputs and outputs for the back end, of all programs; grows when programs are compiled
    uint64_t io_bytes;
    uint64_t serial;
    struct unit_counters counters;
};
struct npu_choice_bucket {
    int bucket, chunks;
    double plain_ms, chunks_ms; // of a verify step of 64 rows
};
struct npu_choice { // what a compiled set chose (pack_choice.h)
    char key[65], model[72], backend[64];
    bool whole;      // every program compiled
    char fault[256]; // why not, of the first that did not
    int window;
    int n;
    struct npu_choice_bucket buckets[NPU_BUCKETS_MAX]; // rising
};
struct unit_weights {
    const struct model *model;
    enum prog_class numerics;
    struct npu_store *store;
    struct npu_pack pack; // of the store's matrices, when they are mapped
    char cache_note[PACK_NOTE_MAX];
    struct npu_scales scales;
    struct npu_calibration *calibration; // owns what scales point to
    double *rope_freq;                   // [head_dim / 2]
    struct npu_choice choice;
    struct npu_variant *variants; // of all programs
};
// A list that was lowered, and what runs it. Programs that need the same list share it: their windows are rounded up
// to whole blocks.
struct npu_variant {
    struct npu_variant *next;
    int n_users;
    char key[NPU_KEY_MAX]; // everything that decides the list
    int bucket;
    struct npu_list *list;
    struct npu_eval *eval;   // NULL over a back end
    struct npu_stage *stage; // over a back end: the memory of its inputs and outputs
    uint64_t bytes;
    // Over a back end, by npu_opener.c: compiled when a step needs it, or shortly before.
    enum { NPU_CLOSED, NPU_ASKED, NPU_OPENED, NPU_FAILED } state;
    struct npu_remote *remote;
    uint8_t *bound; // to this memory; NULL: not yet. Another than the unit's: it grew
    bool needed;    // by a step that waits, which lets it be bound
    bool told;      // in the unit's `placed`
    struct tern_err why;
};
struct unit_program {
    const struct prog *prog;
    struct unit_weights *weights;
    struct npu_variant *variants[NPU_BUCKETS_MAX]; // rising buckets
    int n_variants;
    int *state_index; // [n_layers] of the program's pools, by layer; -1
    uint64_t bytes;
};

// npu_programs.c
enum tern_status npu_program_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                     struct unit_weights *w, struct tern_err *err);
void npu_program_free(struct unit *u, struct unit_program *p);
bool npu_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes);
// Buckets of a model on this machine, rising: those that TERN_NPU_CTX lists, else those of its set (NULL: none), else
// powers of two up to TERN_NPU_CTX.
enum tern_status npu_buckets_check(struct tern_err *err); // is TERN_NPU_CTX understood?
int npu_buckets(const struct model *m, const struct npu_choice *c, int out[NPU_BUCKETS_MAX]);
// The list of a program for a bucket; its name tells window, bucket and form ("argmax_64_256").
enum tern_status npu_program_list(struct npu_list **out, const struct prog *p, struct npu_store *s,
                                  const struct npu_scales *scales, int bucket, int n_chunks, struct tern_err *err);

// npu_stage.c
enum tern_status npu_stage_create(struct npu_stage **out, const struct npu_list *l, struct tern_err *err);
void npu_stage_free(struct npu_stage *s); // NULL is fine
uint64_t npu_stage_bytes(const struct npu_stage *s);
uint64_t npu_stage_float_bytes(const struct npu_stage *s);
uint64_t npu_stage_half_bytes(const struct npu_stage *s);
// Which inputs are filled in which turn of a run; moves halves. turn: NULL: all before the run.
void npu_stage_turns_set(struct npu_stage *s, int (*turn)(const struct npu_compiled *c, int input),
                         const struct npu_compiled *c);
int npu_stage_turn(const struct npu_stage *s, int input); // NPU_NONE: before the run
void npu_stage_bind(struct npu_stage *s, float *floats, uint8_t *halves);
uint16_t *npu_stage_half(const struct npu_stage *s, int io); // of an input, or n_inputs + an output
// Where an input is written before a run, or an output read after it: floats, or NULL-or-halves as npu_eval.h says.
float *npu_value_at(const struct npu_variant *v, int tensor);
uint16_t *npu_value_half(const struct npu_variant *v, int tensor);

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

// npu_step.c: one step, or a pass of it. A step whose sequences together have more columns than the largest bucket (or
// more frames than a list takes) runs once for each group of them that fits: the other rows are computed beside, see
// only the window, and are thrown away.
struct npu_call {
    struct unit *u;
    struct unit_program *p;
    struct npu_variant *v;
    int columns;     // of the cache that it needs
    int first, next; // sequences of this pass: first ≤ i < next
    const struct step *s;
    int column[STEP_SEQS_MAX]; // first cache column of each sequence; -1: it has none
    int frame[STEP_SEQS_MAX];  // first frame column; -1
};
// Takes sequences from c->first on, chooses the variant and places them; c->next tells where the next pass begins.
enum tern_status npu_call_begin(struct npu_call *c, struct tern_err *err);
static inline bool npu_call_has(const struct npu_call *c, int seq) { return seq >= c->first && seq < c->next; }
void npu_call_fill(struct npu_call *c);
void npu_call_take(struct npu_call *c);
// npu_state.c: between the engine's pools and a list's columns.
void npu_cache_fill(const struct npu_call *c, int tensor, int head_begin, int head_end);
void npu_cache_store(const struct npu_call *c, int tensor);
void npu_frames_fill(const struct npu_call *c, int tensor);
void npu_frames_store(const struct npu_call *c, int tensor);
void npu_commit(const struct unit_program *p, const struct step *s);

// unit_npu.c: what stands behind the plus sign of a variant.
enum tern_status npu_format_choose(struct unit *u, struct str name, struct tern_err *err);

// npu_remote.c: the unit over a back end.
bool npu_remote_is(const char *variant); // does it begin with a back end's name?
enum tern_status npu_remote_open(struct unit *u, const char *variant, int n_threads, struct tern_err *err);
void npu_remote_close(struct unit *u);
// What its sets are made for: "ort", "openvino:NPU" (a device of its own measures otherwise), or the rule set.
const char *npu_backend_label(const struct unit *u);
void npu_label_make(char out[64], const struct npu_backend_driver *d, const char *provider);
// An asset that the runtime opened must be of this model.
enum tern_status npu_remote_check(const struct unit *u, const struct model *m, struct tern_err *err);
// Compiles. npu_remote_bind, when nothing else runs: to the unit's memory as it is.
enum tern_status npu_remote_make(struct unit *u, struct npu_variant *v, struct tern_err *err);
enum tern_status npu_remote_bind(struct unit *u, struct npu_variant *v, struct tern_err *err);
void npu_remote_free(struct unit *u, struct npu_variant *v);
enum tern_status npu_remote_run(struct unit *u, struct npu_variant *v, struct tern_err *err);

// npu_opener.c: compiles lists for the back end on a thread of its own, because a step allocates nothing.
enum tern_status npu_opener_create(struct npu_opener **out, struct unit *u, struct tern_err *err);
void npu_opener_free(struct npu_opener *o);                                                          // NULL is fine
enum tern_status npu_opener_need(struct npu_opener *o, struct npu_variant *v, struct tern_err *err); // waits
void npu_opener_ask(struct npu_opener *o, struct npu_variant *v); // soon needed: begins, unless it has other work
void npu_opener_settle(struct npu_opener *o, const struct npu_variant *v); // until nothing works on it
