// tern bench --replay: what speculation gains where real weights are replaced by random ones of a named shape. Drafts,
// verify steps and commits are executed in full; only what is accepted is not decided by the random model but taken
// from a record of a trained pair (`tern study acceptance --paths`): at every place of every recorded answer, which
// nodes of a tree of 63 lie on the text, and how far n-grams would have got. The tree that is verified has the recorded
// path in it, so the commit is a real one too.
//
// Modes take turns prompt by prompt in changing order. Prompts are run before their answers, and not counted: they cost
// the same in every mode.
#include "base/base.h"
#include "app/app.h"

#include <stdlib.h>

#include "bench_replay.h"
#include "bench_spec.h"
#include "app/study/study_runner.h"
#include "app/study/study_shape.h"

#define FILE_MAX (64u << 20)
#define CATEGORIES_MAX 16
#define DRAWS 2000
#define CTX 2048
#define MEASURE_PASSES 6
#define RECORD_ROUNDS 3000

static const struct replay_mode {
    const char *name;
    int budget; // -1: auto
} modes[] = {{"plain", 0}, {"tree4", 4}, {"tree8", 8}, {"tree16", 16}, {"tree46", 46}, {"auto", -1}};
#define MODES_N ((int)ARRAY_LEN(modes))
enum { M_PLAIN = 0, M_AUTO = 5 };

struct anchor {
    uint8_t text;      // enum width_class
    int match, ngrams; // length of the match, tokens of its continuation that came
    struct accept_path path;
};
struct record {
    int category, n_prompt, first, n_anchors; // anchors from `first` on
    double seconds[MODES_N];
    int64_t rounds[MODES_N];
};
struct bench {
    const struct command *command;
    const struct replay_bench_opts *o;
    struct buf file;
    struct record *records; // [n]
    struct anchor *anchors;
    int n, n_anchors;
    char categories[CATEGORIES_MAX][32];
    int n_categories;
    struct model *target, *file_drafter;
    struct shape_drafter *shape_drafter;
    const struct model *drafter;
    struct study_runner *runner;
    struct draft_auto chooser;
    struct width_costs costs; // as measured before the first round
    int32_t *ids;             // [CTX] of any text
    struct buf times;         // recorded rounds
};

// ------------------------------------------------------------------------------------------------------------ records

static struct str word_next(struct str *s) {
    while (s->len > 0 && *s->data == ' ') *s = (struct str){s->data + 1, s->len - 1};
    size_t n = 0;
    while (n < s->len && s->data[n] != ' ') n++;
    struct str w = {s->data, n};
    *s = (struct str){s->data + n, s->len - n};
    return w;
}

static bool int_next(struct str *s, int64_t lo, int64_t hi, int *out) {
    int64_t v = 0;
    if (!str_to_i64(word_next(s), &v) || v < lo || v > hi) return false;
    *out = (int)v;
    return true;
}

static int category_of(struct bench *b, struct str name) {
    for (int i = 0; i < b->n_categories; i++)
        if (str_eqz(name, b->categories[i])) return i;
    if (b->n_categories == CATEGORIES_MAX || name.len == 0 || name.len >= sizeof b->categories[0]) return -1;
    memcpy(b->categories[b->n_categories], name.data, name.len);
    return b->n_categories++;
}

static bool record_parse(struct bench *b, struct str line) {
    struct record *r = &b->records[b->n++];
    word_next(&line);
    *r = (struct record){.category = category_of(b, word_next(&line)), .first = b->n_anchors};
    word_next(&line);
    return r->category >= 0 && int_next(&line, 1, CTX / 2, &r->n_prompt) && int_next(&line, 0, CTX / 2, &r->n_anchors);
}

static bool anchor_parse(struct bench *b, struct str line) {
    struct anchor *a = &b->anchors[b->n_anchors++];
    int text = 0, last = 0;
    *a = (struct anchor){.path = {.n = 1}};
    if (!int_next(&line, 0, WIDTH_CLASSES - 1, &text) || !int_next(&line, 0, CTX, &a->match) ||
        !int_next(&line, 0, TREE_NODES_MAX, &a->ngrams))
        return false;
    a->text = (uint8_t)text;
    while (line.len > 0) {
        int node = 0;
        if (a->path.n == TREE_NODES_MAX || !int_next(&line, last + 1, TREE_NODES_MAX - 1, &node)) return false;
        a->path.nodes[a->path.n++] = (int16_t)(last = node);
    }
    return true;
}

