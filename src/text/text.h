// The face of text/: bytes <-> token ids, chat templates, and reading tool calls out of an answer.
//
//   tokenizer  byte-level BPE with the split patterns of the known families; immutable, shared by threads
//   detok      streaming ids -> text that never splits a character
//   jinja      the subset of Jinja that chat templates use, bounded in steps, depth, output and time; it marks which
//              output bytes came from user data ("tainted"), and the tokenizer never reads a control token out of those
//   answer     a streaming parser that sorts an answer into text, reasoning and tool calls; what was sent is never
//   taken back
// text/ knows nothing of models or programs.
#pragma once
#include "base/base.h"

// ------------------------------------------------------------------------------------------------------- tokenizer

#define TEXT_INPUT_BYTES_MAX (256u << 20)
#define TOKENIZER_VOCAB_MAX (1u << 20)

struct tokenizer;

// Everything borrowed during tokenizer_create only. Either tokens/merges (GGUF) or tokenizer_json (Hugging Face).
struct tokenizer_source {
    const struct str *tokens; // [n_tokens] in GPT-2 byte-to-unicode spelling (control and user-defined ones verbatim)
    int n_tokens;
    const int32_t *types;     // GGUF token types, or NULL
    const struct str *merges; // [n_merges] "left right"
    int n_merges;
    struct str kind;     // "llama" (GGUF): pieces of text with scores instead of merges; else byte-level BPE
    const float *scores; // [n_tokens], of kind llama: pairs are merged to the token of the highest score
    int add_blank;       // GGUF add_space_prefix: 1, 0, -1: not said
    struct str pre;      // GGUF pre-tokenizer name; unknown or empty: the general fallback, noted in tokenizer_note()
    struct str tokenizer_json;
    int n_vocab_rows; // rows of the embedding: ids beyond are refused, fewer tokens are padding; 0: not known
    int32_t bos, eos; // -1: absent
    int add_bos;      // 1, 0, -1: not said (then as the family does)
};
enum tern_status tokenizer_create(struct tokenizer **out, const struct tokenizer_source *src, struct tern_err *err);
void tokenizer_free(struct tokenizer *t);
int tokenizer_size(const struct tokenizer *t); // ids 0..size-1 exist
bool tokenizer_adds_bos(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);
const char *tokenizer_note(
    const struct tokenizer *t); // NULL, or what was assumed ("unknown pre-tokenizer 'x': using …")
// Bytes of a token (borrowed for t's life); empty for an id without text. Control tokens: their marker.
struct str tokenizer_token_bytes(const struct tokenizer *t, int32_t id);
bool tokenizer_is_control(const struct tokenizer *t, int32_t id);     // special: never part of the text shown
int32_t tokenizer_find(const struct tokenizer *t, struct str marker); // id of an added/control token by its text, or -1

// A tokenizer.json as the arrays of a GGUF file (tokenizer.ggml.*), a token for each of n_rows ids.
struct tokenizer_export {
    struct arena arena;
    struct str *tokens; // [n_tokens]
    int32_t *types;     // [n_tokens] GGUF token types
    int n_tokens;
    struct str *merges; // [n_merges] "left right"
    int n_merges;
    float *scores;   // [n_tokens] of a vocabulary spelled as text, in place of merges; else NULL
    const char *pre; // the pre-tokenizer's name
    int32_t unk;     // -1: none
    bool adds_bos;
    bool differs; // the name's family takes whole words before merging and this file does not, or the other way round;
                  // with scores: they cannot say the order of all merges
};
enum tern_status tokenizer_export_create(struct tokenizer_export **out, struct str tokenizer_json, int n_rows,
                                         bool is_lfm2, struct tern_err *err);
void tokenizer_export_free(struct tokenizer_export *x);

// A half-open range of bytes.
struct text_range {
    size_t begin, end;
};
struct id_list { // growable; release with id_list_release
    int32_t *ids;
    size_t len, cap;
};
void id_list_release(struct id_list *l);
bool id_list_push(struct id_list *l, int32_t id); // false: out of memory

struct encode_options {
    bool add_bos;
    bool parse_special;               // control tokens may be read out of the text …
    const struct text_range *tainted; // … but not where any byte lies in one of these (sorted, disjoint) ranges
    int n_tainted;
};
// Appends the ids of text to out. Any bytes are fine: ill-formed UTF-8 becomes byte tokens that decode to the same
// bytes. Time is linear in the text (n log n in the longest word-like piece).
enum tern_status tokenizer_encode(const struct tokenizer *t, struct id_list *out, struct str text,
                                  const struct encode_options *o, struct tern_err *err);

