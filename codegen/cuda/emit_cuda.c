/* SPDX-License-Identifier: Apache-2.0 */
/* A planned program as a folder of CUDA C++: kernels.cu (kernels, and run_steps, which enqueues
 * them at planned addresses), model.c (the tables, C99), model.h, main.c, the runtime's files,
 * weights.bin and a Makefile.
 *
 * The host runs run_steps once, while the run is captured. Loops of a fixed number of rounds are
 * loops of the host. Only the device knows whether a branch is taken or a loop goes on: such a
 * region has a byte in the run's state, which its first step sets, and steps of a region whose byte
 * is 0 do nothing.
 *
 *      for (r2 = 0; r2 < 8; r2++)         byte = r2 == 0 ? the outer region's : byte, and condition
 *          step, step, step               each as byte says */
#include "codegen/cuda/emit_cuda.h"
#include "codegen/cuda/cuda.h"

#include <inttypes.h>
#include <string.h>

/* ---- steps ---- */

/* The byte that says whether steps of a region run: its own, or that of the nearest region around
 * it that has one. */
static const char *flag_text(const struct ul_emitter *emitter, uint32_t region)
{
    const struct ul_program_region *regions = emitter->program->regions;
    while (region != UL_PLAN_NONE && regions[region].flag == UL_PLAN_NONE)
        region = regions[region].parent;
    return region == UL_PLAN_NONE ? "UL_CUDA_ALWAYS"
                                  : ul_arena_printf(emitter->arena, "%u", regions[region].flag);
}

/* How a step of the position's stream begins. */
static const char *begin_text(const struct ul_emitter *emitter, uint32_t position)
{
    return emitter->plan->positions[position].stream == 0 ? "ul_cuda_at" : "ul_cuda_at_beside";
}

/* The step that sets a region's byte belongs to the region around it. */
static void put_mark(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position)
{
    bool sets = step->kind == UL_STEP_TEST;
    uint32_t region = sets ? emitter->program->regions[step->region].parent : step->region;
    ul_text_printf(emitter->text, "at = %s(run, %u, %s);", begin_text(emitter, position), position,
                   flag_text(emitter, region));
}

static void put_branch(struct ul_emitter *emitter, uint32_t region, uint32_t position)
{
    (void)position;
    ul_text_printf(emitter->text, "{ /* where flag %u is set */\n",
                   emitter->program->regions[region].flag);
}

static void put_buffer(struct ul_emitter *emitter, struct ul_emit_place place)
{
    ul_text_printf(emitter->text, "ul_cuda_%s(run, %u)",
                   place.space == UL_EMIT_INPUT ? "input" : "output", place.index);
}

static void put_place(struct ul_emitter *emitter, const struct ul_program_address *address,
                      uint32_t position)
{
    ul_text_put(emitter->text, "ul_place{");
    ul_emit_address(emitter, address, position);
    ul_text_put(emitter->text, "}");
}

static void put_arguments(struct ul_emitter *emitter, const struct ul_program_step *step,
                          uint32_t position)
{
    for (uint32_t i = 0; i < step->arg_count; i++) {
        ul_text_put(emitter->text, ", ");
        put_place(emitter, &step->args[i], position);
    }
}

static void put_kernel_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                            uint32_t position)
{
    const struct ul_program_kernel *kernel = &emitter->program->kernels[step->kernel];
    ul_text_printf(emitter->text, "%s(&at", kernel->name);
    put_arguments(emitter, step, position);
    if (kernel->printed.scratch_bytes > 0)
        ul_text_printf(emitter->text, ", a + %" PRIu64, emitter->scratch_offsets[position]);
    ul_text_put(emitter->text, ");\n");
}

