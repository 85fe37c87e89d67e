// tern bench: prefill and decode speed of a model or of random weights in a named shape, through the public interface.
// Repetitions are whole requests on fixed token ids; the first one warms up and is not counted. Beside the decode speed
// stands its share of the read bandwidth, beside the prefill speed its share of the arithmetic's peak, both measured in
// the same run.
#include "base/base.h"
#include "prog/prog.h"
#include "app/app.h"

#include <stdio.h>
#include <stdlib.h>

#include "bench_ceiling.h"
#include "bench_curve.h"
#include "bench_mask.h"
#include "bench_peers.h"
#include "bench_replay.h"
#include "bench_server.h"
#include "bench_service.h"
#include "bench_spec.h"
#include "bench_stats.h"

#define BENCH_REPEATS_MAX 1000
#define WARM_ANSWER_MAX 8

struct bench_opts {
    struct model_opts model;
    const char *shape, *format;
    const char *prompts, *modes, *replay, *record;
    float share;
    int n_prompt, n_answer, depth, repeats, seed, n_each;
    bool skip_loops;
    int turns; // of --server's session; -1: not said
    int warm;  // prompt tokens of the uncounted request; -1: all
    bool json, spec, no_ceilings;
    bool rows, busy, mask;
    const char *depths, *batch, *service, *server; // lists
    const char *beside, *csv;                      // with --server
    struct peers_opts peers;                       // dir NULL: none
};
struct series {
    double v[BENCH_REPEATS_MAX];
    int n;
};
static void series_add(struct series *s, double v) { s->v[s->n++] = v; }
static int double_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double series_at(struct series *s, double q) { // 0: min, 0.5: median, 1: max
    qsort(s->v, (size_t)s->n, sizeof s->v[0], double_compare);
    return s->v[(int)(q * (s->n - 1) + 0.5)];
}

