/* SPDX-License-Identifier: Apache-2.0 */
/* Section 1: whether the plan fits, what it consists of, and the first answer to each question of a
 * model's author. */
#include "report/html/html.h"

#include <inttypes.h>
#include <string.h>

/* Pieces of the bar, from left to right. */
enum { MAX_PIECES = UL_REPORT_ROW_COUNT + UL_SAVED_PART_COUNT };
struct piece {
    const char *paint, *label;
    uint64_t bytes;
};

static uint32_t list_pieces(struct ul_page *page, struct piece *pieces)
{
    const struct ul_saved *saved = page->saved;
    uint32_t count = 0;
    for (uint32_t row = 0; row < UL_REPORT_ROW_COUNT; row++)
        if (saved->rows[row] > 0)
            pieces[count++] = (struct piece){ul_page_paint(page, row), ul_page_label(page, row),
                                             saved->rows[row]};
    if (page->of_arena)
        return count;
    for (uint32_t part = UL_SAVED_LIBRARY; part < UL_SAVED_PART_COUNT; part++)
        if (saved->process[part] > 0)
            pieces[count++] = (struct piece){ul_arena_printf(page->arena, "q%" PRIu32, part),
                                             ul_page_part_label(part), saved->process[part]};
    return count;
}

/* ---- The sentence ---- */

static void put_shortfall(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const struct ul_saved_remedy *remedy = ul_saved_cheapest(page->saved);
    ul_page_put(page, "<p class=\"lead\">");
    if (saved->proven)
        ul_page_put(page, "No program of this model with these options fits the budget: proven. ");
    if (remedy != NULL) {
        ul_page_put(page, "The cheapest plan that fits is with <code>");
        ul_page_escape(page, remedy->change);
        ul_page_printf(page, "</code>%s: %s. ",
                       remedy->process_of[0] != '\0' && !page->of_arena
                           ? ", in a caller\xE2\x80\x99s process"
                           : "",
                       ul_page_time(page, remedy->cost));
    } else {
        ul_page_printf(page, "The smallest budget known to work is %s = %s bytes. ",
                       ul_page_size(page, saved->smallest_budget_bytes),
                       ul_page_digits(page, saved->smallest_budget_bytes));
    }
    ul_page_put(page, "See <a href=\"#s6\">what can be changed</a>.</p>\n");
}

static const char *describe_process(const struct ul_page *page)
{
    return strcmp(page->process, "process") == 0  ? "The process"
           : strcmp(page->process, "device") == 0 ? "The device"
                                                  : "Buffer, library and stacks";
}

/* Says what has to hold it: bytes, or a device by name. */
static void put_budget(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    bool is_device =
        saved->device.name[0] != '\0' && saved->device.memory_bytes == saved->budget_bytes;
    if (is_device) {
        ul_page_name(page, saved->device.name, 40);
        ul_page_put(page, ", which has ");
    }
    ul_page_put(page, ul_page_size(page, saved->budget_bytes));
    if (saved->process_lacks != 0)
        ul_page_put(page, ", as far as it is known");
}

/* Says how much the process takes at most, and when, where that is not while steps run. */
static void put_process(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    if (saved->process_bytes == UINT64_MAX)
        return;
    ul_page_printf(
        page, "%s %s at most <data id=\"process\" value=\"%" PRIu64 "\">%s</data> bytes = %s",
        describe_process(page),
        strcmp(page->process, "process") == 0 || strcmp(page->process, "device") == 0 ? "takes"
                                                                                      : "take",
        saved->process_bytes, ul_page_digits(page, saved->process_bytes),
        ul_page_size(page, saved->process_bytes));
    if (strcmp(page->process, "device") == 0)
        ul_page_put(page, ", as far as that is known");
    if (saved->process_peak_at_start)
        ul_page_put(page, ", at set-up, before the first step");
    ul_page_put(page, ". ");
}

