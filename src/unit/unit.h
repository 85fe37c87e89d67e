// The face of unit/: what executes programs. A unit is a const table of functions (struct unit_driver) behind an opened
// handle; cpu/, cuda/, npu/ and null/ implement it and never see one another. A unit left out of the build keeps its
// table; its probe says that it is not there and why.
//
// What is submitted is a program with a step, never a single operation. Submission may be asynchronous: arrays of the
// step and buffers bound to its ports stay untouched until its event has been waited for. One thread at a time per
// unit. No function but open, weights_import, buffer_alloc and program_compile allocates.
#pragma once
#include "base/base.h"
#include "op/op.h"
#include "prog/prog.h"

struct unit;         // private to each driver; the first member is struct unit_base
struct unit_buffer;  // memory of a unit
struct unit_weights; // a model's weights on a unit, packed
struct unit_program; // a compiled program

struct unit_options {
    int n_threads; // cpu: 0 = one per fast core
    bool pin;
    const char
        *isa; // cpu: upper bound on the instruction set ("scalar", "avx2", "avx512", …); NULL: TERN_CPU, else all
    // npu: a rule set ("ane-m1") or a back end ("ort", "openvino:NPU"); what follows a colon in unit_open's name
    const char *variant;
};
struct unit_caps {
    const char *name;   // "cpu"
    const char *detail; // "AVX-512 VNNI+BF16, 2 threads"
    const char *isa;    // "avx512vnni"
    int n_threads;
    bool host_memory;         // buffers are plain host memory (buffer_host works)
    bool cost_follows_rows;   // cost by valid rows (cpu, cuda), else by the window (npu)
    bool deterministic;       // keeps the contract of op.h
    const char *arithmetic;   // changes when what it computes may; NULL: only with tern's version
    enum state_tag state_tag; // layout it reads
    int window_max;
    enum op_bf16_order bf16_order; // its arithmetic in PROG_CLASS_BF16
};
struct weights_options {
    enum prog_class numerics;
    // Weights on this unit of another model, in the same class, from which this one borrows tensors (a drafter's
    // target): what they hold is not packed again. They outlive the new ones. NULL: none.
    const struct unit_weights *shared;
    bool pack_cache;                                               // keep and reuse packed weights on disk
    bool (*on_progress)(void *arg, uint64_t done, uint64_t total); // bytes of the source; false cancels
    void *on_progress_arg;
};
struct weights_info {
    uint64_t bytes; // resident, packed
    bool from_cache;
    const char *cache_note; // why the cache was not used or not written, or NULL
};
// What a unit knows of a model before it has the weights: from measurements of a compiled set, and from the shapes of
// its programs.
struct unit_advice {
    int window;     // rows of the largest step that pays; 0: nothing is known
    int ctx_max;    // positions that a sequence may have before a step; 0: any
    char note[160]; // what sets ctx_max, for messages
};
struct unit_event {
    uint64_t serial; // of the submission
};
struct unit_counters {
    uint64_t n_steps, n_rows;
    uint64_t busy_ns;
    uint64_t op_ns[PROG_OP_COUNT]; // filled when profiling is on (TERN_PROFILE=1)
};

