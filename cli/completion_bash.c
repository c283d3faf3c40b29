/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for bash: two tables as shell functions, made from the rows of options, and one
 * function that reads them. It needs only bash. */
#include "cli/cli.h"

#include <string.h>

/* Words of the tables: a word to offer; with a colon at its end, the beginning of a word; @ENDING,
 * a file with that ending; @/, a folder. */
static const char driver[] =
    "# What of these begins as the word at the cursor; PREFIX stands in front of each.\n"
    "_ullage_offer() # PREFIX CURRENT TOKEN...\n"
    "{\n"
    "    local prefix=$1 current=$2 token more\n"
    "    shift 2\n"
    "    for token; do\n"
    "        more=()\n"
    "        case $token in\n"
    "        @/) mapfile -t more < <(compgen -d -- \"$current\") ;;\n"
    "        @) mapfile -t more < <(compgen -f -- \"$current\") ;;\n"
    "        @*) mapfile -t more < <(compgen -f -X \"!*.${token#@}\" -- \"$current\"\n"
    "                                compgen -d -- \"$current\") ;;\n"
    "        *) [[ $token != \"$current\"* ]] || more=(\"$prefix$token\") ;;\n"
    "        esac\n"
    "        [[ $token != @* ]] || compopt -o filenames 2>/dev/null\n"
    "        [[ $token != *: || ${#more[@]} == 0 ]] || compopt -o nospace 2>/dev/null\n"
    "        COMPREPLY+=(\"${more[@]}\")\n"
    "    done\n"
    "}\n"
    "\n"
    "_ullage()\n"
    "{\n"
    "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} values\n"
    "    COMPREPLY=()\n"
    "    if ((COMP_CWORD == 1)); then\n"
    "        before=\n"
    "    elif [[ $before == = ]]; then # bash makes three words of --option=value\n"
    "        before=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    elif [[ $current == = ]]; then\n"
    "        current=\n"
    "    elif [[ $current == : || $before == : ]]; then # and of NAME:WHAT, which nobody knows\n"
    "        return\n"
    "    fi\n"
    "    local - # what is set here is set back at the end\n"
    "    set -f\n"
    "    if values=$(_ullage_values \"$before\"); then\n"
    "        local prefix=${current%\"${current##*,}\"} # of a list\n"
    "        _ullage_offer \"$prefix\" \"${current#\"$prefix\"}\" $values\n"
    "    elif ((COMP_CWORD == 1)); then\n"
    "        _ullage_offer '' \"$current\" $(_ullage_words '')\n"
    "    elif [[ $current == -* ]]; then\n"
    "        _ullage_offer '' \"$current\" $(_ullage_words \"${COMP_WORDS[1]}\")\n"
    "    else\n"
    "        _ullage_offer '' \"$current\" $(_ullage_files \"${COMP_WORDS[1]}\")\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _ullage ullage\n";

static void put_candidates(struct ul_text *text, const struct ul_cli_candidates *candidates)
{
    for (uint32_t i = 0; i < candidates->count; i++) {
        const struct ul_cli_candidate *item = &candidates->items[i];
        ul_text_printf(text, "%s%s%s", i == 0 ? "" : " ",
                       item->kind == UL_CANDIDATE_FOLDER ? "@/"
                       : item->kind == UL_CANDIDATE_FILE ? "@"
                                                         : "",
                       item->text);
    }
}

/* Writes the words that may stand in place of a command or of a word that begins with a dash. */
static void put_words(struct ul_text *text, const struct ul_cli_command *const *commands,
                      uint32_t count)
{
    const struct ul_option *row;
    ul_text_put(text, "_ullage_words() # COMMAND\n{\n    case $1 in\n");
    for (uint32_t c = 0; c < count; c++) {
        ul_text_printf(text, "    %s) echo '", commands[c]->name);
        for (uint32_t i = 0; (row = ul_cli_option_at(commands[c], i)) != NULL; i++)
            ul_text_printf(text, "--%s ", row->name);
        ul_text_put(text, "--help' ;;\n");
    }
    ul_text_put(text, "    help) echo '");
    for (const struct ul_cli_form *form = ul_cli_forms; form->option != NULL; form++)
        ul_text_printf(text, "%s ", strcmp(form->command, "help") == 0 ? form->option : "");
    ul_text_put(text, "' ;;\n    *) echo '");
    for (uint32_t c = 0; c < count; c++)
        ul_text_printf(text, "%s ", commands[c]->name);
    ul_text_put(text, "help --help --version' ;;\n    esac\n}\n\n");
}

static void put_files(struct ul_text *text, const struct ul_cli_command *const *commands,
                      uint32_t count)
{
    ul_text_put(text, "_ullage_files() # COMMAND\n{\n    case $1 in\n");
    for (uint32_t c = 0; c < count; c++) {
        struct ul_cli_candidates files = {.count = 0};
        ul_cli_add_files(text->arena, commands[c], &files);
        ul_text_printf(text, "    %s) echo '", commands[c]->name);
        put_candidates(text, &files);
        ul_text_put(text, "' ;;\n");
    }
    ul_text_put(text, "    help) _ullage_words '' ;;\n    esac\n}\n\n");
}

/* An option has one meaning in all commands that take it. */
static void put_table(struct ul_text *text, const struct ul_option_table *table)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct ul_option *row = &table->rows[i];
        struct ul_cli_candidates values = {.count = 0};
        if (row->commands == 0 || row->kind == UL_OPTION_FLAG)
            continue;
        ul_cli_add_values(text->arena, row, &values);
        ul_text_put(text, "    ");
        if (row->letter != 0)
            ul_text_printf(text, "-%c | ", row->letter);
        ul_text_printf(text, "--%s) echo '", row->name);
        put_candidates(text, &values);
        ul_text_put(text, "' ;;\n");
    }
}

void ul_cli_put_bash(struct ul_text *text, const struct ul_cli_command *const *commands,
                     uint32_t count)
{
    ul_text_put(text,
                "# Completion of ullage for bash, made by: ullage help --completion bash\n\n");
    put_words(text, commands, count);
    put_files(text, commands, count);
    ul_text_put(text, "# Fails where the option takes no value.\n"
                      "_ullage_values() # OPTION\n{\n    case $1 in\n");
    put_table(text, &ul_cli_option_table);
    put_table(text, &ul_compile_option_table);
    ul_text_printf(text,
                   "    --man) _ullage_words '' ;;\n    --completion) echo '%s' ;;\n"
                   "    *) return 1 ;;\n    esac\n}\n\n",
                   ul_cli_shell_names(text->arena, " "));
    ul_text_put(text, driver);
}
