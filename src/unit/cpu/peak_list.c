// The list of peaks, and running one of them.
#include "base/base.h"
#include "unit/cpu/cpu_int.h"
#include "unit/cpu/peak.h"

#define PEAK_PIECE 20000 // loops between looks at the clock: about 60 us

static const struct peak {
    const char *name;
    uint32_t isa;
    double ops; // of one instruction; a multiply-add counts as two
    peak_fn *fn;
} peaks[] = {
#if defined(__x86_64__)
    {"int8_amx", CPU_AMX, 32768, peak_int8__amx},
    {"int8_avx512vnni", CPU_AVX512VNNI, 128, peak_int8__avx512vnni},
    {"int8_avx2", CPU_AVX2, 64, peak_int8__avx2},
    {"bf16_amx", CPU_AMX, 16384, peak_bf16__amx},
    {"bf16_avx512", CPU_AVX512BF16, 64, peak_bf16__avx512bf16},
    {"fp32_avx512", CPU_AVX512, 32, peak_fp32__avx512},
    {"fp32_avx2", CPU_AVX2, 16, peak_fp32__avx2},
#elif defined(__aarch64__)
    {"int8_neondot", CPU_NEONDOT, 32, peak_int8__neondot},
    {"fp32_neon", CPU_NEON, 8, peak_fp32__neon},
#endif
    {NULL, 0, 0, NULL},
};

const char *unit_cpu_peak_name(int i) {
    uint32_t mask = 0;
    if (cpu_isa_usable(NULL, &mask, NULL) != TERN_OK) return NULL;
    for (const struct peak *p = peaks; p->name; p++)
        if ((mask & p->isa) != 0 && i-- == 0) return p->name;
    return NULL;
}

PEAK_READ(peak_read__scalar, 16) // what every 64-bit CPU of ours has

uint64_t unit_cpu_read_run(const void *data, size_t n) {
    peak_read_fn *fn = peak_read__scalar;
#if defined(__x86_64__)
    uint32_t mask = cpu_isa_present();
    if (mask & CPU_AVX2) fn = peak_read__avx2;
    if (mask & CPU_AVX512) fn = peak_read__avx512;
#endif
    return fn(data, n / PEAK_READ_GRAIN * PEAK_READ_GRAIN);
}

double unit_cpu_peak_run(int i, uint64_t min_ns) {
    const char *name = unit_cpu_peak_name(i);
    const struct peak *p = peaks;
    while (p->name && p->name != name) p++;
    if (!name || !p->name) return 0;
    uint64_t start = clock_ns(), n = 0, took;
    do {
        (void)p->fn(PEAK_PIECE); // of another file: the call stays
        n++;
        took = clock_ns() - start;
    } while (took < min_ns);
    return (double)n * PEAK_PIECE * PEAK_CHAINS * p->ops / (double)took * 1e9;
}
