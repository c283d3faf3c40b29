/* SPDX-License-Identifier: 0BSD */
/*
 * --memory: the plan's rows beside what the program reserved and what it really touched.
 *
 * Touched bytes are found by running twice on an arena that was filled with a pattern, another one
 * each time: a byte that was ever written differs from its pattern in at least one of the two runs.
 * Every row is counted where its live ranges are at the plan's peak step; alignment and holes are
 * what no range takes at that step, and are touched when other steps use them. No byte may be
 * touched that is outside of all live ranges or in the margins around the arena.
 *
 * On a device the arena is fetched after each run, and there are no margins: its one allocation is
 * of just the arena. What else of the device is taken is measured (ul_device.h), and so is whether
 * its free bytes stay what they are from run to run.
 */
#include "ul_internal.h"

#include "ul_library.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Where the resident pages of the process are, after the runs. */
enum where { IN_ARENA, IN_LIBRARY, IN_OFFLOAD, IN_FILES, IN_CHECKS, ELSEWHERE, WHERE_COUNT };
static const char *const where_names[WHERE_COUNT] = {"arena", "library", "offload",
                                                     "files", "checks",  "other"};

struct memory {
    const struct ul_model *model;
    unsigned char *fetched;               /* a device's arena; NULL: the host has it */
    struct ul_device_memory device;       /* after the runs */
    unsigned char *touched;               /* a byte for each of the arena: TOUCHED, COVERED */
    uint64_t range_bytes[UL_ROW_COUNT];   /* of the ranges at the peak step */
    uint64_t touched_bytes[UL_ROW_COUNT]; /* there */
    uint64_t touched_total;
    uint64_t rows_total;
    uint64_t stray_bytes;  /* touched, but outside of every range */
    uint64_t margin_bytes; /* touched outside of the arena */
    int64_t unaccounted_bytes;
    uint64_t resident_bytes; /* at most */
    uint64_t library_bytes;  /* outside of the arena, taken by the library at set-up */
    uint64_t offload_bytes;  /* how many there are of what values are offloaded to */
    uint64_t now_bytes[WHERE_COUNT];
};

enum { MIB = 1048576 };

enum {
    TOUCHED = 1,
    COVERED = 2, /* by a range, at some step */
    PEAK = 4     /* by a range, at the peak step */
};

/* The names are those of plan.json. */
static const char *const row_names[UL_ROW_COUNT] = {
    "weights",           "optimizer_state", "gradients", "activations_kept_for_backward",
    "other_activations", "scratch",         "inputs",    "outputs",
    "alignment",         "holes",
};

static uint64_t count_changed(const unsigned char *bytes, uint64_t size_bytes, unsigned char fill)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < size_bytes; i++)
        count += bytes[i] != fill;
    return count;
}

/* One run from a filled block, with the weights loaded anew. */
static int run_filled(struct ul_session *s, struct memory *memory, const struct ul_saved *inputs,
                      unsigned char fill)
{
    uint64_t arena_bytes = s->model->arena_bytes;
    int status = ul_session_reload(s, fill);
    if (status != UL_EXIT_OK)
        return status;
    ul_inputs_restore(s, inputs, true);
    status = ul_session_set_up(s);
    if (status == UL_EXIT_OK)
        status = ul_session_run(s, NULL, NULL);
    const unsigned char *arena = s->arena;
    if (status == UL_EXIT_OK && memory->fetched != NULL) {
        status = ul_session_device_read(s, 0, memory->fetched, arena_bytes);
        arena = memory->fetched;
    }
    for (uint64_t i = 0; status == UL_EXIT_OK && i < arena_bytes; i++)
        if (arena[i] != fill)
            memory->touched[i] |= TOUCHED;
    if (status != UL_EXIT_OK || memory->fetched != NULL)
        return status;
    uint64_t beyond = count_changed(s->block, s->margin_bytes, fill) +
                      count_changed(s->arena + arena_bytes, s->margin_bytes, fill);
    if (beyond > memory->margin_bytes)
        memory->margin_bytes = beyond;
    return status;
}

/* Whether the range counts at the peak step. Where it takes over bytes, the older one still
 * counts. */
