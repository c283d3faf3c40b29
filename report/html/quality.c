/* SPDX-License-Identifier: Apache-2.0 */
/* Sections 9 and 10: what the planner could not improve, and what supports the numbers. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

static double gap_of(uint64_t bytes, uint64_t bound)
{
    return bound > 0 ? 100 * ((double)bytes / (double)bound - 1) : 0;
}

static void put_bound(struct ul_page *page, const char *label, uint64_t bytes, const char *paint,
                      const char *says)
{
    uint64_t reserved = page->saved->reserved_bytes;
    ul_page_printf(page, "<tr><th scope=\"row\">%s</th>", label);
    ul_page_size_cells(page, bytes);
    ul_page_put(page, "<td class=\"share\"><svg width=\"120\" height=\"12\" "
                      "aria-hidden=\"true\"><rect height=\"12\" width=\"");
    ul_page_coordinate(page, reserved > 0 ? 120 * (double)bytes / (double)reserved : 0);
    ul_page_printf(page,
                   "\" class=\"%s\"/></svg></td><td class=\"r\">%.2f %%</td><td>%s</td></tr>\n",
                   paint, gap_of(reserved, bytes), says);
}

/* Only `check` has checked a plan that was read from a file. */
static const char *checker(const struct ul_page *page)
{
    return page->saved->is_checked ? ": checked" : ": says the file";
}

static void put_bounds(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    bool is_least = saved->proven && saved->fits;
    ul_page_table(page, "bounds",
                  ul_arena_printf(page->arena, "what|#%s|#bytes||#reserved is above by|who says so",
                                  page->unit.name));
    put_bound(page, "reserved", saved->reserved_bytes, "meter",
              is_least ? "proven least for this order" : "the best packing found");
    if (saved->order_lower_bound_bytes > 0)
        put_bound(page, "no packing of this order is below", saved->order_lower_bound_bytes,
                  "meter soft",
                  ul_arena_printf(page->arena, "the largest live sum%s", checker(page)));
    if (saved->orders_lower_bound_bytes > 0)
        put_bound(page, "no order without recomputation is below", saved->orders_lower_bound_bytes,
                  "meter soft", "the planner\xE2\x80\x99s word");
    if (saved->lower_bound_bytes > 0)
        put_bound(page, "no order of these kernels is below", saved->lower_bound_bytes,
                  "meter soft", ul_arena_printf(page->arena, "the neediest step%s", checker(page)));
    ul_page_table_end(page);
}

static void put_waste(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    ul_page_table(page, "waste",
                  ul_arena_printf(page->arena, "waste by cause|#%s|#bytes|", page->unit.name));
    ul_page_put(page, "<tr><th scope=\"row\">alignment</th>");
    ul_page_size_cells(page, saved->rows[UL_PLAN_CLASS_COUNT]);
    ul_page_printf(page, "<td>every value begins at a multiple of %" PRIu64 " bytes</td></tr>\n",
                   saved->alignment_bytes);
    ul_page_put(page, "<tr><th scope=\"row\">holes</th>");
    ul_page_size_cells(page, saved->rows[UL_PLAN_CLASS_COUNT + 1]);
    ul_page_put(page, "<td>free at the peak, between values that lie there</td></tr>\n"
                      "<tr><th scope=\"row\">unaccounted</th>");
    ul_page_size_cells(page, saved->rows[UL_PLAN_CLASS_COUNT + 2]);
    ul_page_put(page, "<td>what the program reserves and no row has</td></tr>\n");
    ul_page_table_end(page);
}

static void begin_fact(struct ul_page *page, const char *name)
{
    ul_page_printf(page, "<div><dt>%s</dt><dd>", name);
}

static void end_fact(struct ul_page *page)
{
    ul_page_put(page, "</dd></div>\n");
}

static void put_fact(struct ul_page *page, const char *name, const char *value)
{
    begin_fact(page, name);
    ul_page_name(page, value != NULL && *value != '\0' ? value : "not said", 90);
    end_fact(page);
}

