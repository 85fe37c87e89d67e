// The null unit holds its callers to unit.h: every contract is broken once and must be told by name; bugs (which abort)
// are tried in a child process.
#include "base/base.h"
#include <setjmp.h>
#include <cmocka.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "unit/unit.h"
#include "../../common/tiny_model.h"

#define WINDOW 16
static const struct unit_driver *const d = &unit_null_driver;

struct bench {
    struct model *model;
    struct unit *unit;
    struct unit_weights *weights;
    struct arena arena;
    struct step_builder b;
    struct state_pool pool;
    int32_t blocks[2][4];
    struct prog *prog;
    struct unit_program *program;
    struct unit_buffer *logits, *argmax;
};

static struct prog *prog_make(const struct bench *g, struct prog_spec spec) {
    struct prog *p = NULL;
    struct tern_err err = {0};
    spec.window = WINDOW;
    spec.n_out_max = -1;
    if (prog_build(&p, g->model, &spec, &err) != TERN_OK) fail_msg("%s", err.message);
    return p;
}

static struct unit_buffer *buffer_make(struct bench *g, uint64_t bytes) {
    struct unit_buffer *b = NULL;
    assert_int_equal(d->buffer_alloc(g->unit, &b, bytes, NULL), TERN_OK);
    return b;
}

static int setup(void **state) {
    struct bench *g = mem_calloc(1, sizeof(*g));
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    g->model = tiny_model_create(&shape);
    arena_init(&g->arena, 0);
    assert_int_equal(d->open(&g->unit, &(struct unit_options){0}, NULL), TERN_OK);
    struct weights_info info;
    assert_int_equal(d->weights_import(g->unit, &g->weights, g->model, &(struct weights_options){0}, &info, NULL),
                     TERN_OK);
    g->prog = prog_make(g, (struct prog_spec){.kind = PROG_WHOLE, .outputs = PROG_OUT_LOGITS | PROG_OUT_ARGMAX});
    assert_int_equal(d->program_compile(g->unit, &g->program, g->prog, g->weights, NULL), TERN_OK);
    assert_int_equal(step_builder_init(&g->b, &g->arena, WINDOW, 3, 2, NULL), TERN_OK);
    g->pool = (struct state_pool){.n_blocks = 8, .n_slots = 3};
    assert_int_equal(state_layout_init(&g->pool.layout, g->model, OP_KV_F16, 0, 6, WINDOW, NULL), TERN_OK);
    uint64_t kv = 0, conv = 0;
    assert_true(state_kv_bytes(&g->pool.layout, 8, &kv) && state_conv_bytes(&g->pool.layout, 3, &conv));
    g->pool.kv = buffer_make(g, kv);
    g->pool.conv = buffer_make(g, conv);
    g->logits = buffer_make(g, WINDOW * 300 * sizeof(float));
    g->argmax = buffer_make(g, WINDOW * sizeof(struct prog_argmax));
    for (int i = 0; i < 8; i++) g->blocks[i % 2][i / 2] = i;
    *state = g;
    return 0;
}

static int teardown(void **state) {
    struct bench *g = *state;
    d->program_free(g->unit, g->program);
    struct unit_buffer *all[] = {g->pool.kv, g->pool.conv, g->logits, g->argmax};
    for (size_t i = 0; i < ARRAY_LEN(all); i++) d->buffer_free(g->unit, all[i]);
    d->weights_free(g->unit, g->weights);
    d->close(g->unit);
    prog_free(g->prog);
    tiny_model_free(g->model);
    arena_release(&g->arena);
    mem_free(g);
    return 0;
}

// Five rows of one sequence; the last two want output.
static struct step *step_make(struct bench *g) {
    step_begin(&g->b, &g->pool, 0);
    int seq = step_add_seq(&g->b, g->blocks[0], 4, 0, -1, 1);
    for (int i = 0; i < 5; i++) step_add_chain_row(&g->b, seq, 40 + i, i > 2);
    step_end(&g->b);
    g->b.step.ports[PORT_LOGITS].buf = g->logits;
    g->b.step.ports[PORT_ARGMAX].buf = g->argmax;
    return &g->b.step;
}

static void assert_refused(struct bench *g, const struct step *s, const char *words) {
    struct unit_event e;
    struct tern_err err = {0};
    assert_int_equal(d->submit(g->unit, g->program, s, &e, &err), TERN_INVALID_ARGUMENT);
    if (!strstr(err.message, words)) fail_msg("said \"%s\", not \"%s\"", err.message, words);
}

