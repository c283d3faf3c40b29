/* SPDX-License-Identifier: 0BSD */
/*
 * What the command line offloads values to: a file without a name, or memory, and a thread that
 * moves them in the order in which transfers are begun, beside the steps of the run.
 *
 *     run      begin a   begin b   ...   wait for a   ...   wait for b
 *     thread     [--- a ---)[----- b -----)
 *
 * The file is written and read, not mapped: the program's memory holds no page of it. It has its
 * full size before the first step, and no name from then on, so that nothing is left. A transfer
 * that fails is kept as the store's error: every later wait reports it. */
#define _XOPEN_SOURCE 700 /* mkstemp, pread */
#include "ul_internal.h"

#include "ul_offload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STACK_BYTES ((size_t)128 << 10) /* a page or two of it are touched */
#define SMALL_BYTES 16384 /* handing over such a transfer takes longer than making it */

struct ul_store {
    struct ul_offload offload;
    int file;              /* -1: memory */
    unsigned char *memory; /* NULL: a file */
    bool is_late;          /* nothing is done before it is waited for */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t begun, done;
    struct ul_transfer *queue; /* a ring: what is under way comes first */
    struct ul_span *spans;     /* per transfer of a run; NULL: nobody looks */
    size_t room, first, count;
    bool ends;
    int error; /* errno of the first transfer that failed */
    char path[UL_PATH_BYTES];
};

/* ---- moving ---- */

static int move_in_file(int file, const struct ul_transfer *transfer)
{
    for (uint64_t at = 0; at < transfer->size_bytes;) {
        size_t left = (size_t)(transfer->size_bytes - at);
        off_t offset = (off_t)(transfer->offset_bytes + at);
        ssize_t moved = transfer->direction == UL_OFFLOAD_SAVE
                            ? pwrite(file, transfer->bytes + at, left, offset)
                            : pread(file, transfer->bytes + at, left, offset);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return moved < 0 ? errno : EIO; /* the file has become shorter */
        at += (uint64_t)moved;
    }
    return 0;
}

static int move(const struct ul_store *store, const struct ul_transfer *transfer)
{
    double begin = store->spans != NULL ? ul_now() : 0.0;
    int error = 0;
    if (store->memory == NULL)
        error = move_in_file(store->file, transfer);
    else
        ul_offload_copy(store->memory, transfer);
    if (store->spans != NULL)
        store->spans[transfer->number] = (struct ul_span){begin, ul_now()};
    return error;
}

/* Does the first transfer of the queue, and lets go of the lock meanwhile. */
static void do_first(struct ul_store *store)
{
    struct ul_transfer transfer = store->queue[store->first];
    (void)pthread_mutex_unlock(&store->lock);
    int error = move(store, &transfer);
    (void)pthread_mutex_lock(&store->lock);
    if (store->error == 0)
        store->error = error;
    store->first = (store->first + 1) % store->room;
    store->count--;
    (void)pthread_cond_signal(&store->done);
}

static void *work(void *context)
{
    struct ul_store *store = context;
    (void)pthread_mutex_lock(&store->lock);
    for (;;) {
        while (store->count == 0 && !store->ends)
            (void)pthread_cond_wait(&store->begun, &store->lock);
        if (store->count == 0)
            break;
        do_first(store);
    }
    (void)pthread_mutex_unlock(&store->lock);
    return NULL;
}

static void begin(void *context, const struct ul_transfer *transfer)
{
    struct ul_store *store = context;
    (void)pthread_mutex_lock(&store->lock);
    while (store->count == store->room) /* a library's caller may begin more than a plan does */
        (void)pthread_cond_wait(&store->done, &store->lock);
    bool is_small = transfer->size_bytes <= SMALL_BYTES && !store->is_late;
    bool is_own = is_small && store->count == 0;
    store->queue[(store->first + store->count++) % store->room] = *transfer;
    if (is_own) {
        int error = move(store, transfer);
        store->error = store->error == 0 ? error : store->error;
        store->count = 0;
    } else {
        (void)pthread_cond_signal(&store->begun);
    }
    (void)pthread_mutex_unlock(&store->lock);
}

static int wait_for(void *context, uint64_t number)
{
    struct ul_store *store = context;
    (void)pthread_mutex_lock(&store->lock);
    while (store->count > 0 && store->queue[store->first].number <= number) {
        if (store->has_thread)
            (void)pthread_cond_wait(&store->done, &store->lock);
        else
            do_first(store);
    }
    int error = store->error;
    (void)pthread_mutex_unlock(&store->lock);
    return error;
}

/* ---- opening ---- */

static int fail_file(const struct ul_session *s, const char *path, int error)
{
    char shown[UL_SHOWN_BYTES];
    return ul_error(s, UL_EXIT_IO,
                    "--offload %s: %" PRIu64 " bytes of values are to be offloaded to it: %s; give "
                    "--offload FILE, or a folder with as much room",
                    ul_shown(shown, path), s->model->offload_bytes,
                    error == EEXIST ? "there is such a file already" : strerror(error));
}

/* Makes a file of its own in a folder; or of that name, which no file may have yet. It is removed
 * at once. */
