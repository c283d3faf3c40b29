/* SPDX-License-Identifier: Apache-2.0 */
/* The sizes that a run learns from the shapes of its inputs. */
#include "compile/sizes/sizes.h"

/* The root whose piece has a point. */
static uint32_t root_at(const struct ul_program_sized *sized, const int64_t *point)
{
    uint32_t root = 0;
    while (!ul_size_piece_has(sized->pieces[root], sized->size_count, point))
        root++;
    return root;
}

/* Whether a dimension of an input is a size at every point. */
static bool is_size(const struct ul_graph *graph, const struct ul_program_sized *sized,
                    const struct ul_size_instances *instances, uint32_t input, uint32_t dim,
                    uint32_t size)
{
    for (uint32_t i = 0; i < instances->count; i++) {
        const int64_t *point = instances->items[i].point;
        ul_value_id id = graph->blocks[root_at(sized, point)].inputs[input];
        const struct ul_formula *formula = sized->numbers[id][dim];
        int64_t value = graph->values[id].type.dims[dim];
        if ((formula != NULL && !ul_formula_eval(formula, point, &value)) || value != point[size])
            return false;
    }
    return true;
}

const uint32_t *ul_size_find_inputs(struct ul_arena *arena, const struct ul_graph *graph,
                                    const struct ul_program_sized *sized,
                                    const struct ul_size_instances *instances)
{
    const struct ul_block *root = &graph->blocks[0];
    uint32_t *found = NULL, count = 0, capacity = 0;
    UL_ASSERT(instances->count > 0 && sized->size_count > 0);
    for (uint32_t k = 0; k < root->input_count; k++)
        for (uint32_t d = 0; d < graph->values[root->inputs[k]].type.rank; d++) {
            uint32_t size = 0;
            while (size < sized->size_count && !is_size(graph, sized, instances, k, d, size))
                size++;
            UL_GROW(arena, found, count, capacity);
            found[count++] = size < sized->size_count ? size : UL_NONE;
        }
    return found;
}
