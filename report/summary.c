/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for the terminal: whether it fits, the sum table, the curve of live bytes and the values
 * at its peak, what makes it smaller, how far it is from the bounds. It takes less than 40 lines:
 * values at the peak, then notes, are left out where there is no room. */
#include "report/saved.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

enum {
    MAX_LINES = 39,
    MIN_VALUES = 3,
    MAX_VALUES = 8,
    REMEDIES = 3,
    NAME_MARGIN = 8,
    CURVE_LINES = 4,
    SMALL_CURVE = 2
};

struct summary {
    struct ul_text *text;
    const struct ul_saved *saved;
    const struct ul_summary_style *style;
    struct ul_report_unit unit; /* for all sizes, so that columns visibly add up */
    uint32_t tightness;         /* how much is left out: 0 is nothing */
};
enum { TIGHT_VALUES = 1, TIGHT_NOTES, TIGHT_BOUNDS, TIGHTEST };

/* Marks for the beginning and end of colours, until all is written: bytes that cannot occur in
 * UTF-8, which every text of a plan is. */
#define MARK_BOLD "\xFD"
#define MARK_RED "\xFE"
#define MARK_END "\xFF"

static double in_unit(const struct summary *summary, uint64_t bytes)
{
    UL_ASSERT(summary->unit.bytes > 0);
    return (double)bytes / summary->unit.bytes;
}

static const char *name_in(const struct summary *summary, const char *name, size_t columns)
{
    return ul_report_fit_name(summary->text->arena, name, columns);
}

/* A name in a paragraph: the whole name where a line has room for it. */
static const char *name_of(const struct summary *summary, const char *name)
{
    return name_in(summary, name, summary->style->line_columns - NAME_MARGIN);
}

static const char *exact(const struct summary *summary, uint64_t bytes)
{
    return ul_size_exact(summary->text->arena, bytes);
}

static uint32_t count_lines(const struct ul_text *text)
{
    uint32_t count = 0;
    for (size_t i = 0; i < text->length; i++)
        count += text->data[i] == '\n';
    return count;
}

/* Writes a paragraph, folded at blanks to the width of lines. */
static UL_PRINTF(2, 3) void put_folded(struct summary *summary, const char *format, ...)
{
    struct ul_arena *arena = summary->text->arena;
    size_t width = summary->style->columns, used = 0;
    struct ul_text paragraph;
    va_list args;
    ul_text_init(&paragraph, arena);
    va_start(args, format);
    ul_text_vprintf(&paragraph, format, args);
    va_end(args);
    for (const char *at = paragraph.data; *at != '\0';) {
        size_t blanks = strspn(at, " "), word = strcspn(at + blanks, " ");
        size_t columns = ul_text_columns(ul_arena_printf(arena, "%.*s", (int)word, at + blanks));
        bool breaks = used > 0 && used + blanks + columns > width;
        if (breaks)
            ul_text_put(summary->text, "\n");
        ul_text_printf(summary->text, "%.*s%.*s", breaks ? 0 : (int)blanks, at, (int)word,
                       at + blanks);
        used = (breaks ? 0 : used + blanks) + columns;
        at += blanks + word;
    }
    ul_text_put(summary->text, "\n");
}