static void put_sentence(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    uint64_t budget = saved->budget_bytes, needed = page->needed_bytes;
    bool fits = saved->fits && needed <= budget;
    bool has_process = saved->process_bytes != UINT64_MAX;
    ul_page_put(page, "<h1>");
    ul_page_name(page, saved->model, 48);
    if (budget == 0)
        ul_page_printf(
            page, " takes <b>%s</b>",
            ul_page_size(page, has_process ? saved->process_bytes : saved->reserved_bytes));
    else
        ul_page_put(page,
                    fits ? " <b class=\"good\">fits</b> " : " <b class=\"bad\">does not fit</b> ");
    if (budget > 0) {
        put_budget(page);
        if (fits)
            ul_page_printf(page, ", with %s to spare", ul_page_size(page, budget - needed));
        else if (needed > budget)
            ul_page_printf(page, ": %s short", ul_page_size(page, needed - budget));
        else
            ul_page_put(page, ": another limit than its bytes is not met");
    }
    ul_page_put(page, "</h1>\n<p class=\"headline\">");
    put_process(page);
    ul_page_printf(page,
                   "The buffer is <data id=\"reserved\" value=\"%" PRIu64
                   "\">%s</data> bytes = %s, reserved once, before it runs.</p>\n",
                   saved->reserved_bytes, ul_page_digits(page, saved->reserved_bytes),
                   ul_page_size(page, saved->reserved_bytes));
    if (budget > 0 && !fits)
        put_shortfall(page);
}

/* Names the first inputs with their shapes: the batch that the plan is for. */
static void put_inputs(struct ul_page *page)
{
    enum { SHOWN = 4 };
    const struct ul_saved *saved = page->saved;
    uint32_t shown = 0;
    for (uint32_t i = 0; i < saved->range_count && shown < SHOWN; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->class != UL_PLAN_INPUTS || range->copy > 0 || range->value == UL_PLAN_NONE ||
            strncmp(range->name, "ullage.", 7) == 0)
            continue;
        ul_page_put(page, "<span>");
        ul_page_name(page, range->name, 24);
        ul_page_put(page, " <span class=\"m\">");
        ul_page_cut(page, range->type, 36);
        ul_page_put(page, "</span></span>");
        shown++;
    }
}

/* Says what every number on the page assumes. */
static void put_assumptions(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    uint32_t lists = 0;
    ul_page_put(page, "<p class=\"chips\"><span>target ");
    ul_page_escape(page, saved->target);
    ul_page_put(page, "</span>");
    put_inputs(page);
    for (uint32_t i = 0; i < saved->option_count; i++) {
        const struct ul_report_option *option = &saved->options[i];
        bool is_list = strcmp(option->name, "split") == 0 ||
                       strcmp(option->name, "row-major") == 0 ||
                       strcmp(option->name, "inside") == 0;
        lists += is_list;
        if (is_list || strncmp(option->name, "profile-", 8) == 0)
            continue;
        ul_page_put(page, "<span>");
        ul_page_escape(page, option->name);
        ul_page_put(page, option->value[0] != '\0' ? " " : "");
        ul_page_name(page, option->value, 40);
        ul_page_put(page, "</span>");
    }
    if (lists > 0)
        ul_page_printf(page, "<span>%" PRIu32 " change%s for the budget</span>", lists,
                       ul_plural(lists));
    if (ul_saved_option(saved, "profile") != NULL)
        ul_page_printf(page, "<span>%s a %s, predicted</span>", ul_page_time(page, saved->cost),
                       page->turn);
    ul_page_put(page, "</p>\n");
}

/* ---- The bar ---- */

static void put_bar(struct ul_page *page, const struct piece *pieces, uint32_t count)
{
    uint64_t budget = page->saved->budget_bytes;
    uint64_t all = budget > page->needed_bytes ? budget : page->needed_bytes;
    double scale = UL_PAGE_WIDTH / (all > 0 ? (double)all : 1.0), at = 0;
    ul_page_put(page, "<svg class=\"bar\" width=\"100%\" height=\"44\" viewBox=\"0 0 1000 44\" "
                      "preserveAspectRatio=\"none\" role=\"img\" aria-label=\"");
    ul_page_printf(page, "%s of %s: ", ul_page_size(page, page->needed_bytes),
                   budget > 0 ? ul_page_size(page, budget) : "what is needed");
    for (uint32_t i = 0; i < count; i++)
        ul_page_printf(page, "%s%s %s", i > 0 ? ", " : "", pieces[i].label,
                       ul_page_size(page, pieces[i].bytes));
    ul_page_put(page, "\"><rect class=\"room\" y=\"4\" width=\"1000\" height=\"36\"/>");
    for (uint32_t i = 0; i < count; i++) {
        ul_page_put(page, "<rect class=\"piece\" y=\"4\" height=\"36\" x=\"");
        ul_page_coordinate(page, at * scale);
        ul_page_put(page, "\" width=\"");
        ul_page_coordinate(page, (double)pieces[i].bytes * scale);
        ul_page_printf(page, "\" fill=\"url(#%s)\"/>", pieces[i].paint);
        at += (double)pieces[i].bytes;
    }
    if (budget > 0) {
        ul_page_put(page, "<path class=\"budget\" d=\"M");
        ul_page_coordinate(page, (double)budget * scale - (budget == all ? 1 : 0));
        ul_page_put(page, " 0v44\"/>");
    }
    ul_page_put(page, "</svg>\n");
}

