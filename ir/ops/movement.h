/* Hooks of the movement family: operators that copy or view elements and compute nothing. */
#ifndef UL_OPS_MOVEMENT_H
#define UL_OPS_MOVEMENT_H

#include "ir/op.h"

/* reshape.c: elements keep their order */

ul_infer_fn ul_infer_reshape, ul_infer_flatten, ul_infer_squeeze, ul_infer_unsqueeze;
ul_map_fn ul_map_identity, ul_map_reshape;
ul_view_fn ul_view_identity, ul_view_reshape;
ul_split_rule_fn ul_split_rule_reshape;

/* permute.c: Transpose, DepthToSpace, SpaceToDepth */

ul_infer_fn ul_infer_transpose, ul_infer_depth_to_space, ul_infer_space_to_depth;
ul_map_fn ul_map_transpose, ul_map_depth_to_space, ul_map_space_to_depth;
ul_view_fn ul_view_transpose;
ul_split_rule_fn ul_split_rule_transpose, ul_split_rule_depth_to_space;

/* repeat.c: Expand, Tile */

ul_infer_fn ul_infer_expand, ul_infer_tile;
ul_map_fn ul_map_expand, ul_map_tile;
ul_view_fn ul_view_expand;
ul_split_rule_fn ul_split_rule_expand;

/* slice.c: Slice, Split */

ul_infer_fn ul_infer_slice, ul_infer_split;
ul_map_fn ul_map_slice, ul_map_split;
ul_view_fn ul_view_slice, ul_view_split;
ul_split_rule_fn ul_split_rule_slice, ul_split_rule_split;

/* concat.c */

ul_infer_fn ul_infer_concat;
ul_lower_fn ul_lower_concat;
ul_split_rule_fn ul_split_rule_concat;

/* pad.c: Pad, CenterCropPad */

ul_infer_fn ul_infer_pad, ul_infer_center_crop_pad;
ul_map_fn ul_map_pad;
ul_split_rule_fn ul_split_rule_pad;

/* gather.c */

ul_infer_fn ul_infer_gather, ul_infer_gather_elements, ul_infer_gather_nd;
ul_infer_fn ul_infer_reverse_sequence;
ul_map_fn ul_map_gather, ul_map_gather_elements, ul_map_gather_nd, ul_map_reverse_sequence;
ul_view_fn ul_view_gather;
ul_split_rule_fn ul_split_rule_gather;

/* generate.c: what depends on shapes and coordinates */

ul_infer_fn ul_infer_shape, ul_infer_size, ul_infer_constant_of_shape, ul_infer_range;
ul_infer_fn ul_infer_one_hot, ul_infer_eye_like, ul_infer_trilu;
ul_map_fn ul_map_constant_of_shape, ul_map_range, ul_map_one_hot, ul_map_eye_like, ul_map_trilu;

#endif
