/* SPDX-License-Identifier: Apache-2.0 */
/* The settings of --train: options that say how a program learns, with torch's defaults. */
#include "compile/compile_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Beyond it, doubles cannot count. */
#define MAX_STEPS (UINT64_C(1) << 53)

#define MIN_LOSS_SCALE 0x1p-126 /* float32 has its reciprocal */
#define MAX_LOSS_SCALE 0x1p127

enum { LOSS_SCALE = 65536, GROWTH_INTERVAL = 2000 }; /* torch's */

/* A number that the caller gave, or the default of its optimizer. */
static double number_or(const struct ul_compile *compile, const char *name, double said,
                        double otherwise)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, name);
    UL_ASSERT(row != NULL);
    return ul_option_is_set(&compile->options.base, row) ? said : otherwise;
}

static bool is_given(const struct ul_compile *compile, const char *name)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, name);
    UL_ASSERT(row != NULL);
    return ul_option_is_given(&compile->options.base, row);
}

/* Options of training without --train are a mistake. */
static enum ul_status refuse_options(struct ul_compile *compile)
{
    if (compile->options.precision == UL_PRECISION_AMP_F16)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--precision amp-fp16 is for training; give --train too, or fp16");
    for (uint32_t i = 0; i < ul_compile_option_table.count; i++) {
        const struct ul_option *row = &ul_compile_option_table.rows[i];
        if (row->group == UL_GROUP_TRAINING && ul_option_is_given(&compile->options.base, row))
            return ul_diag_set(&compile->diag, UL_USAGE, "--%s is for training; give --train too",
                               row->name);
    }
    return UL_OK;
}

static enum ul_status read_loss(struct ul_compile *compile, struct ul_training *training)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, "loss");
    const char *text = compile->options.loss;
    struct ul_nearest nearest = {.word = text};
    struct ul_text words;
    if (text == NULL)
        return UL_OK; /* softmax-cross-entropy, which is 0 */
    UL_ASSERT(row != NULL && row->words != NULL);
    const struct ul_option_word word = ul_option_find_word(row, text);
    training->loss = (enum ul_loss)word.value;
    if (training->loss == UL_LOSS_OUTPUT)
        training->loss_output = strchr(text, ':') + 1;
    if (word.word != NULL)
        return UL_OK;
    ul_text_init(&words, &compile->keep);
    ul_option_put_words(&words, row);
    ul_option_offer_words(&nearest, row);
    return ul_diag_set(&compile->diag, UL_USAGE, "--loss %s: expected %s%s",
                       ul_option_shown(&compile->keep, text), words.data,
                       ul_nearest_text(&compile->keep, &nearest, ""));
}

static enum ul_status read_paddings(struct ul_compile *compile, struct ul_training *training)
{
    const struct ul_pairs *pairs = &compile->options.paddings;
    struct ul_padding *list = UL_NEW_ARRAY(&compile->keep, struct ul_padding, pairs->count);
    for (uint32_t i = 0; i < pairs->count; i++) {
        const char *text = pairs->items[i].value;
        char *end = NULL;
        errno = 0;
        list[i] = (struct ul_padding){pairs->items[i].name, strtoll(text, &end, 10)};
        bool begins = (*text >= '0' && *text <= '9') || *text == '-';
        if (!begins || errno != 0 || *end != '\0')
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "--padding-idx %s=%s: expected a table and the number of a row, as "
                               "in emb.weight=0",
                               ul_option_shown(&compile->keep, pairs->items[i].name),
                               ul_option_shown(&compile->keep, text));
    }
    training->paddings = list;
    training->padding_count = pairs->count;
    return UL_OK;
}

/* RANK:PATTERN */
static bool read_factors(const char *text, struct ul_lora *lora)
{
    char *end = NULL;
    unsigned long rank = *text >= '1' && *text <= '9' ? strtoul(text, &end, 10) : 0;
    if (rank == 0 || rank > INT32_MAX || *end != ':' || end[1] == '\0')
        return false;
    *lora = (struct ul_lora){.pattern = end + 1, .rank = (uint32_t)rank};
    return true;
}

static enum ul_status read_lora(struct ul_compile *compile, struct ul_training *training)
{
    const struct ul_texts *texts = &compile->options.lora;
    struct ul_lora *list = UL_NEW_ARRAY(&compile->keep, struct ul_lora, texts->count);
    for (uint32_t i = 0; i < texts->count; i++)
        if (!read_factors(texts->items[i], &list[i]))
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "--lora %s: expected RANK:PATTERN, a rank of at least 1 and names "
                               "of weights, as in 8:*attn*",
                               ul_option_shown(&compile->keep, texts->items[i]));
    training->lora = list;
    training->lora_count = texts->count;
    training->lora_alpha = number_or(compile, "lora-alpha", compile->options.lora_alpha, 8);
    training->lora_seed = compile->options.lora_seed;
    if (texts->count == 0 && (is_given(compile, "lora-alpha") || is_given(compile, "lora-seed")))
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--lora-alpha and --lora-seed are for factors: give --lora too");
    return UL_OK;
}

