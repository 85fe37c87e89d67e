// The face of spec/: choosing the next token. The sampler's rule is the contract's: after penalties, bias, constraint
// and filters, token = argmax(logit / T + Gumbel(seed, position, id)), which is exact sampling and gives the same text
// for a seed whether run plain, speculative, batched or cached. Temperature 0 is argmax, ties to the lowest id.
#pragma once
#include "base/base.h"
#include "prog/prog.h"
#include "plan/plan.h"

#define SAMPLER_REPEAT_LAST_MAX 4096

struct sampler_params {
    float temperature;    // 0: greedy
    int top_k;            // 0: off
    float top_p;          // 1: off
    float min_p;          // 0: off
    float repeat_penalty; // 1: off
    int repeat_last;
    float presence_penalty, frequency_penalty; // over the answer only
    uint64_t seed;
    const struct tern_logit_bias *bias; // [n_bias], borrowed
    int n_bias;
};
void sampler_params_default(struct sampler_params *p);
// Every field in its range, else TERN_INVALID_ARGUMENT naming the field, the range and the value. NaN is never in
// range.
enum tern_status sampler_params_check(const struct sampler_params *p, int n_vocab, struct tern_err *err);

struct sampler; // working memory for one sequence: nothing is allocated while sampling
enum tern_status sampler_create(struct sampler **out, const struct sampler_params *p, int n_vocab, int n_vocab_used,
                                struct tern_err *err);
void sampler_free(struct sampler *s);
// True when plain argmax of the raw logits is the answer (greedy, no penalties, no bias): the unit's argmax serves.
bool sampler_is_argmax(const struct sampler *s);
// Tells the sampler the tokens before the answer (penalties look back at them), then each chosen token.
void sampler_prompt(struct sampler *s, const int32_t *ids, size_t n);
void sampler_accept(struct sampler *s, int32_t id);

// What a constraint or a caller may ban: bit i%32 of word i/32 is id i; set = allowed. (n_vocab + 31) / 32 words.
struct sampler_choice {
    int32_t id;  // -1: nothing is allowed (mask or bias banned everything)
    float logit; // after penalties and bias
};
// Chooses for absolute position pos from logits [n_vocab] (unchanged). Order of the rules: bias, penalties, mask; then,
// at temperature > 0, logits / T, and on that distribution top-k, top-p, min-p, each over what the one before left,
// each keeping at least one id and preferring low ids among equals; then the noise. mask may be NULL.
struct sampler_choice sampler_pick(struct sampler *s, const float *logits, int64_t pos, const uint32_t *mask);
// Of the last sampler_pick: natural log-probability of an id over all ids at temperature 1, after bias, penalties and
// mask, before filters; -inf for banned ids.
float sampler_logprob(struct sampler *s, int32_t id);
// The n likeliest ids of that distribution, best first (ties: lowest id); returns how many there are.
int sampler_top(struct sampler *s, int n, int32_t *ids, float *logprobs);
// Test view of the last sampler_pick: the ids that survived the filters, best first; returns how many (at most cap
// written).
int sampler_kept(const struct sampler *s, int32_t *ids, int cap);

// The noise: -log(-log(u)), u in (0, 1) from Philox4x32-10 (Salmon et al. 2011): key = seed, counter = (id / 4,
// position), word id % 4; u = (word + 0.5) / 2^32.
float sampler_gumbel(uint64_t seed, int64_t pos, int32_t id);
#define SAMPLER_GUMBEL_MAX 22.9f // no noise exceeds it: -log(-log(1 - 2^-33))
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
