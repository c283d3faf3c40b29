/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of compile/. */
#ifndef UL_COMPILE_INTERNAL_H
#define UL_COMPILE_INTERNAL_H

#include "compile/compile.h"

/* fit.c: UL_USAGE where a field has a value that its row in options.def does not take. */
enum ul_status ul_compile_check_options(struct ul_compile *compile) UL_MUST_CHECK;

/* fit.c: UL_USAGE, UL_UNSUPPORTED: ranges of sizes cannot be combined with other options, with
 * several models, or with the target. */
enum ul_status ul_compile_check_ranges(struct ul_compile *compile, bool is_shared) UL_MUST_CHECK;

/* fit.c: whether there is a budget, or a device with its memory. */
bool ul_compile_has_budget(const struct ul_compile_options *options);

/* load.c: tells the caller what is going on; NULL: it has ended. */
void ul_compile_progress(const struct ul_compile *compile, const char *what);

/* resolve.c: the program's settings from the options; fills in open options that a plan has to
 * name. Opens the target's library. */
enum ul_status ul_compile_resolve(struct ul_compile *compile,
                                  struct ul_program_options *program) UL_MUST_CHECK;
enum ul_dtype ul_compile_storage(const struct ul_compile_options *options);
/* Whether the program rounds products before it adds them, because its processor has no fused
 * multiply-add. */
bool ul_compile_rounds_products(const struct ul_compile_options *options,
                                const struct ul_target *target);

/* budget.c: plans without a budget, or, where that plan is too large, takes the cheapest plan of
 * the ladder that fits; with wants_ladder it makes the ladder anyway. */
enum ul_status ul_compile_solve(struct ul_compile *compile) UL_MUST_CHECK;

/* Whether the program is a process of its own, and not part of a caller's. */
static inline bool ul_compile_is_process(const struct ul_compile *compile)
{
    return !compile->is_library && compile->options.io == UL_IO_ARENA &&
           compile->options.weights != UL_WEIGHTS_ROM;
}
/* Whether its roots are several models, not pieces of a range of sizes. */
static inline bool ul_compile_is_shared(const struct ul_compile *compile)
{
    return compile->root_count > 0 && compile->pieces == NULL;
}
/* Whether its program is for a range of sizes, or one of those from which such a program is made.
 */
static inline bool ul_compile_is_sized(const struct ul_compile *compile)
{
    return compile->largest != NULL || ul_compile_has_ranges(&compile->options);
}
/* The bytes outside a program's buffer that a budget counts. */
static inline struct ul_process_overhead ul_compile_overhead(const struct ul_compile *compile,
                                                             const struct ul_program *program)
{
    return compile->options.budget_of == UL_BUDGET_ARENA || program->options.bank_count > 0
               ? (struct ul_process_overhead){.run_bytes = 0}
               : ul_footprint_overhead(program, ul_compile_is_process(compile));
}

/* training.c: the settings of training from the options; UL_USAGE where they contradict each
 * other. */
enum ul_status ul_compile_read_training(struct ul_compile *compile) UL_MUST_CHECK;

/* trained.c: the notes on training in the report's facts, whose counts are set. */
void ul_compile_describe_trained(struct ul_compile *compile);
/* describe.c: a plan's facts on the process. */
void ul_compile_describe_process(const struct ul_footprint *footprint, struct ul_saved *facts);

/* load.c: the same as ul_compile_load, but that a model whose sizes are open is no failure: its
 * inputs are known. */
enum ul_status ul_compile_load_ports(struct ul_compile *compile,
                                     const char *model_path) UL_MUST_CHECK;

/* settle.c: what the model's operators show about open dimensions; "": nothing. The sizes are added
 * to the options, with which the model has not been loaded yet. */
const char *ul_compile_settle(struct ul_compile *compile, const char *model_path);

/* checkpoint.c: the values that --checkpoint lets plans of the compile's program keep; NULL: it
 * does not say. */
enum ul_status ul_compile_read_kept(struct ul_compile *compile,
                                    const struct ul_plan_kept **kept) UL_MUST_CHECK;

/* donate.c: applies --donate, and names that match, which are noted in `notice` and added to the
 * options. */
enum ul_status ul_compile_donate(struct ul_compile *compile) UL_MUST_CHECK;

/* rewrite.c: from the file to the graph from which a program is made, after --donate and the
 * passes. */
enum ul_status ul_compile_read_model(struct ul_compile *compile, const char *model_path,
                                     const struct ul_target *target) UL_MUST_CHECK;
