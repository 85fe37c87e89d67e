// Fuzz target: JSON schemas as constraints. A first byte of '1' to '3' makes the rest a list of tools in that style.
#include "fuzz_constraint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct str s = {(const char *)data, size};
    if (size > 0 && data[0] >= '1' && data[0] <= '3') {
        s = (struct str){s.data + 1, s.len - 1};
        fuzz_constraint(CONSTRAINT_TOOL_CALL, s, (enum answer_style)(data[0] - '0'));
    } else {
        fuzz_constraint(CONSTRAINT_JSON_SCHEMA, s, ANSWER_PLAIN);
    }
    return 0;
}
