// Private to the files serve_*.c: `tern serve`, the HTTP interface to one engine.
//
// The way of a request: net/ reads it; serve_gate.c looks at its head (Host, Origin, key, route, method, type) and
// refuses what may not come further; a worker calls the route's function with the whole of it. Functions that only look
// something up answer at once. Those that generate read their fields into a `serve_ask` (serve_fields.c, serve_ask.c),
// and start a `serve_answer`: it submits the jobs, takes their events whenever the scheduler has some, and lets a
// `serve_wire` write them, as a stream or whole. A wire format knows nothing of jobs, threads or HTTP.
//
// To add a route:
//   1. a row in serve_routes.inc, with the family whose error shape its clients expect;
//   2. `void serve_NAME(struct serve *s, struct net_request *r)` in a file serve_*.c, declared by that row: it answers
//      by serve_reply(), serve_fail*() or serve_answer_start(), exactly once;
//   3. a path in doc/openapi.json and a section with a curl line in doc/server.md: a test compares the three lists and
//      runs the curl lines.
// To add a wire format for generated answers: a table of `serve_field` rows for its request, and one `serve_wire`.
#pragma once
#include <stdatomic.h>
#include "app/app.h"
#include "net/net.h"

// Limits on what one request may ask; each is named in the error that it causes.
#define SERVE_MESSAGES_MAX 4096
#define SERVE_TOOLS_MAX 128
#define SERVE_N_MAX 8        // choices for each prompt
#define SERVE_PROMPTS_MAX 64 // prompts of one completion or embedding call
#define SERVE_CHOICES_MAX 64 // n * prompts
#define SERVE_KEYS_MAX 256
#define SERVE_KEY_BYTES_MAX 512
#define SERVE_INDENT_MAX 4096
#define SERVE_TEXT_BYTES_MAX (64u << 20) // of one answer
#define SERVE_JSON_DEPTH_MAX JSON_DEPTH_MAX
#define SERVE_ROOM_MIN (64u << 10) // an answer is written on while its stream has so much room
#define SERVE_NAME_SHOWN_MAX 60    // bytes of a client's text that an error quotes
#define SERVE_OLLAMA_VALUES 8
#define SERVE_IDLE_S_MIN 0.001 // of a keep_alive of 0: --idle 0 is for ever
#define SERVE_IDLE_S_MAX 1e9
#define SERVE_PORT_DEFAULT 8376 // TERN on a telephone's keys

enum serve_family { SERVE_OPENAI, SERVE_ANTHROPIC, SERVE_OLLAMA };
enum serve_flags {
    SERVE_OPEN = 1,     // needs no key
    SERVE_ANY_TYPE = 2, // a body of any content type when no browser sends it (curl -d without a header)
    SERVE_EARLY = 4,    // answered while the model is loading
    SERVE_NO_MODEL = 8, // names no model that must be there
    SERVE_QUERY = 16,   // of GET: ?model= chooses, and is loaded
    SERVE_UNLOADS = 32, // an empty prompt with keep_alive 0 unloads (serve_keep.c)
};

struct serve;
struct serve_route {
    const char *method, *path; // a path that ends in "{id}" takes any rest that is not empty
    void (*handle)(struct serve *s, struct net_request *r);
    enum serve_family family;
    unsigned flags;
};
extern const struct serve_route serve_routes[];
extern const int serve_n_routes;
#define ROUTE(method, path, handler, family, flags) void handler(struct serve *s, struct net_request *r);
#include "serve_routes.inc"
#undef ROUTE

// What is known of a request besides its HTTP side: r->user. Written by gate and routes, read by the log.
struct serve_model;
struct serve_call {
    struct serve_model *model;       // held for the request; NULL: the first one, or none is needed
    const struct serve_route *route; // NULL: none fits
    struct str rest;                 // what stands for "{id}"
    char tenant[17];                 // of its key; "" without keys
    char id[32];                     // "req_…", the X-Request-Id
    bool cors;                       // a configured origin: CORS headers
    char origin[256];
    // for the log
    int64_t n_prompt, n_cached, n_answer; // -1: nothing generated
    const char *finish;
    char error[48]; // code of the error that was answered, or ""
    double first_token_s;
};
struct serve_call *serve_call_of(const struct net_request *r);

// ------------------------------------------------------------------------------------------------------------- server

