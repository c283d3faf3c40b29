/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one file for each subcommand, which parses, calls compile/ and prints.
 *
 * Invariants: a command returns its exit code; results go to standard output, everything else to
 * standard error; an error is one message that names the file, the node and the remedy. Ownership:
 * a command owns its job, which main.c begins and ends. */
#ifndef UL_CLI_H
#define UL_CLI_H

#include "compile/compile.h"
#include "report/report.h"
#include "report/saved.h"

/* options.c */

enum ul_cli_advice { UL_ADVICE_AUTO, UL_ADVICE_ON, UL_ADVICE_OFF };

/* Options of the commands that are not those of a compile. */
struct ul_cli_options {
    struct ul_options base;
#define UL_OPTION(type, field, ...) type field;
#include "cli/options.def"
#undef UL_OPTION
};

extern const struct ul_option_table ul_cli_option_table;

struct ul_cli_job {
    struct ul_compile compile; /* with its options; errors go into its diag */
    struct ul_cli_options options;
    struct ul_axes axes;   /* options with lists of values */
    struct ul_texts files; /* arguments that are no options */
    bool threads_sleep;    /* environment.c */
};

/* A use of a command, and the command line for it. */
struct ul_cli_example {
    const char *purpose, *command;
};

/* A command, as help describes it. */
struct ul_cli_command {
    const char *name;
    const char *arguments; /* "MODEL.onnx -o PROGRAM [options]" */
    const char *summary;   /* one sentence */
    const char *details;   /* more paragraphs for its help, folded when printed; or NULL */
    const char *group;     /* the heading above it in ullage --help */
    /* Endings of the files that it takes, "onnx json"; "": any; NULL: it takes none. */
    const char *endings;
    const struct ul_cli_example *examples; /* ends with an entry of NULL */
    enum ul_option_command bit;
    enum ul_status (*run)(struct ul_cli_job *job);
};

void ul_cli_job_init(struct ul_cli_job *job);
void ul_cli_job_done(struct ul_cli_job *job);
/* Reads the arguments after the command's name. UL_USAGE names the wrong word. At --help it sets
 * *helped and reads no further. */
enum ul_status ul_cli_parse(const struct ul_cli_command *command, int argc, char **argv,
                            struct ul_cli_job *job, bool *helped) UL_MUST_CHECK;
/* Option `index` of those that the command takes, in the order of the tables; NULL after the
 * last. */
const struct ul_option *ul_cli_option_at(const struct ul_cli_command *command, uint32_t index);
/* Whether the command line has the cli's own option of that name. */
bool ul_cli_is_said(const struct ul_cli_job *job, const char *name);

/* inspect_training.c: lists what the model would train. */
enum ul_status ul_cli_inspect_training(struct ul_cli_job *job) UL_MUST_CHECK;

/* help.c: grouped, in at most 80 columns. */

void ul_cli_put_help(struct ul_text *text, const struct ul_cli_command *command);
/* The list of all commands. */
void ul_cli_put_commands(struct ul_text *text, const struct ul_cli_command *const *commands,
                         uint32_t count);
/* The heading of a group of options. */
const char *ul_cli_group_title(enum ul_option_group group);
/* Writes what the option does, and the words that it takes. */
void ul_cli_put_option_help(struct ul_text *text, const struct ul_option *row);

/* facts.c: what help and manual pages say apart from options; each list ends with a name that is
 * NULL. */

/* A form that is not in the list of commands: `option` after the command, "help" or nothing. */
struct ul_cli_form {
    const char *command, *option;
    const char *argument; /* or NULL */
    const char *what;
};
extern const struct ul_cli_form ul_cli_forms[];
/* "help --man [COMMAND]" */
const char *ul_cli_form_text(struct ul_arena *arena, const struct ul_cli_form *form);

/* Writes completion for a shell. */
struct ul_cli_shell {
    const char *name;
    void (*put)(struct ul_text *text, const struct ul_cli_command *const *commands, uint32_t count);
};
extern const struct ul_cli_shell ul_cli_shells[];
/* "bash zsh", with `between` between them. */
const char *ul_cli_shell_names(struct ul_arena *arena, const char *between);

struct ul_cli_fact {
    const char *name;
    uint32_t commands; /* bits of enum ul_option_command that it is for; 0: all */
    const char *what;
};
/* What the program is for, as part of a sentence. */
extern const char ul_cli_about[];
extern const struct ul_cli_fact ul_cli_exit_codes[], ul_cli_environment[], ul_cli_files[];

/* man.c: a manual page of a command, or of the program (NULL), in the macros of man(7). Its bytes
 * do not depend on the time. */
void ul_cli_put_man(struct ul_text *text, const struct ul_cli_command *command,
                    const struct ul_cli_command *const *commands, uint32_t count);

/* completion_bash.c, completion_zsh.c */
void ul_cli_put_bash(struct ul_text *text, const struct ul_cli_command *const *commands,
                     uint32_t count);
void ul_cli_put_zsh(struct ul_text *text, const struct ul_cli_command *const *commands,
                    uint32_t count);

/* completion.c: what the value of an option, or a file of a command, can be. */

