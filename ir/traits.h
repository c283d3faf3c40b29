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
    UL_CONTRACT_READS_ANY,    /* nobody knows */
    UL_CONTRACT_READS_COLUMN, /* of a column, before a result of that column is stored */
    UL_CONTRACT_READS_WHOLE   /* all of it, before any result is stored */
};
typedef enum ul_contract_reads ul_contract_reads_fn(const struct ul_kernel *kernel,
                                                    const struct ul_contraction *contraction);

struct ul_target_traits {
    const char *name;    /* "cuda" */
    const char *summary; /* one line */
    const char *profile; /* of the device whose time counts, where nobody says another */

    /* the machine */
    bool has_threads;        /* OpenMP; the plan depends on their number */
    bool memory_is_separate; /* and kernels run beside it, on another processor than the host's: the
                                plan holds the state of a run */
    bool has_streams;        /* steps run beside each other, on two streams of a device */
    bool has_rom;            /* weights may be read-only data of the program */
    bool finds_libraries;    /* at a program's start, which chooses among what they have: calls are
                                planned with a bound on their scratch, and may be absent */

    /* passes */
    bool channels_last;       /* convolution nets keep channels innermost (layout.c) */
    bool filters_last;        /* weights of convolutions are stored so too (filters.c) */
    bool biases_alike;        /* its library wants biases in the type of results (precision.c) */
    uint32_t mask_align_bits; /* its library multiplies products by the slopes of a ReLU, a bit
                                 each, of which a row takes a multiple of so many (library.c); 0: it
                                 does not */
    int64_t tensor_side;  /* products of 16 bits with no shorter side are formed by tensor cores,
                             of what lies as it is (fuse_rules.c); 0: there are none */
    bool products_joined; /* products of one operand are one (join.c) */
    bool steps_cost;      /* a step is a launch, which constants that stay in memory spare: larger
                             ones are computed when compiling (infer.c) */
    bool panels_of_codes; /* products of weights of a few bits have these in an order of their own,
                             so that tables of the same numbers are stored beside (nbits.c) */
    uint64_t codes_scratch_bytes; /* of a convolution that reads weights as they are stored, for a
                                     thread; 0: none does (phases.c) */
    uint64_t signed_products; /* of integers, from which on their library forms them of factors with
                                 signs alone (integers_sums.c); 0: never */
    uint32_t tile_count; /* parts in which the largest gradient is formed and used (tiles.c); */
    uint64_t tile_bytes; /* of these, at least, so that a call or launch for each costs little */
    int64_t products_a_byte; /* of 16 bits, formed in the time that memory moves a byte: where a
                                loss may compute logits again instead of reading weights often
                                (loss_tiles.c); 0: never */

    /* lowering */
    int64_t partial_count; /* results of its own that a long sum is made of, at most; 0: as few as
                              fill the lanes of a processor (ops/lanes.h) */
    bool sums_joined;      /* the gradients of a normalisation's scale and bias are one step, which
                              reads what both are made of once (ops/norm_gradient.c) */
    int64_t spread_products; /* of a direction's recurrent product, from which on a step is spread
                                over a device (ops/rnn.c); 0: never */
    int64_t gradient_size;   /* of heads whose attention's gradient is formed in passes of tiles, at
                                most (ops/attention_gradient_tiles.c); 0: it is formed at once */
    int64_t gradient_joined; /* largest head whose gradients of keys and values one pass forms */
    bool sorts_batches;      /* what one factor's batch alone has are rows or columns of one
                                product (ops/matmul.c) */
    ul_contract_reads_fn *contract_reads; /* of its schedules (in_place.c); NULL: any */
};

#endif
