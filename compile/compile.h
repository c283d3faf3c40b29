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
 * the independent checker. Nothing is printed and nothing ends the process but a defect of ours or
 * memory that ran out (base/base.h); compiles do not know of each other, but that those which one
 * makes to learn what their plans take go on with what it has found.
 * Ownership: everything lives in `keep`, until ul_compile_done; texts and lists that a caller
 * assigns to options must live as long.
 * Units: bytes; costs in predicted nanoseconds of the profile.
 * Failure: a status, and its text in `diag`; after one, ul_compile_done alone may follow. A call
 * out of the order above is a defect of the caller, and aborts as ours do (UL_ASSERT). That a
 * budget is not met is no failure of ul_compile_plan: the plan is there, and report says of it what
 * plan.json says.
 * The environment is read where options leave it open: CC, NVCC, PATH, TMPDIR, ULLAGE_RUNTIME.
 */
#ifndef UL_COMPILE_H
#define UL_COMPILE_H

#include "codegen/program/footprint.h"
#include "codegen/program/library.h"
#include "codegen/program/program.h"
#include "codegen/target.h"
#include "compile/options/options.h"
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "report/saved.h"

/* ---- Options ---- */

enum { UL_COMPILE_MAX_THREADS = 1024 };
enum { UL_COMPILE_MAX_PARTS = 65536 }; /* micro-batches of a step */

enum ul_weights_place { UL_WEIGHTS_ARENA, UL_WEIGHTS_ROM, UL_WEIGHTS_FILE };
enum ul_io_place { UL_IO_ARENA, UL_IO_CALLER };
enum ul_budget_of { UL_BUDGET_PROCESS, UL_BUDGET_ARENA };
/* AMP: of programs that train, with a loss scale. */
enum ul_precision { UL_PRECISION_F32, UL_PRECISION_F16, UL_PRECISION_BF16, UL_PRECISION_AMP_F16 };
enum ul_calibration { UL_CALIBRATION_MINMAX, UL_CALIBRATION_PERCENTILE, UL_CALIBRATION_ENTROPY };
/* What the words of options mean that may also be something else, which is 0. */
enum ul_checkpoint {
    UL_CHECKPOINT_NAMES,
    UL_CHECKPOINT_NONE,
    UL_CHECKPOINT_PRODUCTS,
    UL_CHECKPOINT_SQRT,
    UL_CHECKPOINT_BLOCKS
};
enum ul_offload { UL_OFFLOAD_FILE, UL_OFFLOAD_NONE, UL_OFFLOAD_HOST };
enum ul_march { UL_MARCH_NAMED, UL_MARCH_NATIVE, UL_MARCH_NONE };
enum ul_streams { UL_STREAMS_AUTO, UL_STREAMS_ONE, UL_STREAMS_TWO };
enum ul_cudnn_choice { UL_CUDNN_AUTO, UL_CUDNN_ON, UL_CUDNN_OFF, UL_CUDNN_FOUND };

/* Zeroed fields are the defaults; the rows of options.def say what each is. */
struct ul_compile_options {
    struct ul_options base;
#define UL_OPTION(type, field, ...) type field;
#include "compile/options/options.def"
#undef UL_OPTION
    const char *runtime_dir; /* of the runtime's sources; NULL: as installed */
};

extern const struct ul_option_table ul_compile_option_table;

/* Whether a target has a use for the option. */
bool ul_option_fits(const struct ul_option *row, const struct ul_target *target);
/* What the word means that is said of the option; 0 where it is none of its words. */
unsigned ul_compile_word(const char *option, const char *said);
/* Whether values may be offloaded. */
bool ul_compile_offloads(const struct ul_compile_options *options);

/* ---- One compile ---- */

/* Names of the library that several models make begin so. */
#define UL_ROOTS_PREFIX "shared"

/* A model of several that are one program. */
struct ul_compile_root {
    const char *path;
    const char *name; /* an identifier of C: of its root, and what its functions begin with */
    struct ul_compile *part; /* that reads and simplifies it */
};

struct ul_compile {
    struct ul_arena keep, scratch;
    struct ul_compile_options options; /* after ul_compile_build with what they left open */
    struct ul_compile_options asked;   /* as they were before */
    struct ul_diag diag;
    /* Called when a part of the work begins that may take long ("planning"), and with NULL when it
     * ends. NULL: nobody is told. */
    void (*progress)(void *context, const char *what);
    void *progress_context;
    FILE *dump; /* of print_after and print_kernels; NULL: nothing is printed */

