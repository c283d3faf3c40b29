/* A planned program as a folder of C: model.c (kernels, calls at planned addresses, tables),
 * model.h, main.c, the runtime's files, weights.bin and a Makefile.
 *
 * The calls follow the plan's positions; regions of the problem become loops and branches around
 * them. Addresses are constants, so the text shows where everything lies. */
#include "codegen/codegen.h"

#include "codegen/emit_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <string.h>

static uint32_t index_in(const ul_value_id *values, uint32_t count, ul_value_id value)
{
    for (uint32_t i = 0; i < count; i++) {
        if (values[i] == value)
            return i;
    }
    return UL_NONE;
}

static struct ul_emit_place callers_place(const struct ul_emitter *emitter, ul_value_id base)
{
    const struct ul_block *block = &emitter->program->graph->blocks[0];
    uint32_t input = index_in(block->inputs, block->input_count, base);
    if (input != UL_NONE)
        return (struct ul_emit_place){.space = UL_EMIT_INPUT, .index = input};
    uint32_t output = index_in(block->outputs, block->output_count, base);
    UL_ASSERT(output != UL_NONE);
    return (struct ul_emit_place){.space = UL_EMIT_OUTPUT, .index = output};
}

struct ul_emit_place ul_emit_place(const struct ul_emitter *emitter, ul_value_id base,
                                   uint32_t position)
{
    uint32_t value = emitter->program->plan_values[base];
    UL_ASSERT(value != UL_PLAN_NONE);
    const struct ul_plan *plan = emitter->plan;
    const struct ul_plan_range *range = ul_plan_find_range(plan, value, position);
    if (range == NULL) { /* a program without steps has no positions to live at */
        UL_ASSERT(plan->position_count == 0 &&
                  plan->value_ranges[value] < plan->value_ranges[value + 1]);
        range = &plan->ranges[plan->value_ranges[value]];
    }
    if (range->space == UL_PROGRAM_CALLER)
        return callers_place(emitter, base);
    return (struct ul_emit_place){.space =
                                      range->space == UL_PROGRAM_ROM ? UL_EMIT_ROM : UL_EMIT_ARENA,
                                  .offset_bytes = range->offset_bytes};
}

const char *ul_emit_space_name(enum ul_emit_space space)
{
    static const char *const names[] = {[UL_EMIT_ARENA] = "UL_SPACE_ARENA",
                                        [UL_EMIT_INPUT] = "UL_SPACE_INPUT",
                                        [UL_EMIT_OUTPUT] = "UL_SPACE_OUTPUT",
                                        [UL_EMIT_ROM] = "UL_SPACE_ROM"};
    return names[space];
}

void ul_emit_string(struct ul_text *text, const char *string)
{
    ul_text_put(text, "\"");
    for (const unsigned char *at = (const unsigned char *)string; *at != '\0'; at++) {
        if (isprint(*at) && *at != '"' && *at != '\\' && *at != '?')
            ul_text_printf(text, "%c", *at);
        else
            ul_text_printf(text, "\\%03o", *at);
    }
    ul_text_put(text, "\"");
}

/* An untrusted name inside a comment: nothing in it ends the comment or the line. */
static void put_comment_text(struct ul_text *text, const char *name)
{
    enum { MOST_COLUMNS = 100 };
    for (int i = 0; name[i] != '\0' && i < MOST_COLUMNS; i++) {
        bool plain = isprint((unsigned char)name[i]) && strchr("*?\\", name[i]) == NULL;
        ul_text_printf(text, "%c", plain ? name[i] : '_');
    }
}

/* ---- Calls ---- */

void ul_emit_address(struct ul_emitter *emitter, const struct ul_program_address *address,
                     uint32_t position)
{
    struct ul_emit_place place = ul_emit_place(emitter, address->base, position);
    if (place.space == UL_EMIT_ARENA)
        ul_text_put(emitter->text, "a");
    else if (place.space == UL_EMIT_ROM)
        ul_text_printf(emitter->text, "%s_rom", emitter->options->prefix);
    else if (place.space == UL_EMIT_INPUT)
        ul_text_printf(emitter->text, "UL_IN(unsigned char, run, %u, 0)", place.index);
    else
        ul_text_printf(emitter->text, "UL_OUT(unsigned char, run, %u, 0)", place.index);
    ul_text_printf(emitter->text, " + %" PRIu64,
                   place.offset_bytes + (uint64_t)address->offset_bytes);
    if (address->loop != UL_PLAN_NONE)
        ul_text_printf(emitter->text, " + r%u * %" PRId64, address->loop, address->stride_bytes);
}

