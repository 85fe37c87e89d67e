// What instruction sets this CPU has, which of them the system lets a process use, and which are taken under a bound.
//
// x86: CPUID says what the core can do, XGETBV whether the system saves the registers, and AMX tiles need a permission
// per process, asked for once. aarch64: the kernel's HWCAP words (macOS: Apple cores all have what is listed). Each
// level of the table below is usable only with all that its kernels are compiled for (src/meson.build).
#define _GNU_SOURCE 1 // syscall()
#include "base/base.h"
#include "unit/cpu/cpu_int.h"
#include <stdatomic.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif
#endif

enum family { FAMILY_ANY, FAMILY_X86, FAMILY_ARM };
#if defined(__x86_64__)
#define FAMILY_HERE FAMILY_X86
#elif defined(__aarch64__)
#define FAMILY_HERE FAMILY_ARM
#else
#define FAMILY_HERE FAMILY_ANY
#endif

// Rising order inside a family: a bound takes its own level and those before it.
static const struct level {
    uint32_t isa;
    enum family family;
    const char *name;  // of options and $TERN_CPU
    const char *label; // for people
} levels[] = {
    {CPU_SCALAR, FAMILY_ANY, "scalar", "scalar"},
    {CPU_AVX2, FAMILY_X86, "avx2", "AVX2 + FMA + F16C"},
    {CPU_AVXVNNI, FAMILY_X86, "avxvnni", "AVX-VNNI"},
    {CPU_AVX512, FAMILY_X86, "avx512", "AVX-512 F+BW+VL+DQ"},
    {CPU_AVX512VNNI, FAMILY_X86, "avx512vnni", "AVX-512 VNNI"},
    {CPU_AVX512BF16, FAMILY_X86, "avx512bf16", "AVX-512 BF16"},
    {CPU_AMX, FAMILY_X86, "amx", "AMX int8 + bf16"},
    {CPU_NEON, FAMILY_ARM, "neon", "NEON"},
    {CPU_NEONDOT, FAMILY_ARM, "neondot", "NEON dot product"},
    {CPU_I8MM, FAMILY_ARM, "i8mm", "NEON i8mm"},
};

struct detected {
    uint32_t hardware; // the core has it
    uint32_t usable;   // and the system allows it
};

