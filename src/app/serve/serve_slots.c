// POST /slots/{id}?action=save, restore and erase, as llama-server's clients know them: the state of a prompt that was
// read, to a file and back.
//
// No stream keeps a state of its own here, so a slot's number says nothing: what is saved is named by its text
// (messages with tools, or prompt), as far as the prefix cache has it, and what is restored goes into the cache, where
// the next request that begins so finds it. A file's name is one of --state-dir, no path: letters, digits, '.', '_' and
// '-'. Keys see their own files only, and have room for so many. erase removes such a file; without a filename it asks
// for what there is already, since a slot holds nothing between answers.
#include "base/base.h"
#include "serve_parts.h"

#include <stdio.h>

#define STATES_MAX 64 // files of one key
#define STATE_NAME_MAX 64
#define STATE_SUFFIX ".state"

struct slot_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str filename, prompt_text;
};
#define SLOT_FIELD(name_, kind_, member_) \
    { name_, kind_, offsetof(struct slot_ask, member_), 0, 0, 0, 0 }

static const struct serve_field fields[] = {
    SLOT_FIELD("model", SERVE_FIELD_STR, ask.model),       SLOT_FIELD("filename", SERVE_FIELD_STR, filename),
    SLOT_FIELD("messages", SERVE_FIELD_RAW, ask.messages), SLOT_FIELD("tools", SERVE_FIELD_RAW, ask.tools),
    SLOT_FIELD("prompt", SERVE_FIELD_STR, prompt_text),    {0}};

static bool name_check(struct serve_ask *a, struct str name) {
    static const char others[] = "._-";
    bool ok = name.len > 0 && name.len <= STATE_NAME_MAX && name.data[0] != '.';
    for (size_t i = 0; i < name.len && ok; i++) {
        const char c = name.data[i];
        ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             (c != 0 && strchr(others, c) != NULL);
    }
    return ok || serve_bad(a, "filename",
                           "filename is a name of 1 to %d letters, digits, '.', '_' and '-', not beginning with a dot",
                           STATE_NAME_MAX);
}

// KEY.NAME.state in --state-dir; a key's tenant is 16 hexadecimal digits, "all" stands where there are no keys.
static void file_path(struct buf *out, const struct serve *s, const char *tenant, struct str name) {
    buf_putf(out, "%s/%s.%.*s" STATE_SUFFIX, s->o.state_dir, tenant, (int)name.len, name.data);
    buf_putc(out, 0);
}

struct count {
    const char *tenant;
    int n;
};
static bool count_take(void *arg, const char *name, const struct os_stat *st) {
    struct count *c = arg;
    const size_t len = strlen(c->tenant);
    c->n += st->is_file && strncmp(name, c->tenant, len) == 0 && name[len] == '.' &&
            str_ends(str_from(name), STR(STATE_SUFFIX));
    return true;
}

// Room for one more file of this key; a file of the same name is replaced.
static enum tern_status room_check(const struct serve *s, const char *tenant, const char *path, struct tern_err *err) {
    struct count c = {tenant, 0};
    struct os_stat st;
    enum tern_status status = os_mkdirs(s->o.state_dir, err);
    if (status == TERN_OK && os_stat_get(&st, path)) return TERN_OK;
    if (status == TERN_OK) status = os_list(s->o.state_dir, count_take, &c, err);
    if (status != TERN_OK) {
        log_warn("states: %s", err->message);
        return err_set(err, status, "the folder for states cannot be used; the server's log says why");
    }
    if (c.n < STATES_MAX) return TERN_OK;
    return err_set(err, TERN_LIMIT, "%d states are saved already, which is all that one key may have", c.n);
}

struct outcome {
    bool saves, erases;
    uint64_t begin_ns;
    size_t n_tokens;
    uint64_t n_bytes;
};

static void outcome_reply(struct net_request *r, const struct slot_ask *q, const struct outcome *o) {
    struct buf out;
    struct json_writer w;
    int64_t id = 0;
    str_to_i64(serve_call_of(r)->rest, &id);
    buf_init(&out, 8192);
    json_write_init(&w, &out);
    json_write_object(&w);
    serve_put_int(&w, "id_slot", id);
    if (q->filename.len > 0 || !o->erases) serve_put_str(&w, "filename", q->filename);
    if (o->erases) {
        serve_put_int(&w, "n_erased", 0); // tokens of the slot's own
        serve_put_int(&w, "n_removed", (int64_t)o->n_bytes);
        json_write_object_end(&w);
        serve_reply_json(r, &out);
        return;
    }
    serve_put_int(&w, o->saves ? "n_saved" : "n_restored", (int64_t)o->n_tokens);
    serve_put_int(&w, o->saves ? "n_written" : "n_read", (int64_t)o->n_bytes);
    json_write_key(&w, "timings");
    json_write_object(&w);
    json_write_key(&w, o->saves ? "save_ms" : "restore_ms");
    json_write_f64(&w, (double)(clock_ns() - o->begin_ns) * 1e-6);
    json_write_object_end(&w);
    json_write_object_end(&w);
    serve_reply_json(r, &out);
}

