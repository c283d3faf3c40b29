/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <string.h>

enum { CELL_BYTES = 8, ROUNDS = 2 };

struct machine {
    const struct oracle *oracle;
    const struct ul_problem *problem;
    const struct ul_plan *plan; /* NULL: the reference */
    struct ul_arena scratch;
    uint64_t **memory;     /* per space, or per value in the reference */
    uint64_t *cell_counts; /* as memory */
    uint64_t garbage;
    bool broken;   /* something is not where it should be */
    bool is_late;  /* what another stream does is done when it is waited for, not when it begins */
    bool *pending; /* per position: begun by another stream, and not done */
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t x = a * UINT64_C(0x9E3779B97F4A7C15) + b + 1;
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static uint64_t cells_of(uint64_t size_bytes)
{
    return (size_bytes + CELL_BYTES - 1) / CELL_BYTES;
}

static bool has(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

static bool is_there_at_start(const struct ul_plan_value *value)
{
    return value->live_from_start || value->persistent;
}

static bool stays_to_end(const struct ul_plan_value *value)
{
    return value->live_to_end || value->persistent;
}

/* ---- Who writes which cells ---- */

/* The reads and writes of a step do not depend on how it is run. */
static const struct ul_plan_substep *touches_of(const struct ul_problem *problem, uint32_t step)
{
    return &problem->steps[step].alternatives[0].substeps[0];
}

static bool is_owner(const struct ul_problem *problem, uint32_t step, uint32_t value)
{
    const struct ul_plan_substep *substep = touches_of(problem, step);
    return has(substep->writes, substep->write_count, value) &&
           !has(substep->reads, substep->read_count, value);
}

/* The step whose share of the value a cell is, or UL_PLAN_NONE. */
static uint32_t owner_of(const struct oracle *o, uint32_t value, uint64_t cell)
{
    uint32_t first = o->owner_first[value];
    uint32_t count = o->owner_first[value + 1] - first;
    return count == 0 ? UL_PLAN_NONE : o->owners[first + cell % count];
}

/* Whether a cell holds something in file order when `step` runs (or at the end). */
static bool is_defined(const struct oracle *o, uint32_t value, uint64_t cell, uint32_t step)
{
    uint32_t owner = owner_of(o, value, cell);
    return is_there_at_start(&o->problem->values[value]) || (owner != UL_PLAN_NONE && owner < step);
}

/* ---- Memory ---- */

static uint64_t *cells_at(struct machine *m, uint32_t space, uint64_t offset_bytes,
                          uint64_t size_bytes)
{
    uint64_t first = offset_bytes / CELL_BYTES;
    if (offset_bytes % CELL_BYTES != 0 || first > m->cell_counts[space] ||
        cells_of(size_bytes) > m->cell_counts[space] - first) {
        m->broken = true;
        return NULL;
    }
    return m->memory[space] + first;
}

/* The cells of a value where the emitted program looks for them at a position. */
static uint64_t *value_at(struct machine *m, uint32_t value, uint32_t position)
{
    if (m->plan == NULL)
        return m->memory[value];
    const struct ul_plan_range *range = ul_plan_find_range(m->problem, m->plan, value, position);
    if (range == NULL) {
        m->broken = true;
        return NULL;
    }
    return cells_at(m, range->space, range->offset_bytes, m->problem->values[value].size_bytes);
}

static void destroy(struct machine *m, uint64_t *cells, uint64_t count)
{
    for (uint64_t i = 0; cells != NULL && i < count; i++)
        cells[i] = mix(m->garbage++, 77);
}

static void scratch_destroy(struct machine *m, const struct ul_plan_substep *substep,
                            uint32_t position)
{
    if (m->plan == NULL || substep->scratch_bytes == 0)
        return;
    uint32_t r = m->plan->value_ranges[m->problem->value_count];
    while (r < m->plan->range_count && m->plan->ranges[r].begin != position)
        r++;
    if (r == m->plan->range_count) {
        m->broken = true;
        return;
    }
    const struct ul_plan_range *range = &m->plan->ranges[r];
    destroy(m, cells_at(m, range->space, range->offset_bytes, substep->scratch_bytes),
            cells_of(substep->scratch_bytes));
}

/* ---- One part of one run of one step ---- */

struct run {
    uint32_t step, position, round;
    uint32_t substep_index, substep_count;
    const struct ul_plan_substep *substep;
    uint64_t seen; /* of all that is read but not written */
};

static bool writes_cell(const struct machine *m, const struct run *run, uint32_t value,
                        uint64_t cell, bool updates)
{
    enum { BLOCK = 4 }; /* parts take turns by blocks, owners by cells */
    if (cell / BLOCK % run->substep_count != run->substep_index)
        return false;
    if (updates)
        return is_defined(m->oracle, value, cell, run->step);
    return owner_of(m->oracle, value, cell) == run->step;
}

static bool is_in_place(struct machine *m, const struct run *run, uint32_t value)
{
    for (uint32_t i = 0; i < run->substep->in_place_count; i++) {
        const struct ul_plan_in_place *option = &run->substep->in_place[i];
        if (option->output == value && m->plan != NULL &&
            value_at(m, option->input, run->position) == value_at(m, value, run->position))
            return true;
    }
    return false;
}

static void outputs_destroy(struct machine *m, const struct run *run)
{
    const struct ul_plan_substep *substep = run->substep;
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t v = substep->writes[i];
        uint64_t *cells = value_at(m, v, run->position);
        if (has(substep->reads, substep->read_count, v) || is_in_place(m, run, v))
            continue;
        for (uint64_t c = 0; cells != NULL && c < cells_of(m->problem->values[v].size_bytes); c++) {
            if (writes_cell(m, run, v, c, false))
                destroy(m, cells + c, 1);
        }
    }
}

static void inputs_see(struct machine *m, struct run *run)
{
    const struct ul_plan_substep *substep = run->substep;
    run->seen = mix(run->step, run->round);
    for (uint32_t i = 0; i < substep->read_count; i++) {
        uint32_t v = substep->reads[i];
        const uint64_t *cells = value_at(m, v, run->position);
        if (has(substep->writes, substep->write_count, v))
            continue;
        for (uint64_t c = 0; cells != NULL && c < cells_of(m->problem->values[v].size_bytes); c++) {
            if (is_defined(m->oracle, v, c, run->step))
                run->seen = mix(run->seen, cells[c]);
        }
    }
}

static void outputs_write(struct machine *m, const struct run *run)
{
    const struct ul_plan_substep *substep = run->substep;
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t v = substep->writes[i];
        uint64_t *cells = value_at(m, v, run->position);
        bool updates = has(substep->reads, substep->read_count, v);
        if (has(substep->writes, i, v))
            continue;
        for (uint64_t c = 0; cells != NULL && c < cells_of(m->problem->values[v].size_bytes); c++) {
            if (writes_cell(m, run, v, c, updates))
                cells[c] = mix(mix(run->seen, mix(v, c)), updates ? cells[c] : 0);
        }
    }
}

