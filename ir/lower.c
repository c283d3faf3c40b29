/* SPDX-License-Identifier: Apache-2.0 */
/* Lowering one group of nodes to one kernel; lower.h has the contract.
 *
 * Problem: operators' hooks know nothing of fusion, and what a group computes must not depend on
 * how it was cut. Method: every load and store of a hook comes here. A load of a value that the
 * group itself makes is replaced by the expression of its producer at that index (computed once per
 * index and list of statements, as a LET); a store of the anchor's output binds the element, and
 * then every result of the group that depends on it is computed and stored at the same index. Left
 * undone: loops of different anchors are never merged. */
#include "ir/lower.h"

#include "ir/in_place.h"
#include "ir/kernel_build.h"
#include "ir/kernel_text.h"
#include "ir/lower.h"
#include "ir/op.h"
#include "ir/view.h"

#include <string.h>

/* A parameter of the kernel: one value (view), one buffer. */
struct param {
    ul_value_id value;
    uint32_t buffer;
    int64_t base_index; /* index of element (0, ..., 0): above 0 where strides are negative */
};

/* The expression of an in-group value at an index, valid while its statement list is open. */
struct cached {
    ul_value_id value;
    ul_kx index[UL_LIMIT_RANK];
    ul_kx x;
    uint32_t depth; /* open_count when it was made */
    ul_ks owner;    /* the innermost list at that time */
    uint32_t branch;
};

struct ul_lower_state {
    const ul_node_id *nodes;
    uint32_t node_count;
    const bool *escapes;
    struct param *params;
    uint32_t param_count, param_capacity;
    struct cached *cache;
    uint32_t cache_count, cache_capacity;
    ul_value_id bound; /* the anchor's output that is being stored, or an operand's source */
    ul_kx bound_x;
    bool *hangs;    /* per node: scratch of hangs_on */
    bool no_let;    /* inside an operand's transform, where there can be no statement */
    uint32_t depth; /* of inlining, to catch defects */
};

enum { INLINE_DEPTH = 4096 };

static const struct ul_value *value_get(const struct ul_lower *lower, ul_value_id value)
{
    return &lower->graph->values[value];
}

/* The place in the group of the node that makes `value`, or UL_NONE. */
static uint32_t node_index(const struct ul_lower *lower, ul_value_id value)
{
    const struct ul_value *info = value_get(lower, value);
    for (uint32_t i = 0; info->kind == UL_VALUE_NODE && i < lower->state->node_count; i++) {
        if (lower->state->nodes[i] == info->producer)
            return i;
    }
    return UL_NONE;
}

static bool in_group(const struct ul_lower *lower, ul_value_id value)
{
    return node_index(lower, value) != UL_NONE;
}

static bool escapes(const struct ul_lower *lower, ul_value_id value)
{
    return lower->state->escapes == NULL || lower->state->escapes[value];
}

/* Buffers */

static struct ul_view view_of(const struct ul_lower *lower, ul_value_id value)
{
    const struct ul_value *info = value_get(lower, value);
    return info->view.base != UL_NONE ? info->view : ul_view_own(lower->graph, value);
}

static struct param param_get(struct ul_lower *lower, ul_value_id value)
{
    struct ul_lower_state *state = lower->state;
    for (uint32_t i = 0; i < state->param_count; i++) {
        if (state->params[i].value == value)
            return state->params[i];
    }
    const struct ul_type *type = &value_get(lower, value)->type;
    struct ul_view view = view_of(lower, value);
    int64_t low = 0;
    int64_t high = 0;
    for (uint32_t d = 0; d < type->rank; d++) {
        int64_t reach = view.strides[d] * (type->dims[d] > 0 ? type->dims[d] - 1 : 0);
        low += reach < 0 ? reach : 0;
        high += reach > 0 ? reach : 0;
    }
    uint64_t count = ul_type_elements(type) == 0 ? 0 : (uint64_t)(high - low) + 1;
    uint32_t buffer = ul_kernel_add_buffer(lower->kernel, UL_BUFFER_INPUT,
                                           ul_value_storage(lower->graph, value), count);
    lower->kernel->buffers[buffer].value = view.base;
    lower->kernel->buffers[buffer].view = value;
    lower->kernel->buffers[buffer].offset_bytes =
        view.offset_bytes + low * (int64_t)ul_value_element_bytes(lower->graph, value);
    UL_GROW(lower->arena, state->params, state->param_count, state->param_capacity);
    state->params[state->param_count] =
        (struct param){.value = value, .buffer = buffer, .base_index = -low};
    return state->params[state->param_count++];
}

/* Whether it is an index of the data into a dimension of one element: 0, but one that must be
 * checked. */
static bool is_checked_zero(const struct ul_kernel *kernel, ul_kx index)
{
    return kernel->exprs[index].op == UL_KX_INDEX && kernel->exprs[index].imm_int == 1;
}

