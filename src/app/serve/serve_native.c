// POST /completion and /infill as llama-server has them, for the clients that were written for it (editors' plugins
// above all). serve_native_wire.c writes the answers.
//
// n_indent and t_max_predict_ms end an answer early; serve_answer.c does it.
//
// What of its fields only says how to do the same (id_slot, cache_prompt, n_keep, samplers, t_max_prompt_ms …) is
// passed over: answers do not depend on slots and caches here, and the order of the samplers is fixed. Ways of sampling
// that are not built in are refused, unless they are sent with the value that turns them off.
#include "base/base.h"
#include "serve_native.h"

#include <math.h>
#include <stdio.h>

struct native_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str before, after, extra, response_fields;
    int64_t n_predict, n_probs;
    bool with_tokens;
};
#define NATIVE_FIELD(name_, kind_, member_, lo_, hi_) \
    { name_, kind_, offsetof(struct native_ask, member_), lo_, hi_, 0, 0 }

static bool number_read(struct str raw, double *v) {
    struct json *j;
    struct json_item item;
    if (json_create(&j, raw, NULL, NULL) != TERN_OK) return false;
    const enum json_event e = json_next(j, &item, NULL);
    *v = e == JSON_NUMBER ? item.number : e == JSON_BOOL ? item.boolean : NAN;
    json_free(j);
    return !isnan(*v);
}

// A way of sampling that is not built in: only the value that turns it off.
static bool off_take(struct serve_ask *a, struct str raw, const char *name) {
    const double off = strcmp(name, "typical_p") == 0 ? 1 : 0;
    double v;
    if (number_read(raw, &v) && v == off) return true;
    return serve_bad(a, name, "%s: this way of sampling is not built in; leave it out, or send %g", name, off);
}

static bool seed_take(struct serve_ask *a, struct str raw, const char *name) {
    double v;
    int64_t n;
    if (raw.data[0] == 't' || raw.data[0] == 'f' || !number_read(raw, &v) || v != floor(v) || fabs(v) > 9e18)
        return serve_bad(a, name, "%s must be a whole number", name);
    if (!str_to_i64(raw, &n)) n = (int64_t)v;
    a->seed = n < 0 || n == UINT32_MAX ? SERVE_UNSET : n; // -1: another one each time
    return true;
}

static bool lora_take(struct serve_ask *a, struct str raw, const char *name) {
    return str_eqz(raw, "[]") || serve_bad(a, name, "%s: no adapters are loaded here", name);
}

#define OFF_FIELD(name_) \
    { name_, SERVE_FIELD_TAKE, 0, 0, 0, off_take, 0 }
#define NATIVE_FIELDS                                                                                                  \
    SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), {"seed", SERVE_FIELD_TAKE, 0, 0, 0, seed_take, 0},             \
        SERVE_FIELDS_SAMPLING, SERVE_FIELD("repeat_last_n", SERVE_FIELD_INT, repeat_last, -1, 4096),                   \
        SERVE_FIELD("grammar", SERVE_FIELD_STR, grammar, 0, 0),                                                        \
        SERVE_FIELD("json_schema", SERVE_FIELD_RAW, json_schema, 0, 0),                                                \
        SERVE_FIELD("ignore_eos", SERVE_FIELD_BOOL, ignore_eos, 0, 0),                                                 \
        SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0),                                                         \
        SERVE_FIELD("return_progress", SERVE_FIELD_BOOL, return_progress, 0, 0),                                       \
        {"logit_bias", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_logit_bias, 0},                                           \
        SERVE_FIELD("n_cmpl", SERVE_FIELD_INT, n, 1, SERVE_N_MAX),                                                     \
        SERVE_FIELD("n", SERVE_FIELD_INT, n, 1, SERVE_N_MAX),                                                          \
        SERVE_FIELD("timings_per_token", SERVE_FIELD_BOOL, timings_per_token, 0, 0),                                   \
        SERVE_FIELD("n_indent", SERVE_FIELD_INT, n_indent, 0, SERVE_INDENT_MAX),                                       \
        SERVE_FIELD("t_max_predict_ms", SERVE_FIELD_INT, answer_ms_max, 0, 9e15),                                      \
        NATIVE_FIELD("n_predict", SERVE_FIELD_INT, n_predict, -2, 9e15),                                               \
        NATIVE_FIELD("max_tokens", SERVE_FIELD_INT, n_predict, -2, 9e15),                                              \
        NATIVE_FIELD("n_probs", SERVE_FIELD_INT, n_probs, 0, TERN_TOP_LOGPROBS_MAX),                                   \
        NATIVE_FIELD("return_tokens", SERVE_FIELD_BOOL, with_tokens, 0, 0),                                            \
        NATIVE_FIELD("response_fields", SERVE_FIELD_RAW, response_fields, 0, 0), OFF_FIELD("typical_p"),               \
        OFF_FIELD("dynatemp_range"), OFF_FIELD("xtc_probability"), OFF_FIELD("dry_multiplier"), OFF_FIELD("mirostat"), \
        OFF_FIELD("post_sampling_probs"), {                                                                            \
        "lora", SERVE_FIELD_TAKE, 0, 0, 0, lora_take, 0                                                                \
    }

