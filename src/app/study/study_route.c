// tern route: which of several routes a text belongs to, by an encoder with a prompt-router head; and how far other
// units agree with the reference on cases of a file.
//
// The report keeps apart what the two kinds of use ask of a router: classification (few routes, the first one counts)
// and ranking (many routes, such as tools: the first, and the order of the first three). Agreement says nothing of
// accuracy, which is counted beside it where cases have labels.
#define _GNU_SOURCE 1 // setenv
#include "base/base.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "policy/policy.h"
#include "study_fidelity.h"

#define UNITS_MAX TERN_STOP_MAX
#define CASES_BYTES_MAX (64u << 20)
#define CASES_MAX 16384
#define RANKED 3            // places whose order counts in ranking
#define CLASSIFY_BOUND 0.98 // to adopt: the same first route
#define RANK_BOUND 0.95     // the same, in ranking cases
enum kind { KIND_CLASSIFICATION, KIND_RANKING, KIND_COUNT };
static const char *const kind_names[] = {"classification", "ranking"};

struct asked {
    const struct command *c;
    const char *routes_file, *text_file, *cases_file;
    struct opt_texts routes, units;
    bool json;
};
struct route_list {
    struct buf file; // routes of --routes, one a line
    struct tern_str items[TERN_ROUTES_MAX];
    int n;
};
struct route_case {
    enum kind kind;
    int first, n; // routes [first, first + n) of all, and logits
    struct tern_str text;
    int label; // of the routes; -1: none
};
struct case_set {
    struct buf file, texts; // decoded strings
    struct route_case *items;
    int n, n_routes;
    struct tern_str *routes;
    float *logits[2]; // [n_routes] of the reference and of another unit
};

// --------------------------------------------------------------------------------------------------------- one text

static double softmax_at(const float *logits, int n, int i) {
    double top = (double)logits[0], sum = 0;
    for (int k = 1; k < n; k++) top = fmax(top, (double)logits[k]);
    for (int k = 0; k < n; k++) sum += exp((double)logits[k] - top);
    return exp((double)logits[i] - top) / sum;
}

// Indices by falling logit, ties by order.
static void order_make(const float *logits, int n, int *order) {
    for (int i = 0; i < n; i++) {
        int at = i;
        while (at > 0 && logits[order[at - 1]] < logits[i]) {
            order[at] = order[at - 1];
            at--;
        }
        order[at] = i;
    }
}

static int routes_read(struct asked *q, struct route_list *l) {
    struct tern_err err = {0};
    for (int i = 0; i < q->routes.n; i++)
        l->items[l->n++] = (struct tern_str){q->routes.items[i], strlen(q->routes.items[i])};
    if (!q->routes_file) return l->n > 0 ? 0 : usage_error(q->c, "no routes: --route NAME, or --routes FILE");
    if (file_read_all(&l->file, q->routes_file, &err) != TERN_OK) return fail_told(q->c, &err);
    for (size_t at = 0; at < l->file.len;) {
        size_t end = at;
        while (end < l->file.len && l->file.data[end] != '\n') end++;
        struct str line = str_trim((struct str){l->file.data + at, end - at});
        at = end + 1;
        if (line.len == 0) continue;
        if (l->n == TERN_ROUTES_MAX) return usage_error(q->c, "more than %d routes", TERN_ROUTES_MAX);
        l->items[l->n++] = (struct tern_str){line.data, line.len};
    }
    return l->n > 0 ? 0 : usage_error(q->c, "%s has no routes", q->routes_file);
}

