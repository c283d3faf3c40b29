/* SPDX-License-Identifier: Apache-2.0 */
/* Section 2: the sum table. The reserved bytes at the peak add up; next to them is what the values
 * of a class would take if each had bytes of its own. */
#include "report/html/html.h"

#include <inttypes.h>

struct sum {
    uint64_t count, logical_bytes, padding_bytes;
};

/* Adds up every live range of the arena, and every member of an alias chain. */
static void add_up(const struct ul_saved *saved, struct sum sums[UL_PLAN_CLASS_COUNT])
{
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        struct sum *sum = &sums[range->class];
        uint64_t over = range->size_bytes % saved->alignment_bytes;
        if (range->space != 0)
            continue;
        sum->count++;
        sum->logical_bytes += range->size_bytes;
        sum->padding_bytes += over > 0 ? saved->alignment_bytes - over : 0;
    }
}

static void put_number(struct ul_page *page, uint64_t number)
{
    ul_page_printf(page, "<td class=\"r\"><data value=\"%" PRIu64 "\">", number);
    ul_page_printf(page, "%s</data></td>", ul_page_digits(page, number));
}

static void put_share(struct ul_page *page, uint64_t bytes, const char *paint)
{
    uint64_t all = page->saved->reserved_bytes;
    double share = all > 0 ? (double)bytes / (double)all : 0;
    ul_page_put(page, "<td class=\"share\"><svg width=\"120\" height=\"12\" aria-hidden=\"true\">"
                      "<rect height=\"12\" width=\"");
    ul_page_coordinate(page, 120 * share);
    ul_page_printf(page, "\" fill=\"url(#%s)\"/></svg></td><td class=\"r\">%.1f %%</td>", paint,
                   100 * share);
}

static void put_row(struct ul_page *page, uint32_t row, const struct sum *sum)
{
    uint64_t bytes = page->saved->rows[row];
    ul_page_put(page, "<tr><th scope=\"row\">");
    ul_page_swatch(page, ul_page_paint(page, row));
    ul_page_printf(page, "%s</th>", ul_page_label(page, row));
    if (sum != NULL) {
        put_number(page, sum->count);
        put_number(page, sum->logical_bytes);
        put_number(page, sum->padding_bytes);
        put_number(page, sum->logical_bytes + sum->padding_bytes);
    } else {
        ul_page_put(page, "<td></td><td></td><td></td><td></td>");
    }
    ul_page_size_cells(page, bytes);
    put_share(page, bytes, ul_page_paint(page, row));
    ul_page_put(page, "</tr>\n");
}

/* Writes a part of the row above, which is in no sum. */
static void put_part(struct ul_page *page, const char *label, uint64_t bytes)
{
    if (bytes == 0)
        return;
    ul_page_printf(page,
                   "<tr class=\"part\"><th scope=\"row\">%s</th><td></td><td></td><td></td>"
                   "<td></td>",
                   label);
    ul_page_size_cells(page, bytes);
    ul_page_put(page, "<td></td><td></td></tr>\n");
}

static void put_total(struct ul_page *page, const struct sum *sums)
{
    struct sum all = {.count = 0};
    for (uint32_t c = 0; c < UL_PLAN_CLASS_COUNT; c++) {
        all.count += sums[c].count;
        all.logical_bytes += sums[c].logical_bytes;
        all.padding_bytes += sums[c].padding_bytes;
    }
    ul_page_put(page, "</tbody><tfoot><tr id=\"total\"><th scope=\"row\">reserved</th>");
    put_number(page, all.count);
    put_number(page, all.logical_bytes);
    put_number(page, all.padding_bytes);
    put_number(page, all.logical_bytes + all.padding_bytes);
    ul_page_size_cells(page, page->saved->reserved_bytes);
    ul_page_put(page, "<td></td><td class=\"r\">100.0 %</td></tr></tfoot><tbody>\n");
}

static void put_process(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    if (saved->process_bytes == UINT64_MAX)
        return;
    ul_page_table(page, "process",
                  ul_arena_printf(page->arena, "the %s%s|#%s|#bytes", page->process,
                                  saved->process_peak_at_start ? " at set-up, its peak" : "",
                                  page->unit.name));
    ul_page_printf(page, "<tr><th scope=\"row\">buffer%s</th>",
                   saved->process_peak_at_start ? ", what of it is written by then" : "");
    ul_page_size_cells(page, saved->process[UL_SAVED_BUFFER]);
    ul_page_put(page, "</tr>\n");
    for (uint32_t part = UL_SAVED_LIBRARY; part < UL_SAVED_PART_COUNT; part++) {
        ul_page_printf(page, "<tr><th scope=\"row\">%s</th>", ul_page_part_label(part));
        ul_page_size_cells(page, saved->process[part]);
        ul_page_put(page, "</tr>\n");
    }
    ul_page_put(page, "</tbody><tfoot><tr><th scope=\"row\">all of it</th>");
    ul_page_size_cells(page, saved->process_bytes);
    ul_page_put(page, "</tr></tfoot><tbody>\n");
    ul_page_table_end(page);
}

