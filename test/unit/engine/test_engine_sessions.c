// Several sessions of one engine, and the memory that an engine says it needs: mixed answers are those of each alone
// (case H11), from one thread and from several; the worst case is computed, refused when too large, and kept (case
// Y01).
#include "engine_fixture.h"

#include <stdio.h>

#define SESSIONS 4

static void test_round_robin(void **state) {
    (void)state;
    static const char *const names[SESSIONS] = {"s21", "s05", "s02", "s15"};
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    struct tern_session *sessions[SESSIONS];
    struct tern_request *requests[SESSIONS];
    struct tern_err err = {0};
    char prompts[SESSIONS][256];
    o.n_sessions = SESSIONS;
    o.window = 7;
    struct tern_engine *e = fixture_engine(&o);
    for (int i = 0; i < SESSIONS; i++) {
        sessions[i] = fixture_session(e);
        struct tern_request_options r = script_request(script_get(names[i]), prompts[i]);
        fixture_must(tern_request_create(&requests[i], sessions[i], &r, &err), &err);
    }
    struct tern_session *fifth = NULL;
    assert_int_equal(tern_session_open(&fifth, e, &err), TERN_LIMIT);
    assert_non_null(strstr(err.message, "4 sessions"));
    assert_int_equal(tern_session_fork(&fifth, sessions[0], &err), TERN_LIMIT);
    bool done[SESSIONS] = {0};
    for (int n_done = 0; n_done < SESSIONS;)
        for (int i = 0; i < SESSIONS; i++) {
            struct tern_event ev;
            if (done[i]) continue;
            fixture_must(tern_request_next(requests[i], &ev, &err), &err);
            done[i] = ev.type == TERN_EVENT_DONE;
            n_done += done[i];
        }
    for (int i = 0; i < SESSIONS; i++) {
        struct seen seen = {0};
        const int32_t *ids = tern_request_ids(requests[i], &seen.n_ids);
        memcpy(seen.ids, ids, seen.n_ids * sizeof *ids);
        ids_check(&seen, script_get(names[i]), script_get(names[i])->n_ids, "round robin");
        tern_request_free(requests[i]);
        tern_session_close(sessions[i]);
    }
    tern_engine_close(e);
}

static struct tern_request_options ids_request(const int32_t *ids, int n, int n_max) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.prompt_ids = ids;
    o.n_prompt_ids = (size_t)n;
    o.n_max = n_max;
    o.ignore_eos = true;
    return o;
}

static void test_short_beside_long(void **state) {
    (void)state;
    static int32_t ids[900];
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    o.n_sessions = 2;
    struct tern_engine *e = fixture_engine(&o);
    struct tern_session *a = fixture_session(e), *b = fixture_session(e);
    struct tern_err err = {0};
    struct seen solo[2], mixed[2];
    struct tern_request *r[2];
    for (int i = 0; i < 900; i++) ids[i] = i ? 40 + i * 7 % 16000 : 1;
    struct tern_request_options shorter = ids_request(ids, 3, 40), longer = ids_request(ids, 900, 40);
    seen_run(&solo[0], a, &shorter);
    fixture_must(tern_session_truncate(a, 0, &err), &err);
    seen_run(&solo[1], a, &longer);
    fixture_must(tern_session_truncate(a, 0, &err), &err);
    fixture_must(tern_request_create(&r[0], a, &shorter, &err), &err);
    fixture_must(tern_request_create(&r[1], b, &longer, &err), &err);
    for (int i = 0; i < 5; i++) { // both in the middle of it
        struct tern_event ev;
        fixture_must(tern_request_next(r[i % 2], &ev, &err), &err);
    }
    for (int i = 0; i < 2; i++) {
        fixture_must(seen_pull(&mixed[i], r[i], &err), &err);
        assert_int_equal(mixed[i].n_ids, solo[i].n_ids);
        assert_memory_equal(mixed[i].ids, solo[i].ids, solo[i].n_ids * sizeof *solo[i].ids);
        tern_request_free(r[i]);
        seen_release(&mixed[i]);
        seen_release(&solo[i]);
    }
    tern_session_close(a);
    tern_session_close(b);
    tern_engine_close(e);
}

struct worker {
    struct tern_engine *engine;
    const char *name;
    int n_wrong;
};
static void worker_run(void *arg) {
    struct worker *w = arg;
    const struct script *script = script_get(w->name);
    struct tern_session *s;
    if (tern_session_open(&s, w->engine, NULL) != TERN_OK) {
        w->n_wrong++;
        return;
    }
    for (int round = 0; round < 8; round++) {
        char prompt[256];
        struct tern_request_options o = script_request(script, prompt);
        struct tern_request *r;
        struct tern_event ev = {0};
        if (tern_request_create(&r, s, &o, NULL) != TERN_OK) {
            w->n_wrong++;
            break;
        }
        while (ev.type != TERN_EVENT_DONE && tern_request_next(r, &ev, NULL) == TERN_OK) {
        }
        size_t n;
        const int32_t *ids = tern_request_ids(r, &n);
        w->n_wrong += n != (size_t)script->n_ids || memcmp(ids, script->ids, n * sizeof *ids) != 0;
        tern_request_free(r);
    }
    tern_session_close(s);
}

