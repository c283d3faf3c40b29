/* SPDX-License-Identifier: 0BSD */
/*
 * What a program that trains does around each step: the learning rate by its schedules, the numbers
 * that a step is given, the order of samples, and what training changed as bytes. The graph itself,
 * forward, backward and update, is the model's run.
 *
 *     struct ul_trainer trainer;
 *     ul_train_init(&model_model, &trainer);
 *     while (...)
 *         ul_train_step(&model_model, arena, &trainer, inputs, outputs, &failure);
 *     ul_train_save(&model_model, arena, &trainer, write, file, &failure);
 *
 * `place` is the arena, or the context of a model on a device (ul_train_device.h). Invariants:
 * nothing is allocated, nothing static is written; steps are a function of trainer, arena and
 * inputs alone, so a trainer that was saved and loaded goes on as if it had never stopped, bit for
 * bit. Rates and corrections are computed in double, whatever the model's type is. Ownership: the
 * caller owns the trainer, the arena and every buffer. Failures: see enum ul_result. Pure C99.
 */
#ifndef UL_TRAIN_H
#define UL_TRAIN_H

#include "ul_model.h"
#include "ul_random.h"
#include "ul_run.h"
#include "ul_weights.h"

#include <math.h>
#include <string.h>

/* At the beginning; takes the learning rate that the model was compiled with. */
static inline void ul_train_init(const struct ul_model *model, struct ul_trainer *trainer)
{
    memset(trainer, 0, sizeof *trainer);
    trainer->learning_rate = model->training->learning_rate;
}

/* Names of a loss scale's states, as ir/training.h has them. */
#define UL_TRAIN_SCALE_NAMES "loss/scale", "loss/growth_tracker", "loss/steps"

/* ---- the numbers of a step ---- */

/* base to the power of count, which is at most 2^-53 count off, relative to it. libm's pow alone
   would take 0.3 MiB of a process. */
static inline double ul_train_power(double base, uint64_t count)
{
    double power = 1.0;
    for (; count > 0; count /= 2, base *= base)
        power *= count % 2 == 1 ? base : 1.0;
    return power;
}

static inline double ul_train_factor(const struct ul_rt_rate *schedule, uint64_t step,
                                     uint64_t warmup_steps)
{
    const double pi = 3.14159265358979323846;
    uint64_t steps = schedule->steps != 0 ? schedule->steps : 1;
    uint64_t behind = step > warmup_steps ? step - warmup_steps : 0;
    switch (schedule->kind) {
    case UL_RT_RATE_STEP:
        return ul_train_power(schedule->factor, step / steps);
    case UL_RT_RATE_COSINE:
        return behind >= schedule->steps ? 0.0
                                         : 0.5 * (1.0 + cos(pi * (double)behind / (double)steps));
    case UL_RT_RATE_WARMUP:
        return step + 1 < schedule->steps ? (double)(step + 1) / (double)steps : 1.0;
    }
    return 1.0;
}

/* The learning rate of the trainer's next update. */
static inline double ul_train_rate(const struct ul_rt_training *training,
                                   const struct ul_trainer *trainer)
{
    uint64_t warmup_steps = 0;
    double rate = trainer->learning_rate;
    for (uint32_t i = 0; i < training->rate_count; i++)
        if (training->rates[i].kind == UL_RT_RATE_WARMUP)
            warmup_steps += training->rates[i].steps;
    for (uint32_t i = 0; i < training->rate_count; i++)
        rate *= ul_train_factor(&training->rates[i], trainer->step, warmup_steps);
    return rate;
}

/* What the input `step` of the next run holds: the rate; 1 - beta^t of both moving averages, t
   counted from 1; how many samples count; the seed; the number of the run, counted from 0; whether
   it evaluates; the number of the micro-batch in its step. */
static inline void ul_train_numbers(const struct ul_rt_training *training,
                                    const struct ul_trainer *trainer,
                                    double values[UL_RT_STEP_NUMBERS])
{
    uint64_t update = trainer->step + 1;
    values[UL_RT_STEP_RATE] = ul_train_rate(training, trainer);
    values[UL_RT_STEP_BIAS1] = 1.0 - ul_train_power(training->beta1, update);
    values[UL_RT_STEP_BIAS2] = 1.0 - ul_train_power(training->beta2, update);
    values[UL_RT_STEP_SAMPLES] = (double)training->sample_count;
    values[UL_RT_STEP_SEED] = (double)trainer->seed;
    values[UL_RT_STEP_COUNT] =
        (double)trainer->step * training->micro_batches + trainer->micro_batch;
    values[UL_RT_STEP_EVALUATES] = 0.0;
    values[UL_RT_STEP_PART] = (double)trainer->micro_batch;
}

