// The one checked tensor table: whatever a file says about a tensor passes table_add() and table_check_ranges() before
// anyone reads a byte of it.
//
// Sizes are formed here only, with checked arithmetic: values = product of the dimensions, bytes = row bytes * rows.
// Ranges are compared with the file's length (nothing is found out at the first touch of a page), and no two tensors
// share a byte, so a drop or a re-pack of one never harms another.
#include "base/base.h"
#include "model/model_int.h"

enum tern_status table_reserve(struct model_source *s, int n, struct tern_err *err) {
    if (n > MODEL_TENSORS_MAX - s->n_tensors)
        return err_set(err, TERN_LIMIT, "%d tensors, at most %d are read", s->n_tensors + n, MODEL_TENSORS_MAX);
    int cap = s->n_tensors + n;
    if (cap > s->n_tensors_cap) {
        struct tensor *grown;
        TRY(source_alloc(s, &grown, (size_t)cap, sizeof(*grown), err));
        if (s->n_tensors) memcpy(grown, s->tensors, (size_t)s->n_tensors * sizeof(*grown));
        s->tensors = grown;
        s->n_tensors_cap = cap;
    }
    if (!name_index_init(&s->index, &s->arena, (size_t)cap, s->tensors, sizeof(*s->tensors)))
        return err_set(err, TERN_NO_MEMORY, "out of memory for an index of %d tensors", cap);
    for (int i = 0; i < s->n_tensors; i++) name_index_add(&s->index, (uint32_t)i);
    return TERN_OK;
}

enum tern_status table_rename(struct model_source *s, const char *from, const char *to, struct tern_err *err) {
    struct str head = str_from(from), put = str_from(to);
    for (int i = 0; i < s->n_tensors; i++) {
        struct tensor *t = &s->tensors[i];
        if (!str_starts(t->name, head)) continue;
        size_t rest = t->name.len - head.len;
        char *name;
        TRY(source_alloc(s, &name, put.len + rest + 1, 1, err));
        memcpy(name, put.data, put.len);
        memcpy(name + put.len, t->name.data + head.len, rest);
        t->name = (struct str){name, put.len + rest};
    }
    if (!name_index_init(&s->index, &s->arena, (size_t)s->n_tensors_cap, s->tensors, sizeof(*s->tensors)))
        return err_set(err, TERN_NO_MEMORY, "out of memory for an index of %d tensors", s->n_tensors);
    for (int i = 0; i < s->n_tensors; i++)
        if (name_index_add(&s->index, (uint32_t)i) >= 0)
            return err_set(err, TERN_BAD_FORMAT, "the tensor %.*s is there twice, once under %s",
                           SHOW(s->tensors[i].name), from);
    return TERN_OK;
}

enum tern_status name_check(struct str name, size_t len_max, const char *what, int64_t pos, struct tern_err *err) {
    if (name.len == 0) return err_set_at(err, TERN_BAD_FORMAT, pos, "%s is empty", what);
    if (name.len > len_max)
        return err_set_at(err, TERN_LIMIT, pos, "%s has %zu bytes, at most %zu are allowed", what, name.len, len_max);
    size_t bad;
    if (!utf8_valid(name, &bad))
        return err_set_at(err, TERN_BAD_FORMAT, pos + (int64_t)bad, "%s is not valid UTF-8 (byte %zu of it)", what,
                          bad);
    for (size_t i = 0; i < name.len; i++) {
        unsigned char c = (unsigned char)name.data[i];
        if (c < 0x20 || c == 0x7f)
            return err_set_at(err, TERN_BAD_FORMAT, pos, "%s holds the control byte 0x%02x", what, c);
    }
    return TERN_OK;
}

enum tern_status table_entry_bytes(const struct table_entry *e, uint64_t *n_bytes, struct tern_err *err) {
    const struct format_info *info = &format_table[e->format];
    uint64_t rows = 1;
    for (int i = 0; i < e->n_dims; i++) {
        if (e->ne[i] > INT64_MAX)
            return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s: dimension %d is %llu, more than 2^63 - 1",
                              SHOW(e->name), i, (unsigned long long)e->ne[i]);
        if (i > 0 && !u64_mul(rows, e->ne[i], &rows))
            return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s: the product of its dimensions overflows",
                              SHOW(e->name));
    }
    uint64_t n_row = e->n_dims ? e->ne[0] : 1, n_values, row_bytes;
    if (!u64_mul(n_row, rows, &n_values) || n_values > INT64_MAX)
        return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s: the product of its dimensions overflows",
                          SHOW(e->name));
    if (n_row % (uint64_t)info->n_block != 0)
        return err_set_at(err, TERN_BAD_FORMAT, e->pos,
                          "tensor %.*s: rows of %llu values are no multiple of the block of %d values of %s",
                          SHOW(e->name), (unsigned long long)n_row, info->n_block, info->name);
    if (!format_row_bytes(e->format, n_row, &row_bytes) || !u64_mul(row_bytes, rows, n_bytes) || *n_bytes > INT64_MAX)
        return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s: its size in bytes overflows", SHOW(e->name));
    return TERN_OK;
}

