/* SPDX-License-Identifier: Apache-2.0 */
/* Matches rows of text against the graph, and applies them.
 *
 * Problem: alternatives and operands that may change places multiply. Method: a list of goals, each
 * a term and the value that it must be; the last goal is taken off, and for each way to meet it the
 * rest is tried with what it leaves to be shown, until no goal is left and the row can be applied.
 * Nearly all ways end at the first operator. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/patterns/pattern_internal.h"

#include <string.h>

enum { MAX_GOALS = 16, MAX_PARTS = 6 };

struct goal {
    const struct ul_term *term;
    ul_value_id value;
};

struct state {
    struct ul_pattern_slots slots;
    uint32_t goal_count;
    struct goal goals[MAX_GOALS];
};

struct match {
    struct ul_pattern *pattern;
    const struct ul_pattern_rule *rule;
};

static bool solve(const struct match *match, const struct state *state);

/* ---- Names and numbers ---- */

static const struct ul_row_item *find_slot(const struct ul_pattern_slots *slots, const char *name,
                                           size_t length)
{
    for (uint32_t i = 0; i < slots->count; i++)
        if (slots->list[i].length == length && memcmp(slots->list[i].text, name, length) == 0)
            return &slots->list[i].item;
    return NULL;
}

const struct ul_row_item *ul_pattern_find(const struct ul_pattern_slots *slots, const char *name)
{
    return find_slot(slots, name, strlen(name));
}

/* A name that has a meaning keeps it; true when it has this one. */
static bool bind(const struct match *match, struct state *state, const struct ul_term *name,
                 struct ul_row_item item)
{
    struct ul_pattern_slots *slots = &state->slots;
    const struct ul_row_item *known = find_slot(slots, name->text, name->length);
    if (known != NULL && item.kind == UL_ROW_VALUE)
        return known->kind == UL_ROW_VALUE && known->value == item.value;
    if (known != NULL)
        return known->kind == item.kind && ul_pattern_near(match->pattern, item.f, known->f);
    UL_ASSERT(slots->count < UL_PATTERN_SLOTS);
    slots->list[slots->count++] = (struct ul_row_span){name->text, name->length, item};
    return true;
}

static bool is_number(const struct ul_term *term)
{
    return term->kind == UL_TERM_INT || term->kind == UL_TERM_FLOAT ||
           term->kind == UL_TERM_NUMBER ||
           (term->kind == UL_TERM_NEGATIVE && is_number(term->parts));
}

static bool number_fits(const struct match *match, struct state *state, const struct ul_term *term,
                        double number)
{
    if (term->kind == UL_TERM_NEGATIVE)
        return number_fits(match, state, term->parts, -number);
    return term->kind == UL_TERM_NUMBER ? bind(match, state, term, ul_row_float(number))
                                        : ul_pattern_near(match->pattern, number, term->f);
}

/* ---- Ways to meet a goal ---- */

static void push(struct state *state, const struct ul_term *term, ul_value_id value)
{
    UL_ASSERT(state->goal_count < MAX_GOALS);
    state->goals[state->goal_count++] = (struct goal){term, value};
}

/* The axes of a reduction that keeps its dimensions, as bits. */
static uint32_t axes_of(const struct ul_graph *graph, const struct ul_node *node, uint32_t rank)
{
    const struct ul_tensor *axes =
        node->input_count == 2 ? ul_graph_get_constant(graph, node->inputs[1]) : NULL;
    uint32_t mask = 0;
    if (ul_node_get_int(node, "keepdims", 1) == 0 || axes == NULL)
        return 0;
    for (uint64_t i = 0; i < ul_type_elements(&axes->type); i++) {
        int64_t axis = ul_tensor_get_int(axes, i);
        mask |= 1u << (axis < 0 ? axis + (int64_t)rank : axis);
    }
    return mask;
}

