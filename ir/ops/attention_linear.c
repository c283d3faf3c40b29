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
#include "ir/kernel_build.h"
#include "ir/ops/hooks.h"
#include "ir/ops/lanes.h"
#include "ir/ops/require.h"

#include <math.h>

enum input { QUERY, KEY, VALUE, PAST, DECAY, BETA };
enum dim { BATCH, HEAD, TOKEN, ROW, COLUMN, DIMS }; /* of a key's head; ROW, COLUMN: of its state */

enum rule { GATED_DELTA, LINEAR, GATED, DELTA };
static const char *const update_rules[] = {"gated_delta", "linear", "gated", "delta", NULL};

struct linear {
    int64_t dims[DIMS];
    int64_t group; /* heads of queries for one of keys */
    bool is_gated, is_delta;
    bool decays_rows, shares_beta; /* a decay for each row of S; one beta for all heads */
    double scale;
};

/* Of types that check_sizes has found to fit. */
static void read_linear(struct linear *linear, const struct ul_node *node,
                        const struct ul_type *query, const struct ul_type *value,
                        const struct ul_type *decay, const struct ul_type *beta)
{
    int64_t heads = ul_node_get_int(node, "kv_num_heads", 1);
    int64_t query_heads = ul_node_get_int(node, "q_num_heads", 1);
    uint32_t rule = ul_node_choice(node, "update_rule", update_rules);
    *linear = (struct linear){
        .dims = {[BATCH] = query->dims[0],
                 [HEAD] = heads,
                 [TOKEN] = query->dims[1],
                 [ROW] = query->dims[2] / query_heads,
                 [COLUMN] = value->dims[2] / heads},
        .group = query_heads / heads,
        .is_gated = rule == GATED_DELTA || rule == GATED,
        .is_delta = rule == GATED_DELTA || rule == DELTA,
        .scale = ul_node_get_float(node, "scale", 0),
    };
    int64_t rows = heads * linear->dims[ROW];
    linear->decays_rows = decay != NULL && decay->rank == 3 && decay->dims[2] == rows;
    linear->shares_beta = beta != NULL && beta->rank == 3 && beta->dims[2] == 1;
    if (!(linear->scale < 0 || linear->scale > 0)) /* 0 stands for the usual one */
        linear->scale = 1 / sqrt((double)linear->dims[ROW]);
}

static enum ul_status check_sizes(const struct ul_infer *infer)
{
    int64_t heads = ul_node_get_int(infer->node, "kv_num_heads", 0);
    int64_t query_heads = ul_node_get_int(infer->node, "q_num_heads", 0);
    uint32_t rule;
    UL_TRY(ul_require_choice(infer, "update_rule", update_rules, &rule));
    for (uint32_t i = QUERY; i <= BETA; i++)
        UL_TRY(ul_check_dtype(infer, i, UL_CHECK_FLOATS));
    for (uint32_t i = QUERY; i <= VALUE; i++)
        UL_TRY(ul_check_rank(infer, i, 3, 3));
    UL_TRY(ul_check_range(infer, "kv_num_heads", heads, 1, UL_LIMIT_DIM));
    UL_TRY(ul_check_range(infer, "q_num_heads", query_heads, 1, UL_LIMIT_DIM));
    const struct ul_type *query = ul_infer_input(infer, QUERY);
    const struct ul_type *value = ul_infer_input(infer, VALUE);
    if (query_heads % heads != 0 || query->dims[2] % query_heads != 0 ||
        value->dims[2] % heads != 0)
        return ul_infer_invalid(infer, "heads that do not divide the operands, or each other");
    int64_t rows = query->dims[2] / query_heads * heads;
    int64_t key[] = {query->dims[0], query->dims[1], rows};
    UL_TRY(ul_check_shape(infer, KEY, 3, key));
    return ul_check_shape(infer, VALUE, 3, (int64_t[]){key[0], key[1], value->dims[2]});
}

/* One number for each head of a token, or, where `is_other`, as many as `other`. */
static enum ul_status check_gate(const struct ul_infer *infer, const struct linear *linear,
                                 enum input input, bool is_other, int64_t other)
{
    int64_t dims[] = {linear->dims[BATCH], linear->dims[TOKEN],
                      is_other ? other : linear->dims[HEAD]};
    if (ul_infer_input(infer, input) == NULL)
        return ul_infer_invalid(infer, "input %u is required by the update_rule", (unsigned)input);
    return ul_check_shape(infer, input, 3, dims);
}

