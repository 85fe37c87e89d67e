// Sets: a model's programs compiled ahead for a back end, its weights packed, and what was measured and chosen.
//
// A set holds what the engine asks for: windows of 32 and 64 rows and the chosen one, without a head, with argmax and
// with logits, for each bucket. Attention is timed in both forms, plain and in chunks, and each bucket takes the
// cheaper; windows of 32, 64, 96 and 128 rows are timed as steps that verify a tree, and the one with most accepted
// tokens a second is that of the engine, unless --window names another.
// Weights are the pack that the engine maps (npu_pack.c). What is made depends on nothing but the model, the lists and
// the runtime: their digest is the key in programs.json, and a folder with that key is not made again.
#include "unit/npu/coreai_int.h"
#include "unit/npu/pack_buckets.h"
#include "unit/npu/pack_choice.h"
#include "unit/npu/pack_list.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define PATH_LEN_MAX 4096
#define SET_WINDOW 64 // of chunk measurements
#define SET_LISTS_MAX (9 * NPU_BUCKETS_MAX)
#define SET_RUNS 3         // the fastest is reported; one of the evaluator and of Apple's interpreter
#define CHUNKS_MARGIN 1.05 // what is not measurably cheaper does not change the bits
#define MANIFEST_MAX ((size_t)16 << 20)

static const int windows[] = {32, 64, 96, 128};
static const struct {
    const char *name;
    uint32_t outputs;
} gives[] = {{"fill", 0}, {"argmax", PROG_OUT_ARGMAX}, {"logits", PROG_OUT_LOGITS}};
#define N_WINDOWS ((int)ARRAY_LEN(windows))
#define N_GIVES ((int)ARRAY_LEN(gives))

struct set {
    const struct model *m;
    const struct unit_npu_compile_options *o;
    const struct npu_backend_driver *driver; // NULL: the evaluator
    const struct npu_rules *rules;
    struct npu_backend *backend;
    bool keeps; // what the runtime compiles, in the set; the cache has no room for that
    struct team *team;
    struct npu_calibration *calibration;
    struct npu_scales scales;
    struct npu_pack pack;
    struct npu_store *store;
    struct prog *progs[4][3]; // [windows][gives]
    struct npu_list *lists[SET_LISTS_MAX];
    struct npu_compiled *open[SET_LISTS_MAX]; // kept where weights are shared, to know their memory
    int n_lists;
    int buckets[NPU_BUCKETS_MAX], n_buckets;
    struct npu_choice choice;
    double window_ms[4];
    char dir[PATH_LEN_MAX], label[64]; // what the set is for: npu_backend_label
    struct tern_err *err;
};

static enum tern_status path_join(char out[PATH_LEN_MAX], const char *dir, const char *name, struct tern_err *err) {
    if ((size_t)snprintf(out, PATH_LEN_MAX, "%s/%s", dir, name) < PATH_LEN_MAX) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is too long for a path", dir);
}

PRINTF_LIKE(2, 3) static void note(const struct set *c, const char *fmt, ...) {
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (c->o->on_note) c->o->on_note(c->o->arg, text);
}

static enum tern_status progs_build(struct set *c) {
    for (int w = 0; w < N_WINDOWS; w++)
        for (int g = 0; g < N_GIVES; g++) {
            struct prog_spec spec = {.kind = PROG_WHOLE,
                                     .numerics = PROG_CLASS_INT8,
                                     .kv_type = OP_KV_F16,
                                     .window = windows[w],
                                     .n_out_max = gives[g].outputs ? -1 : 0,
                                     .outputs = gives[g].outputs};
            TRY(prog_build(&c->progs[w][g], c->m, &spec, c->err));
        }
    return TERN_OK;
}

static void lists_free(struct set *c) {
    for (int i = 0; i < c->n_lists; i++) {
        if (c->open[i]) c->driver->free(c->open[i]);
        c->open[i] = NULL;
        npu_list_free(c->lists[i]);
    }
    c->n_lists = 0;
}