struct unit_driver {
    const char *name;
    // Is it usable here? *reason (borrowed, never NULL): the hardware found, or why not and what to do.
    bool (*probe)(const char **reason);
    enum tern_status (*open)(struct unit **out, const struct unit_options *o, struct tern_err *err);
    void (*close)(struct unit *u);
    void (*caps)(const struct unit *u, struct unit_caps *out);
    // NULL: it has nothing to say. pack_cache as in weights_options.
    enum tern_status (*advise)(const struct unit *u, const struct model *m, bool pack_cache, struct unit_advice *out,
                               struct tern_err *err);
    // Zeroed memory. buffer_import borrows host memory for the buffer's life (units that cannot: TERN_UNSUPPORTED).
    enum tern_status (*buffer_alloc)(struct unit *u, struct unit_buffer **out, uint64_t bytes, struct tern_err *err);
    enum tern_status (*buffer_import)(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes,
                                      struct tern_err *err);
    void (*buffer_free)(struct unit *u, struct unit_buffer *b);
    enum tern_status (*buffer_write)(struct unit *u, struct unit_buffer *b, uint64_t offset, const void *src,
                                     uint64_t bytes, struct tern_err *err);
    enum tern_status (*buffer_read)(struct unit *u, const struct unit_buffer *b, uint64_t offset, void *dst,
                                    uint64_t bytes, struct tern_err *err);
    enum tern_status (*buffer_copy)(struct unit *u, struct unit_buffer *dst, uint64_t dst_offset,
                                    const struct unit_buffer *src, uint64_t src_offset, uint64_t bytes,
                                    struct tern_err *err);
    // Host address of a buffer, or NULL when host_memory is false.
    void *(*buffer_host)(struct unit_buffer *b);
    // Packs every weight that programs of this model use (or maps the cached pack). Shared by all its programs.
    enum tern_status (*weights_import)(struct unit *u, struct unit_weights **out, const struct model *m,
                                       const struct weights_options *o, struct weights_info *info,
                                       struct tern_err *err);
    void (*weights_free)(struct unit *u, struct unit_weights *w);
    enum tern_status (*program_compile)(struct unit *u, struct unit_program **out, const struct prog *p,
                                        struct unit_weights *w, struct tern_err *err);
    void (*program_free)(struct unit *u, struct unit_program *p);
    enum tern_status (*submit)(struct unit *u, struct unit_program *p, const struct step *s, struct unit_event *event,
                               struct tern_err *err);
    enum tern_status (*event_wait)(struct unit *u, const struct unit_event *event, struct tern_err *err);
    bool (*event_poll)(struct unit *u, const struct unit_event *event);
    // Brings states of another layout to this unit's (n_blocks blocks, one slot); TERN_UNSUPPORTED for unknown tags.
    enum tern_status (*state_convert)(struct unit *u, const struct state_pool *dst, const struct state_pool *src,
                                      const int32_t *dst_blocks, const int32_t *src_blocks, int n_blocks,
                                      int32_t dst_slot, int32_t src_slot, struct tern_err *err);
    void (*counters)(const struct unit *u, struct unit_counters *out);
    uint64_t (*program_bytes)(const struct unit_program *p); // work memory it holds
    // The same before compiling, and before any weights are imported: at least that, at most a tenth and 1 MiB more.
    // False: it does not fit 64 bits.
    bool (*program_estimate)(const struct unit *u, const struct prog *p, uint64_t *bytes);
};
// Each driver's handle begins with this.
struct unit_base {
    const struct unit_driver *driver;
};
static inline const struct unit_driver *unit_driver_of(const struct unit *u) {
    return ((const struct unit_base *)(const void *)u)->driver;
}

extern const struct unit_driver unit_cpu_driver;
extern const struct unit_driver unit_npu_driver;
extern const struct unit_driver unit_null_driver;
// All drivers of this build, NULL-terminated, in order of preference.
extern const struct unit_driver *const unit_drivers[];
// By name ("cpu", "npu:ane-m1": what follows the colon is the variant); TERN_NOT_FOUND lists the names.
enum tern_status unit_open(struct unit **out, const char *name, const struct unit_options *o, struct tern_err *err);
void unit_close(struct unit *u); // NULL is fine
// What the driver says, or zeros.
enum tern_status unit_advise(const struct unit *u, const struct model *m, bool pack_cache, struct unit_advice *out,
                             struct tern_err *err);

