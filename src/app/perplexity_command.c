// tern perplexity: how well a model predicts a text. The text is tokenised whole and cut into rows; a last short row is
// dropped. Two ways to cut:
//
//   all          rows of `row` - 1 ids, each behind a begin token; every prediction of a row counts
//   second half  llama-perplexity's, whose figures it equals but for arithmetic: rows of `row` ids, the text's own
//                begin token among them; a row's first id is replaced by the begin token; only predictions from ids in
//                the second half count, so each has half a row before it
//
// Both know a begin token only where the model's tokenizer adds one.
#include "base/base.h"
#include "app.h"

#include <math.h>
#include <stdio.h>

#define ROW_HALVES_MIN 4 // below, a second half has no prediction

struct score {
    double nll;
    int64_t n;
};

struct cut {
    int row; // ids of a row, begin token included
    bool second_half;
};

static int rows_score(const struct command *c, struct tern_engine *e, const int32_t *ids, int64_t n, int32_t bos,
                      const struct cut *cut, struct score *score) {
    const int row = cut->row, first = cut->second_half ? row / 2 + 1 : 1; // the first counted prediction of a row
    struct tern_err err = {0};
    struct tern_session *s;
    int32_t *line = mem_calloc((size_t)row, sizeof *line);
    float *logprobs = mem_calloc((size_t)row, sizeof *logprobs);
    int code = EXIT_DONE;
    if (!line || !logprobs || tern_session_open(&s, e, &err) != TERN_OK) {
        mem_free(line);
        mem_free(logprobs);
        return fail_told(c, &err);
    }
    struct progress bar;
    progress_begin(&bar, "scoring", (uint64_t)n, false);
    const int head = bos >= 0 && !cut->second_half, body = row - head;
    for (int64_t at = 0; at + body <= n && code == EXIT_DONE; at += body) {
        memcpy(line + head, ids + at, (size_t)body * sizeof *ids);
        if (bos >= 0) line[0] = bos;
        if (tern_session_truncate(s, 0, &err) != TERN_OK ||
            tern_session_score(s, line, (size_t)row, logprobs, NULL, &err) != TERN_OK)
            code = fail_told(c, &err);
        for (int i = first; i < row && code == EXIT_DONE; i++) score->nll -= (double)logprobs[i];
        score->n += row - first;
        progress_update(&bar, (uint64_t)(at + body));
    }
    progress_end(&bar);
    tern_session_close(s);
    mem_free(line);
    mem_free(logprobs);
    return code;
}

static int text_score(const struct command *c, struct tern_engine *e, struct str text, const struct cut *cut,
                      bool json) {
    struct tern_err err = {0};
    struct tern_str t = {text.data, text.len};
    const int row = cut->row;
    const bool head = !cut->second_half;
    int64_t n = tern_tokenize(e, t, cut->second_half, false, NULL, 0, &err);
    if (n < 0) return fail_told(c, &err);
    int32_t *ids = mem_alloc((size_t)n * sizeof *ids + 1), bos = -1;
    if (!ids) return err_set(&err, TERN_NO_MEMORY, "no memory for %lld tokens", (long long)n), fail_told(c, &err);
    tern_tokenize(e, t, cut->second_half, false, ids, (size_t)n, &err);
    if (tern_tokenize(e, (struct tern_str){"", 0}, true, false, &bos, 1, &err) != 1) bos = -1;
    if (n + (bos >= 0 && head) < row) {
        mem_free(ids);
        err_set(&err, TERN_INVALID_ARGUMENT, "the text has %lld tokens, but a row needs %d; use --row or a longer text",
                (long long)n, row - (bos >= 0 && head));
        return fail_told(c, &err);
    }
    struct score score = {0};
    int code = rows_score(c, e, ids, n, bos, cut, &score);
    mem_free(ids);
    if (code != EXIT_DONE) return code;
    double nll = score.nll / (double)score.n;
    struct tern_model_info info;
    tern_engine_info(e, &info);
    if (json)
        out_putf("{\"perplexity\": %.6f, \"nll\": %.6f, \"predicted_tokens\": %lld, \"tokens\": %lld, \"row\": %d, "
                 "\"second_half\": %s, \"numerics\": \"%s\"}\n",
                 exp(nll), nll, (long long)score.n, (long long)n, row, cut->second_half ? "true" : "false",
                 info.numerics);
    else
        out_putf("perplexity %.4f over %lld predictions (%s of %d, %s)\n", exp(nll), (long long)score.n,
                 cut->second_half ? "second halves of rows" : "rows", row, info.numerics);
    return EXIT_DONE;
}

static int perplexity_main(const struct command *c, int argc, char **argv) {
    struct model_opts model;
    model_opts_init(&model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&model, model_rows);
    const char *file = NULL;
    struct cut cut = {.row = 512};
    bool json = false;
    const struct opt rows[] = {
        {"--file", 'f', "FILE", OPT_TEXT, &file, 0, 0, "the text (-: standard input)"},
        {"--row", 0, "N", OPT_INT, &cut.row, 2, 1 << 20, "tokens of a row, begin token included (default 512)"},
        {"--second-half", 0, NULL, OPT_FLAG, &cut.second_half, 0, 0,
         "count predictions from the second half of each row only, as llama-perplexity does"},
        {"--json", 0, NULL, OPT_FLAG, &json, 0, 0, "one JSON object"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 1 || (n_args == 1 && file)) return usage_error(c, "one file expected");
    if (cut.second_half && cut.row < ROW_HALVES_MIN)
        return usage_error(c, "--second-half needs rows of %d tokens or more, not %d", ROW_HALVES_MIN, cut.row);
    if (n_args == 1) file = argv[1];
    struct buf text;
    bool found;
    code = prompt_read(c, NULL, file, &text, &found);
    if (code == 0 && !found) code = usage_error(c, "no text: give a file, or the text on standard input");
    struct tern_engine *e = NULL;
    if (code == 0 && model.engine.n_ctx == 0) model.engine.n_ctx = MAX(cut.row, 512);
    if (code == 0) code = engine_open_told(c, &model, &e);
    if (code == 0) code = text_score(c, e, buf_str(&text), &cut, json);
    tern_engine_close(e);
    buf_release(&text);
    return code;
}

const struct command command_perplexity = {"perplexity", "[FILE]", "how well a model predicts a text", NULL,
                                           perplexity_main};
