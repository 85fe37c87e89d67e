// What a comparison gave: medians, paired ratios with their 95 % intervals, the texts; as a table and as JSON.
#include "base/base.h"
#include "compare.h"

#include <stdio.h>

double compare_prefix_share(struct str a, struct str b) {
    const size_t longer = MAX(a.len, b.len), shorter = MIN(a.len, b.len);
    size_t n = 0;
    while (n < shorter && a.data[n] == b.data[n]) n++;
    return longer ? (double)n / (double)longer : 1;
}

const char *compare_path_tail(const char *path) {
    const char *slash = strrchr(path, '/');
    if (path[0] == '-' || strstr(path, "://")) return path;
    return slash && slash[1] ? slash + 1 : path;
}

double compare_equal_share(const struct compare_result *r, int *n_whole) {
    double sum = 0;
    *n_whole = 0;
    for (int p = 0; p < r->n_prompts; p++) {
        sum += r->texts[p].equal;
        *n_whole += r->texts[p].equal >= 1;
    }
    return sum / MAX(r->n_prompts, 1);
}

static double metric_of(const struct compare_row *row, enum compare_metric m, int side) {
    return m == METRIC_FIRST ? row->first_s[side] : m == METRIC_PREFILL ? row->prefill[side] : row->decode[side];
}

struct compare_summary compare_summarise(const struct compare_result *r, enum compare_metric m, int prompt) {
    double ours[STATS_MAX], theirs[STATS_MAX];
    int n = 0;
    for (int i = 0; i < r->n_rows; i++) {
        const double a = metric_of(&r->rows[i], m, COMPARE_OURS), b = metric_of(&r->rows[i], m, COMPARE_THEIRS);
        if ((prompt >= 0 && r->rows[i].prompt != prompt) || !(a > 0) || !(b > 0)) continue;
        ours[n] = a;
        theirs[n++] = b;
    }
    struct compare_summary s = {.known = n > 0};
    if (n == 0) return s;
    s.ours = stats_quantile(ours, n, 0.5);
    s.theirs = stats_quantile(theirs, n, 0.5);
    s.faster = m == METRIC_FIRST ? stats_paired_ratio(theirs, ours, n) : stats_paired_ratio(ours, theirs, n);
    return s;
}

static const struct {
    const char *key, *title, *unit;
    double scale;
    const char *format;
} metrics[METRIC_COUNT] = {{"first_token_ms", "first token", "ms", 1e3, "%.1f"},
                           {"prefill_tokens_s", "reading the prompt", "tokens/s", 1, "%.0f"},
                           {"decode_tokens_s", "writing the answer", "tokens/s", 1, "%.1f"}};

static const char *number_text(char out[32], double v, const char *format) {
    // The formats are the three of `metrics`.
    if (strcmp(format, "%.0f") == 0)
        snprintf(out, 32, "%.0f", v);
    else
        snprintf(out, 32, "%.1f", v);
    return out;
}

void compare_print(const struct compare_result *r) {
    char a[32], b[32];
    int n_whole;
    out_putf("%-24s %12s %14s   %s\n", "", "tern", r->engine->kind->title, "ours faster by (95 %)");
    for (int m = 0; m < METRIC_COUNT; m++) {
        struct compare_summary s = compare_summarise(r, (enum compare_metric)m, -1);
        char title[64];
        snprintf(title, sizeof title, "%s, %s", metrics[m].title, metrics[m].unit);
        if (!s.known) {
            out_putf("%-24s %12s %14s\n", title, "-", "-");
            continue;
        }
        out_putf("%-28s %8s %14s   %.2f x (%.2f to %.2f)\n", title,
                 number_text(a, s.ours * metrics[m].scale, metrics[m].format),
                 number_text(b, s.theirs * metrics[m].scale, metrics[m].format), s.faster.mid, s.faster.lo,
                 s.faster.hi);
    }
    char ours[24], theirs[24];
    out_putf("%-28s %8s %14s   %s\n", "memory, at most", bytes_format(r->rss[0], ours),
             r->rss[1] ? bytes_format(r->rss[1], theirs) : "-", r->engine->rss_note ? r->engine->rss_note : "");
    const double equal = compare_equal_share(r, &n_whole);
    out_putf("equal text: %d of %d answers whole; %.0f %% before the first difference\n", n_whole, r->n_prompts,
             100 * equal);
    if (r->n_ours_ahead > 0)
        out_putf("tern guessed %lld of its %lld tokens ahead (--draft off: none)\n", (long long)r->n_ours_ahead,
                 (long long)r->n_ours_all);
    out_putf("model %s; %d prompts, %d run%s each, in turn; %s; %s%s%s; %s\n", r->model_name, r->n_prompts,
             r->n_repeats, r->n_repeats == 1 ? "" : "s", r->machine, r->engine->kind->title,
             r->engine->version[0] ? " " : "", r->engine->version, r->when);
}

