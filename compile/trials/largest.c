/* SPDX-License-Identifier: Apache-2.0 */
/* The largest batch, or size of a named dimension, that fits a budget: --max-batch, --max-dim.
 *
 * Problem: the bytes of a plan grow with the size, but nothing proves that they always do, and
 * under a budget the recomputations are open. Method: sizes are really planned, each by a compile
 * of its own: 1, 2, 4 and so on until one does not fit, then by bisection until the last that fits
 * and the first that does not are neighbours. The batch is the first dimension of the model's first
 * input; where the model is trained, of all its inputs. A named dimension may have sizes that the
 * model does not take: the search begins with the first size that it takes, and one above a size
 * that fits ends the search like one that does not fit. Left undone: larger sizes after one that
 * does not fit. */
#include "compile/trials/trial.h"

#include <string.h>

#define MAX_SIZE ((int64_t)1 << 20)

struct search {
    struct ul_compile *compile;
    const char *path;
    const char *option;      /* the option that asks: "--max-batch" */
    const char *dim;         /* the dimension whose size is searched; NULL: the batch */
    struct ul_texts symbols; /* dimensions of that size */
    /* inputs whose first dimension has that size and no name: the rest, ",3,8" */
    struct ul_pairs shapes;
    struct ul_saved_search result; /* the sizes tried so far */
    uint32_t tried_capacity;
    int64_t refused; /* a size that the model does not take, or 0 */
    int64_t unit;    /* sizes are multiples of it: the number of micro-batches, or a given number */
};

/* ---- The batch's dimensions ---- */

/* Adds the shape of an input whose first dimension has no name, as given, or as in the model. */
static enum ul_status add_shape(struct search *search, const struct ul_model_port *port)
{
    struct ul_compile *compile = search->compile;
    const struct ul_named_size *said = ul_named_sizes_find(&compile->options.shapes, port->name);
    bool is_known = said != NULL || (port->rank != UL_RANK_UNKNOWN && port->rank <= UL_LIMIT_RANK);
    uint32_t rank = said != NULL ? said->rank : port->rank;
    struct ul_text rest;
    ul_text_init(&rest, &compile->keep);
    for (uint32_t d = 1; is_known && d < rank; d++) {
        int64_t size = said != NULL ? said->dims[d] : port->dims[d].size;
        ul_text_printf(&rest, ",%lld", (long long)size);
        is_known = size >= 0;
    }
    if (!is_known || rank == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--max-batch: give the shape of input %s with --shape; of its first "
                           "dimension any number, which is the batch",
                           ul_quote(&compile->keep, port->name));
    ul_pairs_add(&compile->keep, &search->shapes, ul_arena_copy_string(&compile->keep, port->name),
                 rest.data);
    return UL_OK;
}

