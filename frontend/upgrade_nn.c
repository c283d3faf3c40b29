/* SPDX-License-Identifier: Apache-2.0 */
/* Upgrades of operators whose meaning changed: normalisation, softmax, resizing, one-hot;
 * and SwiGLU. */
#include "frontend/old_emit.h"
#include "frontend/rows.h"

#include <string.h>

/* Before set 14 the outputs after the first were statistics of training, which inference never
 * fills; sets 7 and 8 also allowed one mean per element instead of one per channel. */
void ul_upgrade_batch_normalization(struct ul_old_node *node)
{
    if (ul_old_int(node, "spatial", 1) == 0) {
        ul_old_problem(node, "with spatial=0 is not supported; export the model with operator "
                             "set 9 or newer");
        return;
    }
    ul_old_remove_attr(node, "spatial");
    if (node->output_count > 1)
        node->output_count = 1;
    ul_old_emit_self(node);
    node->output_count = node->declared_count;
}

void ul_upgrade_batch_normalization_6(struct ul_old_node *node)
{
    if (ul_old_int(node, "is_test", 0) == 0)
        ul_old_problem(node, "in training mode of operator set 6 is not supported; export the "
                             "model for inference");
    ul_old_remove_attr(node, "is_test");
    ul_old_remove_attr(node, "consumed_inputs");
}

/* onnxruntime's name, in ai.onnx, for the later RMSNormalization. */
void ul_upgrade_simplified_layer_norm(struct ul_old_node *node)
{
    if (node->output_count == 1)
        node->op = "RMSNormalization";
}

/* Before set 13 the operator worked on the input flattened to two dimensions at `axis`. With the
 * last axis that is the same as today; otherwise Flatten and Reshape go around it, which cost no
 * bytes. */
void ul_upgrade_softmax(struct ul_old_node *node)
{
    ul_value_id x = ul_old_input(node, 0);
    int64_t axis = ul_old_int(node, "axis", 1);
    struct ul_type type = axis == -1 ? (struct ul_type){0} : ul_old_type(node, x);
    ul_old_set_int(node, "axis", -1);
    bool is_last = axis == -1 || (ul_type_known(&type) && axis == (int64_t)type.rank - 1);
    if (is_last || x == UL_NONE || node->output_count != 1)
        return;
    ul_value_id made[2];
    (void)ul_old_run(node, UL_WITH({"x", ul_row_value(x)}, {"axis", ul_row_int(axis)}),
                     "Shape(x), Flatten(x) {axis=axis}", 2, made);
    ul_old_set_input(node, 0, made[1]);
    ul_old_emit_self(node);
    ul_old_set_result(node, 0,
                      ul_old_make(node,
                                  UL_WITH({"y", ul_row_value(node->results[0])},
                                          {"shape", ul_row_value(made[0])}),
                                  "Reshape(y, shape) {allowzero=1}"));
}

/* A vector of f32. */
static ul_value_id add_floats(struct ul_old_node *node, int64_t count, const double *values)
{
    struct ul_graph *graph = node->builder->graph;
    struct ul_type type = ul_type_make(UL_F32, 1, &count);
    return ul_graph_add_weight(graph, ul_builder_name(node->builder, node->name),
                               ul_tensor_new_floats(graph->arena, &type, values));
}

void ul_upgrade_upsample_scales(struct ul_old_node *node)
{
    const struct ul_attr *attr = ul_old_attr(node, "scales");
    if (attr == NULL || attr->kind != UL_ATTR_FLOATS)
        return;
    ul_value_id scales = add_floats(node, attr->count, attr->floats);
    ul_old_remove_attr(node, "scales");
    ul_old_set_input(node, 1, scales);
}

/* The first Resize and Upsample: scales are input 1, pixels are at their top left corners. */
static void resize_asymmetric(struct ul_old_node *node, const char *nearest_mode)
{
    ul_old_set_input(node, 2, ul_old_input(node, 1));
    ul_old_set_input(node, 1, UL_NONE);
    ul_old_set_string(node, "coordinate_transformation_mode", "asymmetric");
    ul_old_set_string(node, "nearest_mode", nearest_mode);
}

void ul_upgrade_upsample(struct ul_old_node *node)
{
    node->op = "Resize";
    resize_asymmetric(node, "floor");
}

/* Resize-10 rounds the nearest pixel down along axes that grow and up along axes that shrink.
 * Where both occur, a growing step comes first: the nearest mode works axis by axis. */