// The cache of packed weights (cpu and npu), for `tern cache` (sizes in bytes).
#define PACK_CACHE_BYTES_DEFAULT (20ull << 30) // limit of the folder; TERN_CACHE_BYTES overrides
struct pack_cache_entry {
    char file[256];
    char model[128];
    uint64_t bytes;
    int64_t used_wall_s;
    bool sound;      // header and checksum fit (checked by verify only; else header)
    char fault[160]; // when not sound
};
enum tern_status pack_cache_list(void (*fn)(void *arg, const struct pack_cache_entry *e), void *arg, bool verify,
                                 struct tern_err *err);
// Removes the oldest entries until the folder holds at most bytes_max; unsound ones always. Reports what went.
enum tern_status pack_cache_prune(uint64_t bytes_max, void (*fn)(void *arg, const struct pack_cache_entry *e),
                                  void *arg, struct tern_err *err);
// The runtimes that the npu unit can use ("ort"), for `tern doctor`: opens each; note says what was found, or why not.
void unit_npu_backends_each(void (*fn)(void *arg, const char *name, bool usable, const char *note), void *arg);
// Programs of a model for one of them, or for the evaluator, compiled ahead, for `tern compile --npu`: a set. Quantised
// weights are packed once (in the folder, or in the pack cache), every program that the engine uses is compiled and run
// for each bucket, attention is measured in both forms and windows against one another, and the folder's programs.json
// keeps what was chosen; the npu unit reads it. A set that is already there is left alone (*was_there). on_program is
// told of each program: its name, the reason when it failed, else the milliseconds of one run and where it runs;
// on_note of each finding, a line. The first failure is returned after all programs were tried.
struct unit_npu_compile_options {
    const char *backend;      // "ort", "openvino", "coreai"; a rule set ("coreai-linux"): the evaluator
    const char *provider;     // its device; NULL: cpu
    const char *plugin;       // ort: plug-in library of the provider, or NULL
    const char *template_dir; // coreai: of tools/coreai/make_template.py; NULL: DIR/template
    const char *dir;          // NULL: in the cache
    int n_threads;            // of the cpu provider; 0: one per fast core
    // Buckets from what was asked before: steps[i] that ran behind i to i + 1 blocks of 32 positions. NULL: powers of
    // two
    const uint64_t *steps;
    int n_steps;
    void (*on_program)(void *arg, const char *name, const char *fault, double ms, const char *note);
    void (*on_note)(void *arg, const char *text); // NULL: not told
    void *arg;
};
enum tern_status unit_npu_compile(const struct model *m, const struct unit_npu_compile_options *o, bool *was_there,
                                  struct tern_err *err);
// What this CPU has and what is used, for `tern doctor`: calls fn per row ("AVX-512 VNNI", present, usable, note).
void unit_cpu_features_each(void (*fn)(void *arg, const char *feature, bool present, bool used, const char *note),
                            void *arg);

// The cpu unit's kernel list, for tests and benches: every row of kernels.inc against op/'s reference.
int unit_cpu_kernels_count(void);
// Runs row i's check with the seed on random and extreme inputs; TERN_UNSUPPORTED when this CPU lacks the ISA.
enum tern_status unit_cpu_kernel_check(int i, uint64_t seed, struct tern_err *err);
// Times the same call: name, work done per second (*rate in *unit_of_rate).
enum tern_status unit_cpu_kernel_bench(int i, double seconds, double *rate, const char **unit_of_rate,
                                       struct tern_err *err);
const char *unit_cpu_kernel_name(int i);

// What the arithmetic of this CPU does at most, for benches: loops of one instruction on registers. The i-th that it
// has ("int8_avx512vnni", "bf16_avx512", …; the widest of each type first), NULL behind the last.
const char *unit_cpu_peak_name(int i);
// Runs it on the calling thread for at least so long: operations per second, a multiply-add counting as two; 0: no
// such.
double unit_cpu_peak_run(int i, uint64_t min_ns);
// Reads n bytes at a 64-byte border as fast as this CPU can, for the ceiling of memory; returns their sum as words.
uint64_t unit_cpu_read_run(const void *data, size_t n);
