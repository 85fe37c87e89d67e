// The face of model/: a model file, or a folder of them, as one read-only table of tensors with checked
// hyper-parameters.
//
// model_open() looks at what the path is (GGUF v2/v3, single or split; a Hugging Face folder or a .safetensors file
// with config.json beside it), parses it into a validated plan (counts, types, offsets, sizes against the file) before
// anything is allocated in proportion to it or mapped, and binds the tensors of the architecture by name and shape.
// Everything in struct model is borrowed until model_close(); tensor data points into the maps and may be unaligned.
// Nothing here knows units, programs or tokenizer algorithms. Adding an architecture: one file arch_<name>.c with a
// `const struct model_arch_kind`, one row in arch_list.
#pragma once
#include "base/base.h"

// Limits on what a file may ask for (notes: each is far above every published model).
#define MODEL_KEYS_MAX 65536
#define MODEL_TENSORS_MAX 65536
#define MODEL_STRING_BYTES_MAX (64u << 20)
#define MODEL_ARRAY_MAX (4u << 20)
#define MODEL_DIMS_MAX 4
#define MODEL_NAME_MAX 64 // GGUF tensor names; safetensors: 512
#define MODEL_SHARDS_MAX 256
#define MODEL_LAYERS_MAX 512
#define MODEL_EMBD_MAX 65536
#define MODEL_VOCAB_MAX (1u << 20)
#define MODEL_SAFETENSORS_HEADER_MAX 100000000u
#define MODEL_FF_MAX (1 << 20)
#define MODEL_HEADS_MAX 1024
#define MODEL_HEAD_DIM_MAX 1024
#define MODEL_CONV_LEN_MAX 64
#define MODEL_CTX_MAX (1 << 26)
#define MODEL_EXPERTS_MAX 1024
#define MODEL_FEATURES_MAX 16   // target layers that a drafter reads
#define MODEL_DRAFT_ROWS_MAX 64 // rows of a drafter's block
#define MODEL_MARKOV_RANK_MAX 4096

// A matrix of an MLX checkpoint lies in the file as three: codes, scales and biases.
struct tensor_parts {
    const uint8_t *codes, *scales, *biases;
    uint64_t codes_row, scales_row; // bytes of one row
};

struct tensor {
    struct str name;
    enum format format;
    int n_dims;                 // 1..4
    int64_t ne[MODEL_DIMS_MAX]; // sizes, ne[0] contiguous (GGUF order: a [rows, cols] matrix has ne = {cols, rows});
                                // unused are 1
    const uint8_t *data;        // little-endian, possibly unaligned; NULL when there are parts, or given up
    const struct tensor_parts *parts; // or NULL; read with model_tensor_read()
    uint64_t n_bytes;                 // of all rows in the format; with parts they lie elsewhere, but are as many
    int shard;                        // index of the file it lies in
    const struct tensor *whole;       // the tensor of the table that this one is a slice of, else NULL
    bool is_codes;                    // private to model/: words of codes that no matrix was made of yet
    bool is_part;                     // scales or biases of another tensor
};

enum layer_kind { LAYER_ATTENTION, LAYER_CONV };
enum rope_kind {
    ROPE_HALF,        // pairs (i, i + d/2): "NeoX"
    ROPE_INTERLEAVED, // pairs (2i, 2i + 1)
};

// One of the feed-forward parts that a row may be sent to.
struct model_expert {
    const struct tensor *gate, *up, *down; // [n_ff_expert, n_embd] x2, [n_embd, n_ff_expert]
};

// Weights of one layer; NULL where the architecture has none. Matrices are [n_out, n_in], that is ne = {n_in, n_out}.
struct model_layer {
    enum layer_kind kind;
    int n_head_kv;                  // 0 in a convolution layer
    const struct tensor *attn_norm; // [n_embd], before attention or convolution
    const struct tensor *q, *k, *v,
        *o; // [n_head*head_dim, n_embd], [n_head_kv*head_dim, n_embd] x2, [n_embd, n_head*head_dim]
    const struct tensor *q_norm, *k_norm; // [head_dim] or NULL
    const struct tensor *attn_post_norm;  // [n_embd]: of attention's result, before the residual; or NULL
    const struct tensor *conv_in;         // [3*n_embd, n_embd]: thirds B, C, X
    const struct tensor *conv_taps;       // [n_embd, conv_len], oldest tap first
    const struct tensor *conv_out;        // [n_embd, n_embd]
    const struct tensor *ffn_norm;        // [n_embd]
    const struct tensor *ffn_post_norm;   // [n_embd]: of the feed-forward part's result; or NULL
    int window;                           // a row sees so many positions, itself the last; 0: all before it
    bool rope_local;                      // rotates by hyper.rope_base_local
    const struct tensor *ffn_gate, *ffn_up, *ffn_down; // [n_ff, n_embd] x2, [n_embd, n_ff]; NULL with experts
    const struct tensor *router;        // [n_expert, n_embd], a float format; NULL: no experts in this layer
    const struct tensor *router_bias;   // [n_expert], added for the choice alone; or NULL
    const struct model_expert *experts; // [n_expert]
};

