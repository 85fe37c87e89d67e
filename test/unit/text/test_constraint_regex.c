// Patterns, GBNF and choices as constraints: what they accept, and what is refused by cause.
#include "constraint_fixture.h"

struct vector {
    enum constraint_kind kind;
    const char *spec;
    const char *accept[8], *reject[8];
};

static const struct vector vectors[] = {
    {CONSTRAINT_REGEX, "[a-z]+@[a-z]+\\.com", {"a@b.com", "xy@zz.com"}, {"a@b.org", "@b.com", "a@b.com "}},
    {CONSTRAINT_REGEX, "^yes|no$", {"yes", "no"}, {"yesno", ""}},
    {CONSTRAINT_REGEX, "(\\d{3}-){2}\\d{4}", {"123-456-7890"}, {"123-4567-890", "1234567890"}},
    {CONSTRAINT_REGEX, "a{0}b{2,}", {"bb", "bbbb"}, {"b", "abb"}},
    {CONSTRAINT_REGEX, "(a|b|)*c?", {"", "abba", "abc", "c"}, {"cc", "d"}},
    {CONSTRAINT_REGEX, "(a*)*b", {"b", "aab"}, {"a"}},
    {CONSTRAINT_REGEX, "[^\\x00-\\x7f]+", {"é", "漢字😀"}, {"a", "éa", "\xc3", "\xe6\xbc"}},
    {CONSTRAINT_REGEX, ".", {"x", "\"", "😀"}, {"\n", "xx", ""}},
    {CONSTRAINT_REGEX, "[-a\\]]+", {"-]a"}, {"b"}},
    {CONSTRAINT_REGEX, "\\u{1F600}|\\ud83d\\ude01", {"😀", "😁"}, {"😂"}},
    {CONSTRAINT_REGEX, "(?<year>\\d{4})(?:-\\d\\d)??", {"2024", "2024-05"}, {"202", "2024-5"}},
    {CONSTRAINT_REGEX, "", {""}, {"x"}},
    {CONSTRAINT_CHOICE, "[\"yes\", \"no\", \"yes, sir\"]", {"yes", "no", "yes, sir"}, {"", "y", "yes,", "nope"}},
    {CONSTRAINT_CHOICE, "[\"é\\n\", \"\"]", {"é\n", ""}, {"é"}},
    {CONSTRAINT_GBNF, "root ::= \"a\" [0-9]+ (\"x\" | \"y\")?", {"a1", "a12x", "a0y"}, {"a", "a1xy", "b1"}},
    {CONSTRAINT_GBNF,
     "# arithmetic\nroot ::= expr \"\\n\"\nexpr ::= term ([-+*/] term)*\nterm ::= num | \"(\" expr \")\"\n"
     "num ::= [0-9]+\n",
     {"1\n", "(1+2)*33\n", "((7))\n"},
     {"1", "()\n", "1+\n", "(1\n"}},
    {CONSTRAINT_GBNF,
     "root ::= item{2,3}\nitem ::= \"-\" [^\\n]+ \"\\n\"",
     {"-a\n-b c\n", "-é\n-\"\n-x\n"},
     {"-a\n", "-\n-\n"}},
    {CONSTRAINT_GBNF,
     "root ::=\n  \"x\" |\n  list\nlist ::= \"[\" ws (list (\",\" ws list)*)? \"]\" ws\n"
     "ws ::= [ \\t]*",
     {"x", "[]", "[[], [] ]", "[ [ ]\t]"},
     {"[,]", "[x]", "[]]"}},
    {CONSTRAINT_GBNF,
     "root ::= a b\na ::= \"\"\nb ::= \"\\x41\\u00e9\" | . [\\]\\\\]",
     {"Aé", "漢]", "x\\"},
     {"A", "]"}},
    {CONSTRAINT_GBNF, "root ::= s\ns ::= \"a\" s \"b\" | \"ab\"", {"ab", "aabb", "aaabbb"}, {"aab", "abb", ""}},
    {CONSTRAINT_GBNF,
     "root ::= a | b | c\na ::= \"x\" d\nb ::= \"x\" d\nc ::= \"x\" \"y\"\nd ::= \"y\"",
     {"xy"},
     {"x"}},
    {CONSTRAINT_JSON_OBJECT, "", {"{}", "{\"a\": [1, {\"b\": null}]}", "{\"\":\"\"}"}, {"[]", "1", "{", "{}x"}},
};