static enum tern_status records_read(struct bench *b, struct tern_err *err) {
    buf_init(&b->file, FILE_MAX);
    TRY(file_read_all(&b->file, b->o->paths, err));
    size_t lines = 1;
    for (size_t i = 0; i < b->file.len; i++) lines += b->file.data[i] == '\n';
    b->records = mem_calloc(lines, sizeof *b->records);
    b->anchors = mem_calloc(lines, sizeof *b->anchors);
    if (!b->records || !b->anchors) return err_set(err, TERN_NO_MEMORY, "no memory for %zu lines", lines);
    struct str text = buf_str(&b->file);
    int number = 0, wanted = 0;
    for (size_t at = 0; at < text.len; number++) {
        size_t end = at;
        while (end < text.len && text.data[end] != '\n') end++;
        struct str line = {text.data + at, end - at};
        bool head = str_starts(line, STR("prompt "));
        at = end + 1;
        if (head && wanted > 0) break;
        bool fine = head ? record_parse(b, line) : wanted > 0 && anchor_parse(b, line);
        if (!fine)
            return err_set(err, TERN_BAD_FORMAT, "%s, line %d: not a line of recorded paths", b->o->paths, number + 1);
        wanted = head ? b->records[b->n - 1].n_anchors : wanted - 1;
    }
    if (wanted > 0 || b->n == 0)
        return err_set(err, TERN_BAD_FORMAT, "%s: %d lines are missing at the end", b->o->paths, wanted);
    return TERN_OK;
}

static void records_thin(struct bench *b, int n_each) {
    int seen[CATEGORIES_MAX] = {0}, total[CATEGORIES_MAX] = {0}, kept = 0;
    for (int i = 0; i < b->n; i++) total[b->records[i].category]++;
    for (int i = 0; i < b->n; i++) {
        int k = b->records[i].category, at = seen[k]++;
        if (total[k] <= n_each || (at + 1) * n_each / total[k] > at * n_each / total[k])
            b->records[kept++] = b->records[i];
    }
    b->n = kept;
}

// ------------------------------------------------------------------------------------------------------------ rounds

// A tree of n nodes with the path in it; all other nodes are children of the root.
static void tree_make(const struct bench *b, const struct accept_path *path, int n, struct token_tree *t) {
    token_tree_init(t, b->ids[0]);
    for (int i = 1, on = 1, tip = 0; i < n; i++) {
        bool in_path = on < path->n && path->nodes[on] == i;
        int added = token_tree_add(t, in_path ? tip : 0, b->ids[i], -(float)i);
        if (in_path) {
            tip = added;
            on++;
        }
    }
}

// One round of n_drafted tokens by a source; *path: what it accepts. Nothing drafted: a plain step.
static enum tern_status round_run(struct bench *b, const struct anchor *a, enum draft_source source, int n_drafted,
                                  struct accept_path *path, uint64_t *draft_ns, struct tern_err *err) {
    const struct prog_argmax *rows;
    struct token_tree t;
    uint64_t start = clock_ns();
    int32_t next;
    *path = (struct accept_path){.n = 1};
    *draft_ns = 0;
    if (n_drafted == 0) return study_runner_feed(b->runner, b->ids, 1, &next, err);
    if (source == DRAFT_NGRAMS) {
        for (int i = 1; i <= MIN(a->ngrams, n_drafted); i++) path->nodes[path->n++] = (int16_t)i;
    } else {
        *path = a->path;
        path->n = accept_tokens(&a->path, n_drafted);
        token_tree_init(&t, b->ids[study_runner_len(b->runner) % 512]);
        TRY(study_runner_propose(b->runner, TREE_CONDITIONED, study_runner_len(b->runner), 1 + n_drafted, &t, err));
    }
    tree_make(b, path, 1 + n_drafted, &t);
    *draft_ns = clock_ns() - start;
    TRY(study_runner_verify(b->runner, &t, &rows, err));
    return study_runner_commit(b->runner, path, err);
}

static enum tern_status prompt_feed(struct bench *b, const struct record *r, struct tern_err *err) {
    int32_t next;
    struct token_tree t;
    study_runner_clear(b->runner);
    TRY(study_runner_feed(b->runner, b->ids, r->n_prompt, &next, err));
    token_tree_init(&t, b->ids[0]);
    return study_runner_propose(b->runner, TREE_CHAIN, r->n_prompt, 2, &t, err); // the drafter has seen the prompt
}