enum tern_status table_add(struct model_source *s, const struct table_entry *e, struct tern_err *err) {
    if (s->n_tensors == s->n_tensors_cap) TERN_BUG("tensor table of %d is full", s->n_tensors_cap);
    const struct model_file *f = &s->files[e->shard];
    uint64_t n_bytes, end;
    TRY(table_entry_bytes(e, &n_bytes, err));
    uint64_t n_data = f->size > f->header_len ? f->size - f->header_len : 0;
    if (!u64_add(e->offset, n_bytes, &end))
        return err_set_at(err, TERN_BAD_FORMAT, e->pos, "tensor %.*s: offset %llu plus %llu bytes overflows",
                          SHOW(e->name), (unsigned long long)e->offset, (unsigned long long)n_bytes);
    if (end > n_data)
        return err_set_at(err, TERN_BAD_FORMAT, e->pos,
                          "tensor %.*s ends at byte %llu of the data, but the file holds %llu: %llu bytes are missing "
                          "(truncated download?)",
                          SHOW(e->name), (unsigned long long)end, (unsigned long long)n_data,
                          (unsigned long long)(end - n_data));
    struct tensor *t = &s->tensors[s->n_tensors];
    *t = (struct tensor){.name = e->name,
                         .format = e->format,
                         .n_dims = MAX(e->n_dims, 1),
                         .n_bytes = n_bytes,
                         .shard = e->shard,
                         .is_codes = e->is_codes};
    for (int i = 0; i < MODEL_DIMS_MAX; i++) t->ne[i] = i < e->n_dims ? (int64_t)e->ne[i] : 1;
    t->data = f->data + f->header_len + e->offset;
    int64_t same = name_index_add(&s->index, (uint32_t)s->n_tensors);
    if (same >= 0)
        return err_set_at(err, TERN_BAD_FORMAT, e->pos, "duplicate tensor name %.*s (tensors %lld and %d)",
                          SHOW(e->name), (long long)same, s->n_tensors);
    s->n_tensors++;
    return TERN_OK;
}

const struct tensor *table_find(const struct model_source *s, struct str name) {
    int64_t i = name_index_find(&s->index, name);
    return i < 0 ? NULL : &s->tensors[i];
}

// Sorts indices by the tensors' place: heap sort, so that a hostile order costs n log n and no stack. A zero-size
// tensor comes before one that begins at the same byte.
static bool place_less(const struct tensor *t, uint32_t a, uint32_t b) {
    if (t[a].data != t[b].data) return t[a].data < t[b].data;
    return t[a].n_bytes < t[b].n_bytes;
}

static void heap_sift(uint32_t *order, size_t i, size_t n, const struct tensor *t) {
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n) return;
        if (child + 1 < n && place_less(t, order[child], order[child + 1])) child++;
        if (!place_less(t, order[i], order[child])) return;
        uint32_t swap = order[i];
        order[i] = order[child];
        order[child] = swap;
        i = child;
    }
}

static void order_sort(uint32_t *order, size_t n, const struct tensor *t) {
    bool sorted = true;
    for (size_t i = 1; i < n && sorted; i++) sorted = !place_less(t, order[i], order[i - 1]);
    if (sorted) return;
    for (size_t i = n / 2; i-- > 0;) heap_sift(order, i, n, t);
    for (size_t end = n; end-- > 1;) {
        uint32_t swap = order[0];
        order[0] = order[end];
        order[end] = swap;
        heap_sift(order, 0, end, t);
    }
}

static enum tern_status ranges_walk(const struct model_source *s, const uint32_t *order, size_t n, const uint8_t *begin,
                                    const uint8_t *end, bool dense, struct tern_err *err) {
    const uint8_t *used = begin;
    const struct tensor *before = NULL;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *t = &s->tensors[order[i]];
        if (t->data < used)
            return err_set(err, TERN_BAD_FORMAT, "tensors %.*s and %.*s overlap by %lld bytes", SHOW(before->name),
                           SHOW(t->name), (long long)MIN(used - t->data, (ptrdiff_t)t->n_bytes));
        if (dense && t->data != used)
            return err_set(err, TERN_BAD_FORMAT, "a hole of %lld bytes before tensor %.*s: data must be contiguous",
                           (long long)(t->data - used), SHOW(t->name));
        used = t->data + t->n_bytes;
        if (t->n_bytes) before = t;
    }
    if (dense && used != end)
        return err_set(err, TERN_BAD_FORMAT, "%lld bytes after the last tensor: data must end with the file",
                       (long long)(end - used));
    return TERN_OK;
}

enum tern_status table_check_ranges(struct model_source *s, int shard, int first, enum source_kind kind,
                                    struct tern_err *err) {
    const struct model_file *f = &s->files[shard];
    size_t n = (size_t)(s->n_tensors - first);
    struct arena_mark mark = arena_mark_get(&s->arena);
    uint32_t *order = arena_alloc(&s->arena, MAX(n, 1) * sizeof(*order));
    if (!order) return err_set(err, TERN_NO_MEMORY, "out of memory for the order of %zu tensors", n);
    for (size_t i = 0; i < n; i++) order[i] = (uint32_t)first + (uint32_t)i;
    order_sort(order, n, s->tensors);
    enum tern_status status = ranges_walk(s, order, n, f->data + MIN(f->header_len, f->size), f->data + f->size,
                                          kind == SOURCE_SAFETENSORS, err);
    arena_mark_reset(&s->arena, mark);
    return status;
}
