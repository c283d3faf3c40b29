/* SPDX-License-Identifier: 0BSD */
/*
 * Training from the command line: batches from files, one update after the other, checkpoints.
 * Ctrl-C, SIGTERM and SIGHUP end it after the step that is running. */
#define _XOPEN_SOURCE 700 /* sigaction */
#include "ul_train_internal.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#define EXIT_INTERRUPTED 130

static volatile sig_atomic_t interrupted;

static void interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* A second signal ends the program as usual. */
static void catch_signals(void)
{
    struct sigaction action, hangup;
    memset(&action, 0, sizeof action);
    action.sa_handler = interrupt;
    action.sa_flags = SA_RESTART | (int)SA_RESETHAND;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* as by nohup */
        sigaction(SIGHUP, &action, NULL);
}

/* Filling in a batch must not count. */
static int check_pad(const struct ul_training_run *run)
{
    const struct ul_session *s = run->session;
    const struct ul_rt_training *training = run->training;
    if (!run->pads)
        return UL_EXIT_OK;
    if (training->has_batch_statistics)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "--last pad: what fills the batch would be part of the model's batch "
                        "statistics; use --last drop");
    if (training->labels == UL_TENSOR_NONE)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "--last pad: the loss is an output of the model, of which what fills the "
                        "batch would be part; use --last drop");
    return UL_EXIT_OK;
}

static int open_data(struct ul_training_run *run)
{
    const struct ul_session *s = run->session;
    const struct ul_run_options *options = s->options;
    const struct ul_sources sources = {.data = options->train.data,
                                       .labels = options->train.labels,
                                       .inputs = options->inputs,
                                       .input_count = options->input_count,
                                       .data_option = "--data",
                                       .labels_option = "--labels",
                                       .input_option = "--input"};
    char shown[UL_SHOWN_BYTES];
    int status = ul_dataset_open(&run->data, run->session, &sources);
    if (status == UL_EXIT_OK && run->data.sample_count < (run->pads ? 1 : run->batch_samples))
        return ul_error(s, UL_EXIT_INVALID,
                        "%s holds %" PRIu64 " samples, fewer than the %" PRIu64 " of one batch",
                        ul_shown(shown, sources.data), run->data.sample_count, run->batch_samples);
    return status;
}

/* Checked before hours of work: such parameters could not be saved. */
static int check_save(const struct ul_training_run *run)
{
    const char *path = run->session->options->train.save;
    struct ul_writer writer;
    if (path == NULL)
        return UL_EXIT_OK;
    int status = ul_checkpoint_check(run);
    if (status == UL_EXIT_OK)
        status = ul_writer_open(run->session, &writer, path);
    return status == UL_EXIT_OK ? ul_writer_close(run->session, &writer, false) : status;
}

static bool is_file(const struct stat *status, const struct ul_dataset *set)
{
    struct stat other;
    for (uint32_t i = 0; i < set->column_count; i++)
        if (fstat(fileno(set->columns[i].reader.file), &other) == 0 &&
            other.st_dev == status->st_dev && other.st_ino == status->st_ino)
            return true;
    return false;
}

/* Metrics are written while checkpoints are, so they must not overwrite one. */
static bool is_checkpoint(const struct ul_train_options *options, const struct stat *status)
{
    const char *const paths[3] = {options->save, options->init, options->resume};
    struct stat other;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] != NULL && stat(paths[i], &other) == 0 && other.st_dev == status->st_dev &&
            other.st_ino == status->st_ino && S_ISREG(other.st_mode))
            return true;
    return false;
}

/* What is written must not replace samples, nor metrics replace checkpoints. */
static int check_targets(const struct ul_training_run *run)
{
    const struct ul_train_options *options = &run->session->options->train;
    const char *const paths[2] = {options->save, options->metrics};
    char shown[UL_SHOWN_BYTES];
    struct stat status;
    bool is_same = options->save != NULL && options->metrics != NULL &&
                   strcmp(options->save, options->metrics) == 0;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] != NULL && stat(paths[i], &status) == 0 &&
            (is_file(&status, &run->data) || is_file(&status, &run->held_out)))
            return ul_error(run->session, UL_EXIT_USAGE,
                            "%s %s would destroy samples; give another name",
                            i == 0 ? "--save" : "--metrics", ul_shown(shown, paths[i]));
    if (is_same || (options->metrics != NULL && stat(options->metrics, &status) == 0 &&
                    is_checkpoint(options, &status)))
        return ul_error(run->session, UL_EXIT_USAGE,
                        "--metrics %s would destroy a checkpoint; give another name",
                        ul_shown(shown, options->metrics));
    return UL_EXIT_OK;
}

