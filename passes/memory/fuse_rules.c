/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes one kernel can compute (ir/lower.h), whatever it costs:
 *
 *      Mul -> Relu -> Conv -> Add -> Relu -> ...
 *      [ in its loads ] [anchor] [ in its stores ]
 *
 * - at most one node is no map: the anchor;
 * - after the anchor: elementwise nodes of exactly its output's shape;
 * - in front of it: cheap elementwise nodes that nothing else reads, one operand of full shape; of
 *   what normalises rows also what says where these lie (Windows);
 * - maps alone: all results of one shape, and what is inlined is loaded about once per element;
 * - what is a call of the target's library alone, stays one, but a product where it and a pass over
 *   its result take longer than a kernel for both (GELU by erf, which no library has after it);
 * - in front of a product nothing that would cost it tensor cores;
 * - what parts of a gradient make again (tiles_operand.c) stays a kernel of its own;
 * - what overwrites a weight is by itself: a program that trains runs its steps without it too.
 */
#include <string.h>

#include "ir/view.h"
#include "passes/memory/fuse_internal.h"

enum { MAX_FRONT = 8 }; /* nodes in front of an anchor: its loads repeat them */

static const struct ul_type *type_of(const struct ul_fuse *fuse, ul_value_id value)
{
    return &fuse->graph->values[value].type;
}

static bool is_elementwise(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) != 0 && node->output_count == 1;
}

/* Whether it is a Concat, which passes over what is in its place already. */
static bool joins(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & UL_OP_JOINS) != 0;
}

/* Whether it is worth computing again for each load. */
static bool is_cheap(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & UL_OP_COSTLY_MAP) == 0;
}

/* ---- After the anchor ---- */

/* What `value` depends on: the anchor's output itself, or what its maker in the group depends
 * on. */
static ul_value_id hangs_on(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                            ul_value_id value)
{
    uint32_t index = ul_fuse_member(trial, ul_fuse_maker(fuse, value));
    if (index == UL_FUSE_NEVER)
        return UL_NONE;
    return index == trial->anchor ? value : trial->hang[index];
}

/* A member that depends on the anchor computes at exactly the anchor's index. */
static bool check_hanging(const struct ul_fuse *fuse, struct ul_fuse_trial *trial, uint32_t member)
{
    const struct ul_node *node = ul_fuse_node(fuse, trial->members[member]);
    for (uint32_t k = 0; k < node->input_count; k++) {
        ul_value_id input = node->inputs[k];
        ul_value_id hang = input == UL_NONE ? UL_NONE : hangs_on(fuse, trial, input);
        if (hang == UL_NONE)
            continue;
        if (member == trial->anchor || !is_elementwise(node) ||
            (trial->hang[member] != UL_NONE && trial->hang[member] != hang) ||
            !ul_type_same_dims(type_of(fuse, input), type_of(fuse, node->outputs[0])) ||
            !ul_type_same_dims(type_of(fuse, hang), type_of(fuse, node->outputs[0])))
            return false;
        trial->hang[member] = hang;
    }
    return true;
}

/* Each of the anchor's elements is final where it is stored. */
static bool stores_once(const struct ul_fuse *fuse, const struct ul_node *anchor)
{
    if ((ul_op_get(anchor->op)->flags & UL_OP_COMBINES) != 0)
        return false;
    /* A Concat passes over what is in its place already. */
    for (uint32_t i = 0; joins(anchor) && i < anchor->input_count; i++) {
        if (ul_concat_is_placed(fuse->graph, anchor, i))
            return false;
    }
    return true;
}

static bool check_behind(const struct ul_fuse *fuse, struct ul_fuse_trial *trial)
{
    bool any = false;
    if (trial->anchor == UL_FUSE_NEVER)
        return true;
    for (uint32_t i = 0; i < trial->count; i++) {
        if (!check_hanging(fuse, trial, i))
            return false;
        any = any || trial->hang[i] != UL_NONE;
    }
    return !any || stores_once(fuse, ul_fuse_node(fuse, trial->members[trial->anchor]));
}

