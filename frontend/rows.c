/* SPDX-License-Identifier: Apache-2.0 */
/* Applies rows: this file reads their heads, ir/term.c their bodies. */
#include "frontend/rows.h"
#include "frontend/old_emit.h"

#include <ctype.h>
#include <string.h>

enum { RESULTS = 8 };

const struct ul_upgrade_row *ul_rows_find(const struct ul_upgrade_row *rows, size_t count,
                                          const char *op)
{
    size_t length = strlen(op);
    for (size_t i = 0; i < count; i++)
        if (strncmp(rows[i].text, op, length) == 0 && rows[i].text[length] == '(')
            return &rows[i];
    return NULL;
}

static struct ul_type type_of(void *context, ul_value_id value)
{
    return ul_old_type(context, value);
}

/* ---- Steps ---- */

/* Unknown(shape, like): a value of the type of `like` and of that shape, which is a constant or a
 * list. Nothing else is known of it: it serves where only a derivative is wanted. */
static struct ul_row_item make_unknown(struct ul_row_builder *row, const struct ul_row_item *shape,
                                       const struct ul_row_item *like)
{
    struct ul_old_node *node = row->context;
    const struct ul_tensor *tensor =
        shape->kind == UL_ROW_VALUE ? ul_old_tensor(node, shape->value) : NULL;
    struct ul_type type = {.dtype = ul_old_type(node, like->value).dtype, .rank = shape->count};
    type.dtype = type.dtype == UL_DTYPE_NONE ? UL_F32 : type.dtype;
    if (shape->kind == UL_ROW_VALUE)
        type.rank =
            tensor == NULL || tensor->type.rank != 1 ? UINT32_MAX : (uint32_t)tensor->type.dims[0];
    if (type.rank > UL_LIMIT_RANK) {
        ul_row_refuse(row, false, "needs a shape that is known at compile time");
        return ul_row_value(UL_NONE);
    }
    for (uint32_t d = 0; d < type.rank; d++)
        type.dims[d] = tensor == NULL ? shape->ints[d] : ul_tensor_get_int(tensor, d);
    if (!ul_type_in_limits(&type)) {
        ul_row_refuse(row, true, "the shape is out of range");
        return ul_row_value(UL_NONE);
    }
    return ul_row_value(ul_old_emit_unknown(node, &type));
}

/* Known(x): the integers of a constant, if they are few; none where x is not known. */
static struct ul_row_item find_known(struct ul_row_builder *row, const struct ul_row_item *of)
{
    enum { FEW = 64 };
    struct ul_old_node *node = row->context;
    const struct ul_tensor *tensor = ul_old_tensor(node, of->value);
    if (tensor == NULL || (tensor->type.dtype != UL_I32 && tensor->type.dtype != UL_I64) ||
        ul_type_elements(&tensor->type) > FEW)
        return ul_row_value(UL_NONE);
    uint32_t count = (uint32_t)ul_type_elements(&tensor->type);
    int64_t *numbers = UL_NEW_ARRAY(node->builder->scratch, int64_t, count);
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = ul_tensor_get_int(tensor, i);
    return ul_row_ints(count, numbers);
}

static bool step(struct ul_row_builder *row, const char *name, const struct ul_row_item *operands,
                 uint32_t count, struct ul_row_item *made)
{
    bool is_known = strcmp(name, "Known") == 0, is_unknown = strcmp(name, "Unknown") == 0;
    UL_ASSERT((!is_known || count == 1) && (!is_unknown || count == 2));
    if (is_known)
        *made = find_known(row, &operands[0]);
    if (is_unknown)
        *made = make_unknown(row, &operands[0], &operands[1]);
    return is_known || is_unknown;
}

