/* SPDX-License-Identifier: Apache-2.0 */
/* A target: its facts, and how it prints and emits. */
#ifndef UL_CODEGEN_PROGRAM_TARGET_H
#define UL_CODEGEN_PROGRAM_TARGET_H

#include "codegen/kernel/profile.h"
#include "ir/traits.h"

struct ul_emit_options;   /* codegen/emit/emit.h */
struct ul_kernel_printed; /* program.h */
struct ul_plan;
struct ul_program;
struct ul_program_options;
struct ul_program_step;
struct ul_target_library;
struct ul_threads;

/* A library that may accompany a toolkit; it exists where its header and one of the names do. */
struct ul_target_companion {
    const char *header;
    const char *const *libraries; /* ends with NULL */
};

/* The compiler of a target's source. */
struct ul_target_compiler {
    const char *option;   /* of the command line, which names another one: "nvcc" */
    const char *variable; /* of the environment and of the Makefile, likewise: "NVCC" */
    const char *command;  /* where neither is given: "nvcc" */
    const char *fallback; /* its usual place if no folder of PATH has it, or NULL */
    const char *name;     /* for messages: "nvcc" */
    const char *toolkit;  /* what machines may lack; NULL: it is assumed to exist */
    bool takes_march;     /* -march= */
    const struct ul_target_companion *companion; /* or NULL */
};

/* A target: a row in codegen/target.c. */
struct ul_target {
    struct ul_target_traits traits;
    const struct ul_target_compiler *compiler;
    /* Folders of runtime/ for its programs; ends with NULL. */
    const char *const *runtime_rooms;
    /* Libraries that compute steps of its programs, in the order in which they are asked, NULL
     * behind the last, and the name that people have for all; NULL: none. */
    const struct ul_target_library *const *libraries;
    const char *libraries_name;
    /* A kernel as text, for the device of a profile. */
    enum ul_status (*print)(struct ul_text *text, const struct ul_kernel *kernel,
                            const struct ul_threads *threads, const struct ul_profile *profile,
                            struct ul_kernel_printed *printed, struct ul_diag *diag);
    /* Prints how it spreads a kernel over threads, in words. */
    void (*print_schedule)(struct ul_text *text, const struct ul_kernel *kernel,
                           const struct ul_program_options *options);
    /* The orders in which the kernel's contractions form their sums: enum ul_contract_order. */
    uint32_t (*sum_orders)(const struct ul_kernel *kernel, const struct ul_profile *profile);
    /* Like ul_kernel_stack_c; NULL: the stack that a caller needs is not known. */
    uint64_t (*stack_bytes)(const struct ul_kernel *kernel);
    /* Like ul_emit_c. */
    enum ul_status (*emit)(struct ul_arena *arena, const struct ul_program *program,
                           const struct ul_plan *plan, const struct ul_emit_options *options,
                           const char *directory, struct ul_diag *diag);
};

#endif
