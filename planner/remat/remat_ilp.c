/* SPDX-License-Identifier: Apache-2.0 */
/* Recomputation under a budget as an integer program, in a reduced form.
 *
 * Problem: the first runs keep their order; which values are kept, and which nodes run again before
 * which first run, so that the live sum stays within the budget at minimum cost? Method: stage t
 * runs the t-th node for the first time, and before it, in the same order, the nodes that run
 * again:
 *   rerun[t][i]   node i runs (again) in stage t
 *   keep[t][i]    its value is still live when stage t begins
 *   held[t][i][k] its value is live while node k runs in stage t, i < k: the maximum of
 *                 keep[t + 1][i] and of rerun[t][j] over the readers j of i from k on
 * keep and rerun are 0 or 1; held follows from them and is continuous. Since a reader needs its
 * input, `held` does not say whether i is there, and no product of variables is needed. This is
 * Jain et al., "Checkmate" (MLSys 2020), with held in place of FREE, which has one variable for
 * each reader, and without the stages in which there is nothing to choose:
 *   - until the first stage that reads what the stage before neither made nor read (the gap
 *     that divides forward from backward), nothing runs again, and one bit says whether a value is
 *     kept across all those stages;
 *   - between consecutive first runs, a value that both touch is kept;
 *   - a node runs again only where a later first run still needs it, directly or through others.
 * An incumbent becomes a row that asks for less than its cost; with it, the reduced costs of the
 * relaxation fix most variables, and the program is made again without them. Models too large for
 * this are cut down to the neighbourhood of known sequences. Left undone: other orders of first
 * runs; running a node twice in one stage; running it in another place among a stage's nodes.
 * Proofs hold without these. */
#include "planner/model/problem.h"
#include "planner/order/ilp.h"
#include "planner/remat/remat_stages.h"

#include <math.h>
#include <string.h>

/* A variable, or a constant: presolve by hand turns most into constants. */
static const uint32_t ZERO = UINT32_MAX - 1, ONE = UINT32_MAX;

enum domain { FREE, ALWAYS, NEVER };

struct form {
    struct ul_remat_ilp *task;
    const struct ul_solve_graph *graph;
    struct ul_arena *arena;
    struct ul_ilp *ilp;
    uint32_t n;
    const uint32_t *order;   /* from here on, nodes are named by their positions in it */
    struct ul_stages stages; /* the graph by these positions */
    uint32_t *need;          /* by node: the last stage that may need its value */
    /* By stage and node; keep has one stage more, and for a node's stages after touch up to the gap
     * one bit, that of the gap. */
    uint8_t *rerun_domain, *keep_domain;
    uint32_t *rerun, *keep;
    uint64_t budget_bytes;
    uint64_t cost_unit; /* greatest common divisor of the costs */
    bool too_big;
};

static uint64_t cell(const struct form *f, uint32_t stage, uint32_t i)
{
    return (uint64_t)stage * f->n + i;
}

/* The index of the bit of keep. */
static uint64_t keep_cell(const struct form *f, uint32_t stage, uint32_t i)
{
    return cell(f, stage > f->stages.touch[i] && stage < f->stages.gap ? f->stages.gap : stage, i);
}

static uint32_t *rerun_at(const struct form *f, uint32_t stage, uint32_t i)
{
    return &f->rerun[cell(f, stage, i)];
}

static uint32_t *keep_at(const struct form *f, uint32_t stage, uint32_t i)
{
    return &f->keep[keep_cell(f, stage, i)];
}

static uint64_t bytes_of(const struct form *f, uint32_t i)
{
    return f->stages.size_bytes[i];
}

static uint64_t cost_of(const struct form *f, uint32_t i)
{
    return f->stages.cost[i];
}

static bool may_rerun(const struct form *f, uint32_t i)
{
    if (f->graph->run_once != NULL && f->graph->run_once[f->order[i]])
        return false;
    return f->need[i] > f->stages.touch[i];
}

/* The last stage that needs each value: that of a first run that reads it, or of a rerun, which
 * comes as late as the reader's own value is needed. */
