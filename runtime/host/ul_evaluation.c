/* SPDX-License-Identifier: 0BSD */
/*
 * Evaluation: loss and right answers on samples that are held out, in the same arena, between two
 * steps. Filling in the last batch does not count. Where the loss is an output of the model,
 * filling would be part of it, so samples that fill no batch are left out. */
#include "ul_train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

int ul_evaluation_open(struct ul_training_run *run)
{
    const struct ul_session *s = run->session;
    const struct ul_run_options *options = s->options;
    const struct ul_sources sources = {.data = options->train.val_data,
                                       .labels = options->train.val_labels,
                                       .inputs = options->val_inputs,
                                       .input_count = options->val_input_count,
                                       .data_option = "--val",
                                       .labels_option = "--val",
                                       .input_option = "--val-input"};
    const struct ul_dataset *set = &run->held_out;
    char shown[UL_SHOWN_BYTES];
    if (options->train.val_data == NULL)
        return UL_EXIT_OK;
    int status = ul_dataset_open(&run->held_out, run->session, &sources);
    bool fills = run->training->labels != UL_TENSOR_NONE;
    if (status == UL_EXIT_OK && set->sample_count < (fills ? 1 : set->batch_count))
        return ul_error(s, UL_EXIT_INVALID, "%s holds %" PRIu64 " samples, too few for a batch",
                        ul_shown(shown, sources.data), set->sample_count);
    return status;
}

/* Runs the batch whose samples are chosen; the first `count` of them count. */
static int run_batch(struct ul_training_run *run, uint32_t count, struct ul_outcome *batch)
{
    struct ul_session *s = run->session;
    const struct ul_rt_training *training = run->training;
    double values[UL_RT_STEP_NUMBERS];
    memset(batch, 0, sizeof *batch);
    int status = ul_dataset_read(&run->held_out, count, batch);
    ul_train_eval_numbers(count, values);
    memcpy(ul_session_input(s, training->step), values, sizeof values);
    if (status == UL_EXIT_OK)
        status = ul_session_enter(s, UL_ENTRY_EVALUATE, NULL, NULL);
    if (status != UL_EXIT_OK)
        return status;
    batch->loss = ul_element_get(s->model->outputs[training->loss_output].type,
                                 ul_session_output(s, training->loss_output), 0);
    if (training->correct_output != UL_TENSOR_NONE)
        memcpy(&batch->correct_count, ul_session_output(s, training->correct_output),
               sizeof batch->correct_count);
    return UL_EXIT_OK;
}

static bool is_bad(const struct ul_outcome *batch)
{
    return batch->weight > 0.0 && !isfinite(batch->loss); /* a mean over nothing is no number */
}

/* The next batch takes `count` samples from `first` on; the first of them fills up the rest. */
static void choose(struct ul_dataset *set, uint64_t first, uint32_t count)
{
    for (uint32_t i = 0; i < set->batch_count; i++)
        set->samples[i] = first + (i < count ? i : 0);
}

/* Evaluates batches of one sample each, and names the first one whose loss is not finite. Where
   that holds for all of them, no sample is to blame. */
static int blame_one(struct ul_training_run *run, uint64_t first, uint32_t count,
                     char blame[UL_BLAME_BYTES])
{
    struct ul_dataset *set = &run->held_out;
    struct ul_outcome batch;
    char shown[UL_SHOWN_BYTES];
    uint32_t bad_count = 0;
    uint64_t first_bad = 0;
    for (uint64_t sample = first; sample < first + count; sample++) {
        choose(set, sample, 1);
        int status = run_batch(run, set->batch_count, &batch);
        if (status != UL_EXIT_OK)
            return status;
        if (is_bad(&batch) && bad_count++ == 0)
            first_bad = sample;
    }
    if (bad_count > 0 && bad_count < count)
        snprintf(blame, UL_BLAME_BYTES, ", for sample %" PRIu64 " of %s alone makes it so",
                 first_bad, ul_shown(shown, set->columns[0].reader.name));
    return UL_EXIT_OK;
}

/* Names a sample of a batch whose loss is not finite: one that holds a number that is not finite,
   or else one whose numbers lead to that loss. */
static int blame_batch(struct ul_training_run *run, uint64_t first, uint32_t count,
                       char blame[UL_BLAME_BYTES])
{
    int status = ul_dataset_blame(&run->held_out, count, blame);
    return status == UL_EXIT_OK && blame[0] == '\0' ? blame_one(run, first, count, blame) : status;
}

static void add(struct ul_outcome *outcome, const struct ul_outcome *batch)
{
    outcome->loss += batch->weight > 0.0 ? batch->loss * batch->weight : 0.0;
    outcome->weight += batch->weight;
    outcome->label_count += batch->label_count;
    outcome->correct_count += batch->correct_count;
}

int ul_evaluation_run(struct ul_training_run *run, struct ul_outcome *outcome,
                      char blame[UL_BLAME_BYTES])
{
    struct ul_dataset *set = &run->held_out;
    bool fills = run->training->labels != UL_TENSOR_NONE;
    struct ul_outcome batch;
    int status = UL_EXIT_OK;
    memset(outcome, 0, sizeof *outcome);
    blame[0] = '\0';
    for (uint64_t first = 0; status == UL_EXIT_OK && first < set->sample_count;
         first += set->batch_count) {
        uint64_t left = set->sample_count - first;
        uint32_t count = left < set->batch_count ? (uint32_t)left : set->batch_count;
        if (count < set->batch_count && !fills)
            break;
        choose(set, first, count);
        status = run_batch(run, count, &batch);
        if (status == UL_EXIT_OK && is_bad(&batch) && isfinite(outcome->loss))
            status = blame_batch(run, first, count, blame);
        add(outcome, &batch);
    }
    if (outcome->weight > 0.0)
        outcome->loss /= outcome->weight;
    return status;
}
