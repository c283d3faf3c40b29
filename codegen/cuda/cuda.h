/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels and programs as CUDA C++, and the libraries of a device. */
#ifndef UL_CODEGEN_CUDA_CUDA_H
#define UL_CODEGEN_CUDA_CUDA_H

#include "codegen/emit/emit.h"
#include "codegen/program/library.h"
#include "codegen/program/program.h"
#include "planner/model/plan.h"

/* print_cuda.c */

/* The definitions of a kernel as CUDA C++: its __global__ phases and the host function that
 * launches them; `@` stands for its name. Parameters of the host function: at, the kernel's input
 * and output buffers in order, then `scratch` where it has any. */
enum ul_status ul_kernel_print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                                    const struct ul_profile_device *device,
                                    struct ul_kernel_printed *printed,
                                    struct ul_diag *diag) UL_MUST_CHECK;

/* The same for kernels that join (struct ul_kernel_printed) into one launch. The host function has
 * the buffers of each in order, and after those of each but the last its struct ul_where. */
void ul_kernel_print_joined_cuda(struct ul_text *text, const struct ul_kernel *const *kernels,
                                 uint32_t count, const struct ul_profile_device *device);

/* schedule_cuda.c */

/* The phases of a kernel with their statements, one line for each, indented. */
void ul_schedule_print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                            const struct ul_profile_device *device);

/* cuda_calls.c: in the form of struct ul_target */

/* From this many multiplications of integers on, their sums are a call. */
#define UL_CUDA_SUMS_PRODUCTS (1 << 30)
/* Up to this many elements of a head, attention and its gradient are formed by tiles. */
#define UL_CUDA_ATTEND_SIZE 256
/* The largest head for which registers hold the sums of both gradients, of a key and of a value, at
 * once. */
#define UL_CUDA_ATTEND_JOINED 128

extern const struct ul_target_library ul_cublaslt_library;
extern const struct ul_target_library ul_cudnn_library;

/* emit_cuda.c */

/* The same for a device: kernels.cu in addition to model.c, which has only the tables. */
enum ul_status ul_emit_cuda(struct ul_arena *arena, const struct ul_program *program,
                            const struct ul_plan *plan, const struct ul_emit_options *options,
                            const char *directory, struct ul_diag *diag) UL_MUST_CHECK;

#endif
