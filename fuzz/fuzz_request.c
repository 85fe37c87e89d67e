// Bodies of requests to `tern serve`: the first byte picks a prefix for names, the rest is read by a table that holds
// every kind of field. What is kept lies inside its bounds; what is refused has a fault with a message.
#include "base/base.h"
#include "app/serve/serve.h"

static const struct serve_field fields[] = {SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0),
                                            SERVE_FIELD("messages", SERVE_FIELD_RAW, messages, 0, 0),
                                            SERVE_FIELD("temperature", SERVE_FIELD_FLOAT, temperature, 0, 2),
                                            SERVE_FIELD("max_tokens", SERVE_FIELD_INT, max_tokens, 1, 9e15),
                                            SERVE_FIELD("n", SERVE_FIELD_INT, n, 1, SERVE_N_MAX),
                                            SERVE_FIELD("seed", SERVE_FIELD_INT, seed, -9.2e18, 9.2e18),
                                            SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0),
                                            SERVE_FIELD("tokens", SERVE_FIELD_RAW, input, 0, 0),
                                            {"stop", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_stop, 0},
                                            {"logit_bias", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_logit_bias, 0},
                                            {"stream_options", SERVE_FIELD_TAKE, 0, 0, 0, serve_take_stream_options, 0},
                                            {"functions", SERVE_FIELD_REFUSE, 0, 0, 0, 0, "not read"},
                                            {0}};

static void kept_check(const struct serve_ask *a) {
    TERN_ASSERT(a->temperature >= 0 && a->temperature <= 2);
    TERN_ASSERT(a->max_tokens == SERVE_UNSET || a->max_tokens >= 1);
    TERN_ASSERT(a->n >= 1 && a->n <= SERVE_N_MAX);
    TERN_ASSERT(a->n_stop >= 0 && a->n_stop <= TERN_STOP_MAX && a->n_bias >= 0 && a->n_bias <= TERN_LOGIT_BIAS_MAX);
    for (int i = 0; i < a->n_stop; i++) TERN_ASSERT(a->stop[i] && a->stop[i][0]);
    for (int i = 0; i < a->n_bias; i++) TERN_ASSERT(a->bias[i].id >= 0 && a->bias[i].bias <= 100);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct serve_ask a = {.n = 1, .max_tokens = SERVE_UNSET, .seed = SERVE_UNSET};
    arena_init(&a.arena, 16u << 20);
    struct str body = {(const char *)data + 1, size - 1};
    bool ok = serve_fields_read(&a, body, data[0] & 1 ? "options." : "", fields);
    int32_t *ids;
    size_t n;
    if (ok && a.input.len > 0) {
        ok = serve_ids_read(&a, a.input, "tokens", 1000, &ids, &n);
        for (size_t i = 0; ok && i < n; i++) TERN_ASSERT(ids[i] >= 0 && ids[i] < 1000);
    }
    TERN_ASSERT(ok || (a.fault.status >= 400 && a.fault.message[0]));
    if (ok) kept_check(&a);
    struct buf out;
    buf_init(&out, 1u << 20);
    for (int family = 0; !ok && family < 3; family++) serve_fault_put(&out, &a.fault, (enum serve_family)family);
    TERN_ASSERT(!out.failed);
    buf_release(&out);
    arena_release(&a.arena);
    return 0;
}
