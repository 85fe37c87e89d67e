// Private to app/: an arithmetic of a model as text, and the model opened so. `tern fidelity` and `tern validate`
// compare two of them.
//
//   UNIT/CLASS[,KEY=VALUE…]      cpu/fp32    npu:ane-m1/int8    cpu/int8,weights=q4_0,kv=q8
//
//   unit ...... as of --unit: cpu, npu:RULES[+FORMAT][@SCALES], npu:ort, …
//   class ..... fp32, int8, bf16 (default int8)
//   weights= .. the matrices rounded to this format first (study_weights.c): q8_0, q4_0, mlx4, int8c, int4c, lut4, …
//   model= .... another file of the same model (a folder in MLX's format, another quantisation)
//   kv= ....... f16, q8, f32
//   plan= ..... how steps are placed on units (plan.h): handoff and extend with then=UNIT, the second one
//   window= ... rows of a step
#pragma once
#include "app/bench/bench_lab.h"

#define SIDE_UNIT_MAX 512
#define SIDE_PATH_MAX 1024
#define SIDE_WINDOW 64 // rows of a step where nothing else is asked for; a verify step of neural engines has as many

struct side_spec {
    char text[SIDE_PATH_MAX]; // as given
    char unit[SIDE_UNIT_MAX];
    enum tern_class numerics;
    char weights[32]; // "": as the file has them
    char model[SIDE_PATH_MAX];
    char plan[32];
    char then_unit[SIDE_UNIT_MAX]; // the second of a plan of two; "": none
    enum op_kv_type kv;
    int window;
};
enum tern_status side_parse(struct side_spec *out, const char *text, struct tern_err *err);

struct side {
    struct side_spec spec;
    struct lab lab;
    struct lab_run run;
    struct weights_change *change; // owns rounded matrices
    uint64_t ns, n_rows;           // of steps fed since the last clear
};
// o names the model; unit, class, window are the spec's. The side is closed after failure too.
enum tern_status side_open(struct side *s, const struct side_spec *spec, const struct tern_engine_options *o, int n_ctx,
                           struct tern_err *err);
void side_close(struct side *s); // fine when not open
// Appends n tokens (at most a window) to the one sequence; the last n_out rows give logits.
enum tern_status side_feed(struct side *s, const int32_t *ids, int n, int n_out, struct tern_err *err);
const float *side_logits(const struct side *s, int row); // [n_vocab] of an output row of the last feed
void side_rewind(struct side *s);                        // to the empty sequence

// study_weights.c: matrices of an opened model rounded to a format by name. Formats that units have kernels for become
// tensors of that format; the others become the fp16 values that they stand for (is_values), which want class fp32.
struct weights_change;
bool weights_format_find(const char *name, bool *is_values); // false: no such
#define WEIGHTS_FORMAT_NAMES                                                                                    \
    "f16, bf16, q8_0, q4_0 and what else tern quantize writes, mlx4, mlx8, int8c; as values int4c (per output " \
    "channel), int4g32 (groups of 32), lut4 (palette of 16 a matrix)"
enum tern_status weights_change_create(struct weights_change **out, const char *name, struct tern_err *err);
enum tern_status weights_change_run(void *change, struct model *m, struct tern_err *err); // for lab_open_changed
void weights_change_free(struct weights_change *c); // after the model is closed; NULL is fine
