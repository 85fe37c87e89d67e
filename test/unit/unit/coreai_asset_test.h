// Makes Core AI assets in tests: operation lists -> template (tools/coreai, in the runtimes' Python) -> filled in C.
#pragma once
#include "npu_backend_test.h"
#include "unit/npu/coreai_int.h"
#include "unit/npu/pack_list.h"

struct asset_folder {
    char dir[256], lists[320], tpl[320], built[320], asset[320];
    char python[1024];
};
// False after a message: no Python with the runtime is here.
static inline bool asset_folder_init(struct asset_folder *f) {
    struct npu_backend *b = backend_open_or_skip(&npu_coreai_backend, NULL);
    if (!b) return false;
    snprintf(f->python, sizeof f->python, "%s", npu_backend_base_of(b)->info.library);
    npu_coreai_backend.close(b);
    snprintf(f->dir, sizeof f->dir, "/tmp/tern-coreai-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->lists, sizeof f->lists, "%s/lists.json", f->dir);
    snprintf(f->tpl, sizeof f->tpl, "%s/template", f->dir);
    snprintf(f->built, sizeof f->built, "%s/built.aimodel", f->dir);
    snprintf(f->asset, sizeof f->asset, "%s/model.aimodel", f->dir);
    return true;
}
static inline void asset_folder_remove(struct asset_folder *f) {
    const char *const argv[] = {"rm", "-rf", f->dir, NULL};
    struct child_options o = {.argv = argv};
    struct os_child c;
    struct child_result r;
    assert_ok(child_open(&c, &o, &test_err));
    assert_ok(child_wait(&c, 60000, &r, &test_err));
}
static inline void template_make(struct asset_folder *f, const struct npu_list *const *lists, int n) {
    char log[400];
    struct buf json;
    buf_init(&json, COREAI_TEMPLATE_TEXT_MAX);
    assert_true(npu_lists_json(&json, lists, n));
    assert_ok(file_write_atomic(f->lists, json.data, json.len, &test_err));
    buf_release(&json);
    snprintf(log, sizeof log, "%s/make_template.log", f->dir);
    const char *const argv[] = {f->python, "tools/coreai/make_template.py", f->lists, f->tpl, NULL};
    struct child_options o = {.argv = argv, .out_path = log, .err_path = log};
    struct os_child c;
    struct child_result r;
    assert_ok(child_open(&c, &o, &test_err));
    assert_ok(child_wait(&c, 300000, &r, &test_err));
    if (r.code != 0) {
        struct buf text;
        buf_init(&text, 1 << 20);
        assert_ok(file_read_all(&text, log, &test_err));
        fail_msg("make_template.py: %s", text.len > 2000 ? text.data + text.len - 2000 : text.data);
    }
}
