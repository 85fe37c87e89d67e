// The JSON parser against jansson: hand-written texts and random mutations of them. Both must take or refuse the same
// texts and see the same values, but for what jansson limits otherwise (named in compare()).
#include "base_test.h"
#ifdef TERN_HAVE_JANSSON
// Four names of its types are ours too; what needs them is wrapped here.
#define JSON_OBJECT JANSSON_OBJECT
#define JSON_ARRAY JANSSON_ARRAY
#define JSON_STRING JANSSON_STRING
#define JSON_NULL JANSSON_NULL
#include <jansson.h>
static bool is_object(const json_t *v) { return json_is_object(v); }
static bool is_array(const json_t *v) { return json_is_array(v); }
static bool is_string(const json_t *v) { return json_is_string(v); }
static bool is_null(const json_t *v) { return json_is_null(v); }
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_NULL

#define N_MUTANTS 60000
#define MUTANT_MAX 2048

static const char *const corpus[] = {
    "null",
    "[true,false,null]",
    "{\"a\":1,\"b\":[1,2,{\"c\":\"d\"}],\"e\":{}}",
    "[0,-0,1,-1,123456789,9223372036854775807,-9223372036854775808,1e5,1E-5,0.1,-0.0,1.5e300,4.9e-324,1e-400]",
    "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20ac\\ud83d\\ude00\"",
    "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 plain text that is longer than eight bytes\"",
    "{\"\":\"\",\"\\u0061\":[],\"\xc3\xa4\":{\"k\":{\"k\":{\"k\":[[[[]]]]}}}}",
    " \t\r\n[ 1 , 2 ] \n",
    "{\"model\":\"lfm2\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi "
    "\\\"you\\\"\"}],\"temperature\":0.7,\"n\":1}",
    "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"<|pad|>\",\"special\":true}],\"model\":{\"vocab\":{"
    "\"!\":0,\"\\\"\":1,\"#\":2,\"\xc4\xa0the\":3},\"merges\":[\"a b\",\"\xc4\xa0 t\"]}}",
    "[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]",
    "[\"\\u0000\",\"\\uffff\",\"\x7f\",\"\\ud800\\udc00\"]",
    "[1,2,]",
    "{\"a\":1,\"a\":2}",
    "[\"\\ud800\"]",
    "[01]",
    "[1e400]",
    "[123456789012345678901234567890]",
    "\xef\xbb\xbf[]",
    "{\"a\":1}}",
};

// What the two refuse or take differently by design.
struct verdict {
    bool taken;
    bool exempt;
};

static bool same(struct json *j, const struct json_item *item, json_t *v);

static bool same_container(struct json *j, json_t *v, bool object) {
    size_t n = 0;
    struct json_item item;
    for (;; n++) {
        if (json_next(j, &item, NULL) == (object ? JSON_OBJECT_END : JSON_ARRAY_END)) break;
        json_t *child;
        if (object) {
            if (item.event != JSON_KEY) return false;
            child = json_object_getn(v, item.text.data, item.text.len);
            if (json_next(j, &item, NULL) <= JSON_END) return false;
        } else {
            child = json_array_get(v, n);
        }
        if (!child || !same(j, &item, child)) return false;
    }
    return n == (object ? json_object_size(v) : json_array_size(v));
}

// Nesting is bounded by JSON_DEPTH_MAX, so recursion is.
static bool same(struct json *j, const struct json_item *item, json_t *v) {
    switch (item->event) {
    case JSON_NULL: return is_null(v);
    case JSON_BOOL: return json_is_boolean(v) && json_is_true(v) == item->boolean;
    case JSON_NUMBER:
        if (json_is_integer(v)) return item->is_int && json_integer_value(v) == item->integer;
        return json_is_real(v) && json_real_value(v) == item->number;
    case JSON_STRING:
        return is_string(v) && str_eq(item->text, (struct str){json_string_value(v), json_string_length(v)});
    case JSON_OBJECT: return is_object(v) && same_container(j, v, true);
    case JSON_ARRAY: return is_array(v) && same_container(j, v, false);
    default: return false;
    }
}

static struct verdict ours(struct str text) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    struct json_options options = {.dup_check = true};
    assert_int_equal(json_create(&j, text, &options, NULL), TERN_OK);
    while (json_next(j, &item, &err) > JSON_END) {
    }
    json_free(j);
    return (struct verdict){item.event == JSON_END, err.code == TERN_LIMIT}; // jansson nests deeper
}

