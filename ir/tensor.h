/* SPDX-License-Identifier: Apache-2.0 */
/* Constants: reading and making them. Their bytes may be borrowed from a mapped file. */
#ifndef UL_IR_TENSOR_H
#define UL_IR_TENSOR_H

#include "ir/type.h"

/* A constant. `data` holds the dense little-endian elements, maybe unaligned (read it through
 * memcpy); NULL means that every element equals `splat`, of one element's size. */
struct ul_tensor {
    struct ul_type type;
    const unsigned char *data;
    unsigned char splat[16];
};

/* tensor.c: reading and making constants. */

/* Element `index` of an integer or bool tensor, or of a float one. */
int64_t ul_tensor_get_int(const struct ul_tensor *tensor, uint64_t index);
double ul_tensor_get_float(const struct ul_tensor *tensor, uint64_t index);
/* Encodes one element; integers wrap, floats round to nearest even. */
void ul_element_put_int(unsigned char *place, enum ul_dtype dtype, int64_t value);
void ul_element_put_float(unsigned char *place, enum ul_dtype dtype, double value);
int64_t ul_element_get_int(const unsigned char *place, enum ul_dtype dtype);
double ul_element_get_float(const unsigned char *place, enum ul_dtype dtype);
struct ul_tensor *ul_tensor_new(struct ul_arena *arena, const struct ul_type *type,
                                const void *data);
/* ul_tensor_of does not copy the elements, which must live as long as the arena. */
struct ul_tensor *ul_tensor_of(struct ul_arena *arena, const struct ul_type *type,
                               const void *data);
struct ul_tensor *ul_tensor_new_ints(struct ul_arena *arena, enum ul_dtype dtype, uint32_t rank,
                                     const int64_t *dims, const int64_t *values);
struct ul_tensor *ul_tensor_new_floats(struct ul_arena *arena, const struct ul_type *type,
                                       const double *values);
struct ul_tensor *ul_tensor_new_splat(struct ul_arena *arena, const struct ul_type *type,
                                      const void *element);
/* Copies elements [begin, begin + count) to `out` as dense bytes. */
void ul_tensor_read(const struct ul_tensor *tensor, uint64_t begin, uint64_t count,
                    unsigned char *out);
/* All elements of a type below 8 bits as ONNX stores them: ul_type_packed_bytes of its type. */
void ul_tensor_pack(const struct ul_tensor *tensor, unsigned char *out);
/* Reads all elements as they are in memory: `storage` is the tensor's dtype, or 16 bits for an f32,
 * rounded to nearest even. */
void ul_tensor_read_as(const struct ul_tensor *tensor, enum ul_dtype storage, uint64_t begin,
                       uint64_t count, unsigned char *out);

#endif
