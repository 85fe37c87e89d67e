// Batch jobs that give up their place: an interactive job does not wait for their end, and what they answer is still
// their solo run, token for token, however often they were parked. Named states: what is saved is what is restored, for
// the tenant that asks, and damaged or foreign files change nothing.
#include "../../common/short_models.h"
#include "engine_fixture.h"

#include <stdio.h>

#define STREAMS 2
#define BLOCK 32
#define CUT_BYTES 100 // of text, behind the last time that it was parked

struct bench {
    struct tern_engine *e;
    struct tern_session *alone;
    struct tern_service *s;
};

static struct bench bench_open(const char *drafter, uint64_t park_ram, uint64_t prefix_ram) {
    struct bench b;
    struct tern_engine_options o = fixture_options(short_models.target);
    struct tern_service_options so;
    struct tern_err err = {0};
    o.n_sessions = STREAMS + 1;
    o.window = 64;
    o.draft_path = drafter;
    o.draft = drafter ? TERN_DRAFT_TREE : TERN_DRAFT_OFF;
    b.e = fixture_engine(&o);
    b.alone = fixture_session(b.e);
    tern_service_options_default(&so);
    assert_true(so.park_ram_max > 0);
    so.park_ram_max = park_ram;
    so.prefix_ram_max = prefix_ram;
    fixture_must(tern_service_open(&b.s, b.e, &so, &err), &err);
    return b;
}
static void bench_close(struct bench *b) {
    tern_service_close(b->s);
    tern_session_close(b->alone);
    tern_engine_close(b->e);
}

static struct tern_request_options request_make(const char *text, int n, float temperature) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.prompt = (struct tern_str){text, strlen(text)};
    o.n_max = n;
    o.ignore_eos = true;
    o.temperature = temperature;
    o.seed = 7;
    o.repeat_penalty = 1.1f;
    o.n_logprobs = 0;
    return o;
}

struct run {
    struct tern_job *job;
    struct tern_request_options o;
    struct buf text;
    double logprob_sum;
    bool done;
    enum tern_finish finish;
};

static void run_begin(struct run *r, struct bench *b, const struct tern_request_options *o,
                      enum tern_priority priority) {
    struct tern_job_options jo;
    struct tern_err err = {0};
    *r = (struct run){.o = *o};
    buf_init(&r->text, 1 << 16);
    tern_job_options_default(&jo);
    jo.request = *o;
    jo.priority = priority;
    fixture_must(tern_job_submit(&r->job, b->s, &jo, &err), &err);
}

// Pulls what is there, or to the end.
static void run_pull(struct run *r, bool all) {
    struct tern_event ev;
    struct tern_err err = {0};
    while (!r->done) {
        enum tern_status status = tern_job_next(r->job, all ? -1 : 0, &ev, &err);
        if (status == TERN_AGAIN) return;
        fixture_must(status, &err);
        if (ev.type == TERN_EVENT_TEXT) assert_true(buf_put(&r->text, ev.text.data, ev.text.len));
        for (int i = 0; i < ev.n_logprobs; i += ev.n_logprobs_token) r->logprob_sum += (double)ev.logprobs[i].logprob;
        if (ev.type != TERN_EVENT_DONE) continue;
        r->done = true;
        r->finish = ev.finish;
    }
}

static void run_wait_answer(struct run *r) { // until it has told some text
    while (r->text.len < 8 && !r->done) {
        run_pull(r, false);
        clock_sleep_ns(200000);
    }
}

static void run_end(struct run *r) {
    tern_job_free(r->job);
    buf_release(&r->text);
}

// To its end, which must be that of the same request alone.
static void run_check(struct run *r, struct bench *b) {
    struct seen alone;
    struct tern_err err = {0};
    size_t n;
    run_pull(r, true);
    fixture_must(tern_session_truncate(b->alone, 0, &err), &err);
    seen_run(&alone, b->alone, &r->o);
    const int32_t *ids = tern_job_ids(r->job, &n);
    assert_int_equal(n, alone.n_ids);
    assert_memory_equal(ids, alone.ids, n * sizeof *ids);
    assert_int_equal(r->text.len, alone.text.len);
    assert_memory_equal(r->text.data, alone.text.data, alone.text.len);
    assert_true(r->logprob_sum == alone.logprob_sum);
    seen_release(&alone);
    run_end(r);
}

