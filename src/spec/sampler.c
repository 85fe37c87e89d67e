// The sampler: penalties, bias, mask, temperature, filters, and the contract's Gumbel rule (spec.h). Everything it
// works in is allocated at creation; picking and accepting allocate nothing.
//
// Which tokens count: the repetition penalty looks at the last `repeat_last` tokens of prompt and answer together;
// presence and frequency penalties count the answer only, as the OpenAI API does. At their neutral values (1, 0, 0)
// logits are passed on bit for bit.
#include "base/base.h"
#include "sampler_int.h"

#include <math.h>

void sampler_params_default(struct sampler_params *p) {
    *p = (struct sampler_params){.top_p = 1, .repeat_penalty = 1, .repeat_last = 64};
}

static enum tern_status range_check(const char *name, double v, double lo, double hi, struct tern_err *err) {
    if (v >= lo && v <= hi) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "%s must be between %g and %g, not %g", name, lo, hi, v);
}

enum tern_status sampler_params_check(const struct sampler_params *p, int n_vocab, struct tern_err *err) {
    TRY(range_check("temperature", (double)p->temperature, 0, 100, err));
    TRY(range_check("top_k", p->top_k, 0, INT32_MAX, err));
    TRY(range_check("top_p", (double)p->top_p, 0, 1, err));
    if (p->top_p <= 0) return err_set(err, TERN_INVALID_ARGUMENT, "top_p must be above 0 (1 switches it off), not 0");
    TRY(range_check("min_p", (double)p->min_p, 0, 1, err));
    TRY(range_check("repeat_penalty", (double)p->repeat_penalty, 0.01, 100, err));
    TRY(range_check("repeat_last", p->repeat_last, 0, SAMPLER_REPEAT_LAST_MAX, err));
    TRY(range_check("presence_penalty", (double)p->presence_penalty, -100, 100, err));
    TRY(range_check("frequency_penalty", (double)p->frequency_penalty, -100, 100, err));
    TRY(range_check("logit_bias entries", p->n_bias, 0, TERN_LOGIT_BIAS_MAX, err));
    for (int i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= n_vocab)
            return err_set(err, TERN_INVALID_ARGUMENT, "logit_bias names token %d, but ids go from 0 to %d",
                           p->bias[i].id, n_vocab - 1);
        if (isnan(p->bias[i].bias) || p->bias[i].bias == INFINITY)
            return err_set(err, TERN_INVALID_ARGUMENT, "logit_bias of token %d must be a number or -infinity (a ban)",
                           p->bias[i].id);
    }
    return TERN_OK;
}

enum tern_status sampler_create(struct sampler **out, const struct sampler_params *p, int n_vocab, int n_vocab_used,
                                struct tern_err *err) {
    TRY(sampler_params_check(p, n_vocab, err));
    size_t n = (size_t)n_vocab_used;
    struct sampler *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for a sampler");
    s->params = *p;
    s->n_vocab = n_vocab;
    s->n_used = n_vocab_used;
    s->window_cap = p->repeat_last;
    s->bias = mem_dup(p->bias, (size_t)p->n_bias * sizeof *p->bias);
    s->logits = mem_calloc(n, sizeof *s->logits);
    s->scaled = mem_calloc(n, sizeof *s->scaled);
    s->kept = mem_calloc(n, sizeof *s->kept);
    s->window = mem_calloc((size_t)s->window_cap + 1, sizeof *s->window);
    s->in_window = mem_calloc(n, sizeof *s->in_window);
    s->answer = mem_calloc(n, sizeof *s->answer);
    if (!s->bias || !s->logits || !s->scaled || !s->kept || !s->window || !s->in_window || !s->answer) {
        sampler_free(s);
        return err_set(err, TERN_NO_MEMORY, "no memory for a sampler over %d tokens", n_vocab);
    }
    s->params.bias = s->bias;
    *out = s;
    return TERN_OK;
}

void sampler_free(struct sampler *s) {
    if (!s) return;
    mem_free(s->bias);
    mem_free(s->logits);
    mem_free(s->scaled);
    mem_free(s->kept);
    mem_free(s->window);
    mem_free(s->in_window);
    mem_free(s->answer);
    mem_free(s);
}

bool sampler_is_argmax(const struct sampler *s) {
    const struct sampler_params *p = &s->params;
    return p->temperature == 0 && p->repeat_penalty == 1 && p->presence_penalty == 0 && p->frequency_penalty == 0 &&
           p->n_bias == 0;
}

static void window_push(struct sampler *s, int32_t id) {
    if (s->window_cap == 0 || id < 0 || id >= s->n_used) return;
    if (s->window_len == s->window_cap) {
        s->in_window[s->window[s->window_at]]--;
        s->window_len--;
    }
    s->window[s->window_at] = id;
    s->window_at = (s->window_at + 1) % s->window_cap;
    s->window_len++;
    s->in_window[id]++;
}