/* Runs `cse` on a joined graph, then `own` and the passes after it: its roots have been through the
 * others. */
enum ul_status ul_compile_rewrite_joined(struct ul_compile *compile,
                                         const struct ul_target *target) UL_MUST_CHECK;
/* Keeps what --output leaves of the graph, and runs the passes after which it still has only ONNX's
 * own operators: types are known, and BatchNormalization is in weights. */
enum ul_status ul_compile_simplify(struct ul_compile *compile) UL_MUST_CHECK;
/* Lays out the compile's graph with `row_major`, before its chains are split. */
enum ul_status ul_compile_lay_out(struct ul_compile *compile, struct ul_arena *arena,
                                  struct ul_graph *graph, const struct ul_texts *row_major,
                                  struct ul_diag *diag) UL_MUST_CHECK;
/* Lets kernels of the backward pass compute what these nodes make for themselves. */
enum ul_status ul_compile_move_inside(struct ul_compile *compile, struct ul_graph *graph,
                                      const struct ul_texts *inside,
                                      struct ul_diag *diag) UL_MUST_CHECK;
/* Finds the nodes of the compile's graph for which that is possible. */
void ul_compile_find_inside(struct ul_compile *compile, struct ul_arena *arena,
                            struct ul_inside_sites *found);
/* Lets chains of such a graph be computed in pieces. */
enum ul_status ul_compile_split(struct ul_compile *compile, struct ul_graph *graph,
                                const struct ul_texts *splits, struct ul_diag *diag) UL_MUST_CHECK;

/* build.c: applies the options of a compile, and settles how its program is made. */
enum ul_status ul_compile_open(struct ul_compile *compile, bool is_shared,
                               struct ul_program_options *program) UL_MUST_CHECK;
/* Then reads the models, and makes the program. */
enum ul_status ul_compile_read(struct ul_compile *compile, const struct ul_texts *model_paths,
                               struct ul_program_options *program) UL_MUST_CHECK;
/* Both, for a model without ranges of sizes, or whose pieces are known. */
enum ul_status ul_compile_build_fixed(struct ul_compile *compile,
                                      const char *model_path) UL_MUST_CHECK;

/* roots.c: the models of a program of several roots: UL_USAGE for options that apply to one model;
 * their names, and each one's options; then one graph of theirs. */
enum ul_status ul_compile_check_roots(struct ul_compile *compile) UL_MUST_CHECK;
enum ul_status ul_compile_read_roots(struct ul_compile *compile,
                                     const struct ul_texts *paths) UL_MUST_CHECK;
/* The roots of a model for a range of sizes: one for each piece, with its sizes at the compile's
 * point. */
void ul_compile_list_pieces(struct ul_compile *compile, const char *path);
enum ul_status ul_compile_join_roots(struct ul_compile *compile,
                                     const struct ul_target *target) UL_MUST_CHECK;

#define UL_SPACE_MAX_BYTES ((uint64_t)1 << 48)
/* spaces.c: the memories of a program's buffer, by --space; UL_USAGE for options that cannot be
 * combined with it. */
enum ul_status ul_compile_read_spaces(struct ul_compile *compile,
                                      struct ul_program_options *program) UL_MUST_CHECK;

/* compiler.c: fills in options for targets whose programs find their libraries at their start. */
enum ul_status ul_compile_resolve_toolkit(struct ul_compile *compile,
                                          struct ul_program_options *program) UL_MUST_CHECK;

/* plan_file.c */

/* Reads the header of options.plan, and takes from it what the caller left open. */
enum ul_status ul_compile_read_header(struct ul_compile *compile) UL_MUST_CHECK;
/* Maps options.plan onto the program and checks it. */
enum ul_status ul_compile_read_plan(struct ul_compile *compile) UL_MUST_CHECK;

/* profile.c: takes the profile from options.profile, the plan, or the default of the target. */
enum ul_status ul_compile_read_profile(struct ul_compile *compile) UL_MUST_CHECK;

/* describe.c: the plan for reports; and steps and values of another program of the model. */
void ul_compile_describe(struct ul_compile *compile);
void ul_compile_describe_alternative(struct ul_compile *compile, const struct ul_graph *graph,
                                     const struct ul_program *program, const struct ul_plan *plan,
                                     struct ul_report_alternative *alternative);

/* compiler.c: UL_COMPILER where the compiler, or make, which calls it, is missing. */
enum ul_status ul_compile_require_tools(struct ul_compile *compile) UL_MUST_CHECK;

#endif
