// Streamed answers of other engines: the first byte chooses whose, the rest comes in pieces. What is taken is text
// within its limit, and the cuts change nothing.
#include "base/base.h"
#include "app/compare/compare.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum tern_status take(enum compare_dialect d, struct str text, size_t piece, struct compare_answer *a) {
    struct compare_stream s;
    struct tern_err err = {0};
    compare_answer_init(a);
    compare_stream_init(&s, d, a);
    for (size_t i = 0; i < text.len; i += piece)
        if (!compare_stream_put(&s, (struct str){text.data + i, MIN(piece, text.len - i)})) break;
    enum tern_status status = compare_stream_end(&s, &err);
    if (status != TERN_OK && err.message[0] == 0) TERN_BUG("an error without a message");
    compare_stream_release(&s);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    const enum compare_dialect d = (enum compare_dialect)(data[0] % 3);
    struct str text = {(const char *)data + 1, size - 1};
    struct compare_answer a, b;
    enum tern_status one = take(d, text, text.len + 1, &a), other = take(d, text, 3, &b);
    if (one != other || !str_eq(buf_str(&a.text), buf_str(&b.text))) TERN_BUG("the cuts of a stream change its text");
    compare_answer_release(&a);
    compare_answer_release(&b);
    return 0;
}
