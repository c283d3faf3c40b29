/* One printed kernel, as contract_emit lists it. */
#ifndef CONTRACT_CASE_H
#define CONTRACT_CASE_H

#include "ul_contract.h"
#include "ul_run.h"

#include <stddef.h>
#include <stdint.h>

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that is not vectorised is no defect */
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
    void (*call)(void **buffers, unsigned char *scratch, struct ul_run *run);
    uint64_t scratch_bytes;
    int64_t m, n, k, runs; /* `runs` products of m x k by k x n */
    struct kernel_conv conv;
    struct kernel_buffer buffers[8]; /* ends with a count of 0 */
};

#endif
