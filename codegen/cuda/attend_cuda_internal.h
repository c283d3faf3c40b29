/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the printers of attention and of its gradient. */
#ifndef UL_ATTEND_CUDA_INTERNAL_H
#define UL_ATTEND_CUDA_INTERNAL_H

#include "codegen/cuda/attend_cuda.h"
#include "codegen/cuda/contract_cuda_internal.h"
#include "codegen/device/grid.h"

/* attend_cuda_score.c */

/* The destination of the text of a contraction. `plan` may be NULL where no contraction is
 * printed. */
struct ul_contract_out ul_attend_cuda_out(const struct ul_contract_printer *printer,
                                          const struct ul_contract_plan *plan,
                                          const char *coordinate);

/* const auto t_score = [&](t_fm, t_fn, t_sum) { ... }; with a second product it also gets t_slope,
 * and where the attention has shares it sets t_share. */
void ul_attend_cuda_put_score(const struct ul_contract_printer *printer,
                              const struct ul_attend *attend, const char *coordinate,
                              uint32_t indent);
/* const auto t_factor = [&](t_fm, t_fn) { ... }; printed where the attention has a factor. */
void ul_attend_cuda_put_factor(const struct ul_contract_printer *printer,
                               const struct ul_attend *attend, const char *coordinate,
                               uint32_t indent);
/* const auto t_put_norm = [&](t_fm, norm) { ... }; */
void ul_attend_cuda_put_norm(const struct ul_contract_printer *printer,
                             const struct ul_attend *attend, const char *coordinate,
                             uint32_t indent);
/* The name of enum ul_attention_empty in the runtime. */
const char *ul_attend_cuda_empty(enum ul_attention_empty empty);

/* attend_cuda_gradient.c: the functions of attend_cuda.h for the kinds STATISTICS and SUM. */

/* Whether its tiles have 16 bits, on tensor cores. */
bool ul_attend_cuda_gradient_is_half(const struct ul_kernel *kernel,
                                     const struct ul_attend *attend);
void ul_attend_cuda_gradient_grid(const struct ul_kernel *kernel, const struct ul_attend *attend,
                                  const struct ul_profile_device *device,
                                  struct ul_contract_grid *grid);
void ul_attend_cuda_gradient_put_tile(const struct ul_contract_cuda_printer *printer,
                                      const struct ul_attend *attend, uint32_t indent);

#endif
