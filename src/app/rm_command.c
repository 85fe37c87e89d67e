// tern rm: a model out of the Hugging Face cache.
#include "base/base.h"
#include "app/store/store.h"

static int rm_main(const struct command *c, int argc, char **argv) {
    bool whole = false, dry = false, json = false;
    const struct opt rows[] = {
        {"--all", 0, NULL, OPT_FLAG, &whole, 0, 0, "everything of the repository, unfinished downloads too"},
        {"--dry-run", 'n', NULL, OPT_FLAG, &dry, 0, 0, "only say what would go"},
        {"--json", 0, NULL, OPT_FLAG, &json, 0, 0, "one JSON object"},
        {0}};
    const struct opt *const tables[] = {rows, NULL};
    struct store_removed removed;
    struct tern_err err = {0};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args != 1) return usage_error(c, "one model expected, as `tern list` names it");
    if (store_remove(argv[1], whole, dry, &removed, &err) != TERN_OK) return fail_told(c, &err);
    struct buf b;
    char size[24];
    buf_init(&b, 8192);
    if (json) {
        struct json_writer w;
        json_write_init(&w, &b);
        json_write_object(&w);
        json_write_key(&w, "name");
        json_write_str(&w, str_from(removed.name));
        json_write_key(&w, "bytes_freed");
        json_write_int(&w, (int64_t)removed.n_bytes);
        json_write_key(&w, "removed");
        json_write_bool(&w, !dry);
        json_write_object_end(&w);
    } else {
        str_put_escaped(&b, str_from(removed.name), sizeof removed.name);
        buf_putf(&b, ": %s %s", bytes_format(removed.n_bytes, size), dry ? "would be freed" : "freed");
    }
    buf_putc(&b, '\n');
    out_put(buf_str(&b));
    buf_release(&b);
    return EXIT_DONE;
}

const struct command command_rm = {"rm", "NAME", "remove a model from the Hugging Face cache",
                                   "NAME as `tern list` shows it. Only what no other model uses is removed. Models of "
                                   "Ollama and LM Studio are removed\n"
                                   "by these programs.",
                                   rm_main};