static ul_kx element_index(struct ul_lower *lower, ul_value_id value, const struct param *param,
                           const ul_kx *index)
{
    const struct ul_type *type = &value_get(lower, value)->type;
    struct ul_view view = view_of(lower, value);
    ul_kx sum = ul_kx_index_const(lower->kernel, param->base_index);
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] != 1)
            sum =
                ul_kx_add(lower->kernel, sum, ul_kx_muli(lower->kernel, index[d], view.strides[d]));
        else if (is_checked_zero(lower->kernel, index[d]))
            sum = ul_kx_add(lower->kernel, sum, index[d]);
    }
    return sum;
}

/* Integers narrower than what they are computed in wrap at every operator, not only in memory. */
static ul_kx narrow(struct ul_lower *lower, enum ul_dtype dtype, ul_kx x)
{
    enum ul_dtype compute = ul_compute_dtype(dtype);
    x = ul_kx_cast(lower->kernel, compute, x);
    if (compute == dtype || ul_dtype_get(dtype)->is_float)
        return x;
    return ul_kx_cast(lower->kernel, compute, ul_kx_cast(lower->kernel, dtype, x));
}

/* The element, when it is a number known now. */
static bool immediate(struct ul_lower *lower, ul_value_id value, ul_kx *x)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(lower->graph, value);
    if (tensor == NULL || (tensor->data != NULL && ul_type_elements(&tensor->type) != 1))
        return false;
    enum ul_dtype compute = ul_compute_dtype(tensor->type.dtype);
    if (ul_dtype_get(compute)->is_float)
        *x = ul_kx_float(lower->kernel, compute, ul_tensor_get_float(tensor, 0));
    else
        *x = ul_kx_int(lower->kernel, compute, ul_tensor_get_int(tensor, 0));
    return true;
}

/* Inlining */

static bool mutable_expr(const struct ul_kernel *kernel, ul_kx id)
{
    const struct ul_kx_data *expr = &kernel->exprs[id];
    switch ((int)expr->op) {
    case UL_KX_INT:
    case UL_KX_FLOAT:
        return false;
    case UL_KX_VAR:
        return kernel->vars[expr->var].is_mutable;
    case UL_KX_LOAD:
        return kernel->buffers[expr->var].role != UL_BUFFER_INPUT || mutable_expr(kernel, expr->a);
    default:
        break;
    }
    uint32_t operands = ul_kx_operand_count(expr->op);
    return mutable_expr(kernel, expr->a) || (operands >= 2 && mutable_expr(kernel, expr->b)) ||
           (operands == 3 && mutable_expr(kernel, expr->c));
}

static uint32_t open_branch(const struct ul_kernel *kernel, uint32_t depth)
{
    ul_ks owner = kernel->open_owner[depth - 1];
    return owner == UL_NONE ? 0 : kernel->stmts[owner].flags;
}

static bool cache_find(const struct ul_lower *lower, ul_value_id value, const ul_kx *index,
                       uint32_t rank, ul_kx *x)
{
    const struct ul_lower_state *state = lower->state;
    const struct ul_kernel *kernel = lower->kernel;
    for (uint32_t i = state->cache_count; i-- > 0;) {
        const struct cached *entry = &state->cache[i];
        if (entry->value != value || memcmp(entry->index, index, rank * sizeof *index) != 0)
            continue;
        if (entry->depth > kernel->open_count ||
            kernel->open_owner[entry->depth - 1] != entry->owner ||
            open_branch(kernel, entry->depth) != entry->branch)
            continue;
        *x = entry->x;
        return true;
    }
    return false;
}

static void cache_add(struct ul_lower *lower, ul_value_id value, const ul_kx *index, uint32_t rank,
                      ul_kx x)
{
    struct ul_lower_state *state = lower->state;
    const struct ul_kernel *kernel = lower->kernel;
    for (uint32_t d = 0; d < rank; d++) {
        if (mutable_expr(kernel, index[d]))
            return;
    }
    UL_GROW(lower->arena, state->cache, state->cache_count, state->cache_capacity);
    struct cached *entry = &state->cache[state->cache_count++];
    entry->value = value;
    memcpy(entry->index, index, rank * sizeof *index);
    entry->x = x;
    entry->depth = kernel->open_count;
    entry->owner = kernel->open_owner[entry->depth - 1];
    entry->branch = open_branch(kernel, entry->depth);
}

static ul_kx map_expression(struct ul_lower *lower, ul_node_id node, uint32_t output,
                            const ul_kx *index)
{
    enum { MAX_OPERANDS = 8 };
    const struct ul_node *info = &lower->graph->nodes[node];
    const struct ul_op_info *op = ul_op_get(info->op);
    if (op->map != NULL)
        return op->map(lower, node, output, index);
    UL_ASSERT(op->expression != NULL && info->input_count <= MAX_OPERANDS);
    const struct ul_type *type = ul_lower_output_type(lower, node, output);
    ul_kx operands[MAX_OPERANDS];
    for (uint32_t i = 0; i < info->input_count; i++)
        operands[i] = ul_lower_load_broadcast(lower, info->inputs[i], index, type->rank);
    return ul_expression_build(lower, node, op->expression, operands, info->input_count,
                               ul_kx_dtype(lower->kernel, operands[0]));
}

