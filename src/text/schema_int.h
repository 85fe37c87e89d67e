// Private to text/: a JSON schema on its way into a grammar.
//
//   schema_tree.c    the document as a tree, $ref targets, paths for messages
//   schema_merge.c   conjunctions: what $ref, allOf and properties put together; their rules, each made once
//   schema_facts.c   the keywords of a conjunction as facts about one value
//   schema_string.c, schema_array.c, schema_object.c, schema_values.c   facts as rules
#pragma once
#include "text/answer_int.h"
#include "text/constraint_int.h"

#define SCHEMA_PARTS_MAX 64 // schemas that hold for one value at once
#define SCHEMA_NODES_MAX 65536

struct schema_node {
    enum json_event event; // JSON_NULL, _BOOL, _NUMBER, _STRING, _OBJECT or _ARRAY
    struct str key;        // inside an object
    struct str text;       // string; number as it is spelled
    bool boolean;
    bool checked; // its keywords are known ones
    bool root;    // where "#" of references below points to
    int32_t parent, first, last, next;
    int32_t n, index; // members; place among its parent's
};

// A schema that holds, with what of it has been dealt with.
struct part {
    int32_t node;
    uint32_t done; // enum part_done
    int32_t from;  // the part that brought it by $ref, allOf or as an alternative, or GRAMMAR_NONE
};
enum part_done { DONE_ANY_OF = 1, DONE_ONE_OF = 2, DONE_OPENED = 4 }; // opened: what it refers to is there
struct parts {
    struct part items[SCHEMA_PARTS_MAX];
    int n;
};
struct schema_job { // a rule whose body is still to be built
    int32_t rule;
    int32_t first, n; // parts, in schema.kept
    uint64_t hash;
};

struct schema {
    struct grammar_builder *b;
    struct arena arena;
    struct schema_node *nodes;
    size_t n_nodes, cap_nodes;
    struct part *kept;
    size_t n_kept, cap_kept;
    struct schema_job *jobs;
    size_t n_jobs, cap_jobs;
    struct grammar_table table; // of the jobs
    struct buf path;
    struct buf *note;
    bool closed;             // objects that say nothing of other keys have none
    bool python;             // True, False, None
    int32_t string_start;    // nodes that all strings share; GRAMMAR_NONE: not yet made
    int32_t blank, indent;   // rules of the white space between values; GRAMMAR_NONE: not yet made
    int32_t key_from, n_key; // nodes of a free key: copied into each open object
};

void schema_init(struct schema *s, struct grammar_builder *b, struct buf *note);
void schema_release(struct schema *s);
// Message: GRAMMAR_FAIL(s->b, code, "schema %s: …", schema_path(s, node), …)
bool schema_read(struct schema *s, struct str text);
const char *schema_path(struct schema *s, int32_t node);
int32_t schema_get(const struct schema *s, int32_t node, const char *key); // or GRAMMAR_NONE
int32_t schema_get_str(const struct schema *s, int32_t node, struct str key);
int32_t schema_ref(struct schema *s, int32_t ref_node);                               // its target, or GRAMMAR_NONE
bool schema_count(struct schema *s, int32_t node, uint32_t *out);                     // a number like 3 or 3.0
void schema_json(const struct schema *s, int32_t node, struct buf *out, bool python); // compact
bool schema_equal(const struct schema *s, int32_t a, int32_t b);
#define SCHEMA_EACH(s, child, list) \
    for (int32_t child = (s)->nodes[list].first; child >= 0; child = (s)->nodes[child].next)

// The rule of what fits all parts.
int32_t schema_rule_of(struct schema *s, const struct parts *parts);
int32_t schema_rule_of_node(struct schema *s, int32_t node);
// What holds for the node's value, opened up; false after a failure, or when nothing fits.
bool schema_parts_of(struct schema *s, int32_t node, struct parts *out);
// The rule of an object's keys as a call's arguments, (key=value, …); GRAMMAR_NONE when it cannot be written so.
int32_t schema_keywords_rule(struct schema *s, int32_t node);
bool parts_add(struct schema *s, struct parts *parts, int32_t node, int32_t from);
bool schema_build(struct schema *s); // all bodies
void schema_note(struct schema *s, int32_t node, const char *text);
int32_t schema_blank(struct schema *s);  // rule: one blank, or a line break and an indentation
int32_t schema_indent(struct schema *s); // rule: some blanks or tabs

enum value_type {
    TYPE_NULL = 1,
    TYPE_BOOL = 2,
    TYPE_INTEGER = 4,
    TYPE_FRACTION = 8, // with TYPE_INTEGER: any number
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
    TYPE_ANY = 127,
};
bool keywords_check(struct schema *s, int32_t node);
bool facts_build(struct schema *s, const struct parts *parts, int32_t rule);

bool string_build(struct schema *s, const struct parts *parts, int32_t rule);
struct string_facts {
    uint32_t lo, hi;     // characters
    int32_t length_node; // that said so last
    int32_t nodes;       // what all patterns and formats accept, or GRAMMAR_NONE
};
bool string_facts_read(struct schema *s, const struct parts *parts, struct string_facts *f);
bool string_fits(struct schema *s, const struct string_facts *f, struct str text);
bool array_build(struct schema *s, const struct parts *parts, int32_t rule);
bool object_build(struct schema *s, const struct parts *parts, int32_t rule);
bool values_build(struct schema *s, const struct parts *parts, uint32_t types, int32_t rule);
bool number_facts(struct schema *s, const struct parts *parts, bool integer, struct number_range *r, int32_t *at);
struct str format_pattern(struct str name); // empty: not known
