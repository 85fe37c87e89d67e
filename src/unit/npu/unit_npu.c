// The npu unit's driver table: opening and closing, weights, submission.
//
// Which arithmetic it computes with is the variant behind the colon of its name: "npu" is coreai-linux, "npu:ane-m1"
// what is published of that engine, "npu:fp32" the program's meaning (npu_rules.h), "npu:ane-m1@FILE" the same with
// calibrated scales; "npu:ort", "npu:openvino+int4" and "npu:coreai" run programs on those runtimes (npu_remote.c).
// Steps run to their end in submit.
#include "base/base.h"
#include "npu_arithmetic.h" // made by the build
#include "unit/npu/npu_unit.h"
#include "unit/npu/pack_choice.h"
#include <stdio.h>

#define PATH_LEN_MAX 4096
#define NPU_ASK_PART 4 // the next bucket is compiled when less than a quarter of this one is free

// What the environment names must be understood: a set that is damaged, or buckets that are none, make the unit
// unusable, and tern doctor says why.
static bool npu_probe(const char **reason) {
    static _Thread_local struct tern_err why;
    const char *set = env_get("TERN_NPU_SET");
    *reason = "programs for neural engines, evaluated on this CPU with an engine's arithmetic";
    if (npu_buckets_check(&why) == TERN_OK && (!set || npu_choice_check(set, &why) == TERN_OK)) return true;
    *reason = why.message;
    return false;
}

// "ane-m1+int4": the format of matrices behind a plus sign; without one the class decides (weights_import). w8a8: int8
// with activations rounded to int8 too.
enum tern_status npu_format_choose(struct unit *u, struct str name, struct tern_err *err) {
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
        TRY(npu_format_choose(u, (struct str){variant + n + 1, format - n - 1}, err));
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

// What people are told of the unit, and of what the set of its last model chose.
static void detail_make(struct unit *u, const struct npu_choice *c) {
    char choice[120] = "";
    if (c && c->n > 0) npu_choice_text(c, choice, sizeof choice);
    (void)snprintf(u->detail, sizeof u->detail, "%s%s%s", u->named, choice[0] ? "; " : "", choice);
}

static enum tern_status npu_open(struct unit **out, const struct unit_options *o, struct tern_err *err) {
    static const struct unit_options defaults = {0};
    if (!o) o = &defaults;
    struct unit *u = mem_calloc(1, sizeof(*u));
    if (!u) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory");
    u->host.base.driver = &unit_npu_driver;
    u->kernels = npu_kernels_get(o->isa ? o->isa : env_get("TERN_CPU"));
    struct team_options team = {.n_threads = o->n_threads, .pin = o->pin};
    const char *set = env_get("TERN_NPU_SET");
    enum tern_status status;
    bool is_remote = npu_remote_is(o->variant);
    if (set && strlen(set) >= sizeof u->set) {
        status = err_set(err, TERN_INVALID_ARGUMENT, "TERN_NPU_SET: '%s' is too long for a path", set);
        goto fail;
    }
    if (set) memcpy(u->set, set, strlen(set) + 1);
    TRY_GOTO(npu_buckets_check(err), fail);
    TRY_GOTO(rules_choose(u, is_remote ? NULL : o->variant, err), fail);
    TRY_GOTO(team_create(&u->team, &team, err), fail);
    u->n_threads = team_size(u->team);
    if (is_remote)
        TRY_GOTO(npu_remote_open(u, o->variant, u->n_threads, err), fail);
    else
        (void)snprintf(u->named, sizeof u->named, "evaluator, rules %s (%s), %s, %d thread%s", u->rules->name,
                       u->rules->note, u->kernels->isa, u->n_threads, u->n_threads == 1 ? "" : "s");
    detail_make(u, NULL);
    *out = u;
    return TERN_OK;
fail:
    team_free(u->team);
    mem_free(u);
    return status;
}

static void npu_close(struct unit *u) {
    if (!u) return;
    if (u->host.n_alive != 0) TERN_BUG("npu unit closed with %d buffers, weights or programs alive", u->host.n_alive);
    if (u->scratch) mem_unmap(u->scratch, (size_t)u->scratch_bytes);
    npu_remote_close(u);
    if (u->io) mem_unmap(u->io, (size_t)u->io_bytes);
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
                              .arithmetic = NPU_ARITHMETIC,
                              .state_tag = STATE_CPU_V1,
                              .window_max = NPU_WINDOW_MAX};
}

