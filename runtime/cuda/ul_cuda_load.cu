/* SPDX-License-Identifier: 0BSD */
/*
 * Weights and set-up. Weights pass through two halves of a small page-locked buffer: one is read
 * and hashed while the other is on its way. They are held nowhere else.
 */
#include "ul_cuda_internal.h"

#include <string.h>

#define STAGING_BYTES (UINT64_C(4) << 20) /* of a half */

/* Bytes on their way from the source to the arena. */
struct upload {
    struct ul_context *context;
    const struct ul_weights_source *source;
    struct ul_hash hash;
    unsigned char *halves[2];
    cudaEvent_t sent[2]; /* what was in a half has arrived */
    int half;
    uint64_t used_bytes; /* of the half */
    cudaError_t error;
};

static void upload_open(struct upload *upload)
{
    unsigned char *bytes = NULL;
    upload->error = cudaHostAlloc((void **)&bytes, 2 * STAGING_BYTES, cudaHostAllocDefault);
    upload->halves[0] = bytes;
    upload->halves[1] = bytes != NULL ? bytes + STAGING_BYTES : NULL;
    for (int i = 0; i < 2; i++)
        upload->error = ul_cuda_first(
            upload->error, cudaEventCreateWithFlags(&upload->sent[i], cudaEventDisableTiming));
}

static void upload_close(struct upload *upload)
{
    for (int i = 0; i < 2; i++)
        if (upload->sent[i] != NULL)
            (void)cudaEventDestroy(upload->sent[i]);
    if (upload->halves[0] != NULL)
        (void)cudaFreeHost(upload->halves[0]);
}

/* Turns to the other half when this one is full. */
static void upload_turn(struct upload *upload)
{
    cudaStream_t stream = upload->context->stream;
    upload->error =
        ul_cuda_first(upload->error, cudaEventRecord(upload->sent[upload->half], stream));
    upload->half = 1 - upload->half;
    upload->used_bytes = 0;
    upload->error = ul_cuda_first(upload->error, cudaEventSynchronize(upload->sent[upload->half]));
}

/* Hashes size_bytes of the source, and puts them into the arena where `target` is not NULL. */
static bool upload_section(struct upload *upload, uint64_t offset_bytes, unsigned char *target,
                           uint64_t size_bytes)
{
    while (size_bytes != 0 && upload->error == cudaSuccess) {
        if (upload->used_bytes == STAGING_BYTES)
            upload_turn(upload);
        uint64_t room_bytes = STAGING_BYTES - upload->used_bytes;
        uint64_t piece = size_bytes < room_bytes ? size_bytes : room_bytes;
        unsigned char *staged = upload->halves[upload->half] + upload->used_bytes;
        if (ul_weights_read(upload->source, offset_bytes, staged, piece) != 0)
            return false;
        ul_hash_add(&upload->hash, staged, piece);
        if (target != NULL) {
            upload->error = ul_cuda_first(
                upload->error,
                cudaMemcpyAsync(target, staged, piece, cudaMemcpyDefault, upload->context->stream));
            target += piece;
            upload->used_bytes += piece;
        }
        offset_bytes += piece;
        size_bytes -= piece;
    }
    return true;
}

static enum ul_result upload_sections(struct upload *upload, struct ul_failure *failure)
{
    const struct ul_model *model = upload->context->model;
    uint64_t begin = 0, at = 0; /* where the payload begins in the source; a place in the payload */
    enum ul_result result = ul_weights_find(model, upload->source, &begin, failure);
    if (result != UL_OK)
        return result;
    ul_hash_init(&upload->hash);
    for (uint32_t i = 0; i < model->section_count; i++) {
        const struct ul_section *section = &model->sections[i];
        unsigned char *place =
            section->space == UL_SPACE_OFFLOAD ? upload->context->offload : upload->context->arena;
        unsigned char *target = place + section->offset_bytes;
        uint64_t gap =
            ul_weights_gap(section->offset_bytes, section->size_bytes, section->pack != NULL, at);
        if (!upload_section(upload, begin + at, NULL, gap) ||
            !upload_section(upload, begin + at + gap, target, section->size_bytes))
            return ul_fail(failure, UL_WEIGHTS_UNREADABLE, section->size_bytes, 0);
        at += gap + section->size_bytes;
    }
    if (upload->error != cudaSuccess)
        return ul_cuda_fail(upload->context, failure, upload->error);
    if (ul_hash_get(&upload->hash) != model->payload_hash)
        return ul_fail(failure, UL_WEIGHTS_WRONG_HASH, 0, 0);
    return UL_OK;
}

static enum ul_result load_weights(struct ul_context *context,
                                   const struct ul_weights_source *source,
                                   struct ul_failure *failure)
{
    struct upload upload;
    memset(&upload, 0, sizeof upload);
    upload.context = context;
    upload.source = source;
    upload_open(&upload);
    enum ul_result result = upload.error == cudaSuccess
                                ? upload_sections(&upload, failure)
                                : ul_cuda_fail(context, failure, upload.error);
    cudaError_t error = cudaStreamSynchronize(context->stream);
    upload_close(&upload);
    return result == UL_OK && error != cudaSuccess ? ul_cuda_fail(context, failure, error) : result;
}