/* Reads what the arena says of the loss scale. */
static int read_scale(struct ul_training_run *run)
{
    const struct ul_session *s = run->session;
    struct ul_failure failure;
    void *place = s->model->device != NULL ? (void *)s->context : (void *)s->arena;
    if (!ul_train_has_scale(run->training) ||
        ul_train_loss_scale(s->model, place, &run->loss_scale, &run->taken_steps, &failure) ==
            UL_OK)
        return UL_EXIT_OK;
    return ul_report_failure(s, NULL, &failure);
}

uint64_t ul_train_order_step(const struct ul_training_run *run)
{
    return run->trainer.step + run->order_shift;
}

uint64_t ul_train_epoch(const struct ul_training_run *run)
{
    return (ul_train_order_step(run) - 1) / run->epoch_steps + 1;
}

/* The step with which so many epochs end. */
static uint64_t count_steps(const struct ul_training_run *run, uint64_t epochs)
{
    uint64_t behind = ul_train_order_step(run);
    if (epochs > UINT64_MAX / run->epoch_steps)
        return UINT64_MAX;
    uint64_t end = epochs * run->epoch_steps;
    return end > behind ? run->trainer.step + (end - behind) : run->trainer.step;
}

static int begin(struct ul_training_run *run)
{
    const struct ul_train_options *options = &run->session->options->train;
    ul_train_init(run->session->model, &run->trainer);
    run->trainer.seed = options->seed != UINT64_MAX ? options->seed : 0;
    if (options->learning_rate >= 0.0)
        run->trainer.learning_rate = options->learning_rate;
    run->shuffles = !options->in_order;
    run->pads = options->pad;
    run->batch_samples = (uint64_t)run->training->sample_count * run->training->micro_batches;
    int status = check_pad(run);
    if (status == UL_EXIT_OK)
        status = check_save(run);
    if (status == UL_EXIT_OK)
        status = open_data(run);
    if (status == UL_EXIT_OK)
        status = ul_evaluation_open(run);
    if (status == UL_EXIT_OK)
        status = check_targets(run);
    if (status != UL_EXIT_OK)
        return status;
    run->epoch_steps = run->data.sample_count / run->batch_samples;
    if (run->pads && run->data.sample_count % run->batch_samples != 0)
        run->epoch_steps++;
    if (options->init != NULL)
        status = ul_checkpoint_init(run, options->init);
    if (options->resume != NULL)
        status = ul_checkpoint_resume(run, options->resume);
    run->step_count = options->epochs != 0 ? count_steps(run, options->epochs) : options->steps;
    return status == UL_EXIT_OK ? read_scale(run) : status;
}

/* Chooses the samples of the next run; gives how many of them are no filling. */
static uint32_t choose_samples(struct ul_training_run *run)
{
    struct ul_dataset *set = &run->data;
    uint64_t step = ul_train_order_step(run), epoch = step / run->epoch_steps;
    uint64_t first = step % run->epoch_steps * run->batch_samples +
                     (uint64_t)run->trainer.micro_batch * set->batch_count;
    uint64_t left = first < set->sample_count ? set->sample_count - first : 0;
    uint32_t count = left < set->batch_count ? (uint32_t)left : set->batch_count;
    for (uint32_t i = 0; i < set->batch_count; i++) {
        uint64_t place = i < count ? first + i : 0;
        set->samples[i] =
            run->shuffles ? ul_train_shuffled(run->trainer.seed, epoch, set->sample_count, place)
                          : place;
    }
    return count;
}

