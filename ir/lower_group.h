/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering as a target asks for it: from one group of nodes to one kernel. */
#ifndef UL_IR_LOWER_GROUP_H
#define UL_IR_LOWER_GROUP_H

#include "ir/kernel.h"
#include "ir/traits.h"

/* What lowering a group gives. */
struct ul_in_place {
    ul_value_id output, input; /* base values; the output may take the input's bytes */
};
struct ul_lower_result {
    struct ul_kernel *kernel;
    uint32_t in_place_count;
    const struct ul_in_place *in_place;
};

/* Lowers the nodes (in execution order) of one group. Values whose uses are all inside the group
 * and that are no block output are not stored: `escapes` is false for them (it has value_count
 * entries; NULL: everything is stored). `traits` NULL: a
 * target that wants nothing. */
void ul_lower_group(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t node_count,
                    const bool *escapes, const struct ul_target_traits *traits,
                    struct ul_arena *arena, struct ul_lower_result *result);

#endif
