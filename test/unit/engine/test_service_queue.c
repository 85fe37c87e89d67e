// Who waits, who is next, and how jobs end before their time: limits, quotas, priorities, shares of tenants,
// cancellation in every state, deadlines, readers that are slow or gone.
#include "engine_fixture.h"

#include <stdatomic.h>
#include <stdio.h>

struct bench {
    struct tern_engine *e;
    struct tern_service *s;
};
static struct bench bench_open(int n_streams, int n_queue_max, int n_jobs_key_max) {
    struct bench b;
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    struct tern_service_options so;
    struct tern_err err = {0};
    o.n_sessions = n_streams;
    o.window = 64;
    o.draft = TERN_DRAFT_OFF;
    b.e = fixture_engine(&o);
    tern_service_options_default(&so);
    so.park_ram_max = 0; // the order is that of the queue alone; service_park has its own tests
    so.n_streams = n_streams;
    so.n_queue_max = n_queue_max;
    so.n_jobs_key_max = n_jobs_key_max;
    fixture_must(tern_service_open(&b.s, b.e, &so, &err), &err);
    return b;
}
static void bench_close(struct bench *b) {
    tern_service_close(b->s);
    tern_engine_close(b->e);
}

static int32_t prompt[900];
static struct tern_job_options job_make(const char *tenant, int n_prompt, int n_max) {
    struct tern_job_options o;
    tern_job_options_default(&o);
    for (int i = 0; i < n_prompt; i++) prompt[i] = 300 + i * 37 % 1500;
    o.request.prompt_ids = prompt;
    o.request.n_prompt_ids = (size_t)n_prompt;
    o.request.n_max = n_max;
    o.request.ignore_eos = true;
    o.tenant = (struct tern_str){tenant, strlen(tenant)};
    return o;
}
static struct tern_job *submit(struct bench *b, const struct tern_job_options *o) {
    struct tern_job *j = NULL;
    struct tern_err err = {0};
    fixture_must(tern_job_submit(&j, b->s, o, &err), &err);
    return j;
}
static int64_t refuse(struct bench *b, const struct tern_job_options *o, enum tern_status want) {
    struct tern_job *j = NULL;
    struct tern_err err = {0};
    assert_int_equal(tern_job_submit(&j, b->s, o, &err), want);
    assert_null(j);
    assert_true(err.message[0] != 0);
    return err.pos;
}
static enum tern_finish pull_all(struct tern_job *j, struct tern_event *done) {
    struct tern_err err = {0};
    do fixture_must(tern_job_next(j, -1, done, &err), &err);
    while (done->type != TERN_EVENT_DONE);
    return done->finish;
}
static void wait_phase(struct tern_job *j, enum tern_job_phase phase) {
    while (tern_job_state(j, NULL) < phase) clock_sleep_ns(200000);
}

static void test_limits(void **state) {
    (void)state;
    struct bench b = bench_open(1, 3, 3);
    struct tern_event ev;
    struct tern_job *jobs[5];
    struct tern_job_options o = job_make("a", 8, 900);
    jobs[0] = submit(&b, &o);
    wait_phase(jobs[0], TERN_JOB_ANSWER);
    jobs[1] = submit(&b, &o);
    jobs[2] = submit(&b, &o);
    assert_int_equal(refuse(&b, &o, TERN_AGAIN), 0); // the quota of a
    o.tenant = (struct tern_str){"b", 1};
    jobs[3] = submit(&b, &o);
    assert_int_equal(refuse(&b, &o, TERN_AGAIN), -1); // the queue
    int place;
    assert_int_equal(tern_job_state(jobs[3], &place), TERN_JOB_QUEUED);
    assert_int_equal(place, 2);
    struct tern_service_info info;
    tern_service_info(b.s, &info);
    assert_int_equal(info.n_running, 1);
    assert_int_equal(info.n_waiting, 3);
    assert_int_equal(info.n_refused, 2);
    // What cannot be is refused before the queue, for what it is.
    o = job_make("c", 8, 0);
    refuse(&b, &o, TERN_INVALID_ARGUMENT);
    o = job_make("c", 8, 4);
    o.request.append = true;
    refuse(&b, &o, TERN_INVALID_ARGUMENT);
    o = job_make("c", 8, 4);
    o.deadline_s = -1;
    refuse(&b, &o, TERN_INVALID_ARGUMENT);
    static int32_t long_prompt[1024];
    for (int i = 0; i < 1024; i++) long_prompt[i] = 400;
    o = job_make("c", 8, 4);
    o.request.prompt_ids = long_prompt;
    o.request.n_prompt_ids = 1024;
    refuse(&b, &o, TERN_CONTEXT_FULL);
    // A waiting job that is cancelled ends without having run, and makes room.
    tern_job_cancel(jobs[2]);
    assert_int_equal(pull_all(jobs[2], &ev), TERN_FINISH_CANCELLED);
    assert_int_equal(ev.usage.n_answer, 0);
    o = job_make("c", 8, 4);
    jobs[4] = submit(&b, &o);
    tern_service_drain(b.s);
    assert_int_equal(refuse(&b, &o, TERN_AGAIN), -1);
    for (int i = 0; i < 4; i++) tern_job_free(jobs[i]); // running, waiting, done, waiting
    assert_int_equal(pull_all(jobs[4], &ev), TERN_FINISH_LENGTH);
    assert_int_equal(ev.usage.n_answer, 4);
    tern_job_free(jobs[4]);
    bench_close(&b);
}

