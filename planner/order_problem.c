/* Candidate orders for a problem's steps, by way of an abstract graph.
 *
 * Problem: the order methods know nodes that make one value each; a problem's steps write several
 * values, update them, and write slices of one another's.
 * Method: a step becomes a node of the bytes of all values that it is the first to write; whoever
 * touches a value comes after its first writer, readers after all writers before them in file
 * order, writers after all earlier readers; one node more reads what lives to the end. The graph
 * overstates some lifetimes and knows nothing in place, so the caller judges every candidate by
 * its true live sum.
 * Left undone: problems with regions keep their file order. */
#include "planner/planner_internal.h"
#include "planner/solve_internal.h"

#include <stdlib.h>
#include <string.h>

struct touch {
    uint32_t step;
    bool writes;
};

struct linker {
    const struct ul_problem *problem;
    struct ul_arena *scratch;
    uint32_t (*edges)[2]; /* before, after */
    uint32_t edge_count, edge_capacity;
    uint32_t *touch_first; /* per value: touches in file order, value_count + 1 entries */
    struct touch *touches;
};

static void edge_add(struct linker *l, uint32_t before, uint32_t after)
{
    if (before == after)
        return;
    UL_GROW(l->scratch, l->edges, l->edge_count, l->edge_capacity);
    l->edges[l->edge_count][0] = before;
    l->edges[l->edge_count++][1] = after;
}

typedef void touch_visit(struct linker *l, uint32_t value, uint32_t step, bool writes);

static void touches_visit(struct linker *l, touch_visit *visit)
{
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        const struct ul_plan_step *step = &l->problem->steps[s];
        for (uint32_t a = 0; a < step->alternative_count; a++) {
            for (uint32_t i = 0; i < step->alternatives[a].part_count; i++) {
                const struct ul_plan_part *part = &step->alternatives[a].parts[i];
                for (uint32_t j = 0; j < part->read_count; j++)
                    visit(l, part->reads[j], s, false);
                for (uint32_t j = 0; j < part->write_count; j++)
                    visit(l, part->writes[j], s, true);
            }
        }
    }
}

static void touch_count(struct linker *l, uint32_t value, uint32_t step, bool writes)
{
    (void)step;
    (void)writes;
    l->touch_first[value + 1]++;
}

static void touch_store(struct linker *l, uint32_t value, uint32_t step, bool writes)
{
    l->touches[l->touch_first[value]++] = (struct touch){step, writes};
}

static void touches_make(struct linker *l)
{
    uint32_t count = l->problem->value_count;
    l->touch_first = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)count + 2);
    touches_visit(l, touch_count);
    for (uint32_t v = 0; v < count; v++)
        l->touch_first[v + 1] += l->touch_first[v];
    l->touches = UL_NEW_ARRAY(l->scratch, struct touch, l->touch_first[count]);
    touches_visit(l, touch_store);
    /* Storing has moved each start to the next one's. */
    for (uint32_t v = count; v > 0; v--)
        l->touch_first[v] = l->touch_first[v - 1];
    l->touch_first[0] = 0;
}

/* Links the touches of one value: between two changes of role (writers, then readers, then writers
 * again) each of the later group comes after each of the earlier one; and all come after the first
 * writer, which makes the value. */
static void value_link(struct linker *l, uint32_t value)
{
    uint32_t first = l->touch_first[value];
    uint32_t end = l->touch_first[value + 1];
    uint32_t maker = UL_PLAN_NONE;
    uint32_t before = first; /* the group before the current one is [before, group) */
    uint32_t group = first;
    for (uint32_t i = first; i < end; i++) {
        const struct touch *touch = &l->touches[i];
        if (i > group && touch->writes != l->touches[group].writes) {
            before = group;
            group = i;
        }
        for (uint32_t j = before; j < group; j++)
            edge_add(l, l->touches[j].step, touch->step);
        if (touch->writes && maker == UL_PLAN_NONE)
            maker = touch->step;
        if (maker != UL_PLAN_NONE)
            edge_add(l, maker, touch->step);
    }
    if (l->problem->values[value].live_to_end && maker != UL_PLAN_NONE)
        edge_add(l, maker, l->problem->step_count);
}

