/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the forward pass that a plan keeps with --checkpoint.
 *
 *      none     everything: nothing is recomputed
 *      sqrt     the forward pass is cut into about as many parts as each has steps: n steps are cut
 *               near every sqrt(n)-th, where the fewest bytes cross. Values that cross are kept.
 *      blocks   results of blocks of the network. A block ends where two paths meet again, in an
 *               Add (a residual) or a Concat of two values, one after more products than the other.
 *               Where parts alternate (attention, products; attention, products), the block is the
 *               part that repeats.
 *      products results that take many operations a byte: those of products, convolutions,
 *               attention and sums. Nothing heavy is recomputed.
 *      NAME,... these values, as the graph has them after all passes
 *
 * Only a value that depends both on an input and on a parameter counts: masks and tables of
 * positions make no paths. The planner gets steps to keep. Left undone: nested blocks. */
#include "compile/compile_internal.h"
#include "ir/op.h"

#include <string.h>

enum { MAX_PERIOD = 4 }; /* parts that repeat together */

struct points {
    struct ul_compile *compile;
    const struct ul_graph *graph;
    const struct ul_program *program;
    const struct ul_problem *problem;
    struct ul_arena *arena;
    bool *is_forward, *is_kept; /* by step */
    uint32_t *forward;          /* steps of the forward pass, in file order */
    uint32_t forward_count;
    /* by value of the graph: depends on an input; on a parameter; the most products on a path to
     * it */
    bool *is_fed, *is_learned;
    uint32_t *depth;
};

/* ---- Steps ---- */

static const struct ul_plan_alternative *cheapest(const struct ul_plan_step *step)
{
    return &step->alternatives[ul_step_cheapest(step)];
}

static bool step_touches(const struct points *p, uint32_t step, uint32_t value, bool writes)
{
    const struct ul_plan_alternative *way = cheapest(&p->problem->steps[step]);
    for (uint32_t i = 0; i < way->substep_count; i++) {
        const struct ul_plan_substep *at = &way->substeps[i];
        if (writes ? ul_ids_have(at->writes, at->write_count, value)
                   : ul_ids_have(at->reads, at->read_count, value))
            return true;
    }
    return false;
}

static void find_forward(struct points *p)
{
    p->is_forward = ul_problem_find_forward(p->arena, p->problem);
    if (p->is_forward == NULL) /* nothing is kept for the backward pass */
        p->is_forward = UL_NEW_ARRAY(p->arena, bool, p->problem->step_count);
    for (uint32_t s = 0; s < p->problem->step_count; s++)
        if (p->is_forward[s])
            p->forward[p->forward_count++] = s;
}

/* Keeps a value of the problem, whichever steps of the forward pass make it; false: none makes
 * it. */
static bool keep_place(struct points *p, uint32_t value)
{
    bool is_made = false;
    for (uint32_t i = 0; i < p->forward_count; i++) {
        bool writes = step_touches(p, p->forward[i], value, true);
        p->is_kept[p->forward[i]] = p->is_kept[p->forward[i]] || writes;
        is_made = is_made || writes;
    }
    return is_made;
}

/* The value of the problem that holds a value of the graph, or UL_PLAN_NONE. */
static uint32_t place_of_value(const struct points *p, ul_value_id value)
{
    ul_value_id base = p->graph->values[value].view.base;
    return base != UL_NONE ? p->program->value_places[base] : UL_PLAN_NONE;
}

/* ---- sqrt ---- */

/* For each step of the forward pass: bytes made by then that a later step reads. */
static uint64_t *crossing_bytes(const struct points *p, const uint32_t *last_read,
                                const uint32_t *first_write)
{
    uint64_t *crossing = UL_NEW_ARRAY(p->arena, uint64_t, (uint64_t)p->forward_count + 1);
    for (uint32_t v = 0; v < p->problem->value_count; v++)
        for (uint32_t i = first_write[v]; i < p->forward_count && i < last_read[v]; i++)
            crossing[i] += p->problem->values[v].size_bytes;
    return crossing;
}

/* For values that move: the first step of the forward pass that writes it, and the last that reads
 * it. */
static void find_spans(const struct points *p, uint32_t *first_write, uint32_t *last_read)
{
    memset(first_write, 0xFF, p->problem->value_count * sizeof *first_write);
    for (uint32_t i = 0; i < p->forward_count; i++) {
        const struct ul_plan_alternative *way = cheapest(&p->problem->steps[p->forward[i]]);
        for (uint32_t k = 0; k < way->substep_count; k++) {
            const struct ul_plan_substep *at = &way->substeps[k];
            for (uint32_t r = 0; r < at->read_count; r++)
                last_read[at->reads[r]] = i;
            for (uint32_t w = 0; w < at->write_count; w++)
                if (first_write[at->writes[w]] == UL_PLAN_NONE &&
                    !p->problem->values[at->writes[w]].persistent)
                    first_write[at->writes[w]] = i;
        }
    }
}

