// A small HTTP server for the tests of `tern pull`: a mirror of a Hugging Face hub that serves the files below a folder
// by their paths, soundly or not.
//
//   fake_hub FOLDER [OTHER_PORT]   prints its port; lives at most two minutes
// FOLDER/mode (read at each request) says how files under /resolve/ are answered:
//   ok          the file, or the part of it that a Range header asks for
//   norange     always the whole file
//   cut N       breaks off after N bytes
//   slow        a piece of 4 KiB each 20 ms
//   redirect    302 to the same path of OTHER_PORT    hop   302 to the same path with ?hop, relative
//   loop        302 to itself                         down  302 to a URL that is none
//   status N    HTTP status N                         busy N  503 for the next N requests (the file counts down)
//   long        more bytes than the file has          gzip  Content-Encoding: gzip
//   etag        X-Linked-Etag of another file         commit  X-Repo-Commit of another commit
//   range       another range than asked for          mute  says nothing
// FOLDER/log gets a line for each request: method, path, Range, Authorization ("-": none).
#define _GNU_SOURCE 1
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *folder;
static const char *other_port = "0";

static bool put(int fd, const char *data, size_t len) {
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0) return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}
static void puts_to(int fd, const char *text) { put(fd, text, strlen(text)); }

// FOLDER/mode: a word and a number.
static void mode_read(char word[32], long *number) {
    char path[4096], text[64] = "";
    snprintf(path, sizeof path, "%s/mode", folder);
    int fd = open(path, O_RDONLY);
    *number = 0;
    snprintf(word, 32, "ok");
    if (fd < 0) return;
    if (read(fd, text, sizeof text - 1) > 0) sscanf(text, "%31s %ld", word, number);
    close(fd);
}
static void mode_write(const char *word, long number) {
    char path[4096], text[64];
    snprintf(path, sizeof path, "%s/mode", folder);
    const int n = snprintf(text, sizeof text, "%s %ld\n", word, number);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || write(fd, text, (size_t)n) != n) _exit(9);
    close(fd);
}

// A header's value into out, or "-".
static void header_find(const char *request, const char *name, char *out, size_t cap) {
    const char *at = strcasestr(request, name);
    snprintf(out, cap, "-");
    if (!at) return;
    at += strlen(name);
    while (*at == ' ') at++;
    snprintf(out, cap, "%.*s", (int)strcspn(at, "\r\n"), at);
}

static void log_put(const char *method, const char *path, const char *range, const char *authorization) {
    char name[4096], line[8192];
    snprintf(name, sizeof name, "%s/log", folder);
    const int n = snprintf(line, sizeof line, "%s %s %s %s\n", method, path, range, authorization);
    int fd = open(name, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || write(fd, line, (size_t)n) != n) _exit(9);
    close(fd);
}

static void status_put(int fd, long status, const char *more) {
    char head[512];
    snprintf(head, sizeof head, "HTTP/1.1 %ld X\r\n%sContent-Length: 3\r\nConnection: close\r\n\r\nno\n", status, more);
    puts_to(fd, head);
}

static void file_put(int fd, int file, const char *range, const char *word, long number) {
    struct stat st;
    char head[1024], piece[4096];
    if (fstat(file, &st) != 0) _exit(9);
    long long from = 0, size = st.st_size;
    if (strcmp(word, "norange") != 0) sscanf(range, "bytes=%lld-", &from);
    if (from >= size && from > 0) {
        status_put(fd, 416, "");
        return;
    }
    const bool is_long = strcmp(word, "long") == 0;
    int n = snprintf(head, sizeof head, "HTTP/1.1 %d X\r\nConnection: close\r\n", from > 0 ? 206 : 200);
    if (!is_long) n += snprintf(head + n, sizeof head - (size_t)n, "Content-Length: %lld\r\n", size - from);
    if (from > 0)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Range: bytes %lld-%lld/%lld\r\n",
                      strcmp(word, "range") == 0 ? from - 1 : from, size - 1, size);
    if (strcmp(word, "gzip") == 0) n += snprintf(head + n, sizeof head - (size_t)n, "Content-Encoding: gzip\r\n");
    if (strcmp(word, "etag") == 0) n += snprintf(head + n, sizeof head - (size_t)n, "X-Linked-Etag: \"%064d\"\r\n", 0);
    if (strcmp(word, "commit") == 0) n += snprintf(head + n, sizeof head - (size_t)n, "X-Repo-Commit: %040d\r\n", 0);
    snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    puts_to(fd, head);
    long long left = strcmp(word, "cut") == 0 && number < size - from ? number : size - from;
    lseek(file, from, SEEK_SET);
    while (left > 0) {
        ssize_t got = read(file, piece, left < (long long)sizeof piece ? (size_t)left : sizeof piece);
        if (got <= 0 || !put(fd, piece, (size_t)got)) return;
        left -= got;
        if (strcmp(word, "slow") == 0) usleep(20000);
    }
    if (is_long) puts_to(fd, "and more");
}

