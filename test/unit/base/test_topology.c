// Order and summary of processors on made-up machines, default thread counts, and control-group limits from made-up
// /proc and /sys trees.
#define _GNU_SOURCE 1
#include "base_test.h"
#include "base/base_int.h"
#include <unistd.h>

static void check_order(struct cpu_slot *slots, int n, const int *expected) {
    cpu_slots_order(slots, n);
    for (int i = 0; i < n; i++) assert_int_equal(slots[i].cpu, expected[i]);
}

static void test_order(void **state) {
    (void)state;
    // Two threads a core, siblings next to each other.
    struct cpu_slot pairs[] = {{0, 0, 0}, {1, 0, 0}, {2, 1, 0}, {3, 1, 0}};
    check_order(pairs, 4, (int[]){0, 2, 1, 3});
    struct cpu_topology t = cpu_slots_summary(pairs, 4);
    assert_true(t.n_logical == 4 && t.n_cores == 2 && t.n_cores_fast == 2 && t.n_kinds == 1);

    // Siblings far apart, as Linux numbers them; one is outside the mask.
    struct cpu_slot apart[] = {{0, 0, 0}, {1, 1, 0}, {2, 2, 0}, {4, 0, 0}, {6, 2, 0}};
    check_order(apart, 5, (int[]){0, 1, 2, 4, 6});
    t = cpu_slots_summary(apart, 5);
    assert_true(t.n_cores == 3 && t.n_cores_fast == 3);

    // Hybrid: two fast cores with two threads, four slow ones.
    struct cpu_slot hybrid[] = {{4, 2, 0}, {5, 3, 0}, {0, 0, 1}, {1, 0, 1}, {6, 4, 0}, {7, 5, 0}, {2, 1, 1}, {3, 1, 1}};
    check_order(hybrid, 8, (int[]){0, 2, 1, 3, 4, 5, 6, 7});
    t = cpu_slots_summary(hybrid, 8);
    assert_true(t.n_logical == 8 && t.n_cores == 6 && t.n_cores_fast == 2 && t.n_kinds == 2);

    // No numbers to pin to.
    struct cpu_slot unknown[] = {{-1, 0, 1}, {-1, 1, 1}, {-1, 2, 0}};
    cpu_slots_order(unknown, 3);
    t = cpu_slots_summary(unknown, 3);
    assert_true(t.n_cores == 3 && t.n_cores_fast == 2 && t.n_kinds == 2);
    cpu_slots_order(NULL, 0);
}

static void test_default_threads(void **state) {
    (void)state;
    struct cpu_topology t = {.n_logical = 16, .n_cores = 8, .n_cores_fast = 8};
    assert_int_equal(cpu_threads_default(&t, 0), 8);
    assert_int_equal(cpu_threads_default(&t, 2.0), 2);
    assert_int_equal(cpu_threads_default(&t, 1.5), 2);
    assert_int_equal(cpu_threads_default(&t, 0.3), 1);
    assert_int_equal(cpu_threads_default(&t, 64), 8);
    t.n_cores_fast = 2;
    assert_int_equal(cpu_threads_default(&t, 6), 2);
    t.n_cores_fast = 1000;
    assert_int_equal(cpu_threads_default(&t, 0), TEAM_THREADS_MAX);
}

static void test_this_machine(void **state) {
    (void)state;
    struct cpu_topology t = cpu_topology_get();
    assert_true(t.n_logical >= 1 && t.n_cores >= 1 && t.n_cores <= t.n_logical);
    assert_true(t.n_cores_fast >= 1 && t.n_cores_fast <= t.n_cores && t.n_kinds >= 1);
    struct cpu_slot by_mask[CPU_SLOTS_MAX], slots[CPU_SLOTS_MAX];
    assert_int_equal(cpu_slots_affinity(by_mask), t.n_logical);
    assert_int_equal(cpu_slots_get(slots, NULL), t.n_logical);
    assert_true(strcmp(t.source, "hwloc") == 0 || strcmp(t.source, "affinity") == 0);
    assert_false(thread_pin_self(-1));
}

static char root[200];

static void put_file(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    char *slash = strrchr(full, '/');
    *slash = 0;
    assert_ok(os_mkdirs(full, &test_err));
    *slash = '/';
    assert_ok(file_write_atomic(full, text, strlen(text), &test_err));
}