/* Fills memory of the host while no copy of it is under way. */
static void fill_offloaded(unsigned char *to, const struct ul_splat *splat)
{
    for (uint64_t i = 0; i < splat->element_count * splat->element_bytes; i++)
        to[i] = (unsigned char)(splat->value >> 8 * (i % splat->element_bytes) & 0xffu);
}

/* 0 until it is given. */
static void clear_kept(struct ul_cuda_run *run, const struct ul_model *model,
                       const struct ul_entry *entry)
{
    for (uint32_t i = 0; i < entry->input_count; i++) {
        const struct ul_rt_tensor *input = &model->inputs[entry->inputs[i]];
        ul_cuda_note(run, cudaMemsetAsync(run->arena + input->offset_bytes, 0, input->size_bytes,
                                          run->stream));
        run->is_behind = 0;
    }
}

/* What is not stored: weights that are all one number, and what set-up computes. */
static void set_up(struct ul_cuda_run *run)
{
    const struct ul_context *context = (const struct ul_context *)run->announce_context;
    const struct ul_model *model = context->model;
    struct ul_cuda_step at = {run, {&run->state->fault, NULL, 0, 0}};
    run->is_behind = 0;
    ul_cuda_note(run,
                 cudaMemsetAsync(&run->state->meeting, 0, sizeof run->state->meeting, run->stream));
    if (model->device->counter_bytes > 0)
        ul_cuda_note(run,
                     cudaMemsetAsync(run->counters, 0, model->device->counter_bytes, run->stream));
    for (uint32_t i = 0; i < model->splat_count; i++) {
        if (model->splats[i].space == UL_SPACE_OFFLOAD)
            fill_offloaded(run->offload + model->splats[i].offset_bytes, &model->splats[i]);
        else
            ul_cuda_fill_splat(&at, &model->splats[i]);
    }
    for (uint32_t e = 0; e < model->entry_count; e++)
        if (ul_is_set_up(model, e))
            clear_kept(run, ul_model_of_entry(model, e), &model->entries[e]);
    if (model->device->code->entries[UL_ENTRY_SET_UP] != NULL)
        model->device->code->entries[UL_ENTRY_SET_UP](run);
}

/* Whether all that a run reads and writes is in the arena. */
static bool is_in_arena(const struct ul_model *model)
{
    bool in_arena = true;
    for (uint32_t i = 0; i < model->input_count; i++)
        in_arena = in_arena && !ul_is_callers(model->inputs[i].space);
    for (uint32_t i = 0; i < model->output_count; i++)
        in_arena = in_arena && !ul_is_callers(model->outputs[i].space);
    return in_arena;
}

static uint32_t run_of(uint32_t root)
{
    return root * UL_ENTRIES_OF_ROOT + UL_ENTRY_RUN;
}

/* Whether a run is captured before the first one. */
static bool captures(const struct ul_context *context, uint32_t entry)
{
    return context->captured[entry].replays[0].exec == NULL && ul_cuda_captures(context, entry) &&
           is_in_arena(ul_model_of_entry(context->model, entry));
}

static enum ul_result load_parts(struct ul_context *context, const struct ul_weights_source *source,
                                 struct ul_failure *failure)
{
    const struct ul_model *model = context->model;
    enum ul_result result = UL_OK;
    for (uint32_t r = 0; result == UL_OK && r < ul_root_count(model); r++)
        if (captures(context, run_of(r)))
            result = ul_cuda_warm_up(context, run_of(r), failure);
    if (result == UL_OK && model->payload_bytes != 0)
        result = load_weights(context, source, failure);
    if (result == UL_OK) {
        uint64_t before = ul_cuda_free_bytes();
        struct ul_cuda_run run = ul_cuda_begin_run(context, context->stream);
        run.announce_context = context;
        ul_cuda_enqueue(context, &run, set_up);
        result = ul_cuda_finish(context, run.error, failure);
        context->memory.code_bytes += ul_cuda_less(before, ul_cuda_free_bytes());
    }
    for (uint32_t r = 0; result == UL_OK && r < ul_root_count(model); r++)
        if (captures(context, run_of(r)))
            (void)ul_cuda_find_replay(context, run_of(r), NULL, NULL);
    if (context->memory.run_count == 0)
        context->memory.ready_free_bytes = ul_cuda_free_bytes();
    return result;
}

enum ul_result ul_cuda_load_context(struct ul_context *context,
                                    const struct ul_weights_source *source,
                                    struct ul_failure *failure)
{
    int before = 0;
    memset(failure, 0, sizeof *failure);
    cudaError_t error = ul_cuda_enter(context, &before);
    if (error != cudaSuccess)
        return ul_cuda_fail(context, failure, error);
    enum ul_result result = load_parts(context, source, failure);
    ul_cuda_leave(context->device, before);
    return result;
}
