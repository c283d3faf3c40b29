/* SPDX-License-Identifier: Apache-2.0 */
/* What is trained: which initializers of the model are parameters.
 *
 * Problem: a model file does not tell parameters from bounds, tables and factors that its exporter
 * wrote as initializers too. Method: a float initializer is a parameter, unless a pattern says
 * otherwise or
 *     every reader has it where an operator wants no parameter (its row's fixed_inputs: a bound, a
 *         ratio, running statistics, tables of angles),
 *     it is one number, of any rank, between numbers of a formula: an epsilon, a scale. A slope, a
 *         bias of an operator, and what stands beside a product of one column are parameters,
 *     its elements are 0 and what no sum comes back from: a mask.
 * Where the exporter says in the file what parameters are (frontend/record.c), they are these.
 * Factors of --lora are parameters, and beside them nothing but what --train-only names.
 * Values of Constant nodes never are. Parameters are state from here on: nothing folds them. What
 * no gradient reaches is a constant again once that is known (gradient.c). */
#include "ir/op.h"
#include "ir/training.h"
#include "passes/passes_internal.h"

#include <string.h>

/* Patterns that match nothing are mistakes. */
static enum ul_status check_patterns(const struct ul_pass *pass, const char *option,
                                     const char *const *patterns, uint32_t count)
{
    const struct ul_training *training = pass->options->training;
    for (uint32_t i = 0; i < count; i++) {
        bool found = false;
        for (uint32_t v = 0; !found && v < pass->graph->value_count; v++)
            found = pass->graph->values[v].kind == UL_VALUE_WEIGHT &&
                    ul_edit_matches(patterns[i], pass->graph->values[v].name);
        for (uint32_t k = 0; !found && k < training->lost_count; k++)
            found = ul_edit_matches(patterns[i], training->lost[k]);
        if (!found)
            return ul_diag_set(pass->diag, UL_USAGE, "%s %s: no initializer has such a name",
                               option, ul_quote(pass->scratch, patterns[i]));
    }
    return UL_OK;
}

/* What readers show of a value. */
enum { READ = 1, READ_AS_ONE = 2, READ_IN_PRODUCT = 4 };

/* A product of one column: the single number beside it is its bias or its scale. */
static bool is_column(const struct ul_graph *graph, ul_value_id value)
{
    ul_node_id id = value != UL_NONE ? graph->values[value].producer : UL_NONE;
    if (id == UL_NONE || (ul_op_get(graph->nodes[id].op)->flags & UL_OP_MULTIPLIES) == 0)
        return false;
    const struct ul_value *factor = &graph->values[graph->nodes[id].inputs[1]];
    const struct ul_type *type = &factor->type;
    return factor->kind == UL_VALUE_WEIGHT && type->rank > 0 && type->dims[type->rank - 1] == 1;
}

/* Whether one number may be a parameter there. Elementwise operators and those that move elements
 * read factors of formulas. */
static bool takes_one(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    if ((row->flags & UL_OP_ELEMENTWISE) == 0)
        return row->map == NULL;
    if ((row->flags & UL_OP_COMMUTES) != 0 && is_column(graph, node->inputs[1 - input]))
        return true;
    return input < 32 && (row->slope_inputs & 1u << input) != 0;
}

/* Elementwise with something that is no product, of which it would be a bias; or handed on. */
static bool is_arithmetic(const struct ul_graph *graph, const struct ul_node *node, uint32_t input)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    bool moves = row->map != NULL && row->view != NULL;
    if ((row->flags & UL_OP_ELEMENTWISE) == 0)
        return moves || (row->flags & UL_OP_JOINS) != 0;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const struct ul_value *other =
            i == input || node->inputs[i] == UL_NONE ? NULL : &graph->values[node->inputs[i]];
        if (other != NULL && other->kind == UL_VALUE_NODE &&
            (ul_op_get(graph->nodes[other->producer].op)->flags & UL_OP_MULTIPLIES) != 0)
            return false;
    }
    return input >= 32 || (row->slope_inputs & 1u << input) == 0;
}

