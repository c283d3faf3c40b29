/* SPDX-License-Identifier: Apache-2.0 */
/* Plans over several spaces and streams: values are saved to another space and loaded back at
 * random, beside what runs or not, and waited for somewhere in time. Such a plan must pass the
 * checker, and the oracle whenever what another stream does is done. One that was changed may pass
 * the checker only if it passes the oracle. */
#include "oracle.h"
#include "planner/model/timeline.h"
#include "planner/pack/placement.h"
#include "planner/solve/solve_internal.h"
#include "random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_STEPS = 14, MAX_POSITIONS = 128, MAX_MOVES = 4, PLAN_COUNT = 10000 };

struct maker {
    struct ul_arena arena;
    struct ul_problem *problem;
    uint64_t random;
    struct ul_plan_position positions[MAX_POSITIONS];
    uint32_t count;
    bool moved[4 * MAX_STEPS]; /* per value */
};

/* What the plans had, to show that each was tried often. */
struct seen {
    uint32_t moves, homes, beside, runs_beside, refused, accepted, in_third_space;
};

static bool touches(const struct maker *m, uint32_t p, uint32_t value, bool writes_alone)
{
    const struct ul_plan_position *at = &m->positions[p];
    if (at->kind != UL_PLAN_RUN)
        return false;
    const struct ul_plan_substep *substep = ul_substep_at(m->problem, at);
    return ul_ids_have(substep->writes, substep->write_count, value) ||
           (!writes_alone && ul_ids_have(substep->reads, substep->read_count, value));
}

static uint32_t region_at(const struct maker *m, uint32_t p)
{
    const struct ul_plan_position *at = &m->positions[p];
    return at->kind == UL_PLAN_RUN ? m->problem->steps[at->step].region : 0;
}

/* Whether what is put before position `p` is in the root, and not within a run. */
static bool is_open(const struct maker *m, uint32_t p)
{
    if (p == 0 || p == m->count)
        return true;
    const struct ul_plan_position *at = &m->positions[p];
    if (at->kind == UL_PLAN_RUN && at->substep > 0)
        return false;
    return region_at(m, p) == 0 || region_at(m, p - 1) != region_at(m, p);
}

static void insert(struct maker *m, uint32_t p, struct ul_plan_position position)
{
    assert_true(m->count < MAX_POSITIONS);
    memmove(m->positions + p + 1, m->positions + p, (m->count - p) * sizeof *m->positions);
    m->count++;
    for (uint32_t i = 0; i < m->count; i++) {
        if (i != p && m->positions[i].kind == UL_PLAN_WAIT && m->positions[i].awaited >= p)
            m->positions[i].awaited++;
    }
    m->positions[p] = position;
}

static void take_out(struct maker *m, uint32_t p)
{
    m->count--;
    memmove(m->positions + p, m->positions + p + 1, (m->count - p) * sizeof *m->positions);
    for (uint32_t i = 0; i < m->count; i++) {
        if (m->positions[i].kind == UL_PLAN_WAIT && m->positions[i].awaited >= p &&
            m->positions[i].awaited > 0)
            m->positions[i].awaited--;
    }
}

/* A place from `first` on, up to `last`, that is in the root; UL_PLAN_NONE if there is none. */
static uint32_t place_choose(struct maker *m, uint32_t first, uint32_t last)
{
    if (first > last)
        return UL_PLAN_NONE;
    uint32_t p = first + random_below(&m->random, last - first + 1);
    while (p <= last && !is_open(m, p))
        p++;
    return p <= last ? p : UL_PLAN_NONE;
}

/* The transfer at `p`; where it is of another stream, a wait for it at or before `last`. Returns
 * how many positions were added; 0: there is no room. */
static uint32_t transfer_insert(struct maker *m, bool loads, uint32_t value, uint32_t space,
                                uint32_t p, uint32_t last, struct seen *seen)
{
    struct ul_plan_position position = {
        .kind = UL_PLAN_COPY, .loads = loads, .value = value, .space = space};
    const struct ul_plan_resource *engine = ul_problem_engine(m->problem, space, loads);
    position.stream = random_below(&m->random, 3) == 0 ? 0 : engine->stream;
    insert(m, p, position);
    if (position.stream == 0)
        return 1;
    uint32_t w = place_choose(m, p + 1, last + 1);
    if (w == UL_PLAN_NONE) {
        m->positions[p].stream = 0;
        return 1;
    }
    insert(m, w, (struct ul_plan_position){.kind = UL_PLAN_WAIT, .awaited = p});
    seen->beside++;
    return 2;
}

