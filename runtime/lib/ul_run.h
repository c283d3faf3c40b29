/* SPDX-License-Identifier: 0BSD */
/*
 * What the generated model.c is made of besides its kernels: the step marker, addresses in the
 * arena, and the two functions behind <prefix>_init and <prefix>_run. Only model.c includes it.
 *
 *     int model_init(void *arena, size_t bytes, const struct ul_weights_source *weights,
 *                    struct ul_failure *failure)
 *     {
 *         return ul_run_init(&model_model, arena, bytes, weights, failure);
 *     }
 *
 * Invariants: nothing is allocated but by a library (ul_library.h), nothing static is written; all
 * state is the arena and the caller's stack. A run always completes. Failures: see enum ul_result.
 * Pure C99.
 */
#ifndef UL_RUN_H
#define UL_RUN_H

#include "ul_check.h"
#include "ul_hash.h"
#include "ul_library.h"
#include "ul_model.h"
#include "ul_offload.h"
#include "ul_pack.h"

#ifdef _OPENMP
#include <omp.h>
#endif
#include <string.h>

/* Announces step `number` of a generated run function. */
#define UL_STEP(run, number)                                                                       \
    do {                                                                                           \
        (run)->step = (number);                                                                    \
        if ((run)->hook != NULL)                                                                   \
            (run)->hook((run)->hook_context, (number));                                            \
    } while (0)

/* The object of `type` at an offset of the arena, of a caller's input or of an output. */
#define UL_AT(type, arena, offset_bytes) ((type *)(void *)((arena) + (offset_bytes)))
#define UL_IN(type, run, number, offset_bytes)                                                     \
    ((const type *)(const void *)((const unsigned char *)(run)->inputs[number] + (offset_bytes)))
#define UL_OUT(type, run, number, offset_bytes)                                                    \
    ((type *)(void *)((unsigned char *)(run)->outputs[number] + (offset_bytes)))

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

/* Reads a section to its place in pieces that are hashed while they are in cache. */
static inline int ul_run_load_section(const struct ul_weights_source *source, uint64_t offset_bytes,
                                      unsigned char *target, uint64_t size_bytes,
                                      struct ul_hash *hash)
{
    const uint64_t piece_bytes = 262144;
    while (size_bytes != 0) {
        uint64_t piece = size_bytes < piece_bytes ? size_bytes : piece_bytes;
        if (ul_check_read(source, offset_bytes, target, piece) != 0)
            return 1;
        ul_hash_add(hash, target, (size_t)piece);
        offset_bytes += piece;
        target += piece;
        size_bytes -= piece;
    }
    return 0;
}

/* Reads a section to where it is offloaded to, through a little of the stack. */
static inline enum ul_result ul_run_offload_section(const struct ul_offload *offload,
                                                    const struct ul_weights_source *source,
                                                    uint64_t offset_bytes,
                                                    const struct ul_section *section,
                                                    struct ul_hash *hash)
{
    unsigned char staged[4096];
    for (uint64_t at = 0; at < section->size_bytes; at += sizeof staged) {
        uint64_t left = section->size_bytes - at;
        uint64_t piece = left < sizeof staged ? left : sizeof staged;
        if (ul_check_read(source, offset_bytes + at, staged, piece) != 0)
            return UL_WEIGHTS_UNREADABLE;
        ul_hash_add(hash, staged, (size_t)piece);
        if (ul_run_is_big_endian())
            ul_run_swap(staged, piece, section->element_bytes);
        if (ul_offload_move(offload, UL_OFFLOAD_SAVE, section->offset_bytes + at, staged, piece) !=
            0)
            return UL_OFFLOAD_FAILED;
    }
    return UL_OK;
}

/* Hands size_bytes of the source to the hash and, where there is one, to the packer: through a
   little of the stack, or straight from memory. */
