/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles a model with all sizes of a range, to learn in what these programs differ. */
#include "compile/compile_internal.h"
#include "compile/sizes/sizes.h"

#include <inttypes.h>
#include <string.h>

static const char *point_text(const struct ul_size_instances *instances, const int64_t *point)
{
    struct ul_text text;
    ul_text_init(&text, instances->arena);
    for (uint32_t s = 0; s < instances->size_count; s++)
        ul_text_printf(&text, "%s%s = %" PRId64, s == 0 ? "" : ", ",
                       ul_shown(instances->arena, instances->sizes[s].name), point[s]);
    return text.data;
}

/* ---- one instance ---- */

static enum ul_status refuse(struct ul_size_instances *instances, const int64_t *point,
                             const char *node)
{
    struct ul_diag *diag = &instances->compile->diag;
    int64_t *largest = UL_NEW_ARRAY(instances->arena, int64_t, instances->size_count);
    instances->differs = true;
    for (uint32_t s = 0; s < instances->size_count; s++)
        largest[s] = instances->sizes[s].high;
    return ul_diag_set(
        diag, UL_UNSUPPORTED,
        "with %s the program has other steps than with %s%s%s: compile these sizes apart",
        point_text(instances, point), point_text(instances, largest),
        node == NULL ? "" : ", or other constants, at ",
        node == NULL ? "" : ul_quote(instances->arena, node));
}

/* ---- what all instances must have ---- */

static uint32_t number_end(const struct ul_size_mark *marks, uint32_t count, uint32_t mark,
                           uint32_t number_count)
{
    return mark + 1 < count ? marks[mark + 1].number_begin : number_count;
}

static uint32_t own_numbers(const struct ul_size_instances *instances, uint32_t mark)
{
    return number_end(instances->marks, instances->mark_count, mark, instances->number_count) -
           instances->marks[mark].number_begin;
}

/* Whether an instance has what the first one has at a mark; its numbers there then. */
static bool take_mark(const struct ul_size_instances *instances, const struct ul_size_walk *walk,
                      uint32_t mark, int64_t *numbers)
{
    const struct ul_size_mark *own = &instances->marks[mark], *other = &walk->marks[mark];
    uint32_t count = own_numbers(instances, mark);
    if (mark >= walk->mark_count || own->hash != other->hash ||
        number_end(walk->marks, walk->mark_count, mark, walk->number_count) - other->number_begin !=
            count)
        return false;
    memcpy(numbers + own->number_begin, walk->numbers + other->number_begin,
           count * sizeof *numbers);
    return true;
}

/* Lists the slots of the first instance, whose walk is done. */
static void list_slots(struct ul_size_instances *instances, const struct ul_size_walk *walk)
{
    const struct ul_program *base = instances->compile->program;
    uint32_t capacity = 0;
    instances->marks =
        ul_arena_copy(instances->arena, walk->marks, walk->mark_count * sizeof *walk->marks);
    instances->mark_count = walk->mark_count;
    instances->number_count = walk->number_count;
    instances->alternative_counts = UL_NEW_ARRAY(instances->arena, uint32_t, base->step_count);
    for (uint32_t s = 0; s < base->step_count; s++) {
        instances->alternative_counts[s] = base->steps[s].alternative_count;
        for (uint32_t a = 0; ul_size_step(base, s, a) != NULL; a++) {
            UL_GROW(instances->arena, instances->slots, instances->slot_count, capacity);
            instances->slots[instances->slot_count++] =
                (struct ul_size_slot){.step = s, .alternative = a};
        }
    }
    for (uint32_t i = 0; i < instances->slot_count; i++)
        instances->slots[i].mark = walk->mark_count - instances->slot_count + i;
}

/* Takes an instance's numbers; drops alternatives that it does not have. */
static enum ul_status take_numbers(struct ul_size_instances *instances,
                                   const struct ul_size_walk *walk, const int64_t *point,
                                   int64_t *numbers)
{
    uint32_t frame_count = instances->mark_count - instances->slot_count;
    for (uint32_t m = 0; m < frame_count; m++)
        if (!take_mark(instances, walk, m, numbers))
            return refuse(instances, point, instances->marks[m].node);
    for (uint32_t i = 0; i < instances->slot_count; i++) {
        const struct ul_size_slot *slot = &instances->slots[i];
        uint32_t *count = &instances->alternative_counts[slot->step];
        if (take_mark(instances, walk, slot->mark, numbers))
            continue;
        if (slot->alternative == 0)
            return refuse(instances, point, instances->marks[slot->mark].node);
        if (*count >= slot->alternative)
            *count = slot->alternative - 1;
    }
    return UL_OK;
}

