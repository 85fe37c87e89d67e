// The npu unit's driver table: opening and closing, buffers (host memory), weights, submission.
//
// Which arithmetic it computes with is the variant behind the colon of its name: "npu" is coreai-linux, "npu:ane-m1"
// what is published of that engine, "npu:fp32" the program's meaning (npu_rules.h), "npu:ane-m1@FILE" the same with
// calibrated scales; "npu:ort", "npu:openvino" and "npu:coreai" run programs on those runtimes (pack_unit.c). Steps run
// to their end in submit.
#include "base/base.h"
#include "unit/npu/npu_unit.h"

static bool npu_probe(const char **reason) {
    *reason = "programs for neural engines, evaluated on this CPU with an engine's arithmetic";
    return true;
}

// "ane-m1+int4": the format of matrices behind a plus sign; without one the class decides (weights_import). w8a8: int8
// with activations rounded to int8 too.
static enum tern_status format_choose(struct unit *u, struct str name, struct tern_err *err) {
    for (int f = 0; f < NPU_FORMAT_NONE; f++)
        if (str_eqz(name, npu_format_name((enum npu_format)f))) {
            u->format = (enum npu_format)f;
            return TERN_OK;
        }
    u->act = str_eqz(name, "w8a8") ? NPU_ACT_INT8 : str_eqz(name, "w8a8in") ? NPU_ACT_INT8_IN : NPU_ACT_PLAIN;
    u->format = NPU_FORMAT_I8;
    if (u->act != NPU_ACT_PLAIN) return TERN_OK;
    return err_set(err, TERN_NOT_FOUND, "npu unit: no weight format '%.*s'; there are int8, int4, f16, w8a8, w8a8in",
                   (int)name.len, name.data);
}

static enum tern_status rules_choose(struct unit *u, const char *variant, struct tern_err *err) {
    struct buf names;
    char name[32] = "";
    size_t n = variant ? strcspn(variant, "+@") : 0, format = n;
    if (n < sizeof(name)) memcpy(name, variant ? variant : "", n);
    u->rules = n == 0 ? &npu_rules_table[0] : npu_rules_find(name);
    u->format = NPU_FORMAT_NONE;
    if (u->rules && variant && variant[n] == '+') {
        format = n + 1 + strcspn(variant + n + 1, "@");
        TRY(format_choose(u, (struct str){variant + n + 1, format - n - 1}, err));
    }
    const char *scales = variant && variant[format] == '@' ? variant + format + 1 : env_get("TERN_NPU_SCALES");
    if (scales && strlen(scales) >= sizeof u->scales)
        return err_set(err, TERN_LIMIT, "npu unit: a path of scales has at most %d bytes", NPU_PATH_MAX - 1);
    if (scales) memcpy(u->scales, scales, strlen(scales) + 1);
    if (u->rules) return TERN_OK;
    buf_init(&names, 512);
    for (int i = 0; npu_rules_table[i].name; i++) buf_putf(&names, "%s%s", i > 0 ? ", " : "", npu_rules_table[i].name);
    err_set(err, TERN_NOT_FOUND, "npu unit: no rule set '%s'; there are %s", variant, names.failed ? "" : names.data);
    buf_release(&names);
    return TERN_NOT_FOUND;
}

static enum tern_status npu_open(struct unit **out, const struct unit_options *o, struct tern_err *err) {
    static const struct unit_options defaults = {0};
    if (!o) o = &defaults;
    struct unit *u = mem_calloc(1, sizeof(*u));
    if (!u) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory");
    u->base.driver = &unit_npu_driver;
    u->kernels = npu_kernels_get(o->isa ? o->isa : env_get("TERN_CPU"));
    struct team_options team = {.n_threads = o->n_threads, .pin = o->pin};
    enum tern_status status;
    bool is_remote = npu_remote_is(o->variant);
    TRY_GOTO(rules_choose(u, is_remote ? NULL : o->variant, err), fail);
    TRY_GOTO(team_create(&u->team, &team, err), fail);
    u->n_threads = team_size(u->team);
    if (is_remote) {
        TRY_GOTO(npu_remote_open(u, o->variant, u->n_threads, err), fail);
        *out = u;
        return TERN_OK;
    }
    struct tern_err text;
    err_set(&text, TERN_OK, "evaluator, rules %s (%s), %s, %d thread%s", u->rules->name, u->rules->note,
            u->kernels->isa, u->n_threads, u->n_threads == 1 ? "" : "s");
    size_t n = MIN(strlen(text.message), sizeof(u->detail) - 1);
    memcpy(u->detail, text.message, n);
    *out = u;
    return TERN_OK;
fail:
    team_free(u->team);
    mem_free(u);
    return status;
}

