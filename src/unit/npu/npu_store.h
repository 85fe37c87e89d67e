// The weight store of a model on the NPU unit: every constant that its lists use, made once. Private to unit/npu.
//
// Matrices are quantised per output channel, symmetric: scale = f16(amax / 127), q = round-half-even(w / scale) within
// ±127; norms, taps and scalars are fp16. The key of a constant is its name: asking again gives the same object.
// Pointers stay until npu_store_free. Not thread-safe.
#pragma once
#include "base/base.h"
#include "prog/prog.h"
#include "unit/npu/oplist.h"

enum npu_format {    // of matrices
    NPU_FORMAT_I8,   // int8 per output channel
    NPU_FORMAT_I4,   // the same with 15 levels (±7): to show that it fails
    NPU_FORMAT_F16,  // not quantised
    NPU_FORMAT_NONE, // shapes without values: to know sizes
    NPU_FORMAT_COUNT
};
const char *npu_format_name(enum npu_format f); // "int8"

struct npu_store;
enum tern_status npu_store_create(struct npu_store **out, const struct model *m, enum npu_format format,
                                  struct tern_err *err);
void npu_store_free(struct npu_store *s); // NULL is fine
const struct model *npu_store_model(const struct npu_store *s);
// For packers: each matrix is made in the memory that sink gives for it, whole before it is asked for the next one, and
// owned by whoever gave it. Its number is that of the last constant.
void npu_store_sink_set(struct npu_store *s, void *(*sink)(void *arg, size_t bytes), void *arg);
// Matrices of NPU_FORMAT_I4 get their nibbles too, for back ends that multiply by int4 as it lies there.
void npu_store_nibbles_set(struct npu_store *s);
void npu_store_team_set(struct npu_store *s, struct team *team); // shares the rows of a matrix out; NULL: this thread
// For packs: matrices that find knows are not made but point to what it gives (scale: of int8 formats).
void npu_store_source_set(struct npu_store *s,
                          bool (*find)(void *arg, const char *name, int64_t n_out, int64_t n_in, const void **data,
                                       const uint16_t **scale),
                          void *arg);
uint64_t npu_store_bytes(const struct npu_store *s);
// All constants so far, in the order they were made: for packers.
int npu_store_count(const struct npu_store *s);
const struct npu_weight *npu_store_get(const struct npu_store *s, int i);

// What is done to a matrix on the way: rows [row, row + n_rows) (n_rows 0: all), factor applied before quantising, and
// the order of rows inside heads of head_dim (RoPE pairs side by side -> halves) when unpair > 0 gives head_dim.
struct npu_cut {
    int64_t row, n_rows;
    float factor; // 0 means 1
    int unpair;
};
// (O, I, 1, 1)
enum tern_status npu_store_matrix(struct npu_store *s, const char *name, const struct tensor *t, struct npu_cut cut,
                                  const struct npu_weight **out, struct tern_err *err);
// (1, C, 1, 1) of a float vector; factor as above. column >= 0: that column of a [C, n] matrix (convolution taps).
enum tern_status npu_store_vector(struct npu_store *s, const char *name, const struct tensor *t, int column,
                                  float factor, int unpair, const struct npu_weight **out, struct tern_err *err);
// (1, 1, 1, 1)
enum tern_status npu_store_scalar(struct npu_store *s, float value, const struct npu_weight **out,
                                  struct tern_err *err);
// A constant of given values, for tests: I8 when q, else fp16 from values.
enum tern_status npu_store_values(struct npu_store *s, const char *name, int rank, const int32_t *shape,
                                  const float *values, const int8_t *q, const struct npu_weight **out,
                                  struct tern_err *err);
