// Opens ONNX Runtime: the library, its version, its tables, one environment with one thread pool and one arena for all
// programs, and the provider that is asked for.
//
// Runtimes before 1.24 are refused: they cannot say which provider got which node, and without that nothing here could
// show that a program runs where it was meant to.
#include "unit/npu/ort_int.h"
#include <stdio.h>

#ifdef __APPLE__
#define ORT_LIBRARY_NAME "libonnxruntime.dylib"
#else
#define ORT_LIBRARY_NAME "libonnxruntime.so.1"
#endif
static const struct npu_runtime_place place = {"TERN_ORT_LIBRARY", "onnxruntime/capi", "libonnxruntime.so.",
                                               ORT_LIBRARY_NAME};

enum tern_status ort_check(const struct ort_backend *b, struct ort_status *s, struct tern_err *err, const char *fmt,
                           ...) {
    char what[256];
    va_list args;
    if (!s) return TERN_OK;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    enum tern_status status =
        err_set(err, TERN_UNSUPPORTED, "ONNX Runtime: %s: %s", what, b->api->get_error_message(s));
    b->api->release_status(s);
    return status;
}

static enum tern_status tables_get(struct ort_backend *b, const struct os_library *lib, struct tern_err *err) {
    const struct ort_api_base *(*get_base)(void) =
        (const struct ort_api_base *(*)(void))library_symbol(lib, "OrtGetApiBase");
    int major, minor;
    if (!get_base)
        return err_set(err, TERN_UNSUPPORTED, "'%s' is not ONNX Runtime: it has no OrtGetApiBase",
                       b->base.info.library);
    const struct ort_api_base *base = get_base();
    snprintf(b->base.info.version, sizeof b->base.info.version, "%s", base->get_version_string());
    bool known = npu_version_parse(b->base.info.version, &major, &minor);
    if (!known || major < ORT_MAJOR_NEEDED || (major == ORT_MAJOR_NEEDED && minor < ORT_MINOR_NEEDED))
        return err_set(err, TERN_UNSUPPORTED, "'%s' is ONNX Runtime %s; %d.%d or later is needed", b->base.info.library,
                       b->base.info.version, ORT_MAJOR_NEEDED, ORT_MINOR_NEEDED);
    b->api = base->get_api(ORT_API_NEEDED);
    b->editor = b->api ? b->api->get_model_editor_api() : NULL;
    if (!b->editor)
        return err_set(err, TERN_UNSUPPORTED, "'%s' (ONNX Runtime %s) was built without the functions that make graphs",
                       b->base.info.library, b->base.info.version);
    return TERN_OK;
}

static enum tern_status env_create(struct ort_backend *b, int n_threads, struct tern_err *err) {
    const struct ort_api *a = b->api;
    struct ort_threading *t = NULL;
    struct ort_memory_info *arena = NULL;
    struct ort_arena_cfg *cfg = NULL;
    enum tern_status status;
    TRY(ort_check(b, a->create_threading_options(&t), err, "threads"));
    TRY_GOTO(ort_check(b, a->set_global_intra_op_num_threads(t, n_threads), err, "%d threads", n_threads), done);
    TRY_GOTO(ort_check(b, a->set_global_inter_op_num_threads(t, 1), err, "threads"), done);
    TRY_GOTO(ort_check(b, a->set_global_spin_control(t, 0), err, "threads"), done); // idle programs cost nothing
    TRY_GOTO(ort_check(b, a->create_env_with_global_thread_pools(ORT_LOG_FATAL, "tern", t, &b->env), err, "start"),
             done);
    TRY_GOTO(ort_check(b, a->create_cpu_memory_info(ORT_ARENA_ALLOCATOR, ORT_MEMORY_DEFAULT, &arena), err, "memory"),
             done);
    // Work memory grows by what is asked for: its default, doubling, took 150 MB more for a 350M model.
    TRY_GOTO(ort_check(b, a->create_arena_cfg(0, ORT_EXTEND_AS_ASKED, -1, -1, &cfg), err, "memory"), done);
    TRY_GOTO(ort_check(b, a->create_and_register_allocator(b->env, arena, cfg), err, "memory"), done);
    TRY_GOTO(ort_check(b, a->create_cpu_memory_info(0, ORT_MEMORY_DEFAULT, &b->memory), err, "memory"), done);
    TRY_GOTO(ort_check(b, a->get_allocator_with_default_options(&b->allocator), err, "memory"), done);
done:
    if (cfg) a->release_arena_cfg(cfg);
    if (arena) a->release_memory_info(arena);
    a->release_threading_options(t);
    return status;
}