/* Per value: what readers show of it. */
static unsigned char *find_readers(const struct ul_pass *pass)
{
    const struct ul_graph *graph = pass->graph;
    unsigned char *reads = UL_NEW_ARRAY(pass->scratch, unsigned char, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; node->op != UL_OP_NONE && i < node->input_count; i++) {
            if (node->inputs[i] == UL_NONE ||
                (i < 32 && (ul_op_get(node->op)->fixed_inputs & 1u << i) != 0))
                continue;
            reads[node->inputs[i]] |= READ;
            if (takes_one(graph, node, i))
                reads[node->inputs[i]] |= READ_AS_ONE;
            if (!is_arithmetic(graph, node, i))
                reads[node->inputs[i]] |= READ_IN_PRODUCT;
        }
    }
    return reads;
}

/* Added before a Softmax it hides places: 0, and -10000 or less. */
static bool is_mask(const struct ul_value *value)
{
    uint64_t count = ul_type_elements(&value->type), hidden = 0;
    if (value->tensor->data == NULL)
        return false;
    for (uint64_t i = 0; i < count; i++) {
        double number = ul_tensor_get_float(value->tensor, i);
        if (!(number == 0 || number <= -1e4))
            return false;
        hidden += number != 0;
    }
    return hidden > 0;
}

/* The model's inputs are given a micro-batch at a time. */
static enum ul_status cut_inputs(const struct ul_pass *pass)
{
    const struct ul_graph *graph = pass->graph;
    uint32_t parts = pass->options->training->micro_batches;
    for (uint32_t i = 0; parts > 1 && i < ul_graph_only_root(graph)->input_count; i++) {
        struct ul_value *input = &graph->values[ul_graph_only_root(graph)->inputs[i]];
        if (input->type.rank == 0 || input->type.dims[0] % parts != 0)
            return ul_diag_set(pass->diag, UL_USAGE,
                               "--micro-batches %u: the first dimension of the input %s is not "
                               "that many times the same number of samples",
                               (unsigned)parts, ul_quote(pass->scratch, input->name));
        input->type.dims[0] /= parts;
    }
    return UL_OK;
}

/* Names that training gives to values of its own are no other ones'. */
static enum ul_status check_inputs(const struct ul_pass *pass)
{
    const struct ul_graph *graph = pass->graph;
    for (uint32_t i = 0; i < ul_graph_only_root(graph)->input_count; i++) {
        const char *name = graph->values[ul_graph_only_root(graph)->inputs[i]].name;
        if (strcmp(name, UL_TRAINING_STEP) == 0)
            return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                               "--train: the model has an input \"%s\", as training makes one: "
                               "rename it",
                               name);
        if (strcmp(name, UL_TRAINING_LABELS) == 0 &&
            pass->options->training->loss != UL_LOSS_OUTPUT)
            return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                               "--train: the model has an input \"%s\", as --loss makes one: "
                               "rename it, or, where the model computes its loss, give --loss "
                               "output:NAME",
                               name);
    }
    return UL_OK;
}

static bool is_weight(const struct ul_graph *graph, const char *name, size_t length)
{
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (graph->values[v].kind == UL_VALUE_WEIGHT && strlen(graph->values[v].name) == length &&
            memcmp(graph->values[v].name, name, length) == 0)
            return true;
    return false;
}

/* NAME/momentum, NAME/exp_avg/absmax and the like, and what a step or its loss scale adds up. */
static bool has_state_name(const struct ul_graph *graph, const char *name)
{
    static const char *const names[] = {UL_TRAINING_LOSS_SUM, UL_TRAINING_LOSS_WEIGHT,
                                        UL_TRAINING_SCALE, UL_TRAINING_SCALE_TRACKER,
                                        UL_TRAINING_SCALE_STEPS};
    size_t length = ul_training_find_owner(name);
    bool found = length > 0 && is_weight(graph, name, length);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || strcmp(name, names[i]) == 0;
    return found;
}

