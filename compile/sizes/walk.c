/* SPDX-License-Identifier: Apache-2.0 */
/* What programs for several sizes must have in common, and the numbers in which they may differ.
 * One walk lists both, and puts formulas where the numbers were, so that these agree. */
#include "compile/sizes/walk.h"

#include "compile/compile.h"

#include <string.h>

struct ul_program_step *ul_size_step(const struct ul_program *program, uint32_t step,
                                     uint32_t alternative)
{
    if (step >= program->step_count || alternative > program->steps[step].alternative_count)
        return NULL;
    struct ul_program_step *own = &program->steps[step];
    return alternative == 0
               ? own
               : (struct ul_program_step *)(uintptr_t)&own->alternatives[alternative - 1];
}

/* ---- marks and numbers ---- */

static void begin_mark(struct ul_size_walk *walk, uint32_t root, const char *node)
{
    UL_GROW(walk->arena, walk->marks, walk->mark_count, walk->mark_capacity);
    walk->marks[walk->mark_count++] =
        (struct ul_size_mark){.number_begin = walk->number_count, .root = root, .node = node};
}

static void put_fact(struct ul_size_walk *walk, uint64_t fact)
{
    struct ul_size_mark *mark = &walk->marks[walk->mark_count - 1];
    mark->hash = (mark->hash ^ fact) * UINT64_C(0x9E3779B97F4A7C15);
    mark->hash ^= mark->hash >> 29;
}

static void put_text_fact(struct ul_size_walk *walk, const char *text)
{
    put_fact(walk, text != NULL);
    for (const char *at = text; at != NULL && *at != '\0'; at++)
        put_fact(walk, (unsigned char)*at);
}

/* Lists a number; the formula for it, once there are formulas. */
static const struct ul_formula *put_number(struct ul_size_walk *walk, int64_t number)
{
    uint32_t index = walk->number_count;
    if (walk->formulas != NULL) {
        walk->number_count++;
        return ul_formula_is_fixed(walk->formulas[index]) ? NULL : walk->formulas[index];
    }
    UL_GROW(walk->arena, walk->numbers, index, walk->number_capacity);
    walk->numbers[walk->number_count++] = number;
    return NULL;
}

/* ---- values ---- */

/* Where a tensor's bytes lie in the mapped files of a model; false: in none. */
static bool find_in_model(const struct ul_onnx_model *model, const struct ul_tensor *tensor,
                          uint32_t *file, uint64_t *offset_bytes)
{
    for (uint32_t f = 0; f < model->file_count; f++) {
        const struct ul_file *mapped = &model->files[f].file;
        uintptr_t begin = (uintptr_t)mapped->data, at = (uintptr_t)tensor->data;
        *file = f;
        *offset_bytes = at - begin;
        if (at >= begin && *offset_bytes < mapped->size_bytes)
            return true;
    }
    return false;
}

/* The same for a compile, each of whose roots has mapped the files. */
static bool find_in_files(const struct ul_compile *compile, const struct ul_tensor *tensor,
                          uint32_t *file, uint64_t *offset_bytes)
{
    bool found = find_in_model(&compile->model, tensor, file, offset_bytes);
    for (uint32_t r = 0; !found && r < compile->root_count; r++)
        found = find_in_model(&compile->roots[r].part->model, tensor, file, offset_bytes);
    return found;
}

/* Whether the elements of a constant are the first ones of another. Those that both borrow from the
 * same place of the model's file are not read. */
static bool begins(const struct ul_size_walk *walk, const struct ul_tensor *whole,
                   const struct ul_tensor *part, uint64_t bytes)
{
    uint32_t files[2];
    uint64_t offsets[2];
    if (whole->data == NULL || part->data == NULL)
        return whole->data == part->data &&
               memcmp(whole->splat, part->splat, sizeof whole->splat) == 0;
    if (find_in_files(walk->base_compile, whole, &files[0], &offsets[0]) &&
        find_in_files(walk->compile, part, &files[1], &offsets[1]) && files[0] == files[1] &&
        offsets[0] == offsets[1])
        return true;
    return memcmp(whole->data, part->data, bytes) == 0;
}

