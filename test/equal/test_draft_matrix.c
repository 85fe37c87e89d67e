// Speculation changes the time, never the text, in any combination: a pairwise covering array over prompt, kind of
// draft, budget, drafter, threads, cache type, window, where the state comes from, how tokens are chosen, and whether
// another answer is being made meanwhile. Each row is compared with plain decoding by one thread in an engine without a
// drafter. With arguments, `whole FILE [WORKERS]`: all 100 prompts to their end, greedy, in every kind, budget, thread
// count and state, by SHA-256 of the token ids. What is done stands in FILE, so that a stopped run goes on from there;
// 0 workers only say what is missing. Each has processors of its own: members of a team are pinned.
#define _GNU_SOURCE 1 // sched_setaffinity
#include "../common/drafter_folder.h"
#include "../common/prompt_file.h"
#include "../common/tiny_drafter_folder.h"
#include "../common/token_rule.h"
#include "../unit/engine/engine_fixture.h"

#ifdef __linux__
#include <sched.h>
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define DRAFTER TEST_MODELS "/pico-dspark.gguf"
#define TOKENS 32
#define PROMPTS 12
// Where $TERN_TEST_SHORT is set: slow builds, which look for more than wrong tokens. The script model with drafters of
// random weights runs every part of a round in a fortieth of the time; n-grams and the model itself draft well.
#define TOKENS_SHORT 16
#define PROMPT_SHORT                                                                       \
    "[{\"role\": \"system\", \"content\": \"one two three one two three one two three\"}," \
    " {\"role\": \"user\", \"content\": \"s20\"}]"
#define PROMPT_BESIDE "[{\"role\": \"user\", \"content\": \"s10\"}]"
#define ROWS_SHORT 12
#define PROMPT_EVERY 8
#define ROWS_MAX 256
#define WHOLE_TOKENS 160
#define KINDS_GOOD 4         // that must accept enough for a run to mean anything
#define COMBINATIONS_MAX 128 // of one thread count; an index is a byte
// Of the ids of the 100 answers, 160 tokens at most, int8 class: the bits of the class are the same everywhere.
#define WHOLE_SHA "e8f00211"

enum factor { F_PROMPT, F_KIND, F_BUDGET, F_DRAFTER, F_THREADS, F_KV, F_WINDOW, F_STATE, F_CHOICE, F_BESIDE, FACTORS };
enum { STATE_COLD, STATE_REUSED, STATE_FORK, STATE_FILE, STATES };
enum { CHOICE_GREEDY, CHOICE_WARM, CHOICE_PENALTIES, CHOICE_RULE, CHOICE_LOGPROBS, CHOICES };
enum { DRAFTER_DSPARK, DRAFTER_DFLASH, DRAFTER_MODEL, DRAFTERS };

static const struct {
    const char *name;
    enum tern_draft draft;
} kinds[] = {{"chain", TERN_DRAFT_CHAIN},        {"tree", TERN_DRAFT_TREE},
             {"biased", TERN_DRAFT_TREE_BIASED}, {"factorised", TERN_DRAFT_TREE_FACTORISED},
             {"ngram", TERN_DRAFT_NGRAM},        {"auto", TERN_DRAFT_AUTO}};
static const int budgets[] = {1, 4, 8, 16, 32, 48, 63};
static const enum tern_kv_type kv_types[] = {TERN_KV_F16, TERN_KV_Q8, TERN_KV_F32};
static const int windows[] = {64, 100, 256};
static int sizes[FACTORS] = {[F_PROMPT] = PROMPTS,
                             [F_KIND] = ARRAY_LEN(kinds),
                             [F_BUDGET] = ARRAY_LEN(budgets),
                             [F_DRAFTER] = DRAFTERS,
                             [F_THREADS] = 2,
                             [F_KV] = ARRAY_LEN(kv_types),
                             [F_WINDOW] = ARRAY_LEN(windows),
                             [F_STATE] = STATES,
                             [F_CHOICE] = CHOICES,
                             [F_BESIDE] = 2};
