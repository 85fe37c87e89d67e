// Prompts of the formats that go on with a text (/v1/completions, /completion, /infill): texts, token ids, both, and
// texts with a gap in them.
//
// A gap is filled in by models that were taught to: the text before and the text behind it stand between markers of
// their vocabulary, in the order prefix, suffix, middle, which all of these know. Nothing is cut to fit; a prompt
// beyond the context is refused like any other.
#include "base/base.h"
#include "serve_parts.h"

#define EXTRA_MAX 64 // other files of a gap's text

// -------------------------------------------------------------------------------------------------------- ids and text

struct ids {
    struct serve_answer *a;
    const char *param;
    struct buf bytes; // int32_t
};

static bool ids_put(struct ids *o, int32_t id) { return buf_put(&o->bytes, &id, sizeof id); }

static bool text_put(struct ids *o, struct str text, bool begin, bool special) {
    struct serve_ask *ask = &o->a->ask;
    struct tern_err err = {0};
    const struct tern_engine *e = o->a->m->engine;
    const int64_t n = tern_tokenize(e, serve_str(text), begin, special, NULL, 0, &err);
    if (n < 0) return serve_fault_from(&ask->fault, (enum tern_status)n, &err, o->param), false;
    if (!buf_reserve(&o->bytes, (size_t)n * sizeof(int32_t))) return true; // told at the end
    int32_t *ids = mem_calloc((size_t)n + 1, sizeof *ids);
    if (ids) {
        tern_tokenize(e, serve_str(text), begin, special, ids, (size_t)n, &err);
        buf_put(&o->bytes, ids, (size_t)n * sizeof *ids);
    }
    o->bytes.failed = o->bytes.failed || !ids;
    mem_free(ids);
    return true;
}

static void ids_init(struct ids *o, struct serve_answer *a, const char *param) {
    *o = (struct ids){.a = a, .param = param};
    buf_init(&o->bytes, SERVE_TEXT_BYTES_MAX);
}

// Into the prompt, unless `ok` is false; releases o.
static bool ids_finish(struct ids *o, bool ok, struct serve_prompt *p) {
    struct serve_ask *ask = &o->a->ask;
    void *copy = ok && !o->bytes.failed ? arena_alloc(&ask->arena, MAX(o->bytes.len, sizeof(int32_t))) : NULL;
    if (ok && !copy) serve_fault_set(&ask->fault, 503, NULL, "no_memory", "no memory for the request");
    if (copy) memcpy(copy, o->bytes.data, o->bytes.len);
    if (copy) *p = (struct serve_prompt){.ids = copy, .n_ids = o->bytes.len / sizeof(int32_t)};
    buf_release(&o->bytes);
    return copy != NULL;
}

bool serve_prompt_text(struct serve_answer *a, const struct serve_prompt *p, struct str *out) {
    *out = p->text;
    if (p->n_ids == 0) return true;
    int64_t len = tern_detokenize(a->m->engine, p->ids, p->n_ids, true, NULL, 0, NULL);
    char *text = len < 0 ? NULL : arena_alloc(&a->ask.arena, (size_t)len + 1);
    if (!text) return serve_bad(&a->ask, "prompt", "prompt cannot be told as text");
    len = tern_detokenize(a->m->engine, p->ids, p->n_ids, true, text, (size_t)len, NULL);
    *out = (struct str){text, (size_t)len};
    return true;
}

// ------------------------------------------------------------------------------------------------------------- prompts

enum shape { SHAPE_WRONG, SHAPE_IDS, SHAPE_MIXED, SHAPE_PROMPTS };

