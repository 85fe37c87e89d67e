// Core AI assets: filled from a template, run on Apple's runtime, and refused when damaged or of another model.
#define _GNU_SOURCE 1
#include "coreai_asset_test.h"

#define SOURCE_DIGEST "00000000000000000000000000000000000000000000000000000000000000ab"

static struct model *model;
static struct npu_store *store;

static struct npu_list *list_make(uint64_t seed) { return npu_every_op(store, "every", seed); }

static void write_text(const char *dir, const char *name, const char *data, size_t len) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_ok(file_write_atomic(path, data, len, &test_err));
}
static void read_text(const char *dir, const char *name, struct buf *out) {
    char path[400];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    buf_init(out, 64 << 20);
    assert_ok(file_read_all(out, path, &test_err));
}

static void test_fill_and_run(void **state) {
    (void)state;
    struct asset_folder f;
    if (!asset_folder_init(&f)) return;
    struct npu_list *l = list_make(5);
    const struct npu_list *one = l;
    template_make(&f, &one, 1);
    assert_ok(coreai_fill(f.tpl, f.asset, &one, 1, SOURCE_DIGEST, &test_err));
    struct coreai_asset_info info;
    assert_ok(coreai_asset_check(f.asset, &info, &test_err));
    assert_string_equal(info.model, SOURCE_DIGEST);
    struct npu_backend_options o = {.asset = f.asset};
    struct npu_backend *b;
    assert_ok(npu_coreai_backend.open(&b, &o, &test_err));
    struct npu_test_buffers io, want;
    npu_test_buffers_init(&io, l);
    npu_test_buffers_init(&want, l);
    npu_test_buffers_fill(&io, l, 9);
    npu_test_buffers_fill(&want, l, 9);
    struct npu_compiled *c;
    struct npu_binding *bd;
    struct npu_buffers given = {.inputs = io.inputs, .outputs = io.outputs, .old = io.old, .now = io.now};
    assert_ok(npu_coreai_backend.compile(b, &c, l, &test_err));
    assert_ok(npu_coreai_backend.bind(c, &bd, &given, &test_err));
    assert_ok(npu_coreai_backend.run(bd, &test_err));
    npu_test_reference(l, &want);
    for (int i = 0; i < l->n_outputs; i++) {
        const struct npu_tensor *t = &l->tensors[l->outputs[i]];
        if (t->role == NPU_OUT_ARG) continue;
        float most = largest_difference(io.outputs[i], want.outputs[i], npu_tensor_len(t));
        if (!(most < 0.03f)) fail_msg("%s differs by %g", t->name, (double)most); // its products sum in fp16
    }
    // Another list's name, and a list with other inputs, are refused by name.
    struct npu_list other = *l;
    struct tern_err err;
    struct npu_compiled *none;
    snprintf(other.name, sizeof other.name, "absent");
    assert_int_equal(npu_coreai_backend.compile(b, &none, &other, &err), TERN_UNSUPPORTED);
    assert_contains(err.message, "Core AI: absent: ");
    other = *l;
    other.n_inputs--;
    assert_int_equal(npu_coreai_backend.compile(b, &none, &other, &err), TERN_UNSUPPORTED);
    assert_contains(err.message, "Core AI: every: has ");
    npu_coreai_backend.unbind(bd);
    npu_coreai_backend.free(c);
    npu_coreai_backend.close(b);
    npu_test_buffers_release(&io);
    npu_test_buffers_release(&want);
    npu_list_free(l);
    asset_folder_remove(&f);
}

// A template as make_template.py would write it, without the runtime: one block of each part around text.
static void small_template(struct asset_folder *f, const struct npu_list *const *l, const char *blocks, size_t bytes) {
    struct buf json, head;
    char digest[65], skeleton_hex[65];
    const char skeleton[] = "<<start||middle||end>>";
    struct sha256 s;
    uint8_t raw[32];
    buf_init(&json, 1 << 20);
    buf_init(&head, 1 << 20);
    assert_true(npu_lists_json(&json, l, 1));
    npu_lists_digest(&json, digest);
    sha256_init(&s);
    sha256_update(&s, skeleton, sizeof skeleton - 1);
    sha256_final(&s, raw);
    sha256_hex(raw, skeleton_hex);
    buf_putf(&head,
             "{\"format\":1,\"runtime\":\"x\",\"lists\":\"%s\",\"asset_version\":\"2.0\",\"bytes\":%zu,"
             "\"skeleton\":\"%s\",\"functions\":[\"every\"],\"blocks\":[%s]}",
             digest, bytes, skeleton_hex, blocks);
    assert_ok(os_mkdirs(f->tpl, &test_err));
    write_text(f->tpl, "template.json", head.data, head.len);
    write_text(f->tpl, "skeleton.bin", skeleton, sizeof skeleton - 1);
    buf_release(&json);
    buf_release(&head);
}

static void fill_fails(struct asset_folder *f, const struct npu_list *const *l, enum tern_status status,
                       const char *message) {
    struct tern_err err;
    uint64_t n_live = mem_stats_get().n_live;
    struct os_stat st;
    char path[400];
    assert_int_equal(coreai_fill(f->tpl, f->asset, l, 1, SOURCE_DIGEST, &err), status);
    assert_contains(err.message, message);
    assert_int_equal(mem_stats_get().n_live, n_live);
    snprintf(path, sizeof path, "%s/metadata.json", f->asset);
    assert_false(os_stat_get(&st, path)); // what is not whole does not look so
}

