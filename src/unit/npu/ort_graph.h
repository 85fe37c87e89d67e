// Making a graph of one part: what ort_graph.c (operations) and ort_attention.c (attention as a whole) share.
#pragma once
#include "unit/npu/ort_int.h"

#define ORT_NAME_MAX 64
#define ORT_INDICES_MAX 8 // values of one

struct ort_indices { // "c<number>"
    int n;
    int64_t v[ORT_INDICES_MAX];
};
struct ort_build {
    const struct ort_backend *b;
    const struct npu_list *l;
    const struct ort_cuts *cuts;
    const struct ort_cut *cut;
    struct ort_graph *graph;
    int element;                 // of computed values
    int *value_in, *value_out;   // [n_tensors] index + 1 of the input or output that is a value in fp32
    int *port_in;                // [n_tensors] index + 1 of the input in fp16
    bool *known;                 // [n_tensors] ports and constants that are values of the graph
    bool *wanted;                // [operations of the cut] somebody reads their result
    bool has_one;                // the constant "one"
    struct ort_indices *indices; // [n_indices] constants of int64 so far
    int n_indices, indices_cap;
    struct arena *scratch;
    int n_nodes;
    struct tern_err *err;
};
struct ort_attrs {
    struct ort_attr *list[4];
    size_t n;
    struct ort_status *failed;
};

void ort_attr_int(struct ort_build *g, struct ort_attrs *a, const char *name, int64_t v);
void ort_attr_ints(struct ort_build *g, struct ort_attrs *a, const char *name, const int64_t *v, int n);
// An operation in the runtime's own domain ("com.microsoft") or the standard's (""); takes the attributes.
enum tern_status ort_node(struct ort_build *g, const char *domain, const char *op, const char *const *in, size_t n_in,
                          const char *out, struct ort_attrs *attrs);
enum tern_status ort_node_cast(struct ort_build *g, const char *in, const char *out, int element);
enum tern_status ort_node_slice(struct ort_build *g, const char *in, const char *out, int axis, int64_t begin,
                                int64_t end);
enum tern_status ort_node_reshape(struct ort_build *g, const char *in, const char *out, const int64_t *dims, int rank);
enum tern_status ort_node_concat(struct ort_build *g, const char *const *in, int n, const char *out, int axis);
void ort_value_name(const struct ort_build *g, char out[ORT_NAME_MAX], int id);
enum tern_status ort_value_need(struct ort_build *g, int id); // a port or constant becomes a value of the graph

// ort_attention.c: the concatenation that joins the heads' results, and all that leads to it.
struct ort_attention {
    int q, k, v, mask; // tensors: (H, d, 1, S), (1, n_kv d, 1, T) twice, (1, T, 1, S)
    int n_head, n_kv, d, S, T;
};
bool ort_attention_find(const struct ort_build *g, const struct npu_op *join, struct ort_attention *out);
// What it reads: tensors, at most 6.
int ort_attention_reads(const struct ort_build *g, const struct ort_attention *a, int out[6]);
enum tern_status ort_attention_build(struct ort_build *g, const struct ort_attention *a, const char *out);
