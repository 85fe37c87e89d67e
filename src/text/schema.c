// A JSON schema becomes a grammar: the document is read, the root's rule asked for, and all bodies built.
#include "base/base.h"
#include "text/schema_int.h"

#define SCHEMA_ARENA_MAX (8u << 20)
#define INDENT_MAX 64 // blanks behind a line break

void schema_init(struct schema *s, struct grammar_builder *b, struct buf *note) {
    *s = (struct schema){
        .b = b, .note = note, .string_start = GRAMMAR_NONE, .blank = GRAMMAR_NONE, .indent = GRAMMAR_NONE};
    arena_init(&s->arena, SCHEMA_ARENA_MAX);
    buf_init(&s->path, 4096);
}

void schema_release(struct schema *s) {
    arena_release(&s->arena);
    buf_release(&s->path);
    mem_free(s->nodes);
    mem_free(s->kept);
    mem_free(s->jobs);
    mem_free(s->table.places);
}

int32_t schema_indent(struct schema *s) {
    if (s->indent >= 0) return s->indent;
    int32_t rule = grammar_rule(s->b, 0, INDENT_MAX), start = grammar_node(s->b), more = grammar_node(s->b);
    if (s->b->status != TERN_OK) return GRAMMAR_NONE;
    s->b->g->rules[rule].start = start;
    s->b->g->nodes[more].accept = true;
    int32_t froms[] = {start, more};
    for (size_t i = 0; i < ARRAY_LEN(froms); i++) {
        grammar_edge(s->b, froms[i], ' ', ' ', more, EDGE_COUNT, GRAMMAR_NONE);
        grammar_edge(s->b, froms[i], '\t', '\t', more, EDGE_COUNT, GRAMMAR_NONE);
    }
    return s->indent = rule;
}

int32_t schema_blank(struct schema *s) {
    if (s->blank >= 0) return s->blank;
    int32_t rule = grammar_rule(s->b, 0, COUNT_FREE), start = grammar_node(s->b), end = grammar_node(s->b);
    int32_t line = grammar_node(s->b);
    if (s->b->status != TERN_OK) return GRAMMAR_NONE;
    s->b->g->rules[rule].start = start;
    s->b->g->nodes[end].accept = s->b->g->nodes[line].accept = true;
    grammar_edge(s->b, start, ' ', ' ', end, 0, GRAMMAR_NONE);
    grammar_edge(s->b, start, '\n', '\n', line, 0, GRAMMAR_NONE);
    grammar_call(s->b, line, schema_indent(s), end, false);
    return s->blank = rule;
}

int32_t schema_rule(struct grammar_builder *b, struct str text, struct buf *note) {
    struct schema s;
    int32_t rule = GRAMMAR_NONE;
    schema_init(&s, b, note);
    if (schema_read(&s, text)) rule = schema_rule_of_node(&s, 0);
    if (rule >= 0) schema_build(&s);
    schema_release(&s);
    return rule;
}

int32_t schema_object_rule(struct grammar_builder *b) { return schema_rule(b, STR("{\"type\":\"object\"}"), NULL); }
