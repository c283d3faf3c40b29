/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient of LinearAttention. A pass forwards keeps the states in scratch; the pass backwards
 * has dS, the gradient of the state, in place (S' is the state that has decayed, u what the key is
 * stored with):
 *
 *     for tokens, last first:
 *         for query head:  dquery = scale S dout    dS += scale query dout^T
 *         du = dS^T key    dkey = dS u
 *         dvalue = du      or, of a delta, with known = S'^T key:
 *             dvalue = beta du    dbeta = du (value - known)    dknown = - beta du
 *             dS += key dknown^T    dkey += S' dknown
 *         ddecay = dS S'   dS *= exp(decay)       gated
 *
 * Batches and heads of keys are independent. */
#include "ir/kernel_build.h"
#include "ir/op_names.h"
#include "ir/ops/attention/attention.def"
#include "ir/ops/attention/attention_linear.h"
#include "ir/ops/backward.def"
#include "ir/ops/check.h"

struct backward {
    struct ul_lower *lower;
    struct ul_kernel *kernel;
    const struct ul_node *node;
    ul_node_id id;
    struct ul_linear linear;
    enum ul_dtype dtype;
    int64_t rows, columns;
    /* scratch: [token][row][column] before each token; [row][column]: S', dS; [column]: what S'
     * knows, u, du, dknown; [row]: dkey, the decay's factor */
    uint32_t states, decayed, slopes, known, update, du, dknown, dkey, factor;
    ul_kx batch, head, token;
};

/* Outputs: the same as the inputs, without those that the rule does not take. */
enum { OUT_DECAY = 4 };

static uint32_t out_beta(const struct ul_linear *linear)
{
    return OUT_DECAY + (linear->is_gated ? 1 : 0);
}

enum ul_status ul_infer_linear_attention_gradient(struct ul_infer *infer)
{
    const struct ul_type *types[UL_LINEAR_GRADIENT_INPUTS];
    struct ul_linear linear;
    for (uint32_t i = 0; i < UL_LINEAR_GRADIENT_INPUTS; i++)
        types[i] = ul_infer_input(infer, i);
    ul_linear_read(&linear, infer->node, types[UL_LINEAR_QUERY], types[UL_LINEAR_VALUE],
                   types[UL_LINEAR_DECAY], types[UL_LINEAR_BETA]);
    const int64_t *dims = linear.dims;
    const int64_t state[] = {dims[UL_LINEAR_BATCH], dims[UL_LINEAR_HEAD], dims[UL_LINEAR_ROW],
                             dims[UL_LINEAR_COLUMN]};
    const int64_t gate[] = {dims[UL_LINEAR_BATCH], dims[UL_LINEAR_TOKEN], dims[UL_LINEAR_HEAD]};
    enum ul_dtype dtype = types[UL_LINEAR_QUERY]->dtype;
    for (uint32_t i = UL_LINEAR_QUERY; i <= UL_LINEAR_VALUE; i++)
        ul_infer_set_type(infer, i, types[i]);
    ul_infer_set(infer, UL_LINEAR_PAST, dtype, 4, state);
    if (linear.is_gated)
        ul_infer_set_type(infer, OUT_DECAY, types[UL_LINEAR_DECAY]);
    if (linear.is_delta)
        ul_infer_set(infer, out_beta(&linear), dtype, 3, gate);
    return UL_OK;
}

/* ---- Places ---- */

static ul_kx mul(const struct backward *b, ul_kx x, ul_kx y)
{
    return ul_kx_mul(b->kernel, x, y);
}

static ul_kx load(const struct backward *b, uint32_t buffer, ul_kx at)
{
    return ul_kx_load(b->kernel, buffer, at);
}

static void add_to(const struct backward *b, uint32_t buffer, ul_kx at, ul_kx x)
{
    ul_ks_store(b->kernel, buffer, at, ul_kx_add(b->kernel, load(b, buffer, at), x));
}

static ul_kx cell(const struct backward *b, ul_kx row, ul_kx column)
{
    return ul_kx_add(b->kernel, ul_kx_muli(b->kernel, row, b->columns), column);
}

