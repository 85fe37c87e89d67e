// Lines of `tern batch`: requests and results. What is read as a request keeps its bounds, and the result written for
// it is one line that reads back as its own; what is refused has a message.
#include "base/base.h"
#include "app/batch/batch.h"

static void request_try(struct str line) {
    struct batch_request r;
    struct tern_err err = {0};
    if (batch_request_read(&r, line, &err) != TERN_OK) {
        TERN_ASSERT(err.message[0]);
        return;
    }
    TERN_ASSERT(r.custom_id[0] && strlen(r.digest) == BATCH_DIGEST_LEN && r.url[0] == '/');
    TERN_ASSERT(r.body.data >= line.data && r.body.data + r.body.len <= line.data + line.len);
    struct buf out;
    buf_init(&out, 4 * line.len + (1u << 16));
    batch_result_put(&out, r.custom_id, r.digest, 200, "req_1", r.body); // any JSON
    TERN_ASSERT(!out.failed && memchr(out.data, '\n', out.len) == out.data + out.len - 1);
    struct batch_result back;
    struct str result = {out.data, out.len - 1};
    TERN_ASSERT(batch_result_read(&back, result, &err) == TERN_OK);
    TERN_ASSERT(strcmp(back.custom_id, r.custom_id) == 0 && strcmp(back.digest, r.digest) == 0 && back.status == 200);
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *p = (const char *)data, *end = p + size;
    while (p < end) {
        const char *stop = memchr(p, '\n', (size_t)(end - p));
        struct str line = {p, (size_t)((stop ? stop : end) - p)};
        request_try(line);
        struct batch_result r;
        struct tern_err err = {0};
        if (batch_result_read(&r, line, &err) == TERN_OK)
            TERN_ASSERT(r.custom_id[0] && r.status >= 100 && r.status < 600 && strlen(r.digest) == BATCH_DIGEST_LEN);
        else
            TERN_ASSERT(err.message[0]);
        p = stop ? stop + 1 : end;
    }
    return 0;
}