static bool is_same_constant(const struct ul_size_walk *walk, const struct ul_value *whole,
                             const struct ul_value *part)
{
    if (whole->tensor == NULL || part->tensor == NULL)
        return whole->tensor == part->tensor;
    if (whole->type.dtype != part->type.dtype)
        return false;
    uint64_t bytes = ul_type_bytes(&part->type);
    return bytes <= ul_type_bytes(&whole->type) && begins(walk, whole->tensor, part->tensor, bytes);
}

static void walk_value(struct ul_size_walk *walk, const struct ul_graph *graph, ul_value_id id,
                       struct ul_program_sized *sized)
{
    const struct ul_value *value = &graph->values[id];
    bool is_known = value->type.dtype != UL_DTYPE_NONE && value->type.rank <= UL_LIMIT_RANK;
    uint32_t rank = is_known ? value->type.rank : 0;
    bool has_view = is_known && value->view.base != UL_NONE;
    put_fact(walk, is_known);
    put_fact(walk, value->kind);
    put_fact(walk, (uint64_t)rank << 32 | value->type.dtype);
    put_fact(walk, (uint64_t)value->view.base << 32 | value->donor);
    put_fact(walk, is_same_constant(walk, &walk->base->graph->values[id], value));
    const struct ul_formula **numbers =
        sized != NULL ? UL_NEW_ARRAY(walk->arena, const struct ul_formula *, 2 * rank) : NULL;
    for (uint32_t d = 0; d < 2 * rank; d++) {
        int64_t stride = d >= rank && has_view ? value->view.strides[d - rank] : 0;
        bool is_any = d >= rank && value->type.dims[d - rank] == 1;
        const struct ul_formula *formula = put_number(walk, d < rank ? value->type.dims[d]
                                                            : is_any ? UL_SIZE_ANY
                                                                     : stride);
        if (numbers != NULL)
            numbers[d] = formula;
    }
    const struct ul_formula *offset = put_number(walk, has_view ? value->view.offset_bytes : 0);
    if (sized != NULL) {
        sized->numbers[id] = numbers;
        sized->offsets[id] = offset;
    }
}

/* ---- roots ---- */

/* What several roots use, or none. */
#define SHARED UL_NONE
#define UNUSED (UL_NONE - 1)

static uint32_t root_of_region(const struct ul_program *program, uint32_t region)
{
    uint32_t root = 0;
    if (program->graph->root_count == 1)
        return 0;
    while (region != 0 && program->regions[region].parent != 0)
        region = program->regions[region].parent;
    while (root < program->graph->root_count && program->root_regions[root] != region)
        root++;
    return root < program->graph->root_count ? root : UL_NONE;
}

uint32_t ul_size_root(const struct ul_program *program, uint32_t step)
{
    return root_of_region(program, program->steps[step].region);
}

static void use(uint32_t *roots, ul_value_id value, uint32_t root)
{
    roots[value] = roots[value] == UNUSED || roots[value] == root ? root : SHARED;
}

/* The root of each value at a model's edge, and of those that steps of the base read or write:
 * others, such as shapes that a pass has computed, are in no program. */
