// The null unit: checks every contract of unit.h and costs nothing, so that plans and engines are tested without a
// model's arithmetic, and a fault in their use of a unit is told by name.
//
// Checked: every step against its program (step_check) and every buffer it names for being this unit's, alive and large
// enough; steps untouched until waited for; programs and weights of one model; ranges of reads, writes and copies;
// objects freed once, never in flight, and all of them before the unit is closed, so that nothing can be submitted to a
// closed unit. What a status can carry is TERN_INVALID_ARGUMENT; freeing and closing wrongly is a bug and aborts.
#include "base/base.h"
#include "unit/null/null_int.h"

bool null_has(const struct null_list *l, const void *object) {
    for (const struct null_object *o = l->first; o; o = o->next)
        if (o == object) return true;
    return false;
}

static void *object_create(struct null_list *l, size_t size) {
    struct null_object *o = mem_calloc(1, size);
    if (!o) return NULL;
    o->next = l->first;
    l->first = o;
    return o;
}

static void object_free(const struct unit *u, struct null_list *l, void *object, const char *what) {
    for (struct null_object **at = &l->first; *at; at = &(*at)->next) {
        if (*at != object) continue;
        null_not_in_flight(u, object, what);
        *at = (*at)->next;
        mem_free(object);
        return;
    }
    TERN_BUG("null unit: freed %s that is not alive on this unit", what);
}

static bool null_probe(const char **reason) {
    *reason = "always here; answers without arithmetic";
    return true;
}

static enum tern_status null_open(struct unit **out, const struct unit_options *o, struct tern_err *err) {
    (void)o;
    struct unit *u = mem_calloc(1, sizeof(*u));
    if (!u) return err_set(err, TERN_NO_MEMORY, "null unit: no memory");
    u->base.driver = &unit_null_driver;
    *out = u;
    return TERN_OK;
}

static void null_close(struct unit *u) {
    if (!u) return;
    if (u->programs.first || u->weights.first || u->buffers.first)
        TERN_BUG("null unit: closed while %s are alive", u->programs.first  ? "programs"
                                                         : u->weights.first ? "weights"
                                                                            : "buffers");
    mem_free(u);
}

static void null_caps(const struct unit *u, struct unit_caps *out) {
    (void)u;
    *out = (struct unit_caps){
        .name = "null",
        .detail = "checks contracts, computes nothing",
        .isa = "none",
        .n_threads = 1,
        .host_memory = true,
        .cost_follows_rows = true,
        .deterministic = true,
        .state_tag = STATE_CPU_V1,
        .window_max = STEP_WINDOW_MAX,
    };
}

// --------------------------------------------------------------------------------------------------------- buffers

// Large buffers are mapped: pages that nobody touches cost nothing.
static enum tern_status null_buffer_alloc(struct unit *u, struct unit_buffer **out, uint64_t bytes,
                                          struct tern_err *err) {
    char text[24];
    if (bytes == 0) return err_set(err, TERN_INVALID_ARGUMENT, "null unit: a buffer of 0 bytes");
    struct unit_buffer *b = bytes > SIZE_MAX ? NULL : object_create(&u->buffers, sizeof(*b));
    uint8_t *host = b ? mem_map((size_t)bytes) : NULL;
    if (!host) {
        if (b) object_free(u, &u->buffers, b, "a buffer");
        return err_set(err, TERN_NO_MEMORY, "null unit: no memory for a buffer of %s", bytes_format(bytes, text));
    }
    b->host = host;
    b->bytes = bytes;
    b->owned = true;
    *out = b;
    return TERN_OK;
}

static enum tern_status null_buffer_import(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes,
                                           struct tern_err *err) {
    if (!host || bytes == 0 || bytes > SIZE_MAX)
        return err_set(err, TERN_INVALID_ARGUMENT, "null unit: host memory of %llu bytes%s to import",
                       (unsigned long long)bytes, host ? "" : " at no address");
    struct unit_buffer *b = object_create(&u->buffers, sizeof(*b));
    if (!b) return err_set(err, TERN_NO_MEMORY, "null unit: no memory for a buffer");
    b->host = host;
    b->bytes = bytes;
    *out = b;
    return TERN_OK;
}

