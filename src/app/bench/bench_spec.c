// tern bench --spec: what drafting gives on prompts of several categories. Every prompt is answered in every mode, one
// after another in an order that turns from prompt to prompt, so that a drift of the machine meets all modes alike. The
// tokens of each mode are hashed: all hashes are equal, or speculation is broken.
#include "base/base.h"
#include "app/app.h"

#include "bench_prompts.h"
#include "bench_spec.h"
#include "bench_stats.h"

#include <stdlib.h>

static const struct spec_mode {
    const char *name;
    enum tern_draft draft;
    int max;
    bool needs_model;
} modes[] = {
    {"plain", TERN_DRAFT_OFF, 0, false},   {"chain", TERN_DRAFT_CHAIN, 9, true},
    {"chain8", TERN_DRAFT_CHAIN, 8, true}, {"tree8", TERN_DRAFT_TREE, 8, true},
    {"tree16", TERN_DRAFT_TREE, 16, true}, {"tree", TERN_DRAFT_TREE, 46, true},
    {"auto", TERN_DRAFT_AUTO, 0, false},   {"biased", TERN_DRAFT_TREE_BIASED, 46, true},
    {"ngram", TERN_DRAFT_NGRAM, 8, false},
};
#define MODES_N ((int)ARRAY_LEN(modes))
enum { MODE_PLAIN = 0, MODE_CHAIN = 1, MODE_TREE = 5, MODE_AUTO = 6 };

struct tally {
    int64_t n_tokens, n_steps; // behind each answer's first token
    int64_t n_rounds, n_drafted, n_accepted, n_round_tokens;
    int64_t n_tried[TERN_DRAFT_DEPTHS], n_hit[TERN_DRAFT_DEPTHS];
    double answer_s, draft_s, verify_s, host_s;
};
struct mode_result {
    bool ran;
    int n_loops; // answers left out
    struct tally all, by_category[PROMPT_CATEGORIES_MAX];
    struct sha256 sha;
    char digest[65];
    float *per_request; // [n_prompts] tokens per step
    double *seconds;    // [n_prompts] of all repeats
    int n_requests;
};
struct bench {
    const struct command *command;
    const struct spec_bench_opts *o;
    struct tern_engine *engine;
    struct tern_session *session;
    struct tern_model_info info;
    struct prompt_set prompts;
    struct mode_result results[MODES_N];
};

// ------------------------------------------------------------------------------------------------------------ running

#define LOOP_GRAM 8
#define LOOP_TIMES 3 // an answer with more occurrences of one 8-gram goes in circles

// A model that repeats itself is easy to guess and of no use: such answers may be left out, in all modes alike.
static bool answer_loops(const int32_t *ids, size_t n) {
    for (size_t i = 0; i + LOOP_GRAM <= n; i++) {
        int times = 1;
        for (size_t j = i + 1; j + LOOP_GRAM <= n; j++) times += memcmp(ids + i, ids + j, LOOP_GRAM * sizeof *ids) == 0;
        if (times > LOOP_TIMES) return true;
    }
    return false;
}

static void tally_add(struct tally *t, const struct tern_usage *u, bool counts) {
    t->answer_s += u->answer_s;
    t->draft_s += u->draft_s;
    t->verify_s += u->verify_s;
    t->host_s += u->draft_host_s;
    t->n_tokens += u->n_answer - 1;
    t->n_steps += u->n_steps;
    if (!counts) return;
    t->n_rounds += u->n_rounds;
    t->n_drafted += u->n_drafted;
    t->n_accepted += u->n_accepted;
    t->n_round_tokens += u->n_round_tokens;
    for (int i = 0; i < TERN_DRAFT_DEPTHS; i++) {
        t->n_tried[i] += u->n_tried[i];
        t->n_hit[i] += u->n_hit[i];
    }
}

