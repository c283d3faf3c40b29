/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the text form. A cursor walks the text; every production either advances it or sets the
 * diagnosis with the line number. Ids may be defined in any order; that each is defined once and
 * before its use is checked by the verifier, which runs at the end. */
#include "ir/op.h"
#include "ir/text.h"
#include "ir/text_internal.h"
#include "ir/view.h"

#include <ctype.h>
#include <string.h>

struct parse {
    struct ul_graph *graph;
    struct ul_arena scratch;
    struct ul_scan scan;
    uint64_t id_limit; /* keeps a short text from asking for gigabytes of empty ids */
    const struct ul_tensor *const *pool;
    uint32_t pool_count;
};

static enum ul_status parse_word(struct parse *parse, const char *extra, const char **out)
{
    ul_scan_skip_blanks(&parse->scan);
    size_t length = 0;
    while (isalnum((unsigned char)parse->scan.at[length]) ||
           (parse->scan.at[length] != '\0' && strchr(extra, parse->scan.at[length]) != NULL))
        length++;
    if (length == 0)
        return ul_scan_fail(&parse->scan, "a name");
    char *word = ul_arena_alloc(parse->graph->arena, length + 1);
    memcpy(word, parse->scan.at, length);
    parse->scan.at += length;
    *out = word;
    return UL_OK;
}

static enum ul_status parse_dtype(struct parse *parse, enum ul_dtype *dtype)
{
    const char *name;
    UL_TRY(parse_word(parse, "", &name));
    *dtype = ul_dtype_find(name);
    if (*dtype == UL_DTYPE_NONE && strcmp(name, "none") != 0)
        return ul_scan_fail(&parse->scan, "an element type before this");
    return UL_OK;
}

static enum ul_status parse_kept(struct parse *parse, enum ul_kept *kept)
{
    const char *name;
    UL_TRY(parse_word(parse, "", &name));
    for (int i = UL_KEPT_NOT + 1; i < UL_KEPT_COUNT; i++)
        if (strcmp(name, ul_kept_get((enum ul_kept)i)) == 0)
            *kept = (enum ul_kept)i;
    return *kept != UL_KEPT_NOT ? UL_OK
                                : ul_scan_fail(&parse->scan, "why it stays f32 before this");
}

