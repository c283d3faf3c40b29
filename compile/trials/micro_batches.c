/* SPDX-License-Identifier: Apache-2.0 */
/* How many micro-batches a step has: --micro-batches auto.
 *
 * Problem: with more parts a step needs less memory and less recomputation, but its kernels are
 * smaller. Method: the possible numbers of parts are planned by compiles of their own, from 1 on;
 * of those that fit the budget, the one with the least predicted time of a whole step is taken.
 * Once one fits without recomputation, more parts would only add time. */
#include "compile/trials/trial.h"

struct search {
    struct ul_compile *compile;
    const struct ul_option *row;
    struct ul_saved_search result;
    uint32_t tried_capacity;
};

static enum ul_status try_parts(struct search *search, const char *path, uint64_t parts,
                                struct ul_trial *trial)
{
    struct ul_saved_search *result = &search->result;
    struct ul_arena *arena = &search->compile->keep;
    const char *number = ul_arena_printf(arena, "%llu", (unsigned long long)parts);
    *trial = (struct ul_trial){.what = ul_arena_printf(arena, "%s micro-batches", number)};
    ul_option_edits_add(arena, &trial->edits, search->row, number, false);
    enum ul_status status = ul_compile_try(search->compile, path, trial);
    if (!trial->result.is_planned)
        return status;
    UL_GROW(arena, result->planned, result->tried_count, search->tried_capacity);
    result->planned[result->tried_count++] =
        (struct ul_saved_tried){.size = parts,
                                .bytes = trial->result.bounded_bytes,
                                .cost = trial->result.cost,
                                .fits = status == UL_OK};
    return status;
}

/* The number changes the statistics of a batch: only the user may choose it. */
static enum ul_status refuse_statistics(struct ul_compile *compile)
{
    return ul_diag_set(&compile->diag, UL_USAGE,
                       "--micro-batches auto: BatchNormalization takes statistics of each "
                       "micro-batch, so that their number changes what is learned; give a number");
}

/* Plans all possible numbers until one fits without recomputation; the last message is in
 * `diag`. */
static enum ul_status try_all(struct search *search, const char *path, struct ul_diag *diag)
{
    struct ul_trial trial;
    uint64_t samples = 1, best_cost = UINT64_MAX;
    for (uint64_t parts = 1; parts <= samples && parts <= UL_COMPILE_MAX_PARTS; parts++) {
        if (samples % parts != 0)
            continue;
        enum ul_status status = try_parts(search, path, parts, &trial);
        *diag = trial.diag;
        if (trial.has_batch_statistics)
            return refuse_statistics(search->compile);
        if (status != UL_OK && status != UL_NO_FIT) {
            search->compile->diag = *diag;
            return status;
        }
        if (parts == 1 && trial.result.sample_count > 0)
            samples = trial.result.sample_count;
        if (status == UL_OK && trial.result.cost < best_cost) {
            best_cost = trial.result.cost;
            search->result.size = parts;
        }
        if (status == UL_OK && !trial.repeats)
            break;
    }
    return UL_OK;
}

enum ul_status ul_compile_find_parts(struct ul_compile *compile, const char *model_path)
{
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, "micro-batches");
    struct search search = {.compile = compile, .row = row};
    struct ul_diag diag = {.status = UL_OK};
    bool is_open = compile->options.train && ul_option_is_given(&compile->options.base, row) &&
                   compile->options.micro_batches == 0;
    if (!is_open || !ul_compile_has_budget(&compile->options))
        return UL_OK; /* training.c reports that there is nothing to choose by */
    UL_TRY(ul_compile_check_trials(compile, "--micro-batches auto", "number", model_path));
    UL_TRY(try_all(&search, model_path, &diag));
    if (search.result.size == 0) {
        compile->diag = diag;
        ul_diag_prefix(&compile->diag, "--micro-batches auto: not even one sample at a time fits");
        return UL_NO_FIT;
    }
    compile->options.micro_batches = search.result.size;
    compile->report.facts.has_micro_batches = true;
    compile->report.facts.micro_batches = search.result;
    return UL_OK;
}