/* [i]: one axis; [i..x.rank]: all from one on. */
static bool axes_fit(const struct match *match, struct state *state, const struct ul_term *list,
                     const struct ul_node *node)
{
    uint32_t rank = ul_pattern_type(match->pattern, node->inputs[0])->rank, first = 0;
    uint32_t mask = axes_of(match->pattern->graph, node, rank);
    const struct ul_term *axis = list->parts;
    bool is_run = axis->kind == UL_TERM_RUN;
    while (first < rank && (mask >> first & 1u) == 0)
        first++;
    return first < rank && mask >> first == (is_run ? (1u << (rank - first)) - 1 : 1) &&
           bind(match, state, is_run ? axis->parts : axis, ul_row_int(first));
}

/* Attributes are integers, axes that may be counted from the end. */
static bool sets_fit(const struct match *match, const struct ul_term *set,
                     const struct ul_node *node)
{
    int64_t rank = ul_pattern_type(match->pattern, node->outputs[0])->rank;
    for (; set != NULL; set = set->next) {
        char name[32];
        UL_ASSERT(set->parts->kind == UL_TERM_INT && set->length < sizeof name);
        snprintf(name, sizeof name, "%.*s", (int)set->length, set->text);
        const struct ul_attr *attr = ul_node_find_attr(node, name);
        if (attr == NULL || (attr->i - set->parts->i) % rank != 0)
            return false;
    }
    return true;
}

/* Operands that the row does not list are constants; beside a number stands the result's type. */
static bool operands_fit(const struct match *match, const struct ul_node *node,
                         const struct ul_term *const *parts, uint32_t count)
{
    const struct ul_graph *graph = match->pattern->graph;
    const struct ul_type *type = ul_pattern_type(match->pattern, node->outputs[0]);
    bool has_number = false;
    double number;
    for (uint32_t i = 0; i < count; i++)
        has_number = has_number || is_number(parts[i]);
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (i >= count ? input != UL_NONE && ul_graph_get_constant(graph, input) == NULL
                       : input == UL_NONE ||
                             (has_number && !ul_graph_get_number(graph, input, &number) &&
                              !ul_type_equal(ul_pattern_type(match->pattern, input), type)))
            return false;
    }
    return node->input_count >= count;
}

/* The operator of a term: a call, or a sign between two. */
static bool is_op(const struct ul_term *term, const char *op)
{
    if (term->kind == UL_TERM_CALL)
        return ul_term_is(term, op);
    char sign = term->kind == UL_TERM_BINARY ? term->text[0] : 0;
    return strcmp(op, sign == '+' ? "Add" : sign == '-' ? "Sub" : sign == '/' ? "Div" : "") == 0;
}

/* The value is made by the operator of its parts. */
static bool solve_node(const struct match *match, struct state *state, const struct ul_term *term,
                       ul_value_id value)
{
    const struct ul_value *info = &match->pattern->graph->values[value];
    const struct ul_term *parts[MAX_PARTS], *axes = NULL;
    uint32_t count = 0;
    if (info->kind != UL_VALUE_NODE)
        return false;
    const struct ul_node *node = &match->pattern->graph->nodes[info->producer];
    const struct ul_op_info *op = ul_op_get(node->op);
    if (!is_op(term, op->name) || ul_pattern_maker(match->pattern, value, node->op) == NULL)
        return false;
    for (const struct ul_term *part = term->parts; part != NULL; part = part->next) {
        UL_ASSERT(count < MAX_PARTS);
        if (part->kind == UL_TERM_LIST)
            axes = part;
        else
            parts[count++] = part;
    }
    if (!operands_fit(match, node, parts, count) || !sets_fit(match, term->sets, node) ||
        (axes != NULL && !axes_fit(match, state, axes, node)))
        return false;
    ul_pattern_match(match->pattern, value, node->op);
    bool swaps = (op->flags & UL_OP_COMMUTES) != 0 && count == 2;
    for (uint32_t way = 0; way <= swaps; way++) {
        struct state next = *state;
        for (uint32_t i = count; i-- > 0;)
            push(&next, parts[i], node->inputs[way == 0 ? i : 1 - i]);
        if (solve(match, &next))
            return true;
    }
    return false;
}

