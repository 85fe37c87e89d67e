// Ollama's manifests: whatever the bytes, a digest that comes out is the name of a blob and nothing else.
#include "base/base.h"
#include "app/store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct store_manifest m;
    struct tern_err err = {0};
    enum tern_status status = store_manifest_parse(&m, (struct str){(const char *)data, size}, &err);
    if (status != TERN_OK) {
        if (err.message[0] == 0) TERN_BUG("an error without a message");
        return 0;
    }
    struct str name = str_from(m.model);
    if (name.len != 71 || !str_starts(name, STR("sha256-"))) TERN_BUG("a manifest names the blob %s", m.model);
    for (size_t i = 7; i < name.len; i++)
        if (!strchr("0123456789abcdef", name.data[i])) TERN_BUG("a manifest names the blob %s", m.model);
    return 0;
}
