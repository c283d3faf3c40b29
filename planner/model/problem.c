/* SPDX-License-Identifier: Apache-2.0 */
/* Building and verifying the planner's input. */
#include "planner/model/problem.h"

#include <string.h>

struct ul_problem *ul_problem_new(struct ul_arena *arena)
{
    struct ul_problem *problem = UL_NEW(arena, struct ul_problem);
    problem->arena = arena;
    ul_problem_add_region(problem, UL_PLAN_SEQUENCE, UL_PLAN_NONE);
    ul_problem_add_space(problem, "arena", 0);
    ul_problem_add_resource(problem, &(struct ul_plan_resource){.kind = UL_PLAN_COMPUTE});
    return problem;
}

struct ul_plan_value ul_plan_value_make(const char *name, enum ul_plan_class class,
                                        uint64_t size_bytes)
{
    struct ul_plan_value value;
    memset(&value, 0, sizeof value);
    value.name = name;
    value.class = class;
    value.size_bytes = size_bytes;
    value.span_region = UL_PLAN_NONE;
    return value;
}

uint32_t ul_problem_add_value(struct ul_problem *problem, const struct ul_plan_value *value)
{
    UL_GROW(problem->arena, problem->values, problem->value_count, problem->value_capacity);
    problem->values[problem->value_count] = *value;
    return problem->value_count++;
}

bool ul_ids_have(const uint32_t *ids, uint32_t count, uint32_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] == id)
            return true;
    }
    return false;
}

static void substep_copy(struct ul_arena *arena, struct ul_plan_substep *substep)
{
    substep->reads =
        ul_arena_copy(arena, substep->reads, sizeof *substep->reads * substep->read_count);
    substep->writes =
        ul_arena_copy(arena, substep->writes, sizeof *substep->writes * substep->write_count);
    substep->in_place = ul_arena_copy(arena, substep->in_place,
                                      sizeof *substep->in_place * substep->in_place_count);
    if (substep->traffic != NULL)
        substep->traffic = ul_arena_copy(
            arena, substep->traffic,
            sizeof *substep->traffic * ((uint64_t)substep->read_count + substep->write_count + 1));
}

static const struct ul_plan_substep *
substeps_copy(struct ul_arena *arena, const struct ul_plan_substep *substeps, uint32_t count)
{
    struct ul_plan_substep *copy = ul_arena_copy(arena, substeps, sizeof *substeps * count);
    for (uint32_t i = 0; i < count; i++)
        substep_copy(arena, &copy[i]);
    return copy;
}

uint32_t ul_problem_add_step(struct ul_problem *problem, const struct ul_plan_step *step)
{
    struct ul_arena *arena = problem->arena;
    UL_GROW(arena, problem->steps, problem->step_count, problem->step_capacity);
    struct ul_plan_step *added = &problem->steps[problem->step_count];
    *added = *step;
    struct ul_plan_alternative *alternatives =
        ul_arena_copy(arena, step->alternatives,
                      sizeof *step->alternatives * (step->alternative_count + step->spare_count));
    for (uint32_t i = 0; i < step->alternative_count + step->spare_count; i++)
        alternatives[i].substeps =
            substeps_copy(arena, alternatives[i].substeps, alternatives[i].substep_count);
    added->alternatives = alternatives;
    added->predecessors = ul_arena_copy(arena, step->predecessors,
                                        sizeof *step->predecessors * step->predecessor_count);
    return problem->step_count++;
}

void ul_problem_set_stacks(struct ul_problem *problem, uint32_t step, const uint64_t *stack_bytes)
{
    UL_ASSERT(step < problem->step_count);
    struct ul_plan_step *at = &problem->steps[step];
    struct ul_plan_alternative *alternatives = NULL;
    for (uint32_t a = 0; a < at->alternative_count + at->spare_count; a++) {
        uint64_t own_bytes = stack_bytes[a < at->alternative_count ? a : 0];
        if (at->alternatives[a].stack_bytes == own_bytes)
            continue;
        if (alternatives == NULL)
            alternatives =
                ul_arena_copy(problem->arena, at->alternatives,
                              sizeof *alternatives * (at->alternative_count + at->spare_count));
        alternatives[a].stack_bytes = own_bytes;
    }
    if (alternatives != NULL)
        at->alternatives = alternatives;
}

