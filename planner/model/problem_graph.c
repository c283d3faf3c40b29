/* SPDX-License-Identifier: Apache-2.0 */
/* A problem's steps as an abstract graph, for the engines of order and recomputation.
 *
 * Problem: the engines know nodes that make one value each, which dies after the last node that
 * reads it. Steps write several values, update them, write slices of one another's, and some must
 * stay together. Method: there is one node for each step of the root sequence and of entries, and
 * one for each tree of regions below these, whose working bytes are all that is live inside. A
 * node's value is the value that it writes first and others need. What such nodes cannot express is
 * expressed by nodes that are no steps and cost nothing:
 *   input   a value that is live from the start; a gate after all of them comes before all else
 *   hold    a value with several first writers (slices): it is made just before the first of them,
 *           and they all read it
 *   gate    of size 0, between many writers and many readers of one value, in either order
 *   done    of size 0, reads only its step: a node that must only come later than a step reads it
 *           instead, and does not keep the step's value alive
 *   end     reads what lives to the end, and comes after everything
 * The steps of an entry, or of the root sequence between two of these, are a section. A gate stands
 * between two sections, so that each is a part by itself to the engines:
 *
 *      input, step ... step | gate | input, start, step ... step | gate | ...
 *
 * The gate after an entry reads what lives to the entry's end. What is live from its start is made
 * after the gate before it. A value that an entry and something else touch always lives. Run at
 * once in the order "hold, step, done, gate", these nodes change no live sum, so every order of the
 * steps has an order of the nodes with the same peak. The number of edges is linear in the touches
 * of values by steps. Two forms differ for steps that make several values: SEPARATE uses a hold for
 * all but one. REPEATABLE uses nodes that may run again:
 *   rest    another value of a step, which dies earlier in file order: it reads all that the step
 *           reads, and the step's values before this one
 *
 *      step (x) --> rest (y)          x: read much later     y: read at once
 *
 * Directly behind its step, which has room for its value, it is a part of the same run; elsewhere
 * it is a run of the step by itself (problem_runs.c). Each has an equal share of the cost. Values
 * that are small, or die together, share a node (they die together: the peak is overstated). Left
 * undone: only one of several in-place options of a node is used. */
#include "planner/model/problem_graph.h"
#include "planner/model/timeline.h"

#include <stdlib.h>
#include <string.h>

/* The place in file order of a node that is no step: around the step for which it was made. */
enum slot {
    SLOT_INPUT,
    SLOT_START,
    SLOT_HOLD,
    SLOT_STEP,
    SLOT_REST,
    SLOT_DONE,
    SLOT_GATE,
    SLOT_END,
    SLOT_COUNT
};
/* Before every step's: inputs, the gate after them, and stand-ins for one that is not read. */
enum { KEY_INPUT, KEY_START, KEY_UNREAD };

struct raw_node {
    const char *name;
    uint64_t size_bytes, working_bytes, cost;
    uint64_t key; /* place in file order; ties by index */
    uint32_t in_place;
    uint32_t done;   /* the node that means "after this one", or UL_PLAN_NONE */
    uint32_t rest;   /* the next one of the same step, or UL_PLAN_NONE */
    uint32_t run_of; /* of a rest: its step's node, else UL_PLAN_NONE */
    bool run_once;
    bool is_read;
};

struct touch {
    uint32_t node;
    bool reads, writes;
};

struct edge {
    uint32_t before, after;
};

/* Step nodes [first, end) of one entry, or of the root sequence (entry 0). */
struct section {
    uint32_t entry, first, end;
    uint32_t gate;  /* after it; for the last one the end */
    uint32_t start; /* after what is live from its start, or UL_PLAN_NONE */
};

/* A state that steps update, which are the last to touch it; and the first of these. */
struct update {
    uint32_t value, node;
};

struct linker {
    const struct ul_problem *problem;
    struct ul_arena *scratch;
    uint64_t alignment_bytes;
    enum ul_problem_graph_form form;
    uint32_t *node_of;     /* by step */
    uint32_t *region_node; /* by region: the node that its steps are in, or UL_PLAN_NONE */
    uint32_t *tree_of;     /* by region: the one that is a node with all below it, or 0 */
    const struct ul_problem_inside *inside; /* how such nodes run their steps */
    uint32_t *entry_of;                     /* by value: the only entry that touches it, or 0 */
    bool *always;                           /* by value: it lives at every position */
    struct section *sections;               /* in file order */
    uint32_t *section_of;                   /* by step node */
    uint32_t *section_at_entry; /* by open entry; for the root sequence, the first of all */
    uint32_t section_count;
    uint32_t step_nodes;
    struct raw_node *nodes;
    uint32_t node_count, node_capacity;
    struct edge *edges; /* the later one reads the earlier one's value */
    uint32_t edge_count, edge_capacity;
    struct edge *orders; /* the later one only comes later */
    uint32_t order_count, order_capacity;
    uint32_t *touch_first; /* by value: touches in file order, one for each node */
    uint32_t *touch_end;
    struct touch *touches;
    uint8_t *may_reuse;     /* by value: a plain step may make it in place */
    uint32_t *holder;       /* by value: the node that has it as its value, or UL_PLAN_NONE */
    uint32_t *primary;      /* by node: the value that it holds itself, or UL_PLAN_NONE */
    uint64_t large_bytes;   /* a part of the largest value that is not always live */
    uint32_t *rest_of;      /* by value of a step that has rests: the node among them that holds
                               it, else UL_PLAN_NONE */
    struct update *updates; /* in file order, once all are known */
    uint32_t update_count, update_capacity;
    uint32_t end;
    bool exact;
};

static uint32_t node_add(struct linker *l, const char *name, uint64_t size_bytes, uint64_t key)
{
    UL_GROW(l->scratch, l->nodes, l->node_count, l->node_capacity);
    l->nodes[l->node_count] = (struct raw_node){.name = name,
                                                .size_bytes = size_bytes,
                                                .key = key,
                                                .in_place = UL_PLAN_NONE,
                                                .done = UL_PLAN_NONE,
                                                .rest = UL_PLAN_NONE,
                                                .run_of = UL_PLAN_NONE,
                                                .run_once = true};
    return l->node_count++;
}

static uint64_t key_of(uint32_t step_node, enum slot slot)
{
    return ((uint64_t)step_node + 1) * SLOT_COUNT + slot;
}

static void edge_add(struct linker *l, uint32_t before, uint32_t after)
{
    if (before == after)
        return;
    UL_GROW(l->scratch, l->edges, l->edge_count, l->edge_capacity);
    l->edges[l->edge_count++] = (struct edge){before, after};
    l->nodes[before].is_read = true;
}

/* What comes later than a step comes later than its rests. */
static void order_add(struct linker *l, uint32_t before, uint32_t after)
{
    for (; before != after && before != UL_PLAN_NONE; before = l->nodes[before].rest) {
        UL_GROW(l->scratch, l->orders, l->order_count, l->order_capacity);
        l->orders[l->order_count++] = (struct edge){before, after};
    }
}

/* ---- Steps to nodes, and touches ---- */

