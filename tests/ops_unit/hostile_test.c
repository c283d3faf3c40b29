/* SPDX-License-Identifier: Apache-2.0 */
/* Good nodes made bad: types, constants, attributes and inputs are changed at random. The shape
 * rule then refuses or accepts; what it accepts is lowered and run in the interpreter, which
 * asserts that no index leaves its buffer, and its views must stay inside their base.
 * Deterministic: the number of a case is its seed; UL_TEST_SEED=N repeats one. */
#include "case.h"
#include "ir/infer.h"
#include "ir/op.h"

#include <stdlib.h>
#include <string.h>

enum { CASES = 12000 };
static const uint64_t MAX_ELEMENTS = 2048;

#define COORDINATES "coordinate_transformation_mode="

static const struct {
    const char *op, *inputs, *attributes;
    uint32_t outputs;
} subjects[] = {
    {"Add", "f32[2,3];f32[3]", NULL, 1},
    {"Div", "i32[2,3];i32[2,1]", NULL, 1},
    {"Pow", "f32[2,3];i64[3]", NULL, 1},
    {"Mod", "i8[4];i8[4]", "fmod=0", 1},
    {"Max", "f32[2];f32[2];f32[1]", NULL, 1},
    {"Clip", "i32[4];i32[] = [1];i32[] = [3]", NULL, 1},
    {"PRelu", "f32[2,3];f32[3]", NULL, 1},
    {"Gelu", "f16[4]", "approximate=\"tanh\"", 1},
    {"IsInf", "f32[4]", "detect_positive=1", 1},
    {"BitShift", "u16[4];u16[4]", "direction=\"LEFT\"", 1},
    {"Where", "bool[2,1];f32[3];f32[2,3]", NULL, 1},
    {"Cast", "f32[8]", "to=3", 1},
    {"CastLike", "i64[8];f8e5m2[1]", "saturate=0", 1},
    {"BitCast", "f16[8]", "to=4", 1},
    {"Reshape", "f32[2,3,4];i64[3] = [4,-1,2]", "allowzero=0", 1},
    {"Flatten", "f32[2,3,4]", "axis=2", 1},
    {"Squeeze", "f32[2,1,4,1];i64[2] = [1,-1]", NULL, 1},
    {"Unsqueeze", "f32[2,3];i64[2] = [0,-1]", NULL, 1},
    {"Transpose", "f32[2,3,4]", "perm=ints[2,0,1]", 1},
    {"Expand", "f32[3,1];i64[3] = [2,1,4]", NULL, 1},
    {"Slice", "f32[5,6];i64[2] = [1,5];i64[2] = [4,-7];i64[2] = [0,1];i64[2] = [2,-1]", NULL, 1},
    {"Split", "f32[7,2];i64[3] = [2,1,4]", "axis=0", 3},
    {"Split", "f32[7,2]", "axis=0, num_outputs=3", 3},
    {"Concat", "f32[2,3];f32[2,1];f32[2,4]", "axis=1", 1},
    {"Tile", "f32[2,3];i64[2] = [3,2]", NULL, 1},
    {"Pad", "f32[3,4];i64[4] = [1,-1,2,3];f32[] = [7.0]", "mode=\"constant\"", 1},
    {"Pad", "f32[3,4];i64[4] = [4,-1,2,3]", "mode=\"reflect\"", 1},
    {"Pad", "f32[3,4];i64[2] = [5,3];-;i64[1] = [1]", "mode=\"wrap\"", 1},
    {"Pad", "f32[3,4];i64[2] = [5,-3];-;i64[1] = [-2]", "mode=\"edge\"", 1},
    {"CenterCropPad", "f32[5,4];i64[2] = [2,7]", "axes=ints[0,-1]", 1},
    {"DepthToSpace", "f32[1,8,2,3]", "blocksize=2, mode=\"CRD\"", 1},
    {"SpaceToDepth", "f32[1,2,4,6]", "blocksize=2, mode=\"CRD\"", 1},
    {"Gather", "f32[3,4,2];i64[2,2] = [0,3,-1,2]", "axis=1", 1},
    {"GatherElements", "f32[3,4];i64[3,2] = [0,3,-1,2,1,0]", "axis=1", 1},
    {"GatherND", "f32[2,3,4];i64[2,2] = [0,1,1,-1]", "batch_dims=1", 1},
    {"ReverseSequence", "f32[4,3];i64[3] = [1,4,2]", "time_axis=0, batch_axis=1", 1},
    {"Shape", "f32[2,3,4]", "start=-2, end=3", 1},
    {"ConstantOfShape", "i64[2] = [2,3]", "value=tensor i32[1] = [5]", 1},
    {"Range", "i64[] = [2];i64[] = [20];i64[] = [3]", NULL, 1},
    {"Range", "f32[] = [2.0];f32[] = [-20.0];f32[] = [-3.5]", NULL, 1},
    {"OneHot", "i64[2,2] = [0,-1,5,2];i64[] = [4];f32[2] = [0.0,1.0]", "axis=1", 1},
    {"EyeLike", "f32[3,4]", "k=1, dtype=6", 1},
    {"Trilu", "f32[2,3,4];i64[] = [1]", "upper=0", 1},
    {"RandomUniform", "", "shape=ints[2,3], dtype=1", 1},
    {"RandomNormalLike", "f16[2,3]", "dtype=11", 1},
    {"Bernoulli", "f32[2,3]", "dtype=9", 1},
    {"Multinomial", "f32[2,5]", "sample_size=3, dtype=7", 1},
    {"Dropout", "f32[2,3];f32[] = [0.5];bool[] = [1]", "seed=3", 2},
    {"Resize", "f32[1,2,3,4];-;f32[4] = [1.0,1.0,2.0,0.6]", "mode=\"linear\"", 1},
    {"Resize", "u8[1,2,3,4];-;f32[2] = [2.0,3.0]",
     "axes=ints[2,3], " COORDINATES "\"asymmetric\", nearest_mode=\"floor\"", 1},
    {"Resize", "f32[2,9,7];-;-;i64[2] = [4,9]",
     "axes=ints[1,-1], mode=\"cubic\", antialias=1, exclude_outside=1", 1},
    {"Resize", "f32[3,4];f32[4] = [0.1,0.2,0.9,1.5];-;i64[2] = [5,2]",
     "mode=\"linear\", " COORDINATES "\"tf_crop_and_resize\"", 1},
    {"Resize", "f64[3,4];-;-;i64[2] = [6,6]",
     "mode=\"cubic\", keep_aspect_ratio_policy=\"not_larger\", " COORDINATES "\"align_corners\"",
     1},
    {"GridSample", "f32[1,2,3,4];f32[1,2,2,2]", "align_corners=1, mode=\"cubic\"", 1},
    {"GridSample", "f32[1,2,3,4];f32[1,2,2,2]", "padding_mode=\"reflection\", mode=\"linear\"", 1},
    {"GridSample", "i32[1,2,3];f64[1,4,1]", "padding_mode=\"border\", mode=\"nearest\"", 1},
    {"AffineGrid", "f32[2,2,3];i64[4] = [2,3,4,5]", "align_corners=1", 1},
    {"RoiAlign", "f32[1,2,5,4];f32[2,4];i64[2] = [0,0]",
     "output_height=2, output_width=1, sampling_ratio=0, spatial_scale=0.5", 1},
    {"RoiAlign", "f32[2,2,5,4];f32[2,4];i64[2] = [0,1]", "mode=\"max\", sampling_ratio=2", 1},
    {"MaxRoiPool", "f32[1,2,5,4];f32[2,5]", "pooled_shape=ints[2,3], spatial_scale=0.5", 1},
    {"Col2Im", "f32[1,8,6];i64[2] = [3,4];i64[2] = [2,2]", "strides=ints[1,1]", 1},
    {"Col2Im", "f32[1,8,4];i64[2] = [5,5];i64[2] = [2,2]",
     "strides=ints[2,2], dilations=ints[1,2], pads=ints[0,0,0,0]", 1},
};

