/* SPDX-License-Identifier: Apache-2.0 */
/* The Makefile of models that share an arena, for the host: a library of all of them. They are
 * compiled as each is by itself, so that they compute the same bits. */
#include "codegen/c/c.h"
#include "codegen/c/emit_c.h"
#include "codegen/emit/emit_internal.h"

static void put_model(struct ul_text *text, const char *prefix, bool has_rom)
{
    ul_text_printf(
        text,
        "%s.o: %s/model.c %s/model.h $(HEADERS)\n"
        "\t$(CC) $(CFLAGS) $(MARCH) $(KERNEL_FLAGS) $(OPENMP) -I. -c %s/model.c -o $@\n\n"
        "%s.answers.o: %s/library.c %s/model.h $(HEADERS)\n"
        "\t$(CC) $(CFLAGS) -std=c99 -I. -c %s/library.c -o $@\n\n",
        prefix, prefix, prefix, prefix, prefix, prefix, prefix, prefix);
    if (has_rom)
        ul_text_printf(text,
                       "%s.rom.o: %s/rom.S %s/weights.bin\n"
                       "\tcd %s && $(CC) -c rom.S -o ../$@\n\n",
                       prefix, prefix, prefix, prefix);
}

static void put_makefile(struct ul_text *text, const struct ul_emit_shared *shared)
{
    const struct ul_emit_options *options = shared->options;
    ul_text_printf(
        text,
        "# " UL_EMIT_SPDX
        "\n# Builds libshared.a; `make CC=clang MARCH=` chooses a compiler and a plain processor,\n"
        "# `make -s libs` says what a program is linked with behind it.\n"
        "CC = %s\nAR = ar\nCFLAGS = %s\nMARCH = %s%s\nOPENMP =%s\n"
        "# model.c says itself which products are rounded before they are added.\n"
        "KERNEL_FLAGS = -std=c99 -fno-strict-aliasing -DUL_MAY_ALIAS -ffp-contract=off "
        "-fno-math-errno "
        "-fno-trapping-math\nHEADERS = $(wildcard ul_*.h)\nMODELS =",
        options->cc, options->cflags,
        options->march == NULL ? "" : "-march=", options->march == NULL ? "" : options->march,
        shared->has_threads ? " -fopenmp" : "");
    for (uint32_t i = 0; i < shared->count; i++) {
        ul_text_printf(text, " %s.o %s.answers.o", shared->prefixes[i], shared->prefixes[i]);
        if (shared->has_rom)
            ul_text_printf(text, " %s.rom.o", shared->prefixes[i]);
    }
    ul_text_put(text,
                "\nNATIVE = $(patsubst %.c,%.o,$(wildcard ul_nbits.c ul_posts.c ul_winograd.c))\n");
    ul_emit_c_put_fuse(text, "$(NATIVE)");
    ul_text_printf(
        text,
        "RUNTIME = $(filter-out $(NATIVE),$(patsubst %%.c,%%.o,$(sort $(wildcard ul_*.c))))\n"
        "LIBS = $(if $(wildcard ul_dnnl.c),%s -ldnnl -fopenmp,$(OPENMP)) -lm\n\n"
        "libshared.a: $(MODELS) $(NATIVE) $(RUNTIME)\n"
        "\trm -f $@\n\t$(AR) rcs $@ $(MODELS) $(NATIVE) $(RUNTIME)\n\n"
        "$(RUNTIME): %%.o: %%.c $(HEADERS)\n\t$(CC)%s $(CFLAGS) -std=c99 -c $< -o $@\n\n"
        "$(NATIVE): %%.o: %%.c $(HEADERS)\n"
        "\t$(CC) $(CFLAGS) $(MARCH) $(KERNEL_FLAGS) $(OPENMP) -c $< -o $@\n\n",
        options->onednn_libs, options->onednn_cflags);
    for (uint32_t i = 0; i < shared->count; i++)
        put_model(text, shared->prefixes[i], shared->has_rom);
    ul_text_put(text, "libs:\n\t@echo $(LIBS)\n\nclean:\n\trm -f *.o libshared.a\n\n"
                      ".PHONY: clean libs\n");
}

enum ul_status ul_emit_c_shared(struct ul_arena *arena, const struct ul_emit_shared *shared,
                                const char *directory, struct ul_diag *diag)
{
    return ul_emit_shared_folder(arena, shared, put_makefile, directory, diag);
}
