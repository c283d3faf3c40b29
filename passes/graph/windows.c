/* SPDX-License-Identifier: Apache-2.0 */
/* Attention within windows (Swin): images that are rolled and cut into windows, and put together
 * again and rolled back, as one movement of rows.
 *
 *      x [B,H,W,C] -> Concat(Slice, Slice) .. -> Reshape [B,H/h,h,W/w,w,C] -> Transpose -> Reshape
 *      windows -> Reshape [B,H/h,W/w,h,w,C] -> Transpose -> Reshape [B,H,W,C] -> Concat(Slice, ..)
 *      x [B,H,W,C] -> Concat(x[0::h,0::w], x[1::h,0::w], ..) -> LayerNormalization of h w C
 *
 * Problem: each roll is a copy along an axis, and each cut another. Method: what leads from image
 * to windows, or back, becomes one Windows, whose element says where it lies; fusing has the sum or
 * the normalisation that reads it look there. A LayerNormalization in front of windows, which looks
 * at rows alone, goes after them; one of all that a window has (Swin's patches that are merged)
 * looks at it by two axes. For targets where a step costs a launch: a processor copies as fast as
 * it would look elements up. Left undone: rolls alone; windows of other dimensions than two. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

enum { IMAGE_RANK = 4, TILED_RANK = 6 };

struct windows {
    struct ul_graph *graph;
    uint32_t *uses; /* per value that stood when the pass began */
    uint32_t known_count;
};

/* What one Windows stands for. */
struct found {
    ul_value_id source; /* the image or the windows, in any shape that keeps their rows */
    uint32_t uses;      /* how often what is found reads it */
    int64_t image[IMAGE_RANK];
    int64_t sizes[2], shifts[2];
    bool turned; /* places of a window are numbered by columns */
};

static const struct ul_type *type_of(const struct windows *windows, ul_value_id value)
{
    return &windows->graph->values[value].type;
}

/* The node that makes the value, if only `uses` others read it. */
static const struct ul_node *maker(const struct windows *windows, ul_value_id value, uint32_t uses)
{
    const struct ul_value *info = &windows->graph->values[value];
    if (info->kind != UL_VALUE_NODE || value >= windows->known_count ||
        windows->uses[value] != uses)
        return NULL;
    const struct ul_node *node = &windows->graph->nodes[info->producer];
    return node->op == UL_OP_NONE || node->output_count != 1 ? NULL : node;
}

/* Reads a Slice along one axis alone: which axis, and where it begins. */
static bool read_slice(const struct windows *windows, ul_value_id value, uint32_t axis,
                       ul_value_id *source, int64_t *begin)
{
    const struct ul_graph *graph = windows->graph;
    const struct ul_node *node = maker(windows, value, 1);
    struct ul_view view;
    if (node == NULL || node->op != UL_OP_Slice)
        return false;
    const struct ul_type *whole = type_of(windows, node->inputs[0]),
                         *part = type_of(windows, value);
    struct ul_view own = ul_view_own(graph, node->inputs[0]);
    if (!ul_op_get(node->op)->view(graph, node, 0, &own, &view))
        return false;
    for (uint32_t d = 0; d < whole->rank; d++)
        if (view.strides[d] != own.strides[d] || (d != axis && part->dims[d] != whole->dims[d]))
            return false;
    *source = node->inputs[0];
    *begin = view.offset_bytes / (own.strides[axis] * ul_dtype_get(whole->dtype)->size_bytes);
    return true;
}

/* Reads Concat(x[k:], x[:k]) along height or width: what is rolled, and by how much. `uses`: those
 * of the result. */
static bool read_roll(const struct windows *windows, ul_value_id value, uint32_t uses,
                      ul_value_id *source, int64_t *shifts)
{
    const struct ul_node *node = maker(windows, value, uses);
    ul_value_id other;
    int64_t begins[2];
    if (node == NULL || node->op != UL_OP_Concat || node->input_count != 2)
        return false;
    int64_t axis = ul_node_get_int(node, "axis", 0);
    axis += axis < 0 ? IMAGE_RANK : 0;
    if (type_of(windows, value)->rank != IMAGE_RANK || (axis != 1 && axis != 2) ||
        ul_type_elements(type_of(windows, value)) == 0)
        return false;
    uint32_t along = (uint32_t)axis;
    if (!read_slice(windows, node->inputs[0], along, source, &begins[0]) ||
        !read_slice(windows, node->inputs[1], along, &other, &begins[1]) || other != *source)
        return false;
    int64_t dim = type_of(windows, *source)->dims[along];
    const struct ul_type *first = type_of(windows, node->inputs[0]);
    const struct ul_type *second = type_of(windows, node->inputs[1]);
    if (begins[1] != 0 || second->dims[along] != begins[0] || first->dims[along] != dim - begins[0])
        return false;
    shifts[along - 1] = (shifts[along - 1] + begins[0]) % dim;
    return true;
}

