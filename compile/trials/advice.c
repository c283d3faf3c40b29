/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what makes a plan smaller, and how much its own choices save.
 *
 * Problem: a change saves less than it removes at the peak, since another peak is then the largest.
 * Method: each change is planned, by a compile of its own with other options; so are the best two
 * and the best three together. What a budget gives (recomputation, pieces, other layouts, light
 * work inside) is on the ladder of the plan. The rows of tries.c say what is tried. */
#include "compile/search/tries.h"
#include "compile/trials/trial.h"

#include <string.h>

enum { MAX_JOINED = 3 };

static const char together[] = "together";

struct advice {
    struct ul_compile *compile;
    uint64_t cost, sample_count; /* of a step of the plan */
    uint32_t count;
    struct ul_trial trials[UL_REPORT_CHANGES];
    struct ul_saved_remedy remedies[UL_REPORT_CHANGES]; /* the name and the result of each */
};

/* Otherwise the budget bounds the process. */
static bool bounds_buffer(const struct advice *advice)
{
    return advice->compile->options.budget_of == UL_BUDGET_ARENA;
}

/* ---- Changes ---- */

/* "--precision bf16 without --order" */
static const char *edits_text(struct ul_arena *arena, const struct ul_option_edits *edits)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    for (uint32_t i = 0; i < edits->count; i++) {
        const struct ul_option_edit *edit = &edits->items[i];
        ul_text_printf(&text, "%s%s--%s", i == 0 ? "" : " ", edit->value == NULL ? "without " : "",
                       edit->row->name);
        if (edit->value != NULL && *edit->value != '\0')
            ul_text_printf(&text, " %s", ul_option_shown(arena, edit->value));
    }
    return text.data;
}

static struct ul_saved_remedy *add(struct advice *advice, const char *kind,
                                   const struct ul_option_edits *edits)
{
    UL_ASSERT(advice->count < UL_REPORT_CHANGES && edits->count > 0);
    struct ul_saved_remedy *remedy = &advice->remedies[advice->count];
    advice->trials[advice->count++] = (struct ul_trial){.edits = *edits};
    *remedy =
        (struct ul_saved_remedy){.kind = kind, .change = edits_text(&advice->compile->keep, edits)};
    return remedy;
}

static void offer_all(struct advice *advice)
{
    struct ul_compile *compile = advice->compile;
    bool is_f32 = compile->asked.precision == UL_PRECISION_F32;
    struct ul_option_edits edits;
    for (const struct ul_try *row = ul_tries; row->kind != NULL; row++) {
        uint32_t index = 0;
        while (row->vary == NULL && ul_try_edit(compile, row, index++, &compile->keep, &edits)) {
            struct ul_saved_remedy *remedy = add(advice, row->kind, &edits);
            remedy->applied = row->when == UL_TRY_APPLIED;
            remedy->same_bits =
                row->bits == UL_BITS_KEPT || (row->bits == UL_BITS_KEPT_IN_F32 && is_f32);
        }
    }
}

/* ---- Planning them ---- */

/* Whether a budget bounds the same memory in both: a caller's process has much less in it than the
 * program's own. */
static bool is_alike(const struct advice *advice, const struct ul_saved_remedy *remedy)
{
    return bounds_buffer(advice) ||
           strcmp(remedy->process_of, advice->compile->report.facts.process_of) == 0;
}

/* The bytes to compare: those that a budget bounds; where it does not bound the same, the
 * buffer's. */
static uint64_t bytes_of(const struct advice *advice, const struct ul_saved_remedy *remedy,
                         uint64_t reserved, uint64_t process)
{
    return bounds_buffer(advice) || !is_alike(advice, remedy) ? reserved : process;
}

/* Sets what the remedy saves of the plan's bytes, and how much more time it takes for the same
 * number of samples. */