struct dice {
    uint64_t state;
};

static uint64_t below(struct dice *dice, uint64_t bound)
{
    dice->state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t z = dice->state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (z ^ (z >> 31)) % bound;
}

static int64_t odd_int(struct dice *dice)
{
    static const int64_t absurd[] = {INT64_MAX,     INT64_MIN, UL_LIMIT_DIM,
                                     -UL_LIMIT_DIM, 1 << 30,   INT32_MIN};
    if (below(dice, 8) == 0)
        return absurd[below(dice, sizeof absurd / sizeof *absurd)];
    return (int64_t)below(dice, 12) - 4;
}

static double odd_float(struct dice *dice)
{
    static const double absurd[] = {0, 1e30, -1e30, 1e-30, 1e300, -0.5};
    if (below(dice, 4) == 0)
        return absurd[below(dice, sizeof absurd / sizeof *absurd)];
    return (double)odd_int(dice) / 4;
}

static void put_odd(struct dice *dice, unsigned char *place, enum ul_dtype dtype)
{
    if (ul_dtype_get(dtype)->is_float)
        ul_element_put_float(place, dtype, odd_float(dice));
    else
        ul_element_put_int(place, dtype, odd_int(dice));
}

/* Gives a value a constant of its type: `old`'s elements as far as they go and `fresh` is false,
 * odd ones elsewhere. */
