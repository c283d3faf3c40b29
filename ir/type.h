/* SPDX-License-Identifier: Apache-2.0 */
/* Types of values: what an element is, and how many there are.
 *
 * Units: dims count elements, sizes bytes. limits.h keeps both in range.
 */
#ifndef UL_IR_TYPE_H
#define UL_IR_TYPE_H

#include "base/base.h"

/* Numbered as ONNX's TensorProto.DataType. Types of 2, 4 and 6 bits take one byte an element here,
 * sign-extended where signed. */
enum ul_dtype {
    UL_DTYPE_NONE = 0,
    UL_F32 = 1,
    UL_U8 = 2,
    UL_I8 = 3,
    UL_U16 = 4,
    UL_I16 = 5,
    UL_I32 = 6,
    UL_I64 = 7,
    UL_STRING = 8, /* never computed with; named in messages */
    UL_BOOL = 9,
    UL_F16 = 10,
    UL_F64 = 11,
    UL_U32 = 12,
    UL_U64 = 13,
    UL_C64 = 14,
    UL_C128 = 15,
    UL_BF16 = 16,
    UL_F8E4M3FN = 17,
    UL_F8E4M3FNUZ = 18,
    UL_F8E5M2 = 19,
    UL_F8E5M2FNUZ = 20,
    UL_U4 = 21,
    UL_I4 = 22,
    UL_F4E2M1 = 23,
    UL_F8E8M0 = 24, /* a power of two: a scale, without a sign and without 0 */
    UL_U2 = 25,
    UL_I2 = 26,
    UL_F6E2M3 = 27,
    UL_F6E3M2 = 28,
    UL_DTYPE_COUNT = 29
};

#define UL_RANK_UNKNOWN UINT32_MAX

struct ul_type {
    enum ul_dtype dtype;
    uint32_t rank; /* UL_RANK_UNKNOWN before inference */
    int64_t dims[UL_LIMIT_RANK];
};

/* dtype.c */

struct ul_dtype_info {
    const char *name; /* "f32" */
    uint32_t size_bytes;
    uint32_t bits; /* of an element where it is packed: ONNX packs below 8 */
    bool is_float, is_signed, is_integer;
};
const struct ul_dtype_info *ul_dtype_get(enum ul_dtype dtype);
/* False: strings and complex numbers exist in files alone. */
bool ul_dtype_is_computed(enum ul_dtype dtype);
bool ul_dtype_is_8bit(enum ul_dtype dtype); /* an integer of 8 bits */
bool ul_dtype_is_half(enum ul_dtype dtype); /* a float of 16 bits */
bool ul_dtype_is_wide(enum ul_dtype dtype); /* a float of 32 or 64 bits */
bool ul_dtype_is_real(enum ul_dtype dtype); /* a float of 16, 32 or 64 bits */
/* The ends of integers of at most 16 bits, in which scaled values are kept; false for others. */
bool ul_dtype_range(enum ul_dtype dtype, int64_t *low, int64_t *high);
/* The largest finite number of a float type. */
double ul_dtype_largest(enum ul_dtype dtype);
/* UL_DTYPE_NONE when there is no such name. */
enum ul_dtype ul_dtype_find(const char *name);

/* Elements of a known type, and their bytes; limits.h keeps both in range. */
uint64_t ul_type_elements(const struct ul_type *type);
uint64_t ul_type_bytes(const struct ul_type *type);
/* Its bytes as ONNX stores them: elements below 8 bits without a gap, the first in the low bits. */
uint64_t ul_type_packed_bytes(const struct ul_type *type);
bool ul_type_has_dims(const struct ul_type *type, uint32_t rank, const int64_t *dims);
bool ul_type_equal(const struct ul_type *a, const struct ul_type *b);
/* Both ranks must be known. */
bool ul_type_same_dims(const struct ul_type *a, const struct ul_type *b);
bool ul_type_known(const struct ul_type *type);
/* Within UL_LIMIT_DIM and UL_LIMIT_TENSOR_BYTES. */
bool ul_type_in_limits(const struct ul_type *type);
struct ul_type ul_type_make(enum ul_dtype dtype, uint32_t rank, const int64_t *dims);
/* "f32[1,3,224,224]" */
void ul_type_print(struct ul_text *text, const struct ul_type *type);
const char *ul_type_text(struct ul_arena *arena, const struct ul_type *type);

#endif
