/* SPDX-License-Identifier: 0BSD */
/*
 * Calls of cuBLASLt and cuDNN in a program for CUDA: what ul_cublas.cu and ul_cudnn*.cu share, and
 * how kernels.cu runs a call. CUDA C++.
 *
 *      open       loads the library (dlopen: where it is missing there is a message, no loader's
 *                 error) and makes its handle
 *      prepare    for each call: descriptors, and the first algorithm of the library's heuristic
 *                 that does with the planned workspace and gives the same bits every time; or, with
 *                 --choices, the one that a file names. Every call runs once, so that the library
 *                 loads what it needs before a run is captured. With --tune all that the heuristic
 *                 offers are measured, beside kernels of the program where it names these
 *                 (struct ul_cuda_code), and the file is written
 *      run        if (!ul_cudnn_run(&at, 1, 3, args, scratch)) k7(&at, ...);
 *
 * Invariants: what is chosen depends on the call, the device and the version of the library alone,
 * not on addresses: alignments are those that the plan promises. A call reads and writes its
 * arguments and its planned scratch, and allocates nothing.
 * Ownership: a handle belongs to its context; calls are constant tables of the model.
 * Units: bytes; dims and strides in elements.
 * Failure: UL_LIBRARY_MISSING and UL_LIBRARY_FAILED with the number of the call in failure->tensor;
 * while a run is enqueued, the run's `error`. A call that a library has nothing for is none, nor is
 * one at places that it does not take: a kernel of the program runs in its place. Which these are,
 * a run that enqueues nothing finds out when the context is opened (ul_cuda_ask_calls).
 */
#ifndef UL_CUDA_LIBRARY_H
#define UL_CUDA_LIBRARY_H

#include "ul_call.h"
#include "ul_cuda.h"
#include "ul_device.h"

/* The text of a macro's value. */
#define UL_TEXT_OF(macro) UL_TEXT_OF_VALUE(macro)
#define UL_TEXT_OF_VALUE(value) #value

/* ---- ul_cublas.cu, ul_cudnn.cu ---- */

/* Enqueues call `call`, `library` being the place of the library in the model's table. args: src,
 * weights, bias, dst, and the residual where there is one, or an attention's values and masks; what
 * is absent is NULL. In the first run of a step a residual that accumulates is taken for 0. 0: the
 * library is not there, or has nothing for the call. */
int ul_cublas_run(const struct ul_cuda_step *at, uint32_t library, uint32_t call,
                  const void *const *args, unsigned char *scratch);
/* Whether that call forms sums of a factor besides its product, or multiplies it by slopes, which
 * its description otherwise leaves to a kernel; wherever its arguments are. */
int ul_cublas_did_more(const struct ul_cuda_step *at, uint32_t library, uint32_t call);
int ul_cudnn_run(const struct ul_cuda_step *at, uint32_t library, uint32_t call,
                 const void *const *args, unsigned char *scratch);

extern "C" {
extern const struct ul_device_library ul_cublas;
extern const struct ul_device_library ul_cudnn;          /* its absence is a failure */
extern const struct ul_device_library ul_cudnn_if_there; /* its absence is left to our kernels */
}

/* ---- ul_cuda_library.cu: loading ---- */

/* The library of that name, from where the loader looks and from the toolkit's usual place; NULL:
 * there is none. */
void *ul_cuda_load(const char *name);
void *ul_cuda_symbol(void *library, const char *name);
void ul_cuda_unload(void *library);

/* A library's part of a call's scratch: the workspace of ul_call_workspace_bytes() in it. */
static inline unsigned char *ul_cuda_workspace(unsigned char *scratch)
{
    uintptr_t over = (uintptr_t)scratch % UL_CALL_WORKSPACE_ALIGN;
    return over != 0 ? scratch + (UL_CALL_WORKSPACE_ALIGN - over) : scratch;
}

/* Post-operations as both libraries have them: act(alpha * result + residual + bias). */
enum ul_cuda_activation { UL_CUDA_IDENTITY, UL_CUDA_RELU, UL_CUDA_GELU_TANH };
struct ul_cuda_posts {
    float alpha;
    int adds; /* a residual */
    enum ul_cuda_activation activation;
};
void ul_cuda_read_posts(const struct ul_call *call, struct ul_cuda_posts *posts);

/* ---- choosing algorithms ---- */

/* An algorithm in a library's own words, which the same version of it reads. */
enum { UL_CUDA_CHOICE_BYTES = 128, UL_CUDA_CANDIDATES = 16, UL_CUDA_NAME_BYTES = 48 };
struct ul_cuda_choice {
    uint32_t size_bytes; /* 0: none */
    unsigned char bytes[UL_CUDA_CHOICE_BYTES];
};