/* Follows rolls back from the last one; `uses`: those of what is read first. */
static ul_value_id before_rolls(const struct windows *windows, ul_value_id value, uint32_t uses,
                                int64_t *shifts)
{
    ul_value_id source;
    while (read_roll(windows, value, uses, &source, shifts)) {
        value = source;
        uses = 2; /* by the Slices */
    }
    return value;
}

/* Reads Reshape(Transpose(Reshape(source))), where the Transpose exchanges the middle axes of six:
 * gives the shape in front of it. UL_NONE: it is not that. */
static ul_value_id read_tiling(const struct windows *windows, ul_value_id value, uint32_t uses,
                               const int64_t **tiled)
{
    static const int64_t wanted[TILED_RANK] = {0, 1, 3, 2, 4, 5};
    const struct ul_node *last = maker(windows, value, uses);
    uint32_t count = 0;
    if (last == NULL || !ul_edit_is_reshape(last->op))
        return UL_NONE;
    const struct ul_node *turn = maker(windows, last->inputs[0], 1);
    const int64_t *perm = turn == NULL ? NULL : ul_node_get_ints(turn, "perm", &count);
    if (perm == NULL || turn->op != UL_OP_Transpose || count != TILED_RANK ||
        memcmp(perm, wanted, sizeof wanted) != 0)
        return UL_NONE;
    const struct ul_node *first = maker(windows, turn->inputs[0], 1);
    if (first == NULL || !ul_edit_is_reshape(first->op))
        return UL_NONE;
    *tiled = type_of(windows, turn->inputs[0])->dims;
    return first->inputs[0];
}

/* Whether it has the image's rows, in this order, in any number of dimensions. */
static bool has_rows(const struct ul_type *type, const int64_t *image)
{
    uint64_t rows = (uint64_t)(image[0] * image[1] * image[2]);
    return type->rank > 1 && type->dims[type->rank - 1] == image[3] && image[3] > 0 && rows > 0 &&
           ul_type_elements(type) == rows * (uint64_t)image[3];
}

/* Whether it has rows of windows of so many places each. */
static bool has_places(const struct ul_type *type, int64_t count)
{
    return type->rank > 2 && type->dims[type->rank - 2] == count;
}

static bool is_image(const struct ul_type *type, const int64_t *image)
{
    return type->rank == IMAGE_RANK && has_rows(type, image) &&
           memcmp(type->dims, image, IMAGE_RANK * sizeof *image) == 0;
}

/* Finds a path from an image to windows; the last Reshape is the root. */
static bool find_cut(const struct windows *windows, ul_value_id value, struct found *found)
{
    const int64_t *t;
    ul_value_id source = read_tiling(windows, value, windows->uses[value], &t);
    if (source == UL_NONE || !has_places(type_of(windows, value), t[2] * t[4]))
        return false;
    const int64_t image[IMAGE_RANK] = {t[0], t[1] * t[2], t[3] * t[4], t[5]};
    *found = (struct found){.sizes = {t[2], t[4]}};
    memcpy(found->image, image, sizeof image);
    found->source = before_rolls(windows, source, 1, found->shifts);
    found->uses = found->source == source ? 1 : 2;
    if (found->source != source && !is_image(type_of(windows, source), image))
        return false;
    const struct ul_node *node = maker(windows, found->source, found->uses);
    if (node != NULL && ul_edit_is_reshape(node->op)) {
        found->source = node->inputs[0];
        found->uses = 1;
    }
    return has_rows(type_of(windows, found->source), image);
}

