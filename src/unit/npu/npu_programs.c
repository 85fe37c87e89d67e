// Programs on the npu unit: one list and one evaluator for each bucket, over scratch that all programs share.
#include "base/base.h"
#include <stdio.h>
#include "unit/npu/npu_unit.h"

int npu_buckets(const struct model *m, int out[NPU_BUCKETS_MAX]) {
    int64_t ctx = MIN(m->hyper.n_ctx, NPU_CTX_DEFAULT);
    const char *text = env_get("TERN_NPU_CTX");
    int64_t asked = 0;
    if (text && str_to_i64(str_from(text), &asked) && asked > 0) ctx = asked;
    ctx = MIN(MAX(ctx, NPU_BLOCK), NPU_CTX_MAX);
    int n = 0, last = int_round_up((int)ctx, NPU_BLOCK);
    for (int t = NPU_BUCKET_FIRST; t < last && n < NPU_BUCKETS_MAX - 1; t *= 2) out[n++] = t;
    out[n++] = last;
    return n;
}

// "verify_256": what a back end calls its entry.
static const char *list_name(const struct prog *p, int bucket, bool picks, char out[NPU_NAME_MAX]) {
    static const char *const names[] = {
        [PROG_LAYERS] = "layers", [PROG_SEGMENT] = "segment", [PROG_ATTN] = "attention", [PROG_LINEAR] = "linear",
        [PROG_COMMIT] = "commit", [PROG_ENCODER] = "encoder", [PROG_INJECT] = "inject",  [PROG_DRAFT] = "draft"};
    const char *whole = !p->has_head ? "fill" : picks ? "last" : "verify";
    (void)snprintf(out, NPU_NAME_MAX, "%s_%d", p->spec.kind == PROG_WHOLE ? whole : names[p->spec.kind], bucket);
    return out;
}

static enum tern_status variant_make(struct unit *u, struct npu_variant *v, const struct prog *p, struct npu_store *s,
                                     const struct npu_scales *scales, uint64_t *bytes, struct tern_err *err) {
    const struct model_hyper *h = p->hyper;
    int S = int_round_up(p->spec.window, NPU_BLOCK), R = int_round_up(MAX(p->n_out_max, 1), NPU_BLOCK);
    int seqs = MIN(p->spec.window, NPU_SEQS_MAX);
    char name[NPU_NAME_MAX];
    struct npu_lower_options o = {.name = list_name(p, v->bucket, R < S, name),
                                  .window = S,
                                  .bucket = v->bucket,
                                  .n_chunks = 1,
                                  .n_frames = p->has_conv ? int_round_up((h->conv_len - 1) * seqs, NPU_BLOCK) : 0,
                                  .n_pick = p->has_head && R < S ? R : 0,
                                  .scales = scales};
    TRY(npu_lower(&v->list, p, s, &o, err));
    struct npu_eval_options eo = {
        .rules = u->rules, .kernels = u->kernels, .team = u->team, .act = u->act, .shared = true};
    TRY(npu_eval_create(&v->eval, v->list, &eo, err));
    return u->remote ? npu_remote_make(u, v, bytes, err) : TERN_OK;
}

static void variants_free(struct unit *u, struct unit_program *c) {
    for (int i = 0; i < c->n_variants; i++) {
        npu_remote_free(u, &c->variants[i]);
        const struct npu_site *sites = c->variants[i].eval ? npu_eval_sites(c->variants[i].eval) : NULL;
        if (sites) npu_calibration_add(c->weights->calibration, c->variants[i].list, sites);
        npu_eval_free(c->variants[i].eval);
        npu_list_free(c->variants[i].list);
    }
    c->n_variants = 0;
}

static enum tern_status variants_make(struct unit *u, struct unit_program *c, struct npu_store *s,
                                      const struct npu_scales *scales, uint64_t *scratch, struct tern_err *err) {
    int buckets[NPU_BUCKETS_MAX] = {NPU_BLOCK}, n = 1;
    if (c->prog->has_attn && c->prog->spec.kind != PROG_ENCODER) n = npu_buckets(c->prog->model, buckets);
    if (c->prog->spec.kind == PROG_COMMIT) n = 0;
    for (int i = 0; i < n; i++) {
        struct npu_variant *v = &c->variants[c->n_variants++];
        *v = (struct npu_variant){.bucket = buckets[i]};
        TRY(variant_make(u, v, c->prog, s, scales, &c->bytes, err));
        if (scales && env_get("TERN_NPU_OBSERVE")) TRY(npu_eval_observe(v->eval, true, err));
        c->bytes += npu_eval_bytes(v->eval);
        *scratch = MAX(*scratch, npu_eval_scratch_bytes(v->eval));
    }
    return TERN_OK;
}

static enum tern_status scratch_grow(struct unit *u, uint64_t bytes, struct tern_err *err) {
    char text[24];
    if (bytes <= u->scratch_bytes) return TERN_OK;
    float *bigger = bytes < PTRDIFF_MAX ? mem_map((size_t)bytes) : NULL;
    if (!bigger)
        return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for %s of scratch", bytes_format(bytes, text));
    if (u->scratch) mem_unmap(u->scratch, (size_t)u->scratch_bytes);
    u->scratch = bigger;
    u->scratch_bytes = bytes;
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
    u->n_alive++;
    uint64_t scratch = 0;
    enum tern_status status = variants_make(u, c, w->store, &w->scales, &scratch, err);
    if (status == TERN_OK) status = state_index_make(c, err);
    if (status == TERN_OK) status = scratch_grow(u, scratch, err);
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
    u->n_alive--;
}

// The same lists over a store that makes no values.
bool npu_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes) {
    struct npu_store *s = NULL;
    struct unit_program c = {.prog = p};
    struct unit copy = *u; // evaluators only borrow its rules, kernels and team
    copy.remote = NULL;
    uint64_t scratch = 0;
    *bytes = 0;
    if (npu_store_create(&s, p->model, NPU_FORMAT_NONE, NULL) != TERN_OK) return true;
    if (variants_make(&copy, &c, s, NULL, &scratch, NULL) == TERN_OK) *bytes = c.bytes;
    variants_free(&copy, &c);
    npu_store_free(s);
    return true;
}