static void put_kernel_call(struct ul_emitter *emitter, const struct ul_program_step *step,
                            uint32_t position)
{
    const struct ul_program_kernel *kernel = &emitter->program->kernels[step->kernel];
    ul_text_printf(emitter->text, "%s(", kernel->name);
    for (uint32_t i = 0; i < step->arg_count; i++) {
        ul_text_put(emitter->text, "(void *)(");
        ul_emit_address(emitter, &step->args[i], position);
        ul_text_put(emitter->text, "), ");
    }
    if (kernel->scratch_bytes > 0)
        ul_text_printf(emitter->text, "a + %" PRIu64 ", ", emitter->scratch_offsets[position]);
    ul_text_put(emitter->text, "run);\n");
}

static void put_step(struct ul_emitter *emitter, uint32_t position, uint32_t indent)
{
    const struct ul_program_step *step =
        &emitter->program->steps[emitter->plan->positions[position].step];
    struct ul_text *text = emitter->text;
    ul_text_printf(text, "%*sUL_STEP(run, %u); /* %s ", (int)(4 * indent), "", position, step->op);
    put_comment_text(text, emitter->program->graph->nodes[step->node].name);
    ul_text_printf(text, " */\n%*s", (int)(4 * indent), "");
    switch (step->kind) {
    case UL_STEP_KERNEL:
        put_kernel_call(emitter, step, position);
        break;
    case UL_STEP_CALL:
        ul_emit_call(emitter, step, position, indent);
        break;
    case UL_STEP_COPY:
        ul_text_put(text, "memcpy(");
        ul_emit_address(emitter, &step->args[1], position);
        ul_text_put(text, ", ");
        ul_emit_address(emitter, &step->args[0], position);
        ul_text_printf(text, ", %" PRIu64 ");\n", step->copy_bytes);
        break;
    case UL_STEP_COUNTER:
        ul_text_put(text, "*UL_AT(int64_t, ");
        ul_emit_address(emitter, &step->args[0], position);
        ul_text_printf(text, ", 0) = r%u;\n", step->region);
        break;
    case UL_STEP_TEST:
        if (emitter->program->regions[step->region].kind == UL_PLAN_LOOP) {
            ul_text_put(text, "if (!*UL_AT(uint8_t, ");
            ul_emit_address(emitter, &step->args[0], position);
            ul_text_printf(text, ", 0))\n%*sbreak;\n", (int)(4 * indent + 4), "");
        } else {
            ul_text_put(text, "/* the branch's condition */\n");
        }
        break;
    }
}

static uint32_t depth_of(const struct ul_program *program, uint32_t region)
{
    uint32_t depth = 0;
    for (; program->regions[region].parent != UL_PLAN_NONE;
         region = program->regions[region].parent)
        depth += program->regions[region].kind != UL_PLAN_SEQUENCE;
    return depth;
}

static bool is_inside(const struct ul_program *program, uint32_t region, uint32_t ancestor)
{
    for (uint32_t r = region; r != UL_PLAN_NONE; r = program->regions[r].parent) {
        if (r == ancestor)
            return true;
    }
    return false;
}

static void open_region(struct ul_emitter *emitter, uint32_t region, uint32_t position)
{
    const struct ul_program_region *info = &emitter->program->regions[region];
    int indent = (int)(4 * depth_of(emitter->program, region) + 4);
    struct ul_text *text = emitter->text;
    if (info->kind == UL_PLAN_LOOP) {
        ul_text_printf(text, "%*sfor (int64_t r%u = 0; r%u < %" PRId64 "; r%u++) {\n", indent, "",
                       region, region, info->rounds, region);
    } else if (info->kind == UL_PLAN_BRANCH) {
        ul_text_printf(text, "%*sif (%s*UL_AT(uint8_t, ", indent, "", info->negated ? "!" : "");
        ul_emit_address(emitter, &info->condition, position);
        ul_text_put(text, ", 0)) {\n");
    }
}

static void enter_region(struct ul_emitter *emitter, uint32_t from, uint32_t to, uint32_t position)
{
    if (from == to)
        return;
    enter_region(emitter, from, emitter->program->regions[to].parent, position);
    open_region(emitter, to, position);
}

