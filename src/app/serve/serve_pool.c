// The models of a server: who holds which, loading the one that a request names, unloading idle ones.
//
// A request whose model is not loaded waits without a thread: it is deferred, and poked when the loader (one thread,
// one model at a time) is done. Room: --memory bounds what all loaded models may need together (without it the
// machine's free memory does, as the engine sees it); when the next one does not fit, models that nobody holds are
// unloaded, the longest unused first, and when that is not enough the request is told to come again. A model is only
// ever closed while its count of users is 0, under the lock that counts them.
#include "base/base.h"
#include "serve_ollama.h"

#include <stdio.h>

#define PREFIX_DISK_DEFAULT (4ull << 30) // of --prefix-dir
#define RETRY_S 5
#define WAIT_NS_MAX 3600000000000ull // the loader looks again at the times of models

struct serve_waiter {
    struct serve *s;
    struct serve_model *m;
    struct net_request *r;
    struct serve_fault fault; // status 0: none yet
    struct serve_waiter *next;
};

// --------------------------------------------------------------------------------------------------------------- names

static void id_set(struct serve_model *m, const char *given) {
    struct os_stat st;
    struct str id = given ? str_from(given) : STR("pico");
    if (given && os_stat_get(&st, given)) {
        while (id.len > 1 && id.data[id.len - 1] == '/') id.len--;
        for (size_t i = 0; i + 1 < id.len; i++)
            if (id.data[i] == '/') id = (struct str){id.data + i + 1, id.len - i - 1}, i = (size_t)-1;
        if (str_ends(id, STR(".gguf"))) id.len -= 5;
    }
    snprintf(m->id, sizeof m->id, "%.*s", (int)MIN(id.len, sizeof m->id - 1), id.data);
}

void serve_model_id_set(struct serve *s) {
    s->n_models = MAX(s->n_models, 1);
    id_set(&s->models[0], s->model.engine.model_path);
    s->models[0].state = SERVE_LOADING; // soon
}

int serve_model_add(const struct command *c, struct serve *s, const char *name) {
    if (s->n_models == SERVE_MODELS_MAX) return usage_error(c, "at most %d models are served", SERVE_MODELS_MAX);
    struct serve_model *m = &s->models[s->n_models++];
    id_set(m, name);
    m->path = name;
    for (int i = 0; i + 1 < s->n_models; i++)
        if (strcmp(s->models[i].id, m->id) == 0)
            return usage_error(c, "two models would have the name %s: clients could not choose", m->id);
    int code = model_path_told(c, &m->path, &m->path_text);
    struct os_stat st;
    if (code != 0 || os_stat_get(&st, m->path)) return code;
    return usage_error(c, "there is no model %s", name);
}

int serve_model_draft_set(const struct command *c, struct serve *s, const char *setting) {
    const char *equals = strchr(setting, '=');
    struct os_stat st;
    if (!equals || equals == setting || !equals[1])
        return usage_error(c, "--draft-for wants NAME=MODEL (a served model's name, its draft model), not '%s'",
                           setting);
    const struct str name = {setting, (size_t)(equals - setting)};
    struct serve_model *m = NULL;
    for (int i = 0; i < s->n_models && !m; i++)
        if (str_eqz(name, s->models[i].id)) m = &s->models[i];
    if (!m) return usage_error(c, "--draft-for %s: no model of that name is served", setting);
    if (m == &s->models[0]) return usage_error(c, "the draft model of %s, the first, is --draft-model's", m->id);
    m->draft_path = equals + 1;
    int code = model_path_told(c, &m->draft_path, &m->draft_text);
    if (code != 0 || os_stat_get(&st, m->draft_path)) return code;
    return usage_error(c, "--draft-for %s: there is no model %s", setting, equals + 1);
}

// A pulled one by the repository alone, or with the hub's name before it.
static struct serve_model *pulled_find(struct serve *s, struct str name) {
    const struct str hub = STR("hf.co/");
    if (str_starts(name, hub)) return serve_model_find(s, (struct str){name.data + hub.len, name.len - hub.len});
    for (int i = 0; i < s->n_models; i++) {
        struct serve_model *m = &s->models[i];
        const struct str id = str_from(m->id);
        if (m->is_pulled && !m->is_gone && str_starts(id, name) && id.len > name.len && id.data[name.len] == ':')
            return m;
    }
    return NULL;
}

