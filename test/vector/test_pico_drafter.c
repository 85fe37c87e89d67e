// pico's drafter against the float32 reference (test/data/pico/drafter.json): along 64 greedy tokens of 8 prompts, the
// proposals, confidences, base logits and hidden rows of the first rounds and the accepted length of every round; from
// the GGUF file and from a folder in Liquid AI's form. Rounds follow the reference's tokens, so each is judged alone.
#include "base/base.h"
#include "../common/drafter_folder.h"
#include "../common/json_tree.h"
#include "drafter_runner.h"
#include "golden_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#define TARGET TEST_MODELS "/pico.gguf"
#define DRAFTER TEST_MODELS "/pico-dspark.gguf"
#define PROPOSALS 9
#define ROUNDS_FULL 3
#define TOP 16
#define IDS_MAX (GOLDEN_IDS_MAX + GOLDEN_GREEDY_MAX)
#define FP32_ERROR_MAX 1e-4
// The int8 class gives the same bits everywhere; these bounds lie a little above what it gives: largest error of the
// base logits 0.024 of the row's largest, root mean square 0.0042, hidden row 0.037, 209 of 216 proposals, 298 of 303
// accepted. A wrong weight or position shows as errors above 0.3.
#define INT8_LOGITS_ERROR_MAX 0.03
#define INT8_LOGITS_RMS_MAX 0.005
#define INT8_HIDDEN_ERROR_MAX 0.05
#define INT8_CONFIDENCE_ERROR_MAX 0.05
#define INT8_PROPOSALS_MIN 0.95
#define INT8_ACCEPTED_ERROR_MAX 0.02

struct round {
    int pos, accepted;
    int32_t anchor, proposals[PROPOSALS];
    double confidence[PROPOSALS], logits[PROPOSALS][TOP], hidden[GOLDEN_FIRST];
    int32_t logit_ids[PROPOSALS][TOP];
};
struct want {
    struct round rounds[ROUNDS_FULL];
    int accepted[GOLDEN_GREEDY_MAX], n_accepted; // of every round
};
static struct golden *golden;
static struct want wants[GOLDEN_PROMPTS_MAX];

// ------------------------------------------------------------------------------------------------ the reference

static void round_take(struct round *r, const struct json_tree *from) {
    int k = 0;
    r->pos = (int)json_get(from, "anchor_position")->integer;
    r->anchor = (int32_t)json_get(from, "anchor_token")->integer;
    r->accepted = (int)json_get(from, "accepted")->integer;
    JSON_EACH(id, json_get(from, "proposals")) r->proposals[k++] = (int32_t)id->integer;
    assert_int_equal(k, PROPOSALS);
    k = 0;
    JSON_EACH(c, json_get(from, "confidence")) r->confidence[k++] = c->number;
    assert_int_equal(k, PROPOSALS);
    k = 0;
    JSON_EACH(row, json_get(from, "base_logits_top16")) {
        int i = 0, n = 0;
        assert_true(k < PROPOSALS);
        JSON_EACH(id, json_get(row, "ids")) r->logit_ids[k][i++] = (int32_t)id->integer;
        JSON_EACH(value, json_get(row, "values")) r->logits[k][n++] = value->number;
        assert_true(i == TOP && n == TOP);
        k++;
    }
    assert_int_equal(k, PROPOSALS);
    k = 0;
    JSON_EACH(value, json_get(from, "hidden_row0_first8")) r->hidden[k++] = value->number;
    assert_int_equal(k, GOLDEN_FIRST);
}

static int setup(void **state) {
    (void)state;
    struct json_file f;
    int n = 0;
    golden = golden_read(TEST_DATA "/pico/golden.json");
    json_file_read(&f, TEST_DATA "/pico/drafter.json");
    JSON_EACH(from, json_get(f.root, "prompts")) {
        struct want *w = &wants[n];
        int k = 0;
        assert_true(n < golden->n_prompts);
        assert_string_equal(json_get(from, "name")->text.data, golden->prompts[n].name);
        JSON_EACH(a, json_get(from, "accepted")) w->accepted[w->n_accepted++] = (int)a->integer;
        JSON_EACH(round, json_get(from, "rounds")) round_take(&w->rounds[k++], round);
        assert_int_equal(k, ROUNDS_FULL);
        n++;
    }
    assert_int_equal(n, golden->n_prompts);
    json_file_release(&f);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    golden_free(golden);
    return 0;
}

