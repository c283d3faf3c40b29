/* SPDX-License-Identifier: Apache-2.0 */
/* A planned program as a folder of C: model.c (kernels, calls at planned addresses, tables),
 * model.h, main.c, the runtime's files, weights.bin and a Makefile.
 *
 * The calls follow the plan's positions; regions of the problem become loops and branches around
 * them. Addresses are constants, so the text shows where everything is. */

#include "codegen/c/emit_c.h"
#include "codegen/c/c.h"
#include "codegen/program/formula.h"

#include <inttypes.h>
#include <string.h>

/* ---- Calls ---- */

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
    if (kernel->printed.scratch_bytes > 0) {
        ul_emit_scratch(emitter, position);
        ul_text_put(emitter->text, ", ");
    }
    ul_text_put(emitter->text, "run);\n");
}

static void put_mark(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position)
{
    (void)step;
    ul_text_printf(emitter->text, "UL_STEP(run, %u);", position);
}

static void put_branch(struct ul_emitter *emitter, uint32_t region, uint32_t position)
{
    const struct ul_program_region *info = &emitter->program->regions[region];
    ul_text_printf(emitter->text, "if (%s*UL_AT(uint8_t, ", info->negated ? "!" : "");
    ul_emit_address(emitter, &info->condition, position);
    ul_text_put(emitter->text, ", 0)) {\n");
}

static void put_buffer(struct ul_emitter *emitter, struct ul_emit_place place)
{
    ul_text_printf(emitter->text, "%s(unsigned char, run, %u, 0)",
                   place.space == UL_EMIT_INPUT ? "UL_IN" : "UL_OUT", place.index);
}

