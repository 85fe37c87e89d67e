// The ONNX Runtime back end's own parts: ort_library.c opens the runtime, ort_cut.c cuts a list into parts, ort_graph.c
// makes a graph of one, ort_parts.c keeps the sessions that programs share, ort_session.c compiles and runs.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_backend.h"
#include "unit/npu/ort_api.h"

struct ort_part;
struct ort_weight;
struct ort_space;
struct ort_backend {
    struct npu_backend_base base;
    const struct ort_api *api;
    const struct ort_editor_api *editor;
    struct ort_env *env;
    struct ort_memory_info *memory; // host memory of the caller
    struct ort_allocator *allocator;
    bool is_cpu;                        // the built-in CPU provider …
    bool in_parts;                      // … whose graphs compute in fp32 (ort_graph.c), in parts (ort_cut.c)
    const struct ort_ep_device *device; // of a plug-in's provider, or NULL: provider by name
    char ep_name[64];                   // "CPUExecutionProvider"
    struct os_mutex *mutex;             // of what programs share, below (ort_parts.c)
    struct ort_part *parts;
    struct ort_weight *weights; // [n_weights]
    int n_weights, weights_cap;
    struct ort_space *spaces;
};

// NULL is success; frees the status. "what: the runtime's message" as TERN_UNSUPPORTED.
enum tern_status ort_check(const struct ort_backend *b, struct ort_status *s, struct tern_err *err, const char *fmt,
                           ...) PRINTF_LIKE(4, 5);
enum tern_status ort_open(struct npu_backend **out, const struct npu_backend_options *o, struct tern_err *err);
void ort_close(struct npu_backend *b);

// ---------------------------------------------------------------------------------------------------------------- cuts

// Weights of a piece: 9 MB in fp32. Larger ones cost work memory (65 MB for a piece of a head), smaller ones time.
#define ORT_PIECE ((int64_t)2304 * 1024)
#define ORT_PIECES_MAX 64

enum ort_io_kind {
    ORT_IO_PORT,   // fp16 memory of the caller: `index` of the list's ports
    ORT_IO_VALUE,  // fp32 between two parts
    ORT_IO_WEIGHT, // int8 rows of a constant: piece `index` of an unscaled one, else all of them
    ORT_IO_SCALE,  // the fp16 scales of an int8 constant
    ORT_IO_HALF,   // an fp16 constant
};
struct ort_io { // an input or output of a part: "i<k>", "o<k>"
    enum ort_io_kind kind;
    int tensor, index;
};
// Operations [begin, end) of a list. Cuts with equal keys are one graph: they differ in which memory they are given.
struct ort_cut {
    const struct npu_list *list;
    int begin, end;
    const struct ort_io *ins, *outs;
    int n_ins, n_outs;
    struct buf key;
};
struct ort_cuts {
    const struct npu_list *list;
    struct ort_cut *all; // [n]
    int n;
    // [n_tensors] int8 weights of convolutions alone, whose results are scaled instead; values that leave the program
    // (outputs, new states), so rounded to fp16; index of the part after which a value between parts is no longer read
    bool *unscaled, *leaves;
    int *last;
    struct arena arena;
};
// is_whole: one part, whose constants are its own.
enum tern_status ort_cuts_make(struct ort_cuts *c, const struct npu_list *l, bool is_whole, struct tern_err *err);
void ort_cuts_release(struct ort_cuts *c);
// Ports of a list: inputs, old states, outputs, new states.
static inline int ort_ports_in(const struct npu_list *l) { return l->n_inputs + l->n_states; }
static inline int ort_ports(const struct npu_list *l) { return ort_ports_in(l) + l->n_outputs + l->n_states; }
int ort_port_tensor(const struct npu_list *l, int port);
// Rows of a piece of a weight that is unpacked and used before the next one is.
int ort_piece_rows(const struct npu_tensor *t);
bool ort_is_number(const struct npu_tensor *t); // a constant of one value, which stands in the graph
// Type and dimensions of what an input or output is given; returns the rank.
int ort_io_shape(const struct ort_cuts *c, const struct ort_io *io, int *element, int64_t dims[NPU_RANK_MAX]);

// The model of a cut, to be freed with api->release_model.
enum tern_status ort_model_build(const struct ort_backend *b, struct ort_model **out, const struct ort_cuts *cuts,
                                 const struct ort_cut *cut, struct tern_err *err);

// ------------------------------------------------------------------------------------------------------------- sharing
//
// Under the back end's mutex, which callers hold.

struct ort_part { // a session
    struct ort_part *next;
    int n_users;
    struct buf key;
    struct ort_session *session;
    const char **in_names, **out_names;
    int n_ins, n_outs;
    int n_nodes, n_elsewhere;
    struct arena arena;
};
enum tern_status ort_part_get(struct ort_backend *b, struct ort_part **out, const struct ort_cuts *cuts,
                              struct ort_cut *cut, struct tern_err *err); // takes the cut's key
void ort_part_put(struct ort_backend *b, struct ort_part *p);
// A constant in the memory of the weight store, as the runtime's value.
enum tern_status ort_weight_get(struct ort_backend *b, struct ort_value **out, const void *data, size_t bytes,
                                const int64_t *dims, int rank, int element, struct tern_err *err);
void ort_weight_put(struct ort_backend *b, const struct ort_value *v);
// Memory for values between parts, of all programs in turn.
enum tern_status ort_space_get(struct ort_backend *b, struct ort_space **out, void **data, size_t bytes,
                               struct tern_err *err);
void ort_space_put(struct ort_backend *b, struct ort_space *s);
