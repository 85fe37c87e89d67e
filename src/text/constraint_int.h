// Private to text/: constraints as pushdown automata over bytes.
//
//   schema, regex, GBNF, choice -> NFA pieces (constraint_nfa.c) -> deterministic nodes (constraint_build.c) = grammar
//   grammar + token trie (constraint_trie.c) -> states (constraint_state.c) and masks (constraint_mask.c)
//
// A rule is a deterministic automaton whose edges are byte ranges, calls of other rules and single tokens (markers). A
// configuration is a node, two counters of the rule it is in, and a stack of frames; a state is a set of them, so
// grammars may be ambiguous. What keeps every state alive: bytes that no token spells are left out, nodes that lead
// nowhere are cut, counters are checked before the step that would need room, and a rule is entered only where the
// stack has room for the shallowest way through it.
#pragma once
#include "base/base.h"
#include "text/text.h"

#define GRAMMAR_NODES_MAX 400000
#define GRAMMAR_EDGES_MAX 1000000
#define GRAMMAR_RULES_MAX 20000
#define GRAMMAR_NFA_MAX 60000 // nodes of one piece: a pattern, a number range, a list of values
#define GRAMMAR_NONE (-1)
#define COUNT_FREE UINT32_MAX // "left" without bound

// ------------------------------------------------------------------------------------------------------ the automaton

enum edge_flag {
    EDGE_COUNT = 1, // one more: needs left > 0, takes one of left and of need
    EDGE_LEFT = 2,  // needs left > 0
    EDGE_MET = 4,   // needs need == 0
    EDGE_KEYED = 8, // needs a key of the guard at or after the counter (see struct key_guard)
    EDGE_KEY = 16,  // the key's name ends: the counter moves behind it
    EDGE_AWAY = 32, // the name is none of the declared ones any more: the counter moves behind all of them
};
struct g_edge {
    uint8_t lo, hi, flags;
    int32_t to, guard;
    int32_t next; // while building: the node's next edge
};
struct g_call {
    int32_t rule, to, next;
    bool counts;
};
struct g_token {
    int32_t id, to, next;
};
struct g_node {
    int32_t edges, calls, tokens; // first of each (while building: newest, linked)
    uint16_t n_edges, n_calls, n_tokens;
    bool accept;     // the rule may end here, when need is 0
    bool heavy;      // most bytes go on, and nothing is called: what its tokens do is kept (struct heavy_set)
    bool plain;      // bytes only: no calls, no markers, and the rule does not end here
    bool keyed;      // guards may matter from here on, without a call in between
    bool productive; // the rule can end from here
    bool empty;      // … without another byte
    uint16_t height; // frames that the shallowest way to the rule's end needs
    int32_t dense;   // table of 256 edge numbers, or GRAMMAR_NONE
};
struct g_rule {
    int32_t start;
    uint32_t min, max; // counters at entry: need and left
    int32_t object;    // key table, or GRAMMAR_NONE
    bool productive, nullable;
    uint16_t height;
    struct str name; // for messages, borrowed while building; may be empty
};
// An object's keys in their order. The counter "need" is the first key that may still come; a key may come when none
// between is required. Guards hold the keys below a node of the trie of names, ascending.
struct g_object {
    int32_t first_key, n_keys;
    int32_t generic;      // rule of other keys' values, or GRAMMAR_NONE
    bool allow_generic;   // … which can be produced
    bool needs_one;       // not empty
    uint16_t height_most; // over all keys' values
    uint16_t height_required;
};
struct g_key {
    int32_t rule;
    int32_t stop; // the first required key at or after this one (n_keys: none)
    bool required, possible;
};
struct key_guard {
    int32_t first, n; // in guard_keys
    int32_t object;
    bool generic; // other keys may pass too
    bool closes;  // '}': no required key may be left
};

struct grammar {
    struct g_node *nodes;
    struct g_edge *edges;
    struct g_call *calls;
    struct g_token *tokens;
    struct g_rule *rules;
    struct g_object *objects;
    struct g_key *keys;
    struct key_guard *guards;
    int32_t *guard_keys;
    int16_t (*dense)[256]; // number of the edge among its node's, or -1
    size_t n_nodes, n_edges, n_calls, n_tokens, n_rules, n_objects, n_keys, n_guards, n_guard_keys, n_dense;
    size_t cap_nodes, cap_edges, cap_calls, cap_tokens, cap_rules, cap_objects, cap_keys, cap_guards, cap_guard_keys,
        cap_dense;
    int32_t root; // rule
    int depth_max;
};

