// Private to engine/: the objects behind include/tern.h.
//
//   engine   model, unit, weights, plan, tokenizer, template, and the free lists of KV blocks and conv slots
//   session  the ids whose state it holds, its block table, its live conv slot and its checkpoints
//   request  one answer: prompt ids, sampler, detokenizer, stop strings, answer parser, events waiting to be pulled
//
// One mutex of the engine guards the free lists and every run of the plan; a session is used by one thread at a time.
// All KV blocks and slots that n_sessions sessions can ever need are taken at open: a request cannot run out of memory.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "text/text.h"
#include "prog/prog.h"
#include "unit/unit.h"
#include "plan/plan.h"
#include "spec/spec.h"
#include "policy/policy.h"

#define ENGINE_SESSIONS_MAX 256
#define ENGINE_CTX_MAX (1 << 20)
#define ENGINE_WINDOW_MAX 512
#define ENGINE_WINDOW_DEFAULT 256
#define ENGINE_OUT_ROWS_MAX 64 // head rows in one step
#define ENGINE_EOS_MAX 64
#define SESSION_CHECKPOINTS_MAX 8        // conv slots kept per session besides the live one
#define ENGINE_BYTES_SPARE (64ull << 20) // left to the system when memory is budgeted

#define ENGINE_DRAFT_NOTE 240
#define ENGINE_UNIT_NAME 40
// Drafting as the engine sees it: by a drafter made for the target (plan, drafter), by a whole smaller model (lm), or,
// where all these are NULL, by n-grams alone.
struct engine_draft {
    enum tern_draft mode; // never TERN_DRAFT_DEFAULT
    int max;              // of the options
    char note[ENGINE_DRAFT_NOTE];
    struct model *model;
    struct unit *unit; // where it runs; of its own when it is not the target's: unit_name then says which
    char unit_name[ENGINE_UNIT_NAME];
    int window; // rows of its largest injection or step
    struct unit_weights *weights;
    struct weights_info weights_info;
    struct plan_draft *plan;
    struct drafter *drafter;
    struct draft_lm *lm;
    int n_blocks, n_rows; // of one session: KV blocks, rows of features
    int32_t *free_lanes;  // stack; lane i has blocks and rows from i * n_blocks, i * n_rows on
    int n_free_lanes;
    struct step_builder commit; // beside the verify step, under the mutex
    struct draft_auto chooser;  // what `auto` knows, in ns; under the mutex
    const char *costs_from;     // where its curves come from, in words; NULL: not yet known
    struct buf profile_text;    // of the last calibration
};

// What tern_constraint_open compiled, by kind and spec, under a mutex of its own (constraint.c).
struct constraint_kept;
struct constraint_cache {
    struct os_mutex *mutex;
    struct constraint_kept *items[TERN_CONSTRAINTS_KEPT_MAX];
    int n;
    uint64_t seed, bytes, clock, n_opened, n_compiled;
};
void constraint_cache_release(struct constraint_cache *c); // all constraints are closed

struct tern_engine {
    struct tern_engine_options options; // strings below are copies
    struct model *model;
    struct unit *unit;
    struct unit_weights *weights;
    struct weights_info weights_info;
    struct unit_caps caps;
    struct unit_advice advice;
    struct unit *then_unit; // the second of a plan of two, NULL: none
    struct unit_weights *then_weights;
    struct unit_caps then_caps;
    struct unit_advice then_advice;
    struct plan *plan;
    struct tokenizer *tokenizer; // NULL: the model has none (random shapes)
    struct token_trie *trie;     // of the vocabulary, for constraints; NULL until one is opened
    struct constraint_cache constraints;
    struct jinja *template_;      // NULL: none
    struct tern_err template_err; // why, when the file's template could not be parsed
    enum answer_style style;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int n_ctx, n_sessions, window;
    int32_t eos[ENGINE_EOS_MAX];
    int n_eos;
    char numerics_text[32];
    char units_text[96];                  // "cpu", "extend(npu:ort, cpu)": with the class it names the arithmetic
    uint64_t bytes_token, n_params_token; // as in struct tern_model_info
    uint64_t load_ns;

    struct lengths lengths; // of requests that ended, since the start; under lengths_mutex
    struct os_mutex *lengths_mutex;
    struct os_mutex *mutex;
    int32_t *free_blocks; // stack
    int n_free_blocks, n_blocks;
    int32_t *free_slots;
    int n_free_slots, n_slots;
    int n_open;                  // sessions
    struct step_builder builder; // one step at a time, under the mutex
    struct arena arena;          // builder and free lists
    struct engine_draft draft;
};

struct checkpoint {
    size_t len; // tokens before it
    int32_t slot;
};
// What a session holds for drafting. The drafter's context is the text from position `base` on: of these, len positions
// are injected and the features of `pending` more are kept: base + len + pending is the session's length. A context
// that begins late (after a saved state without a drafter's) is shifted, not padded: its first position is 0.
struct session_draft {
    int lane;    // of the drafter; -1: none
    int lm_lane; // of a whole draft model; -1: none
    int32_t *blocks;
    size_t base, len, pending;
    struct ngram *ngram; // NULL until a request drafts with it
    size_t ngram_same;   // its first tokens that are the session's; one more follows them
    int32_t ngram_tail;  // that one
};

