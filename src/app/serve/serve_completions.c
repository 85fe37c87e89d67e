// POST /v1/completions: text goes on where a prompt ends. OpenAI's older wire format, whole and streamed.
#include "base/base.h"
#include "serve_parts.h"

#include <math.h>

#define LOGPROBS_MAX 5 // as OpenAI's

#define ECHO_BYTES_MAX (1u << 20) // of prompts that are scored, ids as four each

struct echo { // a prompt that is given back in front of its answer
    struct str text;
};
struct completion {               // a->extra
    bool is_silent;               // max_tokens 0
    bool told[SERVE_CHOICES_MAX]; // streamed: the choice's prompt
    struct echo echoes[];
};
static bool scores_prompts(const struct serve_ask *ask) { return ask->echo && ask->logprobs_n != SERVE_UNSET; }
static const struct completion *completion_of(const struct serve_answer *a) { return a->extra; }

// max_tokens 0: only the prompt, which is read, scored and given back.
static const struct serve_field fields[] = {SERVE_FIELD("max_tokens", SERVE_FIELD_INT, max_tokens, 0, 9e15),
                                            SERVE_FIELDS_OPENAI,
                                            SERVE_FIELD("prompt", SERVE_FIELD_RAW, prompt, 0, 0),
                                            SERVE_FIELD("best_of", SERVE_FIELD_INT, best_of, 1, SERVE_N_MAX),
                                            SERVE_FIELD("logprobs", SERVE_FIELD_INT, logprobs_n, 0, LOGPROBS_MAX),
                                            SERVE_FIELD("echo", SERVE_FIELD_BOOL, echo, 0, 0),
                                            SERVE_FIELD("suffix", SERVE_FIELD_STR, suffix, 0, 0),
                                            {0}};

// ------------------------------------------------------------------------------------------------------------- pieces

static void head_put(struct json_writer *w, const struct serve_answer *a) {
    json_write_object(w);
    serve_put_str(w, "id", str_from(a->id));
    serve_put_str(w, "object", STR("text_completion"));
    json_write_key(w, "created");
    json_write_int(w, a->created_s);
    serve_put_str(w, "model", str_from(a->m->id));
    serve_put_str(w, "system_fingerprint", str_from(a->s->fingerprint));
}

// The parallel lists of the old format. `kept` holds, one after the other and each ended by a line feed, what goes into
// them: token, logprob, top object, offset; so pieces of a stream and the whole are written alike.
enum { LISTS = 4 };
static const char *const list_names[LISTS] = {"tokens", "token_logprobs", "top_logprobs", "text_offset"};

static void token_lines_put(struct buf *kept, const struct tern_logprob *l, int per, size_t offset) {
    struct json_writer w;
    json_put_quoted(kept, serve_view(l[0].bytes));
    buf_putc(kept, '\n');
    json_write_init(&w, kept);
    json_write_f64(&w, (double)l[0].logprob);
    buf_putc(kept, '\n');
    json_write_init(&w, kept);
    if (isnan(l[0].logprob)) { // a prompt's first token
        json_write_null(&w);
    } else {
        json_write_object(&w);
        for (int k = 1; k < per; k++) {
            if (l[k].id < 0) continue;
            json_write_key_str(&w, serve_view(l[k].bytes));
            json_write_f64(&w, (double)l[k].logprob);
        }
        json_write_object_end(&w);
    }
    buf_putf(kept, "\n%zu\n", offset);
}

static void event_lines_put(struct buf *kept, const struct tern_event *e, size_t offset) {
    int per = e->n_logprobs_token;
    for (int i = 0; per > 0 && i + per <= e->n_logprobs; i += per) {
        token_lines_put(kept, &e->logprobs[i], per, offset);
        offset += e->logprobs[i].bytes.len;
    }
}

static void lists_put(struct json_writer *w, struct str kept) {
    json_write_object(w);
    for (int list = 0; list < LISTS; list++) {
        json_write_key(w, list_names[list]);
        json_write_array(w);
        struct str rest = kept;
        for (int line = 0; rest.len > 0; line++) {
            size_t end = str_find(rest, STR("\n"), 0);
            if (line % LISTS == list) json_write_raw(w, (struct str){rest.data, end});
            rest = (struct str){rest.data + end + 1, rest.len - end - 1};
        }
        json_write_array_end(w);
    }
    json_write_object_end(w);
}

static struct str echo_of(const struct serve_answer *a, const struct serve_choice *c) {
    return a->ask.echo ? completion_of(a)->echoes[c->index / (int)a->ask.n].text : (struct str){0};
}

