// See engine_fixture.h.
#include "engine_fixture.h"

#include <stdio.h>

#define SEEN_TEXT_MAX (1u << 20)
#define SCRIPTS_MAX 32
#define CONTROL_IDS 37 // of the script model

static struct json_file scripts_file;
static struct script scripts[SCRIPTS_MAX];
const struct script *fixture_scripts = scripts;
int fixture_n_scripts;

void fixture_must(enum tern_status status, const struct tern_err *err) {
    if (status != TERN_OK) fail_msg("%s: %s", tern_status_text(status), err->message);
}

struct tern_engine_options fixture_options(const char *model_path) {
    struct tern_engine_options o;
    tern_engine_options_default(&o);
    o.model_path = model_path;
    o.pack_cache = false;
    o.n_threads = 1;
    o.n_ctx = 1024;
    return o;
}

struct tern_engine *fixture_engine(const struct tern_engine_options *o) {
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    fixture_must(tern_engine_open(&e, o, &err), &err);
    return e;
}

struct tern_session *fixture_session(struct tern_engine *e) {
    struct tern_session *s = NULL;
    struct tern_err err = {0};
    fixture_must(tern_session_open(&s, e, &err), &err);
    return s;
}

const char *fixture_temp_path(char out[256], const char *name) {
    const char *folder = env_get("TMPDIR");
    snprintf(out, 256, "%s/tern-test-%d-%s", folder ? folder : "/tmp", os_pid(), name);
    return out;
}

static void seen_init(struct seen *seen) {
    *seen = (struct seen){0};
    buf_init(&seen->text, SEEN_TEXT_MAX);
    buf_init(&seen->reasoning, SEEN_TEXT_MAX);
    buf_init(&seen->calls, SEEN_TEXT_MAX);
}

void seen_release(struct seen *seen) {
    buf_release(&seen->text);
    buf_release(&seen->reasoning);
    buf_release(&seen->calls);
}

static void seen_text(struct buf *out, struct tern_str piece) {
    assert_true(utf8_valid((struct str){piece.data, piece.len}, NULL));
    assert_true(buf_put(out, piece.data, piece.len));
}

static void seen_call(struct seen *seen, const struct tern_event *ev) {
    buf_puts(&seen->calls, seen->n_calls++ ? ", {\"name\": " : "{\"name\": ");
    json_put_quoted(&seen->calls, (struct str){ev->tool_name.data, ev->tool_name.len});
    buf_puts(&seen->calls, ", \"arguments\": ");
    buf_put(&seen->calls, ev->tool_arguments.data, ev->tool_arguments.len);
    buf_puts(&seen->calls, "}");
}

enum tern_status seen_pull(struct seen *seen, struct tern_request *r, struct tern_err *err) {
    struct tern_event ev;
    seen_init(seen);
    for (;;) {
        TRY(tern_request_next(r, &ev, err));
        if (ev.type == TERN_EVENT_TEXT) {
            seen_text(&seen->text, ev.text);
            seen->n_text_events++;
        }
        if (ev.type == TERN_EVENT_REASONING) seen_text(&seen->reasoning, ev.text);
        if (ev.type == TERN_EVENT_TOOL_CALL) seen_call(seen, &ev);
        if (ev.type == TERN_EVENT_PROGRESS) seen->n_progress++;
        for (int i = 0; i < ev.n_logprobs; i += ev.n_logprobs_token) {
            seen->n_logprobs++;
            seen->logprob_sum += (double)ev.logprobs[i].logprob;
        }
        if (ev.type != TERN_EVENT_DONE) continue;
        seen->finish = ev.finish;
        seen->usage = ev.usage;
        const int32_t *ids = tern_request_ids(r, &seen->n_ids);
        assert_true(seen->n_ids <= SEEN_IDS_MAX);
        if (seen->n_ids) memcpy(seen->ids, ids, seen->n_ids * sizeof *ids);
        assert_int_equal(seen->usage.n_answer, seen->n_ids);
        struct tern_logprob lp[1 + TERN_TOP_LOGPROBS_MAX];
        for (size_t i = 1; tern_request_prompt_logprobs(r, i, lp); i++)
            seen->score_sum += (double)lp[0].logprob * (double)i;
        // Nothing comes after the end.
        assert_int_equal(tern_request_next(r, &ev, NULL), TERN_INVALID_ARGUMENT);
        return TERN_OK;
    }
}

void seen_run(struct seen *seen, struct tern_session *s, const struct tern_request_options *o) {
    struct tern_request *r = NULL;
    struct tern_err err = {0};
    fixture_must(tern_request_create(&r, s, o, &err), &err);
    fixture_must(seen_pull(seen, r, &err), &err);
    tern_request_free(r);
}

void refused_run(struct tern_session *s, const struct tern_request_options *o, enum tern_status want,
                 struct tern_err *err) {
    struct tern_request *r = NULL;
    struct seen seen = {0};
    *err = (struct tern_err){0};
    enum tern_status status = tern_request_create(&r, s, o, err);
    if (status == TERN_OK) {
        status = seen_pull(&seen, r, err);
        seen_release(&seen);
    }
    tern_request_free(r);
    if (status != want)
        fail_msg("status '%s' where '%s' is wanted: %s", tern_status_text(status), tern_status_text(want),
                 err->message);
    assert_true(err->message[0] != 0);
}

int fixture_setup(void **state) {
    (void)state;
    json_file_read(&scripts_file, TEST_DATA "/script/scripts.json");
    fixture_n_scripts = 0;
    JSON_EACH(from, scripts_file.root) {
        struct script *s = &scripts[fixture_n_scripts++];
        assert_true(fixture_n_scripts < SCRIPTS_MAX);
        const struct json_tree *ids = json_get(from, "ids");
        int32_t *list = arena_calloc(&scripts_file.arena, (size_t)ids->n + 1, sizeof *list);
        assert_non_null(list);
        *s = (struct script){.text = json_get(from, "text")->text, .ids = list, .n_ids = ids->n};
        snprintf(s->name, sizeof s->name, "%.*s", (int)from->key.len, from->key.data);
        int n = 0;
        JSON_EACH(id, ids) {
            list[n] = (int32_t)id->integer;
            s->has_control |= list[n] < CONTROL_IDS && n + 1 < ids->n;
            n++;
        }
    }
    return 0;
}

int fixture_teardown(void **state) {
    (void)state;
    json_file_release(&scripts_file);
    return 0;
}

const struct script *script_get(const char *name) {
    for (int i = 0; i < fixture_n_scripts; i++)
        if (strcmp(scripts[i].name, name) == 0) return &scripts[i];
    fail_msg("no script %s", name);
    return NULL;
}

const char *script_prompt(const struct script *script, char out[256]) {
    snprintf(out, 256, "<|startoftext|><|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n<|script_%s|>",
             script->name, script->name);
    return out;
}

struct tern_request_options script_request(const struct script *script, char out[256]) {
    struct tern_request_options o;
    tern_request_options_default(&o);
    script_prompt(script, out);
    o.prompt = (struct tern_str){out, strlen(out)};
    o.prompt_special = true;
    return o;
}

void ids_check(const struct seen *seen, const struct script *script, int n, const char *what) {
    for (int i = 0; i < n && i < (int)seen->n_ids; i++)
        if (seen->ids[i] != script->ids[i])
            fail_msg("%s, %s: token %d is %d, expected %d", script->name, what, i, seen->ids[i], script->ids[i]);
    if ((int)seen->n_ids != n) fail_msg("%s, %s: %zu tokens, expected %d", script->name, what, seen->n_ids, n);
}
