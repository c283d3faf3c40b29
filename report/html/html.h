/* SPDX-License-Identifier: Apache-2.0 */
/* The planning report as one HTML file, drawn from a saved plan.
 *
 * Invariants: the page is complete without its script; everything from the plan is escaped; the
 * page uses no network, and the same plans give the same bytes. Pictures are SVG with a viewBox of
 * UL_PAGE_WIDTH units that is stretched to the page; text is outside the viewBox, unstretched.
 * Ownership: everything lives in the text's arena. Units: bytes, positions, units of the viewBox.
 * Failure: none; where a plan lacks data, the page says so, with the command that adds them. */
#ifndef UL_REPORT_HTML_HTML_H
#define UL_REPORT_HTML_HTML_H

#include "report/saved.h"

enum {
    UL_PAGE_WIDTH = 1000,    /* width of a picture, in units */
    UL_PAGE_MAX_BOXES = 2000 /* most elements of the arena map */
};

/* State that the sections share. */
struct ul_page {
    struct ul_text *text;
    struct ul_arena *arena;
    const struct ul_saved *saved;
    const struct ul_saved *baseline; /* or NULL */
    struct ul_report_unit unit;      /* for all sizes on the page */
    const char *turn;                /* "run", or "step" for a program that trains */
    const char *process;             /* the memory that a budget bounds: "process", "device" */
    uint32_t length;                 /* positions, at least 1 */
    uint64_t *curves[UL_SAVED_CURVES];
    uint64_t *live;          /* sum of the curves by position */
    uint64_t needed_bytes;   /* bytes that the budget bounds */
    bool of_arena;           /* the budget bounds only the buffer, or no process is known */
    uint64_t overhead_bytes; /* the process without the arena */
    uint64_t line_bytes;     /* what the budget leaves for the arena; 0: there is no budget */
    uint64_t top_bytes;      /* end of the axis of addresses */
    uint32_t *alive,
        alive_count; /* values at the peak, the newest member of each alias chain; biggest first */
};

/* page.css and page.js, embedded into the program by cmake/embed.cmake; terminated by 0. */
extern const char ul_html_css[];
extern const char ul_html_js[];

/* markup.c: pieces of HTML */

/* Writes text with < > & and quotes escaped, and characters that move or hide text made visible. */
void ul_page_escape(struct ul_page *page, const char *string);
/* Writes markup that holds no text of a plan. */
void ul_page_put(struct ul_page *page, const char *markup);
void ul_page_printf(struct ul_page *page, const char *format, ...) UL_PRINTF(2, 3);
/* Writes a name as text, in at most so many characters, cut in the middle. */
void ul_page_cut(struct ul_page *page, const char *name, size_t columns);
/* The same as an element, with the whole name in its title. */
void ul_page_name(struct ul_page *page, const char *name, size_t columns);
/* Writes a line of the author's source, as "model.py:42" where possible: as text, and as an
 * element. */
void ul_page_source_text(struct ul_page *page, const char *source, size_t columns);
void ul_page_source(struct ul_page *page, const char *source);
/* 117,424,640 */
const char *ul_page_digits(struct ul_page *page, uint64_t number);
/* "111.98 MiB" */
const char *ul_page_size(struct ul_page *page, uint64_t bytes);
/* The same with its sign. */
const char *ul_page_change(struct ul_page *page, uint64_t old, uint64_t new);
/* "62.6 ms", from nanoseconds */
const char *ul_page_time(struct ul_page *page, uint64_t cost);
/* Writes two cells: in the page's unit, and in bytes. */
void ul_page_size_cells(struct ul_page *page, uint64_t bytes);
/* Writes the colour box of a class, or of a row of the sum table. */
void ul_page_swatch(struct ul_page *page, const char *paint);
/* The fill of a class or row: "p3". */
const char *ul_page_paint(struct ul_page *page, uint32_t row);
/* "other activations"; for a part of the process: "libraries' own" */
const char *ul_page_label(struct ul_page *page, uint32_t row);
const char *ul_page_part_label(uint32_t part);
/* Writes a section's head; `finding` is a sentence, escaped by the caller, or NULL. */
void ul_page_begin(struct ul_page *page, uint32_t number, const char *title);
void ul_page_end(struct ul_page *page);
/* Begins a table that scrolls on its own. Heads are separated by '|'; those of numbers begin with
 * '#'. */
void ul_page_table(struct ul_page *page, const char *class, const char *heads);
void ul_page_table_end(struct ul_page *page);
/* Writes the table below a picture. */
void ul_page_twin(struct ul_page *page, const char *id);
void ul_page_twin_end(struct ul_page *page);
/* Writes the command that makes this plan, with `more` added, in a box. */
void ul_page_command(struct ul_page *page, const char *more);

/* picture.c: pieces of SVG */

/* Writes a coordinate without needless digits. */
void ul_page_coordinate(struct ul_page *page, double number);
/* The step between marks of an axis of bytes from 0 to `top`, with at most `wanted` marks. */
double ul_page_step(double top, uint32_t wanted);
/* Draws the axes of a picture over positions: bytes on the left, positions below. */
void ul_page_byte_axis(struct ul_page *page, uint64_t top_bytes, uint32_t above, uint32_t height);
void ul_page_step_axis(struct ul_page *page);
/* Writes the patterns that fill everything. */
void ul_page_patterns(struct ul_page *page);
/* Writes the legend of classes for pictures over positions. */
void ul_page_legend(struct ul_page *page, bool has_holes);

/* users.c: the makers and users of a range */

/* The longest stretch of positions that does not touch it. */
uint32_t ul_page_idle(const struct ul_page *page, uint32_t range);
/* Writes the step in words: operator, node, source line. */
void ul_page_put_step(struct ul_page *page, uint32_t position, size_t columns);
void ul_page_put_maker(struct ul_page *page, uint32_t range);
void ul_page_put_readers(struct ul_page *page, uint32_t range);

/* tried.c: the largest size that fits, for the verdict; and the plans that were made to find it. */
void ul_page_largest(struct ul_page *page);
void ul_page_tried(struct ul_page *page);

/* One file for each section, in this order. */
void ul_page_verdict(struct ul_page *page);
void ul_page_sums(struct ul_page *page);
void ul_page_curve(struct ul_page *page);
void ul_page_map(struct ul_page *page);
void ul_page_peak(struct ul_page *page);
void ul_page_advice(struct ul_page *page);
void ul_page_pareto(struct ul_page *page);
void ul_page_modules(struct ul_page *page);
void ul_page_quality(struct ul_page *page);
void ul_page_trust(struct ul_page *page);
void ul_page_compare(struct ul_page *page);

/* data.c: the plan as JSON for the script. */
void ul_page_data(struct ul_page *page);

#endif
