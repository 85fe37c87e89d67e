// See short_models.h.
#include "short_models.h"
#include "../unit/engine/engine_fixture.h"
#include "tiny_drafter_folder.h"

#include <stdio.h>
#include <stdlib.h>

struct short_models short_models = {
    .target = PICO_MODEL, .drafter = TEST_MODELS "/pico-dspark.gguf", .first_id = 300, .n_ids = 1500};
static char tiny_path[256];

int short_models_setup(void **state) {
    if (fixture_setup(state) != 0) return -1;
    if (!env_get("TERN_TEST_SHORT")) return 0;
    fixture_temp_path(tiny_path, "tiny-drafter");
    tiny_drafter_write(SCRIPT_MODEL, tiny_path, false);
    short_models = (struct short_models){
        .is_short = true, .target = SCRIPT_MODEL, .drafter = tiny_path, .first_id = 100, .n_ids = 500};
    return 0;
}

int short_models_teardown(void **state) {
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", tiny_path);
    if (short_models.is_short && system(command) != 0) return -1;
    return fixture_teardown(state);
}