/* The entry that the region is or is inside, and whose steps are nodes of their own, or 0. */
static uint32_t entry_around(const struct linker *l, uint32_t region)
{
    uint32_t tree = l->tree_of[region];
    return tree != 0 ? l->problem->regions[tree].parent : region;
}

/* The steps of an entry are nodes. An entry that a value spans is one node, since that value lives
 * in it whatever touches it. */
uint32_t *ul_problem_graph_trees(struct ul_arena *arena, const struct ul_problem *problem)
{
    uint32_t *trees = UL_NEW_ARRAY(arena, uint32_t, problem->region_count);
    bool *is_spanned = UL_NEW_ARRAY(arena, bool, problem->region_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        if (problem->values[v].span_region != UL_PLAN_NONE)
            is_spanned[problem->values[v].span_region] = true;
    for (uint32_t r = 1; r < problem->region_count; r++) {
        uint32_t parent = problem->regions[r].parent;
        bool is_open = problem->regions[r].kind == UL_PLAN_ENTRY && parent == 0 && !is_spanned[r];
        trees[r] = trees[parent] != 0 ? trees[parent] : is_open ? 0 : r;
    }
    return trees;
}

static const struct ul_plan_alternative *cheapest(const struct ul_plan_step *step)
{
    return &step->alternatives[ul_step_cheapest(step)];
}

/* An optional value counts as touched whenever a step may read it. */
static bool has_ids(const struct ul_problem *problem, const uint32_t *all, uint32_t all_count,
                    const uint32_t *ids, uint32_t count)
{
    if (all_count == count && (count == 0 || memcmp(all, ids, count * sizeof *ids) == 0))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        if (!problem->values[ids[i]].optional && !ul_ids_have(all, all_count, ids[i]))
            return false;
    }
    return true;
}

/* Whether a node describes the step completely: it touches all its values at once, including those
 * of other alternatives. */
static bool is_plain(const struct linker *l, const struct ul_plan_step *step)
{
    const struct ul_problem *problem = l->problem;
    const struct ul_plan_alternative *way = cheapest(step);
    bool plain = l->tree_of[step->region] == 0 && way->substep_count == 1;
    for (uint32_t a = 0; a < step->alternative_count; a++) {
        for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
            const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
            plain = plain &&
                    has_ids(problem, way->substeps->reads, way->substeps->read_count,
                            substep->reads, substep->read_count) &&
                    has_ids(problem, way->substeps->writes, way->substeps->write_count,
                            substep->writes, substep->write_count);
        }
    }
    return plain;
}

static void steps_assign(struct linker *l)
{
    const struct ul_problem *problem = l->problem;
    l->node_of = UL_NEW_ARRAY(l->scratch, uint32_t, problem->step_count);
    l->region_node = UL_NEW_ARRAY(l->scratch, uint32_t, problem->region_count);
    memset(l->region_node, 0xFF, problem->region_count * sizeof *l->region_node);
    uint32_t before = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        uint32_t tree = l->tree_of[step->region];
        if (tree == 0 || tree != before) {
            uint32_t node = node_add(l, step->name, 0, key_of(l->node_count, SLOT_STEP));
            l->nodes[node].run_once = tree != 0;
        }
        l->node_of[s] = l->node_count - 1;
        for (uint32_t r = step->region; r != 0; r = problem->regions[r].parent)
            l->region_node[r] = l->node_of[s];
        l->exact = l->exact && is_plain(l, step);
        before = tree;
    }
    l->step_nodes = l->node_count;
    for (uint32_t i = 0; i < l->inside->count; i++) {
        uint32_t s = l->inside->steps[i];
        l->nodes[l->node_of[s]].cost += cheapest(&problem->steps[s])->cost;
    }
}

static void reuses_mark(struct linker *l)
{
    l->may_reuse = ul_arena_alloc(l->scratch, l->problem->value_count);
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        const struct ul_plan_alternative *way = cheapest(&l->problem->steps[s]);
        if (l->tree_of[l->problem->steps[s].region] != 0 || way->substep_count != 1)
            continue;
        for (uint32_t i = 0; i < way->substeps[0].in_place_count; i++)
            l->may_reuse[way->substeps[0].in_place[i].output] = 1;
    }
}

typedef void touch_visit(struct linker *l, uint32_t value, uint32_t step, bool writes);

static void touches_visit(struct linker *l, touch_visit *visit)
{
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        const struct ul_plan_step *step = &l->problem->steps[s];
        for (uint32_t a = 0; a < step->alternative_count; a++) {
            for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
                const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
                for (uint32_t j = 0; j < substep->read_count; j++)
                    visit(l, substep->reads[j], s, false);
                for (uint32_t j = 0; j < substep->write_count; j++)
                    visit(l, substep->writes[j], s, true);
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
    uint32_t node = l->node_of[step];
    if (l->touch_end[value] == l->touch_first[value] ||
        l->touches[l->touch_end[value] - 1].node != node)
        l->touches[l->touch_end[value]++] = (struct touch){.node = node};
    l->touches[l->touch_end[value] - 1].reads |= !writes;
    l->touches[l->touch_end[value] - 1].writes |= writes;
}

static void touches_make(struct linker *l)
{
    uint32_t count = l->problem->value_count;
    l->touch_first = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)count + 1);
    touches_visit(l, touch_count);
    for (uint32_t v = 0; v < count; v++)
        l->touch_first[v + 1] += l->touch_first[v];
    l->touch_end = ul_arena_copy(l->scratch, l->touch_first, count * sizeof *l->touch_end);
    l->touches = UL_NEW_ARRAY(l->scratch, struct touch, l->touch_first[count]);
    touches_visit(l, touch_store);
}

/* A value that only one entry touches lives in that entry. A value that both an entry and other
 * steps touch lives at every position. */
static void values_place(struct linker *l)
{
    const struct ul_problem *problem = l->problem;
    l->entry_of = ul_value_entries(l->scratch, problem);
    l->always = UL_NEW_ARRAY(l->scratch, bool, problem->value_count);
    for (uint32_t v = 0; v < problem->value_count; v++) {
        bool in_entry = false;
        for (uint32_t i = l->touch_first[v]; i < l->touch_end[v]; i++)
            in_entry = in_entry || l->sections[l->section_of[l->touches[i].node]].entry != 0;
        if (l->tree_of[l->entry_of[v]] != 0)
            l->entry_of[v] = 0; /* that entry is one node */
        l->always[v] = problem->values[v].persistent || problem->values[v].span_region == 0 ||
                       (in_entry && l->entry_of[v] == 0);
    }
}

/* ---- Values that live inside one node ---- */

static bool is_local(const struct linker *l, uint32_t value)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    return l->touch_end[value] == l->touch_first[value] + 1 && !at->live_from_start &&
           !at->live_to_end && !at->persistent && at->span_region == UL_PLAN_NONE &&
           !l->may_reuse[value];
}

static bool range_is_local(const struct linker *l, const struct ul_plan_range *range)
{
    return range->space == 0 && (range->value == UL_PLAN_NONE || is_local(l, range->value));
}

/* Scratch, and the values that only one node touches, by live ranges in the order in which nodes
 * run their steps. */