/* Finds a path from windows to an image; the last Reshape or roll is the root. */
static bool find_join(const struct windows *windows, ul_value_id value, struct found *found)
{
    const int64_t *t;
    *found = (struct found){.source = UL_NONE};
    ul_value_id rolled = before_rolls(windows, value, windows->uses[value], found->shifts);
    found->source = read_tiling(windows, rolled, rolled == value ? windows->uses[value] : 2, &t);
    if (found->source == UL_NONE || !has_places(type_of(windows, found->source), t[3] * t[4]))
        return false;
    const int64_t image[IMAGE_RANK] = {t[0], t[1] * t[3], t[2] * t[4], t[5]};
    found->sizes[0] = t[3];
    found->sizes[1] = t[4];
    memcpy(found->image, image, sizeof image);
    return has_rows(type_of(windows, value), image) &&
           (rolled == value || is_image(type_of(windows, value), image));
}

/* ---- Places of windows side by side ---- */

/* What a Slice of a Slice is made from; UL_NONE: it is not that. */
static ul_value_id before_slices(const struct windows *windows, ul_value_id value)
{
    const struct ul_graph *graph = windows->graph;
    const struct ul_node *last = maker(windows, value, 1);
    if (last == NULL || last->op != UL_OP_Slice)
        return UL_NONE;
    const struct ul_value *between = &graph->values[last->inputs[0]];
    bool is_sliced =
        between->kind == UL_VALUE_NODE && graph->nodes[between->producer].op == UL_OP_Slice;
    return is_sliced ? graph->nodes[between->producer].inputs[0] : UL_NONE;
}

/* Whether a value is the place `at` of each window, by two Slices of the source. */
static bool is_place(const struct windows *windows, ul_value_id value, const struct found *found,
                     const int64_t at[2])
{
    const struct ul_graph *graph = windows->graph;
    if (before_slices(windows, value) != found->source)
        return false;
    const struct ul_node *last = &graph->nodes[graph->values[value].producer];
    const struct ul_node *first = &graph->nodes[graph->values[last->inputs[0]].producer];
    const struct ul_type *part = type_of(windows, value);
    struct ul_view own = ul_view_own(graph, found->source), half, view;
    if (!ul_op_get(first->op)->view(graph, first, 0, &own, &half) ||
        !ul_op_get(last->op)->view(graph, last, 0, &half, &view))
        return false;
    for (uint32_t d = 0; d < IMAGE_RANK; d++) {
        int64_t step = d == 1 || d == 2 ? found->sizes[d - 1] : 1;
        if (found->image[d] != step * part->dims[d] || view.strides[d] != step * own.strides[d])
            return false;
    }
    int64_t elements = at[0] * own.strides[1] + at[1] * own.strides[2];
    return view.offset_bytes ==
           elements * (int64_t)ul_dtype_get(graph->values[found->source].type.dtype)->size_bytes;
}

/* Whether it is a Concat of all places, in this order. */
static bool has_all_places(const struct windows *windows, const struct ul_node *concat,
                           const struct found *found)
{
    int64_t inner = found->sizes[found->turned ? 0 : 1];
    for (uint32_t i = 0; i < concat->input_count; i++) {
        int64_t outside = i / inner, inside = i % inner;
        const int64_t at[2] = {found->turned ? inside : outside, found->turned ? outside : inside};
        if (!is_place(windows, concat->inputs[i], found, at))
            return false;
    }
    return true;
}

/* Finds the source of a LayerNormalization whose every row is a whole window. */
static bool find_merged(const struct windows *windows, const struct ul_node *norm,
                        struct found *found)
{
    const struct ul_node *node = maker(windows, norm->inputs[0], 1);
    if (node != NULL && ul_edit_is_reshape(node->op))
        node = maker(windows, node->inputs[0], 1);
    if (node == NULL || node->op != UL_OP_Concat)
        return false;
    const struct ul_type *all = type_of(windows, node->outputs[0]);
    int64_t axis = ul_node_get_int(node, "axis", 0);
    *found = (struct found){.source = before_slices(windows, node->inputs[0])};
    if (found->source == UL_NONE || all->rank != IMAGE_RANK || ul_type_elements(all) == 0 ||
        (axis != -1 && axis != IMAGE_RANK - 1))
        return false;
    memcpy(found->image, type_of(windows, found->source)->dims, sizeof found->image);
    for (uint32_t d = 0; d < 2; d++)
        found->sizes[d] = found->image[1 + d] / all->dims[1 + d];
    if (type_of(windows, found->source)->rank != IMAGE_RANK ||
        found->sizes[0] * found->sizes[1] != node->input_count)
        return false;
    if (has_all_places(windows, node, found))
        return true;
    found->turned = true;
    return has_all_places(windows, node, found);
}

