// tern: run a language model on this machine. The one public header (C17, usable from C++).
//
// The model in the reader's head:
//   engine   one loaded model on its units; owns weights, programs, tokenizer, template. Thread-safe.
//   session  one timeline of tokens with the state they left (KV rows, convolution rows). One thread at a time.
//   request  one answer being made in a session: prompt in, events out, pulled by the caller with tern_request_next().
//   events   text pieces (never half a character), tool calls, progress, and one last `done` with counts and timings.
//   service  many answers at once from one engine: a queue, and a thread that runs its jobs together.
//
// Failure: functions return enum tern_status (TERN_OK is 0) and fill the nullable last parameter with a message fit to
// show: what, where, expected, found, what to do. Out-parameters are untouched on failure unless stated.
// Ownership: what tern_*_open/create returns is freed by its tern_*_close/free, which accept NULL. Pointers inside
// events and infos are borrowed until the next call on the same object. Options structs: fill with
// tern_*_options_default(), then change fields; strings in them are copied. Nothing is printed, no signal handler is
// set, no file is written except the pack cache (see engine options).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TERN_API __attribute__((visibility("default")))
#else
#define TERN_API
#endif

#define TERN_API_VERSION 1

// One row per status: X(NAME, value, text). Published values never change; new ones go at the end.
#define TERN_STATUS_LIST(X)                                 \
    X(OK, 0, "ok")                                          \
    X(INVALID_ARGUMENT, -1, "invalid argument")             \
    X(BAD_FORMAT, -2, "broken or hostile input")            \
    X(UNSUPPORTED, -3, "sound, but not supported here")     \
    X(NOT_FOUND, -4, "not found")                           \
    X(IO, -5, "input/output error")                         \
    X(NO_MEMORY, -6, "out of memory")                       \
    X(LIMIT, -7, "over a named limit")                      \
    X(CONTEXT_FULL, -8, "does not fit the context")         \
    X(AGAIN, -9, "try again later")                         \
    X(CANCELLED, -10, "cancelled")                          \
    X(UNIT_LOST, -11, "the unit failed")                    \
    X(TEMPLATE, -12, "the chat template refused the input") \
    X(MISMATCH, -13, "belongs to another model or version") \
    X(NO_SPACE, -14, "no space left on the device")

enum tern_status {
#define TERN_STATUS_ENUM(name, value, text) TERN_##name = value,
    TERN_STATUS_LIST(TERN_STATUS_ENUM)
#undef TERN_STATUS_ENUM
};
// "out of memory" and so on; for an unknown code "unknown status".
TERN_API const char *tern_status_text(enum tern_status status);
// The library's version, for example "0.1.0 (abc1234, gcc 12.2)".
TERN_API const char *tern_version(void);

#define TERN_ERR_MESSAGE_MAX 768
struct tern_err {
    enum tern_status code;
    int64_t pos;                        // byte position in the input, or -1
    char message[TERN_ERR_MESSAGE_MAX]; // one line, UTF-8, no control bytes
};

// A run of bytes with a length; may hold zeros.
struct tern_str {
    const char *data;
    size_t len;
};

// ---------------------------------------------------------------------------------------------------------- engine

struct tern_engine;

enum tern_kv_type { TERN_KV_F16, TERN_KV_Q8, TERN_KV_F32 };
// The arithmetic that defines the result (doc/architecture.md, "Numerics classes").
enum tern_class {
    TERN_CLASS_AUTO, // int8 activations where the file's weights are quantised, else fp32
    TERN_CLASS_INT8, // activations quantised to int8 per 32 values before every product with quantised weights
    TERN_CLASS_FP32, // float activations everywhere: the reference, slow
    TERN_CLASS_BF16, // as INT8; BF16 weights by activations rounded to bf16, in the order of the CPU's instruction
};

