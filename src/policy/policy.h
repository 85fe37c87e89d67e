// The face of policy/: what is known about a machine, and decisions taken from it as pure functions of values.
//
//   profile .... measured costs of one model on one unit, kept as a JSON file between runs
//
// Nothing here looks at a clock, a device or the environment; reading and writing files is the caller's.
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
