// Linux control groups: the memory and processor limits of a container or service.
//
// A limit may stand at any ancestor, and inside a container the path in /proc/self/cgroup may name a group that is not
// visible; so the walk goes from the named group up to the mount's root and takes the tightest of what it can read.
#include "base/base.h"
#include "base/base_int.h"
#include <stdio.h>

#define CGROUP_PATH_MAX 1024
#define CGROUP_UNLIMITED ((uint64_t)1 << 60) // v1 says "none" with a number near 2^63

static bool number_at(const char *text, uint64_t *out) {
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9') n++;
    int64_t v;
    if (!str_to_i64((struct str){text, n}, &v)) return false;
    *out = (uint64_t)v;
    return true;
}

// First number of dir/name, at or after `key` when that is given.
static bool file_number(const char *dir, const char *name, const char *key, uint64_t *out) {
    char path[2 * CGROUP_PATH_MAX], text[8192];
    int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(path) || !os_read_small(path, text, sizeof(text))) return false;
    size_t at = 0;
    if (key) {
        at = str_find(str_from(text), str_from(key), 0);
        if (at == SIZE_MAX) return false;
        at += strlen(key);
    }
    return number_at(text + at, out);
}

static void limit_memory(struct cgroup_limits *l, const char *dir, bool v2) {
    uint64_t max, now, cache = 0;
    if (!file_number(dir, v2 ? "memory.max" : "memory.limit_in_bytes", NULL, &max) || max >= CGROUP_UNLIMITED) return;
    l->memory_max = MIN(l->memory_max, max);
    if (!file_number(dir, v2 ? "memory.current" : "memory.usage_in_bytes", NULL, &now)) return;
    if (!file_number(dir, "memory.stat", v2 ? "\ninactive_file " : "\ntotal_inactive_file ", &cache)) cache = 0;
    now -= MIN(now, cache);
    l->memory_free = MIN(l->memory_free, max - MIN(max, now));
}

static void limit_cpu(struct cgroup_limits *l, const char *dir, bool v2) {
    uint64_t quota, period;
    if (v2) { // "150000 100000", or "max 100000"
        if (!file_number(dir, "cpu.max", NULL, &quota) || !file_number(dir, "cpu.max", " ", &period)) return;
    } else { // -1: none
        if (!file_number(dir, "cpu.cfs_quota_us", NULL, &quota)) return;
        if (!file_number(dir, "cpu.cfs_period_us", NULL, &period)) return;
    }
    if (quota == 0 || period == 0) return;
    double cpus = (double)quota / (double)period;
    if (l->cpus == 0 || cpus < l->cpus) l->cpus = cpus;
}

// Calls fn for mount/path and each folder above it down to mount itself.
static void walk_up(struct cgroup_limits *l, const char *mount, struct str path, bool v2,
                    void (*fn)(struct cgroup_limits *l, const char *dir, bool v2)) {
    char dir[2 * CGROUP_PATH_MAX];
    for (;;) {
        while (path.len > 0 && path.data[path.len - 1] == '/') path.len--;
        int n = snprintf(dir, sizeof(dir), "%s%.*s", mount, (int)path.len, path.len > 0 ? path.data : "");
        if (n > 0 && (size_t)n < sizeof(dir)) fn(l, dir, v2);
        if (path.len == 0) return;
        while (path.len > 0 && path.data[path.len - 1] != '/') path.len--;
    }
}

// True when the comma-separated list holds name.
static bool list_has(struct str list, struct str name) {
    while (list.len > 0) {
        size_t end = str_find(list, STR(","), 0);
        struct str item = {list.data, MIN(end, list.len)};
        if (str_eq(item, name)) return true;
        size_t skip = MIN(item.len + 1, list.len);
        list = (struct str){list.data + skip, list.len - skip};
    }
    return false;
}

// One line "id:controllers:path"; v2's has id 0 and no controllers.
static void line_apply(struct cgroup_limits *l, struct str line, const char *root) {
    size_t a = str_find(line, STR(":"), 0);
    size_t b = a == SIZE_MAX ? SIZE_MAX : str_find(line, STR(":"), a + 1);
    if (b == SIZE_MAX) return;
    struct str controllers = {line.data + a + 1, b - a - 1}, path = {line.data + b + 1, line.len - b - 1};
    if (path.len > CGROUP_PATH_MAX) return;
    char mount[CGROUP_PATH_MAX];
    if (controllers.len == 0) {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup", root);
        walk_up(l, mount, path, true, limit_memory);
        walk_up(l, mount, path, true, limit_cpu);
    }
    if (list_has(controllers, STR("memory"))) {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/memory", root);
        walk_up(l, mount, path, false, limit_memory);
    }
    if (list_has(controllers, STR("cpu"))) {
        snprintf(mount, sizeof(mount), "%s/sys/fs/cgroup/cpu", root);
        walk_up(l, mount, path, false, limit_cpu);
    }
}

void cgroup_limits_get(struct cgroup_limits *out, const char *root) {
    *out = (struct cgroup_limits){.memory_max = UINT64_MAX, .memory_free = UINT64_MAX};
    char path[CGROUP_PATH_MAX], text[8192];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!os_read_small(path, text, sizeof(text))) return;
    struct str rest = str_from(text);
    while (rest.len > 0) {
        size_t end = MIN(str_find(rest, STR("\n"), 0), rest.len);
        line_apply(out, (struct str){rest.data, end}, root);
        size_t skip = MIN(end + 1, rest.len);
        rest = (struct str){rest.data + skip, rest.len - skip};
    }
}