// ------------------------------------------------------------------------------------------------ comparing

struct outcome {
    double logits, confidence, hidden; // largest errors; logits and hidden relative to the row's largest stored value
    double logits_rms;
    int n_logits;
    int proposals_same, proposals; // of the rounds in full
    int rounds_same, rounds;       // whose accepted length is the reference's
    int accepted, accepted_want;   // sums
};

static void error_add(double *worst, double error) {
    if (!(error <= *worst)) *worst = error; // a NaN stays
}

// Confidences depend on the proposals before them, so they are compared up to the first other one.
static void round_compare(const struct drafter_runner *r, const struct round *w, const struct drafter_chain *c,
                          struct outcome *o) {
    bool same = true;
    for (int k = 0; k < PROPOSALS; k++) {
        const float *u = r->logits + (size_t)k * (size_t)r->drafter->hyper.n_vocab;
        for (int i = 0; i < TOP; i++) {
            double error = fabs((double)u[w->logit_ids[k][i]] - w->logits[k][i]) / w->logits[k][0];
            error_add(&o->logits, error);
            o->logits_rms += error * error;
            o->n_logits++;
        }
        if (same) error_add(&o->confidence, fabs(c->confidence[k] - w->confidence[k]));
        same = same && c->proposals[k] == w->proposals[k];
        o->proposals_same += c->proposals[k] == w->proposals[k];
        o->proposals++;
    }
    double size = 0;
    for (int i = 0; i < GOLDEN_FIRST; i++) size = fmax(size, fabs(w->hidden[i]));
    for (int i = 0; i < GOLDEN_FIRST; i++) error_add(&o->hidden, fabs((double)r->hidden[i] - w->hidden[i]) / size);
}

// One prompt: its features once, then rounds along the reference's tokens, injecting what each accepted.
static void prompt_run(struct drafter_runner *r, int prompt, struct outcome *o) {
    const struct golden_prompt *p = &golden->prompts[prompt];
    const struct want *w = &wants[prompt];
    int32_t ids[IDS_MAX];
    int n = p->n_ids + p->n_greedy, pos = p->n_ids, injected = 0;
    memcpy(ids, p->ids, (size_t)p->n_ids * sizeof *ids);
    memcpy(ids + p->n_ids, p->greedy, (size_t)p->n_greedy * sizeof *ids);
    drafter_features(r, ids, n);
    for (int i = 0; i < w->n_accepted; i++) {
        bool full = i < ROUNDS_FULL;
        struct drafter_chain c;
        drafter_inject(r, r->blocks, injected, pos, r->window);
        injected = pos;
        drafter_draft(r, r->blocks, pos, ids[pos]);
        drafter_chain_run(r, ids[pos], ids + pos + 1, n - pos - 1, !full, &c);
        if (full) {
            assert_int_equal(pos, w->rounds[i].pos);
            assert_int_equal(ids[pos], w->rounds[i].anchor);
            assert_int_equal(w->accepted[i], w->rounds[i].accepted);
            round_compare(r, &w->rounds[i], &c, o);
        }
        o->rounds++;
        o->rounds_same += c.accepted == w->accepted[i];
        o->accepted += c.accepted;
        o->accepted_want += w->accepted[i];
        pos += w->accepted[i] + 1;
    }
    assert_true(pos >= n - 1); // the reference's rounds cover all tokens
}

static void all_run(struct drafter_runner *r, struct outcome *o) {
    *o = (struct outcome){0};
    for (int i = 0; i < golden->n_prompts; i++) prompt_run(r, i, o);
    o->logits_rms = sqrt(o->logits_rms / o->n_logits);
}

static void outcome_print(const char *what, const struct outcome *o) {
    print_message("%s: proposals %d of %d, rounds %d of %d, accepted %d (%d); logits %.2g (rms %.2g), confidence %.2g, "
                  "hidden %.2g\n",
                  what, o->proposals_same, o->proposals, o->rounds_same, o->rounds, o->accepted, o->accepted_want,
                  o->logits, o->logits_rms, o->confidence, o->hidden);
}

