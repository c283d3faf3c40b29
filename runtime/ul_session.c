/*
 * The arena, the weights in it, and the inputs and outputs. This is where a program gets all the
 * memory that it will ever use: the arena with one call, and stand-ins for a caller's buffers when
 * the model was compiled with --io caller.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "ul_internal.h"

#include "ul_run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct weights_file {
    int descriptor;
    bool pages; /* the arena is made of whole pages of its own */
    int error;  /* errno of the first read that failed; 0 with a short read */
    char path[UL_PATH_BYTES];
    struct ul_weights_source source;
};

static int read_weights(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    struct weights_file *file = context;
    unsigned char *at = target;
    while (size_bytes > 0) {
        size_t chunk = size_bytes < ((size_t)1 << 30) ? (size_t)size_bytes : (size_t)1 << 30;
        ssize_t got = pread(file->descriptor, at, chunk, (off_t)offset_bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            file->error = got < 0 ? errno : 0;
            return 1;
        }
        at += got;
        offset_bytes += (uint64_t)got;
        size_bytes -= (uint64_t)got;
    }
    return 0;
}

/* Puts the file's pages where whole pages of the arena are, and reads what is beside them. They are
   this process's own: what is written to the arena stays out of the file. */
static int map_weights(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    struct weights_file *file = context;
    long page = sysconf(_SC_PAGESIZE);
    uint64_t page_bytes = page > 0 ? (uint64_t)page : UL_PAGE_BYTES;
    uint64_t head = (page_bytes - (uint64_t)(uintptr_t)target % page_bytes) % page_bytes;
    uint64_t body = size_bytes > head ? (size_bytes - head) / page_bytes * page_bytes : 0;
    uint64_t tail = head + body;
    unsigned char *bytes = target;
    if (!file->pages || body == 0 || (offset_bytes + head) % page_bytes != 0 ||
        mmap(bytes + head, (size_t)body, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             file->descriptor, (off_t)(offset_bytes + head)) == MAP_FAILED)
        return 1;
    return read_weights(context, offset_bytes, bytes, head) ||
           read_weights(context, offset_bytes + tail, bytes + tail, size_bytes - tail);
}