// The tokens of an echoed prompt. A token that is no part of the text (the begin token of a text prompt) has the place
// where it stands and no length.
static void echo_lines_put(struct buf *kept, const struct serve_answer *a, const struct serve_choice *c) {
    const struct str echo = echo_of(a, c);
    struct tern_logprob l[1 + LOGPROBS_MAX];
    size_t offset = 0;
    for (size_t i = 0; a->request.prompt_logprobs && tern_job_prompt_logprobs(c->job, i, l); i++) {
        token_lines_put(kept, l, 1 + a->request.n_logprobs, offset);
        const struct str rest = {echo.data + offset, echo.len - offset};
        if (str_starts(rest, serve_view(l[0].bytes))) offset += l[0].bytes.len;
    }
}

// ------------------------------------------------------------------------------------------------------------- stream

// e: of a text, or NULL. echoes: the text is the prompt.
static void chunk_put(struct serve_answer *a, struct serve_choice *c, struct str text, const struct tern_event *e,
                      bool echoes, const char *finish, struct buf *out) {
    struct json_writer w;
    buf_puts(out, "data: ");
    json_write_init(&w, out);
    head_put(&w, a);
    json_write_key(&w, "choices");
    json_write_array(&w);
    json_write_object(&w);
    json_write_key(&w, "index");
    json_write_int(&w, c->index);
    serve_put_str(&w, "text", text);
    json_write_key(&w, "logprobs");
    if ((e && e->n_logprobs > 0) || (echoes && a->request.prompt_logprobs)) {
        struct buf kept;
        buf_init(&kept, 2 * SERVE_TEXT_BYTES_MAX);
        if (echoes)
            echo_lines_put(&kept, a, c);
        else
            event_lines_put(&kept, e, echo_of(a, c).len + c->text.len - text.len);
        out->failed = out->failed || kept.failed;
        lists_put(&w, buf_str(&kept));
        buf_release(&kept);
    } else {
        json_write_null(&w);
    }
    json_write_key(&w, "finish_reason");
    if (finish)
        json_write_str(&w, str_from(finish));
    else
        json_write_null(&w);
    json_write_object_end(&w);
    json_write_array_end(&w);
    if (a->ask.include_usage) {
        json_write_key(&w, "usage");
        json_write_null(&w);
    }
    if (finish && a->n_choices == 1) {
        serve_timings_put(&w, a);
        serve_energy_put(&w, a);
    }
    json_write_object_end(&w);
    buf_puts(out, "\n\n");
}

static void stream_begin(struct serve_answer *a, struct buf *out) {
    for (int i = 0; i < a->n_choices && a->ask.echo && !a->request.prompt_logprobs; i++)
        chunk_put(a, &a->choices[i], echo_of(a, &a->choices[i]), NULL, true, NULL, out);
}

// Reasoning is text here: there is no other place for it.
static void on_event(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out) {
    struct str text = serve_view(e->text);
    struct completion *x = a->extra;
    bool is_text = e->type == TERN_EVENT_TEXT || e->type == TERN_EVENT_REASONING;
    if (a->streams && a->request.prompt_logprobs && !x->told[c->index] && (is_text || e->type == TERN_EVENT_DONE)) {
        x->told[c->index] = true; // the scores of the prompt are there now
        chunk_put(a, c, echo_of(a, c), NULL, true, NULL, out);
    }
    if (x->is_silent && e->type == TERN_EVENT_DONE) {
        c->usage.n_answer = 0;
        if (c->finish != TERN_FINISH_CANCELLED) c->finish = TERN_FINISH_LENGTH;
    }
    if (x->is_silent && is_text) buf_clear(&c->text);
    is_text = is_text && !x->is_silent;
    if (e->type == TERN_EVENT_REASONING && is_text) buf_put(&c->text, text.data, text.len);
    if (is_text && a->streams) chunk_put(a, c, text, e, false, NULL, out);
    if (is_text && !a->streams) event_lines_put(&c->logprobs, e, echo_of(a, c).len + c->text.len - text.len);
    if (e->type == TERN_EVENT_DONE && a->streams && c->finish != TERN_FINISH_CANCELLED)
        chunk_put(a, c, STR(""), NULL, false, tern_finish_text(c->finish), out);
}

static void stream_end(struct serve_answer *a, struct buf *out) {
    if (a->ask.include_usage) {
        struct json_writer w;
        buf_puts(out, "data: ");
        json_write_init(&w, out);
        head_put(&w, a);
        json_write_key(&w, "choices");
        json_write_array(&w);
        json_write_array_end(&w);
        json_write_key(&w, "usage");
        serve_usage_put(&w, a);
        serve_timings_put(&w, a);
        serve_energy_put(&w, a);
        json_write_object_end(&w);
        buf_puts(out, "\n\n");
    }
    buf_puts(out, "data: [DONE]\n\n");
}

