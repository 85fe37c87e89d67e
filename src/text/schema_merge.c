// Conjunctions of schemas, each with one rule. $ref and allOf are opened up until only keywords about the value itself
// are left; anyOf and oneOf become alternatives, each joined with what stood beside them. A set of parts that came up
// before has its rule already, which is also how recursive schemas end. Bodies come from a queue: nothing recurses.
#include "base/base.h"
#include "text/schema_int.h"

struct opener { // parts being opened up
    struct parts out;
    bool never; // `false` is among them
};

static int part_find(const struct parts *p, int32_t node) {
    for (int i = 0; i < p->n; i++)
        if (p->items[i].node == node) return i;
    return -1;
}

// A part that is there already holds already, with what has been chosen of its alternatives; but not when it is what
// brought the new one: then it would hold because it holds.
static bool opener_put(struct schema *s, struct opener *o, struct part part) {
    if (part_find(&o->out, part.node) >= 0) {
        int steps = 0;
        for (int32_t up = part.from; up >= 0 && steps <= SCHEMA_PARTS_MAX; steps++) {
            if (up == part.node)
                return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: refers to itself with nothing in between",
                                    schema_path(s, part.node));
            int i = part_find(&o->out, up);
            up = i >= 0 ? o->out.items[i].from : GRAMMAR_NONE;
        }
        return true;
    }
    if (o->out.n == SCHEMA_PARTS_MAX)
        return GRAMMAR_FAIL(s->b, TERN_LIMIT, "schema %s: more than %d schemas hold for one value",
                            schema_path(s, part.node), SCHEMA_PARTS_MAX);
    o->out.items[o->out.n++] = part;
    return true;
}

static bool part_open(struct schema *s, struct opener *o, int i) {
    int32_t node = o->out.items[i].node;
    const struct schema_node *n = &s->nodes[node];
    if (o->out.items[i].done & DONE_OPENED) return true;
    o->out.items[i].done |= DONE_OPENED;
    if (n->event == JSON_BOOL) {
        o->never |= !n->boolean;
        return true;
    }
    if (n->event != JSON_OBJECT)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a schema is an object, true or false",
                            schema_path(s, node));
    if (!keywords_check(s, node)) return false;
    int32_t ref = schema_get(s, node, "$ref"), all = schema_get(s, node, "allOf");
    if (ref >= 0) {
        int32_t target = schema_ref(s, ref);
        if (target < 0 || !opener_put(s, o, (struct part){target, 0, node})) return false;
    }
    if (all < 0) return true;
    if (s->nodes[all].event != JSON_ARRAY || s->nodes[all].n == 0)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a list of schemas is expected", schema_path(s, all));
    SCHEMA_EACH(s, child, all) if (!opener_put(s, o, (struct part){child, 0, node})) return false;
    return true;
}

bool parts_add(struct schema *s, struct parts *parts, int32_t node, int32_t from) {
    if (from < 0 && part_find(parts, node) >= 0) return true;
    if (parts->n == SCHEMA_PARTS_MAX)
        return GRAMMAR_FAIL(s->b, TERN_LIMIT, "schema %s: more than %d schemas hold for one value",
                            schema_path(s, node), SCHEMA_PARTS_MAX);
    parts->items[parts->n++] = (struct part){node, 0, from};
    return true;
}

static uint64_t parts_hash(const struct part *p, int n) { // whatever their order
    uint64_t h = 0x9E37u + (uint64_t)n;
    for (int i = 0; i < n; i++) {
        uint32_t key[2] = {(uint32_t)p[i].node, p[i].done};
        h += hash_bytes(key, sizeof key, 7);
    }
    return h;
}

static bool parts_same(const struct part *a, const struct part *b, int n) {
    for (int i = 0; i < n; i++) {
        bool found = false;
        for (int k = 0; k < n && !found; k++) found = a[i].node == b[k].node && a[i].done == b[k].done;
        if (!found) return false;
    }
    return true;
}

// The rule of opened parts, new or known.
static int32_t job_get(struct schema *s, const struct parts *p) {
    uint64_t hash = parts_hash(p->items, p->n);
    if (s->n_jobs * 2 >= s->table.n &&
        !grammar_table_grow(s->b, &s->table, s->jobs, s->n_jobs, sizeof *s->jobs, offsetof(struct schema_job, hash)))
        return GRAMMAR_NONE;
    size_t at = hash & (s->table.n - 1);
    for (; s->table.places[at] >= 0; at = (at + 1) & (s->table.n - 1)) {
        const struct schema_job *j = &s->jobs[s->table.places[at]];
        if (j->hash == hash && j->n == p->n && parts_same(p->items, s->kept + j->first, p->n)) return j->rule;
    }
    int32_t first = (int32_t)s->n_kept;
    for (int i = 0; i < p->n; i++) {
        if (!grammar_grow(s->b, (void **)&s->kept, &s->cap_kept, s->n_kept, sizeof *s->kept, GRAMMAR_EDGES_MAX,
                          "parts of schemas"))
            return GRAMMAR_NONE;
        s->kept[s->n_kept++] = p->items[i];
    }
    if (!grammar_grow(s->b, (void **)&s->jobs, &s->cap_jobs, s->n_jobs, sizeof *s->jobs, GRAMMAR_RULES_MAX, "rules"))
        return GRAMMAR_NONE;
    int32_t rule = grammar_rule(s->b, 0, COUNT_FREE);
    s->jobs[s->n_jobs] = (struct schema_job){.rule = rule, .first = first, .n = p->n, .hash = hash};
    s->table.places[at] = (int32_t)s->n_jobs++;
    return rule;
}