static void working_sum(struct linker *l)
{
    struct ul_plan plan = {.alignment_bytes = l->alignment_bytes};
    ul_timeline_sequence(l->scratch, l->problem, l->inside->steps, l->inside->count, NULL, &plan);
    ul_timeline_build(l->scratch, l->problem, UL_ALIAS_ALL, &plan);
    uint64_t *change = UL_NEW_ARRAY(l->scratch, uint64_t, (uint64_t)plan.position_count + 2);
    for (uint32_t r = 0; r < plan.range_count; r++) {
        const struct ul_plan_range *range = &plan.ranges[r];
        if (!range_is_local(l, range))
            continue;
        /* Bytes of a local range that it takes over are counted there while both are live. */
        bool taker = range->alias != UL_PLAN_NONE && range_is_local(l, &plan.ranges[range->alias]);
        uint64_t bytes = ul_size_align_or_die(range->size_bytes, l->alignment_bytes);
        change[range->begin + taker] += bytes;
        change[range->end] -= bytes;
    }
    uint64_t live = 0;
    for (uint32_t p = 0; p < plan.position_count; p++) {
        struct raw_node *node = &l->nodes[l->node_of[plan.positions[p].step]];
        live += change[p];
        node->working_bytes = live > node->working_bytes ? live : node->working_bytes;
    }
}

/* ---- Sections ---- */

static void sections_make(struct linker *l)
{
    uint32_t count = 0, node = UL_PLAN_NONE;
    l->section_of = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)l->step_nodes + 1);
    l->sections = UL_NEW_ARRAY(l->scratch, struct section, (uint64_t)l->step_nodes + 1);
    l->section_at_entry = UL_NEW_ARRAY(l->scratch, uint32_t, l->problem->region_count);
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        uint32_t entry = entry_around(l, l->problem->steps[s].region);
        if (l->node_of[s] == node)
            continue;
        node = l->node_of[s];
        if (count == 0 || l->sections[count - 1].entry != entry)
            l->sections[count++] =
                (struct section){.entry = entry, .first = node, .start = UL_PLAN_NONE};
        l->sections[count - 1].end = node + 1;
        if (entry != 0)
            l->section_at_entry[entry] = count - 1;
        l->section_of[node] = count - 1;
    }
    l->section_count = count > 0 ? count : 1;
    for (uint32_t i = 0; i + 1 < l->section_count; i++)
        l->sections[i].gate = node_add(l, "gate", 0, key_of(l->sections[i].end - 1, SLOT_END));
    l->end = node_add(l, "end", 0, UINT64_MAX);
    l->sections[l->section_count - 1].gate = l->end;
}

/* The section at whose end a value that lives to the end is needed. */
static uint32_t last_section(const struct linker *l, uint32_t value)
{
    uint32_t entry = l->entry_of[value];
    return entry != 0 ? l->section_at_entry[entry] : l->section_count - 1;
}

/* ---- The node of each value ---- */

/* Bytes of the value that come and go; 0 if it is not in space 0, or always live. */
static uint64_t moving_bytes(const struct linker *l, uint32_t value)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    if (at->space != 0 || l->always[value] || is_local(l, value))
        return 0;
    return ul_size_align_or_die(at->size_bytes, l->alignment_bytes);
}

/* Writers may run in any order, and so may readers; an update is both and stands alone. */
static bool is_update(const struct touch *touch)
{
    return touch->reads && touch->writes;
}

/* The end of the group of touches that starts at `first`. */
static uint32_t group_end(const struct linker *l, uint32_t value, uint32_t first)
{
    const struct touch *t = l->touches;
    uint32_t i = first + 1;
    while (i < l->touch_end[value] && !is_update(&t[first]) && !is_update(&t[i]) &&
           t[i].writes == t[first].writes)
        i++;
    return i;
}

static uint32_t first_writers(const struct linker *l, uint32_t value)
{
    return group_end(l, value, l->touch_first[value]) - l->touch_first[value];
}

/* Whether an in-place option of step node `node` could let `out` take over `in`'s bytes. */
static bool option_viable(const struct linker *l, const struct ul_plan_substep *substep,
                          const struct ul_plan_in_place *option)
{
    const struct ul_plan_value *out = &l->problem->values[option->output];
    const struct ul_plan_value *in = &l->problem->values[option->input];
    return out->space == in->space && out->size_bytes <= in->size_bytes && !out->pinned &&
           !out->live_from_start && !out->persistent && !in->persistent && !in->live_to_end &&
           !ul_ids_have(substep->writes, substep->write_count, option->input) &&
           moving_bytes(l, option->output) > 0 && moving_bytes(l, option->input) > 0;
}

static bool has_option(const struct linker *l, const struct ul_plan_substep *substep,
                       uint32_t value)
{
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        if (substep->in_place[i].output == value &&
            option_viable(l, substep, &substep->in_place[i]))
            return true;
    }
    return false;
}

/* Chooses among the values that only this step makes: one that may be made in place, else the
 * largest. */
static void primary_choose(struct linker *l, const struct ul_plan_step *step, uint32_t node)
{
    const struct ul_plan_substep *substep = cheapest(step)->substeps;
    uint64_t best_bytes = 0;
    bool best_option = false;
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t value = substep->writes[i];
        const struct touch *first = &l->touches[l->touch_first[value]];
        uint64_t bytes = moving_bytes(l, value);
        if (bytes == 0 || l->problem->values[value].live_from_start || first->node != node ||
            first_writers(l, value) != 1)
            continue;
        bool option = has_option(l, substep, value);
        l->exact = l->exact && !(option && best_option);
        if (option < best_option || (option == best_option && bytes <= best_bytes))
            continue;
        l->primary[node] = value;
        best_bytes = bytes;
        best_option = option;
    }
}

static void primaries_choose(struct linker *l)
{
    l->primary = UL_NEW_ARRAY(l->scratch, uint32_t, l->step_nodes);
    memset(l->primary, 0xFF, l->step_nodes * sizeof *l->primary);
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        if (l->tree_of[l->problem->steps[s].region] == 0)
            primary_choose(l, &l->problem->steps[s], l->node_of[s]);
    }
}

/* ---- Rests of steps ---- */

/* A value that a step makes, and the node that reads it last. */
struct result {
    uint32_t value, last;
    uint64_t bytes;
};

static int result_compare(const void *a, const void *b)
{
    const struct result *x = a;
    const struct result *y = b;
    if (x->last != y->last)
        return x->last > y->last ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Whether only this node makes the value, all at once. */
static bool is_result(const struct linker *l, uint32_t value, uint32_t node)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    bool is = moving_bytes(l, value) > 0 && !at->live_from_start &&
              at->span_region == UL_PLAN_NONE && l->touches[l->touch_first[value]].node == node;
    for (uint32_t i = l->touch_first[value]; is && i < l->touch_end[value]; i++)
        is = l->touches[i].writes == (i == l->touch_first[value]);
    return is;
}

