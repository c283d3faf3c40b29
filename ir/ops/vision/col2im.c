/* SPDX-License-Identifier: Apache-2.0 */
/* Col2Im: overlapping blocks added back into an image. Each pixel gathers the blocks that cover
 * it, so that pixels are independent of each other. */
#include "ir/op_names.h"
#include "ir/ops/vision/vision.h"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

/* One dimension of the image: how blocks are placed along it. */
struct block_axis {
    int64_t size, block, stride, dilation, begin, end;
    int64_t count; /* of blocks */
};

static int64_t entry(const struct ul_node *node, const char *name, uint32_t at, int64_t otherwise)
{
    uint32_t count;
    const int64_t *ints = ul_node_get_ints(node, name, &count);
    return ints == NULL ? otherwise : ints[at];
}

static struct block_axis axis_get(const struct ul_node *node, uint32_t d, uint32_t rank,
                                  int64_t size, int64_t block)
{
    struct block_axis axis = {
        .size = size,
        .block = block,
        .stride = entry(node, "strides", d, 1),
        .dilation = entry(node, "dilations", d, 1),
        .begin = entry(node, "pads", d, 0),
        .end = entry(node, "pads", d + rank, 0),
    };
    int64_t room = axis.size + axis.begin + axis.end - axis.dilation * (axis.block - 1) - 1;
    axis.count = room < 0 ? 0 : room / axis.stride + 1;
    return axis;
}

static enum ul_status check_attribute(const struct ul_infer *infer, const char *name,
                                      uint32_t wanted, int64_t low)
{
    uint32_t count;
    const int64_t *ints = ul_node_get_ints(infer->node, name, &count);
    if (ints != NULL && count != wanted)
        return ul_infer_invalid(infer, "%s has %u entries, but must have %u", name, (unsigned)count,
                                (unsigned)wanted);
    for (uint32_t i = 0; ints != NULL && i < count; i++)
        UL_TRY(ul_check_range(infer, name, ints[i], low, (int64_t)1 << 30));
    return UL_OK;
}

enum ul_status ul_infer_col2im(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    const int64_t *image;
    const int64_t *block;
    uint32_t rank;
    uint32_t block_rank;
    UL_TRY(ul_check_rank(infer, 0, 3, 3));
    UL_TRY(ul_check_dtype(infer, 0, UL_SET_NUMBER));
    UL_TRY(ul_infer_ints(infer, 1, &image, &rank));
    UL_TRY(ul_infer_ints(infer, 2, &block, &block_rank));
    if (rank != block_rank || rank == 0 || rank > UL_LIMIT_RANK - 2)
        return ul_infer_invalid(infer,
                                "image_shape has %u and block_shape %u entries; 1 to %u, "
                                "and as many of both, are supported",
                                (unsigned)rank, (unsigned)block_rank, (unsigned)UL_LIMIT_RANK - 2);
    UL_TRY(check_attribute(infer, "strides", rank, 1));
    UL_TRY(check_attribute(infer, "dilations", rank, 1));
    UL_TRY(check_attribute(infer, "pads", 2 * rank, 0));
    int64_t dims[UL_LIMIT_RANK] = {input->dims[0]};
    uint64_t blocks = 1;
    uint64_t elements = 1;
    bool fits = true;
    for (uint32_t d = 0; d < rank; d++) {
        UL_TRY(ul_check_range(infer, "image_shape", image[d], 0, UL_LIMIT_DIM));
        UL_TRY(ul_check_range(infer, "block_shape", block[d], 1, (int64_t)1 << 30));
        struct block_axis axis = axis_get(infer->node, d, rank, image[d], block[d]);
        fits = fits && ul_size_mul(blocks, (uint64_t)axis.count, &blocks) &&
               ul_size_mul(elements, (uint64_t)block[d], &elements);
        dims[d + 2] = image[d];
    }
    if (!fits || blocks != (uint64_t)input->dims[2])
        return ul_infer_invalid(infer,
                                "%lld blocks are given, which is not the number that the "
                                "image has room for",
                                (long long)input->dims[2]);
    if ((uint64_t)input->dims[1] % elements != 0)
        return ul_infer_invalid(infer, "dimension 1 has %lld elements, no multiple of a block's",
                                (long long)input->dims[1]);
    dims[1] = input->dims[1] / (int64_t)elements;
    ul_infer_set(infer, 0, input->dtype, rank + 2, dims);
    return UL_OK;
}

