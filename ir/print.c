/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a graph: one line per value list and node, nested blocks indented. Ids are the
 * graph's own, so that dumps of two passes can be compared and messages found in them. */
#include "ir/op.h"
#include "ir/text.h"
#include "ir/text_internal.h"
#include "ir/view.h"

#include <math.h>
#include <string.h>

const struct ul_text_flag ul_text_flags[] = {{UL_VALUE_PERSISTENT, "persistent"},
                                             {UL_VALUE_TRAINED, "trained"},
                                             {UL_VALUE_OPTIMIZER, "optimizer"},
                                             {UL_VALUE_BACKWARD, "backward"},
                                             {UL_VALUE_GRADIENT, "gradient"},
                                             {UL_VALUE_CHANNELS_LAST, "channels_last"},
                                             {UL_VALUE_ROUNDED, "rounded"},
                                             {UL_VALUE_INDEPENDENT, "independent"},
                                             {UL_VALUE_GUARDED, "guarded"},
                                             {UL_VALUE_SQUARES, "squares"},
                                             {UL_VALUE_PARAMETER, "parameter"},
                                             {UL_VALUE_BUFFER, "buffer"},
                                             {UL_VALUE_WIDE, "wide"},
                                             {0, NULL}};

struct print {
    struct ul_text *text;
    const struct ul_graph *graph;
    uint32_t pool_count; /* constants left out so far */
};

static void put_quoted(struct ul_text *text, const char *string)
{
    ul_text_quote(text, string, strlen(string));
}

static bool is_identifier(const char *name)
{
    for (const char *at = name; *at != '\0'; at++) {
        bool letter = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || *at == '_';
        if (!letter && (at == name || *at < '0' || *at > '9'))
            return false;
    }
    return name[0] != '\0';
}

static void put_hex(struct ul_text *text, const unsigned char *bytes, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        ul_text_printf(text, "%02x", bytes[i]);
}

/* NaN has more than one pattern; a tensor with one is printed in hex. */
static bool has_nan(const struct ul_tensor *tensor, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (isnan(ul_tensor_get_float(tensor, i)))
            return true;
    }
    return false;
}

static void put_elements(struct ul_text *text, const struct ul_tensor *tensor, uint64_t count)
{
    const struct ul_dtype_info *info = ul_dtype_get(tensor->type.dtype);
    bool integer = info->is_integer || tensor->type.dtype == UL_BOOL;
    if (!integer && (!info->is_float || has_nan(tensor, count))) {
        unsigned char bytes[UL_TEXT_INLINE_BYTES];
        UL_ASSERT(count * info->size_bytes <= sizeof bytes);
        ul_tensor_read(tensor, 0, count, bytes);
        ul_text_put(text, "0x");
        put_hex(text, bytes, count * info->size_bytes);
        return;
    }
    ul_text_put(text, "[");
    for (uint64_t i = 0; i < count; i++) {
        ul_text_put(text, i == 0 ? "" : ",");
        if (integer && tensor->type.dtype == UL_U64)
            ul_text_printf(text, "%llu", (unsigned long long)ul_tensor_get_int(tensor, i));
        else if (integer)
            ul_text_printf(text, "%lld", (long long)ul_tensor_get_int(tensor, i));
        else
            ul_text_put_float(text, ul_tensor_get_float(tensor, i), tensor->type.dtype != UL_F64);
    }
    ul_text_put(text, "]");
}

static bool is_pooled(const struct ul_tensor *tensor)
{
    return tensor->data != NULL && ul_type_bytes(&tensor->type) > UL_TEXT_INLINE_BYTES;
}

/* " = [1,2]", " = splat [0.0]", " = pool=3": what follows a constant's type. */
static void put_constant(struct print *print, const struct ul_tensor *tensor)
{
    if (is_pooled(tensor)) {
        ul_text_printf(print->text, " = pool=%u", (unsigned)print->pool_count++);
        return;
    }
    bool splat = tensor->data == NULL;
    ul_text_put(print->text, splat ? " = splat " : " = ");
    put_elements(print->text, tensor, splat ? 1 : ul_type_elements(&tensor->type));
}

static bool view_is_own(const struct ul_graph *graph, ul_value_id id)
{
    const struct ul_value *value = &graph->values[id];
    struct ul_view own = ul_view_own(graph, id);
    if (value->view.base != id || value->view.offset_bytes != 0)
        return false;
    for (uint32_t d = 0; d < value->type.rank; d++) {
        if (value->view.strides[d] != own.strides[d])
            return false;
    }
    return true;
}

