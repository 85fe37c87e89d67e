// Fuzz target: a template and its variables. The input is the source up to the first 0 byte, then the variables as
// JSON (none: an empty object). A render must give the same twice, tainted ranges must be sound, an error must say
// something, and the limits must hold: no render takes seconds.
#include "base/base.h"
#include "text/text.h"

#define SLOW_NS 5000000000u // far beyond the limit, for sanitizers and busy machines

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_ranges(const struct jinja_output *o) {
    for (int i = 0; i < o->n_tainted; i++) {
        if (o->tainted[i].begin >= o->tainted[i].end || o->tainted[i].end > o->text.len) TERN_BUG("range %d is off", i);
        if (i > 0 && o->tainted[i].begin <= o->tainted[i - 1].end) TERN_BUG("range %d is out of order", i);
    }
    if (o->text.len > JINJA_OUTPUT_BYTES_MAX) TERN_BUG("%zu bytes of output", o->text.len);
}

static void check_error(enum tern_status s, const struct tern_err *err) {
    if (err->code != s) TERN_BUG("status %d, error %d", (int)s, (int)err->code);
    if (err->message[0] == 0 && s != TERN_TEMPLATE) TERN_BUG("status %d without a message", (int)s);
}

static void render_twice(const struct jinja *j, struct str vars) {
    struct jinja_output a = {0}, b = {0};
    struct tern_err err = {0};
    uint64_t start = clock_ns();
    enum tern_status s = jinja_render_vars(j, &a, vars, 1700000000, &err);
    if (clock_ns() - start > SLOW_NS) TERN_BUG("a render took %d ms", (int)((clock_ns() - start) / 1000000));
    if (s != TERN_OK) {
        check_error(s, &err);
        return;
    }
    check_ranges(&a);
    s = jinja_render_vars(j, &b, vars, 1700000000, &err);
    if (s != TERN_OK && s != TERN_LIMIT) TERN_BUG("the second render fails: %s", err.message); // the clock may differ
    if (s == TERN_OK && (!str_eq(buf_str(&a.text), buf_str(&b.text)) || a.n_tainted != b.n_tainted))
        TERN_BUG("the second render differs");
    jinja_output_release(&a);
    jinja_output_release(&b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t len = zero ? (size_t)(zero - data) : size;
    struct str source = {(const char *)data, len}, vars = STR("{}");
    if (zero && size - len > 1) vars = (struct str){(const char *)zero + 1, size - len - 1};
    struct jinja *j = NULL;
    struct tern_err err = {0};
    enum tern_status s = jinja_create(&j, source, &err);
    if (s != TERN_OK) {
        check_error(s, &err);
        return 0;
    }
    render_twice(j, vars);
    jinja_free(j);
    return 0;
}