/* The first round of a loop, and a branch, begin with the byte of the region around them. */
static void put_test(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position, uint32_t indent)
{
    const struct ul_program_region *region = &emitter->program->regions[step->region];
    struct ul_text *text = emitter->text;
    if (region->kind == UL_PLAN_LOOP)
        ul_text_printf(text, "if (r%u == 0)\n%*s", step->region, (int)(4 * indent + 4), "");
    ul_text_printf(text, "ul_cuda_enter_region(&at, %u, %s, ", region->flag,
                   flag_text(emitter, region->parent));
    put_place(emitter, &step->args[0], position);
    ul_text_printf(text, ", %d);\n", region->negated ? 1 : 0);
    if (region->kind != UL_PLAN_LOOP)
        return;
    ul_text_printf(text, "%*selse\n%*sul_cuda_test(&at, %u, ", (int)(4 * indent), "",
                   (int)(4 * indent + 4), "", region->flag);
    put_place(emitter, &step->args[0], position);
    ul_text_put(text, ");\n");
}

static void put_step(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position, uint32_t indent)
{
    struct ul_text *text = emitter->text;
    switch (step->kind) {
    case UL_STEP_KERNEL:
        if (step->is_spared)
            ul_emit_cuda_put_spared(emitter, step, position, indent);
        put_kernel_call(emitter, step, position);
        break;
    case UL_STEP_CALL:
        ul_emit_cuda_put_call(emitter, step, position, indent);
        break;
    case UL_STEP_COPY:
        ul_text_put(text, "ul_cuda_copy(&at, ");
        put_place(emitter, &step->args[0], position);
        ul_text_put(text, ", ");
        put_place(emitter, &step->args[1], position);
        ul_text_printf(text, ", %" PRIu64 ");\n", step->copy_bytes);
        break;
    case UL_STEP_COUNTER:
        ul_text_put(text, "ul_cuda_put_counter(&at, ");
        put_place(emitter, &step->args[0], position);
        ul_text_printf(text, ", r%u);\n", step->region);
        break;
    case UL_STEP_TEST:
        put_test(emitter, step, position, indent);
        break;
    }
}

static const struct ul_program_step *step_at(const struct ul_emitter *emitter, uint32_t position)
{
    return ul_program_step_at(emitter->program, &emitter->plan->positions[position]);
}

/* The steps are one launch, unless the run reports or counts each step; then each is one. */
static void put_joined(struct ul_emitter *emitter, const uint32_t *positions, uint32_t count,
                       uint32_t indent)
{
    struct ul_text *text = emitter->text;
    int inner = (int)(4 * indent + 4);
    ul_text_printf(text, "%*sif (ul_cuda_joins(run)) {\n", (int)(4 * indent), "");
    for (uint32_t i = 0; i < count; i++) {
        uint32_t region = step_at(emitter, positions[i])->region;
        ul_text_printf(text, "%*s", inner, "");
        if (i + 1 < count)
            ul_text_printf(text, "const struct ul_cuda_step at_%u", positions[i]);
        else
            ul_text_put(text, "at");
        ul_text_printf(text, " = %s(run, %u, %s);\n", begin_text(emitter, positions[i]),
                       positions[i], flag_text(emitter, region));
    }
    ul_text_printf(text, "%*sj%u(&at", inner, "", ul_emit_joint(emitter, positions, count));
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_program_step *step = step_at(emitter, positions[i]);
        put_arguments(emitter, step, positions[i]);
        if (emitter->program->kernels[step->kernel].printed.scratch_bytes > 0)
            ul_text_printf(text, ", a + %" PRIu64, emitter->scratch_offsets[positions[i]]);
        if (i + 1 < count)
            ul_text_printf(text, ", at_%u.where", positions[i]);
    }
    ul_text_printf(text, ");\n%*s} else {\n", (int)(4 * indent), "");
    for (uint32_t i = 0; i < count; i++)
        ul_emit_step(emitter, positions[i], indent + 1);
    ul_text_printf(text, "%*s}\n", (int)(4 * indent), "");
}