struct serve_model *serve_model_find(struct serve *s, struct str name) {
    if (name.len == 0 || str_eqz(name, "default")) return &s->models[0];
    for (int i = 0; i < s->n_models; i++)
        if (str_eqz(name, s->models[i].id) && !s->models[i].is_gone) return &s->models[i];
    for (int i = 0; i < s->o.aliases.n; i++)
        if (str_eqz(name, s->o.aliases.items[i])) return &s->models[0];
    const struct str end = STR(":latest"); // Ollama's clients put it behind
    if (str_ends(name, end)) return serve_model_find(s, (struct str){name.data, name.len - end.len});
    return pulled_find(s, name);
}

void serve_model_unknown(struct serve *s, struct net_request *r, struct str name) {
    struct buf shown, known;
    buf_init(&shown, 4 * SERVE_NAME_SHOWN_MAX + 16);
    buf_init(&known, SERVE_MODELS_MAX * (sizeof s->models[0].id + 4));
    str_put_escaped(&shown, name, SERVE_NAME_SHOWN_MAX);
    for (int i = 0; i < s->n_models; i++)
        if (!s->models[i].is_gone) buf_putf(&known, "%s'%s'", i ? ", " : "", s->models[i].id);
    serve_failf(r, 404, "model", "model_not_found", "no model '%s' here; %s %s served (more names: --alias)",
                shown.data ? shown.data : "", known.data ? known.data : "", s->n_models > 1 ? "are" : "is");
    buf_release(&shown);
    buf_release(&known);
}

struct serve_model *serve_model_of(struct serve *s, const struct net_request *r) {
    struct serve_model *m = serve_call_of(r)->model;
    return m ? m : &s->models[0];
}

bool serve_model_check(struct serve *s, struct net_request *r, struct str name) {
    if (serve_model_find(s, name) == serve_model_of(s, r)) return true;
    serve_model_unknown(s, r, name);
    return false;
}

// ------------------------------------------------------------------------------------------------------------- holding

bool serve_ready(struct serve *s) {
    mutex_lock(s->lock);
    bool ready = s->is_ready;
    mutex_unlock(s->lock);
    return ready;
}

bool serve_model_hold(struct serve *s, struct serve_model *m) {
    mutex_lock(s->lock);
    bool loaded = m->state == SERVE_LOADED;
    m->n_users += loaded;
    mutex_unlock(s->lock);
    return loaded;
}

void serve_model_drop(struct serve *s, struct serve_model *m, bool used) {
    mutex_lock(s->lock);
    m->n_users--;
    if (used) m->used_ns = clock_ns();
    if (s->loader && m->n_users == 0 && serve_model_expires_locked(s, m) != UINT64_MAX) cond_signal(s->wake);
    mutex_unlock(s->lock);
}

// The top-level "model" (or "name", as Ollama's older clients say) of a JSON body; empty when there is none: the route
// reads the body itself and tells what is wrong with it. name is 0-terminated.
static void body_model_read(struct str body, char *name, size_t cap) {
    const struct json_options o = {.depth_max = SERVE_JSON_DEPTH_MAX};
    struct json *j;
    struct json_item item;
    name[0] = 0;
    if (json_create(&j, body, &o, NULL) != TERN_OK) return;
    if (json_next(j, &item, NULL) == JSON_OBJECT)
        while (json_next(j, &item, NULL) == JSON_KEY) {
            const bool is_model = str_eqz(item.text, "model");
            if (!is_model && !str_eqz(item.text, "name")) {
                if (json_skip(j, NULL) != TERN_OK) break;
                continue;
            }
            if (json_next(j, &item, NULL) != JSON_STRING) {
                if ((item.event == JSON_OBJECT || item.event == JSON_ARRAY) && json_skip(j, NULL) != TERN_OK) break;
                if (item.event == JSON_ERROR) break;
                continue;
            }
            snprintf(name, cap, "%.*s", (int)MIN(item.text.len, cap - 1), item.text.data);
            if (is_model) break;
        }
    json_free(j);
}

