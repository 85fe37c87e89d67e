// Reads what tools/coreai/make_template.py says of a template. It comes from outside, so nothing in it is believed:
// counts are limited, blocks must ascend inside the program, names are compared with the model's later.
#include "unit/npu/coreai_int.h"

#define TEMPLATE_KEYS "format, lists, skeleton, asset_version, bytes, blocks"

static enum tern_status text_take(struct json *j, char *out, size_t cap, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_STRING, &item, what, err));
    if (item.text.len >= cap) return err_set(err, TERN_BAD_FORMAT, "'%s' is longer than %zu bytes", what, cap - 1);
    if (memchr(item.text.data, 0, item.text.len) != NULL)
        return err_set(err, TERN_BAD_FORMAT, "'%s' holds a zero byte", what);
    memcpy(out, item.text.data, item.text.len);
    out[item.text.len] = 0;
    return TERN_OK;
}

static enum tern_status number_take(struct json *j, uint64_t *out, const char *what, struct tern_err *err) {
    struct json_item item;
    TRY(json_expect(j, JSON_NUMBER, &item, what, err));
    if (!item.is_int || item.integer < 0) return err_set(err, TERN_BAD_FORMAT, "'%s' is no whole number", what);
    *out = (uint64_t)item.integer;
    return TERN_OK;
}

static enum tern_status digest_take(struct json *j, char out[COREAI_DIGEST_LEN + 1], const char *what,
                                    struct tern_err *err) {
    TRY(text_take(j, out, COREAI_DIGEST_LEN + 1, what, err));
    if (strspn(out, "0123456789abcdef") == COREAI_DIGEST_LEN) return TERN_OK;
    return err_set(err, TERN_BAD_FORMAT, "'%s' is no SHA-256 in hex", what);
}

static enum tern_status part_take(struct json *j, enum coreai_part *out, struct tern_err *err) {
    static const char *const names[] = {[COREAI_Q] = "q", [COREAI_SCALE] = "scale", [COREAI_HALF] = "half"};
    char text[16];
    TRY(text_take(j, text, sizeof text, "part", err));
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum coreai_part)i;
            return TERN_OK;
        }
    return err_set(err, TERN_BAD_FORMAT, "part '%s' is none of q, scale, half", text);
}

// After the object's opening brace.
static enum tern_status block_take(struct coreai_template *t, struct json *j, struct coreai_block *b,
                                   struct tern_err *err) {
    struct json_item item;
    char name[NPU_NAME_MAX * 2] = "";
    int seen = 0;
    while (json_next(j, &item, err) == JSON_KEY) {
        seen++;
        if (str_eqz(item.text, "name"))
            TRY(text_take(j, name, sizeof name, "name", err));
        else if (str_eqz(item.text, "part"))
            TRY(part_take(j, &b->part, err));
        else if (str_eqz(item.text, "offset"))
            TRY(number_take(j, &b->offset, "offset", err));
        else if (str_eqz(item.text, "bytes"))
            TRY(number_take(j, &b->bytes, "bytes", err));
        else
            return err_set(err, TERN_BAD_FORMAT, "a block has an unknown key");
    }
    if (item.event == JSON_ERROR) return err ? err->code : TERN_BAD_FORMAT;
    if (seen != 4 || name[0] == 0) return err_set(err, TERN_BAD_FORMAT, "a block needs name, part, offset and bytes");
    b->name = arena_dup(&t->arena, name, strlen(name));
    return b->name ? TERN_OK : err_set(err, TERN_NO_MEMORY, "no memory for a template");
}

