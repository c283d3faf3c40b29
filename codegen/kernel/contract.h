/* SPDX-License-Identifier: Apache-2.0 */
/* Tiled contractions for target c: the C text of one UL_KS_CONTRACT statement, and the scratch
 * bytes that its schedule needs.
 *
 * Schedules, chosen from the shape alone: register tiles over packed panels; streamed rows of b for
 * a large b under few rows; dot products for a matrix times a vector along k; windows over padded
 * planes for depthwise convolution; plain loops for what is tiny or irregular. The choice never
 * looks at addresses or offsets, so a sum has the same order of additions in every program that
 * contains the kernel.
 * Invariants: the sum is complete before the epilogue runs for an element; the epilogue runs
 * exactly once for each (m, n); no operand is read outside of its buffer; no partial sum is
 * written to an output.
 * The text includes nothing; the program includes runtime/lib/ul_contract.h, by which a
 * multiplication and an addition are one instruction where the processor has it.
 * Names in the text: variable v<id> of the kernel, buffer b<id> as a pointer to its storage type,
 * both as in struct ul_kernel; own names begin with "t_". The text opens its own block.
 */
#ifndef UL_CONTRACT_H
#define UL_CONTRACT_H

#include "ir/kernel.h"
#include "ir/traits.h"

/* What the caller prints for us. */
struct ul_contract_printer {
    struct ul_text *text;
    const struct ul_kernel *kernel;
    void *context;
    /* An expression as one C expression in parentheses where it needs them, without statements:
     * bases of operands (over variables of enclosing loops) and transforms. */
    void (*put_expression)(void *context, ul_kx expression);
    /* A statement list, each line indented by 4 * indent blanks: the epilogue, with the variables
     * of m and n and the accumulator declared as locals before it. */
    void (*put_statements)(void *context, ul_ks first, uint32_t indent);
    /* buffer[index] in its compute type; index is C text of type int64_t. */
    void (*put_load)(void *context, uint32_t buffer, const char *index);
    /* A C expression of type unsigned char *, at least as many bytes as
     * ul_contract_scratch_bytes, aligned to 64; not used when that is 0. Where the statement is
     * shared out, evaluated by each thread, for bytes of its own by t_share.thread. */
    const char *scratch;
    /* Threads that the statement is shared out to, each with some of ul_contract_items; 1: none. */
    uint32_t shares;
};

/* Planned bytes while the statement runs; its contents are lost afterwards. At most
 * UL_CONTRACT_SCRATCH_BYTES, less for small problems, 0 for plain loops. */
#define UL_CONTRACT_SCRATCH_BYTES ((uint64_t)256 << 10)
uint64_t ul_contract_scratch_bytes(const struct ul_kernel *kernel,
                                   const struct ul_contraction *contraction);

/* In how many equal items the statement may be shared out to so many threads: 1, not at all. Sums
 * are formed by one thread each, in the same order as without threads. */
int64_t ul_contract_items(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                          uint32_t thread_count);

/* Do so many items keep so many threads busy for nine tenths of the time? */
bool ul_share_is_even(int64_t items, uint32_t shares);

/* How sums are formed, as a set of flags. Two contractions over the same products, each with the
 * same single flag but LOOSE, give the same bits whatever else differs in their shapes. */
enum ul_contract_order {
    UL_CONTRACT_IN_ORDER = 1u << 0, /* k after k into one accumulator, the padding as zeros */
    UL_CONTRACT_SKIPPING = 1u << 1, /* the same, the padding left out: a NaN or an infinite weight
                                       makes no NaN there */
    UL_CONTRACT_PARTIAL =
        1u << 2,                /* partial sums, as runtime/lib/ul_contract.h adds dot products */
    UL_CONTRACT_LOOSE = 1u << 3 /* plain loops: whether an addition is fused with its product
                                   is left to the C compiler */
};
/* Of all contractions of a kernel; integers count as nothing, for every order is the same. */
uint32_t ul_contract_orders(const struct ul_kernel *kernel);

/* When b is read, by one thread alone. */
enum ul_contract_reads ul_contract_reads_c(const struct ul_kernel *kernel,
                                           const struct ul_contraction *contraction);

#endif
