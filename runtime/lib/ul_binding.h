/* SPDX-License-Identifier: 0BSD */
/*
 * What a library of a model does besides its runs, for callers in any language; the command line
 * uses some of it too: a failure as text, whether the processor has what model.c was compiled for,
 * the weights that lie in the library, how it begins. The generated library.c gives it the model's
 * names.
 *
 * Invariants: nothing is allocated, nothing static is written. The code that asks about the
 * processor is compiled for a plain one, so that a program moved to an older machine says so
 * instead of dying of an illegal instruction. Ownership: the caller's, arena and all; weights and
 * strings are the library's. Failures: an enum ul_result, with the details in the caller's struct
 * ul_failure, which may be NULL. C99 and its library; on Linux library.c asks for madvise by
 * _DEFAULT_SOURCE. */
#ifndef UL_BINDING_H
#define UL_BINDING_H

#include "ul_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

/* ---- failures, for people ---- */

/* The text of a UL_DATA_FAULT; `step` names the step. As snprintf: what is too long for the text is
   cut, and the length of the whole is the result. */
static inline int ul_fault_text(char *text, size_t bytes, const struct ul_failure *failure,
                                const char *step)
{
    if (failure->fault == UL_FAULT_BRANCH)
        return snprintf(text, bytes,
                        "step %s is in a branch that cannot have the shapes that were compiled; "
                        "outputs that come from it are 0",
                        step);
    if (failure->fault == UL_FAULT_COUNT)
        return snprintf(text, bytes,
                        "step %s met the count %" PRId64 ", planned are at most %" PRId64
                        "; it was clamped, the outputs are those of the clamped value",
                        step, failure->fault_value, failure->fault_limit);
    bool from_end = failure->fault == UL_FAULT_INDEX;
    return snprintf(text, bytes,
                    "step %s met the index %" PRId64 ", valid are %" PRId64 " to %" PRId64
                    "; it was clamped, the outputs are those of the clamped index",
                    step, failure->fault_value, from_end ? -failure->fault_limit : 0,
                    failure->fault_limit - 1);
}

/* The input or output that a failure is about; NULL: it is about none. */
static inline const struct ul_rt_tensor *ul_failure_tensor(const struct ul_model *model,
                                                           const struct ul_failure *failure)
{
    bool of_input = failure->result == UL_INPUT_MISSING || failure->result == UL_INPUT_ELSEWHERE ||
                    failure->result == UL_BUFFERS_APART;
    bool of_output = failure->result == UL_OUTPUT_MISSING || failure->result == UL_OUTPUT_ELSEWHERE;
    if (of_input && failure->tensor < model->input_count)
        return &model->inputs[failure->tensor];
    if (of_output && failure->tensor < model->output_count)
        return &model->outputs[failure->tensor];
    return NULL;
}

/* The text of any result, with numbers, the tensor's name and the device's words. As snprintf. */
static inline int ul_failure_text(char *text, size_t bytes, const struct ul_model *model,
                                  const struct ul_failure *failure)
{
    char numbers[96] = "", step[24];
    const struct ul_rt_tensor *tensor = ul_failure_tensor(model, failure);
    if (failure->result == UL_DATA_FAULT) {
        snprintf(step, sizeof step, "number %" PRIu32, failure->step);
        return ul_fault_text(text, bytes, failure, failure->node != NULL ? failure->node : step);
    }
    if (failure->needed_bytes != 0)
        snprintf(numbers, sizeof numbers, " (needed %" PRIu64 ", available %" PRIu64 ")",
                 failure->needed_bytes, failure->available_bytes);
    return snprintf(text, bytes, "%s%s%s%s%s%s", ul_result_text(failure->result),
                    tensor != NULL ? ": " : "", tensor != NULL ? tensor->name : "", numbers,
                    failure->detail != NULL ? ": " : "",
                    failure->detail != NULL ? failure->detail : "");
}

/* ---- the processor ---- */

