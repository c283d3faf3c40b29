/* Section 6: what can be changed, each row a plan that was really made; and which steps stand in
 * the way of less. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

/* What a kind of change is, in a sentence; of one that is not here its name says it. */
static const struct {
    const char *kind, *sentence;
} kinds[] = {
    {"reorder", "Run the steps in another order."},
    {"in-place", "Let results overwrite operands that nobody reads again."},
    {"views", "Read values where they lie instead of copying them."},
    {"fuse", "Compute neighbours in one step, so that nothing lies between them."},
    {"recompute", "Compute values again instead of keeping them."},
    {"split", "Compute chains of steps in pieces."},
    {"layout", "Lay values out as in the model."},
    {"inside", "Compute light results where the backward pass reads them."},
    {"precision", "Store weights and activations in 16 bits."},
    {"batch", "Take a smaller batch."},
    {"dim", "Take a smaller dimension."},
    {"micro-batches", "Run a step on parts of the batch, and add up gradients."},
    {"offload", "Keep what waits outside of this memory."},
    {"output", "Free an output earlier: do not ask for it."},
    {"optimizer", "Train by an optimizer with less state."},
    {"checkpoint", "Keep less of the forward pass."},
    {"clip", "Take the norm of gradients without keeping them all."},
    {"weights", "Leave weights out of the buffer."},
    {"threads", "Run on fewer threads, which have scratch each."},
    {"implementation", "Run steps by implementations with less scratch."},
    {"budget", "Plan for a budget: reorder, recompute and split as far as it asks."},
};

uint64_t ul_page_gain(const struct ul_page *page, const struct ul_saved_remedy *remedy)
{
    uint64_t with = page->needed_bytes, without = remedy->process_bytes;
    if (page->needed_bytes == page->saved->reserved_bytes)
        without = remedy->reserved_bytes;
    if (!remedy->is_applied)
        return with > without ? with - without : 0;
    return without > with ? without - with : 0;
}

static void put_kind(struct ul_page *page, const char *kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].kind, kind) == 0) {
            ul_page_put(page, kinds[i].sentence);
            return;
        }
    }
    ul_page_escape(page, kind);
}

static void put_remedy(struct ul_page *page, const struct ul_saved_remedy *remedy)
{
    const struct ul_saved *saved = page->saved;
    bool of_arena = page->needed_bytes == saved->reserved_bytes;
    ul_page_printf(page, "<tr%s><td>", remedy->is_applied ? " class=\"applied\"" : "");
    put_kind(page, remedy->kind);
    ul_page_put(page, "</td><td><code>");
    ul_page_name(page, remedy->change, 48);
    ul_page_printf(page, "</code></td><td>%s</td>", remedy->is_applied ? "this plan has it" : "");
    ul_page_size_cells(page, ul_page_gain(page, remedy));
    uint64_t from = remedy->is_applied ? remedy->cost : saved->cost;
    uint64_t to = remedy->is_applied ? saved->cost : remedy->cost;
    ul_page_printf(page, "<td class=\"r\">%s%s</td>", to < from ? "\xE2\x88\x92" : "+",
                   ul_page_time(page, to < from ? from - to : to - from));
    ul_page_size_cells(page, of_arena ? remedy->reserved_bytes : remedy->process_bytes);
    ul_page_printf(page, "<td>%s</td></tr>\n", remedy->fits ? "yes" : "no");
}

static void put_remedies(struct ul_page *page)
{
    const struct ul_saved_facts *facts = &page->saved->facts;
    if (!facts->has_remedies) {
        ul_page_put(page, "<p class=\"lead\">This plan.json holds no advice: only gains of plans "
                          "that were really made are shown, and none were asked for. This "
                          "command makes them:</p>\n");
        ul_page_command(page, "--html report.html");
        return;
    }
    if (facts->remedy_count == 0) {
        ul_page_put(page, "<p class=\"lead\">Nothing helps: every change that was planned takes as "
                          "much or more.</p>\n");
        return;
    }
    ul_page_put(page, "<p class=\"lead\">Every row is a plan that was really made, the best first. "
                      "Gains do not add up: the next peak limits what several bring together. Of a "
                      "change that this plan has, the row says what it brought.</p>\n");
    ul_page_table(
        page, "advice",
        ul_arena_printf(page->arena,
                        "what|change||#saves, %s|#bytes|#time|#then takes, %s|#bytes|fits",
                        page->unit.name, page->unit.name));
    for (uint32_t i = 0; i < facts->remedy_count; i++)
        put_remedy(page, &facts->remedies[i]);
    ul_page_table_end(page);
}

static void put_blockers(struct ul_page *page)
{
    const struct ul_saved_facts *facts = &page->saved->facts;
    if (!facts->has_blockers || facts->blocker_count == 0)
        return;
    ul_page_put(page,
                "<h3>What stands in the way</h3>\n<p>No order and no recomputation gets below "
                "what one of these steps needs by itself.</p>\n");
    ul_page_table(
        page, "blockers",
        ul_arena_printf(page->arena, "#step|operator and node|#needs, %s|#bytes", page->unit.name));
    for (uint32_t i = 0; i < facts->blocker_count; i++) {
        ul_page_printf(page, "<tr><td class=\"r\">%" PRIu32 "</td><td>", facts->blockers[i].step);
        ul_page_put_step(page, facts->blockers[i].step, 60);
        ul_page_put(page, "</td>");
        ul_page_size_cells(page, facts->blockers[i].bytes);
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
