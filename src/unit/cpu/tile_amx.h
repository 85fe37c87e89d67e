// Private to unit/cpu: the tile registers of AMX, as the words linear_amx.inc and linear_bf16_tiles.inc are written in.
// Assembly, since gcc 12's intrinsics for loads do not say that they read memory, so that stores before them may move
// behind them. Tile numbers are literals.
#pragma once
#include "base/plain.h"

#define TILE_SETUP(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(config)) : "memory")
#define TILE_RELEASE() __asm__ volatile("tilerelease" ::: "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t ::)
#define TILE_LOAD(t, p, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((size_t)(stride)) : "memory")
#define TILE_STORE(t, p, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((size_t)(stride)) : "memory")
// c += a · b: bytes, a's signed, b's signed (SS) or not (SU), exact in int32
#define TILE_DOT_SS(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_DOT_SU(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
#define TILE_DOT_BF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::)