uint32_t ul_problem_add_region(struct ul_problem *problem, enum ul_plan_region_kind kind,
                               uint32_t parent)
{
    UL_GROW(problem->arena, problem->regions, problem->region_count, problem->region_capacity);
    problem->regions[problem->region_count] =
        (struct ul_plan_region){.kind = kind, .parent = parent};
    return problem->region_count++;
}

uint32_t ul_problem_add_space(struct ul_problem *problem, const char *name, uint64_t capacity_bytes)
{
    UL_GROW(problem->arena, problem->spaces, problem->space_count, problem->space_capacity);
    problem->spaces[problem->space_count] =
        (struct ul_plan_space){.name = name, .capacity_bytes = capacity_bytes};
    return problem->space_count++;
}

void ul_problem_set_banks(struct ul_problem *problem, const struct ul_plan_bank *banks,
                          uint32_t bank_count)
{
    uint64_t capacity_bytes = 0;
    UL_ASSERT(bank_count <= UL_LIMIT_BANKS);
    problem->banks = ul_arena_copy(problem->arena, banks, bank_count * sizeof *banks);
    problem->bank_count = bank_count;
    for (uint32_t b = 0; b < bank_count; b++)
        capacity_bytes = ul_size_add_saturating(capacity_bytes, banks[b].capacity_bytes);
    problem->spaces[0].capacity_bytes = capacity_bytes;
}

uint32_t ul_problem_add_resource(struct ul_problem *problem,
                                 const struct ul_plan_resource *resource)
{
    UL_GROW(problem->arena, problem->resources, problem->resource_count,
            problem->resource_capacity);
    problem->resources[problem->resource_count] = *resource;
    return problem->resource_count++;
}

uint32_t ul_problem_add_offload(struct ul_problem *problem, const struct ul_plan_offload *offload)
{
    uint32_t space = ul_problem_add_space(problem, offload->name, offload->capacity_bytes);
    UL_ASSERT(space > 0);
    struct ul_plan_resource engine = {.kind = UL_PLAN_ENGINE,
                                      .stream = 1,
                                      .space = space,
                                      .bandwidth_mb = offload->bandwidth_mb,
                                      .latency_cost = offload->latency_cost};
    ul_problem_add_resource(problem, &engine);
    engine.stream = 2;
    if (offload->duplex)
        ul_problem_add_resource(problem, &engine);
    return space;
}

uint64_t ul_resource_cost(const struct ul_plan_resource *resource, uint64_t size_bytes)
{
    uint64_t bytes_cost = resource->bandwidth_mb == 0
                              ? 0
                              : ul_size_mul_saturating(size_bytes, 1000) / resource->bandwidth_mb;
    return ul_size_add_saturating(resource->latency_cost, bytes_cost);
}

const struct ul_plan_resource *ul_problem_engine(const struct ul_problem *problem, uint32_t space,
                                                 bool loads)
{
    const struct ul_plan_resource *found = NULL;
    for (uint32_t r = 0; r < problem->resource_count; r++) {
        const struct ul_plan_resource *row = &problem->resources[r];
        if (row->kind == UL_PLAN_ENGINE && row->space == space && (loads || found == NULL))
            found = row;
    }
    return found;
}

uint32_t ul_problem_other_space(const struct ul_problem *problem)
{
    for (uint32_t r = 0; r < problem->resource_count; r++) {
        if (problem->resources[r].kind == UL_PLAN_ENGINE)
            return problem->resources[r].space;
    }
    return UL_PLAN_NONE;
}

const struct ul_plan_resource *ul_problem_runner(const struct ul_problem *problem, uint32_t stream)
{
    const struct ul_plan_resource *second = NULL;
    for (uint32_t r = 0; r < problem->resource_count; r++) {
        const struct ul_plan_resource *row = &problem->resources[r];
        if (row->kind != UL_PLAN_ENGINE && row->stream == stream)
            return row;
        second = second == NULL && r > 0 && row->kind == UL_PLAN_COMPUTE ? row : second;
    }
    return second;
}