// Speculative decoding: several tokens are guessed and checked by one run of the model. The text is that of plain
// decoding, token by token, sampled or not; only the speed differs. Trees and chains need a draft model.
enum tern_draft {
    TERN_DRAFT_DEFAULT, // of an engine: auto; of a request: what the engine does
    TERN_DRAFT_AUTO,    // as many drafted tokens as are expected to pay here, which may be none
    TERN_DRAFT_OFF,
    TERN_DRAFT_CHAIN,           // the drafter's single best guess
    TERN_DRAFT_TREE,            // its most likely continuations, branching
    TERN_DRAFT_NGRAM,           // what followed the last tokens earlier in the text; needs no draft model
    TERN_DRAFT_TREE_BIASED,     // trees from one distribution for each depth: cheaper, weaker; for comparison
    TERN_DRAFT_TREE_FACTORISED, // the same without the Markov head; for comparison
};
#define TERN_DRAFT_MAX 63    // drafted tokens of a round
#define TERN_DRAFT_DEPTHS 16 // depths that are counted

struct tern_engine_options {
    // The model, one of: a path (a .gguf file, the first shard of a split one, or a Hugging Face folder with
    // config.json and safetensors); a GGUF file in memory, borrowed for the engine's life; or random weights in a named
    // shape ("lfm2-350m", "lfm2-1.2b", "lfm2-8b-a1b", "lfm2.5-2.6b", "llama-7b") for benches, which has no tokenizer.
    const char *model_path;
    const void *model_data;
    size_t model_data_len;
    const char *shape;
    const char *shape_format; // "Q4_0", "Q8_0", ...; NULL: "Q4_0"
    uint64_t shape_seed;

    const char *unit;          // "cpu" (default), "npu" or "npu:RULES" (doc/npu.md), "null"
    int n_threads;             // 0: one per fast core
    int n_ctx;                 // positions per session; 0: the model's context, at most TERN_CTX_DEFAULT
    int n_sessions;            // sessions that may exist at once; worst-case memory is reserved for them (default 1)
    int window;                // rows of the largest program, 1..512; 0: 256
    enum tern_kv_type kv_type; // default TERN_KV_F16
    enum tern_class numerics;  // default TERN_CLASS_AUTO
    bool pack_cache; // keep packed weights in $XDG_CACHE_HOME/tern between runs, use kept profiles (default true)
    // A draft model: a drafter made for this model (DSpark, DFlash), or any smaller model of the same vocabulary, as a
    // GGUF file or a folder. NULL: none.
    const char *draft_path;
    const char *draft_unit; // where it runs, as `unit`; NULL: on the model's own
    // How steps are placed: "whole" (default) on `unit`; "handoff": prompts on `unit`, answers on `then_unit`;
    // "extend": on `unit` as long as its programs hold the context, then on `then_unit`. Both hold the weights.
    const char *plan, *then_unit;
    enum tern_draft draft; // what requests do that say nothing; auto with a draft model measures costs at open unless a
                           // profile is kept (tern_engine_calibrate)
    int draft_max;         // drafted tokens of a round at most, 1..TERN_DRAFT_MAX; 0: by the mode
    uint64_t memory_max;   // refuse to open when the worst case needs more bytes; 0: what the machine has
    // Called during loading from the opening thread: stage name, done and total in bytes. Returning false cancels.
    bool (*on_progress)(void *arg, const char *stage, uint64_t done, uint64_t total);
    void *on_progress_arg;
};
#define TERN_CTX_DEFAULT 8192

TERN_API void tern_engine_options_default(struct tern_engine_options *o);
TERN_API enum tern_status tern_engine_open(struct tern_engine **out, const struct tern_engine_options *o,
                                           struct tern_err *err);
TERN_API void tern_engine_close(struct tern_engine *e); // all sessions must be closed

