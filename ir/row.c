/* SPDX-License-Identifier: Apache-2.0 */
/* Builds what terms say, from left to right. */
#include "ir/row.h"
#include "ir/op.h"

#include <math.h>
#include <string.h>

enum { LIST = 4 * UL_LIMIT_RANK };

static struct ul_row_item evaluate(struct ul_row_builder *row, const struct ul_term *term);

/* ---- Items ---- */

struct ul_row_item ul_row_value(ul_value_id value)
{
    return (struct ul_row_item){.kind = UL_ROW_VALUE, .value = value};
}

struct ul_row_item ul_row_int(int64_t number)
{
    return (struct ul_row_item){.kind = UL_ROW_INT, .i = number, .f = (double)number};
}

struct ul_row_item ul_row_float(double number)
{
    return (struct ul_row_item){.kind = UL_ROW_FLOAT, .f = number};
}

struct ul_row_item ul_row_text(const char *text)
{
    return (struct ul_row_item){.kind = UL_ROW_TEXT, .text = text, .count = (uint32_t)strlen(text)};
}

struct ul_row_item ul_row_ints(uint32_t count, const int64_t *ints)
{
    return (struct ul_row_item){.kind = UL_ROW_LIST, .count = count, .ints = ints};
}

struct ul_row_item ul_row_floats(uint32_t count, const double *floats)
{
    return (struct ul_row_item){.kind = UL_ROW_FLOATS, .count = count, .floats = floats};
}

static bool is_number(const struct ul_row_item *item)
{
    return item->kind == UL_ROW_INT || item->kind == UL_ROW_FLOAT;
}

static bool holds(const struct ul_row_item *item)
{
    if (item->kind == UL_ROW_VALUE)
        return item->value != UL_NONE;
    return is_number(item) ? item->f != 0 : item->count > 0;
}

void ul_row_refuse(struct ul_row_builder *row, bool is_invalid, const char *reason)
{
    if (row->wrong != NULL)
        return;
    row->wrong = reason;
    row->is_invalid = is_invalid;
}

static struct ul_row_item refuse(struct ul_row_builder *row, bool is_invalid, const char *reason)
{
    ul_row_refuse(row, is_invalid, reason);
    return ul_row_int(1);
}

/* ---- Names ---- */

void ul_row_bind(struct ul_row_builder *row, const char *name, uint32_t length,
                 struct ul_row_item item)
{
    UL_ASSERT(row->name_count < UL_ROW_NAMES);
    row->names[row->name_count++] = (struct ul_row_span){name, length, item};
}

/* What a name stands for. */
static struct ul_row_item find_name(const struct ul_row_builder *row, const struct ul_term *term)
{
    char text[16];
    for (uint32_t i = row->name_count; i-- > 0;)
        if (row->names[i].length == term->length &&
            memcmp(row->names[i].text, term->text, term->length) == 0)
            return row->names[i].item;
    if (ul_term_is(term, "none"))
        return ul_row_value(UL_NONE);
    if (ul_term_is(term, "inf"))
        return ul_row_float((double)INFINITY);
    snprintf(text, sizeof text, "%.*s", (int)term->length, term->text);
    if (ul_dtype_find(text) == UL_DTYPE_NONE)
        fprintf(stderr, "no name %s\n", text);
    UL_ASSERT(ul_dtype_find(text) != UL_DTYPE_NONE);
    return ul_row_int(ul_dtype_find(text));
}

/* ---- Values ---- */

static ul_value_id make_number(struct ul_row_builder *row, const struct ul_row_item *number,
                               enum ul_dtype dtype)
{
    struct ul_arena *arena = row->build->graph->arena;
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    unsigned char element[16] = {0};
    struct ul_type type = ul_type_make(dtype, 0, NULL);
    if (!info->is_float && !info->is_integer && dtype != UL_BOOL) {
        (void)refuse(row, false, ul_arena_printf(row->build->scratch, "takes no %s", info->name));
        return UL_NONE;
    }
    if (info->is_float)
        ul_element_put_float(element, dtype, number->f);
    else
        ul_element_put_int(element, dtype,
                           number->kind == UL_ROW_INT ? number->i : (int64_t)number->f);
    return ul_graph_add_weight(row->build->graph, row->constant,
                               ul_tensor_new(arena, &type, element));
}

