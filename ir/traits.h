/* SPDX-License-Identifier: Apache-2.0 */
/* What a target is, as far as anything but its own code asks: facts, one row a target in
 * codegen/target.c, handed on whole from there to passes, lowering, the program and its source.
 *
 * Invariants: a row never changes; all zeros is a target that wants nothing of anybody.
 */
#ifndef UL_IR_TRAITS_H
#define UL_IR_TRAITS_H

#include <stdbool.h>
#include <stdint.h>

struct ul_kernel;
struct ul_contraction;

/* When one thread has read what a contraction takes of its operand b (ir/kernel.h): */
enum ul_contract_reads {
    UL_CONTRACT_READS_ANY,    /* that is not known */
    UL_CONTRACT_READS_COLUMN, /* what it takes of a column, before a result of that column is
                                 stored */
    UL_CONTRACT_READS_WHOLE   /* all of it, before any result is stored */
};
typedef enum ul_contract_reads ul_contract_reads_fn(const struct ul_kernel *kernel,
                                                    const struct ul_contraction *contraction);

struct ul_target_traits {
    const char *name;    /* "cuda" */
    const char *summary; /* one line */
    const char *profile; /* of the device whose time counts, unless another one is named */

    /* the machine */
    bool has_threads;        /* OpenMP; the plan depends on their number */
    bool memory_is_separate; /* and kernels run beside it, on another processor than the host's:
                                the plan holds the state of a run */
    bool has_streams;        /* steps run beside each other, on two streams of a device */
    bool has_rom;            /* weights may be read-only data of the program */
    bool finds_libraries;    /* at a program's start, which chooses among what they have: calls
                                are planned with a bound on their scratch, and may be absent */

    /* passes */
    bool channels_last;       /* convolution nets keep channels innermost (layout.c) */
    bool filters_last;        /* weights of convolutions are stored so too (filters.c) */
    bool biases_alike;        /* its library wants biases in the type of results (precision.c) */
    uint32_t mask_align_bits; /* its library multiplies products by the slopes of a ReLU, one bit
                                 each; a row takes a multiple of so many bits (library.c); 0: it
                                 does not */
    int64_t tensor_side;      /* tensor cores form products of 16 bits with no shorter side, from
                                 operands as they are (fuse_rules.c); 0: there are none */
    bool products_joined;     /* products of one operand are one (join.c) */
    bool steps_cost;          /* a step is a launch, which constants that stay in memory spare:
                                 larger ones are computed when compiling (infer.c) */
    bool panels_of_codes;     /* products of weights of a few bits have these in an order of their
                                 own, so that tables of the same numbers are stored beside them
                                 (nbits.c) */
    uint64_t codes_scratch_bytes; /* for a thread of a convolution that reads weights as they are
                                     stored; 0: none does (phases.c) */
    uint64_t signed_products;     /* from so many products of integers on, their library forms them
                                     only from signed factors (integers_sums.c); 0: never */
    uint32_t tile_count;     /* the number of parts in which the largest gradient is formed and used
                                (tiles.c); */
    uint64_t tile_bytes;     /* the least size of a part, so that a call or launch for each costs
                                little */
    int64_t products_a_byte; /* of 16 bits, formed in the time in which memory moves a byte:
                                where a loss may compute logits again instead of reading weights
                                often (loss_tiles.c); 0: never */

    /* lowering */
    int64_t partial_count;   /* the most results of its own that a long sum is made of; 0: as few
                                as fill the lanes of a processor (ops/lanes.h) */
    bool sums_joined;        /* the gradients of a normalisation's scale and bias are one step,
                                which reads their common operands once (ops/norm/norm_gradient.c) */
    int64_t spread_products; /* from so many products in a direction's recurrent product on, a
                                step is spread over a device (ops/rnn/rnn.c); 0: never */
    int64_t gradient_size;   /* the largest head whose attention's gradient is formed in passes
                                of tiles (ops/attention/attention_gradient_tiles.c); 0: it is formed
                                at once */
    int64_t gradient_joined; /* the largest head whose gradients of keys and values one pass
                                forms */
    bool sorts_batches;      /* the batch that only one factor has becomes rows or columns of one
                                product (ops/matmul/matmul.c) */
    ul_contract_reads_fn *contract_reads; /* for its schedules (in_place.c); NULL: any */
};

#endif
