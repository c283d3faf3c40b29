/* What a target is: its facts, and how it offers, prints and emits. */
#ifndef UL_CODEGEN_PROGRAM_TARGET_H
#define UL_CODEGEN_PROGRAM_TARGET_H

#include "codegen/kernel/profile.h"

/* One way to run a step, as the planner sees it. */
struct ul_implementation {
    const char *name; /* "ullage": the compiler's own lowering */
    uint64_t cost;    /* nanoseconds */
    uint64_t scratch_bytes;
};
enum { UL_IMPLEMENTATIONS = 4 };

struct ul_emit_options; /* codegen/emit/emit.h */
struct ul_plan;
struct ul_program;
struct ul_program_options;
struct ul_program_step;
struct ul_target_library;
struct ul_threads;

/* A target's table. `offer` fills up to UL_IMPLEMENTATIONS entries, the own lowering first, and
 * returns how many; `print` is as ul_kernel_print_c, `emit` as ul_emit_c. */
struct ul_target {
    const char *name;
    const char *summary;
    const char *profile;  /* of the device whose time counts, where nobody says another */
    bool has_threads;     /* OpenMP; the plan depends on their number */
    bool filters_last;    /* weights of convolutions are stored so too: passes/filters.c */
    bool biases_alike;    /* its library wants biases in the type of results: passes/precision.c */
    bool products_joined; /* products of one operand are one: passes/join.c */
    bool channels_last;   /* convolution nets keep channels innermost: passes/layout.c */
    /* Its numerical library, for what the options say of the machine; NULL: it has none. */
    enum ul_status (*open_library)(struct ul_arena *arena, const struct ul_program_options *options,
                                   const struct ul_target_library **library, struct ul_diag *diag);
    int64_t partial_count; /* results that a long sum of its kernels is made of; ir/lower_group.h */
    int64_t spread_products; /* of a recurrent step that is spread; the same */
    bool sorts_batches;      /* of products; the same */
    bool is_device; /* memory and kernels are another processor's: the host enqueues steps, and
                       the plan holds the state of a run */
    uint32_t (*offer)(const struct ul_program_step *step, const struct ul_profile *profile,
                      uint64_t own_scratch_bytes, struct ul_implementation *offers);
    enum ul_status (*print)(struct ul_text *text, const struct ul_kernel *kernel,
                            const struct ul_threads *threads, const struct ul_profile *profile,
                            uint64_t *scratch_bytes, struct ul_diag *diag);
    /* How it spreads a kernel over threads, in words. */
    void (*print_schedule)(struct ul_text *text, const struct ul_kernel *kernel,
                           const struct ul_program_options *options);
    /* The ways in which the kernel's contractions form their sums: enum ul_contract_order. */
    uint32_t (*sum_orders)(const struct ul_kernel *kernel, const struct ul_profile *profile);
    enum ul_status (*emit)(struct ul_arena *arena, const struct ul_program *program,
                           const struct ul_plan *plan, const struct ul_emit_options *options,
                           const char *directory, struct ul_diag *diag);
};

#endif
