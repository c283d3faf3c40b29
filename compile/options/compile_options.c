/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, and the lists of words for some of them. */
#include "compile/options/compile_options.h"
#include "codegen/cpu/dnnl.h"
#include "codegen/target.h"
#include "passes/passes.h"
#include "planner/model/effort.h"

#include <string.h>

static const struct ul_option_word no_word;

/* Makes a function over a list of words, as struct ul_option needs it. */
#define WORDS(name, ...)                                                                           \
    static struct ul_option_word name(uint32_t index)                                              \
    {                                                                                              \
        static const struct ul_option_word words[] = {__VA_ARGS__};                                \
        return index < sizeof words / sizeof *words ? words[index] : no_word;                      \
    }

WORDS(weights_words, {"arena", UL_WEIGHTS_ARENA, NULL}, {"rom", UL_WEIGHTS_ROM, NULL},
      {"file", UL_WEIGHTS_FILE, NULL})
WORDS(budget_words, {"process", UL_BUDGET_PROCESS, NULL}, {"arena", UL_BUDGET_ARENA, NULL})
WORDS(io_words, {"arena", UL_IO_ARENA, NULL}, {"caller", UL_IO_CALLER, NULL})
#define ORDER_WORD(constant, name, ...) {name, UL_ORDER_##constant, NULL},
#define REMAT_WORD(constant, name, ...) {name, UL_REMAT_##constant, NULL},
#define PACK_WORD(constant, name, ...) {name, UL_PACK_##constant, NULL},
WORDS(order_words, UL_ORDER_METHODS(ORDER_WORD, ORDER_WORD))
WORDS(remat_words, UL_REMAT_METHODS(REMAT_WORD, REMAT_WORD))
WORDS(pack_words, UL_PACK_METHODS(PACK_WORD, PACK_WORD))
WORDS(precision_words, {"fp32", UL_PRECISION_F32, NULL}, {"fp16", UL_PRECISION_F16, NULL},
      {"bf16", UL_PRECISION_BF16, NULL}, {"amp-fp16", UL_PRECISION_AMP_F16, NULL})
WORDS(calibration_words, {"minmax", UL_CALIBRATION_MINMAX, NULL},
      {"percentile", UL_CALIBRATION_PERCENTILE, NULL}, {"entropy", UL_CALIBRATION_ENTROPY, NULL})
WORDS(optimizer_words, {"sgd", UL_OPTIMIZER_SGD, NULL}, {"momentum", UL_OPTIMIZER_MOMENTUM, NULL},
      {"adam", UL_OPTIMIZER_ADAM, NULL}, {"adamw", UL_OPTIMIZER_ADAMW, NULL},
      {"lion", UL_OPTIMIZER_LION, NULL}, {"adafactor", UL_OPTIMIZER_ADAFACTOR, NULL},
      {"adam-mini", UL_OPTIMIZER_ADAM_MINI, NULL})
WORDS(loss_words, {"softmax-cross-entropy", UL_LOSS_CROSS_ENTROPY, NULL},
      {"mse", UL_LOSS_MSE, NULL}, {"bce", UL_LOSS_BCE, "of logits"},
      {"output:NAME", UL_LOSS_OUTPUT, "a scalar of the model"})
WORDS(rate_words, {"constant", UL_RATE_CONSTANT, NULL},
      {"step:N:F", UL_RATE_STEP, "times F every N steps"}, {"cosine:N", UL_RATE_COSINE, NULL},
      {"warmup:N", UL_RATE_WARMUP, NULL})
WORDS(checkpoint_words, {"none", UL_CHECKPOINT_NONE, "recompute nothing"},
      {"products", UL_CHECKPOINT_PRODUCTS, "recompute nothing heavy"},
      {"sqrt", UL_CHECKPOINT_SQRT, NULL}, {"blocks", UL_CHECKPOINT_BLOCKS, NULL})
WORDS(offload_words, {"none", UL_OFFLOAD_NONE, "they stay"},
      {"host", UL_OFFLOAD_HOST,
       "memory of the host; on cpu and c a second buffer outside the budget, for tests"})
WORDS(state_words, {"32", UL_STATE_32, NULL}, {"8", UL_STATE_8, NULL})
WORDS(master_words, {"f32", UL_MASTER_F32, NULL}, {"bf16-stochastic", UL_MASTER_STOCHASTIC, NULL})
WORDS(clip_words, {"keep", UL_CLIP_KEEP, NULL}, {"twice", UL_CLIP_TWICE, NULL})
WORDS(conv_words, {"best", UL_CONV_BEST, NULL}, {"direct", UL_CONV_DIRECT, NULL},
      {"winograd", UL_CONV_WINOGRAD, NULL})