/* Writes each line of the text as a paragraph. */
static void put_lines(struct summary *summary, const char *lines)
{
    for (const char *at = lines; at != NULL && *at != '\0';) {
        size_t length = strcspn(at, "\n");
        put_folded(summary, "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
    }
}

/* ---- The verdict ---- */

/* What a budget is compared with: the process, where the plan gives it, or the buffer. */
static uint64_t needed_bytes(const struct summary *summary)
{
    bool of_process =
        !ul_saved_bounds_buffer(summary->saved) && summary->saved->process_bytes != UINT64_MAX;
    return of_process ? summary->saved->process_bytes : summary->saved->reserved_bytes;
}

/* Whether the process is the program's, with its code and runtime, and not a caller's. */
static bool is_whole(const struct summary *summary)
{
    return summary->saved->process[UL_SAVED_CODE] > 0;
}

/* Whether a budget bounds the same memory in the plan and in the remedy. */
static bool is_alike(const struct summary *summary, const struct ul_saved_remedy *remedy)
{
    return remedy->process_of[0] == '\0' || ul_saved_bounds_buffer(summary->saved);
}

/* What it has to fit: "the budget of 1.00 KiB = 1024 bytes for the process", or a device by
 * name. */
static const char *budget_of(const struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_arena *arena = summary->text->arena;
    const char *of = ul_saved_bounds_buffer(saved) ? "for the buffer alone"
                     : ul_saved_is_of_device(summary->saved)
                         ? "of the device, as far as it is known"
                     : is_whole(summary) ? "for the process"
                                         : "for buffer, library and stacks";
    bool is_device =
        saved->device.name[0] != '\0' && saved->device.memory_bytes == saved->budget_bytes;
    if (!is_device)
        return ul_arena_printf(arena, "the budget of %s %s", exact(summary, saved->budget_bytes),
                               of);
    return ul_arena_printf(arena, "%s, which has %s%s", name_of(summary, saved->device.name),
                           exact(summary, saved->device.memory_bytes),
                           saved->process_lacks != 0 ? ", as far as it is known" : "");
}

static void put_budget(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    const struct ul_saved_remedy *remedy = ul_saved_cheapest(summary->saved);
    struct ul_arena *arena = summary->text->arena;
    uint64_t budget = saved->budget_bytes, needed = needed_bytes(summary);
    if (budget == 0)
        return;
    if (saved->fits && needed <= budget) {
        put_folded(summary, "It fits %s, with %s to spare.", budget_of(summary),
                   exact(summary, budget - needed));
        return;
    }
    const char *why = needed > budget
                          ? ul_arena_printf(arena, "%s short", exact(summary, needed - budget))
                          : "another limit than its bytes is not met";
    ul_text_put(summary->text, MARK_RED);
    put_folded(summary, "It does not fit %s: %s." MARK_END, budget_of(summary), why);
    if (remedy != NULL)
        ul_text_printf(summary->text, "The cheapest plan found that fits is with %s%s.\n",
                       name_in(summary, remedy->change, summary->style->line_columns - 71),
                       is_alike(summary, remedy) ? "" : ", in a caller's process");
}

/* Whose bytes the headline gives first. */
static const char *whose(const struct summary *summary)
{
    return ul_saved_is_of_device(summary->saved) ? "device"
           : is_whole(summary)                   ? "process"
                                                 : "of the caller's process";
}

/* "process 9.87 MiB = 10349445 bytes at set-up, "; empty for an older plan. */
static const char *headline_process(const struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    bool lacks = saved->process_lacks != 0;
    if (saved->process_bytes == UINT64_MAX)
        return "";
    return ul_arena_printf(summary->text->arena, "%s %s%s%s,", whose(summary),
                           exact(summary, saved->process_bytes),
                           saved->process_peak_at_start ? " at set-up" : "",
                           lacks && summary->tightness < TIGHTEST ? " as far as it is known" : "");
}

/* Writes the process and the buffer, which gets a line of its own where one line has no room for
 * both. */
static void put_verdict(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    const struct ul_summary_style *style = summary->style;
    const char *process = headline_process(summary);
    const char *buffer = exact(summary, saved->reserved_bytes);
    const char *of =
        ul_arena_printf(summary->text->arena,
                        "%s (target %s):", name_in(summary, saved->model, style->line_columns - 18),
                        name_of(summary, saved->target));
    size_t used = ul_text_columns(of) + 1 + strlen(process);
    bool is_long = used + strlen(" buffer .") + strlen(buffer) > style->columns;
    ul_text_printf(summary->text, MARK_BOLD "%s%s%s%sbuffer %s." MARK_END "\n", of,
                   used > style->columns ? "\n  " : " ", process,
                   is_long && used <= style->columns ? "\n  " : " ", buffer);
    put_budget(summary);
}

/* The next size, which does not fit, shows that it is the largest. */
static void put_largest(struct summary *summary)
{
    const struct ul_saved_search *largest = ul_saved_largest(summary->saved);
    const struct ul_saved_tried *next = NULL;
    struct ul_text line;
    if (largest == NULL)
        return;
    ul_text_init(&line, summary->text->arena);
    if (summary->saved->has_max_batch)
        ul_text_printf(&line, "A batch of %" PRIu64 " fits; ", largest->size);
    else
        ul_text_printf(&line, "%s = %" PRIu64 " fits; ", name_of(summary, largest->name),
                       largest->size);
    for (uint32_t i = 0; i < largest->tried_count; i++)
        if (largest->planned[i].size > largest->size &&
            (next == NULL || largest->planned[i].size < next->size))
            next = &largest->planned[i];
    if (largest->why_not_larger[0] != '\0')
        ul_text_printf(&line, "the model does not take the next: %s", largest->why_not_larger);
    else if (next != NULL)
        ul_text_printf(&line, "the smallest plan known for %" PRIu64 " takes %s", next->size,
                       exact(summary, next->bytes));
    ul_text_put(&line, ". Planned:");
    for (uint32_t i = 0; i < largest->tried_count; i++)
        ul_text_printf(&line, "%s %" PRIu64 "%s", i == 0 ? "" : ",", largest->planned[i].size,
                       largest->planned[i].fits ? "" : " (no)");
    ul_text_put(&line, ".");
    put_folded(summary, "%s", line.data);
}

static void put_micro_batches(struct summary *summary)
{
    const struct ul_saved_search *parts = &summary->saved->micro_batches;
    struct ul_text line;
    if (!summary->saved->has_micro_batches)
        return;
    ul_text_init(&line, summary->text->arena);
    ul_text_printf(&line, "A step takes the least time as %" PRIu64 " micro-batch%s. Planned:",
                   parts->size, parts->size == 1 ? "" : "es");
    for (uint32_t i = 0; i < parts->tried_count; i++)
        ul_text_printf(&line, "%s %" PRIu64 " (%s%.4g ms)", i == 0 ? "" : ",",
                       parts->planned[i].size, parts->planned[i].fits ? "" : "does not fit, ",
                       (double)parts->planned[i].cost * 1e-6);
    ul_text_put(&line, ".");
    put_folded(summary, "%s", line.data);
}

/* ---- The sum table ---- */

static void put_row(struct summary *summary, const char *label, uint64_t bytes)
{
    ul_text_printf(summary->text, "  %-31s %8.2f %18" PRIu64 "\n", label, in_unit(summary, bytes),
                   bytes);
}

/* Writes a part of the row above. */
static void put_part(struct summary *summary, const char *label, uint64_t bytes)
{
    if (bytes > 0)
        ul_text_printf(summary->text, "    %-29s %8.2f %18" PRIu64 "\n", label,
                       in_unit(summary, bytes), bytes);
}

/* Whether a row is seldom large: these share one row where lines are few. */
static bool is_small_row(const struct summary *summary, uint32_t row)
{
    return summary->tightness >= TIGHTEST && row >= UL_PLAN_INPUTS && row < UL_REPORT_ROW_COUNT - 1;
}

/* For a quantized model: the types that make up most of its weights. */
static void put_types(struct summary *summary)
{
    enum { MAX_TYPES = 3, LEAST_PART = 100 };
    uint64_t left[UL_DTYPE_COUNT], sum = 0;
    memcpy(left, summary->saved->weights_by_type, sizeof left);
    for (uint32_t t = 0; t < UL_DTYPE_COUNT; t++)
        sum += left[t];
    for (uint32_t i = 0; i < MAX_TYPES; i++) {
        uint32_t largest = 0;
        for (uint32_t t = 1; t < UL_DTYPE_COUNT; t++)
            largest = left[t] > left[largest] ? t : largest;
        if (left[largest] == 0 || left[largest] < sum / LEAST_PART)
            return;
        const struct ul_dtype_info *info = ul_dtype_get((enum ul_dtype)largest);
        put_part(summary,
                 ul_arena_printf(summary->text->arena, "of it %s%s", info->name,
                                 info->bits < 8 ? " in bytes" : ""),
                 left[largest]);
        left[largest] = 0;
    }
}

/* Rows of 0 bytes are left out, except that nothing is unaccounted. */
static void put_rows(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    uint64_t small_bytes = 0;
    ul_text_printf(summary->text, "\n  %-31s %8s %18s\n", "at the peak", summary->unit.name,
                   "bytes");
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++) {
        bool is_last = row == UL_REPORT_ROW_COUNT - 1;
        small_bytes += is_small_row(summary, row) ? saved->rows[row] : 0;
        if (is_last && small_bytes > 0)
            put_row(summary, "inputs, outputs, padding", small_bytes);
        if ((saved->rows[row] > 0 && !is_small_row(summary, row)) || is_last)
            put_row(summary, ul_report_row_label(summary->text->arena, row), saved->rows[row]);
        /* Read-only weights have no row here. */
        if (row == UL_PLAN_WEIGHTS && saved->rows[row] > 0 && summary->tightness < TIGHTEST) {
            put_types(summary);
            put_part(summary, "of it the library's packing", saved->for_library.packing_bytes);
        }
        if (row == UL_PLAN_ACTIVATIONS && summary->tightness < TIGHTEST)
            put_part(summary, "of it operands of its calls", saved->for_library.operand_bytes);
    }
    put_row(summary, "reserved", saved->reserved_bytes);
    for (uint32_t b = 0; b < saved->bank_count; b++) {
        const struct ul_saved_bank *bank = &saved->banks[b];
        put_part(summary,
                 ul_arena_printf(summary->text->arena, "of it %s, of %s",
                                 name_of(summary, bank->name),
                                 ul_size_format(summary->text->arena, bank->capacity_bytes)),
                 bank->reserved_bytes);
    }
}