static int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// ?model=NAME, with its percent signs decoded; empty: there is none.
static void query_model_read(const struct net_request *r, char *name, size_t cap) {
    const struct str given = net_request_query(r, "model");
    size_t n = 0;
    for (size_t i = 0; i < given.len && n + 1 < cap; i++) {
        const bool has_two = given.data[i] == '%' && i + 2 < given.len;
        const int high = has_two ? hex_value(given.data[i + 1]) : -1, low = has_two ? hex_value(given.data[i + 2]) : -1;
        const bool coded = high >= 0 && low >= 0 && high + low > 0;
        name[n++] = coded ? (char)(high * 16 + low) : given.data[i];
        i += coded ? 2 : 0;
    }
    name[n] = 0;
}

static void waiter_unlink_locked(struct serve *s, const struct serve_waiter *w) {
    for (struct serve_waiter **at = &s->waiters; *at; at = &(*at)->next)
        if (*at == w) {
            *at = w->next;
            return;
        }
}

static bool is_waited_locked(const struct serve *s, const struct serve_model *m) {
    bool found = false;
    for (const struct serve_waiter *w = s->waiters; w; w = w->next) found = found || w->m == m;
    return found;
}

static void nothing_run(struct net_request *r, void *arg) { (void)r, (void)arg; }

static void waiter_release(struct net_request *r, void *arg) {
    struct serve_waiter *w = arg;
    (void)r;
    mutex_lock(w->s->lock);
    waiter_unlink_locked(w->s, w);
    cond_signal(w->s->wake); // the model's time may begin
    mutex_unlock(w->s->lock);
    mem_free(w);
}

static void waiter_run(struct net_request *r, void *arg) {
    struct serve_waiter *w = arg;
    struct serve *s = w->s;
    mutex_lock(s->lock);
    const bool loaded = w->m->state == SERVE_LOADED;
    if (loaded) {
        w->m->n_users++;
        serve_call_of(r)->model = w->m;
    }
    const struct serve_fault fault = w->fault;
    mutex_unlock(s->lock);
    if (loaded) {
        net_request_defer(r, nothing_run, nothing_run, NULL);
        waiter_release(r, w);
        serve_call_of(r)->route->handle(s, r);
    } else if (fault.status) {
        serve_fail(r, &fault);
    }
}

void serve_model_route(struct serve *s, struct net_request *r) {
    struct serve_call *call = serve_call_of(r);
    const unsigned flags = call->route->flags;
    char name[sizeof s->models[0].id + 16] = "";
    if (flags & SERVE_QUERY)
        query_model_read(r, name, sizeof name);
    else if (s->n_models > 1)
        body_model_read(r->body, name, sizeof name);
    struct serve_model *m = serve_model_find(s, str_from(name));
    if (!m) {
        serve_model_unknown(s, r, str_from(name));
        return;
    }
    if ((flags & SERVE_UNLOADS) && serve_ollama_unloads(s, r, m, call->route->handle == serve_ollama_chat)) return;
    if (serve_model_hold(s, m)) {
        call->model = m;
        call->route->handle(s, r);
        return;
    }
    struct serve_waiter *w = mem_calloc(1, sizeof *w);
    if (!w) {
        serve_failf(r, 503, NULL, "no_memory", "no memory for the request; try again");
        return;
    }
    *w = (struct serve_waiter){.s = s, .m = m, .r = r};
    net_request_defer(r, waiter_run, waiter_release, w);
    mutex_lock(s->lock);
    w->next = s->waiters;
    s->waiters = w;
    if (s->is_draining) serve_fault_set(&w->fault, 503, NULL, "stopping", "the server is stopping");
    const bool poke = m->state == SERVE_LOADED || w->fault.status;
    if (m->state == SERVE_UNLOADED) m->state = SERVE_WANTED;
    cond_signal(s->wake);
    mutex_unlock(s->lock);
    if (poke) net_request_poke(r);
}

// ------------------------------------------------------------------------------------------------------------- loading

