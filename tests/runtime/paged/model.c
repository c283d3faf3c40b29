/* SPDX-License-Identifier: Apache-2.0 */
/*
 * paged: a model of which a large weight is used in a few places, written by hand as the compiler
 * prints it; the loader may leave such a weight in its file.
 *
 *     y[2] = b[0] + W[pick[0]], b[1] + W[pick[1]]      W has 4 Mi elements
 *
 *     bytes                     step 0
 *     0-8             b
 *     64-16777280     W
 *     16777280-...    pick ]
 *     16777344-...      [ y
 */
#include "ul_kernel.h"
#include "ul_program.h"
#include "ul_run.h"
#include "ul_weights.h"

static void run_steps(unsigned char *a, struct ul_run *r)
{
    UL_STEP(r, 0); /* pick */
    const float *w = UL_AT(const float, a, 64), *b = UL_AT(const float, a, 0);
    const int64_t *pick = UL_AT(const int64_t, a, 16777280);
    for (int i = 0; i < 2; i++)
        UL_AT(float, a, 16777344)[i] = b[i] + w[ul_index(r, pick[i], 4194304)];
}

static const int64_t dims[] = {2};
static const struct ul_rt_tensor inputs[] = {
    {"pick", UL_TYPE_I64, 1, dims, 16, UL_SPACE_ARENA, 16777280, 0},
};
static const struct ul_rt_tensor outputs[] = {
    {"y", UL_TYPE_F32, 1, dims, 8, UL_SPACE_ARENA, 16777344, 0},
};

static const struct ul_section sections[] = {
    {0, 8, 4, UL_SPACE_ARENA, NULL},
    {64, 16777216, 4, UL_SPACE_ARENA, NULL}, /* 56 bytes after the end of the other */
};

static const struct ul_step steps[] = {
    {"pick", "k0", "pick", "Gather+Add", 0, 1, 2, 40, 0.0, 0, 0, 0},
};
static const int64_t shapes[] = {2, 1};
static const struct ul_rt_view views[] = {
    {UL_SPACE_ARENA, 0, 16777344, UL_TYPE_F32, 1, 0},
};
static const struct ul_range ranges[] = {
    {"b", UL_ROW_WEIGHTS, 0, 8, 0, 1, UL_RANGE_NONE},
    {"W", UL_ROW_WEIGHTS, 64, 16777216, 0, 1, UL_RANGE_NONE},
    {"pick", UL_ROW_INPUTS, 16777280, 16, 0, 1, UL_RANGE_NONE},
    {"y", UL_ROW_OUTPUTS, 16777344, 8, 0, 1, UL_RANGE_NONE},
};

static const uint32_t all[] = {0, 1};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, 1, 1, 0, 1},
};

static const struct ul_model paged_model = {
    .name = "paged",
    .compiler = "by hand",
    .target = "c",
    .arena_bytes = 16777408,
    .arena_align = 64,
    .payload_bytes = 16777280,
    .payload_hash = UINT64_C(0xc526cc9fd3667219),
    .load = ul_weights_load,
    .sections = sections,
    .section_count = 2,
    .input_count = 1,
    .output_count = 1,
    .inputs = inputs,
    .outputs = outputs,
    .isa = (uint32_t)UL_ISA_COMPILED,
    .entry_count = 2,
    .entries = entries,
    .step_count = 1,
    .range_count = 4,
    .view_count = 1,
    .shape_count = 2,
    .steps = steps,
    .ranges = ranges,
    .views = views,
    .shapes = shapes,
    .row_bytes = {16777224, 0, 0, 0, 0, 0, 16, 8, 160, 0},
    .peak_step = 0,
};

int main(int argc, char **argv)
{
    return ul_program_main(&paged_model, argc, argv);
}