/* The same for an evaluation of `count` samples; what follows them in the inputs fills up the
 * batch. */
static inline void ul_train_eval_numbers(uint32_t count, double values[UL_RT_STEP_NUMBERS])
{
    memset(values, 0, UL_RT_STEP_NUMBERS * sizeof *values);
    values[UL_RT_STEP_SAMPLES] = (double)count;
    values[UL_RT_STEP_EVALUATES] = 1.0;
}

/* The entry of the next run. */
static inline uint32_t ul_train_entry(const struct ul_rt_training *training,
                                      const struct ul_trainer *trainer)
{
    bool is_last = trainer->micro_batch + 1 == training->micro_batches;
    return is_last                     ? UL_ENTRY_RUN
           : trainer->micro_batch == 0 ? UL_ENTRY_BEGIN
                                       : UL_ENTRY_ACCUMULATE;
}

/* ---- the order of samples ---- */

#define UL_TRAIN_SHUFFLE_STREAM 0x73687566u /* no operator's stream */
#define UL_TRAIN_SHUFFLE_ROUNDS 8u

/* Which of `count` samples comes at place `index` of an epoch: a permutation in O(1) memory, by a
   Feistel network (Luby and Rackoff, 1988) over the next power of 4, walked along its cycle until
   it is below count (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002). */
static inline uint64_t ul_train_shuffled(uint64_t seed, uint64_t epoch, uint64_t count,
                                         uint64_t index)
{
    uint32_t half = 1;
    while (half < 32 && (UINT64_C(1) << 2 * half) < count)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t at = index;
    do {
        uint64_t left = at >> half, right = at & mask;
        for (uint32_t round = 0; round < UL_TRAIN_SHUFFLE_ROUNDS; round++) {
            const struct ul_random draw = ul_random_draw(
                seed, UL_TRAIN_SHUFFLE_STREAM + round, (uint32_t)epoch, right | epoch >> 32 << 32);
            uint64_t mixed = left ^ (draw.words[0] & mask);
            left = right;
            right = mixed;
        }
        at = left << half | right;
    } while (at >= count);
    return at;
}

/* ---- how the host enters a model, and reaches what lies in its arena ---- */

static inline enum ul_result ul_train_enter(const struct ul_model *model, uint32_t entry,
                                            void *place, const void *const *inputs,
                                            void *const *outputs, struct ul_failure *failure)
{
    return ul_run_entry(model, entry, place, 0, inputs, outputs, NULL, NULL, failure);
}

static inline enum ul_result ul_train_reach(const struct ul_model *model, void *place,
                                            enum ul_direction direction, enum ul_space space,
                                            uint64_t offset_bytes, void *bytes, uint64_t size_bytes,
                                            struct ul_failure *failure)
{
    const struct ul_offloading *offloading = model->offloading;
    unsigned char *there = ul_at(model, (const unsigned char *)place, offset_bytes);
    bool saves = direction == UL_OFFLOAD_SAVE;
    if (space != UL_SPACE_OFFLOAD)
        memcpy(saves ? there : bytes, saves ? bytes : there, (size_t)size_bytes);
    else if ((saves ? offloading->save : offloading->load)(offloading->of(model, place),
                                                           offset_bytes, bytes, size_bytes) != 0)
        return ul_fail(failure, UL_OFFLOAD_FAILED, size_bytes, 0);
    return UL_OK;
}

/* ---- a step ---- */

#define UL_TRAIN_INPUT_LIMIT 64

/* Runs an entry with the numbers of its step, whatever is in their place in `inputs`. */
static inline enum ul_result ul_train_enter_step(const struct ul_model *model, uint32_t entry,
                                                 void *place,
                                                 const double values[UL_RT_STEP_NUMBERS],
                                                 const void *const *inputs, void *const *outputs,
                                                 struct ul_failure *failure)
{
    const void *all[UL_TRAIN_INPUT_LIMIT] = {NULL};
    if (model->input_count > UL_TRAIN_INPUT_LIMIT)
        return ul_run_fail_tensor(failure, UL_INPUT_MISSING, UL_TRAIN_INPUT_LIMIT, 0);
    for (uint32_t i = 0; inputs != NULL && i < model->input_count; i++)
        all[i] = inputs[i];
    all[model->training->step] = values;
    return model->training->enter(model, entry, place, all, outputs, failure);
}

