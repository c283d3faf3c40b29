/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles of the same model with options changed, to learn what their plans take. Those of a table
 * run in parallel, each in a process of its own: what a library keeps for a call is counted in a
 * process that does nothing else meanwhile (codegen/cpu/kept.c), and a trial that crashes does
 * not affect the others. They reuse what the main compile has found: its graph as it was read,
 * orders of equal graphs, answers of the library. */
#define _POSIX_C_SOURCE 200809L
#include "compile/trials/trial.h"
#include "codegen/cpu/dnnl.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Progress ---- */

struct telling {
    const struct ul_compile *compile;
    const char *what;
    char doing[96];
};

static void tell(void *context, const char *what)
{
    struct telling *telling = context;
    if (what != NULL)
        snprintf(telling->doing, sizeof telling->doing, "%s: %s", telling->what, what);
    ul_compile_progress(telling->compile, what != NULL ? telling->doing : NULL);
}

/* ---- One trial ---- */

static enum ul_status run(struct ul_compile *other, const char *path, const struct ul_trial *trial)
{
    path = trial->path != NULL ? trial->path : path;
    UL_TRY(ul_options_change(&other->options.base, &trial->edits, &other->diag));
    if (trial->prepare != NULL)
        UL_TRY(trial->prepare(other, path));
    UL_TRY(ul_compile_build(other, path));
    return ul_compile_plan(other);
}

static const char *kept_text(struct ul_arena *arena, const char *text)
{
    return text != NULL ? ul_arena_copy_string(arena, text) : NULL;
}

static void note(struct ul_compile *other, struct ul_arena *arena, struct ul_trial *trial)
{
    struct ul_saved_table_plan *result = &trial->result;
    *result = ul_compile_note(other);
    result->peak.node = kept_text(arena, result->peak.node);
    result->peak.op = kept_text(arena, result->peak.op);
    result->peak.source = kept_text(arena, result->peak.source);
    trial->repeats = other->plan.cost > other->plan.base_cost;
}

/* Texts live in `arena`. */
static enum ul_status try_one(const struct ul_compile *compile, const char *path,
                              struct ul_trial *trial, struct telling *telling,
                              struct ul_arena *arena)
{
    struct ul_compile other;
    ul_compile_init(&other);
    bool is_built = compile->asked.base.arena != NULL;
    const struct ul_compile_options *asked = is_built ? &compile->asked : &compile->options;
    ul_options_copy(&other.options.base, &asked->base, sizeof other.options);
    other.is_library = compile->is_library;
    other.is_trial = true;
    other.orders = compile->orders;
    other.earlier = compile;
    if (telling != NULL) {
        other.progress = tell;
        other.progress_context = telling;
    }
    other.options.stop_after = NULL;
    enum ul_status status = run(&other, path, trial);
    trial->has_batch_statistics = other.training.has_batch_statistics;
    trial->result = (struct ul_saved_table_plan){.status = status};
    memcpy(trial->model_sha256, other.model.sha256, sizeof trial->model_sha256);
    if (status == UL_OK) {
        note(&other, arena, trial);
        status = ul_compile_require_fit(&other);
    }
    trial->result.status = status;
    trial->diag = other.diag;
    if (status != UL_OK)
        trial->result.message = ul_arena_copy_string(arena, other.diag.text);
    ul_compile_done(&other);
    return status;
}

enum ul_status ul_compile_check_trials(struct ul_compile *compile, const char *option,
                                       const char *each, const char *model_path)
{
    if (compile->options.plan != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "%s is for making plans, and --plan gives one: leave one out", option);
    if (strcmp(model_path, "-") == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "%s reads the model once for each %s: give a file", option, each);
    return UL_OK;
}

enum ul_status ul_compile_try(struct ul_compile *compile, const char *model_path,
                              struct ul_trial *trial)
{
    struct telling telling = {.compile = compile, .what = trial->what};
    return try_one(compile, model_path, trial, &telling, &compile->keep);
}

/* ---- Many: messages of the processes ---- */

/* A trial as it goes through a pipe: the record, then its texts in order. */
enum { TEXTS = 4 };

static void list_texts(struct ul_trial *trial, const char **texts[TEXTS])
{
    texts[0] = &trial->result.message;
    texts[1] = &trial->result.peak.node;
    texts[2] = &trial->result.peak.op;
    texts[3] = &trial->result.peak.source;
}

static void send(int pipe_end, struct ul_trial *trial, struct ul_arena *arena)
{
    const char **texts[TEXTS];
    struct ul_text message;
    list_texts(trial, texts);
    ul_text_init(&message, arena);
    ul_text_put_bytes(&message, trial, sizeof *trial);
    for (uint32_t i = 0; i < TEXTS; i++)
        if (*texts[i] != NULL)
            ul_text_put_bytes(&message, *texts[i], strlen(*texts[i]) + 1);
    for (size_t sent = 0; sent < message.length;) {
        ssize_t count = write(pipe_end, message.data + sent, message.length - sent);
        if (count < 0 && errno != EINTR)
            _exit(UL_IO);
        sent += count > 0 ? (size_t)count : 0;
    }
}

