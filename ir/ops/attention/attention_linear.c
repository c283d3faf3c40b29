/* SPDX-License-Identifier: Apache-2.0 */
/* LinearAttention: attention with a state in place of keys and values (DeltaNet, RetNet, GLA).
 *
 * A head of keys has a state S of [size, value_size], and one column of it depends on no other:
 *
 *     for batch, head, block of columns:                   lanes; S is scratch, [size][lanes]
 *         S = past, or 0
 *         for token:
 *             S *= exp(decay)                              gated
 *             u = value, less S key, times beta            (delta)
 *             S += key u
 *             for query head of the group:  output = scale query S
 *         present = S
 */
#include "ir/ops/attention/attention_linear.h"
#include "ir/kernel_build.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/lanes.h"
#include "ir/ops/require.h"

#include <math.h>

static const char *const update_rules[] = {"gated_delta", "linear", "gated", "delta", NULL};

enum rule { GATED_DELTA, LINEAR, GATED, DELTA };

void ul_linear_read(struct ul_linear *linear, const struct ul_node *node,
                    const struct ul_type *query, const struct ul_type *value,
                    const struct ul_type *decay, const struct ul_type *beta)
{
    int64_t heads = ul_node_get_int(node, "kv_num_heads", 1);
    int64_t query_heads = ul_node_get_int(node, "q_num_heads", 1);
    uint32_t rule = ul_node_choice(node, "update_rule", update_rules);
    *linear = (struct ul_linear){
        .dims = {[UL_LINEAR_BATCH] = query->dims[0],
                 [UL_LINEAR_HEAD] = heads,
                 [UL_LINEAR_TOKEN] = query->dims[1],
                 [UL_LINEAR_ROW] = query->dims[2] / query_heads,
                 [UL_LINEAR_COLUMN] = value->dims[2] / heads},
        .group = query_heads / heads,
        .is_gated = rule == GATED_DELTA || rule == GATED,
        .is_delta = rule == GATED_DELTA || rule == DELTA,
        .scale = ul_node_get_float(node, "scale", 0),
    };
    int64_t rows = heads * linear->dims[UL_LINEAR_ROW];
    linear->decays_rows = decay != NULL && decay->rank == 3 && decay->dims[2] == rows;
    linear->shares_beta = beta != NULL && beta->rank == 3 && beta->dims[2] == 1;
    if (!(linear->scale < 0 || linear->scale > 0)) /* 0 stands for the usual one */
        linear->scale = 1 / sqrt((double)linear->dims[UL_LINEAR_ROW]);
}

static enum ul_status check_sizes(const struct ul_infer *infer)
{
    int64_t heads = ul_node_get_int(infer->node, "kv_num_heads", 0);
    int64_t query_heads = ul_node_get_int(infer->node, "q_num_heads", 0);
    uint32_t rule;
    UL_TRY(ul_require_choice(infer, "update_rule", update_rules, &rule));
    for (uint32_t i = UL_LINEAR_QUERY; i <= UL_LINEAR_BETA; i++)
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
    for (uint32_t i = UL_LINEAR_QUERY; i <= UL_LINEAR_VALUE; i++)
        UL_TRY(ul_check_rank(infer, i, 3, 3));
    UL_TRY(ul_check_range(infer, "kv_num_heads", heads, 1, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "q_num_heads", query_heads, 1, UL_LIMIT_DIM));
    const struct ul_type *query = ul_infer_input(infer, UL_LINEAR_QUERY);
    const struct ul_type *value = ul_infer_input(infer, UL_LINEAR_VALUE);
    if (query_heads % heads != 0 || query->dims[2] % query_heads != 0 ||
        value->dims[2] % heads != 0)
        return ul_infer_invalid(infer, "heads that do not divide the operands, or each other");
    int64_t rows = query->dims[2] / query_heads * heads;
    int64_t key[] = {query->dims[0], query->dims[1], rows};
    UL_TRY(ul_check_shape(infer, UL_LINEAR_KEY, 3, key));
    return ul_check_shape(infer, UL_LINEAR_VALUE, 3, (int64_t[]){key[0], key[1], value->dims[2]});
}