static void begin(struct ul_old_node *node, struct ul_row_builder *row)
{
    struct ul_model_builder *builder = node->builder;
    *row = (struct ul_row_builder){.build = ul_old_build(node),
                                   .type_of = type_of,
                                   .context = node,
                                   .step = step,
                                   .unknown = UL_NONE,
                                   .like = UL_NONE,
                                   .all_attrs = node->attrs,
                                   .all_count = node->attr_count,
                                   .own_attrs = node->attrs,
                                   .own_count = node->attr_count};
    row->constant = ul_arena_printf(builder->scratch, "%s/constant", row->build->name);
    if (node->input_count > 0 && !ul_sequence_is(node->inputs[0]))
        row->like = node->inputs[0];
    ul_row_bind(row, "version", 7, ul_row_int(node->version));
    ul_row_bind(row, "limit", 5, ul_row_int(UL_LIMIT_DIM));
    ul_row_bind(row, "outputs", 7, ul_row_int(node->output_count));
}

/* ---- Heads ---- */

/* Reads the bits of the ranks after ":". */
static uint32_t read_ranks(struct ul_term_reader *head)
{
    uint32_t ranks = 0;
    if (ul_term_take(head, "*"))
        return UINT32_MAX;
    for (; isdigit((unsigned char)*head->at); head->at++)
        ranks |= 1u << (*head->at - '0');
    if (*head->at == '+') { /* the last one and more */
        head->at++;
        while (ranks >> 31 == 0)
            ranks |= ranks << 1;
    }
    return ranks;
}

/* Whether input `index` has a type of integers or floats. */
static bool check_numbers(struct ul_old_node *node, uint32_t index)
{
    const struct ul_dtype_info *info = ul_dtype_get(ul_old_dtype(node, index));
    if (!info->is_float && !info->is_integer)
        ul_old_problem(node, ul_arena_printf(node->builder->scratch, "takes no %s", info->name));
    return !node->finished;
}

static bool check_input(struct ul_old_node *node, uint32_t index, bool may_lack, bool is_sequence)
{
    struct ul_arena *scratch = node->builder->scratch;
    ul_value_id value = ul_old_input(node, index);
    if (value == UL_NONE && !may_lack)
        ul_old_invalid(node, "inputs are missing");
    else if (value != UL_NONE && ul_sequence_is(value) && !is_sequence)
        ul_old_problem(node, ul_arena_printf(scratch,
                                             "takes a sequence as input %u, which has to be a "
                                             "tensor",
                                             (unsigned)index));
    return !node->finished;
}

void ul_rows_refuse_sequences(struct ul_old_node *node)
{
    for (uint32_t i = 0; i < node->input_count && check_input(node, i, true, false); i++)
        ;
}

/* Reads the inputs: all required ones must be given before shapes are asked for. */
static bool read_inputs(struct ul_old_node *node, struct ul_row_builder *row,
                        struct ul_term_reader *head)
{
    uint32_t ranks[32] = {0}, numbers = 0, count = 0;
    while (!ul_term_take(head, ")")) {
        uint32_t length;
        const char *name = ul_term_take_name(head, &length);
        bool is_rest = name == NULL && ul_term_take(head, "...");
        UL_ASSERT((name != NULL || is_rest) && count < 32);
        bool may_lack = ul_term_take(head, "?"), has_ranks = ul_term_take(head, ":");
        bool is_sequence = has_ranks && ul_term_take(head, "s");
        ranks[count] = has_ranks && !is_sequence ? read_ranks(head) : 0;
        numbers |= has_ranks && ul_term_take(head, "n") ? 1u << count : 0;
        for (uint32_t i = count; is_rest && i < node->input_count; i++)
            if (!check_input(node, i, true, false))
                return false;
        if (!is_rest && !check_input(node, count, may_lack, is_sequence))
            return false;
        if (!is_rest)
            ul_row_bind(row, name, length, ul_row_value(ul_old_input(node, count)));
        count += !is_rest;
        (void)ul_term_take(head, ",");
    }
    for (uint32_t i = 0; i < count; i++) {
        struct ul_type unused;
        if (ranks[i] != 0 && ul_old_has_input(node, i) && !ul_old_shape(node, i, ranks[i], &unused))
            return false;
        if ((numbers >> i & 1u) != 0 && !check_numbers(node, i))
            return false;
    }
    return true;
}