static void keep_crossing(struct points *p, uint32_t at, const uint32_t *first_write,
                          const uint32_t *last_read)
{
    for (uint32_t v = 0; v < p->problem->value_count; v++) {
        bool crosses = first_write[v] != UL_PLAN_NONE && first_write[v] <= at && last_read[v] > at;
        if (crosses)
            (void)keep_place(p, v);
    }
}

static void keep_sqrt(struct points *p)
{
    uint32_t length = 1;
    uint32_t *first_write = UL_NEW_ARRAY(p->arena, uint32_t, p->problem->value_count);
    uint32_t *last_read = UL_NEW_ARRAY(p->arena, uint32_t, p->problem->value_count);
    while ((uint64_t)length * length < p->forward_count)
        length++;
    find_spans(p, first_write, last_read);
    const uint64_t *crossing = crossing_bytes(p, last_read, first_write);
    for (uint32_t border = length; border < p->forward_count; border += length) {
        uint32_t best = border - (length + 1) / 2;
        for (uint32_t i = best + 1; i < border + length / 2 && i + 1 < p->forward_count; i++)
            best = crossing[i] < crossing[best] ? i : best;
        keep_crossing(p, best, first_write, last_read);
    }
}

/* ---- blocks ---- */

static void find_ways(struct points *p)
{
    const struct ul_block *block = ul_graph_only_root(p->graph);
    for (uint32_t v = 0; v < p->graph->value_count; v++) {
        p->is_fed[v] = p->graph->values[v].kind == UL_VALUE_INPUT;
        p->is_learned[v] = (p->graph->values[v].flags & UL_VALUE_TRAINED) != 0;
    }
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &p->graph->nodes[block->nodes[n]];
        uint32_t depth = 0;
        bool fed = false, learned = false;
        for (uint32_t i = 0; i < node->input_count; i++) {
            ul_value_id input = node->inputs[i];
            if (input == UL_NONE)
                continue;
            fed = fed || p->is_fed[input];
            learned = learned || p->is_learned[input];
            depth = p->depth[input] > depth ? p->depth[input] : depth;
        }
        depth += (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0;
        for (uint32_t i = 0; i < node->output_count; i++) {
            if (node->outputs[i] == UL_NONE)
                continue;
            p->is_fed[node->outputs[i]] = fed;
            p->is_learned[node->outputs[i]] = learned;
            p->depth[node->outputs[i]] = depth;
        }
    }
}

/* Whether the node is a Concat or a sum: it passes its gradient on to both unchanged. */
static bool meets(const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    return (row->flags & UL_OP_JOINS) != 0 ||
           ((row->flags & UL_OP_COMMUTES) != 0 && row->gradients[0] != NULL &&
            row->gradients[1] != NULL && strcmp(row->gradients[0], "g") == 0 &&
            strcmp(row->gradients[1], "g") == 0);
}

/* Whether paths of different lengths meet in the node. */
static bool joins(const struct points *p, ul_node_id id)
{
    const struct ul_node *node = &p->graph->nodes[id];
    uint32_t min = UINT32_MAX, max = 0;
    if (!meets(node))
        return false;
    for (uint32_t i = 0; i < node->input_count; i++) {
        ul_value_id input = node->inputs[i];
        if (!p->is_fed[input] || !p->is_learned[input])
            continue;
        min = p->depth[input] < min ? p->depth[input] : min;
        max = p->depth[input] > max ? p->depth[input] : max;
    }
    return min < max;
}

/* The index in the forward pass of the last step that computes the node, or another node of its
 * kernel; UL_PLAN_NONE: there is none. */
static uint32_t place_of(const struct points *p, ul_node_id id)
{
    uint32_t value = place_of_value(p, p->graph->nodes[id].outputs[0]);
    uint32_t kernel = ul_node_kernel(p->graph, id), place = UL_PLAN_NONE;
    for (uint32_t i = 0; i < p->forward_count; i++) {
        ul_node_id last = p->program->steps[p->forward[i]].node;
        bool is_made = value != UL_PLAN_NONE && step_touches(p, p->forward[i], value, true);
        bool is_in = ul_node_kernel(p->graph, last) == kernel;
        if (is_made || (value == UL_PLAN_NONE && is_in))
            place = i;
    }
    return place;
}

