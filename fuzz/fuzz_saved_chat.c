// A saved conversation: whatever the bytes, what is taken can be written and taken again as the same, turns begin where
// messages do, and what is refused changes nothing.
#include "base/base.h"
#include "app/chat.h"

static void chat_init(struct chat *c) {
    *c = (struct chat){.stats = false};
    buf_init(&c->system, APP_TEXT_BYTES_MAX);
    buf_init(&c->messages, APP_TEXT_BYTES_MAX);
    buf_init(&c->turns, APP_TEXT_BYTES_MAX);
}
static void chat_release(struct chat *c) {
    buf_release(&c->system);
    buf_release(&c->messages);
    buf_release(&c->turns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct chat a, b;
    struct buf text;
    struct tern_err err = {0};
    chat_init(&a);
    chat_init(&b);
    buf_init(&text, APP_TEXT_BYTES_MAX);
    buf_puts(&a.system, "before");
    if (chat_array_take(&a, (struct str){(const char *)data, size}, &err) != TERN_OK) {
        if (err.message[0] == 0) TERN_BUG("an error without a message");
        if (!str_eqz(buf_str(&a.system), "before")) TERN_BUG("what was refused changed the conversation");
    } else {
        size_t at;
        for (size_t i = 0; i < a.turns.len; i += sizeof at) {
            memcpy(&at, a.turns.data + i, sizeof at);
            if (at >= a.messages.len) TERN_BUG("a turn behind the messages");
        }
        chat_array_put(&a, &text);
        if (chat_array_take(&b, buf_str(&text), &err) != TERN_OK) TERN_BUG("not taken again: %s", err.message);
        if (!str_eq(buf_str(&a.system), buf_str(&b.system)) || a.turns.len != b.turns.len ||
            !str_eq(buf_str(&a.messages), buf_str(&b.messages)))
            TERN_BUG("taken again as another conversation");
    }
    buf_release(&text);
    chat_release(&b);
    chat_release(&a);
    return 0;
}
