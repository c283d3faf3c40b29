/* SPDX-License-Identifier: Apache-2.0 */
/* What is asked of a training graph: how it learns. Where options are made
 * (compile/pipeline/training.c), numbers default to torch's; nothing here does. */
#ifndef UL_IR_TRAINING_H
#define UL_IR_TRAINING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ir/type.h"

struct ul_tensor;

/* Elements of a block of a state of 8 bits, at most. */
#define UL_UPDATE_BLOCK 256
/* The numbers that its codes stand for. */
#define UL_UPDATE_CODES 256

enum ul_loss { UL_LOSS_CROSS_ENTROPY, UL_LOSS_MSE, UL_LOSS_BCE, UL_LOSS_OUTPUT };
enum ul_optimizer {
    UL_OPTIMIZER_SGD,
    UL_OPTIMIZER_MOMENTUM,
    UL_OPTIMIZER_ADAM,
    UL_OPTIMIZER_ADAMW,
    UL_OPTIMIZER_LION,
    UL_OPTIMIZER_ADAFACTOR,
    UL_OPTIMIZER_ADAM_MINI
};

/* How the norm of all gradients is known before one is used: gradients are kept until then, or
 * formed twice. */
enum ul_clip_mode { UL_CLIP_KEEP, UL_CLIP_TWICE };

/* What parameters are between steps: f32, or bf16 to which an update rounds by chance. */
enum ul_master { UL_MASTER_F32, UL_MASTER_STOCHASTIC };

/* Bits of an element of an optimizer's state: 8 where that is possible. */
enum ul_state_bits { UL_STATE_32, UL_STATE_8 };

/* A factor of the learning rate, as runtime/lib/ul_model.h has it. */
/* A constant rate is no row of a schedule. */
enum ul_rate_kind { UL_RATE_CONSTANT, UL_RATE_STEP, UL_RATE_COSINE, UL_RATE_WARMUP };
struct ul_rate {
    enum ul_rate_kind kind;
    uint64_t steps;
    double factor;
};

/* Weights whose names match get factors of that rank. */
struct ul_lora {
    const char *pattern; /* with * and ? */
    uint32_t rank;
};

/* A row that lookups give no gradient, in tables of such a name. */
struct ul_padding {
    const char *name; /* a pattern, with * and ? */
    int64_t index;    /* below 0: from the end */
};

struct ul_training {
    enum ul_loss loss;
    const char *loss_output; /* the scalar output that is the loss: UL_LOSS_OUTPUT */
    double label_smoothing;
    int64_t ignore_index;
    int64_t class_axis; /* UL_TRAINING_AXIS_OPEN: found from the labels' shape */
    const struct ul_tensor *class_weights;
    enum ul_optimizer optimizer;
    double learning_rate, momentum, beta1, beta2, weight_decay;
    double eps;                            /* UL_TRAINING_EPS_OPEN: that of the parameter's type */
    double beta2_decay, eps2, clip_update; /* for Adafactor */
    bool nesterov, no_decay_1d;
    enum ul_master master;
    uint32_t
        state_bits; /* for an element of an optimizer's state: 32, or 8 where that is possible */
    double clip_value, clip_norm; /* 0: none */
    enum ul_clip_mode clip_mode;
    double loss_scale;        /* a dynamic loss scale at the beginning; 0: there is none */
    uint64_t growth_interval; /* after so many steps in a row that are taken it doubles */
    uint32_t freeze_count, train_only_count;
    const char *const *freeze; /* patterns of names, with * and ? */
    const char *const *train_only;
    uint32_t stop_gradient_count, padding_count;
    const char *const *stop_gradients; /* VALUE or VALUE@NODE, patterns */
    const struct ul_padding *paddings;
    uint32_t lora_count;
    const struct ul_lora *lora; /* the last one that matches counts */
    double lora_alpha;          /* the path through factors is multiplied by it over the rank */
    uint64_t lora_seed;
    const char *quantize;   /* for the weights beside factors, an option a line; NULL: none */
    bool train_mode;        /* turn what was exported for inference back */
    uint32_t micro_batches; /* in a step, at least 1: the batch is that of all of them */
    uint32_t rate_count;
    const struct ul_rate *rates;
    /* Parameters of the network that an exporter has turned into something else. */
    uint32_t lost_count;
    const char **lost;
    /* Values that are trained because the file does not say which are parameters, and that may not
     * be parameters: those that only arithmetic reads (statistics of inputs, tables of positions),
     * those that begin with the batch, and those with a name that an exporter made up. */
    uint32_t arithmetic_count, suspect_count;
    const uint32_t *arithmetic, *suspects;
    /* What the passes found: float initializers of the model, as values of its graph; those of them
     * that freeze, train_only or lora leave out; and, among those that were to be trained, the ones
     * from which nothing differentiable leads to the loss. */
    uint32_t initializer_count, left_out_count, unreached_count;
    const uint32_t *initializers, *left_out, *unreached;
    uint32_t factor_count; /* of --lora: weights that the model does not have */
    uint32_t *factors;
    uint32_t shared_count; /* parameters whose gradient is a sum over nodes that read them */
    const uint32_t *shared;
    uint32_t piece_count; /* of the loss over a vocabulary; 0: it is computed as a whole */
    uint64_t piece_bytes; /* of the logits of one piece */
    uint32_t class_count; /* of labels that are classes; else 0 */
    /* With micro-batches: the value whose gradients are formed, and the weight of the step's labels
     * so far, by which the update divides them. */
    uint32_t loss_sum, loss_weight;
    /* An evaluation makes these outputs, by number: the loss, the count of right answers, and with
     * micro-batches the sums that the loss is made from. */
    uint32_t result_count;
    uint32_t results[4];
    bool has_batch_statistics;
};