static int make_file(const struct ul_session *s, struct ul_store *store, const char *path)
{
    struct stat status;
    bool is_folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    int length = snprintf(store->path, sizeof store->path, "%s%s", path,
                          is_folder ? "/ullage-offload-XXXXXX" : "");
    if (length < 0 || (size_t)length >= sizeof store->path)
        return fail_file(s, path, ENAMETOOLONG);
    store->file = is_folder ? mkstemp(store->path)
                            : open(store->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (store->file < 0)
        return fail_file(s, path, errno);
    (void)unlink(store->path);
    int error = posix_fallocate(store->file, 0, (off_t)s->model->offload_bytes);
    return error == 0 ? UL_EXIT_OK : fail_file(s, path, error);
}

static int make_memory(const struct ul_session *s, struct ul_store *store)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 64, (size_t)s->model->offload_bytes) != 0)
        return ul_error(s, UL_EXIT_NO_FIT,
                        "%" PRIu64 " bytes of values are to be offloaded to memory, and this "
                        "machine does not give it; compile with --offload FILE",
                        s->model->offload_bytes);
    memset(memory, 0, (size_t)s->model->offload_bytes);
    store->memory = memory;
    return UL_EXIT_OK;
}

/* Signals are for the main thread. */
static int start_thread(const struct ul_session *s, struct ul_store *store)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_attr_init(&attributes);
    if (error == 0) {
        (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
        error = pthread_create(&store->thread, &attributes, work, store);
        (void)pthread_attr_destroy(&attributes);
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    store->has_thread = error == 0;
    return error == 0 ? UL_EXIT_OK
                      : ul_error(s, UL_EXIT_INTERNAL, "the thread that offloads values: %s",
                                 strerror(error));
}

static struct ul_store *new_store(const struct ul_session *s)
{
    struct ul_store *store = calloc(1, sizeof *store);
    size_t room = (size_t)s->model->step_count + 1;
    if (store == NULL || (store->queue = calloc(room, sizeof *store->queue)) == NULL) {
        free(store);
        return NULL;
    }
    bool is_looked_at = s->options->mode == UL_MODE_BENCH && s->options->profile;
    if (is_looked_at && (store->spans = calloc(room, sizeof *store->spans)) == NULL) {
        free(store->queue);
        free(store);
        return NULL;
    }
    store->file = -1;
    store->room = room;
    store->is_late = s->options->mode == UL_MODE_GUARD;
    store->offload.size_bytes = s->model->offload_bytes;
    store->offload.context = store;
    store->offload.begin = begin;
    store->offload.wait = wait_for;
    (void)pthread_mutex_init(&store->lock, NULL);
    (void)pthread_cond_init(&store->begun, NULL);
    (void)pthread_cond_init(&store->done, NULL);
    return store;
}

int ul_store_open(struct ul_session *s)
{
    const struct ul_model *model = s->model;
    const char *path = s->options->offload != NULL ? s->options->offload : model->offload_file;
    if (model->offload_bytes == 0 || model->device != NULL)
        return UL_EXIT_OK;
    struct ul_store *store = s->store = new_store(s);
    if (store == NULL)
        return ul_out_of_memory(s, model->step_count * sizeof *store->queue);
    bool in_memory = path == NULL || store->is_late;
    int status = in_memory ? make_memory(s, store) : make_file(s, store, path);
    return status == UL_EXIT_OK && !store->is_late ? start_thread(s, store) : status;
}

void ul_store_close(struct ul_session *s)
{
    struct ul_store *store = s->store;
    if (store == NULL)
        return;
    (void)pthread_mutex_lock(&store->lock);
    store->ends = true;
    (void)pthread_cond_signal(&store->begun);
    (void)pthread_mutex_unlock(&store->lock);
    if (store->has_thread)
        (void)pthread_join(store->thread, NULL);
    if (store->file >= 0)
        (void)close(store->file);
    (void)pthread_cond_destroy(&store->done);
    (void)pthread_cond_destroy(&store->begun);
    (void)pthread_mutex_destroy(&store->lock);
    free(store->memory);
    free(store->queue);
    free(store->spans);
    free(store);
    s->store = NULL;
}

/* ---- what others ask ---- */

const struct ul_offload *ul_store_offload(const struct ul_session *s)
{
    return s->store != NULL ? &s->store->offload : NULL;
}

unsigned char *ul_store_memory(const struct ul_session *s)
{
    return s->store != NULL ? s->store->memory : NULL;
}

uint64_t ul_store_bytes(const struct ul_session *s)
{
    struct stat status;
    if (s->store == NULL || s->store->memory != NULL)
        return s->store != NULL ? s->store->offload.size_bytes : 0;
    return fstat(s->store->file, &status) == 0 ? (uint64_t)status.st_size : 0;
}

bool ul_store_span(const struct ul_session *s, uint64_t number, struct ul_span *span)
{
    if (s->store == NULL || s->store->spans == NULL)
        return false;
    *span = s->store->spans[number];
    return true;
}

int ul_store_report(const struct ul_session *s)
{
    char shown[UL_SHOWN_BYTES];
    const struct ul_store *store = s->store;
    return ul_error(
        s, UL_EXIT_IO,
        "offload to %s: %s; the run's results are none, and a training is lost since "
        "its last checkpoint",
        store != NULL && store->memory == NULL ? ul_shown(shown, store->path) : "memory",
        store != NULL && store->error != 0 ? strerror(store->error) : "a transfer failed");
}