static ul_kx cell_of(const struct backward *b, ul_kx token, ul_kx row, ul_kx column)
{
    ul_kx first = ul_kx_muli(b->kernel, token, b->rows * b->columns);
    return ul_kx_add(b->kernel, first, cell(b, row, column));
}

/* Element `at` of a head with `size` elements, for the token. */
static void place_of(const struct backward *b, ul_kx head, int64_t size, ul_kx at, ul_kx index[3])
{
    index[0] = b->batch;
    index[1] = b->token;
    index[2] = ul_kx_add(b->kernel, ul_kx_muli(b->kernel, head, size), at);
}

static ul_kx load_token(const struct backward *b, uint32_t input, ul_kx head, int64_t size,
                        ul_kx at)
{
    ul_kx index[3];
    place_of(b, head, size, at, index);
    return ul_kx_cast(b->kernel, b->dtype, ul_lower_load(b->lower, b->node->inputs[input], index));
}

static void store_token(const struct backward *b, uint32_t output, ul_kx head, int64_t size,
                        ul_kx at, ul_kx x)
{
    ul_kx index[3];
    if (!ul_lower_has_output(b->lower, b->id, output))
        return;
    place_of(b, head, size, at, index);
    ul_lower_store(b->lower, b->node->outputs[output], index, x);
}

static ul_kx load_key(const struct backward *b, ul_kx row)
{
    return ul_ks_let(b->kernel, load_token(b, UL_LINEAR_KEY, b->head, b->rows, row));
}

static ul_kx open_rows(const struct backward *b)
{
    return ul_ks_for(b->kernel, b->rows, 0);
}

static ul_kx open_columns(const struct backward *b)
{
    return ul_ks_for(b->kernel, b->columns, UL_FOR_PARALLEL);
}

static void close(const struct backward *b, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ul_ks_end(b->kernel);
}

static void clear(const struct backward *b, uint32_t buffer)
{
    ul_ks_store(b->kernel, buffer, open_columns(b), ul_kx_number(b->kernel, b->dtype, 0));
    close(b, 1);
}

/* The sum over columns of a row's x[column] y[column]. */
struct sum {
    uint32_t id;
    ul_kx column;
};

static struct sum open_sum(const struct backward *b)
{
    struct sum sum = {.id = ul_ks_var(b->kernel, b->dtype, ul_kx_number(b->kernel, b->dtype, 0))};
    sum.column = ul_ks_for(b->kernel, b->columns, UL_FOR_REDUCE);
    return sum;
}

static ul_kx close_sum(const struct backward *b, const struct sum *sum, ul_kx term)
{
    ul_ks_set(b->kernel, sum->id, ul_kx_add(b->kernel, ul_kx_var(b->kernel, sum->id), term));
    ul_ks_end(b->kernel);
    return ul_kx_var(b->kernel, sum->id);
}

/* ---- A token ---- */

static ul_kx load_beta(const struct backward *b)
{
    ul_kx zero = ul_kx_index_const(b->kernel, 0);
    ul_kx head = b->linear.shares_beta ? zero : b->head;
    return ul_ks_let(b->kernel, load_token(b, UL_LINEAR_BETA, head, 1, zero));
}

/* Forms S', what it knows of the key, and u. */
static void step_state(const struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    clear(b, b->known);
    ul_kx row = open_rows(b), key = load_key(b, row), factor = UL_NONE;
    if (b->linear.is_gated) {
        bool by_row = b->linear.decays_rows;
        ul_kx decay = load_token(b, UL_LINEAR_DECAY, b->head, by_row ? b->rows : 1,
                                 by_row ? row : ul_kx_index_const(k, 0));
        factor = ul_ks_let(k, ul_kx_unary(k, UL_KX_EXP, decay));
        ul_ks_store(k, b->factor, row, factor);
    }
    ul_kx column = open_columns(b);
    ul_kx state = load(b, b->states, cell_of(b, b->token, row, column));
    if (factor != UL_NONE)
        state = mul(b, state, factor);
    state = ul_ks_let(k, state);
    ul_ks_store(k, b->decayed, cell(b, row, column), state);
    add_to(b, b->known, column, mul(b, key, state));
    close(b, 2);
    ul_kx beta = b->linear.is_delta ? load_beta(b) : UL_NONE;
    column = open_columns(b);
    ul_kx value = load_token(b, UL_LINEAR_VALUE, b->head, b->columns, column);
    if (b->linear.is_delta)
        value = mul(b, beta, ul_kx_sub(k, value, load(b, b->known, column)));
    ul_ks_store(k, b->update, column, value);
    close(b, 1);
}

