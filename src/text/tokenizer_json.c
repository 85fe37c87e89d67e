// tokenizer.json (Hugging Face) -> parts.
//
// Only byte-level BPE is read, and every part that changes the ids is either understood or refused by its name: a
// component that was skipped would give other ids without a word. What does not change them (truncation, padding,
// offsets) is left aside. The vocabulary and the merges, megabytes of them, are read from the parser's events; the
// small configuration parts go through a tree.
#include "base/base.h"
#include "text/tokenizer_int.h"
#include "text/tokenizer_tree.h"

#define COMPONENTS_MAX 16 // parts of one pre-tokenizer, post-processor or decoder sequence

struct reader {
    struct tokenizer_parts *parts;
    struct str input;
    struct json *json;
    struct part_token *added; // kept apart until the vocabulary is read
    size_t n_added, added_cap, tokens_cap, merges_cap;
    bool has_vocab, has_merges;
    bool byte_fallback; // of the model: a vocabulary spelled as text
};

static enum tern_status out_of_memory(struct tern_err *err) {
    return err_set(err, TERN_NO_MEMORY, "out of memory while reading tokenizer.json");
}

// Room for one more element in *items; what it held before stays in the arena until the end.
static bool array_grow(struct arena *arena, void **items, size_t n, size_t *cap, size_t size) {
    if (n < *cap) return true;
    size_t cap_new = MAX(*cap * 2, (size_t)4096);
    void *grown = arena_calloc(arena, cap_new, size);
    if (!grown) return false;
    if (n > 0) memcpy(grown, *items, n * size);
    *items = grown;
    *cap = cap_new;
    return true;
}

// A string that outlives the event: the parser hands out a view of the input where there was nothing to unescape.
static bool text_keep(struct reader *r, struct str text, struct str *out) {
    uintptr_t at = (uintptr_t)text.data, begin = (uintptr_t)r->input.data;
    if (at >= begin && at < begin + r->input.len) {
        *out = text;
        return true;
    }
    *out = (struct str){arena_dup(&r->parts->arena, text.data, text.len), text.len};
    return out->data != NULL;
}

// The next value, which may be null.
static enum tern_status next_value(struct reader *r, struct json_item *item, struct tern_err *err) {
    return json_next(r->json, item, err) == JSON_ERROR ? err->code : TERN_OK;
}

static enum tern_status wrong_type(const struct json_item *item, const char *what, const char *expected,
                                   struct tern_err *err) {
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)item->pos, "tokenizer.json: %s at byte %zu: expected %s", what,
                      item->pos, expected);
}

// --------------------------------------------------------------------------------------------------------- model