// The service of a model whose engine is open. An encoder has no sessions, so no service: it gives vectors only.
static enum tern_status service_open(struct serve *s, struct serve_model *m, struct tern_engine *e,
                                     struct tern_err *err) {
    struct tern_service_options o;
    struct tern_service *service = NULL;
    struct buf folder;
    tern_service_options_default(&o);
    o.n_streams = s->o.n_streams;
    o.n_queue_max = s->o.n_queue;
    o.n_jobs_key_max = s->o.n_jobs_key;
    o.prompt_rows_step = s->o.prompt_rows;
    o.prefix_ram_max = s->o.prefix_ram;
    o.prefix_disk_max = s->o.prefix_disk ? s->o.prefix_disk : PREFIX_DISK_DEFAULT;
    buf_init(&folder, 8192);
    if (s->o.prefix_dir) buf_puts(&folder, s->o.prefix_dir);
    if (s->o.prefix_dir && m != &s->models[0]) buf_putf(&folder, "/model-%d", (int)(m - s->models));
    o.prefix_dir = s->o.prefix_dir ? folder.data : NULL;
    enum tern_status status = tern_service_open(&service, e, &o, err);
    buf_release(&folder);
    float probe;
    const bool encoder =
        status != TERN_OK && tern_embed(e, serve_str(STR("")), TERN_POOL_MEAN, &probe, 0, NULL) != TERN_UNSUPPORTED;
    if (status != TERN_OK && !encoder) return status;
    struct tern_model_info i;
    tern_engine_info(e, &i);
    mutex_lock(s->lock);
    m->engine = e;
    m->service = service;
    m->info = i;
    m->bytes = i.bytes_weights + i.bytes_state_max + i.bytes_work + i.bytes_drafter + (service ? s->o.prefix_ram : 0);
    m->state = SERVE_LOADED;
    m->used_ns = clock_ns();
    m->n_loads++;
    mutex_unlock(s->lock);
    return TERN_OK;
}

int serve_model_open(const struct command *c, struct serve *s) {
    struct serve_model *m = &s->models[0];
    struct tern_engine *e = NULL;
    struct tern_err err = {0};
    s->model.engine.n_sessions = s->o.n_streams;
    int code = model_opts_finish(c, &s->model);
    if (code == 0) code = model_path_told(c, &s->model.engine.model_path, &m->path_text);
    if (code == 0) code = model_path_told(c, &s->model.engine.draft_path, &s->draft_text);
    const char *draft = s->model.engine.draft_path;
    m->path = s->model.engine.model_path;
    if (code == 0) code = engine_open_told(c, &s->model, &e);
    s->model.engine.model_path = m->path; // it may be loaded again
    s->model.engine.draft_path = draft;
    if (code != 0) return code;
    if (service_open(s, m, e, &err) != TERN_OK) {
        tern_engine_close(e);
        return fail_told(c, &err);
    }
    mutex_lock(s->lock);
    s->is_ready = true;
    mutex_unlock(s->lock);
    return 0;
}

// Takes engine and service of a model out that nobody holds, to be closed. Under the lock.
static void model_take_locked(struct serve_model *m, struct tern_engine **e, struct tern_service **service) {
    *e = m->engine;
    *service = m->service;
    m->engine = NULL;
    m->service = NULL;
    m->info = (struct tern_model_info){0};
    m->state = SERVE_UNLOADED;
    m->keep_said = false;
}

static void model_tell(const struct serve *s, const struct serve_model *m, const char *what) {
    char text[24];
    if (strcmp(s->o.log, "none") != 0) fprintf(stderr, "model %s %s (%s)\n", m->id, what, bytes_format(m->bytes, text));
}

enum tern_status serve_model_adopt(struct serve *s, const char *id, const char *path, struct tern_err *err) {
    enum tern_status status = TERN_OK;
    struct serve_model *m = NULL;
    mutex_lock(s->lock);
    const int n = s->n_models;
    for (int i = 0; i < n && !m; i++) // of the same file: at most gone
        if (strcmp(s->models[i].id, id) == 0 && s->models[i].path && strcmp(s->models[i].path, path) == 0)
            m = &s->models[i];
    for (int i = 0; i < n && !m; i++)
        if (strcmp(s->models[i].id, id) == 0 && !s->models[i].is_gone) m = &s->models[i]; // of another revision
    if (m && m->is_pulled) {
        m->is_gone = false;
    } else if (!m && (n == SERVE_MODELS_MAX || strlen(id) >= sizeof m->id)) {
        status = err_set(err, TERN_LIMIT,
                         "%s is pulled, but %d models are served, which is the most; start anew with it", id, n);
    } else if (!m) {
        m = &s->models[n];
        snprintf(m->id, sizeof m->id, "%s", id);
        buf_init(&m->path_text, 8192);
        buf_puts(&m->path_text, path);
        m->path = m->path_text.data;
        m->is_pulled = true;
        if (m->path_text.failed) status = err_set(err, TERN_NO_MEMORY, "no memory for a model's path");
        if (status == TERN_OK) s->n_models = n + 1;
    }
    mutex_unlock(s->lock);
    return status;
}

