// macOS: memory of the machine and of this process, from the Mach kernel; processors, from sysctl.
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#ifdef __APPLE__
#include <stdio.h>
#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#include <unistd.h>

uint64_t os_ram_total(void) {
    uint64_t bytes = 0;
    size_t len = sizeof(bytes);
    return sysctlbyname("hw.memsize", &bytes, &len, NULL, 0) == 0 ? bytes : 0;
}

static void sysctl_text(const char *name, const char *before, char *out, size_t cap) {
    char text[128] = "";
    size_t len = sizeof text - 1;
    if (sysctlbyname(name, text, &len, NULL, 0) != 0) text[0] = 0;
    (void)snprintf(out, cap, "%s%s", before, text[0] ? text : "unknown");
}
void os_chip_name(char *out, size_t cap) { sysctl_text("machdep.cpu.brand_string", "", out, cap); }
void os_system_name(char *out, size_t cap) { sysctl_text("kern.osproductversion", "macOS ", out, cap); }

// Free and inactive pages: what the system hands out without swapping.
uint64_t os_ram_available(void) {
    vm_statistics64_data_t vm;
    mach_msg_type_number_t n = HOST_VM_INFO64_COUNT;
    if (host_statistics64(mach_host_self(), HOST_VM_INFO64, (host_info64_t)&vm, &n) != KERN_SUCCESS) return 0;
    return ((uint64_t)vm.free_count + vm.inactive_count) * (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t os_rss(void) {
    struct mach_task_basic_info info;
    mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
    if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n) != KERN_SUCCESS) return 0;
    return info.resident_size;
}

uint64_t os_rss_max(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss : 0;
}

bool os_cpu_busy(double *seconds) {
    host_cpu_load_info_data_t load;
    mach_msg_type_number_t n = HOST_CPU_LOAD_INFO_COUNT;
    long ticks = sysconf(_SC_CLK_TCK);
    if (ticks <= 0 || host_statistics(mach_host_self(), HOST_CPU_LOAD_INFO, (host_info_t)&load, &n) != KERN_SUCCESS)
        return false;
    uint64_t busy = 0;
    const int kinds[] = {CPU_STATE_USER, CPU_STATE_SYSTEM, CPU_STATE_NICE};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) busy += load.cpu_ticks[kinds[i]];
    *seconds = (double)busy / (double)ticks;
    return true;
}

const char *os_exe_path(char *out, size_t cap) {
    uint32_t room = (uint32_t)MIN(cap, (size_t)UINT32_MAX);
    if (cap == 0) return "";
    if (_NSGetExecutablePath(out, &room) != 0) out[0] = 0;
    return out;
}

static int sysctl_int(const char *name) {
    int v = 0;
    size_t len = sizeof(v);
    return sysctlbyname(name, &v, &len, NULL, 0) == 0 ? v : 0;
}

// perflevel0 is the fastest kind; Apple's own processors have one thread per core. Threads cannot be pinned.
int cpu_slots_affinity(struct cpu_slot slots[CPU_SLOTS_MAX]) {
    int n_logical = MAX(sysctl_int("hw.logicalcpu"), 1), n_cores = MAX(sysctl_int("hw.physicalcpu"), 1);
    int n_fast = sysctl_int("hw.perflevel0.logicalcpu");
    if (n_fast == 0) n_fast = n_logical;
    n_logical = MIN(n_logical, CPU_SLOTS_MAX);
    for (int i = 0; i < n_logical; i++)
        slots[i] = (struct cpu_slot){.cpu = -1, .core = i % n_cores, .kind = i < n_fast ? 1 : 0};
    return n_logical;
}

bool thread_pin_self(int cpu) {
    (void)cpu;
    return false;
}
#endif
