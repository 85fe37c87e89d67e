// The pack cache: a second start maps what the first wrote; truncated, foreign, damaged or newer files, a full disk, a
// folder that cannot be written, a small limit and a second writer are misses with a note, never errors.
#define _GNU_SOURCE 1
#include "base/base.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "unit/unit.h"
#include "../../common/tiny_model.h"

static const struct unit_driver *const d = &unit_cpu_driver;

struct cache {
    char home[512];
    char file[1100]; // of the one pack in it
    struct unit *unit;
    struct model *model;
};

static void folder_empty(const char *path);
static bool entry_remove(void *arg, const char *name, const struct os_stat *st) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", (const char *)arg, name);
    if (st->is_dir)
        folder_empty(path);
    else
        unlink(path);
    return true;
}
static void folder_empty(const char *path) {
    chmod(path, 0700);
    os_list(path, entry_remove, (void *)(uintptr_t)path, NULL);
    rmdir(path);
}

static struct model *model_of(uint64_t seed) {
    struct tiny_shape s = tiny_lfm2_shape(FORMAT_Q8_0, seed);
    struct model *m = tiny_model_create(&s);
    snprintf(m->digest, sizeof m->digest, "%064llx", (unsigned long long)seed);
    return m;
}

static int setup(void **state) {
    struct cache *c = mem_calloc(1, sizeof *c);
    snprintf(c->home, sizeof c->home, "/tmp/tern-test-cache-%d", os_pid());
    folder_empty(c->home);
    assert_int_equal(os_mkdirs(c->home, NULL), TERN_OK);
    setenv("XDG_CACHE_HOME", c->home, 1);
    unsetenv("TERN_CACHE_BYTES");
    assert_int_equal(d->open(&c->unit, &(struct unit_options){.n_threads = 1}, NULL), TERN_OK);
    c->model = model_of(1);
    *state = c;
    return 0;
}

static int teardown(void **state) {
    struct cache *c = *state;
    os_fail_at(0, 0);
    tiny_model_free(c->model);
    d->close(c->unit);
    folder_empty(c->home);
    mem_free(c);
    return 0;
}

// Bytes of all packed matrices depend on the weights only, so their use is judged by one product's result.
static bool import_with(struct cache *c, struct model *m, bool pack_cache, char *note, size_t note_cap, float *sum) {
    struct weights_info info;
    struct unit_weights *w;
    struct tern_err err;
    if (d->weights_import(c->unit, &w, m, &(struct weights_options){.pack_cache = pack_cache}, &info, &err) != TERN_OK)
        fail_msg("%s", err.message);
    snprintf(note, note_cap, "%s", info.cache_note ? info.cache_note : "");
    struct prog *p;
    struct unit_program *program;
    struct unit_buffer *in, *out;
    struct prog_spec spec = {.kind = PROG_LINEAR, .window = 1, .weight = m->layers[0].ffn_gate};
    assert_int_equal(prog_build(&p, m, &spec, NULL), TERN_OK);
    assert_int_equal(d->program_compile(c->unit, &program, p, w, NULL), TERN_OK);
    int n_in = (int)spec.weight->ne[0], n_out = (int)spec.weight->ne[1];
    assert_int_equal(d->buffer_alloc(c->unit, &in, (uint64_t)n_in * sizeof(float), NULL), TERN_OK);
    assert_int_equal(d->buffer_alloc(c->unit, &out, (uint64_t)n_out * sizeof(float), NULL), TERN_OK);
    for (int i = 0; i < n_in; i++) ((float *)d->buffer_host(in))[i] = (float)(i % 7) - 3.0f;
    struct step s = {.n_rows = 1};
    s.ports[PORT_ROWS_IN].buf = in;
    s.ports[PORT_ROWS_OUT].buf = out;
    assert_int_equal(d->submit(c->unit, program, &s, NULL, NULL), TERN_OK);
    *sum = 0;
    for (int i = 0; i < n_out; i++) *sum += ((float *)d->buffer_host(out))[i] * (float)(i + 1);
    d->buffer_free(c->unit, in);
    d->buffer_free(c->unit, out);
    d->program_free(c->unit, program);
    prog_free(p);
    d->weights_free(c->unit, w);
    return info.from_cache;
}

