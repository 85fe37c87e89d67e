// What tern calls of ONNX Runtime, declared here: the first slots of its two tables of functions. The tables only grow
// at their ends, so a table asked for by version ORT_API_NEEDED has at least these slots in every later library. Slots
// that are not called are skipped by number. Strings and enumerations are those of its documented C interface.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ORT_API_NEEDED 24 // 1.24: which provider got which node
#define ORT_MAJOR_NEEDED 1
#define ORT_MINOR_NEEDED 24
#define ORT_OPSET 21 // DequantizeLinear without a zero point, reductions with axes as an input

enum ort_element { ORT_F32 = 1, ORT_I8 = 3, ORT_I64 = 7, ORT_F16 = 10 };
enum ort_attr_type { ORT_ATTR_INT = 1, ORT_ATTR_INTS = 2 };
enum {
    ORT_LOG_FATAL = 4, // errors come back as statuses
    ORT_ARENA_ALLOCATOR = 1,
    ORT_MEMORY_DEFAULT = 0,
    ORT_OPTIMIZE_EXTENDED = 2,
    ORT_EXTEND_AS_ASKED = 1
};
enum ort_hardware_type { ORT_HARDWARE_CPU, ORT_HARDWARE_GPU, ORT_HARDWARE_NPU };

struct ort_status;
struct ort_env;
struct ort_session;
struct ort_session_options;
struct ort_run_options;
struct ort_allocator;
struct ort_memory_info;
struct ort_value;
struct ort_shape_info;
struct ort_type_info;
struct ort_value_info;
struct ort_node;
struct ort_graph;
struct ort_model;
struct ort_attr;
struct ort_threading;
struct ort_arena_cfg;
struct ort_ep_device;
struct ort_hardware;
struct ort_assigned;
struct ort_assigned_node;
typedef void (*ort_slot)(void);

