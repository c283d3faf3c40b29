/* SPDX-License-Identifier: 0BSD */
/*
 * What the generated model.c is made of besides its kernels: the functions behind <prefix>_init and
 * <prefix>_run, and what these check on every target. Parts that only some models have are reached
 * through struct ul_model: weights to load, a library of calls, values that are offloaded.
 *
 *     int model_init(void *arena, size_t bytes, const struct ul_weights_source *weights,
 *                    struct ul_failure *failure)
 *     {
 *         return ul_run_init(&model_model, arena, bytes, weights, failure);
 *     }
 *
 * Invariants: nothing is allocated but by a library (struct ul_library), nothing static is written;
 * all state is the arena and the caller's stack. A run always completes. Failures: see enum
 * ul_result. Pure C99, and C++ for target cuda.
 */
#ifndef UL_RUN_H
#define UL_RUN_H

#include "ul_model.h"

#include <string.h>

/* The instruction sets that this translation unit was compiled for. */
enum {
    UL_ISA_COMPILED = 0
#ifdef __SSE3__
                      | (int)UL_ISA_SSE3
#endif
#ifdef __SSSE3__
                      | (int)UL_ISA_SSSE3
#endif
#ifdef __SSE4_1__
                      | (int)UL_ISA_SSE41
#endif
#ifdef __SSE4_2__
                      | (int)UL_ISA_SSE42
#endif
#ifdef __POPCNT__
                      | (int)UL_ISA_POPCNT
#endif
#ifdef __AVX__
                      | (int)UL_ISA_AVX
#endif
#ifdef __AVX2__
                      | (int)UL_ISA_AVX2
#endif
#ifdef __FMA__
                      | (int)UL_ISA_FMA
#endif
#ifdef __BMI__
                      | (int)UL_ISA_BMI
#endif
#ifdef __BMI2__
                      | (int)UL_ISA_BMI2
#endif
#ifdef __AVX512F__
                      | (int)UL_ISA_AVX512F
#endif
#ifdef __AVX512VL__
                      | (int)UL_ISA_AVX512VL
#endif
#ifdef __AVX512BW__
                      | (int)UL_ISA_AVX512BW
#endif
#ifdef __AVX512DQ__
                      | (int)UL_ISA_AVX512DQ
#endif
#ifdef __AVX512CD__
                      | (int)UL_ISA_AVX512CD
#endif
#ifdef __AVX512VNNI__
                      | (int)UL_ISA_AVX512VNNI
#endif
#ifdef __AVX512BF16__
                      | (int)UL_ISA_AVX512BF16
#endif
#ifdef __AVX512VBMI__
                      | (int)UL_ISA_AVX512VBMI
#endif
#ifdef __AVX512VBMI2__
                      | (int)UL_ISA_AVX512VBMI2
#endif
#ifdef __AVX512IFMA__
                      | (int)UL_ISA_AVX512IFMA
#endif
#ifdef __AVX512BITALG__
                      | (int)UL_ISA_AVX512BITALG
#endif
#ifdef __AVX512VPOPCNTDQ__
                      | (int)UL_ISA_AVX512VPOPCNTDQ
#endif
};

/* Reverses the bytes of every element. */
static inline void ul_run_swap(unsigned char *bytes, uint64_t size_bytes, uint32_t element_bytes)
{
    for (uint64_t at = 0; at < size_bytes; at += element_bytes)
        for (uint32_t i = 0; i < element_bytes / 2; i++) {
            unsigned char low = bytes[at + i];
            bytes[at + i] = bytes[at + element_bytes - 1 - i];
            bytes[at + element_bytes - 1 - i] = low;
        }
}

static inline int ul_run_is_big_endian(void)
{
    const uint16_t one = 1;
    unsigned char low;
    memcpy(&low, &one, 1);
    return low == 0;
}