// Every program of the set, over the store that is there: of the windows that the engine uses, which are those up to 64
// rows and the chosen one.
static enum tern_status lists_make(struct set *c) {
    lists_free(c);
    for (int b = 0; b < c->n_buckets; b++)
        for (int w = 0; w < N_WINDOWS; w++)
            for (int g = 0; g < N_GIVES; g++) {
                if (windows[w] > SET_WINDOW && windows[w] != c->choice.window) continue;
                int chunks = npu_choice_chunks(&c->choice, c->buckets[b], windows[w]);
                TRY(npu_program_list(&c->lists[c->n_lists], c->progs[w][g], c->store, &c->scales, c->buckets[b], chunks,
                                     c->err));
                c->n_lists++;
            }
    return TERN_OK;
}

static const char *label(const struct set *c) { return c->driver ? c->label : c->rules->name; }

static enum tern_status key_make(struct set *c) {
    static const struct npu_backend_info none = {.version = "", .provider = ""};
    const struct npu_backend_info *info = c->backend ? &npu_backend_base_of(c->backend)->info : &none;
    struct buf json;
    struct sha256 s;
    uint8_t digest[32];
    const char *const parts[] = {"tern npu set 3", c->m->digest, label(c), info->version, info->provider};
    buf_init(&json, COREAI_TEMPLATE_TEXT_MAX);
    if (!npu_lists_json(&json, (const struct npu_list *const *)c->lists, c->n_lists)) {
        buf_release(&json);
        return err_set(c->err, TERN_NO_MEMORY, "no memory for the text of %d programs", c->n_lists);
    }
    sha256_init(&s);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) sha256_update(&s, parts[i], strlen(parts[i]) + 1);
    sha256_update(&s, &c->pack.wanted.variant, sizeof c->pack.wanted.variant);
    if (c->o->steps) sha256_update(&s, c->o->steps, (size_t)c->o->n_steps * sizeof *c->o->steps);
    sha256_update(&s, json.data, json.len);
    sha256_final(&s, digest);
    sha256_hex(digest, c->choice.key);
    enum tern_status status = TERN_OK;
    char path[PATH_LEN_MAX];
    if (c->driver == &npu_coreai_backend) { // what make_template.py reads
        status = path_join(path, c->dir, "lists.json", c->err);
        if (status == TERN_OK) status = file_write_atomic(path, json.data, json.len, c->err);
    }
    buf_release(&json);
    return status;
}

// Does the folder hold this set, whole?
static bool is_there(struct set *c) {
    char path[PATH_LEN_MAX];
    struct npu_choice found;
    struct buf text;
    buf_init(&text, MANIFEST_MAX);
    bool same = path_join(path, c->dir, NPU_SET_PROGRAMS, NULL) == TERN_OK &&
                file_read_all(&text, path, NULL) == TERN_OK &&
                npu_choice_parse(&found, buf_str(&text), path, NULL) == TERN_OK &&
                strcmp(found.key, c->choice.key) == 0 && found.whole;
    buf_release(&text);
    if (!same) return false;
    if (!c->o->dir) return pack_cache_has(&c->pack.wanted);
    return path_join(path, c->dir, NPU_SET_FILE, NULL) == TERN_OK &&
           pack_file_verify(path, &c->pack.wanted, NULL) == TERN_OK;
}

static enum tern_status weights_open(struct set *c) {
    char path[PATH_LEN_MAX], why[PACK_NOTE_MAX] = "";
    bool made = true;
    uint64_t start = clock_ns();
    if (c->o->dir) {
        TRY(path_join(path, c->dir, NPU_SET_FILE, c->err));
        TRY(npu_pack_write(&c->pack, path, c->err));
        TRY(npu_pack_open(&c->pack, path, c->err));
    } else if (!npu_pack_from_cache(&c->pack, &made, why)) {
        return err_set(c->err, TERN_IO, "%s; -o DIR puts the set elsewhere", why);
    }
    char bytes[24];
    note(c, "weights: %s, %s in %.1f s", bytes_format(c->pack.wanted.payload_bytes, bytes),
         made ? "quantised and written" : "mapped", (double)(clock_ns() - start) * 1e-9);
    npu_store_free(c->store);
    c->store = NULL;
    return npu_pack_store(&c->pack, &c->store, c->err);
}