#define BLOCKS                                                               \
    "{\"name\":\"every.up\",\"part\":\"scale\",\"offset\":7,\"bytes\":192}," \
    "{\"name\":\"every.norm\",\"part\":\"half\",\"offset\":207,\"bytes\":128}"
#define BLOCKS_BYTES (22 + 192 + 128)

static void test_damage(void **state) {
    (void)state;
    struct asset_folder f;
    struct npu_list *l = list_make(5);
    const struct npu_list *one = l;
    struct coreai_asset_info info;
    struct tern_err err;
    struct buf program, text;
    snprintf(f.dir, sizeof f.dir, "/tmp/tern-coreai-XXXXXX");
    assert_non_null(mkdtemp(f.dir));
    snprintf(f.tpl, sizeof f.tpl, "%s/template", f.dir);
    snprintf(f.asset, sizeof f.asset, "%s/model.aimodel", f.dir);
    fill_fails(&f, &one, TERN_NOT_FOUND, "template.json");
    small_template(&f, &one, BLOCKS, BLOCKS_BYTES);
    write_text(f.tpl, "skeleton.bin", "other", 5);
    fill_fails(&f, &one, TERN_BAD_FORMAT, "skeleton.bin is damaged");
    small_template(&f, &one, BLOCKS, BLOCKS_BYTES + 1);
    fill_fails(&f, &one, TERN_BAD_FORMAT, "the skeleton is too short");
    small_template(&f, &one, BLOCKS, BLOCKS_BYTES - 1);
    fill_fails(&f, &one, TERN_BAD_FORMAT, "the skeleton is too long");
    small_template(&f, &one, "{\"name\":\"every.up\",\"part\":\"scale\",\"offset\":7,\"bytes\":191}", 22 + 191);
    fill_fails(&f, &one, TERN_MISMATCH, "the template has 191 bytes for 'every.up', the model 192");
    small_template(&f, &one, "{\"name\":\"every.norm\",\"part\":\"q\",\"offset\":7,\"bytes\":64}", 22 + 64);
    fill_fails(&f, &one, TERN_MISMATCH, "the template has 64 bytes for 'every.norm', the model 0");
    small_template(&f, &one, "{\"name\":\"every.nobody\",\"part\":\"q\",\"offset\":7,\"bytes\":64}", 22 + 64);
    fill_fails(&f, &one, TERN_MISMATCH, "wants a weight 'every.nobody'");
    small_template(&f, &one, "{\"name\":\"every.up\",\"part\":\"z\",\"offset\":7,\"bytes\":1}", 23);
    fill_fails(&f, &one, TERN_BAD_FORMAT, "part 'z'");
    small_template(&f, &one, BLOCKS ",{\"name\":\"every.up\",\"part\":\"q\",\"offset\":300,\"bytes\":9}", 400);
    fill_fails(&f, &one, TERN_BAD_FORMAT, "block 2 (every.up) does not follow the one before");
    small_template(&f, &one, BLOCKS, 100);
    fill_fails(&f, &one, TERN_BAD_FORMAT, "the blocks end at byte 335 of 100");
    // Another geometry.
    struct npu_list other = *l;
    const struct npu_list *wrong = &other;
    other.n_outputs--;
    small_template(&f, &wrong, BLOCKS, BLOCKS_BYTES);
    fill_fails(&f, &one, TERN_MISMATCH, "the template was made for other programs");
    // Sound, then damaged in the asset.
    small_template(&f, &one, BLOCKS, BLOCKS_BYTES);
    assert_ok(coreai_fill(f.tpl, f.asset, &one, 1, SOURCE_DIGEST, &test_err));
    read_text(f.asset, "main.mlirb", &program);
    assert_int_equal(program.len, BLOCKS_BYTES);
    assert_memory_equal(program.data, "<<start", 7);
    assert_memory_equal(program.data + 199, "||middle", 8);
    assert_memory_equal(program.data + BLOCKS_BYTES - 7, "||end>>", 7);
    assert_ok(coreai_asset_check(f.asset, &info, &test_err));
    assert_string_equal(info.model, SOURCE_DIGEST);
    program.data[100] ^= 1;
    write_text(f.asset, "main.mlirb", program.data, program.len);
    assert_int_equal(coreai_asset_check(f.asset, &info, &err), TERN_BAD_FORMAT);
    assert_contains(err.message, "main.mlirb is damaged");
    read_text(f.asset, "metadata.json", &text);
    write_text(f.asset, "metadata.json", text.data, text.len - 1);
    assert_int_equal(coreai_asset_check(f.asset, &info, &err), TERN_BAD_FORMAT);
    assert_contains(err.message, "metadata.json");
    buf_release(&program);
    buf_release(&text);
    npu_list_free(l);
    asset_folder_remove(&f);
}

static void test_absent(void **state) {
    (void)state;
    struct npu_backend_options o = {.library = "/nowhere/python3"};
    check_open_fails(&npu_coreai_backend, &o, TERN_NOT_FOUND, "there is no file '/nowhere/python3'");
    o.library = "/bin/true"; // runs, and says nothing
    check_open_fails(&npu_coreai_backend, &o, TERN_IO, "Core AI: the runtime does not start");
}

int main(void) {
    struct tiny_shape shape = tiny_lfm2_shape(FORMAT_F32, 1);
    struct tern_err err;
    model = tiny_model_create(&shape);
    if (npu_store_create(&store, model, NPU_FORMAT_I8, &err) != TERN_OK) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_absent),
        cmocka_unit_test(test_fill_and_run),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    npu_store_free(store);
    tiny_model_free(model);
    return rc;
}
