// One place in a constrained text: a set of configurations with the stacks they need, in memory of its own. Advancing
// allocates nothing; a copy is one block.
#include "base/base.h"
#include "text/constraint_state_int.h"

static struct constraint_state *state_new(struct constraint *c) {
    size_t frames = FRAMES_STATE_MAX * sizeof(struct frame), configs = 2 * CONFIGS_MAX * sizeof(struct config);
    struct constraint_state *s = mem_alloc(sizeof *s + frames + configs);
    if (!s) return NULL;
    s->of = c;
    s->step.g = c->grammar;
    s->step.frames.cap = FRAMES_STATE_MAX;
    s->step.cap = 2 * CONFIGS_MAX;
    s->step.frames.items = (struct frame *)(s + 1);
    s->step.configs = (struct config *)((char *)(s + 1) + frames);
    return s;
}

struct constraint_state *constraint_state_create(struct constraint *c) {
    struct constraint_state *s = state_new(c);
    if (!s) return NULL;
    const struct g_rule *r = &c->grammar->rules[c->grammar->root];
    frames_clear(&s->step.frames);
    s->at = (struct config_set){0};
    stepper_add(&s->step, &s->at, (struct config){.node = r->start, .left = r->max, .need = r->min, .frame = -1});
    return s;
}

struct constraint_state *constraint_state_clone(const struct constraint_state *from) {
    struct constraint_state *s = state_new(from->of);
    if (!s) return NULL;
    s->at = from->at;
    s->step.frames.n = from->step.frames.n;
    memcpy(s->step.frames.heads, from->step.frames.heads, sizeof s->step.frames.heads);
    memcpy(s->step.frames.items, from->step.frames.items, (size_t)from->step.frames.n * sizeof(struct frame));
    memcpy(s->step.configs, from->step.configs, (size_t)from->at.n * sizeof(struct config));
    return s;
}

struct constraint *constraint_of(const struct constraint_state *s) {
    return s->of;
}

void constraint_state_free(struct constraint_state *s) { mem_free(s); }

// Frames that no configuration stands on are dropped. Parents come before what stands on them.
static void frames_compact(struct constraint_state *s) {
    struct frames *f = &s->step.frames;
    int32_t moved[FRAMES_STATE_MAX];
    bool live[FRAMES_STATE_MAX] = {false};
    for (int i = 0; i < s->at.n; i++)
        for (int32_t k = s->step.configs[i].frame; k >= 0 && !live[k]; k = f->items[k].parent) live[k] = true;
    int n = f->n;
    frames_clear(f);
    for (int i = 0; i < n; i++) {
        if (!live[i]) continue;
        struct frame x = f->items[i];
        moved[i] = frames_push(f, x.parent < 0 ? -1 : moved[x.parent], x.to, x.left, x.need);
    }
    for (int i = 0; i < s->at.n; i++) {
        int32_t *frame = &s->step.configs[i].frame;
        if (*frame >= 0) *frame = moved[*frame];
    }
}

// The set that follows, at the front again. False: nothing follows.
static bool state_take(struct constraint_state *s, const struct config_set *next) {
    if (next->n == 0 && !next->finished) return false;
    memmove(s->step.configs, s->step.configs + next->first, (size_t)next->n * sizeof(struct config));
    s->at = (struct config_set){.n = next->n, .finished = next->finished};
    if (s->step.frames.n > FRAMES_STATE_MAX / 2) frames_compact(s);
    return true;
}

bool constraint_put(struct constraint_state *s, struct str bytes) {
    for (size_t i = 0; i < bytes.len; i++) {
        struct config_set next = stepper_byte(&s->step, &s->at, s->at.n, (uint8_t)bytes.data[i]);
        if (!state_take(s, &next)) return false;
    }
    return true;
}

bool constraint_may_end(const struct constraint_state *s) { return s->at.finished; }

bool constraint_advance(struct constraint_state *s, int32_t id) {
    const struct constraint *c = s->of;
    if (id < 0 || id >= c->trie->n_vocab) return false;
    for (int i = 0; i < c->n_eos; i++)
        if (id == c->eos[i]) return s->at.finished;
    if (c->trie->usable[id]) return constraint_put(s, tokenizer_token_bytes(c->tokenizer, id));
    struct config_set next = {.first = s->at.n};
    for (int i = 0; i < s->at.n; i++) {
        struct config at = s->step.configs[i];
        const struct g_node *n = &c->grammar->nodes[at.node];
        for (int k = 0; k < n->n_tokens; k++) {
            if (c->grammar->tokens[n->tokens + k].id != id) continue;
            at.node = c->grammar->tokens[n->tokens + k].to;
            stepper_add(&s->step, &next, at);
        }
    }
    return state_take(s, &next);
}
