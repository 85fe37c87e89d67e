// tern batch: options and actions.
#include "base/base.h"
#include "batch.h"

static const char *const help_text =
    "INPUT has a request a line, as in OpenAI's batches: {\"custom_id\": \"a\", \"method\": \"POST\", \"url\":\n"
    "\"/v1/chat/completions\", \"body\": {…}}; urls are those of tern serve under /v1/. The file of --output gets a "
    "result\n"
    "a line, in the order in which they come, each exactly once and synced before it counts. A run that ended, however "
    "it\n"
    "ended, is gone on with by the same command; the same custom_id with the same url and body is the same request.\n"
    "\n"
    "Over many machines, through a Redis server (6.2 or newer):\n"
    "    tern batch submit --redis redis://HOST --name NAME INPUT       any number of times\n"
    "    tern batch work --redis redis://HOST --name NAME               on each machine, with the model's options\n"
    "    tern batch collect --redis redis://HOST --name NAME -o OUT     waits for all results\n"
    "    tern batch status|remove --redis redis://HOST --name NAME\n"
    "Workers may end at any point: what they held goes to others after --lease seconds (doc/batch.md).";

#define BATCH_OPTS_N 10
static void opts_table(struct batch_opts *o, struct opt table[BATCH_OPTS_N]) {
    const struct opt rows[] = {
        {"--output", 'o', "FILE", OPT_TEXT, &o->output, 0, 0, "results; those in it are not made again"},
        {"--streams", 0, "N", OPT_INT, &o->n_streams, 1, TERN_STREAMS_MAX, "answers made together (default 8)"},
        {"--alias", 0, "NAME", OPT_TEXTS, &o->aliases, 0, 0, "another name of the model (may be repeated)"},
        {"--redis", 0, "URL", OPT_TEXT, &o->redis, 0, 0,
         "the server: redis://[user:password@]host[:port][/db], unix:///path"},
        {"--name", 0, "NAME", OPT_TEXT, &o->name, 0, 0, "of the batch in Redis"},
        {"--lease", 0, "S", OPT_FLOAT, &o->lease_s, 0.1, 86400,
         "work: seconds without a sign of life until others take a worker's requests (default 30)"},
        {"--once", 0, NULL, OPT_FLAG, &o->once, 0, 0, "work: end when all that was submitted has results"},
        {"--no-wait", 0, NULL, OPT_FLAG, &o->no_wait, 0, 0, "collect: only what is there"},
        {"--json", 0, NULL, OPT_FLAG, &o->json, 0, 0, "counts as one JSON object on stdout"},
        {0}};
    _Static_assert(ARRAY_LEN(rows) <= BATCH_OPTS_N, "a row more than the table holds");
    memcpy(table, rows, sizeof rows);
}

enum { WANTS_INPUT = 1, WANTS_OUTPUT = 2, WANTS_REDIS = 4 };

static int action_run(const struct command *c, struct batch_opts *o, int n_args, char **argv) {
    static const struct {
        const char *name;
        int wants;
    } actions[] = {{"run", WANTS_INPUT | WANTS_OUTPUT},
                   {"submit", WANTS_INPUT | WANTS_REDIS},
                   {"work", WANTS_REDIS},
                   {"collect", WANTS_OUTPUT | WANTS_REDIS},
                   {"status", WANTS_REDIS},
                   {"remove", WANTS_REDIS}};
    int k = 0, first = 1;
    for (int i = 1; i < (int)ARRAY_LEN(actions) && n_args > 0; i++)
        if (strcmp(argv[1], actions[i].name) == 0) k = i, first = 2;
    int wants = actions[k].wants, n = n_args - (first - 1);
    if (n != ((wants & WANTS_INPUT) ? 1 : 0))
        return usage_error(c, "%s%s", k > 0 ? actions[k].name : "a batch",
                           (wants & WANTS_INPUT) ? " wants one file of requests" : " wants no file of requests");
    if ((wants & WANTS_OUTPUT) && !o->output) return usage_error(c, "--output is missing: the file of results");
    if ((wants & WANTS_REDIS) && (!o->redis || !o->name)) return usage_error(c, "%s wants --redis and --name", argv[1]);
    if (!(wants & WANTS_REDIS) && (o->redis || o->name))
        return usage_error(c, "with --redis say what: submit, work, collect, status or remove");
    switch (k) {
    case 1: return batch_submit(c, o, argv[first]);
    case 2: return batch_work(c, o);
    case 3: return batch_collect(c, o);
    case 4: return batch_status(c, o);
    case 5: return batch_remove(c, o);
    default: return batch_run(c, o, argv[first]);
    }
}

static int batch_main(const struct command *c, int argc, char **argv) {
    struct batch_opts o = {.n_streams = 8, .lease_s = 30};
    model_opts_init(&o.model);
    sample_opts_init(&o.sample);
    struct opt rows[BATCH_OPTS_N], model_rows[MODEL_OPTS_N], sample_rows[SAMPLE_OPTS_N];
    opts_table(&o, rows);
    model_opts_table(&o.model, model_rows);
    sample_opts_table(&o.sample, sample_rows);
    const struct opt *const tables[] = {rows, sample_rows, model_rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    sample_opts_apply(&o.sample);
    return action_run(c, &o, n_args, argv);
}

const struct command command_batch = {"batch", "INPUT | submit INPUT | work | collect | status | remove",
                                      "answer a file of requests, here or on many machines", help_text, batch_main};