/* What the caller is told of a fault that was noted. */
static inline enum ul_fault ul_run_fault(enum ul_fault fault, int64_t value, int64_t limit)
{
    return value == UL_NO_BRANCH_INDEX && limit == 1 ? UL_FAULT_BRANCH : fault;
}

static inline enum ul_result ul_run_fail_tensor(struct ul_failure *failure, enum ul_result result,
                                                uint32_t number, uint64_t size_bytes)
{
    failure->tensor = number;
    return ul_fail(failure, result, size_bytes, 0);
}

/* Buffers that the caller keeps (--io caller) cannot be NULL; where an output overwrites an input,
   both are the same buffer. */
static inline enum ul_result ul_run_check_buffers(const struct ul_model *model,
                                                  const struct ul_entry *entry,
                                                  const void *const *inputs, void *const *outputs,
                                                  struct ul_failure *failure)
{
    for (uint32_t k = 0; k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        const struct ul_rt_tensor *input = &model->inputs[i];
        bool moves = model->places != NULL && model->layout->edge_slots[i] != UL_SLOT_NONE;
        if ((moves || ul_is_callers(input->space)) && (inputs == NULL || inputs[i] == NULL))
            return ul_run_fail_tensor(failure, UL_INPUT_MISSING, i, input->size_bytes);
        if (!ul_is_callers(input->space))
            continue;
        if (input->donated != 0 && outputs != NULL && outputs[input->donated - 1] != NULL &&
            outputs[input->donated - 1] != inputs[i])
            return ul_run_fail_tensor(failure, UL_BUFFERS_APART, i, input->size_bytes);
    }
    for (uint32_t k = 0; k < entry->output_count; k++) {
        uint32_t i = entry->outputs[k];
        if (ul_is_callers(model->outputs[i].space) && (outputs == NULL || outputs[i] == NULL))
            return ul_run_fail_tensor(failure, UL_OUTPUT_MISSING, i, model->outputs[i].size_bytes);
    }
    return UL_OK;
}

/* ---- an arena that consists of several memories, its banks ----
   All functions call the first one the arena; it holds a mark and the addresses of the others at a
   planned offset. Offsets continue from bank to bank. */

static const unsigned char ul_bank_mark[8] = {'u', 'l', 'b', 'a', 'n', 'k', 's', 1};

/* Where bank number `bank` lies. */
static inline unsigned char *ul_bank_of(const struct ul_model *model, const unsigned char *arena,
                                        uint32_t bank)
{
    unsigned char *place;
    if (bank == 0)
        return (unsigned char *)(uintptr_t)arena;
    memcpy(&place,
           arena + model->bank_state_offset_bytes + sizeof ul_bank_mark + (bank - 1) * sizeof place,
           sizeof place);
    return place;
}

/* Where an offset of the arena lies. */
static inline unsigned char *ul_at(const struct ul_model *model, const unsigned char *arena,
                                   uint64_t offset_bytes)
{
    uint32_t bank = model->bank_count;
    while (bank > 1 && (model->banks[bank - 1].size_bytes == 0 ||
                        offset_bytes < model->banks[bank - 1].begin_bytes))
        bank--;
    if (bank < 2)
        return (unsigned char *)(uintptr_t)arena + offset_bytes;
    return ul_bank_of(model, arena, bank - 1) + (offset_bytes - model->banks[bank - 1].begin_bytes);
}

/* Notes the addresses of the banks; NULL: they follow each other in one buffer. */
static inline void ul_banks_note(const struct ul_model *model, unsigned char *arena,
                                 void *const *banks)
{
    unsigned char *at = arena + model->bank_state_offset_bytes;
    if (model->bank_count == 0)
        return;
    memcpy(at, ul_bank_mark, sizeof ul_bank_mark);
    for (uint32_t b = 1; b < model->bank_count; b++) {
        unsigned char *place =
            banks != NULL ? (unsigned char *)banks[b] : arena + model->banks[b].begin_bytes;
        memcpy(at + sizeof ul_bank_mark + (b - 1) * sizeof place, &place, sizeof place);
    }
}