static void put_parts(struct ul_page *page, const struct piece *pieces, uint32_t count)
{
    uint64_t budget = page->saved->budget_bytes;
    ul_page_put(page, "<ul class=\"parts\">\n");
    for (uint32_t i = 0; i < count; i++) {
        ul_page_put(page, "<li>");
        ul_page_swatch(page, pieces[i].paint);
        ul_page_printf(page, "<span>%s</span><b>%s</b></li>\n", pieces[i].label,
                       ul_page_size(page, pieces[i].bytes));
    }
    if (budget > page->needed_bytes)
        ul_page_printf(page, "<li><i class=\"swatch free\"></i><span>free</span><b>%s</b></li>\n",
                       ul_page_size(page, budget - page->needed_bytes));
    if (budget > 0)
        ul_page_printf(page,
                       "<li><i class=\"swatch line\"></i><span>budget of the %s</span>"
                       "<b>%s</b></li>\n",
                       page->of_arena ? "buffer" : page->process, ul_page_size(page, budget));
    ul_page_put(page, "</ul>\n");
}

/* ---- Questions and first answers ---- */

static void begin_answer(struct ul_page *page, const char *question, uint32_t section)
{
    ul_page_printf(page, "<div><dt><a href=\"#s%" PRIu32 "\">%s</a></dt><dd>", section, question);
}

static void end_answer(struct ul_page *page)
{
    ul_page_put(page, "</dd></div>\n");
}

static void answer_peak(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    begin_answer(page, "What makes the peak?", 3);
    if (saved->step_count == 0) {
        ul_page_put(page, "There are no steps.");
    } else {
        ul_page_put_step(page, saved->peak_step, 40);
        ul_page_printf(page, "<small>step %" PRIu32 " of 0 to %" PRIu32 "%s</small>",
                       saved->peak_step, saved->step_count - 1,
                       saved->steps[saved->peak_step].source[0] == '\0'
                           ? "; the model names no source lines"
                           : "");
    }
    end_answer(page);
}

static void answer_change(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const struct ul_saved_remedy *best = NULL;
    for (uint32_t i = 0; i < saved->remedy_count && best == NULL; i++)
        if (!saved->remedies[i].applied)
            best = &saved->remedies[i];
    begin_answer(page, "What can I change?", 6);
    if (best != NULL) {
        ul_page_put(page, "<code>");
        ul_page_name(page, best->change, 60);
        ul_page_printf(page, "</code> saves %s%s",
                       ul_page_size(page, best->saved_bytes > 0 ? (uint64_t)best->saved_bytes : 0),
                       best->process_of[0] != '\0' && !page->of_arena ? " of the buffer" : "");
        ul_page_printf(page, "<small>%s%s a %s; the best of %" PRIu64 " plan%s</small>",
                       best->extra_cost < 0 ? "\xE2\x88\x92" : "+",
                       ul_page_time(page, best->extra_cost < 0 ? (uint64_t)-best->extra_cost
                                                               : (uint64_t)best->extra_cost),
                       page->turn, saved->remedies_tried, ul_plural(saved->remedies_tried));
    } else {
        ul_page_put(page,
                    saved->has_remedies ? "Nothing that was planned helps." : "Not planned yet.");
        if (!saved->has_remedies)
            ul_page_put(page, "<small>section 6 has the command</small>");
    }
    end_answer(page);
}

/* The first change that brings the process down to so many bytes, or NULL. A change that leaves
 * values to the caller does not count: the caller's process holds them. */
