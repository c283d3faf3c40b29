/* SPDX-License-Identifier: Apache-2.0 */
/* A program that embeds the compiler: it plans a model under a budget, emits it, builds and runs
 * it, more than once in one process and two at a time; what goes wrong comes back as a status and a
 * text. The model is models/digits with the dimension N.
 *
 * usage: compile_embed MODEL.onnx FOLDER     FOLDER is made anew
 */
#define _XOPEN_SOURCE 700
#include "compile/compile.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* What a caller hears while it waits: begins and ends alternate. */
struct heard {
    uint32_t begins, ends;
};

static void hear(void *context, const char *what)
{
    struct heard *heard = context;
    if (what != NULL)
        heard->begins++;
    else
        heard->ends++;
    CHECK(heard->ends <= heard->begins);
}

static void begin(struct ul_compile *compile, struct heard *heard)
{
    *heard = (struct heard){0};
    ul_compile_init(compile);
    compile->progress = hear;
    compile->progress_context = heard;
    compile->options.target = "c";
    compile->options.cflags = "-O0";
    CHECK(ul_compile_set(compile, "dim", "N=1") == UL_OK);
}

/* Plans; a budget is a number here, and could be "64KiB" by ul_compile_set. */
static enum ul_status plan(struct ul_compile *compile, const char *model, uint64_t budget_bytes)
{
    compile->options.budget_bytes = budget_bytes;
    UL_TRY(ul_compile_build(compile, model));
    UL_TRY(ul_compile_plan(compile));
    return ul_compile_require_fit(compile);
}

/* The smallest budget that is met, and the reserved bytes without any. */
static void find_budgets(const char *model, uint64_t *smallest_bytes, uint64_t *free_bytes)
{
    struct ul_compile compile;
    struct heard heard;
    begin(&compile, &heard);
    CHECK(plan(&compile, model, 0) == UL_OK);
    CHECK(heard.begins > 0 && heard.begins == heard.ends);
    *free_bytes = compile.report.facts.process_bytes;
    ul_compile_done(&compile);

    begin(&compile, &heard);
    CHECK(plan(&compile, model, 1000) == UL_NO_FIT);
    CHECK(strstr(compile.diag.text, "smallest budget known to work") != NULL);
    CHECK(!compile.plan.fits && compile.json.length > 0);
    *smallest_bytes = compile.plan.smallest_budget_bytes;
    CHECK(*smallest_bytes <= *free_bytes);
    ul_compile_done(&compile);
}

static void check_same_files(const char *left, const char *right)
{
    struct ul_arena arena;
    struct ul_diag diag = {.status = UL_OK};
    struct ul_file files[2];
    ul_arena_init(&arena);
    CHECK(ul_file_map(&files[0], &arena, left, &diag) == UL_OK);
    CHECK(ul_file_map(&files[1], &arena, right, &diag) == UL_OK);
    CHECK(files[0].size_bytes == files[1].size_bytes);
    CHECK(memcmp(files[0].data, files[1].data, (size_t)files[0].size_bytes) == 0);
    ul_file_unmap(&files[0]);
    ul_file_unmap(&files[1]);
    ul_arena_done(&arena);
}

/* Two compiles side by side give the same source, and what it says is what runs. */
static void compile_twice(const char *model, uint64_t budget_bytes)
{
    struct ul_compile compiles[2];
    struct heard heard[2];
    const char *const folders[] = {"first", "second"};
    FILE *dump = tmpfile();
    CHECK(dump != NULL);
    for (int i = 0; i < 2; i++) {
        begin(&compiles[i], &heard[i]);
        compiles[i].options.print_after = "fuse";
        compiles[i].dump = i == 0 ? dump : NULL; /* the other one prints nothing */
        CHECK(plan(&compiles[i], model, budget_bytes) == UL_OK);
        CHECK(ul_compile_emit(&compiles[i], folders[i]) == UL_OK);
    }
    CHECK(ftell(dump) > 0);
    fclose(dump);
    uint64_t reserved_bytes = compiles[0].plan.reserved_bytes[0];
    printf("reserves %llu bytes\n", (unsigned long long)reserved_bytes);
    CHECK(reserved_bytes <= budget_bytes);
    CHECK(strcmp(compiles[0].json.data, compiles[1].json.data) == 0);
    check_same_files("first/model.c", "second/model.c");
    check_same_files("first/weights.bin", "second/weights.bin");
    ul_compile_done(&compiles[0]);
    CHECK(ul_compile_make(&compiles[1], "second", "program") == UL_OK);
    ul_compile_done(&compiles[1]);

    const char *const argv[] = {"./program", "--random", "1", "--print", NULL};
    CHECK(ul_process_run(argv, "printed") == 0);
}