/* Whether they were noted. */
static inline bool ul_banks_are_noted(const struct ul_model *model, const unsigned char *arena)
{
    return model->bank_count == 0 ||
           memcmp(arena + model->bank_state_offset_bytes, ul_bank_mark, sizeof ul_bank_mark) == 0;
}

/* ---- runs ---- */

/* What set-up is to be given is 0 until then. */
static inline void ul_run_clear_kept(const struct ul_model *model, unsigned char *arena)
{
    for (uint32_t e = 0; e < model->entry_count; e++) {
        const struct ul_rt_tensor *inputs = ul_model_of_entry(model, e)->inputs;
        for (uint32_t k = 0; ul_is_set_up(model, e) && k < model->entries[e].input_count; k++) {
            const struct ul_rt_tensor *input = &inputs[model->entries[e].inputs[k]];
            memset(ul_at(model, arena, input->offset_bytes), 0, (size_t)input->size_bytes);
        }
    }
}

/* Hands to the caller that a transfer failed, or a data fault of `run`. */
static inline enum ul_result ul_run_finish(const struct ul_model *model, const struct ul_run *run,
                                           struct ul_failure *failure)
{
    if (run->offload_failed != 0)
        return ul_fail(failure, UL_OFFLOAD_FAILED, model->offload_bytes, 0);
    if (run->fault == UL_FAULT_NONE)
        return UL_OK;
    failure->result = UL_DATA_FAULT;
    failure->step = run->fault_step;
    failure->node = model->steps != NULL ? model->steps[run->fault_step].node : NULL;
    failure->fault = ul_run_fault(run->fault, run->fault_value, run->fault_limit);
    failure->fault_value = run->fault_value;
    failure->fault_limit = run->fault_limit;
    return UL_DATA_FAULT;
}

/* How many threads a run has that asks for `asked`, where 0 means as many as the model and its
   caller allow: the plan holds the scratch of thread_count threads and no more. */
static inline uint32_t ul_run_threads(const struct ul_model *model, uint32_t requested)
{
    uint32_t threads = requested;
    if (threads == 0 && model->thread_limit != NULL)
        threads = model->thread_limit();
    if (threads == 0 || threads > model->thread_count)
        threads = model->thread_count;
    return threads != 0 ? threads : 1;
}

/* Libraries have no state yet, whatever else fails: a run and the end of the arena look there.
   There is nothing to offload to either. */
static inline void ul_run_clear_state(const struct ul_model *model, void *arena, size_t bytes)
{
    const void *none = NULL;
    for (uint32_t i = 0; i < model->library_count; i++) {
        uint64_t offset_bytes = model->libraries[i].state_offset_bytes;
        if (arena != NULL && bytes >= offset_bytes + sizeof none)
            memcpy((unsigned char *)arena + offset_bytes, &none, sizeof none);
    }
    if (model->offload_bytes != 0 && arena != NULL &&
        bytes >= model->offload_state_offset_bytes + sizeof none)
        memcpy((unsigned char *)arena + model->offload_state_offset_bytes, &none, sizeof none);
    if (model->bank_count != 0 && arena != NULL &&
        bytes >= model->bank_state_offset_bytes + sizeof ul_bank_mark)
        memset((unsigned char *)arena + model->bank_state_offset_bytes, 0, sizeof ul_bank_mark);
}

/* Gives back what libraries made for an arena; its memory stays the caller's. */
static inline void ul_run_done(const struct ul_model *model, void *arena)
{
    for (uint32_t i = 0; i < model->library_count; i++)
        model->libraries[i].done(&model->libraries[i], arena);
}

/* Notes how large the arena is, for runs to come. */
static inline void ul_layout_note(const struct ul_model *model, unsigned char *arena,
                                  uint64_t bytes)
{
    if (model->layout != NULL)
        memcpy(arena + model->layout->state_offset_bytes, &bytes, sizeof bytes);
}

