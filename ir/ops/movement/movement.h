/* SPDX-License-Identifier: Apache-2.0 */
/* How rules of movements read again what inference has checked. */
#ifndef UL_OPS_MOVEMENT_H
#define UL_OPS_MOVEMENT_H

#include "ir/ops/movement/movement.def"

/* Element i along dimension d is element begin[d] + i * step[d] of the input. */
struct ul_box {
    int64_t begin[UL_LIMIT_RANK];
    int64_t step[UL_LIMIT_RANK];
    int64_t count[UL_LIMIT_RANK];
};
/* How many elements are added around; negative ones are cut off. */
struct ul_pads {
    int64_t begin[UL_LIMIT_RANK];
    int64_t end[UL_LIMIT_RANK];
};

/* slice.c: reads a Slice. */
void ul_slice_box(const struct ul_graph *graph, const struct ul_node *node, struct ul_box *box);
/* pad.c: reads a Pad or CenterCropPad; false: it is filled with elements of the data. */
bool ul_pad_read(const struct ul_graph *graph, const struct ul_node *node, struct ul_pads *pads);

#endif
