/* SPDX-License-Identifier: Apache-2.0 */
/* Somebody's program in C++ that is linked with the shared or the static library of a model, knows
 * its names alone, and gives its first input and takes its first output in files of raw bytes.
 *
 * usage: shared_library INPUT OUTPUT */
#include "model.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static int explain(const ul_failure &failure)
{
    char text[200];
    model_failure_text(&failure, text, sizeof text);
    std::fprintf(stderr, "%s\n", text);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc != 3 || model_arena_bytes() != MODEL_ARENA_BYTES || model_input_count() != 1)
        return 2;
    std::vector<unsigned char> input(model_input_bytes(0)), output(model_output_bytes(0));
    std::FILE *file = std::fopen(argv[1], "rb");
    if (file == nullptr || std::fread(input.data(), 1, input.size(), file) != input.size())
        return 2;
    std::fclose(file);

    void *arena = std::aligned_alloc(model_arena_align(), model_arena_bytes()), *handle = nullptr;
    const void *inputs[] = {input.data()};
    void *outputs[] = {output.data()};
    ul_failure failure;
    if (model_begin(&handle, arena, model_arena_bytes(), nullptr, 0, nullptr, &failure) != UL_OK)
        return explain(failure);
    if (model_run(handle, inputs, outputs, &failure) != UL_OK)
        return explain(failure);
    model_end(handle);
    std::free(arena);
    file = std::fopen(argv[2], "wb");
    if (file == nullptr || std::fwrite(output.data(), 1, output.size(), file) != output.size())
        return 2;
    return std::fclose(file) == 0 ? 0 : 2;
}
