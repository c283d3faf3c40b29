/* One table of options; a command names the ones it takes, and --help prints those. */
#define _GNU_SOURCE /* getopt_long */
#include "cli/cli.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

struct option_info {
    const char *name;
    const char *argument; /* NULL: a switch */
    const char *help;
    char letter; /* 0: none */
};

static const struct option_info infos[UL_CLI_OPTION_COUNT] = {
    [UL_CLI_OUTPUT] = {"output", "FILE", "where the result goes; - is standard output", 'o'},
    [UL_CLI_EMIT] = {"emit", "DIR", "keep the generated source in DIR; it builds with make", 0},
    [UL_CLI_JSON] = {"json", "FILE", "write the result as JSON; - is standard output", 0},
    [UL_CLI_TARGET] = {"target", "NAME",
                       "cpu (OpenMP and oneDNN, the default), c (portable C99) or cuda", 0},
    [UL_CLI_DIM] = {"dim", "NAME=N", "the size of a symbolic dimension; may be repeated", 0},
    [UL_CLI_SHAPE] = {"shape", "INPUT=1,3,224,224", "the shape of an input; may be repeated", 0},
    [UL_CLI_CONST] = {"const", "INPUT=FILE", "fix an input now, from .npy or .pb; repeatable", 0},
    [UL_CLI_BUDGET] = {"budget", "SIZE", "the most that may be reserved: 64MiB, 64M, 65536", 0},
    [UL_CLI_ALIGN] = {"align", "N", "alignment of every value in bytes (default 64)", 0},
    [UL_CLI_ORDER] = {"order", "METHOD", "file|greedy|dfs|dp|beam|search|ilp|best", 0},
    [UL_CLI_REMAT] = {"remat", "METHOD", "none|greedy|search|chain|ilp|best (default best)", 0},
    [UL_CLI_PACK] = {"pack", "METHOD", "none|greedy|exact|best (default best)", 0},
    [UL_CLI_TIME_LIMIT] = {"time-limit", "SECONDS", "an additional stop for searches", 0},
    [UL_CLI_SEED] = {"seed", "N", "seed of searches (default 0)", 0},
    [UL_CLI_PLAN] = {"plan", "PLAN.json", "use this plan instead of making one", 0},
    [UL_CLI_KEEP_INPUTS] = {"keep-inputs", NULL, "inputs keep their bytes through the run", 0},
    [UL_CLI_WEIGHTS] = {"weights", "WHERE", "arena (default), rom (read-only data), file", 0},
    [UL_CLI_IO] = {"io", "WHERE", "arena (default), or caller: buffers outside of it", 0},
    [UL_CLI_CC] = {"cc", "COMMAND", "the C compiler of targets c and cpu (default $CC, else cc)",
                   0},
    [UL_CLI_CFLAGS] = {"cflags", "FLAGS", "its flags (default -O3)", 0},
    [UL_CLI_MARCH] = {"march", "NAME",
                      "processor to compile for, targets c and cpu (default that of --isa or "
                      "--plan, else native; none: plain)",
                      0},
    [UL_CLI_PREFIX] = {"prefix", "NAME", "of the library's names (default model)", 0},
    [UL_CLI_NO_PASS] = {"no-pass", "NAME", "switch a pass off; may be repeated", 0},
    [UL_CLI_SPLIT] = {"split", "FIRST..LAST:AXIS:N",
                      "compute these nodes in N pieces along batch, rows or an axis; repeatable",
                      0},
    [UL_CLI_PRINT_AFTER] = {"print-after", "PASS", "dump the graph after a pass, or after all", 0},
    [UL_CLI_STOP_AFTER] = {"stop-after", "PASS", "end after a pass and print the graph", 0},
    [UL_CLI_RTOL] = {"rtol", "X", "relative tolerance (default 1e-3)", 0},
    [UL_CLI_ATOL] = {"atol", "X", "absolute tolerance (default 1e-7)", 0},
    [UL_CLI_NORM] = {"norm", "X",
                     "norm error that is right (default above); 0: elements alone count", 0},
    [UL_CLI_CAPACITY] = {"capacity", "SIZE", "stop at the first packing that fits", 0},
    [UL_CLI_SWEEP] = {"sweep", NULL, "the plans of ever smaller budgets, as a table", 0},
    [UL_CLI_CSV] = {"csv", "FILE", "write the table of --sweep as CSV; - is standard output", 0},
    [UL_CLI_BUDGET_FRACTION] = {"budget-fraction", "F", "of the published order's peak", 0},
    [UL_CLI_PROFILE] = {"profile", "NAME|FILE", "the device whose time counts; see ullage profile",
                        0},
    [UL_CLI_LIST] = {"list", NULL, "print the built-in profiles", 0},
    [UL_CLI_THREADS] = {"threads", "N",
                        "of the program, at most, target cpu (default: this machine's cores)", 0},
    [UL_CLI_ISA] =
        {"isa", "NAME",
         "instructions of the machine that it will run on, target cpu (default: this one's)", 0},
    [UL_CLI_PRECISION] = {"precision", "fp32|fp16|bf16",
                          "of weights and activations in memory (default fp32)", 0},
    [UL_CLI_CONV] = {"conv", "METHOD",
                     "of 3x3 convolutions, target cpu: best (default), direct, or winograd", 0},
    [UL_CLI_WORKSPACE] = {"workspace", "SIZE",
                          "scratch of a library call on target cuda, at most (default 4MiB)", 0},
    [UL_CLI_WITH_CUDNN] =
        {"with-cudnn", "WHEN",
         "cuDNN on target cuda: auto (default: where it is beside nvcc), on or off", 0},
    [UL_CLI_TF32] = {"tf32", NULL, "let target cuda round factors of f32 products to 11 bits", 0},
    [UL_CLI_NVCC] = {"nvcc", "COMMAND", "the compiler of target cuda (default $NVCC, else nvcc)",
                     0},
};