/* Memory outside the written memory: read-only data, which a microcontroller has in flash, and
 * buffers of the caller, which are not part of the plan. */
static void put_others(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    bool has_flash = saved->flash.code > 0;
    if (has_flash) {
        put_row(summary, "flash", saved->flash.weights + saved->flash.code);
        put_part(summary, "of it read-only weights", saved->flash.weights);
        put_part(summary, "of it code, by gcc -O2", saved->flash.code);
    }
    for (uint32_t s = 1; s < saved->space_count; s++) {
        bool is_flash = has_flash && s == UL_REPORT_READ_ONLY;
        bool is_beside = strcmp(saved->spaces[s].name, "beside") == 0;
        if (saved->spaces[s].reserved_bytes > 0 && !is_flash && !is_beside)
            put_row(summary, saved->spaces[s].name, saved->spaces[s].reserved_bytes);
    }
}

/* What is not known of a device before a program runs there. */
static void put_unknown(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    const char *context = (saved->process_lacks & UL_LACKS_CONTEXT) != 0 ? "the context, " : "";
    const char *libraries =
        (saved->process_lacks & UL_LACKS_LIBRARIES) != 0 ? "what libraries keep, " : "";
    if (summary->tightness >= TIGHTEST)
        ul_text_printf(summary->text, "  Not known before it runs: %s%sits capture.\n", context,
                       libraries);
    else
        ul_text_printf(summary->text,
                       "  Not known before it runs: %s%sthe captured run,\n"
                       "  and what CUDA rounds up; the program's --memory measures all of it.\n",
                       context, libraries);
}

/* Writes what the process takes besides the buffer on a line, and the sum; and says which reserved
 * rows are never resident. */
static void put_process(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    uint64_t buffer = saved->process[UL_SAVED_BUFFER], count = 0;
    bool of_device = ul_saved_is_of_device(summary->saved);
    if (saved->process_bytes == UINT64_MAX)
        return;
    if (of_device && saved->process[UL_SAVED_LIBRARY] > 0)
        put_row(summary, "libraries' own, by profile", saved->process[UL_SAVED_LIBRARY]);
    if (of_device && saved->process[UL_SAVED_RUNTIME] > 0)
        put_row(summary, "context, by profile", saved->process[UL_SAVED_RUNTIME]);
    if (!saved->process_peak_at_start && buffer < saved->reserved_bytes)
        put_part(summary, "of it rows never looked up", saved->reserved_bytes - buffer);
    put_row(summary,
            of_device                      ? "device, as far as it is known"
            : saved->process_peak_at_start ? "process at set-up, at most"
            : is_whole(summary)            ? "process, at most"
                                           : "RAM of the caller's process",
            saved->process_bytes);
    for (uint32_t part = UL_SAVED_LIBRARY; !of_device && part < UL_SAVED_PART_COUNT; part++)
        if (saved->process[part] > 0)
            ul_text_printf(summary->text, "%s%s %.2f", count++ == 0 ? "    of it " : ", ",
                           ul_saved_part_name(part), in_unit(summary, saved->process[part]));
    if (count > 0)
        ul_text_printf(summary->text, " %s\n", summary->unit.name);
    if (saved->process_peak_at_start)
        ul_text_printf(summary->text, "    and %.2f %s of the buffer: the rest is written later\n",
                       in_unit(summary, buffer), summary->unit.name);
    if (of_device)
        put_unknown(summary);
}

/* ---- The curve ---- */

/* The most live bytes in each column of the picture, and the column of the peak. */
static uint64_t *columns_of(const struct summary *summary, uint32_t width, uint32_t *peak)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_arena *arena = summary->text->arena;
    uint64_t *curves[UL_SAVED_CURVES];
    uint64_t *most = UL_NEW_ARRAY(arena, uint64_t, width);
    const uint64_t *live = ul_saved_curves(saved, arena, curves);
    for (uint32_t c = 0; c < width; c++) {
        uint64_t first = (uint64_t)c * saved->step_count / width;
        uint64_t last = ((uint64_t)c + 1) * saved->step_count / width;
        for (uint64_t p = first; p < last || p == first; p++) {
            most[c] = live[p] > most[c] ? live[p] : most[c];
            if (p == saved->peak_step)
                *peak = c;
        }
    }
    return most;
}

/* Writes one cell: how much of the line's band of bytes is filled, in eighths, or in ASCII. */
static void put_cell(struct summary *summary, double filled)
{
    static const char *const blocks[] = {" ",
                                         "\xE2\x96\x81",
                                         "\xE2\x96\x82",
                                         "\xE2\x96\x83",
                                         "\xE2\x96\x84",
                                         "\xE2\x96\x85",
                                         "\xE2\x96\x86",
                                         "\xE2\x96\x87",
                                         "\xE2\x96\x88"};
    double part = filled < 0 ? 0 : filled > 1 ? 1 : filled;
    if (summary->style->is_utf8)
        ul_text_put(summary->text, blocks[(size_t)(part * 8 + 0.5)]);
    else
        ul_text_put(summary->text, part >= 0.75 ? "#" : part >= 0.25 ? ":" : part > 0 ? "." : " ");
}

