// How many prompt rows go beside streams: by what steps have cost, so that a prompt keeps at least half of its own rate
// and no step passes its bound, in whole blocks where these fit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "engine/service_int.h"

#define WINDOW 256
#define MS 1e6

static struct service_pace pace_of(double plain_ms, int n_streams, double row_ms) {
    struct service_pace p = {0};
    for (int i = 0; i < 50; i++) {
        service_pace_learn(&p, n_streams, 0, (uint64_t)(plain_ms * MS));
        service_pace_learn(&p, n_streams, 64, (uint64_t)((plain_ms + 64 * row_ms) * MS));
    }
    return p;
}

static void test_bounds(void **state) {
    (void)state;
    struct service_pace none = {0};
    assert_int_equal(service_pace_rows(&none, 0, WINDOW), WINDOW); // nobody waits
    assert_int_equal(service_pace_rows(&none, 3, WINDOW), SERVICE_ROWS_FIRST);
    assert_int_equal(service_pace_rows(&none, 3, 10), 10);
    for (double plain = 0.5; plain < 40; plain *= 1.3)
        for (double row = 0.05; row < 2; row *= 1.3) {
            struct service_pace p = pace_of(plain, 4, row);
            int n = service_pace_rows(&p, 4, WINDOW);
            double step = plain + n * row;
            assert_in_range(n, SERVICE_ROWS_MIN, WINDOW);
            assert_true(n == WINDOW || n % REQUEST_ROWS_GRAIN == 0);
            // Rounding may take some rows more than there is time for.
            if (n > SERVICE_ROWS_MIN)
                assert_true(step <= SERVICE_STEP_NS_MAX / MS + REQUEST_ROWS_GRAIN / 2 * row + 0.01);
            assert_true(n <= SERVICE_ROWS_MIN || step < SERVICE_WAIT_NS_MAX / MS);
            // Of the rate that the prompt has alone, while nobody waits too long for it; or the window is full.
            if (plain / (1 - SERVICE_PROMPT_SHARE) < SERVICE_STEP_NS_MAX / MS)
                assert_true(n == WINDOW || n / step >= 0.5 / row);
            // No longer than that needs, or than nobody minds.
            if (n > SERVICE_ROWS_MIN)
                assert_true(step <= MAX(plain / (1 - SERVICE_PROMPT_SHARE), SERVICE_STEP_NS_MIN / MS) +
                                        REQUEST_ROWS_GRAIN / 2 * row + 0.01);
        }
}

// Costs follow what steps take now.
static void test_learns(void **state) {
    (void)state;
    struct service_pace p = pace_of(8, 3, 0.8);
    int before = service_pace_rows(&p, 3, WINDOW);
    for (int i = 0; i < 30; i++) service_pace_learn(&p, 3, 64, (uint64_t)((8 + 64 * 0.2) * MS));
    assert_true(service_pace_rows(&p, 3, WINDOW) > 2 * before);
    struct service_pace q = pace_of(8, 3, 0.8);
    for (int i = 0; i < 30; i++) service_pace_learn(&q, 3, 4, (uint64_t)(80 * MS)); // too few rows to tell
    assert_int_equal(service_pace_rows(&q, 3, WINDOW), before);
    assert_int_equal(service_pace_rows(&p, 5, WINDOW), service_pace_rows(&p, 3, WINDOW)); // the nearest that is known
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bounds), cmocka_unit_test(test_learns)};
    return cmocka_run_group_tests_name("service_pace", tests, NULL, NULL);
}
