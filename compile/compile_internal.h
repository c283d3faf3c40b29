/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of compile/ share. */
#ifndef UL_COMPILE_INTERNAL_H
#define UL_COMPILE_INTERNAL_H

#include "compile/compile.h"

/* fit.c: UL_USAGE where a field holds what its row in options.def does not take. */
enum ul_status ul_compile_check_options(struct ul_compile *compile) UL_MUST_CHECK;

/* fit.c: whether a budget is given, also as a device's memory. */
bool ul_compile_has_budget(const struct ul_compile_options *options);

/* progress.c: tells the caller what is going on; NULL: it is done. */
void ul_compile_progress(const struct ul_compile *compile, const char *what);

/* resolve.c: what the program is built for, from the options; fills in those that were left open
 * and that a plan has to name. Opens the target's library. */
enum ul_status ul_compile_resolve(struct ul_compile *compile,
                                  struct ul_program_options *program) UL_MUST_CHECK;
enum ul_dtype ul_compile_storage(const struct ul_compile_options *options);
/* Whether the program rounds products before it adds them, as its processor has no fused
 * multiply-add. */
bool ul_compile_rounds_products(const struct ul_compile_options *options,
                                const struct ul_target *target);

/* budget.c: plans without a budget, or, where that is too much, the cheapest plan of the ladder
 * that fits; with wants_ladder the ladder is made anyway. */
enum ul_status ul_compile_solve(struct ul_compile *compile) UL_MUST_CHECK;

/* beside.c: counts what a program of this compile takes beside its buffer, once it is built; what
 * that is of its process, and of what a budget bounds; all that the compile's own plan takes. */
void ul_compile_count_beside(const struct ul_compile *compile, const struct ul_program *program);
struct ul_plan_beside ul_compile_process(const struct ul_compile *compile,
                                         const struct ul_program *program);
struct ul_plan_beside ul_compile_beside(const struct ul_compile *compile,
                                        const struct ul_program *program);
struct ul_footprint ul_compile_footprint(const struct ul_compile *compile);

/* training.c: from the options to what training is; UL_USAGE where they contradict. */
enum ul_status ul_compile_read_training(struct ul_compile *compile) UL_MUST_CHECK;

/* trained.c: the notes of the report's facts on training, whose counts are there. */
void ul_compile_describe_trained(struct ul_compile *compile);
/* describe.c: what a plan says of the process. */
void ul_compile_describe_process(const struct ul_footprint *footprint, struct ul_saved *facts);

/* trial.c: compiles of the same model under edited options, to learn what their plans take. */
struct ul_trial {
    const char *what; /* is tried, for the progress */
    const char *path; /* of its model; NULL: the one that the call names */
    struct ul_option_edits edits;
    /* Before it is built, as ul_compile_find_largest; NULL: nothing. */
    enum ul_status (*prepare)(struct ul_compile *other, const char *model_path);
    /* What came of it. */
    struct ul_diag diag; /* UL_NO_FIT is an answer */
    bool has_batch_statistics;
    bool repeats; /* it takes more time than a plan without a budget */
    char model_sha256[65];
    struct ul_report_case result;
};
/* UL_USAGE where the option, which asks for trials of each so and so, has a plan already, or a
 * model that can be read but once. */
enum ul_status ul_compile_check_trials(struct ul_compile *compile, const char *option,
                                       const char *each, const char *model_path) UL_MUST_CHECK;
/* Compiles and plans one; its texts live in the compile's arena. */
enum ul_status ul_compile_try(struct ul_compile *compile, const char *model_path,
                              struct ul_trial *trial) UL_MUST_CHECK;
/* Many of them, beside each other on the cores of this machine. Each has its status in its result.
 */
void ul_compile_try_all(struct ul_compile *compile, const char *model_path, struct ul_trial *trials,
                        uint32_t count);

/* tries.c: what may be tried to make a plan smaller, one row each; the last has no kind. */
struct ul_variants;
enum ul_try_bits { UL_BITS_CHANGE, UL_BITS_KEPT, UL_BITS_KEPT_IN_F32 };
/* APPLIED: the plan has it, and what is tried is the plan without it. Under a budget such a plan is
 * made smaller by other means, which says nothing of this one. OPEN, GIVEN: where the caller said
 * nothing, or something, of the option. */
enum ul_try_when { UL_TRY_ALWAYS, UL_TRY_APPLIED, UL_TRY_OPEN, UL_TRY_GIVEN };
struct ul_try {
    const char *kind;      /* what reports call it */
    const char *option;    /* that says it */
    const char *value;     /* as in an edit */
    enum ul_try_bits bits; /* of results */
    enum ul_try_when when;
    bool (*applies)(const struct ul_compile *compile); /* NULL: it does */
    /* In place of `value`, makes edits number `index`; false: there is none. */
    bool (*edit)(const struct ul_compile *compile, const struct ul_option *option, uint32_t index,
                 struct ul_arena *arena, struct ul_option_edits *edits);
    /* Has plans of other programs join the compile's ladder; NULL: it is a matter of options. */
    enum ul_status (*vary)(struct ul_variants *variants);
};
extern const struct ul_try ul_tries[];
/* The edits of a row of options, from 0 on; false: there are none of that number. */
bool ul_try_edit(const struct ul_compile *compile, const struct ul_try *row, uint32_t index,
                 struct ul_arena *arena, struct ul_option_edits *edits);