/* One run of the model, on one micro-batch. */
static int run_once(struct ul_training_run *run, struct ul_outcome *outcome)
{
    struct ul_session *s = run->session;
    const struct ul_rt_training *training = run->training;
    double values[UL_RT_STEP_NUMBERS];
    uint32_t count = choose_samples(run);
    int status = ul_dataset_read(&run->data, count, outcome);
    if (status != UL_EXIT_OK)
        return status;
    ul_train_numbers(training, &run->trainer, values);
    values[UL_RT_STEP_SAMPLES] = (double)count;
    memcpy(ul_session_input(s, training->step), values, sizeof values);
    status = ul_session_enter(s, ul_train_entry(training, &run->trainer), NULL, NULL);
    outcome->loss = ul_element_get(s->model->outputs[training->loss_output].type,
                                   ul_session_output(s, training->loss_output), 0);
    int64_t correct = 0;
    if (training->correct_output != UL_TENSOR_NONE)
        memcpy(&correct, ul_session_output(s, training->correct_output), sizeof correct);
    outcome->correct_count += correct;
    return status;
}

static int run_step(struct ul_training_run *run, struct ul_outcome *outcome)
{
    uint32_t count = run->training->micro_batches;
    int status = UL_EXIT_OK;
    memset(outcome, 0, sizeof *outcome);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < count; i++) {
        run->trainer.micro_batch = i;
        status = run_once(run, outcome);
    }
    run->trainer.micro_batch = 0;
    if (status != UL_EXIT_OK)
        return status;
    run->trainer.step++;
    int64_t taken_steps = run->taken_steps;
    outcome->loss_scale = run->loss_scale;
    status = read_scale(run);
    outcome->is_skipped = ul_train_has_scale(run->training) && run->taken_steps == taken_steps;
    return status;
}

static const char *not_finite(double number)
{
    return isnan(number) ? "not a number" : "infinite";
}

/* What may help: about the sample that is to blame, or about the rate. */
static const char *remedy(const char *blame)
{
    return blame[0] != '\0' ? "leave such samples out"
                            : "a lower --lr, or samples of smaller numbers, may help";
}

int ul_train_blame(struct ul_training_run *run, char blame[UL_BLAME_BYTES])
{
    int status = UL_EXIT_OK;
    blame[0] = '\0';
    if (run->trainer.step == 0)
        return UL_EXIT_OK;
    run->trainer.step--;
    for (uint32_t i = 0;
         status == UL_EXIT_OK && blame[0] == '\0' && i < run->training->micro_batches; i++) {
        run->trainer.micro_batch = i;
        uint32_t count = choose_samples(run);
        status = ul_dataset_blame(&run->data, count, blame);
    }
    run->trainer.micro_batch = 0;
    run->trainer.step++;
    return status;
}

static int save(struct ul_training_run *run)
{
    const char *path = run->session->options->train.save;
    return path != NULL ? ul_checkpoint_write(run, path) : UL_EXIT_OK;
}

/* Ends an epoch, or training within one. */
static int end_epoch(struct ul_training_run *run, struct ul_progress *progress)
{
    struct ul_outcome outcome;
    char blame[UL_BLAME_BYTES];
    bool evaluates =
        run->held_out.column_count != 0 && progress->epoch_steps != 0 && interrupted == 0;
    int status = evaluates ? ul_evaluation_run(run, &outcome, blame) : UL_EXIT_OK;
    if (status == UL_EXIT_OK)
        status = ul_progress_epoch(run, progress, evaluates ? &outcome : NULL);
    if (status == UL_EXIT_OK && evaluates && !isfinite(outcome.loss))
        return ul_error(run->session, UL_EXIT_VERIFY,
                        "behind step %" PRIu64 ", the loss of what is held out is %s%s; what was "
                        "learned since the last checkpoint is lost (%s)",
                        run->trainer.step, not_finite(outcome.loss), blame, remedy(blame));
    return status == UL_EXIT_OK ? save(run) : status;
}

/* Where a loss is no number, neither are the parameters any more, so they are not saved. A mean
   over no label is no number, as in torch. */
static int lost(struct ul_training_run *run, const struct ul_outcome *outcome)
{
    char blame[UL_BLAME_BYTES];
    bool all_ignored = outcome->label_count == 0 &&
                       ul_labels_are_classes(run->session->model, run->training->labels);
    int status = ul_train_blame(run, blame);
    if (blame[0] == '\0' && all_ignored)
        snprintf(blame, sizeof blame, ", for all labels of its batch are ignored");
    if (status != UL_EXIT_OK)
        return status;
    return ul_error(run->session, UL_EXIT_VERIFY,
                    "step %" PRIu64 ": the loss is %s%s; what was learned since the last "
                    "checkpoint is lost (%s)",
                    run->trainer.step, not_finite(outcome->loss), blame, remedy(blame));
}