static enum ul_status add_input(struct search *search, const struct ul_model_port *port,
                                bool is_first)
{
    struct ul_compile *compile = search->compile;
    const char *name = ul_quote(&compile->keep, port->name);
    if (strcmp(port->kind, "sequence") == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--max-batch: the input %s is a sequence, which has no batch", name);
    if (port->rank == UL_RANK_UNKNOWN)
        return add_shape(search, port);
    if (port->rank == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--max-batch: the input %s is one number, and has no batch", name);
    const struct ul_model_dim *dim = &port->dims[0];
    if (dim->size >= 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--max-batch: the model fixes the first dimension of its input %s at "
                           "%lld%s; export it with a batch that is free (torch: dynamic_axes)",
                           name, (long long)dim->size,
                           is_first ? "" : ", where training has samples");
    if (dim->symbol == NULL)
        return add_shape(search, port);
    if (ul_named_sizes_find(&compile->options.dims, dim->symbol) != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--dim %s: it is the batch, which --max-batch finds; leave it out",
                           ul_option_shown(&compile->keep, dim->symbol));
    if (!ul_texts_have(&search->symbols, dim->symbol))
        ul_texts_add(&compile->keep, &search->symbols,
                     ul_arena_copy_string(&compile->keep, dim->symbol));
    return UL_OK;
}

static enum ul_status find_inputs(struct search *search)
{
    struct ul_compile *compile = search->compile;
    struct ul_compile probe;
    bool is_first = true;
    ul_compile_init(&probe);
    ul_options_copy(&probe.options.base, &compile->options.base, sizeof probe.options);
    enum ul_status status = ul_compile_load_ports(&probe, search->path);
    if (status != UL_OK)
        compile->diag = probe.diag;
    for (uint32_t i = 0; status == UL_OK && i < probe.model.input_count; i++) {
        const struct ul_model_port *port = &probe.model.inputs[i];
        if (port->is_weight || (!is_first && !compile->options.train))
            continue;
        status = add_input(search, port, is_first);
        is_first = false;
    }
    ul_compile_done(&probe);
    if (status == UL_OK && is_first)
        return ul_diag_set(&compile->diag, UL_USAGE, "--max-batch: the model has no input");
    return status;
}

/* ---- One size ---- */

/* Edits that set the size. */
static struct ul_option_edits size_edits(const struct search *search, int64_t size)
{
    static const char *const asked[] = {"max-batch", "max-dim"};
    const struct ul_option_table *table = &ul_compile_option_table;
    struct ul_arena *arena = &search->compile->keep;
    struct ul_option_edits edits = {.count = 0};
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        ul_option_edits_add(arena, &edits, ul_option_find(table, asked[i]), NULL, false);
    for (uint32_t i = 0; i < search->symbols.count; i++)
        ul_option_edits_add(
            arena, &edits, ul_option_find(table, "dim"),
            ul_arena_printf(arena, "%s=%lld", search->symbols.items[i], (long long)size), true);
    for (uint32_t i = 0; i < search->shapes.count; i++)
        ul_option_edits_add(arena, &edits, ul_option_find(table, "shape"),
                            ul_arena_printf(arena, "%s=%lld%s", search->shapes.items[i].name,
                                            (long long)size, search->shapes.items[i].value),
                            true);
    return edits;
}

/* Plans a size of `count` units; UL_NO_FIT is an answer. */
static enum ul_status try_size(struct search *search, int64_t count, struct ul_diag *diag)
{
    int64_t size = count * search->unit;
    struct ul_saved_search *result = &search->result;
    struct ul_arena *arena = &search->compile->keep;
    const char *noun = search->dim != NULL ? ul_option_shown(arena, search->dim) : "batch";
    struct ul_trial trial = {.what = ul_arena_printf(arena, "%.40s %lld", noun, (long long)size),
                             .edits = size_edits(search, size)};
    enum ul_status status = ul_compile_try(search->compile, search->path, &trial);
    *diag = trial.diag;
    if (!trial.result.is_planned)
        return status;
    UL_GROW(arena, result->planned, result->tried_count, search->tried_capacity);
    result->planned[result->tried_count++] = (struct ul_saved_tried){
        .size = (uint64_t)size, .bytes = trial.result.bounded_bytes, .fits = status == UL_OK};
    return status;
}

/* The same for a size above one that fits: a size of a named dimension that the model does not take
 * counts as one that does not fit. */
static enum ul_status try_larger(struct search *search, int64_t count, struct ul_diag *diag)
{
    struct ul_saved_search *result = &search->result;
    enum ul_status status = try_size(search, count, diag);
    if (status == UL_OK || status == UL_NO_FIT || search->dim == NULL)
        return status;
    search->refused = count * search->unit;
    result->why_not_larger = ul_arena_copy_string(&search->compile->keep, diag->text);
    return UL_NO_FIT;
}

/* ---- The search ---- */

/* Finds the first size that can be planned: a single value has no statistics to train, and a
 * network that halves its pictures takes none of one row. */
static enum ul_status try_first(struct search *search, int64_t *count)
{
    struct ul_diag *diag = &search->compile->diag, first;
    int64_t last = search->dim == NULL ? 2 : MAX_SIZE;
    enum ul_status status = try_size(search, 1, diag);
    first = *diag;
    for (*count = 1; status != UL_OK && status != UL_NO_FIT && 2 * *count <= last;) {
        *count *= 2;
        status = try_size(search, *count, diag);
    }
    if (status == UL_NO_FIT)
        ul_diag_prefix(diag, ul_arena_printf(&search->compile->keep,
                                             "%s: not even the smallest fits", search->option));
    else
        *diag = first;
    if (status == UL_OK)
        *diag = (struct ul_diag){.status = UL_OK};
    return status == UL_OK || status == UL_NO_FIT ? status : diag->status;
}

/* Doubles `fits` until a size does not fit: *misfit. */
static enum ul_status gallop(struct search *search, int64_t *fits, int64_t *misfit)
{
    struct ul_diag *diag = &search->compile->diag, trial;
    for (*misfit = 2 * *fits; *misfit <= MAX_SIZE; *misfit *= 2) {
        enum ul_status status = try_larger(search, *misfit, &trial);
        if (status == UL_NO_FIT)
            return UL_OK;
        if (status != UL_OK)
            return ul_diag_set(diag, status,
                               "%s: a batch of %lld can be planned, one of %lld cannot; "
                               "export the model with a batch that is free everywhere in it: %s",
                               search->option, (long long)(*fits * search->unit),
                               (long long)(*misfit * search->unit), trial.text);
        *fits = *misfit;
    }
    return ul_diag_set(diag, UL_USAGE,
                       "%s: %lld fits, and larger sizes are not tried; give a size instead",
                       search->option, (long long)(*fits * search->unit));
}

static enum ul_status find(struct search *search)
{
    struct ul_compile *compile = search->compile;
    int64_t fits = 0, misfit = 0;
    UL_TRY(try_first(search, &fits));
    UL_TRY(gallop(search, &fits, &misfit));
    while (misfit - fits > 1) {
        int64_t middle = fits + (misfit - fits) / 2;
        enum ul_status status = try_larger(search, middle, &compile->diag);
        if (status != UL_OK && status != UL_NO_FIT)
            return status;
        *(status == UL_OK ? &fits : &misfit) = middle;
    }
    compile->diag = (struct ul_diag){.status = UL_OK};
    search->result.name = search->dim;
    search->result.size = (uint64_t)(fits * search->unit);
    if (search->refused != misfit * search->unit)
        search->result.why_not_larger = NULL;
    struct ul_saved *facts = &compile->report.facts;
    *(search->dim != NULL ? &facts->has_max_dim : &facts->has_max_batch) = true;
    *(search->dim != NULL ? &facts->max_dim : &facts->max_batch) = search->result;
    const struct ul_option_edits edits = size_edits(search, fits * search->unit);
    return ul_options_change(&compile->options.base, &edits, &compile->diag);
}

/* ---- The request ---- */

static enum ul_status check(const struct search *search)
{
    struct ul_compile *compile = search->compile;
    const struct ul_option *parts = ul_option_find(&ul_compile_option_table, "micro-batches");
    if (compile->options.max_batch && compile->options.max_dim != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--max-batch and --max-dim both ask what a budget leaves room for: give "
                           "the one as a number");
    if (ul_option_is_given(&compile->options.base, parts) && compile->options.micro_batches == 0)
        return ul_diag_set(
            &compile->diag, UL_USAGE,
            "%s and --micro-batches auto both ask what a budget leaves room for: give the %s or "
            "the number of micro-batches",
            search->option, search->dim != NULL ? "dimension" : "batch");
    if (compile->options.spaces.count > 0)
        return ul_diag_set(
            &compile->diag, UL_USAGE,
            "%s finds what a budget leaves room for, and knows no --space: leave one "
            "of them out, or give the size as a number",
            search->option);
    if (!ul_compile_has_budget(&compile->options))
        return ul_diag_set(
            &compile->diag, UL_USAGE,
            "%s finds what a budget leaves room for: give --budget SIZE or --device NAME",
            search->option);
    return ul_compile_check_trials(compile, search->option, "size", search->path);
}

/* NAME, or NAME:N for multiples of N. */
static enum ul_status read_dim(struct search *search)
{
    struct ul_compile *compile = search->compile;
    const char *said = compile->options.max_dim, *colon = strrchr(said, ':');
    bool has_unit = colon != NULL && colon != said && colon[1] != '\0' &&
                    colon[1 + strspn(colon + 1, "0123456789")] == '\0';
    search->dim = ul_arena_copy_string(&compile->keep, said);
    search->unit = 1;
    if (has_unit) {
        uint64_t unit;
        if (!ul_size_parse(colon + 1, &unit) || unit == 0 || unit > (uint64_t)MAX_SIZE)
            return ul_diag_set(&compile->diag, UL_USAGE,
                               "--max-dim %s: expected NAME, or NAME:N for multiples of N, N from "
                               "1 to %lld",
                               ul_option_shown(&compile->keep, said), (long long)MAX_SIZE);
        search->unit = (int64_t)unit;
        search->dim = ul_arena_printf(&compile->keep, "%.*s", (int)(colon - said), said);
    }
    if (ul_named_sizes_find(&compile->options.dims, search->dim) != NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--dim %s: it is what --max-dim finds; leave it out",
                           ul_option_shown(&compile->keep, search->dim));
    ul_texts_add(&compile->keep, &search->symbols, search->dim);
    return UL_OK;
}

enum ul_status ul_compile_find_largest(struct ul_compile *compile, const char *model_path)
{
    const struct ul_compile_options *options = &compile->options;
    struct search search = {.compile = compile, .path = model_path};
    if (!options->max_batch && options->max_dim == NULL)
        return ul_compile_find_parts(compile, model_path);
    search.option = options->max_dim != NULL ? "--max-dim" : "--max-batch";
    search.dim = options->max_dim;
    UL_TRY(check(&search));
    if (options->max_dim != NULL)
        UL_TRY(read_dim(&search));
    else {
        search.unit = options->micro_batches > 1 ? (int64_t)options->micro_batches : 1;
        UL_TRY(find_inputs(&search));
    }
    return find(&search);
}