static int edge_compare(const void *a, const void *b)
{
    const uint32_t *x = a;
    const uint32_t *y = b;
    if (x[0] != y[0])
        return x[0] < y[0] ? -1 : 1;
    return x[1] < y[1] ? -1 : x[1] > y[1];
}

static void graph_lists(struct linker *l, struct ul_solve_graph *g)
{
    if (l->edge_count > 0)
        qsort(l->edges, l->edge_count, sizeof *l->edges, edge_compare);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->edge_count; i++) {
        if (i > 0 && edge_compare(l->edges[i], l->edges[kept - 1]) == 0)
            continue;
        l->edges[kept][0] = l->edges[i][0];
        l->edges[kept++][1] = l->edges[i][1];
    }
    g->user_first = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)g->node_count + 1);
    g->input_first = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)g->node_count + 2);
    g->users = UL_NEW_ARRAY(l->scratch, uint32_t, kept);
    g->inputs = UL_NEW_ARRAY(l->scratch, uint32_t, kept);
    for (uint32_t i = 0; i < kept; i++) {
        g->users[i] = l->edges[i][1];
        g->user_first[l->edges[i][0] + 1]++;
        g->input_first[l->edges[i][1] + 2]++;
    }
    for (uint32_t v = 0; v < g->node_count; v++) {
        g->user_first[v + 1] += g->user_first[v];
        g->input_first[v + 2] += v + 1 < g->node_count ? g->input_first[v + 1] : 0;
    }
    for (uint32_t i = 0; i < kept; i++)
        g->inputs[g->input_first[l->edges[i][1] + 1]++] = l->edges[i][0];
}

static void graph_make(struct linker *l, uint64_t alignment_bytes, struct ul_solve_graph *g)
{
    const struct ul_problem *problem = l->problem;
    memset(g, 0, sizeof *g);
    g->node_count = problem->step_count + 1;
    g->size_bytes = UL_NEW_ARRAY(l->scratch, uint64_t, g->node_count);
    g->cost = UL_NEW_ARRAY(l->scratch, uint64_t, g->node_count);
    g->order = UL_NEW_ARRAY(l->scratch, uint32_t, g->node_count);
    for (uint32_t s = 0; s < g->node_count; s++)
        g->order[s] = s;
    touches_make(l);
    for (uint32_t v = 0; v < problem->value_count; v++) {
        const struct ul_plan_value *value = &problem->values[v];
        value_link(l, v);
        if (value->persistent || value->live_from_start || value->space != 0)
            continue;
        for (uint32_t i = l->touch_first[v]; i < l->touch_first[v + 1]; i++) {
            if (!l->touches[i].writes)
                continue;
            g->size_bytes[l->touches[i].step] +=
                ul_size_align_or_die(value->size_bytes, alignment_bytes);
            break;
        }
    }
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        for (uint32_t i = 0; i < step->predecessor_count; i++)
            edge_add(l, step->predecessors[i], s);
    }
    graph_lists(l, g);
}

/* ---- Candidates ---- */

struct chooser {
    struct ul_arena *arena;
    const struct ul_problem *problem;
    uint64_t alignment_bytes;
    const struct ul_solve_graph *graph;
    struct ul_order_choice *choice;
};

static uint64_t live_sum_of(const struct chooser *c, struct ul_arena *scratch,
                            const uint32_t *steps)
{
    struct ul_plan plan;
    memset(&plan, 0, sizeof plan);
    plan.alignment_bytes = c->alignment_bytes;
    ul_timeline_positions(scratch, c->problem, steps, &plan);
    ul_timeline_build(scratch, c->problem, UL_ALIAS_ALL, &plan);
    ul_account_live(scratch, &plan);
    return plan.order_lower_bound_bytes;
}