static ul_kx inline_value(struct ul_lower *lower, ul_value_id value, const ul_kx *index)
{
    struct ul_lower_state *state = lower->state;
    const struct ul_value *info = value_get(lower, value);
    const struct ul_node *node = &lower->graph->nodes[info->producer];
    ul_kx x;
    if (!state->no_let && cache_find(lower, value, index, info->type.rank, &x))
        return x;
    UL_ASSERT(ul_op_is_map(node->op) && state->depth < INLINE_DEPTH);
    state->depth++;
    x = map_expression(lower, info->producer, info->producer_output, index);
    state->depth--;
    x = narrow(lower, info->type.dtype, x);
    if ((info->flags & UL_VALUE_ROUNDED) != 0)
        x = ul_kx_round_to(lower->kernel, info->storage, false, x);
    if (state->no_let) { /* a sum of another node gets it rounded, as it would from a name */
        x = ul_kx_round_shared(lower->kernel, x);
        return state->depth > 0 ? ul_kx_round_product(lower->kernel, x) : x;
    }
    x = ul_ks_let(lower->kernel, x);
    cache_add(lower, value, index, info->type.rank, x);
    return x;
}

ul_kx ul_lower_load(struct ul_lower *lower, ul_value_id value, const ul_kx *index)
{
    struct ul_lower_state *state = lower->state;
    UL_ASSERT(value != UL_NONE);
    ul_kx x;
    if (value == state->bound)
        return state->bound_x;
    if (immediate(lower, value, &x))
        return x;
    if (in_group(lower, value))
        return inline_value(lower, value, index);
    struct param param = param_get(lower, value);
    return ul_kx_load(lower->kernel, param.buffer, element_index(lower, value, &param, index));
}

ul_kx ul_lower_load_broadcast(struct ul_lower *lower, ul_value_id value, const ul_kx *index,
                              uint32_t index_rank)
{
    const struct ul_type *type = &value_get(lower, value)->type;
    UL_ASSERT(type->rank <= index_rank);
    ul_kx aligned[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < type->rank; d++) {
        aligned[d] = index[index_rank - type->rank + d];
        if (type->dims[d] == 1 && !is_checked_zero(lower->kernel, aligned[d]))
            aligned[d] = ul_kx_index_const(lower->kernel, 0);
    }
    return ul_lower_load(lower, value, aligned);
}

/* Storing */

static void store_raw(struct ul_lower *lower, ul_value_id value, const ul_kx *index, ul_kx x)
{
    struct param param = param_get(lower, value);
    lower->kernel->buffers[param.buffer].role = UL_BUFFER_OUTPUT;
    ul_ks_store(lower->kernel, param.buffer, element_index(lower, value, &param, index), x);
}

/* Whether `value`, made in the group, depends on `source` through nodes of the group. Found
 * forwards, once for each node: there can be more paths backwards than could ever be walked. */
static bool hangs_on(const struct ul_lower *lower, ul_value_id value, ul_value_id source)
{
    struct ul_lower_state *state = lower->state;
    uint32_t wanted = value == UL_NONE ? UL_NONE : node_index(lower, value);
    if (value == source || wanted == UL_NONE)
        return value == source;
    for (uint32_t n = 0; n <= wanted; n++) {
        const struct ul_node *node = &lower->graph->nodes[state->nodes[n]];
        state->hangs[n] = false;
        for (uint32_t i = 0; ul_op_is_map(node->op) && !state->hangs[n] && i < node->input_count;
             i++) {
            ul_value_id input = node->inputs[i];
            uint32_t made = input == UL_NONE ? UL_NONE : node_index(lower, input);
            state->hangs[n] = input == source || (made != UL_NONE && state->hangs[made]);
        }
    }
    return state->hangs[wanted];
}

/* The results of the group: what maps of it make and others need. */
static uint32_t results_of(const struct ul_lower *lower, ul_value_id **results)
{
    const struct ul_lower_state *state = lower->state;
    uint32_t count = 0;
    uint32_t max = 0;
    for (uint32_t i = 0; i < state->node_count; i++)
        max += lower->graph->nodes[state->nodes[i]].output_count;
    *results = UL_NEW_ARRAY(lower->arena, ul_value_id, max);
    for (uint32_t i = 0; i < state->node_count; i++) {
        const struct ul_node *node = &lower->graph->nodes[state->nodes[i]];
        for (uint32_t k = 0; ul_op_is_map(node->op) && k < node->output_count; k++) {
            if (node->outputs[k] != UL_NONE && escapes(lower, node->outputs[k]))
                (*results)[count++] = node->outputs[k];
        }
    }
    return count;
}

