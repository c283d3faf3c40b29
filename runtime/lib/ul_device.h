/* SPDX-License-Identifier: 0BSD */
/*
 * What host code in C knows of a model that runs on a device: how a context is opened, loaded, run
 * and closed, and what the command line asks besides. The generated model.c has one constant struct
 * ul_device; for target cuda its functions are those of ul_cuda.cu. Nothing here needs the device's
 * own headers.
 *
 *     open    finds and checks the device, opens the libraries, gets the arena: one allocation of
 *             exactly arena_bytes, or the caller's memory
 *     load    streams the weights into it, runs the set-up, captures the run
 *     run     copies inputs to their places, replays, copies outputs back, waits, reads the faults
 *     close   gives everything back; the caller's arena and stream stay the caller's
 *
 * Invariants: a context is used by one thread at a time; any number of contexts may run one model,
 * each on memory of its own. While a model runs, nothing is allocated, neither on the device nor on
 * the host. Every function leaves the thread's current device as it was, but `open` that is given
 * a number.
 * Ownership: a context belongs to its opener; strings and tables to the model.
 * Units: bytes and seconds. Device memory is an address that only the functions here look behind.
 * Failures: an enum ul_result, with the details in the caller's struct ul_failure; the device's own
 * words are in its `detail`. After a failed `open` there is nothing to close.
 */
#ifndef UL_DEVICE_H
#define UL_DEVICE_H

#include "ul_model.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ul_call;      /* ul_call.h */
struct ul_context;   /* a model, set up on a device */
struct ul_cuda_code; /* ul_cuda.h: what kernels.cu defines */

/* What the program keeps in the arena besides its values: struct ul_cuda_state, at a multiple of 8,
   then a byte for each region, and then what counts blocks. */
#define UL_CUDA_STATE_BYTES 40u

/* Addresses of the caller's buffers that the model reads and writes in place (--io caller) are
   multiples of this. */
#define UL_DEVICE_BUFFER_ALIGN 16

#define UL_DEVICE_TEXT_BYTES 256
#define UL_DEVICE_LIBRARY_LIMIT 4

/* How a context is opened. All zero: on the device that is the calling thread's current one, with
   an arena and a stream of its own. */
struct ul_device_request {
    uint32_t number;       /* 1 + the number of the device; 0: the current one */
    void *arena;           /* the caller's device memory */
    uint64_t arena_bytes;  /* bytes of that */
    void *stream;          /* the caller's cudaStream_t */
    uint64_t margin_bytes; /* room on both sides of an arena of its own; a multiple of its
                              alignment */
    int plain;             /* 1: launch every run step by step, capture none */
    int timed;             /* 1: measure what `times` tells */
    int measured;          /* 1: also ask the driver for what `memory` tells, where it says */
    const char *choices;   /* a file of the algorithms that were the libraries' fastest */
    int tune;              /* 1: measure and write that file */
};

/* Steps that are calls of a library. */
struct ul_device_calls {
    uint32_t planned;
    uint32_t own; /* of these, kernels of the program run so many instead */
};

/* A library that runs some of a model's calls. Its functions are named in a table so that a program
   without such calls does not need the library. */
struct ul_device_library {
    const char *name; /* "cuBLASLt" */
    /* Loads the library and makes its handle on the current device. UL_LIBRARY_MISSING. */
    enum ul_result (*open)(void **handle, struct ul_failure *failure);
    /* Chooses for each of its calls an algorithm within the planned scratch. */
    enum ul_result (*prepare)(void *handle, const struct ul_model *model,
                              const struct ul_device_request *request, unsigned char *arena,
                              void *stream, struct ul_failure *failure);
    void (*close)(void *handle);
    /* What it was compiled for: "cuBLASLt 13.1.0". */
    void (*describe)(char text[UL_DEVICE_TEXT_BYTES]);
    /* What a user should know, as a sentence: that the library is not there, or does not run all of
       its calls, so that kernels of the program do. 0: nothing. */
    int (*note)(const void *handle, char text[UL_DEVICE_TEXT_BYTES]);
    /* Counts none where the library is not there. */
    void (*count)(const void *handle, struct ul_device_calls *count);
    /* What runs a step's call; NULL: this library does not. */
    const char *(*implementation)(const void *handle, uint32_t step, uint32_t call);
};

