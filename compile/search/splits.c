/* SPDX-License-Identifier: Apache-2.0 */
/* Splits that a budget asks for: alternatives of the program with chains computed in pieces.
 *
 * Problem: choosing which chains to split, where and how often, is a search over programs, and each
 * program has to be lowered and planned to be judged. Method: there are targets for the live sum,
 * from that of the program down. For each, passes/memory/split_search.c finds splits that keep it;
 * that program is built, and planned without a budget. Where a target cannot be kept, others above
 * it are tried by halving.
 *
 *      1.0 * live: no split      0.9: A      0.8: A, B      0.7: none      0.75: A, C */
#include "codegen/program/unsplit.h"
#include "compile/search/alternatives.h"

#include <string.h>

enum { MAX_HALVINGS = 3, MAX_SPLIT_VARIANTS = 16 };

/* What may_split asks about. */
struct question {
    const struct ul_compile *compile;
    struct ul_unsplit unsplit;
    struct ul_arena scratch;
};

/* ---- Targets ---- */

static bool may_split(void *context, const struct ul_graph *graph, ul_node_id first_piece)
{
    struct question *question = context;
    bool sure = ul_calls_can_split(&question->scratch, graph, first_piece,
                                   question->compile->libraries, &question->unsplit);
    ul_arena_reset(&question->scratch);
    return sure;
}

/* What the kernels cost, and which nodes they may take over. */
static struct ul_split_facts *kernel_facts(struct ul_compile *compile)
{
    const struct ul_program *program = compile->program;
    struct ul_split_facts *facts = UL_NEW(&compile->keep, struct ul_split_facts);
    uint64_t *costs = UL_NEW_ARRAY(&compile->keep, uint64_t, compile->graph.node_count);
    uint32_t *first =
        UL_NEW_ARRAY(&compile->keep, uint32_t, (uint64_t)compile->graph.value_count + 2);
    uint32_t count = 0;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ul_program_step *step = &program->steps[s];
        if (step->kind == UL_STEP_KERNEL || step->kind == UL_STEP_CALL)
            costs[step->node] = program->problem->steps[s].alternatives[0].cost;
        for (uint32_t i = 0; i < step->in_place_count; i++, count++)
            first[step->in_place[i].output + 2]++;
    }
    for (uint32_t v = 0; v < compile->graph.value_count; v++)
        first[v + 2] += first[v + 1];
    ul_value_id *inputs = UL_NEW_ARRAY(&compile->keep, ul_value_id, count);
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ul_program_step *step = &program->steps[s];
        for (uint32_t i = 0; i < step->in_place_count; i++)
            inputs[first[step->in_place[i].output + 1]++] = step->in_place[i].input;
    }
    facts->node_costs = costs;
    facts->step_cost = (uint64_t)program->options.profile->overhead_ns;
    facts->first = first;
    facts->inputs = inputs;
    return facts;
}

/* Right after what makes the value. Positions are doubled, so that there is room between them. */
static uint32_t rank_after(const struct ul_graph *graph, const uint32_t *ranks, ul_value_id id)
{
    const struct ul_value *value = id == UL_NONE ? NULL : &graph->values[id];
    return value != NULL && value->kind == UL_VALUE_NODE ? ranks[value->producer] | 1u : 1;
}

/* For each node of the roots, when its kernel runs first; one without a kernel, which is a view,
 * comes right after the last of its inputs. */