static ul_value_id make_numbers(struct ul_row_builder *row, const struct ul_row_item *list,
                                enum ul_dtype dtype)
{
    struct ul_graph *graph = row->build->graph;
    struct ul_type type = ul_type_make(dtype, 1, (int64_t[]){list->count});
    UL_ASSERT(ul_dtype_get(dtype)->is_float);
    if (list->count == 1)
        return ul_build_number(graph, row->constant, dtype, 1, list->floats[0]);
    return ul_graph_add_weight(graph, row->constant,
                               ul_tensor_new_floats(graph->arena, &type, list->floats));
}

/* The type of numbers beside these items. */
static enum ul_dtype dtype_beside(struct ul_row_builder *row, const struct ul_row_item *items,
                                  uint32_t count)
{
    enum ul_dtype dtype = UL_DTYPE_NONE;
    for (uint32_t i = 0; i < count && dtype == UL_DTYPE_NONE; i++)
        if (items[i].kind == UL_ROW_VALUE && items[i].value != UL_NONE)
            dtype = row->type_of(row->context, items[i].value).dtype;
    if (dtype == UL_DTYPE_NONE && row->like != UL_NONE)
        dtype = row->type_of(row->context, row->like).dtype;
    return dtype == UL_DTYPE_NONE ? UL_F32 : dtype;
}

static ul_value_id as_value(struct ul_row_builder *row, const struct ul_row_item *item,
                            const struct ul_row_item *beside, uint32_t count)
{
    enum ul_dtype dtype = item->dtype;
    UL_ASSERT(item->kind != UL_ROW_TEXT);
    if (dtype == UL_DTYPE_NONE && (is_number(item) || item->kind == UL_ROW_FLOATS))
        dtype = dtype_beside(row, beside, count);
    if (is_number(item))
        return make_number(row, item, dtype);
    if (item->kind == UL_ROW_FLOATS)
        return make_numbers(row, item, dtype);
    if (item->kind == UL_ROW_LIST)
        return ul_build_ints(row->build->graph, row->constant, item->count, item->ints);
    return item->value;
}

uint32_t ul_row_make_operands(struct ul_row_builder *row, const struct ul_row_call *call,
                              ul_value_id *values)
{
    uint32_t kept = 0;
    uint32_t first = strcmp(call->op, "Where") == 0; /* a condition has a type of its own */
    for (uint32_t i = 0; i < call->count; i++) {
        values[i] = as_value(row, &call->items[i], call->items + first, call->count - first);
        kept = values[i] != UL_NONE ? i + 1 : kept;
    }
    return kept;
}

static struct ul_row_item compute(struct ul_row_builder *row, char op, const struct ul_row_item *a,
                                  const struct ul_row_item *b)
{
    int64_t i = 0;
    bool overflows = false;
    if (a->kind == UL_ROW_FLOAT || b->kind == UL_ROW_FLOAT)
        return ul_row_float(op == '+'   ? a->f + b->f
                            : op == '-' ? a->f - b->f
                            : op == '*' ? a->f * b->f
                                        : a->f / b->f);
    if (op == '+')
        overflows = __builtin_add_overflow(a->i, b->i, &i);
    else if (op == '-')
        overflows = __builtin_sub_overflow(a->i, b->i, &i);
    else if (op == '*')
        overflows = __builtin_mul_overflow(a->i, b->i, &i);
    else if (b->i == 0 || (a->i == INT64_MIN && b->i == -1))
        overflows = true;
    else
        i = op == '/' ? a->i / b->i : a->i % b->i;
    return overflows ? refuse(row, true, "a size is out of range") : ul_row_int(i);
}

/* ---- Operators ---- */