static void fill(struct dice *dice, struct ul_graph *graph, struct ul_value *value, bool fresh)
{
    const struct ul_tensor *old = value->tensor;
    uint64_t count = ul_type_elements(&value->type);
    uint64_t size_bytes = ul_dtype_get(value->type.dtype)->size_bytes;
    unsigned char *data = ul_arena_alloc(graph->arena, count * size_bytes);
    bool keep = old != NULL && !fresh && old->type.dtype == value->type.dtype;
    uint64_t kept = keep ? ul_type_elements(&old->type) : 0;
    kept = kept < count ? kept : count;
    if (kept > 0)
        ul_tensor_read(old, 0, kept, data);
    for (uint64_t i = kept; i < count; i++)
        put_odd(dice, data + i * size_bytes, value->type.dtype);
    struct ul_tensor *tensor = UL_NEW(graph->arena, struct ul_tensor);
    tensor->type = value->type;
    tensor->data = data;
    value->tensor = tensor;
    value->kind = UL_VALUE_WEIGHT;
}

static void change_shape(struct dice *dice, struct ul_type *type)
{
    uint32_t d = (uint32_t)below(dice, (uint64_t)type->rank + 1);
    uint64_t kind = below(dice, 4);
    if (kind == 0 && type->rank > 0)
        type->rank--;
    else if (kind == 1 && type->rank < UL_LIMIT_RANK)
        type->dims[type->rank++] = (int64_t)below(dice, 3);
    else if (d < type->rank)
        type->dims[d] = (int64_t)below(dice, 7);
}

static void change_input(struct dice *dice, struct ul_graph *graph)
{
    static const enum ul_dtype dtypes[] = {UL_F32, UL_I64,  UL_I32, UL_U8, UL_F16,
                                           UL_F64, UL_BOOL, UL_U64, UL_I4, UL_F8E4M3FN};
    struct ul_node *node = &graph->nodes[0];
    if (node->input_count == 0)
        return;
    uint32_t input = (uint32_t)below(dice, node->input_count);
    if (node->inputs[input] == UL_NONE)
        return;
    struct ul_value *value = &graph->values[node->inputs[input]];
    switch (below(dice, 6)) {
    case 0:
        change_shape(dice, &value->type);
        fill(dice, graph, value, false);
        break;
    case 1:
        value->type.dtype = dtypes[below(dice, sizeof dtypes / sizeof *dtypes)];
        fill(dice, graph, value, true);
        break;
    case 2:
        fill(dice, graph, value, true);
        break;
    case 3:
    case 4:
        if (ul_type_elements(&value->type) > 0 && value->tensor != NULL) {
            uint64_t size_bytes = ul_dtype_get(value->type.dtype)->size_bytes;
            uint64_t at = below(dice, ul_type_elements(&value->type));
            fill(dice, graph, value, false);
            unsigned char *data = (unsigned char *)(uintptr_t)value->tensor->data;
            put_odd(dice, data + at * size_bytes, value->type.dtype);
        }
        break;
    default:
        if (below(dice, 2) == 0) {
            value->tensor = NULL;
            value->kind = UL_VALUE_INPUT;
        } else if (input >= ul_op_get(node->op)->min_inputs) {
            node->inputs[input] = UL_NONE;
        }
    }
}

