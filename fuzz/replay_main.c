// Runs a fuzz target over a corpus without libFuzzer, so that every build and every compiler replays it as a test:
//
//   replay_<name> CORPUS_FOLDER [ROUNDS]
//
// Each file is given as it is, cut at up to CUTS_MAX places, and damaged ROUNDS times (default 200) by a few bytes set,
// flipped, dropped or repeated. The damage is drawn from the file's name, so a failure repeats; the input of a run that
// dies is told by the last line of standard error when REPLAY_VERBOSE is set.
#include "base/base.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CUTS_MAX 64
#define INPUT_BYTES_MAX (4u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct replay {
    const char *folder;
    int rounds;
    bool verbose;
    int n_files;
    int64_t n_inputs;
    bool failed;
};

static uint64_t next_random(uint64_t *x) {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    return *x * 0x2545F4914F6CDD1Dull;
}

// An exact-size heap copy, so that a sanitizer sees a read one byte past the end.
static void give(struct replay *r, const uint8_t *data, size_t size, const char *what, int64_t n) {
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy) {
        r->failed = true;
        return;
    }
    if (size) memcpy(copy, data, size);
    if (r->verbose) fprintf(stderr, "%s %lld (%zu bytes)\n", what, (long long)n, size);
    LLVMFuzzerTestOneInput(copy, size);
    r->n_inputs++;
    free(copy);
}

// Changes data in place and returns its new length.
static size_t damage(uint8_t *data, size_t size, uint64_t *seed) {
    static const uint8_t notable[] = {0x00, 0x01, 0x7F, 0x80, 0xFF, '"', '{', '[', '<', '%', '\\', '\n'};
    for (uint64_t n = 1 + next_random(seed) % 4; n > 0 && size > 0; n--) {
        size_t at = (size_t)(next_random(seed) % size);
        size_t len = 1 + (size_t)(next_random(seed) % 16);
        if (len > size - at) len = size - at;
        switch (next_random(seed) % 5) {
        case 0: data[at] ^= (uint8_t)(1u << next_random(seed) % 8); break;
        case 1: data[at] = notable[next_random(seed) % sizeof notable]; break;
        case 2: data[at] = (uint8_t)next_random(seed); break;
        case 3:
            memmove(data + at, data + at + len, size - at - len);
            size -= len;
            break;
        default: memset(data + at, notable[next_random(seed) % sizeof notable], len); break;
        }
    }
    return size;
}

static bool replay_file(void *arg, const char *name, const struct os_stat *st) {
    struct replay *r = arg;
    if (!st->is_file) return true;
    char path[4096];
    struct buf file;
    struct tern_err err = {0};
    snprintf(path, sizeof path, "%s/%s", r->folder, name);
    buf_init(&file, INPUT_BYTES_MAX);
    if (file_read_all(&file, path, &err) != TERN_OK) {
        fprintf(stderr, "replay: %s\n", err.message);
        r->failed = true;
        buf_release(&file);
        return true;
    }
    const uint8_t *data = (const uint8_t *)file.data;
    r->n_files++;
    give(r, data, file.len, name, 0);
    size_t stride = file.len / CUTS_MAX + 1;
    for (size_t cut = 0; cut < file.len; cut += stride) give(r, data, cut, name, -(int64_t)cut);
    uint64_t seed = 0x9E3779B97F4A7C15ull;
    for (const char *p = name; *p; p++) seed = (seed ^ (uint8_t)*p) * 0x100000001B3ull;
    uint8_t *copy = malloc(file.len + 1);
    for (int round = 1; copy && round <= r->rounds && file.len > 0; round++) {
        memcpy(copy, data, file.len);
        give(r, copy, damage(copy, file.len, &seed), name, round);
    }
    if (!copy) r->failed = true;
    free(copy);
    buf_release(&file);
    return true;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER [ROUNDS]\n", argv[0]);
        return 2;
    }
    struct replay r = {.folder = argv[1], .rounds = argc > 2 ? atoi(argv[2]) : 200};
    r.verbose = env_get("REPLAY_VERBOSE") != NULL;
    struct tern_err err = {0};
    if (os_list(r.folder, replay_file, &r, &err) != TERN_OK) {
        fprintf(stderr, "replay: %s\n", err.message);
        return 1;
    }
    if (r.n_files == 0) {
        fprintf(stderr, "replay: %s holds no file: a target without a corpus tests nothing\n", r.folder);
        return 1;
    }
    printf("%d files, %lld inputs\n", r.n_files, (long long)r.n_inputs);
    return r.failed ? 1 : 0;
}
