/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the bytes that oneDNN keeps for a call outside the buffer, as long as a program lives.
 *
 * Problem: a primitive is tables and generated code, 20 KiB to a megabyte of it, and the library
 * does not say how much. Method: the primitives of the call are made here as in a program, and what
 * they add to the process is counted (codegen/process/counted.c). What the library makes only once
 * exists already then. The result is the objects' own bytes: the same for one version of the
 * library, instruction set and number of threads, whatever was counted before.
 *
 * Where the C library or the kernel cannot count, every call is taken to be large. Where the code
 * that calls reach cannot be counted (reach.c), the profile has a guess. */
#include "codegen/cpu/dnnl_internal.h"

#include "codegen/process/counted.h"
#include "codegen/program/program.h"

#include <string.h>

enum {
    LARGE_BYTES = 1 << 20,     /* for a call that could not be counted */
    QUANTUM_BYTES = 1024,      /* results are rounded up: free lists differ by a few bytes */
    GRADIENT_CODE = 768 << 10, /* pages of the library's code, where a convolution is trained */
    NARROW_GRADIENT_CODE = 384 << 10, /* the same where vectors are of 256 bits or fewer */
    HALF_GRADIENT_CODE = 256 << 10,   /* more of it where some factors have 16 bits */
    /* of the C++ library, less the pages of others that set-up alone touches */
    STANDARD_CODE = 32 << 10,
    SMALL_RUNTIME = 400 << 10 /* the loader's relocations for the library, and an engine */
};

/* ---- memory that one call adds ---- */

static void begin(void *context)
{
    const struct ul_dnnl_made *made = context;
    omp_set_num_threads((int)made->dnnl->thread_count);
}

static bool make(void *context)
{
    struct ul_dnnl_made *made = context;
    ul_dnnl_make(made);
    return made->good;
}

static void unmake(void *context)
{
    ul_dnnl_unmake(context);
}

/* The library shares equal primitives while its cache holds them, so the cache is emptied
 * meanwhile. */
static uint64_t count_call(struct ul_dnnl *dnnl, const struct ul_call *call)
{
    struct ul_dnnl_made made = {.dnnl = dnnl, .call = call};
    const struct ul_counted_work work = {
        .begin = begin, .make = make, .unmake = unmake, .context = &made};
    struct ul_counted counted;
    int cached = 0;
    (void)dnnl_get_primitive_cache_capacity(&cached);
    (void)dnnl_set_primitive_cache_capacity(0);
    bool good = ul_counted_make(&work, &counted);
    (void)dnnl_set_primitive_cache_capacity(cached);
    if (!good)
        return LARGE_BYTES;
    uint64_t heap = (counted.heap_bytes + QUANTUM_BYTES - 1) / QUANTUM_BYTES * QUANTUM_BYTES;
    return heap + counted.code_bytes;
}

/* ---- answers ---- */

uint64_t ul_dnnl_kept_bytes(void *dnnl, const struct ul_call *call)
{
    struct ul_dnnl_known *known = ul_dnnl_know(dnnl, call);
    if (known->kept_bytes == 0)
        known->kept_bytes = count_call(dnnl, call);
    UL_ASSERT(known->kept_bytes > 0);
    return known->kept_bytes;
}

/* ---- what the library takes for itself ---- */

/* The kinds of calls. Convolutions and means of bytes run less of the library's code. */
struct kinds {
    bool float_windows, gradients, halves;
};

static struct kinds find_kinds(const struct ul_library_use *use)
{
    struct kinds kinds = {.gradients = false};
    for (uint32_t i = 0; i < use->count; i++) {
        const struct ul_call *call = use->calls[i];
        enum ul_call_type type = call->src.type;
        kinds.float_windows |= call->kind < UL_CALL_MATMUL && !ul_call_is_integer(call);
        kinds.gradients |= call->kind == UL_CALL_WEIGHT_GRADIENT;
        kinds.halves |= type == UL_CALL_F16 || type == UL_CALL_BF16;
    }
    return kinds;
}

/* Vectors are of 256 bits, or fewer. */
static bool is_narrow(const struct ul_dnnl *dnnl)
{
    return strncmp(dnnl->isa, "avx512", 6) != 0;
}

uint64_t ul_dnnl_code_bytes(void *dnnl, const struct ul_library_use *use)
{
    const struct ul_profile_process *process = ul_profile_process(use->options->profile);
    const struct kinds kinds = find_kinds(use);
    uint64_t reached = ul_dnnl_reached_bytes(dnnl, use->calls, use->count);
    uint64_t gradient_code = is_narrow(dnnl) ? NARROW_GRADIENT_CODE : GRADIENT_CODE;
    if (reached > 0)
        return reached + STANDARD_CODE;
    return process->calls.code_bytes +
           (kinds.float_windows ? process->calls.windows_code_bytes : 0) +
           (kinds.gradients ? gradient_code : 0) +
           (use->options->training != NULL && kinds.halves ? HALF_GRADIENT_CODE : 0);
}

/* The heap is larger with tiles of matrices in registers, and where convolutions are trained with
 * vectors of 512 bits. */
uint64_t ul_dnnl_runtime_bytes(void *context, const struct ul_library_use *use)
{
    const struct ul_dnnl *dnnl = context;
    bool has_tiles = strcmp(dnnl->isa, "avx512_core_amx") == 0;
    return has_tiles || (find_kinds(use).gradients && !is_narrow(dnnl))
               ? ul_profile_process(use->options->profile)->calls.runtime_bytes
               : SMALL_RUNTIME;
}