static void substep_run(struct machine *m, struct run *run)
{
    scratch_destroy(m, run->substep, run->position);
    outputs_destroy(m, run);
    inputs_see(m, run);
    outputs_write(m, run);
    scratch_destroy(m, run->substep, run->position);
}

/* The cells of a value between runs: where its first copy is, if the value is persistent. */
static uint64_t *home_of(struct machine *m, uint32_t value, uint32_t position)
{
    if (m->plan == NULL || !m->problem->values[value].persistent ||
        m->plan->value_ranges[value] == m->plan->value_ranges[value + 1])
        return value_at(m, value, position);
    const struct ul_plan_range *range = &m->plan->ranges[m->plan->value_ranges[value]];
    return cells_at(m, range->space, range->offset_bytes, m->problem->values[value].size_bytes);
}

static void values_start(struct machine *m)
{
    for (uint32_t v = 0; v < m->problem->value_count; v++) {
        if (!is_there_at_start(&m->problem->values[v]))
            continue;
        uint64_t *cells = home_of(m, v, 0);
        for (uint64_t c = 0; cells != NULL && c < cells_of(m->problem->values[v].size_bytes); c++)
            cells[c] = mix(v, mix(c, 99));
    }
}

/* ---- The reference ---- */

static void reference_step(struct machine *m, uint32_t step, uint32_t round)
{
    struct run run = {
        .step = step, .round = round, .substep_count = 1, .substep = touches_of(m->problem, step)};
    substep_run(m, &run);
}

