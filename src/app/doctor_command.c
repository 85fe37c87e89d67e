// tern doctor: what this machine has, what of it is used, and why not the rest.
#include "base/base.h"
#include "app.h"
#include "policy/policy.h"
#include "term/term.h"
#include "unit/unit.h"

#include <stdio.h>

static void feature_print(void *arg, const char *feature, bool present, bool used, const char *note) {
    (void)arg;
    out_putf("  %-18s %-8s %-8s %s\n", feature, present ? "present" : "-", used ? "used" : "-", note ? note : "");
}

static void backend_print(void *arg, const char *name, bool usable, const char *note) {
    (void)arg;
    out_putf("  %-8s %-8s %s\n", name, usable ? "usable" : "no", note);
}

static void units_print(void) {
    out_puts("units:\n");
    for (const struct unit_driver *const *d = unit_drivers; *d; d++) {
        const char *reason = "";
        bool usable = (*d)->probe(&reason);
        out_putf("  %-6s %-8s %s\n", (*d)->name, usable ? "usable" : "no", reason);
    }
}

static void packed_add(void *arg, const struct pack_cache_entry *e) { *(uint64_t *)arg += e->bytes; }

static void cache_print(void) {
    char dir[4096], free_text[24];
    os_cache_dir(dir, sizeof dir);
    if (!dir[0]) {
        out_puts("cache: none (neither XDG_CACHE_HOME nor HOME is set)\n");
        return;
    }
    struct tern_err err = {0};
    const char *state = "writable";
    if (os_mkdirs(dir, &err) != TERN_OK) state = err.message;
    uint64_t room = os_disk_free(dir), packed = 0;
    char packed_text[24], limit_text[24];
    int64_t limit = 0;
    const char *text = env_get("TERN_CACHE_BYTES");
    if (!text || !str_to_i64(str_from(text), &limit) || limit < 0) limit = (int64_t)PACK_CACHE_BYTES_DEFAULT;
    pack_cache_list(packed_add, &packed, false, NULL);
    out_putf("cache: %s, %s, %s free; packed weights take %s and may take %s%s\n", dir, state,
             room == UINT64_MAX ? "unknown" : bytes_format(room, free_text), bytes_format(packed, packed_text),
             bytes_format((uint64_t)limit, limit_text), text ? " (TERN_CACHE_BYTES)" : "");
}

static void terminal_print(void) {
    bool usable;
    const char *note = term_editor_note(&usable);
    out_putf("line editing of tern chat: %s%s\n", usable ? "" : "no, ", note);
}

static void validations_put_rows(void) {
    struct validations v;
    struct tern_err err = {0};
    int n_other = 0;
    out_puts("validated arithmetics of this machine (tern validate):\n");
    if (validations_load(&v, &err) != TERN_OK) {
        out_putf("  none: %s\n", err.message);
        return;
    }
    for (int i = 0; i < v.n; i++) {
        const struct validation *r = &v.rows[i];
        if (!validation_here(&r->key)) {
            n_other++;
            continue;
        }
        out_putf("  %s %s %s%s: %s, top-1 %.2f %% [%.2f, %.2f] of %lld tokens, KL %.5f, against %s (%s)%s%s\n", r->name,
                 r->key.unit, r->key.numerics, r->key.scales[0] ? " with scales" : "",
                 r->adopted ? "adopted" : "rejected", 100 * r->top1[0], 100 * r->top1[1], 100 * r->top1[2],
                 (long long)r->tokens, r->kl, r->reference, r->key.runtime, r->adopted ? "" : ": ", r->missed);
        out_putf("    placement: %s\n", r->placement);
    }
    if (v.n == n_other) out_puts("  none\n");
    if (n_other > 0) out_putf("  %d of other machines or systems\n", n_other);
    validations_release(&v);
}

static int doctor_main(const struct command *c, int argc, char **argv) {
    const struct opt rows[] = {{0}};
    const struct opt *const tables[] = {rows, NULL};
    int n_args, code;
    if (!opts_parse(c, tables, argc, argv, &n_args, &code)) return code;
    if (n_args > 0) return usage_error(c, "no arguments expected");
    char total[24], available[24];
    out_putf("tern %s\n", tern_version());
    struct cpu_topology t = cpu_topology_get();
    out_putf("processor: %d cores (%d fast, %d kind%s), %d usable hardware threads, from %s\n", t.n_cores,
             t.n_cores_fast, t.n_kinds, t.n_kinds == 1 ? "" : "s", t.n_logical, t.source);
    out_putf("memory: %s, %s available\n", bytes_format(os_ram_total(), total),
             bytes_format(os_ram_available(), available));
    cache_print();
    terminal_print();
    units_print();
    out_puts("runtimes of the npu unit (npu:NAME):\n");
    unit_npu_backends_each(backend_print, NULL);
    validations_put_rows();
    out_puts("instruction sets:\n");
    unit_cpu_features_each(feature_print, NULL);
    if (env_get("TERN_CPU")) out_putf("TERN_CPU=%s bounds them\n", env_get("TERN_CPU"));
    return EXIT_DONE;
}

const struct command command_doctor = {"doctor", "", "what this machine has and what tern uses of it", NULL,
                                       doctor_main};
