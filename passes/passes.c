/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline as a table, and the runner. */
#include "ir/text.h"
#include "ir/training.h"
#include "passes/passes_internal.h"

#include <string.h>

struct row {
    struct ul_pass_info info;
    ul_pass_fn *run;
};

enum { TYPES = UL_FACT_TYPES, VIEWS = UL_FACT_VIEWS, GROUPS = UL_FACT_GROUPS };

/* Weights are folded before equal ones become one, since only a weight of one node can be changed.
 * Views come before groups: which nodes need no kernel at all decides what can be fused. */
static const struct row rows[] = {
    {{"stop", "Stops gradients where --stop-gradient and --padding-idx say so.", UL_PASS_TRAINING,
      true, 0, 0, 0},
     ul_pass_stop},
    {{"lora", "Adds low-rank factors beside weights of products, where --lora asks for them.",
      UL_PASS_TRAINING, true, 0, 0, 0},
     ul_pass_lora},
    {{"quantize", "Makes weights of products integers of few bits, where it is asked to.",
      UL_PASS_TRAINING, false, 0, 0, 0},
     ul_pass_quantize},
    {{"select", "Finds the parameters that are trained.", UL_PASS_TRAINING, true, 0, 0, 0},
     ul_pass_select},
    {{"dce", "Removes nodes and weights that no output depends on.", UL_PASS_ANY, false, 0, TYPES,
      0},
     ul_pass_dce},
    {{"infer", "Finds every type, folds constants and decides branches on the way.", UL_PASS_ANY,
      true, 0, 0, TYPES},
     ul_pass_infer},
    {{"weights", "Computes what hangs on weights alone, where it takes no more bytes than they do.",
      UL_PASS_INFERENCE, false, TYPES, TYPES, 0},
     ul_pass_weights},
    {{"halves", "Has models of 16 bits compute in f32 and store as they say.", UL_PASS_INFERENCE,
      false, TYPES, TYPES, 0},
     ul_pass_halves},
    {{"derive", "Writes out Gradient nodes by the rules of the operators that they are about.",
      UL_PASS_ANY, true, TYPES, TYPES, 0},
     ul_pass_derive},
    {{"simplify", "Removes what does nothing and shortens chains of movements.", UL_PASS_ANY, false,
      TYPES, TYPES, 0},
     ul_pass_simplify},
    {{"integers", "Computes with integers between DequantizeLinear and QuantizeLinear.",
      UL_PASS_INFERENCE, false, TYPES, TYPES, 0},
     ul_pass_integers},
    {{"modes", "Has BatchNormalization use statistics of the batch.", UL_PASS_TRAINING, true, TYPES,
      TYPES, 0},
     ul_pass_modes},
    {{"bnfold", "Multiplies BatchNormalization and other factors per channel into weights.",
      UL_PASS_INFERENCE, false, TYPES, TYPES, 0},
     ul_pass_bnfold},
    {{"cse", "Computes equal things once.", UL_PASS_ANY, false, TYPES, TYPES, 0}, ul_pass_cse},
    {{"dce", "Removes nodes and weights that no output depends on.", UL_PASS_ANY, false, 0, TYPES,
      0},
     ul_pass_dce},
    {{"no_float", "Writes all that is left in floats with integers, where --no-float asks for it.",
      UL_PASS_INFERENCE, true, TYPES, TYPES, 0},
     ul_pass_no_float},
    {{"einsum", "Writes Einsums of two operands as matrix products.", UL_PASS_ANY, false, TYPES,
      TYPES, 0},
     ul_pass_einsum},
    {{"pattern", "Finds operators that are spelled out with smaller ones.", UL_PASS_ANY, false,
      TYPES, TYPES, 0},
     ul_pass_pattern},
    {{"quantize", "Makes weights of products integers of few bits, where it is asked to.",
      UL_PASS_INFERENCE, false, TYPES, TYPES, 0},
     ul_pass_quantize},
    {{"phases", "Writes transposed convolutions of narrow constants as convolutions.",
      UL_PASS_INFERENCE, false, TYPES, TYPES, 0},
     ul_pass_phases},
    {{"nbits", "Has products and tables read weights of a few bits as they are packed.",
      UL_PASS_ANY, false, TYPES, TYPES, 0},
     ul_pass_nbits},
    {{"windows", "Reads images in windows, and back, as one movement of rows.", UL_PASS_INFERENCE,
      false, TYPES, TYPES, 0},
     ul_pass_windows},
    {{"transposed", "Writes transposed convolutions without overlap as matrix products.",
      UL_PASS_CHANNELS_LAST, false, TYPES, TYPES, 0},
     ul_pass_transposed},
    {{"sink", "Moves reshapes and Transposes behind the elementwise nodes that follow.",
      UL_PASS_ANY, false, TYPES, TYPES, 0},
     ul_pass_sink},
    {{"parts", "Reads parts of an axis that fill it as the results of one Split.", UL_PASS_TRAINING,
      false, TYPES, TYPES, 0},
     ul_pass_parts},
    {{"cse", "Computes equal things once.", UL_PASS_ANY, false, TYPES, TYPES, 0}, ul_pass_cse},
    {{"dce", "Removes nodes and weights that no output depends on.", UL_PASS_ANY, false, 0, TYPES,
      0},
     ul_pass_dce},
    {{"inline", "Writes out loops and branches that something is trained in.", UL_PASS_TRAINING,
      false, TYPES, TYPES, 0},
     ul_pass_inline},
    {{"pool", "Moves maps that keep the order of numbers behind the max-pooling that they feed.",
      UL_PASS_TRAINING, false, TYPES, TYPES, 0},
     ul_pass_pool},
    {{"loss", "Adds the loss that is trained on.", UL_PASS_TRAINING, true, TYPES, TYPES, 0},
     ul_pass_loss},
    {{"gradient", "Adds the backward pass and the updates of parameters.", UL_PASS_TRAINING, true,
      TYPES, TYPES, 0},
     ul_pass_gradient},
    {{"infer", "Finds every type, folds constants and decides branches on the way.",
      UL_PASS_TRAINING, true, 0, 0, TYPES},
     ul_pass_infer},
    {{"simplify", "Removes what does nothing and shortens chains of movements.", UL_PASS_TRAINING,
      false, TYPES, TYPES, 0},
     ul_pass_simplify},
    {{"cse", "Computes equal things once.", UL_PASS_TRAINING, false, TYPES, TYPES, 0}, ul_pass_cse},
    {{"dce", "Removes nodes and weights that no output depends on.", UL_PASS_TRAINING, false, 0,
      TYPES, 0},
     ul_pass_dce},
    {{"again",
      "Computes light results of the forward pass again where the backward pass reads them.",
      UL_PASS_TRAINING, false, TYPES, TYPES, 0},
     ul_pass_again},
    {{"join", "Computes products of one operand as one product.", UL_PASS_PRODUCTS_JOINED, false,
      TYPES, TYPES, 0},
     ul_pass_join},
    {{"stem", "Adds a channel of zeros to images of three that are rounded to 16 bits.",
      UL_PASS_FILTERS_LAST, false, TYPES, TYPES, 0},
     ul_pass_stem},
    {{"filters", "Stores weights of convolutions with channels innermost.", UL_PASS_FILTERS_LAST,
      false, TYPES, TYPES, 0},
     ul_pass_filters},
    {{"own", "Gives every value its own bytes; copies what two outputs would share.", UL_PASS_ANY,
      true, TYPES, TYPES, VIEWS},
     ul_pass_own},
    {{"layout", "Lays values of convolutions channels-last where that takes less time.",
      UL_PASS_CHANNELS_LAST, false, TYPES | VIEWS, TYPES | VIEWS, 0},
     ul_pass_layout},
    {{"views", "Lets outputs of movements lie in their inputs.", UL_PASS_ANY, false, TYPES | VIEWS,
      TYPES | VIEWS, 0},
     ul_pass_views},
    {{"concat", "Lets operands of Concat be produced in their place.", UL_PASS_ANY, false,
      TYPES | VIEWS, TYPES | VIEWS, 0},
     ul_pass_concat},
    {{"bits", "Keeps what the backward pass asks a yes or no of alone as bits.", UL_PASS_TRAINING,
      false, TYPES | VIEWS, TYPES | VIEWS, 0},
     ul_pass_bits},
    {{"precision", "Stores f32 in 16 bits where --precision says so and nothing speaks against it.",
      UL_PASS_ANY, false, TYPES | VIEWS, TYPES | VIEWS, 0},
     ul_pass_precision},
    {{"donate", "Runs what reads an input before the output that overwrites it.", UL_PASS_ANY, true,
      TYPES | VIEWS, TYPES | VIEWS, 0},
     ul_pass_donate},
    {{"fuse", "Groups nodes that one kernel computes.", UL_PASS_ANY, false, TYPES | VIEWS,
      TYPES | VIEWS, GROUPS},
     ul_pass_fuse},
    {{"casts", "Rounds a parameter once for products that read it as it lies and turned.",
      UL_PASS_TRAINING, false, TYPES | VIEWS, TYPES | VIEWS | GROUPS, 0},
     ul_pass_casts},
    {{"once", "Computes steps that widen constants once, where that takes hardly more bytes.",
      UL_PASS_INFERENCE, false, TYPES | VIEWS, TYPES | VIEWS | GROUPS, 0},
     ul_pass_once},
    {{"tiles", "Updates large parameters a part after the other, as their gradients are formed.",
      UL_PASS_TRAINING, false, TYPES | VIEWS, TYPES | VIEWS | GROUPS, 0},
     ul_pass_tiles},
    {{"library", "Has libraries form gradients of attention and ReLU where no plan grows by that.",
      UL_PASS_TRAINING, false, TYPES | VIEWS, TYPES | VIEWS | GROUPS, 0},
     ul_pass_library},
    {{"inside", "Has products compute light operands as they pack them, where it is asked to.",
      UL_PASS_TRAINING, false, TYPES | VIEWS, TYPES | VIEWS | GROUPS, 0},
     ul_pass_inside},
    {{"split", "Computes chains in pieces where it is asked to.", UL_PASS_ANY, false, TYPES | VIEWS,
      TYPES | VIEWS | GROUPS, 0},
     ul_pass_split},
    {{"packed", "Keeps constants below 8 bits packed where kernels unpack them as they load.",
      UL_PASS_INFERENCE, false, TYPES | VIEWS, TYPES | VIEWS | GROUPS, 0},
     ul_pass_packed},
};