static void npu_close(struct unit *u) {
    if (!u) return;
    if (u->n_alive != 0) TERN_BUG("npu unit closed with %d buffers, weights or programs alive", u->n_alive);
    if (u->scratch) mem_unmap(u->scratch, (size_t)u->scratch_bytes);
    npu_remote_close(u);
    team_free(u->team);
    mem_free(u);
}

static void npu_caps(const struct unit *u, struct unit_caps *out) {
    *out = (struct unit_caps){.name = "npu",
                              .detail = u->placed[0] ? u->placed : u->detail,
                              .isa = u->kernels->isa,
                              .n_threads = u->n_threads,
                              .host_memory = true,
                              .cost_follows_rows = false,
                              .deterministic = !u->remote, // of a runtime nobody promises it
                              .state_tag = STATE_CPU_V1,
                              .window_max = NPU_WINDOW_MAX};
}

// ------------------------------------------------------------------------------------------------------------- buffers

static enum tern_status buffer_make(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes, bool owned,
                                    struct tern_err *err) {
    struct unit_buffer *b = mem_alloc(sizeof(*b));
    if (!b) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for a buffer");
    *b = (struct unit_buffer){.host = host, .bytes = bytes, .owned = owned};
    u->n_alive++;
    *out = b;
    return TERN_OK;
}

static enum tern_status npu_buffer_alloc(struct unit *u, struct unit_buffer **out, uint64_t bytes,
                                         struct tern_err *err) {
    char text[24];
    void *host = bytes < PTRDIFF_MAX ? mem_map((size_t)MAX(bytes, 1)) : NULL;
    if (!host) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for a buffer of %s", bytes_format(bytes, text));
    enum tern_status status = buffer_make(u, out, host, bytes, true, err);
    if (status != TERN_OK) mem_unmap(host, (size_t)MAX(bytes, 1));
    return status;
}

static enum tern_status npu_buffer_import(struct unit *u, struct unit_buffer **out, void *host, uint64_t bytes,
                                          struct tern_err *err) {
    if (!host || (uintptr_t)host % sizeof(float) != 0)
        return err_set(err, TERN_INVALID_ARGUMENT, "npu unit: imported memory must be aligned to %zu bytes",
                       sizeof(float));
    return buffer_make(u, out, host, bytes, false, err);
}

static void npu_buffer_free(struct unit *u, struct unit_buffer *b) {
    if (!b) return;
    if (b->owned) mem_unmap(b->host, (size_t)MAX(b->bytes, 1));
    mem_free(b);
    u->n_alive--;
}

static enum tern_status range_check(const struct unit_buffer *b, uint64_t offset, uint64_t bytes,
                                    struct tern_err *err) {
    if (offset <= b->bytes && bytes <= b->bytes - offset) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "npu unit: %llu bytes at %llu of a buffer of %llu",
                   (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)b->bytes);
}

static enum tern_status npu_buffer_write(struct unit *u, struct unit_buffer *b, uint64_t offset, const void *src,
                                         uint64_t bytes, struct tern_err *err) {
    (void)u;
    TRY(range_check(b, offset, bytes, err));
    if (bytes > 0) memcpy(b->host + offset, src, (size_t)bytes);
    return TERN_OK;
}

static enum tern_status npu_buffer_read(struct unit *u, const struct unit_buffer *b, uint64_t offset, void *dst,
                                        uint64_t bytes, struct tern_err *err) {
    (void)u;
    TRY(range_check(b, offset, bytes, err));
    if (bytes > 0) memcpy(dst, b->host + offset, (size_t)bytes);
    return TERN_OK;
}

static enum tern_status npu_buffer_copy(struct unit *u, struct unit_buffer *dst, uint64_t dst_offset,
                                        const struct unit_buffer *src, uint64_t src_offset, uint64_t bytes,
                                        struct tern_err *err) {
    (void)u;
    TRY(range_check(dst, dst_offset, bytes, err));
    TRY(range_check(src, src_offset, bytes, err));
    if (bytes > 0) memmove(dst->host + dst_offset, src->host + src_offset, (size_t)bytes);
    return TERN_OK;
}

