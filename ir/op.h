/* SPDX-License-Identifier: Apache-2.0 */
/* The operator table: one row of facts and hooks for each operator, in
 * ir/ops/<family>/<family>.def. */
#ifndef UL_IR_OP_H
#define UL_IR_OP_H

#include "ir/graph.h"

/* op.c: the operator table. */

struct ul_gradient;
struct ul_infer;
struct ul_lower;
struct ul_op_info;
struct ul_split_rule;
typedef uint32_t ul_kx; /* an expression of the kernel IR: ir/kernel.h */

enum ul_op_flag {
    UL_OP_ELEMENTWISE = 1u << 0, /* out[i] depends on broadcast inputs at i alone */
    UL_OP_RANDOM = 1u << 1,      /* never folded, never merged */
    UL_OP_CONTROL = 1u << 2,     /* owns blocks: If, Loop, Scan */
    UL_OP_COMMUTES = 1u << 3,    /* inputs 0 and 1 may change places */
    UL_OP_SHAPE_ONLY = 1u << 4,  /* its outputs are constants once its input types are known */
    UL_OP_COSTLY_MAP = 1u << 5,  /* a map too expensive to compute twice: not inlined into loads
                                    that repeat */
    UL_OP_COMBINES = 1u << 6,    /* stores elements of its output more than once and reads them
                                    back (scatter): nothing is fused after it */
    UL_OP_SPATIAL = 1u << 7,     /* input 0 (Concat: each) and output 0 are [batch, channels,
                                    space], and best have the same layout, whichever it is */
    UL_OP_CONVOLVES = 1u << 8,   /* the same, but by far the best with channels innermost, each by
                                    itself */
    UL_OP_GROWS = 1u << 9,       /* its results easily leave the range of f16 where inputs do not */
    UL_OP_MULTIPLIES = 1u << 10, /* adds up products of inputs 0 and 1: libraries and tensor cores
                                    want both stored alike */
    UL_OP_POINTWISE = 1u << 11,  /* what has the output's shape is read at the output's index
                                    alone, as all elementwise operators do */
    UL_OP_RESHAPES = 1u << 12,   /* the elements of input 0 in their order, in other dimensions */
    UL_OP_JOINS = 1u << 13,      /* its inputs side by side; each may lie in the output already */
    UL_OP_CORRELATES = 1u << 14, /* adds up products of inputs 0 and 1, [batch, channels, space],
                                    over  batch and space: best with channels innermost in both */
    UL_OP_PACKS = 1u << 15,      /* makes one element from many of input 0, which are best made
                                    as it loads them */
    UL_OP_WIDENS = 1u << 16,     /* makes elements from smaller ones that say as much: not
                                    folded, since its readers may compute with the smaller ones */
    UL_OP_UNPACKS = 1u << 18,    /* its result lies in input 0, some elements to a byte */
    UL_OP_RANKS = 1u << 19,      /* its integers say which element is the largest or smallest */
    UL_OP_WEIGHS = 1u << 20, /* makes weights from scores: best never stored, but part of what adds
                                up with them */
    UL_OP_MOVES_ROWS = 1u << 21, /* a map each of whose rows along the last axis is a row of its
                                    input */
    UL_OP_READS_ROWS = 1u << 22, /* each of its rows along the last axis is made from the row of
                                    input 0 at its own place, which may be read elsewhere as well */
    UL_OP_WALKS = 1u << 23,      /* reads elements of input 0 again and again, wherever the path
                                    leads: best made before */
    UL_OP_STORES_ROWS =
        1u << 24, /* may store each row of the last axis of its results anywhere in memory */
    UL_OP_LOADS_ONCE =
        1u << 25, /* adds up elements of inputs of full shape, each of which it loads once */
    UL_OP_BRANCHES = 1u << 26,  /* owns blocks of which one runs: If */
    UL_OP_COUNTS = 1u << 27,    /* owns a body that runs until a count or a condition, inputs 0 and
                                   1, ends it: Loop */
    UL_OP_QUANTIZES = 1u << 28, /* rounds to integers of a scale, so that a rounding more or less
                                   is a step of those */
    UL_OP_LOOKS_UP = 1u << 17   /* input 0 is read as an elementwise operator's, the others
                                   wherever its elements say */
};

