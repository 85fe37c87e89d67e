// The ONNX Runtime back end's own parts: ort_library.c opens the runtime, ort_graph.c makes its graph of a list,
// ort_session.c compiles and runs.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_backend.h"
#include "unit/npu/ort_api.h"

struct ort_backend {
    struct npu_backend_base base;
    const struct ort_api *api;
    const struct ort_editor_api *editor;
    struct ort_env *env;
    struct ort_memory_info *memory; // host memory of the caller
    struct ort_allocator *allocator;
    bool is_cpu;                        // the built-in CPU provider: graphs in fp32 (ort_graph.c)
    const struct ort_ep_device *device; // of a plug-in's provider, or NULL: provider by name
    char ep_name[64];                   // "CPUExecutionProvider"
};

// NULL is success; frees the status. "what: the runtime's message" as TERN_UNSUPPORTED.
enum tern_status ort_check(const struct ort_backend *b, struct ort_status *s, struct tern_err *err, const char *fmt,
                           ...) PRINTF_LIKE(4, 5);
enum tern_status ort_open(struct npu_backend **out, const struct npu_backend_options *o, struct tern_err *err);
void ort_close(struct npu_backend *b);
// The model, to be freed with api->release_model. Constants are borrowed from the list's weights.
enum tern_status ort_model_build(const struct ort_backend *b, struct ort_model **out, const struct npu_list *l,
                                 struct tern_err *err);
// Names of a state's input and output.
void ort_state_names(const struct npu_state *s, char old[NPU_NAME_MAX + 8], char now[NPU_NAME_MAX + 8]);
