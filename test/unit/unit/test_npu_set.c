// Compiled sets: the engine's weights come from a set, equal bits as without; from the cache the second time; a set
// that is damaged, of another model or of another version is refused by name; what was measured is chosen.
#define _GNU_SOURCE 1
#include "../base/base_test.h"
#include "../../common/tiny_model.h"
#include "unit/npu/pack_buckets.h"
#include "unit/npu/pack_choice.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256], set_dir[300];
static struct model *model, *other;

static void notes_take(void *arg, const char *text) {
    struct buf *b = arg;
    buf_putf(b, "%s\n", text);
}

static enum tern_status set_make(const struct model *m, const char *backend, const char *dir, bool *was_there,
                                 struct buf *notes, struct tern_err *err) {
    struct unit_npu_compile_options o = {
        .backend = backend, .dir = dir, .n_threads = 1, .on_note = notes ? notes_take : NULL, .arg = notes};
    return unit_npu_compile(m, &o, was_there, err);
}

#define STEP_ROWS 40
#define BLOCKS 16

// Logits behind a text of n tokens in steps of 40 rows at most; else the status of opening.
static enum tern_status text_run(const char *unit, const struct model *m, bool pack_cache, int n, float *out,
                                 struct weights_info *info, struct tern_err *err) {
    struct unit *u = NULL;
    struct unit_weights *w = NULL;
    struct prog *p = NULL;
    struct unit_program *program = NULL;
    struct unit_buffer *buffers[3];
    struct state_pool pool = {.n_blocks = BLOCKS, .n_slots = 1};
    int32_t blocks[BLOCKS];
    struct step_builder b;
    struct arena arena;
    enum tern_status status = unit_open(&u, unit, &(struct unit_options){.n_threads = 1}, err);
    if (status != TERN_OK) return status;
    const struct unit_driver *d = unit_driver_of(u);
    struct weights_options o = {.numerics = PROG_CLASS_INT8, .pack_cache = pack_cache};
    status = d->weights_import(u, &w, m, &o, info, err);
    if (status != TERN_OK) {
        unit_close(u);
        return status;
    }
    arena_init(&arena, 0);
    struct prog_spec spec = {.kind = PROG_WHOLE,
                             .numerics = PROG_CLASS_INT8,
                             .kv_type = OP_KV_F16,
                             .window = 64,
                             .n_out_max = -1,
                             .outputs = PROG_OUT_LOGITS};
    assert_ok(prog_build(&p, m, &spec, err));
    assert_ok(d->program_compile(u, &program, p, w, err));
    assert_ok(state_layout_init(&pool.layout, m, OP_KV_F16, 0, m->hyper.n_layers, 64, err));
    uint64_t kv = 0, conv = 0;
    assert_true(state_kv_bytes(&pool.layout, BLOCKS, &kv) && state_conv_bytes(&pool.layout, 1, &conv));
    const uint64_t bytes[] = {kv, conv, 64 * (uint64_t)m->hyper.n_vocab * sizeof(float)};
    for (int i = 0; i < 3; i++) assert_ok(d->buffer_alloc(u, &buffers[i], bytes[i], err));
    pool.kv = buffers[0];
    pool.conv = buffers[1];
    assert_ok(step_builder_init(&b, &arena, 64, m->hyper.conv_len, 1, err));
    for (int i = 0; i < BLOCKS; i++) blocks[i] = i;
    for (int at = 0; at < n; at += STEP_ROWS) {
        struct unit_event event;
        step_begin(&b, &pool, 0);
        int q = step_add_seq(&b, blocks, BLOCKS, at, at > 0 ? 0 : -1, 0);
        for (int i = at; i < MIN(at + STEP_ROWS, n); i++)
            step_add_chain_row(&b, q, (i * 7 + 3) % m->hyper.n_vocab, i == n - 1 || i == at + STEP_ROWS - 1);
        b.step.ports[PORT_LOGITS].buf = buffers[2];
        assert_ok(d->submit(u, program, step_end(&b), &event, err));
    }
    memcpy(out, d->buffer_host(buffers[2]), (size_t)m->hyper.n_vocab * sizeof(float));
    for (int i = 0; i < 3; i++) d->buffer_free(u, buffers[i]);
    d->program_free(u, program);
    prog_free(p);
    d->weights_free(u, w);
    unit_close(u);
    arena_release(&arena);
    return TERN_OK;
}

