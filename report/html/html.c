/* SPDX-License-Identifier: Apache-2.0 */
/* The page: head, sections in order, data and script.
 *
 * The policy in the head lets the page load nothing and run only the style and the script whose
 * hashes it names: a name that became markup in spite of escaping could do nothing. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

/* ---- Shared by the sections ---- */

static void find_alive(struct ul_page *page)
{
    enum { SORTED = 400 };
    const struct ul_saved *saved = page->saved;
    uint64_t *sizes = UL_NEW_ARRAY(page->arena, uint64_t, saved->range_count);
    for (uint32_t i = 0; i < saved->range_count; i++)
        sizes[i] = saved->ranges[i].size_bytes;
    page->alive_count = ul_saved_alive(saved, page->arena, &page->alive);
    ul_report_biggest_first(sizes, page->alive, page->alive_count, SORTED);
}

/* Where a budget bounds the process, the arena gets what the rest of the process leaves. */
static void find_budget(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    bool has_process = saved->process_bytes != UINT64_MAX;
    page->of_arena = ul_saved_bounds_buffer(saved) || !has_process;
    for (uint32_t i = UL_SAVED_LIBRARY; i < UL_SAVED_PART_COUNT && has_process; i++)
        page->overhead_bytes += saved->process[i];
    page->needed_bytes = page->of_arena ? saved->reserved_bytes : saved->process_bytes;
    page->line_bytes = saved->budget_bytes;
    if (!page->of_arena)
        page->line_bytes = saved->budget_bytes > page->overhead_bytes
                               ? saved->budget_bytes - page->overhead_bytes
                               : 0;
    page->top_bytes = saved->reserved_bytes;
    for (uint32_t p = 0; p < page->length; p++)
        page->top_bytes = page->live[p] > page->top_bytes ? page->live[p] : page->top_bytes;
    if (page->line_bytes > page->top_bytes && page->line_bytes / 3 < page->top_bytes / 2)
        page->top_bytes = page->line_bytes;
    page->top_bytes = page->top_bytes > 0 ? page->top_bytes : 1;
}

/* ---- The head ---- */

static unsigned hex_value(char digit)
{
    return (unsigned)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

/* Writes the hash as the policy wants it: sha256- and base 64. */
static void put_hash(struct ul_page *page, const char *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char hex[65];
    unsigned bits = 0, count = 0;
    ul_hash_hex(text, strlen(text), hex);
    ul_page_put(page, "'sha256-");
    for (unsigned i = 0; i < 64; i++) {
        bits = bits << 4 | hex_value(hex[i]);
        count += 4;
        if (count < 6)
            continue;
        count -= 6;
        ul_text_put_bytes(page->text, &digits[bits >> count & 63], 1);
    }
    ul_text_put_bytes(page->text, &digits[bits << (6 - count) & 63], 1);
    ul_page_put(page, "='");
}

static void put_head(struct ul_page *page)
{
    ul_page_put(page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                      "<meta http-equiv=\"Content-Security-Policy\" "
                      "content=\"default-src 'none'; style-src ");
    put_hash(page, ul_html_css);
    ul_page_put(page, "; script-src ");
    put_hash(page, ul_html_js);
    ul_page_put(page, "; base-uri 'none'; form-action 'none'\">\n"
                      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                      "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    ul_page_escape(page, page->saved->model);
    ul_page_printf(page, " \xC2\xB7 %s</title>\n<style>",
                   ul_page_size(page, page->saved->reserved_bytes));
    ul_page_put(page, ul_html_css);
    ul_page_put(page, "</style>\n</head>\n");
}

static const struct {
    const char *nav;
    void (*put)(struct ul_page *page);
} sections[] = {
    {"Verdict", ul_page_verdict}, {"Sums", ul_page_sums},        {"Steps", ul_page_curve},
    {"Arena", ul_page_map},       {"Peak", ul_page_peak},        {"Advice", ul_page_advice},
    {"Time", ul_page_pareto},     {"Modules", ul_page_modules},  {"Allocator", ul_page_quality},
    {"Trust", ul_page_trust},     {"Compared", ul_page_compare},
};
enum { SECTION_COUNT = sizeof sections / sizeof *sections };

static void put_nav(struct ul_page *page)
{
    ul_page_put(page, "<nav aria-label=\"Sections\"><div>");
    for (uint32_t i = 0; i < SECTION_COUNT; i++)
        ul_page_printf(page, "<a href=\"#s%" PRIu32 "\">%s</a>", i + 1, sections[i].nav);
    ul_page_put(page, "</div></nav>\n");
}

static void put_body(struct ul_page *page)
{
    ul_page_put(page, "<body>\n<div id=\"error\" role=\"alert\" hidden></div>\n");
    ul_page_patterns(page);
    put_nav(page);
    ul_page_put(page, "<main>\n");
    for (uint32_t i = 0; i < SECTION_COUNT; i++)
        sections[i].put(page);
    ul_page_put(page, "</main>\n<footer>Made by ");
    ul_page_escape(page, page->saved->tool[0] != '\0' ? page->saved->tool : "ullage");
    ul_page_put(page, " of a plan.json alone. Keys, in the pictures: arrows move by a step, p to "
                      "the peak, n to the next one, Home shows all.</footer>\n");
    ul_page_data(page);
    ul_page_put(page, "<script>");
    ul_page_put(page, ul_html_js);
    ul_page_put(page, "</script>\n</body>\n</html>\n");
}

/* In a caller's process, code and runtime are not the program's. */
static const char *name_process(const struct ul_saved *saved)
{
    const uint64_t *parts = saved->process;
    if (ul_saved_is_of_device(saved))
        return "device";
    return parts[UL_SAVED_CODE] > 0 || parts[UL_SAVED_RUNTIME] > 0 ? "process"
                                                                   : "caller\xE2\x80\x99s process";
}

void ul_html_put(struct ul_text *text, const struct ul_saved *saved,
                 const struct ul_saved *baseline)
{
    struct ul_page page = {.text = text,
                           .arena = text->arena,
                           .saved = saved,
                           .baseline = baseline,
                           .unit = ul_report_unit_of(saved->reserved_bytes),
                           .turn = saved->training.parameters > 0 ? "step" : "run",
                           .process = name_process(saved),
                           .length = saved->step_count > 0 ? saved->step_count : 1};
    page.live = ul_saved_curves(saved, page.arena, page.curves);
    find_alive(&page);
    find_budget(&page);
    put_head(&page);
    put_body(&page);
}