struct ort_editor_api {
    struct ort_status *(*create_tensor_type_info)(const struct ort_shape_info *info, struct ort_type_info **out);
    ort_slot skip0[4];
    struct ort_status *(*create_value_info)(const char *name, const struct ort_type_info *type,
                                            struct ort_value_info **out);
    struct ort_status *(*create_node)(const char *op, const char *domain, const char *name, const char *const *in,
                                      size_t n_in, const char *const *out_names, size_t n_out, struct ort_attr **attrs,
                                      size_t n_attrs, struct ort_node **out);
    struct ort_status *(*create_graph)(struct ort_graph **out);
    struct ort_status *(*set_graph_inputs)(struct ort_graph *g, struct ort_value_info **v, size_t n);
    struct ort_status *(*set_graph_outputs)(struct ort_graph *g, struct ort_value_info **v, size_t n);
    struct ort_status *(*add_initializer_to_graph)(struct ort_graph *g, const char *name, struct ort_value *v,
                                                   bool is_external);
    struct ort_status *(*add_node_to_graph)(struct ort_graph *g, struct ort_node *n);
    struct ort_status *(*create_model)(const char *const *domains, const int *versions, size_t n,
                                       struct ort_model **out);
    struct ort_status *(*add_graph_to_model)(struct ort_model *m, struct ort_graph *g);
    struct ort_status *(*create_session_from_model)(const struct ort_env *e, const struct ort_model *m,
                                                    const struct ort_session_options *o, struct ort_session **out);
};
struct ort_api {
    ort_slot skip0[2];
    const char *(*get_error_message)(const struct ort_status *status);
    ort_slot skip1[6];
    struct ort_status *(*run)(struct ort_session *s, const struct ort_run_options *o, const char *const *in_names,
                              const struct ort_value *const *in, size_t n_in, const char *const *out_names,
                              size_t n_out, struct ort_value **out);
    struct ort_status *(*create_session_options)(struct ort_session_options **out);
    ort_slot skip2[6];
    struct ort_status *(*disable_mem_pattern)(struct ort_session_options *o);
    ort_slot skip2b[5];
    struct ort_status *(*set_session_graph_optimization_level)(struct ort_session_options *o, int level);
    ort_slot skip3[24];
    struct ort_status *(*create_tensor_as_value)(struct ort_allocator *a, const int64_t *shape, size_t rank, int type,
                                                 struct ort_value **out);
    struct ort_status *(*create_tensor_with_data_as_value)(const struct ort_memory_info *info, void *data, size_t bytes,
                                                           const int64_t *shape, size_t rank, int type,
                                                           struct ort_value **out);
    ort_slot skip4[1];
    struct ort_status *(*get_tensor_mutable_data)(struct ort_value *v, void **out);
    ort_slot skip5[5];
    struct ort_status *(*create_tensor_type_and_shape_info)(struct ort_shape_info **out);
    struct ort_status *(*set_tensor_element_type)(struct ort_shape_info *info, int type);
    struct ort_status *(*set_dimensions)(struct ort_shape_info *info, const int64_t *dims, size_t rank);
    ort_slot skip6[9];
    struct ort_status *(*create_cpu_memory_info)(int allocator_type, int memory_type, struct ort_memory_info **out);
    ort_slot skip7[8];
    struct ort_status *(*get_allocator_with_default_options)(struct ort_allocator **out);
    ort_slot skip8[13];
    void (*release_env)(struct ort_env *);
    void (*release_status)(struct ort_status *);
    void (*release_memory_info)(struct ort_memory_info *);
    void (*release_session)(struct ort_session *);
    void (*release_value)(struct ort_value *);
    ort_slot skip9[1];
    void (*release_type_info)(struct ort_type_info *);
    void (*release_tensor_type_and_shape_info)(struct ort_shape_info *);
    void (*release_session_options)(struct ort_session_options *);
    ort_slot skip10[18];
    struct ort_status *(*create_env_with_global_thread_pools)(int severity, const char *id,
                                                              const struct ort_threading *t, struct ort_env **out);
    struct ort_status *(*disable_per_session_threads)(struct ort_session_options *o);
    struct ort_status *(*create_threading_options)(struct ort_threading **out);
    void (*release_threading_options)(struct ort_threading *);
    ort_slot skip11[2];
    struct ort_status *(*get_available_providers)(char ***out, int *n);
    struct ort_status *(*release_available_providers)(char **names, int n);
    ort_slot skip12[3];
    struct ort_status *(*add_session_config_entry)(struct ort_session_options *o, const char *key, const char *value);
    ort_slot skip13[13];
    struct ort_status *(*create_and_register_allocator)(struct ort_env *e, const struct ort_memory_info *info,
                                                        const struct ort_arena_cfg *cfg);
    ort_slot skip15[2];
    struct ort_status *(*set_global_intra_op_num_threads)(struct ort_threading *t, int n);
    struct ort_status *(*set_global_inter_op_num_threads)(struct ort_threading *t, int n);
    struct ort_status *(*set_global_spin_control)(struct ort_threading *t, int spin);
    ort_slot skip16[6];
    struct ort_status *(*create_arena_cfg)(size_t max_bytes, int extend, int first_bytes, int max_dead_bytes,
                                           struct ort_arena_cfg **out);
    void (*release_arena_cfg)(struct ort_arena_cfg *);
    ort_slot skip16b[53];
    struct ort_status *(*create_op_attr)(const char *name, const void *data, int len, int type, struct ort_attr **out);
    void (*release_op_attr)(struct ort_attr *);
    ort_slot skip17[3];
    struct ort_status *(*session_options_append_execution_provider)(struct ort_session_options *o, const char *name,
                                                                    const char *const *keys, const char *const *values,
                                                                    size_t n);
    ort_slot skip18[68];
    void (*release_value_info)(struct ort_value_info *);
    void (*release_node)(struct ort_node *);
    void (*release_graph)(struct ort_graph *);
    void (*release_model)(struct ort_model *);
    ort_slot skip19[2];
    const struct ort_editor_api *(*get_model_editor_api)(void);
    ort_slot skip20[9];
    struct ort_status *(*register_execution_provider_library)(struct ort_env *e, const char *registration,
                                                              const char *path);
    ort_slot skip21[1];
    struct ort_status *(*get_ep_devices)(const struct ort_env *e, const struct ort_ep_device *const **out, size_t *n);
    struct ort_status *(*session_options_append_execution_provider_v2)(struct ort_session_options *o, struct ort_env *e,
                                                                       const struct ort_ep_device *const *devices,
                                                                       size_t n, const char *const *keys,
                                                                       const char *const *values, size_t n_keys);
    ort_slot skip22[2];
    int (*hardware_device_type)(const struct ort_hardware *h);
    ort_slot skip23[4];
    const char *(*ep_device_ep_name)(const struct ort_ep_device *d);
    ort_slot skip24[3];
    const struct ort_hardware *(*ep_device_device)(const struct ort_ep_device *d);
    ort_slot skip25[90];
    struct ort_status *(*session_get_ep_graph_assignment_info)(const struct ort_session *s,
                                                               const struct ort_assigned *const **out, size_t *n);
    struct ort_status *(*ep_assigned_subgraph_get_ep_name)(const struct ort_assigned *a, const char **out);
    struct ort_status *(*ep_assigned_subgraph_get_nodes)(const struct ort_assigned *a,
                                                         const struct ort_assigned_node *const **out, size_t *n);
    ort_slot skip26[2];
    struct ort_status *(*ep_assigned_node_get_operator_type)(const struct ort_assigned_node *n, const char **out);
};
_Static_assert(offsetof(struct ort_api, run) == 9 * sizeof(ort_slot), "slot of run");
_Static_assert(offsetof(struct ort_api, get_error_message) == 2 * sizeof(ort_slot), "slot of get_error_message");
_Static_assert(offsetof(struct ort_api, create_env_with_global_thread_pools) == 119 * sizeof(ort_slot),
               "slot of create_env_with_global_thread_pools");
_Static_assert(offsetof(struct ort_api, create_op_attr) == 211 * sizeof(ort_slot), "slot of create_op_attr");
_Static_assert(offsetof(struct ort_api, get_model_editor_api) == 291 * sizeof(ort_slot),
               "slot of get_model_editor_api");
_Static_assert(offsetof(struct ort_api, session_get_ep_graph_assignment_info) == 407 * sizeof(ort_slot),
               "slot of session_get_ep_graph_assignment_info");
_Static_assert(offsetof(struct ort_editor_api, create_session_from_model) == 14 * sizeof(ort_slot),
               "slot of create_session_from_model");

struct ort_api_base {
    const struct ort_api *(*get_api)(uint32_t version); // NULL: older than that
    const char *(*get_version_string)(void);
};
