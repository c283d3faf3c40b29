/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what a program takes besides its buffer.
 *
 * Problem: a budget is for a process, and a process holds more than the buffer. Method: the library
 * is asked what it keeps for each call (kept_bytes); code and tables of the program are counted
 * from what will be printed; the rest, of the C library and of OpenMP, is the same for all programs
 * and comes from the profile. Nothing is measured in the process that asks.
 *
 *     at first                parts of the library that the loader touches
 *     before the first step   making one primitive + all that is kept; of the buffer one
 *                             page
 *     while steps run         buffer + page tables, all that is kept, code that runs
 *     after the last          the same without the buffer, and code that ends a process
 *
 * The program gives back set-up code where one more primitive might take more than the largest of
 * these (runtime/host/ul_pages.c).
 *
 * For a device's memory, the profile gives the bytes of the context and of libraries; the rest is
 * not known before the program runs.
 *
 * A weight in whole pages of a file is resident as far as it was read: of a table in which rows are
 * looked up, at most the pages around each lookup. */
#include "codegen/process/footprint.h"
#include "codegen/program/library.h"
#include "codegen/program/target.h"
#include "codegen/program/weights_file.h"

#include "ir/training.h"

#include <string.h>

enum {
    CALL_BYTES = 2500,         /* tables and code of the program for each: */
    STEP_BYTES = 600,          /* without names; half of it if it is run once more */
    KEPT_SLACK = 40,           /* one byte in so many is lost between blocks of the heap */
    KEPT_BYTES = 64 << 10,     /* of the library for itself */
    BOUND_BYTES = 2560,        /* of the runtime for each call: what it is bound to */
    TRAINER_BYTES = 144 << 10, /* of the runtime for reading samples and writing checkpoints */
    HELD_BYTES = 128 << 10,    /* the heap gives nothing of such a large buffer back */
    COSINE_BYTES = 384 << 10,  /* of libm, for its cosine: pages around code and tables */
    READ_AROUND = 64 << 10,    /* the kernel maps so much around a page that is read */
    FLASH_BYTES = 8 << 10,     /* of model.c without a step */
    TABLE_BYTES = 160 << 10,   /* of page tables, as soon as the library is loaded */
    PAGE_SHARE = 512,          /* 8 bytes of page tables for 4096 */
    LARGE_PAGE = 2 << 20       /* bytes that touching one byte of a large buffer takes */
};

/* ---- libraries, and code that a plan may do without ---- */

/* Code of OpenMP's library. A program without oneDNN runs through two thirds of it; a program with
 * one thread has the library only for oneDNN. */
static uint64_t threads_code_bytes(const struct ul_program *program, bool is_library)
{
    const struct ul_program_options *options = &program->options;
    uint64_t all = options->target->traits.has_threads
                       ? ul_profile_process(options->profile)->threads_code_bytes
                       : 0;
    uint64_t own = options->thread_count == 1 ? 0 : all / 3 * 2;
    return is_library ? all - own : own;
}

static uint32_t library_count(const struct ul_program *program)
{
    return program->options.libraries != NULL ? program->options.libraries->count : 0;
}

/* Pages of a library's code and its tables, which the process has as soon as one call is there, and
 * what it has in the heap for itself. */
struct taken {
    uint64_t code_bytes, runtime_bytes;
};

static struct taken taken_by(const struct ul_program *program,
                             const struct ul_target_library *library)
{
    struct ul_arena scratch;
    struct taken taken = {.code_bytes = 0};
    if (library->kept_bytes == NULL || ul_program_library(program, library)->place == UL_PLAN_NONE)
        return taken;
    ul_arena_init(&scratch);
    const struct ul_call **calls =
        UL_NEW_ARRAY(&scratch, const struct ul_call *, program->call_count);
    struct ul_library_use use = {.calls = calls, .options = &program->options};
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (program->calls[i].library == library)
            calls[use.count++] = program->calls[i].call;
    }
    taken.code_bytes =
        library->code_bytes(library->context, &use) + threads_code_bytes(program, true);
    taken.runtime_bytes = library->runtime_bytes(library->context, &use);
    ul_arena_done(&scratch);
    return taken;
}