static void put_transfer(struct ul_emitter *emitter, uint32_t position)
{
    const struct ul_emit_transfer *transfer = &emitter->transfers[position];
    const struct ul_plan_position *at = &emitter->plan->positions[position];
    ul_text_printf(emitter->text,
                   "    at = ul_cuda_at(run, %u, UL_CUDA_ALWAYS);\n"
                   "    ul_cuda_move(&at, UL_OFFLOAD_%s, %u, %u, %" PRIu64 ", a + %" PRIu64
                   ", %" PRIu64 ");\n",
                   position, at->loads ? "LOAD" : "SAVE", at->stream, transfer->number,
                   transfer->offload_offset_bytes, transfer->arena_offset_bytes,
                   transfer->size_bytes);
}

static void put_wait(struct ul_emitter *emitter, uint32_t position, uint32_t number)
{
    if (position != UL_PLAN_NONE)
        ul_text_printf(emitter->text, "    at = ul_cuda_at(run, %u, UL_CUDA_ALWAYS);\n", position);
    ul_text_printf(emitter->text, "    ul_cuda_await(run, %u);\n", number);
}

static void put_join(struct ul_emitter *emitter, uint32_t position, bool joins)
{
    ul_text_printf(emitter->text, "    at = ul_cuda_at(run, %u, UL_CUDA_ALWAYS);\n%s", position,
                   joins ? "    ul_cuda_join(run);\n" : "");
}

/* ---- kernels.cu ---- */

/* A kernel's text, `@` being its name. */
static void put_kernel(struct ul_emitter *emitter, const char *rest, const char *name)
{
    for (const char *at; (at = strchr(rest, '@')) != NULL; rest = at + 1)
        ul_text_printf(emitter->text, "%.*s%s", (int)(at - rest), rest, name);
    ul_text_printf(emitter->text, "%s\n", rest);
}

/* Kernels that are joined into one launch somewhere. */
static void put_joints(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    const struct ul_profile_device device = ul_profile_device(program->options.profile);
    uint32_t positions[UL_PROGRAM_JOINED];
    for (uint32_t e = 0; e < program->entry_count; e++)
        for (uint32_t p = 0; p < emitter->plan->position_count; p++)
            if (emitter->entry_runs[e][p] && emitter->joined[e][p] > 1)
                (void)ul_emit_joint(emitter, positions, ul_emit_joined(emitter, e, p, positions));
    for (uint32_t i = 0; i < emitter->joint_count; i++) {
        const struct ul_emit_joint *joint = &emitter->joints[i];
        const struct ul_kernel *kernels[UL_PROGRAM_JOINED];
        struct ul_text text;
        ul_text_printf(emitter->text, "/* j%u:", i);
        for (uint32_t k = 0; k < joint->count; k++) {
            kernels[k] = program->kernels[joint->kernels[k]].ir;
            ul_text_printf(emitter->text, " %s", program->kernels[joint->kernels[k]].name);
        }
        ul_text_put(emitter->text, " */\n");
        ul_text_init(&text, emitter->arena);
        ul_kernel_print_joined_cuda(&text, kernels, joint->count, &device);
        put_kernel(emitter, text.data, ul_arena_printf(emitter->arena, "j%u", i));
    }
}

/* Calls the steps of another entry, with which the first run of a step begins. */
static void put_begin(struct ul_text *text, const struct ul_program_entry *entry)
{
    ul_text_printf(text,
                   "static void %s_steps(struct ul_cuda_run *run)\n{\n"
                   "    run->begins = 1;\n    %s_steps(run);\n}\n\n",
                   entry->name, entry->steps);
}

