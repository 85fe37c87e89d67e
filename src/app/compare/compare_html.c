// The page of a comparison: one file with its style and pictures inside, no scripts, nothing from elsewhere. All text
// is escaped: prompts, answers and names come from outside.
#include "base/base.h"
#include "compare.h"

#include <stdio.h>

#define PAGE_BYTES_MAX (64u << 20)
#define TEXT_SHOWN 2000 // bytes of an answer

static void put_text(struct buf *b, struct str s) {
    struct buf clean;
    buf_init(&clean, COMPARE_TEXT_MAX * 4);
    utf8_put_clean(&clean, s);
    for (size_t i = 0; i < clean.len; i++) {
        const char c = clean.data[i];
        if (c == '<')
            buf_puts(b, "&lt;");
        else if (c == '>')
            buf_puts(b, "&gt;");
        else if (c == '&')
            buf_puts(b, "&amp;");
        else if (c == '"')
            buf_puts(b, "&quot;");
        else if ((unsigned char)c >= 0x20 || c == '\n' || c == '\t')
            buf_putc(b, c);
    }
    buf_release(&clean);
}

static void head_put(struct buf *b, const struct compare_result *r) {
    buf_puts(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>tern and ");
    put_text(b, str_from(r->engine->kind->title));
    buf_puts(b, "</title>\n<style>\n"
                "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#1b2733;"
                "background:#fff}\nh1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}\n"
                "table{border-collapse:collapse;width:100%}th,td{text-align:right;padding:.3rem .6rem;"
                "border-bottom:1px solid #d8dee4}\nth:first-child,td:first-child{text-align:left}\n"
                "pre{white-space:pre-wrap;background:#f4f6f8;padding:.6rem;border-radius:4px;font-size:.85rem}\n"
                "svg{display:block;width:100%;height:auto}.note{color:#57636f;font-size:.9rem}\n"
                "</style></head><body>\n<h1>tern and ");
    put_text(b, str_from(r->engine->kind->title));
    buf_puts(b, "</h1>\n<p>Model <b>");
    const bool is_file = str_ends(str_from(r->model_name), STR(".gguf"));
    put_text(b, str_from(is_file ? compare_path_tail(r->model_name) : r->model_name));
    buf_putf(b, "</b>, %s, %d prompts, each answered %d time%s by both in turn. Bars are medians.</p>\n",
             r->info.format ? r->info.format : "", r->n_prompts, r->n_repeats, r->n_repeats == 1 ? "" : "s");
}

static const struct {
    const char *title, *unit;
    double scale;
    int digits;
} metrics[METRIC_COUNT] = {{"Time to the first token (shorter is better)", "ms", 1e3, 1},
                           {"Reading the prompt (longer is better)", "tokens/s", 1, 0},
                           {"Writing the answer (longer is better)", "tokens/s", 1, 1}};

static void bar_put(struct buf *b, int y, const char *name, double v, double top, const char *colour, int digits,
                    const char *unit) {
    const double width = top > 0 ? 420 * v / top : 0;
    buf_putf(b, "<text x=\"0\" y=\"%d\" font-size=\"14\" fill=\"#1b2733\">", y + 16);
    put_text(b, str_from(name));
    buf_putf(b, "</text><rect x=\"120\" y=\"%d\" width=\"%.1f\" height=\"22\" rx=\"3\" fill=\"%s\"/>", y,
             MAX(width, 1.0), colour);
    buf_putf(b, "<text x=\"%.1f\" y=\"%d\" font-size=\"14\" fill=\"#1b2733\">%.*f %s</text>\n", 128 + width, y + 16,
             digits, v, unit);
}

static void bars_put(struct buf *b, const struct compare_result *r) {
    for (int m = 0; m < METRIC_COUNT; m++) {
        struct compare_summary s = compare_summarise(r, (enum compare_metric)m, -1);
        buf_putf(b, "<h2>%s</h2>\n", metrics[m].title);
        if (!s.known) {
            buf_puts(b, "<p class=\"note\">Not told by the engine.</p>\n");
            continue;
        }
        const double ours = s.ours * metrics[m].scale, theirs = s.theirs * metrics[m].scale;
        buf_puts(b, "<svg viewBox=\"0 0 720 64\" role=\"img\">\n");
        bar_put(b, 4, "tern", ours, MAX(ours, theirs), "#1f7a5c", metrics[m].digits, metrics[m].unit);
        bar_put(b, 36, r->engine->kind->title, theirs, MAX(ours, theirs), "#8795a3", metrics[m].digits,
                metrics[m].unit);
        buf_putf(
            b, "</svg>\n<p>tern %s by a factor of <b>%.2f</b> (95 %% interval %.2f to %.2f, over pairs of runs).</p>\n",
            s.faster.mid >= 1 ? "is ahead" : "is behind", s.faster.mid >= 1 ? s.faster.mid : 1 / s.faster.mid,
            s.faster.mid >= 1 ? s.faster.lo : 1 / s.faster.hi, s.faster.mid >= 1 ? s.faster.hi : 1 / s.faster.lo);
    }
}

static void prompts_put(struct buf *b, const struct compare_result *r) {
    int n_whole;
    char size[24];
    const double equal = compare_equal_share(r, &n_whole);
    buf_puts(b, "<h2>Memory</h2>\n<p>tern at most ");
    buf_puts(b, bytes_format(r->rss[COMPARE_OURS], size));
    buf_puts(b, ", the other ");
    buf_puts(b, r->rss[COMPARE_THEIRS] ? bytes_format(r->rss[COMPARE_THEIRS], size) : "unknown");
    if (r->engine->rss_note) buf_putf(b, " (%s)", r->engine->rss_note);
    buf_putf(
        b,
        ".</p>\n<h2>The texts</h2>\n<p>At temperature 0, %d of %d answers are the same to the last byte; on average "
        "%.0f %% of an answer comes before the first difference. Engines round differently, so one near tie can part "
        "two texts.</p>\n",
        n_whole, r->n_prompts, 100 * equal);
    buf_puts(b, "<table><tr><th>prompt</th><th>tokens</th><th>tern, tokens/s</th><th>other, "
                "tokens/s</th><th>equal</th></tr>\n");
    for (int p = 0; p < r->n_prompts; p++) {
        struct compare_summary s = compare_summarise(r, METRIC_DECODE, p);
        buf_puts(b, "<tr><td>");
        put_text(b, str_from(r->prompts[p].name));
        buf_putf(b, "</td><td>%lld + %lld</td><td>%.1f</td><td>%.1f</td><td>%.0f %%</td></tr>\n",
                 (long long)r->texts[p].n_prompt, (long long)r->texts[p].n_answer, s.ours, s.theirs,
                 100 * r->texts[p].equal);
    }
    buf_puts(b, "</table>\n");
    for (int p = 0; p < r->n_prompts; p++) {
        buf_puts(b, "<details><summary>");
        put_text(b, str_from(r->prompts[p].name));
        buf_puts(b, "</summary><p>tern</p><pre>");
        for (int k = 0; k < 2; k++) {
            struct str text = buf_str(&r->texts[p].text[k]);
            put_text(b, (struct str){text.data, MIN(text.len, (size_t)TEXT_SHOWN)});
            buf_puts(b, k == 0 ? "</pre><p>the other</p><pre>" : "</pre></details>\n");
        }
    }
}

enum tern_status compare_write_html(const struct compare_result *r, const char *path, struct tern_err *err) {
    struct buf b;
    buf_init(&b, PAGE_BYTES_MAX);
    head_put(&b, r);
    bars_put(&b, r);
    prompts_put(&b, r);
    buf_puts(&b, "<p class=\"note\">tern ");
    put_text(&b, str_from(tern_version()));
    buf_puts(&b, " and ");
    put_text(&b, str_from(r->engine->kind->title));
    buf_putc(&b, ' ');
    put_text(&b, str_from(r->engine->version));
    buf_puts(&b, "; ");
    put_text(&b, str_from(r->machine));
    buf_puts(&b, "; ");
    put_text(&b, str_from(r->when));
    if (r->n_ours_ahead > 0)
        buf_putf(&b, "<br>tern guessed %lld of its %lld tokens ahead and checked them (--draft off: none)",
                 (long long)r->n_ours_ahead, (long long)r->n_ours_all);
    if (r->engine->command[0]) {
        buf_puts(&b, "<br>");
        put_text(&b, str_from(r->engine->command));
    }
    buf_puts(&b, "</p>\n</body></html>\n");
    enum tern_status status =
        b.failed ? err_set(err, TERN_NO_MEMORY, "no memory for the page") : file_write_atomic(path, b.data, b.len, err);
    buf_release(&b);
    return status;
}