/* In the form of a checkpoint, which has these options next to the factors. */
static enum ul_status join_quantize(struct ul_compile *compile, struct ul_training *training)
{
    const struct ul_texts *texts = &compile->options.quantize;
    struct ul_text text;
    ul_text_init(&text, &compile->keep);
    for (uint32_t i = 0; i < texts->count; i++)
        ul_text_printf(&text, "%s%s", i == 0 ? "" : "\n", texts->items[i]);
    training->quantize = texts->count > 0 ? text.data : NULL;
    if (texts->count == 0 || text.length < UL_TRAINING_QUANTIZE_BYTES)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_USAGE,
                       "--quantize: in a checkpoint there is room for %d characters of patterns: "
                       "give fewer or shorter ones",
                       UL_TRAINING_QUANTIZE_BYTES - 1);
}

/* Reads the numbers of one part of --schedule: N steps and, for `step`, a factor. */
static bool read_rate(const char *text, struct ul_rate *rate)
{
    char *end = NULL;
    if (*text < '1' || *text > '9')
        return false;
    rate->steps = strtoull(text, &end, 10);
    if (rate->steps > MAX_STEPS)
        return false;
    if (rate->kind != UL_RATE_STEP)
        return *end == '\0';
    if (*end != ':')
        return false;
    text = end + 1;
    rate->factor = strtod(text, &end);
    return end != text && *end == '\0' && rate->factor >= 0 && isfinite(rate->factor);
}

static enum ul_status refuse_rate(struct ul_compile *compile, const struct ul_option *row,
                                  const char *part)
{
    struct ul_text words;
    ul_text_init(&words, &compile->keep);
    ul_option_put_words(&words, row);
    return ul_diag_set(&compile->diag, UL_USAGE,
                       "--schedule %s: expected %s, of at most 2^53 steps, F of at least 0",
                       ul_option_shown(&compile->keep, part), words.data);
}

static enum ul_status read_schedule(struct ul_compile *compile, struct ul_training *training)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, "schedule");
    const char *at = compile->options.schedule;
    struct ul_rate *rates = NULL;
    uint32_t capacity = 0;
    while (at != NULL && *at != '\0') {
        size_t length = strcspn(at, ",");
        const char *part = ul_arena_printf(&compile->keep, "%.*s", (int)length, at);
        const struct ul_option_word word = ul_option_find_word(row, part);
        struct ul_rate rate = {.kind = (enum ul_rate_kind)word.value, .factor = 1};
        at += length + (at[length] == ',');
        if (word.word != NULL && word.value == UL_RATE_CONSTANT)
            continue;
        if (word.word == NULL || !read_rate(strchr(part, ':') + 1, &rate))
            return refuse_rate(compile, row, part);
        UL_GROW(&compile->keep, rates, training->rate_count, capacity);
        rates[training->rate_count++] = rate;
    }
    training->rates = rates;
    return UL_OK;
}

/* "sgd, momentum and adam", for those whose bits are set. */
static const char *optimizer_names(struct ul_compile *compile, uint32_t optimizers)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, "optimizer");
    struct ul_option_word word;
    struct ul_text names;
    ul_text_init(&names, &compile->keep);
    for (uint32_t i = 0; (word = row->words(i)).word != NULL; i++) {
        bool is_first = names.length == 0, is_last = optimizers >> word.value == 1;
        if ((optimizers >> word.value & 1) != 0)
            ul_text_printf(&names, "%s%s", is_first ? "" : is_last ? " and " : ", ", word.word);
    }
    return names.data;
}

/* Refuses options that the optimizer does not use. */
static enum ul_status check_optimizer(struct ul_compile *compile)
{
    enum {
        adams = 1u << UL_OPTIMIZER_ADAM | 1u << UL_OPTIMIZER_ADAMW,
        mini = 1u << UL_OPTIMIZER_ADAM_MINI,
        lion = 1u << UL_OPTIMIZER_LION,
        sgds = 1u << UL_OPTIMIZER_SGD | 1u << UL_OPTIMIZER_MOMENTUM,
        factor = 1u << UL_OPTIMIZER_ADAFACTOR
    };
    static const struct {
        const char *option;
        uint32_t optimizers; /* as bits */
    } rows[] = {{"momentum", 1u << UL_OPTIMIZER_MOMENTUM},
                {"nesterov", 1u << UL_OPTIMIZER_MOMENTUM},
                {"beta1", adams | lion | mini},
                {"beta2", adams | lion | mini},
                {"state-bits", adams | lion},
                {"master", adams | lion | sgds},
                {"eps", adams | mini | factor},
                {"beta2-decay", factor},
                {"eps2", factor},
                {"clip-update", factor}};
    for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (is_given(compile, rows[i].option) &&
            (rows[i].optimizers & 1u << compile->options.optimizer) == 0)
            return ul_diag_set(&compile->diag, UL_USAGE, "--%s is for --optimizer %s",
                               rows[i].option, optimizer_names(compile, rows[i].optimizers));
    return UL_OK;
}

