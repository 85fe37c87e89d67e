// Core AI on macOS: the back end "apple". Its runtime has a Swift interface alone, so a small library made of
// tools/coreai/coreai_shim.swift stands between (coreai_shim.h); it is opened like any other runtime, so tern is built
// without Swift. The asset is that of `tern compile --npu --backend coreai`, whose functions bear the lists' names.
#include "unit/npu/coreai_int.h"
#include "unit/npu/coreai_shim.h"
#include <stdio.h>

#define SHIM_MESSAGE_MAX 512

struct shim_backend {
    struct npu_backend_base base;
    void *(*load)(const char *path, int32_t unit, char *message, int64_t cap);
    int32_t (*run)(void *model, const char *function, const tern_coreai_tensor *in, int64_t n_in,
                   const tern_coreai_tensor *state, int64_t n_state, const tern_coreai_tensor *out, int64_t n_out,
                   char *message, int64_t cap);
    void (*free_model)(void *model);
    void *model;
};
struct shim_compiled {
    struct npu_compiled_base base;
    struct shim_backend *b;
};
struct shim_bound {
    struct shim_compiled *c;
    struct npu_buffers io;
    tern_coreai_tensor *in, *state, *out; // [n_inputs], [n_states], [n_outputs]
    struct arena arena;
};

static const struct npu_runtime_place place = {"TERN_COREAI_SHIM", "tern", "libtern_coreai", "libtern_coreai.dylib"};

static enum tern_status unit_choose(const char *provider, int32_t *out, struct tern_err *err) {
    static const char *const names[] = {"default", "ane", "gpu", "cpu"};
    if (!provider) provider = "ane";
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], provider) == 0) return *out = (int32_t)i, TERN_OK;
    return err_set(err, TERN_NOT_FOUND, "Core AI: no unit '%s'; there are ane, gpu, cpu, default", provider);
}

static enum tern_status functions_get(struct shim_backend *b, const struct os_library *lib, struct tern_err *err) {
    const struct {
        const char *name;
        void *at;
    } wanted[] = {{"tern_coreai_load", &b->load}, {"tern_coreai_run", &b->run}, {"tern_coreai_free", &b->free_model}};
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        os_function f = library_symbol(lib, wanted[i].name);
        if (!f)
            return err_set(err, TERN_UNSUPPORTED, "Core AI: '%s' has no function %s: it is not coreai_shim.swift's",
                           b->base.info.library, wanted[i].name);
        memcpy(wanted[i].at, &f, sizeof f);
    }
    return TERN_OK;
}

static void backend_close(struct npu_backend *backend) {
    struct shim_backend *b = (struct shim_backend *)backend;
    if (!b) return;
    if (b->model) b->free_model(b->model);
    mem_free(b);
}

static enum tern_status backend_open(struct npu_backend **out, const struct npu_backend_options *o,
                                     struct tern_err *err) {
    struct shim_backend *b = mem_calloc(1, sizeof *b);
    struct os_library *lib;
    struct coreai_asset_info asset;
    char message[SHIM_MESSAGE_MAX] = "";
    int32_t unit = TERN_COREAI_DEFAULT;
    enum tern_status status;
    *out = NULL;
    if (!b) return err_set(err, TERN_NO_MEMORY, "no memory for Core AI");
    b->base.driver = &npu_apple_backend;
    TRY_GOTO(unit_choose(o->provider, &unit, err), fail);
    const char *named = o->library ? o->library : env_get(place.variable);
    if (!named) {
        status = err_set(err, TERN_NOT_FOUND,
                         "Core AI: on a Mac, TERN_COREAI_SHIM names the library that tools/coreai/coreai_shim.swift "
                         "becomes (doc/npu.md)");
        goto fail;
    }
    status = npu_runtime_find(b->base.info.library, sizeof b->base.info.library, &place, named, err);
    if (status == TERN_OK) status = library_open(&lib, b->base.info.library, err);
    if (status != TERN_OK) {
        err_prefix(err, "Core AI");
        goto fail;
    }
    TRY_GOTO(functions_get(b, lib, err), fail);
    snprintf(b->base.info.version, sizeof b->base.info.version, "of this system");
    snprintf(b->base.info.provider, sizeof b->base.info.provider, "%s", o->provider ? o->provider : "ane");
    if (o->asset) {
        status = coreai_asset_check(o->asset, &asset, err);
        if (status != TERN_OK) {
            err_prefix(err, "Core AI");
            goto fail;
        }
        snprintf(b->base.info.model, sizeof b->base.info.model, "%s", asset.model);
        b->model = b->load(o->asset, unit, message, sizeof message);
        if (!b->model) {
            status = err_set(err, TERN_UNSUPPORTED, "Core AI: %s: %.400s", o->asset, message);
            goto fail;
        }
    }
    *out = (struct npu_backend *)b;
    return TERN_OK;
fail:
    backend_close((struct npu_backend *)b);
    return status;
}