#define LEVELS_MAX 16
_Static_assert(PROMPTS <= LEVELS_MAX, "room for the levels of every factor");

static struct prompt_file file;
static bool is_short;
static int n_tokens = TOKENS;
static const char *target_path = PICO_MODEL, *dspark_path = DRAFTER;
static char dflash_path[256], tiny_path[256], state_path[256];

// ------------------------------------------------------------------------------------------------ the covering array

static bool covered[FACTORS][LEVELS_MAX][FACTORS][LEVELS_MAX];
static uint8_t rows[ROWS_MAX][FACTORS];
static int n_rows;

static int gain_of(const int *row, enum factor f, int level) { // pairs that this level would cover first
    int n = 0;
    for (int g = 0; g < FACTORS; g++)
        if (g != (int)f && row[g] >= 0) n += !covered[f][level][g][row[g]];
    return n;
}

static bool pair_next(int *row) { // an uncovered pair to begin a row with
    for (int f = 0; f < FACTORS; f++)
        for (int a = 0; a < sizes[f]; a++)
            for (int g = f + 1; g < FACTORS; g++)
                for (int b = 0; b < sizes[g]; b++)
                    if (!covered[f][a][g][b]) {
                        row[f] = a;
                        row[g] = b;
                        return true;
                    }
    return false;
}

// Greedy: an uncovered pair, then factor by factor the level that covers most, ties by turns.
static void rows_make(void) {
    for (;;) {
        int row[FACTORS];
        for (int f = 0; f < FACTORS; f++) row[f] = -1;
        if (!pair_next(row)) return;
        assert_true(n_rows < ROWS_MAX);
        for (int f = 0; f < FACTORS; f++) {
            if (row[f] >= 0) continue;
            int best = n_rows % sizes[f];
            for (int i = 0; i < sizes[f]; i++) {
                int level = (n_rows + i) % sizes[f];
                if (gain_of(row, (enum factor)f, level) > gain_of(row, (enum factor)f, best)) best = level;
            }
            row[f] = best;
        }
        for (int f = 0; f < FACTORS; f++) {
            rows[n_rows][f] = (uint8_t)row[f];
            for (int g = 0; g < FACTORS; g++) covered[f][row[f]][g][row[g]] = true;
        }
        n_rows++;
    }
}

// A few rows with every level of what a thread or a piece of memory may depend on; one cache type, one window.
static void rows_make_short(void) {
    for (int i = 0; i < ROWS_SHORT; i++) {
        uint8_t *row = rows[n_rows++];
        int turn = i / (int)ARRAY_LEN(kinds);
        row[F_PROMPT] = 0;
        row[F_KIND] = (uint8_t)(i % (int)ARRAY_LEN(kinds));
        row[F_BUDGET] = (uint8_t)(1 + turn);
        row[F_DRAFTER] = (uint8_t)((i + turn) % DRAFTERS);
        row[F_THREADS] = (uint8_t)((i / DRAFTERS + turn) % 2 == 0);
        row[F_STATE] = (uint8_t)((i + turn) % STATES);
        row[F_CHOICE] = (uint8_t)(i % CHOICES);
        row[F_BESIDE] = (uint8_t)(i % 2);
    }
}

// Rows of the same engine one behind the other; those that need no costs measured first.
static int row_order(const void *x, const void *y) {
    static const enum factor by[] = {F_DRAFTER, F_KV, F_WINDOW, F_THREADS};
    const uint8_t *a = x, *b = y;
    for (size_t i = 0; i < ARRAY_LEN(by); i++)
        if (a[by[i]] != b[by[i]]) return a[by[i]] - b[by[i]];
    return a[F_KIND] - b[F_KIND];
}

// ------------------------------------------------------------------------------------------------ requests

