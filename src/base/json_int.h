// Private to base/: what json.c, json_keys.c and json_write.c share.
#pragma once
#include "base/base.h"

// Length of the run at p that needs no attention inside a JSON string: no quote, backslash, control byte or byte of
// 0x80 and up. Eight bytes a step; in each mask the lowest set bit is exact.
static inline size_t json_plain_run(const char *p, const char *end) {
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    const char *start = p;
    for (; end - p >= 8; p += 8) {
        uint64_t w = load_u64(p);
        uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
        uint64_t hit = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((w - ones * 0x20) & ~w) | w;
        hit &= highs;
        if (hit != 0) return (size_t)(p - start) + (size_t)(__builtin_ctzll(hit) >> 3);
    }
    while (p < end && (uint8_t)*p >= 0x20 && (uint8_t)*p < 0x80 && *p != '"' && *p != '\\') p++;
    return (size_t)(p - start);
}

// The keys of all open objects, innermost last, so that one object's keys are a contiguous run at any time it grows.
struct json_key {
    uint64_t hash; // of the unescaped key, seeded
    uint32_t pos;  // of the key's token in the input
};
struct json_keys {
    struct json_key *list;
    size_t len, cap;
    uint64_t seed;
};
// One open object: its run starts at list[first]. A short run is searched one by one; from JSON_KEYS_LINEAR on through
// an open-addressed table of indices into the run (+ 1; 0 is empty).
#define JSON_KEYS_LINEAR 16
struct json_keys_object {
    size_t first;
    uint32_t *table;
    size_t table_cap; // a power of two
};
void json_keys_open(struct json_keys *k, struct json_keys_object *o);
void json_keys_close(struct json_keys *k, struct json_keys_object *o);
// Walks the keys of o that have this hash: NULL when there is none (left). *cursor starts at 0.
const struct json_key *json_keys_find(const struct json_keys *k, const struct json_keys_object *o, uint64_t hash,
                                      size_t *cursor);
bool json_keys_add(struct json_keys *k, struct json_keys_object *o, uint64_t hash, uint32_t pos); // false: no memory
void json_keys_release(struct json_keys *k);