static bool counts_at_peak(const struct ul_model *model, const struct ul_range *range)
{
    uint32_t begin = range->live_begin + (range->alias != UL_RANGE_NONE);
    return begin <= model->peak_step && model->peak_step < range->live_end;
}

/* Finds the rows under which the ranges count: `rows[i]` is that of the range that takes over the
   bytes of range i at the peak step, else its own. */
static void find_rows(const struct ul_model *model, enum ul_row *rows)
{
    for (uint32_t i = 0; i < model->range_count; i++)
        rows[i] = model->ranges[i].row;
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        if (range->alias != UL_RANGE_NONE && range->live_begin == model->peak_step)
            rows[range->alias] = range->row;
    }
}

/* Goes over the ranges: what is covered at all, and what each row holds at the peak step. */
static void count_ranges(struct memory *memory, const enum ul_row *rows)
{
    const struct ul_model *model = memory->model;
    for (uint32_t i = 0; i < model->range_count; i++) {
        const struct ul_range *range = &model->ranges[i];
        unsigned char *touched = memory->touched + range->offset_bytes;
        bool peak = counts_at_peak(model, range);
        if (peak)
            memory->range_bytes[rows[i]] += range->size_bytes;
        for (uint64_t k = 0; k < range->size_bytes; k++)
            touched[k] |= COVERED;
        for (uint64_t k = 0; peak && k < range->size_bytes; k++) {
            if ((touched[k] & PEAK) == 0) {
                touched[k] |= PEAK;
                memory->touched_bytes[rows[i]] += touched[k] & TOUCHED;
            }
        }
    }
}

/* What is outside the ranges of the peak step fills alignment first, then holes. */
static void count_rest(struct memory *memory)
{
    uint64_t rest = 0, alignment = memory->model->row_bytes[UL_ROW_ALIGNMENT];
    for (uint64_t i = 0; i < memory->model->arena_bytes; i++) {
        unsigned char touched = memory->touched[i];
        memory->touched_total += touched & TOUCHED;
        rest += (touched & TOUCHED) != 0 && (touched & PEAK) == 0;
        memory->stray_bytes += (touched & TOUCHED) != 0 && (touched & COVERED) == 0;
    }
    memory->touched_bytes[UL_ROW_ALIGNMENT] = rest < alignment ? rest : alignment;
    memory->touched_bytes[UL_ROW_HOLES] = rest - memory->touched_bytes[UL_ROW_ALIGNMENT];
}

static void count_rows(struct memory *memory)
{
    const struct ul_model *model = memory->model;
    for (int row = 0; row < UL_ROW_COUNT; row++)
        memory->rows_total += model->row_bytes[row];
    memory->range_bytes[UL_ROW_ALIGNMENT] = model->row_bytes[UL_ROW_ALIGNMENT];
    memory->range_bytes[UL_ROW_HOLES] = model->arena_bytes - model->row_bytes[UL_ROW_ALIGNMENT];
    for (int row = 0; row < UL_ROW_ALIGNMENT; row++)
        memory->range_bytes[UL_ROW_HOLES] -= memory->range_bytes[row];
    memory->unaccounted_bytes = (int64_t)(model->arena_bytes - memory->rows_total);
}

/* Counts pages of the arena, of the library's heap and code, of files (program and libraries), of
   what --memory itself needs, and the rest: relocations, stacks, the C library. */
static void count_resident(const struct ul_session *s, struct memory *memory,
                           const struct ul_saved *inputs)
{
    struct ul_resident all = ul_pages_resident();
    uint64_t arena_bytes = s->model->arena_bytes;
    uint64_t saved_bytes = inputs->bytes != NULL ? inputs->size_bytes : 0;
    struct ul_resident arena = ul_pages_of(s->arena, arena_bytes);
    uint64_t *now = memory->now_bytes;
    now[IN_ARENA] = arena.anonymous_bytes + arena.file_bytes;
    now[IN_LIBRARY] = memory->library_bytes;
    now[IN_OFFLOAD] =
        ul_pages_of(ul_store_memory(s), ul_store_memory(s) != NULL ? s->model->offload_bytes : 0)
            .anonymous_bytes;
    now[IN_FILES] = all.file_bytes > arena.file_bytes ? all.file_bytes - arena.file_bytes : 0;
    now[IN_CHECKS] = ul_pages_of(memory->touched, arena_bytes + 1).anonymous_bytes +
                     ul_pages_of(inputs->bytes, saved_bytes).anonymous_bytes +
                     ul_pages_of(s->block, s->margin_bytes).anonymous_bytes +
                     ul_pages_of(s->arena + arena_bytes, s->margin_bytes).anonymous_bytes;
    uint64_t known_bytes =
        arena.anonymous_bytes + now[IN_LIBRARY] + now[IN_OFFLOAD] + now[IN_CHECKS];
    now[ELSEWHERE] = all.anonymous_bytes > known_bytes ? all.anonymous_bytes - known_bytes : 0;
}