#if defined(__x86_64__)
static uint64_t xcr0_read(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

// Asks Linux for the tile registers (they are off until a process asks); elsewhere AMX stays unused.
static bool amx_permitted(void) {
#if defined(__linux__) && defined(SYS_arch_prctl)
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

#define BIT(reg, n) (((reg) >> (n)) & 1u)
static struct detected detect(void) {
    struct detected d = {CPU_SCALAR, CPU_SCALAR};
    uint32_t a, b, c, dx, a7, b7, c7, d7, a71 = 0, b71, c71, d71;
    if (!__get_cpuid(1, &a, &b, &c, &dx) || !__get_cpuid_count(7, 0, &a7, &b7, &c7, &d7)) return d;
    if (a7 >= 1) __get_cpuid_count(7, 1, &a71, &b71, &c71, &d71);
    uint64_t xcr0 = BIT(c, 27) ? xcr0_read() : 0;
    bool os_ymm = (xcr0 & 0x6) == 0x6;             // SSE and AVX state
    bool os_zmm = os_ymm && (xcr0 & 0xe0) == 0xe0; // mask registers and both halves of the ZMM state
    bool os_tile = (xcr0 & 0x60000) == 0x60000;

    if (BIT(c, 28) && BIT(c, 12) && BIT(c, 29) && BIT(b7, 5)) d.hardware |= CPU_AVX2;
    if (BIT(a71, 4)) d.hardware |= CPU_AVXVNNI;
    if (BIT(b7, 16) && BIT(b7, 17) && BIT(b7, 30) && BIT(b7, 31)) d.hardware |= CPU_AVX512;
    if (BIT(c7, 11)) d.hardware |= CPU_AVX512VNNI;
    if (BIT(a71, 5)) d.hardware |= CPU_AVX512BF16;
    if (BIT(d7, 24) && BIT(d7, 25) && BIT(d7, 22)) d.hardware |= CPU_AMX;

    if (os_ymm) d.usable |= d.hardware & (CPU_AVX2 | CPU_AVXVNNI);
    if ((d.usable & CPU_AVX2) == 0) d.usable &= ~(uint32_t)CPU_AVXVNNI;
    if (os_zmm && (d.usable & CPU_AVX2)) d.usable |= d.hardware & CPU_AVX512;
    if (d.usable & CPU_AVX512) d.usable |= d.hardware & CPU_AVX512VNNI;
    if (d.usable & CPU_AVX512VNNI) d.usable |= d.hardware & CPU_AVX512BF16;
    if ((d.usable & CPU_AVX512BF16) && (d.hardware & CPU_AMX) && os_tile && amx_permitted()) d.usable |= CPU_AMX;
    return d;
}
#elif defined(__aarch64__)
static struct detected detect(void) {
    uint32_t isa = CPU_SCALAR | CPU_NEON;
#if defined(__linux__)
    unsigned long hwcap = getauxval(AT_HWCAP), hwcap2 = getauxval(AT_HWCAP2);
    if (hwcap & (1ul << 20)) isa |= CPU_NEONDOT;                        // HWCAP_ASIMDDP
    if ((isa & CPU_NEONDOT) && (hwcap2 & (1ul << 13))) isa |= CPU_I8MM; // HWCAP2_I8MM
#elif defined(__APPLE__)
    isa |= CPU_NEONDOT;
#endif
    return (struct detected){isa, isa};
}
#else
static struct detected detect(void) { return (struct detected){CPU_SCALAR, CPU_SCALAR}; }
#endif

// Detection gives the same answer on every thread, so two that race store the same words.
static struct detected detected_get(void) {
    static _Atomic uint64_t known;
    uint64_t v = atomic_load_explicit(&known, memory_order_relaxed);
    if (v == 0) {
        struct detected d = detect();
        v = (uint64_t)d.hardware << 32 | d.usable;
        atomic_store_explicit(&known, v, memory_order_relaxed);
    }
    return (struct detected){(uint32_t)(v >> 32), (uint32_t)v};
}

uint32_t cpu_isa_present(void) { return detected_get().usable; }

static bool level_is_here(const struct level *l) { return l->family == FAMILY_ANY || l->family == FAMILY_HERE; }

enum tern_status cpu_isa_usable(const char *bound, uint32_t *mask, struct tern_err *err) {
    const char *from = "the option";
    if (!bound) {
        bound = env_get("TERN_CPU");
        from = "TERN_CPU";
    }
    uint32_t present = cpu_isa_present();
    if (!bound) {
        *mask = present;
        return TERN_OK;
    }
    uint32_t below = 0;
    char names[128] = "";
    size_t len = 0;
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        if (!level_is_here(&levels[i])) continue;
        below |= levels[i].isa;
        if (strcmp(levels[i].name, bound) == 0) {
            *mask = present & below;
            return TERN_OK;
        }
        size_t n = strlen(levels[i].name);
        if (len + n + 3 > sizeof names) continue;
        if (len > 0) names[len++] = ',', names[len++] = ' ';
        memcpy(names + len, levels[i].name, n + 1);
        len += n;
    }
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (strcmp(levels[i].name, bound) == 0)
            return err_set(err, TERN_UNSUPPORTED,
                           "%s asks for the instruction set \"%s\" of another kind of processor; "
                           "here: %s",
                           from, bound, names);
    return err_set(err, TERN_INVALID_ARGUMENT, "%s asks for the unknown instruction set \"%s\"; known here: %s", from,
                   bound, names);
}

const char *cpu_isa_name(uint32_t mask) {
    const char *name = "none";
    for (size_t i = 0; i < ARRAY_LEN(levels); i++)
        if (mask & levels[i].isa) name = levels[i].name;
    return name;
}

void unit_cpu_features_each(void (*fn)(void *arg, const char *feature, bool present, bool used, const char *note),
                            void *arg) {
    struct detected d = detected_get();
    uint32_t mask = d.usable;
    struct tern_err err;
    bool bad_bound = cpu_isa_usable(NULL, &mask, &err) != TERN_OK;
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        const struct level *l = &levels[i];
        if (!level_is_here(l)) continue;
        bool present = (d.hardware & l->isa) != 0, usable = (d.usable & l->isa) != 0;
        bool allowed = (mask & l->isa) != 0, has_kernels = cpu_kernels_isa(l->isa) != 0;
        const char *note = "";
        if (present && !usable)
            note = l->isa == CPU_AMX ? "the system gives no permission for tile registers (Linux 5.16 or later does)"
                                     : "the processor has it, the operating system does not allow it";
        else if (usable && bad_bound)
            note = err.message;
        else if (usable && !allowed)
            note = "held back by TERN_CPU";
        else if (usable && !has_kernels)
            note = "no kernel uses it";
        fn(arg, l->label, present, allowed && has_kernels && !bad_bound, note);
    }
}