ul_op_id ul_row_find_op(const char *text)
{
    ul_op_id op = ul_op_find("", text);
    op = op == UL_OP_NONE ? ul_op_find("ullage", text) : op;
    if (op == UL_OP_NONE)
        fprintf(stderr, "no operator %s\n", text);
    UL_ASSERT(op != UL_OP_NONE);
    return op;
}

static void set_attr(struct ul_row_builder *row, ul_node_id node, const char *name,
                     const struct ul_row_item *item)
{
    struct ul_graph *graph = row->build->graph;
    if (item->kind == UL_ROW_INT)
        ul_node_set_int(graph, node, name, item->i);
    else if (item->kind == UL_ROW_FLOAT)
        ul_node_set_float(graph, node, name, item->f);
    else if (item->kind == UL_ROW_LIST)
        ul_node_set_ints(graph, node, name, item->ints, item->count);
    else
        ul_node_set_string(
            graph, node, name,
            ul_arena_printf(row->build->scratch, "%.*s", (int)item->count, item->text));
}

void ul_row_apply_sets(struct ul_row_builder *row, ul_node_id node, const struct ul_row_call *call)
{
    const struct ul_attr *attrs = call->is_all ? row->all_attrs : row->own_attrs;
    uint32_t count = call->is_all ? row->all_count : row->own_count;
    for (uint32_t i = 0; call->is_own && i < count; i++)
        ul_node_set_attr(row->build->graph, node, &attrs[i]);
    for (uint32_t i = 0; i < call->set_count; i++) {
        const struct ul_row_span *set = &call->sets[i];
        if (set->item.kind != UL_ROW_VALUE)
            set_attr(row, node,
                     ul_arena_printf(row->build->scratch, "%.*s", (int)set->length, set->text),
                     &set->item);
    }
}

/* All that it is made of is there, and has its types asked for, before the node is. */
static struct ul_row_item add_node(struct ul_row_builder *row, const struct ul_row_call *call)
{
    struct ul_build *build = row->build, own = *build;
    ul_value_id values[UL_ROW_OPERANDS];
    uint32_t count = ul_row_make_operands(row, call, values);
    if (row->wrong != NULL)
        return ul_row_int(1);
    own.names_op = false; /* the node that the row is for keeps its name */
    ul_node_id node = ul_build_node(call->is_own ? &own : build, ul_row_find_op(call->op), values,
                                    count, row->outputs);
    build->at = own.at > build->at ? own.at : build->at;
    ul_row_apply_sets(row, node, call);
    if (strcmp(call->op, "Reshape") == 0 && call->items[1].kind == UL_ROW_LIST)
        ul_node_set_int(build->graph, node, "allowzero", 1);
    return ul_row_value(ul_build_infer(build, node));
}

/* A node of an operator without attributes. */
static struct ul_row_item add_plain(struct ul_row_builder *row, const char *op,
                                    const struct ul_row_item *items, uint32_t count)
{
    struct ul_row_call call = {.count = count};
    if (row->wrong != NULL)
        return ul_row_int(1);
    snprintf(call.op, sizeof call.op, "%s", op);
    memcpy(call.items, items, count * sizeof *items);
    return add_node(row, &call);
}

/* a op b, of numbers or values. */
static struct ul_row_item combine(struct ul_row_builder *row, char op, const struct ul_row_item *a,
                                  const struct ul_row_item *b)
{
    const char *node = op == '+' ? "Add" : op == '-' ? "Sub" : op == '*' ? "Mul" : "Div";
    if (is_number(a) && is_number(b))
        return compute(row, op, a, b);
    if (a->kind == UL_ROW_VALUE && a->value == UL_NONE)
        return *b;
    if (b->kind == UL_ROW_VALUE && b->value == UL_NONE)
        return *a;
    UL_ASSERT(op != '%');
    return add_plain(row, node, (const struct ul_row_item[]){*a, *b}, 2);
}