static void null_buffer_free(struct unit *u, struct unit_buffer *b) {
    if (!b) return;
    if (!null_has(&u->buffers, b)) TERN_BUG("null unit: freed a buffer that is not alive on this unit");
    null_not_in_flight(u, b, "a buffer");
    if (b->owned) mem_unmap(b->host, (size_t)b->bytes);
    object_free(u, &u->buffers, b, "a buffer");
}

enum tern_status null_range_check(const struct unit *u, const struct unit_buffer *b, uint64_t offset, uint64_t bytes,
                                  const char *what, struct tern_err *err) {
    uint64_t end = 0;
    if (!null_has(&u->buffers, b))
        return err_set(err, TERN_INVALID_ARGUMENT, "null unit: %s: the buffer is not alive on this unit", what);
    if (!u64_add(offset, bytes, &end) || end > b->bytes)
        return err_set(err, TERN_INVALID_ARGUMENT, "null unit: %s: %llu bytes at %llu of a buffer of %llu", what,
                       (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)b->bytes);
    return TERN_OK;
}

static enum tern_status null_buffer_write(struct unit *u, struct unit_buffer *b, uint64_t offset, const void *src,
                                          uint64_t bytes, struct tern_err *err) {
    TRY(null_range_check(u, b, offset, bytes, "write", err));
    if (bytes > 0) memcpy(b->host + offset, src, (size_t)bytes);
    return TERN_OK;
}

static enum tern_status null_buffer_read(struct unit *u, const struct unit_buffer *b, uint64_t offset, void *dst,
                                         uint64_t bytes, struct tern_err *err) {
    TRY(null_range_check(u, b, offset, bytes, "read", err));
    if (bytes > 0) memcpy(dst, b->host + offset, (size_t)bytes);
    return TERN_OK;
}

static enum tern_status null_buffer_copy(struct unit *u, struct unit_buffer *dst, uint64_t dst_offset,
                                         const struct unit_buffer *src, uint64_t src_offset, uint64_t bytes,
                                         struct tern_err *err) {
    TRY(null_range_check(u, dst, dst_offset, bytes, "copy to", err));
    TRY(null_range_check(u, src, src_offset, bytes, "copy from", err));
    if (bytes > 0) memmove(dst->host + dst_offset, src->host + src_offset, (size_t)bytes);
    return TERN_OK;
}

static void *null_buffer_host(struct unit_buffer *b) { return b->host; }

// ------------------------------------------------------------------------------------------------ weights and programs

static enum tern_status null_weights_import(struct unit *u, struct unit_weights **out, const struct model *m,
                                            const struct weights_options *o, struct weights_info *info,
                                            struct tern_err *err) {
    if (o->on_progress && !o->on_progress(o->on_progress_arg, m->n_bytes_file, m->n_bytes_file))
        return err_set(err, TERN_CANCELLED, "null unit: the import of %s was cancelled", m->name);
    if (o->shared && (!null_has(&u->weights, o->shared) || o->shared->numerics != o->numerics))
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "null unit: the weights to share are not alive on this unit or of another class");
    struct unit_weights *w = object_create(&u->weights, sizeof(*w));
    if (!w) return err_set(err, TERN_NO_MEMORY, "null unit: no memory for weights");
    w->shared = o->shared;
    w->model = m;
    w->numerics = o->numerics;
    if (info) *info = (struct weights_info){.cache_note = "nothing to pack"};
    *out = w;
    return TERN_OK;
}

static void null_weights_free(struct unit *u, struct unit_weights *w) {
    if (!w) return;
    for (const struct null_object *o = u->programs.first; o; o = o->next)
        if (((const struct unit_program *)(const void *)o)->weights == w)
            TERN_BUG("null unit: freed weights that a program still uses");
    for (const struct null_object *o = u->weights.first; o; o = o->next)
        if (((const struct unit_weights *)(const void *)o)->shared == w)
            TERN_BUG("null unit: freed weights that others still share");
    object_free(u, &u->weights, w, "weights");
}