static uint32_t *ranks_of(struct ul_alternatives *alternatives, const struct ul_graph *graph)
{
    struct ul_arena *arena = &alternatives->compile->keep;
    const struct ul_program_step *steps = alternatives->compile->program->steps;
    const struct ul_plan *plan = &alternatives->items[0].plan;
    uint32_t *runs = UL_NEW_ARRAY(arena, uint32_t, 2 * (uint64_t)graph->node_count);
    uint32_t *ranks = UL_NEW_ARRAY(arena, uint32_t, graph->node_count);
    for (uint32_t p = plan->position_count; p-- > 0;)
        runs[ul_node_kernel(graph, steps[plan->positions[p].step].node)] = 2 * p + 2;
    for (uint32_t r = 0; r < graph->root_count; r++) {
        for (uint32_t n = 0; n < graph->blocks[r].node_count; n++) {
            ul_node_id id = graph->blocks[r].nodes[n];
            const struct ul_node *node = &graph->nodes[id];
            ranks[id] = runs[ul_node_kernel(graph, id)];
            bool is_view = ranks[id] == 0;
            for (uint32_t i = 0; is_view && i < node->input_count; i++) {
                uint32_t after = rank_after(graph, ranks, node->inputs[i]);
                ranks[id] = after > ranks[id] ? after : ranks[id];
            }
        }
    }
    return ranks;
}

static void sort_nodes(struct ul_arena *arena, struct ul_block *block, const uint32_t *ranks)
{
    struct ul_ranked *sorted = UL_NEW_ARRAY(arena, struct ul_ranked, block->node_count);
    const ul_node_id *nodes =
        ul_arena_copy(arena, block->nodes, block->node_count * sizeof *block->nodes);
    for (uint32_t n = 0; n < block->node_count; n++)
        sorted[n] = (struct ul_ranked){.rank = ranks[nodes[n]], .index = n};
    ul_ranked_sort(sorted, block->node_count);
    for (uint32_t n = 0; n < block->node_count; n++)
        block->nodes[n] = nodes[sorted[n].index];
}

/* The graph in the order of the plan, which gives the live sums that splits have to lower. */
static struct ul_graph *planned_graph(struct ul_alternatives *alternatives)
{
    struct ul_compile *compile = alternatives->compile;
    struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
    ul_graph_copy(graph, &compile->keep, &compile->graph);
    if (graph->block_count > graph->root_count)
        return graph; /* steps of loops and branches stay where they are */
    const uint32_t *ranks = ranks_of(alternatives, graph);
    for (uint32_t r = 0; r < graph->root_count; r++)
        sort_nodes(&compile->keep, &graph->blocks[r], ranks);
    return graph;
}

static enum ul_status try_targets(struct ul_alternatives *alternatives,
                                  struct ul_split_search *splits)
{
    double unsplit = (double)ul_split_search_live_bytes(splits);
    double reached = 1.0;
    double missed = 0.0;
    uint32_t halvings = 0;
    while (halvings <= MAX_HALVINGS && alternatives->count < MAX_SPLIT_VARIANTS &&
           ul_alternatives_have_time(alternatives)) {
        struct ul_texts texts = {.count = 0};
        const char *const *found;
        uint32_t count;
        double target =
            missed > 0.0 ? (reached + missed) / 2 : reached - (reached > 0.95 ? 0.05 : 0.1);
        if (target < 0.05)
            break;
        if (ul_split_search_reach(splits, (uint64_t)(unsplit * target), &found, &count)) {
            for (uint32_t i = 0; i < count; i++)
                ul_texts_add(&alternatives->compile->keep, &texts, found[i]);
            const struct ul_alternative_form form = {
                .row_major = alternatives->items[0].form.row_major, .splits = texts};
            UL_TRY(ul_alternatives_try(alternatives, &form));
            reached = target;
        } else {
            missed = target;
        }
        halvings += missed > 0.0;
    }
    return UL_OK;
}

enum ul_status ul_alternatives_try_splits(struct ul_alternatives *alternatives)
{
    struct ul_compile *compile = alternatives->compile;
    struct ul_split_facts *facts = kernel_facts(compile);
    struct question question = {.compile = compile};
    ul_arena_init(&question.scratch);
    if (compile->libraries != NULL) {
        ul_unsplit_init(&question.unsplit, &compile->keep, compile->program);
        facts->may_split = may_split;
        facts->context = &question;
    }
    struct ul_split_search *splits =
        ul_split_search_new(&compile->keep, planned_graph(alternatives), facts);
    enum ul_status status = try_targets(alternatives, splits);
    ul_arena_done(&question.scratch);
    return status == UL_OK ? ul_alternatives_merge_front(alternatives) : status;
}
