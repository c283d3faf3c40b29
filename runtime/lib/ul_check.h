/* SPDX-License-Identifier: 0BSD */
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

/* What the caller is told of a fault that was noted. */
static inline enum ul_fault ul_check_fault(enum ul_fault fault, int64_t value, int64_t limit)
{
    return value == UL_NO_BRANCH_INDEX && limit == 1 ? UL_FAULT_BRANCH : fault;
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

static inline enum ul_result ul_check_tensor(struct ul_failure *failure, enum ul_result result,
                                             uint32_t number, uint64_t size_bytes)
{
    failure->tensor = number;
    return ul_check_fail(failure, result, size_bytes, 0);
}

/* Buffers that live with the caller (--io caller) cannot be NULL; where an output overwrites an
   input, both are one. */
static inline enum ul_result ul_check_buffers(const struct ul_model *model,
                                              const struct ul_entry *entry,
                                              const void *const *inputs, void *const *outputs,
                                              struct ul_failure *failure)
{
    for (uint32_t k = 0; k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        const struct ul_rt_tensor *input = &model->inputs[i];
        if (!ul_is_callers(input->space))
            continue;
        if (inputs == NULL || inputs[i] == NULL)
            return ul_check_tensor(failure, UL_INPUT_MISSING, i, input->size_bytes);
        if (input->donated != 0 && outputs != NULL && outputs[input->donated - 1] != NULL &&
            outputs[input->donated - 1] != inputs[i])
            return ul_check_tensor(failure, UL_BUFFERS_APART, i, input->size_bytes);
    }
    for (uint32_t k = 0; k < entry->output_count; k++) {
        uint32_t i = entry->outputs[k];
        if (ul_is_callers(model->outputs[i].space) && (outputs == NULL || outputs[i] == NULL))
            return ul_check_tensor(failure, UL_OUTPUT_MISSING, i, model->outputs[i].size_bytes);
    }
    return UL_OK;
}

#endif