static void run_forwards(const struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    step_state(b);
    ul_kx row = open_rows(b), key = load_key(b, row), column = open_columns(b);
    ul_kx next = ul_kx_addi(k, b->token, 1);
    ul_kx state = ul_kx_add(k, load(b, b->decayed, cell(b, row, column)),
                            mul(b, key, load(b, b->update, column)));
    ul_ks_store(k, b->states, cell_of(b, next, row, column), state);
    close(b, 2);
}

static ul_kx load_gradient(const struct backward *b, ul_kx head, ul_kx column)
{
    if (!ul_lower_has_input(b->lower, b->id, UL_LINEAR_G_OUTPUT))
        return ul_kx_number(b->kernel, b->dtype, 0); /* the last state alone is used */
    return load_token(b, UL_LINEAR_G_OUTPUT, head, b->columns, column);
}

/* Forms dquery, and adds the part of dS that comes from the token's outputs. */
static void turn_outputs(const struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    ul_kx scale = ul_kx_number(k, b->dtype, b->linear.scale);
    ul_kx query_head =
        ul_kx_add(k, ul_kx_muli(k, b->head, b->linear.group), ul_ks_for(k, b->linear.group, 0));
    ul_kx next = ul_kx_addi(k, b->token, 1), row = open_rows(b);
    ul_kx query = load_token(b, UL_LINEAR_QUERY, query_head, b->rows, row);
    query = ul_ks_let(k, mul(b, query, scale));
    struct sum sum = open_sum(b);
    ul_kx g = load_gradient(b, query_head, sum.column);
    ul_kx state = load(b, b->states, cell_of(b, next, row, sum.column));
    ul_kx total = close_sum(b, &sum, mul(b, state, g));
    store_token(b, UL_LINEAR_QUERY, query_head, b->rows, row, mul(b, total, scale));
    ul_kx column = open_columns(b);
    g = load_gradient(b, query_head, column);
    add_to(b, b->slopes, cell(b, row, column), mul(b, query, g));
    close(b, 3);
}

/* du = dS^T key, dkey = dS u */
static void turn_update(const struct backward *b)
{
    clear(b, b->du);
    ul_kx row = open_rows(b), key = load_key(b, row), column = open_columns(b);
    ul_kx slope = load(b, b->slopes, cell(b, row, column));
    add_to(b, b->du, column, mul(b, key, slope));
    close(b, 1);
    struct sum sum = open_sum(b);
    slope = load(b, b->slopes, cell(b, row, sum.column));
    ul_kx total = close_sum(b, &sum, mul(b, slope, load(b, b->update, sum.column)));
    ul_ks_store(b->kernel, b->dkey, row, total);
    close(b, 1);
}

/* Forms dvalue and, for a delta rule, dbeta, dknown and what they add to dkey and dS. */
static void turn_value(const struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    ul_kx zero = ul_kx_index_const(k, 0);
    ul_kx beta = b->linear.is_delta ? load_beta(b) : ul_kx_number(k, b->dtype, 1);
    ul_kx column = open_columns(b), dvalue = mul(b, beta, load(b, b->du, column));
    dvalue = ul_ks_let(k, dvalue);
    store_token(b, UL_LINEAR_VALUE, b->head, b->columns, column, dvalue);
    ul_ks_store(k, b->dknown, column, ul_kx_unary(k, UL_KX_NEG, dvalue));
    close(b, 1);
    if (!b->linear.is_delta)
        return;
    struct sum sum = open_sum(b);
    ul_kx value = load_token(b, UL_LINEAR_VALUE, b->head, b->columns, sum.column);
    ul_kx gap = ul_kx_sub(k, value, load(b, b->known, sum.column));
    ul_kx total = close_sum(b, &sum, mul(b, gap, load(b, b->du, sum.column)));
    store_token(b, out_beta(&b->linear), b->head, 1, zero, total);
    ul_kx row = open_rows(b), key = load_key(b, row);
    sum = open_sum(b);
    ul_kx state = load(b, b->decayed, cell(b, row, sum.column));
    total = close_sum(b, &sum, mul(b, state, load(b, b->dknown, sum.column)));
    add_to(b, b->dkey, row, total);
    column = open_columns(b);
    add_to(b, b->slopes, cell(b, row, column), mul(b, key, load(b, b->dknown, column)));
    close(b, 2);
}