static struct tern_request_options request_make(int prompt, int choice) {
    static const struct tern_logit_bias bias[] = {{13, -INFINITY}, {500, 2.5f}};
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){file.lines[prompt].messages.data, file.lines[prompt].messages.len};
    o.tools_json = (struct tern_str){file.lines[prompt].tools.data, file.lines[prompt].tools.len};
    o.n_max = n_tokens;
    o.seed = 7;
    if (choice == CHOICE_WARM) {
        o.temperature = 0.8f;
        o.top_p = 0.9f;
    }
    if (choice == CHOICE_PENALTIES) {
        o.repeat_penalty = 1.3f;
        o.presence_penalty = 0.4f;
        o.logit_bias = bias;
        o.n_logit_bias = ARRAY_LEN(bias);
    }
    if (choice == CHOICE_RULE) {
        o.temperature = 0.9f;
        o.constraint = &token_rule;
    }
    if (choice == CHOICE_LOGPROBS) o.n_logprobs = 3;
    return o;
}

// Two answers by turns, event by event.
static void both_run(struct seen *a, struct tern_session *sa, const struct tern_request_options *oa, struct seen *b,
                     struct tern_session *sb, const struct tern_request_options *ob) {
    struct tern_request *ra = NULL, *rb = NULL;
    struct tern_err err = {0};
    struct tern_event ev;
    fixture_must(tern_request_create(&ra, sa, oa, &err), &err);
    fixture_must(tern_request_create(&rb, sb, ob, &err), &err);
    *b = (struct seen){0};
    for (bool done = false; !done;) { // the other one is half done when this one begins
        fixture_must(tern_request_next(rb, &ev, &err), &err);
        done = ev.type == TERN_EVENT_DONE;
        size_t n;
        tern_request_ids(rb, &n);
        if (n > (size_t)n_tokens / 2) break;
    }
    fixture_must(seen_pull(a, ra, &err), &err);
    while (ev.type != TERN_EVENT_DONE) fixture_must(tern_request_next(rb, &ev, &err), &err);
    const int32_t *ids = tern_request_ids(rb, &b->n_ids);
    memcpy(b->ids, ids, b->n_ids * sizeof *ids);
    tern_request_free(ra);
    tern_request_free(rb);
}

// ------------------------------------------------------------------------------------------------ references

static struct reference {
    bool made;
    size_t n_ids;
    int32_t ids[TOKENS];
    double logprob_sum;
} references[ARRAY_LEN(kv_types)][CHOICES][PROMPTS];
static struct tern_engine *plain_engine;
static struct tern_session *plain_session;
static int plain_kv = -1;

static void plain_close(void) {
    tern_session_close(plain_session);
    tern_engine_close(plain_engine);
    plain_session = NULL;
    plain_engine = NULL;
    plain_kv = -1;
}

static const struct reference *reference_get(int kv, int choice, int prompt) {
    struct reference *r = &references[kv][choice][prompt];
    struct tern_err err = {0};
    struct seen seen;
    if (r->made) return r;
    if (plain_kv != kv) {
        if (plain_kv >= 0) plain_close();
        struct tern_engine_options o = fixture_options(target_path);
        o.draft = TERN_DRAFT_OFF;
        o.kv_type = kv_types[kv];
        plain_engine = fixture_engine(&o);
        plain_session = fixture_session(plain_engine);
        plain_kv = kv;
    }
    struct tern_request_options o = request_make(prompt, choice);
    fixture_must(tern_session_truncate(plain_session, 0, &err), &err);
    seen_run(&seen, plain_session, &o);
    assert_int_equal(seen.usage.n_rounds, 0);
    memcpy(r->ids, seen.ids, seen.n_ids * sizeof *r->ids);
    r->n_ids = seen.n_ids;
    r->logprob_sum = seen.logprob_sum;
    r->made = true;
    seen_release(&seen);
    return r;
}

static void ids_same(const struct reference *want, const struct seen *got, const char *what) {
    for (size_t i = 0; i < want->n_ids && i < got->n_ids; i++)
        if (want->ids[i] != got->ids[i])
            fail_msg("%s: token %zu is %d, plain has %d", what, i, got->ids[i], want->ids[i]);
    if (want->n_ids != got->n_ids) fail_msg("%s: %zu tokens, plain has %zu", what, got->n_ids, want->n_ids);
}

