/* SPDX-License-Identifier: 0BSD */
/*
 * One call of a numerical library as constant data, and what the compiler and the runtime must
 * agree on about it: ul_library.h says how calls are run. The compiler fills these structures from
 * the library's answers, the generated model.c holds them as tables.
 *
 * Units: dims and strides in elements, sizes in bytes. Pure C99; needs no library.
 */
#ifndef UL_CALL_H
#define UL_CALL_H

#include <stdint.h>
#include <string.h>

#define UL_CALL_RANK 6  /* dims of a call's tensor: groups, and two axes besides space */
#define UL_CALL_POSTS 8 /* operations that follow in the same call */
/* src, weights, bias, dst, then one per post-operation that reads; the source's zero point and
   scales. UL_CALL_NBITS has two after dst. */
#define UL_CALL_ARGS 14
#define UL_PACK_BLOCKS 4
#define UL_LIBRARY_LIMIT 4 /* libraries that a program sets up */

enum ul_call_kind {
    UL_CALL_CONVOLUTION,
    UL_CALL_DECONVOLUTION,
    UL_CALL_WEIGHT_GRADIENT, /* of a convolution's weights: src its source, weights the gradient of
                                its result, dst that of its weights */
    UL_CALL_ATTENTION,       /* src queries, weights keys; values and masks are arguments after dst
                                (struct ul_call_attention) */
    UL_CALL_ATTENTION_GRADIENT, /* src queries, weights keys, dst the gradient of queries; the rest
                                   are arguments after dst (likewise) */
    UL_CALL_MATMUL,             /* src [.., m, k], weights [.., k, n], dst [.., m, n] */
    UL_CALL_NBITS,              /* the same with weights of a few bits; scales and zero points are
                                   arguments after dst (ul_nbits.h). With three axes and more,
                                   the convolution of src by such weights */
    UL_CALL_MEAN_POOL,          /* the padding left out of the mean */
    UL_CALL_PADDED_MEAN_POOL    /* the padding counted as zeros */
};

/* The type of elements in memory. Sums of 8-bit integers are i32, all others f32. Only codes of
 * weights (ul_call_nbits) have one of the last three types. */
enum ul_call_type {
    UL_CALL_F32,
    UL_CALL_F16,
    UL_CALL_BF16,
    UL_CALL_U8,
    UL_CALL_I8,
    UL_CALL_I32,
    UL_CALL_F8E4M3FN,
    UL_CALL_F8E5M2,
    UL_CALL_F4E2M1
};

struct ul_call_tensor {
    uint32_t rank; /* 0: absent */
    int64_t dims[UL_CALL_RANK];
    int64_t strides[UL_CALL_RANK];
    enum ul_call_type type;
};

/* How the elements of a stored, row-major weight lie in the arena: element [i0, i1 ...] is at the
 * sum over d of (i_d / block_d) * strides[d], block_d being the product of the inner blocks of d,
 * plus its place in the innermost, dense tile of blocks[0] x blocks[1] ... over dims block_dims[]
 * (a dim may occur twice: its first block is the coarser one). What no element lands on is 0. */
struct ul_pack {
    uint32_t rank;
    int64_t dims[UL_CALL_RANK];    /* as stored */
    int64_t strides[UL_CALL_RANK]; /* between tiles */
    uint32_t block_count;
    uint32_t block_dims[UL_PACK_BLOCKS];
    int64_t blocks[UL_PACK_BLOCKS];
    uint64_t size_bytes; /* in the arena */
    /* 1: dims are [K, C, 3, 3]; every 3x3 is transformed to a 4x4 by ul_winograd_weight, and what
     * lies in the arena is [K, C, 4, 4]. 0: elements are copied as bits. */
    uint32_t winograd;
    uint32_t element_bytes; /* 4; 2 for f16 or bf16; 1 for i8 */
    /* For i8, sums of the weights stand after the tiles, one i32 for each index of the axes with a
     * stride here (0: an axis that is summed over), in up to two tables of sum_count words, of
     * which each has a factor (0: the table stays 0; both 0: there are none). They lie
     * sums_offset_bytes from the first weight. */
    int64_t sum_strides[UL_CALL_RANK];
    int64_t sum_count;
    int32_t sum_factors[2];
    uint64_t sums_offset_bytes;
    uint32_t sum_flags; /* the library's names for the tables; 0: there are none */
};