// ---------------------------------------------------------------------------------------------------------- programs

static void **zero_buffers(struct arena *a, const struct npu_list *l, const int *ids, int n) {
    void **out = arena_calloc(a, (size_t)MAX(n, 1), sizeof *out);
    for (int i = 0; out && i < n; i++) {
        out[i] = arena_calloc(a, (size_t)npu_tensor_len(&l->tensors[ids[i]]), 2);
        if (!out[i]) return NULL;
    }
    return out;
}

static enum tern_status evaluator_try(struct set *c, const struct npu_list *l, double *ms, char where[256]) {
    struct npu_eval *e = NULL;
    struct npu_eval_options o = {.rules = c->rules, .team = c->team};
    TRY(npu_eval_create(&e, l, &o, c->err));
    for (int i = 0; i < l->n_inputs; i++)
        memset(npu_eval_at(e, l->inputs[i]), 0, (size_t)npu_tensor_len(&l->tensors[l->inputs[i]]) * sizeof(float));
    uint64_t start = clock_ns();
    npu_eval_run(e);
    *ms = (double)(clock_ns() - start) * 1e-6;
    snprintf(where, 256, "evaluator: %d operations", l->n_ops);
    npu_eval_free(e);
    return TERN_OK;
}

// Compiles and runs one list: its milliseconds. *kept: the compiled list, for the caller, or NULL.
static enum tern_status program_try(struct set *c, const struct npu_list *l, struct npu_compiled **kept, double *ms,
                                    char where[256]) {
    struct npu_compiled *compiled = NULL;
    struct npu_binding *binding = NULL;
    struct arena a;
    enum tern_status status;
    if (!c->driver) return evaluator_try(c, l, ms, where);
    arena_init(&a, 0);
    struct npu_buffers io = {.inputs = zero_buffers(&a, l, l->inputs, l->n_inputs),
                             .outputs = zero_buffers(&a, l, l->outputs, l->n_outputs)};
    if (!io.inputs || !io.outputs) {
        status = err_set(c->err, TERN_NO_MEMORY, "no memory for the buffers of %s", l->name);
        goto done;
    }
    TRY_GOTO(c->driver->compile(c->backend, &compiled, l, c->err), done);
    TRY_GOTO(c->driver->bind(compiled, &binding, &io, c->err), done);
    snprintf(where, 256, "%s", npu_compiled_base_of(compiled)->placement.detail);
    for (int i = 0; i < (c->driver == &npu_coreai_backend ? 1 : SET_RUNS); i++) {
        uint64_t start = clock_ns();
        TRY_GOTO(c->driver->run(binding, c->err), done);
        double t = (double)(clock_ns() - start) * 1e-6;
        *ms = i == 0 ? t : MIN(*ms, t);
    }
done:
    if (binding) c->driver->unbind(binding);
    if (kept && status == TERN_OK)
        *kept = compiled;
    else if (compiled)
        c->driver->free(compiled);
    arena_release(&a);
    return status;
}

// A program that is measured and not kept.
static enum tern_status program_time(struct set *c, const struct prog *p, int bucket, int n_chunks, double *ms) {
    struct npu_list *l = NULL;
    char where[256];
    TRY(npu_program_list(&l, p, c->store, &c->scales, bucket, n_chunks, c->err));
    enum tern_status status = program_try(c, l, NULL, ms, where);
    if (status != TERN_OK) err_prefix(c->err, "%s", l->name);
    npu_list_free(l);
    return status;
}

