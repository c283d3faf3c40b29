/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of --quantize-activations share: from calibration data to a graph with
 * QuantizeLinear and DequantizeLinear.
 *
 * Ownership: all lives in the arena that a function is handed. Units: ranges are in the
 * activation's own; sizes in bytes.
 */
#ifndef UL_QUANTIZE_INTERNAL_H
#define UL_QUANTIZE_INTERNAL_H

#include "compile/compile.h"
#include "ir/op.h"

/* ---- quantize_range.c: which range of numbers the integers of an activation cover ---- */

enum { UL_COUNTS_BINS = 8192 };

/* What was seen of an activation: a histogram over [-limit, limit] that widens by doubling. */
struct ul_counts {
    double least, greatest; /* of all, with 0 */
    double limit;           /* 0: no bin has anything */
    uint64_t element_count, zero_count;
    uint64_t bins[UL_COUNTS_BINS]; /* of what is not 0 */
};

/* Adds f32 elements; false where one is infinite or no number. */
bool ul_counts_add(struct ul_counts *counts, const unsigned char *elements, uint64_t element_count);

/* One step and the integer of 0, of u8. */
struct ul_steps {
    float scale;
    uint8_t zero;
};
struct ul_steps ul_counts_choose(const struct ul_counts *counts, enum ul_calibration method);

/* ---- quantize_data.c: the arrays that networks are calibrated with ---- */

struct ul_quantize_data {
    uint32_t input_count; /* of the graph, in its order */
    const struct ul_tensor **tensors;
    uint64_t sample_count; /* runs of the network */
};
/* Reads a .npz for the inputs of a graph with static types; UL_INVALID names what does not fit. The
 * file is mapped until the caller unmaps it. */
enum ul_status ul_quantize_read(struct ul_arena *arena, const struct ul_graph *graph,
                                const struct ul_file *file, const char *path,
                                struct ul_quantize_data *data, struct ul_diag *diag) UL_MUST_CHECK;
/* Sample `sample` of input `input` as a .npy file. */
enum ul_status ul_quantize_write(struct ul_arena *arena, const struct ul_graph *graph,
                                 const struct ul_quantize_data *data, uint32_t input,
                                 uint64_t sample, const char *path,
                                 struct ul_diag *diag) UL_MUST_CHECK;

/* ---- quantize_graph.c: which values become integers, and the graph in which they are ---- */

struct ul_quantize_choice {
    bool *nodes;         /* per node: it reads and makes integers */
    bool *values;        /* per value: an activation that is quantized */
    ul_value_id *groups; /* per value: the first of those that share its range */
    uint32_t anchor_count;
};
void ul_quantize_choose(struct ul_arena *arena, const struct ul_graph *graph,
                        struct ul_quantize_choice *choice);
/* Whether its sums of products can be formed in integers; the dimension of its weight that counts
 * output channels, -1: one scale for all of it. */
bool ul_quantize_is_anchor(const struct ul_graph *graph, const struct ul_node *node);
int ul_quantize_axis(const struct ul_node *node, const struct ul_type *weight);

/* quantize_insert.c: puts what was chosen into the graph, whose arena it is; `steps` is per value
 * that is the first of a group. */
void ul_quantize_insert(struct ul_arena *arena, struct ul_graph *graph,
                        const struct ul_quantize_choice *choice, const struct ul_steps *steps);

#endif