struct tern_session {
    struct tern_engine *engine;
    int32_t *ids; // [n_ctx] tokens whose state is held
    size_t len;
    int32_t pending; // last chosen token that no step has consumed yet, or -1
    int32_t *blocks; // [blocks_per_session]
    int n_blocks;
    int32_t slot;                                           // live conv state; -1: the model has no convolution layers
    struct checkpoint checkpoints[SESSION_CHECKPOINTS_MAX]; // by rising len
    int n_checkpoints;
    bool busy; // a request works on it
    struct session_draft draft;
};

void engine_pools_size(struct tern_engine *e); // blocks and slots of all sessions, by n_ctx
int engine_blocks_per_session(const struct tern_engine *e);
int engine_slots_per_session(const struct tern_engine *e);
// Text of what changes the values of states: model, numerics, layout. False: no memory.
bool engine_state_identity(const struct tern_engine *e, struct buf *out);
#define STATE_IDENTITY_MAX 1024
// NULL in *out: the model has no vocabulary.
enum tern_status engine_tokenizer_create(struct tokenizer **out, const struct model *m, struct tern_err *err);
// engine_units.c
enum tern_status engine_units_open(struct tern_engine *e, struct tern_err *err);  // once the model is there
enum tern_status engine_units_bound(struct tern_engine *e, struct tern_err *err); // n_ctx by what the units hold
enum tern_status engine_ctx_bound(struct tern_engine *e, const char *unit, const struct unit_advice *a,
                                  struct tern_err *err); // the same by one unit, whose name it is
int engine_window_default(const struct tern_engine *e);
void engine_units_close(struct tern_engine *e);
bool engine_is_eos(const struct tern_engine *e, int32_t id);
// Tells the on_progress callback; TERN_CANCELLED when it says stop.
// length_record.c
void length_record(struct tern_engine *e, const struct tern_usage *usage); // a request that ended
void length_record_close(struct tern_engine *e);
enum tern_status engine_progress(const struct tern_engine *e, const char *stage, uint64_t done, uint64_t total,
                                 struct tern_err *err);

// Rows of one session's chain in a step: ids[0 .. n) follow its state, the last n_out of them want output.
struct session_rows {
    struct tern_session *s;
    const int32_t *ids;
    int n, n_out;
};
// Runs rows of n different sessions as one step: the batcher of everything that generates. want: enum prog_output of
// the rows with output, which come in the order of rows (0: none). The states advance; the result is read from the plan
// before the next run (the mutex is held by the caller). On failure every session falls back. show: the states between
// the rows can be read from the plan (STEP_SHOW_ROWS).
enum tern_status sessions_run(struct tern_engine *e, const struct session_rows *rows, int n, uint32_t want, bool show,
                              struct tern_err *err);
// One session's rows with the logits of every row (n <= ENGINE_OUT_ROWS_MAX).
enum tern_status session_run_all(struct tern_session *s, const int32_t *ids, int n, struct tern_err *err);
// Goes back to len, which must be 0, the current length or a checkpoint's.
enum tern_status session_restore(struct tern_session *s, size_t len, struct tern_err *err);
// The largest length at or below limit that session_restore can reach.
size_t session_reachable(const struct tern_session *s, size_t limit);
// Remembers the present state under its length.
enum tern_status session_checkpoint(struct tern_session *s, struct tern_err *err);

// After a failed step the live convolution rows are unknown: the session goes back to what it has a copy of.
void session_fall_back(struct tern_session *s);

// Drafting: the engine's part (engine_draft.c). check: before anything is opened. open: the draft model; after the
// target's text is known. load: weights, programs and pools, beside the plan.
enum tern_status engine_draft_check(const struct tern_engine_options *o, struct tern_err *err);
enum tern_status engine_draft_open(struct tern_engine *e, struct tern_err *err);
bool engine_draft_estimate(const struct tern_engine *e, uint64_t *bytes);
enum tern_status engine_draft_load(struct tern_engine *e, struct tern_err *err);
void engine_draft_close(struct tern_engine *e);
// Sets what one token costs; after the weights were imported.
enum tern_status engine_token_cost_init(struct tern_engine *e, struct tern_err *err);
void engine_memory_tell(const struct tern_engine *e); // the worst case, in the log
uint64_t engine_draft_bytes(const struct tern_engine *e);
// With a whole model for a drafter (engine_draft_lm.c).
enum tern_status draft_lm_check(struct tern_engine *e, const char *path, struct tern_err *err);
bool draft_lm_bytes_estimate(const struct tern_engine *e, uint64_t *bytes);
enum tern_status draft_lm_load(struct tern_engine *e, struct tern_err *err);
const char *draft_mode_name(enum tern_draft mode);
// Most drafted tokens of a round in this mode: of the request, the engine, or the mode's own.
int draft_max_of(const struct tern_engine *e, enum tern_draft mode, int asked);
// Measures the cost curves of the width controller on free blocks, for so long about.
enum tern_status draft_calibrate(struct tern_engine *e, uint64_t budget_ns, struct width_costs *out,
                                 struct tern_err *err);

