// Prompt routing against what numpy computed in double with token places of the tokenizers package (test/data/route),
// on the reference unit and as an NPU program; what does not fit is refused.
#define _GNU_SOURCE // setenv
#include "engine_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUTER TEST_DATA "/route"
#define ROUTES_MAX 16

static struct tern_engine *router_open(const char *unit, enum tern_class numerics) {
    struct tern_engine_options o = fixture_options(ROUTER);
    o.unit = unit;
    o.numerics = numerics;
    o.kv_type = TERN_KV_F32;
    o.n_threads = 2;
    return fixture_engine(&o);
}

struct checked {
    int n, n_same; // cases, of them with the same first route
    double off;    // largest difference of a logit
};

static int best_of(const double *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

struct line {
    struct buf text;
    char names[ROUTES_MAX][64];
    struct tern_str routes[ROUTES_MAX];
    double logits[ROUTES_MAX];
    int32_t ids[512];
    int n_routes, n_ids;
};

static void list_parse(struct json *j, struct json_item *item, struct line *l, struct str key) {
    struct tern_err err;
    int n = 0;
    for (assert_int_equal(item->event, JSON_ARRAY); json_next(j, item, &err) != JSON_ARRAY_END; n++) {
        if (str_eqz(key, "ids")) {
            assert_true(n < 512);
            l->ids[n] = (int32_t)item->integer;
            l->n_ids = n + 1;
            continue;
        }
        assert_true(n < ROUTES_MAX && item->event != JSON_ERROR);
        if (str_eqz(key, "logits")) {
            l->logits[n] = item->number;
            continue;
        }
        assert_true(item->text.len < sizeof l->names[n]);
        memcpy(l->names[n], item->text.data, item->text.len);
        l->routes[n] = (struct tern_str){l->names[n], item->text.len};
        l->n_routes = n + 1;
    }
}

static void line_parse(struct str text, struct line *l) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    char key[32];
    fixture_must(json_create(&j, text, NULL, &err), &err);
    fixture_must(json_expect(j, JSON_OBJECT, &item, "a case", &err), &err);
    while (json_next(j, &item, &err) == JSON_KEY) {
        (void)snprintf(key, sizeof key, "%.*s", (int)item.text.len, item.text.data);
        (void)json_next(j, &item, &err);
        if (strcmp(key, "text") == 0)
            buf_put(&l->text, item.text.data, item.text.len);
        else if (item.event == JSON_ARRAY)
            list_parse(j, &item, l, str_from(key));
    }
    assert_int_equal(item.event, JSON_OBJECT_END);
    json_free(j);
}

static void tokens_check(struct tern_engine *e, const struct line *l) {
    struct buf input;
    struct tern_err err = {0};
    int32_t mine[512];
    buf_init(&input, 1u << 16);
    buf_puts(&input, "Categories:\n");
    for (int i = 0; i < l->n_routes; i++) buf_putf(&input, "- %.*s\n", (int)l->routes[i].len, l->routes[i].data);
    buf_putf(&input, "\nText:\n%.*s", (int)l->text.len, l->text.data);
    int64_t n = tern_tokenize(e, (struct tern_str){input.data, input.len}, true, false, mine, 512, &err);
    assert_int_equal(n, l->n_ids);
    assert_memory_equal(mine, l->ids, (size_t)n * sizeof *mine);
    buf_release(&input);
}

static void line_check(struct tern_engine *e, struct str text, struct checked *c) {
    struct line l = {.n_routes = 0};
    double have[ROUTES_MAX];
    float logits[ROUTES_MAX];
    struct tern_err err = {0};
    buf_init(&l.text, 1u << 16);
    line_parse(text, &l);
    assert_true(l.n_routes >= 1);
    struct tern_str asked = {l.text.data, l.text.len};
    fixture_must(tern_route(e, asked, l.routes, (size_t)l.n_routes, logits, &err), &err);
    for (int i = 0; i < l.n_routes; i++) {
        have[i] = (double)logits[i];
        c->off = MAX(c->off, fabs(have[i] - l.logits[i]));
    }
    c->n++;
    c->n_same += best_of(have, l.n_routes) == best_of(l.logits, l.n_routes);
    if (l.n_ids > 0) tokens_check(e, &l);
    buf_release(&l.text);
}

