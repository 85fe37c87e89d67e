// What a compiled set measured on this machine and chose: programs.json beside the weights. Private to unit/npu.
#pragma once
#include "base/base.h"
#include "unit/npu/npu_unit.h"

#define NPU_SET_PROGRAMS "programs.json"
#define NPU_SET_ASSET "model.aimodel" // of back end coreai
#define NPU_SET_OPENVINO "openvino"   // of back end openvino: programs as the runtime keeps them
#define NPU_SET_VERSION 2
#define NPU_CHUNKS 8 // of the second form of attention

// Text of a programs.json, checked: known version, buckets rising, chunks 1 or NPU_CHUNKS. name: for messages.
// TERN_MISMATCH: of another version.
enum tern_status npu_choice_parse(struct npu_choice *c, struct str text, const char *name, struct tern_err *err);
// The set's folder in the cache: "" when there is no cache.
const char *npu_set_dir(const struct model *m, const char *backend, char *out, size_t cap);
// Of a named set's folder, which must be of this model, or (named "" or NULL) of the cache's when it is there; else no
// choice. Of a set of another back end nothing is used.
enum tern_status npu_choice_load(struct npu_choice *c, const struct model *m, const char *backend, const char *named,
                                 struct tern_err *err);
// Does the folder hold a set that can be read? Of which model, whoever opens it looks.
enum tern_status npu_choice_check(const char *dir, struct tern_err *err);
// The named set (TERN_NPU_SET) and those in the cache: the folder, what was chosen, and NULL or why it cannot be used.
void npu_sets_each(void (*fn)(void *arg, const char *dir, const struct npu_choice *c, const char *fault), void *arg);
// Chunks of the bucket's attention: forced by TERN_NPU_CHUNKS, else as chosen, else 1.
int npu_choice_chunks(const struct npu_choice *c, int bucket, int window);
// "plain attention up to 512 columns, 8 chunks from 1024 on"
void npu_choice_text(const struct npu_choice *c, char *out, size_t cap);