/* The results of a step that takes nothing over, what dies last first; returns how many. */
static uint32_t results_list(const struct linker *l, const struct ul_plan_step *step, uint32_t node,
                             struct result *results)
{
    const struct ul_plan_substep *substep = cheapest(step)->substeps;
    uint32_t count = 0;
    if (l->tree_of[step->region] != 0 || cheapest(step)->substep_count != 1)
        return 0;
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t value = substep->writes[i];
        if (has_option(l, substep, value))
            return 0;
        if (!is_result(l, value, node))
            continue;
        uint32_t last = l->touches[l->touch_end[value] - 1].node;
        bool is_kept = l->problem->values[value].live_to_end;
        results[count++] =
            (struct result){value, is_kept ? l->step_nodes : last, moving_bytes(l, value)};
    }
    if (count > 1)
        qsort(results, count, sizeof *results, result_compare);
    return count;
}

/* Makes nodes for the results that die earlier than those before them, where both are large. */
static void results_split(struct linker *l, uint32_t node, const struct result *results,
                          uint32_t count)
{
    enum { LARGE_PART = 8 };
    uint64_t large_bytes = 0, bytes_before = 0;
    uint32_t at = node;
    for (uint32_t i = 0; i < count; i++)
        large_bytes += results[i].bytes;
    large_bytes /= LARGE_PART;
    large_bytes = large_bytes > l->large_bytes ? large_bytes : l->large_bytes;
    for (uint32_t i = 0; i < count; i++) {
        bool is_large = results[i].bytes >= large_bytes && bytes_before >= large_bytes;
        if (i > 0 && is_large && results[i].last < results[i - 1].last) {
            const char *name = l->problem->values[results[i].value].name;
            uint32_t rest = node_add(l, name, 0, key_of(node, SLOT_REST));
            UL_ASSERT(l->nodes[at].rest == UL_PLAN_NONE);
            l->nodes[rest].run_of = node;
            l->nodes[rest].run_once = false;
            l->nodes[at].rest = rest;
            l->exact = false; /* nobody has shown that it is */
            at = rest;
            bytes_before = 0;
        }
        bytes_before += results[i].bytes;
        l->rest_of[results[i].value] = at;
    }
}

/* Has each of a step's nodes take an equal share of the cost, and have room for all behind it. */
static void results_share(struct linker *l, uint32_t node, const struct result *results,
                          uint32_t count)
{
    uint32_t share = 1;
    for (uint32_t v = l->nodes[node].rest; v != UL_PLAN_NONE; v = l->nodes[v].rest)
        share++;
    for (uint32_t v = l->nodes[node].rest; v != UL_PLAN_NONE; v = l->nodes[v].rest, share--) {
        l->nodes[v].working_bytes = l->nodes[node].working_bytes;
        UL_ASSERT(share > 1 && l->nodes[v].run_of == node);
        l->nodes[v].cost = l->nodes[node].cost / share;
        l->nodes[node].cost -= l->nodes[v].cost;
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t v = node; v != l->rest_of[results[i].value]; v = l->nodes[v].rest)
            l->nodes[v].working_bytes += results[i].bytes;
}

static void rests_make(struct linker *l)
{
    enum { LARGE_PART = 64 };
    for (uint32_t v = 0; v < l->problem->value_count; v++) {
        uint64_t bytes = moving_bytes(l, v);
        l->large_bytes = bytes > l->large_bytes ? bytes : l->large_bytes;
    }
    l->large_bytes /= LARGE_PART;
    l->rest_of = UL_NEW_ARRAY(l->scratch, uint32_t, l->problem->value_count);
    memset(l->rest_of, 0xFF, l->problem->value_count * sizeof *l->rest_of);
    for (uint32_t s = 0; l->form == UL_PROBLEM_GRAPH_REPEATABLE && s < l->problem->step_count;
         s++) {
        const struct ul_plan_step *step = &l->problem->steps[s];
        uint32_t node = l->node_of[s];
        struct result *results =
            UL_NEW_ARRAY(l->scratch, struct result, cheapest(step)->substeps->write_count);
        uint32_t count = results_list(l, step, node, results);
        results_split(l, node, results, count);
        results_share(l, node, results, count);
    }
}

/* The node that makes what this one holds. */
static uint32_t maker_of(const struct linker *l, uint32_t node)
{
    return l->nodes[node].run_of == UL_PLAN_NONE ? node : l->nodes[node].run_of;
}

static void holder_choose(struct linker *l, uint32_t value)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    uint64_t bytes = moving_bytes(l, value);
    l->holder[value] = UL_PLAN_NONE;
    if (bytes == 0)
        return;
    if (at->live_from_start) {
        uint32_t section = l->section_at_entry[l->entry_of[value]]; /* of the root: the first */
        uint64_t key = section == 0 ? KEY_INPUT : key_of(l->sections[section].first, SLOT_INPUT);
        l->holder[value] = node_add(l, at->name, bytes, key);
        return;
    }
    if (l->touch_first[value] == l->touch_end[value])
        return;
    uint32_t first = l->touches[l->touch_first[value]].node;
    bool alone = first_writers(l, value) == 1;
    if (alone && (l->form == UL_PROBLEM_GRAPH_REPEATABLE || l->primary[first] == value ||
                  l->primary[first] == UL_PLAN_NONE)) {
        uint32_t holder = l->rest_of[value] == UL_PLAN_NONE ? first : l->rest_of[value];
        l->exact = l->exact && l->nodes[holder].size_bytes == 0; /* else they die together */
        l->nodes[holder].size_bytes += bytes;
        l->holder[value] = holder;
    } else {
        l->holder[value] = node_add(l, at->name, bytes, key_of(first, SLOT_HOLD));
    }
}

/* ---- Edges ---- */

/* All of touches [a, b) come before all of [b, c). */
static void groups_order(struct linker *l, uint32_t a, uint32_t b, uint32_t c)
{
    const struct touch *t = l->touches;
    uint32_t gate = UL_PLAN_NONE;
    if (b - a > 1 && c - b > 1)
        gate = node_add(l, "gate", 0, key_of(t[b - 1].node, SLOT_GATE));
    for (uint32_t i = a; i < b; i++) {
        if (gate != UL_PLAN_NONE)
            order_add(l, t[i].node, gate);
        for (uint32_t j = b; j < c && gate == UL_PLAN_NONE; j++)
            order_add(l, t[i].node, t[j].node);
    }
    for (uint32_t j = b; j < c && gate != UL_PLAN_NONE; j++)
        order_add(l, gate, t[j].node);
}

/* Whether all steps that only read a state come before the steps that update it, each of which may
 * update a part. */
static bool is_updated_last(const struct linker *l, uint32_t value, uint32_t first_write)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    bool all = at->persistent && !at->pinned && !at->never_recompute;
    for (uint32_t i = first_write; i < l->touch_end[value]; i++)
        all = all && l->touches[i].writes && l->touches[i].node < l->step_nodes;
    return all;
}

/* Repeating a step that writes only a part of a value, or has effects, would not restore the value;
 * nor would a step that reads what has changed since. A reader of a state may run again until the
 * state is updated (updates_link). */
