/* SPDX-License-Identifier: Apache-2.0 */
/* Section 11: what changed from a baseline, by class and by value, and both curves. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

enum { HEIGHT = 200, TOP_VALUES = 30 };

static void put_pair(struct ul_page *page, const char *label, uint64_t old, uint64_t new)
{
    const char *class = new > old ? "grew" : new < old ? "shrank" : "same";
    ul_page_printf(page, "<tr class=\"%s\"><th scope=\"row\">%s</th>", class, label);
    ul_page_size_cells(page, old);
    ul_page_size_cells(page, new);
    ul_page_printf(page, "<td class=\"r\">%s</td><td class=\"r\">%s%s</td></tr>\n",
                   ul_page_change(page, old, new),
                   new > old   ? "+"
                   : new < old ? "\xE2\x88\x92"
                               : "",
                   ul_page_digits(page, new > old ? new - old : old - new));
}

static void put_rows(struct ul_page *page)
{
    const struct ul_saved *old = page->baseline, *new = page->saved;
    ul_page_table(page, "compared",
                  ul_arena_printf(page->arena,
                                  "at the peak|#old, %s|#bytes|#new, %s|#bytes|#change|#bytes",
                                  page->unit.name, page->unit.name));
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        if (old->rows[row] > 0 || new->rows[row] > 0)
            put_pair(page, ul_page_label(page, row), old->rows[row], new->rows[row]);
    put_pair(page, "reserved", old->reserved_bytes, new->reserved_bytes);
    if (old->process_bytes != UINT64_MAX && new->process_bytes != UINT64_MAX)
        put_pair(page, "process", old->process_bytes, new->process_bytes);
    ul_page_table_end(page);
}

static void put_values(struct ul_page *page, const struct ul_diff *diff)
{
    uint32_t shown = diff->value_count < TOP_VALUES ? diff->value_count : TOP_VALUES;
    if (shown == 0)
        return;
    ul_page_put(page, "<h3>Values at the two peaks</h3>\n");
    ul_page_table(page, "changes", "#change|#old bytes|#new bytes|value|made by");
    for (uint32_t i = 0; i < shown; i++) {
        const struct ul_diff_value *value = &diff->values[i];
        ul_page_printf(page, "<tr><td class=\"r\">%s</td><td class=\"r\">%s</td>",
                       ul_page_change(page, value->old_bytes, value->new_bytes),
                       ul_page_digits(page, value->old_bytes));
        ul_page_printf(page, "<td class=\"r\">%s</td><td>", ul_page_digits(page, value->new_bytes));
        ul_page_name(page, value->name, 48);
        ul_page_put(page, "</td><td>");
        if (value->op != NULL) {
            ul_page_put(page, "<span class=\"op\">");
            ul_page_escape(page, value->op);
            ul_page_put(page, "</span> ");
            ul_page_name(page, value->node, 44);
        } else {
            ul_page_put(page, "<span class=\"muted\">given</span>");
        }
        ul_page_put(page, "</td></tr>\n");
    }
    if (diff->value_count > shown)
        ul_page_printf(page,
                       "<tr class=\"others\"><td colspan=\"5\">%" PRIu32 " others, in <code>ullage "
                       "diff OLD.json NEW.json --json FILE</code></td></tr>\n",
                       diff->value_count - shown);
    ul_page_table_end(page);
}

/* Lists options that one plan was made with and the other was not. */
static void put_options(struct ul_page *page, const char *which, const struct ul_saved *of,
                        const struct ul_saved *other)
{
    for (uint32_t i = 0; i < of->option_count; i++) {
        const struct ul_report_option *option = &of->options[i];
        if (ul_saved_has_option(other, option->name, option->value) ||
            strncmp(option->name, "profile-", 8) == 0)
            continue;
        ul_page_printf(page, "<li>The %s plan was made with <code>--", which);
        ul_page_escape(page, option->name);
        ul_page_put(page, " ");
        ul_page_name(page, option->value, 60);
        ul_page_put(page, "</code></li>\n");
    }
}

/* ---- Both curves ---- */

/* The positions of a pixel column, with the least and the most live bytes there. */
struct extent {
    uint32_t begin, end;
    uint64_t least, most;
};

static uint32_t count_columns(uint32_t length)
{
    return length < UL_PAGE_WIDTH ? length : UL_PAGE_WIDTH;
}

static void find_extent(const uint64_t *live, uint32_t length, uint32_t column,
                        struct extent *extent)
{
    uint32_t columns = count_columns(length);
    extent->begin = (uint32_t)((uint64_t)column * length / columns);
    extent->end = (uint32_t)((uint64_t)(column + 1) * length / columns);
    extent->least = extent->most = live[extent->begin];
    for (uint32_t p = extent->begin; p < extent->end; p++) {
        extent->least = live[p] < extent->least ? live[p] : extent->least;
        extent->most = live[p] > extent->most ? live[p] : extent->most;
    }
}

/* Draws the least and the most of each pixel column, as a staircase over the whole width. */
static void put_curve(struct ul_page *page, const char *class, const uint64_t *live,
                      uint32_t length, double top)
{
    uint32_t columns = count_columns(length);
    ul_page_printf(page, "<path class=\"%s\" d=\"", class);
    for (uint32_t column = 0; column < columns; column++) {
        struct extent extent;
        find_extent(live, length, column, &extent);
        ul_page_put(page, column == 0 ? "M0 " : "V");
        ul_page_coordinate(page, HEIGHT - (double)extent.least / top * HEIGHT);
        if (extent.most > extent.least) {
            ul_page_put(page, "V");
            ul_page_coordinate(page, HEIGHT - (double)extent.most / top * HEIGHT);
        }
        ul_page_put(page, "H");
        ul_page_coordinate(page, (column + 1.0) * UL_PAGE_WIDTH / columns);
    }
    ul_page_put(page, "\"/>");
}

