// Shared libraries over dlopen, with local names, so that two runtimes that carry the same library do not meet.
//
// Nothing is ever closed: a runtime's threads may still run its code after its last object is freed.
#include "base/base.h"
#include <dlfcn.h>

enum tern_status library_open(struct os_library **out, const char *path, struct tern_err *err) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    struct os_stat st;
    *out = handle;
    if (handle) return TERN_OK;
    const char *why = dlerror();
    bool is_path = strchr(path, '/') != NULL;
    bool is_there = is_path && os_stat_get(&st, path) && st.is_file;
    if (is_path && !is_there) return err_set(err, TERN_NOT_FOUND, "there is no library '%s'", path);
    return err_set(err, is_there ? TERN_UNSUPPORTED : TERN_NOT_FOUND, "cannot load the library '%s': %s", path,
                   why ? why : "the loader gives no reason");
}

os_function library_symbol(const struct os_library *lib, const char *name) {
    void *symbol = dlsym((void *)(uintptr_t)lib, name);
    os_function out;
    memcpy(&out, &symbol, sizeof out); // ISO C has no conversion between the two kinds of pointer; POSIX has
    return out;
}
