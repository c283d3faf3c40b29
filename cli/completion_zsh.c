/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for zsh: one call of _arguments for each command, with a line for each row of
 * options. */
#include "cli/cli.h"

#include <string.h>

/* Words within quotes of the shell, in a specification of _arguments. */
static void put_quoted(struct ul_text *text, const char *words)
{
    for (const char *at = words; *at != '\0'; at++) {
        if (*at == '\'')
            ul_text_put(text, "'\\''");
        else if (strchr(":[]\\", *at) != NULL)
            ul_text_printf(text, "\\%c", *at);
        else
            ul_text_put_bytes(text, at, 1);
    }
}

static void put_file_action(struct ul_text *text, const struct ul_cli_candidate *items,
                            uint32_t count)
{
    if (items[0].kind == UL_CANDIDATE_FOLDER)
        ul_text_put(text, "_files -/");
    else if (items[0].text[0] == '\0')
        ul_text_put(text, "_files");
    else {
        /* A single ending in parentheses would be a qualifier of zsh. */
        ul_text_put(text, count == 1 ? "_files -g \"*." : "_files -g \"*.(");
        for (uint32_t i = 0; i < count; i++)
            ul_text_printf(text, "%s%s", i == 0 ? "" : "|", items[i].text);
        ul_text_put(text, count == 1 ? "\"" : ")\"");
    }
}

/* The beginning of a word is not followed by a blank. */
static void put_word_action(struct ul_text *text, const struct ul_cli_candidate *items,
                            uint32_t count)
{
    bool begins = items[0].kind == UL_CANDIDATE_BEGIN;
    ul_text_put(text, begins ? "_ullage_begins" : "(");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_put(text, begins || i > 0 ? " " : "");
        put_quoted(text, items[i].text);
    }
    ul_text_put(text, begins ? "" : ")");
}

/* Writes an action for each kind; candidates of a kind are adjacent. */
static void put_action(struct ul_text *text, const struct ul_cli_candidates *candidates)
{
    const struct ul_cli_candidate *items = candidates->items;
    uint32_t count = candidates->count;
    bool several = count > 0 && items[0].kind != items[count - 1].kind;
    ul_text_put(text, count == 0 ? " " : several ? "{_alternative" : "");
    for (uint32_t begin = 0, end; begin < count; begin = end) {
        for (end = begin; end < count && items[end].kind == items[begin].kind;)
            end++;
        bool is_file =
            items[begin].kind == UL_CANDIDATE_FILE || items[begin].kind == UL_CANDIDATE_FOLDER;
        if (several)
            ul_text_put(text, is_file ? " \"files\\:file\\:" : " \"names\\:name\\:");
        (is_file ? put_file_action : put_word_action)(text, items + begin, end - begin);
        ul_text_put(text, several ? "\"" : "");
    }
    ul_text_put(text, several ? "}" : "");
}

static bool is_repeatable(const struct ul_option *row)
{
    return row->kind == UL_OPTION_TEXTS || row->kind == UL_OPTION_PAIRS ||
           row->kind == UL_OPTION_SIZES;
}

static void put_option(struct ul_text *text, const struct ul_option *row)
{
    const char *equals = row->kind == UL_OPTION_FLAG ? "" : "=";
    struct ul_cli_candidates values = {.count = 0};
    ul_text_put(text, "            '");
    if (row->letter != 0)
        ul_text_printf(text, "(-%c --%s)'{-%c,--%s%s}'[", row->letter, row->name, row->letter,
                       row->name, equals);
    else
        ul_text_printf(text, "%s--%s%s[", is_repeatable(row) ? "*" : "", row->name, equals);
    put_quoted(text, row->help);
    ul_text_put(text, "]");
    if (row->kind != UL_OPTION_FLAG) {
        ul_cli_add_values(text->arena, row, &values);
        ul_text_put(text, ":");
        put_quoted(text, row->argument);
        ul_text_put(text, ":");
        put_action(text, &values);
    }
    ul_text_put(text, "' \\\n");
}

static void put_command(struct ul_text *text, const struct ul_cli_command *command)
{
    const struct ul_option *row;
    struct ul_cli_candidates files = {.count = 0};
    ul_text_printf(text, "        %s)\n            _arguments \\\n", command->name);
    for (uint32_t i = 0; (row = ul_cli_option_at(command, i)) != NULL; i++)
        put_option(text, row);
    ul_cli_add_files(text->arena, command, &files);
    if (files.count > 0) {
        ul_text_put(text, "            '*:file:");
        put_action(text, &files);
        ul_text_put(text, "' \\\n");
    }
    ul_text_put(text, "            '(- *)'{-h,--help}'[explain the command]' ;;\n");
}

static void put_help(struct ul_text *text)
{
    ul_text_put(text, "        help)\n            _arguments \\\n");
    for (const struct ul_cli_form *form = ul_cli_forms; form->option != NULL; form++) {
        if (strcmp(form->command, "help") != 0)
            continue;
        ul_text_printf(text, "            '%s[", form->option);
        put_quoted(text, form->what);
        ul_text_put(text, "]");
        if (form->argument != NULL && strcmp(form->argument, "SHELL") == 0)
            ul_text_printf(text, ":shell:(%s)", ul_cli_shell_names(text->arena, " "));
        ul_text_put(text, "' \\\n");
    }
    ul_text_put(text, "            '1:command:{_describe command commands}' ;;\n");
}

void ul_cli_put_zsh(struct ul_text *text, const struct ul_cli_command *const *commands,
                    uint32_t count)
{
    ul_text_put(text, "#compdef ullage\n"
                      "# Completion of ullage for zsh, made by: ullage help --completion zsh\n\n"
                      "_ullage_begins() { compadd -S '' \"$@\" }\n\n"
                      "_ullage()\n{\n    local curcontext=$curcontext state line\n"
                      "    local -A opt_args\n    local -a commands=(\n");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_printf(text, "        '%s:", commands[i]->name);
        put_quoted(text, commands[i]->summary);
        ul_text_put(text, "'\n");
    }
    ul_text_put(text, "        'help:Explains a command.'\n    )\n"
                      "    _arguments -C '(- *)'{-h,--help}'[list the commands]' \\\n"
                      "        '(- *)--version[print the version]' \\\n"
                      "        '1:command:->command' '*::argument:->argument'\n"
                      "    case $state in\n"
                      "    command) _describe command commands ;;\n"
                      "    argument)\n        case $line[1] in\n");
    for (uint32_t i = 0; i < count; i++)
        put_command(text, commands[i]);
    put_help(text);
    ul_text_put(text, "        esac ;;\n    esac\n}\n\n_ullage \"$@\"\n");
}
