// Private to app/: peers.json, what `tern bench --peers DIR` runs beside us. Paths in it are relative to DIR, in which
// all programs run.
//
//   {"models": [{"name": "lfm2-350m", "format": "Q4_0", "file": "lfm2-350m-Q4_0.gguf"}, …],
//    "peers": [{"name": "llama.cpp", "kind": "llama-bench", "command": ["bin/llama-bench"]},
//              {"name": "OpenVINO", "kind": "command", "models": {"lfm2-350m Q8_0": "lfm2-350m-int8"},
//               "command": ["python3", "openvino_bench.py", "-m", "{model}", "-t", "{threads}", "-p", "{prompt}",
//                           "-n", "{answer}", "-d", "{depth}"]}]}
//
// kind: llama-bench (llama.cpp's), ik-bench (ik_llama.cpp's, older options), command (any program: the words in braces
// are replaced, and the last line that it prints is {"tokens_per_s": NUMBER}). For the first two, what follows the
// program in "command" are further options of it. models: which of the models it runs, and its file for each; left out:
// all, from the same file as ours. "limit_s": seconds that one run may take (default 600).
#pragma once
#include "base/base.h"

#define MANIFEST_BYTES_MAX (1u << 20)
#define MANIFEST_MODELS_MAX 64
#define MANIFEST_PEERS_MAX 8
#define MANIFEST_WORDS_MAX 64 // of a command
#define MANIFEST_NAME_MAX 40  // bytes of a model's, format's or peer's name
#define PEER_LIMIT_S_DEFAULT 600

enum peer_kind { PEER_LLAMA_BENCH, PEER_IK_BENCH, PEER_COMMAND };
struct bench_model {
    const char *name, *format, *file;
};
struct bench_peer {
    const char *name;
    enum peer_kind kind;
    const char *command[MANIFEST_WORDS_MAX + 1]; // ends with NULL
    int n_command;
    const char *files[MANIFEST_MODELS_MAX]; // by model; NULL: it does not run that one
    int limit_s;
};
struct manifest {
    struct bench_model models[MANIFEST_MODELS_MAX];
    int n_models;
    struct bench_peer peers[MANIFEST_PEERS_MAX];
    int n_peers;
    struct arena arena; // texts
};
// name: of the file, for messages.
enum tern_status manifest_parse(struct manifest *out, struct str text, const char *name, struct tern_err *err);
void manifest_release(struct manifest *m);                                             // fine after a failed parse
int manifest_model_find(const struct manifest *m, struct str name, struct str format); // -1: none

// What one run measures.
enum bench_phase { PHASE_DECODE, PHASE_PREFILL };
struct bench_test {
    enum bench_phase phase;
    int tokens; // measured
    int depth;  // tokens before them
    int threads;
};
// The words of a peer's command for a test, in words (ends with NULL, texts in a); -1: no memory, or too many words.
#define PEER_ARGV_MAX (MANIFEST_WORDS_MAX + 24)
int peer_command_make(const struct bench_peer *p, int model, const struct bench_test *t, struct arena *a,
                      const char *words[PEER_ARGV_MAX]);
// Tokens per second from what a run of it printed.
enum tern_status peer_output_parse(enum peer_kind kind, const struct bench_test *t, struct str text, double *tps,
                                   struct tern_err *err);
