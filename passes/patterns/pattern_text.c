/* SPDX-License-Identifier: Apache-2.0 */
/* Matches rows of text against the graph, and applies them.
 *
 * Problem: alternatives and operands that may change places multiply. Method: a list of goals, each
 * a piece of text and the value that it must be; the last goal is taken off, and for each way to
 * meet it the rest is tried with what it leaves to be shown, until no goal is left and the row can
 * be applied. The text is read as it is matched: rows are short, and nearly all ways end at the
 * first operator. */
#include "ir/op_names.h"
#include "passes/patterns/pattern_internal.h"

#include "ir/op.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_GOALS = 16, MAX_PARTS = 6 };

/* A part of a row. */
struct span {
    const char *begin, *end;
};

struct goal {
    struct span text;
    ul_value_id value;
};

struct state {
    struct ul_slots slots;
    uint32_t goal_count;
    struct goal goals[MAX_GOALS];
};

struct match {
    struct ul_pattern *pattern;
    const struct ul_pattern_row *row;
    const char *result; /* of the row, after "->" */
};

static bool solve(const struct match *match, const struct state *state);

/* ---- Text ---- */

static bool opens(char letter)
{
    return letter == '(' || letter == '[' || letter == '{';
}

/* Where what opens at `at` is closed. */
static const char *closing(const char *at, const char *end)
{
    uint32_t depth = 0;
    for (; at < end; at++) {
        depth += opens(*at);
        depth -= *at == ')' || *at == ']' || *at == '}';
        if (depth == 0)
            return at;
    }
    UL_ASSERT(at < end);
    return end;
}

/* Without spaces and parentheses around all of it. */
static struct span trim(const char *begin, const char *end)
{
    while (begin < end && *begin == ' ')
        begin++;
    while (begin < end && end[-1] == ' ')
        end--;
    bool is_enclosed = begin < end && *begin == '(' && closing(begin, end) == end - 1;
    return is_enclosed ? trim(begin + 1, end - 1) : (struct span){begin, end};
}

/* The parts between separators that stand outside of parentheses. */
static uint32_t split(struct span text, char separator, struct span parts[MAX_PARTS])
{
    uint32_t count = 0;
    const char *from = text.begin;
    for (const char *at = text.begin; at < text.end; at++) {
        if (opens(*at))
            at = closing(at, text.end);
        if (*at != separator)
            continue;
        UL_ASSERT(count + 1 < MAX_PARTS);
        parts[count++] = trim(from, at);
        from = at + 1;
    }
    parts[count++] = trim(from, text.end);
    return count;
}

/* The separator outside of parentheses that binds least: "|", "+", "*", or 0: there is none. */
static char loosest(struct span text)
{
    char found = 0;
    for (const char *at = text.begin; at < text.end && found != '|'; at++) {
        if (opens(*at))
            at = closing(at, text.end);
        if (*at == '|' || *at == '+' || (*at == '*' && found == 0))
            found = *at;
    }
    return found;
}

/* The name at the beginning; *text goes on after it. */
static struct span take_name(struct span *text)
{
    struct span name = {text->begin, text->begin};
    while (name.end < text->end && isalpha((unsigned char)*name.end))
        name.end++;
    UL_ASSERT(name.end > name.begin);
    text->begin = name.end;
    return name;
}

/* What stands in brackets at the beginning; *text goes on after it. Empty where there are none. */
static struct span take_inner(struct span *text, char bracket)
{
    while (text->begin < text->end && *text->begin == ' ')
        text->begin++;
    if (text->begin == text->end || *text->begin != bracket)
        return (struct span){text->begin, text->begin};
    const char *end = closing(text->begin, text->end);
    struct span inner = {text->begin + 1, end};
    text->begin = end + 1;
    return inner;
}

/* A number, or "$" and a letter. */
static bool is_number(struct span text)
{
    return strchr("-$0123456789", *text.begin) != NULL;
}

/* A letter that has a meaning keeps it; true when it has this one. */
static bool bind(const struct match *match, struct state *state, char letter, ul_value_id value,
                 double number)
{
    struct ul_slot *slot = &state->slots.letters[letter - 'a'];
    if (slot->is_set)
        return slot->value == value &&
               (value != UL_NONE || ul_pattern_near(match->pattern, number, slot->number));
    *slot = (struct ul_slot){.is_set = true, .value = value, .number = number};
    return true;
}

static bool number_fits(const struct match *match, struct state *state, struct span text,
                        double number)
{
    bool is_negative = *text.begin == '-';
    const char *at = text.begin + is_negative;
    number = is_negative ? -number : number;
    return *at == '$' ? bind(match, state, at[1], UL_NONE, number)
                      : ul_pattern_near(match->pattern, number, strtod(at, NULL));
}

/* ---- Ways to meet a goal ---- */

static void push(struct state *state, struct span text, ul_value_id value)
{
    UL_ASSERT(state->goal_count < MAX_GOALS);
    state->goals[state->goal_count++] = (struct goal){text, value};
}

