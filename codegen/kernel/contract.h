/* SPDX-License-Identifier: Apache-2.0 */
/* Tiled contractions for target c: the C text of one UL_KS_CONTRACT statement, and the scratch
 * bytes that its schedule needs.
 *
 * Schedules, chosen from the shape alone: register tiles over packed panels; streamed rows of b for
 * a large b under few rows; dot products for a matrix times a vector along k; windows over padded
 * planes for depthwise convolution; plain loops for tiny or irregular contractions. The choice
 * never depends on addresses or offsets, so a sum has the same order of additions in every program
 * that contains the kernel. Invariants: the sum is complete before the epilogue runs for an
 * element; the epilogue runs exactly once for each (m, n); no operand is read outside its buffer;
 * no partial sum is written to an output. The text includes nothing; the program includes
 * runtime/lib/ul_contract.h, which makes a multiplication and an addition one instruction where the
 * processor has it. Names in the text: variable v<id> of the kernel, buffer b<id> as a pointer to
 * its storage type, both as in struct ul_kernel; own names begin with "t_". The text opens its own
 * block. */
#ifndef UL_CONTRACT_H
#define UL_CONTRACT_H

#include "ir/kernel.h"
#include "ir/traits.h"

/* The parts that the caller prints. */
struct ul_contract_printer {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    void *context;
    /* An expression as one C expression without statements, in parentheses where it needs them:
     * bases of operands (over variables of enclosing loops) and transforms. */
    void (*put_expression)(void *context, ul_kx expression);
    /* A statement list, each line indented by 4 * indent blanks: the epilogue, with the variables
     * of m and n and the accumulator declared as locals before it. */
    void (*put_statements)(void *context, ul_ks first, uint32_t indent);
    /* buffer[index] in its compute type; index is C text of type int64_t. */
    void (*put_load)(void *context, uint32_t buffer, const char *index);
    /* A C expression of type unsigned char *: at least ul_contract_scratch_bytes, aligned to 64;
     * not used when that is 0. Where threads share the statement, each evaluates it for bytes of
     * its own, by t_share.thread. */
    const char *scratch;
    /* Threads that share the statement, each with some of ul_contract_items; 1: it is not
     * shared. */
    uint32_t shares;
};

/* Planned bytes while the statement runs; their contents are lost afterwards. At most
 * UL_CONTRACT_SCRATCH_BYTES, less for small problems, 0 for plain loops. */
#define UL_CONTRACT_SCRATCH_BYTES ((uint64_t)256 << 10)
uint64_t ul_contract_scratch_bytes(const struct ul_kernel *kernel,
                                   const struct ul_contraction *contraction);

/* The number of equal items into which the statement may be divided for that many threads; 1: not
 * at all. Each sum is formed by one thread, in the same order as without threads. */
int64_t ul_contract_items(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                          uint32_t thread_count);

/* Whether that many items keep the threads busy for nine tenths of the time. */
bool ul_share_is_even(int64_t items, uint32_t shares);

/* How sums are formed, as a set of flags. Two contractions over the same products, each with the
 * same single flag other than LOOSE, give the same bits, whatever else differs in their shapes. */
enum ul_contract_order {
    UL_CONTRACT_IN_ORDER = 1u << 0, /* k after k into one accumulator, the padding as zeros */
    /* the same without the padding: a NaN or an infinite weight makes no NaN there */
    UL_CONTRACT_SKIPPING = 1u << 1,
    UL_CONTRACT_PARTIAL =
        1u << 2, /* partial sums, as in the dot products of runtime/lib/ul_contract.h */
    UL_CONTRACT_LOOSE =
        /* plain loops: the C compiler decides whether an addition is fused with its product */
    1u << 3
};
/* For all contractions of a kernel; integers do not count, since every order gives the same. */
uint32_t ul_contract_orders(const struct ul_kernel *kernel);

/* When one thread reads b. */
enum ul_contract_reads ul_contract_reads_c(const struct ul_kernel *kernel,
                                           const struct ul_contraction *contraction);

#endif