static void test_threads(void **state) {
    (void)state;
    static const char *const names[SESSIONS] = {"s21", "s05", "s40", "s15"};
    struct tern_engine_options o = fixture_options(SCRIPT_MODEL);
    struct os_thread *threads[SESSIONS];
    struct worker workers[SESSIONS];
    struct tern_err err = {0};
    o.n_sessions = SESSIONS;
    o.n_threads = 2;
    struct tern_engine *e = fixture_engine(&o);
    for (int i = 0; i < SESSIONS; i++) {
        workers[i] = (struct worker){.engine = e, .name = names[i]};
        fixture_must(os_thread_create(&threads[i], worker_run, &workers[i], &err), &err);
    }
    for (int i = 0; i < SESSIONS; i++) {
        os_thread_join(threads[i]);
        assert_int_equal(workers[i].n_wrong, 0);
    }
    tern_engine_close(e);
}

static void test_memory(void **state) {
    (void)state;
    static int32_t ids[250];
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    struct tern_engine *e = NULL;
    struct tern_session *sessions[SESSIONS];
    struct tern_model_info info;
    struct tern_err err = {0};
    o.n_sessions = SESSIONS;
    o.n_ctx = 256;
    uint64_t before = mem_stats_get().bytes_now;
    e = fixture_engine(&o);
    tern_engine_info(e, &info);
    // 6 attention layers, K and V of 2 heads of 64 in 2 bytes.
    assert_int_equal(info.bytes_kv_token, 6 * 2 * 2 * 64 * 2);
    assert_true(info.bytes_state_max >= SESSIONS * 256 * info.bytes_kv_token);
    uint64_t worst = info.bytes_weights + info.bytes_state_max + info.bytes_work;
    for (int i = 0; i < SESSIONS; i++) sessions[i] = fixture_session(e);
    for (int i = 0; i < (int)ARRAY_LEN(ids); i++) ids[i] = i ? 40 + i * 11 % 16000 : 1;
    for (int i = 0; i < SESSIONS; i++) { // fill every position of every session
        struct seen seen;
        struct tern_request_options r = ids_request(ids, 250, -1);
        seen_run(&seen, sessions[i], &r);
        assert_int_equal(seen.n_ids, 6);
        seen_release(&seen);
    }
    uint64_t used = mem_stats_get().bytes_now - before;
    print_message("told: weights %llu, state %llu, work %llu; used %llu\n", (unsigned long long)info.bytes_weights,
                  (unsigned long long)info.bytes_state_max, (unsigned long long)info.bytes_work,
                  (unsigned long long)used);
    assert_true((double)used <= 1.05 * (double)worst + (4 << 20)); // and the tokenizer's tables
    for (int i = 0; i < SESSIONS; i++) tern_session_close(sessions[i]);
    tern_engine_close(e);

    o.memory_max = worst + (48 << 20); // the estimate before loading rounds scratch memory up
    e = fixture_engine(&o);
    tern_engine_close(e);
    o.memory_max = worst / 2;
    e = NULL;
    assert_int_equal(tern_engine_open(&e, &o, &err), TERN_NO_MEMORY);
    assert_null(e);
    assert_non_null(strstr(err.message, "MiB"));
    assert_non_null(strstr(err.message, "256 positions"));
    o.memory_max = 0;
    o.n_ctx = 1 << 20;
    o.n_sessions = 256; // 750 GiB of cache
    assert_int_equal(tern_engine_open(&e, &o, &err), TERN_NO_MEMORY);
    assert_null(e);
}

static void test_what_to_open(void **state) {
    (void)state;
    struct tern_engine_options o = fixture_options(NULL);
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    o.shape = "lfm2-999b";
    assert_int_equal(tern_engine_open(&e, &o, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "lfm2-350m"));
    o.shape = NULL;
    assert_int_equal(tern_engine_open(&e, &o, &err), TERN_INVALID_ARGUMENT);
    o.model_path = PICO_MODEL;
    o.unit = "abacus";
    assert_int_equal(tern_engine_open(&e, &o, &err), TERN_NOT_FOUND);
    assert_non_null(strstr(err.message, "cpu"));
    assert_null(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_robin), cmocka_unit_test(test_short_beside_long), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_memory),      cmocka_unit_test(test_what_to_open),
    };
    return cmocka_run_group_tests_name("sessions side by side, and memory", tests, fixture_setup, fixture_teardown);
}
