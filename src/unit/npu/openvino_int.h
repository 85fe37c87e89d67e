// The OpenVINO back end's own parts: openvino_library.c opens the runtime, openvino_ir.c writes a list as its text
// format, openvino_run.c compiles and runs. What tern calls of the runtime is declared here.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_backend.h"

#define OV_MAJOR_NEEDED 2025

struct ov_core;
struct ov_model;
struct ov_compiled_model;
struct ov_infer_request;
struct ov_tensor;
struct ov_shape {
    int64_t rank;
    int64_t *dims;
};
struct ov_version {
    const char *build, *description;
};
struct ov_devices {
    char **names;
    size_t n;
};
enum ov_element { OV_F16 = 3, OV_U8 = 16 };

// X(result, name, arguments): functions of its C interface, by the name they have in the library.
#define OV_FUNCTIONS(X)                                                                                                \
    X(int, ov_get_openvino_version, (struct ov_version * out))                                                         \
    X(void, ov_version_free, (struct ov_version * v))                                                                  \
    X(const char *, ov_get_last_err_msg, (void))                                                                       \
    X(const char *, ov_get_error_info, (int status))                                                                   \
    X(void, ov_free, (const char *text))                                                                               \
    X(int, ov_core_create, (struct ov_core * *out))                                                                    \
    X(void, ov_core_free, (struct ov_core * c))                                                                        \
    X(int, ov_core_get_available_devices, (const struct ov_core *c, struct ov_devices *out))                           \
    X(void, ov_available_devices_free, (struct ov_devices * d))                                                        \
    X(int, ov_core_read_model_from_memory_buffer,                                                                      \
      (const struct ov_core *c, const char *text, size_t len, const struct ov_tensor *weights, struct ov_model **out)) \
    X(void, ov_model_free, (struct ov_model * m))                                                                      \
    X(int, ov_core_compile_model,                                                                                      \
      (const struct ov_core *c, const struct ov_model *m, const char *device, size_t n_args,                           \
       struct ov_compiled_model **out, ...))                                                                           \
    X(void, ov_compiled_model_free, (struct ov_compiled_model * m))                                                    \
    X(int, ov_compiled_model_get_property, (const struct ov_compiled_model *m, const char *key, char **out))           \
    X(int, ov_compiled_model_create_infer_request, (const struct ov_compiled_model *m, struct ov_infer_request **out)) \
    X(void, ov_infer_request_free, (struct ov_infer_request * r))                                                      \
    X(int, ov_infer_request_set_input_tensor_by_index,                                                                 \
      (struct ov_infer_request * r, size_t i, const struct ov_tensor *t))                                              \
    X(int, ov_infer_request_set_output_tensor_by_index,                                                                \
      (struct ov_infer_request * r, size_t i, const struct ov_tensor *t))                                              \
    X(int, ov_infer_request_infer, (struct ov_infer_request * r))                                                      \
    X(int, ov_tensor_create_from_host_ptr, (int type, struct ov_shape shape, void *data, struct ov_tensor **out))      \
    X(void, ov_tensor_free, (struct ov_tensor * t))

struct ov_api {
#define OV_MEMBER(result, name, args) result(*name) args;
    OV_FUNCTIONS(OV_MEMBER)
#undef OV_MEMBER
};

struct openvino_backend {
    struct npu_backend_base base;
    struct ov_api api;
    struct ov_core *core;
    char device[64];  // "CPU", "NPU"
    char cache[1024]; // folder of what it compiled; "": none
    int n_threads;
    bool acts_int8; // activations rounded before int8 weights
};
// 0 is success; else "OpenVINO: what: the runtime's message" as TERN_UNSUPPORTED.
enum tern_status openvino_check(const struct openvino_backend *b, int status, struct tern_err *err, const char *fmt,
                                ...) PRINTF_LIKE(4, 5);
enum tern_status openvino_open(struct npu_backend **out, const struct npu_backend_options *o, struct tern_err *err);
void openvino_close(struct npu_backend *b);

// A list in the runtime's text format ("IR"). Constants are named by their distance from `base`: the weights lie where
// the weight store has them, index constants in `arena`, and [base, base + span) covers them all.
struct openvino_ir {
    struct buf xml;
    const uint8_t *base;
    uint64_t span;
    int n_layers;
    struct arena arena;
};
#define OPENVINO_XML_MAX ((size_t)256 << 20)
enum tern_status openvino_ir_write(struct openvino_ir *ir, const struct npu_list *l, struct tern_err *err);
void openvino_ir_release(struct openvino_ir *ir);
