/* SPDX-License-Identifier: Apache-2.0 */
/* More checks for shape rules, and wider sets of element types, besides check.h. */
#ifndef UL_OPS_REQUIRE_H
#define UL_OPS_REQUIRE_H

#include "ir/ops/check.h"

#define UL_SET_FLOAT UL_CHECK_FLOATS
#define UL_SET_SIGNED                                                                              \
    (UL_CHECK_BIT(UL_I8) | UL_CHECK_BIT(UL_I16) | UL_CHECK_BIT(UL_I32) | UL_CHECK_BIT(UL_I64))
#define UL_SET_UNSIGNED                                                                            \
    (UL_CHECK_BIT(UL_U8) | UL_CHECK_BIT(UL_U16) | UL_CHECK_BIT(UL_U32) | UL_CHECK_BIT(UL_U64))
#define UL_SET_INTEGER (UL_SET_SIGNED | UL_SET_UNSIGNED)
#define UL_SET_NUMBER UL_CHECK_NUMBERS
#define UL_SET_BOOL UL_CHECK_BIT(UL_BOOL)
#define UL_SET_FLOAT8                                                                              \
    (UL_CHECK_BIT(UL_F8E4M3FN) | UL_CHECK_BIT(UL_F8E4M3FNUZ) | UL_CHECK_BIT(UL_F8E5M2) |           \
     UL_CHECK_BIT(UL_F8E5M2FNUZ))
#define UL_SET_FEW_BIT_FLOATS                                                                      \
    (UL_CHECK_BIT(UL_F4E2M1) | UL_CHECK_BIT(UL_F6E2M3) | UL_CHECK_BIT(UL_F6E3M2))
#define UL_SET_FEW_BITS                                                                            \
    (UL_CHECK_BIT(UL_U4) | UL_CHECK_BIT(UL_I4) | UL_CHECK_BIT(UL_U2) | UL_CHECK_BIT(UL_I2) |       \
     UL_SET_FEW_BIT_FLOATS)
#define UL_SET_SCALE UL_CHECK_BIT(UL_F8E8M0)
#define UL_SET_ANY (UL_SET_NUMBER | UL_SET_BOOL | UL_SET_FLOAT8 | UL_SET_FEW_BITS | UL_SET_SCALE)

/* Every input is present: for variadic operators, which have no optional ones. */
enum ul_status ul_require_inputs(const struct ul_infer *infer) UL_MUST_CHECK;
/* The attribute `name`, or `otherwise` where the node has none, is a type of `set`. */
enum ul_status ul_require_dtype(const struct ul_infer *infer, const char *name,
                                enum ul_dtype otherwise, uint32_t set,
                                enum ul_dtype *out) UL_MUST_CHECK;
/* The attribute `name`, or the first choice where the node has none, is one of the choices (a
 * list that ends with NULL); `*index` is which. */
enum ul_status ul_require_choice(const struct ul_infer *infer, const char *name,
                                 const char *const *choices, uint32_t *index) UL_MUST_CHECK;
/* A present input is known at compile time. */
enum ul_status ul_require_constant(const struct ul_infer *infer, uint32_t input) UL_MUST_CHECK;

/* `dims` are those of a tensor within the limits of each dimension. */
enum ul_status ul_require_dims(const struct ul_infer *infer, const int64_t *dims,
                               uint32_t count) UL_MUST_CHECK;
/* `axes` are axes of a tensor of `rank`, each named once; *set has a bit for each. */
enum ul_status ul_require_axes(const struct ul_infer *infer, const int64_t *axes, uint32_t count,
                               uint32_t rank, uint32_t *set) UL_MUST_CHECK;

/* Which choice an attribute holds, once the rule has required it. */
uint32_t ul_node_choice(const struct ul_node *node, const char *name, const char *const *choices);

#endif