static struct ul_row_item item_of(const struct ul_attr *attr)
{
    if (attr->kind == UL_ATTR_INT)
        return ul_row_int(attr->i);
    if (attr->kind == UL_ATTR_FLOAT)
        return ul_row_float(attr->f);
    if (attr->kind == UL_ATTR_STRING)
        return ul_row_text(attr->s);
    if (attr->kind == UL_ATTR_INTS)
        return ul_row_ints(attr->count, attr->ints);
    if (attr->kind == UL_ATTR_FLOATS)
        return ul_row_floats(attr->count, attr->floats);
    return ul_row_value(UL_NONE);
}

static struct ul_row_item attr_or(const struct ul_attr *attr, struct ul_row_item otherwise)
{
    const struct ul_row_item item = attr == NULL ? otherwise : item_of(attr);
    bool is_list = item.kind == UL_ROW_FLOATS && otherwise.kind == UL_ROW_LIST;
    bool fits = item.kind == otherwise.kind || is_list || otherwise.kind == UL_ROW_VALUE;
    return fits ? item : otherwise;
}

/* Reads the attributes that the row asks for, and takes them from the node. */
static void read_attrs(struct ul_old_node *node, struct ul_row_builder *row,
                       struct ul_term_reader *head)
{
    struct ul_arena *scratch = node->builder->scratch;
    struct ul_attr *kept = UL_NEW_ARRAY(scratch, struct ul_attr, node->attr_count);
    if (node->attr_count > 0)
        memcpy(kept, node->attrs, node->attr_count * sizeof *kept);
    if (!ul_term_take(head, "{"))
        return;
    while (!ul_term_take(head, "}")) {
        uint32_t length, count = 0;
        const char *name = ul_term_take_name(head, &length);
        bool has_default = name != NULL && ul_term_take(head, "=");
        UL_ASSERT(has_default);
        const char *key = ul_arena_printf(scratch, "%.*s", (int)length, name);
        const struct ul_row_item otherwise = ul_row_evaluate(row, ul_term_read(head));
        ul_row_bind(row, name, length, attr_or(ul_old_attr(node, key), otherwise));
        for (uint32_t i = 0; i < row->own_count; i++)
            if (strcmp(kept[i].name, key) != 0)
                kept[count++] = kept[i];
        row->own_count = count;
        (void)ul_term_take(head, ",");
    }
    row->own_attrs = kept;
}

/* ---- Bodies ---- */

/* Reports what is wrong; false where something is. */
static bool check_row(struct ul_old_node *node, const struct ul_row_builder *row)
{
    struct ul_type unused;
    for (uint32_t i = 0; row->wrong != NULL && row->unknown != UL_NONE && i < node->input_count;
         i++)
        if (node->inputs[i] == row->unknown)
            return ul_old_shape(node, i, UINT32_MAX, &unused);
    if (row->wrong != NULL && row->unknown != UL_NONE)
        ul_old_problem(node, ul_arena_printf(node->builder->scratch, "%s; %s", row->wrong,
                                             ul_old_why_unknown(node, row->unknown)));
    else if (row->wrong != NULL && row->is_invalid)
        ul_old_invalid(node, row->wrong);
    else if (row->wrong != NULL)
        ul_old_problem(node, row->wrong);
    return row->wrong == NULL;
}

/* derivative(y, gradient, x, x, ...): each named output is the derivative of y by one of the xs. */
static void finish_derivative(struct ul_old_node *node, struct ul_row_builder *row,
                              const struct ul_term *term)
{
    ul_value_id of[2] = {UL_NONE, UL_NONE}, wanted[RESULTS];
    uint32_t outputs[RESULTS], count = 0, wanted_count = 0;
    for (const struct ul_term *part = term->parts; part != NULL; part = part->next, count++) {
        struct ul_row_item item = ul_row_evaluate(row, part);
        bool is_x = count >= 2 && count - 2 < node->output_count && count - 2 < RESULTS;
        if (count < 2)
            of[count] = item.value;
        else if (is_x && node->outputs[count - 2][0] != '\0') {
            outputs[wanted_count] = count - 2;
            wanted[wanted_count++] = item.value;
        }
    }
    if (row->wrong != NULL || node->finished || wanted_count == 0)
        return;
    ul_node_id id = ul_old_emit_derivative(node, of[0], of[1], wanted, wanted_count, 0);
    for (uint32_t i = 0; i < wanted_count; i++)
        ul_old_set_result(node, outputs[i], node->builder->graph->nodes[id].outputs[i]);
}

