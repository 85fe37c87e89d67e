// Steps on the null unit: checked, answered by rule, and watched until they are waited for.
//
// The rule. A row with token t at position p answers id (31 t + 7 p + 1) mod n_vocab_used with the value 1; all other
// logits are 0. A residual row carries its token in its first float, so a model cut into ranges or segments answers as
// the whole does. Other outputs (hidden rows, q, k, v, attention) and the pools are left as they are.
#include "base/base.h"
#include "unit/null/null_int.h"

#define BAD(...) err_set(err, TERN_INVALID_ARGUMENT, __VA_ARGS__)

static uint64_t step_hash(const struct step *s, const struct prog *p) {
    uint64_t h = hash_bytes(s, sizeof(*s), 1);
    if (p->spec.kind == PROG_LINEAR) return h;
    h = hash_bytes(s->rows, (size_t)s->n_rows * sizeof(*s->rows), h);
    h = hash_bytes(s->seqs, (size_t)s->n_seqs * sizeof(*s->seqs), h);
    if (p->has_conv) h = hash_bytes(s->taps, (size_t)s->n_rows * (size_t)s->n_taps * sizeof(*s->taps), h);
    if (s->n_out > 0) h = hash_bytes(s->out_rows, (size_t)s->n_out * sizeof(*s->out_rows), h);
    for (int i = 0; p->has_attn && i < s->n_seqs; i++)
        h = hash_bytes(s->seqs[i].blocks, (size_t)s->seqs[i].n_blocks * sizeof(int32_t), h);
    return h;
}

static enum tern_status check_buffers(const struct unit *u, const struct unit_program *p, const struct step *s,
                                      struct tern_err *err) {
    static const char *const names[] = {"port rows_in", "port rows_out", "port qkv",      "port attn",
                                        "port logits",  "port argmax",   "port features", "port hidden"};
    for (int i = 0; i < (int)ARRAY_LEN(s->ports); i++) {
        uint64_t bytes = prog_port_bytes(p->prog, s, (enum prog_port)i);
        if (bytes > 0) TRY(null_range_check(u, s->ports[i].buf, s->ports[i].offset, bytes, names[i], err));
    }
    if (!p->prog->needs_state) return TERN_OK;
    const struct state_layout *l = &s->pool->layout;
    uint64_t kv = 0, conv = 0;
    if (l->tag != STATE_CPU_V1) return BAD("null unit: a pool of layout %d", (int)l->tag);
    if (!state_kv_bytes(l, s->pool->n_blocks, &kv) || !state_conv_bytes(l, s->pool->n_slots, &conv))
        return BAD("null unit: a pool of %d blocks and %d slots", s->pool->n_blocks, s->pool->n_slots);
    if (p->prog->has_attn) TRY(null_range_check(u, s->pool->kv, 0, kv, "K/V pool", err));
    if (p->prog->has_conv) TRY(null_range_check(u, s->pool->conv, 0, conv, "conv pool", err));
    return TERN_OK;
}

static void *port_at(const struct step *s, enum prog_port port) {
    return s->ports[port].buf ? s->ports[port].buf->host + s->ports[port].offset : NULL;
}

static int32_t row_token(const struct prog *p, const struct step *s, int row) {
    if (p->reads_tokens) return s->rows[row].token;
    const float *in = port_at(s, PORT_ROWS_IN);
    float t = in && (p->ports & 1u << PORT_ROWS_IN) ? in[(size_t)row * (size_t)p->hyper->n_embd] : 0;
    return t >= 0 && t < (float)p->hyper->n_vocab ? (int32_t)t : 0; // rows made by others
}

static void answer_rows(const struct prog *p, const struct step *s) {
    size_t n = (size_t)p->hyper->n_embd;
    float *out = port_at(s, PORT_ROWS_OUT);
    if (p->spec.kind == PROG_LINEAR || !(p->ports & 1u << PORT_ROWS_OUT)) return;
    for (int i = 0; i < s->n_rows; i++) out[(size_t)i * n] = (float)row_token(p, s, i);
}

static void answer_head(const struct prog *p, const struct step *s) {
    size_t n_vocab = (size_t)p->hyper->n_vocab;
    for (int i = 0; i < s->n_out; i++) {
        int row = s->out_rows[i];
        int64_t mixed = (int64_t)row_token(p, s, row) * 31 + (int64_t)s->rows[row].pos * 7 + 1;
        int32_t id = (int32_t)(mixed % p->hyper->n_vocab_used);
        if (p->ports & 1u << PORT_LOGITS) {
            float *logits = (float *)port_at(s, PORT_LOGITS) + (size_t)i * n_vocab;
            memset(logits, 0, n_vocab * sizeof(float));
            logits[id] = 1;
        }
        if (p->ports & 1u << PORT_ARGMAX)
            ((struct prog_argmax *)port_at(s, PORT_ARGMAX))[i] = (struct prog_argmax){.id = id, .max = 1};
    }
}

enum tern_status null_submit(struct unit *u, struct unit_program *p, const struct step *s, struct unit_event *event,
                             struct tern_err *err) {
    if (!null_has(&u->programs, p)) return BAD("null unit: the program is not alive on this unit");
    if (u->n_pending == NULL_PENDING_MAX)
        return BAD("null unit: %d steps submitted and none waited for", NULL_PENDING_MAX);
    TRY(step_check(p->prog, s, err));
    TRY(check_buffers(u, p, s, err));
    answer_rows(p->prog, s);
    if (p->prog->has_head) answer_head(p->prog, s);
    u->serial++;
    u->counters.n_steps++;
    u->counters.n_rows += (uint64_t)s->n_rows;
    u->pending[u->n_pending++] =
        (struct null_pending){.serial = u->serial, .step = s, .program = p, .hash = step_hash(s, p->prog)};
    *event = (struct unit_event){.serial = u->serial};
    return TERN_OK;
}

// Steps end in order, so waiting for one waits for all before it.
enum tern_status null_event_wait(struct unit *u, const struct unit_event *event, struct tern_err *err) {
    if (event->serial == 0 || event->serial > u->serial)
        return BAD("null unit: waiting for step %llu of %llu", (unsigned long long)event->serial,
                   (unsigned long long)u->serial);
    enum tern_status status = TERN_OK;
    int n = 0;
    for (; n < u->n_pending && u->pending[n].serial <= event->serial; n++) {
        const struct null_pending *w = &u->pending[n];
        if (step_hash(w->step, w->program->prog) != w->hash)
            status = BAD("null unit: step %llu was changed before it was waited for", (unsigned long long)w->serial);
    }
    u->n_pending -= n;
    memmove(u->pending, u->pending + n, (size_t)u->n_pending * sizeof(u->pending[0]));
    return status;
}

bool null_event_poll(struct unit *u, const struct unit_event *event) { return event->serial <= u->serial; }

void null_not_in_flight(const struct unit *u, const void *object, const char *what) {
    for (int i = 0; i < u->n_pending; i++) {
        const struct step *s = u->pending[i].step;
        bool used = u->pending[i].program == object || u->pending[i].program->weights == object;
        if (s->pool) used = used || s->pool->kv == object || s->pool->conv == object;
        for (size_t j = 0; j < ARRAY_LEN(s->ports); j++) used = used || s->ports[j].buf == object;
        if (used)
            TERN_BUG("null unit: freed %s while step %llu is in flight", what,
                     (unsigned long long)u->pending[i].serial);
    }
}
