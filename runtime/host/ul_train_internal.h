/* SPDX-License-Identifier: 0BSD */
/*
 * What the files about training share. A program trains on files of samples, whose batches are read
 * straight into the places of the model's inputs: nothing here grows with the data.
 * Ownership and errors as in ul_internal.h.
 */
#ifndef UL_TRAIN_INTERNAL_H
#define UL_TRAIN_INTERNAL_H

#include "ul_internal.h"

#include "ul_train.h"

#define UL_BLAME_BYTES (UL_SHOWN_BYTES + 96)

/* A file of samples for one input. */
struct ul_column {
    struct ul_reader reader;
    uint32_t input;
    bool is_labels;
    enum ul_rt_type type;  /* in the file: the input's type; for labels, maybe another integer
                              type */
    bool swapped;          /* against this machine's order of bytes */
    uint64_t offset_bytes; /* of the first sample in the file */
    uint64_t sample_bytes; /* in the file */
    uint64_t sample_count;
};

/* Where samples come from, and the options that say so. */
struct ul_sources {
    const char *data;
    const char *labels; /* NULL: there are none */
    const struct ul_assignment *inputs;
    uint32_t input_count;
    const char *data_option, *labels_option, *input_option;
};

/* Files that go together. */
struct ul_dataset {
    struct ul_session *session;
    struct ul_column *columns; /* the first one is the data */
    uint32_t column_count;
    uint32_t batch_count;  /* samples of one run of the model */
    uint64_t *samples;     /* those of the next run, by their places in the files */
    uint64_t sample_count; /* in each file */
};

/* How far training is, besides what the model has in its arena. */
struct ul_training_run {
    struct ul_session *session;
    const struct ul_rt_training *training;
    struct ul_trainer trainer;
    struct ul_dataset data;
    struct ul_dataset held_out; /* no columns: there is no --val */
    bool shuffles;
    bool pads;
    uint64_t order_shift;   /* added to a step, modulo 2^64, to get the one whose samples it
                               takes, since batches, or samples, were others before */
    uint64_t batch_samples; /* of one update */
    uint64_t epoch_steps;   /* updates */
    uint64_t step_count;    /* updates of the whole training */
    float loss_scale;       /* that the next step begins with, where the model has one, */
    int64_t taken_steps;    /* and how many steps were not skipped */
    bool has_blamed;        /* a sample was named for such a step, on standard error, once */
};

/* What is reported. Sums are over the epoch since it was begun or resumed. */
struct ul_progress {
    FILE *metrics; /* NULL: none */
    bool draws;    /* standard error is a terminal */
    double begin_seconds;
    double drawn_seconds;
    double epoch_seconds;   /* when it was begun */
    double step_seconds;    /* when the step was begun */
    double trained_seconds; /* when the last step was done */
    uint64_t first_step;    /* of this run of the program */
    uint64_t epoch_steps;
    uint64_t sample_count;
    uint64_t label_count;
    int64_t correct_count;
    double loss_sum; /* losses times their weights */
    double weight;
    uint64_t skipped_count; /* steps */
};

/* What a step resulted in. */
struct ul_outcome {
    double loss;
    int64_t correct_count;
    uint64_t sample_count;
    uint64_t label_count; /* labels that must be a class */
    double weight;        /* of this loss in the mean of several */
    bool is_skipped;      /* nothing was learned: a gradient was not finite */
    float loss_scale;     /* with which it ran */
};

/* ---- ul_train_data.c ---- */
/* Opens the files of every input that a run takes, except the numbers of its step. */
int ul_dataset_open(struct ul_dataset *set, struct ul_session *session,
                    const struct ul_sources *sources);
void ul_dataset_close(struct ul_dataset *set);
/* Reads set->samples into the model's inputs. Those after the first `count` are filling, whose
   labels are ignored. Labels are checked; outcome counts samples and labels, and what they
   weigh. */
int ul_dataset_read(const struct ul_dataset *set, uint32_t count, struct ul_outcome *outcome);
/* Reads set->samples again, of which the first `count` count, and looks for the first one that
   holds a number that is not finite: gives a text like ", for sample 12 of x.npy is not finite", or
   "". */
int ul_dataset_blame(const struct ul_dataset *set, uint32_t count, char blame[UL_BLAME_BYTES]);
/* Whether labels are classes, and so may be ignored. */
bool ul_labels_are_classes(const struct ul_model *model, uint32_t input);

/* ---- ul_evaluation.c ---- */
/* Opens the files of --val, where it is given. */
int ul_evaluation_open(struct ul_training_run *run);
/* The mean loss over all samples that are held out, and how many were right. blame: about the first
   batch whose loss is not finite, as ul_dataset_blame says it, or ", for sample 12 of x.npy alone
   makes it so". */
int ul_evaluation_run(struct ul_training_run *run, struct ul_outcome *outcome,
                      char blame[UL_BLAME_BYTES]);

/* ---- ul_train.c ---- */
/* The step whose samples the next one takes, counted as if batches had always been this large; and
   the epoch of the last one, from 1. */
uint64_t ul_train_order_step(const struct ul_training_run *run);
uint64_t ul_train_epoch(const struct ul_training_run *run);
/* As ul_dataset_blame, for the samples of the step that was done last. */
int ul_train_blame(struct ul_training_run *run, char blame[UL_BLAME_BYTES]);

/* ---- ul_checkpoint.c ---- */
/* Whether there can be checkpoints of the model. */
int ul_checkpoint_check(const struct ul_training_run *run);
/* After the last update, which may make numbers that no loss has shown yet: whether all are
 * finite. */
int ul_checkpoint_check_finite(struct ul_training_run *run);
/* Writes parameters, state, and what a resumed run needs to go on like this one. */
int ul_checkpoint_write(struct ul_training_run *run, const char *path);
/* Reads all of it; nothing from a file of another model, or that was trained on other data. */
int ul_checkpoint_resume(struct ul_training_run *run, const char *path);
/* Reads parameters alone, as a beginning. */
int ul_checkpoint_init(struct ul_training_run *run, const char *path);

/* ---- ul_train_progress.c ---- */
int ul_progress_begin(const struct ul_training_run *run, struct ul_progress *progress);
void ul_progress_step_begins(struct ul_progress *progress);
/* Call it after a step, which is counted already. */
void ul_progress_step(const struct ul_training_run *run, struct ul_progress *progress,
                      const struct ul_outcome *outcome, double rate);
/* A line for the epoch, or the part of it, that ends here, if anything was done in it; held_out is
   NULL where there is no evaluation. */
int ul_progress_epoch(const struct ul_training_run *run, struct ul_progress *progress,
                      const struct ul_outcome *held_out);
int ul_progress_end(const struct ul_training_run *run, struct ul_progress *progress, bool good);

#endif