static void finish(struct ul_old_node *node, struct ul_row_builder *row, const struct ul_term *body)
{
    ul_value_id results[RESULTS];
    uint32_t wanted = 0;
    memset(results, 0xFF, sizeof results); /* sets all to UL_NONE */
    for (uint32_t i = 0; i < node->output_count && i < RESULTS; i++)
        wanted |= node->outputs[i][0] != '\0' ? 1u << i : 0;
    body = ul_row_run_statements(row, body);
    if (body != NULL && body->kind == UL_TERM_CALL && ul_term_is(body, "derivative"))
        finish_derivative(node, row, body);
    else
        ul_row_run(row, body, wanted, RESULTS, results);
    bool is_good = check_row(node, row) && !node->finished;
    for (uint32_t i = 0; is_good && i < RESULTS; i++)
        if (results[i] != UL_NONE)
            ul_old_set_result(node, i, results[i]);
    node->finished = true;
}

static const struct ul_term *read_body(struct ul_old_node *node, const char *text)
{
    struct ul_term_reader reader = {text, node->builder->scratch};
    return ul_term_read_body(&reader);
}

/* Begins a row with these names too, one of its own where the node has none. */
static void begin_body(struct ul_old_node *node, struct ul_row_builder *row,
                       const struct ul_row_name *names)
{
    if (node->row != NULL)
        *row = *node->row;
    else
        begin(node, row);
    row->build = ul_old_build(node);
    row->all_attrs = node->attrs;
    row->all_count = node->attr_count;
    for (; names != NULL && names->name != NULL; names++)
        ul_row_bind(row, names->name, (uint32_t)strlen(names->name), names->item);
}

bool ul_old_run(struct ul_old_node *node, const struct ul_row_name *names, const char *body,
                uint32_t count, ul_value_id *results)
{
    struct ul_row_builder row;
    begin_body(node, &row, names);
    ul_row_run(&row, read_body(node, body), UINT32_MAX, count, results);
    return check_row(node, &row);
}

ul_value_id ul_old_make(struct ul_old_node *node, const struct ul_row_name *names, const char *body)
{
    ul_value_id result;
    return ul_old_run(node, names, body, 1, &result) ? result : UL_NONE;
}

ul_value_id ul_old_const(struct ul_old_node *node, enum ul_dtype dtype, struct ul_row_item item)
{
    item.dtype = dtype;
    return ul_old_make(node, UL_WITH({"constant", item}), "constant");
}

void ul_old_finish(struct ul_old_node *node, const struct ul_row_name *names, const char *body)
{
    struct ul_row_builder row;
    begin_body(node, &row, names);
    finish(node, &row, read_body(node, body));
}

void ul_rows_upgrade(struct ul_old_node *node, const struct ul_upgrade_row *text)
{
    struct ul_row_builder row;
    struct ul_term_reader head = {strchr(text->text, '(') + 1, node->builder->scratch};
    begin(node, &row);
    if (!read_inputs(node, &row, &head))
        return;
    read_attrs(node, &row, &head);
    bool has_body = ul_term_take(&head, "->");
    UL_ASSERT(has_body || (text->upgrade != NULL && *head.at == '\0'));
    const struct ul_term *body = has_body ? ul_term_read_body(&head) : NULL;
    node->row = &row;
    if (text->rest != NULL) {
        (void)ul_row_run_statements(&row, body);
        body = read_body(node, text->rest);
    }
    if (text->upgrade == NULL)
        finish(node, &row, body);
    else if (ul_row_run_statements(&row, body) == NULL && check_row(node, &row))
        text->upgrade(node);
    node->row = NULL;
}