/* Finds the block whose element `within` is the pixel: whether there is one, and its number. */
static ul_kx block_of(struct ul_kernel *kernel, const struct block_axis *axis, ul_kx pixel,
                      ul_kx within, ul_kx *number)
{
    ul_kx begin = ul_kx_sub(kernel, ul_kx_addi(kernel, pixel, axis->begin),
                            ul_kx_muli(kernel, within, axis->dilation));
    begin = ul_ks_let(kernel, begin);
    ul_kx zero = ul_kx_index_const(kernel, 0);
    ul_kx at = ul_kx_divi(kernel, begin, axis->stride);
    ul_kx exact = ul_kx_binary(kernel, UL_KX_EQ, ul_kx_modi(kernel, begin, axis->stride), zero);
    ul_kx low = ul_kx_binary(kernel, UL_KX_LE, zero, begin);
    ul_kx high = ul_kx_binary(kernel, UL_KX_LT, at, ul_kx_index_const(kernel, axis->count));
    *number = ul_ks_let(kernel, ul_kx_clamp(kernel, at, axis->count - 1));
    return ul_kx_binary(kernel, UL_KX_AND, exact, ul_kx_binary(kernel, UL_KX_AND, low, high));
}

/* Opens the loops over a block's elements; gives the positions of the element and of the block, and
 * the condition that the block covers the pixel. */
static ul_kx open_blocks(struct ul_lower *lower, const struct block_axis *axes, uint32_t rank,
                         const ul_kx *pixel, ul_kx *element, ul_kx *block)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_kx covered = ul_kx_int(kernel, UL_BOOL, 1);
    *element = ul_kx_index_const(kernel, 0);
    *block = ul_kx_index_const(kernel, 0);
    for (uint32_t d = 0; d < rank; d++) {
        ul_kx number;
        ul_kx within = ul_ks_for(kernel, axes[d].block, UL_FOR_REDUCE);
        ul_kx own = block_of(kernel, &axes[d], pixel[d], within, &number);
        covered = ul_ks_let(kernel, ul_kx_binary(kernel, UL_KX_AND, covered, own));
        *element = ul_kx_add(kernel, ul_kx_muli(kernel, *element, axes[d].block), within);
        *block = ul_kx_add(kernel, ul_kx_muli(kernel, *block, axes[d].count), number);
    }
    return covered;
}

void ul_lower_col2im(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct ul_kernel *kernel = lower->kernel;
    const struct ul_type *in = ul_lower_input_type(lower, node, 0);
    const struct ul_type *out = ul_lower_output_type(lower, node, 0);
    uint32_t rank = out->rank - 2;
    struct block_axis axes[UL_LIMIT_RANK];
    int64_t elements = 1;
    ul_kx index[UL_LIMIT_RANK];
    ul_kx element;
    ul_kx block;
    if (ul_type_elements(out) == 0)
        return;
    for (uint32_t d = 0; d < rank; d++) {
        axes[d] = axis_get(info, d, rank, out->dims[d + 2], ul_check_get_int(lower, node, 2, d));
        elements *= axes[d].block;
    }
    ul_lower_open(lower, out->rank, out->dims, index);
    enum ul_dtype dtype = ul_compute_dtype(in->dtype);
    ul_kx zero = ul_kx_number(kernel, dtype, 0);
    uint32_t sum = ul_ks_var(kernel, dtype, zero);
    if (ul_type_elements(in) > 0) {
        ul_kx covered = open_blocks(lower, axes, rank, index + 2, &element, &block);
        ul_kx from[3] = {index[0],
                         ul_kx_add(kernel, ul_kx_muli(kernel, index[1], elements), element), block};
        ul_kx x = ul_kx_select(kernel, covered, ul_lower_load(lower, info->inputs[0], from), zero);
        ul_ks_set(kernel, sum, ul_kx_add(kernel, ul_kx_var(kernel, sum), x));
        for (uint32_t d = 0; d < rank; d++)
            ul_ks_end(kernel);
    }
    ul_lower_store(lower, info->outputs[0], index, ul_kx_var(kernel, sum));
    ul_lower_close(lower, out->rank);
}