/* Closes and opens what lies between two positions' regions. */
static uint32_t change_region(struct ul_emitter *emitter, uint32_t from, uint32_t to,
                              uint32_t position)
{
    const struct ul_program *program = emitter->program;
    while (!is_inside(program, to, from)) {
        if (program->regions[from].kind != UL_PLAN_SEQUENCE)
            ul_text_printf(emitter->text, "%*s}\n", (int)(4 * depth_of(program, from) + 4), "");
        from = program->regions[from].parent;
    }
    enter_region(emitter, from, to, position);
    return to;
}

static void put_main(struct ul_emitter *emitter)
{
    const struct ul_program *program = emitter->program;
    uint32_t region = 0;
    ul_text_put(emitter->text, "static void run_main(unsigned char *a, struct ul_run *run)\n{\n"
                               "    (void)a;\n    (void)run;\n");
    for (uint32_t p = 0; p < emitter->plan->position_count; p++) {
        const struct ul_program_step *step = &program->steps[emitter->plan->positions[p].step];
        region = change_region(emitter, region, step->region, p);
        bool nested = program->regions[region].kind != UL_PLAN_SEQUENCE;
        put_step(emitter, p, depth_of(program, region) + (nested ? 2 : 1));
    }
    change_region(emitter, region, 0, emitter->plan->position_count);
    ul_text_put(emitter->text, "}\n\n");
}

static void put_kernels(struct ul_emitter *emitter)
{
    for (uint32_t i = 0; i < emitter->program->kernel_count; i++)
        ul_text_printf(emitter->text, "UL_KERNEL void %s(%s\n", emitter->program->kernels[i].name,
                       emitter->program->kernels[i].text);
}

static void put_model_c(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    const char *prefix = emitter->options->prefix;
    ul_text_printf(text,
                   "/* Generated by ullage " UL_VERSION " from a model with SHA-256\n * %s.\n"
                   " * One buffer of exactly %" PRIu64 " bytes holds everything; `a` is its start."
                   " */\n#include \"model.h\"\n\n#include \"ul_contract.h\"\n"
                   "#include \"ul_kernel.h\"\n#include \"ul_run.h\"\n\n"
                   "#if defined(__GNUC__)\n#define UL_KERNEL static __attribute__((noinline))\n"
                   "#else\n#define UL_KERNEL static\n#endif\n"
                   "#if defined(__clang__)\n#pragma clang diagnostic ignored \"-Wpass-failed\"\n"
                   "#endif\n\n",
                   emitter->options->model_sha256, emitter->plan->reserved_bytes[0]);
    if (emitter->program->options.weights_rom)
        ul_text_printf(text, "extern const unsigned char %s_rom[]; /* rom.S */\n\n", prefix);
    put_kernels(emitter);
    ul_emit_calls(emitter);
    put_main(emitter);
    ul_emit_tables(emitter);
    ul_text_printf(text,
                   "\nint %s_init(void *arena, size_t bytes, const struct ul_weights_source "
                   "*weights,\n    struct ul_failure *failure)\n{\n"
                   "    return (int)ul_run_init(&%s_model, arena, bytes, weights, failure);\n}\n\n"
                   "int %s_run(void *arena, const void *const *from, void *const *to,\n"
                   "    struct ul_failure *failure)\n{\n"
                   "    return (int)ul_run_once(&%s_model, arena, from, to, NULL, NULL, "
                   "failure);\n}\n\n"
                   "void %s_done(void *arena)\n{\n    ul_run_done(&%s_model, arena);\n}\n",
                   prefix, prefix, prefix, prefix, prefix, prefix);
}

/* ---- model.h, main.c, Makefile ---- */

static const char *upper(struct ul_arena *arena, const char *prefix)
{
    char *copy = ul_arena_copy_string(arena, prefix);
    for (char *at = copy; *at != '\0'; at++)
        *at = (char)toupper((unsigned char)*at);
    return copy;
}

