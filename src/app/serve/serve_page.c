// GET / and /web/…: the chat page, from the program itself. It may load and ask only what this server gives: the policy
// forbids other hosts, inline script and style, and being framed. The page holds nothing secret, so it needs no key;
// what it asks for does.
#include "base/base.h"
#include "serve.h"

#define PAGE_FILE(name) extern const unsigned char tern_page_##name##_begin[], tern_page_##name##_end[];
PAGE_FILE(html)
PAGE_FILE(css)
PAGE_FILE(main)
PAGE_FILE(markdown)
PAGE_FILE(stream)
PAGE_FILE(tree)
PAGE_FILE(icon)
#undef PAGE_FILE

#define PAGE_FILE(path, type, name) \
    { path, type, tern_page_##name##_begin, tern_page_##name##_end }
static const struct page_file {
    const char *path, *type;
    const unsigned char *begin, *end;
} files[] = {
    PAGE_FILE("page.css", "text/css; charset=utf-8", css),
    PAGE_FILE("page_main.js", "text/javascript; charset=utf-8", main),
    PAGE_FILE("page_markdown.js", "text/javascript; charset=utf-8", markdown),
    PAGE_FILE("page_stream.js", "text/javascript; charset=utf-8", stream),
    PAGE_FILE("page_tree.js", "text/javascript; charset=utf-8", tree),
    PAGE_FILE("icon.svg", "image/svg+xml", icon),
};
static const struct page_file page = PAGE_FILE("", "text/html; charset=utf-8", html);

static const struct net_header headers[] = {
    {"Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
                                "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Opener-Policy", "same-origin"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
    {"Cache-Control", "no-cache"}};

static void file_answer(struct net_request *r, const struct page_file *f) {
    net_answer(r, &(struct net_answer){.status = 200,
                                       .type = f->type,
                                       .body = {(const char *)f->begin, (size_t)(f->end - f->begin)},
                                       .headers = headers,
                                       .n_headers = (int)ARRAY_LEN(headers)});
}

void serve_page(struct serve *s, struct net_request *r) {
    (void)s;
    file_answer(r, &page);
}

void serve_page_file(struct serve *s, struct net_request *r) {
    (void)s;
    const struct str name = serve_call_of(r)->rest;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (str_eqz(name, files[i].path)) {
            file_answer(r, &files[i]);
            return;
        }
    serve_failf(r, 404, NULL, "unknown_route", "no such file of the page");
}
