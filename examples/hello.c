// Asks a model one question and prints the answer as it comes:
//   cc hello.c $(pkg-config --cflags --libs tern) -o hello && ./hello MODEL.gguf
#include <stdio.h>
#include <string.h>
#include <tern.h>

static int fail(const struct tern_err *err) {
    fprintf(stderr, "hello: %s\n", err->message);
    return 1;
}

int main(int argc, char **argv) {
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"What is a solenogaster?\"}]";
    if (argc != 2) return fprintf(stderr, "usage: hello MODEL\n"), 2;
    struct tern_err err = {0};
    struct tern_engine_options options;
    tern_engine_options_default(&options);
    options.model_path = argv[1];
    struct tern_engine *engine = NULL;
    struct tern_session *session = NULL;
    if (tern_engine_open(&engine, &options, &err) != TERN_OK) return fail(&err);
    if (tern_session_open(&session, engine, &err) != TERN_OK) return fail(&err);

    struct tern_request_options ask; // greedy unless a temperature is set
    tern_request_options_default(&ask);
    ask.messages_json = (struct tern_str){messages, strlen(messages)};
    ask.n_max = 64;
    struct tern_request *request = NULL;
    if (tern_request_create(&request, session, &ask, &err) != TERN_OK) return fail(&err);
    struct tern_event event;
    do {
        if (tern_request_next(request, &event, &err) != TERN_OK) return fail(&err);
        if (event.type == TERN_EVENT_TEXT) fwrite(event.text.data, 1, event.text.len, stdout);
    } while (event.type != TERN_EVENT_DONE);
    fprintf(stderr, "\n[%s, %lld tokens]\n", tern_finish_text(event.finish), (long long)event.usage.n_answer);
    tern_request_free(request);
    tern_session_close(session);
    tern_engine_close(engine);
    return 0;
}