static enum tern_status vocab_read(struct reader *r, struct tern_err *err) {
    struct tokenizer_parts *p = r->parts;
    struct json_item item;
    TRY(next_value(r, &item, err));
    if (item.event != JSON_OBJECT) return wrong_type(&item, "model.vocab", "an object, as BPE models have", err);
    for (;;) {
        TRY(next_value(r, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        if ((uint32_t)p->n_tokens >= TOKENIZER_VOCAB_MAX) {
            return err_set(err, TERN_LIMIT, "tokenizer.json: more than %u tokens", TOKENIZER_VOCAB_MAX);
        }
        if (!array_grow(&p->arena, (void **)&p->tokens, (size_t)p->n_tokens, &r->tokens_cap, sizeof *p->tokens)) {
            return out_of_memory(err);
        }
        struct part_token *token = &p->tokens[p->n_tokens];
        if (!text_keep(r, item.text, &token->text)) return out_of_memory(err);
        TRY(next_value(r, &item, err));
        if (item.event != JSON_NUMBER || !item.is_int || item.integer < 0 || item.integer >= TOKENIZER_VOCAB_MAX) {
            return wrong_type(&item, "an id in model.vocab", "an integer from 0 to 1048575", err);
        }
        token->id = (int32_t)item.integer;
        token->kind = TOKEN_NORMAL;
        p->n_tokens++;
    }
    r->has_vocab = true;
    return TERN_OK;
}

// "left right", or ["left", "right"].
static enum tern_status merge_read(struct reader *r, struct json_item *item, struct part_merge *m,
                                   struct tern_err *err) {
    int number = r->parts->n_merges + 1;
    if (item->event == JSON_STRING) {
        struct str text;
        if (!text_keep(r, item->text, &text)) return out_of_memory(err);
        if (merge_split(text, m)) return TERN_OK;
        return err_set_at(err, TERN_BAD_FORMAT, (int64_t)item->pos,
                          "tokenizer.json: merge %d is \"%.*s\"; expected two tokens with one blank between them",
                          number, TOKEN_SHOWN(text));
    }
    struct str *sides[] = {&m->left, &m->right};
    struct json_item part = *item;
    for (int i = 0; i < 2 && part.event == (i == 0 ? JSON_ARRAY : JSON_STRING); i++) {
        TRY(next_value(r, &part, err));
        if (part.event == JSON_STRING && !text_keep(r, part.text, sides[i])) return out_of_memory(err);
    }
    if (part.event == JSON_STRING) {
        TRY(next_value(r, &part, err));
        if (part.event == JSON_ARRAY_END) return TERN_OK;
    }
    return err_set_at(err, TERN_BAD_FORMAT, (int64_t)item->pos,
                      "tokenizer.json: merge %d at byte %zu: expected \"left right\" or [\"left\", \"right\"]", number,
                      item->pos);
}

static enum tern_status merges_read(struct reader *r, struct tern_err *err) {
    struct tokenizer_parts *p = r->parts;
    struct json_item item;
    TRY(next_value(r, &item, err));
    if (item.event != JSON_ARRAY) return wrong_type(&item, "model.merges", "an array", err);
    for (;;) {
        TRY(next_value(r, &item, err));
        if (item.event == JSON_ARRAY_END) break;
        if ((uint32_t)p->n_merges >= BPE_MERGES_MAX) {
            return err_set(err, TERN_LIMIT, "tokenizer.json: more than %u merges", BPE_MERGES_MAX);
        }
        if (!array_grow(&p->arena, (void **)&p->merges, (size_t)p->n_merges, &r->merges_cap, sizeof *p->merges)) {
            return out_of_memory(err);
        }
        TRY(merge_read(r, &item, &p->merges[p->n_merges], err));
        p->n_merges++;
    }
    r->has_merges = true;
    return TERN_OK;
}

// Settings of the model besides vocabulary and merges.
static enum tern_status model_field_read(struct reader *r, const char *key, struct tern_err *err) {
    struct str raw;
    TRY(json_raw(r->json, &raw, err));
    bool is_none = str_eqz(raw, "null") || str_eqz(raw, "\"\"") || str_eqz(raw, "false");
    if (strcmp(key, "type") == 0 && !str_eqz(raw, "\"BPE\"")) {
        return err_set(err, TERN_UNSUPPORTED, "tokenizer.json: model type %.*s; only \"BPE\" is supported",
                       TOKEN_SHOWN(raw));
    }
    if (strcmp(key, "ignore_merges") == 0) r->parts->ignore_merges = str_eqz(raw, "true");
    if (strcmp(key, "byte_fallback") == 0) r->byte_fallback = str_eqz(raw, "true");
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < ARRAY_LEN(unsupported); i++) {
        if (strcmp(key, unsupported[i]) != 0 || is_none || (i == 0 && str_eqz(raw, "0.0"))) continue;
        return err_set(err, TERN_UNSUPPORTED, "tokenizer.json: model.%s is %.*s, which is not supported", key,
                       TOKEN_SHOWN(raw));
    }
    return TERN_OK;
}

static enum tern_status model_read(struct reader *r, struct tern_err *err) {
    struct json_item item;
    TRY(next_value(r, &item, err));
    if (item.event != JSON_OBJECT) return wrong_type(&item, "model", "an object", err);
    for (;;) {
        TRY(next_value(r, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        char key[32] = "";
        if (item.text.len < sizeof key) memcpy(key, item.text.data, item.text.len);
        bool is_vocab = strcmp(key, "vocab") == 0, is_merges = strcmp(key, "merges") == 0;
        if ((is_vocab && r->has_vocab) || (is_merges && r->has_merges)) {
            return wrong_type(&item, "model", "vocab and merges once", err);
        }
        if (is_vocab) {
            TRY(vocab_read(r, err));
        } else if (is_merges) {
            TRY(merges_read(r, err));
        } else {
            TRY(model_field_read(r, key, err));
        }
    }
    return TERN_OK;
}

// -------------------------------------------------------------------------------------------------- added tokens

static enum tern_status added_field_read(struct reader *r, struct part_token *token, struct str key, bool *has_id,
                                         struct tern_err *err) {
    static const struct {
        const char *key;
        uint8_t flag;
    } flags[] = {{"lstrip", TOKEN_LSTRIP},
                 {"rstrip", TOKEN_RSTRIP},
                 {"single_word", TOKEN_SINGLE_WORD},
                 {"normalized", TOKEN_NORMALIZED}};
    char name[16] = "";
    if (key.len < sizeof name) memcpy(name, key.data, key.len);
    struct json_item item;
    TRY(next_value(r, &item, err));
    if (strcmp(name, "id") == 0) {
        if (item.event != JSON_NUMBER || !item.is_int || item.integer < 0 || item.integer >= TOKENIZER_VOCAB_MAX) {
            return wrong_type(&item, "the id of an added token", "an integer from 0 to 1048575", err);
        }
        token->id = (int32_t)item.integer;
        *has_id = true;
        return TERN_OK;
    }
    if (strcmp(name, "content") == 0) {
        if (item.event != JSON_STRING) return wrong_type(&item, "content of an added token", "a string", err);
        return text_keep(r, item.text, &token->text) ? TERN_OK : out_of_memory(err);
    }
    bool is_flag = strcmp(name, "special") == 0;
    for (size_t i = 0; i < ARRAY_LEN(flags); i++) {
        if (strcmp(name, flags[i].key) != 0) continue;
        if (item.boolean) token->flags |= flags[i].flag;
        is_flag = true;
    }
    if (is_flag && item.event != JSON_BOOL) return wrong_type(&item, name, "true or false", err);
    if (strcmp(name, "special") == 0 && item.boolean) token->kind = TOKEN_CONTROL;
    if (item.event == JSON_OBJECT || item.event == JSON_ARRAY) return json_skip(r->json, err);
    return TERN_OK;
}

static enum tern_status added_read(struct reader *r, struct tern_err *err) {
    struct json_item item;
    TRY(next_value(r, &item, err));
    if (item.event == JSON_NULL) return TERN_OK;
    if (item.event != JSON_ARRAY) return wrong_type(&item, "added_tokens", "an array", err);
    for (;;) {
        TRY(next_value(r, &item, err));
        if (item.event == JSON_ARRAY_END) return TERN_OK;
        if (item.event != JSON_OBJECT) return wrong_type(&item, "an added token", "an object", err);
        if (r->n_added >= TOKENIZER_VOCAB_MAX) {
            return err_set(err, TERN_LIMIT, "tokenizer.json: more than %u added tokens", TOKENIZER_VOCAB_MAX);
        }
        if (!array_grow(&r->parts->arena, (void **)&r->added, r->n_added, &r->added_cap, sizeof *r->added)) {
            return out_of_memory(err);
        }
        struct part_token token = {.kind = TOKEN_ADDED};
        struct json_item start = item;
        bool has_id = false;
        for (;;) {
            TRY(next_value(r, &item, err));
            if (item.event == JSON_OBJECT_END) break;
            TRY(added_field_read(r, &token, item.text, &has_id, err));
        }
        if (!has_id) return wrong_type(&start, "an added token", "an id", err);
        if (token.text.len == 0) return wrong_type(&start, "an added token", "a content that is not empty", err);
        r->added[r->n_added++] = token;
    }
}

// ---------------------------------------------------------------------------------------------------- components

// A component, or the members of a Sequence of them, as a flat list. Sequences inside sequences are refused.
static enum tern_status components_list(const struct tree_node *root, const char *what, const char *members,
                                        const struct tree_node *out[COMPONENTS_MAX], int *n, struct tern_err *err) {
    *n = 0;
    if (root->type == JSON_NULL) return TERN_OK;
    if (!str_eqz(tree_text(root, "type"), "Sequence")) {
        out[(*n)++] = root;
        return TERN_OK;
    }
    const struct tree_node *list = tree_find(root, members);
    for (const struct tree_node *c = list ? list->child : NULL; c; c = c->next) {
        if (*n == COMPONENTS_MAX || str_eqz(tree_text(c, "type"), "Sequence")) {
            return err_set(err, TERN_UNSUPPORTED,
                           "tokenizer.json: %s: a sequence of more than %d parts, or in a sequence", what,
                           COMPONENTS_MAX);
        }
        out[(*n)++] = c;
    }
    return TERN_OK;
}

static enum tern_status component_refuse(const struct tree_node *c, const char *what, const char *why,
                                         struct tern_err *err) {
    struct str type = tree_text(c, "type");
    return err_set(err, TERN_UNSUPPORTED, "tokenizer.json: the %s \"%.*s\" is not supported%s%s", what,
                   TOKEN_SHOWN(type), why[0] ? ": " : "", why);
}

// A Split by one of the known patterns, in either of the two forms that keep all text.
static enum tern_status split_read(const struct tree_node *c, enum pretok_kind *kind, struct tern_err *err) {
    struct str regex = tree_text(tree_find(c, "pattern"), "Regex");
    struct str behavior = tree_text(c, "behavior");
    bool invert = tree_bool(c, "invert", false);
    bool keeps_all = invert ? str_eqz(behavior, "Removed") : str_eqz(behavior, "Isolated");
    if (!keeps_all) return component_refuse(c, "pre-tokenizer", "its behaviour is not \"Isolated\"", err);
    if (pretok_from_regex(regex, kind)) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED,
                   "tokenizer.json: the split pattern \"%.*s\" is none of the known ones (llama-3, qwen2, gpt-2)",
                   (int)MIN(regex.len, (size_t)400), regex.data ? regex.data : "");
}

static enum tern_status pre_tokenizer_read(struct reader *r, const struct tree_node *root, struct tern_err *err) {
    const struct tree_node *list[COMPONENTS_MAX];
    int n, i = 0;
    TRY(components_list(root, "pre_tokenizer", "pretokenizers", list, &n, err));
    if (r->parts->is_plain) { // a split at blanks finds none once they are replaced
        bool at_blanks = n == 1 && str_eqz(tree_text(list[0], "type"), "Split") &&
                         str_eqz(tree_text(tree_find(list[0], "pattern"), "String"), " ");
        return n == 0 || at_blanks ? TERN_OK
                                   : component_refuse(list[0], "pre-tokenizer", "in a vocabulary spelled as text", err);
    }
    bool has_split = false, has_digits = false;
    if (i < n && str_eqz(tree_text(list[i], "type"), "Digits")) {
        if (!tree_bool(list[i], "individual_digits", false)) {
            return component_refuse(list[i], "pre-tokenizer", "without individual_digits", err);
        }
        has_digits = true;
        i++;
    } else if (i < n && str_eqz(tree_text(list[i], "type"), "Split")) {
        TRY(split_read(list[i], &r->parts->pretok, err));
        has_split = true;
        i++;
    }
    if (i == n) {
        return err_set(err, TERN_UNSUPPORTED,
                       "tokenizer.json: no ByteLevel pre-tokenizer; only byte-level BPE is supported");
    }
    const struct tree_node *last = list[i];
    if (!str_eqz(tree_text(last, "type"), "ByteLevel") || i + 1 < n) {
        return component_refuse(list[i + 1 < n ? i + 1 : i], "pre-tokenizer",
                                "known are ByteLevel, alone or after one Split or Digits", err);
    }
    if (tree_bool(last, "add_prefix_space", true)) {
        return component_refuse(last, "pre-tokenizer", "add_prefix_space is true", err);
    }
    bool use_regex = tree_bool(last, "use_regex", true);
    if (has_split == use_regex) {
        return component_refuse(last, "pre-tokenizer",
                                has_split ? "use_regex is true after a Split" : "without a pattern", err);
    }
    if (!has_split) r->parts->pretok = has_digits ? PRETOK_SMOLLM : PRETOK_GPT2;
    return TERN_OK;
}

// The first id of a special token of the template.
static int64_t template_id(const struct tree_node *template, struct str name) {
    const struct tree_node *all = tree_find(template, "special_tokens");
    for (const struct tree_node *s = all ? all->child : NULL; s; s = s->next) {
        const struct tree_node *ids = str_eq(s->key, name) ? tree_find(s, "ids") : NULL;
        if (ids && ids->child && !ids->child->next && ids->child->is_int) return ids->child->integer;
    }
    return -1;
}

// What stands around the text in the template: one token before it is the bos; a token after it is not put there.
static enum tern_status template_read(struct reader *r, const struct tree_node *template, struct tern_err *err) {
    const struct tree_node *single = tree_find(template, "single");
    bool after_text = false;
    for (const struct tree_node *s = single ? single->child : NULL; s; s = s->next) {
        if (tree_find(s, "Sequence")) {
            after_text = true;
            continue;
        }
        struct str name = tree_text(tree_find(s, "SpecialToken"), "id");
        if (after_text) {
            buf_putf(&r->parts->note, "%sthe file would put %.*s behind each text, which is left to the caller",
                     r->parts->note.len ? "; " : "", TOKEN_SHOWN(name));
            continue;
        }
        int64_t id = template_id(template, name);
        if (id < 0 || id >= TOKENIZER_VOCAB_MAX || r->parts->adds_bos) {
            return component_refuse(template, "post-processor", "expected one token with one id before the text", err);
        }
        r->parts->adds_bos = true;
        r->parts->bos = (int32_t)id;
    }
    return TERN_OK;
}

static enum tern_status post_processor_read(struct reader *r, const struct tree_node *root, struct tern_err *err) {
    const struct tree_node *list[COMPONENTS_MAX];
    int n;
    TRY(components_list(root, "post_processor", "processors", list, &n, err));
    for (int i = 0; i < n; i++) {
        struct str type = tree_text(list[i], "type");
        if (str_eqz(type, "ByteLevel")) continue; // changes offsets only
        if (!str_eqz(type, "TemplateProcessing")) return component_refuse(list[i], "post-processor", "", err);
        TRY(template_read(r, list[i], err));
    }
    return TERN_OK;
}

static bool is_blank_replace(const struct tree_node *c, const char *from, const char *to) {
    return str_eqz(tree_text(c, "type"), "Replace") && str_eqz(tree_text(tree_find(c, "pattern"), "String"), from) &&
           str_eqz(tree_text(c, "content"), to);
}

static enum tern_status decoder_read(struct reader *r, const struct tree_node *root, struct tern_err *err) {
    const struct tree_node *list[COMPONENTS_MAX];
    int n;
    TRY(components_list(root, "decoder", "decoders", list, &n, err));
    for (int i = 0; i < n; i++) {
        struct str type = tree_text(list[i], "type");
        bool is_known = r->parts->is_plain ? is_blank_replace(list[i], "\xe2\x96\x81", " ") ||
                                                 str_eqz(type, "ByteFallback") || str_eqz(type, "Fuse")
                                           : str_eqz(type, "ByteLevel");
        if (!is_known) return component_refuse(list[i], "decoder", "", err);
    }
    return TERN_OK;
}

static enum tern_status normalizer_read(struct reader *r, const struct tree_node *root, struct tern_err *err) {
    const struct tree_node *list[COMPONENTS_MAX];
    int n;
    TRY(components_list(root, "normalizer", "normalizers", list, &n, err));
    r->parts->is_plain = n == 1 && is_blank_replace(list[0], " ", "\xe2\x96\x81");
    if (r->parts->is_plain != r->byte_fallback) {
        return err_set(err, TERN_UNSUPPORTED,
                       "tokenizer.json: model.byte_fallback is supported together with a normalizer that replaces "
                       "blanks by U+2581, and with nothing else");
    }
    if (r->parts->is_plain) return TERN_OK;
    if (n == 1 && str_eqz(tree_text(list[0], "type"), "NFC")) { // as files without the wish in them: Qwen's GGUFs
        buf_putf(&r->parts->note, "%sthe file composes characters (NFC) first, which is left to the caller",
                 r->parts->note.len ? "; " : "");
        return TERN_OK;
    }
    return n == 0 ? TERN_OK
                  : component_refuse(list[0], "normalizer", "text must reach the model as it is written", err);
}

// ------------------------------------------------------------------------------------------------------- the file

static const struct component {
    const char *key;
    enum tern_status (*read)(struct reader *r, const struct tree_node *root, struct tern_err *err);
} components[] = {{"normalizer", normalizer_read},
                  {"pre_tokenizer", pre_tokenizer_read},
                  {"post_processor", post_processor_read},
                  {"decoder", decoder_read}};

static enum tern_status top_read(struct reader *r, struct str raw[ARRAY_LEN(components)], struct tern_err *err) {
    struct json_item item;
    bool has_model = false;
    TRY(next_value(r, &item, err));
    if (item.event != JSON_OBJECT) return wrong_type(&item, "the file", "an object", err);
    for (;;) {
        TRY(next_value(r, &item, err));
        if (item.event == JSON_OBJECT_END) break;
        size_t c = 0;
        while (c < ARRAY_LEN(components) && !str_eqz(item.text, components[c].key)) c++;
        if (c < ARRAY_LEN(components)) {
            TRY(json_raw(r->json, &raw[c], err));
        } else if (str_eqz(item.text, "model")) {
            has_model = true;
            TRY(model_read(r, err));
        } else if (str_eqz(item.text, "added_tokens")) {
            TRY(added_read(r, err));
        } else {
            TRY(json_skip(r->json, err));
        }
    }
    TRY(next_value(r, &item, err)); // nothing may follow
    if (has_model && r->has_vocab && r->has_merges) return TERN_OK;
    return err_set(err, TERN_BAD_FORMAT, "tokenizer.json has no %s; is it a tokenizer of the `tokenizers` library?",
                   !has_model      ? "model"
                   : !r->has_vocab ? "model.vocab"
                                   : "model.merges");
}

static enum tern_status added_append(struct reader *r, struct tern_err *err) {
    struct tokenizer_parts *p = r->parts;
    for (size_t i = 0; i < r->n_added; i++) {
        // In a text such a token could only stand where U+2581 itself does; as a token it is in the vocabulary.
        bool has_blank = p->is_plain && str_find(r->added[i].text, PLAIN_BLANK, 0) != (size_t)-1;
        if (has_blank && r->added[i].kind == TOKEN_ADDED) continue;
        if (!array_grow(&p->arena, (void **)&p->tokens, (size_t)p->n_tokens, &r->tokens_cap, sizeof *p->tokens)) {
            return out_of_memory(err);
        }
        p->tokens[p->n_tokens++] = r->added[i];
    }
    return TERN_OK;
}

// "<0x0A>" in a vocabulary spelled as text is the byte.
static void bytes_mark(struct tokenizer_parts *p) {
    for (int i = 0; p->is_plain && i < p->n_tokens; i++) {
        struct str s = p->tokens[i].text;
        bool is_byte = s.len == 6 && str_starts(s, STR("<0x")) && s.data[5] == '>';
        if (is_byte && p->tokens[i].kind == TOKEN_NORMAL) p->tokens[i].kind = TOKEN_BYTE;
    }
}

enum tern_status tokenizer_parts_from_json(struct tokenizer_parts *parts, struct str json, struct tern_err *err) {
    struct reader r = {.parts = parts, .input = json};
    struct str raw[ARRAY_LEN(components)] = {{0}};
    TRY(json_create(&r.json, json, NULL, err));
    enum tern_status status = top_read(&r, raw, err);
    json_free(r.json);
    TRY(status);
    for (size_t i = 0; i < ARRAY_LEN(components); i++) {
        struct tree_node *root;
        if (raw[i].len == 0) raw[i] = STR("null");
        if (tree_parse(&root, &parts->arena, raw[i], err) != TERN_OK) {
            return err_prefix(err, "tokenizer.json: %s", components[i].key);
        }
        TRY(components[i].read(&r, root, err));
    }
    bytes_mark(parts);
    return added_append(&r, err);
}