static bool open_path(struct weights_file *file)
{
    struct stat status;
    file->descriptor = open(file->path, O_RDONLY);
    if (file->descriptor < 0)
        return false;
    if (fstat(file->descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(file->descriptor);
        errno = EINVAL;
        return false;
    }
    file->source.size_bytes = (uint64_t)status.st_size;
    file->source.memory = NULL;
    file->source.read = read_weights;
    file->source.context = file;
    file->source.map = map_weights;
    return true;
}

static bool has_trailer(const struct weights_file *file)
{
    unsigned char magic[8];
    return file->source.size_bytes >= UL_TRAILER_BYTES &&
           file->source.read(file->source.context, file->source.size_bytes - UL_TRAILER_BYTES,
                             magic, 8) == 0 &&
           memcmp(magic, UL_TRAILER_MAGIC, 8) == 0;
}

/* The program's own path, by the kernel's word, else as it was called. */
static void own_path(const struct ul_session *s, char path[UL_PATH_BYTES])
{
    ssize_t size = readlink("/proc/self/exe", path, UL_PATH_BYTES - 1);
    if (size > 0)
        path[size] = '\0';
    else
        snprintf(path, UL_PATH_BYTES, "%s", s->program);
}

/* --weights FILE, else what is appended to the program, else PROGRAM.weights beside it. */
static int find_weights(const struct ul_session *s, struct weights_file *file)
{
    char shown[UL_SHOWN_BYTES];
    const char *asked = s->options != NULL ? s->options->weights : NULL;
    size_t length;
    file->error = 0;
    if (asked != NULL) {
        snprintf(file->path, sizeof file->path, "%s", asked);
        if (open_path(file))
            return UL_EXIT_OK;
        return ul_error(s, UL_EXIT_IO, "cannot open weights %s: %s", ul_shown(shown, asked),
                        strerror(errno));
    }
    own_path(s, file->path);
    if (open_path(file)) {
        if (has_trailer(file))
            return UL_EXIT_OK;
        close(file->descriptor);
    }
    length = strlen(file->path);
    if (length + 9 <= sizeof file->path) {
        memcpy(file->path + length, ".weights", 9);
        if (open_path(file))
            return UL_EXIT_OK;
        file->path[length] = '\0';
    }
    return ul_error(s, UL_EXIT_INVALID,
                    "%s carries no weights (was it stripped or copied in part?), and there is no "
                    "%s.weights beside it; name the file with --weights FILE",
                    ul_shown(shown, file->path), shown);
}

/* What the library said of one call at set-up. */
static int report_library(const struct ul_session *s, const struct ul_failure *failure)
{
    const struct ul_library *library = s->model->library;
    uint32_t threads = ul_run_threads(s->model, s->options->threads);
    const char *name = library->calls[failure->tensor].implementation;
    if (failure->result == UL_LIBRARY_NEEDS_MORE)
        return ul_error(s, UL_EXIT_NO_FIT,
                        "call %" PRIu32 " of %s needs %" PRIu64 " bytes of scratch with %" PRIu32
                        " threads on this machine, planned are %" PRIu64 " (%s, %s, %" PRIu32
                        " threads); compile the model again for this machine",
                        failure->tensor, library->name, failure->needed_bytes, threads,
                        failure->available_bytes, name, library->isa, library->thread_count);
    if (failure->result == UL_LIBRARY_UNSUPPORTED)
        return ul_error(
            s, UL_EXIT_UNSUPPORTED,
            "call %" PRIu32 " of %s has no implementation here with %" PRIu32
            " threads for the layouts of the plan, which was made for %s with %" PRIu32
            " threads (%s); compile the model again for this machine, or with --isa or --threads",
            failure->tensor, library->name, threads, library->isa, library->thread_count, name);
    return ul_error(s, UL_EXIT_NO_FIT, "%s could not be set up: out of memory, most likely",
                    library->name);
}

/* A failure to set up, said with its numbers. */
static int report(const struct ul_session *s, const struct weights_file *file,
                  const struct ul_failure *failure)
{
    char shown[UL_SHOWN_BYTES] = "";
    if (file != NULL)
        ul_shown(shown, file->path);
    switch (failure->result) {
    case UL_WEIGHTS_UNREADABLE:
        return ul_error(s, UL_EXIT_IO, "cannot read weights from %s: %s", shown,
                        file != NULL && file->error != 0 ? strerror(file->error) : "too short");
    case UL_WEIGHTS_WRONG_SIZE:
        return ul_error(s, UL_EXIT_INVALID,
                        "%s holds %" PRIu64 " bytes of weights, the model needs %" PRIu64
                        ": it is cut short or belongs to another model",
                        shown, failure->available_bytes, failure->needed_bytes);
    case UL_ARENA_TOO_SMALL:
    case UL_ARENA_MISALIGNED:
        return ul_error(s, UL_EXIT_INTERNAL, "%s (needed %" PRIu64 ", got %" PRIu64 ")",
                        ul_result_text(failure->result), failure->needed_bytes,
                        failure->available_bytes);
    case UL_LIBRARY_NEEDS_MORE:
    case UL_LIBRARY_UNSUPPORTED:
    case UL_LIBRARY_FAILED:
        return report_library(s, failure);
    case UL_OK:
    case UL_WEIGHTS_MISSING:
    case UL_WEIGHTS_INVALID:
    case UL_WEIGHTS_WRONG_HASH:
    case UL_INPUT_MISSING:
    case UL_OUTPUT_MISSING:
    case UL_THREADS_MISSING:
    case UL_NOT_READY:
    case UL_DATA_FAULT:
    case UL_DEVICE_MISSING:
    case UL_DEVICE_TOO_OLD:
    case UL_DEVICE_NO_CODE:
    case UL_DRIVER_TOO_OLD:
    case UL_DEVICE_FULL:
    case UL_DEVICE_FAILED:
    case UL_LIBRARY_MISSING:
    case UL_ARENA_ELSEWHERE:
    case UL_INPUT_ELSEWHERE:
    case UL_OUTPUT_ELSEWHERE:
        break;
    }
    return ul_error(s, UL_EXIT_INVALID, "%s: %s", shown, ul_result_text(failure->result));
}

/* The library's bytes are what it has left after that. */
static void release(struct ul_session *s)
{
    uint64_t library_bytes = s->model->library->heap_bytes(s->model->library, s->arena);
    uint64_t before_bytes = ul_pages_resident().anonymous_bytes;
    ul_pages_release();
    uint64_t after_bytes = ul_pages_resident().anonymous_bytes;
    uint64_t freed_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
    library_bytes -= freed_bytes < library_bytes ? freed_bytes : library_bytes;
    if (library_bytes > s->library_bytes)
        s->library_bytes = library_bytes;
}

/* What only the making of primitives needed is given back before the weights come. */
static bool make_ready(struct ul_session *s, const struct ul_weights_source *source,
                       struct ul_failure *failure)
{
    const struct ul_model *model = s->model;
    uint32_t threads = s->options->threads;
    if (ul_run_begin_init(model, s->arena, (size_t)model->arena_bytes, threads, failure) != UL_OK)
        return false;
    if (model->library != NULL)
        release(s);
    return ul_run_end_init(model, s->arena, threads, source, failure) == UL_OK;
}

static int load(struct ul_session *s)
{
    struct weights_file file;
    struct ul_failure failure;
    const struct ul_model *model = s->model;
    bool stored = model->payload_bytes != 0;
    file.pages = s->mapped_bytes != 0;
    int status = stored ? find_weights(s, &file) : UL_EXIT_OK;
    if (status != UL_EXIT_OK)
        return status;
    s->ready = make_ready(s, stored ? &file.source : NULL, &failure);
    if (!s->ready)
        status = report(s, stored ? &file : NULL, &failure);
    if (stored)
        close(file.descriptor);
    return status;
}

static void unload(struct ul_session *s)
{
    if (s->ready)
        ul_run_done(s->model, s->arena);
    s->ready = false;
}

int ul_session_reload(struct ul_session *s, unsigned char fill)
{
    unload(s);
    memset(s->block, fill, (size_t)(s->model->arena_bytes + 2 * s->margin_bytes));
    return load(s);
}

/* Buffers for the tensors that do not live in the arena. */
static int open_buffers(const struct ul_session *s, const struct ul_tensor *tensors, uint32_t count,
                        void ***buffers)
{
    *buffers = calloc(count + 1, sizeof **buffers);
    if (*buffers == NULL)
        return ul_out_of_memory(s, (count + 1) * sizeof **buffers);
    for (uint32_t i = 0; i < count; i++) {
        if (tensors[i].space == UL_SPACE_ARENA)
            continue;
        if (posix_memalign(&(*buffers)[i], 64, (size_t)tensors[i].size_bytes + 1) != 0) {
            (*buffers)[i] = NULL;
            return ul_out_of_memory(s, tensors[i].size_bytes);
        }
        memset((*buffers)[i], 0, (size_t)tensors[i].size_bytes);
    }
    return UL_EXIT_OK;
}

/* Large blocks are pages of their own, which weights of the file may take the place of. The rest is
   asked to be in large pages: a network walks through all of it, and spends some per cent of its
   time on looking up small ones. */
static void *new_block(struct ul_session *s, uint64_t align, uint64_t size_bytes)
{
    void *block = NULL;
    if (size_bytes >= UL_PAGED_WEIGHT_BYTES && align <= UL_PAGE_BYTES) {
        block = mmap(NULL, (size_t)size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        s->mapped_bytes = block != MAP_FAILED ? size_bytes : 0;
#ifdef MADV_HUGEPAGE
        if (block != MAP_FAILED)
            (void)madvise(block, (size_t)size_bytes, MADV_HUGEPAGE);
#endif
        return block != MAP_FAILED ? block : NULL;
    }
    if (posix_memalign(&block, (size_t)align, size_bytes != 0 ? (size_t)size_bytes : 1) != 0)
        return NULL;
    return block;
}

static int open_arena(struct ul_session *s, uint64_t margin_bytes)
{
    uint64_t arena_bytes = s->model->arena_bytes;
    uint64_t align = s->model->arena_align;
    if (align < sizeof(void *))
        align = sizeof(void *);
    s->margin_bytes = (margin_bytes + align - 1) / align * align;
    uint64_t total_bytes = arena_bytes + 2 * s->margin_bytes;
    if (total_bytes >= arena_bytes && total_bytes <= SIZE_MAX)
        s->block = new_block(s, align, total_bytes);
    if (s->block == NULL)
        return ul_error(s, UL_EXIT_NO_FIT,
                        "the model runs in one buffer of %" PRIu64
                        " bytes, and this machine does not give it",
                        arena_bytes);
    s->arena = s->block + s->margin_bytes;
    return UL_EXIT_OK;
}

int ul_session_open(struct ul_session *s, uint64_t margin_bytes)
{
    const struct ul_model *model = s->model;
    int status = open_arena(s, margin_bytes);
    if (status == UL_EXIT_OK)
        status = open_buffers(s, model->inputs, model->input_count, &s->inputs);
    if (status == UL_EXIT_OK)
        status = open_buffers(s, model->outputs, model->output_count, &s->outputs);
    if (status == UL_EXIT_OK)
        status = load(s);
    return status;
}

void ul_session_close(struct ul_session *s)
{
    for (uint32_t i = 0; s->inputs != NULL && i < s->model->input_count; i++)
        free(s->inputs[i]);
    for (uint32_t i = 0; s->outputs != NULL && i < s->model->output_count; i++)
        free(s->outputs[i]);
    free(s->inputs);
    free(s->outputs);
    unload(s);
    if (s->mapped_bytes != 0)
        munmap(s->block, (size_t)s->mapped_bytes);
    else
        free(s->block);
    s->inputs = NULL;
    s->outputs = NULL;
    s->block = NULL;
}

void *ul_session_input(const struct ul_session *s, uint32_t index)
{
    const struct ul_tensor *tensor = &s->model->inputs[index];
    return tensor->space == UL_SPACE_ARENA ? s->arena + tensor->offset_bytes : s->inputs[index];
}

void *ul_session_output(const struct ul_session *s, uint32_t index)
{
    const struct ul_tensor *tensor = &s->model->outputs[index];
    return tensor->space == UL_SPACE_ARENA ? s->arena + tensor->offset_bytes : s->outputs[index];
}

/* Says which value of the data was out of bounds. */
static int report_fault(const struct ul_session *s, const struct ul_failure *failure)
{
    char shown[UL_SHOWN_BYTES];
    if (failure->node != NULL)
        ul_shown(shown, failure->node);
    else
        snprintf(shown, sizeof shown, "number %" PRIu32, failure->step);
    if (failure->fault == UL_FAULT_COUNT)
        return ul_error(s, UL_EXIT_INVALID,
                        "step %s met the count %" PRId64 ", planned are at most %" PRId64
                        "; it was clamped, the outputs are those of the clamped value",
                        shown, failure->fault_value, failure->fault_limit);
    return ul_error(s, UL_EXIT_INVALID,
                    "step %s met the index %" PRId64 ", valid are %" PRId64 " to %" PRId64
                    "; it was clamped, the outputs are those of the clamped index",
                    shown, failure->fault_value, -failure->fault_limit, failure->fault_limit - 1);
}

int ul_session_run(struct ul_session *s, ul_step_hook *hook, void *context)
{
    struct ul_failure failure;
    enum ul_mode mode = s->options->mode;
    /* NULL for what lives in the arena: it is in place already. */
    enum ul_result result =
        ul_run_once_with(s->model, s->arena, s->options->threads, (const void *const *)s->inputs,
                         (void *const *)s->outputs, hook, context, &failure);
    if (result == UL_OK)
        return UL_EXIT_OK;
    if (result != UL_DATA_FAULT)
        return ul_error(s, UL_EXIT_INTERNAL, "%s", ul_result_text(result));
    s->fault_count++;
    if (mode == UL_MODE_BENCH || mode == UL_MODE_MEMORY || mode == UL_MODE_GUARD)
        return UL_EXIT_OK;
    return report_fault(s, &failure);
}