/* ---- Gradient ---- */

/* Takes the elements of blocks along dimension `at` of g, which is padded: [.., block, number,
 * ..]. */
static ul_value_id take_blocks(struct ul_gradient *gradient, ul_value_id g, uint32_t at,
                               const struct block_axis *axis)
{
    int64_t count = axis->block * axis->count;
    const struct ul_type shape = {.dtype = UL_I64, .rank = 2, .dims = {axis->block, axis->count}};
    int64_t *places = UL_NEW_ARRAY(gradient->scratch, int64_t, (uint64_t)count + 1);
    for (int64_t i = 0; i < count; i++)
        places[i] = i / axis->count * axis->dilation + i % axis->count * axis->stride;
    ul_value_id list = ul_build_ints(gradient->graph, "", (uint32_t)count, places);
    const ul_value_id inputs[2] = {g, ul_build_reshape_to(&gradient->build, list, &shape)};
    ul_node_id node = ul_build_node(&gradient->build, UL_OP_Gather, inputs, 2, 1);
    ul_node_set_int(gradient->graph, node, "axis", at);
    return ul_build_infer(&gradient->build, node);
}

/* Each element of a block reads the pixel that it was added to, if there is one. */
enum ul_status ul_gradient_col2im(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    struct ul_type type = ul_gradient_type(gradient, node->inputs[0]);
    struct ul_type image = ul_gradient_type(gradient, ul_gradient_output(gradient, 0));
    uint32_t rank = image.rank - 2;
    struct block_axis axes[UL_LIMIT_RANK];
    int64_t begin[UL_LIMIT_RANK] = {0}, end[UL_LIMIT_RANK] = {0}, perm[UL_LIMIT_RANK] = {0, 1};
    const struct ul_tensor *blocks = gradient->graph->values[node->inputs[2]].tensor;
    if (2 + 2 * rank > UL_LIMIT_RANK)
        return ul_gradient_unsupported(gradient, "has a gradient rule for up to %u dimensions",
                                       (unsigned)(UL_LIMIT_RANK - 2) / 2);
    for (uint32_t d = 0; d < rank; d++) {
        axes[d] = axis_get(node, d, rank, image.dims[d + 2], ul_tensor_get_int(blocks, d));
        int64_t reach =
            (axes[d].count - 1) * axes[d].stride + (axes[d].block - 1) * axes[d].dilation + 1;
        begin[d + 2] = axes[d].begin;
        end[d + 2] = reach - axes[d].begin - image.dims[d + 2];
        perm[2 + d] = 2 + 2 * d;
        perm[2 + rank + d] = 3 + 2 * d;
    }
    ul_value_id g = ul_build_pad(&gradient->build, ul_gradient_of(gradient, 0), begin, end);
    for (uint32_t d = 0; d < rank; d++)
        g = take_blocks(gradient, g, 2 + 2 * d, &axes[d]);
    g = ul_build_transpose(&gradient->build, g, perm);
    ul_gradient_give(gradient, 0, ul_build_reshape_to(&gradient->build, g, &type));
    return UL_OK;
}