static void *npu_buffer_host(struct unit_buffer *b) { return b->host; }

// ------------------------------------------------------------------------------------------------------------- weights

static void npu_weights_free(struct unit *u, struct unit_weights *w) {
    if (!w) return;
    const char *observed = env_get("TERN_NPU_OBSERVE");
    struct tern_err err;
    if (observed && w->calibration &&
        npu_calibration_write(w->calibration, w->model, w->scales.residual, observed, &err) != TERN_OK)
        log_warn("npu unit: %s", err.message);
    npu_calibration_free(w->calibration);
    npu_store_free(w->store);
    mem_free(w->rope_freq);
    mem_free(w);
    u->n_alive--;
}

// Makes every constant by lowering the programs of a model once.
static enum tern_status constants_make(struct unit_weights *w, struct tern_err *err) {
    const struct model *m = w->model;
    enum prog_kind kinds[2] = {PROG_WHOLE};
    int n = 1;
    if (m->drafter) {
        kinds[0] = PROG_INJECT;
        kinds[n++] = PROG_DRAFT;
    } else if (m->hyper.bidirectional) {
        kinds[0] = PROG_ENCODER;
    }
    for (int i = 0; i < n; i++) {
        bool head = kinds[i] == PROG_WHOLE || kinds[i] == PROG_DRAFT;
        struct prog_spec spec = {.kind = kinds[i],
                                 .numerics = w->numerics,
                                 .kv_type = OP_KV_F16,
                                 .window = NPU_BLOCK,
                                 .n_out_max = head ? -1 : 0,
                                 .outputs = head ? PROG_OUT_LOGITS : 0};
        struct npu_lower_options o = {.name = "constants",
                                      .window = NPU_BLOCK,
                                      .bucket = NPU_BLOCK,
                                      .n_chunks = 1,
                                      .n_frames = 2 * NPU_BLOCK,
                                      .scales = &w->scales};
        struct prog *p = NULL;
        struct npu_list *l = NULL;
        TRY(prog_build(&p, m, &spec, err));
        enum tern_status status = npu_lower(&l, p, w->store, &o, err);
        npu_list_free(l);
        prog_free(p);
        if (status != TERN_OK) return status;
    }
    return TERN_OK;
}

static enum tern_status npu_weights_import(struct unit *u, struct unit_weights **out, const struct model *m,
                                           const struct weights_options *o, struct weights_info *info,
                                           struct tern_err *err) {
    TRY(npu_lower_check(m, err));
    if (o->numerics == PROG_CLASS_BF16)
        return err_set(err, TERN_UNSUPPORTED, "npu unit: no class bf16: engines compute in fp16; use int8 or fp32");
    struct unit_weights *w = mem_calloc(1, sizeof(*w));
    if (!w) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for weights");
    u->n_alive++;
    w->model = m;
    w->numerics = o->numerics;
    enum tern_status status;
    enum npu_format format = o->numerics == PROG_CLASS_INT8 ? NPU_FORMAT_I8 : NPU_FORMAT_F16;
    if (u->format != NPU_FORMAT_NONE) format = u->format;
    TRY_GOTO(npu_store_create(&w->store, m, format, err), fail);
    w->rope_freq = mem_calloc((size_t)MAX(m->hyper.head_dim / 2, 1), sizeof(double));
    if (!w->rope_freq) {
        status = err_set(err, TERN_NO_MEMORY, "npu unit: no memory for weights");
        goto fail;
    }
    op_rope_freqs(m->hyper.rope_base, m->hyper.head_dim, m->hyper.rope_factors, w->rope_freq);
    TRY_GOTO(npu_calibration_create(&w->calibration, m->hyper.n_layers, err), fail);
    if (u->scales[0]) TRY_GOTO(npu_scales_read(w->calibration, u->scales, &w->scales, err), fail);
    TRY_GOTO(constants_make(w, err), fail);
    if (o->on_progress && !o->on_progress(o->on_progress_arg, m->n_bytes_file, m->n_bytes_file)) {
        status = err_set(err, TERN_CANCELLED, "npu unit: the import of %s was cancelled", m->name);
        goto fail;
    }
    if (info) *info = (struct weights_info){.bytes = npu_store_bytes(w->store)};
    *out = w;
    return TERN_OK;
fail:
    npu_weights_free(u, w);
    return status;
}

// ---------------------------------------------------------------------------------------------------------- submission