// Plain attention below one bucket and chunks from it on: the division with the least sum over all buckets, where
// chunks count as CHUNKS_MARGIN more than measured.
static void switch_choose(struct npu_choice *k) {
    int best = k->n;
    double least = INFINITY;
    for (int at = 0; at <= k->n; at++) {
        double sum = 0;
        for (int b = 0; b < k->n; b++)
            sum += b < at || k->buckets[b].chunks_ms <= 0 ? k->buckets[b].plain_ms
                                                          : k->buckets[b].chunks_ms * CHUNKS_MARGIN;
        if (sum <= least) best = at, least = sum;
    }
    for (int b = 0; b < k->n; b++) k->buckets[b].chunks = b >= best && k->buckets[b].chunks_ms > 0 ? NPU_CHUNKS : 1;
}

static enum tern_status chunks_choose(struct set *c) {
    c->choice.n = 0;
    for (int b = 0; b < c->n_buckets; b++) {
        struct npu_choice_bucket *k = &c->choice.buckets[b];
        *k = (struct npu_choice_bucket){.bucket = c->buckets[b], .chunks = 1};
        TRY(program_time(c, c->progs[1][1], k->bucket, 1, &k->plain_ms));
        if ((k->bucket + SET_WINDOW) / NPU_BLOCK >= NPU_CHUNKS)
            TRY(program_time(c, c->progs[1][1], k->bucket, NPU_CHUNKS, &k->chunks_ms));
        note(c, "bucket %d: plain attention %.1f ms, %d chunks %.1f ms", k->bucket, k->plain_ms, NPU_CHUNKS,
             k->chunks_ms);
        c->choice.n = b + 1;
    }
    switch_choose(&c->choice);
    return TERN_OK;
}

static void buckets_text(const int *buckets, int n, char out[128]) {
    size_t at = 0;
    for (int i = 0; i < n && at < 100; i++) at += (size_t)snprintf(out + at, 128 - at, " %d", buckets[i]);
}

// As many buckets as the powers of two have, where the recorded contexts want them.
static enum tern_status buckets_choose(struct set *c) {
    struct npu_buckets_cost points[NPU_BUCKETS_MAX];
    int out[NPU_BUCKETS_MAX], n = c->n_buckets;
    char text[128];
    for (int i = 0; i < n; i++)
        points[i] =
            (struct npu_buckets_cost){c->buckets[i], c->choice.buckets[i].chunks > 1 ? c->choice.buckets[i].chunks_ms
                                                                                     : c->choice.buckets[i].plain_ms};
    int n_out = npu_buckets_choose(c->o->steps, c->o->n_steps, points, n, c->buckets[n - 1], n, out);
    if (n_out == 0) return err_set(c->err, TERN_NO_MEMORY, "no memory to choose buckets");
    buckets_text(c->buckets, n, text);
    note(c, "powers of two:%s: %.2f ms a step expected", text,
         npu_buckets_ms(c->o->steps, c->o->n_steps, points, n, c->buckets, n));
    buckets_text(out, n_out, text);
    note(c, "buckets:%s: %.2f ms a step expected", text,
         npu_buckets_ms(c->o->steps, c->o->n_steps, points, n, out, n_out));
    bool same = n_out == n && memcmp(out, c->buckets, (size_t)n * sizeof *out) == 0;
    memcpy(c->buckets, out, (size_t)n_out * sizeof *out);
    c->n_buckets = n_out;
    return same ? TERN_OK : chunks_choose(c);
}

// Tokens that a verified tree of n drafts brings, by the logarithm of n between measured trees: 100 prompts of pico and
// its drafter (doc/speculation.md); more than 46 drafts bring nothing more.
static double tree_tokens(int n) {
    static const struct { double log2n, tokens; } at[] = {{0, 1.85}, {3, 3.53}, {5.5236, 4.41}};
    double l = 0;
    for (int k = n; k > 1; k /= 2) l++;
    l += n > 0 ? (double)n / (double)(1 << (int)l) - 1 : 0; // between powers of two as good as a logarithm
    int i = l < at[1].log2n ? 0 : 1;
    double part = MIN((l - at[i].log2n) / (at[i + 1].log2n - at[i].log2n), 1);
    return at[i].tokens + part * (at[i + 1].tokens - at[i].tokens);
}

