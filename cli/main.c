/* ullage: subcommands, each with a --help of its own. */
#define _POSIX_C_SOURCE 200809L
#include "cli/cli.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static const struct ul_cli_command *const commands[] = {
    &ul_command_compile, &ul_command_plan, &ul_command_check, &ul_command_verify,
    &ul_command_inspect, &ul_command_pack, &ul_command_solve, &ul_command_profile,
};
enum { COMMAND_COUNT = sizeof commands / sizeof *commands };

static void print_help(FILE *stream)
{
    fprintf(stream,
            "ullage %s: compiles an ONNX model into a program that runs in one preallocated\n"
            "buffer, and says beforehand, to the byte, how big that buffer is.\n\n"
            "usage: ullage COMMAND [arguments]\n\ncommands:\n",
            UL_VERSION);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(stream, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fprintf(stream, "\nullage COMMAND --help explains a command. ullage --version prints the "
                    "version.\n");
}

static void print_command_help(const struct ul_cli_command *command, struct ul_arena *arena)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    ul_cli_help(&text, command);
    ul_cli_print(&text);
}

static int run_command(const struct ul_cli_command *command, int argc, char **argv)
{
    struct ul_cli_job job;
    bool asks_help;
    ul_cli_job_init(&job);
    enum ul_status status = ul_cli_parse(command, argc, argv, &job, &asks_help);
    if (status == UL_OK && asks_help) {
        print_command_help(command, &job.compile.keep);
    } else if (status == UL_OK) {
        status = ul_cli_check_targets(&job);
        if (status == UL_OK)
            status = command->run(&job);
    }
    if (status != UL_OK)
        fprintf(stderr, "ullage: error: %s\n", job.compile.diag.text);
    ul_cli_job_done(&job);
    return (int)status;
}

/* A failed assertion aborts; whoever called learns it by the exit code. */
static void on_abort(int signal_number)
{
    (void)signal_number;
    _exit(UL_INTERNAL);
}

int main(int argc, char **argv)
{
    signal(SIGABRT, on_abort);
    if (argc < 2) {
        print_help(stderr);
        return UL_USAGE;
    }
    bool asks = strcmp(argv[1], "help") == 0;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (asks && argc == 2)) {
        print_help(stdout);
        return UL_OK;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("ullage %s\n", UL_VERSION);
        return UL_OK;
    }
    const char *name = asks ? argv[2] : argv[1];
    char flag[] = "--help";
    char *help[] = {argv[asks ? 2 : 1], flag, NULL};
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, commands[i]->name) == 0)
            return asks ? run_command(commands[i], 2, help)
                        : run_command(commands[i], argc - 1, argv + 1);
    }
    fprintf(stderr, "ullage: error: there is no command %s; see ullage --help\n", name);
    return UL_USAGE;
}