static uint32_t *list_roots(const struct ul_size_walk *walk)
{
    const struct ul_program *base = walk->base;
    const struct ul_graph *graph = base->graph;
    uint32_t *roots = UL_NEW_ARRAY(walk->arena, uint32_t, graph->value_count);
    for (ul_value_id v = 0; v < graph->value_count; v++)
        roots[v] = UNUSED;
    for (uint32_t r = 0; r < graph->root_count; r++) {
        const struct ul_block *root = &graph->blocks[r];
        for (uint32_t i = 0; i < root->input_count; i++)
            use(roots, root->inputs[i], r);
        for (uint32_t i = 0; i < root->output_count; i++)
            use(roots, root->outputs[i], r);
    }
    for (uint32_t s = 0; s < base->step_count; s++) {
        const struct ul_program_step *step;
        uint32_t root = ul_size_root(base, s);
        for (uint32_t a = 0; (step = ul_size_step(base, s, a)) != NULL; a++)
            for (uint32_t i = 0; i < step->arg_count; i++) {
                uint32_t place = step->args[i].place;
                if (place != UL_PLAN_NONE && base->places[place].value != UL_NONE)
                    use(roots, base->places[place].value, root);
                if (step->views[i] != UL_NONE)
                    use(roots, step->views[i], root);
            }
    }
    return roots;
}

/* ---- steps ---- */

static void walk_address(struct ul_size_walk *walk, struct ul_program_address *address)
{
    put_fact(walk, (uint64_t)address->place << 32 | address->loop);
    address->offset = put_number(walk, address->offset_bytes);
    address->stride = put_number(walk, address->stride_bytes);
}

static void walk_step(struct ul_size_walk *walk, struct ul_program_step *step)
{
    put_fact(walk, (uint64_t)step->kind << 32 | step->arg_count);
    put_fact(walk, (uint64_t)step->region << 32 | step->kept_place);
    put_text_fact(walk, step->op);
    put_text_fact(walk, step->implementation);
    put_fact(walk, (uint64_t)step->is_spared << 1 | step->has_residual);
    for (uint32_t a = 0; a < step->arg_count; a++) {
        walk_address(walk, &step->args[a]);
        put_fact(walk, (uint64_t)step->views[a] << 1 | step->written[a]);
    }
    step->copy = put_number(walk, (int64_t)step->copy_bytes);
}

/* ---- all ---- */

static void walk_frame(struct ul_size_walk *walk, struct ul_program *program)
{
    begin_mark(walk, SHARED, NULL);
    put_fact(walk, program->graph->value_count);
    put_fact(walk, program->step_count);
    put_fact(walk, program->place_count);
    put_fact(walk, program->region_count);
    for (uint32_t p = 0; p < program->place_count; p++) {
        put_fact(walk, (uint64_t)program->places[p].kind << 32 | program->places[p].value);
        put_fact(walk, program->places[p].pack != NULL);
    }
    for (uint32_t r = 0; r < program->region_count; r++) {
        struct ul_program_region *region = &program->regions[r];
        begin_mark(walk, root_of_region(program, r), NULL);
        put_fact(walk, (uint64_t)region->kind << 32 | region->parent);
        put_fact(walk, (uint64_t)region->flag << 1 | region->negated);
        region->round_count = put_number(walk, region->rounds);
        if (region->kind == UL_PLAN_BRANCH)
            walk_address(walk, &region->condition);
    }
}

void ul_size_walk(struct ul_size_walk *walk, struct ul_program *program,
                  struct ul_program_sized *sized)
{
    const struct ul_program *base = walk->base;
    const struct ul_graph *graph = program->graph;
    walk_frame(walk, program);
    if (graph->value_count != base->graph->value_count || program->step_count != base->step_count)
        return;
    const uint32_t *roots = list_roots(walk);
    for (ul_value_id v = 0; v < graph->value_count; v++) {
        if (roots[v] == UNUSED)
            continue;
        begin_mark(walk, roots[v], graph->values[v].name);
        walk_value(walk, graph, v, sized);
    }
    for (uint32_t s = 0; s < base->step_count; s++)
        for (uint32_t a = 0; ul_size_step(base, s, a) != NULL; a++) {
            struct ul_program_step *step = ul_size_step(program, s, a);
            begin_mark(walk, ul_size_root(base, s), base->graph->nodes[base->steps[s].node].name);
            if (step != NULL)
                walk_step(walk, step);
        }
}