/* A normalization along the last axis, with numbers for each of its elements. */
static bool is_of_rows(const struct windows *windows, const struct ul_node *norm)
{
    const struct ul_type *type = type_of(windows, norm->inputs[0]);
    int64_t axis = ul_node_get_int(norm, "axis", -1);
    if (type->rank == 0 || norm->output_count != 1 || (axis != -1 && axis != type->rank - 1))
        return false;
    for (uint32_t i = 1; i < norm->input_count; i++) {
        const struct ul_type *own =
            norm->inputs[i] == UL_NONE ? NULL : type_of(windows, norm->inputs[i]);
        if (own != NULL && (own->rank != 1 || own->dims[0] != type->dims[type->rank - 1]))
            return false;
    }
    return true;
}

/* ---- Rewriting ---- */

/* A LayerNormalization of rows that only the windows read. */
static const struct ul_node *normalised(const struct windows *windows, const struct found *found)
{
    const struct ul_node *node = maker(windows, found->source, found->uses);
    if (node == NULL || node->op != UL_OP_LayerNormalization)
        return NULL;
    int64_t axis = ul_node_get_int(node, "axis", -1);
    for (uint32_t i = 1; i < node->input_count; i++)
        if (node->inputs[i] != UL_NONE && type_of(windows, node->inputs[i])->rank > 1)
            return NULL;
    axis += axis < 0 ? (int64_t)type_of(windows, found->source)->rank : 0;
    return axis + 1 == (int64_t)type_of(windows, found->source)->rank ? node : NULL;
}

static ul_value_id build_windows(struct ul_build *build, const struct found *found, bool cuts)
{
    struct ul_graph *graph = build->graph;
    enum ul_dtype dtype = graph->values[found->source].type.dtype;
    const int64_t *image = found->image, *sizes = found->sizes;
    const int64_t dims[3] = {image[0] * (image[1] / sizes[0]) * (image[2] / sizes[1]),
                             sizes[0] * sizes[1], image[3]};
    const struct ul_type rows = ul_type_make(dtype, 3, dims);
    UL_ASSERT(image[1] % sizes[0] == 0 && image[2] % sizes[1] == 0);
    UL_ASSERT(found->shifts[0] < image[1] && found->shifts[1] < image[2]);
    const struct ul_type type = cuts ? rows : ul_type_make(dtype, IMAGE_RANK, image);
    const struct ul_type from = cuts ? ul_type_make(dtype, IMAGE_RANK, image) : rows;
    ul_value_id source = found->source;
    if (!ul_type_equal(&graph->values[source].type, &from))
        source = ul_build_reshape(build, source, from.rank, from.dims);
    ul_value_id made = ul_build_value(build, UL_OP_Windows, &source, 1, &type);
    ul_node_id node = graph->values[made].producer;
    ul_node_set_ints(graph, node, "sizes", sizes, 2);
    ul_node_set_ints(graph, node, "shifts", found->shifts, 2);
    if (found->turned)
        ul_node_set_int(graph, node, "turned", 1);
    if (!cuts)
        ul_node_set_ints(graph, node, "image", image, IMAGE_RANK);
    return made;
}

/* A normalization of windows, like `like`. */
static ul_value_id build_norm(struct ul_build *build, ul_node_id like, ul_value_id made)
{
    struct ul_graph *graph = build->graph;
    const struct ul_node old = graph->nodes[like];
    ul_value_id *inputs = ul_arena_copy(graph->arena, old.inputs, old.input_count * sizeof *inputs);
    UL_ASSERT(old.input_count > 0);
    inputs[0] = made;
    ul_node_id node = ul_build_like(build, like, inputs);
    ul_node_set_int(graph, node, "axis", -1);
    graph->values[graph->nodes[node].outputs[0]].type = graph->values[made].type;
    return graph->nodes[node].outputs[0];
}

