// A growable list of token ids. It doubles, so that pushing is constant time on average.
#include "base/base.h"
#include "text/text.h"

void id_list_release(struct id_list *l) {
    mem_free(l->ids);
    *l = (struct id_list){0};
}

bool id_list_push(struct id_list *l, int32_t id) {
    if (l->len == l->cap) {
        size_t cap = MAX(l->cap * 2, (size_t)64), bytes;
        int32_t *ids = size_mul(cap, sizeof *ids, &bytes) ? mem_realloc(l->ids, bytes) : NULL;
        if (!ids) return false;
        l->ids = ids;
        l->cap = cap;
    }
    l->ids[l->len++] = id;
    return true;
}