/* The picture goes from the bytes that always live up to the peak. */
static void put_curve(struct summary *summary)
{
    enum { LABEL = 12, MAX_WIDTH = 160 };
    uint32_t lines = summary->tightness >= TIGHT_NOTES ? SMALL_CURVE : CURVE_LINES;
    const struct ul_saved *saved = summary->saved;
    uint32_t width = summary->style->columns - LABEL - 3, peak = 0;
    uint64_t top = 0, base = UINT64_MAX;
    if (saved->step_count < 2)
        return;
    width = width > MAX_WIDTH ? MAX_WIDTH : width;
    width = width > saved->step_count ? width / saved->step_count * saved->step_count : width;
    uint64_t *most = columns_of(summary, width, &peak);
    for (uint32_t c = 0; c < width; c++) {
        top = most[c] > top ? most[c] : top;
        base = most[c] < base ? most[c] : base;
    }
    if (top == base) {
        ul_text_printf(summary->text, "\nAs many bytes live at each of %" PRIu32 " steps.\n",
                       saved->step_count);
        return;
    }
    uint64_t low = base > (top - base) / 8 ? base - (top - base) / 8 : 0;
    for (uint32_t line = lines; line-- > 0;) {
        double step = (double)(top - low) / lines, floor = (double)low + line * step;
        if (line == lines - 1)
            ul_text_printf(summary->text, "\n%*.2f |", LABEL, in_unit(summary, top));
        else if (line == 0)
            ul_text_printf(summary->text, "%*.2f |", LABEL, in_unit(summary, low));
        else
            ul_text_printf(summary->text, "%*s |", LABEL, line == 1 ? summary->unit.name : "");
        for (uint32_t c = 0; c < width; c++)
            put_cell(summary, step > 0 ? ((double)most[c] - floor) / step : 1);
        ul_text_put(summary->text, "\n");
    }
    ul_text_printf(summary->text, "%*s  %*s^ step %" PRIu32 " of 0 to %" PRIu32 "\n", LABEL,
                   "live bytes", (int)(peak > width - 24 ? width - 24 : peak), "", saved->peak_step,
                   saved->step_count - 1);
}

/* ---- The peak ---- */

static void put_peak_name(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    const struct ul_saved_step *step = &saved->steps[saved->peak_step];
    bool has_source = step->source != NULL && step->source[0] != '\0';
    uint32_t room = summary->style->line_columns - 24;
    const char *op = name_in(summary, step->op, room / 3);
    size_t rest = room - ul_text_columns(op);
    ul_text_printf(summary->text, "The peak is made by %s (%s)",
                   name_in(summary, step->node, has_source ? rest / 2 : rest), op);
    if (has_source)
        ul_text_printf(summary->text, ", %s", name_in(summary, step->source, rest / 2 - 2));
    ul_text_put(summary->text, ".\n");
}

/* Widths of two columns of names in a line: that of the longest name, or, where the terminal has no
 * room for that, at most a third for the second. */
static void share_line(size_t room, size_t *first, size_t *second)
{
    if (*first + *second <= room)
        return;
    if (*second > room / 3)
        *second = *first < room - room / 3 ? room - *first : room / 3;
    *first = room - *second < *first ? room - *second : *first;
}

static size_t longer(struct summary *summary, size_t columns, const char *name)
{
    size_t length = ul_report_name_columns(summary->text->arena, name);
    return length > columns ? length : columns;
}

static const char *maker_of(const struct ul_saved *saved, uint32_t range)
{
    const struct ul_saved_step *maker = ul_saved_maker(saved, &saved->ranges[range]);
    return maker == NULL ? "given" : maker->op;
}

/* Writes lines of bytes, name, steps of its life, operators that make it. */
static void put_alive(struct summary *summary, const uint32_t *alive, uint32_t count)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_arena *arena = summary->text->arena;
    size_t names = 4, makers = 4;
    for (uint32_t i = 0; i < count; i++) {
        names = longer(summary, names, ul_saved_range_name(saved, arena, alive[i]));
        makers = longer(summary, makers, maker_of(saved, alive[i]));
    }
    share_line(summary->style->line_columns - 43, &names, &makers);
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_saved_range *range = &saved->ranges[alive[i]];
        const char *steps =
            ul_arena_printf(arena, "%" PRIu32 " to %" PRIu32, range->begin, range->end - 1);
        const char *name = name_in(summary, ul_saved_range_name(saved, arena, alive[i]), names);
        ul_text_printf(summary->text, "  %8.2f %13" PRIu64 "  %-*s  %-12s  %s\n",
                       in_unit(summary, range->size_bytes), range->size_bytes,
                       ul_text_field(name, names), name, steps,
                       name_in(summary, maker_of(saved, alive[i]), makers));
    }
}

static void put_values(struct summary *summary, uint32_t wanted)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_arena *arena = summary->text->arena;
    uint32_t *alive, count = ul_saved_alive(saved, arena, &alive), kept = 0;
    uint64_t rest_bytes = 0, *sizes = UL_NEW_ARRAY(arena, uint64_t, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++)
        sizes[i] = saved->ranges[i].size_bytes;
    for (uint32_t i = 0; i < count; i++) {
        enum ul_plan_class class = saved->ranges[alive[i]].class;
        if (class != UL_PLAN_WEIGHTS && class != UL_PLAN_OPTIMIZER)
            alive[kept++] = alive[i];
    }
    uint32_t shown = kept < wanted + 1 ? kept : wanted;
    ul_report_biggest_first(sizes, alive, kept, shown);
    if (kept == 0)
        return;
    ul_text_printf(summary->text, "Beside the weights%s there live, in %s and bytes:\n",
                   saved->rows[UL_PLAN_OPTIMIZER] > 0 ? " and the optimizer's state" : "",
                   summary->unit.name);
    put_alive(summary, alive, shown);
    for (uint32_t i = shown; i < kept; i++)
        rest_bytes += sizes[alive[i]];
    if (kept > shown)
        ul_text_printf(summary->text, "  %8.2f %13" PRIu64 "  %" PRIu32 " other%s\n",
                       in_unit(summary, rest_bytes), rest_bytes, kept - shown,
                       ul_plural(kept - shown));
}

