/* Operators that a model spells out with smaller ones.
 *
 *      ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add   ->  LayerNormalization
 *      Div Erf Add Mul Mul                                  ->  Gelu
 *      Slice Neg Slice Concat Mul Mul Add                   ->  FusedRotary
 *      MatMul Div Add Softmax MatMul                        ->  FusedAttention
 *
 * Problem: exporters write normalisations, activations and attention as chains; the one operator
 * reads its input fewer times, has fewer results in between, and can be a post-operation of a
 * library. Method: every node, the last ones first, is offered to the rows of text (pattern_rows.c)
 * and then to the recogniser of attention, which look back from it through what does not matter:
 * the order of factors, division for multiplication by the inverse, constants of any shape. Nothing
 * is rewritten where an inner value has another reader. What was read by the chain alone is left to
 * dce. A rewrite may keep operands alive for longer: where the live sum has grown at the end, all
 * is done again without those. Results may differ in the last digits, as sums are formed in another
 * order, and be finite where the parts overflow: numbers whose exponentials are infinite give NaN
 * by the parts of a Softmax without a maximum, and large or infinite ones give inf or NaN by those
 * of HardSwish; the operators give what the parts would with unbounded numbers. Left undone:
 * normalisation whose factors were multiplied out (x * a + (b - mean * a)). */
#include "ir/infer.h"
#include "passes/pattern_internal.h"
#include "passes/steps.h"

#include <math.h>
#include <string.h>

void ul_pattern_begin(struct ul_pattern *pattern, ul_node_id root)
{
    UL_ASSERT(pattern->graph->nodes[root].op != UL_OP_NONE);
    pattern->root = root;
    pattern->member_count = 0;
    pattern->is_full = false;
}

const struct ul_type *ul_pattern_type(const struct ul_pattern *pattern, ul_value_id value)
{
    return &pattern->graph->values[value].type;
}

struct ul_node *ul_pattern_maker(const struct ul_pattern *pattern, ul_value_id value, enum ul_op op)
{
    const struct ul_graph *graph = pattern->graph;
    if (value == UL_NONE || graph->values[value].kind != UL_VALUE_NODE)
        return NULL;
    struct ul_node *node = &graph->nodes[graph->values[value].producer];
    bool fits = node->op == op && node->output_count == 1 &&
                node->parent == graph->nodes[pattern->root].parent;
    return fits ? node : NULL;
}

static void add_member(struct ul_pattern *pattern, ul_node_id id)
{
    for (uint32_t i = 0; i < pattern->member_count; i++)
        if (pattern->members[i] == id)
            return;
    if (id == pattern->root)
        return;
    pattern->is_full = pattern->is_full || pattern->member_count == UL_PATTERN_MEMBERS;
    if (!pattern->is_full)
        pattern->members[pattern->member_count++] = id;
}

struct ul_node *ul_pattern_match(struct ul_pattern *pattern, ul_value_id value, enum ul_op op)
{
    struct ul_node *node = ul_pattern_maker(pattern, value, op);
    if (node != NULL)
        add_member(pattern, pattern->graph->values[value].producer);
    return node;
}

uint32_t ul_pattern_uses(const struct ul_pattern *pattern, ul_value_id value)
{
    return value < pattern->use_count ? pattern->uses[value] : 0;
}

void ul_pattern_use(struct ul_pattern *pattern, ul_value_id value)
{
    if (value == UL_NONE)
        return;
    while (pattern->use_count <= value) {
        UL_GROW(pattern->pass->scratch, pattern->uses, pattern->use_count, pattern->use_capacity);
        pattern->uses[pattern->use_count++] = 0;
    }
    pattern->uses[value]++;
}

static uint32_t reads_of(const struct ul_node *node, ul_value_id value)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < node->input_count; i++)
        count += node->inputs[i] == value;
    return count;
}

bool ul_pattern_is_closed(const struct ul_pattern *pattern, const ul_value_id *operands,
                          uint32_t operand_count)
{
    const struct ul_graph *graph = pattern->graph;
    if (pattern->is_full)
        return false;
    for (uint32_t m = 0; m < pattern->member_count; m++) {
        ul_value_id value = graph->nodes[pattern->members[m]].outputs[0];
        uint32_t reads = reads_of(&graph->nodes[pattern->root], value);
        for (uint32_t i = 0; i < pattern->member_count; i++)
            reads += reads_of(&graph->nodes[pattern->members[i]], value);
        if (reads != ul_pattern_uses(pattern, value))
            return false;
        for (uint32_t i = 0; i < operand_count; i++)
            if (operands[i] == value)
                return false;
    }
    return true;
}

