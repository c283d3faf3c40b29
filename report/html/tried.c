/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes that were planned to find the largest that fits a budget, and numbers of micro-batches that
 * were planned to find the fastest: a sentence for the verdict, and tables. */
#include "report/html/html.h"

#include <inttypes.h>

/* What the size belongs to: a dimension, or the batch. */
static const char *name_of(const struct ul_saved_search *search)
{
    return search->name[0] != '\0' ? search->name : "batch";
}

/* The smallest size that was planned and does not fit, or NULL. */
static const struct ul_saved_tried *find_next(const struct ul_saved_search *search)
{
    const struct ul_saved_tried *next = NULL;
    for (uint32_t i = 0; i < search->tried_count; i++) {
        const struct ul_saved_tried *tried = &search->planned[i];
        if (!tried->fits && tried->size > search->size &&
            (next == NULL || tried->size < next->size))
            next = tried;
    }
    return next;
}

void ul_page_largest(struct ul_page *page)
{
    const struct ul_saved_search *search = ul_saved_largest(page->saved);
    if (search == NULL)
        return;
    const struct ul_saved_tried *next = find_next(search);
    ul_page_put(page, "<p class=\"lead\">The largest ");
    ul_page_name(page, name_of(search), 40);
    ul_page_printf(page, " that fits is <b>%" PRIu64 "</b>", search->size);
    if (next != NULL)
        ul_page_printf(page, ": the smallest plan known for %" PRIu64 " takes %s", next->size,
                       ul_page_size(page, next->bytes));
    ul_page_put(page, ". ");
    ul_page_escape(page, search->why_not_larger);
    ul_page_put(page, "</p>\n");
}

static void put_search(struct ul_page *page, const struct ul_saved_search *search, const char *name,
                       bool has_cost)
{
    ul_page_put(page, "<h3>Planned to choose ");
    ul_page_name(page, name, 40);
    ul_page_put(page, "</h3>\n");
    ul_page_table(page, "tried",
                  ul_arena_printf(page->arena, "#size|#%s|#bytes|%sfits|", page->unit.name,
                                  has_cost ? "#time a step|" : ""));
    for (uint32_t i = 0; i < search->tried_count; i++) {
        const struct ul_saved_tried *tried = &search->planned[i];
        ul_page_printf(page, "<tr><td class=\"r\">%" PRIu64 "</td>", tried->size);
        ul_page_size_cells(page, tried->bytes);
        if (has_cost)
            ul_page_printf(page, "<td class=\"r\">%s</td>", ul_page_time(page, tried->cost));
        ul_page_printf(page, "<td>%s</td><td>%s</td></tr>\n", tried->fits ? "yes" : "no",
                       tried->size == search->size ? "this plan" : "");
    }
    ul_page_table_end(page);
}

void ul_page_tried(struct ul_page *page)
{
    const struct ul_saved_search *largest = ul_saved_largest(page->saved);
    if (largest != NULL)
        put_search(page, largest, name_of(largest), false);
    if (page->saved->has_micro_batches)
        put_search(page, &page->saved->micro_batches, "micro-batches", true);
}