// ------------------------------------------------------------------------------------------------ the rows

static struct tern_engine *engine_make(const uint8_t *row, bool measures) {
    const char *const drafters[] = {dspark_path, dflash_path, target_path}; // the model itself: one that is right
    struct tern_engine_options o = fixture_options(target_path);
    o.draft_path = drafters[row[F_DRAFTER]];
    o.draft = measures ? TERN_DRAFT_AUTO : TERN_DRAFT_CHAIN;
    o.n_threads = 1 + row[F_THREADS];
    o.kv_type = kv_types[row[F_KV]];
    o.window = windows[row[F_WINDOW]];
    o.n_sessions = 3;
    return fixture_engine(&o);
}

struct tally {
    int64_t rounds, tokens, drafted, accepted, cached;
};

static void row_run(struct tern_engine *e, const uint8_t *row, struct tally *tally) {
    struct tern_session *s = fixture_session(e), *beside = NULL, *fork = NULL;
    struct tern_err err = {0};
    struct seen seen, other;
    char what[160];
    int prompt = row[F_PROMPT];
    snprintf(what, sizeof what,
             "prompt %d, %s of %d, drafter %d, %d threads, cache %d, window %d, state %d, choice %d%s", prompt,
             kinds[row[F_KIND]].name, budgets[row[F_BUDGET]], row[F_DRAFTER], 1 + row[F_THREADS], row[F_KV],
             windows[row[F_WINDOW]], row[F_STATE], row[F_CHOICE], row[F_BESIDE] ? ", beside another" : "");
    struct tern_request_options o = request_make(prompt, row[F_CHOICE]), first = request_make(prompt, CHOICE_GREEDY);
    o.draft = first.draft = kinds[row[F_KIND]].draft;
    o.draft_max = first.draft_max = budgets[row[F_BUDGET]];
    first.n_max = n_tokens / 4; // of a state from before: another answer to the same prompt
    if (row[F_STATE] != STATE_COLD) {
        seen_run(&seen, s, &first);
        seen_release(&seen);
    }
    if (row[F_STATE] == STATE_FORK) fixture_must(tern_session_fork(&fork, s, &err), &err);
    if (row[F_STATE] == STATE_FILE) {
        fixture_must(tern_session_save(s, state_path, &err), &err);
        fixture_must(tern_session_truncate(s, 0, &err), &err);
        fixture_must(tern_session_load(s, state_path, &err), &err);
    }
    struct tern_session *at = fork ? fork : s;
    if (row[F_BESIDE]) {
        struct tern_request_options with = request_make((prompt + 5) % PROMPTS, CHOICE_GREEDY);
        with.draft = o.draft;
        with.draft_max = o.draft_max;
        beside = fixture_session(e);
        both_run(&seen, at, &o, &other, beside, &with);
        ids_same(reference_get(row[F_KV], CHOICE_GREEDY, (prompt + 5) % PROMPTS), &other, what);
    } else {
        seen_run(&seen, at, &o);
    }
    const struct reference *want = reference_get(row[F_KV], row[F_CHOICE], prompt);
    ids_same(want, &seen, what);
    if (want->logprob_sum != seen.logprob_sum) fail_msg("%s: other log-probabilities", what);
    if (row[F_STATE] != STATE_COLD) tally->cached += seen.usage.n_cached;
    tally->rounds += seen.usage.n_rounds;
    tally->tokens += seen.usage.n_round_tokens;
    tally->drafted += seen.usage.n_drafted;
    tally->accepted += seen.usage.n_accepted;
    seen_release(&seen);
    tern_session_close(fork);
    tern_session_close(beside);
    tern_session_close(s);
}

