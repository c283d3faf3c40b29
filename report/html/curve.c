/* SPDX-License-Identifier: Apache-2.0 */
/* Section 3: live bytes by step, a stacked area by class.
 *
 * With more positions than pixel columns, each column keeps two positions in order, those of the
 * least and of the largest sum: no peak and no valley is lost, and every point drawn is a position
 * of the plan. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

enum { ABOVE = 64, HEIGHT = 260, PEAKS = 3 };

struct samples {
    uint32_t *positions;
    uint32_t count;
    double width; /* of each sample, in units */
};

static void find_samples(struct ul_page *page, struct samples *samples)
{
    uint32_t length = page->length;
    samples->positions = UL_NEW_ARRAY(page->arena, uint32_t,
                                      length < 2 * UL_PAGE_WIDTH ? length : 2 * UL_PAGE_WIDTH);
    samples->count = 0;
    if (length <= 2 * UL_PAGE_WIDTH) {
        while (samples->count < length) {
            samples->positions[samples->count] = samples->count;
            samples->count++;
        }
        samples->width = (double)UL_PAGE_WIDTH / length;
        return;
    }
    for (uint32_t column = 0; column < UL_PAGE_WIDTH; column++) {
        uint32_t begin = (uint32_t)((uint64_t)column * length / UL_PAGE_WIDTH);
        uint32_t end = (uint32_t)((uint64_t)(column + 1) * length / UL_PAGE_WIDTH);
        uint32_t least = begin, most = begin;
        for (uint32_t p = begin; p < end; p++) {
            least = page->live[p] < page->live[least] ? p : least;
            most = page->live[p] > page->live[most] ? p : most;
        }
        samples->positions[samples->count++] = least < most ? least : most;
        samples->positions[samples->count++] = least < most ? most : least;
    }
    UL_ASSERT(samples->count == 2 * UL_PAGE_WIDTH);
    samples->width = 0.5;
}

static double height_of(const struct ul_page *page, uint64_t bytes)
{
    UL_ASSERT(page->top_bytes > 0);
    return HEIGHT - (double)bytes / (double)page->top_bytes * HEIGHT;
}

/* Writes the edge of the stack above `sums`, from left to right or back. */
static void put_edge(struct ul_page *page, const struct samples *samples, const uint64_t *sums,
                     bool is_back)
{
    UL_ASSERT(samples->count > 0);
    for (uint32_t k = 0; k < samples->count; k++) {
        uint32_t i = is_back ? samples->count - 1 - k : k;
        uint32_t next = is_back ? i - 1 : i + 1;
        bool is_last = k + 1 == samples->count;
        if (k == 0 || sums[i] != sums[is_back ? i + 1 : i - 1]) {
            ul_page_put(page, k == 0 && !is_back ? "M0 " : "V");
            ul_page_coordinate(page, height_of(page, sums[i]));
        }
        if (!is_last && sums[next] == sums[i])
            continue;
        ul_page_put(page, "H");
        ul_page_coordinate(page, (is_back ? i : i + 1) * samples->width);
    }
}

static void put_areas(struct ul_page *page, const struct samples *samples)
{
    uint64_t *below = UL_NEW_ARRAY(page->arena, uint64_t, samples->count);
    uint64_t *sums = UL_NEW_ARRAY(page->arena, uint64_t, samples->count);
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++) {
        bool is_there = false;
        for (uint32_t i = 0; i < samples->count; i++) {
            uint64_t bytes = page->curves[c][samples->positions[i]];
            sums[i] = below[i] + bytes;
            is_there = is_there || bytes > 0;
        }
        if (!is_there)
            continue;
        ul_page_printf(page,
                       "<path class=\"area\" data-class=\"%" PRIu32 "\" fill=\"url(#p%" PRIu32
                       ")\" d=\"",
                       c, c);
        put_edge(page, samples, sums, false);
        put_edge(page, samples, below, true);
        ul_page_put(page, "Z\"/>\n");
        memcpy(below, sums, samples->count * sizeof *sums);
    }
}

/* ---- Peaks ---- */

/* A twentieth of the range of the sum. */
static uint64_t valley_depth(const struct ul_page *page)
{
    uint64_t least = page->live[0], most = page->live[0];
    for (uint32_t p = 0; p < page->length; p++) {
        least = page->live[p] < least ? page->live[p] : least;
        most = page->live[p] > most ? page->live[p] : most;
    }
    return (most - least) / 20;
}

/* Marks the hill of `peak` as taken: all positions that are reached from it without crossing a
 * valley that is `depth` below both sides. */