/* ---- In front of it ---- */

static bool has_full_operand(const struct ul_fuse *fuse, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE &&
            ul_type_same_dims(type_of(fuse, node->inputs[i]), type_of(fuse, node->outputs[0])))
            return true;
    }
    return false;
}

static bool can_be_front(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                         uint32_t member)
{
    const struct ul_node *node = ul_fuse_node(fuse, trial->members[member]);
    const struct ul_node *anchor = ul_fuse_node(fuse, trial->members[trial->anchor]);
    bool moves_rows = (ul_op_get(node->op)->flags & UL_OP_MOVES_ROWS) != 0 &&
                      (ul_op_get(anchor->op)->flags & UL_OP_READS_ROWS) != 0 &&
                      anchor->inputs[0] == node->outputs[0];
    return (moves_rows || (is_elementwise(node) && has_full_operand(fuse, node))) &&
           is_cheap(node) && trial->hang[member] == UL_NONE && !fuse->escapes[node->outputs[0]];
}

/* Makers of what the anchor reads, found backwards. */
static bool check_front(const struct ul_fuse *fuse, struct ul_fuse_trial *trial)
{
    uint32_t count = 0;
    for (uint32_t i = trial->anchor == UL_FUSE_NEVER ? 0 : trial->count; i-- > 0;) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        if (i != trial->anchor && !trial->front[i])
            continue;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t made = ul_fuse_member(trial, ul_fuse_maker(fuse, node->inputs[k]));
            if (made == UL_FUSE_NEVER)
                continue;
            if (joins(node) && ul_concat_is_placed(fuse->graph, node, k))
                return false; /* it must be stored: the Concat passes over it */
            if (trial->front[made])
                continue;
            if ((ul_op_get(node->op)->flags & UL_OP_WALKS) != 0)
                return false;
            if (!can_be_front(fuse, trial, made) || ++count > MAX_FRONT)
                return false;
            trial->front[made] = true;
        }
    }
    return true;
}

/* ---- Neither ---- */

static bool is_pointwise(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & UL_OP_POINTWISE) != 0 || is_elementwise(node);
}

/* A map inlined into another: loaded at most about once per element. */
static bool loads_once(const struct ul_fuse *fuse, const struct ul_node *user, ul_value_id value)
{
    const struct ul_node *made_by = &fuse->graph->nodes[fuse->graph->values[value].producer];
    uint64_t elements = ul_type_elements(type_of(fuse, value));
    uint64_t loads = 0;
    for (uint32_t i = 0; i < user->output_count; i++)
        loads += ul_type_elements(type_of(fuse, user->outputs[i]));
    if (is_pointwise(user))
        return ul_type_same_dims(type_of(fuse, value), type_of(fuse, user->outputs[0]));
    return is_cheap(made_by) && loads <= elements;
}

/* The results of maps that are neither in front of the anchor nor after it have one shape. With an
 * anchor there must be none but side chains that end in nodes after it. */
static bool check_results(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    const struct ul_type *result = NULL;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        if (i == trial->anchor || trial->hang[i] != UL_NONE || trial->front[i])
            continue;
        for (uint32_t k = 0; k < node->output_count; k++) {
            ul_value_id output = node->outputs[k];
            if (output == UL_NONE || !fuse->escapes[output])
                continue;
            if (trial->anchor != UL_FUSE_NEVER ||
                (result != NULL && !ul_type_same_dims(result, type_of(fuse, output))))
                return false;
            result = type_of(fuse, output);
        }
    }
    return true;
}

static bool check_inlined(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *user = ul_fuse_node(fuse, trial->members[i]);
        if (i == trial->anchor || trial->front[i])
            continue;
        for (uint32_t k = 0; k < user->input_count; k++) {
            uint32_t made = ul_fuse_member(trial, ul_fuse_maker(fuse, user->inputs[k]));
            if (made != UL_FUSE_NEVER && made != trial->anchor && trial->hang[made] == UL_NONE &&
                !loads_once(fuse, user, user->inputs[k]))
                return false;
        }
    }
    return true;
}

