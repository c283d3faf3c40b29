/* SPDX-License-Identifier: Apache-2.0 */
/* The makers and users of a live range, in words. */
#include "report/html/html.h"

#include <inttypes.h>

uint32_t ul_page_idle(const struct ul_page *page, uint32_t range)
{
    const struct ul_saved_range *of = &page->saved->ranges[range];
    uint32_t last = of->begin, longest = 0;
    for (uint32_t i = 0; i < of->readers_count; i++) {
        uint32_t between = of->readers[i] - last;
        longest = between > longest ? between : longest;
        last = of->readers[i];
    }
    uint32_t rest = of->end > last ? of->end - last : 0;
    longest = rest > longest ? rest : longest;
    return longest > 0 ? longest - 1 : 0;
}

void ul_page_put_step(struct ul_page *page, uint32_t position, size_t columns)
{
    const struct ul_saved_step *step = &page->saved->steps[position];
    ul_page_put(page, "<span class=\"op\">");
    ul_page_escape(page, step->op);
    ul_page_put(page, "</span> ");
    ul_page_name(page, step->node, columns);
    if (step->source[0] != '\0') {
        ul_page_put(page, " <span class=\"at\">");
        ul_page_source(page, step->source);
        ul_page_put(page, "</span>");
    }
}

void ul_page_put_maker(struct ul_page *page, uint32_t range)
{
    const struct ul_saved_range *of = &page->saved->ranges[range];
    if (ul_saved_maker(page->saved, of) == NULL)
        ul_page_put(page, "<span class=\"muted\">given</span>");
    else
        ul_page_put_step(page, of->begin, 30);
}

/* Names the first readers by their operators, and how many more there are. */
void ul_page_put_readers(struct ul_page *page, uint32_t range)
{
    enum { SHOWN = 2 };
    const struct ul_saved_range *of = &page->saved->ranges[range];
    bool is_scratch = of->value == UL_PLAN_NONE;
    if (of->readers == NULL || is_scratch) {
        ul_page_printf(page, "<span class=\"muted\">%s</span>",
                       is_scratch ? "its step" : "not in this plan.json");
        return;
    }
    for (uint32_t i = 0; i < of->readers_count && i < SHOWN; i++) {
        const struct ul_saved_step *step = &page->saved->steps[of->readers[i]];
        ul_page_put(page, i > 0 ? ", " : "");
        ul_page_cut(page, step->op, 22);
        ul_page_printf(page, "<span class=\"muted\">\xC2\xA0%" PRIu32 "</span>", of->readers[i]);
    }
    if (of->readers_count > SHOWN)
        ul_page_printf(page, "<span class=\"muted\"> and %" PRIu32 " more</span>",
                       of->readers_count - SHOWN);
    if (of->readers_count == 0)
        ul_page_put(page, "<span class=\"muted\">nothing in the plan</span>");
}