// The window that a set's measurements chose, and the largest bucket.
static enum tern_status npu_advise(const struct unit *u, const struct model *m, bool pack_cache,
                                   struct unit_advice *out, struct tern_err *err) {
    struct npu_choice c = {0};
    int buckets[NPU_BUCKETS_MAX];
    if (pack_cache) TRY(npu_choice_load(&c, m, npu_backend_label(u), u->set, err));
    out->window = c.window > 0 ? c.window : u->remote && u->remote_driver->needs_asset ? NPU_ASSET_WINDOW : 0;
    if (m->hyper.bidirectional) return TERN_OK; // texts are one step each
    int n = npu_buckets(m, &c, buckets);
    out->ctx_max = buckets[n - 1];
    (void)snprintf(out->note, sizeof out->note, "its largest program; %s makes larger ones, up to %d",
                   c.n > 0 ? "`tern compile --npu` with a larger TERN_NPU_CTX" : "TERN_NPU_CTX", NPU_CTX_MAX);
    return TERN_OK;
}

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
    npu_pack_release(&w->pack);
    mem_free(w->rope_freq);
    mem_free(w);
    u->host.n_alive--;
}

// The store of the weights: over a named set, else over the cache's pack, else made in memory.
static enum tern_status store_open(struct unit *u, struct unit_weights *w, enum npu_format format,
                                   const struct weights_options *o, struct weights_info *info, struct tern_err *err) {
    const char *set = o->pack_cache && u->set[0] ? u->set : NULL; // else tensors may differ from the file's
    char path[PATH_LEN_MAX];
    bool made = false;
    TRY(npu_pack_init(&w->pack, w->model, format, &w->scales, err));
    w->pack.team = u->team;
    // A drafter beside the model is not in its set.
    if (set && !w->model->drafter) {
        if ((size_t)snprintf(path, sizeof path, "%s/" NPU_SET_FILE, set) >= sizeof path)
            return err_set(err, TERN_INVALID_ARGUMENT, "the set '%s' is too long for a path", set);
        enum tern_status status = npu_pack_open(&w->pack, path, err);
        if (status != TERN_OK) {
            err_prefix(err, "npu unit: '%s' holds no set of %s (%s); `tern compile --npu -o DIR` makes one", set,
                       w->model->name, npu_format_name(format));
            return status;
        }
        info->from_cache = true;
    } else if (o->pack_cache) {
        info->from_cache = npu_pack_from_cache(&w->pack, &made, w->cache_note) && !made;
    }
    TRY(w->pack.map.data ? npu_pack_store(&w->pack, &w->store, err)
                         : npu_store_create(&w->store, w->model, format, err));
    npu_store_team_set(w->store, u->team);
    if (u->remote) npu_store_nibbles_set(w->store);
    return npu_constants_make(w->store, &w->scales, err);
}

static enum tern_status npu_weights_import(struct unit *u, struct unit_weights **out, const struct model *m,
                                           const struct weights_options *o, struct weights_info *info,
                                           struct tern_err *err) {
    struct weights_info unused;
    if (!info) info = &unused;
    *info = (struct weights_info){0};
    TRY(npu_lower_check(m, err));
    TRY(npu_remote_check(u, m, err));
    if (o->numerics == PROG_CLASS_BF16)
        return err_set(err, TERN_UNSUPPORTED, "npu unit: no class bf16: engines compute in fp16; use int8 or fp32");
    struct unit_weights *w = mem_calloc(1, sizeof(*w));
    if (!w) return err_set(err, TERN_NO_MEMORY, "npu unit: no memory for weights");
    u->host.n_alive++;
    w->model = m;
    w->numerics = o->numerics;
    enum tern_status status;
    enum npu_format format = o->numerics == PROG_CLASS_INT8 ? NPU_FORMAT_I8 : NPU_FORMAT_F16;
    if (u->format != NPU_FORMAT_NONE) format = u->format;
    w->rope_freq = mem_calloc((size_t)MAX(m->hyper.head_dim / 2, 1), sizeof(double));
    if (!w->rope_freq) {
        status = err_set(err, TERN_NO_MEMORY, "npu unit: no memory for weights");
        goto fail;
    }
    op_rope_freqs(m->hyper.rope_base, m->hyper.head_dim, m->hyper.rope_factors, w->rope_freq);
    TRY_GOTO(npu_calibration_create(&w->calibration, m->hyper.n_layers, err), fail);
    if (u->scales[0]) TRY_GOTO(npu_scales_read(w->calibration, u->scales, &w->scales, err), fail);
    TRY_GOTO(store_open(u, w, format, o, info, err), fail);
    if (o->pack_cache) TRY_GOTO(npu_choice_load(&w->choice, m, npu_backend_label(u), u->set, err), fail);
    detail_make(u, &w->choice);
    if (o->on_progress && !o->on_progress(o->on_progress_arg, m->n_bytes_file, m->n_bytes_file)) {
        status = err_set(err, TERN_CANCELLED, "npu unit: the import of %s was cancelled", m->name);
        goto fail;
    }
    info->bytes = npu_store_bytes(w->store);
    info->cache_note = w->cache_note[0] ? w->cache_note : NULL;
    *out = w;
    return TERN_OK;
fail:
    npu_weights_free(u, w);
    return status;
}

