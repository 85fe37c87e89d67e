// Which processors to use, and in which order.
//
// A hybrid processor's slow cores would make every barrier wait for them, so only the fastest kind counts by default,
// and one thread per physical core: the second thread of a core shares the units that matrix products saturate.
#include "base/base.h"
#include "base/base_int.h"
#include <stdlib.h>
#ifdef TERN_HAVE_HWLOC
#include <hwloc.h>
#endif

static int order_by_core(const void *a, const void *b) {
    const struct cpu_slot *x = a, *y = b;
    if (x->kind != y->kind) return x->kind > y->kind ? -1 : 1;
    if (x->core != y->core) return x->core < y->core ? -1 : 1;
    return x->cpu < y->cpu ? -1 : x->cpu > y->cpu;
}

void cpu_slots_order(struct cpu_slot *slots, int n) {
    if (n == 0) return;
    qsort(slots, (size_t)n, sizeof(*slots), order_by_core);
    // Threads of a core are neighbours now; deal them out in rounds within each kind: all first threads, all second …
    struct cpu_slot dealt[CPU_SLOTS_MAX];
    int rank[CPU_SLOTS_MAX], n_dealt = 0; // rank: which thread of its core a slot is
    TERN_ASSERT(n <= CPU_SLOTS_MAX);
    for (int i = 0; i < n; i++) {
        bool same = i > 0 && slots[i].core == slots[i - 1].core && slots[i].kind == slots[i - 1].kind;
        rank[i] = same ? rank[i - 1] + 1 : 0;
    }
    for (int begin = 0, end; begin < n; begin = end) {
        for (end = begin; end < n && slots[end].kind == slots[begin].kind; end++) {
        }
        int group_end = n_dealt + end - begin;
        for (int round = 0; n_dealt < group_end; round++)
            for (int i = begin; i < end; i++)
                if (rank[i] == round) dealt[n_dealt++] = slots[i];
    }
    memcpy(slots, dealt, (size_t)n * sizeof(*slots));
}

struct cpu_topology cpu_slots_summary(const struct cpu_slot *slots, int n) {
    struct cpu_topology t = {.n_logical = n};
    struct cpu_slot sorted[CPU_SLOTS_MAX];
    if (n > 0) memcpy(sorted, slots, (size_t)n * sizeof(*slots));
    if (n > 0) qsort(sorted, (size_t)n, sizeof(*sorted), order_by_core);
    for (int i = 0; i < n; i++) {
        bool new_kind = i == 0 || sorted[i].kind != sorted[i - 1].kind;
        bool new_core = new_kind || sorted[i].core != sorted[i - 1].core;
        t.n_kinds += new_kind;
        t.n_cores += new_core;
        t.n_cores_fast += new_core && t.n_kinds == 1;
    }
    return t;
}

// Rounded up: a quota of 1.5 processors is used up by two threads and left unused by one.
int cpu_threads_default(const struct cpu_topology *topology, double quota) {
    int n = MAX(topology->n_cores_fast, 1);
    if (quota > 0 && quota < n) n = MAX((int)quota + (quota > (int)quota), 1);
    return MIN(n, TEAM_THREADS_MAX);
}

#ifdef TERN_HAVE_HWLOC
// hwloc's kinds are ranked by efficiency: the last kind is the fastest. 0 when hwloc cannot tell.
static int slots_hwloc(struct cpu_slot slots[CPU_SLOTS_MAX]) {
    struct cpu_slot allowed[CPU_SLOTS_MAX];
    int n_allowed = cpu_slots_affinity(allowed), n = 0;
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return 0;
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(topology) != 0) goto done;
    for (int i = 0; i < n_allowed; i++) {
        if (allowed[i].cpu < 0) goto done;
        hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology, (unsigned)allowed[i].cpu);
        if (!pu) continue;
        hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
        int kind = hwloc_cpukinds_get_by_cpuset(topology, pu->cpuset, 0);
        slots[n++] = (struct cpu_slot){
            .cpu = allowed[i].cpu,
            .core = core ? (int)core->logical_index : allowed[i].core,
            .kind = MAX(kind, 0),
        };
    }
done:
    hwloc_topology_destroy(topology);
    return n;
}
#endif

int cpu_slots_get(struct cpu_slot slots[CPU_SLOTS_MAX], const char **source) {
    int n = 0;
    const char *from = "affinity";
#ifdef TERN_HAVE_HWLOC
    n = slots_hwloc(slots);
    if (n > 0) from = "hwloc";
#endif
    if (n == 0) n = cpu_slots_affinity(slots);
    if (source) *source = from;
    cpu_slots_order(slots, n);
    return n;
}

struct cpu_topology cpu_topology_get(void) {
    struct cpu_slot slots[CPU_SLOTS_MAX];
    const char *source;
    int n = cpu_slots_get(slots, &source);
    struct cpu_topology t = cpu_slots_summary(slots, n);
    t.source = source;
    return t;
}