static enum ul_status check_state_names(const struct ul_pass *pass)
{
    for (uint32_t v = 0; v < pass->graph->value_count; v++) {
        const struct ul_value *value = &pass->graph->values[v];
        if ((value->flags & UL_VALUE_TRAINED) != 0 && has_state_name(pass->graph, value->name))
            return ul_diag_set(pass->diag, UL_UNSUPPORTED,
                               "--train: the parameter %s is called as a state of training is: "
                               "rename it, or --freeze it",
                               ul_quote(pass->scratch, value->name));
    }
    return UL_OK;
}

static bool is_factor(const struct ul_training *training, uint32_t value)
{
    for (uint32_t i = 0; i < training->factor_count; i++)
        if (training->factors[i] == value)
            return true;
    return false;
}

/* The options have it trained: no --freeze names it, and a --train-only does where there is one. */
static bool is_asked_for(const struct ul_training *training, const char *name)
{
    if (ul_edit_matches_any(training->freeze, training->freeze_count, name))
        return false;
    return (training->train_only_count == 0 && training->lora_count == 0) ||
           ul_edit_matches_any(training->train_only, training->train_only_count, name);
}

/* A parameter that the exporter has made something else of would not be trained. */
static enum ul_status check_lost(const struct ul_pass *pass)
{
    const struct ul_training *training = pass->options->training;
    const char *first = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < training->lost_count; i++)
        if (is_asked_for(training, training->lost[i])) {
            first = first == NULL ? training->lost[i] : first;
            count++;
        }
    if (count == 0)
        return UL_OK;
    return ul_diag_set(
        pass->diag, UL_UNSUPPORTED,
        "--train: the exporter has made constants of parameters, or left them out: %s%s, which its "
        "record in the file names, %s no initializer%s of it, so that another network would be "
        "trained. Export it as it is trained (" UL_TRAINING_RECIPE
        ") and give --train-mode; or --freeze such names, to train without them",
        ul_quote(pass->scratch, first),
        count > 1 ? ul_arena_printf(pass->scratch, " and %u more", (unsigned)count - 1) : "",
        count > 1 ? "are" : "is", ul_plural(count));
}

/* Beside factors of --lora what --train-only names alone. */
static bool is_parameter(const struct ul_training *training, const struct ul_value *value,
                         unsigned char reads)
{
    enum ul_dtype dtype = value->type.dtype;
    bool is_float = dtype == UL_F32 || dtype == UL_F64;
    if (value->kind != UL_VALUE_WEIGHT || (value->flags & UL_VALUE_TRAINED) == 0 || !is_float ||
        ul_edit_matches_any(training->freeze, training->freeze_count, value->name))
        return false;
    if (training->train_only_count > 0 || training->lora_count > 0)
        return (reads & READ) != 0 &&
               ul_edit_matches_any(training->train_only, training->train_only_count, value->name);
    if ((value->flags & (UL_VALUE_PARAMETER | UL_VALUE_BUFFER)) != 0)
        return (reads & READ) != 0 && (value->flags & UL_VALUE_PARAMETER) != 0;
    if (ul_type_elements(&value->type) == 1)
        return (reads & READ_AS_ONE) != 0;
    return (reads & READ) != 0 && !is_mask(value);
}

/* Those that somebody may expect to be trained, and which of them the options leave out. */
static void list_initializers(const struct ul_pass *pass)
{
    const struct ul_graph *graph = pass->graph;
    struct ul_training *training = pass->options->training;
    uint32_t *list = UL_NEW_ARRAY(graph->arena, uint32_t, graph->value_count), count = 0;
    uint32_t *left_out = UL_NEW_ARRAY(graph->arena, uint32_t, graph->value_count);
    training->left_out_count = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        if (value->kind == UL_VALUE_WEIGHT && (value->flags & UL_VALUE_TRAINED) != 0 &&
            ul_dtype_get(value->type.dtype)->is_float) {
            list[count++] = v;
            if (!is_asked_for(training, value->name))
                left_out[training->left_out_count++] = v;
        }
    }
    training->initializers = list;
    training->initializer_count = count;
    training->left_out = left_out;
}