static void needs_find(struct form *f)
{
    f->need = UL_NEW_ARRAY(f->arena, uint32_t, f->n);
    for (uint32_t i = 0; i < f->n; i++)
        f->need[i] = i;
    for (uint32_t t = f->n; t-- > 0;) {
        uint32_t last = may_rerun(f, t) ? f->need[t] : t;
        for (uint32_t e = f->stages.input_first[t]; e < f->stages.input_first[t + 1]; e++) {
            if (f->need[f->stages.inputs[e]] < last)
                f->need[f->stages.inputs[e]] = last;
        }
    }
}

/* Marks nodes that known sequences run again, their readers and inputs, and the stages around. */
static void hint_mark(const struct form *f, const struct ul_remat_hint *hint, uint8_t *marks)
{
    uint8_t *made = ul_arena_alloc(f->arena, f->n);
    uint32_t stage = 0;
    for (uint32_t p = 0; p < hint->count; p++) {
        uint32_t i = f->stages.place[hint->sequence[p]];
        if (!made[i])
            stage = i + 1;
        else if (stage < f->n)
            marks[cell(f, stage, i)] = 1;
        made[i] = 1;
    }
}

static void neighbours_mark(const struct form *f, const uint8_t *marks, uint8_t *wide)
{
    uint32_t radius = f->task->hint_radius;
    for (uint32_t t = 0; t < f->n; t++) {
        for (uint32_t i = 0; i < t; i++) {
            if (!marks[cell(f, t, i)])
                continue;
            uint32_t last = t + radius < f->n ? t + radius : f->n - 1;
            for (uint32_t s = t > radius ? t - radius : 0; s <= last; s++)
                wide[cell(f, s, i)] = 1;
            for (uint32_t e = f->stages.input_first[i]; e < f->stages.input_first[i + 1]; e++)
                wide[cell(f, t, f->stages.inputs[e])] = 1;
            for (uint32_t e = f->stages.reader_first[i]; e < f->stages.reader_first[i + 1]; e++)
                wide[cell(f, t, f->stages.readers[e])] = 1;
        }
    }
}

static void domains_make(struct form *f)
{
    uint64_t cells = (uint64_t)f->n * f->n;
    uint8_t *wide = NULL;
    f->rerun_domain = ul_arena_alloc(f->arena, cells);
    f->keep_domain = ul_arena_alloc(f->arena, cells + f->n);
    memset(f->rerun_domain, NEVER, cells);
    memset(f->keep_domain, NEVER, cells + f->n);
    if (f->task->hint_count > 0) {
        uint8_t *marks = ul_arena_alloc(f->arena, cells);
        wide = ul_arena_alloc(f->arena, cells);
        for (uint32_t h = 0; h < f->task->hint_count; h++)
            hint_mark(f, &f->task->hints[h], marks);
        neighbours_mark(f, marks, wide);
    }
    for (uint32_t i = 0; i < f->n; i++) {
        f->rerun_domain[cell(f, i, i)] = ALWAYS;
        uint32_t readers = f->stages.reader_first[i + 1] - f->stages.reader_first[i];
        uint32_t last = readers > 0 ? f->stages.readers[f->stages.reader_first[i + 1] - 1] : i;
        for (uint32_t t = i + 1; t <= f->need[i]; t++) {
            bool always = t <= f->stages.touch[i] || (t <= last && !may_rerun(f, i));
            f->keep_domain[keep_cell(f, t, i)] = always ? ALWAYS : FREE;
            if (t >= f->stages.gap && t > f->stages.touch[i] + 1 && may_rerun(f, i) &&
                (wide == NULL || wide[cell(f, t, i)]))
                f->rerun_domain[cell(f, t, i)] = FREE;
        }
    }
}

static bool rerun_possible(const struct form *f, uint32_t t, uint32_t i)
{
    return f->rerun_domain[cell(f, t, i)] != NEVER;
}

static bool keep_possible(const struct form *f, uint32_t t, uint32_t i)
{
    return f->keep_domain[keep_cell(f, t, i)] != NEVER;
}

static bool rerun_useful(const struct form *f, uint32_t t, uint32_t i)
{
    for (uint32_t e = f->stages.input_first[i]; e < f->stages.input_first[i + 1]; e++) {
        if (!keep_possible(f, t, f->stages.inputs[e]) && !rerun_possible(f, t, f->stages.inputs[e]))
            return false;
    }
    if (keep_possible(f, t + 1, i))
        return true;
    for (uint32_t e = f->stages.reader_first[i]; e < f->stages.reader_first[i + 1]; e++) {
        if (f->stages.readers[e] <= t && rerun_possible(f, t, f->stages.readers[e]))
            return true;
    }
    return false;
}