static void runner_open(struct drafter_runner *r, const char *drafter, enum prog_class numerics) {
    const struct drafter_options o = {.target = TARGET,
                                      .drafter = drafter,
                                      .numerics = numerics,
                                      .kv_type = numerics == PROG_CLASS_FP32 ? OP_KV_F32 : OP_KV_F16,
                                      .window = 256,
                                      .n_ctx = IDS_MAX,
                                      .n_threads = 2};
    drafter_runner_open(r, &o);
}

static void fp32_check(struct drafter_runner *r, const char *what) {
    struct outcome o;
    all_run(r, &o);
    outcome_print(what, &o);
    assert_int_equal(o.proposals, golden->n_prompts * ROUNDS_FULL * PROPOSALS);
    assert_int_equal(o.proposals_same, o.proposals);
    assert_int_equal(o.rounds_same, o.rounds);
    assert_true(o.logits <= FP32_ERROR_MAX && o.confidence <= FP32_ERROR_MAX && o.hidden <= FP32_ERROR_MAX);
}

// ------------------------------------------------------------------------------------------------ tests

static void test_fp32(void **state) {
    (void)state;
    struct drafter_runner r;
    runner_open(&r, DRAFTER, PROG_CLASS_FP32);
    fp32_check(&r, "GGUF");
    drafter_runner_close(&r);
}

// The drafter as a folder of this process.
static void folder_make(char path[256], bool as_dflash) {
    struct model *target, *drafter;
    struct tern_err err = {0};
    const char *base = env_get("TMPDIR");
    snprintf(path, 256, "%s/tern_drafter_%d", base ? base : "/tmp", os_pid());
    if (model_open(&target, TARGET, &err) != TERN_OK) fail_msg("%s", err.message);
    if (model_open_drafter(&drafter, DRAFTER, target, &err) != TERN_OK) fail_msg("%s", err.message);
    drafter_folder_write(drafter, path, as_dflash);
    model_close(drafter);
    model_close(target);
}

static void folder_remove(const char *path) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static void test_folder(void **state) {
    (void)state;
    struct drafter_runner r;
    char path[256];
    folder_make(path, false);
    runner_open(&r, path, PROG_CLASS_FP32);
    assert_int_equal(r.drafter->hyper.rope, ROPE_INTERLEAVED);
    fp32_check(&r, "folder");
    drafter_runner_close(&r);
    folder_remove(path);
}

// The same weights as a DFlash drafter: no Markov head, and row i of a block proposes its own position's token, so the
// anchor's row is not read. Its logits are the reference's base logits from the second row on.
static void test_dflash(void **state) {
    (void)state;
    struct drafter_runner r;
    char path[256];
    double worst = 0;
    folder_make(path, true);
    runner_open(&r, path, PROG_CLASS_FP32);
    const struct model_drafter *d = r.drafter->drafter;
    assert_true(d->markov == MARKOV_NONE && d->first_row == 1 && d->n_rows == PROPOSALS && !d->conf);
    assert_int_equal(d->n_proposals, PROPOSALS - 1);
    for (int i = 0; i < golden->n_prompts; i++) {
        const struct golden_prompt *p = &golden->prompts[i];
        int32_t ids[IDS_MAX];
        memcpy(ids, p->ids, (size_t)p->n_ids * sizeof *ids);
        memcpy(ids + p->n_ids, p->greedy, (size_t)p->n_greedy * sizeof *ids);
        drafter_features(&r, ids, p->n_ids + p->n_greedy);
        for (int k = 0, injected = 0; k < ROUNDS_FULL; k++) {
            const struct round *w = &wants[i].rounds[k];
            struct drafter_chain c;
            drafter_inject(&r, r.blocks, injected, w->pos, r.window);
            injected = w->pos;
            drafter_draft(&r, r.blocks, w->pos, w->anchor);
            drafter_chain_run(&r, w->anchor, NULL, 0, false, &c);
            assert_int_equal(c.n, PROPOSALS - 1);
            for (int row = 1; row < PROPOSALS; row++) {
                const float *u = r.logits + (size_t)(row - 1) * (size_t)r.drafter->hyper.n_vocab;
                assert_int_equal(c.proposals[row - 1], w->logit_ids[row][0]);
                for (int j = 0; j < TOP; j++)
                    error_add(&worst, fabs((double)u[w->logit_ids[row][j]] - w->logits[row][j]) / w->logits[row][0]);
            }
        }
    }
    print_message("DFlash: logits %.2g\n", worst);
    assert_true(worst <= FP32_ERROR_MAX);
    drafter_runner_close(&r);
    folder_remove(path);
}