static void take_hill(const struct ul_page *page, uint32_t peak, uint64_t depth, bool *is_taken)
{
    UL_ASSERT(peak < page->length);
    for (int side = 0; side < 2; side++) {
        uint64_t valley = page->live[peak];
        for (uint32_t p = peak;; side == 0 ? p++ : p--) {
            valley = page->live[p] < valley ? page->live[p] : valley;
            is_taken[p] = is_taken[p] || page->live[p] < valley + depth + 1;
            if (p == (side == 0 ? page->length - 1 : 0))
                break;
        }
    }
}

static uint32_t find_peaks(struct ul_page *page, uint32_t peaks[PEAKS])
{
    bool *is_taken = UL_NEW_ARRAY(page->arena, bool, page->length);
    uint64_t depth = valley_depth(page);
    uint32_t count = 0;
    peaks[count++] = page->saved->peak_step;
    take_hill(page, peaks[0], depth, is_taken);
    while (count < PEAKS) {
        uint32_t best = UINT32_MAX;
        for (uint32_t p = 0; p < page->length; p++)
            if (!is_taken[p] && (best == UINT32_MAX || page->live[p] > page->live[best]))
                best = p;
        if (best == UINT32_MAX)
            break;
        peaks[count++] = best;
        take_hill(page, best, depth, is_taken);
    }
    return count;
}

static void put_where(struct ul_page *page, const struct ul_saved_step *step, size_t columns)
{
    if (step->source[0] != '\0')
        ul_page_source_text(page, step->source, columns);
    else
        ul_page_cut(page, step->node, columns);
}

/* Labels are in lines above the picture, so that they never overlap; a leader goes down to each
 * peak. */
static void put_peaks(struct ul_page *page)
{
    uint32_t peaks[PEAKS], count = page->saved->step_count > 0 ? find_peaks(page, peaks) : 0;
    ul_page_put(page, "<g class=\"peaks\">");
    for (uint32_t i = 0; i < count; i++) {
        const struct ul_saved_step *step = &page->saved->steps[peaks[i]];
        double at = 100.0 * (peaks[i] + 0.5) / page->length;
        uint32_t line = 14 + 18 * i;
        ul_page_printf(page,
                       "<g data-step=\"%" PRIu32 "\"><line x1=\"%.3f%%\" x2=\"%.3f%%\" "
                       "y1=\"%" PRIu32 "\" y2=\"",
                       peaks[i], at, at, line + 4);
        ul_page_coordinate(page, ABOVE + height_of(page, page->live[peaks[i]]));
        ul_page_printf(page,
                       "\"/><text x=\"%.3f%%\" y=\"%" PRIu32 "\" class=\"%s\"><tspan "
                       "class=\"rank\">%" PRIu32 "</tspan> %s ",
                       at, line, at > 45 ? "end" : "start", i + 1,
                       ul_page_size(page, page->live[peaks[i]]));
        ul_page_cut(page, step->op, 16);
        ul_page_put(page, " <tspan class=\"where\" data-name=\"");
        put_where(page, step, 200);
        ul_page_put(page, "\">");
        put_where(page, step, 28); /* what a narrow screen has room for */
        ul_page_put(page, "</tspan></text></g>");
    }
    ul_page_put(page, "</g>\n");
}

/* ---- Lines ---- */

struct line {
    const char *class, *label;
    uint64_t bytes;
};

static uint32_t list_lines(const struct ul_page *page, struct line lines[4])
{
    const struct ul_saved *saved = page->saved;
    uint32_t count = 0;
    lines[count++] = (struct line){"arena", "arena top", page->saved->reserved_bytes};
    if (saved->order_lower_bound_bytes < page->saved->reserved_bytes)
        lines[count++] =
            (struct line){"order", "bound of this order", saved->order_lower_bound_bytes};
    if (saved->lower_bound_bytes < page->saved->reserved_bytes)
        lines[count++] = (struct line){"bound", "bound of all orders", saved->lower_bound_bytes};
    if (page->line_bytes > 0)
        lines[count++] = (struct line){
            "budget", page->of_arena ? "budget" : "budget left for the arena", page->line_bytes};
    UL_ASSERT(count <= 4);
    return count;
}

static void put_lines(struct ul_page *page)
{
    struct line lines[4];
    uint32_t count = list_lines(page, lines);
    for (uint32_t i = 0; i < count; i++) {
        if (lines[i].bytes > page->top_bytes)
            continue;
        ul_page_printf(page, "<path class=\"line %s\" d=\"M0 ", lines[i].class);
        ul_page_coordinate(page, height_of(page, lines[i].bytes));
        ul_page_printf(page, "H%d\"/>", UL_PAGE_WIDTH);
    }
}

static void put_line_legend(struct ul_page *page)
{
    struct line lines[4];
    uint32_t count = list_lines(page, lines);
    ul_page_put(page, "<ul class=\"lines\">");
    for (uint32_t i = 0; i < count; i++)
        ul_page_printf(page,
                       "<li><svg width=\"28\" height=\"8\" aria-hidden=\"true\"><path "
                       "class=\"line %s\" d=\"M0 4H28\"/></svg>%s <b>%s</b>%s</li>",
                       lines[i].class, lines[i].label, ul_page_size(page, lines[i].bytes),
                       lines[i].bytes > page->top_bytes ? ", above the picture" : "");
    ul_page_put(page, "</ul>\n");
}