/* Checks a gate: one number for each head of a token or, where `is_other`, as many as `other`
 * has. */
static enum ul_status check_gate(const struct ul_infer *infer, const struct ul_linear *linear,
                                 enum ul_linear_input input, bool is_other, int64_t other)
{
    int64_t dims[] = {linear->dims[UL_LINEAR_BATCH], linear->dims[UL_LINEAR_TOKEN],
                      is_other ? other : linear->dims[UL_LINEAR_HEAD]};
    if (ul_infer_input(infer, input) == NULL)
        return ul_infer_invalid(infer, "input %u is required by the update_rule", (unsigned)input);
    return ul_check_shape(infer, input, 3, dims);
}

enum ul_status ul_infer_linear_attention(struct ul_infer *infer)
{
    UL_TRY(check_sizes(infer));
    const struct ul_type *query = ul_infer_input(infer, UL_LINEAR_QUERY),
                         *past = ul_infer_input(infer, UL_LINEAR_PAST);
    struct ul_linear linear;
    ul_linear_read(&linear, infer->node, query, ul_infer_input(infer, UL_LINEAR_VALUE),
                   ul_infer_input(infer, UL_LINEAR_DECAY), ul_infer_input(infer, UL_LINEAR_BETA));
    const int64_t *dims = linear.dims;
    if (linear.is_gated)
        UL_TRY(check_gate(infer, &linear, UL_LINEAR_DECAY, linear.decays_rows,
                          dims[UL_LINEAR_HEAD] * dims[UL_LINEAR_ROW]));
    if (linear.is_delta)
        UL_TRY(check_gate(infer, &linear, UL_LINEAR_BETA, linear.shares_beta, 1));
    int64_t state[] = {dims[UL_LINEAR_BATCH], dims[UL_LINEAR_HEAD], dims[UL_LINEAR_ROW],
                       dims[UL_LINEAR_COLUMN]};
    int64_t output[] = {dims[UL_LINEAR_BATCH], dims[UL_LINEAR_TOKEN],
                        linear.group * dims[UL_LINEAR_HEAD] * dims[UL_LINEAR_COLUMN]};
    if (past != NULL)
        UL_TRY(ul_check_shape(infer, UL_LINEAR_PAST, 4, state));
    ul_infer_set(infer, 0, query->dtype, 3, output);
    ul_infer_set(infer, 1, past != NULL ? past->dtype : query->dtype, 4, state);
    return UL_OK;
}

struct builder {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    struct ul_linear linear;
    struct ul_lanes lanes; /* over linear.dims */
    enum ul_dtype dtype;   /* computed in */
    uint32_t state;        /* [UL_LINEAR_ROW][lanes] */
};

/* Loads element `at` of head `head` of a token's operand, whose heads have `size` elements. */
static ul_kx load_token(struct builder *b, enum ul_linear_input input, ul_kx head, int64_t size,
                        ul_kx at)
{
    ul_kx index[] = {b->lanes.index[UL_LINEAR_BATCH], b->lanes.index[UL_LINEAR_TOKEN],
                     ul_kx_add(b->kernel, ul_kx_muli(b->kernel, head, size), at)};
    return ul_kx_cast(b->kernel, b->dtype, ul_lower_load(b->lower, b->node->inputs[input], index));
}

/* Loads one number of the head, which all lanes share. */
static ul_kx load_row(struct builder *b, enum ul_linear_input input)
{
    return load_token(b, input, b->lanes.index[UL_LINEAR_HEAD], b->linear.dims[UL_LINEAR_ROW],
                      b->lanes.index[UL_LINEAR_ROW]);
}

static ul_kx decay_factor(struct builder *b, bool of_row)
{
    ul_kx zero = ul_kx_index_const(b->kernel, 0);
    ul_kx decay = of_row ? load_row(b, UL_LINEAR_DECAY)
                         : load_token(b, UL_LINEAR_DECAY, b->lanes.index[UL_LINEAR_HEAD], 1, zero);
    return ul_ks_let(b->kernel, ul_kx_unary(b->kernel, UL_KX_EXP, decay));
}

