// For tests through the public interface: the script model (test/data/gguf/script-lfm2.gguf), whose greedy answer to
// the user message sNN is known token by token, and pico.
#pragma once
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/base.h"
#include "../../common/json_tree.h"

#define SCRIPT_MODEL TEST_DATA "/gguf/script-lfm2.gguf"
#define PICO_MODEL TEST_MODELS "/pico.gguf"
#define SEEN_IDS_MAX 4096

// Options for small fast engines: no pack cache, one thread, short context.
struct tern_engine_options fixture_options(const char *model_path);
struct tern_engine *fixture_engine(const struct tern_engine_options *o); // these fail the test with the message
struct tern_session *fixture_session(struct tern_engine *e);
void fixture_must(enum tern_status status, const struct tern_err *err);
// A path for a file or folder of this process: $TMPDIR or /tmp.
const char *fixture_temp_path(char out[256], const char *name);

// Everything that a request told.
struct seen {
    struct buf text, reasoning;
    struct buf calls; // JSON: {"name": …, "arguments": …}, …
    int n_text_events, n_calls, n_progress;
    int32_t ids[SEEN_IDS_MAX];
    size_t n_ids;
    int n_logprobs; // tokens that came with log-probabilities
    double logprob_sum;
    double score_sum; // of the prompt's tokens, if they were scored, each times its place
    enum tern_finish finish;
    struct tern_usage usage;
};
void seen_release(struct seen *seen);
// Pulls events to the end; text pieces must be valid UTF-8. A failing request's status is returned.
enum tern_status seen_pull(struct seen *seen, struct tern_request *r, struct tern_err *err);
// Creates, pulls, frees; fails the test when anything fails.
void seen_run(struct seen *seen, struct tern_session *s, const struct tern_request_options *o);
// The same, wanting this status from create or from a next; returns the message in err.
void refused_run(struct tern_session *s, const struct tern_request_options *o, enum tern_status want,
                 struct tern_err *err);

struct script {
    char name[8];
    struct str text; // what a reader of all tokens sees: invalid bytes as U+FFFD, control markers written out
    const int32_t *ids;
    int n_ids;
    bool has_control; // besides the end token
};
extern const struct script *fixture_scripts; // [fixture_n_scripts]; ready after fixture_setup
extern int fixture_n_scripts;
int fixture_setup(void **state); // for cmocka's group
int fixture_teardown(void **state);
const struct script *script_get(const char *name);
// The raw prompt that makes the model answer with the script (control markers written out): for prompt_special.
const char *script_prompt(const struct script *script, char out[256]);
// A request for it as raw prompt: greedy.
struct tern_request_options script_request(const struct script *script, char out[256]);
// Fails unless the ids are the script's first n.
void ids_check(const struct seen *seen, const struct script *script, int n, const char *what);
