/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a model as a library over an arena of its own, in which every byte that is not persistent
 * is made NaN before each step. Built of an emitted folder.
 *
 * usage: painted_steps WEIGHTS.bin DATA LABELS STEPS SAVED     bytes of samples as the model has
 * them prints: the loss of each step, with all its digits; a byte that was written outside of the
 * arena is a failure, as is a model that is none. */
#include "model.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARGIN = 1 << 16, PAINT = 0xff, OUTSIDE = 0x5a };

static void stop(const char *what)
{
    fprintf(stderr, "painted_steps: %s\n", what);
    exit(1);
}

static unsigned char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        stop(path);
    *size = (size_t)ftell(file);
    rewind(file);
    unsigned char *bytes = malloc(*size);
    if (bytes == NULL || fread(bytes, 1, *size, file) != *size)
        stop(path);
    fclose(file);
    return bytes;
}

/* Per byte of the arena: weights, states, and what a library keeps there. */
static bool *find_kept(void)
{
    const struct ul_model *model = &model_model;
    bool *kept = calloc(MODEL_ARENA_BYTES, sizeof *kept);
    if (kept == NULL)
        stop("no memory");
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        bool is_persistent = range->live_begin == 0 && range->live_end == model->step_count &&
                             range->row != UL_ROW_INPUTS && range->row != UL_ROW_OUTPUTS;
        if (is_persistent)
            memset(kept + range->offset_bytes, true, (size_t)range->size_bytes);
    }
    return kept;
}

static void paint(unsigned char *arena, const bool *kept)
{
    for (uint64_t i = 0; i < MODEL_ARENA_BYTES; i++)
        if (!kept[i])
            arena[i] = PAINT;
}

static int write_file(void *context, uint64_t offset_bytes, const void *bytes, uint64_t size_bytes)
{
    return fseek(context, (long)offset_bytes, SEEK_SET) != 0 ||
           fwrite(bytes, 1, (size_t)size_bytes, context) != size_bytes;
}

static void save(unsigned char *arena, struct ul_trainer *trainer, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || model_save(arena, trainer, write_file, file, NULL) != UL_OK ||
        fclose(file) != 0)
        stop(path);
}

static void train(unsigned char *arena, struct ul_trainer *trainer, unsigned char *x,
                  unsigned char *y, int steps)
{
    const struct ul_rt_training *training = model_model.training;
    uint64_t x_bytes = model_model.inputs[training->data].size_bytes;
    uint64_t y_bytes = model_model.inputs[training->labels].size_bytes;
    bool *kept = find_kept();
    for (int i = 0; i < steps; i++) {
        const void *batch[MODEL_INPUT_COUNT] = {NULL};
        void *results[MODEL_OUTPUT_COUNT] = {NULL};
        float loss = 0;
        batch[training->data] = x + (uint64_t)i * x_bytes;
        batch[training->labels] = y + (uint64_t)i * y_bytes;
        results[training->loss_output] = &loss;
        paint(arena, kept);
        if (model_train_step(arena, trainer, batch, results, NULL) != UL_OK)
            stop("a step failed");
        printf("%.9g\n", (double)loss);
    }
    free(kept);
}

int main(int argc, char **argv)
{
    size_t weights_bytes, x_bytes, y_bytes;
    struct ul_trainer trainer;
    if (argc != 6)
        stop("usage");
    struct ul_weights_source weights = {.memory = read_all(argv[1], &weights_bytes)};
    weights.size_bytes = weights_bytes;
    unsigned char *x = read_all(argv[2], &x_bytes), *y = read_all(argv[3], &y_bytes);
    size_t all = (MODEL_ARENA_BYTES + 2 * MARGIN + MARGIN - 1) / MARGIN * MARGIN;
    unsigned char *block = aligned_alloc(MARGIN, all), *arena = block + MARGIN;
    if (block == NULL)
        stop("no memory");
    memset(block, OUTSIDE, all);
    model_train_init(&trainer);
    if (model_init(arena, MODEL_ARENA_BYTES, &weights, NULL) != UL_OK)
        stop("model_init");
    train(arena, &trainer, x, y, atoi(argv[4]));
    save(arena, &trainer, argv[5]);
    model_done(arena);
    for (size_t i = 0; i < all; i++)
        if ((i < MARGIN || i >= MARGIN + MODEL_ARENA_BYTES) && block[i] != OUTSIDE)
            stop("a byte outside of the arena was written");
    free(block), free(x), free(y), free((void *)(uintptr_t)weights.memory);
    return 0;
}