static enum tern_status act(struct serve *s, struct net_request *r, const struct slot_ask *q, struct outcome *o,
                            struct tern_err *err) {
    const char *key = serve_call_of(r)->tenant, *tenant = key[0] ? key : "all";
    struct tern_service *service = serve_model_of(s, r)->service;
    const struct tern_str owner = serve_str(str_from(key));
    struct os_stat st = {0};
    struct buf path;
    buf_init(&path, 8192);
    file_path(&path, s, tenant, q->filename);
    enum tern_status status = path.failed ? err_set(err, TERN_NO_MEMORY, "no memory for a path") : TERN_OK;
    if (status == TERN_OK && o->saves) status = room_check(s, tenant, path.data, err);
    if (status == TERN_OK && o->saves) {
        struct tern_request_options prompt;
        tern_request_options_default(&prompt);
        prompt.messages_json = serve_str(q->ask.messages);
        prompt.tools_json = serve_str(q->ask.tools);
        prompt.prompt = serve_str(q->prompt_text);
        status = tern_service_state_save(service, owner, &prompt, path.data, &o->n_tokens, err);
    } else if (status == TERN_OK && !os_stat_get(&st, path.data)) {
        status = err_set(err, TERN_NOT_FOUND, "no state of that name is saved");
    } else if (status == TERN_OK && o->erases) {
        o->n_bytes = st.size;
        status = os_remove(path.data, err);
    } else if (status == TERN_OK) {
        status = tern_service_state_restore(service, owner, path.data, &o->n_tokens, err);
    }
    if (status == TERN_OK && !o->erases && os_stat_get(&st, path.data)) o->n_bytes = st.size;
    if (status != TERN_OK && !path.failed) {
        const bool of_client = status == TERN_NOT_FOUND || status == TERN_LIMIT || status == TERN_CONTEXT_FULL;
        if (!of_client) log_warn("state %.*s: %s", (int)q->filename.len, q->filename.data, err->message);
        serve_path_hide(err, path.data, q->filename);
    }
    buf_release(&path);
    return status;
}

void serve_slot_action(struct serve *s, struct net_request *r) {
    struct slot_ask q = {0};
    struct serve_ask *a = &q.ask;
    const struct str action = net_request_query(r, "action");
    struct outcome o = {.saves = str_eqz(action, "save"), .erases = str_eqz(action, "erase"), .begin_ns = clock_ns()};
    struct tern_err err = {0};
    serve_ask_init(a, s);
    int64_t id;
    bool ok = (str_to_i64(serve_call_of(r)->rest, &id) && id >= 0) ||
              serve_bad(a, "id_slot", "a slot is a whole number from 0 (which says nothing here)");
    if (ok && !o.saves && !o.erases && !str_eqz(action, "restore"))
        ok = serve_bad(a, "action", "action is save, restore or erase (in the query: /slots/0?action=save)");
    ok = ok && ((o.erases && r->body.len == 0) || (serve_fields_read(a, r->body, "", fields) && serve_tools_check(a)));
    const bool nothing = o.erases && q.filename.len == 0; // a slot keeps nothing of its own
    if (ok && !nothing && !s->o.state_dir) {
        serve_fault_set(&a->fault, 400, NULL, "unsupported", "states are not saved here; start with --state-dir");
        ok = false;
    }
    ok = ok && (nothing || name_check(a, q.filename));
    if (ok && o.saves && (a->messages.len > 0) == (q.prompt_text.len > 0))
        ok = serve_bad(a, "messages", "messages or prompt (one of them) says whose state is saved");
    if (ok && !serve_model_of(s, r)->service)
        ok = serve_bad(a, "model", "this model generates no text, so it has no state");
    if (!ok) serve_fail(r, &a->fault);
    if (ok && serve_model_check(s, r, a->model)) {
        const enum tern_status status = nothing ? TERN_OK : act(s, r, &q, &o, &err);
        if (status == TERN_OK) {
            outcome_reply(r, &q, &o);
        } else {
            struct serve_fault f = {0};
            serve_fault_from(&f, status, &err, status == TERN_NOT_FOUND && !o.saves ? "filename" : NULL);
            serve_fail(r, &f);
        }
    }
    serve_ask_release(a);
}
