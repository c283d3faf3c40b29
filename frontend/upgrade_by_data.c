/* SPDX-License-Identifier: Apache-2.0 */
/* Operators whose number of results depends on their data, where these data are constants:
 * initializers, `--const`, and what is computed from sizes and other constants. Their results are
 * constants, as those of other operators are; Compress by a constant condition is a Gather. Where
 * the data are not known the node stays as it is, and is refused with a reason (old_node.c). */
#include "frontend/old_emit.h"
#include "frontend/rows.h"
#include "ir/infer.h"
#include "ir/op.h"

#include <stdlib.h>
#include <string.h>

/* An input that is known; NULL: it is absent, not known, or too large to look through. */
static const struct ul_tensor *known(struct ul_old_node *node, uint32_t index)
{
    ul_value_id value = ul_old_input(node, index);
    if (ul_old_tensor(node, value) == NULL)
        return NULL;
    const struct ul_tensor *tensor = ul_graph_get_constant(node->builder->graph, value);
    return tensor != NULL && ul_type_elements(&tensor->type) <= UL_LIMIT_FOLD_ELEMENTS ? tensor
                                                                                       : NULL;
}

static void set_constant(struct ul_old_node *node, uint32_t output, const struct ul_tensor *tensor)
{
    struct ul_model_builder *builder = node->builder;
    node->finished = true;
    if (output < node->output_count)
        ul_old_set_result(node, output,
                          ul_graph_add_weight(builder->graph,
                                              ul_builder_name(builder, node->outputs[output]),
                                              tensor));
}

static void set_ints(struct ul_old_node *node, uint32_t output, uint32_t rank, const int64_t *dims,
                     const int64_t *values)
{
    set_constant(node, output,
                 ul_tensor_new_ints(node->builder->graph->arena, UL_I64, rank, dims, values));
}

static bool is_zero(const struct ul_tensor *tensor, uint64_t index)
{
    return ul_dtype_get(tensor->type.dtype)->is_float ? ul_tensor_get_float(tensor, index) == 0
                                                      : ul_tensor_get_int(tensor, index) == 0;
}

/* The place of a scalar is one coordinate, as in onnxruntime. */
void ul_upgrade_non_zero(struct ul_old_node *node)
{
    const struct ul_tensor *x = known(node, 0);
    if (x == NULL)
        return;
    uint64_t count = ul_type_elements(&x->type);
    uint32_t rank = x->type.rank;
    int64_t dims[2] = {rank == 0 ? 1 : rank, 0};
    for (uint64_t i = 0; i < count; i++)
        dims[1] += !is_zero(x, i);
    int64_t *places = UL_NEW_ARRAY(node->builder->scratch, int64_t, (uint64_t)(dims[0] * dims[1]));
    int64_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        int64_t rest = (int64_t)i;
        if (is_zero(x, i))
            continue;
        for (uint32_t d = rank; d-- > 0; rest /= x->type.dims[d])
            places[d * dims[1] + found] = rest % x->type.dims[d];
        found++;
    }
    set_ints(node, 0, 2, dims, places);
}