static void scores_put(const struct asked *q, const struct route_list *l, const float *logits) {
    int order[TERN_ROUTES_MAX];
    struct buf b;
    struct json_writer w;
    order_make(logits, l->n, order);
    if (!q->json) {
        for (int i = 0; i < l->n; i++)
            out_putf("%.4f %8.3f  %.*s\n", softmax_at(logits, l->n, order[i]), (double)logits[order[i]],
                     (int)l->items[order[i]].len, l->items[order[i]].data);
        return;
    }
    buf_init(&b, 1u << 24);
    json_write_init(&w, &b);
    json_write_array(&w);
    for (int i = 0; i < l->n; i++) {
        json_write_object(&w);
        json_write_key(&w, "route");
        json_write_str(&w, (struct str){l->items[order[i]].data, l->items[order[i]].len});
        json_write_key(&w, "probability");
        json_write_f64(&w, softmax_at(logits, l->n, order[i]));
        json_write_key(&w, "logit");
        json_write_f64(&w, (double)logits[order[i]]);
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    out_put(buf_str(&b));
    out_puts("\n");
    buf_release(&b);
}

static int text_route(struct asked *q, struct model_opts *model, const char *words) {
    static struct route_list l;
    static float logits[TERN_ROUTES_MAX];
    struct tern_err err = {0};
    struct tern_engine *e = NULL;
    struct buf text;
    bool found = false;
    buf_init(&l.file, APP_TEXT_BYTES_MAX);
    int code = routes_read(q, &l);
    if (code == 0) code = prompt_read(q->c, words, q->text_file, &text, &found);
    if (code == 0 && !found) code = usage_error(q->c, "no text: as an argument, in a file, or on standard input");
    if (code == 0) code = engine_open_told(q->c, model, &e);
    if (code == 0) {
        struct str s = str_trim(buf_str(&text));
        if (tern_route(e, (struct tern_str){s.data, s.len}, l.items, (size_t)l.n, logits, &err) != TERN_OK)
            code = fail_told(q->c, &err);
        else
            scores_put(q, &l, logits);
    }
    if (found) buf_release(&text);
    buf_release(&l.file);
    tern_engine_close(e);
    return code;
}

// -------------------------------------------------------------------------------------------------------------- cases

// A decoded string, kept: places in `texts` are offsets until all are read.
static struct tern_str text_keep(struct case_set *s, struct str text) {
    struct tern_str at = {(const char *)(uintptr_t)s->texts.len, text.len};
    buf_put(&s->texts, text.data, text.len);
    return at;
}

static enum tern_status routes_take(struct case_set *s, struct json *j, struct route_case *c, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_ARRAY, &item, "routes", err));
    for (c->first = s->n_routes; json_next(j, &item, err) != JSON_ARRAY_END; c->n++) {
        if (item.event == JSON_ERROR) return err->code;
        if (item.event != JSON_STRING || c->n == TERN_ROUTES_MAX || s->n_routes == CASES_MAX * 8)
            return err_set(err, TERN_BAD_FORMAT, "'routes': 1 to %d names are expected, %d in the whole file",
                           TERN_ROUTES_MAX, CASES_MAX * 8);
        s->routes[s->n_routes++] = text_keep(s, item.text);
    }
    return TERN_OK;
}

static enum tern_status case_take(struct case_set *s, struct json *j, struct route_case *c, struct tern_str *label,
                                  struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_OBJECT, &item, "a case", err));
    while (json_next(j, &item, err) == JSON_KEY) {
        bool text = str_eqz(item.text, "text"), tag = str_eqz(item.text, "label"), kind = str_eqz(item.text, "kind");
        if (str_eqz(item.text, "routes")) {
            TRY(routes_take(s, j, c, err));
        } else if (text || tag || kind) {
            TRY(json_expect(j, JSON_STRING, &item, "a string", err));
            if (kind && !str_eqz(item.text, kind_names[0]) && !str_eqz(item.text, kind_names[1]))
                return err_set(err, TERN_BAD_FORMAT, "'kind' is classification or ranking");
            if (kind) c->kind = str_eqz(item.text, kind_names[1]) ? KIND_RANKING : KIND_CLASSIFICATION;
            if (text) c->text = text_keep(s, item.text);
            if (tag) *label = text_keep(s, item.text);
        } else {
            TRY(json_skip(j, err));
        }
    }
    return item.event == JSON_ERROR ? err->code : TERN_OK;
}

static struct str kept(const struct case_set *s, struct tern_str at) {
    return (struct str){s->texts.data + (uintptr_t)at.data, at.len};
}

static enum tern_status line_take(struct case_set *s, struct str line, struct tern_err *err) {
    struct json *j;
    struct route_case *c = &s->items[s->n];
    struct tern_str label = {NULL, 0};
    *c = (struct route_case){.label = -1};
    TRY(json_create(&j, line, NULL, err));
    enum tern_status status = case_take(s, j, c, &label, err);
    json_free(j);
    TRY(status);
    for (int i = 0; label.len > 0 && i < c->n; i++)
        if (str_eq(kept(s, label), kept(s, s->routes[c->first + i]))) c->label = i;
    if (c->n == 0 || c->text.len == 0 || (label.len > 0 && c->label < 0))
        return err_set(err, TERN_BAD_FORMAT, "a case has 'text', 'routes' and perhaps a 'label' that is one of them");
    s->n++;
    return TERN_OK;
}

