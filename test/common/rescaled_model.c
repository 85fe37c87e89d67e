// See rescaled_model.h. The tensors of the opened model are changed in place and written by the program's own writer.
#include "rescaled_model.h"
#include <math.h>
#include "app/quantize/quantize.h"
#include "op/op.h"

#define UP_MIN 9 // values of pico's layers lie at 6 to 430: beyond fp16 and the engines' cliff from here on
#define UP_SPREAD 3
#define DOWN_MIN 11 // and far below the normal numbers of fp16
#define DOWN_SPREAD 3

static int exponent_draw(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    int r = (int)(*state >> 33);
    return r & 1 ? UP_MIN + (r >> 1) % UP_SPREAD : -(DOWN_MIN + (r >> 1) % DOWN_SPREAD);
}

// Rows [0, n_rows) by 2^e; the tensor becomes F32.
static enum tern_status tensor_rescale(const struct tensor *t, int64_t n_rows, int e, struct arena *a,
                                       struct tern_err *err) {
    uint64_t row_bytes = 0;
    size_t n = (size_t)t->ne[0];
    struct tensor *mine = (struct tensor *)(uintptr_t)t; // of the model opened here
    float *values = arena_calloc(a, n * (size_t)t->ne[1], sizeof *values);
    bool fits = values && format_row_bytes(t->format, (uint64_t)t->ne[0], &row_bytes);
    uint8_t *bytes = fits ? arena_calloc(a, (size_t)row_bytes, 1) : NULL;
    if (!bytes) return err_set(err, TERN_NO_MEMORY, "no memory to rescale %.*s", (int)t->name.len, t->name.data);
    for (int64_t r = 0; r < t->ne[1]; r++) {
        float *row = values + (size_t)r * n;
        model_tensor_read(t, r, 0, t->ne[0], bytes);
        op_dequant_row(t->format, bytes, t->ne[0], row);
        for (size_t i = 0; r < n_rows && i < n; i++) row[i] = ldexpf(row[i], e);
    }
    mine->data = (const uint8_t *)values;
    mine->format = FORMAT_F32;
    mine->n_bytes = n * (size_t)t->ne[1] * sizeof *values;
    return TERN_OK;
}

static enum tern_status layer_rescale(const struct model *m, const struct model_layer *l, uint64_t *state,
                                      struct arena *a, struct tern_err *err) {
    int ffn = exponent_draw(state), mixer = exponent_draw(state);
    TRY(tensor_rescale(l->ffn_up, l->ffn_up->ne[1], ffn, a, err));
    TRY(tensor_rescale(l->ffn_down, l->ffn_down->ne[1], -ffn, a, err));
    if (l->kind == LAYER_ATTENTION) {
        TRY(tensor_rescale(l->v, l->v->ne[1], mixer, a, err));
        return tensor_rescale(l->o, l->o->ne[1], -mixer, a, err);
    }
    TRY(tensor_rescale(l->conv_in, m->hyper.n_embd, mixer, a, err));
    return tensor_rescale(l->conv_taps, l->conv_taps->ne[1], -mixer, a, err);
}

enum tern_status rescaled_model_write(const char *from, const char *to, uint64_t seed, struct tern_err *err) {
    struct model *m = NULL;
    struct model_export *x = NULL;
    struct quantize_result result;
    struct arena a;
    enum tern_status status;
    arena_init(&a, 0);
    TRY_GOTO(model_open(&m, from, err), done);
    for (int i = 0; i < m->hyper.n_layers; i++) TRY_GOTO(layer_rescale(m, &m->layers[i], &seed, &a, err), done);
    TRY_GOTO(model_export_create(&x, m, NULL, err), done);
    status = quantize_write(x, 0, to, 2, &result, err);
done:
    model_export_free(x);
    model_close(m);
    arena_release(&a);
    return status;
}
