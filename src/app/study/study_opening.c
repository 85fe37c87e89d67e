// What tern fidelity and tern validate open before they compare: the model's path, an engine for its text alone, the
// prompts, and the reference, which answers them.
#include "base/base.h"
#include "study_fidelity.h"

#define CTX_DEFAULT 1024

int fidelity_run_open(struct fidelity_run *r, const struct fidelity_asked *q) {
    struct tern_err err = {0};
    *r = (struct fidelity_run){0};
    buf_init(&r->storage, 0);
    int code = model_opts_finish(q->c, q->model);
    if (code == EXIT_DONE) code = model_path_told(q->c, &q->model->engine.model_path, &r->storage);
    r->options = q->model->engine; // the path in storage
    q->model->engine.unit = "null";
    if (code == EXIT_DONE) code = engine_open_told(q->c, q->model, &r->text);
    if (code != EXIT_DONE) return code;
    int n_ctx = r->options.n_ctx > 0 ? r->options.n_ctx : CTX_DEFAULT;
    enum tern_status status = prompt_set_read(&r->set, q->prompts, &err);
    if (status == TERN_OK && q->thin > 0) prompt_set_thin(&r->set, q->thin);
    if (status == TERN_OK)
        status = fidelity_open(&r->f, q->a, &r->options, r->text, &r->set, n_ctx, q->answer_max, &err);
    return status == TERN_OK ? EXIT_DONE : fail_told(q->c, &err);
}

void fidelity_run_close(struct fidelity_run *r) {
    fidelity_close(&r->f);
    prompt_set_release(&r->set);
    tern_engine_close(r->text);
    buf_release(&r->storage);
}