void ul_lower_store(struct ul_lower *lower, ul_value_id value, const ul_kx *index, ul_kx x)
{
    struct ul_lower_state *state = lower->state;
    if (value == UL_NONE)
        return;
    ul_value_id *results;
    uint32_t count = results_of(lower, &results);
    x = narrow(lower, value_get(lower, value)->type.dtype, x);
    ul_kx *stored = UL_NEW_ARRAY(lower->arena, ul_kx, count + 1);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (hangs_on(lower, results[i], value))
            results[kept++] = results[i];
    }
    /* Everything is computed before the first store: a store may overwrite an operand. */
    if (kept > 0) {
        state->bound = value;
        state->bound_x = ul_ks_let(lower->kernel, x);
        x = state->bound_x;
        for (uint32_t i = 0; i < kept; i++)
            stored[i] = inline_value(lower, results[i], index);
        state->bound = UL_NONE;
    }
    if (escapes(lower, value))
        store_raw(lower, value, index, x);
    for (uint32_t i = 0; i < kept; i++)
        store_raw(lower, results[i], index, stored[i]);
}

bool ul_lower_is_final(const struct ul_lower *lower, ul_value_id value)
{
    enum ul_dtype dtype = ul_value_storage(lower->graph, value);
    if (!escapes(lower, value) || ul_compute_dtype(dtype) != dtype)
        return false;
    for (uint32_t i = 0; i < lower->state->node_count; i++) {
        const struct ul_node *user = &lower->graph->nodes[lower->state->nodes[i]];
        for (uint32_t k = 0; k < user->input_count; k++) {
            if (user->inputs[k] == value)
                return false;
        }
    }
    return true;
}

ul_kx ul_lower_load_output(struct ul_lower *lower, ul_value_id value, const ul_kx *index)
{
    const struct ul_node *node = &lower->graph->nodes[value_get(lower, value)->producer];
    UL_ASSERT((ul_op_get(node->op)->flags & UL_OP_COMBINES) != 0 ||
              ul_lower_is_final(lower, value));
    struct param param = param_get(lower, value);
    lower->kernel->buffers[param.buffer].role = UL_BUFFER_OUTPUT;
    return ul_kx_load(lower->kernel, param.buffer, element_index(lower, value, &param, index));
}

/* Loops */

/* A nest with an empty dimension, even an inner one, does not count up the others first. */
static bool any_empty(uint32_t rank, const int64_t *dims)
{
    bool empty = false;
    for (uint32_t d = 0; d < rank; d++)
        empty = empty || dims[d] == 0;
    return empty;
}

void ul_lower_order(const struct ul_lower *lower, ul_value_id value, uint32_t *order)
{
    struct ul_view view = view_of(lower, value);
    ul_view_order(&value_get(lower, value)->type, &view, order);
}

/* Finds dimensions that are one in memory. A value that is repeated lies 0 elements from itself. */
static uint32_t joined_in_memory(const struct ul_lower *lower, ul_value_id value, uint32_t rank,
                                 const int64_t *dims, const uint32_t *order)
{
    const struct ul_type *type = &value_get(lower, value)->type;
    struct ul_view view = view_of(lower, value);
    uint32_t joined = 0, skip = rank - type->rank;
    int64_t before = -1;
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t d = order[i];
        if (dims[d] == 1)
            continue;
        bool is_repeated = d < skip || type->dims[d - skip] == 1;
        int64_t stride = is_repeated ? 0 : view.strides[d - skip];
        if (before == stride * dims[d])
            joined |= 1u << d;
        before = stride;
    }
    return joined;
}

uint32_t ul_lower_joined_to(const struct ul_lower *lower, ul_value_id value, uint32_t rank,
                            const int64_t *dims, const uint32_t *order)
{
    const struct ul_value *info = value_get(lower, value);
    UL_ASSERT(info->type.rank <= rank);
    if (!in_group(lower, value))
        return joined_in_memory(lower, value, rank, dims, order);
    const struct ul_node *node = &lower->graph->nodes[info->producer];
    if ((ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) == 0)
        return 0;
    uint32_t joined = ~0u;
    for (uint32_t i = 0; i < node->input_count; i++)
        if (node->inputs[i] != UL_NONE)
            joined &= ul_lower_joined_to(lower, node->inputs[i], rank, dims, order);
    return joined;
}

uint32_t ul_lower_joined(const struct ul_lower *lower, ul_value_id value, const uint32_t *order)
{
    const struct ul_type *type = &value_get(lower, value)->type;
    return ul_lower_joined_to(lower, value, type->rank, type->dims, order);
}

static void open_ordered(struct ul_lower *lower, uint32_t rank, const int64_t *dims,
                         const uint32_t *order, ul_kx *index)
{
    bool empty = any_empty(rank, dims);
    for (uint32_t i = 0; i < rank; i++) {
        uint32_t d = order == NULL ? i : order[i];
        index[d] = ul_ks_for(lower->kernel, empty ? 0 : dims[d], UL_FOR_PARALLEL);
    }
}

