// Private to model/: how a file becomes a model.
//
//   model_open.c     what the path is, and the order of the steps; close
//   model_file.c     maps, what a wrong file looks like (HTML page, LFS pointer …), warnings; name_index.c
//   model_table.c    the one checked tensor table: names, sizes, ranges, overlaps, duplicates
//   gguf.c           header, key table, tensor records; gguf_meta.c typed access to keys;
//   gguf_vocab.c     tokenizer keys; gguf_model.c shards and the way from keys to struct model_params
//   safetensors.c    one file's header; hf_config.c config.json; hf_params.c to struct model_params;
//   hf_folder.c      files and the other JSON files; hf_index.c shards; hf_mlx.c quantised matrices
//   arch_params.c    range checks, the list of architectures; arch_rope.c RoPE divisors; arch_bind.c from params and
//                    table to bound layers; arch_lfm2.c, arch_llama.c, arch_qwen3.c …: one table each
//   drafter_open.c   drafters: what kind the file is, the checks against the target; arch_drafter.c their tensors and
//                    GGUF keys; drafter_config.c their config.json
//   gguf_write.c     a model as a GGUF file; gguf_write_hf.c the keys and names that a folder gets there
//   model_digest.c, model_meta.c, model_shape.c (models without a file; shape_fill.c their bytes)
//
// Order for every source: map, parse into the table (each count checked against what is left of the file before memory
// is taken for it), read the parameters, bind. Errors are written where they are seen, without the path; the caller
// that knows the path adds it with err_prefix().
#pragma once
#include "base/base.h"
#include "model/model.h"
#include <stdio.h> // snprintf

#define GGUF_KEY_BYTES_MAX 65535
#define GGUF_TENSOR_NAME_MAX MODEL_NAME_MAX
#define GGUF_ALIGN_DEFAULT 32
#define GGUF_ALIGN_MIN 8
#define GGUF_ALIGN_MAX (1u << 20)
#define SAFETENSORS_NAME_MAX 512
#define HF_JSON_DEPTH_MAX 32
#define HF_EOS_MAX 32 // end-of-text ids of one model

// ------------------------------------------------------------------------------------------------ files and source

struct model_file {
    const char *path; // for messages
    const uint8_t *data;
    size_t size;
    size_t header_len; // bytes before the tensor data
    struct os_map map;
    bool is_mapped; // else data is borrowed from the caller
};

// Finds names in an array of structs whose first member is `struct str`.
struct name_index {
    uint32_t *slots; // entry + 1; 0: free
    uint32_t mask;
    uint64_t seed;
    const void *base;
    size_t stride;
};
bool name_index_init(struct name_index *x, struct arena *a, size_t n_max, const void *base, size_t stride);
// Entry of the same name if there is one (nothing is added), else -1 and `entry` is in the index.
int64_t name_index_add(struct name_index *x, uint32_t entry);
int64_t name_index_find(const struct name_index *x, struct str name); // -1: absent

// GGUF value types (github.com/ggml-org/ggml docs/gguf.md).
enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};
extern const char *const gguf_type_names[GGUF_TYPE_COUNT];
extern const uint8_t gguf_type_bytes[GGUF_TYPE_COUNT]; // 0: not of fixed size

struct gguf_kv {
    struct str key; // first: see name_index
    enum gguf_type type;
    enum gguf_type item_type; // of an array
    uint64_t n;               // items of an array, bytes of a string, else 1
    const uint8_t *data;      // value, first item, or first byte of the string
};
struct gguf {
    uint32_t version;
    uint64_t n_tensors;
    int n_keys;
    struct gguf_kv *keys;
    struct name_index index;
    uint32_t align;
    size_t pos; // where the tensor records begin
    char arch[64];
};

struct shape_block { // memory of one made tensor
    void *data;
    size_t size;
    int tensor;       // index in the table
    uint64_t dropped; // bytes of its slices that were given up
};

