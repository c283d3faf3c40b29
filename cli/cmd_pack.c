/* SPDX-License-Identifier: Apache-2.0 */
/* ullage pack: the packer alone, on MiniMalloc's CSV. */
#include "cli/cli.h"
#include "planner/model/effort.h"
#include "planner/pack/pack.h"

static void put_json(struct ul_text *text, const struct ul_pack_result *result,
                     const struct ul_pack_table *table, double seconds)
{
    ul_text_printf(text,
                   "{\n  \"arena_bytes\": %llu,\n  \"lower_bound_bytes\": %llu,\n"
                   "  \"optimal\": %s,\n  \"fits\": %s,\n  \"proven\": %s,\n  \"method\": ",
                   (unsigned long long)result->arena_bytes,
                   (unsigned long long)result->lower_bound_bytes,
                   result->optimal ? "true" : "false", result->fits ? "true" : "false",
                   result->proven ? "true" : "false");
    ul_text_put_json(text, result->method);
    ul_text_printf(text, ",\n  \"seconds\": %.3f,\n  \"buffers\": %u\n}\n", seconds, table->count);
}

static void print_summary(struct ul_arena *arena, const struct ul_pack_result *result,
                          const struct ul_pack_table *table, double seconds)
{
    double gap = result->lower_bound_bytes == 0
                     ? 0.0
                     : (double)(result->arena_bytes - result->lower_bound_bytes) /
                           (double)result->lower_bound_bytes;
    ul_cli_say(stdout, "arena        %s (%u buffer%s)\n", ul_size_exact(arena, result->arena_bytes),
               table->count, ul_plural(table->count));
    ul_cli_say(stdout, "lower bound  %s (gap %.4f %%, %s)\n",
               ul_size_exact(arena, result->lower_bound_bytes), gap * 100.0,
               result->optimal ? "proven optimal" : "not proven");
    ul_cli_say(stdout, "method       %s, %.3f s%s\n", result->method, seconds,
               result->stopped_by_time ? ", stopped by the time limit" : "");
}

static enum ul_status read_table(struct ul_cli_job *job, struct ul_pack_table *table)
{
    const char *path = job->files.items[0];
    struct ul_file file;
    UL_TRY(ul_file_map(&file, &job->compile.keep, path, &job->compile.diag));
    enum ul_status status = ul_pack_read_csv(&job->compile.keep, (const char *)file.data,
                                             file.size_bytes, table, &job->compile.diag);
    return ul_file_close(&file, path, status, &job->compile.diag);
}

static enum ul_status write_results(struct ul_cli_job *job, const struct ul_pack_table *table,
                                    const struct ul_pack_result *result, double seconds)
{
    const struct ul_cli_options *options = &job->options;
    struct ul_text text;
    if (options->output != NULL) {
        ul_text_init(&text, &job->compile.keep);
        ul_pack_write_csv(&text, table);
        UL_TRY(ul_file_write(options->output, text.data, text.length, &job->compile.diag));
    }
    if (options->json != NULL) {
        ul_text_init(&text, &job->compile.keep);
        put_json(&text, result, table, seconds);
        UL_TRY(ul_file_write(options->json, text.data, text.length, &job->compile.diag));
    }
    if (!ul_cli_stdout_is_taken(job))
        print_summary(&job->compile.keep, result, table, seconds);
    return UL_OK;
}

static enum ul_status pack(struct ul_cli_job *job)
{
    const struct ul_compile_options *options = &job->compile.options;
    struct ul_arena *keep = &job->compile.keep;
    if (job->files.count != 1)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "give one problem: ullage pack PROBLEM.csv");
    struct ul_pack_options packing = {.method = options->pack,
                                      .capacity_bytes = job->options.capacity_bytes,
                                      .work_limit = UL_WORK_PACK_ALONE,
                                      .time_limit_seconds = options->time_limit_seconds};
    if (packing.method == UL_PACK_NONE)
        return ul_diag_set(&job->compile.diag, UL_USAGE,
                           "--pack none: there is nothing to do then");
    struct ul_pack_table table;
    struct ul_pack_result result;
    double start = ul_clock_seconds();
    UL_TRY(read_table(job, &table));
    UL_TRY(ul_pack_solve(&job->compile.scratch, table.buffers, table.count, &packing, &result,
                         &job->compile.diag));
    UL_TRY(write_results(job, &table, &result, ul_clock_seconds() - start));
    if (result.fits && result.why_not != NULL)
        return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                           "--pack %s: %s. Nothing else took its place.",
                           ul_method_get(UL_METHOD_PACK, options->pack)->name, result.why_not);
    if (result.fits)
        return UL_OK;
    return ul_diag_set(&job->compile.diag, UL_NO_FIT,
                       "%s: does not fit %s (%s); the smallest arena found has %s",
                       job->files.items[0], ul_size_exact(keep, packing.capacity_bytes),
                       result.proven            ? "proven"
                       : result.stopped_by_time ? "not proven: the time ran out"
                                                : "not proven: the work limit was reached",
                       ul_size_exact(keep, result.arena_bytes));
}

static const struct ul_cli_example examples[] = {
    {"The smallest packing", "ullage pack problem.csv"},
    {"One that fits, as CSV", "ullage pack problem.csv --capacity 1MiB -o packed.csv"},
    {NULL, NULL}};

const struct ul_cli_command ul_command_pack = {
    .name = "pack",
    .arguments = "PROBLEM.csv [--capacity SIZE] [-o OUT.csv] [--json FILE]",
    .summary = "Packs buffers with lifetimes into one arena: the packer alone, on CSV.",
    .group = "the planner alone",
    .endings = "csv",
    .examples = examples,
    .bit = UL_IN_PACK,
    .run = pack};