static void print_resident(const struct memory *memory)
{
    uint64_t total_bytes = 0;
    printf("resident after the runs, bytes\n");
    for (int i = 0; i < WHERE_COUNT; i++) {
        total_bytes += memory->now_bytes[i];
        if (i == IN_OFFLOAD && memory->now_bytes[i] == 0)
            continue;
        printf("  %-27s %14" PRIu64 "\n", where_names[i], memory->now_bytes[i]);
    }
    printf("  %-27s %14" PRIu64 "\n", "total", total_bytes);
}

/* Prints the predicted bytes in the same unit as the total, too. */
static void print_row(const struct ul_model *model, const char *name, uint64_t predicted_bytes,
                      uint64_t reserved_bytes, uint64_t touched_bytes)
{
    printf("%-29s %14" PRIu64 " %14" PRIu64 " %14" PRIu64 " %9.2f\n", name, predicted_bytes,
           reserved_bytes, touched_bytes,
           (double)predicted_bytes / (model->arena_bytes < MIB ? 1024 : MIB));
}

/* The bytes that were touched in a bank. */
static uint64_t count_bank(const struct memory *memory, const struct ul_bank *bank)
{
    uint64_t count = 0;
    for (uint64_t i = 0; i < bank->size_bytes; i++)
        count += memory->touched[bank->begin_bytes + i] & TOUCHED;
    return count;
}

static void print_banks(const struct memory *memory)
{
    const struct ul_model *model = memory->model;
    if (model->bank_count != 0)
        printf("%-29s %14s %14s %14s\n", "spaces of the buffer", "capacity", "reserved", "touched");
    for (uint32_t b = 0; b < model->bank_count; b++) {
        const struct ul_bank *bank = &model->banks[b];
        printf("  %-27s %14" PRIu64 " %14" PRIu64 " %14" PRIu64 "\n", bank->name,
               bank->capacity_bytes, bank->size_bytes, count_bank(memory, bank));
    }
}

static void write_banks(struct ul_json *json, const struct memory *memory)
{
    const struct ul_model *model = memory->model;
    if (model->bank_count == 0)
        return;
    ul_json_open(json, "spaces", '{');
    for (uint32_t b = 0; b < model->bank_count; b++) {
        const struct ul_bank *bank = &model->banks[b];
        ul_json_open(json, bank->name, '{');
        ul_json_count(json, "capacity_bytes", bank->capacity_bytes);
        ul_json_count(json, "reserved_bytes", bank->size_bytes);
        ul_json_count(json, "touched_bytes", count_bank(memory, bank));
        ul_json_close(json, '}');
    }
    ul_json_close(json, '}');
}

/* What all libraries together keep for themselves. */
static void print_libraries(const struct memory *memory)
{
    const struct ul_model *model = memory->model;
    int used = 0;
    for (uint32_t i = 0; i < model->library_count; i++)
        used += printf("%s%s", i == 0 ? "library (" : ", ", model->libraries[i].name);
    printf("), measured %*s %14" PRIu64 "\n", used < 42 ? 42 - used : 0, "", memory->library_bytes);
}