static void put_column(struct ul_page *page, const uint64_t *live, uint32_t length, uint32_t column)
{
    struct extent extent;
    if (column >= count_columns(length)) {
        ul_page_put(page, "<td></td><td></td><td></td>");
        return;
    }
    find_extent(live, length, column, &extent);
    ul_page_printf(page, "<td class=\"r\">%" PRIu32, extent.begin);
    if (extent.end > extent.begin + 1)
        ul_page_printf(page, " to %" PRIu32, extent.end - 1);
    ul_page_printf(page, "</td><td class=\"r\">%s</td>", ul_page_digits(page, extent.least));
    ul_page_printf(page, "<td class=\"r\">%s</td>", ul_page_digits(page, extent.most));
}

static void put_twin(struct ul_page *page, const uint64_t *before, uint32_t old_length)
{
    uint32_t old_columns = count_columns(old_length), new_columns = count_columns(page->length);
    ul_page_twin(page, "t11");
    ul_page_table(page, "both",
                  "#old step|#least live bytes|#most|#new step|#least live bytes|#most");
    for (uint32_t i = 0; i < old_columns || i < new_columns; i++) {
        ul_page_put(page, "<tr>");
        put_column(page, before, old_length, i);
        put_column(page, page->live, page->length, i);
        ul_page_put(page, "</tr>\n");
    }
    ul_page_table_end(page);
    ul_page_twin_end(page);
}

static void put_picture(struct ul_page *page)
{
    const struct ul_saved *old = page->baseline;
    uint32_t old_length = old->step_count > 0 ? old->step_count : 1;
    uint64_t *curves[UL_SAVED_CURVES];
    const uint64_t *before = ul_saved_curves(old, page->arena, curves);
    uint64_t top = page->saved->reserved_bytes;
    top = old->reserved_bytes > top ? old->reserved_bytes : top;
    top = top > 0 ? top : 1;
    ul_page_printf(page,
                   "<div class=\"chart\" id=\"both\" role=\"img\" aria-label=\"Live bytes of both "
                   "plans: the old one reserves %s bytes, the new one %s\">\n",
                   ul_page_digits(page, old->reserved_bytes),
                   ul_page_digits(page, page->saved->reserved_bytes));
    ul_page_byte_axis(page, top, 8, HEIGHT);
    ul_page_printf(page,
                   "<svg class=\"plot\" width=\"100%%\" height=\"%d\"><svg y=\"8\" width=\"100%%\" "
                   "height=\"%d\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\"><rect "
                   "class=\"ground\" width=\"%d\" height=\"%d\"/>",
                   8 + HEIGHT, HEIGHT, UL_PAGE_WIDTH, HEIGHT, UL_PAGE_WIDTH, HEIGHT);
    put_curve(page, "old", before, old_length, (double)top);
    put_curve(page, "new", page->live, page->length, (double)top);
    ul_page_put(page,
                "</svg></svg></div>\n<ul class=\"lines\"><li><svg width=\"28\" height=\"8\" "
                "aria-hidden=\"true\"><path class=\"old\" d=\"M0 4H28\"/></svg>old</li><li><svg "
                "width=\"28\" height=\"8\" aria-hidden=\"true\"><path class=\"new\" d=\"M0 "
                "4H28\"/></svg>new</li><li>each from its first to its last step</li></ul>\n");
    put_twin(page, before, old_length);
}

static void put_sentence(struct ul_page *page, const struct ul_diff *diff)
{
    const struct ul_saved *old = page->baseline, *new = page->saved;
    ul_page_printf(page, "<p class=\"lead\">%s, %+.2f %%, against ",
                   ul_page_change(page, old->reserved_bytes, new->reserved_bytes),
                   100 * diff->growth);
    ul_page_name(page, old->model, 48);
    ul_page_printf(
        page, ".%s</p>\n<ul class=\"notes\">\n",
        strcmp(old->model_sha256, new->model_sha256) != 0 ? " The model file is another one." : "");
    if (strcmp(old->target, new->target) != 0) {
        ul_page_put(page, "<li>The old plan is for target ");
        ul_page_escape(page, old->target);
        ul_page_put(page, "</li>\n");
    }
    put_options(page, "old", old, new);
    put_options(page, "new", new, old);
    ul_page_put(page, "</ul>\n");
}

void ul_page_compare(struct ul_page *page)
{
    struct ul_diff diff;
    ul_page_begin(page, 11, "Compared with a baseline");
    if (page->baseline == NULL) {
        ul_page_put(page, "<p class=\"lead\">No baseline was given. What changed since an earlier "
                          "version:</p>\n<pre class=\"command\"><code>ullage report plan.json "
                          "--html report.html --baseline OLD.json</code></pre>\n");
        ul_page_end(page);
        return;
    }
    ul_diff_make(page->arena, page->baseline, page->saved, &diff);
    put_sentence(page, &diff);
    put_rows(page);
    put_picture(page);
    put_values(page, &diff);
    ul_page_end(page);
}
