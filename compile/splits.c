/* Splits that a budget asks for: programs with chains computed in pieces, as variants of the one
 * that was built, and the ladders of all of them as one.
 *
 * Problem: which chains to split, where and how often, is a search over programs, and each has to
 * be lowered and planned to be judged. Method: targets for the live sum, from that of the program
 * down. For each, passes/split_search.c finds splits that keep it; that program is built, and
 * planned without a budget. Where a target cannot be kept, others above it are tried by halving.
 *
 *      1.0 * live: no split      0.9: A      0.8: A, B      0.7: none      0.75: A, C
 *
 * The plans of all variants are merged into the ladder; those at the front give their own rungs
 * with recomputation as well. What is tried does not depend on the budget, so that the ladder stays
 * one ladder. */
#include "codegen/program/whole.h"
#include "compile/compile_internal.h"
#include "planner/model/effort.h"
#include "planner/model/optional.h"

#include <string.h>

enum {
    MAX_HALVINGS = 3,
    MAX_VARIANTS = 16,
    MAX_LADDERS = 4,       /* variants that are also searched for recomputations */
    MAX_STEPS = 100 * 1000 /* of all variants together */
};

struct variant {
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_program *program;
    struct ul_plan plan; /* without a budget */
    struct ul_plan lean; /* of steps that take the minimum of scratch, whatever that costs */
    struct ul_texts splits;
};

/* What may_split asks about. */
struct question {
    const struct ul_compile *compile;
    struct ul_whole whole;
    struct ul_arena scratch;
};

struct search {
    struct ul_compile *compile;
    struct ul_plan_options planning; /* without a budget */
    uint32_t count;
    struct variant *variants; /* variant 0 is that of the compile */
    uint64_t steps;
    struct ul_plan_beside processes[MAX_VARIANTS]; /* of those whose plans are merged */
    struct question question;
    struct ul_effort effort; /* the deadline of all */
};

/* Hands what is left of a time limit to the next part of the search; false: nothing is. */
static bool has_time(struct search *search)
{
    if (search->effort.deadline_seconds <= 0)
        return true;
    search->planning.time_limit_seconds = ul_deadline_left(search->effort.deadline_seconds);
    search->effort.stopped_by_time |= search->planning.time_limit_seconds <= 0;
    return search->planning.time_limit_seconds > 0;
}

static uint64_t reserved_of(const struct variant *variant)
{
    return variant->lean.reserved_bytes[0];
}

/* Smaller, or as small and cheaper. */
static bool is_better(const struct variant *a, const struct variant *b)
{
    if (reserved_of(a) != reserved_of(b))
        return reserved_of(a) < reserved_of(b);
    return a->lean.cost < b->lean.cost;
}

/* ---- One variant ---- */

static enum ul_status split_graph(struct ul_graph *graph, const struct ul_texts *splits,
                                  struct ul_diag *diag)
{
    struct ul_arena scratch;
    struct ul_passes_options options = {
        .only = "split", .splits = splits->items, .split_count = splits->count};
    ul_arena_init(&scratch);
    enum ul_status status = ul_passes_run(graph, &scratch, &options, diag);
    ul_arena_done(&scratch);
    return status;
}

/* The alternative of a step that takes the minimum of scratch, the first of those that read the
 * optional values that the first does. */
static uint32_t leanest_of(const struct ul_problem *problem, const struct ul_plan_step *step)
{
    uint32_t leanest = 0;
    for (uint32_t a = 1; a < step->alternative_count; a++) {
        if (step->alternatives[a].substeps[0].scratch_bytes <
                step->alternatives[leanest].substeps[0].scratch_bytes &&
            ul_optional_is_alike(problem, &step->alternatives[0], &step->alternatives[a]))
            leanest = a;
    }
    return leanest;
}