/* The first half of making `arena` ready for runs with `threads` threads (see ul_run_threads):
   checks it, has libraries make what they need. It touches nothing in the arena but the places of
   their states, and the place of the memory that values are offloaded to, which is attached after
   that. */
static inline enum ul_result ul_run_begin_init(const struct ul_model *model, void *arena,
                                               size_t bytes, uint32_t threads,
                                               struct ul_failure *failure)
{
    memset(failure, 0, sizeof *failure);
    ul_run_clear_state(model, arena, bytes);
    uint64_t needed_bytes = model->layout != NULL ? model->layout->least_bytes : model->arena_bytes;
    if (arena == NULL || bytes < needed_bytes)
        return ul_fail(failure, UL_ARENA_TOO_SMALL, needed_bytes, arena == NULL ? 0 : bytes);
    uint64_t address = (uint64_t)(uintptr_t)arena;
    if ((address & (model->arena_align - 1)) != 0)
        return ul_fail(failure, UL_ARENA_MISALIGNED, model->arena_align, address & (~address + 1));
    ul_banks_note(model, (unsigned char *)arena, NULL);
    ul_layout_note(model, (unsigned char *)arena, bytes);
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; i < model->library_count && result == UL_OK; i++) {
        const struct ul_library *library = &model->libraries[i];
        result = library->init(library, arena, ul_run_threads(model, threads), failure);
    }
    if (result != UL_OK)
        ul_run_done(model, arena);
    return result;
}

static inline enum ul_result ul_run_init_scaled(const struct ul_model *model, void *arena,
                                                struct ul_failure *failure)
{
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; i < model->library_count && result == UL_OK; i++) {
        const struct ul_library *library = &model->libraries[i];
        if (library->init_scaled != NULL)
            result = library->init_scaled(library, arena, failure);
    }
    return result;
}

/* The second half: loads the weights, has libraries make what needs them, starts the threads,
   late, since they wait busily at first, and runs the model's set-up. After a failure there is
   nothing to give back. */
static inline enum ul_result ul_run_end_init(const struct ul_model *model, void *arena,
                                             uint32_t threads,
                                             const struct ul_weights_source *source,
                                             struct ul_failure *failure)
{
    enum ul_result result = UL_OK;
    struct ul_run run;
    memset(&run, 0, sizeof run);
    run.threads = ul_run_threads(model, threads);
    if (model->offloading != NULL)
        run.offload = model->offloading->of(model, arena);
    if (model->offloading != NULL && run.offload == NULL)
        result = ul_fail(failure, UL_OFFLOAD_TOO_SMALL, model->offload_bytes, 0);
    if (result == UL_OK && model->load != NULL)
        result = model->load(model, source, (unsigned char *)arena, failure);
    if (result == UL_OK) {
        ul_run_clear_kept(model, (unsigned char *)arena);
        result = ul_run_init_scaled(model, arena, failure);
    }
    if (result == UL_OK) {
        if (model->start_threads != NULL && run.threads > 1)
            model->start_threads(run.threads);
        if (model->entries[UL_ENTRY_SET_UP].steps != NULL)
            model->entries[UL_ENTRY_SET_UP].steps((unsigned char *)arena, &run);
        result = ul_run_finish(model, &run, failure);
    }
    if (result != UL_OK)
        ul_run_done(model, arena);
    return result;
}

/* Both halves. Libraries go first: what they take while they make primitives, and give back, is
   not there at the same time as the weights. `offload`: NULL where nothing is offloaded. failure
   may be NULL. */