enum ul_post_kind {
    /* dst = f(dst) */
    UL_POST_RELU, /* alpha: slope below 0 */
    UL_POST_CLIP, /* to [alpha, beta] */
    UL_POST_GELU_ERF,
    UL_POST_GELU_TANH,
    UL_POST_SWISH, /* x * sigmoid(alpha * x) */
    UL_POST_HARD_SWISH,
    UL_POST_LOGISTIC,
    UL_POST_TANH,
    UL_POST_ELU,    /* alpha */
    UL_POST_LINEAR, /* alpha * x + beta */
    UL_POST_ROUND,  /* to the nearest whole number, ties to even */
    /* dst = dst + what was in dst before the call: the residual, written in place */
    UL_POST_SUM,
    /* dst = dst op argument; `tensor` is broadcast over dst */
    UL_POST_ADD,
    UL_POST_SUB,
    UL_POST_MUL,
    UL_POST_DIV,
    UL_POST_MAX,
    UL_POST_MIN
};
/* The factor of which sums along k are another result of a product: of each row of the source, or
 * of each column of the weights. */
enum ul_call_sums { UL_SUMS_OF_NONE, UL_SUMS_OF_SRC, UL_SUMS_OF_WEIGHTS };
/* The activation whose slopes a product is multiplied by: GELU by tanh, or ReLU. */
enum ul_call_slopes { UL_SLOPES_OF_NONE, UL_SLOPES_OF_GELU, UL_SLOPES_OF_RELU };
/* What stands for 0 in the source of a product of integers. */
enum ul_call_zero {
    UL_ZERO_IS_0,
    UL_ZERO_FIXED,   /* src_zero, which is subtracted from each element; the padding counts as 0 */
    UL_ZERO_PADDING, /* nothing is subtracted from the elements, and the padding is src_zero */
    UL_ZERO_ARG      /* as UL_ZERO_FIXED, with the zero from an argument, the last one, of the
                        source's type */
};

struct ul_post {
    enum ul_post_kind kind;
    float alpha, beta;            /* UL_POST_SUM after a product of integers: alpha * (what was
                                     in dst - beta) */
    struct ul_call_tensor tensor; /* from UL_POST_ADD on; of UL_POST_GELU_TANH, where its rank is
                                     not 0: what the GELU is of, which the call writes too */
};

/* Weights of a few bits, as UL_CALL_NBITS reads them: integers, from which a zero point is
 * subtracted before a scale multiplies them, one of each for a column of a block; floats of 4 or 8
 * bits, which have scales alone; or floats of 16 bits, whose only block has a scale or none. Signed
 * integers are read with half their range added, which is in `zero` too, but not in zero points
 * that are arguments. */
enum ul_nbits_zeros { UL_NBITS_FIXED, UL_NBITS_PACKED, UL_NBITS_FLOATS };
struct ul_call_nbits {
    uint32_t bits;               /* 2, 4, 8 or 16 */
    enum ul_call_type code_type; /* the type of floats; UL_CALL_I8: signed integers */
    int64_t block;               /* how many weights of a column, one after the other */
    uint32_t zero;               /* UL_NBITS_FIXED: the zero point of all */
    enum ul_nbits_zeros zeros;
    enum ul_call_type scale_type;
    uint32_t by_bytes; /* 1: rows of src may be rounded to 8 bits, with a scale for each block */
    uint32_t turned;   /* 1: the transposed weights: src is [m, n], dst is [m, k] */
    float scale;       /* the scale of all, where no scales are arguments; 0: none */
};

