// Private to op/: formats as the searching encoder sees them.
//
//   op_encode.c       the search: integers and scales of a block
//   op_encode_pack.c  the list of formats, and how each stores what was found
#pragma once
#include "base/base.h"
#include "op/op_int.h"

#define ENCODE_BLOCK 256
#define ENCODE_GROUPS_MAX 16

// value = (d * scale) * q - d_min * min
struct encode_block {
    float d, d_min;               // as halves hold them
    int scale[ENCODE_GROUPS_MAX]; // of each group
    int min[ENCODE_GROUPS_MAX];
    int8_t q[ENCODE_BLOCK];
};
struct encode_kind {
    enum format format;
    int group; // values: 16 or 32
    bool has_min;
    float q_min, q_max;       // of the integers
    int scale_min, scale_max; // integers of the group scales (and, from 0, of the minima)
    const int8_t *values;     // [16] the integers are these, ascending, or NULL: all
    void (*pack)(const struct encode_block *b, uint8_t *out);
};
const struct encode_kind *encode_kind_find(enum format f); // NULL: the definition's encoder is as good