void ul_problem_add_predecessor(struct ul_problem *problem, uint32_t step, uint32_t predecessor)
{
    UL_ASSERT(step < problem->step_count && predecessor < step);
    struct ul_plan_step *at = &problem->steps[step];
    uint32_t *list =
        ul_arena_alloc(problem->arena, sizeof *list * ((uint64_t)at->predecessor_count + 1));
    if (at->predecessor_count > 0)
        memcpy(list, at->predecessors, sizeof *list * at->predecessor_count);
    list[at->predecessor_count++] = predecessor;
    at->predecessors = list;
}

uint32_t ul_region_entry(const struct ul_problem *problem, uint32_t region)
{
    while (region != 0 && problem->regions[region].kind != UL_PLAN_ENTRY)
        region = problem->regions[region].parent;
    return region;
}

uint32_t *ul_value_entries(struct ul_arena *arena, const struct ul_problem *problem)
{
    uint32_t *entries = UL_NEW_ARRAY(arena, uint32_t, problem->value_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        entries[v] = UL_PLAN_NONE; /* nothing has touched it yet */
    for (uint32_t s = 0; s < problem->step_count; s++) {
        uint32_t entry = ul_region_entry(problem, problem->steps[s].region);
        for (uint32_t a = 0; a < problem->steps[s].alternative_count; a++) {
            const struct ul_plan_alternative *alternative = &problem->steps[s].alternatives[a];
            for (uint32_t i = 0; i < alternative->substep_count; i++) {
                const struct ul_plan_substep *substep = &alternative->substeps[i];
                for (uint32_t j = 0; j < substep->read_count + substep->write_count; j++) {
                    uint32_t v = j < substep->read_count ? substep->reads[j]
                                                         : substep->writes[j - substep->read_count];
                    entries[v] = entries[v] == UL_PLAN_NONE || entries[v] == entry ? entry : 0;
                }
            }
        }
    }
    for (uint32_t v = 0; v < problem->value_count; v++)
        entries[v] = entries[v] == UL_PLAN_NONE || problem->values[v].persistent ? 0 : entries[v];
    return entries;
}

bool ul_value_may_move(const struct ul_plan_value *value)
{
    return !value->stays && !value->optional && value->span_region == UL_PLAN_NONE &&
           !(value->persistent && value->pinned);
}

/* ---- verify ---- */

/* ONE_WAY: some alternatives of a step write it, others do not, so that only they may read it. */
enum { NOT_WRITTEN, WRITTEN, ONE_WAY };

struct verifier {
    const struct ul_problem *problem;
    struct ul_diag *diag;
    uint8_t *written;     /* by value: whether it is written for the next step */
    uint64_t *way_last;   /* by value: the last alternative that wrote it, counted over all */
    uint32_t *way_count;  /* by value: the alternatives of the step that write it */
    uint64_t way;         /* being verified, counted over all steps from 1 */
    uint8_t *closed;      /* by region: its steps are over */
    uint32_t step;        /* being verified */
    uint64_t total_bytes; /* of everything, so that no later sum can overflow */
};

static const char *name_or(const char *name)
{
    return name != NULL ? name : "(unnamed)";
}

static bool power_of_two_or_zero(uint64_t n)
{
    return (n & (n - 1)) == 0;
}

static enum ul_status total_add(struct verifier *v, uint64_t size_bytes, uint64_t alignment_bytes,
                                const char *name)
{
    enum { HEADROOM_SHIFT = 2 };
    uint64_t total = v->total_bytes;
    if (!ul_size_add(total, size_bytes, &total) || !ul_size_add(total, alignment_bytes, &total) ||
        !ul_size_add(total, (uint64_t)1 << 20, &total) || total > UINT64_MAX >> HEADROOM_SHIFT)
        return ul_diag_set(v->diag, UL_INVALID, "%s: the sizes of all values together overflow.",
                           name_or(name));
    v->total_bytes = total;
    return UL_OK;
}

static enum ul_status value_verify(struct verifier *v, const struct ul_plan_value *value)
{
    const struct ul_problem *problem = v->problem;
    const char *name = name_or(value->name);
    if (!power_of_two_or_zero(value->alignment_bytes) || value->alignment_bytes > (uint64_t)1 << 30)
        return ul_diag_set(v->diag, UL_INVALID,
                           "value %s: alignment %llu is no power of two up to 1 GiB.", name,
                           (unsigned long long)value->alignment_bytes);
    if ((unsigned)value->class >= UL_PLAN_CLASS_COUNT || value->space >= problem->space_count)
        return ul_diag_set(v->diag, UL_INVALID, "value %s: unknown class or space.", name);
    if (value->span_region != UL_PLAN_NONE && value->span_region >= problem->region_count)
        return ul_diag_set(v->diag, UL_INVALID, "value %s: unknown region.", name);
    UL_TRY(total_add(v, value->size_bytes, value->alignment_bytes, name));
    if (value->pinned)
        UL_TRY(total_add(v, value->pinned_offset_bytes, 0, name));
    if (value->in_first_bank && (value->space != 0 || !value->persistent))
        return ul_diag_set(v->diag, UL_INVALID,
                           "value %s: what is in the first bank is persistent in space 0.", name);
    if (value->optional && (!value->persistent || value->live_from_start || value->live_to_end ||
                            value->pinned || value->span_region != UL_PLAN_NONE))
        return ul_diag_set(v->diag, UL_INVALID,
                           "value %s: what is optional is persistent and nothing else.", name);
    return UL_OK;
}

static enum ul_status ids_verify(struct verifier *v, const uint32_t *ids, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ids[i] >= v->problem->value_count)
            return ul_diag_set(v->diag, UL_INVALID, "step %s: value id %u is out of range.",
                               name_or(v->problem->steps[v->step].name), ids[i]);
    }
    return UL_OK;
}