static struct ul_kernel_numbers *list_kernels(struct ul_size_instances *instances,
                                              const struct ul_program *program)
{
    struct ul_kernel_numbers *kernels =
        UL_NEW_ARRAY(instances->arena, struct ul_kernel_numbers, instances->slot_count);
    struct ul_kernel_numbers *known =
        UL_NEW_ARRAY(instances->arena, struct ul_kernel_numbers, program->kernel_count);
    bool *is_known = UL_NEW_ARRAY(instances->arena, bool, program->kernel_count);
    for (uint32_t i = 0; i < instances->slot_count; i++) {
        const struct ul_program_step *step =
            ul_size_step(program, instances->slots[i].step, instances->slots[i].alternative);
        if (step == NULL || step->kind != UL_STEP_KERNEL)
            continue;
        uint32_t kernel = step->kernel;
        if (!is_known[kernel])
            known[kernel] = ul_kernel_form_of(&instances->forms, program->kernels[kernel].text);
        is_known[kernel] = true;
        kernels[i] = known[kernel];
    }
    return kernels;
}

/* ---- a problem whose plans hold for every size ---- */

static bool takes_over(const struct ul_plan_substep *substep, const struct ul_plan_in_place *pair)
{
    for (uint32_t i = 0; i < substep->in_place_count; i++)
        if (substep->in_place[i].output == pair->output &&
            substep->in_place[i].input == pair->input)
            return true;
    return false;
}

/* Gives a substep the scratch of another too, and takes away what only it may take over. */
static void widen(struct ul_arena *arena, struct ul_plan_substep *substep,
                  const struct ul_plan_substep *other)
{
    struct ul_plan_in_place *kept =
        UL_NEW_ARRAY(arena, struct ul_plan_in_place, substep->in_place_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < substep->in_place_count; i++)
        if (takes_over(other, &substep->in_place[i]))
            kept[count++] = substep->in_place[i];
    substep->in_place = kept;
    substep->in_place_count = count;
    if (other->scratch_bytes > substep->scratch_bytes)
        substep->scratch_bytes = other->scratch_bytes;
    if (other->scratch_alignment_bytes > substep->scratch_alignment_bytes)
        substep->scratch_alignment_bytes = other->scratch_alignment_bytes;
}

/* The compile's problem has its steps' alternatives and their substeps as constants, which are in
 * its arena. */
static enum ul_status widen_problem(struct ul_size_instances *instances,
                                    const struct ul_program *program, const int64_t *point)
{
    const struct ul_problem *base = instances->compile->program->problem, *other = program->problem;
    for (uint32_t v = 0; v < base->value_count; v++)
        if (other->values[v].size_bytes > base->values[v].size_bytes)
            return ul_diag_set(&instances->compile->diag, UL_UNSUPPORTED,
                               "with %s, %s takes more bytes than with the largest sizes: compile "
                               "these sizes apart",
                               point_text(instances, point),
                               ul_quote(instances->arena, base->values[v].name));
    for (uint32_t i = 0; i < instances->slot_count; i++) {
        const struct ul_size_slot *slot = &instances->slots[i];
        if (slot->alternative > instances->alternative_counts[slot->step])
            continue;
        const struct ul_plan_alternative *own =
            &base->steps[slot->step].alternatives[slot->alternative];
        const struct ul_plan_alternative *from =
            &other->steps[slot->step].alternatives[slot->alternative];
        for (uint32_t k = 0; k < own->substep_count && k < from->substep_count; k++)
            widen(instances->arena, (struct ul_plan_substep *)(uintptr_t)&own->substeps[k],
                  &from->substeps[k]);
    }
    return UL_OK;
}

/* Leaves steps the alternatives that all instances have. */
static void drop_alternatives(struct ul_size_instances *instances)
{
    struct ul_program *program = instances->compile->program;
    for (uint32_t s = 0; s < program->step_count; s++) {
        struct ul_program_step *step = &program->steps[s];
        struct ul_plan_step *planned = &program->problem->steps[s];
        uint32_t dropped = step->alternative_count - instances->alternative_counts[s];
        step->alternative_count -= dropped;
        step->spare_count -= dropped < step->spare_count ? dropped : step->spare_count;
        uint32_t spares = dropped < planned->spare_count ? dropped : planned->spare_count;
        planned->spare_count -= spares;
        planned->alternative_count -= dropped - spares;
    }
}

static uint64_t *list_bytes(struct ul_size_instances *instances, const struct ul_program *program)
{
    const struct ul_problem *problem = program->problem;
    uint64_t *bytes = UL_NEW_ARRAY(instances->arena, uint64_t,
                                   (uint64_t)problem->value_count + instances->slot_count);
    for (uint32_t v = 0; v < problem->value_count; v++)
        bytes[v] = problem->values[v].size_bytes;
    for (uint32_t i = 0; i < instances->slot_count; i++) {
        const struct ul_size_slot *slot = &instances->slots[i];
        const struct ul_plan_step *step = &problem->steps[slot->step];
        for (uint32_t k = 0; slot->alternative < step->alternative_count + step->spare_count &&
                             k < step->alternatives[slot->alternative].substep_count;
             k++) {
            uint64_t scratch = step->alternatives[slot->alternative].substeps[k].scratch_bytes;
            uint64_t *most = &bytes[problem->value_count + i];
            *most = scratch > *most ? scratch : *most;
        }
    }
    return bytes;
}