/* Overwrites nothing; sums and statistics; parameters. */
enum effect { EFFECT_NONE, EFFECT_SUMS, EFFECT_UPDATES };

static enum effect effect_of(const struct ul_graph *graph, ul_value_id value)
{
    ul_value_id donor = graph->values[value].donor;
    if (donor == UL_NONE)
        return EFFECT_NONE;
    uint32_t updated =
        graph->values[donor].flags & (UL_VALUE_TRAINED | UL_VALUE_OPTIMIZER | UL_VALUE_GUARDED);
    return updated != 0 ? EFFECT_UPDATES : EFFECT_SUMS;
}

/* The entries of a program that trains run only the steps with some of the effects. */
static bool check_effects(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    uint32_t effects = 0;
    if (fuse->pass->options->training == NULL)
        return true;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->output_count; k++) {
            ul_value_id output = node->outputs[k];
            if (output != UL_NONE && fuse->escapes[output])
                effects |= 1u << effect_of(fuse->graph, output);
        }
    }
    return (effects & (effects - 1)) == 0;
}

/* A product of the backward pass, or a view for one, reads what is made at `position`. */
static bool feeds_gradient(const struct ul_fuse *fuse, uint32_t position)
{
    for (uint32_t u = fuse->user_begin[position]; u < fuse->user_begin[position + 1]; u++) {
        uint32_t user = fuse->users[u];
        const struct ul_node *node = ul_fuse_node(fuse, user);
        if (ul_edit_is_backward(fuse->graph, node) &&
            (fuse->is_view[user] || (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0))
            return true;
    }
    return false;
}

/* A map after a product of the forward pass, whose operand is kept as well, so that parts of the
 * gradient that reads its result can make it again. In one kernel with the product both would be
 * kept. */
static bool check_again(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    const struct ul_passes_options *options = fuse->pass->options;
    if (options->training == NULL || options->precision == UL_DTYPE_NONE ||
        options->precision == UL_F32 || trial->anchor == UL_FUSE_NEVER)
        return true;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        if (trial->hang[i] == UL_NONE || i == trial->anchor || node->output_count != 1 ||
            ul_edit_is_backward(fuse->graph, node) || !feeds_gradient(fuse, trial->members[i]))
            continue;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t made = ul_fuse_maker(fuse, node->inputs[k]);
            if (made != UL_FUSE_NEVER && ul_fuse_member(trial, made) != UL_FUSE_NEVER &&
                fuse->escapes[node->inputs[k]])
                return false;
        }
    }
    return true;
}

/* ---- Calls of a library ---- */

static bool is_call(struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    const struct ul_passes_options *options = fuse->pass->options;
    ul_node_id nodes[UL_FUSE_NODES];
    for (uint32_t i = 0; i < trial->count; i++)
        nodes[i] = fuse->block->nodes[trial->members[i]];
    ul_fuse_mark_escapes(fuse, trial);
    return options->is_call(options->library, fuse->graph, nodes, trial->count, fuse->escapes,
                            NULL);
}

/* Whether the output overwrites something that the member reads. The sum over the runs of a step
 * does not count: the member adds to it element by element. */
static bool reads_donor(const struct ul_fuse *fuse, uint32_t member, ul_value_id donor)
{
    const struct ul_graph *graph = fuse->graph;
    const struct ul_node *node = ul_fuse_node(fuse, member);
    bool adds = (graph->values[donor].flags & UL_VALUE_GRADIENT) != 0 && is_elementwise(node) &&
                graph->values[node->outputs[0]].donor == donor;
    return !adds && ul_donate_reads(graph, fuse->block->nodes[member], donor);
}

/* A call of a library reads its operands while it writes: none of them may lie where its result is
 * to overwrite it. */