static enum tern_status logits_get(const char *unit, const struct model *m, bool pack_cache, float *out,
                                   struct weights_info *info, struct tern_err *err) {
    return text_run(unit, m, pack_cache, STEP_ROWS, out, info, err);
}

// Memory of a unit with all programs of two windows and three buckets beside that of the weights, which lie in a file:
// no program has a copy of them, nor memory of its own for values.
static void test_memory(void **state) {
    (void)state;
    static const uint32_t gives[] = {0, PROG_OUT_ARGMAX, PROG_OUT_LOGITS};
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F16, 3);
    shape.n_embd = 512;
    shape.n_ff = 2048;
    shape.n_vocab = 8000;
    struct model *m = tiny_model_create(&shape);
    struct unit *u = NULL;
    struct unit_weights *w = NULL;
    struct weights_info info;
    struct prog *p[6];
    struct unit_program *programs[6];
    struct weights_options o = {.numerics = PROG_CLASS_INT8, .pack_cache = true};
    uint64_t begin = 0;
    snprintf(m->digest, sizeof m->digest, "%064d", 3);
    setenv("TERN_NPU_CTX", "1024", 1);
    assert_ok(unit_open(&u, "npu", &(struct unit_options){.n_threads = 1}, &test_err));
    const struct unit_driver *d = unit_driver_of(u);
    for (int start = 0; start < 2; start++) {
        begin = mem_stats_get().bytes_now;
        assert_ok(d->weights_import(u, &w, m, &o, &info, &test_err));
        if (start == 0) d->weights_free(u, w);
    }
    assert_true(info.from_cache);
    double weights = (double)info.bytes, imported = (double)(mem_stats_get().bytes_now - begin);
    for (int i = 0; i < 6; i++) {
        struct prog_spec spec = {.kind = PROG_WHOLE,
                                 .numerics = PROG_CLASS_INT8,
                                 .kv_type = OP_KV_F16,
                                 .window = i < 3 ? 64 : 32,
                                 .n_out_max = gives[i % 3] ? -1 : 0,
                                 .outputs = gives[i % 3]};
        assert_ok(prog_build(&p[i], m, &spec, &test_err));
        assert_ok(d->program_compile(u, &programs[i], p[i], w, &test_err));
    }
    double all = (double)(mem_stats_get().bytes_now - begin);
    if (getenv("TEST_VERBOSE"))
        print_message("weights %.2f MiB; beside them: imported %.3f of it, with all programs %.3f\n",
                      weights / (1 << 20), imported / weights, all / weights);
    assert_true(imported < 0.05 * weights);
    assert_true(all < 0.4 * weights); // with the weights themselves: 1.4
    for (int i = 0; i < 6; i++) {
        d->program_free(u, programs[i]);
        prog_free(p[i]);
    }
    d->weights_free(u, w);
    unit_close(u);
    tiny_model_free(m);
    setenv("TERN_NPU_CTX", "256", 1);
}

#define N 4096
static float want[N], have[N];

static void same(void) {
    for (int i = 0; i < model->hyper.n_vocab; i++) assert_int_equal(f32_bits(have[i]), f32_bits(want[i]));
}

static void test_equal_from_a_set(void **state) {
    (void)state;
    struct weights_info info;
    bool was_there = true;
    struct buf notes;
    assert_ok(logits_get("npu", model, false, want, &info, &test_err));
    assert_false(info.from_cache);
    buf_init(&notes, 1 << 16);
    assert_ok(set_make(model, "coreai-linux", set_dir, &was_there, &notes, &test_err));
    assert_false(was_there);
    buf_putc(&notes, 0);
    assert_contains(notes.data, "switch point: ");
    assert_contains(notes.data, "is ruled out: ");
    buf_release(&notes);
    assert_ok(set_make(model, "coreai-linux", set_dir, &was_there, NULL, &test_err));
    assert_true(was_there);
    setenv("TERN_NPU_SET", set_dir, 1);
    setenv("TERN_NPU_CHUNKS", "1", 1); // what was cheaper on this machine has other last bits
    assert_ok(logits_get("npu", model, true, have, &info, &test_err));
    assert_true(info.from_cache);
    same();
    unsetenv("TERN_NPU_CHUNKS");
    unsetenv("TERN_NPU_SET");
}