static bool import(struct cache *c, struct model *m, char *note, size_t note_cap, float *sum) {
    return import_with(c, m, true, note, note_cap, sum);
}

// Without the cache.
static float want(struct cache *c, struct model *m) {
    char note[256];
    float sum;
    assert_false(import_with(c, m, false, note, sizeof note, &sum));
    assert_string_equal(note, "");
    return sum;
}

struct listing {
    int n, n_sound;
    struct pack_cache_entry last;
    char files[8][256];
};
static void list_add(void *arg, const struct pack_cache_entry *e) {
    struct listing *l = arg;
    if (l->n < 8) snprintf(l->files[l->n], sizeof l->files[0], "%s", e->file);
    l->n++;
    l->n_sound += e->sound;
    l->last = *e;
}
static struct listing list_get(bool verify) {
    struct listing l = {0};
    struct tern_err err;
    if (pack_cache_list(list_add, &l, verify, &err) != TERN_OK) fail_msg("%s", err.message);
    return l;
}

static void first_start(struct cache *c) {
    char note[256];
    float sum;
    assert_false(import(c, c->model, note, sizeof note, &sum));
    assert_string_equal(note, "");
    struct listing l = list_get(true);
    assert_int_equal(l.n, 1);
    assert_int_equal(l.n_sound, 1);
    assert_string_equal(l.last.model, c->model->name);
    snprintf(c->file, sizeof c->file, "%s/tern/pack/%s", c->home, l.last.file);
}

static void second_start_maps_it(void **state) {
    struct cache *c = *state;
    char note[256];
    float sum, expected = want(c, c->model);
    first_start(c);
    assert_true(import(c, c->model, note, sizeof note, &sum));
    assert_string_equal(note, "");
    assert_true(sum == expected);
    // Another model, and the same in another class, are entries of their own.
    struct model *other = model_of(2);
    assert_false(import(c, other, note, sizeof note, &sum));
    assert_true(sum != expected);
    struct weights_info info;
    struct unit_weights *w;
    struct weights_options o = {.pack_cache = true, .numerics = PROG_CLASS_FP32};
    assert_int_equal(d->weights_import(c->unit, &w, c->model, &o, &info, NULL), TERN_OK);
    assert_false(info.from_cache);
    d->weights_free(c->unit, w);
    assert_int_equal(list_get(false).n, 3);
    tiny_model_free(other);
}

// Rewrites the pack file: cut to `size` bytes (or as it is when negative), then `n` bytes at `at` from `data`.
static void damage(struct cache *c, int64_t size, int64_t at, const void *data, size_t n) {
    if (size >= 0) assert_int_equal(truncate(c->file, size), 0);
    FILE *f = fopen(c->file, "r+b");
    assert_non_null(f);
    fseek(f, (long)at, SEEK_SET);
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
}

// The next start does without the file, says so, and writes a good one.
static void is_a_miss(struct cache *c, const char *why) {
    char note[256];
    float sum, expected = want(c, c->model);
    assert_false(import(c, c->model, note, sizeof note, &sum));
    if (!strstr(note, why)) fail_msg("note '%s' does not say '%s'", note, why);
    assert_true(sum == expected);
    assert_true(import(c, c->model, note, sizeof note, &sum));
    assert_true(sum == expected);
}