/* f32[1,?,3], f32[*] */
static enum ul_status parse_type(struct parse *parse, struct ul_type *type)
{
    memset(type, 0, sizeof *type);
    UL_TRY(parse_dtype(parse, &type->dtype));
    UL_TRY(ul_scan_expect(&parse->scan, "["));
    if (ul_scan_accept(&parse->scan, "*")) {
        type->rank = UL_RANK_UNKNOWN;
        return ul_scan_expect(&parse->scan, "]");
    }
    while (!ul_scan_accept(&parse->scan, "]")) {
        if (type->rank == UL_LIMIT_RANK)
            return ul_scan_fail(&parse->scan, "at most 8 dimensions");
        if (type->rank > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        if (ul_scan_accept(&parse->scan, "?")) {
            type->dims[type->rank++] = -1;
            continue;
        }
        UL_TRY(ul_scan_int(&parse->scan, &type->dims[type->rank]));
        if (type->dims[type->rank] < 0)
            return ul_scan_fail(&parse->scan, "a dimension that is not negative before this");
        type->rank++;
    }
    return UL_OK;
}

static enum ul_status parse_element(struct parse *parse, enum ul_dtype dtype, unsigned char *place)
{
    if (ul_dtype_get(dtype)->is_float) {
        double value;
        UL_TRY(ul_scan_float(&parse->scan, &value));
        ul_element_put_float(place, dtype, value);
        return UL_OK;
    }
    int64_t value;
    UL_TRY(ul_scan_int(&parse->scan, &value));
    ul_element_put_int(place, dtype, value);
    return UL_OK;
}

/* [1,2] or 0x0a0b: reads `count` elements into `out`. */
static enum ul_status parse_elements(struct parse *parse, enum ul_dtype dtype, uint64_t count,
                                     unsigned char *out)
{
    const struct ul_dtype_info *info = ul_dtype_get(dtype);
    if (ul_scan_accept(&parse->scan, "0x")) {
        for (uint64_t i = 0; i < count * info->size_bytes; i++) {
            if (!ul_scan_accept_hex_byte(&parse->scan, &out[i]))
                return ul_scan_fail(&parse->scan, "more hex digits");
        }
        return UL_OK;
    }
    if (!info->is_float && !info->is_integer && dtype != UL_BOOL)
        return ul_scan_fail(&parse->scan, "0x and hex digits");
    UL_TRY(ul_scan_expect(&parse->scan, "["));
    for (uint64_t i = 0; i < count; i++) {
        if (i > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(parse_element(parse, dtype, out + i * info->size_bytes));
    }
    return ul_scan_expect(&parse->scan, "]");
}

/* What follows "type =" of a constant. */
static enum ul_status parse_constant(struct parse *parse, const struct ul_type *type,
                                     const struct ul_tensor **out)
{
    if (!ul_type_known(type) || !ul_type_in_limits(type))
        return ul_scan_fail(&parse->scan, "a constant of known size within the limits");
    if (ul_scan_accept(&parse->scan, "pool=")) {
        uint32_t index = 0;
        UL_TRY(ul_scan_u32(&parse->scan, UINT32_MAX, &index));
        if (index >= parse->pool_count || !ul_type_equal(&parse->pool[index]->type, type))
            return ul_scan_fail(&parse->scan, "a constant of this type in the pool");
        *out = parse->pool[index];
        return UL_OK;
    }
    if (ul_scan_accept_word(&parse->scan, "splat")) {
        unsigned char element[16] = {0};
        UL_TRY(parse_elements(parse, type->dtype, 1, element));
        *out = ul_tensor_new_splat(parse->graph->arena, type, element);
        return UL_OK;
    }
    /* Each element takes at least one character, so this asks for no more than the text holds. */
    if (ul_type_elements(type) > strlen(parse->scan.at))
        return ul_scan_fail(&parse->scan, "as many elements as the type has");
    struct ul_tensor *tensor = UL_NEW(parse->graph->arena, struct ul_tensor);
    unsigned char *data = ul_arena_alloc(parse->graph->arena, ul_type_bytes(type));
    tensor->type = *type;
    tensor->data = data;
    *out = tensor;
    return parse_elements(parse, type->dtype, ul_type_elements(type), data);
}

static enum ul_status parse_value_id(struct parse *parse, ul_value_id *out)
{
    UL_TRY(ul_scan_expect(&parse->scan, "%"));
    UL_TRY(ul_scan_u32(&parse->scan, parse->id_limit, out));
    while (parse->graph->value_count <= *out)
        ul_graph_add_value(parse->graph, "", UL_VALUE_DEAD, NULL);
    return UL_OK;
}

static enum ul_status parse_view(struct parse *parse, ul_value_id id)
{
    struct ul_view view = {0};
    uint32_t rank = parse->graph->values[id].type.rank;
    UL_TRY(parse_value_id(parse, &view.base));
    UL_TRY(ul_scan_int(&parse->scan, &view.offset_bytes));
    UL_TRY(ul_scan_expect(&parse->scan, "["));
    for (uint32_t d = 0; rank <= UL_LIMIT_RANK && d < rank; d++) {
        if (d > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(ul_scan_int(&parse->scan, &view.strides[d]));
    }
    parse->graph->values[id].view = view;
    return ul_scan_expect(&parse->scan, "]");
}

static enum ul_status parse_own(struct parse *parse, ul_value_id id)
{
    struct ul_value *value = &parse->graph->values[id];
    if (!ul_type_known(&value->type) || !ul_type_in_limits(&value->type))
        return ul_scan_fail(&parse->scan, "a type of known size before 'own'");
    value->view = ul_view_own(parse->graph, id);
    return UL_OK;
}

/* %3 "name" f32[2] persistent donor=%1 own */
static enum ul_status parse_definition(struct parse *parse, enum ul_value_kind kind,
                                       ul_value_id *out)
{
    ul_value_id id = 0;
    const char *name;
    struct ul_type type;
    UL_TRY(parse_value_id(parse, &id));
    if (parse->graph->values[id].kind != UL_VALUE_DEAD)
        return ul_scan_fail(&parse->scan, "an id that is not yet defined before this");
    UL_TRY(ul_scan_string(&parse->scan, &name));
    UL_TRY(parse_type(parse, &type));
    parse->graph->values[id].name = name;
    parse->graph->values[id].type = type;
    parse->graph->values[id].kind = kind;
    for (const struct ul_text_flag *row = ul_text_flags; row->word != NULL; row++)
        if (ul_scan_accept_word(&parse->scan, row->word))
            parse->graph->values[id].flags |= row->flag;
    if (ul_scan_accept(&parse->scan, "storage="))
        UL_TRY(parse_dtype(parse, &parse->graph->values[id].storage));
    if (ul_scan_accept(&parse->scan, "declared="))
        UL_TRY(parse_dtype(parse, &parse->graph->values[id].declared));
    if (ul_scan_accept(&parse->scan, "kept="))
        UL_TRY(parse_kept(parse, &parse->graph->values[id].kept));
    if (ul_scan_accept(&parse->scan, "scale=")) {
        UL_TRY(ul_scan_float(&parse->scan, &parse->graph->values[id].edge_scale));
        UL_TRY(ul_scan_expect(&parse->scan, "zero="));
        UL_TRY(ul_scan_int(&parse->scan, &parse->graph->values[id].edge_zero));
    }
    if (ul_scan_accept(&parse->scan, "donor=")) {
        ul_value_id donor;
        UL_TRY(parse_value_id(parse, &donor));
        parse->graph->values[id].donor = donor;
    }
    if (ul_scan_accept(&parse->scan, "link=b")) {
        struct ul_value *value = &parse->graph->values[id];
        UL_TRY(ul_scan_u32(&parse->scan, UL_LIMIT_VALUES, &value->link_root));
        UL_TRY(ul_scan_expect(&parse->scan, ":"));
        UL_TRY(ul_scan_u32(&parse->scan, UL_LIMIT_VALUES, &value->link_output));
    }
    if (ul_scan_accept_word(&parse->scan, "own"))
        UL_TRY(parse_own(parse, id));
    else if (ul_scan_accept(&parse->scan, "view="))
        UL_TRY(parse_view(parse, id));
    *out = id;
    return UL_OK;
}

/* One element of a list attribute, appended to the array of its kind. */
static enum ul_status parse_list_element(struct parse *parse, struct ul_attr *attr,
                                         uint32_t *capacity)
{
    struct ul_arena *arena = parse->graph->arena;
    if (attr->kind == UL_ATTR_INTS) {
        int64_t *ints = (int64_t *)(uintptr_t)attr->ints;
        UL_GROW(arena, ints, attr->count, *capacity);
        attr->ints = ints;
        UL_TRY(ul_scan_int(&parse->scan, &ints[attr->count]));
    } else if (attr->kind == UL_ATTR_FLOATS) {
        double *floats = (double *)(uintptr_t)attr->floats;
        UL_GROW(arena, floats, attr->count, *capacity);
        attr->floats = floats;
        UL_TRY(ul_scan_float(&parse->scan, &floats[attr->count]));
    } else {
        const char **strings = (const char **)(uintptr_t)attr->strings;
        UL_GROW(arena, strings, attr->count, *capacity);
        attr->strings = strings;
        UL_TRY(ul_scan_string(&parse->scan, &strings[attr->count]));
    }
    attr->count++;
    return UL_OK;
}

static enum ul_status parse_list(struct parse *parse, struct ul_attr *attr, enum ul_attr_kind kind)
{
    uint32_t capacity = 0;
    attr->kind = kind;
    while (!ul_scan_accept(&parse->scan, "]")) {
        if (attr->count > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(parse_list_element(parse, attr, &capacity));
    }
    return UL_OK;
}

/* An integer unless it has a point, an exponent, or is inf or nan. */
static enum ul_status parse_scalar(struct parse *parse, struct ul_attr *attr)
{
    ul_scan_skip_blanks(&parse->scan);
    size_t digits = strspn(parse->scan.at, "+-0123456789");
    if (digits > 0 && strchr(".ein", parse->scan.at[digits]) == NULL) {
        attr->kind = UL_ATTR_INT;
        return ul_scan_int(&parse->scan, &attr->i);
    }
    if (digits > 0 && parse->scan.at[digits] == '\0') {
        attr->kind = UL_ATTR_INT;
        return ul_scan_int(&parse->scan, &attr->i);
    }
    attr->kind = UL_ATTR_FLOAT;
    return ul_scan_float(&parse->scan, &attr->f);
}

static enum ul_status parse_attr(struct parse *parse, ul_node_id node)
{
    struct ul_attr attr;
    memset(&attr, 0, sizeof attr);
    ul_scan_skip_blanks(&parse->scan);
    if (*parse->scan.at == '"')
        UL_TRY(ul_scan_string(&parse->scan, &attr.name));
    else
        UL_TRY(parse_word(parse, "_", &attr.name));
    UL_TRY(ul_scan_expect(&parse->scan, "="));
    ul_scan_skip_blanks(&parse->scan);
    if (*parse->scan.at == '"') {
        attr.kind = UL_ATTR_STRING;
        UL_TRY(ul_scan_string(&parse->scan, &attr.s));
    } else if (ul_scan_accept(&parse->scan, "ints[")) {
        UL_TRY(parse_list(parse, &attr, UL_ATTR_INTS));
    } else if (ul_scan_accept(&parse->scan, "floats[")) {
        UL_TRY(parse_list(parse, &attr, UL_ATTR_FLOATS));
    } else if (ul_scan_accept(&parse->scan, "strings[")) {
        UL_TRY(parse_list(parse, &attr, UL_ATTR_STRINGS));
    } else if (ul_scan_accept_word(&parse->scan, "tensor")) {
        struct ul_type type;
        attr.kind = UL_ATTR_TENSOR;
        UL_TRY(parse_type(parse, &type));
        UL_TRY(ul_scan_expect(&parse->scan, "="));
        UL_TRY(parse_constant(parse, &type, &attr.tensor));
    } else {
        UL_TRY(parse_scalar(parse, &attr));
    }
    if (ul_node_find_attr(&parse->graph->nodes[node], attr.name) != NULL)
        return ul_scan_fail(&parse->scan, "an attribute that is not set twice before this");
    ul_node_set_attr(parse->graph, node, &attr);
    return UL_OK;
}

struct value_list {
    ul_value_id *values;
    uint32_t count, capacity;
};

static void list_add(struct parse *parse, struct value_list *list, ul_value_id value)
{
    UL_GROW(parse->graph->arena, list->values, list->count, list->capacity);
    list->values[list->count++] = value;
}

/* Domain and name: com.microsoft::Gelu */
static enum ul_status parse_op(struct parse *parse, ul_op_id *op)
{
    const char *name;
    const char *domain = NULL;
    UL_TRY(parse_word(parse, "._", &name));
    if (ul_scan_accept(&parse->scan, "::")) {
        domain = name;
        UL_TRY(parse_word(parse, "_", &name));
    }
    *op = ul_op_find(domain, name);
    return *op == UL_OP_NONE ? ul_scan_fail(&parse->scan, "an operator that exists before this")
                             : UL_OK;
}

static enum ul_status parse_node_id(struct parse *parse, ul_node_id *out)
{
    UL_TRY(ul_scan_expect(&parse->scan, "n"));
    UL_TRY(ul_scan_u32(&parse->scan, parse->id_limit, out));
    struct ul_graph *graph = parse->graph;
    while (graph->node_count <= *out) {
        UL_GROW(graph->arena, graph->nodes, graph->node_count, graph->node_capacity);
        memset(&graph->nodes[graph->node_count], 0, sizeof *graph->nodes);
        graph->nodes[graph->node_count].name = "";
        graph->nodes[graph->node_count++].group = UL_NONE;
    }
    if (graph->nodes[*out].op != UL_OP_NONE)
        return ul_scan_fail(&parse->scan, "a node id that is not yet taken before this");
    return UL_OK;
}

static enum ul_status parse_inputs(struct parse *parse, struct value_list *list)
{
    UL_TRY(ul_scan_expect(&parse->scan, "("));
    while (!ul_scan_accept(&parse->scan, ")")) {
        ul_value_id value = UL_NONE;
        if (list->count > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        if (!ul_scan_accept(&parse->scan, "-"))
            UL_TRY(parse_value_id(parse, &value));
        list_add(parse, list, value);
    }
    return UL_OK;
}

/* What follows the "=" of a node, up to the end of the line. */
static enum ul_status parse_call(struct parse *parse, ul_block_id block,
                                 const struct value_list *outputs, ul_node_id *out)
{
    struct ul_graph *graph = parse->graph;
    struct value_list inputs = {0};
    ul_op_id op;
    ul_node_id id;
    UL_TRY(parse_op(parse, &op));
    UL_TRY(parse_node_id(parse, &id));
    graph->nodes[id].op = op;
    graph->nodes[id].parent = block;
    UL_TRY(ul_scan_string(&parse->scan, &graph->nodes[id].name));
    UL_TRY(parse_inputs(parse, &inputs));
    struct ul_node *node = &graph->nodes[id];
    node->inputs = inputs.values;
    node->input_count = inputs.count;
    node->outputs = outputs->values;
    node->output_count = outputs->count;
    for (uint32_t i = 0; i < outputs->count; i++) {
        graph->values[outputs->values[i]].producer = id;
        graph->values[outputs->values[i]].producer_output = i;
    }
    if (ul_scan_accept(&parse->scan, "{")) {
        do
            UL_TRY(parse_attr(parse, id));
        while (ul_scan_accept(&parse->scan, ","));
        UL_TRY(ul_scan_expect(&parse->scan, "}"));
    }
    if (ul_scan_accept(&parse->scan, "group="))
        UL_TRY(ul_scan_u32(&parse->scan, UL_NONE, &node->group));
    if (ul_scan_accept(&parse->scan, "source="))
        UL_TRY(ul_scan_string(&parse->scan, &node->source));
    *out = id;
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status parse_node(struct parse *parse, ul_block_id block, ul_node_id *out)
{
    struct value_list outputs = {0};
    while (!ul_scan_accept(&parse->scan, "=")) {
        ul_value_id value;
        if (outputs.count > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(parse_definition(parse, UL_VALUE_NODE, &value));
        list_add(parse, &outputs, value);
    }
    UL_TRY(parse_call(parse, block, &outputs, out));
    struct ul_block *list = &parse->graph->blocks[block];
    UL_GROW(parse->graph->arena, list->nodes, list->node_count, list->node_capacity);
    list->nodes[list->node_count++] = *out;
    return UL_OK;
}

/* "block b3": gives the block exactly that id. */
static enum ul_status parse_block_head(struct parse *parse, ul_node_id owner, ul_block_id *out)
{
    struct ul_graph *graph = parse->graph;
    UL_TRY(ul_scan_expect(&parse->scan, "block"));
    UL_TRY(ul_scan_expect(&parse->scan, "b"));
    UL_TRY(ul_scan_u32(&parse->scan, parse->id_limit, out));
    while (graph->block_count <= *out)
        ul_graph_add_block(graph, UL_NONE);
    if (ul_graph_is_root(graph, *out) || graph->blocks[*out].owner != UL_NONE)
        return ul_scan_fail(&parse->scan, "a block id that is not yet taken before this");
    struct ul_node *node = &graph->nodes[owner];
    ul_block_id *blocks = UL_NEW_ARRAY(graph->arena, ul_block_id, (uint64_t)node->block_count + 1);
    if (node->block_count > 0)
        memcpy(blocks, node->blocks, node->block_count * sizeof *blocks);
    blocks[node->block_count++] = *out;
    node->blocks = blocks;
    graph->blocks[*out].owner = owner;
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status parse_return(struct parse *parse, ul_block_id block)
{
    ul_scan_skip_blanks(&parse->scan);
    while (*parse->scan.at == '%' || *parse->scan.at == ',') {
        ul_value_id value = 0;
        if (parse->graph->blocks[block].output_count > 0)
            UL_TRY(ul_scan_expect(&parse->scan, ","));
        UL_TRY(parse_value_id(parse, &value));
        ul_block_add_output(parse->graph, block, value);
        ul_scan_skip_blanks(&parse->scan);
    }
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status parse_weight(struct parse *parse)
{
    ul_value_id value;
    const struct ul_tensor *tensor;
    UL_TRY(parse_definition(parse, UL_VALUE_WEIGHT, &value));
    UL_TRY(ul_scan_expect(&parse->scan, "="));
    struct ul_type type = parse->graph->values[value].type;
    UL_TRY(parse_constant(parse, &type, &tensor));
    parse->graph->values[value].tensor = tensor;
    return ul_scan_end_line(&parse->scan);
}

/* Lines at `indent` up to and including the block's return. */
static enum ul_status parse_block(struct parse *parse, ul_block_id block, uint32_t indent)
{
    bool is_root = ul_graph_is_root(parse->graph, block);
    const char *argument = is_root ? "input" : "argument";
    if (indent > 4 * UL_LIMIT_NESTING)
        return ul_scan_fail(&parse->scan, "less nesting");
    for (;;) {
        if (ul_scan_indent(&parse->scan) != indent || *parse->scan.at == '\0')
            return ul_scan_fail(&parse->scan, "a line of this block or its return");
        if (ul_scan_accept_word(&parse->scan, "return"))
            return parse_return(parse, block);
        if (ul_scan_accept_word(&parse->scan, argument)) {
            ul_value_id value;
            UL_TRY(parse_definition(parse, is_root ? UL_VALUE_INPUT : UL_VALUE_ARGUMENT, &value));
            ul_block_add_input(parse->graph, block, value);
            UL_TRY(ul_scan_end_line(&parse->scan));
            continue;
        }
        if (block == 0 && ul_scan_accept_word(&parse->scan, "weight")) {
            UL_TRY(parse_weight(parse));
            continue;
        }
        ul_node_id node = UL_NONE;
        UL_TRY(parse_node(parse, block, &node));
        while (ul_scan_indent(&parse->scan) == indent + 2) {
            ul_block_id nested;
            UL_TRY(parse_block_head(parse, node, &nested));
            UL_TRY(parse_block(parse, nested, indent + 4));
        }
    }
}

/* roots "prefill", "decode": a block each. */
static enum ul_status parse_roots(struct parse *parse)
{
    struct ul_graph *graph = parse->graph;
    if (!ul_scan_accept_word(&parse->scan, "roots"))
        return UL_OK;
    UL_TRY(ul_scan_string(&parse->scan, &graph->blocks[0].name));
    while (ul_scan_accept(&parse->scan, ",")) {
        const char *name;
        UL_TRY(ul_scan_string(&parse->scan, &name));
        ul_block_id root = ul_graph_add_block(graph, UL_NONE);
        graph->blocks[root].name = name;
        graph->root_count++;
    }
    return ul_scan_end_line(&parse->scan);
}

static enum ul_status parse_graph(struct parse *parse)
{
    UL_TRY(ul_scan_expect(&parse->scan, "graph"));
    UL_TRY(ul_scan_string(&parse->scan, &parse->graph->name));
    UL_TRY(ul_scan_end_line(&parse->scan));
    UL_TRY(parse_roots(parse));
    for (uint32_t r = 0; r < parse->graph->root_count; r++)
        UL_TRY(parse_block(parse, r, 0));
    if (*parse->scan.at != '\0')
        return ul_scan_fail(&parse->scan, "the end of the text");
    return ul_graph_verify(parse->graph, parse->scan.diag);
}

enum ul_status ul_graph_parse(struct ul_graph *graph, struct ul_arena *arena, const char *text,
                              const struct ul_graph *pool, struct ul_diag *diag)
{
    enum { SPARE_IDS = 1 << 20 };
    struct parse parse = {.graph = graph};
    ul_scan_init(&parse.scan, arena, text, diag);
    ul_arena_init(&parse.scratch);
    parse.id_limit = strlen(text) + SPARE_IDS;
    if (parse.id_limit > UL_LIMIT_VALUES)
        parse.id_limit = UL_LIMIT_VALUES;
    if (pool != NULL)
        parse.pool = ul_text_pool(pool, &parse.scratch, &parse.pool_count);
    ul_graph_init(graph, arena, "");
    enum ul_status status = parse_graph(&parse);
    ul_arena_done(&parse.scratch);
    return status;
}