/* ---- What makes it smaller ---- */

/* "--budget 124204976 (118.45 MiB)" */
static const char *change_of(const struct summary *summary, const char *change)
{
    static const char option[] = "--budget ";
    struct ul_arena *arena = summary->text->arena;
    uint64_t bytes;
    const char *shown = name_of(summary, change);
    if (strncmp(change, option, sizeof option - 1) == 0 &&
        ul_size_parse(change + sizeof option - 1, &bytes))
        return ul_arena_printf(arena, "%s (%s)", shown, ul_size_format(arena, bytes));
    return shown;
}

/* The change is always written whole, in a line of its own where there is no room: people type
 * it. */
static void put_remedy(struct summary *summary, const struct ul_saved_remedy *remedy)
{
    const char *change = change_of(summary, remedy->change);
    const struct ul_remedy_kind *kind = ul_remedy_kind_find(remedy->kind);
    const char *label = !is_alike(summary, remedy) ? "of the buffer alone"
                        : kind != NULL             ? kind->label
                                                   : name_in(summary, remedy->kind, 19);
    ul_text_printf(summary->text, "  %8.2f %13" PRId64 " %+12.4g ms  %-*s",
                   (double)remedy->saved_bytes / summary->unit.bytes, remedy->saved_bytes,
                   (double)remedy->extra_cost * 1e-6, ul_text_field(label, 19), label);
    if (62 + ul_text_columns(change) > summary->style->line_columns)
        ul_text_printf(summary->text, "\n%*s", 25, "");
    ul_text_printf(summary->text, "  %s\n", change);
}

static void put_applied(struct summary *summary)
{
    struct ul_text line;
    ul_text_init(&line, summary->text->arena);
    for (uint32_t i = 0; i < summary->saved->remedy_count; i++) {
        const struct ul_saved_remedy *remedy = &summary->saved->remedies[i];
        if (remedy->applied)
            ul_text_printf(&line, "%s %s saves %.2f", line.length == 0 ? "This plan has:" : ",",
                           name_in(summary, remedy->kind, 16),
                           (double)-remedy->saved_bytes / summary->unit.bytes);
    }
    if (line.length == 0 || summary->tightness >= TIGHT_BOUNDS)
        return;
    ul_text_printf(&line, " %s.", summary->unit.name);
    put_folded(summary, "%s", line.data);
}

/* Chooses the best of each kind, then the next best; the last place goes to the best that keeps
 * results, if no other does. */
static uint32_t choose_remedies(const struct summary *summary, uint32_t own, uint32_t *chosen)
{
    const struct ul_saved_remedy *remedies = summary->saved->remedies;
    uint32_t count = 0;
    bool keeps = false;
    for (uint32_t i = 0; i < own && count < REMEDIES; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < count; k++)
            is_new = is_new && strcmp(remedies[chosen[k]].kind, remedies[i].kind) != 0;
        if (!is_new)
            continue;
        keeps = keeps || remedies[i].same_bits;
        chosen[count++] = i;
    }
    for (uint32_t i = 0; i < own && count < REMEDIES; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < count; k++)
            is_new = is_new && chosen[k] != i;
        keeps = keeps || (is_new && remedies[i].same_bits);
        if (is_new)
            chosen[count++] = i;
    }
    for (uint32_t i = 0; i < own && !keeps; i++) {
        keeps = remedies[i].same_bits;
        if (keeps)
            chosen[count < REMEDIES ? count++ : REMEDIES - 1] = i;
    }
    return count;
}

/* The error in the results from fewer bits is known only when they are computed. */
static void put_error_hint(struct summary *summary, const uint32_t *chosen, uint32_t count)
{
    bool quantizes = false;
    for (uint32_t i = 0; i < count; i++)
        quantizes =
            quantizes || strstr(summary->saved->remedies[chosen[i]].change, "--quantize ") != NULL;
    if (quantizes && summary->tightness < TIGHT_BOUNDS)
        put_folded(summary, "What --quantize changes in the outputs: ullage verify with it.");
}

static void put_remedies(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    uint32_t own = 0, chosen[REMEDIES];
    if (!saved->has_remedies)
        return;
    for (uint32_t i = 0; i < saved->remedy_count; i++)
        own += !saved->remedies[i].applied;
    if (own == 0)
        ul_text_printf(summary->text,
                       "\nNothing that was planned makes it smaller (%" PRIu64 " other plan%s).\n",
                       saved->remedies_tried, ul_plural(saved->remedies_tried));
    else
        ul_text_printf(summary->text,
                       "\n%s, each planned, of %" PRIu32 " in --advice on and --html:\n"
                       "  %3s less    bytes less       more time\n",
                       ul_saved_bounds_buffer(saved)           ? "A smaller buffer"
                       : ul_saved_is_of_device(summary->saved) ? "Less of the device"
                       : is_whole(summary)                     ? "A smaller process"
                                                               : "Less of the caller's process",
                       own, summary->unit.name);
    uint32_t count = choose_remedies(summary, own, chosen);
    for (uint32_t i = 0; i < count; i++)
        put_remedy(summary, &saved->remedies[chosen[i]]);
    put_error_hint(summary, chosen, count);
    put_applied(summary);
}

static void put_blocker(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    if (saved->blocker_count == 0 || saved->blockers[0].bytes == 0 ||
        summary->tightness >= TIGHT_BOUNDS)
        return;
    const struct ul_saved_step *step = &summary->saved->steps[saved->blockers[0].step];
    bool has_source = step->source != NULL && step->source[0] != '\0';
    const char *where = has_source ? step->source : step->node;
    const char *needs = exact(summary, saved->blockers[0].bytes);
    size_t wheres = longer(summary, 0, where), ops = longer(summary, 0, step->op);
    share_line(summary->style->line_columns - 26 - strlen(needs), &wheres, &ops);
    ul_text_printf(summary->text, "The step %s (%s) alone needs %s.\n",
                   name_in(summary, where, wheres), name_in(summary, step->op, ops), needs);
}

/* ---- Bounds ---- */

/* Who checks the bounds that can be added up again. */
static const char *checker(const struct summary *summary)
{
    return summary->saved->is_checked ? "checked" : "says the file";
}