/* Refuses options that the loss does not use. */
static enum ul_status check_loss(struct ul_compile *compile, const struct ul_training *training)
{
    static const char *const names[] = {"label-smoothing", "ignore-index", "class-axis",
                                        "class-weights"};
    for (uint32_t i = 0; i < sizeof names / sizeof *names; i++)
        if (training->loss != UL_LOSS_CROSS_ENTROPY && is_given(compile, names[i]))
            return ul_diag_set(&compile->diag, UL_USAGE, "--%s is for --loss softmax-cross-entropy",
                               names[i]);
    if (training->label_smoothing > 1)
        return ul_diag_set(&compile->diag, UL_USAGE, "--label-smoothing is a part, from 0 to 1");
    return UL_OK;
}

/* micro_batches.c has chosen it where there was something to choose by. */
static enum ul_status check_parts(struct ul_compile *compile)
{
    if (!is_given(compile, "micro-batches") || compile->options.micro_batches != 0)
        return UL_OK;
    return ul_diag_set(
        &compile->diag, UL_USAGE,
        "--micro-batches auto is chosen by a budget: give a number, or --budget SIZE "
        "to ullage plan or compile");
}

static enum ul_status check_clipping(struct ul_compile *compile, const struct ul_training *training)
{
    if (training->micro_batches > 1 && training->clip_mode == UL_CLIP_TWICE)
        return ul_diag_set(
            &compile->diag, UL_USAGE,
            "--clip-mode twice keeps no gradients, and --micro-batches adds them up: "
            "leave one of them out");
    if (training->loss_scale > 0 && training->clip_mode == UL_CLIP_TWICE)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--clip-mode twice keeps no gradients, and a loss scale keeps all until "
                           "the last is known to be finite: leave one of them out");
    if (is_given(compile, "clip-mode") && !is_given(compile, "clip-norm"))
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--clip-mode says how the norm of --clip-norm is taken: give both");
    return UL_OK;
}

static enum ul_status check_scale(struct ul_compile *compile, const struct ul_training *training)
{
    if (is_given(compile, "growth-interval") && !(training->loss_scale > 0))
        return ul_diag_set(
            &compile->diag, UL_USAGE,
            "--growth-interval says when a loss scale doubles: give --precision amp-fp16 "
            "or --loss-scale");
    if (training->loss_scale > MAX_LOSS_SCALE ||
        (training->loss_scale > 0 && training->loss_scale < MIN_LOSS_SCALE))
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--loss-scale is a float32, of at least 2^-126 and at most 2^127");
    return UL_OK;
}

static enum ul_status check_master(struct ul_compile *compile)
{
    if (compile->options.master == UL_MASTER_F32 || compile->options.precision == UL_PRECISION_BF16)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_USAGE,
                       "--master bf16-stochastic is for --precision bf16: give both");
}

static enum ul_status check_betas(struct ul_compile *compile, const struct ul_training *training)
{
    if (training->beta1 >= 1 || training->beta2 >= 1)
        return ul_diag_set(&compile->diag, UL_USAGE, "--beta1 and --beta2 are below 1");
    return UL_OK;
}

/* --checkpoint takes a choice from the planner. */
static enum ul_status check_checkpoint(struct ul_compile *compile)
{
    const char *other = is_given(compile, "remat")              ? "--remat"
                        : compile->options.pack == UL_PACK_NONE ? "--pack none"
                                                                : NULL;
    if (compile->options.checkpoint == NULL || other == NULL)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_USAGE,
                       "--checkpoint and %s both say what is made again: leave one of them out",
                       other);
}

/* Refuses options of other programs that a program that trains decides itself. */
static enum ul_status check_others(struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    if (options->donations.count > 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--donate: outputs of a program that trains are its loss and the "
                           "parameters that it updates in place; leave it out with --train");
    if (options->weights == UL_WEIGHTS_ROM)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "--weights rom: a program that trains writes its weights; leave it out "
                           "with --train");
    if (options->quantize.count > 0 && options->lora.count == 0)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "--quantize: weights are trained in floats; with --lora RANK:PATTERN "
                           "they stay, of few bits, and factors beside them are trained");
    if (options->precision == UL_PRECISION_F16)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "--precision fp16: gradients leave its range; train with --precision "
                           "amp-fp16, which scales the loss, or bf16");
    return UL_OK;
}

