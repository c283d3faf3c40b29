/* SPDX-License-Identifier: Apache-2.0 */
/* Section 7: memory against time. Every point is a plan. There is none to the left of the proven
 * bound, and none is known between that bound and the smallest plan. */
#include "report/html/html.h"

#include <inttypes.h>

enum { HEIGHT = 240, ABOVE = 24 };

struct scale {
    double least_bytes, most_bytes, most_cost;
    double bound_bytes; /* 0: none is known below the smallest plan */
    bool of_arena;
};

static uint64_t bytes_of(const struct ul_saved_rung *rung, bool of_arena)
{
    return of_arena ? rung->reserved_bytes : rung->process_bytes;
}

static struct scale find_scale(const struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    struct scale scale = {.of_arena = page->of_arena};
    double least = (double)page->needed_bytes, most = least, cost = (double)page->saved->cost;
    for (uint32_t i = 0; i < saved->rung_count; i++) {
        double bytes = (double)bytes_of(&saved->ladder[i], scale.of_arena);
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
        cost = (double)saved->ladder[i].cost > cost ? (double)saved->ladder[i].cost : cost;
    }
    double bound =
        (double)saved->lower_bound_bytes + (scale.of_arena ? 0 : (double)page->overhead_bytes);
    if (saved->lower_bound_bytes > 0 && bound <= least)
        scale.bound_bytes = bound;
    double left = scale.bound_bytes > 0 ? scale.bound_bytes : least;
    double budget = (double)saved->budget_bytes;
    if (budget > 0 && budget < left)
        left = budget;
    if (budget > most && budget < 1.5 * most)
        most = budget;
    scale.least_bytes = left - 0.06 * (most - left);
    scale.most_bytes = most + 0.06 * (most - left) + 1;
    scale.least_bytes = scale.least_bytes > 0 ? scale.least_bytes : 0;
    scale.most_cost = cost > 0 ? 1.1 * cost : 1;
    UL_ASSERT(scale.least_bytes < scale.most_bytes && scale.most_cost > 0);
    return scale;
}

/* As a percentage of the width, and in pixels. */
static double x_of(const struct scale *scale, double bytes)
{
    return (bytes - scale->least_bytes) / (scale->most_bytes - scale->least_bytes);
}

static double y_of(const struct scale *scale, uint64_t cost)
{
    return HEIGHT - (double)cost / scale->most_cost * HEIGHT;
}

static void put_zone(struct ul_page *page, const char *class, double from, double to)
{
    if (!(to > from))
        return;
    ul_page_printf(page,
                   "<rect class=\"%s\" x=\"%.3f%%\" width=\"%.3f%%\" y=\"%d\" height=\"%d\"/>",
                   class, 100 * from, 100 * (to - from), ABOVE, HEIGHT);
}

/* Draws the least time within each budget: it falls at every plan. */
static void put_stairs(struct ul_page *page, const struct scale *scale)
{
    const struct ul_saved *saved = page->saved;
    ul_page_printf(page,
                   "<svg y=\"%d\" width=\"100%%\" height=\"%d\" viewBox=\"0 0 %d %d\" "
                   "preserveAspectRatio=\"none\"><path class=\"stairs\" d=\"",
                   ABOVE, HEIGHT, UL_PAGE_WIDTH, HEIGHT);
    for (uint32_t i = 0; i < saved->rung_count; i++) {
        const struct ul_saved_rung *rung = &saved->ladder[i];
        double x = UL_PAGE_WIDTH * x_of(scale, (double)bytes_of(rung, scale->of_arena));
        if (i == 0)
            ul_page_printf(page, "M%d ", UL_PAGE_WIDTH);
        else
            ul_page_put(page, "V");
        ul_page_coordinate(page, y_of(scale, rung->cost));
        ul_page_put(page, "H");
        ul_page_coordinate(page, x);
    }
    ul_page_put(page, "\"/></svg>");
}

static void put_point(struct ul_page *page, const struct scale *scale, const char *class,
                      uint64_t bytes, uint64_t cost, double radius)
{
    ul_page_printf(page, "<circle class=\"%s\" cx=\"%.3f%%\" cy=\"%.1f\" r=\"%.1f\"/>", class,
                   100 * x_of(scale, (double)bytes), ABOVE + y_of(scale, cost), radius);
}