/* The model and a model of its name, in one arena. */
static enum ul_status share(const char *model, uint64_t budget_bytes, struct ul_compile *compile)
{
    struct ul_texts paths = {.count = 0};
    ul_texts_add(&compile->keep, &paths, model);
    ul_texts_add(&compile->keep, &paths, model);
    compile->options.budget_bytes = budget_bytes;
    compile->is_library = compile->is_library_alone = true;
    UL_TRY(ul_compile_build_roots(compile, &paths));
    UL_TRY(ul_compile_plan(compile));
    return ul_compile_require_fit(compile);
}

static void check_roots(const char *model)
{
    struct ul_compile compile;
    struct heard heard;
    begin(&compile, &heard);
    CHECK(share(model, 0, &compile) == UL_OK);
    CHECK(heard.begins > 0 && heard.begins == heard.ends);
    CHECK(compile.root_count == 2 && compile.graph.root_count == 2 && compile.json.length > 0);
    CHECK(strcmp(compile.roots[1].name, "digits_2") == 0);
    CHECK(ul_compile_emit(&compile, "both") == UL_OK);
    CHECK(access("both/digits_2.h", R_OK) == 0 && access("both/shared.h", R_OK) == 0);
    ul_compile_done(&compile);

    begin(&compile, &heard);
    CHECK(share(model, 1000, &compile) == UL_NO_FIT);
    CHECK(strstr(compile.diag.text, "smallest budget known to work") != NULL);
    ul_compile_done(&compile);
}

/* The host's signal mask is the same after two temporary folders as before them. */
static void check_signals(void)
{
    struct ul_arena arena;
    struct ul_diag diag = {.status = UL_OK};
    const char *folders[2];
    sigset_t own;
    sigset_t now;
    sigset_t before;
    sigemptyset(&own);
    sigaddset(&own, SIGTERM);
    CHECK(pthread_sigmask(SIG_BLOCK, &own, &before) == 0);
    ul_arena_init(&arena);
    CHECK(ul_temporary_make(&arena, &folders[0], &diag) == UL_OK);
    CHECK(ul_temporary_make(&arena, &folders[1], &diag) == UL_OK);
    ul_temporary_remove(folders[0]);
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &now) == 0);
    CHECK(sigismember(&now, SIGINT) == 1 && sigismember(&now, SIGTERM) == 1);
    ul_temporary_remove(folders[1]);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, &now) == 0);
    CHECK(sigismember(&now, SIGINT) == 0 && sigismember(&now, SIGPIPE) == 0);
    CHECK(sigismember(&now, SIGTERM) == 1);
    ul_arena_done(&arena);
}

/* Programs can be built from a runtime of the caller's own. */
static void check_runtime(const char *model)
{
    struct ul_compile compile;
    struct heard heard;
    const char *const copy[] = {"cp", "-r", ULLAGE_SOURCE_DIR "/runtime", "runtime", NULL};
    const char *const change[] = {
        "sh", "-c",
        "echo 'const char ul_mark[] = \"a runtime of its own\";' >>runtime/host/ul_main.c", NULL};
    const char *const find[] = {"grep", "-q", "a runtime of its own", "changed", NULL};
    CHECK(ul_process_run(copy, NULL) == 0 && ul_process_run(change, NULL) == 0);
    begin(&compile, &heard);
    compile.options.runtime_dir = "runtime";
    CHECK(plan(&compile, model, 0) == UL_OK);
    CHECK(ul_compile_emit(&compile, "third") == UL_OK);
    CHECK(ul_compile_make(&compile, "third", "changed") == UL_OK);
    CHECK(ul_process_run(find, NULL) == 0);
    ul_compile_done(&compile);
}

/* Checks the status and a word of the text, and that nothing else happens. */
static void check_error(const char *model, const char *option, const char *value,
                        enum ul_status wanted, const char *word)
{
    struct ul_compile compile;
    struct heard heard;
    begin(&compile, &heard);
    enum ul_status status = option != NULL ? ul_compile_set(&compile, option, value) : UL_OK;
    if (status == UL_OK)
        status = plan(&compile, model, compile.options.budget_bytes);
    CHECK(status == wanted);
    CHECK(strstr(compile.diag.text, word) != NULL);
    CHECK(heard.begins == heard.ends);
    ul_compile_done(&compile);
}