static const struct ul_saved_remedy *find_within(const struct ul_page *page, uint64_t bytes)
{
    const struct ul_saved *saved = page->saved;
    for (uint32_t i = 0; i < saved->remedy_count; i++) {
        const struct ul_saved_remedy *remedy = &saved->remedies[i];
        uint64_t needed = page->of_arena ? remedy->reserved_bytes : remedy->process_bytes;
        bool moves = remedy->process_of[0] != '\0' || strcmp(remedy->kind, "weights") == 0 ||
                     strcmp(remedy->kind, "inputs and outputs") == 0;
        if (!remedy->applied && !moves && needed <= bytes)
            return remedy;
    }
    return NULL;
}

static void answer_half(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    const struct ul_saved_remedy *remedy = find_within(page, page->needed_bytes / 2);
    const struct ul_saved_rung *found = NULL, *last = NULL;
    for (uint32_t i = 0; i < saved->rung_count; i++) {
        last = &saved->ladder[i];
        uint64_t bytes = page->of_arena ? last->reserved_bytes : last->process_bytes;
        if (found == NULL && bytes <= page->needed_bytes / 2)
            found = last;
    }
    begin_answer(page, "What would half the memory cost?", 7);
    if (found != NULL) {
        ul_page_printf(page, "%s a %s<small>now %s</small>", ul_page_time(page, found->cost),
                       page->turn, ul_page_time(page, page->saved->cost));
    } else if (remedy != NULL) {
        bool is_less = remedy->extra_cost < 0;
        uint64_t extra = (uint64_t)(is_less ? -remedy->extra_cost : remedy->extra_cost);
        ul_page_printf(page, "%s%s with <code>", is_less ? "\xE2\x88\x92" : "+",
                       ul_page_time(page, extra));
        ul_page_name(page, remedy->change, 60);
        ul_page_printf(page, "</code><small>for as many samples; now %s a %s</small>",
                       ul_page_time(page, page->saved->cost), page->turn);
    } else if (last != NULL) {
        ul_page_printf(
            page, "No plan that small is known<small>the least is %s, at %s a %s</small>",
            ul_page_size(page, page->of_arena ? last->reserved_bytes : last->process_bytes),
            ul_page_time(page, last->cost), page->turn);
    } else {
        ul_page_put(page, "Not planned yet.<small>section 7 has the command</small>");
    }
    end_answer(page);
}

static void answer_waste(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    uint64_t waste = saved->rows[UL_PLAN_CLASS_COUNT] + saved->rows[UL_PLAN_CLASS_COUNT + 1];
    double part = saved->reserved_bytes > 0 ? (double)waste / (double)saved->reserved_bytes : 0;
    begin_answer(page, "Does the allocator waste?", 9);
    ul_page_printf(page, "%s bytes (%.2f %%)<small>%s</small>", ul_page_digits(page, waste),
                   100 * part,
                   saved->proven && saved->fits ? "no packing of this order is smaller: proven"
                                                : "alignment and holes, at the peak");
    end_answer(page);
}

static void answer_compared(struct ul_page *page)
{
    begin_answer(page, "What changed?", 11);
    if (page->baseline != NULL)
        ul_page_printf(
            page, "%s<small>since the baseline</small>",
            ul_page_change(page, page->baseline->reserved_bytes, page->saved->reserved_bytes));
    else
        ul_page_put(page, "No baseline was given.<small>--baseline OLD.json compares</small>");
    end_answer(page);
}

static void answer_trust(struct ul_page *page)
{
    const struct ul_saved *saved = page->saved;
    begin_answer(page, "Can I trust the number?", 10);
    ul_page_printf(page, "%s bytes unaccounted<small>model ",
                   ul_page_digits(page, saved->rows[UL_REPORT_ROW_COUNT - 1]));
    ul_page_name(page, saved->model_sha256, 13);
    ul_page_put(page, "; one command checks it</small>");
    end_answer(page);
}

void ul_page_verdict(struct ul_page *page)
{
    struct piece pieces[MAX_PIECES];
    uint32_t count = list_pieces(page, pieces);
    ul_page_put(page, "<section id=\"s1\" class=\"verdict\" aria-label=\"Verdict\">\n");
    put_sentence(page);
    ul_page_largest(page);
    put_assumptions(page);
    put_bar(page, pieces, count);
    put_parts(page, pieces, count);
    ul_page_put(page, "<dl class=\"answers\">\n");
    answer_peak(page);
    answer_change(page);
    answer_half(page);
    answer_waste(page);
    answer_compared(page);
    answer_trust(page);
    ul_page_put(page, "</dl>\n");
    ul_page_end(page);
}