void ul_upgrade_compress(struct ul_old_node *node)
{
    const struct ul_tensor *condition = known(node, 1);
    const struct ul_attr *attr = ul_old_attr(node, "axis");
    struct ul_type x = ul_old_type(node, ul_old_input(node, 0));
    if (condition == NULL || condition->type.rank != 1 || ul_old_input(node, 0) == UL_NONE)
        return;
    uint64_t count = ul_type_elements(&condition->type);
    int64_t *places = UL_NEW_ARRAY(node->builder->scratch, int64_t, count);
    uint32_t found = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (!is_zero(condition, i))
            places[found++] = (int64_t)i;
    }
    int64_t axis = attr == NULL ? 0 : ul_old_int(node, "axis", 0);
    int64_t extent = ul_type_known(&x) ? (int64_t)ul_type_elements(&x) : INT64_MAX;
    if (attr != NULL && ul_type_known(&x)) {
        int64_t d = axis < 0 ? axis + x.rank : axis;
        if (d < 0 || d >= x.rank) {
            ul_old_invalid(node, "its axis is none of input 0");
            return;
        }
        extent = x.dims[d];
    }
    if (found > 0 && places[found - 1] >= extent) {
        ul_old_invalid(node, "its condition is longer than what it chooses of");
        return;
    }
    ul_old_finish(node,
                  UL_WITH({"x", ul_row_value(node->inputs[0])}, {"flat", ul_row_int(attr == NULL)},
                          {"places", ul_row_ints(found, places)}, {"axis", ul_row_int(axis)}),
                  "Gather(flat ? Reshape(x, [-1]) : x, places) {axis=axis}");
}

/* ---- Unique ---- */

/* One of the things that are compared: its element j is element begin + (j / inner) * step + j %
 * inner of the tensor. */
struct item {
    const struct ul_tensor *tensor;
    uint64_t begin, step, inner, count;
    int64_t place; /* its index along the axis */
};

static uint64_t element_of(const struct item *item, uint64_t j)
{
    return item->begin + j / item->inner * item->step + j % item->inner;
}

static int compare_elements(const struct ul_tensor *tensor, uint64_t a, uint64_t b)
{
    if (ul_dtype_get(tensor->type.dtype)->is_float) {
        double x = ul_tensor_get_float(tensor, a), y = ul_tensor_get_float(tensor, b);
        return (x > y) - (x < y);
    }
    int64_t x = ul_tensor_get_int(tensor, a), y = ul_tensor_get_int(tensor, b);
    if (tensor->type.dtype == UL_U64)
        return ((uint64_t)x > (uint64_t)y) - ((uint64_t)x < (uint64_t)y);
    return (x > y) - (x < y);
}

static int compare_items(const struct item *a, const struct item *b)
{
    int order = 0;
    for (uint64_t j = 0; j < a->count && order == 0; j++)
        order = compare_elements(a->tensor, element_of(a, j), element_of(b, j));
    return order;
}

static int by_value(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = compare_items(x, y);
    return order != 0 ? order : (x->place > y->place) - (x->place < y->place);
}

static int by_place(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* The result: the first of each group of equal items, and for each item the group that it is in. */
struct unique {
    struct item *firsts;
    int64_t count, *group, *rank_of; /* per item: the place of its first; per place: its rank */
};

static struct unique find_unique(struct ul_arena *arena, struct item *items, int64_t count,
                                 bool sorted)
{
    struct unique unique = {.firsts = UL_NEW_ARRAY(arena, struct item, (uint64_t)count),
                            .group = UL_NEW_ARRAY(arena, int64_t, (uint64_t)count),
                            .rank_of = UL_NEW_ARRAY(arena, int64_t, (uint64_t)count)};
    if (count > 0)
        qsort(items, (size_t)count, sizeof *items, by_value);
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || compare_items(&unique.firsts[unique.count - 1], &items[i]) != 0)
            unique.firsts[unique.count++] = items[i];
        unique.group[items[i].place] = unique.firsts[unique.count - 1].place;
    }
    if (!sorted && unique.count > 0)
        qsort(unique.firsts, (size_t)unique.count, sizeof *unique.firsts, by_place);
    for (int64_t i = 0; i < unique.count; i++)
        unique.rank_of[unique.firsts[i].place] = i;
    return unique;
}

