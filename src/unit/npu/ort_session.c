// Programs of ONNX Runtime: a chain of parts (ort_cut.c), each a session with the provider that was asked for and no
// other.
//
// For a provider other than the CPU's the runtime is told to refuse a session in which any node would land on the CPU,
// and for all of them its own report of nodes by provider is read after compiling; a node elsewhere is an error, not a
// slower program. What each part reads and writes is looked up once, when buffers are bound.
#include "unit/npu/ort_int.h"
#include <stdio.h>

struct ort_use { // of a part by a program
    struct ort_part *part;
    const struct ort_io *ios; // [part->n_ins + part->n_outs]
};
struct ort_compiled {
    struct npu_compiled_base base;
    struct ort_backend *b;
    struct ort_use *uses; // [n_uses]
    int n_uses, n_args;
    struct ort_value **constants; // [n_constants] in the order of the parts' inputs
    int n_constants, constants_cap;
    struct ort_value **values; // [n_tensors] between parts; else NULL
    struct ort_space *space;
    struct arena arena;
};
struct ort_bound {
    struct ort_compiled *c;
    struct ort_value **ports; // [n_ports]
    struct ort_value **args;  // [n_args] inputs and outputs of all parts in turn
    int n_ports;
    void (*fill)(void *arg, int turn);
    void *fill_arg;
};

static void compiled_free(struct npu_compiled *compiled) {
    struct ort_compiled *c = (struct ort_compiled *)compiled;
    if (!c) return;
    struct ort_backend *b = c->b;
    for (int i = 0; c->values && i < c->base.list->n_tensors; i++)
        if (c->values[i]) b->api->release_value(c->values[i]);
    mutex_lock(b->mutex);
    for (int i = 0; i < c->n_uses; i++) ort_part_put(b, c->uses[i].part);
    for (int i = 0; i < c->n_constants; i++) ort_weight_put(b, c->constants[i]);
    if (c->space) ort_space_put(b, c->space);
    mutex_unlock(b->mutex);
    arena_release(&c->arena);
    mem_free(c);
}

// The memory of a constant, or of a piece of it.
static const void *constant_data(const struct ort_cuts *cuts, const struct ort_io *io) {
    const struct npu_tensor *t = &cuts->list->tensors[io->tensor];
    size_t row = (size_t)npu_tensor_len(t) / (size_t)t->shape[0];
    if (io->kind == ORT_IO_HALF) return t->weight->half;
    if (io->kind == ORT_IO_SCALE) return t->weight->scale;
    return t->weight->q + (size_t)io->index * (size_t)ort_piece_rows(t) * row;
}

static size_t io_bytes(const struct ort_cuts *cuts, const struct ort_io *io, int *element, int64_t *dims, int *rank) {
    *rank = ort_io_shape(cuts, io, element, dims);
    size_t n = *element == ORT_F32 ? 4 : *element == ORT_F16 ? 2 : 1;
    for (int i = 0; i < *rank; i++) n *= (size_t)dims[i];
    return n;
}

static enum tern_status use_make(struct ort_compiled *c, const struct ort_cuts *cuts, struct ort_cut *cut,
                                 struct tern_err *err) {
    struct ort_use *use = &c->uses[c->n_uses];
    struct npu_placement *place = &c->base.placement;
    int n = cut->n_ins + cut->n_outs;
    struct ort_io *ios = arena_alloc(&c->arena, ((size_t)n + 1) * sizeof *ios);
    if (!ios) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", c->base.list->name);
    memcpy(ios, cut->ins, (size_t)cut->n_ins * sizeof *ios);
    memcpy(ios + cut->n_ins, cut->outs, (size_t)cut->n_outs * sizeof *ios);
    use->ios = ios;
    TRY(ort_part_get(c->b, &use->part, cuts, cut, err));
    c->n_uses++;
    c->n_args += n;
    place->n_ops += use->part->n_nodes;
    place->n_elsewhere += use->part->n_elsewhere;
    for (int i = 0; i < cut->n_ins; i++) {
        const struct ort_io *io = &cut->ins[i];
        int64_t dims[NPU_RANK_MAX];
        int element, rank;
        if (io->kind == ORT_IO_PORT || io->kind == ORT_IO_VALUE) continue;
        size_t bytes = io_bytes(cuts, io, &element, dims, &rank);
        TRY(ort_weight_get(c->b, &c->constants[c->n_constants], constant_data(cuts, io), bytes, dims, rank, element,
                           err));
        c->n_constants++;
    }
    return TERN_OK;
}