/* Who runs the call of a step; with several rounds of a loop, of the last one. */
enum ul_cuda_caller {
    UL_CUDA_NO_CALL, /* or kernels of ours, which were measured to take less time */
    UL_CUDA_BY_LIBRARY,
    UL_CUDA_NO_ALGORITHM, /* none within the planned workspace: a kernel of ours runs */
    UL_CUDA_MISPLACED,    /* operands at places that the library does not take: likewise */
    UL_CUDA_CALLERS
};

/* What the handles of both libraries begin with. */
struct ul_cuda_calls {
    uint32_t call_count; /* 0: not prepared yet */
    const struct ul_call *calls;
    char (*names)[UL_CUDA_NAME_BYTES]; /* by call, of its algorithm; empty: there is none */
    uint32_t step_count;
    uint8_t *callers; /* by step: enum ul_cuda_caller */
};

/* What each library has of its own. `handle` is its handle, `index` the number of a call; what can
 * fail answers 0 where it does. */
struct ul_cuda_library {
    const char *name, *shown; /* in a file of choices; in messages */
    uint32_t kinds;           /* of its calls: bits 1 << enum ul_call_kind */
    uint32_t align_bytes;     /* it takes operands at multiples of this */
    /* 1: what `find` offers runs, so that it may be taken untried where the arena has no room for a
     * trial; the arguments may be buffers of the caller's. 0: a trial is two runs, with other bytes
     * in the scratch and the residual in another place, which must give the same bits. */
    int is_sure;
    uint64_t (*version)(const void *handle);
    /* Makes room for so many calls, zeroed. */
    int (*reserve)(void *handle, uint32_t call_count);
    /* Makes the descriptors of a call. `bias` is an address that is no better aligned than the
     * plan promises. */
    int (*describe)(void *handle, uint32_t index, const struct ul_call *call, const void *bias);
    /* Finds algorithms that fit the plan, the best first; gives their number, at most
     * UL_CUDA_CANDIDATES. */
    int (*find)(void *handle, uint32_t index, const struct ul_call *call,
                struct ul_cuda_choice *found);
    /* Leaves a result of the call to the program's kernels, where nothing was found that runs,
     * so that `find` looks for less from then on. 0: the call has no such result. NULL: no call
     * has. */
    int (*lessen)(void *handle, uint32_t index);
    /* Makes an algorithm the call's, if it fits the plan. */
    int (*take)(void *handle, uint32_t index, const struct ul_call *call,
                const struct ul_cuda_choice *choice);
    /* Whether what was taken reads a mask of bits, which is judged first. NULL: nothing does. */
    int (*has_mask)(const void *handle, uint32_t index);
    /* Enqueues the call on the stream of the run. */
    int (*enqueue)(void *handle, uint32_t index, const void *const *args, unsigned char *scratch,
                   const struct ul_cuda_step *at);
    /* Names the algorithm that the call has. */
    void (*tell)(const void *handle, uint32_t index, char name[UL_CUDA_NAME_BYTES]);
};

/* The functions of the same names of struct ul_device_library. */
enum ul_result ul_cuda_prepare(const struct ul_cuda_library *library, void *handle,
                               const struct ul_model *model,
                               const struct ul_device_request *request, unsigned char *arena,
                               cudaStream_t stream, struct ul_failure *failure);
const char *ul_cuda_implementation(const void *handle, uint32_t step, uint32_t call);
void ul_cuda_count_calls(const void *handle, struct ul_device_calls *count);
/* What to say of a library that does not run all of its calls. */
int ul_cuda_note_unused(const struct ul_cuda_library *library, const void *handle,
                        char text[UL_DEVICE_TEXT_BYTES]);
/* Gives back what every handle has. */
void ul_cuda_free_calls(struct ul_cuda_calls *calls);

/* ul_cublas_run and ul_cudnn_run. */
int ul_cuda_run_call(const struct ul_cuda_library *library, const struct ul_cuda_step *at,
                     uint32_t place, uint32_t call, const void *const *args,
                     unsigned char *scratch);

/* Fills in the failure, and gives its result. */
enum ul_result ul_cuda_refuse(struct ul_failure *failure, enum ul_result result,
                              const char *detail);

/* ---- ul_cuda_library_choices.cu ---- */

/* Reads what a file holds for this model, plan, device, library and version: choices[i] for call i.
 * 0: there is no such file, or it is for something else or was cut; `reason` then says so about the
 * line of that number (0: about no line). */
int ul_cuda_read_choices(const char *path, const struct ul_model *model, const char *library,
                         uint64_t version, struct ul_cuda_choice *choices, uint32_t *line_number,
                         const char **reason);
/* Writes them, and keeps what the file holds about other libraries for the same model, plan and
 * device. */
int ul_cuda_write_choices(const char *path, const struct ul_model *model, const char *library,
                          uint64_t version, const struct ul_cuda_choice *choices,
                          const char **reason);

#endif