struct tern_model_info {
    const char *name;         // general.name or the folder's name
    const char *architecture; // "lfm2", "llama"
    const char *format;       // dominant weight format: "Q4_0"
    const char *unit;         // "cpu"
    const char *kernels;      // instruction set that runs: "avx512vnni", "avx2", "scalar", "neon-dotprod"
    const char *numerics;     // "int8/kv-f16"
    bool has_template;
    bool pack_cached; // the packed weights came from the cache
    int n_layers, n_vocab, n_embd, n_ctx, n_ctx_model, n_threads, window;
    uint64_t n_params;
    uint64_t n_params_token;  // of these, multiplied for one prompt token: without embedding, head and idle experts
    uint64_t bytes_token;     // of bytes_weights, read to decode one token
    uint64_t bytes_weights;   // packed, resident
    uint64_t bytes_kv_token;  // cache per position of one session
    uint64_t bytes_state_max; // all sessions at full context
    uint64_t bytes_work;      // activations and scratch of all programs
    const char *drafter;      // name of the draft model, or NULL
    const char *draft;        // what requests do by default, and why, in words
    uint64_t bytes_drafter;   // its packed weights (what it borrows left out), state and work
};
TERN_API void tern_engine_info(const struct tern_engine *e, struct tern_model_info *out);
// Measures what steps of several widths and drafts cost here, for so many seconds (0: 5), on free memory of the engine:
// no session may be at work. keep: the result is written to $XDG_CACHE_HOME/tern/profiles, where engines of the same
// model, drafter, unit and threads that draft by TERN_DRAFT_AUTO find it instead of measuring in a hurry. profile
// (nullable): the text, JSON, borrowed until the next call.
TERN_API enum tern_status tern_engine_calibrate(struct tern_engine *e, double seconds, bool keep,
                                                struct tern_str *profile, struct tern_err *err);

// ---------------------------------------------------------------------------------------------------------- text

// Token ids of text. parse_special: markers such as <|im_start|> become control ids (only for text that you trust);
// otherwise they are plain text. add_bos: as the model wants. Writes at most cap ids; returns the count that the whole
// text needs (call again with more room), or a negative tern_status.
TERN_API int64_t tern_tokenize(const struct tern_engine *e, struct tern_str text, bool add_bos, bool parse_special,
                               int32_t *ids, size_t cap, struct tern_err *err);
// Bytes of ids into out (cap bytes); returns the bytes needed or a negative tern_status. Control tokens give their
// marker's text when with_special, else nothing.
TERN_API int64_t tern_detokenize(const struct tern_engine *e, const int32_t *ids, size_t n, bool with_special,
                                 char *out, size_t cap, struct tern_err *err);
// The rendered chat template of an OpenAI-style JSON array of messages (roles system, developer, user, assistant,
// tool), with optional tools (JSON array, OpenAI form or bare functions). Returns the bytes needed or a negative
// tern_status.
TERN_API int64_t tern_template_render(const struct tern_engine *e, struct tern_str messages_json,
                                      struct tern_str tools_json /* may be empty */, bool add_generation_prompt,
                                      char *out, size_t cap, struct tern_err *err);
struct tern_request_options;
// The same text for messages_json, tools_json and template_json of a request's options.
TERN_API int64_t tern_prompt_render(const struct tern_engine *e, const struct tern_request_options *prompt,
                                    bool add_generation_prompt, char *out, size_t cap, struct tern_err *err);
// Tokens of the prompt that a request with these options has; or a negative tern_status.
TERN_API int64_t tern_prompt_count(const struct tern_engine *e, const struct tern_request_options *prompt,
                                   struct tern_err *err);

// ---------------------------------------------------------------------------------------------------------- encoders

// Models that read in both directions (the LFM2.5 encoders) give one vector per text and generate nothing: they have no
// sessions. The vector is a row of the last layer behind its norm, or the mean of all rows, divided by its length.
enum tern_pooling {
    TERN_POOL_MEAN,
    TERN_POOL_FIRST, // of the first token
    TERN_POOL_LAST,
};
// n: the model's width (tern_model_info.n_embd). Texts of at most 4,096 tokens. Texts of equal ids give equal bits,
// whatever the threads and the machine's instruction set.
TERN_API enum tern_status tern_embed(struct tern_engine *e, struct tern_str text, enum tern_pooling pooling, float *out,
                                     size_t n, struct tern_err *err);
