// Fuzz target: patterns as constraints, alone and inside a JSON schema (an even number of bytes).
#include "fuzz_constraint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str s = {(const char *)data, size};
    if (size % 2) {
        fuzz_constraint(CONSTRAINT_REGEX, s, ANSWER_PLAIN);
        return 0;
    }
    struct buf b;
    buf_init(&b, 16 * size + 200);
    buf_puts(&b, "{\"type\": \"string\", \"maxLength\": 9, \"pattern\": ");
    json_put_quoted(&b, s);
    buf_puts(&b, "}");
    fuzz_constraint(CONSTRAINT_JSON_SCHEMA, buf_str(&b), ANSWER_PLAIN);
    buf_release(&b);
    return 0;
}
