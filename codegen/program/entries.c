/* The entry points of a program: what may be called of it, on which inputs and outputs. */
#include "codegen/program/program_internal.h"

/* All numbers below `count` for which `kept` is as wanted. */
static const uint32_t *numbers(struct ul_builder *builder, const bool *kept, bool wanted,
                               uint32_t count, uint32_t *found)
{
    uint32_t *list = UL_NEW_ARRAY(builder->arena, uint32_t, count);
    *found = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept[i] == wanted)
            list[(*found)++] = i;
    }
    return list;
}

void ul_entry_add_all(struct ul_builder *builder)
{
    struct ul_program *program = builder->program;
    const struct ul_block *root = &builder->graph->blocks[0];
    struct ul_program_entry *set_up = &program->entries[UL_PROGRAM_SET_UP];
    struct ul_program_entry *run = &program->entries[UL_PROGRAM_RUN];
    bool *kept = UL_NEW_ARRAY(builder->arena, bool, root->input_count);
    bool *all = UL_NEW_ARRAY(builder->arena, bool, root->output_count);
    UL_ASSERT(run->name == NULL);
    set_up->name = "set_up";
    run->name = "run";
    for (uint32_t i = 0; i < root->input_count; i++) {
        uint32_t place = program->value_places[root->inputs[i]];
        const struct ul_plan_value *value = &program->problem->values[place];
        kept[i] = value->persistent && value->space == UL_PROGRAM_ARENA;
    }
    set_up->inputs = numbers(builder, kept, true, root->input_count, &set_up->input_count);
    run->inputs = numbers(builder, kept, false, root->input_count, &run->input_count);
    run->outputs = numbers(builder, all, false, root->output_count, &run->output_count);
    run->step_end = program->step_count;
    UL_ASSERT(set_up->input_count + run->input_count == root->input_count);
}