static void test_vectors(void **state) {
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
        const struct vector *v = &vectors[i];
        struct constraint *c = constraint_get(v->kind, str_from(v->spec));
        for (int k = 0; k < 8 && v->accept[k]; k++) verdict_check(c, v->spec, str_from(v->accept[k]), true);
        for (int k = 0; k < 8 && v->reject[k]; k++) verdict_check(c, v->spec, str_from(v->reject[k]), false);
        constraint_free(c);
    }
}

static void refused(enum constraint_kind kind, const char *spec, enum tern_status want, const char *word) {
    struct constraint *c = NULL;
    struct tern_err err;
    enum tern_status got = constraint_try(&c, kind, str_from(spec), ANSWER_LFM2, &err);
    if (got != want) fail_msg("%.200s: status %d instead of %d: %s", spec, got, want, err.message);
    if (!strstr(err.message, word)) fail_msg("%.200s: \"%s\" is not in: %s", spec, word, err.message);
    assert_null(c);
}

static void test_regex_refused(void **state) {
    (void)state;
    static const struct {
        const char *spec;
        enum tern_status status;
        const char *word;
    } rows[] = {{"*a", TERN_BAD_FORMAT, "nothing to repeat"},
                {"(?<=x)*", TERN_UNSUPPORTED, "behind"},
                {"(?=x)", TERN_UNSUPPORTED, "ahead"},
                {"a{2,1}", TERN_BAD_FORMAT, "upside down"},
                {"(", TERN_BAD_FORMAT, "not closed"},
                {"a)", TERN_BAD_FORMAT, "without"},
                {"[a", TERN_BAD_FORMAT, "not closed"},
                {"[z-a]", TERN_BAD_FORMAT, "upside down"},
                {"\\", TERN_BAD_FORMAT, "backslash"},
                {"(?<name>x)\\k<name>", TERN_UNSUPPORTED, "references"},
                {"(a)\\1", TERN_UNSUPPORTED, "references"},
                {"a{99999999999}", TERN_LIMIT, "2000"},
                {"[[:alpha:]]", TERN_UNSUPPORTED, "POSIX"},
                {"\\p{Greek}", TERN_UNSUPPORTED, "\\p"},
                {"\\bword", TERN_UNSUPPORTED, "boundaries"},
                {"(?i)a", TERN_UNSUPPORTED, "supported"},
                {"a**", TERN_BAD_FORMAT, "nothing to repeat"},
                {"a$b", TERN_UNSUPPORTED, "anchor"},
                {"a^b", TERN_UNSUPPORTED, "anchor"},
                {"\\ud83d", TERN_BAD_FORMAT, "surrogate"},
                {"\\q", TERN_BAD_FORMAT, "escape"},
                {"[]", TERN_BAD_FORMAT, "no text"},
                {"\xff", TERN_BAD_FORMAT, "UTF-8"},
                {"(((a{100}){100}){100})", TERN_LIMIT, "more than"},
                {"(x+x+)+y(.*a){20}.{500}", TERN_LIMIT, ""}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) refused(CONSTRAINT_REGEX, rows[i].spec, rows[i].status, rows[i].word);
}