static void run(struct bench *g, struct unit_program *p, const struct step *s) {
    struct unit_event e;
    struct tern_err err = {0};
    if (d->submit(g->unit, p, s, &e, &err) != TERN_OK || d->event_wait(g->unit, &e, &err) != TERN_OK)
        fail_msg("%s", err.message);
}

static int32_t expected_id(int32_t token, int32_t pos) { return (token * 31 + pos * 7 + 1) % 300; }

static void test_answers(void **state) {
    struct bench *g = *state;
    run(g, g->program, step_make(g));
    const struct prog_argmax *best = d->buffer_host(g->argmax);
    const float *logits = d->buffer_host(g->logits);
    for (int i = 0; i < 2; i++) {
        int32_t id = expected_id(43 + i, 3 + i);
        assert_int_equal(best[i].id, id);
        assert_true(best[i].max == 1);
        for (int v = 0; v < 300; v++) assert_true(logits[i * 300 + v] == (v == id ? 1.0f : 0.0f));
    }
    // Again with other tokens: nothing of the first answer is left.
    struct step *s = step_make(g);
    g->b.rows[3].token = 7;
    run(g, g->program, s);
    assert_int_equal(best[0].id, expected_id(7, 3));
    float sum = 0;
    for (int v = 0; v < 600; v++) sum += logits[v];
    assert_true(sum == 2);
    struct unit_counters c;
    d->counters(g->unit, &c);
    assert_int_equal(c.n_steps, 2);
    assert_int_equal(c.n_rows, 10);
}

// A model cut in two answers as the whole.
static void test_ranges_answer_as_the_whole(void **state) {
    struct bench *g = *state;
    struct unit_buffer *rows = buffer_make(g, WINDOW * 64 * sizeof(float));
    struct step *s = step_make(g);
    s->ports[PORT_ROWS_OUT].buf = rows;
    s->ports[PORT_ROWS_IN].buf = rows;
    for (int part = 0; part < 2; part++) {
        struct prog *p = prog_make(g, (struct prog_spec){.kind = PROG_LAYERS,
                                                         .layer_begin = part ? 3 : 0,
                                                         .layer_end = part ? 6 : 3,
                                                         .outputs = part ? PROG_OUT_ARGMAX : 0});
        struct unit_program *c = NULL;
        assert_int_equal(d->program_compile(g->unit, &c, p, g->weights, NULL), TERN_OK);
        s->n_out = part ? 2 : 0;
        run(g, c, s);
        d->program_free(g->unit, c);
        prog_free(p);
    }
    const struct prog_argmax *best = d->buffer_host(g->argmax);
    assert_int_equal(best[1].id, expected_id(44, 4));
    d->buffer_free(g->unit, rows);
}

static void test_steps_are_checked(void **state) {
    struct bench *g = *state;
    struct step *s = step_make(g);
    g->b.rows[2].token = 300;
    assert_refused(g, s, "token 300");
    s = step_make(g);
    s->ports[PORT_LOGITS].buf = NULL;
    assert_refused(g, s, "port logits");
    s = step_make(g);
    s->ports[PORT_ARGMAX].offset = 15 * sizeof(struct prog_argmax);
    assert_refused(g, s, "port argmax: 16 bytes at 120 of a buffer of 128");
    s = step_make(g);
    s->ports[PORT_LOGITS].offset = UINT64_MAX - 3;
    assert_refused(g, s, "port logits");
    s = step_make(g);
    s->ports[PORT_LOGITS].buf = (struct unit_buffer *)(void *)g;
    assert_refused(g, s, "port logits: the buffer is not alive on this unit");
    struct state_pool pool = g->pool;
    s = step_make(g);
    s->pool = &pool;
    pool.n_blocks = 9;
    assert_refused(g, s, "K/V pool");
    pool = g->pool;
    pool.n_slots = 4;
    assert_refused(g, s, "conv pool");
    pool = g->pool;
    pool.conv = (struct unit_buffer *)(void *)g;
    assert_refused(g, s, "conv pool: the buffer is not alive");
    pool = g->pool;
    pool.layout.tag = (enum state_tag)9;
    assert_refused(g, s, "a pool of layout 9");
    run(g, g->program, step_make(g)); // none of these left a trace
}

