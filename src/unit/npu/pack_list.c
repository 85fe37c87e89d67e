// Operation lists as JSON. The text holds no values but short constants, so it names a geometry: every model of one
// geometry gives the same text, and its digest is the key of a template.
#include "unit/npu/pack_list.h"

static void ints_put(struct json_writer *w, const char *key, const int *v, int n) {
    json_write_key(w, key);
    json_write_array(w);
    for (int i = 0; i < n; i++) json_write_int(w, v[i]);
    json_write_array_end(w);
}

static void const_put(struct json_writer *w, const struct npu_tensor *t) {
    const struct npu_weight *c = t->weight;
    int64_t n = npu_tensor_len(t);
    json_write_key(w, "const");
    json_write_object(w);
    json_write_key(w, "name");
    json_write_str(w, str_from(c->name));
    json_write_key(w, "kind");
    json_write_str(w, c->kind == NPU_WEIGHT_I8 ? STR("i8") : STR("f16"));
    if (c->kind == NPU_WEIGHT_F16 && n <= NPU_LITERAL_MAX) {
        json_write_key(w, "half");
        json_write_array(w);
        for (int64_t i = 0; i < n; i++) json_write_int(w, c->half[i]);
        json_write_array_end(w);
    }
    json_write_object_end(w);
}

static void tensor_put(struct json_writer *w, const struct npu_tensor *t) {
    json_write_object(w);
    if (t->name[0]) {
        json_write_key(w, "name");
        json_write_str(w, str_from(t->name));
    }
    ints_put(w, "shape", t->shape, t->rank);
    if (t->role == NPU_CONST) const_put(w, t);
    json_write_object_end(w);
}

static void int_put(struct json_writer *w, const char *key, int64_t v) {
    json_write_key(w, key);
    json_write_int(w, v);
}

static void op_put(struct json_writer *w, const struct npu_list *l, const struct npu_op *o) {
    json_write_object(w);
    json_write_key(w, "op");
    json_write_str(w, str_from(npu_op_name(o->kind)));
    ints_put(w, "in", o->in, o->n_in);
    int_put(w, "out", o->out);
    if ((o->kind >= NPU_OP_SOFTMAX && o->kind <= NPU_OP_ARGMAX) || o->kind == NPU_OP_SLICE || o->kind == NPU_OP_CONCAT)
        int_put(w, "axis", o->axis);
    if (o->kind == NPU_OP_SLICE) {
        int_put(w, "begin", o->begin);
        int_put(w, "end", o->end);
    }
    if (o->kind == NPU_OP_TRANSPOSE) ints_put(w, "perm", o->perm, l->tensors[o->out].rank);
    json_write_object_end(w);
}

static void list_put(struct json_writer *w, const struct npu_list *l) {
    json_write_object(w);
    json_write_key(w, "name");
    json_write_str(w, str_from(l->name));
    json_write_key(w, "tensors");
    json_write_array(w);
    for (int i = 0; i < l->n_tensors; i++) tensor_put(w, &l->tensors[i]);
    json_write_array_end(w);
    json_write_key(w, "ops");
    json_write_array(w);
    for (int i = 0; i < l->n_ops; i++) op_put(w, l, &l->ops[i]);
    json_write_array_end(w);
    ints_put(w, "inputs", l->inputs, l->n_inputs);
    ints_put(w, "outputs", l->outputs, l->n_outputs);
    json_write_key(w, "states");
    json_write_array(w);
    for (int i = 0; i < l->n_states; i++) {
        json_write_object(w);
        json_write_key(w, "name");
        json_write_str(w, str_from(l->states[i].name));
        int_put(w, "old", l->states[i].old);
        int_put(w, "now", l->states[i].now);
        json_write_object_end(w);
    }
    json_write_array_end(w);
    json_write_object_end(w);
}

bool npu_lists_json(struct buf *out, const struct npu_list *const *lists, int n) {
    struct json_writer w;
    json_write_init(&w, out);
    json_write_object(&w);
    json_write_key(&w, "lists");
    json_write_array(&w);
    for (int i = 0; i < n; i++) list_put(&w, lists[i]);
    json_write_array_end(&w);
    json_write_object_end(&w);
    return buf_putc(out, '\n') && !out->failed;
}

void npu_lists_digest(const struct buf *json, char out[65]) {
    struct sha256 s;
    uint8_t digest[32];
    sha256_init(&s);
    sha256_update(&s, json->data, json->len);
    sha256_final(&s, digest);
    sha256_hex(digest, out);
}