static inline int ul_run_stream(const struct ul_weights_source *source, uint64_t offset_bytes,
                                uint64_t size_bytes, struct ul_hash *hash, struct ul_packer *packer)
{
    unsigned char staged[8192];
    while (size_bytes != 0) {
        uint64_t piece = size_bytes < sizeof staged ? size_bytes : sizeof staged;
        const unsigned char *bytes = staged;
        if (source->memory != NULL)
            bytes = (const unsigned char *)source->memory + offset_bytes;
        else if (source->read(source->context, offset_bytes, staged, piece) != 0)
            return 1;
        ul_hash_add(hash, bytes, (size_t)piece);
        if (packer != NULL)
            ul_packer_add(packer, bytes, piece / packer->element_bytes);
        offset_bytes += piece;
        size_bytes -= piece;
    }
    return 0;
}

/* A section that is packed as it comes. */
static inline int ul_run_pack_section(const struct ul_weights_source *source, uint64_t offset_bytes,
                                      unsigned char *target, const struct ul_section *section,
                                      struct ul_hash *hash)
{
    struct ul_packer packer;
    ul_packer_init(&packer, section->pack, target);
    return ul_run_stream(source, offset_bytes, section->size_bytes, hash, &packer);
}

/* Puts one section into place: packed, as the file's own pages, or copied. */
static inline int ul_run_place_section(const struct ul_weights_source *source,
                                       uint64_t offset_bytes, unsigned char *target,
                                       const struct ul_section *section, struct ul_hash *hash)
{
    uint64_t size_bytes = section->size_bytes;
    int failed;
    if (section->pack != NULL)
        failed = ul_run_pack_section(source, offset_bytes, target, section, hash);
    else if (source->memory == NULL && source->map != NULL && !ul_run_is_big_endian() &&
             size_bytes >= UL_PAGED_WEIGHT_BYTES &&
             source->map(source->context, offset_bytes, target, size_bytes) == 0)
        return ul_run_stream(source, offset_bytes, size_bytes, hash, NULL); /* but not to memory */
    else
        failed = ul_run_load_section(source, offset_bytes, target, size_bytes, hash);
    if (ul_run_is_big_endian() && (section->pack == NULL || section->pack->winograd == 0))
        ul_run_swap(target, section->pack != NULL ? section->pack->size_bytes : size_bytes,
                    section->element_bytes);
    return failed;
}

/* Every section goes straight to its place, in the layout that it has there: no second copy of the
 * weights exists. */
static inline enum ul_result ul_run_load_sections(const struct ul_model *model,
                                                  const struct ul_weights_source *source,
                                                  unsigned char *arena, struct ul_failure *failure)
{
    uint64_t begin = 0, at = 0; /* of the payload in the source; in the payload */
    struct ul_hash hash;
    enum ul_result result = ul_check_payload(model, source, &begin, failure);
    if (result != UL_OK)
        return result;
    ul_hash_init(&hash);
    for (uint32_t i = 0; i < model->section_count; i++) {
        const struct ul_section *section = &model->sections[i];
        uint64_t gap =
            ul_weights_gap(section->offset_bytes, section->size_bytes, section->pack != NULL, at);
        if (ul_run_stream(source, begin + at, gap, &hash, NULL) != 0)
            result = UL_WEIGHTS_UNREADABLE;
        else if (section->space == UL_SPACE_OFFLOAD)
            result = ul_run_offload_section(ul_offload_of(model, arena), source, begin + at + gap,
                                            section, &hash);
        else if (ul_run_place_section(source, begin + at + gap, arena + section->offset_bytes,
                                      section, &hash) != 0)
            result = UL_WEIGHTS_UNREADABLE;
        if (result != UL_OK)
            return ul_check_fail(failure, result, section->size_bytes, 0);
        at += gap + section->size_bytes;
    }
    if (ul_hash_get(&hash) != model->payload_hash)
        return ul_check_fail(failure, UL_WEIGHTS_WRONG_HASH, 0, 0);
    return UL_OK;
}