static bool is_product(const struct ul_term *term)
{
    return term->kind == UL_TERM_BINARY && term->text[0] == '*';
}

/* The factors of a product, from left to right. */
static uint32_t list_factors(const struct ul_term *term, const struct ul_term **factors)
{
    uint32_t count = is_product(term->parts) ? list_factors(term->parts, factors) : 1;
    UL_ASSERT(count < MAX_PARTS);
    factors[0] = count == 1 ? term->parts : factors[0];
    factors[count] = term->parts->next;
    return count + 1;
}

/* The terms are the factors that are not taken, in some order. */
static bool solve_factors(const struct match *match, const struct state *state,
                          const struct ul_term *const *terms, uint32_t count,
                          const struct ul_pattern_product *product, uint32_t taken)
{
    if (count == 0)
        return solve(match, state);
    for (uint32_t i = 0; i < product->count; i++) {
        struct state next = *state;
        if ((taken >> i & 1u) != 0)
            continue;
        push(&next, terms[0], product->values[i]);
        if (solve_factors(match, &next, terms + 1, count - 1, product, taken | 1u << i))
            return true;
    }
    return false;
}

static bool solve_product(const struct match *match, struct state *state,
                          const struct ul_term *term, ul_value_id value)
{
    static const struct ul_term one = {.kind = UL_TERM_INT, .f = 1};
    const struct ul_term *factors[MAX_PARTS];
    struct ul_pattern_product product;
    uint32_t count = list_factors(term, factors);
    bool has_number = is_number(factors[0]); /* it stands first */
    return ul_pattern_factors(match->pattern, value, &product) &&
           product.count == count - has_number &&
           number_fits(match, state, has_number ? factors[0] : &one, product.number) &&
           solve_factors(match, state, factors + has_number, product.count, &product, 0);
}

/* What a statement of the row says that the name is; NULL: anything. */
static const struct ul_term *find_statement(const struct ul_pattern_rule *rule,
                                            const struct ul_term *name)
{
    for (const struct ul_term *term = rule->body; term != NULL; term = term->next)
        if (term->kind == UL_TERM_NAMING && term->parts->next->length == name->length &&
            memcmp(term->parts->next->text, name->text, name->length) == 0)
            return term->parts;
    return NULL;
}

static bool solve_name(const struct match *match, struct state *state, const struct ul_term *name,
                       ul_value_id value)
{
    const struct ul_term *what = find_statement(match->rule, name);
    if (what != NULL && find_slot(&state->slots, name->text, name->length) == NULL)
        push(state, what, value);
    return bind(match, state, name, ul_row_value(value)) && solve(match, state);
}

static bool solve_goal(const struct match *match, struct state *state, const struct ul_term *term,
                       ul_value_id value)
{
    double number;
    for (const struct ul_term *part = term->parts; term->kind == UL_TERM_EITHER && part != NULL;
         part = part->next) {
        struct state next = *state;
        push(&next, part, value);
        if (solve(match, &next))
            return true;
    }
    if (term->kind == UL_TERM_EITHER || value == UL_NONE)
        return false;
    if (is_product(term))
        return solve_product(match, state, term, value);
    if (is_number(term))
        return ul_graph_get_number(match->pattern->graph, value, &number) &&
               number_fits(match, state, term, number) && solve(match, state);
    if (term->kind == UL_TERM_NAME)
        return solve_name(match, state, term, value);
    if (!ul_pattern_step(match->pattern, term, &value))
        return solve_node(match, state, term, value);
    push(state, term->parts, value);
    return value != UL_NONE && solve(match, state);
}

/* ---- The end ---- */

static struct ul_type type_of(void *context, ul_value_id value)
{
    return *ul_pattern_type(context, value);
}

