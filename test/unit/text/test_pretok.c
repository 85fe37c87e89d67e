// The split scanners against the reference, for every code point, and their linear time.
#include "tokenizer_fixture.h"

#define SIGNATURES_MAX 16
#define PIECES_MAX 80

// test/data/tokenizer/codepoints.txt, line by line.
struct vector {
    struct buf file;
    size_t pos;
    struct str probe;
};

static bool line_next(struct vector *v, struct str *line) {
    while (v->pos < v->file.len) {
        size_t end = str_find(buf_str(&v->file), STR("\n"), v->pos);
        *line = (struct str){v->file.data + v->pos, end - v->pos};
        v->pos = end + 1;
        if (line->len > 0 && line->data[0] != '#') return true;
    }
    return false;
}

static bool word_next(struct str *line, struct str *word) {
    *line = str_trim(*line);
    size_t end = str_find(*line, STR(" "), 0);
    if (end == (size_t)-1) end = line->len;
    *word = (struct str){line->data, end};
    *line = (struct str){line->data + end, line->len - end};
    return end > 0;
}

static void vector_open(struct vector *v) {
    struct tern_err err;
    struct str line;
    *v = (struct vector){0};
    buf_init(&v->file, 1u << 20);
    if (file_read_all(&v->file, TEST_DATA "/tokenizer/codepoints.txt", &err) != TERN_OK) fail_msg("%s", err.message);
    assert_true(line_next(v, &line) && str_starts(line, STR("probe ")));
    v->probe = (struct str){line.data + 6, line.len - 6};
}

static struct unicode_map map;

static size_t probe_text(char *out, struct str probe, uint32_t rune) {
    size_t len = 0;
    for (size_t i = 0; i < probe.len; i++) {
        if (probe.data[i] == 'C') {
            len += (size_t)utf8_encode(rune, out + len);
        } else if (probe.data[i] == '\\') {
            char letter = probe.data[++i];
            out[len++] = letter == 'n' ? '\n' : letter == 'r' ? '\r' : '\t';
        } else {
            out[len++] = probe.data[i];
        }
    }
    return len;
}

struct signature {
    int lengths[PIECES_MAX]; // of the pieces, in code points
    int n;
};

static struct signature signature_of(enum pretok_kind kind, struct str text) {
    struct signature s = {.n = 0};
    struct pretok p;
    struct str piece;
    pretok_init(&p, &map, kind, text);
    while (pretok_next(&p, &piece)) {
        assert_true(s.n < PIECES_MAX);
        for (size_t i = 0; i < piece.len; i++) s.lengths[s.n] += ((uint8_t)piece.data[i] & 0xc0) != 0x80;
        s.n++;
    }
    return s;
}

static struct signature signature_read(struct str text) {
    struct signature s = {.n = 0};
    s.n = 1;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '.') {
            s.n++;
        } else {
            s.lengths[s.n - 1] = s.lengths[s.n - 1] * 10 + text.data[i] - '0';
        }
    }
    return s;
}

static bool kind_of(struct str name, enum pretok_kind *kind) {
    const char *names[PRETOK_COUNT] = {"llama3", "qwen2", "gpt2", "smollm"};
    for (int i = 0; i < PRETOK_COUNT; i++) {
        if (!str_eqz(name, names[i])) continue;
        *kind = (enum pretok_kind)i;
        return true;
    }
    return false;
}

// Code points first .. first + n - 1 split as expected. Inside a long run a code point whose class is that of the one
// before, which was split, is not split again: beyond ASCII and a few single letters the scanners see only the class.
static void run_check(const struct vector *v, enum pretok_kind kind, const struct signature *want, uint32_t first,
                      long n) {
    for (long i = 0; i < n; i++) {
        uint32_t rune = first + (uint32_t)i;
        bool is_inside = i >= 64 && i + 64 < n && i % 61 != 0;
        if (is_inside && unicode_class(&map, rune) == unicode_class(&map, rune - 1)) continue;
        char text[512];
        struct signature got = signature_of(kind, (struct str){text, probe_text(text, v->probe, rune)});
        if (got.n != want->n || memcmp(got.lengths, want->lengths, (size_t)got.n * sizeof(int)) != 0) {
            fail_msg("%s splits U+%04X otherwise than the reference", pretok_name(kind), (unsigned)rune);
        }
    }
}

static void class_check(uint8_t bit, bool value, uint32_t first, long n) {
    for (long i = 0; i < n; i++) {
        if (((unicode_class(&map, first + (uint32_t)i) & bit) != 0) == value) continue;
        fail_msg("U+%04X: class bit %d is not %d", (unsigned)first + (unsigned)i, bit, value);
    }
}

// The runs of one family; returns how many code points they cover.
static int64_t family_check(struct vector *v, enum pretok_kind kind, bool is_split, uint8_t class_bit) {
    struct signature expected[SIGNATURES_MAX];
    int n_expected = 0;
    struct str line, word;
    uint32_t rune = 0;
    int64_t n_checked = 0;
    while (line_next(v, &line) && !str_eqz(line, "end")) {
        if (str_starts(line, STR("sig "))) {
            word_next(&line, &word);
            word_next(&line, &word);
            assert_true(word_next(&line, &word) && n_expected < SIGNATURES_MAX);
            expected[n_expected++] = signature_read(word);
        }
        if (str_starts(line, STR("sig ")) || line.len == 0 || line.data[0] < '0' || line.data[0] > '9') continue;
        while (word_next(&line, &word)) {
            long value = strtol(word.data, NULL, 10);
            long left = strtol((char *)memchr(word.data, ':', word.len) + 1, NULL, 10);
            while (left > 0) { // a run may go on behind the surrogates
                long n = rune < 0xd800 ? MIN(left, (long)(0xd800 - rune)) : left;
                if (is_split) {
                    run_check(v, kind, &expected[value], rune, n);
                } else {
                    class_check(class_bit, value, rune, n);
                }
                rune += (uint32_t)n;
                if (rune == 0xd800) rune = 0xe000;
                left -= n;
                n_checked += n;
            }
        }
    }
    return n_checked;
}

