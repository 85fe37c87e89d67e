// A library that says to be an old ONNX Runtime.
#include <stddef.h>
#include <stdint.h>

static const void *get_api(uint32_t version) {
    (void)version;
    return NULL;
}
static const char *get_version(void) { return "1.19.2"; }
struct api_base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
};
const struct api_base *OrtGetApiBase(void);
__attribute__((visibility("default"))) const struct api_base *OrtGetApiBase(void) {
    static const struct api_base base = {get_api, get_version};
    return &base;
}
