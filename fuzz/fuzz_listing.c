// A hub's listing of a repository: whatever the bytes, names stay inside the repository, digests are hexadecimal, and
// what is chosen is there.
#include "base/base.h"
#include "app/pull/pull.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const tags[] = {"", "Q4_0", "a.gguf"};
    struct pull_repo r = {.id = "org/repo"};
    struct tern_err err = {0};
    const enum tern_status status = pull_listing_parse(&r, (struct str){(const char *)data, size}, &err);
    if (status != TERN_OK && err.message[0] == 0) TERN_BUG("an error without a message");
    for (int i = 0; status == TERN_OK && i < r.n; i++) {
        const struct pull_file *f = &r.files[i];
        if (f->name[0] == '/' || strstr(f->name, "../")) TERN_BUG("a file named %s", f->name);
        if (strspn(f->oid, "0123456789abcdef") != strlen(f->oid) || (strlen(f->oid) != 64 && strlen(f->oid) != 40))
            TERN_BUG("a digest %s", f->oid);
    }
    for (size_t k = 0; status == TERN_OK && k < ARRAY_LEN(tags); k++) {
        struct str chosen;
        int first, n_wanted = 0;
        if (pull_choose(&r, str_from(tags[k]), &chosen, &first, NULL, &err) != TERN_OK) continue;
        for (int i = 0; i < r.n; i++) n_wanted += r.files[i].is_wanted;
        if (n_wanted == 0 || first >= r.n || (first >= 0 && !r.files[first].is_wanted)) TERN_BUG("chosen: nothing");
        for (int i = 0; i < r.n; i++) r.files[i].is_wanted = false;
    }
    pull_repo_release(&r);
    return 0;
}