static void compare(const struct advice *advice, struct ul_saved_remedy *remedy,
                    uint64_t sample_count)
{
    const struct ul_compile *compile = advice->compile;
    uint64_t own = bytes_of(advice, remedy, compile->plan.reserved_bytes[0],
                            compile->report.facts.process_bytes);
    uint64_t theirs = bytes_of(advice, remedy, remedy->reserved_bytes, remedy->process_bytes);
    double cost = (double)remedy->cost;
    if (sample_count > 0 && advice->sample_count > 0)
        cost *= (double)advice->sample_count / (double)sample_count;
    remedy->saved_bytes = (int64_t)own - (int64_t)theirs;
    remedy->extra_cost = (int64_t)cost - (int64_t)advice->cost;
}

static void plan_from(struct advice *advice, uint32_t first, const char *model_path)
{
    ul_compile_try_all(advice->compile, model_path, &advice->trials[first], advice->count - first);
    for (uint32_t i = first; i < advice->count; i++) {
        struct ul_saved_remedy *remedy = &advice->remedies[i];
        const struct ul_saved_table_plan *result = &advice->trials[i].result;
        if (!result->is_planned)
            continue;
        remedy->fits = result->status == UL_OK;
        remedy->reserved_bytes = result->reserved_bytes;
        remedy->process_bytes = result->process_bytes;
        remedy->process_of = result->process_of;
        remedy->cost = result->cost;
        compare(advice, remedy, result->sample_count);
    }
}

/* Joins the options that save most: the first two, and the first three. */
static void join_best(struct advice *advice)
{
    uint32_t best[MAX_JOINED], count = 0, own = advice->count;
    for (uint32_t turn = 0; turn < MAX_JOINED; turn++) {
        uint32_t chosen = UINT32_MAX;
        for (uint32_t i = 0; i < own; i++) {
            const struct ul_saved_remedy *remedy = &advice->remedies[i];
            bool is_taken =
                !advice->trials[i].result.is_planned || remedy->applied || remedy->saved_bytes <= 0;
            for (uint32_t k = 0; k < count; k++)
                is_taken = is_taken || strcmp(advice->remedies[best[k]].kind, remedy->kind) == 0;
            if (!is_taken && (chosen == UINT32_MAX ||
                              remedy->saved_bytes > advice->remedies[chosen].saved_bytes))
                chosen = i;
        }
        if (chosen == UINT32_MAX)
            break;
        best[count++] = chosen;
    }
    for (uint32_t members = 2; members <= count && advice->count < UL_REPORT_CHANGES; members++) {
        struct ul_option_edits edits = {.count = 0};
        bool keeps_bits = true;
        for (uint32_t m = 0; m < members; m++) {
            const struct ul_option_edits *member = &advice->trials[best[m]].edits;
            keeps_bits = keeps_bits && advice->remedies[best[m]].same_bits;
            for (uint32_t e = 0; e < member->count; e++) {
                const struct ul_option_edit *edit = &member->items[e];
                ul_option_edits_add(&advice->compile->keep, &edits, edit->row, edit->value,
                                    edit->replaces);
            }
        }
        add(advice, together, &edits)->same_bits = keeps_bits;
    }
}

/* ---- Remedies by a budget ---- */

static const char *kind_of(const struct ul_compile *compile, const struct ul_plan_rung *rung)
{
    static const struct ul_report_alternative none = {.split_count = 0};
    const struct ul_report_alternative *alternative =
        compile->report.alternatives != NULL ? &compile->report.alternatives[rung->alternative]
                                             : &none;
    return ul_report_recomputed(&rung->plan) > 0 ? "recompute"
           : alternative->split_count > 0        ? "split"
           : alternative->row_major_count > 0    ? "layout"
           : alternative->inside_count > 0       ? "inside"
                                                 : "implementation";
}

/* Whether the rung runs each step of the same program as the plan does, so that its bits are the
 * same. Those of training are the same under every budget; nothing is known here of another
 * program. */
static bool keeps_bits(struct ul_compile *compile, const struct ul_plan_rung *rung)
{
    uint32_t step_count = compile->program->problem->step_count;
    uint32_t *alternatives = UL_NEW_ARRAY(&compile->scratch, uint32_t, step_count);
    const struct ul_plan *plan = &compile->plan, *other = &rung->plan;
    bool same = true;
    if (compile->options.train || rung->alternative != 0)
        return compile->options.train;
    for (uint32_t p = 0; p < plan->position_count; p++)
        if (plan->positions[p].kind == UL_PLAN_RUN)
            alternatives[plan->positions[p].step] = plan->positions[p].alternative;
    for (uint32_t p = 0; p < other->position_count; p++)
        same = same && (other->positions[p].kind != UL_PLAN_RUN ||
                        alternatives[other->positions[p].step] == other->positions[p].alternative);
    return same;
}

