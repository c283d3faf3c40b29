/* SPDX-License-Identifier: 0BSD */
/*
 * Calls of a numerical library, planned when the model was compiled: what a step hands to oneDNN
 * (target cpu), as constant tables. The generated model.c defines them; ul_dnnl.c makes one
 * primitive for each at set-up and runs it.
 *
 *      set-up     for each call: make the primitive with exactly the planned layouts, ask it what
 *                 it needs, refuse what needs more than was planned
 *      run        ul_library_run(state, 3, args, scratch);
 *
 * Invariants: tensors are f32, or lie in memory in 16 bits, and sums are f32; or they are 8-bit
 * integers, and sums are i32. A call reads and writes
 * its arguments and its planned scratch, nothing else; nothing but the library's own bookkeeping (a
 * few hundred bytes, freed at once) is allocated while it runs. Weights are in the layout of their
 * struct ul_pack; it is the library's, put into place while the weights are read, so that they are
 * never held twice.
 * Ownership: tables are constant data; the state of an arena (its primitives) is the library's own
 * memory, made by ul_library_init and given back by ul_library_done. Its address stands in the
 * arena, at a planned place.
 * Units: dims and strides in elements, sizes in bytes.
 */
#ifndef UL_LIBRARY_H
#define UL_LIBRARY_H

#include "ul_call.h"
#include "ul_model.h"

/* ---- ul_dnnl.c ---- */
/* UL_LIBRARY_NEEDS_MORE, with the call's planned and needed bytes and its number in `tensor`, where
 * the library wants more on this machine than was planned; UL_LIBRARY_UNSUPPORTED, with the number,
 * where it has no implementation for the planned layouts. */
enum ul_result ul_library_init(const struct ul_library *library, void *arena, uint32_t threads,
                               struct ul_failure *failure);
/* Call it after that, for the calls that were passed over: those with scales per channel, which are
 * now read from the arena and kept. After a failure ul_library_done must still be called. */
enum ul_result ul_library_init_scaled(const struct ul_library *library, void *arena,
                                      struct ul_failure *failure);
void ul_library_done(const struct ul_library *library, void *arena);
/* UL_NOT_READY where the arena has no state: NULL is in its place. The library's code is made for
 * one number of threads, and computes wrong sums in a smaller team. UL_THREADS_MISSING where OpenMP
 * would give a smaller team: in a parallel region of the caller, when set-up was outside of any. */
enum ul_result ul_library_ready(const struct ul_library *library, const void *arena,
                                struct ul_failure *failure);
/* Runs call `index` of the model, one of the library's own. args: src, weights, bias, dst, then the
 * tensors of the post-operations that read one, in their order, and the source's zero point of
 * UL_ZERO_ARG; absent ones are NULL. */
void ul_library_run(const struct ul_library *library, unsigned char *arena, uint32_t index,
                    const void *const *args, unsigned char *scratch);
const char *ul_library_implementation(const struct ul_library *library, const void *arena,
                                      uint32_t index);
uint64_t ul_library_heap_bytes(const struct ul_library *library, const void *arena);

#endif