/* Saves a value after a position that touches it, and loads it back before anything writes it. */
static void move_try(struct maker *m, struct seen *seen)
{
    uint32_t v = random_below(&m->random, m->problem->value_count + 1);
    if (v == m->problem->value_count || m->problem->values[v].persistent || m->moved[v])
        return;
    uint32_t space = random_below(&m->random, m->problem->space_count);
    uint32_t first = m->problem->values[v].live_from_start ? 0 : UL_PLAN_NONE;
    for (uint32_t p = 0; p < m->count && first == UL_PLAN_NONE; p++) {
        if (touches(m, p, v, true))
            first = p + 1;
    }
    if (first == UL_PLAN_NONE || space == m->problem->values[v].space)
        return;
    uint32_t save = place_choose(m, first, m->count);
    if (save == UL_PLAN_NONE)
        return;
    uint32_t end = save; /* nothing before it writes the value */
    while (end < m->count && !touches(m, end, v, true))
        end++;
    uint32_t load = place_choose(m, save, end);
    if (load == UL_PLAN_NONE || m->count + 4 >= MAX_POSITIONS)
        return;
    load += transfer_insert(m, false, v, space, save, load, seen);
    uint32_t next = load; /* nothing touches the value before it */
    while (next < m->count && !touches(m, next, v, false))
        next++;
    transfer_insert(m, true, v, space, load, next, seen);
    m->moved[v] = true;
    seen->moves++;
    seen->in_third_space += space == 2;
}

/* The first or the last position that touches a value; UL_PLAN_NONE if none does. */
static uint32_t touch_find(const struct maker *m, uint32_t value, bool is_last)
{
    uint32_t found = UL_PLAN_NONE;
    for (uint32_t p = 0; p < m->count && (is_last || found == UL_PLAN_NONE); p++)
        found = touches(m, p, value, false) ? p : found;
    return found;
}

/* Makes a persistent value live in another space: it is loaded before anything touches it, saved
 * afterwards, and sometimes between two touches too. */
static void home_try(struct maker *m, struct seen *seen)
{
    uint32_t v = random_below(&m->random, m->problem->value_count + 1);
    if (v == m->problem->value_count || !m->problem->values[v].persistent || m->moved[v])
        return;
    uint32_t space = random_below(&m->random, m->problem->space_count);
    uint32_t first = touch_find(m, v, false);
    if (first == UL_PLAN_NONE || space == m->problem->values[v].space ||
        m->count + 8 >= MAX_POSITIONS)
        return;
    uint32_t load = place_choose(m, 0, first);
    if (load == UL_PLAN_NONE)
        return;
    transfer_insert(m, true, v, space, load, first, seen);
    m->moved[v] = true;
    seen->homes++;
    uint32_t again = touch_find(m, v, false) + 1;
    uint32_t last = touch_find(m, v, true);
    uint32_t next = again;
    while (next < last && !touches(m, next, v, false))
        next++;
    again = again <= next && next <= last ? place_choose(m, again, next) : UL_PLAN_NONE;
    if (again != UL_PLAN_NONE && random_below(&m->random, 2) == 0) {
        again += transfer_insert(m, false, v, space, again, again, seen);
        for (next = again; !touches(m, next, v, false);)
            next++;
        transfer_insert(m, true, v, space, again, next, seen);
    }
    uint32_t save = place_choose(m, touch_find(m, v, true) + 1, m->count);
    transfer_insert(m, false, v, space, save, m->count, seen);
}

/* Whether position `q` must come after the run at `p`: it touches what that writes, or writes what
 * that reads. */
static bool depends(const struct maker *m, uint32_t p, uint32_t q)
{
    const struct ul_plan_substep *substep = ul_substep_at(m->problem, &m->positions[p]);
    for (uint32_t i = 0; i < substep->write_count; i++) {
        if (touches(m, q, substep->writes[i], false))
            return true;
    }
    for (uint32_t i = 0; i < substep->read_count; i++) {
        if (touches(m, q, substep->reads[i], true))
            return true;
    }
    return false;
}

