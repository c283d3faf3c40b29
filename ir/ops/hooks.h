/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks that rows name, declared beside the rows (ir/ops/<family>.def), and what they are
 * written with. A file of hooks includes this; code that has a row (ir/op.h) needs no hook by
 * name. */
#ifndef UL_OPS_HOOKS_H
#define UL_OPS_HOOKS_H

#include "ir/gradient.h"
#include "ir/infer.h"
#include "ir/lower.h"
#include "ir/op.h"
#include "ir/split_rule.h"

#define UL_OP_HOOKS
#include "ir/ops/all.def"
#undef UL_OP_HOOKS

#endif