void ul_cli_list_add(struct ul_arena *arena, struct ul_cli_list *list, const char *item)
{
    UL_GROW(arena, list->items, list->count, list->capacity);
    list->items[list->count++] = item;
}

const char *ul_cli_option_name(enum ul_cli_option_id id)
{
    return infos[id].name;
}

void ul_cli_help(const struct ul_cli_command *command)
{
    printf("usage: ullage %s %s\n\n%s\n", command->name, command->arguments, command->summary);
    if (command->details != NULL)
        printf("\n%s\n", command->details);
    printf("\noptions:\n");
    for (uint32_t i = 0; i < command->option_count; i++) {
        const struct option_info *info = &infos[command->options[i]];
        char left[64];
        snprintf(left, sizeof left, "%s%.1s%s--%s%s%s", info->letter != 0 ? "-" : "", &info->letter,
                 info->letter != 0 ? ", " : "", info->name, info->argument != NULL ? " " : "",
                 info->argument != NULL ? info->argument : "");
        printf("  %-28s %s\n", left, info->help);
    }
    printf("  %-28s %s\n", "-h, --help", "this text");
}

static enum ul_status bad_value(struct ul_diag *diag, enum ul_cli_option_id id, const char *value)
{
    return ul_diag_set(diag, UL_USAGE, "--%s %s: expected %s (%s)", infos[id].name, value,
                       infos[id].argument, infos[id].help);
}

/* The position of `value` among words separated by '|', up to a blank, or -1. */
static int word_index(const char *words, const char *value)
{
    size_t length = strlen(value);
    int index = 0;
    for (const char *at = words; at != NULL; at = strchr(at, '|'), index++) {
        if (*at == '|')
            at++;
        if (length > 0 && strncmp(at, value, length) == 0 && strchr("| ", at[length]) != NULL)
            return index;
    }
    return -1;
}

