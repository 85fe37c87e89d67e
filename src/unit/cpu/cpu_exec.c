// One step: the checks before it, the walk over the ops by every member of the team, and the ops that only move or
// prepare rows. Ops with more to them have files of their own (cpu_exec_*.c).
//
// Between two ops stands a barrier, because the memory plan may put a value where another one just died. Only the
// tables of the rotation need none before them: they are made while the embedding rows are.
#include "base/base.h"
#include "unit/cpu/cpu_unit.h"

float *cpu_port(const struct cpu_run *r, enum prog_port port) {
    const struct step_port *p = &r->s->ports[port];
    return p->buf ? (float *)(void *)(p->buf->host + p->offset) : NULL;
}

// ---------------------------------------------------------------------------------------------------------- rows

#define EMBED_PIECE 256 // values of a row that is put together

static void exec_embed(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct tensor *t = op->table;
    int begin, end, n = op->out_cols[0];
    uint64_t row_bytes = 0;
    format_row_bytes(t->format, (uint64_t)n, &row_bytes);
    team_share(self, r->n_rows, 1, &begin, &end);
    float scale = r->p->prog->hyper->embed_scale;
    for (int i = begin; i < end; i++) {
        float *x = op->out[0] + (size_t)i * (size_t)n;
        const int32_t token = r->s->rows[i].token;
        if (!t->parts) op_dequant_row(t->format, t->data + (uint64_t)token * row_bytes, n, x);
        for (int k = 0; t->parts && k < n; k += EMBED_PIECE) {
            uint8_t piece[EMBED_PIECE * 2]; // no format with parts has 16 bits per value
            const int len = MIN(n - k, EMBED_PIECE);
            model_tensor_read(t, token, k, len, piece);
            op_dequant_row(t->format, piece, len, x + k);
        }
        for (int j = 0; scale != 0 && j < n; j++) x[j] *= scale;
    }
}

static void exec_rope_table(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    int begin, end, n = op->out_cols[0];
    team_share(self, r->n_rows, 1, &begin, &end);
    for (int i = begin; i < end; i++)
        op_rope_table(r->s->rows[i].pos, r->p->rope_freqs + (op->op->index == 1 ? n / 2 : 0), n / 2,
                      op->out[0] + (size_t)i * (size_t)n);
}

// y: NULL for NORM_OUT, whose rows go to a port.
static void exec_norm(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op, float *y) {
    int begin, end, n = op->n_in;
    team_share(self, r->n_rows, 1, &begin, &end);
    float *row = r->p->members[self->index].row;
    for (int i = begin; op->op->add && i < end; i++) {
        size_t at = (size_t)i * (size_t)n;
        r->u->k.rmsnorm(op->in[0] + at, op->norm, n, r->p->prog->hyper->norm_eps, row);
        r->u->k.add(op->in[1] + at, row, n, y + at);
    }
    if (op->op->add) return;
    for (int i = begin; i < end; i++)
        r->u->k.rmsnorm(op->in[0] + (size_t)i * (size_t)n, op->norm, n, r->p->prog->hyper->norm_eps,
                        y + (size_t)i * (size_t)n);
}

// Rotation and writing of K and V go by (K/V head, row). Few rows: heads outermost, so that members work on different
// K/V blocks. Many: each member has the rows that it multiplied before, by whole blocks, and takes all heads of a row.
struct heads_share {
    int begin, end; // (head, row) pairs; of rows when by_rows
    bool by_rows;
};
static struct heads_share heads_share(const struct cpu_run *r, const struct team_member *self, int n_heads) {
    struct heads_share s = {.by_rows = r->n_rows >= LINEAR_BY_ROWS * self->n};
    if (s.by_rows) {
        team_share(self, r->n_rows, CPU_ROWS_FEW, &s.begin, &s.end);
        s.begin *= n_heads;
        s.end *= n_heads;
    } else {
        team_share(self, n_heads * r->n_rows, 1, &s.begin, &s.end);
    }
    return s;
}
static int share_head(const struct cpu_run *r, const struct heads_share *s, int n_heads, int i) {
    return s->by_rows ? i % n_heads : i / r->n_rows;
}
static int share_row(const struct cpu_run *r, const struct heads_share *s, int n_heads, int i) {
    return s->by_rows ? i / n_heads : i % r->n_rows;
}

static void exec_qk_norm_rope(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct model_hyper *h = r->p->prog->hyper;
    int hd = h->head_dim, group = h->n_head / h->n_head_kv;
    bool interleaved = h->rope == ROPE_INTERLEAVED;
    const struct heads_share s = heads_share(r, self, h->n_head_kv);
    for (int i = s.begin; i < s.end; i++) {
        int head = share_head(r, &s, h->n_head_kv, i);
        size_t row = (size_t)share_row(r, &s, h->n_head_kv, i);
        const float *table = op->in[2] + row * (size_t)op->in_cols[2];
        float *q = op->in[0] + row * (size_t)op->in_cols[0] + (size_t)head * (size_t)group * (size_t)hd;
        for (int j = 0; j < group; j++, q += hd)
            r->u->k.qk_norm_rope(q, hd, op->v[0], h->norm_eps, table, interleaved, h->attn_scale);
        r->u->k.qk_norm_rope(op->in[1] + row * (size_t)op->in_cols[1] + (size_t)head * (size_t)hd, hd, op->v[1],
                             h->norm_eps, table, interleaved, 1.0f);
    }
}