// What a raw list is: one prompt of ids (which may have strings among them), or prompts.
static enum shape list_shape(struct str raw) {
    struct json *j;
    struct json_item item;
    int n_numbers = 0, n_others = 0, n_strings = 0;
    if (json_create(&j, raw, NULL, NULL) != TERN_OK) return SHAPE_WRONG;
    bool more = json_next(j, &item, NULL) == JSON_ARRAY;
    while (more) {
        const enum json_event e = json_next(j, &item, NULL);
        if ((e == JSON_OBJECT || e == JSON_ARRAY) && json_skip(j, NULL) != TERN_OK) break;
        more = e != JSON_ARRAY_END && e != JSON_ERROR;
        n_numbers += e == JSON_NUMBER;
        n_strings += e == JSON_STRING;
        n_others += more && e != JSON_NUMBER && e != JSON_STRING;
    }
    json_free(j);
    if (n_numbers == 0) return SHAPE_PROMPTS;
    return n_others > 0 ? SHAPE_WRONG : n_strings > 0 ? SHAPE_MIXED : SHAPE_IDS;
}

static bool mixed_take(struct serve_answer *a, struct str raw, struct serve_prompt *p) {
    const int n_vocab = a->m->info.n_vocab;
    struct json *j;
    struct json_item item;
    struct ids o;
    if (json_create(&j, raw, NULL, NULL) != TERN_OK) return serve_bad(&a->ask, "prompt", "prompt is no list");
    ids_init(&o, a, "prompt");
    bool ok = json_next(j, &item, NULL) == JSON_ARRAY;
    for (int n = 0; ok && json_next(j, &item, NULL) != JSON_ARRAY_END; n++) {
        if (item.event == JSON_STRING)
            ok = text_put(&o, item.text, n == 0, true);
        else if (item.event != JSON_NUMBER || !item.is_int || item.integer < 0 || item.integer >= n_vocab)
            ok = serve_bad(&a->ask, "prompt", "prompt must be token ids from 0 to %d, and strings", n_vocab - 1);
        else
            ids_put(&o, (int32_t)item.integer);
    }
    json_free(j);
    return ids_finish(&o, ok, p);
}

// One prompt.
static bool prompt_take(struct serve_answer *a, struct str raw, bool mixed, struct serve_prompt *p) {
    struct serve_ask *ask = &a->ask;
    struct str text;
    if (raw.data[0] == '[') {
        int32_t *ids;
        if (mixed && list_shape(raw) == SHAPE_MIXED) return mixed_take(a, raw, p);
        if (!serve_ids_read(ask, raw, "prompt", a->m->info.n_vocab, &ids, &p->n_ids)) return false;
        p->ids = ids;
        return p->n_ids > 0 || serve_bad(ask, "prompt", "prompt is empty");
    }
    if (raw.data[0] != '"' || !serve_string_read(ask, raw, &text))
        return serve_bad(ask, "prompt", "prompt must be a string, a list of token ids, or a list of these");
    *p = (struct serve_prompt){.text = text, .special = mixed};
    return text.len > 0 || serve_bad(ask, "prompt", "prompt is empty");
}

struct prompts {
    struct serve_answer *a;
    struct serve_prompt *items;
    bool mixed;
    int n;
};
static bool prompts_item(void *arg, struct str raw, int i) {
    struct prompts *p = arg;
    p->n = i + 1;
    return prompt_take(p->a, raw, p->mixed, &p->items[i]);
}

bool serve_prompts_take(struct serve_answer *a, struct serve_prompt *prompts, bool mixed, int *n) {
    const struct str raw = a->ask.prompt;
    struct prompts p = {.a = a, .items = prompts, .mixed = mixed};
    *n = 1;
    if (raw.len == 0) return serve_bad(&a->ask, "prompt", "prompt is missing");
    if (raw.data[0] != '[' || list_shape(raw) != SHAPE_PROMPTS) return prompt_take(a, raw, mixed, prompts);
    if (!serve_list_each(&a->ask, raw, "prompt", SERVE_PROMPTS_MAX, prompts_item, &p)) return false;
    *n = p.n;
    return p.n > 0 || serve_bad(&a->ask, "prompt", "prompt is an empty list");
}