static enum ul_status set_method(struct ul_cli_options *options, enum ul_cli_option_id id,
                                 const char *value, struct ul_diag *diag)
{
    static const enum ul_plan_order orders[] = {UL_ORDER_FILE, UL_ORDER_GREEDY, UL_ORDER_DFS,
                                                UL_ORDER_DP,   UL_ORDER_BEAM,   UL_ORDER_SEARCH,
                                                UL_ORDER_ILP,  UL_ORDER_BEST};
    static const enum ul_plan_remat remats[] = {UL_REMAT_NONE,  UL_REMAT_GREEDY, UL_REMAT_SEARCH,
                                                UL_REMAT_CHAIN, UL_REMAT_ILP,    UL_REMAT_BEST};
    static const enum ul_plan_pack packs[] = {UL_PACK_NONE, UL_PACK_GREEDY, UL_PACK_EXACT,
                                              UL_PACK_BEST};
    int index = word_index(infos[id].help, value);
    if (index < 0)
        return bad_value(diag, id, value);
    if (id == UL_CLI_REMAT)
        options->remat = value;
    if (id == UL_CLI_ORDER)
        options->planning.order = orders[index];
    else if (id == UL_CLI_REMAT)
        options->planning.remat = remats[index];
    else
        options->planning.pack = packs[index];
    return UL_OK;
}

static enum ul_status set_number(struct ul_cli_options *options, enum ul_cli_option_id id,
                                 const char *value, struct ul_diag *diag)
{
    struct ul_plan_options *planning = &options->planning;
    char *end;
    if (id == UL_CLI_TIME_LIMIT) {
        planning->time_limit_seconds = strtod(value, &end);
        bool valid = end != value && *end == '\0' && planning->time_limit_seconds > 0;
        return valid ? UL_OK : bad_value(diag, id, value);
    }
    uint64_t number;
    if (!ul_size_parse(value, &number))
        return bad_value(diag, id, value);
    if (id == UL_CLI_BUDGET)
        planning->budget_bytes = number;
    else if (id == UL_CLI_SEED)
        planning->seed = number;
    else
        planning->alignment_bytes = number;
    bool power =
        number >= UL_PROGRAM_MIN_ALIGN_BYTES && number <= 4096 && (number & (number - 1)) == 0;
    if (id == UL_CLI_ALIGN && !power)
        return ul_diag_set(diag, UL_USAGE, "--align %s: expected a power of two from %d to 4096",
                           value, UL_PROGRAM_MIN_ALIGN_BYTES);
    if (id == UL_CLI_BUDGET && number == 0)
        return bad_value(diag, id, value);
    return UL_OK;
}

static enum ul_status set_option(struct ul_cli_options *options, enum ul_cli_option_id id,
                                 const char *value, struct ul_diag *diag)
{
    const char **const words[UL_CLI_OPTION_COUNT] = {
        [UL_CLI_OUTPUT] = &options->output,
        [UL_CLI_EMIT] = &options->emit,
        [UL_CLI_JSON] = &options->json,
        [UL_CLI_TARGET] = &options->target,
        [UL_CLI_PLAN] = &options->plan,
        [UL_CLI_WEIGHTS] = &options->weights,
        [UL_CLI_IO] = &options->io,
        [UL_CLI_CC] = &options->cc,
        [UL_CLI_CFLAGS] = &options->cflags,
        [UL_CLI_MARCH] = &options->march,
        [UL_CLI_PREFIX] = &options->prefix,
        [UL_CLI_PRINT_AFTER] = &options->print_after,
        [UL_CLI_STOP_AFTER] = &options->stop_after,
        [UL_CLI_RTOL] = &options->rtol,
        [UL_CLI_ATOL] = &options->atol,
        [UL_CLI_NORM] = &options->norm,
        [UL_CLI_CAPACITY] = &options->capacity,
        [UL_CLI_BUDGET_FRACTION] = &options->budget_fraction,
        [UL_CLI_CSV] = &options->csv,
        [UL_CLI_PROFILE] = &options->profile,
        [UL_CLI_THREADS] = &options->threads,
        [UL_CLI_ISA] = &options->isa,
        [UL_CLI_CONV] = &options->conv,
        [UL_CLI_PRECISION] = &options->precision,
        [UL_CLI_WORKSPACE] = &options->workspace,
        [UL_CLI_WITH_CUDNN] = &options->with_cudnn,
        [UL_CLI_NVCC] = &options->nvcc,
    };
    struct ul_cli_list *const lists[UL_CLI_OPTION_COUNT] = {
        [UL_CLI_DIM] = &options->dims,     [UL_CLI_SHAPE] = &options->shapes,
        [UL_CLI_CONST] = &options->consts, [UL_CLI_NO_PASS] = &options->no_passes,
        [UL_CLI_SPLIT] = &options->splits,
    };
    options->given[id] = true;
    if (words[id] != NULL)
        *words[id] = value;
    else if (lists[id] != NULL)
        ul_cli_list_add(options->arena, lists[id], value);
    else if (id == UL_CLI_KEEP_INPUTS)
        options->keep_inputs = true;
    else if (id == UL_CLI_TF32)
        options->tf32 = true;
    else if (id == UL_CLI_SWEEP)
        options->sweep = true;
    else if (id == UL_CLI_LIST)
        options->list = true;
    else if (id == UL_CLI_ORDER || id == UL_CLI_REMAT || id == UL_CLI_PACK)
        return set_method(options, id, value, diag);
    else
        return set_number(options, id, value, diag);
    return UL_OK;
}