static void exec_k_norm_rope(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct model_hyper *h = r->p->prog->hyper;
    int hd = h->head_dim;
    const struct heads_share s = heads_share(r, self, h->n_head_kv);
    for (int i = s.begin; i < s.end; i++) {
        size_t head = (size_t)share_head(r, &s, h->n_head_kv, i), row = (size_t)share_row(r, &s, h->n_head_kv, i);
        r->u->k.qk_norm_rope(op->in[0] + row * (size_t)op->in_cols[0] + head * (size_t)hd, hd, op->v[0], h->norm_eps,
                             op->in[1] + row * (size_t)op->in_cols[1], h->rope == ROPE_INTERLEAVED, 1.0f);
    }
}

static void exec_kv_write(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    const struct state_layout *l = r->layout;
    const struct heads_share s = heads_share(r, self, l->n_head_kv);
    for (int i = s.begin; i < s.end; i++) {
        int head = share_head(r, &s, l->n_head_kv, i), row = share_row(r, &s, l->n_head_kv, i);
        const struct step_row *sr = &r->s->rows[row];
        int32_t block = r->s->seqs[sr->seq].blocks[sr->slot / OP_BLOCK];
        size_t at = (size_t)row * (size_t)op->in_cols[0] + (size_t)head * (size_t)l->head_dim;
        r->u->k.kv_write[l->kv_type](r->kv + state_k_offset(l, block, op->op->state_index, head),
                                     r->kv + state_v_offset(l, block, op->op->state_index, head), sr->slot % OP_BLOCK,
                                     op->in[0] + at, op->in[1] + at, l->head_dim);
    }
}

// ---------------------------------------------------------------------------------------------------------- ports

static void rows_copy(const struct cpu_run *r, const struct team_member *self, float *dst, size_t dst_stride,
                      const float *src, size_t src_stride, int n) {
    int begin, end;
    team_share(self, r->n_rows, 1, &begin, &end);
    for (int i = begin; i < end; i++)
        memcpy(dst + (size_t)i * dst_stride, src + (size_t)i * src_stride, (size_t)n * sizeof(float));
}

static void exec_port(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    bool in = op->kind == PROG_OP_PORT_IN;
    const int *cols = in ? op->out_cols : op->in_cols;
    float *const *values = in ? op->out : op->in;
    float *port = cpu_port(r, (enum prog_port)op->op->index);
    int n_values = op->op->index == PORT_QKV ? 3 : 1, total = 0, first = 0, last = 0;
    for (int i = 0; i < n_values; i++) total += cols[i];
    last = total;
    if (!in && op->op->index == PORT_ROWS_OUT && r->p->prog->spec.kind == PROG_LINEAR && r->s->out_end > 0) {
        first = r->s->out_begin; // a range of a weight's columns; the others stay as they are
        last = r->s->out_end;
    }
    float *at = port + first;
    for (int i = 0; i < n_values; i++) {
        int n = n_values == 1 ? last - first : cols[i];
        if (in)
            rows_copy(r, self, values[i], (size_t)cols[i], at, (size_t)total, n);
        else
            rows_copy(r, self, at, (size_t)total, values[i] + first, (size_t)cols[i], n);
        at += n;
    }
}

static void exec_tap(const struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    float *port = cpu_port(r, PORT_FEATURES);
    size_t n = (size_t)op->in_cols[0];
    rows_copy(r, self, port + (size_t)op->op->index * n, (size_t)r->p->prog->spec.n_features * n, op->in[0], n,
              op->in_cols[0]);
}

// ---------------------------------------------------------------------------------------------------------- the walk

static void exec_op(struct cpu_run *r, const struct team_member *self, const struct cpu_op *op) {
    switch (op->kind) {
    case PROG_OP_EMBED: exec_embed(r, self, op); break;
    case PROG_OP_ROPE_TABLE: exec_rope_table(r, self, op); break;
    case PROG_OP_RMSNORM: exec_norm(r, self, op, op->out[0]); break;
    case PROG_OP_LINEAR: cpu_exec_linear(r, self, op); break;
    case PROG_OP_QK_NORM_ROPE: exec_qk_norm_rope(r, self, op); break;
    case PROG_OP_K_NORM_ROPE: exec_k_norm_rope(r, self, op); break;
    case PROG_OP_KV_WRITE: exec_kv_write(r, self, op); break;
    case PROG_OP_ATTENTION: cpu_exec_attention(r, self, op); break;
    case PROG_OP_SHORT_CONV: cpu_exec_short_conv(r, self, op); break;
    case PROG_OP_ROUTE: cpu_exec_route(r, self, op); break;
    case PROG_OP_EXPERTS: cpu_exec_experts(r, self, op); break;
    case PROG_OP_TAP: exec_tap(r, self, op); break;
    case PROG_OP_HEAD: cpu_exec_head(r, self, op); break;
    case PROG_OP_NORM_OUT: exec_norm(r, self, op, cpu_port(r, PORT_HIDDEN)); break;
    case PROG_OP_PORT_IN:
    case PROG_OP_PORT_OUT: exec_port(r, self, op); break;
    case PROG_OP_COMMIT: cpu_exec_commit(r, self, op); break;
    case PROG_OP_COUNT: TERN_BUG("operation number %d", (int)op->kind);
    }
}