// ---------------------------------------------------------------------------------------------------------------- gaps

struct marks {
    const char *before, *after, *answer; // the text before the gap, the text behind it, what fills it
    const char *project, *file;          // what stands in other files; NULL: no such markers
};
static const struct marks marks[] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>"},
    {"<|fim_pre|>", "<|fim_suf|>", "<|fim_mid|>", NULL, NULL},
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>", "<repo_name>", "<file_sep>"},
    {"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>", NULL, NULL},
};

// The control token of a marker; -1: the vocabulary has none of that name.
static int32_t mark_id(const struct serve_answer *a, const char *mark) {
    int32_t id;
    const struct tern_str text = mark ? serve_str(str_from(mark)) : (struct tern_str){0};
    if (!mark || tern_tokenize(a->m->engine, text, false, true, &id, 1, NULL) != 1) return -1;
    return tern_tokenize(a->m->engine, text, false, false, NULL, 0, NULL) > 1 ? id : -1;
}

struct extra {
    struct ids *o;
    int32_t file; // -1: named in words
};
static bool extra_take(void *arg, struct str raw, int i) {
    static const struct serve_field fields[] = {
        PART_FIELD("filename", SERVE_FIELD_STR, name), PART_FIELD("text", SERVE_FIELD_STR, text), {0}};
    const struct extra *x = arg;
    struct serve_ask *ask = &x->o->a->ask;
    struct serve_part p;
    (void)i;
    if (!serve_part_read(ask, &p, raw, "input_extra.", fields)) return false;
    if (!p.text.data) return serve_bad(ask, "input_extra", "input_extra: an entry has no text");
    if (x->file >= 0)
        ids_put(x->o, x->file);
    else if (!text_put(x->o, STR("\n\n--- "), false, false))
        return false;
    return text_put(x->o, p.name.len > 0 ? p.name : STR("file"), false, false) &&
           text_put(x->o, STR("\n"), false, false) && text_put(x->o, p.text, false, false);
}

static bool extras_put(struct ids *o, const struct marks *m, struct str extra) {
    struct serve_ask *ask = &o->a->ask;
    const int32_t project = mark_id(o->a, m->project), file = mark_id(o->a, m->file);
    struct extra x = {o, file};
    if (extra.len == 0) return true;
    if (project >= 0 && (!ids_put(o, project) || !text_put(o, STR("project\n"), false, false))) return false;
    if (!serve_list_each(ask, extra, "input_extra", EXTRA_MAX, extra_take, &x)) return false;
    if (file >= 0) return ids_put(o, file) && text_put(o, STR("file\n"), false, false);
    return text_put(o, STR("\n\n"), false, false);
}

bool serve_gap_prompt(struct serve_answer *a, const struct serve_gap *g, struct serve_prompt *p) {
    const struct marks *m = NULL;
    int32_t ids[3] = {-1, -1, -1};
    for (size_t i = 0; i < ARRAY_LEN(marks) && !m; i++) {
        ids[0] = mark_id(a, marks[i].before);
        ids[1] = mark_id(a, marks[i].after);
        ids[2] = mark_id(a, marks[i].answer);
        if (ids[0] >= 0 && ids[1] >= 0 && ids[2] >= 0) m = &marks[i];
    }
    if (!m)
        return serve_bad(&a->ask, g->param,
                         "%s: this model was not taught to fill in a gap (its vocabulary has no markers for it)",
                         g->param);
    struct ids o;
    ids_init(&o, a, g->param);
    bool ok = text_put(&o, STR(""), true, false) && extras_put(&o, m, g->extra) && ids_put(&o, ids[0]) &&
              text_put(&o, g->before, false, false) && ids_put(&o, ids[1]) && text_put(&o, g->after, false, false) &&
              ids_put(&o, ids[2]);
    return ids_finish(&o, ok || o.bytes.failed, p);
}
