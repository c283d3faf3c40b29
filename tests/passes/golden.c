/* Golden tests of passes: <pass>/<case>.ir in, <case>.want or <case>.err out; "pipeline" is all of
 * them. The files are compared as a whole. Lines "# --split TEXT", "# --channels-last",
 * "# --filters-last", "# --biases-alike", "# --products-joined", "# --precision NAME" and
 * "# --calls" (the target has a library, which takes nothing) of an .ir are options.
 *
 * usage: test_passes [--update] DIR
 * exit: 0 all as wanted, 1 not */
#define _POSIX_C_SOURCE 200809L
#include "ir/text.h"
#include "passes/passes.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

struct run {
    struct ul_arena arena;
    const char *root;
    bool update;
    uint32_t count, failed;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The names in a folder that end in `suffix`, sorted. */
static uint32_t list(struct run *run, const char *path, const char *suffix, const char ***names)
{
    uint32_t count = 0;
    uint32_t capacity = 0;
    DIR *dir = opendir(path);
    *names = NULL;
    if (dir == NULL)
        return 0;
    for (struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        size_t length = strlen(entry->d_name);
        if (entry->d_name[0] == '.' || length < strlen(suffix) ||
            strcmp(entry->d_name + length - strlen(suffix), suffix) != 0)
            continue;
        UL_GROW(&run->arena, *names, count, capacity);
        (*names)[count++] = ul_arena_copy_string(&run->arena, entry->d_name);
    }
    closedir(dir);
    if (count > 0)
        qsort(*names, count, sizeof **names, by_name);
    return count;
}

/* The file as a string, or NULL. */
static const char *slurp(struct run *run, const char *path)
{
    struct ul_file file;
    struct ul_diag diag = {0};
    if (ul_file_map(&file, &run->arena, path, &diag) != UL_OK)
        return NULL;
    char *text = ul_arena_alloc(&run->arena, file.size_bytes + 1);
    if (file.size_bytes > 0)
        memcpy(text, file.data, (size_t)file.size_bytes);
    ul_file_unmap(&file);
    return text;
}

/* The rest of every line that begins with "# --split ". */
static void read_splits(struct run *run, const char *text, struct ul_passes_options *options)
{
    static const char mark[] = "# --split ";
    const char **splits = NULL;
    uint32_t capacity = 0;
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, mark, strlen(mark)) != 0)
            continue;
        line += strlen(mark);
        UL_GROW(&run->arena, splits, options->split_count, capacity);
        splits[options->split_count++] =
            ul_arena_printf(&run->arena, "%.*s", (int)strcspn(line, "\n"), line);
    }
    options->splits = splits;
}

static bool takes_nothing(const void *library, const struct ul_graph *graph,
                          const ul_node_id *nodes, uint32_t count, const bool *escapes,
                          uint64_t *scratch_bytes)
{
    (void)library, (void)graph, (void)nodes, (void)count, (void)escapes, (void)scratch_bytes;
    return false;
}

static enum ul_status run_case(struct run *run, const char *pass, const char *text,
                               const char **out)
{
    struct ul_graph graph;
    struct ul_arena scratch;
    struct ul_diag diag = {0};
    struct ul_passes_options options = {.check_text = true};
    struct ul_text printed;
    ul_text_init(&printed, &run->arena);
    ul_arena_init(&scratch);
    if (strcmp(pass, "pipeline") != 0)
        options.only = pass;
    options.biases_alike = strstr(text, "# --biases-alike\n") != NULL;
    options.products_joined = strstr(text, "# --products-joined\n") != NULL;
    options.filters_last = strstr(text, "# --filters-last\n") != NULL;
    options.channels_last = strstr(text, "# --channels-last\n") != NULL;
    if (strstr(text, "# --calls\n") != NULL)
        options.is_call = takes_nothing;
    if (strstr(text, "# --precision fp16\n") != NULL)
        options.precision = UL_F16;
    if (strstr(text, "# --precision bf16\n") != NULL)
        options.precision = UL_BF16;
    read_splits(run, text, &options);
    enum ul_status status = ul_graph_parse(&graph, &run->arena, text, NULL, &diag);
    if (status == UL_OK)
        status = ul_passes_run(&graph, &scratch, &options, &diag);
    if (status == UL_OK)
        ul_graph_print(&printed, &graph);
    else
        ul_text_printf(&printed, "%d: %s\n", (int)status, diag.text);
    ul_arena_done(&scratch);
    *out = printed.data;
    return status;
}

static void check_case(struct run *run, const char *pass, const char *file)
{
    size_t stem = strlen(file) - strlen(".ir");
    const char *base = ul_arena_printf(&run->arena, "%s/%s/%.*s", run->root, pass, (int)stem, file);
    const char *text = slurp(run, ul_arena_printf(&run->arena, "%s.ir", base));
    const char *got;
    enum ul_status status = run_case(run, pass, text == NULL ? "" : text, &got);
    const char *path =
        ul_arena_printf(&run->arena, "%s.%s", base, status == UL_OK ? "want" : "err");
    const char *wanted = slurp(run, path);
    run->count++;
    if (wanted != NULL && strcmp(wanted, got) == 0)
        return;
    struct ul_diag diag = {0};
    if (run->update && ul_file_write(path, got, strlen(got), &diag) == UL_OK) {
        printf("updated %s\n", path);
        return;
    }
    run->failed++;
    printf("%s differs; this came out:\n%s", path, got);
}

int main(int argc, char **argv)
{
    struct run run = {.update = argc > 2 && strcmp(argv[1], "--update") == 0};
    if (argc < 2) {
        fprintf(stderr, "usage: test_passes [--update] DIR\n");
        return 1;
    }
    run.root = argv[argc - 1];
    ul_arena_init(&run.arena);
    const char **passes;
    uint32_t pass_count = list(&run, run.root, "", &passes);
    for (uint32_t p = 0; p < pass_count; p++) {
        const char **files;
        const char *folder = ul_arena_printf(&run.arena, "%s/%s", run.root, passes[p]);
        uint32_t file_count = list(&run, folder, ".ir", &files);
        for (uint32_t f = 0; f < file_count; f++)
            check_case(&run, passes[p], files[f]);
    }
    printf("%u golden cases, %u failed\n", (unsigned)run.count, (unsigned)run.failed);
    ul_arena_done(&run.arena);
    return run.count == 0 || run.failed > 0;
}
