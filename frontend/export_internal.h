/* SPDX-License-Identifier: Apache-2.0 */
/* What writing a model again shares: factors of low rank beside a weight. */
#ifndef UL_EXPORT_INTERNAL_H
#define UL_EXPORT_INTERNAL_H

#include "frontend/frontend_internal.h"

/* export_lora.c */

/* Whether the factors are those of a weight of that type. */
bool ul_export_lora_fits(const struct ul_export_tensor *adapter, const struct ul_type *weight);
/* The elements of the weight with what its factors add, summed in double and rounded once. */
const unsigned char *ul_export_lora_merge(struct ul_arena *arena,
                                          const struct ul_export_tensor *adapter,
                                          const struct ul_tensor *weight);
/* Fields of the GraphProto that has the weight, which is called NAME/base there: the factors, and
 * nodes that make NAME. They go in front of its other nodes. */
void ul_export_lora_apart(struct ul_text *graph, const struct ul_export_tensor *adapter,
                          const struct ul_type *weight);

#endif
