/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that the shape rules of several families share. Each sets a message that names the node
 * and says what is expected, and returns UL_INVALID or UL_UNSUPPORTED. */
#ifndef UL_OPS_CHECK_H
#define UL_OPS_CHECK_H

#include "ir/infer.h"
#include "ir/lower.h"

/* Sets of dtypes, as bits. */
#define UL_CHECK_BIT(dtype) (1u << (unsigned)(dtype))
#define UL_CHECK_FLOATS                                                                            \
    (UL_CHECK_BIT(UL_F16) | UL_CHECK_BIT(UL_BF16) | UL_CHECK_BIT(UL_F32) | UL_CHECK_BIT(UL_F64))
#define UL_CHECK_WIDE_INTS                                                                         \
    (UL_CHECK_BIT(UL_U32) | UL_CHECK_BIT(UL_U64) | UL_CHECK_BIT(UL_I32) | UL_CHECK_BIT(UL_I64))
#define UL_CHECK_NUMBERS                                                                           \
    (UL_CHECK_FLOATS | UL_CHECK_WIDE_INTS | UL_CHECK_BIT(UL_U8) | UL_CHECK_BIT(UL_I8) |            \
     UL_CHECK_BIT(UL_U16) | UL_CHECK_BIT(UL_I16))
#define UL_CHECK_INDEXES (UL_CHECK_BIT(UL_I32) | UL_CHECK_BIT(UL_I64))

/* An absent optional input passes the first four. */
enum ul_status ul_check_dtype(const struct ul_infer *infer, uint32_t input,
                              uint32_t allowed) UL_MUST_CHECK;
enum ul_status ul_check_same_dtype(const struct ul_infer *infer, uint32_t a,
                                   uint32_t b) UL_MUST_CHECK;
enum ul_status ul_check_shape(const struct ul_infer *infer, uint32_t input, uint32_t rank,
                              const int64_t *dims) UL_MUST_CHECK;
/* One element, of rank 0 or 1. */
enum ul_status ul_check_scalar(const struct ul_infer *infer, uint32_t input) UL_MUST_CHECK;
enum ul_status ul_check_rank(const struct ul_infer *infer, uint32_t input, uint32_t min,
                             uint32_t max) UL_MUST_CHECK;
/* `what` names the number in the message. */
enum ul_status ul_check_range(const struct ul_infer *infer, const char *what, int64_t value,
                              int64_t low, int64_t high) UL_MUST_CHECK;
/* The one integer of a constant input; `otherwise` where it is absent. */
enum ul_status ul_check_int(const struct ul_infer *infer, uint32_t input, int64_t otherwise,
                            int64_t *value) UL_MUST_CHECK;
/* Reads an attribute of `count` integers, each at least `low` and below 2^31, so that products with
 * a dimension stay far inside int64_t; `otherwise` for each when the node has none. False when it
 * does not hold such integers. */
bool ul_check_read_ints(const struct ul_node *node, const char *name, uint32_t count,
                        int64_t otherwise, int64_t low, int64_t *out);

/* The functions with which lowering reads again what the rule has checked. */

const struct ul_node *ul_check_node(const struct ul_lower *lower, ul_node_id node);
/* An axis that the rule has found valid, counted from the front. */
uint32_t ul_check_get_axis(int64_t axis, uint32_t rank);
/* The constant integer `at` of an input. */
int64_t ul_check_get_int(const struct ul_lower *lower, ul_node_id node, uint32_t input,
                         uint64_t at);

#endif