enum ul_status ul_infer_linear_attention(struct ul_infer *infer)
{
    UL_TRY(check_sizes(infer));
    const struct ul_type *query = ul_infer_input(infer, QUERY), *past = ul_infer_input(infer, PAST);
    struct linear linear;
    read_linear(&linear, infer->node, query, ul_infer_input(infer, VALUE),
                ul_infer_input(infer, DECAY), ul_infer_input(infer, BETA));
    const int64_t *dims = linear.dims;
    if (linear.is_gated)
        UL_TRY(check_gate(infer, &linear, DECAY, linear.decays_rows, dims[HEAD] * dims[ROW]));
    if (linear.is_delta)
        UL_TRY(check_gate(infer, &linear, BETA, linear.shares_beta, 1));
    int64_t state[] = {dims[BATCH], dims[HEAD], dims[ROW], dims[COLUMN]};
    int64_t output[] = {dims[BATCH], dims[TOKEN], linear.group * dims[HEAD] * dims[COLUMN]};
    if (past != NULL)
        UL_TRY(ul_check_shape(infer, PAST, 4, state));
    ul_infer_set(infer, 0, query->dtype, 3, output);
    ul_infer_set(infer, 1, past != NULL ? past->dtype : query->dtype, 4, state);
    return UL_OK;
}

struct builder {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    struct linear linear;
    struct ul_lanes lanes; /* over linear.dims */
    enum ul_dtype dtype;   /* computed in */
    uint32_t state;        /* [ROW][lanes] */
};

/* Element `at` of head `head` of a token's operand, where a head has `size` of them. */
static ul_kx load_token(struct builder *b, enum input input, ul_kx head, int64_t size, ul_kx at)
{
    ul_kx index[] = {b->lanes.index[BATCH], b->lanes.index[TOKEN],
                     ul_kx_add(b->kernel, ul_kx_muli(b->kernel, head, size), at)};
    return ul_kx_cast(b->kernel, b->dtype, ul_lower_load(b->lower, b->node->inputs[input], index));
}

/* One of the head's numbers, which all lanes share. */
static ul_kx load_row(struct builder *b, enum input input)
{
    return load_token(b, input, b->lanes.index[HEAD], b->linear.dims[ROW], b->lanes.index[ROW]);
}

static ul_kx decay_factor(struct builder *b, bool of_row)
{
    ul_kx zero = ul_kx_index_const(b->kernel, 0);
    ul_kx decay = of_row ? load_row(b, DECAY) : load_token(b, DECAY, b->lanes.index[HEAD], 1, zero);
    return ul_ks_let(b->kernel, ul_kx_unary(b->kernel, UL_KX_EXP, decay));
}

static ul_kx state_at(const struct builder *b)
{
    if (b->lanes.lane_dim == UL_NONE)
        return b->lanes.index[ROW];
    return ul_kx_add(b->kernel, ul_kx_muli(b->kernel, b->lanes.index[ROW], b->lanes.width),
                     b->lanes.lane);
}

/* sum += factor * S of the row, for each lane. */
static void add_row(struct builder *b, struct ul_lane_var sum, ul_kx factor, ul_kx state)
{
    ul_lanes_set(
        &b->lanes, sum,
        ul_kx_add(b->kernel, ul_lanes_get(&b->lanes, sum), ul_kx_mul(b->kernel, factor, state)));
}

/* S = past, or 0; or present = S. */
static void copy_state(struct builder *b, bool is_present)
{
    struct ul_lanes *lanes = &b->lanes;
    ul_lanes_loop(lanes, 1u << ROW, 0);
    ul_lanes_begin(lanes);
    ul_kx index[] = {lanes->index[BATCH], lanes->index[HEAD], lanes->index[ROW],
                     lanes->index[COLUMN]};
    if (is_present)
        ul_lower_store(b->lower, b->node->outputs[1], index,
                       ul_kx_load(b->kernel, b->state, state_at(b)));
    else if (b->node->input_count > PAST && b->node->inputs[PAST] != UL_NONE)
        ul_ks_store(
            b->kernel, b->state, state_at(b),
            ul_kx_cast(b->kernel, b->dtype, ul_lower_load(b->lower, b->node->inputs[PAST], index)));
    else
        ul_ks_store(b->kernel, b->state, state_at(b), ul_kx_number(b->kernel, b->dtype, 0));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << ROW);
}

/* S *= exp(decay), and S key, where the rule asks for it. */
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
    ul_lanes_loop(lanes, 1u << ROW, 0);
    if (b->linear.is_gated && by_row)
        factor = decay_factor(b, true);
    if (b->linear.is_delta)
        key = ul_ks_let(b->kernel, load_row(b, KEY));
    ul_lanes_begin(lanes);
    ul_kx state = ul_kx_load(b->kernel, b->state, state_at(b));
    if (b->linear.is_gated) {
        state = ul_ks_let(b->kernel, ul_kx_mul(b->kernel, state, factor));
        ul_ks_store(b->kernel, b->state, state_at(b), state);
    }
    if (b->linear.is_delta)
        add_row(b, known, key, state);
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << ROW);
    return known;
}

