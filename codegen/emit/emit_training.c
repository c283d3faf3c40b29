/* SPDX-License-Identifier: Apache-2.0 */
/* What a program that trains has in addition: its table, struct ul_rt_training of
 * runtime/lib/ul_model.h, and the functions of its library form. */
#include "codegen/emit/emit_internal.h"
#include "ir/training.h"
#include "ir/view.h"

#include <inttypes.h>
#include <string.h>

enum { HEAD_BYTES = 64 }; /* of a checkpoint: runtime/lib/ul_train.h */

/* The number of the input or output of that name, as C. */
static const char *number_of(const struct ul_emitter *emitter, const ul_value_id *values,
                             uint32_t count, const char *name)
{
    const struct ul_graph *graph = emitter->program->graph;
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(graph->values[values[i]].name, name) == 0)
            return ul_arena_printf(emitter->arena, "%u", i);
    return "UL_TENSOR_NONE";
}

/* The weight that an output overwrites, if it outlasts a step; else UL_NONE. */
static ul_value_id changed_weight(const struct ul_graph *graph, uint32_t output)
{
    ul_value_id donor = graph->values[ul_graph_only_root(graph)->outputs[output]].donor;
    bool lasts = donor != UL_NONE && graph->values[donor].kind == UL_VALUE_WEIGHT &&
                 (graph->values[donor].flags & UL_VALUE_GRADIENT) == 0;
    return lasts ? donor : UL_NONE;
}

/* Bits of enum ul_rt_parameter_fact, as C. */
static const char *facts_of(const struct ul_value *weight)
{
    bool squares = (weight->flags & UL_VALUE_SQUARES) != 0;
    if ((weight->flags & UL_VALUE_CHANNELS_LAST) == 0)
        return squares ? "UL_RT_PARAMETER_SQUARES" : "0";
    return squares ? "UL_RT_PARAMETER_SQUARES | UL_RT_PARAMETER_CHANNELS_LAST"
                   : "UL_RT_PARAMETER_CHANNELS_LAST";
}

static uint32_t put_parameters(struct ul_emitter *emitter)
{
    const struct ul_graph *graph = emitter->program->graph;
    struct ul_text list;
    uint32_t count = 0;
    ul_text_init(&list, emitter->arena);
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->output_count; i++) {
        ul_value_id weight = changed_weight(graph, i);
        if (weight == UL_NONE)
            continue;
        const struct ul_type *type = &graph->values[weight].type;
        enum ul_dtype storage = graph->values[weight].storage;
        if (type->rank > 0)
            ul_text_printf(emitter->text, "static const int64_t parameter%u_dims[] = {", count);
        for (uint32_t d = 0; d < type->rank; d++)
            ul_text_printf(emitter->text, "%s%lld", d == 0 ? "" : ", ", (long long)type->dims[d]);
        ul_text_put(emitter->text, type->rank > 0 ? "};\n" : "");
        ul_text_put(&list, "    {");
        ul_emit_string(&list, graph->values[weight].name);
        ul_text_printf(&list, ", (enum ul_rt_type)%d, %u, ", (int)type->dtype, type->rank);
        ul_text_put(&list, type->rank > 0
                               ? ul_arena_printf(emitter->arena, "parameter%u_dims", count)
                               : "NULL");
        struct ul_emit_place home = ul_emit_home(emitter, emitter->program->value_places[weight]);
        ul_text_printf(&list, ", %" PRIu64 ", %" PRIu64 ", %s, (enum ul_rt_type)%d, %s},\n",
                       ul_value_bytes(graph, weight), home.offset_bytes,
                       ul_emit_space_name(home.space),
                       (int)(storage != UL_DTYPE_NONE ? storage : type->dtype),
                       facts_of(&graph->values[weight]));
        count++;
    }
    ul_text_printf(emitter->text, "static const struct ul_rt_parameter parameters[] = {\n%s};\n",
                   list.data);
    return count;
}