// Until n_more bytes more have been told, or it ends by itself; then it is cut off. What it said is the begin of what
// the request says alone.
static void run_cut_check(struct run *r, struct bench *b, size_t n_more) {
    struct seen alone;
    struct tern_err err = {0};
    struct tern_request_options o = r->o;
    size_t n, want = r->text.len + n_more;
    while (r->text.len < want && !r->done) {
        run_pull(r, false);
        clock_sleep_ns(200000);
    }
    tern_job_cancel(r->job);
    run_pull(r, true);
    const int32_t *ids = tern_job_ids(r->job, &n);
    o.n_max = (int)n;
    fixture_must(tern_session_truncate(b->alone, 0, &err), &err);
    seen_run(&alone, b->alone, &o);
    assert_int_equal(n, alone.n_ids);
    assert_memory_equal(ids, alone.ids, n * sizeof *ids);
    assert_true(r->text.len <= alone.text.len);
    assert_memory_equal(r->text.data, alone.text.data, r->text.len);
    seen_release(&alone);
    run_end(r);
}

static uint64_t n_parked(const struct bench *b) {
    struct tern_service_info info;
    tern_service_info(b->s, &info);
    return info.n_parked;
}

// n: tokens of the batch jobs at most, so many that they are still at work when three short ones have come and gone;
// `whole`: they go on to the end.
static void park_once(struct bench *b, int n, bool whole) {
    const struct tern_request_options batch[2] = {request_make("Once upon a time there was a ", n, 0.8f),
                                                  request_make("The lamp in the window ", n, 0)};
    const struct tern_request_options quick = request_make("Then the rabbit said: ", 6, 0);
    struct run slow[2], fast[3];
    uint64_t before = n_parked(b);
    for (int i = 0; i < 2; i++) run_begin(&slow[i], b, &batch[i], TERN_PRIORITY_BATCH);
    for (int i = 0; i < 2; i++) {
        run_wait_answer(&slow[i]);
        assert_false(slow[i].done);
    }
    for (int k = 0; k < 3; k++) { // one after another: each finds both streams taken
        run_begin(&fast[k], b, &quick, TERN_PRIORITY_INTERACTIVE);
        run_pull(&fast[k], true);
        int n_slow_done = 0;
        for (int i = 0; i < 2; i++) {
            n_slow_done += tern_job_state(slow[i].job, NULL) == TERN_JOB_DONE;
            run_pull(&slow[i], false);
        }
        assert_int_equal(n_slow_done, 0);
    }
    assert_true(n_parked(b) > before);
    for (int i = 0; i < 2; i++)
        if (whole)
            run_check(&slow[i], b);
        else
            run_cut_check(&slow[i], b, CUT_BYTES);
    for (int k = 0; k < 3; k++) run_check(&fast[k], b);
}

static void test_parked_and_resumed(void **state) {
    (void)state;
    struct bench b = bench_open(NULL, 64u << 20, 32u << 20); // with a prefix cache
    park_once(&b, 700, false);
    bench_close(&b);
}

static void test_parked_with_drafter(void **state) {
    (void)state;
    struct bench b = bench_open(short_models.drafter, 64u << 20, 0);
    park_once(&b, 200, true);
    bench_close(&b);
}

// Without memory for a state nobody is parked, and the interactive job waits.
static void test_no_room(void **state) {
    (void)state;
    const uint64_t rams[] = {0, 100};
    for (size_t k = 0; k < ARRAY_LEN(rams); k++) {
        struct bench b = bench_open(NULL, rams[k], 0);
        struct tern_request_options o = request_make("Once upon a time ", 30, 0);
        struct run slow[2], fast;
        for (int i = 0; i < 2; i++) run_begin(&slow[i], &b, &o, TERN_PRIORITY_BATCH);
        for (int i = 0; i < 2; i++) run_wait_answer(&slow[i]);
        run_begin(&fast, &b, &o, TERN_PRIORITY_INTERACTIVE);
        run_check(&fast, &b);
        for (int i = 0; i < 2; i++) run_check(&slow[i], &b);
        assert_int_equal(n_parked(&b), 0);
        bench_close(&b);
    }
}

