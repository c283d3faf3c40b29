/* SPDX-License-Identifier: Apache-2.0 */
/* The program's settings from the options. Open options that a plan has to name are filled in:
 * threads, the machine, the workspace, libraries. */
#define _POSIX_C_SOURCE 200809L
#include "codegen/cpu/dnnl.h"
#include "compile/compile_internal.h"

#include <string.h>
#include <unistd.h>

enum ul_dtype ul_compile_storage(const struct ul_compile_options *options)
{
    static const enum ul_dtype storage[] = {[UL_PRECISION_F32] = UL_F32,
                                            [UL_PRECISION_F16] = UL_F16,
                                            [UL_PRECISION_BF16] = UL_BF16,
                                            [UL_PRECISION_AMP_F16] = UL_F16};
    return storage[options->precision];
}

/* The number of threads: that of this machine's cores, unless given. */
static uint32_t thread_count(const struct ul_compile_options *options)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (options->thread_count != 0)
        return (uint32_t)options->thread_count;
    return cores < 1                        ? 1
           : cores > UL_COMPILE_MAX_THREADS ? UL_COMPILE_MAX_THREADS
                                            : (uint32_t)cores;
}

#if defined(__x86_64__)
/* GCC's names of processors without FMA; any other name is taken to have it. */
static bool is_without_fma(const char *march)
{
    static const char *const names[] = {
        "x86-64",    "x86-64-v2",  "nocona",     "core2",        "corei7",        "nehalem",
        "westmere",  "corei7-avx", "core-avx-i", "sandybridge",  "ivybridge",     "bonnell",
        "atom",      "slm",        "silvermont", "goldmont",     "goldmont-plus", "tremont",
        "k8",        "k8-sse3",    "opteron",    "opteron-sse3", "athlon64",      "athlon64-sse3",
        "athlon-fx", "bdver1",     "amdfam10",   "barcelona",    "btver1",        "btver2",
        "eden-x2",   "eden-x4",    "nano",       "nano-1000",    "nano-2000",     "nano-3000",
        "nano-x2",   "nano-x4",    "lujiazui"};
    size_t length = strcspn(march, " "); /* "x86-64-v2 -mavx" */
    if (strstr(march + length, "-mno-fma") != NULL)
        return true;
    if (strstr(march + length, "-mfma") != NULL)
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], march, length) == 0)
            return true;
    }
    return false;
}

static bool is_processor_without_fma(const char *march)
{
    switch (march == NULL ? UL_MARCH_NATIVE : ul_compile_word("march", march)) {
    case UL_MARCH_NONE:
        return true;
    case UL_MARCH_NATIVE:
        return !__builtin_cpu_supports("fma");
    default:
        return is_without_fma(march);
    }
}
#else
/* All 64-bit Arm, POWER and RISC-V processors with floats have it. */
static bool is_processor_without_fma(const char *march)
{
    (void)march;
    return false;
}
#endif

bool ul_compile_rounds_products(const struct ul_compile_options *options,
                                const struct ul_target *target)
{
    return target->compiler->takes_march && is_processor_without_fma(options->march);
}

/* A program for a named machine must not use what only this machine has. */
static const char *march_of(const struct ul_compile *compile)
{
    if (compile->options.isa == NULL || compile->libraries == NULL)
        return "native";
    return compile->libraries->march != NULL ? compile->libraries->march : "none";
}

/* On target cuda, offloaded values go to memory of the host that a device's copies reach. */
static enum ul_status resolve_offload(struct ul_compile *compile,
                                      struct ul_program_options *program)
{
    const struct ul_compile_options *options = &compile->options;
    if (!ul_compile_offloads(options) && options->offload_budget_bytes != 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--offload-budget bounds what --offload host|FILE may hold: give that "
                           "too, or leave it out");
    if (!ul_compile_offloads(options))
        return UL_OK;
    if (!ul_compile_has_budget(options) && !compile->wants_ladder && options->plan == NULL)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--offload %s: values leave the buffer for a budget: give --budget "
                           "SIZE too, or leave it out",
                           ul_option_shown(&compile->keep, options->offload));
    program->offload.exists = true;
    program->offload.capacity_bytes = options->offload_budget_bytes;
    if (ul_compile_word("offload", options->offload) == UL_OFFLOAD_FILE)
        program->offload.file = options->offload;
    if (program->offload.file != NULL && program->target->traits.memory_is_separate)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "--offload %s: target %s offloads to memory of the host alone; use "
                           "--offload host",
                           ul_option_shown(&compile->keep, options->offload),
                           program->target->traits.name);
    return UL_OK;
}

static enum ul_status open_libraries(struct ul_compile *compile,
                                     const struct ul_program_options *program)
{
    const struct ul_compile *earlier = compile->earlier;
    if (earlier != NULL && earlier->libraries != NULL &&
        ul_libraries_reopen(earlier->libraries, program)) {
        compile->libraries = earlier->libraries;
        return UL_OK;
    }
    return ul_libraries_open(&compile->keep, program, &compile->libraries, &compile->diag);
}

enum ul_status ul_compile_resolve(struct ul_compile *compile, struct ul_program_options *program)
{
    struct ul_compile_options *options = &compile->options;
    const struct ul_target *target = ul_target_find(options->target);
    UL_ASSERT(target != NULL);
    *program = (struct ul_program_options){.keep_inputs = options->keep_inputs,
                                           .weights_rom = options->weights == UL_WEIGHTS_ROM,
                                           .no_float = options->no_float,
                                           .io_caller = options->io == UL_IO_CALLER,
                                           .target = target,
                                           .thread_count = thread_count(options),
                                           .isa = options->isa,
                                           .offsets_by_size = options->offsets == UL_OFFSETS_SIZES,
                                           .conv = options->conv,
                                           .align_bytes = options->plan != NULL
                                                              ? compile->plan_header.alignment_bytes
                                                              : options->align_bytes,
                                           .profile = &compile->profile,
                                           .training = options->train ? &compile->training : NULL};
    UL_TRY(resolve_offload(compile, program));
    UL_TRY(ul_compile_read_spaces(compile, program));
    if (program->weights_rom && !target->traits.has_rom)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "--weights rom: target %s keeps weights in the memory of its device; "
                           "use arena (in the program's file) or file (beside it)",
                           target->traits.name);
    if (target->traits.finds_libraries)
        UL_TRY(ul_compile_resolve_toolkit(compile, program));
    if (options->isa != NULL)
        UL_TRY(ul_dnnl_check_isa(&compile->keep, options->isa, &compile->diag));
    UL_TRY(open_libraries(compile, program));
    /* their calls are made for fixed sizes */
    program->libraries = ul_compile_is_sized(compile) ? NULL : compile->libraries;
    if (options->march == NULL)
        options->march = march_of(compile);
    if (compile->libraries != NULL && compile->libraries->isa != NULL)
        program->isa = compile->libraries->isa;
    if (target->traits.has_threads) {
        options->thread_count = program->thread_count;
        options->isa = program->isa;
    }
    return UL_OK;
}

struct ul_plan_options ul_compile_planning(const struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    struct ul_process_overhead overhead = {.run_bytes = 0};
    if (compile->program != NULL)
        overhead = ul_compile_overhead(compile, compile->program);
    return (struct ul_plan_options){
        .pack = options->pack,
        .order = options->order,
        .remat = options->remat,
        .alignment_bytes = options->align_bytes,
        .budget_bytes = options->budget_bytes != 0 ? options->budget_bytes : compile->banks_bytes,
        .seed = options->seed,
        .time_limit_seconds = options->time_limit_seconds,
        .orders = compile->orders,
        .overhead = overhead};
}
