/* SPDX-License-Identifier: Apache-2.0 */
/* Local search on an order: orders windows around its peak again.
 *
 * Problem: large cores leave beams little width, but the peak is at one place. Method: the nodes at
 * positions [begin, end) around the peak, with all others in place, are a core. It is searched
 * exactly with few states, and by a beam where these do not suffice; a better order replaces the
 * old one, else the window and the beam get wider.
 *
 *     before | a b c [ d e f g h ] i j |      the peak is at f
 *     after  | a b c [ e d g f h ] i j | */
#include "planner/order/order_internal.h"

#include <string.h>

enum {
    FIRST_SIZE = 40,
    FIRST_WIDTH = 32,
    MAX_WIDTH = 1 << 13,
    STATES_PER_WIDTH = 32,
};

struct windows {
    const struct ul_order_core *core;
    struct ul_effort *effort;
    uint32_t *order;
    uint64_t peak_bytes;
    uint32_t place; /* of the peak */
    uint32_t size, width;
    bool whole; /* the last window was all of the core */
};

static void peak_find(struct windows *w, struct ul_arena *scratch, uint64_t *before_bytes)
{
    uint32_t n = w->core->node_count;
    uint64_t *during_bytes = UL_NEW_ARRAY(scratch, uint64_t, n);
    w->peak_bytes = ul_order_core_peak(scratch, w->core, w->order, before_bytes, during_bytes);
    w->effort->work += 4 * ((uint64_t)n + w->core->touch_first[n]);
    for (w->place = 0; w->place + 1 < n && during_bytes[w->place] != w->peak_bytes; w->place++)
        continue;
}

static enum ul_order_outcome window_search(struct windows *w, struct ul_arena *scratch,
                                           const struct ul_order_core *slice, uint32_t *order)
{
    uint64_t lower = 0;
    enum ul_order_outcome outcome = ul_order_downsets(
        scratch, slice, w->effort, w->width * STATES_PER_WIDTH, w->peak_bytes, &lower, order);
    if (outcome != UL_ORDER_UNKNOWN)
        return outcome;
    struct ul_order_beam_options options = {.width = w->width, .upper_bytes = w->peak_bytes};
    return ul_order_beam(scratch, slice, w->effort, &options, order);
}

/* Tries one window around the peak; IMPROVED if that lowered the sums there, PROVEN if that is
 * impossible. */
static enum ul_order_outcome window_try(struct windows *w)
{
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    uint32_t n = w->core->node_count;
    uint64_t *before_bytes = UL_NEW_ARRAY(&scratch, uint64_t, n);
    peak_find(w, &scratch, before_bytes);
    uint32_t back = w->size / 8 * 5;
    uint32_t begin = w->place > back ? w->place - back : 0;
    uint32_t end = n - begin > w->size ? begin + w->size : n;
    struct ul_order_slicer slicer;
    struct ul_order_core slice;
    ul_order_slicer_init(&scratch, w->core, w->order, &slicer);
    ul_order_slice(&scratch, &slicer, begin, end, before_bytes[begin], &slice);
    uint32_t *order = UL_NEW_ARRAY(&scratch, uint32_t, end - begin);
    enum ul_order_outcome outcome = window_search(w, &scratch, &slice, order);
    w->whole = end - begin == n;
    for (uint32_t i = 0; i < end - begin && outcome == UL_ORDER_IMPROVED; i++)
        w->order[begin + i] = slice.nodes[order[i]];
    ul_arena_done(&scratch);
    return outcome;
}

void ul_order_windows(const struct ul_order_core *core, struct ul_effort *effort,
                      uint64_t enough_bytes, uint32_t *order, uint64_t *peak_bytes)
{
    struct windows w = {.core = core,
                        .effort = effort,
                        .order = order,
                        .peak_bytes = *peak_bytes,
                        .size = FIRST_SIZE,
                        .width = FIRST_WIDTH};
    while (w.peak_bytes > enough_bytes && !ul_effort_spent(effort)) {
        enum ul_order_outcome outcome = window_try(&w);
        if (outcome == UL_ORDER_IMPROVED)
            continue;
        if (w.whole && (outcome == UL_ORDER_PROVEN || w.width >= MAX_WIDTH))
            break;
        w.size = w.size < 2 * core->node_count ? w.size / 2 * 3 : w.size;
        w.width = w.width < MAX_WIDTH ? w.width / 2 * 3 : w.width;
    }
    struct ul_arena scratch;
    ul_arena_init(&scratch);
    *peak_bytes = ul_order_core_peak(&scratch, core, order, NULL, NULL);
    ul_arena_done(&scratch);
    UL_ASSERT(w.peak_bytes <= *peak_bytes);
}
