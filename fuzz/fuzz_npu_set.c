// Fuzz target: files beside the npu unit's programs. The first byte says which: a Core AI template's description, a
// set's programs.json, or counts of lengths.
#include "base/base.h"
#include "policy/policy.h"
#include "unit/npu/coreai_int.h"
#include "unit/npu/pack_choice.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void template_try(struct str text) {
    struct coreai_template t;
    struct tern_err err = {0};
    uint64_t end = 0;
    if (coreai_template_parse(&t, text, "t", &err) == TERN_OK) {
        for (int i = 0; i < t.n_blocks; i++) {
            TERN_ASSERT(t.blocks[i].name[0] && t.blocks[i].offset >= end && t.blocks[i].bytes > 0);
            end = t.blocks[i].offset + t.blocks[i].bytes;
        }
        TERN_ASSERT(end <= t.bytes && strlen(t.lists) == COREAI_DIGEST_LEN);
    } else {
        TERN_ASSERT(err.code != TERN_OK && err.message[0]);
    }
    coreai_template_release(&t);
}

static void choice_try(struct str text) {
    struct npu_choice c;
    struct tern_err err = {0};
    char out[128];
    if (npu_choice_parse(&c, text, "s", &err) != TERN_OK) {
        TERN_ASSERT(err.code != TERN_OK && err.message[0]);
        return;
    }
    TERN_ASSERT(c.n >= 0 && c.n <= NPU_BUCKETS_MAX);
    for (int i = 0; i < c.n; i++) {
        TERN_ASSERT(c.buckets[i].bucket % NPU_BLOCK == 0 && (i == 0 || c.buckets[i].bucket > c.buckets[i - 1].bucket));
        TERN_ASSERT(npu_choice_chunks(&c, c.buckets[i].bucket, NPU_BLOCK) <= NPU_CHUNKS);
    }
    npu_choice_text(&c, out, sizeof out);
    TERN_ASSERT(out[0]);
}

static void lengths_try(struct str text) {
    struct lengths l, back;
    struct tern_err err = {0};
    struct buf b;
    uint64_t steps[LENGTHS_BINS];
    if (lengths_parse(&l, text, &err) != TERN_OK) {
        TERN_ASSERT(err.code != TERN_OK && err.message[0]);
        return;
    }
    lengths_steps(&l, steps);
    buf_init(&b, LENGTHS_BYTES_MAX);
    TERN_ASSERT(lengths_print(&l, &b) && lengths_parse(&back, buf_str(&b), &err) == TERN_OK);
    TERN_ASSERT(memcmp(&l, &back, sizeof l) == 0);
    buf_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct str text = {(const char *)data + 1, size - 1};
    switch (data[0] % 3) {
    case 0: template_try(text); break;
    case 1: choice_try(text); break;
    default: lengths_try(text);
    }
    return 0;
}
