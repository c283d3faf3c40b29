/* SPDX-License-Identifier: Apache-2.0 */
/* Where a kernel loads and stores, for one question: may an output lie on an input's bytes? For
 * ir/lower.c alone.
 *
 * Invariants: the kernel is complete and stores every element of an output once, but for later
 * statements of its own list (UL_OP_COMBINES).
 * Ownership: lives in the arena passed in and borrows the kernel. Nothing fails. */
#ifndef UL_IN_PLACE_H
#define UL_IN_PLACE_H

#include "ir/kernel.h"
#include "ir/traits.h"

struct ul_accesses;
/* `reads` says when contractions read b; NULL: that is not known. */
struct ul_accesses *ul_accesses_new(const struct ul_kernel *kernel, ul_contract_reads_fn *reads,
                                    struct ul_arena *arena);
/* True when every load of the value under buffer `input` (through any of its views) that may meet a
 * store to buffer `output` would come before it, if the two were one array of equal elements. */
bool ul_accesses_may_overwrite(const struct ul_accesses *accesses, uint32_t output, uint32_t input);

#endif
