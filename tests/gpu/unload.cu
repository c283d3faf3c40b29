/* SPDX-License-Identifier: Apache-2.0 */
/* A model's shared library, loaded, run and unloaded again and again: it takes its arena of the
 * device, has the same results each time, and leaves as much free as the time before. A process
 * that is forked from one that runs it is told so, and takes nothing from its parent.
 *
 * usage: unload LIBRARY     exit: 0 ok, 6 a promise is broken, 3 no device */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

/* Code that CUDA loads when it is first called stays; free memory is compared after that. */
enum { WARM_UPS = 2, ROUNDS = 6, DATA_FAULT = 30 /* enum ul_result */ };

typedef std::vector<unsigned char> bytes;

/* What any language sees of it. */
struct library {
    void *file, *handle;
    int (*begin)(void **, void *, size_t, void *, size_t, const void *, void *);
    int (*run)(void *, const void *const *, void *const *, void *);
    void (*end)(void *);
    int (*failure_text)(const void *, char *, size_t);
    bytes failure;
};

static void need(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "error: %s\n", what);
    _exit(6);
}

template <class T> static T find(const struct library *library, const char *name)
{
    T function = (T)dlsym(library->file, name);
    need(function != NULL, name);
    return function;
}

static uint64_t free_bytes(void)
{
    size_t free = 0, total = 0;
    cudaError_t error = cudaMemGetInfo(&free, &total);
    if (error == cudaSuccess)
        return free;
    fprintf(stderr, "error: %s\n", cudaGetErrorString(error));
    exit(3);
}

static const char *explain(const struct library *library)
{
    static char text[300];
    (void)library->failure_text(library->failure.data(), text, sizeof text);
    return text;
}

static void open_library(struct library *library, const char *path)
{
    library->file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    need(library->file != NULL, "the library does not load");
    library->begin = find<decltype(library->begin)>(library, "model_begin");
    library->run = find<decltype(library->run)>(library, "model_run");
    library->end = find<decltype(library->end)>(library, "model_end");
    library->failure_text = find<decltype(library->failure_text)>(library, "model_failure_text");
    library->failure.resize(find<size_t (*)(void)>(library, "model_failure_bytes")());
}

static int begin(struct library *library)
{
    return library->begin(&library->handle, NULL, 0, NULL, 0, NULL, library->failure.data());
}

/* A buffer for each input or output, of zeros, which are indices within any range. */
static std::vector<bytes> new_buffers(const struct library *library, const char *count,
                                      const char *size)
{
    std::vector<bytes> buffers(find<uint32_t (*)(void)>(library, count)());
    for (uint32_t i = 0; i < buffers.size(); i++)
        buffers[i].resize(find<uint64_t (*)(uint32_t)>(library, size)(i));
    return buffers;
}

static std::vector<void *> places(std::vector<bytes> &buffers)
{
    std::vector<void *> list(buffers.size() + 1);
    for (size_t i = 0; i < buffers.size(); i++)
        list[i] = buffers[i].data();
    return list;
}

static int run(struct library *library, std::vector<bytes> &inputs, std::vector<bytes> &outputs)
{
    std::vector<void *> from = places(inputs), to = places(outputs);
    return library->run(library->handle, from.data(), to.data(), library->failure.data());
}

/* In the child nothing of CUDA may be touched but by the library. */
static void check_fork(struct library *library, std::vector<bytes> &inputs,
                       std::vector<bytes> &outputs)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        need(run(library, inputs, outputs) != 0 && strstr(explain(library), "forked") != NULL,
             "a run in a forked process is not refused");
        library->end(library->handle);
        need(begin(library) != 0 && library->handle == NULL, "a forked process has a device");
        _exit(0);
    }
    need(waitpid(child, &status, 0) == child && status == 0, "the forked process");
}

static std::vector<bytes> round(const char *path, bool forks)
{
    struct library library = {};
    open_library(&library, path);
    uint64_t before = free_bytes();
    if (begin(&library) != 0) {
        fprintf(stderr, "error: %s\n", explain(&library));
        exit(3);
    }
    uint64_t arena_bytes = find<uint64_t (*)(void)>(&library, "model_arena_bytes")();
    printf("arena %llu, free %llu, then %llu\n", (unsigned long long)arena_bytes,
           (unsigned long long)before, (unsigned long long)free_bytes());
    std::vector<bytes> inputs = new_buffers(&library, "model_input_count", "model_input_bytes");
    std::vector<bytes> outputs = new_buffers(&library, "model_output_count", "model_output_bytes");
    if (forks)
        check_fork(&library, inputs, outputs);
    int result = run(&library, inputs, outputs);
    need(result == 0 || result == DATA_FAULT, explain(&library));
    library.end(library.handle);
    need(dlclose(library.file) == 0, "dlclose");
    return outputs;
}

int main(int count, char **arguments)
{
    std::vector<bytes> first;
    uint64_t warm_bytes = 0;
    if (count != 2)
        return 6;
    for (int i = 0; i < ROUNDS; i++) {
        std::vector<bytes> outputs = round(arguments[1], i == 0);
        if (i == 0)
            first = outputs;
        need(outputs == first, "results differ from load to load");
        if (i == WARM_UPS - 1)
            warm_bytes = free_bytes();
    }
    printf("free %llu, at the end %llu\n", (unsigned long long)warm_bytes,
           (unsigned long long)free_bytes());
    need(free_bytes() >= warm_bytes, "a library that was unloaded keeps memory of the device");
    return 0;
}