static void test_pairs(void **state) {
    (void)state;
    struct tally by_drafter[DRAFTERS] = {{0}}, by_kind[ARRAY_LEN(kinds)] = {{0}};
    struct tern_err err = {0};
    int n_engines = 0, n_good = 0;
    if (is_short)
        rows_make_short();
    else
        rows_make();
    qsort(rows, (size_t)n_rows, sizeof rows[0], row_order);
    for (int first = 0, end = 0; first < n_rows; first = end) {
        bool measures = false;
        uint8_t key[FACTORS], next[FACTORS];
        memcpy(key, rows[first], sizeof key);
        for (end = first; end < n_rows; end++) {
            memcpy(next, rows[end], sizeof next);
            next[F_KIND] = key[F_KIND];
            if (row_order(key, next) != 0) break;
            measures = measures || kinds[rows[end][F_KIND]].draft == TERN_DRAFT_AUTO;
        }
        struct tern_engine *e = engine_make(key, measures);
        n_engines++;
        for (int i = first; i < end; i++) {
            struct tally t = {0};
            row_run(e, rows[i], &t);
            struct tally *const sums[] = {&by_drafter[rows[i][F_DRAFTER]], &by_kind[rows[i][F_KIND]]};
            for (int k = 0; k < 2; k++) {
                sums[k]->rounds += t.rounds;
                sums[k]->tokens += t.tokens;
                sums[k]->drafted += t.drafted;
                sums[k]->accepted += t.accepted;
                sums[k]->cached += t.cached;
            }
        }
        tern_engine_close(e);
    }
    plain_close();
    print_message("%d rows, %d engines\n", n_rows, n_engines);
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        double mean = by_kind[k].rounds ? (double)by_kind[k].tokens / (double)by_kind[k].rounds : 0;
        print_message("%s: %.2f tokens a round\n", kinds[k].name, mean);
        n_good += mean > 1.5;
    }
    for (int d = 0; d < DRAFTERS; d++)
        print_message("drafter %d: %lld of %lld accepted, %lld positions reused\n", d,
                      (long long)by_drafter[d].accepted, (long long)by_drafter[d].drafted,
                      (long long)by_drafter[d].cached);
    if (!is_short) assert_true(n_good >= KINDS_GOOD); // or nothing was tested
    for (int d = 0; d < DRAFTERS; d++) {
        assert_true(by_drafter[d].accepted > 0);
        assert_true(by_drafter[d].cached > 0);
    }
    if (os_remove(state_path, &err) != TERN_OK) fail_msg("%s", err.message);
}

// ------------------------------------------------------------------------------------------------ the whole

static void digest_of(struct sha256 *sha, char out[65]) {
    static const char hex[] = "0123456789abcdef";
    uint8_t digest[32];
    sha256_final(sha, digest);
    for (int i = 0; i < 32; i++) {
        out[2 * i] = hex[digest[i] >> 4];
        out[2 * i + 1] = hex[digest[i] & 15];
    }
    out[64] = 0;
}

// All prompts in one combination; again from the state that each answer left, or cold. *mean: tokens a round.
static void combination_run(struct tern_engine *e, enum tern_draft draft, int budget, bool reuse, char digest[65],
                            double *mean) {
    struct tern_session *s = fixture_session(e);
    struct tern_err err = {0};
    struct sha256 sha;
    int64_t tokens = 0, rounds = 0;
    sha256_init(&sha);
    for (int p = 0; p < file.n; p++) {
        struct tern_request_options o = request_make(p, CHOICE_GREEDY);
        struct seen seen;
        o.n_max = WHOLE_TOKENS;
        o.draft = draft;
        o.draft_max = budget;
        fixture_must(tern_session_truncate(s, 0, &err), &err);
        for (int n = 0; n <= (int)reuse; n++) {
            seen_run(&seen, s, &o);
            if (n == (int)reuse) sha256_update(&sha, seen.ids, seen.n_ids * sizeof *seen.ids);
            tokens += seen.usage.n_round_tokens;
            rounds += seen.usage.n_rounds;
            seen_release(&seen);
        }
    }
    digest_of(&sha, digest);
    *mean = rounds > 0 ? (double)tokens / (double)rounds : 0;
    tern_session_close(s);
}