struct model_hyper {
    int n_layers;
    int n_embd;
    int n_head;    // query heads
    int n_head_kv; // the largest over layers
    int head_dim;  // even
    int n_ff;
    int n_expert;        // 0: no layer has experts
    int n_expert_used;   // by each row
    int n_ff_expert;     // width of one
    bool router_sigmoid; // scores by sigmoid, else softmax over all experts
    bool router_norm;    // the chosen scores are divided by their sum (plus router_eps)
    float router_eps, router_scale;
    int n_vocab; // rows of the embedding; ids >= n_vocab_used are padding and never sampled
    int n_vocab_used;
    int n_ctx;    // positions the model was made for
    int conv_len; // taps of the short convolution (3); 0 without convolution layers
    float norm_eps;
    float rope_base;
    enum rope_kind rope;
    const float *rope_factors; // [head_dim/2] divisors of the frequencies (Llama-3 scaling), or NULL
    float rope_base_local;     // of layers with rope_local, without factors; 0: there are none
    float attn_scale;          // 1/sqrt(head_dim) unless the file says otherwise
    float embed_scale;         // of the embedding's rows; 0: none
    bool bidirectional; // an encoder: rows see one another both ways, convolutions are centred; no text generation
    bool ffn_gelu;      // the feed-forward gate is gelu (tanh form), else silu
};

// What the tokenizer and the template need, as the file has it: the GGUF fields, or tokenizer_json, or neither (a model
// without text: all empty). Special ids are checked against the rows of the embedding; GGUF tokens and merges are
// strings, tokens of kind gpt2 valid UTF-8, types at least n_tokens; what merges mean is checked by the tokenizer.
struct model_vocab {
    struct str kind;          // "gpt2" (byte-level BPE), "llama" (pieces of text with scores)
    struct str pre;           // "lfm2", "llama-bpe", "smollm", "qwen2", "gpt-2", …; empty: unknown
    const struct str *tokens; // [n_tokens]
    int n_tokens;
    const int32_t *types; // [n_tokens] GGUF token types (1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6
                          // byte), or NULL
    const float *scores;  // [n_tokens] of kind llama, or NULL
    int add_blank;        // tokenizer.ggml.add_space_prefix: 1, 0, or -1: not said
    const struct str *merges; // [n_merges] "left right"
    int n_merges;
    struct str tokenizer_json;       // whole file, or empty
    struct str tokenizer_config;     // tokenizer_config.json, or empty
    struct str chat_template;        // or empty
    int32_t bos, eos, eot, pad, unk; // -1: absent
    const int32_t *eos_more;         // further end ids (generation_config.json's list, GGUF eot/eom)
    int n_eos_more;
    int add_bos; // 1, 0, or -1: not said
    int add_eos;
};