static void test_gbnf_refused(void **state) {
    (void)state;
    static const struct {
        const char *spec;
        enum tern_status status;
        const char *word;
    } rows[] = {{"", TERN_BAD_FORMAT, "root"},
                {"a ::= \"x\"", TERN_BAD_FORMAT, "root"},
                {"root ::= b", TERN_BAD_FORMAT, "\"b\""},
                {"root ::= \"x", TERN_BAD_FORMAT, "not closed"},
                {"root ::= [a", TERN_BAD_FORMAT, "not closed"},
                {"root ::= (\"a\"", TERN_BAD_FORMAT, "not closed"},
                {"root ::= \"a\"\nroot ::= \"b\"", TERN_BAD_FORMAT, "before"},
                {"root = \"a\"", TERN_BAD_FORMAT, "::="},
                {"root ::= \"a\" )", TERN_BAD_FORMAT, "end here"},
                {"root ::= root \"a\" | \"b\"", TERN_BAD_FORMAT, "left recursion"},
                {"root ::= e root \"a\" | \"b\"\ne ::= \"\"", TERN_BAD_FORMAT, "left recursion"},
                {"root ::= a\na ::= b \"x\" | \"y\"\nb ::= a | \"z\"", TERN_BAD_FORMAT, "left recursion"},
                {"root ::= \"a\" root", TERN_BAD_FORMAT, "no text"},
                {"root ::= \"a\"{3,2}", TERN_BAD_FORMAT, "upside down"},
                {"root ::= \"a\"{3000}", TERN_LIMIT, "2000"},
                {"root ::= <[12]>", TERN_UNSUPPORTED, "tokens"},
                {"root ::= ((((\"a\"{90}){90}){90}){90})", TERN_LIMIT, "more than"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) refused(CONSTRAINT_GBNF, rows[i].spec, rows[i].status, rows[i].word);
    refused(CONSTRAINT_GBNF, "root ::= (\"a\"\nb ::= \"c\"", TERN_BAD_FORMAT, "line 2");
}

static void test_choice_refused(void **state) {
    (void)state;
    refused(CONSTRAINT_CHOICE, "", TERN_BAD_FORMAT, "list");
    refused(CONSTRAINT_CHOICE, "[]", TERN_BAD_FORMAT, "empty");
    refused(CONSTRAINT_CHOICE, "[1]", TERN_BAD_FORMAT, "texts");
    refused(CONSTRAINT_CHOICE, "[\"a\"", TERN_BAD_FORMAT, "texts");
    refused(CONSTRAINT_CHOICE, "[\"a\"] x", TERN_BAD_FORMAT, "texts");
    refused(CONSTRAINT_CHOICE, "\"a\"", TERN_BAD_FORMAT, "texts");
}

// 60,000 of anything that nests or repeats ends with an error in time, not with the stack or the memory.
static void test_bombs(void **state) {
    (void)state;
    static const struct {
        enum constraint_kind kind;
        const char *head, *piece, *tail;
    } rows[] = {{CONSTRAINT_REGEX, "", "(", ""},
                {CONSTRAINT_REGEX, "", "(a|", ""},
                {CONSTRAINT_REGEX, "", "[a-z]?", ""},
                {CONSTRAINT_REGEX, "", "a{1,9}", ""},
                {CONSTRAINT_REGEX, "(a", "|a", ")*b"},
                {CONSTRAINT_GBNF, "root ::= ", "(", ""},
                {CONSTRAINT_GBNF, "root ::= ", "\"a\"?", ""},
                {CONSTRAINT_GBNF, "root ::= ", "e ", "\ne ::= \"\"?"},
                {CONSTRAINT_GBNF, "root ::= ", "(e|f)", "\ne ::= \"\"?\nf ::= \"\"|\"x\""},
                {CONSTRAINT_JSON_SCHEMA, "", "[", ""},
                {CONSTRAINT_JSON_SCHEMA, "", "{\"items\":", ""},
                {CONSTRAINT_JSON_SCHEMA, "{\"enum\":[0", ",0", "]}"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b;
        struct constraint *c = NULL;
        struct tern_err err;
        buf_init(&b, 1 << 20);
        buf_puts(&b, rows[i].head);
        while (b.len + strlen(rows[i].piece) + 80 < CONSTRAINT_BYTES_MAX) buf_puts(&b, rows[i].piece);
        buf_puts(&b, rows[i].tail);
        struct mem_stats before = mem_stats_get();
        double start = os_cpu_self(); // others may have the processor meanwhile
        if (constraint_try(&c, rows[i].kind, buf_str(&b), ANSWER_LFM2, &err) == TERN_OK) constraint_free(c);
        uint64_t ms = (uint64_t)((os_cpu_self() - start) * 1e3);
        if (ms > (env_get("TERN_TEST_SHORT") ? 60000 : 3000))
            fail_msg("row %zu took %llu ms: %s", i, (unsigned long long)ms, err.message);
        assert_int_equal(mem_stats_get().bytes_now, before.bytes_now);
        buf_release(&b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),      cmocka_unit_test(test_regex_refused),
        cmocka_unit_test(test_gbnf_refused), cmocka_unit_test(test_choice_refused),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests_name("pattern constraints", tests, vocab_setup, vocab_teardown);
}
