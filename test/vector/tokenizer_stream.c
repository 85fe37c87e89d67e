// Tokenizes a stream of byte strings, for comparison with a reference (tools/tokenizer_differential.py):
//
//   tokenizer_stream TOKENIZER [--plain] [--bench]
//
// TOKENIZER: a tokenizer.json, or a GGUF model. Standard input: for each string its length (4 bytes, little-endian) and
// its bytes. Standard output: for each string one line with its ids, without a bos token. A string that the vocabulary
// cannot spell gives "E offset"; one whose tokens do not give its bytes back, "R". --plain: control tokens are not read
// out of the text. --bench: all input is one text; prints times to standard error.
#include "base/base.h"
#include "model/model.h"
#include "text/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what, const char *message) {
    fprintf(stderr, "tokenizer_stream: %s: %s\n", what, message);
    return 1;
}

static enum tern_status tokenizer_load(struct tokenizer **out, const char *path, struct tern_err *err) {
    struct str name = str_from(path);
    if (!str_ends(name, STR(".gguf"))) {
        struct buf file;
        buf_init(&file, 256u << 20);
        enum tern_status status = file_read_all(&file, path, err);
        struct tokenizer_source src = {.tokenizer_json = buf_str(&file), .bos = -1, .eos = -1, .add_bos = -1};
        uint64_t start = clock_ns();
        if (status == TERN_OK) status = tokenizer_create(out, &src, err);
        if (env_get("TERN_BENCH")) fprintf(stderr, "created in %.1f ms\n", (double)(clock_ns() - start) * 1e-6);
        buf_release(&file);
        return status;
    }
    struct model *m;
    TRY(model_open(&m, path, err));
    const struct model_vocab *v = &m->vocab;
    struct tokenizer_source src = {.tokens = v->tokens,
                                   .n_tokens = v->n_tokens,
                                   .types = v->types,
                                   .merges = v->merges,
                                   .n_merges = v->n_merges,
                                   .pre = v->pre,
                                   .n_vocab_rows = m->hyper.n_vocab,
                                   .bos = v->bos,
                                   .eos = v->eos,
                                   .add_bos = v->add_bos};
    uint64_t start = clock_ns();
    enum tern_status status = tokenizer_create(out, &src, err);
    if (env_get("TERN_BENCH")) fprintf(stderr, "created in %.1f ms\n", (double)(clock_ns() - start) * 1e-6);
    model_close(m);
    return status;
}

static bool gives_back(const struct tokenizer *t, const struct id_list *ids, struct str text) {
    size_t at = 0;
    for (size_t i = 0; i < ids->len; i++) {
        struct str bytes = tokenizer_token_bytes(t, ids->ids[i]);
        if (text.len - at < bytes.len || memcmp(text.data + at, bytes.data, bytes.len) != 0) return false;
        at += bytes.len;
    }
    return at == text.len;
}

static int bench(const struct tokenizer *t, struct str text, const struct encode_options *o) {
    struct id_list ids = {0};
    struct tern_err err;
    double best = 1e9;
    for (int round = 0; round < 5; round++) {
        ids.len = 0;
        uint64_t start = clock_ns();
        if (tokenizer_encode(t, &ids, text, o, &err) != TERN_OK) return fail("encode", err.message);
        double s = (double)(clock_ns() - start) * 1e-9;
        best = MIN(best, s);
    }
    fprintf(stderr, "%zu bytes, %zu tokens, best of 5: %.3f s, %.1f MB/s\n", text.len, ids.len, best,
            (double)text.len / best * 1e-6);
    id_list_release(&ids);
    return 0;
}

static void one_line(const struct tokenizer *t, struct str text, const struct encode_options *o, struct id_list *ids) {
    struct tern_err err;
    ids->len = 0;
    if (tokenizer_encode(t, ids, text, o, &err) != TERN_OK) {
        printf("E %lld\n", (long long)err.pos);
    } else if (!gives_back(t, ids, text)) {
        puts("R");
    } else {
        for (size_t i = 0; i < ids->len; i++) printf("%s%d", i ? " " : "", ids->ids[i]);
        putchar('\n');
    }
}

int main(int argc, char **argv) {
    bool is_bench = false;
    struct encode_options o = {.parse_special = true};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--plain") == 0) o.parse_special = false;
        if (strcmp(argv[i], "--bench") == 0) is_bench = true;
    }
    struct tern_err err;
    struct tokenizer *t = NULL;
    struct buf input;
    buf_init(&input, 1u << 30);
    if (argc < 2) return fail("usage", "tokenizer_stream TOKENIZER [--plain] [--bench] < STRINGS");
    if (tokenizer_load(&t, argv[1], &err) != TERN_OK) return fail(argv[1], err.message);
    if (file_read_all(&input, "-", &err) != TERN_OK) return fail("standard input", err.message);
    if (is_bench) return bench(t, buf_str(&input), &o);
    struct id_list ids = {0};
    for (size_t at = 0; at + 4 <= input.len;) {
        size_t len = load_u32(input.data + at);
        at += 4;
        if (len > input.len - at) return fail("standard input", "a string is cut short");
        char *copy = malloc(len + 1); // its own block, so that a sanitizer sees a read past the end
        if (!copy) return fail("memory", "none left");
        memcpy(copy, input.data + at, len);
        one_line(t, (struct str){copy, len}, &o, &ids);
        free(copy);
        at += len;
    }
    id_list_release(&ids);
    buf_release(&input);
    tokenizer_free(t);
    return 0;
}