// From cancel to the last event: not much more than a step, in every phase, and the others go on.
static void test_cancel(void **state) {
    (void)state;
    struct bench b = bench_open(3, 8, 0);
    struct tern_event ev;
    struct tern_job_options o = job_make("", 8, 900);
    struct tern_job *steady = submit(&b, &o);
    uint64_t worst = 0;
    wait_phase(steady, TERN_JOB_ANSWER);
    for (int i = 0; i < 20; i++) {
        o = job_make("", i % 2 ? 800 : 20, 900);
        struct tern_job *j = submit(&b, &o);
        if (i % 4 == 2) wait_phase(j, TERN_JOB_ANSWER);
        if (i % 4 != 0) wait_phase(j, TERN_JOB_PROMPT);
        uint64_t start = clock_ns();
        tern_job_cancel(j);
        assert_int_equal(pull_all(j, &ev), TERN_FINISH_CANCELLED);
        worst = MAX(worst, clock_ns() - start);
        tern_job_free(j);
        if (tern_job_state(steady, NULL) == TERN_JOB_DONE) {
            tern_job_free(steady);
            o = job_make("", 8, 900);
            steady = submit(&b, &o);
        }
    }
    print_message("from cancel to the last event: %.1f ms at most\n", (double)worst * 1e-6);
    // A step of this model takes a few ms; the bound is for machines that are busy with other things.
    assert_true(worst < 2000000000u);
    tern_job_free(steady);
    bench_close(&b);
}

static void test_deadline(void **state) {
    (void)state;
    struct bench b = bench_open(1, 8, 0);
    struct tern_event ev;
    struct tern_job_options o = job_make("", 8, -1);
    o.deadline_s = 0.05;
    struct tern_job *runs = submit(&b, &o), *waits = submit(&b, &o);
    assert_int_equal(pull_all(runs, &ev), TERN_FINISH_CANCELLED);
    assert_true(ev.usage.n_answer > 0);
    assert_int_equal(pull_all(waits, &ev), TERN_FINISH_CANCELLED);
    tern_job_free(runs);
    tern_job_free(waits);
    bench_close(&b);
}

// The order in which jobs begin: one stream, so they run one by one, and each tells when it has something to pull. The
// blocker keeps the stream until all have been submitted.
struct turn {
    char name;
    bool told;
    char *order;
    _Atomic int *n;
};
static void turn_note(void *arg) { // on the service's thread
    struct turn *t = arg;
    if (!t->told) t->order[atomic_fetch_add(t->n, 1)] = t->name;
    t->told = true;
}
static void order_get(struct bench *b, const struct tern_job_options *o, int n, char *order) {
    struct tern_job_options first = job_make("first", 8, 900);
    struct tern_job *blocker = submit(b, &first), *jobs[32];
    struct turn turns[32];
    struct tern_event ev;
    _Atomic int n_told = 0;
    wait_phase(blocker, TERN_JOB_PROMPT);
    for (int i = 0; i < n; i++) {
        turns[i] = (struct turn){.name = o[i].tenant.data[0], .order = order, .n = &n_told};
        jobs[i] = submit(b, &o[i]);
        tern_job_notify(jobs[i], turn_note, &turns[i]);
    }
    assert_int_not_equal(tern_job_state(blocker, NULL), TERN_JOB_DONE);
    tern_job_free(blocker);
    for (int i = 0; i < n; i++) pull_all(jobs[i], &ev);
    for (int i = 0; i < n; i++) tern_job_free(jobs[i]);
    assert_int_equal(atomic_load(&n_told), n);
    order[n] = 0;
}