// The next op touches nothing that this one does. Rotation and writing of one K/V head and row are done by one member.
static bool needs_barrier(const struct cpu_op *op, const struct cpu_op *next) {
    if (op->kind == PROG_OP_EMBED && next->kind == PROG_OP_ROPE_TABLE) return false;
    bool rotates = op->kind == PROG_OP_QK_NORM_ROPE || op->kind == PROG_OP_K_NORM_ROPE;
    int k = op->kind == PROG_OP_QK_NORM_ROPE ? 1 : 0; // which input k is
    return !(rotates && next->kind == PROG_OP_KV_WRITE && op->in[k] == next->in[0]);
}

static void run_member(void *arg, const struct team_member *self) {
    struct cpu_run *r = arg;
    const struct unit_program *p = r->p;
    for (int i = 0; i < p->n_ops; i++) {
        exec_op(r, self, &p->ops[i]);
        if (i + 1 < p->n_ops && needs_barrier(&p->ops[i], &p->ops[i + 1])) team_barrier(self);
        cpu_profile(r, self, p->ops[i].kind);
    }
}

// ---------------------------------------------------------------------------------------------------------- submission

static enum tern_status buffers_check(const struct prog *p, const struct step *s, struct tern_err *err) {
    for (int i = 0; i < (int)ARRAY_LEN(s->ports); i++) {
        const struct unit_buffer *b = s->ports[i].buf;
        uint64_t bytes = prog_port_bytes(p, s, (enum prog_port)i), end;
        if (bytes == 0) continue;
        if (!u64_add(bytes, s->ports[i].offset, &end) || end > b->bytes)
            return err_set(err, TERN_INVALID_ARGUMENT, "step: port %d needs %llu bytes at %llu; its buffer has %llu", i,
                           (unsigned long long)bytes, (unsigned long long)s->ports[i].offset,
                           (unsigned long long)b->bytes);
    }
    if (!p->needs_state) return TERN_OK;
    const struct state_pool *pool = s->pool;
    uint64_t kv_bytes, conv_bytes;
    if (pool->layout.tag != STATE_CPU_V1)
        return err_set(err, TERN_UNSUPPORTED, "step: state layout %d; the cpu unit reads layout %d",
                       (int)pool->layout.tag, (int)STATE_CPU_V1);
    if (p->has_attn && (!state_kv_bytes(&pool->layout, pool->n_blocks, &kv_bytes) || kv_bytes > pool->kv->bytes))
        return err_set(err, TERN_INVALID_ARGUMENT, "step: %d blocks do not fit the pool's buffer of %llu bytes",
                       pool->n_blocks, (unsigned long long)pool->kv->bytes);
    if (p->has_conv && (!state_conv_bytes(&pool->layout, pool->n_slots, &conv_bytes) || conv_bytes > pool->conv->bytes))
        return err_set(err, TERN_INVALID_ARGUMENT, "step: %d conv slots do not fit the pool's buffer of %llu bytes",
                       pool->n_slots, (unsigned long long)pool->conv->bytes);
    return TERN_OK;
}

enum tern_status cpu_submit(struct unit *u, struct unit_program *p, const struct step *s, struct unit_event *event,
                            struct tern_err *err) {
    TRY(step_check(p->prog, s, err));
    TRY(buffers_check(p->prog, s, err));
    uint64_t begin = clock_ns();
    struct cpu_run r = {.u = u, .p = p, .s = s, .n_rows = s->n_rows, .n_out = s->n_out, .op_begin_ns = begin};
    if (p->prog->needs_state) {
        r.layout = &s->pool->layout;
        if (s->pool->kv) r.kv = s->pool->kv->host;
        if (s->pool->conv) r.conv = s->pool->conv->host;
    }
    for (int i = 0; i < p->n_counters; i++) atomic_store_explicit(&p->counters[i], 0, memory_order_relaxed);
    if (p->prog->has_attn && p->prog->spec.kind != PROG_COMMIT) attn_plan_make(&r);
    team_run(u->team, run_member, &r);
    u->counters.n_steps++;
    u->counters.n_rows += (uint64_t)s->n_rows;
    u->counters.busy_ns += clock_ns() - begin;
    u->serial++;
    if (event) event->serial = u->serial;
    return TERN_OK;
}