/* A hash of the steps of a part. */
static uint32_t part_kind(const struct points *p, uint32_t begin, uint32_t end)
{
    uint32_t hash = UL_HASH_BEGIN;
    for (uint32_t i = begin; i < end; i++) {
        const char *op = p->program->steps[p->forward[i]].op;
        hash = ul_hash_more(hash, op, strlen(op));
    }
    return hash;
}

/* After how many parts the same kinds follow again, where neighbours always differ: the period that
 * holds for most of them. */
static uint32_t find_period(const uint32_t *kinds, uint32_t count)
{
    uint32_t best = 1, best_equal = 0, best_pairs = 1;
    for (uint32_t period = 1; period <= MAX_PERIOD && period < count; period++) {
        uint32_t equal = 0, pairs = count - period;
        for (uint32_t i = period; i < count; i++)
            equal += kinds[i] == kinds[i - period];
        if (period == 1 && equal > 0)
            return 1;
        if ((uint64_t)equal * best_pairs <= (uint64_t)best_equal * pairs)
            continue;
        best = period;
        best_equal = equal;
        best_pairs = pairs;
    }
    return best;
}

/* Keeps all that a step of the forward pass writes, whichever steps make it. */
static void keep_made(struct points *p, uint32_t place)
{
    const struct ul_plan_alternative *way = cheapest(&p->problem->steps[p->forward[place]]);
    for (uint32_t i = 0; i < way->substep_count; i++)
        for (uint32_t w = 0; w < way->substeps[i].write_count; w++)
            (void)keep_place(p, way->substeps[i].writes[w]);
}

static enum ul_status keep_blocks(struct points *p)
{
    const struct ul_block *block = ul_graph_only_root(p->graph);
    bool *ends = UL_NEW_ARRAY(p->arena, bool, p->forward_count);
    uint32_t *places = UL_NEW_ARRAY(p->arena, uint32_t, p->forward_count), count = 0, begin = 0;
    uint32_t *kinds = UL_NEW_ARRAY(p->arena, uint32_t, p->forward_count);
    find_ways(p);
    for (uint32_t n = 0; n < block->node_count; n++) {
        uint32_t at = joins(p, block->nodes[n]) ? place_of(p, block->nodes[n]) : UL_PLAN_NONE;
        if (at != UL_PLAN_NONE)
            ends[at] = true;
    }
    for (uint32_t i = 0; i < p->forward_count; i++) {
        if (!ends[i])
            continue;
        kinds[count] = part_kind(p, begin, i + 1);
        places[count++] = i;
        begin = i + 1;
    }
    if (count == 0)
        return ul_diag_set(
            &p->compile->diag, UL_USAGE,
            "--checkpoint blocks: no two ways of the network meet again in an Add or "
            "a Concat, so it is one chain; give sqrt, or names of values");
    uint32_t period = find_period(kinds, count);
    for (uint32_t i = 0; i < count; i++)
        if ((count - 1 - i) % period == 0)
            keep_made(p, places[i]);
    return UL_OK;
}

/* ---- products ---- */

static uint64_t made_bytes(const struct points *p, uint32_t place)
{
    uint64_t bytes = 0;
    const struct ul_plan_alternative *way = cheapest(&p->problem->steps[p->forward[place]]);
    for (uint32_t i = 0; i < way->substep_count; i++)
        for (uint32_t w = 0; w < way->substeps[i].write_count; w++)
            bytes += p->problem->values[way->substeps[i].writes[w]].size_bytes;
    return bytes;
}

/* Whether it takes more operations for each byte of its results than elementwise nodes and
 * pooling. */
static bool is_heavy(const struct points *p, uint32_t place)
{
    const uint64_t light_flops = 16;
    return p->program->steps[p->forward[place]].work.flop_count >
           light_flops * made_bytes(p, place);
}

static bool has_backward_reader(const struct points *p, uint32_t value)
{
    bool any = false;
    for (uint32_t s = 0; !any && s < p->problem->step_count; s++)
        any = !p->is_forward[s] && step_touches(p, s, value, false);
    return any;
}

/* Keeps what a step makes. Where the backward pass does not need that, it keeps what is made from
 * it, if that is no larger: for a residual the sum, not its operands. */