static enum tern_status cases_read(struct case_set *s, const char *path, struct tern_err *err) {
    buf_init(&s->file, CASES_BYTES_MAX);
    buf_init(&s->texts, CASES_BYTES_MAX);
    s->items = mem_calloc(CASES_MAX, sizeof *s->items);
    s->routes = mem_calloc(CASES_MAX * 8, sizeof *s->routes);
    if (!s->items || !s->routes) return err_set(err, TERN_NO_MEMORY, "no memory for cases");
    TRY(file_read_all(&s->file, path, err));
    for (size_t at = 0, number = 1; at < s->file.len; number++) {
        size_t end = at;
        while (end < s->file.len && s->file.data[end] != '\n') end++;
        struct str line = {s->file.data + at, end - at};
        at = end + 1;
        if (line.len == 0) continue;
        if (s->n == CASES_MAX) return err_set(err, TERN_LIMIT, "%s: more than %d cases", path, CASES_MAX);
        enum tern_status status = line_take(s, line, err);
        if (status != TERN_OK) return err_prefix(err, "%s, line %zu", path, number);
    }
    if (s->n == 0 || s->texts.failed) return err_set(err, TERN_BAD_FORMAT, "%s holds no cases, or too long ones", path);
    for (int i = 0; i < s->n_routes; i++) s->routes[i].data = s->texts.data + (uintptr_t)s->routes[i].data;
    for (int i = 0; i < s->n; i++) s->items[i].text.data = s->texts.data + (uintptr_t)s->items[i].text.data;
    for (int i = 0; i < 2; i++) s->logits[i] = mem_calloc((size_t)s->n_routes, sizeof(float));
    return s->logits[0] && s->logits[1] ? TERN_OK : err_set(err, TERN_NO_MEMORY, "no memory for cases");
}

static void cases_release(struct case_set *s) {
    buf_release(&s->file);
    buf_release(&s->texts);
    mem_free(s->items);
    mem_free(s->routes);
    for (int i = 0; i < 2; i++) mem_free(s->logits[i]);
}