static bool check_overwritten(struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    const struct ul_graph *graph = fuse->graph;
    bool reads = false;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = ul_fuse_node(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->output_count; k++) {
            ul_value_id donor =
                node->outputs[k] == UL_NONE ? UL_NONE : graph->values[node->outputs[k]].donor;
            for (uint32_t m = 0; donor != UL_NONE && m < trial->count; m++)
                reads = reads || reads_donor(fuse, trial->members[m], donor);
        }
    }
    return !reads || fuse->pass->options->is_call == NULL || !is_call(fuse, trial);
}

/* ---- Tensor cores ---- */

/* The sides of a product: how many results there are along each, and how many terms. */
struct sides {
    int64_t m, n, k;
};

static struct sides sides_of_product(const struct ul_node *node, const struct ul_type *a,
                                     const struct ul_type *out)
{
    bool turned = ul_node_get_int(node, "transA", 0) != 0;
    return (struct sides){.m = out->dims[out->rank - 2],
                          .n = out->dims[out->rank - 1],
                          .k = a->dims[turned ? a->rank - 2 : a->rank - 1]};
}

/* A group of a convolution is a product of pixels by channels of the result, with the terms of a
 * sum. A transposed convolution has the axes of its weights exchanged. */
static struct sides sides_of_convolution(const struct ul_node *node, const struct ul_type *weights,
                                         const struct ul_type *out)
{
    int64_t groups = ul_node_get_int(node, "group", 1), all = (int64_t)ul_type_elements(weights);
    int64_t channels = out->dims[1] / groups;
    return (struct sides){.m = (int64_t)ul_type_elements(out) / out->dims[1],
                          .n = channels,
                          .k = all / groups / channels};
}

/* A group of the gradient of a convolution's weights is a product of filters by places in a filter,
 * summed over pixels. */
static struct sides sides_of_correlation(const struct ul_node *node, const struct ul_type *gradient,
                                         const struct ul_type *out)
{
    return (struct sides){.m = out->dims[0] / ul_node_get_int(node, "group", 1),
                          .n = (int64_t)ul_type_elements(out) / out->dims[0],
                          .k = (int64_t)ul_type_elements(gradient) / gradient->dims[1]};
}

/* Gives the sides of a product that has a row of weights for each result side by side. All are 0
 * for another product. */
static struct sides sides_of(const struct ul_fuse *fuse, const struct ul_node *node)
{
    const struct ul_type *a = type_of(fuse, node->inputs[0]), *b = type_of(fuse, node->inputs[1]);
    const struct ul_type *out = type_of(fuse, node->outputs[0]);
    uint32_t flags = ul_op_get(node->op)->flags;
    if (a->rank < 2 || b->rank < 2 || out->rank < 2 || ul_type_elements(out) == 0)
        return (struct sides){.m = 0};
    if ((flags & UL_OP_CORRELATES) != 0)
        return sides_of_correlation(node, b, out);
    return (flags & UL_OP_CONVOLVES) != 0 ? sides_of_convolution(node, b, out)
                                          : sides_of_product(node, a, out);
}

/* A factor that is computed while it is read has no 16 bits that tensor cores could take. */
static bool check_tensor_cores(const struct ul_fuse *fuse, const struct ul_fuse_trial *trial)
{
    enum { MIN_PRODUCTS = 1 << 15 }; /* below that, a launch takes longer */
    int64_t min = fuse->pass->traits->tensor_side;
    if (min == 0 || trial->anchor == UL_FUSE_NEVER)
        return true;
    const struct ul_node *node = ul_fuse_node(fuse, trial->members[trial->anchor]);
    bool is_front = false;
    if ((ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) == 0 || node->input_count < 2)
        return true;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t made = ul_fuse_member(trial, ul_fuse_maker(fuse, node->inputs[i]));
        is_front = is_front || (made != UL_FUSE_NEVER && trial->front[made]);
    }
    enum ul_dtype storage = ul_value_storage(fuse->graph, node->inputs[0]);
    if (!is_front || !ul_dtype_is_half(storage) ||
        ul_value_storage(fuse->graph, node->inputs[1]) != storage)
        return true;
    struct sides sides = sides_of(fuse, node);
    UL_ASSERT(sides.m >= 0 && sides.n >= 0 && sides.k >= 0);
    return sides.m < min || sides.n < min || sides.k < min ||
           (double)ul_type_elements(type_of(fuse, node->outputs[0])) * (double)sides.k <
               MIN_PRODUCTS;
}