/* What splits can reach is seen where scratch does not hide it. */
static enum ul_status plan_lean(struct search *search, struct ul_arena *arena,
                                struct variant *variant, struct ul_diag *diag)
{
    struct ul_problem lean = *variant->program->problem;
    bool differs = false;
    lean.steps = ul_arena_copy(arena, lean.steps, lean.step_count * sizeof *lean.steps);
    lean.base_cost = variant->plan.base_cost;
    for (uint32_t s = 0; s < lean.step_count; s++) {
        differs = differs || lean.steps[s].alternative_count > 1;
        lean.steps[s].alternatives += leanest_of(&lean, &lean.steps[s]);
        lean.steps[s].alternative_count = 1;
    }
    variant->lean = variant->plan;
    if (!differs)
        return UL_OK;
    UL_TRY(ul_plan_solve(arena, &lean, &search->planning, &variant->lean, diag));
    for (uint32_t p = 0; p < variant->lean.position_count; p++) {
        struct ul_plan_position *at = &variant->lean.positions[p];
        at->alternative =
            leanest_of(variant->program->problem, &variant->program->problem->steps[at->step]);
    }
    /* Bounds are those of all that steps may do. */
    variant->lean.lower_bound_bytes = variant->plan.lower_bound_bytes;
    uint64_t orders = variant->plan.orders_lower_bound_bytes;
    uint64_t own = variant->lean.order_lower_bound_bytes;
    variant->lean.orders_lower_bound_bytes = orders < own ? orders : own;
    variant->lean.optimal = variant->lean.reserved_bytes[0] == variant->lean.lower_bound_bytes;
    return UL_OK;
}

static enum ul_status build_variant(struct search *search, struct variant *variant,
                                    struct ul_diag *diag)
{
    const struct ul_program *whole = search->compile->program;
    struct ul_program_options options = whole->options;
    options.whole = whole;
    ul_graph_copy(&variant->graph, &variant->arena, &search->compile->graph);
    UL_TRY(split_graph(&variant->graph, &variant->splits, diag));
    UL_TRY(ul_program_build(&variant->arena, &variant->graph, &options, &variant->program, diag));
    UL_TRY(ul_plan_solve(&variant->arena, variant->program->problem, &search->planning,
                         &variant->plan, diag));
    return plan_lean(search, &variant->arena, variant, diag);
}

static bool is_known(const struct search *search, const char *const *texts, uint32_t count)
{
    for (uint32_t i = 0; i < search->count; i++) {
        const struct ul_texts *splits = &search->variants[i].splits;
        bool same = splits->count == count;
        for (uint32_t k = 0; same && k < count; k++)
            same = strcmp(splits->items[k], texts[k]) == 0;
        if (same)
            return true;
    }
    return false;
}

/* Builds and plans a program with these splits. One that cannot be built is none; what else goes
 * wrong is a failure. */
static enum ul_status try_splits(struct search *search, const char *const *texts, uint32_t count)
{
    struct variant *variant = &search->variants[search->count];
    struct ul_diag diag = {0};
    if (is_known(search, texts, count) || search->count == MAX_VARIANTS ||
        search->steps > MAX_STEPS)
        return UL_OK;
    *variant = (struct variant){.program = NULL};
    ul_arena_init(&variant->arena);
    for (uint32_t i = 0; i < count; i++)
        ul_texts_add(&search->compile->keep, &variant->splits, texts[i]);
    enum ul_status status = build_variant(search, variant, &diag);
    if (status == UL_OK) {
        search->steps += variant->program->step_count;
        search->count++;
        return UL_OK;
    }
    ul_arena_done(&variant->arena);
    if (status == UL_UNSUPPORTED || status == UL_USAGE)
        return UL_OK;
    search->compile->diag = diag;
    return status;
}

/* ---- Targets ---- */

static bool may_split(void *context, const struct ul_graph *graph, ul_node_id first_piece)
{
    struct question *question = context;
    bool sure = ul_calls_can_split(&question->scratch, graph, first_piece,
                                   question->compile->library, &question->whole);
    ul_arena_reset(&question->scratch);
    return sure;
}

/* What the kernels cost, and what they may take over. */
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