#define SOURCE_EXTRA_MAX 6
enum source_kind { SOURCE_GGUF, SOURCE_SAFETENSORS, SOURCE_SHAPE };
// YaRN: divisors between 1 (pairs that turn more than beta_fast times within ctx_original) and factor (fewer than
// beta_slow times). cos and sin times `attention` are the same as attention's scale times its square, which is what is
// set here. 0: 1 + 0.1 ln(factor).
#define ROPE_YARN_FAST 32.0
#define ROPE_YARN_SLOW 1.0
struct rope_yarn {
    double factor, ctx_original, beta_fast, beta_slow, attention;
    bool exact_range; // the ramp's ends are not rounded to whole pairs
};
struct model_source {
    enum source_kind kind;
    struct arena arena; // everything of the model but maps and made weights
    struct model_file *files;
    int n_files;
    struct model_file extra[SOURCE_EXTRA_MAX]; // config.json, tokenizer.json …
    int n_extra;
    struct gguf gguf;                   // of the first shard
    const struct model_file *config;    // config.json, or NULL
    const struct model_file *tokenizer; // tokenizer.json, or NULL
    struct tensor *tensors;
    int n_tensors, n_tensors_cap;
    struct name_index index;
    bool *bound;           // [n_tensors] taken by the architecture
    int n_joined;          // matrices made of codes, scales and biases
    struct rope_yarn yarn; // factor 0: none
    struct buf warning;
    struct shape_block *blocks;
    int n_blocks;
};

// err is never NULL below model_open(): the code of a JSON error is read from it.
static inline enum tern_status json_step(struct json *j, struct json_item *item, struct tern_err *err) {
    return json_next(j, item, err) == JSON_ERROR ? err->code : TERN_OK;
}
// Fails as err_set(NO_MEMORY).
enum tern_status source_alloc(struct model_source *s, void *out /* T **, zeroed */, size_t n, size_t size,
                              struct tern_err *err);
enum tern_status source_strdup(struct model_source *s, struct str *out, struct str in, struct tern_err *err);
enum tern_status source_files_reserve(struct model_source *s, int n, struct tern_err *err);
enum tern_status file_map(struct model_file *f, struct model_source *s, const char *path, struct tern_err *err);
void file_close(struct model_file *f);
// Maps path as one more extra file.
enum tern_status source_extra_open(struct model_source *s, const char *path, const struct model_file **out,
                                   struct tern_err *err);
void source_warn(struct model_source *s, const char *fmt, ...) PRINTF_LIKE(2, 3);
enum file_kind { FILE_GGUF, FILE_SAFETENSORS, FILE_OTHER };
enum file_kind file_kind_get(const uint8_t *data, size_t size);
// Says what the bytes look like when they are neither.
enum tern_status file_refuse_other(const uint8_t *data, size_t size, struct tern_err *err);
int str_shown(struct str s); // bytes of s to quote in a message, for %.*s
#define SHOW(s) str_shown(s), (s).data

// ------------------------------------------------------------------------------------------------ tensor table

// Room for n more tensors and an index for all; n is already checked against the file.
enum tern_status table_reserve(struct model_source *s, int n, struct tern_err *err);
// Names that begin with `from` begin with `to` instead; a name that is there already is an error.
enum tern_status table_rename(struct model_source *s, const char *from, const char *to, struct tern_err *err);
// Checks what a file says about one tensor (name bytes, sizes, blocks, range in the file's data part) and appends it.
// ne[0..n_dims) are given; a zero size is allowed when zero_ok. offset counts from the file's header_len.
struct table_entry {
    struct str name;
    enum format format;
    int n_dims;
    uint64_t ne[MODEL_DIMS_MAX];
    uint64_t offset;
    int shard;
    int64_t pos; // in the file, for messages
    bool is_codes;
};
enum tern_status table_add(struct model_source *s, const struct table_entry *e, struct tern_err *err);
enum tern_status table_entry_bytes(const struct table_entry *e, uint64_t *n_bytes, struct tern_err *err);
enum tern_status name_check(struct str name, size_t len_max, const char *what, int64_t pos, struct tern_err *err);
// No two tensors of a shard share a byte; with `dense` also: no holes, first at the header's end, last at the file's.
enum tern_status table_check_ranges(struct model_source *s, int shard, int first, enum source_kind kind,
                                    struct tern_err *err);
const struct tensor *table_find(const struct model_source *s, struct str name);

// ------------------------------------------------------------------------------------------------ parameters

