/* The help of a command: its options group by group, folded at 80 columns. */
#include "cli/cli.h"

#include <string.h>

enum { COLUMNS = 80, LEFT_COLUMNS = 26 };

static const char *const titles[UL_GROUP_COUNT] = {
    [UL_GROUP_RESULT] = "result",     [UL_GROUP_MODEL] = "model",
    [UL_GROUP_TARGET] = "target",     [UL_GROUP_MEMORY] = "memory",
    [UL_GROUP_PLANNER] = "planner",   [UL_GROUP_PASSES] = "passes",
    [UL_GROUP_COMPILER] = "compiler", [UL_GROUP_TOLERANCE] = "tolerance",
};

/* `words` from column `begin` on, folded there. */
static void put_folded(struct ul_text *text, const char *words, size_t begin)
{
    size_t column = begin;
    for (const char *at = words; *at != '\0';) {
        size_t length = strcspn(at, " ");
        if (column > begin && column + 1 + length > COLUMNS) {
            ul_text_printf(text, "\n%*s", (int)begin, "");
            column = begin;
        } else if (column > begin) {
            ul_text_put(text, " ");
            column++;
        }
        ul_text_put_bytes(text, at, length);
        column += length;
        at += length + strspn(at + length, " ");
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

/* The word that is meant where none is given. */
static const char *default_word(const struct ul_option *row)
{
    unsigned value;
    const char *word;
    for (uint32_t i = 0; (word = row->words(i, &value)) != NULL; i++) {
        if (value == 0)
            return word;
    }
    return "";
}

static void put_option(struct ul_text *text, const struct ul_option *row)
{
    const char *left =
        ul_arena_printf(text->arena, "%s%.1s%s--%s%s%s", row->letter != 0 ? "-" : "", &row->letter,
                        row->letter != 0 ? ", " : "", row->name, row->argument != NULL ? " " : "",
                        row->argument != NULL ? row->argument : "");
    struct ul_text right;
    ul_text_init(&right, text->arena);
    ul_text_put(&right, row->help);
    if (row->kind == UL_OPTION_WORD) {
        ul_text_put(&right, "; ");
        ul_option_put_words(&right, row);
        ul_text_printf(&right, " (default %s)", default_word(row));
    }
    put_row(text, left, right.data);
}

static void put_group(struct ul_text *text, const struct ul_cli_command *command,
                      enum ul_option_group group)
{
    const struct ul_option_table *const tables[] = {&ul_cli_option_table, &ul_compile_option_table};
    bool is_first = true;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (uint32_t i = 0; i < tables[t]->count; i++) {
            const struct ul_option *row = &tables[t]->rows[i];
            if (row->group != group || (row->commands & command->bit) == 0)
                continue;
            if (is_first)
                ul_text_printf(text, "\n%s:\n", titles[group]);
            is_first = false;
            put_option(text, row);
        }
    }
}

void ul_cli_help(struct ul_text *text, const struct ul_cli_command *command)
{
    ul_text_printf(text, "usage: ullage %s %s\n\n", command->name, command->arguments);
    put_folded(text, command->summary, 0);
    if (command->details != NULL)
        ul_text_printf(text, "\n%s\n", command->details);
    for (int group = 0; group < (int)UL_GROUP_COUNT; group++)
        put_group(text, command, (enum ul_option_group)group);
    ul_text_put(text, "\n");
    put_row(text, "-h, --help", "this text");
}