static void whole(struct serve_answer *a, struct buf *out) {
    struct json_writer w;
    json_write_init(&w, out);
    head_put(&w, a);
    json_write_key(&w, "choices");
    json_write_array(&w);
    for (int i = 0; i < a->n_choices; i++) {
        struct serve_choice *c = &a->choices[i];
        struct str echo = echo_of(a, c);
        struct buf text;
        buf_init(&text, 2 * SERVE_TEXT_BYTES_MAX);
        buf_put(&text, echo.data, echo.len);
        buf_put(&text, c->text.data, c->text.len);
        if (text.failed) out->failed = true;
        json_write_object(&w);
        json_write_key(&w, "index");
        json_write_int(&w, c->index);
        serve_put_str(&w, "text", buf_str(&text));
        json_write_key(&w, "logprobs");
        if (a->request.n_logprobs >= 0) {
            struct buf kept;
            buf_init(&kept, 4 * SERVE_TEXT_BYTES_MAX);
            echo_lines_put(&kept, a, c);
            buf_put(&kept, c->logprobs.data, c->logprobs.len);
            out->failed = out->failed || kept.failed;
            lists_put(&w, buf_str(&kept));
            buf_release(&kept);
        } else {
            json_write_null(&w);
        }
        serve_put_str(&w, "finish_reason", str_from(tern_finish_text(c->finish)));
        json_write_object_end(&w);
        buf_release(&text);
    }
    json_write_array_end(&w);
    json_write_key(&w, "usage");
    serve_usage_put(&w, a);
    serve_timings_put(&w, a);
    serve_energy_put(&w, a);
    json_write_object_end(&w);
}

static const struct serve_wire wire = {.stream_type = "text/event-stream",
                                       .ping = ": still here\n\n",
                                       .begin = stream_begin,
                                       .event = on_event,
                                       .end = stream_end,
                                       .fault = serve_fault_event,
                                       .whole = whole};

// With a suffix each prompt is the text before a gap.
static bool suffix_take(struct serve_answer *a, struct serve_prompt *prompts, int n) {
    for (int i = 0; i < n && a->ask.suffix.len > 0; i++) {
        struct serve_gap gap = {.after = a->ask.suffix, .param = "suffix"};
        if (!serve_prompt_text(a, &prompts[i], &gap.before) || !serve_gap_prompt(a, &gap, &prompts[i])) return false;
    }
    return true;
}

// a->extra, with the prompts that are given back.
static bool echoes_take(struct serve_answer *a, const struct serve_prompt *prompts, int n) {
    struct serve_ask *ask = &a->ask;
    struct completion *x = arena_calloc(&ask->arena, 1, sizeof *x + (size_t)n * sizeof x->echoes[0]);
    uint64_t n_bytes = 0;
    a->extra = x;
    if (!x) return serve_fault_set(&ask->fault, 503, NULL, "no_memory", "no memory for the request"), false;
    x->is_silent = ask->max_tokens == 0;
    if (x->is_silent) ask->max_tokens = 1;
    for (int i = 0; i < n && ask->echo; i++) {
        if (!serve_prompt_text(a, &prompts[i], &x->echoes[i].text)) return false;
        n_bytes += prompts[i].n_ids > 0 ? (uint64_t)prompts[i].n_ids * sizeof(int32_t) : prompts[i].text.len;
    }
    if (!scores_prompts(ask)) return true;
    if (ask->suffix.len > 0)
        return serve_bad(ask, "suffix", "suffix: a prompt with a gap is not scored (echo, logprobs)");
    return n_bytes * (uint64_t)ask->n <= ECHO_BYTES_MAX ||
           serve_bad(ask, "echo",
                     "the prompts that are to be scored have %llu bytes (with n), ids as 4 each; at most %u",
                     (unsigned long long)(n_bytes * (uint64_t)ask->n), ECHO_BYTES_MAX);
}

void serve_completions(struct serve *s, struct net_request *r) {
    struct serve_answer *a = serve_answer_create(s, r, &wire, "cmpl-");
    if (!a) return;
    struct serve_prompt prompts[SERVE_PROMPTS_MAX] = {0};
    int n = 0;
    bool ok = serve_fields_read(&a->ask, r->body, "", fields) && serve_prompts_take(a, prompts, false, &n) &&
              echoes_take(a, prompts, n) && suffix_take(a, prompts, n);
    if (ok && a->ask.best_of != SERVE_UNSET && a->ask.best_of != a->ask.n)
        ok = serve_bad(&a->ask, "best_of", "best_of must be n: answers are not ranked here");
    if (!ok) serve_fail(r, &a->ask.fault);
    if (!ok || !serve_model_check(s, r, a->ask.model) || !serve_answer_prepare(a)) {
        serve_answer_free(a);
        return;
    }
    a->request.prompt_logprobs = scores_prompts(&a->ask);
    serve_answer_start(a, prompts, n);
}
