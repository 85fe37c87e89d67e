// Writing a quantised model: tensor by tensor, in pieces of rows that the threads of a team share.
//
// The source is a map; a piece is read, encoded and written before the next is touched, and a tensor's pages are given
// back once it is through, so memory is two pieces and the pages of one tensor. The file appears under its name when
// all of it is on the disk (base's writer), and not at all when anything fails or Ctrl-C comes.
#include "base/base.h"
#include "quantize.h"
#include "op/op.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>

#define PIECE_VALUES ((int64_t)2 << 20)
#define F16_MAX 65504.0f

static volatile sig_atomic_t stop_asked;
static void on_stop(int sig) {
    (void)sig;
    stop_asked = 1;
}

struct piece {
    const struct model_export_tensor *t;
    int64_t first; // row of the file
    int n_rows;
    size_t row_bytes_out;
    uint8_t *out;
    float *rows[TEAM_THREADS_MAX]; // [2 * ne[0]] of each thread: the values, and what they became
    double errors[TEAM_THREADS_MAX], squares[TEAM_THREADS_MAX];
    _Atomic int64_t bad_row; // with a value that the format cannot hold; -1: none
};

static bool row_fits(enum format f, const float *x, int64_t n) {
    if (f == FORMAT_F32 || f == FORMAT_BF16) return true;
    const float limit = f == FORMAT_F16 ? F16_MAX : INFINITY;
    bool fits = true;
    for (int64_t i = 0; i < n; i++) fits = fits && fabsf(x[i]) <= limit && x[i] - x[i] == 0;
    return fits;
}

static void error_add(const float *x, const float *y, int64_t n, double *error, double *square) {
    double e = 0, s = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)y[i];
        e += d * d;
        s += (double)x[i] * (double)x[i];
    }
    *error += e;
    *square += s;
}

static void piece_part(void *arg, const struct team_member *self) {
    struct piece *p = arg;
    const struct model_export_tensor *t = p->t;
    const int64_t n = t->ne[0];
    float *x = p->rows[self->index], *y = x + n;
    int begin, end;
    team_share(self, p->n_rows, 1, &begin, &end);
    for (int r = begin; r < end; r++) {
        int64_t row;
        const struct tensor *from = model_export_row(t, p->first + r, &row);
        const size_t row_bytes_in = (size_t)(from->n_bytes / (uint64_t)(from->ne[1] * from->ne[2] * from->ne[3]));
        const uint8_t *in = from->parts ? (uint8_t *)y : from->data + (size_t)row * row_bytes_in;
        if (from->parts) model_tensor_read(from, row, 0, n, (uint8_t *)y); // fewer than 4 bytes a value
        uint8_t *out = p->out + (size_t)r * p->row_bytes_out;
        if (from->format == t->format) {
            memcpy(out, in, row_bytes_in);
            continue;
        }
        op_dequant_row(from->format, in, n, x);
        if (!row_fits(t->format, x, n)) {
            p->bad_row = p->first + r;
            return;
        }
        op_encode_weights(t->format, x, n, out);
        if (format_is_float(t->format)) continue;
        op_dequant_row(t->format, out, n, y);
        error_add(x, y, n, &p->errors[self->index], &p->squares[self->index]);
    }
}

struct writing {
    struct os_writer w;
    struct team *team;
    struct progress bar;
    struct piece *piece;
    uint64_t done;
};

static enum tern_status scratch_take(struct writing *g, int64_t n_row, size_t out_bytes, struct tern_err *err) {
    struct piece *p = g->piece;
    for (int i = 0; i < team_size(g->team); i++) {
        mem_free(p->rows[i]);
        p->rows[i] = mem_calloc((size_t)n_row, 2 * sizeof(float));
        if (!p->rows[i]) return err_set(err, TERN_NO_MEMORY, "no memory for rows of %lld values", (long long)n_row);
    }
    mem_free(p->out);
    p->out = mem_alloc(out_bytes);
    if (!p->out) return err_set(err, TERN_NO_MEMORY, "no memory for a piece of %zu bytes", out_bytes);
    return TERN_OK;
}

static enum tern_status padding_put(struct writing *g, uint32_t align, struct tern_err *err) {
    static const uint8_t zeros[4096];
    size_t n = (size_t)((align - g->w.n_bytes % align) % align);
    while (n > 0) {
        TRY(writer_put(&g->w, zeros, MIN(n, sizeof zeros), err));
        n -= MIN(n, sizeof zeros);
    }
    return TERN_OK;
}