static void keep_needed(struct points *p, uint32_t place)
{
    const struct ul_plan_alternative *way = cheapest(&p->problem->steps[p->forward[place]]);
    uint32_t *readers = UL_NEW_ARRAY(p->arena, uint32_t, p->forward_count), count = 0;
    uint64_t bytes = 0;
    bool is_asked = false;
    for (uint32_t i = 0; i < way->substep_count; i++)
        for (uint32_t w = 0; w < way->substeps[i].write_count; w++)
            is_asked = is_asked || has_backward_reader(p, way->substeps[i].writes[w]);
    for (uint32_t r = 0; !is_asked && r < p->forward_count; r++) {
        bool reads = false;
        for (uint32_t i = 0; i < way->substep_count && r != place; i++)
            for (uint32_t w = 0; w < way->substeps[i].write_count; w++)
                reads = reads || step_touches(p, p->forward[r], way->substeps[i].writes[w], false);
        if (reads)
            readers[count++] = r;
        bytes += reads ? made_bytes(p, r) : 0;
    }
    if (is_asked || count == 0 || bytes > made_bytes(p, place))
        keep_made(p, place);
    else
        for (uint32_t r = 0; r < count; r++)
            keep_made(p, readers[r]);
}

static void keep_products(struct points *p)
{
    const struct ul_block *block = ul_graph_only_root(p->graph);
    for (uint32_t i = 0; i < p->forward_count; i++)
        if (is_heavy(p, i))
            keep_needed(p, i);
    for (uint32_t n = 0; n < block->node_count; n++) { /* few channels mean few operations */
        const struct ul_node *node = &p->graph->nodes[block->nodes[n]];
        bool multiplies = (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) != 0;
        uint32_t at = multiplies ? place_of(p, block->nodes[n]) : UL_PLAN_NONE;
        if (at != UL_PLAN_NONE)
            keep_needed(p, at);
    }
}

/* ---- names ---- */

static enum ul_status keep_names(struct points *p)
{
    for (const char *at = p->compile->options.checkpoint; *at != '\0';) {
        size_t length = strcspn(at, ",");
        const char *name = ul_arena_printf(p->arena, "%.*s", (int)length, at);
        struct ul_nearest nearest = {.word = name};
        bool is_kept = false;
        for (uint32_t v = 0; v < p->graph->value_count; v++) {
            const struct ul_value *value = &p->graph->values[v];
            bool is_made = value->kind == UL_VALUE_NODE &&
                           (value->flags & UL_VALUE_BACKWARD) == 0 &&
                           place_of_value(p, v) != UL_PLAN_NONE;
            if (is_made && strcmp(value->name, name) == 0)
                is_kept = keep_place(p, place_of_value(p, v)) || is_kept;
            if (is_made)
                ul_nearest_offer(&nearest, value->name);
        }
        if (!is_kept)
            return ul_diag_set(&p->compile->diag, UL_USAGE,
                               "--checkpoint %s: the forward pass leaves no such value (it may be "
                               "computed inside of a kernel)%s; ullage plan --train --json lists "
                               "ranges by name",
                               ul_option_shown(p->arena, name),
                               ul_nearest_text(p->arena, &nearest, ""));
        at += length + (at[length] == ',');
    }
    return UL_OK;
}

enum ul_status ul_compile_read_kept(struct ul_compile *compile, const struct ul_plan_kept **kept)
{
    const char *said = compile->options.checkpoint;
    unsigned what = said != NULL ? ul_compile_word("checkpoint", said) : UL_CHECKPOINT_NONE;
    uint32_t step_count = compile->program->step_count;
    struct ul_plan_kept *made = UL_NEW(&compile->keep, struct ul_plan_kept);
    uint32_t value_count = compile->graph.value_count;
    struct points p = {.compile = compile,
                       .graph = &compile->graph,
                       .program = compile->program,
                       .problem = compile->program->problem,
                       .arena = &compile->keep};
    *kept = NULL;
    if (what == UL_CHECKPOINT_NONE)
        return UL_OK;
    p.is_kept = UL_NEW_ARRAY(p.arena, bool, step_count);
    p.forward = UL_NEW_ARRAY(p.arena, uint32_t, step_count);
    p.is_fed = UL_NEW_ARRAY(p.arena, bool, value_count);
    p.is_learned = UL_NEW_ARRAY(p.arena, bool, value_count);
    p.depth = UL_NEW_ARRAY(p.arena, uint32_t, value_count);
    find_forward(&p);
    *made = (struct ul_plan_kept){.is_forward = p.is_forward, .is_kept = p.is_kept};
    *kept = made;
    if (what == UL_CHECKPOINT_SQRT)
        keep_sqrt(&p);
    else if (what == UL_CHECKPOINT_PRODUCTS)
        keep_products(&p);
    else if (what == UL_CHECKPOINT_BLOCKS)
        return keep_blocks(&p);
    else
        return keep_names(&p);
    return UL_OK;
}