/* The first total_bytes of a splat, or all of them. */
static inline void ul_run_fill_splat(const struct ul_splat *splat, unsigned char *target,
                                     uint64_t total_bytes)
{
    unsigned char value[8];
    for (uint32_t k = 0; k < 8; k++)
        value[k] = (unsigned char)(splat->value >> 8 * k & 0xffu);
    if (ul_run_is_big_endian())
        ul_run_swap(value, splat->element_bytes, splat->element_bytes);
    uint64_t done_bytes = total_bytes != 0 ? splat->element_bytes : 0;
    memcpy(target, value, (size_t)done_bytes);
    while (done_bytes < total_bytes) { /* what is there doubles */
        uint64_t piece = total_bytes - done_bytes;
        if (piece > done_bytes)
            piece = done_bytes;
        if (piece > 65536) /* from cache: the first 64 KiB, whole elements */
            piece = 65536;
        memcpy(target + done_bytes, target, (size_t)piece);
        done_bytes += piece;
    }
}

static inline enum ul_result ul_run_fill_splats(const struct ul_model *model, unsigned char *arena,
                                                struct ul_failure *failure)
{
    unsigned char staged[1024]; /* whole elements */
    for (uint32_t i = 0; i < model->splat_count; i++) {
        const struct ul_splat *splat = &model->splats[i];
        uint64_t total_bytes = splat->element_count * splat->element_bytes;
        if (splat->space != UL_SPACE_OFFLOAD) {
            ul_run_fill_splat(splat, arena + splat->offset_bytes, total_bytes);
            continue;
        }
        ul_run_fill_splat(splat, staged, total_bytes < sizeof staged ? total_bytes : sizeof staged);
        for (uint64_t at = 0; at < total_bytes; at += sizeof staged) {
            uint64_t left = total_bytes - at;
            if (ul_offload_move(ul_offload_of(model, arena), UL_OFFLOAD_SAVE,
                                splat->offset_bytes + at, staged,
                                left < sizeof staged ? left : sizeof staged) != 0)
                return ul_check_fail(failure, UL_OFFLOAD_FAILED, total_bytes, at);
        }
    }
    return UL_OK;
}

/* What set-up takes is 0 until it is given. */
static inline void ul_run_clear_kept(const struct ul_model *model, unsigned char *arena)
{
    const struct ul_entry *entry = &model->entries[UL_ENTRY_SET_UP];
    for (uint32_t k = 0; k < entry->input_count; k++) {
        const struct ul_rt_tensor *input = &model->inputs[entry->inputs[k]];
        memset(arena + input->offset_bytes, 0, (size_t)input->size_bytes);
    }
}

/* Hands a data fault of `run` to the caller, or that a transfer failed. */
static inline enum ul_result ul_run_finish(const struct ul_model *model, const struct ul_run *run,
                                           struct ul_failure *failure)
{
    if (run->offload_failed != 0)
        return ul_check_fail(failure, UL_OFFLOAD_FAILED, model->offload_bytes, 0);
    if (run->fault == UL_FAULT_NONE)
        return UL_OK;
    failure->result = UL_DATA_FAULT;
    failure->step = run->fault_step;
    failure->node = model->steps != NULL ? model->steps[run->fault_step].node : NULL;
    failure->fault = ul_check_fault(run->fault, run->fault_value, run->fault_limit);
    failure->fault_value = run->fault_value;
    failure->fault_limit = run->fault_limit;
    return UL_DATA_FAULT;
}

/* The threads of a run that asks for `asked` of them, 0 for as many as the model and its caller
   allow: the plan holds the scratch of thread_count threads and no more. */
static inline uint32_t ul_run_threads(const struct ul_model *model, uint32_t requested)
{
    uint32_t threads = requested;
    if (threads == 0 && model->thread_limit != NULL)
        threads = model->thread_limit();
    if (threads == 0 || threads > model->thread_count)
        threads = model->thread_count;
    return threads != 0 ? threads : 1;
}

/* ul_model's thread_limit where model.c was compiled with OpenMP: OMP_NUM_THREADS, what the caller
   set by omp_set_num_threads, or the processors of this process; 1 inside of a parallel region,
   whose other threads have work of their own. */
