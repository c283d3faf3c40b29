/*
 * Calls of a numerical library, planned when the model was compiled: what a step hands to oneDNN
 * (target cpu), as constant tables. The generated model.c defines them; ul_dnnl.c makes one
 * primitive for each at set-up and runs it.
 *
 *      set-up     for each call: make the primitive with exactly the planned layouts, ask it what
 *                 it needs, refuse what needs more than was planned
 *      run        ul_library_run(state, 3, args, scratch);
 *
 * Invariants: all tensors are f32. A call reads and writes its arguments and its planned scratch,
 * nothing else; nothing but the library's own bookkeeping (a few hundred bytes, freed at once) is
 * allocated while it runs. Weights are in the layout of their struct ul_pack; it is the library's,
 * put into place while the weights are read, so that they are never held twice.
 * Ownership: tables are constant data; the state of an arena (its primitives) is the library's own
 * memory, made by ul_library_init and given back by ul_library_done. Its address stands in the
 * arena, at a planned place.
 * Units: dims and strides in elements, sizes in bytes.
 */
#ifndef UL_LIBRARY_H
#define UL_LIBRARY_H

#include "ul_model.h"

#define UL_CALL_RANK 6  /* dims of a tensor of a call: groups, and two axes more than space */
#define UL_CALL_POSTS 8 /* operations that follow in the same call */
#define UL_CALL_ARGS 12 /* src, weights, bias, dst, then one per post-operation that reads */
#define UL_PACK_BLOCKS 4

enum ul_call_kind {
    UL_CALL_CONVOLUTION,
    UL_CALL_DECONVOLUTION,
    UL_CALL_MATMUL, /* src [.., m, k], weights [.., k, n], dst [.., m, n] */
    UL_CALL_MAX_POOL,
    UL_CALL_MEAN_POOL,       /* the padding left out of the mean */
    UL_CALL_PADDED_MEAN_POOL /* the padding counted as zeros */
};

struct ul_call_tensor {
    uint32_t rank; /* 0: absent */
    int64_t dims[UL_CALL_RANK];
    int64_t strides[UL_CALL_RANK];
};

/* How the elements of a stored, row-major weight lie in the arena: element [i0, i1 ...] is at the
 * sum over d of (i_d / block_d) * strides[d], block_d being the product of the inner blocks of d,
 * plus its place in the innermost, dense tile of blocks[0] x blocks[1] ... over dims block_dims[]
 * (a dim may occur twice: its first block is the coarser one). What no element falls on is 0. */
struct ul_pack {
    uint32_t rank;
    int64_t dims[UL_CALL_RANK];    /* as stored */
    int64_t strides[UL_CALL_RANK]; /* between tiles */
    uint32_t block_count;
    uint32_t block_dims[UL_PACK_BLOCKS];
    int64_t blocks[UL_PACK_BLOCKS];
    uint64_t size_bytes; /* in the arena */
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
struct ul_post {
    enum ul_post_kind kind;
    float alpha, beta;
    struct ul_call_tensor tensor; /* from UL_POST_ADD on */
};

struct ul_call {
    enum ul_call_kind kind;
    struct ul_call_tensor src, weights, bias, dst; /* weights: dims as the library names them
                                                      (groups first where there are any) */
    const struct ul_pack *pack; /* of the weights, over dims as stored; NULL: plain, by strides */
    /* The library's name for that layout cannot be spelled in strides: its dims in the library's
     * order, strides between tiles and blocks, as in struct ul_pack but over weights.dims. */
    struct ul_pack layout;
    uint32_t group_count;
    int64_t window[3];    /* of pooling */
    int64_t steps[3];     /* strides */
    int64_t dilations[3]; /* 1: none */
    int64_t pads[6];      /* begin of each axis, then end of each */
    uint32_t post_count;
    struct ul_post posts[UL_CALL_POSTS];
    const char *implementation; /* as the plan names it: "brgconv:avx512_core" */
    /* A strided source or result falls to the library's reference code: it goes through a dense
     * copy in scratch. 0: none. The rest of scratch is the library's own. */
    uint64_t src_copy_bytes, dst_copy_bytes;
    uint64_t scratch_bytes; /* in all; alignment 64 */
};

/* What a model hands to the library; struct ul_model has a pointer to it, or NULL. */
struct ul_library {
    const char *name;            /* "oneDNN" */
    const char *isa;             /* that the plan was made for: "avx512_core" */
    uint32_t thread_count;       /* likewise; fewer may be used */
    uint64_t state_offset_bytes; /* in the arena: a pointer's place */
    uint32_t call_count;
    const struct ul_call *calls;
};

struct ul_library_state;

/* Makes the primitives of all calls. UL_LIBRARY_NEEDS_MORE with the call's planned and needed bytes
 * where the library, on this machine, wants more than was planned. */
enum ul_result ul_library_init(const struct ul_library *library, void *arena,
                               struct ul_failure *failure);
void ul_library_done(const struct ul_library *library, void *arena);
/* Runs call `index`. args: src, weights, bias, dst, then the tensors of the post-operations that
 * read one, in their order; absent ones are NULL. */
void ul_library_run(const struct ul_library *library, unsigned char *arena, uint32_t index,
                    const void *const *args, unsigned char *scratch);
/* Bytes that the library took from the heap for itself at set-up, for --memory. */
uint64_t ul_library_heap_bytes(const struct ul_library *library, const void *arena);

#endif