// The same for token ids, taken as they are.
TERN_API enum tern_status tern_embed_ids(struct tern_engine *e, const int32_t *ids, size_t n_ids,
                                         enum tern_pooling pooling, float *out, size_t n, struct tern_err *err);

// An encoder with a prompt-router head (LFM2.5-Encoder-350M-Prompt-Router's format) scores routes for a text: which of
// several models, tools or topics it belongs to. logits [n_routes]; their softmax is the router's opinion. Text and
// routes are read together, at most as many tokens as tern_embed takes; a route is one line.
#define TERN_ROUTES_MAX 1024
TERN_API enum tern_status tern_route(struct tern_engine *e, struct tern_str text, const struct tern_str *routes,
                                     size_t n_routes, float *logits, struct tern_err *err);

// ---------------------------------------------------------------------------------------------------------- session

struct tern_session;

TERN_API enum tern_status tern_session_open(struct tern_session **out, struct tern_engine *e, struct tern_err *err);
TERN_API void tern_session_close(struct tern_session *s);
// Tokens whose state the session holds.
TERN_API size_t tern_session_len(const struct tern_session *s);
// Forgets positions from len on. For models with convolution layers only len 0, the current length, and the positions
// the session kept checkpoints of (every request's prompt end and answer end) can be reached; else TERN_UNSUPPORTED
// with the nearest reachable position in err->pos.
TERN_API enum tern_status tern_session_truncate(struct tern_session *s, size_t len, struct tern_err *err);
// A second session with the same state (needs room under n_sessions).
TERN_API enum tern_status tern_session_fork(struct tern_session **out, const struct tern_session *s,
                                            struct tern_err *err);
// State to and from a file: written atomically, checksummed; loading refuses another model, numerics class or version
// and leaves the session as it was.
TERN_API enum tern_status tern_session_save(const struct tern_session *s, const char *path, struct tern_err *err);
TERN_API enum tern_status tern_session_load(struct tern_session *s, const char *path, struct tern_err *err);

// Teacher-forced scoring from an empty session: logprobs[i] is the natural log-probability of ids[i] given ids[0 … i-1]
// (NaN for i = 0); top[i] (nullable) the likeliest id in its place (-1 for i = 0). The session then holds the ids.
TERN_API enum tern_status tern_session_score(struct tern_session *s, const int32_t *ids, size_t n, float *logprobs,
                                             int32_t *top, struct tern_err *err);

// ---------------------------------------------------------------------------------------------------------- request

struct tern_request;

#define TERN_STOP_MAX 16
#define TERN_LOGIT_BIAS_MAX 1024
#define TERN_TOP_LOGPROBS_MAX 20

struct tern_logit_bias {
    int32_t id;
    float bias; // added to the logit; -INFINITY bans
};

// A constraint on the output, one automaton state per sequence (JSON schema, grammar, choice list …). The engine calls
// it between tokens; all functions run on the thread that calls tern_request_next.
struct tern_constraint {
    void *state;                             // the start state; owned by the caller
    void *(*state_clone)(const void *state); // NULL on failure
    void (*state_free)(void *state);
    bool (*advance)(void *state, int32_t id); // false: id is not allowed here (then the state is unspecified)
    // Clears the bits of ids that are not allowed: mask has (n_vocab + 31) / 32 words, bit i%32 of word i/32 is id i,
    // all set on entry. The end-of-text ids are judged like any other.
    void (*mask)(const void *state, uint32_t *mask, int n_vocab);
};