/* Lets a step run beside what follows, up to what depends on it; its values stay where they are. */
static void run_beside(struct maker *m, struct seen *seen)
{
    uint32_t p = random_below(&m->random, m->count);
    if (region_at(m, p) != 0 || m->positions[p].substep > 0)
        return;
    uint32_t end = p + 1;
    while (end < m->count && m->positions[end].substep > 0)
        end++;
    uint32_t last = end;
    while (last < m->count && !depends(m, p, last))
        last++;
    uint32_t w = place_choose(m, end, last);
    if (w == UL_PLAN_NONE)
        return;
    for (uint32_t i = p; i < end; i++)
        m->positions[i].stream = 1;
    for (uint32_t v = 0; v < m->problem->value_count; v++)
        m->moved[v] = touches(m, p, v, false);
    insert(m, w, (struct ul_plan_position){.kind = UL_PLAN_WAIT, .awaited = end - 1});
    seen->runs_beside++;
}

/* Adds spaces besides the arena, with their speeds, and makes some of them the values' own
 * space. */
static void spaces_add(struct maker *m)
{
    uint32_t count = 1 + random_below(&m->random, 2);
    for (uint32_t s = 1; s <= count; s++) {
        struct ul_plan_offload other = {.name = "other"};
        other.bandwidth_mb = random_below(&m->random, 3) * 500;
        other.latency_cost = random_below(&m->random, 2);
        ul_problem_add_offload(m->problem, &other);
    }
    /* Values of other spaces move to the arena. */
    ul_problem_add_resource(m->problem,
                            &(struct ul_plan_resource){.kind = UL_PLAN_ENGINE, .stream = 1});
    for (uint32_t v = 0; v < m->problem->value_count; v++) {
        if (random_below(&m->random, 5) == 0)
            m->problem->values[v].space = random_below(&m->random, count + 1);
    }
}

static bool plan_make(struct maker *m, struct ul_plan *plan, struct ul_diag *diag)
{
    struct ul_plan_options options = {.alignment_bytes = 64, .pack = UL_PACK_GREEDY};
    memset(plan, 0, sizeof *plan);
    memset(diag, 0, sizeof *diag);
    plan->positions =
        ul_arena_copy(&m->arena, m->positions, ((size_t)m->count + 1) * sizeof *m->positions);
    plan->position_count = m->count;
    if (ul_plan_complete(&m->arena, m->problem, &options, plan, diag) != UL_OK)
        return false;
    ul_plan_judge(m->problem, 0, NULL, plan);
    return ul_plan_check(&m->arena, m->problem, plan, diag) == UL_OK;
}

static void maker_init(struct maker *m, uint64_t seed)
{
    struct ul_plan plan;
    memset(m, 0, sizeof *m);
    ul_arena_init(&m->arena);
    m->random = seed * 91 + 3;
    m->problem = random_problem_more(&m->arena, seed, MAX_STEPS);
    spaces_add(m);
    uint32_t steps[MAX_STEPS];
    uint32_t alternatives[MAX_STEPS];
    for (uint32_t s = 0; s < m->problem->step_count; s++) {
        steps[s] = s;
        alternatives[s] = random_below(&m->random, m->problem->steps[s].alternative_count);
    }
    ul_timeline_sequence(&m->arena, m->problem, steps, m->problem->step_count, alternatives, &plan);
    memcpy(m->positions, plan.positions, plan.position_count * sizeof *plan.positions);
    m->count = plan.position_count;
}

/* ---- Changes ---- */

/* A transfer or a wait is elsewhere, is lost, or says something else. */
static bool positions_mutate(struct maker *m)
{
    uint32_t p = random_below(&m->random, m->count);
    for (uint32_t i = 0; i < m->count && m->positions[p].kind == UL_PLAN_RUN; i++)
        p = (p + 1) % m->count;
    struct ul_plan_position at = m->positions[p];
    if (at.kind == UL_PLAN_RUN)
        return false;
    uint32_t to;
    switch (random_below(&m->random, 5)) {
    case 0:
        take_out(m, p);
        break;
    case 1:
        to = random_below(&m->random, m->count);
        take_out(m, p);
        insert(m, to, at);
        break;
    case 2:
        m->positions[p].stream = random_below(&m->random, 3);
        break;
    case 3:
        m->positions[p].space = random_below(&m->random, m->problem->space_count);
        break;
    default:
        if (at.kind == UL_PLAN_WAIT)
            m->positions[p].awaited = random_below(&m->random, m->count);
        else
            m->positions[p].loads = !at.loads;
        break;
    }
    for (uint32_t i = 0; i < m->count; i++) { /* what ul_timeline_build takes for granted */
        if (m->positions[i].kind == UL_PLAN_WAIT && m->positions[i].awaited >= i)
            return false;
    }
    return true;
}