static void repeats_forbid(struct linker *l, uint32_t value)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    bool there = at->live_from_start || l->always[value];
    uint32_t writers = 0, first_write = 0, last_write = 0;
    for (uint32_t i = l->touch_first[value]; i < l->touch_end[value]; i++) {
        first_write = writers == 0 && l->touches[i].writes ? i : first_write;
        writers += l->touches[i].writes;
        last_write = l->touches[i].writes ? i : last_write;
    }
    if (writers == 0 || (writers == 1 && !there && !at->pinned && !at->never_recompute))
        return;
    if (is_updated_last(l, value, first_write)) {
        UL_GROW(l->scratch, l->updates, l->update_count, l->update_capacity);
        l->updates[l->update_count++] = (struct update){value, l->touches[first_write].node};
        for (uint32_t i = first_write; i <= last_write; i++)
            l->nodes[l->touches[i].node].run_once = true;
        return;
    }
    if (l->form == UL_PROBLEM_GRAPH_REPEATABLE && (writers > 1 || at->pinned))
        l->exact = false; /* a plan may find a way */
    for (uint32_t i = l->touch_first[value]; i <= last_write; i++)
        l->nodes[l->touches[i].node].run_once = true;
}

/* A step reads what the node holds, and so do its rests; of its own values, those behind. */
static void read_add(struct linker *l, uint32_t holder, uint32_t node)
{
    bool is_own = maker_of(l, holder) == node;
    uint32_t first = !is_own ? node : l->nodes[holder].rest;
    for (uint32_t v = first; v != UL_PLAN_NONE; v = l->nodes[v].rest)
        edge_add(l, holder, v);
}

static void value_link(struct linker *l, uint32_t value)
{
    const struct ul_plan_value *at = &l->problem->values[value];
    uint32_t holder = l->holder[value];
    uint32_t first = l->touch_first[value];
    uint32_t end = l->touch_end[value];
    if (first < end)
        repeats_forbid(l, value);
    if (holder != UL_PLAN_NONE) {
        for (uint32_t i = first; i < end; i++)
            read_add(l, holder, l->touches[i].node);
        if (at->live_to_end)
            edge_add(l, holder, l->sections[last_section(l, value)].gate);
        /* A region that the value spans reads it, if it is made before. */
        uint32_t spans = at->span_region == UL_PLAN_NONE || at->span_region == 0
                             ? UL_PLAN_NONE
                             : l->region_node[at->span_region];
        if (spans != UL_PLAN_NONE && l->nodes[holder].key < l->nodes[spans].key)
            edge_add(l, holder, spans);
    }
    while (first < end) {
        uint32_t middle = group_end(l, value, first);
        uint32_t last = middle < end ? group_end(l, value, middle) : middle;
        /* A reader comes after the only node that makes the value by reading it. */
        if (middle - first > 1 || holder == UL_PLAN_NONE ||
            l->touches[first].node != maker_of(l, holder))
            groups_order(l, first, middle, last);
        first = middle;
    }
}

/* Turns orders into edges: from the step if it has no value to keep alive, else from its
 * stand-in. */
static void orders_apply(struct linker *l)
{
    for (uint32_t i = 0; i < l->order_count; i++) {
        uint32_t before = l->orders[i].before;
        if (l->nodes[before].size_bytes > 0) {
            if (l->nodes[before].done == UL_PLAN_NONE) {
                uint64_t key = l->nodes[before].key;
                key = key == KEY_INPUT
                          ? KEY_UNREAD
                          : key + (key % SLOT_COUNT == SLOT_STEP ? SLOT_DONE - SLOT_STEP : 1);
                uint32_t done = node_add(l, "done", 0, key);
                l->nodes[before].done = done;
                edge_add(l, before, done);
            }
            before = l->nodes[before].done;
        }
        edge_add(l, before, l->orders[i].after);
    }
    l->order_count = 0;
}

/* ---- Updates of states ---- */

/* The states that running a node again needs, as sets: a row of words for each step node, and one
 * for the end, which reads what is live there. */
struct needs {
    struct linker *l;
    uint32_t words, rows;
    struct edge *reads; /* `after` reads what `before` makes; by `after` */
    uint32_t read_count, read_capacity;
    uint32_t *first; /* by row, its reads; rows + 1 */
    uint64_t *own;   /* the states that it reads itself */
    uint64_t *again; /* and those that its operands need, where they may run again */
    bool *seen;      /* scratch of walks, by row */
    uint32_t *work;
    uint32_t *least; /* on a walk's path: the node that is the cheapest to keep */
    uint32_t *until; /* the last node of a walk up to which a row's value would be kept */
    uint32_t *last;  /* by row: its last reader in file order */
};

static int read_compare(const void *a, const void *b)
{
    const struct edge *x = a;
    const struct edge *y = b;
    if (x->after != y->after)
        return x->after < y->after ? -1 : 1;
    return x->before < y->before ? -1 : x->before > y->before;
}

static void needs_read(struct needs *needs, const struct touch *made, uint32_t reader)
{
    struct linker *l = needs->l;
    if (!made->writes)
        return;
    UL_GROW(l->scratch, needs->reads, needs->read_count, needs->read_capacity);
    needs->reads[needs->read_count++] = (struct edge){made->node, reader};
}

/* Lists all that steps and the end read from steps, except states. */
static void needs_list(struct needs *needs)
{
    struct linker *l = needs->l;
    for (uint32_t v = 0; v < l->problem->value_count; v++) {
        if (l->problem->values[v].persistent)
            continue;
        for (uint32_t i = l->touch_first[v]; i < l->touch_end[v]; i++) {
            for (uint32_t k = l->touch_first[v]; l->touches[i].reads && k < i; k++)
                needs_read(needs, &l->touches[k], l->touches[i].node);
            if (l->problem->values[v].live_to_end)
                needs_read(needs, &l->touches[i], l->step_nodes);
        }
    }
    if (needs->read_count > 0)
        qsort(needs->reads, needs->read_count, sizeof *needs->reads, read_compare);
    needs->first = UL_NEW_ARRAY(l->scratch, uint32_t, (uint64_t)needs->rows + 1);
    for (uint32_t i = 0; i < needs->read_count; i++)
        needs->first[needs->reads[i].after + 1]++;
    for (uint32_t v = 0; v < needs->rows; v++)
        needs->first[v + 1] += needs->first[v];
    needs->last = UL_NEW_ARRAY(l->scratch, uint32_t, needs->rows);
    for (uint32_t i = 0; i < needs->read_count; i++) /* the last reader comes last */
        needs->last[needs->reads[i].before] = needs->reads[i].after;
}

static void needs_own(struct needs *needs)
{
    struct linker *l = needs->l;
    needs->own = UL_NEW_ARRAY(l->scratch, uint64_t, (uint64_t)needs->rows * needs->words);
    needs->again = UL_NEW_ARRAY(l->scratch, uint64_t, (uint64_t)needs->rows * needs->words);
    for (uint32_t u = 0; u < l->update_count; u++) {
        uint32_t value = l->updates[u].value;
        for (uint32_t i = l->touch_first[value]; !l->touches[i].writes; i++)
            ul_bits_add(needs->own + (uint64_t)l->touches[i].node * needs->words, u);
    }
}

static bool sets_meet(const uint64_t *a, const uint64_t *b, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        if ((a[w] & b[w]) != 0)
            return true;
    return false;
}