static void put_mark(struct ul_page *page, const struct scale *scale, const char *class,
                     const char *label, double bytes)
{
    double at = 100 * x_of(scale, bytes);
    if (at < 0 || at > 100)
        return;
    ul_page_printf(page,
                   "<line class=\"%s\" x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"%d\" y2=\"%d\"/><text "
                   "class=\"mark %s\" x=\"%.3f%%\" y=\"14\">%s</text>",
                   class, at, at, ABOVE - 4, ABOVE + HEIGHT, at > 70 ? "end" : "start", at, label);
}

static void put_axis(struct ul_page *page, const struct scale *scale)
{
    double unit = page->unit.bytes,
           step = ul_page_step((scale->most_bytes - scale->least_bytes) / unit, 8);
    UL_ASSERT(step > 0);
    int digits = step >= 1 ? 0 : step >= 0.1 ? 1 : 2;
    double first = step * (double)(uint64_t)(scale->least_bytes / unit / step + 1);
    ul_page_put(page, "<div></div><svg class=\"steps\" width=\"100%\" height=\"36\" "
                      "aria-hidden=\"true\"><g class=\"marks\">");
    for (double mark = first; mark * unit < scale->most_bytes; mark += step)
        ul_page_printf(page, "<text x=\"%.3f%%\" y=\"14\">%.*f</text>",
                       100 * x_of(scale, mark * unit), digits, mark);
    ul_page_printf(page,
                   "</g><text class=\"unit\" x=\"100%%\" y=\"32\">%s of the %s</text></svg>\n",
                   page->unit.name, scale->of_arena ? "buffer" : page->process);
}

static void put_gutter(struct ul_page *page, const struct scale *scale)
{
    double top = scale->most_cost * 1e-6, step = ul_page_step(top, 5);
    UL_ASSERT(step > 0);
    int digits = step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 4;
    ul_page_printf(page,
                   "<svg class=\"gutter\" width=\"72\" height=\"%d\" aria-hidden=\"true\"><text "
                   "x=\"64\" y=\"12\">ms</text>",
                   ABOVE + HEIGHT + 4);
    for (double mark = 0; mark <= top; mark += step)
        ul_page_printf(page, "<text x=\"64\" y=\"%.1f\">%.*f</text>",
                       ABOVE + HEIGHT - mark / top * HEIGHT + 4, digits, mark);
    ul_page_put(page, "</svg>\n");
}

static void put_picture(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const struct scale scale = find_scale(page);
    const struct ul_saved_rung *last = &saved->ladder[saved->rung_count - 1];
    uint64_t least = bytes_of(last, scale.of_arena);
    ul_page_printf(
        page,
        "<div class=\"chart\" id=\"pareto\" role=\"img\" aria-label=\"Memory against time: "
        "%" PRIu32 " plans, from %s in %s to %s in %s\">\n",
        saved->rung_count, ul_page_size(page, bytes_of(&saved->ladder[0], scale.of_arena)),
        ul_page_time(page, saved->ladder[0].cost), ul_page_size(page, least),
        ul_page_time(page, last->cost));
    put_gutter(page, &scale);
    ul_page_printf(
        page,
        "<svg class=\"plot\" width=\"100%%\" height=\"%d\"><rect class=\"ground\" y=\"%d\" "
        "width=\"100%%\" height=\"%d\"/>",
        ABOVE + HEIGHT, ABOVE, HEIGHT);
    double bound = scale.bound_bytes > 0 ? x_of(&scale, scale.bound_bytes) : 0;
    put_zone(page, "infeasible", 0, bound);
    put_zone(page, "unknown", bound, x_of(&scale, (double)least));
    put_stairs(page, &scale);
    for (uint32_t i = 0; i < saved->rung_count && i < 200; i++)
        put_point(page, &scale, "rung", bytes_of(&saved->ladder[i], scale.of_arena),
                  saved->ladder[i].cost, 3);
    put_point(page, &scale, "current", page->needed_bytes, saved->cost, 6);
    put_mark(page, &scale, "current", "this plan", (double)page->needed_bytes);
    if (saved->budget_bytes > 0)
        put_mark(page, &scale, "budget", "", (double)saved->budget_bytes);
    ul_page_put(page, "</svg>\n");
    put_axis(page, &scale);
    ul_page_put(page, "</div>\n<ul class=\"lines\"><li><i class=\"dot\"></i>this plan</li>");
    if (saved->budget_bytes > 0)
        ul_page_put(page,
                    "<li><svg width=\"28\" height=\"8\" aria-hidden=\"true\"><path class=\"line "
                    "budget\" d=\"M0 4H28\"/></svg>budget</li>");
    if (scale.bound_bytes > 0)
        ul_page_printf(page,
                       "<li><i class=\"zone infeasible\"></i>proven: no plan of these kernels is "
                       "below %s</li>",
                       ul_page_size(page, (uint64_t)scale.bound_bytes));
    ul_page_put(page, "<li><i class=\"zone unknown\"></i>no plan is known</li></ul>\n");
}

