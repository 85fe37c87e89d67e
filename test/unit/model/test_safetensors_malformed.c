// Malformed safetensors: one header for each kind of fault, refused by its own cause; sound ones, the zero-size entry
// among them, are accepted.
#include "model_test_util.h"

struct kind {
    const char *what;
    const char *header;
    size_t n_data;
    enum tern_status status;
    const char *text;
};

#define BAD TERN_BAD_FORMAT
#define NOT TERN_UNSUPPORTED
#define LIM TERN_LIMIT
#define A4 "\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}"
#define B4 "\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,32]}"

static const struct kind kinds[] = {
    {"not an object", "[1,2,3]", 0, BAD, "neither a GGUF nor a safetensors"},
    {"blank before the object", "\t{" A4 "}", 16, BAD, "neither a GGUF nor a safetensors"},
    {"padded with a newline", "{" A4 "}\n", 16, BAD, "does not end with its JSON object"},
    {"padded with zeros", "{" A4 "}  \\u0000", 16, BAD, "does not end with its JSON object"},
    {"text after the object", "{" A4 "}{}", 16, BAD, "header"},
    {"unclosed", "{" A4, 16, BAD, "header"},
    {"comment", "{/**/" A4 "}", 16, BAD, "header: JSON"},
    {"trailing comma", "{" A4 ",}", 16, BAD, "header: JSON"},
    {"deep", "{\"a\":[[[[[[[[[[1]]]]]]]]]]}", 16, LIM, "nested deeper than the limit of 8"},
    {"name not UTF-8", "{\"\xff\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD, "UTF-8"},
    {"name empty", "{\"\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD,
     "a tensor name is empty"},
    {"name with a zero", "{\"a\\u0000\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD,
     "control byte 0x00"},
    {"duplicate name", "{" A4 "," A4 "}", 16, BAD, "'a' appears twice"},
    {"duplicate field", "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD,
     "'dtype' appears twice"},
    {"entry a list", "{\"a\":[1]}", 16, BAD, "tensor a: its entry must be an object"},
    {"dtype missing", "{\"a\":{\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD, "lacks dtype"},
    {"shape missing", "{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,16]}}", 16, BAD, "lacks dtype, shape"},
    {"offsets missing", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4]}}", 16, BAD, "data_offsets"},
    {"unknown field", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16],\"x\":1}}", 16, BAD,
     "unknown field x"},
    {"dtype a number", "{\"a\":{\"dtype\":1,\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD,
     "dtype must be a string"},
    {"dtype unknown", "{\"a\":{\"dtype\":\"Q9\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD, "unknown dtype Q9"},
    {"dtype unsupported", "{\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16, NOT, "dtype I64"},
    {"shape a string", "{\"a\":{\"dtype\":\"F32\",\"shape\":\"4\",\"data_offsets\":[0,16]}}", 16, BAD, "shape"},
    {"shape negative", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-4],\"data_offsets\":[0,16]}}", 16, BAD, "shape"},
    {"shape fractional", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4.0],\"data_offsets\":[0,16]}}", 16, BAD,
     "shape (dimensions) must be a list of non-negative integers"},
    {"five dimensions", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,4],\"data_offsets\":[0,16]}}", 16, BAD,
     "more than 4 items"},
    {"shape wraps", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2147483648,2147483648,4],\"data_offsets\":[0,0]}}", 0, BAD,
     "product of its dimensions overflows"},
    {"bytes wrap", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]}}", 0, BAD,
     "size in bytes overflows"},
    {"offset negative", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[-16,0]}}", 16, BAD,
     "data_offsets must be a list of non-negative integers"},
    {"offset fractional", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,1.6e1]}}", 16, BAD,
     "data_offsets"},
    {"offset over int64", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,18446744073709551616]}}", 16,
     BAD, "data_offsets"},
    {"one offset", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0]}}", 16, BAD, "two items"},
    {"three offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16,16]}}", 16, BAD,
     "more than 2 items"},
    {"offsets reversed", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[16,0]}}", 16, BAD, "reversed"},
    {"length unlike shape", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,12]}}", 12, BAD,
     "hold 12 bytes, its shape needs 16"},
    {"past the end", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 15, BAD,
     "1 bytes are missing"},
    {"far past the end",
     "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[1152921504606846976,1152921504606846992]}}", 16, BAD,
     "bytes are missing"},
    {"hole at the start", "{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[4,20]}}", 20, BAD,
     "a hole of 4 bytes"},
    {"hole between", "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[20,36]}}", 36, BAD,
     "a hole of 4 bytes before tensor b"},
    {"overlap", "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[12,28]}}", 28, BAD,
     "tensors a and b overlap by 4 bytes"},
    {"alias", "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16, BAD, "overlap"},
    {"empty inside another", "{" A4 ",\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[8,8]}}", 16, BAD,
     "overlap"},
    {"bytes after the data", "{" A4 "}", 17, BAD, "1 bytes after the last tensor"},
    {"metadata a list", "{\"__metadata__\":[1]," A4 "}", 16, BAD, "__metadata__ must be an object of strings"},
    {"metadata of numbers", "{\"__metadata__\":{\"x\":1}," A4 "}", 16, BAD,
     "__metadata__ must be an object of strings"},
};

