/* SPDX-License-Identifier: 0BSD */
/*
 * A session whose model runs on a device. Inputs and outputs are buffers of the host, from which
 * and to which each run copies them; where the model was compiled with --io caller, device memory
 * beside the arena stands in for a caller's. */
#include "ul_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct ul_device_functions *functions_of(const struct ul_session *s)
{
    return s->model->device->functions;
}

/* Makes memory of the host for each tensor, and of the device where it is the caller's: where a
   tensor overwrites an input, the one in `shared`, unless NULL. */
static int open_buffers(const struct ul_session *s, const struct ul_rt_tensor *tensors,
                        uint32_t count, void **shared, void ***buffers, void ***places)
{
    const struct ul_device_functions *functions = functions_of(s);
    *buffers = calloc(count + 1, sizeof **buffers);
    *places = calloc(count + 1, sizeof **places);
    if (*buffers == NULL || *places == NULL)
        return ul_out_of_memory(s, (count + 1) * sizeof **buffers);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t size_bytes = tensors[i].size_bytes;
        if (s->options->mode == UL_MODE_TRAIN && tensors[i].donated == UL_DONATED_WEIGHT)
            continue; /* parameters stay where they are */
        void *buffer = functions->new_host(s->context, size_bytes);
        if (buffer == NULL)
            return ul_out_of_memory(s, size_bytes);
        memset(buffer, 0, (size_t)size_bytes);
        (*buffers)[i] = (*places)[i] = buffer;
        if (!ul_is_callers(tensors[i].space))
            continue;
        if (shared != NULL && tensors[i].donated != 0) {
            (*places)[i] = shared[tensors[i].donated - 1];
            continue;
        }
        (*places)[i] = functions->new_buffer(s->context, size_bytes);
        if ((*places)[i] == NULL) {
            struct ul_failure failure = {0};
            struct ul_device_memory memory;
            functions->memory(s->context, &memory);
            failure.result = UL_DEVICE_FULL;
            failure.needed_bytes = size_bytes;
            failure.available_bytes = memory.free_bytes;
            return ul_report_failure(s, NULL, &failure);
        }
    }
    return UL_EXIT_OK;
}

static void close_buffers(const struct ul_session *s, const struct ul_rt_tensor *tensors,
                          uint32_t count, bool shares, void **buffers, void **places)
{
    const struct ul_device_functions *functions = functions_of(s);
    for (uint32_t i = 0; buffers != NULL && places != NULL && i < count; i++) {
        if (ul_is_callers(tensors[i].space) && !(shares && tensors[i].donated != 0))
            functions->free_buffer(s->context, places[i]);
        functions->free_host(s->context, buffers[i]);
    }
    free(buffers);
    free(places);
}

/* A missing file is not for the libraries to report. */
static int check_choices(const struct ul_session *s)
{
    struct ul_reader reader;
    if (s->options->tune != NULL && s->model->device->library_count == 0)
        fprintf(stderr, "%s: note: this program calls no library, so there is nothing to tune\n",
                s->program);
    if (s->options->choices == NULL)
        return UL_EXIT_OK;
    int status = ul_reader_open(s, &reader, s->options->choices);
    if (status == UL_EXIT_OK)
        ul_reader_close(&reader);
    return status;
}

/* Prints one line for each library that does not do what was planned. */
static void put_notes(const struct ul_session *s)
{
    char text[UL_DEVICE_TEXT_BYTES];
    for (uint32_t i = 0; i < s->model->device->library_count; i++)
        if (functions_of(s)->note(s->context, i, text))
            fprintf(stderr, "%s: note: %s\n", s->program, text);
}

static void put_apart_note(const struct ul_session *s)
{
    struct ul_device_memory memory;
    functions_of(s)->memory(s->context, &memory);
    if (memory.apart_count > 0)
        fprintf(stderr,
                "%s: note: %" PRIu64 " of the recurrent layers run as a launch for each step: the "
                "device, or the part of it that runs get, cannot hold all blocks of the layer at "
                "once\n",
                s->program, memory.apart_count);
}

int ul_session_device_open(struct ul_session *s, uint64_t margin_bytes)
{
    const struct ul_model *model = ul_sizes_model(s);
    enum ul_mode mode = s->options->mode;
    uint64_t align = model->arena_align;
    struct ul_device_request request = {0};
    struct ul_failure failure;
    s->margin_bytes = (margin_bytes + align - 1) / align * align;
    request.number = s->options->device;
    request.margin_bytes = s->margin_bytes;
    request.plain = /* one run is not worth it */
        mode == UL_MODE_GUARD || (mode == UL_MODE_RUN && s->options->repeat == 1);
    request.timed = mode == UL_MODE_BENCH;
    request.measured = mode == UL_MODE_MEMORY;
    request.tune = s->options->tune != NULL;
    request.choices = request.tune ? s->options->tune : s->options->choices;
    int status = check_choices(s);
    if (status != UL_EXIT_OK)
        return status;
    if (functions_of(s)->open(model, &request, &s->context, &failure) != UL_OK)
        return ul_report_failure(s, NULL, &failure);
    put_notes(s);
    status =
        open_buffers(s, model->inputs, model->input_count, NULL, &s->inputs, &s->device_inputs);
    if (status == UL_EXIT_OK)
        status = open_buffers(s, model->outputs, model->output_count, s->device_inputs, &s->outputs,
                              &s->device_outputs);
    return status;
}

