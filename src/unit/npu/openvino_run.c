// Programs of OpenVINO: each list compiled for one device. What the runtime says it executes on afterwards is read, and
// anything but that device is an error. On the CPU device sums are in fp32 and activations stay as they are: its
// defaults, bfloat16 on newer processors and int8 activations before int8 weights, are outside what this unit promises
// (an error of 0.0103 relative to 1 + value, against 0.0032).
//
// A set in a folder of its own keeps what the runtime compiled: a file of the weights' size for each program (it can
// leave weights out only of models read from its own files), told apart by the runtime from the graph and the weights.
#include "unit/npu/openvino_int.h"
#include <stdio.h>

#define ACTS_GROUP "32" // values that share a scale, where int8 activations are asked for

struct openvino_compiled {
    struct npu_compiled_base base;
    struct openvino_backend *b;
    struct ov_compiled_model *model;
    struct openvino_ir ir; // its index constants stay for the model's life
    bool has_ir;
};
struct openvino_bound {
    struct openvino_compiled *c;
    struct ov_infer_request *request;
    int n_tensors;
    struct ov_tensor *tensors[]; // [inputs + outputs + 2 states]
};

static void compiled_free(struct npu_compiled *compiled) {
    struct openvino_compiled *c = (struct openvino_compiled *)compiled;
    if (!c) return;
    if (c->model) c->b->api.ov_compiled_model_free(c->model);
    if (c->has_ir) openvino_ir_release(&c->ir);
    mem_free(c);
}

static enum tern_status placement_read(struct openvino_compiled *c, struct tern_err *err) {
    const struct openvino_backend *b = c->b;
    struct npu_placement *p = &c->base.placement;
    char *devices = NULL;
    TRY(openvino_check(b, b->api.ov_compiled_model_get_property(c->model, "EXECUTION_DEVICES", &devices), err,
                       "%s: execution devices", c->base.list->name));
    bool is_one = strcmp(devices, b->device) == 0;
    p->n_ops = c->ir.n_layers;
    snprintf(p->detail, sizeof p->detail, "execution devices: %s (%d layers)", devices, c->ir.n_layers);
    b->api.ov_free(devices);
    if (is_one) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "%s would not run on %s alone; %s", c->base.list->name, b->device, p->detail);
}

static enum tern_status model_compile(struct openvino_compiled *c, const struct ov_model *m, struct tern_err *err) {
    const struct openvino_backend *b = c->b;
    const char *name = c->base.list->name;
    char threads[16];
    int status;
    snprintf(threads, sizeof threads, "%d", b->n_threads);
    if (strcmp(b->device, "CPU") == 0)
        status = b->api.ov_core_compile_model(b->core, m, b->device, 10, &c->model, "INFERENCE_PRECISION_HINT", "f32",
                                              "DYNAMIC_QUANTIZATION_GROUP_SIZE", b->acts_int8 ? ACTS_GROUP : "0",
                                              "PERFORMANCE_HINT", "LATENCY", "INFERENCE_NUM_THREADS", threads,
                                              "CACHE_DIR", b->cache);
    else
        status = b->api.ov_core_compile_model(b->core, m, b->device, 4, &c->model, "PERFORMANCE_HINT", "LATENCY",
                                              "CACHE_DIR", b->cache);
    return openvino_check(b, status, err, "%s does not compile for %s", name, b->device);
}

static enum tern_status tensor_make(const struct openvino_backend *b, struct ov_tensor **out, enum ov_element type,
                                    const int64_t *dims, int rank, const void *data, struct tern_err *err) {
    int64_t copy[NPU_RANK_MAX];
    for (int i = 0; i < rank; i++) copy[i] = dims[i];
    struct ov_shape s = {rank, copy};
    int status = b->api.ov_tensor_create_from_host_ptr((int)type, s, (void *)(uintptr_t)data, out);
    return openvino_check(b, status, err, "a tensor");
}

