/* SPDX-License-Identifier: Apache-2.0 */
/* The help of a command, with its options by group, folded at 80 columns; and the list of all
 * commands. */
#include "cli/cli.h"

#include <string.h>

enum { COLUMNS = 80, LEFT_COLUMNS = 26, COMMAND_COLUMNS = 12 };

static const char *const titles[UL_GROUP_COUNT] = {
    [UL_GROUP_RESULT] = "result",       [UL_GROUP_MODEL] = "model",
    [UL_GROUP_TARGET] = "target",       [UL_GROUP_MEMORY] = "memory",
    [UL_GROUP_PLANNER] = "planner",     [UL_GROUP_PASSES] = "passes",
    [UL_GROUP_TRAINING] = "training",   [UL_GROUP_COMPILER] = "compiler",
    [UL_GROUP_TOLERANCE] = "tolerance",
};

const char *ul_cli_group_title(enum ul_option_group group)
{
    return titles[group];
}

/* Writes `words` from column `begin` on, folded there; a newline begins another paragraph. */
static void put_folded(struct ul_text *text, const char *words, size_t begin)
{
    size_t column = begin;
    for (const char *at = words; *at != '\0';) {
        size_t length = strcspn(at, " \n");
        if (column > begin && column + 1 + length > COLUMNS) {
            ul_text_printf(text, "\n%*s", (int)begin, "");
            column = begin;
        } else if (column > begin) {
            ul_text_put(text, " ");
            column++;
        }
        ul_text_put_bytes(text, at, length);
        column += length;
        at += length;
        if (*at == '\n') {
            ul_text_printf(text, "\n\n%*s", (int)begin, "");
            column = begin;
        }
        at += *at != '\0';
    }
    ul_text_put(text, "\n");
}

static void put_row(struct ul_text *text, const char *left, const char *right)
{
    ul_text_printf(text, "  %-*s", LEFT_COLUMNS - 2, left);
    if (strlen(left) + 3 > LEFT_COLUMNS)
        ul_text_printf(text, "\n%*s", LEFT_COLUMNS, "");
    put_folded(text, right, LEFT_COLUMNS);
}

void ul_cli_put_option_help(struct ul_text *text, const struct ul_option *row)
{
    ul_text_put(text, row->help);
    ul_option_explain_words(text, row);
}

static void put_option(struct ul_text *text, const struct ul_option *row)
{
    const char *left =
        ul_arena_printf(text->arena, "%s%.1s%s--%s%s%s", row->letter != 0 ? "-" : "", &row->letter,
                        row->letter != 0 ? ", " : "", row->name, row->argument != NULL ? " " : "",
                        row->argument != NULL ? row->argument : "");
    struct ul_text right;
    ul_text_init(&right, text->arena);
    ul_cli_put_option_help(&right, row);
    put_row(text, left, right.data);
}

static void put_group(struct ul_text *text, const struct ul_cli_command *command,
                      enum ul_option_group group)
{
    const struct ul_option *row;
    bool is_first = true;
    for (uint32_t i = 0; (row = ul_cli_option_at(command, i)) != NULL; i++) {
        if (row->group != group)
            continue;
        if (is_first)
            ul_text_printf(text, "\n%s:\n", titles[group]);
        is_first = false;
        put_option(text, row);
    }
}

static void put_examples(struct ul_text *text, const struct ul_cli_example *examples)
{
    ul_text_put(text, "\nexamples:\n");
    for (const struct ul_cli_example *at = examples; at->command != NULL; at++)
        ul_text_printf(text, "  %s:\n      %s\n", at->purpose, at->command);
}

void ul_cli_put_help(struct ul_text *text, const struct ul_cli_command *command)
{
    const char *usage = ul_arena_printf(text->arena, "usage: ullage %s ", command->name);
    ul_text_put(text, usage);
    put_folded(text, command->arguments, strlen(usage));
    ul_text_put(text, "\n");
    put_folded(text, command->summary, 0);
    if (command->details != NULL) {
        ul_text_put(text, "\n");
        put_folded(text, command->details, 0);
    }
    for (int group = 0; group < (int)UL_GROUP_COUNT; group++)
        put_group(text, command, (enum ul_option_group)group);
    ul_text_put(text, "\n");
    put_row(text, "-h, --help", "this text");
    put_examples(text, command->examples);
}

void ul_cli_put_commands(struct ul_text *text, const struct ul_cli_command *const *commands,
                         uint32_t count)
{
    put_folded(text, ul_arena_printf(text->arena, "ullage %s: %s", UL_VERSION, ul_cli_about), 0);
    ul_text_put(text, "\nusage: ullage COMMAND [arguments]\n");
    for (uint32_t i = 0; i < count; i++) {
        if (i == 0 || strcmp(commands[i]->group, commands[i - 1]->group) != 0)
            ul_text_printf(text, "\n%s:\n", commands[i]->group);
        ul_text_printf(text, "  %-*s", COMMAND_COLUMNS - 2, commands[i]->name);
        put_folded(text, commands[i]->summary, COMMAND_COLUMNS);
    }
    ul_text_put(text, "\nhelp:\n");
    for (const struct ul_cli_form *form = ul_cli_forms; form->option != NULL; form++)
        put_row(text, ul_cli_form_text(text->arena, form), form->what);
}