// A drafter for speculative decoding (DSpark, DFlash): a few attention layers that see the target's residuals.
//
// Context: of each committed position the target's residual right after feature_layers, side by side (n_features *
// n_embd_target values), goes through fc and hidden_norm; every layer makes K and V of it, at that position. A draft:
// n_rows rows [anchor, mask, mask, …] at the positions from the anchor's on see the whole context and one another; row
// first_row + i of the output norm's rows h and logits U proposes the token after i proposals.
//
// The Markov head adds what the token before (prev: the anchor, then the last proposal) says: logits = U + w2 · e, with
//   vanilla  e = w1[prev]
//   gated    e = sigmoid(gate · [h; w1[prev]] + gate_bias) * w1[prev]
//   rnn      [g; c; o] = joint · [s; w1[prev]; h] + joint_bias, s = sigmoid(g) * s + (1 - sigmoid(g)) * tanh(c) (zero
//            at the anchor), e = tanh(o)
// The confidence head estimates that a proposal is accepted when all before it were:
//   sigmoid(conf · [h; w1[prev]] + conf_bias)   (without w1[prev] unless conf_with_markov)
enum markov_kind { MARKOV_NONE, MARKOV_VANILLA, MARKOV_GATED, MARKOV_RNN };
struct model_drafter {
    const struct model *target;       // borrowed; embedding and output are its tensors where the file has none
    const struct tensor *fc;          // [n_embd, n_features * n_embd_target]
    const struct tensor *hidden_norm; // [n_embd]
    int n_features, n_embd_target;
    int feature_layers[MODEL_FEATURES_MAX]; // of the target, in fc's order
    bool layers_were_inputs;                // the file counts layer inputs (llama.cpp), one more than these outputs
    int n_rows;                             // of a block; the file's block size
    int first_row;                          // 0: DSpark, the anchor's row proposes too; 1: DFlash
    int n_proposals;                        // n_rows - first_row
    int32_t mask_id;
    enum markov_kind markov;
    int markov_rank;                            // 0 without
    const struct tensor *markov_w1, *markov_w2; // [n_vocab, rank] each
    const struct tensor *markov_gate;           // gated: [rank, n_embd + rank]
    const struct tensor *markov_joint;          // rnn: [3 * rank, 2 * rank + n_embd]
    const struct tensor *markov_bias;           // of gate ([rank]) or joint ([3 * rank])
    bool conf_with_markov;                      // the confidence head sees w1[prev] too
    const struct tensor *conf;                  // [1, n_embd (+ rank)], or NULL: no confidence head
    const struct tensor *conf_bias;             // [1], or NULL: 0
};

struct model_arch_kind;
struct model {
    const struct model_arch_kind *arch;
    const char *arch_name; // "lfm2", "llama"
    const char *name;      // display name, never NULL
    struct model_hyper hyper;
    struct model_layer *layers;       // [n_layers]
    const struct tensor *embedding;   // [n_vocab, n_embd]
    const struct tensor *output;      // [n_vocab, n_embd]; == embedding when tied
    const struct tensor *output_norm; // [n_embd]
    struct model_vocab vocab;
    const struct model_drafter *drafter; // NULL: a model that runs alone
    const struct tensor *tensors;        // the whole table, in file order
    int n_tensors;
    uint64_t n_params;       // elements of all tensors
    uint64_t n_bytes_file;   // of all shards
    enum format format_main; // the format that holds most of the bytes
    char digest[65];         // SHA-256 (hex) over every file's header, size and sampled content (64 windows of 4 KiB):
                             // identity for caches. No time stamps: a copied model keeps its caches. An edit that keeps
                             // size, header and all windows is not seen
    struct str warning; // empty, or one line to show ("feed_forward_length says 12288, tensors say 8192; using 8192")
    struct model_source *source; // maps and arenas (private)
};

enum tern_status model_open(struct model **out, const char *path, struct tern_err *err);
// The checked tensor table and the raw metadata only, for `tern show` and tools: arch is NULL, nothing is bound. Takes
// what model_open takes, other architectures, and a .safetensors file without config.json.
enum tern_status model_open_table(struct model **out, const char *path, struct tern_err *err);
// A single file in memory, borrowed until model_close: GGUF as model_open does, safetensors as model_open_table does.
enum tern_status model_open_memory(struct model **out, const char *name, const void *data, size_t size,
                                   struct tern_err *err);
// A drafter of `target`, which outlives it: GGUF of architecture dflash (llama.cpp) or dflash-draft (ik_llama.cpp), or
// a folder as Liquid AI and DeepSeek publish them. Refuses a drafter that was made for another model: other vocabulary,
// widths, layers. What the file lacks of embedding and output is the target's.
enum tern_status model_open_drafter(struct model **out, const char *path, const struct model *target,
                                    struct tern_err *err);
// A drafter of `target`, or any other model that runs alone (its drafter is NULL then; that its tokens are the target's
// is for the caller to see).
enum tern_status model_open_draft(struct model **out, const char *path, const struct model *target,
                                  struct tern_err *err);
enum tern_status model_open_drafter_memory(struct model **out, const char *name, const void *data, size_t size,
                                           const struct model *target, struct tern_err *err); // GGUF
void model_close(struct model *m);                                                            // NULL is fine
const struct tensor *model_tensor_find(const struct model *m, const char *name);              // NULL when absent
// The raw metadata for `tern show`: calls fn per key with a printable, escaped and shortened value.
void model_meta_each(const struct model *m, void (*fn)(void *arg, const char *key, const char *type, const char *value),
                     void *arg);
