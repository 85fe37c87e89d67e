// Vectors in their forms: llama-server's beside OpenAI's, other norms, and vectors that are cut to fewer dimensions.
#include "server_lib.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define WIDTH_MAX 4096

static struct served server;

static int setup(void **state) {
    (void)state;
    server_start(&server, (const char *const[]){"-m", TEST_DATA "/hf/lfm2-encoder/model.gguf", "--log", "none", NULL});
    return 0;
}
static int teardown(void **state) {
    (void)state;
    return server_stop(&server);
}

static json_t *json_of(const char *path, const char *body) {
    struct answer_http a = http_post(&server, path, body, "");
    if (a.status != 200) fail_msg("%s %s: %d %s", path, body, a.status, a.body);
    json_t *j = answer_json(&a);
    answer_free(&a);
    return j;
}

static int numbers_of(json_t *list, double *v) {
    size_t i;
    json_t *one;
    assert_true(json_is_array(list) && json_array_size(list) <= WIDTH_MAX);
    json_array_foreach(list, i, one) v[i] = json_number_value(one);
    return (int)json_array_size(list);
}

static double norm_of(const double *v, int n, double p) {
    double sum = 0, max = 0;
    for (int i = 0; i < n; i++) max = fmax(max, fabs(v[i]));
    for (int i = 0; i < n && p > 0; i++) sum += pow(fabs(v[i]), p);
    return p > 0 ? pow(sum, 1 / p) : max;
}

static void native_form(void **state) {
    (void)state;
    static double whole[WIDTH_MAX], v[WIDTH_MAX];
    json_t *j = json_of("/v1/embeddings", "{\"input\": [\"a text\", \"another\"]}");
    const int n = numbers_of(json_at(j, "data.1.embedding"), whole);
    json_decref(j);
    static const char *const paths[] = {"/embedding", "/embeddings"};
    static const struct {
        const char *more;
        double p, length;
    } rows[] = {{"", 2, 1},
                {", \"embd_normalize\": 2", 2, 1},
                {", \"embd_normalize\": 1", 1, 1},
                {", \"embd_normalize\": 5", 5, 1},
                {", \"embd_normalize\": 0", 0, 32760}};
    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        char body[200];
        snprintf(body, sizeof body, "{\"content\": [\"a text\", \"another\"]%s}", rows[i / 2].more);
        j = json_of(paths[i % 2], body);
        assert_int_equal(json_array_size(j), 2);
        assert_int_equal(json_integer_value(json_object_get(json_array_get(j, 1), "index")), 1);
        json_t *rows_of = json_object_get(json_array_get(j, 1), "embedding");
        assert_int_equal(json_array_size(rows_of), 1);
        assert_int_equal(numbers_of(json_array_get(rows_of, 0), v), n);
        assert_true(fabs(norm_of(v, n, rows[i / 2].p) / rows[i / 2].length - 1) < 1e-5);
        for (int k = 0; k < n; k++) // the same direction
            assert_true(fabs(v[k] / norm_of(v, n, 2) - whole[k]) < 1e-5);
        json_decref(j);
    }
    // Of clients without the /v1 in their base URL.
    j = json_of("/embeddings", "{\"input\": \"another\"}");
    assert_int_equal(numbers_of(json_at(j, "data.0.embedding"), v), n);
    json_decref(j);
    j = json_of("/embedding", "{\"input\": \"another\"}");
    assert_true(json_is_array(j));
    json_decref(j);
}

static void fewer_dimensions(void **state) {
    (void)state;
    static double whole[WIDTH_MAX], v[WIDTH_MAX];
    json_t *j = json_of("/v1/embeddings", "{\"input\": \"a text\"}");
    const int n = numbers_of(json_at(j, "data.0.embedding"), whole);
    assert_null(json_object_get(j, "notice"));
    json_decref(j);
    for (int n_dims = 1; n_dims <= n; n_dims = n_dims < n && n_dims * 3 > n ? n : n_dims * 3) {
        static const char *const paths[] = {"/v1/embeddings", "/api/embed", "/embedding"};
        static const char *const at[] = {"data.0.embedding", "embeddings.0", NULL};
        for (int k = 0; k < 3; k++) {
            char body[200];
            snprintf(body, sizeof body, "{\"model\": \"model\", \"%s\": \"a text\", \"dimensions\": %d}",
                     k == 2 ? "content" : "input", n_dims);
            j = json_of(paths[k], body);
            json_t *list =
                at[k] ? json_at(j, at[k]) : json_array_get(json_object_get(json_array_get(j, 0), "embedding"), 0);
            assert_int_equal(numbers_of(list, v), n_dims);
            assert_true(fabs(norm_of(v, n_dims, 2) - 1) < 1e-5);
            const double part = norm_of(whole, n_dims, 2);
            for (int i = 0; i < n_dims; i++) assert_true(fabs(v[i] - whole[i] / part) < 1e-5);
            if (k < 2) assert_int_equal(json_is_string(json_object_get(j, "notice")), n_dims < n);
            json_decref(j);
        }
        if (n_dims == n) break;
    }
}

static void refusals(void **state) {
    (void)state;
    static const struct {
        const char *path, *body, *param;
    } rows[] = {{"/v1/embeddings", "{\"input\": \"x\", \"dimensions\": 1000000}", "dimensions"},
                {"/v1/embeddings", "{\"input\": \"x\", \"dimensions\": 0}", "dimensions"},
                {"/v1/embeddings", "{\"input\": \"x\", \"dimensions\": 1.5}", "dimensions"},
                {"/v1/embeddings", "{\"content\": \"x\"}", "input"},
                {"/embedding", "{}", "content"},
                {"/embedding", "{\"content\": \"x\", \"input\": \"x\"}", "content"},
                {"/embedding", "{\"content\": []}", "content"},
                {"/embedding", "{\"content\": {}}", "content"},
                {"/embedding", "{\"content\": \"x\", \"embd_normalize\": -1}", "embd_normalize"},
                {"/embedding", "{\"content\": \"x\", \"embd_normalize\": 101}", "embd_normalize"},
                {"/embeddings", "{}", "input"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct answer_http a = http_post(&server, rows[i].path, rows[i].body, "");
        if (a.status != 400) fail_msg("%s: %d %s", rows[i].body, a.status, a.body);
        assert_string_equal(answer_error(&a, "param"), rows[i].param);
        answer_free(&a);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(native_form), cmocka_unit_test(fewer_dimensions),
                                       cmocka_unit_test(refusals)};
    return cmocka_run_group_tests_name("vectors", tests, setup, teardown);
}
