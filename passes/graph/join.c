/* SPDX-License-Identifier: Apache-2.0 */
/* Products of one operand as one product.
 *
 *      q = x Wq + bq \
 *      k = x Wk + bk  >  ->  q, k, v = Split(x [Wq Wk Wv] + [bq bk bv])
 *      v = x Wv + bv /
 *
 * Problem: a device computes hundreds of tiles at once and takes time for every launch; three
 * products of a few tiles each leave most of it idle, three times. Method: products of one left
 * operand with constants that nothing else reads, with no product of something else between them,
 * become one of the constants side by side. Its results are views of the whole, with the strides
 * of the whole. Each number is the same sum of the same terms.
 *
 * It is to cost nothing else: neither a byte of the live sum, nor a copy where a view was, nor what
 * was fused with a product. That is seen in the graphs that the later rows make of both, in the
 * order in which they stand (join_judge.c); members that cost something leave, and all is done
 * again without them.
 *
 * The joined weights are copies in the compiler's memory, so there is an end to them.
 *
 * Left undone: other orders, in which a plan of the members apart may be smaller (by up to 3 % in
 * random graphs; not in networks of models/); some products with a bias and some without, for which
 * zeros would have to be stored; convolutions. */
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/view.h"
#include "passes/graph/join_internal.h"

#include <string.h>

/* The limit of all sets together; the first ones are joined. */
#define MAX_WEIGHT_BYTES ((uint64_t)2 << 30)

enum {
    COLUMNS_UNIT = 16, /* of a member: no result begins between two vectors */
    MAX_ROUNDS = 4
};

/* ---- Finding ---- */

struct finder {
    struct ul_join *join;
    const struct ul_graph *graph;
    const uint32_t *uses;
    const ul_node_id *readers;
    uint32_t first_open; /* sets from here on may grow; all are of one operand */
    ul_value_id src;
};

static const struct ul_type *type_of(const struct finder *finder, ul_value_id value)
{
    return &finder->graph->values[value].type;
}

static bool is_own_weight(const struct finder *finder, ul_value_id value)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(finder->graph, value);
    return tensor != NULL && tensor->data != NULL && ul_type_elements(&tensor->type) > 0 &&
           finder->graph->values[value].kind == UL_VALUE_WEIGHT && finder->uses[value] == 1;
}

/* Reads the weight: a matrix that is stored as it is read, or turned. */
static bool read_weight(const struct finder *finder, ul_value_id value,
                        struct ul_join_member *member)
{
    const struct ul_graph *graph = finder->graph;
    uint32_t count;
    member->weight = value;
    if (graph->values[value].kind == UL_VALUE_NODE && finder->uses[value] == 1) {
        const struct ul_node *node = &graph->nodes[graph->values[value].producer];
        const int64_t *perm =
            node->op == UL_OP_Transpose ? ul_node_get_ints(node, "perm", &count) : NULL;
        if (perm == NULL || count != 2 || perm[0] != 1)
            return false;
        member->weight = node->inputs[0];
        member->is_turned = true;
    }
    return type_of(finder, value)->rank == 2 && is_own_weight(finder, member->weight);
}

/* One number per column, or the same for all. */
static bool is_bias(const struct finder *finder, ul_value_id value, int64_t columns)
{
    const struct ul_tensor *tensor = ul_graph_get_constant(finder->graph, value);
    if (tensor == NULL || finder->graph->values[value].kind != UL_VALUE_WEIGHT ||
        tensor->type.rank == 0 || tensor->type.dims[tensor->type.rank - 1] != columns ||
        ul_type_elements(&tensor->type) != (uint64_t)columns)
        return false;
    return tensor->data == NULL || finder->uses[value] == 1;
}

/* The Add of a bias after a MatMul belongs to it. */
static void read_sum(const struct finder *finder, struct ul_join_member *member)
{
    const struct ul_graph *graph = finder->graph;
    ul_node_id reader = finder->readers[member->result];
    if (finder->uses[member->result] != 1 || reader == UL_NONE ||
        graph->nodes[reader].op != UL_OP_Add ||
        graph->nodes[reader].parent != graph->nodes[member->product].parent)
        return;
    const struct ul_node *node = &graph->nodes[reader];
    ul_value_id other = node->inputs[node->inputs[0] == member->result ? 1 : 0];
    if (!is_bias(finder, other, member->columns) ||
        !ul_type_equal(type_of(finder, node->outputs[0]), type_of(finder, member->result)))
        return;
    member->bias = other;
    member->sum = reader;
    member->result = node->outputs[0];
}

