/* Hooks of the conv family, and the geometry that they share.
 *
 * Units: elements. Failure: ul_conv_read gives the reason as text for shapes and attributes that
 * do not fit together; after it succeeded, no sum or product of its numbers overflows.
 */
#ifndef UL_OPS_CONV_H
#define UL_OPS_CONV_H

#include "ir/lower.h"

#define UL_CONV_SPATIAL 3 /* 1-D to 3-D */

/* One convolution as the contraction sees it. */
struct ul_conv {
    uint32_t spatial;
    int64_t batch, groups;
    int64_t in_channels, out_channels; /* per group */
    int64_t in[UL_CONV_SPATIAL], out[UL_CONV_SPATIAL], kernel[UL_CONV_SPATIAL];
    int64_t stride[UL_CONV_SPATIAL], dilation[UL_CONV_SPATIAL];
    int64_t pad_begin[UL_CONV_SPATIAL], pad_end[UL_CONV_SPATIAL];
};

/* conv_shape.c: reads attributes and shapes; NULL or what is wrong with them. */
const char *ul_conv_read(struct ul_conv *conv, const struct ul_node *node, const struct ul_type *x,
                         const struct ul_type *w);
/* The same for ConvTranspose: `in` is the input's size, `out` the result's. */
const char *ul_conv_transpose_read(struct ul_conv *conv, const struct ul_node *node,
                                   const struct ul_type *x, const struct ul_type *w);
/* The type of the result of `conv` with dtype `dtype`. */
struct ul_type ul_conv_result(const struct ul_conv *conv, enum ul_dtype dtype);

/* conv_lower.c: what changes between Conv and its quantised forms. */
struct ul_conv_operands {
    enum ul_dtype acc_dtype;
    ul_value_id x, w;
    ul_value_id x_zero, w_zero; /* subtracted from what is loaded; UL_NONE: nothing is */
};
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
ul_kx ul_conv_add_bias(struct ul_lower *lower, ul_node_id node, uint32_t bias_input, ul_kx channel,
                       ul_kx sum);

/* conv_cut.c */
ul_cut_fn ul_cut_conv, ul_cut_conv_transpose, ul_cut_qlinear_conv;

ul_infer_fn ul_infer_conv, ul_infer_conv_transpose, ul_infer_deform_conv;
ul_infer_fn ul_infer_conv_integer, ul_infer_qlinear_conv;
ul_lower_fn ul_lower_conv, ul_lower_conv_transpose, ul_lower_deform_conv;
ul_lower_fn ul_lower_conv_integer, ul_lower_qlinear_conv;

#endif