static void metric_json(struct json_writer *w, const struct compare_result *r, int prompt) {
    for (int m = 0; m < METRIC_COUNT; m++) {
        struct compare_summary s = compare_summarise(r, (enum compare_metric)m, prompt);
        json_write_key(w, metrics[m].key);
        if (!s.known) {
            json_write_null(w);
            continue;
        }
        const struct {
            const char *key;
            double value;
        } values[] = {{"ours", s.ours * metrics[m].scale},
                      {"theirs", s.theirs * metrics[m].scale},
                      {"ratio", s.faster.mid},
                      {"lo", s.faster.lo},
                      {"hi", s.faster.hi}};
        json_write_object(w);
        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
            json_write_key(w, values[i].key);
            json_write_f64(w, values[i].value);
        }
        json_write_object_end(w);
    }
}

static void text_key(struct json_writer *w, const char *key, const char *value) {
    json_write_key(w, key);
    json_write_str(w, str_from(value));
}

static void bytes_key(struct json_writer *w, const char *key, uint64_t v) {
    json_write_key(w, key);
    if (v)
        json_write_int(w, (int64_t)v);
    else
        json_write_null(w);
}

void compare_print_json(const struct compare_result *r) {
    struct buf b;
    struct json_writer w;
    int n_whole;
    buf_init(&b, 256u << 20);
    json_write_init(&w, &b);
    json_write_object(&w);
    text_key(&w, "model", r->model_name);
    text_key(&w, "engine", r->engine->kind->name);
    text_key(&w, "engine_version", r->engine->version);
    text_key(&w, "engine_command", r->engine->command);
    text_key(&w, "tern_version", tern_version());
    text_key(&w, "machine", r->machine);
    text_key(&w, "when", r->when);
    json_write_key(&w, "threads");
    json_write_int(&w, r->info.n_threads);
    json_write_key(&w, "runs");
    json_write_int(&w, r->n_repeats);
    metric_json(&w, r, -1);
    bytes_key(&w, "memory_ours", r->rss[COMPARE_OURS]);
    bytes_key(&w, "memory_theirs", r->rss[COMPARE_THEIRS]);
    json_write_key(&w, "equal_share");
    json_write_f64(&w, compare_equal_share(r, &n_whole));
    json_write_key(&w, "equal_whole");
    json_write_int(&w, n_whole);
    json_write_key(&w, "prompts");
    json_write_array(&w);
    for (int p = 0; p < r->n_prompts; p++) {
        json_write_object(&w);
        text_key(&w, "prompt", r->prompts[p].name);
        json_write_key(&w, "prompt_tokens");
        json_write_int(&w, r->texts[p].n_prompt);
        json_write_key(&w, "answer_tokens");
        json_write_int(&w, r->texts[p].n_answer);
        metric_json(&w, r, p);
        json_write_key(&w, "equal_share");
        json_write_f64(&w, r->texts[p].equal);
        json_write_key(&w, "text_ours");
        json_write_str(&w, buf_str(&r->texts[p].text[COMPARE_OURS]));
        json_write_key(&w, "text_theirs");
        json_write_str(&w, buf_str(&r->texts[p].text[COMPARE_THEIRS]));
        json_write_object_end(&w);
    }
    json_write_array_end(&w);
    json_write_object_end(&w);
    buf_putc(&b, '\n');
    out_put(buf_str(&b));
    buf_release(&b);
}
