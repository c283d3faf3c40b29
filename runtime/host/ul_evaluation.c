/*
 * Evaluation: loss and right answers on samples that are held out, in the same arena. Where labels
 * are classes, what fills the last batch is ignored by them; else the samples that fill no batch
 * are left out.
 */
#include "ul_train_internal.h"

#include <inttypes.h>
#include <string.h>

int ul_evaluation_open(struct ul_training_run *run)
{
    struct ul_session *s = run->session;
    const struct ul_train_options *options = &s->options->train;
    const struct ul_training *training = run->training;
    struct ul_dataset *set = &run->held_out;
    char shown[UL_SHOWN_BYTES];
    if (options->val_data == NULL)
        return UL_EXIT_OK;
    if (s->model->entry_count <= UL_ENTRY_EVAL)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "--val: this program has no evaluation; evaluate the model that "
                        "`ullage export` makes of a checkpoint");
    int status = ul_dataset_open(set, s);
    if (status == UL_EXIT_OK)
        status = ul_dataset_add(set, training->eval_data, options->val_data, false);
    if (status == UL_EXIT_OK && training->eval_labels != UL_TENSOR_NONE)
        status = ul_dataset_add(set, training->eval_labels, options->val_labels, true);
    bool fills = ul_labels_are_classes(s->model, training->eval_labels);
    if (status == UL_EXIT_OK && set->sample_count < (fills ? 1 : set->batch_count))
        return ul_error(s, UL_EXIT_INVALID, "%s holds %" PRIu64 " samples, too few for a batch",
                        ul_shown(shown, options->val_data), set->sample_count);
    return status;
}

/* One batch, whose first `count` samples count. */
static int run_batch(struct ul_training_run *run, uint32_t count, struct ul_outcome *outcome)
{
    struct ul_session *s = run->session;
    const struct ul_training *training = run->training;
    struct ul_outcome batch;
    memset(&batch, 0, sizeof batch);
    int status = ul_dataset_read(&run->held_out, count, &batch);
    if (status == UL_EXIT_OK)
        status = ul_session_enter(s, UL_ENTRY_EVAL, NULL, NULL);
    if (status != UL_EXIT_OK)
        return status;
    double loss = ul_element_get(s->model->outputs[training->eval_loss_output].type,
                                 ul_session_output(s, training->eval_loss_output), 0);
    bool classes = ul_labels_are_classes(s->model, training->eval_labels);
    uint64_t weight = classes ? batch.label_count : count;
    if (training->eval_correct_output != UL_TENSOR_NONE)
        memcpy(&batch.correct_count, ul_session_output(s, training->eval_correct_output),
               sizeof batch.correct_count);
    outcome->loss += weight != 0 ? loss * (double)weight : 0.0; /* a mean over none is no number */
    outcome->sample_count += weight;
    outcome->label_count += batch.label_count;
    outcome->correct_count += batch.correct_count;
    return UL_EXIT_OK;
}

int ul_evaluation_run(struct ul_training_run *run, struct ul_outcome *outcome)
{
    struct ul_dataset *set = &run->held_out;
    bool fills = ul_labels_are_classes(run->session->model, run->training->eval_labels);
    int status = UL_EXIT_OK;
    memset(outcome, 0, sizeof *outcome);
    for (uint64_t first = 0; status == UL_EXIT_OK && first < set->sample_count;
         first += set->batch_count) {
        uint64_t left = set->sample_count - first;
        uint32_t count = left < set->batch_count ? (uint32_t)left : set->batch_count;
        if (count < set->batch_count && !fills)
            break;
        for (uint32_t i = 0; i < set->batch_count; i++)
            set->samples[i] = first + (i < count ? i : 0);
        status = run_batch(run, count, outcome);
    }
    if (outcome->sample_count != 0)
        outcome->loss /= (double)outcome->sample_count;
    return status;
}
