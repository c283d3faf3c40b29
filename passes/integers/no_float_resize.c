/* SPDX-License-Identifier: Apache-2.0 */
/* Resize of integers: sums of neighbours, weighted in fixed point.
 *
 * Where a Resize looks, and with which weights, is known before anything runs, axis by axis. Which
 * numbers these are the operator itself says: it is computed, for one axis, of a comb,
 *
 *      1 0 0 1 0 0 1      what row p gives is the weight of the place next to output o that is p
 *      0 1 0 0 1 0 0      modulo the period,
 *      0 0 1 0 0 1 0
 *      0 1 2 3 4 5 6      and the last row says where output o lies
 *
 * whose teeth are further apart than the neighbours of an output. A ResizeInteger has them as
 * tables:
 *
 *      y = round(sum over t, u of wh[t] ww[u] x[place_h[t], place_w[u]] * 2^-bits sx / sy) + zy
 *
 * where the weights of an output add up to what they do as floats. The nearest neighbour is one tap
 * without a weight. Left undone: what looks outside (tf_crop_and_resize), an aspect ratio that is
 * kept, more than UL_RESIZE_TAPS neighbours, combs of more than MAX_PROBE places. */
#include "ir/op_names.h"
#include "passes/integers/no_float_internal.h"

#include "ir/geometry.h"
#include "ir/infer.h"

#include <math.h>
#include <string.h>

enum {
    MAX_PROBE = 1 << 21,
    SUM_BITS = 30,      /* of a sum of 32 bits, */
    WIDE_SUM_BITS = 40, /* of 64: what a Rescale in fixed point has room for */
    BYTE_BITS = 8,
    GOOD_BITS = 10, /* of the weights of an axis: a quarter of a step at most over two axes */
    MAX_BITS = 14
};

/* One axis: tap t of output o is at [t * out + o]. */
struct taps {
    uint32_t axis, count;
    int64_t out;
    double *places, *weights;
    double norm; /* the largest sum of an output's weights' magnitudes */
};

struct resize {
    struct ul_integers *integers;
    const struct ul_node *node;
    struct taps taps[UL_LIMIT_RANK];
    uint32_t tap_axes;    /* axes for which `taps` says something */
    uint32_t weight_axes; /* whose weights are not all 1 */
    uint64_t tap_count;   /* in all */
    enum ul_dtype sum;
    int bits; /* of the weights of an axis */
};

/* ---- what the operator says ---- */

/* The entry of an input for dimension d; -1 where the input does not mention it. */
static int64_t entry_at(const struct ul_node *node, uint32_t rank, uint32_t d)
{
    uint32_t count = 0;
    const int64_t *axes = ul_node_get_ints(node, "axes", &count);
    for (uint32_t i = 0; axes != NULL && i < count; i++) {
        if ((axes[i] < 0 ? axes[i] + (int64_t)rank : axes[i]) == (int64_t)d)
            return i;
    }
    return axes == NULL ? (int64_t)d : -1;
}

static const struct ul_tensor *table_of(const struct resize *resize, uint32_t input)
{
    const struct ul_node *node = resize->node;
    const struct ul_tensor *tensor =
        input < node->input_count && node->inputs[input] != UL_NONE
            ? ul_graph_get_constant(resize->integers->graph, node->inputs[input])
            : NULL;
    return tensor == NULL || ul_type_elements(&tensor->type) == 0 ? NULL : tensor;
}

/* Sets scales and sizes for the one axis that is probed. */
static bool set_entries(const struct resize *resize, uint32_t d, ul_value_id inputs[4])
{
    struct ul_graph *graph = resize->integers->graph;
    const uint32_t rank = graph->values[resize->node->inputs[0]].type.rank;
    const struct ul_tensor *scales = table_of(resize, 2), *sizes = table_of(resize, 3);
    int64_t at = entry_at(resize->node, rank, d);
    if (at < 0 || (scales == NULL) == (sizes == NULL))
        return false;
    double number = sizes != NULL ? (double)ul_tensor_get_int(sizes, (uint64_t)at)
                                  : ul_tensor_get_float(scales, (uint64_t)at);
    enum ul_dtype dtype = sizes != NULL ? UL_I64 : UL_F32;
    inputs[sizes != NULL ? 3 : 2] =
        ul_edit_add_numbers(graph, "resize.entry", dtype, &number, 1, 1);
    return true;
}