// A device of the provider that was asked for: an NPU before a GPU before a CPU.
static enum tern_status device_find(struct ort_backend *b, const char *plugin, struct tern_err *err) {
    const struct ort_ep_device *const *devices = NULL;
    size_t n = 0;
    int best = -1;
    char names[160] = "";
    TRY(ort_check(b, b->api->register_execution_provider_library(b->env, "tern_plugin", plugin), err, "plug-in '%s'",
                  plugin));
    TRY(ort_check(b, b->api->get_ep_devices(b->env, &devices, &n), err, "devices"));
    for (size_t i = 0; i < n; i++) {
        const char *name = b->api->ep_device_ep_name(devices[i]);
        int type = b->api->hardware_device_type(b->api->ep_device_device(devices[i]));
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", len > 0 ? ", " : "", name);
        if (strcmp(name, b->ep_name) != 0 || type <= best) continue;
        best = type;
        b->device = devices[i];
    }
    return b->device ? TERN_OK
                     : err_set(err, TERN_NOT_FOUND, "ONNX Runtime: plug-in '%s' gives no provider '%s'; there are: %s",
                               plugin, b->ep_name, names);
}

static enum tern_status provider_find(struct ort_backend *b, const struct npu_backend_options *o,
                                      struct tern_err *err) {
    const char *name = o->provider ? o->provider : "cpu";
    const char *suffix = strstr(name, "ExecutionProvider") ? "" : "ExecutionProvider";
    b->is_cpu = strcmp(name, "cpu") == 0 || strcmp(name, "CPU") == 0 || strcmp(name, "CPUExecutionProvider") == 0;
    b->in_parts = b->is_cpu;
    snprintf(b->ep_name, sizeof b->ep_name, "%s%s", b->is_cpu ? "CPU" : name, b->is_cpu ? "ExecutionProvider" : suffix);
    snprintf(b->base.info.provider, sizeof b->base.info.provider, "%s", b->ep_name);
    if (o->plugin) return device_find(b, o->plugin, err);
    char **names = NULL, list[160] = "";
    int n = 0;
    bool found = false;
    TRY(ort_check(b, b->api->get_available_providers(&names, &n), err, "providers"));
    for (int i = 0; i < n; i++) {
        size_t len = strlen(list);
        snprintf(list + len, sizeof list - len, "%s%s", i > 0 ? ", " : "", names[i]);
        found = found || strcmp(names[i], b->ep_name) == 0;
    }
    TRY(ort_check(b, b->api->release_available_providers(names, n), err, "providers"));
    return found ? TERN_OK
                 : err_set(err, TERN_NOT_FOUND,
                           "this ONNX Runtime has no provider '%s'; it has: %s; another one needs its plug-in library",
                           b->ep_name, list);
}

enum tern_status ort_open(struct npu_backend **out, const struct npu_backend_options *o, struct tern_err *err) {
    struct os_library *lib;
    enum tern_status status;
    struct ort_backend *b = mem_calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return err_set(err, TERN_NO_MEMORY, "no memory for ONNX Runtime");
    b->base.driver = &npu_ort_backend;
    b->mutex = mutex_create();
    if (!b->mutex) {
        mem_free(b);
        return err_set(err, TERN_NO_MEMORY, "no memory for ONNX Runtime");
    }
    TRY_GOTO(npu_runtime_find(b->base.info.library, sizeof b->base.info.library, &place, o->library, err), fail);
    TRY_GOTO(npu_runtime_load(&lib, b->base.info.library, &place, err), fail);
    TRY_GOTO(tables_get(b, lib, err), fail);
    TRY_GOTO(env_create(b, o->n_threads, err), fail);
    TRY_GOTO(provider_find(b, o, err), fail);
    *out = (struct npu_backend *)b;
    return TERN_OK;
fail:
    if (!b->api) err_prefix(err, "ONNX Runtime");
    ort_close((struct npu_backend *)b);
    return status;
}

void ort_close(struct npu_backend *backend) {
    struct ort_backend *b = (struct ort_backend *)backend;
    if (!b) return;
    if (b->memory) b->api->release_memory_info(b->memory);
    if (b->env) b->api->release_env(b->env);
    mem_free(b->weights);
    mutex_free(b->mutex);
    mem_free(b);
}
