// Requests of the formats beside OpenAI's chat: whatever the bytes, they are refused with a reason, or become messages
// that the engine's own reader takes for JSON. The first byte says which format.
#include "base/base.h"
#include "app/serve/serve_anthropic.h"
#include "app/serve/serve_ollama.h"
#include "app/serve/serve_responses.h"
#include "text/text.h"

static void list_check(struct str raw, const char *what) {
    struct json *j;
    struct json_item item;
    struct tern_err err = {0};
    if (raw.len == 0) return;
    if (json_create(&j, raw, NULL, &err) != TERN_OK) TERN_BUG("%s: %s", what, err.message);
    if (json_next(j, &item, &err) != JSON_ARRAY) TERN_BUG("%s is no list", what);
    if (json_skip(j, &err) != TERN_OK || json_next(j, &item, &err) != JSON_END) TERN_BUG("%s: %s", what, err.message);
    json_free(j);
}

static void ask_check(const struct serve_ask *a, bool ok) {
    if (!ok && (a->fault.status < 400 || !a->fault.message[0])) TERN_BUG("refused without a reason");
    if (!ok) return;
    list_check(a->messages, "messages");
    if (a->messages.len == 0) return;
    struct buf out;
    struct tern_err err = {0};
    buf_init(&out, 1u << 24);
    if (messages_normalise(&out, a->messages, &err) != TERN_OK && !err.message[0]) TERN_BUG("no reason");
    buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct serve s;
    struct responses_ask q = {0};
    struct ollama_ask o = {0};
    struct serve_ask a;
    if (size == 0) return 0;
    sample_opts_init(&s.sample);
    serve_ask_init(&a, &s);
    const struct str body = {(const char *)data + 1, size - 1};
    switch (data[0]) {
    case 'a': ask_check(&a, serve_anthropic_read(&a, body)); break;
    case 'r':
        q.ask = a;
        ask_check(&q.ask, serve_responses_read(&q, body));
        a = q.ask;
        break;
    default:
        o.ask = a;
        ask_check(&o.ask, serve_ollama_read(&o, body, data[0] == 'c'));
        a = o.ask;
        break;
    }
    serve_ask_release(&a);
    return 0;
}
