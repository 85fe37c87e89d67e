// Where a back end's inputs are made and its outputs are read.
//
// Most are floats, as the evaluator has them: inputs are narrowed before a run and outputs widened behind it, so both
// lie in the same memory, one after the other in time. Keys, values and logits are fp16 alone: the first are filled
// where the runtime reads them, the last are widened row by row when they are taken. A runtime that reads inputs in
// turns (npu_backend.h) gets keys and values when their turn comes, all in the memory of the largest turn: for 350M
// behind 4,096 positions 8 MB instead of 50.
#include "base/base.h"
#include "unit/npu/npu_unit.h"

#define NOWHERE SIZE_MAX

struct place {      // of an input or output
    size_t at;      // floats from the stage's; NOWHERE: it is fp16 alone
    size_t half_at; // bytes from the memory of halves
    int turn;       // of an input that is filled when its turn comes; NPU_NONE: before the run
};
struct npu_stage {
    const struct npu_list *list;
    struct place *places; // [n_inputs + n_outputs]
    uint64_t float_bytes, half_bytes;
    float *floats;
    uint8_t *halves;
    uint64_t bytes;
};

static size_t aligned(size_t n, size_t to) { return (n + to - 1) / to * to; }

static bool is_half(enum npu_role role) { return role == NPU_IN_K || role == NPU_IN_V || role == NPU_OUT_LOGITS; }

static const struct npu_tensor *tensor_of(const struct npu_stage *s, int io) {
    const struct npu_list *l = s->list;
    return &l->tensors[io < l->n_inputs ? l->inputs[io] : l->outputs[io - l->n_inputs]];
}

static size_t half_size(const struct npu_tensor *t) { return aligned((size_t)npu_tensor_len(t) * 2, MEM_ALIGN); }

enum tern_status npu_stage_create(struct npu_stage **out, const struct npu_list *l, struct tern_err *err) {
    size_t n = (size_t)l->n_inputs + (size_t)l->n_outputs, at[2] = {0};
    struct npu_stage *s = mem_calloc(1, sizeof *s + n * sizeof *s->places);
    *out = NULL;
    if (!s) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for the buffers of %s", l->name);
    s->list = l;
    s->places = (struct place *)(void *)(s + 1);
    s->bytes = sizeof *s + n * sizeof *s->places;
    for (int i = 0; i < (int)n; i++) {
        const struct npu_tensor *t = tensor_of(s, i);
        size_t *next = &at[i >= l->n_inputs];
        s->places[i] = (struct place){.at = NOWHERE, .half_at = s->half_bytes, .turn = NPU_NONE};
        s->half_bytes += half_size(t);
        if (is_half(t->role)) continue;
        s->places[i].at = *next;
        *next += aligned((size_t)npu_tensor_len(t), MEM_ALIGN / sizeof(float));
    }
    s->float_bytes = MAX(at[0], at[1]) * sizeof(float);
    *out = s;
    return TERN_OK;
}

void npu_stage_free(struct npu_stage *s) { mem_free(s); }
uint64_t npu_stage_bytes(const struct npu_stage *s) { return s->bytes; }
uint64_t npu_stage_float_bytes(const struct npu_stage *s) { return s->float_bytes; }
uint64_t npu_stage_half_bytes(const struct npu_stage *s) { return s->half_bytes; }

// Inputs of one turn lie side by side, turns over each other, and all else behind the largest of them.
void npu_stage_turns_set(struct npu_stage *s, int (*turn)(const struct npu_compiled *c, int input),
                         const struct npu_compiled *c) {
    int n = s->list->n_inputs + s->list->n_outputs;
    size_t largest = 0;
    for (int i = 0; i < n; i++) {
        enum npu_role role = tensor_of(s, i)->role;
        size_t at = 0;
        bool late = turn && (role == NPU_IN_K || role == NPU_IN_V);
        s->places[i].turn = late ? turn(c, i) : NPU_NONE;
        for (int k = 0; k < i && s->places[i].turn != NPU_NONE; k++)
            if (s->places[k].turn == s->places[i].turn) at += half_size(tensor_of(s, k));
        s->places[i].half_at = at;
        if (s->places[i].turn != NPU_NONE) largest = MAX(largest, at + half_size(tensor_of(s, i)));
    }
    for (int i = 0; i < n; i++) {
        if (s->places[i].turn != NPU_NONE) continue;
        s->places[i].half_at = largest;
        largest += half_size(tensor_of(s, i));
    }
}

void npu_stage_bind(struct npu_stage *s, float *floats, uint8_t *halves) {
    s->floats = floats;
    s->halves = halves;
}

static int io_find(const struct npu_stage *s, int tensor) {
    const struct npu_list *l = s->list;
    for (int i = 0; i < l->n_inputs; i++)
        if (l->inputs[i] == tensor) return i;
    for (int i = 0; i < l->n_outputs; i++)
        if (l->outputs[i] == tensor) return l->n_inputs + i;
    TERN_BUG("npu unit: %s is no input or output of %s", l->tensors[tensor].name, l->name);
}

int npu_stage_turn(const struct npu_stage *s, int input) { return s->places[input].turn; }
uint16_t *npu_stage_half(const struct npu_stage *s, int io) {
    return (uint16_t *)(void *)(s->halves + s->places[io].half_at);
}

float *npu_value_at(const struct npu_variant *v, int tensor) {
    if (v->eval) return npu_eval_at(v->eval, tensor);
    const struct place *p = &v->stage->places[io_find(v->stage, tensor)];
    if (p->at == NOWHERE) TERN_BUG("npu unit: %s is fp16", v->list->tensors[tensor].name);
    return v->stage->floats + p->at;
}

uint16_t *npu_value_half(const struct npu_variant *v, int tensor) {
    if (v->eval) return npu_eval_half_at(v->eval, tensor);
    int io = io_find(v->stage, tensor);
    return v->stage->places[io].at == NOWHERE ? npu_stage_half(v->stage, io) : NULL;
}