/* The first feature of `isa` (UL_ISA_ of ul_model.h) that is not there, by name; NULL: all are. */
static inline const char *ul_isa_missing(uint32_t isa)
{
#if defined(__GNUC__) && (defined(__x86_64__) || defined(__i386__))
    __builtin_cpu_init();
#define UL_ISA_CHECK(bit, feature)                                                                 \
    if ((isa & (bit)) != 0 && !__builtin_cpu_supports(feature))                                    \
        return feature;
    UL_ISA_CHECK(UL_ISA_SSE3, "sse3")
    UL_ISA_CHECK(UL_ISA_SSSE3, "ssse3")
    UL_ISA_CHECK(UL_ISA_SSE41, "sse4.1")
    UL_ISA_CHECK(UL_ISA_SSE42, "sse4.2")
    UL_ISA_CHECK(UL_ISA_POPCNT, "popcnt")
    UL_ISA_CHECK(UL_ISA_AVX, "avx")
    UL_ISA_CHECK(UL_ISA_AVX2, "avx2")
    UL_ISA_CHECK(UL_ISA_FMA, "fma")
    UL_ISA_CHECK(UL_ISA_BMI, "bmi")
    UL_ISA_CHECK(UL_ISA_BMI2, "bmi2")
    UL_ISA_CHECK(UL_ISA_AVX512F, "avx512f")
    UL_ISA_CHECK(UL_ISA_AVX512VL, "avx512vl")
    UL_ISA_CHECK(UL_ISA_AVX512BW, "avx512bw")
    UL_ISA_CHECK(UL_ISA_AVX512DQ, "avx512dq")
    UL_ISA_CHECK(UL_ISA_AVX512CD, "avx512cd")
    UL_ISA_CHECK(UL_ISA_AVX512VNNI, "avx512vnni")
    UL_ISA_CHECK(UL_ISA_AVX512BF16, "avx512bf16")
    UL_ISA_CHECK(UL_ISA_AVX512VBMI, "avx512vbmi")
    UL_ISA_CHECK(UL_ISA_AVX512VBMI2, "avx512vbmi2")
    UL_ISA_CHECK(UL_ISA_AVX512IFMA, "avx512ifma")
    UL_ISA_CHECK(UL_ISA_AVX512BITALG, "avx512bitalg")
    UL_ISA_CHECK(UL_ISA_AVX512VPOPCNTDQ, "avx512vpopcntdq")
#undef UL_ISA_CHECK
    if (isa > UL_ISA_LAST * 2 - 1)
        return "a feature that is newer than this program's runtime";
#else
    (void)isa;
#endif
    return NULL;
}

/* ---- the weights inside ---- */

/* The weights file as read-only data of the library; weights.S defines it. */
struct ul_inside {
    const unsigned char *begin, *end;
};

#define UL_INSIDE_WINDOW_BYTES 1048576u

/* Gives back pages of the library's file that were read: they are clean, and come again when
   somebody reads them. So weights that were copied to their places are not resident twice. */
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

/* The `read` of a weights source over that data: at most a window of it stays resident after it. */
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

/* ---- begin ---- */

/* Call it before anything else of model.c runs: UL_PROCESSOR_LACKS, with the feature. */
static inline enum ul_result ul_binding_check(const struct ul_model *model, void **handle,
                                              struct ul_failure *failure)
{
    const char *missing = ul_isa_missing(model->isa);
    *handle = NULL;
    if (failure != NULL)
        memset(failure, 0, sizeof *failure);
    if (missing == NULL)
        return UL_OK;
    if (failure != NULL) {
        failure->result = UL_PROCESSOR_LACKS;
        failure->detail = missing;
    }
    return UL_PROCESSOR_LACKS;
}

/* In front of the bytes that values are offloaded to is a struct ul_offload. */
#define UL_BINDING_HEAD_BYTES 64u

/* The bytes that <prefix>_begin wants beside the arena; 0: none. */
static inline uint64_t ul_binding_offload_bytes(const struct ul_model *model)
{
    return model->offloading != NULL ? model->offload_bytes + UL_BINDING_HEAD_BYTES : 0;
}

/* Whether the memory that it was given is large enough. */
static inline enum ul_result ul_binding_has_room(const struct ul_model *model, const void *offload,
                                                 size_t offload_bytes, struct ul_failure *failure)
{
    struct ul_failure unused;
    uint64_t available_bytes = offload == NULL ? 0 : offload_bytes;
    if (available_bytes >= ul_binding_offload_bytes(model))
        return UL_OK;
    return ul_fail(failure != NULL ? failure : &unused, UL_OFFLOAD_TOO_SMALL,
                   ul_binding_offload_bytes(model), available_bytes);
}

#endif
