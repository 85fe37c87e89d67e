// The npu unit over a back end: "npu:ort", "npu:openvino+int4:NPU". Programs, inputs and results are those of
// the evaluator's unit; what runs a list is the runtime. Inputs are made as floats and rounded to fp16 on the way in,
// results are widened behind a run (npu_stage.c), so there is one driver for all.
#include "unit/npu/pack_choice.h"
#include "unit/npu/npu_unit.h"
#include <stdio.h>

struct npu_remote {
    struct npu_compiled *compiled;
    struct npu_binding *binding;
    void **inputs, **outputs; // [n_inputs], [n_outputs] fp16
    struct arena arena;
};

bool npu_remote_is(const char *variant) {
    const struct npu_backend_driver *d;
    char name[32];
    size_t n = variant ? strcspn(variant, ":+") : 0;
    if (n == 0 || n >= sizeof name) return false;
    memcpy(name, variant, n);
    name[n] = 0;
    return npu_backend_find(&d, name, NULL) == TERN_OK;
}

// The asset that is named, else that of the named set; and a set where only its asset is named.
static enum tern_status asset_find(struct unit *u, struct npu_backend_options *o, char *path, size_t cap,
                                   struct tern_err *err) {
    struct os_stat st;
    if (!o->asset && u->set[0]) {
        (void)snprintf(path, cap, "%s/" NPU_SET_ASSET, u->set);
        o->asset = path;
    }
    if (!o->asset)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "npu unit: Core AI runs programs compiled before: TERN_NPU_SET=DIR names what "
                       "`tern compile --npu --backend coreai -o DIR` wrote");
    if (u->set[0]) return TERN_OK;
    size_t n = strlen(o->asset);
    while (n > 0 && o->asset[n - 1] == '/') n--;
    while (n > 0 && o->asset[n - 1] != '/') n--;
    if (n == 0 || (size_t)snprintf(path, cap, "%.*s" NPU_SET_PROGRAMS, (int)n, o->asset) >= cap) return TERN_OK;
    if (n <= sizeof u->set && os_stat_get(&st, path) && st.is_file) (void)snprintf(u->set, n, "%s", o->asset);
    return TERN_OK;
}

// The format behind the plus sign must be one that the runtime multiplies by: values that stand for others would say
// nothing about its speed.
static enum tern_status remote_format_choose(struct unit *u, struct str name, struct npu_backend_options *o,
                                             struct tern_err *err) {
    const struct npu_backend_driver *d = u->remote_driver;
    TRY(npu_format_choose(u, name, err));
    o->acts_int8 = u->act == NPU_ACT_INT8;
    bool offered = u->act == NPU_ACT_INT8 ? d->takes_int8_acts : u->act == NPU_ACT_PLAIN;
    if (u->format == NPU_FORMAT_I4) offered = d->takes_int4;
    if (offered && !(d->needs_asset && u->format != NPU_FORMAT_I8)) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "npu unit: %s offers no %.*s here; it has int8%s%s%s", d->title,
                   (int)name.len, name.data, d->needs_asset ? "" : ", f16", d->takes_int4 ? ", int4" : "",
                   d->takes_int8_acts ? ", w8a8" : "");
}

enum tern_status npu_remote_open(struct unit *u, const char *variant, int n_threads, struct tern_err *err) {
    char name[32];
    size_t n = strcspn(variant, ":+"), end = strcspn(variant, ":");
    struct npu_backend_options o = {.n_threads = n_threads,
                                    .provider = variant[end] ? variant + end + 1 : NULL,
                                    .plugin = env_get("TERN_ORT_PLUGIN"),
                                    .asset = env_get("TERN_COREAI_ASSET")};
    memcpy(name, variant, n); // npu_remote_is found it, so it fits
    name[n] = 0;
    TRY(npu_backend_find(&u->remote_driver, name, err));
    if (variant[n] == '+') TRY(remote_format_choose(u, (struct str){variant + n + 1, end - n - 1}, &o, err));
    char asset[NPU_PATH_MAX + 16];
    if (u->remote_driver->needs_asset) TRY(asset_find(u, &o, asset, sizeof asset, err));
    struct os_stat st;
    if (u->remote_driver == &npu_openvino_backend && u->set[0]) {
        (void)snprintf(asset, sizeof asset, "%s/" NPU_SET_OPENVINO, u->set);
        if (os_stat_get(&st, asset)) o.cache = asset;
    }
    TRY(u->remote_driver->open(&u->remote, &o, err));
    npu_label_make(u->remote_label, u->remote_driver, o.provider);
    enum tern_status status = npu_opener_create(&u->opener, u, err);
    if (status != TERN_OK) {
        npu_remote_close(u);
        return status;
    }
    const struct npu_backend_info *info = &npu_backend_base_of(u->remote)->info;
    snprintf(u->named, sizeof u->named, "%s %s on %s%s", u->remote_driver->title, info->version, info->provider,
             o.acts_int8 ? ", activations in int8" : "");
    return TERN_OK;
}

// Sets of assets are made by back end coreai, whoever runs them.
void npu_label_make(char out[64], const struct npu_backend_driver *d, const char *provider) {
    bool plain = d->needs_asset || !provider || strcmp(provider, "cpu") == 0 || strcmp(provider, "CPU") == 0;
    (void)snprintf(out, 64, "%s%s%s", d->needs_asset ? npu_coreai_backend.name : d->name, plain ? "" : ":",
                   plain ? "" : provider);
}

const char *npu_backend_label(const struct unit *u) { return u->remote ? u->remote_label : u->rules->name; }

