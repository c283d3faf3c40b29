/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: one file a subcommand, each of which parses, calls compile/ and prints.
 *
 * Invariants: a command returns its exit code; results go to standard output, everything else to
 * standard error; an error is one message that names the file, the node and the remedy.
 * Ownership: a command owns its job, which main.c begins and ends.
 */
#ifndef UL_CLI_H
#define UL_CLI_H

#include "compile/compile.h"
#include "report/report.h"
#include "report/saved.h"

/* options.c */

enum ul_cli_advice { UL_ADVICE_AUTO, UL_ADVICE_ON, UL_ADVICE_OFF };

/* What the commands take beside the options of a compile. */
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
    struct ul_axes axes;   /* options that were given a list of values */
    struct ul_texts files; /* what is no option */
    bool threads_sleep;    /* environment.c */
};

/* What a command is used for, and the command line that does it. */
struct ul_cli_example {
    const char *purpose, *command;
};

/* What a command says of itself. */
struct ul_cli_command {
    const char *name;
    const char *arguments; /* "MODEL.onnx -o PROGRAM [options]" */
    const char *summary;   /* one sentence */
    const char *details;   /* more for its help: paragraphs, folded when printed; or NULL */
    const char *group;     /* the line above it in ullage --help */
    /* How the names of the files end that it takes, "onnx json"; "": in any way; NULL: none. */
    const char *endings;
    const struct ul_cli_example *examples; /* the last is followed by one of NULL */
    enum ul_option_command bit;
    enum ul_status (*run)(struct ul_cli_job *job);
};

void ul_cli_job_init(struct ul_cli_job *job);
void ul_cli_job_done(struct ul_cli_job *job);
/* Reads the arguments after the command's name. UL_USAGE with the wrong word. Sets *helped, and
 * reads no further, where --help was given. */
enum ul_status ul_cli_parse(const struct ul_cli_command *command, int argc, char **argv,
                            struct ul_cli_job *job, bool *helped) UL_MUST_CHECK;
/* Option `index` of those that the command takes, in the order of the tables; NULL behind the
 * last. */
const struct ul_option *ul_cli_option_at(const struct ul_cli_command *command, uint32_t index);
/* Whether the command line said the cli's own option of that name. */
bool ul_cli_is_said(const struct ul_cli_job *job, const char *name);

/* inspect_training.c: lists what the model would train. */
enum ul_status ul_cli_inspect_training(struct ul_cli_job *job) UL_MUST_CHECK;

/* help.c: grouped, in at most 80 columns. */

void ul_cli_put_help(struct ul_text *text, const struct ul_cli_command *command);
/* The list of all commands. */
void ul_cli_put_commands(struct ul_text *text, const struct ul_cli_command *const *commands,
                         uint32_t count);
/* The line above a group of options. */
const char *ul_cli_group_title(enum ul_option_group group);
/* What it does, and the words that it takes. */
void ul_cli_put_option_help(struct ul_text *text, const struct ul_option *row);

/* facts.c: what help and manual pages say beside the options, each list ended by a name that is
 * NULL. */

/* What is no command of the list: `option` behind the command, "help" or nothing. */
struct ul_cli_form {
    const char *command, *option;
    const char *argument; /* or NULL */
    const char *what;
};
extern const struct ul_cli_form ul_cli_forms[];
/* "help --man [COMMAND]" */
const char *ul_cli_form_text(struct ul_arena *arena, const struct ul_cli_form *form);

/* What writes completion for a shell. */
struct ul_cli_shell {
    const char *name;
    void (*put)(struct ul_text *text, const struct ul_cli_command *const *commands, uint32_t count);
};
extern const struct ul_cli_shell ul_cli_shells[];
/* "bash zsh", with something else between them. */
const char *ul_cli_shell_names(struct ul_arena *arena, const char *between);

struct ul_cli_fact {
    const char *name;
    uint32_t commands; /* enum ul_option_command, of those that it is for; 0: of all */
    const char *what;
};
/* What the program is for, as the part of a sentence. */
extern const char ul_cli_about[];
extern const struct ul_cli_fact ul_cli_exit_codes[], ul_cli_environment[], ul_cli_files[];

/* man.c: a manual page, of a command, or of the program (NULL), in the macros of man(7). The same
 * bytes at any time. */
void ul_cli_put_man(struct ul_text *text, const struct ul_cli_command *command,
                    const struct ul_cli_command *const *commands, uint32_t count);

/* completion_bash.c, completion_zsh.c */
void ul_cli_put_bash(struct ul_text *text, const struct ul_cli_command *const *commands,
                     uint32_t count);