/* Memory of the device, as it was measured while the context was opened and since. */
struct ul_device_memory {
    char device[UL_DEVICE_TEXT_BYTES]; /* "NVIDIA H100 (device 0, compute capability 9.0)" */
    uint64_t total_bytes;              /* of the device */
    uint64_t free_bytes;               /* now */
    uint64_t ready_free_bytes;         /* when the context was ready to run, its graph last made */
    uint64_t context_bytes;            /* what the device's own context took, code included */
    int context_shared;                /* 1: total less free bytes, with what other programs hold */
    uint32_t library_count;
    const char *library_names[UL_DEVICE_LIBRARY_LIMIT];
    uint64_t library_bytes[UL_DEVICE_LIBRARY_LIMIT]; /* that each handle took, at most */
    struct ul_device_calls calls_of[UL_DEVICE_LIBRARY_LIMIT];
    uint64_t allocated_bytes; /* the one allocation; 0: the caller's arena */
    uint64_t offload_bytes;   /* page-locked, of the host */
    uint64_t granted_bytes;   /* that it took of the free bytes */
    uint64_t code_bytes;   /* that set-up and the first run took: modules loaded late, local memory
                              of threads */
    uint64_t graph_bytes;  /* bytes that captured runs of all entry points took */
    uint64_t launch_count; /* of kernels and copies in a run; 0: no run */
    uint64_t apart_count;  /* of steps that launch each round of their loops, since not all
                              blocks of one launch can be there at once */
    uint64_t run_count;
    uint64_t replay_count;  /* runs that were replayed */
    uint64_t capture_count; /* how many runs were captured, over all entry points */
    uint64_t given_count;   /* how often a graph got other buffers of the caller instead */
    const char *uncaptured; /* why runs are not replayed; NULL: they are */
};

/* What the last run took, by the device's clock. */
struct ul_device_times {
    double in_seconds;  /* inputs to their places */
    double run_seconds; /* the model */
    double out_seconds; /* outputs from their places */
};

struct ul_device_functions {
    const char *name; /* "CUDA" */
    enum ul_result (*open)(const struct ul_model *model, const struct ul_device_request *request,
                           struct ul_context **context, struct ul_failure *failure);
    /* May be called again, to begin anew; what the arena holds then is as after the first time. */
    enum ul_result (*load)(struct ul_context *context, const struct ul_weights_source *source,
                           struct ul_failure *failure);
    void (*close)(struct ul_context *context); /* NULL is nothing to close */
    /* The stream of its runs: the caller's, or its own. */
    void *(*stream)(const struct ul_context *context);
    /* Runs the entry point of that number (ul_model.h). Inputs and outputs are in memory of the
       host or of the device; NULL: in their place in the arena already, or they stay there. With a
       hook, each step is announced before it is launched, when all before it are done. */
    enum ul_result (*run)(struct ul_context *context, uint32_t entry, const void *const *inputs,
                          void *const *outputs, ul_step_hook *hook, void *hook_context,
                          struct ul_failure *failure);
    /* A run that is not replayed, and adds to step_seconds[step] what each step took. */
    enum ul_result (*run_steps)(struct ul_context *context, uint32_t entry,
                                const void *const *inputs, void *const *outputs,
                                double *step_seconds, struct ul_failure *failure);
    /* Bytes of the arena, from its start; those of a margin have offsets outside of it. */
    enum ul_result (*read)(struct ul_context *context, int64_t offset_bytes, void *target,
                           uint64_t size_bytes, struct ul_failure *failure);
    enum ul_result (*write)(struct ul_context *context, int64_t offset_bytes, const void *bytes,
                            uint64_t size_bytes, struct ul_failure *failure);
    enum ul_result (*fill)(struct ul_context *context, int64_t offset_bytes, unsigned char value,
                           uint64_t size_bytes, struct ul_failure *failure);
    /* Exchanges the bits of each byte that are 1 in `pattern`. */
    enum ul_result (*exchange)(struct ul_context *context, int64_t offset_bytes,
                               unsigned char pattern, uint64_t size_bytes,
                               struct ul_failure *failure);
    /* Device memory outside of the arena, in place of a caller's buffer; NULL when there is none.
       `copy` takes addresses of the host and of the device. */
    void *(*new_buffer)(struct ul_context *context, uint64_t size_bytes);
    void (*free_buffer)(struct ul_context *context, void *buffer);
    enum ul_result (*copy)(struct ul_context *context, const void *from, void *to,
                           uint64_t size_bytes, struct ul_failure *failure);
    /* offload_bytes of the host's memory, page-locked, that values are offloaded to; NULL: none
     * are, or this process was forked from the one that has it. No transfer is under way between
     * two runs. */
    unsigned char *(*offload)(const struct ul_context *context);
    /* Memory of the host that copies are fastest with; NULL when there is none. */
    void *(*new_host)(struct ul_context *context, uint64_t size_bytes);
    void (*free_host)(struct ul_context *context, void *bytes);
    void (*memory)(const struct ul_context *context, struct ul_device_memory *memory);
    void (*times)(const struct ul_context *context, struct ul_device_times *times);
    /* What runs a step's library call; NULL: no library does. */
    const char *(*implementation)(const struct ul_context *context, uint32_t step, uint32_t call);
    /* What a user should know about the model's library number `library`. 0: nothing. */
    int (*note)(const struct ul_context *context, uint32_t library,
                char text[UL_DEVICE_TEXT_BYTES]);
    /* What the program was compiled with, on one line. Needs no device. */
    void (*describe)(const struct ul_model *model, char text[UL_DEVICE_TEXT_BYTES]);
};

