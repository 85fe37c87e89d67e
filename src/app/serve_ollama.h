// Private to serve_ollama*.c.
#pragma once
#include "serve_parts.h"

extern const struct serve_wire serve_ollama_chat_wire, serve_ollama_generate_wire;
// "model", "created_at" of an object that is open.
void serve_ollama_head_put(struct json_writer *w, const struct serve_answer *a);
// The model that a client names, without the ":latest" that Ollama's clients put behind it.
bool serve_ollama_model_check(struct serve *s, struct net_request *r, struct str name);
