/* SPDX-License-Identifier: 0BSD */
/*
 * Where a program puts values while its arena has no room for them: memory or storage that the
 * caller has, of MODEL_OFFLOAD_BYTES, behind two functions. Values move as the plan says: a
 * transfer begins at one step and is waited for at a later one, so that it may run beside what is
 * between.
 *
 *     step       3        4     5     6        7
 *     arena      save x   ...   ...   wait     y takes the place of x
 *     transfer     [----------------)
 *
 * Invariants: transfers of a run have numbers that rise, and are begun in that order; a wait for
 * one is a wait for all before it. Between two runs none is under way. What is at an offset stays
 * there until something is saved over it: optimizers' states may lie there from run to run.
 * Ownership: the caller's, for as long as the arena is in use; an arena has one of its own.
 * Failures: what `wait` returns, from then on; the run completes, and its results are none.
 * Pure C99.
 */
#ifndef UL_OFFLOAD_H
#define UL_OFFLOAD_H

#include "ul_model.h"

#include <string.h>

/* size_bytes between `bytes` of the arena and offset_bytes of what is offloaded to. */
struct ul_transfer {
    uint64_t number;
    enum ul_direction direction;
    unsigned char *bytes;
    uint64_t offset_bytes;
    uint64_t size_bytes;
};

#define UL_OFFLOAD_ALL UINT64_MAX

struct ul_offload {
    uint64_t size_bytes;
    void *context;
    /* Does it, or has someone do it: `bytes` is not touched by others until it is waited for. */
    void (*begin)(void *context, const struct ul_transfer *transfer);
    /* Until that transfer and all before it are done. 0; anything else where one has failed. */
    int (*wait)(void *context, uint64_t number);
};

/* ---- memory of the caller's ---- */

static inline void ul_offload_copy(void *context, const struct ul_transfer *transfer)
{
    unsigned char *there = (unsigned char *)context + transfer->offset_bytes;
    if (transfer->direction == UL_OFFLOAD_SAVE)
        memcpy(there, transfer->bytes, (size_t)transfer->size_bytes);
    else
        memcpy(transfer->bytes, there, (size_t)transfer->size_bytes);
}

static inline int ul_offload_copied(void *context, uint64_t number)
{
    (void)context;
    (void)number;
    return 0;
}

/* Offloads to size_bytes of `memory`, at once. */
static inline void ul_offload_memory(struct ul_offload *offload, void *memory, uint64_t size_bytes)
{
    offload->size_bytes = size_bytes;
    offload->context = memory;
    offload->begin = ul_offload_copy;
    offload->wait = ul_offload_copied;
}

/* ---- an arena's ---- */

/* What the arena was made ready with; NULL: nothing. */
static inline const struct ul_offload *ul_offload_of(const struct ul_model *model,
                                                     const void *arena)
{
    const struct ul_offload *offload = NULL;
    if (model->offload_bytes != 0)
        memcpy(&offload, (const unsigned char *)arena + model->offload_state_offset_bytes,
               sizeof offload);
    return offload;
}

/* For the arena from now on; NULL: nothing. The arena is at least arena_bytes. */
static inline enum ul_result ul_offload_attach(const struct ul_model *model, void *arena,
                                               const struct ul_offload *offload,
                                               struct ul_failure *failure)
{
    uint64_t available_bytes = offload != NULL ? offload->size_bytes : 0;
    if (model->offload_bytes == 0)
        return UL_OK;
    if (available_bytes < model->offload_bytes)
        return ul_fail(failure, UL_OFFLOAD_TOO_SMALL, model->offload_bytes, available_bytes);
    memcpy((unsigned char *)arena + model->offload_state_offset_bytes, &offload, sizeof offload);
    return UL_OK;
}

/* Moves it, and waits. 0 for success. */
static inline int ul_offload_move(const struct ul_offload *offload, enum ul_direction direction,
                                  uint64_t offset_bytes, void *bytes, uint64_t size_bytes)
{
    struct ul_transfer transfer;
    transfer.number = 0;
    transfer.direction = direction;
    transfer.bytes = (unsigned char *)bytes;
    transfer.offset_bytes = offset_bytes;
    transfer.size_bytes = size_bytes;
    offload->begin(offload->context, &transfer);
    return offload->wait(offload->context, UL_OFFLOAD_ALL);
}

static inline int ul_offload_save(const struct ul_offload *offload, uint64_t offset_bytes,
                                  void *bytes, uint64_t size_bytes)
{
    return ul_offload_move(offload, UL_OFFLOAD_SAVE, offset_bytes, bytes, size_bytes);
}

static inline int ul_offload_load(const struct ul_offload *offload, uint64_t offset_bytes,
                                  void *bytes, uint64_t size_bytes)
{
    return ul_offload_move(offload, UL_OFFLOAD_LOAD, offset_bytes, bytes, size_bytes);
}

/* ---- in a run ---- */

static inline void ul_offload_begin(struct ul_run *run, enum ul_direction direction,
                                    uint64_t number, uint64_t offset_bytes, unsigned char *bytes,
                                    uint64_t size_bytes)
{
    struct ul_transfer transfer;
    transfer.number = number;
    transfer.direction = direction;
    transfer.bytes = bytes;
    transfer.offset_bytes = offset_bytes;
    transfer.size_bytes = size_bytes;
    run->offload->begin(run->offload->context, &transfer);
}

static inline void ul_offload_wait(struct ul_run *run, uint64_t number)
{
    if (run->offload->wait(run->offload->context, number) != 0)
        run->offload_failed = 1;
}

static inline void ul_offload_finish(struct ul_run *run)
{
    ul_offload_wait(run, UL_OFFLOAD_ALL);
}

#endif
