// A peer's command line for one test, and the speed from what it printed.
//
// llama-bench repeats a whole test to warm up unless told not to; a short first test does that cheaper and is not
// counted, as ours does it. ik_llama.cpp's has no depth: there a generation behind a prompt (-gp) is the decode test.
#include "base/base.h"
#include "bench_manifest.h"

#include <stdio.h>

#define WARM_PREFILL 16
#define WARM_DECODE 8

struct words {
    const char **list;
    int n;
    struct arena *arena;
    bool failed;
};

static void word_put(struct words *w, const char *text) {
    if (w->n >= PEER_ARGV_MAX - 1) w->failed = true;
    if (!w->failed) w->list[w->n++] = text;
}
static void word_putf(struct words *w, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void word_putf(struct words *w, const char *fmt, ...) {
    char text[64];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    char *copy = n >= 0 && (size_t)n < sizeof text ? arena_dup(w->arena, text, (size_t)n) : NULL;
    if (copy)
        word_put(w, copy);
    else
        w->failed = true;
}

// The word with what stands in braces replaced.
static void word_put_filled(struct words *w, const char *word, const char *model, const struct bench_test *t) {
    bool prefill = t->phase == PHASE_PREFILL;
    const struct {
        const char *name;
        int value;
    } numbers[] = {{"{threads}", t->threads},
                   {"{prompt}", prefill ? t->tokens : 0},
                   {"{answer}", prefill ? 0 : t->tokens},
                   {"{depth}", t->depth}};
    struct buf b;
    buf_init(&b, 65536);
    while (*word) {
        size_t i = 0;
        struct str rest = str_from(word);
        while (i < ARRAY_LEN(numbers) && !str_starts(rest, str_from(numbers[i].name))) i++;
        if (i < ARRAY_LEN(numbers)) {
            buf_putf(&b, "%d", numbers[i].value);
            word += strlen(numbers[i].name);
        } else if (str_starts(rest, STR("{model}"))) {
            buf_puts(&b, model);
            word += sizeof "{model}" - 1;
        } else {
            buf_putc(&b, *word++);
        }
    }
    char *copy = b.failed ? NULL : arena_dup(w->arena, b.data ? b.data : "", b.len);
    buf_release(&b);
    if (copy)
        word_put(w, copy);
    else
        w->failed = true;
}

int peer_command_make(const struct bench_peer *p, int model, const struct bench_test *t, struct arena *a,
                      const char *words[PEER_ARGV_MAX]) {
    struct words w = {.list = words, .arena = a};
    if (p->kind == PEER_COMMAND) {
        for (int i = 0; i < p->n_command; i++) word_put_filled(&w, p->command[i], p->files[model], t);
    } else {
        bool ik = p->kind == PEER_IK_BENCH, prefill = t->phase == PHASE_PREFILL;
        for (int i = 0; i < p->n_command; i++) word_put(&w, p->command[i]);
        const char *const fixed[] = {"-m", p->files[model], "-o", "json", "-r", "1"};
        for (size_t i = 0; i < ARRAY_LEN(fixed); i++) word_put(&w, fixed[i]);
        if (ik) word_put(&w, "-w");
        word_put(&w, ik ? "0" : "--no-warmup");
        word_put(&w, "-t");
        word_putf(&w, "%d", t->threads);
        word_put(&w, "-p");
        word_putf(&w, prefill ? "%d,%d" : "0", WARM_PREFILL, t->tokens);
        word_put(&w, "-n");
        if (prefill)
            word_put(&w, "0");
        else if (ik && t->depth > 0)
            word_putf(&w, "%d", WARM_DECODE);
        else
            word_putf(&w, "%d,%d", WARM_DECODE, t->tokens);
        if (ik && t->depth > 0) {
            word_put(&w, "-gp");
            word_putf(&w, "%d,%d", t->depth, t->tokens);
        } else if (!ik && !prefill) {
            word_put(&w, "-d");
            word_putf(&w, "%d", t->depth);
        }
    }
    words[w.n] = NULL;
    return w.failed ? -1 : w.n;
}

// ------------------------------------------------------------------------------------------------------------- output

struct bench_row { // of llama-bench's list
    int64_t n_prompt, n_gen;
    double tps;
};

static enum tern_status bench_row_read(struct json *j, struct bench_row *row, struct tern_err *err) {
    struct json_item item;
    *row = (struct bench_row){-1, -1, 0};
    while (json_next(j, &item, err) == JSON_KEY) {
        struct json_item value;
        bool prompt = str_eqz(item.text, "n_prompt"), gen = str_eqz(item.text, "n_gen");
        if (!prompt && !gen && !str_eqz(item.text, "avg_ts")) {
            TRY(json_skip(j, err));
            continue;
        }
        TRY(json_expect(j, JSON_NUMBER, &value, prompt ? "n_prompt" : gen ? "n_gen" : "avg_ts", err));
        if (prompt)
            row->n_prompt = value.integer;
        else if (gen)
            row->n_gen = value.integer;
        else
            row->tps = value.number;
    }
    return item.event == JSON_ERROR ? err->code : TERN_OK;
}

static enum tern_status bench_list_read(struct json *j, int64_t n_prompt, int64_t n_gen, double *tps,
                                        struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_ARRAY, &item, "llama-bench's output", err));
    while (json_next(j, &item, err) == JSON_OBJECT) {
        struct bench_row row;
        TRY(bench_row_read(j, &row, err));
        if (row.n_prompt == n_prompt && row.n_gen == n_gen) *tps = row.tps;
    }
    return item.event == JSON_ERROR ? err->code : TERN_OK;
}

static enum tern_status line_read(struct json *j, double *tps, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "the last line", err));
    while (json_next(j, &item, err) == JSON_KEY) {
        if (str_eqz(item.text, "tokens_per_s")) {
            TRY(json_expect(j, JSON_NUMBER, &item, "tokens_per_s", err));
            *tps = item.number;
        } else {
            TRY(json_skip(j, err));
        }
    }
    return item.event == JSON_ERROR ? err->code : TERN_OK;
}

enum tern_status peer_output_parse(enum peer_kind kind, const struct bench_test *t, struct str text, double *tps,
                                   struct tern_err *err) {
    struct tern_err own;
    struct json *j = NULL;
    bool prefill = t->phase == PHASE_PREFILL;
    text = str_trim(text);
    if (kind == PEER_COMMAND)
        for (size_t i = text.len; i > 0; i--)
            if (text.data[i - 1] == '\n') {
                text = (struct str){text.data + i, text.len - i};
                break;
            }
    *tps = 0;
    if (!err) err = &own;
    enum tern_status status = json_create(&j, text, NULL, err);
    if (status == TERN_OK && kind == PEER_COMMAND) status = line_read(j, tps, err);
    if (status == TERN_OK && kind != PEER_COMMAND) {
        int64_t n_prompt = prefill ? t->tokens : kind == PEER_IK_BENCH ? t->depth : 0;
        status = bench_list_read(j, n_prompt, prefill ? 0 : t->tokens, tps, err);
    }
    json_free(j);
    if (status != TERN_OK) return err_prefix(err, "its output");
    if (!(*tps > 0) || !(*tps < 1e9)) return err_set(err, TERN_BAD_FORMAT, "its output has no speed for this test");
    return TERN_OK;
}
