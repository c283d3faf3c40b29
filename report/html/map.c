/* SPDX-License-Identifier: Apache-2.0 */
/* Section 4: the arena map, addresses by steps. A live range is a box; an alias chain has a box for
 * each member, with a mark where one takes over from another.
 *
 * Up to UL_PAGE_MAX_BOXES boxes are elements. When there are more, those with the largest areas
 * are, and the others go into one path for each class, in which the script finds them by
 * position. */
#include "report/html/html.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { HEIGHT = 380, MAX_NAMES = 60 };

struct box {
    uint32_t range;
    double x, y, width, height; /* in units */
};

struct boxes {
    struct box *items; /* the largest first */
    uint32_t count, element_count;
};

static int by_area(const void *a, const void *b)
{
    const struct box *first = a, *second = b;
    double x = first->width * first->height, y = second->width * second->height;
    if (x != y)
        return x < y ? 1 : -1;
    return first->range < second->range ? -1 : first->range > second->range;
}

static struct box box_of(const struct ul_page *page, uint32_t range)
{
    UL_ASSERT(range < page->saved->range_count && page->length > 0 && page->top_bytes > 0);
    const struct ul_saved_range *of = &page->saved->ranges[range];
    double column = (double)UL_PAGE_WIDTH / page->length;
    double byte = HEIGHT / (double)page->top_bytes;
    return (struct box){.range = range,
                        .x = of->begin * column,
                        .width = (of->end - of->begin) * column,
                        .y = HEIGHT - (double)(of->offset_bytes + of->size_bytes) * byte,
                        .height = (double)of->size_bytes * byte};
}

static void find_boxes(struct ul_page *page, struct boxes *boxes)
{
    const struct ul_saved *saved = page->saved;
    boxes->items = UL_NEW_ARRAY(page->arena, struct box, saved->range_count);
    boxes->count = 0;
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->space == 0 && range->begin < range->end && range->size_bytes > 0)
            boxes->items[boxes->count++] = box_of(page, i);
    }
    if (boxes->count > 0)
        qsort(boxes->items, boxes->count, sizeof *boxes->items, by_area);
    boxes->element_count = boxes->count < UL_PAGE_MAX_BOXES ? boxes->count : UL_PAGE_MAX_BOXES;
}

/* Whether the range is recomputed, or comes back from another space. */
static bool is_again(const struct ul_saved_range *range)
{
    return range->copy > 0;
}

static void put_box(struct ul_page *page, const struct box *box)
{
    const struct ul_saved_range *range = &page->saved->ranges[box->range];
    ul_page_put(page, "<rect x=\"");
    ul_page_coordinate(page, box->x);
    ul_page_put(page, "\" y=\"");
    ul_page_coordinate(page, box->y);
    ul_page_put(page, "\" width=\"");
    ul_page_coordinate(page, box->width);
    ul_page_put(page, "\" height=\"");
    ul_page_coordinate(page, box->height);
    ul_page_printf(page, "\" fill=\"url(#%s%u)\"%s data-range=\"%" PRIu32 "\"/>\n",
                   is_again(range) ? "r" : "p", (unsigned)range->class,
                   box->height < 3 || box->width < 3 ? " class=\"thin\"" : "", box->range);
}

/* Boxes too small for an element go into a path for each class, at least half a unit large. */
static void put_small(struct ul_page *page, const struct boxes *boxes)
{
    for (uint32_t c = 0; c < UL_PLAN_CLASS_COUNT; c++) {
        bool is_open = false;
        for (uint32_t i = boxes->element_count; i < boxes->count; i++) {
            const struct box *box = &boxes->items[i];
            if ((uint32_t)page->saved->ranges[box->range].class != c)
                continue;
            if (!is_open)
                ul_page_printf(page,
                               "<path class=\"small\" data-class=\"%" PRIu32
                               "\" fill=\"url(#p%" PRIu32 ")\" d=\"",
                               c, c);
            is_open = true;
            ul_page_put(page, "M");
            ul_page_coordinate(page, box->x);
            ul_page_put(page, " ");
            ul_page_coordinate(page, box->y);
            ul_page_put(page, "h");
            ul_page_coordinate(page, box->width < 0.3 ? 0.3 : box->width);
            ul_page_put(page, "v");
            ul_page_coordinate(page, box->height < 0.3 ? 0.3 : box->height);
            ul_page_put(page, "h-");
            ul_page_coordinate(page, box->width < 0.3 ? 0.3 : box->width);
            ul_page_put(page, "z");
        }
        if (is_open)
            ul_page_put(page, "\"/>\n");
    }
}