static ul_kx state_at(const struct builder *b)
{
    if (b->lanes.lane_dim == UL_NONE)
        return b->lanes.index[UL_LINEAR_ROW];
    return ul_kx_add(b->kernel,
                     ul_kx_muli(b->kernel, b->lanes.index[UL_LINEAR_ROW], b->lanes.width),
                     b->lanes.lane);
}

/* sum += factor * the row of S, for each lane. */
static void add_row(struct builder *b, struct ul_lane_var sum, ul_kx factor, ul_kx state)
{
    ul_lanes_set(
        &b->lanes, sum,
        ul_kx_add(b->kernel, ul_lanes_get(&b->lanes, sum), ul_kx_mul(b->kernel, factor, state)));
}

/* S = past, or 0; where `is_present`: present = S. */
static void copy_state(struct builder *b, bool is_present)
{
    struct ul_lanes *lanes = &b->lanes;
    ul_lanes_loop(lanes, 1u << UL_LINEAR_ROW, 0);
    ul_lanes_begin(lanes);
    ul_kx index[] = {lanes->index[UL_LINEAR_BATCH], lanes->index[UL_LINEAR_HEAD],
                     lanes->index[UL_LINEAR_ROW], lanes->index[UL_LINEAR_COLUMN]};
    if (is_present)
        ul_lower_store(b->lower, b->node->outputs[1], index,
                       ul_kx_load(b->kernel, b->state, state_at(b)));
    else if (b->node->input_count > UL_LINEAR_PAST && b->node->inputs[UL_LINEAR_PAST] != UL_NONE)
        ul_ks_store(b->kernel, b->state, state_at(b),
                    ul_kx_cast(b->kernel, b->dtype,
                               ul_lower_load(b->lower, b->node->inputs[UL_LINEAR_PAST], index)));
    else
        ul_ks_store(b->kernel, b->state, state_at(b), ul_kx_number(b->kernel, b->dtype, 0));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << UL_LINEAR_ROW);
}

/* S *= exp(decay), then S key, where the rule asks for it. */
static struct ul_lane_var decay_state(struct builder *b)
{
    struct ul_lanes *lanes = &b->lanes;
    struct ul_lane_var known = ul_lanes_var(lanes, b->dtype, ul_kx_number(b->kernel, b->dtype, 0));
    bool by_row = b->linear.decays_rows;
    ul_kx factor = UL_NONE, key = UL_NONE;
    if (!b->linear.is_gated && !b->linear.is_delta)
        return known;
    if (b->linear.is_gated && !by_row)
        factor = decay_factor(b, false);
    ul_lanes_loop(lanes, 1u << UL_LINEAR_ROW, 0);
    if (b->linear.is_gated && by_row)
        factor = decay_factor(b, true);
    if (b->linear.is_delta)
        key = ul_ks_let(b->kernel, load_row(b, UL_LINEAR_KEY));
    ul_lanes_begin(lanes);
    ul_kx state = ul_kx_load(b->kernel, b->state, state_at(b));
    if (b->linear.is_gated) {
        state = ul_ks_let(b->kernel, ul_kx_mul(b->kernel, state, factor));
        ul_ks_store(b->kernel, b->state, state_at(b), state);
    }
    if (b->linear.is_delta)
        add_row(b, known, key, state);
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << UL_LINEAR_ROW);
    return known;
}

/* S += key u, with u = value, or with u = beta times the part of the value that S does not know. */
static void update_state(struct builder *b, struct ul_lane_var known)
{
    struct ul_lanes *lanes = &b->lanes;
    ul_kx beta = UL_NONE, zero = ul_kx_index_const(b->kernel, 0);
    if (b->linear.is_delta)
        beta = ul_ks_let(b->kernel,
                         load_token(b, UL_LINEAR_BETA,
                                    b->linear.shares_beta ? zero : lanes->index[UL_LINEAR_HEAD], 1,
                                    zero));
    ul_lanes_begin(lanes);
    ul_kx update = load_token(b, UL_LINEAR_VALUE, lanes->index[UL_LINEAR_HEAD],
                              b->linear.dims[UL_LINEAR_COLUMN], lanes->index[UL_LINEAR_COLUMN]);
    if (b->linear.is_delta)
        update =
            ul_kx_mul(b->kernel, beta, ul_kx_sub(b->kernel, update, ul_lanes_get(lanes, known)));
    ul_lanes_set(lanes, known, update);
    ul_lanes_end(lanes);
    ul_lanes_loop(lanes, 1u << UL_LINEAR_ROW, 0);
    ul_kx key = ul_ks_let(b->kernel, load_row(b, UL_LINEAR_KEY));
    ul_lanes_begin(lanes);
    ul_kx state = ul_kx_load(b->kernel, b->state, state_at(b));
    ul_ks_store(b->kernel, b->state, state_at(b),
                ul_kx_add(b->kernel, state, ul_kx_mul(b->kernel, key, ul_lanes_get(lanes, known))));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << UL_LINEAR_ROW);
}

