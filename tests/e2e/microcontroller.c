/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a model on a microcontroller: inputs from files of the host, outputs to such, by
 * semihosting. Input i is input_<i>.bin, output i output_<i>.bin, dense little-endian elements.
 * Exit status: 0 ran, else the model's failure; a fault of the processor never returns. */
#include "model.h"

#include <stdint.h>
#include <stdio.h>

static union {
    unsigned char bytes[MODEL_ARENA_BYTES];
    uint64_t align;
} __attribute__((aligned(MODEL_ARENA_ALIGN))) arena;

static int move(const char *kind, unsigned number, const struct ul_rt_tensor *io, const char *mode)
{
    char name[32];
    snprintf(name, sizeof name, "%s_%u.bin", kind, number);
    FILE *file = fopen(name, mode);
    size_t size = (size_t)io->size_bytes, done = 0;
    if (file == NULL)
        return 1;
    if (mode[0] == 'r')
        done = fread(arena.bytes + io->offset_bytes, 1, size, file);
    else
        done = fwrite(arena.bytes + io->offset_bytes, 1, size, file);
    return fclose(file) != 0 || done != size;
}

int main(void)
{
    static const void *inputs[MODEL_INPUT_COUNT];
    static void *outputs[MODEL_OUTPUT_COUNT];
    int status = model_init(arena.bytes, sizeof arena.bytes, NULL, NULL);
    for (unsigned i = 0; status == 0 && i < MODEL_INPUT_COUNT; i++)
        status = move("input", i, &model_model.inputs[i], "rb");
    if (status == 0)
        status = model_run(arena.bytes, inputs, outputs, NULL);
    for (unsigned i = 0; status == 0 && i < MODEL_OUTPUT_COUNT; i++)
        status = move("output", i, &model_model.outputs[i], "wb");
    return status;
}