static void answer(int fd, const char *request) {
    char method[16], path[2048], range[64], authorization[512], word[32], name[8192], more[4096];
    long number;
    if (sscanf(request, "%15s %2047s", method, path) != 2) return;
    header_find(request, "\r\nRange:", range, sizeof range);
    header_find(request, "\r\nAuthorization:", authorization, sizeof authorization);
    log_put(method, path, range, authorization);
    mode_read(word, &number);
    const bool is_hop = strstr(path, "?hop") != NULL, is_file = strstr(path, "/resolve/") != NULL;
    path[strcspn(path, "?")] = 0;
    if (strcmp(word, "busy") == 0 && number > 0) {
        mode_write(word, number - 1);
        status_put(fd, 503, "");
        return;
    }
    if (strcmp(word, "status") == 0) {
        status_put(fd, number, "X-Error-Message: as the test wants it\r\n");
        return;
    }
    if (is_file && strcmp(word, "mute") == 0) sleep(60);
    if (is_file && !is_hop &&
        (strcmp(word, "redirect") == 0 || strcmp(word, "hop") == 0 || strcmp(word, "loop") == 0 ||
         strcmp(word, "down") == 0)) {
        if (strcmp(word, "redirect") == 0)
            snprintf(more, sizeof more, "Location: http://127.0.0.1:%s%s\r\n", other_port, path);
        else if (strcmp(word, "down") == 0)
            snprintf(more, sizeof more, "Location: http://user@127.0.0.1:%s%s\r\n", other_port, path);
        else
            snprintf(more, sizeof more, "Location: %s%s\r\n", path, strcmp(word, "hop") == 0 ? "?hop" : "");
        status_put(fd, 302, more);
        return;
    }
    snprintf(name, sizeof name, "%s%s", folder, path);
    int file = strstr(path, "..") ? -1 : open(name, O_RDONLY);
    struct stat st;
    if (file < 0 || fstat(file, &st) != 0 || !S_ISREG(st.st_mode)) {
        status_put(fd, 404, "");
        return;
    }
    file_put(fd, file, range, is_file ? word : "ok", number);
    close(file);
}

static bool request_read(int fd, char *out, size_t cap) {
    size_t len = 0;
    while (len + 1 < cap) {
        ssize_t n = recv(fd, out + len, cap - 1 - len, 0);
        if (n <= 0) return false;
        len += (size_t)n;
        out[len] = 0;
        if (strstr(out, "\r\n\r\n")) return true;
    }
    return false;
}

int main(int argc, char **argv) {
    static char request[65536];
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    if (argc < 2) return 2;
    folder = argv[1];
    if (argc > 2) other_port = argv[2];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) != 0)
        return 8;
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    signal(SIGCHLD, SIG_IGN);
    alarm(120);
    for (;;) {
        int c = accept(fd, NULL, NULL);
        if (c < 0) continue;
        if (fork() == 0) { // one process for each connection: slow ones hold up nobody
            alarm(60);
            close(fd);
            if (request_read(c, request, sizeof request)) answer(c, request);
            _exit(0);
        }
        close(c);
    }
}
