// tern run: one prompt in, one answer out.
#include "base/base.h"
#include "app.h"

#include <math.h>
#include <stdio.h>

struct run_opts {
    struct model_opts model;
    struct sample_opts sample;
    struct constraint_opts constraint;
    const char *prompt, *file, *system, *tools_file;
    bool raw, special, json, stats;
};

// [{"role": "system", …}, {"role": "user", …}]
static void messages_put(struct buf *b, const char *system, struct str prompt) {
    buf_puts(b, "[");
    if (system) {
        buf_puts(b, "{\"role\": \"system\", \"content\": ");
        json_put_quoted(b, str_from(system));
        buf_puts(b, "}, ");
    }
    buf_puts(b, "{\"role\": \"user\", \"content\": ");
    json_put_quoted(b, prompt);
    buf_puts(b, "}]");
}

static void result_json(const struct tern_engine *e, const struct answer_view *v, bool with_logprobs) {
    struct tern_model_info info;
    tern_engine_info(e, &info);
    struct buf b;
    buf_init(&b, APP_TEXT_BYTES_MAX);
    struct json_writer w;
    json_write_init(&w, &b);
    json_write_object(&w);
    json_write_key(&w, "model");
    json_write_str(&w, str_from(info.name));
    json_write_key(&w, "text");
    json_write_str(&w, buf_str(&v->text));
    json_write_key(&w, "reasoning");
    json_write_str(&w, buf_str(&v->reasoning));
    json_write_key(&w, "tool_calls");
    struct buf calls;
    buf_init(&calls, APP_TEXT_BYTES_MAX);
    buf_putf(&calls, "[%s]", v->calls.len ? v->calls.data : "");
    json_write_raw(&w, buf_str(&calls));
    if (with_logprobs) {
        json_write_key(&w, "logprobs");
        buf_clear(&calls);
        buf_putf(&calls, "[%s]", v->logprobs.len ? v->logprobs.data : "");
        json_write_raw(&w, buf_str(&calls));
    }
    buf_release(&calls);
    json_write_key(&w, "finish");
    json_write_str(&w, str_from(tern_finish_text(v->finish)));
    const struct tern_usage *u = &v->usage;
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {{"prompt_tokens", u->n_prompt},    {"cached_tokens", u->n_cached},
                  {"answer_tokens", u->n_answer},    {"steps", u->n_steps},
                  {"draft_rounds", u->n_rounds},     {"drafted_tokens", u->n_drafted},
                  {"accepted_tokens", u->n_accepted}};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        json_write_key(&w, counts[i].key);
        json_write_int(&w, counts[i].value);
    }
    const struct {
        const char *key;
        double value;
    } times[] = {{"load_s", u->load_s},
                 {"prompt_s", u->prompt_s},
                 {"answer_s", u->answer_s},
                 {"first_token_s", u->first_token_s},
                 {"joules", u->joules}};
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        json_write_key(&w, times[i].key);
        json_write_f64(&w, times[i].value);
    }
    json_write_key(&w, "plan");
    json_write_str(&w, str_from(u->plan));
    json_write_key(&w, "draft");
    json_write_str(&w, str_from(u->draft));
    json_write_key(&w, "numerics");
    json_write_str(&w, str_from(info.numerics));
    json_write_object_end(&w);
    buf_putc(&b, '\n');
    out_put(buf_str(&b));
    buf_release(&b);
}

static void result_text(const struct answer_view *v) {
    if (v->n_calls > 0) out_putf("%s[%s]", v->text.len ? "\n" : "", v->calls.data);
    bool ends = v->n_calls == 0 && v->text.len > 0 && v->text.data[v->text.len - 1] == '\n';
    if (!ends) out_puts("\n");
}

