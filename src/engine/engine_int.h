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

#define ENGINE_SESSIONS_MAX 256
#define ENGINE_CTX_MAX (1 << 20)
#define ENGINE_WINDOW_MAX 512
#define ENGINE_WINDOW_DEFAULT 256
#define ENGINE_OUT_ROWS_MAX 64 // head rows in one step
#define ENGINE_EOS_MAX 64
#define SESSION_CHECKPOINTS_MAX 8        // conv slots kept per session besides the live one
#define ENGINE_BYTES_SPARE (64ull << 20) // left to the system when memory is budgeted

struct tern_engine {
    struct tern_engine_options options; // strings below are copies
    struct model *model;
    struct unit *unit;
    struct unit_weights *weights;
    struct weights_info weights_info;
    struct unit_caps caps;
    struct plan *plan;
    struct tokenizer *tokenizer;  // NULL: the model has none (random shapes)
    struct jinja *template_;      // NULL: none
    struct tern_err template_err; // why, when the file's template could not be parsed
    enum answer_style style;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int n_ctx, n_sessions, window;
    int32_t eos[ENGINE_EOS_MAX];
    int n_eos;
    char numerics_text[32];
    uint64_t load_ns;

    struct os_mutex *mutex;
    int32_t *free_blocks; // stack
    int n_free_blocks, n_blocks;
    int32_t *free_slots;
    int n_free_slots, n_slots;
    int n_open;                  // sessions
    struct step_builder builder; // one step at a time, under the mutex
    struct arena arena;          // builder and free lists
};

struct checkpoint {
    size_t len; // tokens before it
    int32_t slot;
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
};

int engine_blocks_per_session(const struct tern_engine *e);
int engine_slots_per_session(const struct tern_engine *e);
bool engine_is_eos(const struct tern_engine *e, int32_t id);
// Tells the on_progress callback; TERN_CANCELLED when it says stop.
enum tern_status engine_progress(const struct tern_engine *e, const char *stage, uint64_t done, uint64_t total,
                                 struct tern_err *err);

// Runs rows of one session's chain as one step: ids[0..n) follow the session's state. want: enum prog_output of the
// last row (0: none). The state advances; the result is read from the plan before the next run (the mutex is held by
// the caller).
enum tern_status session_run(struct tern_session *s, const int32_t *ids, int n, uint32_t want, struct tern_err *err);
// The same with the logits of every row (n <= ENGINE_OUT_ROWS_MAX).
enum tern_status session_run_all(struct tern_session *s, const int32_t *ids, int n, struct tern_err *err);
// Goes back to len, which must be 0, the current length or a checkpoint's.
enum tern_status session_restore(struct tern_session *s, size_t len, struct tern_err *err);
// The largest length at or below limit that session_restore can reach.
size_t session_reachable(const struct tern_session *s, size_t limit);
// Remembers the present state under its length.
enum tern_status session_checkpoint(struct tern_session *s, struct tern_err *err);

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
// The template's text and what of it came from the user. template must exist.
enum tern_status prompt_render(const struct tern_engine *e, struct str messages_json, struct str tools_json,
                               bool add_generation_prompt, struct jinja_output *out, struct tern_err *err);