/* How long the value of `v` would have to be kept if it ran only once: as long as it is read; but
 * if it would otherwise live shorter than what is computed from it on the path, like a copy of a
 * weight, as long as that. */
static uint32_t wanted_until(const struct needs *needs, uint32_t v, uint32_t reader, uint32_t node)
{
    uint32_t last = needs->last[v];
    bool is_short = reader != node && last - v < needs->until[reader] - reader;
    return is_short && needs->until[reader] > last ? needs->until[reader] : last;
}

static double keeping_price(const struct needs *needs, uint32_t v)
{
    return (double)needs->l->nodes[v].size_bytes * (needs->until[v] - v);
}

/* For the values that `node` may need again, readers of an `updated` state cannot run from here on:
 * on the path to each, the node that is the cheapest to keep runs once. */
static void late_readers_forbid(struct needs *needs, uint32_t node, const uint64_t *updated)
{
    struct linker *l = needs->l;
    uint32_t count = 0;
    memset(needs->seen, 0, needs->rows * sizeof *needs->seen);
    needs->work[count++] = node;
    needs->least[node] = UL_PLAN_NONE;
    while (count > 0) {
        uint32_t v = needs->work[--count], least = needs->least[v];
        for (uint32_t i = needs->first[v]; i < needs->first[v + 1]; i++) {
            uint32_t before = needs->reads[i].before;
            if (needs->seen[before] || l->nodes[before].run_once)
                continue;
            needs->seen[before] = true;
            needs->until[before] = wanted_until(needs, before, v, node);
            bool is_less =
                least == UL_PLAN_NONE || keeping_price(needs, before) < keeping_price(needs, least);
            needs->least[before] = is_less ? before : least;
            if (sets_meet(&needs->own[(uint64_t)before * needs->words], updated, needs->words))
                l->nodes[needs->least[before]].run_once = true;
            else
                needs->work[count++] = before;
        }
    }
}

/* Fills `again`. Where a node may need a state after its update, its reader runs once: returns true
 * then, since others need less. */
static bool needs_fill(struct needs *needs)
{
    struct linker *l = needs->l;
    uint32_t words = needs->words, next = 0;
    uint64_t *updated = UL_NEW_ARRAY(l->scratch, uint64_t, words);
    bool found = false;
    for (uint32_t v = 0; v < needs->rows; v++) {
        uint64_t *again = &needs->again[(uint64_t)v * words];
        memset(again, 0, words * sizeof *again);
        for (uint32_t i = needs->first[v]; i < needs->first[v + 1]; i++) {
            uint64_t from = (uint64_t)needs->reads[i].before * words;
            bool repeats = !l->nodes[needs->reads[i].before].run_once;
            for (uint32_t w = 0; repeats && w < words; w++)
                again[w] |= needs->own[from + w] | needs->again[from + w];
        }
        if (sets_meet(again, updated, words)) {
            late_readers_forbid(needs, v, updated);
            found = true;
        }
        for (; next < l->update_count && l->updates[next].node == v; next++)
            ul_bits_add(updated, next);
    }
    return found;
}

/* Marks what a node depends on. */
static void ancestors_mark(const struct needs *needs, uint32_t node, bool *marked)
{
    uint32_t count = 0;
    marked[node] = true;
    needs->work[count++] = node;
    while (count > 0) {
        uint32_t v = needs->work[--count];
        for (uint32_t i = needs->first[v]; i < needs->first[v + 1]; i++) {
            uint32_t before = needs->reads[i].before;
            if (!marked[before]) {
                marked[before] = true;
                needs->work[count++] = before;
            }
        }
    }
}

static bool needs_any(const struct needs *needs, uint32_t node)
{
    for (uint32_t w = 0; w < needs->words; w++)
        if (needs->again[(uint64_t)node * needs->words + w] != 0)
            return true;
    return false;
}

static int update_compare(const void *a, const void *b)
{
    const struct update *x = a;
    const struct update *y = b;
    if (x->node != y->node)
        return x->node < y->node ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* A reader of a state may run again for nodes that come before the update in file order: so these
 * stay before it, and updates stay in their order. Where a node after an update could need the old
 * state, its readers run once. Left undone: other orders of updates. */
static void updates_link(struct linker *l)
{
    struct needs needs = {.l = l, .words = (l->update_count + 63) / 64, .rows = l->step_nodes + 1};
    uint32_t at = 0, last = UL_PLAN_NONE;
    if (l->update_count == 0 || l->form != UL_PROBLEM_GRAPH_REPEATABLE)
        return;
    l->exact = false;
    qsort(l->updates, l->update_count, sizeof *l->updates, update_compare);
    needs.seen = UL_NEW_ARRAY(l->scratch, bool, needs.rows);
    needs.work = UL_NEW_ARRAY(l->scratch, uint32_t, needs.rows);
    needs.least = UL_NEW_ARRAY(l->scratch, uint32_t, needs.rows);
    needs.until = UL_NEW_ARRAY(l->scratch, uint32_t, needs.rows);
    needs_list(&needs);
    needs_own(&needs);
    while (needs_fill(&needs))
        ;
    bool *marked = UL_NEW_ARRAY(l->scratch, bool, l->step_nodes);
    for (uint32_t u = 0; u < l->update_count; u++) {
        uint32_t node = l->updates[u].node;
        if (node == last)
            continue;
        ancestors_mark(&needs, node, marked);
        if (last != UL_PLAN_NONE)
            order_add(l, last, node);
        for (; at < node; at++)
            if (!marked[at] && needs_any(&needs, at))
                order_add(l, at, node);
        last = node;
    }
}

/* ---- Sections one after another ---- */

static uint32_t section_at(const struct linker *l, uint32_t node)
{
    uint64_t key = l->nodes[node].key;
    if (node == l->end)
        return l->section_count - 1;
    return key < SLOT_COUNT ? 0 : l->section_of[key / SLOT_COUNT - 1];
}

/* Whether the node is live from the start of a section after the first. */
static bool is_section_input(const struct linker *l, uint32_t node)
{
    uint64_t key = l->nodes[node].key;
    return key >= SLOT_COUNT && key % SLOT_COUNT == SLOT_INPUT;
}

/* Nodes that nothing in their section reads come before its gate; nodes that read nothing in it
 * come after the gate before, and after what is live from its start. */
static void sections_link(struct linker *l)
{
    uint32_t count = l->node_count;
    bool *feeds = UL_NEW_ARRAY(l->scratch, bool, count);
    bool *follows = UL_NEW_ARRAY(l->scratch, bool, count);
    for (uint32_t i = 0; i < l->edge_count; i++) {
        const struct edge *edge = &l->edges[i];
        uint32_t section = section_at(l, edge->before);
        bool is_inside = section == section_at(l, edge->after);
        /* A node whose value another section reads would run again between the steps of one. */
        l->nodes[edge->before].run_once |= !is_inside;
        if (!is_inside || edge->after == l->sections[section].gate)
            continue;
        feeds[edge->before] = true;
        follows[edge->after] |= !is_section_input(l, edge->before);
    }
    for (uint32_t v = 0; v < count; v++) {
        struct section *section = &l->sections[section_at(l, v)];
        if (!is_section_input(l, v))
            continue;
        if (section->start == UL_PLAN_NONE)
            section->start = node_add(l, "start", 0, key_of(section->first, SLOT_START));
        edge_add(l, v, section->start);
    }
    for (uint32_t v = 0; v < count; v++) {
        uint32_t at = section_at(l, v);
        const struct section *section = &l->sections[at];
        bool is_input = is_section_input(l, v);
        if (v == section->gate)
            continue;
        if (at + 1 < l->section_count && !feeds[v])
            order_add(l, v, section->gate);
        bool is_behind_start = section->start != UL_PLAN_NONE && !is_input;
        if (at > 0 && !follows[v])
            edge_add(l, is_behind_start ? section->start : section[-1].gate, v);
    }
    for (uint32_t i = 0; i < l->section_count; i++)
        l->exact = l->exact && l->sections[i].entry != 0; /* others could be elsewhere */
    orders_apply(l);
}

/* A step and its rests are run again together. */
static void rests_forbid(struct linker *l)
{
    for (uint32_t node = 0; node < l->step_nodes; node++) {
        bool once = false;
        for (uint32_t v = node; v != UL_PLAN_NONE; v = l->nodes[v].rest)
            once = once || l->nodes[v].run_once;
        for (uint32_t v = node; once && v != UL_PLAN_NONE; v = l->nodes[v].rest)
            l->nodes[v].run_once = true;
    }
}

static void edges_make(struct linker *l)
{
    for (uint32_t v = 0; v < l->problem->value_count; v++)
        value_link(l, v);
    updates_link(l);
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        const struct ul_plan_step *step = &l->problem->steps[s];
        for (uint32_t i = 0; i < step->predecessor_count; i++)
            order_add(l, l->node_of[step->predecessors[i]], l->node_of[s]);
    }
    orders_apply(l);
    if (l->section_count > 1)
        sections_link(l);
    for (uint32_t v = 0; v < l->node_count; v++) {
        if (v != l->end && !l->nodes[v].is_read)
            order_add(l, v, l->end);
    }
    orders_apply(l);
    rests_forbid(l);
}