/* Names, once, a sample that no scale of the loss helps. */
static int blame_skipped(struct ul_training_run *run)
{
    const struct ul_session *s = run->session;
    char blame[UL_BLAME_BYTES];
    if (run->has_blamed)
        return UL_EXIT_OK;
    int status = ul_train_blame(run, blame);
    if (status != UL_EXIT_OK || blame[0] == '\0')
        return status;
    run->has_blamed = true;
    fprintf(stderr, "%s%s: step %" PRIu64 " is skipped%s (the first such sample is named)\n",
            s->has_line ? "\r\033[K" : "", s->program, run->trainer.step, blame);
    return UL_EXIT_OK;
}

/* A scale as small as this one would bring any gradient into the range of 16 bits that has a place
   in f32's. */
#define MIN_LOSS_SCALE (1.0f / 65536.0f)

static int lost_scale(struct ul_training_run *run)
{
    char blame[UL_BLAME_BYTES];
    int status = ul_train_blame(run, blame);
    if (status != UL_EXIT_OK)
        return status;
    return ul_error(run->session, UL_EXIT_VERIFY,
                    "step %" PRIu64 ": gradients are not finite by a loss scale of %g either%s; "
                    "what was learned since the last checkpoint is lost (%s)",
                    run->trainer.step, (double)run->loss_scale, blame, remedy(blame));
}

static int one_step(struct ul_training_run *run, struct ul_progress *progress)
{
    struct ul_outcome outcome;
    double rate = ul_train_rate(run->training, &run->trainer);
    ul_progress_step_begins(progress);
    int status = run_step(run, &outcome);
    if (status != UL_EXIT_OK)
        return status;
    ul_progress_step(run, progress, &outcome, rate);
    if (!isfinite(outcome.loss) && !outcome.is_skipped)
        return lost(run, &outcome);
    if (outcome.is_skipped && run->loss_scale < MIN_LOSS_SCALE)
        return lost_scale(run);
    if (outcome.is_skipped)
        status = blame_skipped(run);
    if (status != UL_EXIT_OK)
        return status;
    bool ends =
        ul_train_order_step(run) % run->epoch_steps == 0 && run->trainer.step != run->step_count;
    return ends ? end_epoch(run, progress) : UL_EXIT_OK;
}

static int train(struct ul_training_run *run, struct ul_progress *progress)
{
    int status = UL_EXIT_OK;
    if (run->trainer.step >= run->step_count)
        fprintf(stderr, "%s: behind step %" PRIu64 " already: nothing is left of so many %s\n",
                run->session->program, run->trainer.step,
                run->session->options->train.epochs != 0 ? "epochs" : "steps");
    catch_signals();
    while (status == UL_EXIT_OK && interrupted == 0 && run->trainer.step < run->step_count)
        status = one_step(run, progress);
    if (status != UL_EXIT_OK)
        return status;
    status = end_epoch(run, progress);
    if (status == UL_EXIT_OK && run->session->options->train.save == NULL)
        status = ul_checkpoint_check_finite(run);
    if (status == UL_EXIT_OK && interrupted != 0) {
        fprintf(stderr, "%s: interrupted behind step %" PRIu64 "\n", run->session->program,
                run->trainer.step);
        return EXIT_INTERRUPTED;
    }
    return status;
}

int ul_train(struct ul_session *s)
{
    struct ul_training_run run;
    struct ul_progress progress;
    memset(&run, 0, sizeof run);
    run.session = s;
    run.training = s->model->training;
    int status = begin(&run);
    if (status == UL_EXIT_OK)
        status = ul_progress_begin(&run, &progress);
    if (status == UL_EXIT_OK) {
        status = train(&run, &progress);
        int ended = ul_progress_end(&run, &progress, status == UL_EXIT_OK);
        status = status == UL_EXIT_OK ? ended : status;
    }
    ul_dataset_close(&run.held_out);
    ul_dataset_close(&run.data);
    return status;
}