static enum tern_status null_program_compile(struct unit *u, struct unit_program **out, const struct prog *p,
                                             struct unit_weights *w, struct tern_err *err) {
    TRY(prog_verify(p, err));
    if (!null_has(&u->weights, w))
        return err_set(err, TERN_INVALID_ARGUMENT, "null unit: the weights are not alive on this unit");
    if (w->model != p->model || w->numerics != p->spec.numerics)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "null unit: a program of model %s, class %d on weights of %s, class %d", p->model->name,
                       (int)p->spec.numerics, w->model->name, (int)w->numerics);
    struct unit_program *c = object_create(&u->programs, sizeof(*c));
    if (!c) return err_set(err, TERN_NO_MEMORY, "null unit: no memory for a program");
    c->prog = p;
    c->weights = w;
    *out = c;
    return TERN_OK;
}

static void null_program_free(struct unit *u, struct unit_program *p) {
    if (p) object_free(u, &u->programs, p, "a program");
}

static uint64_t null_program_bytes(const struct unit_program *p) {
    (void)p;
    return 0;
}

static bool null_program_estimate(const struct unit *u, const struct prog *p, uint64_t *bytes) {
    (void)u;
    (void)p;
    *bytes = 0;
    return true;
}

// ------------------------------------------------------------------------------------------------------------- states

static enum tern_status null_state_convert(struct unit *u, const struct state_pool *dst, const struct state_pool *src,
                                           const int32_t *dst_blocks, const int32_t *src_blocks, int n_blocks,
                                           int32_t dst_slot, int32_t src_slot, struct tern_err *err) {
    const struct state_layout *a = &dst->layout, *b = &src->layout;
    if (b->tag != STATE_CPU_V1 || a->tag != b->tag)
        return err_set(err, TERN_UNSUPPORTED, "null unit: states of layout %d to layout %d", (int)b->tag, (int)a->tag);
    if (a->block_bytes != b->block_bytes || a->slot_bytes != b->slot_bytes || a->kv_type != b->kv_type ||
        a->layer_begin != b->layer_begin || a->layer_end != b->layer_end)
        return err_set(err, TERN_UNSUPPORTED, "null unit: states of another shape");
    for (int i = 0; i < n_blocks; i++)
        TRY(null_buffer_copy(u, dst->kv, (uint64_t)dst_blocks[i] * a->block_bytes, src->kv,
                             (uint64_t)src_blocks[i] * a->block_bytes, a->block_bytes, err));
    if (a->slot_bytes == 0) return TERN_OK;
    return null_buffer_copy(u, dst->conv, (uint64_t)dst_slot * a->slot_bytes, src->conv,
                            (uint64_t)src_slot * a->slot_bytes, a->slot_bytes, err);
}

static void null_counters(const struct unit *u, struct unit_counters *out) { *out = u->counters; }

const struct unit_driver unit_null_driver = {
    .name = "null",
    .probe = null_probe,
    .open = null_open,
    .close = null_close,
    .caps = null_caps,
    .buffer_alloc = null_buffer_alloc,
    .buffer_import = null_buffer_import,
    .buffer_free = null_buffer_free,
    .buffer_write = null_buffer_write,
    .buffer_read = null_buffer_read,
    .buffer_copy = null_buffer_copy,
    .buffer_host = null_buffer_host,
    .weights_import = null_weights_import,
    .weights_free = null_weights_free,
    .program_compile = null_program_compile,
    .program_free = null_program_free,
    .submit = null_submit,
    .event_wait = null_event_wait,
    .event_poll = null_event_poll,
    .state_convert = null_state_convert,
    .counters = null_counters,
    .program_bytes = null_program_bytes,
    .program_estimate = null_program_estimate,
};
