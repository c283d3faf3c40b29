/* SPDX-License-Identifier: Apache-2.0 */
/* What hooks are written with. They are declared beside the rows that name them: a file of hooks
 * includes the rows of its family (ir/ops/<family>/<family>.def), which are prototypes there. Code
 * that has a row (ir/op.h) needs no hook by name. */
#ifndef UL_OPS_HOOKS_H
#define UL_OPS_HOOKS_H

#include "ir/gradient.h"
#include "ir/infer.h"
#include "ir/lower.h"
#include "ir/op.h"
#include "ir/split_rule.h"

#endif
