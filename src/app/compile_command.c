// tern compile: a model's programs for an NPU runtime, made ahead of their first use.
#include "base/base.h"
#include "app.h"
#include "model/model.h"
#include "unit/unit.h"

struct compile_opts {
    bool npu;
    const char *backend, *model, *dir, *provider, *plugin, *template_dir, *shape;
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

static int compile_main(const struct command *c, int argc, char **argv) {
    struct compile_opts o = {0};
    const struct opt rows[] = {
        {"--npu", 0, NULL, OPT_FLAG, &o.npu, 0, 0, "for a neural engine (the only target so far)"},
        {"--backend", 0, "NAME", OPT_TEXT, &o.backend, 0, 0, "ort, openvino or coreai"},
        {"--model", 'm', "PATH", OPT_TEXT, &o.model, 0, 0, "the model (default: $TERN_MODEL, else pico)"},
        {"--shape", 0, "NAME", OPT_TEXT, &o.shape, 0, 0, "random weights in this shape instead (tern bench --help)"},
        {"--output", 'o', "DIR", OPT_TEXT, &o.dir, 0, 0, "folder for the programs"},
        {"--provider", 0, "NAME", OPT_TEXT, &o.provider, 0, 0, "device: cpu (default), or what the runtime calls it"},
        {"--plugin", 0, "FILE", OPT_TEXT, &o.plugin, 0, 0, "ort: library that brings the provider"},
        {"--template", 0, "DIR", OPT_TEXT, &o.template_dir, 0, 0, "coreai: template (default: DIR/template)"},
        {"--threads", 't', "N", OPT_INT, &o.n_threads, 0, 1024, "of the cpu provider (0: one per fast core)"},
        {0},
    };
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(c, "no arguments expected");
    if (!o.npu || !o.backend || !o.dir) return usage_error(c, "--npu, --backend NAME and -o DIR are needed");
    struct tern_err err = {0};
    struct model *m = NULL;
    bool was_there = false;
    enum tern_status status = model_get(c, &o, &m, &code, &err);
    if (code != 0) return code;
    if (status != TERN_OK) return fail_told(c, &err);
    struct unit_npu_compile_options options = {.backend = o.backend,
                                               .provider = o.provider,
                                               .plugin = o.plugin,
                                               .template_dir = o.template_dir,
                                               .dir = o.dir,
                                               .n_threads = o.n_threads,
                                               .on_program = program_print};
    uint64_t start = clock_ns();
    status = unit_npu_compile(m, &options, &was_there, &err);
    model_close(m);
    if (status != TERN_OK) return fail_told(c, &err);
    out_putf("%s: %s, %.1f s\n", o.dir, was_there ? "already there" : "made", (double)(clock_ns() - start) * 1e-9);
    return EXIT_DONE;
}

const struct command command_compile = {
    "compile", "--npu --backend NAME -o DIR", "programs for an NPU, made ahead",
    "Writes the model's weights, int8 for each output channel, and its programs for a runtime into DIR, compiles\n"
    "each there and runs it once. A program that fails is named, and nothing takes its place.\n",
    compile_main};
