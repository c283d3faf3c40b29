/* SPDX-License-Identifier: Apache-2.0 */
/* The targets. */
#ifndef UL_CODEGEN_TARGET_H
#define UL_CODEGEN_TARGET_H

#include "codegen/program/target.h"

/* NULL: there is no such target. */
const struct ul_target *ul_target_find(const char *name);
/* The target of compiles that name none. */
const struct ul_target *ul_target_default(void);
uint32_t ul_target_count(void);
const struct ul_target *ul_target_at(uint32_t index);

#endif
