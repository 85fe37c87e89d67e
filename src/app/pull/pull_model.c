// A model from a hub into the cache, whoever asks for it: what is asked of the hub in which order, and what must hold
// before a name says that it is there.
#include "base/base.h"
#include "pull.h"

#include <stdio.h>

#define SPARE_BYTES (64u << 20) // left free on the disk

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

// Every file that was asked for; then the models of this listing that lie in the cache from before, so that moving the
// branch's mark to this revision loses none of them.
static enum tern_status files_get(struct pull_job *j, struct tern_err *err) {
    enum tern_status status;
    for (int i = 0; i < j->repo.n; i++) {
        const struct pull_file *f = &j->repo.files[i];
        struct pull_result g;
        if (!f->is_wanted) continue;
        TRY(pull_file_get(&j->hub, &j->repo, &j->place, f, &j->watch, &g, err));
        if (j->watch.on_file) j->watch.on_file(j->watch.arg, f, &g);
    }
    for (int i = 0; i < j->repo.n; i++)
        if (!j->repo.files[i].is_wanted && store_is_gguf(str_from(j->repo.files[i].name)) &&
            pull_file_link(&j->place, &j->repo.files[i], &status, err) && status != TERN_OK)
            return status;
    return TERN_OK;
}

// refs/<revision> holds the commit; last, so that what it names is whole.
static enum tern_status ref_write(const struct pull_job *j, struct tern_err *err) {
    char refs[STORE_PATH_MAX], path[STORE_PATH_MAX];
    if (strcmp(j->revision, j->repo.commit) == 0) return TERN_OK;
    if (!store_join(refs, j->place.repo, "refs") || !store_join(path, refs, j->revision))
        return err_set(err, TERN_LIMIT, "the revision's name is too long");
    char *slash = strrchr(path, '/');
    *slash = 0;
    TRY(os_mkdirs(path, err));
    if (!store_holds(j->place.repo, path))
        return err_set(err, TERN_INVALID_ARGUMENT, "'%s' is a link out of the cache", path);
    *slash = '/';
    return file_write_atomic(path, j->repo.commit, strlen(j->repo.commit), err);
}

bool pull_revision_is_sound(struct str s) { return pull_file_name_is_sound(s) && s.len < 200 && s.data[0] != '-'; }

void pull_job_init(struct pull_job *j, int n_tries) {
    *j = (struct pull_job){.revision = "main", .n_tries = n_tries, .first = -1};
    buf_init(&j->name, 1024);
    buf_init(&j->path, 2 * STORE_PATH_MAX);
}

void pull_job_release(struct pull_job *j) {
    pull_repo_release(&j->repo);
    buf_release(&j->name);
    buf_release(&j->path);
}

enum tern_status pull_job_run(struct pull_job *j, struct str id, struct str tag, struct tern_err *err) {
    struct buf id_text, others;
    enum tern_status status;
    buf_init(&id_text, 512);
    buf_init(&others, 8192);
    buf_put(&id_text, id.data, id.len);
    j->repo.id = id_text.data;
    TRY_GOTO(pull_hub_init(&j->hub, err), done);
    j->hub.n_tries = j->n_tries;
    j->hub.go_on = j->watch.go_on;
    j->hub.go_on_arg = j->watch.arg;
    TRY_GOTO(pull_listing_get(&j->repo, &j->hub, j->revision, err), done);
    TRY_GOTO(pull_choose(&j->repo, tag, &j->tag, &j->first, &others, err), done);
    if (j->watch.on_choice) j->watch.on_choice(j->watch.arg, j->tag, buf_str(&others));
    TRY_GOTO(pull_place_make(&j->place, &j->repo, err), done);
    TRY_GOTO(space_check(&j->repo, &j->place, err), done);
    TRY_GOTO(files_get(j, err), done);
    TRY_GOTO(ref_write(j, err), done);
    char path[STORE_PATH_MAX];
    if (j->first < 0 || !store_join(path, j->place.snapshot, j->repo.files[j->first].name))
        snprintf(path, sizeof path, "%s", j->place.snapshot);
    buf_puts(&j->path, path);
    buf_putf(&j->name, "%s%s%.*s", j->repo.id, j->tag.len ? ":" : "", (int)j->tag.len, j->tag.data);
    j->repo_id = (struct str){j->name.data, id.len};
done:
    j->repo.id = NULL; // its text ends here
    buf_release(&id_text);
    buf_release(&others);
    return status;
}
