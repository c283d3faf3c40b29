/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of SVG: axes, patterns, legends. A picture is a stretched viewBox of UL_PAGE_WIDTH units;
 * the place of text is a percentage of the width, so that text is never stretched. */
#include "report/html/html.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void ul_page_coordinate(struct ul_page *page, double number)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%.2f", number);
    size_t length = strlen(digits);
    while (digits[length - 1] == '0')
        length--;
    length -= digits[length - 1] == '.';
    digits[length] = '\0';
    ul_page_put(page, strcmp(digits, "-0") == 0 ? "0" : digits);
}

double ul_page_step(double top, uint32_t wanted)
{
    static const double steps[] = {1, 2, 5, 10};
    if (!(top > 0))
        return 1;
    double power = pow(10, floor(log10(top / wanted)));
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i] * power * wanted >= top)
            return steps[i] * power;
    return 10 * power;
}

void ul_page_byte_axis(struct ul_page *page, uint64_t top_bytes, uint32_t above, uint32_t height)
{
    double top = (double)top_bytes / page->unit.bytes, step = ul_page_step(top, 6);
    int digits = step >= 1 ? 0 : (int)ceil(-log10(step));
    ul_page_printf(page,
                   "<svg class=\"gutter\" width=\"72\" height=\"%" PRIu32
                   "\" aria-hidden=\"true\"><text x=\"64\" y=\"%" PRIu32 "\">%s</text>",
                   above + height + 4, above > 16 ? above - 14 : 10, page->unit.name);
    for (double mark = 0; mark <= top * 1.0001; mark += step) {
        ul_page_put(page, "<text x=\"64\" y=\"");
        ul_page_coordinate(page, above + height - mark / top * height + 4);
        ul_page_printf(page, "\">%.*f</text>", digits, mark);
    }
    ul_page_put(page, "</svg>\n");
}

/* Writes the extent of a pass, from its first position to after its last, as percentages. */
static void put_pass(struct ul_page *page, const char *pass, uint32_t begin, uint32_t end)
{
    double left = 100.0 * begin / page->length, right = 100.0 * end / page->length;
    ul_page_printf(page,
                   "<rect class=\"pass %s\" x=\"%.3f%%\" y=\"24\" width=\"%.3f%%\" "
                   "height=\"3\"/><text class=\"pass\" x=\"%.3f%%\" y=\"40\">%s</text>",
                   pass, left, right - left, left, pass);
}

/* Finds where the backward pass begins, so that the fewest steps are on the wrong side: an order
 * may run some of its steps early, and recomputed steps are forward. */
static uint32_t find_backward(const struct ul_saved *saved)
{
    uint32_t best = 0;
    int64_t balance = 0, most = 0;
    bool any = false;
    for (uint32_t i = 0; i < saved->step_count; i++) {
        bool is_forward = strcmp(saved->steps[i].pass, "forward") == 0;
        bool is_backward = strcmp(saved->steps[i].pass, "backward") == 0;
        any = any || is_backward;
        balance += is_forward && saved->steps[i].copy == 0 ? 1 : is_backward ? -1 : 0;
        if (balance > most) {
            most = balance;
            best = i + 1;
        }
    }
    return any ? best : saved->step_count;
}

static void put_passes(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    uint32_t end = find_backward(saved);
    if (end == saved->step_count)
        return;
    if (end > 0)
        put_pass(page, "forward", 0, end);
    put_pass(page, "backward", end, saved->step_count);
}

void ul_page_step_axis(struct ul_page *page)
{
    double step = ul_page_step(page->length, 10);
    bool has_passes = find_backward(page->saved) < page->saved->step_count;
    ul_page_printf(page,
                   "<svg class=\"steps\" width=\"100%%\" height=\"%d\" aria-hidden=\"true\">"
                   "<g class=\"marks\">",
                   has_passes ? 44 : 22);
    step = step < 1 ? 1 : step;
    for (double mark = 0; mark < page->length; mark += step) {
        ul_page_put(page, "<text x=\"");
        ul_page_coordinate(page, 100 * (mark + 0.5) / page->length);
        ul_page_printf(page, "%%\" y=\"14\">%.0f</text>", mark);
    }
    ul_page_printf(page, "</g><g class=\"passes\" data-backward=\"%" PRIu32 "\">",
                   find_backward(page->saved));
    put_passes(page);
    ul_page_put(page, "</g></svg>\n");
}

/* Lines that distinguish classes without colour. */
static const char *const hatches[] = {
    "",                           /* weights */
    "M-2 2l4-4M0 8l8-8M6 10l4-4", /* optimizer state */
    "M-2 6l4 4M0 0l8 8M6-2l4 4",  /* gradients */
    "M0 2h2M4 6h2",               /* kept for the backward pass */
    "",                           /* other activations */
    "M0 4h8M4 0v8",               /* scratch */
    "M0 2h8M0 6h8",               /* inputs */
    "M2 0v8M6 0v8",               /* outputs */
    "M0 4h8",                     /* alignment */
    "M-2 2l4-4M0 8l8-8M6 10l4-4", /* holes */
    "M0 0l8 8M8 0l-8 8",          /* unaccounted */
};
_Static_assert(sizeof hatches / sizeof *hatches == UL_REPORT_ROW_COUNT, "a hatch for each row");

static void put_pattern(struct ul_page *page, const char *kind, uint32_t row, const char *more)
{
    ul_page_printf(page,
                   "<pattern id=\"%s%" PRIu32 "\" width=\"8\" height=\"8\" "
                   "patternUnits=\"userSpaceOnUse\"><rect class=\"f%" PRIu32
                   "\" width=\"8\" height=\"8\"/>",
                   kind, row, row);
    if (hatches[row][0] != '\0')
        ul_page_printf(page, "<path class=\"hatch h%" PRIu32 "\" d=\"%s\"/>", row, hatches[row]);
    ul_page_printf(page, "%s</pattern>", more);
}

void ul_page_patterns(struct ul_page *page)
{
    ul_page_put(page, "<svg class=\"defs\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\n");
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        put_pattern(page, "p", row, "");
    for (uint32_t row = 0; row < UL_PLAN_CLASS_COUNT; row++) /* recomputed, or brought back */
        put_pattern(page, "r", row, "<path class=\"again\" d=\"M-2 6l4 4M0 0l8 8M6-2l4 4\"/>");
    for (uint32_t part = UL_SAVED_LIBRARY; part < UL_SAVED_PART_COUNT; part++)
        ul_page_printf(page,
                       "<pattern id=\"q%" PRIu32 "\" width=\"8\" height=\"8\" "
                       "patternUnits=\"userSpaceOnUse\"><rect class=\"q%" PRIu32
                       "\" width=\"8\" height=\"8\"/></pattern>",
                       part, part);
    ul_page_put(page, "</defs></svg>\n");
}

void ul_page_legend(struct ul_page *page, bool has_holes)
{
    ul_page_put(page, "<div class=\"legend\">");
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++) {
        bool is_there = false;
        for (uint32_t p = 0; p < page->length; p++)
            is_there = is_there || page->curves[c][p] > 0;
        if (!is_there || (has_holes && c == UL_PLAN_CLASS_COUNT))
            continue;
        ul_page_printf(page, "<span class=\"key\" data-class=\"%" PRIu32 "\">", c);
        ul_page_swatch(page, ul_page_paint(page, c));
        ul_page_printf(page, "%s</span>", ul_page_label(page, c));
    }
    ul_page_put(page, "</div>\n");
}