static bool is_loop(const struct ul_problem *problem, uint32_t step)
{
    return problem->regions[problem->steps[step].region].kind == UL_PLAN_LOOP;
}

static void reference_run(struct machine *m)
{
    const struct ul_problem *problem = m->problem;
    for (uint32_t s = 0; s < problem->step_count;) {
        uint32_t end = s + 1;
        while (is_loop(problem, s) && end < problem->step_count &&
               problem->steps[end].region == problem->steps[s].region)
            end++;
        for (uint32_t round = 0; round < (is_loop(problem, s) ? ROUNDS : 1); round++) {
            for (uint32_t i = s; i < end; i++)
                reference_step(m, i, round);
        }
        s = end;
    }
}

static void owners_make(struct oracle *o)
{
    const struct ul_problem *problem = o->problem;
    uint64_t max = 0;
    for (uint32_t s = 0; s < problem->step_count; s++)
        max += touches_of(problem, s)->write_count;
    o->owners = UL_NEW_ARRAY(o->arena, uint32_t, max + 1);
    o->owner_first = UL_NEW_ARRAY(o->arena, uint32_t, (uint64_t)problem->value_count + 1);
    uint32_t count = 0;
    for (uint32_t v = 0; v < problem->value_count; v++) {
        o->owner_first[v] = count;
        for (uint32_t s = 0; s < problem->step_count; s++) {
            if (is_owner(problem, s, v))
                o->owners[count++] = s;
        }
    }
    o->owner_first[problem->value_count] = count;
}

