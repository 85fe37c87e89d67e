// Private to the wire formats other than OpenAI's chat: reading their requests into OpenAI-style messages, which is
// what the engine takes, and the parts (thoughts, texts, calls) that an answer consists of.
#pragma once
#include "serve.h"

// ----------------------------------------------------------------------------------------------------------- reading

// Members of the objects that these formats nest; each format's table reads the ones it has.
struct serve_part {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str type, role, text, id, name, call_id, thinking, description, refusal, arguments_text;
    struct str content, input, function, tool_calls, output, parameters, arguments, images, format; // raw
    bool is_error, no_parallel;
};
#define PART_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct serve_part, member_), 0, 0, 0, 0 }
// Reads one object; faults and memory are a's.
bool serve_part_read(struct serve_ask *a, struct serve_part *p, struct str raw, const char *prefix,
                     const struct serve_field *fields);
// Calls fn for each value of a raw JSON list. False: fn said so, or a->fault tells what is wrong with the list.
bool serve_list_each(struct serve_ask *a, struct str raw, const char *name, int max,
                     bool (*fn)(void *arg, struct str raw, int i), void *arg);
// A raw JSON string's text, in the arena; false: it is no string (no fault is set).
bool serve_string_read(struct serve_ask *a, struct str raw, struct str *out);

// Messages as they are put together: what belongs to one message is gathered, then closed under its role.
struct serve_chat {
    struct serve_ask *a;
    struct buf messages, tools, text, calls, thoughts;
    int n_messages, n_tools;
};
void serve_chat_init(struct serve_chat *c, struct serve_ask *a);
void serve_chat_text(struct serve_chat *c, struct str text);     // texts of one message are joined by line ends
void serve_chat_thoughts(struct serve_chat *c, struct str text); // of an assistant
// arguments: raw JSON, an object or a string that holds one.
void serve_chat_call(struct serve_chat *c, struct str id, struct str name, struct str arguments);
// Closes a message. Without anything gathered none is written, unless `even_empty`. call_id, name: of a tool's result.
void serve_chat_close(struct serve_chat *c, const char *role, struct str call_id, struct str name, bool even_empty);
void serve_chat_tool(struct serve_chat *c, struct str name, struct str description, struct str parameters /* raw */);
// A list of tools that are their own fields: {"type", "name", "description", and what it is given}. A
// tool of another type than `type` would have to be run here: refused; with type_needed one without type too.
struct serve_tool_form {
    const char *type;
    bool type_needed;
    const struct serve_field *fields; // into type, name, description, parameters
};
bool serve_chat_tools(struct serve_chat *c, struct str raw, const struct serve_tool_form *form);
// OpenAI's tool_choice for a function of this name, into the ask. False: a fault is set.
bool serve_tool_choice_named(struct serve_ask *a, struct str name);
// Into the ask's messages and tools; releases c. False: a fault is set.
bool serve_chat_finish(struct serve_chat *c);
void serve_chat_release(struct serve_chat *c);
#define SERVE_PATH_MAX 96 // bytes of a field's name with all that it is in

// The ask's prompts, of formats that go on with a text: a string, a list of token ids, a list of SERVE_PROMPTS_MAX of
// these at most. mixed: also a list of ids and strings, which is one prompt; markers in strings count.
bool serve_prompts_take(struct serve_answer *a, struct serve_prompt *prompts, bool mixed, int *n);
// The text that a prompt stands for, in the arena.
bool serve_prompt_text(struct serve_answer *a, const struct serve_prompt *p, struct str *out);
// A text with a gap, as a prompt for models that were taught to fill one in; false: a fault is set, which names `param`
// where the model knows no markers for it.
struct serve_gap {
    struct str before, after;
    struct str extra; // raw list of {"filename", "text"}: what stands in other files; or empty
    const char *param;
};
bool serve_gap_prompt(struct serve_answer *a, const struct serve_gap *g, struct serve_prompt *p);

// How many numbers of a vector an ask's `dimensions` wants; false: a fault is set. A vector that is cut to its first
// numbers has length 1 again.
bool serve_dimensions_check(struct serve_ask *a, const struct serve_model *m, int *n_dims);
void serve_vector_cut(float *v, int n, int n_dims);
#define SERVE_DIMENSIONS_NOTICE \
    "vectors are cut to `dimensions` and scaled to length 1: only models that were trained for it keep their quality"

// ----------------------------------------------------------------------------------------------------------- writing

enum serve_bit_kind { SERVE_BIT_THOUGHTS, SERVE_BIT_TEXT, SERVE_BIT_CALL };
struct serve_bit { // a run of an answer
    enum serve_bit_kind kind;
    int index;       // among all, from 0
    size_t from, to; // text, thoughts: bytes of the choice's
    char id[40];     // of a call
    struct str name, arguments;
    struct serve_bit *next;
};
struct serve_bits { // a->extra of formats that use them
    struct serve_bit *first, *last;
    bool is_open; // the last one may grow
    int64_t n_prompt;
    void *extra; // the format's own
};
// Takes an event into the list. *opened: the bit that it began, *closed: the one that it ended; either may be NULL.
// False: no memory (the answer's out is marked failed).
bool serve_bits_take(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e,
                     struct serve_bit **opened, struct serve_bit **closed);
static inline struct serve_bits *serve_bits_of(const struct serve_answer *a) { return a->extra; }
struct str serve_bit_text(const struct serve_choice *c, const struct serve_bit *b);

// The stop text that ended a choice: the first in what was generated; NULL when it ended by itself.
const char *serve_stop_found(const struct serve_answer *a, const struct serve_choice *c);
// An event's tokens with what else was likely: [{"token", "logprob", "bytes", "top_logprobs"}], inside an open list.
// ids: each with its "id".
void serve_logprobs_put(struct json_writer *w, const struct tern_event *e, bool ids);
void serve_logprobs_keep(struct serve_choice *c, const struct tern_event *e, bool ids); // into c->logprobs, by commas

// An event's text under n_indent: what is told of it. *over: a line stands too far out, so the answer ends before it.
// Blanks are held back until what follows them is known.
struct tern_str serve_indent_take(const struct serve_ask *a, struct serve_choice *c, struct tern_str text, bool *over);
// The timings so far, where the client wants them with each piece: key and object.
void serve_timings_piece_put(struct json_writer *w, const struct serve_answer *a);

// Members of an object.
void serve_put_str(struct json_writer *w, const char *key, struct str value);
void serve_put_text(struct json_writer *w, const char *key, const char *value); // NULL: null
void serve_put_int(struct json_writer *w, const char *key, int64_t value);
void serve_put_bool(struct json_writer *w, const char *key, bool value);
void serve_put_raw(struct json_writer *w, const char *key, struct str raw); // empty: null
// "2026-11-30T14:00:00Z"
const char *serve_time_text(char out[24], int64_t wall_s);