static struct checked file_check(struct tern_engine *e) {
    struct buf file;
    struct tern_err err = {0};
    struct checked c = {0};
    buf_init(&file, 1u << 20);
    fixture_must(file_read_all(&file, ROUTER "/expect.jsonl", &err), &err);
    for (char *at = file.data; *at;) {
        char *end = strchr(at, '\n');
        line_check(e, (struct str){at, (size_t)(end - at)}, &c);
        at = end + 1;
    }
    buf_release(&file);
    assert_int_equal(c.n, 28);
    return c;
}

static void test_against_numpy(void **state) {
    (void)state;
    static const struct {
        const char *unit;
        enum tern_class numerics;
        double bound; // of a logit; their scale is 30. Observed: 1.4e-5, 1.1e-5, 0.40
        int same;
    } units[] = {{"cpu", TERN_CLASS_FP32, 1e-4, 28},
                 {"npu:fp32", TERN_CLASS_FP32, 1e-4, 28},
                 {"npu:coreai-linux", TERN_CLASS_INT8, 1.0, 27}};
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        struct tern_engine *e = router_open(units[i].unit, units[i].numerics);
        struct checked c = file_check(e);
        print_message("%s: largest difference %.3g, the same first route %d of %d\n", units[i].unit, c.off, c.n_same,
                      c.n);
        assert_true(c.off < units[i].bound && c.n_same >= units[i].same);
        tern_engine_close(e);
    }
}

// The same bits for any number of threads and instruction set.
static void test_equal(void **state) {
    (void)state;
    static const struct tern_str text = {"a kite or a lamp", 16}, routes[] = {{"kite", 4}, {"lamp", 4}, {"train", 5}};
    float first[3], again[3];
    struct tern_err err = {0};
    for (int i = 0; i < 2; i++) {
        if (i == 1) setenv("TERN_CPU", "scalar", 1);
        struct tern_engine *e = router_open("cpu", TERN_CLASS_FP32);
        fixture_must(tern_route(e, text, routes, 3, i == 0 ? first : again, &err), &err);
        tern_engine_close(e);
    }
    unsetenv("TERN_CPU");
    assert_memory_equal(first, again, sizeof first);
}

static void refused(struct tern_engine *e, const char *text, const struct tern_str *routes, size_t n,
                    const char *says) {
    float logits[ROUTES_MAX];
    struct tern_err err = {0};
    assert_int_not_equal(tern_route(e, (struct tern_str){text, strlen(text)}, routes, n, logits, &err), TERN_OK);
    if (!strstr(err.message, says)) fail_msg("%s", err.message);
}

static void test_refused(void **state) {
    (void)state;
    const struct tern_str one[] = {{"a", 1}}, empty[] = {{"a", 1}, {"", 0}}, lines[] = {{"a\nb", 3}};
    static char longer[8192];
    struct tern_engine *e = router_open("cpu", TERN_CLASS_FP32);
    refused(e, "x", one, 0, "0 routes");
    refused(e, "x", one, TERN_ROUTES_MAX + 1, "1025 routes");
    refused(e, "", one, 1, "an empty text");
    refused(e, "x", empty, 2, "route 2 is empty");
    refused(e, "x", lines, 1, "one line");
    memset(longer, 'q', sizeof longer - 1);
    refused(e, longer, one, 1, "at most 1024 are read at once");
    tern_engine_close(e);
    struct tern_engine_options o = fixture_options(TEST_DATA "/hf/lfm2-encoder/model.gguf");
    e = fixture_engine(&o);
    refused(e, "x", one, 1, "has no tok_proj.weight");
    tern_engine_close(e);
    o = fixture_options(TEST_MODELS "/pico.gguf");
    e = fixture_engine(&o);
    refused(e, "x", one, 1, "routes are scored by encoders");
    tern_engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_numpy),
        cmocka_unit_test(test_equal),
        cmocka_unit_test(test_refused),
    };
    setenv("TERN_UNVALIDATED", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