/* A function for each entry point that has steps, and the table of them. */
static void put_entries(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    struct ul_text list;
    ul_text_init(&list, emitter->arena);
    for (uint32_t e = 0; e < emitter->program->entry_count; e++) {
        const struct ul_program_entry *entry = &emitter->program->entries[e];
        uint32_t begin, end;
        ul_emit_entry_span(emitter, e, &begin, &end);
        ul_text_printf(&list, "%s%s%s", e == 0 ? "" : ", ", begin < end ? entry->name : "NULL",
                       begin < end ? "_steps" : "");
        if (begin == end)
            continue;
        if (strcmp(entry->steps, entry->name) != 0) {
            put_begin(text, entry);
            continue;
        }
        ul_text_printf(text,
                       "static void %s_steps(struct ul_cuda_run *run)\n{\n"
                       "    unsigned char *a = run->arena;\n    struct ul_cuda_step at;\n"
                       "    (void)a;\n    (void)at;\n",
                       entry->name);
        ul_emit_steps(emitter, e);
        ul_text_put(text, "}\n\n");
    }
    const char *own = ul_emit_cuda_put_own(emitter);
    ul_text_printf(
        text,
        "UL_PROBE\n\n"
        "static void (*const entries[])(struct ul_cuda_run *) = {%s};\n\n"
        "extern \"C\" {\nextern const struct ul_cuda_code %s_code;\n"
        "const struct ul_cuda_code %s_code = {entries, (const void *)ul_probe, %s};\n}\n",
        list.data, emitter->options->prefix, emitter->options->prefix, own);
}

static void put_kernels_body(struct ul_emitter *emitter)
{
    ul_text_printf(emitter->text,
                   "static_assert(sizeof(struct ul_cuda_state) == %d, \"the plan's place\");\n\n",
                   (int)UL_PROGRAM_STATE_BYTES);
    for (uint32_t i = 0; i < emitter->program->kernel_count; i++)
        put_kernel(emitter, emitter->program->kernels[i].text, emitter->program->kernels[i].name);
    put_joints(emitter);
    put_entries(emitter);
}

static void put_kernels_cu(struct ul_emitter *emitter)
{
    const char *body = ul_emit_body(emitter, put_kernels_body);
    ul_text_printf(emitter->text,
                   "/* Generated by ullage " UL_VERSION " from a model with SHA-256\n * %s.\n"
                   " * One buffer of device memory of exactly %" PRIu64
                   " bytes holds everything; `a` is its start.\n * " UL_EMIT_SPDX " */\n",
                   emitter->options->model_sha256, emitter->plan->reserved_bytes[0]);
    ul_emit_includes(emitter, body, true);
    ul_text_put(emitter->text, "\n");
    ul_text_put(emitter->text, body);
}

/* ---- model.c, model.h ---- */

/* Whether some kernel checks what it reads from data, and notes what is out of range. */
static bool may_fault(const struct ul_emitter *emitter)
{
    static const char *const checks[] = {"ul_bound(run,", "ul_index(run,", "ul_count(run,"};
    bool found = false;
    for (uint32_t i = 0; i < emitter->program->kernel_count; i++) {
        for (uint32_t k = 0; k < sizeof checks / sizeof *checks; k++)
            found = found || strstr(emitter->program->kernels[i].text, checks[k]) != NULL;
    }
    return found;
}

static void put_body(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    const struct ul_program *program = emitter->program;
    const char *prefix = emitter->options->prefix;
    ul_text_printf(text, "extern const struct ul_cuda_code %s_code; /* kernels.cu */\n\n", prefix);
    ul_emit_calls(emitter);
    ul_text_printf(text,
                   "static const struct ul_device device = {\n    .functions = "
                   "&ul_cuda_functions,\n    .code = &%s_code,\n    .state_offset_bytes = %" PRIu64
                   ",\n    .region_count = %u,\n",
                   prefix, ul_emit_place(emitter, program->run_state, 0).offset_bytes,
                   program->flag_count);
    if (ul_program_counter_bytes(program) > 0)
        ul_text_printf(text, "    .counter_bytes = %u,\n", ul_program_counter_bytes(program));
    if (!may_fault(emitter))
        ul_text_put(text, "    .is_faultless = 1,\n");
    if (ul_plan_has_streams(emitter->plan))
        ul_text_put(text, "    .stream_count = 2,\n");
    if (emitter->transfer_count > 0)
        ul_text_printf(text, "    .transfer_count = %u,\n", emitter->transfer_count);
    if (program->call_count > 0)
        ul_text_printf(text,
                       "    .library_count = sizeof libraries / sizeof *libraries,\n"
                       "    .libraries = libraries,\n    .call_count = %u,\n    .calls = calls,\n",
                       emitter->call_count);
    ul_text_put(text, "};\n\n");
    ul_emit_tables(emitter);
    ul_text_printf(
        text,
        "\nint %s_open(struct ul_context **context, void *arena, size_t bytes, void *stream,\n"
        "    const struct ul_weights_source *weights, struct ul_failure *failure)\n{\n"
        "    return (int)ul_device_open(&%s, context, arena, bytes, stream, weights, "
        "failure);\n}\n\n",
        prefix, ul_emit_root_model(emitter));
    ul_emit_each_model(emitter, ul_emit_root_functions);
    ul_text_printf(text,
                   "void %s_close(struct ul_context *context)\n{\n"
                   "    ul_device_close(&%s, context);\n}\n",
                   prefix, ul_emit_root_model(emitter));
    ul_emit_training_functions(emitter);
}

