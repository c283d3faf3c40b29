/* SPDX-License-Identifier: 0BSD */
/*
 * The arena, the weights in it, and the inputs and outputs. This is where a program gets all the
 * memory that it will ever use: the arena with one call, and stand-ins for a caller's buffers when
 * the model was compiled with --io caller.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "ul_internal.h"

#include "ul_call.h"
#include "ul_offload.h"
#include "ul_run.h"
#include "ul_weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* What libraries keep after that counts as their bytes. */
static void release(struct ul_session *s)
{
    uint64_t library_bytes = 0;
    for (uint32_t i = 0; i < s->model->library_count; i++)
        library_bytes += s->model->libraries[i].heap_bytes(&s->model->libraries[i], s->arena);
    uint64_t before_bytes = ul_pages_resident().anonymous_bytes;
    ul_pages_release();
    uint64_t after_bytes = ul_pages_resident().anonymous_bytes;
    uint64_t freed_bytes = before_bytes > after_bytes ? before_bytes - after_bytes : 0;
    library_bytes -= freed_bytes < library_bytes ? freed_bytes : library_bytes;
    if (library_bytes > s->library_bytes)
        s->library_bytes = library_bytes;
}

/* While the model's libraries make primitives, no more of their code stays resident than the plan
 * has bytes for. `libraries` are the model's, with that set, while they are made. */
static void bound_libraries(struct ul_model *model, struct ul_library *libraries)
{
    for (uint32_t i = 0; i < model->library_count; i++) {
        libraries[i] = model->libraries[i];
        libraries[i].made = ul_pages_bound;
        ul_pages_bound(&libraries[i]); /* what the loader read of it */
    }
    model->libraries = libraries;
}

static bool begin_init(struct ul_session *s, uint32_t threads, struct ul_failure *failure)
{
    struct ul_library libraries[UL_LIBRARY_LIMIT];
    struct ul_model model = *s->model;
    bound_libraries(&model, libraries);
    return ul_run_begin_init(&model, s->arena, (size_t)model.arena_bytes, threads, failure) ==
           UL_OK;
}

static bool end_init(struct ul_session *s, uint32_t threads, const struct ul_weights_source *source,
                     struct ul_failure *failure)
{
    struct ul_library libraries[UL_LIBRARY_LIMIT];
    struct ul_model model = *s->model;
    bound_libraries(&model, libraries);
    return ul_run_end_init(&model, s->arena, threads, source, failure) == UL_OK;
}

/* Gives back what only the making of primitives needed before the weights come, and what only
   loading these needed before the model runs. */
static bool make_ready(struct ul_session *s, const struct ul_weights_source *source,
                       struct ul_failure *failure)
{
    const struct ul_model *model = s->model;
    uint32_t threads = s->options->threads;
    if (model->device != NULL)
        return model->device->functions->load(s->context, source, failure) == UL_OK;
    if (!begin_init(s, threads, failure))
        return false;
    if (ul_offload_attach(model, s->arena, ul_store_offload(s), failure) != UL_OK) {
        ul_run_done(model, s->arena);
        return false;
    }
    if (model->library_count != 0)
        release(s);
    bool good = end_init(s, threads, source, failure);
    ul_pages_release();
    return good;
}

static int load(struct ul_session *s)
{
    struct ul_weights_file file;
    struct ul_failure failure;
    const struct ul_model *model = s->model;
    bool stored = model->payload_bytes != 0;
    file.pages = s->mapped_bytes != 0;
    int status = stored ? ul_weights_open(s, &file) : UL_EXIT_OK;
    if (status != UL_EXIT_OK)
        return status;
    s->ready = make_ready(s, stored ? &file.source : NULL, &failure);
    if (!s->ready && failure.result == UL_OFFLOAD_FAILED)
        status = ul_store_report(s);
    else if (!s->ready)
        status = ul_report_failure(s, stored ? &file : NULL, &failure);
    if (stored)
        ul_weights_close(&file);
    return status;
}

static void unload(struct ul_session *s)
{
    if (s->ready && s->model->device == NULL)
        ul_run_done(s->model, s->arena);
    s->ready = false;
}

int ul_session_reload(struct ul_session *s, unsigned char fill)
{
    uint64_t size_bytes = s->model->arena_bytes + 2 * s->margin_bytes;
    int status = UL_EXIT_OK;
    unload(s);
    if (s->model->device != NULL)
        status = ul_session_device_fill(s, -(int64_t)s->margin_bytes, fill, size_bytes);
    else
        memset(s->block, fill, (size_t)size_bytes);
    return status == UL_EXIT_OK ? load(s) : status;
}

int ul_session_renew(struct ul_session *s)
{
    bool changes = false;
    for (uint32_t i = 0; i < s->model->output_count; i++)
        changes = changes || s->model->outputs[i].donated == UL_DONATED_WEIGHT;
    return changes ? ul_session_reload(s, 0) : UL_EXIT_OK;
}

/* Whether somebody reads or writes down what a run leaves; otherwise offloaded outputs stay where
 * they are. */
static bool shows_outputs(const struct ul_session *s)
{
    return s->options->mode == UL_MODE_RUN || s->options->mode == UL_MODE_TEST_DATA;
}

/* Makes buffers for the tensors that are not in the arena; `shared`, unless NULL, are the buffers
   of the inputs: an output that overwrites an input is in its buffer. */