static bool is_done(const char *path, const char *name) {
    struct buf b;
    struct tern_err err;
    struct os_stat st;
    bool found = false;
    if (!os_stat_get(&st, path)) return false;
    buf_init(&b, 1u << 20);
    if (file_read_all(&b, path, &err) == TERN_OK) found = str_find(buf_str(&b), str_from(name), 0) != (size_t)-1;
    buf_release(&b);
    return found;
}

struct combination {
    int kind, budget, threads; // kind -1: plain
    bool reuse;
    char name[64]; // as it stands in the file
};

static enum tern_draft combination_draft(const struct combination *c) {
    return c->kind < 0 ? TERN_DRAFT_OFF : kinds[c->kind].draft;
}

// Those of a thread count that are not in the file, the slow ones first: the last ones end together.
static int combinations_missing(struct combination out[COMBINATIONS_MAX], const char *path, int threads) {
    int n = 0;
    for (int reuse = 1; reuse >= 0; reuse--)
        for (int b = (int)ARRAY_LEN(budgets) - 1; b >= 0; b--)
            for (int kind = b == 0 ? -1 : 0; kind < (int)ARRAY_LEN(kinds); kind++) {
                struct combination *c = &out[n];
                *c = (struct combination){kind, kind < 0 ? 0 : budgets[b], threads, reuse != 0, {0}};
                snprintf(c->name, sizeof c->name, "%s of %d, %d threads, %s:", kind < 0 ? "plain" : kinds[kind].name,
                         c->budget, threads, reuse ? "again" : "cold");
                n += !is_done(path, c->name);
            }
    return n;
}

// Processors index * n to index * n + n - 1 of those that this process may use, where the system can tell.
static void processors_take(int index, int n) {
#ifdef __linux__
    cpu_set_t all, own;
    int seen = 0;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && seen++ / n == index) CPU_SET(cpu, &own);
    if (CPU_COUNT(&own) == n) sched_setaffinity(0, sizeof own, &own);
#else
    (void)index, (void)n;
#endif
}

// Takes indices from the queue, a byte each, until it is empty. Returns how many had other tokens.
static int worker_run(const struct combination *list, int queue, const char *path, int threads) {
    struct tern_engine_options o = fixture_options(PICO_MODEL);
    uint8_t next;
    int n_wrong = 0;
    o.draft_path = DRAFTER;
    o.n_threads = threads;
    struct tern_engine *e = fixture_engine(&o);
    while (read(queue, &next, 1) == 1) {
        const struct combination *c = &list[next];
        char digest[65];
        double mean;
        combination_run(e, combination_draft(c), c->budget, c->reuse, digest, &mean);
        bool same = strncmp(digest, WHOLE_SHA, strlen(WHOLE_SHA)) == 0;
        n_wrong += !same;
        printf("%-44s %.16s %.2f tokens a round%s\n", c->name, digest, mean, same ? "" : "  OTHER TOKENS");
        fflush(stdout);
        if (!same) continue;
        FILE *out = fopen(path, "a");
        if (!out) fail_msg("%s cannot be written", path);
        fprintf(out, "%s %s %.3f\n", c->name, digest, mean); // one write at the end of the file: workers share it
        fclose(out);
    }
    tern_engine_close(e);
    return n_wrong;
}

// Returns whether a worker found other tokens or did not end well.
static bool workers_run(const char *path, int threads, int n_workers) {
    struct combination list[COMBINATIONS_MAX];
    uint8_t order[COMBINATIONS_MAX];
    int queue[2], n = combinations_missing(list, path, threads), status;
    bool failed = false;
    for (int i = 0; i < n; i++) order[i] = (uint8_t)i;
    if (n == 0 || n_workers == 0) return false;
    if (pipe(queue) != 0 || write(queue[1], order, (size_t)n) != n) return true;
    close(queue[1]);
    fflush(stdout);
    for (int i = 0; i < n_workers; i++) {
        pid_t pid = fork();
        if (pid < 0) return true;
        if (pid > 0) continue;
        processors_take(i, threads);
        _exit(worker_run(list, queue[0], path, threads) > 0);
    }
    close(queue[0]);
    for (int i = 0; i < n_workers; i++)
        if (wait(&status) < 0 || status != 0) failed = true;
    return failed;
}

