/* SPDX-License-Identifier: Apache-2.0 */
/* What a node takes of its inputs to compute a slice of its outputs, and the functions that such
 * rules are written with. */
#ifndef UL_IR_SPLIT_RULE_H
#define UL_IR_SPLIT_RULE_H

#include "ir/graph.h"

/* Elements [begin, end) along `axis` of a value; axis UL_NONE: all of it. */
struct ul_slice {
    uint32_t axis;
    int64_t begin, end;
};

/* What a node takes to compute a slice of its outputs, and how its attributes change then. */
enum { UL_SPLIT_RULE_ATTRS = 4 };
struct ul_split_rule {
    const struct ul_graph *graph;
    const struct ul_node *node;
    struct ul_arena *arena; /* for attributes and constants */
    /* The slice that is wanted of every output. The answer may be wider, where only whole blocks
     * can be made. */
    struct ul_slice output;
    /* The answer, per input: what is taken of it (at first all), and a constant that takes its
     * place, or NULL. */
    struct ul_slice *inputs;
    const struct ul_tensor **constants;
    uint32_t attr_count;
    struct ul_attr attrs[UL_SPLIT_RULE_ATTRS];
};

/* split_rule.c */

/* Asks the row; `inputs` and `constants` have room for the node's inputs. False for what has no
 * hook, owns blocks or draws random numbers. */
bool ul_node_split(struct ul_split_rule *split);
/* The functions that hooks are written with. This one takes [begin, end) of `axis` of an input that
 * is there. */
void ul_split_rule_read(struct ul_split_rule *split, uint32_t input, uint32_t axis, int64_t begin,
                        int64_t end);
/* Takes the same slice of the axis that is as far from the last one as the output's axis, unless
 * that is broadcast or missing. */
void ul_split_rule_read_broadcast(struct ul_split_rule *split, uint32_t input);
/* Sets an attribute's value for the slice. */
void ul_split_rule_set_ints(struct ul_split_rule *split, const char *name, const int64_t *values,
                            uint32_t count);
void ul_split_rule_set_int(struct ul_split_rule *split, const char *name, int64_t value);
void ul_split_rule_set_string(struct ul_split_rule *split, const char *name, const char *value);
const struct ul_type *ul_split_rule_input_type(const struct ul_split_rule *split, uint32_t input);
const struct ul_type *ul_split_rule_output_type(const struct ul_split_rule *split);
/* Widens the output to whole blocks of so many elements along its axis; there are no other
 * blocks. */
void ul_split_rule_widen(struct ul_split_rule *split, int64_t block);
/* A window's outputs [begin, end) of one spatial dimension take inputs [low, high) and so much
 * padding; false where they see nothing but padding. Units: elements. */
struct ul_split_rule_window {
    int64_t stride, reach, pad_begin, in;      /* of the whole; reach: from a window's first element
                                                  to after its last one */
    int64_t low, high, slice_begin, slice_end; /* pads of the slice */
};
bool ul_split_rule_window(const struct ul_split_rule *split, struct ul_split_rule_window *window);
/* A slice of extent 1 along `axis` of the value whose order loops follow is looped over in another
 * way where no dimension inside of it is longer than 1 (ir/ops/lanes.h), and sums may then be
 * formed in another order. */
bool ul_split_rule_keeps_lanes(const struct ul_split_rule *split, ul_value_id value, uint32_t axis);

#endif
