/* Splits that a budget asks for: programs with chains computed in pieces, as variants of the one
 * that was built, and the ladders of all of them as one.
 *
 * Problem: which chains to split, where and how often, is a search over programs, and each has to
 * be lowered and planned to be judged. Method: at the peak of the best program so far the live sum
 * suggests a few splits (passes/split_suggest.c); each is built and planned without a budget, and
 * the smallest is where the next round goes on, until a round brings nothing. What is tried does
 * not depend on the budget, so that the ladder stays one ladder:
 *
 *      program --peak--> split A, split B, ..      the smallest: B
 *      program + B --peak--> split C, ..           until nothing falls
 *
 * The plans of all variants are merged into the ladder; those at the front give their own rungs
 * with recomputation as well. Left undone: going on from any but the smallest of a round. */
#include "cli/cli.h"

#include <string.h>

enum {
    MOST_ROUNDS = 6,
    MOST_OFFERS = 6, /* splits of a round */
    MOST_VARIANTS = MOST_ROUNDS * MOST_OFFERS + 1,
    MOST_LADDERS = 4,      /* variants that are also searched for recomputations */
    MOST_STEPS = 60 * 1000 /* of all variants together */
};

struct variant {
    struct ul_arena arena;
    struct ul_graph graph;
    struct ul_program *program;
    struct ul_plan plan; /* without a budget */
    struct ul_cli_list splits;
};

struct search {
    struct ul_cli_job *job;
    struct ul_plan_options planning; /* without a budget */
    uint32_t count;
    struct variant *variants; /* variant 0 is the job's own program */
    uint64_t steps;
};

static uint64_t reserved_of(const struct variant *variant)
{
    return variant->plan.reserved_bytes[0];
}

/* Smaller, or as small and cheaper. */
static bool is_better(const struct variant *a, const struct variant *b)
{
    if (reserved_of(a) != reserved_of(b))
        return reserved_of(a) < reserved_of(b);
    return a->plan.cost < b->plan.cost;
}

/* ---- One variant ---- */