    struct ul_graph graph;
    struct ul_graph as_read;       /* where keeps_read says so */
    struct ul_graph before_layout; /* for variants; empty: there is none */
    struct ul_onnx_model model;
    struct ul_frontend_options given; /* what the options say of its inputs */
    bool loaded;                      /* ul_model_done is due */
    uint32_t root_count;              /* 0: one model */
    uint64_t banks_bytes;             /* with --space: what a plan may reserve; else 0 */
    struct ul_compile_root *roots;
    bool is_root;             /* of another compile, which joins its graph with others */
    uint64_t weight_elements; /* of the model as it is read: what is called its parameters */
    struct ul_profile profile;
    struct ul_training training;             /* where options.train says so */
    const struct ul_target_library *library; /* of the target; NULL: it has none */
    const struct ul_compile *earlier; /* outlives this one, which goes on with its library, and its
                                         graph as it was read, where it needs the same; NULL: none
                                         does */
    const char *cudnn; /* "on", "found", "not found" or "off"; NULL: none of the target's */
    struct ul_program *program;
    struct ul_arena **adopted; /* what variants lie in that it has taken over */
    uint32_t adopted_count, adopted_capacity;
    struct ul_saved plan_header;  /* of options.plan where that is given */
    struct ul_order_memo *orders; /* that it has found so far */
    struct ul_plan plan;
    struct ul_plan_ladder ladder; /* empty where the plan without a budget does */
    bool wants_ladder;            /* though the plan without a budget does */
    bool keeps_read;              /* for compiles that go on with it */
    const char *quantized_folder; /* of ul_compile_quantize, until ul_compile_done; or NULL */
    const char *quantized_from;   /* the model's own path, where there is such a folder */
    bool is_trial;                /* only its bytes and its time are asked for */
    bool is_library;              /* the caller wants source: the process is somebody else's */
    bool is_library_alone;        /* what is emitted is a library, without a program of its own */
    const char *notice;           /* what was done that nobody asked for; NULL: nothing */
    struct ul_report report;
    struct ul_text json; /* plan.json */
    char plan_sha256[65];
};

/* options.c: what the planner is asked for. */
struct ul_plan_options ul_compile_planning(const struct ul_compile *compile);

/* load.c */

void ul_compile_init(struct ul_compile *compile);
void ul_compile_done(struct ul_compile *compile);
/* Says an option by its name, as the command line does; a flag's value is NULL. */
enum ul_status ul_compile_set(struct ul_compile *compile, const char *name,
                              const char *value) UL_MUST_CHECK;
/* Reads the model ("-": standard input) with the sizes and constants of the options: the graph as
 * it is in the file. ul_compile_build does so itself. */
enum ul_status ul_compile_load(struct ul_compile *compile, const char *model_path) UL_MUST_CHECK;
/* The same, with sizes that nothing says but the model's own operators (settle.c), of which
 * `notice` tells; they are added to the options. */
enum ul_status ul_compile_load_settled(struct ul_compile *compile,
                                       const char *model_path) UL_MUST_CHECK;
/* settle.c: has the message, which says that shape inference refused the model, name the sizes that
 * are to blame; UL_USAGE then. It stays where none is found. */
void ul_compile_explain_sizes(struct ul_compile *compile, const char *model_path,
                              struct ul_diag *diag);
/* dequantize.c: weights that --quantize, an option a line, keeps in few bits in a program that
 * trains, as the floats that these stand for. Loads the model, of a compile that does nothing
 * else. */
struct ul_compile_dequantized {
    const char *name; /* of the initializer */
    const struct ul_tensor *tensor;
};
enum ul_status ul_compile_dequantize(struct ul_compile *compile, const char *model_path,
                                     const char *lines, struct ul_compile_dequantized **list,
                                     uint32_t *count) UL_MUST_CHECK;
/* compile.c */

/* Loads, runs the passes, builds the program. What options leave open is taken from options.plan,
 * if there is one, else from the target and this machine. With options.stop_after the graph is the
 * result, and there is no program. */
enum ul_status ul_compile_build(struct ul_compile *compile, const char *model_path) UL_MUST_CHECK;
/* Compiles several models, which run one after another in one buffer, into a program with a root
 * for each. It keeps their equal weights once. */
enum ul_status ul_compile_build_roots(struct ul_compile *compile,
                                      const struct ul_texts *model_paths) UL_MUST_CHECK;
/* Plans and checks (or reads options.plan and checks it), and describes the plan: report, json. */
enum ul_status ul_compile_plan(struct ul_compile *compile) UL_MUST_CHECK;

