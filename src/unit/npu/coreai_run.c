// Core AI on Linux: Apple's runtime has no C functions there, each of its libraries serves Python alone. So a Python
// process runs the asset, and every call sends it the inputs and states and takes back the outputs: fit for tests and
// for measuring fidelity, not for speed. The script below is all that it runs.
//
// The asset is checked against its own hash before the process sees it: a damaged program aborts that runtime.
#include "unit/npu/coreai_int.h"
#include "unit/npu/pack_list.h"
#include <stdio.h>

#define COREAI_START_MS 180000 // importing the runtime and lowering an asset
#define COREAI_REPLY_MS 600000
#define COREAI_LINE_MAX 65536
#define COREAI_BETA_NEEDED 3 // 1.0.0b3

// Requests: "function<tab>NAME<tab>inputs<tab>outputs<tab>states<tab>bytes" (names between commas; the bytes of all
// inputs and states; answer "ok"), then
// "run<tab>NAME" and the bytes of all inputs and old states (answer "ok" and the bytes of all outputs and new states).
// Answers that begin with "error" say why.
static const char script[] =
    "import asyncio, sys, importlib.metadata\n"
    "import numpy as np\n"
    "import coreai.runtime as rt\n"
    "from coreai.authoring import AIModelAsset\n"
    "src, dst = sys.stdin.buffer, sys.stdout.buffer\n"
    "def reply(text, *raw):\n"
    "    dst.write(text.encode() + b'\\n')\n"
    "    for r in raw: dst.write(r)\n"
    "    dst.flush()\n"
    "def names(text): return [x for x in text.split(',') if x]\n"
    "class Function:\n"
    "    def __init__(self, model, name, ins, outs, states, n_bytes):\n"
    "        self.f = model.load_function(name)\n"
    "        d = self.f.desc\n"
    "        self.ins, self.outs, self.states = names(ins), names(outs), names(states)\n"
    "        for want, has in ((self.ins, d.input_names), (self.outs, d.output_names), (self.states, d.state_names)):\n"
    "            have = [x for x in has]\n"
    "            if sorted(want) != sorted(have): raise ValueError(f'has {have}, the list {want}')\n"
    "        self.shape = [(n, tuple(d.input_descriptor(n).shape)) for n in self.ins]\n"
    "        self.state_shape = [(n, tuple(d.state_descriptor(n).shape)) for n in self.states]\n"
    "        have = sum(int(np.prod(s)) * 2 for _, s in self.shape + self.state_shape)\n"
    "        if have != int(n_bytes): raise ValueError(f'takes {have} bytes, the list gives {n_bytes}')\n"
    "    def take(self, shapes):\n"
    "        out = {}\n"
    "        for n, s in shapes:\n"
    "            raw = src.read(int(np.prod(s)) * 2)\n"
    "            out[n] = rt.NDArray(np.frombuffer(raw, np.float16).reshape(s).copy())\n"
    "        return out\n"
    "    async def run(self):\n"
    "        ins, states = self.take(self.shape), self.take(self.state_shape)\n"
    "        outs = await self.f(ins, states)\n"
    "        raw = [np.ascontiguousarray(outs[n].numpy()).tobytes() for n in self.outs]\n"
    "        raw += [np.ascontiguousarray(states[n].numpy()).tobytes() for n in self.states]\n"
    "        reply('ok ' + str(sum(map(len, raw))), *raw)\n"
    "async def serve(model):\n"
    "    reply('ready ' + importlib.metadata.version('coreai-core'))\n"
    "    made = {}\n"
    "    for line in iter(src.readline, b''):\n"
    "        verb, name, *rest = line.decode().rstrip('\\n').split('\\t')\n"
    "        try:\n"
    "            if verb == 'function':\n"
    "                made[name] = Function(model, name, *rest)\n"
    "                reply('ok')\n"
    "            else: await made[name].run()\n"
    "        except Exception as e: reply('error ' + (str(e) or repr(e)).replace('\\n', ' ')[:500])\n"
    "async def main():\n"
    "    if not sys.argv[1]: return await serve(None)\n"
    "    async with AIModelAsset.load(sys.argv[1]).executable() as model: await serve(model)\n"
    "asyncio.run(main())\n";

struct coreai_backend {
    struct npu_backend_base base;
    struct os_child child;
    int talk; // -1: not started
    char line[COREAI_LINE_MAX];
};
struct coreai_compiled {
    struct npu_compiled_base base;
    struct coreai_backend *b;
};
struct coreai_bound {
    struct coreai_compiled *c;
    struct npu_buffers io;
};

