// The prefix cache behind a service: what it saves, what it must not share, and that neither a restart, nor damaged
// files, nor a cache far too small changes an answer.
#include "../../common/short_models.h"
#include "engine_fixture.h"

#include <stdio.h>

#define BLOCK 32
#define HALF 16
#define RAM (64u << 20)
#define DISK (256u << 20)

#define IDS_MAX 700
#define SOLOS 8
// What a prompt gives alone. The same prompt gives the same each time (vectors, engine_sessions), so it is run once.
struct solo {
    int32_t prompt[IDS_MAX], ids[64];
    int n_prompt; // 0: free
    size_t n_ids;
    double logprob_sum;
};
struct bench {
    struct tern_engine *e;
    struct tern_session *alone;
    struct solo solos[SOLOS];
    int n_solos;
};
static struct bench bench_open(const char *drafter) {
    struct bench b = {0};
    struct tern_engine_options o = fixture_options(short_models.target);
    o.n_sessions = 4;
    o.window = 128;
    o.draft_path = drafter;
    o.draft = drafter ? TERN_DRAFT_TREE : TERN_DRAFT_OFF;
    b.e = fixture_engine(&o);
    b.alone = fixture_session(b.e);
    return b;
}
static void bench_close(struct bench *b) {
    tern_session_close(b->alone);
    tern_engine_close(b->e);
}

static struct tern_service *service_open(struct bench *b, uint64_t ram, const char *dir, uint64_t disk) {
    struct tern_service *s = NULL;
    struct tern_service_options o;
    struct tern_err err = {0};
    tern_service_options_default(&o);
    o.prefix_ram_max = ram;
    o.prefix_dir = dir;
    o.prefix_disk_max = disk;
    fixture_must(tern_service_open(&s, b->e, &o, &err), &err);
    return s;
}

// n ids, the first n_same of them those of every other prompt with the same `like`.
static void prompt_make(int32_t *ids, int n, int n_same, uint32_t like, uint32_t seed) {
    for (int i = 0; i < n; i++) {
        uint32_t x = (i < n_same ? like : seed) * 2654435761u + (uint32_t)i * 40503u;
        ids[i] = short_models.first_id + (int32_t)((x >> 7) % (uint32_t)short_models.n_ids);
    }
}

struct result {
    int32_t ids[64];
    size_t n_ids;
    double logprob_sum, first_token_s;
    struct tern_usage usage;
};

static struct tern_request_options request_make(const int32_t *ids, int n) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.prompt_ids = ids;
    o.n_prompt_ids = (size_t)n;
    o.n_max = 40;
    o.ignore_eos = true;
    o.n_logprobs = 0;
    return o;
}

static void job_run(struct result *out, struct tern_service *s, const int32_t *ids, int n, const char *tenant) {
    struct tern_job *job = NULL;
    struct tern_job_options o;
    struct tern_event ev;
    struct tern_err err = {0};
    *out = (struct result){0};
    tern_job_options_default(&o);
    o.request = request_make(ids, n);
    o.tenant = (struct tern_str){tenant, strlen(tenant)};
    fixture_must(tern_job_submit(&job, s, &o, &err), &err);
    do {
        fixture_must(tern_job_next(job, -1, &ev, &err), &err);
        for (int i = 0; i < ev.n_logprobs; i += ev.n_logprobs_token) out->logprob_sum += (double)ev.logprobs[i].logprob;
    } while (ev.type != TERN_EVENT_DONE);
    out->usage = ev.usage;
    const int32_t *answer = tern_job_ids(job, &out->n_ids);
    assert_in_range(out->n_ids, 1, ARRAY_LEN(out->ids));
    memcpy(out->ids, answer, out->n_ids * sizeof *answer);
    tern_job_free(job);
}

