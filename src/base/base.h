// The face of base/: everything above it includes this header first and no other header of base/ (but for kernels,
// which see plain.h alone).
//
// Reading order: plain.h (small integers and floats), err.h (how things fail), num.h (sizes and number formats),
// mem.h (where memory comes from), str.h, json.h, log.h, os.h (the only operating-system layer), team.h (threads),
// process.h (children), library.h (shared libraries at run time). Nothing in base/ keeps global state but the memory
// counters, the log level and the interrupt hook.
#pragma once
#include "base/err.h"
#include "base/num.h"
#include "base/format.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "base/http.h"
#include "base/team.h"
#include "base/process.h"
#include "base/library.h"