static void put_rung(struct ul_page *page, const struct ul_saved_rung *rung)
{
    const struct ul_saved_rung *first = &page->saved->ladder[0];
    double more = first->cost > 0 ? ((double)rung->cost / (double)first->cost - 1) * 100 : 0;
    ul_page_put(page, "<tr>");
    ul_page_size_cells(page, rung->reserved_bytes);
    ul_page_size_cells(page, rung->process_bytes);
    ul_page_printf(page,
                   "<td class=\"r\">%s</td><td class=\"r\">%+.2f %%</td><td class=\"r\">%" PRIu64
                   "</td><td class=\"r\">%" PRIu64 "</td><td class=\"r\">%" PRIu64
                   "</td><td class=\"r\">%" PRIu64 "</td></tr>\n",
                   ul_page_time(page, rung->cost), more, rung->recomputed_steps, rung->splits,
                   rung->row_major, rung->inside);
}

static void put_ladder(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    put_picture(page);
    ul_page_twin(page, "t7");
    ul_page_table(page, "ladder",
                  ul_arena_printf(page->arena,
                                  "#buffer, %s|#bytes|#process, %s|#bytes|#time|#more|#steps "
                                  "recomputed|#chains in pieces|#layouts|#inside",
                                  page->unit.name, page->unit.name));
    for (uint32_t i = 0; i < saved->rung_count; i++)
        put_rung(page, &saved->ladder[i]);
    ul_page_table_end(page);
    ul_page_twin_end(page);
}

/* Says what this plan shows about time, and what was proven. */
static void put_plan(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    uint32_t recomputed = 0;
    for (uint32_t i = 0; i < saved->step_count; i++)
        recomputed += saved->steps[i].copy > 0;
    ul_page_printf(page, "<p class=\"lead\">This plan: %s a %s, predicted%s",
                   ul_page_time(page, saved->cost), page->turn,
                   ul_saved_option(saved, "profile") == NULL ? "" : " for ");
    if (ul_saved_option(saved, "profile") != NULL)
        ul_page_name(page, ul_saved_option(saved, "profile"), 40);
    bool is_laid_out = ul_saved_option(saved, "space") == NULL || saved->bank_count > 0;
    if (saved->base_cost > 0 && is_laid_out)
        ul_page_printf(page, "; %+.2f %% against %s %s",
                       100 * ((double)saved->cost / (double)saved->base_cost - 1),
                       ul_page_time(page, saved->base_cost),
                       saved->bank_count > 0 ? "if the fastest space had room for all"
                                             : "without a budget");
    ul_page_printf(page, "; %" PRIu32 " step%s recomputed.", recomputed, ul_plural(recomputed));
    if (saved->cost_bound > 0)
        ul_page_printf(page, " No plan of this program within the budget takes less than %s.",
                       ul_page_time(page, saved->cost_bound));
    ul_page_put(page, "</p>\n");
}

void ul_page_pareto(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    ul_page_begin(page, 7, "Memory against time");
    put_plan(page);
    if (saved->has_ladder && saved->rung_count > 0) {
        put_ladder(page);
    } else {
        ul_page_put(page, "<p>What less memory costs is not in this plan.json. This command makes "
                          "plans for ever smaller budgets:</p>\n");
        ul_page_command(page, "--html report.html");
    }
    ul_page_tried(page);
    ul_page_end(page);
}
