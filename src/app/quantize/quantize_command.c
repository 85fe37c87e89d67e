// tern quantize: any model to a GGUF file of any format. Checks what is asked for, chooses formats, writes.
#include "base/base.h"
#include "quantize.h"
#include "text/text.h"

#include <stdio.h>

struct quantize_opts {
    const char *type, *embedding, *output;
    struct opt_texts tensor_types;
    int n_threads;
    bool force, allow_requantize, pure, dry_run;
};

static bool type_parse(const struct command *c, const char *option, const char *name, enum format *out) {
    if (format_from_name(name, out) && format_table[*out].gguf_type >= 0) return true;
    usage_error(c, "%s: no format '%s'", option, name);
    return false;
}

// --tensor-type, then the two short forms. False after telling.
static bool overrides_parse(const struct command *c, const struct quantize_opts *o,
                            struct quantize_override out[QUANTIZE_OVERRIDES_MAX + 2], int *n) {
    *n = 0;
    for (int i = 0; i < o->tensor_types.n; i++) {
        struct str item = str_from(o->tensor_types.items[i]);
        size_t eq = str_find(item, STR("="), 0);
        if (eq == (size_t)-1 || eq == 0)
            return usage_error(c, "--tensor-type wants NAME=TYPE, not '%s'", o->tensor_types.items[i]), false;
        out[*n] = (struct quantize_override){.name = {item.data, eq}};
        if (!type_parse(c, "--tensor-type", item.data + eq + 1, &out[(*n)++].format)) return false;
    }
    const struct {
        const char *option, *value, *name;
    } named[] = {{"--token-embedding-type", o->embedding, "token_embd.weight"},
                 {"--output-tensor-type", o->output, "output.weight"}};
    for (size_t i = 0; i < ARRAY_LEN(named); i++) {
        if (!named[i].value) continue;
        out[*n] = (struct quantize_override){.name = str_from(named[i].name)};
        if (!type_parse(c, named[i].option, named[i].value, &out[(*n)++].format)) return false;
    }
    return true;
}

// Quantising what was quantised adds a second error to the first.
static enum tern_status requantize_check(const struct model_export *x, struct tern_err *err) {
    for (int i = 0; i < x->n_tensors; i++) {
        const struct model_export_tensor *t = &x->tensors[i];
        if (!t->from || format_is_float(t->from->format) || format_is_float(t->format) || t->from->format == t->format)
            continue;
        return err_set(
            err, TERN_INVALID_ARGUMENT,
            "tensor %.*s is %s already: making it %s adds a second error to the first. Start from the F16 or "
            "BF16 model, or say --allow-requantize",
            (int)t->name.len, t->name.data, format_table[t->from->format].name, format_table[t->format].name);
    }
    return TERN_OK;
}

static enum tern_status out_check(const char *out, const struct model *m, const char *in, bool force,
                                  struct tern_err *err) {
    struct os_stat to, from;
    (void)m;
    if (!os_stat_get(&to, out)) return TERN_OK;
    if (os_stat_get(&from, in) && from.inode == to.inode && from.device == to.device)
        return err_set(err, TERN_INVALID_ARGUMENT, "%s is the model to read; name another file to write", out);
    if (!to.is_file) return err_set(err, TERN_INVALID_ARGUMENT, "%s is there and no file", out);
    if (!force) return err_set(err, TERN_INVALID_ARGUMENT, "%s is there already; --force replaces it", out);
    return TERN_OK;
}

static void plan_print(const struct model_export *x) {
    for (int i = 0; i < x->n_tensors; i++) {
        const struct model_export_tensor *t = &x->tensors[i];
        char size[24];
        out_putf("%-36.*s %-5s -> %-5s  %s\n", (int)t->name.len, t->name.data,
                 t->from ? format_table[t->from->format].name : "F32", format_table[t->format].name,
                 bytes_format(t->n_bytes, size));
    }
}