enum tern_status npu_remote_check(const struct unit *u, const struct model *m, struct tern_err *err) {
    const char *filled = u->remote ? npu_backend_base_of(u->remote)->info.model : "";
    if (!filled[0] || strcmp(filled, m->digest) == 0) return TERN_OK;
    return err_set(err, TERN_MISMATCH,
                   "npu unit: the asset was filled from another model (%.12s…) than %s (%.12s…); "
                   "`tern compile --npu --backend coreai -o DIR -m MODEL` fills one for it",
                   filled, m->name, m->digest);
}

void npu_remote_close(struct unit *u) {
    npu_opener_free(u->opener);
    u->opener = NULL;
    if (u->remote) u->remote_driver->close(u->remote);
    u->remote = NULL;
}

enum tern_status npu_remote_make(struct unit *u, struct npu_variant *v, struct tern_err *err) {
    struct npu_remote *r = mem_calloc(1, sizeof *r);
    if (!r) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for %s", v->list->name);
    v->remote = r;
    arena_init(&r->arena, 0);
    r->inputs = arena_calloc(&r->arena, (size_t)v->list->n_inputs + 1, sizeof *r->inputs);
    r->outputs = arena_calloc(&r->arena, (size_t)v->list->n_outputs + 1, sizeof *r->outputs);
    if (!r->inputs || !r->outputs)
        return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for the buffers of %s", v->list->name);
    enum tern_status status = u->remote_driver->compile(u->remote, &r->compiled, v->list, err);
    if (status != TERN_OK) err_prefix(err, "bucket %d", v->bucket);
    return status;
}

struct late { // what a turn reads
    const struct unit *u;
    int turn;
};

static void late_member(void *arg, const struct team_member *self) {
    const struct late *f = arg;
    const struct npu_call *c = f->u->call;
    const struct npu_list *l = c->v->list;
    int n_heads = c->p->prog->hyper->n_head_kv;
    for (int i = 0; i < l->n_inputs; i++) {
        int begin, end;
        if (npu_stage_turn(c->v->stage, i) != f->turn) continue;
        team_share(self, n_heads, 1, &begin, &end);
        npu_cache_fill(c, l->inputs[i], begin, end);
    }
}

static void late_fill(void *arg, int turn) {
    struct late f = {arg, turn};
    const struct npu_variant *v = f.u->call->v;
    for (int i = 0; i < v->list->n_inputs; i++)
        if (npu_stage_turn(v->stage, i) == turn) {
            team_run(f.u->team, late_member, &f);
            return;
        }
}

enum tern_status npu_remote_bind(struct unit *u, struct npu_variant *v, struct tern_err *err) {
    struct npu_remote *r = v->remote;
    const struct npu_list *l = v->list;
    if (r->binding) u->remote_driver->unbind(r->binding);
    r->binding = NULL;
    npu_stage_turns_set(v->stage, u->remote_driver->turn, r->compiled);
    npu_stage_bind(v->stage, u->scratch, u->io);
    for (int i = 0; i < l->n_inputs; i++) r->inputs[i] = npu_stage_half(v->stage, i);
    for (int i = 0; i < l->n_outputs; i++) r->outputs[i] = npu_stage_half(v->stage, l->n_inputs + i);
    struct npu_buffers io = {.inputs = r->inputs, .outputs = r->outputs, .fill = late_fill, .fill_arg = u};
    enum tern_status status = u->remote_driver->bind(r->compiled, &r->binding, &io, err);
    if (status == TERN_OK)
        v->bound = u->io;
    else
        err_prefix(err, "bucket %d", v->bucket);
    return status;
}

void npu_remote_free(struct unit *u, struct npu_variant *v) {
    struct npu_remote *r = v->remote;
    if (!r) return;
    if (r->binding) u->remote_driver->unbind(r->binding);
    if (r->compiled) u->remote_driver->free(r->compiled);
    arena_release(&r->arena);
    mem_free(r);
    v->remote = NULL;
}

struct halves {
    const struct npu_kernels *kernels;
    const struct npu_variant *v;
    bool in;
};

static void halves_member(void *arg, const struct team_member *self) {
    const struct halves *h = arg;
    const struct npu_list *l = h->v->list;
    int n = h->in ? l->n_inputs : l->n_outputs;
    for (int i = self->index; i < n; i += self->n) {
        int id = h->in ? l->inputs[i] : l->outputs[i];
        if (npu_value_half(h->v, id)) continue; // fp16 on our side too
        float *x = npu_value_at(h->v, id);
        uint16_t *half = h->in ? h->v->remote->inputs[i] : h->v->remote->outputs[i];
        int len = (int)npu_tensor_len(&l->tensors[id]); // of axes within their limits
        if (h->in)
            h->kernels->narrow(len, x, half);
        else
            h->kernels->widen(half, len, x);
    }
}

// Where the runtime put a program, told with its first run.
static void placement_tell(struct unit *u, struct npu_variant *v) {
    const struct npu_placement *p = &npu_compiled_base_of(v->remote->compiled)->placement;
    (void)snprintf(u->placed, sizeof u->placed, "%s; %s: %s, %d elsewhere", u->detail, v->list->name, p->detail,
                   p->n_elsewhere);
    v->told = true;
}

enum tern_status npu_remote_run(struct unit *u, struct npu_variant *v, struct tern_err *err) {
    if (!v->told) placement_tell(u, v);
    struct halves h = {u->kernels, v, true};
    team_run(u->team, halves_member, &h);
    TRY(u->remote_driver->run(v->remote->binding, err));
    h.in = false;
    team_run(u->team, halves_member, &h);
    return TERN_OK;
}
