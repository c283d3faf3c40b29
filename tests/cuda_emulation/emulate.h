/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of the emulation share: settings, the running kernel, and who may touch device
 * memory. See include/ul_emulate.h for what programs see.
 *
 * Invariants: one lock is held in every function of the API, so there is one host thread inside of
 * the emulation at a time; fibers belong to the thread that runs a kernel.
 */
#ifndef EMULATE_H
#define EMULATE_H

#include "ul_emulate.h"

#include <vector>

/* The environment, read once. */
struct settings {
    bool no_device, no_driver, old_driver, no_cupti, no_update, no_params;
    bool banks;       /* rows of a matrix may not share them */
    int major, minor; /* compute capability */
    int code;         /* that programs are compiled for */
    int devices, processors;
    int part, capture_part; /* of the processors, that cooperative launches get; in a capture */
    uint64_t free_bytes;    /* of the device, with nothing in it */
    uint64_t align_bytes;   /* of allocations: no more than this; 0: as a device's */
    uint64_t code_bytes;    /* that the first launch takes: modules, local memory */
    uint64_t graph_bytes;   /* that an instantiated graph takes, and each update of it */
    uint64_t order;         /* 0: the natural one; 1: reversed; else a seed of permutations */
    const char *fail;       /* kernels with this in their names fail */
    const char *coverage;   /* file: names of executed kernels */
    const char *log;        /* file: allocations, captures, graph launches */
};
const struct settings &settings_get();

/* i of n in the order that settings ask for; `salt` makes permutations differ. */
uint64_t ordered(uint64_t i, uint64_t n, uint64_t salt);

/* One line to the log. */
void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- device.cc ---- */

/* Held for the length of a function of the API. */
struct api {
    api();
    ~api();
    cudaError_t usable() const; /* the driver and the device are, and no kernel has failed */
};

/* The call's result; an error is kept for cudaGetLastError. */
cudaError_t result(cudaError_t error);
/* From now on every call fails with it. */
void device_fail(cudaError_t error);
/* Nested: device memory may be touched between the two. */
void device_open();
void device_close();
/* Between the two: not by a kernel that has not waited yet for those before it. */
void device_shut(bool shut);
/* How many of a kernel's blocks a multiprocessor holds at once; static shared memory, which nobody
   knows before it runs, is not counted. 0: it may not have so much of what a launch says. */
uint64_t blocks_resident(const void *function, uint64_t threads, size_t rest_bytes);
/* How much shared memory it asked for beside its arrays; 0: it did not. */
size_t rest_bytes_asked(const void *function);
/* Where a range of memory is: whole in one allocation of the device, in page-locked memory, or
   elsewhere; -1: partly, or in memory that is no longer there. */
int memory_type_of(const void *pointer, size_t size_bytes);

/* ---- stream.cc ---- */

/* All that was enqueued is done. */
void streams_finish();
/* A call that may not be made while a stream is captured; spoils the capture. */
cudaError_t capture_forbids();

/* ---- count.cc: what steps move, where UL_EMULATE_COUNT names a file ---- */

#define UL_EMULATE_NO_STEP UINT32_MAX
/* The step of what is enqueued now. */
uint32_t count_step(void);
void count_memory(const void *begin, size_t size_bytes);
/* A launch of the step, of the kernel of that name; what is touched until its end is counted. */
void count_begin(uint32_t step, const char *name);
void count_end(void);
/* Within the device. */
void count_copy(uint32_t step, const void *from, const void *to, size_t size_bytes);
void count_touch(const void *begin, size_t size_bytes, bool writes);

/* ---- cupti.cc: who wants to be told what the program does ---- */

/* Loads the library that CUDA_INJECTION64_PATH names. */
void activity_start();
void activity_memory(bool is_new, bool is_pinned, const void *address, size_t size_bytes);
void activity_launch();

/* ---- fibers.cc ---- */

/* Runs it, device memory being open. */
void kernel_run(const struct ul_emulate_kernel &kernel, const void *arguments);

#endif