static enum tern_status python_find(char *out, size_t cap, const char *named, struct tern_err *err) {
    static const struct npu_runtime_place place = {"TERN_COREAI_PYTHON", NULL, NULL, NULL};
    const char *packages = env_get("TERN_NPU_PACKAGES");
    struct os_stat st;
    if (!named && !env_get(place.variable) && packages) {
        size_t n = (size_t)snprintf(out, cap, "%s/bin/python3", packages);
        if (n < cap && os_stat_get(&st, out) && st.is_file) return TERN_OK;
    }
    return npu_runtime_find(out, cap, &place, named, err);
}

// One line of the process; what begins with "error" is one.
static enum tern_status answer_read(struct coreai_backend *b, int timeout_ms, const char *what, struct tern_err *err) {
    enum tern_status status = talk_read_line(b->talk, b->line, sizeof b->line, timeout_ms, err);
    if (status != TERN_OK) {
        err_prefix(err, "Core AI: %s", what);
        return status;
    }
    if (!str_starts(str_from(b->line), STR("error "))) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "Core AI: %s: %s", what, b->line + 6);
}

static enum tern_status version_check(struct coreai_backend *b, struct tern_err *err) {
    int major, minor;
    const char *text = b->line + 6, *beta = strchr(text, 'b');
    int64_t n = COREAI_BETA_NEEDED;
    if (!str_starts(str_from(b->line), STR("ready ")))
        return err_set(err, TERN_UNSUPPORTED, "Core AI: '%s' did not start the runtime", b->base.info.library);
    snprintf(b->base.info.version, sizeof b->base.info.version, "%s", text);
    bool known = npu_version_parse(text, &major, &minor) && (!beta || str_to_i64(str_from(beta + 1), &n));
    if (known && (major > 1 || (major == 1 && (minor > 0 || n >= COREAI_BETA_NEEDED)))) return TERN_OK;
    return err_set(err, TERN_UNSUPPORTED, "Core AI: coreai-core is %s; 1.0.0b%d or later is needed", text,
                   COREAI_BETA_NEEDED);
}

static void backend_close(struct npu_backend *backend) {
    struct coreai_backend *b = (struct coreai_backend *)backend;
    if (!b) return;
    talk_close(b->talk);
    child_close(&b->child);
    mem_free(b);
}

static enum tern_status backend_open(struct npu_backend **out, const struct npu_backend_options *o,
                                     struct tern_err *err) {
    enum tern_status status;
    struct coreai_backend *b = mem_calloc(1, sizeof *b);
    struct coreai_asset_info asset;
    *out = NULL;
    if (!b) return err_set(err, TERN_NO_MEMORY, "no memory for Core AI");
    b->base.driver = &npu_coreai_backend;
    b->talk = -1;
    status = python_find(b->base.info.library, sizeof b->base.info.library, o->library, err);
    if (status != TERN_OK) {
        err_prefix(err, "Core AI");
        goto fail;
    }
    if (o->asset) {
        TRY_GOTO(coreai_asset_check(o->asset, &asset, err), fail);
        snprintf(b->base.info.model, sizeof b->base.info.model, "%s", asset.model);
    }
    snprintf(b->base.info.provider, sizeof b->base.info.provider, "Apple's Linux runtime");
    const char *const argv[] = {b->base.info.library, "-c", script, o->asset ? o->asset : "", NULL};
    struct child_options child = {.argv = argv, .talk = &b->talk};
    TRY_GOTO(child_open(&b->child, &child, err), fail);
    TRY_GOTO(answer_read(b, COREAI_START_MS, "the runtime does not start", err), fail);
    TRY_GOTO(version_check(b, err), fail);
    *out = (struct npu_backend *)b;
    return TERN_OK;
fail:
    backend_close((struct npu_backend *)b);
    return status;
}

static size_t bytes_of(const struct npu_list *l, int id) { return (size_t)npu_tensor_len(&l->tensors[id]) * 2; }

static bool names_put(struct buf *out, const struct npu_list *l, const int *ids, int n) {
    buf_putc(out, '\t');
    for (int i = 0; i < n; i++) buf_putf(out, "%s%s", i > 0 ? "," : "", l->tensors[ids[i]].name);
    return !out->failed;
}