// A parked job can be cancelled, freed, and met by the end of its service.
static void test_parked_ends(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        struct bench b = bench_open(NULL, 64u << 20, 0);
        struct tern_request_options o = request_make("Once upon a time ", 400, 0), quick = o;
        struct run slow[2], fast[2];
        for (int i = 0; i < 2; i++) run_begin(&slow[i], &b, &o, TERN_PRIORITY_BATCH);
        for (int i = 0; i < 2; i++) run_wait_answer(&slow[i]);
        quick.n_max = 50;
        for (int i = 0; i < 2; i++) run_begin(&fast[i], &b, &quick, TERN_PRIORITY_INTERACTIVE);
        for (int i = 0; i < 2; i++) run_wait_answer(&fast[i]);
        assert_true(n_parked(&b) == 2); // both, as no stream is theirs for sure
        if (how == 0) {
            for (int i = 0; i < 2; i++) {
                tern_job_cancel(slow[i].job);
                run_pull(&slow[i], true);
                assert_int_equal(slow[i].finish, TERN_FINISH_CANCELLED);
            }
        }
        for (int i = 0; i < 2; i++) run_end(&slow[i]);
        for (int i = 0; i < 2 && how < 2; i++) run_check(&fast[i], &b);
        for (int i = 0; i < 2 && how == 2; i++) run_end(&fast[i]);
        bench_close(&b);
    }
}

// Interactive jobs that never end coming do not stop batch work.
static void test_batch_goes_on(void **state) {
    (void)state;
    struct bench b = bench_open(NULL, 64u << 20, 0);
    struct tern_request_options o = request_make("Once upon a time ", 40, 0), quick = request_make("The sea ", 12, 0);
    struct run slow, fast[3];
    run_begin(&slow, &b, &o, TERN_PRIORITY_BATCH);
    for (int i = 0; i < 3; i++) run_begin(&fast[i], &b, &quick, TERN_PRIORITY_INTERACTIVE);
    int n = 0;
    for (; !slow.done && n < 400; n++) {
        run_pull(&fast[n % 3], true);
        run_end(&fast[n % 3]);
        run_begin(&fast[n % 3], &b, &quick, TERN_PRIORITY_INTERACTIVE);
        run_pull(&slow, false);
    }
    assert_true(slow.done);
    run_check(&slow, &b);
    for (int i = 0; i < 3; i++) run_end(&fast[i]);
    bench_close(&b);
}

// ------------------------------------------------------------------------------------------------------- named states

static int64_t n_cached_of(struct bench *b, const char *tenant, const int32_t *ids, int n, int32_t *answer) {
    struct tern_job *job = NULL;
    struct tern_job_options o;
    struct tern_event ev = {0};
    struct tern_err err = {0};
    size_t n_ids;
    tern_job_options_default(&o);
    o.request.prompt_ids = ids;
    o.request.n_prompt_ids = (size_t)n;
    o.request.n_max = 8;
    o.request.ignore_eos = true;
    o.tenant = (struct tern_str){tenant, strlen(tenant)};
    fixture_must(tern_job_submit(&job, b->s, &o, &err), &err);
    while (ev.type != TERN_EVENT_DONE) fixture_must(tern_job_next(job, -1, &ev, &err), &err);
    const int32_t *got = tern_job_ids(job, &n_ids);
    assert_int_equal(n_ids, 8);
    memcpy(answer, got, 8 * sizeof *got);
    tern_job_free(job);
    return ev.usage.n_cached;
}