static void put_model_c(struct ul_emitter *emitter)
{
    const char *body = ul_emit_body(emitter, put_body);
    ul_text_printf(emitter->text,
                   "/* Generated by ullage " UL_VERSION " from a model with SHA-256\n * %s.\n"
                   " * What the program knows of the model; its steps are in kernels.cu.\n"
                   " * " UL_EMIT_SPDX " */\n",
                   emitter->options->model_sha256);
    ul_emit_includes(emitter, body, false);
    ul_text_printf(emitter->text, "\n#include \"%s.h\"\n\n", ul_emit_stem(emitter));
    ul_text_put(emitter->text, body);
}

/* How a program begins. */
static void put_open(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    const char *big = ul_emit_upper(emitter->arena, prefix);
    ul_text_printf(
        emitter->text,
        "/* Makes a context on the current device: reads the weights into its arena and captures\n"
        " * the run. `arena`: device memory of the caller's, at least %s_ARENA_BYTES, aligned\n"
        " * to %s_ARENA_ALIGN; NULL: one cudaMalloc of exactly that. `stream`: the caller's\n"
        " * cudaStream_t; NULL: one of its own. Returns an enum ul_result; `failure`, which may "
        "be\n"
        " * NULL, carries needed and available bytes.\n"
        " * Order: runs wait for what stands before them in `stream`, and are complete when they\n"
        " * return. A stream of its own does not wait for the legacy default stream, nor does a\n"
        " * cudaStreamNonBlocking one of yours: what you enqueue there (kernels without a stream,\n"
        " * cudaMemcpyAsync in stream 0) must be complete before a run, or pass cudaStreamLegacy. "
        "*/\n"
        "int %s_open(struct ul_context **context, void *arena, size_t bytes, void *stream,\n"
        "    const struct ul_weights_source *weights, struct ul_failure *failure);\n\n",
        big, big, prefix);
}

/* How a root runs. */
static void put_run_text(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    ul_emit_sizes_struct(emitter);
    ul_text_put(text,
                "/* One run, complete when it returns; `inputs` and `outputs` are memory of ");
    if (emitter->program->options.io_caller)
        ul_text_put(
            text,
            "the device, at\n"
            " * multiples of 16 bytes, which it reads and writes in place; none may be "
            "NULL.\n"
            " * The first run is launched step by step, and captured as a graph for its "
            "buffers. For\n"
            " * others the graph's kernels are given these addresses, and nothing is captured; "
            "but where a\n"
            " * call of cuBLASLt or cuDNN has a buffer of yours, a second set of buffers gets a "
            "graph of its\n"
            " * own, which takes memory of the device, and more sets than two in turn cost the "
            "host a capture\n"
            " * each.\n");
    else
        ul_text_printf(text,
                       "the host or of\n"
                       " * the device. A NULL input is already in its place in the arena, a NULL "
                       "output stays\n"
                       " * there (%s.inputs[i].offset_bytes).\n",
                       ul_emit_run_model(emitter));
    ul_text_printf(
        text,
        " * Allocates nothing; a context is used by one thread at a time, any number of contexts\n"
        " * may run on arenas of their own. */\n"
        "int %s_run(struct ul_context *context, %sconst void *const *inputs,\n"
        "    void *const *outputs, struct ul_failure *failure);\n\n%s%s",
        ul_emit_root_prefix(emitter), ul_emit_sizes_parameter(emitter),
        ul_emit_set_up_text(emitter), ul_emit_training_text(emitter));
}