static const struct solo *solo_of(struct bench *b, const int32_t *ids, int n) {
    for (int i = 0; i < SOLOS; i++)
        if (b->solos[i].n_prompt == n && memcmp(b->solos[i].prompt, ids, (size_t)n * sizeof *ids) == 0)
            return &b->solos[i];
    struct solo *solo = &b->solos[b->n_solos++ % SOLOS];
    struct seen alone;
    struct tern_err err = {0};
    struct tern_request_options o = request_make(ids, n);
    fixture_must(tern_session_truncate(b->alone, 0, &err), &err);
    seen_run(&alone, b->alone, &o);
    assert_true(n <= IDS_MAX && alone.n_ids <= ARRAY_LEN(solo->ids));
    *solo = (struct solo){.n_prompt = n, .n_ids = alone.n_ids, .logprob_sum = alone.logprob_sum};
    memcpy(solo->prompt, ids, (size_t)n * sizeof *ids);
    memcpy(solo->ids, alone.ids, alone.n_ids * sizeof *alone.ids);
    seen_release(&alone);
    return solo;
}

// The job, and the same request alone in an emptied session.
static void job_run_checked(struct result *out, struct bench *b, struct tern_service *s, const int32_t *ids, int n,
                            const char *tenant) {
    job_run(out, s, ids, n, tenant);
    const struct solo *alone = solo_of(b, ids, n);
    assert_int_equal(out->n_ids, alone->n_ids);
    assert_memory_equal(out->ids, alone->ids, alone->n_ids * sizeof *alone->ids);
    assert_true(out->logprob_sum == alone->logprob_sum);
}

static void test_shared_begin(void **state) {
    (void)state;
    struct bench b = bench_open(NULL);
    struct tern_service *s = service_open(&b, RAM, NULL, 0);
    int32_t ids[IDS_MAX];
    struct result r;
    prompt_make(ids, 630, 600, 1, 1);
    job_run_checked(&r, &b, s, ids, 630, "a");
    assert_int_equal(r.usage.n_cached, 0);
    prompt_make(ids, 630, 600, 1, 2); // another end
    job_run_checked(&r, &b, s, ids, 630, "a");
    assert_int_equal(r.usage.n_cached, 600 / HALF * HALF);
    job_run_checked(&r, &b, s, ids, 630, "a"); // the same again: all but the last token may come from the cache
    assert_int_equal(r.usage.n_cached, 629 / BLOCK * BLOCK);
    job_run_checked(&r, &b, s, ids, 2 * BLOCK, "a");
    assert_int_equal(r.usage.n_cached, BLOCK + HALF);
    // What one tenant said is nothing to another.
    job_run_checked(&r, &b, s, ids, 630, "b");
    assert_int_equal(r.usage.n_cached, 0);
    job_run_checked(&r, &b, s, ids, 630, "");
    assert_int_equal(r.usage.n_cached, 0);
    // The next turn: prompt, answer, and more. Of the answer all blocks are there.
    memcpy(ids + 630, r.ids, 40 * sizeof *ids);
    prompt_make(ids + 670, 30, 0, 0, 3);
    job_run_checked(&r, &b, s, ids, 700, "");
    assert_int_equal(r.usage.n_cached, 669 / BLOCK * BLOCK);
    tern_service_close(s);
    bench_close(&b);
}

// Two prompts that part anywhere in a block: whole blocks and one half more are taken, as far as they are the same, and
// never the last token.
static void test_halves(void **state) {
    (void)state;
    struct bench b = bench_open(NULL);
    struct tern_service *s = service_open(&b, RAM, NULL, 0);
    static const int same[] = {15, 16, 31, 33, 48, 80, 100};
    int32_t ids[130];
    struct result r;
    for (uint32_t i = 0; i < sizeof same / sizeof *same; i++) {
        prompt_make(ids, 130, 130, 100 + i, 0);
        job_run_checked(&r, &b, s, ids, 130, "a");
        assert_int_equal(r.usage.n_cached, 0);
        prompt_make(ids, 110, same[i], 100 + i, 500 + i);
        job_run_checked(&r, &b, s, ids, 110, "b");
        assert_int_equal(r.usage.n_cached, 0);
        job_run_checked(&r, &b, s, ids, 110, "a");
        assert_int_equal(r.usage.n_cached, same[i] / HALF * HALF);
        prompt_make(ids, 130, 130, 100 + i, 0); // only what both begin with
        job_run_checked(&r, &b, s, ids, same[i], "a");
        assert_int_equal(r.usage.n_cached, (same[i] - 1) / HALF * HALF);
    }
    tern_service_close(s);
    bench_close(&b);
}

