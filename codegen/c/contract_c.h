/* SPDX-License-Identifier: Apache-2.0 */
/* The C text of contractions. */
#ifndef UL_CONTRACT_C_H
#define UL_CONTRACT_C_H

#include "codegen/kernel/contract_internal.h"

/* contract_c.c */

void ul_contract_print_c(const struct ul_contract_printer *printer,
                         const struct ul_contraction *contraction, uint32_t indent);

/* contract_window_c.c: the schedule of windows, within contract_c.c. */
void ul_contract_window_print_c(const struct ul_contract_out *out, uint32_t indent);

#endif
