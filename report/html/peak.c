/* SPDX-License-Identifier: Apache-2.0 */
/* Section 5: the values alive at the peak. Weights and optimizer state, which always live, come
 * below the others, so that they hide none. */
#include "report/html/html.h"

#include <inttypes.h>

enum { TOP_VALUES = 20, TOP_LASTING = 6 };

static bool is_lasting(const struct ul_saved_range *range)
{
    return range->class == UL_PLAN_WEIGHTS || range->class == UL_PLAN_OPTIMIZER;
}

static void put_row(struct ul_page *page, uint32_t range)
{
    const struct ul_saved_range *of = &page->saved->ranges[range];
    ul_page_printf(page, "<tr data-range=\"%" PRIu32 "\">", range);
    ul_page_size_cells(page, of->size_bytes);
    ul_page_put(page, "<td>");
    ul_page_name(page, ul_saved_range_name(page->saved, page->arena, range), 37);
    ul_page_put(page, "<small>");
    ul_page_swatch(page, ul_page_paint(page, of->class));
    ul_page_printf(page, "%s%s <span class=\"m\">", ul_page_label(page, of->class),
                   of->copy > 0 ? ", computed again" : "");
    ul_page_escape(page, of->type);
    ul_page_put(page, "</span></small></td><td>");
    ul_page_put_maker(page, range);
    ul_page_put(page, "</td><td>");
    ul_page_put_readers(page, range);
    ul_page_printf(page,
                   "</td><td class=\"r\">%" PRIu32 "\xE2\x80\x93%" PRIu32
                   "</td><td class=\"r\">%" PRIu32 "</td>",
                   of->begin, of->end - 1, of->end - of->begin);
    if (of->readers != NULL)
        ul_page_printf(page, "<td class=\"r\">%" PRIu32 "</td></tr>\n", ul_page_idle(page, range));
    else
        ul_page_put(page, "<td class=\"r\">?</td></tr>\n");
}

/* Lists the biggest of one kind, and a row for the others of that kind. */
static void put_kind(struct ul_page *page, bool lasting, uint32_t wanted, const char *others)
{
    uint32_t shown = 0, rest = 0;
    uint64_t rest_bytes = 0;
    for (uint32_t i = 0; i < page->alive_count; i++) {
        const struct ul_saved_range *range = &page->saved->ranges[page->alive[i]];
        if (is_lasting(range) != lasting)
            continue;
        if (shown < wanted) {
            put_row(page, page->alive[i]);
            shown++;
            continue;
        }
        rest++;
        rest_bytes += range->size_bytes;
    }
    if (rest == 0)
        return;
    ul_page_put(page, "<tr class=\"others\">");
    ul_page_size_cells(page, rest_bytes);
    ul_page_printf(page, "<td colspan=\"6\">%" PRIu32 " %s</td></tr>\n", rest, others);
}

static uint64_t sum_alive(const struct ul_page *page)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < page->alive_count; i++)
        bytes += page->saved->ranges[page->alive[i]].size_bytes;
    return bytes;
}

void ul_page_peak(struct ul_page *page)
{
    ul_page_begin(page, 5, "At the peak");
    ul_page_printf(page,
                   "<p class=\"lead\">%" PRIu32 " values are alive at step %" PRIu32
                   ". A long idle gap is a value that waits: the first to compute again, to "
                   "offload, or to make later.</p>\n",
                   page->alive_count, page->saved->peak_step);
    ul_page_table(page, "values",
                  ul_arena_printf(page->arena,
                                  "#%s|#bytes|value|made by|used by|#steps|#held for|#idle gap",
                                  page->unit.name));
    put_kind(page, false, TOP_VALUES, "others that come and go");
    put_kind(page, true, TOP_LASTING,
             page->saved->training.parameters > 0 ? "other weights and states of the optimizer"
                                                  : "others that live always");
    ul_page_put(page, "</tbody><tfoot><tr>");
    ul_page_size_cells(page, sum_alive(page));
    ul_page_put(page, "<td colspan=\"6\">all that is alive, without alignment and holes</td></tr>"
                      "</tfoot><tbody>\n");
    ul_page_table_end(page);
    ul_page_end(page);
}
