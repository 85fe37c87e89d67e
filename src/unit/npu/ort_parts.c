// What the programs of a back end share: sessions of equal parts, constants as the runtime's values, and the memory of
// values between parts. All are counted by their users. Constants are never copied: graphs that get them as inputs
// cannot be packed by the runtime, which would keep a copy for each session.
#include "unit/npu/ort_int.h"
#include <stdio.h>

#define WEIGHTS_FIRST 256

struct ort_weight {
    const void *data;
    size_t bytes;
    struct ort_value *value;
    int n_users;
};
struct ort_space {
    struct ort_space *next;
    int n_users;
    size_t bytes;
    void *data;
};

// ------------------------------------------------------------------------------------------------------------ sessions

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
    // Beyond this level the runtime turns weights into private copies in another layout.
    TRY(ort_check(b, b->api->set_session_graph_optimization_level(o, ORT_OPTIMIZE_EXTENDED), err, "graph"));
    if (b->is_cpu) return TERN_OK;
    TRY(ort_check(b, b->api->add_session_config_entry(o, "session.disable_cpu_ep_fallback", "1"), err, "fallback"));
    if (b->device)
        return ort_check(b,
                         b->api->session_options_append_execution_provider_v2(o, b->env, &b->device, 1, NULL, NULL, 0),
                         err, "provider %s", b->ep_name);
    return ort_check(b, b->api->session_options_append_execution_provider(o, b->ep_name, NULL, NULL, 0), err,
                     "provider %s", b->ep_name);
}

static enum tern_status placement_read(const struct ort_backend *b, struct ort_part *p, const char *name,
                                       struct tern_err *err) {
    const struct ort_assigned *const *groups = NULL;
    size_t n_groups = 0;
    char where[64] = "";
    TRY(ort_check(b, b->api->session_get_ep_graph_assignment_info(p->session, &groups, &n_groups), err,
                  "%s: nodes by provider", name));
    for (size_t i = 0; i < n_groups; i++) {
        const struct ort_assigned_node *const *nodes = NULL;
        const char *ep = "";
        size_t n = 0;
        TRY(ort_check(b, b->api->ep_assigned_subgraph_get_ep_name(groups[i], &ep), err, "nodes by provider"));
        TRY(ort_check(b, b->api->ep_assigned_subgraph_get_nodes(groups[i], &nodes, &n), err, "nodes by provider"));
        p->n_nodes += (int)n;
        if (strcmp(ep, b->ep_name) == 0) continue;
        p->n_elsewhere += (int)n;
        snprintf(where, sizeof where, "%s", ep);
    }
    if (p->n_nodes == 0) return err_set(err, TERN_UNSUPPORTED, "ONNX Runtime says of no node of %s where it is", name);
    if (p->n_elsewhere == 0) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "%s would not run on %s alone: %d of %d nodes are on %s", name, b->ep_name,
                   p->n_elsewhere, p->n_nodes, where);
}

static const char **names_make(struct arena *a, char letter, int n) {
    const char **names = arena_alloc(a, ((size_t)n + 1) * sizeof *names);
    for (int i = 0; names && i < n; i++) {
        char *name = arena_alloc(a, 16);
        if (!name) return NULL;
        snprintf(name, 16, "%c%d", letter, i);
        names[i] = name;
    }
    return names;
}

static void part_free(const struct ort_backend *b, struct ort_part *p) {
    if (p->session) b->api->release_session(p->session);
    buf_release(&p->key);
    arena_release(&p->arena);
    mem_free(p);
}

static enum tern_status part_open(struct ort_backend *b, struct ort_part *p, const struct ort_cuts *cuts,
                                  const struct ort_cut *cut, struct tern_err *err) {
    const char *name = cut->list->name;
    struct ort_model *model = NULL;
    struct ort_session_options *o = NULL;
    enum tern_status status;
    p->n_ins = cut->n_ins;
    p->n_outs = cut->n_outs;
    p->in_names = names_make(&p->arena, 'i', p->n_ins);
    p->out_names = names_make(&p->arena, 'o', p->n_outs);
    if (!p->in_names || !p->out_names) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", name);
    TRY(ort_model_build(b, &model, cuts, cut, err));
    TRY_GOTO(ort_check(b, b->api->create_session_options(&o), err, "%s", name), done);
    TRY_GOTO(config_set(b, o, err), done);
    TRY_GOTO(ort_check(b, b->editor->create_session_from_model(b->env, model, o, &p->session), err,
                       "%s does not compile for %s", name, b->ep_name),
             done);
    TRY_GOTO(placement_read(b, p, name, err), done);
done:
    if (o) b->api->release_session_options(o);
    b->api->release_model(model);
    return status;
}

