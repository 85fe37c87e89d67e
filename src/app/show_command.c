// tern show: what a model file holds, after all its checks.
#include "base/base.h"
#include "app.h"
#include "model/model.h"

static void meta_print(void *arg, const char *key, const char *type, const char *value) {
    (void)arg;
    out_putf("  %-44s %-10s %s\n", key, type, value);
}

static void tensors_print(const struct model *m) {
    out_putf("tensors: %d\n", m->n_tensors);
    for (int i = 0; i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        struct buf name;
        buf_init(&name, 4096);
        str_put_escaped(&name, t->name, 512);
        char size[24];
        out_putf("  %-44s %-5s [", name.data ? name.data : "", format_table[t->format].name);
        for (int d = t->n_dims - 1; d >= 0; d--) out_putf("%lld%s", (long long)t->ne[d], d > 0 ? ", " : "]");
        out_putf("  %s\n", bytes_format(t->n_bytes, size));
        buf_release(&name);
    }
}

static void hyper_print(const struct model *m) {
    const struct model_hyper *h = &m->hyper;
    char size[24];
    int n_conv = 0;
    for (int i = 0; i < h->n_layers; i++) n_conv += m->layers[i].kind == LAYER_CONV;
    out_putf("name          %s\narchitecture  %s\nparameters    %.1f M (%s, mostly %s)\n", m->name, m->arch_name,
             (double)m->n_params / 1e6, bytes_format(m->n_bytes_file, size), format_table[m->format_main].name);
    out_putf("layers        %d (%d attention, %d convolution)\n", h->n_layers, h->n_layers - n_conv, n_conv);
    out_putf("width         %d, feed-forward %d\nheads         %d query, %d key/value, of %d\n", h->n_embd, h->n_ff,
             h->n_head, h->n_head_kv, h->head_dim);
    if (h->n_expert > 0)
        out_putf("experts       %d of %d for each token, feed-forward %d\n", h->n_expert_used, h->n_expert,
                 h->n_ff_expert);
    out_putf("vocabulary    %d rows, %d used\ncontext       %d\nidentity      %.16s\n", h->n_vocab, h->n_vocab_used,
             h->n_ctx, m->digest);
    if (m->warning.len) out_putf("note          %.*s\n", (int)m->warning.len, m->warning.data);
}

static int show_main(const struct command *c, int argc, char **argv) {
    bool all = false;
    const struct opt rows[] = {{"--all", 'a', NULL, OPT_FLAG, &all, 0, 0, "the metadata and every tensor too"}, {0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    const char *path = n_args == 1 ? argv[1] : NULL;
    if (!path && n_args == 0) path = env_get("TERN_MODEL");
    if (n_args > 1) return usage_error(c, "one model expected: a GGUF file or a Hugging Face folder");
    struct str data = {0};
    struct buf storage;
    code = model_path_told(c, &path, &storage);
    if (code != 0) return buf_release(&storage), code;
    if (!path) data = builtin_model(&path);
    struct tern_err err = {0};
    struct model *m;
    // Weights alone, without the config.json that says what they are, still have a table to show.
    struct tern_err table_err = {0};
    enum tern_status status =
        data.data ? model_open_memory(&m, "pico", data.data, data.len, &err) : model_open(&m, path, &err);
    if (status != TERN_OK && !data.data && str_ends(str_from(path), STR(".safetensors")))
        status = model_open_table(&m, path, &table_err);
    buf_release(&storage);
    if (status != TERN_OK) return fail_told(c, table_err.code != TERN_OK ? &table_err : &err);
    if (m->arch) hyper_print(m);
    if (all || !m->arch) {
        out_puts("metadata:\n");
        model_meta_each(m, meta_print, NULL);
        tensors_print(m);
    }
    model_close(m);
    return EXIT_DONE;
}

const struct command command_show = {"show", "[MODEL]", "what a model file holds", NULL, show_main};