static enum ul_status one_way_fail(struct verifier *v, uint32_t value)
{
    return ul_diag_set(v->diag, UL_INVALID,
                       "step %s: %s is written by several steps, or kept, and not by every "
                       "alternative of one.",
                       name_or(v->problem->steps[v->step].name),
                       name_or(v->problem->values[value].name));
}

static enum ul_status substep_verify(struct verifier *v, const struct ul_plan_substep *substep)
{
    const struct ul_problem *problem = v->problem;
    const char *name = name_or(problem->steps[v->step].name);
    UL_TRY(ids_verify(v, substep->reads, substep->read_count));
    UL_TRY(ids_verify(v, substep->writes, substep->write_count));
    for (uint32_t i = 0; i < substep->read_count; i++) {
        if (v->written[substep->reads[i]] != WRITTEN && v->way_last[substep->reads[i]] != v->way)
            return ul_diag_set(v->diag, UL_INVALID, "step %s: reads %s before it is written.", name,
                               name_or(problem->values[substep->reads[i]].name));
    }
    for (uint32_t i = 0; i < substep->in_place_count; i++) {
        const struct ul_plan_in_place *option = &substep->in_place[i];
        if (!ul_ids_have(substep->writes, substep->write_count, option->output) ||
            !ul_ids_have(substep->reads, substep->read_count, option->input))
            return ul_diag_set(v->diag, UL_INVALID,
                               "step %s: an in-place option names a value that it does not "
                               "write or read.",
                               name);
    }
    if (substep->scratch_space >= problem->space_count ||
        !power_of_two_or_zero(substep->scratch_alignment_bytes) ||
        substep->scratch_alignment_bytes > (uint64_t)1 << 30)
        return ul_diag_set(v->diag, UL_INVALID, "step %s: bad scratch space or alignment.", name);
    for (uint32_t i = 0; i < substep->write_count; i++) {
        uint32_t value = substep->writes[i];
        if (problem->values[value].optional)
            return ul_diag_set(v->diag, UL_INVALID, "step %s: writes %s, which is optional.", name,
                               name_or(problem->values[value].name));
        if (v->written[value] == ONE_WAY)
            return one_way_fail(v, value);
        v->way_count[value] += v->way_last[value] != v->way;
        v->way_last[value] = v->way;
    }
    return total_add(v, substep->scratch_bytes, substep->scratch_alignment_bytes, name);
}

/* Leaving region `from` for `to` closes every region on the way up; entering a closed one shows
 * that its steps are not contiguous. */
