// tern compile: a model's programs for an NPU runtime, made ahead of their first use.
#include "base/base.h"
#include "app.h"
#include "model/model.h"
#include "policy/policy.h"
#include "unit/unit.h"

struct compile_opts {
    bool npu;
    const char *backend, *model, *dir, *provider, *plugin, *template_dir, *shape, *buckets;
    int n_threads;
};

static void program_print(void *arg, const char *name, const char *fault, double ms, const char *note) {
    (void)arg;
    if (fault)
        out_putf("%-14s failed    %s\n", name, fault);
    else
        out_putf("%-14s %8.1f ms  %s\n", name, ms, note);
    out_flush();
}

static void note_print(void *arg, const char *text) {
    (void)arg;
    out_putf("%s\n", text);
    out_flush();
}

static enum tern_status model_get(const struct command *c, const struct compile_opts *o, struct model **m, int *code,
                                  struct tern_err *err) {
    const char *path = o->model ? o->model : env_get("TERN_MODEL");
    struct buf storage;
    struct str data = {0};
    *code = 0;
    if (o->shape) return model_create_named_shape(m, o->shape, "Q8_0", 1, err);
    *code = model_path_told(c, &path, &storage);
    if (*code != 0) return buf_release(&storage), TERN_INVALID_ARGUMENT;
    if (!path) data = builtin_model(&path);
    enum tern_status status =
        data.data ? model_open_memory(m, "pico", data.data, data.len, err) : model_open(m, path, err);
    buf_release(&storage);
    return status;
}

#define AUTO_REQUESTS_MIN 20 // fewer say nothing

// What the engine recorded of this model's requests.
static enum tern_status lengths_read(const struct model *m, uint64_t steps[LENGTHS_BINS], struct tern_err *err) {
    char path[4096];
    struct buf text;
    struct lengths l;
    if (!lengths_path(m->digest, path, sizeof path))
        return err_set(err, TERN_NOT_FOUND, "no recorded lengths: neither XDG_STATE_HOME nor HOME is set");
    buf_init(&text, LENGTHS_BYTES_MAX);
    enum tern_status status = file_read_all(&text, path, err);
    if (status == TERN_OK) status = lengths_parse(&l, buf_str(&text), err);
    buf_release(&text);
    if (status != TERN_OK) {
        err_prefix(err, "--buckets auto: %s", path);
        return status;
    }
    uint64_t n = lengths_requests(&l);
    if (n < AUTO_REQUESTS_MIN)
        return err_set(err, TERN_NOT_FOUND, "--buckets auto: %s tells of %llu requests; %d are needed", path,
                       (unsigned long long)n, AUTO_REQUESTS_MIN);
    lengths_steps(&l, steps);
    out_putf("lengths of %llu requests from %s\n", (unsigned long long)n, path);
    return TERN_OK;
}

static int compile_main(const struct command *c, int argc, char **argv) {
    struct compile_opts o = {0};
    const struct opt rows[] = {
        {"--npu", 0, NULL, OPT_FLAG, &o.npu, 0, 0, "for a neural engine (the only target so far)"},
        {"--backend", 0, "NAME", OPT_TEXT, &o.backend, 0, 0,
         "ort, openvino, coreai; a rule set (coreai-linux, ane-m1 …): the evaluator"},
        {"--model", 'm', "PATH", OPT_TEXT, &o.model, 0, 0, "the model (default: $TERN_MODEL, else pico)"},
        {"--shape", 0, "NAME", OPT_TEXT, &o.shape, 0, 0, "random weights in this shape instead (tern bench --help)"},
        {"--output", 'o', "DIR", OPT_TEXT, &o.dir, 0, 0,
         "folder of the set (default: in the cache; the engine looks there)"},
        {"--provider", 0, "NAME", OPT_TEXT, &o.provider, 0, 0, "device: cpu (default), or what the runtime calls it"},
        {"--plugin", 0, "FILE", OPT_TEXT, &o.plugin, 0, 0, "ort: library that brings the provider"},
        {"--template", 0, "DIR", OPT_TEXT, &o.template_dir, 0, 0, "coreai: template (default: DIR/template)"},
        {"--buckets", 0, "auto", OPT_TEXT, &o.buckets, 0, 0, "buckets by the lengths of earlier requests"},
        {"--threads", 't', "N", OPT_INT, &o.n_threads, 0, 1024, "of the cpu provider (0: one per fast core)"},
        {0},
    };
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(c, "no arguments expected");
    if (!o.npu || !o.backend) return usage_error(c, "--npu and --backend NAME are needed");
    if (strcmp(o.backend, "coreai") == 0 && !o.dir) return usage_error(c, "coreai: -o DIR is needed for the asset");
    if (o.buckets && strcmp(o.buckets, "auto") != 0) return usage_error(c, "--buckets wants auto, not '%s'", o.buckets);
    struct tern_err err = {0};
    struct model *m = NULL;
    bool was_there = false;
    uint64_t steps[LENGTHS_BINS];
    enum tern_status status = model_get(c, &o, &m, &code, &err);
    if (code != 0) return code;
    if (status != TERN_OK) return fail_told(c, &err);
    struct unit_npu_compile_options options = {.backend = o.backend,
                                               .provider = o.provider,
                                               .plugin = o.plugin,
                                               .template_dir = o.template_dir,
                                               .dir = o.dir,
                                               .n_threads = o.n_threads,
                                               .on_program = program_print,
                                               .on_note = note_print};
    uint64_t start = clock_ns();
    if (o.buckets) {
        status = lengths_read(m, steps, &err);
        options.steps = steps;
        options.n_steps = LENGTHS_BINS;
    }
    if (status == TERN_OK) status = unit_npu_compile(m, &options, &was_there, &err);
    model_close(m);
    if (status != TERN_OK) return fail_told(c, &err);
    out_putf("%s: %s, %.1f s\n", o.dir ? o.dir : "set in the cache", was_there ? "already there" : "made",
             (double)(clock_ns() - start) * 1e-9);
    return EXIT_DONE;
}

const struct command command_compile = {
    "compile", "--npu --backend NAME", "programs for an NPU, made ahead",
    "Packs the model's weights, int8 for each output channel, compiles every program for each bucket and runs it,\n"
    "measures attention whole and in chunks and windows of 32 to 128 rows, and keeps what was chosen as a set.\n"
    "A program that fails is named, and nothing takes its place.\n",
    compile_main};