static void test_programs(void **state) {
    struct bench *g = *state;
    struct unit_program *c = NULL;
    struct tern_err err = {0};
    struct unit_event e;
    assert_int_equal(d->submit(g->unit, (struct unit_program *)(void *)g, step_make(g), &e, &err),
                     TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "the program is not alive"));
    assert_int_equal(d->program_compile(g->unit, &c, g->prog, (struct unit_weights *)(void *)g, &err),
                     TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "weights are not alive"));
    struct prog *p = prog_make(g, (struct prog_spec){.kind = PROG_WHOLE, .numerics = PROG_CLASS_FP32});
    assert_int_equal(d->program_compile(g->unit, &c, p, g->weights, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "class 1 on weights of lfm2, class 0"));
    p->ops[1].kind = PROG_OP_COUNT;
    assert_int_equal(d->program_compile(g->unit, &c, p, g->weights, &err), TERN_INVALID_ARGUMENT);
    prog_free(p);
    // A program of one unit is not another's.
    struct unit *other = NULL;
    assert_int_equal(d->open(&other, &(struct unit_options){0}, NULL), TERN_OK);
    assert_int_equal(d->submit(other, g->program, step_make(g), &e, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_write(other, g->logits, 0, "x", 1, &err), TERN_INVALID_ARGUMENT);
    d->close(other);
}