static enum tern_status blocks_take(struct coreai_template *t, struct json *j, struct tern_err *err) {
    struct json_item item;
    int cap = 0;
    TRY(json_expect(j, JSON_ARRAY, &item, "blocks", err));
    while (json_next(j, &item, err) == JSON_OBJECT) {
        if (t->n_blocks == COREAI_BLOCKS_MAX) return err_set(err, TERN_LIMIT, "more than %d blocks", COREAI_BLOCKS_MAX);
        if (t->n_blocks == cap) {
            int more = MAX(256, 2 * cap);
            struct coreai_block *bigger = arena_calloc(&t->arena, (size_t)more, sizeof *bigger);
            if (!bigger) return err_set(err, TERN_NO_MEMORY, "no memory for a template");
            if (t->n_blocks > 0) memcpy(bigger, t->blocks, (size_t)t->n_blocks * sizeof *bigger);
            t->blocks = bigger;
            cap = more;
        }
        TRY(block_take(t, j, &t->blocks[t->n_blocks], err));
        t->n_blocks++;
    }
    if (item.event == JSON_ERROR) return err ? err->code : TERN_BAD_FORMAT;
    return item.event == JSON_ARRAY_END ? TERN_OK : err_set(err, TERN_BAD_FORMAT, "'blocks' holds no objects alone");
}

static enum tern_status key_take(struct coreai_template *t, struct json *j, struct str key, uint64_t *format,
                                 unsigned *seen, struct tern_err *err) {
    static const char *const names[] = {"format", "lists", "skeleton", "asset_version", "bytes", "blocks"};
    size_t i = 0;
    while (i < ARRAY_LEN(names) && !str_eqz(key, names[i])) i++;
    if (i < ARRAY_LEN(names)) *seen |= 1u << i;
    switch (i) {
    case 0: return number_take(j, format, names[i], err);
    case 1: return digest_take(j, t->lists, names[i], err);
    case 2: return digest_take(j, t->skeleton, names[i], err);
    case 3: return text_take(j, t->asset_version, sizeof t->asset_version, names[i], err);
    case 4: return number_take(j, &t->bytes, names[i], err);
    case 5: return blocks_take(t, j, err);
    default: return json_skip(j, err); // for people
    }
}

static enum tern_status blocks_check(const struct coreai_template *t, struct tern_err *err) {
    uint64_t at = 0;
    for (int i = 0; i < t->n_blocks; i++) {
        uint64_t end;
        if (t->blocks[i].offset < at || t->blocks[i].bytes == 0 ||
            !u64_add(t->blocks[i].offset, t->blocks[i].bytes, &end))
            return err_set(err, TERN_BAD_FORMAT, "block %d (%s) does not follow the one before", i, t->blocks[i].name);
        at = end;
    }
    if (at > t->bytes)
        return err_set(err, TERN_BAD_FORMAT, "the blocks end at byte %llu of %llu", (unsigned long long)at,
                       (unsigned long long)t->bytes);
    return TERN_OK;
}

enum tern_status coreai_template_parse(struct coreai_template *t, struct str text, const char *name,
                                       struct tern_err *err) {
    struct json *j = NULL;
    struct json_options options = {.size_max = COREAI_TEMPLATE_TEXT_MAX, .dup_check = true};
    struct json_item item;
    uint64_t format = 0;
    unsigned seen = 0;
    enum tern_status status;
    *t = (struct coreai_template){0};
    arena_init(&t->arena, 0);
    TRY_GOTO(json_create(&j, text, &options, err), done);
    TRY_GOTO(json_expect(j, JSON_OBJECT, &item, "a template", err), done);
    while (json_next(j, &item, err) == JSON_KEY) TRY_GOTO(key_take(t, j, item.text, &format, &seen, err), done);
    if (item.event == JSON_OBJECT_END) json_next(j, &item, err);
    if (item.event != JSON_END)
        status = err ? err->code : TERN_BAD_FORMAT;
    else if (seen != 63)
        status = err_set(err, TERN_BAD_FORMAT, "a template needs " TEMPLATE_KEYS);
    else if (format != COREAI_TEMPLATE_FORMAT)
        status = err_set(err, TERN_UNSUPPORTED, "template of format %llu; this tern reads %d",
                         (unsigned long long)format, COREAI_TEMPLATE_FORMAT);
    else
        status = blocks_check(t, err);
done:
    json_free(j);
    if (status != TERN_OK) err_prefix(err, "%s", name);
    return status;
}

void coreai_template_release(struct coreai_template *t) { arena_release(&t->arena); }
