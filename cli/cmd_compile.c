/* SPDX-License-Identifier: Apache-2.0 */
/* ullage compile: makes an executable from a model file, or with --emit a folder of source. */
#include "cli/cli.h"

#include <string.h>

/* Without the target's compiler the source is the result: it goes where --emit says, or next to the
 * program. */
static enum ul_status leave_source(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    bool is_stream = strcmp(options->output, "-") == 0;
    const char *directory = options->emit;
    if (directory == NULL) {
        directory =
            ul_arena_printf(&job->compile.keep, "%s.%s", is_stream ? "program" : options->output,
                            job->compile.options.target);
        UL_TRY(ul_cli_check_folder(job, "-o: the source goes to", directory));
    }
    UL_TRY(ul_compile_emit(&job->compile, directory));
    const struct ul_target_compiler *compiler = ul_compile_compiler(&job->compile);
    return ul_diag_set(&job->compile.diag, UL_COMPILER,
                       "target %s needs the compiler of %s, and there is no %s here; the source is "
                       "in %s, and make -C %s %s=%s builds it where the toolkit is (--%s or $%s "
                       "says where %s is on this machine)",
                       job->compile.options.target, compiler->toolkit,
                       ul_compile_command(&job->compile), directory, directory, compiler->variable,
                       compiler->command, compiler->option, compiler->variable, compiler->name);
}

static enum ul_status build_program(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    const char *directory = options->emit;
    bool is_source_wanted = options->emit != NULL || !options->shared_library;
    if (options->output != NULL && is_source_wanted && !ul_compile_has_compiler(&job->compile))
        return leave_source(job);
    if (directory == NULL)
        UL_TRY(ul_temporary_make(&job->compile.keep, &directory, &job->compile.diag));
    enum ul_status status = ul_compile_emit(&job->compile, directory);
    if (status == UL_OK && options->output != NULL)
        status = options->shared_library
                     ? ul_compile_make_library(&job->compile, directory, options->output)
                     : ul_compile_make(&job->compile, directory, options->output);
    if (options->emit == NULL) {
        ul_temporary_explain(directory, &job->compile.diag);
        ul_temporary_remove(directory);
    }
    return status;
}

/* Counts of a plan's positions. */
struct tally {
    uint32_t calls, own, runs, copies, transfers, /* steps of a library, of the runtime, of kernels,
                                                     of copied bytes; copies to other memory */
        waits;                                    /* for steps on another stream */
    uint32_t kernels;                             /* distinct ones that are run */
};

static struct tally count_steps(struct ul_compile *compile)
{
    const struct ul_program *program = compile->program;
    const struct ul_plan *plan = &compile->plan;
    bool *seen = UL_NEW_ARRAY(&compile->scratch, bool, program->kernel_count);
    struct tally tally = {.calls = 0};
    for (uint32_t p = 0; p < plan->position_count; p++) {
        const struct ul_plan_position *at = &plan->positions[p];
        if (at->kind != UL_PLAN_RUN) {
            bool joins =
                at->kind == UL_PLAN_WAIT && plan->positions[at->awaited].kind == UL_PLAN_RUN;
            *(joins ? &tally.waits : &tally.transfers) += 1;
            continue;
        }
        const struct ul_program_step *step = ul_program_step_at(program, at);
        bool is_kernel = step->kind == UL_STEP_KERNEL;
        bool is_own = step->kind == UL_STEP_CALL && program->calls[step->kernel].library->is_own;
        tally.calls += step->kind == UL_STEP_CALL && !is_own;
        tally.own += is_own;
        tally.runs += is_kernel;
        tally.copies += step->kind == UL_STEP_COPY;
        tally.kernels += is_kernel && !seen[step->kernel];
        if (is_kernel)
            seen[step->kernel] = true;
    }
    return tally;
}

static void put_count(struct ul_text *text, uint32_t count, const char *what, const char *of)
{
    if (count > 0)
        ul_text_printf(text, "%s%u %s%s%s", text->length == 0 ? "" : ", ", count, what,
                       ul_plural(count), of);
}

/* "56 steps: 55 calls of oneDNN, 1 generated kernel", "3 steps: 3 calls of the runtime", "119 steps
 * by 61 generated kernels". */
static const char *steps_text(struct ul_compile *compile)
{
    struct ul_text parts;
    const struct tally tally = count_steps(compile);
    uint32_t count = compile->plan.position_count;
    const struct ul_report *report = &compile->report;
    const char *library = report->facts.library;
    ul_text_init(&parts, &compile->keep);
    if (tally.runs == count && tally.runs > tally.kernels)
        return ul_arena_printf(&compile->keep, "%u steps by %u generated kernel%s", count,
                               tally.kernels, ul_plural(tally.kernels));
    put_count(&parts, tally.calls, library != NULL ? "call" : "library call",
              library != NULL ? ul_arena_printf(&compile->keep, " of %s", library) : "");
    put_count(&parts, tally.own, "call", " of the runtime");
    if (tally.runs > tally.kernels)
        put_count(&parts, tally.runs, "run",
                  ul_arena_printf(&compile->keep, " of %u generated kernel%s", tally.kernels,
                                  ul_plural(tally.kernels)));
    else
        put_count(&parts, tally.kernels, "generated kernel", "");
    if (tally.copies > 0)
        ul_text_printf(&parts, "%s%u of copying", parts.length == 0 ? "" : ", ", tally.copies);
    put_count(&parts, tally.transfers, "transfer", "");
    put_count(&parts, tally.waits, "wait", "");
    return ul_arena_printf(&compile->keep, "%u step%s%s%s", count, ul_plural(count),
                           parts.length > 0 ? ": " : "", parts.length > 0 ? parts.data : "");
}