void ul_cli_put_zsh(struct ul_text *text, const struct ul_cli_command *const *commands,
                    uint32_t count);

/* completion.c: what the value of an option, or a file of a command, may be. */

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
/* Of an option that takes a value; appended in the order of their kinds, none twice. */
void ul_cli_add_values(struct ul_arena *arena, const struct ul_option *row,
                       struct ul_cli_candidates *candidates);
void ul_cli_add_files(struct ul_arena *arena, const struct ul_cli_command *command,
                      struct ul_cli_candidates *candidates);

/* help_json.c: all commands with their options (cli/README.md). */
void ul_cli_put_json(struct ul_text *text, const struct ul_cli_command *const *commands,
                     uint32_t count);

/* targets.c: UL_USAGE when a result would go over an input, over another result, or into a folder
 * that holds something else; UL_IO when it has no folder to go to. */
enum ul_status ul_cli_check_targets(struct ul_cli_job *job) UL_MUST_CHECK;
/* The same of one folder; `option` is what named it. */
enum ul_status ul_cli_check_folder(struct ul_cli_job *job, const char *option,
                                   const char *path) UL_MUST_CHECK;

/* Whether a result goes to standard output, which then has that alone. */
bool ul_cli_stdout_is_taken(const struct ul_cli_job *job);

/* problem_file.c: the problem in text that the file is; NULL where it is something else. */
enum ul_status ul_cli_read_problem(struct ul_cli_job *job, const char *path,
                                   struct ul_problem **problem) UL_MUST_CHECK;

/* quantize.c: the model to compile: the one that was given, or what --quantize-activations makes of
 * it, which goes where --save-quantized says. */
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
 * QuantizeLinear makes of the floats. Messages say that the tensor came from `source`. */
enum ul_status ul_cli_write_edge(const struct ul_tensor *tensor, const char *source,
                                 const char *name, const struct ul_cli_edge *edge,
                                 const char *target, struct ul_diag *diag) UL_MUST_CHECK;

/* drawings.c */

enum ul_status ul_cli_read_saved(struct ul_cli_job *job, const char *path,
                                 struct ul_saved *saved) UL_MUST_CHECK;
/* To the files of --html, --csv, --csv-steps and --trace. */
enum ul_status ul_cli_draw(struct ul_cli_job *job, const struct ul_saved *saved) UL_MUST_CHECK;

/* shared.c: UL_USAGE for one model with --shared, and without it for a link, and for several models
 * unless each is one by itself (`takes_many`). */
enum ul_status ul_cli_check_shared(struct ul_cli_job *job, bool takes_many) UL_MUST_CHECK;
/* UL_USAGE for --prefix where nothing is emitted and there is one model. */
enum ul_status ul_cli_check_names(struct ul_cli_job *job) UL_MUST_CHECK;

/* commit.c, which cmake/commit.cmake writes: " (commit 0123456789ab)", or "" where nobody knows. */
extern const char ul_cli_commit[];

/* environment.c */

/* Begins the program again without the variables by which malloc, oneDNN and OpenMP would change a
 * plan, where some are set, by exec; true where none are. False: it cannot. Called first of all.
 * *threads_sleep: threads that wait do so at once. */
bool ul_cli_settle_environment(char **argv, bool *threads_sleep);
/* Begins the program again so that they do; where it cannot, it goes on as it is. */
void ul_cli_let_threads_sleep(char **argv);

/* print.c */

/* A compile's text on standard output, as people may read it (ul_text_put_shown). */
void ul_cli_print(const struct ul_text *text);
/* Formats words and prints them in the same way. Everything that people read on standard output or
 * standard error goes through these two functions, but for the summary and the message of a child
 * that finds no program, which escape by themselves. */
void ul_cli_say(FILE *stream, const char *format, ...) UL_PRINTF(2, 3);
/* What a compile did that nobody asked for, on stderr. */
void ul_cli_put_notice(const struct ul_cli_job *job);
/* How text may look where standard output goes: blocks and colours on terminals that have them. */
struct ul_summary_style ul_cli_style(void);
/* Where a line with names ends: as $COLUMNS or else the terminal says, at least at 80; else, in
 * files and pipes, so far that names stay whole. */
uint32_t ul_cli_line_columns(void);
/* One line on a terminal that says what is going on; NULL clears it. */
void ul_cli_progress(void *context, const char *what);

extern const struct ul_cli_command ul_command_compile, ul_command_plan, ul_command_check,
    ul_command_verify, ul_command_inspect, ul_command_export, ul_command_pack, ul_command_solve,
    ul_command_profile, ul_command_diff, ul_command_report;

#endif