static void put_model_h(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    const char *big = upper(emitter->arena, prefix);
    struct ul_text *text = emitter->text;
    const struct ul_block *block = &emitter->program->graph->blocks[0];
    ul_text_printf(text, "/* The model as a library: one buffer, two calls, no other memory.\n"
                         " * Inputs and outputs, in order:\n");
    for (uint32_t i = 0; i < block->input_count + block->output_count; i++) {
        bool input = i < block->input_count;
        ul_value_id value = input ? block->inputs[i] : block->outputs[i - block->input_count];
        const struct ul_value *info = &emitter->program->graph->values[value];
        ul_text_printf(text, " *   %s %u: ", input ? "input" : "output",
                       input ? i : i - block->input_count);
        put_comment_text(text, info->name);
        ul_text_put(text, " ");
        ul_type_print(text, &info->type);
        ul_text_put(text, "\n");
    }
    ul_text_printf(text,
                   " */\n#ifndef ULLAGE_%s_H\n#define ULLAGE_%s_H\n\n#include \"ul_model.h\"\n\n"
                   "#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n"
                   "#define %s_ARENA_BYTES UINT64_C(%" PRIu64 ")\n"
                   "#define %s_ARENA_ALIGN %" PRIu64 "\n"
                   "#define %s_INPUT_COUNT %u\n#define %s_OUTPUT_COUNT %u\n\n",
                   big, big, big, emitter->plan->reserved_bytes[0], big,
                   emitter->plan->alignment_bytes, big, block->input_count, big,
                   block->output_count);
    ul_text_printf(text,
                   "extern const struct ul_model %s_model;\n\n"
                   "/* Makes `arena` (at least %s_ARENA_BYTES, aligned to %s_ARENA_ALIGN) ready:\n"
                   " * reads the weights into it%s. Returns an enum ul_result;\n"
                   " * `failure`, which may be NULL, carries needed and available bytes. */\n"
                   "int %s_init(void *arena, size_t bytes, const struct ul_weights_source "
                   "*weights,\n    struct ul_failure *failure);\n\n",
                   prefix, big, big,
                   emitter->program->call_count > 0
                       ? ",\n * the library's own state into memory that the library allocates"
                       : "",
                   prefix);
    ul_text_printf(
        text,
        "/* One run. A NULL input is already in its place in the arena, a NULL output "
        "stays there\n * (%s_model.inputs[i].offset_bytes). %s;\n"
        " * thread-safe for each arena. */\n"
        "int %s_run(void *arena, const void *const *inputs, void *const *outputs,\n"
        "    struct ul_failure *failure);\n\n"
        "/* Gives back what a numerical library took for an arena that was made ready; the "
        "arena's\n * own memory stays the caller's. */\n"
        "void %s_done(void *arena);\n\n"
        "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
        prefix,
        emitter->program->call_count > 0
            ? "The library allocates its lists of arguments and gives\n * them back, a few blocks "
              "of at most 1 KiB; nothing else is allocated"
            : "Allocates nothing",
        prefix, prefix);
}

/* Weights as read-only data, without passing through C text. */
static void put_rom(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    ul_text_printf(emitter->text,
                   "/* The weights as read-only data; the name has an underscore in front where "
                   "the platform\n   wants one. */\n#if defined(__APPLE__)\n"
                   "#define NAME _%s_rom\n.const\n#else\n#define NAME %s_rom\n"
                   ".section .rodata\n#endif\n.balign 4096\n.globl NAME\nNAME:\n"
                   ".incbin \"weights.bin\"\n#if defined(__linux__) && defined(__ELF__)\n"
                   ".section .note.GNU-stack,\"\",%%progbits\n#endif\n",
                   prefix, prefix);
}

/* Of the runtime's files, those that are compiled for the processor as model.c is. */
static const char *native_objects(const struct ul_emitter *emitter)
{
    bool winograd = ul_program_has_winograd(emitter->program);
    return winograd ? " ul_posts.o ul_winograd.o" : ul_emit_has_tails(emitter) ? " ul_posts.o" : "";
}

