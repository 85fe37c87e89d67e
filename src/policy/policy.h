// The face of policy/: what is known about a machine, and decisions taken from it as pure functions of values.
//
//   profile ..... measured costs of one model on one unit, kept as a JSON file between runs
//   lengths ..... how long prompts and answers of a model were, kept as a JSON file of counts
//   validation .. how far an arithmetic of a model on this machine lies from its reference, kept between runs
//
// Nothing here looks at a clock, a device or the environment, and reading and writing files is the caller's; but for
// lengths_path, and validation_store.c, which asks what machine this is and owns the one file of rows.
#pragma once
#include "base/base.h"
#include "spec/spec.h"

// Profile, format v1. One JSON object:
//
//   "format": "tern-profile", "version": 1
//   "model", "drafter": digests (64 hex digits; drafter "" when there is none); "unit": "cpu"; "isa": "avx512vnni";
//   "numerics": "int8/kv-f16"; "threads": 2 ............ the key: a profile serves only where all of it is the same
//   "made": seconds since 1970
//   "curve": {"rows": [1, 2, …], "ctx": [0, 512], "verify_us": [[…] per context], "draft_us": [per context],
//             "draft_node_us", "catch_up_us", "host_us", "host_plain_us"} ...... struct width_costs, in microseconds
//
// Unknown members are left alone (later versions of the program add some); another version is refused.
#define PROFILE_VERSION 1
#define PROFILE_BYTES_MAX (1u << 20)
#define PROFILE_DIGEST 65
#define PROFILE_NAME 48
struct profile {
    char model[PROFILE_DIGEST], drafter[PROFILE_DIGEST];
    char unit[PROFILE_NAME], isa[PROFILE_NAME], numerics[PROFILE_NAME];
    int threads;
    int64_t made_wall_s;
    struct width_costs costs; // in nanoseconds
};
// Reads the format above; refuses curves that width_costs_check refuses.
enum tern_status profile_parse(struct profile *out, struct str text, struct tern_err *err);
bool profile_print(const struct profile *p, struct buf *out);            // false: no memory
bool profile_serves(const struct profile *p, const struct profile *key); // the same key?
// "profile-<hash of the key>.json" into out.
#define PROFILE_FILE_NAME 64
void profile_file_name(const struct profile *key, char out[PROFILE_FILE_NAME]);

// Validations, format v1. One JSON object {"format": "tern-validations", "version": 1, "rows": [...]}; a row:
//
//   "model": digest; "unit": "npu:ane-m1"; "numerics": "int8/kv-f16"; "scales": SHA-256 of a calibration file or "";
//   "chip": "Apple M4 Pro"; "system": "macOS 26.1"; "runtime": "ONNX Runtime 1.30.0 on CPU, programs 1a2b3c4d", or
//   tern's version where tern computes, and a checksum of the sources that make programs or evaluate them
//   ........ the key: a row serves only where all of it is the same
//   "name": the model's; "reference": "cpu/fp32"; "prompts": SHA-256 of the file, or ""
//   "tokens", "top1": [share, low, high of 95 %], "kl": nats, "perplexity_ratio"
//   "least": name of the worst category or band; "least_top1"
//   "adopted": true or false; "missed": what kept it from that
//   "placement": where programs ran, as the runtime reports it; "made": seconds since 1970
//
// Unknown members are left alone; another version is refused.
#define VALIDATIONS_VERSION 1
#define VALIDATIONS_BYTES_MAX (4u << 20)
#define VALIDATIONS_MAX 1024 // the oldest rows go first
#define VALIDATION_TEXT 192
struct validation_key {
    char model[PROFILE_DIGEST], unit[VALIDATION_TEXT], numerics[PROFILE_NAME], scales[PROFILE_DIGEST];
    char chip[VALIDATION_TEXT], system[PROFILE_NAME], runtime[VALIDATION_TEXT];
};
struct validation {
    struct validation_key key;
    char name[VALIDATION_TEXT], reference[VALIDATION_TEXT], prompts[PROFILE_DIGEST];
    int64_t tokens;
    double top1[3], kl, ppl_ratio, least_top1;
    char least[PROFILE_NAME];
    bool adopted;
    char missed[256], placement[256];
    int64_t made_wall_s;
};
struct validations {
    struct validation *rows; // [n], oldest first
    int n;
};
enum tern_status validations_parse(struct validations *out, struct str text, struct tern_err *err); // release after all
bool validations_print(const struct validations *v, struct buf *out);                               // false: no memory
void validations_release(struct validations *v);
const struct validation *validations_find(const struct validations *v, const struct validation_key *key); // or NULL
bool validations_put(struct validations *v,
                     const struct validation *row); // in place of one of its key; false: no memory
// The same machine: chip and system. What was validated on another says nothing here.
bool validation_here(const struct validation_key *key);
void validation_key_text(const struct validation_key *key, struct buf *out); // "npu:ane-m1, int8/kv-f16, on …"

// The key of a unit (its name as in unit_open, "@FILE" and TERN_NPU_SCALES included; what it said of itself when it was
// opened) with a model in a class on this machine.
enum tern_status validation_key_make(struct validation_key *out, const char *model_digest, const char *unit_name,
                                     const struct unit_caps *caps, const char *numerics, const char *version,
                                     struct tern_err *err);
// Rows of the file validations.json in the cache folder; none when there is no file. A broken file is an error that
// names it; validation_keep puts it aside (validations.json.broken) and begins anew.
bool validation_path(char *out, size_t cap); // false: no cache folder
enum tern_status validations_load(struct validations *out, struct tern_err *err);
enum tern_status validation_keep(const struct validation *row, struct tern_err *err); // atomic, under a lock
// TERN_OK when the arithmetic may be used: the reference unit's (cpu, which tests hold), a unit that computes nothing,
// or one with an adopted row; else TERN_UNSUPPORTED with the command that makes one (encoders are validated by tern
// route). TERN_UNVALIDATED=1 lets all pass.
enum tern_status validation_require(const struct validation_key *key, bool is_encoder, struct tern_err *err);

// Lengths, format v1: counts of requests by prompt and by prompt + answer, in steps of LENGTHS_BIN positions. No text,
// no time. One JSON object: "format": "tern-lengths", "version": 1, "prompts": [[bin, count], …], "totals": the same.
#define LENGTHS_VERSION 1
#define LENGTHS_BIN 32
#define LENGTHS_BINS 512 // longer ones count in the last
#define LENGTHS_BYTES_MAX (64u << 10)
struct lengths {
    uint64_t prompts[LENGTHS_BINS], totals[LENGTHS_BINS];
};
void lengths_add(struct lengths *l, int64_t n_prompt, int64_t n_answer); // one request
void lengths_merge(struct lengths *l, const struct lengths *more);
uint64_t lengths_requests(const struct lengths *l);
// What the requests asked of a unit: steps[i] blocks of LENGTHS_BIN tokens that were answered, or came in a prompt,
// behind a context of i to i + 1 bins.
void lengths_steps(const struct lengths *l, uint64_t steps[LENGTHS_BINS]);
enum tern_status lengths_parse(struct lengths *out, struct str text, struct tern_err *err);
bool lengths_print(const struct lengths *l, struct buf *out); // false: no memory
// $XDG_STATE_HOME/tern/lengths-<model>.json, else under $HOME/.local/state; false: neither is set.
bool lengths_path(const char *model_digest, char *out, size_t cap);