static enum ul_status split_graph(struct ul_graph *graph, const struct ul_cli_list *splits,
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

static enum ul_status build_variant(struct search *search, struct variant *variant,
                                    struct ul_diag *diag)
{
    const struct ul_program *whole = search->job->program;
    struct ul_program_options options = whole->options;
    options.whole = whole;
    ul_graph_copy(&variant->graph, &variant->arena, &search->job->graph);
    UL_TRY(split_graph(&variant->graph, &variant->splits, diag));
    UL_TRY(ul_program_build(&variant->arena, &variant->graph, &options, &variant->program, diag));
    return ul_plan_solve(&variant->arena, variant->program->problem, &search->planning,
                         &variant->plan, diag);
}

/* Tries the splits of `from` and one more. A split that cannot be built is none; what else goes
 * wrong is a failure. */
static enum ul_status try_split(struct search *search, const struct variant *from, const char *text)
{
    struct variant *variant = &search->variants[search->count];
    struct ul_diag diag = {0};
    *variant = (struct variant){.program = NULL};
    ul_arena_init(&variant->arena);
    for (uint32_t i = 0; i < from->splits.count; i++)
        ul_cli_list_add(&search->job->keep, &variant->splits, from->splits.items[i]);
    ul_cli_list_add(&search->job->keep, &variant->splits,
                    ul_arena_copy_string(&search->job->keep, text));
    enum ul_status status = build_variant(search, variant, &diag);
    if (status == UL_OK) {
        search->steps += variant->program->step_count;
        search->count++;
        return UL_OK;
    }
    ul_arena_done(&variant->arena);
    if (status == UL_UNSUPPORTED || status == UL_USAGE)
        return UL_OK;
    search->job->diag = diag;
    return status;
}

/* ---- Rounds ---- */

/* The node whose step has the largest live sum. */
static ul_node_id peak_node(const struct variant *variant)
{
    const struct ul_plan *plan = &variant->plan;
    return variant->program->steps[plan->positions[plan->peak_position].step].node;
}

/* The variants of one round; `best` is the smallest so far. False: nothing fell. */
static enum ul_status run_round(struct search *search, uint32_t *best, bool *falls)
{
    struct ul_split_offer offers[MOST_OFFERS];
    struct ul_arena texts;
    uint32_t from = *best;
    enum ul_status status = UL_OK;
    ul_arena_init(&texts);
    const struct variant *base = &search->variants[from];
    uint32_t count = ul_splits_suggest(&base->graph, peak_node(base), &texts, offers, MOST_OFFERS);
    for (uint32_t i = 0; i < count && status == UL_OK && search->steps < MOST_STEPS; i++) {
        uint32_t before = search->count;
        status = try_split(search, &search->variants[from], offers[i].text);
        if (search->count > before &&
            is_better(&search->variants[before], &search->variants[*best]))
            *best = before;
    }
    ul_arena_done(&texts);
    *falls = reserved_of(&search->variants[*best]) < reserved_of(&search->variants[from]);
    return status;
}

/* ---- One ladder ---- */

/* No other variant is as small and as cheap. */
static bool is_in_front(const struct search *search, uint32_t index)
{
    const struct variant *variant = &search->variants[index];
    for (uint32_t i = 0; i < search->count; i++) {
        const struct variant *other = &search->variants[i];
        bool as_good =
            reserved_of(other) <= reserved_of(variant) && other->plan.cost <= variant->plan.cost;
        bool better = reserved_of(other) < reserved_of(variant) ||
                      other->plan.cost < variant->plan.cost || i < index;
        if (i != index && as_good && better)
            return false;
    }
    return true;
}

/* The plan in the job's memory. */
static enum ul_status merge_plan(struct search *search, uint32_t index)
{
    struct ul_cli_job *job = search->job;
    struct ul_plan_rung rung = {.variant = index};
    const struct ul_problem *problem = search->variants[index].program->problem;
    struct ul_plan_ladder ladder = {.rungs = &rung, .count = 1};
    UL_TRY(ul_plan_solve(&job->keep, problem, &search->planning, &rung.plan, &job->diag));
    ul_ladder_merge(&job->keep, &job->ladder, &ladder, index);
    return UL_OK;
}

static enum ul_status merge_ladder(struct search *search, uint32_t index)
{
    struct ul_cli_job *job = search->job;
    const struct variant *variant = &search->variants[index];
    struct ul_plan_ladder ladder = {.count = 0};
    UL_TRY(ul_ladder_build(&job->keep, variant->program->problem, &job->options.planning,
                           &variant->plan, &ladder, &job->diag));
    ul_ladder_merge(&job->keep, &job->ladder, &ladder, index);
    return UL_OK;
}

/* The smallest of the front and some evenly between are searched for recomputations. */
static enum ul_status merge_all(struct search *search)
{
    uint32_t front[MOST_VARIANTS];
    uint32_t count = 0;
    for (uint32_t i = 1; i < search->count; i++) {
        if (is_in_front(search, i))
            front[count++] = i;
    }
    for (uint32_t i = 0; i < count; i++)
        UL_TRY(merge_plan(search, front[i]));
    for (uint32_t i = 0; i + 1 < count; i++) {
        for (uint32_t k = i + 1; k < count; k++) {
            if (is_better(&search->variants[front[k]], &search->variants[front[i]])) {
                uint32_t other = front[i];
                front[i] = front[k];
                front[k] = other;
            }
        }
    }
    uint32_t ladders = count < MOST_LADDERS ? count : MOST_LADDERS;
    for (uint32_t i = 0; i < ladders; i++)
        UL_TRY(merge_ladder(search,
                            front[(uint64_t)i * (count - 1) / (ladders < 2 ? 1 : ladders - 1)]));
    return UL_OK;
}

static bool is_disabled(const struct ul_cli_job *job)
{
    for (uint32_t i = 0; i < job->options.no_passes.count; i++) {
        if (strcmp(job->options.no_passes.items[i], "split") == 0)
            return true;
    }
    return job->options.splits.count > 0 || job->options.planning.pack == UL_PACK_NONE;
}

enum ul_status ul_cli_merge_splits(struct ul_cli_job *job, const struct ul_plan *free_plan)
{
    struct search search = {.job = job, .planning = job->options.planning};
    enum ul_status status = UL_OK;
    uint32_t best = 0;
    bool falls = true;
    if (is_disabled(job) || free_plan->position_count == 0)
        return UL_OK;
    search.planning.budget_bytes = 0;
    search.variants = UL_NEW_ARRAY(&job->keep, struct variant, MOST_VARIANTS);
    search.variants[0] =
        (struct variant){.graph = job->graph, .program = job->program, .plan = *free_plan};
    search.count = 1;
    for (uint32_t r = 0; r < MOST_ROUNDS && falls && status == UL_OK; r++)
        status = run_round(&search, &best, &falls);
    if (status == UL_OK)
        status = merge_all(&search);
    job->variant_splits = UL_NEW_ARRAY(&job->keep, struct ul_cli_list, search.count);
    for (uint32_t i = 0; i < search.count; i++)
        job->variant_splits[i] = search.variants[i].splits;
    for (uint32_t i = 1; i < search.count; i++)
        ul_arena_done(&search.variants[i].arena);
    return status;
}

enum ul_status ul_cli_take_variant(struct ul_cli_job *job, uint32_t variant)
{
    if (variant == 0)
        return UL_OK;
    /* The program without splits keeps its graph, for comparison; the job gets another. */
    struct ul_graph *graph = UL_NEW(&job->keep, struct ul_graph);
    struct ul_program *whole = UL_NEW(&job->keep, struct ul_program);
    struct ul_program_options options = job->program->options;
    *graph = job->graph;
    *whole = *job->program;
    whole->graph = graph;
    options.whole = whole;
    job->options.splits = job->variant_splits[variant];
    ul_graph_copy(&job->graph, &job->keep, graph);
    UL_TRY(split_graph(&job->graph, &job->options.splits, &job->diag));
    return ul_program_build(&job->keep, &job->graph, &options, &job->program, &job->diag);
}
