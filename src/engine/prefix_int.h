// Private to engine/: the prefix cache. Its unit is the block of OP_BLOCK tokens: the K/V rows of these positions, the
// convolution rows behind them, and the drafter's K/V rows. A block's key is a hash of the model's identity, the tenant
// and all tokens up to its end, so equal keys hold equal bytes, and a lookup walks the keys of a prompt from its begin:
// the blocks of all prompts are a tree whose edges are 32 tokens. Where the last edge differs in its second half, the
// first half of a block still serves, by the convolution rows behind its middle.
//
//   prefix_cache.c    the tree, and the data in memory: cells of one size, least recently used goes first
//   prefix_disk.c     a file for each block, written and read by a thread of its own
//   service_prefix.c  between sessions and the cache
#pragma once
#include "engine_int.h"

struct prefix_key {
    uint8_t b[32];
};
// The parts of a block's data, in this order.
struct prefix_shape {
    uint64_t kv_bytes, conv_bytes, draft_bytes; // conv: behind the block, then behind its middle
};
struct prefix_options {
    struct prefix_shape shape;
    struct str identity;       // what changes the values, but for the drafter's
    struct prefix_key drafter; // of the drafter's part
    uint64_t ram_max;          // the most that data in memory takes
    const char *dir;           // NULL: no disk tier
    uint64_t disk_max;
};
struct prefix_cache;
// The memory is taken at open. The folder is made; what is in it is found again, what is broken in it is removed when
// it is met.
enum tern_status prefix_cache_open(struct prefix_cache **out, const struct prefix_options *o, struct tern_err *err);
void prefix_cache_close(struct prefix_cache *c); // what waits to be written is written first; NULL is fine

// The key before the first block of a tenant's; then the next one's.
void prefix_key_root(const struct prefix_cache *c, struct str tenant, struct prefix_key *out);
// n: OP_BLOCK for the next block, PREFIX_HALF for its middle; of so many bytes each, the two never meet.
void prefix_key_next(struct prefix_key *key, const int32_t *ids, size_t n);
#define PREFIX_HALF (OP_BLOCK / 2)

// A block in memory that is held stays there, and its data does not change.
#define PREFIX_NONE (-1)
struct prefix_held {
    int32_t block; // PREFIX_NONE: none
    uint8_t *data; // the parts of the shape
    bool has_conv, has_draft;
    bool has_half;          // convolution rows behind the middle
    struct prefix_key half; // key of the middle, if so
};
// The longest run of blocks keys[0 … n) that is in memory and ends where convolution rows are known (or needs none).
// Returns how many are held now, in out [n].
size_t prefix_match(struct prefix_cache *c, const struct prefix_key *keys, size_t n, struct prefix_held *out);
// A block in memory of which the first half has this key, and whose state behind that is known. Held if true.
bool prefix_match_half(struct prefix_cache *c, const struct prefix_key *half, struct prefix_held *out);
void prefix_let_go(struct prefix_cache *c, const struct prefix_held *held, size_t n);
// A place for a block behind parent, number depth of its text, to be filled and given to prefix_put. False: it is there
// already (with all that has_conv says), or there is no room (*full): memory is full of what is held or leads to it.
bool prefix_place(struct prefix_cache *c, const struct prefix_key *key, const struct prefix_key *parent, int depth,
                  bool has_conv, struct prefix_held *out, bool *full);
void prefix_put(struct prefix_cache *c, const struct prefix_held *held, bool store); // now others find it
void prefix_drop(struct prefix_cache *c, const struct prefix_held *held);            // it could not be filled

// Brings what the disk has of blocks keys[0 … n) into memory, and where these end a block whose first half is that of
// the text. False: there is nothing to bring, done is not called. Else done is called by the disk thread; task, keys,
// ids and arg stay until then.
struct prefix_task {
    struct prefix_task *next;
    const struct prefix_key *root, *keys;
    size_t n;
    const int32_t *ids; // [n_ids] the text; NULL: whole blocks are enough
    size_t n_ids;
    void (*done)(void *arg);
    void *arg;
    size_t n_known;         // prefix_stage's: blocks that are somewhere
    bool has_half;          // … and behind them
    struct prefix_key half; // the block to be read
};
bool prefix_stage(struct prefix_cache *c, struct prefix_task *task);

struct prefix_info {
    uint64_t ram_bytes, disk_bytes;
    uint64_t n_loaded, n_stored, n_damaged; // blocks, since open
};
void prefix_cache_info(struct prefix_cache *c, struct prefix_info *out);

// ------------------------------------------------------------------------------- between prefix_cache and prefix_disk

struct prefix_block {
    struct prefix_key key, parent;
    struct prefix_key half; // of its middle; if has_half or disk_half
    int32_t half_next;      // in its bucket of halves, if half_listed
    int32_t depth;          // blocks before it
    int32_t bucket_next;    // in its bucket, or in the list of free ones
    int32_t cell;           // -1: not in memory
    int32_t newer, older;   // in memory and ready: by use
    int32_t n_held;
    bool ready, has_conv, has_draft, has_half; // of the data in memory
    uint64_t disk_bytes;                       // of its file; 0: none
    bool disk_conv, disk_half;                 // which holds convolution rows; those behind the middle
    bool half_listed;                          // memory or disk has the state behind its middle
    uint64_t stamp;                            // of the last use; that of a parent is never below its children's
};
struct prefix_disk;
struct prefix_cache {
    struct prefix_shape shape;
    struct prefix_key identity; // SHA-256 of the text
    struct prefix_key drafter;
    uint64_t cell_bytes;
    int n_cells, n_cells_used;
    uint8_t *cells;      // one map
    int32_t *free_cells; // stack, [n_cells - n_cells_used]

    struct os_mutex *mutex; // guards what follows
    struct prefix_block *blocks;
    int n_blocks, blocks_cap; // in use or free
    int32_t first_free;
    int32_t *buckets, *half_buckets; // one allocation
    int n_buckets;                   // a power of two
    int32_t newest, oldest;
    uint64_t clock;
    uint64_t disk_bytes;
    struct prefix_info info;
    struct prefix_disk *disk; // NULL: no disk tier
};
// Under the mutex.
int32_t prefix_find(const struct prefix_cache *c, const struct prefix_key *key);
int32_t prefix_up(const struct prefix_cache *c, int32_t block); // what it hangs from, if known
int32_t prefix_block_new(struct prefix_cache *c, const struct prefix_key *key, const struct prefix_key *parent,
                         int depth); // PREFIX_NONE: no memory
// A block whose half has this key: in memory and ready, else on disk. PREFIX_NONE: there is none.
int32_t prefix_find_half(const struct prefix_cache *c, const struct prefix_key *half);
void prefix_half_list(struct prefix_cache *c, int32_t block);    // in its bucket or not, as it should be now
void prefix_touch(struct prefix_cache *c, int32_t block);        // with all that it hangs from
void prefix_block_unused(struct prefix_cache *c, int32_t block); // forgets it if nothing of it is left

enum tern_status prefix_disk_open(struct prefix_cache *c, const char *dir, uint64_t disk_max, struct tern_err *err);
void prefix_disk_close(struct prefix_cache *c);
void prefix_disk_store(struct prefix_cache *c, int32_t block); // under the mutex; the block is ready