enum ul_cli_candidate_kind {
    UL_CANDIDATE_WORD,  /* `text` itself */
    UL_CANDIDATE_BEGIN, /* a word that begins with `text`, as in "output:" */
    UL_CANDIDATE_FILE,  /* a file whose name ends with a dot and `text`; "": any */
    UL_CANDIDATE_FOLDER /* any folder */
};
struct ul_cli_candidates {
    uint32_t count, capacity;
    struct ul_cli_candidate {
        enum ul_cli_candidate_kind kind;
        const char *text;
    } * items;
};
/* For an option that takes a value; appended in the order of their kinds, without duplicates. */
void ul_cli_add_values(struct ul_arena *arena, const struct ul_option *row,
                       struct ul_cli_candidates *candidates);
void ul_cli_add_files(struct ul_arena *arena, const struct ul_cli_command *command,
                      struct ul_cli_candidates *candidates);

/* help_json.c: all commands with their options (cli/README.md). */
void ul_cli_put_json(struct ul_text *text, const struct ul_cli_command *const *commands,
                     uint32_t count);

/* targets.c: UL_USAGE when a result would overwrite an input or another result, or go into a folder
 * that holds something else; UL_IO when its folder does not exist. */
enum ul_status ul_cli_check_targets(struct ul_cli_job *job) UL_MUST_CHECK;
/* The same for one folder; `option` is the option that named it. */
enum ul_status ul_cli_check_folder(struct ul_cli_job *job, const char *option,
                                   const char *path) UL_MUST_CHECK;

/* Whether a result goes to standard output, which then gets nothing else. */
bool ul_cli_stdout_is_taken(const struct ul_cli_job *job);

/* problem_file.c: reads a problem in text; NULL where the file is something else. */
enum ul_status ul_cli_read_problem(struct ul_cli_job *job, const char *path,
                                   struct ul_problem **problem) UL_MUST_CHECK;

/* quantize.c: the model to compile: the given one, or the one that --quantize-activations makes
 * from it and --save-quantized writes. */
enum ul_status ul_cli_quantize(struct ul_cli_job *job, const char **model) UL_MUST_CHECK;

/* verify_edges.c */

/* An element x of an input or output of a program without floats stands for (x - zero) * scale;
 * where the scale is 0, x is the number itself. */
struct ul_cli_edge {
    enum ul_dtype dtype;
    double scale;
    int64_t zero;
};
/* Writes a tensor to the file `target`. Where the edge has a scale, the file gets the integers that
 * QuantizeLinear makes from the floats. Messages name `source`. */
enum ul_status ul_cli_write_edge(const struct ul_tensor *tensor, const char *source,
                                 const char *name, const struct ul_cli_edge *edge,
                                 const char *target, struct ul_diag *diag) UL_MUST_CHECK;

/* drawings.c */

enum ul_status ul_cli_read_saved(struct ul_cli_job *job, const char *path,
                                 struct ul_saved *saved) UL_MUST_CHECK;
/* Writes the files of --html, --csv, --csv-steps and --trace. */
enum ul_status ul_cli_draw(struct ul_cli_job *job, const struct ul_saved *saved) UL_MUST_CHECK;

/* shared.c: UL_USAGE for --shared with one model, for a link without --shared, and for several
 * models without it unless each is handled alone (`takes_many`). */
enum ul_status ul_cli_check_shared(struct ul_cli_job *job, bool takes_many) UL_MUST_CHECK;
/* UL_USAGE for --prefix where nothing is emitted and there is one model. */
enum ul_status ul_cli_check_names(struct ul_cli_job *job) UL_MUST_CHECK;

/* commit.c, which cmake/commit.cmake writes: " (commit 0123456789ab)", or "" where it is not
 * known. */
extern const char ul_cli_commit[];

/* environment.c */

/* malloc, oneDNN and OpenMP read variables that would change a plan. Where some are set, this
 * begins the program again without them, by exec; else it returns true. False: exec failed. Call it
 * before anything else. *threads_sleep: waiting threads sleep at once. */
bool ul_cli_settle_environment(char **argv, bool *threads_sleep);
/* Begins the program again so that waiting threads sleep at once; where that fails, it goes on as
 * it is. */
void ul_cli_let_threads_sleep(char **argv);

/* print.c */

/* Prints a compile's text on standard output, made readable (ul_text_put_shown). */
void ul_cli_print(const struct ul_text *text);
/* Formats words and prints them in the same way. Everything that people read on standard output or
 * standard error goes through these two functions, except the summary, and the message of a child
 * that finds no program: they escape by themselves. */
void ul_cli_say(FILE *stream, const char *format, ...) UL_PRINTF(2, 3);
/* Reports on stderr what a compile did that nobody asked for. */
void ul_cli_put_notice(const struct ul_cli_job *job);
/* How text may look on standard output: blocks and colours where a terminal has them. */
struct ul_summary_style ul_cli_style(void);
/* Where a line with names ends: at $COLUMNS, else the terminal's width, but at least 80; in files
 * and pipes, wide enough for whole names. */
uint32_t ul_cli_line_columns(void);
/* Shows one line on a terminal that says what is going on; NULL clears it. */
void ul_cli_progress(void *context, const char *what);

extern const struct ul_cli_command ul_command_compile, ul_command_plan, ul_command_check,
    ul_command_verify, ul_command_inspect, ul_command_export, ul_command_pack, ul_command_solve,
    ul_command_profile, ul_command_diff, ul_command_report;

#endif
