// A library that says to be an old OpenVINO: it has every function by name and only tells its version.
#include "base/base.h"
#include "unit/npu/openvino_int.h"

#define SHOWN __attribute__((visibility("default")))

SHOWN int ov_get_openvino_version(struct ov_version *out);
int ov_get_openvino_version(struct ov_version *out) {
    *out = (struct ov_version){"2024.6.0-17404", "OpenVINO"};
    return 0;
}
#define NOTHING(name)     \
    SHOWN int name(void); \
    int name(void) { return 0; }
NOTHING(ov_version_free)
NOTHING(ov_get_last_err_msg)
NOTHING(ov_get_error_info)
NOTHING(ov_free)
NOTHING(ov_core_create)
NOTHING(ov_core_free)
NOTHING(ov_core_get_available_devices)
NOTHING(ov_available_devices_free)
NOTHING(ov_core_read_model_from_memory_buffer)
NOTHING(ov_model_free)
NOTHING(ov_core_compile_model)
NOTHING(ov_compiled_model_free)
NOTHING(ov_compiled_model_get_property)
NOTHING(ov_compiled_model_create_infer_request)
NOTHING(ov_infer_request_free)
NOTHING(ov_infer_request_set_input_tensor_by_index)
NOTHING(ov_infer_request_set_output_tensor_by_index)
NOTHING(ov_infer_request_infer)
NOTHING(ov_tensor_create_from_host_ptr)
NOTHING(ov_tensor_free)