/* dst = softmax(scale * src * weights + masks) * values, for each head. All tensors are [batch,
 * head, position, element] by strides; heads of keys and values may be fewer, each for as many
 * heads of queries that follow each other; masks are [batch, head, query, key], each dim but the
 * last of all or of one. norms, where their rank is not 0, are another result: of each query,
 * [batch, head, query, 1], the logarithm of the sum of exp(scale * src * weights + masks), in f32.
 *
 * The gradient has as many heads of keys as of queries, and reads the norms and the result of that.
 * With P the weights, g the gradient of the result, and sums the sum of g * result for each query:
 *
 *      S = scale * P * (g * values - sums)      key_gradient = S * src      (S and P turned)
 *      dst = S * weights                        value_gradient = P * g
 */
#define UL_CALL_MASKS 2
struct ul_call_attention {
    struct ul_call_tensor values, masks[UL_CALL_MASKS], norms;
    struct ul_call_tensor result, gradient, key_gradient, value_gradient;
    uint32_t mask_count;
    uint32_t is_causal; /* 1: a query sees no key after its own position */
    float scale;
};
/* Arguments. */
enum {
    UL_CALL_ARG_VALUES = 4,
    UL_CALL_ARG_MASKS,
    UL_CALL_ARG_NORMS = UL_CALL_ARG_MASKS + UL_CALL_MASKS,
    UL_CALL_ARG_RESULT,
    UL_CALL_ARG_GRADIENT,
    UL_CALL_ARG_KEY_GRADIENT,
    UL_CALL_ARG_VALUE_GRADIENT,
    UL_CALL_ARG_SUMS /* in scratch: a plan has no place for them */
};

struct ul_call {
    enum ul_call_kind kind;
    struct ul_call_tensor src, weights, bias, dst; /* weights: dims as the library names them
                                                      (groups first where there are any) */
    const struct ul_pack *pack; /* of the weights, over dims as stored; NULL: plain, by strides */
    /* Where the library's layout cannot be spelled in strides: its dims in the library's order,
     * strides between tiles and blocks, as in struct ul_pack but over weights.dims. Where there is
     * no pack, it describes the copy that ul_call_layout_bytes counts. */
    struct ul_pack layout;
    uint32_t group_count;
    int64_t window[3];    /* for pooling */
    int64_t steps[3];     /* strides */
    int64_t dilations[3]; /* 1: none */
    int64_t pads[6];      /* begin of each axis, then end of each */
    struct ul_call_nbits nbits;
    struct ul_call_attention attention;
    int64_t tile_begin[2]; /* by Winograd's method: rows and columns, 0 or 1, of the first tile
                              that are before the result, which is a piece of a larger one */
    /* Integers: dst = round(posts((sums + bias) * scale)) + dst_zero, to the nearest, ties to even,
     * saturated. */
    enum ul_call_zero src_zero_kind;
    int32_t src_zero, dst_zero;
    float scale;                  /* 0: none, or one per channel: */
    int64_t scale_count;          /* 0: none, or one for all */
    uint64_t scales_offset_bytes; /* in the arena, among the weights; 0 in the compiler's table */
    uint32_t scales_value;        /* the compiler's number for these scales, from 1 on */
    const unsigned char *scales;  /* where weights are not in the arena, else NULL */
    uint32_t post_count;
    struct ul_post posts[UL_CALL_POSTS];
    /* The last post-operations, which are not the library's: ul_posts_run computes them on the
     * result, all of whose memory is its elements. */
    uint32_t tail_count;
    const char *implementation; /* as the plan names it: "brgconv:avx512_core" */
    /* The library would use its reference code for a strided source or result: so that goes through
     * a dense copy in scratch. So do a convolution's weights that change from run to run, in the
     * library's layout. 0: none. The rest of scratch is the library's own. */
    uint64_t src_copy_bytes, dst_copy_bytes, weights_copy_bytes;
    uint64_t scratch_bytes; /* in all; alignment 64. See ul_call_scratch_own */
    /* For target cuda: what all addresses are multiples of; whether factors in f32 may be rounded
     * to TF32. The residual of UL_POST_SUM is the argument after the others, and may lie
     * elsewhere than dst. */
    uint32_t align_bytes;
    uint32_t tf32;
    /* Whether the residual is the sum over the runs of a step. The first run of a step adds nothing
     * to its own result. */
    uint32_t accumulates;
    /* For target cuda: the factor whose sums along k a product may form as well. `bias` then is no
     * operand but the place for them. Where the library does not form them, they are left to a
     * kernel after the call. */
    enum ul_call_sums sums_of;
    /* Likewise: the product may be the gradient of an activation as well. `bias` then is no bias
     * but what a GELU read, or what a ReLU made; the result is multiplied by the slopes there.
     * Where the library does not do so, a kernel after the call does, in the place of the
     * result. */
    enum ul_call_slopes slopes_of;
};