void ul_lower_open(struct ul_lower *lower, uint32_t rank, const int64_t *dims, ul_kx *index)
{
    open_ordered(lower, rank, dims, NULL, index);
}

void ul_lower_open_as(struct ul_lower *lower, ul_value_id value, const int64_t *dims, ul_kx *index)
{
    uint32_t order[UL_LIMIT_RANK];
    ul_lower_order(lower, value, order);
    open_ordered(lower, value_get(lower, value)->type.rank, dims, order, index);
}

void ul_lower_close(struct ul_lower *lower, uint32_t rank)
{
    for (uint32_t d = 0; d < rank; d++)
        ul_ks_end(lower->kernel);
}

/* Whether dimensions `outer` and `inner` (neighbours but for dimensions of size 1) of the loop nest
 * over `type` may become one. Every value from outside must run through both as through one. */
static bool value_merges(const struct ul_lower *lower, ul_value_id value,
                         const struct ul_type *type, uint32_t outer, uint32_t inner)
{
    const struct ul_type *own = &value_get(lower, value)->type;
    struct ul_view view = view_of(lower, value);
    uint32_t shift = type->rank - own->rank;
    int64_t outer_dim = outer < shift ? 1 : own->dims[outer - shift];
    int64_t inner_dim = inner < shift ? 1 : own->dims[inner - shift];
    if (outer_dim == 1 && inner_dim == 1)
        return true;
    if (outer_dim != type->dims[outer] || inner_dim != type->dims[inner])
        return false;
    return view.strides[outer - shift] == view.strides[inner - shift] * inner_dim;
}

/* The two are neighbours in the order of the dimensions as well, by which random numbers count. */
static bool follows(const struct ul_type *type, uint32_t outer, uint32_t inner)
{
    for (uint32_t d = outer + 1; d < inner; d++) {
        if (type->dims[d] != 1)
            return false;
    }
    return outer < inner;
}

static bool group_merges(const struct ul_lower *lower, const struct ul_type *type, uint32_t outer,
                         uint32_t inner)
{
    const struct ul_lower_state *state = lower->state;
    for (uint32_t i = 0; i < state->node_count; i++) {
        const struct ul_node *node = &lower->graph->nodes[state->nodes[i]];
        uint32_t flags = ul_op_get(node->op)->flags;
        if ((flags & (UL_OP_ELEMENTWISE | UL_OP_LOOKS_UP)) == 0 ||
            ((flags & UL_OP_RANDOM) != 0 && !follows(type, outer, inner)))
            return false;
        for (uint32_t k = 0; k < node->input_count + node->output_count; k++) {
            ul_value_id value =
                k < node->input_count ? node->inputs[k] : node->outputs[k - node->input_count];
            bool is_table = (flags & UL_OP_LOOKS_UP) != 0 && k > 0 && k < node->input_count;
            if (value == UL_NONE || is_table)
                continue;
            if (value_get(lower, value)->type.rank > type->rank)
                return false;
            /* What has no bytes is always computed from its operands. */
            bool in_bytes = !in_group(lower, value) || escapes(lower, value);
            if (in_bytes && !value_merges(lower, value, type, outer, inner))
                return false;
        }
    }
    return true;
}

/* Opens the loops of a nest over the elements of `result` in the order of memory: dimensions of
 * size 1 get index 0, neighbours that every operand runs through alike become one loop (the inner
 * index then runs over both, the outer is 0). Returns how many loops were opened. */
static uint32_t open_merged(struct ul_lower *lower, ul_value_id result, ul_kx *index)
{
    const struct ul_type *type = &value_get(lower, result)->type;
    uint32_t order[UL_LIMIT_RANK];
    int64_t counts[UL_LIMIT_RANK];
    uint32_t last = UL_NONE;
    ul_lower_order(lower, result, order);
    for (uint32_t i = type->rank; i-- > 0;) {
        uint32_t d = order[i];
        counts[d] = type->dims[d];
        index[d] = ul_kx_index_const(lower->kernel, 0);
        if (type->dims[d] == 1)
            continue;
        if (last != UL_NONE && group_merges(lower, type, d, last)) {
            /* The merged loop keeps the innermost index; its neighbour outwards is compared
             * through the strides of `d`, so `last` moves out while the loop stays. */
            uint32_t loop = last;
            while (counts[loop] < 0)
                loop = (uint32_t)-counts[loop] - 1;
            counts[loop] *= type->dims[d];
            counts[d] = -(int64_t)loop - 1;
        }
        last = d;
    }
    uint32_t opened = 0;
    bool empty = any_empty(type->rank, type->dims);
    for (uint32_t i = 0; i < type->rank; i++) {
        uint32_t d = order[i];
        if (counts[d] < 0 || type->dims[d] == 1)
            continue;
        index[d] = ul_ks_for(lower->kernel, empty ? 0 : counts[d], UL_FOR_PARALLEL);
        opened++;
    }
    return opened;
}