static enum tern_status compile(struct npu_backend *backend, struct npu_compiled **out, const struct npu_list *l,
                                struct tern_err *err) {
    struct coreai_backend *b = (struct coreai_backend *)backend;
    struct buf request;
    enum tern_status status = TERN_OK;
    *out = NULL;
    struct coreai_compiled *c = mem_calloc(1, sizeof *c);
    buf_init(&request, COREAI_LINE_MAX);
    buf_putf(&request, "function\t%s", l->name);
    names_put(&request, l, l->inputs, l->n_inputs);
    names_put(&request, l, l->outputs, l->n_outputs);
    buf_putc(&request, '\t');
    for (int i = 0; i < l->n_states; i++) buf_putf(&request, "%s%s", i > 0 ? "," : "", l->states[i].name);
    size_t n_bytes = 0;
    for (int i = 0; i < l->n_inputs; i++) n_bytes += bytes_of(l, l->inputs[i]);
    for (int i = 0; i < l->n_states; i++) n_bytes += bytes_of(l, l->states[i].old);
    buf_putf(&request, "\t%zu\n", n_bytes);
    if (!c || request.failed) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to compile %s", l->name);
        goto done;
    }
    TRY_GOTO(talk_write(b->talk, request.data, request.len, COREAI_REPLY_MS, err), done);
    TRY_GOTO(answer_read(b, COREAI_REPLY_MS, l->name, err), done);
    c->b = b;
    c->base.list = l;
    c->base.placement.n_ops = l->n_ops;
    snprintf(c->base.placement.detail, sizeof c->base.placement.detail, "%s: %d operations", b->base.info.provider,
             l->n_ops);
    *out = (struct npu_compiled *)c;
done:
    buf_release(&request);
    if (status != TERN_OK) mem_free(c);
    return status;
}

static void compiled_free(struct npu_compiled *c) { mem_free(c); }

static enum tern_status bind(struct npu_compiled *compiled, struct npu_binding **out, const struct npu_buffers *io,
                             struct tern_err *err) {
    struct coreai_bound *bd = mem_alloc(sizeof *bd);
    *out = NULL;
    if (!bd) return err_set(err, TERN_NO_MEMORY, "no memory for the buffers of a program");
    *bd = (struct coreai_bound){(struct coreai_compiled *)compiled, *io};
    *out = (struct npu_binding *)bd;
    return TERN_OK;
}

static void unbind(struct npu_binding *bd) { mem_free(bd); }

static enum tern_status run(struct npu_binding *binding, struct tern_err *err) {
    struct coreai_bound *bd = (struct coreai_bound *)binding;
    struct coreai_backend *b = bd->c->b;
    const struct npu_list *l = bd->c->base.list;
    char request[NPU_NAME_MAX + 8];
    int64_t n_bytes = 0, n_want = 0;
    size_t len = (size_t)snprintf(request, sizeof request, "run\t%s\n", l->name);
    TRY(talk_write(b->talk, request, len, COREAI_REPLY_MS, err));
    for (int i = 0; i < l->n_inputs; i++)
        TRY(talk_write(b->talk, bd->io.inputs[i], bytes_of(l, l->inputs[i]), COREAI_REPLY_MS, err));
    for (int i = 0; i < l->n_states; i++)
        TRY(talk_write(b->talk, bd->io.old[i], bytes_of(l, l->states[i].old), COREAI_REPLY_MS, err));
    TRY(answer_read(b, COREAI_REPLY_MS, l->name, err));
    for (int i = 0; i < l->n_outputs; i++) n_want += (int64_t)bytes_of(l, l->outputs[i]);
    for (int i = 0; i < l->n_states; i++) n_want += (int64_t)bytes_of(l, l->states[i].now);
    if (!str_starts(str_from(b->line), STR("ok ")) || !str_to_i64(str_from(b->line + 3), &n_bytes) || n_bytes != n_want)
        return err_set(err, TERN_UNSUPPORTED, "Core AI: %s gives %s bytes, the list %lld", l->name, b->line,
                       (long long)n_want);
    for (int i = 0; i < l->n_outputs; i++)
        TRY(talk_read(b->talk, bd->io.outputs[i], bytes_of(l, l->outputs[i]), COREAI_REPLY_MS, err));
    for (int i = 0; i < l->n_states; i++)
        TRY(talk_read(b->talk, bd->io.now[i], bytes_of(l, l->states[i].now), COREAI_REPLY_MS, err));
    return TERN_OK;
}

const struct npu_backend_driver npu_coreai_backend = {
    .name = "coreai",
    .title = "Core AI",
    .shares_weights = true,
    .needs_asset = true,
    .open = backend_open,
    .close = backend_close,
    .compile = compile,
    .free = compiled_free,
    .bind = bind,
    .unbind = unbind,
    .run = run,
};
