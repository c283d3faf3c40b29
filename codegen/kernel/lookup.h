/* SPDX-License-Identifier: Apache-2.0 */
/* Loops that only look up bytes: to[i] = table[from[i]]. */
#ifndef UL_CODEGEN_LOOKUP_H
#define UL_CODEGEN_LOOKUP_H

#include "ir/kernel.h"

struct ul_lookup {
    uint32_t table, from, to; /* buffers of bytes */
    ul_kx from_index, to_index;
    bool is_signed; /* the looked-up type is i8: from -128 on */
};

/* False: it is another loop. Nothing fails. */
bool ul_lookup_find(const struct ul_kernel *kernel, const struct ul_ks_data *loop,
                    struct ul_lookup *lookup);

#endif