struct serve_key {
    uint8_t digest[32];
    char tenant[17];
};
#define SERVE_BUCKETS 14
struct serve_histogram { // seconds
    uint64_t n[SERVE_BUCKETS + 1];
    uint64_t count;
    double sum;
};
extern const double serve_bucket_s[SERVE_BUCKETS];
struct serve_metrics {
    uint64_t n_finish[4], n_failed;
    uint64_t n_prompt, n_cached, n_answer;
    struct serve_histogram first_token, per_token, whole;
};

struct serve_opts {
    const char *host, *unix_path, *log, *api_key_file;
    struct opt_texts api_keys, allow_hosts, allow_origins, aliases;
    int port, n_streams, n_queue, n_jobs_key, n_connections, prompt_rows, body_mib;
    uint64_t prefix_ram, prefix_disk;
    const char *prefix_dir, *state_dir;
    struct opt_texts others;    // models beside the first, in settings
    struct opt_texts draft_for; // "NAME=MODEL": drafters of those
    float drain_s, idle_s;
    bool open_to_network, check, manage_models;
    const char *config;
};

// Models. The first is loaded at the start, others when a request names them; one that nobody holds may be unloaded:
// for room, or after --idle seconds. A request holds its model from serve_gate_handle() to its end (serve_pool.c).
#define SERVE_MODELS_MAX 16
#define SERVE_KEEP_FOREVER (-1)
enum serve_model_state { SERVE_UNLOADED, SERVE_WANTED, SERVE_LOADING, SERVE_LOADED };
struct serve_model {
    char id[160];
    const char *path;       // NULL: built in, or a shape
    const char *draft_path; // NULL: drafts without a model, or of the first one: s->model.engine.draft_path
    struct buf path_text, draft_text;
    bool is_pulled;      // by a request, while the server ran
    atomic_bool is_gone; // removed by a request: served no more
    // Under serve.lock:
    enum serve_model_state state;
    int n_users;      // that hold it
    uint64_t used_ns; // when the last of them let go
    uint64_t bytes;   // what it needs at most, known since it was loaded first; 0: never
    uint64_t n_loads;
    bool has_failed; // to load, the last time
    bool keep_said;  // by a request's keep_alive: for so long after its last use, in place of --idle
    int64_t keep_ns; // or SERVE_KEEP_FOREVER
    double progress; // of loading, 0 to 1
    char digest[65]; // SHA-256 of the file, once it is known (serve_digest.c)
    struct serve_metrics metrics;
    // Of a loaded one; they change only while nobody holds it:
    struct tern_engine *engine;
    struct tern_service *service; // NULL: a model that generates nothing (encoders)
    struct tern_model_info info;
};

