// The small face of a back end: a runtime, found and opened when asked for, that compiles operation lists (oplist.h)
// and runs them. Private to unit/npu. The runtimes are shared libraries (ONNX Runtime, OpenVINO) or a process (Core AI
// on Linux); tern is built with none of them and declares what it calls itself.
//
// Where a runtime is looked for: options.library, else its own variable (TERN_ORT_LIBRARY, TERN_OPENVINO_LIBRARY,
// TERN_COREAI_PYTHON), else the Python environment that TERN_NPU_PACKAGES names (tools/npu_packages.sh makes one), else
// the system's loader. What was found, or why nothing can be used, is in npu_backend_info and in the error.
//
// Nothing falls back: a list is compiled for the provider that was asked for and for no other, and placement() says, as
// the runtime reports it, where its operations went. Buffers are the caller's, fp16, C order, MEM_ALIGN-aligned; they
// are bound once and filled for every run, so a run makes nothing on our side. One thread at a time per back
// end, but for compile beside run where opens_beside says so.
#pragma once
#include "base/base.h"
#include "unit/npu/oplist.h"

struct npu_backend;  // an opened runtime; begins with struct npu_backend_base
struct npu_compiled; // a list that it compiled; begins with struct npu_compiled_base
struct npu_binding;  // a compiled list with its buffers

struct npu_backend_options {
    const char *library;  // file of the runtime; NULL: looked for
    const char *provider; // whose device runs it: "cpu" (default), else what the runtime calls it ("NPU", "QNN")
    const char *plugin;   // ort: a plug-in library that registers the provider; NULL: built in
    const char *asset;    // coreai: folder *.aimodel that holds the compiled lists
    const char *cache;    // openvino: folder where it keeps and finds what it compiled, made; NULL: none
    bool acts_int8;       // activations rounded to int8 before int8 weights (drivers with takes_int8_acts)
    int n_threads;        // of the cpu provider; 0: one per fast core
};
struct npu_backend_info {
    char version[64];
    char provider[64];
    char library[1024]; // file that was loaded
    char model[65];     // digest of the model that the asset was filled from; "": no asset
};
// Where the operations of a compiled list run, as the runtime says.
struct npu_placement {
    int n_ops;        // of the runtime's own graph
    int n_elsewhere;  // on anything but the provider that was asked for: always 0, or the list was not compiled
    char detail[256]; // "CPUExecutionProvider: 812 nodes"
};
struct npu_buffers {
    void *const *inputs;  // [n_inputs], as list->inputs; what is a state's old value is not among them
    void *const *outputs; // [n_outputs], as list->outputs
    void *const *old;     // [n_states], read
    void *const *now;     // [n_states], written; never one of `old`
    // Called in a run before each turn, of a back end that has turns: fills the inputs that the caller fills only then.
    // NULL: all are filled before.
    void (*fill)(void *arg, int turn);
    void *fill_arg;
};

struct npu_backend_driver {
    const char *name;     // "ort"
    const char *title;    // "ONNX Runtime"
    bool opens_beside;    // may compile while a compiled list runs
    bool needs_asset;     // programs come from a file that was made before
    bool shares_weights;  // a compiled list has no copy of them
    bool takes_int4;      // multiplies by int4 weights as such
    bool takes_int8_acts; // offers activations in int8
    enum tern_status (*open)(struct npu_backend **out, const struct npu_backend_options *o, struct tern_err *err);
    void (*close)(struct npu_backend *b); // after everything that came from it
    // The list and its weights outlive what is compiled.
    enum tern_status (*compile)(struct npu_backend *b, struct npu_compiled **out, const struct npu_list *l,
                                struct tern_err *err);
    void (*free)(struct npu_compiled *c);
    // The only turn of a run that reads an input, so that inputs of different turns may lie in the same memory;
    // NPU_NONE: several do. NULL: a run is one turn.
    int (*turn)(const struct npu_compiled *c, int input);
    enum tern_status (*bind)(struct npu_compiled *c, struct npu_binding **out, const struct npu_buffers *io,
                             struct tern_err *err);
    void (*unbind)(struct npu_binding *bd);
    enum tern_status (*run)(struct npu_binding *bd, struct tern_err *err);
};
struct npu_backend_base {
    const struct npu_backend_driver *driver;
    struct npu_backend_info info;
};
struct npu_compiled_base {
    const struct npu_list *list;
    struct npu_placement placement;
};
static inline const struct npu_backend_base *npu_backend_base_of(const struct npu_backend *b) {
    return (const struct npu_backend_base *)(const void *)b;
}
static inline const struct npu_compiled_base *npu_compiled_base_of(const struct npu_compiled *c) {
    return (const struct npu_compiled_base *)(const void *)c;
}

extern const struct npu_backend_driver npu_ort_backend, npu_openvino_backend, npu_coreai_backend, npu_apple_backend;
extern const struct npu_backend_driver *const npu_backends[]; // NULL-terminated
// TERN_NOT_FOUND lists the names.
enum tern_status npu_backend_find(const struct npu_backend_driver **out, const char *name, struct tern_err *err);

// What npu_runtime.c does for all back ends: the file of a runtime. `variable` names the environment variable, `folder`
// and `prefix` the place and the first letters of its name under the environment's site-packages, `name` what the
// system's loader is asked for. Out gets a path, or `name`.
struct npu_runtime_place {
    const char *variable, *folder, *prefix, *name;
};
enum tern_status npu_runtime_find(char *out, size_t cap, const struct npu_runtime_place *place, const char *named,
                                  struct tern_err *err);
// Opens what npu_runtime_find found; when it is absent the message says how to get it.
enum tern_status npu_runtime_load(struct os_library **out, const char *path, const struct npu_runtime_place *place,
                                  struct tern_err *err);
// "1.32.0" -> 1, 32; false when it does not begin with two numbers.
bool npu_version_parse(const char *text, int *major, int *minor);