static void change_attribute(struct dice *dice, struct ul_graph *graph)
{
    struct ul_node *node = &graph->nodes[0];
    if (node->attr_count == 0)
        return;
    const struct ul_attr attr = node->attrs[below(dice, node->attr_count)];
    int64_t list[8];
    uint32_t count = attr.count < 8 ? attr.count : 8;
    switch ((int)attr.kind) {
    case UL_ATTR_INT:
        ul_node_set_int(graph, 0, attr.name, odd_int(dice));
        break;
    case UL_ATTR_FLOAT:
        ul_node_set_float(graph, 0, attr.name, odd_float(dice));
        break;
    case UL_ATTR_STRING:
        ul_node_set_string(graph, 0, attr.name, "nonsense");
        break;
    case UL_ATTR_INTS:
        memcpy(list, attr.ints, count * sizeof *list);
        if (count > 0)
            list[below(dice, count)] = odd_int(dice);
        ul_node_set_ints(graph, 0, attr.name, list, below(dice, 8) == 0 ? count / 2 : count);
        break;
    default:
        ul_node_remove_attr(graph, 0, attr.name);
    }
}

/* Every element of the view is inside its base. */
static void check_view(const struct ul_graph *graph, const struct ul_node *node, uint32_t output)
{
    const struct ul_type *in = &graph->values[node->inputs[0]].type;
    const struct ul_type *out = &graph->values[node->outputs[output]].type;
    int64_t size_bytes = (int64_t)ul_dtype_get(in->dtype)->size_bytes;
    struct ul_view input = {.base = node->inputs[0]};
    struct ul_view view;
    int64_t stride = 1;
    for (uint32_t d = in->rank; d-- > 0;) {
        input.strides[d] = stride;
        stride *= in->dims[d];
    }
    if (!ul_op_get(node->op)->view(graph, node, output, &input, &view) ||
        ul_type_elements(out) == 0)
        return;
    int64_t low = view.offset_bytes / size_bytes;
    int64_t high = low;
    for (uint32_t d = 0; d < out->rank; d++) {
        int64_t reach = view.strides[d] * (out->dims[d] - 1);
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    assert_true(view.offset_bytes % size_bytes == 0 && low >= 0);
    assert_true(high < (int64_t)ul_type_elements(in));
}

static void run_accepted(struct ul_graph *graph, struct ul_arena *arena)
{
    const struct ul_node *node = &graph->nodes[0];
    const struct ul_op_info *row = ul_op_get(node->op);
    bool is_small = true;
    for (uint32_t i = 0; i < node->output_count; i++) {
        is_small =
            is_small && ul_type_elements(&graph->values[node->outputs[i]].type) <= MAX_ELEMENTS;
        if (row->view != NULL && node->inputs[0] != UL_NONE)
            check_view(graph, node, i);
    }
    if (is_small && (row->map != NULL || row->expression != NULL || row->lower != NULL))
        (void)case_run(graph, arena);
}

/* True when the rule accepted the node. */
static bool run_case(uint64_t seed)
{
    struct dice dice = {.state = seed * 0x632BE59BD9B4E019u};
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_diag diag = {.status = UL_OK};
    uint64_t s = below(&dice, sizeof subjects / sizeof *subjects);
    ul_arena_init(&arena);
    case_parse(&graph, &arena, subjects[s].op, subjects[s].inputs, subjects[s].attributes,
               subjects[s].outputs);
    for (uint32_t i = 0; i < graph.value_count; i++) {
        if (graph.values[i].kind == UL_VALUE_INPUT && below(&dice, 8) != 0)
            fill(&dice, &graph, &graph.values[i], true);
    }
    for (uint64_t changes = below(&dice, 4); changes > 0; changes--) {
        if (below(&dice, 3) != 0)
            change_input(&dice, &graph);
        else
            change_attribute(&dice, &graph);
    }
    enum ul_status status = ul_node_infer(&graph, 0, &arena, &diag);
    assert_true(status == UL_OK || status == UL_INVALID || status == UL_UNSUPPORTED);
    assert_true((status == UL_OK) == (diag.text[0] == '\0'));
    if (status == UL_OK)
        run_accepted(&graph, &arena);
    ul_arena_done(&arena);
    return status == UL_OK;
}

static void bad_nodes(void **state)
{
    const char *one = getenv("UL_TEST_SEED");
    uint32_t accepted = 0;
    (void)state;
    if (one != NULL)
        (void)run_case(strtoull(one, NULL, 10));
    for (uint64_t seed = 1; one == NULL && seed <= CASES; seed++)
        accepted += run_case(seed);
    assert_true(one != NULL || accepted > CASES / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bad_nodes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