/* The axes of a reduction that keeps its dimensions, or the axis that the node has, as bits. */
static uint32_t axes_of(const struct ul_graph *graph, const struct ul_node *node, uint32_t rank)
{
    const struct ul_attr *axis = ul_node_find_attr(node, "axis");
    const struct ul_tensor *axes =
        node->input_count == 2 ? ul_graph_get_constant(graph, node->inputs[1]) : NULL;
    uint32_t mask = 0;
    if (axis != NULL)
        return 1u << (axis->i < 0 ? axis->i + (int64_t)rank : axis->i);
    if (ul_node_get_int(node, "keepdims", 1) == 0 || axes == NULL)
        return 0;
    for (uint64_t i = 0; i < ul_type_elements(&axes->type); i++) {
        int64_t one = ul_tensor_get_int(axes, i);
        mask |= 1u << (one < 0 ? one + (int64_t)rank : one);
    }
    return mask;
}

static bool axes_fit(const struct match *match, struct state *state, struct span axes,
                     const struct ul_node *node)
{
    uint32_t rank = ul_pattern_type(match->pattern, node->inputs[0])->rank, first = 0;
    if (axes.begin == axes.end)
        return true;
    bool is_last = axes.end - axes.begin == 4, is_tail = axes.end - axes.begin == 3;
    uint32_t mask = axes_of(match->pattern->graph, node, rank);
    while (first < rank && (mask >> first & 1u) == 0)
        first++;
    if (first == rank || mask >> first != (is_tail ? (1u << (rank - first)) - 1 : 1))
        return false;
    return is_last ? first + 1 == rank : bind(match, state, *axes.begin, UL_NONE, first);
}

/* Operands that the row does not list are constants; beside a number stands the result's type. */
static bool operands_fit(const struct match *match, const struct ul_node *node,
                         const struct span *parts, uint32_t count)
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