static void summary_print(const struct model_export *x, const char *path, const struct quantize_mix *mix,
                          const struct quantize_result *r) {
    int count[FORMAT_COUNT] = {0};
    uint64_t n_values = 0, n_bytes = 0;
    for (int i = 0; i < x->n_tensors; i++) {
        count[x->tensors[i].format]++;
        n_values += (uint64_t)x->tensors[i].ne[0] * (uint64_t)x->tensors[i].n_rows;
        n_bytes += x->tensors[i].n_bytes;
    }
    char size[24];
    out_putf("%s: %s, %s, %.2f bits a weight (", path, mix->name, bytes_format(r->n_bytes, size),
             8 * (double)n_bytes / (double)MAX(n_values, 1));
    const char *gap = "";
    for (int f = 0; f < FORMAT_COUNT; f++) {
        if (count[f] == 0) continue;
        out_putf("%s%d %s", gap, count[f], format_table[f].name);
        gap = ", ";
    }
    if (r->error > 0)
        out_putf("); error of the quantised weights %.2f %%\n", 100 * r->error);
    else
        out_puts(")\n");
}

static int export_write(const struct command *c, const struct quantize_opts *o, struct model_export *x,
                        const struct quantize_mix *mix, const char *in, const char *path) {
    struct tern_err err = {0};
    struct quantize_override overrides[QUANTIZE_OVERRIDES_MAX + 2];
    int n_overrides;
    if (!overrides_parse(c, o, overrides, &n_overrides)) return EXIT_USAGE;
    struct quantize_result r = {0};
    struct buf head;
    buf_init(&head, (size_t)1 << 30);
    enum tern_status status = quantize_choose(x, mix, o->pure, overrides, n_overrides, true, &err);
    if (status == TERN_OK && !o->allow_requantize) status = requantize_check(x, &err);
    if (status == TERN_OK) status = model_export_head(x, mix->file_type, &head, &err); // sizes, for the plan
    buf_release(&head);
    if (status == TERN_OK && o->dry_run) {
        plan_print(x);
    } else if (status == TERN_OK) {
        status = out_check(path, x->model, in, o->force, &err);
        if (status == TERN_OK) status = quantize_write(x, mix->file_type, path, o->n_threads, &r, &err);
        if (status == TERN_OK) summary_print(x, path, mix, &r);
    }
    if (status == TERN_OK) return EXIT_DONE;
    fail_told(c, &err);
    return r.interrupted ? EXIT_INTERRUPTED : EXIT_FAILED;
}

// A GGUF file of any architecture needs its table only; a folder must be understood to be renamed.
static enum tern_status source_open(struct model **out, const char *in, struct tern_err *err) {
    struct model *m;
    TRY(model_open_table(&m, in, err));
    if (model_is_gguf(m)) return *out = m, TERN_OK;
    model_close(m);
    return model_open(out, in, err);
}

static int model_quantize(const struct command *c, const struct quantize_opts *o, const struct quantize_mix *mix,
                          const char *in, const char *path) {
    struct tern_err err = {0};
    struct model *m;
    struct tokenizer_export *text = NULL;
    struct model_export_vocab vocab = {0};
    struct model_export *x = NULL;
    if (source_open(&m, in, &err) != TERN_OK) return fail_told(c, &err);
    if (m->warning.len) fprintf(stderr, "tern quantize: %.*s\n", (int)m->warning.len, m->warning.data);
    enum tern_status status = TERN_OK;
    if (!model_is_gguf(m) && m->vocab.tokenizer_json.len > 0) {
        status =
            tokenizer_export_create(&text, m->vocab.tokenizer_json, m->hyper.n_vocab,
                                    strcmp(m->arch_name, "lfm2") == 0 || strcmp(m->arch_name, "lfm2moe") == 0, &err);
        if (status == TERN_OK)
            vocab = (struct model_export_vocab){.tokens = text->tokens,
                                                .types = text->types,
                                                .n_tokens = text->n_tokens,
                                                .merges = text->merges,
                                                .n_merges = text->n_merges,
                                                .pre = text->pre,
                                                .adds_bos = text->adds_bos,
                                                .scores = text->scores,
                                                .unk = text->unk};
        if (status == TERN_OK && text->differs && text->scores)
            fprintf(stderr,
                    "tern quantize: the merges of this tokenizer.json are not in an order that GGUF's scores can "
                    "say; some texts may get other ids\n");
        else if (status == TERN_OK && text->differs)
            fprintf(stderr,
                    "tern quantize: GGUF's pre-tokenizer '%s' treats words that are one token otherwise than this "
                    "tokenizer.json; some texts may get other ids\n",
                    text->pre);
    }
    if (status == TERN_OK) status = model_export_create(&x, m, text ? &vocab : NULL, &err);
    if (status == TERN_OK && x->warning) fprintf(stderr, "tern quantize: %s\n", x->warning);
    int code = status == TERN_OK ? export_write(c, o, x, mix, in, path) : fail_told(c, &err);
    model_export_free(x);
    tokenizer_export_free(text);
    model_close(m);
    return code;
}

