/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of a program: kernels with equal text are one function, and equal calls of a
 * library are one, since their operands are given at run time. */
#include "codegen/kernel/threads.h"
#include "codegen/program/program_internal.h"
#include "codegen/program/target.h"

#include <string.h>

static uint32_t *kernel_slot(struct ul_program_builder *builder, const char *text)
{
    uint32_t mask = builder->kernel_table_size - 1;
    uint32_t slot = ul_hash_more(UL_HASH_BEGIN, text, strlen(text)) & mask;
    while (builder->kernel_table[slot] != UL_NONE &&
           strcmp(builder->program->kernels[builder->kernel_table[slot]].text, text) != 0)
        slot = (slot + 1) & mask;
    return &builder->kernel_table[slot];
}

static void kernel_table_grow(struct ul_program_builder *builder)
{
    enum { FIRST_SIZE = 64 };
    struct ul_program *program = builder->program;
    uint32_t size = builder->kernel_table_size == 0 ? FIRST_SIZE : 2 * builder->kernel_table_size;
    builder->kernel_table_size = size;
    builder->kernel_table = UL_NEW_ARRAY(builder->arena, uint32_t, size);
    memset(builder->kernel_table, 0xFF, size * sizeof *builder->kernel_table);
    for (uint32_t i = 0; i < program->kernel_count; i++)
        *kernel_slot(builder, program->kernels[i].text) = i;
}

enum ul_status ul_function_add_kernel(struct ul_program_builder *builder,
                                      const struct ul_kernel *kernel, uint32_t *id)
{
    struct ul_program *program = builder->program;
    struct ul_text text;
    ul_text_init(&text, builder->arena);
    struct ul_kernel_printed printed = {.scratch_bytes = 0};
    struct ul_threads threads;
    ul_threads_init(&threads, kernel, builder->options->thread_count, builder->arena);
    UL_TRY(builder->options->target->print(&text, kernel, &threads, builder->options->profile,
                                           &printed, builder->diag));
    if (2 * (program->kernel_count + 1) > builder->kernel_table_size)
        kernel_table_grow(builder);
    uint32_t *slot = kernel_slot(builder, text.data);
    if (*slot != UL_NONE) {
        *id = *slot;
        return UL_OK;
    }
    UL_GROW(builder->arena, program->kernels, program->kernel_count, program->kernel_capacity);
    struct ul_program_kernel *added = &program->kernels[program->kernel_count];
    added->name = ul_arena_printf(builder->arena, "k%u", program->kernel_count);
    added->text = text.data;
    added->ir = kernel;
    added->printed = printed;
    added->code_place = UL_PLAN_NONE;
    added->accesses = UL_NEW_ARRAY(builder->arena, uint64_t, kernel->buffer_count);
    ul_kernel_count_work(kernel, &threads, builder->options->target->traits.memory_is_separate,
                         &builder->scratch, &added->work, added->accesses);
    ul_arena_reset(&builder->scratch);
    /* A phase that the last blocks run takes up to a launch longer than alone (grid_follow.c). */
    added->work.launch_count = printed.launch_count + printed.followed_count;
    added->work.block_count = printed.block_count;
    added->work.tile = printed.tile;
    if (printed.tile.rows > 0 && added->work.longest_block < 1)
        added->work.longest_block = 1;
    added->sum_orders = builder->options->target->sum_orders(kernel, builder->options->profile);
    *slot = program->kernel_count;
    *id = program->kernel_count++;
    return UL_OK;
}

uint32_t ul_function_add_call(struct ul_program_builder *builder, const struct ul_call *call,
                              const struct ul_target_library *library)
{
    struct ul_program *program = builder->program;
    UL_ASSERT(call->implementation != NULL);
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (memcmp(program->calls[i].call, call, sizeof *call) == 0)
            return i;
    }
    UL_GROW(builder->arena, program->calls, program->call_count, program->call_capacity);
    program->calls[program->call_count] =
        (struct ul_program_call){.call = ul_arena_copy(builder->arena, call, sizeof *call),
                                 .library = library,
                                 .kept_place = UL_PLAN_NONE};
    return program->call_count++;
}
