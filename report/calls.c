/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a plan that exist because a library computes: a target with a library may need more
 * than one without. Apart from these two and the scratch of calls there should be none.
 *
 *      packing     weights in the library's layouts are padded to whole blocks, or transformed
 *      operands    values that our kernels write only for calls to read; a kernel of ours might
 *                  compute them as it reads them (BatchNormalization and Relu before
 *                  the convolutions of DenseNet) */
#include "report/report.h"

#include <string.h>

static bool has_calls(const struct ul_report *report)
{
    for (uint32_t i = 0; i < report->problem->step_count; i++) {
        if (report->steps[i].is_call)
            return true;
    }
    return false;
}

/* By how much weights are longer than their elements. */
static uint64_t packing_bytes_of(const struct ul_report *report)
{
    const struct ul_plan *plan = report->plan;
    uint64_t packing_bytes = 0;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        if (range->space != 0 || range->class != UL_PLAN_WEIGHTS || range->value == UL_PLAN_NONE)
            continue;
        const struct ul_report_value *value = &report->values[range->value];
        uint64_t plain_bytes = ul_size_mul_or_die(ul_type_elements(&value->type),
                                                  ul_dtype_get(value->storage)->size_bytes);
        if (range->size_bytes > plain_bytes)
            packing_bytes += range->size_bytes - plain_bytes;
    }
    return packing_bytes;
}

/* Adds up the weights, wherever they are, by the type of their elements. False: none has 8 bits or
 * fewer, so there is nothing to report. */
static bool add_weights(const struct ul_report *report, uint64_t bytes[UL_DTYPE_COUNT])
{
    const struct ul_plan *plan = report->plan;
    bool is_narrow = false;
    memset(bytes, 0, UL_DTYPE_COUNT * sizeof *bytes);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        const struct ul_plan_range *range = &plan->ranges[i];
        if (range->class != UL_PLAN_WEIGHTS || range->value == UL_PLAN_NONE)
            continue;
        enum ul_dtype storage = report->values[range->value].storage;
        const struct ul_dtype_info *info = ul_dtype_get(storage);
        UL_ASSERT(storage < UL_DTYPE_COUNT);
        bytes[storage] += range->size_bytes;
        is_narrow = is_narrow || (info->size_bytes == 1 && storage != UL_BOOL);
    }
    return is_narrow;
}

/* Whether kernels alone write the value and calls alone read it, at least one. */
static bool is_operand(const struct ul_report *report, uint32_t value)
{
    const struct ul_problem *problem = report->problem;
    bool read = false;
    for (uint32_t i = 0; i < problem->step_count; i++) {
        const struct ul_plan_alternative *all = problem->steps[i].alternatives;
        for (uint32_t p = 0; p < all->substep_count; p++) {
            bool reads = ul_ids_have(all->substeps[p].reads, all->substeps[p].read_count, value);
            bool writes = ul_ids_have(all->substeps[p].writes, all->substeps[p].write_count, value);
            if (report->steps[i].is_call ? writes : reads)
                return false;
            read = read || reads;
        }
    }
    return read;
}

/* Bytes at the peak of activations that kernels write and only calls read. */
static uint64_t operand_bytes_of(const struct ul_report *report, struct ul_arena *arena)
{
    const struct ul_plan *plan = report->plan;
    uint64_t operand_bytes = 0;
    uint32_t *alive;
    uint32_t count = ul_report_alive(report, arena, 0, &alive);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_plan_range *range = &plan->ranges[alive[i]];
        if (range->space == 0 && range->class == UL_PLAN_ACTIVATIONS &&
            range->value != UL_PLAN_NONE && is_operand(report, range->value))
            operand_bytes += range->size_bytes;
    }
    return operand_bytes;
}

void ul_report_save_calls(const struct ul_report *report, struct ul_arena *arena,
                          struct ul_saved *saved)
{
    saved->has_weights_by_type = add_weights(report, saved->weights_by_type);
    saved->has_for_library = has_calls(report);
    if (!saved->has_for_library)
        return;
    saved->for_library.packing_bytes = packing_bytes_of(report);
    saved->for_library.operand_bytes = operand_bytes_of(report, arena);
}
