// The identity of a model for caches: SHA-256 over every file's header, size and 64 windows of 4 KiB spread evenly over
// its data; of the other JSON files, config.json whole and tokenizer.json like a weight file without a header.
//
// Hashing gigabytes at every start would cost seconds and touch every page; time stamps would lose the caches when a
// model is copied. Sampling keeps both: a few hundred KiB are read. An edit that keeps a file's size, header and all
// windows is not seen.
#include "base/base.h"
#include "model/model_int.h"

#define DIGEST_WINDOWS 64
#define DIGEST_WINDOW_BYTES 4096u
#define DIGEST_VERSION "tern-model-1"

static void put_u64(struct sha256 *h, uint64_t v) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)(v >> (8 * i));
    sha256_update(h, bytes, sizeof(bytes));
}

static void put_sampled(struct sha256 *h, const uint8_t *data, size_t size, size_t header_len) {
    header_len = MIN(header_len, size);
    put_u64(h, size);
    put_u64(h, header_len);
    sha256_update(h, data, header_len);
    data += header_len;
    size -= header_len;
    if (size <= DIGEST_WINDOWS * DIGEST_WINDOW_BYTES) {
        sha256_update(h, data, size);
        return;
    }
    size_t step = (size - DIGEST_WINDOW_BYTES) / (DIGEST_WINDOWS - 1); // the last window ends near the file's end
    for (size_t i = 0; i < DIGEST_WINDOWS; i++) {
        size_t at =
            i + 1 == DIGEST_WINDOWS ? size - DIGEST_WINDOW_BYTES : (i * step) & ~(size_t)(DIGEST_WINDOW_BYTES - 1);
        sha256_update(h, data + at, DIGEST_WINDOW_BYTES);
    }
}

void model_digest_make(struct model *m) {
    const struct model_source *s = m->source;
    struct sha256 h;
    uint8_t digest[32];
    sha256_init(&h);
    sha256_update(&h, DIGEST_VERSION, sizeof(DIGEST_VERSION));
    put_u64(&h, (uint64_t)s->n_files);
    for (int i = 0; i < s->n_files; i++) put_sampled(&h, s->files[i].data, s->files[i].size, s->files[i].header_len);
    if (s->config) put_sampled(&h, s->config->data, s->config->size, s->config->size);
    if (s->tokenizer) put_sampled(&h, s->tokenizer->data, s->tokenizer->size, 0);
    // A drafter that borrows its embedding or output is another model with another target.
    if (m->drafter) sha256_update(&h, m->drafter->target->digest, sizeof(m->drafter->target->digest));
    sha256_final(&h, digest);
    sha256_hex(digest, m->digest);
}
