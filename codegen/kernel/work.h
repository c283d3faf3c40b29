/* SPDX-License-Identifier: Apache-2.0 */
/* The work of one call of a kernel: operations by kind, and what it loads and stores. */
#ifndef UL_CODEGEN_KERNEL_WORK_H
#define UL_CODEGEN_KERNEL_WORK_H

#include "ir/kernel.h"

/* cost.c */

/* What limits an operation on a device; a profile has a rate for each. */
enum ul_work_kind {
    UL_WORK_MATMUL_F32,  /* products and sums of tiled contractions, by the type of the operands */
    UL_WORK_MATMUL_TF32, /* f32 with factors rounded to 19 bits, for implementations that do so */
    UL_WORK_MATMUL_F64,
    UL_WORK_MATMUL_F16, /* of 16 bits or fewer, summed in f32 */
    UL_WORK_MATMUL_INT8,
    UL_WORK_WINDOW,  /* the same of contractions without reuse: depthwise convolution */
    UL_WORK_VECTOR,  /* arithmetic, loads and stores in loops that fill vector lanes */
    UL_WORK_SPECIAL, /* exp, log, tanh, erf there */
    UL_WORK_SCALAR,  /* anything in other loops: strided, data-dependent, sequential */
    UL_WORK_KINDS
};

/* A product that a library cuts into tiles: `batch` matrices of m x n sums of k terms each; k may
 * be cut into parts. */
struct ul_work_product {
    enum ul_work_kind kind;
    uint64_t batch, m, n, k; /* m 0: there is none */
    uint64_t element_bytes;  /* of its operands */
    uint64_t max_parts;      /* 0 or 1: k is not cut */
};

/* The part of a product that a block of a kernel forms at a time; rows 0: there is none. */
struct ul_work_tile {
    uint64_t rows, columns, element_bytes;
};

struct ul_work {
    uint64_t flop_count;                   /* exact for counted loops */
    uint64_t counts[UL_WORK_KINDS];        /* of the thread that has the most work */
    uint64_t spared_counts[UL_WORK_KINDS]; /* what other threads do at the same time */
    uint64_t region_count;                 /* how often threads start together */
    uint64_t launch_count;                 /* on a device; 0: one */
    uint64_t block_count; /* on a device: of its widest launch; 0: it fills any device */
    double longest_block; /* its work relative to the mean block, at least 1, where a block keeps a
                             multiprocessor busy; 0: several share one */
    struct ul_work_tile tile;
    struct ul_work_product product; /* a library's, whose operations are among the counts */
};

struct ul_threads; /* threads.h */
/* The work of one call; adds to accesses[i] how many elements of buffer i it loads and stores.
 * `threads` NULL: one thread. `on_device`: on a device rather than a processor. */
void ul_kernel_count_work(const struct ul_kernel *kernel, const struct ul_threads *threads,
                          bool on_device, struct ul_arena *scratch, struct ul_work *work,
                          uint64_t *accesses);

#endif
