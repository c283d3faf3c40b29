/* SPDX-License-Identifier: Apache-2.0 */
/* What LinearAttention and its gradient share. Units: elements. */
#ifndef UL_OPS_ATTENTION_LINEAR_H
#define UL_OPS_ATTENTION_LINEAR_H

#include "ir/ops/hooks.h"

enum ul_linear_input {
    UL_LINEAR_QUERY,
    UL_LINEAR_KEY,
    UL_LINEAR_VALUE,
    UL_LINEAR_PAST,
    UL_LINEAR_DECAY,
    UL_LINEAR_BETA,
    /* for the gradient: those of the output and of the last state */
    UL_LINEAR_G_OUTPUT,
    UL_LINEAR_G_PRESENT,
    UL_LINEAR_GRADIENT_INPUTS
};

/* HEAD counts the heads of keys; ROW and COLUMN are those of a head's state. */
enum ul_linear_dim {
    UL_LINEAR_BATCH,
    UL_LINEAR_HEAD,
    UL_LINEAR_TOKEN,
    UL_LINEAR_ROW,
    UL_LINEAR_COLUMN,
    UL_LINEAR_DIMS
};

struct ul_linear {
    int64_t dims[UL_LINEAR_DIMS];
    int64_t group; /* heads of queries for each head of keys */
    bool is_gated, is_delta;
    bool decays_rows, shares_beta; /* a decay for each row of S; one beta for all heads */
    double scale;
};

/* The types must fit each other. */
void ul_linear_read(struct ul_linear *linear, const struct ul_node *node,
                    const struct ul_type *query, const struct ul_type *value,
                    const struct ul_type *decay, const struct ul_type *beta);

#endif