/* Emits loop nests for results that depend on no anchor; results of one shape share a nest. */
static void lower_maps(struct ul_lower *lower, const ul_value_id *results, uint32_t count)
{
    bool *done = UL_NEW_ARRAY(lower->arena, bool, count);
    ul_kx *stored = UL_NEW_ARRAY(lower->arena, ul_kx, count);
    for (uint32_t first = 0; first < count; first++) {
        if (done[first])
            continue;
        const struct ul_type *type = &value_get(lower, results[first])->type;
        ul_kx index[UL_LIMIT_RANK];
        uint32_t opened = open_merged(lower, results[first], index);
        for (uint32_t pass = 0; pass < 2; pass++) {
            for (uint32_t i = first; i < count; i++) {
                const struct ul_type *other = &value_get(lower, results[i])->type;
                if (done[i] || !ul_type_same_dims(other, type))
                    continue;
                if (pass == 0) {
                    stored[i] = inline_value(lower, results[i], index);
                } else {
                    store_raw(lower, results[i], index, stored[i]);
                    done[i] = true;
                }
            }
        }
        ul_lower_close(lower, opened);
    }
}

/* Facts for hooks */

const struct ul_type *ul_lower_input_type(const struct ul_lower *lower, ul_node_id node,
                                          uint32_t input)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    UL_ASSERT(input < info->input_count && info->inputs[input] != UL_NONE);
    return &value_get(lower, info->inputs[input])->type;
}

const struct ul_type *ul_lower_output_type(const struct ul_lower *lower, ul_node_id node,
                                           uint32_t output)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    UL_ASSERT(output < info->output_count && info->outputs[output] != UL_NONE);
    return &value_get(lower, info->outputs[output])->type;
}

bool ul_lower_has_input(const struct ul_lower *lower, ul_node_id node, uint32_t input)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    return input < info->input_count && info->inputs[input] != UL_NONE;
}

bool ul_lower_has_output(const struct ul_lower *lower, ul_node_id node, uint32_t output)
{
    const struct ul_node *info = &lower->graph->nodes[node];
    if (output >= info->output_count || info->outputs[output] == UL_NONE)
        return false;
    ul_value_id value = info->outputs[output];
    if (escapes(lower, value))
        return true;
    for (uint32_t i = 0; i < lower->state->node_count; i++) {
        const struct ul_node *user = &lower->graph->nodes[lower->state->nodes[i]];
        for (uint32_t k = 0; k < user->input_count; k++) {
            if (user->inputs[k] == value)
                return true;
        }
    }
    return false;
}

uint32_t ul_lower_scratch(struct ul_lower *lower, enum ul_dtype dtype, uint64_t element_count)
{
    return ul_kernel_add_buffer(lower->kernel, UL_BUFFER_SCRATCH, dtype, element_count);
}

uint32_t ul_lower_local(struct ul_lower *lower, enum ul_dtype dtype, uint64_t element_count)
{
    enum { MAX_LOCAL = 64 };
    UL_ASSERT(element_count <= MAX_LOCAL ||
              element_count <= (uint64_t)lower->traits->partial_count);
    return ul_kernel_add_buffer(lower->kernel, UL_BUFFER_LOCAL, dtype, element_count);
}

/* Operands of contractions */

/* Whether it is made from packed bytes in the group. */
static bool is_unpacked(const struct ul_lower *lower, ul_value_id value)
{
    const struct ul_graph *graph = lower->graph;
    return in_group(lower, value) &&
           (ul_op_get(graph->nodes[value_get(lower, value)->producer].op)->flags & UL_OP_UNPACKS) !=
               0;
}

/* The tensor of full shape from outside that an elementwise chain of the group starts from, or what
 * is unpacked there. */
static ul_value_id operand_source(const struct ul_lower *lower, ul_value_id value)
{
    const struct ul_type *type = &value_get(lower, value)->type;
    if (!in_group(lower, value) || is_unpacked(lower, value))
        return value;
    const struct ul_node *node = &lower->graph->nodes[value_get(lower, value)->producer];
    UL_ASSERT((ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) != 0);
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] == UL_NONE)
            continue;
        const struct ul_type *input = &value_get(lower, node->inputs[i])->type;
        if (!ul_type_same_dims(input, type))
            continue;
        ul_value_id source = operand_source(lower, node->inputs[i]);
        if (source != UL_NONE)
            return source;
    }
    return UL_NONE;
}

static uint32_t loaded_var(struct ul_lower *lower, enum ul_dtype dtype)
{
    struct ul_kernel *kernel = lower->kernel;
    UL_GROW(kernel->arena, kernel->vars, kernel->var_count, kernel->var_capacity);
    kernel->vars[kernel->var_count] = (struct ul_kernel_var){
        .dtype = dtype, .low = -((int64_t)1 << 61), .high = (int64_t)1 << 61};
    return kernel->var_count++;
}

