/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for zsh: one call of _arguments a command, a line for each row of options. */
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
        /* One in parentheses would be a qualifier of zsh's. */
        ul_text_put(text, count == 1 ? "_files -g \"*." : "_files -g \"*.(");
        for (uint32_t i = 0; i < count; i++)
            ul_text_printf(text, "%s%s", i == 0 ? "" : "|", items[i].text);
        ul_text_put(text, count == 1 ? "\"" : ")\"");
    }
}

/* Words come first, then files. */
static void put_action(struct ul_text *text, const struct ul_cli_candidates *candidates)
{
    uint32_t words = 0;
    while (words < candidates->count && candidates->items[words].kind == UL_CANDIDATE_WORD)
        words++;
    bool both = words > 0 && words < candidates->count;
    if (candidates->count == 0)
        ul_text_put(text, " ");
    if (both)
        ul_text_put(text, "{_alternative \"names\\:name\\:");
    for (uint32_t i = 0; i < words; i++)
        ul_text_printf(text, "%s%s", i == 0 ? "(" : " ", candidates->items[i].text);
    if (words > 0)
        ul_text_put(text, ")");
    if (both)
        ul_text_put(text, "\" \"files\\:file\\:");
    if (words < candidates->count)
        put_file_action(text, candidates->items + words, candidates->count - words);
    if (both)
        ul_text_put(text, "\"}");
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

void ul_cli_complete_zsh(const struct ul_cli_command *const *commands, uint32_t count)
{
    struct ul_arena arena;
    struct ul_text text;
    ul_arena_init(&arena);
    ul_text_init(&text, &arena);
    ul_text_put(&text, "#compdef ullage\n"
                       "# Completion of ullage for zsh, made by: ullage help --completion zsh\n\n"
                       "_ullage()\n{\n    local curcontext=$curcontext state line\n"
                       "    local -A opt_args\n    local -a commands=(\n");
    for (uint32_t i = 0; i < count; i++) {
        ul_text_printf(&text, "        '%s:", commands[i]->name);
        put_quoted(&text, commands[i]->summary);
        ul_text_put(&text, "'\n");
    }
    ul_text_put(&text, "        'help:Explains a command.'\n    )\n"
                       "    _arguments -C '(- *)'{-h,--help}'[list the commands]' \\\n"
                       "        '(- *)--version[print the version]' \\\n"
                       "        '1:command:->command' '*::argument:->argument'\n"
                       "    case $state in\n"
                       "    command) _describe command commands ;;\n"
                       "    argument)\n        case $line[1] in\n");
    for (uint32_t i = 0; i < count; i++)
        put_command(&text, commands[i]);
    ul_text_put(&text, "        help)\n            _arguments '--man[print a manual page]' "
                       "'--json[print all options]' \\\n"
                       "                '--completion[print a shell'\\''s completion]:shell:"
                       "(bash zsh)' \\\n"
                       "                '1:command:{_describe command commands}' ;;\n"
                       "        esac ;;\n    esac\n}\n\n_ullage \"$@\"\n");
    ul_cli_print(&text);
    ul_arena_done(&arena);
}
