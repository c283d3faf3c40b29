/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody's program that trains a model as a library, on a machine without heap and files: the
 * arena, what is saved, weights and samples are arrays. Built of an emitted folder and
 *     weights.h    weights.bin, as `weights`
 *     samples.h    SAMPLE_COUNT of them: data `x`, labels `y`, in the order of training
 *
 * prints: the loss of each step. Trained again from what was saved half-way, every bit is the same;
 * what cannot be is refused by name, and changes nothing. */
#include "model.h"
#include "samples.h"
#include "weights.h"

#include <stdio.h>
#include <string.h>

enum { STEPS = 6, SAVED_AT = 3 };

unsigned char arena[MODEL_ARENA_BYTES] __attribute__((aligned(MODEL_ARENA_ALIGN)));
static unsigned char middle[MODEL_CHECKPOINT_BYTES], end[MODEL_CHECKPOINT_BYTES],
    again[MODEL_CHECKPOINT_BYTES];

static int write_array(void *context, uint64_t offset_bytes, const void *bytes, uint64_t size_bytes)
{
    if (offset_bytes + size_bytes > MODEL_CHECKPOINT_BYTES)
        return 1;
    memcpy((unsigned char *)context + offset_bytes, bytes, (size_t)size_bytes);
    return 0;
}

static int read_array(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    if (offset_bytes + size_bytes > MODEL_CHECKPOINT_BYTES)
        return 1;
    memcpy(target, (const unsigned char *)context + offset_bytes, (size_t)size_bytes);
    return 0;
}

static int write_nothing(void *context, uint64_t offset_bytes, const void *bytes,
                         uint64_t size_bytes)
{
    (void)context, (void)offset_bytes, (void)bytes, (void)size_bytes;
    return 1;
}

static int read_nothing(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    (void)context, (void)offset_bytes, (void)target, (void)size_bytes;
    return 1;
}

static int fail(const char *what)
{
    printf("failed: %s\n", what);
    return 1;
}

/* The steps [begin, end) and their losses, with evaluations before each that change nothing; not 0
 * for failure. */
static int train(struct ul_trainer *trainer, int begin, int finish, float *losses)
{
    const struct ul_rt_training *training = model_model.training;
    int result = UL_OK;
    for (int i = begin; i < finish && result == UL_OK; i++) {
        uint64_t at = (uint64_t)i * training->sample_count;
        int64_t correct = -1;
        float seen[2] = {0, 0};
        const void *batch[MODEL_INPUT_COUNT] = {NULL};
        void *results[MODEL_OUTPUT_COUNT] = {NULL};
        batch[training->data] = x + at * (sizeof x / sizeof *x / SAMPLE_COUNT);
        batch[training->labels] = y + at;
        results[training->correct_output] = &correct;
        for (int k = 0; k < 2 && result == UL_OK; k++) {
            results[training->loss_output] = &seen[k];
            result = model_eval(arena, batch, results, NULL);
        }
        results[training->loss_output] = &losses[i];
        if (result == UL_OK)
            result = model_train_step(arena, trainer, batch, results, NULL);
        if (!(seen[0] > 0) || memcmp(&seen[0], &seen[1], sizeof *seen) != 0 || correct < 0 ||
            correct > (int64_t)training->sample_count)
            return 1;
    }
    return result;
}

static int begin(struct ul_trainer *trainer)
{
    const struct ul_weights_source source = {.size_bytes = sizeof weights, .memory = weights};
    memset(arena, 0xff, sizeof arena);
    model_train_init(trainer);
    trainer->seed = 5;
    return model_init(arena, sizeof arena, &source, NULL);
}

/* A refusal says why, and leaves the arena and the trainer as they are. */
static int refuse(struct ul_trainer *trainer)
{
    const struct ul_weights_source source = {.size_bytes = sizeof weights, .memory = weights};
    static unsigned char damaged[MODEL_CHECKPOINT_BYTES];
    const struct ul_trainer before = *trainer;
    struct ul_failure failure;
    if (model_save(arena, trainer, write_nothing, NULL, &failure) != UL_CHECKPOINT_UNWRITTEN ||
        failure.result != UL_CHECKPOINT_UNWRITTEN)
        return fail("a file that cannot be written");
    if (model_load(arena, trainer, read_nothing, NULL, &failure) != UL_CHECKPOINT_UNREADABLE)
        return fail("a file that cannot be read");
    memcpy(damaged, middle, sizeof middle);
    damaged[sizeof middle / 2] ^= 1;
    if (model_load(arena, trainer, read_array, damaged, &failure) != UL_CHECKPOINT_INVALID)
        return fail("a damaged file");
    memcpy(damaged, middle, sizeof middle);
    damaged[16] ^= 1; /* tells tables of parameters apart */
    if (model_load(arena, trainer, read_array, damaged, &failure) != UL_CHECKPOINT_OTHER)
        return fail("another model's file");
    if (model_save(arena, trainer, write_array, again, &failure) != UL_OK ||
        memcmp(again, end, sizeof end) != 0 || memcmp(&before, trainer, sizeof before) != 0)
        return fail("what was refused changed something");
    if (model_init(arena, sizeof arena - 1, &source, &failure) != UL_ARENA_TOO_SMALL ||
        failure.needed_bytes != MODEL_ARENA_BYTES || failure.available_bytes != sizeof arena - 1)
        return fail("an arena that is too small");
    return 0;
}

int main(void)
{
    struct ul_trainer trainer;
    float losses[STEPS], repeated[STEPS] = {0};
    if (begin(&trainer) != UL_OK || train(&trainer, 0, SAVED_AT, losses) != UL_OK ||
        model_save(arena, &trainer, write_array, middle, NULL) != UL_OK ||
        train(&trainer, SAVED_AT, STEPS, losses) != UL_OK ||
        model_save(arena, &trainer, write_array, end, NULL) != UL_OK)
        return fail("training");
    if (refuse(&trainer) != 0)
        return 1;
    model_done(arena);
    if (begin(&trainer) != UL_OK ||
        model_load(arena, &trainer, read_array, middle, NULL) != UL_OK ||
        trainer.step != SAVED_AT || trainer.seed != 5 ||
        train(&trainer, SAVED_AT, STEPS, repeated) != UL_OK ||
        model_save(arena, &trainer, write_array, again, NULL) != UL_OK)
        return fail("training from what was saved");
    if (memcmp(again, end, sizeof end) != 0 ||
        memcmp(losses + SAVED_AT, repeated + SAVED_AT, (STEPS - SAVED_AT) * sizeof *losses) != 0)
        return fail("other bits from what was saved");
    model_done(arena);
    for (int i = 0; i < STEPS; i++)
        printf("%.9g\n", (double)losses[i]);
    return 0;
}