/* The result must be able to lie among others. */
static bool is_bound(const struct finder *finder, ul_value_id value)
{
    const struct ul_graph *graph = finder->graph;
    if (graph->values[value].flags != 0 || graph->values[value].donor != UL_NONE)
        return true;
    for (uint32_t b = 0; b < graph->block_count; b++)
        for (uint32_t i = 0; i < graph->blocks[b].output_count; i++)
            if (graph->blocks[b].outputs[i] == value)
                return true;
    return false;
}

static bool read_member(const struct finder *finder, ul_node_id id, struct ul_join_member *member)
{
    const struct ul_node *node = &finder->graph->nodes[id];
    bool is_gemm = node->op == UL_OP_Gemm;
    if ((node->op != UL_OP_MatMul && !is_gemm) || type_of(finder, node->inputs[0])->rank < 2)
        return false;
    *member = (struct ul_join_member){.product = id,
                                      .sum = UL_NONE,
                                      .src = node->inputs[0],
                                      .result = node->outputs[0],
                                      .bias = UL_NONE};
    if (!read_weight(finder, node->inputs[1], member))
        return false;
    if (is_gemm && ul_node_get_int(node, "transB", 0) != 0)
        member->is_turned = !member->is_turned;
    const struct ul_type *type = type_of(finder, member->weight);
    member->depth = type->dims[member->is_turned ? 1 : 0];
    member->columns = type->dims[member->is_turned ? 0 : 1];
    if (is_gemm && node->input_count > 2 && node->inputs[2] != UL_NONE) {
        member->bias = node->inputs[2];
        if (!is_bias(finder, member->bias, member->columns))
            return false;
    } else if (!is_gemm) {
        read_sum(finder, member);
    }
    return member->columns % COLUMNS_UNIT == 0 && !is_bound(finder, member->result);
}

/* ---- Sets ---- */

