// Shared libraries: found by name and path, functions called, what is missing said.
#include "base_test.h"

static void test_libm(void **state) {
    (void)state;
    struct os_library *lib;
#ifdef __APPLE__
    const char *name = "libSystem.dylib";
#else
    const char *name = "libm.so.6";
#endif
    assert_ok(library_open(&lib, name, &test_err));
    double (*square_root)(double) = (double (*)(double))library_symbol(lib, "sqrt");
    assert_non_null(square_root);
    assert_true(square_root(49) == 7);
    assert_null(library_symbol(lib, "no_such_function_at_all"));
}

static void test_absent(void **state) {
    (void)state;
    struct os_library *lib;
    struct tern_err err;
    assert_int_equal(library_open(&lib, "/nowhere/libx.so", &err), TERN_NOT_FOUND);
    assert_contains(err.message, "there is no library '/nowhere/libx.so'");
    assert_null(lib);
    assert_int_equal(library_open(&lib, "libno-such-library-at-all.so.7", &err), TERN_NOT_FOUND);
    assert_contains(err.message, "libno-such-library-at-all.so.7");
    assert_int_equal(library_open(&lib, "./meson.build", &err), TERN_UNSUPPORTED); // not a library
    assert_contains(err.message, "cannot load the library");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_libm), cmocka_unit_test(test_absent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