static enum tern_status tensor_write(struct writing *g, const struct model_export *x,
                                     const struct model_export_tensor *t, struct tern_err *err) {
    if (!t->from) {
        TRY(writer_put(&g->w, t->values, (size_t)t->n_bytes, err));
        return padding_put(g, x->align, err);
    }
    struct piece *p = g->piece;
    p->t = t;
    p->bad_row = -1;
    p->row_bytes_out = (size_t)(t->n_bytes / (uint64_t)t->n_rows);
    const int64_t step = MAX(MIN(PIECE_VALUES / t->ne[0], t->n_rows), 1);
    TRY(scratch_take(g, t->ne[0], (size_t)step * p->row_bytes_out, err));
    for (int64_t row = 0; row < t->n_rows; row += step) {
        p->first = row;
        p->n_rows = (int)MIN(step, t->n_rows - row);
        team_run(g->team, piece_part, p);
        if (p->bad_row >= 0)
            return err_set(err, TERN_BAD_FORMAT,
                           "tensor %.*s: row %lld holds a value that is not finite or too large for %s",
                           (int)t->name.len, t->name.data, (long long)p->bad_row, format_table[t->format].name);
        if (stop_asked) return err_set(err, TERN_CANCELLED, "interrupted; nothing was written");
        TRY(writer_put(&g->w, p->out, (size_t)p->n_rows * p->row_bytes_out, err));
        g->done += (uint64_t)p->n_rows * p->row_bytes_out;
        progress_update(&g->bar, g->done);
    }
    for (int64_t i = 0; i < (t->experts ? t->ne[2] : 1); i++)
        model_tensor_drop(x->model, t->experts ? t->experts[i] : t->from);
    return padding_put(g, x->align, err);
}

static enum tern_status room_check(const char *path, uint64_t need, struct tern_err *err) {
    struct buf folder;
    buf_init(&folder, 1u << 16);
    struct str p = str_from(path);
    while (p.len > 0 && p.data[p.len - 1] != '/') p.len--;
    buf_put(&folder, p.len ? p.data : ".", p.len ? p.len : 1);
    const uint64_t room = folder.failed ? UINT64_MAX : os_disk_free(folder.data);
    buf_release(&folder);
    char a[24], b[24];
    if (room >= need) return TERN_OK;
    return err_set(err, TERN_NO_SPACE, "%s needs %s, the disk has %s left", path, bytes_format(need, a),
                   bytes_format(room, b));
}

static enum tern_status all_write(struct writing *g, struct model_export *x, const struct buf *head,
                                  struct tern_err *err) {
    TRY(writer_put(&g->w, head->data, head->len, err));
    for (int i = 0; i < x->n_tensors; i++) TRY(tensor_write(g, x, &x->tensors[i], err));
    if (stop_asked) return err_set(err, TERN_CANCELLED, "interrupted; nothing was written");
    return TERN_OK;
}

enum tern_status quantize_write(struct model_export *x, uint32_t file_type, const char *path, int n_threads,
                                struct quantize_result *out, struct tern_err *err) {
    struct writing g = {.piece = mem_calloc(1, sizeof *g.piece)};
    struct team_options team_options = {.n_threads = n_threads};
    struct buf head;
    buf_init(&head, (size_t)1 << 30);
    enum tern_status status = TERN_OK;
    *out = (struct quantize_result){0};
    stop_asked = 0;
    if (!g.piece) {
        status = err_set(err, TERN_NO_MEMORY, "no memory to quantise");
        goto done;
    }
    TRY_GOTO(model_export_head(x, file_type, &head, err), done);
    out->n_bytes = head.len + x->n_bytes_data;
    TRY_GOTO(room_check(path, out->n_bytes, err), done);
    TRY_GOTO(team_create(&g.team, &team_options, err), done);
    TRY_GOTO(writer_open(&g.w, path, err), done);
    void (*before[3])(int) = {signal(SIGINT, on_stop), signal(SIGTERM, on_stop), signal(SIGHUP, on_stop)};
    progress_begin(&g.bar, "quantising", x->n_bytes_data, true);
    status = all_write(&g, x, &head, err);
    progress_end(&g.bar);
    if (status == TERN_OK)
        status = writer_commit(&g.w, err);
    else
        writer_abort(&g.w);
    signal(SIGINT, before[0]);
    signal(SIGTERM, before[1]);
    signal(SIGHUP, before[2]);
    out->interrupted = status == TERN_CANCELLED;
    double error = 0, square = 0;
    for (int i = 0; i < TEAM_THREADS_MAX; i++) {
        error += g.piece->errors[i];
        square += g.piece->squares[i];
        mem_free(g.piece->rows[i]);
        g.piece->rows[i] = NULL;
    }
    out->error = square > 0 ? sqrt(error / square) : 0;
done:
    if (g.piece) mem_free(g.piece->out);
    mem_free(g.piece);
    team_free(g.team);
    buf_release(&head);
    return status;
}