static struct ul_saved_remedy rung_remedy(const struct advice *advice, uint32_t index)
{
    struct ul_compile *compile = advice->compile;
    const struct ul_plan_rung *rung = &compile->ladder.rungs[index];
    const struct ul_process_overhead *process =
        compile->report.alternatives != NULL
            ? &compile->report.alternatives[rung->alternative].process
            : &compile->report.overhead;
    uint32_t parts = compile->options.train ? compile->training.micro_batches : 1;
    uint64_t budget = ul_rung_bytes(rung);
    struct ul_saved_remedy remedy = {.kind = kind_of(compile, rung),
                                     .same_bits = keeps_bits(compile, rung),
                                     .reserved_bytes = rung->plan.reserved_bytes[0],
                                     .process_bytes = ul_plan_bounded_bytes(process, &rung->plan),
                                     .process_of = compile->report.facts.process_of,
                                     .fits = compile->options.budget_bytes == 0 ||
                                             budget <= compile->options.budget_bytes};
    remedy.change =
        ul_arena_printf(&compile->keep, "--budget %llu%s", (unsigned long long)budget,
                        compile->options.budget_of == UL_BUDGET_ARENA ? " --budget-of arena" : "");
    /* each run of a step takes that much more */
    remedy.cost = advice->cost + (rung->plan.cost - compile->plan.cost) * parts;
    compare(advice, &remedy, 0);
    return remedy;
}

/* Whether the plan costs at least as much as the rung: then the rung is no step further down. */
static bool is_below(const struct advice *advice, uint32_t index)
{
    const struct ul_plan *plan = &advice->compile->plan;
    const struct ul_plan *rung = &advice->compile->ladder.rungs[index].plan;
    return rung->cost > plan->cost;
}

/* Chooses from the ladder: the rung that saves most for its time, the first that saves half as much
 * as the last, and the last. */
static uint32_t choose_rungs(const struct advice *advice, struct ul_saved_remedy *chosen)
{
    const struct ul_plan_ladder *ladder = &advice->compile->ladder;
    uint32_t best = 0, half = 0, last = 0, count = 0;
    double best_rate = 0;
    for (uint32_t i = 1; i < ladder->count; i++)
        last = is_below(advice, i) ? i : last;
    if (last == 0)
        return 0;
    int64_t most = rung_remedy(advice, last).saved_bytes;
    for (uint32_t i = 1; i <= last; i++) {
        struct ul_saved_remedy remedy = rung_remedy(advice, i);
        if (!is_below(advice, i) || remedy.saved_bytes * 20 < most)
            continue;
        double rate = (double)remedy.saved_bytes / (double)remedy.extra_cost;
        if (rate > best_rate) {
            best = i;
            best_rate = rate;
        }
        if (half == 0 && remedy.saved_bytes * 2 >= most)
            half = i;
    }
    const uint32_t rungs[UL_REPORT_RUNGS] = {best, half, last};
    for (uint32_t i = 0; i < UL_REPORT_RUNGS; i++) {
        bool is_new = rungs[i] != 0;
        for (uint32_t k = 0; k < i; k++)
            is_new = is_new && rungs[k] != rungs[i];
        if (is_new)
            chosen[count++] = rung_remedy(advice, rungs[i]);
    }
    return count;
}

/* ---- Ranking ---- */

/* Whether `a` comes first: what makes the plan fit; then what it does not have yet; then what takes
 * no time; then more bytes for the time. */
