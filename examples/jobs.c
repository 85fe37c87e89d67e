// Several questions at once, answered together by a service; a thread of their own cancels those that take longer than
// SECONDS. Events are pulled when the service says that there are some, not by asking again and again.
//   cc jobs.c $(pkg-config --cflags --libs tern) -pthread -o jobs && ./jobs MODEL.gguf SECONDS 'Question' …
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tern.h>
#include <time.h>

#define JOBS_MAX 64
#define TEXT_MAX 16384

static struct job {
    struct tern_job *job;
    int news, done; // news: under the lock
    size_t len;
    char text[TEXT_MAX];
} jobs[JOBS_MAX];
static int n_jobs;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
static int all_done; // under the lock

// Called by the service's thread: it may take a lock for a moment, but neither call tern nor wait for who does.
static void on_news(void *arg) {
    pthread_mutex_lock(&lock);
    ((struct job *)arg)->news = 1;
    pthread_cond_signal(&told);
    pthread_mutex_unlock(&lock);
}

static void *cancel_late(void *arg) {
    const struct timespec *deadline = arg;
    pthread_mutex_lock(&lock);
    while (!all_done && pthread_cond_timedwait(&ended, &lock, deadline) == 0) {}
    int late = !all_done;
    pthread_mutex_unlock(&lock);
    for (int i = 0; late && i < n_jobs; i++) tern_job_cancel(jobs[i].job); // any thread; what is done stays done
    return NULL;
}

static enum tern_status submit(struct tern_service *service, const char *question, struct tern_err *err) {
    struct job *j = &jobs[n_jobs];
    struct tern_job_options options;
    tern_job_options_default(&options);
    options.request.prompt = (struct tern_str){question, strlen(question)}; // chat.c shows messages
    options.request.n_max = 64;
    enum tern_status status = tern_job_submit(&j->job, service, &options, err);
    if (status != TERN_OK) return status;
    n_jobs++;
    j->news = 1; // what came before the next call is not told
    tern_job_notify(j->job, on_news, j);
    return TERN_OK;
}

// Takes what there is. Returns 1 when the job has ended.
static int pull(struct job *j, struct tern_err *err) {
    struct tern_event event;
    enum tern_status status;
    while ((status = tern_job_next(j->job, 0, &event, err)) == TERN_OK) {
        if (event.type == TERN_EVENT_TEXT && j->len + event.text.len < TEXT_MAX) {
            memcpy(j->text + j->len, event.text.data, event.text.len);
            j->len += event.text.len;
        }
        if (event.type == TERN_EVENT_DONE)
            return printf("%d, %s: %.*s\n", (int)(j - jobs), tern_finish_text(event.finish), (int)j->len, j->text), 1;
    }
    if (status == TERN_AGAIN) return 0;
    return printf("%d failed: %s\n", (int)(j - jobs), err->message), 1;
}

int main(int argc, char **argv) {
    if (argc < 4 || argc - 3 > JOBS_MAX) return fprintf(stderr, "usage: jobs MODEL SECONDS QUESTION…\n"), 2;
    struct tern_err err = {0};
    struct tern_engine_options options;
    struct tern_service_options service_options;
    struct tern_engine *engine = NULL;
    struct tern_service *service = NULL;
    tern_engine_options_default(&options);
    tern_service_options_default(&service_options);
    options.model_path = argv[1];
    options.n_sessions = 4; // run together; further jobs wait
    enum tern_status status = tern_engine_open(&engine, &options, &err);
    if (status == TERN_OK) status = tern_service_open(&service, engine, &service_options, &err);
    for (int i = 3; i < argc && status == TERN_OK; i++) status = submit(service, argv[i], &err);
    struct timespec deadline;
    clock_gettime(CLOCK_REALTIME, &deadline); // what pthread_cond_timedwait counts by
    deadline.tv_sec += atol(argv[2]);
    pthread_t canceller;
    int has_canceller = pthread_create(&canceller, NULL, cancel_late, &deadline) == 0;
    for (int left = n_jobs; left > 0 && status == TERN_OK;) {
        struct job *j = NULL;
        pthread_mutex_lock(&lock);
        while (!j) {
            for (int i = 0; i < n_jobs && !j; i++)
                if (jobs[i].news && !jobs[i].done) j = &jobs[i];
            if (!j) pthread_cond_wait(&told, &lock);
        }
        j->news = 0;
        pthread_mutex_unlock(&lock);
        j->done = pull(j, &err);
        left -= j->done;
    }
    if (status != TERN_OK) fprintf(stderr, "jobs: %s\n", err.message);
    pthread_mutex_lock(&lock);
    all_done = 1;
    pthread_cond_signal(&ended);
    pthread_mutex_unlock(&lock);
    if (has_canceller) pthread_join(canceller, NULL); // before the jobs that it names are freed
    for (int i = 0; i < n_jobs; i++) tern_job_free(jobs[i].job);
    tern_service_close(service); // jobs first, then the service, then the engine
    tern_engine_close(engine);
    return status == TERN_OK ? 0 : 1;
}
