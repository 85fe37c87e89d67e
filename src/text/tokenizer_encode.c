// Text -> ids: added tokens are cut out in two passes, the rest is split into pieces, and each piece is looked up as a
// whole or merged from its bytes.
#include "base/base.h"
#include "text/tokenizer_int.h"

// One call's working state.
struct encoding {
    const struct tokenizer *t;
    const struct encode_options *options;
    struct str text;
    struct id_list *out;
    struct bpe_work work;
    uint64_t n_steps;
};

static enum tern_status out_of_memory(const struct encoding *e, struct tern_err *err) {
    return err_set(err, TERN_NO_MEMORY, "out of memory while tokenizing a text of %zu bytes", e->text.len);
}

static enum tern_status byte_missing(const struct encoding *e, size_t at, struct tern_err *err) {
    return err_set_at(err, TERN_UNSUPPORTED, (int64_t)at,
                      "byte 0x%02x at offset %zu of the text: this model's vocabulary has no token for it",
                      (unsigned)(uint8_t)e->text.data[at], at);
}

static enum tern_status piece_merge(struct encoding *e, struct str piece, struct tern_err *err) {
    int32_t *ids = bpe_work_reserve(&e->work, piece.len);
    if (!ids) return out_of_memory(e, err);
    for (size_t i = 0; i < piece.len; i++) {
        ids[i] = e->t->byte_id[(uint8_t)piece.data[i]];
        if (ids[i] < 0) {
            return byte_missing(e, (size_t)(piece.data - e->text.data) + i, err);
        }
    }
    int64_t n = bpe_merge(&e->t->bpe, &e->work, piece.len);
    if (n < 0) return out_of_memory(e, err);
    for (int64_t i = 0; i < n; i++) {
        if (!id_list_push(e->out, e->work.ids[i])) return out_of_memory(e, err);
    }
    return TERN_OK;
}

// The same in a vocabulary spelled as text: one piece.
static enum tern_status whole_encode(struct encoding *e, struct str text, struct tern_err *err) {
    size_t bad = 0;
    int32_t *ids = text.len > 0 ? bpe_work_reserve(&e->work, text.len) : NULL;
    if (text.len == 0) return TERN_OK;
    if (!ids) return out_of_memory(e, err);
    int64_t n = plain_symbols(e->t, text, ids, &bad);
    if (n < 0) return byte_missing(e, (size_t)(text.data - e->text.data) + bad, err);
    e->n_steps += text.len;
    n = bpe_merge(&e->t->bpe, &e->work, (size_t)n);
    if (n < 0) return out_of_memory(e, err);
    for (int64_t i = 0; i < n; i++) {
        if (!id_list_push(e->out, e->work.ids[i])) return out_of_memory(e, err);
    }
    return TERN_OK;
}

// text[begin .. end) holds no added tokens.
static enum tern_status plain_encode(struct encoding *e, size_t begin, size_t end, struct tern_err *err) {
    const struct tokenizer *t = e->t;
    if (t->is_plain) return whole_encode(e, (struct str){e->text.data + begin, end - begin}, err);
    struct pretok p;
    struct str piece;
    pretok_init(&p, &t->unicode, t->pretok, (struct str){e->text.data + begin, end - begin});
    while (pretok_next(&p, &piece)) {
        if (piece.len <= t->whole_len_max) {
            int32_t id = tokenizer_map_find(t, piece.data, piece.len);
            if (id >= 0 && t->tokens[id].whole) {
                if (!id_list_push(e->out, id)) return out_of_memory(e, err);
                continue;
            }
        }
        TRY(piece_merge(e, piece, err));
    }
    e->n_steps += p.n_steps;
    return TERN_OK;
}

static struct marker_scan scan_of(const struct encoding *e, int pass, size_t begin, size_t end) {
    return (struct marker_scan){.t = e->t,
                                .set = &e->t->markers[pass],
                                .text = (const uint8_t *)e->text.data,
                                .begin = begin,
                                .end = end,
                                .pos = begin,
                                .done = begin,
                                .options = e->options};
}

// What the first pass left: looks for the markers of the second.
static enum tern_status rest_encode(struct encoding *e, size_t begin, size_t end, int *tainted_next,
                                    struct tern_err *err) {
    if (begin == end) return TERN_OK;
    struct marker_scan scan = scan_of(e, 1, begin, end);
    scan.tainted_next = *tainted_next;
    for (;;) {
        size_t from = scan.done;
        struct marker_match m = {0};
        bool found = marker_scan_next(&scan, &m);
        TRY(plain_encode(e, from, found ? m.begin : end, err));
        if (!found) break;
        if (!id_list_push(e->out, m.marker->id)) return out_of_memory(e, err);
    }
    *tainted_next = scan.tainted_next;
    e->n_steps += scan.n_steps;
    return TERN_OK;
}

static enum tern_status text_encode(struct encoding *e, struct tern_err *err) {
    struct marker_scan scan = scan_of(e, 0, 0, e->text.len);
    int tainted_next = 0;
    for (;;) {
        size_t from = scan.done;
        struct marker_match m = {0};
        bool found = marker_scan_next(&scan, &m);
        TRY(rest_encode(e, from, found ? m.begin : e->text.len, &tainted_next, err));
        if (!found) break;
        if (!id_list_push(e->out, m.marker->id)) return out_of_memory(e, err);
    }
    e->n_steps += scan.n_steps;
    return TERN_OK;
}

enum tern_status tokenizer_encode_counted(const struct tokenizer *t, struct id_list *out, struct str text,
                                          const struct encode_options *o, uint64_t *n_steps, struct tern_err *err) {
    if (text.len > TEXT_INPUT_BYTES_MAX) {
        return err_set(err, TERN_LIMIT, "the text is %zu bytes long, at most %u are tokenized at once", text.len,
                       TEXT_INPUT_BYTES_MAX);
    }
    struct encoding e = {.t = t, .options = o, .text = text, .out = out};
    size_t len_before = out->len;
    enum tern_status status = TERN_OK;
    if (o->add_bos) {
        if (t->bos < 0) {
            return err_set(err, TERN_INVALID_ARGUMENT, "a bos token was asked for, but this tokenizer has none");
        }
        if (!id_list_push(out, t->bos)) return out_of_memory(&e, err);
    }
    if (text.len > 0) status = text_encode(&e, err);
    bpe_work_release(&e.work);
    if (n_steps) *n_steps = e.n_steps + e.work.n_steps + e.work.queue.n_steps;
    if (status != TERN_OK) out->len = len_before;
    return status;
}

enum tern_status tokenizer_encode(const struct tokenizer *t, struct id_list *out, struct str text,
                                  const struct encode_options *o, struct tern_err *err) {
    return tokenizer_encode_counted(t, out, text, o, NULL, err);
}