static void put_makefile(struct ul_emitter *emitter)
{
    const struct ul_emit_options *options = emitter->options;
    bool rom = emitter->program->options.weights_rom;
    bool beside = options->weights_beside;
    const char *natives = native_objects(emitter);
    const char *objects = ul_arena_printf(emitter->arena, "%s%s", rom ? " rom.o" : "", natives);
    bool own = natives[0] != '\0';
    bool calls = emitter->program->call_count > 0;
    ul_text_printf(
        emitter->text,
        "# Builds the program; `make CC=clang MARCH=` chooses a compiler and a plain processor.\n"
        "CC = %s\nCFLAGS = %s\nMARCH = %s%s\nOPENMP =%s\n"
        "# Where gcc tunes for some processors it rounds products in short sums, but not in long "
        "ones.\n"
        "FUSE := $(shell $(CC) --param=avoid-fma-max-bits=0 -Werror -E -x c /dev/null >/dev/null "
        "2>&1 && "
        "echo --param=avoid-fma-max-bits=0)\n"
        "KERNEL_FLAGS = -std=c99 -fno-strict-aliasing -ffp-contract=fast -fno-math-errno "
        "-fno-trapping-math $(FUSE)\nLIBS =%s%s -lm\n"
        "RUNTIME = %s$(patsubst %%.c,%%.o,$(sort $(wildcard ul_*.c)))%s\n\n"
        "program: model.o main.o%s $(RUNTIME) weights.bin\n"
        "\t$(CC) $(CFLAGS) $(OPENMP) -o $@.tmp model.o main.o%s $(RUNTIME) $(LIBS)\n"
        "%s\tmv $@.tmp $@\n\n%s"
        "model.o: model.c model.h $(wildcard ul_*.h)\n"
        "\t$(CC) $(CFLAGS) $(MARCH) $(KERNEL_FLAGS) $(OPENMP) -c model.c -o $@\n\n"
        "main.o: main.c model.h $(wildcard ul_*.h)\n"
        "\t$(CC) $(CFLAGS) -std=c99 -c main.c -o $@\n\n"
        "%sul_%%.o: ul_%%.c $(wildcard ul_*.h)\n"
        "\t$(CC)%s $(CFLAGS) -std=c99 -c $< -o $@\n\n"
        "clean:\n\trm -f *.o program program.tmp\n\n.PHONY: clean\n",
        options->cc, options->cflags,
        options->march == NULL ? "" : "-march=", options->march == NULL ? "" : options->march,
        ul_program_threads(&emitter->program->options) > 1 ? " -fopenmp" : "",
        calls ? options->onednn_libs : "", calls ? " -ldnnl -fopenmp" : "",
        own ? ul_arena_printf(emitter->arena, "$(filter-out%s,", natives) : "", own ? ")" : "",
        objects, objects,
        rom      ? ""
        : beside ? "\tcp weights.bin $@.weights\n"
                 : "\ttruncate -s %4096 $@.tmp || true\n\tcat weights.bin >> $@.tmp\n",
        rom ? "rom.o: rom.S weights.bin\n\t$(CC) -c rom.S -o $@\n\n" : "",
        own ? ul_arena_printf(emitter->arena,
                              "%s: %%.o: %%.c $(wildcard ul_*.h)\n\t$(CC) $(CFLAGS) $(MARCH) "
                              "$(KERNEL_FLAGS) $(OPENMP) -c $< -o $@\n\n",
                              natives + 1)
            : "",
        calls ? options->onednn_cflags : "");
}

static enum ul_status write_text(struct ul_emitter *emitter, const char *directory,
                                 const char *name, void (*put)(struct ul_emitter *))
{
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    emitter->text = &text;
    put(emitter);
    const char *path = ul_arena_printf(emitter->arena, "%s/%s", directory, name);
    return ul_file_write(path, text.data, text.length, emitter->diag);
}

static void put_main_c(struct ul_emitter *emitter)
{
    ul_text_printf(emitter->text,
                   "#include \"model.h\"\n#include \"ul_program.h\"\n\n"
                   "int main(int argc, char **argv)\n{\n"
                   "    return ul_program_main(&%s_model, argc, argv);\n}\n",
                   emitter->options->prefix);
}

/* Scratch of each position, found in the plan's ranges. */
static void find_scratch(struct ul_emitter *emitter)
{
    const struct ul_plan *plan = emitter->plan;
    emitter->scratch_offsets = UL_NEW_ARRAY(emitter->arena, uint64_t, plan->position_count + 1);
    for (uint32_t i = 0; i < plan->range_count; i++) {
        if (plan->ranges[i].value == UL_PLAN_NONE)
            emitter->scratch_offsets[plan->ranges[i].begin] = plan->ranges[i].offset_bytes;
    }
}

enum ul_status ul_emit_c(struct ul_arena *arena, const struct ul_program *program,
                         const struct ul_plan *plan, const struct ul_emit_options *options,
                         const char *directory, struct ul_diag *diag)
{
    struct ul_emitter emitter = {
        .arena = arena, .program = program, .plan = plan, .options = options, .diag = diag};
    find_scratch(&emitter);
    UL_TRY(ul_emit_weights(&emitter, directory));
    UL_TRY(write_text(&emitter, directory, "model.c", put_model_c));
    UL_TRY(write_text(&emitter, directory, "model.h", put_model_h));
    UL_TRY(write_text(&emitter, directory, "main.c", put_main_c));
    UL_TRY(write_text(&emitter, directory, "Makefile", put_makefile));
    if (program->options.weights_rom)
        UL_TRY(write_text(&emitter, directory, "rom.S", put_rom));
    return ul_emit_runtime(&emitter, directory);
}