/* The number of the state in the table of parameters, as C. */
static const char *parameter_of(const struct ul_emitter *emitter, const char *name)
{
    const struct ul_graph *graph = emitter->program->graph;
    uint32_t count = 0;
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->output_count; i++) {
        ul_value_id weight = changed_weight(graph, i);
        if (weight != UL_NONE && (graph->values[weight].flags & UL_VALUE_OPTIMIZER) != 0 &&
            strcmp(graph->values[weight].name, name) == 0)
            return ul_arena_printf(emitter->arena, "%u", count);
        count += weight != UL_NONE;
    }
    return "UL_TENSOR_NONE";
}

static void put_rates(struct ul_emitter *emitter, const struct ul_training *training)
{
    static const char *const kinds[] = {
        [UL_RATE_STEP] = "STEP", [UL_RATE_COSINE] = "COSINE", [UL_RATE_WARMUP] = "WARMUP"};
    if (training->rate_count == 0)
        return;
    ul_text_put(emitter->text, "static const struct ul_rt_rate rates[] = {\n");
    for (uint32_t i = 0; i < training->rate_count; i++)
        ul_text_printf(emitter->text, "    {UL_RT_RATE_%s, %" PRIu64 ", %.17g},\n",
                       kinds[training->rates[i].kind], training->rates[i].steps,
                       training->rates[i].factor);
    ul_text_put(emitter->text, "};\n");
}

static void put_class_weights(struct ul_emitter *emitter, const struct ul_training *training)
{
    const struct ul_tensor *weights = training->class_weights;
    if (weights == NULL)
        return;
    ul_text_put(emitter->text, "static const double class_weights[] = {\n");
    for (uint32_t i = 0; i < training->class_count; i++)
        ul_text_printf(emitter->text, "    %.17g,\n", ul_tensor_get_float(weights, i));
    ul_text_put(emitter->text, "};\n");
}

static const char *loss_name(const struct ul_emitter *emitter, const struct ul_training *training)
{
    static const char *const names[] = {[UL_LOSS_CROSS_ENTROPY] = "softmax-cross-entropy",
                                        [UL_LOSS_MSE] = "mse",
                                        [UL_LOSS_BCE] = "bce"};
    if (training->loss == UL_LOSS_OUTPUT)
        return ul_arena_printf(emitter->arena, "output:%s", training->loss_output);
    return names[training->loss];
}

static const char *optimizer_name(enum ul_optimizer optimizer)
{
    static const char *const names[] = {[UL_OPTIMIZER_SGD] = "sgd",
                                        [UL_OPTIMIZER_MOMENTUM] = "momentum",
                                        [UL_OPTIMIZER_ADAM] = "adam",
                                        [UL_OPTIMIZER_ADAMW] = "adamw",
                                        [UL_OPTIMIZER_LION] = "lion",
                                        [UL_OPTIMIZER_ADAFACTOR] = "adafactor",
                                        [UL_OPTIMIZER_ADAM_MINI] = "adam-mini"};
    return names[optimizer];
}

/* One pattern for each line; NULL: none. */
static void put_frozen(struct ul_emitter *emitter, const struct ul_training *training)
{
    struct ul_text lines;
    ul_text_init(&lines, emitter->arena);
    for (uint32_t i = 0; i < training->freeze_count; i++)
        ul_text_printf(&lines, "%s%s", i == 0 ? "" : "\n", training->freeze[i]);
    ul_text_put(emitter->text, "    .frozen = ");
    if (training->freeze_count > 0)
        ul_emit_string(emitter->text, lines.data);
    else
        ul_text_put(emitter->text, "NULL");
    ul_text_put(emitter->text, ",\n");
}

