/* SPDX-License-Identifier: Apache-2.0 */
/* One program from those of many sizes: formulas for their numbers, and kernels with a form for
 * each class of sizes. */
#include "compile/compile_internal.h"
#include "compile/sizes/fit.h"
#include "compile/sizes/sizes.h"

#include <inttypes.h>
#include <string.h>

/* ---- formulas at some of the instances ---- */

/* Fits for sets of instances: kernels whose forms belong to the same classes share one. */
struct set {
    uint32_t root;
    uint32_t *members; /* instances with sizes of the root's piece, in order */
    uint32_t count;
    struct ul_fit fit;
};

struct unifier {
    struct ul_size_instances *instances;
    struct ul_arena *arena;
    struct ul_program_sized *sized;
    struct ul_program *program;
    struct set *sets;
    uint32_t set_count, set_capacity; /* the first ones: by root, all of its instances */
    bool *runs_slot;                  /* by slot: the plan runs it */
};

static struct set *find_set(struct unifier *unifier, uint32_t root, const uint32_t *members,
                            uint32_t count)
{
    const struct ul_size_instances *instances = unifier->instances;
    uint32_t sizes = instances->size_count;
    for (uint32_t i = 0; i < unifier->set_count; i++)
        if (unifier->sets[i].root == root && unifier->sets[i].count == count &&
            memcmp(unifier->sets[i].members, members, count * sizeof *members) == 0)
            return &unifier->sets[i];
    UL_GROW(unifier->arena, unifier->sets, unifier->set_count, unifier->set_capacity);
    struct set *set = &unifier->sets[unifier->set_count++];
    int64_t *points = UL_NEW_ARRAY(unifier->arena, int64_t, (uint64_t)count * sizes);
    for (uint32_t i = 0; i < count; i++)
        memcpy(points + (size_t)i * sizes, instances->items[members[i]].point,
               sizes * sizeof *points);
    *set = (struct set){.root = root,
                        .members = ul_arena_copy(unifier->arena, members, count * sizeof *members),
                        .count = count};
    if (unifier->set_count <= root + 1)
        ul_fit_init(&set->fit, unifier->arena, sizes, points, count);
    else
        ul_fit_init_like(&set->fit, &unifier->sets[root].fit, points, count);
    return set;
}

/* Makes the set of each root. */
static void list_sets(struct unifier *unifier)
{
    const struct ul_size_instances *instances = unifier->instances;
    uint32_t *members = UL_NEW_ARRAY(unifier->arena, uint32_t, instances->count);
    for (uint32_t r = 0; r < unifier->program->graph->root_count; r++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < instances->count; i++)
            if (ul_size_piece_has(unifier->sized->pieces[r], instances->size_count,
                                  instances->items[i].point))
                members[count++] = i;
        UL_ASSERT(count > 0);
        (void)find_set(unifier, r, members, count);
    }
}

/* The values of one number at a set's instances; and the largest of them. */
static int64_t gather(const struct set *set, int64_t *values,
                      int64_t (*number)(const struct unifier *, uint32_t instance, const void *),
                      const struct unifier *unifier, const void *context)
{
    int64_t largest = INT64_MIN;
    for (uint32_t i = 0; i < set->count; i++) {
        values[i] = number(unifier, set->members[i], context);
        largest = values[i] > largest ? values[i] : largest;
    }
    return largest;
}

static enum ul_status refuse(struct unifier *unifier, const char *node, const int64_t *values,
                             uint32_t count)
{
    struct ul_text text;
    enum { SHOWN = 8 };
    ul_text_init(&text, unifier->arena);
    for (uint32_t i = 0; i < SHOWN && i < count; i++)
        ul_text_printf(&text, "%s%" PRId64, i == 0 ? "" : ", ", values[i]);
    return ul_diag_set(&unifier->instances->compile->diag, UL_UNSUPPORTED,
                       "no formula was found for a number of %s at all sizes (%s, ...): give "
                       "smaller ranges, or compile sizes apart",
                       node == NULL ? "the program" : ul_quote(unifier->arena, node), text.data);
}

/* ---- numbers of the walk ---- */

static int64_t walk_number(const struct unifier *unifier, uint32_t instance, const void *context)
{
    return unifier->instances->items[instance].numbers[*(const uint32_t *)context];
}

