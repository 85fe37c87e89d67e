// API keys: from options, a file and the environment, kept as SHA-256. A key that comes is hashed and compared with all
// of them, all bytes of each, so that the time tells nothing of how much of it was right.
#include "base/base.h"
#include "serve.h"

#include <stdio.h>

static enum tern_status key_add(struct serve *s, struct str key, const char *from, struct tern_err *err) {
    key = str_trim(key);
    if (key.len == 0) return TERN_OK;
    if (key.len > SERVE_KEY_BYTES_MAX)
        return err_set(err, TERN_LIMIT, "an API key of %s has %zu bytes; at most %d", from, key.len,
                       SERVE_KEY_BYTES_MAX);
    if (s->n_keys == SERVE_KEYS_MAX) return err_set(err, TERN_LIMIT, "more than %d API keys", SERVE_KEYS_MAX);
    for (size_t i = 0; i < key.len; i++)
        if (key.data[i] <= ' ' || key.data[i] == 0x7f)
            return err_set(err, TERN_BAD_FORMAT, "an API key of %s has a blank or control byte", from);
    struct serve_key *k = &s->keys[s->n_keys++];
    struct sha256 h;
    sha256_init(&h);
    sha256_update(&h, key.data, key.len);
    sha256_final(&h, k->digest);
    char hex[65];
    sha256_hex(k->digest, hex);
    snprintf(k->tenant, sizeof k->tenant, "%.16s", hex);
    return TERN_OK;
}

static enum tern_status file_load(struct serve *s, const char *path, struct tern_err *err) {
    struct buf text;
    buf_init(&text, SERVE_KEYS_MAX * (SERVE_KEY_BYTES_MAX + 2u));
    enum tern_status status = file_read_all(&text, path, err);
    struct str rest = buf_str(&text);
    while (status == TERN_OK && rest.len > 0) {
        size_t end = str_find(rest, STR("\n"), 0);
        struct str line = {rest.data, end == (size_t)-1 ? rest.len : end};
        rest = end == (size_t)-1 ? (struct str){0} : (struct str){rest.data + end + 1, rest.len - end - 1};
        if (line.len > 0 && line.data[0] == '#') continue;
        status = key_add(s, line, path, err);
    }
    buf_release(&text);
    return status;
}

enum tern_status serve_keys_load(struct serve *s, struct tern_err *err) {
    s->keys = mem_calloc(SERVE_KEYS_MAX, sizeof *s->keys);
    if (!s->keys) return err_set(err, TERN_NO_MEMORY, "no memory for API keys");
    for (int i = 0; i < s->o.api_keys.n; i++) TRY(key_add(s, str_from(s->o.api_keys.items[i]), "--api-key", err));
    const char *env = env_get("TERN_API_KEY");
    if (env) TRY(key_add(s, str_from(env), "$TERN_API_KEY", err));
    if (!s->o.api_key_file) return TERN_OK;
    TRY(file_load(s, s->o.api_key_file, err));
    if (s->n_keys == 0) // a file that gives no key must not open the server to all
        return err_set(err, TERN_BAD_FORMAT, "%s holds no API key", s->o.api_key_file);
    return TERN_OK;
}

const char *serve_key_tenant(const struct serve *s, struct str key) {
    struct sha256 h;
    uint8_t digest[32];
    sha256_init(&h);
    sha256_update(&h, key.data, MIN(key.len, SERVE_KEY_BYTES_MAX + 1));
    sha256_final(&h, digest);
    int found = -1;
    for (int i = 0; i < s->n_keys; i++) {
        volatile uint8_t differs = 0;
        for (int b = 0; b < 32; b++) differs = (uint8_t)(differs | (s->keys[i].digest[b] ^ digest[b]));
        if (!differs) found = i;
    }
    return found >= 0 ? s->keys[found].tenant : NULL;
}
