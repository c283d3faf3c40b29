/* SPDX-License-Identifier: Apache-2.0 */
/* From a model file to a plan, a folder of source or an executable: the whole pipeline as one list
 * of calls, for the command line and for any program that embeds it.
 *
 *     struct ul_compile compile;
 *     ul_compile_init(&compile);
 *     status = ul_compile_set(&compile, "budget", "64MiB");    or assign compile.options' fields
 *     if (status == UL_OK)
 *         status = ul_compile_build(&compile, "model.onnx");   compile.graph, compile.program
 *     if (status == UL_OK)
 *         status = ul_compile_plan(&compile);                  compile.plan, compile.report
 *     if (status == UL_OK)
 *         status = ul_compile_require_fit(&compile);           UL_NO_FIT: why, and what would do
 *     if (status == UL_OK)
 *         status = ul_compile_emit(&compile, "folder");        source that builds with make
 *     if (status == UL_OK)
 *         status = ul_compile_make(&compile, "folder", "program");
 *     if (status != UL_OK)
 *         puts(compile.diag.text);
 *     ul_compile_done(&compile);
 *
 * Invariants: the same model and options give the same bytes of plan and source. A plan has passed
 * the independent checker. Nothing is printed, and only a defect of ours or lack of memory ends the
 * process (base/base.h). Compiles are independent, except that a compile's own trials reuse what it
 * has found. Ownership: everything lives in `keep`, until ul_compile_done; texts and lists that a
 * caller assigns to options must live as long. Units: bytes; costs in predicted nanoseconds of the
 * profile. Failure: a status, and its text in `diag`; after one, only ul_compile_done may follow. A
 * call out of the order above is a defect of the caller, and aborts like ours (UL_ASSERT). A budget
 * that is not met is no failure of ul_compile_plan: there is a plan, and report has the facts of
 * plan.json. The environment is read where options leave it open: CC, NVCC, PATH, TMPDIR,
 * ULLAGE_RUNTIME. */
#ifndef UL_COMPILE_H
#define UL_COMPILE_H

#include "codegen/process/footprint.h"
#include "codegen/program/library.h"
#include "codegen/program/program.h"
#include "codegen/target.h"
#include "compile/files/process.h"
#include "compile/files/tensor_file.h"
#include "compile/options/compile_options.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "report/saved.h"

/* ---- One compile ---- */

/* Names of a library with several models begin with this. */
#define UL_ROOTS_PREFIX "shared"

/* One of several models of a program, or one model with the sizes of a piece of their range. */
struct ul_compile_root {
    const char *path;
    /* an identifier of C: the name of its root, and the prefix of its functions */
    const char *name;
    struct ul_compile *part; /* reads and simplifies it */
    bool is_borrowed;        /* the part is another compile's */
};

struct ul_size_pieces; /* options/size_list.h */

struct ul_compile {
    struct ul_arena keep, scratch;
    struct ul_compile_options options; /* after ul_compile_build with defaults filled in */
    struct ul_compile_options asked;   /* as before */
    struct ul_diag diag;
    /* Called when a part of the work that may take long begins ("planning"), and with NULL when it
     * ends. NULL: no calls. */
    void (*progress)(void *context, const char *what);
    void *progress_context;
    FILE *dump; /* for print_after and print_kernels; NULL: nothing is printed */

    struct ul_graph graph;
    struct ul_graph as_read;       /* set where keeps_read is */
    struct ul_graph before_layout; /* for alternatives; empty: there is none */
    struct ul_onnx_model model;
    struct ul_frontend_options given;          /* options for its inputs */
    bool loaded;                               /* ul_model_done must be called */
    uint64_t sufficient_bytes[UL_LIMIT_BANKS]; /* by space: that would do; 0: none is known */
    uint32_t root_count;                       /* 0: one model */
    uint64_t banks_bytes; /* with --space: the most bytes that a plan may reserve; else 0 */
    struct ul_compile_root *roots;
    bool is_root;             /* part of another compile, which joins its graph with others */
    uint64_t weight_elements; /* elements of parameters in the model as it is read */
    struct ul_profile profile;
    struct ul_training training;          /* set where options.train is */
    const struct ul_libraries *libraries; /* the target's libraries; NULL: it has none */
    const struct ul_compile
        *earlier;      /* outlives this compile, which reuses its libraries and, where
                          it needs the same, the graph that it has read; or NULL */
    const char *cudnn; /* "on", "found", "not found" or "off"; NULL: the target has none */
    struct ul_program *program;
    struct ul_arena **adopted; /* arenas of alternatives that it has taken over */
    uint32_t adopted_count, adopted_capacity;
    struct ul_saved plan_header;  /* the header of options.plan, if given */
    struct ul_order_memo *orders; /* orders found so far */
    struct ul_plan plan;
    struct ul_plan_ladder ladder; /* empty where the plan without a budget fits */
    bool wants_ladder;            /* even where the plan without a budget fits */
    bool keeps_read;              /* for compiles that reuse it */
    const char *quantized_folder; /* made by ul_compile_quantize, until ul_compile_done; or NULL */
    const char *quantized_from;   /* the model's own path, where there is such a folder */
    bool is_trial;                /* only its bytes and its time are needed */
    const struct ul_graph *largest;      /* as graph.largest */
    const struct ul_onnx_model *lender;  /* of its model files; or NULL */
    uint32_t said_dim_count;             /* sizes that options give; more may have been settled */
    const struct ul_size_pieces *pieces; /* of the range of sizes; NULL: it is not known, or none */
    const int64_t *point;  /* with pieces: the sizes at which it is compiled; NULL: the largest */
    bool is_library;       /* the caller wants source: the process is somebody else's */
    bool is_library_alone; /* only a library is emitted, without a program of its own */
    const char *notice;    /* something was done that nobody asked for; NULL: nothing */
    struct ul_report report;
    struct ul_text json; /* plan.json */
    char plan_sha256[65];
};