/* Per node of the main block: when its step runs, from 1 on; of what has no step, when the last of
 * its inputs is there, and then behind it. Twice the position, so that there is room between. */
static uint32_t *ranks_of(struct search *search, const struct ul_graph *graph)
{
    struct ul_compile *compile = search->compile;
    const struct ul_plan *plan = &search->variants[0].plan;
    const struct ul_block *block = &graph->blocks[0];
    uint32_t *ranks = UL_NEW_ARRAY(&compile->keep, uint32_t, graph->node_count);
    uint32_t *places = UL_NEW_ARRAY(&compile->keep, uint32_t, graph->node_count);
    for (uint32_t n = 0; n < block->node_count; n++)
        places[block->nodes[n]] = n;
    for (uint32_t p = plan->position_count; p-- > 0;) {
        uint32_t at = places[compile->program->steps[plan->positions[p].step].node];
        uint32_t group = graph->nodes[block->nodes[at]].group;
        ranks[block->nodes[at]] = 2 * p + 2;
        while (group != UL_NONE && at > 0 && graph->nodes[block->nodes[at - 1]].group == group)
            ranks[block->nodes[--at]] = 2 * p + 2;
    }
    for (uint32_t n = 0; n < block->node_count; n++) {
        const struct ul_node *node = &graph->nodes[block->nodes[n]];
        if (ranks[block->nodes[n]] != 0)
            continue;
        for (uint32_t i = 0; i < node->input_count; i++) {
            const struct ul_value *value =
                node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]];
            uint32_t made =
                value != NULL && value->kind == UL_VALUE_NODE ? ranks[value->producer] | 1u : 1;
            if (made > ranks[block->nodes[n]])
                ranks[block->nodes[n]] = made;
        }
    }
    return ranks;
}

/* The graph in the order of the plan: what the live sums are that splits have to lower. */
static struct ul_graph *planned_graph(struct search *search)
{
    struct ul_compile *compile = search->compile;
    struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
    ul_graph_copy(graph, &compile->keep, &compile->graph);
    if (graph->block_count > 1)
        return graph; /* steps of loops and branches stay where they are */
    struct ul_block *block = &graph->blocks[0];
    uint32_t rank_count = 2 * search->variants[0].plan.position_count + 2;
    const uint32_t *ranks = ranks_of(search, graph);
    uint32_t *begins = UL_NEW_ARRAY(&compile->keep, uint32_t, (uint64_t)rank_count + 1);
    ul_node_id *nodes = UL_NEW_ARRAY(&compile->keep, ul_node_id, block->node_count);
    for (uint32_t n = 0; n < block->node_count; n++)
        begins[ranks[block->nodes[n]] + 1]++;
    for (uint32_t r = 0; r < rank_count; r++)
        begins[r + 1] += begins[r];
    for (uint32_t n = 0; n < block->node_count; n++)
        nodes[begins[ranks[block->nodes[n]]]++] = block->nodes[n];
    for (uint32_t n = 0; n < block->node_count; n++)
        block->nodes[n] = nodes[n];
    return graph;
}

static enum ul_status try_targets(struct search *search)
{
    struct ul_compile *compile = search->compile;
    struct ul_split_facts *facts = kernel_facts(compile);
    struct question *question = &search->question;
    if (compile->library != NULL) {
        question->compile = compile;
        ul_whole_init(&question->whole, &compile->keep, compile->program);
        facts->may_split = may_split;
        facts->context = question;
    }
    struct ul_split_search *splits =
        ul_split_search_new(&compile->keep, planned_graph(search), facts);
    double whole = (double)ul_split_search_live_bytes(splits);
    double reached = 1.0;
    double missed = 0.0;
    uint32_t halvings = 0;
    while (halvings <= MAX_HALVINGS && search->count < MAX_VARIANTS && has_time(search)) {
        const char *const *texts;
        uint32_t count;
        double target =
            missed > 0.0 ? (reached + missed) / 2 : reached - (reached > 0.95 ? 0.05 : 0.1);
        if (target < 0.05)
            break;
        bool found = ul_split_search_reach(splits, (uint64_t)(whole * target), &texts, &count);
        if (found) {
            UL_TRY(try_splits(search, texts, count));
            reached = target;
        } else {
            missed = target;
        }
        halvings += missed > 0.0;
    }
    return UL_OK;
}

