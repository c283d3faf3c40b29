/* SPDX-License-Identifier: Apache-2.0 */
/* The targets: a row of facts and functions for each. Only its row knows a target by its name. */
#include "codegen/target.h"
#include "codegen/c/c.h"
#include "codegen/cpu/dnnl.h"
#include "codegen/cuda/contract_cuda.h"
#include "codegen/cuda/cuda.h"
#include "codegen/kernel/contract.h"
#include "runtime/lib/ul_call.h"

#include <string.h>

static enum ul_status print_c(struct ul_text *text, const struct ul_kernel *kernel,
                              const struct ul_threads *threads, const struct ul_profile *profile,
                              struct ul_kernel_printed *printed, struct ul_diag *diag)
{
    (void)profile; /* the text is the same for every machine */
    return ul_kernel_print_c(text, kernel, threads, &printed->scratch_bytes, diag);
}

static uint32_t orders_c(const struct ul_kernel *kernel, const struct ul_profile *profile)
{
    (void)profile;
    return ul_contract_orders(kernel);
}

static enum ul_status print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                                 const struct ul_threads *threads, const struct ul_profile *profile,
                                 struct ul_kernel_printed *printed, struct ul_diag *diag)
{
    const struct ul_profile_device device = ul_profile_device(profile);
    (void)threads; /* of the host */
    return ul_kernel_print_cuda(text, kernel, &device, printed, diag);
}

static uint32_t orders_cuda(const struct ul_kernel *kernel, const struct ul_profile *profile)
{
    const struct ul_profile_device device = ul_profile_device(profile);
    return ul_contract_cuda_orders(kernel, &device);
}

static void print_schedule_c(struct ul_text *text, const struct ul_kernel *kernel,
                             const struct ul_program_options *options)
{
    ul_schedule_print_c(text, kernel, options->thread_count);
}

static void print_schedule_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                                const struct ul_program_options *options)
{
    const struct ul_profile_device device = ul_profile_device(options->profile);
    ul_schedule_print_cuda(text, kernel, &device);
}

static const struct ul_target_compiler cc = {.option = "cc",
                                             .variable = "CC",
                                             .command = "cc",
                                             .name = "the C compiler",
                                             .takes_march = true};
static const char *const cudnn_files[] = {"libcudnn.so", "libcudnn.so.9", NULL};
static const struct ul_target_companion cudnn = {.header = "cudnn.h", .libraries = cudnn_files};
static const struct ul_target_compiler nvcc = {.option = "nvcc",
                                               .variable = "NVCC",
                                               .command = "nvcc",
                                               .fallback = "/usr/local/cuda/bin/nvcc",
                                               .name = "nvcc",
                                               .toolkit = "the CUDA Toolkit",
                                               .companion = &cudnn};

static const char *const plain_rooms[] = {"lib", "host", NULL};
static const char *const cpu_rooms[] = {"lib", "host", "cpu", NULL};
static const char *const cuda_rooms[] = {"lib", "host", "cuda", NULL};

static const struct ul_target_library *const cpu_libraries[] = {&ul_nbits_library, &ul_dnnl_library,
                                                                &ul_winograd_library, NULL};
static const struct ul_target_library *const cuda_libraries[] = {&ul_cublaslt_library,
                                                                 &ul_cudnn_library, NULL};

static const struct ul_target targets[] = {
    {.traits = {.name = "c",
                .summary = "portable C99, no library",
                .profile = UL_PROFILE_DEFAULT,
                .has_rom = true,
                .tile_count = 8,
                .tile_bytes = 4096,
                .contract_reads = ul_contract_reads_c},
     .compiler = &cc,
     .runtime_rooms = plain_rooms,
     .print = print_c,
     .print_schedule = print_schedule_c,
     .sum_orders = orders_c,
     .stack_bytes = ul_kernel_stack_c,
     .emit = ul_emit_c},
    {.traits = {.name = "cpu",
                .summary = "C with OpenMP and oneDNN",
                .profile = UL_PROFILE_DEFAULT,
                .has_threads = true,
                .has_rom = true,
                .channels_last = true,
                .panels_of_codes = true,
                .codes_scratch_bytes = 114 * 1024,
                .tile_count = 4,
                .tile_bytes = 512 * 1024},
     .compiler = &cc,
     .runtime_rooms = cpu_rooms,
     .libraries = cpu_libraries,
     .libraries_name = "oneDNN",
     .print = print_c,
     .print_schedule = print_schedule_c,
     .sum_orders = orders_c,
     .stack_bytes = ul_kernel_stack_c,
     .emit = ul_emit_c},
    {.traits = {.name = "cuda",
                .summary = "CUDA C++, one buffer of device memory",
                .profile = UL_PROFILE_DEFAULT_DEVICE,
                .memory_is_separate = true,
                .has_streams = true,
                .finds_libraries = true,
                .channels_last = true,
                .filters_last = true,
                .biases_alike = true,
                .mask_align_bits = UL_CALL_MASK_BITS,
                .tensor_side = 8,
                .steps_cost = true,
                .products_joined = true,
                .signed_products = UL_CUDA_SUMS_PRODUCTS,
                .tile_count = 4,
                .tile_bytes = 1024 * 1024,
                .products_a_byte = 100, /* an A100 has 78, an H100 148, by their data sheets */
                .partial_count = 1024,
                .sums_joined = true,
                .spread_products = 32768,
                .gradient_size = UL_CUDA_ATTEND_SIZE,
                .gradient_joined = UL_CUDA_ATTEND_JOINED,
                .sorts_batches = true},
     .compiler = &nvcc,
     .runtime_rooms = cuda_rooms,
     .libraries = cuda_libraries,
     .libraries_name = "CUDA libraries",
     .print = print_cuda,
     .print_schedule = print_schedule_cuda,
     .sum_orders = orders_cuda,
     .emit = ul_emit_cuda},
};

const struct ul_target *ul_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].traits.name, name) == 0)
            return &targets[i];
    }
    return NULL;
}

const struct ul_target *ul_target_default(void)
{
    return ul_target_find("cpu");
}

uint32_t ul_target_count(void)
{
    return sizeof targets / sizeof *targets;
}

const struct ul_target *ul_target_at(uint32_t index)
{
    UL_ASSERT(index < ul_target_count());
    return &targets[index];
}