/* The value is made by `name` of the parts. */
static bool solve_node(const struct match *match, struct state *state, struct span name,
                       struct span axes, const struct span *parts, uint32_t count,
                       ul_value_id value)
{
    const struct ul_value *info = &match->pattern->graph->values[value];
    if (info->kind != UL_VALUE_NODE)
        return false;
    const struct ul_node *node = &match->pattern->graph->nodes[info->producer];
    const struct ul_op_info *op = ul_op_get(node->op);
    size_t length = (size_t)(name.end - name.begin);
    if (strncmp(name.begin, op->name, length) != 0 || op->name[length] != '\0' ||
        ul_pattern_maker(match->pattern, value, node->op) == NULL ||
        !operands_fit(match, node, parts, count) || !axes_fit(match, state, axes, node))
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

/* An operator or a step: name, axes, operands. */
static bool solve_call(const struct match *match, struct state *state, struct span text,
                       ul_value_id value)
{
    struct span parts[MAX_PARTS], name = take_name(&text), axes = take_inner(&text, '[');
    uint32_t count = split(take_inner(&text, '('), ',', parts);
    if (!ul_pattern_step(match->pattern, name.begin, &value))
        return solve_node(match, state, name, axes, parts, count, value);
    push(state, parts[0], value);
    return value != UL_NONE && solve(match, state);
}

/* The parts from `at` on are the factors that are not taken, in some order. */
static bool solve_factors(const struct match *match, const struct state *state,
                          const struct span *parts, uint32_t count,
                          const struct ul_pattern_product *product, uint32_t taken)
{
    if (count == 0)
        return solve(match, state);
    for (uint32_t i = 0; i < product->count; i++) {
        struct state next = *state;
        if ((taken >> i & 1u) != 0)
            continue;
        push(&next, parts[0], product->values[i]);
        if (solve_factors(match, &next, parts + 1, count - 1, product, taken | 1u << i))
            return true;
    }
    return false;
}

static bool solve_product(const struct match *match, struct state *state, const struct span *parts,
                          uint32_t count, ul_value_id value)
{
    struct ul_pattern_product product;
    bool has_number = is_number(parts[0]); /* it stands first */
    struct span number = has_number ? parts[0] : (struct span){"1", NULL};
    return ul_pattern_factors(match->pattern, value, &product) &&
           product.count == count - has_number &&
           number_fits(match, state, number, product.number) &&
           solve_factors(match, state, parts + has_number, product.count, &product, 0);
}

static bool solve_goal(const struct match *match, struct state *state, struct span text,
                       ul_value_id value)
{
    static const char add[] = "Add";
    struct span parts[MAX_PARTS];
    double number;
    char separator = loosest(text);
    uint32_t count = separator == 0 ? 1 : split(text, separator, parts);
    for (uint32_t i = 0; separator == '|' && i < count; i++) {
        struct state next = *state;
        push(&next, parts[i], value);
        if (solve(match, &next))
            return true;
    }
    if (separator == '|' || value == UL_NONE)
        return false;
    if (separator == '+')
        return count == 2 && solve_node(match, state, (struct span){add, add + 3},
                                        (struct span){add, add}, parts, 2, value);
    if (separator == '*')
        return solve_product(match, state, parts, count, value);
    if (is_number(text))
        return ul_graph_get_number(match->pattern->graph, value, &number) &&
               number_fits(match, state, text, number) && solve(match, state);
    if (isupper((unsigned char)*text.begin))
        return solve_call(match, state, text, value);
    if (text.end - text.begin > 1) /* letter = unary */
        push(state, trim(text.begin + 2, text.end), value);
    return bind(match, state, *text.begin, value, 0) && solve(match, state);
}

/* ---- The end ---- */

/* name = letter, 'word' or a whole number; a letter in brackets is an axis. */
static void apply_set(struct ul_pattern *pattern, const struct ul_slots *slots, struct span text)
{
    struct ul_graph *graph = pattern->graph;
    struct span name = take_name(&text);
    const char *what = text.begin + 1; /* after "=" */
    const char *key =
        ul_arena_printf(graph->arena, "%.*s", (int)(name.end - name.begin), name.begin);
    if (*what == '\'')
        ul_node_set_string(
            graph, pattern->root, key,
            ul_arena_printf(graph->arena, "%.*s", (int)(text.end - what) - 2, what + 1));
    else if (*what == '$')
        ul_node_set_float(graph, pattern->root, key, slots->letters[what[1] - 'a'].number);
    else if (*what == '[')
        ul_node_set_int(graph, pattern->root, key, (int64_t)slots->letters[what[1] - 'a'].number);
    else
        ul_node_set_int(graph, pattern->root, key, strtoll(what, NULL, 10));
}

ul_op_id ul_pattern_row_makes(const struct ul_pattern_row *row)
{
    struct span text = trim(strstr(row->text, "->") + 2, row->text + strlen(row->text));
    struct span name = take_name(&text);
    for (ul_op_id op = UL_OP_NONE + 1; op < ul_op_end(); op++) {
        const struct ul_op_info *info = ul_op_get(op);
        size_t length = strlen(info->name);
        if (length == (size_t)(name.end - name.begin) &&
            memcmp(info->name, name.begin, length) == 0 &&
            (info->domain == NULL || strcmp(info->domain, "ullage") == 0))
            return op;
    }
    return UL_OP_NONE;
}

/* The root becomes what the row makes. Its type must stay, and be that of the first operand. */
static bool apply(const struct match *match, const struct ul_slots *slots)
{
    struct ul_pattern *pattern = match->pattern;
    struct ul_graph *graph = pattern->graph;
    struct span text = trim(match->result, match->result + strlen(match->result));
    struct span parts[MAX_PARTS];
    (void)take_name(&text);
    uint32_t count = split(take_inner(&text, '('), ',', parts);
    ul_value_id operands[MAX_PARTS], out = graph->nodes[pattern->root].outputs[0];
    for (uint32_t i = 0; i < count; i++)
        operands[i] = is_number(parts[i]) ? UL_NONE : slots->letters[*parts[i].begin - 'a'].value;
    const struct ul_type type = *ul_pattern_type(pattern, operands[0]);
    if (!ul_pattern_is_closed(pattern, operands, count) ||
        !ul_type_equal(&type, ul_pattern_type(pattern, out)) ||
        (match->row->holds != NULL && !match->row->holds(pattern, slots)))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (operands[i] == UL_NONE)
            operands[i] =
                ul_build_number(graph, "one", type.dtype, 1, strtod(parts[i].begin, NULL));
    ul_pattern_replace(pattern, ul_pattern_row_makes(match->row), operands, count);
    text = take_inner(&text, '{');
    count = text.begin < text.end ? split(text, ',', parts) : 0;
    for (uint32_t i = 0; i < count; i++)
        apply_set(pattern, slots, parts[i]);
    return true;
}

static bool solve(const struct match *match, const struct state *state)
{
    struct state rest = *state;
    if (rest.goal_count == 0)
        return apply(match, &rest.slots);
    const struct goal goal = rest.goals[--rest.goal_count];
    const uint32_t members = match->pattern->member_count;
    bool found = solve_goal(match, &rest, goal.text, goal.value);
    if (!found)
        match->pattern->member_count = members;
    return found;
}

/* The row begins with the operator, or is a product. */
static bool can_begin(const char *text, ul_op_id op)
{
    const char *name = ul_op_get(op)->name;
    size_t length = strlen(name);
    return isupper((unsigned char)*text)
               ? strncmp(text, name, length) == 0 && !isalpha((unsigned char)text[length])
               : op == UL_OP_Mul || op == UL_OP_Div;
}

bool ul_pattern_rewrite(struct ul_pattern *pattern, const struct ul_pattern_row *row,
                        ul_node_id root)
{
    const char *arrow = strstr(row->text, "->");
    UL_ASSERT(arrow != NULL);
    const struct match match = {pattern, row, arrow + 2};
    struct state state;
    if (!can_begin(row->text, pattern->graph->nodes[root].op))
        return false;
    memset(&state, 0, sizeof state);
    ul_pattern_begin(pattern, root);
    push(&state, trim(row->text, arrow), pattern->graph->nodes[root].outputs[0]);
    return solve(&match, &state);
}
