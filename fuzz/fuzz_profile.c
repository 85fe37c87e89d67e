// Fuzz target: profiles. What is taken is written and read again, and must come out the same.
#include "base/base.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct profile p, q;
    struct tern_err err = {0};
    struct buf first, second;
    if (profile_parse(&p, (struct str){(const char *)data, size}, &err) != TERN_OK) {
        TERN_ASSERT(err.code != TERN_OK && err.message[0]);
        return 0;
    }
    buf_init(&first, PROFILE_BYTES_MAX);
    buf_init(&second, PROFILE_BYTES_MAX);
    if (!profile_print(&p, &first)) TERN_BUG("a profile cannot be written");
    if (profile_parse(&q, buf_str(&first), &err) != TERN_OK) TERN_BUG("a written profile is refused: %s", err.message);
    if (!profile_print(&q, &second) || !str_eq(buf_str(&first), buf_str(&second))) TERN_BUG("written otherwise again");
    TERN_ASSERT(profile_serves(&p, &q) && profile_serves(&q, &p));
    buf_release(&first);
    buf_release(&second);
    return 0;
}