// Ready-made constraints, compiled from text for an engine's vocabulary: doc/constraints.md says what is supported.
// Fail closed: what is not supported is TERN_UNSUPPORTED with the keyword and its JSON path in the message, what is
// malformed TERN_BAD_FORMAT, what is too large or takes too long TERN_LIMIT. The same text however it is decoded.
enum tern_constraint_kind {
    TERN_CONSTRAINT_JSON_SCHEMA, // spec: a JSON schema (draft 2020-12)
    TERN_CONSTRAINT_JSON_OBJECT, // spec: empty; any JSON object
    TERN_CONSTRAINT_GBNF,        // spec: a grammar in GBNF, the rule root
    TERN_CONSTRAINT_REGEX,       // spec: a pattern that the whole answer matches
    TERN_CONSTRAINT_CHOICE,      // spec: a JSON array of texts, one of which the answer is
    // spec: {"tools": [… as in tools_json], "name": "f", "parallel": false}. The answer is a call of one of the tools,
    // or of the one named (tool_choice "required" or named), in the model's own way, which parse_tools reads: use it
    // with tools_json in the request. Without "name": any tool; parallel (default true): more than one call may come.
    // With "otherwise": {"kind": "json_schema" | "json_object" | "gbnf" | "regex" | "choice", "spec": "…"} the answer
    // is either such calls or what a constraint of that kind and spec (a text) lets through.
    TERN_CONSTRAINT_TOOL_CALL,
};
// Fills out, fit for tern_request_options.constraint of any number of requests of this engine, on any threads. Close
// it when they are freed, and before the engine.
TERN_API enum tern_status tern_constraint_open(struct tern_constraint *out, struct tern_engine *e,
                                               enum tern_constraint_kind kind, struct tern_str spec,
                                               struct tern_err *err);
TERN_API void tern_constraint_close(struct tern_constraint *c); // of tern_constraint_open; NULL and zeroed are fine
// An engine keeps what was compiled: opening the same kind and spec again takes microseconds, and masks that were
// computed for one request serve the next. Those in no use are dropped, the longest unused first, beyond
// TERN_CONSTRAINTS_KEPT_MAX of them or TERN_CONSTRAINTS_BYTES_MAX.
#define TERN_CONSTRAINTS_KEPT_MAX 64
#define TERN_CONSTRAINTS_BYTES_MAX (64u << 20)
struct tern_constraint_info {
    uint64_t n_opened, n_compiled; // since the engine was opened; refused ones count as neither
    int n_kept;
    uint64_t bytes_kept;
};
// Any thread.
TERN_API void tern_constraint_info(const struct tern_engine *e, struct tern_constraint_info *out);
// What was read more narrowly than written ("#/x: oneOf is held as anyOf"), or NULL. Borrowed from c.
TERN_API const char *tern_constraint_note(const struct tern_constraint *c);

struct tern_request_options {
    // The prompt: either text, token ids, or chat messages rendered by the model's template.
    struct tern_str prompt; // raw text; control markers are honoured when prompt_special
    bool prompt_special;
    const int32_t *prompt_ids; // used instead of prompt when n_prompt_ids > 0
    size_t n_prompt_ids;
    struct tern_str messages_json; // used when not empty
    struct tern_str tools_json;
    struct tern_str template_json; // JSON object of further variables of the template ("enable_thinking"), or empty
    bool reuse_prefix; // keep the session's state where the new tokens begin like the old ones (default true)
    bool append;       // the prompt continues the session's tokens as they are (no BOS, nothing reused or dropped)

    int n_max; // new tokens at most; -1: to the end of the context
    bool ignore_eos;
    bool parse_tools; // tool calls in the answer become events (default: when tools_json is given)
    const char *stop[TERN_STOP_MAX];
    int n_stop;