enum { ROW_COUNT = sizeof rows / sizeof *rows };

uint32_t ul_passes_count(void)
{
    return ROW_COUNT;
}

const struct ul_pass_info *ul_passes_get(uint32_t index)
{
    UL_ASSERT(index < ROW_COUNT);
    return &rows[index].info;
}

static bool is_named(const char *option, const struct ul_pass_info *info)
{
    return option != NULL && strcmp(option, info->name) == 0;
}

/* A pass that runs more than once has a row for each. */
static bool is_listed_before(uint32_t row)
{
    for (uint32_t i = 0; i < row; i++) {
        if (strcmp(rows[i].info.name, rows[row].info.name) == 0)
            return true;
    }
    return false;
}

static enum ul_status check_name(const char *name, bool disables, struct ul_arena *scratch,
                                 struct ul_diag *diag)
{
    struct ul_nearest nearest = {.word = name};
    struct ul_text names;
    ul_text_init(&names, scratch);
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        ul_nearest_offer(&nearest, rows[i].info.name);
        if (is_named(name, &rows[i].info)) {
            if (disables && rows[i].info.required)
                return ul_diag_set(diag, UL_USAGE, "the pass %s cannot be switched off", name);
            return UL_OK;
        }
        if (!is_listed_before(i))
            ul_text_printf(&names, "%s%s", i == 0 ? "" : ", ", rows[i].info.name);
    }
    return ul_diag_set(diag, UL_USAGE, "there is no pass %s%s; there are %s",
                       ul_quote(scratch, name), ul_nearest_text(scratch, &nearest, ""), names.data);
}

