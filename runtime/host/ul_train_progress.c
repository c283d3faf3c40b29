/* SPDX-License-Identifier: 0BSD */
/* What training reports: a row for each step as CSV, a line that moves on a terminal, a line for
 * each epoch. */
#include "ul_train_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int metrics_error(const struct ul_training_run *run)
{
    char shown[UL_SHOWN_BYTES];
    return ul_error(run->session, UL_EXIT_IO, "cannot write %s: %s",
                    ul_shown(shown, run->session->options->train.metrics), strerror(errno));
}

int ul_progress_begin(const struct ul_training_run *run, struct ul_progress *progress)
{
    const struct ul_train_options *options = &run->session->options->train;
    memset(progress, 0, sizeof *progress);
    progress->draws = isatty(STDERR_FILENO) != 0;
    progress->first_step = run->trainer.step;
    progress->begin_seconds = ul_now();
    if (options->metrics == NULL)
        return UL_EXIT_OK;
    progress->metrics = fopen(options->metrics, options->resume != NULL ? "a" : "w");
    if (progress->metrics == NULL)
        return metrics_error(run);
    (void)fseeko(progress->metrics, 0, SEEK_END);
    if (ftello(progress->metrics) <= 0)
        fprintf(progress->metrics, "step,epoch,loss,lr,samples_per_second%s\n",
                ul_train_has_scale(run->training) ? ",loss_scale,skipped" : "");
    return UL_EXIT_OK;
}

void ul_progress_step_begins(struct ul_progress *progress)
{
    progress->step_seconds = ul_now();
    if (progress->epoch_steps == 0) /* without the part before a checkpoint */
        progress->epoch_seconds = progress->step_seconds;
}

static double percent(int64_t correct_count, uint64_t label_count)
{
    return label_count != 0 ? 100.0 * (double)correct_count / (double)label_count : 0.0;
}

static bool has_accuracy(const struct ul_training_run *run)
{
    return run->training->correct_output != UL_TENSOR_NONE;
}

/* Draws at most ten times a second. */
static void draw(const struct ul_training_run *run, struct ul_progress *progress,
                 const struct ul_outcome *outcome)
{
    char speed[UL_SIZE_TEXT_BYTES];
    double at = ul_now();
    double done = (double)(run->trainer.step - progress->first_step);
    double step_seconds = (at - progress->begin_seconds) / done;
    double left = step_seconds * (double)(run->step_count - run->trainer.step);
    left = left < 1e15 ? left : 1e15; /* whole seconds */
    if (!progress->draws || at - progress->drawn_seconds < 0.1)
        return;
    progress->drawn_seconds = at;
    run->session->has_line = true;
    fprintf(stderr, "\r\033[Kstep %" PRIu64 " of %" PRIu64 ", loss %.4g", run->trainer.step,
            run->step_count, outcome->loss);
    if (has_accuracy(run))
        fprintf(stderr, ", %.1f %% right", percent(progress->correct_count, progress->label_count));
    fprintf(stderr, ", %s samples/s, %" PRIu64 ":%02" PRIu64 " left ",
            ul_speed_text(speed, (double)run->batch_samples / step_seconds), (uint64_t)left / 60,
            (uint64_t)left % 60);
    fflush(stderr);
}

void ul_progress_step(const struct ul_training_run *run, struct ul_progress *progress,
                      const struct ul_outcome *outcome, double rate)
{
    const struct ul_model *model = run->session->model;
    bool wide = model->outputs[run->training->loss_output].type == UL_TYPE_F64;
    progress->trained_seconds = ul_now();
    double seconds = progress->trained_seconds - progress->step_seconds;
    progress->epoch_steps++;
    if (isfinite(outcome->loss) || !outcome->is_skipped) {
        progress->loss_sum += outcome->loss * outcome->weight;
        progress->weight += outcome->weight;
    }
    progress->skipped_count += outcome->is_skipped;
    progress->sample_count += outcome->sample_count;
    progress->correct_count += outcome->correct_count;
    progress->label_count += outcome->label_count;
    if (progress->metrics != NULL)
        fprintf(progress->metrics, "%" PRIu64 ",%" PRIu64 ",%.*g,%.9g,%.6g", run->trainer.step,
                ul_train_epoch(run), wide ? 17 : 9, outcome->loss, rate,
                (double)outcome->sample_count / seconds);
    if (progress->metrics != NULL && ul_train_has_scale(run->training))
        fprintf(progress->metrics, ",%.9g,%d", (double)outcome->loss_scale, outcome->is_skipped);
    if (progress->metrics != NULL)
        fputc('\n', progress->metrics);
    draw(run, progress, outcome);
}

int ul_progress_epoch(const struct ul_training_run *run, struct ul_progress *progress,
                      const struct ul_outcome *held_out)
{
    char speed[UL_SIZE_TEXT_BYTES];
    double seconds = progress->trained_seconds - progress->epoch_seconds;
    if (progress->epoch_steps == 0)
        return UL_EXIT_OK;
    if (run->session->has_line)
        fputs("\r\033[K", stderr);
    run->session->has_line = false;
    printf("epoch %" PRIu64 ", step %" PRIu64 ": loss %.6g", ul_train_epoch(run), run->trainer.step,
           progress->weight > 0 ? progress->loss_sum / progress->weight : NAN);
    if (has_accuracy(run))
        printf(", %.2f %% right", percent(progress->correct_count, progress->label_count));
    printf(", %s samples/s", ul_speed_text(speed, (double)progress->sample_count / seconds));
    if (ul_train_has_scale(run->training))
        printf(", loss scale %g, %" PRIu64 " steps skipped", (double)run->loss_scale,
               progress->skipped_count);
    if (held_out != NULL)
        printf("; held out: loss %.6g", held_out->loss);
    if (held_out != NULL && run->training->correct_output != UL_TENSOR_NONE)
        printf(", %.2f %% right", percent(held_out->correct_count, held_out->label_count));
    putchar('\n');
    fflush(stdout);
    progress->epoch_steps = progress->sample_count = progress->label_count = 0;
    progress->correct_count = 0;
    progress->skipped_count = 0;
    progress->loss_sum = progress->weight = 0.0;
    if (progress->metrics != NULL && fflush(progress->metrics) != 0)
        return metrics_error(run);
    return UL_EXIT_OK;
}

int ul_progress_end(const struct ul_training_run *run, struct ul_progress *progress, bool good)
{
    if (progress->metrics == NULL)
        return UL_EXIT_OK;
    bool failed = ferror(progress->metrics) != 0;
    failed = fclose(progress->metrics) != 0 || failed;
    progress->metrics = NULL;
    return failed && good ? metrics_error(run) : UL_EXIT_OK;
}