enum tern_status serve_model_forget(struct serve *s, struct serve_model *m, struct tern_err *err) {
    struct tern_engine *e = NULL;
    struct tern_service *service = NULL;
    enum tern_status status = TERN_OK;
    mutex_lock(s->lock);
    if (!m->is_pulled)
        status = err_set(err, TERN_INVALID_ARGUMENT, "%s is served because the server was started with it", m->id);
    else if (m->n_users > 0 || is_waited_locked(s, m) || m->state == SERVE_WANTED || m->state == SERVE_LOADING)
        status = err_set(err, TERN_AGAIN, "%s is in use", m->id);
    else
        m->is_gone = true;
    if (status == TERN_OK && m->state == SERVE_LOADED) model_take_locked(m, &e, &service);
    mutex_unlock(s->lock);
    if (e) {
        tern_service_close(service);
        tern_engine_close(e);
        model_tell(s, m, "removed");
    }
    return status;
}

bool serve_model_unload(struct serve *s, struct serve_model *m) {
    struct tern_engine *e = NULL;
    struct tern_service *service = NULL;
    mutex_lock(s->lock);
    const bool loaded = m->state == SERVE_LOADED;
    if (loaded && m->n_users == 0 && !is_waited_locked(s, m)) model_take_locked(m, &e, &service);
    if (loaded && !e) m->keep_said = true, m->keep_ns = 0;
    mutex_unlock(s->lock);
    if (e) {
        tern_service_close(service);
        tern_engine_close(e);
        model_tell(s, m, "unloaded by a request");
    }
    return loaded;
}

// Unloads the model that was used longest ago among those that nobody holds or waits for: for room any, else one whose
// time is over.
static bool idle_unload(struct serve *s, bool for_room, const char *why) {
    const uint64_t now = clock_ns();
    struct serve_model *oldest = NULL;
    struct tern_engine *e = NULL;
    struct tern_service *service = NULL;
    mutex_lock(s->lock);
    for (int i = 0; i < s->n_models; i++) {
        struct serve_model *m = &s->models[i];
        if (m->state != SERVE_LOADED || m->n_users > 0 || is_waited_locked(s, m)) continue;
        if (!for_room && serve_model_expires_locked(s, m) > now) continue;
        if (!oldest || m->used_ns < oldest->used_ns) oldest = m;
    }
    if (oldest) model_take_locked(oldest, &e, &service);
    mutex_unlock(s->lock);
    if (!oldest) return false;
    tern_service_close(service);
    tern_engine_close(e);
    model_tell(s, oldest, why);
    return true;
}

struct load {
    struct serve *s;
    struct serve_model *m;
};
static bool load_on_progress(void *arg, const char *stage, uint64_t done, uint64_t total) {
    const struct load *l = arg;
    (void)stage;
    mutex_lock(l->s->lock);
    l->m->progress = total ? (double)done / (double)total : 0;
    const bool more = !l->s->is_draining;
    mutex_unlock(l->s->lock);
    return more;
}

// Bytes that the next model may need; 0: not bounded by --memory.
static uint64_t room_left(struct serve *s, bool *full) {
    const uint64_t all = s->model.engine.memory_max;
    uint64_t used = s->o.prefix_ram; // of the next one's service
    mutex_lock(s->lock);
    for (int i = 0; i < s->n_models; i++)
        if (s->models[i].state == SERVE_LOADED) used += s->models[i].bytes;
    mutex_unlock(s->lock);
    *full = all > 0 && used >= all;
    return all > used ? all - used : 0;
}

static enum tern_status model_load(struct serve *s, struct serve_model *m, struct tern_err *err) {
    struct load l = {s, m};
    struct tern_engine_options o = s->model.engine;
    o.on_progress = load_on_progress;
    o.on_progress_arg = &l;
    if (m != &s->models[0]) {
        o.model_path = m->path;
        o.model_data = NULL;
        o.model_data_len = 0;
        o.shape = NULL;
        if (o.draft_path && !m->draft_path) o.draft = TERN_DRAFT_DEFAULT; // made for the first
        o.draft_path = m->draft_path;
        o.draft_unit = NULL;
    }
    for (;;) {
        bool full;
        struct tern_engine *e = NULL;
        o.memory_max = room_left(s, &full);
        enum tern_status status = full ? err_set(err, TERN_NO_MEMORY, "the loaded models need all of --memory")
                                       : tern_engine_open(&e, &o, err);
        if (status == TERN_OK) {
            status = service_open(s, m, e, err);
            if (status != TERN_OK) tern_engine_close(e);
        }
        if (status != TERN_NO_MEMORY || !idle_unload(s, true, "unloaded for room")) return status;
    }
}