static enum ul_status check_options(const struct ul_passes_options *options,
                                    struct ul_arena *scratch, struct ul_diag *diag)
{
    const char *print_after = options->print_after;
    if (print_after != NULL && strcmp(print_after, UL_PASSES_ALL) != 0)
        UL_TRY(check_name(print_after, false, scratch, diag));
    if (options->only != NULL)
        UL_TRY(check_name(options->only, false, scratch, diag));
    if (options->start_at != NULL)
        UL_TRY(check_name(options->start_at, false, scratch, diag));
    if (options->stop_before != NULL)
        UL_TRY(check_name(options->stop_before, false, scratch, diag));
    if (options->stop_after != NULL)
        UL_TRY(check_name(options->stop_after, false, scratch, diag));
    for (uint32_t i = 0; i < options->disabled_count; i++) {
        UL_TRY(check_name(options->disabled[i], true, scratch, diag));
        if (options->row_major_count > 0 && strcmp(options->disabled[i], "layout") == 0)
            return ul_diag_set(diag, UL_USAGE,
                               "--row-major is for the pass layout, which --no-pass switches off");
        if (options->inside_count > 0 && strcmp(options->disabled[i], "inside") == 0)
            return ul_diag_set(diag, UL_USAGE,
                               "--inside is for the pass inside, which --no-pass switches off");
    }
    return UL_OK;
}

