// Programs on the npu unit: one list and one evaluator for each bucket, over scratch that all programs share. Programs
// that lower to the same list (windows of 1, 4 and 16 rows are one block) share that too.
#include "base/base.h"
#include <stdio.h>
#include "unit/npu/npu_unit.h"
#include "unit/npu/pack_choice.h"

// TERN_NPU_CTX as numbers, each rounded up to a whole block: one is the largest bucket, several are the buckets.
static enum tern_status buckets_read(const char *text, int out[NPU_BUCKETS_MAX], int *n, struct tern_err *err) {
    struct str rest = str_from(text);
    for (*n = 0; *n < NPU_BUCKETS_MAX; ++*n) {
        size_t len = str_find(rest, STR(","), 0);
        int64_t v = 0;
        if (!str_to_i64((struct str){rest.data, MIN(len, rest.len)}, &v) || v < 1 || v > NPU_CTX_MAX) break;
        out[*n] = int_round_up((int)v, NPU_BLOCK);
        if (*n > 0 && out[*n] <= out[*n - 1]) break;
        if (len >= rest.len) {
            ++*n;
            return TERN_OK;
        }
        rest = (struct str){rest.data + len + 1, rest.len - len - 1};
    }
    *n = 0;
    return err_set(
        err, TERN_INVALID_ARGUMENT,
        "TERN_NPU_CTX='%.80s': the positions of the largest program are expected, 1 to %d, or of all, rising "
        "and at most %d of them (256,1024)",
        text, NPU_CTX_MAX, NPU_BUCKETS_MAX);
}

enum tern_status npu_buckets_check(struct tern_err *err) {
    const char *text = env_get("TERN_NPU_CTX");
    int out[NPU_BUCKETS_MAX], n;
    return text ? buckets_read(text, out, &n, err) : TERN_OK;
}

int npu_buckets(const struct model *m, const struct npu_choice *c, int out[NPU_BUCKETS_MAX]) {
    const char *text = env_get("TERN_NPU_CTX");
    int last = int_round_up(MIN(m->hyper.n_ctx, NPU_CTX_DEFAULT), NPU_BLOCK), n = 0;
    if (text && buckets_read(text, out, &n, NULL) == TERN_OK && n > 1) return n;
    if (c && c->n > 0 && !text) {
        for (int i = 0; i < c->n; i++) out[i] = c->buckets[i].bucket;
        return c->n;
    }
    if (n == 1) last = out[0];
    n = 0;
    for (int t = NPU_BUCKET_FIRST; t < last && n < NPU_BUCKETS_MAX - 1; t *= 2) out[n++] = t;
    out[n++] = last;
    return n;
}

struct shape { // of a program's lists
    int S, R, F;
    bool picks;
};
static struct shape shape_of(const struct prog *p) {
    const struct model_hyper *h = p->hyper;
    struct shape s = {.S = int_round_up(p->spec.window, NPU_BLOCK), .R = int_round_up(MAX(p->n_out_max, 1), NPU_BLOCK)};
    s.F = p->has_conv ? int_round_up((h->conv_len - 1) * NPU_SEQS_MAX, NPU_BLOCK) : 0;
    s.picks = p->has_head && s.R < s.S;
    return s;
}

// What a back end calls its entry: "fill_64_256", "logits.f_32_512_c8" (with features, 8 chunks).
static const char *list_name(const struct prog *p, const struct shape *s, int bucket, int n_chunks,
                             char out[NPU_NAME_MAX]) {
    static const char *const names[] = {
        [PROG_LAYERS] = "layers", [PROG_SEGMENT] = "segment", [PROG_ATTN] = "attention", [PROG_LINEAR] = "linear",
        [PROG_COMMIT] = "commit", [PROG_ENCODER] = "encoder", [PROG_INJECT] = "inject",  [PROG_DRAFT] = "draft"};
    bool logits = p->spec.outputs & PROG_OUT_LOGITS, argmax = p->spec.outputs & PROG_OUT_ARGMAX;
    const char *whole = !p->has_head ? "fill" : logits && argmax ? "both" : logits ? "logits" : "argmax";
    (void)snprintf(out, NPU_NAME_MAX, "%s%s%s_%d_%d%s", p->spec.kind == PROG_WHOLE ? whole : names[p->spec.kind],
                   p->spec.n_features > 0 ? ".f" : "", s->picks ? ".p" : "", s->S, bucket, n_chunks > 1 ? "_c8" : "");
    return out;
}