/* Whether the plan has what a mark is of: not another alternative of a step. */
static bool is_planned(const struct unifier *unifier, uint32_t mark)
{
    uint32_t frame_count = unifier->instances->mark_count - unifier->instances->slot_count;
    return mark < frame_count || unifier->runs_slot[mark - frame_count];
}

/* Whether a number that several roots have is the same at all instances. */
static bool is_fixed(const struct ul_size_instances *instances, uint32_t number)
{
    int64_t known = UL_SIZE_ANY;
    for (uint32_t i = 0; i < instances->count; i++) {
        int64_t value = instances->items[i].numbers[number];
        if (value != UL_SIZE_ANY && known != UL_SIZE_ANY && value != known)
            return false;
        known = value != UL_SIZE_ANY ? value : known;
    }
    return true;
}

/* How many instances of a set have a number that counts. */
static uint32_t count_fixed(const struct unifier *unifier, const struct set *set, uint32_t number)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < set->count; i++)
        count += unifier->instances->items[set->members[i]].numbers[number] != UL_SIZE_ANY;
    return count;
}

/* The set of these; all of them, where it counts nowhere. */
static struct set *leave_out_any(struct unifier *unifier, struct set *set, uint32_t number)
{
    uint32_t wanted = count_fixed(unifier, set, number), count = 0;
    if (wanted == set->count || wanted == 0)
        return set;
    uint32_t *members = UL_NEW_ARRAY(unifier->arena, uint32_t, wanted);
    for (uint32_t i = 0; i < set->count; i++)
        if (unifier->instances->items[set->members[i]].numbers[number] != UL_SIZE_ANY)
            members[count++] = set->members[i];
    return find_set(unifier, set->root, members, count);
}

/* The instances of a mark's root; of the last one, where several have it. */
static struct set *set_of(struct unifier *unifier, uint32_t mark)
{
    uint32_t root = unifier->instances->marks[mark].root;
    uint32_t last = unifier->program->graph->root_count - 1;
    return &unifier->sets[root == UL_NONE ? last : root];
}

/* Finds the formula for a number of a mark, of which `values` gets `count`; NULL: there is none. */
static const struct ul_formula *fit_number(struct unifier *unifier, uint32_t mark, uint32_t number,
                                           int64_t *values, uint32_t *count, bool simple)
{
    const struct ul_size_instances *instances = unifier->instances;
    bool is_shared = instances->marks[mark].root == UL_NONE;
    struct set *set = set_of(unifier, mark);
    uint32_t fixed = count_fixed(unifier, set, number);
    if (simple && fixed > 0 && fixed < set->count)
        return NULL; /* until all dimensions are known, which a new set takes over */
    set = leave_out_any(unifier, set, number);
    (void)gather(set, values, walk_number, unifier, &number);
    *count = set->count;
    if (!is_planned(unifier, mark) || (is_shared && is_fixed(instances, number)))
        return ul_formula_number(unifier->arena, values[set->count - 1]);
    return is_shared ? NULL : ul_fit_find(&set->fit, values, simple);
}

static enum ul_status fit_walk(struct unifier *unifier, const struct ul_formula ***formulas)
{
    const struct ul_size_instances *instances = unifier->instances;
    int64_t *values = UL_NEW_ARRAY(unifier->arena, int64_t, instances->count);
    *formulas = UL_NEW_ARRAY(unifier->arena, const struct ul_formula *, instances->number_count);
    uint32_t count = 0;
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t m = 0, n = 0; n < instances->number_count; n++) {
            while (m + 1 < instances->mark_count && instances->marks[m + 1].number_begin <= n)
                m++;
            if ((*formulas)[n] != NULL)
                continue;
            (*formulas)[n] = fit_number(unifier, m, n, values, &count, round == 0);
            if ((*formulas)[n] == NULL && round > 0)
                return refuse(unifier, instances->marks[m].node, values, count);
        }
    return UL_OK;
}

/* ---- kernels ---- */

struct kernel_number {
    uint32_t slot, number;
};

static int64_t kernel_number(const struct unifier *unifier, uint32_t instance, const void *context)
{
    const struct kernel_number *at = context;
    return unifier->instances->items[instance].kernels[at->slot].numbers[at->number];
}

static const char *slot_node(const struct unifier *unifier, uint32_t slot)
{
    return unifier->instances->marks[unifier->instances->slots[slot].mark].node;
}