static enum ul_status region_enter(struct verifier *v, uint32_t from, uint32_t to)
{
    const struct ul_plan_region *regions = v->problem->regions;
    for (uint32_t up = from; up != UL_PLAN_NONE; up = regions[up].parent) {
        uint32_t at = to;
        while (at != UL_PLAN_NONE && at > up)
            at = regions[at].parent;
        if (at == up)
            break;
        v->closed[up] = 1;
    }
    for (uint32_t at = to; at != UL_PLAN_NONE; at = regions[at].parent) {
        if (v->closed[at])
            return ul_diag_set(v->diag, UL_INVALID,
                               "step %s: the steps of its region are not contiguous.",
                               name_or(v->problem->steps[v->step].name));
    }
    return UL_OK;
}

static enum ul_status writes_finalize(struct verifier *v, const struct ul_plan_step *step)
{
    for (uint32_t a = 0; a < step->alternative_count; a++) {
        for (uint32_t i = 0; i < step->alternatives[a].substep_count; i++) {
            const struct ul_plan_substep *substep = &step->alternatives[a].substeps[i];
            for (uint32_t j = 0; j < substep->write_count; j++) {
                uint32_t value = substep->writes[j];
                bool all = v->way_count[value] == step->alternative_count;
                if (v->way_count[value] == 0)
                    continue;
                if (!all && v->written[value] == WRITTEN)
                    return one_way_fail(v, value);
                v->written[value] = all ? WRITTEN : ONE_WAY;
                v->way_count[value] = 0;
            }
        }
    }
    return UL_OK;
}

/* An alternative with other bits must not be chosen for its cost. */
static enum ul_status bits_verify(const struct verifier *v, const struct ul_plan_step *step)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < step->alternative_count; i++)
        if (!step->alternatives[i].other_bits && step->alternatives[i].cost < least)
            least = step->alternatives[i].cost;
    for (uint32_t i = 0; i < step->alternative_count && least != UINT64_MAX; i++)
        if (step->alternatives[i].cost < least)
            return ul_diag_set(v->diag, UL_INVALID,
                               "step %s: an alternative of other bits costs less than those "
                               "without.",
                               name_or(step->name));
    return UL_OK;
}

/* A spare alternative runs where the first one does. */
static enum ul_status resources_verify(const struct verifier *v, const struct ul_plan_step *step)
{
    for (uint32_t i = 0; i < step->alternative_count + step->spare_count; i++) {
        uint32_t r = step->alternatives[i].resource;
        if (r >= v->problem->resource_count || v->problem->resources[r].kind == UL_PLAN_ENGINE ||
            (i >= step->alternative_count && r != step->alternatives[0].resource))
            return ul_diag_set(v->diag, UL_INVALID, "step %s: resource %u runs no such step.",
                               name_or(step->name), r);
    }
    return UL_OK;
}

static enum ul_status step_verify(struct verifier *v)
{
    const struct ul_problem *problem = v->problem;
    const struct ul_plan_step *step = &problem->steps[v->step];
    const char *name = name_or(step->name);
    if (step->region >= problem->region_count || step->alternative_count == 0)
        return ul_diag_set(v->diag, UL_INVALID, "step %s: unknown region or no alternative.", name);
    uint32_t last = v->step == 0 ? 0 : problem->steps[v->step - 1].region;
    UL_TRY(region_enter(v, last, step->region));
    for (uint32_t i = 0; i < step->predecessor_count; i++) {
        if (step->predecessors[i] >= v->step)
            return ul_diag_set(v->diag, UL_INVALID,
                               "step %s: a predecessor comes later in file order.", name);
    }
    for (uint32_t i = 0; i < step->alternative_count; i++, v->way++) {
        const struct ul_plan_alternative *alternative = &step->alternatives[i];
        if (alternative->substep_count == 0 || alternative->cost > UINT64_MAX >> 24)
            return ul_diag_set(v->diag, UL_INVALID,
                               "step %s: an alternative without parts, or of absurd cost.", name);
        for (uint32_t j = 0; j < alternative->substep_count; j++)
            UL_TRY(substep_verify(v, &alternative->substeps[j]));
    }
    UL_TRY(resources_verify(v, step));
    UL_TRY(bits_verify(v, step));
    return writes_finalize(v, step);
}