enum tern_status npu_program_list(struct npu_list **out, const struct prog *p, struct npu_store *s,
                                  const struct npu_scales *scales, int bucket, int n_chunks, struct tern_err *err) {
    struct shape shape = shape_of(p);
    char name[NPU_NAME_MAX];
    struct npu_lower_options o = {.name = list_name(p, &shape, bucket, n_chunks, name),
                                  .window = shape.S,
                                  .bucket = bucket,
                                  .n_chunks = n_chunks,
                                  .n_frames = shape.F,
                                  .n_pick = shape.picks ? shape.R : 0,
                                  .scales = scales};
    return npu_lower(out, p, s, &o, err);
}

// Everything that decides a list beside the weights.
static bool key_make(char out[NPU_KEY_MAX], const struct prog *p, int bucket, int n_chunks) {
    const struct prog_spec *s = &p->spec;
    struct shape shape = shape_of(p);
    int n = snprintf(out, NPU_KEY_MAX, "%d %u %d-%d %d-%d %d %p %d %d %d %d %d %d", (int)s->kind, (unsigned)s->outputs,
                     s->layer_begin, s->layer_end, s->state_begin, s->state_end, s->index, (const void *)s->weight,
                     shape.S, p->has_head ? shape.R : 0, shape.F, (int)shape.picks, bucket, n_chunks);
    for (int i = 0; i < s->n_features && n < NPU_KEY_MAX; i++)
        n += snprintf(out + n, (size_t)(NPU_KEY_MAX - n), " f%d", s->feature_layers[i]);
    return n < NPU_KEY_MAX;
}

static void variant_free(struct unit *u, struct unit_weights *w, struct npu_variant *v) {
    if (u->opener) npu_opener_settle(u->opener, v);
    npu_remote_free(u, v);
    const struct npu_site *sites = v->eval ? npu_eval_sites(v->eval) : NULL;
    if (sites && w) npu_calibration_add(w->calibration, v->list, sites);
    npu_eval_free(v->eval);
    npu_stage_free(v->stage);
    npu_list_free(v->list);
    mem_free(v);
}

static void variant_release(struct unit *u, struct unit_weights *w, struct npu_variant *v) {
    if (--v->n_users > 0) return;
    for (struct npu_variant **at = w ? &w->variants : NULL; at && *at; at = &(*at)->next)
        if (*at == v) {
            *at = v->next;
            break;
        }
    variant_free(u, w, v);
}

// w: NULL when only its size matters.
static enum tern_status variant_make(struct unit *u, struct npu_variant **out, struct unit_weights *w,
                                     const struct prog *p, struct npu_store *s, int bucket, struct tern_err *err) {
    int n_chunks = npu_choice_chunks(w ? &w->choice : NULL, bucket, shape_of(p).S);
    char key[NPU_KEY_MAX];
    if (!key_make(key, p, bucket, n_chunks))
        return err_set(err, TERN_LIMIT, "npu unit: a program with too many feature layers");
    for (struct npu_variant *v = w ? w->variants : NULL; v; v = v->next)
        if (strcmp(v->key, key) == 0) {
            v->n_users++;
            *out = v;
            return TERN_OK;
        }
    struct npu_variant *v = mem_calloc(1, sizeof *v);
    if (!v) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for a program");
    v->n_users = 1;
    v->bucket = bucket;
    memcpy(v->key, key, sizeof key);
    enum tern_status status = npu_program_list(&v->list, p, s, w ? &w->scales : NULL, bucket, n_chunks, err);
    struct npu_eval_options eo = {
        .rules = u->rules, .kernels = u->kernels, .team = u->team, .act = u->act, .shared = true, .halves = true};
    if (status == TERN_OK)
        status = u->remote ? npu_stage_create(&v->stage, v->list, err) : npu_eval_create(&v->eval, v->list, &eo, err);
    if (status == TERN_OK && w && v->eval && env_get("TERN_NPU_OBSERVE")) status = npu_eval_observe(v->eval, true, err);
    if (status != TERN_OK) {
        variant_free(u, w, v);
        return status;
    }
    v->bytes = v->eval ? npu_eval_bytes(v->eval) : npu_stage_bytes(v->stage) + npu_list_bytes(v->list);
    v->next = w ? w->variants : NULL;
    if (w) w->variants = v;
    *out = v;
    return TERN_OK;
}