/* trained.c: what a program that trains does with an initializer of floats. */
enum ul_trained_role {
    UL_TRAINED_YES,
    UL_TRAINED_DOUBTFUL,  /* trained, and maybe no parameter: the file does not say */
    UL_TRAINED_STATISTIC, /* a running one: training writes it */
    UL_TRAINED_UNREACHED, /* nothing differentiable leads to the loss from it */
    UL_TRAINED_BUFFER,    /* no parameter, by the record in the model's file */
    UL_TRAINED_NUMBER,    /* as it is read, of one element */
    UL_TRAINED_FIXED,     /* as it is read, or as the options say */
    UL_TRAINED_ROLES
};
/* `initializer` is one of training.initializers. */
enum ul_trained_role ul_compile_trained_role(const struct ul_compile *compile,
                                             ul_value_id initializer);
/* What the roles leave to say, each line begun: how to train those that are none, and which of
 * those that are trained may be no parameters. */
void ul_compile_put_trained_notes(struct ul_compile *compile, struct ul_text *text);

/* quantize.c: with options.quantize_activations, makes a quantized model of the one at the path,
 * which is the model of all further calls: *quantized_path, a file that ul_compile_done removes.
 * Else the path itself. Before ul_compile_find_largest and ul_compile_build. Runs a program that it
 * compiles for this machine; UL_INVALID names data that do not fit. */
enum ul_status ul_compile_quantize(struct ul_compile *compile, const char *model_path,
                                   const char **quantized_path) UL_MUST_CHECK;
/* Has the message that is set name the model that was given, not the file that was made of it. */
void ul_compile_name_source(struct ul_compile *compile);

/* largest.c: with options.max_batch or options.max_dim, has the compile take the largest batch, or
 * size of a dimension, that fits its budget, by planning others; with a number of micro-batches
 * that is left open, that of the least time. Before ul_compile_build. UL_NO_FIT: not even the
 * smallest does. */
enum ul_status ul_compile_find_largest(struct ul_compile *compile,
                                       const char *model_path) UL_MUST_CHECK;

/* what_if.c: plans each of the models with each combination of values that the axes have, on as
 * many cores as there are; UL_OK where one could be planned, within its budget or not. Of several
 * models, which must differ, the model is the first axis. */
enum ul_status ul_compile_table(struct ul_compile *compile, const struct ul_texts *models,
                                const struct ul_axes *axes,
                                struct ul_report_table *table) UL_MUST_CHECK;

/* advice.c: what makes the plan smaller, by plans that are made of the model with other options,
 * and what its own choices make it smaller by: report.facts. After ul_compile_plan, not of
 * options.plan; with wants_ladder also what smaller budgets give, and sooner where keeps_read was
 * set before the build. */
void ul_compile_advise(struct ul_compile *compile, const char *model_path);
/* compile.c: `json` again, with what the report has come to say since. */
void ul_compile_put_json(struct ul_compile *compile);

/* budget.c: UL_NO_FIT when the plan exceeds the budget: the shortfall, the smallest budget known to
 * work, the peak and what is alive there. */
enum ul_status ul_compile_require_fit(struct ul_compile *compile) UL_MUST_CHECK;

/* emit.c */

/* Whether names of C may begin with it. */
bool ul_compile_is_prefix(const char *name);
/* Writes the source into `directory`, which is made where it does not exist. */
enum ul_status ul_compile_emit(struct ul_compile *compile, const char *directory) UL_MUST_CHECK;
/* Runs make in `directory` and moves the program to `output`. The C compiler's words go where the
 * process's own do. */
enum ul_status ul_compile_make(struct ul_compile *compile, const char *directory,
                               const char *output) UL_MUST_CHECK;
/* The same of a shared library of the model (runtime/README.md). */
enum ul_status ul_compile_make_library(struct ul_compile *compile, const char *directory,
                                       const char *output) UL_MUST_CHECK;
/* The folder of installed data: beside the program or, where the source is gone, where it was to be
 * installed. NULL: the source is what there is. */
const char *ul_compile_installed_directory(struct ul_arena *arena);

/* fit.c: finds the target, the default where none is named; UL_USAGE when an option was said that
 * it has no use for, or a field holds what its row does not take. ul_compile_build does so itself.
 */
enum ul_status ul_compile_fit(struct ul_compile *compile) UL_MUST_CHECK;

/* compiler.c: the compiler of the target's row; the command that it is: by its option, its variable
 * in the environment, its own name, or where it usually is; and whether it is there, where a
 * machine may be without. */
const struct ul_target_compiler *ul_compile_compiler(const struct ul_compile *compile);
const char *ul_compile_command(struct ul_compile *compile);
bool ul_compile_has_compiler(struct ul_compile *compile);

/* describe.c: what a compile's own plan is as a case; its texts are the compile's. */
struct ul_report_case ul_compile_note(const struct ul_compile *compile);