// The pages of a tensor are not needed any more (after packing). A file's are read again when touched later; a made
// model's memory (model_create_shape) is freed and t->data becomes NULL.
void model_tensor_drop(const struct model *m, const struct tensor *t);
static inline bool tensor_has_data(const struct tensor *t) { return t->data || t->parts; }
// Values [first, first + n) of a row, in the tensor's format: whole blocks. For any tensor that has data.
void model_tensor_read(const struct tensor *t, int64_t row, int64_t first, int64_t n, uint8_t *out);

// A model as one GGUF file: what tensors it gets under which names, and the bytes before them. A GGUF source keeps all
// its keys and tensors (shards become one file); a Hugging Face folder gets the keys and names that llama.cpp's
// converters give it. The caller chooses each tensor's format, then writes the head, then each tensor's rows at its
// offset.
struct model_export_tensor {
    struct str name;
    const struct tensor *from;     // NULL: `values` are the tensor, F32
    const struct tensor **experts; // [ne[2]] a tensor for each expert, `from` the first; NULL: `from` is all of it
    const float *values;
    int n_dims;
    int64_t ne[MODEL_DIMS_MAX]; // as in the source, but for sizes of one that GGUF leaves out
    int64_t n_rows;             // ne[1] * ne[2] * ne[3]
    int head_dim;               // > 0: rows change places within heads of this many (RoPE pairs), see model_export_row
    bool is_small;              // by its name and shape: a norm, taps, a router … that stays F32
    enum format format;         // of the file; at first the source's, F32 for small ones
    uint64_t offset, n_bytes;   // in the data part; filled by model_export_head
};
struct model_export_vocab { // of a Hugging Face folder: tokenizer.json as arrays
    const struct str *tokens;
    const int32_t *types;
    int n_tokens;
    const struct str *merges;
    int n_merges;
    const char *pre;
    bool adds_bos;
    const float *scores; // [n_tokens] of a vocabulary spelled as text, in place of merges; or NULL
    int32_t unk;         // -1: none
};
struct model_export {
    const struct model *model;
    struct model_export_tensor *tensors; // [n_tensors]
    int n_tensors;
    uint32_t align;        // of tensors in the file
    uint64_t n_bytes_data; // after model_export_head: from the end of the head to the end of the file
    struct arena arena;
    struct model_export_vocab vocab; // borrowed; no tokens: none
    const char *name;                // of a folder's model; NULL: the folder's. Set before model_export_head
    const char *warning;             // what other readers of the file will not see, one line; NULL: nothing
};
bool model_is_gguf(const struct model *m);
// m outlives the export. vocab: of a folder that has a tokenizer, else NULL.
enum tern_status model_export_create(struct model_export **out, const struct model *m,
                                     const struct model_export_vocab *vocab, struct tern_err *err);
void model_export_free(struct model_export *x);
// The source's tensor, and its row in *from_row, that goes into row `row` of the file.
const struct tensor *model_export_row(const struct model_export_tensor *t, int64_t row, int64_t *from_row);
// Everything before the first tensor's bytes, padding included. file_type: general.file_type (llama.cpp's numbers).
enum tern_status model_export_head(struct model_export *x, uint32_t file_type, struct buf *out, struct tern_err *err);

// A model without a file: random weights in the exact shape of a named model, made in memory.
struct model_shape {
    const char *name; // "lfm2-350m", "lfm2-1.2b", "lfm2.5-2.6b", "llama-7b"
    struct model_hyper hyper;
    uint64_t attn_layers_mask; // bit i: layer i is attention
    int n_dense_layers;        // the first so many have no experts, where hyper.n_expert is set
    bool is_llama;
    bool tied;
};
extern const struct model_shape model_shapes[]; // ends with name NULL
// Weights are drawn from the seed directly in `format` (norms and taps F32, embedding in format_embd): equal for equal
// arguments.
enum tern_status model_create_shape(struct model **out, const struct model_shape *shape, enum format format,
                                    enum format format_embd, uint64_t seed, struct tern_err *err);
// The same by names; format NULL: "Q4_0". The embedding, which is also the output matrix, gets the format that
// quantising tools give it.
enum tern_status model_create_named_shape(struct model **out, const char *shape, const char *format, uint64_t seed,
                                          struct tern_err *err);

// The feed-forward width that an LFM2 config.json means (doc/model/lfm2.md); -1 when the numbers make none within
// MODEL_FF_MAX. Exposed for its test.
int64_t lfm2_ff_width(int64_t block_ff_dim, bool adjust, bool has_multiplier, double multiplier, int64_t multiple_of);
