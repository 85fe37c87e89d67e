// Private to app/: `tern compare`: the user's own installed engine beside ours, same file, same tokens.
//
//   compare_command.c  options, the order of the runs
//   compare_engine.c   the engines: how each is started, asked, ended
//   compare_stream.c   their streamed answers (server-sent events, or JSON a line)
//   compare_report.c   the table and the JSON; compare_html.c the page
#pragma once
#include "app/app.h"
#include "app/bench/bench_stats.h"

#define COMPARE_PROMPTS_MAX 64
#define COMPARE_REPEATS_MAX 15 // prompts * repeats <= STATS_MAX
#define COMPARE_TEXT_MAX (1u << 20)
#define COMPARE_LINE_MAX (1u << 20) // of a streamed answer

// ------------------------------------------------------------------------------------------------- one answer

struct compare_answer {
    struct buf text;
    double first_s;   // from asking to the first piece of text
    double prompt_s;  // reading the prompt; NaN: the engine does not say
    double answer_s;  // from the first token to the last
    int64_t n_prompt; // prompt tokens; -1: not said
    int64_t n_answer; // tokens, the first included; -1: not said
    int64_t n_ahead;  // of them, guessed ahead and accepted (ours)
    bool is_over;     // the engine said that it is done
};
void compare_answer_init(struct compare_answer *a);
void compare_answer_release(struct compare_answer *a);

// ------------------------------------------------------------------------------------------------- streams

enum compare_dialect { DIALECT_LLAMA_SERVER, DIALECT_OLLAMA, DIALECT_OPENAI };
// Reads a streamed answer piece by piece, as the network cuts it.
struct compare_stream {
    enum compare_dialect dialect;
    struct compare_answer *answer;
    struct buf line;
    uint64_t start_ns, first_ns, last_ns; // asked; first and last text
    int64_t n_pieces;                     // pieces of text
    struct tern_err err;                  // what was wrong; code TERN_OK: nothing
};
void compare_stream_init(struct compare_stream *s, enum compare_dialect dialect, struct compare_answer *answer);
bool compare_stream_put(void *stream, struct str piece); // fits http_request.on_data; false: see err
// After the last piece: an answer that broke off is an error; times are filled in.
enum tern_status compare_stream_end(struct compare_stream *s, struct tern_err *err);
void compare_stream_release(struct compare_stream *s);

// ------------------------------------------------------------------------------------------------- engines

struct compare_prompt {
    const char *name; // a few words of it, for tables
    struct str text;  // rendered by the model's template
    int32_t *ids;     // what both engines get
    int n_ids;
};
struct compare_engine {
    const struct compare_engine_kind *kind;
    // Options.
    const char *exe, *url, *model_name; // NULL: by the kind
    const char *const *args;            // more for a program that is started; [n_args]
    int n_args;
    const char *model_path;
    int n_threads, n_ctx, n_max;
    int stall_s; // without a byte of an answer
    // State.
    char base[512], log_path[512], version[128];
    char command[1024]; // that started it, files without their folders
    char model[256];    // the engine's name of the model
    struct os_child child;
    uint64_t rss_max; // bytes, as far as known; 0: unknown
    const char *rss_note;
};
struct compare_engine_kind {
    const char *name, *title;
    bool is_started; // by us
    enum tern_status (*open)(struct compare_engine *e, struct tern_err *err);
    enum tern_status (*ask)(struct compare_engine *e, const struct compare_prompt *p, struct compare_answer *out,
                            struct tern_err *err);
};
const struct compare_engine_kind *compare_engine_find(const char *name); // NULL: no such
enum tern_status compare_engine_open(struct compare_engine *e, struct tern_err *err);
enum tern_status compare_engine_ask(struct compare_engine *e, const struct compare_prompt *p,
                                    struct compare_answer *out, struct tern_err *err);
// Ends what was started and takes its memory peak.
void compare_engine_close(struct compare_engine *e);

// ------------------------------------------------------------------------------------------------- results

enum { COMPARE_OURS, COMPARE_THEIRS };
struct compare_row { // a pair of runs
    int prompt;
    double first_s[2], prefill[2], decode[2]; // seconds; tokens/s; 0: not known
};
struct compare_text { // of one prompt, the last answers
    struct buf text[2];
    double equal; // share of the longer answer before the first difference, 0 … 1
    int64_t n_prompt, n_answer;
};
struct compare_result {
    const struct compare_engine *engine;
    struct tern_model_info info;
    const char *model_name;
    char machine[128], when[32];
    const struct compare_prompt *prompts;
    struct compare_text texts[COMPARE_PROMPTS_MAX];
    int n_prompts, n_rows, n_repeats;
    struct compare_row rows[STATS_MAX];
    uint64_t rss[2];                  // 0: not known
    int64_t n_ours_all, n_ours_ahead; // tokens of our answers; of them, guessed ahead and accepted
};
enum compare_metric { METRIC_FIRST, METRIC_PREFILL, METRIC_DECODE, METRIC_COUNT };
struct compare_summary {
    bool known;
    double ours, theirs;          // medians
    struct stats_interval faster; // how many times ours is better, with a 95 % interval
};
struct compare_summary compare_summarise(const struct compare_result *r, enum compare_metric m,
                                         int prompt /* -1: all */);
// A path's last name; options, addresses and other words as they are. Pages are shared; folders are nobody's business.
const char *compare_path_tail(const char *path);
double compare_prefix_share(struct str a, struct str b);
double compare_equal_share(const struct compare_result *r, int *n_whole);
void compare_print(const struct compare_result *r);
void compare_print_json(const struct compare_result *r);
enum tern_status compare_write_html(const struct compare_result *r, const char *path, struct tern_err *err);