/* ---- One ladder ---- */

/* No other variant is as small and as cheap. */
static bool is_in_front(const struct search *search, uint32_t index)
{
    const struct variant *variant = &search->variants[index];
    for (uint32_t i = 0; i < search->count; i++) {
        const struct variant *other = &search->variants[i];
        bool as_good =
            reserved_of(other) <= reserved_of(variant) && other->lean.cost <= variant->lean.cost;
        bool better = reserved_of(other) < reserved_of(variant) ||
                      other->lean.cost < variant->lean.cost || i < index;
        if (i != index && as_good && better)
            return false;
    }
    return true;
}

/* A plan, and the same order with fewer optional values. The variants' arenas end before the ladder
 * does: what it holds is the compile's own. */
static enum ul_status merge_plan(struct search *search, uint32_t index, const struct ul_plan *plan)
{
    struct ul_compile *compile = search->compile;
    const struct ul_problem *problem = search->variants[index].program->problem;
    struct ul_plan base = ul_plan_keep(&compile->keep, problem, plan);
    struct ul_plan_ladder ladder = {.count = 0};
    if (!has_time(search))
        return UL_OK;
    ul_plan_place_beside(&compile->keep, problem, &base);
    UL_TRY(ul_ladder_spread(&compile->keep, problem, &search->planning, &base, &ladder,
                            &compile->diag));
    ul_ladder_merge(&compile->keep, &compile->ladder, &ladder, index);
    return UL_OK;
}

static enum ul_status merge_ladder(struct search *search, uint32_t index)
{
    struct ul_compile *compile = search->compile;
    const struct ul_problem *problem = search->variants[index].program->problem;
    struct ul_plan_ladder ladder = {.count = 0};
    if (!has_time(search))
        return UL_OK;
    struct ul_plan base = ul_plan_keep(&compile->keep, problem, &search->variants[index].plan);
    ul_plan_place_beside(&compile->keep, problem, &base);
    UL_TRY(ul_ladder_build(&compile->keep, problem, &search->planning, &base, &ladder,
                           &compile->diag));
    ul_ladder_merge(&compile->keep, &compile->ladder, &ladder, index);
    return UL_OK;
}

/* What the process of a variant takes, as far as a ladder of its plans goes by that. */
static void count_variant(struct search *search, uint32_t index)
{
    const struct ul_program *program = search->variants[index].program;
    if (index > 0)
        ul_compile_count_beside(search->compile, program);
    search->processes[index] = ul_compile_process(search->compile, program);
    search->planning.beside = ul_compile_beside(search->compile, program);
}

/* Whether a method of recomputation that was named has a use for the variant: no other may take its
 * place, and the plans say that it was asked. */
static bool is_served(struct search *search, struct variant *variant)
{
    struct ul_arena *keep = &search->compile->keep;
    const struct ul_problem *problem = variant->program->problem;
    if (ul_ladder_refusal(keep, problem, &search->planning, &variant->plan) != NULL)
        return false;
    variant->lean.remat_method = variant->plan.remat_method;
    return true;
}