/* ---- what the compiler and the runtime must agree on ---- */

static inline uint32_t ul_call_element_bytes(const struct ul_call_tensor *tensor)
{
    switch (tensor->type) {
    case UL_CALL_F32:
    case UL_CALL_I32:
        break;
    case UL_CALL_F16:
    case UL_CALL_BF16:
        return 2;
    case UL_CALL_U8:
    case UL_CALL_I8:
    case UL_CALL_F8E4M3FN:
    case UL_CALL_F8E5M2:
    case UL_CALL_F4E2M1:
        return 1;
    }
    return 4;
}

/* A product of integers: sums in i32, which are exact. */
static inline int ul_call_is_integer(const struct ul_call *call)
{
    return call->src.type == UL_CALL_U8 || call->src.type == UL_CALL_I8;
}

static inline int ul_call_is_scaled(const struct ul_call *call)
{
    return call->scale != 0 || call->scale_count != 0;
}

/* Whether the program computes this function faster than the library (ul_posts.h). */
static inline int ul_post_is_ours(enum ul_post_kind kind)
{
    return kind == UL_POST_SWISH || kind == UL_POST_LOGISTIC || kind == UL_POST_GELU_TANH ||
           kind == UL_POST_GELU_ERF;
}

/* Implementations that planned programs must not use: reference code and plain loops, those that
 * allocate outside of their scratchpad while they run, and those that write outside of their
 * result: oneDNN 2.6 stores whole tiles after the last row of a convolution of 1 x 1. */
static inline int ul_library_refuses(const char *implementation)
{
    return strncmp(implementation, "ref", 3) == 0 || strncmp(implementation, "simple", 6) == 0 ||
           strncmp(implementation, "jit_1x1:avx512_core_amx", 23) == 0 ||
           strncmp(implementation, "gemm:", 5) == 0 || strstr(implementation, ":gemm:") != NULL;
}

/* Implementations of products of 8-bit integers whose sums of pairs do not saturate at 16 bits, as
 * they do on processors without VNNI. */
static inline int ul_library_adds_exactly(const char *implementation)
{
    return strstr(implementation, "vnni") != NULL || strstr(implementation, "amx") != NULL;
}

/* Makes the dense copy of a tensor: it has the same dims; for convolutions and pooling the channels
 * (axis 1) are innermost, for matrix products the axes are nested as in the strides given (ties:
 * the earlier axis is the outer one). Gives its number of elements. */
static inline int64_t ul_call_dense(enum ul_call_kind kind, const struct ul_call_tensor *tensor,
                                    struct ul_call_tensor *dense)
{
    int64_t count = 1;
    uint32_t done = 0;
    *dense = *tensor;
    for (uint32_t n = 0; n < tensor->rank; n++) {
        uint32_t inner = UL_CALL_RANK;
        for (uint32_t i = 0; i < tensor->rank; i++)
            if ((done >> i & 1u) == 0 && (inner == UL_CALL_RANK || kind != UL_CALL_MATMUL ||
                                          tensor->strides[i] <= tensor->strides[inner]))
                inner = i;
        if (n == 0 && kind != UL_CALL_MATMUL)
            inner = 1;
        done |= 1u << inner;
        dense->strides[inner] = count;
        count *= tensor->dims[inner];
    }
    return count;
}

