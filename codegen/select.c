/* Which implementations a target offers for a kernel, before planning: what a kernel costs in time
 * and scratch depends on its implementation, so the planner picks, and the plan names the pick.
 * The compiler's own lowering is always the first; a target that links a library adds its own. */
#include "codegen/codegen.h"

#include <string.h>

static uint32_t offer_own(const struct ul_program_step *step, const struct ul_profile *profile,
                          uint64_t own_scratch_bytes, struct ul_implementation *offers)
{
    offers[0] = (struct ul_implementation){
        .name = step->implementation != NULL ? step->implementation : "ullage",
        .cost = ul_profile_cost(profile, &step->work, &step->traffic, step->rounds),
        .scratch_bytes = own_scratch_bytes};
    return 1;
}

static const struct ul_target targets[] = {
    {.name = "c", .summary = "portable C99, no library", .offer = offer_own},
    {.name = "cpu",
     .summary = "C with OpenMP and oneDNN",
     .has_threads = true,
     .channels_last = true,
     .has_library = true,
     .offer = offer_own},
};

const struct ul_target *ul_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    }
    return NULL;
}