static enum ul_status take(struct ul_size_instances *instances, const struct ul_compile *other,
                           struct ul_size_instance *instance)
{
    struct ul_arena scratch;
    struct ul_program *program = other->program;
    struct ul_size_walk walk = {.arena = &scratch,
                                .base = instances->compile->program,
                                .base_compile = instances->compile,
                                .compile = other};
    ul_arena_init(&scratch);
    ul_size_walk(&walk, program, NULL);
    if (instances->marks == NULL)
        list_slots(instances, &walk);
    int64_t *numbers = UL_NEW_ARRAY(instances->arena, int64_t, instances->number_count);
    enum ul_status status = take_numbers(instances, &walk, instance->point, numbers);
    if (status == UL_OK)
        status = widen_problem(instances, program, instance->point);
    if (status == UL_OK) {
        instance->numbers = numbers;
        instance->bytes = list_bytes(instances, program);
        instance->kernels = list_kernels(instances, program);
    }
    ul_arena_done(&scratch);
    return status;
}

void ul_size_instance_init(struct ul_compile *asked, const int64_t *point, struct ul_compile *other)
{
    ul_compile_init(other);
    ul_options_copy(&other->options.base, &asked->options.base, sizeof other->options);
    other->options.plan = NULL;
    other->is_library = asked->is_library;
    other->is_trial = true;
    other->earlier = asked;
    other->options.dims.count = asked->said_dim_count;
    other->pieces = asked->pieces;
    other->point = point;
    if (asked->pieces == NULL || asked->pieces->count == 1)
        ul_size_set(other, point); /* else each root has its own */
}

enum ul_status ul_size_instance_compile(struct ul_size_instances *instances,
                                        struct ul_size_instance *instance)
{
    struct ul_compile other, *compile = instances->compile;
    instances->differs = false;
    ul_size_instance_init(instances->asked, instance->point, &other);
    other.earlier = compile;
    other.largest = &compile->graph;
    other.lender = &compile->model;
    enum ul_status status = ul_compile_build_fixed(&other, compile->model.path);
    if (status != UL_OK)
        status = ul_diag_set(&compile->diag, other.diag.status, "%s (with %s)", other.diag.text,
                             point_text(instances, instance->point));
    else
        status = take(instances, &other, instance);
    ul_compile_done(&other);
    return status;
}

/* ---- all points ---- */

/* Where one size varies, adds to the message which of its values do serve. */
static enum ul_status suggest(struct ul_size_instances *instances, int64_t value,
                              enum ul_status status)
{
    const struct ul_program_size *size = &instances->sizes[0];
    struct ul_diag *diag = &instances->compile->diag;
    size_t length = strlen(diag->text);
    if (status == UL_UNSUPPORTED && instances->size_count == 1 && value + size->step < size->high)
        snprintf(diag->text + length, sizeof diag->text - length,
                 "; %s from %" PRId64 " to %" PRId64 " can be one program",
                 ul_shown(instances->arena, size->name), value + size->step, size->high);
    return status;
}

void ul_size_list_points(struct ul_size_instances *instances)
{
    uint64_t count = 1;
    for (uint32_t s = 0; s < instances->size_count; s++)
        count = ul_size_mul_saturating(count, ul_program_size_count(&instances->sizes[s]));
    UL_ASSERT(count <= UL_LIMIT_SIZE_POINTS);
    instances->count = (uint32_t)count;
    instances->items = UL_NEW_ARRAY(instances->arena, struct ul_size_instance, count);
    for (uint32_t i = 0; i < instances->count; i++) {
        int64_t *point = UL_NEW_ARRAY(instances->arena, int64_t, instances->size_count);
        uint64_t rest = i;
        for (uint32_t s = instances->size_count; s-- > 0;) {
            const struct ul_program_size *size = &instances->sizes[s];
            point[s] = ul_program_size_value(size, rest % ul_program_size_count(size));
            rest /= ul_program_size_count(size);
        }
        instances->items[i].point = point;
    }
}

enum ul_status ul_size_instances_begin(struct ul_size_instances *instances)
{
    struct ul_size_instance unused = {.point = NULL};
    ul_kernel_forms_init(&instances->forms, instances->arena);
    return take(instances, instances->compile,
                instances->count > 0 ? &instances->items[instances->count - 1] : &unused);
}

enum ul_status ul_size_instances_find(struct ul_size_instances *instances)
{
    UL_TRY(ul_size_instances_begin(instances));
    for (uint32_t i = instances->count - 1; i-- > 0;) {
        char doing[96];
        snprintf(doing, sizeof doing, "compiling with all sizes of the range: %u of %u",
                 instances->count - i, instances->count);
        ul_compile_progress(instances->compile, doing);
        enum ul_status status = ul_size_instance_compile(instances, &instances->items[i]);
        if (status != UL_OK)
            return suggest(instances, instances->items[i].point[0], status);
    }
    drop_alternatives(instances);
    return UL_OK;
}