/* The tensor that the library wants in a layout of its own: weights, or the gradient of weights. */
static inline const struct ul_call_tensor *ul_call_filters(const struct ul_call *call)
{
    return call->kind == UL_CALL_WEIGHT_GRADIENT ? &call->dst : &call->weights;
}

/* Bytes of its copy in that layout, which is made in each run; 0: there is none. */
static inline uint64_t ul_call_layout_bytes(const struct ul_call *call)
{
    if (call->kind == UL_CALL_WEIGHT_GRADIENT)
        return call->dst_copy_bytes;
    return call->weights_copy_bytes;
}

/* Pooling: an operand with more axes than channels whose layout differs from what the library
 * writes. */
static inline int ul_call_pools_apart(const struct ul_call *call)
{
    struct ul_call_tensor dst = call->dst;
    int apart = 0;
    if (call->kind != UL_CALL_MEAN_POOL && call->kind != UL_CALL_PADDED_MEAN_POOL)
        return 0;
    if (call->dst_copy_bytes != 0)
        (void)ul_call_dense(call->kind, &call->dst, &dst);
    for (uint32_t i = 0; i < call->post_count; i++) {
        const struct ul_call_tensor *operand = &call->posts[i].tensor;
        int64_t places = 1;
        int differs = 0;
        for (uint32_t d = 0; d < operand->rank; d++) {
            places *= d == 1 ? 1 : operand->dims[d];
            differs |= operand->dims[d] > 1 && operand->strides[d] != dst.strides[d];
        }
        apart |= places > 1 && differs;
    }
    return apart;
}

/* Implementations that compute this call wrongly. oneDNN 2.6: depthwise convolution by brdgmm reads
 * an operand with the dims of a result of one pixel as if every 16 channels began anew; in tile
 * registers, three dimensions with a zero point have wrong sums; two threads gather the steps of
 * integers of jit_uni_int8_1x1 in one place. */
static inline int ul_call_is_wrong_by(const struct ul_call *call, const char *implementation)
{
    int64_t pixels = 1;
    int reads = 0, steps = 0;
    for (uint32_t d = 2; d < call->dst.rank; d++) {
        pixels *= call->dst.dims[d];
        steps |= call->steps[d - 2] > 1;
    }
    for (uint32_t i = 0; i < call->post_count; i++)
        reads |= call->posts[i].kind >= UL_POST_ADD;
    return (pixels == 1 && reads && strncmp(implementation, "brdgmm", 6) == 0) ||
           (call->dst.rank == 5 && call->src_zero_kind != UL_ZERO_IS_0 &&
            strncmp(implementation, "jit:avx512_core_amx", 19) == 0) ||
           (steps && strncmp(implementation, "jit_uni_int8_1x1", 16) == 0);
}

/* Those too, and for pooling those that read operands as if they were laid out like the result. */
static inline int ul_call_refuses(const struct ul_call *call, const char *implementation)
{
    if (ul_call_is_integer(call) && !ul_library_adds_exactly(implementation))
        return 1;
    return ul_library_refuses(implementation) || ul_call_pools_apart(call) ||
           ul_call_is_wrong_by(call, implementation);
}

/* The parts of a call's scratch: the copies of the source, the result and the weights, and the
 * library's own; each begins at a multiple of 64. */
static inline uint64_t ul_call_scratch_dst(const struct ul_call *call)
{
    return (call->src_copy_bytes + 63) / 64 * 64;
}

static inline uint64_t ul_call_scratch_weights(const struct ul_call *call)
{
    return ul_call_scratch_dst(call) + (call->dst_copy_bytes + 63) / 64 * 64;
}

static inline uint64_t ul_call_scratch_own(const struct ul_call *call)
{
    return ul_call_scratch_weights(call) + (call->weights_copy_bytes + 63) / 64 * 64;
}

