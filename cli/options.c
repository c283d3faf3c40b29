/* SPDX-License-Identifier: Apache-2.0 */
/* Parses the command line into options: those of the compile, and those of the commands. */
#define _GNU_SOURCE /* getopt_long */
#include "cli/cli.h"

#include <getopt.h>
#include <string.h>

static struct ul_option_word advice_words(uint32_t index)
{
    static const struct ul_option_word words[] = {
        {"auto", UL_ADVICE_AUTO, "for text alone and --html"},
        {"on", UL_ADVICE_ON, "always, in --json too"},
        {"off", UL_ADVICE_OFF, "not at all"}};
    return index < sizeof words / sizeof *words ? words[index]
                                                : (struct ul_option_word){.value = 0};
}

static const struct ul_option rows[] = {
#define UL_OPTION(type, field, ...) {.offset = offsetof(struct ul_cli_options, field), __VA_ARGS__},
#include "cli/options.def"
#undef UL_OPTION
};
_Static_assert(sizeof rows / sizeof *rows <= UL_OPTION_MAX, "raise UL_OPTION_MAX");

const struct ul_option_table ul_cli_option_table = {.count = sizeof rows / sizeof *rows,
                                                    .rows = rows};

void ul_cli_job_init(struct ul_cli_job *job)
{
    memset(job, 0, sizeof *job);
    ul_compile_init(&job->compile);
    job->compile.progress = ul_cli_progress;
    job->compile.dump = stderr;
    job->options.base.table = &ul_cli_option_table;
    job->options.base.arena = &job->compile.keep;
}

void ul_cli_job_done(struct ul_cli_job *job)
{
    ul_compile_done(&job->compile);
}

bool ul_cli_is_said(const struct ul_cli_job *job, const char *name)
{
    const struct ul_option *row = ul_option_find(&ul_cli_option_table, name);
    UL_ASSERT(row != NULL);
    return ul_option_said(&job->options.base, row) != NULL;
}

const struct ul_option *ul_cli_option_at(const struct ul_cli_command *command, uint32_t index)
{
    const struct ul_option_table *const tables[] = {&ul_cli_option_table, &ul_compile_option_table};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (uint32_t i = 0; i < tables[t]->count; i++) {
            if ((tables[t]->rows[i].commands & command->bit) != 0 && index-- == 0)
                return &tables[t]->rows[i];
        }
    }
    return NULL;
}

/* What getopt_long returns for an option is the index of one of these. */
struct choice {
    struct ul_options *options;
    const struct ul_option *row;
};

struct choices {
    uint32_t count;
    struct choice items[2 * UL_OPTION_MAX];
    struct option longs[2 * UL_OPTION_MAX + 2];
    char letters[4 * UL_OPTION_MAX + 3];
};

enum { FIRST_CHOICE = 256 }; /* above all letters */

static void add_choices(struct choices *choices, const struct ul_cli_command *command,
                        struct ul_options *options)
{
    for (uint32_t i = 0; i < options->table->count; i++) {
        const struct ul_option *row = &options->table->rows[i];
        bool takes = row->kind != UL_OPTION_FLAG;
        if ((row->commands & command->bit) == 0)
            continue;
        choices->longs[choices->count] =
            (struct option){.name = row->name,
                            .has_arg = takes ? required_argument : no_argument,
                            .val = FIRST_CHOICE + (int)choices->count};
        choices->items[choices->count++] = (struct choice){.options = options, .row = row};
        char *letters = choices->letters + strlen(choices->letters);
        if (row->letter != 0) {
            letters[0] = row->letter;
            letters[1] = takes ? ':' : '\0';
        }
    }
}

static void fill_choices(struct choices *choices, const struct ul_cli_command *command,
                         struct ul_cli_job *job)
{
    /* ':' tells a missing value from an unknown option */
    *choices = (struct choices){.letters = ":h"};
    add_choices(choices, command, &job->options.base);
    add_choices(choices, command, &job->compile.options.base);
    choices->longs[choices->count] = (struct option){.name = "help", .val = 'h'};
}

static const struct choice *find_choice(const struct choices *choices, int code)
{
    if (code >= FIRST_CHOICE)
        return &choices->items[code - FIRST_CHOICE];
    for (uint32_t i = 0; i < choices->count; i++) {
        if (choices->items[i].row->letter == code)
            return &choices->items[i];
    }
    return NULL;
}

/* Refuses a letter, "--name" or "--name=value" that the command does not have. */
static enum ul_status refuse(const struct ul_cli_command *command, const char *word,
                             struct ul_diag *diag, struct ul_arena *arena)
{
    const char *name = word + strspn(word, "-");
    struct ul_nearest nearest = {.word =
                                     ul_arena_printf(arena, "%.*s", (int)strcspn(name, "="), name)};
    ul_option_offer_all(&nearest, &ul_cli_option_table, command->bit);
    ul_option_offer_all(&nearest, &ul_compile_option_table, command->bit);
    ul_nearest_offer(&nearest, "help");
    return ul_diag_set(diag, UL_USAGE, "unknown option %s%s; see ullage %s --help",
                       ul_option_shown(arena, word), ul_nearest_text(arena, &nearest, "--"),
                       command->name);
}

/* Sets lists of values, once it is known whether they make a table. */
static enum ul_status set_lists(struct ul_cli_job *job, const struct ul_pairs *lists)
{
    struct ul_compile *compile = &job->compile;
    struct ul_compile_options trial = {
        .base = {.table = &ul_compile_option_table, .arena = &compile->keep}};
    for (uint32_t i = 0; i < lists->count; i++) {
        const struct ul_option *row =
            ul_option_find(&ul_compile_option_table, lists->items[i].name);
        UL_ASSERT(row != NULL);
        enum ul_status status =
            job->options.sweep
                ? ul_axes_add(&job->axes, &trial.base, row, lists->items[i].value, &compile->diag)
                : ul_option_set(&compile->options.base, row, lists->items[i].value, &compile->diag);
        if (status != UL_OK && !job->options.sweep)
            ul_diag_prefix(&compile->diag, "several values are for plan --sweep, else give one");
        if (status != UL_OK)
            return status;
    }
    return UL_OK;
}

enum ul_status ul_cli_parse(const struct ul_cli_command *command, int argc, char **argv,
                            struct ul_cli_job *job, bool *helped)
{
    struct choices choices;
    struct ul_diag *diag = &job->compile.diag;
    struct ul_pairs lists = {.count = 0};
    int code;
    fill_choices(&choices, command, job);
    *helped = false;
    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, choices.letters, choices.longs, NULL)) >= 0) {
        if (code == 'h') {
            *helped = true;
            return UL_OK;
        }
        if (code == '?')
            return refuse(command, argv[optind - 1], diag, &job->compile.keep);
        if (code == ':')
            return ul_diag_set(diag, UL_USAGE, "option %s needs a value; see ullage %s --help",
                               argv[optind - 1], command->name);
        const struct choice *choice = find_choice(&choices, code);
        UL_ASSERT(choice != NULL);
        if (choice->options == &job->compile.options.base && ul_option_is_list(choice->row, optarg))
            ul_pairs_add(&job->compile.keep, &lists, choice->row->name, optarg);
        else
            UL_TRY(ul_option_set(choice->options, choice->row, optarg, diag));
    }
    UL_TRY(set_lists(job, &lists));
    for (int i = optind; i < argc; i++) {
        if (argv[i][0] == '\0')
            return ul_diag_set(diag, UL_USAGE,
                               "the name of a file is empty: is a variable of the shell not set?");
        ul_texts_add(&job->compile.keep, &job->files, argv[i]);
    }
    return UL_OK;
}