/* One run on one (micro-)batch; the last one of a step updates. `inputs` are the run's, by number;
   the step's is made here. failure may be NULL. UL_INPUT_MISSING where the model has more inputs
   than UL_TRAIN_INPUT_LIMIT. */
static inline enum ul_result ul_train_step(const struct ul_model *model, void *place,
                                           struct ul_trainer *trainer, const void *const *inputs,
                                           void *const *outputs, struct ul_failure *failure)
{
    double values[UL_RT_STEP_NUMBERS];
    struct ul_failure unused;
    uint32_t entry = ul_train_entry(model->training, trainer);
    ul_train_numbers(model->training, trainer, values);
    enum ul_result result = ul_train_enter_step(model, entry, place, values, inputs, outputs,
                                                failure != NULL ? failure : &unused);
    if (result != UL_OK && result != UL_DATA_FAULT)
        return result;
    if (++trainer->micro_batch == model->training->micro_batches) {
        trainer->micro_batch = 0;
        trainer->step++;
    }
    return result;
}

/* Loss and right answers of a (micro-)batch between two steps: nothing is learned, batch statistics
   are the running ones, nothing is dropped. `inputs` and `outputs` are the run's. failure may be
   NULL. */
static inline enum ul_result ul_train_eval(const struct ul_model *model, void *place,
                                           const void *const *inputs, void *const *outputs,
                                           struct ul_failure *failure)
{
    double values[UL_RT_STEP_NUMBERS];
    struct ul_failure unused;
    ul_train_eval_numbers(model->training->sample_count, values);
    return ul_train_enter_step(model, UL_ENTRY_EVALUATE, place, values, inputs, outputs,
                               failure != NULL ? failure : &unused);
}

/* ---- parameters and state, where they lie ---- */

/* The bytes of an element in memory. */
static inline uint32_t ul_train_element_bytes(const struct ul_rt_parameter *parameter)
{
    uint64_t count = 1;
    for (uint32_t d = 0; d < parameter->rank; d++)
        count *= (uint64_t)parameter->dims[d];
    return count != 0 ? (uint32_t)(parameter->size_bytes / count) : 1;
}

#define UL_TRAIN_PIECE_BYTES 4096u

/* Copies elements [begin, end), in the model's order, of a parameter with channels innermost. All
 * belong to one filter. For each place of the window, its channels lie side by side. */
static inline enum ul_result ul_train_move_filter(const struct ul_model *model, void *place,
                                                  enum ul_direction direction,
                                                  const struct ul_rt_parameter *parameter,
                                                  uint64_t begin, uint64_t end, void *bytes,
                                                  struct ul_failure *failure)
{
    unsigned char run[UL_TRAIN_PIECE_BYTES];
    uint64_t element = ul_train_element_bytes(parameter);
    uint64_t filters = (uint64_t)parameter->dims[0], channels = (uint64_t)parameter->dims[1];
    uint64_t places = parameter->size_bytes / element / filters / channels;
    uint64_t first = begin / (channels * places) * (channels * places); /* of the filter */
    for (uint64_t i = 0; i < places; i++) {
        uint64_t from = (begin - first + places - 1 - i) / places;
        uint64_t to = (end - first + places - 1 - i) / places; /* channels */
        uint64_t offset_bytes = parameter->offset_bytes + (first + i * channels + from) * element;
        unsigned char *at = (unsigned char *)bytes + (first + from * places + i - begin) * element;
        for (uint64_t c = from; direction == UL_OFFLOAD_SAVE && c < to; c++)
            memcpy(run + (c - from) * element, at + (c - from) * places * element, (size_t)element);
        enum ul_result result =
            from < to ? model->training->move(model, place, direction, parameter->space,
                                              offset_bytes, run, (to - from) * element, failure)
                      : UL_OK;
        if (result != UL_OK)
            return result;
        for (uint64_t c = from; direction == UL_OFFLOAD_LOAD && c < to; c++)
            memcpy(at + (c - from) * places * element, run + (c - from) * element, (size_t)element);
    }
    return UL_OK;
}