struct serve_waiter;
struct serve_pull;
struct serve {
    struct serve_opts o;
    struct buf configs[2]; // texts of files, which hold the settings' values
    int n_configs;
    char ollama_values[SERVE_OLLAMA_VALUES][32]; // settings of Ollama's variables
    struct buf notes;                            // lines for the start: what of the environment is read, and what not
    struct model_opts model;
    struct sample_opts sample; // the operator's defaults; max_tokens is a ceiling
    struct net_server *net;
    struct serve_key *keys;
    int n_keys;
    char fingerprint[64];
    enum tern_priority priority; // of jobs that do not say
    int64_t begin_s;             // wall clock
    uint64_t begin_ns;
    struct serve_model models[SERVE_MODELS_MAX];
    atomic_int n_models;   // at least 1 once the first one is named; those that were pulled come behind, and stay
    struct buf draft_text; // the draft model's path
    struct os_mutex *lock; // of all below, and of what models say
    bool is_ready;         // the first model has been loaded
    bool is_draining;
    struct serve_answer *answers; // at work
    struct serve_waiter *waiters; // requests whose model is being loaded
    struct os_thread *loader;     // NULL: not begun, or over
    struct os_thread *digester;   // NULL: nobody asked for digests yet
    struct serve_pull *pull;      // the newest, at work or over
    struct os_cond *wake;         // of the loader
    uint64_t n_by_class[6];       // HTTP answers by the first digit of their status
    uint64_t n_gone;              // clients
};
// The first model by s->model and s->o, told on stderr when it fails: the exit code, else 0. Used by `tern batch` too,
// which makes requests of its own (net_local_request) to the same routes. Close with serve_models_close().
int serve_model_open(const struct command *c, struct serve *s);
// Names it: as it was asked for, of a file its name without folder and ending.
void serve_model_id_set(struct serve *s);
// One more model, by name or path; 0, or the exit code after telling.
int serve_model_add(const struct command *c, struct serve *s, const char *name);
// --draft-for NAME=MODEL, of a model that was added; the same.
int serve_model_draft_set(const struct command *c, struct serve *s, const char *setting);
// Starts what loads models that requests name and unloads idle ones. After it only serve_models_stop() ends that.
enum tern_status serve_models_start(struct serve *s, struct tern_err *err);
void serve_models_stop(struct serve *s);
// A model that was pulled is served under this name from now on. TERN_LIMIT: too many are.
enum tern_status serve_model_adopt(struct serve *s, const char *id, const char *path, struct tern_err *err);
// Serves a pulled one no more. TERN_AGAIN: it is in use. TERN_INVALID_ARGUMENT: the operator's.
enum tern_status serve_model_forget(struct serve *s, struct serve_model *m, struct tern_err *err);
void serve_pull_stop(struct serve *s); // waits for it; its client is told that the server stops
// Digests of the models' files: begins to compute those that are not known, once; serve_digests_stop() waits for it.
void serve_digests_want(struct serve *s);
void serve_digests_stop(struct serve *s);
void serve_models_close(struct serve *s); // all requests are over
bool serve_ready(struct serve *s);        // the first model has been loaded
// The model of a request: the one that it holds, else the first.
struct serve_model *serve_model_of(struct serve *s, const struct net_request *r);
// By id, alias, "" or "default" (the first); NULL: unknown.
struct serve_model *serve_model_find(struct serve *s, struct str name);
// Holds a model if it is loaded.
bool serve_model_hold(struct serve *s, struct serve_model *m);
void serve_model_drop(struct serve *s, struct serve_model *m, bool used); // used: --idle counts from now
// When it would be unloaded, on the clock of clock_ns(), if nobody asked for it any more; UINT64_MAX: never. Under the
// lock.
uint64_t serve_model_expires_locked(const struct serve *s, const struct serve_model *m);
void serve_model_want(struct serve *s, struct serve_model *m); // begins to load it, if it is not there
// Unloads it now, or when the last of its requests is over. False: it is not loaded.
bool serve_model_unload(struct serve *s, struct serve_model *m);
void serve_model_unknown(struct serve *s, struct net_request *r, struct str name); // 404 that tells which there are
// A keep_alive as text; false: it is none.
bool serve_keep_parse(struct str text, int64_t *keep_ns);
// Runs the route with the model that body or query names, as soon as it is there.
void serve_model_route(struct serve *s, struct net_request *r);
// Is what a request names the model that it has? False after answering 404.
bool serve_model_check(struct serve *s, struct net_request *r, struct str name);

// ------------------------------------------------------------------------------------------------------------- answers