/* Under a budget: how much less time might be possible, and who says so. */
static void put_cost_bound(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_arena *arena = summary->text->arena;
    uint64_t cost = summary->saved->cost, bound = saved->cost_bound;
    const char *less = "", *who = checker(summary);
    if (bound == 0 || !saved->fits)
        return;
    if (cost > bound)
        less = ul_arena_printf(arena, " by more than %.2f %%",
                               100.0 * (double)(cost - bound) / (double)cost);
    if (saved->cost_bound_method[0] != '\0')
        who = ul_arena_printf(arena, "by the planner alone: %s", saved->cost_bound_method);
    put_folded(summary, "Proven (%s): no plan of this program within the budget is faster%s.", who,
               less);
    if (saved->optimal_within[0] != '\0' && summary->tightness < TIGHT_BOUNDS)
        put_folded(summary, "Proven (by the planner alone): none is faster within %s.",
                   saved->optimal_within);
}

/* The bound of the packing: no other offsets of these live ranges take fewer bytes. */
static void put_packing_bound(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    uint64_t reserved = summary->saved->reserved_bytes, bound = saved->order_lower_bound_bytes;
    double gap = bound == 0 ? 0 : 100.0 * (double)(reserved - bound) / (double)bound;
    if (reserved == bound)
        put_folded(summary, "Proven (%s): no packing of this order is smaller.", checker(summary));
    else if (saved->fits && saved->proven)
        put_folded(summary, "Proven (by the planner alone): no packing of this order is smaller.");
    else
        put_folded(summary,
                   "Proven (%s): no packing of this order is below "
                   "%s; this one is %.2f %% above that.",
                   checker(summary), exact(summary, bound), gap);
}

/* Writes what is proven about the bytes, from bounds for this order to bounds for all; a bound that
 * adds nothing to the one before is left out. */
static void put_memory_bounds(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    uint64_t reserved = summary->saved->reserved_bytes, least = saved->lower_bound_bytes;
    uint64_t orders = saved->orders_lower_bound_bytes;
    ul_text_put(summary->text, "\n");
    if (reserved == least) {
        put_folded(summary,
                   "Proven (%s): no plan of this program is smaller, in any order, "
                   "with or without recomputation.",
                   checker(summary));
        return;
    }
    if (reserved == orders)
        put_folded(summary, "Proven (by the planner alone): no plan that runs each step once, the "
                            "fastest way, is smaller.");
    else
        put_packing_bound(summary);
    if (orders > least && orders < reserved && summary->tightness < TIGHT_BOUNDS)
        put_folded(summary,
                   "Proven (by the planner alone): no plan that runs each "
                   "step once, the fastest way, is below %s.",
                   exact(summary, orders));
    put_folded(summary,
               "Proven (%s): recomputation or slower kernels get no plan "
               "below %s.",
               checker(summary), exact(summary, least));
}

/* How many runs of steps are recomputations, and their operations as a fraction of all others. */
static void put_repeated(struct summary *summary)
{
    double all = 0, repeated = 0;
    uint32_t count = 0;
    for (uint32_t p = 0; p < summary->saved->step_count; p++) {
        const struct ul_saved_step *step = &summary->saved->steps[p];
        *(step->copy > 0 ? &repeated : &all) += (double)step->flops;
        count += step->copy > 0;
    }
    if (count > 0)
        ul_text_printf(summary->text,
                       "It recomputes %" PRIu32 " step%s: %.2f %% more operations.\n", count,
                       ul_plural(count), all > 0 ? 100 * repeated / all : 0);
}

/* Writes what leaves the buffer and comes back, and which part no computation hides. */
static void put_transfers(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    if (saved->transfers.saves + saved->transfers.loads == 0)
        return;
    put_folded(summary,
               "Transfers a run: %" PRIu64 " saves of %s, %" PRIu64
               " loads of %s; %.4g ms of them are waited for.",
               saved->transfers.saves, exact(summary, saved->transfers.saved_bytes),
               saved->transfers.loads, exact(summary, saved->transfers.loaded_bytes),
               (double)saved->transfers.exposed_cost * 1e-6);
}

/* Writes how long it takes to move bytes to and from the spaces, and how near that is to the least.
 */
static void put_moves(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_arena *arena = summary->text->arena;
    struct ul_text text;
    if (saved->bank_count == 0)
        return;
    ul_text_init(&text, arena);
    ul_text_put(&text, "Spaces: a run moves ");
    for (uint32_t b = 0; b < saved->bank_count; b++)
        ul_text_printf(&text, "%s%s to and from %s", b == 0 ? "" : ", ",
                       ul_size_format(arena, saved->banks[b].moved_bytes),
                       name_of(summary, saved->banks[b].name));
    ul_text_printf(&text, ", which takes %.4g ms; ", (double)saved->bank_cost * 1e-6);
    if (saved->bank_cost_bound == saved->bank_cost)
        ul_text_put(&text, "no layout of these values in them takes less (the planner's word).");
    else
        ul_text_printf(&text,
                       "no layout of these values in them takes less than %.4g ms, %.2f %% below "
                       "that (the planner's word).",
                       (double)saved->bank_cost_bound * 1e-6,
                       100 * (1 - (double)saved->bank_cost_bound / (double)saved->bank_cost));
    put_folded(summary, "%s", text.data);
}

static void put_launches(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    ul_text_printf(summary->text, ", %" PRIu64 " launch%s", saved->launches.count,
                   saved->launches.count == 1 ? "" : "es");
    if (saved->launches.of_libraries > 0)
        ul_text_printf(summary->text, ", %" PRIu64 " of libraries", saved->launches.of_libraries);
    if (saved->launches.on_second_stream > 0)
        ul_text_printf(summary->text,
                       ", %" PRIu64 " steps on a second stream with %" PRIu64 " wait%s",
                       saved->launches.on_second_stream, saved->launches.waits,
                       saved->launches.waits == 1 ? "" : "s");
}

