/* SPDX-License-Identifier: Apache-2.0 */
/* What may be tried to make a plan smaller, one row for each: other programs of the model, among
 * which a budget chooses (alternatives.h), and other options, whose plans advice compares
 * (trial.c). Values that the user lists with --sweep are tried by the same edits. Left undone:
 * changes of the model itself, and those that need a number from the user (fewer layers, shorter
 * inputs). */
#include "compile/search/tries.h"
#include "compile/search/alternatives.h"
#include "ir/op.h"

#include <string.h>

enum { MAX_OUTPUTS = 2, MAX_OTHER_OUTPUTS = 32 };

static const struct ul_option *option_of(const char *name)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, name);
    UL_ASSERT(row != NULL);
    return row;
}

/* ---- Programs ---- */

/* Whether the caller named neither splits nor light work inside. */
static bool is_open(const struct ul_compile *compile)
{
    return compile->options.splits.count == 0 && compile->options.inside.count == 0;
}

static bool is_open_trainer(const struct ul_compile *compile)
{
    return compile->options.train && is_open(compile);
}

/* Other layouts round differently, which a program that trains must not. */
static bool has_layouts(const struct ul_compile *compile)
{
    return !compile->options.train && compile->options.row_major.count == 0 &&
           compile->options.splits.count == 0 &&
           compile->program->options.target->traits.channels_last;
}

/* ---- Options of any program ---- */

/* Half the batch: the first dimension of the first input, where that has a name and a size. The
 * meaning of that dimension, and so of the results, is not known. */
static bool halve_batch(const struct ul_compile *compile, const struct ul_option *option,
                        uint32_t index, struct ul_arena *arena, struct ul_option_edits *edits)
{
    const struct ul_onnx_model *model = &compile->model;
    uint32_t first = 0;
    while (first < model->input_count && model->inputs[first].is_weight)
        first++;
    if (index > 0 || first == model->input_count || model->inputs[first].rank == UL_RANK_UNKNOWN ||
        model->inputs[first].rank == 0)
        return false;
    const char *symbol = model->inputs[first].dims[0].symbol;
    const struct ul_named_size *given =
        symbol != NULL ? ul_named_sizes_find(&compile->asked.dims, symbol) : NULL;
    if (given == NULL || given->dims[0] / 2 == 0)
        return false;
    ul_option_edits_add(arena, edits, option,
                        ul_arena_printf(arena, "%s=%lld", symbol, (long long)(given->dims[0] / 2)),
                        true);
    return true;
}

static bool is_f32(const struct ul_compile *compile)
{
    return compile->asked.precision == UL_PRECISION_F32;
}

/* Whether to offer weights that a microcontroller reads in place: where the buffer counts, or where
 * a whole process does not fit, since a part of a caller's process may have room for it. A whole
 * process reads the weights in either case, and gets no smaller. */
static bool has_flash(const struct ul_compile *compile)
{
    const struct ul_target *target = compile->program->options.target;
    bool is_hosted = strcmp(compile->report.facts.process_of, "program") == 0 &&
                     compile->options.budget_of != UL_BUDGET_ARENA && compile->plan.fits;
    return !compile->asked.train && compile->asked.weights == UL_WEIGHTS_ARENA &&
           target->traits.has_rom && !target->traits.has_threads && !is_hosted;
}

/* Without such calls the option changes nothing. */
static bool heeds_conv(const struct ul_compile *compile)
{
    return !compile->asked.train && ul_program_heeds(compile->program, "--conv direct");
}

/* Counts constant f32 matrices that are factors of products, and their bytes. */
static uint32_t count_matrices(const struct ul_graph *graph, uint64_t *bytes)
{
    uint32_t count = 0;
    *bytes = 0;
    for (uint32_t id = 0; id < graph->node_count; id++) {
        const struct ul_node *node = &graph->nodes[id];
        if (node->op == UL_OP_NONE || (ul_op_get(node->op)->flags & UL_OP_MULTIPLIES) == 0 ||
            node->input_count < 2)
            continue;
        const struct ul_value *base = &graph->values[graph->values[node->inputs[1]].view.base];
        if (base->kind != UL_VALUE_WEIGHT || base->type.dtype != UL_F32 || base->type.rank != 2)
            continue;
        *bytes += ul_type_bytes(&base->type);
        count++;
    }
    return count;
}