static int quantize_main(const struct command *c, int argc, char **argv) {
    struct quantize_opts o = {0};
    const struct opt rows[] = {
        {"--type", 0, "TYPE", OPT_TEXT, &o.type, 0, 0, "what to make (default Q4_K_M)"},
        {"--tensor-type", 0, "NAME=TYPE", OPT_TEXTS, &o.tensor_types, 0, 0,
         "format of the tensors whose name holds NAME (may be given up to 16 times)"},
        {"--token-embedding-type", 0, "TYPE", OPT_TEXT, &o.embedding, 0, 0, "the same for token_embd.weight"},
        {"--output-tensor-type", 0, "TYPE", OPT_TEXT, &o.output, 0, 0, "the same for output.weight"},
        {"--pure", 0, NULL, OPT_FLAG, &o.pure, 0, 0, "every matrix in the one format, no mix"},
        {"--allow-requantize", 0, NULL, OPT_FLAG, &o.allow_requantize, 0, 0,
         "from a quantised model: a second error on top of the first"},
        {"--force", 0, NULL, OPT_FLAG, &o.force, 0, 0, "replace OUT if it is there"},
        {"--dry-run", 0, NULL, OPT_FLAG, &o.dry_run, 0, 0, "print what every tensor would become, write nothing"},
        {"--threads", 't', "N", OPT_INT, &o.n_threads, 1, TEAM_THREADS_MAX, "threads (default: one per fast core)"},
        {0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args != 2 && !(o.dry_run && n_args == 1)) return usage_error(c, "IN and OUT.gguf expected");
    const char *out = n_args == 2 ? argv[2] : "";
    if (n_args == 2 && !str_ends(str_from(out), STR(".gguf")))
        return usage_error(c, "the file to write must be called ….gguf, not '%s'", out);
    const struct quantize_mix *mix = quantize_mix_find(o.type ? o.type : "Q4_K_M");
    if (!mix) {
        struct buf names;
        buf_init(&names, 1024);
        for (const struct quantize_mix *m = quantize_mixes; m->name; m++)
            buf_putf(&names, "%s%s", m == quantize_mixes ? "" : ", ", m->name);
        code = usage_error(c, "--type wants one of %s, not '%s'", names.data, o.type);
        buf_release(&names);
        return code;
    }
    const char *in = argv[1];
    struct buf storage;
    code = model_path_told(c, &in, &storage);
    if (code == 0) code = model_quantize(c, &o, mix, in, out);
    buf_release(&storage);
    return code;
}

const struct command command_quantize = {
    "quantize", "IN OUT.gguf", "write a model in another format",
    "IN is a GGUF file (of split ones the first), a Hugging Face folder or a name of `tern list`. Types: F32, F16, "
    "BF16, Q8_0, Q6_K, Q5_K_M,\n"
    "Q5_K_S, Q5_1, Q5_0, Q4_K_M (default), Q4_K_S, IQ4_NL, IQ4_XS, Q4_1, Q4_0, Q3_K_L, Q3_K_M, Q3_K_S, Q2_K, and I8C\n"
    "(only tern reads it). Norms, convolution taps and vectors stay F32; the output matrix of 2- to 6-bit files is\n"
    "Q6_K (doc/quantize.md). The file appears when all of it is written.",
    quantize_main};
