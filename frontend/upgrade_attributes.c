/* SPDX-License-Identifier: Apache-2.0 */
/* Upgrades that move attributes to inputs, or rename them. */
#include "frontend/rows.h"

#include <string.h>

/* Moves the ints of an attribute to a 1-d constant at `input`. */
static bool ints_to_input(struct ul_old_node *node, const char *name, uint32_t input)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    if (attr == NULL || attr->kind != UL_ATTR_INTS)
        return false;
    ul_value_id value = ul_old_const(node, UL_I64, ul_row_ints(attr->count, attr->ints));
    ul_old_remove_attr(node, name);
    ul_old_set_input(node, input, value);
    return true;
}

/* Moves a float attribute to a scalar at `input`, in the element type of input 0. */
static void float_to_input(struct ul_old_node *node, const char *name, uint32_t input)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    if (attr == NULL || attr->kind != UL_ATTR_FLOAT)
        return;
    double number = attr->f;
    ul_old_remove_attr(node, name);
    ul_old_set_input(node, input, ul_old_const(node, ul_old_dtype(node, 0), ul_row_float(number)));
}

void ul_upgrade_too_old(struct ul_old_node *node)
{
    ul_old_problem(node, "changed its meaning before operator set 7; convert the model with "
                         "onnx.version_converter or export it again");
}

/* Appends `count` dimensions of size 1 to the shape of input `index`. False when its shape is not
 * known here. */
static bool append_ones(struct ul_old_node *node, uint32_t index, int64_t count)
{
    struct ul_type type = ul_old_type(node, ul_old_input(node, index));
    if (!ul_type_known(&type) || count < 0 || count + type.rank > UL_LIMIT_RANK)
        return false;
    uint32_t rank = type.rank + (uint32_t)count;
    for (uint32_t i = type.rank; i < rank; i++)
        type.dims[i] = 1;
    ul_old_set_input(node, index,
                     ul_old_make(node,
                                 UL_WITH({"x", ul_row_value(node->inputs[index])},
                                         {"dims", ul_row_ints(rank, type.dims)}),
                                 "Reshape(x, dims)"));
    return true;
}

/* Below set 7, a broadcast had to be asked for, and could start at any axis. */
void ul_upgrade_broadcast(struct ul_old_node *node)
{
    bool from_axis = ul_old_int(node, "broadcast", 0) != 0 && ul_old_attr(node, "axis") != NULL;
    if (from_axis) {
        int64_t axis = ul_old_int(node, "axis", 0);
        struct ul_type a = ul_old_type(node, ul_old_input(node, 0));
        struct ul_type b = ul_old_type(node, ul_old_input(node, 1));
        bool known = ul_type_known(&a) && ul_type_known(&b) && axis >= 0 && axis <= a.rank;
        if (!known || !append_ones(node, 1, (int64_t)a.rank - axis - (int64_t)b.rank)) {
            ul_upgrade_too_old(node);
            return;
        }
    }
    ul_old_remove_attr(node, "broadcast");
    ul_old_remove_attr(node, "axis");
}

/* Gemm-6 had to be told that its third input may be broadcast; it did so as today. */
void ul_upgrade_gemm_6(struct ul_old_node *node)
{
    ul_old_remove_attr(node, "broadcast");
}

/* PRelu-6 had one slope, or one for each channel of the second dimension. */
void ul_upgrade_prelu_6(struct ul_old_node *node)
{
    struct ul_type x = ul_old_type(node, ul_old_input(node, 0));
    struct ul_type slope = ul_old_type(node, ul_old_input(node, 1));
    if (!ul_type_known(&x) || !ul_type_known(&slope) || slope.rank != 1)
        ul_upgrade_too_old(node);
    else if (slope.dims[0] != 1 && x.rank > 2 && !append_ones(node, 1, (int64_t)x.rank - 2))
        ul_upgrade_too_old(node);
}

void ul_upgrade_axes(struct ul_old_node *node)
{
    (void)ints_to_input(node, "axes", 1);
}

void ul_upgrade_split(struct ul_old_node *node)
{
    (void)ints_to_input(node, "split", 1);
}

/* Without sizes, Split made as many equal parts as it had outputs; set 18 wants the number. */
void ul_upgrade_split_equal(struct ul_old_node *node)
{
    node->output_count = node->declared_count;
    if (ul_old_input(node, 1) == UL_NONE)
        ul_old_set_int(node, "num_outputs", node->output_count);
}

void ul_upgrade_slice(struct ul_old_node *node)
{
    (void)ints_to_input(node, "starts", 1);
    (void)ints_to_input(node, "ends", 2);
    (void)ints_to_input(node, "axes", 3);
}

void ul_upgrade_pad(struct ul_old_node *node)
{
    (void)ints_to_input(node, "pads", 1);
    float_to_input(node, "value", 2);
}

void ul_upgrade_topk(struct ul_old_node *node)
{
    int64_t k = ul_old_int(node, "k", 0);
    ul_old_remove_attr(node, "k");
    ul_old_set_input(node, 1, ul_old_const(node, UL_I64, ul_row_ints(1, &k)));
}

void ul_upgrade_clip(struct ul_old_node *node)
{
    float_to_input(node, "min", 1);
    float_to_input(node, "max", 2);
}

/* Before set 12 Dropout was inference only; before 10 its mask had the type of the data. */
void ul_upgrade_dropout(struct ul_old_node *node)
{
    float_to_input(node, "ratio", 1);
    bool float_mask = node->version < 10 && node->output_count > 1;
    if (!float_mask)
        return;
    enum ul_dtype dtype = ul_old_dtype(node, 0);
    ul_old_emit_self(node);
    ul_old_set_result(
        node, 1,
        ul_old_make(node,
                    UL_WITH({"mask", ul_row_value(node->results[1])}, {"dtype", ul_row_int(dtype)}),
                    "Cast(mask) {to=dtype}"));
}

void ul_upgrade_dft(struct ul_old_node *node)
{
    int64_t axis = ul_old_int(node, "axis", 1);
    ul_old_remove_attr(node, "axis");
    ul_old_set_input(node, 2, ul_old_const(node, UL_I64, ul_row_int(axis)));
}

void ul_upgrade_scatter(struct ul_old_node *node)
{
    node->op = "ScatterElements";
}

void ul_upgrade_grid_sample(struct ul_old_node *node)
{
    const char *mode = ul_old_string(node, "mode", "bilinear");
    if (strcmp(mode, "bilinear") == 0)
        ul_old_set_string(node, "mode", "linear");
    else if (strcmp(mode, "bicubic") == 0)
        ul_old_set_string(node, "mode", "cubic");
}

/* Set 16 moved the sampling points by half a pixel unless told otherwise. */
void ul_upgrade_roi_align(struct ul_old_node *node)
{
    ul_old_set_string(node, "coordinate_transformation_mode", "output_half_pixel");
}
