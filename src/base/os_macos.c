// macOS: memory of the machine and of this process, from the Mach kernel.
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/resource.h>
#include <sys/sysctl.h>
#include <unistd.h>

uint64_t os_ram_total(void) {
    uint64_t bytes = 0;
    size_t len = sizeof(bytes);
    return sysctlbyname("hw.memsize", &bytes, &len, NULL, 0) == 0 ? bytes : 0;
}

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
#endif
