// The file of validations: whatever is in it, rows or one error, and rows print to what reads back as them.
#include "base/base.h"
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct validations v, again;
    struct tern_err err;
    struct buf b;
    if (validations_parse(&v, (struct str){(const char *)data, size}, &err) == TERN_OK) {
        buf_init(&b, VALIDATIONS_BYTES_MAX);
        if (validations_print(&v, &b)) {
            if (validations_parse(&again, buf_str(&b), &err) != TERN_OK) TERN_BUG("validations: %s", err.message);
            if (again.n != v.n) TERN_BUG("validations: %d rows of %d", again.n, v.n);
            for (int i = 0; i < v.n; i++)
                if (!validations_find(&again, &v.rows[i].key)) TERN_BUG("validations: row %d is lost", i);
            validations_release(&again);
        }
        buf_release(&b);
    }
    validations_release(&v);
    return 0;
}