WORDS(cudnn_words, {"auto", UL_CUDNN_AUTO, NULL}, {"on", UL_CUDNN_ON, NULL},
      {"off", UL_CUDNN_OFF, NULL}, {"found", UL_CUDNN_FOUND, NULL})

WORDS(streams_words, {"auto", UL_STREAMS_AUTO, "where a run is predicted to be 5 % shorter"},
      {"1", UL_STREAMS_ONE, "never"}, {"2", UL_STREAMS_TWO, "wherever it is"})
WORDS(offsets_words, {"largest", UL_OFFSETS_LARGEST, "where the largest sizes have it"},
      {"sizes", UL_OFFSETS_SIZES, "as low as the sizes of the run allow, in a library"})
WORDS(march_words, {"native", UL_MARCH_NATIVE, NULL}, {"none", UL_MARCH_NONE, NULL})

/* Names of rows of other tables. */
static struct ul_option_word target_words(uint32_t index)
{
    if (index >= ul_target_count())
        return no_word;
    const struct ul_target *target = ul_target_at(index);
    return (struct ul_option_word){.word = target->traits.name,
                                   .value = target == ul_target_default() ? 0 : index + 1,
                                   .what = target->traits.summary};
}

static struct ul_option_word pass_words(uint32_t index)
{
    bool exists = index < ul_passes_count();
    return (struct ul_option_word){.word = exists ? ul_passes_get(index)->name : NULL};
}

static struct ul_option_word dump_words(uint32_t index)
{
    static const struct ul_option_word all = {.word = UL_PASSES_ALL};
    return index == ul_passes_count() ? all : pass_words(index);
}

static struct ul_option_word profile_words(uint32_t index)
{
    bool exists = index < ul_profile_count();
    return (struct ul_option_word){.word = exists ? ul_profile_at(index)->name : NULL};
}

static struct ul_option_word isa_words(uint32_t index)
{
    return (struct ul_option_word){.word = ul_dnnl_isa_name(index)};
}

static struct ul_option_word quantize_words(uint32_t index)
{
    uint32_t bits = 0;
    const char *name = ul_quantize_type(index, &bits);
    return (struct ul_option_word){.word = name, .value = bits};
}

/* Only whether it computes matters: without it other algorithms run, with other bits. An open value
 * agrees. */
static bool cudnn_agrees(const char *said, const char *planned)
{
    bool says = strcmp(said, "on") == 0 || strcmp(said, "off") == 0;
    bool is_open = strcmp(planned, "auto") == 0;
    return !says || is_open || (strcmp(said, "off") == 0) == (strcmp(planned, "off") == 0);
}

unsigned ul_compile_word(const char *option, const char *said)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, option);
    UL_ASSERT(row != NULL && row->words != NULL);
    const struct ul_option_word word = ul_option_find_word(row, said);
    return word.word != NULL ? word.value : 0;
}

bool ul_compile_offloads(const struct ul_compile_options *options)
{
    return options->offload != NULL &&
           ul_compile_word("offload", options->offload) != UL_OFFLOAD_NONE;
}

static bool has_range(const struct ul_named_sizes *named)
{
    for (uint32_t i = 0; i < named->count; i++)
        for (uint32_t d = 0; d < named->items[i].rank; d++)
            if (named->items[i].spans[d] > 0)
                return true;
    return false;
}

bool ul_compile_has_ranges(const struct ul_compile_options *options)
{
    return has_range(&options->dims) || has_range(&options->shapes);
}

bool ul_compile_has_sets(const struct ul_compile_options *options)
{
    for (uint32_t i = 0; i < options->dims.count; i++)
        if (options->dims.items[i].value_count > 0)
            return true;
    return false;
}

/* One file is as fast as another. */
static bool offload_agrees(const char *said, const char *planned)
{
    return ul_compile_word("offload", said) == ul_compile_word("offload", planned);
}

/* Makes text for help from a number of a header. */
#define UL_OPTION_TEXT(number) UL_OPTION_LETTERS(number)
#define UL_OPTION_LETTERS(number) #number
static const struct ul_option rows[] = {
#define UL_OPTION(type, field, ...)                                                                \
    {.offset = offsetof(struct ul_compile_options, field), __VA_ARGS__},
#include "compile/options/options.def"
#undef UL_OPTION
};
_Static_assert(sizeof rows / sizeof *rows <= UL_OPTION_MAX, "raise UL_OPTION_MAX");

const struct ul_option_table ul_compile_option_table = {.count = sizeof rows / sizeof *rows,
                                                        .rows = rows};
