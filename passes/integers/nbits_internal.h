/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes that handle weights of a few bits share: dequantized constants, and numbers of a
 * few bits in rows. Ownership: packed bytes are the graph's. */
#ifndef UL_NBITS_INTERNAL_H
#define UL_NBITS_INTERNAL_H

#include "ir/build.h"
#include "passes/passes_internal.h"

/* A constant that is scaled, or that floats are made from. */
struct ul_nbits_source {
    const struct ul_node *node; /* the node that scales it: DequantizeLinear, Dequantize, Mul;
                                   NULL: none */
    ul_value_id inputs[3];      /* constants, which may have other dimensions than the node's */
    const struct ul_tensor *codes, *scales, *zeros; /* scales, zeros NULL: none */
    enum ul_dtype packed;                           /* U8, or the type of floats that codes are */
    bool is_float, is_e2m1;
    uint32_t
        axes[UL_LIMIT_RANK];     /* dimension d of what is read is dimension axes[d] of the codes */
    int64_t span[UL_LIMIT_RANK]; /* how many codes side by side along an axis have one scale */
    int64_t bits, shift;         /* `shift` is added to codes: none is negative */
};

/* nbits_source.c */

/* False: it is nothing that is read packed. */
bool ul_nbits_source_read(const struct ul_graph *graph, ul_value_id value,
                          struct ul_nbits_source *source);
/* A Cast makes floats of it, not a DequantizeLinear. */
bool ul_nbits_is_cast(const struct ul_nbits_source *source);
/* Element `at` of the codes, or of zero points. */
uint32_t ul_nbits_source_entry(const struct ul_nbits_source *source, const struct ul_tensor *tensor,
                               uint64_t at);
/* The place among codes, and among scales, of the code with index at[rank]. */
uint64_t ul_nbits_source_code(const struct ul_nbits_source *source, const int64_t *at);
uint64_t ul_nbits_source_scale(const struct ul_nbits_source *source, const int64_t *at);
/* How many scales there are along an axis. */
int64_t ul_nbits_source_scales(const struct ul_nbits_source *source, uint32_t axis);
/* The types of floats that a dequantized constant may have. */
bool ul_nbits_is_float(enum ul_dtype dtype);

/* nbits_turn.c */

/* What leads from the constant to the value is read by nothing else, and the value by a product
 * alone. `uses` as ul_graph_count_uses has them. */
bool ul_nbits_is_alone(const struct ul_graph *graph, const struct ul_nbits_source *source,
                       ul_value_id value, const uint32_t *uses);
/* Floats of `type` from codes, scales and zero points in other dimensions, made as the source's
 * are; UL_NONE: the source is not of that kind. Not for DequantizeLinear. */
ul_value_id ul_nbits_widen(struct ul_build *build, const struct ul_nbits_source *source,
                           const struct ul_type *type, const ul_value_id *inputs);
/* Stores a constant in the order in which it is read, where it is not stored so yet and nothing
 * else reads it: with columns side by side where a product reads it as its second operand, or in a
 * convolution's order. True: it was turned. */
bool ul_nbits_turn(struct ul_graph *graph, ul_node_id id, const struct ul_nbits_source *source,
                   const uint32_t *uses);

/* Packed weights: rows of `count` numbers of `bits` bits, each row beginning a new byte. */
struct ul_nbits_packer {
    unsigned char *bytes;
    int64_t row_bytes, bits;
};
struct ul_nbits_packer ul_nbits_packer_new(struct ul_graph *graph, int64_t rows, int64_t count,
                                           int64_t bits);
void ul_nbits_packer_put(struct ul_nbits_packer *packer, int64_t row, int64_t at, uint32_t number);
/* Packs `count` elements of the codes, or of zero points, from `first` on, `step` apart. */
void ul_nbits_pack_run(const struct ul_nbits_source *source, const struct ul_tensor *tensor,
                       uint64_t first, int64_t step, int64_t count, unsigned char *row);
/* A number that depends on the elements from `first` on: equal constants have the same. */
uint64_t ul_nbits_hash(const struct ul_tensor *tensor, uint64_t first);
/* Writes eight bytes, `step` apart, by which pass cse tells weights apart whose bytes are not all
 * made. Each byte is a valid code, and a valid part of a scale of any type. */
void ul_nbits_mark(uint64_t number, unsigned char *bytes, uint32_t step);
/* A weight with the name of `like`, from bytes that live as long as the graph. */
ul_value_id ul_nbits_add_weight(struct ul_graph *graph, ul_value_id like, enum ul_dtype dtype,
                                uint32_t rank, const int64_t *dims, const void *bytes);

#endif