static void print_table(const struct ul_session *s, const struct memory *memory)
{
    const struct ul_model *model = memory->model;
    char shown[UL_SHOWN_BYTES], size[UL_SIZE_TEXT_BYTES];
    printf("precision %s\n", ul_precision_text(model));
    if (model->steps != NULL && model->peak_step < model->step_count)
        printf("rows at step %" PRIu32 " (%s), bytes\n", model->peak_step,
               ul_shown(shown, model->steps[model->peak_step].name));
    printf("%-29s %14s %14s %14s %9s\n", "", "predicted", "reserved", "touched",
           model->arena_bytes < MIB ? "KiB" : "MiB");
    for (int row = 0; row < UL_ROW_COUNT; row++)
        if (model->row_bytes[row] != 0 || memory->range_bytes[row] != 0)
            print_row(model, row_names[row], model->row_bytes[row], memory->range_bytes[row],
                      memory->touched_bytes[row]);
    print_row(model, "total", memory->rows_total, model->arena_bytes, memory->touched_total);
    printf("%-29s %14" PRId64 "\n", "unaccounted", memory->unaccounted_bytes);
    print_banks(memory);
    if (model->offload_bytes != 0)
        printf("%-29s %14" PRIu64 " %14" PRIu64 "\n", "offloaded, beside that",
               model->offload_bytes, memory->offload_bytes);
    if (model->library_count != 0)
        print_libraries(memory);
    if (model->device != NULL)
        ul_device_memory_print(&memory->device, s->options->iterations);
    else if (memory->now_bytes[IN_FILES] != 0)
        print_resident(memory);
    printf("reserved %s", ul_size_text(size, model->arena_bytes));
    if (model->rom_bytes != 0)
        printf("; read-only weights outside of it %s", ul_size_text(size, model->rom_bytes));
    printf("\nprocess peak resident %s, with the margins and maps of --memory\n",
           ul_size_text(size, memory->resident_bytes));
}

static void write_json(struct ul_json *json, const void *context)
{
    const struct memory *memory = context;
    ul_json_text(json, "model", memory->model->name);
    ul_json_text(json, "precision", ul_precision_text(memory->model));
    ul_json_count(json, "predicted_bytes", memory->rows_total);
    ul_json_count(json, "reserved_bytes", memory->model->arena_bytes);
    ul_json_count(json, "touched_bytes", memory->touched_total);
    ul_json_number(json, "unaccounted_bytes", (double)memory->unaccounted_bytes);
    ul_json_count(json, "stray_bytes", memory->stray_bytes + memory->margin_bytes);
    ul_json_count(json, "rom_bytes", memory->model->rom_bytes);
    write_banks(json, memory);
    if (memory->model->offload_bytes != 0) {
        ul_json_open(json, "offload", '{');
        ul_json_count(json, "predicted_bytes", memory->model->offload_bytes);
        ul_json_count(json, "reserved_bytes", memory->offload_bytes);
        ul_json_close(json, '}');
    }
    if (memory->model->library_count != 0)
        ul_json_count(json, "library_bytes", memory->library_bytes);
    if (memory->model->device != NULL)
        ul_device_memory_write(json, &memory->device);
    ul_json_open(json, "resident", '{');
    for (int i = 0; memory->model->device == NULL && i < WHERE_COUNT; i++)
        ul_json_count(json, where_names[i], memory->now_bytes[i]);
    ul_json_close(json, '}');
    ul_json_count(json, "peak_step", memory->model->peak_step);
    ul_json_open(json, "rows", '{');
    for (int row = 0; row < UL_ROW_COUNT; row++) {
        ul_json_open(json, row_names[row], '{');
        ul_json_count(json, "predicted_bytes", memory->model->row_bytes[row]);
        ul_json_count(json, "reserved_bytes", memory->range_bytes[row]);
        ul_json_count(json, "touched_bytes", memory->touched_bytes[row]);
        ul_json_close(json, '}');
    }
    ul_json_open(json, "unaccounted", '{');
    ul_json_count(json, "predicted_bytes", 0);
    ul_json_number(json, "reserved_bytes", (double)memory->unaccounted_bytes);
    ul_json_count(json, "touched_bytes", 0); /* such bytes count as holes */
    ul_json_close(json, '}');
    ul_json_close(json, '}');
}