void ul_emit_training(struct ul_emitter *emitter)
{
    const struct ul_training *training = emitter->program->options.training;
    const struct ul_graph *graph = emitter->program->graph;
    const struct ul_block *block = ul_graph_only_root(graph);
    struct ul_text *text = emitter->text;
    UL_ASSERT(training != NULL);
    uint32_t count = put_parameters(emitter);
    bool has_moments = training->optimizer != UL_OPTIMIZER_SGD &&
                       training->optimizer != UL_OPTIMIZER_MOMENTUM &&
                       training->optimizer != UL_OPTIMIZER_ADAFACTOR;
    const struct ul_type *data = &graph->values[block->inputs[0]].type;
    put_rates(emitter, training);
    put_class_weights(emitter, training);
    const char *where = emitter->language->runs_on_host ? "ul_train" : "ul_train_device";
    ul_text_printf(text,
                   "static const struct ul_rt_training training = {\n    .enter = %s_enter,\n"
                   "    .move = %s_reach,\n    .loss = ",
                   where, where);
    ul_emit_string(text, loss_name(emitter, training));
    ul_text_printf(text, ",\n    .optimizer = \"%s\",\n    .data = 0,\n    .labels = %s,\n",
                   optimizer_name(training->optimizer),
                   number_of(emitter, block->inputs, block->input_count, UL_TRAINING_LABELS));
    ul_text_printf(text, "    .step = %s,\n",
                   number_of(emitter, block->inputs, block->input_count, UL_TRAINING_STEP));
    ul_text_printf(text, "    .loss_output = %s,\n",
                   number_of(emitter, block->outputs, block->output_count, UL_TRAINING_LOSS));
    ul_text_printf(text, "    .correct_output = %s,\n",
                   number_of(emitter, block->outputs, block->output_count, UL_TRAINING_CORRECT));
    ul_text_printf(text,
                   "    .sample_count = %lld,\n    .micro_batches = %u,\n"
                   "    .learning_rate = %.17g,\n    .beta1 = %.17g,\n    .beta2 = %.17g,\n",
                   data->rank > 0 ? (long long)data->dims[0] : 1, training->micro_batches,
                   training->learning_rate, has_moments ? training->beta1 : 0,
                   has_moments ? training->beta2 : 0);
    if (training->rate_count > 0)
        ul_text_printf(text, "    .rates = rates,\n    .rate_count = %u,\n", training->rate_count);
    ul_text_printf(text,
                   "    .class_count = %u,\n    .ignore_index = %lld,\n"
                   "    .class_weights = %s,\n"
                   "    .has_batch_statistics = %s,\n"
                   "    .parameters = parameters,\n    .parameter_count = %u,\n"
                   "    .loss_scale = %s,\n    .taken_steps = %s,\n"
                   "    .lora_alpha = %.17g,\n    .quantize = ",
                   training->class_count, (long long)training->ignore_index,
                   training->class_weights != NULL ? "class_weights" : "NULL",
                   training->has_batch_statistics ? "true" : "false", count,
                   parameter_of(emitter, UL_TRAINING_SCALE),
                   parameter_of(emitter, UL_TRAINING_SCALE_STEPS),
                   training->lora_count > 0 ? training->lora_alpha : 0);
    if (training->quantize != NULL)
        ul_emit_string(text, training->quantize);
    else
        ul_text_put(text, "NULL");
    ul_text_put(text, ",\n");
    put_frozen(emitter, training);
    ul_text_put(text, "};\n\n");
}

/* ---- functions of the library ---- */

/* PREFIX_name is ul_train_name of runtime/lib/ul_train.h for this model. */
struct function {
    const char *name; /* in the library */
    const char *runtime;
    const char *arguments; /* after the arena or context */
    const char *passed;
    const char *comment; /* in model.h */
    bool scales;         /* only for models with a loss scale */
};