void oracle_init(struct oracle *oracle, struct ul_arena *arena, const struct ul_problem *problem)
{
    struct machine m = {.oracle = oracle, .problem = problem};
    *oracle = (struct oracle){.problem = problem, .arena = arena};
    owners_make(oracle);
    oracle->wanted = UL_NEW_ARRAY(arena, uint64_t *, problem->value_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        oracle->wanted[v] = UL_NEW_ARRAY(arena, uint64_t, cells_of(problem->values[v].size_bytes));
    m.memory = oracle->wanted;
    values_start(&m);
    reference_run(&m);
}

/* ---- A plan ---- */

static bool position_is_sound(const struct ul_problem *problem, const struct ul_plan *plan,
                              uint32_t p)
{
    const struct ul_plan_position *at = &plan->positions[p];
    if (at->kind != UL_PLAN_RUN)
        return at->kind == UL_PLAN_WAIT
                   ? at->awaited < p
                   : at->value < problem->value_count && at->space < problem->space_count;
    if (at->step >= problem->step_count ||
        at->alternative >= problem->steps[at->step].alternative_count)
        return false;
    uint32_t substeps = problem->steps[at->step].alternatives[at->alternative].substep_count;
    if (at->substep >= substeps)
        return false;
    bool more = p + 1 < plan->position_count;
    const struct ul_plan_position *next = at + 1;
    if (at->substep + 1 < substeps)
        return more && next->kind == UL_PLAN_RUN && next->step == at->step &&
               next->alternative == at->alternative && next->substep == at->substep + 1;
    return !more || next->kind != UL_PLAN_RUN || next->substep == 0;
}

static bool range_is_sound(const struct ul_problem *problem, const struct ul_plan *plan, uint32_t r)
{
    const struct ul_plan_range *range = &plan->ranges[r];
    uint64_t alignment = plan->alignment_bytes;
    if (range->space >= problem->space_count)
        return false;
    if (range->value == UL_PLAN_NONE) {
        if (range->begin >= plan->position_count || range->class != UL_PLAN_SCRATCH ||
            plan->positions[range->begin].kind != UL_PLAN_RUN)
            return false;
        const struct ul_plan_position *at = &plan->positions[range->begin];
        const struct ul_plan_substep *substep =
            &problem->steps[at->step].alternatives[at->alternative].substeps[at->substep];
        if (substep->scratch_alignment_bytes > alignment)
            alignment = substep->scratch_alignment_bytes;
        return range->offset_bytes % alignment == 0 && range->space == substep->scratch_space &&
               range->size_bytes == substep->scratch_bytes;
    }
    if (range->value >= problem->value_count)
        return false;
    const struct ul_plan_value *value = &problem->values[range->value];
    if (value->alignment_bytes > alignment)
        alignment = value->alignment_bytes;
    bool own = range->space == value->space || value->persistent;
    return range->offset_bytes % alignment == 0 && (own || range->copy > 0) &&
           range->size_bytes == value->size_bytes && range->class == value->class &&
           (!value->pinned || !own || range->offset_bytes == value->pinned_offset_bytes);
}

static bool plan_is_sound(const struct ul_problem *problem, const struct ul_plan *plan)
{
    for (uint32_t p = 0; p < plan->position_count; p++) {
        if (!position_is_sound(problem, plan, p))
            return false;
    }
    for (uint32_t r = 0; r < plan->range_count; r++) {
        if (!range_is_sound(problem, plan, r))
            return false;
    }
    return true;
}

static struct run run_at(const struct machine *m, uint32_t p, uint32_t round)
{
    const struct ul_plan_position *at = &m->plan->positions[p];
    const struct ul_plan_alternative *alternative =
        &m->problem->steps[at->step].alternatives[at->alternative];
    return (struct run){.step = at->step,
                        .position = p,
                        .round = round,
                        .substep_index = at->substep,
                        .substep_count = alternative->substep_count,
                        .substep = &alternative->substeps[at->substep]};
}

/* The newest range of a value that is live in a space; `fresh`: that begins at the position. */
static uint64_t *copy_at(struct machine *m, uint32_t value, uint32_t space, uint32_t position,
                         bool fresh)
{
    const struct ul_plan *plan = m->plan;
    for (uint32_t r = plan->value_ranges[value + 1]; r-- > plan->value_ranges[value];) {
        const struct ul_plan_range *range = &plan->ranges[r];
        if (range->space == space && range->begin <= position && position < range->end &&
            (range->begin == position || !fresh))
            return cells_at(m, space, range->offset_bytes, m->problem->values[value].size_bytes);
    }
    m->broken = true;
    return NULL;
}

static void transfer_run(struct machine *m, uint32_t p, bool only_destroys)
{
    const struct ul_plan_position *at = &m->plan->positions[p];
    const struct ul_plan_value *value = &m->problem->values[at->value];
    bool saves = !at->loads;
    uint64_t *from = copy_at(m, at->value, saves ? value->space : at->space, p, false);
    uint64_t *to =
        copy_at(m, at->value, saves ? at->space : value->space, p, !saves || !value->persistent);
    if (only_destroys)
        destroy(m, to, cells_of(value->size_bytes));
    else if (from != NULL && to != NULL)
        memmove(to, from, cells_of(value->size_bytes) * CELL_BYTES);
}

static void work_run(struct machine *m, uint32_t p, uint32_t round)
{
    if (m->plan->positions[p].kind == UL_PLAN_RUN) {
        struct run run = run_at(m, p, round);
        substep_run(m, &run);
    } else {
        transfer_run(m, p, false);
    }
}

/* Whether the run at `q` touches what the run at `p` writes. */
static bool touches_output(const struct machine *m, uint32_t q, uint32_t p)
{
    const struct ul_plan_substep *of = run_at(m, p, 0).substep, *earlier = run_at(m, q, 0).substep;
    for (uint32_t i = 0; i < of->write_count; i++) {
        if (ul_ids_have(earlier->reads, earlier->read_count, of->writes[i]) ||
            ul_ids_have(earlier->writes, earlier->write_count, of->writes[i]))
            return true;
    }
    return false;
}

/* Whether a transfer of the same value comes before `p` on its stream, and may not be done; or a
 * run that touches what the one at `p` writes. */
static bool is_held_up(const struct machine *m, uint32_t p)
{
    const struct ul_plan_position *at = m->plan->positions;
    bool runs = at[p].kind == UL_PLAN_RUN;
    for (uint32_t q = 0; q < p; q++) {
        if (!m->pending[q] || at[q].stream != at[p].stream || (at[q].kind == UL_PLAN_RUN) != runs)
            continue;
        if (runs ? touches_output(m, q, p) : at[q].value == at[p].value)
            return true;
    }
    return false;
}

/* Until it is done, whatever another stream writes may hold anything, once that stream gets
 * there. */
static void work_begin(struct machine *m, uint32_t p, uint32_t round)
{
    m->pending[p] = true;
    if (m->plan->positions[p].kind == UL_PLAN_RUN) {
        struct run run = run_at(m, p, round);
        scratch_destroy(m, run.substep, p);
        if (!is_held_up(m, p))
            outputs_destroy(m, &run);
    } else if (!is_held_up(m, p)) {
        transfer_run(m, p, true);
    }
}

static void position_run(struct machine *m, uint32_t p, uint32_t round)
{
    const struct ul_plan_position *at = &m->plan->positions[p];
    if (at->kind != UL_PLAN_WAIT) {
        if (at->stream != 0 && m->is_late)
            work_begin(m, p, round);
        else
            work_run(m, p, round);
        return;
    }
    for (uint32_t q = 0; q <= at->awaited; q++) {
        if (m->pending[q] && m->plan->positions[q].stream == m->plan->positions[at->awaited].stream)
            work_run(m, q, round);
        m->pending[q] =
            m->pending[q] && m->plan->positions[q].stream != m->plan->positions[at->awaited].stream;
    }
}

static uint32_t region_at(const struct machine *m, uint32_t p)
{
    const struct ul_plan_position *at = &m->plan->positions[p];
    return at->kind == UL_PLAN_RUN ? m->problem->steps[at->step].region : 0;
}

/* A loop that is in two places is not a loop. */
static bool positions_run(struct machine *m)
{
    const struct ul_problem *problem = m->problem;
    const struct ul_plan *plan = m->plan;
    bool *entered = UL_NEW_ARRAY(&m->scratch, bool, problem->region_count);
    for (uint32_t p = 0; p < plan->position_count;) {
        uint32_t region = region_at(m, p);
        bool loop = problem->regions[region].kind == UL_PLAN_LOOP;
        uint32_t end = p + 1;
        while (loop && end < plan->position_count && region_at(m, end) == region)
            end++;
        if (loop && entered[region])
            return false;
        entered[region] = true;
        for (uint32_t round = 0; round < (loop ? ROUNDS : 1); round++) {
            for (uint32_t i = p; i < end; i++)
                position_run(m, i, round);
        }
        p = end;
    }
    return true;
}

static bool ends_as_wanted(struct machine *m)
{
    const struct oracle *o = m->oracle;
    uint32_t last = m->plan->position_count > 0 ? m->plan->position_count - 1 : 0;
    for (uint32_t v = 0; v < m->problem->value_count; v++) {
        if (!stays_to_end(&m->problem->values[v]))
            continue;
        const uint64_t *cells = home_of(m, v, last);
        for (uint64_t c = 0; cells != NULL && c < cells_of(m->problem->values[v].size_bytes); c++) {
            if (is_defined(o, v, c, UL_PLAN_NONE) && cells[c] != o->wanted[v][c])
                return false;
        }
    }
    return !m->broken;
}

static bool run_accepts(const struct oracle *oracle, const struct ul_plan *plan, bool is_late)
{
    const struct ul_problem *problem = oracle->problem;
    struct machine m = {.oracle = oracle, .problem = problem, .plan = plan, .is_late = is_late};
    ul_arena_init(&m.scratch);
    m.pending = UL_NEW_ARRAY(&m.scratch, bool, plan->position_count);
    m.memory = UL_NEW_ARRAY(&m.scratch, uint64_t *, problem->space_count);
    m.cell_counts = UL_NEW_ARRAY(&m.scratch, uint64_t, problem->space_count);
    for (uint32_t s = 0; s < problem->space_count; s++) {
        m.cell_counts[s] = plan->reserved_bytes[s] / CELL_BYTES;
        m.memory[s] = UL_NEW_ARRAY(&m.scratch, uint64_t, m.cell_counts[s]);
        destroy(&m, m.memory[s], m.cell_counts[s]);
    }
    values_start(&m);
    bool same = positions_run(&m) && ends_as_wanted(&m);
    ul_arena_done(&m.scratch);
    return same;
}

bool oracle_accepts(const struct oracle *oracle, const struct ul_plan *plan)
{
    return plan_is_sound(oracle->problem, plan) && run_accepts(oracle, plan, false) &&
           run_accepts(oracle, plan, true);
}