enum tern_status ort_part_get(struct ort_backend *b, struct ort_part **out, const struct ort_cuts *cuts,
                              struct ort_cut *cut, struct tern_err *err) {
    for (struct ort_part *p = b->parts; p && b->in_parts; p = p->next)
        if (str_eq(buf_str(&p->key), buf_str(&cut->key))) {
            p->n_users++;
            *out = p;
            return TERN_OK;
        }
    struct ort_part *p = mem_calloc(1, sizeof *p);
    if (!p) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", cut->list->name);
    arena_init(&p->arena, 0);
    enum tern_status status = part_open(b, p, cuts, cut, err);
    if (status != TERN_OK) {
        part_free(b, p);
        return status;
    }
    p->key = cut->key;
    buf_init(&cut->key, 0);
    p->n_users = 1;
    p->next = b->parts;
    b->parts = p;
    *out = p;
    return TERN_OK;
}

void ort_part_put(struct ort_backend *b, struct ort_part *p) {
    if (--p->n_users > 0) return;
    for (struct ort_part **at = &b->parts; *at; at = &(*at)->next)
        if (*at == p) {
            *at = p->next;
            break;
        }
    part_free(b, p);
}

// ----------------------------------------------------------------------------------------------------------- constants

enum tern_status ort_weight_get(struct ort_backend *b, struct ort_value **out, const void *data, size_t bytes,
                                const int64_t *dims, int rank, int element, struct tern_err *err) {
    for (int i = 0; i < b->n_weights; i++) // a matrix is one shape in all lists of a model
        if (b->weights[i].data == data && b->weights[i].bytes == bytes) {
            b->weights[i].n_users++;
            *out = b->weights[i].value;
            return TERN_OK;
        }
    if (b->n_weights == b->weights_cap) {
        int cap = MAX(2 * b->weights_cap, WEIGHTS_FIRST);
        struct ort_weight *more = mem_realloc(b->weights, (size_t)cap * sizeof *more);
        if (!more) return err_set(err, TERN_NO_MEMORY, "no memory for %d constants", cap);
        b->weights = more;
        b->weights_cap = cap;
    }
    struct ort_weight *w = &b->weights[b->n_weights];
    *w = (struct ort_weight){.data = data, .bytes = bytes, .n_users = 1};
    TRY(ort_check(b,
                  b->api->create_tensor_with_data_as_value(b->memory, (void *)(uintptr_t)data, bytes, dims,
                                                           (size_t)rank, element, &w->value),
                  err, "a constant of %zu bytes", bytes));
    b->n_weights++;
    *out = w->value;
    return TERN_OK;
}

void ort_weight_put(struct ort_backend *b, const struct ort_value *v) {
    int i = 0;
    while (i < b->n_weights && b->weights[i].value != v) i++;
    if (i == b->n_weights) TERN_BUG("ort: a constant that nobody has");
    if (--b->weights[i].n_users > 0) return;
    b->api->release_value(b->weights[i].value);
    b->weights[i] = b->weights[--b->n_weights];
}

// -------------------------------------------------------------------------------------------------------------- memory

enum tern_status ort_space_get(struct ort_backend *b, struct ort_space **out, void **data, size_t bytes,
                               struct tern_err *err) {
    struct ort_space *s = b->spaces;
    while (s && s->bytes < bytes) s = s->next;
    if (!s) { // programs that have a smaller one keep it
        s = mem_calloc(1, sizeof *s);
        if (s) s->data = mem_alloc(MAX(bytes, 1));
        if (!s || !s->data) {
            mem_free(s);
            return err_set(err, TERN_NO_MEMORY, "no memory for %zu bytes between parts", bytes);
        }
        s->bytes = bytes;
        s->next = b->spaces;
        b->spaces = s;
    }
    s->n_users++;
    *out = s;
    *data = s->data;
    return TERN_OK;
}

void ort_space_put(struct ort_backend *b, struct ort_space *s) {
    if (--s->n_users > 0) return;
    for (struct ort_space **at = &b->spaces; *at; at = &(*at)->next)
        if (*at == s) {
            *at = s->next;
            break;
        }
    mem_free(s->data);
    mem_free(s);
}