static struct taken taken_by_all(const struct ul_program *program)
{
    struct taken sum = {.code_bytes = 0};
    for (uint32_t i = 0; i < library_count(program); i++) {
        struct taken taken = taken_by(program, &program->options.libraries->rows[i]);
        sum.code_bytes += taken.code_bytes;
        sum.runtime_bytes += taken.runtime_bytes;
    }
    return sum;
}

/* Whether a library keeps something for calls. */
static bool keeps(const struct ul_program *program)
{
    bool found = false;
    for (uint32_t i = 0; i < program->call_count; i++)
        found = found || program->calls[i].kept_place != UL_PLAN_NONE;
    return found;
}

/* Pages of files, while a primitive is made. */
static uint64_t making_bytes(const struct ul_program *program)
{
    return ul_profile_process(program->options.profile)->calls.making_bytes;
}

/* By kernel: a step's first alternative runs it, so every plan has its code. */
static bool *first_kernels(struct ul_arena *scratch, const struct ul_program *program)
{
    bool *first = UL_NEW_ARRAY(scratch, bool, program->kernel_count);
    for (uint32_t s = 0; s < program->step_count; s++) {
        if (program->steps[s].kind == UL_STEP_KERNEL)
            first[program->steps[s].kernel] = true;
    }
    return first;
}

/* Kernels that no plan does without have at most a byte of code for each byte of text. */
static uint64_t text_bytes(const struct ul_program *program)
{
    struct ul_arena scratch;
    uint64_t bytes = 0;
    ul_arena_init(&scratch);
    const bool *first = first_kernels(&scratch, program);
    for (uint32_t i = 0; i < program->kernel_count; i++)
        bytes += first[i] || program->kernels[i].code_place == UL_PLAN_NONE
                     ? strlen(program->kernels[i].text)
                     : 0;
    ul_arena_done(&scratch);
    return bytes;
}

/* In a part of a caller's process, code does not count. */
static void count_code(const struct ul_program *program, bool counts)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    const bool *first = first_kernels(&scratch, program);
    for (uint32_t i = 0; i < program->kernel_count; i++) {
        const struct ul_program_kernel *kernel = &program->kernels[i];
        if (kernel->code_place != UL_PLAN_NONE)
            program->problem->values[kernel->code_place].size_bytes =
                first[i] || !counts ? 0 : strlen(kernel->text);
    }
    ul_arena_done(&scratch);
}

void ul_footprint_count_overhead(const struct ul_program *program, bool is_whole)
{
    struct ul_plan_value *values = program->problem->values;
    for (uint32_t i = 0; i < program->call_count; i++) {
        const struct ul_program_call *call = &program->calls[i];
        if (call->kept_place == UL_PLAN_NONE)
            continue;
        uint64_t kept = call->library->kept_bytes(call->library->context, call->call);
        values[call->kept_place].size_bytes =
            kept + kept / KEPT_SLACK + BOUND_BYTES + (is_whole ? CALL_BYTES : 0);
    }
    for (uint32_t i = 0; i < library_count(program); i++) {
        const struct ul_target_library *library = &program->options.libraries->rows[i];
        uint32_t place = program->libraries[i].place;
        if (place == UL_PLAN_NONE)
            continue;
        const struct taken taken =
            is_whole ? taken_by(program, library) : (struct taken){.code_bytes = 0};
        values[place].size_bytes = (library->kept_bytes != NULL ? KEPT_BYTES : 0) +
                                   (is_whole ? library->own_code_bytes : 0) + taken.code_bytes +
                                   taken.runtime_bytes;
    }
    count_code(program, is_whole);
    if (!program->options.target->traits.memory_is_separate)
        ul_program_count_stacks(program, !is_whole);
}

/* ---- tables in which rows are looked up ---- */

/* Bytes of an argument that a step may read: all of them, unless a kernel looks up few elements of
 * many rows. */