// Nothing fails with the wrong pairs, so this shows that the comparison would see them.
static void test_wrong_pairs(void **state) {
    (void)state;
    struct drafter_runner r;
    struct outcome o;
    runner_open(&r, DRAFTER, PROG_CLASS_FP32);
    r.drafter->hyper.rope = ROPE_INTERLEAVED;
    all_run(&r, &o);
    outcome_print("wrong pairs", &o);
    assert_true(o.proposals_same * 2 < o.proposals);
    assert_true(o.accepted * 10 < o.accepted_want * 8);
    drafter_runner_close(&r);
}

static void test_int8(void **state) {
    (void)state;
    struct drafter_runner r;
    struct outcome o;
    runner_open(&r, DRAFTER, PROG_CLASS_INT8);
    all_run(&r, &o);
    outcome_print("int8", &o);
    assert_true(o.logits <= INT8_LOGITS_ERROR_MAX && o.logits_rms <= INT8_LOGITS_RMS_MAX);
    assert_true(o.hidden <= INT8_HIDDEN_ERROR_MAX && o.confidence <= INT8_CONFIDENCE_ERROR_MAX);
    assert_true(o.proposals_same >= INT8_PROPOSALS_MIN * o.proposals);
    assert_true(abs(o.accepted - o.accepted_want) <= INT8_ACCEPTED_ERROR_MAX * o.accepted_want);
    drafter_runner_close(&r);
}

// ------------------------------------------------------------------------------------------------ ways to the context

#define TEXT_PROMPT 5 // 418 tokens: more than a window
#define PREFIX 100    // positions taken over: three whole blocks and a part

static uint8_t *kv_of(struct drafter_runner *r) { return unit_driver_of(r->unit)->buffer_host(r->pool.kv); }

// K/V of positions [0, n) of both tables are the same bytes; whole blocks, so n is a multiple of OP_BLOCK.
static bool kv_same(struct drafter_runner *r, const int32_t *a, const int32_t *b, int n) {
    size_t bytes = (size_t)r->pool.layout.block_bytes;
    for (int i = 0; i < n / OP_BLOCK; i++)
        if (memcmp(kv_of(r) + (size_t)a[i] * bytes, kv_of(r) + (size_t)b[i] * bytes, bytes) != 0) return false;
    return true;
}