static void test_buffers(void **state) {
    struct bench *g = *state;
    struct unit_buffer *b = NULL;
    struct tern_err err = {0};
    char host[100] = "0123456789", text[100] = {0};
    assert_int_equal(d->buffer_alloc(g->unit, &b, 0, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_alloc(g->unit, &b, UINT64_MAX, &err), TERN_NO_MEMORY);
    assert_int_equal(d->buffer_import(g->unit, &b, NULL, 5, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_import(g->unit, &b, host, sizeof(host), &err), TERN_OK);
    assert_ptr_equal(d->buffer_host(b), host);
    assert_int_equal(d->buffer_read(g->unit, b, 2, text, 3, &err), TERN_OK);
    assert_string_equal(text, "234");
    assert_int_equal(d->buffer_write(g->unit, b, 98, "ab", 2, &err), TERN_OK);
    assert_int_equal(d->buffer_write(g->unit, b, 99, "ab", 2, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_read(g->unit, b, UINT64_MAX, text, 2, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_copy(g->unit, b, 20, b, 0, 10, &err), TERN_OK);
    assert_memory_equal(host + 20, "0123456789", 10);
    assert_int_equal(d->buffer_copy(g->unit, b, 91, b, 0, 10, &err), TERN_INVALID_ARGUMENT);
    assert_int_equal(d->buffer_copy(g->unit, b, 0, b, 91, 10, &err), TERN_INVALID_ARGUMENT);
    d->buffer_free(g->unit, b);
    assert_int_equal(d->buffer_read(g->unit, b, 0, text, 1, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "not alive"));
}

static void test_events(void **state) {
    struct bench *g = *state;
    struct tern_err err = {0};
    struct unit_event e;
    struct step *s = step_make(g);
    assert_int_equal(d->submit(g->unit, g->program, s, &e, &err), TERN_OK);
    assert_true(d->event_poll(g->unit, &e));
    g->b.rows[1].token++;
    assert_int_equal(d->event_wait(g->unit, &e, &err), TERN_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "changed before it was waited for"));
    g->b.rows[1].token--;
    assert_int_equal(d->event_wait(g->unit, &(struct unit_event){e.serial + 1}, &err), TERN_INVALID_ARGUMENT);
    assert_false(d->event_poll(g->unit, &(struct unit_event){e.serial + 1}));
    assert_int_equal(d->event_wait(g->unit, &(struct unit_event){0}, &err), TERN_INVALID_ARGUMENT);
    int n = 0;
    while (d->submit(g->unit, g->program, s, &e, &err) == TERN_OK) n++;
    assert_int_equal(n, 64);
    assert_non_null(strstr(err.message, "none waited for"));
    assert_int_equal(d->event_wait(g->unit, &e, &err), TERN_OK); // the last: all before it too
    assert_int_equal(d->submit(g->unit, g->program, s, &e, &err), TERN_OK);
    assert_int_equal(d->event_wait(g->unit, &e, &err), TERN_OK);
}

static bool cancel(void *arg, uint64_t done, uint64_t total) {
    *(uint64_t *)arg = done + total;
    return false;
}

static void test_weights(void **state) {
    struct bench *g = *state;
    struct unit_weights *w = NULL;
    uint64_t seen = 0;
    struct weights_options o = {.on_progress = cancel, .on_progress_arg = &seen};
    assert_int_equal(d->weights_import(g->unit, &w, g->model, &o, NULL, NULL), TERN_CANCELLED);
    assert_int_equal(seen, 2 * g->model->n_bytes_file);
    assert_null(w);
}

static void test_state_convert(void **state) {
    struct bench *g = *state;
    uint8_t *kv = d->buffer_host(g->pool.kv), *conv = d->buffer_host(g->pool.conv);
    const struct state_layout *l = &g->pool.layout;
    for (uint64_t i = 0; i < 8 * l->block_bytes; i++) kv[i] = (uint8_t)(i / l->block_bytes);
    memset(conv + l->slot_bytes, 9, l->slot_bytes);
    int32_t to[] = {6, 7}, from[] = {2, 3};
    assert_int_equal(d->state_convert(g->unit, &g->pool, &g->pool, to, from, 2, 2, 1, NULL), TERN_OK);
    assert_int_equal(kv[6 * l->block_bytes], 2);
    assert_int_equal(kv[8 * l->block_bytes - 1], 3);
    assert_int_equal(conv[3 * l->slot_bytes - 1], 9);
    struct state_pool other = g->pool;
    other.layout.tag = (enum state_tag)2;
    assert_int_equal(d->state_convert(g->unit, &g->pool, &other, to, from, 2, 2, 1, NULL), TERN_UNSUPPORTED);
    other = g->pool;
    other.layout.kv_type = OP_KV_Q8;
    assert_int_equal(d->state_convert(g->unit, &g->pool, &other, to, from, 2, 2, 1, NULL), TERN_UNSUPPORTED);
}

static void test_out_of_memory(void **state) {
    struct bench *g = *state;
    struct unit *u = NULL;
    struct unit_buffer *b = NULL;
    struct unit_weights *w = NULL;
    struct unit_program *p = NULL;
    uint64_t live = mem_stats_get().n_live;
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(n, true);
        enum tern_status status = d->buffer_alloc(g->unit, &b, 4096, NULL);
        mem_fail_at(0, false);
        assert_int_equal(status, TERN_NO_MEMORY);
    }
    mem_fail_at(1, true);
    enum tern_status opened = d->open(&u, &(struct unit_options){0}, NULL);
    enum tern_status imported = d->weights_import(g->unit, &w, g->model, &(struct weights_options){0}, NULL, NULL);
    enum tern_status compiled = d->program_compile(g->unit, &p, g->prog, g->weights, NULL);
    mem_fail_at(0, false);
    assert_int_equal(opened, TERN_NO_MEMORY);
    assert_int_equal(imported, TERN_NO_MEMORY);
    assert_int_equal(compiled, TERN_NO_MEMORY);
    assert_int_equal(mem_stats_get().n_live, live);
}

// Bugs abort; each is made in a child.
static void bug_close_alive(struct bench *g) { d->close(g->unit); }
static void bug_free_twice(struct bench *g) {
    d->buffer_free(g->unit, g->argmax);
    d->buffer_free(g->unit, g->argmax);
}
static void bug_free_foreign(struct bench *g) { d->program_free(g->unit, (struct unit_program *)(void *)g); }
static void bug_free_used_weights(struct bench *g) { d->weights_free(g->unit, g->weights); }
static void bug_free_in_flight(struct bench *g) {
    struct unit_event e;
    d->submit(g->unit, g->program, step_make(g), &e, NULL);
    d->buffer_free(g->unit, g->logits);
}
static void bug_free_program_in_flight(struct bench *g) {
    struct unit_event e;
    d->submit(g->unit, g->program, step_make(g), &e, NULL);
    d->program_free(g->unit, g->program);
}

static void test_bugs(void **state) {
    void (*const bugs[])(struct bench *) = {bug_close_alive,       bug_free_twice,     bug_free_foreign,
                                            bug_free_used_weights, bug_free_in_flight, bug_free_program_in_flight};
    for (size_t i = 0; i < ARRAY_LEN(bugs); i++) {
        pid_t child = fork();
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            if (!freopen("/dev/null", "w", stderr)) _exit(2);
            bugs[i](*state);
            _exit(0);
        }
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT) fail_msg("bug %zu: status %d", i, status);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(test_answers),           TEST(test_ranges_answer_as_the_whole),
        TEST(test_steps_are_checked), TEST(test_programs),
        TEST(test_buffers),           TEST(test_events),
        TEST(test_weights),           TEST(test_state_convert),
        TEST(test_out_of_memory),     TEST(test_bugs),
    };
    return cmocka_run_group_tests_name("unit_null", tests, NULL, NULL);
}