/* Draws a tick across the seam where a range takes over the bytes of another. */
static void put_joints(struct ul_page *page, const struct boxes *boxes)
{
    const struct ul_saved *saved = page->saved;
    bool is_open = false;
    for (uint32_t i = 0; i < boxes->element_count; i++) {
        const struct box *box = &boxes->items[i];
        uint32_t alias = saved->ranges[box->range].alias;
        if (alias == UL_PLAN_NONE || saved->ranges[alias].size_bytes == 0)
            continue;
        UL_ASSERT(alias < saved->range_count);
        struct box older = box_of(page, alias);
        double height = older.height < box->height ? older.height : box->height;
        ul_page_put(page, is_open ? "M" : "<path class=\"joint\" d=\"M");
        is_open = true;
        ul_page_coordinate(page, box->x - 3);
        ul_page_put(page, " ");
        ul_page_coordinate(page, box->y + box->height - height / 2);
        ul_page_put(page, "h6");
    }
    if (is_open)
        ul_page_put(page, "\"/>\n");
}

static void put_names(struct ul_page *page, const struct boxes *boxes)
{
    uint32_t shown = 0;
    ul_page_put(page, "<g class=\"names\" aria-hidden=\"true\">");
    for (uint32_t i = 0; i < boxes->element_count && shown < MAX_NAMES; i++) {
        const struct box *box = &boxes->items[i];
        uint32_t columns = (uint32_t)(box->width / 11);
        if (box->height < 13 || columns < 8)
            continue;
        const char *name = ul_saved_range_name(page->saved, page->arena, box->range);
        ul_page_printf(page, "<text class=\"on%u\" x=\"%.3f%%\" y=\"%.1f\">",
                       (unsigned)page->saved->ranges[box->range].class, box->x / 10 + 0.4,
                       box->y + box->height / 2 + 4);
        ul_page_cut(page, name, columns < 44 ? columns : 44);
        ul_page_put(page, "</text>");
        shown++;
    }
    ul_page_put(page, "</g>\n");
}

/* ---- The largest hole at the peak ---- */

struct hole {
    uint64_t begin_bytes, end_bytes;
    uint32_t begin, end; /* positions at which it is free */
};

static int by_offset(const void *a, const void *b)
{
    const struct ul_saved_range *const *first = a, *const *second = b;
    uint64_t x = (*first)->offset_bytes, y = (*second)->offset_bytes;
    return x < y ? -1 : x > y;
}

static bool is_free(const struct ul_saved *saved, const struct hole *hole, uint32_t position)
{
    for (uint32_t i = 0; i < saved->range_count; i++) {
        const struct ul_saved_range *range = &saved->ranges[i];
        if (range->space == 0 && range->begin <= position && position < range->end &&
            range->offset_bytes < hole->end_bytes &&
            hole->begin_bytes < range->offset_bytes + range->size_bytes)
            return false;
    }
    return true;
}