enum { HELP_VALUE = 1000 };

/* The command's options as getopt_long wants them. */
static void fill_long(const struct ul_cli_command *command, struct option *longs, char *letters)
{
    uint32_t letter_count = 0;
    letters[letter_count++] = ':'; /* a missing argument is told apart from an unknown option */
    for (uint32_t i = 0; i < command->option_count; i++) {
        const struct option_info *info = &infos[command->options[i]];
        longs[i] =
            (struct option){.name = info->name,
                            .has_arg = info->argument != NULL ? required_argument : no_argument,
                            .val = HELP_VALUE + 1 + (int)command->options[i]};
        if (info->letter == 0)
            continue;
        letters[letter_count++] = info->letter;
        if (info->argument != NULL)
            letters[letter_count++] = ':';
    }
    letters[letter_count++] = 'h';
    letters[letter_count] = '\0';
    longs[command->option_count] = (struct option){.name = "help", .val = HELP_VALUE};
    longs[command->option_count + 1] = (struct option){.name = NULL};
}

static enum ul_status parse_one(const struct ul_cli_command *command, int code, char **argv,
                                struct ul_cli_options *options, struct ul_diag *diag)
{
    if (code == '?')
        return ul_diag_set(diag, UL_USAGE, "unknown option %s; see ullage %s --help",
                           argv[optind - 1], command->name);
    if (code == ':')
        return ul_diag_set(diag, UL_USAGE, "option %s needs a value; see ullage %s --help",
                           argv[optind - 1], command->name);
    for (uint32_t i = 0; i < command->option_count; i++) {
        enum ul_cli_option_id id = command->options[i];
        if (code == HELP_VALUE + 1 + (int)id || code == infos[id].letter)
            return set_option(options, id, optarg, diag);
    }
    return UL_INTERNAL;
}

enum ul_status ul_cli_parse(const struct ul_cli_command *command, int argc, char **argv,
                            struct ul_cli_options *options, bool *helped, struct ul_diag *diag)
{
    struct option longs[UL_CLI_OPTION_COUNT + 2];
    char letters[2 * UL_CLI_OPTION_COUNT + 3];
    fill_long(command, longs, letters);
    *helped = false;
    opterr = 0;
    optind = 1;
    for (;;) {
        int code = getopt_long(argc, argv, letters, longs, NULL);
        if (code < 0)
            break;
        if (code == HELP_VALUE || code == 'h') {
            ul_cli_help(command);
            *helped = true;
            return UL_OK;
        }
        UL_TRY(parse_one(command, code, argv, options, diag));
    }
    for (int i = optind; i < argc; i++)
        ul_cli_list_add(options->arena, &options->files, argv[i]);
    return UL_OK;
}
