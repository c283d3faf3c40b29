/* SPDX-License-Identifier: Apache-2.0 */
/* Reads rows and builds what they say, in one walk through the text. */
#include "ir/row.h"
#include "ir/op.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OPERANDS = 16, SETS = 16, LIST = 4 * UL_LIMIT_RANK };

static struct ul_row_item either(struct ul_row_builder *row);

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

/* Nothing is built here. */
static bool is_idle(const struct ul_row_builder *row)
{
    return row->skipped > 0 || row->wrong != NULL;
}

void ul_row_refuse(struct ul_row_builder *row, bool is_invalid, const char *reason)
{
    if (is_idle(row))
        return;
    row->wrong = reason;
    row->is_invalid = is_invalid;
}

static struct ul_row_item refuse(struct ul_row_builder *row, bool is_invalid, const char *reason)
{
    ul_row_refuse(row, is_invalid, reason);
    return ul_row_int(1);
}

/* ---- Text ---- */

static void skip_space(struct ul_row_builder *row)
{
    while (*row->at == ' ')
        row->at++;
}

bool ul_row_take(struct ul_row_builder *row, const char *token)
{
    size_t length = strlen(token);
    skip_space(row);
    if (strncmp(row->at, token, length) != 0)
        return false;
    row->at += length;
    return true;
}

static void expect(struct ul_row_builder *row, const char *token)
{
    bool is_there = ul_row_take(row, token);
    if (!is_there)
        fprintf(stderr, "expected %s at: %s\n", token, row->at);
    UL_ASSERT(is_there);
}

const char *ul_row_take_name(struct ul_row_builder *row, uint32_t *length)
{
    skip_space(row);
    const char *begin = row->at;
    if (isdigit((unsigned char)*begin))
        return NULL;
    while (ul_scan_in_name(*row->at))
        row->at++;
    *length = (uint32_t)(row->at - begin);
    return *length == 0 ? NULL : begin;
}

static bool is_word(const char *name, uint32_t length, const char *word)
{
    return strlen(word) == length && memcmp(name, word, length) == 0;
}

void ul_row_bind(struct ul_row_builder *row, const char *name, uint32_t length,
                 struct ul_row_item item)
{
    UL_ASSERT(row->name_count < UL_ROW_NAMES);
    row->names[row->name_count++] = (struct ul_row_span){name, length, item};
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
    const int64_t dims[1] = {list->count};
    struct ul_type type = ul_type_make(dtype, 1, dims);
    UL_ASSERT(ul_dtype_get(dtype)->is_float);
    return ul_graph_add_weight(row->build->graph, row->constant,
                               ul_tensor_new_floats(row->build->graph->arena, &type, list->floats));
}

