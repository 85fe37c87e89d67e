// What all POSIX systems share: clock, environment, terminal, random bytes, pages, the interrupt hook.
#define _GNU_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "base/base.h"
#include "base/base_int.h"
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>
#ifdef __APPLE__
#include <crt_externs.h>
#include <xlocale.h>
#define environ (*_NSGetEnviron()) // a library has no other way to it there
#endif

#define HUGE_PAGE ((size_t)2 << 20) // x86-64 and arm64 with 4 KiB pages
#define RANDOM_PIECE 256            // getentropy's limit

uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t clock_wall_s(void) { return (int64_t)time(NULL); }

size_t clock_format(char *out, size_t cap, const char *fmt, int64_t wall_s) {
    if (cap == 0) return 0;
    out[0] = 0;
    time_t t = (time_t)wall_s;
    struct tm tm;
    if (!localtime_r(&t, &tm)) return 0;
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) return 0;
    size_t n = strftime_l(out, cap, fmt, &tm, c_locale);
    freelocale(c_locale);
    if (n == 0) out[0] = 0;
    return n;
}

void clock_sleep_ns(uint64_t ns) {
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

const char *env_get(const char *name) {
    const char *v = getenv(name);
    return v && v[0] ? v : NULL;
}

const char *env_nth(int i) { return environ[i]; }

const char *os_user_dir(enum os_user_dir which, const char *name, char *out, size_t cap) {
    static const struct {
        const char *variable, *below_home;
    } dirs[] = {[OS_USER_CACHE] = {"XDG_CACHE_HOME", "/.cache"},
                [OS_USER_STATE] = {"XDG_STATE_HOME", "/.local/state"},
                [OS_USER_CONFIG] = {"XDG_CONFIG_HOME", "/.config"}};
    const char *xdg = env_get(dirs[which].variable), *home = env_get("HOME");
    if (cap == 0) return "";
    out[0] = 0;
    const bool given = xdg && xdg[0] == '/'; // the XDG rules have relative paths ignored
    if (!given && (!home || home[0] != '/')) return out;
    struct str base = str_from(given ? xdg : home);
    while (base.len > 0 && base.data[base.len - 1] == '/') base.len--;
    const int n = snprintf(out, cap, "%.*s%s/%s", (int)base.len, base.data, given ? "" : dirs[which].below_home, name);
    if (n < 0 || (size_t)n >= cap) out[0] = 0;
    return out;
}

const char *os_cache_dir(char *out, size_t cap) { return os_user_dir(OS_USER_CACHE, "tern", out, cap); }

bool tty_is(int fd) { return isatty(fd) == 1; }

int tty_width(int fd) {
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
    return size.ws_col;
}

int os_pid(void) { return (int)getpid(); }

void os_random(void *out, size_t len) {
    char *p = out;
    while (len > 0) {
        size_t n = MIN(len, (size_t)RANDOM_PIECE);
        if (getentropy(p, n) != 0) TERN_BUG("the system gives no random bytes: %s", strerror(errno));
        p += n;
        len -= n;
    }
}

uint64_t os_disk_free(const char *path) {
    struct statvfs fs;
    if (statvfs(path, &fs) != 0) return UINT64_MAX;
    return (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
}

static void (*_Atomic interrupt_hook)(void);

static void on_sigint(int signal_number) {
    (void)signal_number;
    int errno_before = errno;
    void (*fn)(void) = atomic_load(&interrupt_hook);
    if (fn) fn();
    errno = errno_before;
}

// SA_RESTART: no system call elsewhere in the program sees EINTR because of the hook.
void os_on_interrupt(void (*fn)(void)) {
    atomic_store(&interrupt_hook, fn);
    struct sigaction action = {0};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    action.sa_handler = fn ? on_sigint : SIG_DFL;
    sigaction(SIGINT, &action, NULL);
}

// A block of at least a huge page starts at a huge page's border: one more is mapped and the ends are cut off.
void *os_pages_map(size_t size) {
    if (size == 0 || size > PTRDIFF_MAX - HUGE_PAGE) return NULL;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room;
    if (!size_align(size, page, &room)) return NULL;
    bool huge = room >= HUGE_PAGE;
    size_t extra = huge ? HUGE_PAGE - page : 0;
    char *p = mmap(NULL, room + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
    if (p == MAP_FAILED) return NULL;
    if (!huge) return p;
    size_t before = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (before > 0) munmap(p, before);
    if (extra > before) munmap(p + before + room, extra - before);
#ifdef MADV_HUGEPAGE
    madvise(p + before, room, MADV_HUGEPAGE);
#endif
    return p + before;
}

void os_pages_unmap(void *p, size_t size) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), room;
    if (!size_align(size, page, &room) || munmap(p, room) != 0) TERN_BUG("munmap of %zu bytes failed", size);
}