static void operand_transform(struct ul_lower *lower, const struct ul_contraction *contraction,
                              struct ul_operand *operand, ul_value_id value, ul_value_id source,
                              const ul_kx *base, int64_t (*coefficients)[UL_CONTRACT_DIMS])
{
    struct ul_lower_state *state = lower->state;
    struct ul_kernel *kernel = lower->kernel;
    enum ul_dtype loaded = ul_compute_dtype(value_get(lower, source)->type.dtype);
    uint32_t count = contraction->m_count + contraction->n_count + contraction->k_count;
    operand->loaded = loaded_var(lower, loaded);
    operand->transform = UL_NONE;
    if (value == source && loaded == contraction->acc_dtype)
        return;
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < value_get(lower, value)->type.rank; d++) {
        index[d] = base[d];
        for (uint32_t v = 0; v < count; v++)
            index[d] = ul_kx_add(
                kernel, index[d],
                ul_kx_muli(kernel, ul_kx_var(kernel, contraction->vars[v]), coefficients[d][v]));
    }
    state->bound = source;
    state->bound_x = ul_kx_var(kernel, operand->loaded);
    state->no_let = true;
    operand->transform =
        ul_kx_cast(kernel, contraction->acc_dtype, ul_lower_load(lower, value, index));
    state->no_let = false;
    state->bound = UL_NONE;
}

void ul_lower_operand(struct ul_lower *lower, struct ul_contraction *contraction,
                      struct ul_operand *operand, ul_value_id value, const ul_kx *base,
                      int64_t (*coefficients)[UL_CONTRACT_DIMS], uint32_t checked, double outside)
{
    struct ul_kernel *kernel = lower->kernel;
    ul_value_id source = operand_source(lower, value);
    UL_ASSERT(source != UL_NONE);
    const struct ul_type *type = &value_get(lower, source)->type;
    struct ul_view view = view_of(lower, source);
    bool unpacks = is_unpacked(lower, source);
    ul_value_id stored = source;
    if (unpacks)
        stored = lower->graph->nodes[value_get(lower, source)->producer].inputs[0];
    struct param param = param_get(lower, stored);
    memset(operand, 0, sizeof *operand);
    operand->buffer = param.buffer;
    operand->packed = unpacks ? type->dtype : UL_DTYPE_NONE;
    operand->outside = outside;
    operand->at.base = ul_kx_index_const(kernel, param.base_index);
    for (uint32_t d = 0; d < type->rank; d++) {
        if (type->dims[d] != 1) {
            operand->at.base =
                ul_kx_add(kernel, operand->at.base, ul_kx_muli(kernel, base[d], view.strides[d]));
            for (uint32_t v = 0; v < UL_CONTRACT_DIMS; v++)
                operand->at.strides[v] += coefficients[d][v] * view.strides[d];
        }
        if ((checked & 1u << d) == 0)
            continue;
        UL_ASSERT(operand->bound_count < sizeof operand->bounds / sizeof *operand->bounds);
        struct ul_operand_bound *bound = &operand->bounds[operand->bound_count++];
        bound->at.base = base[d];
        memcpy(bound->at.strides, coefficients[d], sizeof bound->at.strides);
        bound->extent = type->dims[d];
    }
    operand_transform(lower, contraction, operand, value, source, base, coefficients);
}

/* In-place facts: `output` may lie on `input` when both are dense from their first byte, or the
 * same part of a value and of what it overwrites, as large and of elements as large, and no element
 * is loaded after it was stored (in_place.c). */

/* Whether it is whole and dense from the base's first byte, as a buffer must be to change
 * places. */
static bool covers_base(const struct ul_lower *lower, const struct param *param)
{
    const struct ul_value *value = value_get(lower, param->value);
    struct ul_view view = view_of(lower, param->value);
    const struct ul_value *base = value_get(lower, view.base);
    return view.offset_bytes == 0 && param->base_index == 0 &&
           ul_type_elements(&value->type) == ul_type_elements(&base->type);
}

/* Whether both are the same bytes: of a value, and of the one whose place it is donated. */
static bool is_same_part(const struct ul_lower *lower, const struct param *output,
                         const struct param *input)
{
    struct ul_view out = view_of(lower, output->value), in = view_of(lower, input->value);
    return value_get(lower, out.base)->donor == in.base && out.offset_bytes == in.offset_bytes &&
           output->base_index == input->base_index &&
           memcmp(out.strides, in.strides, sizeof out.strides) == 0;
}

static bool may_lie_on(const struct ul_lower *lower, const struct ul_accesses *accesses,
                       const struct param *output, const struct param *input)
{
    const struct ul_buffer *out = &lower->kernel->buffers[output->buffer];
    const struct ul_buffer *in = &lower->kernel->buffers[input->buffer];
    return ul_dtype_get(out->dtype)->size_bytes == ul_dtype_get(in->dtype)->size_bytes &&
           ul_value_bytes(lower->graph, output->value) ==
               ul_value_bytes(lower->graph, input->value) &&
           ((covers_base(lower, output) && covers_base(lower, input)) ||
            is_same_part(lower, output, input)) &&
           ul_accesses_may_overwrite(accesses, output->buffer, input->buffer);
}