/* Whether fewer bits for weights of products are worth a try: there are more matrices than the
 * first and the last, which stay, and they are large enough. Each try is a whole search for
 * scales. */
static bool has_matrices(const struct ul_compile *compile)
{
    enum { LEAST_COUNT = 3, LEAST_BYTES = 1 << 20 };
    uint64_t bytes;
    uint32_t count = count_matrices(&compile->graph, &bytes);
    bool trains_all = compile->asked.train && compile->asked.lora.count == 0;
    return !trains_all && count >= LEAST_COUNT && bytes >= LEAST_BYTES;
}

/* The name of an output that is made before the peak and kept to the end; NULL: there are no
 * more. */
static const char *waiting_output(const struct ul_compile *compile, uint32_t index)
{
    const struct ul_plan *plan = &compile->plan;
    for (uint32_t r = 0; r < plan->range_count; r++) {
        const struct ul_plan_range *range = &plan->ranges[r];
        bool waits = range->class == UL_PLAN_OUTPUTS && range->value != UL_PLAN_NONE &&
                     range->begin < plan->peak_position && range->end > plan->peak_position + 1;
        if (waits && index-- == 0)
            return compile->report.values[range->value].name;
    }
    return NULL;
}

/* Leaves out such an output. */
static bool leave_output(const struct ul_compile *compile, const struct ul_option *option,
                         uint32_t index, struct ul_arena *arena, struct ul_option_edits *edits)
{
    const struct ul_graph *graph = &compile->graph;
    uint32_t last = graph->root_count - 1; /* pieces of a range of sizes have the same outputs */
    const struct ul_block *root = &graph->blocks[last];
    const char *left = index < MAX_OUTPUTS ? waiting_output(compile, index) : NULL;
    if (left == NULL || compile->asked.train || root->output_count > MAX_OTHER_OUTPUTS)
        return false;
    left = ul_root_plain_name(graph, last, left);
    for (uint32_t i = 0; i < root->output_count; i++) {
        const char *name = ul_root_plain_name(graph, last, graph->values[root->outputs[i]].name);
        if (strcmp(name, left) != 0)
            ul_option_edits_add(arena, edits, option, name, false);
    }
    return edits->count > 0;
}

/* ---- Options of training ---- */

/* Twice and four times as many micro-batches. */
static bool cut_step(const struct ul_compile *compile, const struct ul_option *option,
                     uint32_t index, struct ul_arena *arena, struct ul_option_edits *edits)
{
    enum { MOST = 2 };
    uint64_t samples = ul_compile_note(compile).sample_count;
    uint64_t parts = (uint64_t)compile->training.micro_batches << (index + 1);
    if (!compile->asked.train || index >= MOST || samples < parts || samples % parts != 0)
        return false;
    ul_option_edits_add(arena, edits, option,
                        ul_arena_printf(arena, "%llu", (unsigned long long)parts), false);
    return true;
}

static bool has_adam(const struct ul_compile *compile)
{
    enum ul_optimizer optimizer = compile->training.optimizer;
    return compile->asked.train &&
           (optimizer == UL_OPTIMIZER_ADAM || optimizer == UL_OPTIMIZER_ADAMW);
}

static bool has_wide_adam(const struct ul_compile *compile)
{
    return has_adam(compile) && compile->training.state_bits != UL_STATE_8;
}

static bool has_narrow_adam(const struct ul_compile *compile)
{
    return has_adam(compile) && compile->training.state_bits == UL_STATE_8;
}

static bool has_optimizer(const struct ul_compile *compile)
{
    return compile->asked.train && compile->training.optimizer != UL_OPTIMIZER_SGD;
}

