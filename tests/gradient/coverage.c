/* SPDX-License-Identifier: Apache-2.0 */
/* What the operator table says of gradients: every operator of models has a rule, and a case that
 * proves it (cases/), or the reason why it has none; every operator that pass pattern writes has a
 * rule. coverage.md lists both and is compared as a whole.
 *
 * usage: gradient_coverage [--update] DIR
 * exit: 0 all hold, 1 not */
#include "golden_files.h"
#include "ir/op.h"
#include "ir/op_names.h"
#include "passes/patterns/pattern_internal.h"

#include <stdio.h>
#include <string.h>

/* Whether pass pattern writes the operator in place of those of a model that is trained. */
static bool is_fused(ul_op_id op)
{
    uint32_t i = 0;
    while (ul_pattern_makes(i) != UL_OP_NONE && ul_pattern_makes(i) != op)
        i++;
    return ul_pattern_makes(i) == op;
}

/* Not what other passes make alone. */
static bool is_of_models(ul_op_id op)
{
    const char *domain = ul_op_get(op)->domain;
    return domain == NULL || strcmp(domain, "ullage") != 0 || is_fused(op);
}

static const char *full_name(struct golden *golden, const struct ul_op_info *row)
{
    return row->domain == NULL ? row->name
                               : ul_arena_printf(&golden->arena, "%s::%s", row->domain, row->name);
}

/* Lines of the cases that begin with the operator's name. */
static uint32_t count_cases(const char *cases, const char *name)
{
    size_t length = strlen(name);
    uint32_t count = 0;
    for (const char *line = cases; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) != 0 || strncmp(line + length, " (", 2) != 0)
            continue;
        const char *refused = strstr(line, ": refused, "), *end = strchr(line, '\n');
        count += refused == NULL || (end != NULL && end < refused);
    }
    return count;
}

static const char *read_cases(struct golden *golden)
{
    const char **names;
    const char *folder = ul_arena_printf(&golden->arena, "%s/cases", golden->root);
    uint32_t count = golden_list(golden, folder, ".txt", &names);
    struct ul_text all;
    ul_text_init(&all, &golden->arena);
    for (uint32_t i = 0; i < count; i++)
        ul_text_printf(
            &all, "%s\n",
            golden_read(golden, ul_arena_printf(&golden->arena, "%s/%s", folder, names[i])));
    return all.data;
}

static void complain(struct golden *golden, const struct ul_op_info *row, const char *what)
{
    fprintf(stderr, "%s: %s\n", full_name(golden, row), what);
    golden->failed++;
}

static void list_rules(struct golden *golden, struct ul_text *text, const char *cases)
{
    ul_text_put(text, "## Operators with a rule\n\n| operator | cases |\n|---|---|\n");
    for (ul_op_id op = UL_OP_NONE + 1; op < UL_OP_COUNT; op++) {
        const struct ul_op_info *row = ul_op_get(op);
        if (!ul_op_has_gradient(op) || !is_of_models(op))
            continue;
        uint32_t count = count_cases(cases, full_name(golden, row));
        golden->count++;
        if (count == 0)
            complain(golden, row, "has a gradient rule, but no case in tests/gradient/cases");
        if (row->not_differentiable != NULL)
            complain(golden, row, "has a gradient rule, and a reason to have none");
        ul_text_printf(text, "| %s | %u |\n", full_name(golden, row), (unsigned)count);
    }
}

static void list_reasons(struct golden *golden, struct ul_text *text)
{
    ul_text_put(text, "\n## Operators without one\n\n| operator | why |\n|---|---|\n");
    for (ul_op_id op = UL_OP_NONE + 1; op < UL_OP_COUNT; op++) {
        const struct ul_op_info *row = ul_op_get(op);
        if (ul_op_has_gradient(op) || !is_of_models(op))
            continue;
        golden->count++;
        if (is_fused(op))
            complain(golden, row, "has no gradient rule, and pass pattern writes it");
        if (row->not_differentiable == NULL)
            complain(golden, row, "has neither a gradient rule nor a reason to have none");
        else
            ul_text_printf(text, "| %s | %s |\n", full_name(golden, row), row->not_differentiable);
    }
}

int main(int argc, char **argv)
{
    struct golden golden;
    struct ul_text text;
    if (!golden_init(&golden, argc, argv))
        return 1;
    ul_text_init(&text, &golden.arena);
    ul_text_put(&text, "# Gradients of operators\n\nWritten by `gradient_coverage --update "
                       "tests/gradient` from the operator table and the cases.\n\n");
    list_rules(&golden, &text, read_cases(&golden));
    list_reasons(&golden, &text);
    golden_compare(&golden, ul_arena_printf(&golden.arena, "%s/coverage.md", golden.root),
                   text.data);
    return golden_done(&golden);
}
