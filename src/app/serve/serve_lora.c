// GET and POST /lora-adapters, as llama-server has them: there are no adapters here, so the list is empty, and only an
// empty list can be set.
#include "base/base.h"
#include "serve_parts.h"

void serve_lora_adapters(struct serve *s, struct net_request *r) {
    (void)s;
    serve_reply(r, "application/json", STR("[]"));
}

static bool adapter_refuse(void *arg, struct str raw, int i) {
    (void)raw, (void)i;
    return serve_bad(arg, "id", "no adapters are loaded here (tern applies none), so none can be scaled; send []");
}

void serve_lora_set(struct serve *s, struct net_request *r) {
    struct serve_ask a;
    serve_ask_init(&a, s);
    const struct str body = str_trim(r->body);
    const bool ok = body.len > 0 ? serve_list_each(&a, body, "the body", SERVE_PROMPTS_MAX, adapter_refuse, &a)
                                 : serve_bad(&a, NULL, "the body is a list of {\"id\", \"scale\"}");
    if (ok)
        serve_reply(r, "application/json", STR("{\"success\":true}"));
    else
        serve_fail(r, &a.fault);
    serve_ask_release(&a);
}
