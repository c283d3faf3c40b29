/* SPDX-License-Identifier: Apache-2.0 */
/* ScatterElements and ScatterND: one pass copies the data, one applies the updates in order.
 * Updates can only meet along the indexed dimensions; the others run in parallel. Where the indexes
 * are known and all differ, no updates meet, and a device takes all of them at once. */
#include "ir/ops/movement/scatter.def"

#include "ir/kernel_build.h"
#include "ir/ops/check.h"
#include "ir/ops/lanes.h"

#include <string.h>

enum { DATA, INDEXES, UPDATES };

/* Shapes */

static enum ul_status check_reduction(const struct ul_infer *infer)
{
    static const char *const known[] = {"none", "add", "mul", "max", "min"};
    const char *requested = ul_node_get_string(infer->node, "reduction", "none");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(requested, known[i]) == 0)
            return UL_OK;
    }
    return ul_infer_invalid(infer, "reduction %s; known are none, add, mul, max and min",
                            ul_quote(infer->scratch, requested));
}

enum ul_status ul_infer_scatter_elements(struct ul_infer *infer)
{
    const struct ul_type *data = ul_infer_input(infer, DATA);
    const struct ul_type *indexes = ul_infer_input(infer, INDEXES);
    UL_TRY(check_reduction(infer));
    UL_TRY(ul_check_dtype(infer, INDEXES, UL_CHECK_INDEXES));
    UL_TRY(ul_check_same_dtype(infer, DATA, UPDATES));
    uint32_t axis;
    UL_TRY(ul_infer_axis(infer, ul_node_get_int(infer->node, "axis", 0), data->rank, &axis));
    UL_TRY(ul_check_rank(infer, INDEXES, data->rank, data->rank));
    UL_TRY(ul_check_shape(infer, UPDATES, indexes->rank, indexes->dims));
    for (uint32_t d = 0; d < data->rank; d++) {
        bool fits = d == axis ? data->dims[d] > 0 : indexes->dims[d] <= data->dims[d];
        if (!fits && ul_type_elements(indexes) > 0)
            return ul_infer_invalid(infer, "dimension %u of the indexes is %lld, of the data %lld",
                                    (unsigned)d, (long long)indexes->dims[d],
                                    (long long)data->dims[d]);
    }
    ul_infer_set_type(infer, 0, data);
    return UL_OK;
}

enum ul_status ul_infer_scatter_nd(struct ul_infer *infer)
{
    const struct ul_type *data = ul_infer_input(infer, DATA);
    const struct ul_type *indexes = ul_infer_input(infer, INDEXES);
    UL_TRY(check_reduction(infer));
    UL_TRY(ul_check_dtype(infer, INDEXES, UL_CHECK_INDEXES));
    UL_TRY(ul_check_same_dtype(infer, DATA, UPDATES));
    UL_TRY(ul_check_rank(infer, INDEXES, 1, UL_LIMIT_RANK));
    int64_t depth = indexes->dims[indexes->rank - 1];
    UL_TRY(
        ul_check_range(infer, "the last dimension of the indexes", depth, 0, (int64_t)data->rank));
    uint32_t rank = indexes->rank - 1;
    uint32_t tail = data->rank - (uint32_t)depth;
    if (rank + tail > UL_LIMIT_RANK)
        return ul_infer_invalid(infer, "the updates would have rank %u", (unsigned)(rank + tail));
    int64_t dims[UL_LIMIT_RANK];
    memcpy(dims, indexes->dims, rank * sizeof *dims);
    memcpy(dims + rank, data->dims + depth, tail * sizeof *dims);
    UL_TRY(ul_check_shape(infer, UPDATES, rank + tail, dims));
    for (uint32_t d = 0; d < (uint32_t)depth; d++) {
        if (data->dims[d] == 0 && ul_type_elements(ul_infer_input(infer, UPDATES)) > 0)
            return ul_infer_invalid(infer, "dimension %u of the data is empty, but is indexed",
                                    (unsigned)d);
    }
    ul_infer_set_type(infer, 0, data);
    return UL_OK;
}

/* Loops */

