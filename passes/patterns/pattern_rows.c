/* SPDX-License-Identifier: Apache-2.0 */
/* The patterns that are text, and what text cannot say of them. */
#include "ir/infer.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/patterns/pattern_internal.h"

#include <string.h>

/* ---- Steps ---- */

/* The value from which a view takes half of the last dimension, every `step`-th element from
 * `begin` on; the view may have other readers, and stays. */
static ul_value_id before_part(const struct ul_pattern *pattern, ul_value_id value, bool is_second,
                               bool is_interleaved)
{
    const struct ul_graph *graph = pattern->graph;
    const struct ul_value *info = &graph->values[value];
    const struct ul_node *node = ul_graph_maker(graph, value);
    if (node == NULL || ul_op_get(node->op)->view == NULL)
        return UL_NONE;
    const struct ul_type *whole = ul_pattern_type(pattern, node->inputs[0]);
    uint32_t last = whole->rank - 1;
    if (whole->rank == 0 || info->type.rank != whole->rank || whole->dims[last] == 0 ||
        2 * info->type.dims[last] != whole->dims[last])
        return UL_NONE;
    struct ul_view own = ul_view_own(graph, node->inputs[0]), view;
    int64_t step = is_interleaved ? 2 : 1;
    int64_t begin = !is_second ? 0 : is_interleaved ? 1 : info->type.dims[last];
    if (!ul_op_get(node->op)->view(graph, node, info->producer_output, &own, &view) ||
        view.offset_bytes != begin * (int64_t)ul_dtype_get(whole->dtype)->size_bytes ||
        view.strides[last] != step)
        return UL_NONE;
    for (uint32_t d = 0; d < last; d++)
        if (info->type.dims[d] != whole->dims[d] ||
            (whole->dims[d] > 1 && view.strides[d] != own.strides[d]))
            return UL_NONE;
    return node->inputs[0];
}

/* What an Unsqueeze of the last dimension, or a Reshape that does the same, starts from. */
static ul_value_id column(struct ul_pattern *pattern, ul_value_id value)
{
    const struct ul_type *type = ul_pattern_type(pattern, value);
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Unsqueeze);
    if (node == NULL)
        node = ul_pattern_match(pattern, value, UL_OP_Reshape);
    if (node == NULL)
        return UL_NONE;
    struct ul_type from = *ul_pattern_type(pattern, node->inputs[0]);
    if (from.rank >= UL_LIMIT_RANK)
        return UL_NONE;
    from.dims[from.rank++] = 1;
    return ul_type_equal(&from, type) ? node->inputs[0] : UL_NONE;
}

/* A HardSigmoid of the slope that HardSwish has. */
static ul_value_id hard_gate(struct ul_pattern *pattern, ul_value_id value)
{
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_HardSigmoid);
    bool fits = node != NULL &&
                ul_pattern_near(pattern, ul_node_get_float(node, "alpha", 0.2), 1.0 / 6) &&
                ul_pattern_near(pattern, ul_node_get_float(node, "beta", 0.5), 0.5);
    return fits ? node->inputs[0] : UL_NONE;
}

bool ul_pattern_step(struct ul_pattern *pattern, const struct ul_term *term, ul_value_id *value)
{
    static const char *const parts[] = {"Low", "High", "Even", "Odd"};
    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!ul_term_is(term, parts[i]))
            continue;
        *value = before_part(pattern, *value, i % 2 == 1, i >= 2);
        return true;
    }
    bool is_column = ul_term_is(term, "Column"), is_gate = ul_term_is(term, "HardGate");
    if (is_column || is_gate)
        *value = is_column ? column(pattern, *value) : hard_gate(pattern, *value);
    return is_column || is_gate;
}

/* ---- Conditions ---- */

static const struct ul_type *type_of(const struct ul_pattern *pattern,
                                     const struct ul_pattern_slots *slots, const char *name)
{
    const struct ul_row_item *item = ul_pattern_find(slots, name);
    return item == NULL ? NULL : ul_pattern_type(pattern, item->value);
}

/* Whether the name has no meaning, or has the elements of `of` and is broadcast to it. */
static bool broadcasts(const struct ul_pattern *pattern, const struct ul_pattern_slots *slots,
                       const char *name, const struct ul_type *of)
{
    const struct ul_type *own = type_of(pattern, slots, name);
    struct ul_type both;
    return own == NULL ||
           (own->dtype == of->dtype && ul_broadcast(of, own, &both) && ul_type_equal(&both, of));
}

/* Scale and bias are along the axes that are reduced, and epsilon is not negative. */
static bool is_norm(const struct ul_pattern *pattern, const struct ul_pattern_slots *slots)
{
    const struct ul_type *type = type_of(pattern, slots, "x");
    struct ul_type reduced = {.dtype = type->dtype, .rank = type->rank};
    int64_t axis = ul_pattern_find(slots, "axis")->i;
    UL_ASSERT(axis < type->rank);
    for (uint32_t d = 0; d < type->rank; d++)
        reduced.dims[d] = d < axis ? 1 : type->dims[d];
    return broadcasts(pattern, slots, "s", &reduced) && broadcasts(pattern, slots, "b", &reduced) &&
           ul_pattern_find(slots, "epsilon")->f >= 0;
}

/* What is not centred, also where that cannot be rewritten. */
static bool is_rms(const struct ul_pattern *pattern, const struct ul_pattern_slots *slots)
{
    const struct ul_node *node =
        ul_pattern_maker(pattern, ul_pattern_find(slots, "x")->value, UL_OP_Sub);
    const struct ul_node *mean =
        node == NULL ? NULL : ul_pattern_maker(pattern, node->inputs[1], UL_OP_ReduceMean);
    return (mean == NULL || mean->inputs[0] != node->inputs[0]) && is_norm(pattern, slots);
}