// ---------------------------------------------------------------------------------------------------------- submission

// A context that fills most of its bucket soon needs the next one.
static void next_ask(struct unit *u, const struct npu_call *c) {
    if (c->columns * NPU_ASK_PART < c->v->bucket * (NPU_ASK_PART - 1)) return;
    for (int i = 0; i + 1 < c->p->n_variants; i++)
        if (c->p->variants[i] == c->v) npu_opener_ask(u->opener, c->p->variants[i + 1]);
}

// Before any pass writes a state: every pass has its program.
static enum tern_status passes_ready(struct unit *u, struct unit_program *p, const struct step *s,
                                     struct tern_err *err) {
    struct npu_call c = {.u = u, .p = p, .s = s};
    do {
        TRY(npu_call_begin(&c, err));
        if (u->remote) TRY(npu_opener_need(u->opener, c.v, err));
        c.first = c.next;
    } while (c.next < s->n_seqs);
    return TERN_OK;
}

static enum tern_status pass_run(struct npu_call *c, struct tern_err *err) {
    struct unit *u = c->u;
    TRY(npu_call_begin(c, err));
    if (u->remote)
        npu_stage_bind(c->v->stage, u->scratch, u->io);
    else
        npu_eval_bind(c->v->eval, u->scratch);
    u->call = c;
    npu_call_fill(c);
    if (u->remote) {
        TRY(npu_remote_run(u, c->v, err));
    } else {
        npu_eval_columns(c->v->eval, c->s->n_rows);
        npu_eval_run(c->v->eval);
    }
    npu_call_take(c);
    if (u->remote) next_ask(u, c);
    return TERN_OK;
}

static enum tern_status npu_submit(struct unit *u, struct unit_program *p, const struct step *s,
                                   struct unit_event *event, struct tern_err *err) {
    static const char *const names[] = {"port rows_in", "port rows_out", "port qkv",      "port attn",
                                        "port logits",  "port argmax",   "port features", "port hidden"};
    TRY(step_check(p->prog, s, err));
    for (int i = 0; i < (int)ARRAY_LEN(s->ports); i++) {
        uint64_t bytes = prog_port_bytes(p->prog, s, (enum prog_port)i);
        if (bytes == 0) continue;
        enum tern_status status = host_range_check(s->ports[i].buf, s->ports[i].offset, bytes, err);
        if (status != TERN_OK) {
            err_prefix(err, "%s", names[i]);
            return status;
        }
    }
    uint64_t start = clock_ns();
    if (p->prog->spec.kind == PROG_COMMIT) {
        npu_commit(p, s);
    } else {
        TRY(passes_ready(u, p, s, err));
        struct npu_call c = {.u = u, .p = p, .s = s};
        do {
            TRY(pass_run(&c, err));
            c.first = c.next;
        } while (c.next < s->n_seqs);
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

static void npu_counters(const struct unit *u, struct unit_counters *out) { *out = u->counters; }
static uint64_t npu_program_bytes(const struct unit_program *p) { return p->bytes; }

const struct unit_driver unit_npu_driver = {
    .name = "npu",
    .probe = npu_probe,
    .open = npu_open,
    .close = npu_close,
    .caps = npu_caps,
    .advise = npu_advise,
    .buffer_alloc = host_buffer_alloc,
    .buffer_import = host_buffer_import,
    .buffer_free = host_buffer_free,
    .buffer_write = host_buffer_write,
    .buffer_read = host_buffer_read,
    .buffer_copy = host_buffer_copy,
    .buffer_host = host_buffer_at,
    .weights_import = npu_weights_import,
    .weights_free = npu_weights_free,
    .program_compile = npu_program_compile,
    .program_free = npu_program_free,
    .submit = npu_submit,
    .event_wait = npu_event_wait,
    .event_poll = npu_event_poll,
    .state_convert = host_state_convert,
    .counters = npu_counters,
    .program_bytes = npu_program_bytes,
    .program_estimate = npu_program_estimate,
};
