// tern bench --mask: what constraints cost over a model's vocabulary: compiling, the mask of every token of a sample
// text (first time and again), and the masks of the 46 nodes of a drafted tree.
#include "base/base.h"
#include "app/app.h"
#include "bench_mask.h"

#include <stdio.h>
#include <stdlib.h>

#define IDS_MAX 4096
#define TREE_NODES 46
#define VOCAB_MAX (1 << 20)

static const struct {
    const char *name;
    enum tern_constraint_kind kind;
    const char *spec, *text;
} rows[] = {
    {"json_object", TERN_CONSTRAINT_JSON_OBJECT, "",
     "{\"name\": \"Ada Lovelace\", \"born\": 1815, \"tags\": [\"mathematics\", \"engines\", \"poetry\"], \"address\": "
     "{\"street\": \"St James's Square 12\", \"city\": \"London\", \"note\": \"a quiet house, \\\"in the west\\\"\"}}"},
    {"schema, flat", TERN_CONSTRAINT_JSON_SCHEMA,
     "{\"type\": \"object\", \"properties\": {\"title\": {\"type\": \"string\", \"maxLength\": 120}, \"year\": "
     "{\"type\": "
     "\"integer\", \"minimum\": 1900, \"maximum\": 2100}, \"rating\": {\"type\": \"number\", \"minimum\": 0, "
     "\"maximum\": 10}, \"genre\": {\"enum\": [\"drama\", \"comedy\", \"documentary\"]}, \"summary\": {\"type\": "
     "\"string\"}}, \"required\": [\"title\", \"year\", \"rating\", \"genre\", \"summary\"], "
     "\"additionalProperties\": false}",
     "{\"title\": \"The Long Way to the Sea\", \"year\": 1987, \"rating\": 7.25, \"genre\": \"drama\", \"summary\": "
     "\"Two sisters walk from the mountains to the coast and learn, on the way, why their mother never spoke of "
     "it.\"}"},
    {"schema, nested", TERN_CONSTRAINT_JSON_SCHEMA,
     "{\"$defs\": {\"node\": {\"type\": \"object\", \"properties\": {\"id\": {\"type\": \"string\", \"pattern\": "
     "\"^[a-z]{2,8}-[0-9]{1,4}$\"}, \"kind\": {\"anyOf\": [{\"const\": \"leaf\"}, {\"const\": \"branch\"}]}, \"kids\": "
     "{\"type\": \"array\", \"items\": {\"$ref\": \"#/$defs/node\"}, \"maxItems\": 4}, \"made\": {\"type\": "
     "\"string\", "
     "\"format\": \"date-time\"}}, \"required\": [\"id\", \"kind\"], \"additionalProperties\": false}}, \"$ref\": "
     "\"#/$defs/node\"}",
     "{\"id\": \"root-1\", \"kind\": \"branch\", \"kids\": [{\"id\": \"left-22\", \"kind\": \"leaf\", \"made\": "
     "\"2024-05-06T07:08:09Z\"}, {\"id\": \"right-333\", \"kind\": \"branch\", \"kids\": [{\"id\": \"deep-4444\", "
     "\"kind\": \"leaf\"}]}]}"},
    {"grammar", TERN_CONSTRAINT_GBNF,
     "root ::= item+\nitem ::= \"- \" text \" (\" [0-9]+ \")\\n\"\ntext ::= [^\\n(]+\n",
     "- apples from the old orchard (12)\n- pears (3)\n- a basket of late plums (40)\n"},
    {"pattern", TERN_CONSTRAINT_REGEX, "([A-Z][a-z]+ )+[A-Z][a-z]+, [0-9]{1,3} years\\.",
     "Marie Curie Sklodowska, 66 years."},
};

struct times {
    double us[IDS_MAX];
    int n;
};
static int double_order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double times_at(struct times *t, double q) {
    qsort(t->us, (size_t)t->n, sizeof t->us[0], double_order);
    return t->n ? t->us[(int)(q * (t->n - 1) + 0.5)] : 0;
}

// Masks of the text's places, in turn; false: the constraint refuses its own sample.
static bool masks_time(const struct tern_constraint *con, const int32_t *ids, int n, uint32_t *mask, int n_vocab,
                       struct times *t) {
    void *state = con->state_clone(con->state);
    bool ok = state != NULL;
    t->n = 0;
    for (int i = 0; ok && i <= n; i++) {
        memset(mask, 0xff, ((size_t)n_vocab + 31) / 32 * sizeof *mask);
        uint64_t start = clock_ns();
        con->mask(state, mask, n_vocab);
        t->us[t->n++] = (double)(clock_ns() - start) / 1e3;
        if (i < n) ok = (mask[ids[i] / 32] >> (ids[i] % 32) & 1) && con->advance(state, ids[i]);
    }
    if (state) con->state_free(state);
    return ok;
}