/* plan_file.c: whether the model that was read is another than the plan's; and UL_MISMATCH that
 * says so. */
bool ul_compile_is_other_model(const struct ul_compile *compile);
enum ul_status ul_compile_report_other_model(struct ul_compile *compile) UL_MUST_CHECK;

/* UL_MISMATCH where the plan that was read says less of its process than this machine finds, be it
 * a process of its own or, of a plan for source, a caller's. After ul_compile_plan. */
enum ul_status ul_compile_check_process(struct ul_compile *compile) UL_MUST_CHECK;
/* UL_MISMATCH where what the plan that was read says beside its positions and ranges is not what
 * its description says here. *words: what of it no description can say.
 * `sample_count` as ul_compile_note says it. After ul_compile_plan. */
enum ul_status ul_compile_check_said(struct ul_compile *compile, uint64_t sample_count,
                                     struct ul_report_words *words) UL_MUST_CHECK;

/* tensor_file.c: a tensor from .npy or ONNX .pb. */
enum ul_status ul_tensor_read_file(struct ul_arena *arena, const char *path,
                                   const struct ul_tensor **tensor,
                                   struct ul_diag *diag) UL_MUST_CHECK;

/* The same of the bytes of a .npy; `path` names them in messages. */
enum ul_status ul_tensor_read_npy(struct ul_arena *arena, const struct ul_file *file,
                                  const char *path, const struct ul_tensor **tensor,
                                  struct ul_diag *diag) UL_MUST_CHECK;

/* npz.c: what a .npz holds; entries are borrowed from the file, which the caller unmaps. */

struct ul_npz_entry {
    const char *name; /* without ".npy" */
    struct ul_file npy;
    uint32_t crc;
};

enum ul_status ul_npz_list(struct ul_arena *arena, const struct ul_file *file, const char *path,
                           const struct ul_npz_entry **entries, uint32_t *count,
                           struct ul_diag *diag) UL_MUST_CHECK;
/* UL_INVALID where its checksum is another. */
enum ul_status ul_npz_read(struct ul_arena *arena, const struct ul_npz_entry *entry,
                           const char *path, const struct ul_tensor **tensor,
                           struct ul_diag *diag) UL_MUST_CHECK;

/* ---- Other programs, and folders for them (process.c) ---- */

/* Runs a program and waits; its exit code, UL_PROCESS_SIGNAL and the signal that ended it, or -1
 * where it could not start. What it prints goes to the file `capture` unless that is NULL. A stop
 * (Ctrl-C) goes to all that the program started; then this one ends by it as soon as no temporary
 * folder is left. */
enum { UL_PROCESS_SIGNAL = 256 };
int ul_process_run(const char *const *argv, const char *capture);
/* "exit code 3", "signal 11, Segmentation fault" */
const char *ul_process_end_text(struct ul_arena *arena, int code);
/* Says why a program failed where neither it nor its input is at fault. UL_NO_FIT: it was killed,
 * as systems do that have no memory left. UL_IO: no file of `size_bytes` can be written beside
 * `path`, which the message names. UL_OK: the fault is another. `name` is the message's subject.
 */
enum ul_status ul_process_check(struct ul_arena *arena, const char *name, int code,
                                const char *path, uint64_t size_bytes,
                                struct ul_diag *diag) UL_MUST_CHECK;
/* A folder that is to come into being whole, or not at all, is written beside its place, or inside
 * where it exists; stops wait meanwhile. `status` says whether all was written. */
struct ul_staging {
    const char *directory; /* the place */
    const char *path;      /* where to write */
    bool exists;           /* the place did before */
    /* Set by the caller: a file of this name is of an earlier result, and goes if the new one has
     * none of that name. */
    bool (*is_own)(const char *name);
};
enum ul_status ul_staging_begin(struct ul_arena *arena, const char *directory,
                                struct ul_staging *staging, struct ul_diag *diag) UL_MUST_CHECK;
enum ul_status ul_staging_end(struct ul_arena *arena, const struct ul_staging *staging,
                              enum ul_status status, struct ul_diag *diag) UL_MUST_CHECK;
/* A fresh folder below TMPDIR. From here to ul_temporary_remove, which the same thread calls, stops
 * wait: SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGPIPE. With the last folder of a thread its mask of
 * signals is again what it was before the first. */
enum ul_status ul_temporary_make(struct ul_arena *arena, const char **directory,
                                 struct ul_diag *diag) UL_MUST_CHECK;
void ul_temporary_remove(const char *directory);
/* A message of a file in the folder that cannot be written gets the remedy. */
void ul_temporary_explain(const char *directory, struct ul_diag *diag);
/* The folder with all that is in it. */
void ul_tree_remove(const char *directory);

#endif