static void find_hole(struct ul_page *page, struct hole *hole)
{
    enum { FARTHEST = 64 }; /* positions searched on each side */
    const struct ul_saved *saved = page->saved;
    const struct ul_saved_range **alive =
        UL_NEW_ARRAY(page->arena, const struct ul_saved_range *, saved->range_count);
    uint32_t count = 0;
    uint64_t top = 0;
    for (uint32_t i = 0; i < saved->range_count; i++)
        if (saved->ranges[i].space == 0 && saved->ranges[i].begin <= saved->peak_step &&
            saved->peak_step < saved->ranges[i].end)
            alive[count++] = &saved->ranges[i];
    if (count > 0)
        qsort(alive, count, sizeof *alive, by_offset);
    *hole = (struct hole){.begin = saved->peak_step, .end = saved->peak_step + 1};
    for (uint32_t i = 0; i <= count; i++) {
        uint64_t next = i < count ? alive[i]->offset_bytes : saved->reserved_bytes;
        uint64_t end = i < count ? next + alive[i]->size_bytes : next;
        if (next > top && next - top > hole->end_bytes - hole->begin_bytes &&
            next - top >= saved->alignment_bytes) {
            hole->begin_bytes = top;
            hole->end_bytes = next;
        }
        top = end > top ? end : top;
    }
    for (int i = 0; i < FARTHEST && hole->begin > 0 && is_free(saved, hole, hole->begin - 1); i++)
        hole->begin--;
    for (int i = 0; i < FARTHEST && hole->end < page->length && is_free(saved, hole, hole->end);
         i++)
        hole->end++;
    UL_ASSERT(hole->begin < hole->end && hole->begin_bytes <= hole->end_bytes);
}

static void put_hole(struct ul_page *page, const struct hole *hole)
{
    double column = (double)UL_PAGE_WIDTH / page->length;
    double byte = HEIGHT / (double)page->top_bytes;
    if (hole->end_bytes == hole->begin_bytes)
        return;
    ul_page_put(page, "<rect class=\"hole\" x=\"");
    ul_page_coordinate(page, hole->begin * column);
    ul_page_put(page, "\" y=\"");
    ul_page_coordinate(page, HEIGHT - (double)hole->end_bytes * byte);
    ul_page_put(page, "\" width=\"");
    ul_page_coordinate(page, (hole->end - hole->begin) * column);
    ul_page_put(page, "\" height=\"");
    ul_page_coordinate(page, (double)(hole->end_bytes - hole->begin_bytes) * byte);
    ul_page_put(page, "\"/>\n");
}

/* ---- The same as a table ---- */

static void put_row(struct ul_page *page, uint32_t range)
{
    const struct ul_saved_range *of = &page->saved->ranges[range];
    ul_page_printf(page, "<tr data-range=\"%" PRIu32 "\"><td>", range);
    ul_page_name(page, ul_saved_range_name(page->saved, page->arena, range), 48);
    ul_page_put(page, "</td><td class=\"m\">");
    ul_page_escape(page, of->type);
    ul_page_printf(page, "</td><td>%s</td><td class=\"r\">%s</td>", ul_page_label(page, of->class),
                   ul_page_digits(page, of->size_bytes));
    ul_page_printf(page,
                   "<td class=\"r\">%s</td><td class=\"r\">%" PRIu32 "</td><td class=\"r\">%" PRIu32
                   "</td></tr>\n",
                   ul_page_digits(page, of->offset_bytes), of->begin, of->end - 1);
}

static void put_twin(struct ul_page *page, const struct boxes *boxes)
{
    uint64_t others = 0;
    ul_page_twin(page, "t4");
    ul_page_table(page, "ranges", "value|type|class|#bytes|#address|#first step|#last step");
    for (uint32_t i = 0; i < boxes->element_count; i++)
        put_row(page, boxes->items[i].range);
    for (uint32_t i = boxes->element_count; i < boxes->count; i++)
        others += page->saved->ranges[boxes->items[i].range].size_bytes;
    if (boxes->element_count < boxes->count)
        ul_page_printf(page,
                       "<tr class=\"others\"><td>%" PRIu32 " others, in <code>ullage report "
                       "PLAN.json --csv FILE</code></td><td></td><td></td><td class=\"r\">%s</td>"
                       "<td></td><td></td><td></td></tr>\n",
                       boxes->count - boxes->element_count, ul_page_digits(page, others));
    ul_page_table_end(page);
    ul_page_twin_end(page);
}