static void copy_data(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *type = ul_lower_input_type(lower, node, DATA);
    const struct ul_node *info = ul_check_node(lower, node);
    ul_kx index[UL_LIMIT_RANK];
    ul_lower_open(lower, type->rank, type->dims, index);
    ul_lower_store(lower, info->outputs[0], index, ul_lower_load(lower, info->inputs[DATA], index));
    ul_lower_close(lower, type->rank);
}

/* Combines the old element and the update. Bools combine as numpy's do. */
static ul_kx combine(struct ul_kernel *k, const char *reduction, ul_kx old, ul_kx update)
{
    bool is_bool = ul_kx_dtype(k, old) == UL_BOOL;
    if (strcmp(reduction, "add") == 0)
        return ul_kx_binary(k, is_bool ? UL_KX_OR : UL_KX_ADD, old, update);
    if (strcmp(reduction, "mul") == 0)
        return ul_kx_binary(k, is_bool ? UL_KX_AND : UL_KX_MUL, old, update);
    if (strcmp(reduction, "max") == 0)
        return ul_kx_binary(k, is_bool ? UL_KX_OR : UL_KX_MAX, old, update);
    return ul_kx_binary(k, is_bool ? UL_KX_AND : UL_KX_MIN, old, update);
}

static void apply_update(struct ul_lower *lower, ul_node_id node, const ul_kx *place,
                         const ul_kx *update_index)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const char *reduction = ul_node_get_string(info, "reduction", "none");
    ul_kx update = ul_ks_let(k, ul_lower_load(lower, info->inputs[UPDATES], update_index));
    if (strcmp(reduction, "none") != 0) {
        ul_kx old = ul_ks_let(k, ul_lower_load_output(lower, info->outputs[0], place));
        update = combine(k, reduction, old, update);
    }
    ul_lower_store(lower, info->outputs[0], place, update);
}

/* ---- Places that are known ---- */

struct places {
    const struct ul_type *data;
    const struct ul_tensor *indexes;
    uint32_t axis;  /* of ScatterElements */
    uint32_t depth; /* number of indexes in a ScatterND tuple; 0: ScatterElements */
};

/* The index, wrapped if it is negative, or -1 where it is out of range. */
static int64_t index_at(const struct places *p, uint64_t at, uint32_t dim)
{
    int64_t index = ul_tensor_get_int(p->indexes, at);
    int64_t size = p->data->dims[dim];
    index += index < 0 ? size : 0;
    return index < 0 || index >= size ? -1 : index;
}

/* The number of the slice that a tuple of indexes names, or -1. */
static int64_t slice_at(const struct places *p, uint64_t tuple)
{
    int64_t place = 0;
    for (uint32_t d = 0; d < p->depth; d++) {
        int64_t index = index_at(p, tuple * p->depth + d, d);
        if (index < 0)
            return -1;
        place = place * p->data->dims[d] + index;
    }
    return place;
}

/* The number of the element that an index names, or -1. */
static int64_t element_at(const struct places *p, uint64_t at)
{
    const struct ul_type *type = &p->indexes->type;
    int64_t coordinates[UL_LIMIT_RANK];
    int64_t place = 0;
    uint64_t rest = at;
    for (uint32_t d = type->rank; d-- > 0;) {
        coordinates[d] = (int64_t)(rest % (uint64_t)type->dims[d]);
        rest /= (uint64_t)type->dims[d];
    }
    coordinates[p->axis] = index_at(p, at, p->axis);
    if (coordinates[p->axis] < 0)
        return -1;
    for (uint32_t d = 0; d < type->rank; d++)
        place = place * p->data->dims[d] + coordinates[d];
    return place;
}