static enum tern_status compile(struct npu_backend *backend, struct npu_compiled **out, const struct npu_list *l,
                                struct tern_err *err) {
    struct openvino_backend *b = (struct openvino_backend *)backend;
    struct ov_tensor *weights = NULL;
    struct ov_model *model = NULL;
    enum tern_status status;
    struct openvino_compiled *c = mem_calloc(1, sizeof *c);
    *out = NULL;
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
    c->b = b;
    c->base.list = l;
    TRY_GOTO(openvino_ir_write(&c->ir, l, err), done);
    c->has_ir = true;
    const int64_t span = (int64_t)c->ir.span;
    TRY_GOTO(tensor_make(b, &weights, OV_U8, &span, 1, c->ir.base, err), done);
    TRY_GOTO(openvino_check(
                 b,
                 b->api.ov_core_read_model_from_memory_buffer(b->core, c->ir.xml.data, c->ir.xml.len, weights, &model),
                 err, "%s is not read", l->name),
             done);
    TRY_GOTO(model_compile(c, model, err), done);
    TRY_GOTO(placement_read(c, err), done);
    buf_release(&c->ir.xml);
    *out = (struct npu_compiled *)c;
done:
    if (model) b->api.ov_model_free(model);
    if (weights) b->api.ov_tensor_free(weights);
    if (status != TERN_OK) compiled_free((struct npu_compiled *)c);
    return status;
}

static void unbind(struct npu_binding *binding) {
    struct openvino_bound *bd = (struct openvino_bound *)binding;
    if (!bd) return;
    const struct ov_api *api = &bd->c->b->api;
    if (bd->request) api->ov_infer_request_free(bd->request);
    for (int i = 0; i < bd->n_tensors; i++) api->ov_tensor_free(bd->tensors[i]);
    mem_free(bd);
}

static enum tern_status bind_one(struct openvino_bound *bd, int id, void *data, int index, bool is_in,
                                 struct tern_err *err) {
    const struct openvino_backend *b = bd->c->b;
    const struct npu_tensor *t = &bd->c->base.list->tensors[id];
    struct ov_tensor **v = &bd->tensors[bd->n_tensors];
    int64_t dims[NPU_RANK_MAX];
    for (int i = 0; i < t->rank; i++) dims[i] = t->shape[i];
    TRY(tensor_make(b, v, OV_F16, dims, t->rank, data, err));
    bd->n_tensors++;
    int status = is_in ? b->api.ov_infer_request_set_input_tensor_by_index(bd->request, (size_t)index, *v)
                       : b->api.ov_infer_request_set_output_tensor_by_index(bd->request, (size_t)index, *v);
    return openvino_check(b, status, err, "%s, %s %d", bd->c->base.list->name, is_in ? "input" : "output", index);
}

static enum tern_status bind(struct npu_compiled *compiled, struct npu_binding **out, const struct npu_buffers *io,
                             struct tern_err *err) {
    struct openvino_compiled *c = (struct openvino_compiled *)compiled;
    const struct npu_list *l = c->base.list;
    size_t n = (size_t)l->n_inputs + (size_t)l->n_outputs + 2 * (size_t)l->n_states;
    enum tern_status status;
    struct openvino_bound *bd = mem_calloc(1, sizeof *bd + n * sizeof bd->tensors[0]);
    *out = NULL;
    if (!bd) return err_set(err, TERN_NO_MEMORY, "no memory for the buffers of %s", l->name);
    bd->c = c;
    TRY_GOTO(openvino_check(c->b, c->b->api.ov_compiled_model_create_infer_request(c->model, &bd->request), err, "%s",
                            l->name),
             fail);
    for (int i = 0; i < l->n_inputs; i++) TRY_GOTO(bind_one(bd, l->inputs[i], io->inputs[i], i, true, err), fail);
    for (int i = 0; i < l->n_outputs; i++) TRY_GOTO(bind_one(bd, l->outputs[i], io->outputs[i], i, false, err), fail);
    for (int i = 0; i < l->n_states; i++) {
        TRY_GOTO(bind_one(bd, l->states[i].old, io->old[i], l->n_inputs + i, true, err), fail);
        TRY_GOTO(bind_one(bd, l->states[i].now, io->now[i], l->n_outputs + i, false, err), fail);
    }
    *out = (struct npu_binding *)bd;
    return TERN_OK;
fail:
    unbind((struct npu_binding *)bd);
    return status;
}

static enum tern_status run(struct npu_binding *binding, struct tern_err *err) {
    struct openvino_bound *bd = (struct openvino_bound *)binding;
    const struct openvino_backend *b = bd->c->b;
    return openvino_check(b, b->api.ov_infer_request_infer(bd->request), err, "%s", bd->c->base.list->name);
}

const struct npu_backend_driver npu_openvino_backend = {
    .name = "openvino",
    .title = "OpenVINO",
    .opens_beside = true,
    .takes_int4 = true,
    .takes_int8_acts = true,
    .open = openvino_open,
    .close = openvino_close,
    .compile = compile,
    .free = compiled_free,
    .bind = bind,
    .unbind = unbind,
    .run = run,
};
