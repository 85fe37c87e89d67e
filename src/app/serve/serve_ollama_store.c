// POST /api/pull and DELETE /api/delete as Ollama has them, by the code of `tern pull` and `tern rm`: models come from
// the hub into the Hugging Face cache and go from it. Off, unless the operator says --manage-models: a server fetches
// nothing that a request names (doc/server.md), and this is the one exception.
//
// One download at a time, on a thread of its own; its lines are gathered under the server's lock and sent when the
// request is poked. A client that leaves stops it, and the next one goes on where it ended. A model that was pulled is
// served from then on under its name, loaded when a request names it.
#include "base/base.h"
#include "app/pull/pull.h"
#include "serve_ollama.h"

#include <stdio.h>

#define TRIES 5    // requests in a row that bring nothing
#define TOLD_S 0.1 // between two lines about one file
#define LINES_MAX (1u << 20)
#define BUSY_RETRY_S 10

struct serve_pull {
    struct serve *s;
    char name[512]; // as it was asked for
    bool streams;
    struct os_thread *thread;
    const struct pull_file *file; // told last, by the thread
    uint64_t told_ns;
    // Under s->lock:
    struct net_request *r; // NULL: its client is gone, or has its answer
    int n_refs;            // the server's, the request's
    struct buf lines;      // to be sent
    bool is_over;
    struct serve_fault fault; // status 0: none
};

static void pull_drop(struct serve_pull *p) {
    struct serve *s = p->s;
    mutex_lock(s->lock);
    const bool last = --p->n_refs == 0;
    mutex_unlock(s->lock);
    if (!last) return;
    buf_release(&p->lines);
    mem_free(p);
}

// ---------------------------------------------------------------------------------------------------------- the thread

// A line, and whether it is to go on.
static bool status_tell(struct serve_pull *p, const char *status, const struct pull_file *f, uint64_t n_bytes) {
    char digest[PULL_OID_MAX + 16];
    struct json_writer w;
    mutex_lock(p->s->lock);
    if (p->r && p->streams) {
        json_write_init(&w, &p->lines);
        json_write_object(&w);
        serve_put_text(&w, "status", status);
        if (f) {
            snprintf(digest, sizeof digest, "%s:%s", strlen(f->oid) == 64 ? "sha256" : "git-sha1", f->oid);
            serve_put_text(&w, "digest", digest);
            serve_put_int(&w, "total", (int64_t)f->n_bytes);
            serve_put_int(&w, "completed", (int64_t)n_bytes);
        }
        json_write_object_end(&w);
        buf_putc(&p->lines, '\n');
        net_request_poke(p->r);
    }
    const bool more = p->r != NULL && !p->s->is_draining;
    mutex_unlock(p->s->lock);
    return more;
}

static bool file_tell(struct serve_pull *p, const struct pull_file *f, uint64_t n_bytes) {
    char status[32];
    snprintf(status, sizeof status, "pulling %.12s", f->oid);
    p->file = f;
    p->told_ns = clock_ns();
    return status_tell(p, status, f, n_bytes);
}

static bool on_bytes(void *arg, const struct pull_file *f, uint64_t n_bytes) {
    struct serve_pull *p = arg;
    const bool soon = p->file == f && clock_ns() - p->told_ns < (uint64_t)(TOLD_S * 1e9);
    return soon || file_tell(p, f, n_bytes);
}

static void on_file(void *arg, const struct pull_file *f, const struct pull_result *g) {
    (void)g;
    file_tell(arg, f, f->n_bytes);
}

static bool go_on(void *arg) {
    struct serve_pull *p = arg;
    mutex_lock(p->s->lock);
    const bool more = p->r != NULL && !p->s->is_draining;
    mutex_unlock(p->s->lock);
    return more;
}