static enum ul_status resource_verify(struct verifier *v, uint32_t id)
{
    const struct ul_problem *problem = v->problem;
    const struct ul_plan_resource *row = &problem->resources[id];
    const char *name = name_or(row->name);
    if ((unsigned)row->kind > UL_PLAN_LINK || row->stream >= UL_LIMIT_STREAMS ||
        (row->stream == 0) != (id == 0) || row->space >= problem->space_count)
        return ul_diag_set(v->diag, UL_INVALID,
                           "resource %u, %s: unknown kind, stream or space; streams are from 1 to "
                           "%d.",
                           id, name, UL_LIMIT_STREAMS - 1);
    const struct ul_plan_space *space = &problem->spaces[row->space];
    if (row->kind == UL_PLAN_ENGINE && (row->space == 0 || space->is_overhead))
        return ul_diag_set(v->diag, UL_INVALID,
                           "space %s: takes transfers, and is the arena, or beside.",
                           name_or(space->name));
    if (row->kind != UL_PLAN_ENGINE && ul_problem_runner(problem, row->stream) != row)
        return ul_diag_set(v->diag, UL_INVALID,
                           "resource %u, %s: another one runs steps on stream %u.", id, name,
                           row->stream);
    if (row->latency_cost > UINT64_MAX >> 24)
        return ul_diag_set(v->diag, UL_INVALID, "resource %u, %s: an absurd latency.", id, name);
    return UL_OK;
}

static enum ul_status banks_verify(const struct verifier *v)
{
    const struct ul_problem *problem = v->problem;
    if (problem->bank_count > UL_LIMIT_BANKS)
        return ul_diag_set(v->diag, UL_INVALID, "%u banks: at most %d.", problem->bank_count,
                           UL_LIMIT_BANKS);
    for (uint32_t b = 0; b < problem->bank_count; b++) {
        const struct ul_plan_bank *bank = &problem->banks[b];
        if (bank->capacity_bytes == 0 || bank->capacity_bytes > UINT64_MAX >> 8 ||
            (b == 0 && bank->weights))
            return ul_diag_set(v->diag, UL_INVALID,
                               "bank %s: no capacity, or an absurd one; or the first bank, and for "
                               "weights alone.",
                               name_or(bank->name));
    }
    return UL_OK;
}

enum ul_status ul_problem_verify(const struct ul_problem *problem, struct ul_diag *diag)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    struct verifier v = {.problem = problem, .diag = diag, .way = 1};
    v.way_last = UL_NEW_ARRAY(&scratch, uint64_t, problem->value_count);
    v.way_count = UL_NEW_ARRAY(&scratch, uint32_t, problem->value_count);
    v.written = ul_arena_alloc(&scratch, problem->value_count);
    v.closed = ul_arena_alloc(&scratch, problem->region_count);
    enum ul_status status = banks_verify(&v);
    for (uint32_t i = 0; i < problem->resource_count && status == UL_OK; i++)
        status = resource_verify(&v, i);
    for (uint32_t i = 1; i < problem->region_count && status == UL_OK; i++) {
        if (problem->regions[i].parent >= i)
            status = ul_diag_set(diag, UL_INVALID, "region %u: its parent comes after it.", i);
        else if (problem->regions[i].kind == UL_PLAN_ENTRY && problem->regions[i].parent != 0)
            status = ul_diag_set(diag, UL_INVALID, "region %u: an entry inside of another.", i);
    }
    for (uint32_t i = 0; i < problem->value_count && status == UL_OK; i++) {
        status = value_verify(&v, &problem->values[i]);
        if (problem->values[i].live_from_start || problem->values[i].persistent)
            v.written[i] = WRITTEN;
    }
    for (v.step = 0; v.step < problem->step_count && status == UL_OK; v.step++)
        status = step_verify(&v);
    for (uint32_t i = 0; i < problem->value_count && status == UL_OK; i++) {
        const struct ul_plan_value *value = &problem->values[i];
        if (value->live_to_end && v.written[i] != WRITTEN)
            status = ul_diag_set(diag, UL_INVALID, "value %s: is an output that nothing writes.",
                                 name_or(value->name));
    }
    ul_arena_done(&scratch);
    return status;
}

