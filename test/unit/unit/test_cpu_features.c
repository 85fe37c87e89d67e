// Instruction-set masks: what a bound allows, what TERN_CPU does, and what is refused by name.
#define _GNU_SOURCE 1
#include "base/base.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "unit/cpu/cpu_int.h"

static void bounds_nest(void **state) {
    (void)state;
    static const char *const x86[] = {"scalar", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "amx", NULL};
    static const char *const arm[] = {"scalar", "neon", "neondot", "i8mm", NULL};
    uint32_t all = cpu_isa_present(), last = 0;
    assert_true(all & CPU_SCALAR);
    const char *const *names = all & CPU_NEON ? arm : x86;
    unsetenv("TERN_CPU");
    for (int i = 0; names[i]; i++) {
        uint32_t mask;
        struct tern_err err;
        enum tern_status status = cpu_isa_usable(names[i], &mask, &err);
        if (status == TERN_UNSUPPORTED) continue; // neither family
        assert_int_equal(status, TERN_OK);
        assert_int_equal(mask & last, last);
        assert_int_equal(mask & all, mask);
        if (i == 0) assert_int_equal(mask, CPU_SCALAR);
        last = mask;
    }
    uint32_t mask;
    assert_int_equal(cpu_isa_usable(NULL, &mask, NULL), TERN_OK);
    assert_int_equal(mask, all);
    assert_int_equal(last, all);
    // Levels whose kernels need the ones below never come alone.
    if (all & CPU_AVX512) assert_true(all & CPU_AVX2);
    if (all & CPU_AVX512BF16) assert_true(all & CPU_AVX512VNNI);
    if (all & CPU_AVX512VNNI) assert_true(all & CPU_AVX512);
}

static void the_variable_is_the_default_bound(void **state) {
    (void)state;
    uint32_t mask;
    struct tern_err err;
    setenv("TERN_CPU", "scalar", 1);
    assert_int_equal(cpu_isa_usable(NULL, &mask, &err), TERN_OK);
    assert_int_equal(mask, CPU_SCALAR);
    assert_string_equal(cpu_isa_name(mask), "scalar");
    setenv("TERN_CPU", "sse9", 1);
    assert_int_equal(cpu_isa_usable(NULL, &mask, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "TERN_CPU"));
    assert_non_null(strstr(err.message, "sse9"));
    assert_non_null(strstr(err.message, "scalar"));
    struct unit *u = NULL;
    const char *reason = NULL;
    assert_false(unit_cpu_driver.probe(&reason));
    assert_non_null(strstr(reason, "TERN_CPU"));
    assert_int_equal(unit_cpu_driver.open(&u, &(struct unit_options){.n_threads = 1}, &err), TERN_INVALID_ARGUMENT);
    assert_null(u);
    // An option goes before the variable.
    assert_int_equal(cpu_isa_usable("scalar", &mask, &err), TERN_OK);
    unsetenv("TERN_CPU");
    assert_int_equal(cpu_isa_usable(cpu_isa_present() & CPU_NEON ? "avx2" : "neon", &mask, &err), TERN_UNSUPPORTED);
    assert_int_equal(cpu_isa_usable("", &mask, &err), TERN_INVALID_ARGUMENT);
}

struct seen {
    int n, n_present, n_used;
};
static void feature_add(void *arg, const char *feature, bool present, bool used, const char *note) {
    struct seen *s = arg;
    assert_non_null(feature);
    assert_non_null(note);
    assert_true(present || !used);
    s->n++;
    s->n_present += present;
    s->n_used += used;
}

static void features_tell_what_is_held_back(void **state) {
    (void)state;
    struct seen all = {0}, held = {0};
    unsetenv("TERN_CPU");
    unit_cpu_features_each(feature_add, &all);
    assert_true(all.n_used >= 1);
    setenv("TERN_CPU", "scalar", 1);
    unit_cpu_features_each(feature_add, &held);
    assert_int_equal(held.n, all.n);
    assert_int_equal(held.n_present, all.n_present);
    assert_int_equal(held.n_used, 1);
    unsetenv("TERN_CPU");
}

static void caps_name_what_runs(void **state) {
    (void)state;
    struct unit *u;
    struct unit_caps caps;
    assert_int_equal(unit_cpu_driver.open(&u, &(struct unit_options){.n_threads = 2, .isa = "scalar"}, NULL), TERN_OK);
    unit_cpu_driver.caps(u, &caps);
    assert_string_equal(caps.name, "cpu");
    assert_string_equal(caps.isa, "scalar");
    assert_string_equal(caps.detail, "scalar, 2 threads");
    assert_int_equal(caps.n_threads, 2);
    assert_true(caps.host_memory && caps.cost_follows_rows && caps.deterministic);
    unit_cpu_driver.close(u);
}

static void buffers_hold_their_borders(void **state) {
    (void)state;
    const struct unit_driver *d = &unit_cpu_driver;
    struct unit *u;
    struct unit_buffer *a, *b, *none = NULL;
    uint8_t host[64] = {7}, out[64];
    struct tern_err err;
    assert_int_equal(d->open(&u, &(struct unit_options){.n_threads = 1}, NULL), TERN_OK);
    assert_int_equal(d->buffer_alloc(u, &a, 100, NULL), TERN_OK);
    assert_int_equal(d->buffer_import(u, &b, host, sizeof host, NULL), TERN_OK);
    assert_ptr_equal(d->buffer_host(b), host);
    assert_int_equal(d->buffer_read(u, a, 36, out, 64, NULL), TERN_OK);
    for (int i = 0; i < 64; i++) assert_int_equal(out[i], 0);
    assert_int_equal(d->buffer_copy(u, a, 99, b, 0, 1, NULL), TERN_OK);
    assert_int_equal(d->buffer_read(u, a, 99, out, 1, NULL), TERN_OK);
    assert_int_equal(out[0], 7);
    assert_int_equal(d->buffer_write(u, a, 100, out, 0, NULL), TERN_OK);
    assert_int_equal(d->buffer_write(u, a, 100, out, 1, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_read(u, a, UINT64_MAX, out, 2, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_copy(u, a, 90, b, 0, 11, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_copy(u, a, 0, b, 60, 5, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_alloc(u, &none, UINT64_MAX, &err), TERN_NO_MEMORY);
    d->buffer_free(u, a);
    d->buffer_free(u, b);
    d->close(u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_nest),
        cmocka_unit_test(the_variable_is_the_default_bound),
        cmocka_unit_test(features_tell_what_is_held_back),
        cmocka_unit_test(caps_name_what_runs),
        cmocka_unit_test(buffers_hold_their_borders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