static int prompt_run(struct bench *b, int prompt, int mode, bool first) {
    const struct prompt *p = &b->prompts.items[prompt];
    struct mode_result *r = &b->results[mode];
    struct tern_request_options o;
    struct tern_err err = {0};
    struct answer_view v;
    tern_request_options_default(&o);
    o.messages_json = (struct tern_str){p->messages.data, p->messages.len};
    o.tools_json = (struct tern_str){p->tools.data, p->tools.len};
    o.n_max = b->o->n_max;
    o.draft = modes[mode].draft;
    o.draft_max = modes[mode].max;
    answer_view_init(&v, false);
    int code = EXIT_DONE;
    if (tern_session_truncate(b->session, 0, &err) != TERN_OK || answer_view_run(&v, b->session, &o, &err) != TERN_OK)
        code = fail_told(b->command, &err);
    else if (v.finish == TERN_FINISH_CANCELLED)
        code = EXIT_INTERRUPTED;
    bool loops = code == EXIT_DONE && b->o->skip_loops && answer_loops(v.ids, v.n_ids);
    if (first) r->n_loops += loops;
    if (code == EXIT_DONE && first) sha256_update(&r->sha, v.ids, v.n_ids * sizeof *v.ids);
    if (code == EXIT_DONE && !loops) {
        r->seconds[prompt] += v.usage.answer_s;
        tally_add(&r->all, &v.usage, first);
        tally_add(&r->by_category[p->category], &v.usage, first);
        if (first && v.usage.n_steps > 0)
            r->per_request[r->n_requests++] = (float)(v.usage.n_answer - 1) / (float)v.usage.n_steps;
    }
    answer_view_release(&v);
    return code;
}

static int all_run(struct bench *b) {
    struct progress bar;
    int64_t total = (int64_t)b->prompts.n * b->o->repeats, done = 0;
    int code = EXIT_DONE;
    progress_begin(&bar, "answering", (uint64_t)total, false);
    for (int n = 0; n < b->o->repeats && code == EXIT_DONE; n++)
        for (int i = 0; i < b->prompts.n && code == EXIT_DONE; i++) {
            for (int k = 0; k < MODES_N && code == EXIT_DONE; k++) {
                int mode = (i + n) % 2 ? (k + i) % MODES_N : (MODES_N - 1 - k + i) % MODES_N;
                if (b->results[mode].ran) code = prompt_run(b, i, mode, n == 0);
            }
            progress_update(&bar, (uint64_t)++done);
        }
    progress_end(&bar);
    for (int m = 0; m < MODES_N && code == EXIT_DONE; m++) {
        uint8_t digest[32];
        static const char hex[] = "0123456789abcdef";
        sha256_final(&b->results[m].sha, digest);
        for (int i = 0; i < 32; i++) {
            b->results[m].digest[2 * i] = hex[digest[i] >> 4];
            b->results[m].digest[2 * i + 1] = hex[digest[i] & 15];
        }
    }
    return code;
}

// ------------------------------------------------------------------------------------------------------------ printing

static double per_step(const struct tally *t) { return t->n_steps ? (double)t->n_tokens / (double)t->n_steps : 0; }
static double speed(const struct tally *t) { return t->answer_s > 0 ? (double)t->n_tokens / t->answer_s : 0; }
static double share(double a, double b) { return b > 0 ? a / b : 0; }

static int float_compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

static void field(struct json_writer *w, const char *key, double v) {
    json_write_key(w, key);
    json_write_f64(w, v);
}

static void tally_json(struct json_writer *w, const struct tally *t, const struct tally *plain) {
    json_write_object(w);
    field(w, "tokens_per_step", per_step(t));
    field(w, "tokens_per_second", speed(t));
    field(w, "over_plain", share(speed(t), speed(plain)));
    // Tokens that a step must give to cost no more than plain decoding.
    field(w, "break_even",
          share(share(t->answer_s, (double)t->n_steps), share(plain->answer_s, (double)plain->n_steps)));
    json_write_key(w, "tokens");
    json_write_int(w, t->n_tokens);
    json_write_key(w, "steps");
    json_write_int(w, t->n_steps);
    json_write_key(w, "rounds");
    json_write_int(w, t->n_rounds);
    field(w, "tokens_per_round", share((double)t->n_round_tokens, (double)t->n_rounds));
    field(w, "drafted_per_round", share((double)t->n_drafted, (double)t->n_rounds));
    field(w, "answer_s", t->answer_s);
    field(w, "draft_s", t->draft_s);
    field(w, "verify_s", t->verify_s);
    field(w, "host_s", t->host_s);
    json_write_key(w, "acceptance");
    json_write_array(w);
    for (int i = 0; i < TERN_DRAFT_DEPTHS && t->n_tried[i] > 0; i++)
        json_write_f64(w, share((double)t->n_hit[i], (double)t->n_tried[i]));
    json_write_array_end(w);
    json_write_object_end(w);
}