// Streaming detokenizer. Bytes that may still become a character are held back; ill-formed runs come out as U+FFFD.
struct detok {
    const struct tokenizer *t;
    bool with_control; // control tokens give their marker's text
    uint8_t held[4];
    int n_held;
};
void detok_init(struct detok *d, const struct tokenizer *t, bool with_control);
bool detok_put(struct detok *d, int32_t id, struct buf *out); // appends whole characters to out; false: out of memory
bool detok_flush(struct detok *d, struct buf *out);           // what is held becomes U+FFFD

// ------------------------------------------------------------------------------------------------------- templates

#define JINJA_SOURCE_BYTES_MAX (1u << 20)
#define JINJA_DEPTH_MAX 100
#define JINJA_STEPS_MAX 1000000
#define JINJA_OUTPUT_BYTES_MAX (4u << 20)
#define JINJA_TIME_MS_MAX 200
#define JINJA_MEMORY_BYTES_MAX (64u << 20)

struct jinja;
// Parses once; errors give line and column. trim_blocks and lstrip_blocks are on, as in transformers.
enum tern_status jinja_create(struct jinja **out, struct str source, struct tern_err *err);
void jinja_free(struct jinja *j);

struct jinja_output {
    struct buf text;
    struct text_range *tainted; // bytes that came from the input values; sorted, disjoint
    int n_tainted;
};
void jinja_output_release(struct jinja_output *o);

// Chat input as JSON text; strings inside become tainted values (roles and literal keys too).
struct jinja_input {
    struct str messages; // JSON array; required
    struct str tools;    // JSON array, or empty (then `tools` is none)
    bool add_generation_prompt;
    struct str bos_token, eos_token;
    struct str extra;   // JSON object of further variables, or empty
    int64_t now_wall_s; // for strftime_now; 0: the clock
};
// TERN_TEMPLATE: the template called raise_exception (its text is the message). TERN_LIMIT: a bound was hit, named.
enum tern_status jinja_render(const struct jinja *j, struct jinja_output *out, const struct jinja_input *in,
                              struct tern_err *err);
// The general form for tests: variables from one JSON object.
enum tern_status jinja_render_vars(const struct jinja *j, struct jinja_output *out, struct str vars_json,
                                   int64_t now_wall_s, struct tern_err *err);

// Brings OpenAI-style messages to what templates expect: content parts joined in order (only text parts; others refused
// by name), developer -> system, null content kept, tool_calls' argument strings parsed to objects; validates roles and
// types. Appends the normalised JSON array to out.
enum tern_status messages_normalise(struct buf *out, struct str messages_json, struct tern_err *err);

// ------------------------------------------------------------------------------------------------------- answers

#define ANSWER_CALLS_MAX 128
#define ANSWER_CALL_BYTES_MAX (1u << 20)

enum answer_style {
    ANSWER_PLAIN, // no calls: everything is text (reasoning is still split off when the markers exist)
    ANSWER_LFM2,  // <|tool_call_start|>[f(a="x"), g(n=1)]<|tool_call_end|>, Python literals; JSON calls inside accepted
                  // too
    ANSWER_HERMES, // <tool_call>{"name": …, "arguments": {…}}</tool_call> (Qwen3)
    ANSWER_LLAMA3, // {"name": …, "parameters": {…}} as the whole answer
};
// The style that a model's template and vocabulary ask for.
enum answer_style answer_style_detect(struct str chat_template, const struct tokenizer *t);

enum answer_event_type { ANSWER_TEXT, ANSWER_REASONING, ANSWER_CALL };
struct answer_event {
    enum answer_event_type type;
    struct str text;      // text, reasoning
    struct str name;      // call
    struct str arguments; // call: a JSON object, keys in the order given
};
// Strings are borrowed during the call. False: nothing more is told (answer_put and answer_finish still return
// TERN_OK).
typedef bool (*answer_sink)(void *arg, const struct answer_event *ev);