void ul_page_quality(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    ul_page_begin(page, 9, "Allocator quality");
    ul_page_printf(page,
                   "<p class=\"lead\">The arena is %.2f %% above the bound of this order.%s</p>\n",
                   gap_of(saved->reserved_bytes, saved->order_lower_bound_bytes),
                   saved->stopped_by_time ? " A search was cut short by --time-limit." : "");
    put_bounds(page);
    put_waste(page);
    ul_page_put(page, "<dl class=\"facts\">\n");
    put_fact(page, "order", saved->method.order);
    put_fact(page, "recomputation", saved->method.remat);
    put_fact(page, "packing", saved->method.pack);
    put_fact(page, "seed",
             ul_saved_option(saved, "seed") != NULL ? ul_saved_option(saved, "seed") : "0");
    put_fact(page, "searches stop",
             saved->stopped_by_time ? "by --time-limit: another run may give another plan"
                                    : "by counted work: the same bytes at every run");
    ul_page_put(page, "</dl>\n<p>To plan it again:</p>\n");
    ul_page_command(page, "--json plan.json");
    ul_page_end(page);
}

static void put_dimensions(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    bool any = false;
    begin_fact(page, "dimensions");
    for (uint32_t i = 0; i < saved->option_count; i++) {
        const struct ul_report_option *option = &saved->options[i];
        if (strcmp(option->name, "dim") != 0 && strcmp(option->name, "shape") != 0)
            continue;
        ul_page_put(page, any ? ", " : "");
        ul_page_name(page, option->value, 60);
        any = true;
    }
    if (!any)
        ul_page_put(page, "all fixed in the model");
    end_fact(page);
}

/* Says what was checked, and what only the planner claims. Nothing was checked of a plan that was
 * read from a file, so there the page says what `check` would check. */
static void put_trust(struct ul_page *page)
{
    ul_page_put(page,
                page->saved->is_checked
                    ? "<p class=\"lead\">Checked, by"
                    : "<p class=\"lead\">This page shows what the plan.json says, and nothing of "
                      "it was checked here: the last command below does that. Then checked, by");
    ul_page_put(
        page,
        " code that shares nothing with the planner: the order, every live range, every "
        "offset, all sums. The planner\xE2\x80\x99s word: that nothing better exists, where the "
        "page says so, and what other plans take. As given, held by nothing: the names of "
        "model and tool, the budget. As chosen: how long a range is kept. Predicted: times, "
        "and what the process takes beside the buffer.</p>\n");
}

void ul_page_trust(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const char *profile = ul_saved_option(saved, "profile");
    ul_page_begin(page, 10, "Can I trust it?");
    put_trust(page);
    ul_page_put(page, "<dl class=\"facts\">\n");
    put_fact(page, "model", saved->model);
    put_fact(page, "SHA-256", saved->model_sha256);
    put_fact(page, "operator set",
             saved->opset > 0 ? ul_arena_printf(page->arena, "ai.onnx %" PRIu64, saved->opset)
                              : "not said");
    put_dimensions(page);
    put_fact(page, "target", saved->target);
    put_fact(page, "times of", profile != NULL ? profile : "counted work, of no device");
    put_fact(page, "made by", saved->tool);
    begin_fact(page, "unaccounted");
    ul_page_printf(page, "%s bytes", ul_page_digits(page, saved->rows[UL_REPORT_ROW_COUNT - 1]));
    end_fact(page);
    ul_page_put(page, "</dl>\n<p>The program must reserve just these bytes: <code>PROGRAM "
                      "--memory</code> prints both numbers, and fails where they differ. The plan "
                      "is checked by</p>\n<pre class=\"command\"><code>ullage check ");
    ul_page_escape(page, saved->model);
    ul_page_put(page, " plan.json</code></pre>\n");
    ul_page_end(page);
}