// All that holds with the parts: false also when nothing fits (*never).
static bool parts_open(struct schema *s, const struct parts *parts, struct parts *out, bool *never) {
    struct opener o = {.never = false};
    for (int i = 0; i < parts->n; i++)
        if (!opener_put(s, &o, parts->items[i])) return false;
    for (int i = 0; i < o.out.n; i++)
        if (!part_open(s, &o, i)) return false;
    int n = 0;
    for (int i = 0; i < o.out.n; i++) // true says nothing
        if (s->nodes[o.out.items[i].node].event == JSON_OBJECT) o.out.items[n++] = o.out.items[i];
    o.out.n = n;
    *out = o.out;
    *never = o.never;
    return !o.never;
}

int32_t schema_rule_of(struct schema *s, const struct parts *parts) {
    struct parts opened;
    bool never = false;
    if (parts_open(s, parts, &opened, &never)) return job_get(s, &opened);
    return never ? grammar_rule(s->b, 1, 0) : GRAMMAR_NONE;
}

bool schema_parts_of(struct schema *s, int32_t node, struct parts *out) {
    struct parts p = {.items = {{node, 0, GRAMMAR_NONE}}, .n = 1};
    bool never = false;
    return parts_open(s, &p, out, &never);
}

int32_t schema_rule_of_node(struct schema *s, int32_t node) {
    struct parts p = {.items = {{node, 0, GRAMMAR_NONE}}, .n = 1};
    return schema_rule_of(s, &p);
}

// ------------------------------------------------------------------------------------------------------------- bodies

// anyOf or oneOf of one part: alternatives that are joined with all other parts.
static bool cases_build(struct schema *s, const struct parts *parts, int i, int32_t list, uint32_t done, int32_t rule) {
    if (s->nodes[list].event != JSON_ARRAY || s->nodes[list].n == 0)
        return GRAMMAR_FAIL(s->b, TERN_BAD_FORMAT, "schema %s: a list of schemas is expected", schema_path(s, list));
    int32_t start = grammar_node(s->b), end = grammar_node(s->b);
    if (s->b->status != TERN_OK) return false;
    s->b->g->nodes[end].accept = true;
    s->b->g->rules[rule].start = start;
    SCHEMA_EACH(s, child, list) {
        struct parts p = *parts;
        p.items[i].done |= done;
        if (!parts_add(s, &p, child, parts->items[i].node)) return false;
        int32_t to = schema_rule_of(s, &p);
        if (to < 0) return false;
        grammar_call(s->b, start, to, end, false);
    }
    return s->b->status == TERN_OK;
}

static bool job_build(struct schema *s, const struct schema_job *j) {
    struct parts parts = {.n = j->n};
    if (j->n > 0) memcpy(parts.items, s->kept + j->first, (size_t)j->n * sizeof *parts.items);
    for (int i = 0; i < parts.n; i++) {
        const struct part *p = &parts.items[i];
        int32_t any = p->done & DONE_ANY_OF ? GRAMMAR_NONE : schema_get(s, p->node, "anyOf");
        int32_t one = p->done & DONE_ONE_OF ? GRAMMAR_NONE : schema_get(s, p->node, "oneOf");
        if (any >= 0) return cases_build(s, &parts, i, any, DONE_ANY_OF, j->rule);
        if (one < 0) continue;
        schema_note(s, one, "oneOf is held as anyOf");
        return cases_build(s, &parts, i, one, DONE_ONE_OF, j->rule);
    }
    return facts_build(s, &parts, j->rule);
}

bool schema_build(struct schema *s) {
    for (size_t i = 0; i < s->n_jobs && grammar_work(s->b, 1); i++) {
        struct schema_job j = s->jobs[i]; // the array may move
        if (!job_build(s, &j)) return false;
    }
    return s->b->status == TERN_OK;
}

void schema_note(struct schema *s, int32_t node, const char *text) {
    if (!s->note || s->note->len + 400 > CONSTRAINT_NOTE_MAX) return;
    const char *path = schema_path(s, node);
    buf_putf(s->note, "%s%s: %s", s->note->len ? "; " : "", path, text);
}
