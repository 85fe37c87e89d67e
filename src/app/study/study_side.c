// An arithmetic as text, opened: see study_side.h.
#include "base/base.h"
#include "study_side.h"

static bool text_take(char *out, size_t cap, struct str from) {
    if (from.len == 0 || from.len >= cap) return false;
    memcpy(out, from.data, from.len);
    out[from.len] = 0;
    return true;
}

static enum tern_status class_parse(struct side_spec *s, struct str name, struct tern_err *err) {
    static const struct {
        const char *name;
        enum tern_class numerics;
    } classes[] = {{"fp32", TERN_CLASS_FP32}, {"int8", TERN_CLASS_INT8}, {"bf16", TERN_CLASS_BF16}};
    for (size_t i = 0; i < ARRAY_LEN(classes); i++)
        if (str_eqz(name, classes[i].name)) {
            s->numerics = classes[i].numerics;
            return TERN_OK;
        }
    return err_set(err, TERN_INVALID_ARGUMENT, "arithmetic '%s': no class '%.*s'; there are fp32, int8 and bf16",
                   s->text, (int)name.len, name.data);
}

static enum tern_status key_parse(struct side_spec *s, struct str key, struct str value, struct tern_err *err) {
    static const char *const kv[] = {[OP_KV_F16] = "f16", [OP_KV_Q8] = "q8", [OP_KV_F32] = "f32"};
    bool is_values;
    int64_t n;
    if (str_eqz(key, "weights")) {
        if (text_take(s->weights, sizeof s->weights, value) && weights_format_find(s->weights, &is_values))
            return TERN_OK;
        return err_set(err, TERN_NOT_FOUND, "arithmetic '%s': no weights '%.*s'; there are " WEIGHTS_FORMAT_NAMES,
                       s->text, (int)value.len, value.data);
    }
    if (str_eqz(key, "model") && text_take(s->model, sizeof s->model, value)) return TERN_OK;
    if (str_eqz(key, "plan") && text_take(s->plan, sizeof s->plan, value)) return TERN_OK;
    if (str_eqz(key, "then") && text_take(s->then_unit, sizeof s->then_unit, value)) return TERN_OK;
    if (str_eqz(key, "window") && str_to_i64(value, &n) && n >= 1 && n <= STEP_WINDOW_MAX) {
        s->window = (int)n;
        return TERN_OK;
    }
    for (size_t i = 0; str_eqz(key, "kv") && i < ARRAY_LEN(kv); i++)
        if (str_eqz(value, kv[i])) {
            s->kv = (enum op_kv_type)i;
            return TERN_OK;
        }
    return err_set(err, TERN_INVALID_ARGUMENT,
                   "arithmetic '%s': '%.*s=%.*s' is not understood; weights=FORMAT, model=FILE, kv=f16|q8|f32, "
                   "plan=KIND, then=UNIT and window=1…%d are",
                   s->text, (int)key.len, key.data, (int)value.len, value.data, STEP_WINDOW_MAX);
}

enum tern_status side_parse(struct side_spec *out, const char *text, struct tern_err *err) {
    *out = (struct side_spec){.numerics = TERN_CLASS_INT8, .kv = OP_KV_F16, .window = SIDE_WINDOW};
    struct str rest = str_from(text);
    if (!text_take(out->text, sizeof out->text, rest))
        return err_set(err, TERN_INVALID_ARGUMENT, "an arithmetic is UNIT/CLASS (cpu/fp32), at most %d bytes",
                       SIDE_PATH_MAX - 1);
    size_t end = strcspn(out->text, ","), slash = end;
    while (slash > 0 && text[slash - 1] != '/') slash--; // the last one: paths of scales have some too
    if (slash > 0) TRY(class_parse(out, (struct str){text + slash, end - slash}, err));
    if (!text_take(out->unit, sizeof out->unit, (struct str){text, slash > 0 ? slash - 1 : end}))
        return err_set(err, TERN_INVALID_ARGUMENT, "arithmetic '%s': UNIT/CLASS is expected, as in npu:ane-m1/int8",
                       text);
    while (text[end] == ',') {
        const char *at = text + end + 1;
        size_t n = strcspn(at, ","), eq = 0;
        while (eq < n && at[eq] != '=') eq++;
        TRY(key_parse(out, (struct str){at, eq}, (struct str){at + MIN(eq + 1, n), n - MIN(eq + 1, n)}, err));
        end += 1 + n;
    }
    bool is_values = false;
    if (out->weights[0] && weights_format_find(out->weights, &is_values) && is_values &&
        out->numerics != TERN_CLASS_FP32)
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "arithmetic '%s': weights=%s are values, which class fp32 multiplies as they are; write "
                       "%s/fp32,weights=%s",
                       text, out->weights, out->unit, out->weights);
    return TERN_OK;
}

enum tern_status side_open(struct side *s, const struct side_spec *spec, const struct tern_engine_options *o, int n_ctx,
                           struct tern_err *err) {
    struct tern_engine_options mine = *o;
    *s = (struct side){.spec = *spec};
    mine.unit = s->spec.unit;
    mine.numerics = spec->numerics;
    mine.window = spec->window;
    mine.plan = spec->plan[0] ? s->spec.plan : NULL;
    mine.then_unit = spec->then_unit[0] ? s->spec.then_unit : NULL;
    if (spec->model[0]) {
        mine.model_path = s->spec.model;
        mine.shape = NULL;
        mine.model_data = NULL;
        mine.model_data_len = 0;
    }
    enum tern_status status;
    if (spec->weights[0]) TRY_GOTO(weights_change_create(&s->change, spec->weights, err), fail);
    TRY_GOTO(lab_open_changed(&s->lab, &mine, s->change ? weights_change_run : NULL, s->change, err), fail);
    s->lab.model->hyper.n_vocab_used = MIN(s->lab.model->hyper.n_vocab_used, s->lab.model->hyper.n_vocab);
    TRY_GOTO(lab_run_open(&s->run, &s->lab, spec->kv, n_ctx, 1, spec->window, err), fail);
    return TERN_OK;
fail:
    err_prefix(err, "%s", spec->text);
    side_close(s);
    return status;
}

void side_close(struct side *s) {
    if (s->run.plan) lab_run_close(&s->run);
    lab_close(&s->lab);
    weights_change_free(s->change);
    s->change = NULL;
}

enum tern_status side_feed(struct side *s, const int32_t *ids, int n, int n_out, struct tern_err *err) {
    struct lab_run *r = &s->run;
    const struct state_pool *pool = plan_pool(r->plan);
    int32_t slot = pool->n_slots > 0 ? 0 : -1;
    step_begin(&r->b, pool, 0);
    int q = step_add_seq(&r->b, r->blocks, r->n_blocks, r->len[0], r->len[0] > 0 ? slot : -1, slot);
    for (int i = 0; i < n; i++) step_add_chain_row(&r->b, q, ids[i], i >= n - n_out);
    uint64_t begin = clock_ns();
    TRY(plan_run(r->plan, step_end(&r->b), n_out > 0 ? PROG_OUT_LOGITS : 0, err));
    s->ns += clock_ns() - begin;
    s->n_rows += (uint64_t)n;
    r->len[0] += n;
    return TERN_OK;
}

const float *side_logits(const struct side *s, int row) { return plan_logits(s->run.plan, row); }
void side_rewind(struct side *s) { s->run.len[0] = 0; }