bool ul_alternative_is_cheaper(const struct ul_plan_alternative *first,
                               const struct ul_plan_alternative *second)
{
    return first->cost != second->cost ? first->cost < second->cost
                                       : second->other_bits && !first->other_bits;
}

uint32_t ul_step_cheapest(const struct ul_plan_step *step)
{
    UL_ASSERT(step->alternative_count > 0);
    uint32_t best = 0;
    for (uint32_t i = 1; i < step->alternative_count; i++) {
        if (ul_alternative_is_cheaper(&step->alternatives[i], &step->alternatives[best]))
            best = i;
    }
    return best;
}

bool ul_problem_is_asynchronous(const struct ul_problem *problem)
{
    for (uint32_t s = 0; s < problem->step_count && problem->resource_count > 1; s++) {
        for (uint32_t a = 0; a < problem->steps[s].alternative_count; a++) {
            if (problem->steps[s].alternatives[a].resource != 0)
                return true;
        }
    }
    return false;
}

/* A step with a choice between resources counts for none. */
uint64_t ul_problem_cost_bound(const struct ul_problem *problem)
{
    uint64_t bound = 0;
    for (uint32_t r = 0; r < problem->resource_count; r++) {
        uint64_t sum = 0;
        for (uint32_t s = 0; s < problem->step_count; s++) {
            const struct ul_plan_step *step = &problem->steps[s];
            bool is_only = true;
            for (uint32_t a = 0; a < step->alternative_count; a++)
                is_only = is_only && step->alternatives[a].resource == r;
            sum += is_only ? step->alternatives[ul_step_cheapest(step)].cost : 0;
        }
        bound = sum > bound ? sum : bound;
    }
    return bound;
}

uint64_t ul_problem_min_cost(const struct ul_problem *problem)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        sum += step->alternatives[ul_step_cheapest(step)].cost;
    }
    return sum;
}

uint64_t ul_substep_moves(const struct ul_problem *problem, const struct ul_plan_substep *substep,
                          uint32_t index)
{
    UL_ASSERT(index <= substep->read_count + substep->write_count);
    if (substep->traffic != NULL)
        return substep->traffic[index];
    if (index == substep->read_count + substep->write_count)
        return ul_size_mul_saturating(substep->scratch_bytes, 2);
    uint32_t value = index < substep->read_count ? substep->reads[index]
                                                 : substep->writes[index - substep->read_count];
    return problem->values[value].size_bytes;
}

uint64_t ul_bank_cost(const struct ul_plan_bank *bank, uint64_t moved_bytes)
{
    uint64_t scaled = ul_size_mul_saturating(moved_bytes, 1000);
    if (bank->bandwidth_mb == 0)
        return 0;
    return scaled / bank->bandwidth_mb + (scaled % bank->bandwidth_mb != 0);
}

/* Counts only values in space 0. */
static uint64_t moved_bytes(const struct ul_problem *problem, const struct ul_plan_substep *substep)
{
    uint32_t touched = substep->read_count + substep->write_count;
    uint64_t bytes = substep->scratch_space == 0 ? ul_substep_moves(problem, substep, touched) : 0;
    for (uint32_t i = 0; i < touched; i++) {
        uint32_t value =
            i < substep->read_count ? substep->reads[i] : substep->writes[i - substep->read_count];
        if (problem->values[value].space == 0)
            bytes = ul_size_add_saturating(bytes, ul_substep_moves(problem, substep, i));
    }
    return bytes;
}

uint64_t ul_problem_min_moving_cost(const struct ul_problem *problem)
{
    uint64_t bytes = 0, least = UINT64_MAX;
    for (uint32_t s = 0; s < problem->step_count; s++) {
        const struct ul_plan_step *step = &problem->steps[s];
        const struct ul_plan_alternative *way = &step->alternatives[ul_step_cheapest(step)];
        for (uint32_t i = 0; i < way->substep_count; i++)
            bytes = ul_size_add_saturating(bytes, moved_bytes(problem, &way->substeps[i]));
    }
    for (uint32_t b = 0; b < problem->bank_count; b++) {
        uint64_t cost = ul_bank_cost(&problem->banks[b], bytes);
        least = cost < least ? cost : least;
    }
    return problem->bank_count == 0 ? 0 : least;
}