static void put_bounds(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    const char *profile = ul_saved_option(saved, "profile");
    put_memory_bounds(summary);
    put_cost_bound(summary);
    put_repeated(summary);
    put_folded(summary, "Order: %s. Recompute: %s. Packing: %s. %s", saved->method.order,
               saved->method.remat, saved->method.pack,
               saved->is_checked ? "Checked independently." : "Not checked: see ullage check.");
    put_transfers(summary);
    put_moves(summary);
    if (profile == NULL)
        return;
    uint64_t shared_ns = saved->launches.shared_ns < saved->cost ? saved->launches.shared_ns : 0;
    ul_text_printf(summary->text, "Predicted: %.4g ms %s on %s",
                   (double)(saved->cost - shared_ns) * 1e-6,
                   saved->model_count > 0   ? "a run of each model"
                   : saved->piece_count > 0 ? "a run of each piece"
                                            : "a run",
                   name_of(summary, profile));
    if (saved->has_launches)
        put_launches(summary);
    if (saved->step_cost > saved->cost)
        ul_text_printf(summary->text, ", %.4g ms a step of all its runs",
                       (double)saved->step_cost * 1e-6);
    bool is_laid_out = ul_saved_option(saved, "space") == NULL || saved->bank_count > 0;
    if (saved->base_cost > 0 && saved->cost != saved->base_cost && is_laid_out) {
        bool is_beside = saved->launches.on_second_stream > 0 && saved->cost < saved->base_cost;
        uint64_t spared_ns = is_beside ? shared_ns : 0; /* as when streams were chosen */
        double more =
            100.0 * ul_plan_overhead(saved->cost - spared_ns, saved->base_cost - spared_ns);
        ul_text_printf(summary->text, ", %.2f %% %s time %s", more < 0 ? -more : more,
                       more < 0 ? "less" : "more",
                       is_beside               ? "than one step after the other"
                       : saved->bank_count > 0 ? "than if the fastest space had room for all"
                                               : "for less memory");
    }
    ul_text_put(summary->text, ".\n");
}

/* ---- Notes ---- */

/* Writes what another storage saves for these values, and where it was not possible. */
static void put_precision(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    const char *precision = ul_saved_option(summary->saved, "precision");
    if (precision == NULL)
        return;
    const char *numbers = strncmp(precision, "amp-", 4) == 0 ? precision + 4 : precision;
    put_folded(summary,
               "The same values at the peak would be %s more in f32; a plan "
               "without --precision %s has other kernels and scratch as well.",
               exact(summary, saved->for_precision.saved_bytes), name_of(summary, precision));
    if (saved->for_precision.uncalled_count > 0)
        put_folded(summary,
                   "%" PRIu64 " product%s of %s by kernels of ours, "
                   "not by %s.",
                   saved->for_precision.uncalled_count,
                   ul_plural(saved->for_precision.uncalled_count), name_of(summary, numbers),
                   name_of(summary, saved->library));
    if (saved->for_precision.too_large_count > 0)
        put_folded(summary,
                   "%" PRIu64 " weight%s f32, with numbers that are "
                   "infinite in %s.",
                   saved->for_precision.too_large_count,
                   saved->for_precision.too_large_count == 1 ? " stays" : "s stay",
                   name_of(summary, precision));
}

/* Writes what is not stored in 16 bits, and why; reasons of few bytes share a line. */
static void put_kept(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    uint64_t bytes = 0, left_bytes = 0, left_count = 0;
    for (uint32_t i = 0; i < saved->kept_count; i++)
        bytes = ul_size_add_or_die(bytes, saved->stays_f32[i].bytes);
    if (bytes == 0)
        return;
    ul_text_printf(summary->text,
                   "Stays f32, each value once, whenever it lives, in %s and bytes:\n",
                   summary->unit.name);
    for (uint32_t i = 0; i < saved->kept_count; i++) {
        const struct ul_saved_kept *kept = &saved->stays_f32[i];
        if (kept->bytes >= bytes / 1024)
            ul_text_printf(summary->text, "  %8.2f %13" PRIu64 "  %s (%" PRIu64 ")\n",
                           in_unit(summary, kept->bytes), kept->bytes,
                           name_in(summary, kept->why, summary->style->line_columns - 36),
                           kept->count);
        left_bytes += kept->bytes >= bytes / 1024 ? 0 : kept->bytes;
        left_count += kept->bytes >= bytes / 1024 ? 0 : kept->count;
    }
    if (left_count > 0)
        ul_text_printf(summary->text, "  %8.2f %13" PRIu64 "  %" PRIu64 " others\n",
                       in_unit(summary, left_bytes), left_bytes, left_count);
}

/* Names products of a quantized model that do not compute in integers. */
static void put_floats(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    if (saved->float_count == 0)
        return;
    put_folded(summary, "In floats: %u product%s, the first %s (%s): %s.", saved->float_count,
               ul_plural(saved->float_count), name_of(summary, saved->in_floats[0].node),
               name_of(summary, saved->in_floats[0].op), saved->in_floats[0].why);
}

/* Says with which libraries of a device the plan was made. */
static void put_libraries(struct summary *summary)
{
    const char *workspace = ul_saved_option(summary->saved, "workspace");
    const char *more = ul_saved_option(summary->saved, "workspace-free");
    const char *cudnn = summary->saved->cudnn, *where = "";
    struct ul_arena *arena = summary->text->arena;
    uint64_t bytes, free_bytes;
    if (workspace == NULL || !ul_saved_is_of_device(summary->saved) ||
        !ul_size_parse(workspace, &bytes))
        return;
    if (more != NULL && ul_size_parse(more, &free_bytes) && free_bytes > bytes)
        where = ul_arena_printf(arena, ", %s where that lies free", exact(summary, free_bytes));
    put_folded(summary, "Library calls: at most %s of workspace each%s, cuDNN %s%s.",
               exact(summary, bytes), where, name_of(summary, cudnn),
               ul_saved_option(summary->saved, "tf32") != NULL ? ", factors in TF32" : "");
}

/* Writes what an option that may be repeated names: the first, and how many more. */
static void put_named(struct summary *summary, const char *option, const char *title)
{
    struct ul_arena *arena = summary->text->arena;
    const char *first = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < summary->saved->option_count; i++) {
        if (strcmp(summary->saved->options[i].name, option) != 0)
            continue;
        first = count++ == 0 ? summary->saved->options[i].value : first;
    }
    if (count == 0)
        return;
    put_folded(summary, "%s: %s%s.", title, name_of(summary, first),
               count == 1 ? "" : ul_arena_printf(arena, " and %" PRIu32 " more", count - 1));
}