static void put_model_h(struct ul_emitter *emitter)
{
    bool is_program = (emitter->part & UL_EMIT_PROGRAM) != 0;
    ul_emit_header_begin(
        emitter, emitter->part == UL_EMIT_ROOT
                     ? "What runs in the library's buffer of device memory."
                     : "The model as a library: one buffer of device memory, three calls, C.");
    ul_text_put(emitter->text, "struct ul_context;\n\n");
    if (is_program)
        put_open(emitter);
    if ((emitter->part & UL_EMIT_ROOT) != 0)
        put_run_text(emitter);
    if (is_program)
        ul_text_printf(emitter->text,
                       "/* Gives back what was taken; the caller's arena and stream stay the "
                       "caller's. */\nvoid %s_close(struct ul_context *context);\n\n",
                       emitter->options->prefix);
    ul_emit_header_end(emitter);
}

/* ---- Makefile ---- */

static struct ul_emit_build build(const struct ul_emitter *emitter)
{
    return (struct ul_emit_build){
        .native = ul_arena_printf(emitter->arena, "%s.c", ul_emit_stem(emitter)),
        .own = "",
        .plain = "library.c",
        .assembly = ul_emit_has_weights_inside(emitter) ? "weights.S" : "",
        .devices = ul_arena_printf(emitter->arena, "kernels.cu%s", ul_emit_sources(emitter, ".cu")),
        .flags = "",
        .cflags = "",
        .libraries = UL_EMIT_CUDA_LIBRARIES,
        .behind_archive = UL_EMIT_CUDA_RUNTIME,
        .behind_archive_cmake = " CUDA::cudart_static -lstdc++",
        .archive_package = "CUDAToolkit"};
}

static void put_variables(struct ul_emitter *emitter)
{
    ul_text_printf(
        emitter->text,
        "# " UL_EMIT_SPDX "\n# Builds the %s; `make NVCC=/opt/cuda/bin/nvcc CUDA_ARCH=sm_90` "
        "chooses a compiler\n"
        "# and devices: sm_NN is machine code, compute_NN is PTX, which newer devices compile,\n"
        "# native is this machine's device.\n"
        "NVCC = %s\nNVCCFLAGS = %s\n" UL_EMIT_CUDA_ARCH "WARNINGS = -Xcompiler=-Wall,-Wextra\n"
        "GENERATE = $(if $(filter native,$(CUDA_ARCH)),-arch=native,$(foreach arch,$(CUDA_ARCH),"
        "-gencode arch=compute_$(lastword $(subst _, ,$(arch))),code=$(arch)))\n"
        "DEVICE = $(patsubst %%.cu,%%.o,$(sort $(wildcard *.cu)))\n"
        "HEADERS = $(wildcard *.h *.cuh)\n\n",
        emitter->options->is_library_alone ? "library" : "program", emitter->options->cc,
        emitter->options->cflags);
}

static void put_program_rules(struct ul_emitter *emitter)
{
    ul_text_printf(
        emitter->text,
        "RUNTIME = $(patsubst %%.c,%%.o,$(sort $(wildcard ul_*.c)))\n\n"
        "program: model.o main.o $(DEVICE) $(RUNTIME) weights.bin\n"
        "\t$(NVCC) $(NVCCFLAGS) -o $@.tmp model.o main.o $(DEVICE) $(RUNTIME) -ldl -lm\n"
        "%s\tmv $@.tmp $@\n\n"
        "%%.o: %%.cu $(HEADERS)\n"
        "\t$(NVCC) $(NVCCFLAGS) -std=c++17 $(WARNINGS) --threads=0 $(GENERATE) -c $< -o $@\n\n"
        "%%.o: %%.c $(HEADERS)\n"
        "\t$(NVCC) $(NVCCFLAGS) -Xcompiler=-std=c99 $(WARNINGS) -c $< -o $@\n\n",
        emitter->options->weights_beside ? "\tcp weights.bin $@.weights\n"
                                         : "\ttruncate -s %4096 $@.tmp || true\n"
                                           "\tcat weights.bin >> $@.tmp\n");
}