/* Forms dkey, ddecay, and dS for the state before. */
static void turn_decay(const struct backward *b)
{
    struct ul_kernel *k = b->kernel;
    ul_kx zero = ul_kx_index_const(k, 0);
    bool by_row = b->linear.decays_rows;
    uint32_t all = UL_NONE;
    if (b->linear.is_gated && !by_row)
        all = ul_ks_var(k, b->dtype, ul_kx_number(k, b->dtype, 0));
    ul_kx row = open_rows(b);
    store_token(b, UL_LINEAR_KEY, b->head, b->rows, row, load(b, b->dkey, row));
    if (b->linear.is_gated) {
        struct sum sum = open_sum(b);
        ul_kx at = cell(b, row, sum.column);
        ul_kx total = close_sum(b, &sum, mul(b, load(b, b->slopes, at), load(b, b->decayed, at)));
        if (by_row)
            store_token(b, OUT_DECAY, b->head, b->rows, row, total);
        else
            ul_ks_set(k, all, ul_kx_add(k, ul_kx_var(k, all), total));
        ul_kx column = open_columns(b);
        at = cell(b, row, column);
        ul_ks_store(k, b->slopes, at, mul(b, load(b, b->slopes, at), load(b, b->factor, row)));
        close(b, 1);
    }
    close(b, 1);
    if (all != UL_NONE)
        store_token(b, OUT_DECAY, b->head, 1, zero, ul_kx_var(k, all));
}

/* ---- All of it ---- */

/* Sets the first state, or dS after the last token, to the input's value, or to 0. */
static void set_state(const struct backward *b, uint32_t buffer, uint32_t input)
{
    struct ul_kernel *k = b->kernel;
    ul_kx row = open_rows(b), column = open_columns(b), x = ul_kx_number(k, b->dtype, 0);
    ul_kx index[] = {b->batch, b->head, row, column};
    if (ul_lower_has_input(b->lower, b->id, input))
        x = ul_kx_cast(k, b->dtype, ul_lower_load(b->lower, b->node->inputs[input], index));
    ul_ks_store(k, buffer, cell(b, row, column), x);
    close(b, 2);
}

static void store_past(const struct backward *b)
{
    if (!ul_lower_has_output(b->lower, b->id, UL_LINEAR_PAST))
        return;
    ul_kx row = open_rows(b), column = open_columns(b);
    ul_kx index[] = {b->batch, b->head, row, column};
    ul_lower_store(b->lower, b->node->outputs[UL_LINEAR_PAST], index,
                   load(b, b->slopes, cell(b, row, column)));
    close(b, 2);
}

static uint32_t room(const struct backward *b, int64_t count)
{
    return ul_lower_scratch(b->lower, b->dtype, (uint64_t)count);
}

static void make_room(struct backward *b)
{
    int64_t cells = b->rows * b->columns;
    b->states = room(b, (b->linear.dims[UL_LINEAR_TOKEN] + 1) * cells);
    b->decayed = room(b, cells);
    b->slopes = room(b, cells);
    b->known = room(b, b->columns);
    b->update = room(b, b->columns);
    b->du = room(b, b->columns);
    b->dknown = room(b, b->columns);
    b->dkey = room(b, b->rows);
    b->factor = room(b, b->rows);
}