/* What is turned has the shape of x, and cosines and sines broadcast to it, or to its half. */
static bool is_rotary(const struct ul_pattern *pattern, const struct ul_pattern_slots *slots)
{
    const struct ul_type *half = type_of(pattern, slots, "half");
    const struct ul_type *type = half == NULL ? type_of(pattern, slots, "x") : half;
    const struct ul_type *turned = type_of(pattern, slots, "turned");
    UL_ASSERT(type != NULL);
    return broadcasts(pattern, slots, "c", type) && broadcasts(pattern, slots, "s", type) &&
           (turned == NULL || ul_type_equal(turned, type));
}

/* ---- The rows ---- */

/* v by the root of its variance. */
#define NORM                                                                                       \
    "variance = ReduceMean(Mul(v, v) | Pow(v, 2), [axis..x.rank]) + $epsilon; "                    \
    "root = Sqrt(variance) | Pow(variance, 0.5); "                                                 \
    "inverse = Reciprocal(root) | 1 / root | Pow(variance, -0.5); "                                \
    "y = v / root | Mul(v, inverse); "
#define LAYER "v = x - ReduceMean(x, [axis..x.rank]); " NORM
#define RMS "v = x; " NORM
#define NORM_SETS " {axis=axis, epsilon=epsilon}"
#define GELU(gate) "0.5 * x * (1 + " gate ") -> Gelu(x)"
#define TANH(x) "Tanh(0.79788456080286535588 * " x ")"

/* The first that matches wins. */
static const struct ul_pattern_row rows[] = {
    {LAYER "y -> LayerNormalization(x, [1.0])" NORM_SETS, is_norm},
    {LAYER "Mul(y, s) -> LayerNormalization(x, s)" NORM_SETS, is_norm},
    {LAYER "Add(y, b) -> LayerNormalization(x, [1.0], b)" NORM_SETS, is_norm},
    {LAYER "Add(Mul(y, s), b) -> LayerNormalization(x, s, b)" NORM_SETS, is_norm},
    {RMS "y -> RMSNormalization(x, [1.0])" NORM_SETS, is_rms},
    {RMS "Mul(y, s) -> RMSNormalization(x, s)" NORM_SETS, is_rms},
    {"turned = Concat(Neg(High(x)), Low(x)) {axis=-1}; "
     "Add(Mul(x, c), Mul(turned, s)) -> FusedRotary(x, c, s)",
     is_rotary},
    {"turned = Reshape(Concat(Column(Neg(Odd(x))), Column(Even(x))) {axis=-1}); "
     "Add(Mul(x, c), Mul(turned, s)) -> FusedRotary(x, c, s) {interleaved=1}",
     is_rotary},
    {"half = Low(x); Concat(Mul(half, c) - Mul(High(x), s), Add(Mul(High(x), c), Mul(Low(x), s))) "
     "{axis=-1} -> FusedRotary(x, c, s)",
     is_rotary},
    {GELU("Erf(0.70710678118654752440 * x)"), NULL},
    {GELU(TANH("(x + 0.044715 * x * x * x)")) " {approximate='tanh'}", NULL},
    {GELU(TANH("x * (1 + 0.044715 * x * x)")) " {approximate='tanh'}", NULL},
    {"x * Sigmoid(x) -> Swish(x)", NULL},
    {"x * Sigmoid($alpha * x) -> Swish(x) {alpha=alpha}", NULL},
    {"x * Tanh(Softplus(x)) -> Mish(x)", NULL},
    {"x * HardGate(x) -> HardSwish(x)", NULL},
    {"x * Clip(0.16666666666666667 * x + 0.5, 0, 1) -> HardSwish(x)", NULL},
    {"0.16666666666666667 * x * Clip(x + 3, 0, 6) -> HardSwish(x)", NULL},
    {"x / (1 + Exp(-1 * x)) -> Swish(x)", NULL},
    {"x / (1 + Exp(-$alpha * x)) -> Swish(x) {alpha=alpha}", NULL},
    {"e = Exp(x - ReduceMax(x, [axis])); e / ReduceSum(e, [axis]) -> Softmax(x) {axis=axis}", NULL},
    {"e = Exp(x); e / ReduceSum(e, [axis]) -> Softmax(x) {axis=axis}", NULL},
};
enum { ROWS = sizeof rows / sizeof *rows };

ul_op_id ul_pattern_makes(uint32_t index)
{
    uint32_t length = 0;
    if (index >= ROWS)
        return index == ROWS ? UL_OP_FusedAttention : UL_OP_NONE;
    struct ul_term_reader result = {strstr(rows[index].text, "->") + 2, NULL};
    const char *name = ul_term_take_name(&result, &length);
    char op[64];
    snprintf(op, sizeof op, "%.*s", (int)length, name);
    return ul_row_find_op(op);
}

void ul_pattern_begin_rows(struct ul_pattern *pattern)
{
    struct ul_arena *scratch = pattern->pass->scratch;
    struct ul_pattern_rule *rules = UL_NEW_ARRAY(scratch, struct ul_pattern_rule, ROWS);
    for (size_t i = 0; i < ROWS; i++)
        rules[i] = ul_pattern_read(&rows[i], scratch);
    pattern->rules = rules;
}

bool ul_pattern_rows(struct ul_pattern *pattern, ul_node_id root)
{
    for (size_t i = 0; i < ROWS; i++)
        if (ul_pattern_rewrite(pattern, &pattern->rules[i], root))
            return true;
    return false;
}
