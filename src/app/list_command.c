// tern list: the models of other programs' stores that tern can open in place. Each is opened far enough to check its
// header; weights are not read.
#include "base/base.h"
#include "model/model.h"
#include "app/store/store.h"

#include <stdio.h>

struct found { // what the file itself says
    char architecture[64], format[16];
    uint64_t n_params;
    char fault[TERN_ERR_MESSAGE_MAX];
};

static void architecture_take(void *arg, const char *key, const char *type, const char *value) {
    struct found *f = arg;
    (void)type;
    if (strcmp(key, "general.architecture") == 0 || strcmp(key, "model_type") == 0)
        snprintf(f->architecture, sizeof f->architecture, "%s", value);
}

static void entry_look(const struct store_entry *e, struct found *f) {
    struct tern_err err = {0};
    struct model *m;
    *f = (struct found){0};
    if (e->fault || !e->path) {
        snprintf(f->fault, sizeof f->fault, "%s", e->fault ? e->fault : "nothing to open");
        return;
    }
    if (model_open(&m, e->path, &err) != TERN_OK) {
        // The path is told beside it already.
        const char *text = err.message;
        const size_t n = strlen(e->path);
        if (strncmp(text, e->path, n) == 0 && text[n] == ':') text += n + 2;
        snprintf(f->fault, sizeof f->fault, "%s", text);
        if (model_open_table(&m, e->path, NULL) != TERN_OK) return;
        model_meta_each(m, architecture_take, f);
    } else {
        snprintf(f->architecture, sizeof f->architecture, "%s", m->arch_name);
    }
    snprintf(f->format, sizeof f->format, "%s", format_table[m->format_main].name);
    f->n_params = m->n_params;
    model_close(m);
}

static void escaped_put(const char *z, size_t max) {
    struct buf b;
    buf_init(&b, 8192);
    str_put_escaped(&b, str_from(z), max);
    out_puts(b.data ? b.data : "");
    buf_release(&b);
}

static void row_print(const struct store_entry *e, const struct found *f) {
    char size[24];
    out_puts("  ");
    escaped_put(e->name, 200);
    for (size_t i = strlen(e->name); i < 52; i++) out_puts(" ");
    out_putf(" %10s  %-10s %-7s", bytes_format(e->n_bytes, size), f->architecture[0] ? f->architecture : "-",
             f->format[0] ? f->format : "-");
    if (f->fault[0]) {
        out_puts("  unusable: ");
        escaped_put(f->fault, 300);
    } else if (e->note[0]) {
        out_putf("  (%s)", e->note);
    }
    out_puts("\n");
}

static void text_or_null(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    if (value && value[0])
        json_write_str(w, str_from(value));
    else
        json_write_null(w);
}

static void row_json(struct json_writer *w, const struct store_entry *e, const struct found *f) {
    json_write_object(w);
    json_write_key(w, "name");
    json_write_str(w, str_from(e->name));
    json_write_key(w, "store");
    json_write_str(w, str_from(store_names[e->kind]));
    text_or_null(w, "path", e->path);
    json_write_key(w, "bytes");
    json_write_int(w, (int64_t)MIN(e->n_bytes, (uint64_t)INT64_MAX));
    text_or_null(w, "architecture", f->architecture);
    text_or_null(w, "format", f->format);
    json_write_key(w, "parameters");
    json_write_int(w, (int64_t)MIN(f->n_params, (uint64_t)INT64_MAX));
    json_write_key(w, "usable");
    json_write_bool(w, !f->fault[0]);
    text_or_null(w, "reason", f->fault);
    text_or_null(w, "note", e->note);
    json_write_object_end(w);
}

static void list_json(const struct store_list *l) {
    struct buf b;
    struct json_writer w;
    buf_init(&b, 64u << 20);
    json_write_init(&w, &b);
    json_write_array(&w);
    for (int i = 0; i < l->n; i++) {
        struct found f;
        entry_look(&l->entries[i], &f);
        row_json(&w, &l->entries[i], &f);
    }
    json_write_array_end(&w);
    buf_putc(&b, '\n');
    out_put(buf_str(&b));
    buf_release(&b);
}

static void list_text(const struct store_list *l) {
    int kind = -1;
    for (int i = 0; i < l->n; i++) {
        struct found f;
        if ((int)l->entries[i].kind != kind) {
            kind = (int)l->entries[i].kind;
            out_putf("%s:\n", store_titles[kind]);
        }
        entry_look(&l->entries[i], &f);
        row_print(&l->entries[i], &f);
    }
    if (l->n == 0) out_puts("no models in the Hugging Face cache, Ollama's store or LM Studio's folder\n");
}

static int list_main(const struct command *c, int argc, char **argv) {
    bool json = false;
    const struct opt rows[] = {{"--json", 0, NULL, OPT_FLAG, &json, 0, 0, "one JSON array"}, {0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(c, "no arguments expected");
    struct store_list l;
    struct tern_err err = {0};
    if (store_scan(&l, &err) != TERN_OK) return fail_told(c, &err);
    if (l.notes.len > 0) fprintf(stderr, "%s", l.notes.data);
    if (json)
        list_json(&l);
    else
        list_text(&l);
    store_list_release(&l);
    return EXIT_DONE;
}

const struct command command_list = {
    "list", "", "models of other programs on this machine",
    "The names shown can be given wherever a model is: `tern run -m NAME`. Looked at: the Hugging Face cache\n"
    "(HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface), Ollama's store (OLLAMA_MODELS, ~/.ollama/models,\n"
    "/usr/share/ollama/.ollama/models), LM Studio's folder (~/.lmstudio/models, ~/.cache/lm-studio/models).",
    list_main};