static void mode_json(struct bench *b, struct json_writer *w, int m) {
    struct mode_result *r = &b->results[m], *plain = &b->results[MODE_PLAIN];
    static const struct {
        const char *key;
        double at;
    } cuts[] = {{"p5", 0.05}, {"p25", 0.25}, {"median", 0.5}, {"p75", 0.75}, {"p95", 0.95}};
    json_write_key(w, modes[m].name);
    json_write_object(w);
    json_write_key(w, "draft_max");
    json_write_int(w, modes[m].max);
    json_write_key(w, "tokens_sha256");
    json_write_str(w, str_from(r->digest));
    json_write_key(w, "all");
    tally_json(w, &r->all, &plain->all);
    json_write_key(w, "tokens_per_step_of_requests");
    json_write_object(w);
    qsort(r->per_request, (size_t)r->n_requests, sizeof *r->per_request, float_compare);
    for (size_t i = 0; i < ARRAY_LEN(cuts) && r->n_requests > 0; i++)
        field(w, cuts[i].key, (double)r->per_request[(int)(cuts[i].at * (r->n_requests - 1) + 0.5)]);
    json_write_object_end(w);
    json_write_key(w, "categories");
    json_write_object(w);
    for (int k = 0; k < b->prompts.n_categories; k++) {
        json_write_key(w, b->prompts.categories[k]);
        tally_json(w, &r->by_category[k], &plain->by_category[k]);
    }
    json_write_object_end(w);
    json_write_object_end(w);
}

static bool tokens_same(const struct bench *b) {
    for (int m = 0; m < MODES_N; m++)
        if (b->results[m].ran && strcmp(b->results[m].digest, b->results[MODE_PLAIN].digest) != 0) return false;
    return true;
}

// Prompt by prompt, plain's seconds over auto's: median and interval. category -1: all.
static struct stats_interval auto_over_plain(const struct bench *b, int category) {
    double plain[STATS_MAX], own[STATS_MAX];
    int n = 0;
    for (int i = 0; i < b->prompts.n && n < STATS_MAX; i++) {
        double p = b->results[MODE_PLAIN].seconds[i], a = b->results[MODE_AUTO].seconds[i];
        if ((category >= 0 && b->prompts.items[i].category != category) || !(p > 0) || !(a > 0)) continue;
        plain[n] = p;
        own[n++] = a;
    }
    return n > 0 ? stats_paired_ratio(plain, own, n) : (struct stats_interval){0};
}

static double auto_over_plain_min(const struct bench *b) {
    double least = share(speed(&b->results[MODE_AUTO].all), speed(&b->results[MODE_PLAIN].all));
    for (int k = 0; k < b->prompts.n_categories; k++)
        least = MIN(least,
                    share(speed(&b->results[MODE_AUTO].by_category[k]), speed(&b->results[MODE_PLAIN].by_category[k])));
    return least;
}

static void results_json(struct bench *b) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 16u << 20);
    json_write_init(&w, &out);
    json_write_object(&w);
    const struct {
        const char *key, *value;
    } texts[] = {{"model", b->info.name},
                 {"drafter", b->info.drafter},
                 {"draft", b->info.draft},
                 {"kernels", b->info.kernels},
                 {"numerics", b->info.numerics}};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        json_write_key(&w, texts[i].key);
        json_write_str(&w, str_from(texts[i].value ? texts[i].value : "none"));
    }
    const struct {
        const char *key;
        int value;
    } counts[] = {{"threads", b->info.n_threads},
                  {"prompts", b->prompts.n},
                  {"answer_max", b->o->n_max},
                  {"repeats", b->o->repeats},
                  {"loops_left_out", b->results[MODE_PLAIN].n_loops}};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        json_write_key(&w, counts[i].key);
        json_write_int(&w, counts[i].value);
    }
    json_write_key(&w, "modes");
    json_write_object(&w);
    for (int m = 0; m < MODES_N; m++)
        if (b->results[m].ran) mode_json(b, &w, m);
    json_write_object_end(&w);
    json_write_key(&w, "same_tokens");
    json_write_bool(&w, tokens_same(b));
    if (b->results[MODE_TREE].ran && b->results[MODE_CHAIN].ran)
        field(&w, "tree_over_chain",
              share(per_step(&b->results[MODE_TREE].all), per_step(&b->results[MODE_CHAIN].all)));
    if (b->results[MODE_AUTO].ran) {
        field(&w, "auto_over_plain_min", auto_over_plain_min(b));
        json_write_key(&w, "auto_over_plain_of_prompts");
        json_write_object(&w);
        for (int k = -1; k < b->prompts.n_categories; k++) {
            struct stats_interval v = auto_over_plain(b, k);
            json_write_key(&w, k < 0 ? "all" : b->prompts.categories[k]);
            json_write_object(&w);
            field(&w, "median", v.mid);
            field(&w, "low", v.lo);
            field(&w, "high", v.hi);
            json_write_object_end(&w);
        }
        json_write_object_end(&w);
    }
    json_write_object_end(&w);
    buf_putc(&out, '\n');
    out_put(buf_str(&out));
    buf_release(&out);
}