void sampler_prompt(struct sampler *s, const int32_t *ids, size_t n) {
    size_t skip = n > (size_t)s->window_cap ? n - (size_t)s->window_cap : 0;
    for (size_t i = skip; i < n; i++) window_push(s, ids[i]);
}

void sampler_accept(struct sampler *s, int32_t id) {
    window_push(s, id);
    if (id >= 0 && id < s->n_used) s->answer[id]++;
}

// Bias first, then penalties on ids that were seen, then the mask.
static void logits_adjust(struct sampler *s, const float *logits, const uint32_t *mask) {
    const struct sampler_params *p = &s->params;
    memcpy(s->logits, logits, (size_t)s->n_used * sizeof *logits);
    for (int i = 0; i < p->n_bias; i++)
        if (s->bias[i].id < s->n_used) s->logits[s->bias[i].id] += s->bias[i].bias;
    if (p->repeat_penalty != 1)
        for (int i = 0; i < s->n_used; i++)
            if (s->in_window[i])
                s->logits[i] = s->logits[i] > 0 ? s->logits[i] / p->repeat_penalty : s->logits[i] * p->repeat_penalty;
    if (p->presence_penalty != 0 || p->frequency_penalty != 0)
        for (int i = 0; i < s->n_used; i++)
            if (s->answer[i]) s->logits[i] -= p->presence_penalty + p->frequency_penalty * (float)s->answer[i];
    if (mask)
        for (int i = 0; i < s->n_used; i++)
            if (!(mask[i / 32] >> (i % 32) & 1)) s->logits[i] = -INFINITY;
    // A NaN logit (a broken model) must not decide comparisons: it counts as banned.
    for (int i = 0; i < s->n_used; i++)
        if (isnan(s->logits[i])) s->logits[i] = -INFINITY;
}

struct sampler_choice sampler_pick(struct sampler *s, const float *logits, int64_t pos, const uint32_t *mask) {
    struct sampler_choice choice = {.id = -1, .logit = -INFINITY};
    logits_adjust(s, logits, mask);
    s->picked = true;
    s->have_norm = false;
    s->n_kept = 0;
    if (s->params.temperature == 0) {
        for (int i = 0; i < s->n_used; i++)
            if (s->logits[i] > choice.logit) choice = (struct sampler_choice){.id = i, .logit = s->logits[i]};
        if (choice.id >= 0) {
            s->kept[0] = choice.id;
            s->n_kept = 1;
        }
        return choice;
    }
    float inv_t = 1 / s->params.temperature;
    for (int i = 0; i < s->n_used; i++) s->scaled[i] = s->logits[i] * inv_t;
    sampler_filter(s);
    float best = -INFINITY;
    for (int i = 0; i < s->n_kept; i++) {
        int32_t id = s->kept[i];
        // kept is sorted: once even the largest noise cannot win, no later id can.
        if (s->scaled[id] + SAMPLER_GUMBEL_MAX < best) break;
        float score = s->scaled[id] + sampler_gumbel(s->params.seed, pos, id);
        if (score > best || (score == best && id < choice.id)) {
            best = score;
            choice.id = id;
        }
    }
    if (choice.id >= 0) choice.logit = s->logits[choice.id];
    return choice;
}

static float log_norm_get(struct sampler *s) {
    if (!s->have_norm) {
        float max = -INFINITY;
        for (int i = 0; i < s->n_used; i++) max = MAX(max, s->logits[i]);
        double sum = 0;
        for (int i = 0; i < s->n_used; i++)
            if (s->logits[i] > -INFINITY) sum += exp((double)(s->logits[i] - max));
        s->log_norm = max > -INFINITY ? (float)((double)max + log(sum)) : 0;
        s->have_norm = true;
    }
    return s->log_norm;
}

float sampler_logprob(struct sampler *s, int32_t id) {
    if (!s->picked || id < 0 || id >= s->n_used || !(s->logits[id] > -INFINITY)) return -INFINITY;
    return s->logits[id] - log_norm_get(s);
}

int sampler_top(struct sampler *s, int n, int32_t *ids, float *logprobs) {
    if (!s->picked) return 0;
    int len = 0;
    for (int i = 0; i < s->n_used; i++) {
        if (!(s->logits[i] > -INFINITY)) continue;
        if (len == n && (n == 0 || s->logits[i] <= s->logits[ids[n - 1]])) continue;
        int at = len < n ? len++ : n - 1;
        for (; at > 0 && s->logits[ids[at - 1]] < s->logits[i]; at--) ids[at] = ids[at - 1];
        ids[at] = i;
    }
    float norm = len ? log_norm_get(s) : 0;
    for (int i = 0; i < len; i++) logprobs[i] = s->logits[ids[i]] - norm;
    return len;
}

int sampler_kept(const struct sampler *s, int32_t *ids, int cap) {
    for (int i = 0; i < MIN(cap, s->n_kept); i++) ids[i] = s->kept[i];
    return s->n_kept;
}