void ul_lower_linear_attention_gradient(struct ul_lower *lower, ul_node_id node)
{
    const struct ul_type *types[UL_LINEAR_GRADIENT_INPUTS] = {NULL};
    struct backward b = {.lower = lower, .kernel = lower->kernel, .id = node};
    struct ul_kernel *k = lower->kernel;
    for (uint32_t i = 0; i < UL_LINEAR_GRADIENT_INPUTS; i++)
        if (ul_lower_has_input(lower, node, i))
            types[i] = ul_lower_input_type(lower, node, i);
    b.node = ul_check_node(lower, node);
    b.dtype = ul_compute_dtype(types[UL_LINEAR_QUERY]->dtype);
    ul_linear_read(&b.linear, b.node, types[UL_LINEAR_QUERY], types[UL_LINEAR_VALUE],
                   types[UL_LINEAR_DECAY], types[UL_LINEAR_BETA]);
    const int64_t *dims = b.linear.dims;
    b.rows = dims[UL_LINEAR_ROW];
    b.columns = dims[UL_LINEAR_COLUMN];
    make_room(&b);
    b.batch = ul_ks_for(k, dims[UL_LINEAR_BATCH], UL_FOR_PARALLEL);
    b.head = ul_ks_for(k, dims[UL_LINEAR_HEAD], UL_FOR_PARALLEL);
    set_state(&b, b.states, UL_LINEAR_PAST);
    b.token = ul_ks_for(k, dims[UL_LINEAR_TOKEN], 0);
    run_forwards(&b);
    close(&b, 1);
    set_state(&b, b.slopes, UL_LINEAR_G_PRESENT);
    ul_kx turn = ul_ks_for(k, dims[UL_LINEAR_TOKEN], 0);
    b.token = ul_ks_let(k, ul_kx_sub(k, ul_kx_index_const(k, dims[UL_LINEAR_TOKEN] - 1), turn));
    turn_outputs(&b);
    step_state(&b);
    turn_update(&b);
    turn_value(&b);
    turn_decay(&b);
    close(&b, 1);
    store_past(&b);
    close(&b, 2);
}

enum ul_status ul_gradient_linear_attention(struct ul_gradient *gradient)
{
    const struct ul_node *node = ul_gradient_node(gradient);
    const struct ul_type *types[UL_LINEAR_G_OUTPUT] = {NULL};
    ul_value_id inputs[UL_LINEAR_GRADIENT_INPUTS];
    struct ul_linear linear;
    for (uint32_t i = 0; i < UL_LINEAR_G_OUTPUT; i++) {
        inputs[i] = ul_gradient_input(gradient, i);
        if (inputs[i] != UL_NONE)
            types[i] = &gradient->graph->values[inputs[i]].type;
    }
    ul_linear_read(&linear, node, types[UL_LINEAR_QUERY], types[UL_LINEAR_VALUE],
                   types[UL_LINEAR_DECAY], types[UL_LINEAR_BETA]);
    if (linear.dims[UL_LINEAR_TOKEN] == 0)
        return ul_gradient_unsupported(gradient, "has no tokens");
    inputs[UL_LINEAR_G_OUTPUT] = ul_gradient_of(gradient, 0);
    inputs[UL_LINEAR_G_PRESENT] = ul_gradient_of(gradient, 1);
    ul_node_id made = ul_gradient_begin_like(gradient, UL_OP_LinearAttentionGradient, inputs,
                                             UL_LINEAR_GRADIENT_INPUTS,
                                             out_beta(&linear) + (linear.is_delta ? 1 : 0));
    (void)ul_build_infer(&gradient->build, made);
    const ul_value_id *outputs = gradient->graph->nodes[made].outputs;
    for (uint32_t i = UL_LINEAR_QUERY; i <= UL_LINEAR_PAST; i++)
        if (ul_gradient_wanted(gradient, i))
            ul_gradient_give(gradient, i, outputs[i]);
    if (linear.is_gated && ul_gradient_wanted(gradient, UL_LINEAR_DECAY))
        ul_gradient_give(gradient, UL_LINEAR_DECAY, outputs[OUT_DECAY]);
    if (linear.is_delta && ul_gradient_wanted(gradient, UL_LINEAR_BETA)) {
        ul_value_id beta = outputs[out_beta(&linear)];
        if (linear.shares_beta)
            beta = ul_build_sum(&gradient->build, beta, 1u << 2);
        ul_gradient_give(gradient, UL_LINEAR_BETA, beta);
    }
    return UL_OK;
}
