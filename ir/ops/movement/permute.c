/* SPDX-License-Identifier: Apache-2.0 */
/* Operators that change the order of dimensions. */
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"

#include <string.h>

/* Dimension d of the output is dimension perm[d] of the input; the order is reversed if the node
 * names none. */
static void permutation(const struct ul_node *node, uint32_t rank, uint32_t *perm)
{
    uint32_t count;
    const int64_t *ints = ul_node_get_ints(node, "perm", &count);
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = ints == NULL ? rank - 1 - d : (uint32_t)ints[d];
}

enum ul_status ul_infer_transpose(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    uint32_t count;
    const int64_t *ints = ul_node_get_ints(infer->node, "perm", &count);
    if (ints != NULL && count != input->rank)
        return ul_infer_invalid(infer, "perm has %u entries for a tensor of rank %u",
                                (unsigned)count, (unsigned)input->rank);
    uint32_t seen = 0;
    for (uint32_t d = 0; d < count; d++) {
        if (ints[d] < 0 || ints[d] >= (int64_t)input->rank || (seen >> ints[d] & 1u) != 0)
            return ul_infer_invalid(infer, "perm is not a permutation: its entry %u is %lld",
                                    (unsigned)d, (long long)ints[d]);
        seen |= 1u << ints[d];
    }
    uint32_t perm[UL_LIMIT_RANK];
    struct ul_type type = *input;
    permutation(infer->node, input->rank, perm);
    for (uint32_t d = 0; d < input->rank; d++)
        type.dims[d] = input->dims[perm[d]];
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_transpose(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    uint32_t rank = ul_lower_output_type(lower, node, output)->rank;
    uint32_t perm[UL_LIMIT_RANK];
    ul_kx from[UL_LIMIT_RANK];
    permutation(info, rank, perm);
    for (uint32_t d = 0; d < rank; d++)
        from[perm[d]] = index[d];
    return ul_lower_load(lower, info->inputs[0], from);
}

/* Views of a Transpose: the output's from the input's or, if `back`, the other way round. */
static void turn_view(const struct ul_graph *graph, const struct ul_node *node, bool back,
                      const struct ul_view *from, struct ul_view *to)
{
    uint32_t rank = graph->values[node->outputs[0]].type.rank;
    uint32_t perm[UL_LIMIT_RANK];
    permutation(node, rank, perm);
    *to = *from;
    for (uint32_t d = 0; d < rank; d++)
        to->strides[back ? perm[d] : d] = from->strides[back ? d : perm[d]];
}

bool ul_view_transpose(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                       const struct ul_view *input, struct ul_view *view)
{
    (void)output;
    turn_view(graph, node, false, input, view);
    return true;
}

bool ul_place_transpose(const struct ul_graph *graph, const struct ul_node *node, uint32_t output,
                        const struct ul_view *view, struct ul_view *input)
{
    (void)output;
    turn_view(graph, node, true, view, input);
    return true;
}

static const char *const depth_modes[] = {"DCR", "CRD", NULL};

static enum ul_status block_size(const struct ul_infer *infer, int64_t *block)
{
    UL_TRY(ul_check_rank(infer, 0, 4, 4));
    *block = ul_node_get_int(infer->node, "blocksize", 0);
    return ul_check_range(infer, "blocksize", *block, 1, 1 << 20);
}

enum ul_status ul_infer_depth_to_space(struct ul_infer *infer)
{
    struct ul_type type;
    int64_t block;
    uint32_t mode;
    UL_TRY(block_size(infer, &block));
    UL_TRY(ul_require_choice(infer, "mode", depth_modes, &mode));
    type = *ul_infer_input(infer, 0);
    if (type.dims[1] % (block * block) != 0)
        return ul_infer_invalid(infer, "%lld channels are no multiple of blocksize %lld squared",
                                (long long)type.dims[1], (long long)block);
    type.dims[1] /= block * block;
    type.dims[2] *= block;
    type.dims[3] *= block;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_depth_to_space(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    int64_t block = ul_node_get_int(info, "blocksize", 0);
    int64_t channels = ul_lower_output_type(lower, node, output)->dims[1];
    ul_kx within = ul_kx_add(kernel, ul_kx_muli(kernel, ul_kx_modi(kernel, index[2], block), block),
                             ul_kx_modi(kernel, index[3], block));
    ul_kx channel;
    if (ul_node_choice(info, "mode", depth_modes) == 0)
        channel = ul_kx_add(kernel, ul_kx_muli(kernel, within, channels), index[1]);
    else
        channel = ul_kx_add(kernel, ul_kx_muli(kernel, index[1], block * block), within);
    ul_kx from[4] = {index[0], channel, ul_kx_divi(kernel, index[2], block),
                     ul_kx_divi(kernel, index[3], block)};
    return ul_lower_load(lower, info->inputs[0], from);
}

enum ul_status ul_infer_space_to_depth(struct ul_infer *infer)
{
    struct ul_type type;
    int64_t block;
    uint32_t mode;
    UL_TRY(block_size(infer, &block));
    UL_TRY(ul_require_choice(infer, "mode", depth_modes, &mode));
    type = *ul_infer_input(infer, 0);
    if (type.dims[2] % block != 0 || type.dims[3] % block != 0)
        return ul_infer_invalid(infer, "%lld x %lld is no multiple of blocksize %lld",
                                (long long)type.dims[2], (long long)type.dims[3], (long long)block);
    if (type.dims[1] > UL_LIMIT_DIM / (block * block))
        return ul_infer_invalid(infer, "the output would have more than 2^40 channels");
    type.dims[1] *= block * block;
    type.dims[2] /= block;
    type.dims[3] /= block;
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

ul_kx ul_map_space_to_depth(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    int64_t block = ul_node_get_int(info, "blocksize", 0);
    int64_t dim = ul_lower_input_type(lower, node, 0)->dims[1];
    int64_t channels = dim > 0 ? dim : 1, area = block * block;
    bool depth_first = ul_node_choice(info, "mode", depth_modes) == 0;
    ul_kx within =
        depth_first ? ul_kx_divi(kernel, index[1], channels) : ul_kx_modi(kernel, index[1], area);
    ul_kx channel =
        depth_first ? ul_kx_modi(kernel, index[1], channels) : ul_kx_divi(kernel, index[1], area);
    (void)output;
    ul_kx from[4] = {
        index[0], channel,
        ul_kx_add(kernel, ul_kx_muli(kernel, index[2], block), ul_kx_divi(kernel, within, block)),
        ul_kx_add(kernel, ul_kx_muli(kernel, index[3], block), ul_kx_modi(kernel, within, block))};
    return ul_lower_load(lower, info->inputs[0], from);
}

bool ul_split_rule_transpose(struct ul_split_rule *split)
{
    uint32_t perm[UL_LIMIT_RANK];
    permutation(split->node, ul_split_rule_output_type(split)->rank, perm);
    ul_split_rule_read(split, 0, perm[split->output.axis], split->output.begin, split->output.end);
    return true;
}

/* Splits rows and columns in whole blocks. */
bool ul_split_rule_depth_to_space(struct ul_split_rule *split)
{
    int64_t block = split->output.axis < 2 ? 1 : ul_node_get_int(split->node, "blocksize", 1);
    if (split->output.axis == 1)
        return false;
    ul_split_rule_widen(split, block);
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin / block,
                       split->output.end / block);
    return true;
}
