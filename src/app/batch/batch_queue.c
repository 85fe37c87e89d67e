// A batch in Redis, under keys that share the slot {NAME}:
//
//   tern:batch:{NAME}:ids      hash    custom_id → digest: what was submitted
//   tern:batch:{NAME}:jobs     stream  the requests' lines; group "workers"
//   tern:batch:{NAME}:done     hash    custom_id → 1: has its result
//   tern:batch:{NAME}:results  list    the results' lines, in the order in which they came
//
// What must not come apart is one script: a request is in `ids` exactly when it was put into the stream once, and the
// first result of a custom_id is the only one. A delivery stays with its worker until the result is in (at least once);
// a worker that stops giving signs of life loses it to another. All calls may be repeated when a connection broke
// before the answer: nothing happens twice. Commands of Redis 6.2 and newer.
#include "base/base.h"
#include "batch.h"

#include <stdio.h>

#define NAME_MAX_LEN 64
#define CLAIM_MAX 128
#define RETRY_S 0.5

enum queue_key { KEY_IDS, KEY_JOBS, KEY_DONE, KEY_RESULTS, N_KEYS };
struct batch_queue {
    struct net_redis *r;
    char keys[N_KEYS][NAME_MAX_LEN + 32];
    char worker[32];
    bool is_joined;
    double patience_s;
    bool told; // that the connection is gone
};

static const char add_script[] = "local old = redis.call('HGET', KEYS[1], ARGV[1]) "
                                 "if old then return old == ARGV[2] and 0 or -1 end "
                                 "redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) "
                                 "redis.call('XADD', KEYS[2], '*', 'line', ARGV[3]) return 1";
static const char finish_script[] = "if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then return -1 end "
                                    "local new = redis.call('HSETNX', KEYS[3], ARGV[2], 1) "
                                    "if new == 1 then redis.call('RPUSH', KEYS[4], ARGV[3]) end "
                                    "redis.call('XACK', KEYS[2], 'workers', ARGV[1]) "
                                    "redis.call('XDEL', KEYS[2], ARGV[1]) return new";
// Only what is still this worker's.
static const char beat_script[] = "local n = 0 for i = 3, #ARGV do "
                                  "if #redis.call('XPENDING', KEYS[2], 'workers', ARGV[i], ARGV[i], 1, ARGV[1]) == 1 "
                                  "then redis.call('XCLAIM', KEYS[2], 'workers', ARGV[1], 0, ARGV[i], 'IDLE', ARGV[2], "
                                  "'JUSTID') n = n + 1 end end return n";
// A consumer is deleted with what it holds: never while it holds something.
static const char leave_script[] =
    "if #redis.call('XPENDING', KEYS[2], 'workers', '-', '+', 1, ARGV[1]) > 0 then return 0 end "
    "return redis.call('XGROUP', 'DELCONSUMER', KEYS[2], 'workers', ARGV[1])";