static void forget_reads(struct ul_pattern *pattern, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] < pattern->use_count)
            pattern->uses[node->inputs[i]]--;
}

void ul_pattern_replace(struct ul_pattern *pattern, enum ul_op op, const ul_value_id *inputs,
                        uint32_t input_count)
{
    struct ul_graph *graph = pattern->graph;
    UL_ASSERT(!pattern->is_full && graph->nodes[pattern->root].output_count == 1);
    forget_reads(pattern, &graph->nodes[pattern->root]);
    for (uint32_t m = 0; m < pattern->member_count; m++) {
        forget_reads(pattern, &graph->nodes[pattern->members[m]]);
        ul_graph_remove_node(graph, pattern->members[m]);
    }
    pattern->member_count = 0;
    ul_node_become(graph, pattern->root, op, inputs, input_count);
    for (uint32_t i = 0; i < input_count; i++)
        ul_pattern_use(pattern, inputs[i]);
}

bool ul_pattern_near(const struct ul_pattern *pattern, double a, double b)
{
    const struct ul_node *root = &pattern->graph->nodes[pattern->root];
    enum ul_dtype dtype = ul_pattern_type(pattern, root->outputs[0])->dtype;
    double share = dtype == UL_F32 || dtype == UL_F64 ? 1e-5 : 4e-3;
    return fabs(a - b) <= share * fabs(b);
}

/* Operand `at` of a node with two is a number, and the other has the type of the result. */
static bool is_by(const struct ul_pattern *pattern, const struct ul_node *node, uint32_t at,
                  double *number)
{
    return node != NULL && ul_graph_get_number(pattern->graph, node->inputs[at], number) &&
           ul_type_equal(ul_pattern_type(pattern, node->inputs[1 - at]),
                         ul_pattern_type(pattern, node->outputs[0]));
}

bool ul_pattern_unscale(struct ul_pattern *pattern, ul_value_id *value, double *scale)
{
    const struct ul_node *node = ul_pattern_maker(pattern, *value, UL_OP_Mul);
    double number;
    for (uint32_t i = 0; i < 2; i++) {
        if (!is_by(pattern, node, i, &number))
            continue;
        ul_pattern_match(pattern, *value, UL_OP_Mul);
        *value = node->inputs[1 - i];
        *scale *= number;
        return true;
    }
    node = ul_pattern_maker(pattern, *value, UL_OP_Div);
    if (!is_by(pattern, node, 1, &number) || number == 0)
        return false;
    ul_pattern_match(pattern, *value, UL_OP_Div);
    *value = node->inputs[0];
    *scale /= number;
    return true;
}

static bool add_factor(const struct ul_pattern *pattern, struct ul_pattern_product *product,
                       const struct ul_type *type, ul_value_id value)
{
    if (product->count == UL_PATTERN_FACTORS ||
        !ul_type_equal(ul_pattern_type(pattern, value), type))
        return false;
    product->values[product->count++] = value;
    return true;
}

static bool factor(struct ul_pattern *pattern, ul_value_id value, const struct ul_type *type,
                   struct ul_pattern_product *product, uint32_t depth)
{
    double number;
    bool is_root = value == pattern->graph->nodes[pattern->root].outputs[0];
    if (depth == 0 || (!is_root && ul_pattern_uses(pattern, value) != 1))
        return add_factor(pattern, product, type, value);
    if (ul_pattern_unscale(pattern, &value, &product->number))
        return factor(pattern, value, type, product, depth - 1);
    const struct ul_node *node = ul_pattern_match(pattern, value, UL_OP_Mul);
    if (node != NULL)
        return factor(pattern, node->inputs[0], type, product, depth - 1) &&
               factor(pattern, node->inputs[1], type, product, depth - 1);
    node = ul_pattern_match(pattern, value, UL_OP_Neg);
    if (node != NULL) {
        product->number = -product->number;
        return factor(pattern, node->inputs[0], type, product, depth - 1);
    }
    node = ul_pattern_maker(pattern, value, UL_OP_Pow);
    if (!is_by(pattern, node, 1, &number) || (number != 2 && number != 3))
        return add_factor(pattern, product, type, value);
    ul_pattern_match(pattern, value, UL_OP_Pow);
    for (double i = 0; i < number; i++)
        if (!add_factor(pattern, product, type, node->inputs[0]))
            return false;
    return true;
}

