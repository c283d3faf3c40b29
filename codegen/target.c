/* Which implementations a target offers for a kernel, before planning: what a kernel costs in time
 * and scratch depends on its implementation, so the planner picks, and the plan names the pick.
 * The compiler's own lowering is always the first; a target that links a library adds its own. */
#include "codegen/target.h"
#include "codegen/c/c.h"
#include "codegen/cpu/dnnl.h"
#include "codegen/cuda/contract_cuda.h"
#include "codegen/cuda/cuda.h"
#include "codegen/kernel/contract.h"

#include <string.h>

static uint32_t offer_own(const struct ul_program_step *step, const struct ul_profile *profile,
                          uint64_t own_scratch_bytes, struct ul_implementation *offers)
{
    offers[0] = (struct ul_implementation){
        .name = step->implementation != NULL ? step->implementation : "ullage",
        .cost = ul_profile_cost(profile, &step->work, &step->traffic, step->rounds),
        .scratch_bytes = own_scratch_bytes};
    for (uint32_t i = 0; i < step->leaner_count; i++) {
        offers[1 + i] = offers[0];
        offers[1 + i].scratch_bytes = step->leaner[i].scratch_bytes;
        offers[1 + i].cost = (uint64_t)((double)offers[0].cost * step->leaner[i].slowdown) + 1;
    }
    return 1 + step->leaner_count;
}

static enum ul_status print_c(struct ul_text *text, const struct ul_kernel *kernel,
                              const struct ul_threads *threads, const struct ul_profile *profile,
                              uint64_t *scratch_bytes, struct ul_diag *diag)
{
    (void)profile; /* the same text for every machine */
    return ul_kernel_print_c(text, kernel, threads, scratch_bytes, diag);
}

static uint32_t orders_c(const struct ul_kernel *kernel, const struct ul_profile *profile)
{
    (void)profile;
    return ul_contract_orders(kernel);
}

static enum ul_status print_cuda(struct ul_text *text, const struct ul_kernel *kernel,
                                 const struct ul_threads *threads, const struct ul_profile *profile,
                                 uint64_t *scratch_bytes, struct ul_diag *diag)
{
    const struct ul_profile_device device = ul_profile_device(profile);
    (void)threads; /* of the host */
    return ul_kernel_print_cuda(text, kernel, &device, scratch_bytes, diag);
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

static const struct ul_target targets[] = {
    {.name = "c",
     .summary = "portable C99, no library",
     .profile = UL_PROFILE_DEFAULT,
     .offer = offer_own,
     .print = print_c,
     .print_schedule = print_schedule_c,
     .sum_orders = orders_c,
     .emit = ul_emit_c},
    {.name = "cpu",
     .summary = "C with OpenMP and oneDNN",
     .profile = UL_PROFILE_DEFAULT,
     .has_threads = true,
     .channels_last = true,
     .open_library = ul_dnnl_open_library,
     .offer = offer_own,
     .print = print_c,
     .print_schedule = print_schedule_c,
     .sum_orders = orders_c,
     .emit = ul_emit_c},
    {.name = "cuda",
     .summary = "CUDA C++, one buffer of device memory",
     .profile = UL_PROFILE_DEFAULT_DEVICE,
     .channels_last = true,
     .filters_last = true,
     .biases_alike = true,
     .products_joined = true,
     .is_device = true,
     .partial_count = 1024,
     .spread_products = 32768,
     .sorts_batches = true,
     .open_library = ul_cuda_open_library,
     .offer = offer_own,
     .print = print_cuda,
     .print_schedule = print_schedule_cuda,
     .sum_orders = orders_cuda,
     .emit = ul_emit_cuda},
};

const struct ul_target *ul_target_find(const char *name)
{
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        if (strcmp(targets[i].name, name) == 0)
            return &targets[i];
    }
    return NULL;
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