static const struct serve_field completion_fields[] = {
    NATIVE_FIELDS, SERVE_FIELD("prompt", SERVE_FIELD_RAW, prompt, 0, 0), {0}};
static const struct serve_field infill_fields[] = {NATIVE_FIELDS,
                                                   SERVE_FIELD("prompt", SERVE_FIELD_STR, prompt, 0, 0),
                                                   NATIVE_FIELD("input_prefix", SERVE_FIELD_STR, before, 0, 0),
                                                   NATIVE_FIELD("input_suffix", SERVE_FIELD_STR, after, 0, 0),
                                                   NATIVE_FIELD("input_extra", SERVE_FIELD_RAW, extra, 0, 0),
                                                   {0}};

static bool path_take(void *arg, struct str raw, int i) {
    struct serve_answer *a = arg;
    struct native *x = a->extra;
    x->n_fields = i + 1;
    return serve_string_read(&a->ask, raw, &x->fields[i]) ||
           serve_bad(&a->ask, "response_fields", "response_fields must be a list of names");
}

// What the fields say of the answer; a->ask is q's already.
static bool native_finish(struct serve_answer *a, const struct native_ask *q) {
    struct serve_ask *ask = &a->ask;
    struct native *x = arena_calloc(&ask->arena, 1, sizeof *x);
    a->extra = x;
    if (!x) return serve_fault_set(&ask->fault, 503, NULL, "no_memory", "no memory for the request"), false;
    if (q->response_fields.len > 0 &&
        !serve_list_each(ask, q->response_fields, "response_fields", NATIVE_FIELDS_MAX, path_take, a))
        return false;
    x->with_tokens = q->with_tokens;
    x->with_probs = q->n_probs > 0;
    x->is_silent = q->n_predict == 0;
    if (ask->repeat_last < 0) ask->repeat_last = 4096;
    if (q->n_predict >= 0) ask->max_tokens = MAX(q->n_predict, 1);
    ask->logprobs_n = x->with_probs ? q->n_probs : x->with_tokens && ask->stream ? 0 : SERVE_UNSET;
    return true;
}

// The text before the gap goes on with what was typed since: the prompt.
static bool gap_take(struct serve_answer *a, const struct native_ask *q, struct serve_prompt *p) {
    struct serve_gap gap = {.after = q->after, .extra = q->extra, .param = "input_prefix"};
    struct buf before;
    if (!q->before.data) return serve_bad(&a->ask, "input_prefix", "input_prefix is missing: the text before the gap");
    if (!q->after.data) return serve_bad(&a->ask, "input_suffix", "input_suffix is missing: the text behind the gap");
    buf_init(&before, SERVE_TEXT_BYTES_MAX);
    buf_put(&before, q->before.data, q->before.len);
    buf_put(&before, a->ask.prompt.data, a->ask.prompt.len);
    gap.before = buf_str(&before);
    if (before.failed) serve_fault_set(&a->ask.fault, 503, NULL, "no_memory", "no memory for the request");
    const bool ok = !before.failed && serve_gap_prompt(a, &gap, p);
    buf_release(&before);
    return ok;
}

static void native_start(struct serve *s, struct net_request *r, bool infill) {
    struct serve_answer *a = serve_answer_create(s, r, &serve_native_wire, "cmpl-");
    if (!a) return;
    struct native_ask q = {.ask = a->ask, .n_predict = -1};
    struct serve_prompt prompts[SERVE_PROMPTS_MAX] = {0};
    int n = 1;
    bool ok = serve_fields_read(&q.ask, r->body, "", infill ? infill_fields : completion_fields);
    a->ask = q.ask;
    ok = ok && native_finish(a, &q) && (infill ? gap_take(a, &q, prompts) : serve_prompts_take(a, prompts, true, &n));
    struct native *x = a->extra;
    for (int i = 0; i < n && ok; i++) ok = serve_prompt_text(a, &prompts[i], &x->prompts[i]);
    if (!ok) serve_fail(r, &a->ask.fault);
    if (!ok || !serve_model_check(s, r, a->ask.model) || !serve_answer_prepare(a)) {
        serve_answer_free(a);
        return;
    }
    serve_answer_start(a, prompts, n);
}

void serve_native_completion(struct serve *s, struct net_request *r) { native_start(s, r, false); }
void serve_native_infill(struct serve *s, struct net_request *r) { native_start(s, r, true); }
