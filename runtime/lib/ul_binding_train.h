/* SPDX-License-Identifier: 0BSD */
/* What a library of a model that trains does as well: checkpoints in the caller's memory,
 * parameters one by one. All else is as in ul_binding.h. */
#ifndef UL_BINDING_TRAIN_H
#define UL_BINDING_TRAIN_H

#include "ul_binding.h"
#include "ul_train.h"

/* The caller's memory as a file. */
struct ul_binding_file {
    unsigned char *bytes;
    uint64_t size_bytes;
};

static inline int ul_binding_file_has(const struct ul_binding_file *file, uint64_t offset_bytes,
                                      uint64_t size_bytes)
{
    return offset_bytes <= file->size_bytes && size_bytes <= file->size_bytes - offset_bytes;
}

static inline int ul_binding_write(void *context, uint64_t offset_bytes, const void *bytes,
                                   uint64_t size_bytes)
{
    const struct ul_binding_file *file = (const struct ul_binding_file *)context;
    if (!ul_binding_file_has(file, offset_bytes, size_bytes))
        return 1;
    memcpy(file->bytes + offset_bytes, bytes, (size_t)size_bytes);
    return 0;
}

static inline int ul_binding_fetch(void *context, uint64_t offset_bytes, void *target,
                                   uint64_t size_bytes)
{
    const struct ul_binding_file *file = (const struct ul_binding_file *)context;
    if (!ul_binding_file_has(file, offset_bytes, size_bytes))
        return 1;
    memcpy(target, file->bytes + offset_bytes, (size_t)size_bytes);
    return 0;
}

/* Writes what ul_train_save writes, to `bytes`. */
static inline enum ul_result ul_binding_save(const struct ul_model *model, void *handle,
                                             const struct ul_trainer *trainer, void *bytes,
                                             size_t size_bytes, struct ul_failure *failure)
{
    struct ul_binding_file file;
    file.bytes = (unsigned char *)bytes;
    file.size_bytes = bytes != NULL ? size_bytes : 0;
    return ul_train_save(model, handle, trainer, ul_binding_write, &file, failure);
}

static inline enum ul_result ul_binding_load(const struct ul_model *model, void *handle,
                                             struct ul_trainer *trainer, const void *bytes,
                                             size_t size_bytes, struct ul_failure *failure)
{
    struct ul_binding_file file;
    file.bytes = (unsigned char *)(uintptr_t)bytes; /* it is only read */
    file.size_bytes = bytes != NULL ? size_bytes : 0;
    return ul_train_load(model, handle, trainer, ul_binding_fetch, &file, failure);
}

/* Moves all of a parameter, between updates: from its place to `bytes`, or from there to its
 * place. */
static inline enum ul_result ul_binding_parameter(const struct ul_model *model, void *handle,
                                                  enum ul_direction direction, uint32_t number,
                                                  void *bytes, struct ul_failure *failure)
{
    struct ul_failure unused;
    if (failure == NULL)
        failure = &unused;
    memset(failure, 0, sizeof *failure);
    if (number >= model->training->parameter_count)
        return ul_fail(failure, UL_CHECKPOINT_OTHER, number, model->training->parameter_count);
    const struct ul_rt_parameter *parameter = &model->training->parameters[number];
    return ul_train_move(model, handle, direction, parameter, 0, bytes, parameter->size_bytes,
                         failure);
}

#endif