static enum tern_status cases_run(struct case_set *s, struct tern_engine *e, float *logits, struct tern_err *err) {
    for (int i = 0; i < s->n; i++) {
        const struct route_case *c = &s->items[i];
        enum tern_status status = tern_route(e, c->text, s->routes + c->first, (size_t)c->n, logits + c->first, err);
        if (status != TERN_OK) return err_prefix(err, "case %d", i + 1);
    }
    return TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------- report

struct tally { // of one kind
    double n, same_first, same_three, same_all, labelled, right[2], kl;
    float off; // largest difference of a logit
};

static void case_count(const struct case_set *s, const struct route_case *c, struct tally *t) {
    int order[2][TERN_ROUTES_MAX];
    const float *a = s->logits[0] + c->first, *b = s->logits[1] + c->first;
    bool three = true, all = true;
    order_make(a, c->n, order[0]);
    order_make(b, c->n, order[1]);
    for (int i = 0; i < c->n; i++) {
        double p = softmax_at(a, c->n, i), r = softmax_at(b, c->n, i);
        all = all && order[0][i] == order[1][i];
        if (i < RANKED) three = all;
        t->off = fmaxf(t->off, fabsf(a[i] - b[i]));
        if (p > 0 && r > 0) t->kl += p * log(p / r);
    }
    t->n++;
    t->same_first += order[0][0] == order[1][0];
    t->same_three += three;
    t->same_all += all;
    if (c->label < 0) return;
    t->labelled++;
    for (int k = 0; k < 2; k++) t->right[k] += order[k][0] == c->label;
}

static void share_put(const char *what, double k, double n) {
    if (n <= 0) return;
    struct stats_interval s = stats_share(&k, &n, 1);
    out_putf("  %-28s %7.2f %% [%.2f, %.2f] of %.0f\n", what, 100 * s.mid, 100 * s.lo, 100 * s.hi, n);
}

static void tally_put(const char *kind, const struct tally *t, const char *a, const char *b) {
    char name[96];
    if (t->n <= 0) return;
    out_putf("%s\n", kind);
    share_put("agreement, first route", t->same_first, t->n);
    share_put("agreement, order of 3", t->same_three, t->n);
    share_put("agreement, whole order", t->same_all, t->n);
    (void)snprintf(name, sizeof name, "accuracy of %.64s", a);
    share_put(name, t->right[0], t->labelled);
    (void)snprintf(name, sizeof name, "accuracy of %.64s", b);
    share_put(name, t->right[1], t->labelled);
    out_putf("  logits differ by at most %.4g, KL %.6f\n", (double)t->off, t->kl / t->n);
}

// What the row is found by: the model's digest and what the unit says of itself when it is opened.
static enum tern_status key_make(const struct side_spec *b, const struct tern_engine_options *o,
                                 const struct tern_engine *e, struct validation *row, struct tern_err *err) {
    struct model *m = NULL;
    struct unit *u = NULL;
    struct unit_caps caps;
    struct unit_options uo = {.n_threads = o->n_threads, .pin = true};
    struct tern_model_info info;
    enum tern_status status;
    tern_engine_info(e, &info);
    TRY_GOTO(model_open(&m, o->model_path, err), done);
    TRY_GOTO(unit_open(&u, b->unit, &uo, err), done);
    unit_driver_of(u)->caps(u, &caps);
    status = validation_key_make(&row->key, m->digest, b->unit, &caps, info.numerics, tern_version(), err);
    (void)snprintf(row->name, sizeof row->name, "%.150s", m->name);
    (void)snprintf(row->placement, sizeof row->placement, "%.150s%s", caps.detail,
                   caps.deterministic ? " (this processor, no engine)" : "; compiled for it alone");
done:
    unit_close(u);
    model_close(m);
    return status;
}

static void row_fill(struct validation *row, const struct tally *t, const char *reference, const struct case_set *s) {
    double k = 0, n = 0, kl = 0, first[KIND_COUNT];
    struct sha256 h;
    uint8_t digest[32];
    for (int i = 0; i < KIND_COUNT; i++) {
        first[i] = t[i].n > 0 ? t[i].same_first / t[i].n : 1;
        n += t[i].n;
        k += t[i].same_first;
        kl += t[i].kl;
    }
    struct stats_interval share = stats_share(&k, &n, 1);
    int least = first[KIND_RANKING] < first[KIND_CLASSIFICATION] ? KIND_RANKING : KIND_CLASSIFICATION;
    row->tokens = s->n;
    row->made_wall_s = clock_wall_s();
    row->adopted = first[KIND_CLASSIFICATION] >= CLASSIFY_BOUND && first[KIND_RANKING] >= RANK_BOUND;
    if (!row->adopted)
        (void)snprintf(row->missed, sizeof row->missed,
                       "the same first route in %.2f %% of classification (%g) and %.2f %% of ranking (%g)",
                       100 * first[0], 100 * CLASSIFY_BOUND, 100 * first[1], 100 * RANK_BOUND);
    row->top1[0] = share.mid;
    row->top1[1] = share.lo;
    row->top1[2] = share.hi;
    row->kl = kl / n;
    row->ppl_ratio = 1;
    row->least_top1 = first[least];
    (void)snprintf(row->least, sizeof row->least, "%s", kind_names[least]);
    (void)snprintf(row->reference, sizeof row->reference, "%.150s", reference);
    sha256_init(&h);
    sha256_update(&h, s->file.data, s->file.len);
    sha256_final(&h, digest);
    sha256_hex(digest, row->prompts);
}

// One unit against the reference's logits: report, and the row that lets it be used.
static enum tern_status unit_compare(const struct side_spec *b, const struct tern_engine_options *from,
                                     const char *reference, struct case_set *s, bool *adopted, struct tern_err *err) {
    struct tern_engine_options o = *from;
    struct tern_engine *e = NULL;
    struct validation row = {.tokens = 0};
    static struct tally t[KIND_COUNT];
    enum tern_status status;
    memset(t, 0, sizeof t);
    o.unit = b->unit;
    o.numerics = b->numerics;
    o.kv_type = (enum tern_kv_type)b->kv;
    TRY_GOTO(tern_engine_open(&e, &o, err), done);
    TRY_GOTO(cases_run(s, e, s->logits[1], err), done);
    for (int i = 0; i < s->n; i++) case_count(s, &s->items[i], &t[s->items[i].kind]);
    out_putf("%s against %s, %d cases\n", b->text, reference, s->n);
    for (int k = 0; k < KIND_COUNT; k++) tally_put(kind_names[k], &t[k], reference, b->text);
    row_fill(&row, t, reference, s);
    TRY_GOTO(key_make(b, &o, e, &row, err), done);
    TRY_GOTO(validation_keep(&row, err), done);
    out_putf("verdict: %s%s (the same first route in %g %% of classification, %g %% of ranking)\n\n",
             row.adopted ? "adopted" : "rejected: ", row.missed, 100 * CLASSIFY_BOUND, 100 * RANK_BOUND);
    *adopted = row.adopted;
done:
    tern_engine_close(e);
    return status;
}

static int cases_compare(struct asked *q, struct model_opts *model) {
    static struct case_set s;
    static struct side_spec sides[UNITS_MAX];
    struct tern_err err = {0};
    struct tern_engine *e = NULL;
    struct buf storage;
    char reference[96] = "";
    bool all = true, adopted = false;
    for (int i = 0; i < q->units.n; i++) {
        if (side_parse(&sides[i], q->units.items[i], &err) != TERN_OK) return usage_error(q->c, "%s", err.message);
        if (sides[i].weights[0] || sides[i].model[0] || sides[i].plan[0] || sides[i].window != SIDE_WINDOW)
            return usage_error(q->c, "'%s': a unit, a class and kv= are possible here", sides[i].text);
    }
    buf_init(&storage, 0);
    int code = model_opts_finish(q->c, model);
    if (code == 0) code = model_path_told(q->c, &model->engine.model_path, &storage);
    struct tern_engine_options o = model->engine; // the path in storage
    if (code == 0) code = engine_open_told(q->c, model, &e);
    if (code == 0) {
        struct tern_model_info info;
        tern_engine_info(e, &info);
        (void)snprintf(reference, sizeof reference, "%.40s/%.40s", info.unit, info.numerics);
        setenv("TERN_UNVALIDATED", "1", 1); // what follows measures in order to validate
        enum tern_status status = cases_read(&s, q->cases_file, &err);
        if (status == TERN_OK) status = cases_run(&s, e, s.logits[0], &err);
        for (int i = 0; i < q->units.n && status == TERN_OK; i++) {
            status = unit_compare(&sides[i], &o, reference, &s, &adopted, &err);
            all = all && adopted;
        }
        if (status != TERN_OK) code = fail_told(q->c, &err);
    }
    cases_release(&s);
    tern_engine_close(e);
    buf_release(&storage);
    return code != 0 ? code : all ? EXIT_DONE : EXIT_FAILED;
}

static int route_main(const struct command *c, int argc, char **argv) {
    static struct asked q;
    struct model_opts model;
    struct opt model_rows[MODEL_OPTS_N];
    q = (struct asked){.c = c};
    model_opts_init(&model);
    model_opts_table(&model, model_rows);
    const struct opt rows[] = {
        {"--route", 'r', "NAME", OPT_TEXTS, &q.routes, 0, 0, "a route; as often as there are routes"},
        {"--routes", 0, "FILE", OPT_TEXT, &q.routes_file, 0, 0, "routes, one a line"},
        {"--file", 'f', "FILE", OPT_TEXT, &q.text_file, 0, 0, "the text (-: standard input)"},
        {"--json", 0, NULL, OPT_FLAG, &q.json, 0, 0, "JSON"},
        {"--cases", 0, "FILE", OPT_TEXT, &q.cases_file, 0, 0,
         "instead: cases, one JSON object a line (text, routes, kind, label), for --agree"},
        {"--agree", 0, "UNIT/CLASS", OPT_TEXTS, &q.units, 0, 0,
         "measure how far this agrees with --unit and --class on the cases, and keep the result; may be repeated"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if ((q.cases_file != NULL) != (q.units.n > 0)) return usage_error(c, "--cases and --agree belong together");
    if (q.cases_file && (n_args > 0 || q.routes.n > 0 || q.routes_file || q.text_file || q.json))
        return usage_error(c, "--cases brings texts and routes of its own");
    if (q.cases_file && !model.engine.model_path && !env_get("TERN_MODEL"))
        return usage_error(c, "name the router: -m MODEL");
    if (n_args > 1) return usage_error(c, "one text expected; put it in quotes");
    return q.cases_file ? cases_compare(&q, &model) : text_route(&q, &model, n_args > 0 ? argv[1] : NULL);
}

const struct command command_route = {
    "route", "[TEXT]", "which route a text belongs to, by an encoder with a prompt-router head",
    "Prints probability, logit and name of every route, the likeliest first.\n"
    "With --cases and --agree: agreement of units with a reference, exit 1 when one was rejected (doc/npu.md).",
    route_main};