static void test_every_code_point(void **state) {
    (void)state;
    struct vector v;
    struct str line;
    int n_families = 0;
    vector_open(&v);
    while (line_next(&v, &line)) {
        assert_true(str_starts(line, STR("family ")));
        struct str name = {line.data + 7, line.len - 7};
        enum pretok_kind kind = PRETOK_COUNT;
        bool is_split = kind_of(name, &kind);
        uint8_t bit = str_eqz(name, "word") ? UNICODE_WORD : UNICODE_SPACE;
        assert_true(is_split || str_eqz(name, "word") || str_eqz(name, "blank"));
        assert_int_equal(family_check(&v, kind, is_split, bit), 0x110000 - 0x800);
        n_families++;
    }
    assert_int_equal(n_families, 6);
    buf_release(&v.file);
}

static void test_names(void **state) {
    (void)state;
    enum pretok_kind kind;
    bool ignore_merges, adds_bos;
    assert_true(pretok_from_gguf(STR("lfm2"), &kind, &ignore_merges, &adds_bos));
    assert_true(kind == PRETOK_LLAMA3 && ignore_merges && adds_bos);
    assert_true(pretok_from_gguf(STR("smollm"), &kind, &ignore_merges, &adds_bos));
    assert_true(kind == PRETOK_SMOLLM && !ignore_merges && !adds_bos);
    assert_false(pretok_from_gguf(STR("lfm"), &kind, &ignore_merges, &adds_bos));
    assert_false(pretok_from_gguf(STR(""), &kind, &ignore_merges, &adds_bos));
    assert_false(pretok_from_regex(STR("\\p{L}+"), &kind));
    assert_false(pretok_from_regex(STR(""), &kind));
}

static void check_pieces(enum pretok_kind kind, struct str text, const char *expected) {
    struct pretok p;
    struct str piece;
    char shown[256];
    size_t len = 0;
    pretok_init(&p, &map, kind, text);
    while (pretok_next(&p, &piece)) {
        memcpy(shown + len, piece.data, piece.len);
        len += piece.len;
        shown[len++] = '|';
    }
    shown[len] = 0;
    assert_string_equal(shown, expected);
}

static void test_pieces(void **state) {
    (void)state;
    check_pieces(PRETOK_LLAMA3, STR("I'Ll say 12345\r\n\n  x"), "I|'Ll| say| |123|45|\r\n\n| | x|");
    check_pieces(PRETOK_QWEN2, STR("a12 b"), "a|1|2| b|");
    check_pieces(PRETOK_GPT2, STR("I'Ll I'll 123 \n x  "), "I|'|Ll| I|'ll| 123| \n| x|  |");
    check_pieces(PRETOK_SMOLLM, STR("x  12 3"), "x|  |1|2| |3|");
    // Ill-formed bytes are no letters, digits or blanks; one may stand before a word as any other sign.
    check_pieces(PRETOK_LLAMA3,
                 STR("a\xff\xfe"
                     "b 1\xe2\x82 2"),
                 "a|\xff\xfe|b| |1|\xe2\x82| |2|");
    check_pieces(PRETOK_LLAMA3, STR("\xf0\x9f\x98"), "\xf0\x9f\x98|");
    check_pieces(PRETOK_GPT2,
                 STR(" \xff"
                     "a"),
                 " \xff|a|");
    check_pieces(PRETOK_LLAMA3, STR("'"), "'|");
    check_pieces(PRETOK_LLAMA3, STR("'\xc5"), "'\xc5|");
    check_pieces(PRETOK_LLAMA3, STR("'\xc5\xbf"), "'\xc5\xbf|");
}

// Any bytes: pieces are never empty and give the text back; the characters looked at stay below a few per byte.
static void test_any_bytes(void **state) {
    (void)state;
    uint64_t x = 88172645463325252u;
    static const char parts[] = " \t\r\n'aZ1\xc2\x85\xe3\x80\x80\xff\xcc\x81\xd9\xa3!s";
    for (int round = 0; round < 4000; round++) {
        char text[200];
        size_t n = random_next(&x) % sizeof text;
        for (size_t i = 0; i < n; i++) {
            uint64_t r = random_next(&x);
            text[i] = r % 4 ? parts[r / 4 % (sizeof parts - 1)] : (char)(r >> 32);
        }
        struct pretok p;
        struct str piece;
        size_t at = 0;
        pretok_init(&p, &map, (enum pretok_kind)(round % PRETOK_COUNT), (struct str){text, n});
        while (pretok_next(&p, &piece)) {
            assert_true(piece.len > 0);
            assert_ptr_equal(piece.data, text + at);
            at += piece.len;
        }
        assert_int_equal(at, n);
        assert_true(p.n_steps <= 4 * n + 4);
    }
}

int main(void) {
    unicode_map_init(&map);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_any_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