/* The smallest of the front and some evenly between are searched for recomputations. */
static enum ul_status merge_all(struct search *search)
{
    uint32_t front[MAX_VARIANTS];
    uint32_t count = 0;
    for (uint32_t i = 1; i < search->count; i++) {
        if (is_in_front(search, i) && is_served(search, &search->variants[i]))
            front[count++] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        count_variant(search, front[i]);
        UL_TRY(merge_plan(search, front[i], &search->variants[front[i]].plan));
        UL_TRY(merge_plan(search, front[i], &search->variants[front[i]].lean));
    }
    for (uint32_t i = 0; i + 1 < count; i++) {
        for (uint32_t k = i + 1; k < count; k++) {
            if (is_better(&search->variants[front[k]], &search->variants[front[i]])) {
                uint32_t other = front[i];
                front[i] = front[k];
                front[k] = other;
            }
        }
    }
    uint32_t ladders = count < MAX_LADDERS ? count : MAX_LADDERS;
    for (uint32_t i = 0; i < ladders; i++) {
        uint32_t index = front[(uint64_t)i * (count - 1) / (ladders < 2 ? 1 : ladders - 1)];
        search->planning.beside =
            ul_compile_beside(search->compile, search->variants[index].program);
        UL_TRY(merge_ladder(search, index));
    }
    return UL_OK;
}

static bool is_disabled(const struct ul_compile *compile)
{
    for (uint32_t i = 0; i < compile->options.no_passes.count; i++) {
        if (strcmp(compile->options.no_passes.items[i], "split") == 0)
            return true;
    }
    return compile->options.splits.count > 0 || compile->options.pack == UL_PACK_NONE;
}

enum ul_status ul_compile_merge_splits(struct ul_compile *compile, const struct ul_plan *free_plan)
{
    struct search search = {.compile = compile, .planning = ul_compile_planning(&compile->options)};
    if (is_disabled(compile) || free_plan->position_count == 0)
        return UL_OK;
    search.planning.budget_bytes = 0;
    search.effort.deadline_seconds = ul_deadline_after(search.planning.time_limit_seconds);
    search.variants = UL_NEW_ARRAY(&compile->keep, struct variant, MAX_VARIANTS);
    search.variants[0] =
        (struct variant){.graph = compile->graph, .program = compile->program, .plan = *free_plan};
    search.count = 1;
    count_variant(&search, 0);
    UL_TRY(plan_lean(&search, &compile->keep, &search.variants[0], &compile->diag));
    ul_arena_init(&search.question.scratch);
    enum ul_status status = try_targets(&search);
    ul_arena_done(&search.question.scratch);
    if (status == UL_OK)
        status = merge_all(&search);
    struct ul_report_splits *splits =
        UL_NEW_ARRAY(&compile->keep, struct ul_report_splits, search.count);
    for (uint32_t i = 0; i < search.count; i++)
        splits[i] = (struct ul_report_splits){.count = search.variants[i].splits.count,
                                              .texts = search.variants[i].splits.items,
                                              .process = search.processes[i]};
    compile->report.variants = splits;
    for (uint32_t i = 0; search.effort.stopped_by_time && i < compile->ladder.count; i++)
        compile->ladder.rungs[i].plan.stopped_by_time = true;
    for (uint32_t i = 1; i < search.count; i++)
        ul_arena_done(&search.variants[i].arena);
    return status;
}

enum ul_status ul_compile_apply_variant(struct ul_compile *compile, uint32_t variant)
{
    if (variant == 0)
        return UL_OK;
    UL_ASSERT(compile->report.variants != NULL && compile->options.splits.count == 0);
    /* The program without splits keeps its graph, for comparison; the compile gets another. */
    struct ul_graph *graph = UL_NEW(&compile->keep, struct ul_graph);
    struct ul_program *whole = UL_NEW(&compile->keep, struct ul_program);
    struct ul_program_options options = compile->program->options;
    *graph = compile->graph;
    *whole = *compile->program;
    whole->graph = graph;
    options.whole = whole;
    const struct ul_report_splits *splits = &compile->report.variants[variant];
    for (uint32_t i = 0; i < splits->count; i++)
        ul_texts_add(&compile->keep, &compile->options.splits, splits->texts[i]);
    ul_graph_copy(&compile->graph, &compile->keep, graph);
    UL_TRY(split_graph(&compile->graph, &compile->options.splits, &compile->diag));
    UL_TRY(ul_program_build(&compile->keep, &compile->graph, &options, &compile->program,
                            &compile->diag));
    ul_compile_count_beside(compile, compile->program);
    return UL_OK;
}
