/* What a program takes beside its buffer.
 *
 * Problem: a budget is for a process, and a process holds more than the buffer. Method: what a
 * library keeps for each call it is asked (kept_bytes); code and tables of the program are counted
 * from what will be printed; the rest, of the C library and of OpenMP, is the same for all programs
 * and stands in the profile. Nothing is measured of the process that asks.
 *
 *     before the first step   library's set-up code + all it keeps; of the buffer one page
 *     while steps run         buffer + page tables, all it keeps, code that runs
 *
 * The program gives set-up code back between the two (runtime/host/ul_pages.c).
 *
 * A weight that whole pages of a file stand for is resident as far as it was read: of a table that
 * rows are looked up in, at most the pages around each lookup. */
#include "codegen/program/footprint.h"
#include "codegen/program/library.h"
#include "codegen/program/target.h"

#include "runtime/lib/ul_call.h"
#include "runtime/lib/ul_hash.h"

#include <string.h>

enum {
    CALL_BYTES = 2500,      /* of tables and code of the program for each: */
    STEP_BYTES = 600,       /* names aside; half of it for its being run once more */
    KEPT_SLACK = 40,        /* one byte in so many is lost between blocks of the heap */
    KEPT_BYTES = 64 << 10,  /* of the library for itself */
    BOUND_BYTES = 2560,     /* of the runtime for each call: what it is bound to */
    READ_AROUND = 64 << 10, /* the kernel maps so much around a page that is read */
    FLASH_BYTES = 8 << 10,  /* of model.c without a step */
    PAGE_SHARE = 512,       /* 8 bytes of page tables for 4096 */
    LARGE_PAGE = 2 << 20    /* what touching one byte of a large buffer takes */
};

/* ---- the library ---- */

static uint64_t kept_bytes(const struct ul_program *program)
{
    const struct ul_target_library *library = program->options.library;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->call_count; i++)
        bytes = ul_size_add_saturating(bytes,
                                       library->kept_bytes(library->context, &program->calls[i]));
    if (bytes == 0)
        return 0;
    return bytes + bytes / KEPT_SLACK + KEPT_BYTES + (uint64_t)program->call_count * BOUND_BYTES;
}

static bool has_windows(const struct ul_program *program)
{
    for (uint32_t i = 0; i < program->call_count; i++) {
        if (program->calls[i].kind < UL_CALL_MATMUL)
            return true;
    }
    return false;
}

/* ---- tables that rows are looked up in ---- */

/* Bytes of an argument that a step may read: all of them, but where a kernel looks up few elements
 * of many rows. */
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
                         value->size_bytes >= UL_PAGED_WEIGHT_BYTES &&
                         place->kind == UL_PLACE_VALUE && program->packs[place->value] == NULL;
        if (is_mapped)
            bytes += value->size_bytes - read_bytes(program, i, value->size_bytes);
    }
    return bytes;
}

/* ---- the sum ---- */

/* A byte of code for one of text, or less. */
static uint64_t text_bytes(const struct ul_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->kernel_count; i++)
        bytes += strlen(program->kernels[i].text);
    return bytes;
}

/* Of a step its own and its node's, which is a part of it; of what lies somewhere its name. */
static uint64_t name_bytes(const struct ul_program *program)
{
    uint64_t bytes = 0;
    for (uint32_t s = 0; s < program->step_count; s++)
        bytes += 2 * (uint64_t)strlen(program->steps[s].name);
    for (uint32_t i = 0; i < program->place_count; i++)
        bytes += strlen(program->problem->values[i].name);
    return bytes;
}

static uint64_t printed_bytes(const struct ul_program *program)
{
    return (uint64_t)program->step_count * STEP_BYTES + (uint64_t)program->call_count * CALL_BYTES +
           text_bytes(program) + name_bytes(program);
}

uint64_t ul_footprint_flash_bytes(const struct ul_program *program)
{
    return FLASH_BYTES + printed_bytes(program);
}

/* Of threads that a caller's process has: each as deep as the one that calls. */
static void count_stacks(const struct ul_program *program, struct ul_footprint *footprint)
{
    uint64_t threads = program->options.thread_count;
    footprint->library_stack_bytes = threads * ul_program_library_stack_bytes(program);
    footprint->stack_bytes =
        threads * ul_program_stack_bytes(program) + footprint->library_stack_bytes;
}

void ul_footprint_count(const struct ul_program *program, bool is_whole,
                        struct ul_footprint *footprint)
{
    const struct ul_profile_process *process = ul_profile_process(program->options.profile);
    bool has_calls = program->call_count > 0;
    *footprint = (struct ul_footprint){.is_whole = is_whole};
    if (program->options.target->traits.memory_is_separate)
        return;
    footprint->is_known = true;
    footprint->library_bytes = has_calls ? kept_bytes(program) : 0;
    footprint->stack_bytes = program->options.thread_count * process->stack_bytes;
    if (!is_whole) {
        count_stacks(program, footprint);
        return;
    }
    footprint->code_bytes = process->code_bytes + printed_bytes(program);
    footprint->runtime_bytes = process->runtime_bytes;
    if (program->options.target->traits.has_threads)
        footprint->code_bytes += process->threads_code_bytes;
    footprint->unread_bytes = unread_bytes(program);
    if (!has_calls)
        return;
    footprint->code_bytes += process->library_code_bytes;
    footprint->runtime_bytes += process->library_runtime_bytes;
    if (has_windows(program))
        footprint->code_bytes += process->windows_code_bytes;
    footprint->start_bytes = footprint->library_bytes + process->library_start_bytes;
}

struct ul_plan_beside ul_footprint_beside(const struct ul_footprint *footprint)
{
    struct ul_plan_beside beside = {.run_bytes = footprint->library_bytes + footprint->stack_bytes +
                                                 footprint->code_bytes + footprint->runtime_bytes};
    if (!footprint->is_whole || !footprint->is_known)
        return beside;
    beside.unread_bytes = footprint->unread_bytes;
    beside.page_share = PAGE_SHARE;
    beside.start_bytes = footprint->start_bytes;
    beside.start_page_bytes = LARGE_PAGE;
    return beside;
}