// Returns whether both took it.
static bool compare(struct str text, uint64_t which) {
    json_error_t why;
    json_t *v = json_loadb(text.data, text.len, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    struct verdict mine = ours(text);
    if (memchr(text.data, 0, text.len)) { // jansson 2.14 overlooks a zero byte after a number; it is never valid
        json_decref(v);
        assert_false(mine.taken);
        return false;
    }
    bool theirs_exempt = !v && (strstr(why.text, "NUL byte in object key") || // no room for them in its C strings
                                strstr(why.text, "too big"));                 // integers over 64 bits: ours are floats
    if (mine.exempt || theirs_exempt) {
        json_decref(v);
        return false;
    }
    bool agree = mine.taken == (v != NULL);
    if (agree && v) {
        struct json *j;
        struct json_item item;
        assert_int_equal(json_create(&j, text, NULL, NULL), TERN_OK);
        agree = json_next(j, &item, NULL) > JSON_END && same(j, &item, v) && json_next(j, &item, NULL) == JSON_END;
        json_free(j);
    }
    if (!agree) {
        struct buf shown;
        buf_init(&shown, 16384);
        str_put_escaped(&shown, text, text.len);
        fail_msg("text %llu: ours %s, jansson %s (%s): %s", (unsigned long long)which, mine.taken ? "takes" : "refuses",
                 v ? "takes" : "refuses", v ? "" : why.text, shown.data);
    }
    json_decref(v);
    return mine.taken;
}

static void test_corpus(void **state) {
    (void)state;
    int n_taken = 0;
    for (size_t i = 0; i < ARRAY_LEN(corpus); i++) n_taken += compare(str_from(corpus[i]), i);
    assert_int_equal(n_taken, 12);
}

static void mutate(struct test_rng *rng, char *text, size_t *len) {
    static const char *const pieces[] = {"\"",      "\\",       "\\u",     "\\ud83d", "\\ude00",
                                         "\\u0000", "{",        "}",       "[",       "]",
                                         ",",       ":",        "0",       "-",       ".",
                                         "e",       "1e9",      "true",    "null",    " ",
                                         "\n",      "\xc3\xa9", "\x80",    "\xff",    "\xed\xa0\x80",
                                         "\"a\":",  "\x01",     "\xf0\x9f"};
    size_t at = test_rng_below(rng, *len + 1), n = test_rng_below(rng, 12);
    n = MIN(n, *len - at);
    switch (test_rng_below(rng, 5)) {
    case 0: // another byte
        if (at < *len) text[at] = (char)test_rng_next(rng);
        break;
    case 1: // a flipped bit
        if (at < *len) text[at] ^= (char)(1 << test_rng_below(rng, 8));
        break;
    case 2: // a hole
        memmove(text + at, text + at + n, *len - at - n);
        *len -= n;
        break;
    case 3: { // a piece of grammar
        const char *piece = pieces[test_rng_below(rng, ARRAY_LEN(pieces))];
        size_t piece_len = strlen(piece);
        if (*len + piece_len > MUTANT_MAX) return;
        memmove(text + at + piece_len, text + at, *len - at);
        memcpy(text + at, piece, piece_len);
        *len += piece_len;
        break;
    }
    default: // a run once more
        if (*len + n > MUTANT_MAX) return;
        memmove(text + at + n, text + at, *len - at);
        *len += n;
        break;
    }
}

static void test_mutants(void **state) {
    (void)state;
    struct test_rng rng;
    test_rng_init(&rng, "json_oracle");
    uint64_t n_taken = 0;
    for (uint64_t i = 0; i < N_MUTANTS; i++) {
        static char text[MUTANT_MAX + 64];
        const char *from = corpus[test_rng_below(&rng, ARRAY_LEN(corpus))];
        size_t len = strlen(from);
        memcpy(text, from, len);
        for (size_t k = test_rng_below(&rng, 4) + 1; k > 0; k--) mutate(&rng, text, &len);
        char *exact = mem_dup(text, len); // a block of its own, so that AddressSanitizer sees its end
        n_taken += compare((struct str){exact, len}, i);
        mem_free(exact);
    }
    printf("%d mutants, %llu valid\n", N_MUTANTS, (unsigned long long)n_taken);
    assert_in_range(n_taken, N_MUTANTS / 50, N_MUTANTS); // or the comparison of values saw too little
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_corpus), cmocka_unit_test(test_mutants)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) { return 77; } // skipped: built without jansson
#endif
