/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls: library calls in a model, written by hand as a test and as a pattern.
 *
 *     bytes            step 0    1    2
 *     0-18432          W, packed 16i16o ......
 *     18432-18560      b .....................
 *     18560-18576      the libraries' states .
 *     18624-22720      x ]
 *     22720-30912      h ...........
 *     30912-32960           m ...........
 *     32960-33088                y ......
 *     33088-102720     scratch ]           the library's beside the copy of x
 *     102720-103744         scratch ]
 */
#include "model.h"

#include "ul_threads.h"

#include "ul_kernel.h"
#include "ul_library.h"
#include "ul_pack.h"
#include "ul_run.h"
#include "ul_weights.h"

#ifndef CALLS_SCRATCH
#define CALLS_SCRATCH 69632
#endif

/* The weights as they are stored and as the library has them. CALLS_BLOCK: in blocks of so many
 * outputs, as brgconv has them: of 32 here, for each number of threads. */
#ifdef CALLS_BLOCK
#define CALLS_IMPLEMENTATION "brgconv:avx512_core"
#define PACK_0                                                                                     \
    {                                                                                              \
        .rank = 4, .dims = {32, 16, 3, 3},                                                         \
        .strides = {144 * CALLS_BLOCK, CALLS_BLOCK, 48 * CALLS_BLOCK, 16 * CALLS_BLOCK},           \
        .block_count = 1, .block_dims = {0}, .blocks = {CALLS_BLOCK}, .size_bytes = 18432,         \
        .element_bytes = 4                                                                         \
    }
#else
#ifdef CALLS_OTHER
#define CALLS_IMPLEMENTATION "other:avx512_core"
#else
#define CALLS_IMPLEMENTATION "jit:avx512_core"
#endif
#define PACK_0                                                                                     \
    {                                                                                              \
        .rank = 4, .dims = {32, 16, 3, 3}, .strides = {2304, 2304, 768, 256}, .block_count = 2,    \
        .block_dims = {1, 0}, .blocks = {16, 16}, .size_bytes = 18432, .element_bytes = 4          \
    }
#endif
static const struct ul_pack pack_0 = PACK_0;

static const struct ul_call calls[] = {
    {
        .kind = UL_CALL_CONVOLUTION,
        .src = {.rank = 4, .dims = {1, 16, 8, 8}, .strides = {1024, 64, 8, 1}},
        .weights = {.rank = 4, .dims = {32, 16, 3, 3}, .strides = {144, 9, 3, 1}},
        .bias = {.rank = 1, .dims = {32}, .strides = {1}},
        .dst = {.rank = 4, .dims = {1, 32, 8, 8}, .strides = {2048, 1, 256, 32}},
        .pack = &pack_0,
        .layout = PACK_0,
        .group_count = 1,
        .window = {3, 3},
        .steps = {1, 1},
        .dilations = {1, 1},
        .pads = {1, 1, 1, 1},
        .post_count = 1,
        .posts = {{.kind = UL_POST_RELU}},
        .implementation = CALLS_IMPLEMENTATION,
        .src_copy_bytes = 4096,
        .scratch_bytes = CALLS_SCRATCH,
    },
    {
        .kind = UL_CALL_MEAN_POOL,
        .src = {.rank = 4, .dims = {1, 32, 8, 8}, .strides = {2048, 1, 256, 32}},
        .dst = {.rank = 4, .dims = {1, 32, 4, 4}, .strides = {512, 1, 128, 32}},
        .group_count = 1,
        .window = {2, 2},
        .steps = {2, 2},
        .dilations = {1, 1},
        .implementation = "jit:avx512_core",
        .scratch_bytes = 1024,
    },
    {
        .kind = UL_CALL_MEAN_POOL,
        .src = {.rank = 4, .dims = {1, 32, 4, 4}, .strides = {512, 1, 128, 32}},
        .dst = {.rank = 4, .dims = {1, 32, 1, 1}, .strides = {32, 1, 32, 32}},
        .group_count = 1,
        .window = {4, 4},
        .steps = {1, 1},
        .dilations = {1, 1},
        .implementation = "jit:avx512_core",
    },
};

/* One library twice stands for two, each of which is set up for calls of its own. */
static const struct ul_library libraries[] = {
    {
        .name = "oneDNN",
        .plan_name = "onednn",
        .isa = "avx512_core",
        .thread_count = 2,
        .state_offset_bytes = 18560,
        .call_count = 2,
        .calls = calls,
        .init = ul_library_init,
        .done = ul_library_done,
        .ready = ul_library_ready,
        .implementation = ul_library_implementation,
        .heap_bytes = ul_library_heap_bytes,
    },
    {
        .name = "other",
        .plan_name = "onednn",
        .isa = "avx512_core",
        .thread_count = 2,
        .state_offset_bytes = 18568,
        .first_call = 2,
        .call_count = 1,
        .calls = calls,
        .init = ul_library_init,
        .done = ul_library_done,
        .ready = ul_library_ready,
        .implementation = ul_library_implementation,
        .heap_bytes = ul_library_heap_bytes,
    },
};

static void run_steps(unsigned char *a, struct ul_run *r)
{
    UL_STEP(r, 0); /* conv */
    ul_library_run(&libraries[0], a, 0, (const void *const[]){a + 18624, a, a + 18432, a + 22720},
                   a + 33088);
    UL_STEP(r, 1); /* halve */
    ul_library_run(&libraries[0], a, 1, (const void *const[]){a + 22720, NULL, NULL, a + 30912},
                   a + 102720);
    UL_STEP(r, 2); /* mean */
    ul_library_run(&libraries[1], a, 2, (const void *const[]){a + 30912, NULL, NULL, a + 32960},
                   NULL);
}