static uint32_t slot_root(const struct unifier *unifier, uint32_t slot)
{
    const struct ul_size_instances *instances = unifier->instances;
    uint32_t root = instances->marks[instances->slots[slot].mark].root;
    UL_ASSERT(root < unifier->program->graph->root_count);
    return root;
}

/* The forms of a slot's kernel: instances with one key have the same text but for numbers that
 * formulas give. */
struct forms {
    uint32_t slot;
    uint32_t root;
    uint32_t *keys; /* by instance */
    uint32_t key_count;
    struct ul_filled_form *filled; /* by key */
};

enum { MAX_FORMS = 255, MAX_VALUES = 16 };

/* The instances with a key. */
static struct set *members_of(struct unifier *unifier, const struct forms *forms, uint32_t key)
{
    const struct set *all = &unifier->sets[forms->root];
    uint32_t *members = UL_NEW_ARRAY(unifier->arena, uint32_t, all->count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < all->count; i++)
        if (forms->keys[all->members[i]] == key)
            members[count++] = all->members[i];
    return find_set(unifier, forms->root, members, count);
}

/* The place of a value among distinct ones. */
static uint32_t find_value(const int64_t *known, uint32_t count, int64_t value)
{
    uint32_t at = 0;
    while (at < count && known[at] != value)
        at++;
    return at;
}

/* Parts the instances with a key by one number, whose values by instance these are, in the order of
 * the set. False: there are too many, and nothing changes. */
static bool part(struct forms *forms, uint32_t key, const struct set *set, const int64_t *values)
{
    int64_t known[MAX_VALUES];
    uint32_t count = 0, first = forms->key_count;
    for (uint32_t i = 0; i < set->count; i++) {
        if (find_value(known, count, values[i]) < count)
            continue;
        if (count == MAX_VALUES || first + count > MAX_FORMS)
            return false;
        known[count++] = values[i];
    }
    for (uint32_t i = 0; i < set->count; i++) {
        uint32_t at = find_value(known, count, values[i]);
        forms->keys[set->members[i]] = at == 0 ? key : first + at - 1;
    }
    forms->key_count += count - 1;
    return true;
}

/* A table with the values of a set, by point of its root's piece. */
static const int64_t *list_values(struct unifier *unifier, const struct set *set,
                                  const int64_t *values)
{
    const struct set *all = &unifier->sets[set->root];
    int64_t *table = UL_NEW_ARRAY(unifier->arena, int64_t, all->count);
    for (uint32_t i = 0, k = 0; i < all->count && k < set->count; i++)
        if (all->members[i] == set->members[k])
            table[i] = values[k++];
    return table;
}

/* Fills in the form with a key. *done: every number has a formula or, where too many values have
 * none, a table; else the key was parted, and has fewer instances now. */
static void fill_form(struct unifier *unifier, struct forms *forms, uint32_t key, bool *done)
{
    const struct ul_size_instances *instances = unifier->instances;
    struct set *set = members_of(unifier, forms, key);
    uint32_t form = instances->items[set->members[0]].kernels[forms->slot].form;
    const struct ul_kernel_form *text = &instances->forms.items[form];
    int64_t *values = UL_NEW_ARRAY(unifier->arena, int64_t, instances->count);
    const struct ul_formula **formulas =
        UL_NEW_ARRAY(unifier->arena, const struct ul_formula *, text->number_count);
    const int64_t **tables = UL_NEW_ARRAY(unifier->arena, const int64_t *, text->number_count);
    int64_t *largest = UL_NEW_ARRAY(unifier->arena, int64_t, text->number_count);
    *done = false;
    for (uint32_t n = 0; n < text->number_count; n++) {
        const struct kernel_number at = {.slot = forms->slot, .number = n};
        largest[n] = gather(set, values, kernel_number, unifier, &at);
        formulas[n] = ul_fit_find(&set->fit, values, false);
        if (formulas[n] != NULL)
            continue;
        if (part(forms, key, set, values))
            return;
        tables[n] = list_values(unifier, set, values);
    }
    forms->filled[key] = (struct ul_filled_form){.form = text,
                                                 .formulas = formulas,
                                                 .tables = tables,
                                                 .point_count = unifier->sets[forms->root].count,
                                                 .largest = largest};
    *done = true;
}

