// A conversation: every line of standard input is a message, Ctrl-C stops the answer at work, Ctrl-D ends. What was
// said before is not computed again: the session keeps its state, and each request begins like the one before.
//   cc chat.c $(pkg-config --cflags --libs tern) -o chat && ./chat MODEL.gguf
#define _POSIX_C_SOURCE 200809L
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <tern.h>

static struct tern_request *volatile at_work;

static void on_interrupt(int number) {
    (void)number;
    if (at_work) tern_request_cancel(at_work); // of the few calls that a signal handler may make
}

// The messages so far, a JSON array whose last bracket is still to come. `end` is what is used of them.
static char messages[1 << 20] = "[";
static size_t end = 1;

// Appends bytes, quoted as a part of a JSON string. False: full.
static int put(const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (end + 64 > sizeof messages) return 0;
        if (c == '"' || c == '\\') messages[end++] = '\\';
        if (c < 0x20)
            end += (size_t)sprintf(messages + end, "\\u%04x", c);
        else
            messages[end++] = (char)c;
    }
    return 1;
}
static void open_message(const char *role) {
    end += (size_t)sprintf(messages + end, "%s{\"role\": \"%s\", \"content\": \"", end > 1 ? ", " : "", role);
}
static void close_message(void) { end += (size_t)sprintf(messages + end, "\"}"); }

// Answers the messages, shows the answer and appends it to them.
static enum tern_status answer(struct tern_session *session, struct tern_err *err) {
    struct tern_request_options ask;
    struct tern_request *request;
    struct tern_event event;
    tern_request_options_default(&ask);
    messages[end] = ']';
    ask.messages_json = (struct tern_str){messages, end + 1};
    ask.n_max = 200;
    enum tern_status status = tern_request_create(&request, session, &ask, err);
    if (status != TERN_OK) return status;
    at_work = request;
    open_message("assistant");
    do {
        status = tern_request_next(request, &event, err);
        if (status != TERN_OK || event.type != TERN_EVENT_TEXT) continue;
        fwrite(event.text.data, 1, event.text.len, stdout); // whole characters
        fflush(stdout);
        if (!put(event.text.data, event.text.len)) tern_request_cancel(request);
    } while (status == TERN_OK && event.type != TERN_EVENT_DONE);
    close_message();
    if (status == TERN_OK)
        fprintf(stderr, "\n[%s: %lld tokens read, %lld of them known; %lld written]\n", tern_finish_text(event.finish),
                (long long)event.usage.n_prompt, (long long)event.usage.n_cached, (long long)event.usage.n_answer);
    at_work = NULL;
    tern_request_free(request);
    return status;
}

int main(int argc, char **argv) {
    if (argc != 2) return fprintf(stderr, "usage: chat MODEL\n"), 2;
    struct tern_err err = {0};
    struct tern_engine_options options;
    tern_engine_options_default(&options);
    options.model_path = argv[1];
    struct tern_engine *engine = NULL;
    struct tern_session *session = NULL;
    enum tern_status status = tern_engine_open(&engine, &options, &err);
    if (status == TERN_OK) status = tern_session_open(&session, engine, &err);
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt, .sa_flags = SA_RESTART}, NULL);
    char line[4096];
    while (status == TERN_OK && fgets(line, sizeof line, stdin)) {
        size_t len = strcspn(line, "\n");
        if (len == 0) continue;
        open_message("user");
        if (!put(line, len)) return fprintf(stderr, "chat: the conversation is longer than %zu bytes\n", end), 1;
        close_message();
        status = answer(session, &err); // TERN_CONTEXT_FULL: the conversation has outgrown the model
    }
    if (status != TERN_OK) fprintf(stderr, "chat: %s\n", err.message);
    tern_session_close(session);
    tern_engine_close(engine);
    return status == TERN_OK ? 0 : 1;
}
