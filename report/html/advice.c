/* SPDX-License-Identifier: Apache-2.0 */
/* Section 6: possible changes, each with a plan that was really made; and the steps that keep the
 * plan from getting smaller. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

static void put_kind(struct ul_page *page, const char *kind)
{
    const struct ul_remedy_kind *known = ul_remedy_kind_find(kind);
    if (known != NULL)
        ul_page_put(page, known->sentence);
    else
        ul_page_escape(page, kind);
}

static uint64_t magnitude(int64_t number)
{
    return number < 0 ? (uint64_t)-number : (uint64_t)number;
}

/* Writes a remedy; for one that is applied, its effect. */
static void put_remedy(struct ul_page *page, const struct ul_saved_remedy *remedy)
{
    int64_t saved = remedy->applied ? -remedy->saved_bytes : remedy->saved_bytes;
    int64_t extra = remedy->applied ? -remedy->extra_cost : remedy->extra_cost;
    ul_page_put(page, "<tr><td>");
    put_kind(page, remedy->kind);
    if (remedy->process_of[0] != '\0' && !page->of_arena)
        ul_page_put(page,
                    " The process is another\xE2\x80\x99s then: what is saved is of the buffer.");
    ul_page_put(page, "</td><td><code>");
    ul_page_name(page, remedy->change, 60);
    ul_page_printf(page, "</code></td><td class=\"r\">%s%.2f</td>", saved < 0 ? "\xE2\x88\x92" : "",
                   (double)magnitude(saved) / page->unit.bytes);
    ul_page_printf(page, "<td class=\"r\">%s%s</td><td class=\"r\">%s%s</td>",
                   saved < 0 ? "\xE2\x88\x92" : "", ul_page_digits(page, magnitude(saved)),
                   extra < 0 ? "\xE2\x88\x92" : "+", ul_page_time(page, magnitude(extra)));
    ul_page_size_cells(page, page->of_arena ? remedy->reserved_bytes : remedy->process_bytes);
    ul_page_printf(page, "<td>%s</td>%s</tr>\n", remedy->same_bits ? "yes" : "not promised",
                   page->saved->budget_bytes == 0 ? ""
                   : remedy->fits                 ? "<td>yes</td>"
                                                  : "<td>no</td>");
}

static void put_group(struct ul_page *page, bool applied, const char *title, const char *takes)
{
    const struct ul_saved *saved = page->saved;
    bool is_first = true;
    for (uint32_t i = 0; i < saved->remedy_count; i++) {
        if (saved->remedies[i].applied != applied)
            continue;
        if (is_first) {
            ul_page_printf(page, "<h3>%s</h3>\n", title);
            ul_page_table(
                page, applied ? "advice applied" : "advice",
                ul_arena_printf(
                    page->arena, "what|%s|#saves, %s|#bytes|#time a %s|#%s, %s|#bytes|same bits%s",
                    applied ? "the plan without it" : "change", page->unit.name, page->turn, takes,
                    page->unit.name, saved->budget_bytes > 0 ? "|fits" : ""));
        }
        is_first = false;
        put_remedy(page, &saved->remedies[i]);
    }
    if (!is_first)
        ul_page_table_end(page);
}

static void put_remedies(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    if (!saved->has_remedies) {
        ul_page_put(page, "<p class=\"lead\">This plan.json holds no advice: only gains of plans "
                          "that were really made are shown, and none were asked for. This "
                          "command makes them, and the plans of section 7:</p>\n");
        ul_page_command(page, "--html report.html");
        return;
    }
    ul_page_printf(page, "<p class=\"lead\">%s Bytes are of the %s.",
                   saved->remedy_count == 0
                       ? "Nothing helps: no change that was planned saves a thousandth."
                       : "Every row is a plan that was really made. Gains do not add up: the next "
                         "peak limits what several bring together.",
                   page->of_arena ? "buffer" : page->process);
    if (saved->remedies_tried > 0)
        ul_page_printf(page, " %" PRIu64 " plan%s were made for this.", saved->remedies_tried,
                       ul_plural(saved->remedies_tried));
    ul_page_put(page, "</p>\n");
    put_group(page, false, "What would make it smaller", "then takes");
    put_group(page, true, "What makes it as small as it is", "without it");
}

static void put_blockers(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    if (!saved->has_blockers || saved->blocker_count == 0)
        return;
    ul_page_put(page,
                "<h3>What stands in the way</h3>\n<p>No order and no recomputation gets below "
                "what one of these steps needs by itself, beside what always lives.</p>\n");
    ul_page_table(
        page, "blockers",
        ul_arena_printf(page->arena, "#step|operator and node|#needs, %s|#bytes", page->unit.name));
    for (uint32_t i = 0; i < saved->blocker_count; i++) {
        ul_page_printf(page, "<tr><td class=\"r\">%" PRIu32 "</td><td>", saved->blockers[i].step);
        ul_page_put_step(page, saved->blockers[i].step, 60);
        ul_page_put(page, "</td>");
        ul_page_size_cells(page, saved->blockers[i].bytes);
        ul_page_put(page, "</tr>\n");
    }
    ul_page_table_end(page);
}

void ul_page_advice(struct ul_page *page)
{
    ul_page_begin(page, 6, "What can be changed");
    put_remedies(page);
    put_blockers(page);
    ul_page_end(page);
}