/* Gives each distinct form of the text a key. */
static enum ul_status begin_forms(struct unifier *unifier, uint32_t slot, struct forms *forms)
{
    const struct ul_size_instances *instances = unifier->instances;
    const struct set *set = &unifier->sets[slot_root(unifier, slot)];
    uint32_t examples[MAX_FORMS];
    *forms = (struct forms){.slot = slot,
                            .root = set->root,
                            .keys = UL_NEW_ARRAY(unifier->arena, uint32_t, instances->count),
                            .filled =
                                UL_NEW_ARRAY(unifier->arena, struct ul_filled_form, MAX_FORMS + 1)};
    for (uint32_t m = 0; m < set->count; m++) {
        uint32_t i = set->members[m], form = instances->items[i].kernels[slot].form, key = 0;
        while (key < forms->key_count && instances->items[examples[key]].kernels[slot].form != form)
            key++;
        if (key == MAX_FORMS)
            return ul_diag_set(&instances->compile->diag, UL_UNSUPPORTED,
                               "the kernel of %s has more than %d forms: give smaller ranges",
                               ul_quote(unifier->arena, slot_node(unifier, slot)), MAX_FORMS);
        if (key == forms->key_count)
            examples[forms->key_count++] = i;
        forms->keys[i] = key;
    }
    return UL_OK;
}

static void put_sizes(const struct unifier *unifier, struct ul_text *text)
{
    for (uint32_t s = 0; s < unifier->sized->size_count; s++)
        ul_text_printf(text, "    const int64_t n%u = run->sizes[%u];\n    (void)n%u;\n", s, s, s);
}

/* The table by which a run chooses among forms. */
static void put_choice(const struct unifier *unifier, struct ul_text *text,
                       const struct forms *forms)
{
    const struct set *set = &unifier->sets[forms->root];
    ul_text_put(text, "    static const uint8_t forms[] = {");
    for (uint32_t i = 0; i < set->count; i++)
        ul_text_printf(text, "%s%u,", i % 24 == 0 ? "\n        " : " ",
                       forms->keys[set->members[i]]);
    ul_text_put(text, "\n    };\n    switch (forms[run->size_point]) {\n");
}

/* Forms of one kernel take the same buffers; scratch is there where any of them wants it, but never
 * where the step has none. */
static enum ul_status compare_parameters(struct unifier *unifier, uint32_t slot,
                                         const struct ul_kernel_parameters *parameters,
                                         const struct ul_kernel_form *form)
{
    const struct ul_kernel_parameters other = ul_kernel_form_parameters(unifier->arena, form);
    bool same = parameters->count == other.count && (parameters->has_scratch || !other.has_scratch);
    for (uint32_t i = 0; same && i < other.count; i++)
        same = strcmp(parameters->types[i], other.types[i]) == 0;
    return same
               ? UL_OK
               : ul_diag_set(&unifier->instances->compile->diag, UL_UNSUPPORTED,
                             "the kernel of %s takes other operands with some sizes: compile these "
                             "sizes apart",
                             ul_quote(unifier->arena, slot_node(unifier, slot)));
}

/* The kernel of a slot with all of its forms, as struct ul_program_kernel has text. */
static enum ul_status make_text(struct unifier *unifier, uint32_t slot, const char **made)
{
    const struct ul_size_instances *instances = unifier->instances;
    struct forms forms;
    struct ul_text text;
    UL_TRY(begin_forms(unifier, slot, &forms));
    for (uint32_t key = 0; key < forms.key_count;) {
        bool done;
        fill_form(unifier, &forms, key, &done);
        key += done;
    }
    const struct ul_kernel_form *largest =
        &instances->forms.items[instances->items[instances->count - 1].kernels[slot].form];
    struct ul_kernel_parameters parameters = ul_kernel_form_parameters(unifier->arena, largest);
    for (uint32_t key = 0; key < forms.key_count; key++)
        UL_TRY(compare_parameters(unifier, slot, &parameters, forms.filled[key].form));
    ul_text_init(&text, unifier->arena);
    ul_kernel_form_put_parameters(&text, &parameters);
    ul_text_put(&text, "{\n");
    put_sizes(unifier, &text);
    if (forms.key_count > 1)
        put_choice(unifier, &text, &forms);
    for (uint32_t key = 0; key < forms.key_count; key++) {
        if (forms.key_count > 1)
            ul_text_printf(&text, "    case %u:\n", key);
        ul_kernel_form_put_body(&text, &forms.filled[key], 1);
        if (forms.key_count > 1)
            ul_text_put(&text, "        break;\n");
    }
    ul_text_put(&text, forms.key_count > 1 ? "    }\n}\n" : "}\n");
    *made = text.data;
    return UL_OK;
}