static void damaged_files_are_misses(void **state) {
    struct cache *c = *state;
    first_start(c);
    struct os_stat st;
    assert_true(os_stat_get(&st, c->file));
    for (int i = 0; i < 40; i++) { // truncated anywhere
        int64_t size = i < 20 ? i * 40 : (int64_t)st.size - 1 - (i - 20) * 700;
        assert_int_equal(truncate(c->file, size), 0);
        struct listing l = list_get(false);
        assert_int_equal(l.n, 1);
        assert_int_equal(l.n_sound, 0);
        is_a_miss(c, "cached pack not used");
    }
    static const char foreign[] = "GGUF\3\0\0\0 this is some other program's file, or so it seems to us ............";
    damage(c, 0, 0, foreign, sizeof foreign);
    is_a_miss(c, "not a pack file");
    uint32_t newer = 99;
    damage(c, -1, 8, &newer, sizeof newer);
    is_a_miss(c, "another version");
    for (int at = 16; at < 400; at += 37) { // any byte of header or table
        uint8_t byte = 0xa5;
        damage(c, -1, at, &byte, 1);
        is_a_miss(c, "cached pack not used");
    }
    // Damage to weights is seen by verify.
    uint8_t byte = 0x5a;
    assert_int_equal(list_get(true).n_sound, 1);
    damage(c, -1, (int64_t)st.size - 4000, &byte, 1);
    struct listing l = list_get(true);
    assert_int_equal(l.n_sound, 0);
    assert_non_null(strstr(l.last.fault, "check sum"));
    assert_int_equal(list_get(false).n_sound, 1);
}

static void a_pack_of_another_model_is_a_miss(void **state) {
    struct cache *c = *state;
    char note[256], moved[1200];
    float sum;
    struct model *other = model_of(2);
    first_start(c);
    snprintf(moved, sizeof moved, "%s.keep", c->file);
    assert_int_equal(rename(c->file, moved), 0);
    assert_false(import(c, other, note, sizeof note, &sum));
    struct listing l = list_get(false);
    char theirs[1100];
    snprintf(theirs, sizeof theirs, "%s/tern/pack/%s", c->home, l.last.file);
    assert_int_equal(rename(theirs, c->file), 0);
    is_a_miss(c, "another model");
    tiny_model_free(other);
}

// Every write, sync and rename fails once: the model loads, nothing is left behind but perhaps a good file.
static void full_disk(void **state) {
    struct cache *c = *state;
    char note[256];
    float sum, expected = want(c, c->model);
    bool stored = false;
    int n = 1;
    for (; !stored; n++) {
        assert_true(n < 100);
        os_fail_at((uint64_t)n, ENOSPC);
        assert_false(import(c, c->model, note, sizeof note, &sum));
        os_fail_at(0, 0);
        assert_true(sum == expected);
        struct listing l = list_get(true);
        assert_int_equal(l.n, l.n_sound);
        stored = note[0] == 0;
        if (!stored) assert_non_null(strstr(note, "not cached"));
        if (!stored && l.n == 1) { // the last sync failed behind the rename: whole, but told
            snprintf(c->file, sizeof c->file, "%s/tern/pack/%s", c->home, l.last.file);
            unlink(c->file);
        }
    }
    assert_true(n > 4);
}

static void home_that_cannot_be_written(void **state) {
    struct cache *c = *state;
    char note[256], path[600];
    float sum, expected = want(c, c->model);
    // A file where the folder should be stops root too.
    snprintf(path, sizeof path, "%s/tern", c->home);
    assert_int_equal(file_write_atomic(path, "x", 1, NULL), TERN_OK);
    assert_false(import(c, c->model, note, sizeof note, &sum));
    assert_non_null(strstr(note, "not cached"));
    assert_true(sum == expected);
    unlink(path);
    unsetenv("XDG_CACHE_HOME");
    char *home = getenv("HOME");
    char kept[1024];
    snprintf(kept, sizeof kept, "%s", home ? home : "");
    unsetenv("HOME");
    assert_false(import(c, c->model, note, sizeof note, &sum));
    assert_non_null(strstr(note, "HOME"));
    if (home) setenv("HOME", kept, 1);
    setenv("XDG_CACHE_HOME", c->home, 1);
}