static void put_view(struct print *print, ul_value_id id)
{
    const struct ul_value *value = &print->graph->values[id];
    if (value->view.base == UL_NONE)
        return;
    if (view_is_own(print->graph, id)) {
        ul_text_put(print->text, " own");
        return;
    }
    ul_text_printf(print->text, " view=%%%u%+lld[", (unsigned)value->view.base,
                   (long long)value->view.offset_bytes);
    for (uint32_t d = 0; d < value->type.rank; d++)
        ul_text_printf(print->text, "%s%lld", d == 0 ? "" : ",", (long long)value->view.strides[d]);
    ul_text_put(print->text, "]");
}

/* %3 "conv1" f32[1,64,56,56] own */
static void put_definition(struct print *print, ul_value_id id)
{
    const struct ul_value *value = &print->graph->values[id];
    ul_text_printf(print->text, "%%%u ", (unsigned)id);
    put_quoted(print->text, value->name);
    ul_text_put(print->text, " ");
    ul_type_print(print->text, &value->type);
    for (const struct ul_text_flag *row = ul_text_flags; row->word != NULL; row++)
        if ((value->flags & row->flag) != 0)
            ul_text_printf(print->text, " %s", row->word);
    if (value->storage != UL_DTYPE_NONE)
        ul_text_printf(print->text, " storage=%s", ul_dtype_get(value->storage)->name);
    if (value->declared != UL_DTYPE_NONE)
        ul_text_printf(print->text, " declared=%s", ul_dtype_get(value->declared)->name);
    if (value->kept != UL_KEPT_NOT)
        ul_text_printf(print->text, " kept=%s", ul_kept_get(value->kept));
    if (value->edge_scale != 0) {
        ul_text_put(print->text, " scale=");
        ul_text_put_float(print->text, value->edge_scale, true);
        ul_text_printf(print->text, " zero=%lld", (long long)value->edge_zero);
    }
    if (value->donor != UL_NONE)
        ul_text_printf(print->text, " donor=%%%u", (unsigned)value->donor);
    if (value->link_root != UL_NONE)
        ul_text_printf(print->text, " link=b%u:%u", (unsigned)value->link_root,
                       (unsigned)value->link_output);
    put_view(print, id);
}

static void put_attr(struct print *print, const struct ul_attr *attr)
{
    struct ul_text *text = print->text;
    if (is_identifier(attr->name))
        ul_text_put(text, attr->name);
    else
        put_quoted(text, attr->name);
    ul_text_put(text, "=");
    switch (attr->kind) {
    case UL_ATTR_INT:
        ul_text_printf(text, "%lld", (long long)attr->i);
        break;
    case UL_ATTR_FLOAT:
        ul_text_put_float(text, attr->f, false);
        break;
    case UL_ATTR_STRING:
        put_quoted(text, attr->s);
        break;
    case UL_ATTR_TENSOR:
        ul_text_put(text, "tensor ");
        ul_type_print(text, &attr->tensor->type);
        put_constant(print, attr->tensor);
        break;
    case UL_ATTR_INTS:
    case UL_ATTR_FLOATS:
    case UL_ATTR_STRINGS:
        ul_text_put(text, attr->kind == UL_ATTR_INTS     ? "ints["
                          : attr->kind == UL_ATTR_FLOATS ? "floats["
                                                         : "strings[");
        for (uint32_t i = 0; i < attr->count; i++) {
            ul_text_put(text, i == 0 ? "" : ",");
            if (attr->kind == UL_ATTR_INTS)
                ul_text_printf(text, "%lld", (long long)attr->ints[i]);
            else if (attr->kind == UL_ATTR_FLOATS)
                ul_text_put_float(text, attr->floats[i], false);
            else
                put_quoted(text, attr->strings[i]);
        }
        ul_text_put(text, "]");
        break;
    }
}

static void put_values(struct print *print, const ul_value_id *values, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(print->text, i == 0 ? "" : ", ");
        if (values[i] == UL_NONE)
            ul_text_put(print->text, "-");
        else
            ul_text_printf(print->text, "%%%u", (unsigned)values[i]);
    }
}

static void put_indent(struct print *print, uint32_t depth)
{
    for (uint32_t i = 0; i < depth; i++)
        ul_text_put(print->text, "  ");
}

