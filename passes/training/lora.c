/* SPDX-License-Identifier: Apache-2.0 */
/* Low-rank factors beside weights of products, where --lora asks for them (Hu et al., arXiv
 * 2106.09685).
 *
 * Problem: only few numbers of a large network are to be trained. Method: a weight w that a pattern
 * names stays as it is, and each product that reads it gets a second path through two thin
 * products, which is added to its result:
 *
 *      y = x w         ->      y = x w + ((x A) * scale) B        scale = alpha / rank
 *
 *      x ---------.--> [w] ------------------> (+) --> y
 *                 '--> [A] --> * scale --> [B] --^
 *
 * A B is never formed. A is drawn as torch.nn.Linear's weight is, B is zeros: the network begins as
 * it was. Both lie as the weight does, so that in its dimensions what is added to it is the product
 * of two matrices: left [d0, rank] and right [rank, d1 ...]. Which of them is A, that x meets
 * first, follows from the first product: a MatMul has w as [inputs, outputs], a Gemm with transB
 * and a Conv have [outputs, inputs ...]. A convolution has one of `rank` channels in w's place,
 * and after it one of a single place.
 *
 * Left undone: convolutions of several groups, factors of tables that rows are looked up in, and
 * dropout in front of A. */
#include "ir/build.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "ir/training.h"
#include "passes/passes_internal.h"

#include <math.h>
#include <string.h>

struct adapter {
    const struct ul_lora *request;
    ul_value_id weight, left, right; /* factors, in the weight's dimensions */
    struct ul_sites sites;
};

/* Whether it is multiplied: a factor of a product, not its bias. */
static bool is_factor(const struct ul_graph *graph, const struct ul_site *site)
{
    return site->input < 2 &&
           (ul_op_get(graph->nodes[site->node].op)->flags & UL_OP_MULTIPLIES) != 0;
}

/* Why a product cannot have factors beside its weight; NULL: it can. */
static const char *find_obstacle(const struct ul_graph *graph, const struct ul_site *site,
                                 const struct ul_type *weight)
{
    const struct ul_node *node = &graph->nodes[site->node];
    if (!is_factor(graph, site))
        return "it is no product";
    bool is_conv = node->op == UL_OP_Conv;
    if (node->op != UL_OP_MatMul && node->op != UL_OP_Gemm && !is_conv)
        return "factors are for MatMul, Gemm and Conv";
    if (site->input != 1)
        return "the weight is its first operand";
    if (is_conv && ul_node_get_int(node, "group", 1) != 1)
        return "its channels are in groups";
    return !is_conv && weight->rank != 2 ? "the weight is no matrix" : NULL;
}

/* ---- which ---- */

static bool is_candidate(const struct ul_pass *pass, ul_value_id id)
{
    const struct ul_training *training = pass->options->training;
    const struct ul_value *value = &pass->graph->values[id];
    bool is_float = value->type.dtype == UL_F32 || value->type.dtype == UL_F64;
    return value->kind == UL_VALUE_WEIGHT && (value->flags & UL_VALUE_TRAINED) != 0 && is_float &&
           !ul_edit_matches_any(training->freeze, training->freeze_count, value->name);
}

/* No other initializer may have a name that a factor gets. */
static enum ul_status check_names(const struct ul_pass *pass, const char *weight)
{
    size_t length = strlen(weight);
    for (uint32_t v = 0; v < pass->graph->value_count; v++) {
        const char *name = pass->graph->values[v].name;
        if (pass->graph->values[v].kind == UL_VALUE_WEIGHT && strncmp(name, weight, length) == 0 &&
            (strcmp(name + length, "/" UL_TRAINING_LORA_A) == 0 ||
             strcmp(name + length, "/" UL_TRAINING_LORA_B) == 0))
            return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                               "--lora: the model has an initializer %s, as a factor is called: "
                               "rename it",
                               ul_quote(pass->scratch, name));
    }
    return UL_OK;
}

/* Whether factors can stand for the weight: all that reads it must be able to read them, and they
 * must be smaller. */
