/* SPDX-License-Identifier: Apache-2.0 */
/* Updates of parameters by an optimizer: nodes of a training graph. */
#ifndef UL_PASSES_UPDATE_H
#define UL_PASSES_UPDATE_H

#include "ir/gradient.h"
#include "passes/passes_internal.h"

struct ul_update {
    ul_value_id parameter;
    ul_value_id gradient; /* or the sum over a step's runs */
};

struct ul_updates {
    struct ul_pass *pass;
    struct ul_gradient *make;
    ul_value_id step;   /* the input with the numbers of the step */
    ul_value_id number; /* of this update among those that are made, from 1 on, where steps may
                           be skipped; else UL_NONE */
    ul_value_id key;    /* of its random numbers; UL_NONE: not yet */
    struct ul_update *queue;
    uint32_t count, capacity;
    ul_value_id mean; /* the factor of a mean in the gradients: 1 / the weight of all labels of a
                         step's runs, 1 / the loss scale, or both; UL_NONE: it is 1 */
    bool has_mean;    /* whether the first of these is there */
    bool has_scale;   /* whether the second is; if so, whether all gradients were looked at
                         already, */
    bool is_tested;
    ul_value_id excess;    /* and what they say so far: 0, or NaN where one is not finite */
    ul_value_id squares;   /* sum over the gradients so far, where their norm has a bound */
    ul_value_id factor;    /* what gradients are multiplied by to keep that bound; UL_NONE: none,
                              or not known yet */
    ul_value_id tables[2]; /* for states of 8 bits, unsigned and signed ones; UL_NONE: not yet */
};

/* update.c */

/* The input of a training graph with the numbers of the step; made when it is first asked for. */
ul_value_id ul_update_step(struct ul_graph *graph);

/* One of these numbers, f64. */
ul_value_id ul_update_number(struct ul_gradient *make, uint32_t which);
/* The value, which belongs to a run, added to those of the step's earlier runs: a state of this
 * name, which the first run of a step sets. */
ul_value_id ul_update_accumulate(struct ul_gradient *make, const char *name, ul_value_id value);

/* What a state of the model is in this run, before the run changes it: the state itself; or, where
 * a step has several runs and may be skipped, what earlier runs made of it: `pending`, a state that
 * the run must overwrite as well. UL_NONE: there is none. */
ul_value_id ul_update_pending(struct ul_gradient *make, const struct ul_training *training,
                              ul_value_id state, ul_value_id *pending);

/* A state of an optimizer, which begins as zeros: NAME/name in a checkpoint, as torch or its
 * authors call it. */
ul_value_id ul_update_add_state(struct ul_updates *updates, ul_value_id parameter, const char *name,
                                const struct ul_type *type);
/* What gradients are multiplied by, in this type, or UL_NONE. */
ul_value_id ul_update_scale(struct ul_updates *updates, enum ul_dtype dtype);
/* The weight decay of a parameter. */
double ul_update_decay(const struct ul_updates *updates, ul_value_id parameter);

/* update_composed.c: updates of several nodes. */

void ul_update_adafactor(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient);
void ul_update_adam_mini(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient);

/* update.c */

/* Nodes are made with `make`, after all others. */
void ul_update_begin(struct ul_updates *updates, struct ul_pass *pass, struct ul_gradient *make);
/* Has the next flush update the parameter: it and its states overwrite themselves with what the
 * optimizer makes of the gradient, as outputs of the model with donors. */
void ul_update_queue(struct ul_updates *updates, ul_value_id parameter, ul_value_id gradient);
void ul_update_flush(struct ul_updates *updates);
/* After the last one: makes all updates that wait, as they do where the norm of all gradients has a
 * bound. */
void ul_update_finish(struct ul_updates *updates);

/* Whether the gradients are formed twice: first only their norm is taken (--clip-mode twice). */
bool ul_update_runs_twice(const struct ul_training *training);
/* After the first time: from here on updates follow as they are flushed. Gives 1 in the type of
 * `loss`, but only once the norm is known; the second time begins with it. UL_NONE: nothing was
 * trained. */
ul_value_id ul_update_begin_again(struct ul_updates *updates, ul_value_id loss);

/* loss_scale.c */

/* The scale of the loss, a state, which is made when it is first asked for; UL_NONE: it has none.
 */
ul_value_id ul_loss_scale(struct ul_graph *graph, const struct ul_training *training);
/* The gradient of the loss by itself: its scale; or 1, where it has none, or where the gradients of
 * its pieces have it already. */
ul_value_id ul_loss_scale_seed(struct ul_gradient *make, const struct ul_training *training,
                               ul_value_id loss);
/* Gives a number of this gradient for updates->excess: 0, or NaN where it is not finite. */
ul_value_id ul_loss_scale_excess(struct ul_updates *updates, ul_value_id gradient);
/* After the last one, before any update: computes the next step's scale, and updates->step, whose
 * numbers make updates learn nothing where a gradient is not finite. States of the model itself,
 * which are written by now, then stay as they were. */
void ul_loss_scale_finish(struct ul_updates *updates);

#endif