static const int64_t input_dims_0[] = {1, 16, 8, 8};
static const struct ul_rt_tensor inputs[] = {
    {"x", UL_TYPE_F32, 4, input_dims_0, 4096, UL_SPACE_ARENA, 18624, 0},
};

static const int64_t output_dims_0[] = {1, 32, 1, 1};
static const struct ul_rt_tensor outputs[] = {
    {"y", UL_TYPE_F32, 4, output_dims_0, 128, UL_SPACE_ARENA, 32960, 0},
};

static const struct ul_section sections[] = {
    {0, 18432, 4, UL_SPACE_ARENA, &pack_0},
    {18432, 128, 4, UL_SPACE_ARENA, NULL},
};

#ifndef UL_NO_TABLES
static const struct ul_step steps[] = {
    {"conv", "oneDNN", "conv", "Conv+Relu", 0, 1, 589824, 30976, 0.0, 1, 0, 0},
    {"halve", "oneDNN", "halve", "AveragePool", 1, 1, 0, 10240, 0.0, 2, 0, 0},
    {"mean", "oneDNN", "mean", "GlobalAveragePool", 2, 1, 0, 2176, 0.0, 3, 0, 0},
};

static const int64_t shapes[] = {
    1, 32, 8, 8, 2048, 1, 256, 32, /* 0 */
    1, 32, 4, 4, 512,  1, 128, 32, /* 8 */
    1, 32, 1, 1, 32,   1, 32,  32, /* 16 */
};

static const struct ul_rt_view views[] = {
    {UL_SPACE_ARENA, 0, 22720, UL_TYPE_F32, 4, 0},
    {UL_SPACE_ARENA, 0, 30912, UL_TYPE_F32, 4, 8},
    {UL_SPACE_ARENA, 0, 32960, UL_TYPE_F32, 4, 16},
};

static const struct ul_range ranges[] = {
    {"W", UL_ROW_WEIGHTS, 0, 18432, 0, 3, UL_RANGE_NONE},
    {"b", UL_ROW_WEIGHTS, 18432, 128, 0, 3, UL_RANGE_NONE},
    {"library", UL_ROW_SCRATCH, 18560, 8, 0, 3, UL_RANGE_NONE},
    {"other", UL_ROW_SCRATCH, 18568, 8, 0, 3, UL_RANGE_NONE},
    {"x", UL_ROW_INPUTS, 18624, 4096, 0, 1, UL_RANGE_NONE},
    {"h", UL_ROW_ACTIVATIONS, 22720, 8192, 0, 2, UL_RANGE_NONE},
    {"m", UL_ROW_ACTIVATIONS, 30912, 2048, 1, 3, UL_RANGE_NONE},
    {"y", UL_ROW_OUTPUTS, 32960, 128, 2, 3, UL_RANGE_NONE},
    {"conv, scratch", UL_ROW_SCRATCH, 33088, 69632, 0, 1, UL_RANGE_NONE},
    {"halve, scratch", UL_ROW_SCRATCH, 102720, 1024, 1, 2, UL_RANGE_NONE},
};
#endif

static const uint32_t all[] = {0, 1};
static const struct ul_entry entries[] = {
    {"set_up", NULL, NULL, NULL, 0, 0, 0, 0},
    {"run", run_steps, all, all, MODEL_INPUT_COUNT, MODEL_OUTPUT_COUNT, 0, 3},
};

const struct ul_model model_model = {
    .name = "calls",
    .compiler = "by hand",
    .target = "cpu",
    .arena_bytes = MODEL_ARENA_BYTES,
    .arena_align = MODEL_ARENA_ALIGN,
    .payload_bytes = 18560,
    .payload_hash = UINT64_C(0xbff2eee747c250ca),
    .load = ul_weights_load,
    .pack = ul_packer_take,
    .sections = sections,
    .section_count = 2,
    .input_count = MODEL_INPUT_COUNT,
    .output_count = MODEL_OUTPUT_COUNT,
    .inputs = inputs,
    .outputs = outputs,
    .thread_count = 2,
#ifdef _OPENMP
    .thread_limit = ul_thread_limit,
    .start_threads = ul_threads_start,
#endif
    .library_count = 2,
    .libraries = libraries,
    .isa = (uint32_t)UL_ISA_COMPILED,
    .entry_count = 2,
    .entries = entries,
    .step_count = 3,
#ifndef UL_NO_TABLES
    .range_count = 10,
    .view_count = 3,
    .shape_count = 24,
    .steps = steps,
    .ranges = ranges,
    .views = views,
    .shapes = shapes,
    .row_bytes = {18560, 0, 0, 0, 8192, 69648, 4096, 0, 48, 3200},
    .peak_step = 0,
#endif
};

int model_init(void *arena, size_t bytes, const struct ul_weights_source *weights,
               struct ul_failure *failure)
{
    return (int)ul_run_init(&model_model, arena, bytes, weights, failure);
}

int model_run(void *arena, const void *const *inputs_given, void *const *outputs_given,
              struct ul_failure *failure)
{
    return (int)ul_run_entry(&model_model, UL_ENTRY_RUN, arena, 0, inputs_given, outputs_given,
                             NULL, NULL, failure);
}

void model_done(void *arena)
{
    ul_run_done(&model_model, arena);
}