static bool name_check(const char *name) {
    size_t len = strlen(name);
    for (const char *p = name; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9') || strchr("._-", *p)))
            return false;
    return len > 0 && len <= NAME_MAX_LEN;
}

enum tern_status batch_queue_open(struct batch_queue **out, const char *url, const char *name, struct tern_err *err) {
    static const char *const kinds[N_KEYS] = {"ids", "jobs", "done", "results"};
    if (!name_check(name))
        return err_set(err, TERN_INVALID_ARGUMENT,
                       "a batch's name has 1 to %d letters, digits, '.', '_', '-', not '%.80s'", NAME_MAX_LEN, name);
    struct batch_queue *q = mem_calloc(1, sizeof *q);
    if (!q) return err_set(err, TERN_NO_MEMORY, "no memory for a queue");
    for (int i = 0; i < N_KEYS; i++) snprintf(q->keys[i], sizeof q->keys[i], "tern:batch:{%s}:%s", name, kinds[i]);
    uint8_t random[8];
    os_random(random, sizeof random);
    snprintf(q->worker, sizeof q->worker, "worker-");
    for (size_t i = 0; i < sizeof random; i++) snprintf(q->worker + 7 + 2 * i, 3, "%02x", random[i]);
    q->patience_s = 30;
    enum tern_status status = net_redis_open(&q->r, url, err);
    if (status == TERN_OK)
        *out = q;
    else
        batch_queue_close(q);
    return status;
}

void batch_queue_close(struct batch_queue *q) {
    if (!q) return;
    net_redis_close(q->r);
    mem_free(q);
}

void batch_queue_patience(struct batch_queue *q, double seconds) { q->patience_s = seconds; }

// A command, repeated while the connection is gone.
static enum tern_status say(struct batch_queue *q, const struct str *words, int n, double wait_s,
                            const struct net_reply **reply, struct tern_err *err) {
    uint64_t begin = clock_ns();
    for (;;) {
        enum tern_status status = net_redis_command(q->r, words, n, wait_s, reply, err);
        if (status != TERN_IO) {
            if (q->told) fprintf(stderr, "tern batch: Redis is back\n");
            q->told = false;
            return status;
        }
        bool over = q->patience_s >= 0 && (double)(clock_ns() - begin) * 1e-9 > q->patience_s;
        if (over || net_terminate_wait(0, RETRY_S) > 0) return status;
        if (!q->told) fprintf(stderr, "tern batch: %s; trying again\n", err->message);
        q->told = true;
    }
}

static enum tern_status script_say(struct batch_queue *q, const char *script, const struct str *args, int n,
                                   int64_t *result, struct tern_err *err) {
    struct str words[NET_REDIS_WORDS_MAX];
    int k = 0;
    words[k++] = STR("EVAL");
    words[k++] = str_from(script);
    words[k++] = STR("4");
    for (int i = 0; i < N_KEYS; i++) words[k++] = str_from(q->keys[i]);
    TERN_ASSERT(k + n <= NET_REDIS_WORDS_MAX);
    for (int i = 0; i < n; i++) words[k++] = args[i];
    const struct net_reply *reply;
    TRY(say(q, words, k, 0, &reply, err));
    *result = net_reply_int(reply);
    return TERN_OK;
}

enum tern_status batch_queue_add(struct batch_queue *q, const struct batch_request *r, struct str line, bool *is_new,
                                 struct tern_err *err) {
    const struct str args[] = {str_from(r->custom_id), str_from(r->digest), line};
    int64_t result = 0;
    TRY(script_say(q, add_script, args, 3, &result, err));
    *is_new = result == 1;
    if (result >= 0) return TERN_OK;
    return err_set(err, TERN_MISMATCH, "the batch has another request under the custom_id '%.60s'", r->custom_id);
}

// ------------------------------------------------------------------------------------------------------------- workers

static enum tern_status join(struct batch_queue *q, struct tern_err *err) {
    if (q->is_joined) return TERN_OK;
    const struct str words[] = {STR("XGROUP"),  STR("CREATE"), str_from(q->keys[KEY_JOBS]),
                                STR("workers"), STR("0"),      STR("MKSTREAM")};
    const struct net_reply *reply;
    enum tern_status status = say(q, words, ARRAY_LEN(words), 0, &reply, err);
    q->is_joined = status == TERN_OK || status == TERN_MISMATCH; // the group was there
    return q->is_joined ? TERN_OK : status;
}

// An entry of a stream: [tag, [field, value …]]; its line.
static struct str entry_line(const struct net_reply *entry, char tag[BATCH_TAG_MAX]) {
    struct str id = net_reply_text(net_reply_item(entry, 0));
    const struct net_reply *fields = net_reply_item(entry, 1);
    if (!id.data || id.len >= BATCH_TAG_MAX) return (struct str){0};
    snprintf(tag, BATCH_TAG_MAX, "%.*s", (int)id.len, id.data);
    for (size_t i = 0; i + 1 < net_reply_count(fields); i += 2)
        if (str_eqz(net_reply_text(net_reply_item(fields, i)), "line"))
            return net_reply_text(net_reply_item(fields, i + 1));
    return (struct str){0};
}

// The batch was removed (or Redis lost it): its group is made anew.
static enum tern_status lost(struct batch_queue *q, enum tern_status status) {
    if (status != TERN_NOT_FOUND) return status;
    q->is_joined = false;
    return TERN_OK;
}

enum tern_status batch_queue_take(struct batch_queue *q, int max, int64_t block_ms, batch_on_request fn, void *arg,
                                  struct tern_err *err) {
    TRY(join(q, err));
    char count[16], block[24];
    snprintf(count, sizeof count, "%d", max);
    snprintf(block, sizeof block, "%lld", (long long)block_ms);
    struct str words[12];
    int n = 0;
    words[n++] = STR("XREADGROUP");
    words[n++] = STR("GROUP");
    words[n++] = STR("workers");
    words[n++] = str_from(q->worker);
    words[n++] = STR("COUNT");
    words[n++] = str_from(count);
    if (block_ms > 0) words[n++] = STR("BLOCK");
    if (block_ms > 0) words[n++] = str_from(block);
    words[n++] = STR("STREAMS");
    words[n++] = str_from(q->keys[KEY_JOBS]);
    words[n++] = STR(">");
    const struct net_reply *reply;
    enum tern_status status = say(q, words, n, (double)block_ms / 1e3, &reply, err);
    if (status != TERN_OK) return lost(q, status);
    const struct net_reply *entries = net_reply_item(net_reply_item(reply, 0), 1);
    for (size_t i = 0; i < net_reply_count(entries); i++) {
        char tag[BATCH_TAG_MAX];
        struct str line = entry_line(net_reply_item(entries, i), tag);
        if (line.data) fn(arg, tag, line, 1);
    }
    return TERN_OK;
}

struct stale { // what others hold too long
    char tag[BATCH_TAG_MAX];
    int64_t n_deliveries;
};

static enum tern_status stale_find(struct batch_queue *q, int max, const char *stale_ms, struct stale out[CLAIM_MAX],
                                   int *n, struct tern_err *err) {
    char count[16];
    snprintf(count, sizeof count, "%d", MIN(max, CLAIM_MAX));
    const struct str words[] = {STR("XPENDING"),    str_from(q->keys[KEY_JOBS]),
                                STR("workers"),     STR("IDLE"),
                                str_from(stale_ms), STR("-"),
                                STR("+"),           str_from(count)};
    const struct net_reply *reply;
    *n = 0;
    TRY(say(q, words, ARRAY_LEN(words), 0, &reply, err));
    for (size_t i = 0; i < net_reply_count(reply) && *n < CLAIM_MAX; i++) {
        const struct net_reply *row = net_reply_item(reply, i);
        struct str id = net_reply_text(net_reply_item(row, 0));
        if (!id.data || id.len >= BATCH_TAG_MAX) continue;
        snprintf(out[*n].tag, BATCH_TAG_MAX, "%.*s", (int)id.len, id.data);
        out[(*n)++].n_deliveries = net_reply_int(net_reply_item(row, 3));
    }
    return TERN_OK;
}

enum tern_status batch_queue_claim(struct batch_queue *q, int max, int64_t stale_ms, batch_on_request fn, void *arg,
                                   struct tern_err *err) {
    TRY(join(q, err));
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)stale_ms);
    struct stale stale[CLAIM_MAX];
    int n = 0, k = 0;
    enum tern_status status = stale_find(q, max, text, stale, &n, err);
    if (status != TERN_OK || n == 0) return lost(q, status);
    struct str words[5 + CLAIM_MAX];
    words[k++] = STR("XCLAIM");
    words[k++] = str_from(q->keys[KEY_JOBS]);
    words[k++] = STR("workers");
    words[k++] = str_from(q->worker);
    words[k++] = str_from(text);
    for (int i = 0; i < n; i++) words[k++] = str_from(stale[i].tag);
    const struct net_reply *reply;
    status = say(q, words, k, 0, &reply, err);
    if (status != TERN_OK) return lost(q, status);
    for (size_t i = 0; i < net_reply_count(reply); i++) {
        char tag[BATCH_TAG_MAX];
        struct str line = entry_line(net_reply_item(reply, i), tag);
        for (int m = 0; line.data && m < n; m++)
            if (strcmp(stale[m].tag, tag) == 0) fn(arg, tag, line, stale[m].n_deliveries + 1);
    }
    return TERN_OK;
}