static int open_buffers(const struct ul_session *s, const struct ul_rt_tensor *tensors,
                        uint32_t count, void **shared, void ***buffers)
{
    *buffers = calloc(count + 1, sizeof **buffers);
    if (*buffers == NULL)
        return ul_out_of_memory(s, (count + 1) * sizeof **buffers);
    for (uint32_t i = 0; i < count; i++) {
        bool stays = tensors[i].space == UL_SPACE_OFFLOAD && !shows_outputs(s);
        if (tensors[i].space == UL_SPACE_ARENA || stays)
            continue;
        if (shared != NULL && tensors[i].donated != 0 && ul_is_callers(tensors[i].space)) {
            (*buffers)[i] = shared[tensors[i].donated - 1];
            continue;
        }
        if (posix_memalign(&(*buffers)[i], 64, (size_t)tensors[i].size_bytes + 1) != 0) {
            (*buffers)[i] = NULL;
            return ul_out_of_memory(s, tensors[i].size_bytes);
        }
        memset((*buffers)[i], 0, (size_t)tensors[i].size_bytes);
    }
    return UL_EXIT_OK;
}

/* Large blocks have pages of their own, whose place weights of the file may take. For the rest
   large pages are asked for: a network walks through all of it, and looking up small pages takes
   some per cent of its time. */
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
    char size[UL_SIZE_TEXT_BYTES];
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
                        "the model runs in one buffer of %s, and this machine does not give it",
                        ul_size_text(size, arena_bytes));
    s->arena = s->block + s->margin_bytes;
    return UL_EXIT_OK;
}

static int open_on_host(struct ul_session *s, uint64_t margin_bytes)
{
    const struct ul_model *model = s->model;
    int status = open_arena(s, margin_bytes);
    if (status == UL_EXIT_OK)
        status = ul_store_open(s);
    if (status == UL_EXIT_OK)
        status = open_buffers(s, model->inputs, model->input_count, NULL, &s->inputs);
    if (status == UL_EXIT_OK)
        status = open_buffers(s, model->outputs, model->output_count, s->inputs, &s->outputs);
    return status;
}

int ul_session_open(struct ul_session *s, uint64_t margin_bytes)
{
    int status = s->model->device != NULL ? ul_session_device_open(s, margin_bytes)
                                          : open_on_host(s, margin_bytes);
    return status == UL_EXIT_OK ? load(s) : status;
}

static void close_on_host(struct ul_session *s)
{
    for (uint32_t i = 0; s->inputs != NULL && i < s->model->input_count; i++)
        free(s->inputs[i]);
    for (uint32_t i = 0; s->outputs != NULL && i < s->model->output_count; i++)
        if (s->model->outputs[i].donated == 0 || !ul_is_callers(s->model->outputs[i].space))
            free(s->outputs[i]);
    free(s->inputs);
    free(s->outputs);
    if (s->ready && s->model->library_count != 0)
        ul_pages_release(); /* the arena is still there while libraries' code gives back */
    unload(s);
    ul_store_close(s);
    if (s->mapped_bytes != 0)
        munmap(s->block, (size_t)s->mapped_bytes);
    else
        free(s->block);
    s->inputs = NULL;
    s->outputs = NULL;
    s->block = NULL;
}

void ul_session_close(struct ul_session *s)
{
    if (s->model->device != NULL)
        ul_session_device_close(s);
    else
        close_on_host(s);
}

/* Whether the host has a tensor in its place in the arena. */
static bool is_in_arena(const struct ul_session *s, const struct ul_rt_tensor *tensor)
{
    return s->model->device == NULL && tensor->space == UL_SPACE_ARENA;
}

void *ul_session_input(const struct ul_session *s, uint32_t index)
{
    const struct ul_rt_tensor *tensor = &s->model->inputs[index];
    return is_in_arena(s, tensor) ? s->arena + tensor->offset_bytes : s->inputs[index];
}

void *ul_session_output(const struct ul_session *s, uint32_t index)
{
    const struct ul_rt_tensor *tensor = &s->model->outputs[index];
    return is_in_arena(s, tensor) ? s->arena + tensor->offset_bytes : s->outputs[index];
}

bool ul_session_has_state(const struct ul_session *s)
{
    for (uint32_t i = 0; i < s->model->output_count; i++)
        if (s->model->outputs[i].donated != 0)
            return true;
    return false;
}

/* On the host they are where the model has them: in the arena, or in the one buffer. */
int ul_session_set_up(struct ul_session *s)
{
    return s->model->device != NULL && ul_session_has_state(s) ? ul_session_device_set_up(s)
                                                               : UL_EXIT_OK;
}

int ul_session_enter(struct ul_session *s, uint32_t entry, ul_step_hook *hook, void *context)
{
    struct ul_failure failure;
    enum ul_mode mode = s->options->mode;
    enum ul_result result;
    if (s->model->device != NULL)
        result = ul_session_device_run(s, entry, hook, context, &failure);
    else /* NULL for what is in the arena: it is in place already. */
        result = ul_run_entry(s->model, entry, s->arena, s->options->threads,
                              (const void *const *)s->inputs, (void *const *)s->outputs, hook,
                              context, &failure);
    if (result == UL_OK)
        return UL_EXIT_OK;
    if (result == UL_OFFLOAD_FAILED)
        return ul_store_report(s);
    if (result != UL_DATA_FAULT && s->model->device != NULL)
        return ul_report_failure(s, NULL, &failure);
    if (result != UL_DATA_FAULT)
        return ul_error(s, UL_EXIT_INTERNAL, "%s", ul_result_text(result));
    s->fault_count++;
    if (mode == UL_MODE_BENCH || mode == UL_MODE_MEMORY || mode == UL_MODE_GUARD)
        return UL_EXIT_OK;
    return ul_report_fault(s, &failure);
}

int ul_session_run(struct ul_session *s, ul_step_hook *hook, void *context)
{
    return ul_session_enter(s, s->model->first_entry + UL_ENTRY_RUN, hook, context);
}