// What a file says, each value checked for its range, before the tensors are looked at.
struct model_params {
    const struct model_arch_kind *arch; // GGUF, but for drafters: whose keys these are
    struct model_drafter *drafter;      // of a drafter, filled but for its tensors; else NULL
    bool has_conf;                      // a drafter with a confidence head
    struct model_hyper hyper;           // n_vocab: rows said, 0 = not said; n_ff: width said, 0 = not said
    enum layer_kind *kinds;             // [n_layers]
    int *n_head_kv;                     // [n_layers]
    bool *routed;                       // [n_layers] has experts
    int *windows;                       // [n_layers] 0: none; with one, rope_base_local holds
    bool has_router_bias;
    int tied;               // 1, 0, or -1: not said
    const char *ff_key;     // where n_ff was said
    const char *vocab_key;  // where n_vocab was said
    bool vocab_may_be_less; // rows may exceed the number said
};

// Sizes that tensors are made of.
enum dim {
    DIM_NONE,
    DIM_EMBD,
    DIM_VOCAB,
    DIM_Q,    // n_head * head_dim
    DIM_KV,   // this layer's n_head_kv * head_dim
    DIM_HEAD, // head_dim
    DIM_FF,
    DIM_EMBD3, // 3 * n_embd
    DIM_TAPS,
    DIM_ONE,
    DIM_EXPERTS,
    DIM_FF_EXPERT,
    DIM_FEATURES, // drafters: n_features * n_embd of the target
    DIM_RANK,     // of the Markov head
    DIM_RANK3,    // 3 * rank
    DIM_GATE_IN,  // n_embd + rank
    DIM_RNN_IN,   // 2 * rank + n_embd
    DIM_CONF_IN,  // n_embd, with the Markov head's embedding + rank
};
// WHERE_MARKOV and below are parts of struct model_drafter, each bound when the drafter has it.
enum arch_where {
    WHERE_GLOBAL,
    WHERE_LAYER,
    WHERE_ATTENTION,
    WHERE_CONV,
    WHERE_DENSE,       // feed-forward part of a layer without experts
    WHERE_ROUTED,      // of a layer with experts
    WHERE_ROUTER_BIAS, // the same, where the model has one
    WHERE_EXPERT,      // GGUF: one tensor [n_expert, ne1, ne0]; Hugging Face: one per expert, %d twice in the name
    WHERE_DRAFTER,
    WHERE_MARKOV,
    WHERE_GATED,
    WHERE_RNN,
    WHERE_CONF,
    WHERE_CONF_BIAS, // when the file has it
};
enum arch_name { NAME_GGUF, NAME_HF, NAME_GGUF_ALT, NAME_COUNT };
struct arch_tensor {
    const char *name[NAME_COUNT]; // with %d for the layer
    enum arch_where where;
    size_t field;      // offset in struct model (global), struct model_layer, model_expert or model_drafter
    enum dim ne0, ne1; // ne1 DIM_NONE: a vector
    bool is_small;     // norm or taps: F32, F16 or BF16 only
};
struct hf_config;
struct model_arch_kind {
    const char *name;    // GGUF general.architecture
    const char *hf_type; // config.json model_type
    enum rope_kind rope_gguf, rope_hf;
    bool tied_default; // config.json says nothing
    bool has_experts;  // else files that have them are refused
    bool has_windows;  // likewise sliding-window attention
    bool may_encode;   // attention.causal may be false: an encoder
    bool norm_plus_1;  // Hugging Face: norms are stored as w - 1
    const struct arch_tensor *tensors;
    int n_tensors;
    const char *ff_name[2]; // tensor of layer 0 that tells the width: GGUF, Hugging Face
    enum tern_status (*params_gguf)(struct model_params *p, struct model_source *s, struct tern_err *err);
    enum tern_status (*params_hf)(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err);
};
extern const struct model_arch_kind arch_lfm2, arch_gemma3, arch_lfm2moe, arch_llama, arch_qwen3, arch_qwen3moe;
extern const struct model_arch_kind *const arch_list[]; // ends with NULL
enum tern_status arch_get_gguf(const struct model_arch_kind **out, struct str name, struct tern_err *err);
enum tern_status arch_get_hf(const struct model_arch_kind **out, struct str type, struct str class_name,
                             struct tern_err *err);

