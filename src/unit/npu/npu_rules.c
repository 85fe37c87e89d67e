// The table of rule sets. Each published number has a test (test_npu_rules.c) that drives operation lists.
#include "base/base.h"
#include "unit/npu/npu_rules.h"

#define CLIFF_M1 32760.0f // 32,752 passes; what fp16 would store as 32,768 does not
#define CLIFF_M2 32759.5f // published as about 32,759

#define ANE_M1(mac)                                                                                      \
    .half = true, .ane = true, .conv = mac, .matmul = mac, .sum = mac, .cliff = CLIFF_M1, .flush = true, \
    .slice_gain = true
// Whether M2 flushes is not published; that its answers differ from those of later engines speaks for it.
#define ANE_M2(mac)                                                                                      \
    .half = true, .ane = true, .conv = mac, .matmul = mac, .sum = mac, .cliff = CLIFF_M2, .flush = true, \
    .slice_gain = true, .sum_away = true
#define ANE_M5(mac) \
    .half = true, .ane = true, .conv = mac, .matmul = mac, .sum = mac, .cliff = CLIFF_M1, .sum_away = true

const struct npu_rules npu_rules_table[] = {
    {.name = "coreai-linux", .note = "Apple's Core AI runtime on Linux", .half = true, .matmul = NPU_MAC_HALF},
    {.name = "fp32", .note = "float throughout"},
    {.name = "ane-m1", .note = "M1 as published, float sums", ANE_M1(NPU_MAC_WIDE)},
    {.name = "ane-m1:tile4", .note = "M1 as published, tiles of 4 on 12 bits", ANE_M1(NPU_MAC_TILE4)},
    {.name = "ane-m1:prod16", .note = "M1 as published, fp16 products", ANE_M1(NPU_MAC_PROD16)},
    {.name = "ane-m2", .note = "M2 as published, float sums", ANE_M2(NPU_MAC_WIDE)},
    {.name = "ane-m2:tile4", .note = "M2 as published, tiles of 4 on 12 bits", ANE_M2(NPU_MAC_TILE4)},
    {.name = "ane-m2:prod16", .note = "M2 as published, fp16 products", ANE_M2(NPU_MAC_PROD16)},
    {.name = "ane-m5", .note = "M5 as published, float sums", ANE_M5(NPU_MAC_WIDE)},
    {.name = "ane-m5:tile4", .note = "M5 as published, tiles of 4 on 12 bits", ANE_M5(NPU_MAC_TILE4)},
    {.name = "ane-m5:prod16", .note = "M5 as published, fp16 products", ANE_M5(NPU_MAC_PROD16)},
    {.name = NULL},
};

const struct npu_rules *npu_rules_find(const char *name) {
    for (int i = 0; npu_rules_table[i].name; i++)
        if (str_eqz(str_from(name), npu_rules_table[i].name)) return &npu_rules_table[i];
    return NULL;
}
