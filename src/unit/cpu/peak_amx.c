// Peaks of AMX: tiles of 16 × 16 sums, 64 bytes deep. Four tiles of sums, each product of one of two left and two right
// tiles, hide the latency: there are eight tiles in all.
#include "base/plain.h"
#include "unit/cpu/peak.h"
#include <immintrin.h>

static const struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t n_bytes_row[16];
    uint8_t n_rows[16];
} config = {.palette = 1, .n_bytes_row = {64, 64, 64, 64, 64, 64, 64, 64}, .n_rows = {16, 16, 16, 16, 16, 16, 16, 16}};

static void tiles_begin(void) {
    static const uint8_t ones[16 * 64] = {1};
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
}

static int32_t tiles_end(void) {
    int32_t sums[4][16 * 16], sum = 0;
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    _tile_stored(2, sums[2], 64);
    _tile_stored(3, sums[3], 64);
    _tile_release();
    for (int i = 0; i < 4; i++) sum ^= sums[i][0];
    return sum;
}

int32_t peak_int8__amx(uint64_t n) {
    tiles_begin();
    for (uint64_t k = 0; k < n * (PEAK_CHAINS / 4); k++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    return tiles_end();
}

int32_t peak_bf16__amx(uint64_t n) {
    tiles_begin();
    for (uint64_t k = 0; k < n * (PEAK_CHAINS / 4); k++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    return tiles_end();
}
