// Shared libraries over dlopen, with local names, so that two runtimes that carry the same library do not meet.
//
// Nothing is ever closed: a runtime's threads may still run its code after its last object is freed.
#include "base/base.h"
#include <dlfcn.h>
#ifdef __linux__
// Absent in a program that is linked statically, where dlopen needs the very C library that it was linked with, found
// on few machines, and crashes with others.
extern const char _DYNAMIC[] __attribute__((weak, visibility("hidden")));
static bool is_static(void) { return _DYNAMIC == NULL; }
#else
static bool is_static(void) { return false; }
#endif

enum tern_status library_open(struct os_library **out, const char *path, struct tern_err *err) {
    if (is_static())
        return err_set(err, TERN_UNSUPPORTED,
                       "cannot load the library '%s': this tern is one static file and loads none; use another build",
                       path);
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