/* A node that runs needs its inputs; where an input can come from only one place, it must. */
static bool rerun_propagate(struct form *f, uint32_t t, uint32_t i)
{
    bool changed = false;
    uint8_t *own = &f->rerun_domain[cell(f, t, i)];
    if (*own == FREE && !rerun_useful(f, t, i)) {
        *own = NEVER;
        return true;
    }
    for (uint32_t e = f->stages.input_first[i]; *own == ALWAYS && e < f->stages.input_first[i + 1];
         e++) {
        uint8_t *rerun = &f->rerun_domain[cell(f, t, f->stages.inputs[e])];
        uint8_t *keep = &f->keep_domain[keep_cell(f, t, f->stages.inputs[e])];
        if (*rerun == NEVER && *keep == FREE) {
            *keep = ALWAYS;
            changed = true;
        } else if (*keep == NEVER && *rerun == FREE) {
            *rerun = ALWAYS;
            changed = true;
        }
    }
    return changed;
}

static bool keep_propagate(struct form *f, uint32_t t, uint32_t i)
{
    uint8_t *later = &f->keep_domain[keep_cell(f, t + 1, i)];
    uint8_t *keep = &f->keep_domain[keep_cell(f, t, i)];
    uint8_t *rerun = &f->rerun_domain[cell(f, t, i)];
    if (*later == FREE && *keep == NEVER && *rerun == NEVER) {
        *later = NEVER;
        return true;
    }
    if (*later == ALWAYS && *rerun == NEVER && *keep == FREE) {
        *keep = ALWAYS;
        return true;
    }
    return false;
}

static void domains_propagate(struct form *f)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t t = f->n; t-- > 0;) {
            for (uint32_t i = t + 1; i-- > 0;) {
                changed |= rerun_propagate(f, t, i);
                changed |= keep_propagate(f, t, i);
            }
        }
    }
}

static uint32_t column_of(struct form *f, uint8_t domain, double cost)
{
    if (domain != FREE)
        return domain == ALWAYS ? ONE : ZERO;
    if (f->ilp->column_count >= f->task->column_limit) {
        f->too_big = true;
        return ZERO;
    }
    return ul_ilp_add_column(f->ilp, cost, 0, 1, true);
}

static void columns_make(struct form *f)
{
    uint64_t cells = (uint64_t)f->n * f->n;
    f->rerun = UL_NEW_ARRAY(f->arena, uint32_t, cells);
    f->keep = UL_NEW_ARRAY(f->arena, uint32_t, cells + f->n);
    for (uint64_t c = 0; c < cells + f->n; c++) {
        uint32_t i = (uint32_t)(c % f->n);
        double cost = (double)(cost_of(f, i) / f->cost_unit);
        f->keep[c] = column_of(f, f->keep_domain[c], 0);
        if (c < cells)
            f->rerun[c] = column_of(f, f->rerun_domain[c], cost);
    }
}

/* A row over variables and constants: sum of factor x code within [-infinity, upper]. */
struct row {
    struct ul_ilp *ilp;
    uint32_t index;
};

static struct row row_new(struct form *f, double upper)
{
    return (struct row){f->ilp, ul_ilp_add_row(f->ilp, -INFINITY, upper)};
}

static void row_add(const struct row *row, uint32_t code, double factor)
{
    if (code == ONE)
        row->ilp->rows[row->index].upper -= factor;
    else if (code != ZERO)
        ul_ilp_add_term(row->ilp, code, factor);
}

/* a <= b + c */
static void at_most_either(struct form *f, uint32_t a, uint32_t b, uint32_t c)
{
    if (a == ZERO || b == ONE || c == ONE || a == b || a == c)
        return;
    struct row row = row_new(f, 0);
    row_add(&row, a, 1);
    row_add(&row, b, -1);
    row_add(&row, c, -1);
}

