// The streaming answer parser: sorts decoded text and control markers into text, reasoning and tool calls.
//
// A byte-wise state machine, so the result cannot depend on how the input was cut. Text goes out as soon as it can no
// longer become something else: held back are blanks that a call or the end would make meaningless, the trailing blanks
// of reasoning, what may be a call without its start marker ("[name(" of an offered tool at the start of a line; a JSON
// call that opens a Llama-3 answer), and the inside of a call block. What was sent is never taken back. Events of one
// kind are gathered until the end of a put.
#include "base/base.h"
#include "text/answer_int.h"

enum state {
    S_TEXT,
    S_THINK,
    S_BLOCK, // between call markers
    S_MAYBE, // held text that may become a call without start marker
    S_BARE,  // such a call
};
enum mark { M_NONE, M_THINK, M_THINK_END, M_CALL, M_CALL_END, M_PYTHON_TAG };

struct answer {
    enum answer_style style;
    bool reasoning;
    enum state state, outer; // outer: where a block returns to
    struct buf hold;         // S_BLOCK, S_MAYBE, S_BARE: the bytes so far
    struct buf blanks;       // held blanks of text or reasoning
    bool drop_blanks;        // the blanks here separate markers from text: never shown
    bool keep_blanks;        // the text is under way: blanks are text at once
    bool line_start;         // only blanks since the line began
    bool fresh;              // nothing but blanks and reasoning so far
    struct balance balance;  // S_BARE
    char *names;             // offered tools, each 0-terminated
    int n_names;
    int n_calls;
    bool stopped;
    bool no_memory;
    struct buf out; // events gathered: text of one kind
    enum answer_event_type out_type;
    answer_sink sink;
    void *arg;
};

static const struct {
    const char *text;
    enum mark mark;
    enum answer_style style; // ANSWER_PLAIN: every style
} marks[] = {
    {"<think>", M_THINK, ANSWER_PLAIN},
    {"</think>", M_THINK_END, ANSWER_PLAIN},
    {"<|tool_call_start|>", M_CALL, ANSWER_LFM2},
    {"<|tool_call_end|>", M_CALL_END, ANSWER_LFM2},
    {"<tool_call>", M_CALL, ANSWER_HERMES},
    {"</tool_call>", M_CALL_END, ANSWER_HERMES},
    {"<|python_tag|>", M_PYTHON_TAG, ANSWER_LLAMA3},
};

bool answer_is_marker(struct str marker) {
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (str_eqz(marker, marks[i].text)) return true;
    return false;
}