static enum ul_status check_adapter(const struct ul_pass *pass, const struct adapter *adapter)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_value *weight = &graph->values[adapter->weight];
    const char *name = ul_quote(pass->scratch, weight->name);
    int64_t rank = adapter->request->rank;
    for (uint32_t i = 0; i < adapter->sites.count; i++) {
        const struct ul_site *site = &adapter->sites.items[i];
        const char *obstacle = find_obstacle(graph, site, &weight->type);
        if (obstacle != NULL)
            return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                               "--lora: %s reads the weight %s, and %s; give a pattern that "
                               "leaves the weight out, or --freeze it",
                               ul_node_describe(graph, site->node, pass->scratch), name, obstacle);
    }
    int64_t rows = weight->type.dims[0];
    int64_t columns = (int64_t)ul_type_elements(&weight->type) / (rows > 0 ? rows : 1);
    bool is_square = rank == rows && rank == columns;
    if (rank <= rows && rank <= columns && !is_square)
        return UL_OK;
    return ul_diag_set(pass->diag, UL_USAGE,
                       "--lora %u:%s: the weight %s has sides of %lld and %lld, and such factors "
                       "are no smaller: give a lower rank, or --train-only the weight",
                       (unsigned)rank, ul_quote(pass->scratch, adapter->request->pattern), name,
                       (long long)rows, (long long)columns);
}

static enum ul_status refuse_pattern(const struct ul_pass *pass, const struct ul_lora *request,
                                     ul_value_id named)
{
    const char *pattern = ul_quote(pass->scratch, request->pattern);
    struct ul_nearest nearest = {.word = request->pattern};
    if (named != UL_NONE)
        return ul_diag_set(pass->diag, UL_USAGE,
                           "--lora %u:%s: no product (MatMul, Gemm, Conv) reads the initializer "
                           "%s; --train-only trains it as it is",
                           (unsigned)request->rank, pattern,
                           ul_quote(pass->scratch, pass->graph->values[named].name));
    for (uint32_t v = 0; v < pass->graph->value_count; v++)
        if (is_candidate(pass, v))
            ul_nearest_offer(&nearest, pass->graph->values[v].name);
    return ul_diag_set(pass->diag, UL_USAGE,
                       "--lora %u:%s: no initializer of floats that is not frozen has such a "
                       "name%s; ullage inspect --train lists them",
                       (unsigned)request->rank, pattern,
                       ul_nearest_text(pass->scratch, &nearest, ""));
}

/* Finds the weights that one --lora names; where several name a weight, the last one counts. */
static enum ul_status find_named(const struct ul_pass *pass, const struct ul_lora *request,
                                 struct adapter *adapters)
{
    ul_value_id other = UL_NONE;
    uint32_t found = 0;
    for (uint32_t v = 0; v < pass->graph->value_count; v++) {
        struct adapter adapter = {.request = request, .weight = v};
        bool multiplied = false;
        if (!is_candidate(pass, v) ||
            !ul_edit_matches(request->pattern, pass->graph->values[v].name))
            continue;
        ul_edit_find_sites(pass->graph, pass->scratch, v, &adapter.sites);
        for (uint32_t i = 0; i < adapter.sites.count; i++)
            multiplied = multiplied || is_factor(pass->graph, &adapter.sites.items[i]);
        if (!multiplied) { /* a bias, a scale */
            other = other == UL_NONE ? v : other;
            continue;
        }
        UL_TRY(check_adapter(pass, &adapter));
        UL_TRY(check_names(pass, pass->graph->values[v].name));
        adapters[v] = adapter;
        found++;
    }
    return found > 0 ? UL_OK : refuse_pattern(pass, request, other);
}

/* ---- factors ---- */

/* 64 well-mixed bits of a number (Steele et al., "Fast splittable pseudorandom number generators",
 * OOPSLA 2014). */
