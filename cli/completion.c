/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates that a shell may offer for the value of an option or for a file, from the rows of
 * the tables. */
#include "cli/cli.h"

#include <ctype.h>
#include <string.h>

static void add(struct ul_arena *arena, struct ul_cli_candidates *candidates,
                enum ul_cli_candidate_kind kind, const char *text)
{
    for (uint32_t i = 0; i < candidates->count; i++)
        if (candidates->items[i].kind == kind && strcmp(candidates->items[i].text, text) == 0)
            return;
    UL_GROW(arena, candidates->items, candidates->count, candidates->capacity);
    candidates->items[candidates->count++] = (struct ul_cli_candidate){.kind = kind, .text = text};
}

/* The ending in the argument's name, "json" in "PLAN.json"; "" where it has none. */
static const char *ending(const char *argument)
{
    const char *dot = strrchr(argument, '.');
    return dot != NULL && islower((unsigned char)dot[1]) ? dot + 1 : "";
}

/* Adds the words of a row; for a word with an open end, its beginning. */
static void add_words(struct ul_arena *arena, const struct ul_option *row,
                      struct ul_cli_candidates *candidates)
{
    const char *word;
    for (uint32_t i = 0; (word = row->words(i).word) != NULL; i++)
        if (strchr(word, ':') == NULL)
            add(arena, candidates, UL_CANDIDATE_WORD, word);
    for (uint32_t i = 0; (word = row->words(i).word) != NULL; i++)
        if (strchr(word, ':') != NULL)
            add(arena, candidates, UL_CANDIDATE_BEGIN,
                ul_arena_printf(arena, "%.*s", (int)(strchr(word, ':') + 1 - word), word));
}

void ul_cli_add_values(struct ul_arena *arena, const struct ul_option *row,
                       struct ul_cli_candidates *candidates)
{
    UL_ASSERT(row->kind != UL_OPTION_FLAG && row->argument != NULL);
    if (row->open != NULL)
        add(arena, candidates, UL_CANDIDATE_WORD, row->open);
    if (row->words != NULL)
        add_words(arena, row, candidates);
    if (strcmp(row->argument, "DIR") == 0)
        add(arena, candidates, UL_CANDIDATE_FOLDER, "");
    else if (row->kind == UL_OPTION_INPUT || row->kind == UL_OPTION_RESULT ||
             (row->kind == UL_OPTION_TEXT && strstr(row->argument, "FILE") != NULL))
        add(arena, candidates, UL_CANDIDATE_FILE, ending(row->argument));
}

void ul_cli_add_files(struct ul_arena *arena, const struct ul_cli_command *command,
                      struct ul_cli_candidates *candidates)
{
    if (command->endings == NULL)
        return;
    if (command->endings[0] == '\0')
        add(arena, candidates, UL_CANDIDATE_FILE, "");
    for (const char *at = command->endings; *at != '\0'; at += strspn(at, " ")) {
        size_t length = strcspn(at, " ");
        add(arena, candidates, UL_CANDIDATE_FILE, ul_arena_printf(arena, "%.*s", (int)length, at));
        at += length;
    }
}