/* The memories that the arena is made of: where one begins, a line, or its name. */
static void put_banks(struct ul_page *page, bool named)
{
    double byte = HEIGHT / (double)page->top_bytes;
    for (uint32_t b = 0; b < page->saved->bank_count; b++) {
        const struct ul_saved_bank *bank = &page->saved->banks[b];
        double y = HEIGHT - (double)bank->begin_bytes * byte;
        if (bank->reserved_bytes == 0)
            continue;
        if (!named) {
            ul_page_put(page, "<path class=\"bank\" d=\"M0 ");
            ul_page_coordinate(page, y);
            ul_page_printf(page, "H%d\"/>\n", UL_PAGE_WIDTH);
            continue;
        }
        ul_page_printf(page, "<text class=\"bank\" x=\"99.6%%\" y=\"%.1f\" text-anchor=\"end\">",
                       y - 4);
        ul_page_cut(page, bank->name, 32);
        ul_page_put(page, "</text>\n");
    }
}

static void put_picture(struct ul_page *page, const struct boxes *boxes, const struct hole *hole)
{
    ul_page_printf(page,
                   "<div class=\"chart\" id=\"map\" role=\"img\" aria-label=\"Arena map, addresses "
                   "by steps: %" PRIu32 " live ranges in %s bytes; the largest hole at the peak is "
                   "%s bytes\">\n",
                   boxes->count, ul_page_digits(page, page->saved->reserved_bytes),
                   ul_page_digits(page, hole->end_bytes - hole->begin_bytes));
    ul_page_byte_axis(page, page->top_bytes, 8, HEIGHT);
    ul_page_printf(
        page,
        "<svg class=\"plot\" width=\"100%%\" height=\"%d\"><svg class=\"shapes\" y=\"8\" "
        "width=\"100%%\" height=\"%d\" viewBox=\"0 0 %d %d\" "
        "preserveAspectRatio=\"none\"><rect class=\"ground\" width=\"%d\" "
        "height=\"%d\"/><g class=\"boxes\">\n",
        8 + HEIGHT, HEIGHT, UL_PAGE_WIDTH, HEIGHT, UL_PAGE_WIDTH, HEIGHT);
    put_small(page, boxes);
    for (uint32_t i = 0; i < boxes->element_count; i++)
        put_box(page, &boxes->items[i]);
    ul_page_put(page, "</g>");
    put_joints(page, boxes);
    put_hole(page, hole);
    put_banks(page, false);
    ul_page_put(page, "</svg><svg class=\"over\" y=\"8\" width=\"100%\">\n");
    put_names(page, boxes);
    put_banks(page, true);
    ul_page_put(page, "</svg></svg>\n<div></div>");
    ul_page_step_axis(page);
    ul_page_put(page, "</div>\n");
}

void ul_page_map(struct ul_page *page)
{
    struct boxes boxes;
    struct hole hole;
    find_boxes(page, &boxes);
    find_hole(page, &hole);
    uint64_t hole_bytes = hole.end_bytes - hole.begin_bytes;
    ul_page_begin(page, 4, "Arena map");
    ul_page_put(page, "<p class=\"lead\">Each box is a value: how high it lies in the arena, and "
                      "from which step to which. ");
    if (hole_bytes > 0)
        ul_page_printf(page, "The largest hole at the peak, outlined, has %s bytes.",
                       ul_page_digits(page, hole_bytes));
    else
        ul_page_put(page, "At the peak there is no hole.");
    ul_page_put(page, " Slanted bars mark what is computed again; a tick joins a value to the one "
                      "whose bytes it takes over.</p>\n");
    ul_page_legend(page, true);
    put_picture(page, &boxes, &hole);
    put_twin(page, &boxes);
    ul_page_end(page);
}