/* Joins the kept items along the axis. */
static const struct ul_tensor *join_items(struct ul_arena *arena, const struct unique *unique,
                                          const struct ul_type *type, uint64_t inner)
{
    uint64_t size_bytes = ul_dtype_get(type->dtype)->size_bytes;
    unsigned char *bytes = ul_arena_alloc(arena, ul_type_bytes(type));
    for (int64_t i = 0; i < unique->count; i++) {
        const struct item *item = &unique->firsts[i];
        for (uint64_t j = 0; j < item->count; j++) {
            uint64_t at = (j / inner * (uint64_t)unique->count + (uint64_t)i) * inner + j % inner;
            ul_tensor_read(item->tensor, element_of(item, j), 1, bytes + at * size_bytes);
        }
    }
    return ul_tensor_new(arena, type, bytes);
}

static void set_counts(struct ul_old_node *node, const struct unique *unique, int64_t count)
{
    struct ul_arena *scratch = node->builder->scratch;
    int64_t *first = UL_NEW_ARRAY(scratch, int64_t, (uint64_t)count);
    int64_t *inverse = UL_NEW_ARRAY(scratch, int64_t, (uint64_t)count);
    int64_t *times = UL_NEW_ARRAY(scratch, int64_t, (uint64_t)count);
    for (int64_t i = 0; i < unique->count; i++)
        first[i] = unique->firsts[i].place;
    for (int64_t i = 0; i < count; i++) {
        inverse[i] = unique->rank_of[unique->group[i]];
        times[inverse[i]]++;
    }
    set_ints(node, 1, 1, &unique->count, first);
    set_ints(node, 2, 1, &count, inverse);
    set_ints(node, 3, 1, &unique->count, times);
}

void ul_upgrade_unique(struct ul_old_node *node)
{
    const struct ul_tensor *x = known(node, 0);
    if (x == NULL || !ul_dtype_is_computed(x->type.dtype))
        return;
    struct ul_arena *scratch = node->builder->scratch;
    struct ul_type type = x->type;
    int64_t axis = ul_old_int(node, "axis", 0);
    if (ul_old_attr(node, "axis") == NULL)
        type = ul_type_make(x->type.dtype, 1, &(int64_t){(int64_t)ul_type_elements(&x->type)});
    axis += axis < 0 ? type.rank : 0;
    if (axis < 0 || axis >= type.rank) {
        ul_old_invalid(node, "its axis is none of input 0");
        return;
    }
    int64_t count = type.dims[axis];
    uint64_t inner = 1, total = ul_type_elements(&type);
    for (uint32_t d = (uint32_t)axis + 1; d < type.rank; d++)
        inner *= (uint64_t)type.dims[d];
    if (count > 0 && total == 0)
        return; /* all items are equal: they have no elements */
    struct item *items = UL_NEW_ARRAY(scratch, struct item, (uint64_t)count);
    for (int64_t i = 0; i < count; i++)
        items[i] = (struct item){x,     (uint64_t)i * inner,     (uint64_t)count * inner,
                                 inner, total / (uint64_t)count, i};
    struct unique unique = find_unique(scratch, items, count, ul_old_int(node, "sorted", 1) != 0);
    type.dims[axis] = unique.count;
    set_constant(node, 0, join_items(node->builder->graph->arena, &unique, &type, inner));
    set_counts(node, &unique, count);
}

/* ---- NonMaxSuppression ---- */

struct box {
    float low[2], high[2], area;
};

static struct box read_box(const struct ul_tensor *boxes, uint64_t at, bool is_centered)
{
    struct box box;
    for (uint32_t d = 0; d < 2; d++) {
        float a = (float)ul_tensor_get_float(boxes, at * 4 + d);
        float b = (float)ul_tensor_get_float(boxes, at * 4 + 2 + d);
        float half = b / 2;
        box.low[d] = is_centered ? a - half : a < b ? a : b;
        box.high[d] = is_centered ? a + half : a < b ? b : a;
    }
    box.area = (box.high[0] - box.low[0]) * (box.high[1] - box.low[1]);
    return box;
}