void ul_session_device_close(struct ul_session *s)
{
    const struct ul_model *model = s->model;
    if (s->context != NULL)
        put_apart_note(s);
    close_buffers(s, model->outputs, model->output_count, true, s->outputs, s->device_outputs);
    close_buffers(s, model->inputs, model->input_count, false, s->inputs, s->device_inputs);
    s->inputs = s->device_inputs = NULL;
    s->outputs = s->device_outputs = NULL;
    functions_of(s)->close(s->context);
    s->context = NULL;
}

/* Sends what stands in for a caller's inputs what the host has for them: before the first run what
   goes on from run to run (`state`), before each run the others. */
static enum ul_result send(const struct ul_session *s, bool state, struct ul_failure *failure)
{
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; result == UL_OK && i < s->model->input_count; i++)
        if (s->device_inputs[i] != s->inputs[i] && (s->model->inputs[i].donated != 0) == state)
            result = functions_of(s)->copy(s->context, s->inputs[i], s->device_inputs[i],
                                           s->model->inputs[i].size_bytes, failure);
    return result;
}

static enum ul_result fetch(const struct ul_session *s, struct ul_failure *failure)
{
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; result == UL_OK && i < s->model->output_count; i++)
        if (s->device_outputs[i] != s->outputs[i])
            result = functions_of(s)->copy(s->context, s->device_outputs[i], s->outputs[i],
                                           s->model->outputs[i].size_bytes, failure);
    return result;
}

int ul_session_device_set_up(struct ul_session *s)
{
    struct ul_failure failure;
    enum ul_result result = send(s, true, &failure);
    if (result == UL_OK)
        result =
            functions_of(s)->run(s->context, UL_ENTRY_SET_UP, (const void *const *)s->device_inputs,
                                 NULL, NULL, NULL, &failure);
    return result == UL_OK ? UL_EXIT_OK : ul_report_failure(s, NULL, &failure);
}

enum ul_result ul_session_device_run(struct ul_session *s, uint32_t entry, ul_step_hook *hook,
                                     void *context, struct ul_failure *failure)
{
    struct ul_failure other;
    enum ul_result result = send(s, false, failure);
    if (result == UL_OK)
        result = functions_of(s)->run(s->context, entry, (const void *const *)s->device_inputs,
                                      (void *const *)s->device_outputs, hook, context, failure);
    if ((result == UL_OK || result == UL_DATA_FAULT) && fetch(s, &other) != UL_OK) {
        *failure = other;
        result = other.result;
    }
    return result;
}

int ul_session_device_profile(struct ul_session *s, double *step_seconds)
{
    struct ul_failure failure;
    enum ul_result result = send(s, false, &failure);
    if (result == UL_OK)
        result = functions_of(s)->run_steps(
            s->context, s->model->first_entry + UL_ENTRY_RUN, (const void *const *)s->device_inputs,
            (void *const *)s->device_outputs, step_seconds, &failure);
    return result == UL_OK || result == UL_DATA_FAULT ? UL_EXIT_OK
                                                      : ul_report_failure(s, NULL, &failure);
}

static int copy_output(const struct ul_session *s, uint32_t index, const void *from, void *to)
{
    struct ul_failure failure;
    if (from == to || functions_of(s)->copy(s->context, from, to,
                                            s->model->outputs[index].size_bytes, &failure) == UL_OK)
        return UL_EXIT_OK;
    return ul_report_failure(s, NULL, &failure);
}

int ul_session_device_fetch(const struct ul_session *s, uint32_t output)
{
    return copy_output(s, output, s->device_outputs[output], s->outputs[output]);
}

int ul_session_device_store(const struct ul_session *s, uint32_t output)
{
    return copy_output(s, output, s->outputs[output], s->device_outputs[output]);
}

int ul_session_device_read(const struct ul_session *s, int64_t offset_bytes, void *target,
                           uint64_t size_bytes)
{
    struct ul_failure failure;
    if (functions_of(s)->read(s->context, offset_bytes, target, size_bytes, &failure) == UL_OK)
        return UL_EXIT_OK;
    return ul_report_failure(s, NULL, &failure);
}

int ul_session_device_fill(const struct ul_session *s, int64_t offset_bytes, unsigned char value,
                           uint64_t size_bytes)
{
    struct ul_failure failure;
    if (functions_of(s)->fill(s->context, offset_bytes, value, size_bytes, &failure) == UL_OK)
        return UL_EXIT_OK;
    return ul_report_failure(s, NULL, &failure);
}

int ul_session_device_exchange(const struct ul_session *s, int64_t offset_bytes,
                               unsigned char pattern, uint64_t size_bytes)
{
    struct ul_failure failure;
    if (functions_of(s)->exchange(s->context, offset_bytes, pattern, size_bytes, &failure) == UL_OK)
        return UL_EXIT_OK;
    return ul_report_failure(s, NULL, &failure);
}