/* Adds a kernel like `from` with another text, unless there is one; returns its number. */
static uint32_t add_kernel(struct unifier *unifier, const struct ul_program_kernel *from,
                           const char *text)
{
    struct ul_program *program = unifier->program;
    for (uint32_t k = 0; k < program->kernel_count; k++)
        if (strcmp(program->kernels[k].text, text) == 0)
            return k;
    UL_GROW(unifier->arena, program->kernels, program->kernel_count, program->kernel_capacity);
    struct ul_program_kernel *kernel = &program->kernels[program->kernel_count];
    *kernel = *from;
    kernel->name = ul_arena_printf(unifier->arena, "k%u", program->kernel_count);
    kernel->text = text;
    return program->kernel_count++;
}

/* Whether the kernels of two slots of a root are equal at every instance. */
static bool is_same_kernel(const struct unifier *unifier, uint32_t p, uint32_t q)
{
    const struct ul_size_instances *instances = unifier->instances;
    if (slot_root(unifier, p) != slot_root(unifier, q))
        return false;
    for (uint32_t i = 0; i < instances->count; i++) {
        const struct ul_kernel_numbers *a = &instances->items[i].kernels[p];
        const struct ul_kernel_numbers *b = &instances->items[i].kernels[q];
        if (a->form != b->form || a->numbers != b->numbers)
            return false;
    }
    return true;
}

static struct ul_program_step *step_of(const struct unifier *unifier, uint32_t slot)
{
    const struct ul_size_slot *at = &unifier->instances->slots[slot];
    return ul_size_step(unifier->program, at->step, at->alternative);
}

static bool runs_kernel(const struct unifier *unifier, uint32_t slot)
{
    return unifier->runs_slot[slot] && step_of(unifier, slot)->kind == UL_STEP_KERNEL;
}

static enum ul_status make_kernels(struct unifier *unifier)
{
    const struct ul_program *base = unifier->instances->compile->program;
    for (uint32_t i = 0; i < unifier->instances->slot_count; i++) {
        const char *text;
        uint32_t same = 0;
        struct ul_program_step *step = step_of(unifier, i);
        if (step == NULL || step->kind != UL_STEP_KERNEL)
            continue;
        const struct ul_program_kernel *from = &base->kernels[step->kernel];
        if (!unifier->runs_slot[i]) {
            step->kernel = add_kernel(unifier, from, from->text);
            continue;
        }
        while (!(runs_kernel(unifier, same) && is_same_kernel(unifier, same, i)))
            same++;
        if (same < i) {
            step->kernel = step_of(unifier, same)->kernel;
            continue;
        }
        UL_TRY(make_text(unifier, i, &text));
        step->kernel = add_kernel(unifier, from, text);
    }
    return UL_OK;
}

static void mark_slots(struct unifier *unifier)
{
    const struct ul_size_instances *instances = unifier->instances;
    const struct ul_plan *plan = &instances->compile->plan;
    unifier->runs_slot = UL_NEW_ARRAY(unifier->arena, bool, instances->slot_count);
    for (uint32_t p = 0; p < plan->position_count; p++)
        for (uint32_t i = 0; i < instances->slot_count; i++)
            if (instances->slots[i].step == plan->positions[p].step &&
                instances->slots[i].alternative == plan->positions[p].alternative)
                unifier->runs_slot[i] = true;
}

/* ---- the program ---- */

static struct ul_program_step copy_step(struct ul_arena *arena, const struct ul_program_step *from)
{
    struct ul_program_step step = *from;
    step.args = ul_arena_copy(arena, from->args, from->arg_count * sizeof *from->args);
    return step;
}

