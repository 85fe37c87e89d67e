// Linux: memory of the machine and of this process, from /proc; processors, from the affinity mask and /sys.
#define _GNU_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#ifdef __linux__
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

#define STAT_BYTES (256 * 1024) // of /proc/stat: its lines of processors, some 100 bytes each, come first

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

void os_chip_name(char *out, size_t cap) {
    static const struct {
        const char *file, *key; // key "": the whole text
    } places[] = {{"/proc/cpuinfo", "model name"}, {"/sys/firmware/devicetree/base/model", ""}};
    struct utsname u;
    char text[8192];
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        if (!os_read_small(places[i].file, text, sizeof text)) continue;
        size_t at = str_find(str_from(text), str_from(places[i].key), 0);
        if (at == SIZE_MAX) continue;
        const char *p = text + at + strlen(places[i].key);
        while (*p == ' ' || *p == '\t' || *p == ':') p++;
        struct str name = str_trim((struct str){p, strcspn(p, "\n")});
        if (name.len == 0) continue;
        (void)snprintf(out, cap, "%.*s", (int)MIN(name.len, cap), name.data);
        return;
    }
    (void)snprintf(out, cap, "%s", uname(&u) == 0 ? u.machine : "unknown");
}

void os_system_name(char *out, size_t cap) {
    struct utsname u;
    if (uname(&u) != 0) {
        (void)snprintf(out, cap, "Linux");
        return;
    }
    size_t n = strcspn(u.release, "."); // major.minor
    if (u.release[n]) n += 1 + strspn(u.release + n + 1, "0123456789");
    (void)snprintf(out, cap, "%s %.*s", u.sysname, (int)n, u.release);
}

uint64_t os_rss(void) { return proc_kib("/proc/self/status", STR("\nVmRSS:")); }
uint64_t os_rss_max(void) { return proc_kib("/proc/self/status", STR("\nVmHWM:")); }

// Lines of /proc/stat: "cpuN user nice system idle iowait irq softirq steal …", in ticks, of the processors that this
// process may use; the lines of all stand at the front of the file.
bool os_cpu_busy(double *seconds) {
    struct cpu_slot slots[CPU_SLOTS_MAX];
    long ticks = sysconf(_SC_CLK_TCK);
    char *text = mem_alloc(STAT_BYTES);
    if (ticks <= 0 || !text || !os_read_small("/proc/stat", text, STAT_BYTES)) {
        mem_free(text);
        return false;
    }
    int n_slots = cpu_slots_affinity(slots), n_found = 0;
    unsigned long long sum = 0;
    for (const char *line = text; line && strncmp(line, "cpu", 3) == 0; line = strchr(line, '\n')) {
        if (line[0] == '\n') line++;
        int cpu;
        unsigned long long v[8];
        if (sscanf(line, "cpu%d %llu %llu %llu %llu %llu %llu %llu %llu", &cpu, &v[0], &v[1], &v[2], &v[3], &v[4],
                   &v[5], &v[6], &v[7]) != 9)
            continue;
        for (int i = 0; i < n_slots; i++)
            if (slots[i].cpu == cpu) {
                sum += v[0] + v[1] + v[2] + v[5] + v[6] + v[7];
                n_found++;
            }
    }
    mem_free(text);
    *seconds = (double)sum / (double)ticks;
    return n_found == n_slots;
}

const char *os_exe_path(char *out, size_t cap) {
    if (cap == 0) return "";
    ssize_t n = readlink("/proc/self/exe", out, cap);
    if (n < 0 || (size_t)n >= cap) n = 0;
    out[n] = 0;
    return out;
}

// The lowest thread of cpu's core; cpu itself when /sys does not tell.
static int core_leader(int cpu) {
    char path[96], text[64];
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (!os_read_small(path, text, sizeof(text))) return cpu;
    size_t n = 0;
    while (text[n] >= '0' && text[n] <= '9') n++;
    int64_t leader;
    return str_to_i64((struct str){text, n}, &leader) && leader <= cpu ? (int)leader : cpu;
}

// Is cpu in a list like "0-3,8"?
static bool cpu_list_has(const char *list, int cpu) {
    for (const char *p = list; *p;) {
        int64_t range[2] = {-1, -1};
        for (int i = 0; i < 2; i++) {
            size_t n = 0;
            while (p[n] >= '0' && p[n] <= '9') n++;
            if (!str_to_i64((struct str){p, n}, &range[i])) return false;
            p += n;
            if (i == 0 && *p != '-') range[i = 1] = range[0];
            if (i == 0) p++;
        }
        if (cpu >= range[0] && cpu <= range[1]) return true;
        if (*p != ',') return false;
        p++;
    }
    return false;
}

int cpu_kind_of(const char *root, int cpu) {
    char path[256], text[1024];
    snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/cpu_capacity", root, cpu);
    int64_t capacity;
    if (os_read_small(path, text, sizeof(text)) && str_to_i64(str_trim(str_from(text)), &capacity) && capacity >= 0)
        return (int)MIN(capacity, (int64_t)INT32_MAX);
    snprintf(path, sizeof(path), "%s/sys/devices/cpu_core/cpus", root); // there on hybrid processors only
    return os_read_small(path, text, sizeof(text)) && cpu_list_has(text, cpu);
}

int cpu_slots_affinity(struct cpu_slot slots[CPU_SLOTS_MAX]) {
    cpu_set_t set[8]; // 8192 processors: the kernel refuses a mask smaller than its own
    int n = 0;
    memset(set, 0, sizeof(set));
    // A thread of ours may be pinned by us; what the process may use is told by its first thread.
    if (sched_getaffinity(thread_is_own() ? getpid() : 0, sizeof(set), set) == 0) {
        for (int cpu = 0; cpu < (int)sizeof(set) * 8 && n < CPU_SLOTS_MAX; cpu++) {
            if (!CPU_ISSET_S((size_t)cpu, sizeof(set), set)) continue;
            slots[n++] = (struct cpu_slot){.cpu = cpu, .core = core_leader(cpu), .kind = cpu_kind_of("", cpu)};
        }
    }
    if (n == 0) slots[n++] = (struct cpu_slot){.cpu = -1};
    return n;
}

bool thread_pin_self(int cpu) {
    cpu_set_t set[8];
    if (cpu < 0 || cpu >= (int)sizeof(set) * 8) return false;
    memset(set, 0, sizeof(set));
    CPU_SET_S((size_t)cpu, sizeof(set), set);
    return sched_setaffinity(0, sizeof(set), set) == 0;
}
#endif
