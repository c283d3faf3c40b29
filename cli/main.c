/* SPDX-License-Identifier: Apache-2.0 */
/* ullage: runs a command and returns its exit code. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SCARCE_BYTES = 16 << 20 };

static const struct ul_cli_command *const commands[] = {
    &ul_command_compile, &ul_command_plan,   &ul_command_check,   &ul_command_report,
    &ul_command_diff,    &ul_command_verify, &ul_command_inspect, &ul_command_export,
    &ul_command_pack,    &ul_command_solve,  &ul_command_profile,
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

/* Whether programs are searched whose pieces the target's library tries. */
static bool may_try_pieces(const struct ul_cli_job *job, const struct ul_cli_command *command)
{
    const struct ul_compile_options *options = &job->compile.options;
    const struct ul_target *target =
        options->target != NULL ? ul_target_find(options->target) : ul_target_default();
    bool has_budget = options->budget_bytes > 0 || options->device != NULL;
    bool has_advice = job->options.advice == UL_ADVICE_ON ||
                      (job->options.advice == UL_ADVICE_AUTO && job->options.json == NULL);
    bool has_ladder = command->bit == UL_IN_PLAN && (job->options.sweep || has_advice);
    return target != NULL && target->libraries != NULL && !target->traits.memory_is_separate &&
           (command->bit & (UL_IN_PLAN | UL_IN_COMPILE)) != 0 && (has_budget || has_ladder);
}

static enum ul_status run_command(struct ul_cli_job *job, const struct ul_cli_command *command,
                                  int argc, char **argv)
{
    bool asks_help;
    UL_TRY(ul_cli_parse(command, argc, argv, job, &asks_help));
    if (asks_help) {
        struct ul_text page;
        ul_text_init(&page, &job->compile.keep);
        ul_cli_put_help(&page, command);
        ul_cli_print(&page);
        return UL_OK;
    }
    UL_TRY(ul_cli_check_targets(job));
    if (!job->threads_sleep && may_try_pieces(job, command))
        ul_cli_let_threads_sleep(argv - 1);
    return command->run(job);
}

/* NULL, with a message, where there is no command of that name, which follows "help" or comes
 * first. */
static const struct ul_cli_command *find_command(struct ul_cli_job *job, const char *name,
                                                 bool is_behind_help)
{
    struct ul_arena *arena = &job->compile.keep;
    struct ul_nearest nearest = {.word = name};
    bool is_option = name[0] == '-';
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i]->name) == 0)
            return commands[i];
        ul_nearest_offer(&nearest, commands[i]->name);
    }
    for (const struct ul_cli_form *form = ul_cli_forms; form->option != NULL; form++) {
        if (is_option && (strcmp(form->command, "help") == 0) == is_behind_help)
            ul_nearest_offer(&nearest, form->option);
    }
    ul_diag_set(&job->compile.diag, UL_USAGE, "there is no %s %s%s; see ullage --help",
                is_option ? "option" : "command", ul_option_shown(arena, name),
                ul_nearest_text(arena, &nearest, ""));
    return NULL;
}

static bool is_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static enum ul_status put_completion(struct ul_cli_job *job, const char *shell,
                                     struct ul_text *page)
{
    for (const struct ul_cli_shell *at = ul_cli_shells; at->name != NULL; at++) {
        if (strcmp(shell, at->name) == 0) {
            at->put(page, commands, COMMAND_COUNT);
            return UL_OK;
        }
    }
    return ul_diag_set(&job->compile.diag, UL_USAGE, "help --completion: give %s",
                       ul_cli_shell_names(&job->compile.keep, " or "));
}