static void results_text(struct bench *b) {
    out_putf("%s, drafts by %s, %s, %d threads; %d prompts, answers of at most %d tokens\n", b->info.name,
             b->info.drafter ? b->info.drafter : "no model", b->info.kernels, b->info.n_threads, b->prompts.n,
             b->o->n_max);
    out_putf("%-10s %-10s %11s %9s %8s %8s %8s %8s\n", "mode", "category", "tokens/step", "tokens/s", "x plain",
             "draft %", "verify %", "host %");
    for (int m = 0; m < MODES_N; m++) {
        if (!b->results[m].ran) continue;
        for (int k = -1; k < b->prompts.n_categories; k++) {
            const struct tally *t = k < 0 ? &b->results[m].all : &b->results[m].by_category[k];
            const struct tally *p = k < 0 ? &b->results[MODE_PLAIN].all : &b->results[MODE_PLAIN].by_category[k];
            out_putf("%-10s %-10s %11.2f %9.1f %8.2f %8.1f %8.1f %8.1f\n", k < 0 ? modes[m].name : "",
                     k < 0 ? "all" : b->prompts.categories[k], per_step(t), speed(t), share(speed(t), speed(p)),
                     100 * share(t->draft_s, t->answer_s), 100 * share(t->verify_s, t->answer_s),
                     100 * share(t->host_s, t->answer_s));
        }
    }
    if (b->o->skip_loops) out_putf("answers that go in circles, left out: %d\n", b->results[MODE_PLAIN].n_loops);
    out_putf("same tokens in every mode: %s\n", tokens_same(b) ? "yes" : "NO");
    if (b->results[MODE_TREE].ran && b->results[MODE_CHAIN].ran)
        out_putf("tree of 46 over chain of 9: %.3f tokens a step\n",
                 share(per_step(&b->results[MODE_TREE].all), per_step(&b->results[MODE_CHAIN].all)));
    if (b->results[MODE_AUTO].ran) out_putf("auto over plain, least category: %.3f in time\n", auto_over_plain_min(b));
}

bool bench_mode_wanted(const char *list, const char *name, const char *plain) {
    size_t n = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, name, n) == 0 && (at[n] == 0 || at[n] == ',')) return true;
    return !list || strcmp(name, plain) == 0;
}

static int modes_check(const struct bench *b) {
    for (const char *at = b->o->modes; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        bool known = false;
        for (int m = 0; m < MODES_N; m++) {
            size_t n = strlen(modes[m].name);
            known = known || (strncmp(at, modes[m].name, n) == 0 && (at[n] == 0 || at[n] == ','));
        }
        if (!known) return usage_error(b->command, "--modes: no mode '%.*s'", (int)strcspn(at, ","), at);
    }
    return EXIT_DONE;
}

int bench_spec_run(const struct command *c, const struct spec_bench_opts *o, struct tern_engine *e) {
    struct bench *b = mem_calloc(1, sizeof *b);
    struct tern_err err = {0};
    if (!b) return EXIT_FAILED;
    b->command = c;
    b->o = o;
    b->engine = e;
    tern_engine_info(e, &b->info);
    int code = modes_check(b);
    if (code != EXIT_DONE) goto done;
    if (prompt_set_read(&b->prompts, o->prompts, &err) != TERN_OK || tern_session_open(&b->session, e, &err) != TERN_OK)
        code = fail_told(c, &err);
    if (code == EXIT_DONE && o->n_each > 0) prompt_set_thin(&b->prompts, o->n_each);
    for (int m = 0; m < MODES_N && code == EXIT_DONE; m++) {
        struct mode_result *r = &b->results[m];
        r->ran = (b->info.drafter || !modes[m].needs_model) && modes[m].max < b->info.window &&
                 bench_mode_wanted(o->modes, modes[m].name, modes[MODE_PLAIN].name);
        sha256_init(&r->sha);
        r->per_request = mem_calloc((size_t)b->prompts.n + 1, sizeof *r->per_request);
        r->seconds = mem_calloc((size_t)b->prompts.n + 1, sizeof *r->seconds);
        if (!r->per_request || !r->seconds) code = EXIT_FAILED;
    }
    if (code == EXIT_DONE) code = all_run(b);
    if (code == EXIT_DONE) {
        if (o->json)
            results_json(b);
        else
            results_text(b);
        if (!tokens_same(b)) code = EXIT_FAILED;
    }
done:
    for (int m = 0; m < MODES_N; m++) {
        mem_free(b->results[m].per_request);
        mem_free(b->results[m].seconds);
    }
    tern_session_close(b->session);
    prompt_set_release(&b->prompts);
    mem_free(b);
    return code;
}