/* `make lib`, from one set of objects, which are position-independent. */
static void put_library_rules(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix, *stem = ul_emit_stem(emitter);
    ul_text_printf(
        emitter->text,
        "# The library: what %s.h declares is all that can be seen of it, and its weights are in "
        "it.\n"
        "LIBRARY = $(patsubst %%.o,%%.pic.o,%s.o library.o $(DEVICE)%s)\nSONAME = lib%s.so\n"
        "PIC = -Xcompiler=-fPIC,-fvisibility=hidden\n\n"
        "lib: lib%s.a $(SONAME)\n\n"
        "lib%s.a: $(LIBRARY)\n\trm -f $@\n\t$(AR) rcs $@ $(LIBRARY)\n\n"
        "$(SONAME): $(LIBRARY)\n"
        "\t$(NVCC) $(NVCCFLAGS) -shared -Xlinker=-Bsymbolic,-soname,$(SONAME) -o $@ $(LIBRARY) "
        "-ldl "
        "-lm\n\n"
        "%%.pic.o: %%.cu $(HEADERS)\n"
        "\t$(NVCC) $(NVCCFLAGS) -std=c++17 $(WARNINGS) --threads=0 $(GENERATE) $(PIC) -c $< -o "
        "$@\n\n"
        "%%.pic.o: %%.c $(HEADERS)\n"
        "\t$(NVCC) $(NVCCFLAGS) -Xcompiler=-std=c99 $(WARNINGS) $(PIC) -c $< -o $@\n\n"
        "%%.pic.o: %%.S weights.bin\n\t$(CC) -c $< -o $@\n\n",
        stem, stem, ul_emit_has_weights_inside(emitter) ? " weights.o" : "", prefix, prefix,
        prefix);
}

static void put_makefile(struct ul_emitter *emitter)
{
    bool alone = emitter->options->is_library_alone;
    put_variables(emitter);
    if (!alone)
        put_program_rules(emitter);
    put_library_rules(emitter);
    ul_emit_last_rules(emitter);
}

/* ---- Hooks of the emitter ---- */

static void put_entry(struct ul_emitter *emitter, const char *model, const char *entry,
                      const char *to)
{
    ul_text_printf(emitter->text, "ul_device_run(&%s, context, %s, from, %s, failure)", model,
                   entry, to);
}

static void put_runner(struct ul_emitter *emitter)
{
    ul_text_put(emitter->text, "    .device = &device,\n");
}

enum ul_status ul_emit_cuda(struct ul_arena *arena, const struct ul_program *program,
                            const struct ul_plan *plan, const struct ul_emit_options *options,
                            const char *directory, struct ul_diag *diag)
{
    static const struct ul_emit_file files[] = {
        {.name = "kernels.cu", .put = put_kernels_cu},
        {.name = ".c", .put = put_model_c, .is_suffix = true},
        {.name = ".h", .put = put_model_h, .is_suffix = true, .is_header = true},
        {.name = "main.c", .put = ul_emit_main_c, .is_program = true},
        {.name = "Makefile", .put = put_makefile},
        {.name = NULL}};
    static const struct ul_emit_language language = {.files = files,
                                                     .put_mark = put_mark,
                                                     .put_step = put_step,
                                                     .put_joined = put_joined,
                                                     .put_transfer = put_transfer,
                                                     .put_wait = put_wait,
                                                     .put_join = put_join,
                                                     .put_branch = put_branch,
                                                     .put_buffer = put_buffer,
                                                     .put_libraries = ul_emit_cuda_put_libraries,
                                                     .put_runner = put_runner,
                                                     .handle = "struct ul_context *context",
                                                     .put_entry = put_entry,
                                                     .build = build};
    return ul_emit_folder(arena, &language, program, plan, options, directory, diag);
}