static void put_step(struct ul_emitter *emitter, const struct ul_program_step *step,
                     uint32_t position, uint32_t indent)
{
    struct ul_text *text = emitter->text;
    switch (step->kind) {
    case UL_STEP_KERNEL:
        put_kernel_call(emitter, step, position);
        break;
    case UL_STEP_CALL:
        ul_emit_c_put_call(emitter, step, position, indent);
        break;
    case UL_STEP_COPY:
        ul_text_put(text, "memcpy(");
        ul_emit_address(emitter, &step->args[1], position);
        ul_text_put(text, ", ");
        ul_emit_address(emitter, &step->args[0], position);
        ul_text_put(text, step->copy != NULL ? ", (size_t)" : ", ");
        ul_formula_put(text, step->copy, (int64_t)step->copy_bytes);
        ul_text_put(text, ");\n");
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

static void put_transfer(struct ul_emitter *emitter, uint32_t position)
{
    const struct ul_emit_transfer *transfer = &emitter->transfers[position];
    bool saves = !emitter->plan->positions[position].loads;
    ul_text_printf(emitter->text,
                   "    UL_STEP(run, %u);\n    ul_offload_begin(run, UL_OFFLOAD_%s, %u, %" PRIu64
                   ", a + %" PRIu64 ", %" PRIu64 ");\n",
                   position, saves ? "SAVE" : "LOAD", transfer->number,
                   transfer->offload_offset_bytes, transfer->arena_offset_bytes,
                   transfer->size_bytes);
}

static void put_wait(struct ul_emitter *emitter, uint32_t position, uint32_t number)
{
    if (position != UL_PLAN_NONE)
        ul_text_printf(emitter->text, "    UL_STEP(run, %u);\n", position);
    ul_text_printf(emitter->text, "    ul_offload_wait(run, %u);\n", number);
}

/* Every step is complete where it begins. */
static void put_join(struct ul_emitter *emitter, uint32_t position, bool joins)
{
    UL_ASSERT(!joins);
    ul_text_printf(emitter->text, "    UL_STEP(run, %u);\n", position);
}

/* A function for each entry point that has steps. */
static void put_entries(struct ul_emitter *emitter)
{
    for (uint32_t e = 0; e < emitter->program->entry_count; e++) {
        const struct ul_program_entry *entry = &emitter->program->entries[e];
        uint32_t begin, end;
        ul_emit_entry_span(emitter, e, &begin, &end);
        if (begin == end || strcmp(entry->steps, entry->name) != 0)
            continue;
        ul_text_printf(emitter->text,
                       "static void %s_steps(unsigned char *a, struct ul_run *run)\n{\n"
                       "    (void)a;\n    (void)run;\n",
                       entry->name);
        ul_emit_sizes_locals(emitter);
        for (uint32_t b = 1; b < emitter->plan->bank_count; b++)
            if (emitter->plan->banks[b].size_bytes > 0)
                ul_text_printf(emitter->text,
                               "    unsigned char *const a%u = ul_bank_of(&%s, a, %u);\n"
                               "    (void)a%u;\n",
                               b, ul_emit_root_model(emitter), b, b);
        ul_emit_steps(emitter, e);
        ul_text_put(emitter->text, "}\n\n");
    }
}

static void put_kernels(struct ul_emitter *emitter)
{
    for (uint32_t i = 0; i < emitter->program->kernel_count; i++)
        if (emitter->runs_kernel[i])
            ul_text_printf(emitter->text, "UL_KERNEL void %s(%s\n",
                           emitter->program->kernels[i].name, emitter->program->kernels[i].text);
}

/* The additional argument of <prefix>_init where values are offloaded. */
static const char *offload_argument(const struct ul_emitter *emitter)
{
    return emitter->transfer_count > 0 ? "const struct ul_offload *offload,\n    " : "";
}

/* The memories as parameters: "void *dtcm_bank, size_t dtcm_bytes," and so on. Nothing
 * else that the library can see ends like these, so any name does. */
static const char *bank_parameters(const struct ul_emitter *emitter)
{
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    for (uint32_t b = 0; b < emitter->plan->bank_count; b++) {
        const char *name = emitter->program->options.banks[b].name;
        ul_text_printf(&text, "void *%s_bank, size_t %s_bytes,\n    ", name, name);
    }
    return text.data;
}

/* How the program begins in several memories, and the memory of an offset. */
static void put_bank_functions(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    const char *prefix = emitter->options->prefix, *model = ul_emit_root_model(emitter);
    const struct ul_plan_bank *banks = emitter->program->options.banks;
    ul_text_printf(text,
                   "\nint %s_init(%sconst struct ul_weights_source *weights, "
                   "struct ul_failure *failure)\n{\n    void *const banks[] = {",
                   prefix, bank_parameters(emitter));
    for (uint32_t b = 0; b < emitter->plan->bank_count; b++)
        ul_text_printf(text, "%s%s_bank", b == 0 ? "" : ", ", banks[b].name);
    ul_text_put(text, "};\n    const size_t sizes[] = {");
    for (uint32_t b = 0; b < emitter->plan->bank_count; b++)
        ul_text_printf(text, "%s%s_bytes", b == 0 ? "" : ", ", banks[b].name);
    ul_text_printf(text,
                   "};\n    return (int)ul_run_init_banks(&%s, banks, sizes, weights, "
                   "failure);\n}\n\n"
                   "void *%s_at(const void *%s_bank, uint64_t offset_bytes)\n{\n"
                   "    return ul_at(&%s, (const unsigned char *)%s_bank, offset_bytes);\n}\n\n",
                   model, prefix, banks[0].name, model, banks[0].name);
}

/* The functions that model.h declares. */
static void put_functions(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    const char *prefix = emitter->options->prefix, *model = ul_emit_root_model(emitter);
    if (emitter->plan->bank_count > 0)
        put_bank_functions(emitter);
    else
        ul_text_printf(text,
                       "\nint %s_init(void *arena, size_t bytes, %sconst struct ul_weights_source "
                       "*weights,\n    struct ul_failure *failure)\n{\n"
                       "    return (int)ul_run_init_with(&%s, arena, bytes, 0, %s, weights, "
                       "failure);\n}\n\n",
                       prefix, offload_argument(emitter), model,
                       emitter->transfer_count > 0 ? "offload" : "NULL");
    ul_emit_each_model(emitter, ul_emit_root_functions);
    ul_text_printf(text, "void %s_done(void *arena)\n{\n    ul_run_done(&%s, arena);\n}\n", prefix,
                   model);
    ul_emit_training_functions(emitter);
}

static void put_body(struct ul_emitter *emitter)
{
    if (emitter->program->options.weights_rom)
        ul_text_printf(emitter->text, "extern const unsigned char %s_rom[]; /* rom.S */\n\n",
                       emitter->options->prefix);
    if (ul_emit_is_rom_far(emitter))
        ul_text_printf(emitter->text, "extern const unsigned char *const %s_rom_begin;\n\n",
                       emitter->options->prefix);
    put_kernels(emitter);
    ul_emit_calls(emitter);
    put_entries(emitter);
    ul_emit_tables(emitter);
    put_functions(emitter);
}

static void put_model_c(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    const char *body = ul_emit_body(emitter, put_body);
    ul_text_printf(text,
                   "/* Generated by ullage " UL_VERSION " from a model with SHA-256\n * %s.\n"
                   " * One buffer of exactly %" PRIu64 " bytes holds everything; `a` is its start."
                   "\n * " UL_EMIT_SPDX " */\n",
                   emitter->options->model_sha256, emitter->plan->reserved_bytes[0]);
    ul_emit_includes(emitter, body, false);
    ul_text_printf(text, "\n#include \"%s.h\"\n\n", ul_emit_stem(emitter));
    ul_text_put(text, body);
}

/* ---- model.h, main.c, Makefile ---- */

/* The stack that a microcontroller has to keep free for the calls, besides the arena. */
static void put_stack(struct ul_emitter *emitter, const char *big)
{
    uint64_t library_bytes;
    uint64_t stack_bytes = ul_program_stack_bytes(emitter->program, emitter->plan, &library_bytes);
    const char *prefix = emitter->options->prefix;
    bool has_roots = ul_emit_model_count(emitter) > 1;
    ul_text_printf(
        emitter->text,
        "/* %s_init%s%s%s and the rest take at most so much of the calling thread's stack, as "
        "gcc\n * compiles model.c with -Os, -O2 or -O3",
        prefix, has_roots ? ", each run" : ", ", has_roots ? "" : prefix, has_roots ? "" : "_run");
    if (library_bytes > 0)
        ul_text_printf(emitter->text, "; %" PRIu64 " of it are a guess of what libraries\n * take",
                       library_bytes);
    ul_text_printf(emitter->text,
                   ". What `read` of weights' source takes comes on top. */\n"
                   "#define %s_STACK_BYTES UINT64_C(%" PRIu64 ")\n\n",
                   big, stack_bytes);
}

static void put_bank_texts(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    const char *first = emitter->program->options.banks[0].name;
    ul_text_printf(
        emitter->text,
        "/* Makes these memories ready, each at least as large as its macro says and aligned to\n"
        " * %s_ARENA_ALIGN: notes where they are, and reads the weights into them. One of 0 bytes\n"
        " * may be NULL. `%s_bank` is what the other functions call the arena; the rest stays\n"
        " * its own until %s_done. Returns an enum ul_result; `failure`, which may be NULL,\n"
        " * carries needed and available bytes, and as `tensor` the number of the memory. */\n"
        "int %s_init(%sconst struct ul_weights_source *weights, struct ul_failure *failure);\n\n"
        "/* Where an offset of the arena lies, such as that of an input. */\n"
        "void *%s_at(const void *%s_bank, uint64_t offset_bytes);\n\n",
        ul_emit_upper(emitter->arena, prefix), first, prefix, prefix, bank_parameters(emitter),
        prefix, first);
}

/* How the program begins. */
static void put_begin(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    const char *big = ul_emit_upper(emitter->arena, prefix);
    struct ul_text *text = emitter->text;
    put_stack(emitter, big);
    if (emitter->transfer_count > 0)
        ul_text_printf(
            text,
            "/* What `offload` of %s_init has room for, beside the arena: values that do "
            "not fit there for\n * a while. Memory of the caller's, by "
            "ul_offload_memory of ul_offload.h, or storage behind two\n * functions of "
            "the caller's; it stays the arena's until %s_done. */\n"
            "#define %s_OFFLOAD_BYTES UINT64_C(%" PRIu64 ")\n\n",
            prefix, prefix, big, emitter->plan->reserved_bytes[UL_PROGRAM_OFFLOAD]);
    if (emitter->plan->bank_count > 0) {
        put_bank_texts(emitter);
        return;
    }
    ul_text_printf(text,
                   "/* Makes `arena` (at least %s_ARENA_BYTES, aligned to %s_ARENA_ALIGN) ready:\n"
                   " * reads the weights into it%s. Returns an enum ul_result;\n"
                   " * `failure`, which may be NULL, carries needed and available bytes. */\n"
                   "int %s_init(void *arena, size_t bytes, %sconst struct ul_weights_source "
                   "*weights,\n    struct ul_failure *failure);\n\n",
                   big, big,
                   ul_emit_library_number(emitter, NULL) > 0
                       ? ",\n * the library's own state into memory that the library allocates"
                       : "",
                   prefix, offload_argument(emitter));
}

/* How a root runs. */
static void put_run_text(struct ul_emitter *emitter)
{
    struct ul_text *text = emitter->text;
    ul_emit_sizes_struct(emitter);
    if (emitter->program->options.io_caller)
        ul_text_put(text,
                    "/* One run, which reads `inputs` and writes `outputs` in place; none may be "
                    "NULL.\n * ");
    else
        ul_text_printf(
            text,
            "/* One run. A NULL input is already in its place in the arena, a NULL output "
            "stays there\n * (%s.inputs[i].offset_bytes). ",
            ul_emit_run_model(emitter));
    ul_text_printf(
        text,
        "%s;\n"
        " * thread-safe for each arena. */\n"
        "int %s_run(void *arena, %sconst void *const *inputs, void *const *outputs,\n"
        "    struct ul_failure *failure);\n\n%s%s",
        ul_emit_library_number(emitter, NULL) > 0
            ? "The library allocates its lists of arguments and gives\n * them back, a few blocks "
              "of at most 1 KiB; nothing else is allocated"
            : "Allocates nothing",
        ul_emit_root_prefix(emitter), ul_emit_sizes_parameter(emitter),
        ul_emit_set_up_text(emitter), ul_emit_training_text(emitter));
}

static void put_model_h(struct ul_emitter *emitter)
{
    bool is_program = (emitter->part & UL_EMIT_PROGRAM) != 0;
    ul_emit_header_begin(emitter,
                         emitter->part == UL_EMIT_ROOT ? "What runs in the library's buffer."
                         : emitter->plan->bank_count > 0
                             ? "The model as a library: a buffer in each of several memories, two "
                               "calls, no other memory."
                             : "The model as a library: one buffer, two calls, no other memory.");
    if (is_program)
        put_begin(emitter);
    if ((emitter->part & UL_EMIT_ROOT) != 0)
        put_run_text(emitter);
    if (is_program)
        ul_text_printf(
            emitter->text,
            "/* Gives back what a numerical library took for an arena that was made ready; the "
            "arena's\n * own memory stays the caller's. */\n"
            "void %s_done(void *arena);\n\n",
            emitter->options->prefix);
    ul_emit_header_end(emitter);
}

/* Weights that would be between code and its variables, too far apart for instructions, go after
 * all of it, and a pointer leads to them. */
static const char far_section[] =
    "#if defined(__x86_64__) && defined(__clang__) && __clang_major__ < 17\n"
    "#error \"this assembler has no section for data of this size: take gcc or clang 17\"\n"
    "#elif defined(__x86_64__)\n.section .lrodata,\"al\",%progbits\n"
    "#else\n.section .rodata\n#endif\n";
/* Makes weights read-only data without passing through C text. */
static void put_rom(struct ul_emitter *emitter)
{
    const char *prefix = emitter->options->prefix;
    bool is_far = ul_emit_is_rom_far(emitter);
    ul_text_printf(emitter->text,
                   "/* " UL_EMIT_SPDX
                   "\n   The weights as read-only data; the name has an underscore in front where "
                   "the platform\n   wants one. */\n#if defined(__APPLE__)\n"
                   "#define NAME _%s_rom\n.const\n#else\n#define NAME %s_rom\n%s"
                   "#endif\n.balign 4096\n.globl NAME\nNAME:\n.incbin \"weights.bin\"\n",
                   prefix, prefix, is_far ? far_section : ".section .rodata\n");
    if (is_far)
        ul_text_printf(emitter->text,
                       "#if defined(__APPLE__)\n#define BEGIN _%s_rom_begin\n"
                       ".section __DATA,__const\n#else\n#define BEGIN %s_rom_begin\n"
                       ".section .data.rel.ro,\"aw\",%%progbits\n.hidden BEGIN\n#endif\n"
                       ".balign 8\n.globl BEGIN\nBEGIN:\n.quad NAME\n",
                       prefix, prefix);
    ul_text_put(emitter->text, "#if defined(__linux__) && defined(__ELF__)\n.hidden NAME\n"
                               ".section .note.GNU-stack,\"\",%progbits\n#endif\n");
}

/* What the program links. */
static const char *links(const struct ul_emitter *emitter)
{
    const struct ul_libraries *libraries = emitter->program->options.libraries;
    struct ul_text text;
    ul_text_init(&text, emitter->arena);
    for (uint32_t i = 0; libraries != NULL && i < libraries->count; i++) {
        const struct ul_target_library *library = &libraries->rows[i];
        if (!ul_emit_sets_up(emitter, library) || library->links == NULL)
            continue;
        ul_text_put(&text, text.length == 0 ? emitter->options->library_links : "");
        ul_text_put(&text, library->links);
    }
    ul_text_put(&text, " -lm");
    return text.data;
}

static struct ul_emit_build build(const struct ul_emitter *emitter)
{
    const struct ul_emit_options *options = emitter->options;
    const bool has_libraries = ul_emit_library_number(emitter, NULL) > 0;
    const char *native = ul_emit_library_files(emitter, true);
    return (struct ul_emit_build){
        .behind_archive = "",
        .behind_archive_cmake = "",
        .native = ul_arena_printf(emitter->arena, "%s.c%s", ul_emit_stem(emitter), native),
        .plain =
            ul_arena_printf(emitter->arena, "library.c%s", ul_emit_library_files(emitter, false)),
        .assembly = emitter->program->options.weights_rom ? "rom.S"
                    : ul_emit_has_weights_inside(emitter) ? "weights.S"
                                                          : "",
        .devices = "",
        .own = native,
        .flags = "-fno-strict-aliasing -DUL_MAY_ALIAS -ffp-contract=off -fno-math-errno "
                 "-fno-trapping-math",
        .cflags = has_libraries ? options->library_cflags : "",
        .libraries = links(emitter),
        .has_threads = emitter->program->options.thread_count > 1 || has_libraries};
}

/* Lines of a Makefile: flags of `objects`, those of the runtime's own calls, beside those of
 * model.c. */
static void put_fuse(struct ul_text *text, const char *objects)
{
    ul_text_printf(
        text,
        "# The runtime's own calls leave it to the compiler.\n"
        "# Where gcc tunes for some processors it rounds products in short sums, not in long "
        "ones.\n"
        "FUSE := $(shell $(CC) --param=avoid-fma-max-bits=0 -Werror -E -x c /dev/null >/dev/null "
        "2>&1 && echo --param=avoid-fma-max-bits=0)\n"
        "%s: KERNEL_FLAGS += -ffp-contract=fast $(FUSE)\n",
        objects);
}

static void put_variables(struct ul_emitter *emitter, const struct ul_emit_build *with)
{
    const struct ul_emit_options *options = emitter->options;
    ul_text_printf(emitter->text,
                   "CC = %s\nCFLAGS = %s\nMARCH = %s%s\nOPENMP =%s\n"
                   "# model.c says itself which products are rounded before they are added.\n"
                   "KERNEL_FLAGS = -std=c99 %s\nLIBS =%s\nOWN =%s\n",
                   options->cc, options->cflags, options->march == NULL ? "" : "-march=",
                   options->march == NULL ? "" : options->march,
                   emitter->program->options.thread_count > 1 ? " -fopenmp" : "", with->flags,
                   with->libraries, with->own);
    if (with->own[0] != '\0')
        put_fuse(emitter->text, "$(OWN:.c=.o) $(OWN:.c=.pic.o)");
}

/* `make lib`, from one set of objects, which are position-independent. */
static void put_library_rules(struct ul_emitter *emitter, const struct ul_emit_build *with)
{
    const char *prefix = emitter->options->prefix, *stem = ul_emit_stem(emitter);
    ul_text_printf(
        emitter->text,
        "# The library: what %s.h declares is all that can be seen of it, and its weights are in "
        "it.\n"
        "PIC = -fPIC -fvisibility=hidden\nNATIVE = %s\nPLAIN = %s\n"
        "LIBRARY = $(patsubst %%.c,%%.pic.o,$(NATIVE) $(PLAIN))%s\nSONAME = lib%s.so\n\n"
        "lib: lib%s.a $(SONAME)\n\n"
        "lib%s.a: $(LIBRARY)\n\trm -f $@\n\t$(AR) rcs $@ $(LIBRARY)\n\n"
        "$(SONAME): $(LIBRARY)\n"
        "\t$(CC) $(CFLAGS) $(OPENMP) -shared -Wl,-Bsymbolic -Wl,-soname,$(SONAME) -o $@ $(LIBRARY) "
        "$(LIBS)\n\n"
        "$(NATIVE:.c=.pic.o): %%.pic.o: %%.c %s.h $(wildcard ul_*.h)\n"
        "\t$(CC) $(CFLAGS) $(MARCH) $(KERNEL_FLAGS) $(OPENMP) $(PIC) -c $< -o $@\n\n"
        "$(PLAIN:.c=.pic.o): %%.pic.o: %%.c %s.h $(wildcard ul_*.h)\n"
        "\t$(CC)%s $(CFLAGS) -std=c99 $(PIC) -c $< -o $@\n\n",
        stem, with->native, with->plain,
        with->assembly[0] == '\0' ? ""
                                  : ul_arena_printf(emitter->arena, " %s.pic.o", with->assembly),
        prefix, prefix, prefix, stem, stem, with->cflags);
    if (with->assembly[0] != '\0')
        ul_text_printf(emitter->text, "%s.pic.o: %s weights.bin\n\t$(CC) -c %s -o $@\n\n",
                       with->assembly, with->assembly, with->assembly);
}

static void put_program_rules(struct ul_emitter *emitter, const struct ul_emit_build *with)
{
    bool rom = emitter->program->options.weights_rom;
    bool beside = emitter->options->weights_beside;
    bool own = with->own[0] != '\0';
    ul_text_printf(
        emitter->text,
        "OBJECTS = model.o main.o%s $(OWN:.c=.o)\n"
        "RUNTIME = $(patsubst %%.c,%%.o,$(filter-out $(OWN),$(sort $(wildcard ul_*.c))))\n\n"
        "program: $(OBJECTS) $(RUNTIME) weights.bin\n"
        "\t$(CC) $(CFLAGS) $(OPENMP) -o $@.tmp $(OBJECTS) $(RUNTIME) $(LIBS) -pthread\n"
        "%s\tmv $@.tmp $@\n\n%s"
        "model.o: model.c model.h $(wildcard ul_*.h)\n"
        "\t$(CC) $(CFLAGS) $(MARCH) $(KERNEL_FLAGS) $(OPENMP) -c model.c -o $@\n\n"
        "main.o: main.c model.h $(wildcard ul_*.h)\n"
        "\t$(CC) $(CFLAGS) -std=c99 -c main.c -o $@\n\n%s"
        "ul_%%.o: ul_%%.c $(wildcard ul_*.h)\n"
        "\t$(CC)%s $(CFLAGS) -std=c99 -c $< -o $@\n\n",
        rom ? " rom.o" : "",
        rom      ? ""
        : beside ? "\tcp weights.bin $@.weights\n"
                 : "\ttruncate -s %4096 $@.tmp || true\n\tcat weights.bin >> $@.tmp\n",
        rom ? "rom.o: rom.S weights.bin\n\t$(CC) -c rom.S -o $@\n\n" : "",
        own ? "$(OWN:.c=.o): %.o: %.c $(wildcard ul_*.h)\n"
              "\t$(CC) $(CFLAGS) $(MARCH) $(KERNEL_FLAGS) $(OPENMP) -c $< -o $@\n\n"
            : "",
        with->cflags);
}

static void put_makefile(struct ul_emitter *emitter)
{
    const struct ul_emit_build with = build(emitter);
    bool alone = emitter->options->is_library_alone;
    ul_text_printf(emitter->text,
                   "# " UL_EMIT_SPDX "\n# Builds the %s; `make CC=clang MARCH=` chooses a compiler "
                   "and a plain processor.\n",
                   alone ? "library" : "program");
    put_variables(emitter, &with);
    if (!alone)
        put_program_rules(emitter, &with);
    put_library_rules(emitter, &with);
    ul_emit_last_rules(emitter);
}

/* ---- Hooks of the emitter ---- */

static void put_entry(struct ul_emitter *emitter, const char *model, const char *entry,
                      const char *to)
{
    ul_text_printf(emitter->text, "ul_run_entry(&%s, %s, arena, 0, from, %s, NULL, NULL, failure)",
                   model, entry, to);
}

static void put_runner(struct ul_emitter *emitter)
{
    static const char table[] = "libraries"; /* in struct ul_model, and what it points to */
    uint32_t library_count = ul_emit_library_number(emitter, NULL);
    ul_text_put(emitter->text, "    .isa = UL_ISA_COMPILED,\n");
    if (library_count > 0)
        ul_text_printf(emitter->text, "    .library_count = %u,\n    .%s = %s,\n", library_count,
                       table, table);
}

enum ul_status ul_emit_c(struct ul_arena *arena, const struct ul_program *program,
                         const struct ul_plan *plan, const struct ul_emit_options *options,
                         const char *directory, struct ul_diag *diag)
{
    static const struct ul_emit_file files[] = {
        {.name = ".c", .put = put_model_c, .is_suffix = true},
        {.name = ".h", .put = put_model_h, .is_suffix = true, .is_header = true},
        {.name = "main.c", .put = ul_emit_main_c, .is_program = true},
        {.name = "rom.S", .put = put_rom, .is_rom = true},
        {.name = "Makefile", .put = put_makefile},
        {.name = NULL}};
    static const struct ul_emit_language language = {.files = files,
                                                     .runs_on_host = true,
                                                     .put_mark = put_mark,
                                                     .put_step = put_step,
                                                     .put_transfer = put_transfer,
                                                     .put_wait = put_wait,
                                                     .put_join = put_join,
                                                     .put_branch = put_branch,
                                                     .put_buffer = put_buffer,
                                                     .put_libraries = ul_emit_c_put_libraries,
                                                     .put_runner = put_runner,
                                                     .handle = "void *arena",
                                                     .put_entry = put_entry,
                                                     .build = build};
    return ul_emit_folder(arena, &language, program, plan, options, directory, diag);
}