#define UL_TRAINING_AXIS_OPEN INT64_MAX
#define UL_TRAINING_EPS_OPEN (-1.0)

/* Whether all gradients are kept until the last is known. */
static inline bool ul_training_keeps(const struct ul_training *training)
{
    return training->loss_scale > 0 ||
           (training->clip_norm > 0 && training->clip_mode == UL_CLIP_KEEP);
}

/* Names of what a training graph has besides the model's inputs and outputs. */
#define UL_TRAINING_LABELS "labels"
/* After a weight's name and a slash: its factors; the input meets A first. */
#define UL_TRAINING_LORA_A "lora_A"
#define UL_TRAINING_LORA_B "lora_B"
/* Bytes of what a checkpoint says of --quantize, with a zero after it (runtime/lib/ul_model.h has
 * the same). */
#define UL_TRAINING_QUANTIZE_BYTES 256
/* The attribute of a Gather whose row of that number has no gradient. */
#define UL_TRAINING_PADDING "ul_padding"
/* How torch writes a network as it is trained. */
#define UL_TRAINING_RECIPE "net.train(); torch.onnx.export(net, args, f, optimize=False)"
#define UL_TRAINING_STEP "ullage.step"
#define UL_TRAINING_LOSS "loss"
#define UL_TRAINING_CORRECT "correct"
/* States of a program with micro-batches: sums over a step. */
#define UL_TRAINING_LOSS_SUM "loss/sum"
#define UL_TRAINING_LOSS_WEIGHT "loss/weight"
#define UL_TRAINING_GRADIENT_STATE "gradient" /* after the parameter's name and a slash */
/* States of a dynamic loss scale: itself, f32; steps in a row that were taken, and all of them, i64
 * (runtime/lib/ul_train.h has the same). */
#define UL_TRAINING_SCALE "loss/scale"
#define UL_TRAINING_SCALE_TRACKER "loss/growth_tracker"
#define UL_TRAINING_SCALE_STEPS "loss/steps"

/* The input `ullage.step` of a program that trains: numbers of the step, f64, which its caller
 * computes (runtime/lib/ul_train.h has the same). */
enum {
    UL_STEP_RATE,    /* learning rate */
    UL_STEP_BIAS1,   /* 1 - beta1^t, t counting from 1 */
    UL_STEP_BIAS2,   /* 1 - beta2^t */
    UL_STEP_SAMPLES, /* how many samples of the run count: those after them fill it up */
    UL_STEP_SEED,
    UL_STEP_COUNT,     /* how many runs came before this one */
    UL_STEP_EVALUATES, /* not 0: nothing is learned; the model does what it learned */
    UL_STEP_PART,      /* the number of the micro-batch in its step */
    UL_STEP_NUMBERS = 8
};

/* training_update.c */

/* How long the parameter's name is in the name of an optimizer's state in a checkpoint
 * (NAME/momentum and the like); 0: it is no such name. */
size_t ul_training_find_owner(const char *name);
/* The dimensions that blocks of a parameter have, f32: those in front of an axis, and along it
 * groups of `group` indexes, each with all that comes after the axis. */
struct ul_type ul_update_blocks(const struct ul_type *type, uint32_t *axis, int64_t *group);
/* What codes of a state stand for, in order (a dynamic tree: Dettmers et al., arXiv 2110.02861,
 * section 2.1): 0, 1, and in each of seven decades below 1 the middles of equal parts, twice as
 * many as in the decade before. Signed ones use half of the codes for numbers below 0. */
void ul_update_numbers(bool is_signed, double *numbers);

#endif