/* The memories that the buffer is made of. */
static void put_banks(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    if (saved->bank_count == 0)
        return;
    ul_page_put(page, "<p>The buffer is made of several memories, in each of which a value lies as "
                      "a whole.</p>\n");
    ul_page_table(page, "banks",
                  "space|#capacity|#reserved|#live at its peak|#moved a run|#10^6 bytes a second");
    for (uint32_t b = 0; b < saved->bank_count; b++) {
        const struct ul_saved_bank *bank = &saved->banks[b];
        const uint64_t numbers[] = {bank->capacity_bytes, bank->reserved_bytes, bank->live_bytes,
                                    bank->moved_bytes, bank->bandwidth_mb};
        ul_page_put(page, "<tr><th scope=\"row\">");
        ul_page_escape(page, bank->name);
        ul_page_put(page, bank->weights ? ", for weights alone</th>" : "</th>");
        for (uint32_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            ul_page_printf(page, "<td class=\"r\">%s</td>", ul_page_digits(page, numbers[i]));
        ul_page_put(page, "</tr>\n");
    }
    ul_page_table_end(page);
    ul_page_printf(page,
                   "<p>Moving bytes to and from them takes %.4g ms a run, and no layout of these "
                   "values in them takes less than %.4g ms (the planner's word).</p>\n",
                   (double)saved->bank_cost * 1e-6, (double)saved->bank_cost_bound * 1e-6);
}

static void put_spaces(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    for (uint32_t i = 1; i < saved->space_count; i++) {
        if (saved->spaces[i].reserved_bytes == 0)
            continue;
        ul_page_put(page, "<p>Outside of the buffer: ");
        ul_page_escape(page, saved->spaces[i].name);
        ul_page_printf(page, ", %s bytes.</p>\n",
                       ul_page_digits(page, saved->spaces[i].reserved_bytes));
    }
    put_banks(page);
    if (saved->transfers.saves + saved->transfers.loads > 0)
        ul_page_printf(page,
                       "<p>Transfers a run: %" PRIu64 " saves of %s bytes, %" PRIu64
                       " loads of %s; %.4g ms of them are waited for.</p>\n",
                       saved->transfers.saves, ul_page_digits(page, saved->transfers.saved_bytes),
                       saved->transfers.loads, ul_page_digits(page, saved->transfers.loaded_bytes),
                       (double)saved->transfers.exposed_cost * 1e-6);
}

/* Whether a row of training says nothing, because the program only runs. */
static bool is_no_news(uint32_t row, const struct sum *sums)
{
    bool of_training = row == UL_PLAN_OPTIMIZER || row == UL_PLAN_GRADIENTS || row == UL_PLAN_SAVED;
    return of_training && sums[row].count == 0;
}

void ul_page_sums(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    struct sum sums[UL_PLAN_CLASS_COUNT] = {{.count = 0}};
    add_up(page->saved, sums);
    ul_page_begin(page, 2, "Where the bytes are");
    ul_page_put(page, "<p class=\"lead\">The columns on the right are the arena at its peak, and "
                      "add up to what is reserved. Those in the middle are all values of the "
                      "program, each with bytes of its own: what no reuse would take.</p>\n");
    ul_page_table(page, "sums",
                  ul_arena_printf(page->arena,
                                  "class|#values|#logical bytes|#padding|#allocated|"
                                  "#at the peak, %s|#bytes||#share",
                                  page->unit.name));
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++) {
        if (page->saved->rows[row] == 0 && is_no_news(row, sums))
            continue;
        put_row(page, row, row < UL_PLAN_CLASS_COUNT ? &sums[row] : NULL);
        if (row == UL_PLAN_WEIGHTS)
            put_part(page, "of it the library\xE2\x80\x99s packing",
                     saved->for_library.packing_bytes);
        if (row == UL_PLAN_ACTIVATIONS)
            put_part(page, "of it operands of its calls", saved->for_library.operand_bytes);
    }
    put_total(page, sums);
    ul_page_table_end(page);
    put_process(page);
    put_spaces(page);
    ul_page_end(page);
}