static inline enum ul_result ul_run_init_with(const struct ul_model *model, void *arena,
                                              size_t bytes, uint32_t threads,
                                              const struct ul_offload *offload,
                                              const struct ul_weights_source *source,
                                              struct ul_failure *failure)
{
    struct ul_failure unused;
    if (failure == NULL)
        failure = &unused;
    enum ul_result result = ul_run_begin_init(model, arena, bytes, threads, failure);
    if (result == UL_OK && model->offloading != NULL &&
        (result = model->offloading->attach(model, arena, offload, failure)) != UL_OK)
        ul_run_done(model, arena);
    if (result == UL_OK)
        result = ul_run_end_init(model, arena, threads, source, failure);
    return result;
}

static inline enum ul_result ul_run_init(const struct ul_model *model, void *arena, size_t bytes,
                                         const struct ul_weights_source *source,
                                         struct ul_failure *failure)
{
    return ul_run_init_with(model, arena, bytes, 0, NULL, source, failure);
}

/* The same for an arena with banks in separate buffers: `bytes` at `banks`, each aligned as the
   arena. The first is the arena from then on. */
static inline enum ul_result ul_run_init_banks(const struct ul_model *model, void *const *banks,
                                               const size_t *bytes,
                                               const struct ul_weights_source *source,
                                               struct ul_failure *failure)
{
    struct ul_failure unused;
    if (failure == NULL)
        failure = &unused;
    memset(failure, 0, sizeof *failure);
    ul_run_clear_state(model, banks[0], bytes[0]);
    for (uint32_t b = 0; b < model->bank_count; b++) {
        uint64_t address = (uint64_t)(uintptr_t)banks[b], needed_bytes = model->banks[b].size_bytes;
        failure->tensor = b;
        if (needed_bytes != 0 && (banks[b] == NULL || bytes[b] < needed_bytes))
            return ul_fail(failure, UL_ARENA_TOO_SMALL, needed_bytes,
                           banks[b] == NULL ? 0 : bytes[b]);
        if (needed_bytes != 0 && (address & (model->arena_align - 1)) != 0)
            return ul_fail(failure, UL_ARENA_MISALIGNED, model->arena_align,
                           address & (~address + 1));
    }
    failure->tensor = 0;
    ul_banks_note(model, (unsigned char *)banks[0], banks);
    return ul_run_end_init(model, banks[0], 0, source, failure);
}

/* False for an arena that nobody set up, or to which something else was written since. */
static inline int ul_run_is_set_up(const struct ul_model *model, const unsigned char *arena)
{
    static const unsigned char none[sizeof model->mark] = {0};
    if (!ul_banks_are_noted(model, arena))
        return false;
    return ul_run_is_big_endian() || memcmp(model->mark, none, sizeof none) == 0 ||
           memcmp(ul_at(model, arena, model->mark_offset_bytes), model->mark, sizeof none) == 0;
}

/* ---- sizes ---- */

static inline int ul_size_has(const struct ul_size *size, int64_t value)
{
    uint32_t v = 0;
    while (v < size->value_count && size->values[v] != value)
        v++;
    return size->value_count != 0
               ? v < size->value_count
               : value >= size->low && value <= size->high && (value - size->low) % size->step == 0;
}

/* Whether each size is in its range. */
static inline enum ul_result ul_sizes_check(const struct ul_model *model, const int64_t *sizes,
                                            struct ul_failure *failure)
{
    for (uint32_t s = 0; s < model->size_count; s++) {
        const struct ul_size *size = &model->sizes[s];
        if (sizes != NULL && ul_size_has(size, sizes[s]))
            continue;
        failure->tensor = s;
        failure->detail = size->name;
        failure->fault_value = sizes != NULL ? sizes[s] : 0;
        return failure->result = UL_SIZE_INVALID;
    }
    return UL_OK;
}

/* The number of a combination of sizes, counted from the smallest on; the last size's values run
   fastest. */
static inline uint32_t ul_sizes_point(const struct ul_model *model, const int64_t *sizes)
{
    uint32_t point = 0;
    for (uint32_t s = 0; s < model->size_count; s++) {
        const struct ul_size *size = &model->sizes[s];
        point = point * (uint32_t)((size->high - size->low) / size->step + 1) +
                (uint32_t)((sizes[s] - size->low) / size->step);
    }
    return point;
}

