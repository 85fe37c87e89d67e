// Where the runtimes of the back ends are: a file that somebody named, the Python environment that
// tools/npu_packages.sh makes, or the system's loader, in this order. A named file that is not there is an error:
// nothing else is tried.
#include "base/base.h"
#include "unit/npu/npu_backend.h"
#include <stdio.h>

const struct npu_backend_driver *const npu_backends[] = {
    &npu_ort_backend, &npu_openvino_backend, &npu_coreai_backend, &npu_apple_backend, NULL,
};

enum tern_status npu_backend_find(const struct npu_backend_driver **out, const char *name, struct tern_err *err) {
    char names[128];
    size_t len = 0;
    for (int i = 0; npu_backends[i]; i++) {
        if (strcmp(npu_backends[i]->name, name) == 0) {
            *out = npu_backends[i];
            return TERN_OK;
        }
        len += (size_t)snprintf(names + len, sizeof names - len, "%s%s", i > 0 ? ", " : "", npu_backends[i]->name);
    }
    return err_set(err, TERN_NOT_FOUND, "there is no NPU back end '%s'; there are: %s", name, names);
}

bool npu_version_parse(const char *text, int *major, int *minor) {
    int64_t out[2];
    const char *at = text;
    for (int i = 0; i < 2; i++) {
        size_t n = strspn(at, "0123456789");
        if (n == 0 || n > 6 || !str_to_i64((struct str){at, n}, &out[i])) return false;
        at += n;
        if (i == 0 && *at++ != '.') return false;
    }
    *major = (int)out[0];
    *minor = (int)out[1];
    return true;
}

struct finder {
    const char *prefix; // of the name that is looked for
    char name[256];     // the last one in byte order
};

static bool find_prefix(void *arg, const char *name, const struct os_stat *st) {
    struct finder *f = arg;
    (void)st;
    if (str_starts(str_from(name), str_from(f->prefix)) && strlen(name) < sizeof f->name)
        memcpy(f->name, name, strlen(name) + 1);
    return true;
}

// The last entry of a folder whose name begins with prefix, appended to the folder's path.
static bool path_extend(char *path, size_t cap, const char *prefix) {
    struct finder f = {.prefix = prefix};
    if (os_list(path, find_prefix, &f, NULL) != TERN_OK || f.name[0] == 0) return false;
    size_t len = strlen(path);
    return (size_t)snprintf(path + len, cap - len, "/%s", f.name) < cap - len;
}

enum tern_status npu_runtime_find(char *out, size_t cap, const struct npu_runtime_place *place, const char *named,
                                  struct tern_err *err) {
    const char *path = named ? named : env_get(place->variable);
    const char *packages = env_get("TERN_NPU_PACKAGES");
    struct os_stat st;
    if (path) {
        const char *here = strchr(path, '/') ? "" : "./"; // a bare name would be looked up by the loader
        if ((size_t)snprintf(out, cap, "%s%s", here, path) >= cap)
            return err_set(err, TERN_INVALID_ARGUMENT, "the path of a library is longer than %zu bytes", cap);
        if (os_stat_get(&st, path) && st.is_file) return TERN_OK;
        return err_set(err, TERN_NOT_FOUND, "there is no file '%s'%s%s", path, named ? "" : ", named by ",
                       named ? "" : place->variable);
    }
    if (packages) {
        size_t len = (size_t)snprintf(out, cap, "%s/lib", packages);
        if (len < cap && path_extend(out, cap, "python3")) {
            len = strlen(out);
            if ((size_t)snprintf(out + len, cap - len, "/site-packages/%s", place->folder) < cap - len &&
                path_extend(out, cap, place->prefix))
                return TERN_OK;
        }
    }
    if (!place->name)
        return err_set(err, TERN_NOT_FOUND,
                       "not found; tools/npu_packages.sh DIR fetches it, then set "
                       "TERN_NPU_PACKAGES=DIR (or %s to its file)",
                       place->variable);
    snprintf(out, cap, "%s", place->name);
    return TERN_OK;
}

enum tern_status npu_runtime_load(struct os_library **out, const char *path, const struct npu_runtime_place *place,
                                  struct tern_err *err) {
    struct tern_err why;
    enum tern_status status = library_open(out, path, &why);
    if (status == TERN_OK) return TERN_OK;
    if (status != TERN_NOT_FOUND) return err_set(err, status, "%s", why.message);
    return err_set(err, status,
                   "%s; tools/npu_packages.sh DIR fetches it, then set TERN_NPU_PACKAGES=DIR (or %s to its file)",
                   why.message, place->variable);
}