/* What a model says of its device: the generated model.c has it. */
struct ul_device {
    const struct ul_device_functions *functions; /* &ul_cuda_functions */
    const struct ul_cuda_code *code;             /* in kernels.cu */
    uint64_t state_offset_bytes;                 /* of struct ul_cuda_state and its region bytes */
    uint32_t region_count;
    uint32_t counter_bytes;  /* after the region bytes, at a multiple of 4 */
    uint32_t is_faultless;   /* 1: no step reads an index or a count from data */
    uint32_t stream_count;   /* that steps run on; below 2: one */
    uint32_t transfer_count; /* in a run: transfers of values that are offloaded and fetched back */
    uint32_t library_count;  /* at most UL_DEVICE_LIBRARY_LIMIT */
    const struct ul_device_library *const *libraries;
    uint32_t call_count;
    const struct ul_call *calls;
};

extern const struct ul_device_functions ul_cuda_functions; /* ul_cuda.cu */

/* What <prefix>_open, _run and _close call. failure may be NULL. */
static inline enum ul_result ul_device_open(const struct ul_model *model,
                                            struct ul_context **context, void *arena, size_t bytes,
                                            void *stream, const struct ul_weights_source *source,
                                            struct ul_failure *failure)
{
    const struct ul_device_functions *functions = model->device->functions;
    struct ul_device_request request = {0, arena, bytes, stream, 0, 0, 0, 0, NULL, 0};
    struct ul_failure unused;
    if (failure == NULL)
        failure = &unused;
    *context = NULL;
    enum ul_result result = functions->open(model, &request, context, failure);
    if (result == UL_OK)
        result = functions->load(*context, source, failure);
    if (result != UL_OK) {
        functions->close(*context);
        *context = NULL;
    }
    return result;
}

static inline enum ul_result ul_device_run(const struct ul_model *model, struct ul_context *context,
                                           uint32_t entry, const void *const *inputs,
                                           void *const *outputs, struct ul_failure *failure)
{
    struct ul_failure unused;
    return model->device->functions->run(context, entry, inputs, outputs, NULL, NULL,
                                         failure != NULL ? failure : &unused);
}

static inline void ul_device_close(const struct ul_model *model, struct ul_context *context)
{
    model->device->functions->close(context);
}

#ifdef __cplusplus
}
#endif

#endif