/* Whether every element of the axis stays where it was. */
static bool is_left_alone(const struct resize *resize, uint32_t d, int64_t in, int64_t out)
{
    const struct ul_graph *graph = resize->integers->graph;
    const struct ul_tensor *scales = table_of(resize, 2);
    int64_t at = entry_at(resize->node, graph->values[resize->node->inputs[0]].type.rank, d);
    return at < 0 ||
           (in == out && (scales == NULL || ul_tensor_get_float(scales, (uint64_t)at) == 1));
}

/* The rows of a comb: row p has a 1 at each place p modulo `row_count`; the last row holds the
 * places themselves. There are as many rows as keep the neighbours of an output apart. */
static ul_value_id add_comb(struct ul_graph *graph, int64_t row_count, int64_t in)
{
    const int64_t dims[2] = {row_count + 1, in};
    const struct ul_type type = ul_type_make(UL_F32, 2, dims);
    float *rows = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    memset(rows, 0, ul_type_bytes(&type));
    for (int64_t i = 0; i < in; i++) {
        rows[i % row_count * in + i] = 1;
        rows[row_count * in + i] = (float)i;
    }
    return ul_graph_add_weight(graph, "resize.comb",
                               ul_edit_tensor(graph, &type, (const unsigned char *)rows));
}

/* What the operator makes from the comb along one axis; NULL: it is too large. */
static const struct ul_tensor *probe(const struct resize *resize, uint32_t d, int64_t row_count,
                                     int64_t in)
{
    struct ul_integers *integers = resize->integers;
    struct ul_graph *graph = integers->graph;
    const int64_t axis = 1;
    ul_value_id inputs[4] = {UL_NONE, UL_NONE, UL_NONE, UL_NONE};
    if (!set_entries(resize, d, inputs))
        return NULL;
    inputs[0] = add_comb(graph, row_count, in);
    ul_node_id id = ul_integers_begin(integers, UL_OP_Resize, inputs, inputs[3] == UL_NONE ? 3 : 4,
                                      resize->node);
    ul_node_set_ints(graph, id, "axes", &axis, 1);
    ul_value_id made = ul_integers_end(integers, id);
    bool is_folded = ul_node_fold(graph, id, integers->pass->scratch);
    if (is_folded)
        ul_edit_make_weight(graph, made);
    ul_graph_remove_node(graph, id);
    return is_folded ? ul_graph_get_constant(graph, made) : NULL;
}

static double at_row(const struct ul_tensor *combed, int64_t row, int64_t o)
{
    return ul_tensor_get_float(combed, (uint64_t)(row * combed->type.dims[1] + o));
}

/* Sets the taps of an axis. A tooth of the comb stands for several places; an output reads the one
 * next to the middle of what it reads. */
static void read_taps(struct resize *resize, const struct ul_tensor *combed, int64_t in,
                      struct taps *taps)
{
    struct ul_arena *scratch = resize->integers->pass->scratch;
    int64_t row_count = combed->type.dims[0] - 1, out = combed->type.dims[1];
    UL_ASSERT(combed->type.rank == 2 && row_count > 0 && out > 0);
    for (int64_t o = 0; o < out; o++) {
        uint32_t count = 0;
        for (int64_t p = 0; p < row_count; p++)
            count += at_row(combed, p, o) != 0;
        taps->count = count > taps->count ? count : taps->count;
    }
    taps->count = taps->count < 1 ? 1 : taps->count;
    taps->out = out;
    taps->places = UL_NEW_ARRAY(scratch, double, (uint64_t)(taps->count * out));
    taps->weights = UL_NEW_ARRAY(scratch, double, (uint64_t)(taps->count * out));
    for (int64_t o = 0; o < out; o++) {
        double middle = at_row(combed, row_count, o), period = (double)row_count;
        int64_t at = o;
        for (int64_t p = 0; p < row_count; p++) {
            double weight = at_row(combed, p, o);
            double place = (double)p + period * nearbyint((middle - (double)p) / period);
            if (weight == 0)
                continue;
            place += place < 0 ? period : place >= (double)in ? -period : 0;
            taps->places[at] = place;
            taps->weights[at] = weight;
            at += out;
        }
    }
}

static double norm_of(const struct taps *taps, int64_t o)
{
    double sum = 0;
    for (uint32_t t = 0; t < taps->count; t++)
        sum += fabs(taps->weights[t * taps->out + o]);
    return sum;
}

static bool is_weighed(const struct taps *taps)
{
    for (int64_t o = 0; o < taps->out; o++) {
        if (taps->count > 1 || taps->weights[o] != 1)
            return true;
    }
    return false;
}

/* Every output is the input's element of the same place. */
static bool is_kept(const struct taps *taps, int64_t in)
{
    for (int64_t o = 0; o < taps->out; o++) {
        if ((int64_t)taps->places[o] != o)
            return false;
    }
    return taps->out == in && !is_weighed(taps);
}