/* Puts dimensions from `dims` on into a tensor; returns what follows them. */
static inline const int64_t *ul_tensor_set_dims(struct ul_rt_tensor *tensor, const int64_t *dims)
{
    uint64_t before = 1, after = 1;
    for (uint32_t d = 0; d < tensor->rank; d++) {
        before *= (uint64_t)tensor->dims[d];
        after *= (uint64_t)dims[d];
    }
    if (before != 0)
        tensor->size_bytes = tensor->size_bytes / before * after;
    tensor->dims = tensor->rank != 0 ? dims : NULL;
    return dims + tensor->rank;
}

/* The offsets of slots for sizes, at the begin of `places`, which has room for slots and rows;
   returns the bytes of an arena for these sizes. */
static inline uint64_t ul_layout_place(const struct ul_model *model, const int64_t *sizes,
                                       uint64_t *places)
{
    const struct ul_layout *layout = model->layout;
    uint64_t *bytes = places + layout->slot_count, reserved = layout->floor_bytes;
    layout->bytes(sizes, bytes);
    for (uint32_t s = 0; s < layout->slot_count; s++)
        places[s] = layout->floor_bytes;
    for (uint32_t r = 0; r < layout->row_count; r++)
        bytes[r] = (bytes[r] + model->arena_align - 1) & ~(model->arena_align - 1);
    for (uint32_t p = 0; p < layout->pair_count; p++) {
        const struct ul_below *pair = &layout->pairs[p];
        uint64_t top = places[layout->row_slots[pair->row]] + bytes[pair->row];
        if (top > places[pair->slot])
            places[pair->slot] = top;
    }
    for (uint32_t r = 0; r < layout->row_count; r++)
        if (places[layout->row_slots[r]] + bytes[r] > reserved)
            reserved = places[layout->row_slots[r]] + bytes[r];
    return reserved;
}

/* The description of the piece of the range that has these sizes, which have been checked. */
static inline const struct ul_model *ul_sizes_piece(const struct ul_model *model,
                                                    const int64_t *sizes)
{
    for (uint32_t r = 0; r < model->root_count; r++) {
        const struct ul_model *piece = model->roots[r];
        uint32_t s = 0;
        while (s < piece->size_count && ul_size_has(&piece->sizes[s], sizes[s]))
            s++;
        if (s == piece->size_count)
            return piece;
    }
    return model;
}

/* The description of a model at other sizes, which have been checked: `tensors` has room for its
   inputs and outputs, `numbers` for edge_number_count numbers, `places` for the slots and rows of
   its layout, if it has one. All these must outlive *at. Tables stay those of the largest sizes. */
static inline void ul_model_at(const struct ul_model *model, const int64_t *sizes,
                               struct ul_rt_tensor *tensors, int64_t *numbers, uint64_t *places,
                               struct ul_model *at)
{
    const int64_t *dims = numbers;
    uint32_t count = model->input_count + model->output_count;
    model = ul_sizes_piece(model, sizes);
    *at = *model;
    model->size_numbers(sizes, numbers);
    for (uint32_t i = 0; i < count; i++) {
        tensors[i] =
            i < model->input_count ? model->inputs[i] : model->outputs[i - model->input_count];
        dims = ul_tensor_set_dims(&tensors[i], dims);
    }
    if (model->layout != NULL) {
        at->arena_bytes = ul_layout_place(model, sizes, places);
        at->places = places;
    }
    for (uint32_t i = 0; model->layout != NULL && i < count; i++)
        if (model->layout->edge_slots[i] != UL_SLOT_NONE)
            tensors[i].offset_bytes = places[model->layout->edge_slots[i]];
    at->inputs = tensors;
    at->outputs = tensors + model->input_count;
    at->at = sizes;
}