static void the_oldest_makes_room(void **state) {
    struct cache *c = *state;
    char note[256], limit[32];
    float sum;
    struct model *m[3] = {model_of(1), model_of(2), model_of(3)};
    first_start(c);
    struct listing l = list_get(false);
    uint64_t bytes = l.last.bytes;
    snprintf(limit, sizeof limit, "%llu", (unsigned long long)(2 * bytes + bytes / 2));
    setenv("TERN_CACHE_BYTES", limit, 1);
    assert_false(import(c, m[1], note, sizeof note, &sum));
    // The second is older than the first, because the first was used again.
    l = list_get(false);
    assert_int_equal(l.n, 2);
    struct timespec times[2] = {{.tv_sec = 1000000}, {.tv_sec = 1000000}};
    char path[1100];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/tern/pack/%s", c->home, l.files[i]);
        assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    }
    assert_true(import(c, m[0], note, sizeof note, &sum));
    assert_false(import(c, m[2], note, sizeof note, &sum));
    assert_string_equal(note, "");
    assert_int_equal(list_get(false).n, 2);
    assert_true(import(c, m[0], note, sizeof note, &sum));
    assert_true(import(c, m[2], note, sizeof note, &sum));
    // Larger than the whole cache: told, and nothing is thrown out for it.
    setenv("TERN_CACHE_BYTES", "1000", 1);
    assert_false(import(c, m[1], note, sizeof note, &sum));
    assert_non_null(strstr(note, "TERN_CACHE_BYTES"));
    assert_int_equal(list_get(false).n, 2);
    struct listing gone = {0};
    assert_int_equal(pack_cache_prune(bytes, list_add, &gone, NULL), TERN_OK);
    assert_int_equal(gone.n, 1);
    assert_int_equal(list_get(false).n, 1);
    assert_int_equal(pack_cache_prune(0, NULL, NULL, NULL), TERN_OK);
    assert_int_equal(list_get(false).n, 0);
    for (int i = 0; i < 3; i++) tiny_model_free(m[i]);
}

static void two_writers_at_once(void **state) {
    struct cache *c = *state;
    enum { N = 6 };
    char note[256];
    float sum, expected = want(c, c->model);
    pid_t child[N];
    for (int i = 0; i < N; i++) {
        child[i] = fork();
        if (child[i] != 0) continue;
        bool good = true;
        for (int j = 0; j < 5; j++) {
            import(c, c->model, note, sizeof note, &sum);
            good = good && sum == expected && note[0] == 0;
            if (i == 0 && j < 4) pack_cache_prune(0, NULL, NULL, NULL);
        }
        _exit(good ? 0 : 1);
    }
    for (int i = 0; i < N; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_true(import(c, c->model, note, sizeof note, &sum));
    assert_true(sum == expected);
    struct listing l = list_get(true);
    assert_int_equal(l.n, 1);
    assert_int_equal(l.n_sound, 1);
}

static bool cancel(void *arg, uint64_t done, uint64_t total) {
    int *left = arg;
    assert_true(done <= total);
    return --*left > 0;
}
static bool count(void *arg, uint64_t done, uint64_t total) {
    uint64_t *last = arg;
    assert_true(done > last[0] && done <= total);
    last[0] = done;
    last[1] = total;
    return true;
}
static void progress_and_cancel(void **state) {
    struct cache *c = *state;
    struct unit_weights *w;
    struct weights_info info;
    uint64_t last[2] = {0};
    struct weights_options o = {.on_progress = count, .on_progress_arg = last};
    assert_int_equal(d->weights_import(c->unit, &w, c->model, &o, &info, NULL), TERN_OK);
    assert_true(last[0] == last[1] && last[1] > 0);
    assert_true(info.bytes > 0);
    d->weights_free(c->unit, w);
    uint64_t n_live = mem_stats_get().n_live;
    int left = 3;
    o = (struct weights_options){.on_progress = cancel, .on_progress_arg = &left};
    assert_int_equal(d->weights_import(c->unit, &w, c->model, &o, &info, NULL), TERN_CANCELLED);
    assert_int_equal(left, 0);
    assert_int_equal(mem_stats_get().n_live, n_live);
}

int main(void) {
#define CACHE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CACHE_TEST(second_start_maps_it),
        CACHE_TEST(damaged_files_are_misses),
        CACHE_TEST(a_pack_of_another_model_is_a_miss),
        CACHE_TEST(full_disk),
        CACHE_TEST(home_that_cannot_be_written),
        CACHE_TEST(the_oldest_makes_room),
        CACHE_TEST(two_writers_at_once),
        CACHE_TEST(progress_and_cancel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