// A tree that branches over the text's beginning: every node's state from its parent's, then its mask. Microseconds.
static double tree_time(const struct tern_constraint *con, const int32_t *ids, int n, uint32_t *mask, int n_vocab) {
    void *states[TREE_NODES] = {con->state_clone(con->state)};
    double ns = 0;
    for (int i = 0; i < n / 3 && states[0]; i++) con->advance(states[0], ids[i]);
    for (int k = 0; k < TREE_NODES && states[0]; k++) {
        int parent = (k - 1) / 2, depth = 0;
        uint64_t start = clock_ns();
        for (int up = k; up > 0; up = (up - 1) / 2) depth++;
        if (k > 0) {
            states[k] = con->state_clone(states[parent]);
            con->advance(states[k], ids[(n / 3 + depth - 1) % n]);
        }
        memset(mask, 0xff, ((size_t)n_vocab + 31) / 32 * sizeof *mask);
        con->mask(states[k], mask, n_vocab);
        ns += (double)(clock_ns() - start);
    }
    for (int k = 0; k < TREE_NODES; k++)
        if (states[k]) con->state_free(states[k]);
    return ns / 1e3;
}

static int row_run(const struct command *c, struct tern_engine *e, int i, bool json, uint32_t *mask, int n_vocab,
                   struct times *t) {
    struct tern_constraint con;
    struct tern_err err = {0};
    int32_t ids[IDS_MAX];
    struct tern_str spec = {rows[i].spec, strlen(rows[i].spec)}, text = {rows[i].text, strlen(rows[i].text)};
    int64_t n = tern_tokenize(e, text, false, false, ids, IDS_MAX - 1, &err);
    if (n < 0 || n >= IDS_MAX) return fail_told(c, &err);
    uint64_t start = clock_ns();
    if (tern_constraint_open(&con, e, rows[i].kind, spec, &err) != TERN_OK) return fail_told(c, &err);
    double compile = (double)(clock_ns() - start) / 1e6, q[4];
    // The tree first: what a constraint has met is kept, also for the next that is opened of the same text.
    double cold = tree_time(&con, ids, (int)n, mask, n_vocab), warm = tree_time(&con, ids, (int)n, mask, n_vocab);
    bool ok = masks_time(&con, ids, (int)n, mask, n_vocab, t);
    q[0] = times_at(t, 0.5);
    q[1] = times_at(t, 0.95);
    q[2] = times_at(t, 1);
    ok = ok && masks_time(&con, ids, (int)n, mask, n_vocab, t);
    q[3] = times_at(t, 0.5);
    tern_constraint_close(&con);
    if (!ok) {
        fprintf(stderr, "tern %s: the constraint '%s' refuses its sample\n", c->name, rows[i].name);
        return EXIT_FAILED;
    }
    if (json)
        out_putf(
            "%s{\"constraint\": \"%s\", \"compile_ms\": %.3f, \"tokens\": %d, \"mask_us\": {\"median\": %.2f, "
            "\"p95\": %.2f, \"max\": %.2f}, \"again_us\": %.2f, \"tree46_us\": {\"first\": %.1f, \"again\": %.1f}}",
            i ? ", " : "", rows[i].name, compile, (int)n, q[0], q[1], q[2], q[3], cold, warm);
    else
        out_putf("%-16s %9.2f %7d %9.1f %9.1f %9.1f %9.2f %11.1f %9.1f\n", rows[i].name, compile, (int)n, q[0], q[1],
                 q[2], q[3], cold, warm);
    return EXIT_DONE;
}

int bench_mask_run(const struct command *c, struct tern_engine *e, bool json) {
    struct tern_model_info info;
    tern_engine_info(e, &info);
    struct tern_constraint con;
    struct tern_err err = {0};
    uint64_t start = clock_ns();
    if (tern_constraint_open(&con, e, TERN_CONSTRAINT_CHOICE, (struct tern_str){"[\"a\"]", 5}, &err) != TERN_OK)
        return fail_told(c, &err);
    tern_constraint_close(&con);
    double trie = (double)(clock_ns() - start) / 1e6;
    uint32_t *mask = mem_calloc(((size_t)info.n_vocab + 31) / 32, sizeof *mask);
    struct times *t = mem_calloc(1, sizeof *t);
    if (json) {
        out_puts("{\"model\": ");
        out_quoted(info.name);
        out_putf(", \"vocab\": %d, \"trie_ms\": %.2f, \"rows\": [", info.n_vocab, trie);
    } else
        out_putf("%s, %d tokens; trie of the vocabulary %.1f ms\n%-16s %9s %7s %9s %9s %9s %9s %11s %9s\n", info.name,
                 info.n_vocab, trie, "constraint", "open ms", "tokens", "mask us", "p95", "max", "again", "46-tree us",
                 "again");
    int code = mask && t ? EXIT_DONE : EXIT_FAILED;
    for (int i = 0; i < (int)ARRAY_LEN(rows) && code == EXIT_DONE; i++)
        code = row_run(c, e, i, json, mask, info.n_vocab, t);
    if (json) out_puts("]}\n");
    mem_free(mask);
    mem_free(t);
    return code;
}