/* resolve.c: what the planner has to do; with a program, its budget covers the bytes outside the
 * buffer. */
struct ul_plan_options ul_compile_planning(const struct ul_compile *compile);

/* load.c */

void ul_compile_init(struct ul_compile *compile);
void ul_compile_done(struct ul_compile *compile);
/* Sets an option by its name, as the command line does; a flag's value is NULL. */
enum ul_status ul_compile_set(struct ul_compile *compile, const char *name,
                              const char *value) UL_MUST_CHECK;
/* Reads the model ("-": standard input) with the sizes and constants of the options: the graph as
 * it is in the file. ul_compile_build calls it itself. */
enum ul_status ul_compile_load(struct ul_compile *compile, const char *model_path) UL_MUST_CHECK;
/* The same, with sizes that only the model's own operators show (settle.c): `notice` lists them,
 * and they are added to the options. */
enum ul_status ul_compile_load_settled(struct ul_compile *compile,
                                       const char *model_path) UL_MUST_CHECK;
/* settle.c: where the message says that shape inference refused the model, makes it UL_USAGE and
 * names the sizes that cause it. The message stays where none is found. */
void ul_compile_explain_sizes(struct ul_compile *compile, const char *model_path,
                              struct ul_diag *diag);
/* dequantize.c: weights that --quantize, with one option on each line, keeps in few bits in a
 * program that trains, as the floats for which these stand. Loads the model, in a compile that does
 * nothing else. */
struct ul_compile_dequantized {
    const char *name; /* of the initializer */
    const struct ul_tensor *tensor;
};
enum ul_status ul_compile_dequantize(struct ul_compile *compile, const char *model_path,
                                     const char *lines, struct ul_compile_dequantized **list,
                                     uint32_t *count) UL_MUST_CHECK;
/* pipeline/build.c */

/* Loads, runs the passes, builds the program. Options that are open come from options.plan, if
 * there is one, else from the target and this machine. With options.stop_after the graph is the
 * result, and there is no program. */
enum ul_status ul_compile_build(struct ul_compile *compile, const char *model_path) UL_MUST_CHECK;
/* Compiles several models, which run one after another in one buffer, into a program with a root
 * for each. It stores equal weights once. */
enum ul_status ul_compile_build_roots(struct ul_compile *compile,
                                      const struct ul_texts *model_paths) UL_MUST_CHECK;
/* Plans and checks (or reads options.plan and checks it), and describes the plan: report, json. */
enum ul_status ul_compile_plan(struct ul_compile *compile) UL_MUST_CHECK;

/* trained.c: how a program that trains treats an initializer of floats. */
enum ul_trained_role {
    UL_TRAINED_YES,
    UL_TRAINED_DOUBTFUL,  /* trained, though the file does not show that it is a parameter */
    UL_TRAINED_STATISTIC, /* a running one: training writes it */
    UL_TRAINED_UNREACHED, /* no differentiable path leads from it to the loss */
    UL_TRAINED_BUFFER,    /* no parameter, by the record in the model's file */
    UL_TRAINED_NUMBER,    /* stays as it is, with one element */
    UL_TRAINED_FIXED,     /* stays as it is, or as the options say */
    UL_TRAINED_ROLES
};
/* `initializer` is one of training.initializers. */
enum ul_trained_role ul_compile_trained_role(const struct ul_compile *compile,
                                             ul_value_id initializer);
/* Writes notes about the roles, a line for each: how to train those that are not trained, and which
 * trained ones may not be parameters. */
void ul_compile_put_trained_notes(struct ul_compile *compile, struct ul_text *text);

/* quantize.c: with options.quantize_activations, makes a quantized model from the one at the path.
 * *quantized_path, a file that ul_compile_done removes, is the model for all further calls; without
 * the option it is the path itself. Call it before ul_compile_find_largest and ul_compile_build.
 * Runs a program that it compiles for this machine; UL_INVALID names data that do not fit. */
