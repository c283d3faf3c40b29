/* Which implementations a target offers for a kernel, before planning: what a kernel costs in time
 * and scratch depends on its implementation, so the planner picks, and the plan names the pick.
 * The compiler's own lowering is always the first; a target that links a library adds its own. */
#include "codegen/codegen.h"

#include <string.h>

/* Nanoseconds on a core of 64 GFLOP/s and 16 GB/s, until a device profile says more. The most that
 * is told keeps sums over any program in range. */
static uint64_t estimate(const struct ul_program_step *step)
{
    enum { FLOPS_PER_NANOSECOND = 64, BYTES_PER_NANOSECOND = 16 };
    static const uint64_t most = (uint64_t)1 << 39;
    uint64_t cost =
        step->flop_count / FLOPS_PER_NANOSECOND + step->moved_bytes / BYTES_PER_NANOSECOND + 1;
    return cost < most ? cost : most;
}

static uint32_t offer_own(const struct ul_program_step *step, uint64_t own_scratch_bytes,
                          struct ul_implementation *offers)
{
    offers[0] = (struct ul_implementation){
        .name = "ullage", .cost = estimate(step), .scratch_bytes = own_scratch_bytes};
    return 1;
}

static const struct ul_target targets[] = {
    {.name = "c", .summary = "portable C99, no library", .offer = offer_own},
};

const struct ul_target *ul_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    }
    return NULL;
}
