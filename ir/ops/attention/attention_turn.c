/* SPDX-License-Identifier: Apache-2.0 */
/* FusedRotary, what the pattern pass finds where a rotary embedding is spelled out:
 *
 *      y[j] = x[j] * cos[j] + r[j] * sin[j]
 *
 * r is x with the two elements of each pair changed about and the first one negated. Pairs are
 * (j, j + size / 2), or neighbours where `interleaved`. cos and sin broadcast to x, or have one
 * element for each pair. */
#include "ir/infer.h"
#include "ir/kernel_build.h"
#include "ir/lower.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/attention/attention.h"

#include <string.h>

static bool broadcasts_to(const struct ul_type *factor, const struct ul_type *type)
{
    struct ul_type both;
    return ul_broadcast(type, factor, &both) && ul_type_equal(&both, type);
}

bool ul_turn_is_paired(const struct ul_type *factor, const struct ul_type *x)
{
    struct ul_type pairs = *x;
    pairs.dims[x->rank - 1] /= 2;
    return broadcasts_to(factor, &pairs);
}

enum ul_status ul_infer_turn(struct ul_infer *infer)
{
    const struct ul_type *x = ul_infer_input(infer, 0);
    if (x->rank == 0 || x->dims[x->rank - 1] % 2 != 0)
        return ul_infer_invalid(infer, "the last dimension must be even");
    for (uint32_t i = 1; i < 3; i++) {
        const struct ul_type *factor = ul_infer_input(infer, i);
        if (factor->dtype != x->dtype ||
            (!broadcasts_to(factor, x) && !ul_turn_is_paired(factor, x)))
            return ul_infer_invalid(infer, "input %u does not broadcast to the first", (unsigned)i);
    }
    ul_infer_set_type(infer, 0, x);
    return UL_OK;
}

/* Computes both elements of a pair at once; both are loaded before either is stored. */
void ul_lower_turn(struct ul_lower *lower, ul_node_id node_id)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_node *node = &lower->graph->nodes[node_id];
    const struct ul_type *x = ul_lower_input_type(lower, node_id, 0);
    uint32_t last = x->rank - 1;
    bool is_interleaved = ul_node_get_int(node, "interleaved", 0) != 0;
    int64_t dims[UL_LIMIT_RANK];
    ul_kx pair[UL_LIMIT_RANK], index[2][UL_LIMIT_RANK], loaded[2][3];
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    dims[last] /= 2;
    ul_lower_open(lower, x->rank, dims, pair);
    memcpy(index[0], pair, x->rank * sizeof *pair);
    if (is_interleaved)
        index[0][last] = ul_kx_muli(kernel, index[0][last], 2);
    memcpy(index[1], index[0], x->rank * sizeof **index);
    index[1][last] = ul_kx_addi(kernel, index[0][last], is_interleaved ? 1 : dims[last]);
    for (uint32_t side = 0; side < 2; side++) {
        for (uint32_t i = 0; i < 3; i++) {
            bool by_pair = i > 0 && ul_turn_is_paired(ul_lower_input_type(lower, node_id, i), x);
            loaded[side][i] =
                ul_ks_let(kernel, ul_lower_load_broadcast(lower, node->inputs[i],
                                                          by_pair ? pair : index[side], x->rank));
        }
    }
    for (uint32_t side = 0; side < 2; side++) {
        ul_kx other = side == 0 ? ul_kx_unary(kernel, UL_KX_NEG, loaded[1][0]) : loaded[0][0];
        ul_kx own = ul_kx_binary(kernel, UL_KX_MUL, loaded[side][0], loaded[side][1]);
        other = ul_kx_binary(kernel, UL_KX_MUL, other, loaded[side][2]);
        ul_lower_store(lower, node->outputs[0], index[side],
                       ul_kx_binary(kernel, UL_KX_ADD, own, other));
    }
    ul_lower_close(lower, x->rank);
}