/* Everything comes after what is live from the start. */
static void inputs_gate(struct linker *l)
{
    uint32_t before = l->node_count;
    uint8_t *reads = ul_arena_alloc(l->scratch, before);
    uint32_t gate = UL_PLAN_NONE;
    for (uint32_t i = 0; i < l->edge_count; i++)
        reads[l->edges[i].after] |= l->nodes[l->edges[i].before].key != KEY_INPUT;
    for (uint32_t v = 0; v < before; v++) {
        if (l->nodes[v].key != KEY_INPUT)
            continue;
        if (gate == UL_PLAN_NONE)
            gate = node_add(l, "start", 0, KEY_START);
        edge_add(l, v, gate);
    }
    for (uint32_t v = 0; v < before && gate != UL_PLAN_NONE; v++) {
        if (!reads[v] && l->nodes[v].key != KEY_INPUT)
            edge_add(l, gate, v);
    }
}

/* ---- In place ---- */

/* Whether an earlier option, which comes first, may give the input to a smaller output. */
static bool goes_elsewhere(const struct linker *l, const struct ul_plan_substep *substep,
                           uint32_t option)
{
    const struct ul_plan_in_place *at = &substep->in_place[option];
    UL_ASSERT(option < substep->in_place_count);
    for (uint32_t i = 0; i < option; i++) {
        const struct ul_plan_in_place *other = &substep->in_place[i];
        if (other->input == at->input && other->output != at->output &&
            option_viable(l, substep, other) &&
            moving_bytes(l, other->output) < moving_bytes(l, at->output))
            return true;
    }
    return false;
}

/* The option that the node takes: one whose input nothing else reads if there is one (it dies there
 * in every order), else the first. */
static void in_place_choose(struct linker *l, const uint32_t *only_reader, uint32_t step)
{
    const struct ul_plan_alternative *way = cheapest(&l->problem->steps[step]);
    const struct ul_plan_substep *substep = &way->substeps[0];
    uint32_t node = l->node_of[step];
    uint32_t viable = 0;
    bool certain = false;
    if (way->substep_count != 1 || l->tree_of[l->problem->steps[step].region] != 0)
        return;
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        uint32_t output = substep->in_place[i].output;
        l->exact = l->exact && (!l->always[output] || l->problem->values[output].persistent);
        uint64_t out_bytes = moving_bytes(l, substep->in_place[i].output);
        uint64_t in_bytes = moving_bytes(l, substep->in_place[i].input);
        uint32_t input = l->holder[substep->in_place[i].input];
        if (!option_viable(l, substep, &substep->in_place[i]) || input == node)
            continue;
        viable++;
        l->exact = l->exact && l->holder[substep->in_place[i].output] == node;
        /* What is shared is the lesser of both nodes' values, which may be sums. */
        uint64_t min = l->nodes[input].size_bytes;
        min = l->nodes[node].size_bytes < min ? l->nodes[node].size_bytes : min;
        if (l->holder[substep->in_place[i].output] != node || min > out_bytes || certain ||
            in_bytes < out_bytes || goes_elsewhere(l, substep, i))
            continue;
        certain = only_reader[input] == node;
        if (certain || l->nodes[node].in_place == UL_PLAN_NONE)
            l->nodes[node].in_place = input;
    }
    l->exact = l->exact && (certain || viable < 2);
}

static void in_place_fill(struct linker *l)
{
    uint32_t *only_reader = UL_NEW_ARRAY(l->scratch, uint32_t, l->node_count);
    memset(only_reader, 0xFF, l->node_count * sizeof *only_reader);
    for (uint32_t i = 0; i < l->edge_count; i++) {
        uint32_t input = l->edges[i].before;
        uint32_t reader = l->edges[i].after;
        if (l->nodes[input].done == reader || (l->nodes[reader].run_of != UL_PLAN_NONE &&
                                               l->nodes[reader].run_of == maker_of(l, input)))
            continue; /* it runs directly after it */
        bool first = only_reader[input] == UL_PLAN_NONE || only_reader[input] == reader;
        only_reader[input] = first ? reader : l->node_count;
    }
    for (uint32_t s = 0; s < l->problem->step_count; s++)
        in_place_choose(l, only_reader, s);
}

/* ---- The graph ---- */

static int edge_compare(const void *a, const void *b)
{
    const struct edge *x = a;
    const struct edge *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    return x->after < y->after ? -1 : x->after > y->after;
}

/* Numbers the nodes in file order: final number of each. */
static uint32_t *nodes_number(struct linker *l)
{
    struct ul_ranked *places = UL_NEW_ARRAY(l->scratch, struct ul_ranked, l->node_count);
    uint32_t *number = UL_NEW_ARRAY(l->scratch, uint32_t, l->node_count);
    for (uint32_t v = 0; v < l->node_count; v++)
        places[v] = (struct ul_ranked){l->nodes[v].key, v};
    ul_ranked_sort(places, l->node_count);
    for (uint32_t i = 0; i < l->node_count; i++)
        number[places[i].index] = i;
    return number;
}