#ifdef _OPENMP
static inline uint32_t ul_run_thread_limit(void)
{
    return omp_in_parallel() ? 1 : (uint32_t)omp_get_max_threads();
}

/* ul_model's start_threads: a team of OpenMP's lives on after its first region, stacks included. */
static inline void ul_run_start_threads(uint32_t threads)
{
#pragma omp parallel num_threads((int)threads)
    {
#pragma omp barrier
    }
}
#endif

/* No state of the library's yet, whatever else fails: a run and the end of the arena look there;
   nothing to offload to either. */
static inline void ul_run_clear_state(const struct ul_model *model, void *arena, size_t bytes)
{
    const void *none = NULL;
    if (model->library != NULL && arena != NULL &&
        bytes >= model->library->state_offset_bytes + sizeof none)
        memcpy((unsigned char *)arena + model->library->state_offset_bytes, &none, sizeof none);
    if (model->offload_bytes != 0 && arena != NULL &&
        bytes >= model->offload_state_offset_bytes + sizeof none)
        memcpy((unsigned char *)arena + model->offload_state_offset_bytes, &none, sizeof none);
}

/* The first half of making `arena` ready for runs with `threads` threads (see ul_run_threads):
   checks it, has the library make what it needs. All that this touches of the arena is the place of
   the library's state, and that of what values are offloaded to, which is attached behind it. */
static inline enum ul_result ul_run_begin_init(const struct ul_model *model, void *arena,
                                               size_t bytes, uint32_t threads,
                                               struct ul_failure *failure)
{
    memset(failure, 0, sizeof *failure);
    ul_run_clear_state(model, arena, bytes);
    if (arena == NULL || bytes < model->arena_bytes)
        return ul_check_fail(failure, UL_ARENA_TOO_SMALL, model->arena_bytes,
                             arena == NULL ? 0 : bytes);
    uint64_t address = (uint64_t)(uintptr_t)arena;
    if ((address & (model->arena_align - 1)) != 0)
        return ul_check_fail(failure, UL_ARENA_MISALIGNED, model->arena_align,
                             address & (~address + 1));
    if (model->library == NULL)
        return UL_OK;
    return model->library->init(model->library, arena, ul_run_threads(model, threads), failure);
}

/* Gives back what the library made for an arena; its memory stays the caller's. */
static inline void ul_run_done(const struct ul_model *model, void *arena)
{
    if (model->library != NULL)
        model->library->done(model->library, arena);
}

/* The second half: loads the weights, has the library make what needs them, starts the threads,
   late, since they wait busily at first, runs the model's set-up. After a failure there is nothing
   to give back. */