static enum tern_status answer_run(struct bench *b, struct record *r, int mode, struct tern_err *err) {
    TRY(prompt_feed(b, r, err));
    uint64_t begin = clock_ns();
    int behind = 0;
    struct draft_answer answer = {.model = {0}};
    for (int at = 0; at < r->n_anchors; r->rounds[mode]++) {
        const struct anchor *a = &b->anchors[r->first + at];
        int left = r->n_anchors - at, ctx = study_runner_len(b->runner);
        struct draft_place place = {.text = (enum width_class)a->text,
                                    .ctx = ctx,
                                    .behind = behind,
                                    .budget_max = 63,
                                    .match = a->match,
                                    .answer = &answer};
        struct draft_round round = {.source = DRAFT_MODEL, .budget = modes[mode].budget};
        struct accept_path path;
        uint64_t draft_ns, start = clock_ns();
        if (mode == M_AUTO) draft_auto_choose(&b->chooser, &place, &round);
        TRY(round_run(b, a, round.source, round.budget, &path, &draft_ns, err));
        if (mode == M_AUTO)
            draft_auto_learn(&b->chooser, &answer, &round, round.budget, path.n <= left ? &path : NULL,
                             (double)draft_ns, (double)(clock_ns() - start));
        behind = round.budget > 0 && round.source == DRAFT_MODEL ? path.n : behind + path.n;
        at += path.n;
    }
    r->seconds[mode] += (double)(clock_ns() - begin) * 1e-9;
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------ curves

static enum tern_status round_time(struct bench *b, int n_drafted, uint64_t *draft_ns, uint64_t *step_ns,
                                   struct tern_err *err) {
    const struct anchor none = {.path = {.n = 1}};
    struct accept_path path;
    uint64_t start = clock_ns(), draft = 0;
    TRY(round_run(b, &none, DRAFT_MODEL, n_drafted, &path, &draft, err));
    *step_ns = MIN(*step_ns, clock_ns() - start - draft);
    *draft_ns = MIN(*draft_ns, draft);
    return TERN_OK;
}

// As an engine does when it opens: a few passes, the least of each.
static enum tern_status curves_measure(struct bench *b, struct tern_err *err) {
    static const int16_t rows[] = {1, 2, 3, 5, 9, 17, 33, 64};
    enum { N = ARRAY_LEN(rows) };
    uint64_t step[N], draft[N];
    struct record r = {.n_prompt = 64};
    for (int i = 0; i < N; i++) step[i] = draft[i] = UINT64_MAX;
    TRY(prompt_feed(b, &r, err));
    for (int pass = 0; pass < MEASURE_PASSES; pass++)
        for (int i = 0; i < N; i++) TRY(round_time(b, rows[i] - 1, &draft[i], &step[i], err));
    b->costs = (struct width_costs){.n_rows = N, .n_ctx = 1, .draft = {(float)draft[1]}};
    for (int i = 0; i < N; i++) {
        b->costs.rows[i] = rows[i];
        b->costs.verify[0][i] = (float)step[i];
        if (i > 0) b->costs.verify[0][i] = MAX(b->costs.verify[0][i], b->costs.verify[0][i - 1]);
    }
    b->costs.draft_node = draft[5] > draft[1] ? (float)(draft[5] - draft[1]) / (float)(rows[5] - rows[1]) : 0;
    draft_auto_init(&b->chooser, true);
    return draft_auto_costs(&b->chooser, &b->costs, err);
}

// Rounds of random widths, one line each: drafted tokens, time of the draft, of the whole round, in ns.
static enum tern_status times_record(struct bench *b, struct tern_err *err) {
    static const uint8_t budgets[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 46, 63};
    struct record r = {.n_prompt = 64};
    uint64_t state = (uint64_t)b->o->seed;
    TRY(prompt_feed(b, &r, err));
    for (int i = 0; i < RECORD_ROUNDS; i++) {
        const struct anchor none = {.path = {.n = 1}};
        struct accept_path path;
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        int pick = (int)(state >> 33) % 2, n = pick ? budgets[(state >> 40) % ARRAY_LEN(budgets)] : 0;
        if (study_runner_len(b->runner) > CTX / 4) TRY(prompt_feed(b, &r, err));
        uint64_t start = clock_ns(), draft = 0;
        TRY(round_run(b, &none, DRAFT_MODEL, n, &path, &draft, err));
        buf_putf(&b->times, "%d %llu %llu\n", n, (unsigned long long)draft, (unsigned long long)(clock_ns() - start));
    }
    if (b->times.failed) return err_set(err, TERN_NO_MEMORY, "no memory for the times");
    return file_write_atomic(b->o->record, b->times.data, b->times.len, err);
}

// ------------------------------------------------------------------------------------------------------------ figures

static double ratio(const struct bench *b, int category, int mode, const int *weights) {
    double own = 0, plain = 0;
    for (int i = 0; i < b->n; i++) {
        if (category >= 0 && b->records[i].category != category) continue;
        int w = weights ? weights[i] : 1;
        own += w * b->records[i].seconds[mode];
        plain += w * b->records[i].seconds[M_PLAIN];
    }
    return own > 0 ? plain / own : 0;
}

static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

// 95 % by bootstrap of prompts within categories.
static void interval_get(const struct bench *b, int category, int mode, double *lo, double *hi) {
    double draws[DRAWS];
    int *weights = mem_calloc((size_t)b->n, sizeof *weights);
    uint64_t state = (uint64_t)b->o->seed;
    *lo = *hi = 0;
    for (int d = 0; d < DRAWS && weights; d++) {
        memset(weights, 0, (size_t)b->n * sizeof *weights);
        for (int i = 0; i < b->n; i++)
            for (;;) { // another prompt of the same category
                state = state * 6364136223846793005ull + 1442695040888963407ull;
                int k = (int)((state >> 33) % (uint64_t)b->n);
                if (b->records[k].category != b->records[i].category) continue;
                weights[k]++;
                break;
            }
        draws[d] = ratio(b, category, mode, weights);
    }
    if (weights) {
        qsort(draws, DRAWS, sizeof *draws, double_order);
        *lo = draws[DRAWS / 40];
        *hi = draws[DRAWS - 1 - DRAWS / 40];
    }
    mem_free(weights);
}

static bool mode_runs(const struct bench *b, int mode) {
    return bench_mode_wanted(b->o->modes, modes[mode].name, modes[M_PLAIN].name);
}

static void figures_of(const struct bench *b, int category, int mode, double *per_round, double *per_second) {
    double tokens = 0, rounds = 0, seconds = 0;
    for (int i = 0; i < b->n; i++) {
        if (category >= 0 && b->records[i].category != category) continue;
        tokens += b->records[i].n_anchors;
        rounds += (double)b->records[i].rounds[mode];
        seconds += b->records[i].seconds[mode];
    }
    *per_round = rounds > 0 ? tokens / rounds : 0;
    *per_second = seconds > 0 ? tokens / seconds : 0;
}

static void results_print(const struct bench *b) {
    char target[24], own[24];
    bool json = b->o->json;
    uint64_t own_bytes = b->shape_drafter ? shape_drafter_bytes(b->shape_drafter) : shape_bytes(b->drafter);
    if (json) {
        out_puts("{\"model\": ");
        out_quoted(b->target->name);
        out_putf(", \"bytes\": %llu, \"drafter_bytes\": %llu, \"prompts\": %d, \"modes\": {",
                 (unsigned long long)shape_bytes(b->target), (unsigned long long)own_bytes, b->n);
    } else
        out_putf("%s, %s; drafter's own weights %s; %d recorded prompts\n%-8s %-8s %12s %10s %8s  %s\n",
                 b->target->name, bytes_format(shape_bytes(b->target), target), bytes_format(own_bytes, own), b->n,
                 "mode", "category", "tokens/round", "tokens/s", "x plain", "95 %");
    for (int m = 0; m < MODES_N; m++) {
        if (!mode_runs(b, m)) continue;
        if (json) out_putf("%s\"%s\": {", m ? ", " : "", modes[m].name);
        for (int k = -1; k < b->n_categories; k++) {
            double per_round, per_second, lo, hi, r = ratio(b, k, m, NULL);
            const char *name = k < 0 ? "all" : b->categories[k];
            figures_of(b, k, m, &per_round, &per_second);
            interval_get(b, k, m, &lo, &hi);
            if (json) {
                out_puts(k < 0 ? "" : ", ");
                out_quoted(name);
                out_putf(": {\"tokens_per_round\": %.4f, \"tokens_per_second\": %.3f, \"over_plain\": %.4f, "
                         "\"low\": %.4f, \"high\": %.4f}",
                         per_round, per_second, r, lo, hi);
            } else
                out_putf("%-8s %-8s %12.2f %10.1f %8.2f  [%.2f, %.2f]\n", k < 0 ? modes[m].name : "", name, per_round,
                         per_second, r, lo, hi);
        }
        if (json) out_puts("}");
    }
    if (json) out_puts("}}\n");
}

// ------------------------------------------------------------------------------------------------------------ whole

static enum tern_status models_open(struct bench *b, struct tern_err *err) {
    const struct replay_bench_opts *o = b->o;
    if (!o->shape) {
        const char *path = o->model;
        struct str data = path ? (struct str){0} : builtin_model(&path);
        TRY(path ? model_open(&b->target, path, err)
                 : model_open_memory(&b->target, "built-in model", data.data, data.len, err));
        TRY(model_open_drafter(&b->file_drafter, o->drafter, b->target, err));
        b->drafter = b->file_drafter;
        return TERN_OK;
    }
    const struct model_shape *shape = model_shapes;
    enum format f;
    while (shape->name && strcmp(shape->name, o->shape) != 0) shape++;
    if (!shape->name) return err_set(err, TERN_NOT_FOUND, "no shape '%s'; `tern bench --help` names them", o->shape);
    if (!format_from_name(o->format ? o->format : "Q4_0", &f))
        return err_set(err, TERN_INVALID_ARGUMENT, "unknown weight format '%s'", o->format);
    enum format embd = f == FORMAT_Q4_0 || f == FORMAT_Q4_1 || f == FORMAT_Q4_K ? FORMAT_Q6_K : f;
    TRY(model_create_shape(&b->target, shape, f, embd, (uint64_t)o->seed, err));
    TRY(shape_drafter_create(&b->shape_drafter, b->target, f, o->share, (uint64_t)o->seed, err));
    b->drafter = shape_drafter_model(b->shape_drafter);
    return TERN_OK;
}

static enum tern_status all_run(struct bench *b, struct tern_err *err) {
    TRY(records_read(b, err));
    if (b->o->n_each > 0) records_thin(b, b->o->n_each);
    TRY(models_open(b, err));
    b->ids = mem_calloc(CTX, sizeof *b->ids);
    if (!b->ids) return err_set(err, TERN_NO_MEMORY, "no memory for ids");
    for (int i = 0; i < CTX; i++)
        b->ids[i] = (int32_t)((uint32_t)i * 2654435761u % (uint32_t)b->target->hyper.n_vocab_used);
    struct study_options so = {.target = b->target,
                               .drafter = b->drafter,
                               .numerics = PROG_CLASS_INT8,
                               .n_threads = b->o->n_threads,
                               .n_ctx = CTX};
    TRY(study_runner_create(&b->runner, &so, err));
    if (b->o->record) return times_record(b, err);
    TRY(curves_measure(b, err));
    struct progress bar;
    enum tern_status status = TERN_OK;
    progress_begin(&bar, "replaying", (uint64_t)b->n, false);
    for (int i = 0; i < b->n && status == TERN_OK; i++) {
        for (int k = 0; k < MODES_N && status == TERN_OK; k++) {
            int mode = i % 2 ? (k + i) % MODES_N : (MODES_N - 1 - k + i) % MODES_N;
            if (mode_runs(b, mode)) status = answer_run(b, &b->records[i], mode, err);
        }
        progress_update(&bar, (uint64_t)(i + 1));
        if (interrupt_seen()) status = err_set(err, TERN_CANCELLED, "interrupted");
    }
    progress_end(&bar);
    if (status == TERN_OK) results_print(b);
    return status;
}

int bench_replay_run(const struct command *c, const struct replay_bench_opts *o) {
    struct bench *b = mem_calloc(1, sizeof *b);
    struct tern_err err = {0};
    if (!b) return EXIT_FAILED;
    b->command = c;
    b->o = o;
    buf_init(&b->times, FILE_MAX);
    int code = all_run(b, &err) == TERN_OK ? EXIT_DONE : fail_told(c, &err);
    study_runner_free(b->runner);
    shape_drafter_free(b->shape_drafter);
    model_close(b->file_drafter);
    model_close(b->target);
    mem_free(b->ids);
    mem_free(b->anchors);
    mem_free(b->records);
    buf_release(&b->file);
    buf_release(&b->times);
    mem_free(b);
    return code;
}