static enum tern_status window_choose(struct set *c) {
    int bucket = c->buckets[MIN(1, c->n_buckets - 1)], best = 0;
    double rate[4];
    for (int w = 0; w < N_WINDOWS; w++) {
        int chunks = npu_choice_chunks(&c->choice, bucket, windows[w]);
        TRY(program_time(c, c->progs[w][1], bucket, chunks, &c->window_ms[w]));
        rate[w] = tree_tokens(windows[w] - 1) / c->window_ms[w] * 1000;
        if (rate[w] > rate[best]) best = w;
    }
    c->choice.window = windows[best];
    for (int w = 0; w < N_WINDOWS; w++)
        note(c, "window %d: %.1f ms, %.2f ms a row, %.1f tokens a second of a full tree%s", windows[w], c->window_ms[w],
             c->window_ms[w] / windows[w], rate[w], w == best ? ": the cheapest" : "");
    for (int w = 0; w < N_WINDOWS; w++)
        if (w != best)
            note(c, "window %d is ruled out: %.2f of the tokens a second of window %d", windows[w],
                 rate[w] / rate[best], windows[best]);
    return TERN_OK;
}

static void choice_put(struct json_writer *w, const struct set *c) {
    json_write_key(w, "window");
    json_write_int(w, c->choice.window);
    json_write_key(w, "windows");
    json_write_array(w);
    for (int i = 0; i < N_WINDOWS && c->window_ms[i] > 0; i++) {
        json_write_object(w);
        json_write_key(w, "window");
        json_write_int(w, windows[i]);
        json_write_key(w, "ms");
        json_write_f64(w, c->window_ms[i]);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_key(w, "buckets");
    json_write_array(w);
    for (int i = 0; i < c->choice.n; i++) {
        const struct npu_choice_bucket *b = &c->choice.buckets[i];
        json_write_object(w);
        json_write_key(w, "bucket");
        json_write_int(w, b->bucket);
        json_write_key(w, "chunks");
        json_write_int(w, b->chunks);
        json_write_key(w, "plain_ms");
        json_write_f64(w, b->plain_ms);
        json_write_key(w, "chunks_ms");
        json_write_f64(w, b->chunks_ms);
        json_write_object_end(w);
    }
    json_write_array_end(w);
}

static void text_put(struct json_writer *w, const char *key, const char *text) {
    json_write_key(w, key);
    json_write_str(w, str_from(text));
}

static enum tern_status manifest_write(struct set *c, const double *ms, const char *fault) {
    char path[PATH_LEN_MAX];
    struct buf text;
    struct json_writer w;
    buf_init(&text, MANIFEST_MAX);
    json_write_init(&w, &text);
    json_write_object(&w);
    json_write_key(&w, "version");
    json_write_int(&w, NPU_SET_VERSION);
    text_put(&w, "key", c->choice.key);
    json_write_key(&w, "whole");
    json_write_bool(&w, !fault);
    if (fault) text_put(&w, "fault", fault);
    text_put(&w, "model", c->m->digest);
    text_put(&w, "backend", label(c));
    choice_put(&w, c);
    json_write_key(&w, "programs");
    json_write_array(&w);
    for (int i = 0; i < c->n_lists; i++) {
        json_write_object(&w);
        text_put(&w, "name", c->lists[i]->name);
        json_write_key(&w, "ms");
        json_write_f64(&w, ms[i]);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    enum tern_status status = path_join(path, c->dir, NPU_SET_PROGRAMS, c->err);
    if (status == TERN_OK && text.failed) status = err_set(c->err, TERN_NO_MEMORY, "no memory");
    if (status == TERN_OK) status = file_write_atomic(path, text.data, text.len, c->err);
    buf_release(&text);
    return status;
}

static enum tern_status programs_make(struct set *c) {
    struct tern_err first = {0}, here, *out = c->err;
    enum tern_status worst = TERN_OK;
    double ms[SET_LISTS_MAX] = {0};
    bool keep = c->driver && c->driver->shares_weights;
    uint64_t spent = 0;
    c->err = &here;
    for (int i = 0; i < c->n_lists; i++) {
        char where[256] = "";
        uint64_t start = clock_ns();
        enum tern_status status = program_try(c, c->lists[i], keep ? &c->open[i] : NULL, &ms[i], where);
        spent += clock_ns() - start;
        if (status != TERN_OK && worst == TERN_OK) {
            worst = status;
            err_set(&first, status, "%s: %s", c->lists[i]->name, here.message);
        }
        if (c->o->on_program)
            c->o->on_program(c->o->arg, c->lists[i]->name, status == TERN_OK ? NULL : here.message, ms[i], where);
    }
    c->err = out;
    char rss[24], weights[24];
    if (keep)
        note(c, "%d programs open: %s resident, %.2f of the weights (%s); compiled and run in %.1f s", c->n_lists,
             bytes_format(os_rss(), rss), (double)os_rss() / (double)MAX(c->pack.wanted.payload_bytes, 1),
             bytes_format(c->pack.wanted.payload_bytes, weights), (double)spent * 1e-9);
    size_t len = MIN(strlen(first.message), sizeof c->choice.fault - 1);
    first.message[len - utf8_incomplete_tail((struct str){first.message, len})] = 0;
    enum tern_status written = manifest_write(c, ms, worst == TERN_OK ? NULL : first.message);
    if (worst != TERN_OK && out) *out = first;
    return worst != TERN_OK ? worst : written;
}

static enum tern_status asset_make(struct set *c, char asset[PATH_LEN_MAX]) {
    char dir[PATH_LEN_MAX], text[PATH_LEN_MAX];
    struct os_stat st;
    TRY(path_join(dir, c->dir, "template", c->err));
    if (c->o->template_dir) snprintf(dir, sizeof dir, "%s", c->o->template_dir);
    TRY(path_join(asset, c->dir, NPU_SET_ASSET, c->err));
    TRY(path_join(text, dir, "template.json", c->err));
    if (!os_stat_get(&st, text))
        return err_set(c->err, TERN_NOT_FOUND,
                       "no template for these programs in '%s'; make it once with: python3 "
                       "tools/coreai/make_template.py %s/lists.json %s (coreai-core, see tools/npu_packages.sh)",
                       dir, c->dir, dir);
    return coreai_fill(dir, asset, (const struct npu_list *const *)c->lists, c->n_lists, c->m->digest, c->err);
}

static enum tern_status backend_start(struct set *c, const char *asset) {
    struct npu_backend_options o = {
        .provider = c->o->provider, .plugin = c->o->plugin, .n_threads = c->o->n_threads, .asset = asset};
    char cache[PATH_LEN_MAX];
    if (c->keeps) {
        TRY(path_join(cache, c->dir, NPU_SET_OPENVINO, c->err));
        TRY(os_mkdirs(cache, c->err));
        o.cache = cache;
    }
    struct team_options team = {.n_threads = c->o->n_threads};
    if (!c->team) TRY(team_create(&c->team, &team, c->err));
    if (!c->driver) return TERN_OK;
    if (c->backend) c->driver->close(c->backend);
    c->backend = NULL;
    return c->driver->open(&c->backend, &o, c->err);
}

static enum tern_status set_dir_make(struct set *c) {
    if (c->o->dir) {
        if (strlen(c->o->dir) >= sizeof c->dir)
            return err_set(c->err, TERN_INVALID_ARGUMENT, "'%s' is too long for a path", c->o->dir);
        snprintf(c->dir, sizeof c->dir, "%s", c->o->dir);
    } else if (!npu_set_dir(c->m, label(c), c->dir, sizeof c->dir)[0]) {
        return err_set(c->err, TERN_NOT_FOUND,
                       "no cache: neither XDG_CACHE_HOME nor HOME is set; -o DIR names a folder");
    }
    return os_mkdirs(c->dir, c->err);
}

// Where nothing is measured (Apple's interpreter tells nothing of an engine): the window and the form that the lists
// were made with.
static void choice_plain(struct set *c) {
    c->choice.window = SET_WINDOW;
    c->choice.n = c->n_buckets;
    for (int b = 0; b < c->n_buckets; b++)
        c->choice.buckets[b] = (struct npu_choice_bucket){.bucket = c->buckets[b], .chunks = 1};
    note(c, "not measured here: windows up to %d rows, plain attention in all buckets", SET_WINDOW);
}

static enum tern_status set_run(struct set *c, bool *was_there) {
    char asset[PATH_LEN_MAX], text[128];
    const char *scales = env_get("TERN_NPU_SCALES");
    TRY(npu_lower_check(c->m, c->err));
    TRY(npu_buckets_check(c->err));
    TRY(npu_calibration_create(&c->calibration, c->m->hyper.n_layers, c->err));
    if (scales) TRY(npu_scales_read(c->calibration, scales, &c->scales, c->err));
    TRY(progs_build(c));
    TRY(set_dir_make(c));
    TRY(backend_start(c, NULL));
    c->n_buckets = npu_buckets(c->m, NULL, c->buckets);
    TRY(npu_pack_init(&c->pack, c->m, NPU_FORMAT_I8, &c->scales, c->err));
    c->pack.team = c->team;
    TRY(npu_store_create(&c->store, c->m, NPU_FORMAT_NONE, c->err));
    TRY(lists_make(c));
    TRY(key_make(c));
    *was_there = is_there(c);
    if (*was_there) return TERN_OK;
    lists_free(c);
    TRY(weights_open(c));
    if (c->driver == &npu_coreai_backend) { // the runtime opens what is filled now
        choice_plain(c);
        TRY(lists_make(c));
        TRY(asset_make(c, asset));
        TRY(backend_start(c, asset));
    } else {
        TRY(chunks_choose(c));
        if (c->o->steps) TRY(buckets_choose(c));
        npu_choice_text(&c->choice, text, sizeof text);
        note(c, "switch point: %s", text);
        TRY(window_choose(c));
        c->keeps = c->driver == &npu_openvino_backend && c->o->dir; // from now on: not what was only measured
        if (c->keeps) TRY(backend_start(c, NULL));
        TRY(lists_make(c));
    }
    return programs_make(c);
}

enum tern_status unit_npu_compile(const struct model *m, const struct unit_npu_compile_options *o, bool *was_there,
                                  struct tern_err *err) {
    struct set c = {.m = m, .o = o, .err = err, .pack = {.map = {.fd = -1}}, .rules = npu_rules_find(o->backend)};
    *was_there = false;
    if (!c.rules) TRY(npu_backend_find(&c.driver, o->backend, err));
    if (c.driver && c.driver->needs_asset && c.driver != &npu_coreai_backend)
        return err_set(err, TERN_UNSUPPORTED, "%s runs assets of back end coreai: compile for that", c.driver->name);
    if (c.driver) npu_label_make(c.label, c.driver, o->provider);
    enum tern_status status = set_run(&c, was_there);
    lists_free(&c);
    npu_store_free(c.store);
    npu_pack_release(&c.pack);
    for (int w = 0; w < N_WINDOWS; w++)
        for (int g = 0; g < N_GIVES; g++) prog_free(c.progs[w][g]);
    npu_calibration_free(c.calibration);
    if (c.backend) c.driver->close(c.backend);
    if (c.team) team_free(c.team);
    return status;
}