// Kinds in which rounds gave more than 1.5 tokens in some combination: with fewer than KINDS_GOOD nothing was tested.
static int kinds_good(const char *path) {
    struct buf b;
    struct tern_err err;
    int n = 0;
    buf_init(&b, 1u << 20);
    if (file_read_all(&b, path, &err) == TERN_OK)
        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
            bool good = false;
            for (const char *line = b.data; line && *line; line = strchr(line, '\n'), line += line != NULL) {
                char kind[16];
                double mean;
                good |= sscanf(line, "%15s of %*d, %*d threads, %*s %*s %lf", kind, &mean) == 2 && mean > 1.5 &&
                        strcmp(kind, kinds[k].name) == 0;
            }
            n += good;
        }
    buf_release(&b);
    return n;
}

static int whole_run(const char *path, int n_workers) {
    bool failed = false;
    int n_missing = 0;
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 0, 1, 100);
    for (int threads = 1; threads <= 2; threads++) {
        struct combination list[COMBINATIONS_MAX];
        int n = n_workers / threads;
        failed |= workers_run(path, threads, n_workers > 0 && n == 0 ? 1 : n);
        n = combinations_missing(list, path, threads);
        for (int i = 0; i < n; i++) printf("missing: %s\n", list[i].name);
        n_missing += n;
    }
    prompt_file_release(&file);
    printf("%d combinations are missing%s\n", n_missing, failed ? "; one had other tokens or was stopped" : "");
    if (n_missing == 0 && kinds_good(path) < KINDS_GOOD) {
        printf("fewer than %d kinds give more than 1.5 tokens a round: this run is void\n", KINDS_GOOD);
        failed = true;
    }
    return failed || n_missing > 0;
}

// ------------------------------------------------------------------------------------------------ main

static void dflash_write(void) {
    struct model *target, *drafter;
    struct tern_err err = {0};
    fixture_must(model_open(&target, PICO_MODEL, &err), &err);
    fixture_must(model_open_drafter(&drafter, DRAFTER, target, &err), &err);
    drafter_folder_write(drafter, dflash_path, true);
    model_close(drafter);
    model_close(target);
}

static void short_setup(void) {
    target_path = SCRIPT_MODEL;
    dspark_path = tiny_path;
    tiny_drafter_write(target_path, tiny_path, false);
    tiny_drafter_write(target_path, dflash_path, true);
    n_tokens = TOKENS_SHORT;
    for (int i = 0; i < file.n; i++)
        file.lines[i] = (struct prompt_line){str_from(i == 0 ? PROMPT_SHORT : PROMPT_BESIDE), {0}};
}

static int setup(void **state) {
    fixture_setup(state);
    fixture_temp_path(dflash_path, "dflash");
    fixture_temp_path(tiny_path, "tiny-drafter");
    fixture_temp_path(state_path, "matrix");
    prompt_file_read(&file, TEST_DATA "/pico/prompts.jsonl", 0, PROMPT_EVERY, PROMPTS);
    is_short = env_get("TERN_TEST_SHORT") != NULL;
    if (is_short)
        short_setup();
    else
        dflash_write();
    return 0;
}

static int teardown(void **state) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s' '%s'", dflash_path, tiny_path);
    prompt_file_release(&file);
    return system(command) == 0 ? fixture_teardown(state) : -1;
}

int main(int argc, char **argv) {
    if ((argc == 3 || argc == 4) && strcmp(argv[1], "whole") == 0)
        return whole_run(argv[2], argc == 4 ? (int)strtol(argv[3], NULL, 10) : 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pairs)};
    return cmocka_run_group_tests_name("draft matrix", tests, setup, teardown);
}