void ul_row_read_call(struct ul_row_builder *row, const struct ul_term *term,
                      struct ul_row_call *call)
{
    uint32_t outputs = row->outputs;
    *call = (struct ul_row_call){.count = 0};
    UL_ASSERT(term->kind == UL_TERM_CALL && term->length < sizeof call->op);
    snprintf(call->op, sizeof call->op, "%.*s", (int)term->length, term->text);
    row->outputs = 1;
    for (const struct ul_term *part = term->parts; part != NULL; part = part->next) {
        UL_ASSERT(call->count < UL_ROW_OPERANDS);
        call->items[call->count++] = evaluate(row, part);
    }
    for (const struct ul_term *set = term->sets; set != NULL; set = set->next) {
        call->is_all = call->is_all || ul_term_is(set, "**");
        call->is_own = call->is_own || set->parts == NULL;
        if (set->parts == NULL)
            continue;
        UL_ASSERT(call->set_count < UL_ROW_SETS);
        call->sets[call->set_count++] =
            (struct ul_row_span){set->text, set->length, evaluate(row, set->parts)};
    }
    row->outputs = outputs;
}

static struct ul_row_item evaluate_call(struct ul_row_builder *row, const struct ul_term *term)
{
    struct ul_row_call call;
    struct ul_row_item made = ul_row_int(1);
    ul_row_read_call(row, term, &call);
    if (row->wrong == NULL &&
        (row->step == NULL || !row->step(row, call.op, call.items, call.count, &made)))
        made = add_node(row, &call);
    row->outputs = 1;
    return made;
}

/* ---- Expressions ---- */

struct list {
    uint32_t count;
    bool is_float;
    int64_t ints[LIST];
    double floats[LIST];
};

static void add_to_list(struct ul_row_builder *row, struct list *list, struct ul_row_item item)
{
    if (list->count == LIST) {
        ul_row_refuse(row, true, "a list is too long");
        return;
    }
    list->is_float = list->is_float || item.kind == UL_ROW_FLOAT;
    list->ints[list->count] = item.i;
    list->floats[list->count++] = item.f;
}

static struct ul_row_item evaluate_list(struct ul_row_builder *row, const struct ul_term *term)
{
    struct ul_arena *scratch = row->build->scratch;
    struct list list = {.count = 0};
    for (const struct ul_term *part = term->parts; part != NULL; part = part->next) {
        bool is_run = part->kind == UL_TERM_RUN;
        struct ul_row_item from = evaluate(row, is_run ? part->parts : part), to = from;
        if (is_run)
            to = evaluate(row, part->parts->next);
        for (uint32_t i = 0; from.kind == UL_ROW_LIST && i < from.count; i++)
            add_to_list(row, &list, ul_row_int(from.ints[i]));
        if (from.kind != UL_ROW_LIST && !is_run)
            add_to_list(row, &list, from);
        for (int64_t i = from.i; is_run && i < to.i && row->wrong == NULL; i++)
            add_to_list(row, &list, ul_row_int(i));
    }
    uint64_t count = list.count;
    return list.is_float
               ? ul_row_floats(list.count,
                               ul_arena_copy(scratch, list.floats, count * sizeof *list.floats))
               : ul_row_ints(list.count,
                             ul_arena_copy(scratch, list.ints, count * sizeof *list.ints));
}