/* S += key u, with u = value, or beta times what of it S does not know. */
static void update_state(struct builder *b, struct ul_lane_var known)
{
    struct ul_lanes *lanes = &b->lanes;
    ul_kx beta = UL_NONE, zero = ul_kx_index_const(b->kernel, 0);
    if (b->linear.is_delta)
        beta = ul_ks_let(
            b->kernel,
            load_token(b, BETA, b->linear.shares_beta ? zero : lanes->index[HEAD], 1, zero));
    ul_lanes_begin(lanes);
    ul_kx update =
        load_token(b, VALUE, lanes->index[HEAD], b->linear.dims[COLUMN], lanes->index[COLUMN]);
    if (b->linear.is_delta)
        update =
            ul_kx_mul(b->kernel, beta, ul_kx_sub(b->kernel, update, ul_lanes_get(lanes, known)));
    ul_lanes_set(lanes, known, update);
    ul_lanes_end(lanes);
    ul_lanes_loop(lanes, 1u << ROW, 0);
    ul_kx key = ul_ks_let(b->kernel, load_row(b, KEY));
    ul_lanes_begin(lanes);
    ul_kx state = ul_kx_load(b->kernel, b->state, state_at(b));
    ul_ks_store(b->kernel, b->state, state_at(b),
                ul_kx_add(b->kernel, state, ul_kx_mul(b->kernel, key, ul_lanes_get(lanes, known))));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << ROW);
}

/* output = scale query S, for each head of the group. */
static void store_outputs(struct builder *b)
{
    struct ul_lanes *lanes = &b->lanes;
    struct ul_kernel *k = b->kernel;
    ul_kx query = ul_ks_for(k, b->linear.group, 0);
    ul_kx head = ul_kx_add(k, ul_kx_muli(k, lanes->index[HEAD], b->linear.group), query);
    struct ul_lane_var sum = ul_lanes_var(lanes, b->dtype, ul_kx_number(k, b->dtype, 0));
    ul_lanes_loop(lanes, 1u << ROW, 0);
    ul_kx factor = ul_ks_let(k, load_token(b, QUERY, head, b->linear.dims[ROW], lanes->index[ROW]));
    ul_lanes_begin(lanes);
    add_row(b, sum, factor, ul_kx_load(k, b->state, state_at(b)));
    ul_lanes_end(lanes);
    ul_lanes_loop_end(lanes, 1u << ROW);
    ul_lanes_begin(lanes);
    ul_kx index[] = {
        lanes->index[BATCH], lanes->index[TOKEN],
        ul_kx_add(k, ul_kx_muli(k, head, b->linear.dims[COLUMN]), lanes->index[COLUMN])};
    ul_lower_store(
        b->lower, b->node->outputs[0], index,
        ul_kx_mul(k, ul_lanes_get(lanes, sum), ul_kx_float(k, b->dtype, b->linear.scale)));
    ul_lanes_end(lanes);
    ul_ks_end(k);
}

void ul_lower_linear_attention(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *types[BETA + 1] = {NULL};
    for (uint32_t i = QUERY; i <= BETA; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    struct builder b = {.lower = lower,
                        .kernel = lower->kernel,
                        .node = ul_check_node(lower, node),
                        .dtype = ul_compute_dtype(types[QUERY]->dtype)};
    read_linear(&b.linear, b.node, types[QUERY], types[VALUE], types[DECAY], types[BETA]);
    uint32_t kept = ul_lanes_all(DIMS) & ~(1u << TOKEN | 1u << ROW);
    ul_lanes_open_order(&b.lanes, lower, DIMS, b.linear.dims, NULL, kept);
    int64_t width = b.lanes.lane_dim == UL_NONE ? 1 : b.lanes.width;
    b.state = ul_lower_scratch(lower, b.dtype, (uint64_t)(b.linear.dims[ROW] * width));
    copy_state(&b, false);
    ul_lanes_loop(&b.lanes, 1u << TOKEN, 0);
    struct ul_lane_var known = decay_state(&b);
    update_state(&b, known);
    store_outputs(&b);
    ul_lanes_loop_end(&b.lanes, 1u << TOKEN);
    if (ul_lower_has_output(lower, node, 1))
        copy_state(&b, true);
    ul_lanes_close(&b.lanes);
}
