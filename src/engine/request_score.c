// Scores of a prompt's tokens: pieces of the prompt run with an output for each row, and what a row's logits say of the
// token that follows it in the prompt is kept, as two numbers for each alternative. The model's own distribution: no
// penalty, bias, filter or constraint has a part in it.
#include "base/base.h"
#include "request_int.h"

#include <math.h>

enum tern_status request_scores_open(struct tern_request *r, const struct tern_request_options *o,
                                     struct tern_err *err) {
    if (!o->prompt_logprobs || r->prompt.len == 0) return TERN_OK;
    const size_t per = (size_t)(1 + MAX(r->n_logprobs, 0));
    size_t n = 0;
    if (size_mul(r->prompt.len, per, &n)) r->scores = mem_calloc(n, sizeof *r->scores);
    if (!r->scores) return err_set(err, TERN_NO_MEMORY, "no memory for log-probabilities of the prompt");
    r->n_scores = r->prompt.len;
    for (size_t i = 0; i < n; i++) r->scores[i] = (struct request_score){-1, NAN};
    for (size_t i = 0; i < r->n_scores; i++) r->scores[i * per].id = r->prompt.ids[i];
    return TERN_OK;
}

// out[0] has its id; the n likeliest behind it, largest first, ties to the lower id.
static void row_note(const float *logits, int n_ids, struct request_score *out, int n) {
    float max;
    int len = 0;
    double sum = 0;
    op_argmax(logits, n_ids, &max);
    for (int i = 0; i < n_ids; i++) sum += exp((double)(logits[i] - max));
    struct request_score *top = out + 1;
    for (int i = 0; i < n_ids; i++) {
        if (len == n && (n == 0 || !(logits[i] > logits[top[n - 1].id]))) continue;
        int at = len < n ? len++ : n - 1;
        for (; at > 0 && logits[top[at - 1].id] < logits[i]; at--) top[at] = top[at - 1];
        top[at].id = i;
    }
    for (int k = 0; k <= len; k++) out[k].logprob = (float)((double)logits[out[k].id] - (double)max - log(sum));
}

void request_scores_note(const struct request_rows *rows) {
    const struct tern_request *r = rows->r;
    const int n = MAX(r->n_logprobs, 0);
    for (int i = 0; i < rows->n; i++) {
        const size_t at = r->prompt_at + (size_t)i + 1;
        if (at >= r->n_scores) break;
        row_note(plan_logits(r->engine->plan, rows->out + i), r->engine->model->hyper.n_vocab_used,
                 r->scores + at * (size_t)(1 + n), n);
    }
}

bool tern_request_prompt_logprobs(const struct tern_request *r, size_t i, struct tern_logprob *out) {
    const struct tokenizer *t = r->engine->tokenizer;
    const size_t per = (size_t)(1 + MAX(r->n_logprobs, 0));
    if (i >= r->n_scores) return false;
    for (size_t k = 0; k < per; k++) {
        const struct request_score *s = &r->scores[i * per + k];
        out[k] = (struct tern_logprob){.id = s->id, .logprob = s->logprob};
        if (!t || s->id < 0 || s->id >= tokenizer_size(t)) continue;
        const struct str bytes = tokenizer_token_bytes(t, s->id);
        out[k].bytes = (struct tern_str){bytes.data, bytes.len};
    }
    return true;
}