struct serve_fault {
    int status;
    const char *param, *code; // or NULL
    int retry_s;              // Retry-After; 0: none
    char message[TERN_ERR_MESSAGE_MAX];
};
void serve_fault_set(struct serve_fault *f, int status, const char *param, const char *code, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
// The library's status as HTTP's: what the client got wrong is 4xx, what may go next time 429 and 503.
void serve_fault_from(struct serve_fault *f, enum tern_status status, const struct tern_err *err, const char *param);
// An error says by its path which file it means; what is told to a client has the name that clients know instead.
void serve_path_hide(struct tern_err *err, const char *path, struct str name);
// The error object in the family's shape, without what a stream puts around it.
void serve_fault_put(struct buf *out, const struct serve_fault *f, enum serve_family family);
// The same as an event of a stream of data lines, in OpenAI's form.
struct serve_answer;
void serve_fault_event(struct serve_answer *a, const struct serve_fault *f, struct buf *out);
void serve_fail(struct net_request *r, const struct serve_fault *f);
void serve_failf(struct net_request *r, int status, const char *param, const char *code, const char *fmt, ...)
    PRINTF_LIKE(5, 6);
void serve_reply(struct net_request *r, const char *type, struct str body); // 200
void serve_reply_json(struct net_request *r, struct buf *body);             // releases body; a failed one is a 500
void serve_reply_stream(struct net_request *r, const char *type, const char *ping); // 200, then net_stream_put()

// ------------------------------------------------------------------------------------------------------ reading fields

enum serve_tristate { SERVE_UNSAID, SERVE_NO, SERVE_YES };

// One generation as a client asks for it, whatever the wire format. Strings and raws are views of the request's body or
// live in the arena.
struct serve_ask {
    struct arena arena;
    struct serve_fault fault; // status 0: none
    struct str model, user;
    struct str messages, tools, tool_choice, functions; // raw JSON
    struct str prompt, input;                           // raw JSON
    struct str response_format, json_schema, choice;    // raw JSON
    struct str grammar, regex;
    struct str suffix; // what follows the gap that a completion fills in; empty: none
    struct str system; // raw JSON (formats with a field of its own for it)
    float temperature, top_p, min_p, presence_penalty, frequency_penalty, repeat_penalty;
    int64_t dimensions, top_k, max_tokens, max_completion_tokens, n, best_of, logprobs_n, top_logprobs, seed,
        repeat_last;
    bool keep_alive; // said: for keep_ns, or SERVE_KEEP_FOREVER
    int64_t keep_ns;
    int64_t n_indent;      // blanks that lines after the first begin with, else the answer ends before the line; 0: any
    int64_t answer_ms_max; // then the answer ends, once a line of it is there; 0: never
    bool stream, include_usage, logprobs, echo, ignore_eos, parallel_tool_calls, return_progress, timings_per_token;
    const char *stop[TERN_STOP_MAX];
    int n_stop;
    struct tern_logit_bias *bias;
    int n_bias;
    enum tern_priority priority;
    enum serve_tristate think, keep_thoughts; // serve_think.c
    const char *effort;                       // NULL: not said
    struct str thinking_type;
    void *extra; // a format's own
};
#define SERVE_UNSET INT64_MIN // of the integers above

enum serve_kind {
    SERVE_FIELD_BOOL,
    SERVE_FIELD_INT,   // int64_t, lo..hi
    SERVE_FIELD_FLOAT, // float, lo..hi
    SERVE_FIELD_STR,   // struct str, unescaped
    SERVE_FIELD_RAW,   // struct str, any JSON value but null
    SERVE_FIELD_TAKE,  // take() reads the raw value
    SERVE_FIELD_REFUSE // given and not null: 400 that names it, with `why`
};
struct serve_field {
    const char *name;
    enum serve_kind kind;
    size_t offset; // in struct serve_ask
    double lo, hi;
    bool (*take)(struct serve_ask *a, struct str raw, const char *name);
    const char *why;
};
#define SERVE_FIELD(name_, kind_, member_, lo_, hi_) \
    { name_, kind_, offsetof(struct serve_ask, member_), lo_, hi_, 0, 0 }

// Rows that formats share: what is drawn from, what the answer is held to, and OpenAI's names for the rest.
#define SERVE_FIELDS_NUCLEUS                                          \
    SERVE_FIELD("temperature", SERVE_FIELD_FLOAT, temperature, 0, 2), \
        SERVE_FIELD("top_p", SERVE_FIELD_FLOAT, top_p, 1e-9, 1)
#define SERVE_FIELDS_SAMPLING                                                          \
    SERVE_FIELDS_NUCLEUS, SERVE_FIELD("top_k", SERVE_FIELD_INT, top_k, 0, 1 << 30),    \
        SERVE_FIELD("min_p", SERVE_FIELD_FLOAT, min_p, 0, 1),                          \
        SERVE_FIELD("presence_penalty", SERVE_FIELD_FLOAT, presence_penalty, -2, 2),   \
        SERVE_FIELD("frequency_penalty", SERVE_FIELD_FLOAT, frequency_penalty, -2, 2), \
        SERVE_FIELD("repeat_penalty", SERVE_FIELD_FLOAT, repeat_penalty, 0.01, 100),   \
        SERVE_FIELD("seed", SERVE_FIELD_INT, seed, -9.2e18, 9.2e18), {                 \
        "stop", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_stop, 0                          \
    }
#define SERVE_FIELDS_FORM                                                   \
    SERVE_FIELD("response_format", SERVE_FIELD_RAW, response_format, 0, 0), \
        SERVE_FIELD("json_schema", SERVE_FIELD_RAW, json_schema, 0, 0),     \
        SERVE_FIELD("grammar", SERVE_FIELD_STR, grammar, 0, 0),             \
        SERVE_FIELD("guided_json", SERVE_FIELD_RAW, json_schema, 0, 0),     \
        SERVE_FIELD("guided_grammar", SERVE_FIELD_STR, grammar, 0, 0),      \
        SERVE_FIELD("guided_regex", SERVE_FIELD_STR, regex, 0, 0),          \
        SERVE_FIELD("guided_choice", SERVE_FIELD_RAW, choice, 0, 0)
#define SERVE_FIELDS_OPENAI                                                                       \
    SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0), SERVE_FIELDS_SAMPLING, SERVE_FIELDS_FORM, \
        SERVE_FIELD("repetition_penalty", SERVE_FIELD_FLOAT, repeat_penalty, 0.01, 100),          \
        SERVE_FIELD("max_tokens", SERVE_FIELD_INT, max_tokens, 1, 9e15),                          \
        SERVE_FIELD("n", SERVE_FIELD_INT, n, 1, SERVE_N_MAX),                                     \
        SERVE_FIELD("ignore_eos", SERVE_FIELD_BOOL, ignore_eos, 0, 0),                            \
        SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0),                                    \
        {"stream_options", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_stream_options, 0}, {            \
        "logit_bias", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_logit_bias, 0                         \
    }