/* micro_batches.c: has the compile take the number of micro-batches of the least predicted time
 * within its budget, where --micro-batches leaves it open. */
enum ul_status ul_compile_find_parts(struct ul_compile *compile,
                                     const char *model_path) UL_MUST_CHECK;

/* settle.c: what the model's operators tell of dimensions that the options leave open; "": nothing.
 * Sizes are added to the options, which the model has not been loaded with yet. */
const char *ul_compile_settle(struct ul_compile *compile, const char *model_path);

/* checkpoint.c: what --checkpoint has plans of the compile's program keep; NULL: it says nothing of
 * that. */
enum ul_status ul_compile_read_kept(struct ul_compile *compile,
                                    const struct ul_plan_kept **kept) UL_MUST_CHECK;

/* donate.c: what --donate says, and names that match: noted in `notice`, and added to the options.
 */
enum ul_status ul_compile_donate(struct ul_compile *compile) UL_MUST_CHECK;

/* rewrite.c: the passes on the compile's graph, after what --donate says of it. */
enum ul_status ul_compile_rewrite(struct ul_compile *compile,
                                  const struct ul_target *target) UL_MUST_CHECK;
/* Runs `cse` on a joined graph, then `own` and what follows it: its roots have been through the
 * others. */
enum ul_status ul_compile_rewrite_joined(struct ul_compile *compile,
                                         const struct ul_target *target) UL_MUST_CHECK;
/* What --output leaves of the graph, through those passes after which it is still one of ONNX's own
 * operators: of types known, and BatchNormalization in weights. */
enum ul_status ul_compile_simplify(struct ul_compile *compile) UL_MUST_CHECK;
/* The compile's graph as `row_major` has it laid out, before chains of it are split. */
enum ul_status ul_compile_lay_out(struct ul_compile *compile, struct ul_arena *arena,
                                  struct ul_graph *graph, const struct ul_texts *row_major,
                                  struct ul_diag *diag) UL_MUST_CHECK;
/* Has kernels of the backward pass compute what these nodes make for themselves. */
enum ul_status ul_compile_move_inside(struct ul_compile *compile, struct ul_graph *graph,
                                      const struct ul_texts *inside,
                                      struct ul_diag *diag) UL_MUST_CHECK;
/* What of the compile's graph that could be. */
void ul_compile_find_inside(struct ul_compile *compile, struct ul_arena *arena,
                            struct ul_inside *found);
/* Has chains of such a graph computed in pieces. */
enum ul_status ul_compile_split(struct ul_compile *compile, struct ul_graph *graph,
                                const struct ul_texts *splits, struct ul_diag *diag) UL_MUST_CHECK;

/* roots.c: the models of a program of several roots: UL_USAGE for options that are of one model;
 * their names, and what the options say of each; then their graphs as one. */
enum ul_status ul_compile_check_roots(struct ul_compile *compile) UL_MUST_CHECK;
enum ul_status ul_compile_read_roots(struct ul_compile *compile,
                                     const struct ul_texts *paths) UL_MUST_CHECK;
enum ul_status ul_compile_join_roots(struct ul_compile *compile,
                                     const struct ul_target *target) UL_MUST_CHECK;

/* spaces.c: what the buffer of a program is made of, by --space; UL_USAGE or UL_UNSUPPORTED with
 * what does not go with that. */
enum ul_status ul_compile_read_spaces(struct ul_compile *compile,
                                      struct ul_program_options *program) UL_MUST_CHECK;

/* toolkit.c: fills in what only a target has a use for whose libraries programs find. */
enum ul_status ul_compile_resolve_toolkit(struct ul_compile *compile,
                                          struct ul_program_options *program) UL_MUST_CHECK;

/* plan_file.c */

/* Reads the head of options.plan, and takes from it what the caller left out. */
enum ul_status ul_compile_read_header(struct ul_compile *compile) UL_MUST_CHECK;
/* Reads options.plan onto the program and checks it. */
enum ul_status ul_compile_read_plan(struct ul_compile *compile) UL_MUST_CHECK;

/* profile.c: from options.profile, the plan, or the default of the target. */
enum ul_status ul_compile_read_profile(struct ul_compile *compile) UL_MUST_CHECK;

/* describe.c: the plan for reports; and steps and values of another program of the model, which is
 * the compile's as well. */
void ul_compile_describe(struct ul_compile *compile);
void ul_compile_describe_variant(struct ul_compile *compile, const struct ul_graph *graph,
                                 const struct ul_program *program, const struct ul_plan *plan,
                                 struct ul_report_variant *variant);

/* compiler.c: the program that the command is, or NULL. */
const char *ul_compile_command_path(struct ul_compile *compile);
/* UL_COMPILER where the compiler, or make, which calls it, is not here. */
enum ul_status ul_compile_require_tools(struct ul_compile *compile) UL_MUST_CHECK;

#endif
