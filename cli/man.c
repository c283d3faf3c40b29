/* SPDX-License-Identifier: Apache-2.0 */
/* Manual pages, in the macros of man(7), from the rows that --help prints. */
#include "cli/cli.h"

#include <ctype.h>
#include <string.h>

/* Writes words literally: characters that roff would interpret are escaped; a newline begins a
 * paragraph. */
static void put_words(struct ul_text *text, const char *words)
{
    static const struct {
        char character;
        const char *escape;
    } escapes[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"}, {'`', "\\(ga"},
                   {'^', "\\(ha"}, {'~', "\\(ti"}, {'"', "\\(dq"},  {'\n', "\n.PP\n"}};
    for (const char *at = words; *at != '\0'; at++) {
        size_t i = 0;
        while (i < sizeof escapes / sizeof *escapes && escapes[i].character != *at)
            i++;
        if (i < sizeof escapes / sizeof *escapes)
            ul_text_put(text, escapes[i].escape);
        else
            ul_text_put_bytes(text, at, 1);
    }
}

/* Writes a line of text, which must not look like a request. */
static void put_line(struct ul_text *text, const char *words)
{
    ul_text_put(text, words[0] == '.' ? "\\&" : "");
    put_words(text, words);
    ul_text_put(text, "\n");
}

/* Writes a sentence as part of another: "compiles a model". */
static void put_part(struct ul_text *text, const char *sentence)
{
    size_t length = strlen(sentence);
    char *part = ul_arena_copy_string(text->arena, sentence);
    part[0] = (char)tolower((unsigned char)part[0]);
    if (part[length - 1] == '.')
        part[length - 1] = '\0';
    put_words(text, part);
    ul_text_put(text, "\n");
}

static void put_option(struct ul_text *text, const struct ul_option *row)
{
    struct ul_text help;
    ul_text_init(&help, text->arena);
    ul_cli_put_option_help(&help, row);
    ul_text_put(text, ".TP\n");
    if (row->letter != 0)
        ul_text_printf(text, "\\fB\\-%c\\fR, ", row->letter);
    ul_text_put(text, "\\fB\\-\\-");
    put_words(text, row->name);
    ul_text_put(text, "\\fR");
    if (row->argument != NULL) {
        ul_text_put(text, " \\fI");
        put_words(text, row->argument);
        ul_text_put(text, "\\fR");
    }
    ul_text_put(text, "\n");
    put_line(text, help.data);
}

static void put_options(struct ul_text *text, const struct ul_cli_command *command)
{
    const struct ul_option *row;
    ul_text_put(text, ".SH OPTIONS\n");
    for (int group = 0; group < (int)UL_GROUP_COUNT; group++) {
        bool is_first = true;
        for (uint32_t i = 0; (row = ul_cli_option_at(command, i)) != NULL; i++) {
            if ((int)row->group != group)
                continue;
            if (is_first)
                ul_text_printf(text, ".SS %s\n", ul_cli_group_title(row->group));
            is_first = false;
            put_option(text, row);
        }
    }
}

static void put_examples(struct ul_text *text, const struct ul_cli_example *examples)
{
    ul_text_put(text, ".SH EXAMPLES\n");
    for (const struct ul_cli_example *at = examples; at->command != NULL; at++) {
        ul_text_put(text, ".TP\n");
        put_line(text, at->purpose);
        ul_text_put(text, "\\fB");
        put_words(text, at->command);
        ul_text_put(text, "\\fR\n");
    }
}

/* Writes a name, and below it its meaning. */
static void put_item(struct ul_text *text, const char *name, const char *what)
{
    ul_text_put(text, ".TP\n\\fB");
    put_words(text, name);
    ul_text_put(text, "\\fR\n");
    put_line(text, what);
}

/* Writes the facts for one of these commands. */
static void put_facts(struct ul_text *text, const char *title, const struct ul_cli_fact *facts,
                      uint32_t commands)
{
    bool is_first = true;
    for (const struct ul_cli_fact *at = facts; at->name != NULL; at++) {
        if (at->commands != 0 && (at->commands & commands) == 0)
            continue;
        if (is_first)
            ul_text_printf(text, ".SH %s\n", title);
        is_first = false;
        put_item(text, at->name, at->what);
    }
}

static void put_see_also(struct ul_text *text, const struct ul_cli_command *command,
                         const struct ul_cli_command *const *commands, uint32_t count)
{
    const char *between = "";
    ul_text_put(text, ".SH SEE ALSO\n");
    if (command != NULL) {
        ul_text_put(text, ".BR ullage (1)");
        between = ",\n";
    }
    for (uint32_t i = 0; i < count; i++) {
        if (commands[i] == command)
            continue;
        ul_text_printf(text, "%s.BR ullage\\-%s (1)", between, commands[i]->name);
        between = ",\n";
    }
    ul_text_put(text, "\n");
}

static void put_command(struct ul_text *text, const struct ul_cli_command *command)
{
    ul_text_printf(text, "ullage\\-%s \\- ", command->name);
    put_part(text, command->summary);
    ul_text_printf(text, ".SH SYNOPSIS\n\\fBullage %s\\fR ", command->name);
    put_line(text, command->arguments);
    ul_text_put(text, ".SH DESCRIPTION\n");
    put_line(text, command->summary);
    if (command->details != NULL) {
        ul_text_put(text, ".PP\n");
        put_line(text, command->details);
    }
    put_options(text, command);
    put_examples(text, command->examples);
}

static void put_program(struct ul_text *text, const struct ul_cli_command *const *commands,
                        uint32_t count)
{
    ul_text_put(text, "ullage \\- static memory planner and compiler for ONNX\n"
                      ".SH SYNOPSIS\n\\fBullage\\fR \\fICOMMAND\\fR [arguments]\n"
                      ".SH DESCRIPTION\n\\fBullage\\fR ");
    put_line(text, ul_cli_about);
    ul_text_put(text, ".PP\n\\fBullage\\fR \\fICOMMAND\\fR \\fB\\-\\-help\\fR, or \\fBullage "
                      "help\\fR \\fICOMMAND\\fR, explains a command, and each has a page.\n");
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(commands[i]->group, commands[i - 1]->group) != 0)
            ul_text_printf(text, ".SS %s\n", commands[i]->group);
        ul_text_printf(text, ".TP\n\\fBullage\\-%s\\fR(1)\n", commands[i]->name);
        put_line(text, commands[i]->summary);
    }
    ul_text_put(text, ".SS help\n");
    for (const struct ul_cli_form *form = ul_cli_forms; form->option != NULL; form++) {
        put_item(text,
                 ul_arena_printf(text->arena, "ullage %s", ul_cli_form_text(text->arena, form)),
                 form->what);
    }
}

void ul_cli_put_man(struct ul_text *text, const struct ul_cli_command *command,
                    const struct ul_cli_command *const *commands, uint32_t count)
{
    uint32_t mask = command != NULL ? (uint32_t)command->bit : UINT32_MAX;
    const char *name =
        command != NULL ? ul_arena_printf(text->arena, "ullage-%s", command->name) : "ullage";
    ul_text_put(text, ".TH \"");
    for (const char *at = name; *at != '\0'; at++)
        ul_text_printf(text, "%c", *at == '-' ? '-' : toupper((unsigned char)*at));
    ul_text_put(text, "\" 1 \"\" \"ullage " UL_VERSION "\" \"Ullage\"\n.nh\n.ad l\n.SH NAME\n");
    if (command != NULL)
        put_command(text, command);
    else
        put_program(text, commands, count);
    put_facts(text, "EXIT STATUS", ul_cli_exit_codes, mask);
    put_facts(text, "ENVIRONMENT", ul_cli_environment, mask);
    put_facts(text, "FILES", ul_cli_files, mask);
    put_see_also(text, command, commands, count);
}