/* output = scale query S, for each head of the group. */
static void store_outputs(struct builder *b)
{
    struct ul_lanes *lanes = &b->lanes;
    struct ul_kernel *k = b->kernel;
    ul_kx query = ul_ks_for(k, b->linear.group, 0);
    ul_kx head = ul_kx_add(k, ul_kx_muli(k, lanes->index[UL_LINEAR_HEAD], b->linear.group), query);
    struct ul_lane_var sum = ul_lanes_var(lanes, b->dtype, ul_kx_number(k, b->dtype, 0));
    ul_lanes_loop(lanes, 1u << UL_LINEAR_ROW, 0);
    ul_kx factor = ul_ks_let(k, load_token(b, UL_LINEAR_QUERY, head, b->linear.dims[UL_LINEAR_ROW],
                                           lanes->index[UL_LINEAR_ROW]));
    ul_lanes_begin(lanes);
    add_row(b, sum, factor, ul_kx_load(k, b->state, state_at(b)));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << UL_LINEAR_ROW);
    ul_lanes_begin(lanes);
    ul_kx index[] = {lanes->index[UL_LINEAR_BATCH], lanes->index[UL_LINEAR_TOKEN],
                     ul_kx_add(k, ul_kx_muli(k, head, b->linear.dims[UL_LINEAR_COLUMN]),
                               lanes->index[UL_LINEAR_COLUMN])};
    ul_lower_store(
        b->lower, b->node->outputs[0], index,
        ul_kx_mul(k, ul_lanes_get(lanes, sum), ul_kx_float(k, b->dtype, b->linear.scale)));
    ul_lanes_end(lanes);
    ul_ks_end(k);
}

void ul_lower_linear_attention(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *types[UL_LINEAR_BETA + 1] = {NULL};
    for (uint32_t i = UL_LINEAR_QUERY; i <= UL_LINEAR_BETA; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    struct builder b = {.lower = lower,
                        .kernel = lower->kernel,
                        .node = ul_check_node(lower, node),
                        .dtype = ul_compute_dtype(types[UL_LINEAR_QUERY]->dtype)};
    ul_linear_read(&b.linear, b.node, types[UL_LINEAR_QUERY], types[UL_LINEAR_VALUE],
                   types[UL_LINEAR_DECAY], types[UL_LINEAR_BETA]);
    uint32_t kept = ul_lanes_all(UL_LINEAR_DIMS) & ~(1u << UL_LINEAR_TOKEN | 1u << UL_LINEAR_ROW);
    ul_lanes_open_order(&b.lanes, lower, UL_LINEAR_DIMS, b.linear.dims, NULL, kept);
    int64_t width = b.lanes.lane_dim == UL_NONE ? 1 : b.lanes.width;
    b.state = ul_lower_scratch(lower, b.dtype, (uint64_t)(b.linear.dims[UL_LINEAR_ROW] * width));
    copy_state(&b, false);
    ul_lanes_loop(&b.lanes, 1u << UL_LINEAR_TOKEN, 0);
    struct ul_lane_var known = decay_state(&b);
    update_state(&b, known);
    store_outputs(&b);
    ul_lanes_loop_end(&b.lanes, 1u << UL_LINEAR_TOKEN);
    if (ul_lower_has_output(lower, node, 1))
        copy_state(&b, true);
    ul_lanes_close(&b.lanes);
}