static enum ul_status read_class_weights(struct ul_compile *compile, struct ul_training *training)
{
    const char *path = compile->options.class_weights;
    const struct ul_tensor *tensor;
    if (path == NULL)
        return UL_OK;
    UL_TRY(ul_tensor_read_file(&compile->keep, path, &tensor, &compile->diag));
    bool fits =
        tensor->type.rank == 1 && (tensor->type.dtype == UL_F32 || tensor->type.dtype == UL_F64);
    for (uint64_t i = 0; fits && i < ul_type_elements(&tensor->type); i++) {
        double weight = ul_tensor_get_float(tensor, i);
        fits = weight >= 0 && isfinite(weight);
    }
    if (!fits)
        return ul_diag_set(&compile->diag, UL_INVALID,
                           "--class-weights %s: expected one float a class, of at least 0",
                           ul_option_shown(&compile->keep, path));
    training->class_weights = tensor;
    return UL_OK;
}

enum ul_status ul_compile_read_training(struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    struct ul_training *training = &compile->training;
    bool is_lion = options->optimizer == UL_OPTIMIZER_LION;
    bool is_factor = options->optimizer == UL_OPTIMIZER_ADAFACTOR;
    bool is_adamw = options->optimizer == UL_OPTIMIZER_ADAMW;
    if (!options->train)
        return refuse_options(compile);
    *training = (struct ul_training){
        .optimizer = options->optimizer,
        .label_smoothing = options->label_smoothing,
        .nesterov = options->nesterov,
        .master = options->master,
        .state_bits = options->state_bits,
        .no_decay_1d = options->no_decay_1d,
        .train_mode = options->train_mode,
        .micro_batches = options->micro_batches != 0 ? (uint32_t)options->micro_batches : 1,
        .clip_value = options->clip_value,
        .clip_norm = options->clip_norm,
        .clip_mode = options->clip_mode,
        .loss_scale = options->loss_scale > 0                      ? options->loss_scale
                      : options->precision == UL_PRECISION_AMP_F16 ? LOSS_SCALE
                                                                   : 0,
        .growth_interval =
            options->growth_interval != 0 ? options->growth_interval : GROWTH_INTERVAL,
        .freeze = options->freeze.items,
        .freeze_count = options->freeze.count,
        .lost = compile->model.lost,
        .lost_count = compile->model.lost_count,
        .stop_gradients = options->stop_gradients.items,
        .stop_gradient_count = options->stop_gradients.count,
        .train_only = options->train_only.items,
        .train_only_count = options->train_only.count,
        .ignore_index = is_given(compile, "ignore-index") ? options->ignore_index : -100,
        .class_axis =
            is_given(compile, "class-axis") ? options->class_axis : UL_TRAINING_AXIS_OPEN};
    training->learning_rate = number_or(compile, "lr", options->learning_rate,
                                        is_lion     ? 1e-4
                                        : is_factor ? 1e-2
                                                    : 1e-3);
    training->momentum = number_or(compile, "momentum", options->momentum, 0.9);
    training->beta1 = number_or(compile, "beta1", options->beta1, 0.9);
    training->beta2 = number_or(compile, "beta2", options->beta2, is_lion ? 0.99 : 0.999);
    training->eps =
        number_or(compile, "eps", options->eps, is_factor ? UL_TRAINING_EPS_OPEN : 1e-8);
    training->beta2_decay = number_or(compile, "beta2-decay", options->beta2_decay, 0.8);
    training->eps2 = number_or(compile, "eps2", options->eps2, 1e-3);
    training->clip_update = number_or(compile, "clip-update", options->clip_update, 1);
    training->weight_decay =
        number_or(compile, "weight-decay", options->weight_decay, is_adamw ? 0.01 : 0);
    UL_TRY(read_loss(compile, training));
    UL_TRY(read_schedule(compile, training));
    UL_TRY(read_paddings(compile, training));
    UL_TRY(read_lora(compile, training));
    UL_TRY(join_quantize(compile, training));
    UL_TRY(check_optimizer(compile));
    UL_TRY(check_loss(compile, training));
    UL_TRY(check_parts(compile));
    UL_TRY(check_clipping(compile, training));
    UL_TRY(check_scale(compile, training));
    UL_TRY(check_master(compile));
    UL_TRY(check_betas(compile, training));
    UL_TRY(check_others(compile));
    UL_TRY(check_checkpoint(compile));
    return read_class_weights(compile, training);
}