/* parse(print(g)) prints the same bytes. */
static enum ul_status check_text(const struct ul_graph *graph, struct ul_arena *scratch,
                                 struct ul_diag *diag)
{
    struct ul_graph again;
    struct ul_text first;
    struct ul_text second;
    ul_text_init(&first, scratch);
    ul_text_init(&second, scratch);
    ul_graph_print(&first, graph);
    UL_TRY(ul_graph_parse(&again, scratch, first.data, graph, diag));
    ul_graph_print(&second, &again);
    if (strcmp(first.data, second.data) != 0)
        return ul_diag_set(diag, UL_INTERNAL, "the text form does not survive a round trip");
    return UL_OK;
}

static enum ul_status check_after(const struct ul_pass *pass, const struct row *row)
{
    enum ul_status status = ul_graph_verify(pass->graph, pass->diag);
    if (status == UL_OK && pass->graph->check_text)
        status = check_text(pass->graph, pass->scratch, pass->diag);
    if (status == UL_OK)
        return UL_OK;
    ul_diag_prefix(pass->diag, row->info.name);
    ul_diag_prefix(pass->diag, "internal error: a pass broke the graph");
    pass->diag->status = UL_INTERNAL;
    return UL_INTERNAL;
}

static void dump_after(const struct ul_pass *pass, const struct row *row,
                       const struct ul_passes_options *options)
{
    bool all = options->print_after != NULL && strcmp(options->print_after, UL_PASSES_ALL) == 0;
    if (!all && !is_named(options->print_after, &row->info))
        return;
    struct ul_text text;
    ul_text_init(&text, pass->scratch);
    ul_graph_print(&text, pass->graph);
    fprintf(options->dump == NULL ? stderr : options->dump, "# after %s\n%s", row->info.name,
            text.data);
}

static bool is_skipped(const struct ul_pass *pass, const struct row *row)
{
    if (pass->options->only != NULL && !is_named(pass->options->only, &row->info))
        return true;
    if (row->info.kind == UL_PASS_CHANNELS_LAST && !pass->traits->channels_last)
        return true;
    if (row->info.kind == UL_PASS_FILTERS_LAST && !pass->traits->filters_last)
        return true;
    if (row->info.kind == UL_PASS_PRODUCTS_JOINED && !pass->traits->products_joined)
        return true;
    if (row->info.kind == UL_PASS_TRAINING && pass->options->training == NULL)
        return true;
    if (row->info.kind != UL_PASS_ANY && pass->options->is_part)
        return true;
    bool infers = row->info.kind == UL_PASS_INFERENCE || row->info.kind == UL_PASS_PRODUCTS_JOINED;
    return ul_pass_is_disabled(pass, row->info.name) || (pass->options->training != NULL && infers);
}

