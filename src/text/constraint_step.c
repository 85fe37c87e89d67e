// Steps of the pushdown automaton: sets of configurations over shared stacks.
//
// Stacks are linked frames in a pool, each frame once (a hash chain finds it), so equal stacks are equal numbers and
// configurations that have become the same are one. The pool is used like a stack: a walk over the trie drops what it
// pushed when it goes back.
#include "base/base.h"
#include "text/constraint_int.h"

#define LINEAR_EDGES 4

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0x9E3779B97F4A7C15ull;
    return h ^ (h >> 29);
}

static uint64_t frame_hash(const struct frames *f, int32_t parent, int32_t to, uint32_t left, uint32_t need) {
    uint64_t h = parent < 0 ? 0x51ED270B7F4A7C15ull : f->items[parent].hash;
    return mix(mix(h, (uint64_t)(uint32_t)to << 32 | left), need);
}

uint64_t config_hash(const struct frames *f, const struct config *c) {
    uint64_t h = c->frame < 0 ? 1 : f->items[c->frame].hash;
    return mix(mix(h, (uint64_t)(uint32_t)c->node << 32 | c->left), c->need + 1ull);
}

void frames_clear(struct frames *f) {
    f->n = 0;
    memset(f->heads, 0xff, sizeof f->heads);
}

int32_t frames_push(struct frames *f, int32_t parent, int32_t to, uint32_t left, uint32_t need) {
    uint64_t hash = frame_hash(f, parent, to, left, need);
    int16_t *head = &f->heads[hash & (FRAMES_BUCKETS - 1)];
    for (int32_t i = *head; i >= 0; i = f->items[i].next) {
        const struct frame *o = &f->items[i];
        if (o->hash == hash && o->parent == parent && o->to == to && o->left == left && o->need == need) return i;
    }
    if (f->n == f->cap) return GRAMMAR_NONE;
    f->items[f->n] = (struct frame){.to = to,
                                    .parent = parent,
                                    .left = left,
                                    .need = need,
                                    .next = *head,
                                    .depth = parent < 0 ? 1 : f->items[parent].depth + 1,
                                    .hash = hash};
    *head = (int16_t)f->n;
    return f->n++;
}

void frames_cut(struct frames *f, int n) {
    while (f->n > n) {
        f->n--;
        f->heads[f->items[f->n].hash & (FRAMES_BUCKETS - 1)] = (int16_t)f->items[f->n].next;
    }
}

// ---------------------------------------------------------------------------------------------------------- edges

const struct g_edge *grammar_step(const struct grammar *g, int32_t node, uint8_t byte) {
    const struct g_node *n = &g->nodes[node];
    const struct g_edge *e = &g->edges[n->edges];
    if (n->dense >= 0) {
        int k = g->dense[n->dense][byte];
        return k < 0 ? NULL : e + k;
    }
    int k = 0, end = n->n_edges;
    while (end - k > LINEAR_EDGES) { // sorted and disjoint
        int mid = (k + end) / 2;
        if (byte < e[mid].lo)
            end = mid;
        else
            k = mid;
    }
    for (; k < end; k++)
        if (byte >= e[k].lo && byte <= e[k].hi) return e + k;
    return NULL;
}