/* Takes over a trial that was sent; false: it is incomplete. Addresses in it only say which texts
 * follow. */
static bool receive(struct ul_trial *trial, const struct ul_text *message, struct ul_arena *arena)
{
    const struct ul_trial asked = *trial;
    const char **texts[TEXTS];
    size_t at = sizeof *trial;
    if (message->length < at)
        return false;
    memcpy(trial, message->data, sizeof *trial);
    trial->what = asked.what;
    trial->path = asked.path;
    trial->edits = asked.edits;
    trial->prepare = asked.prepare;
    list_texts(trial, texts);
    for (uint32_t i = 0; i < TEXTS; i++) {
        if (*texts[i] == NULL)
            continue;
        const char *end = memchr(message->data + at, '\0', message->length - at);
        if (end == NULL)
            return false;
        *texts[i] = ul_arena_copy_string(arena, message->data + at);
        at = (size_t)(end - message->data) + 1;
    }
    return true;
}

/* ---- Many: the processes ---- */

enum { MAX_WORKERS = 64 };

struct worker {
    pid_t process;
    uint32_t trial;
    struct ul_text said;
};

struct work {
    struct ul_compile *compile;
    const char *path;
    struct ul_trial *trials;
    uint32_t count, started, done, running;
    struct worker workers[MAX_WORKERS]; /* running ones come first */
    struct pollfd pipes[MAX_WORKERS];
};

static void tell_count(const struct work *work)
{
    char doing[64];
    snprintf(doing, sizeof doing, "planning: %u of %u done", work->done, work->count);
    ul_compile_progress(work->compile, work->done < work->count ? doing : NULL);
}

/* Makes a trial here where no process can be started for it. */
static void start(struct work *work)
{
    int ends[2] = {-1, -1};
    uint32_t index = work->started++;
    struct ul_trial *trial = &work->trials[index];
    struct ul_arena *arena = &work->compile->keep;
    pid_t process = pipe(ends) == 0 ? fork() : -1;
    if (process == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* otherwise nobody would read it */
        (void)close(ends[0]);
        (void)!try_one(work->compile, work->path, trial, NULL, arena);
        send(ends[1], trial, arena);
        _exit(0);
    }
    if (ends[1] >= 0)
        (void)close(ends[1]);
    if (process < 0) {
        if (ends[0] >= 0)
            (void)close(ends[0]);
        (void)!try_one(work->compile, work->path, trial, NULL, arena);
        work->done++;
        return;
    }
    struct worker *worker = &work->workers[work->running];
    *worker = (struct worker){.process = process, .trial = index};
    ul_text_init(&worker->said, arena);
    work->pipes[work->running++] = (struct pollfd){.fd = ends[0], .events = POLLIN};
}

/* A process that ended without a result has reported why, if it could. */
static void finish(struct work *work, uint32_t w)
{
    struct worker *worker = &work->workers[w];
    struct ul_trial *trial = &work->trials[worker->trial];
    int ending = 0;
    (void)close(work->pipes[w].fd);
    while (waitpid(worker->process, &ending, 0) < 0 && errno == EINTR)
        ;
    if (ending != 0 || !receive(trial, &worker->said, &work->compile->keep)) {
        trial->diag = (struct ul_diag){.status = UL_OK};
        bool lacks_memory = WIFEXITED(ending) && WEXITSTATUS(ending) == UL_NO_FIT;
        trial->result = (struct ul_saved_table_plan){
            .status = ul_diag_set(&trial->diag, lacks_memory ? UL_NO_FIT : UL_INTERNAL,
                                  lacks_memory ? "its process got no memory for planning"
                                               : "its process ended without a plan")};
        trial->result.message = trial->diag.text;
    }
    work->done++;
    work->running--;
    work->workers[w] = work->workers[work->running];
    work->pipes[w] = work->pipes[work->running];
    tell_count(work);
}

/* Reads what processes have sent so far. */
static void listen(struct work *work)
{
    char piece[4096];
    if (poll(work->pipes, work->running, -1) < 0) {
        if (errno == EINTR)
            return;
        work->pipes[0].revents = POLLIN; /* waits for that one only */
    }
    for (uint32_t w = work->running; w-- > 0;) {
        if (work->pipes[w].revents == 0)
            continue;
        ssize_t count = read(work->pipes[w].fd, piece, sizeof piece);
        if (count > 0)
            ul_text_put_bytes(&work->workers[w].said, piece, (size_t)count);
        else if (count == 0 || errno != EINTR)
            finish(work, w);
    }
}

void ul_compile_try_all(struct ul_compile *compile, const char *model_path, struct ul_trial *trials,
                        uint32_t count)
{
    struct work work = {.compile = compile, .path = model_path, .trials = trials, .count = count};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t max = cores < 1 ? 1 : cores > MAX_WORKERS ? MAX_WORKERS : (uint32_t)cores;
    (void)fflush(NULL);
    ul_dnnl_rest();
    tell_count(&work);
    while (work.done < count) {
        while (work.running < max && work.started < count)
            start(&work);
        if (work.running > 0)
            listen(&work);
    }
}