static inline enum ul_result ul_run_end_init(const struct ul_model *model, void *arena,
                                             uint32_t threads,
                                             const struct ul_weights_source *source,
                                             struct ul_failure *failure)
{
    enum ul_result result = UL_OK;
    struct ul_run run;
    memset(&run, 0, sizeof run);
    run.threads = ul_run_threads(model, threads);
    run.offload = ul_offload_of(model, arena);
    if (model->offload_bytes != 0 && run.offload == NULL)
        result = ul_check_fail(failure, UL_OFFLOAD_TOO_SMALL, model->offload_bytes, 0);
    if (result == UL_OK && model->payload_bytes != 0)
        result = ul_run_load_sections(model, source, (unsigned char *)arena, failure);
    if (result == UL_OK)
        result = ul_run_fill_splats(model, (unsigned char *)arena, failure);
    if (result == UL_OK) {
        ul_run_clear_kept(model, (unsigned char *)arena);
        if (model->library != NULL && model->library->init_scaled != NULL)
            result = model->library->init_scaled(model->library, arena, failure);
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

/* Both. The library goes first: what it takes while it makes primitives, and gives back, is not
   there at the same time as the weights. `offload`: NULL where nothing is offloaded. failure may be
   NULL. */
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
    if (result == UL_OK && (result = ul_offload_attach(model, arena, offload, failure)) != UL_OK)
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

/* False for an arena that nobody made ready, or that something else was written to since. */
static inline int ul_run_is_set_up(const struct ul_model *model, const unsigned char *arena)
{
    static const unsigned char none[sizeof model->mark];
    return ul_run_is_big_endian() || memcmp(model->mark, none, sizeof none) == 0 ||
           memcmp(arena + model->mark_offset_bytes, model->mark, sizeof none) == 0;
}

/* A value that is offloaded between runs, to a caller. */
static inline void ul_run_fetch_output(struct ul_run *run, const struct ul_rt_tensor *output,
                                       void *to)
{
    if (ul_offload_move(run->offload, UL_OFFLOAD_LOAD, output->offset_bytes, to,
                        output->size_bytes) != 0)
        run->offload_failed = 1;
}

/* The entry point `number` with `threads` threads (see ul_run_threads). A NULL buffer of a tensor
   that lives in the arena means that the caller puts the input there, or takes the output from
   there, on its own. inputs, outputs, hook and failure may be NULL. */
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
    enum ul_result result = ul_check_buffers(model, entry, inputs, outputs, failure);
    if (result != UL_OK)
        return result;
    bool is_nowhere = arena == NULL && model->arena_bytes != 0; /* after a set-up that failed */
    if (is_nowhere || !ul_run_is_set_up(model, bytes))
        return failure->result = UL_NOT_READY;
    if (model->library != NULL && model->library->ready != NULL) {
        result = model->library->ready(model->library, arena, failure);
        if (result != UL_OK)
            return result;
    }
    memset(&run, 0, sizeof run);
    run.inputs = inputs;
    run.outputs = outputs;
    run.hook = hook;
    run.hook_context = hook_context;
    run.threads = ul_run_threads(model, threads);
    run.offload = ul_offload_of(model, arena);
    if (model->offload_bytes != 0 && run.offload == NULL)
        return ul_check_fail(failure, UL_NOT_READY, 0, 0);
    for (uint32_t k = 0; inputs != NULL && k < entry->input_count; k++) {
        uint32_t i = entry->inputs[k];
        const struct ul_rt_tensor *input = &model->inputs[i];
        if (input->space == UL_SPACE_ARENA && inputs[i] != NULL)
            memcpy(bytes + input->offset_bytes, inputs[i], (size_t)input->size_bytes);
    }
    if (entry->steps != NULL)
        entry->steps(bytes, &run);
    if (run.offload != NULL)
        ul_offload_wait(&run, UL_OFFLOAD_ALL);
    if (hook != NULL)
        hook(hook_context, entry->step_end);
    for (uint32_t k = 0; outputs != NULL && k < entry->output_count; k++) {
        uint32_t i = entry->outputs[k];
        const struct ul_rt_tensor *output = &model->outputs[i];
        if (output->space == UL_SPACE_ARENA && outputs[i] != NULL)
            memcpy(outputs[i], bytes + output->offset_bytes, (size_t)output->size_bytes);
        else if (output->space == UL_SPACE_OFFLOAD && outputs[i] != NULL)
            ul_run_fetch_output(&run, output, outputs[i]);
    }
    return ul_run_finish(model, &run, failure);
}

static inline enum ul_result ul_run_once(const struct ul_model *model, void *arena,
                                         const void *const *inputs, void *const *outputs,
                                         ul_step_hook *hook, void *hook_context,
                                         struct ul_failure *failure)
{
    return ul_run_entry(model, UL_ENTRY_RUN, arena, 0, inputs, outputs, hook, hook_context,
                        failure);
}

/* Gives what belongs to the arena from now on its first values; a NULL one stays what it is. */
static inline enum ul_result ul_run_set_up(const struct ul_model *model, void *arena,
                                           const void *const *inputs, struct ul_failure *failure)
{
    return ul_run_entry(model, UL_ENTRY_SET_UP, arena, 0, inputs, NULL, NULL, NULL, failure);
}

#endif