// The curves of `auto` at open: from a kept profile, else measured; without a draft model they are guessed later.
enum tern_status draft_costs_open(struct tern_engine *e, struct tern_err *err);

// … and the session's (session_draft.c). All under the mutex but open and close.
enum tern_status session_draft_open(struct tern_session *s, struct tern_err *err);
void session_draft_close(struct tern_session *s);
// Room for the features of n rows; then where they go, for a step's PORT_FEATURES.
enum tern_status session_draft_room(struct tern_session *s, int n, struct tern_err *err);
struct step_port session_draft_port(const struct tern_session *s);
void session_draft_cut(struct tern_session *s, size_t len);
// Injects what is pending.
enum tern_status session_draft_inject(struct tern_session *s, struct tern_err *err);
enum tern_status session_draft_copy(struct tern_session *to, const struct tern_session *from, struct tern_err *err);
// The same as bytes, for a saved session: the drafter's digest, the blocks of its context, rows of pending features.
// put writes them piece by piece; take reads what another drafter (or none) wrote as no context at all.
struct draft_state {
    uint32_t len, pending;
    uint64_t bytes;
};
struct draft_state session_draft_state(const struct tern_session *s);
typedef enum tern_status state_put_fn(void *arg, const void *data, size_t len, struct tern_err *err);
enum tern_status session_draft_put(const struct tern_session *s, state_put_fn *put, void *arg, struct tern_err *err);
bool session_draft_state_check(const struct tern_engine *e, const struct draft_state *state, const uint8_t *data,
                               size_t n_ids);
enum tern_status session_draft_take(struct tern_session *s, const struct draft_state *state, const uint8_t *data,
                                    struct tern_err *err);
// What a drafter's context is in bytes for so many positions: the digest, then blocks, then rows.
#define DRAFT_DIGEST_BYTES 64
uint64_t draft_state_bytes(const struct tern_engine *e, uint64_t len, uint64_t pending);

// A session's whole state as bytes (session_state.c): ids, KV blocks, convolution rows, the drafter's context. put and
// take under the mutex; take trusts what it is given. Bytes: false when they overflow.
struct state_shape {
    uint32_t n_ids;
    int32_t pending;
    bool has_slot;
    struct draft_state draft;
};
struct state_shape session_state_shape(const struct tern_session *s);
uint32_t state_shape_blocks(const struct state_shape *shape);
bool state_shape_bytes(const struct tern_engine *e, const struct state_shape *shape, uint64_t *out);
enum tern_status session_state_put(const struct tern_session *s, state_put_fn *put, void *arg, struct tern_err *err);
enum tern_status session_state_take(struct tern_session *s, const struct state_shape *shape, const uint8_t *body,
                                    struct tern_err *err);
// … and as a file (session_file.c). body puts the state's bytes. open: verified whole, ids and all.
typedef enum tern_status state_body_fn(void *arg, state_put_fn *put, void *to, struct tern_err *err);
enum tern_status state_file_write(const struct tern_engine *e, const char *path, const struct state_shape *shape,
                                  state_body_fn *body, void *arg, struct tern_err *err);
struct state_file {
    struct os_map map;
    struct state_shape shape;
    const uint8_t *body;
};
enum tern_status state_file_open(struct state_file *out, const struct tern_engine *e, const char *path,
                                 struct tern_err *err);
void state_file_close(struct state_file *f);

// The n-gram drafter knows the session's ids and the token behind them.
enum tern_status session_ngram_create(struct tern_session *s, struct tern_err *err);
void session_ngram_follow(struct tern_session *s, int32_t next);

// Stop strings over streamed text: holds back what may become one.
struct stop_matcher {
    struct str stops[TERN_STOP_MAX]; // copies
    int n;
    size_t longest;
    struct buf held; // text not yet passed on
};
enum tern_status stop_matcher_init(struct stop_matcher *m, const char *const *stops, int n, struct tern_err *err);
void stop_matcher_release(struct stop_matcher *m);
// Appends piece; moves what cannot be part of a stop string any more to out. Returns true when a stop string was found:
// out then holds the text before it, and the rest is dropped.
bool stop_matcher_put(struct stop_matcher *m, struct str piece, struct buf *out);
void stop_matcher_flush(struct stop_matcher *m, struct buf *out); // what is held was no stop string

// Prompt ids of a request, from text, ids or messages.
enum tern_status prompt_build(const struct tern_engine *e, const struct tern_request_options *o, struct id_list *out,
                              bool *reasoning_open, struct tern_err *err);
// The template's text and what of it came from the user. template must exist. values_json: further variables, or empty.
enum tern_status prompt_render(const struct tern_engine *e, struct str messages_json, struct str tools_json,
                               struct str values_json, bool add_generation_prompt, struct jinja_output *out,
                               struct tern_err *err);

// embed.c: the rows of an encoder behind its last norm, [ids->len][n_embd]; mem_free them, after failure too.
enum tern_status engine_encode(struct tern_engine *e, const struct id_list *ids, float **rows, struct tern_err *err);