/* Fields that were assigned are held against their rows like what was said, one after the other. */
static void check_fields(const char *model)
{
    const struct ul_option *rows = ul_compile_option_table.rows;
    static const char *const numbers[] = {"a power of two from 8", "a number above 0",
                                          "a number above 0", "a number from 1 to 1024"};
    struct ul_compile compile;
    struct heard heard;
    for (uint32_t i = 0; i < ul_compile_option_table.count; i++) {
        if (rows[i].kind != UL_OPTION_WORD)
            continue;
        begin(&compile, &heard);
        unsigned value = 99;
        memcpy((char *)&compile.options + rows[i].offset, &value, sizeof value);
        CHECK(plan(&compile, model, 0) == UL_USAGE);
        CHECK(strstr(compile.diag.text, rows[i].name) != NULL);
        CHECK(strstr(compile.diag.text, "99: expected ") != NULL);
        ul_compile_done(&compile);
    }
    for (int i = 0; i < 4; i++) {
        begin(&compile, &heard);
        struct ul_compile_options *options = &compile.options;
        options->align_bytes = i == 0 ? 24 : 0;
        options->time_limit_seconds = i == 1 ? -1 : i == 2 ? (double)NAN : 0;
        options->thread_count = i == 3 ? 100000 : 0;
        CHECK(plan(&compile, model, 0) == UL_USAGE);
        CHECK(strstr(compile.diag.text, numbers[i]) != NULL);
        ul_compile_done(&compile);
    }
}

/* So are the items of lists. */
static void check_lists(const char *model)
{
    struct ul_named_size sizes[] = {{.name = "N", .rank = 1, .dims = {-1}},
                                    {.name = "N", .rank = UL_LIMIT_RANK + 1, .dims = {1}},
                                    {.name = NULL, .rank = 1, .dims = {1}}};
    const char *texts[] = {NULL};
    struct ul_pair pair = {.name = "a", .value = NULL};
    struct ul_compile compile;
    struct heard heard;
    for (int i = 0; i < 6; i++) {
        begin(&compile, &heard);
        if (i < 3)
            compile.options.dims = (struct ul_named_sizes){.count = 1, .items = &sizes[i]};
        else if (i == 3)
            compile.options.no_passes = (struct ul_texts){.count = 1, .items = texts};
        else
            compile.options.donations =
                (struct ul_pairs){.count = 1, .items = i == 4 ? &pair : NULL};
        CHECK(plan(&compile, model, 0) == UL_USAGE);
        CHECK(strstr(compile.diag.text, i < 3    ? "--dim"
                                        : i == 3 ? "--no-pass"
                                                 : "--donate") != NULL);
        ul_compile_done(&compile);
    }
}

int main(int argc, char **argv)
{
    struct ul_arena arena;
    uint64_t smallest_bytes;
    uint64_t free_bytes;
    CHECK(argc == 3);
    ul_arena_init(&arena);
    ul_tree_remove(argv[2]);
    const char *const make[] = {"mkdir", "-p", argv[2], NULL};
    CHECK(ul_process_run(make, NULL) == 0 && chdir(argv[2]) == 0);

    find_budgets(argv[1], &smallest_bytes, &free_bytes);
    compile_twice(argv[1], smallest_bytes);
    check_roots(argv[1]);
    check_signals();
    check_runtime(argv[1]);
    check_fields(argv[1]);
    check_lists(argv[1]);
    check_error("missing.onnx", NULL, NULL, UL_IO, "missing.onnx: cannot open");
    check_error(argv[1], "frobnicate", "1", UL_USAGE, "--frobnicate");
    check_error(argv[1], "budget", "12parsecs", UL_USAGE, "expected a size");
    check_error(argv[1], "budget", NULL, UL_USAGE, "takes a value");
    check_error(argv[1], "keep-inputs", "yes", UL_USAGE, "takes no value");
    check_error(argv[1], "target", "abacus", UL_UNSUPPORTED, "abacus");
    check_error(argv[1], "threads", "2", UL_USAGE, "for target cpu");
    check_error(argv[1], "no-pass", "frobnicate", UL_USAGE, "no pass");
    check_error(argv[1], "plan", "missing.json", UL_IO, "missing.json");
    ul_arena_done(&arena);
    return 0;
}