struct answer;
struct answer_options {
    enum answer_style style;
    bool reasoning;        // split <think>…</think> off
    bool reasoning_open;   // the prompt already opened <think>
    struct str tools_json; // the tools offered (names matter where the start marker is optional), or empty
};
enum tern_status answer_create(struct answer **out, const struct answer_options *o, struct tern_err *err);
void answer_free(struct answer *a);
// Feeds decoded text. is_control: the piece is one control token's marker (only those act as control markers; text that
// spells a marker is text).
enum tern_status answer_put(struct answer *a, struct str piece, bool is_control, answer_sink sink, void *arg,
                            struct tern_err *err);
enum tern_status answer_finish(struct answer *a, answer_sink sink, void *arg, struct tern_err *err);
int answer_n_calls(const struct answer *a); // calls emitted so far
bool answer_thinks(const struct answer *a); // between the reasoning's markers
// A marker that some style or the reasoning split acts on. Vocabularies hold some of them as added tokens that are not
// control tokens (Qwen3's <think> and <tool_call>): such a token is to be fed with is_control as well.
bool answer_is_marker(struct str marker);

// --------------------------------------------------------------------------------------------------------- constraints
//
// What an answer may be (JSON by a schema, a grammar, a pattern, a list, a tool call), as an automaton over bytes that
// judges whole vocabularies. doc/constraints.md says what is supported; what is not is refused by name, never ignored.

#define CONSTRAINT_BYTES_MAX (64 << 10)        // of the source
#define CONSTRAINT_TOOLS_BYTES_MAX (512 << 10) // of a list of tools
#define CONSTRAINT_WORK_MAX 40000000           // steps of compiling
#define CONSTRAINT_NESTING_MAX 120             // frames of the automaton's stack: nesting of what is generated
#define CONSTRAINT_NOTE_MAX 1000
#define SCHEMA_DEPTH_MAX 32
#define SCHEMA_PROPERTIES_MAX 5000
#define SCHEMA_ENUM_MAX 1000
#define SCHEMA_CASES_MAX 256  // ways to combine the anyOf and oneOf of one place
#define REGEX_REPEAT_MAX 2000 // {m,n} of a pattern
#define REGEX_DEPTH_MAX 64    // groups inside groups

struct token_trie; // of a vocabulary; shared by all constraints of an engine
enum tern_status token_trie_create(struct token_trie **out, const struct tokenizer *t, int n_vocab,
                                   struct tern_err *err);
void token_trie_free(struct token_trie *t);

enum constraint_kind { // the values of enum tern_constraint_kind
    CONSTRAINT_JSON_SCHEMA,
    CONSTRAINT_JSON_OBJECT,
    CONSTRAINT_GBNF,
    CONSTRAINT_REGEX,
    CONSTRAINT_CHOICE,
    CONSTRAINT_TOOL_CALL,
};
struct constraint; // compiled; immutable but for kept masks (under a mutex): shared by threads
struct constraint_source {
    enum constraint_kind kind;
    struct str spec;
    enum answer_style style;           // of tool calls
    const struct tokenizer *tokenizer; // tokenizer and trie must outlive the constraint
    const struct token_trie *trie;
    const int32_t *eos; // ids that end an answer
    int n_eos;
};
enum tern_status constraint_create(struct constraint **out, const struct constraint_source *src, struct tern_err *err);
void constraint_free(struct constraint *c);              // after its states
const char *constraint_note(const struct constraint *c); // what was read more narrowly than written, or NULL
struct constraint_info {
    int n_nodes, n_rules;
    size_t bytes;                   // of the automaton
    size_t bytes_all;               // with the memory for masks
    uint64_t n_masks, n_masks_kept; // masks asked for; of these, found
};
struct constraint_info constraint_info(const struct constraint *c);
// One pointer of the caller's, kept with the constraint; NULL until set.
void constraint_owner_set(struct constraint *c, void *owner);
void *constraint_owner(const struct constraint *c);

struct constraint_state;                                                // one place in one text; one thread at a time
struct constraint_state *constraint_state_create(struct constraint *c); // NULL: no memory
struct constraint *constraint_of(const struct constraint_state *s);
struct constraint_state *constraint_state_clone(const struct constraint_state *s);
void constraint_state_free(struct constraint_state *s);
bool constraint_advance(struct constraint_state *s, int32_t id);   // false: not allowed; the state is then of no use
bool constraint_put(struct constraint_state *s, struct str bytes); // the same with bytes
bool constraint_may_end(const struct constraint_state *s);         // the text is whole
// Clears what is not allowed: mask has (n_vocab + 31) / 32 words.
void constraint_mask(const struct constraint_state *s, uint32_t *mask, int n_vocab);
