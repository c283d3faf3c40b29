/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a model on a microcontroller: inputs from files of the host, outputs to such, by
 * semihosting. Input i is input_<i>.bin, output i output_<i>.bin, dense little-endian elements.
 * With MODEL_DTCM_BYTES the buffer is in two memories, each in a section of its own (two_banks.ld),
 * and its weights come from the file weights.bin.
 * Exit status: 0 ran, else the model's failure; a fault of the processor never returns. */
#include "model.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ALIGNED __attribute__((aligned(MODEL_ARENA_ALIGN)))

#ifdef MODEL_DTCM_BYTES
static unsigned char arena[MODEL_DTCM_BYTES] ALIGNED __attribute__((section(".dtcm")));
static unsigned char psram[MODEL_PSRAM_BYTES] ALIGNED __attribute__((section(".psram")));

static unsigned char *place(uint64_t offset_bytes)
{
    return model_at(arena, offset_bytes);
}

static int read_weights(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    return fseek(context, (long)offset_bytes, SEEK_SET) != 0 ||
           fread(target, 1, (size_t)size_bytes, context) != size_bytes;
}

/* Memory holds anything when power comes. */
static int begin(void)
{
    FILE *file = fopen("weights.bin", "rb");
    struct ul_weights_source source = {.read = read_weights, .context = file};
    memset(arena, 0xA5, sizeof arena);
    memset(psram, 0x5A, sizeof psram);
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 ||
        model_run(arena, NULL, NULL, NULL) != UL_NOT_READY ||
        model_init(arena, sizeof arena - 1, psram, sizeof psram, &source, NULL) !=
            UL_ARENA_TOO_SMALL ||
        model_init(arena, sizeof arena, psram + 1, sizeof psram, &source, NULL) !=
            UL_ARENA_MISALIGNED)
        return 1;
    source.size_bytes = (uint64_t)ftell(file);
    int status = model_init(arena, sizeof arena, psram, sizeof psram, &source, NULL);
    return fclose(file) != 0 ? 1 : status;
}
#else
static union {
    unsigned char bytes[MODEL_ARENA_BYTES];
    uint64_t align;
} ALIGNED buffer;
#define arena buffer.bytes

static unsigned char *place(uint64_t offset_bytes)
{
    return arena + offset_bytes;
}

static int begin(void)
{
    return model_init(arena, sizeof arena, NULL, NULL);
}
#endif

static int move(const char *kind, unsigned number, const struct ul_rt_tensor *io, const char *mode)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%u.bin", kind, number);
    FILE *file = fopen(name, mode);
    size_t size = (size_t)io->size_bytes, done = 0;
    if (file == NULL)
        return 1;
    if (mode[0] == 'r')
        done = fread(place(io->offset_bytes), 1, size, file);
    else
        done = fwrite(place(io->offset_bytes), 1, size, file);
    return fclose(file) != 0 || done != size;
}

int main(void)
{
    static const void *inputs[MODEL_INPUT_COUNT];
    static void *outputs[MODEL_OUTPUT_COUNT];
    int status = begin();
    for (unsigned i = 0; status == 0 && i < MODEL_INPUT_COUNT; i++)
        status = move("input", i, &model_model.inputs[i], "rb");
    if (status == 0)
        status = model_run(arena, inputs, outputs, NULL);
    for (unsigned i = 0; status == 0 && i < MODEL_OUTPUT_COUNT; i++)
        status = move("output", i, &model_model.outputs[i], "wb");
    return status;
}