enum tern_status batch_queue_beat(struct batch_queue *q, const char *const *tags, int n, int64_t idle_ms,
                                  struct tern_err *err) {
    char idle[24];
    snprintf(idle, sizeof idle, "%lld", (long long)idle_ms);
    int64_t kept;
    for (int from = 0; from < n; from += 1000) {
        struct str args[1002] = {str_from(q->worker), str_from(idle)};
        int k = 2;
        for (int i = from; i < n && i < from + 1000; i++) args[k++] = str_from(tags[i]);
        enum tern_status status = script_say(q, beat_script, args, k, &kept, err);
        if (status != TERN_OK) return lost(q, status);
    }
    return TERN_OK;
}

enum tern_status batch_queue_finish(struct batch_queue *q, const char *tag, const char *custom_id, struct str line,
                                    struct tern_err *err) {
    const struct str args[] = {str_from(tag), str_from(custom_id), line};
    int64_t result;
    return script_say(q, finish_script, args, 3, &result, err);
}

enum tern_status batch_queue_leave(struct batch_queue *q, struct tern_err *err) {
    const struct str arg = str_from(q->worker);
    int64_t result;
    return q->is_joined ? lost(q, script_say(q, leave_script, &arg, 1, &result, err)) : TERN_OK;
}

// ------------------------------------------------------------------------------------------------------------- results