/* A kept value existed before; a node that runs has its inputs. */
static void presence_rows(struct form *f)
{
    for (uint32_t t = 0; t < f->n; t++) {
        for (uint32_t i = 0; i <= t; i++) {
            if (*rerun_at(f, t, i) != ZERO) {
                for (uint32_t e = f->stages.input_first[i]; e < f->stages.input_first[i + 1]; e++)
                    at_most_either(f, *rerun_at(f, t, i), *keep_at(f, t, f->stages.inputs[e]),
                                   *rerun_at(f, t, f->stages.inputs[e]));
            }
            at_most_either(f, *keep_at(f, t + 1, i), *keep_at(f, t, i), *rerun_at(f, t, i));
        }
    }
}

/* The maximum of two codes. */
static uint32_t join(struct form *f, uint32_t a, uint32_t b)
{
    if (a == ONE || b == ONE)
        return ONE;
    if (a == ZERO || a == b)
        return b;
    if (b == ZERO)
        return a;
    if (f->ilp->column_count >= f->task->column_limit) {
        f->too_big = true;
        return ONE;
    }
    uint32_t held = ul_ilp_add_column(f->ilp, 0, 0, 1, false);
    at_most_either(f, a, held, ZERO);
    at_most_either(f, b, held, ZERO);
    return held;
}

/* While node k runs in stage t; `held` and `after` say what is live then, and once it has run. */
static void memory_row(struct form *f, uint32_t t, uint32_t k, const uint32_t *held,
                       const uint32_t *after)
{
    const struct ul_solve_graph *g = f->graph;
    uint32_t v = f->order[k];
    double budget = (double)f->budget_bytes;
    uint64_t max = 0;
    for (uint32_t i = 0; i < t; i++)
        max += (i < k ? held[i] : *keep_at(f, t, i)) != ZERO || i == k ? bytes_of(f, i) : 0;
    uint64_t own = bytes_of(f, k) + f->stages.working_bytes[k];
    if (max + own <= f->budget_bytes || f->too_big)
        return;
    struct row row = row_new(f, 1);
    row_add(&row, *rerun_at(f, t, k), (double)own / budget);
    uint32_t taken = UL_PLAN_NONE;
    if (g->in_place != NULL && g->in_place[v] != UL_PLAN_NONE) {
        for (uint32_t e = f->stages.input_first[k]; e < f->stages.input_first[k + 1]; e++) {
            if (f->order[f->stages.inputs[e]] == g->in_place[v])
                taken = f->stages.inputs[e];
        }
    }
    for (uint32_t i = 0; i < t; i++) {
        if (i == k)
            continue;
        double bytes = (double)bytes_of(f, i);
        double shared = 0; /* while k runs, held minus after is 1 where i ends here */
        if (i == taken)
            shared = bytes_of(f, i) < bytes_of(f, k) ? bytes : (double)bytes_of(f, k);
        row_add(&row, i < k ? held[i] : *keep_at(f, t, i), (bytes - shared) / budget);
        if (shared > 0)
            row_add(&row, after[i], shared / budget);
    }
}

/* Goes through the stage backwards: a node's inputs are held while it runs, if it runs. */
static void stage_memory_rows(struct form *f, uint32_t t)
{
    uint32_t *held = UL_NEW_ARRAY(f->arena, uint32_t, f->n);
    uint32_t *after = UL_NEW_ARRAY(f->arena, uint32_t, f->n);
    for (uint32_t i = 0; i < f->n; i++)
        held[i] = i < t ? *keep_at(f, t + 1, i) : ZERO;
    for (uint32_t k = t + 1; k-- > 0;) {
        if (*rerun_at(f, t, k) == ZERO)
            continue;
        memcpy(after, held, f->n * sizeof *after);
        for (uint32_t e = f->stages.input_first[k]; e < f->stages.input_first[k + 1]; e++) {
            uint32_t i = f->stages.inputs[e];
            held[i] = join(f, held[i], *rerun_at(f, t, k));
        }
        memory_row(f, t, k, held, after);
    }
}

/* Nothing runs again that nothing reads: this is not needed, but tightens the relaxation. */
static void purpose_rows(struct form *f)
{
    for (uint32_t t = f->stages.gap; t < f->n; t++) {
        for (uint32_t i = 0; i < t; i++) {
            uint32_t rerun = *rerun_at(f, t, i);
            if (rerun == ZERO)
                continue;
            struct row row = row_new(f, 0);
            row_add(&row, rerun, 1);
            row_add(&row, *keep_at(f, t + 1, i), -1);
            for (uint32_t e = f->stages.reader_first[i]; e < f->stages.reader_first[i + 1]; e++) {
                if (f->stages.readers[e] <= t)
                    row_add(&row, *rerun_at(f, t, f->stages.readers[e]), -1);
            }
        }
    }
}