/* ---- The same as a table ---- */

static void put_row(struct ul_page *page, uint32_t position, const bool *is_there)
{
    ul_page_printf(page, "<tr><td class=\"r\">%" PRIu32 "</td><td>", position);
    if (position < page->saved->step_count) {
        ul_page_name(page, page->saved->steps[position].op, 24);
        ul_page_put(page, "</td><td>");
        ul_page_name(page, page->saved->steps[position].node, 44);
    } else {
        ul_page_put(page, "</td><td>");
    }
    ul_page_put(page, "</td>");
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++)
        if (is_there[c])
            ul_page_printf(page, "<td class=\"r\">%s</td>",
                           ul_page_digits(page, page->curves[c][position]));
    ul_page_printf(page, "<td class=\"r\">%s</td></tr>\n",
                   ul_page_digits(page, page->live[position]));
}

static void put_twin(struct ul_page *page, const struct samples *samples)
{
    bool is_there[UL_SAVED_CURVES] = {false};
    struct ul_text heads;
    ul_text_init(&heads, page->arena);
    ul_text_put(&heads, "#step|operator|node");
    for (uint32_t c = 0; c < UL_SAVED_CURVES; c++) {
        for (uint32_t p = 0; p < page->length; p++)
            is_there[c] = is_there[c] || page->curves[c][p] > 0;
        if (is_there[c])
            ul_text_printf(&heads, "|#%s", ul_page_label(page, c));
    }
    ul_text_put(&heads, "|#live bytes");
    ul_page_twin(page, "t3");
    if (samples->count < page->length)
        ul_page_printf(page,
                       "<p class=\"muted\">%" PRIu32 " of %" PRIu32 " steps: of every pixel column "
                       "the one with the least and the one with the most. <code>ullage report "
                       "PLAN.json --csv-steps FILE</code> has all.</p>\n",
                       samples->count, page->length);
    ul_page_table(page, "curve", heads.data);
    for (uint32_t i = 0; i < samples->count; i++)
        put_row(page, samples->positions[i], is_there);
    ul_page_table_end(page);
    ul_page_twin_end(page);
}

static void put_picture(struct ul_page *page, const struct samples *samples)
{
    const struct ul_saved *saved = page->saved;
    ul_page_printf(
        page,
        "<div class=\"chart\" id=\"curve\" role=\"img\" aria-label=\"Live bytes by step, "
        "stacked by class: the largest sum is %s bytes, at step %" PRIu32 " of %" PRIu32,
        ul_page_digits(page, page->live[saved->peak_step]), saved->peak_step, saved->step_count);
    if (saved->step_count > 0) {
        ul_page_put(page, ", ");
        ul_page_escape(page, saved->steps[saved->peak_step].node);
    }
    ul_page_put(page, "\">\n");
    ul_page_byte_axis(page, page->top_bytes, ABOVE, HEIGHT);
    ul_page_printf(page,
                   "<svg class=\"plot\" width=\"100%%\" height=\"%d\"><svg class=\"shapes\" "
                   "y=\"%d\" width=\"100%%\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                   "preserveAspectRatio=\"none\"><rect class=\"ground\" width=\"%d\" "
                   "height=\"%d\"/><g class=\"areas\">\n",
                   ABOVE + HEIGHT, ABOVE, HEIGHT, UL_PAGE_WIDTH, HEIGHT, UL_PAGE_WIDTH, HEIGHT);
    put_areas(page, samples);
    ul_page_put(page, "</g>");
    put_lines(page);
    ul_page_put(page, "</svg>\n");
    put_peaks(page);
    ul_page_put(page, "</svg>\n<div></div>");
    ul_page_step_axis(page);
    ul_page_put(page, "</div>\n");
}

void ul_page_curve(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    struct samples samples;
    find_samples(page, &samples);
    ul_page_begin(page, 3, "Live bytes by step");
    ul_page_put(page, "<p class=\"lead\">");
    if (saved->step_count > 0) {
        ul_page_printf(page, "The peak is at step %" PRIu32 " of 0 to %" PRIu32 ": ",
                       saved->peak_step, saved->step_count - 1);
        ul_page_put_step(page, saved->peak_step, 60);
        ul_page_put(page, ".");
    } else {
        ul_page_put(page, "The plan has no steps.");
    }
    ul_page_put(page, "</p>\n<div class=\"tools\" id=\"tools\" hidden></div>\n");
    ul_page_legend(page, false);
    put_picture(page, &samples);
    put_line_legend(page);
    put_twin(page, &samples);
    ul_page_end(page);
}