static void find_in_place(const struct ul_lower *lower, struct ul_lower_result *result)
{
    const struct ul_lower_state *state = lower->state;
    const struct ul_accesses *accesses =
        ul_accesses_new(lower->kernel, lower->traits->contract_reads, lower->arena);
    struct ul_in_place *facts = NULL;
    uint32_t capacity = 0;
    for (uint32_t o = 0; o < state->param_count; o++) {
        const struct ul_buffer *out = &lower->kernel->buffers[state->params[o].buffer];
        if (out->role != UL_BUFFER_OUTPUT)
            continue;
        for (uint32_t i = 0; i < state->param_count; i++) {
            const struct ul_buffer *in = &lower->kernel->buffers[state->params[i].buffer];
            if (in->role != UL_BUFFER_INPUT || in->value == out->value ||
                !may_lie_on(lower, accesses, &state->params[o], &state->params[i]))
                continue;
            UL_GROW(lower->arena, facts, result->in_place_count, capacity);
            facts[result->in_place_count++] =
                (struct ul_in_place){.output = out->value, .input = in->value};
        }
    }
    result->in_place = facts;
}

static bool is_stored(const struct ul_lower *lower, ul_value_id value)
{
    const struct ul_lower_state *state = lower->state;
    for (uint32_t i = 0; i < state->param_count; i++) {
        if (state->params[i].value == value)
            return lower->kernel->buffers[state->params[i].buffer].role == UL_BUFFER_OUTPUT;
    }
    return false;
}

/* Hooks may leave only results without elements unstored: a reader of the kernel's outputs would
 * miss others. */
static void store_nothing(struct ul_lower *lower, ul_value_id value)
{
    const struct ul_type *type = &value_get(lower, value)->type;
    ul_kx index[UL_LIMIT_RANK];
    ul_lower_open(lower, type->rank, type->dims, index);
    store_raw(lower, value, index, ul_kx_number(lower->kernel, ul_compute_dtype(type->dtype), 0));
    ul_lower_close(lower, type->rank);
}

static void store_empty_results(struct ul_lower *lower)
{
    const struct ul_lower_state *state = lower->state;
    for (uint32_t i = 0; i < state->node_count; i++) {
        const struct ul_node *node = &lower->graph->nodes[state->nodes[i]];
        for (uint32_t k = 0; k < node->output_count; k++) {
            ul_value_id value = node->outputs[k];
            if (value != UL_NONE && escapes(lower, value) && !is_stored(lower, value) &&
                ul_type_elements(&value_get(lower, value)->type) == 0)
                store_nothing(lower, value);
        }
    }
}

void ul_lower_group(const struct ul_graph *graph, const ul_node_id *nodes, uint32_t node_count,
                    const bool *escapes, const struct ul_target_traits *traits,
                    struct ul_arena *arena, struct ul_lower_result *result)
{
    struct ul_lower_state state = {
        .nodes = nodes, .node_count = node_count, .escapes = escapes, .bound = UL_NONE};
    state.hangs = UL_NEW_ARRAY(arena, bool, node_count);
    static const struct ul_target_traits nothing = {.name = NULL};
    struct ul_lower lower = {.graph = graph,
                             .traits = traits != NULL ? traits : &nothing,
                             .arena = arena,
                             .state = &state};
    lower.kernel = UL_NEW(arena, struct ul_kernel);
    ul_kernel_init(lower.kernel, arena);
    lower.kernel->rounds_products = graph->rounds_products;
    ul_node_id anchor = UL_NONE;
    for (uint32_t i = 0; i < node_count; i++) {
        if (ul_op_is_map(graph->nodes[nodes[i]].op))
            continue;
        UL_ASSERT(anchor == UL_NONE);
        anchor = nodes[i];
    }
    ul_value_id *results;
    uint32_t count = results_of(&lower, &results);
    uint32_t free_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        bool hangs = false;
        for (uint32_t k = 0; anchor != UL_NONE && k < graph->nodes[anchor].output_count; k++)
            hangs = hangs || hangs_on(&lower, results[i], graph->nodes[anchor].outputs[k]);
        if (!hangs)
            results[free_count++] = results[i];
    }
    lower_maps(&lower, results, free_count);
    if (anchor != UL_NONE) {
        UL_ASSERT(ul_op_get(graph->nodes[anchor].op)->lower != NULL);
        ul_op_get(graph->nodes[anchor].op)->lower(&lower, anchor);
    }
    UL_ASSERT(lower.kernel->open_count == 1);
    store_empty_results(&lower);
    ul_ks_tile(lower.kernel);
    ul_node_id maker = anchor != UL_NONE ? anchor : nodes[node_count - 1];
    ul_kernel_verify_or_die(lower.kernel, graph->check_text, arena,
                            ul_node_describe(graph, maker, arena));
    memset(result, 0, sizeof *result);
    result->kernel = lower.kernel;
    find_in_place(&lower, result);
}