/* `nodes` is an order of the graph; the node that stands for the end is left out. */
static void candidate_offer(struct chooser *c, const uint32_t *nodes, const char *method)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t count = c->problem->step_count;
    uint32_t *steps = UL_NEW_ARRAY(&scratch, uint32_t, count);
    uint32_t kept = 0;
    for (uint32_t i = 0; i <= count; i++) {
        if (nodes[i] != count)
            steps[kept++] = nodes[i];
    }
    uint64_t bytes = live_sum_of(c, &scratch, steps);
    if (bytes < c->choice->live_bytes) {
        c->choice->live_bytes = bytes;
        c->choice->method = method;
        memcpy(c->choice->steps, steps, count * sizeof *steps);
    }
    ul_arena_done(&scratch);
}

static bool wants(const struct ul_plan_options *options, enum ul_plan_order order)
{
    return options->order == UL_ORDER_BEST || options->order == order;
}

static void searches_run(struct chooser *c, const struct ul_plan_options *options)
{
    enum { STATES = 1 << 16, LARGE = 1500, BEAM_WORK = 1 << 27 };
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    const struct ul_solve_graph *g = c->graph;
    uint32_t n = g->node_count;
    uint32_t *nodes = UL_NEW_ARRAY(&scratch, uint32_t, n);
    uint64_t peak, cost;
    bool valid = ul_solve_replay(g, g->order, n, &peak, &cost);
    UL_ASSERT(valid);
    uint64_t lower_bytes = 0;
    if (wants(options, UL_ORDER_DP) && n <= LARGE &&
        ul_order_downsets(&scratch, g, peak, STATES, &lower_bytes, nodes) == UL_ORDER_IMPROVED)
        candidate_offer(c, nodes, "search over downsets");
    uint64_t visits = (uint64_t)n * (n + g->input_first[n]) + 1;
    uint32_t width = BEAM_WORK / visits < 64 ? (uint32_t)(BEAM_WORK / visits) : 64;
    if (wants(options, UL_ORDER_BEAM) && width > 0 &&
        ul_order_beam(&scratch, g, width, peak, nodes))
        candidate_offer(c, nodes, "beam");
    ul_arena_done(&scratch);
}

void ul_order_problem(struct ul_arena *arena, const struct ul_problem *problem,
                      const struct ul_plan_options *options, struct ul_order_choice *choice)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct chooser c = {.arena = arena,
                        .problem = problem,
                        .alignment_bytes = options->alignment_bytes,
                        .choice = choice};
    choice->method = "file";
    choice->steps = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        choice->steps[s] = s;
    choice->live_bytes = live_sum_of(&c, &scratch, choice->steps);
    uint64_t bound = ul_account_bound(&scratch, problem, options->alignment_bytes);
    bool free_to_move = problem->region_count == 1 && options->order != UL_ORDER_FILE;
    if (free_to_move && choice->live_bytes > bound) {
        struct ul_solve_graph graph;
        struct linker linker = {.problem = problem, .scratch = &scratch};
        graph_make(&linker, options->alignment_bytes, &graph);
        c.graph = &graph;
        uint32_t *nodes = UL_NEW_ARRAY(&scratch, uint32_t, graph.node_count);
        if (wants(options, UL_ORDER_GREEDY)) {
            ul_order_greedy(&scratch, &graph, nodes);
            candidate_offer(&c, nodes, "greedy");
        }
        if (wants(options, UL_ORDER_DFS)) {
            ul_order_depth_first(&scratch, &graph, nodes);
            candidate_offer(&c, nodes, "depth-first");
        }
        if (choice->live_bytes > bound)
            searches_run(&c, options);
    }
    ul_arena_done(&scratch);
}