/* Computed in float, as in onnxruntime. */
static bool overlaps(const struct box *a, const struct box *b, float limit)
{
    float sides[2];
    for (uint32_t d = 0; d < 2; d++) {
        float low = a->low[d] > b->low[d] ? a->low[d] : b->low[d];
        float high = a->high[d] < b->high[d] ? a->high[d] : b->high[d];
        sides[d] = high - low;
        if (!(sides[d] > 0))
            return false;
    }
    float shared = sides[0] * sides[1], joined = a->area + b->area - shared;
    return a->area > 0 && b->area > 0 && joined > 0 && shared / joined > limit;
}

struct candidate {
    double score;
    int64_t place;
};

static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->score > y->score || x->score < y->score)
        return x->score > y->score ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

struct suppression {
    const struct ul_tensor *boxes, *scores, *least;
    float limit;
    bool is_centered;
    int64_t most, count, classes; /* of a class; boxes of a batch; classes of a batch */
    struct candidate *candidates;
    struct box *kept;
    int64_t *rows, row_count;
};

static void suppress(struct suppression *s, int64_t batch, int64_t class)
{
    int64_t candidate_count = 0, kept = 0;
    for (int64_t i = 0; i < s->count; i++) {
        double score =
            ul_tensor_get_float(s->scores, (uint64_t)((batch * s->classes + class) * s->count + i));
        if (s->least == NULL || score > ul_tensor_get_float(s->least, 0))
            s->candidates[candidate_count++] = (struct candidate){score, i};
    }
    if (candidate_count > 0)
        qsort(s->candidates, (size_t)candidate_count, sizeof *s->candidates, by_score);
    for (int64_t i = 0; i < candidate_count && kept < s->most; i++) {
        int64_t place = s->candidates[i].place;
        struct box box = read_box(s->boxes, (uint64_t)(batch * s->count + place), s->is_centered);
        bool is_free = true;
        for (int64_t k = 0; k < kept && is_free; k++)
            is_free = !overlaps(&box, &s->kept[k], s->limit);
        if (!is_free)
            continue;
        const int64_t row[3] = {batch, class, place};
        s->kept[kept++] = box;
        memcpy(s->rows + 3 * s->row_count++, row, sizeof row);
    }
}

void ul_upgrade_non_max_suppression(struct ul_old_node *node)
{
    struct ul_arena *scratch = node->builder->scratch;
    struct suppression s = {.boxes = known(node, 0), .scores = known(node, 1)};
    const struct ul_tensor *most = known(node, 2), *limit = known(node, 3);
    s.least = known(node, 4);
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE && known(node, i) == NULL)
            return;
    }
    if (s.boxes == NULL || s.scores == NULL)
        return;
    const struct ul_type *boxes = &s.boxes->type, *scores = &s.scores->type;
    if (boxes->rank != 3 || scores->rank != 3 || boxes->dims[2] != 4 ||
        boxes->dims[0] != scores->dims[0] || boxes->dims[1] != scores->dims[2]) {
        ul_old_invalid(node, "its boxes are [batch, n, 4] and scores [batch, classes, n]");
        return;
    }
    s.limit = limit == NULL ? 0 : (float)ul_tensor_get_float(limit, 0);
    s.most = most == NULL ? 0 : ul_tensor_get_int(most, 0);
    s.is_centered = ul_old_int(node, "center_point_box", 0) != 0;
    s.count = boxes->dims[1];
    s.classes = scores->dims[1];
    s.candidates = UL_NEW_ARRAY(scratch, struct candidate, (uint64_t)s.count);
    s.kept = UL_NEW_ARRAY(scratch, struct box, (uint64_t)s.count);
    s.rows = UL_NEW_ARRAY(scratch, int64_t, 3 * ul_type_elements(scores));
    for (int64_t batch = 0; batch < boxes->dims[0]; batch++) {
        for (int64_t class = 0; class < s.classes; class ++)
            suppress(&s, batch, class);
    }
    set_ints(node, 0, 2, (int64_t[]){s.row_count, 3}, s.rows);
}