static void pull_main(void *arg) {
    struct serve_pull *p = arg;
    struct serve *s = p->s;
    struct serve_fault fault = {0};
    struct tern_err err = {0};
    struct pull_job j;
    struct str id, tag;
    char root[STORE_PATH_MAX];
    pull_job_init(&j, TRIES);
    j.watch = (struct pull_watch){.go_on = go_on, .on_bytes = on_bytes, .on_file = on_file, .arg = p};
    status_tell(p, "pulling manifest", NULL, 0);
    enum tern_status status = pull_name_split(str_from(p->name), &id, &tag)
                                  ? pull_job_run(&j, id, tag, &err)
                                  : err_set(&err, TERN_INVALID_ARGUMENT, "model names no repository");
    if (status == TERN_OK && (j.name.failed || j.path.failed)) status = err_set(&err, TERN_NO_MEMORY, "no memory");
    if (status == TERN_OK) {
        status_tell(p, "verifying sha256 digest", NULL, 0); // it was, as the bytes came
        status_tell(p, "writing manifest", NULL, 0);
        status = serve_model_adopt(s, j.name.data, j.path.data, &err);
    }
    pull_job_release(&j);
    if (status == TERN_OK) {
        status_tell(p, "success", NULL, 0);
    } else {
        log_warn("pull of %s: %s", p->name, err.message);
        if (store_hf_root(root)) serve_path_hide(&err, root, STR("the cache"));
        serve_fault_from(&fault, status, &err, "model");
    }
    mutex_lock(s->lock);
    p->is_over = true;
    p->fault = fault;
    if (p->r) net_request_poke(p->r);
    mutex_unlock(s->lock);
}

// --------------------------------------------------------------------------------------------------------- the request

static void request_run(struct net_request *r, void *arg) {
    struct serve_pull *p = arg;
    struct buf lines;
    mutex_lock(p->s->lock);
    lines = p->lines;
    buf_init(&p->lines, LINES_MAX);
    const bool over = p->is_over;
    const struct serve_fault fault = p->fault;
    mutex_unlock(p->s->lock);
    if (p->streams) {
        if (over && fault.status) {
            serve_fault_put(&lines, &fault, SERVE_OLLAMA);
            buf_putc(&lines, '\n');
            snprintf(serve_call_of(r)->error, sizeof serve_call_of(r)->error, "%s", fault.code);
        }
        if (lines.len == 0 || net_stream_put(r, buf_str(&lines)))
            if (over) net_stream_end(r);
    } else if (over && fault.status) {
        serve_fail(r, &fault);
    } else if (over) {
        serve_reply(r, "application/json", STR("{\"status\":\"success\"}"));
    }
    buf_release(&lines);
}

static void request_release(struct net_request *r, void *arg) {
    struct serve_pull *p = arg;
    (void)r;
    mutex_lock(p->s->lock);
    p->r = NULL;
    mutex_unlock(p->s->lock);
    pull_drop(p);
}

// Takes the place of the newest one, which is over; NULL: it is not.
static bool place_take(struct serve *s, struct serve_pull *p) {
    mutex_lock(s->lock);
    struct serve_pull *old = s->pull;
    const bool free_ = (!old || old->is_over) && !s->is_draining;
    if (free_) s->pull = p;
    mutex_unlock(s->lock);
    if (!free_ || !old) return free_;
    os_thread_join(old->thread);
    pull_drop(old);
    return true;
}

static void pull_start(struct serve *s, struct net_request *r, struct str name, bool streams) {
    struct serve_pull *p = mem_calloc(1, sizeof *p);
    struct serve_fault busy = {.retry_s = BUSY_RETRY_S};
    struct tern_err err = {0};
    if (!p) {
        serve_failf(r, 503, NULL, "no_memory", "no memory for the request; try again");
        return;
    }
    *p = (struct serve_pull){.s = s, .streams = streams, .r = r, .n_refs = 2};
    snprintf(p->name, sizeof p->name, "%.*s", (int)name.len, name.data);
    buf_init(&p->lines, LINES_MAX);
    if (!place_take(s, p)) {
        serve_fault_set(&busy, 503, NULL, "busy", "another model is being downloaded; try again when it is there");
        serve_fail(r, &busy);
        mem_free(p);
        return;
    }
    net_request_defer(r, request_run, request_release, p);
    if (streams) serve_reply_stream(r, "application/x-ndjson", NULL);
    if (os_thread_create(&p->thread, pull_main, p, &err) == TERN_OK) return;
    mutex_lock(s->lock);
    p->is_over = true;
    serve_fault_from(&p->fault, TERN_NO_MEMORY, &err, NULL);
    if (p->r) net_request_poke(p->r);
    mutex_unlock(s->lock);
}