static void ways_check(enum prog_class numerics) {
    struct drafter_runner r;
    const struct golden_prompt *p = &golden->prompts[TEXT_PROMPT];
    int n = p->n_ids / OP_BLOCK * OP_BLOCK, k = 0;
    int32_t other[IDS_MAX / OP_BLOCK + 1];
    struct tern_err err = {0};
    runner_open(&r, DRAFTER, numerics);
    size_t logits_bytes = PROPOSALS * (size_t)r.drafter->hyper.n_vocab * sizeof(float);
    float *logits = malloc(logits_bytes);
    assert_true(logits && n > PREFIX + OP_BLOCK && r.n_blocks <= (int)ARRAY_LEN(other));
    for (int i = 0; i < r.n_blocks; i++) other[i] = i; // the pool's other half
    drafter_features(&r, p->ids, p->n_ids);
    drafter_inject(&r, r.blocks, 0, n, r.window);
    drafter_draft(&r, r.blocks, n, p->ids[n]);
    memcpy(logits, r.logits, logits_bytes);
    static const int chunks[] = {1, 7, 32, 50};
    for (size_t i = 0; i < ARRAY_LEN(chunks); i++) {
        memset(kv_of(&r) + (size_t)other[0] * r.pool.layout.block_bytes, 0x5a,
               (size_t)r.n_blocks * r.pool.layout.block_bytes);
        drafter_inject(&r, other, 0, n, chunks[i]);
        assert_true(kv_same(&r, r.blocks, other, n));
        drafter_draft(&r, other, n, p->ids[n]);
        assert_memory_equal(logits, r.logits, logits_bytes);
    }
    // Drafts between the injections leave nothing behind.
    for (int at = 0; at < n; at += k) {
        k = MIN(1 + at % 10, n - at);
        drafter_inject(&r, other, at, at + k, k);
        drafter_draft(&r, other, at + k, p->ids[at + k]);
    }
    assert_true(kv_same(&r, r.blocks, other, n));
    assert_memory_equal(logits, r.logits, logits_bytes);
    // A prefix taken over from another sequence: whole blocks shared, the last copied; then the rest injected.
    uint64_t bytes = r.pool.layout.block_bytes;
    int whole = PREFIX / OP_BLOCK;
    for (int i = 0; i < whole; i++) other[i] = r.blocks[i];
    if (unit_driver_of(r.unit)->buffer_copy(r.unit, r.pool.kv, (uint64_t)other[whole] * bytes, r.pool.kv,
                                            (uint64_t)r.blocks[whole] * bytes, bytes, &err) != TERN_OK)
        fail_msg("%s", err.message);
    drafter_inject(&r, other, PREFIX, n, r.window);
    assert_true(kv_same(&r, r.blocks, other, n));
    drafter_draft(&r, other, n, p->ids[n]);
    assert_memory_equal(logits, r.logits, logits_bytes);
    free(logits);
    drafter_runner_close(&r);
}

static void test_ways(void **state) {
    (void)state;
    ways_check(PROG_CLASS_FP32);
    ways_check(PROG_CLASS_INT8);
}

// ------------------------------------------------------------------------------------------------ cost

#define COST_RUNS 15

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Milliseconds of one call of each kind, best and median; printed, not judged: machines differ.
static void test_cost(void **state) {
    (void)state;
    struct drafter_runner r;
    const struct golden_prompt *p = &golden->prompts[TEXT_PROMPT];
    double draft[COST_RUNS], few[COST_RUNS], many[COST_RUNS];
    runner_open(&r, DRAFTER, PROG_CLASS_INT8);
    drafter_features(&r, p->ids, p->n_ids);
    int n = MIN(p->n_ids, r.window);
    for (int i = 0; i < COST_RUNS; i++) {
        uint64_t start = clock_ns();
        drafter_inject(&r, r.blocks, 0, n, n);
        many[i] = (double)(clock_ns() - start) * 1e-6 / n;
        start = clock_ns();
        drafter_inject(&r, r.blocks, n - 4, n, 4);
        few[i] = (double)(clock_ns() - start) * 1e-6 / 4;
        start = clock_ns();
        drafter_draft(&r, r.blocks, n, p->greedy[0]);
        draft[i] = (double)(clock_ns() - start) * 1e-6;
    }
    double *const lists[] = {draft, few, many};
    for (int i = 0; i < 3; i++) qsort(lists[i], COST_RUNS, sizeof(double), by_value);
    char text[24];
    print_message("int8, weights %s beside the target's; behind %d positions, best (median) of %d in ms:\n",
                  bytes_format(r.info.bytes, text), n, COST_RUNS);
    print_message("a draft %.3f (%.3f), a row injected by 4 %.4f (%.4f), by %d %.4f (%.4f)\n", draft[0],
                  draft[COST_RUNS / 2], few[0], few[COST_RUNS / 2], n, many[0], many[COST_RUNS / 2]);
    drafter_runner_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fp32),        cmocka_unit_test(test_folder), cmocka_unit_test(test_dflash),
        cmocka_unit_test(test_wrong_pairs), cmocka_unit_test(test_int8),   cmocka_unit_test(test_ways),
        cmocka_unit_test(test_cost),
    };
    return cmocka_run_group_tests_name("pico's drafter", tests, setup, teardown);
}