void ul_upgrade_resize_10(struct ul_old_node *node)
{
    const struct ul_tensor *scales = ul_old_tensor(node, ul_old_input(node, 1));
    bool is_nearest = strcmp(ul_old_string(node, "mode", "nearest"), "nearest") == 0;
    if (!is_nearest || scales == NULL || scales->type.rank != 1 ||
        scales->type.dims[0] > UL_LIMIT_RANK || scales->type.dtype != UL_F32) {
        resize_asymmetric(node, "floor");
        return;
    }
    double up[UL_LIMIT_RANK], down[UL_LIMIT_RANK];
    bool grows = false, shrinks = false;
    for (int64_t i = 0; i < scales->type.dims[0]; i++) {
        double scale = ul_tensor_get_float(scales, (uint64_t)i);
        up[i] = scale > 1 ? scale : 1;
        down[i] = scale < 1 ? scale : 1;
        grows = grows || scale > 1;
        shrinks = shrinks || scale < 1;
    }
    if (!grows || !shrinks) {
        resize_asymmetric(node, shrinks ? "ceil" : "floor");
        return;
    }
    struct ul_old_node grow = *node;
    grow.attrs =
        ul_arena_copy(node->builder->scratch, node->attrs, sizeof *node->attrs * node->attr_count);
    grow.attr_capacity = node->attr_count;
    grow.inputs = NULL;
    grow.input_count = grow.input_capacity = 0;
    grow.results = UL_NEW_ARRAY(node->builder->scratch, ul_value_id, node->declared_count);
    ul_old_set_input(&grow, 0, ul_old_input(node, 0));
    ul_old_set_input(&grow, 1, add_floats(node, scales->type.dims[0], up));
    resize_asymmetric(&grow, "floor");
    ul_old_emit_self(&grow);
    ul_old_set_input(node, 0, grow.results[0]);
    ul_old_set_input(node, 1, add_floats(node, scales->type.dims[0], down));
    resize_asymmetric(node, "ceil");
}

/* Resize-11 could not leave out roi and scales; files of any version give them as empty tensors,
 * which mean the same as nothing. */
void ul_upgrade_resize(struct ul_old_node *node)
{
    for (uint32_t i = 1; i < 4 && i < node->input_count; i++) {
        ul_value_id value = node->inputs[i];
        const struct ul_tensor *tensor =
            value == UL_NONE ? NULL : node->builder->graph->values[value].tensor;
        if (tensor != NULL && ul_type_elements(&tensor->type) == 0)
            ul_old_set_input(node, i, UL_NONE);
    }
}

/* GroupNormalization-18 had scale and bias per group, which become one per channel: [G] -> [G,1] ->
 * [G,C/G] -> [C]. */
void ul_upgrade_group_normalization(struct ul_old_node *node)
{
    int64_t groups = ul_old_int(node, "num_groups", 0);
    ul_value_id made[2];
    if (groups <= 0 || !ul_old_has_input(node, 0) || !ul_old_has_input(node, 1) ||
        !ul_old_has_input(node, 2))
        return; /* left for shape inference to refuse */
    if (!ul_old_run(
            node,
            UL_WITH({"x", ul_row_value(node->inputs[0])}, {"scale", ul_row_value(node->inputs[1])},
                    {"bias", ul_row_value(node->inputs[2])}, {"groups", ul_row_ints(1, &groups)}),
            "each = Concat(groups, Div(Shape(x) {start=1, end=2}, groups)) {axis=0}; "
            "Reshape(Expand(Reshape(scale, [-1, 1]), each), [-1]), "
            "Reshape(Expand(Reshape(bias, [-1, 1]), each), [-1])",
            2, made))
        return;
    ul_old_set_input(node, 1, made[0]);
    ul_old_set_input(node, 2, made[1]);
}

/* OneHot-9 did not count indexes from the end: a negative one selected nothing. Here it becomes one
 * that is out of range for any depth. */
void ul_upgrade_one_hot(struct ul_old_node *node)
{
    ul_value_id index = ul_old_input(node, 0);
    if (index == UL_NONE)
        return;
    enum ul_dtype dtype = ul_old_type(node, index).dtype;
    bool is_narrow = ul_dtype_get(dtype)->is_integer && dtype != UL_I64;
    bool is_long = is_narrow || dtype == UL_DTYPE_NONE;
    ul_old_set_input(
        node, 0,
        ul_old_make(node,
                    UL_WITH({"i", ul_row_value(index)}, {"is_narrow", ul_row_int(is_narrow)},
                            {"dtype", ul_row_int(is_long ? UL_I64 : dtype)}),
                    "i = is_narrow ? Cast(i) {to=i64} : i; "
                    "Where(Less(i, 0:dtype), (2 * limit):dtype, i)"));
}

/* Swish of the gate times the other input; nothing is broadcast here. */
void ul_upgrade_swiglu(struct ul_old_node *node)
{
    if (!ul_old_has_input(node, 0) || !ul_old_has_input(node, 1) || node->input_count != 2) {
        ul_old_invalid(node, "takes a gate and a value");
        return;
    }
    struct ul_type gate = ul_old_type(node, node->inputs[0]);
    struct ul_type value = ul_old_type(node, node->inputs[1]);
    if (ul_type_known(&gate) && ul_type_known(&value) && !ul_type_equal(&gate, &value)) {
        ul_old_invalid(node, "takes two inputs of one type and shape");
        return;
    }
    ul_old_finish(node,
                  UL_WITH({"gate", ul_row_value(node->inputs[0])},
                          {"x", ul_row_value(node->inputs[1])},
                          {"alpha", ul_row_float(ul_old_float(node, "alpha", 1))}),
                  "Swish(gate) {alpha=alpha} * x");
}

/* A signal of rank 2 is real, as in onnxruntime: one number per sample. */
void ul_upgrade_stft(struct ul_old_node *node)
{
    ul_value_id x = ul_old_input(node, 0);
    if (ul_old_type(node, x).rank == 2)
        ul_old_set_input(node, 0,
                         ul_old_make(node, UL_WITH({"x", ul_row_value(x)}), "Unsqueeze(x, [2])"));
}