// --------------------------------------------------------------------------------------------------------- building
//
// The first failure stays (status, err) and later calls do nothing that could go out of bounds.

struct grammar_builder {
    struct grammar *g;
    enum tern_status status;
    struct tern_err *err;
    uint64_t work;        // steps so far: a bound that does not depend on the machine or its load
    const uint8_t *bytes; // [32], bit: a token of this one byte exists
};
// False, after GRAMMAR_FAIL(b, code, fmt, …) has noted the first failure.
#define GRAMMAR_FAIL(b, ...) ((b)->status != TERN_OK ? false : ((b)->status = err_set((b)->err, __VA_ARGS__), false))
bool grammar_work(struct grammar_builder *b, size_t steps); // false: too many in all, or failed before
int32_t grammar_node(struct grammar_builder *b);
int32_t grammar_rule(struct grammar_builder *b, uint32_t min, uint32_t max); // start is set later
void grammar_edge(struct grammar_builder *b, int32_t from, int lo, int hi, int32_t to, int flags, int32_t guard);
void grammar_call(struct grammar_builder *b, int32_t from, int32_t rule, int32_t to, bool counts);
void grammar_token(struct grammar_builder *b, int32_t from, int32_t id, int32_t to);
int32_t grammar_text(struct grammar_builder *b, int32_t from, struct str text); // literal; returns the node behind it
int32_t grammar_guard(struct grammar_builder *b, const struct key_guard *guard);
int32_t grammar_object(struct grammar_builder *b, const struct g_object *o);
int32_t grammar_key(struct grammar_builder *b, const struct g_key *key);
int32_t grammar_guard_key(struct grammar_builder *b, int32_t key);
int32_t grammar_dense(struct grammar_builder *b);
// Cuts what cannot be produced, checks for left recursion, sorts and measures.
bool grammar_finish(struct grammar_builder *b);
void grammar_free(struct grammar *g);
size_t grammar_bytes(const struct grammar *g);
// Room for one more of an array; false after a failure.
bool grammar_grow(struct grammar_builder *b, void **items, size_t *cap, size_t n, size_t size, size_t max,
                  const char *what);

// Numbers of items by their hashes, by open addressing: twice the places (256 at first), GRAMMAR_NONE where none is. An
// item has `stride` bytes, its uint64_t hash is at `hash_at`. To be called before half of the places are taken.
struct grammar_table {
    int32_t *places;
    size_t n; // a power of two, or 0
};
bool grammar_table_grow(struct grammar_builder *b, struct grammar_table *t, const void *items, size_t n_items,
                        size_t stride, size_t hash_at);

// NFA pieces: nodes with byte ranges, empty moves and calls, made deterministic into the grammar.
struct nfa_edge {
    int32_t to, next, rule; // rule: or GRAMMAR_NONE
    uint8_t lo, hi;
    bool empty;
};
struct nfa {
    struct grammar_builder *b;
    int32_t *heads;
    struct nfa_edge *edges;
    size_t n, n_edges, cap, cap_edges;
};
void nfa_init(struct nfa *n, struct grammar_builder *b);
void nfa_release(struct nfa *n);
int32_t nfa_node(struct nfa *n); // 0 after a failure
void nfa_byte(struct nfa *n, int32_t from, int lo, int hi, int32_t to);
void nfa_empty(struct nfa *n, int32_t from, int32_t to);
void nfa_call(struct nfa *n, int32_t from, int32_t rule, int32_t to);
int32_t nfa_text(struct nfa *n, int32_t from, struct str text);
void nfa_runes(struct nfa *n, int32_t from, uint32_t lo, uint32_t hi, int32_t to); // as UTF-8; surrogates left out
// A rune range as it stands inside a JSON string: quotes, backslashes and control characters escaped.
void nfa_json_runes(struct nfa *n, int32_t from, uint32_t lo, uint32_t hi, int32_t to);
// The grammar's node that start becomes; accept becomes accepting.
int32_t nfa_determinize(struct nfa *n, int32_t start, int32_t accept);

// -------------------------------------------------------------------------------------------------------- frontends