/* Copies a piece of such a parameter that may span several filters. */
static inline enum ul_result ul_train_move_filters(const struct ul_model *model, void *place,
                                                   enum ul_direction direction,
                                                   const struct ul_rt_parameter *parameter,
                                                   uint64_t at, void *bytes, uint64_t size_bytes,
                                                   struct ul_failure *failure)
{
    uint64_t element = ul_train_element_bytes(parameter);
    uint64_t count = parameter->size_bytes / element / (uint64_t)parameter->dims[0];
    uint64_t places = count / (uint64_t)parameter->dims[1];
    uint64_t most = (UL_TRAIN_PIECE_BYTES / element - 1) * places; /* filters that fit a piece */
    enum ul_result result = UL_OK;
    for (uint64_t from = at / element, end = from + size_bytes / element, to; from < end;
         from = to) {
        to = (from / count + 1) * count;
        to = to < end ? to : end;
        to = to - from < most ? to : from + most;
        result = ul_train_move_filter(model, place, direction, parameter, from, to,
                                      (unsigned char *)bytes + (from * element - at), failure);
        if (result != UL_OK)
            return result;
    }
    return UL_OK;
}

/* Copies a piece of a parameter, from element `at` on, in whole elements of the model's order:
 * loads it into `bytes`, or saves it from there. */
static inline enum ul_result ul_train_move(const struct ul_model *model, void *place,
                                           enum ul_direction direction,
                                           const struct ul_rt_parameter *parameter, uint64_t at,
                                           void *bytes, uint64_t size_bytes,
                                           struct ul_failure *failure)
{
    if (place == NULL) /* after a set-up that failed */
        return ul_fail(failure, UL_NOT_READY, 0, 0);
    if ((parameter->facts & UL_RT_PARAMETER_CHANNELS_LAST) != 0)
        return ul_train_move_filters(model, place, direction, parameter, at, bytes, size_bytes,
                                     failure);
    return model->training->move(model, place, direction, parameter->space,
                                 parameter->offset_bytes + at, bytes, size_bytes, failure);
}

static inline bool ul_train_has_scale(const struct ul_rt_training *training)
{
    return training->loss_scale != UL_TENSOR_NONE;
}

/* Between updates, for a model with a loss scale: the scale with which the next step begins, and
   how many steps were taken; the others of trainer->step were skipped, since a gradient was not
   finite. failure may be NULL. */
static inline enum ul_result ul_train_loss_scale(const struct ul_model *model, void *place,
                                                 float *scale, int64_t *taken_steps,
                                                 struct ul_failure *failure)
{
    const struct ul_rt_training *training = model->training;
    struct ul_failure unused;
    enum ul_result result =
        ul_train_move(model, place, UL_OFFLOAD_LOAD, &training->parameters[training->loss_scale], 0,
                      scale, sizeof *scale, failure != NULL ? failure : &unused);
    if (result != UL_OK)
        return result;
    return ul_train_move(model, place, UL_OFFLOAD_LOAD,
                         &training->parameters[training->taken_steps], 0, taken_steps,
                         sizeof *taken_steps, failure != NULL ? failure : &unused);
}

/* ---- what training changed, as bytes ---- */

/*
 * A head of UL_TRAIN_HEAD_BYTES (little-endian): 8 bytes "ULLAGETR", u32 version, u32 size of the
 * head, u64 that tells tables of parameters and optimizers apart, u64 step, u64 seed, u64 bits of
 * the learning rate, u64 bytes of the parameters, u64 hash of these and of the head so far; then
 * the parameters in the order of the table, row-major, little-endian. */
#define UL_TRAIN_MAGIC "ULLAGETR"
#define UL_TRAIN_VERSION 1u
#define UL_TRAIN_HEAD_BYTES 64u

static inline uint64_t ul_train_bytes(const struct ul_model *model)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < model->training->parameter_count; i++)
        bytes += model->training->parameters[i].size_bytes;
    return bytes;
}

static inline void ul_train_hash_number(struct ul_hash *hash, uint64_t number)
{
    unsigned char bytes[8];
    for (uint32_t i = 0; i < 8; i++)
        bytes[i] = (unsigned char)(number >> 8 * i & 0xffu);
    ul_hash_add(hash, bytes, sizeof bytes);
}