static uint64_t base_cost_of(const struct form *f)
{
    uint64_t base = 0;
    for (uint32_t i = 0; i < f->n; i++)
        base += cost_of(f, i);
    return base;
}

/* The most expensive cost of interest, in units above the base; false if there is no cutoff. */
static bool cutoff_units(const struct form *f, double *units)
{
    uint64_t base = base_cost_of(f);
    if (f->task->cutoff_cost == UINT64_MAX || f->task->cutoff_cost <= base)
        return false;
    *units = (double)((f->task->cutoff_cost - base - 1) / f->cost_unit);
    return true;
}

static void cost_row(struct form *f)
{
    double max;
    if (!cutoff_units(f, &max))
        return;
    struct row row = row_new(f, max + 0.5);
    for (uint32_t t = 0; t < f->n; t++) {
        for (uint32_t i = 0; i < t; i++)
            row_add(&row, *rerun_at(f, t, i), (double)(cost_of(f, i) / f->cost_unit));
    }
}

/* What runs again whatever is chosen, in units. */
static double certain_cost(const struct form *f)
{
    double sum = 0;
    for (uint32_t t = 0; t < f->n; t++) {
        for (uint32_t i = 0; i < t; i++) {
            if (*rerun_at(f, t, i) == ONE)
                sum += (double)(cost_of(f, i) / f->cost_unit);
        }
    }
    return sum;
}

/* Removes copies that nothing reads. */
static uint32_t sequence_strip(const struct form *f, uint32_t *sequence, uint32_t count)
{
    uint32_t *copy = UL_NEW_ARRAY(f->arena, uint32_t, f->n); /* position + 1 */
    uint8_t *read = ul_arena_alloc(f->arena, count);
    for (uint32_t p = 0; p < count; p++) {
        uint32_t i = f->stages.place[sequence[p]];
        read[p] = copy[i] == 0;
        for (uint32_t e = f->stages.input_first[i]; e < f->stages.input_first[i + 1]; e++)
            read[copy[f->stages.inputs[e]] - 1] = 1;
        copy[i] = p + 1;
    }
    uint32_t left = 0;
    for (uint32_t p = 0; p < count; p++) {
        if (read[p])
            sequence[left++] = sequence[p];
    }
    return left;
}

/* The nodes of the solution in order, if they satisfy the task. */
static void solution_read(struct form *f, const double *values)
{
    struct ul_remat_ilp *task = f->task;
    uint32_t count = 0, before = 0;
    uint32_t *sequence = NULL;
    for (bool fill = false; !fill || sequence == NULL; fill = true) {
        if (fill)
            sequence = UL_NEW_ARRAY(f->arena, uint32_t, count);
        count = 0;
        for (uint32_t t = 0; t < f->n; t++) {
            for (uint32_t i = 0; i <= t; i++) {
                uint32_t code = *rerun_at(f, t, i);
                if (code != ONE && (code == ZERO || values[code] < 0.5))
                    continue;
                if (sequence != NULL)
                    sequence[count] = f->order[i];
                count++;
            }
        }
    }
    uint64_t peak, cost;
    if (!ul_solve_replay(f->graph, sequence, count, &peak, &cost))
        return;
    do {
        before = count;
        count = sequence_strip(f, sequence, count);
    } while (count < before);
    bool valid = ul_solve_replay(f->graph, sequence, count, &peak, &cost);
    if (!valid || peak > task->budget_bytes || cost >= task->cutoff_cost)
        return;
    task->sequence = sequence;
    task->count = count;
    task->cost = cost;
}

static uint64_t cost_divisor(const struct ul_solve_graph *g)
{
    uint64_t divisor = 0;
    for (uint32_t v = 0; v < g->node_count; v++) {
        for (uint64_t rest = g->cost[v]; rest != 0;) {
            uint64_t next = divisor % rest;
            divisor = rest;
            rest = next;
        }
    }
    return divisor > 0 ? divisor : 1;
}