    float temperature;      // 0: greedy (argmax; ties to the lowest id), the rest of the sampling fields is ignored
    int top_k;              // 0: off
    float top_p;            // 1: off
    float min_p;            // 0: off
    float repeat_penalty;   // 1: off. Positive logits divided, negative multiplied, for ids among the last repeat_last
    int repeat_last;        // tokens of prompt and answer looked at; default 64
    float presence_penalty; // 0: off. Counted over the answer only, as in the OpenAI API
    float frequency_penalty;
    uint64_t seed; // same seed, same text, whatever the plan
    const struct tern_logit_bias *logit_bias;
    int n_logit_bias;
    int n_logprobs; // -1: none; 0: the chosen token's; up to TERN_TOP_LOGPROBS_MAX alternatives
    const struct tern_constraint *constraint; // NULL: none; borrowed until the request is freed
    enum tern_draft draft;                    // never changes the text. TERN_DRAFT_AUTO needs an engine opened with it
    int draft_max;                            // 0: the engine's
    // The prompt's tokens are scored too, with n_logprobs alternatives each: tern_request_prompt_logprobs(). All of the
    // prompt is computed, whatever is known of it.
    bool prompt_logprobs;
};
TERN_API void tern_request_options_default(struct tern_request_options *o);

// Checks and queues; everything that can be refused is refused here (prompt beyond the context, bad ranges …).
TERN_API enum tern_status tern_request_create(struct tern_request **out, struct tern_session *s,
                                              const struct tern_request_options *o, struct tern_err *err);
TERN_API void tern_request_free(struct tern_request *r); // cancels if not done
// From any thread or a signal handler: the next tern_request_next ends the request with TERN_FINISH_CANCELLED.
TERN_API void tern_request_cancel(struct tern_request *r);

enum tern_finish {
    TERN_FINISH_STOP,   // end token or stop string
    TERN_FINISH_LENGTH, // n_max or the context is used up
    TERN_FINISH_TOOL_CALLS,
    TERN_FINISH_CANCELLED,
};
TERN_API const char *tern_finish_text(enum tern_finish finish); // "stop", "length", "tool_calls", "cancelled"

enum tern_event_type {
    TERN_EVENT_PROGRESS,  // prompt rows done so far
    TERN_EVENT_TEXT,      // answer text
    TERN_EVENT_REASONING, // text between the model's thinking markers
    TERN_EVENT_TOOL_CALL, // one whole call
    TERN_EVENT_DONE,      // last
};
struct tern_logprob {
    int32_t id;
    float logprob; // natural log, over the unfiltered distribution at temperature 1, penalties and bias included
    struct tern_str bytes;
};
struct tern_usage {
    int64_t n_prompt;    // prompt tokens
    int64_t n_cached;    // of these, taken from the session's state
    int64_t n_answer;    // tokens generated, the end token included
    int64_t n_reasoning; // of these, between the model's thinking markers, with the markers
    int64_t n_steps;     // program runs for the answer
    double load_s, prompt_s, answer_s;
    double first_token_s; // from create to the first token
    double joules;        // of this request; NaN when nothing can measure it
    const char *plan;     // "whole(cpu)"
    // Speculative decoding.
    const char *draft;                      // which mode ran, and why none or why rounds went without
    int64_t n_rounds;                       // runs that checked drafted tokens
    int64_t n_drafted, n_accepted;          // tokens in them
    int64_t n_round_tokens;                 // tokens of the answer that those runs gave
    int64_t n_tried[TERN_DRAFT_DEPTHS];     // by depth from 1: rounds that came so far with a token to check there
    int64_t n_hit[TERN_DRAFT_DEPTHS];       // … and accepted one
    double draft_s, verify_s, draft_host_s; // of the rounds: drafting, checking, choosing and bookkeeping
};
struct tern_event {
    enum tern_event_type type;
    // text, reasoning: the new piece, valid UTF-8. tool call: name and arguments.
    struct tern_str text;
    struct tern_str tool_name;
    struct tern_str tool_arguments; // a JSON object
    // token-wise detail of a text event when n_logprobs >= 0: chosen first, then alternatives, n_logprobs_token per
    // token
    const struct tern_logprob *logprobs;
    int n_logprobs;
    int n_logprobs_token;
    int64_t n_done, n_total; // progress
    enum tern_finish finish; // done
    // Of DONE. Of progress only n_cached. Of others, so far: n_prompt, n_cached, n_answer, prompt_s, answer_s,
    // first_token_s, plan, n_rounds, n_drafted, n_accepted.
    struct tern_usage usage;
};
// With prompt_logprobs, once a text or DONE came: the log-probability of token i of the prompt given those before it
// (NaN for the first), and in out[1 … n_logprobs] the likeliest in its place (id -1: none). out: [1 + n_logprobs]; the
// bytes live as long as the engine. False: the prompt has no token i, or was not scored.
TERN_API bool tern_request_prompt_logprobs(const struct tern_request *r, size_t i, struct tern_logprob *out);
// Works until there is something to tell. After DONE: TERN_INVALID_ARGUMENT.
TERN_API enum tern_status tern_request_next(struct tern_request *r, struct tern_event *event, struct tern_err *err);
// Ids produced so far (borrowed; the end token included).
TERN_API const int32_t *tern_request_ids(const struct tern_request *r, size_t *n);

