// See golden_file.h.
#include "base/base.h"
#include "golden_file.h"
#include "../common/json_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static int ids_take(const struct json_tree *list, int32_t *out, int cap) {
    int n = 0;
    assert_true(list->n <= cap);
    JSON_EACH(id, list) out[n++] = (int32_t)id->integer;
    return n;
}

static int numbers_take(const struct json_tree *list, double *out, int cap) {
    int n = 0;
    assert_true(list->n <= cap);
    JSON_EACH(number, list) out[n++] = number->number;
    return n;
}

// sampled_ids is written out once and "same" afterwards.
static void logits_take(struct golden_prompt *p, const struct json_tree *from, const struct golden_prompt *first) {
    int n_top = ids_take(json_get(from, "top64_ids"), p->logit_ids, GOLDEN_LOGITS_MAX);
    assert_int_equal(numbers_take(json_get(from, "top64"), p->logits, GOLDEN_LOGITS_MAX), n_top);
    const struct json_tree *sampled = json_get(from, "sampled_ids");
    int room = GOLDEN_LOGITS_MAX - n_top, n_sampled = room;
    if (sampled->event == JSON_ARRAY)
        n_sampled = ids_take(sampled, p->logit_ids + n_top, room);
    else
        memcpy(p->logit_ids + n_top, first->logit_ids + n_top, (size_t)room * sizeof *p->logit_ids);
    assert_int_equal(numbers_take(json_get(from, "sampled"), p->logits + n_top, room), n_sampled);
    p->n_logits = n_top + n_sampled;
    p->logsumexp = json_get(from, "logsumexp")->number;
}

static void residuals_take(struct golden_prompt *p, const struct json_tree *list) {
    assert_true(list->n <= GOLDEN_LAYERS_MAX);
    JSON_EACH(from, list) {
        struct golden_residual *r = &p->residuals[p->n_residuals++];
        r->sum = json_get(from, "sum")->number;
        r->sum_abs = json_get(from, "sum_abs")->number;
        r->sum_sq = json_get(from, "sum_sq")->number;
        assert_int_equal(numbers_take(json_get(from, "first8"), r->first, GOLDEN_FIRST), GOLDEN_FIRST);
    }
}

static void prompt_take(struct golden_prompt *p, const struct json_tree *from, const struct golden_prompt *first) {
    const struct json_tree *name = json_find(from, "name"), *text = json_get(from, "text"),
                           *greedy = json_find(from, "greedy64"), *gaps = json_find(from, "top2_margins"),
                           *logits = json_find(from, "last_logits"),
                           *residuals = json_find(from, "residual_last_position");
    snprintf(p->name, sizeof p->name, "%s", name ? name->text.data : "");
    buf_init(&p->text, 1 << 20);
    assert_true(buf_put(&p->text, text->text.data, text->text.len));
    p->n_ids = ids_take(json_get(from, "ids"), p->ids, GOLDEN_IDS_MAX);
    p->n_greedy = ids_take(greedy ? greedy : json_get(from, "greedy"), p->greedy, GOLDEN_GREEDY_MAX);
    assert_true(p->n_ids > 0 && p->n_greedy > 0);
    assert_int_equal(numbers_take(gaps ? gaps : json_get(from, "gaps"), p->gaps, GOLDEN_GREEDY_MAX), p->n_greedy);
    if (logits) logits_take(p, logits, first);
    if (residuals) residuals_take(p, residuals);
}

struct golden *golden_read(const char *path) {
    struct json_file f;
    struct golden *g = mem_calloc(1, sizeof *g);
    assert_non_null(g);
    json_file_read(&f, path);
    const struct json_tree *prompts = json_get(f.root, "prompts");
    assert_in_range(prompts->n, 1, GOLDEN_PROMPTS_MAX);
    JSON_EACH(from, prompts) {
        prompt_take(&g->prompts[g->n_prompts], from, &g->prompts[0]);
        g->n_prompts++;
    }
    json_file_release(&f);
    return g;
}

void golden_free(struct golden *g) {
    for (int i = 0; i < g->n_prompts; i++) buf_release(&g->prompts[i].text);
    mem_free(g);
}