/* The root makes what is made now, maybe in another shape, which is a view. */
static void rewrite(struct windows *windows, ul_node_id root, struct found *found, bool cuts)
{
    struct ul_graph *graph = windows->graph;
    ul_value_id value = graph->nodes[root].outputs[0];
    const struct ul_type type = *type_of(windows, value);
    struct ul_build build = ul_build_before(graph, root);
    const struct ul_node *norm = cuts ? normalised(windows, found) : NULL;
    ul_node_id norm_id = norm == NULL ? UL_NONE : graph->values[found->source].producer;
    if (norm != NULL)
        found->source = norm->inputs[0];
    ul_value_id made = build_windows(&build, found, cuts);
    if (norm_id != UL_NONE)
        made = build_norm(&build, norm_id, made);
    UL_ASSERT(ul_type_elements(type_of(windows, made)) == ul_type_elements(&type));
    if (!ul_type_equal(type_of(windows, made), &type)) {
        const ul_value_id inputs[2] = {made, ul_build_ints(graph, "shape", type.rank, type.dims)};
        ul_node_become(graph, root, UL_OP_Reshape, inputs, 2);
        ul_node_set_int(graph, root, "allowzero", 1);
        return;
    }
    ul_node_id last = graph->values[made].producer;
    const struct ul_node from = graph->nodes[last];
    ul_node_become(graph, root, from.op, from.inputs, from.input_count);
    graph->nodes[root].attrs = from.attrs;
    graph->nodes[root].attr_count = from.attr_count;
    ul_graph_remove_node(graph, last);
}

/* Rewrites the LayerNormalization `root` of all that a window has, by two axes. */
static void rewrite_merged(struct windows *windows, ul_node_id root, const struct found *found)
{
    struct ul_graph *graph = windows->graph;
    struct ul_build build = ul_build_before(graph, root);
    const struct ul_type type = *type_of(windows, graph->nodes[root].outputs[0]);
    const int64_t row[2] = {found->sizes[0] * found->sizes[1], found->image[3]};
    ul_value_id inputs[3] = {build_windows(&build, found, true), UL_NONE, UL_NONE};
    uint32_t count = graph->nodes[root].input_count;
    UL_ASSERT(count > 0 && count <= 3);
    for (uint32_t i = 1; i < count; i++)
        if (graph->nodes[root].inputs[i] != UL_NONE)
            inputs[i] = ul_build_reshape(&build, graph->nodes[root].inputs[i], 2, row);
    ul_node_id norm = ul_build_like(&build, root, inputs);
    ul_value_id made = graph->nodes[norm].outputs[0];
    ul_node_set_int(graph, norm, "axis", -2);
    graph->values[made].type = *type_of(windows, inputs[0]);
    const ul_value_id shape[2] = {made, ul_build_ints(graph, "shape", type.rank, type.dims)};
    ul_node_become(graph, root, UL_OP_Reshape, shape, 2);
    ul_node_set_int(graph, root, "allowzero", 1);
}

/* Whether it moves rows: without a roll, the Transpose may move an axis of one element. */
static bool moves_rows(const struct found *found)
{
    return found->shifts[0] != 0 || found->shifts[1] != 0 ||
           (found->sizes[0] != 1 && found->sizes[1] != found->image[2]);
}

enum ul_status ul_pass_windows(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct windows windows = {.graph = graph, .known_count = graph->value_count};
    struct ul_node_list order = ul_edit_all_nodes(graph, pass->scratch);
    if (!pass->traits->steps_cost)
        return UL_OK;
    windows.uses = ul_graph_count_uses(graph, pass->scratch);
    for (uint32_t n = order.count; n-- > 0;) {
        const struct ul_node *node = &graph->nodes[order.nodes[n]];
        struct found found;
        if (node->op == UL_OP_LayerNormalization && is_of_rows(&windows, node) &&
            find_merged(&windows, node, &found)) {
            rewrite_merged(&windows, order.nodes[n], &found);
            continue;
        }
        bool may_end = node->op == UL_OP_Concat || ul_edit_is_reshape(node->op);
        if (!may_end || node->output_count != 1)
            continue;
        bool cuts = find_cut(&windows, node->outputs[0], &found);
        if ((cuts || find_join(&windows, node->outputs[0], &found)) && moves_rows(&found))
            rewrite(&windows, order.nodes[n], &found, cuts);
    }
    return ul_pass_dce(pass); /* only the chains read that */
}
