/* SPDX-License-Identifier: Apache-2.0 */
/* Golden cases: what <case>.problem is planned to, byte for byte, is <case>.plan. Lines "# --budget
 * N", "# --remat cut" and "# --pack none" of a problem are options. A <case>.positions gives the
 * positions by hand, to which the rest of the plan is made; where that is refused, <case>.err has
 * the message.
 *
 * usage: planner_golden [--update] DIR */
#include "planner/solve/solve.h"
#include "planner/solve/solve_internal.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct ul_arena arena;
    const char *root;
    bool update;
    uint32_t count, failed;
};

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in the folder that end in ".problem", without that, sorted. */
static uint32_t cases_list(struct run *run, const char ***names)
{
    static const char end[] = ".problem";
    uint32_t count = 0, capacity = 0;
    *names = NULL;
    DIR *folder = opendir(run->root);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length < sizeof end || strcmp(entry->d_name + length - (sizeof end - 1), end) != 0)
            continue;
        UL_GROW(&run->arena, *names, count, capacity);
        (*names)[count++] =
            ul_arena_printf(&run->arena, "%.*s", (int)(length - (sizeof end - 1)), entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
    if (count > 0)
        qsort(*names, count, sizeof **names, name_compare);
    return count;
}

/* The file's text, or NULL. */
static const char *slurp(struct run *run, const char *name, const char *end)
{
    struct ul_file file;
    struct ul_diag diag = {.status = UL_OK};
    const char *path = ul_arena_printf(&run->arena, "%s/%s.%s", run->root, name, end);
    if (ul_file_map(&file, &run->arena, path, &diag) != UL_OK)
        return NULL;
    char *text = ul_arena_alloc(&run->arena, file.size_bytes + 1);
    if (file.size_bytes > 0)
        memcpy(text, file.data, (size_t)file.size_bytes);
    ul_file_unmap(&file);
    return text;
}

static struct ul_plan_options options_read(const char *text)
{
    static const char budget[] = "# --budget ";
    struct ul_plan_options options = {.work_limit = 20000};
    const char *found = strstr(text, budget);
    if (found != NULL)
        options.budget_bytes = strtoull(found + strlen(budget), NULL, 10);
    if (strstr(text, "# --remat cut\n") != NULL)
        options.remat = UL_REMAT_CUT;
    if (strstr(text, "# --pack none\n") != NULL)
        options.pack = UL_PACK_NONE;
    ul_plan_options_resolve(&options);
    return options;
}

static enum ul_status case_plan(struct run *run, const char *name, const char *text,
                                struct ul_plan *plan, struct ul_diag *diag)
{
    struct ul_problem *problem;
    struct ul_plan_options options = options_read(text);
    const char *positions = slurp(run, name, "positions");
    UL_TRY(ul_problem_parse(&run->arena, text, strlen(text), &problem, diag));
    if (positions == NULL)
        return ul_plan_solve(&run->arena, problem, &options, plan, diag);
    memset(plan, 0, sizeof *plan);
    plan->order_method = plan->remat_method = "by hand";
    UL_TRY(ul_positions_parse(&run->arena, positions, strlen(positions), plan, diag));
    UL_TRY(ul_plan_complete(&run->arena, problem, &options, plan, diag));
    ul_plan_judge(problem, options.budget_bytes, NULL, plan);
    return ul_plan_check(&run->arena, problem, plan, diag);
}

static void case_check(struct run *run, const char *name)
{
    struct ul_plan plan;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_text got;
    const char *text = slurp(run, name, "problem");
    ul_text_init(&got, &run->arena);
    enum ul_status status = case_plan(run, name, text, &plan, &diag);
    if (status == UL_OK)
        ul_plan_print(&got, &plan);
    else
        ul_text_printf(&got, "%d: %s\n", (int)status, diag.text);
    const char *end = status == UL_OK ? "plan" : "err";
    const char *wanted = slurp(run, name, end);
    run->count++;
    if (wanted != NULL && strcmp(wanted, got.data) == 0)
        return;
    const char *path = ul_arena_printf(&run->arena, "%s/%s.%s", run->root, name, end);
    if (run->update && ul_file_write(path, got.data, got.length, &diag) == UL_OK) {
        printf("updated %s\n", path);
        return;
    }
    run->failed++;
    printf("%s differs; this came out:\n%s", path, got.data);
}

int main(int argc, char **argv)
{
    struct run run = {.update = argc > 2 && strcmp(argv[1], "--update") == 0};
    if (argc < 2) {
        fprintf(stderr, "usage: planner_golden [--update] DIR\n");
        return 1;
    }
    run.root = argv[argc - 1];
    ul_arena_init(&run.arena);
    const char **names;
    uint32_t count = cases_list(&run, &names);
    for (uint32_t i = 0; i < count; i++)
        case_check(&run, names[i]);
    printf("%u golden cases, %u failed\n", (unsigned)run.count, (unsigned)run.failed);
    ul_arena_done(&run.arena);
    return run.count == 0 || run.failed > 0;
}