// Loads a model and tells those who wait for it.
static void model_bring(struct serve *s, struct serve_model *m) {
    struct tern_err err = {0};
    enum tern_status status = model_load(s, m, &err);
    struct serve_fault fault = {0};
    if (status != TERN_OK) {
        log_warn("model %s: %s", m->id, err.message);
        if (m->path) serve_path_hide(&err, m->path, str_from(m->id));
        if (m->draft_path) serve_path_hide(&err, m->draft_path, STR("its draft model"));
    }
    if (status == TERN_NO_MEMORY) {
        serve_fault_set(&fault, 503, "model", "no_room", "no room for the model %s beside those at work: %s", m->id,
                        err.message);
        fault.retry_s = RETRY_S;
    } else if (status != TERN_OK) {
        serve_fault_set(&fault, 500, "model", "model_not_loaded", "the model %s could not be loaded: %s", m->id,
                        err.message);
    }
    if (status == TERN_OK) model_tell(s, m, "loaded");
    mutex_lock(s->lock);
    m->progress = 0;
    m->has_failed = status != TERN_OK;
    if (status != TERN_OK) m->state = SERVE_UNLOADED;
    for (struct serve_waiter *w = s->waiters; w; w = w->next) {
        if (w->m != m) continue;
        if (!w->fault.status) w->fault = fault;
        net_request_poke(w->r);
    }
    mutex_unlock(s->lock);
}

// When the next model's time is over; UINT64_MAX: no model has one.
static uint64_t next_expiry_locked(const struct serve *s) {
    uint64_t next = UINT64_MAX;
    for (int i = 0; i < s->n_models; i++) {
        const struct serve_model *m = &s->models[i];
        if (m->state != SERVE_LOADED || m->n_users > 0 || is_waited_locked(s, m)) continue;
        next = MIN(next, serve_model_expires_locked(s, m));
    }
    return next;
}

static void loader_main(void *arg) {
    struct serve *s = arg;
    mutex_lock(s->lock);
    while (!s->is_draining) {
        struct serve_model *wanted = NULL;
        for (int i = 0; i < s->n_models && !wanted; i++)
            if (s->models[i].state == SERVE_WANTED) wanted = &s->models[i];
        if (wanted) wanted->state = SERVE_LOADING;
        const uint64_t next = wanted ? 0 : next_expiry_locked(s), now = clock_ns();
        if (next == UINT64_MAX)
            cond_wait(s->wake, s->lock);
        else if (next > now)
            cond_wait_ns(s->wake, s->lock, MIN(next - now, WAIT_NS_MAX));
        if (next > now) continue;
        mutex_unlock(s->lock);
        if (wanted)
            model_bring(s, wanted);
        else
            idle_unload(s, false, "unloaded: its time without requests is over");
        mutex_lock(s->lock);
    }
    mutex_unlock(s->lock);
}

enum tern_status serve_models_start(struct serve *s, struct tern_err *err) {
    return os_thread_create(&s->loader, loader_main, s, err);
}

void serve_models_stop(struct serve *s) {
    mutex_lock(s->lock);
    s->is_draining = true;
    for (struct serve_waiter *w = s->waiters; w; w = w->next) {
        if (!w->fault.status) serve_fault_set(&w->fault, 503, NULL, "stopping", "the server is stopping");
        net_request_poke(w->r);
    }
    cond_signal(s->wake);
    mutex_unlock(s->lock);
    os_thread_join(s->loader);
    s->loader = NULL;
    serve_pull_stop(s);
    serve_digests_stop(s);
    for (int i = 0; i < s->n_models; i++)
        if (s->models[i].service) tern_service_drain(s->models[i].service);
}

void serve_models_close(struct serve *s) {
    for (int i = 0; i < s->n_models; i++) {
        tern_service_close(s->models[i].service);
        tern_engine_close(s->models[i].engine);
        buf_release(&s->models[i].path_text);
        buf_release(&s->models[i].draft_text);
        s->models[i].service = NULL;
        s->models[i].engine = NULL;
    }
    buf_release(&s->draft_text);
}
