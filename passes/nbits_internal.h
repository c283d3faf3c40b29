/* What the files of pass nbits share: dequantized constants, and numbers of a few bits in rows.
 * Ownership: what is packed is the graph's. */
#ifndef UL_NBITS_INTERNAL_H
#define UL_NBITS_INTERNAL_H

#include "passes/passes_internal.h"

/* DequantizeLinear of a constant. */
struct ul_nbits_source {
    const struct ul_node *node;
    ul_value_id inputs[3]; /* constants, which may have other dimensions than the node's */
    const struct ul_tensor *codes, *scales, *zeros; /* zeros NULL: none */
    enum ul_dtype packed;                           /* U8, or the floats of 8 bits that codes are */
    bool is_float, is_e2m1;
    uint32_t rank, block_axis;
    int64_t block;                     /* 0: a scale for each index, or one, of every axis */
    int64_t scale_dims[UL_LIMIT_RANK]; /* of scales, as many as codes have; 1: for all */
    int64_t bits, shift;               /* `shift` is added to codes: none is negative */
};

/* nbits_source.c */

/* False: nothing that is read packed. */
bool ul_nbits_source_read(const struct ul_graph *graph, ul_value_id value,
                          struct ul_nbits_source *source);
/* Of the element at[rank]. */
uint32_t ul_nbits_source_code(const struct ul_nbits_source *source, const int64_t *at);
uint64_t ul_nbits_source_scale(const struct ul_nbits_source *source, const int64_t *at);
/* Code number `at` of codes or of zero points. */
uint32_t ul_nbits_source_entry(const struct ul_nbits_source *source, const struct ul_tensor *tensor,
                               uint64_t at);

/* What is packed: rows of `count` numbers of `bits` bits, each row from a byte on. */
struct ul_nbits_packer {
    unsigned char *bytes;
    int64_t row_bytes, bits;
};
struct ul_nbits_packer ul_nbits_packer_new(struct ul_graph *graph, int64_t rows, int64_t count,
                                           int64_t bits);
void ul_nbits_packer_put(struct ul_nbits_packer *packer, int64_t row, int64_t at, uint32_t number);
/* A weight with the name of `like`. */
ul_value_id ul_nbits_add_weight(struct ul_graph *graph, ul_value_id like, enum ul_dtype dtype,
                                uint32_t rank, const int64_t *dims, const void *bytes);

/* nbits_forms.c: a product that is not plain becomes plain ones of the matrices that it reads, in
 * `made`, and what stands around them; false: it is left as it is. */
bool ul_nbits_make_plain(struct ul_pass *pass, ul_node_id id, struct ul_node_list *made);

#endif