static int judge(const struct ul_session *s, const struct memory *memory)
{
    if (memory->offload_bytes != memory->model->offload_bytes)
        return ul_error(s, UL_EXIT_VERIFY,
                        "%" PRIu64 " bytes are offloaded in the plan, and there are %" PRIu64,
                        memory->model->offload_bytes, memory->offload_bytes);
    if (memory->unaccounted_bytes != 0)
        return ul_error(s, UL_EXIT_VERIFY, "%" PRId64 " bytes are not accounted for by the plan",
                        memory->unaccounted_bytes);
    for (int row = 0; row < UL_ROW_COUNT; row++)
        if (memory->range_bytes[row] != memory->model->row_bytes[row])
            return ul_error(
                s, UL_EXIT_VERIFY,
                "the row '%s' is %" PRIu64 " bytes in the plan and %" PRIu64 " in the program",
                row_names[row], memory->model->row_bytes[row], memory->range_bytes[row]);
    if (memory->stray_bytes != 0 || memory->margin_bytes != 0)
        return ul_error(s, UL_EXIT_VERIFY,
                        "%" PRIu64 " bytes outside of every live range were written, and %" PRIu64
                        " outside of the arena; --guard names the step",
                        memory->stray_bytes, memory->margin_bytes);
    return UL_EXIT_OK;
}

/* Makes the runs of the device during which free bytes are watched: --iterations of them, before
 * all others. */
static int repeat_runs(struct ul_session *s)
{
    int status = ul_session_set_up(s);
    for (uint64_t i = 0; status == UL_EXIT_OK && i < s->options->iterations; i++)
        status = ul_session_run(s, NULL, NULL);
    return status;
}

static void measure_process(struct ul_session *s, struct memory *memory,
                            const struct ul_saved *inputs)
{
    memory->library_bytes = s->library_bytes;
    memory->offload_bytes = ul_store_bytes(s);
    if (s->model->device == NULL)
        count_resident(s, memory, inputs);
    else
        s->model->device->functions->memory(s->context, &memory->device);
    if (s->model->device != NULL)
        memory->offload_bytes = memory->device.offload_bytes;
    memory->resident_bytes = ul_pages_resident().peak_bytes;
}

static int measure(struct ul_session *s, struct memory *memory, const struct ul_saved *inputs)
{
    const char *json = s->options->json;
    int status = s->model->device != NULL ? repeat_runs(s) : UL_EXIT_OK;
    if (status == UL_EXIT_OK)
        status = run_filled(s, memory, inputs, 0xa5);
    if (status == UL_EXIT_OK)
        status = run_filled(s, memory, inputs, 0x5a);
    if (status != UL_EXIT_OK)
        return status;
    enum ul_row *rows = malloc(((size_t)memory->model->range_count + 1) * sizeof *rows);
    if (rows == NULL)
        return ul_out_of_memory(s, memory->model->range_count * sizeof *rows);
    find_rows(memory->model, rows);
    count_ranges(memory, rows);
    free(rows);
    count_rest(memory);
    count_rows(memory);
    measure_process(s, memory, inputs);
    if (json == NULL || strcmp(json, "-") != 0)
        print_table(s, memory);
    if (json != NULL)
        status = ul_json_write(s, json, write_json, memory);
    return status == UL_EXIT_OK ? judge(s, memory) : status;
}

int ul_memory(struct ul_session *s)
{
    struct memory memory = {0};
    if (s->model->ranges == NULL && s->model->steps == NULL)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "--memory needs the tables that -DUL_NO_TABLES "
                        "left out");
    int status = ul_inputs_fill(s, true);
    if (status != UL_EXIT_OK)
        return status;
    struct ul_saved inputs;
    bool saved = ul_inputs_save(s, &inputs) == UL_EXIT_OK;
    memory.model = s->model;
    memory.touched = calloc((size_t)s->model->arena_bytes + 1, 1);
    if (s->model->device != NULL)
        memory.fetched = malloc((size_t)s->model->arena_bytes + 1);
    if (!saved || memory.touched == NULL || (s->model->device != NULL && memory.fetched == NULL))
        status = ul_out_of_memory(s, s->model->arena_bytes);
    else
        status = measure(s, &memory, &inputs);
    ul_inputs_forget(&inputs);
    free(memory.touched);
    free(memory.fetched);
    return status;
}
