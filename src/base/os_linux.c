// Linux: memory of the machine and of this process, from /proc.
#include "base/base.h"
#include "base/base_int.h"
#ifdef __linux__
#include <unistd.h>

// The number after "key" in a /proc file of "key: value kB" lines, in bytes; 0 when absent.
static uint64_t proc_kib(const char *path, struct str key) {
    char text[8192];
    if (!os_read_small(path, text, sizeof(text))) return 0;
    struct str all = str_from(text);
    size_t at = str_find(all, key, 0);
    if (at == SIZE_MAX) return 0;
    const char *p = text + at + key.len;
    while (*p == ' ' || *p == '\t') p++;
    size_t n = 0;
    while (p[n] >= '0' && p[n] <= '9') n++;
    int64_t v = 0;
    return str_to_i64((struct str){p, n}, &v) ? (uint64_t)v * 1024 : 0;
}

uint64_t os_ram_total(void) {
    struct cgroup_limits limits;
    cgroup_limits_get(&limits, "");
    return MIN(proc_kib("/proc/meminfo", STR("MemTotal:")), limits.memory_max);
}

uint64_t os_ram_available(void) {
    struct cgroup_limits limits;
    cgroup_limits_get(&limits, "");
    return MIN(proc_kib("/proc/meminfo", STR("MemAvailable:")), limits.memory_free);
}

uint64_t os_rss(void) { return proc_kib("/proc/self/status", STR("\nVmRSS:")); }
uint64_t os_rss_max(void) { return proc_kib("/proc/self/status", STR("\nVmHWM:")); }
#endif
