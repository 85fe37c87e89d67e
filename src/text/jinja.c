// Templates as a whole: create, render, and the ranges of tainted output.
//
// A template is parsed once and never changes, so threads share it. A render owns an arena with the values it makes and
// is bounded in steps, depth, output, memory and time; the bounds are in text.h. Rejected: an existing engine (none for
// C with limits and taint).
#include "base/base.h"
#include "text/jinja_int.h"

// Jinja normalises line ends to \n and drops one at the end of the source.
static enum tern_status copy_source(struct jinja *j, struct str source, struct tern_err *err) {
    char *text = arena_alloc(&j->arena, source.len + 1);
    if (!text) return err_set(err, TERN_NO_MEMORY, "out of memory while reading the template");
    size_t n = 0;
    for (size_t i = 0; i < source.len; i++) {
        char c = source.data[i];
        if (c == '\r') {
            c = '\n';
            if (i + 1 < source.len && source.data[i + 1] == '\n') i++;
        }
        text[n++] = c;
    }
    if (n > 0 && text[n - 1] == '\n') n--;
    text[n] = 0;
    j->source = (struct str){text, n};
    return TERN_OK;
}

enum tern_status jinja_create(struct jinja **out, struct str source, struct tern_err *err) {
    struct tern_err own;
    size_t bad;
    if (!err) err = &own;
    if (source.len > JINJA_SOURCE_BYTES_MAX)
        return err_set(err, TERN_LIMIT, "the template has %zu bytes, at most %u are read (JINJA_SOURCE_BYTES_MAX)",
                       source.len, JINJA_SOURCE_BYTES_MAX);
    if (!utf8_valid(source, &bad))
        return err_set_at(err, TERN_BAD_FORMAT, (int64_t)bad, "the template is not UTF-8: byte %zu", bad);
    struct jinja *j = mem_calloc(1, sizeof(*j));
    if (!j) return err_set(err, TERN_NO_MEMORY, "out of memory while reading the template");
    arena_init(&j->arena, JINJA_MEMORY_BYTES_MAX);
    enum tern_status status = copy_source(j, source, err);
    if (status == TERN_OK) status = jinja_parse(j, err);
    if (status != TERN_OK) {
        jinja_free(j);
        return status;
    }
    *out = j;
    return TERN_OK;
}

void jinja_free(struct jinja *j) {
    if (!j) return;
    arena_release(&j->arena);
    mem_free(j);
}

void jinja_output_release(struct jinja_output *o) {
    buf_release(&o->text);
    mem_free(o->tainted);
    *o = (struct jinja_output){.text = {.cap_max = JINJA_OUTPUT_BYTES_MAX}};
}

static void set_global(struct jinterp *it, struct str name, struct jval v) {
    for (int i = 0; i < it->j->n_syms; i++)
        if (str_eq(it->j->syms[i], name)) it->globals[i] = v;
}

static enum tern_status interp_init(struct jinterp *it, const struct jinja *j, size_t input_bytes, int64_t now,
                                    struct tern_err *err) {
    *it = (struct jinterp){.j = j, .err = err, .now_wall_s = now ? now : clock_wall_s()};
    it->deadline_ns = clock_ns() + (uint64_t)JINJA_TIME_MS_MAX * 1000000;
    it->steps_clock = JINJA_CLOCK_STEPS;
    arena_init(&it->arena, JINJA_MEMORY_BYTES_MAX);
    uint8_t *ones = jalloc(it, input_bytes + 1, 1);
    it->globals = jalloc(it, (size_t)j->n_syms + 1, sizeof(*it->globals));
    if (it->status != TERN_OK) return it->status;
    memset(ones, 1, input_bytes + 1);
    it->ones = ones;
    it->n_ones = input_bytes;
    for (int i = 0; i < j->n_syms; i++) {
        const struct jbuiltin *f = jglobal_find(j->syms[i]);
        it->globals[i] = f ? (struct jval){.type = J_FUNC, .u.func = f} : jval_missing;
    }
    return TERN_OK;
}

static void set_dict_globals(struct jinterp *it, struct jval v) {
    for (size_t i = 0; v.type == J_DICT && i < v.u.d->len && jstep(it, 1); i++)
        set_global(it, jstr_str(v.u.d->pairs[i].key.u.s), v.u.d->pairs[i].value);
}

