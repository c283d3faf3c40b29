/*
 * Calls of cuBLASLt and cuDNN in a program for CUDA: what ul_cublas.cu and ul_cudnn.cu share, and
 * how kernels.cu runs a call. CUDA C++.
 *
 *      open       loads the library (dlopen: where it is missing there is a message, no loader's
 *                 error) and makes its handle
 *      prepare    for each call: descriptors, and the first algorithm of the library's heuristic
 *                 that does with the planned workspace and gives the same bits every time; or, with
 *                 --choices, the one that a file names. Every call runs once, so that the library
 *                 loads what it needs before a run is captured. With --tune all that the heuristic
 *                 offers are measured, and the file is written
 *      run        if (!ul_cudnn_run(&at, 1, 3, args, scratch)) k7(&at, ...);
 *
 * Invariants: what is chosen depends on the call, the device and the version of the library alone,
 * not on addresses: alignments are those that the plan promises. A call reads and writes its
 * arguments and its planned scratch, and allocates nothing.
 * Ownership: a handle belongs to its context; calls are constant tables of the model.
 * Units: bytes; dims and strides in elements.
 * Failure: UL_LIBRARY_MISSING and UL_LIBRARY_FAILED with the number of the call in failure->tensor;
 * while a run is enqueued, the run's `error`. A call that a library has nothing for is none: a
 * kernel of the program runs in its place.
 */
#ifndef UL_CUDA_LIBRARY_H
#define UL_CUDA_LIBRARY_H

#include "ul_call.h"
#include "ul_cuda.h"

/* The text of a macro's value. */
#define UL_TEXT_OF(macro) UL_TEXT_OF_VALUE(macro)
#define UL_TEXT_OF_VALUE(value) #value

/* ---- ul_cublas.cu, ul_cudnn.cu ---- */

/* Enqueues call `call`, `library` being the place of the library in the model's table. args: src,
 * weights, bias, dst, and the residual where there is one; what is absent is NULL. 0: the library
 * is not there, or has nothing for the call. */
int ul_cublas_run(const struct ul_cuda_step *at, uint32_t library, uint32_t call,
                  const void *const *args, unsigned char *scratch);
int ul_cudnn_run(const struct ul_cuda_step *at, uint32_t library, uint32_t call,
                 const void *const *args, unsigned char *scratch);

extern "C" {
extern const struct ul_device_library ul_cublas;
extern const struct ul_device_library ul_cudnn;          /* its absence is a failure */
extern const struct ul_device_library ul_cudnn_if_there; /* its absence is left to our kernels */
}

/* ---- ul_cuda_library.cu ---- */

/* The library of that name, from where the loader looks and from the toolkit's usual place; NULL:
 * there is none. */
void *ul_cuda_load(const char *name);
void *ul_cuda_symbol(void *library, const char *name);
void ul_cuda_unload(void *library);

/* What a call's scratch is to a library: the workspace of ul_call_workspace_bytes() in it. */
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

/* Places in the arena for the arguments of a call that runs for the sake of its time alone; what is
 * in them does not matter. 0: they do not fit. */
struct ul_cuda_trial {
    const void *args[UL_CALL_ARGS];
    unsigned char *scratch;
};
int ul_cuda_trial_place(struct ul_cuda_trial *trial, const struct ul_call *call,
                        unsigned char *arena, uint64_t arena_bytes);

/* The least seconds that `run` takes on the stream, of several times; negative: it fails. */
double ul_cuda_measure(cudaStream_t stream, int (*run)(void *context), void *context);

/* A choice for one call, in the words of the library: hexadecimal digits. */
enum { UL_CUDA_CHOICE_BYTES = 160 };
struct ul_cuda_choice {
    char text[UL_CUDA_CHOICE_BYTES]; /* empty: none */
};

/* Reads what a file holds for this model, device, library and version: choices[i] for call i. 0:
 * there is no such file, or it is of something else, which `reason` says. */
int ul_cuda_read_choices(const char *path, const struct ul_model *model, const char *library,
                         uint64_t version, struct ul_cuda_choice *choices, const char **reason);
/* Writes them, beside what the file holds of other libraries for the same model and device. */
int ul_cuda_write_choices(const char *path, const struct ul_model *model, const char *library,
                          uint64_t version, const struct ul_cuda_choice *choices,
                          const char **reason);

/* Bytes as hexadecimal digits, and back; 0 where the text is no such number of bytes. */
void ul_cuda_put_hex(char *text, const void *bytes, size_t size_bytes);
int ul_cuda_get_hex(const char *text, void *bytes, size_t size_bytes);

#endif
