// linear_int8_avx512vnni.c once more, for the rarer packs: in a file of its own so that both compile side by side.
#include "base/plain.h"
#define LINEAR_PACKS LINEAR_PACKS_MORE
#define LINEAR_ALIASES LINEAR_ALIASES_MORE
#include "unit/cpu/linear_int8_avx512vnni.c"