/* Whether the arena has room for the sizes of the model. */
static inline enum ul_result ul_layout_check(const struct ul_model *model,
                                             const unsigned char *arena, struct ul_failure *failure)
{
    uint64_t bytes;
    memcpy(&bytes, arena + model->layout->state_offset_bytes, sizeof bytes);
    return bytes >= model->arena_bytes
               ? UL_OK
               : ul_fail(failure, UL_ARENA_TOO_SMALL, model->arena_bytes, bytes);
}

/* Runs the entry point `number` with `threads` threads (see ul_run_threads). A NULL buffer of a
   tensor that is in the arena means that the caller puts the input there, or takes the output from
   there. inputs, outputs, hook and failure may be NULL. */
static inline enum ul_result ul_run_entry(const struct ul_model *model, uint32_t number,
                                          void *arena, uint32_t threads, const void *const *inputs,
                                          void *const *outputs, ul_step_hook *hook,
                                          void *hook_context, struct ul_failure *failure)
{
    const struct ul_entry *entry = &model->entries[number];
    struct ul_failure unused;
    struct ul_run run;
    unsigned char *bytes = (unsigned char *)arena;
    if (failure == NULL)
        failure = &unused;
    memset(failure, 0, sizeof *failure);
    enum ul_result result = ul_run_check_buffers(model, entry, inputs, outputs, failure);
    if (result != UL_OK)
        return result;
    bool is_nowhere = arena == NULL && model->arena_bytes != 0; /* after a set-up that failed */
    if (is_nowhere || !ul_run_is_set_up(model, bytes))
        return failure->result = UL_NOT_READY;
    for (uint32_t i = 0; i < model->library_count; i++) {
        const struct ul_library *library = &model->libraries[i];
        result = library->ready != NULL ? library->ready(library, arena, failure) : UL_OK;
        if (result != UL_OK)
            return result;
    }
    if (!ul_is_set_up(model, number)) { /* which has no steps, and no shape that varies */
        result = ul_sizes_check(model, model->at, failure);
        if (result == UL_OK && model->layout != NULL)
            result = ul_layout_check(model, bytes, failure);
        if (result != UL_OK)
            return result;
    }
    memset(&run, 0, sizeof run);
    run.places = model->places;
    run.sizes = model->at;
    run.size_point = model->at != NULL ? ul_sizes_point(model, model->at) : 0;
    run.inputs = inputs;
    run.outputs = outputs;
    run.hook = hook;
    run.hook_context = hook_context;
    run.threads = ul_run_threads(model, threads);
    if (model->offloading != NULL)
        run.offload = model->offloading->of(model, arena);
    if (model->offloading != NULL && run.offload == NULL)
        return ul_fail(failure, UL_NOT_READY, 0, 0);
    for (uint32_t k = 0; inputs != NULL && k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        const struct ul_rt_tensor *input = &model->inputs[i];
        if (input->space == UL_SPACE_ARENA && inputs[i] != NULL)
            memcpy(ul_at(model, bytes, input->offset_bytes), inputs[i], (size_t)input->size_bytes);
    }
    if (entry->steps != NULL)
        entry->steps(bytes, &run);
    if (run.offload != NULL)
        model->offloading->finish(&run);
    if (hook != NULL)
        hook(hook_context, entry->step_end);
    for (uint32_t k = 0; outputs != NULL && k < entry->output_count; k++) {
        uint32_t i = entry->outputs[k];
        const struct ul_rt_tensor *output = &model->outputs[i];
        if (output->space == UL_SPACE_ARENA && outputs[i] != NULL)
            memcpy(outputs[i], ul_at(model, bytes, output->offset_bytes),
                   (size_t)output->size_bytes);
        else if (output->space == UL_SPACE_OFFLOAD && outputs[i] != NULL &&
                 model->offloading->load(run.offload, output->offset_bytes, outputs[i],
                                         output->size_bytes) != 0)
            run.offload_failed = 1;
    }
    return ul_run_finish(model, &run, failure);
}

#endif