static uint64_t argument_bytes(const struct ul_program *program, const struct ul_program_step *step,
                               uint32_t arg, uint64_t size_bytes)
{
    if (step->kind != UL_STEP_KERNEL || step->views[arg] == UL_NONE)
        return size_bytes;
    const struct ul_type *type = &program->graph->values[step->views[arg]].type;
    uint64_t elements = ul_type_elements(type);
    uint64_t row_count = type->rank == 0 ? 1 : (uint64_t)type->dims[0];
    uint64_t looked_up, bytes;
    if (row_count == 0 || elements < row_count ||
        !ul_size_mul(program->kernels[step->kernel].accesses[arg], step->rounds, &looked_up))
        return size_bytes;
    uint64_t rows = looked_up / (elements / row_count) + 1;
    bool fits = ul_size_mul(rows, READ_AROUND + size_bytes / row_count, &bytes);
    return fits && bytes < size_bytes ? bytes : size_bytes;
}

static uint64_t read_bytes(const struct ul_program *program, uint32_t place, uint64_t size_bytes)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < program->step_count; s++) {
        const struct ul_program_step *step = &program->steps[s];
        for (uint32_t a = 0; a < step->arg_count && bytes < size_bytes; a++) {
            if (step->args[a].place == place)
                bytes += argument_bytes(program, step, a, size_bytes);
        }
    }
    return bytes < size_bytes ? bytes : size_bytes;
}

static uint64_t unread_bytes(const struct ul_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->place_count; i++) {
        const struct ul_plan_value *value = &program->problem->values[i];
        const struct ul_program_place *place = &program->places[i];
        bool is_mapped = value->class == UL_PLAN_WEIGHTS && value->space == UL_PROGRAM_ARENA &&
                         value->size_bytes >= UL_FILE_PAGED_BYTES && !value->optional &&
                         place->kind == UL_PLACE_VALUE && place->pack == NULL;
        if (is_mapped)
            bytes += value->size_bytes - read_bytes(program, i, value->size_bytes);
    }
    return bytes;
}

/* ---- on a device ---- */

static bool has_calls_of(const struct ul_program *program, const struct ul_target_library *library)
{
    bool found = false;
    for (uint32_t i = 0; i < program->call_count; i++)
        found = found || program->calls[i].library == library;
    return found;
}

/* Bytes of libraries that calls name, whichever of them a plan runs. */
static uint64_t device_library_bytes(const struct ul_program *program, bool *lacks)
{
    uint64_t bytes = 0;
    *lacks = false;
    for (uint32_t i = 0; i < library_count(program); i++) {
        const struct ul_target_library *library = &program->options.libraries->rows[i];
        if (library->device_bytes == NULL || !has_calls_of(program, library))
            continue;
        uint64_t taken = library->device_bytes(library->context);
        *lacks = *lacks || taken == 0;
        bytes += taken;
    }
    return bytes;
}

static uint64_t device_context_bytes(const struct ul_program *program, bool is_whole)
{
    return is_whole ? ul_profile_device(program->options.profile).context_bytes : 0;
}

static void count_device(const struct ul_program *program, const struct ul_plan *plan,
                         bool is_whole, struct ul_footprint *footprint)
{
    footprint->is_of_device = true;
    footprint->buffer_bytes = plan->reserved_bytes[UL_PROGRAM_ARENA];
    footprint->library_bytes = device_library_bytes(program, &footprint->lacks_library);
    footprint->runtime_bytes = device_context_bytes(program, is_whole);
    footprint->lacks_context = is_whole && footprint->runtime_bytes == 0;
    footprint->total_bytes =
        footprint->buffer_bytes + footprint->library_bytes + footprint->runtime_bytes;
}

/* ---- the sum ---- */

/* Names of steps and their nodes, which are a part of them; names of what is in the arena. */
static uint64_t name_bytes(const struct ul_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        bytes += 2 * (uint64_t)strlen(program->steps[s].name);
    for (uint32_t i = 0; i < program->place_count; i++) {
        if (program->places[i].kind != UL_PLACE_OVERHEAD)
            bytes += strlen(program->problem->values[i].name);
    }
    return bytes;
}