// The asset holds the program under its name; the first run shows whether it does.
static enum tern_status compile(struct npu_backend *backend, struct npu_compiled **out, const struct npu_list *l,
                                struct tern_err *err) {
    struct shim_backend *b = (struct shim_backend *)backend;
    *out = NULL;
    if (!b->model) return err_set(err, TERN_INVALID_ARGUMENT, "Core AI: no asset to take %s from", l->name);
    struct shim_compiled *c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
    c->b = b;
    c->base.list = l;
    c->base.placement.n_ops = l->n_ops;
    snprintf(c->base.placement.detail, sizeof c->base.placement.detail, "preferred unit %s: %d operations",
             b->base.info.provider, l->n_ops);
    *out = (struct npu_compiled *)c;
    return TERN_OK;
}

static void compiled_free(struct npu_compiled *c) { mem_free(c); }

static void tensor_describe(const struct npu_list *l, int id, const char *name, void *data, tern_coreai_tensor *out) {
    const struct npu_tensor *t = &l->tensors[id];
    int64_t stride = 1;
    *out = (tern_coreai_tensor){.name = name, .data = data, .bytes = npu_tensor_len(t) * 2, .rank = t->rank};
    for (int i = t->rank - 1; i >= 0; i--) {
        out->shape[i] = t->shape[i];
        out->stride[i] = stride;
        stride *= t->shape[i];
    }
}

static void unbind(struct npu_binding *binding) {
    struct shim_bound *bd = (struct shim_bound *)binding;
    if (!bd) return;
    arena_release(&bd->arena);
    mem_free(bd);
}

static enum tern_status bind(struct npu_compiled *compiled, struct npu_binding **out, const struct npu_buffers *io,
                             struct tern_err *err) {
    struct shim_compiled *c = (struct shim_compiled *)compiled;
    const struct npu_list *l = c->base.list;
    struct shim_bound *bd = mem_calloc(1, sizeof *bd);
    *out = NULL;
    if (bd) arena_init(&bd->arena, 0);
    if (bd) bd->in = arena_calloc(&bd->arena, (size_t)l->n_inputs + 1, sizeof *bd->in);
    if (bd) bd->state = arena_calloc(&bd->arena, (size_t)l->n_states + 1, sizeof *bd->state);
    if (bd) bd->out = arena_calloc(&bd->arena, (size_t)l->n_outputs + 1, sizeof *bd->out);
    if (!bd || !bd->in || !bd->state || !bd->out) {
        unbind((struct npu_binding *)bd);
        return err_set(err, TERN_NO_MEMORY, "no memory for the buffers of %s", l->name);
    }
    bd->c = c;
    bd->io = *io;
    for (int i = 0; i < l->n_inputs; i++)
        tensor_describe(l, l->inputs[i], l->tensors[l->inputs[i]].name, io->inputs[i], &bd->in[i]);
    for (int i = 0; i < l->n_outputs; i++)
        tensor_describe(l, l->outputs[i], l->tensors[l->outputs[i]].name, io->outputs[i], &bd->out[i]);
    for (int i = 0; i < l->n_states; i++)
        tensor_describe(l, l->states[i].now, l->states[i].name, io->now[i], &bd->state[i]);
    *out = (struct npu_binding *)bd;
    return TERN_OK;
}

static enum tern_status run(struct npu_binding *binding, struct tern_err *err) {
    struct shim_bound *bd = (struct shim_bound *)binding;
    const struct shim_backend *b = bd->c->b;
    const struct npu_list *l = bd->c->base.list;
    char message[SHIM_MESSAGE_MAX] = "";
    for (int i = 0; i < l->n_states; i++) // the runtime updates states where they lie
        memcpy(bd->io.now[i], bd->io.old[i], (size_t)bd->state[i].bytes);
    if (b->run(b->model, l->name, bd->in, l->n_inputs, bd->state, l->n_states, bd->out, l->n_outputs, message,
               sizeof message) == 0)
        return TERN_OK;
    message[sizeof message - 1] = 0;
    return err_set(err, TERN_UNSUPPORTED, "Core AI: %s: %.400s", l->name, message);
}

const struct npu_backend_driver npu_apple_backend = {
    .name = "apple",
    .title = "Core AI",
    .shares_weights = true,
    .needs_asset = true,
    .open = backend_open,
    .close = backend_close,
    .compile = compile,
    .free = compiled_free,
    .bind = bind,
    .unbind = unbind,
    .run = run,
};
