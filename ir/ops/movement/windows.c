/* SPDX-License-Identifier: Apache-2.0 */
/* Windows: an image [batch, height, width, channels], rolled, as the windows that it is tiled with,
 * [windows, places of one, channels], or with `image` the other way round. What attention within
 * windows copies, written so that whoever reads rows reads them where they lie.
 *
 *      window w, place (u, v)   <->   (y, x) = (row of w * height + u, column of w * width + v)
 *      of the image that is rolled:   (y + shift) mod H, (x + shift) mod W, of the other one
 *
 * Places of a window are numbered by rows, or where it is `turned` by columns. */
#include "ir/ops/movement/movement.def"

#include "ir/kernel_build.h"
#include "ir/ops/require.h"

enum { IMAGE_RANK = 4, WINDOWS_RANK = 3 };

/* The attributes, as inference has checked them; `image` NULL: input 0 is the image. */
struct windows {
    const int64_t *image, *sizes, *shifts;
    bool turned;
};

static struct windows windows_get(const struct ul_node *node)
{
    uint32_t count;
    return (struct windows){.image = ul_node_get_ints(node, "image", &count),
                            .sizes = ul_node_get_ints(node, "sizes", &count),
                            .shifts = ul_node_get_ints(node, "shifts", &count),
                            .turned = ul_node_get_int(node, "turned", 0) != 0};
}

static enum ul_status check_windows(const struct ul_infer *infer, const int64_t *image)
{
    static const char *const names[] = {"sizes", "shifts"};
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t count;
        const int64_t *ints = ul_node_get_ints(infer->node, names[i], &count);
        if (ints == NULL || count != 2)
            return ul_infer_invalid(infer, "%s has no two entries", names[i]);
    }
    struct windows windows = windows_get(infer->node);
    for (uint32_t d = 0; d < 2; d++) {
        UL_TRY(ul_check_range(infer, "a size", windows.sizes[d], 1, image[1 + d]));
        UL_TRY(ul_check_range(infer, "a shift", windows.shifts[d], 0, image[1 + d] - 1));
        if (image[1 + d] % windows.sizes[d] != 0)
            return ul_infer_invalid(infer, "windows of %lld do not tile %lld",
                                    (long long)windows.sizes[d], (long long)image[1 + d]);
    }
    return UL_OK;
}

enum ul_status ul_infer_windows(struct ul_infer *infer)
{
    const struct ul_type *input = ul_infer_input(infer, 0);
    uint32_t count;
    const int64_t *image = ul_node_get_ints(infer->node, "image", &count);
    UL_TRY(ul_check_rank(infer, 0, image == NULL ? IMAGE_RANK : WINDOWS_RANK,
                         image == NULL ? IMAGE_RANK : WINDOWS_RANK));
    if (image != NULL && count != IMAGE_RANK)
        return ul_infer_invalid(infer, "image has no %u entries", (unsigned)IMAGE_RANK);
    bool is_image = image == NULL;
    image = is_image ? input->dims : image;
    for (uint32_t d = 0; d < IMAGE_RANK; d++)
        UL_TRY(ul_check_range(infer, "a dimension of the image", image[d], 1, UL_LIMIT_DIM));
    UL_TRY(check_windows(infer, image));
    const int64_t *sizes = windows_get(infer->node).sizes;
    const int64_t dims[WINDOWS_RANK] = {image[0] * (image[1] / sizes[0]) * (image[2] / sizes[1]),
                                        sizes[0] * sizes[1], image[3]};
    if (is_image) {
        ul_infer_set(infer, 0, input->dtype, WINDOWS_RANK, dims);
        return UL_OK;
    }
    struct ul_type type = {.dtype = input->dtype, .rank = IMAGE_RANK};
    for (uint32_t d = 0; d < IMAGE_RANK; d++)
        type.dims[d] = image[d];
    for (uint32_t d = 0; d < WINDOWS_RANK; d++)
        if (input->dims[d] != dims[d])
            return ul_infer_invalid(infer, "dimension %u of the windows is %lld, not %lld",
                                    (unsigned)d, (long long)input->dims[d], (long long)dims[d]);
    if (!ul_type_in_limits(&type))
        return ul_infer_invalid(infer, "the image is over the limits of size");
    ul_infer_set_type(infer, 0, &type);
    return UL_OK;
}

static ul_kx rolled(struct ul_kernel *kernel, ul_kx at, int64_t shift, int64_t dim)
{
    return shift == 0 ? at : ul_kx_modi(kernel, ul_kx_addi(kernel, at, shift), dim);
}

/* The index in the image of the element at an index of the windows. */
static void image_index(struct ul_kernel *kernel, const struct windows *windows,
                        const int64_t *image, const ul_kx *index, ul_kx *from)
{
    int64_t height = windows->sizes[0], width = windows->sizes[1];
    int64_t down = image[1] / height, across = image[2] / width;
    ul_kx line = ul_kx_divi(kernel, index[0], across);
    int64_t inner = windows->turned ? height : width;
    ul_kx outside = ul_kx_divi(kernel, index[1], inner);
    ul_kx inside = ul_kx_modi(kernel, index[1], inner);
    ul_kx y = ul_kx_add(kernel, ul_kx_muli(kernel, ul_kx_modi(kernel, line, down), height),
                        windows->turned ? inside : outside);
    ul_kx x = ul_kx_add(kernel, ul_kx_muli(kernel, ul_kx_modi(kernel, index[0], across), width),
                        windows->turned ? outside : inside);
    from[0] = ul_kx_divi(kernel, line, down);
    from[1] = rolled(kernel, y, windows->shifts[0], image[1]);
    from[2] = rolled(kernel, x, windows->shifts[1], image[2]);
    from[3] = index[2];
}

/* The index in the windows of the element at an index of the image. */
static void windows_index(struct ul_kernel *kernel, const struct windows *windows,
                          const ul_kx *index, ul_kx *from)
{
    int64_t height = windows->sizes[0], width = windows->sizes[1];
    int64_t down = windows->image[1] / height, across = windows->image[2] / width;
    ul_kx y = rolled(kernel, index[1], windows->shifts[0], windows->image[1]);
    ul_kx x = rolled(kernel, index[2], windows->shifts[1], windows->image[2]);
    ul_kx line =
        ul_kx_add(kernel, ul_kx_muli(kernel, index[0], down), ul_kx_divi(kernel, y, height));
    from[0] = ul_kx_add(kernel, ul_kx_muli(kernel, line, across), ul_kx_divi(kernel, x, width));
    ul_kx inside_y = ul_kx_modi(kernel, y, height), inside_x = ul_kx_modi(kernel, x, width);
    from[1] = windows->turned ? ul_kx_add(kernel, ul_kx_muli(kernel, inside_x, height), inside_y)
                              : ul_kx_add(kernel, ul_kx_muli(kernel, inside_y, width), inside_x);
    from[2] = index[3];
}

ul_kx ul_map_windows(struct ul_lower *lower, ul_node_id node, uint32_t output, const ul_kx *index)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    struct windows windows = windows_get(info);
    ul_kx from[IMAGE_RANK];
    (void)output;
    if (windows.image == NULL)
        image_index(lower->kernel, &windows, ul_lower_input_type(lower, node, 0)->dims, index,
                    from);
    else
        windows_index(lower->kernel, &windows, index, from);
    return ul_lower_load(lower, info->inputs[0], from);
}
