/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of the conv family share. */
#ifndef UL_OPS_CONV_H
#define UL_OPS_CONV_H

#include "ir/geometry.h"
#include "ir/ops/conv/conv.def"

/* conv_lower.c: what changes between Conv and its quantised forms. */
struct ul_conv_operands {
    enum ul_dtype acc_dtype;
    ul_value_id x, w;
    ul_value_id x_zero, w_zero; /* subtracted from what is loaded; UL_NONE: nothing is */
    double pad_value;           /* what x is padded with */
};
/* True where the windows of dimension `d` reach beyond the input. */
bool ul_conv_can_leave(const struct ul_conv *conv, uint32_t d);
/* Opens the parallel loops over batch and group, builds the contraction and opens its epilogue;
 * fills the index of the output element (batch, channel, spatial) and returns the sum. Close with
 * ul_conv_close. */
ul_kx ul_conv_open(struct ul_lower *lower, const struct ul_conv *conv,
                   const struct ul_conv_operands *operands, ul_kx index[2 + UL_CONV_SPATIAL]);
void ul_conv_close(struct ul_lower *lower);
/* Makes `operand` subtract zero-point `zero` (a scalar, or one per channel: entry `channel`). */
void ul_operand_subtract(struct ul_lower *lower, struct ul_contraction *contraction,
                         struct ul_operand *operand, ul_value_id zero, ul_kx channel);

/* What the floating-point forms share: the types of input, weight and bias; the bias' shape; the
 * sum with the bias of `channel` where there is one. */
enum ul_status ul_conv_check_types(const struct ul_infer *infer, uint32_t bias_input) UL_MUST_CHECK;
enum ul_status ul_conv_check_bias(const struct ul_infer *infer, const struct ul_conv *conv,
                                  uint32_t bias_input) UL_MUST_CHECK;
typedef const char *ul_conv_read_fn(struct ul_conv *conv, const struct ul_node *node,
                                    const struct ul_type *x, const struct ul_type *w);
enum ul_status ul_conv_infer(struct ul_infer *infer, ul_conv_read_fn *read) UL_MUST_CHECK;
ul_kx ul_conv_add_bias(struct ul_lower *lower, ul_node_id node, uint32_t bias_input, ul_kx channel,
                       ul_kx sum);

#endif