// ---------------------------------------------------------------------------------------------------------- service

// Many answers at once from one engine: jobs wait in a bounded queue, a thread of the service runs up to n_streams of
// them together, step by step, and their events are pulled from any thread. What a job answers does not depend on which
// others are there: it is, token for token, what a request in an empty session gives.
struct tern_service;
struct tern_job;

#define TERN_STREAMS_MAX 64
#define TERN_QUEUE_MAX 65536
#define TERN_TENANT_MAX 256 // bytes

struct tern_service_options {
    int n_streams;      // jobs that run together, 1..TERN_STREAMS_MAX and the engine's window; so many sessions of the
                        // engine are the service's as long as it is open (default: all that are free)
    int n_queue_max;    // jobs waiting at most (default 512)
    int n_jobs_key_max; // jobs of one tenant at most, waiting and running; 0: no quota (default)
    int prompt_rows_step; // prompt tokens beside running streams in one step; 0: for steps of 50 to 100 ms,
                          // by what steps have cost so far (default)
    // The prefix cache: state of earlier prompts and answers, in blocks of 32 tokens, taken over by jobs of the same
    // tenant that begin alike. It changes times, never answers.
    uint64_t prefix_ram_max;  // bytes in memory, taken at open; 0: none (default)
    const char *prefix_dir;   // a folder (made) for what should outlive the process; NULL: none (default)
    uint64_t prefix_disk_max; // bytes of files in it
    // States of batch jobs that gave up their place to interactive ones, in memory taken when it happens; 0: none gives
    // up its place (default 256 MiB)
    uint64_t park_ram_max;
};
TERN_API void tern_service_options_default(struct tern_service_options *o);
TERN_API enum tern_status tern_service_open(struct tern_service **out, struct tern_engine *e,
                                            const struct tern_service_options *o, struct tern_err *err);
TERN_API void tern_service_close(struct tern_service *s); // all jobs must be freed
// From now on submitting gives TERN_AGAIN; jobs that are there go on.
TERN_API void tern_service_drain(struct tern_service *s);

enum tern_priority {
    TERN_PRIORITY_INTERACTIVE,
    TERN_PRIORITY_BATCH, // begins when no interactive job waits, or as every fourth. When an interactive job finds all
                         // streams taken, a batch job gives up its place and goes on later
};
struct tern_job_options {
    struct tern_request_options request; // reuse_prefix is not looked at; append is refused
    enum tern_priority priority;
    struct tern_str
        tenant;        // whose job it is, at most TERN_TENANT_MAX bytes: waiting jobs of different tenants get equal
                       // shares, quotas count by it, and cached state never crosses it. May be empty
    double deadline_s; // from submit on; 0: none. Then the job ends with TERN_FINISH_CANCELLED
};
TERN_API void tern_job_options_default(struct tern_job_options *o);
// Renders, tokenises and checks in the calling thread, queues, and returns. TERN_AGAIN: the queue is full or the
// service drains (err->pos -1), or the tenant's quota is full (err->pos 0). A constraint is called by the service's
// thread.
TERN_API enum tern_status tern_job_submit(struct tern_job **out, struct tern_service *s,
                                          const struct tern_job_options *o, struct tern_err *err);