enum answer_style answer_style_detect(struct str chat_template, const struct tokenizer *t) {
    static const struct {
        const char *marker;
        enum answer_style style;
    } table[] = {{"<|tool_call_start|>", ANSWER_LFM2},
                 {"<tool_call>", ANSWER_HERMES},
                 {"<|python_tag|>", ANSWER_LLAMA3},
                 {"\"parameters\": dictionary of argument", ANSWER_LLAMA3}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (str_find(chat_template, str_from(table[i].marker), 0) != (size_t)-1) return table[i].style;
    for (size_t i = 0; i + 1 < ARRAY_LEN(table); i++)
        if (t && tokenizer_find(t, str_from(table[i].marker)) >= 0) return table[i].style;
    return ANSWER_PLAIN;
}

// ---- events

static void emit(struct answer *a, const struct answer_event *ev) {
    if (!a->stopped && !a->no_memory && !a->sink(a->arg, ev)) a->stopped = true;
}

static void out_flush(struct answer *a) {
    if (a->out.failed) a->no_memory = true;
    if (a->out.len > 0) emit(a, &(struct answer_event){.type = a->out_type, .text = buf_str(&a->out)});
    buf_clear(&a->out);
}

static void out_put(struct answer *a, enum answer_event_type type, struct str s) {
    if (s.len == 0) return;
    if (type != a->out_type) out_flush(a);
    a->out_type = type;
    buf_put(&a->out, s.data, s.len);
    if (a->out.failed) a->no_memory = true;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Text that is certain to be text. Keeps track of where lines start.
static void text_put(struct answer *a, struct str s) {
    if (s.len == 0) return;
    out_put(a, ANSWER_TEXT, buf_str(&a->blanks));
    buf_clear(&a->blanks);
    out_put(a, ANSWER_TEXT, s);
    a->keep_blanks = true;
    a->drop_blanks = false;
    a->fresh = false;
    for (size_t i = 0; i < s.len; i++) a->line_start = s.data[i] == '\n' || (a->line_start && is_blank(s.data[i]));
}

static void blank_put(struct answer *a, char c) {
    if (c == '\n') a->line_start = true;
    if (a->drop_blanks) return;
    if (a->keep_blanks)
        out_put(a, ANSWER_TEXT, (struct str){&c, 1});
    else if (!buf_putc(&a->blanks, c))
        a->no_memory = true;
}

// After a call: blanks are held and vanish before another call or the end.
static void after_call(struct answer *a) {
    buf_clear(&a->hold);
    buf_clear(&a->blanks);
    a->keep_blanks = a->drop_blanks = false;
    a->line_start = true;
    a->fresh = false;
}

// ---- calls

static bool is_offered(const struct answer *a, struct str name) {
    const char *p = a->names;
    for (int i = 0; i < a->n_names; i++, p += strlen(p) + 1)
        if (str_eqz(name, p)) return true;
    return false;
}

struct item_take {
    struct answer *a;
    int n_calls, n_bad;
    bool count_only, must_be_offered;
};

static bool item_sink(void *arg, const struct block_item *item) {
    struct item_take *t = arg;
    struct answer *a = t->a;
    bool ok = item->is_call && (!t->must_be_offered || is_offered(a, item->name));
    if (!t->count_only && ok && a->n_calls >= ANSWER_CALLS_MAX) ok = false;
    t->n_calls += ok;
    t->n_bad += !ok;
    if (t->count_only) return true;
    if (!ok) {
        text_put(a, item->raw);
        a->keep_blanks = false;
        return true;
    }
    buf_clear(&a->blanks);
    out_flush(a);
    a->n_calls++;
    emit(a, &(struct answer_event){.type = ANSWER_CALL, .name = item->name, .arguments = item->arguments});
    return !a->stopped;
}

// A marked block: each item stands for itself.
static void block_end(struct answer *a) {
    struct item_take t = {.a = a};
    bool oom;
    if (!block_parse(buf_str(&a->hold), item_sink, &t, &oom) && oom) a->no_memory = true;
    after_call(a);
    a->state = a->outer;
}

// A call without marker is one only when all of it is sound and offered; else it is the text that it was.
static void bare_end(struct answer *a) {
    struct item_take t = {.a = a, .count_only = true, .must_be_offered = a->n_names > 0};
    bool oom;
    if (!block_parse(buf_str(&a->hold), item_sink, &t, &oom) && oom) a->no_memory = true;
    a->state = S_TEXT;
    if (t.n_bad == 0 && t.n_calls > 0 && t.n_calls <= ANSWER_CALLS_MAX - a->n_calls) {
        t = (struct item_take){.a = a};
        if (!block_parse(buf_str(&a->hold), item_sink, &t, &oom) && oom) a->no_memory = true;
        after_call(a);
        return;
    }
    text_put(a, buf_str(&a->hold));
    buf_clear(&a->hold);
}

// ---- calls without a start marker

enum prefix { P_NO, P_MAYBE, P_YES };

// "[name(" of an offered tool, with blanks allowed.
static enum prefix list_prefix(const struct answer *a, struct str s) {
    size_t i = literal_skip_blanks(s, 1);
    struct str rest = {s.data + i, s.len - i};
    if (rest.len == 0) return P_MAYBE;
    const char *p = a->names;
    enum prefix best = P_NO;
    for (int k = 0; k < a->n_names; k++, p += strlen(p) + 1) {
        struct str name = str_from(p);
        if (str_starts(name, rest)) best = P_MAYBE;
        if (!str_starts(rest, name)) continue;
        size_t after = literal_skip_blanks(rest, name.len);
        if (after == rest.len) best = P_MAYBE;
        if (after < rest.len && rest.data[after] == '(') return P_YES;
    }
    return best;
}

// {"name" or {"type" or {"function" as the answer's start.
static enum prefix object_prefix(struct str s) {
    static const char *const keys[] = {"\"name\"", "\"type\"", "\"function\"", "\"parameters\""};
    size_t i = literal_skip_blanks(s, 1);
    struct str rest = {s.data + i, s.len - i};
    if (rest.len == 0) return P_MAYBE;
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        if (str_starts(rest, str_from(keys[k]))) return P_YES;
        if (str_starts(str_from(keys[k]), rest)) return P_MAYBE;
    }
    return P_NO;
}

static bool may_start(const struct answer *a, char c) {
    if (a->style == ANSWER_LFM2) return c == '[' && a->line_start && a->n_names > 0;
    return a->style == ANSWER_LLAMA3 && c == '{' && a->fresh;
}

static void byte_put(struct answer *a, char c);

static void maybe_byte(struct answer *a, char c) {
    if (!buf_putc(&a->hold, c)) a->no_memory = true;
    struct str s = buf_str(&a->hold);
    enum prefix p = a->style == ANSWER_LFM2 ? list_prefix(a, s) : object_prefix(s);
    if (p == P_NO || s.len > ANSWER_HOLD_MAX) { // the byte that showed it may itself begin something
        a->state = S_TEXT;
        text_put(a, (struct str){s.data, s.len - 1});
        buf_clear(&a->hold);
        byte_put(a, c);
    } else if (p == P_YES) {
        a->state = S_BARE;
        a->balance = (struct balance){0};
        for (size_t i = 0; i < s.len; i++) balance_put(&a->balance, s.data[i]);
    }
}

static void bare_byte(struct answer *a, char c) {
    if (!buf_putc(&a->hold, c)) a->no_memory = true;
    balance_put(&a->balance, c);
    if (a->hold.len > ANSWER_HOLD_MAX) {
        a->state = S_TEXT;
        text_put(a, buf_str(&a->hold));
        buf_clear(&a->hold);
        return;
    }
    // A Llama-3 answer is a call only as a whole, so its end is the answer's.
    if (a->style == ANSWER_LFM2 && a->balance.depth == 0 && !a->balance.quote) bare_end(a);
}

// ---- bytes and markers

static void think_byte(struct answer *a, char c) {
    if (is_blank(c)) {
        if (!a->drop_blanks && !buf_putc(&a->blanks, c)) a->no_memory = true;
        return;
    }
    out_put(a, ANSWER_REASONING, buf_str(&a->blanks));
    buf_clear(&a->blanks);
    out_put(a, ANSWER_REASONING, (struct str){&c, 1});
    a->drop_blanks = false;
}

static void block_byte(struct answer *a, char c) {
    if (!buf_putc(&a->hold, c)) a->no_memory = true;
    if (a->hold.len <= ANSWER_CALL_BYTES_MAX) return;
    a->state = S_TEXT; // too long for a call: shown as what it is
    text_put(a, buf_str(&a->hold));
    buf_clear(&a->hold);
}

static void byte_put(struct answer *a, char c) {
    switch (a->state) {
    case S_THINK: think_byte(a, c); return;
    case S_BLOCK: block_byte(a, c); return;
    case S_MAYBE: maybe_byte(a, c); return;
    case S_BARE: bare_byte(a, c); return;
    case S_TEXT: break;
    }
    if (is_blank(c)) {
        blank_put(a, c);
    } else if (may_start(a, c)) {
        a->state = S_MAYBE;
        maybe_byte(a, c);
    } else {
        text_put(a, (struct str){&c, 1});
    }
}

static enum mark mark_of(const struct answer *a, struct str s) {
    for (size_t i = 0; i < ARRAY_LEN(marks); i++)
        if (str_eqz(s, marks[i].text) && (marks[i].style == ANSWER_PLAIN || marks[i].style == a->style))
            return marks[i].mark;
    return M_NONE;
}

static void think_begin(struct answer *a) {
    a->state = S_THINK;
    buf_clear(&a->blanks);
    a->drop_blanks = true;
}

static void think_end(struct answer *a) {
    a->state = S_TEXT;
    buf_clear(&a->blanks);
    a->drop_blanks = true;
    a->keep_blanks = false;
    a->line_start = true;
}

// Held text that turned out to stand before a marker.
static void bare_give_up(struct answer *a) {
    if (a->state != S_MAYBE && a->state != S_BARE) return;
    a->state = S_TEXT;
    text_put(a, buf_str(&a->hold));
    buf_clear(&a->hold);
}

static void put_all(struct answer *a, struct str s) {
    for (size_t i = 0; i < s.len && !a->no_memory; i++) byte_put(a, s.data[i]);
}

static void call_begin(struct answer *a) {
    if (a->state == S_BLOCK) block_end(a); // a block that was not closed
    bare_give_up(a);
    a->outer = a->state;
    a->state = S_BLOCK;
    a->fresh = false;
    if (a->outer == S_TEXT) buf_clear(&a->blanks);
}

static void call_end(struct answer *a) {
    if (a->state == S_BLOCK)
        block_end(a);
    else if (a->state == S_BARE)
        bare_end(a);
    else
        bare_give_up(a);
}

static void marker_put(struct answer *a, struct str s) {
    enum mark m = mark_of(a, s);
    bool think = m == M_THINK || m == M_THINK_END;
    // Inside a call a marker is a piece of an argument; so is any other control token, which is never shown in text.
    if (a->state == S_BLOCK && m != M_CALL && m != M_CALL_END) {
        put_all(a, s);
        return;
    }
    if (think && (a->state == S_MAYBE || a->state == S_BARE)) bare_give_up(a);
    switch (m) {
    case M_THINK:
        if (a->state == S_TEXT && a->reasoning)
            think_begin(a);
        else
            put_all(a, s);
        break;
    case M_THINK_END:
        if (a->state == S_THINK)
            think_end(a);
        else
            put_all(a, s);
        break;
    case M_CALL: call_begin(a); break;
    case M_CALL_END: call_end(a); break;
    case M_PYTHON_TAG:
    case M_NONE: break;
    }
}

enum tern_status answer_put(struct answer *a, struct str piece, bool is_control, answer_sink sink, void *arg,
                            struct tern_err *err) {
    a->sink = sink;
    a->arg = arg;
    if (a->stopped) return TERN_OK;
    if (is_control)
        marker_put(a, piece);
    else
        put_all(a, piece);
    out_flush(a);
    return a->no_memory ? err_set(err, TERN_NO_MEMORY, "no memory for the answer's text") : TERN_OK;
}

enum tern_status answer_finish(struct answer *a, answer_sink sink, void *arg, struct tern_err *err) {
    a->sink = sink;
    a->arg = arg;
    if (a->stopped) return TERN_OK;
    if (a->state == S_BLOCK) block_end(a);
    if (a->state == S_BARE) bare_end(a);
    bare_give_up(a);
    // Blanks at the end of an answer that is nothing else are its text.
    if (a->state == S_TEXT && a->n_calls == 0 && !a->drop_blanks) out_put(a, ANSWER_TEXT, buf_str(&a->blanks));
    buf_clear(&a->blanks);
    out_flush(a);
    return a->no_memory ? err_set(err, TERN_NO_MEMORY, "no memory for the answer's text") : TERN_OK;
}

int answer_n_calls(const struct answer *a) { return a->n_calls; }

// ---- the offered tools

// The name inside one tool: {"name": …} or {"type": "function", "function": {"name": …}}.
static enum tern_status tool_name(struct json *j, struct buf *names, int *n, struct tern_err *err) {
    struct json_item item;
    for (;;) {
        if (json_next(j, &item, err) == JSON_ERROR) return err->code;
        if (item.event == JSON_OBJECT_END && item.depth <= 1) return TERN_OK;
        if (item.event == JSON_OBJECT_END) continue;
        bool is_name = str_eqz(item.text, "name"), is_function = str_eqz(item.text, "function");
        if (!is_name && !is_function) {
            TRY(json_skip(j, err));
            continue;
        }
        if (json_next(j, &item, err) == JSON_ERROR) return err->code;
        if (is_function && item.event != JSON_OBJECT)
            return err_set(err, TERN_INVALID_ARGUMENT, "tools[%d].function must be an object", *n);
        if (is_function) continue; // its keys come next
        if (item.event != JSON_STRING || item.text.len == 0 || memchr(item.text.data, 0, item.text.len))
            return err_set(err, TERN_INVALID_ARGUMENT, "tools[%d]: the name must be a string that is not empty", *n);
        if (*n == ANSWER_TOOLS_MAX)
            return err_set(err, TERN_LIMIT, "more than %d tools (ANSWER_TOOLS_MAX)", ANSWER_TOOLS_MAX);
        buf_put(names, item.text.data, item.text.len);
        buf_putc(names, 0);
        ++*n;
    }
}

static enum tern_status take_tools(struct answer *a, struct str tools_json, struct tern_err *err) {
    struct json *j;
    struct json_item item;
    struct buf names;
    enum tern_status status = json_create(&j, tools_json, NULL, err);
    if (status != TERN_OK) {
        err_prefix(err, "tools");
        return status;
    }
    buf_init(&names, TEXT_INPUT_BYTES_MAX);
    status = json_expect(j, JSON_ARRAY, &item, "tools", err);
    while (status == TERN_OK) {
        enum json_event e = json_next(j, &item, err);
        if (e == JSON_ERROR) status = err->code;
        if (e != JSON_OBJECT && e != JSON_ERROR && e != JSON_ARRAY_END)
            status = err_set(err, TERN_INVALID_ARGUMENT, "tools: expected objects");
        if (e != JSON_OBJECT) break;
        status = tool_name(j, &names, &a->n_names, err);
    }
    json_free(j);
    if (status == TERN_OK && names.failed) status = err_set(err, TERN_NO_MEMORY, "no memory for the tools' names");
    if (status == TERN_OK)
        a->names = names.data;
    else
        buf_release(&names);
    return status;
}

bool answer_thinks(const struct answer *a) { return a->state == S_THINK; }

enum tern_status answer_create(struct answer **out, const struct answer_options *o, struct tern_err *err) {
    struct tern_err own;
    if (!err) err = &own;
    struct answer *a = mem_calloc(1, sizeof(*a));
    if (!a) return err_set(err, TERN_NO_MEMORY, "no memory for the answer parser");
    a->style = o->style;
    a->reasoning = o->reasoning;
    a->line_start = a->fresh = true;
    buf_init(&a->hold, SIZE_MAX);
    buf_init(&a->blanks, SIZE_MAX);
    buf_init(&a->out, SIZE_MAX);
    if (o->reasoning && o->reasoning_open) think_begin(a);
    enum tern_status status = o->tools_json.len > 0 ? take_tools(a, o->tools_json, err) : TERN_OK;
    if (status != TERN_OK) {
        answer_free(a);
        return status;
    }
    *out = a;
    return TERN_OK;
}

void answer_free(struct answer *a) {
    if (!a) return;
    buf_release(&a->hold);
    buf_release(&a->blanks);
    buf_release(&a->out);
    mem_free(a->names);
    mem_free(a);
}
