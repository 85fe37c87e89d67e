// Private to unit/cpu: the shape of each tile register, in the processor's own format. A kernel loads one before its
// first tile and again when the number of rows changes; loading clears the tiles.
#pragma once
#include <stdalign.h>
#include "base/plain.h"

#define TILE_ROWS 16  // of a tile at most
#define TILE_BYTES 64 // of a tile's row at most

struct tile_config {
    alignas(64) uint8_t palette; // 1: eight tiles of 1 KiB
    uint8_t start_row;
    uint8_t reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "the processor reads 64 bytes");

static inline void tile_shape(struct tile_config *c, int tile, int rows, int row_bytes) {
    c->palette = 1;
    c->rows[tile] = (uint8_t)rows;
    c->row_bytes[tile] = (uint16_t)row_bytes;
}