static uint64_t ids_next(uint64_t *state) {
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

// One request of n_prompt ids and n_answer tokens behind `depth` tokens; times into the usage.
static int request_once(const struct command *c, struct tern_session *s, const int32_t *ids, int depth, int n_prompt,
                        int n_answer, struct tern_usage *u) {
    struct tern_err err = {0};
    struct tern_request_options o;
    tern_request_options_default(&o);
    o.draft = TERN_DRAFT_OFF; // random tokens end in loops, which n-grams guess: a speed of nobody's text
    o.prompt_ids = ids;
    o.n_prompt_ids = (size_t)(depth + n_prompt);
    o.n_max = n_answer;
    o.ignore_eos = true;
    struct answer_view v;
    answer_view_init(&v, false);
    int code = EXIT_DONE;
    if (tern_session_truncate(s, 0, &err) != TERN_OK || answer_view_run(&v, s, &o, &err) != TERN_OK)
        code = fail_told(c, &err);
    *u = v.usage;
    if (code == EXIT_DONE && v.finish == TERN_FINISH_CANCELLED) code = EXIT_INTERRUPTED;
    answer_view_release(&v);
    return code;
}

// Multiplications and additions for one prompt token: two for each weight that it meets.
static double ops_token(const struct tern_model_info *m) { return 2 * (double)m->n_params_token; }

// What the prompts' products are bound by: the name of the peaks of the arithmetic's class, NULL for float sums.
static const char *peak_kind(const struct tern_model_info *m) {
    struct str numerics = str_from(m->numerics);
    return str_starts(numerics, STR("int8")) ? "int8" : str_starts(numerics, STR("bf16")) ? "bf16" : NULL;
}

struct bench_series {
    struct series prefill, decode, read_gbs, peak_gops; // the peak: 0 when it was not measured
};

static void result_print(const struct bench_opts *o, const struct tern_model_info *m, struct bench_series *all) {
    struct series *pp = &all->prefill, *tg = &all->decode;
    double gbs = series_at(&all->read_gbs, 0.5), gops = series_at(&all->peak_gops, 0.5);
    double tg_med = tg->n ? series_at(tg, 0.5) : 0, pp_med = series_at(pp, 0.5);
    double share = gbs > 0 ? tg_med * (double)m->bytes_token / 1e9 / gbs : 0;
    double pp_share = gops > 0 ? pp_med * ops_token(m) / 1e9 / gops : 0;
    if (o->json) {
        out_puts("{\"model\": ");
        out_quoted(m->name);
        out_putf(", \"format\": \"%s\", \"kernels\": \"%s\", \"numerics\": \"%s\", \"threads\": %d, "
                 "\"bytes_weights\": %llu, \"bytes_token\": %llu, \"prompt\": %d, \"answer\": %d, \"depth\": %d, "
                 "\"repeats\": %d, "
                 "\"ops_token\": %.0f, \"read_gbs\": %.3f",
                 m->format, m->kernels, m->numerics, m->n_threads, (unsigned long long)m->bytes_weights,
                 (unsigned long long)m->bytes_token, o->n_prompt, o->n_answer, o->depth, o->repeats, ops_token(m), gbs);
        out_putf(", \"prefill_tps\": {\"min\": %.3f, \"median\": %.3f, \"max\": %.3f}", series_at(pp, 0), pp_med,
                 series_at(pp, 1));
        if (gops > 0) out_putf(", \"peak_gops\": %.1f, \"prefill_share\": %.4f", gops, pp_share);
        if (tg->n)
            out_putf(", \"decode_tps\": {\"min\": %.3f, \"median\": %.3f, \"max\": %.3f}, \"decode_share\": %.4f",
                     series_at(tg, 0), tg_med, series_at(tg, 1), share);
        out_puts("}\n");
        return;
    }
    char text[24];
    out_putf("%s, %s, %s, %s, %d threads, packed weights %s, %d repeats\n", m->name, m->format, m->kernels, m->numerics,
             m->n_threads, bytes_format(m->bytes_weights, text), o->repeats);
    out_putf("%-22s %10s %10s %10s\n", "tokens/s", "median", "min", "max");
    out_putf("prefill %-14d %10.1f %10.1f %10.1f", o->n_prompt, pp_med, series_at(pp, 0), series_at(pp, 1));
    if (gops > 0) out_putf("   %.0f %% of %.0f GOP/s %s", 100 * pp_share, gops, peak_kind(m));
    out_puts("\n");
    if (tg->n == 0) return;
    out_putf("decode %-4d @ %-8d %10.1f %10.1f %10.1f", o->n_answer, o->depth + o->n_prompt, tg_med, series_at(tg, 0),
             series_at(tg, 1));
    if (gbs > 0) out_putf("   %.0f %% of %.1f GB/s read", 100 * share, gbs);
    out_puts(share > 1 ? "\n(more than memory gives: weights of this size stay in a cache)\n" : "\n");
}

static int bench_run(const struct command *c, struct bench_opts *o, struct tern_engine *e) {
    struct tern_err err = {0};
    struct tern_model_info info;
    tern_engine_info(e, &info);
    int n = o->depth + o->n_prompt;
    struct tern_session *s;
    if (tern_session_open(&s, e, &err) != TERN_OK) return fail_told(c, &err);
    int32_t *ids = mem_calloc((size_t)n, sizeof *ids);
    struct bench_series *all = mem_calloc(1, sizeof *all);
    uint64_t state = (uint64_t)o->seed;
    for (int i = 0; ids && i < n; i++) ids[i] = (int32_t)(ids_next(&state) % (uint64_t)info.n_vocab);
    int code = ids && all ? EXIT_DONE : EXIT_FAILED;
    struct progress bar;
    progress_begin(&bar, "measuring", (uint64_t)o->repeats + 1, false);
    for (int i = 0; i <= o->repeats && code == EXIT_DONE; i++) {
        struct tern_usage u;
        struct bench_ceilings ceilings = {0};
        progress_update(&bar, (uint64_t)i);
        if (i == 0) {
            int n_warm = o->warm < 0 ? n : MIN(o->warm, n);
            code = request_once(c, s, ids, 0, n_warm, MIN(o->n_answer, WARM_ANSWER_MAX) + 1, &u);
            continue;
        }
        if (!o->no_ceilings) bench_ceilings_get(&ceilings, info.n_threads);
        code = request_once(c, s, ids, o->depth, o->n_prompt, o->n_answer + 1, &u);
        if (code != EXIT_DONE) continue;
        const char *kind = peak_kind(&info);
        series_add(&all->read_gbs, ceilings.read_gbs);
        series_add(&all->peak_gops, kind ? bench_ceilings_peak(&ceilings, kind) : 0);
        series_add(&all->prefill, (double)n / u.prompt_s);
        if (o->n_answer > 0) series_add(&all->decode, (double)o->n_answer / u.answer_s);
    }
    progress_end(&bar);
    if (code == EXIT_DONE) result_print(o, &info, all);
    mem_free(ids);
    mem_free(all);
    tern_session_close(s);
    return code;
}

static int replay_run(const struct command *c, const struct bench_opts *o) {
    const struct replay_bench_opts ro = {.paths = o->replay,
                                         .shape = o->shape,
                                         .format = o->format,
                                         .model = o->model.engine.model_path,
                                         .drafter = o->model.engine.draft_path,
                                         .modes = o->modes,
                                         .record = o->record,
                                         .share = (double)o->share,
                                         .n_threads = o->model.engine.n_threads,
                                         .n_each = o->n_each,
                                         .seed = o->seed,
                                         .json = o->json};
    if (o->model.engine.draft_unit) return usage_error(c, "--replay runs all on the cpu: no --draft-unit");
    if (!o->shape && !ro.drafter) return usage_error(c, "--replay wants --shape, or --draft-model");
    return bench_replay_run(c, &ro);
}

static int peers_run(const struct command *c, struct bench_opts *o) {
    struct peers_opts *p = &o->peers;
    if (!p->dir) return usage_error(c, "--grid, --only, --out and --limit go with --peers");
    if (p->size && strcmp(p->size, "small") != 0 && strcmp(p->size, "full") != 0)
        return usage_error(c, "--grid wants small or full, not '%s'", p->size);
    if (o->spec || o->shape) return usage_error(c, "--peers takes its models from the manifest");
    p->n_threads = o->model.engine.n_threads;
    p->repeats = o->repeats < 0 ? 5 : o->repeats;
    p->json = o->json;
    return bench_peers_run(c, p);
}

#define PROMPT_DEFAULT 512
#define SERVICE_PROMPT 32 // tokens of a stream; of the long prompt; of prompts that begin alike; their own
#define SERVICE_ARRIVAL 2048
#define SERVICE_SHARED 600
#define SERVICE_OWN 30

static int service_run(const struct command *c, struct bench_opts *o) {
    struct curve_opts points = {.kind = CURVE_BATCH};
    if (o->spec || o->replay || o->peers.dir || o->rows || o->busy || o->batch)
        return usage_error(c, "--service is a bench of its own");
    if (!curve_points_parse(&points, o->service, 1, TERN_STREAMS_MAX) || points.n_points > SERVICE_POINTS_MAX)
        return usage_error(c, "--service wants at most %d rising numbers with commas, 1 to %d, not '%s'",
                           SERVICE_POINTS_MAX, TERN_STREAMS_MAX, o->service);
    if (o->shape) return usage_error(c, "--service needs a model that writes text, not a shape");
    struct service_bench_opts so = {.n_points = points.n_points,
                                    .n_prompt = SERVICE_PROMPT,
                                    .n_answer = o->n_answer > 0 ? o->n_answer : 64,
                                    .n_arrival = o->n_prompt,
                                    .n_shared = MIN(SERVICE_SHARED, o->n_prompt),
                                    .n_own = SERVICE_OWN,
                                    .prompts = o->prompts,
                                    .n_each = o->n_each,
                                    .repeats = o->repeats < 0 ? 3 : o->repeats,
                                    .seed = (uint64_t)o->seed,
                                    .json = o->json};
    memcpy(so.points, points.points, sizeof so.points);
    if (so.repeats > STATS_MAX) return usage_error(c, "--service takes at most %d repeats", STATS_MAX);
    if (so.prompts) {
        o->model.engine.n_sessions = so.points[so.n_points - 1];
        o->model.engine.draft = TERN_DRAFT_AUTO;
    } else {
        bench_service_engine(&so, &o->model.engine);
    }
    struct tern_engine *e = NULL;
    int code = engine_open_told(c, &o->model, &e);
    if (code == 0) code = so.prompts ? bench_streams_run(c, &so, e) : bench_service_run(c, &so, e);
    tern_engine_close(e);
    return code;
}

#define SERVER_TURNS 20

static int server_run(const struct command *c, struct bench_opts *o) {
    struct curve_opts points = {.kind = CURVE_BATCH};
    if (o->spec || o->replay || o->peers.dir || o->rows || o->busy || o->batch || o->service || o->shape)
        return usage_error(c, "--server is a bench of its own, of a model in a file");
    if (!curve_points_parse(&points, o->server, 1, SERVER_STREAMS_MAX) || points.n_points > SERVER_POINTS_MAX)
        return usage_error(c, "--server wants at most %d rising numbers with commas, 1 to %d, not '%s'",
                           SERVER_POINTS_MAX, SERVER_STREAMS_MAX, o->server);
    if (o->repeats > SERVER_ROUNDS_MAX) return usage_error(c, "--server takes at most %d repeats", SERVER_ROUNDS_MAX);
    if (!o->model.engine.model_path) return usage_error(c, "--server needs the file of a model: -m");
    struct buf path;
    int code = model_path_told(c, &o->model.engine.model_path, &path);
    struct server_bench_opts so = {.n_points = points.n_points,
                                   .model_path = o->model.engine.model_path,
                                   .beside = o->beside,
                                   .csv = o->csv,
                                   .n_threads = o->model.engine.n_threads,
                                   .n_prompt = SERVICE_PROMPT,
                                   .n_answer = o->n_answer > 0 ? o->n_answer : 64,
                                   .n_arrival = o->n_prompt,
                                   .n_shared = SERVICE_SHARED,
                                   .n_own = SERVICE_OWN,
                                   .n_turns = o->turns < 0 ? SERVER_TURNS : o->turns,
                                   .repeats = o->repeats < 0 ? 3 : o->repeats,
                                   .seed = (uint64_t)o->seed,
                                   .json = o->json};
    memcpy(so.points, points.points, sizeof so.points);
    if (so.n_threads == 0) so.n_threads = cpu_topology_get().n_cores_fast;
    if (code == 0) code = bench_server_run(c, &so);
    buf_release(&path);
    return code;
}

#define DEPTH_MAX (1 << 20)
#define ROWS_DEPTH 512
#define BATCH_PROMPT 32

// What the options say of curves, and --depth of everything else; curve->n_points 0: none is asked for.
static int curve_opts_read(const struct command *c, struct bench_opts *o, struct curve_opts *curve) {
    static const int rows[] = {1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 48, 64};
    *curve = (struct curve_opts){.kind = CURVE_DEPTH};
    if (o->rows + o->busy + (o->batch != NULL) > 1) return usage_error(c, "one of --rows, --batch and --busy");
    if (o->depths && !curve_points_parse(curve, o->depths, 0, DEPTH_MAX))
        return usage_error(c, "--depth wants a number, or rising numbers with commas, up to %d; not '%s'", DEPTH_MAX,
                           o->depths);
    bool has_curve = curve->n_points > 1, other = o->rows || o->busy || o->batch;
    if (has_curve && other) return usage_error(c, "--rows, --batch and --busy take one --depth");
    o->depth = curve->n_points > 0 ? curve->points[0] : o->rows ? ROWS_DEPTH : 0;
    if (!has_curve) curve->n_points = 0;
    if (o->rows) {
        curve->kind = CURVE_ROWS;
        curve->n_points = (int)ARRAY_LEN(rows);
        memcpy(curve->points, rows, sizeof rows);
    } else if (o->busy) {
        *curve = (struct curve_opts){.kind = CURVE_BUSY, .points = {0, 1}, .n_points = 2};
    } else if (o->batch) {
        curve->kind = CURVE_BATCH;
        if (!curve_points_parse(curve, o->batch, 1, STEP_SEQS_MAX))
            return usage_error(c, "--batch wants rising numbers with commas, 1 to %d, not '%s'", STEP_SEQS_MAX,
                               o->batch);
    }
    return EXIT_DONE;
}

static int curve_run(const struct command *c, struct bench_opts *o, struct curve_opts *curve) {
    if (o->spec || o->replay || o->peers.dir) return usage_error(c, "a curve is a bench of its own");
    if (o->repeats > CURVE_REPEATS_MAX) return usage_error(c, "a curve takes at most %d repeats", CURVE_REPEATS_MAX);
    curve->depth = o->depth;
    curve->n_prompt = BATCH_PROMPT;
    curve->n_answer = o->n_answer > 0 ? o->n_answer : 32;
    curve->repeats = o->repeats < 0 ? 5 : o->repeats;
    curve->json = o->json;
    curve->kv_given = o->model.kv != NULL;
    if (o->shape) {
        o->model.engine.model_path = NULL;
        o->model.engine.shape = o->shape;
        o->model.engine.shape_format = o->format;
        o->model.engine.shape_seed = (uint64_t)o->seed;
    }
    int code = model_opts_finish(c, &o->model);
    if (code != 0) return code;
    struct buf path; // of a name in a store
    code = model_path_told(c, &o->model.engine.model_path, &path);
    if (code == 0) code = bench_curve_run(c, curve, &o->model.engine);
    buf_release(&path);
    return code;
}

static int bench_dispatch(const struct command *c, struct bench_opts *o) {
    struct curve_opts curve;
    if (o->n_prompt < 0) o->n_prompt = o->service || o->server ? SERVICE_ARRIVAL : PROMPT_DEFAULT;
    if (o->server) return server_run(c, o);
    if (o->beside || o->csv || o->turns >= 0) return usage_error(c, "--beside, --csv and --turns go with --server");
    if (o->service) return service_run(c, o);
    int code = curve_opts_read(c, o, &curve);
    if (code != EXIT_DONE) return code;
    if (curve.n_points > 0) return curve_run(c, o, &curve);
    if (o->replay) return replay_run(c, o);
    if (o->record) return usage_error(c, "--record goes with --replay");
    if ((o->prompts || o->n_each || o->modes || o->skip_loops) && !o->spec)
        return usage_error(c, "--prompts, --each and --modes go with --spec");
    if (o->mask && (o->spec || o->shape)) return usage_error(c, "--mask is a bench of its own, with a tokenizer");
    if (o->spec && o->shape) return usage_error(c, "--spec needs a model that writes text, not a shape");
    if (o->peers.dir || o->peers.size || o->peers.only || o->peers.out || o->peers.limit_s) return peers_run(c, o);
    if (o->n_answer < 0) o->n_answer = o->spec ? 160 : 128;
    if (o->repeats < 0) o->repeats = o->spec ? 1 : 5;
    if (o->format && !o->shape) return usage_error(c, "--format goes with --shape");
    if (o->shape) {
        o->model.engine.model_path = NULL;
        o->model.engine.shape = o->shape;
        o->model.engine.shape_format = o->format;
        o->model.engine.shape_seed = (uint64_t)o->seed;
    }
    if (o->model.engine.n_ctx == 0 && !o->spec) o->model.engine.n_ctx = o->depth + o->n_prompt + o->n_answer + 2;
    if (o->spec) o->model.engine.draft = TERN_DRAFT_AUTO; // auto is one of the modes compared
    struct tern_engine *e = NULL;
    code = engine_open_told(c, &o->model, &e);
    const struct spec_bench_opts so = {.prompts = o->prompts,
                                       .skip_loops = o->skip_loops,
                                       .modes = o->modes,
                                       .n_max = MAX(o->n_answer, 1),
                                       .n_each = o->n_each,
                                       .repeats = o->repeats,
                                       .json = o->json};
    if (code == 0 && o->mask)
        code = bench_mask_run(c, e, o->json);
    else if (code == 0)
        code = o->spec ? bench_spec_run(c, &so, e) : bench_run(c, o, e);
    tern_engine_close(e);
    return code;
}

static int bench_main(const struct command *c, int argc, char **argv) {
    struct bench_opts o = {
        .n_prompt = -1, .n_answer = -1, .repeats = -1, .seed = 1, .share = 0.125f, .warm = -1, .turns = -1};
    model_opts_init(&o.model);
    struct opt model_rows[MODEL_OPTS_N];
    model_opts_table(&o.model, model_rows);
    const struct opt rows[] = {
        {"--shape", 0, "NAME", OPT_TEXT, &o.shape, 0, 0,
         "random weights: lfm2-350m, lfm2-1.2b, lfm2-8b-a1b, lfm2.5-2.6b, llama-7b"},
        {"--format", 0, "NAME", OPT_TEXT, &o.format, 0, 0, "of the shape's weights (default Q4_0)"},
        {"--seed", 0, "N", OPT_INT, &o.seed, 0, 1 << 30, "of the shape's weights and the prompt (default 1)"},
        {"--prompt", 'p', "N", OPT_INT, &o.n_prompt, 1, 1 << 20,
         "prompt tokens (default 512; of --service and --server, those of the long prompt: 2048)"},
        {"--answer", 'n', "N", OPT_INT, &o.n_answer, 0, 1 << 20, "answer tokens (default 128)"},
        {"--depth", 'd', "N[,N…]", OPT_TEXT, &o.depths, 0, 0,
         "further prompt tokens before (default 0); a list: decode behind each, f16 and 8-bit cache"},
        {"--rows", 0, NULL, OPT_FLAG, &o.rows, 0, 0,
         "instead: steps of 1 to 64 rows behind --depth tokens (default 512)"},
        {"--batch", 0, "N,N…", OPT_TEXT, &o.batch, 0, 0, "instead: so many sequences decoded together"},
        {"--service", 0, "N,N…", OPT_TEXT, &o.service, 0, 0,
         "instead: so many streams of a service, a long prompt that comes beside them, prompts that begin alike"},
        {"--server", 0, "N,N…", OPT_TEXT, &o.server, 0, 0,
         "instead: `tern serve` with so many streams over HTTP, a long prompt that comes, a session with tools"},
        {"--beside", 0, "PATH", OPT_TEXT, &o.beside, 0, 0, "with --server: llama-server's program, measured in turn"},
        {"--turns", 0, "N", OPT_INT, &o.turns, 0, SERVER_TURNS_MAX,
         "with --server: turns of the session, of one stream (default 20; 0: none)"},
        {"--csv", 0, "FILE", OPT_TEXT, &o.csv, 0, 0, "with --server: a line for each measurement is added here"},
        {"--busy", 0, NULL, OPT_FLAG, &o.busy, 0, 0, "instead: decode beside another busy process"},
        {"--mask", 0, NULL, OPT_FLAG, &o.mask, 0, 0, "instead: constraints over the model's vocabulary"},
        {"--repeats", 'r', "N", OPT_INT, &o.repeats, 1, BENCH_REPEATS_MAX, "counted repetitions (default 5)"},
        {"--json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "one JSON object"},
        {"--warm", 0, "N", OPT_INT, &o.warm, 1, 1 << 20,
         "prompt tokens of the first, uncounted request (default: all)"},
        {"--no-ceilings", 0, NULL, OPT_FLAG, &o.no_ceilings, 0, 0,
         "do not measure the machine's read bandwidth and arithmetic"},
        {"--peers", 0, "DIR", OPT_TEXT, &o.peers.dir, 0, 0,
         "beside the engines of DIR/peers.json: a grid of models and tests, in turn (doc/performance.md)"},
        {"--grid", 0, "SIZE", OPT_TEXT, &o.peers.size, 0, 0, "with --peers: small or full (default)"},
        {"--only", 0, "TEXT", OPT_TEXT, &o.peers.only, 0, 0,
         "with --peers: cells whose name contains this, such as 'Q4_0 decode 64 behind 0, 2 threads'"},
        {"--out", 0, "DIR", OPT_TEXT, &o.peers.out, 0, 0,
         "with --peers: folder of cells.csv and raw output (default DIR/results)"},
        {"--limit", 0, "S", OPT_INT, &o.peers.limit_s, 1, 1 << 30,
         "with --peers: stop after so many seconds; the same command goes on"},
        {"--spec", 0, NULL, OPT_FLAG, &o.spec, 0, 0, "drafting instead: answers to prompts, in every mode"},
        {"--prompts", 0, "FILE", OPT_TEXT, &o.prompts, 0, 0,
         "with --spec: a line {\"category\", \"messages\", \"tools\"} for each prompt; with --service: drafts on and "
         "off "
         "for these prompts instead"},
        {"--modes", 0, "LIST", OPT_TEXT, &o.modes, 0, 0,
         "with --spec: of plain,chain,chain8,tree8,tree16,tree,auto,biased,ngram (default all); with --replay: of "
         "plain,tree4,tree8,tree16,tree46,auto"},
        {"--skip-loops", 0, NULL, OPT_FLAG, &o.skip_loops, 0, 0,
         "with --spec: leave out answers in which one 8-gram occurs more than three times"},
        {"--each", 0, "N", OPT_INT, &o.n_each, 1, 1 << 20, "with --spec: prompts of each category (default all)"},
        {"--replay", 0, "FILE", OPT_TEXT, &o.replay, 0, 0,
         "drafting with recorded acceptance (`tern study acceptance --paths`), for --shape too"},
        {"--draft-share", 0, "X", OPT_FLOAT, &o.share, 0.001, 1,
         "with --replay and --shape: the drafter's own weights over the model's (default 0.125)"},
        {"--record", 0, "FILE", OPT_TEXT, &o.record, 0, 0, "with --replay: times of rounds of random widths instead"},
        {0}};
    const struct opt *const tables[] = {rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(c, "no arguments expected");
    return bench_dispatch(c, &o);
}

const struct command command_bench = {"bench", "", "prefill and decode speed", NULL, bench_main};