// A cache of a few blocks: its limit holds, and nothing else is different.
static void test_small(void **state) {
    (void)state;
    struct bench b = bench_open(NULL);
    struct tern_model_info model;
    struct tern_service_info info;
    struct result r;
    int32_t ids[400];
    tern_engine_info(b.e, &model);
    uint64_t limit = model.bytes_kv_token * BLOCK * 9;
    struct tern_service *s = service_open(&b, limit, NULL, 0);
    for (uint32_t i = 0; i < 6; i++) {
        prompt_make(ids, 400, 64, 1, i);
        job_run_checked(&r, &b, s, ids, i % 2 ? 400 : 100, "");
        tern_service_info(s, &info);
        assert_true(info.prefix_bytes > 0 && info.prefix_bytes <= limit);
        assert_int_equal(r.usage.n_cached, i ? 64 : 0); // the begin that all share is never what goes
    }
    tern_service_close(s);
    struct tern_service_options o;
    struct tern_err err = {0};
    tern_service_options_default(&o);
    o.prefix_ram_max = model.bytes_kv_token; // not one block
    assert_int_equal(tern_service_open(&s, b.e, &o, &err), TERN_INVALID_ARGUMENT);
    o.prefix_ram_max = (uint64_t)1 << 60;
    assert_int_equal(tern_service_open(&s, b.e, &o, &err), TERN_NO_MEMORY);
    o.prefix_ram_max = 0;
    o.prefix_dir = "/";
    assert_int_equal(tern_service_open(&s, b.e, &o, &err), TERN_INVALID_ARGUMENT);
    bench_close(&b);
}

// ------------------------------------------------------------------------------------------------------------- disk

struct folder {
    char path[256];
    char names[64][96];
    int n;
};
static bool folder_entry(void *arg, const char *name, const struct os_stat *st) {
    struct folder *f = arg;
    (void)st;
    assert_true(f->n < 64 && strlen(name) < 96);
    memcpy(f->names[f->n++], name, strlen(name) + 1);
    return true;
}
static void folder_read(struct folder *f) {
    struct tern_err err = {0};
    f->n = 0;
    fixture_must(os_list(f->path, folder_entry, f, &err), &err);
}
static void folder_file(const struct folder *f, int i, char out[512]) {
    snprintf(out, 512, "%s/%s", f->path, f->names[i]);
}
static void folder_remove(struct folder *f) {
    char path[512];
    folder_read(f);
    for (int i = 0; i < f->n; i++) {
        folder_file(f, i, path);
        os_remove(path, NULL);
    }
}