/* On target cuda a library's workspace begins at a multiple of 256, as cuBLASLt asks; scratch
 * begins at one of 64, so that up to UL_CALL_WORKSPACE_LOSS of its bytes are passed over. */
#define UL_CALL_WORKSPACE_ALIGN 256
#define UL_CALL_SCRATCH_ALIGN 64
#define UL_CALL_WORKSPACE_LOSS (UL_CALL_WORKSPACE_ALIGN - UL_CALL_SCRATCH_ALIGN)

/* In front of that workspace are the sums of queries of a gradient of attention, which the library
 * forms, */
static inline uint64_t ul_call_sums_bytes(const struct ul_call *call)
{
    const int64_t *dims = call->src.dims;
    uint64_t bytes = (uint64_t)(dims[0] * dims[1] * dims[2]) * sizeof(float);
    return call->kind != UL_CALL_ATTENTION_GRADIENT
               ? 0
               : (bytes + UL_CALL_WORKSPACE_ALIGN - 1) / UL_CALL_WORKSPACE_ALIGN *
                     UL_CALL_WORKSPACE_ALIGN;
}

/* or the slopes of a ReLU: a bit for each element of a result, whose rows begin at multiples of
 * UL_CALL_MASK_BITS. */
#define UL_CALL_MASK_BITS 128
static inline int ul_call_has_mask(const struct ul_call *call)
{
    return call->slopes_of == UL_SLOPES_OF_RELU;
}

static inline uint64_t ul_call_mask_row_bytes(int64_t columns)
{
    return ((uint64_t)columns + UL_CALL_MASK_BITS - 1) / UL_CALL_MASK_BITS *
           (UL_CALL_MASK_BITS / 8);
}

static inline uint64_t ul_call_mask_bytes(int64_t rows, int64_t columns)
{
    uint64_t bytes = (uint64_t)rows * ul_call_mask_row_bytes(columns);
    return (bytes + UL_CALL_WORKSPACE_ALIGN - 1) / UL_CALL_WORKSPACE_ALIGN *
           UL_CALL_WORKSPACE_ALIGN;
}

/* Bytes in front of the workspace. */
static inline uint64_t ul_call_front_bytes(const struct ul_call *call)
{
    if (ul_call_has_mask(call))
        return ul_call_mask_bytes(call->dst.dims[0], call->dst.dims[1]);
    return ul_call_sums_bytes(call);
}

static inline uint64_t ul_call_workspace_bytes(const struct ul_call *call)
{
    uint64_t taken = UL_CALL_WORKSPACE_LOSS + ul_call_front_bytes(call);
    return call->scratch_bytes > taken ? call->scratch_bytes - taken : 0;
}

/* What the GELU at the end of a product is of, where that is another result, the argument behind
 * dst; or NULL. */
static inline const struct ul_call_tensor *ul_call_kept(const struct ul_call *call)
{
    const struct ul_post *last = call->posts + call->post_count - (call->post_count > 0);
    return last->kind == UL_POST_GELU_TANH && last->tensor.rank > 0 ? &last->tensor : NULL;
}

/* Whether a kernel does what the library may not do. */
static inline int ul_call_may_do_more(const struct ul_call *call)
{
    return call->sums_of != UL_SUMS_OF_NONE || call->slopes_of != UL_SLOPES_OF_NONE ||
           ul_call_kept(call) != NULL;
}

/* Whether the call of a device's library writes that argument. */
static inline int ul_call_writes(const struct ul_call *call, uint32_t argument)
{
    const uint32_t bias = 2, dst = 3, kept = 4;
    return argument == dst || (ul_call_kept(call) != NULL && argument == kept) ||
           (call->sums_of != UL_SUMS_OF_NONE && argument == bias) ||
           (call->kind == UL_CALL_ATTENTION && argument == UL_CALL_ARG_NORMS) ||
           (call->kind == UL_CALL_ATTENTION_GRADIENT &&
            (argument == UL_CALL_ARG_KEY_GRADIENT || argument == UL_CALL_ARG_VALUE_GRADIENT));
}

#endif