/* Calls of other libraries are counted with what these keep for them. */
static uint64_t own_call_bytes(const struct ul_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->call_count; i++)
        bytes += program->calls[i].library->is_own ? CALL_BYTES : 0;
    return bytes;
}

static uint64_t printed_bytes(const struct ul_program *program)
{
    return (uint64_t)program->step_count * STEP_BYTES + text_bytes(program) + name_bytes(program) +
           own_call_bytes(program);
}

uint64_t ul_footprint_flash_bytes(struct ul_arena *scratch, const struct ul_program *program,
                                  const struct ul_plan *plan)
{
    uint64_t bytes = FLASH_BYTES + (uint64_t)program->step_count * STEP_BYTES + name_bytes(program);
    bool *kernels = UL_NEW_ARRAY(scratch, bool, program->kernel_count);
    bool *calls = UL_NEW_ARRAY(scratch, bool, program->call_count);
    ul_program_mark_run(program, plan, kernels, calls);
    for (uint32_t i = 0; i < program->kernel_count; i++)
        bytes += kernels[i] ? strlen(program->kernels[i].text) : 0;
    for (uint32_t i = 0; i < program->call_count; i++)
        bytes += calls[i] ? CALL_BYTES : 0;
    return bytes;
}

/* Stacks of all threads, in every plan: where the process is a caller's, each is as deep as the
 * calling thread's. A process has one thread more where values are offloaded. */
static uint64_t min_stack_bytes(const struct ul_program *program, bool is_whole)
{
    uint64_t thread_count = program->options.thread_count;
    if (!is_whole)
        return thread_count * ul_program_min_stack_bytes(program);
    return (thread_count + program->options.offload.exists) *
           ul_profile_process(program->options.profile)->stack_bytes;
}

static void count_stacks(const struct ul_program *program, const struct ul_plan *plan,
                         bool is_whole, struct ul_footprint *footprint)
{
    uint64_t library_bytes;
    footprint->stack_bytes = min_stack_bytes(program, is_whole);
    if (is_whole)
        return;
    uint64_t each = ul_program_stack_bytes(program, plan, &library_bytes);
    UL_ASSERT(program->options.thread_count * each >= footprint->stack_bytes);
    footprint->stack_bytes = program->options.thread_count * each;
    footprint->library_stack_bytes = program->options.thread_count * library_bytes;
}

/* Calls of a library touch half of a trainer's pages of the C library too. */
static uint64_t trainer_bytes(const struct ul_program *program)
{
    const struct ul_training *training = program->options.training;
    if (training == NULL)
        return 0;
    uint64_t bytes = keeps(program) ? TRAINER_BYTES / 2 : TRAINER_BYTES;
    for (uint32_t i = 0; i < training->rate_count; i++)
        bytes += training->rates[i].kind == UL_RATE_COSINE ? COSINE_BYTES : 0;
    return bytes;
}

/* Code and tables that every run goes through, without the library's. */
static uint64_t own_code_bytes(const struct ul_program *program)
{
    return ul_profile_process(program->options.profile)->code_bytes + printed_bytes(program) +
           threads_code_bytes(program, false) + trainer_bytes(program);
}

struct ul_process_overhead ul_footprint_overhead(const struct ul_program *program, bool is_whole)
{
    const struct ul_profile_process *process = ul_profile_process(program->options.profile);
    struct ul_process_overhead overhead = {.has_spaces = true};
    bool lacks;
    if (program->options.target->traits.memory_is_separate)
        return (struct ul_process_overhead){.run_bytes = device_library_bytes(program, &lacks) +
                                                         device_context_bytes(program, is_whole)};
    overhead.run_bytes = min_stack_bytes(program, is_whole);
    if (!is_whole)
        return overhead;
    overhead.run_bytes += own_code_bytes(program) + process->runtime_bytes;
    overhead.last_bytes = process->last_code_bytes < process->code_bytes ? process->last_code_bytes
                                                                         : process->code_bytes;
    overhead.held_bytes = HELD_BYTES;
    overhead.unread_bytes = unread_bytes(program);
    overhead.page_share = PAGE_SHARE;
    if (!keeps(program))
        return overhead;
    /* What stands for the library's code is beside in any case; while it starts, that is more. */
    const struct taken taken = taken_by_all(program);
    uint64_t fixed = taken.code_bytes + taken.runtime_bytes;
    uint64_t making = process->calls.idle_bytes + making_bytes(program);
    overhead.start_space = UL_PROGRAM_KEPT;
    overhead.load_bytes = process->calls.load_bytes;
    overhead.start_bytes = making > fixed ? making - fixed : 0;
    overhead.start_page_bytes = LARGE_PAGE;
    return overhead;
}