static void test_equal_from_the_cache(void **state) {
    (void)state;
    struct weights_info info;
    assert_ok(logits_get("npu", model, false, want, &info, &test_err));
    for (int start = 0; start < 2; start++) {
        assert_ok(logits_get("npu", model, true, have, &info, &test_err));
        assert_int_equal(info.from_cache, start == 1);
        assert_null(info.cache_note);
        same();
    }
    assert_ok(logits_get("npu:coreai-linux+f16", model, true, have, &info, &test_err)); // another entry
    assert_false(info.from_cache);
    assert_ok(logits_get("npu", other, true, have, &info, &test_err));
    assert_false(info.from_cache);
}

static void bucket_512(char *data, size_t *len);
static void copy_with(const char *name, const char *file, void (*change)(char *data, size_t *len));

// Switching buckets loses nothing: a text that grows beyond the first bucket gives the bits of one that was in the
// second from the start. A bucket chosen one too small would leave positions out.
static void test_switch(void **state) {
    (void)state;
    static const int lengths[] = {250, 256, 257, 290};
    struct weights_info info;
    setenv("TERN_NPU_CHUNKS", "1", 1);
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
        setenv("TERN_NPU_CTX", "512", 1); // 256 and 512
        assert_ok(text_run("npu", model, true, lengths[i], want, &info, &test_err));
        unsetenv("TERN_NPU_CTX"); // the set's: 512 alone
        copy_with("wide", NPU_SET_PROGRAMS, bucket_512);
        assert_ok(text_run("npu", model, true, lengths[i], have, &info, &test_err));
        same();
        unsetenv("TERN_NPU_SET");
    }
    unsetenv("TERN_NPU_CHUNKS");
    setenv("TERN_NPU_CTX", "256", 1);
    assert_ok(text_run("npu", model, true, 256, have, &info, &test_err));
}