/* The root becomes what the row makes. Its type must stay, and be that of the first operand. */
static bool apply(const struct match *match, const struct ul_pattern_slots *slots)
{
    struct ul_pattern *pattern = match->pattern;
    struct ul_graph *graph = pattern->graph;
    struct ul_build build = ul_build_before(graph, pattern->root);
    struct ul_row_builder row = {.build = &build,
                                 .type_of = type_of,
                                 .context = pattern,
                                 .constant = "one",
                                 .like = UL_NONE};
    struct ul_row_call call;
    ul_value_id operands[UL_ROW_OPERANDS], out = graph->nodes[pattern->root].outputs[0];
    build.scratch = pattern->pass->scratch;
    for (uint32_t i = 0; i < slots->count; i++)
        ul_row_bind(&row, slots->list[i].text, slots->list[i].length, slots->list[i].item);
    ul_row_read_call(&row, match->rule->result, &call);
    UL_ASSERT(row.wrong == NULL && call.items[0].kind == UL_ROW_VALUE);
    for (uint32_t i = 0; i < call.count; i++)
        operands[i] = call.items[i].kind == UL_ROW_VALUE ? call.items[i].value : UL_NONE;
    if (!ul_pattern_is_closed(pattern, operands, call.count) ||
        !ul_type_equal(ul_pattern_type(pattern, operands[0]), ul_pattern_type(pattern, out)) ||
        (match->rule->row->holds != NULL && !match->rule->row->holds(pattern, slots)))
        return false;
    uint32_t count = ul_row_make_operands(&row, &call, operands);
    ul_pattern_replace(pattern, ul_row_find_op(call.op), operands, count);
    ul_row_apply_sets(&row, pattern->root, &call);
    return true;
}

static bool solve(const struct match *match, const struct state *state)
{
    struct state rest = *state;
    if (rest.goal_count == 0)
        return apply(match, &rest.slots);
    const struct goal goal = rest.goals[--rest.goal_count];
    const uint32_t members = match->pattern->member_count;
    bool found = solve_goal(match, &rest, goal.term, goal.value);
    if (!found)
        match->pattern->member_count = members;
    return found;
}

/* Whether the term may be what an operator makes: it is of that operator, or a product. */
static bool can_begin(const struct ul_pattern_rule *rule, const struct ul_term *term, ul_op_id op)
{
    const struct ul_term *part = term->kind == UL_TERM_EITHER ? term->parts : NULL;
    if (term->kind == UL_TERM_NAME)
        return can_begin(rule, find_statement(rule, term), op);
    while (part != NULL && !can_begin(rule, part, op))
        part = part->next;
    return part != NULL || (is_product(term) ? op == UL_OP_Mul || op == UL_OP_Div
                                             : is_op(term, ul_op_get(op)->name));
}

struct ul_pattern_rule ul_pattern_read(const struct ul_pattern_row *row, struct ul_arena *arena)
{
    struct ul_term_reader reader = {row->text, arena};
    struct ul_pattern_rule rule = {.row = row, .body = ul_term_read_body(&reader)};
    bool has_arrow = ul_term_take(&reader, "->");
    UL_ASSERT(has_arrow);
    rule.result = ul_term_read(&reader);
    for (rule.term = rule.body; rule.term->kind == UL_TERM_NAMING;)
        rule.term = rule.term->next;
    UL_ASSERT(*reader.at == '\0' && rule.result->kind == UL_TERM_CALL);
    return rule;
}

bool ul_pattern_rewrite(struct ul_pattern *pattern, const struct ul_pattern_rule *rule,
                        ul_node_id root)
{
    const struct match match = {pattern, rule};
    struct state state = {.goal_count = 0};
    if (!can_begin(rule, rule->term, pattern->graph->nodes[root].op))
        return false;
    ul_pattern_begin(pattern, root);
    push(&state, rule->term, pattern->graph->nodes[root].outputs[0]);
    return solve(&match, &state);
}