/* What a call keeps appears while its primitive is made. */
static void bound_start(const struct ul_program *program, uint64_t reserved_bytes,
                        struct ul_footprint *footprint)
{
    uint64_t overhead = TABLE_BYTES + reserved_bytes / PAGE_SHARE, largest = 0;
    for (uint32_t i = 0; i < program->call_count; i++) {
        uint32_t place = program->calls[i].kept_place;
        uint64_t kept = place != UL_PLAN_NONE ? program->problem->values[place].size_bytes : 0;
        largest = kept > largest ? kept : largest;
    }
    overhead += largest;
    footprint->making_bytes = making_bytes(program);
    footprint->start_bytes =
        footprint->total_bytes > overhead ? footprint->total_bytes - overhead : 1;
}

void ul_footprint_count(const struct ul_program *program, const struct ul_plan *plan, bool is_whole,
                        struct ul_footprint *footprint)
{
    const struct ul_profile_process *process = ul_profile_process(program->options.profile);
    struct ul_process_overhead overhead = ul_footprint_overhead(program, is_whole);
    uint64_t reserved = plan->reserved_bytes[UL_PROGRAM_ARENA];
    uint64_t unread = overhead.unread_bytes < reserved ? overhead.unread_bytes : reserved;
    *footprint = (struct ul_footprint){.is_whole = is_whole};
    if (program->options.target->traits.memory_is_separate) {
        count_device(program, plan, is_whole, footprint);
        UL_ASSERT(footprint->total_bytes == ul_plan_bounded_bytes(&overhead, plan));
        return;
    }
    bool has_calls = plan->reserved_bytes[UL_PROGRAM_KEPT] > 0;
    const struct taken taken =
        has_calls && is_whole ? taken_by_all(program) : (struct taken){.code_bytes = 0};
    footprint->total_bytes = ul_plan_bounded_bytes(&overhead, plan);
    footprint->buffer_bytes = reserved - unread;
    count_stacks(program, plan, is_whole, footprint);
    footprint->library_bytes = plan->reserved_bytes[UL_PROGRAM_KEPT];
    footprint->library_bytes -= taken.code_bytes + taken.runtime_bytes;
    footprint->code_bytes = taken.code_bytes;
    uint64_t known = footprint->buffer_bytes + footprint->stack_bytes + footprint->library_bytes;
    if (!is_whole) {
        UL_ASSERT(footprint->total_bytes == known);
        return;
    }
    uint64_t runtime = process->runtime_bytes + taken.runtime_bytes;
    footprint->code_bytes += own_code_bytes(program) + plan->reserved_bytes[UL_PROGRAM_CODE] -
                             ul_plan_late_bytes(&overhead, reserved);
    footprint->runtime_bytes = footprint->total_bytes - known - footprint->code_bytes;
    if (has_calls)
        bound_start(program, reserved, footprint);
    /* Before the first step little of the buffer is resident, and much of the library's code. */
    uint64_t run = known + footprint->code_bytes + runtime + reserved / PAGE_SHARE;
    footprint->starts_larger = footprint->total_bytes > run;
    if (footprint->starts_larger) {
        footprint->buffer_bytes = reserved < LARGE_PAGE ? 0 : LARGE_PAGE;
        footprint->runtime_bytes = runtime;
        footprint->code_bytes = footprint->total_bytes - footprint->buffer_bytes -
                                footprint->stack_bytes - footprint->library_bytes - runtime;
    }
}