void serve_ask_init(struct serve_ask *a, const struct serve *s); // the operator's defaults
void serve_ask_release(struct serve_ask *a);
// Reads one JSON object by a table that ends with name NULL. Unknown members are passed over, null is as absent. False:
// a->fault says what is wrong. prefix: for names in messages, "options." or "".
bool serve_fields_read(struct serve_ask *a, struct str object, const char *prefix, const struct serve_field *fields);
// take() functions shared by formats.
bool serve_take_stop(struct serve_ask *a, struct str raw, const char *name);       // a string or a list of them
bool serve_take_effort(struct serve_ask *a, struct str raw, const char *name);     // "none", "low" …
bool serve_take_keep_alive(struct serve_ask *a, struct str raw, const char *name); // seconds, or a duration
void serve_keep_set(struct serve *s, struct serve_model *m, const struct serve_ask *a);
bool serve_take_think(struct serve_ask *a, struct str raw, const char *name);    // true, false or an effort
bool serve_take_thinking(struct serve_ask *a, struct str raw, const char *name); // {"type": "disabled"} …
bool serve_take_template_values(struct serve_ask *a, struct str raw, const char *name);
bool serve_tools_check(struct serve_ask *a); // a list of functions, or nothing
// What was said of these, as the request's template_json; empty: nothing.
struct str serve_template_values(struct serve_ask *a);
// The ask's conversation as a prompt, of which nothing else is set.
void serve_prompt_options(const struct serve *s, struct serve_ask *a, struct tern_request_options *prompt);
// Tokens of the ask's conversation as the model's prompt; negative: a status.
int64_t serve_prompt_count(const struct serve *s, const struct serve_model *m, struct serve_ask *a,
                           struct tern_err *err);
void serve_count_reply(struct serve *s, struct net_request *r, struct serve_ask *a, bool responses); // or its fault
bool serve_take_logit_bias(struct serve_ask *a, struct str raw, const char *name);
bool serve_take_stream_options(struct serve_ask *a, struct str raw, const char *name);
bool serve_bad(struct serve_ask *a, const char *param, const char *fmt, ...) PRINTF_LIKE(3, 4); // 400; returns false
// A raw JSON list of token ids below n_vocab, into the arena.
bool serve_ids_read(struct serve_ask *a, struct str raw, const char *name, int n_vocab, int32_t **ids, size_t *n);
// Copies a string into the arena, 0-terminated; NULL with a fault set when there is no memory.
char *serve_ask_dup(struct serve_ask *a, struct str s);

// ------------------------------------------------------------------------------------------------------- generating

