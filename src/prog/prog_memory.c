// Where a program's values lie in its work memory. A value lives from the op that first writes it to the last op that
// touches it; two values may share bytes when no op touches both, nor lies between. Offsets are found greedily: largest
// value first, at the lowest 64-byte border where it meets none of the values already placed that live at the same
// time. That is within a few percent of the lower bound (the largest sum of live values) for layer stacks, which
// repeat the same few values, and needs no search.
#include "base/base.h"
#include "prog/prog_int.h"

void prog_lifetimes(const struct prog *p, int *first, int *last) {
    for (int v = 0; v < p->n_values; v++) first[v] = last[v] = PROG_NONE;
    for (int i = 0; i < p->n_ops; i++) {
        const struct prog_op *op = &p->ops[i];
        for (size_t j = 0; j < ARRAY_LEN(op->in) + ARRAY_LEN(op->out); j++) {
            int v = j < ARRAY_LEN(op->in) ? op->in[j] : op->out[j - ARRAY_LEN(op->in)];
            if (v < 0 || v >= p->n_values) continue;
            if (first[v] == PROG_NONE) first[v] = i;
            last[v] = i;
        }
    }
}

bool prog_value_bytes(const struct prog *p, int value, uint64_t *out) {
    uint64_t bytes = 0;
    if (p->values[value].n_cols < 1) return false;
    if (!u64_mul((uint64_t)p->values[value].n_cols * sizeof(float), (uint64_t)p->spec.window, &bytes)) return false;
    if (!u64_add(bytes, PROG_ALIGN - 1, &bytes)) return false;
    *out = bytes & ~(uint64_t)(PROG_ALIGN - 1);
    return true;
}

struct placed {
    uint64_t begin, bytes;
    int value;
};

static bool live_together(const struct prog_value *a, const struct prog_value *b) {
    return a->first_op <= b->last_op && b->first_op <= a->last_op;
}

// Lowest offset for `bytes` bytes of value v beside the values placed so far.
static uint64_t place(const struct prog *p, const struct placed *list, int n, int v, uint64_t bytes) {
    uint64_t at = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            bool meets = at < list[i].begin + list[i].bytes && list[i].begin < at + bytes;
            if (!meets || !live_together(&p->values[v], &p->values[list[i].value])) continue;
            at = list[i].begin + list[i].bytes;
            moved = true;
        }
    }
    return at;
}

// Largest first; of equal ones the earlier value, so that a plan is the same on every machine.
static void sort_by_bytes(struct placed *list, int n) {
    for (int gap = n / 2; gap > 0; gap /= 2)
        for (int i = gap; i < n; i++) {
            struct placed item = list[i];
            int j = i;
            for (; j >= gap; j -= gap) {
                const struct placed *o = &list[j - gap];
                if (o->bytes > item.bytes || (o->bytes == item.bytes && o->value < item.value)) break;
                list[j] = *o;
            }
            list[j] = item;
        }
}

enum tern_status prog_memory_plan(struct prog *p, struct tern_err *err) {
    size_t n = (size_t)p->n_values;
    struct arena scratch;
    arena_init(&scratch, 0);
    int *first = arena_calloc(&scratch, n + 1, sizeof(*first));
    int *last = arena_calloc(&scratch, n + 1, sizeof(*last));
    struct placed *list = arena_calloc(&scratch, n + 1, sizeof(*list));
    enum tern_status status = TERN_OK;
    if (!first || !last || !list) {
        status = err_set(err, TERN_NO_MEMORY, "program: no memory to place its %d values", p->n_values);
        goto done;
    }
    prog_lifetimes(p, first, last);
    uint64_t total = 0; // bounds every sum below
    for (int v = 0; v < p->n_values; v++) {
        p->values[v].first_op = first[v];
        p->values[v].last_op = last[v];
        list[v].value = v;
        if (!prog_value_bytes(p, v, &list[v].bytes) || !u64_add(total, list[v].bytes, &total)) {
            status = err_set(err, TERN_LIMIT, "program: value %s of %d columns and %d rows does not fit 64 bits",
                             p->values[v].name, p->values[v].n_cols, p->spec.window);
            goto done;
        }
    }
    sort_by_bytes(list, p->n_values);
    p->work_bytes = 0;
    for (int i = 0; i < p->n_values; i++) {
        list[i].begin = place(p, list, i, list[i].value, list[i].bytes);
        p->values[list[i].value].offset = list[i].begin;
        p->work_bytes = MAX(p->work_bytes, list[i].begin + list[i].bytes);
    }
done:
    arena_release(&scratch);
    return status;
}