static uint64_t mix(uint64_t bits)
{
    bits = (bits ^ bits >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    bits = (bits ^ bits >> 27) * UINT64_C(0x94D049BB133111EB);
    return bits ^ bits >> 31;
}

/* Uniform in +-1 / sqrt(inputs) (Kaiming et al. with a = sqrt 5, as torch.nn.Linear draws): each
 * element's number depends on the seed and the name alone. */
static const struct ul_tensor *draw(const struct ul_pass *pass, const struct ul_type *type,
                                    const char *name, double inputs)
{
    struct ul_arena *arena = pass->graph->arena;
    uint64_t count = ul_type_elements(type), size = ul_dtype_get(type->dtype)->size_bytes;
    uint64_t key = mix(pass->options->training->lora_seed + UINT64_C(0x9E3779B97F4A7C15));
    unsigned char *data = ul_arena_alloc(arena, ul_type_bytes(type));
    for (const char *at = name; *at != '\0'; at++)
        key = mix(key ^ (unsigned char)*at);
    for (uint64_t i = 0; i < count; i++) {
        double unit = (double)(mix(key + (i + 1) * UINT64_C(0x9E3779B97F4A7C15)) >> 11) * 0x1p-53;
        ul_element_put_float(data + i * size, type->dtype, (2 * unit - 1) / sqrt(inputs));
    }
    return ul_edit_tensor(pass->graph, type, data);
}

static ul_value_id add_factor(struct ul_pass *pass, const struct adapter *adapter,
                              const struct ul_type *type, bool is_first, double inputs)
{
    const unsigned char zero[sizeof((struct ul_tensor *)0)->splat] = {0};
    struct ul_graph *graph = pass->graph;
    struct ul_training *training = pass->options->training;
    const char *name = ul_arena_printf(graph->arena, "%s/%s", graph->values[adapter->weight].name,
                                       is_first ? UL_TRAINING_LORA_A : UL_TRAINING_LORA_B);
    const struct ul_tensor *tensor =
        is_first ? draw(pass, type, name, inputs) : ul_tensor_new_splat(graph->arena, type, zero);
    ul_value_id factor = ul_graph_add_weight(graph, name, tensor);
    graph->values[factor].flags |= UL_VALUE_TRAINED;
    training->factors[training->factor_count++] = factor;
    return factor;
}

static void add_factors(struct ul_pass *pass, struct adapter *adapter)
{
    const struct ul_graph *graph = pass->graph;
    const struct ul_type weight = graph->values[adapter->weight].type;
    const struct ul_site *site = &adapter->sites.items[0];
    const struct ul_node *node = &graph->nodes[site->node];
    bool transposes = node->op == UL_OP_Gemm && ul_node_get_int(node, "transB", 0) != 0;
    bool right_first = node->op == UL_OP_Conv || site->turned != transposes;
    struct ul_type left = weight, right = weight;
    for (uint32_t d = 1; d < weight.rank; d++)
        left.dims[d] = d == 1 ? adapter->request->rank : 1;
    right.dims[0] = adapter->request->rank;
    double inputs = right_first ? (double)ul_type_elements(&weight) / (double)weight.dims[0]
                                : (double)weight.dims[0];
    if (right_first) {
        adapter->right = add_factor(pass, adapter, &right, true, inputs);
        adapter->left = add_factor(pass, adapter, &left, false, inputs);
    } else {
        adapter->left = add_factor(pass, adapter, &left, true, inputs);
        adapter->right = add_factor(pass, adapter, &right, false, inputs);
    }
}

/* ---- products ---- */

/* x times a factor, as the node multiplies; `is_first`: x is the node's own. */
static ul_value_id multiply(struct ul_build *build, const struct ul_site *site, ul_value_id x,
                            ul_value_id factor, bool is_first)
{
    static const int64_t turn[] = {1, 0};
    struct ul_graph *graph = build->graph;
    ul_value_id inputs[2] = {x, factor};
    const struct ul_node node = graph->nodes[site->node]; /* the array may move */
    if (node.op == UL_OP_MatMul) {
        if (site->turned)
            inputs[1] = ul_build_transpose(build, factor, turn);
        return ul_build_value(build, UL_OP_MatMul, inputs, 2, NULL);
    }
    ul_value_id made = ul_build_value(build, node.op, inputs, 2, NULL);
    ul_node_id id = graph->values[made].producer;
    if (node.op == UL_OP_Gemm) {
        bool transposes = ul_node_get_int(&node, "transB", 0) != 0;
        ul_node_set_int(graph, id, "transB", site->turned != transposes);
        ul_node_set_int(graph, id, "transA", is_first && ul_node_get_int(&node, "transA", 0) != 0);
    } else if (is_first) {
        graph->nodes[id].attrs = node.attrs;
        graph->nodes[id].attr_count = node.attr_count;
    }
    return made;
}

/* Makes the node's result a sum with the path through the factors. */
static void add_way(struct ul_pass *pass, const struct adapter *adapter, const struct ul_site *site)
{
    struct ul_graph *graph = pass->graph;
    const struct ul_node node = graph->nodes[site->node];
    enum ul_dtype dtype = graph->values[adapter->weight].type.dtype;
    struct ul_build build = ul_build_after(graph, site->node);
    ul_value_id result = node.outputs[0];
    const char *name = graph->values[result].name;
    double scale = pass->options->training->lora_alpha / adapter->request->rank;
    bool right_first = node.op == UL_OP_Conv;
    if (node.op == UL_OP_Gemm) {
        scale *= ul_node_get_float(&node, "alpha", 1);
        right_first = ul_node_get_int(&node, "transB", 0) != 0;
    }
    right_first = right_first != site->turned;
    build.name = ul_arena_printf(graph->arena, "%s/lora_A", name);
    ul_value_id way =
        multiply(&build, site, node.inputs[0], right_first ? adapter->right : adapter->left, true);
    if (scale != 1) {
        build.name = ul_arena_printf(graph->arena, "%s/lora_scale", name);
        const ul_value_id scaled[2] = {way, ul_build_number(graph, build.name, dtype, 0, scale)};
        way = ul_build_value(&build, UL_OP_Mul, scaled, 2, NULL);
    }
    build.name = ul_arena_printf(graph->arena, "%s/lora_B", name);
    way = multiply(&build, site, way, right_first ? adapter->left : adapter->right, false);
    build.name = ul_arena_printf(graph->arena, "%s/lora", name);
    const ul_value_id terms[2] = {result, way};
    ul_node_id add = ul_build_node(&build, UL_OP_Add, terms, 2, 1);
    ul_value_id base = graph->nodes[add].outputs[0];
    graph->values[base].type = graph->values[result].type;
    graph->nodes[add].inputs[0] = base; /* the sum takes over the result's name and readers */
    ul_graph_exchange(graph, result, base);
}

enum ul_status ul_pass_lora(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    struct ul_training *training = pass->options->training;
    uint32_t known_count = graph->value_count, count = 0;
    if (training->lora_count == 0)
        return UL_OK;
    struct adapter *adapters = UL_NEW_ARRAY(pass->scratch, struct adapter, known_count);
    for (uint32_t i = 0; i < training->lora_count; i++)
        UL_TRY(find_named(pass, &training->lora[i], adapters));
    for (uint32_t v = 0; v < known_count; v++)
        count += adapters[v].request != NULL;
    training->factors = UL_NEW_ARRAY(graph->arena, uint32_t, 2 * (uint64_t)count);
    training->factor_count = 0;
    for (uint32_t v = 0; v < known_count; v++) {
        if (adapters[v].request == NULL)
            continue;
        if (ul_edit_matches_any(training->train_only, training->train_only_count,
                                graph->values[v].name))
            return ul_diag_set(pass->diag, UL_USAGE,
                               "--train-only: --lora has factors beside %s, which stays what it "
                               "is: leave it out of one of them",
                               ul_quote(pass->scratch, graph->values[v].name));
        add_factors(pass, &adapters[v]);
        for (uint32_t i = 0; i < adapters[v].sites.count; i++)
            add_way(pass, &adapters[v], &adapters[v].sites.items[i]);
    }
    return UL_OK;
}