// A copy of the set with one file changed.
static void copy_with(const char *name, const char *file, void (*change)(char *data, size_t *len)) {
    static const char *const files[] = {NPU_SET_FILE, NPU_SET_PROGRAMS};
    char from[400], to[700], dir[600];
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    assert_ok(os_mkdirs(dir, &test_err));
    for (int i = 0; i < 2; i++) {
        struct buf b;
        buf_init(&b, 16 << 20);
        snprintf(from, sizeof from, "%s/%s", set_dir, files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        assert_ok(file_read_all(&b, from, &test_err));
        size_t len = b.len;
        if (strcmp(files[i], file) == 0) change(b.data, &len);
        assert_ok(file_write_atomic(to, b.data, len, &test_err));
        buf_release(&b);
    }
    setenv("TERN_NPU_SET", dir, 1);
}

static void bucket_512(char *data, size_t *len) {
    char *at = memmem(data, *len, "\"bucket\":256", 12);
    assert_non_null(at);
    memcpy(at + 9, "512", 3);
}
static void cut(char *data, size_t *len) { (void)data, *len /= 2; }
static void header_flip(char *data, size_t *len) { (void)len, data[90] ^= 1; }
static void version_change(char *data, size_t *len) {
    char *at = memmem(data, *len, "\"version\":2", 11);
    assert_non_null(at);
    at[10] = '9';
}
static void key_end(char *data, size_t *len) { (void)data, *len = 20; }

static void refused(const struct model *m, enum tern_status status, const char *message) {
    struct weights_info info;
    struct tern_err err;
    uint64_t n_live = mem_stats_get().n_live;
    assert_int_equal(logits_get("npu", m, true, have, &info, &err), status);
    assert_contains(err.message, message);
    assert_int_equal(mem_stats_get().n_live, n_live);
    unsetenv("TERN_NPU_SET");
}

static void test_refused(void **state) {
    (void)state;
    setenv("TERN_NPU_SET", set_dir, 1);
    refused(other, TERN_MISMATCH, "made for another model");
    setenv("TERN_NPU_SET", "/nonexistent", 1);
    refused(model, TERN_UNSUPPORTED, "tern compile --npu -o DIR");
    copy_with("cut", NPU_SET_FILE, cut);
    refused(model, TERN_BAD_FORMAT, "truncated");
    copy_with("flip", NPU_SET_FILE, header_flip);
    refused(model, TERN_BAD_FORMAT, NPU_SET_FILE);
    copy_with("version", NPU_SET_PROGRAMS, version_change);
    refused(model, TERN_UNSUPPORTED, "compile it again");
    copy_with("json", NPU_SET_PROGRAMS, key_end);
    refused(model, TERN_UNSUPPORTED, NPU_SET_PROGRAMS);
}

struct rows {
    int n_sets, n_bad;
    char bad[512];
};
static void row_take(void *arg, const char *name, bool usable, const char *note) {
    struct rows *r = arg;
    if (strcmp(name, "set") != 0) return;
    r->n_sets++;
    if (usable) return;
    r->n_bad++;
    snprintf(r->bad, sizeof r->bad, "%s", note);
}
static void doctor_says(bool usable, const char *unit_reason, const char *set_note) {
    const char *reason = "";
    struct rows r = {0};
    assert_int_equal(unit_npu_driver.probe(&reason), usable);
    assert_contains(reason, unit_reason);
    unit_npu_backends_each(row_take, &r);
    assert_int_equal(r.n_bad, set_note != NULL);
    if (set_note) assert_contains(r.bad, set_note);
    if (getenv("TERN_NPU_SET")) assert_true(r.n_sets > 0);
}
static void not_whole(char *data, size_t *len) {
    static const char now[] = "\"whole\":false,\"fault\":\"argmax_32_256 would not run on NPU alone\"";
    char *at = memmem(data, *len, "\"whole\":true", 12);
    assert_non_null(at);
    size_t more = sizeof now - 1 - 12;
    memmove(at + 12 + more, at + 12, *len - (size_t)(at + 12 - data));
    memcpy(at, now, sizeof now - 1);
    *len += more;
}

// What tern doctor tells of a unit that its environment makes unusable.
static void test_doctor(void **state) {
    (void)state;
    doctor_says(true, "neural engines", NULL);
    setenv("TERN_NPU_SET", set_dir, 1);
    doctor_says(true, "neural engines", NULL);
    setenv("TERN_NPU_SET", "/nonexistent", 1);
    doctor_says(false, "tern compile --npu -o DIR", "/nonexistent");
    copy_with("json", NPU_SET_PROGRAMS, key_end);
    doctor_says(false, NPU_SET_PROGRAMS, NPU_SET_PROGRAMS);
    copy_with("part", NPU_SET_PROGRAMS, not_whole);
    doctor_says(true, "neural engines", "would not run on NPU alone");
    unsetenv("TERN_NPU_SET");
    static const char *const texts[] = {"abc", "0", "256,128", "256,", "20000", "1,2,3,4,5,6,7,8,9"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        setenv("TERN_NPU_CTX", texts[i], 1);
        doctor_says(false, "TERN_NPU_CTX='", NULL);
        refused(model, TERN_UNSUPPORTED, "TERN_NPU_CTX='");
    }
    setenv("TERN_NPU_CTX", "256", 1);
}

struct runtime_row {
    const char *name, *said;
    bool seen;
};
static void runtime_take(void *arg, const char *name, bool usable, const char *note) {
    struct runtime_row *r = arg;
    if (strcmp(name, r->name) != 0) return;
    assert_false(usable);
    assert_contains(note, r->said);
    r->seen = true;
}

static void file_make(char *path, size_t cap, const char *name, const char *text, int mode) {
    snprintf(path, cap, "%s/%s", root, name);
    assert_ok(file_write_atomic(path, text, strlen(text), &test_err));
    assert_int_equal(chmod(path, (mode_t)mode), 0);
}

// Runtimes that are missing, of another program, too old or dead, and an asset that is damaged: the same reason in
// tern doctor and from the unit.
static void test_runtimes(void **state) {
    (void)state;
    char old[500], dead[500], asset[500];
    file_make(old, sizeof old, "old-python", "#!/bin/sh\necho 'ready 1.0.0b2'\ncat\n", 0700);
    file_make(dead, sizeof dead, "dead-python", "#!/bin/sh\necho 'no module named coreai' >&2\nexit 3\n", 0700);
    file_make(asset, sizeof asset, "metadata.json", "{\"assetVersion\":", 0600);
    const struct {
        const char *name, *variable, *value, *said;
    } cases[] = {
        {"ort", "TERN_ORT_LIBRARY", "/nonexistent.so", "there is no file '/nonexistent.so', named by TERN_ORT_LIBRARY"},
        {"ort", "TERN_ORT_LIBRARY", FAKE_OLD, "or later is needed"},
        {"ort", "TERN_ORT_LIBRARY", FAKE_OTHER, "is not ONNX Runtime"},
        {"openvino", "TERN_OPENVINO_LIBRARY", "/nonexistent.so", "named by TERN_OPENVINO_LIBRARY"},
        {"openvino", "TERN_OPENVINO_LIBRARY", FAKE_OLD_OPENVINO, "2025 or later is needed"},
        {"openvino", "TERN_OPENVINO_LIBRARY", FAKE_OTHER, "it is not OpenVINO, or one older than"},
        {"coreai", "TERN_COREAI_PYTHON", "/nonexistent", "named by TERN_COREAI_PYTHON"},
        {"coreai", "TERN_COREAI_PYTHON", old, "coreai-core is 1.0.0b2; 1.0.0b3 or later is needed"},
        {"coreai", "TERN_COREAI_PYTHON", dead, "the runtime does not start"},
        {"coreai", "TERN_COREAI_ASSET", root, "metadata.json"},
        {"apple", "TERN_COREAI_SHIM", FAKE_OTHER, "has no function tern_coreai_load"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct runtime_row row = {cases[i].name, cases[i].said, false};
        char unit[32];
        struct unit *u = NULL;
        struct tern_err err;
        if (cases[i].value == root) setenv("TERN_COREAI_PYTHON", old, 1); // there is one, and it is not asked
        setenv(cases[i].variable, cases[i].value, 1);
        unit_npu_backends_each(runtime_take, &row);
        assert_true(row.seen);
        snprintf(unit, sizeof unit, "npu:%s", cases[i].name);
        if (!getenv("TERN_COREAI_ASSET")) setenv("TERN_COREAI_ASSET", "/nonexistent.aimodel", 1);
        assert_true(unit_open(&u, unit, &(struct unit_options){.n_threads = 1}, &err) != TERN_OK);
        // The asset is looked at before Python starts, so of Python that starts and fails nothing is said there.
        if (cases[i].value != old && cases[i].value != dead) assert_contains(err.message, cases[i].said);
        unsetenv("TERN_COREAI_ASSET");
        unsetenv("TERN_COREAI_PYTHON");
        unsetenv(cases[i].variable);
    }
}

// The set's window is the engine's; of a set for another back end nothing is taken.
static void window_48(char *data, size_t *len) {
    char *at = memmem(data, *len, "\"window\":", 9);
    assert_non_null(at);
    size_t digits = strspn(at + 9, "0123456789");
    memset(at + 9, ' ', digits);
    memcpy(at + 9, "48", 2);
}
static void advice_is(const char *unit, int window, int ctx_max) {
    struct unit *u;
    struct unit_advice a;
    assert_ok(unit_open(&u, unit, &(struct unit_options){.n_threads = 1}, &test_err));
    assert_ok(unit_advise(u, model, true, &a, &test_err));
    assert_int_equal(a.window, window);
    assert_int_equal(a.ctx_max, ctx_max);
    unit_close(u);
}
static void test_advice(void **state) {
    (void)state;
    copy_with("window", NPU_SET_PROGRAMS, window_48);
    advice_is("npu", 48, 256);
    advice_is("npu:fp32", 0, 256);
    setenv("TERN_NPU_CTX", "96,300,1000", 1);
    advice_is("npu", 48, 1024);
    setenv("TERN_NPU_CTX", "300", 1);
    advice_is("npu:ane-m1", 0, 320);
    advice_is("cpu", 0, 0);
    setenv("TERN_NPU_CTX", "256", 1);
    unsetenv("TERN_NPU_SET");
}

// A full cache: a set says so and where else it may go; a run goes on without and tells.
static void test_cache_full(void **state) {
    (void)state;
    struct weights_info info;
    bool was_there;
    struct tern_err err;
    char cache[400];
    snprintf(cache, sizeof cache, "%s/full", root);
    char *kept = getenv("XDG_CACHE_HOME") ? strdup(getenv("XDG_CACHE_HOME")) : NULL;
    setenv("XDG_CACHE_HOME", cache, 1);
    setenv("TERN_CACHE_BYTES", "1000", 1);
    assert_int_equal(set_make(model, "coreai-linux", NULL, &was_there, NULL, &err), TERN_IO);
    assert_contains(err.message, "TERN_CACHE_BYTES");
    assert_contains(err.message, "-o DIR");
    assert_ok(logits_get("npu", model, true, have, &info, &test_err));
    assert_non_null(info.cache_note);
    unsetenv("TERN_CACHE_BYTES");
    if (kept) setenv("XDG_CACHE_HOME", kept, 1);
    free(kept);
}

// Both forms of attention are the same function; which one runs is the set's choice.
static void test_chunks(void **state) {
    (void)state;
    struct weights_info info;
    float far = 0, top = 0;
    int n_other = 0;
    assert_ok(logits_get("npu", model, false, want, &info, &test_err));
    setenv("TERN_NPU_CHUNKS", "8", 1);
    assert_ok(logits_get("npu", model, false, have, &info, &test_err));
    unsetenv("TERN_NPU_CHUNKS");
    for (int i = 0; i < model->hyper.n_vocab; i++) {
        float d = have[i] > want[i] ? have[i] - want[i] : want[i] - have[i];
        far = MAX(far, d);
        top = MAX(top, want[i] > 0 ? want[i] : -want[i]);
        n_other += f32_bits(have[i]) != f32_bits(want[i]);
    }
    assert_true(n_other > 0); // a class of its own
    assert_true(far < 0.02f * top);
    struct npu_choice c = {.n = 2, .buckets = {{.bucket = 256, .chunks = 1}, {.bucket = 512, .chunks = 8}}};
    char text[128];
    assert_int_equal(npu_choice_chunks(&c, 256, 64), 1);
    assert_int_equal(npu_choice_chunks(&c, 512, 64), 8);
    assert_int_equal(npu_choice_chunks(&c, 1024, 64), 1); // not measured
    assert_int_equal(npu_choice_chunks(NULL, 512, 64), 1);
    c.buckets[0].bucket = 64;
    c.buckets[0].chunks = 8;
    assert_int_equal(npu_choice_chunks(&c, 64, 64), 1); // fewer blocks than chunks
    c.buckets[0] = (struct npu_choice_bucket){.bucket = 256, .chunks = 1};
    npu_choice_text(&c, text, sizeof text);
    assert_string_equal(text, "plain, 8 chunks of attention from 512 columns on");
}

static void test_parse(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum tern_status status;
    } cases[] = {
        {"{\"version\":2,\"model\":\"m\",\"backend\":\"ort\",\"buckets\":[{\"bucket\":256,\"chunks\":8}]}", TERN_OK},
        {"{\"version\":2,\"model\":\"m\",\"backend\":\"ort\",\"new\":[1]}", TERN_OK},
        {"{\"version\":1,\"model\":\"m\",\"backend\":\"ort\"}", TERN_MISMATCH},
        {"{\"version\":2,\"model\":\"m\"}", TERN_BAD_FORMAT},
        {"{\"version\":2,\"model\":\"m\",\"backend\":\"ort\",\"buckets\":[{\"bucket\":256,\"chunks\":3}]}",
         TERN_BAD_FORMAT},
        {"{\"version\":2,\"model\":\"m\",\"backend\":\"ort\",\"buckets\":[{\"bucket\":0,\"chunks\":1}]}",
         TERN_BAD_FORMAT},
        {"{\"version\":2,\"model\":\"m\",\"backend\":\"ort\",\"buckets\":[{\"bucket\":512,\"chunks\":1},{\"bucket\":"
         "256,\"chunks\":1}]}",
         TERN_BAD_FORMAT},
        {"{\"version\":2,\"model\":\"m\",\"backend\":\"ort\",\"window\":-1}", TERN_BAD_FORMAT},
        {"{\"version\":2.5}", TERN_BAD_FORMAT},
        {"{\"version\":2", TERN_BAD_FORMAT},
        {"[]", TERN_BAD_FORMAT},
        {"", TERN_BAD_FORMAT},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct npu_choice c;
        struct tern_err err;
        enum tern_status status = npu_choice_parse(&c, str_from(cases[i].text), "set.json", &err);
        if (status != cases[i].status) fail_msg("case %zu: status %d", i, (int)status);
        if (status != TERN_OK) assert_contains(err.message, "set.json");
    }
}

// Against every division of 12 places into at most 3 buckets.
static void test_buckets(void **state) {
    (void)state;
    const struct npu_buckets_cost points[] = {{32, 10}, {128, 14}, {384, 50}};
    uint64_t seed = 5, steps[12];
    for (int round = 0; round < 50; round++) {
        int out[NPU_BUCKETS_MAX];
        for (int i = 0; i < 12; i++) steps[i] = tiny_random(&seed) % (round < 25 ? 100 : 3);
        int n = npu_buckets_choose(steps, 12, points, 3, 384, 3, out);
        assert_true(n >= 1 && n <= 3 && out[n - 1] == 384);
        double mean = npu_buckets_ms(steps, 12, points, 3, out, n), best = 1e9;
        for (int a = 1; a <= 12; a++)
            for (int b = a; b <= 12; b++) {
                const int cut[] = {a * NPU_BLOCK, b * NPU_BLOCK, 384};
                best = MIN(best, npu_buckets_ms(steps, 12, points, 3, cut, 3));
            }
        if (mean > best * 1.000001) fail_msg("round %d: %g ms, %g are possible", round, mean, best);
    }
    assert_float_equal(npu_bucket_ms(points, 3, 80), 12, 1e-9);
    assert_float_equal(npu_bucket_ms(points, 3, 640), 86, 1e-9);
    int out[NPU_BUCKETS_MAX];
    memset(steps, 0, sizeof steps);
    assert_int_equal(npu_buckets_choose(steps, 12, points, 3, 384, 3, out), 1);
    assert_int_equal(out[0], 384);
}

int main(void) {
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1), second = tiny_lfm2_shape(FORMAT_F32, 2);
    snprintf(root, sizeof root, "/tmp/tern-set-XXXXXX");
    if (!mkdtemp(root)) return 1;
    snprintf(set_dir, sizeof set_dir, "%s/set", root);
    setenv("XDG_CACHE_HOME", root, 1);
    setenv("TERN_NPU_CTX", "256", 1); // one bucket
    model = tiny_model_create(&shape);
    other = tiny_model_create(&second);
    snprintf(model->digest, sizeof model->digest, "%064d", 1);
    snprintf(other->digest, sizeof other->digest, "%064d", 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_from_a_set), cmocka_unit_test(test_equal_from_the_cache),
        cmocka_unit_test(test_memory),           cmocka_unit_test(test_refused),
        cmocka_unit_test(test_chunks),           cmocka_unit_test(test_parse),
        cmocka_unit_test(test_buckets),          cmocka_unit_test(test_switch),
        cmocka_unit_test(test_doctor),           cmocka_unit_test(test_runtimes),
        cmocka_unit_test(test_cache_full),       cmocka_unit_test(test_advice)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    tiny_model_free(model);
    tiny_model_free(other);
    const char *const argv[] = {"rm", "-rf", root, NULL};
    struct child_options o = {.argv = argv};
    struct os_child c;
    struct child_result r;
    if (child_open(&c, &o, NULL) == TERN_OK) child_wait(&c, 60000, &r, NULL);
    return rc;
}
