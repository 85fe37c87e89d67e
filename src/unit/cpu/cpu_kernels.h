// Private to unit/cpu: declarations of every kernel, made from the rows of kernels.inc.
//
// A kernel file includes this header and defines its functions; the row is the only registration. The type of a
// kernel follows from the slot it fills, so a row whose function has another type does not compile.
#pragma once
#include "unit/cpu/kernel_args.h"

#define KERNEL_TYPE(slot) __typeof__(*((struct cpu_kernels *)0)->slot)
#define KERNEL_LINEAR(isa, fn, pack, rows_class, flags) KERNEL_TYPE(linear[pack][rows_class]) fn;
#define KERNEL_ROW(isa, fn, slot, check, param) KERNEL_TYPE(slot) fn;
#include "unit/cpu/kernels.inc"