static bool find_taps(struct resize *resize)
{
    const struct ul_graph *graph = resize->integers->graph;
    const struct ul_node *node = resize->node;
    const struct ul_type x = graph->values[node->inputs[0]].type;
    const struct ul_type y = graph->values[node->outputs[0]].type;
    resize->tap_count = 1;
    for (uint32_t d = 0; d < x.rank; d++) {
        struct taps taps = {.axis = d};
        int64_t in = x.dims[d], out = y.dims[d], side = in > out ? in : out;
        if (in == 0 || out == 0)
            return false;
        if (is_left_alone(resize, d, in, out))
            continue;
        /* Four neighbours, or as many as lie under a filter that is as much wider, with a gap. */
        int64_t row_count = 8 * ((in - 1) / out + 2);
        row_count = row_count < in ? row_count : in;
        if (row_count >= MAX_PROBE / side)
            return false;
        const struct ul_tensor *combed = probe(resize, d, row_count, in);
        if (combed == NULL || combed->type.dims[1] != out)
            return false;
        read_taps(resize, combed, in, &taps);
        if (is_kept(&taps, in))
            continue;
        for (int64_t o = 0; o < taps.out; o++)
            taps.norm = fmax(taps.norm, norm_of(&taps, o));
        resize->weight_axes += is_weighed(&taps);
        resize->tap_count *= taps.count;
        resize->taps[resize->tap_axes++] = taps;
        if (resize->tap_count > UL_RESIZE_TAPS)
            return false;
    }
    return true;
}

/* ---- the sums ---- */

/* Takes as many bits as sums have room for; 64-bit sums where 32 bits leave few. */
static bool set_bits(struct resize *resize)
{
    double norm = 1;
    for (uint32_t i = 0; i < resize->tap_axes; i++)
        norm *= resize->taps[i].norm;
    const int spent = BYTE_BITS + (int)ceil(log2(fmax(norm, 1)));
    const int count = resize->weight_axes < 1 ? 1 : (int)resize->weight_axes;
    resize->sum = UL_I32;
    resize->bits = (SUM_BITS - spent) / count;
    if (resize->bits < GOOD_BITS) {
        resize->sum = UL_I64;
        resize->bits = (WIDE_SUM_BITS - spent) / count;
    }
    resize->bits = resize->bits > MAX_BITS ? MAX_BITS : resize->bits;
    return resize->bits >= GOOD_BITS;
}

/* Rounds the weights of an output so that they add up to the rounded sum: what is even stays
 * even. */
static void fix_weights(const struct resize *resize, struct taps *taps)
{
    UL_ASSERT(resize->bits >= GOOD_BITS);
    for (int64_t o = 0; o < taps->out; o++) {
        double sum = 0, rounded = 0;
        int64_t largest = o;
        for (uint32_t t = 0; t < taps->count; t++) {
            int64_t at = t * taps->out + o;
            largest = fabs(taps->weights[at]) > fabs(taps->weights[largest]) ? at : largest;
            sum += taps->weights[at];
        }
        for (uint32_t t = 0; t < taps->count; t++) {
            double *weight = &taps->weights[t * taps->out + o];
            *weight = nearbyint(ldexp(*weight, resize->bits));
            rounded += *weight;
        }
        taps->weights[largest] += nearbyint(ldexp(sum, resize->bits)) - rounded;
    }
}

/* One of an axis' tables, [taps, outputs]. */
static ul_value_id add_table(const struct resize *resize, const struct taps *taps,
                             const double *numbers, const char *what)
{
    struct ul_integers *integers = resize->integers;
    struct ul_graph *graph = integers->graph;
    const int64_t dims[2] = {taps->count, taps->out};
    const struct ul_type type = ul_type_make(UL_I32, 2, dims);
    return ul_edit_add_array(
        graph, ul_arena_printf(graph->arena, "%s.%s", integers->build.name, what), &type, numbers);
}

/* Sets the inputs of a ResizeInteger of x; gives how many there are. */
static uint32_t set_inputs(const struct resize *resize, ul_value_id x, ul_value_id *inputs)
{
    uint32_t count = 1;
    inputs[0] = x;
    for (uint32_t i = 0; i < resize->tap_axes; i++) {
        const struct taps *taps = &resize->taps[i];
        for (uint32_t d = count; d < 1 + 2 * taps->axis; d++)
            inputs[d] = UL_NONE;
        inputs[1 + 2 * taps->axis] = add_table(resize, taps, taps->places, "places");
        inputs[2 + 2 * taps->axis] =
            is_weighed(taps) ? add_table(resize, taps, taps->weights, "weights") : UL_NONE;
        count = 3 + 2 * taps->axis;
    }
    UL_ASSERT(count <= 1 + 2 * UL_LIMIT_RANK);
    return inputs[count - 1] == UL_NONE ? count - 1 : count;
}