struct serve_choice {
    struct serve_answer *answer;
    struct tern_job *job;
    int index;
    struct buf text, reasoning; // so far
    struct buf calls;           // JSON: {"id", "type": "function", "function": {"name", "arguments"}} objects, by ", "
    struct buf logprobs;        // as the format writes them
    int n_calls;
    char call_id[40];         // of the newest call
    struct buf blanks, shown; // of n_indent: the line's blanks so far, what of an event is told
    bool at_line_begin;       // … none but blanks came since the last line's end
    bool is_done, is_cut;     // cut: ended by the server (only the first call was wanted, the time is over)
    enum tern_finish cut_finish;
    enum tern_finish finish;
    struct tern_usage usage;
    const char *state; // "queued", "prompt", "answer", "done"
};
// How one wire format writes an answer. All write to `out` only, which is sent afterwards.
struct serve_wire {
    const char *stream_type; // "text/event-stream", "application/x-ndjson"
    const char *ping;        // sign of life on a silent stream, or NULL
    void (*begin)(struct serve_answer *a, struct buf *out);
    // TEXT, REASONING, TOOL_CALL, PROGRESS or DONE of one choice; c holds all up to it and with it.
    void (*event)(struct serve_answer *a, struct serve_choice *c, const struct tern_event *e, struct buf *out);
    void (*end)(struct serve_answer *a, struct buf *out);                                // all choices are done
    void (*fault)(struct serve_answer *a, const struct serve_fault *f, struct buf *out); // instead of the end
    void (*whole)(struct serve_answer *a, struct buf *out);                              // not streamed
};
struct serve_answer {
    struct serve *s;
    struct serve_model *m;
    struct net_request *r;
    const struct serve_wire *wire;
    struct serve_ask ask;
    struct tern_request_options request; // common to all choices, but for seed and prompt
    struct tern_constraint constraint;   // zeroed: none
    struct serve_choice *choices;
    int n_choices;
    char id[40]; // "chatcmpl-…"
    int64_t created_s;
    uint64_t begin_ns;
    bool streams;
    int64_t n_seq; // for formats that number their events
    int64_t n_events;
    void *extra; // a format's own, in the ask's arena
    struct buf out;
    struct serve_answer *next, **link; // in serve.answers
};
// A heap object whose ask has the operator's defaults; NULL after answering 503.
struct serve_answer *serve_answer_create(struct serve *s, struct net_request *r, const struct serve_wire *wire,
                                         const char *id_prefix);
void serve_answer_free(struct serve_answer *a);
// Opens what the answer is held to (response_format, grammar, tool_choice …). False: a->ask.fault.
bool serve_constraint_open(struct serve_answer *a);
// Checks the ask's numbers, stops, bias, tools, format against each other and fills a->request. False: the request has
// been answered with the fault (the caller frees a).
bool serve_answer_prepare(struct serve_answer *a);
// One prompt for each of the ask's n choices: messages (raw JSON) or, where that is empty, text or ids.
struct serve_prompt {
    struct str messages, tools, text;
    const int32_t *ids;
    size_t n_ids;
    bool special; // markers in text count
};
// Submits and goes on by itself: a now belongs to the request. Answers with an error where a job is refused.
void serve_answer_start(struct serve_answer *a, const struct serve_prompt *prompts, int n_prompts);
// Sums over the choices; prompt tokens of the first choice of each prompt.
struct tern_usage serve_usage_sum(const struct serve_answer *a);
void serve_usage_put(struct json_writer *w, const struct serve_answer *a);   // the OpenAI object
void serve_timings_put(struct json_writer *w, const struct serve_answer *a); // key and object, as llama-server's
void serve_energy_put(struct json_writer *w, const struct serve_answer *a);  // key and object; joules null when unknown
void serve_progress_put(struct json_writer *w, const struct serve_answer *a, const struct tern_event *e); // the same
void serve_id_make(char *out, size_t cap, const char *prefix);
// A member that answers the whole of a text: bytes of messages, tools … as the engine wants them.
static inline struct tern_str serve_str(struct str s) { return (struct tern_str){s.data, s.len}; }
static inline struct str serve_view(struct tern_str s) { return (struct str){s.data, s.len}; }

// Settings from files and the environment into the options' targets; 0, or the exit code after telling.
int serve_config_read(const struct command *c, struct serve *s, const struct opt *const *tables, int argc, char **argv);
// Ollama's variables that mean the same here, before everything else; the exit code, or 0.
int serve_ollama_env_read(const struct command *c, struct serve *s, const struct opt *const *tables);
// Variables that look like settings and are none: told by name, with --check an error; the exit code, or 0.
int serve_config_variables_check(const struct command *c, const struct serve *s, const struct opt *const *tables);
void serve_config_tell(const struct opt *const *tables); // all of them on stdout, but for keys

// gate, keys, log, metrics
enum tern_status serve_keys_load(struct serve *s, struct tern_err *err);
const char *serve_key_tenant(const struct serve *s, struct str key); // NULL: no such key; constant time in the key
void serve_gate_head(void *arg, struct net_request *r);
void serve_gate_handle(void *arg, struct net_request *r);
void serve_gate_fault(void *arg, const struct net_request *r, int status, const char *message, struct buf *out,
                      const char **type);
void serve_gate_end(void *arg, struct net_request *r, const struct net_outcome *outcome);
void serve_log_request(struct serve *s, const struct net_request *r, const struct net_outcome *outcome);
void serve_metrics_answer(struct serve *s, const struct serve_answer *a);
