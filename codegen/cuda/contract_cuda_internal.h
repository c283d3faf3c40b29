/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the schedules of contractions on target cuda. */
#ifndef UL_CONTRACT_CUDA_INTERNAL_H
#define UL_CONTRACT_CUDA_INTERNAL_H

#include "codegen/cuda/contract_cuda.h"

/* contract_cuda_text.c: functions (lambdas) that templates of the runtime call. */

/* An operand at flat coordinates: const auto <function> = [&](<first>, <second>) { ... }, whose
 * parameters are two of t_fm, t_fn and t_fk. */
struct ul_contract_cuda_reader {
    const char *function;
    char operand; /* 'a' or 'b' */
    const char *first, *second;
    const char *type;         /* of elements; uint16_t for the bits of 16-bit elements */
    int pack;                 /* elements at once, a pack of them */
    bool is_stored;           /* returns elements as they are stored */
    bool has_bases;           /* ul_contract_cuda_put_bases has declared the bases */
    const char *widened_kind; /* NULL, or the name of the 16 bits that it returns as f32 */
    bool is_place;            /* returns an ul_source, for elements of 16 bits */
};
void ul_contract_cuda_put_reader(const struct ul_contract_out *out, uint32_t indent,
                                 const struct ul_contract_cuda_reader *reader);
/* Declares the bases of one operand and of its bounds, and whether packs are aligned. */
void ul_contract_cuda_put_bases(const struct ul_contract_out *out, uint32_t indent, char operand,
                                const char *type, int pack);
/* const auto <name> = [&](t_fm, t_fn, t_sum) { the epilogue }; */
void ul_contract_cuda_put_putter(const struct ul_contract_out *out, uint32_t indent,
                                 const char *name);
/* Also prints t_put_pack(t_fm, t_fn, t_sums) for neighbours along m, or along n, from a multiple of
 * their number on. Returns that number; 1 where the epilogue does not take several and nothing is
 * printed. */
int ul_contract_cuda_put_packs(const struct ul_contract_out *out, uint32_t indent,
                               const struct ul_contract_cuda_printer *printer, bool along_m);
/* The epilogue of `sum`; it declares the variables of m and n. */
void ul_contract_cuda_put_epilogue(const struct ul_contract_out *out, uint32_t indent,
                                   const char *sum);
/* The printer of C text for one of ours. */
struct ul_contract_printer ul_contract_cuda_base(const struct ul_contract_cuda_printer *printer);
const char *ul_contract_cuda_truth(bool value);

#endif