// Range checks shared by all sources and architectures; fills head_dim (when 0), n_head_kv and attn_scale.
enum tern_status params_check(struct model_params *p, struct tern_err *err);
enum tern_status params_layers(struct model_params *p, struct model_source *s, int64_t n_layers, struct tern_err *err);
// Llama-3 frequency divisors [head_dim/2] from the numbers of config.json.
struct rope_llama3 {
    double factor, low_freq, high_freq, ctx_original;
};
enum tern_status rope_factors_llama3(struct model_params *p, struct model_source *s, const struct rope_llama3 *r,
                                     struct tern_err *err);
enum tern_status rope_factors_yarn(struct model_params *p, struct model_source *s, const struct rope_yarn *r,
                                   struct tern_err *err);
enum tern_status rope_factors_linear(struct model_params *p, struct model_source *s, double factor,
                                     struct tern_err *err);
enum tern_status rope_factors_tensor(struct model_params *p, struct model_source *s, const char *name,
                                     struct tern_err *err);
// Experts: arch_moe.c. Keys or fields into the hyper-parameters, checked; n_dense layers from the first on have none.
enum tern_status moe_params_gguf(struct model_params *p, const struct gguf *g, struct tern_err *err);
enum tern_status moe_params_hf(struct model_params *p, const struct hf_config *c, struct tern_err *err);
void moe_layers_set(struct model_params *p, int n_dense);
#define GEMMA3_PATTERN 6            // every sixth layer sees everything, where a GGUF file says nothing
#define GEMMA3_LAYERS_OF_27B 62     // its scores are scaled by width / heads, all others' by the width of a head
bool arch_is_head(struct str name); // of an encoder: a tensor beside the model, which prompt routing reads by name
// Binds every tensor of the architecture by name and shape; refuses missing, misshapen and left-over ones.
enum tern_status arch_bind(struct model *m, const struct model_arch_kind *arch, struct model_params *p,
                           struct tern_err *err);

// ------------------------------------------------------------------------------------------------ GGUF

enum tern_status gguf_header_parse(struct gguf *g, struct model_source *s, const struct model_file *f,
                                   struct tern_err *err);
enum tern_status gguf_tensors_parse(struct gguf *g, struct model_source *s, int shard, struct tern_err *err);
const struct gguf_kv *gguf_find(const struct gguf *g, const char *key);
// Keys with '@' at the start mean "<architecture>." + rest. An absent optional key leaves *out as it is.
enum tern_status gguf_need_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                               struct tern_err *err);
enum tern_status gguf_opt_int(const struct gguf *g, const char *key, int64_t min, int64_t max, int64_t *out,
                              struct tern_err *err);
enum tern_status gguf_need_f64(const struct gguf *g, const char *key, double *out, struct tern_err *err);
enum tern_status gguf_opt_f64(const struct gguf *g, const char *key, double *out, struct tern_err *err);
enum tern_status gguf_opt_bool(const struct gguf *g, const char *key, int *out, struct tern_err *err);
enum tern_status gguf_opt_str(const struct gguf *g, const char *key, struct str *out, struct tern_err *err);
// One integer for all n layers, or an array of n.
enum tern_status gguf_need_ints(const struct gguf *g, const char *key, int64_t min, int64_t max, int *out, int n,
                                struct tern_err *err);
// Array of the wanted item type; NULL in *out when absent.
enum tern_status gguf_opt_array(const struct gguf *g, const char *key, enum gguf_type item_type,
                                const struct gguf_kv **out, struct tern_err *err);
enum tern_status gguf_vocab_read(struct model *m, struct tern_err *err);
enum tern_status gguf_open(struct model *m, struct tern_err *err); // files[0] is mapped
enum tern_status gguf_bind(struct model *m, struct tern_err *err); // after gguf_open
// Keys of every GGUF file that a model of any kind must agree with.
enum tern_status gguf_general_check(const struct gguf *g, const struct model *m, struct tern_err *err);
// Keys that every architecture has; the layer map comes from head_count_kv (0: convolution).
enum tern_status gguf_params_common(struct model_params *p, struct model_source *s, struct tern_err *err);
// The same, where every layer must be attention.
enum tern_status gguf_params_decoder(struct model_params *p, struct model_source *s, struct tern_err *err);
// rope.scaling.* keys; after params_check.
enum tern_status gguf_rope_scaling(struct model_params *p, struct model_source *s, struct tern_err *err);

