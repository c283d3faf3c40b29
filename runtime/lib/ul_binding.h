/* SPDX-License-Identifier: 0BSD */
/*
 * What a library of a model does beside its runs, for callers in any language: one way to begin and
 * to end on every target, the weights that lie in the library, training's state by pointers. The
 * generated library.c alone includes it, and gives it the model's names.
 *
 * Invariants: nothing is allocated but by the target's own set-up, nothing static is written.
 * Ownership: the caller's, arena and all; weights and strings are the library's.
 * Failures: an enum ul_result, with the details in the caller's struct ul_failure, which may be
 * NULL. C99; on Linux library.c asks for madvise by _DEFAULT_SOURCE.
 */
#ifndef UL_BINDING_H
#define UL_BINDING_H

#include "ul_device.h"
#include "ul_failure.h"
#include "ul_isa.h"
#include "ul_model.h"
#include "ul_run.h"

#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

/* ---- the weights inside ---- */

/* The weights file as read-only data of the library; weights.S defines it. */
struct ul_inside {
    const unsigned char *begin, *end;
};

#define UL_INSIDE_WINDOW_BYTES 1048576u

/* Gives back pages of the library's file that were read: they are clean, and come again when
   somebody looks. So weights that went to their places are not resident twice. */
static inline void ul_binding_release(const unsigned char *begin, const unsigned char *end)
{
#if defined(__linux__) && defined(MADV_DONTNEED)
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)begin + page - 1) / page * page;
    uintptr_t last = (uintptr_t)end / page * page;
    if (first < last)
        (void)madvise((void *)first, last - first, MADV_DONTNEED);
#else
    (void)begin;
    (void)end;
#endif
}

/* The `read` of a weights source over them: behind it stays at most a window. */
static inline int ul_binding_read(void *context, uint64_t offset_bytes, void *target,
                                  uint64_t size_bytes)
{
    const struct ul_inside *inside = (const struct ul_inside *)context;
    uint64_t have_bytes = (uint64_t)(inside->end - inside->begin);
    uint64_t end_bytes = offset_bytes + size_bytes;
    if (offset_bytes > have_bytes || size_bytes > have_bytes - offset_bytes)
        return 1;
    memcpy(target, inside->begin + offset_bytes, (size_t)size_bytes);
    uint64_t window = offset_bytes / UL_INSIDE_WINDOW_BYTES;
    if (end_bytes / UL_INSIDE_WINDOW_BYTES != window || end_bytes == have_bytes)
        ul_binding_release(inside->begin + (window == 0 ? 0 : window - 1) * UL_INSIDE_WINDOW_BYTES,
                           inside->begin + end_bytes);
    return 0;
}

/* ---- begin and end ---- */

/* What is in front of the bytes that values are offloaded to: a struct ul_offload. */
#define UL_BINDING_HEAD_BYTES 64u

/* Of the memory that ul_binding_begin wants beside the arena; 0: none. */
static inline uint64_t ul_binding_offload_bytes(const struct ul_model *model)
{
    return model->offload_bytes != 0 && model->device == NULL
               ? model->offload_bytes + UL_BINDING_HEAD_BYTES
               : 0;
}

static inline enum ul_result ul_binding_begin_host(const struct ul_model *model, void *arena,
                                                   size_t arena_bytes, void *offload,
                                                   size_t offload_bytes,
                                                   const struct ul_weights_source *weights,
                                                   struct ul_failure *failure)
{
    struct ul_offload *head = NULL;
    uint64_t needed_bytes = ul_binding_offload_bytes(model);
    if (needed_bytes != 0) {
        if (offload == NULL || offload_bytes < needed_bytes)
            return ul_check_fail(failure, UL_OFFLOAD_TOO_SMALL, needed_bytes,
                                 offload == NULL ? 0 : offload_bytes);
        head = (struct ul_offload *)offload;
        ul_offload_memory(head, (unsigned char *)offload + UL_BINDING_HEAD_BYTES,
                          model->offload_bytes);
    }
    return ul_run_init_with(model, arena, arena_bytes, 0, head, weights, failure);
}

/* *handle is what the other functions take in place of the arena: the arena itself, or on a device
   a context. NULL where it fails. */
static inline enum ul_result ul_binding_begin(const struct ul_model *model, void **handle,
                                              void *arena, size_t arena_bytes, void *offload,
                                              size_t offload_bytes,
                                              const struct ul_weights_source *weights,
                                              struct ul_failure *failure)
{
    struct ul_failure unused;
    struct ul_context *context = NULL;
    const char *missing = ul_isa_missing(model->isa);
    if (failure == NULL)
        failure = &unused;
    memset(failure, 0, sizeof *failure);
    *handle = NULL;
    if (missing != NULL) {
        failure->detail = missing;
        return failure->result = UL_PROCESSOR_LACKS;
    }
    enum ul_result result;
    if (model->device != NULL)
        result = ul_device_open(model, &context, arena, arena_bytes, NULL, weights, failure);
    else
        result = ul_binding_begin_host(model, arena, arena_bytes, offload, offload_bytes, weights,
                                       failure);
    if (result == UL_OK)
        *handle = model->device != NULL ? (void *)context : arena;
    return result;
}

static inline void *ul_binding_stream(const struct ul_model *model, const void *handle)
{
    return model->device != NULL && handle != NULL
               ? model->device->functions->stream((const struct ul_context *)handle)
               : NULL;
}

static inline void ul_binding_end(const struct ul_model *model, void *handle)
{
    if (model->device != NULL)
        ul_device_close(model, (struct ul_context *)handle);
    else if (handle != NULL)
        ul_run_done(model, handle);
}

#endif
