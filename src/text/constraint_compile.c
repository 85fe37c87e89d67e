// A constraint: its source compiled to a grammar, and the memory that masks are made and kept in. Everything is
// allocated here, so that steps allocate nothing.
#include "base/base.h"
#include "text/constraint_state_int.h"

int32_t constraint_rule(struct grammar_builder *b, const struct constraint_source *src, struct buf *note) {
    size_t bytes_max = src->kind == CONSTRAINT_TOOL_CALL ? CONSTRAINT_TOOLS_BYTES_MAX : CONSTRAINT_BYTES_MAX;
    if (src->spec.len > bytes_max) {
        GRAMMAR_FAIL(b, TERN_LIMIT, "the constraint has %zu bytes; at most %zu are allowed", src->spec.len, bytes_max);
        return GRAMMAR_NONE;
    }
    switch (src->kind) {
    case CONSTRAINT_JSON_SCHEMA: return schema_rule(b, src->spec, note);
    case CONSTRAINT_JSON_OBJECT: return schema_object_rule(b);
    case CONSTRAINT_GBNF: return gbnf_rule(b, src->spec);
    case CONSTRAINT_REGEX: return regex_rule(b, src->spec);
    case CONSTRAINT_CHOICE: return choice_rule(b, src->spec);
    case CONSTRAINT_TOOL_CALL: return tool_call_rule(b, src, note);
    }
    GRAMMAR_FAIL(b, TERN_INVALID_ARGUMENT, "there is no constraint of kind %d", (int)src->kind);
    return GRAMMAR_NONE;
}

static enum tern_status grammar_compile(struct constraint *c, const struct constraint_source *src,
                                        struct tern_err *err) {
    struct grammar_builder b = {.g = c->grammar, .err = err, .bytes = src->trie->bytes};
    c->grammar->root = constraint_rule(&b, src, &c->note);
    if (b.status == TERN_OK) grammar_finish(&b);
    return b.status;
}

// One block: the sets of heavy nodes, the kept masks, and the work of a walk. Most of it is never touched.
static bool memory_create(struct constraint *c) {
    size_t n_vocab = c->n_words * 32, words = c->n_words * sizeof(uint32_t);
    size_t pops = ((size_t)c->trie->n + 511) / 512 * 64, ends = HEAVY_ENDS_MAX * sizeof(struct heavy_end);
    size_t frames = FRAMES_WORK_MAX * sizeof(struct frame), configs = CONFIGS_WORK_MAX * sizeof(struct config);
    c->memory_bytes = frames + configs + HEAVY_SETS * (ends + words + n_vocab + pops) + MASKS_KEPT * words;
    char *p = c->memory = mem_alloc(c->memory_bytes);
    if (!p) return false;
    c->work = (struct stepper){.g = c->grammar, .cap = CONFIGS_WORK_MAX};
    c->work.frames.items = (struct frame *)p;
    c->work.frames.cap = FRAMES_WORK_MAX;
    frames_clear(&c->work.frames);
    p += frames;
    c->work.configs = (struct config *)p;
    p += configs;
    for (int i = 0; i < HEAVY_SETS; i++, p += ends) c->heavy[i].ends = (struct heavy_end *)p;
    for (int i = 0; i < MASKS_KEPT; i++, p += words) c->kept[i].words = (uint32_t *)p;
    for (int i = 0; i < HEAVY_SETS; i++) {
        struct heavy_set *h = &c->heavy[i];
        h->node = GRAMMAR_NONE;
        h->words = (uint32_t *)p;
        h->counts = (uint8_t *)p + words;
        h->pops = (uint8_t *)p + words + n_vocab;
        p += words + n_vocab + pops;
    }
    return true;
}

enum tern_status constraint_create(struct constraint **out, const struct constraint_source *src, struct tern_err *err) {
    struct constraint *c = mem_calloc(1, sizeof *c);
    if (!c) return err_set(err, TERN_NO_MEMORY, "no memory for a constraint");
    enum tern_status status = TERN_NO_MEMORY;
    buf_init(&c->note, CONSTRAINT_NOTE_MAX);
    c->tokenizer = src->tokenizer;
    c->trie = src->trie;
    c->n_words = ((size_t)src->trie->n_vocab + 31) / 32;
    c->grammar = mem_calloc(1, sizeof *c->grammar);
    c->mutex = mutex_create();
    c->n_eos = src->n_eos;
    c->eos = mem_dup(src->eos, (size_t)src->n_eos * sizeof *src->eos);
    if (!c->grammar || !c->mutex || !c->eos || !memory_create(c)) {
        status = err_set(err, TERN_NO_MEMORY, "no memory for a constraint");
    } else {
        c->grammar->depth_max = CONSTRAINT_NESTING_MAX;
        status = grammar_compile(c, src, err);
    }
    if (status != TERN_OK) {
        constraint_free(c);
        return status;
    }
    masks_warm(c);
    *out = c;
    return TERN_OK;
}

void constraint_free(struct constraint *c) {
    if (!c) return;
    grammar_free(c->grammar);
    mem_free(c->eos);
    mem_free(c->memory);
    mutex_free(c->mutex);
    buf_release(&c->note);
    mem_free(c);
}

const char *constraint_note(const struct constraint *c) { return c->note.len > 0 ? c->note.data : NULL; }

void constraint_owner_set(struct constraint *c, void *owner) { c->owner = owner; }
void *constraint_owner(const struct constraint *c) { return c->owner; }

struct constraint_info constraint_info(const struct constraint *c) {
    return (struct constraint_info){.n_nodes = (int)c->grammar->n_nodes,
                                    .n_rules = (int)c->grammar->n_rules,
                                    .bytes = grammar_bytes(c->grammar),
                                    .bytes_all = sizeof *c + grammar_bytes(c->grammar) + c->memory_bytes,
                                    .n_masks = c->n_masks,
                                    .n_masks_kept = c->n_kept_hits};
}