/* By value: optional, and no step's cheapest alternative reads it. */
static const bool *absent_values(const struct linker *l)
{
    bool *absent = UL_NEW_ARRAY(l->scratch, bool, l->problem->value_count);
    for (uint32_t v = 0; v < l->problem->value_count; v++)
        absent[v] = l->problem->values[v].optional;
    for (uint32_t s = 0; s < l->problem->step_count; s++) {
        const struct ul_plan_alternative *way = cheapest(&l->problem->steps[s]);
        for (uint32_t i = 0; i < way->substep_count; i++) {
            for (uint32_t k = 0; k < way->substeps[i].read_count; k++)
                absent[way->substeps[i].reads[k]] = false;
        }
    }
    return absent;
}

static void graph_nodes(struct linker *l, struct ul_arena *arena, const uint32_t *number,
                        struct ul_solve_graph *g)
{
    g->node_count = l->node_count;
    g->names = UL_NEW_ARRAY(arena, const char *, g->node_count);
    g->size_bytes = UL_NEW_ARRAY(arena, uint64_t, g->node_count);
    g->cost = UL_NEW_ARRAY(arena, uint64_t, g->node_count);
    g->order = UL_NEW_ARRAY(arena, uint32_t, g->node_count);
    g->working_bytes = UL_NEW_ARRAY(arena, uint64_t, g->node_count);
    g->in_place = UL_NEW_ARRAY(arena, uint32_t, g->node_count);
    g->run_once = UL_NEW_ARRAY(arena, bool, g->node_count);
    for (uint32_t v = 0; v < g->node_count; v++) {
        const struct raw_node *node = &l->nodes[v];
        uint32_t at = number[v];
        g->names[at] = node->name;
        g->size_bytes[at] = node->size_bytes;
        g->cost[at] = node->cost;
        g->order[at] = at;
        g->working_bytes[at] = node->working_bytes;
        g->in_place[at] = node->in_place == UL_PLAN_NONE ? UL_PLAN_NONE : number[node->in_place];
        g->run_once[at] = node->run_once;
    }
    const bool *absent = absent_values(l);
    for (uint32_t v = 0; v < l->problem->value_count; v++) {
        const struct ul_plan_value *value = &l->problem->values[v];
        bool is_there = value->persistent || l->touch_first[v] < l->touch_end[v];
        if (value->space == 0 && l->always[v] && is_there && !absent[v])
            g->base_bytes += ul_size_align_or_die(value->size_bytes, l->alignment_bytes);
    }
}

static void graph_lists(struct linker *l, struct ul_arena *arena, const uint32_t *number,
                        struct ul_solve_graph *g)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < l->edge_count; i++)
        l->edges[i] = (struct edge){number[l->edges[i].before], number[l->edges[i].after]};
    if (l->edge_count > 0)
        qsort(l->edges, l->edge_count, sizeof *l->edges, edge_compare);
    for (uint32_t i = 0; i < l->edge_count; i++) {
        UL_ASSERT(l->edges[i].before < l->edges[i].after);
        if (i == 0 || edge_compare(&l->edges[i], &l->edges[kept - 1]) != 0)
            l->edges[kept++] = l->edges[i];
    }
    g->user_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)g->node_count + 1);
    g->input_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)g->node_count + 2);
    g->users = UL_NEW_ARRAY(arena, uint32_t, kept);
    g->inputs = UL_NEW_ARRAY(arena, uint32_t, kept);
    for (uint32_t i = 0; i < kept; i++) {
        g->users[i] = l->edges[i].after;
        g->user_first[l->edges[i].before + 1]++;
        g->input_first[l->edges[i].after + 2]++;
    }
    for (uint32_t v = 0; v < g->node_count; v++) {
        g->user_first[v + 1] += g->user_first[v];
        g->input_first[v + 2] += v + 1 < g->node_count ? g->input_first[v + 1] : 0;
    }
    for (uint32_t i = 0; i < kept; i++)
        g->inputs[g->input_first[l->edges[i].after + 1]++] = l->edges[i].before;
}

static void steps_list(const struct linker *l, struct ul_arena *arena, const uint32_t *number,
                       struct ul_problem_graph *out)
{
    out->step_first = UL_NEW_ARRAY(arena, uint32_t, (uint64_t)l->node_count + 1);
    out->run_of = UL_NEW_ARRAY(arena, uint32_t, l->node_count);
    for (uint32_t v = 0; v < l->node_count; v++) {
        uint32_t node = l->nodes[v].run_of;
        out->run_of[number[v]] = node == UL_PLAN_NONE ? UL_PLAN_NONE : number[node];
    }
    const struct ul_problem_inside *inside = l->inside;
    uint32_t *next = UL_NEW_ARRAY(l->scratch, uint32_t, l->node_count);
    out->steps = UL_NEW_ARRAY(arena, uint32_t, inside->count);
    for (uint32_t i = 0; i < inside->count; i++)
        out->step_first[number[l->node_of[inside->steps[i]]] + 1]++;
    for (uint32_t v = 0; v < l->node_count; v++)
        out->step_first[v + 1] += next[v] = out->step_first[v];
    for (uint32_t i = 0; i < inside->count; i++)
        out->steps[next[number[l->node_of[inside->steps[i]]]]++] = inside->steps[i];
}

static const struct ul_problem_inside *file_order(struct ul_arena *arena,
                                                  const struct ul_problem *problem)
{
    struct ul_problem_inside *inside = UL_NEW(arena, struct ul_problem_inside);
    uint32_t *steps = UL_NEW_ARRAY(arena, uint32_t, problem->step_count);
    for (uint32_t s = 0; s < problem->step_count; s++)
        steps[s] = s;
    *inside = (struct ul_problem_inside){steps, problem->step_count};
    return inside;
}

void ul_problem_graph_make(struct ul_arena *arena, const struct ul_problem *problem,
                           uint64_t alignment_bytes, enum ul_problem_graph_form form,
                           const struct ul_problem_inside *inside, struct ul_problem_graph *out)
{
    UL_ASSERT(alignment_bytes > 0);
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct linker l = {.problem = problem,
                       .scratch = &scratch,
                       .alignment_bytes = alignment_bytes,
                       .form = form,
                       .exact = true};
    memset(out, 0, sizeof *out);
    l.tree_of = ul_problem_graph_trees(&scratch, problem);
    l.inside = inside != NULL ? inside : file_order(&scratch, problem);
    steps_assign(&l);
    sections_make(&l);
    touches_make(&l);
    values_place(&l);
    reuses_mark(&l);
    working_sum(&l);
    primaries_choose(&l);
    rests_make(&l);
    l.holder = UL_NEW_ARRAY(&scratch, uint32_t, problem->value_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        holder_choose(&l, v);
    edges_make(&l);
    in_place_fill(&l);
    inputs_gate(&l);
    const uint32_t *number = nodes_number(&l);
    graph_nodes(&l, arena, number, &out->graph);
    graph_lists(&l, arena, number, &out->graph);
    steps_list(&l, arena, number, out);
    out->exact = l.exact;
    ul_arena_done(&scratch);
}
