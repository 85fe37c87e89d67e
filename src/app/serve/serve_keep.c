// How long models stay loaded: by --idle, by keep_alive of Ollama's requests, and the requests that only load or unload
// one: POST /models/load and /models/unload as llama-server's router has them, and Ollama's empty prompts.
//
// keep_alive holds for the model from then on, until another request says otherwise or it is unloaded. Unloading waits
// for nobody: a model at work goes when the last of its requests is over.
#include "base/base.h"
#include "serve_ollama.h"

#include <math.h>
#include <stdio.h>

#define KEEP_S_MAX 9.2e9 // about 292 years, as nanoseconds in 63 bits

// "1h30m", "300ms", "-1", "10": Go's form of durations, and bare seconds. False: it is none.
static bool duration_read(struct str text, double *seconds) {
    static const struct {
        const char *name;
        double s;
    } units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"µs", 1e-6}, {"ns", 1e-9}, {"h", 3600}, {"m", 60}, {"s", 1}};
    const bool negative = text.len > 0 && text.data[0] == '-';
    double sum = 0;
    if (text.len > 0 && (negative || text.data[0] == '+')) text.data++, text.len--;
    if (text.len == 0) return false;
    while (text.len > 0) {
        size_t n = 0, unit = 0;
        double v;
        while (n < text.len && ((text.data[n] >= '0' && text.data[n] <= '9') || text.data[n] == '.')) n++;
        if (n == 0 || !str_to_f64((struct str){text.data, n}, &v)) return false;
        const bool bare = n == text.len; // whole seconds alone
        const struct str rest = {text.data + n, text.len - n};
        while (!bare && unit < ARRAY_LEN(units) && !str_starts(rest, str_from(units[unit].name))) unit++;
        if (unit == ARRAY_LEN(units) || (bare && sum > 0)) return false;
        sum += v * (bare ? 1 : units[unit].s);
        n += bare ? 0 : strlen(units[unit].name);
        text = (struct str){text.data + n, text.len - n};
    }
    *seconds = negative ? -sum : sum;
    return true;
}

bool serve_keep_parse(struct str text, int64_t *keep_ns) {
    double s;
    if (!duration_read(text, &s) || isnan(s)) return false;
    *keep_ns = signbit(s) ? SERVE_KEEP_FOREVER : (int64_t)(MIN(s, KEEP_S_MAX) * 1e9);
    return true;
}

bool serve_take_keep_alive(struct serve_ask *a, struct str raw, const char *name) {
    struct str text = raw;
    if (raw.data[0] == '"' && !serve_string_read(a, raw, &text)) return false;
    if (text.len == 0) return true; // as absent
    const bool number = raw.data[0] == '"' || raw.data[0] == '-' || (raw.data[0] >= '0' && raw.data[0] <= '9');
    double s;
    int64_t ns = 0;
    bool ok = number && serve_keep_parse(text, &ns);
    if (!ok && number && raw.data[0] != '"' && str_to_f64(raw, &s)) // 1e2
        ok = true, ns = s < 0 ? SERVE_KEEP_FOREVER : (int64_t)(MIN(s, KEEP_S_MAX) * 1e9);
    if (!ok)
        return serve_bad(a, name, "%s must be seconds, or a duration like \"5m\" or \"1h30m\"; -1: for ever", name);
    a->keep_alive = true;
    a->keep_ns = ns;
    return true;
}

void serve_keep_set(struct serve *s, struct serve_model *m, const struct serve_ask *a) {
    if (!a->keep_alive) return;
    mutex_lock(s->lock);
    m->keep_said = true;
    m->keep_ns = a->keep_ns;
    mutex_unlock(s->lock);
}

uint64_t serve_model_expires_locked(const struct serve *s, const struct serve_model *m) {
    const int64_t idle = s->o.idle_s > 0 ? (int64_t)((double)s->o.idle_s * 1e9) : SERVE_KEEP_FOREVER;
    const int64_t keep = m->keep_said ? m->keep_ns : idle;
    if (keep == SERVE_KEEP_FOREVER) return UINT64_MAX;
    return (m->n_users > 0 ? clock_ns() : m->used_ns) + (uint64_t)keep;
}

// ------------------------------------------------------------------------------------------------------------- routes

void serve_model_want(struct serve *s, struct serve_model *m) {
    mutex_lock(s->lock);
    if (m->state == SERVE_UNLOADED && !s->is_draining) m->state = SERVE_WANTED;
    cond_signal(s->wake);
    mutex_unlock(s->lock);
}

// The model of a body that has nothing but its name; NULL after answering.
static struct serve_model *named_model(struct serve *s, struct net_request *r) {
    static const struct serve_field fields[] = {SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), {0}};
    struct serve_ask a;
    struct serve_model *m = NULL;
    serve_ask_init(&a, s);
    bool ok = serve_fields_read(&a, r->body, "", fields);
    if (ok && a.model.len == 0) ok = serve_bad(&a, "model", "model is missing: the name of a model that is served");
    if (!ok)
        serve_fail(r, &a.fault);
    else if (!(m = serve_model_find(s, a.model)))
        serve_model_unknown(s, r, a.model);
    serve_ask_release(&a);
    return m;
}

static void success_reply(struct net_request *r) { serve_reply(r, "application/json", STR("{\"success\":true}")); }

// Answers at once; /v1/models tells when it is there, or `failed`.
void serve_models_load(struct serve *s, struct net_request *r) {
    struct serve_model *m = named_model(s, r);
    if (!m) return;
    serve_model_want(s, m);
    success_reply(r);
}

void serve_models_unload(struct serve *s, struct net_request *r) {
    struct serve_model *m = named_model(s, r);
    if (!m) return;
    if (serve_model_unload(s, m))
        success_reply(r);
    else
        serve_failf(r, 400, "model", "not_loaded", "the model %s is not loaded", m->id);
}

// An Ollama request with keep_alive 0 and nothing to answer: the model goes, without being loaded for that before.
bool serve_ollama_unloads(struct serve *s, struct net_request *r, struct serve_model *m, bool chat) {
    static const struct serve_field fields[] = {SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0),
                                                SERVE_FIELD("messages", SERVE_FIELD_RAW, messages, 0, 0),
                                                SERVE_FIELD("prompt", SERVE_FIELD_RAW, prompt, 0, 0),
                                                {"keep_alive", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_keep_alive, 0},
                                                {0}};
    struct serve_ask a;
    serve_ask_init(&a, s);
    const struct str said = {0};
    bool unloads = serve_fields_read(&a, r->body, "", fields) && a.keep_alive && a.keep_ns == 0 && a.model.len > 0;
    const struct str words = chat ? a.messages : a.prompt;
    unloads = unloads && (str_eq(words, said) || str_eqz(words, "[]") || str_eqz(words, "\"\""));
    serve_ask_release(&a);
    if (!unloads) return false;
    serve_model_unload(s, m);
    serve_ollama_empty_reply(s, r, m, chat, "unload");
    return true;
}
