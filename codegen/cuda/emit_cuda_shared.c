/* SPDX-License-Identifier: Apache-2.0 */
/* The Makefile of models that share an arena, for a device: a library of all of them. */
#include "codegen/cuda/cuda.h"
#include "codegen/cuda/emit_cuda.h"
#include "codegen/emit/emit_internal.h"

static void put_model(struct ul_text *text, const char *prefix)
{
    ul_text_printf(text,
                   "%s.o: %s/model.c %s/model.h $(HEADERS)\n"
                   "\t$(NVCC) $(NVCCFLAGS) -Xcompiler=-std=c99 $(WARNINGS) -I. -c %s/model.c -o "
                   "$@\n\n"
                   "%s.answers.o: %s/library.c %s/model.h $(HEADERS)\n"
                   "\t$(NVCC) $(NVCCFLAGS) -Xcompiler=-std=c99 $(WARNINGS) -I. -c %s/library.c -o "
                   "$@\n\n"
                   "%s.kernels.o: %s/kernels.cu $(HEADERS)\n"
                   "\t$(NVCC) $(NVCCFLAGS) -std=c++17 $(WARNINGS) --threads=0 $(GENERATE) -I. -c "
                   "%s/kernels.cu -o $@\n\n",
                   prefix, prefix, prefix, prefix, prefix, prefix, prefix, prefix, prefix, prefix,
                   prefix);
}

static void put_makefile(struct ul_text *text, const struct ul_emit_shared *shared)
{
    const struct ul_emit_options *options = shared->options;
    ul_text_printf(
        text,
        "# " UL_EMIT_SPDX "\n# Builds libshared.a; `make NVCC=/opt/cuda/bin/nvcc CUDA_ARCH=sm_90` "
        "chooses a compiler\n"
        "# and devices: sm_NN is machine code, compute_NN is PTX, which newer devices compile,\n"
        "# native is this machine's device; `make -s libs` says what a program is linked with "
        "behind it.\n"
        "NVCC = %s\nAR = ar\nNVCCFLAGS = %s\n" UL_EMIT_CUDA_ARCH
        "WARNINGS = -Xcompiler=-Wall,-Wextra\n"
        "GENERATE = $(if $(filter native,$(CUDA_ARCH)),-arch=native,$(foreach arch,$(CUDA_ARCH),"
        "-gencode arch=compute_$(lastword $(subst _, ,$(arch))),code=$(arch)))\n"
        "HEADERS = $(wildcard *.h *.cuh)\nMODELS =",
        options->cc, options->cflags);
    for (uint32_t i = 0; i < shared->count; i++)
        ul_text_printf(text, " %s.o %s.answers.o %s.kernels.o", shared->prefixes[i],
                       shared->prefixes[i], shared->prefixes[i]);
    ul_text_put(text, "\nDEVICE = $(patsubst %.cu,%.o,$(sort $(wildcard ul_*.cu)))\n\n"
                      "libshared.a: $(MODELS) $(DEVICE)\n"
                      "\trm -f $@\n\t$(AR) rcs $@ $(MODELS) $(DEVICE)\n\n"
                      "$(DEVICE): %.o: %.cu $(HEADERS)\n"
                      "\t$(NVCC) $(NVCCFLAGS) -std=c++17 $(WARNINGS) --threads=0 $(GENERATE) -c "
                      "$< -o $@\n\n");
    for (uint32_t i = 0; i < shared->count; i++)
        put_model(text, shared->prefixes[i]);
    ul_text_put(text, "libs:\n\t@echo" UL_EMIT_CUDA_RUNTIME UL_EMIT_CUDA_LIBRARIES
                      "\n\nclean:\n\trm -f *.o libshared.a\n\n"
                      ".PHONY: clean libs\n");
}

enum ul_status ul_emit_cuda_shared(struct ul_arena *arena, const struct ul_emit_shared *shared,
                                   const char *directory, struct ul_diag *diag)
{
    return ul_emit_shared_folder(arena, shared, put_makefile, directory, diag);
}
