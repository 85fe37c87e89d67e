// Fuzz target: GBNF grammars as constraints.
#include "fuzz_constraint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_constraint(CONSTRAINT_GBNF, (struct str){(const char *)data, size}, ANSWER_PLAIN);
    return 0;
}