/* Runs "help" with the words after it. */
static enum ul_status run_help(struct ul_cli_job *job, int argc, char **argv)
{
    const struct ul_cli_command *command = NULL;
    const char *first = argc > 0 ? argv[0] : "help";
    const char *second = argc > 1 ? argv[1] : NULL;
    bool is_page = strcmp(first, "--man") == 0;
    const char *name = is_page ? second : first;
    struct ul_text page;
    ul_text_init(&page, &job->compile.keep);
    if (is_help(first))
        ul_cli_put_commands(&page, commands, COMMAND_COUNT);
    else if (strcmp(first, "--json") == 0)
        ul_cli_put_json(&page, commands, COMMAND_COUNT);
    else if (strcmp(first, "--completion") == 0)
        UL_TRY(put_completion(job, second != NULL ? second : "", &page));
    else if (name != NULL && (command = find_command(job, name, true)) == NULL)
        return UL_USAGE;
    else if (is_page)
        ul_cli_put_man(&page, command, commands, COMMAND_COUNT);
    else
        ul_cli_put_help(&page, command);
    ul_cli_print(&page);
    return UL_OK;
}

/* Runs what the words after the program's name ask for. */
static enum ul_status run(struct ul_cli_job *job, int argc, char **argv)
{
    const char *first = argv[0];
    if (is_help(first))
        return run_help(job, argc - 1, argv + 1);
    if (strcmp(first, "--version") == 0) {
        printf("ullage %s%s\n", UL_VERSION, ul_cli_commit);
        return UL_OK;
    }
    const struct ul_cli_command *command = find_command(job, first, false);
    return command != NULL ? run_command(job, command, argc, argv) : UL_USAGE;
}

/* Whether the amount of memory that a library asks for at once is not available. */
static bool lacks_memory(void)
{
    return mmap(NULL, SCARCE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED;
}

/* A failed assertion aborts; the caller learns of it by the exit code. Libraries that get no memory
 * abort too. */
static void on_abort(int signal_number)
{
    static const char text[] = "ullage: error: out of memory: a library of ullage got none; fewer "
                               "than 16777216 bytes are left.\n";
    (void)signal_number;
    if (!lacks_memory())
        _exit(UL_INTERNAL);
    (void)!write(STDERR_FILENO, text, sizeof text - 1);
    _exit(UL_NO_FIT);
}

/* A file that is opened later must not get the number of a standard stream that is closed: printed
 * text would go there. Writing to a stream opened here fails as it would when closed. */
static void open_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

/* Checks that everything printed has arrived. */
static enum ul_status finish_output(struct ul_diag *diag)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return UL_OK;
    return ul_diag_set(diag, UL_IO, "standard output cannot be written");
}

/* Without arguments, the list of commands goes where errors go. */
static enum ul_status list_commands(struct ul_cli_job *job)
{
    struct ul_text page;
    ul_text_init(&page, &job->compile.keep);
    ul_cli_put_commands(&page, commands, COMMAND_COUNT);
    fwrite(page.data, 1, page.length, stderr);
    ul_cli_job_done(job);
    return UL_USAGE;
}

int main(int argc, char **argv)
{
    struct ul_cli_job job;
    signal(SIGABRT, on_abort);
    signal(SIGXFSZ, SIG_IGN); /* a file that must not grow is then an error of writing */
    open_standard_streams();
    bool threads_sleep;
    if (!ul_cli_settle_environment(argv, &threads_sleep)) {
        fputs("ullage: error: it cannot begin again without the variables of malloc, oneDNN and "
              "OpenMP, by which plans would differ; unset MALLOC_*, GLIBC_TUNABLES, DNNL_* and "
              "OMP_*\n",
              stderr);
        return UL_IO;
    }
    ul_cli_job_init(&job);
    job.threads_sleep = threads_sleep;
    if (argc < 2)
        return (int)list_commands(&job);
    enum ul_status status = run(&job, argc - 1, argv + 1);
    if (status == UL_OK)
        status = finish_output(&job.compile.diag);
    if (status != UL_OK) {
        ul_compile_name_source(&job.compile);
        ul_cli_say(stderr, "ullage: error: %s\n", job.compile.diag.text);
    }
    ul_cli_job_done(&job);
    return (int)status;
}
