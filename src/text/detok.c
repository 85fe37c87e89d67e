// Token ids -> text, in whole characters.
//
// Tokens are byte strings: a character may be spread over several of them. Bytes that begin a well-formed character are
// held until it is whole, or until a byte shows that it never will be: then the maximal ill-formed subpart comes out as
// one U+FFFD, the same as if the whole text had been cleaned at once. A control token that is not shown is skipped as
// if it was not there, so a character may go on behind it.
#include "base/base.h"
#include "text/text.h"

void detok_init(struct detok *d, const struct tokenizer *t, bool with_control) {
    *d = (struct detok){.t = t, .with_control = with_control};
}

// Gives out what of the held bytes can no longer become part of a longer character.
static bool held_settle(struct detok *d, struct buf *out) {
    while (d->n_held > 0) {
        struct str held = {(const char *)d->held, (size_t)d->n_held};
        if (utf8_incomplete_tail(held) == held.len) return true;
        int n;
        uint32_t rune = utf8_decode(held, &n);
        if (!buf_put_rune(out, rune == RUNE_BAD ? RUNE_REPLACEMENT : rune)) return false;
        memmove(d->held, d->held + n, (size_t)(d->n_held - n));
        d->n_held -= n;
    }
    return true;
}

bool detok_put(struct detok *d, int32_t id, struct buf *out) {
    if (!d->with_control && tokenizer_is_control(d->t, id)) return true;
    struct str s = tokenizer_token_bytes(d->t, id);
    while (d->n_held > 0 && s.len > 0) {
        d->held[d->n_held++] = (uint8_t)s.data[0];
        s = (struct str){s.data + 1, s.len - 1};
        if (!held_settle(d, out)) return false;
    }
    if (s.len == 0) return true;
    size_t n_tail = utf8_incomplete_tail(s);
    if (!utf8_put_clean(out, (struct str){s.data, s.len - n_tail})) return false;
    memcpy(d->held, s.data + s.len - n_tail, n_tail);
    d->n_held = (int)n_tail;
    return true;
}

bool detok_flush(struct detok *d, struct buf *out) {
    bool ok = d->n_held == 0 || buf_put_rune(out, RUNE_REPLACEMENT);
    d->n_held = 0;
    return ok;
}