void serve_pull_stop(struct serve *s) {
    mutex_lock(s->lock);
    struct serve_pull *p = s->pull;
    s->pull = NULL;
    mutex_unlock(s->lock);
    if (!p) return;
    os_thread_join(p->thread);
    pull_drop(p);
}

struct store_ask {
    struct serve_ask ask; // first: field tables reach the rest by offsets from it
    struct str name;
};
// Reads which model is meant; false: answered, and the ask released.
static bool store_ask_read(struct serve *s, struct net_request *r, struct store_ask *q) {
    static const struct serve_field fields[] = {SERVE_FIELD("model", SERVE_FIELD_STR, model, 0, 0),
                                                {"name", SERVE_FIELD_STR, offsetof(struct store_ask, name), 0, 0, 0, 0},
                                                SERVE_FIELD("stream", SERVE_FIELD_BOOL, stream, 0, 0),
                                                {0}};
    *q = (struct store_ask){0};
    serve_ask_init(&q->ask, s);
    q->ask.stream = true;
    bool ok = s->o.manage_models;
    if (!ok)
        serve_fault_set(&q->ask.fault, 403, NULL, "not_allowed",
                        "this server neither downloads nor removes models for clients; its operator may allow it "
                        "(--manage-models) or use tern pull and tern rm");
    ok = ok && serve_fields_read(&q->ask, r->body, "", fields);
    if (q->ask.model.len == 0) q->ask.model = q->name;
    if (ok && (q->ask.model.len == 0 || q->ask.model.len >= sizeof((struct serve_pull *)0)->name))
        ok = serve_bad(&q->ask, "model", "model is missing, or too long a name");
    if (ok) return true;
    serve_fail(r, &q->ask.fault);
    serve_ask_release(&q->ask);
    return false;
}

void serve_ollama_pull(struct serve *s, struct net_request *r) {
    struct store_ask q;
    struct str id, tag;
    if (!store_ask_read(s, r, &q)) return;
    if (pull_name_split(q.ask.model, &id, &tag))
        pull_start(s, r, q.ask.model, q.ask.stream);
    else
        serve_failf(r, 400, "model", "invalid_value",
                    "model names no repository of the hub; expected org/repo or org/repo:TAG");
    serve_ask_release(&q.ask);
}

// The model that is served from what a name of the cache means; NULL: none is.
static struct serve_model *served_from(struct serve *s, const char *name) {
    struct buf path, entry;
    struct serve_model *m = NULL;
    buf_init(&path, 2 * STORE_PATH_MAX);
    buf_init(&entry, 2 * STORE_PATH_MAX);
    if (store_resolve(name, &path, &entry, NULL) == TERN_OK && path.data)
        for (int i = 0; i < s->n_models; i++)
            if (!s->models[i].is_gone && s->models[i].path && str_eqz(buf_str(&path), s->models[i].path))
                m = &s->models[i];
    buf_release(&path);
    buf_release(&entry);
    return m;
}

void serve_ollama_delete(struct serve *s, struct net_request *r) {
    struct store_ask q;
    struct serve_fault fault = {0};
    struct tern_err err = {0};
    struct store_removed removed;
    char root[STORE_PATH_MAX];
    if (!store_ask_read(s, r, &q)) return;
    struct serve_model *m = serve_model_find(s, q.ask.model);
    char *name = m ? m->id : serve_ask_dup(&q.ask, q.ask.model);
    if (!m && name) m = served_from(s, name);
    enum tern_status status = m ? serve_model_forget(s, m, &err) : TERN_OK;
    if (status == TERN_OK && !name) status = err_set(&err, TERN_NO_MEMORY, "no memory for the request");
    if (status == TERN_OK) status = store_remove(name, false, false, &removed, &err);
    if (status == TERN_OK) {
        serve_reply(r, "application/json", STR("{\"status\":\"success\"}"));
    } else {
        if (store_hf_root(root)) serve_path_hide(&err, root, STR("the cache"));
        serve_fault_from(&fault, status, &err, "model");
        serve_fail(r, &fault);
    }
    serve_ask_release(&q.ask);
}