static bool guard_allows(const struct grammar *g, const struct key_guard *guard, uint32_t at) {
    const struct g_object *o = &g->objects[guard->object];
    const struct g_key *keys = g->keys + o->first_key;
    int32_t stop = at < (uint32_t)o->n_keys ? keys[at].stop : o->n_keys;
    if (guard->closes) return stop == o->n_keys;
    if (guard->generic && stop == o->n_keys) return true;
    const int32_t *list = g->guard_keys + guard->first; // the first at or after `at`
    int32_t lo = 0, hi = guard->n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (list[mid] < (int32_t)at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < guard->n && list[lo] <= stop;
}

bool edge_allows(const struct grammar *g, const struct g_edge *e, const struct config *c) {
    if (e->flags == 0) return true;
    if ((e->flags & (EDGE_COUNT | EDGE_LEFT)) && c->left == 0) return false;
    if ((e->flags & EDGE_MET) && c->need > 0) return false;
    return !(e->flags & EDGE_KEYED) || guard_allows(g, &g->guards[e->guard], c->need);
}

struct config edge_follow(const struct grammar *g, const struct g_edge *e, const struct config *c) {
    struct config to = *c;
    to.node = e->to;
    if (e->flags & EDGE_COUNT) {
        if (to.left != COUNT_FREE) to.left--;
        if (to.need > 0) to.need--;
    }
    if (e->flags & (EDGE_KEY | EDGE_AWAY)) {
        const struct key_guard *guard = &g->guards[e->guard];
        const struct g_object *o = &g->objects[guard->object];
        to.need = guard->n > 0 ? (uint32_t)g->guard_keys[guard->first] + 1 : (uint32_t)o->n_keys;
        if (guard->closes) to.need = 0;
    }
    return to;
}

// ------------------------------------------------------------------------------------------------------------- sets

static bool config_put(struct stepper *s, struct config_set *set, const struct config *c) {
    int depth = c->frame < 0 ? 0 : s->frames.items[c->frame].depth;
    if (depth + s->g->nodes[c->node].height > s->g->depth_max) return true; // no way through from here
    struct config *v = s->configs + set->first;
    for (int i = 0; i < set->n; i++)
        if (v[i].node == c->node && v[i].frame == c->frame && v[i].left == c->left && v[i].need == c->need) return true;
    if (set->n >= CONFIGS_MAX || set->first + set->n >= s->cap) return false;
    v[set->n++] = *c;
    return true;
}

static bool call_follow(struct stepper *s, struct config_set *set, const struct config *c, const struct g_call *call) {
    const struct grammar *g = s->g;
    uint32_t left = c->left, need = c->need;
    if (call->counts) {
        if (left == 0) return true;
        if (left != COUNT_FREE) left--;
        if (need > 0) need--;
    }
    const struct g_node *back = &g->nodes[call->to];
    const struct g_rule *r = &g->rules[call->rule];
    struct config in = {.node = r->start, .left = r->max, .need = r->min, .frame = c->frame};
    bool is_tail = back->accept && need == 0 && !back->n_edges && !back->n_calls && !back->n_tokens;
    if (!is_tail) in.frame = frames_push(&s->frames, c->frame, call->to, left, need);
    return (is_tail || in.frame >= 0) && config_put(s, set, &in);
}

bool stepper_add(struct stepper *s, struct config_set *set, struct config c) {
    const struct grammar *g = s->g;
    bool ok = true;
    int at = set->n;
    ok &= config_put(s, set, &c);
    if (g->nodes[c.node].plain) return ok;
    for (; at < set->n; at++) {
        c = s->configs[set->first + at];
        const struct g_node *n = &g->nodes[c.node];
        for (int k = 0; k < n->n_calls; k++) ok &= call_follow(s, set, &c, &g->calls[n->calls + k]);
        if (!n->accept || c.need > 0) continue;
        if (c.frame < 0) {
            set->finished = true;
            continue;
        }
        const struct frame *f = &s->frames.items[c.frame];
        struct config back = {.node = f->to, .left = f->left, .need = f->need, .frame = f->parent};
        ok &= config_put(s, set, &back);
    }
    return ok;
}

struct config_set stepper_byte(struct stepper *s, const struct config_set *at, int first, uint8_t byte) {
    struct config_set out = {.first = first};
    for (int i = 0; i < at->n; i++) {
        struct config c = s->configs[at->first + i];
        const struct g_edge *e = grammar_step(s->g, c.node, byte);
        if (e && edge_allows(s->g, e, &c)) stepper_add(s, &out, edge_follow(s->g, e, &c));
    }
    return out;
}
