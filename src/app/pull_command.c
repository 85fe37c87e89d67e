// tern pull: a model from a Hugging Face hub into the shared cache, where tern and others find it.
#include "base/base.h"
#include "pull.h"

#include <stdio.h>

#define SPARE_BYTES (64u << 20) // left free on the disk

struct pull_opts {
    const char *revision;
    bool json;
    int n_tries;
};

static bool revision_is_sound(struct str s) { return pull_file_name_is_sound(s) && s.len < 200 && s.data[0] != '-'; }

static enum tern_status space_check(const struct pull_repo *r, const struct pull_place *p, struct tern_err *err) {
    uint64_t missing = 0;
    char need[24], has[24];
    for (int i = 0; i < r->n; i++)
        if (r->files[i].is_wanted && !u64_add(missing, pull_file_missing(p, &r->files[i]), &missing))
            return err_set(err, TERN_BAD_FORMAT, "%s: the sizes of its files are no sizes", r->id);
    const uint64_t free_bytes = os_disk_free(p->root);
    if (missing == 0 || free_bytes == UINT64_MAX || missing + SPARE_BYTES <= free_bytes) return TERN_OK;
    return err_set(
        err, TERN_NO_SPACE,
        "%s: %s are to come, and %s are free in %s; make room (`tern rm`) or set HF_HUB_CACHE to another disk", r->id,
        bytes_format(missing, need), bytes_format(free_bytes, has), p->root);
}

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

struct pull_job {
    const struct command *command;
    const struct pull_opts *o;
    struct pull_hub hub;
    struct pull_repo repo;
    struct pull_place place;
    struct str tag;
    int first;
    struct buf name; // "org/repo:TAG", as `tern run -m` takes it
    struct buf json; // the files
};

// Every file that was asked for; then the models of this listing that lie in the cache from before, so that moving the
// branch's mark to this revision loses none of them.
static enum tern_status files_get(struct pull_job *j, struct tern_err *err) {
    const char *quiet = env_get("HF_HUB_DISABLE_PROGRESS_BARS");
    const bool show = !quiet || strcmp(quiet, "0") == 0;
    struct json_writer w;
    enum tern_status status;
    json_write_init(&w, &j->json);
    json_write_array(&w);
    for (int i = 0; i < j->repo.n; i++) {
        const struct pull_file *f = &j->repo.files[i];
        struct pull_result g;
        if (!f->is_wanted) continue;
        TRY(pull_file_get(&j->hub, &j->repo, &j->place, f, show, &g, err));
        file_told(f, &g);
        file_json(&w, f, &g);
    }
    json_write_array_end(&w);
    for (int i = 0; i < j->repo.n; i++)
        if (!j->repo.files[i].is_wanted && store_is_gguf(str_from(j->repo.files[i].name)) &&
            pull_file_link(&j->place, &j->repo.files[i], &status, err) && status != TERN_OK)
            return status;
    return TERN_OK;
}

// refs/<revision> holds the commit; last, so that what it names is whole.
static enum tern_status ref_write(const struct pull_job *j, struct tern_err *err) {
    char refs[STORE_PATH_MAX], path[STORE_PATH_MAX];
    if (strcmp(j->o->revision, j->repo.commit) == 0) return TERN_OK;
    if (!store_join(refs, j->place.repo, "refs") || !store_join(path, refs, j->o->revision))
        return err_set(err, TERN_LIMIT, "the revision's name is too long");
    char *slash = strrchr(path, '/');
    *slash = 0;
    TRY(os_mkdirs(path, err));
    if (!store_holds(j->place.repo, path))
        return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is a link out of the cache", path);
    *slash = '/';
    return file_write_atomic(path, j->repo.commit, strlen(j->repo.commit), err);
}

static void result_tell(const struct pull_job *j) {
    char path[STORE_PATH_MAX];
    if (j->first < 0 || !store_join(path, j->place.snapshot, j->repo.files[j->first].name))
        snprintf(path, sizeof path, "%s", j->place.snapshot);
    if (!j->o->json) {
        out_putf("%s\n", path);
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
    text_put(&w, "repository", j->repo.id);
    text_put(&w, "revision", j->o->revision);
    text_put(&w, "commit", j->repo.commit);
    text_put(&w, "path", path);
    json_write_key(&w, "files");
    json_write_raw(&w, buf_str(&j->json));
    json_write_object_end(&w);
    buf_putc(&b, '\n');
    out_put(buf_str(&b));
    buf_release(&b);
}

static enum tern_status pull_run(struct pull_job *j, struct str id, struct str tag, struct tern_err *err) {
    struct buf id_text, others;
    enum tern_status status;
    buf_init(&id_text, 512);
    buf_init(&others, 8192);
    buf_put(&id_text, id.data, id.len);
    j->repo.id = id_text.data;
    TRY_GOTO(pull_hub_init(&j->hub, err), done);
    j->hub.n_tries = j->o->n_tries;
    TRY_GOTO(pull_listing_get(&j->repo, &j->hub, j->o->revision, err), done);
    TRY_GOTO(pull_choose(&j->repo, tag, &j->tag, &j->first, &others, err), done);
    if (others.len > 0)
        fprintf(stderr, "tern pull: taking %.*s; there are also: %s\n", (int)j->tag.len, j->tag.data, others.data);
    TRY_GOTO(pull_place_make(&j->place, &j->repo, err), done);
    TRY_GOTO(space_check(&j->repo, &j->place, err), done);
    TRY_GOTO(files_get(j, err), done);
    TRY_GOTO(ref_write(j, err), done);
    buf_putf(&j->name, "%s%s%.*s", j->repo.id, j->tag.len ? ":" : "", (int)j->tag.len, j->tag.data);
    result_tell(j);
done:
    buf_release(&id_text);
    buf_release(&others);
    return status;
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
    if (!revision_is_sound(str_from(o.revision))) return usage_error(c, "'%s' is no revision's name", o.revision);
    struct pull_job j = {.command = c, .o = &o, .first = -1};
    buf_init(&j.name, 1024);
    buf_init(&j.json, 8u << 20);
    code = pull_run(&j, id, tag, &err) == TERN_OK ? EXIT_DONE : fail_told(c, &err);
    if (code != EXIT_DONE && (strstr(err.message, "resolve host") || strstr(err.message, "onnect to ")))
        fprintf(stderr, "(is this machine online? $HF_ENDPOINT names another hub, $HTTPS_PROXY a proxy)\n");
    pull_repo_release(&j.repo);
    buf_release(&j.name);
    buf_release(&j.json);
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