static void test_shares(void **state) {
    (void)state;
    struct bench b = bench_open(1, 64, 0);
    struct tern_job_options o[12];
    char order[33];
    // Eight jobs of a came first, then two of b: b's do not wait for all of a's.
    for (int i = 0; i < 10; i++) o[i] = job_make(i < 8 ? "a" : "b", 8, 40);
    order_get(&b, o, 10, order);
    print_message("tenants: %s\n", order);
    assert_true(strchr(order, 'b') - order <= 1);
    assert_true(strrchr(order, 'b') - order <= 3);
    // Batch jobs wait for interactive ones, but not for ever.
    for (int i = 0; i < 12; i++) {
        o[i] = job_make(i < 3 ? "x" : "i", 8, 40);
        o[i].priority = i < 3 ? TERN_PRIORITY_BATCH : TERN_PRIORITY_INTERACTIVE;
    }
    order_get(&b, o, 12, order);
    print_message("batch (x) and interactive: %s\n", order);
    assert_true(strchr(order, 'x') - order >= 1 || order[0] == 'x');
    int n_before = 0, n_x = 0;
    for (int i = 0; i < 12; i++) {
        n_x += order[i] == 'x';
        n_before += order[i] == 'x' && i < 12 - 3;
        if (i >= 3) assert_true(n_x >= (i + 1) / 4); // at least every fourth
    }
    assert_in_range(n_before, 1, 3);
    bench_close(&b);
}

static _Atomic int n_notes;
static void note(void *arg) {
    (void)arg;
    atomic_fetch_add(&n_notes, 1);
}

// A reader who only comes at the end gets the whole text, in fewer pieces; one who is told pulls after each call.
static void test_readers(void **state) {
    (void)state;
    struct bench b = bench_open(2, 8, 0);
    struct tern_event ev;
    struct tern_err err = {0};
    struct tern_job_options o = job_make("", 8, 700);
    o.request.n_logprobs = 1;
    struct tern_job *late = submit(&b, &o), *told = submit(&b, &o);
    tern_job_notify(told, note, NULL);
    struct buf texts[2];
    int n_pieces[2] = {0, 0}, n_logprobs[2] = {0, 0};
    struct tern_job *jobs[2] = {late, told};
    wait_phase(late, TERN_JOB_DONE);
    for (int k = 0; k < 2; k++) {
        buf_init(&texts[k], 1 << 20);
        do {
            fixture_must(tern_job_next(jobs[k], -1, &ev, &err), &err);
            if (ev.type == TERN_EVENT_TEXT) assert_true(buf_put(&texts[k], ev.text.data, ev.text.len));
            n_pieces[k] += ev.type == TERN_EVENT_TEXT;
            n_logprobs[k] += ev.n_logprobs;
        } while (ev.type != TERN_EVENT_DONE);
        assert_int_equal(n_logprobs[k] % 2, 0);
        assert_in_range(n_logprobs[k] / 2, 1, 700);
    }
    assert_true(texts[0].len > 100 && str_eq(buf_str(&texts[0]), buf_str(&texts[1])));
    assert_in_range(n_pieces[0], 1, 300);
    assert_int_equal(n_logprobs[0], n_logprobs[1]);
    assert_true(atomic_load(&n_notes) > 0);
    assert_int_equal(tern_job_next(late, 0, &ev, &err), TERN_INVALID_ARGUMENT);
    for (int k = 0; k < 2; k++) {
        buf_release(&texts[k]);
        tern_job_free(jobs[k]);
    }
    // Nothing yet is TERN_AGAIN, at once or after the time given; and a close without a pull is fine.
    o = job_make("", 800, 10);
    struct tern_job *j = submit(&b, &o);
    uint64_t start = clock_ns();
    while (tern_job_next(j, 0, &ev, &err) == TERN_OK) {
    }
    assert_true(clock_ns() - start < 5000000000u);
    tern_job_free(j);
    bench_close(&b);
}

// A waiting client's tokens come at the pace of its own steps: beside a long prompt it is not held up for its length.
static void test_prompt_beside(void **state) {
    (void)state;
    struct bench b = bench_open(2, 8, 0);
    struct tern_event ev;
    struct tern_err err = {0};
    struct tern_service_info before, after;
    struct tern_job_options o = job_make("", 8, 200);
    struct tern_job *stream = submit(&b, &o);
    wait_phase(stream, TERN_JOB_ANSWER);
    for (int i = 0; i < 3; i++) fixture_must(tern_job_next(stream, -1, &ev, &err), &err);
    o = job_make("", 900, 1);
    tern_service_info(b.s, &before);
    struct tern_job *book = submit(&b, &o);
    wait_phase(book, TERN_JOB_ANSWER);
    tern_service_info(b.s, &after);
    // 900 rows took at least 900 / 63 steps, each of which gave the stream a token.
    uint64_t n_steps = after.n_steps - before.n_steps,
             n_rows = after.n_step_rows - after.n_step_prompt_rows - (before.n_step_rows - before.n_step_prompt_rows);
    assert_true(n_steps >= 900 / 63 && n_rows + 1 >= n_steps);
    tern_job_free(book);
    tern_job_free(stream);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits), cmocka_unit_test(test_cancel),  cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_shares), cmocka_unit_test(test_readers), cmocka_unit_test(test_prompt_beside),
    };
    return cmocka_run_group_tests_name("service queue", tests, NULL, NULL);
}
