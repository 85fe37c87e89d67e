// A model on a unit for tests that run programs themselves: pool, block tables, ports, step builders. A failure of
// anything stops the test with its message.
#pragma once
#include "base/base.h"
#include "model/model.h"
#include "prog/prog.h"
#include "unit/unit.h"

#define BENCH_SEQS_MAX 8
#define BENCH_PORTS 8

struct unit_bench_options {
    const struct model *model;
    const char *unit; // NULL: "cpu"
    const char *isa;  // NULL: the best
    int n_threads;
    enum prog_class numerics;
    enum op_kv_type kv_type;
    int window;
    int n_ctx; // positions of each sequence's table
};
struct bench_seq {
    int32_t *blocks; // [n_blocks], in a shuffled order of the pool
    int n_blocks;
    int32_t len;
    int32_t slot; // conv slot
};
struct bench_program {
    struct prog *prog;
    struct unit_program *program;
};
struct unit_bench {
    struct unit_bench_options o;
    struct unit *unit;
    const struct unit_driver *d;
    struct unit_weights *weights;
    struct arena arena;
    struct state_pool pool;
    uint64_t kv_bytes, conv_bytes;          // of the pool's buffers; conv with the window area
    struct unit_buffer *ports[BENCH_PORTS]; // each as large as the window can need
    struct step_builder b, c;               // two, since a commit reads the verify step
    struct bench_seq seqs[BENCH_SEQS_MAX];
    struct bench_program whole; // logits and argmax of all rows
    struct bench_program commit;
};
// False (and nothing open) when this machine lacks the instruction set.
bool unit_bench_open(struct unit_bench *g, const struct unit_bench_options *o);
void unit_bench_close(struct unit_bench *g);
struct bench_program bench_program_make(struct unit_bench *g, struct prog_spec spec); // fills class, K/V type, window
void bench_program_free(struct unit_bench *g, struct bench_program *p);
// Binds all ports to the bench's buffers where the step has none, submits, waits.
void bench_run(struct unit_bench *g, const struct bench_program *p, const struct step *s);
const float *bench_port(struct unit_bench *g, enum prog_port port);

// A sequence's entry in the step under construction; writes: the conv slot is written (a plain step).
int bench_seq_add(struct unit_bench *g, struct step_builder *b, const struct bench_seq *q, bool writes);
// Runs n tokens behind the sequence as one chain step and appends them; logits (nullable): [n][n_vocab].
void bench_chain(struct unit_bench *g, struct bench_seq *q, const int32_t *tokens, int n, float *logits);
void bench_reset(struct unit_bench *g); // sequences empty, pool zero
// What the sequence carries, in a form without the bytes of positions that are not its own: K/V of positions 0 … len-1
// of all layers, then the conv slot. *n_bytes is the same for equal lengths. Caller frees with mem_free.
uint8_t *bench_state(struct unit_bench *g, const struct bench_seq *q, size_t *n_bytes);

// Instruction sets to try, best last known first is "scalar"; NULL-terminated. unit_bench_open says which exist.
extern const char *const bench_isas[];
