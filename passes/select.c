/* What is trained: which initializers of the model are parameters.
 *
 * Problem: a model file does not tell parameters from bounds, tables and factors that its exporter
 * wrote as initializers too. Method: a float initializer is a parameter, unless every reader has it
 * where an operator wants no parameter (its row's fixed_inputs: a bound, a ratio, running
 * statistics), it is one number of rank 0, which is how factors of formulas are written, or a
 * pattern says otherwise. Values of Constant nodes never are. Parameters are state from here on:
 * nothing folds them. What no gradient reaches is a constant again once that is known
 * (gradient.c). */
#include "ir/op.h"
#include "passes/passes_internal.h"

#include <string.h>

bool ul_select_matches(const char *pattern, const char *name)
{
    for (; *pattern != '\0'; pattern++, name++) {
        if (*pattern == '*') {
            for (;; name++) {
                if (ul_select_matches(pattern + 1, name))
                    return true;
                if (*name == '\0')
                    return false;
            }
        }
        if (*name == '\0' || (*pattern != '?' && *pattern != *name))
            return false;
    }
    return *name == '\0';
}

static bool is_named(const char *const *patterns, uint32_t count, const char *name)
{
    for (uint32_t i = 0; i < count; i++)
        if (ul_select_matches(patterns[i], name))
            return true;
    return false;
}

/* Patterns that match nothing are mistakes. */
static enum ul_status check_patterns(const struct ul_pass *pass, const char *option,
                                     const char *const *patterns, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool found = false;
        for (uint32_t v = 0; !found && v < pass->graph->value_count; v++)
            found = pass->graph->values[v].kind == UL_VALUE_WEIGHT &&
                    ul_select_matches(patterns[i], pass->graph->values[v].name);
        if (!found)
            return ul_diag_set(pass->diag, UL_USAGE,
                               "%s %s: no initializer has such a name; "
                               "`ullage inspect --train` lists them",
                               option, ul_quote(pass->scratch, patterns[i]));
    }
    return UL_OK;
}

/* Per value: some reader has it where a parameter may stand. */
static bool *find_readers(const struct ul_pass *pass)
{
    const struct ul_graph *graph = pass->graph;
    bool *is_read = UL_NEW_ARRAY(pass->scratch, bool, graph->value_count);
    for (uint32_t n = 0; n < graph->node_count; n++) {
        const struct ul_node *node = &graph->nodes[n];
        for (uint32_t i = 0; node->op != UL_OP_NONE && i < node->input_count; i++)
            if (node->inputs[i] != UL_NONE &&
                (i >= 32 || (ul_op_get(node->op)->fixed_inputs & 1u << i) == 0))
                is_read[node->inputs[i]] = true;
    }
    return is_read;
}

static bool is_parameter(const struct ul_training *training, const struct ul_value *value)
{
    enum ul_dtype dtype = value->type.dtype;
    bool is_float = dtype == UL_F32 || dtype == UL_F64;
    if (value->kind != UL_VALUE_WEIGHT || (value->flags & UL_VALUE_TRAINED) == 0 || !is_float ||
        is_named(training->freeze, training->freeze_count, value->name))
        return false;
    if (training->train_only_count > 0)
        return is_named(training->train_only, training->train_only_count, value->name);
    return value->type.rank > 0;
}

enum ul_status ul_pass_select(struct ul_pass *pass)
{
    const struct ul_training *training = pass->options->training;
    const bool *is_read = find_readers(pass);
    uint32_t count = 0;
    UL_TRY(check_patterns(pass, "--freeze", training->freeze, training->freeze_count));
    UL_TRY(check_patterns(pass, "--train-only", training->train_only, training->train_only_count));
    for (uint32_t v = 0; v < pass->graph->value_count; v++) {
        struct ul_value *value = &pass->graph->values[v];
        bool trained = is_read[v] && is_parameter(training, value);
        value->flags &= ~(uint32_t)UL_VALUE_TRAINED;
        if (trained)
            value->flags |= UL_VALUE_TRAINED | UL_VALUE_PERSISTENT;
        count += trained;
    }
    if (count == 0)
        return ul_diag_set(pass->diag, UL_USAGE,
                           "--train: nothing is left to train; the model has no float initializer "
                           "that --freeze and --train-only leave");
    return UL_OK;
}
