/* SPDX-License-Identifier: Apache-2.0 */
/* What a target is: its facts, and how it prints and emits. */
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

/* A library that may stand beside a toolkit; it is there where its header and one of the names is.
 */
struct ul_target_beside {
    const char *header;
    const char *const *libraries; /* NULL behind the last */
};

/* What turns the source into a program. */
struct ul_target_compiler {
    const char *option;   /* of the command line, by which another one is named: "nvcc" */
    const char *variable; /* of the environment, likewise, and of the Makefile: "NVCC" */
    const char *command;  /* where neither says: "nvcc" */
    const char *fallback; /* where it usually is if no folder of PATH has it, or NULL */
    const char *name;     /* for messages: "nvcc" */
    const char *toolkit;  /* what machines may be without; NULL: it is taken to be there */
    bool takes_march;     /* -march= */
    const struct ul_target_beside *beside; /* or NULL */
};

/* A target: a row in codegen/target.c. */
struct ul_target {
    struct ul_target_traits traits;
    const struct ul_target_compiler *compiler;
    /* Folders of runtime/ that its programs are made of; NULL behind the last. */
    const char *const *runtime_rooms;
    /* Libraries that compute steps of its programs, in the order in which they are asked, NULL
     * behind the last, and the name that people have for all; NULL: none. */
    const struct ul_target_library *const *libraries;
    const char *libraries_name;
    /* A kernel as text, for the device of a profile. */
    enum ul_status (*print)(struct ul_text *text, const struct ul_kernel *kernel,
                            const struct ul_threads *threads, const struct ul_profile *profile,
                            struct ul_kernel_printed *printed, struct ul_diag *diag);
    /* How it spreads a kernel over threads, in words. */
    void (*print_schedule)(struct ul_text *text, const struct ul_kernel *kernel,
                           const struct ul_program_options *options);
    /* The ways in which the kernel's contractions form their sums: enum ul_contract_order. */
    uint32_t (*sum_orders)(const struct ul_kernel *kernel, const struct ul_profile *profile);
    /* As ul_kernel_stack_c; NULL: what a caller's stack has to hold is not known. */
    uint64_t (*stack_bytes)(const struct ul_kernel *kernel);
    /* As ul_emit_c. */
    enum ul_status (*emit)(struct ul_arena *arena, const struct ul_program *program,
                           const struct ul_plan *plan, const struct ul_emit_options *options,
                           const char *directory, struct ul_diag *diag);
};

#endif
