/* SPDX-License-Identifier: 0BSD */
/*
 * How the host enters a model that trains on a device, and reaches what training changes there, as
 * ul_train.h does in an arena. `place` is the context. Failures: see enum ul_result. */
#ifndef UL_TRAIN_DEVICE_H
#define UL_TRAIN_DEVICE_H

#include "ul_device.h"
#include "ul_offload.h"
#include "ul_train.h"

static inline enum ul_result ul_train_device_enter(const struct ul_model *model, uint32_t entry,
                                                   void *place, const void *const *inputs,
                                                   void *const *outputs, struct ul_failure *failure)
{
    return model->device->functions->run((struct ul_context *)place, entry, inputs, outputs, NULL,
                                         NULL, failure);
}

static inline enum ul_result ul_train_device_reach(const struct ul_model *model, void *place,
                                                   enum ul_direction direction, enum ul_space space,
                                                   uint64_t offset_bytes, void *bytes,
                                                   uint64_t size_bytes, struct ul_failure *failure)
{
    const struct ul_device_functions *functions = model->device->functions;
    struct ul_context *context = (struct ul_context *)place;
    struct ul_offload memory;
    if (space != UL_SPACE_OFFLOAD && direction == UL_OFFLOAD_LOAD)
        return functions->read(context, (int64_t)offset_bytes, bytes, size_bytes, failure);
    if (space != UL_SPACE_OFFLOAD)
        return functions->write(context, (int64_t)offset_bytes, bytes, size_bytes, failure);
    unsigned char *beside = functions->offload(context);
    if (beside == NULL)
        return ul_fail(failure, UL_OFFLOAD_FAILED, size_bytes, 0);
    ul_offload_memory(&memory, beside, model->offload_bytes);
    if (ul_offload_move(&memory, direction, offset_bytes, bytes, size_bytes) != 0)
        return ul_fail(failure, UL_OFFLOAD_FAILED, size_bytes, 0);
    return UL_OK;
}

#endif