bool ul_pattern_factors(struct ul_pattern *pattern, ul_value_id value,
                        struct ul_pattern_product *product)
{
    *product = (struct ul_pattern_product){.number = 1};
    return factor(pattern, value, ul_pattern_type(pattern, value), product, UL_PATTERN_FACTORS);
}

/* ---- The walk ---- */

/* In the first turn the rows of text, in the second what is made of their results. */
enum { ROWS, ATTENTION, TURNS };

/* What operators make of their operands is what the values' types say. */
static bool types_hold(const struct ul_pattern *pattern, ul_node_id id)
{
    struct ul_graph *graph = pattern->graph;
    struct ul_diag diag = {0};
    ul_value_id output = graph->nodes[id].outputs[0];
    struct ul_value *value = &graph->values[output];
    struct ul_type type = value->type;
    const struct ul_tensor *tensor = value->tensor;
    bool holds = ul_node_infer(graph, id, pattern->pass->scratch, &diag) == UL_OK &&
                 ul_type_equal(&value->type, &type);
    value->type = type;
    value->tensor = tensor;
    return holds;
}

static bool recognise(struct ul_pattern *pattern, ul_node_id id, uint32_t turn)
{
    enum ul_op op = pattern->graph->nodes[id].op;
    if (turn == ATTENTION)
        return (op == UL_OP_Transpose || op == UL_OP_MatMul) && ul_pattern_attention(pattern, id);
    return ul_pattern_rows(pattern, id);
}

static void visit(struct ul_pattern *pattern, ul_node_id id, uint32_t turn)
{
    uint32_t first_new = pattern->graph->node_count;
    if (!recognise(pattern, id, turn))
        return;
    UL_ASSERT(types_hold(pattern, id));
    for (ul_node_id n = first_new; n < pattern->graph->node_count; n++)
        UL_ASSERT(types_hold(pattern, n));
}

/* True when something was taken that may need more bytes. */
static bool rewrite(struct ul_pass *pass, bool only_less)
{
    struct ul_graph *graph = pass->graph;
    struct ul_pattern pattern = {.pass = pass, .graph = graph, .only_less = only_less};
    pattern.uses = ul_graph_count_uses(graph, pass->scratch);
    pattern.use_count = pattern.use_capacity = graph->value_count;
    for (uint32_t turn = 0; turn < TURNS; turn++) {
        for (uint32_t b = 0; b < graph->block_count; b++) {
            if (b > 0 && graph->blocks[b].owner == UL_NONE)
                continue;
            /* From the end, so that the longest chain is met first. */
            for (uint32_t n = graph->blocks[b].node_count; n-- > 0;)
                visit(&pattern, graph->blocks[b].nodes[n], turn);
        }
    }
    ul_graph_sweep(graph);
    return pattern.may_match_more;
}

/* The live sum that the passes to come would leave. */
static enum ul_status peak_of(const struct ul_pass *pass, const struct ul_graph *graph,
                              uint64_t *peak_bytes)
{
    struct ul_graph copy;
    UL_TRY(ul_pass_dry_run(pass, graph, &copy));
    *peak_bytes = ul_steps_peak_bytes(&copy, pass->scratch);
    return UL_OK;
}

enum ul_status ul_pass_pattern(struct ul_pass *pass)
{
    struct ul_graph before;
    uint64_t before_bytes, after_bytes;
    ul_graph_copy(&before, pass->graph->arena, pass->graph);
    if (!rewrite(pass, false))
        return UL_OK;
    UL_TRY(peak_of(pass, &before, &before_bytes));
    UL_TRY(peak_of(pass, pass->graph, &after_bytes));
    if (after_bytes > before_bytes) {
        *pass->graph = before;
        (void)rewrite(pass, true);
    }
    return UL_OK;
}
