/* SPDX-License-Identifier: Apache-2.0 */
/* Pad and CenterCropPad. A negative pad crops; reflecting, repeating and wrapping apply to what is
 * left after cropping. */
#include "ir/op_names.h"
#include "ir/ops/movement/movement.h"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"
#include "ir/split_rule.h"

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };
static const char *const pad_modes[] = {"constant", "reflect", "edge", "wrap", NULL};

/* Halves what is to be added or cut; the odd element goes to the end. */
static void center_axis(struct ul_pads *pads, uint32_t axis, int64_t dim, int64_t wanted)
{
    int64_t more = wanted - dim;
    int64_t half = (more < 0 ? -more : more) / 2;
    pads->begin[axis] = more < 0 ? -half : half;
    pads->end[axis] = more - pads->begin[axis];
}

static void center_pads(const struct ul_graph *graph, const struct ul_node *node,
                        struct ul_pads *pads)
{
    const struct ul_type *type = &graph->values[node->inputs[0]].type;
    const struct ul_tensor *shape = graph->values[node->inputs[1]].tensor;
    uint32_t count;
    const int64_t *axes = ul_node_get_ints(node, "axes", &count);
    uint64_t entries = ul_type_elements(&shape->type);
    for (uint32_t i = 0; i < entries; i++) {
        uint32_t d = axes == NULL ? i : ul_check_get_axis(axes[i], type->rank);
        center_axis(pads, d, type->dims[d], ul_tensor_get_int(shape, i));
    }
}

/* The pads of a node whose rule has checked them. */
static void pads_get(const struct ul_graph *graph, const struct ul_node *node, struct ul_pads *pads)
{
    *pads = (struct ul_pads){0};
    if (node->op == UL_OP_CenterCropPad) {
        center_pads(graph, node, pads);
        return;
    }
    const struct ul_type *type = &graph->values[node->inputs[0]].type;
    const struct ul_tensor *numbers = graph->values[node->inputs[1]].tensor;
    const struct ul_tensor *axes = NULL;
    uint32_t count = type->rank;
    if (node->input_count > 3 && node->inputs[3] != UL_NONE) {
        axes = graph->values[node->inputs[3]].tensor;
        count = (uint32_t)ul_type_elements(&axes->type);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = axes == NULL ? i : ul_check_get_axis(ul_tensor_get_int(axes, i), type->rank);
        pads->begin[d] = ul_tensor_get_int(numbers, i);
        pads->end[d] = ul_tensor_get_int(numbers, i + count);
    }
}