static bool comes_first(const struct advice *advice, const struct ul_saved_remedy *a,
                        const struct ul_saved_remedy *b)
{
    bool plan_fits = advice->compile->plan.fits;
    if (a->applied != b->applied)
        return b->applied;
    if (!plan_fits && a->fits != b->fits)
        return a->fits;
    if (!plan_fits && a->fits && a->extra_cost != b->extra_cost)
        return a->extra_cost < b->extra_cost;
    if (is_alike(advice, a) != is_alike(advice, b)) /* their bytes cannot be compared */
        return is_alike(advice, a);
    if ((a->extra_cost <= 0) != (b->extra_cost <= 0))
        return a->extra_cost <= 0;
    if (a->extra_cost <= 0 || a->applied)
        return a->saved_bytes > b->saved_bytes;
    return (double)a->saved_bytes * (double)b->extra_cost >
           (double)b->saved_bytes * (double)a->extra_cost;
}

static void insert(const struct advice *advice, struct ul_saved *result,
                   const struct ul_saved_remedy *remedy)
{
    uint32_t at = result->remedy_count++;
    while (at > 0 && comes_first(advice, remedy, &result->remedies[at - 1])) {
        result->remedies[at] = result->remedies[at - 1];
        at--;
    }
    result->remedies[at] = *remedy;
}

/* A remedy has to save more than a thousandth of the plan's bytes, or to make the plan fit. One
 * that the plan already has must save that against the plan without it. One whose bytes cannot be
 * compared can only make the plan fit. */
static bool is_worth(const struct advice *advice, const struct ul_saved_remedy *remedy)
{
    int64_t own = (int64_t)bytes_of(advice, remedy, advice->compile->plan.reserved_bytes[0],
                                    advice->compile->report.facts.process_bytes);
    int64_t saved = remedy->applied ? -remedy->saved_bytes : remedy->saved_bytes;
    bool closes = remedy->fits && !advice->compile->plan.fits && !remedy->applied;
    return closes || (is_alike(advice, remedy) && saved > own / 1000);
}

/* Whether several changes together save no more than one of them alone. */
static bool is_idle(const struct advice *advice, uint32_t index)
{
    const struct ul_saved_remedy *joined = &advice->remedies[index];
    uint32_t edit_count = advice->trials[index].edits.count;
    if (strcmp(joined->kind, together) != 0)
        return false;
    for (uint32_t i = 0; i < advice->count; i++) {
        const struct ul_saved_remedy *other = &advice->remedies[i];
        const struct ul_trial *trial = &advice->trials[i];
        if (trial->result.is_planned && trial->edits.count < edit_count &&
            strcmp(other->process_of, joined->process_of) == 0 && other->fits >= joined->fits &&
            other->saved_bytes >= joined->saved_bytes && other->extra_cost <= joined->extra_cost)
            return true;
    }
    return false;
}

static void rank(const struct advice *advice, struct ul_saved *result)
{
    struct ul_compile *compile = advice->compile;
    struct ul_saved_remedy rungs[UL_REPORT_RUNGS];
    uint32_t rung_count = choose_rungs(advice, rungs);
    result->has_remedies = true;
    result->remedies_tried = advice->count;
    result->remedy_count = 0;
    result->remedies =
        UL_NEW_ARRAY(&compile->keep, struct ul_saved_remedy, advice->count + rung_count);
    for (uint32_t i = 0; i < rung_count; i++)
        if (is_worth(advice, &rungs[i]))
            insert(advice, result, &rungs[i]);
    for (uint32_t i = 0; i < advice->count; i++) {
        const struct ul_saved_remedy *remedy = &advice->remedies[i];
        if (advice->trials[i].result.is_planned && is_worth(advice, remedy) && !is_idle(advice, i))
            insert(advice, result, remedy);
    }
}

void ul_compile_advise(struct ul_compile *compile, const char *model_path)
{
    struct advice *advice = UL_NEW(&compile->keep, struct advice);
    UL_ASSERT(compile->program != NULL && compile->options.plan == NULL);
    UL_ASSERT(strcmp(model_path, "-") != 0);
    const struct ul_saved_table_plan own = ul_compile_note(compile);
    *advice =
        (struct advice){.compile = compile, .cost = own.cost, .sample_count = own.sample_count};
    offer_all(advice);
    plan_from(advice, 0, model_path);
    uint32_t single = advice->count;
    join_best(advice);
    plan_from(advice, single, model_path);
    rank(advice, &compile->report.facts);
}
