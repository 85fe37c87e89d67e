// tern cache: the packed weights kept on disk.
#include "base/base.h"
#include "app.h"
#include "unit/unit.h"

#include <stdio.h>

struct cache_sum {
    uint64_t bytes;
    int n, n_unsound;
};

static void entry_print(void *arg, const struct pack_cache_entry *e) {
    struct cache_sum *sum = arg;
    char size[24], when[32];
    if (clock_format(when, sizeof when, "%Y-%m-%d %H:%M", e->used_wall_s) == 0) when[0] = 0;
    out_putf("%-12s %-16s %-24s %s%s%s\n", bytes_format(e->bytes, size), when, e->model, e->file,
             e->sound ? "" : "  BROKEN: ", e->fault);
    sum->bytes += e->bytes;
    sum->n++;
    sum->n_unsound += !e->sound;
}

static int cache_main(const struct command *c, int argc, char **argv) {
    uint64_t keep = 0;
    const struct opt rows[] = {
        {"--keep", 0, "BYTES", OPT_U64, &keep, 0, 9e18, "prune: leave at most this much (default 0: all goes)"}, {0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    const char *what = n_args > 0 ? argv[1] : "list";
    if (n_args > 1) return usage_error(c, "one of list, prune, verify expected");
    struct tern_err err = {0};
    struct cache_sum sum = {0};
    enum tern_status status;
    char size[24];
    if (strcmp(what, "list") == 0 || strcmp(what, "verify") == 0)
        status = pack_cache_list(entry_print, &sum, what[0] == 'v', &err);
    else if (strcmp(what, "prune") == 0)
        status = pack_cache_prune(keep, entry_print, &sum, &err);
    else
        return usage_error(c, "one of list, prune, verify expected, not '%s'", what);
    if (status != TERN_OK) return fail_told(c, &err);
    out_putf("%d file(s), %s%s\n", sum.n, bytes_format(sum.bytes, size), what[0] == 'p' ? " removed" : "");
    return what[0] == 'v' && sum.n_unsound > 0 ? EXIT_FAILED : EXIT_DONE;
}

const struct command command_cache = {"cache", "[list|prune|verify]", "packed weights kept on disk", NULL, cache_main};