/* The type of numbers beside these items. */
static enum ul_dtype dtype_beside(struct ul_row_builder *row, const struct ul_row_item *items,
                                  uint32_t count)
{
    enum ul_dtype dtype = UL_DTYPE_NONE;
    for (uint32_t i = 0; i < count && dtype == UL_DTYPE_NONE; i++)
        if (items[i].kind == UL_ROW_VALUE && items[i].value != UL_NONE)
            dtype = row->type_of(row->context, items[i].value).dtype;
    dtype = dtype == UL_DTYPE_NONE ? row->dtype : dtype;
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

/* The operands as values; how many there are without absent ones at the end. */
static uint32_t make_operands(struct ul_row_builder *row, const char *op,
                              const struct ul_row_item *items, uint32_t count, ul_value_id *values)
{
    uint32_t kept = 0, first = strcmp(op, "Where") == 0; /* a condition has a type of its own */
    for (uint32_t i = 0; i < count; i++) {
        values[i] = as_value(row, &items[i], items + first, count - first);
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

static ul_op_id find_op(const char *text)
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

/* What stands in braces: attributes in their order, and those of the row's own node in front. */
struct sets {
    bool is_own, is_all;
    uint32_t count;
    struct ul_row_span list[SETS];
};

static void read_sets(struct ul_row_builder *row, struct sets *sets)
{
    while (!ul_row_take(row, "}")) {
        struct ul_row_span *set = &sets->list[sets->count];
        bool is_own = ul_row_take(row, "*");
        sets->is_all = sets->is_all || (is_own && ul_row_take(row, "*"));
        sets->is_own = sets->is_own || is_own;
        if (!is_own) {
            UL_ASSERT(sets->count < SETS);
            set->text = ul_row_take_name(row, &set->length);
            expect(row, "=");
            set->item = either(row);
            sets->count++;
        }
        (void)ul_row_take(row, ",");
    }
}

static void apply_sets(struct ul_row_builder *row, ul_node_id node, const struct sets *sets)
{
    const struct ul_attr *attrs = sets->is_all ? row->all_attrs : row->own_attrs;
    uint32_t count = sets->is_all ? row->all_count : row->own_count;
    for (uint32_t i = 0; sets->is_own && i < count; i++)
        ul_node_set_attr(row->build->graph, node, &attrs[i]);
    for (uint32_t i = 0; i < sets->count; i++) {
        const struct ul_row_span *set = &sets->list[i];
        if (set->item.kind != UL_ROW_VALUE)
            set_attr(row, node,
                     ul_arena_printf(row->build->scratch, "%.*s", (int)set->length, set->text),
                     &set->item);
    }
}

/* All that it is made of is read, and has its types asked for, before the node is there. */
static struct ul_row_item add_node(struct ul_row_builder *row, const char *op,
                                   const struct ul_row_item *items, uint32_t count,
                                   const struct sets *sets)
{
    struct ul_build *build = row->build, own = *build;
    ul_value_id values[OPERANDS];
    count = make_operands(row, op, items, count, values);
    if (row->wrong != NULL)
        return ul_row_int(1);
    own.names_op = false; /* the node that the row is for keeps its name */
    ul_node_id node =
        ul_build_node(sets->is_own ? &own : build, find_op(op), values, count, row->outputs);
    build->at = own.at > build->at ? own.at : build->at;
    apply_sets(row, node, sets);
    if (strcmp(op, "Reshape") == 0 && items[1].kind == UL_ROW_LIST)
        ul_node_set_int(build->graph, node, "allowzero", 1);
    return ul_row_value(ul_build_infer(build, node));
}

/* a op b, of numbers or values. */
static struct ul_row_item combine(struct ul_row_builder *row, char op, const struct ul_row_item *a,
                                  const struct ul_row_item *b)
{
    const char *node = op == '+' ? "Add" : op == '-' ? "Sub" : op == '*' ? "Mul" : "Div";
    const struct ul_row_item items[2] = {*a, *b};
    const struct sets none = {.count = 0};
    if (is_idle(row))
        return ul_row_int(1);
    if (is_number(a) && is_number(b))
        return compute(row, op, a, b);
    if (a->kind == UL_ROW_VALUE && a->value == UL_NONE)
        return *b;
    if (b->kind == UL_ROW_VALUE && b->value == UL_NONE)
        return *a;
    UL_ASSERT(op != '%');
    return add_node(row, node, items, 2, &none);
}

static struct ul_row_item read_call(struct ul_row_builder *row, const char *name, uint32_t length)
{
    struct ul_row_item items[OPERANDS], made = ul_row_int(1);
    struct sets sets = {.count = 0};
    uint32_t count = 0, outputs = row->outputs;
    char op[64];
    UL_ASSERT(length < sizeof op);
    snprintf(op, sizeof op, "%.*s", (int)length, name);
    expect(row, "(");
    row->outputs = 1;
    while (!ul_row_take(row, ")")) {
        UL_ASSERT(count < OPERANDS);
        items[count++] = either(row);
        (void)ul_row_take(row, ",");
    }
    if (ul_row_take(row, "{"))
        read_sets(row, &sets);
    row->outputs = outputs;
    if (!is_idle(row) && (row->step == NULL || !row->step(row, op, items, count, &made)))
        made = add_node(row, op, items, count, &sets);
    row->outputs = 1;
    return made;
}

/* ---- Expressions ---- */

static struct ul_row_item read_number(struct ul_row_builder *row)
{
    char *end;
    const char *begin = row->at;
    int64_t whole = strtoll(begin, &end, 10);
    bool is_float = (*end == '.' && isdigit((unsigned char)end[1])) || *end == 'e';
    row->at = end;
    if (!is_float)
        return ul_row_int(whole);
    double number = strtod(begin, &end);
    if (*end == 'f') { /* as the nearest float */
        number = (double)(float)number;
        end++;
    }
    row->at = end;
    return ul_row_float(number);
}

static struct ul_row_item read_text(struct ul_row_builder *row)
{
    const char *begin = row->at + 1, *end = strchr(begin, *row->at);
    UL_ASSERT(end != NULL);
    row->at = end + 1;
    return (struct ul_row_item){
        .kind = UL_ROW_TEXT, .text = begin, .count = (uint32_t)(end - begin)};
}

static void add_to_list(struct ul_row_builder *row, int64_t *list, uint32_t *count, int64_t number)
{
    if (*count < LIST)
        list[(*count)++] = number;
    else
        (void)refuse(row, true, "a list is too long");
}

static struct ul_row_item read_list(struct ul_row_builder *row)
{
    int64_t list[LIST];
    uint32_t count = 0;
    expect(row, "[");
    while (!ul_row_take(row, "]")) {
        struct ul_row_item from = either(row), to = from;
        bool is_range = ul_row_take(row, "..");
        if (is_range)
            to = either(row);
        for (uint32_t i = 0; from.kind == UL_ROW_LIST && i < from.count; i++)
            add_to_list(row, list, &count, from.ints[i]);
        if (from.kind != UL_ROW_LIST && !is_range)
            add_to_list(row, list, &count, from.i);
        for (int64_t i = from.i; is_range && i < to.i && !is_idle(row); i++)
            add_to_list(row, list, &count, i);
        (void)ul_row_take(row, ",");
    }
    return ul_row_ints(count, ul_arena_copy(row->build->scratch, list, count * sizeof *list));
}

static struct ul_row_item read_name(struct ul_row_builder *row)
{
    uint32_t length;
    char text[16];
    const char *name = ul_row_take_name(row, &length);
    if (name == NULL)
        fprintf(stderr, "expected a name at: %s\n", row->at);
    UL_ASSERT(name != NULL);
    if (isupper((unsigned char)*name))
        return read_call(row, name, length);
    for (uint32_t i = row->name_count; i-- > 0;)
        if (row->names[i].length == length && memcmp(row->names[i].text, name, length) == 0)
            return row->names[i].item;
    if (is_word(name, length, "none"))
        return ul_row_value(UL_NONE);
    if (is_word(name, length, "inf"))
        return ul_row_float((double)INFINITY);
    snprintf(text, sizeof text, "%.*s", (int)length, name);
    if (ul_dtype_find(text) == UL_DTYPE_NONE)
        fprintf(stderr, "no name %s\n", text);
    UL_ASSERT(ul_dtype_find(text) != UL_DTYPE_NONE);
    return ul_row_int(ul_dtype_find(text));
}

static struct ul_row_item read_part(struct ul_row_builder *row)
{
    skip_space(row);
    if (isdigit((unsigned char)*row->at))
        return read_number(row);
    if (*row->at == '\'' || *row->at == '`')
        return read_text(row);
    if (*row->at == '[')
        return read_list(row);
    if (!ul_row_take(row, "("))
        return read_name(row);
    struct ul_row_item item = either(row);
    expect(row, ")");
    return item;
}

/* Dimensions of a value, or elements of a list; from the end where `at` is below 0. */
static struct ul_row_item read_element(struct ul_row_builder *row, const int64_t *list,
                                       uint32_t count)
{
    char *end;
    int64_t at = strtoll(row->at, &end, 10);
    row->at = end;
    at += at < 0 ? count : 0;
    if (is_idle(row))
        return ul_row_int(1);
    if (at < 0 || at >= (int64_t)count)
        return refuse(row, true, "has fewer dimensions, or a shorter list, than are needed");
    return ul_row_int(list[at]);
}

static struct ul_row_item read_which(struct ul_row_builder *row, const struct ul_row_item *of)
{
    struct ul_type type = {.rank = 0};
    uint32_t length = 0;
    if (of->kind == UL_ROW_VALUE && of->value != UL_NONE && !is_idle(row))
        type = row->type_of(row->context, of->value);
    if (ul_row_take(row, "type"))
        return ul_row_int(dtype_beside(row, of, 1));
    if (ul_row_take(row, "half"))
        return ul_row_int(ul_dtype_is_half(type.dtype));
    if (ul_row_take(row, "float"))
        return ul_row_int(ul_dtype_get(type.dtype)->is_float);
    if (of->kind == UL_ROW_VALUE && !ul_type_known(&type) && !is_idle(row)) {
        row->unknown = of->value;
        ul_row_refuse(row, false, "needs a shape that is not known here");
    }
    const int64_t *list = of->kind == UL_ROW_LIST ? of->ints : type.dims;
    uint32_t count = of->kind >= UL_ROW_LIST ? of->count : type.rank;
    if (is_idle(row))
        count = 0;
    const char *name = *row->at == '-' ? NULL : ul_row_take_name(row, &length);
    if (name == NULL)
        return read_element(row, list, count);
    if (is_word(name, length, "rank"))
        return ul_row_int(count);
    if (is_word(name, length, "dims"))
        return ul_row_ints(count, ul_arena_copy(row->build->scratch, list, count * sizeof *list));
    UL_ASSERT(is_word(name, length, "count"));
    return ul_row_int(is_idle(row) ? 1 : (int64_t)ul_type_elements(&type));
}

static struct ul_row_item unary(struct ul_row_builder *row)
{
    if (ul_row_take(row, "!")) {
        struct ul_row_item item = unary(row);
        return ul_row_int(!holds(&item));
    }
    if (ul_row_take(row, "-")) {
        struct ul_row_item item = unary(row), zero = ul_row_int(0);
        enum ul_dtype dtype = item.dtype;
        if (is_number(&item)) {
            item =
                item.kind == UL_ROW_FLOAT ? ul_row_float(-item.f) : compute(row, '-', &zero, &item);
            item.dtype = dtype;
            return item;
        }
        const struct sets none = {.count = 0};
        return is_idle(row) ? item : add_node(row, "Neg", &item, 1, &none);
    }
    struct ul_row_item item = read_part(row);
    while (row->at[0] == '.' && row->at[1] != '.') {
        row->at++;
        item = read_which(row, &item);
    }
    if (row->at[0] == ':' && ul_scan_in_name(row->at[1])) {
        row->at++;
        struct ul_row_item dtype = read_name(row);
        item.dtype = dtype.kind != UL_ROW_VALUE ? (enum ul_dtype)dtype.i
                     : is_idle(row)             ? UL_DTYPE_NONE
                                                : dtype_beside(row, &dtype, 1);
    }
    return item;
}

static struct ul_row_item product(struct ul_row_builder *row)
{
    struct ul_row_item item = unary(row);
    for (;;) {
        skip_space(row);
        char op = *row->at;
        if (op != '*' && op != '/' && op != '%')
            return item;
        row->at++;
        struct ul_row_item other = unary(row);
        item = combine(row, op, &item, &other);
    }
}

static struct ul_row_item sum(struct ul_row_builder *row)
{
    struct ul_row_item item = product(row);
    for (;;) {
        skip_space(row);
        char op = *row->at;
        if (op != '+' && op != '-')
            return item;
        row->at++;
        struct ul_row_item other = product(row);
        item = combine(row, op, &item, &other);
    }
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

static struct ul_row_item compared(struct ul_row_builder *row)
{
    static const char *const signs[] = {"==", "!=", "<=", ">=", "<", ">"};
    struct ul_row_item a = sum(row);
    for (uint32_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!ul_row_take(row, signs[i]))
            continue;
        struct ul_row_item b = sum(row);
        int order = order_of(&a, &b);
        const bool results[] = {order == 0, order != 0, order <= 0, order >= 0, order<0, order> 0};
        return ul_row_int(results[i]);
    }
    return a;
}

/* Behind an answer nothing more is asked. */
static struct ul_row_item all(struct ul_row_builder *row)
{
    struct ul_row_item item = compared(row);
    while (ul_row_take(row, "&&")) {
        bool is_open = holds(&item);
        row->skipped += !is_open;
        struct ul_row_item other = compared(row);
        row->skipped -= !is_open;
        item = ul_row_int(is_open && holds(&other));
    }
    return item;
}

static struct ul_row_item any(struct ul_row_builder *row)
{
    struct ul_row_item item = all(row);
    while (ul_row_take(row, "||")) {
        bool is_open = !holds(&item);
        row->skipped += !is_open;
        struct ul_row_item other = all(row);
        row->skipped -= !is_open;
        item = ul_row_int(!is_open || holds(&other));
    }
    return item;
}

static struct ul_row_item either(struct ul_row_builder *row)
{
    struct ul_row_item condition = any(row);
    skip_space(row);
    if (!ul_row_take(row, "?"))
        return condition;
    bool yes = holds(&condition);
    row->skipped += !yes;
    struct ul_row_item first = either(row);
    row->skipped -= !yes;
    expect(row, ":");
    row->skipped += yes;
    struct ul_row_item second = either(row);
    row->skipped -= yes;
    return yes ? first : second;
}

struct ul_row_item ul_row_read(struct ul_row_builder *row)
{
    row->outputs = 1;
    return either(row);
}

/* ---- Bodies ---- */

/* invalid TEXT if CONDITION, problem TEXT if CONDITION */
static bool read_refusal(struct ul_row_builder *row)
{
    bool is_invalid = ul_row_take(row, "invalid ");
    if (!is_invalid && !ul_row_take(row, "problem "))
        return false;
    skip_space(row);
    struct ul_row_item reason = read_text(row), condition = ul_row_int(1);
    if (ul_row_take(row, "if"))
        condition = either(row);
    if (holds(&condition) && !is_idle(row))
        (void)refuse(row, is_invalid,
                     ul_arena_printf(row->build->scratch, "%.*s", (int)reason.count, reason.text));
    return true;
}

/* name, name = expression; false, and nothing is read, where something else stands there. */
static bool read_naming(struct ul_row_builder *row)
{
    struct ul_row_span names[4];
    const char *begin = row->at;
    uint32_t count = 0;
    do {
        names[count].text = ul_row_take_name(row, &names[count].length);
    } while (names[count++].text != NULL && count < 4 && ul_row_take(row, ","));
    skip_space(row);
    if (names[count - 1].text == NULL || *row->at != '=' || row->at[1] == '=') {
        row->at = begin;
        return false;
    }
    row->at++;
    row->outputs = count;
    struct ul_row_item item = either(row);
    row->outputs = 1;
    const struct ul_graph *graph = row->build->graph;
    bool is_made = item.kind == UL_ROW_VALUE && item.value != UL_NONE;
    const ul_value_id *made = count > 1 && is_made && !is_idle(row)
                                  ? graph->nodes[graph->values[item.value].producer].outputs
                                  : NULL;
    for (uint32_t i = 0; i < count; i++)
        ul_row_bind(row, names[i].text, names[i].length,
                    made != NULL ? ul_row_value(made[i]) : item);
    return true;
}

void ul_row_run_statements(struct ul_row_builder *row)
{
    row->outputs = 1;
    while (read_refusal(row) || read_naming(row))
        expect(row, ";");
}

void ul_row_run(struct ul_row_builder *row, uint32_t wanted, uint32_t count, ul_value_id *results)
{
    for (uint32_t i = 0; i < count; i++)
        results[i] = UL_NONE;
    ul_row_run_statements(row);
    for (uint32_t i = 0; row->wrong == NULL; i++) {
        bool is_wanted = i < count && (wanted >> i & 1u) != 0;
        skip_space(row);
        row->skipped += !is_wanted;
        if (*row->at != ',' && *row->at != '\0') {
            struct ul_row_item item = either(row);
            if (is_wanted && row->wrong == NULL)
                results[i] = as_value(row, &item, NULL, 0);
        }
        row->skipped -= !is_wanted;
        if (!ul_row_take(row, ","))
            break;
    }
    UL_ASSERT(row->wrong != NULL || *row->at == '\0');
}