bool ul_fuse_is_legal(struct ul_fuse *fuse, struct ul_fuse_trial *trial)
{
    UL_ASSERT(trial->count > 1);
    if (!check_behind(fuse, trial))
        return false;
    ul_fuse_mark_escapes(fuse, trial);
    return check_front(fuse, trial) && check_results(fuse, trial) && check_inlined(fuse, trial) &&
           check_effects(fuse, trial) && check_again(fuse, trial) &&
           check_tensor_cores(fuse, trial) && check_overwritten(fuse, trial);
}

/* All that reads what is made there multiplies it and cannot compute it as it loads it. */
static bool is_stored_anyway(struct ul_fuse *fuse, uint32_t position)
{
    bool is_costly = !is_cheap(ul_fuse_node(fuse, position));
    for (uint32_t u = fuse->user_begin[position]; u < fuse->user_begin[position + 1]; u++) {
        uint32_t user = fuse->users[u];
        struct ul_fuse_trial alone;
        if ((ul_op_get(ul_fuse_node(fuse, user)->op)->flags & UL_OP_MULTIPLIES) == 0)
            return false;
        if (!is_costly &&
            (!ul_fuse_trial_init(fuse, &alone, &fuse->group_of[user], 1) || !is_call(fuse, &alone)))
            return false;
    }
    return true;
}

/* The rest of the trial alone reads all results of the call, and for it the call is worth a kernel
 * of its own. */
static bool is_worth(struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                     const struct ul_fuse_trial *call)
{
    const struct ul_passes_options *options = fuse->pass->options;
    uint64_t pass_bytes = 0;
    ul_node_id nodes[UL_FUSE_NODES];
    if (options->is_worth == NULL || options->training != NULL)
        return true;
    for (uint32_t i = 0; i < trial->count; i++) {
        ul_value_id made = ul_fuse_node(fuse, trial->members[i])->outputs[0];
        bool is_called = ul_fuse_member(call, trial->members[i]) != UL_FUSE_NEVER;
        ul_fuse_mark_escapes(fuse, trial);
        if (trial->front[i] || (i != trial->anchor && trial->hang[i] == UL_NONE) ||
            (fuse->escapes[made] && is_called))
            return true;
        pass_bytes += fuse->escapes[made] ? 2 * ul_value_bytes(fuse->graph, made) : 0;
        if (fuse->escapes[made] && !is_stored_anyway(fuse, trial->members[i]))
            return true;
    }
    for (uint32_t i = 0; i < call->count; i++)
        nodes[i] = fuse->block->nodes[call->members[i]];
    ul_fuse_mark_escapes(fuse, call);
    return options->is_worth(options->library, fuse->graph, nodes, call->count, fuse->escapes,
                             pass_bytes);
}

bool ul_fuse_loses_call(struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                        const uint32_t *groups, uint32_t count)
{
    struct ul_fuse_trial alone;
    UL_ASSERT(count > 1);
    if (fuse->pass->options->is_call == NULL || trial->anchor == UL_FUSE_NEVER)
        return false;
    for (uint32_t g = 0; g < count; g++) {
        if (ul_fuse_trial_init(fuse, &alone, &groups[g], 1) && alone.anchor != UL_FUSE_NEVER &&
            is_call(fuse, &alone))
            return !is_call(fuse, trial) && is_worth(fuse, trial, &alone);
    }
    return false;
}