static void range_mutate(struct maker *m, struct ul_plan *plan)
{
    struct ul_plan_range *range = &plan->ranges[random_below(&m->random, plan->range_count)];
    switch (random_below(&m->random, 4)) {
    case 0:
    case 1:
        random_shift_range(&m->random, range);
        break;
    case 2:
        range->space = random_below(&m->random, m->problem->space_count);
        break;
    default:
        range->offset_bytes =
            plan->ranges[random_below(&m->random, plan->range_count)].offset_bytes;
        break;
    }
}

/* A use is said to end earlier, and everything is packed accordingly. */
static void range_shorten(struct maker *m, struct ul_plan *plan)
{
    struct ul_plan_options options = {.alignment_bytes = 64, .pack = UL_PACK_GREEDY};
    struct ul_diag diag = {.status = UL_OK};
    struct ul_plan_range *range = &plan->ranges[random_below(&m->random, plan->range_count)];
    if (range->end <= range->begin + 1)
        return;
    range->end -= 1 + random_below(&m->random, range->end - range->begin - 1);
    if (ul_place_ranges(&m->arena, m->problem, &options, plan, &diag) != UL_OK)
        return;
    ul_account_live(&m->arena, plan);
    plan->rows.holes_bytes = plan->reserved_bytes[0] - plan->order_lower_bound_bytes;
}

static void mutants_try(struct maker *m, const struct oracle *oracle, uint64_t seed,
                        struct seen *seen)
{
    enum { MUTANTS_EACH = 8 };
    const struct maker original = *m;
    for (uint32_t i = 0; i < MUTANTS_EACH; i++) {
        struct ul_plan plan;
        struct ul_diag diag;
        uint64_t random = m->random;
        memcpy(m->positions, original.positions, sizeof m->positions);
        m->count = original.count;
        bool ranges = random_below(&m->random, 2) == 0;
        if (!ranges && !positions_mutate(m))
            continue;
        bool accepted = plan_make(m, &plan, &diag);
        if (ranges && plan.range_count > 0) {
            if (random_below(&m->random, 2) == 0)
                range_mutate(m, &plan);
            else
                range_shorten(m, &plan);
            accepted = ul_plan_check(&m->arena, m->problem, &plan, &diag) == UL_OK;
        }
        if (accepted && !oracle_accepts(oracle, &plan))
            fail_msg("seed %llu, draw %llu: a plan that means something else passed",
                     (unsigned long long)seed, (unsigned long long)random);
        seen->refused += !accepted;
        seen->accepted += accepted;
    }
}

static void test_moved_values_come_back(void **state)
{
    (void)state;
    struct seen seen = {.moves = 0};
    for (uint64_t seed = 1; seed <= PLAN_COUNT; seed++) {
        struct maker m;
        struct ul_plan plan;
        struct ul_diag diag;
        struct oracle oracle;
        maker_init(&m, seed);
        if (seed % 2 == 0 && m.count > 0)
            run_beside(&m, &seen);
        for (uint32_t i = 0; i < MAX_MOVES && m.count > 0; i++)
            (i % 2 == 0 ? move_try : home_try)(&m, &seen);
        if (!plan_make(&m, &plan, &diag))
            fail_msg("seed %llu: %s", (unsigned long long)seed, diag.text);
        oracle_init(&oracle, &m.arena, m.problem);
        if (!oracle_accepts(&oracle, &plan))
            fail_msg("seed %llu: the oracle refuses a good plan", (unsigned long long)seed);
        if (m.count > 0)
            mutants_try(&m, &oracle, seed, &seen);
        ul_arena_done(&m.arena);
    }
    assert_true(seen.homes > PLAN_COUNT / 20);
    assert_true(seen.moves > PLAN_COUNT / 4 && seen.beside > PLAN_COUNT / 4);
    assert_true(seen.runs_beside > PLAN_COUNT / 10);
    assert_true(seen.in_third_space > PLAN_COUNT / 20);
    assert_true(seen.refused > PLAN_COUNT && seen.accepted > PLAN_COUNT / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_moved_values_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