/* Equal for models of one optimizer whose parameters have the same names, types and shapes, whose
   factors (--lora) weigh the same, beside weights of as many bits (--quantize). */
static inline uint64_t ul_train_kind(const struct ul_model *model)
{
    struct ul_hash hash;
    const char *optimizer = model->training->optimizer, *quantize = model->training->quantize;
    uint64_t alpha;
    ul_hash_init(&hash);
    ul_hash_add(&hash, (const unsigned char *)optimizer, strlen(optimizer) + 1);
    if (model->training->lora_alpha > 0) {
        memcpy(&alpha, &model->training->lora_alpha, sizeof alpha);
        ul_train_hash_number(&hash, alpha);
    }
    if (quantize != NULL)
        ul_hash_add(&hash, (const unsigned char *)quantize, strlen(quantize) + 1);
    for (uint32_t i = 0; i < model->training->parameter_count; i++) {
        const struct ul_rt_parameter *parameter = &model->training->parameters[i];
        ul_hash_add(&hash, (const unsigned char *)parameter->name, strlen(parameter->name) + 1);
        ul_train_hash_number(&hash, (uint64_t)parameter->storage);
        ul_train_hash_number(&hash, parameter->rank);
        for (uint32_t d = 0; d < parameter->rank; d++)
            ul_train_hash_number(&hash, (uint64_t)parameter->dims[d]);
    }
    return ul_hash_get(&hash);
}

static inline enum ul_result ul_train_save_one(const struct ul_model *model, void *place,
                                               const struct ul_rt_parameter *parameter,
                                               uint64_t offset_bytes, ul_write *write,
                                               void *context, struct ul_hash *hash,
                                               struct ul_failure *failure)
{
    unsigned char piece[UL_TRAIN_PIECE_BYTES];
    for (uint64_t at = 0; at < parameter->size_bytes; at += sizeof piece) {
        uint64_t left = parameter->size_bytes - at;
        uint64_t size = left < sizeof piece ? left : sizeof piece;
        enum ul_result result =
            ul_train_move(model, place, UL_OFFLOAD_LOAD, parameter, at, piece, size, failure);
        if (result != UL_OK)
            return result;
        if (ul_run_is_big_endian())
            ul_run_swap(piece, size, ul_train_element_bytes(parameter));
        ul_hash_add(hash, piece, (size_t)size);
        if (write(context, offset_bytes + at, piece, size) != 0)
            return ul_fail(failure, UL_CHECKPOINT_UNWRITTEN, parameter->size_bytes, at);
    }
    return UL_OK;
}

static inline void ul_train_put_word(unsigned char *target, uint64_t word)
{
    for (uint32_t i = 0; i < 8; i++)
        target[i] = (unsigned char)(word >> 8 * i & 0xffu);
}

/* `hash` is that of the parameters; the hash of these and the head goes to the end of the head. */
static inline void ul_train_put_head(const struct ul_model *model, const struct ul_trainer *trainer,
                                     struct ul_hash *hash, unsigned char head[UL_TRAIN_HEAD_BYTES])
{
    uint64_t rate;
    memcpy(&rate, &trainer->learning_rate, sizeof rate);
    memcpy(head, UL_TRAIN_MAGIC, 8);
    ul_train_put_word(head + 8, UL_TRAIN_VERSION | (uint64_t)UL_TRAIN_HEAD_BYTES << 32);
    ul_train_put_word(head + 16, ul_train_kind(model));
    ul_train_put_word(head + 24, trainer->step);
    ul_train_put_word(head + 32, trainer->seed);
    ul_train_put_word(head + 40, rate);
    ul_train_put_word(head + 48, ul_train_bytes(model));
    ul_hash_add(hash, head, UL_TRAIN_HEAD_BYTES - 8);
    ul_train_put_word(head + 56, ul_hash_get(hash));
}

/* Call it between updates. The head is written last: a file that was cut off has none. failure may
 * be NULL. */