static bool same_number(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

/* Both have a bias, or neither has; a bias of one number stays one. */
static bool biases_fit(const struct finder *finder, const struct ul_join_member *a,
                       const struct ul_join_member *b)
{
    if (a->bias == UL_NONE || b->bias == UL_NONE)
        return a->bias == b->bias;
    const struct ul_tensor *one = finder->graph->values[a->bias].tensor;
    const struct ul_tensor *other = finder->graph->values[b->bias].tensor;
    if (one->data == NULL && other->data == NULL)
        return memcmp(one->splat, other->splat, ul_dtype_get(one->type.dtype)->size_bytes) == 0;
    return one->data != NULL && other->data != NULL;
}

static bool are_alike(const struct finder *finder, const struct ul_join_member *a,
                      const struct ul_join_member *b)
{
    const struct ul_node *one = &finder->graph->nodes[a->product];
    const struct ul_node *other = &finder->graph->nodes[b->product];
    return one->op == other->op && one->parent == other->parent && a->src == b->src &&
           a->is_turned == b->is_turned && a->depth == b->depth &&
           ul_node_get_int(one, "transA", 0) == ul_node_get_int(other, "transA", 0) &&
           ul_node_get_int(one, "transB", 0) == ul_node_get_int(other, "transB", 0) &&
           same_number(ul_node_get_float(one, "alpha", 1), ul_node_get_float(other, "alpha", 1)) &&
           same_number(ul_node_get_float(one, "beta", 1), ul_node_get_float(other, "beta", 1)) &&
           biases_fit(finder, a, b);
}

static void add_member(struct finder *finder, const struct ul_join_member *member)
{
    struct ul_join *join = finder->join;
    if (member->src != finder->src)
        finder->first_open = join->set_count;
    finder->src = member->src;
    for (uint32_t s = finder->first_open; s < join->set_count; s++) {
        struct ul_join_set *set = &join->sets[s];
        if (set->count < UL_JOIN_MEMBERS && are_alike(finder, &set->members[0], member)) {
            set->members[set->count++] = *member;
            return;
        }
    }
    UL_GROW(join->pass->scratch, join->sets, join->set_count, join->set_capacity);
    join->sets[join->set_count++] = (struct ul_join_set){.count = 1, .members = {*member}};
}

static void find_in_block(struct finder *finder, const struct ul_block *block)
{
    finder->src = UL_NONE;
    for (uint32_t n = 0; n < block->node_count; n++) {
        struct ul_join_member member;
        const struct ul_node *node = &finder->graph->nodes[block->nodes[n]];
        if (read_member(finder, block->nodes[n], &member))
            add_member(finder, &member);
        else if ((ul_op_get(node->op)->flags & (UL_OP_MULTIPLIES | UL_OP_CONTROL)) != 0)
            finder->src = UL_NONE;
    }
}

/* Drops members that leave, and sets that have too few left. */
static void drop(struct ul_join *join)
{
    uint32_t set_count = 0;
    for (uint32_t s = 0; s < join->set_count; s++) {
        struct ul_join_set *set = &join->sets[s];
        uint32_t count = 0;
        for (uint32_t p = 0; p < set->count; p++)
            if (!set->members[p].leaves)
                set->members[count++] = set->members[p];
        set->count = count;
        if (count > 1)
            join->sets[set_count++] = *set;
    }
    join->set_count = set_count;
}

static void bound_weights(struct ul_join *join)
{
    uint64_t rest_bytes = MAX_WEIGHT_BYTES;
    for (uint32_t s = 0; s < join->set_count; s++) {
        struct ul_join_set *set = &join->sets[s];
        for (uint32_t p = 0; p < set->count && set->count > 1; p++) {
            uint64_t size_bytes = ul_value_bytes(join->graph, set->members[p].weight);
            set->members[p].leaves = size_bytes > rest_bytes;
            rest_bytes -= set->members[p].leaves ? 0 : size_bytes;
        }
    }
}

static void find_sets(struct ul_join *join)
{
    const struct ul_graph *graph = join->graph;
    struct finder finder = {.join = join, .graph = graph};
    finder.uses = ul_graph_count_uses(graph, join->pass->scratch);
    finder.readers = ul_edit_find_readers(graph, join->pass->scratch);
    for (uint32_t b = 0; b < graph->block_count; b++)
        if (ul_graph_has_block(graph, b))
            find_in_block(&finder, &graph->blocks[b]);
    bound_weights(join);
    drop(join);
}

/* ---- Names ---- */

static bool is_separator(char c)
{
    return c == '/' || c == '.' || c == '_' || c == ':';
}

/* "/layer.0/{query|key|value}/MatMul": the common beginning and end of all names, up to separators,
 * stand once. */
static const char *join_names(struct ul_arena *arena, const char *const *names, uint32_t count)
{
    size_t begin = 0, end = 0, min = strlen(names[0]), longest = min;
    struct ul_text text;
    for (uint32_t i = 1; i < count; i++) {
        size_t length = strlen(names[i]), same = 0;
        while (same < min && same < length && names[i][same] == names[0][same])
            same++;
        min = same;
        longest = length > longest ? length : longest;
    }
    if (min == strlen(names[0]) && min == longest)
        return names[0];
    for (size_t i = 0; i < min; i++)
        begin = is_separator(names[0][i]) ? i + 1 : begin;
    size_t rest = strlen(names[0]) - begin;
    for (uint32_t i = 1; i < count; i++) {
        size_t length = strlen(names[i]), same = 0;
        rest = rest < length - begin ? rest : length - begin;
        while (same < rest && names[i][length - 1 - same] == names[0][strlen(names[0]) - 1 - same])
            same++;
        rest = same;
    }
    for (size_t i = 1; i <= rest; i++)
        end = is_separator(names[0][strlen(names[0]) - i]) ? i : end;
    ul_text_init(&text, arena);
    ul_text_printf(&text, "%.*s{", (int)begin, names[0]);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(&text, "%s%.*s", i == 0 ? "" : "|", (int)(strlen(names[i]) - begin - end),
                       names[i] + begin);
    ul_text_printf(&text, "}%s", names[0] + strlen(names[0]) - end);
    return text.data;
}

enum naming { OF_PRODUCTS, OF_SUMS, OF_PRODUCED, OF_RESULTS, OF_WEIGHTS, OF_BIASES };

static const char *name_of(const struct ul_join *join, const struct ul_join_set *set,
                           enum naming naming)
{
    const struct ul_graph *graph = join->graph;
    const char *names[UL_JOIN_MEMBERS] = {""};
    for (uint32_t p = 0; p < set->count; p++) {
        const struct ul_join_member *member = &set->members[p];
        const struct ul_node *product = &graph->nodes[member->product];
        names[p] = naming == OF_PRODUCTS   ? product->name
                   : naming == OF_SUMS     ? graph->nodes[member->sum].name
                   : naming == OF_PRODUCED ? graph->values[product->outputs[0]].name
                   : naming == OF_RESULTS  ? graph->values[member->result].name
                   : naming == OF_WEIGHTS  ? graph->values[member->weight].name
                                           : graph->values[member->bias].name;
    }
    return join_names(graph->arena, names, set->count);
}

/* ---- Building ---- */

static int64_t column_count(const struct ul_join_set *set)
{
    int64_t count = 0;
    for (uint32_t p = 0; p < set->count; p++)
        count += set->members[p].columns;
    return count;
}

static const struct ul_tensor *new_tensor(struct ul_arena *arena, const struct ul_type *type,
                                          const unsigned char *bytes)
{
    struct ul_tensor *tensor = UL_NEW(arena, struct ul_tensor);
    tensor->type = *type;
    tensor->data = bytes;
    return tensor;
}

/* Puts weights side by side: one row of each after the other; or, where they are turned, one matrix
 * after the other. */
static const struct ul_tensor *join_weights(const struct ul_join *join,
                                            const struct ul_join_set *set)
{
    const struct ul_graph *graph = join->graph;
    const struct ul_join_member *first = &set->members[0];
    int64_t columns = column_count(set), depth = first->depth;
    int64_t dims[2] = {first->is_turned ? columns : depth, first->is_turned ? depth : columns};
    struct ul_type type = ul_type_make(graph->values[first->weight].type.dtype, 2, dims);
    size_t size = ul_dtype_get(type.dtype)->size_bytes;
    unsigned char *bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    unsigned char *to = bytes;
    for (int64_t row = 0; row < (first->is_turned ? 1 : depth); row++) {
        for (uint32_t p = 0; p < set->count; p++) {
            const struct ul_join_member *member = &set->members[p];
            size_t run = (size_t)member->columns * (size_t)(member->is_turned ? depth : 1) * size;
            memcpy(to, graph->values[member->weight].tensor->data + (size_t)row * run, run);
            to += run;
        }
    }
    return new_tensor(graph->arena, &type, bytes);
}

static const struct ul_tensor *join_biases(const struct ul_join *join,
                                           const struct ul_join_set *set)
{
    const struct ul_graph *graph = join->graph;
    int64_t columns = column_count(set);
    const struct ul_tensor *first = graph->values[set->members[0].bias].tensor;
    struct ul_type type = ul_type_make(first->type.dtype, 1, &columns);
    size_t size = ul_dtype_get(type.dtype)->size_bytes;
    if (first->data == NULL)
        return ul_tensor_new_splat(graph->arena, &type, first->splat);
    unsigned char *bytes = ul_arena_alloc(graph->arena, ul_type_bytes(&type));
    unsigned char *to = bytes;
    for (uint32_t p = 0; p < set->count; p++) {
        const struct ul_join_member *member = &set->members[p];
        memcpy(to, graph->values[member->bias].tensor->data, (size_t)member->columns * size);
        to += (size_t)member->columns * size;
    }
    return new_tensor(graph->arena, &type, bytes);
}

/* Joined weights are kept from round to round. */
static void make_weights(const struct ul_join *join, struct ul_join_set *set)
{
    bool has_bias = set->members[0].bias != UL_NONE;
    if (set->tensor_count != set->count) {
        set->tensor_count = set->count;
        set->weight_tensor = join_weights(join, set);
        set->bias_tensor = has_bias ? join_biases(join, set) : NULL;
    }
    set->weight =
        ul_graph_add_weight(join->graph, name_of(join, set, OF_WEIGHTS), set->weight_tensor);
    set->bias =
        has_bias ? ul_graph_add_weight(join->graph, name_of(join, set, OF_BIASES), set->bias_tensor)
                 : UL_NONE;
}

/* A node like one of the members; its output has the type of theirs, and is as wide as all of
 * them. */
static ul_value_id add_joined(const struct ul_join_set *set, struct ul_build *here, ul_op_id op,
                              const char *value_name, ul_node_id member, const ul_value_id *inputs,
                              uint32_t input_count)
{
    struct ul_graph *graph = here->graph;
    struct ul_type type = graph->values[set->members[0].result].type;
    type.dims[type.rank - 1] = column_count(set);
    ul_value_id made = ul_build_value(here, op, inputs, input_count, &type);
    graph->values[made].name = value_name;
    graph->nodes[graph->values[made].producer].source = graph->nodes[member].source;
    return made;
}

/* The joined weight as the product reads it. */
static ul_value_id turned_weight(const struct ul_join_set *set, struct ul_build *here)
{
    static const int64_t perm[2] = {1, 0};
    const struct ul_graph *graph = here->graph;
    here->name = graph->values[set->weight].name;
    bool is_turned = graph->nodes[set->members[0].product].inputs[1] != set->members[0].weight;
    return is_turned ? ul_build_transpose(here, set->weight, perm) : set->weight;
}

/* Its name is that of the node before it. */
static void add_split(struct ul_join_set *set, struct ul_build *here)
{
    struct ul_graph *graph = here->graph;
    int64_t sizes[UL_JOIN_MEMBERS];
    for (uint32_t p = 0; p < set->count; p++)
        sizes[p] = set->members[p].columns;
    const ul_value_id inputs[2] = {set->result, ul_build_ints(graph, "split", set->count, sizes)};
    UL_ASSERT(set->count >= 2);
    set->split = ul_build_node(here, UL_OP_Split, inputs, 2, set->count);
    ul_node_set_int(graph, set->split, "axis", -1);
    for (uint32_t p = 0; p < set->count; p++) {
        struct ul_value *made = &graph->values[graph->nodes[set->split].outputs[p]];
        made->name = graph->values[set->members[p].result].name;
        made->type = graph->values[set->members[p].result].type;
    }
}

static void build(struct ul_join *join, struct ul_join_set *set)
{
    struct ul_graph *graph = join->graph;
    ul_node_id first = set->members[0].product;
    const ul_op_id op = graph->nodes[first].op;
    bool has_sum = set->members[0].sum != UL_NONE;
    make_weights(join, set);
    struct ul_build here = ul_build_before(graph, first);
    const ul_value_id inputs[3] = {set->members[0].src, turned_weight(set, &here), set->bias};
    here.name = name_of(join, set, OF_PRODUCTS);
    set->result = add_joined(set, &here, op, name_of(join, set, OF_PRODUCED), first, inputs,
                             op == UL_OP_Gemm && set->bias != UL_NONE ? 3 : 2);
    set->product = graph->values[set->result].producer;
    for (uint32_t i = 0; i < graph->nodes[first].attr_count; i++)
        ul_node_set_attr(graph, set->product, &graph->nodes[first].attrs[i]);
    set->sum = UL_NONE;
    if (has_sum) {
        const ul_value_id terms[2] = {set->result, set->bias};
        here.name = name_of(join, set, OF_SUMS);
        set->result = add_joined(set, &here, UL_OP_Add, name_of(join, set, OF_RESULTS),
                                 set->members[0].sum, terms, 2);
        set->sum = graph->values[set->result].producer;
    }
    add_split(set, &here);
}

/* Removes the nodes that the joined product stands for. */
static void remove_members(struct ul_join *join, const struct ul_join_set *set)
{
    struct ul_graph *graph = join->graph;
    for (uint32_t p = 0; p < set->count; p++) {
        const struct ul_join_member *member = &set->members[p];
        ul_value_id right = graph->nodes[member->product].inputs[1];
        if (right != member->weight)
            ul_graph_remove_node(graph, graph->values[right].producer);
        ul_graph_remove_node(graph, member->product);
        if (member->sum != UL_NONE)
            ul_graph_remove_node(graph, member->sum);
        graph->values[member->weight].kind = UL_VALUE_DEAD;
        if (member->bias != UL_NONE && graph->values[member->bias].tensor->data != NULL)
            graph->values[member->bias].kind = UL_VALUE_DEAD;
    }
}

static void join_all(struct ul_join *join)
{
    struct ul_graph *graph = join->graph;
    for (uint32_t s = 0; s < join->set_count; s++)
        build(join, &join->sets[s]);
    struct ul_rewrite rewrite;
    ul_rewrite_init(&rewrite, graph, join->pass->scratch);
    for (uint32_t s = 0; s < join->set_count; s++) {
        const struct ul_join_set *set = &join->sets[s];
        for (uint32_t p = 0; p < set->count; p++)
            ul_rewrite_replace(&rewrite, set->members[p].result,
                               graph->nodes[set->split].outputs[p]);
    }
    ul_rewrite_apply(&rewrite);
    for (uint32_t s = 0; s < join->set_count; s++)
        remove_members(join, &join->sets[s]);
    ul_graph_sweep(graph);
}

enum ul_status ul_pass_join(struct ul_pass *pass)
{
    struct ul_join join = {.pass = pass, .graph = pass->graph};
    struct ul_join_future before, after;
    struct ul_graph whole;
    find_sets(&join);
    if (join.set_count == 0)
        return UL_OK;
    ul_graph_copy(&whole, pass->graph->arena, pass->graph);
    UL_TRY(ul_join_dry_run(&join, &before));
    for (uint32_t round = 0; round < MAX_ROUNDS && join.set_count > 0; round++) {
        join_all(&join);
        UL_TRY(ul_join_dry_run(&join, &after));
        if (ul_join_judge(&join, whole.node_count, &before, &after))
            return UL_OK;
        ul_graph_copy(pass->graph, whole.arena, &whole);
        drop(&join);
    }
    return UL_OK;
}