static void variants_free(struct unit *u, struct unit_program *c) {
    for (int i = 0; i < c->n_variants; i++) variant_release(u, c->weights, c->variants[i]);
    c->n_variants = 0;
}

static enum tern_status variants_make(struct unit *u, struct unit_program *c, struct npu_store *s, uint64_t *scratch,
                                      uint64_t *io, struct tern_err *err) {
    int buckets[NPU_BUCKETS_MAX] = {NPU_BLOCK}, n = 1;
    if (c->prog->has_attn && c->prog->spec.kind != PROG_ENCODER)
        n = npu_buckets(c->prog->model, c->weights ? &c->weights->choice : NULL, buckets);
    if (c->prog->spec.kind == PROG_COMMIT) n = 0;
    for (int i = 0; i < n; i++) {
        TRY(variant_make(u, &c->variants[i], c->weights, c->prog, s, buckets[i], err));
        c->n_variants++;
        c->bytes += c->variants[i]->bytes;
        const struct npu_variant *v = c->variants[i];
        *scratch = MAX(*scratch, v->eval ? npu_eval_scratch_bytes(v->eval) : npu_stage_float_bytes(v->stage));
        *io = MAX(*io, v->stage ? npu_stage_half_bytes(v->stage) : 0);
    }
    return TERN_OK;
}

// Memory that all programs of the unit use in turn.
static enum tern_status shared_grow(void **at, uint64_t *now, uint64_t bytes, struct tern_err *err) {
    char text[24];
    if (bytes <= *now) return TERN_OK;
    void *bigger = bytes < PTRDIFF_MAX ? mem_map((size_t)bytes) : NULL;
    if (!bigger)
        return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for %s of scratch", bytes_format(bytes, text));
    if (*at) mem_unmap(*at, (size_t)*now);
    *at = bigger;
    *now = bytes;
    return TERN_OK;
}

static enum tern_status state_index_make(struct unit_program *c, struct tern_err *err) {
    const struct prog *p = c->prog;
    c->state_index = mem_calloc((size_t)p->hyper->n_layers, sizeof(int));
    if (!c->state_index) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for a program");
    for (int i = 0; i < p->n_ops; i++)
        if (p->ops[i].layer >= 0 && p->ops[i].state_index >= 0) c->state_index[p->ops[i].layer] = p->ops[i].state_index;
    return TERN_OK;
}

enum tern_status npu_program_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                     struct unit_weights *w, struct tern_err *err) {
    if (w->model != p->model || w->numerics != p->spec.numerics)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "npu unit: a program of model %s, class %s on weights of %s, class %s", p->model->name,
                       prog_class_name(p->spec.numerics), w->model->name, prog_class_name(w->numerics));
    struct unit_program *c = mem_calloc(1, sizeof(*c));
    if (!c) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for a program");
    c->prog = p;
    c->weights = w;
    u->host.n_alive++;
    uint64_t scratch = 0, io = 0;
    void *floats = u->scratch, *halves = u->io;
    enum tern_status status = variants_make(u, c, w->store, &scratch, &io, err);
    if (status == TERN_OK) status = state_index_make(c, err);
    if (status == TERN_OK) status = shared_grow(&floats, &u->scratch_bytes, scratch, err);
    u->scratch = floats;
    if (status == TERN_OK && u->remote) status = shared_grow(&halves, &u->io_bytes, io, err);
    u->io = halves;
    if (status != TERN_OK)
        npu_program_free(u, c);
    else
        *out = c;
    return status;
}

void npu_program_free(struct unit *u, struct unit_program *p) {
    if (!p) return;
    variants_free(u, p);
    mem_free(p->state_index);
    mem_free(p);
    u->host.n_alive--;
}

// The same lists over a store that makes no values.
bool npu_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes) {
    struct npu_store *s = NULL;
    struct unit_program c = {.prog = p};
    struct unit copy = *u; // evaluators only borrow its rules, kernels and team
    copy.opener = NULL;
    uint64_t scratch = 0, io = 0;
    *bytes = 0;
    if (npu_store_create(&s, p->model, NPU_FORMAT_NONE, NULL) != TERN_OK) return true;
    if (variants_make(&copy, &c, s, &scratch, &io, NULL) == TERN_OK) *bytes = c.bytes;
    variants_free(&copy, &c);
    npu_store_free(s);
    return true;
}