/* The program over what the domains leave open. */
static void program_make(struct form *f)
{
    f->ilp = ul_ilp_new(f->arena);
    domains_propagate(f);
    columns_make(f);
    if (!f->too_big)
        presence_rows(f);
    for (uint32_t t = 0; t < f->n && !f->too_big; t++)
        stage_memory_rows(f, t);
    if (f->too_big)
        return;
    purpose_rows(f);
    cost_row(f);
}

/* A variable that the relaxation sets to 0 or 1, and whose other value would cost more than is of
 * interest, is fixed. */
static uint32_t domain_fix(const struct ul_ilp_result *relaxed, double max, uint32_t code,
                           uint8_t *domain)
{
    if (*domain != FREE || code == ZERO || code == ONE)
        return 0;
    double value = relaxed->values[code];
    double price = relaxed->reduced_costs[code];
    if (value < 1e-7 && price > max)
        *domain = NEVER;
    else if (value > 1 - 1e-7 && -price > max)
        *domain = ALWAYS;
    return *domain != FREE;
}

static uint32_t domains_fix(struct form *f, const struct ul_ilp_result *relaxed, double max)
{
    uint64_t cells = (uint64_t)f->n * f->n;
    uint32_t fixed = 0;
    for (uint64_t c = 0; c < cells + f->n; c++) {
        fixed += domain_fix(relaxed, max, f->keep[c], &f->keep_domain[c]);
        if (c < cells)
            fixed += domain_fix(relaxed, max, f->rerun[c], &f->rerun_domain[c]);
    }
    return fixed;
}

/* Relaxes and fixes while that pays off; false if the program is too large. */
static bool program_reduce(struct form *f, enum ul_ilp_outcome *outcome)
{
    struct ul_remat_ilp *task = f->task;
    double max;
    bool cut = cutoff_units(f, &max);
    for (uint32_t columns = UINT32_MAX; f->ilp->column_count < columns - columns / 8;) {
        columns = f->ilp->column_count;
        struct ul_ilp_result relaxed;
        *outcome = ul_ilp_relax(f->ilp, task->limits, &relaxed);
        task->work += relaxed.work;
        task->stopped_by_time |= relaxed.stopped_by_time;
        if (*outcome != UL_ILP_OPTIMAL)
            return false;
        task->bound_units = relaxed.bound + certain_cost(f);
        /* A margin for rounding in the relaxation. */
        double margin = 1e-6 * (1 + fabs(task->bound_units));
        if (!cut || domains_fix(f, &relaxed, max - task->bound_units + margin) == 0)
            return true;
        program_make(f);
    }
    return true;
}

static bool form_solve(struct form *f)
{
    struct ul_remat_ilp *task = f->task;
    enum ul_ilp_outcome outcome = UL_ILP_UNKNOWN;
    if (program_reduce(f, &outcome)) {
        struct ul_ilp_result result;
        outcome = ul_ilp_solve(f->ilp, task->limits, &result);
        task->work += result.work;
        task->stopped_by_time |= result.stopped_by_time;
        if (result.values != NULL)
            solution_read(f, result.values);
        if (outcome == UL_ILP_OPTIMAL && task->sequence == NULL)
            outcome = UL_ILP_UNKNOWN; /* rounding made it miss the budget */
    }
    task->proven = outcome != UL_ILP_UNKNOWN && task->hint_count == 0;
    return true;
}

bool ul_remat_ilp(struct ul_arena *arena, struct ul_remat_ilp *task)
{
    UL_ASSERT(task->order != NULL);
    const struct ul_solve_graph *g = task->graph;
    if (task->budget_bytes <= g->base_bytes || g->node_count > task->node_limit)
        return false;
    struct form form = {.task = task,
                        .graph = g,
                        .arena = arena,
                        .n = g->node_count,
                        .order = task->order,
                        .budget_bytes = task->budget_bytes - g->base_bytes,
                        .cost_unit = cost_divisor(g)};
    ul_stages_init(arena, g, task->order, &form.stages);
    task->proven = task->cutoff_cost <= base_cost_of(&form);
    if (task->proven)
        return true;
    needs_find(&form);
    domains_make(&form);
    program_make(&form);
    return !form.too_big && form_solve(&form);
}