/* Gives UL_FOR_PARALLEL if updates may be applied in any order, otherwise 0. */
static uint32_t order_flags(struct ul_lower *lower, ul_node_id node, uint32_t axis, uint32_t depth)
{
    enum { MAX_PLACES = 1 << 24 };
    ul_value_id indexes = ul_check_node(lower, node)->inputs[INDEXES];
    const struct places p = {.data = ul_lower_input_type(lower, node, DATA),
                             .indexes = ul_graph_get_constant(lower->graph, indexes),
                             .axis = axis,
                             .depth = depth};
    uint64_t place_count = 1;
    for (uint32_t d = 0; d < (depth > 0 ? depth : p.data->rank); d++)
        place_count *= (uint64_t)p.data->dims[d]; /* of a tensor that exists */
    if (lower->traits->partial_count == 0 || p.indexes == NULL || place_count > MAX_PLACES)
        return 0;
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    bool *is_taken = UL_NEW_ARRAY(&scratch, bool, place_count);
    uint64_t count = ul_type_elements(&p.indexes->type) / (depth > 0 ? depth : 1);
    bool distinct = true;
    for (uint64_t i = 0; distinct && i < count; i++) {
        int64_t place = depth > 0 ? slice_at(&p, i) : element_at(&p, i);
        distinct = place >= 0 && !is_taken[place];
        if (distinct)
            is_taken[place] = true;
    }
    ul_arena_done(&scratch);
    return distinct ? UL_FOR_PARALLEL : 0;
}

void ul_lower_scatter_elements(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *data = ul_lower_input_type(lower, node, DATA);
    const struct ul_type *indexes = ul_lower_input_type(lower, node, INDEXES);
    copy_data(lower, node);
    if (ul_type_elements(indexes) == 0)
        return;
    int64_t requested = ul_node_get_int(info, "axis", 0);
    uint32_t axis = ul_check_get_axis(requested, data->rank);
    uint32_t kept = ul_lanes_all(data->rank) & ~(1u << axis);
    struct ul_lanes lanes;
    /* Updates of one place follow each other in row-major order. */
    ul_lanes_open_order(&lanes, lower, indexes->rank, indexes->dims, NULL, kept);
    ul_lanes_loop(&lanes, 1u << axis, order_flags(lower, node, axis, 0));
    ul_lanes_begin(&lanes);
    ul_kx place[UL_LIMIT_RANK];
    memcpy(place, lanes.index, sizeof place);
    ul_kx at = ul_lower_load(lower, info->inputs[INDEXES], lanes.index);
    place[axis] = ul_ks_let(k, ul_kx_checked_index(k, at, data->dims[axis], true));
    apply_update(lower, node, place, lanes.index);
    ul_lanes_end(&lanes);
    ul_lanes_loop_end(&lanes, 1u << axis);
    ul_lanes_close(&lanes);
}

/* Updates are slices of the data, one for each tuple of indexes. */
void ul_lower_scatter_nd(struct ul_lower *lower, ul_node_id node)
{
    struct ul_kernel *k = lower->kernel;
    const struct ul_node *info = ul_check_node(lower, node);
    const struct ul_type *data = ul_lower_input_type(lower, node, DATA);
    const struct ul_type *indexes = ul_lower_input_type(lower, node, INDEXES);
    const struct ul_type *updates = ul_lower_input_type(lower, node, UPDATES);
    copy_data(lower, node);
    if (ul_type_elements(updates) == 0)
        return;
    uint32_t tuples = indexes->rank - 1;
    uint32_t depth = (uint32_t)indexes->dims[tuples];
    uint32_t kept = ul_lanes_all(updates->rank) & ~ul_lanes_all(tuples);
    struct ul_lanes lanes;
    /* Updates of one place follow each other in row-major order. */
    ul_lanes_open_order(&lanes, lower, updates->rank, updates->dims, NULL, kept);
    uint32_t flags = depth > 0 ? order_flags(lower, node, 0, depth) : 0;
    ul_lanes_loop(&lanes, ul_lanes_all(tuples), flags);
    ul_kx place[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < depth; d++) {
        ul_kx index[UL_LIMIT_RANK];
        memcpy(index, lanes.index, sizeof index);
        index[tuples] = ul_kx_index_const(k, d);
        ul_kx at = ul_lower_load(lower, info->inputs[INDEXES], index);
        place[d] = ul_ks_let(k, ul_kx_checked_index(k, at, data->dims[d], true));
    }
    ul_lanes_begin(&lanes);
    for (uint32_t d = depth; d < data->rank; d++)
        place[d] = lanes.index[tuples + d - depth];
    apply_update(lower, node, place, lanes.index);
    ul_lanes_end(&lanes);
    ul_lanes_loop_end(&lanes, ul_lanes_all(tuples));
    ul_lanes_close(&lanes);
}
