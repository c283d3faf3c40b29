/* SPDX-License-Identifier: Apache-2.0 */
/* The commands and their options as JSON, for programs that wrap this one: a row of options.def has
 * all that they need. */
#include "cli/cli.h"

static const char *const kinds[] = {
    [UL_OPTION_FLAG] = "flag",     [UL_OPTION_TEXT] = "text",       [UL_OPTION_INPUT] = "input",
    [UL_OPTION_RESULT] = "result", [UL_OPTION_WORD] = "word",       [UL_OPTION_SIZE] = "size",
    [UL_OPTION_NUMBER] = "number", [UL_OPTION_INTEGER] = "integer", [UL_OPTION_POWER] = "power",
    [UL_OPTION_REAL] = "real",     [UL_OPTION_POSITIVE] = "real",   [UL_OPTION_TEXTS] = "texts",
    [UL_OPTION_PAIRS] = "pairs",   [UL_OPTION_SIZES] = "sizes",
};

static void put_member(struct ul_text *text, const char *key, const char *value)
{
    ul_text_printf(text, ", \"%s\": ", key);
    ul_text_put_json(text, value);
}

static void put_words(struct ul_text *text, const struct ul_option *row)
{
    const char *word;
    ul_text_put(text, ", \"words\": [");
    for (uint32_t i = 0; (word = row->words(i).word) != NULL; i++) {
        ul_text_put(text, i == 0 ? "" : ", ");
        ul_text_put_json(text, word);
    }
    ul_text_put(text, "]");
}

static void put_option(struct ul_text *text, const struct ul_option *row)
{
    ul_text_put(text, "{\"name\": ");
    ul_text_put_json(text, row->name);
    put_member(text, "kind", kinds[row->kind]);
    if (row->argument != NULL)
        put_member(text, "argument", row->argument);
    if (row->words != NULL)
        put_words(text, row);
    put_member(text, "help", row->help);
    ul_text_put(text, "}");
}

static void put_command(struct ul_text *text, const struct ul_cli_command *command)
{
    const struct ul_option *row;
    const char *between = "\n";
    ul_text_put(text, "    {\"name\": ");
    ul_text_put_json(text, command->name);
    put_member(text, "arguments", command->arguments);
    put_member(text, "summary", command->summary);
    ul_text_put(text, ", \"options\": [");
    for (uint32_t i = 0; (row = ul_cli_option_at(command, i)) != NULL; i++) {
        ul_text_printf(text, "%s      ", between);
        put_option(text, row);
        between = ",\n";
    }
    ul_text_put(text, "], \"examples\": [");
    for (const struct ul_cli_example *at = command->examples; at->command != NULL; at++) {
        ul_text_put(text, at == command->examples ? "" : ", ");
        ul_text_put_json(text, at->command);
    }
    ul_text_put(text, "]}");
}

void ul_cli_put_json(struct ul_text *text, const struct ul_cli_command *const *commands,
                     uint32_t count)
{
    ul_text_put(text, "{\n  \"format\": \"ullage-commands\",\n  \"version\": 1,\n"
                      "  \"tool\": \"ullage " UL_VERSION "\",\n  \"commands\": [\n");
    for (uint32_t i = 0; i < count; i++) {
        put_command(text, commands[i]);
        ul_text_put(text, i + 1 < count ? ",\n" : "\n");
    }
    ul_text_put(text, "  ]\n}\n");
}
