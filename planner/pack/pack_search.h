/* SPDX-License-Identifier: Apache-2.0 */
/* The exact search for one capacity, as an object that runs in slices. */
#ifndef UL_PACK_SEARCH_H
#define UL_PACK_SEARCH_H

#include "planner/pack/pack_internal.h"

/* An instance in small units: times are sections (maximal sets of buffers alive together), bytes
 * are multiples of unit_bytes. */
struct ul_pack_sections {
    uint64_t unit_bytes;
    uint32_t count; /* buffers; ids are those of the pack problem */
    uint32_t section_count;
    uint32_t *id;         /* the pack problem's buffer of each, by begin */
    int32_t *begin, *end; /* by buffer: sections */
    int32_t *size;        /* by buffer: units */
    int32_t *alignment;   /* by buffer: units, at least 1 */
    int32_t *pin;         /* by buffer: its offset, or -1 */
    uint32_t *step_first; /* by buffer: its steps (slabs), count + 1 entries */
    int32_t *step_begin, *step_end, *step_size;
    uint32_t *overlap_first; /* by buffer: those that share a section, count + 1 entries */
    int32_t *overlaps;
    /* By section: its buffers, section_count + 1 entries. */
    uint32_t *member_first;
    uint32_t *members;
    int32_t *member_size; /* units of the member in that section */
    uint32_t *twin;       /* by buffer: an equal one with the next smaller id, or UL_PLAN_NONE */
    int32_t bound;        /* largest section total */
    bool aligned;         /* some alignment is above 1 */
    bool stepped;         /* some buffer narrows over time */
    bool exact;           /* nothing was rounded or filled: a refutation is a proof */
};

/* Ranks among equal floors: by section total, lifetime, area, in six orders of importance; and,
 * from UL_PACK_KEYS on, by what past failures have taught, with restarts. */
enum { UL_PACK_KEYS = 6, UL_PACK_LEARNING_KEYS = 3 };

struct ul_pack_search;

/* pack_sections.c: false if the instance cannot be brought into this form: buffers are pinned, and
 * rounding or filling would be needed. */
bool ul_pack_sections_make(struct ul_arena *arena, const struct ul_pack_problem *problem,
                           struct ul_pack_sections *sections);

/* pack_search.c */

struct ul_pack_search *ul_pack_search_new(struct ul_arena *arena,
                                          const struct ul_pack_sections *sections, int32_t capacity,
                                          uint32_t key, bool dive);
/* Runs for about `work` element visits; adds the visits made to *used. */
enum ul_pack_outcome ul_pack_search_run(struct ul_pack_search *search, uint64_t work,
                                        uint64_t *used);
/* After FOUND: offsets in units, by buffer of the sections. */
const int32_t *ul_pack_search_offsets(const struct ul_pack_search *search);

#endif