// The next event, as of tern_request_next; waits up to timeout_s (0: not at all, < 0: for ever). TERN_AGAIN: none yet.
// Events of a reader who falls far behind are joined, never lost. A failure of this job comes as its status, once.
// One thread at a time.
TERN_API enum tern_status tern_job_next(struct tern_job *j, double timeout_s, struct tern_event *event,
                                        struct tern_err *err);
// fn is called by the service's thread whenever there is something to pull after there was nothing: for servers that
// poll. It must not call tern nor wait for a thread that does. Pull once after this call: what came before it is not
// told. fn NULL: no more calls, and none is under way when this returns.
TERN_API void tern_job_notify(struct tern_job *j, void (*fn)(void *arg), void *arg);
TERN_API void tern_job_cancel(struct tern_job *j); // any thread; takes effect at the next step
// Cancels first. Returns at once, unless the job has a constraint, which is out of use when this returns (a step at
// most).
TERN_API void tern_job_free(struct tern_job *j);

enum tern_job_phase { TERN_JOB_QUEUED, TERN_JOB_PROMPT, TERN_JOB_ANSWER, TERN_JOB_DONE };
// queue_place (nullable): jobs that came before it and wait too.
TERN_API enum tern_job_phase tern_job_state(const struct tern_job *j, int *queue_place);
// Ids of the answer once DONE has been pulled (borrowed until the job is freed; the end token included); before: none.
TERN_API const int32_t *tern_job_ids(const struct tern_job *j, size_t *n);
TERN_API bool tern_job_prompt_logprobs(const struct tern_job *j, size_t i, struct tern_logprob *out); // as of requests

struct tern_service_info {
    int n_streams, n_running, n_waiting;
    bool draining;
    uint64_t n_jobs, n_done, n_cancelled, n_failed; // since open; done: to their own end
    uint64_t n_refused;                             // by TERN_AGAIN
    uint64_t n_prompt, n_cached, n_answer;          // tokens of jobs that ended: of prompts, of these cached, answers
    uint64_t n_steps, n_step_rows, n_step_prompt_rows; // runs of the model, their rows, those that were prompt
    uint64_t n_rounds, n_drafted, n_accepted;          // of jobs that ended
    uint64_t step_ns;                                  // time in these runs
    uint64_t prefix_bytes, prefix_disk_bytes;
    uint64_t n_parked;          // times that a batch job gave up its place
    uint64_t token_wait_ns_max; // longest that an answer at work waited for its next token
};
TERN_API void tern_service_info(const struct tern_service *s, struct tern_service_info *out); // any thread

// Named states, from any thread. save writes what the prefix cache has of the prompt's begin (prompt, prompt_ids, or
// messages_json with tools_json; nothing else of the options is looked at) to a file that tern_session_load reads too.
// restore puts such a file's text into the cache of the tenant, whose jobs that begin so then compute only the rest.
// The caller keeps the files of tenants apart. *n_tokens: of the text saved or restored. TERN_NOT_FOUND: nothing of it
// is in the cache (ask it first); TERN_UNSUPPORTED: no cache, or a state that ends between two blocks of 32;
// TERN_LIMIT: the cache is too small for it.
TERN_API enum tern_status tern_service_state_save(struct tern_service *s, struct tern_str tenant,
                                                  const struct tern_request_options *prompt, const char *path,
                                                  size_t *n_tokens, struct tern_err *err);
TERN_API enum tern_status tern_service_state_restore(struct tern_service *s, struct tern_str tenant, const char *path,
                                                     size_t *n_tokens, struct tern_err *err);

#ifdef __cplusplus
}
#endif
