// What a step costs in arithmetic and memory traffic, from the ops alone. Counted are the products: linear, attention,
// convolution, head. Norms, rotation and the activation function are left out: below a percent of the arithmetic of any
// model here, and their traffic stays in caches. A unit's time is measured, never taken from here; the cost model
// scales measured times between shapes with these figures.
#include "base/base.h"
#include "prog/prog_int.h"

static double tensor_elements(const struct tensor *w) { return (double)w->ne[0] * (double)w->ne[1]; }

static void add_linear(const struct prog_op *op, int n_rows, struct prog_cost *c) {

    for (int i = 0; i < op->n_w; i++) {
        c->flops += 2.0 * tensor_elements(op->w[i]) * n_rows;
        c->weight_bytes += (double)op->w[i]->n_bytes;
    }
}

// Weights are read of the experts that any row was sent to: as many as when each row draws its own at random.
static void add_experts(const struct prog *p, const struct prog_op *op, int n_rows, struct prog_cost *c) {
    const struct model_hyper *h = p->hyper;
    const struct model_expert *e = p->model->layers[op->layer].experts;
    double left = 1, share = (double)h->n_expert_used / h->n_expert;
    for (int i = 0; i < n_rows && left > 1e-9; i++) left *= 1 - share;
    double bytes = (double)e->gate->n_bytes + (double)e->up->n_bytes + (double)e->down->n_bytes;
    c->flops += 2.0 * 3.0 * (double)h->n_embd * h->n_ff_expert * h->n_expert_used * n_rows;
    c->weight_bytes += bytes * h->n_expert * (1 - left);
}

struct prog_cost prog_cost_get(const struct prog *p, int n_rows, int n_out, int64_t ctx) {
    struct prog_cost c = {0};
    const struct model_hyper *h = p->hyper;
    double kv_row = (double)op_kv_half_bytes(p->spec.kv_type, h->head_dim) / OP_BLOCK * 2 * h->n_head_kv; // K and V
    double q_cols = (double)h->n_head * h->head_dim;
    // Row i sees ctx positions, the rows before it, and itself.
    double pairs = (double)n_rows * (double)ctx + (double)n_rows * (n_rows + 1.0) / 2;
    if (p->spec.kind == PROG_DRAFT || p->spec.kind == PROG_ENCODER) // … here all rows of the window
        pairs = (double)n_rows * ((double)ctx + n_rows);
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        switch (op->kind) {
        case PROG_OP_EMBED: c.weight_bytes += (double)op->w[0]->n_bytes / (double)op->w[0]->ne[1] * n_rows; break;
        case PROG_OP_LINEAR: add_linear(op, n_rows, &c); break;
        case PROG_OP_EXPERTS: add_experts(p, op, n_rows, &c); break;
        case PROG_OP_ATTENTION: {
            int window = p->model->layers[op->layer].window;
            bool cut = window > 0 && ctx + n_rows > window; // each row sees at most its window
            c.flops += 4.0 * q_cols * (cut ? MIN(pairs, (double)n_rows * window) : pairs);
            c.kv_bytes +=
                kv_row * (cut ? MIN((double)(ctx + n_rows), (double)window + n_rows) : (double)(ctx + n_rows));
            break;
        }
        case PROG_OP_KV_WRITE: c.kv_bytes += kv_row * n_rows; break;
        case PROG_OP_SHORT_CONV:
            c.flops += (2.0 * h->conv_len + 2.0) * h->n_embd * n_rows;
            c.kv_bytes += 2.0 * (h->conv_len - 1) * h->n_embd * sizeof(float); // stored rows read and written
            break;
        case PROG_OP_HEAD:
            if (n_out < 1 || !(p->spec.outputs & (PROG_OUT_LOGITS | PROG_OUT_ARGMAX))) break;
            c.flops += 2.0 * tensor_elements(op->w[1]) * n_out;
            c.weight_bytes += (double)op->w[1]->n_bytes;
            break;
        default: break;
        }
    }
    return c;
}
