// A list of texts of which the answer is one.
#include "base/base.h"
#include "text/constraint_int.h"

static bool choices_read(struct json *j, struct nfa *n, int32_t from, int32_t to) {
    struct grammar_builder *b = n->b;
    struct json_item item;
    struct tern_err err = {0};
    int count = 0;
    if (json_next(j, &item, &err) != JSON_ARRAY) item.event = JSON_ERROR;
    while (b->status == TERN_OK && item.event != JSON_ERROR) {
        enum json_event event = json_next(j, &item, &err);
        if (event == JSON_ARRAY_END) break;
        if (event != JSON_STRING)
            return GRAMMAR_FAIL(b, TERN_BAD_FORMAT, "choices: a JSON list of texts is expected%s%s",
                                err.message[0] ? ": " : "", err.message);
        if (++count > SCHEMA_ENUM_MAX)
            return GRAMMAR_FAIL(b, TERN_LIMIT, "choices: at most %d are allowed", SCHEMA_ENUM_MAX);
        nfa_empty(n, nfa_text(n, from, item.text), to);
    }
    if (b->status != TERN_OK) return false;
    if (item.event == JSON_ERROR || json_next(j, &item, &err) != JSON_END)
        return GRAMMAR_FAIL(b, TERN_BAD_FORMAT, "choices: a JSON list of texts is expected%s%s",
                            err.message[0] ? ": " : "", err.message);
    return count > 0 || GRAMMAR_FAIL(b, TERN_BAD_FORMAT, "choices: the list is empty");
}

int32_t choice_rule(struct grammar_builder *b, struct str json_list) {
    struct json *j;
    struct nfa n;
    enum tern_status status = json_create(&j, json_list, NULL, b->err);
    if (status != TERN_OK) {
        b->status = status;
        return GRAMMAR_NONE;
    }
    nfa_init(&n, b);
    int32_t rule = grammar_rule(b, 0, COUNT_FREE), from = nfa_node(&n), to = nfa_node(&n);
    if (b->status == TERN_OK && choices_read(j, &n, from, to)) {
        int32_t start = nfa_determinize(&n, from, to);
        if (b->status == TERN_OK) b->g->rules[rule].start = start;
    }
    nfa_release(&n);
    json_free(j);
    return rule;
}