static int run_prompt(const struct command *c, struct run_opts *o, struct tern_engine *e, struct str prompt,
                      struct str tools) {
    struct tern_err err = {0};
    struct tern_session *s;
    if (tern_session_open(&s, e, &err) != TERN_OK) return fail_told(c, &err);
    struct tern_model_info info;
    tern_engine_info(e, &info);
    struct buf messages;
    buf_init(&messages, APP_TEXT_BYTES_MAX);
    struct tern_request_options *r = &o->sample.request;
    bool raw = o->raw || o->special || !info.has_template;
    if (raw) {
        r->prompt = (struct tern_str){prompt.data, prompt.len};
        r->prompt_special = o->special;
    } else {
        messages_put(&messages, o->system, prompt);
        r->messages_json = (struct tern_str){messages.data, messages.len};
        r->tools_json = (struct tern_str){tools.data, tools.len};
    }
    struct answer_view v;
    answer_view_init(&v, !o->json);
    enum tern_status status = answer_view_run(&v, s, r, &err);
    int code = EXIT_DONE;
    if (status != TERN_OK) {
        if (v.show && v.text.len > 0) out_puts("\n");
        out_flush();
        code = fail_told(c, &err);
    } else {
        if (o->json)
            result_json(e, &v, r->n_logprobs >= 0);
        else
            result_text(&v);
        out_flush();
        if (o->stats) usage_tell(&v.usage);
        if (v.finish == TERN_FINISH_CANCELLED) code = EXIT_INTERRUPTED;
    }
    answer_view_release(&v);
    buf_release(&messages);
    tern_session_close(s);
    return code;
}

static int run_main(const struct command *c, int argc, char **argv) {
    struct run_opts o = {0};
    model_opts_init(&o.model);
    sample_opts_init(&o.sample);
    struct opt model_rows[MODEL_OPTS_N], sample_rows[SAMPLE_OPTS_N];
    model_opts_table(&o.model, model_rows);
    sample_opts_table(&o.sample, sample_rows);
    struct opt constraint_rows[CONSTRAINT_OPTS_N];
    constraint_opts_table(&o.constraint, constraint_rows);
    const struct opt rows[] = {
        {"--prompt", 'p', "TEXT", OPT_TEXT, &o.prompt, 0, 0, "the prompt (or give it as the argument)"},
        {"--file", 'f', "FILE", OPT_TEXT, &o.file, 0, 0, "read the prompt from a file (-: standard input)"},
        {"--system", 's', "TEXT", OPT_TEXT, &o.system, 0, 0, "system message"},
        {"--tools", 0, "FILE", OPT_TEXT, &o.tools_file, 0, 0, "JSON array of tools offered to the model"},
        {"--raw", 0, NULL, OPT_FLAG, &o.raw, 0, 0, "plain text completion instead of a chat message"},
        {"--special", 0, NULL, OPT_FLAG, &o.special, 0, 0, "as --raw, and control markers in the prompt count"},
        {"--json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "one JSON object with answer, counts and timings"},
        {"--stats", 0, NULL, OPT_FLAG, &o.stats, 0, 0, "a line of counts and speeds on stderr"},
        {0}};
    const struct opt *const tables[] = {rows, constraint_rows, sample_rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    sample_opts_apply(&o.sample);
    code = constraint_opts_check(c, &o.constraint, o.tools_file != NULL);
    if (code != 0) return code;
    if (n_args > 1) return usage_error(c, "one prompt expected; put it in quotes");
    if (n_args == 1 && o.prompt) return usage_error(c, "give the prompt once");
    const char *text = o.prompt ? o.prompt : n_args == 1 && strcmp(argv[1], "-") != 0 ? argv[1] : NULL;
    const char *file = o.file ? o.file : n_args == 1 && !text ? "-" : NULL;
    struct buf prompt, tools;
    bool found;
    code = prompt_read(c, text, file, &prompt, &found);
    if (code == 0 && (!found || prompt.len == 0))
        code = usage_error(c, "no prompt: give it as the argument, with -f FILE, or on standard input");
    buf_init(&tools, APP_TEXT_BYTES_MAX);
    struct tern_err err = {0};
    if (code == 0 && o.tools_file && file_read_all(&tools, o.tools_file, &err) != TERN_OK) code = fail_told(c, &err);
    struct tern_engine *e = NULL;
    if (code == 0) code = engine_open_told(c, &o.model, &e);
    struct tern_constraint constraint = {0};
    bool constrained = false;
    if (code == 0) code = constraint_open_told(c, &o.constraint, e, buf_str(&tools), &constraint, &constrained);
    if (constrained) o.sample.request.constraint = &constraint;
    if (code == 0) code = run_prompt(c, &o, e, buf_str(&prompt), buf_str(&tools));
    tern_constraint_close(&constraint);
    tern_engine_close(e);
    buf_release(&prompt);
    buf_release(&tools);
    return code;
}

const struct command command_run = {"run", "[PROMPT]", "answer one prompt", NULL, run_main};