/* A copy whose steps and regions may be changed, without kernels. */
static struct ul_program *copy_program(struct ul_arena *arena, const struct ul_program *from)
{
    struct ul_program *program = ul_arena_copy(arena, from, sizeof *from);
    program->kernel_count = program->kernel_capacity = 0;
    program->kernels = NULL;
    program->regions =
        ul_arena_copy(arena, from->regions, from->region_count * sizeof *from->regions);
    program->region_capacity = from->region_count;
    program->steps = UL_NEW_ARRAY(arena, struct ul_program_step, from->step_count);
    program->step_capacity = from->step_count;
    for (uint32_t s = 0; s < from->step_count; s++) {
        struct ul_program_step *step = &program->steps[s];
        *step = copy_step(arena, &from->steps[s]);
        struct ul_program_step *alternatives =
            UL_NEW_ARRAY(arena, struct ul_program_step, step->alternative_count);
        for (uint32_t a = 0; a < step->alternative_count; a++)
            alternatives[a] = copy_step(arena, &step->alternatives[a]);
        step->alternatives = alternatives;
    }
    return program;
}

/* What set-up is given has one shape and one place, since runs of all sizes go on with it. */
static enum ul_status check_state(const struct unifier *unifier)
{
    const struct ul_program *program = unifier->program;
    const struct ul_program_entry *set_up = &program->entries[UL_PROGRAM_SET_UP];
    const struct ul_block *root = &program->graph->blocks[0];
    if (set_up->input_count > 0 && program->graph->root_count > 1)
        return ul_diag_set(
            &unifier->instances->compile->diag, UL_UNSUPPORTED,
            "programs of some sizes have other steps, and state %s stays from run to run: leave it "
            "to the caller with --io caller, or give smaller ranges",
            ul_quote(unifier->arena, program->graph->values[root->inputs[set_up->inputs[0]]].name));
    for (uint32_t i = 0; i < set_up->input_count; i++) {
        ul_value_id id = root->inputs[set_up->inputs[i]];
        const struct ul_value *value = &program->graph->values[id];
        for (uint32_t d = 0; d < value->type.rank; d++)
            if (unifier->sized->numbers[id][d] != NULL)
                return ul_diag_set(&unifier->instances->compile->diag, UL_UNSUPPORTED,
                                   "state %s has a shape that varies, and stays from run to run: "
                                   "give its sizes one value, or leave it to the caller with "
                                   "--io caller",
                                   ul_quote(unifier->arena, value->name));
    }
    return UL_OK;
}

enum ul_status ul_size_unify(struct ul_size_instances *instances, struct ul_program **program)
{
    struct ul_compile *compile = instances->compile;
    struct ul_arena *keep = &compile->keep;
    const struct ul_formula **formulas;
    struct unifier unifier = {.instances = instances,
                              .arena = keep,
                              .sized = UL_NEW(keep, struct ul_program_sized),
                              .program = copy_program(keep, compile->program)};
    uint32_t values = compile->program->graph->value_count;
    *unifier.sized = (struct ul_program_sized){
        .size_count = instances->size_count,
        .sizes = instances->sizes,
        .pieces = compile->pieces->items,
        .numbers = UL_NEW_ARRAY(keep, const struct ul_formula *const *, values),
        .offsets = UL_NEW_ARRAY(keep, const struct ul_formula *, values)};
    mark_slots(&unifier);
    list_sets(&unifier);
    UL_TRY(fit_walk(&unifier, &formulas));
    struct ul_size_walk walk = {.arena = keep,
                                .base = compile->program,
                                .base_compile = compile,
                                .compile = compile,
                                .formulas = formulas};
    ul_size_walk(&walk, unifier.program, unifier.sized);
    UL_ASSERT(walk.number_count == instances->number_count);
    UL_TRY(check_state(&unifier));
    UL_TRY(make_kernels(&unifier));
    unifier.sized->input_sizes =
        ul_size_find_inputs(keep, compile->program->graph, unifier.sized, instances);
    if (compile->options.offsets == UL_OFFSETS_SIZES) {
        struct ul_program_layout *layout;
        struct ul_fit **fits = UL_NEW_ARRAY(keep, struct ul_fit *, unifier.set_count);
        for (uint32_t i = 0; i < unifier.set_count; i++)
            fits[i] = &unifier.sets[i].fit;
        UL_TRY(ul_size_lay_out(instances, fits, &layout));
        unifier.sized->layout = layout;
    }
    unifier.program->sized = unifier.sized;
    *program = unifier.program;
    return UL_OK;
}
