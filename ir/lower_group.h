/* Lowering as a target asks for it: from one group of nodes to one kernel. */
#ifndef UL_IR_LOWER_GROUP_H
#define UL_IR_LOWER_GROUP_H

#include "ir/kernel.h"

/* What a target wants of the kernels it gets. */
struct ul_lower_options {
    int64_t partial_count;   /* results of its own that a long sum is made of, at most; 0: as few as
                                fill the lanes of a processor (ops/lanes.h) */
    int64_t spread_products; /* of a direction's recurrent product, from which on a step is spread
                                over a device (ops/rnn.c); 0: never */
    bool sorts_batches;      /* what one factor's batch alone has are rows or columns of one
                                product (ops/matmul.c) */
};

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
 * entries; NULL: everything is stored). `options` NULL: none. */
void ul_lower_group(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t node_count,
                    const bool *escapes, const struct ul_lower_options *options,
                    struct ul_arena *arena, struct ul_lower_result *result);

#endif