static void test_kinds(void **state) {
    (void)state;
    struct buf b;
    int n_wrong = 0;
    buf_init(&b, 1u << 20);
    assert_true(ARRAY_LEN(kinds) >= 20);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        safetensors_build(&b, str_from(kinds[i].header), kinds[i].n_data);
        n_wrong += refusal_wrong(kinds[i].what, buf_str(&b), kinds[i].status, kinds[i].text);
    }
    buf_release(&b);
    assert_int_equal(n_wrong, 0);
}

static void test_lengths(void **state) {
    (void)state;
    struct buf b;
    int n_wrong = 0;
    buf_init(&b, 1u << 20);
    safetensors_build(&b, STR("{" A4 "}"), 16);
    uint64_t len = load_u64(b.data);
    uint64_t more = len + 17;
    memcpy(b.data, &more, 8);
    n_wrong += refusal_wrong("header past the end", buf_str(&b), BAD, "1 bytes are missing");
    more = len - 1;
    memcpy(b.data, &more, 8);
    n_wrong += refusal_wrong("header one short", buf_str(&b), BAD, "header: JSON: expected");
    b.len = 7;
    n_wrong += refusal_wrong("seven bytes", buf_str(&b), BAD, "only 7 bytes");
    b.len = 8;
    n_wrong += refusal_wrong("eight bytes", buf_str(&b), BAD, "neither a GGUF");
    buf_release(&b);
    assert_int_equal(n_wrong, 0);
}

static void test_many(void **state) {
    (void)state;
    struct buf header, b;
    buf_init(&header, 64u << 20);
    buf_init(&b, 64u << 20);
    buf_putc(&header, '{');
    for (int i = 0; i <= MODEL_TENSORS_MAX; i++)
        buf_putf(&header, "%s\"%d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? "," : "", i);
    buf_putc(&header, '}');
    safetensors_build(&b, buf_str(&header), 0);
    assert_int_equal(refusal_wrong("65,537 tensors", buf_str(&b), LIM, "more than 65536 tensors"), 0);
    buf_clear(&header);
    buf_puts(&header, "{\"");
    for (int i = 0; i < 513; i++) buf_putc(&header, 'n');
    buf_puts(&header, "\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}");
    safetensors_build(&b, buf_str(&header), 16);
    assert_int_equal(refusal_wrong("name of 513 bytes", buf_str(&b), LIM, "513 bytes, at most 512"), 0);
    buf_release(&header);
    buf_release(&b);
}

static void test_sound(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
    } sound[] = {
        {"{}", 0},
        {"{}        ", 0},
        {"{" A4 "}", 16},
        {"{" B4 "," A4 "}  ", 32},
        {"{\"__metadata__\":{\"format\":\"pt\"}," A4 "," B4 "}", 32},
        {"{\"e\":{\"dtype\":\"F16\",\"shape\":[0,3],\"data_offsets\":[0,0]}," A4 "}", 16},
        {"{" A4 ",\"e\":{\"dtype\":\"F16\",\"shape\":[7,0],\"data_offsets\":[16,16]}}", 16},
        {"{\"s\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}", 2},
    };
    struct buf b;
    buf_init(&b, 1u << 20);
    for (size_t i = 0; i < ARRAY_LEN(sound); i++) {
        safetensors_build(&b, str_from(sound[i].header), sound[i].n_data);
        expect_open(sound[i].header, buf_str(&b));
    }
    buf_release(&b);
}

// Rows and columns come out in the table's order, values in the file's.
static void test_table(void **state) {
    (void)state;
    struct buf b;
    struct model *m;
    struct tern_err err = {0};
    buf_init(&b, 1u << 20);
    safetensors_build(
        &b,
        STR("{\"m\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[1,13]},\"x\":{\"dtype\":\"F16\",\"shape\":[0],"
            "\"data_offsets\":[0,0]},\"s\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[13,15]}}"),
        15);
    assert_int_equal(refusal_wrong("first at byte 1", buf_str(&b), BAD, "a hole of 1 bytes"), 0);
    safetensors_build(&b,
                      STR("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[12,16]},"
                          "\"m\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[0,12]}}"),
                      16);
    if (model_open_memory(&m, "x", b.data, b.len, &err) != TERN_OK) fail_msg("%s", err.message);
    const struct tensor *t = model_tensor_find(m, "m"), *s = model_tensor_find(m, "s");
    assert_true(t && s && m->n_tensors == 2 && m->arch == NULL && m->n_params == 7);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->ne[0], 2);
    assert_int_equal(t->ne[1], 3);
    assert_int_equal(t->format, FORMAT_F16);
    assert_int_equal(t->n_bytes, 12);
    assert_int_equal(load_u16(t->data), 0x0100);
    assert_int_equal(s->n_dims, 1);
    assert_int_equal(s->ne[0], 1);
    assert_int_equal(load_u32(s->data), 0x0f0e0d0c);
    assert_null(model_tensor_find(m, "absent"));
    model_close(m);
    buf_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kinds), cmocka_unit_test(test_lengths),
                                       cmocka_unit_test(test_many), cmocka_unit_test(test_sound),
                                       cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