// Writing: one key with its value, in the file's form.
void gguf_put_key(struct buf *b, const char *key, enum gguf_type type); // the value follows
void gguf_put_u32(struct buf *b, uint32_t v);
void gguf_put_u64(struct buf *b, uint64_t v);
void gguf_put_str(struct buf *b, struct str s);
// Keys of a model from a folder, counted into *n_keys; and its tensors.
enum tern_status gguf_write_hf_keys(const struct model_export *x, struct buf *b, uint64_t *n_keys,
                                    struct tern_err *err);
enum tern_status gguf_write_hf_tensors(struct model_export *x, struct tern_err *err);

// ------------------------------------------------------------------------------------------------ Hugging Face

#define HF_ABSENT INT64_MIN
struct hf_ids { // a list of token ids
    int32_t ids[HF_EOS_MAX];
    int n;
};
// A drafter's fields; they stand in config.json itself or in its object dflash_config (or dspark_config).
struct hf_drafter {
    int64_t block_size, markov_rank, mask_token_id, num_target_layers, target_hidden_size;
    int enable_confidence_head, confidence_with_markov, sample_from_anchor; // flags
    struct str markov_head_type;
    int64_t target_layer_ids[MODEL_FEATURES_MAX];
    int n_target_layer_ids; // -1: absent
};
struct hf_rope {
    double theta; // NaN: absent, as all doubles here
    double factor, low_freq_factor, high_freq_factor, original_ctx, partial;
    double beta_fast, beta_slow, attention_factor, mscale, mscale_all_dim; // YaRN
    int truncate;                                                          // flag
    struct str type;
};
enum hf_layer_type { HF_LAYER_CONV, HF_LAYER_FULL, HF_LAYER_SLIDING };
// "quantization" of an MLX checkpoint: the settings of all matrices, and those of single ones.
#define HF_MLX_LAYERS_MAX 4096
struct hf_mlx_layer {
    struct str name;          // first: see name_index; without .weight
    int64_t bits, group_size; // HF_ABSENT: as all
    bool is_float;            // not quantised
};
struct hf_mlx {
    int64_t bits, group_size;
    struct str mode, method; // method: somebody else's scheme (quant_method)
    struct hf_mlx_layer *layers;
    int n_layers;
    struct name_index index;
};
// config.json as it stands: integers HF_ABSENT, doubles NaN, flags -1, strings and lists empty when absent or null.
struct hf_config {
    int64_t hidden_size, n_layers, n_head, n_head_kv, head_dim, intermediate_size, vocab_size, n_ctx;
    int64_t block_ff_dim, block_multiple_of, conv_len;
    int64_t n_expert, n_expert_local, n_expert_used, ff_expert, n_dense_layers, sparse_step;
    double router_scale;
    int router_norm, router_bias; // flags
    int32_t *dense_layers;        // [n_dense_list] mlp_only_layers
    int n_dense_list;             // -1: absent
    double rms_norm_eps, norm_eps, rope_theta, theta, ff_multiplier, partial_rotary;
    int tie_word_embeddings, tie_embedding, ff_adjust, conv_bias, attention_bias, mlp_bias;
    int rope_is_neox_style, use_sliding_window, bidirectional;
    int64_t sliding_window, sliding_pattern, sliding_pattern_too;
    double rope_local, query_scalar, softcap_attn, softcap_logits;
    struct str hidden_activation;
    int has_quantization; // of a kind that is not read; 0: none, or MLX's
    struct hf_mlx mlx;
    struct str model_type, class_name, hidden_act;
    struct hf_ids bos, eos, pad; // the first id counts for bos and pad
    struct hf_rope rope_parameters, rope_scaling;
    struct hf_rope rope_full, rope_sliding; // rope_parameters by kind of layer
    enum hf_layer_type *layer_types;        // [n_layer_types]
    int n_layer_types;                      // -1: absent
    int32_t *attn_idxs;                     // [n_attn_idxs]
    int n_attn_idxs;                        // -1: absent
    struct hf_drafter drafter, drafter_nested;
};
enum tern_status hf_config_parse(struct hf_config *c, struct model_source *s, struct str json, struct tern_err *err);
// bos, eos and pad of generation_config.json.
enum tern_status hf_generation_parse(struct hf_config *c, struct model_source *s, struct str json,
                                     struct tern_err *err);
