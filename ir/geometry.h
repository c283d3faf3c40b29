/* SPDX-License-Identifier: Apache-2.0 */
/* The geometry of operators with windows and of products, read from shapes and attributes.
 *
 * Units: elements. Failure: the reason as text, for shapes and attributes that do not fit together;
 * after success, no sum or product of the numbers overflows. */
#ifndef UL_IR_GEOMETRY_H
#define UL_IR_GEOMETRY_H

#include "ir/graph.h"

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

#define UL_POOL_DIMS (UL_LIMIT_RANK - 2)

/* Where the windows of a pooling operator lie, per spatial dimension, in elements: window o covers
 * o * stride - pad_begin + t * dilation for t in [0, kernel). */
struct ul_pool {
    uint32_t count; /* of spatial dimensions */
    int64_t in[UL_POOL_DIMS], out[UL_POOL_DIMS];
    int64_t kernel[UL_POOL_DIMS], stride[UL_POOL_DIMS], dilation[UL_POOL_DIMS];
    int64_t pad_begin[UL_POOL_DIMS], pad_end[UL_POOL_DIMS];
};

/* pool_shape.c: reads kernel_shape, strides, dilations, pads, auto_pad and ceil_mode for an input
 * of shape `type`. NULL when all is well, else what is wrong. */
const char *ul_pool_read(const struct ul_node *node, const struct ul_type *type,
                         struct ul_pool *pool);

/* numpy.matmul of two shapes: result[batch..., rows, columns]. */
struct ul_matmul {
    struct ul_type batch; /* broadcast leading dimensions */
    int64_t rows, columns, depth;
    bool a_is_vector, b_is_vector; /* rows or columns then is 1, and is no dimension of the
                                      result */
    bool b_has_batch;              /* more than one matrix */
    uint32_t loop_count;           /* around the contraction, once it is open */
};

/* matmul_shape.c: NULL, or what is wrong with the shapes. */
const char *ul_matmul_read(struct ul_matmul *matmul, const struct ul_type *a,
                           const struct ul_type *b);
struct ul_type ul_matmul_result(const struct ul_matmul *matmul, enum ul_dtype dtype);

/* com.microsoft's MatMulNBits: rows of a times the columns of a matrix of `bits` each, which are
 * packed one column after the other, the first in the lowest bits of a byte; one scale, and maybe
 * a zero point, for each block of a column. */
struct ul_nbits {
    int64_t depth, columns; /* K and N */
    int64_t bits, block, block_count;
    int64_t block_bytes;               /* bytes of a packed block; for 16 bits, of its weights */
    int64_t scale_k, scale_n;          /* how many weights of a column, and how many columns,
                                          have one scale */
    int64_t scale_rows, scale_columns; /* scales along k and along n */
    int64_t zero;                      /* where there are no zero points */
    bool zeros_packed;   /* each column's from a byte on, as the weights are; else they are
                            numbers */
    bool is_e2m1;        /* floats of 4 bits, from which nothing is subtracted */
    bool by_block;       /* scales and zero points are in rows of a block, not of a column */
    bool in_bytes;       /* a may be rounded to 8 bits, with a scale for each block:
                            accuracy_level 4 */
    enum ul_dtype dtype; /* of the stored weights: u8, or a float of 8 or 16 bits */
};

enum ul_attention_input {
    UL_ATTENTION_Q,
    UL_ATTENTION_K,
    UL_ATTENTION_V,
    UL_ATTENTION_MASK,
    UL_ATTENTION_PAST_K,
    UL_ATTENTION_PAST_V,
    UL_ATTENTION_LENGTHS,
    UL_ATTENTION_BIAS,     /* FusedAttention: a sum that is added beside the mask */
    UL_ATTENTION_STEP_KEY, /* likewise: the key by which weights are dropped */
    UL_ATTENTION_INPUTS
};

/* The inputs of AttentionGradient after those of attention: the gradient of the result; then the
 * norm of each query and its sum of g Y, both or neither; and then the result Y, where pass library
 * gives it to a call of a library. */
enum {
    UL_ATTENTION_GRADIENT = UL_ATTENTION_INPUTS,
    UL_ATTENTION_GIVEN_NORMS,
    UL_ATTENTION_GIVEN_SUMS,
    UL_ATTENTION_GIVEN_RESULT,
    UL_ATTENTION_GRADIENT_INPUTS
};

/* Output of FusedAttention that a gradient reads, f32 [batch, heads, queries]: the logarithm of the
 * sum over keys of exp(score). A query without keys has 0 where it gives zeros; where a NaN gives
 * zeros, such a query has infinity. */
enum { UL_ATTENTION_NORMS = 1 };

/* What a query that sees no key gives. */
enum ul_attention_empty {
    UL_EMPTY_IS_NAN,  /* NaN, as a softmax of the whole row does */
    UL_EMPTY_IS_ZERO, /* zeros: Attention of ai.onnx */
    UL_NAN_IS_ZERO    /* zeros, and zeros also for a query one of whose weights is NaN:
                         Where(IsNaN(softmax)) */
};

/* One attention, whatever the rank of its operands. */
struct ul_attention {
    bool is_flat;                 /* operands are [batch, sequence, heads * size] */
    int64_t batch, heads, groups; /* groups: heads of keys and values */
    int64_t queries, keys, past;  /* lengths; `keys` without the past */
    int64_t size, value_size;     /* of a head */
    double scale, softcap;
    bool is_causal;
    bool drops;   /* drops weights, as Drop drops elements of their matrix */
    double ratio; /* the part of the weights that are dropped */
    /* There are as many valid keys as `lengths` says, and the last query is at the last of them:
     * what a causal query sees is counted from there. */
    bool ends_at_length;
    enum ul_attention_empty empty;
    int64_t scores_mode; /* qk_matmul_output_mode */
    uint32_t order[4];   /* the output's dimensions, of [batch, head, query, element] */
};

/* attention_shape.c: NULL, or what is wrong. `types` are those of the inputs, NULL where absent. */
const char *ul_attention_read(struct ul_attention *attention, const struct ul_node *node,
                              const struct ul_type *const types[UL_ATTENTION_INPUTS]);

/* Output UL_ATTENTION_NORMS, or UL_NONE: other forms of attention have none. */
uint32_t ul_attention_norms(const struct ul_node *node);

/* How many keys there are, with those of the past. */
int64_t ul_attention_total(const struct ul_attention *attention);

/* The most neighbours that an output of a ResizeInteger has, over all axes. */
#define UL_RESIZE_TAPS 64

/* An attribute that pass nbits sets on a MatMul or Gemm: its own kernel widens a constant while it
 * loads it. A library would need the constant widened in memory, in every run. */
#define UL_NBITS_LOADS "loads_codes"
enum { UL_NBITS_A, UL_NBITS_B, UL_NBITS_SCALES, UL_NBITS_ZEROS, UL_NBITS_GROUPS, UL_NBITS_BIAS };

/* nbits.c: reads attributes and the types of the inputs, where NULL is an absent one. Gives NULL,
 * or what is wrong with them. */
const char *ul_nbits_read(struct ul_nbits *nbits, const struct ul_node *node,
                          const struct ul_type *const types[6]);

#endif