/* A line for each model of several. */
static void put_models(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    for (uint32_t i = 0; i < saved->model_count; i++) {
        const struct ul_saved_model *model = &saved->models[i];
        const char *own = model->own_weight_bytes == model->weight_bytes
                              ? ""
                              : ul_arena_printf(summary->text->arena, " (%s of them its own)",
                                                exact(summary, model->own_weight_bytes));
        put_folded(summary, "Model %s: at most %s live, %s of weights%s, %.4g ms a run.",
                   name_of(summary, model->name), exact(summary, model->peak_bytes),
                   exact(summary, model->weight_bytes), own, (double)model->cost * 1e-6);
    }
}

/* A line for each piece of a range of sizes. */
static void put_pieces(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    for (uint32_t i = 0; i < saved->piece_count; i++) {
        const struct ul_saved_piece *piece = &saved->pieces[i];
        put_folded(summary, "With %s: at most %s live, %.4g ms a run.",
                   name_of(summary, piece->sizes), exact(summary, piece->peak_bytes),
                   (double)piece->cost * 1e-6);
    }
}

/* Says for which sizes the program is. */
static void put_sizes(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_text text;
    if (saved->size_count == 0)
        return;
    ul_text_init(&text, summary->text->arena);
    for (uint32_t s = 0; s < saved->size_count; s++) {
        const struct ul_saved_size *size = &saved->sizes[s];
        ul_text_printf(&text, "%s%s", s == 0 ? "" : ", ", name_of(summary, size->name));
        for (uint32_t v = 0; v < size->values_count; v++)
            ul_text_printf(&text, "%s%" PRIu32, v == 0 ? " of " : ", ", size->values[v]);
        if (size->values_count == 0)
            ul_text_printf(&text, " from %" PRIu64 " to %" PRIu64, size->low, size->high);
        if (size->values_count == 0 && size->step > 1)
            ul_text_printf(&text, " by %" PRIu64, size->step);
    }
    ul_text_printf(&text, ": one program for all of them; bytes %sare those of the largest.",
                   saved->piece_count > 0 ? "" : "and time ");
    if (saved->least_reserved_bytes > 0)
        ul_text_printf(&text, " The smallest buffer that serves a size has %s.",
                       exact(summary, saved->least_reserved_bytes));
    put_folded(summary, "%s", text.data);
}

static void put_notes(struct summary *summary)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_text training;
    put_models(summary);
    put_sizes(summary);
    put_pieces(summary);
    put_named(summary, "split", "In pieces, FIRST..LAST:AXIS:PIECES");
    put_named(summary, "inside", "Computed by what reads it in the backward pass");
    put_named(summary, "donate", "Overwritten where it lies, OUTPUT=INPUT");
    put_named(summary, "row-major", "Laid out as in the model, with what is laid out alike");
    put_floats(summary);
    put_precision(summary);
    put_libraries(summary);
    ul_text_init(&training, summary->text->arena);
    ul_report_put_training(&training, &summary->saved->training,
                           ul_saved_option(saved, "optimizer"), saved->rows[UL_PLAN_GRADIENTS]);
    put_lines(summary, training.data);
    put_kept(summary); /* the longest note, so the first to go where there is no room */
}

/* Appends notes from the first on, as far as there is room. */
static void append_notes(struct summary *summary, const struct ul_text *notes)
{
    uint32_t used = count_lines(summary->text), left = count_lines(notes);
    uint32_t room = used < MAX_LINES ? MAX_LINES - used : 0;
    const char *at = notes->data;
    while (left > 0 && room > 0 && (left <= room || room > 1)) {
        size_t length = strcspn(at, "\n") + 1;
        ul_text_put_bytes(summary->text, at, length);
        at += length;
        left--;
        room--;
    }
    if (left > 0)
        ul_text_printf(summary->text, "%" PRIu32 " more line%s of notes: --json FILE has all.\n",
                       left, ul_plural(left));
}

/* Writes everything; returns whether it fits the lines with all notes. */
static bool put_all(struct summary *summary, struct ul_text *all)
{
    const struct ul_saved *saved = summary->saved;
    struct ul_text tail, notes;
    ul_text_init(all, all->arena);
    ul_text_init(&tail, all->arena);
    ul_text_init(&notes, all->arena);
    summary->text = &tail;
    put_remedies(summary);
    put_blocker(summary);
    put_bounds(summary);
    summary->text = &notes;
    put_notes(summary);
    summary->text = all;
    put_verdict(summary);
    put_lines(summary, saved->training.notes); /* which tensors are trained, and which not */
    put_largest(summary);
    put_micro_batches(summary);
    put_rows(summary);
    put_process(summary);
    put_others(summary);
    if (saved->step_count > 0) {
        put_curve(summary);
        put_peak_name(summary);
        uint32_t used = count_lines(all) + count_lines(&tail) + count_lines(&notes) + 2;
        uint32_t least = summary->tightness >= TIGHTEST ? 1 : MIN_VALUES;
        uint32_t room = used + least < MAX_LINES ? MAX_LINES - used : least;
        put_values(summary, room < MAX_VALUES ? room : MAX_VALUES);
    }
    ul_text_put_bytes(all, tail.data, tail.length);
    bool fits = count_lines(all) + count_lines(&notes) <= MAX_LINES;
    append_notes(summary, &notes);
    return fits;
}

/* Escapes the plan's texts, and puts colours in place of their marks, so that no escape sequence
 * comes from a plan. */
static void put_shown(struct ul_text *text, const struct ul_text *all, bool has_colors)
{
    for (const char *at = all->data; *at != '\0';) {
        size_t plain = strcspn(at, MARK_BOLD MARK_RED MARK_END);
        ul_text_put_shown(text, at, plain, true);
        at += plain;
        if (*at != '\0' && has_colors)
            ul_text_put(text, *at == *MARK_BOLD  ? "\033[1m"
                              : *at == *MARK_RED ? "\033[31m"
                                                 : "\033[0m");
        at += *at != '\0';
    }
}

void ul_summary_put(struct ul_text *text, const struct ul_saved *saved,
                    const struct ul_summary_style *style)
{
    struct ul_text all = {.arena = text->arena};
    struct summary summary = {
        .saved = saved, .style = style, .unit = ul_report_unit_of(saved->reserved_bytes)};
    UL_ASSERT(style->columns >= 80);
    while (!put_all(&summary, &all) && summary.tightness < TIGHTEST)
        summary.tightness++;
    put_shown(text, &all, style->has_colors);
}
