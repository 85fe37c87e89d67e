// A session as programs have them: a long beginning (rules and tools), then turns of a question, a call, its result and
// an answer. Every turn asks twice (for the call, for the answer). Some answers are made anew, one question is edited
// and the talk goes on from there, and a branch leaves from an earlier turn and is given up again. The text is fixed:
// both servers get the same, and an answer's first token is all that is made.
#include "base/base.h"
#include "bench_server.h"
#include "bench_stats.h"

#define TURNS_MAX (SERVER_TURNS_MAX + 2) // with those of the branch
#define REQUESTS_MAX (4 * TURNS_MAX)
#define BODY_MAX (4u << 20)
#define AGAIN_EVERY 5  // every so many-th turn's answer is made anew
#define EDIT_TURN 7    // before it, the question of the turn before is edited
#define BRANCH_TURN 12 // behind it, two other turns come from turn BRANCH_FROM on
#define BRANCH_FROM 9
#define RULES 24 // sentences of the beginning

static const char *const words[] = {"the",    "report",  "of",     "harbour", "prices", "with",   "every", "station",
                                    "and",    "weather", "tables", "which",   "number", "before", "list",  "summer",
                                    "record", "because", "signal", "north",   "value",  "under",  "from",  "evening",
                                    "to",     "check",   "boats",  "current", "level",  "after",  "two",   "names"};

// A sentence of n words, told apart by what it is.
static void sentence_put(struct buf *b, uint64_t what, int n) {
    for (int i = 0; i < n; i++) {
        what = what * 6364136223846793005ull + 1442695040888963407ull;
        buf_putf(b, "%s%s", i ? " " : "", words[(what >> 40) % ARRAY_LEN(words)]);
    }
}

static const char tools[] =
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"table_read\",\"description\":\"Reads rows of a table "
    "of "
    "the harbour's records between two "
    "dates.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"table\":{\"type\":"
    "\"string\",\"description\":\"Name of the table\"},\"from\":{\"type\":\"string\"},\"to\":{\"type\":\"string\"}},"
    "\"required\":[\"table\"]}}},{\"type\":\"function\",\"function\":{\"name\":\"file_write\",\"description\":\"Writes "
    "a "
    "text into a file, in place of what is there.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"path\":{"
    "\"type\":\"string\"},\"text\":{\"type\":\"string\"}},\"required\":[\"path\",\"text\"]}}},{\"type\":\"function\","
    "\"function\":{\"name\":\"search\",\"description\":\"Looks for words in all records and returns the lines that "
    "have them.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"words\":{\"type\":\"string\"},\"n\":{\"type\":"
    "\"integer\"}},\"required\":[\"words\"]}}}]";

struct talk {
    int turns[TURNS_MAX]; // what each is about: another number is another text
    int n;
};

static void turn_put(struct buf *b, const struct talk *t, int i, bool call, bool answer) {
    uint64_t what = (uint64_t)t->turns[i] * 1000;
    buf_puts(b, ",{\"role\":\"user\",\"content\":\"");
    sentence_put(b, what + 1, 22);
    buf_puts(b, "?\"}");
    if (!call) return;
    buf_putf(b,
             ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"call_%d\",\"type\":\"function\","
             "\"function\":{\"name\":\"search\",\"arguments\":\"{\\\"words\\\": \\\"",
             t->turns[i]);
    sentence_put(b, what + 2, 4);
    buf_putf(b, "\\\"}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_%d\",\"content\":\"", t->turns[i]);
    sentence_put(b, what + 3, 40);
    buf_puts(b, "\"}");
    if (!answer) return;
    buf_puts(b, ",{\"role\":\"assistant\",\"content\":\"");
    sentence_put(b, what + 4, 30);
    buf_puts(b, ".\"}");
}

static void talk_put(struct buf *b, const struct talk *t, bool answer) {
    buf_clear(b);
    buf_puts(b, "{\"max_tokens\":1,\"temperature\":0,\"cache_prompt\":true,");
    buf_puts(b, tools);
    buf_puts(b, ",\"messages\":[{\"role\":\"system\",\"content\":\"");
    for (int i = 0; i < RULES; i++) {
        sentence_put(b, 77 + (uint64_t)i, 24);
        buf_puts(b, ". ");
    }
    buf_puts(b, "\"}");
    for (int i = 0; i < t->n; i++) turn_put(b, t, i, i + 1 < t->n || answer, i + 1 < t->n);
    buf_puts(b, "]}");
}

struct session {
    const struct server_peer *peer;
    struct session_result *out;
    struct buf body, answer;
    double times[REQUESTS_MAX];
    int n;
};

static enum tern_status ask(struct session *s, const struct talk *t, bool answer, struct tern_err *err) {
    double seconds, cached = 0, run = 0;
    talk_put(&s->body, t, answer);
    if (s->body.failed) return err_set(err, TERN_LIMIT, "a conversation of more than %u bytes", BODY_MAX);
    TRY(load_ask(s->peer, "/v1/chat/completions", buf_str(&s->body), &s->answer, &seconds, err));
    if (!load_number(buf_str(&s->answer), "cache_n", &cached) || !load_number(buf_str(&s->answer), "prompt_n", &run))
        return err_set(err, TERN_UNSUPPORTED, "%s does not tell how many prompt tokens it knew", s->peer->name);
    if (s->out->n_requests++ == 0) {
        s->out->first_s = seconds;
        return TERN_OK;
    }
    s->out->n_prompt += cached + run;
    s->out->n_cached += cached;
    s->times[s->n++] = seconds;
    return TERN_OK;
}

// A turn: the call, then the answer.
static enum tern_status turn_ask(struct session *s, struct talk *t, int about, struct tern_err *err) {
    t->turns[t->n++] = about;
    TRY(ask(s, t, false, err));
    return ask(s, t, true, err);
}

static enum tern_status session_play(struct session *s, int n_turns, struct tern_err *err) {
    struct talk t = {0};
    for (int k = 1; k <= n_turns; k++) {
        if (k == EDIT_TURN) {
            t.n--;
            TRY(turn_ask(s, &t, 100 + k, err));
        }
        TRY(turn_ask(s, &t, k, err));
        if (k % AGAIN_EVERY == 0) TRY(ask(s, &t, true, err));
        if (k != BRANCH_TURN) continue;
        struct talk branch = t;
        branch.n = BRANCH_FROM;
        for (int i = 0; i < 2; i++) TRY(turn_ask(s, &branch, 200 + i, err));
    }
    return TERN_OK;
}

enum tern_status server_session_run(struct session_result *out, const struct server_peer *p, int n_turns,
                                    struct tern_err *err) {
    *out = (struct session_result){0};
    TERN_ASSERT(n_turns <= SERVER_TURNS_MAX);
    struct session *s = mem_calloc(1, sizeof *s);
    if (!s) return err_set(err, TERN_NO_MEMORY, "no memory for a session");
    s->peer = p;
    s->out = out;
    buf_init(&s->body, BODY_MAX);
    buf_init(&s->answer, SERVER_ANSWER_MAX);
    enum tern_status status = session_play(s, n_turns, err);
    if (status == TERN_OK) {
        out->median_s = stats_quantile(s->times, s->n, 0.5);
        out->p95_s = stats_quantile(s->times, s->n, 0.95);
    }
    buf_release(&s->body);
    buf_release(&s->answer);
    mem_free(s);
    return status;
}
