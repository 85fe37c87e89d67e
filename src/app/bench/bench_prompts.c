// See bench_prompts.h.
#include "base/base.h"
#include "bench_prompts.h"

#define PROMPT_FILE_MAX (64u << 20)

static const char prompts_own[] =
    "{\"category\": \"chat\", \"messages\": [{\"role\": \"user\", \"content\": \"Explain how rain forms.\"}]}\n"
    "{\"category\": \"story\", \"messages\": [{\"role\": \"user\", \"content\": \"Write a short story about a "
    "fox.\"}]}\n"
    "{\"category\": \"math\", \"messages\": [{\"role\": \"user\", \"content\": \"A box holds 12 eggs. How many eggs "
    "are in 7 "
    "boxes?\"}]}\n"
    "{\"category\": \"code\", \"messages\": [{\"role\": \"user\", \"content\": \"Write a Python function that reverses "
    "a "
    "list.\"}]}\n";

static int category_of(struct prompt_set *s, struct str name) {
    for (int i = 0; i < s->n_categories; i++)
        if (str_eqz(name, s->categories[i])) return i;
    if (s->n_categories == PROMPT_CATEGORIES_MAX || name.len >= sizeof s->categories[0]) return -1;
    memcpy(s->categories[s->n_categories], name.data, name.len);
    return s->n_categories++;
}

static enum tern_status prompt_parse(struct prompt_set *s, struct str line, int number, struct prompt *p,
                                     struct tern_err *err) {
    struct json *j;
    struct json_item item;
    TRY(json_create(&j, line, NULL, err));
    enum tern_status status = json_expect(j, JSON_OBJECT, &item, "a prompt", err);
    *p = (struct prompt){.category = -1};
    while (status == TERN_OK && json_next(j, &item, err) == JSON_KEY) {
        if (str_eqz(item.text, "category")) {
            status = json_expect(j, JSON_STRING, &item, "category", err);
            if (status == TERN_OK) p->category = category_of(s, item.text);
        } else if (str_eqz(item.text, "group")) {
            status = json_expect(j, JSON_STRING, &item, "group", err);
            p->rote = str_eqz(item.text, "rote");
        } else if (str_eqz(item.text, "messages")) {
            status = json_raw(j, &p->messages, err);
        } else if (str_eqz(item.text, "tools")) {
            status = json_raw(j, &p->tools, err);
        } else {
            status = json_skip(j, err);
        }
    }
    if (status == TERN_OK && item.event == JSON_ERROR) status = err->code;
    json_free(j);
    if (str_eqz(p->tools, "null")) p->tools = (struct str){0};
    if (status != TERN_OK) return err_prefix(err, "prompt line %d", number);
    if (p->category < 0 || p->messages.len == 0)
        return err_set(err, TERN_BAD_FORMAT,
                       "prompt line %d: 'category' (at most %d of them) and 'messages' are expected", number,
                       PROMPT_CATEGORIES_MAX);
    return TERN_OK;
}

enum tern_status prompt_set_read(struct prompt_set *s, const char *path, struct tern_err *err) {
    *s = (struct prompt_set){.n = 0};
    buf_init(&s->file, PROMPT_FILE_MAX);
    if (path)
        TRY(file_read_all(&s->file, path, err));
    else if (!buf_puts(&s->file, prompts_own))
        return err_set(err, TERN_NO_MEMORY, "no memory for the prompts");
    s->items = mem_calloc(PROMPTS_MAX, sizeof *s->items);
    if (!s->items) return err_set(err, TERN_NO_MEMORY, "no memory for the prompts");
    struct str text = buf_str(&s->file);
    for (size_t at = 0, number = 1; at < text.len; number++) {
        size_t end = at;
        while (end < text.len && text.data[end] != '\n') end++;
        struct str line = {text.data + at, end - at};
        at = end + 1;
        if (line.len == 0) continue;
        if (s->n == PROMPTS_MAX) return err_set(err, TERN_LIMIT, "more than %d prompts", PROMPTS_MAX);
        TRY(prompt_parse(s, line, (int)number, &s->items[s->n], err));
        s->n++;
    }
    return s->n > 0 ? TERN_OK : err_set(err, TERN_BAD_FORMAT, "no prompts in the file");
}

void prompt_set_thin(struct prompt_set *s, int n) {
    int seen[PROMPT_CATEGORIES_MAX] = {0}, total[PROMPT_CATEGORIES_MAX] = {0}, kept = 0;
    for (int i = 0; i < s->n; i++) total[s->items[i].category]++;
    for (int i = 0; i < s->n; i++) {
        int k = s->items[i].category, at = seen[k]++;
        bool wanted = total[k] <= n || (at + 1) * n / total[k] > at * n / total[k];
        if (wanted) s->items[kept++] = s->items[i];
    }
    s->n = kept;
}

void prompt_set_release(struct prompt_set *s) {
    mem_free(s->items);
    buf_release(&s->file);
}