/* %3 "y" f32[2] = Relu n1 "relu" (%2) {axis=1} group=0 source="model.py:7" */
static void put_node(struct print *print, ul_node_id id)
{
    struct ul_text *text = print->text;
    const struct ul_node *node = &print->graph->nodes[id];
    const struct ul_op_info *row = ul_op_get(node->op);
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_text_put(text, i == 0 ? "" : ", ");
        put_definition(print, node->outputs[i]);
    }
    ul_text_put(text, " = ");
    if (row->domain != NULL)
        ul_text_printf(text, "%s::", row->domain);
    ul_text_printf(text, "%s n%u ", row->name, (unsigned)id);
    put_quoted(text, node->name);
    ul_text_put(text, " (");
    put_values(print, node->inputs, node->input_count);
    ul_text_put(text, ")");
    for (uint32_t i = 0; i < node->attr_count; i++) {
        ul_text_put(text, i == 0 ? " {" : ", ");
        put_attr(print, &node->attrs[i]);
    }
    ul_text_put(text, node->attr_count > 0 ? "}" : "");
    if (node->group != UL_NONE)
        ul_text_printf(text, " group=%u", (unsigned)node->group);
    if (node->source != NULL) {
        ul_text_put(text, " source=");
        put_quoted(text, node->source);
    }
    ul_text_put(text, "\n");
}

static void put_block(struct print *print, ul_block_id id, uint32_t depth)
{
    const struct ul_block *block = &print->graph->blocks[id];
    for (uint32_t i = 0; i < block->input_count; i++) {
        put_indent(print, depth);
        ul_text_put(print->text, ul_graph_is_root(print->graph, id) ? "input " : "argument ");
        put_definition(print, block->inputs[i]);
        ul_text_put(print->text, "\n");
    }
    for (uint32_t v = 0; id == 0 && v < print->graph->value_count; v++) {
        if (print->graph->values[v].kind != UL_VALUE_WEIGHT)
            continue;
        ul_text_put(print->text, "weight ");
        put_definition(print, v);
        put_constant(print, print->graph->values[v].tensor);
        ul_text_put(print->text, "\n");
    }
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &print->graph->nodes[block->nodes[n]];
        put_indent(print, depth);
        put_node(print, block->nodes[n]);
        for (uint32_t b = 0; b < node->block_count; b++) {
            put_indent(print, depth + 1);
            ul_text_printf(print->text, "block b%u\n", (unsigned)node->blocks[b]);
            put_block(print, node->blocks[b], depth + 2);
        }
    }
    put_indent(print, depth);
    ul_text_put(print->text, block->output_count > 0 ? "return " : "return");
    put_values(print, block->outputs, block->output_count);
    ul_text_put(print->text, "\n");
}

/* The names of several roots; that of one alone says nothing. */
static void put_roots(struct print *print)
{
    const struct ul_graph *graph = print->graph;
    if (graph->root_count == 1)
        return;
    for (uint32_t r = 0; r < graph->root_count; r++) {
        ul_text_put(print->text, r == 0 ? "roots " : ", ");
        put_quoted(print->text, graph->blocks[r].name);
    }
    ul_text_put(print->text, "\n");
}

void ul_graph_print(struct ul_text *text, const struct ul_graph *graph)
{
    struct print print = {.text = text, .graph = graph};
    ul_text_put(text, "graph ");
    put_quoted(text, graph->name);
    ul_text_put(text, "\n");
    put_roots(&print);
    for (uint32_t r = 0; r < graph->root_count; r++)
        put_block(&print, r, 0);
}

struct pool {
    struct ul_arena *arena;
    const struct ul_tensor **tensors;
    uint32_t count, capacity;
};

static void pool_add(struct pool *pool, const struct ul_tensor *tensor)
{
    if (tensor == NULL || !is_pooled(tensor))
        return;
    UL_GROW(pool->arena, pool->tensors, pool->count, pool->capacity);
    pool->tensors[pool->count++] = tensor;
}

static void pool_add_block(struct pool *pool, const struct ul_graph *graph, ul_block_id id)
{
    const struct ul_block *block = &graph->blocks[id];
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &graph->nodes[block->nodes[n]];
        for (uint32_t i = 0; i < node->attr_count; i++) {
            if (node->attrs[i].kind == UL_ATTR_TENSOR)
                pool_add(pool, node->attrs[i].tensor);
        }
        for (uint32_t b = 0; b < node->block_count; b++)
            pool_add_block(pool, graph, node->blocks[b]);
    }
}

const struct ul_tensor *const *ul_text_pool(const struct ul_graph *graph, struct ul_arena *arena,
                                            uint32_t *count)
{
    struct pool pool = {.arena = arena};
    for (uint32_t v = 0; v < graph->value_count; v++) {
        if (graph->values[v].kind == UL_VALUE_WEIGHT)
            pool_add(&pool, graph->values[v].tensor);
    }
    for (uint32_t r = 0; r < graph->root_count; r++)
        pool_add_block(&pool, graph, r);
    *count = pool.count;
    return pool.tensors;
}
