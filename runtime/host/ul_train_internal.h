/*
 * What the files about training share. A program trains on files of samples, whose batches are read
 * straight into the places of the model's inputs: nothing here grows with the data.
 * Ownership and errors as in ul_internal.h.
 */
#ifndef UL_TRAIN_INTERNAL_H
#define UL_TRAIN_INTERNAL_H

#include "ul_internal.h"

#include "ul_train.h"

/* A file of samples for one input. */
struct ul_column {
    struct ul_reader reader;
    uint32_t input;
    enum ul_rt_type type;  /* in the file: the input's, or another integer type, of labels */
    bool swapped;          /* against this machine's order of bytes */
    uint64_t offset_bytes; /* of the first sample in the file */
    uint64_t sample_bytes; /* there */
    uint64_t sample_count;
};

/* Where training stands, beside what the model has in its arena. */
struct ul_training_run {
    struct ul_session *session;
    const struct ul_training *training;
    struct ul_trainer trainer;
    struct ul_column *columns;
    uint32_t column_count;
    uint64_t *samples; /* of one run of the model, by their places in the files */
    bool shuffles;
    uint64_t sample_count;  /* in each file */
    uint64_t batch_samples; /* of an update */
    uint64_t epoch_steps;   /* updates; samples that fill no batch are left out */
    uint64_t step_count;    /* updates of the whole training */
};

/* What is told of it. Sums are of the epoch since it was begun or resumed. */
struct ul_progress {
    FILE *metrics; /* NULL: none */
    bool draws;    /* standard error is a terminal */
    double begin_seconds;
    double drawn_seconds;
    double epoch_seconds; /* when it was begun */
    double step_seconds;  /* likewise */
    uint64_t first_step;  /* of this run of the program */
    uint64_t epoch_steps;
    uint64_t label_count;
    int64_t correct_count;
    double loss_sum;
};

/* What a step came to. */
struct ul_outcome {
    double loss;
    int64_t correct_count;
    uint64_t label_count; /* of which a class is asked */
};

/* ---- ul_train_data.c ---- */
/* Opens the files of the options and checks them against the model and each other. */
int ul_columns_open(struct ul_training_run *run);
void ul_columns_close(struct ul_training_run *run);
/* Reads the samples of one run of the model into its inputs: `first` is the place in the epoch of
   the first one. Labels are checked; *label_count grows by those that are not ignored. */
int ul_columns_read(const struct ul_training_run *run, uint64_t epoch, uint64_t first,
                    uint64_t *label_count);

/* ---- ul_checkpoint.c ---- */
/* Parameters, state, and what a resumed run needs to go on as this one. */
int ul_checkpoint_write(struct ul_training_run *run, const char *path);
/* All of it; nothing of a file that is of another model, or was trained on other data. */
int ul_checkpoint_resume(struct ul_training_run *run, const char *path);
/* Parameters alone, as a beginning. */
int ul_checkpoint_init(struct ul_training_run *run, const char *path);

/* ---- ul_train_progress.c ---- */
int ul_progress_begin(const struct ul_training_run *run, struct ul_progress *progress);
void ul_progress_step_begins(struct ul_progress *progress);
/* Behind a step, which is counted already. */
void ul_progress_step(const struct ul_training_run *run, struct ul_progress *progress,
                      const struct ul_outcome *outcome, double rate);
/* A line for the epoch, or the part of it, that ends here. */
int ul_progress_epoch(const struct ul_training_run *run, struct ul_progress *progress);
int ul_progress_end(const struct ul_training_run *run, struct ul_progress *progress, bool good);

#endif