/* A name that an exporter made: val_12, onnx::Conv_34. */
static bool is_made_up(const char *name)
{
    const char *digits = strncmp(name, "val_", 4) == 0 ? name + 4 : NULL;
    return strncmp(name, "onnx::", 6) == 0 ||
           (digits != NULL && *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0');
}

static bool has_layer_name(const char *name)
{
    size_t length = strlen(name);
    return (length > 7 && strcmp(name + length - 7, ".weight") == 0) ||
           (length > 5 && strcmp(name + length - 5, ".bias") == 0);
}

/* The size that all inputs begin with; 1: they have none in common, or one sample. */
static int64_t find_batch(const struct ul_graph *graph)
{
    const struct ul_block *block = ul_graph_only_root(graph);
    int64_t batch = 0;
    for (uint32_t i = 0; i < block->input_count; i++) {
        const struct ul_type *type = &graph->values[block->inputs[i]].type;
        int64_t size = type->rank > 0 ? type->dims[0] : 1;
        batch = batch == 0 || batch == size ? size : 1;
    }
    return batch;
}

/* Lists values that may be no parameters, and are trained because the file does not say. */
static void list_doubtful(const struct ul_pass *pass, const unsigned char *reads, int64_t batch)
{
    const struct ul_graph *graph = pass->graph;
    struct ul_training *training = pass->options->training;
    uint32_t *arithmetic = UL_NEW_ARRAY(graph->arena, uint32_t, graph->value_count);
    uint32_t *suspects = UL_NEW_ARRAY(graph->arena, uint32_t, graph->value_count);
    training->arithmetic_count = training->suspect_count = 0;
    for (uint32_t v = 0; v < graph->value_count; v++) {
        const struct ul_value *value = &graph->values[v];
        bool is_recorded = (value->flags & (UL_VALUE_PARAMETER | UL_VALUE_BUFFER)) != 0;
        if ((value->flags & UL_VALUE_TRAINED) == 0 || is_recorded || is_factor(training, v))
            continue;
        bool is_plain = (reads[v] & READ_IN_PRODUCT) == 0;
        bool begins = value->type.rank > 1 && batch > 1 && value->type.dims[0] == batch;
        if (is_made_up(value->name) || (is_plain && begins))
            suspects[training->suspect_count++] = v;
        else if (is_plain && !has_layer_name(value->name))
            arithmetic[training->arithmetic_count++] = v;
    }
    training->arithmetic = arithmetic;
    training->suspects = suspects;
}

enum ul_status ul_pass_select(struct ul_pass *pass)
{
    struct ul_training *training = pass->options->training;
    const unsigned char *reads = find_readers(pass);
    uint32_t count = 0;
    int64_t batch = find_batch(pass->graph);
    list_initializers(pass);
    UL_TRY(check_lost(pass));
    UL_TRY(check_inputs(pass));
    UL_TRY(cut_inputs(pass));
    UL_TRY(check_patterns(pass, "--freeze", training->freeze, training->freeze_count));
    UL_TRY(check_patterns(pass, "--train-only", training->train_only, training->train_only_count));
    for (uint32_t v = 0; v < pass->graph->value_count; v++) {
        struct ul_value *value = &pass->graph->values[v];
        bool trained = is_factor(training, v) || is_parameter(training, value, reads[v]);
        value->flags &= ~(uint32_t)UL_VALUE_TRAINED;
        if (trained)
            value->flags |= UL_VALUE_TRAINED | UL_VALUE_PERSISTENT;
        count += trained;
    }
    list_doubtful(pass, reads, batch);
    if (count == 0)
        return ul_diag_set(pass->diag, UL_USAGE,
                           "--train: nothing is left to train; the model has no initializer in "
                           "float32 or float64 that --freeze and --train-only leave");
    return check_state_names(pass);
}