static enum tern_status fail_memory(struct tern_err *err) {
    return err_set(err, TERN_NO_MEMORY, "out of memory while rendering the template");
}

// Taint bytes to ranges.
static enum tern_status put_ranges(struct jinja_output *out, const struct jbuf *sink, struct tern_err *err) {
    size_t n = 0;
    for (size_t i = 0; sink->taint && i < sink->len; i++) n += sink->taint[i] && (i == 0 || !sink->taint[i - 1]);
    struct text_range *ranges = mem_calloc(n + 1, sizeof(*ranges));
    if (!ranges) return fail_memory(err);
    size_t k = 0;
    for (size_t i = 0; n > 0 && i < sink->len; i++) {
        if (!sink->taint[i]) continue;
        if (i == 0 || !sink->taint[i - 1]) ranges[k++].begin = i;
        ranges[k - 1].end = i + 1;
    }
    out->tainted = ranges;
    out->n_tainted = (int)n;
    return TERN_OK;
}

static enum tern_status run(struct jinterp *it, struct jinja_output *out) {
    struct jbuf sink = {0};
    it->sink = &sink;
    it->scope = jscope_push(it, NULL);
    if (it->scope) jexec(it, it->j->root);
    if (it->status != TERN_OK) return it->status;
    struct jinja_output made = {0};
    buf_init(&made.text, JINJA_OUTPUT_BYTES_MAX);
    enum tern_status status = buf_put(&made.text, sink.data, sink.len) ? TERN_OK : fail_memory(it->err);
    if (status == TERN_OK) status = put_ranges(&made, &sink, it->err);
    if (status == TERN_OK)
        *out = made;
    else
        jinja_output_release(&made);
    return status;
}

enum tern_status jinja_render_vars(const struct jinja *j, struct jinja_output *out, struct str vars_json,
                                   int64_t now_wall_s, struct tern_err *err) {
    struct tern_err own;
    struct jinterp it;
    struct jval vars;
    enum tern_status status = interp_init(&it, j, vars_json.len, now_wall_s, err ? err : &own);
    if (status == TERN_OK && vars_json.len > 0) {
        status = jinja_value_from_json(&it, &vars, vars_json, "template variables");
        if (status == TERN_OK && vars.type != J_DICT)
            status = err_set(it.err, TERN_BAD_FORMAT, "template variables: expected a JSON object");
        if (status == TERN_OK) set_dict_globals(&it, vars);
    }
    if (status == TERN_OK) status = run(&it, out);
    arena_release(&it.arena);
    return status;
}

static enum tern_status set_input(struct jinterp *it, const struct jinja_input *in) {
    struct jval messages, tools = jval_none, extra = jval_none;
    TRY(jinja_value_from_json(it, &messages, in->messages, "messages"));
    if (messages.type != J_LIST) return err_set(it->err, TERN_BAD_FORMAT, "messages: expected a JSON array");
    if (in->tools.len > 0) TRY(jinja_value_from_json(it, &tools, in->tools, "tools"));
    if (tools.type != J_LIST && tools.type != J_NONE)
        return err_set(it->err, TERN_BAD_FORMAT, "tools: expected a JSON array");
    if (in->extra.len > 0) TRY(jinja_value_from_json(it, &extra, in->extra, "template variables"));
    if (extra.type != J_DICT && extra.type != J_NONE)
        return err_set(it->err, TERN_BAD_FORMAT, "template variables: expected a JSON object");
    set_dict_globals(it, extra);
    set_global(it, STR("messages"), messages);
    set_global(it, STR("tools"), tools);
    set_global(it, STR("add_generation_prompt"), jbool(in->add_generation_prompt));
    set_global(it, STR("bos_token"), jstr_copy(it, in->bos_token, false));
    set_global(it, STR("eos_token"), jstr_copy(it, in->eos_token, false));
    return it->status;
}

enum tern_status jinja_render(const struct jinja *j, struct jinja_output *out, const struct jinja_input *in,
                              struct tern_err *err) {
    struct tern_err own;
    struct jinterp it;
    size_t bytes = MAX(in->messages.len, MAX(in->tools.len, in->extra.len));
    enum tern_status status = interp_init(&it, j, bytes, in->now_wall_s, err ? err : &own);
    if (status == TERN_OK) status = set_input(&it, in);
    if (status == TERN_OK) status = run(&it, out);
    arena_release(&it.arena);
    return status;
}