enum tern_status batch_queue_results(struct batch_queue *q, int64_t from, int max,
                                     enum tern_status (*fn)(void *arg, struct str line, struct tern_err *err),
                                     void *arg, int *n, struct tern_err *err) {
    char first[24], last[24];
    snprintf(first, sizeof first, "%lld", (long long)from);
    snprintf(last, sizeof last, "%lld", (long long)from + max - 1);
    const struct str words[] = {STR("LRANGE"), str_from(q->keys[KEY_RESULTS]), str_from(first), str_from(last)};
    const struct net_reply *reply;
    TRY(say(q, words, ARRAY_LEN(words), 0, &reply, err));
    *n = (int)net_reply_count(reply);
    for (int i = 0; i < *n; i++) TRY(fn(arg, net_reply_text(net_reply_item(reply, (size_t)i)), err));
    return TERN_OK;
}

static enum tern_status number_say(struct batch_queue *q, struct str verb, enum queue_key key, int64_t *out,
                                   struct tern_err *err) {
    const struct str words[] = {verb, str_from(q->keys[key])};
    const struct net_reply *reply;
    TRY(say(q, words, 2, 0, &reply, err));
    *out = net_reply_int(reply);
    return TERN_OK;
}

enum tern_status batch_queue_count(struct batch_queue *q, struct batch_counts *out, struct tern_err *err) {
    *out = (struct batch_counts){0};
    int64_t n_left = 0;
    TRY(number_say(q, STR("HLEN"), KEY_IDS, &out->n_submitted, err));
    TRY(number_say(q, STR("LLEN"), KEY_RESULTS, &out->n_results, err));
    TRY(number_say(q, STR("XLEN"), KEY_JOBS, &n_left, err));
    const struct str words[] = {STR("XPENDING"), str_from(q->keys[KEY_JOBS]), STR("workers")};
    const struct net_reply *reply;
    enum tern_status status = say(q, words, 3, 0, &reply, err);
    if (status == TERN_OK) {
        out->n_held = net_reply_int(net_reply_item(reply, 0));
        out->n_workers = (int64_t)net_reply_count(net_reply_item(reply, 3));
    }
    out->n_waiting = MAX(n_left - out->n_held, 0);
    return status == TERN_NOT_FOUND ? TERN_OK : status; // no worker came yet
}

enum tern_status batch_queue_remove(struct batch_queue *q, struct tern_err *err) {
    struct str words[1 + N_KEYS] = {STR("UNLINK")};
    for (int i = 0; i < N_KEYS; i++) words[1 + i] = str_from(q->keys[i]);
    const struct net_reply *reply;
    return say(q, words, 1 + N_KEYS, 0, &reply, err);
}
