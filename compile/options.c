/* SPDX-License-Identifier: Apache-2.0 */
/* The table of options, and the lists of words that some of them take. */
#include "codegen/cpu/dnnl.h"
#include "compile/compile.h"
#include "planner/model/effort.h"

#include <string.h>

struct word {
    const char *word;
    unsigned value;
};

static const char *word_at(const struct word *words, uint32_t count, uint32_t index,
                           unsigned *value)
{
    if (index >= count)
        return NULL;
    *value = words[index].value;
    return words[index].word;
}

/* A function over a list of words, as struct ul_option has it. */
#define WORDS(name, ...)                                                                           \
    static const char *name(uint32_t index, unsigned *value)                                       \
    {                                                                                              \
        static const struct word words[] = {__VA_ARGS__};                                          \
        return word_at(words, sizeof words / sizeof *words, index, value);                         \
    }

WORDS(weights_words, {"arena", UL_WEIGHTS_ARENA}, {"rom", UL_WEIGHTS_ROM},
      {"file", UL_WEIGHTS_FILE})
WORDS(budget_words, {"process", UL_BUDGET_PROCESS}, {"arena", UL_BUDGET_ARENA})
WORDS(io_words, {"arena", UL_IO_ARENA}, {"caller", UL_IO_CALLER})
#define ORDER_WORD(constant, name, ...) {name, UL_ORDER_##constant},
#define REMAT_WORD(constant, name, ...) {name, UL_REMAT_##constant},
#define PACK_WORD(constant, name, ...) {name, UL_PACK_##constant},
WORDS(order_words, UL_ORDER_METHODS(ORDER_WORD, ORDER_WORD))
WORDS(remat_words, UL_REMAT_METHODS(REMAT_WORD, REMAT_WORD))
WORDS(pack_words, UL_PACK_METHODS(PACK_WORD, PACK_WORD))
WORDS(precision_words, {"fp32", UL_PRECISION_F32}, {"fp16", UL_PRECISION_F16},
      {"bf16", UL_PRECISION_BF16}, {"amp-fp16", UL_PRECISION_AMP_F16})
WORDS(calibration_words, {"minmax", UL_CALIBRATION_MINMAX},
      {"percentile", UL_CALIBRATION_PERCENTILE}, {"entropy", UL_CALIBRATION_ENTROPY})
WORDS(optimizer_words, {"sgd", UL_OPTIMIZER_SGD}, {"momentum", UL_OPTIMIZER_MOMENTUM},
      {"adam", UL_OPTIMIZER_ADAM}, {"adamw", UL_OPTIMIZER_ADAMW}, {"lion", UL_OPTIMIZER_LION},
      {"adafactor", UL_OPTIMIZER_ADAFACTOR}, {"adam-mini", UL_OPTIMIZER_ADAM_MINI})
WORDS(loss_words, {"softmax-cross-entropy", UL_LOSS_CROSS_ENTROPY}, {"mse", UL_LOSS_MSE},
      {"bce", UL_LOSS_BCE})
WORDS(state_words, {"32", UL_STATE_32}, {"8", UL_STATE_8})
WORDS(master_words, {"f32", UL_MASTER_F32}, {"bf16-stochastic", UL_MASTER_STOCHASTIC})
WORDS(clip_words, {"keep", UL_CLIP_KEEP}, {"twice", UL_CLIP_TWICE})
WORDS(conv_words, {"best", UL_CONV_BEST}, {"direct", UL_CONV_DIRECT},
      {"winograd", UL_CONV_WINOGRAD})
WORDS(cudnn_words, {"auto", UL_CUDNN_AUTO}, {"on", UL_CUDNN_ON}, {"off", UL_CUDNN_OFF},
      {"found", UL_CUDNN_FOUND})

/* Names that are rows of other tables. */
static const char *target_words(uint32_t index, unsigned *value)
{
    *value = index;
    return index < ul_target_count() ? ul_target_at(index)->traits.name : NULL;
}

static const char *pass_words(uint32_t index, unsigned *value)
{
    *value = index;
    return index < ul_passes_count() ? ul_passes_get(index)->name : NULL;
}

static const char *profile_words(uint32_t index, unsigned *value)
{
    *value = index;
    return index < ul_profile_count() ? ul_profile_at(index)->name : NULL;
}

static const char *isa_words(uint32_t index, unsigned *value)
{
    *value = index;
    return ul_dnnl_isa_name(index);
}

/* That it computes or does not: without it other algorithms run, of other bits. Who leaves it open
 * says nothing. */
static bool cudnn_agrees(const char *said, const char *planned)
{
    bool says = strcmp(said, "on") == 0 || strcmp(said, "off") == 0;
    bool is_open = strcmp(planned, "auto") == 0;
    return !says || is_open || (strcmp(said, "off") == 0) == (strcmp(planned, "off") == 0);
}

bool ul_compile_offloads(const struct ul_compile_options *options)
{
    return options->offload != NULL && strcmp(options->offload, "none") != 0;
}

bool ul_compile_offloads_to_host(const char *offload)
{
    return strcmp(offload, "host") == 0;
}

/* One file is as fast as another. */
static bool offload_agrees(const char *said, const char *planned)
{
    return (strcmp(said, "none") == 0) == (strcmp(planned, "none") == 0) &&
           ul_compile_offloads_to_host(said) == ul_compile_offloads_to_host(planned);
}

/* A number of a header in a help text. */
#define UL_OPTION_TEXT(number) UL_OPTION_LETTERS(number)
#define UL_OPTION_LETTERS(number) #number
static const struct ul_option rows[] = {
#define UL_OPTION(type, field, ...)                                                                \
    {.offset = offsetof(struct ul_compile_options, field), __VA_ARGS__},
#include "compile/options.def"
#undef UL_OPTION
};
_Static_assert(sizeof rows / sizeof *rows <= UL_OPTION_MAX, "raise UL_OPTION_MAX");

const struct ul_option_table ul_compile_option_table = {.count = sizeof rows / sizeof *rows,
                                                        .rows = rows};

struct ul_plan_options ul_compile_planning(const struct ul_compile_options *options)
{
    return (struct ul_plan_options){.pack = options->pack,
                                    .order = options->order,
                                    .remat = options->remat,
                                    .alignment_bytes = options->align_bytes,
                                    .budget_bytes = options->budget_bytes,
                                    .seed = options->seed,
                                    .time_limit_seconds = options->time_limit_seconds};
}