static ul_value_id add_sums(const struct resize *resize, ul_value_id x)
{
    struct ul_integers *integers = resize->integers;
    ul_value_id inputs[1 + 2 * UL_LIMIT_RANK];
    uint32_t count = set_inputs(resize, x, inputs);
    if (count == 1)
        return ul_integers_cast(integers, x, resize->sum);
    ul_node_id id = ul_integers_begin(integers, UL_OP_ResizeInteger, inputs, count, NULL);
    ul_node_set_int(integers->graph, id, "to", (int64_t)resize->sum);
    return ul_integers_cast(integers, ul_integers_end(integers, id), resize->sum);
}

/* Takes the zero point out of a weighted sum, which has it once for each unit of the weights. */
static ul_value_id take_zero(const struct resize *resize, ul_value_id sum,
                             const struct ul_scaled *x)
{
    struct ul_integers *integers = resize->integers;
    double offset = -ldexp((double)ul_scaled_zero(x, 0), resize->bits * (int)resize->weight_axes);
    if (offset == 0)
        return sum;
    const ul_value_id terms[2] = {sum, ul_edit_add_numbers(integers->graph, integers->build.name,
                                                           resize->sum, &offset, 1, 0)};
    return ul_integers_add(integers, UL_OP_Add, terms, 2, NULL);
}

static bool is_within(const struct ul_node *node)
{
    return strcmp(ul_node_get_string(node, "coordinate_transformation_mode", "half_pixel"),
                  "tf_crop_and_resize") != 0 &&
           strcmp(ul_node_get_string(node, "keep_aspect_ratio_policy", "stretch"), "stretch") == 0;
}

bool ul_no_float_resize(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node quantize = graph->nodes[id];
    const struct ul_node *maker = ul_integers_maker(integers, quantize.inputs[0]);
    struct ul_scaled x, y;
    if (maker == NULL || maker->op != UL_OP_Resize || !is_within(maker) ||
        !ul_no_float_find(integers, maker->inputs[0], &x) || !ul_integers_is_8bit(integers, x.x) ||
        !ul_integers_result(integers, &quantize, &y))
        return false;
    const struct ul_node node = *maker;
    struct resize resize = {.integers = integers, .node = &node};
    if (!find_taps(&resize) || !set_bits(&resize))
        return false;
    for (uint32_t i = 0; i < resize.tap_axes; i++) {
        if (is_weighed(&resize.taps[i]))
            fix_weights(&resize, &resize.taps[i]);
    }
    ul_value_id sum = take_zero(&resize, add_sums(&resize, x.x), &x);
    double factor = ldexp(ul_scaled_scale(&x, 0) / ul_scaled_scale(&y, 0),
                          -resize.bits * (int)resize.weight_axes);
    const struct ul_type one = {.dtype = UL_F32};
    UL_ASSERT(resize.tap_count <= UL_RESIZE_TAPS);
    ul_no_float_become_rescale(integers, id, sum, &y, &one, &factor);
    return true;
}

bool ul_no_float_nearest(struct ul_integers *integers, ul_node_id id)
{
    struct ul_graph *graph = integers->graph;
    const struct ul_node node = graph->nodes[id];
    struct resize resize = {.integers = integers, .node = &node};
    if (!ul_dtype_get(graph->values[node.inputs[0]].type.dtype)->is_integer || !is_within(&node) ||
        strcmp(ul_node_get_string(&node, "mode", "nearest"), "nearest") != 0 ||
        !find_taps(&resize) || resize.weight_axes > 0)
        return false;
    bool is_whole = true; /* found as it is, without floats */
    for (uint32_t i = 0; i < resize.tap_axes; i++) {
        const struct taps *taps = &resize.taps[i];
        int64_t factor = taps->out / graph->values[node.inputs[0]].type.dims[taps->axis];
        for (int64_t o = 0; o < taps->out; o++)
            is_whole = is_whole && factor > 0 && (int64_t)taps->places[o] == o / factor;
    }
    if (is_whole || resize.tap_axes == 0)
        return false;
    ul_value_id inputs[1 + 2 * UL_LIMIT_RANK];
    uint32_t count = set_inputs(&resize, node.inputs[0], inputs);
    ul_integers_become(integers, id, UL_OP_ResizeInteger, inputs, count, NULL);
    return true;
}