static void test_restart(void **state) {
    (void)state;
    struct bench b = bench_open(NULL);
    struct folder f = {0};
    struct result r;
    int32_t ids[300];
    fixture_temp_path(f.path, "prefix-restart");
    prompt_make(ids, 300, 0, 0, 7);
    struct tern_service *s = service_open(&b, RAM, f.path, DISK);
    job_run_checked(&r, &b, s, ids, 300, "a");
    tern_service_close(s); // writes what waits
    folder_read(&f);
    assert_int_equal(f.n, 339 / BLOCK);
    // Texts that part within a block take half of it from its file, in another process too.
    static const int same[] = {20, 3 * BLOCK + 20};
    s = service_open(&b, RAM, f.path, DISK);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        int32_t other[200];
        prompt_make(other, 200, 0, 0, 70 + (uint32_t)i);
        memcpy(other, ids, (size_t)same[i] * sizeof *ids);
        job_run_checked(&r, &b, s, other, 200, "b");
        assert_int_equal(r.usage.n_cached, i ? HALF : 0); // of its own first one
        job_run_checked(&r, &b, s, other, 200, "a");
        assert_int_equal(r.usage.n_cached, same[i] / HALF * HALF);
    }
    tern_service_close(s);
    s = service_open(&b, RAM, f.path, DISK);
    job_run_checked(&r, &b, s, ids, 300, "a");
    assert_int_equal(r.usage.n_cached, 299 / BLOCK * BLOCK);
    job_run_checked(&r, &b, s, ids, 5 * BLOCK, "a"); // half of a block that came from a file
    assert_int_equal(r.usage.n_cached, 4 * BLOCK + HALF);
    job_run_checked(&r, &b, s, ids, 300, "c");
    assert_int_equal(r.usage.n_cached, 0);
    tern_service_close(s);
    // Another model's state, here of another cache type, is never taken.
    struct tern_engine_options o = fixture_options(short_models.target);
    o.n_sessions = 2;
    o.kv_type = TERN_KV_F32;
    struct bench other = {.e = fixture_engine(&o)};
    other.alone = fixture_session(other.e);
    s = service_open(&other, RAM, f.path, DISK);
    job_run_checked(&r, &other, s, ids, 300, "a");
    assert_int_equal(r.usage.n_cached, 0);
    tern_service_close(s);
    bench_close(&other);
    // A limit of four files: it holds, and what stays is a beginning.
    struct os_stat st;
    char path[512];
    folder_file(&f, 0, path);
    assert_true(os_stat_get(&st, path));
    folder_remove(&f);
    s = service_open(&b, RAM, f.path, 4 * st.size + 100);
    for (uint32_t i = 0; i < 3; i++) {
        prompt_make(ids, 300, 0, 0, 20 + i);
        job_run_checked(&r, &b, s, ids, 300, "a");
    }
    tern_service_close(s);
    folder_read(&f);
    assert_in_range(f.n, 1, 4);
    folder_remove(&f);
    bench_close(&b);
}

static void file_damage(const char *path, int how) {
    struct buf data;
    struct tern_err err = {0};
    buf_init(&data, 64u << 20);
    fixture_must(file_read_all(&data, path, &err), &err);
    size_t len = data.len;
    if (how == 0) data.data[len / 2] ^= 1;  // in the values
    if (how == 1) data.data[len - 1] ^= 64; // in the checksum
    if (how == 2) len -= 5;
    if (how == 3) len = 0;
    if (how == 4) data.data[8 + 64] ^= 1;           // the model's identity
    if (how == 5) data.data[8 + 4 * 32 + 3] ^= 127; // its depth
    if (how == 6) memset(data.data + 8 + 4 * 32 + 8, 255, 8);
    fixture_must(file_write_atomic(path, data.data, len, &err), &err);
    buf_release(&data);
}