/* Drops views and groups that the pass does not keep up to date, before it runs. */
static void drop_facts(struct ul_graph *graph, const struct row *row)
{
    for (uint32_t v = 0; (row->info.keeps & VIEWS) == 0 && v < graph->value_count; v++)
        graph->values[v].view.base = UL_NONE;
    for (uint32_t n = 0; (row->info.keeps & GROUPS) == 0 && n < graph->node_count; n++)
        graph->nodes[n].group = UL_NONE;
}

static enum ul_status dry_run(const struct ul_pass *pass, const struct ul_graph *graph,
                              struct ul_graph *copy)
{
    struct ul_passes_options options = *pass->options;
    struct ul_pass trial = *pass;
    options.only = options.start_at = NULL;
    options.for_bytes = true;
    options.inside_count = 0;
    options.row_major_count = 0; /* a judgement is the same for every layout that may be asked
                                    for */
    trial.options = &options;
    trial.graph = copy;
    ul_graph_copy(copy, pass->scratch, graph);
    for (trial.row = pass->row + 1; trial.row < ROW_COUNT; trial.row++) {
        const struct row *row = &rows[trial.row];
        if (row->run == ul_pass_split)
            break;
        /* These look ahead themselves; what pass once spares is the same for most rewritings. */
        if (is_skipped(&trial, row) || row->run == ul_pass_join || row->run == ul_pass_once)
            continue;
        drop_facts(copy, row);
        UL_TRY(row->run(&trial));
    }
    return UL_OK;
}

static uint32_t first_row(const char *name)
{
    uint32_t row = 0;
    while (name != NULL && row < ROW_COUNT && !is_named(name, &rows[row].info))
        row++;
    return row;
}

/* Says in a failure that shapes which fit the batch need not fit a part of it. */
static enum ul_status blame_parts(const struct ul_pass *pass, const struct row *row)
{
    const struct ul_training *training = pass->options->training;
    if (row->run == ul_pass_infer && training != NULL && training->micro_batches > 1)
        ul_diag_prefix(pass->diag, "with a part of the batch (--micro-batches; a model that says "
                                   "its batch in its shapes cannot be cut, so export it with a "
                                   "batch that is not fixed)");
    return pass->diag->status;
}

enum ul_status ul_passes_run(struct ul_graph *graph, struct ul_arena *scratch,
                             const struct ul_passes_options *options, struct ul_diag *diag)
{
    static const struct ul_target_traits nothing = {.name = NULL};
    struct ul_pass pass = {.graph = graph,
                           .scratch = scratch,
                           .diag = diag,
                           .options = options,
                           .traits = options->traits != NULL ? options->traits : &nothing,
                           .dry_run = dry_run,
                           .run = ul_passes_run};
    uint32_t facts = options->start_at != NULL ? TYPES | VIEWS | GROUPS : 0;
    UL_TRY(check_options(options, scratch, diag));
    UL_TRY(ul_graph_verify(graph, diag));
    for (uint32_t i = first_row(options->start_at); i < ROW_COUNT; i++) {
        const struct row *row = &rows[i];
        if (is_named(options->stop_before, &row->info))
            break;
        pass.row = i;
        if (!is_skipped(&pass, row)) {
            UL_ASSERT(options->only != NULL || (row->info.needs & ~facts) == 0);
            drop_facts(graph, row);
            enum ul_status status = row->run(&pass);
            if (status != UL_OK)
                return blame_parts(&pass, row);
            UL_TRY(check_after(&pass, row));
            dump_after(&pass, row, options);
            facts = (facts & row->info.keeps) | row->info.makes;
            ul_arena_reset(scratch);
        }
        /* A pass that occurs twice ends the pipeline after its last turn. */
        bool again = false;
        for (uint32_t k = i + 1; k < ROW_COUNT; k++)
            again = again ||
                    (is_named(options->stop_after, &rows[k].info) && !is_skipped(&pass, &rows[k]));
        if (is_named(options->stop_after, &row->info) && !again)
            break;
    }
    return UL_OK;
}
