// tern pull: a model from a Hugging Face hub into the shared cache, where tern and others find it.
#include "base/base.h"
#include "pull.h"

#include <stdio.h>

struct pull_opts {
    const char *revision;
    bool json;
    int n_tries;
};

static void file_told(const struct pull_file *f, const struct pull_result *g) {
    char size[24], from[24];
    struct buf b;
    buf_init(&b, 4096);
    str_put_escaped(&b, str_from(f->name), PULL_NAME_MAX);
    const char *name = b.data ? b.data : "";
    if (g->was_there)
        fprintf(stderr, "%s: there already (%s)\n", name, bytes_format(f->n_bytes, size));
    else if (g->resumed_from > 0)
        fprintf(stderr, "%s: %s, resumed at %s\n", name, bytes_format(f->n_bytes, size),
                bytes_format(g->resumed_from, from));
    else
        fprintf(stderr, "%s: %s\n", name, bytes_format(f->n_bytes, size));
    buf_release(&b);
}

static void text_put(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_str(w, str_from(value));
}
static void int_put(struct json_writer *w, const char *key, uint64_t value) {
    json_write_key(w, key);
    json_write_int(w, (int64_t)value);
}

static void file_json(struct json_writer *w, const struct pull_file *f, const struct pull_result *g) {
    json_write_object(w);
    text_put(w, "name", f->name);
    int_put(w, "bytes", f->n_bytes);
    text_put(w, "digest", f->oid);
    int_put(w, "bytes_fetched", g->n_fetched);
    int_put(w, "resumed_from", g->resumed_from);
    json_write_object_end(w);
}

struct told {
    struct json_writer files;
    struct buf json;
};

static void on_choice(void *arg, struct str tag, struct str others) {
    (void)arg;
    if (others.len > 0)
        fprintf(stderr, "tern pull: taking %.*s; there are also: %.*s\n", (int)tag.len, tag.data, (int)others.len,
                others.data);
}

static void on_file(void *arg, const struct pull_file *f, const struct pull_result *g) {
    struct told *t = arg;
    file_told(f, g);
    file_json(&t->files, f, g);
}

static void result_tell(const struct pull_job *j, const struct pull_opts *o, const struct told *t) {
    if (!o->json) {
        out_putf("%s\n", j->path.data);
        out_flush();
        fprintf(stderr, "ready: tern run -m %s \"…\"\n", j->name.data);
        return;
    }
    struct buf b;
    struct json_writer w;
    buf_init(&b, 16u << 20);
    json_write_init(&w, &b);
    json_write_object(&w);
    text_put(&w, "name", j->name.data);
    json_write_key(&w, "repository");
    json_write_str(&w, j->repo_id);
    text_put(&w, "revision", o->revision);
    text_put(&w, "commit", j->repo.commit);
    text_put(&w, "path", j->path.data);
    json_write_key(&w, "files");
    json_write_raw(&w, buf_str(&t->json));
    json_write_object_end(&w);
    buf_putc(&b, '\n');
    out_put(buf_str(&b));
    buf_release(&b);
}

static int pull_main(const struct command *c, int argc, char **argv) {
    struct pull_opts o = {.revision = "main", .n_tries = 5};
    const struct opt rows[] = {
        {"--revision", 0, "NAME", OPT_TEXT, &o.revision, 0, 0, "branch, tag or commit (default: main)"},
        {"--tries", 0, "N", OPT_INT, &o.n_tries, 1, 100, "requests in a row that bring nothing before it gives up (5)"},
        {"--json", 0, NULL, OPT_FLAG, &o.json, 0, 0, "one JSON object on what was pulled"},
        {0}};
    const struct opt *const tables[] = {rows, NULL};
    struct str id, tag;
    struct tern_err err = {0};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args != 1) return usage_error(c, "one model expected, as org/repo or org/repo:TAG");
    if (!pull_name_split(str_from(argv[1]), &id, &tag))
        return usage_error(c, "'%s' names no repository; expected org/repo or org/repo:TAG", argv[1]);
    if (!pull_revision_is_sound(str_from(o.revision))) return usage_error(c, "'%s' is no revision's name", o.revision);
    struct pull_job j;
    struct told told;
    const char *quiet = env_get("HF_HUB_DISABLE_PROGRESS_BARS");
    pull_job_init(&j, o.n_tries);
    j.revision = o.revision;
    j.watch = (struct pull_watch){
        .show = !quiet || strcmp(quiet, "0") == 0, .on_choice = on_choice, .on_file = on_file, .arg = &told};
    buf_init(&told.json, 8u << 20);
    json_write_init(&told.files, &told.json);
    json_write_array(&told.files);
    code = pull_job_run(&j, id, tag, &err) == TERN_OK ? EXIT_DONE : fail_told(c, &err);
    json_write_array_end(&told.files);
    if (code == EXIT_DONE) result_tell(&j, &o, &told);
    if (code != EXIT_DONE && (strstr(err.message, "resolve host") || strstr(err.message, "onnect to ")))
        fprintf(stderr, "(is this machine online? $HF_ENDPOINT names another hub, $HTTPS_PROXY a proxy)\n");
    pull_job_release(&j);
    buf_release(&told.json);
    return code;
}

const struct command command_pull = {
    "pull", "ORG/REPO[:TAG]", "download a model from a Hugging Face hub",
    "TAG is a quantisation (Q4_K_M) or the name of a GGUF file; without one: Q4_K_M, or what comes close; a "
    "repository\n"
    "without GGUF files is pulled as its safetensors. The files go into the Hugging Face cache (HF_HUB_CACHE, "
    "HF_HOME,\n"
    "~/.cache/huggingface), where other programs find them too. A download that was cut off goes on where it ended.\n"
    "stdout: the path of the model. Environment: HF_TOKEN or HF_TOKEN_PATH (for private and gated models), "
    "HF_ENDPOINT\n"
    "(a mirror), HF_HUB_OFFLINE, HF_HUB_DISABLE_PROGRESS_BARS.",
    pull_main};