// chat_template, add_bos_token, add_eos_token of tokenizer_config.json.
enum tern_status hf_tokenizer_config_parse(struct model_vocab *v, struct model_source *s, struct str json,
                                           struct tern_err *err);
enum tern_status hf_params_common(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                  struct tern_err *err);
// The same and what plain decoders write: rms_norm_eps, silu, no biases, intermediate_size, attention in every layer.
enum tern_status hf_params_decoder(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                   struct tern_err *err);
// The base and, when there is one, the scaling; from whichever of the places config.json uses.
enum tern_status hf_rope_read(struct model_params *p, struct model_source *s, const struct hf_config *c,
                              double theta_default, struct tern_err *err);
// Makes matrices of the table's codes, as config.json says.
enum tern_status hf_mlx_join(struct model_source *s, const struct hf_config *c, struct tern_err *err);
const struct tensor *codes_find(const struct model_source *s); // NULL: there are none
enum tern_status codes_refuse(const struct model_source *s, const char *why, struct tern_err *err);
enum tern_status safetensors_parse(struct model_source *s, int shard, struct tern_err *err);
// path is a folder, or a .safetensors file in it. hf_open reads the tensor table; hf_bind, after it, the rest.
enum tern_status hf_open(struct model *m, const char *path, bool is_folder, struct tern_err *err);
enum tern_status hf_bind(struct model *m, const char *path, bool is_folder, struct tern_err *err);
enum tern_status hf_shards_open(struct model_source *s, const char *folder, const struct model_file *index_file,
                                struct tern_err *err);

// An optional file of the folder that path names or lies in; *out stays NULL when it is not there.
enum tern_status hf_extra_find(struct model_source *s, const char *path, bool is_folder, const char *name,
                               const struct model_file **out, struct tern_err *err);

// ------------------------------------------------------------------------------------------------ drafters

extern const struct model_arch_kind arch_drafter; // of both GGUF forms and of folders
bool drafter_arch_is(struct str gguf_name);
bool drafter_class_is(struct str class_name); // of config.json's architectures
// After gguf_open or hf_open: is it a drafter's file?
enum tern_status drafter_detect(struct model *m, const char *path, bool is_folder, bool *is_drafter,
                                struct tern_err *err);
// The model is open (gguf_open or hf_open); target is not NULL.
enum tern_status drafter_bind(struct model *m, const struct model *target, const char *path, bool is_folder,
                              struct tern_err *err);
// Parameters as the file has them; d->target is set, the checks against it follow in drafter_check.
enum tern_status drafter_params_gguf(struct model_params *p, struct model_source *s, struct tern_err *err);
enum tern_status drafter_params_hf(struct model_params *p, struct model_source *s, const struct hf_config *c,
                                   struct tern_err *err);
// Takes the list of target layers; shift is subtracted from each. Refuses what is no layer of the target.
enum tern_status drafter_features_set(struct model_drafter *d, const char *key, const int64_t *list, int n, int shift,
                                      struct tern_err *err);
// from_anchor: 1, 0, or -1: not said. After markov is known.
enum tern_status drafter_rows_set(struct model_drafter *d, const char *key, int64_t block_size, int from_anchor,
                                  struct tern_err *err);
// A number that must be the target's, where the file says it (not HF_ABSENT).
enum tern_status drafter_agree(const struct model_drafter *d, const char *key, int64_t v, int64_t of_target,
                               const char *what, struct tern_err *err);

// ------------------------------------------------------------------------------------------------ the rest

enum tern_status model_create(struct model **out, enum source_kind kind, struct tern_err *err);
void model_totals_make(struct model *m); // n_params, n_bytes_file, format_main
void model_digest_make(struct model *m);
const char *path_last(const char *path); // after the last '/'
// Fills n_rows rows of n_in values each; std is that of one value.
struct shape_fill {
    enum format format;
    uint64_t seed; // of this tensor
    double std;
    int64_t n_in, n_rows;
};
void shape_fill_rows(uint8_t *out, const struct shape_fill *f);