// Regular expressions (the subset of ECMA-262 in doc/constraints.md). json: the text stands inside a JSON string.
// search: without ^ and $ the text may go on at both ends. Between from and to of the NFA.
bool regex_to_nfa(struct nfa *n, struct str pattern, bool json, bool search, int32_t from, int32_t to);
// Decimal numbers between bounds (constraint_number.c).
struct number_range {
    bool integer;
    struct str lo, hi; // decimal spelling; empty: none
    bool lo_open, hi_open;
    int64_t multiple_of; // integers only; 0: any
};
bool number_to_nfa(struct nfa *n, const struct number_range *r, const char *path, int32_t from, int32_t to);
// Of two decimal spellings: -1, 0, 1, or DECIMAL_UNKNOWN when they have too many digits.
int decimal_cmp(struct str a, struct str b);
#define DECIMAL_UNKNOWN 2
bool decimal_is_whole(struct str s, int64_t *out); // 1.0 and 1e2 are
#define DECIMAL_DIGITS_MAX 15

int32_t schema_rule(struct grammar_builder *b, struct str schema, struct buf *note);
int32_t schema_object_rule(struct grammar_builder *b); // any JSON object
int32_t gbnf_rule(struct grammar_builder *b, struct str text);
int32_t regex_rule(struct grammar_builder *b, struct str pattern);
int32_t choice_rule(struct grammar_builder *b, struct str json_list);
int32_t tool_call_rule(struct grammar_builder *b, const struct constraint_source *src, struct buf *note);
int32_t constraint_rule(struct grammar_builder *b, const struct constraint_source *src,
                        struct buf *note); // of any kind

// --------------------------------------------------------------------------------------------------------- the trie

// The vocabulary's tokens by their bytes, in the order of a walk: a node's subtree is what lies between it and skip.
struct trie_node {
    uint8_t byte, depth;
    bool several; // tokens of these bytes: more follow in `same`
    bool pad;
    int32_t token; // first token of these bytes, or -1
    int32_t skip;  // node behind the subtree
};
struct token_trie {
    struct trie_node *nodes; // [n], node 0 is the root
    int32_t n;
    int32_t *same;                // [n_vocab] next token of the same bytes, or -1
    int32_t *parent;              // [n]
    int32_t *by_byte, first[257]; // the nodes of byte b: by_byte[first[b] … first[b + 1])
    uint8_t *usable;              // [n_vocab] 1: in the trie
    int n_vocab;                  // ids of the mask
    uint8_t bytes[32];
};
#define TRIE_TOKEN_BYTES_MAX 128 // longer tokens are never allowed by a constraint

// ------------------------------------------------------------------------------------------------ states and masks

struct config {
    int32_t node;
    uint32_t left, need;
    int32_t frame; // GRAMMAR_NONE: the root rule
};
struct frame {
    int32_t to, parent;
    uint32_t left, need;
    int32_t next; // in its hash chain
    int32_t depth;
    uint64_t hash;
};
#define FRAMES_BUCKETS 512 // power of two
#define FRAMES_STATE_MAX 1024
#define FRAMES_WORK_MAX 4096
#define CONFIGS_MAX 256
#define CONFIGS_WORK_MAX 8192
struct frames {
    struct frame *items;
    int n, cap;
    int16_t heads[FRAMES_BUCKETS];
};
struct config_set {
    int first, n;
    bool finished; // the root rule may end
};
// Working memory of the steps of one state: configurations lie one set behind the other.
struct stepper {
    const struct grammar *g;
    struct frames frames;
    struct config *configs;
    int cap;
};
void frames_clear(struct frames *f);
uint64_t config_hash(const struct frames *f, const struct config *c);
int32_t frames_push(struct frames *f, int32_t parent, int32_t to, uint32_t left, uint32_t need); // GRAMMAR_NONE: full
void frames_cut(struct frames *f, int n);                                                        // drops the newest
// The set of `at` after one byte, appended at configs[first …].
struct config_set stepper_byte(struct stepper *s, const struct config_set *at, int first, uint8_t byte);
// Adds a configuration and all that follows from it without input. False: no room.
bool stepper_add(struct stepper *s, struct config_set *set, struct config c);
const struct g_edge *grammar_step(const struct grammar *g, int32_t node, uint8_t byte);
bool edge_allows(const struct grammar *g, const struct g_edge *e, const struct config *c);
struct config edge_follow(const struct grammar *g, const struct g_edge *e, const struct config *c);
