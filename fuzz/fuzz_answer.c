// Fuzz target: the answer parser. The first byte chooses style, reasoning and tools, the rest is the answer, in which
// markers count as control tokens or (a bit of the first byte) as spelled text. Whole, byte by byte or in odd pieces:
// the events must be the same but for where a text is cut, and every call's arguments must be one JSON object.
#include "base/base.h"
#include "text/text.h"

#define LOG_MAX (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct log {
    struct buf text;
    int last;
};

static void check_object(struct str s) {
    struct json *j;
    struct json_item item;
    if (json_create(&j, s, NULL, NULL) != TERN_OK) TERN_BUG("no parser");
    bool object = json_next(j, &item, NULL) == JSON_OBJECT;
    while (item.event != JSON_END && item.event != JSON_ERROR) json_next(j, &item, NULL);
    if (!object || item.event != JSON_END) TERN_BUG("arguments that are no JSON object: %.*s", (int)s.len, s.data);
    json_free(j);
}

static bool take(void *arg, const struct answer_event *ev) {
    struct log *l = arg;
    bool call = ev->type == ANSWER_CALL;
    if (call || l->last != (int)ev->type) buf_putf(&l->text, "\n%d:", (int)ev->type);
    l->last = (int)ev->type;
    if (call) {
        check_object(ev->arguments);
        buf_put(&l->text, ev->name.data, ev->name.len);
        buf_putc(&l->text, ' ');
        buf_put(&l->text, ev->arguments.data, ev->arguments.len);
        return true;
    }
    if (ev->text.len == 0) TERN_BUG("an empty event");
    buf_put(&l->text, ev->text.data, ev->text.len);
    return true;
}

static size_t marker_len(struct str s) {
    static const char *const markers[] = {"<|tool_call_start|>", "<|tool_call_end|>", "<think>",        "</think>",
                                          "<tool_call>",         "</tool_call>",      "<|python_tag|>", "<|im_end|>"};
    for (size_t i = 0; i < ARRAY_LEN(markers); i++)
        if (str_starts(s, str_from(markers[i]))) return strlen(markers[i]);
    return 0;
}

static void parse(struct log *l, const struct answer_options *o, struct str s, bool spelled, size_t piece) {
    struct answer *a;
    *l = (struct log){.last = -1};
    buf_init(&l->text, LOG_MAX);
    if (answer_create(&a, o, NULL) != TERN_OK) TERN_BUG("no answer parser");
    for (size_t pos = 0; pos < s.len;) {
        size_t marker = spelled ? 0 : marker_len((struct str){s.data + pos, s.len - pos}), n = 0;
        while (!marker && pos + n < s.len && n < piece) {
            if (!spelled && marker_len((struct str){s.data + pos + n, s.len - pos - n})) break;
            n++;
        }
        if (answer_put(a, (struct str){s.data + pos, marker ? marker : n}, marker > 0, take, l, NULL) != TERN_OK)
            TERN_BUG("answer_put fails");
        pos += marker ? marker : n;
    }
    if (answer_finish(a, take, l, NULL) != TERN_OK) TERN_BUG("answer_finish fails");
    answer_free(a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    struct answer_options o = {.style = (enum answer_style)(data[0] & 3),
                               .reasoning = (data[0] & 4) != 0,
                               .reasoning_open = (data[0] & 8) != 0,
                               .tools_json =
                                   (data[0] & 16) ? STR("") : STR("[{\"name\":\"f\"},{\"name\":\"get_time\"}]")};
    struct str s = {(const char *)data + 1, size - 1};
    struct log whole, other;
    parse(&whole, &o, s, (data[0] & 32) != 0, SIZE_MAX);
    static const size_t pieces[] = {1, 3, 7};
    for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
        parse(&other, &o, s, (data[0] & 32) != 0, pieces[i]);
        if (!str_eq(buf_str(&whole.text), buf_str(&other.text)))
            TERN_BUG("pieces of %zu give other events:%s\nwhole:%s", pieces[i], other.text.data, whole.text.data);
        buf_release(&other.text);
    }
    buf_release(&whole.text);
    return 0;
}
