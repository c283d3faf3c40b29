/*
 * What set-up and runs check on every target: the trailer of a weights file, a caller's buffers.
 * Failures: see enum ul_result; the caller owns everything. C99, and C++ for target cuda.
 */
#ifndef UL_CHECK_H
#define UL_CHECK_H

#include "ul_hash.h"
#include "ul_model.h"

#include <string.h>

static inline enum ul_result ul_check_fail(struct ul_failure *failure, enum ul_result result,
                                           uint64_t needed_bytes, uint64_t available_bytes)
{
    failure->result = result;
    failure->needed_bytes = needed_bytes;
    failure->available_bytes = available_bytes;
    return result;
}

static inline int ul_check_read(const struct ul_weights_source *source, uint64_t offset_bytes,
                                void *target, uint64_t size_bytes)
{
    if (source->memory == NULL)
        return source->read(source->context, offset_bytes, target, size_bytes);
    memcpy(target, (const unsigned char *)source->memory + offset_bytes, (size_t)size_bytes);
    return 0;
}

/* Checks the trailer against the model and finds the payload. */
static inline enum ul_result ul_check_payload(const struct ul_model *model,
                                              const struct ul_weights_source *source,
                                              uint64_t *payload_offset, struct ul_failure *failure)
{
    unsigned char trailer[UL_TRAILER_BYTES];
    if (source == NULL || (source->memory == NULL && source->read == NULL))
        return ul_check_fail(failure, UL_WEIGHTS_MISSING, model->payload_bytes, 0);
    uint64_t size = source->size_bytes;
    if (size < UL_TRAILER_BYTES)
        return ul_check_fail(failure, UL_WEIGHTS_INVALID, UL_TRAILER_BYTES, size);
    if (ul_check_read(source, size - UL_TRAILER_BYTES, trailer, UL_TRAILER_BYTES) != 0)
        return ul_check_fail(failure, UL_WEIGHTS_UNREADABLE, UL_TRAILER_BYTES, 0);
    uint64_t version_and_size = UL_TRAILER_VERSION | (uint64_t)UL_TRAILER_BYTES << 32;
    if (memcmp(trailer, UL_TRAILER_MAGIC, 8) != 0 || ul_hash_word(trailer + 8) != version_and_size)
        return ul_check_fail(failure, UL_WEIGHTS_INVALID, 0, 0);
    uint64_t stored = ul_hash_word(trailer + 16);
    if (stored != model->payload_bytes || stored > size - UL_TRAILER_BYTES)
        return ul_check_fail(failure, UL_WEIGHTS_WRONG_SIZE, model->payload_bytes,
                             stored == model->payload_bytes ? size - UL_TRAILER_BYTES : stored);
    if (ul_hash_word(trailer + 24) != model->payload_hash)
        return ul_check_fail(failure, UL_WEIGHTS_WRONG_HASH, 0, 0);
    *payload_offset = size - UL_TRAILER_BYTES - stored;
    return UL_OK;
}

/* Buffers that live with the caller (--io caller) cannot be NULL. */
static inline enum ul_result ul_check_buffers(const struct ul_model *model,
                                              const void *const *inputs, void *const *outputs,
                                              struct ul_failure *failure)
{
    for (uint32_t i = 0; i < model->input_count; i++)
        if (model->inputs[i].space != UL_SPACE_ARENA && (inputs == NULL || inputs[i] == NULL)) {
            failure->tensor = i;
            return ul_check_fail(failure, UL_INPUT_MISSING, model->inputs[i].size_bytes, 0);
        }
    for (uint32_t i = 0; i < model->output_count; i++)
        if (model->outputs[i].space != UL_SPACE_ARENA && (outputs == NULL || outputs[i] == NULL)) {
            failure->tensor = i;
            return ul_check_fail(failure, UL_OUTPUT_MISSING, model->outputs[i].size_bytes, 0);
        }
    return UL_OK;
}

#endif