static void test_kinds(void **state) {
    (void)state;
    char path[256];
    snprintf(path, sizeof(path), "%s/kinds", root);
    assert_int_equal(cpu_kind_of(path, 0), 0); // nothing is told
    put_file("kinds/sys/devices/cpu_core/cpus", "0-3,8,10-11\n");
    const int fast[] = {0, 1, 2, 3, 8, 10, 11}, slow[] = {4, 7, 9, 12, 100};
    for (size_t i = 0; i < ARRAY_LEN(fast); i++) assert_int_equal(cpu_kind_of(path, fast[i]), 1);
    for (size_t i = 0; i < ARRAY_LEN(slow); i++) assert_int_equal(cpu_kind_of(path, slow[i]), 0);
    put_file("kinds/sys/devices/cpu_core/cpus", "2-\n");
    assert_int_equal(cpu_kind_of(path, 2), 0);
    put_file("kinds/sys/devices/system/cpu/cpu4/cpu_capacity", "1024\n");
    put_file("kinds/sys/devices/system/cpu/cpu5/cpu_capacity", "446\n");
    put_file("kinds/sys/devices/system/cpu/cpu6/cpu_capacity", "many\n");
    assert_int_equal(cpu_kind_of(path, 4), 1024);
    assert_int_equal(cpu_kind_of(path, 5), 446);
    assert_int_equal(cpu_kind_of(path, 6), 0);
}

static void test_cgroup_v2(void **state) {
    (void)state;
    struct cgroup_limits l;
    cgroup_limits_get(&l, "/no/such/folder");
    assert_true(l.memory_max == UINT64_MAX && l.memory_free == UINT64_MAX && l.cpus == 0);
    put_file("v2/proc/self/cgroup", "0::/a/b\n");
    put_file("v2/sys/fs/cgroup/a/b/memory.max", "max\n");
    put_file("v2/sys/fs/cgroup/a/memory.max", "1000000\n");
    put_file("v2/sys/fs/cgroup/a/memory.current", "600000\n");
    put_file("v2/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 100000\nactive_file 7\n");
    put_file("v2/sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    put_file("v2/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    char path[256];
    snprintf(path, sizeof(path), "%s/v2", root);
    cgroup_limits_get(&l, path);
    assert_int_equal(l.memory_max, 1000000);
    assert_int_equal(l.memory_free, 500000);
    assert_true(l.cpus == 1.5);
    put_file("v2/sys/fs/cgroup/cpu.max", "50000 100000\n"); // an ancestor is tighter
    put_file("v2/sys/fs/cgroup/memory.max", "900000\n");
    put_file("v2/sys/fs/cgroup/memory.current", "950000\n"); // over its limit for a moment
    put_file("v2/proc/self/cgroup", "0::/not/visible/here\n");
    cgroup_limits_get(&l, path);
    assert_int_equal(l.memory_max, 900000);
    assert_int_equal(l.memory_free, 0);
    assert_true(l.cpus == 0.5);
}

static void test_cgroup_v1(void **state) {
    (void)state;
    struct cgroup_limits l;
    put_file("v1/proc/self/cgroup", "12:cpuset:/x\n5:cpu,cpuacct:/job\n3:memory:/job\n1:name=systemd:/\n");
    put_file("v1/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2000000\n");
    put_file("v1/sys/fs/cgroup/memory/job/memory.usage_in_bytes", "500000\n");
    put_file("v1/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put_file("v1/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put_file("v1/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    char path[256];
    snprintf(path, sizeof(path), "%s/v1", root);
    cgroup_limits_get(&l, path);
    assert_int_equal(l.memory_max, 2000000);
    assert_int_equal(l.memory_free, 1500000);
    assert_true(l.cpus == 0);
    put_file("v1/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "300000\n");
    cgroup_limits_get(&l, path);
    assert_true(l.cpus == 3);
    put_file("v1/proc/self/cgroup", "nonsense\n::\n:::::\n\n0:");
    cgroup_limits_get(&l, path);
    assert_true(l.cpus == 0);
}

static int setup(void **state) {
    (void)state;
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof(root), "%s/tern-test-cgroup-XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}
static int teardown(void **state) {
    (void)state;
    char command[300];
    snprintf(command, sizeof(command), "rm -rf '%s'", root);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order), cmocka_unit_test(test_default_threads), cmocka_unit_test(test_this_machine),
        cmocka_unit_test(test_kinds), cmocka_unit_test(test_cgroup_v2),       cmocka_unit_test(test_cgroup_v1),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
