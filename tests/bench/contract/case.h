/* SPDX-License-Identifier: Apache-2.0 */
/* One printed kernel, as contract_emit lists it. */
#ifndef CONTRACT_CASE_H
#define CONTRACT_CASE_H

#if defined(__cplusplus) /* target cuda */
#include "ul_contract.cuh"
#include "ul_contract_bytes.cuh"
#include "ul_kernel.cuh"
#include "ul_team.cuh"
#else
#include "ul_threads.h"

#include "ul_contract_int.h"
#endif
#include "ul_integer.h"
#include "ul_random.h"
#include "ul_small_float.h"

#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
typedef const struct ul_cuda_step *kernel_run;
#else
typedef struct ul_run *kernel_run;
#endif

struct kernel_buffer {
    int is_output;
    int dtype; /* TensorProto.DataType */
    uint64_t element_count;
};
/* The convolution that a case is, for oneDNN's own; spatial is 0 for matrix products. */
struct kernel_conv {
    int64_t spatial, batch, groups, in, out, height, width, kernel, stride, pad;
};
struct kernel_case {
    const char *name;
    void (*call)(void **buffers, unsigned char *scratch, kernel_run run);
    uint64_t scratch_bytes;
    int64_t m, n, k, runs; /* `runs` products of m x k by k x n */
    struct kernel_conv conv;
    struct kernel_buffer buffers[12]; /* ends with a count of 0 */
    unsigned taken; /* bits: buffers that the result may be written over, by one thread */
};

#endif