/* A dimension, or an element, is counted from the end where it is below 0. */
static struct ul_row_item evaluate_of(struct ul_row_builder *row, const struct ul_term *term)
{
    const struct ul_row_item of = evaluate(row, term->parts);
    struct ul_type type = {.rank = 0};
    if (of.kind == UL_ROW_VALUE && of.value != UL_NONE && row->wrong == NULL)
        type = row->type_of(row->context, of.value);
    if (ul_term_is(term, "type"))
        return ul_row_int(dtype_beside(row, &of, 1));
    if (ul_term_is(term, "half"))
        return ul_row_int(ul_dtype_is_half(type.dtype));
    if (ul_term_is(term, "float"))
        return ul_row_int(ul_dtype_get(type.dtype)->is_float);
    if (of.kind == UL_ROW_VALUE && !ul_type_known(&type) && row->wrong == NULL) {
        row->unknown = of.value;
        ul_row_refuse(row, false, "needs a shape that is not known here");
    }
    if (row->wrong != NULL)
        return ul_row_int(1);
    const int64_t *list = of.kind == UL_ROW_LIST ? of.ints : type.dims;
    uint32_t count = of.kind >= UL_ROW_LIST ? of.count : type.rank;
    int64_t at = term->i < 0 ? term->i + count : term->i;
    if (term->text == NULL && (at < 0 || at >= (int64_t)count))
        return refuse(row, true, "has fewer dimensions, or a shorter list, than are needed");
    if (term->text == NULL)
        return of.kind == UL_ROW_FLOATS ? ul_row_float(of.floats[at]) : ul_row_int(list[at]);
    if (ul_term_is(term, "rank"))
        return ul_row_int(count);
    if (ul_term_is(term, "dims"))
        return ul_row_ints(count, ul_arena_copy(row->build->scratch, list, count * sizeof *list));
    UL_ASSERT(ul_term_is(term, "count"));
    return ul_row_int((int64_t)ul_type_elements(&type));
}

static struct ul_row_item evaluate_typed(struct ul_row_builder *row, const struct ul_term *term)
{
    struct ul_row_item item = evaluate(row, term->parts);
    const struct ul_row_item dtype = find_name(row, term->parts->next);
    item.dtype = dtype.kind != UL_ROW_VALUE ? (enum ul_dtype)dtype.i : dtype_beside(row, &dtype, 1);
    return item;
}

static struct ul_row_item evaluate_negative(struct ul_row_builder *row, const struct ul_term *term)
{
    struct ul_row_item item = evaluate(row, term->parts), zero = ul_row_int(0), negative;
    if (!is_number(&item))
        return add_plain(row, "Neg", &item, 1);
    negative = item.kind == UL_ROW_FLOAT ? ul_row_float(-item.f) : compute(row, '-', &zero, &item);
    negative.dtype = item.dtype;
    return negative;
}

enum { UNORDERED = 2 };

static int order_of(const struct ul_row_item *a, const struct ul_row_item *b)
{
    if (a->kind == UL_ROW_TEXT && b->kind == UL_ROW_TEXT)
        return a->count != b->count || memcmp(a->text, b->text, a->count) != 0;
    if (a->kind == UL_ROW_INT && b->kind == UL_ROW_INT)
        return (a->i > b->i) - (a->i < b->i);
    return isnan(a->f) || isnan(b->f) ? UNORDERED : (a->f > b->f) - (a->f < b->f);
}

static bool compare(const struct ul_term *term, const struct ul_row_item *a,
                    const struct ul_row_item *b)
{
    int order = order_of(a, b);
    if (term->text[0] == '=' || term->text[0] == '!')
        return (order == 0) == (term->text[0] == '=');
    if (term->text[0] == '<')
        return order < 0 || (term->length == 2 && order == 0);
    return order > 0 || (term->length == 2 && order == 0);
}

static struct ul_row_item evaluate_two(struct ul_row_builder *row, const struct ul_term *term)
{
    struct ul_row_item a = evaluate(row, term->parts), b = evaluate(row, term->parts->next);
    if (row->wrong != NULL)
        return ul_row_int(1);
    return term->kind == UL_TERM_BINARY ? combine(row, term->text[0], &a, &b)
                                        : ul_row_int(compare(term, &a, &b));
}

static bool is_true(struct ul_row_builder *row, const struct ul_term *term)
{
    const struct ul_row_item item = evaluate(row, term);
    return holds(&item);
}