static enum tern_status npu_submit(struct unit *u, struct unit_program *p, const struct step *s,
                                   struct unit_event *event, struct tern_err *err) {
    static const char *const names[] = {"port rows_in", "port rows_out", "port qkv",      "port attn",
                                        "port logits",  "port argmax",   "port features", "port hidden"};
    TRY(step_check(p->prog, s, err));
    for (int i = 0; i < (int)ARRAY_LEN(s->ports); i++) {
        uint64_t bytes = prog_port_bytes(p->prog, s, (enum prog_port)i);
        if (bytes == 0) continue;
        enum tern_status status = range_check(s->ports[i].buf, s->ports[i].offset, bytes, err);
        if (status != TERN_OK) {
            err_prefix(err, "%s", names[i]);
            return status;
        }
    }
    uint64_t start = clock_ns();
    if (p->prog->spec.kind == PROG_COMMIT) {
        npu_commit(p, s);
    } else {
        struct npu_call c = {.u = u, .p = p, .s = s};
        TRY(npu_call_begin(&c, err));
        npu_eval_bind(c.v->eval, u->scratch);
        npu_call_fill(&c);
        if (c.v->remote)
            TRY(npu_remote_run(u, c.v, err));
        else
            npu_eval_run(c.v->eval);
        npu_call_take(&c);
    }
    u->counters.n_steps++;
    u->counters.n_rows += (uint64_t)s->n_rows;
    u->counters.busy_ns += clock_ns() - start;
    *event = (struct unit_event){.serial = ++u->serial};
    return TERN_OK;
}

static enum tern_status npu_event_wait(struct unit *u, const struct unit_event *event, struct tern_err *err) {
    if (event->serial >= 1 && event->serial <= u->serial) return TERN_OK;
    return err_set(err, TERN_INVALID_ARGUMENT, "npu unit: waiting for step %llu of %llu",
                   (unsigned long long)event->serial, (unsigned long long)u->serial);
}

static bool npu_event_poll(struct unit *u, const struct unit_event *event) { return event->serial <= u->serial; }

static enum tern_status npu_state_convert(struct unit *u, const struct state_pool *dst, const struct state_pool *src,
                                          const int32_t *dst_blocks, const int32_t *src_blocks, int n_blocks,
                                          int32_t dst_slot, int32_t src_slot, struct tern_err *err) {
    const struct state_layout *a = &dst->layout, *b = &src->layout;
    if (a->tag != STATE_CPU_V1 || b->tag != STATE_CPU_V1 || a->block_bytes != b->block_bytes ||
        a->slot_bytes != b->slot_bytes || a->kv_type != b->kv_type || a->layer_begin != b->layer_begin ||
        a->layer_end != b->layer_end)
        return err_set(err, TERN_UNSUPPORTED, "npu unit: states of another layout");
    for (int i = 0; i < n_blocks; i++)
        TRY(npu_buffer_copy(u, dst->kv, (uint64_t)dst_blocks[i] * a->block_bytes, src->kv,
                            (uint64_t)src_blocks[i] * a->block_bytes, a->block_bytes, err));
    if (a->slot_bytes == 0) return TERN_OK;
    return npu_buffer_copy(u, dst->conv, (uint64_t)dst_slot * a->slot_bytes, src->conv,
                           (uint64_t)src_slot * a->slot_bytes, a->slot_bytes, err);
}

static void npu_counters(const struct unit *u, struct unit_counters *out) { *out = u->counters; }
static uint64_t npu_program_bytes(const struct unit_program *p) { return p->bytes; }

const struct unit_driver unit_npu_driver = {
    .name = "npu",
    .probe = npu_probe,
    .open = npu_open,
    .close = npu_close,
    .caps = npu_caps,
    .buffer_alloc = npu_buffer_alloc,
    .buffer_import = npu_buffer_import,
    .buffer_free = npu_buffer_free,
    .buffer_write = npu_buffer_write,
    .buffer_read = npu_buffer_read,
    .buffer_copy = npu_buffer_copy,
    .buffer_host = npu_buffer_host,
    .weights_import = npu_weights_import,
    .weights_free = npu_weights_free,
    .program_compile = npu_program_compile,
    .program_free = npu_program_free,
    .submit = npu_submit,
    .event_wait = npu_event_wait,
    .event_poll = npu_event_poll,
    .state_convert = npu_state_convert,
    .counters = npu_counters,
    .program_bytes = npu_program_bytes,
    .program_estimate = npu_program_estimate,
};
