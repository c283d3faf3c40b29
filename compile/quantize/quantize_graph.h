/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of --quantize-activations: from calibration data to a graph with
 * QuantizeLinear and DequantizeLinear.
 *
 * Ownership: everything lives in the arena that is passed in. Units: ranges are in the activation's
 * own; sizes in bytes. */
#ifndef UL_QUANTIZE_INTERNAL_H
#define UL_QUANTIZE_INTERNAL_H

#include "compile/compile.h"
#include "ir/op.h"

/* ---- quantize_range.c: the range of numbers that the integers of an activation cover ---- */

enum { UL_COUNTS_BINS = 8192 };

/* What was seen of an activation: a histogram over [-limit, limit], which is doubled when it is too
 * small. */
struct ul_counts {
    double least, greatest; /* of all numbers and 0 */
    double limit;           /* 0: all bins are empty */
    uint64_t element_count, zero_count;
    uint64_t bins[UL_COUNTS_BINS]; /* of numbers other than 0 */
};

/* Adds f32 elements; false where one is infinite or NaN. */
bool ul_counts_add(struct ul_counts *counts, const unsigned char *elements, uint64_t element_count);

/* The scale, and the integer for 0, of u8. */
struct ul_quantize_step {
    float scale;
    uint8_t zero;
};
struct ul_quantize_step ul_counts_choose(const struct ul_counts *counts,
                                         enum ul_calibration method);

/* ---- quantize_data.c: the arrays for calibrating networks ---- */

struct ul_quantize_data {
    uint32_t input_count; /* inputs of the graph, in its order */
    const struct ul_tensor **tensors;
    uint64_t sample_count; /* runs of the network */
};
/* Reads a .npz for the inputs of a graph with static types; UL_INVALID names what does not fit. The
 * file is mapped until the caller unmaps it. */
enum ul_status ul_quantize_read(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_file *file, const char *path,
                                struct ul_quantize_data *data, struct ul_diag *diag) UL_MUST_CHECK;
/* Writes sample `sample` of input `input` as a .npy file. */
enum ul_status ul_quantize_write(struct ul_arena *arena, const struct ul_graph *graph,
                                 const struct ul_quantize_data *data, uint32_t input,
                                 uint64_t sample, const char *path,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* ---- quantize_graph.c: the values that become integers ---- */

struct ul_quantize_choice {
    bool *nodes;         /* by node: it reads and makes integers */
    bool *values;        /* by value: an activation that is quantized */
    ul_value_id *groups; /* by value: the first of those that share its range */
    uint32_t anchor_count;
};
void ul_quantize_choose(struct ul_arena *arena, const struct ul_graph *graph,
                        struct ul_quantize_choice *choice);
/* Whether its sums of products can be formed in integers; and the dimension of its weight that
 * counts output channels, -1: one scale for the whole weight. */
bool ul_quantize_is_anchor(const struct ul_graph *graph, const struct ul_node *node);
int ul_quantize_axis(const struct ul_node *node, const struct ul_type *weight);

/* quantize_insert.c: inserts the nodes into the graph, whose arena is passed in; `steps` is indexed
 * by the first value of a group. */
void ul_quantize_insert(struct ul_arena *arena, struct ul_graph *graph,
                        const struct ul_quantize_choice *choice,
                        const struct ul_quantize_step *steps);

#endif