static struct ul_row_item evaluate(struct ul_row_builder *row, const struct ul_term *term)
{
    const struct ul_term *first = term->parts, *second = first == NULL ? NULL : first->next;
    if (row->wrong != NULL)
        return ul_row_int(1);
    switch (term->kind) {
    case UL_TERM_INT:
        return ul_row_int(term->i);
    case UL_TERM_FLOAT:
        return ul_row_float(term->f);
    case UL_TERM_TEXT:
        return (struct ul_row_item){.kind = UL_ROW_TEXT, .text = term->text, .count = term->length};
    case UL_TERM_NAME:
        return find_name(row, term);
    case UL_TERM_CALL:
        return evaluate_call(row, term);
    case UL_TERM_LIST:
        return evaluate_list(row, term);
    case UL_TERM_OF:
        return evaluate_of(row, term);
    case UL_TERM_TYPED:
        return evaluate_typed(row, term);
    case UL_TERM_NOT:
        return ul_row_int(!is_true(row, first));
    case UL_TERM_NEGATIVE:
        return evaluate_negative(row, term);
    case UL_TERM_BINARY:
    case UL_TERM_COMPARED:
        return evaluate_two(row, term);
    case UL_TERM_ALL:
        return ul_row_int(is_true(row, first) && is_true(row, second));
    case UL_TERM_ANY:
        return ul_row_int(is_true(row, first) || is_true(row, second));
    case UL_TERM_CHOICE:
        return evaluate(row, is_true(row, first) ? second : second->next);
    case UL_TERM_NOTHING:
    case UL_TERM_NUMBER:
    case UL_TERM_RUN:
    case UL_TERM_EITHER:
    case UL_TERM_SET:
    case UL_TERM_NAMING:
    case UL_TERM_INVALID:
    case UL_TERM_PROBLEM:
        break;
    }
    UL_ASSERT(false); /* it says nothing that can be built */
    return ul_row_int(1);
}

struct ul_row_item ul_row_evaluate(struct ul_row_builder *row, const struct ul_term *term)
{
    row->outputs = 1;
    return evaluate(row, term);
}

/* ---- Bodies ---- */

/* invalid TEXT if CONDITION, problem TEXT if CONDITION */
static void check_refusal(struct ul_row_builder *row, const struct ul_term *term)
{
    const struct ul_term *reason = term->parts;
    if (reason->next == NULL || is_true(row, reason->next))
        ul_row_refuse(
            row, term->kind == UL_TERM_INVALID,
            ul_arena_printf(row->build->scratch, "%.*s", (int)reason->length, reason->text));
}

/* name, name = expression */
static void name_results(struct ul_row_builder *row, const struct ul_term *term)
{
    const struct ul_graph *graph = row->build->graph;
    row->outputs = 0;
    for (const struct ul_term *name = term->parts->next; name != NULL; name = name->next)
        row->outputs++;
    bool has_several = row->outputs > 1;
    const struct ul_row_item item = evaluate(row, term->parts);
    bool is_made = item.kind == UL_ROW_VALUE && item.value != UL_NONE;
    const ul_value_id *made = has_several && is_made && row->wrong == NULL
                                  ? graph->nodes[graph->values[item.value].producer].outputs
                                  : NULL;
    row->outputs = 1;
    for (const struct ul_term *name = term->parts->next; name != NULL; name = name->next)
        ul_row_bind(row, name->text, name->length, made != NULL ? ul_row_value(*made++) : item);
}

const struct ul_term *ul_row_run_statements(struct ul_row_builder *row, const struct ul_term *body)
{
    row->outputs = 1;
    for (; body != NULL; body = body->next) {
        if (body->kind == UL_TERM_NAMING)
            name_results(row, body);
        else if (body->kind == UL_TERM_INVALID || body->kind == UL_TERM_PROBLEM)
            check_refusal(row, body);
        else
            break;
    }
    return body;
}

void ul_row_run(struct ul_row_builder *row, const struct ul_term *body, uint32_t wanted,
                uint32_t count, ul_value_id *results)
{
    for (uint32_t i = 0; i < count; i++)
        results[i] = UL_NONE;
    body = ul_row_run_statements(row, body);
    for (uint32_t i = 0; i < count && body != NULL && row->wrong == NULL; i++, body = body->next) {
        if ((wanted >> i & 1u) == 0 || body->kind == UL_TERM_NOTHING)
            continue;
        struct ul_row_item item = evaluate(row, body);
        if (row->wrong == NULL)
            results[i] = as_value(row, &item, NULL, 0);
    }
}