// Every file damaged in some way, one way at a time: the answer is the same, the files go and sound ones take their
// place.
static void test_damage(void **state) {
    (void)state;
    struct bench b = bench_open(NULL);
    struct folder f = {0};
    struct result r;
    int32_t ids[300];
    char path[512];
    struct tern_err err = {0};
    fixture_temp_path(f.path, "prefix-damage");
    prompt_make(ids, 300, 0, 0, 8);
    for (int how = -1; how < 7; how++) {
        struct tern_service *s = service_open(&b, RAM, f.path, DISK);
        job_run_checked(&r, &b, s, ids, 300, "a");
        assert_int_equal(r.usage.n_cached, 0);
        tern_service_close(s);
        folder_read(&f);
        for (int i = 0; i < f.n; i++) {
            folder_file(&f, i, path);
            file_damage(path, how + 1 < 7 ? how + 1 : 0);
        }
    }
    // One damaged in the middle: what comes before it is used.
    folder_remove(&f);
    struct tern_service *s = service_open(&b, RAM, f.path, DISK);
    job_run_checked(&r, &b, s, ids, 3 * BLOCK, "a");
    tern_service_close(s);
    folder_read(&f);
    s = service_open(&b, RAM, f.path, DISK);
    job_run_checked(&r, &b, s, ids, 300, "a");
    assert_int_equal(r.usage.n_cached, 3 * BLOCK);
    tern_service_close(s);
    struct folder later = f;
    folder_read(&later);
    for (int i = 0; i < later.n; i++) {
        bool old = false;
        for (int k = 0; k < f.n; k++) old |= strcmp(f.names[k], later.names[i]) == 0;
        folder_file(&later, i, path);
        if (!old) file_damage(path, 0);
    }
    s = service_open(&b, RAM, f.path, DISK);
    job_run_checked(&r, &b, s, ids, 300, "a");
    assert_int_equal(r.usage.n_cached, 3 * BLOCK);
    tern_service_close(s);
    // Files that are none of ours stay as they are.
    snprintf(path, sizeof path, "%s/notes.txt", f.path);
    fixture_must(file_write_atomic(path, "mine", 4, &err), &err);
    s = service_open(&b, RAM, f.path, DISK);
    tern_service_close(s);
    struct os_stat st;
    assert_true(os_stat_get(&st, path) && st.size == 4);
    folder_remove(&f);
    bench_close(&b);
}

// With a draft model: the drafter's context comes back too, so a restored prompt is drafted from as a fresh one is.
static void test_drafter(void **state) {
    (void)state;
    struct bench b = bench_open(short_models.drafter);
    struct folder f = {0};
    struct result fresh, again;
    int32_t ids[200];
    fixture_temp_path(f.path, "prefix-drafter");
    struct buf text;
    struct tern_err err = {0};
    buf_init(&text, 1 << 20);
    fixture_must(file_read_all(&text, TEST_DATA "/pico/heldout.txt", &err), &err);
    int64_t n = tern_tokenize(b.e, (struct tern_str){text.data, 2000}, true, false, ids, 200, &err);
    assert_true(n >= 200);
    struct tern_service *s = service_open(&b, RAM, f.path, DISK);
    job_run_checked(&fresh, &b, s, ids, 200, "");
    assert_int_equal(fresh.usage.n_cached, 0);
    assert_true(fresh.usage.n_rounds > 0 && (short_models.is_short || fresh.usage.n_accepted > 0));
    for (int i = 0; i < 2; i++) { // from memory, then from disk
        job_run_checked(&again, &b, s, ids, 200, "");
        assert_int_equal(again.usage.n_cached, 199 / BLOCK * BLOCK);
        assert_int_equal(again.usage.n_rounds, fresh.usage.n_rounds);
        assert_int_equal(again.usage.n_drafted, fresh.usage.n_drafted);
        assert_int_equal(again.usage.n_accepted, fresh.usage.n_accepted);
        tern_service_close(s);
        s = service_open(&b, RAM, f.path, DISK);
    }
    // Half a block's context of the drafter too: rounds as of the same prompt of one of whom nothing is known.
    job_run_checked(&fresh, &b, s, ids, 5 * BLOCK, "b");
    assert_int_equal(fresh.usage.n_cached, 0);
    job_run_checked(&again, &b, s, ids, 200, "");
    job_run_checked(&again, &b, s, ids, 5 * BLOCK, "");
    assert_int_equal(again.usage.n_cached, 4 * BLOCK + HALF);
    assert_int_equal(again.usage.n_rounds, fresh.usage.n_rounds);
    assert_int_equal(again.usage.n_accepted, fresh.usage.n_accepted);
    tern_service_close(s);
    buf_release(&text);
    folder_remove(&f);
    bench_close(&b);
}

int main(void) {
    log_level_set(LOG_ERROR); // removed files are told
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_begin), cmocka_unit_test(test_halves), cmocka_unit_test(test_small),
        cmocka_unit_test(test_restart),      cmocka_unit_test(test_damage), cmocka_unit_test(test_drafter),
    };
    return cmocka_run_group_tests_name("prefix cache", tests, short_models_setup, short_models_teardown);
}