enum ul_status ul_infer_center_crop_pad(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    const int64_t *shape;
    uint32_t entries, count, set;
    const int64_t *axes = ul_node_get_ints(infer->node, "axes", &count);
    UL_TRY(ul_infer_ints(infer, 1, &shape, &entries));
    UL_TRY(ul_require_axes(infer, axes, axes == NULL ? 0 : count, type.rank, &set));
    count = axes == NULL ? type.rank : count;
    if (entries != count)
        return ul_infer_invalid(infer, "the shape has %u entries for %u axes", (unsigned)entries,
                                (unsigned)count);
    for (uint32_t i = 0; i < entries; i++) {
        UL_TRY(ul_check_range(infer, "an entry of the shape", shape[i], 0, UL_LIMIT_DIM));
        type.dims[axes == NULL ? i : ul_check_get_axis(axes[i], type.rank)] = shape[i];
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

static enum ul_status pad_axis(const struct ul_infer *infer, enum pad_mode mode, int64_t begin,
                               int64_t end, int64_t *dim)
{
    UL_TRY(ul_check_range(infer, "a pad", begin, -UL_LIMIT_DIM, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "a pad", end, -UL_LIMIT_DIM, UL_LIMIT_DIM));
    int64_t left = *dim + (begin < 0 ? begin : 0) + (end < 0 ? end : 0);
    int64_t padded = *dim + begin + end;
    if (padded < 0 || (mode != PAD_CONSTANT && (left < 0 || (left == 0 && padded > 0))))
        return ul_infer_invalid(infer, "pads %lld and %lld leave nothing of %lld elements to %s",
                                (long long)begin, (long long)end, (long long)*dim, pad_modes[mode]);
    *dim = padded;
    return UL_OK;
}

enum ul_status ul_infer_pad(struct ul_infer *infer)
{
    struct ul_type type = *ul_infer_input(infer, 0);
    const int64_t *numbers;
    const int64_t *axes;
    uint32_t number_count, count, set, mode;
    UL_TRY(ul_require_choice(infer, "mode", pad_modes, &mode));
    UL_TRY(ul_infer_ints(infer, 1, &numbers, &number_count));
    UL_TRY(ul_check_same_dtype(infer, 0, 2));
    UL_TRY(ul_check_scalar(infer, 2));
    UL_TRY(ul_infer_ints(infer, 3, &axes, &count));
    UL_TRY(ul_require_axes(infer, axes, axes == NULL ? 0 : count, type.rank, &set));
    count = axes == NULL ? type.rank : count;
    if (number_count != 2 * count)
        return ul_infer_invalid(infer, "%u pads are given for %u axes", (unsigned)number_count,
                                (unsigned)count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = axes == NULL ? i : ul_check_get_axis(axes[i], type.rank);
        UL_TRY(pad_axis(infer, (enum pad_mode)mode, numbers[i], numbers[i + count], &type.dims[d]));
    }
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

bool ul_pad_read(const struct ul_graph *graph, const struct ul_node *node, struct ul_pads *pads)
{
    pads_get(graph, node, pads);
    return node->op != UL_OP_Pad || ul_node_choice(node, "mode", pad_modes) == PAD_CONSTANT;
}

static ul_kx pad_value(struct ul_lower *lower, ul_node_id node)
{
    enum ul_dtype dtype = ul_lower_output_type(lower, node, 0)->dtype;
    ul_kx zero = ul_kx_index_const(lower->kernel, 0);
    bool given = lower->graph->nodes[node].op == UL_OP_Pad && ul_lower_has_input(lower, node, 2);
    if (given)
        return ul_lower_load(lower, lower->graph->nodes[node].inputs[2], &zero);
    return ul_kx_number(lower->kernel, ul_compute_dtype(dtype), 0);
}

static ul_kx pad_constant(struct ul_lower *lower, ul_node_id node, const struct ul_pads *pads,
                          const ul_kx *index)
{
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    ul_kx value = pad_value(lower, node);
    ul_kx inside = ul_kx_int(kernel, UL_BOOL, 1);
    ul_kx from[UL_LIMIT_RANK];
    if (ul_type_elements(in) == 0)
        return value;
    for (uint32_t d = 0; d < in->rank; d++) {
        ul_kx at = ul_kx_addi(kernel, index[d], -pads->begin[d]);
        ul_kx low = ul_kx_binary(kernel, UL_KX_LE, ul_kx_index_const(kernel, 0), at);
        ul_kx high = ul_kx_binary(kernel, UL_KX_LT, at, ul_kx_index_const(kernel, in->dims[d]));
        inside =
            ul_kx_binary(kernel, UL_KX_AND, inside, ul_kx_binary(kernel, UL_KX_AND, low, high));
        from[d] = ul_kx_clamp(kernel, at, in->dims[d] - 1);
    }
    return ul_kx_select(kernel, inside,
                        ul_lower_load(lower, lower->graph->nodes[node].inputs[0], from), value);
}

/* Maps `at`, which may be outside [0, count), to an element; count is at least 1. */
static ul_kx pad_index(struct ul_kernel *kernel, enum pad_mode mode, ul_kx at, int64_t count,
                       bool far_outside)
{
    if (mode == PAD_EDGE || count == 1)
        return ul_kx_clamp(kernel, at, count - 1);
    if (mode == PAD_WRAP)
        return ul_kx_modi(kernel, at, count);
    /* Reflects at 0, then at count - 1; a pad longer than the data goes back and forth. */
    int64_t period = 2 * (count - 1);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx folded = far_outside ? ul_kx_modi(kernel, at, period)
                               : ul_kx_binary(kernel, UL_KX_MAX, at, ul_kx_sub(kernel, zero, at));
    ul_kx mirrored = ul_kx_sub(kernel, ul_kx_index_const(kernel, period), folded);
    return ul_kx_binary(kernel, UL_KX_MIN, folded, mirrored);
}

ul_kx ul_map_pad(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    enum pad_mode mode = info->op == UL_OP_Pad
                             ? (enum pad_mode)ul_node_choice(info, "mode", pad_modes)
                             : PAD_CONSTANT;
    struct ul_pads pads;
    ul_kx from[UL_LIMIT_RANK];
    (void)output;
    pads_get(lower->graph, info, &pads);
    if (mode == PAD_CONSTANT)
        return pad_constant(lower, node, &pads, index);
    for (uint32_t d = 0; d < in->rank; d++) {
        int64_t split = pads.begin[d] < 0 ? -pads.begin[d] : 0;
        int64_t before = pads.begin[d] > 0 ? pads.begin[d] : 0;
        int64_t count = in->dims[d] - split + (pads.end[d] < 0 ? pads.end[d] : 0);
        bool far_outside = before >= count || pads.end[d] >= count;
        ul_kx at = ul_kx_addi(lower->kernel, index[d], -before);
        if (count > 0 && (before > 0 || pads.end[d] > 0))
            at = pad_index(lower->kernel, mode, at, count, far_outside);
        from[d] = ul_kx_addi(lower->kernel, at, split);
    }
    return ul_lower_load(lower, info->inputs[0], from);
}

/* Splits along a dimension that stays as it is. */
bool ul_split_rule_pad(struct ul_split_rule *split)
{
    struct ul_pads pads;
    if (split->node->op != UL_OP_Pad)
        return false;
    pads_get(split->graph, split->node, &pads);
    if (pads.begin[split->output.axis] != 0 || pads.end[split->output.axis] != 0)
        return false;
    ul_split_rule_read(split, 0, split->output.axis, split->output.begin, split->output.end);
    return true;
}