enum ul_status ul_compile_quantize(struct ul_compile *compile, const char *model_path,
                                   const char **quantized_path) UL_MUST_CHECK;
/* Makes the message name the model that was given, not the file that was made from it. */
void ul_compile_name_source(struct ul_compile *compile);

/* largest.c: with options.max_batch or options.max_dim, sets the largest batch, or size of a
 * dimension, that fits the budget, by planning others; where the number of micro-batches is open,
 * also the fastest one. Call it before ul_compile_build. UL_NO_FIT: not even the smallest size
 * fits. */
enum ul_status ul_compile_find_largest(struct ul_compile *compile,
                                       const char *model_path) UL_MUST_CHECK;

/* what_if.c: plans each model with each combination of values of the axes, in parallel on all
 * cores; UL_OK where one could be planned, within its budget or not. Several models, which must
 * differ, are the first axis. */
enum ul_status ul_compile_table(struct ul_compile *compile, const struct ul_texts *models,
                                const struct ul_axes *axes,
                                struct ul_saved_table *table) UL_MUST_CHECK;

/* advice.c: finds what makes the plan smaller, by plans of the model with other options, and how
 * much its own choices save: report.facts. Call it after ul_compile_plan, unless the plan is
 * options.plan. With wants_ladder it also finds what smaller budgets give; it is faster if
 * keeps_read was set before the build. */
void ul_compile_advise(struct ul_compile *compile, const char *model_path);
/* plan.c: writes `json` again, with what the report has gained since. */
void ul_compile_put_json(struct ul_compile *compile);

/* suffice.c: where the plan does not fit its spaces, finds for each a size with which the model can
 * be planned while the others stay as they are, for the text of ul_compile_require_fit. */
enum ul_status ul_compile_suffice(struct ul_compile *compile) UL_MUST_CHECK;

/* budget.c: UL_NO_FIT when the plan exceeds the budget; the text has the shortfall, the smallest
 * budget known to work, the peak and the values alive there. */
enum ul_status ul_compile_require_fit(struct ul_compile *compile) UL_MUST_CHECK;

/* emit.c */

/* Whether names of C may begin with it. */
bool ul_compile_is_prefix(const char *name);
/* Writes the source into `directory`, which is made if it does not exist. */
enum ul_status ul_compile_emit(struct ul_compile *compile, const char *directory) UL_MUST_CHECK;
/* Runs make in `directory` and moves the program to `output`. The C compiler prints where the
 * process itself does. */
enum ul_status ul_compile_make(struct ul_compile *compile, const char *directory,
                               const char *output) UL_MUST_CHECK;
/* The same for a shared library of the model (runtime/README.md). */
enum ul_status ul_compile_make_library(struct ul_compile *compile, const char *directory,
                                       const char *output) UL_MUST_CHECK;
/* The folder of installed data: next to the program or, where the source is gone, its intended
 * place. NULL: use the source tree. */
const char *ul_compile_installed_directory(struct ul_arena *arena);

/* fit.c: finds the target, the default where none is named; UL_USAGE when an option was given that
 * it cannot use, or a field has a value that its row does not take. ul_compile_build calls it
 * itself. */
enum ul_status ul_compile_fit(struct ul_compile *compile) UL_MUST_CHECK;

/* compiler.c: the compiler in the target's row; its command: from its option, its variable in the
 * environment, its own name, or its usual place; and whether it exists, where a machine may lack
 * it. */
const struct ul_target_compiler *ul_compile_compiler(const struct ul_compile *compile);
const char *ul_compile_command(struct ul_compile *compile);
bool ul_compile_has_compiler(struct ul_compile *compile);

/* describe.c: the compile's own plan as a case; its texts are the compile's. */
struct ul_saved_table_plan ul_compile_note(const struct ul_compile *compile);

/* plan_file.c: whether the model that was read is not the plan's; and the UL_MISMATCH that says
 * so. */
bool ul_compile_is_other_model(const struct ul_compile *compile);
enum ul_status ul_compile_report_other_model(struct ul_compile *compile) UL_MUST_CHECK;

/* UL_MISMATCH where the plan that was read gives its process, its own or (in a plan for source) a
 * caller's, fewer bytes than this machine finds. Call it after ul_compile_plan. */
enum ul_status ul_compile_check_process(struct ul_compile *compile) UL_MUST_CHECK;
/* UL_MISMATCH where a claim of the plan that was read, apart from its positions and ranges, differs
 * from its description here. *words: the claims that no description can give. `sample_count` as in
 * ul_compile_note. Call it after ul_compile_plan. */
enum ul_status ul_compile_check_said(struct ul_compile *compile, uint64_t sample_count,
                                     struct ul_report_words *words) UL_MUST_CHECK;

#endif