static void states_check(const char *drafter) {
    struct bench b = bench_open(drafter, 0, 32u << 20);
    struct tern_err err = {0};
    struct tern_request_options text;
    int32_t ids[200], first[8], again[8];
    size_t n = 1;
    char path[256];
    const struct tern_str a = {"a", 1};
    fixture_temp_path(path, "state");
    for (int i = 0; i < 200; i++) ids[i] = short_models.first_id + (i * 37) % short_models.n_ids;
    tern_request_options_default(&text);
    text.prompt_ids = ids;
    text.n_prompt_ids = 200;
    assert_int_equal(tern_service_state_save(b.s, a, &text, path, &n, &err), TERN_NOT_FOUND);
    assert_int_equal(n, 0);
    assert_int_equal(n_cached_of(&b, "a", ids, 200, first), 0);
    assert_int_equal(tern_service_state_save(b.s, (struct tern_str){"b", 1}, &text, path, &n, &err), TERN_NOT_FOUND);
    fixture_must(tern_service_state_save(b.s, a, &text, path, &n, &err), &err);
    assert_int_equal(n, 200 / BLOCK * BLOCK);
    bench_close(&b);

    b = bench_open(drafter, 0, 32u << 20); // another process, so to say
    fixture_must(tern_service_state_restore(b.s, a, path, &n, &err), &err);
    assert_int_equal(n, 200 / BLOCK * BLOCK);
    assert_int_equal(n_cached_of(&b, "b", ids, 200, again), 0);
    assert_memory_equal(first, again, sizeof first);
    assert_int_equal(n_cached_of(&b, "a", ids, 200, again), 200 / BLOCK * BLOCK);
    assert_memory_equal(first, again, sizeof first);
    fixture_must(tern_service_state_restore(b.s, a, path, &n, &err), &err); // what is there stays
    assert_int_equal(n_cached_of(&b, "a", ids, 200, again), 200 / BLOCK * BLOCK);

    // A session takes it as well; one that ends within a block is not for a service.
    fixture_must(tern_session_load(b.alone, path, &err), &err);
    assert_int_equal(tern_session_len(b.alone), 200 / BLOCK * BLOCK);
    struct seen seen;
    text.n_max = 8;
    text.ignore_eos = true;
    seen_run(&seen, b.alone, &text);
    assert_int_equal(seen.usage.n_cached, 200 / BLOCK * BLOCK);
    assert_memory_equal(seen.ids, first, sizeof first);
    seen_release(&seen);
    fixture_must(tern_session_save(b.alone, path, &err), &err);
    assert_int_equal(tern_service_state_restore(b.s, a, path, &n, &err), TERN_UNSUPPORTED);
    assert_non_null(strstr(err.message, "between blocks"));
    bench_close(&b);
    os_remove(path, NULL);
}

static void test_states(void **state) {
    (void)state;
    states_check(NULL);
}
static void test_states_with_drafter(void **state) {
    (void)state;
    states_check(short_models.drafter);
}

static void test_states_refused(void **state) {
    (void)state;
    struct bench b = bench_open(NULL, 0, 32u << 20), none, small;
    struct tern_err err = {0};
    struct tern_request_options text;
    int32_t ids[200], answer[8];
    size_t n;
    char path[256];
    const struct tern_str a = {"a", 1};
    fixture_temp_path(path, "state");
    for (int i = 0; i < 200; i++) ids[i] = short_models.first_id + (i * 91) % short_models.n_ids;
    tern_request_options_default(&text);
    text.prompt_ids = ids;
    text.n_prompt_ids = 200;
    n_cached_of(&b, "a", ids, 200, answer);
    fixture_must(tern_service_state_save(b.s, a, &text, path, &n, &err), &err);
    assert_int_equal(tern_service_state_save(b.s, a, &text, "/no/such/folder/x", &n, &err), TERN_NOT_FOUND);
    text.n_prompt_ids = 20; // less than a block
    assert_int_equal(tern_service_state_save(b.s, a, &text, path, &n, &err), TERN_NOT_FOUND);
    text.n_prompt_ids = 200;

    none = bench_open(NULL, 0, 0);
    assert_int_equal(tern_service_state_save(none.s, a, &text, path, &n, &err), TERN_UNSUPPORTED);
    assert_int_equal(tern_service_state_restore(none.s, a, path, &n, &err), TERN_UNSUPPORTED);
    bench_close(&none);
    struct tern_model_info model;
    tern_engine_info(b.e, &model);
    small = bench_open(NULL, 0, model.bytes_kv_token * BLOCK * 3); // fewer than the six that were saved
    assert_int_equal(tern_service_state_restore(small.s, a, path, &n, &err), TERN_LIMIT);
    bench_close(&small);

    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 3000, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, 3000, SEEK_SET), 0);
    fputc(byte ^ 1, f);
    fclose(f);
    assert_int_equal(tern_service_state_restore(b.s, a, path, &n, &err), TERN_BAD_FORMAT);
    assert_int_equal(n, 0);
    os_remove(path, NULL);
    assert_int_equal(tern_service_state_restore(b.s, a, path, &n, &err), TERN_NOT_FOUND);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parked_and_resumed),
        cmocka_unit_test(test_parked_with_drafter),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_parked_ends),
        cmocka_unit_test(test_batch_goes_on),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_states_with_drafter),
        cmocka_unit_test(test_states_refused),
    };
    return cmocka_run_group_tests_name("service_park", tests, short_models_setup, short_models_teardown);
}