/* Sets the types (and, where known, the constant values) of a node's outputs. */
typedef enum ul_status ul_infer_fn(struct ul_infer *infer);
/* The expression of output `output` at `index` (rank entries, element coordinates). Loads must be
 * in bounds for every index value, taken branch or not. */
typedef ul_kx ul_map_fn(struct ul_lower *lower, ul_node_id node, uint32_t output,
                        const ul_kx *index);
/* Builds the loops of a node that is not a map; loads and stores through ir/lower.h. */
typedef void ul_lower_fn(struct ul_lower *lower, ul_node_id node);
/* The output as a view of input 0's view: fills `view` and returns true, or returns false where
 * the layout does not permit it and a copy must be made. */
typedef bool ul_view_fn(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                        const struct ul_view *input, struct ul_view *view);

/* Fills in the answer; false where slices along that axis cannot be computed apart. A slice's
 * elements must be formed exactly as those of the whole are: the same numbers are combined by the
 * same operations in the same order. */
typedef bool ul_split_rule_fn(struct ul_split_rule *split);

/* Gives the gradients of a node's inputs, with the functions of ir/gradient.h; UL_UNSUPPORTED, with
 * the reason, where these attributes or inputs have no rule. */
typedef enum ul_status ul_gradient_fn(struct ul_gradient *gradient);

/* Bits of inputs or outputs, from 0 on; the last bit stands for all that follow. */
#define UL_EXACT(place) (1u << (place))
#define UL_EXACT_ALL UINT32_MAX

enum { UL_OP_GRADIENTS = 3 };

struct ul_op_info {
    const char *name;
    const char *domain; /* NULL: ai.onnx */
    uint32_t min_inputs, max_inputs;
    uint32_t min_outputs, max_outputs;
    uint32_t flags;
    /* What is not rounded to 16 bits in memory (passes/memory/precision.c): inputs that decide
     * something, or are applied to every element; outputs that many elements were reduced to. */
    uint32_t exact_inputs, exact_outputs;
    /* Inputs that it multiplies itself, maybe by what it makes (R by h): in programs that train in
     * 16 bits they are rounded as the factors of UL_OP_MULTIPLIES are, and so is what it makes, to
     * the type of its attribute "round_to". */
    uint32_t factors;
    ul_infer_fn *infer;
    const char *expression; /* of an elementwise operator, over inputs a b c and attributes; see
                               ir/README.md */
    ul_map_fn *map;         /* generated from the expression when NULL and expression is set */
    ul_lower_fn *lower;     /* for what is not a map */
    ul_view_fn *view;
    ul_view_fn *place; /* the other way round: gives the view of input 0 with which the output has
                          this view */
    ul_split_rule_fn *split; /* elementwise operators need none */
    /* For an elementwise operator, the gradient of each input as an expression over the output's
     * gradient g, the inputs a b c and the output y, at the output's index. "0": none flows. */
    const char *gradients[UL_OP_GRADIENTS];
    /* All that such a text asks of a b c and y, if that is a condition, which the text calls m. */
    const char *masks[UL_OP_GRADIENTS];
    ul_gradient_fn *gradient; /* for what such expressions cannot say */
    /* Why it has neither, for each operator that models have without one. */
    const char *not_differentiable;
    uint32_t fixed_inputs; /* bits of inputs that are no numbers to train: bounds, sizes, ratios */
    /* For an elementwise operator that keeps the order of the elements of input 0, bit for bit: the
     * attribute that must not be negative for that, or "". */
    const char *monotone;
    uint32_t slope_inputs; /* for an elementwise operator: inputs that are trained also where
                              they are one number */
};

/* The row of an operator; rows are constant. */
const struct ul_op_info *ul_op_get(ul_op_id op);
/* Whether it computes each element from those at the same place, or moves it. */
bool ul_op_is_map(ul_op_id op);
/* Operators have the ids from 1 to less than this. */
ul_op_id ul_op_end(void);
/* Whether it has a gradient rule, for one of its inputs at least. */
bool ul_op_has_gradient(ul_op_id op);
/* By ONNX name and domain ("" and "ai.onnx" are the same); UL_OP_NONE when unsupported. */
ul_op_id ul_op_find(const char *domain, const char *name);

/* ops/random/random.c: lets node `to` draw what `from` draws, also in a loop that is unrolled
 * later. */
void ul_op_copy_seed(struct ul_graph *graph, ul_node_id to, const struct ul_node *from);

#endif
