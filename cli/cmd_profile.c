/* SPDX-License-Identifier: Apache-2.0 */
/* ullage profile: measures this machine into a device profile, or lists the built-in ones. */
#define _XOPEN_SOURCE 700
#include "cli/cli.h"
#include "compile/measure/measure.h"

#include <string.h>
#include <unistd.h>

enum { NAME_BYTES = 60 }; /* the longest name of a profile */

/* The system's name of the processor, in characters that a profile's name may have. */
static const char *processor_name(struct ul_arena *arena)
{
    char line[256];
    char *name = ul_arena_copy_string(arena, "measured machine");
    FILE *stream = fopen("/proc/cpuinfo", "r");
    while (stream != NULL && fgets(line, sizeof line, stream) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) != 0 || colon == NULL)
            continue;
        name = ul_arena_printf(arena, "%.*s", NAME_BYTES, colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (stream != NULL)
        fclose(stream);
    name[strcspn(name, "\n")] = '\0';
    for (char *at = name; *at != '\0'; at++) {
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -_.,()@+/",
                   *at) == NULL)
            *at = '_';
    }
    return name[0] != '\0' ? name : "measured machine";
}

static uint64_t memory_bytes(void)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static void print_profile(struct ul_arena *arena, const struct ul_profile *profile)
{
    static const char *const meanings[UL_WORK_KINDS] = {
        [UL_WORK_MATMUL_F32] = "products and sums of tiled f32 contractions",
        [UL_WORK_MATMUL_TF32] = "the same with factors of 19 bits",
        [UL_WORK_MATMUL_F64] = "of f64",
        [UL_WORK_MATMUL_F16] = "of 16-bit floats",
        [UL_WORK_MATMUL_INT8] = "of 8-bit integers",
        [UL_WORK_WINDOW] = "of depthwise convolution",
        [UL_WORK_VECTOR] = "loads, stores and arithmetic in vector lanes",
        [UL_WORK_SPECIAL] = "exp, log, tanh, erf there",
        [UL_WORK_SCALAR] = "anything in other loops",
    };
    ul_cli_say(stdout, "%s: %s\n\n", profile->name, profile->source);
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++)
        ul_cli_say(stdout, "  %-12s %9.2f Gop/s   %s\n", ul_work_kind_name((enum ul_work_kind)kind),
                   profile->rates[kind], meanings[kind]);
    for (uint32_t i = 0; i < profile->level_count; i++) {
        const struct ul_profile_level *level = &profile->levels[i];
        if (level->capacity_bytes == UINT64_MAX)
            ul_cli_say(stdout, "  memory       %9.2f GB/s    beyond\n", level->rate);
        else
            ul_cli_say(stdout, "  memory       %9.2f GB/s    up to %s a step\n", level->rate,
                       ul_size_exact(arena, level->capacity_bytes));
    }
    if (profile->weights_rate > 0)
        ul_cli_say(stdout, "  weights      %9.2f GB/s    that no cache holds\n",
                   profile->weights_rate);
    if (profile->held_weight_bytes > 0)
        ul_cli_say(stdout, "  weights      %s of a program are held from run to run\n",
                   ul_size_exact(arena, profile->held_weight_bytes));
    ul_cli_say(stdout, "  overhead     %9.2f ns      of a step\n", profile->overhead_ns);
    ul_cli_say(stdout, "  host         %9.2f GB/s    each way to other memory of the host\n",
               profile->host_rate);
    ul_cli_say(stdout, "  file         %9.2f GB/s    each way to a file of the current folder\n",
               profile->file_rate);
}

static void print_list(void)
{
    ul_cli_say(stdout, "%-16s %8s %8s %8s %8s %8s %6s %6s %6s  %s\n", "profile", "f32", "tf32",
               "f16", "int8", "GB/s", "host", "GiB", "ns", "source");
    for (uint32_t i = 0; i < ul_profile_count(); i++) {
        const struct ul_profile *profile = ul_profile_at(i);
        ul_cli_say(
            stdout, "%-16s %8.5g %8.5g %8.5g %8.5g %8.5g %6.4g %6.4g %6.4g  %s\n", profile->name,
            profile->rates[UL_WORK_MATMUL_F32] / 1e3, profile->rates[UL_WORK_MATMUL_TF32] / 1e3,
            profile->rates[UL_WORK_MATMUL_F16] / 1e3, profile->rates[UL_WORK_MATMUL_INT8] / 1e3,
            profile->levels[profile->level_count - 1].rate,
            ul_profile_transfer_rate(profile, false), (double)profile->memory_bytes / (1 << 30),
            profile->overhead_ns, profile->source);
    }
    ul_cli_say(
        stdout,
        "\nf32 to int8: 10^12 operations a second in contractions; host: GB/s to its memory and\n"
        "back; ns: overhead of a step.\n");
}

static enum ul_status measure(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    const char *cflags = job->compile.options.cflags;
    struct ul_measured measured[UL_MEASURE_PROGRAMS];
    struct ul_profile profile = {.name = processor_name(&job->compile.keep)};
    struct ul_text text;
    job->compile.progress = ul_cli_progress;
    for (int i = 0; i < UL_MEASURE_PROGRAMS; i++)
        UL_TRY(ul_profile_measure(&job->compile, (enum ul_measure_program)i, &measured[i]));
    profile.source = ul_arena_printf(&job->compile.keep, "measured by ullage %s, one thread, %s",
                                     UL_VERSION, cflags != NULL ? cflags : "-O3 -march=native");
    profile.memory_bytes = memory_bytes();
    UL_TRY(ul_profile_measure_transfers(&job->compile, &profile));
    ul_profile_fit(&job->compile.keep, measured, &profile);
    if (options->output != NULL) {
        ul_text_init(&text, &job->compile.keep);
        ul_profile_put_json(&text, &profile, false);
        UL_TRY(ul_file_write(options->output, text.data, text.length, &job->compile.diag));
    }
    if (!ul_cli_stdout_is_taken(job))
        print_profile(&job->compile.keep, &profile);
    return UL_OK;
}

static enum ul_status profile(struct ul_cli_job *job)
{
    if (job->files.count != 0)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "%s: this command takes no file; -o FILE says where the profile goes",
                           job->files.items[0]);
    if (!job->options.list)
        return measure(job);
    if (job->options.output != NULL)
        return ul_diag_set(&job->compile.diag, UL_USAGE, "--list prints: it takes no -o");
    print_list();
    return UL_OK;
}

static const struct ul_cli_example examples[] = {
    {"This machine, for plans", "ullage profile -o here.json"},
    {"What is built in", "ullage profile --list"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_profile = {
    .name = "profile",
    .arguments = "[-o FILE] [options]",
    .summary = "Measures this machine into a device profile for --profile.",
    .details = "It compiles and runs small programs for about half a minute; nothing else should "
               "run meanwhile. A plan names the profile that its times come from.",
    .group = "this machine",
    .examples = examples,
    .bit = UL_IN_PROFILE,
    .run = profile};