static inline enum ul_result ul_train_save(const struct ul_model *model, void *place,
                                           const struct ul_trainer *trainer, ul_write *write,
                                           void *context, struct ul_failure *failure)
{
    unsigned char head[UL_TRAIN_HEAD_BYTES];
    uint64_t offset_bytes = sizeof head;
    struct ul_hash hash;
    struct ul_failure unused;
    if (failure == NULL)
        failure = &unused;
    memset(failure, 0, sizeof *failure);
    ul_hash_init(&hash);
    for (uint32_t i = 0; i < model->training->parameter_count; i++) {
        const struct ul_rt_parameter *parameter = &model->training->parameters[i];
        enum ul_result result = ul_train_save_one(model, place, parameter, offset_bytes, write,
                                                  context, &hash, failure);
        if (result != UL_OK)
            return result;
        offset_bytes += parameter->size_bytes;
    }
    ul_train_put_head(model, trainer, &hash, head);
    if (write(context, 0, head, sizeof head) != 0)
        return ul_fail(failure, UL_CHECKPOINT_UNWRITTEN, sizeof head, 0);
    return UL_OK;
}

/* Reads the parameters from the file: into their places, or, without a place, into the hash
 * alone. */
static inline enum ul_result ul_train_load_all(const struct ul_model *model, void *place,
                                               ul_read *read, void *context, struct ul_hash *hash,
                                               struct ul_failure *failure)
{
    unsigned char piece[UL_TRAIN_PIECE_BYTES];
    uint64_t offset_bytes = UL_TRAIN_HEAD_BYTES;
    enum ul_result result = UL_OK;
    for (uint32_t i = 0; i < model->training->parameter_count; i++) {
        const struct ul_rt_parameter *parameter = &model->training->parameters[i];
        for (uint64_t at = 0; at < parameter->size_bytes; at += sizeof piece) {
            uint64_t left = parameter->size_bytes - at;
            uint64_t size = left < sizeof piece ? left : sizeof piece;
            if (read(context, offset_bytes + at, piece, size) != 0)
                return ul_fail(failure, UL_CHECKPOINT_UNREADABLE, parameter->size_bytes, at);
            ul_hash_add(hash, piece, (size_t)size);
            if (ul_run_is_big_endian())
                ul_run_swap(piece, size, ul_train_element_bytes(parameter));
            if (place != NULL)
                result = ul_train_move(model, place, UL_OFFLOAD_SAVE, parameter, at, piece, size,
                                       failure);
            if (result != UL_OK)
                return result;
        }
        offset_bytes += parameter->size_bytes;
    }
    return UL_OK;
}

/* Loads into an arena that is set up. The file is read twice, so that a damaged one, or another
   model's, changes nothing. failure may be NULL. */
static inline enum ul_result ul_train_load(const struct ul_model *model, void *place,
                                           struct ul_trainer *trainer, ul_read *read, void *context,
                                           struct ul_failure *failure)
{
    unsigned char head[UL_TRAIN_HEAD_BYTES];
    struct ul_hash hash;
    struct ul_failure unused;
    if (failure == NULL)
        failure = &unused;
    memset(failure, 0, sizeof *failure);
    if (read(context, 0, head, sizeof head) != 0)
        return ul_fail(failure, UL_CHECKPOINT_UNREADABLE, sizeof head, 0);
    uint64_t version_and_size = UL_TRAIN_VERSION | (uint64_t)UL_TRAIN_HEAD_BYTES << 32;
    if (memcmp(head, UL_TRAIN_MAGIC, 8) != 0 || ul_hash_word(head + 8) != version_and_size)
        return ul_fail(failure, UL_CHECKPOINT_INVALID, 0, 0);
    if (ul_hash_word(head + 16) != ul_train_kind(model) ||
        ul_hash_word(head + 48) != ul_train_bytes(model))
        return ul_fail(failure, UL_CHECKPOINT_OTHER, ul_train_bytes(model),
                       ul_hash_word(head + 48));
    ul_hash_init(&hash);
    enum ul_result result = ul_train_load_all(model, NULL, read, context, &hash, failure);
    ul_hash_add(&hash, head, sizeof head - 8);
    if (result == UL_OK && ul_hash_get(&hash) != ul_hash_word(head + 56))
        result = ul_fail(failure, UL_CHECKPOINT_INVALID, 0, 0);
    if (result == UL_OK)
        result = ul_train_load_all(model, place, read, context, &hash, failure);
    if (result != UL_OK)
        return result;
    uint64_t rate = ul_hash_word(head + 40);
    trainer->step = ul_hash_word(head + 24);
    trainer->seed = ul_hash_word(head + 32);
    trainer->micro_batch = 0;
    memcpy(&trainer->learning_rate, &rate, sizeof rate);
    return UL_OK;
}

#endif