struct slot { // of the memory between parts
    size_t bytes, at;
    int last; // operation that reads it last
};

// Values between parts: each in the first slot that is free by then.
static enum tern_status values_make(struct ort_compiled *c, const struct ort_cuts *cuts, struct arena *scratch,
                                    struct tern_err *err) {
    const struct npu_list *l = cuts->list;
    struct slot *slots = arena_alloc(scratch, (size_t)l->n_tensors * sizeof *slots);
    int *slot_of = arena_alloc(scratch, (size_t)l->n_tensors * sizeof *slot_of), n = 0, element, rank;
    int64_t dims[NPU_RANK_MAX];
    size_t bytes = 0;
    void *data;
    if (!slots || !slot_of) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
    for (int i = 0; i < cuts->n; i++)
        for (int k = 0; k < cuts->all[i].n_outs; k++) {
            const struct ort_io *io = &cuts->all[i].outs[k];
            int s = 0;
            if (io->kind != ORT_IO_VALUE) continue;
            while (s < n && slots[s].last >= cuts->all[i].begin) s++; // what this part still reads is not free
            if (s == n) slots[n++] = (struct slot){0};
            size_t need = (io_bytes(cuts, io, &element, dims, &rank) + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
            slots[s].bytes = MAX(slots[s].bytes, need);
            slots[s].last = cuts->last[io->tensor];
            slot_of[io->tensor] = s;
        }
    for (int s = 0; s < n; s++) {
        slots[s].at = bytes;
        bytes += slots[s].bytes;
    }
    TRY(ort_space_get(c->b, &c->space, &data, bytes, err));
    for (int i = 0; i < cuts->n; i++)
        for (int k = 0; k < cuts->all[i].n_outs; k++) {
            const struct ort_io *io = &cuts->all[i].outs[k];
            if (io->kind != ORT_IO_VALUE) continue;
            size_t need = io_bytes(cuts, io, &element, dims, &rank);
            TRY(ort_check(c->b,
                          c->b->api->create_tensor_with_data_as_value(
                              c->b->memory, (uint8_t *)data + slots[slot_of[io->tensor]].at, need, dims, (size_t)rank,
                              element, &c->values[io->tensor]),
                          err, "%s, a value of %zu bytes", l->name, need));
        }
    return TERN_OK;
}

static enum tern_status parts_make(struct ort_compiled *c, struct ort_cuts *cuts, struct tern_err *err) {
    const struct npu_list *l = c->base.list;
    struct npu_placement *p = &c->base.placement;
    struct arena scratch;
    enum tern_status status = TERN_OK;
    size_t n_constants = 1;
    for (int i = 0; i < cuts->n; i++) n_constants += (size_t)cuts->all[i].n_ins;
    c->uses = arena_calloc(&c->arena, (size_t)cuts->n, sizeof *c->uses);
    c->constants = arena_calloc(&c->arena, n_constants, sizeof *c->constants);
    c->values = arena_calloc(&c->arena, (size_t)l->n_tensors, sizeof *c->values);
    if (!c->uses || !c->constants || !c->values)
        return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
    arena_init(&scratch, 0);
    mutex_lock(c->b->mutex);
    for (int i = 0; i < cuts->n && status == TERN_OK; i++) status = use_make(c, cuts, &cuts->all[i], err);
    if (status == TERN_OK) status = values_make(c, cuts, &scratch, err);
    mutex_unlock(c->b->mutex);
    arena_release(&scratch);
    snprintf(p->detail, sizeof p->detail, "%s: %d of %d nodes", c->b->ep_name, p->n_ops - p->n_elsewhere, p->n_ops);
    return status;
}

static enum tern_status compile(struct npu_backend *backend, struct npu_compiled **out, const struct npu_list *l,
                                struct tern_err *err) {
    struct ort_backend *b = (struct ort_backend *)backend;
    struct ort_cuts cuts;
    struct ort_compiled *c = mem_calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
    c->b = b;
    c->base.list = l;
    arena_init(&c->arena, 0);
    enum tern_status status = ort_cuts_make(&cuts, l, !b->in_parts, err);
    if (status == TERN_OK) {
        status = parts_make(c, &cuts, err);
        ort_cuts_release(&cuts);
    }
    if (status == TERN_OK)
        *out = (struct npu_compiled *)c;
    else
        compiled_free((struct npu_compiled *)c);
    return status;
}

// Parts are turns.
static int turn(const struct npu_compiled *compiled, int input) {
    const struct ort_compiled *c = (const struct ort_compiled *)compiled;
    int found = NPU_NONE;
    for (int i = 0; i < c->n_uses; i++)
        for (int k = 0; k < c->uses[i].part->n_ins; k++) {
            const struct ort_io *io = &c->uses[i].ios[k];
            if (io->kind != ORT_IO_PORT || io->index != input) continue;
            if (found != NPU_NONE) return NPU_NONE;
            found = i;
        }
    return found;
}

static void unbind(struct npu_binding *binding) {
    struct ort_bound *bd = (struct ort_bound *)binding;
    if (!bd) return;
    for (int i = 0; i < bd->n_ports; i++)
        if (bd->ports[i]) bd->c->b->api->release_value(bd->ports[i]);
    mem_free(bd);
}

static void *port_data(const struct npu_list *l, const struct npu_buffers *io, int port) {
    if (port < l->n_inputs) return io->inputs[port];
    port -= l->n_inputs;
    if (port < l->n_states) return io->old[port];
    port -= l->n_states;
    return port < l->n_outputs ? io->outputs[port] : io->now[port - l->n_outputs];
}

static void args_fill(struct ort_bound *bd) {
    const struct ort_compiled *c = bd->c;
    struct ort_value **arg = bd->args, **constant = c->constants;
    for (int i = 0; i < c->n_uses; i++) {
        int n_ins = c->uses[i].part->n_ins, n = n_ins + c->uses[i].part->n_outs;
        for (int k = 0; k < n; k++) {
            const struct ort_io *io = &c->uses[i].ios[k];
            *arg++ = io->kind == ORT_IO_PORT    ? bd->ports[io->index]
                     : io->kind == ORT_IO_VALUE ? c->values[io->tensor]
                                                : *constant++;
        }
    }
}

static enum tern_status bind(struct npu_compiled *compiled, struct npu_binding **out, const struct npu_buffers *io,
                             struct tern_err *err) {
    struct ort_compiled *c = (struct ort_compiled *)compiled;
    const struct npu_list *l = c->base.list;
    const struct ort_api *api = c->b->api;
    int n_ports = ort_ports(l);
    struct ort_bound *bd = mem_calloc(1, sizeof *bd + ((size_t)n_ports + (size_t)c->n_args) * sizeof *bd->ports);
    *out = NULL;
    if (!bd) return err_set(err, TERN_NO_MEMORY, "no memory for the buffers of %s", l->name);
    bd->c = c;
    bd->ports = (struct ort_value **)(void *)(bd + 1);
    bd->args = bd->ports + n_ports;
    bd->n_ports = n_ports;
    bd->fill = io->fill;
    bd->fill_arg = io->fill_arg;
    for (int p = 0; p < n_ports; p++) {
        const struct npu_tensor *t = &l->tensors[ort_port_tensor(l, p)];
        int64_t dims[NPU_RANK_MAX];
        for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i];
        struct ort_status *s =
            api->create_tensor_with_data_as_value(c->b->memory, port_data(l, io, p), (size_t)npu_tensor_len(t) * 2,
                                                  dims, (size_t)t->rank, ORT_F16, &bd->ports[p]);
        enum tern_status status = ort_check(c->b, s, err, "%s, %s", l->name, t->name);
        if (status == TERN_OK) continue;
        unbind((struct npu_binding *)bd);
        return status;
    }
    args_fill(bd);
    *out = (struct npu_binding *)bd;
    return TERN_OK;
}

static enum tern_status run(struct npu_binding *binding, struct tern_err *err) {
    struct ort_bound *bd = (struct ort_bound *)binding;
    const struct ort_compiled *c = bd->c;
    struct ort_value **arg = bd->args;
    for (int i = 0; i < c->n_uses; i++) {
        const struct ort_part *p = c->uses[i].part;
        const struct ort_value *const *in = (const struct ort_value *const *)arg;
        if (bd->fill) bd->fill(bd->fill_arg, i);
        TRY(ort_check(c->b,
                      c->b->api->run(p->session, NULL, p->in_names, in, (size_t)p->n_ins, p->out_names,
                                     (size_t)p->n_outs, arg + p->n_ins),
                      err, "%s", c->base.list->name));
        arg += p->n_ins + p->n_outs;
    }
    return TERN_OK;
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
    .turn = turn,
    .bind = bind,
    .unbind = unbind,
    .run = run,
};
