// Private to serve_ollama*.c.
#pragma once
#include "serve_parts.h"

struct ollama_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str options, system_text, prompt_text, format, images;
    bool raw;
};
// The fields and the conversation of a request, checked and in the engine's form. False: q->ask.fault says what is
// wrong.
bool serve_ollama_read(struct ollama_ask *q, struct str body, bool chat);
// What Ollama answers when there is nothing to say: its clients load and unload a model so. reason: "load", "unload".
void serve_ollama_empty_reply(struct serve *s, struct net_request *r, const struct serve_model *m, bool chat,
                              const char *reason);
// Does the request only unload the model? Then it has been answered.
bool serve_ollama_unloads(struct serve *s, struct net_request *r, struct serve_model *m, bool chat);
extern const struct serve_wire serve_ollama_chat_wire, serve_ollama_generate_wire;
// "model", "created_at" of an object that is open.
void serve_ollama_head_put(struct json_writer *w, const struct serve_answer *a);
// As serve_model_check(), but a name must be there.
bool serve_ollama_model_check(struct serve *s, struct net_request *r, struct str name);
