// Programs of ONNX Runtime: a session for each list, with the provider that was asked for and no other.
//
// For a provider other than the CPU's the runtime is told to refuse a session in which any node would land on the CPU,
// and for all of them its own report of nodes by provider is read after compiling; a node elsewhere is an error, not a
// slower program. Buffers are bound by their addresses once.
#include "unit/npu/ort_int.h"
#include <stdio.h>

struct ort_compiled {
    struct npu_compiled_base base;
    struct ort_backend *b;
    struct ort_session *session;
};
struct ort_bound {
    struct ort_compiled *c;
    struct ort_binding *binding;
    int n_values;
    struct ort_value *list[]; // [inputs + outputs + 2 states]
};

static enum tern_status config_set(const struct ort_backend *b, struct ort_session_options *o, struct tern_err *err) {
    static const char *const entries[][2] = {
        {"session.use_env_allocators", "1"},
        {"session.record_ep_graph_assignment_info", "1"},
    };
    for (size_t i = 0; i < ARRAY_LEN(entries); i++)
        TRY(ort_check(b, b->api->add_session_config_entry(o, entries[i][0], entries[i][1]), err, "%s", entries[i][0]));
    TRY(ort_check(b, b->api->disable_per_session_threads(o), err, "threads"));
    // Else every session would keep a block for its whole work memory, beside the arena that they share.
    TRY(ort_check(b, b->api->disable_mem_pattern(o), err, "memory"));
    if (b->is_cpu) return TERN_OK;
    TRY(ort_check(b, b->api->add_session_config_entry(o, "session.disable_cpu_ep_fallback", "1"), err, "fallback"));
    if (b->device)
        return ort_check(b,
                         b->api->session_options_append_execution_provider_v2(o, b->env, &b->device, 1, NULL, NULL, 0),
                         err, "provider %s", b->ep_name);
    return ort_check(b, b->api->session_options_append_execution_provider(o, b->ep_name, NULL, NULL, 0), err,
                     "provider %s", b->ep_name);
}

static enum tern_status placement_read(struct ort_compiled *c, struct tern_err *err) {
    const struct ort_backend *b = c->b;
    const struct ort_assigned *const *parts = NULL;
    size_t n_parts = 0;
    struct npu_placement *p = &c->base.placement;
    char where[64] = "";
    TRY(ort_check(b, b->api->session_get_ep_graph_assignment_info(c->session, &parts, &n_parts), err,
                  "%s: nodes by provider", c->base.list->name));
    for (size_t i = 0; i < n_parts; i++) {
        const struct ort_assigned_node *const *nodes = NULL;
        const char *name = "";
        size_t n = 0;
        TRY(ort_check(b, b->api->ep_assigned_subgraph_get_ep_name(parts[i], &name), err, "nodes by provider"));
        TRY(ort_check(b, b->api->ep_assigned_subgraph_get_nodes(parts[i], &nodes, &n), err, "nodes by provider"));
        p->n_ops += (int)n;
        if (strcmp(name, b->ep_name) == 0) continue;
        p->n_elsewhere += (int)n;
        snprintf(where, sizeof where, "%s", name);
    }
    snprintf(p->detail, sizeof p->detail, "%s: %d of %d nodes", b->ep_name, p->n_ops - p->n_elsewhere, p->n_ops);
    if (p->n_ops == 0)
        return err_set(err, TERN_UNSUPPORTED, "ONNX Runtime says of no node of %s where it is", c->base.list->name);
    if (p->n_elsewhere == 0) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "%s would not run on %s alone: %d of %d nodes are on %s", c->base.list->name,
                   b->ep_name, p->n_elsewhere, p->n_ops, where);
}

static void compiled_free(struct npu_compiled *compiled) {
    struct ort_compiled *c = (struct ort_compiled *)compiled;
    if (!c) return;
    if (c->session) c->b->api->release_session(c->session);
    mem_free(c);
}