static const struct function functions[] = {
    {"train_step", "ul_train_step",
     "struct ul_trainer *trainer, const void *const *batch,\n"
     "    void *const *results, struct ul_failure *failure",
     "trainer, batch, results, failure",
     "/* One step on a batch, or on a micro-batch, whose last one updates: inputs and outputs by\n"
     " * number, as for a run; ullage.step is filled here. Results that lie in the arena may be "
     "NULL:\n"
     " * ask for the loss alone. Fails as a run does. */\n",
     false},
    {"eval", "ul_train_eval",
     "const void *const *batch, void *const *results,\n    struct ul_failure *failure",
     "batch, results, failure",
     "/* Loss and right answers of a (micro-)batch, between two steps; nothing is learned. By "
     "running "
     "\n * statistics, and nothing is dropped. Fails as a run does. */\n",
     false},
    {"save", "ul_train_save",
     "const struct ul_trainer *trainer, ul_write *write,\n"
     "    void *file, struct ul_failure *failure",
     "trainer, write, file, failure",
     "/* Writes what training changed, between updates. UL_CHECKPOINT_UNWRITTEN: `write` failed, "
     "or\n"
     " * a device's error. */\n",
     false},
    {"load", "ul_train_load",
     "struct ul_trainer *trainer, ul_read *read, void *file,\n"
     "    struct ul_failure *failure",
     "trainer, read, file, failure",
     "/* Goes on where that was saved, bit for bit; the arena was made ready. Reads it twice, so "
     "that\n"
     " * what is refused changes nothing: UL_CHECKPOINT_UNREADABLE (`read` failed), _INVALID "
     "(damaged,\n"
     " * or none), _OTHER (of another model or optimizer). */\n",
     false},
    {"loss_scale", "ul_train_loss_scale",
     "float *scale, int64_t *taken_steps,\n    struct ul_failure *failure",
     "scale, taken_steps, failure",
     "/* Between updates: the loss scale that the next step begins with, and how many steps were "
     "taken;\n * others were skipped, since a gradient was not finite. Fails by a device's error. "
     "*/\n",
     true}};

/* Whether this model has the function. */
static bool has_function(const struct ul_emitter *emitter, uint32_t function)
{
    return !functions[function].scales || emitter->program->options.training->loss_scale > 0;
}

static uint64_t checkpoint_bytes(const struct ul_emitter *emitter)
{
    const struct ul_graph *graph = emitter->program->graph;
    uint64_t bytes = HEAD_BYTES;
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->output_count; i++) {
        ul_value_id weight = changed_weight(graph, i);
        if (weight != UL_NONE)
            bytes += ul_value_bytes(graph, weight);
    }
    return bytes;
}

const char *ul_emit_training_text(struct ul_emitter *emitter)
{
    const char *handle = emitter->language->handle;
    const char *prefix = emitter->options->prefix;
    struct ul_text text;
    if (emitter->program->options.training == NULL)
        return "";
    ul_text_init(&text, emitter->arena);
    ul_text_printf(
        &text,
        "/* ---- training: a run is a step, forward, backward and update ----\n"
        " * Nothing is allocated; all state is the arena and the caller's trainer. */\n\n"
        "/* The bytes that %s_save writes. */\n#define %s_CHECKPOINT_BYTES UINT64_C(%" PRIu64
        ")\n\n/* A trainer that begins: at step 0, with seed 0 and the learning rate "
        "that was compiled in. */\nvoid %s_train_init(struct ul_trainer *trainer);\n\n",
        prefix, ul_emit_upper(emitter->arena, prefix), checkpoint_bytes(emitter), prefix);
    for (uint32_t i = 0; i < sizeof functions / sizeof *functions && has_function(emitter, i); i++)
        ul_text_printf(&text, "%sint %s_%s(%s, %s);\n\n", functions[i].comment, prefix,
                       functions[i].name, handle, functions[i].arguments);
    return text.data;
}

void ul_emit_training_functions(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix, *handle = emitter->language->handle;
    const char *name = strrchr(handle, '*') + 1;
    if (emitter->program->options.training == NULL)
        return;
    ul_text_printf(emitter->text,
                   "\nvoid %s_train_init(struct ul_trainer *trainer)\n{\n"
                   "    ul_train_init(&%s_model, trainer);\n}\n",
                   prefix, prefix);
    for (uint32_t i = 0; i < sizeof functions / sizeof *functions && has_function(emitter, i); i++)
        ul_text_printf(emitter->text,
                       "\nint %s_%s(%s, %s)\n{\n    return (int)%s(&%s_model, %s, %s);\n}\n",
                       prefix, functions[i].name, handle, functions[i].arguments,
                       functions[i].runtime, prefix, name, functions[i].passed);
}
