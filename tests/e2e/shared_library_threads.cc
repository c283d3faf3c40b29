/* SPDX-License-Identifier: Apache-2.0 */
/* A model's library in four threads at once, each with a handle of its own: the results of all have
 * the same bits. Built with the thread sanitizer, which ends it with status 66 for a race.
 *
 * exit: 0 ok, 1 not */
#include "model.h"

#include <cstdio>
#include <thread>
#include <vector>

enum { THREADS = 4, RUNS = 3 };

typedef std::vector<std::vector<unsigned char>> buffers;

static bool explain(const ul_failure &failure)
{
    char text[300];
    model_failure_text(&failure, text, sizeof text);
    std::printf("%s\n", text);
    return false;
}

static bool run_one(buffers *outputs)
{
    ul_failure failure;
    void *handle = nullptr;
    buffers inputs(model_input_count());
    std::vector<const void *> from;
    std::vector<void *> to;
    for (uint32_t i = 0; i < inputs.size(); i++)
        inputs[i].assign(model_input_bytes(i), static_cast<unsigned char>(i + 1));
    outputs->resize(model_output_count());
    for (uint32_t i = 0; i < outputs->size(); i++)
        (*outputs)[i].resize(model_output_bytes(i));
    for (const auto &input : inputs)
        from.push_back(input.data());
    for (auto &output : *outputs)
        to.push_back(output.data());
    if (model_begin(&handle, nullptr, 0, nullptr, 0, nullptr, &failure) != UL_OK)
        return explain(failure);
    ul_context *context = static_cast<ul_context *>(handle);
    bool good = true;
    for (int i = 0; good && i < RUNS; i++) { /* indices of such bytes are out of range */
        int result = model_run(context, from.data(), to.data(), &failure);
        good = result == UL_OK || result == UL_DATA_FAULT || explain(failure);
    }
    model_end(handle);
    return good;
}

int main()
{
    buffers outputs[THREADS];
    bool good[THREADS] = {};
    std::vector<std::thread> threads;
    for (int i = 0; i < THREADS; i++)
        threads.emplace_back([&outputs, &good, i] { good[i] = run_one(&outputs[i]); });
    for (auto &thread : threads)
        thread.join();
    for (int i = 0; i < THREADS; i++)
        if (!good[i] || outputs[i].empty() || outputs[i] != outputs[0])
            return 1;
    return 0;
}
