/* SPDX-License-Identifier: Apache-2.0 */
/* What manual pages say apart from the commands and their options. */
#include "cli/cli.h"

const char ul_cli_about[] =
    "compiles an ONNX model into a program that runs in one preallocated buffer, and says "
    "beforehand, to the byte, how big that is.";

const struct ul_cli_form ul_cli_forms[] = {
    {"COMMAND", "--help", NULL, "explains a command, as help COMMAND does"},
    {"help", "--man", "[COMMAND]", "prints a manual page, of a command or of ullage"},
    {"help", "--completion", "SHELL", "prints completion for a shell"},
    {"help", "--json", NULL, "prints all commands with their options as JSON"},
    {"", "--version", NULL, "prints the version"},
    {NULL, NULL, NULL, NULL}};

const struct ul_cli_shell ul_cli_shells[] = {
    {"bash", ul_cli_put_bash}, {"zsh", ul_cli_put_zsh}, {NULL, NULL}};

const char *ul_cli_form_text(struct ul_arena *arena, const struct ul_cli_form *form)
{
    return ul_arena_printf(arena, "%s%s%s%s%s", form->command, form->command[0] != '\0' ? " " : "",
                           form->option, form->argument != NULL ? " " : "",
                           form->argument != NULL ? form->argument : "");
}

const char *ul_cli_shell_names(struct ul_arena *arena, const char *between)
{
    struct ul_text text;
    ul_text_init(&text, arena);
    for (const struct ul_cli_shell *at = ul_cli_shells; at->name != NULL; at++)
        ul_text_printf(&text, "%s%s", at == ul_cli_shells ? "" : between, at->name);
    return text.data;
}

const struct ul_cli_fact ul_cli_exit_codes[] = {
    {"0", 0, "done; a plan fits its budget"},
    {"1", 0, "usage: an option, a missing size"},
    {"2", 0, "an invalid model or file"},
    {"3", 0, "unsupported; the message names the operator or type"},
    {"4", 0,
     "does not fit; the message names the smallest budget known to work, or what ullage itself "
     "lacks"},
    {"5", 0, "a file cannot be read or written"},
    {"6", 0, "a comparison failed: of check, of verify, of diff --fail-above"},
    {"7", 0, "the C or CUDA compiler failed or is missing"},
    {"70", 0, "a defect of ullage"},
    {NULL, 0, NULL}};

enum { COMPILING = UL_IN_COMPILE | UL_IN_VERIFY | UL_IN_PROFILE };

const struct ul_cli_fact ul_cli_environment[] = {
    {"CC", COMPILING, "the C compiler of targets c and cpu, where --cc names none (default cc)"},
    {"NVCC", UL_IN_PIPELINE,
     "the compiler of target cuda, where --nvcc names none (default nvcc). A plan that leaves "
     "--with-cudnn open looks beside it"},
    {"CUDA_ARCH", COMPILING,
     "what nvcc makes code for, such as sm_90 or native, read by make (default: what the Makefile "
     "of an emitted folder lists)"},
    {"ULLAGE_PYTHON", UL_IN_VERIFY,
     "the Python that runs onnxruntime for a reference (default python3); empty: none"},
    {"ULLAGE_RUNTIME", COMPILING,
     "the folder with the sources that programs are made of (default: the installed one)"},
    {"TMPDIR", COMPILING, "where temporary folders are made (default /tmp)"},
    {"COLUMNS", UL_IN_PLAN | UL_IN_REPORT | UL_IN_DIFF,
     "how wide lines may be, from 80 (default: the terminal's width)"},
    {"NO_COLOR", UL_IN_PLAN | UL_IN_REPORT, "set and not empty: no colours on a terminal"},
    {"TERM", 0, "dumb: no progress, colours or blocks"},
    {NULL, 0, NULL}};

const struct ul_cli_fact ul_cli_files[] = {
    {"PROGRAM.weights", UL_IN_COMPILE,
     "with --weights file: the weights of the program, read from beside it"},
    {"PROGRAM.cuda/", UL_IN_COMPILE,
     "the source of a program for target cuda, left there where nvcc is missing or fails"},
    {"PREFIX/share/ullage/runtime/", COMPILING, "the sources that programs are made of"},
    {"PREFIX/lib/ullage/libul_runtime.a", COMPILING, "the same, compiled"},
    {"PREFIX/share/ullage/verify_onnxruntime.py", UL_IN_VERIFY, "asks onnxruntime for a reference"},
    {NULL, 0, NULL}};