static const char *launches_text(struct ul_compile *compile)
{
    const struct ul_saved_launches *launches = &compile->report.facts.launches;
    unsigned long long count = launches->count, of_libraries = launches->of_libraries;
    if (!compile->report.facts.has_launches)
        return "";
    return ul_arena_printf(
        &compile->keep, ", %llu launch%s%s%s", count, count == 1 ? "" : "es",
        of_libraries == 0 ? ""
                          : ul_arena_printf(&compile->keep, ", %llu of libraries", of_libraries),
        launches->on_second_stream == 0
            ? ""
            : ul_arena_printf(&compile->keep, ", %llu on a second stream",
                              (unsigned long long)launches->on_second_stream));
}

/* Describes the memory outside the buffer, where values are offloaded. */
static const char *offload_text(struct ul_compile *compile)
{
    const struct ul_program_options *options = &compile->program->options;
    const struct ul_plan *plan = &compile->plan;
    if (!ul_plan_has_transfers(plan))
        return options->offload.exists ? "; nothing is offloaded" : "";
    const char *where = options->offload.file != NULL ? "a file"
                        : options->target->traits.memory_is_separate
                            ? "page-locked memory of the host"
                            : "other memory of the process, which no budget counts";
    uint64_t bytes = plan->reserved_bytes[UL_PROGRAM_OFFLOAD];
    return ul_arena_printf(&compile->keep, "; offloads %s to %s",
                           ul_size_exact(&compile->keep, bytes), where);
}

/* Says what a budget did not cover where the process is a caller's: it bounded only a part. */
static void put_budget(struct ul_cli_job *job)
{
    const struct ul_saved *facts = &job->compile.report.facts;
    const struct ul_compile_options *asked = &job->compile.options;
    struct ul_arena *keep = &job->compile.keep;
    uint64_t rom = facts->flash.weights;
    if (asked->budget_bytes == 0 || asked->budget_of == UL_BUDGET_ARENA ||
        strcmp(facts->process_of, "caller") != 0)
        return;
    ul_cli_say(stderr,
               "the budget bounds buffer, library and stacks, together %s: code%s%s, and what "
               "the caller has, are beside\n",
               ul_size_exact(keep, facts->process_bytes), rom > 0 ? ", read-only weights of " : "",
               rom > 0 ? ul_size_format(keep, rom) : "");
}

static enum ul_status compile(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    UL_TRY(ul_cli_check_shared(job, false));
    if (options->shared && options->emit == NULL && options->output == NULL)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--shared: say where the library goes: --emit DIR, or -o libNAME.so "
                           "--shared-library");
    if (options->shared && options->output != NULL && !options->shared_library)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "-o makes a program of one model; --shared makes a library of several, "
                           "which your program calls: give --emit DIR, or --shared-library too");
    if (job->files.count == 0 || (options->output == NULL && options->emit == NULL))
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "give one model and where the result goes: ullage compile MODEL.onnx "
                           "-o PROGRAM, or --emit DIR");
    if (options->shared_library && options->output == NULL)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--shared-library: say where the library goes: -o libNAME.so; in the "
                           "folder of --emit alone, make lib makes it");
    if (options->library &&
        (options->emit == NULL || (options->output != NULL && !options->shared_library)))
        return ul_diag_set(
            &job->compile.diag, UL_USAGE,
            "--library: say in which folder: --emit DIR, and without -o, which makes "
            "a program");
    job->compile.is_library_alone = options->library || options->shared_library || options->shared;
    job->compile.is_library = options->output == NULL || options->shared_library;
    if (!options->shared) {
        UL_TRY(ul_cli_quantize(job, &job->files.items[0]));
        UL_TRY(ul_compile_find_largest(&job->compile, job->files.items[0]));
    }
    UL_TRY(ul_compile_build_roots(&job->compile, &job->files));
    UL_TRY(ul_compile_plan(&job->compile));
    if (options->json != NULL)
        UL_TRY(ul_file_write(options->json, job->compile.json.data, job->compile.json.length,
                             &job->compile.diag));
    UL_TRY(ul_compile_suffice(&job->compile));
    UL_TRY(ul_compile_require_fit(&job->compile));
    UL_TRY(build_program(job));
    ul_cli_put_notice(job);
    uint64_t reserved = job->compile.plan.reserved_bytes[0];
    ul_cli_say(stderr, "%s: reserves %s; %s%s%s\n",
               options->output != NULL ? options->output : options->emit,
               ul_size_exact(&job->compile.keep, reserved), steps_text(&job->compile),
               launches_text(&job->compile), offload_text(&job->compile));
    put_budget(job);
    return UL_OK;
}

static const struct ul_cli_example examples[] = {
    {"An executable for this machine", "ullage compile model.onnx -o model"},
    {"One that runs in 16 MiB, all of its process",
     "ullage compile model.onnx --budget 16MiB -o model"},
    {"Source for a microcontroller, weights in flash",
     "ullage compile model.onnx --target c --weights rom --io caller --emit src"},
    {"A trainer, of batches of 32",
     "ullage compile net.onnx --dim N=32 --train --train-mode -o trainer"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_compile = {
    .name = "compile",
    .arguments = "MODEL.onnx -o PROGRAM [options]",
    .summary = "Compiles a model into a program that runs in one preallocated buffer.",
    .details = "Several models, which run one after another, share an arena as a library: ullage "
               "compile A.onnx B.onnx --shared --emit DIR.",
    .group = "models",
    .endings = "onnx",
    .examples = examples,
    .bit = UL_IN_COMPILE,
    .run = compile};