static bool keeps_gradients(const struct ul_compile *compile)
{
    return compile->asked.train && compile->training.clip_norm > 0 &&
           compile->training.clip_mode == UL_CLIP_KEEP;
}

/* ---- The table ---- */

const struct ul_try ul_tries[] = {
    /* programs among which a budget chooses */
    {"split", "split", .applies = is_open, .vary = ul_alternatives_try_splits},
    {"inside", "inside", .applies = is_open_trainer, .vary = ul_alternatives_try_inside},
    {"layout", "row-major", .applies = has_layouts, .vary = ul_alternatives_try_layouts},
    /* what the planner and the passes do by default */
    {"reorder", "order", "file", UL_BITS_KEPT, .when = UL_TRY_APPLIED},
    {"reuse", "pack", "none", UL_BITS_KEPT, .when = UL_TRY_APPLIED},
    {"views", "no-pass", "views", UL_BITS_KEPT, .when = UL_TRY_APPLIED},
    {"fuse", "no-pass", "fuse", UL_BITS_KEPT_IN_F32, .when = UL_TRY_APPLIED},
    /* what the user has switched off */
    {"reorder", "order", NULL, UL_BITS_KEPT, .when = UL_TRY_GIVEN},
    {"reuse", "pack", NULL, UL_BITS_KEPT, .when = UL_TRY_GIVEN},
    {"recompute", "remat", NULL, UL_BITS_KEPT, .when = UL_TRY_GIVEN},
    {"fuse", "no-pass", NULL, UL_BITS_KEPT, .when = UL_TRY_GIVEN},
    {"in-place", "keep-inputs", NULL, UL_BITS_KEPT, .when = UL_TRY_GIVEN},
    {"recompute", "checkpoint", NULL, UL_BITS_KEPT, .when = UL_TRY_GIVEN},
    /* these change the results, or what the caller has to do */
    {"batch", "dim", .edit = halve_batch},
    {"precision", "precision", "bf16", .applies = is_f32},
    {"weights", "weights", "rom", UL_BITS_KEPT, .applies = has_flash},
    {"implementation", "conv", "direct", .when = UL_TRY_OPEN, .applies = heeds_conv},
    {"quantize", "quantize", "int8", .when = UL_TRY_OPEN, .applies = has_matrices},
    {"quantize", "quantize", "int4", .when = UL_TRY_OPEN, .applies = has_matrices},
    {"micro-batches", "micro-batches", .edit = cut_step},
    {"optimizer", "state-bits", "8", .applies = has_wide_adam},
    {"optimizer", "optimizer", "adafactor", .applies = has_narrow_adam},
    {"optimizer", "optimizer", "sgd", .applies = has_optimizer},
    {"clipping", "clip-mode", "twice", .applies = keeps_gradients},
    {"output", "output", NULL, UL_BITS_KEPT_IN_F32, .when = UL_TRY_OPEN, .edit = leave_output},
    {.kind = NULL}};

bool ul_try_edit(const struct ul_compile *compile, const struct ul_try *row, uint32_t index,
                 struct ul_arena *arena, struct ul_option_edits *edits)
{
    const struct ul_option *option = option_of(row->option);
    bool is_given = ul_option_is_given(&compile->asked.base, option);
    *edits = (struct ul_option_edits){.count = 0};
    UL_ASSERT(row->vary == NULL);
    if ((row->when == UL_TRY_GIVEN && !is_given) || (row->when == UL_TRY_OPEN && is_given) ||
        (row->when == UL_TRY_APPLIED && (is_given || ul_compile_has_budget(&compile->asked))) ||
        !ul_option_fits(option, compile->program->options.target))
        return false;
    if (row->edit != NULL)
        return row->edit(compile, option, index, arena, edits);
    if (index > 0 || (row->applies != NULL && !row->applies(compile)))
        return false;
    ul_option_edits_add(arena, edits, option, row->value, false);
    return true;
}
