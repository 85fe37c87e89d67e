// A small HTTP server that answers as llama-server, Ollama and LM Studio do, for the tests of `tern compare`; and, as
// FAKE_ENGINE says, slowly, brokenly, cut off, or not at all.
//
//   fake_engine --port N …   (0: any free one, printed; other arguments of llama-server are taken and left aside)
// FAKE_ENGINE: ok, die (exits at once), slow (never ready within its life of 3 s), broken (no JSON), truncated (the
// stream ends early), cut (the connection breaks inside an answer), error (an error object), http500, crash (exits
// inside the first answer), mute (accepts and says nothing), endless (one line without end)
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *mode = "ok";

static void put(int fd, const char *text) {
    size_t len = strlen(text);
    while (len > 0) {
        ssize_t n = send(fd, text, len, MSG_NOSIGNAL);
        if (n <= 0) return;
        text += n;
        len -= (size_t)n;
    }
}

static void chunk(int fd, const char *text) {
    char head[32];
    snprintf(head, sizeof head, "%zx\r\n", strlen(text));
    put(fd, head);
    put(fd, text);
    put(fd, "\r\n");
}

static void plain(int fd, int code, const char *body) {
    char head[256];
    snprintf(head, sizeof head,
             "HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
             "Connection: close\r\n\r\n",
             code, strlen(body));
    put(fd, head);
    put(fd, body);
}

static void stream(int fd, const char *const *lines) {
    put(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
            "Connection: close\r\n\r\n");
    for (int i = 0; lines[i]; i++) {
        if (i == 1 && strcmp(mode, "crash") == 0) _exit(3);
        if (i == 1 && strcmp(mode, "cut") == 0) return; // without the last chunk
        if (i == 1 && strcmp(mode, "mute") == 0) sleep(30);
        if (i == 1 && strcmp(mode, "broken") == 0) {
            chunk(fd, "data: {\"content\":\n\n");
            continue;
        }
        if (i == 1 && strcmp(mode, "endless") == 0) {
            static char line[65536];
            memset(line, 'x', sizeof line - 1);
            for (int k = 0; k < 64; k++) chunk(fd, line);
        }
        if (i == 1 && strcmp(mode, "error") == 0) {
            chunk(fd, "data: {\"error\":{\"code\":500,\"message\":\"the model is tired\"}}\n\n");
            continue;
        }
        if (lines[i + 1] == NULL && strcmp(mode, "truncated") == 0) break;
        chunk(fd, lines[i]);
    }
    put(fd, "0\r\n\r\n");
}

static void answer(int fd, const char *request) {
    static const char *const llama[] = {
        "data: {\"content\":\"0001\",\"stop\":false}\n\n", ": a comment\n",
        "data: {\"content\":\" 0002\",\"stop\":false}\n\n",
        "data: {\"content\":\"\",\"stop\":true,\"tokens_predicted\":2,\"timings\":{\"prompt_n\":7,\"prompt_ms\":70.0,"
        "\"predicted_n\":3,\"predicted_ms\":30.0}}\n\n",
        NULL};
    static const char *const ollama[] = {
        "{\"model\":\"m\",\"response\":\"0001\",\"done\":false}\n", "{\"response\":\" 0002\",\"done\":false}\n",
        "{\"response\":\"\",\"done\":true,\"prompt_eval_count\":7,\"prompt_eval_duration\":70000000,\"eval_count\":3,"
        "\"eval_duration\":30000000}\n",
        NULL};
    static const char *const openai[] = {
        "data: {\"choices\":[{\"text\":\"0001\",\"index\":0,\"finish_reason\":null}]}\n\n",
        "data: {\"choices\":[{\"text\":\" 0002\",\"index\":0,\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n", "data: [DONE]\n\n", NULL};
    if (strstr(request, "GET /health"))
        plain(fd, strcmp(mode, "slow") == 0 ? 503 : 200, "{\"status\":\"ok\"}");
    else if (strstr(request, "GET /props"))
        plain(fd, 200, "{\"build_info\":\"fake-1\"}");
    else if (strstr(request, "GET /api/version"))
        plain(fd, 200, "{\"version\":\"0.fake\"}");
    else if (strstr(request, "GET /api/ps"))
        plain(fd, 200, "{\"models\":[{\"name\":\"m\",\"size\":123456789}]}");
    else if (strstr(request, "GET /v1/models"))
        plain(fd, 200, "{\"object\":\"list\",\"data\":[{\"id\":\"fake-model\"}]}");
    else if (strcmp(mode, "http500") == 0)
        plain(fd, 500, "{\"error\":{\"message\":\"no\"}}");
    else if (strstr(request, "POST /completion"))
        stream(fd, llama);
    else if (strstr(request, "POST /api/generate"))
        stream(fd, ollama);
    else if (strstr(request, "POST /v1/completions"))
        stream(fd, openai);
    else
        plain(fd, 404, "{}");
}

// The request line, the headers and as many bytes of body as they say.
static bool request_read(int fd, char *out, size_t cap) {
    size_t len = 0;
    while (len + 1 < cap) {
        ssize_t n = recv(fd, out + len, cap - 1 - len, 0);
        if (n <= 0) return false;
        len += (size_t)n;
        out[len] = 0;
        const char *end = strstr(out, "\r\n\r\n"), *length = strcasestr(out, "content-length:");
        if (end && len >= (size_t)(end + 4 - out) + (length && length < end ? strtoul(length + 15, NULL, 10) : 0))
            return true;
    }
    return true;
}

int main(int argc, char **argv) {
    static char request[1 << 20];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1;
    if (getenv("FAKE_ENGINE")) mode = getenv("FAKE_ENGINE");
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], "--port") == 0) a.sin_port = htons((unsigned short)strtoul(argv[i + 1], NULL, 10));
    if (strcmp(mode, "die") == 0) {
        fprintf(stderr, "error: the model is not to my taste\n");
        return 7;
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 16) != 0) return 8;
    if (a.sin_port == 0) { // any free one: told
        socklen_t n = sizeof a;
        if (getsockname(fd, (struct sockaddr *)&a, &n) != 0) return 8;
        printf("%d\n", ntohs(a.sin_port));
        fflush(stdout);
    }
    alarm(strcmp(mode, "slow") == 0 ? 3 : 120);
    for (;;) {
        int c = accept(fd, NULL, NULL);
        if (c < 0) continue;
        if (request_read(c, request, sizeof request)) answer(c, request);
        close(c);
    }
}
