// Opens OpenVINO: the library, its functions by name, its version, and the device that is asked for. Virtual devices
// (AUTO, HETERO, MULTI) are refused: they choose, or share work out, without asking.
#include "unit/npu/openvino_int.h"
#include <stdio.h>

#ifdef __APPLE__
#define OPENVINO_LIBRARY_NAME "libopenvino_c.dylib"
#else
#define OPENVINO_LIBRARY_NAME "libopenvino_c.so"
#endif
static const struct npu_runtime_place place = {"TERN_OPENVINO_LIBRARY", "openvino/libs", "libopenvino_c.so",
                                               OPENVINO_LIBRARY_NAME};

enum tern_status openvino_check(const struct openvino_backend *b, int status, struct tern_err *err, const char *fmt,
                                ...) {
    char what[256];
    va_list args;
    if (status == 0) return TERN_OK;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *why = b->api.ov_get_last_err_msg();
    bool has_why = why && why[0];
    err_set(err, TERN_UNSUPPORTED, "OpenVINO: %s: %s", what, has_why ? why : b->api.ov_get_error_info(status));
    if (why) b->api.ov_free(why);
    return TERN_UNSUPPORTED;
}

static enum tern_status functions_get(struct openvino_backend *b, const struct os_library *lib, struct tern_err *err) {
    os_function f;
#define OV_GET(result, name, args)                                                   \
    f = library_symbol(lib, #name);                                                  \
    if (!f)                                                                          \
        return err_set(err, TERN_UNSUPPORTED,                                        \
                       "'%s' has no function " #name ": it is not OpenVINO, or one " \
                       "older than %d",                                              \
                       b->base.info.library, OV_MAJOR_NEEDED);                       \
    memcpy(&b->api.name, &f, sizeof f);
    OV_FUNCTIONS(OV_GET)
#undef OV_GET
    return TERN_OK;
}

static enum tern_status version_check(struct openvino_backend *b, struct tern_err *err) {
    struct ov_version v = {0};
    int major = 0, minor = 0;
    TRY(openvino_check(b, b->api.ov_get_openvino_version(&v), err, "version"));
    snprintf(b->base.info.version, sizeof b->base.info.version, "%s", v.build);
    b->api.ov_version_free(&v);
    if (npu_version_parse(b->base.info.version, &major, &minor) && major >= OV_MAJOR_NEEDED) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "'%s' is OpenVINO %s; %d or later is needed", b->base.info.library,
                   b->base.info.version, OV_MAJOR_NEEDED);
}

static enum tern_status device_find(struct openvino_backend *b, const char *provider, struct tern_err *err) {
    static const char *const virtual[] = {"AUTO", "HETERO", "MULTI", "BATCH"};
    struct ov_devices d = {0};
    char names[160] = "";
    bool found = false;
    snprintf(b->device, sizeof b->device, "%s", !provider || strcmp(provider, "cpu") == 0 ? "CPU" : provider);
    snprintf(b->base.info.provider, sizeof b->base.info.provider, "%s", b->device);
    for (size_t i = 0; i < ARRAY_LEN(virtual); i++)
        if (str_starts(str_from(b->device), str_from(virtual[i])))
            return err_set(err, TERN_UNSUPPORTED,
                           "OpenVINO: the device '%s' would move work to others without saying so; name one device",
                           b->device);
    TRY(openvino_check(b, b->api.ov_core_get_available_devices(b->core, &d), err, "devices"));
    for (size_t i = 0; i < d.n; i++) {
        size_t len = strlen(names);
        snprintf(names + len, sizeof names - len, "%s%s", i > 0 ? ", " : "", d.names[i]);
        found = found || strcmp(d.names[i], b->device) == 0;
    }
    b->api.ov_available_devices_free(&d);
    return found ? TERN_OK
                 : err_set(err, TERN_NOT_FOUND, "OpenVINO has no device '%s' here; it has: %s", b->device, names);
}

enum tern_status openvino_open(struct npu_backend **out, const struct npu_backend_options *o, struct tern_err *err) {
    struct os_library *lib;
    enum tern_status status;
    struct openvino_backend *b = mem_calloc(1, sizeof *b);
    *out = NULL;
    if (!b) return err_set(err, TERN_NO_MEMORY, "no memory for OpenVINO");
    b->base.driver = &npu_openvino_backend;
    b->n_threads = o->n_threads;
    b->acts_int8 = o->acts_int8;
    if (o->cache && (size_t)snprintf(b->cache, sizeof b->cache, "%s", o->cache) >= sizeof b->cache) {
        status = err_set(err, TERN_INVALID_ARGUMENT, "'%s' is too long for a folder", o->cache);
        goto prefix;
    }
    TRY_GOTO(npu_runtime_find(b->base.info.library, sizeof b->base.info.library, &place, o->library, err), prefix);
    TRY_GOTO(npu_runtime_load(&lib, b->base.info.library, &place, err), prefix);
    TRY_GOTO(functions_get(b, lib, err), prefix);
    TRY_GOTO(version_check(b, err), fail);
    TRY_GOTO(openvino_check(b, b->api.ov_core_create(&b->core), err, "start"), fail);
    TRY_GOTO(device_find(b, o->provider, err), fail);
    *out = (struct npu_backend *)b;
    return TERN_OK;
prefix:
    err_prefix(err, "OpenVINO");
fail:
    openvino_close((struct npu_backend *)b);
    return status;
}

void openvino_close(struct npu_backend *backend) {
    struct openvino_backend *b = (struct openvino_backend *)backend;
    if (!b) return;
    if (b->core) b->api.ov_core_free(b->core);
    mem_free(b);
}
