/* SPDX-License-Identifier: Apache-2.0 */
/* The operators by name, one row each in ir/ops/<family>/<family>.def. For what is about an
 * operator: whoever includes this is compiled anew when there is another row. */
#ifndef UL_IR_OP_NAMES_H
#define UL_IR_OP_NAMES_H

enum ul_op {
    UL_OP_BEFORE_FIRST, /* UL_OP_NONE */
#define UL_OP(name, ...) UL_OP_##name,
#include "ir/ops/all.def"
#undef UL_OP
    UL_OP_COUNT
};

#endif
