/* What the hooks of the attention family share. */
#ifndef UL_OPS_ATTENTION_H
#define UL_OPS_ATTENTION_H

#include "ir/ops/hooks.h"

enum ul_attention_input {
    UL_ATTENTION_Q,
    UL_ATTENTION_K,
    UL_ATTENTION_V,
    UL_ATTENTION_MASK,
    UL_ATTENTION_PAST_K,
    UL_ATTENTION_PAST_V,
    UL_ATTENTION_LENGTHS,
    UL_ATTENTION_BIAS, /* FusedAttention: what is added beside the mask */
    UL_ATTENTION_INPUTS
};

/* One attention, whatever the rank of its operands. */
struct ul_attention {
    bool is_flat;                 /* operands are [batch, sequence, heads * size] */
    int64_t batch, heads, groups; /* groups: heads of keys and values */
    int64_t queries, keys, past;  /* lengths; `keys` without the past */
    int64_t size, value_size;     /* of a head */
    double scale, softcap;
    bool is_causal;
    bool empty_is_zero;  /* FusedAttention: a query that sees no key gives zeros, not NaN */
    int64_t scores_mode; /* qk_matmul_output_mode */
    uint32_t order[4];   /* the output's dimensions, of [batch, head, query, element] */
};

/* attention_shape.c: NULL, or what is wrong. `types` are those of the inputs, NULL where absent. */
const char *ul_attention_read(struct ul_attention *attention, const struct ul_node *node,
                              const struct ul_type *const types[UL_ATTENTION_INPUTS]);

#endif