static enum tern_status compile(struct npu_backend *backend, struct npu_compiled **out, const struct npu_list *l,
                                struct tern_err *err) {
    struct ort_backend *b = (struct ort_backend *)backend;
    struct ort_model *model = NULL;
    struct ort_session_options *o = NULL;
    enum tern_status status;
    struct ort_compiled *c = mem_calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
    c->b = b;
    c->base.list = l;
    TRY_GOTO(ort_model_build(b, &model, l, err), fail);
    TRY_GOTO(ort_check(b, b->api->create_session_options(&o), err, "%s", l->name), fail);
    TRY_GOTO(config_set(b, o, err), fail);
    // Beyond this level the runtime turns weights into private copies in another layout.
    TRY_GOTO(ort_check(b, b->api->set_session_graph_optimization_level(o, ORT_OPTIMIZE_EXTENDED), err, "%s", l->name),
             fail);
    TRY_GOTO(ort_check(b, b->editor->create_session_from_model(b->env, model, o, &c->session), err,
                       "%s does not compile for %s", l->name, b->ep_name),
             fail);
    TRY_GOTO(placement_read(c, err), fail);
    b->api->release_model(model);
    b->api->release_session_options(o);
    *out = (struct npu_compiled *)c;
    return TERN_OK;
fail:
    if (model) b->api->release_model(model);
    if (o) b->api->release_session_options(o);
    compiled_free((struct npu_compiled *)c);
    return status;
}

static void unbind(struct npu_binding *binding) {
    struct ort_bound *bd = (struct ort_bound *)binding;
    if (!bd) return;
    if (bd->binding) bd->c->b->api->release_io_binding(bd->binding);
    for (int i = 0; i < bd->n_values; i++) bd->c->b->api->release_value(bd->list[i]);
    mem_free(bd);
}

static enum tern_status bind_one(struct ort_bound *bd, const char *name, int id, void *data, bool is_in,
                                 struct tern_err *err) {
    const struct ort_backend *b = bd->c->b;
    const struct npu_list *l = bd->c->base.list;
    const struct npu_tensor *t = &l->tensors[id];
    struct ort_value **v = &bd->list[bd->n_values];
    int64_t dims[NPU_RANK_MAX];
    for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i];
    TRY(ort_check(b,
                  b->api->create_tensor_with_data_as_value(b->memory, data, (size_t)npu_tensor_len(t) * 2, dims,
                                                           (size_t)t->rank, ORT_F16, v),
                  err, "%s, %s", l->name, name));
    bd->n_values++;
    return ort_check(b, is_in ? b->api->bind_input(bd->binding, name, *v) : b->api->bind_output(bd->binding, name, *v),
                     err, "%s, %s", l->name, name);
}

static enum tern_status bind(struct npu_compiled *compiled, struct npu_binding **out, const struct npu_buffers *io,
                             struct tern_err *err) {
    struct ort_compiled *c = (struct ort_compiled *)compiled;
    const struct npu_list *l = c->base.list;
    size_t n = (size_t)l->n_inputs + (size_t)l->n_outputs + 2 * (size_t)l->n_states;
    enum tern_status status;
    struct ort_bound *bd = mem_calloc(1, sizeof *bd + n * sizeof bd->list[0]);
    *out = NULL;
    if (!bd) return err_set(err, TERN_NO_MEMORY, "no memory for the buffers of %s", l->name);
    bd->c = c;
    TRY_GOTO(ort_check(c->b, c->b->api->create_io_binding(c->session, &bd->binding), err, "%s", l->name), fail);
    for (int i = 0; i < l->n_inputs; i++)
        TRY_GOTO(bind_one(bd, l->tensors[l->inputs[i]].name, l->inputs[i], io->inputs[i], true, err), fail);
    for (int i = 0; i < l->n_outputs; i++)
        TRY_GOTO(bind_one(bd, l->tensors[l->outputs[i]].name, l->outputs[i], io->outputs[i], false, err), fail);
    for (int i = 0; i < l->n_states; i++) {
        char old[NPU_NAME_MAX + 8], now[NPU_NAME_MAX + 8];
        ort_state_names(&l->states[i], old, now);
        TRY_GOTO(bind_one(bd, old, l->states[i].old, io->old[i], true, err), fail);
        TRY_GOTO(bind_one(bd, now, l->states[i].now, io->now[i], false, err), fail);
    }
    *out = (struct npu_binding *)bd;
    return TERN_OK;
fail:
    unbind((struct npu_binding *)bd);
    return status;
}

static enum tern_status run(struct npu_binding *binding, struct tern_err *err) {
    struct ort_bound *bd = (struct ort_bound *)binding;
    const struct ort_backend *b = bd->c->b;
    return ort_check(b, b->api->run_with_binding(bd->c->session, NULL, bd->binding), err, "%s", bd->c->base.list->name);
}

const struct npu_backend_driver npu_ort_backend = {
    .name = "ort",
    .title = "ONNX Runtime",
    .opens_beside = true,
    .shares_weights = true,
    .open = ort_open,
    .close = ort_close,
    .compile = compile,
    .free = compiled_free,
    .bind = bind,
    .unbind = unbind,
    .run = run,
};
