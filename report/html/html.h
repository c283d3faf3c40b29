/* SPDX-License-Identifier: Apache-2.0 */
/* The planning report as one HTML file, drawn of a saved plan.
 *
 * Invariants: the page reads complete without its script; whatever comes from the plan is escaped;
 * it asks nothing of a network, and the same plans give the same bytes. Pictures are SVG with a
 * viewBox of UL_PAGE_WIDTH units that is stretched to the page; text stands beside it, unstretched.
 * Ownership: everything lives in the text's arena. Units: bytes, positions, units of the viewBox.
 * Failure: none; what a plan does not say, the page says is missing, with the command that adds it.
 */
#ifndef UL_REPORT_HTML_HTML_H
#define UL_REPORT_HTML_HTML_H

#include "report/saved.h"

enum {
    UL_PAGE_WIDTH = 1000,    /* of a picture, in units */
    UL_PAGE_MAX_BOXES = 2000 /* elements of the arena map */
};

/* What the sections share. */
struct ul_page {
    struct ul_text *text;
    struct ul_arena *arena;
    const struct ul_saved *saved;
    const struct ul_saved *baseline; /* or NULL */
    struct ul_report_unit unit;      /* of all sizes on the page */
    const char *turn;                /* "run", or of a program that trains "step" */
    const char *process;             /* whose bytes a budget bounds: "process", "device" */
    uint32_t length;                 /* positions, at least 1 */
    uint64_t *curves[UL_SAVED_CURVES];
    uint64_t *live;        /* per position: the sum of the curves */
    uint64_t needed_bytes; /* of what the budget bounds */
    bool of_arena;         /* the budget bounds the buffer alone, or no process is known */
    uint64_t beside_bytes; /* of the process, beside the arena */
    uint64_t line_bytes;   /* what the budget leaves for the arena; 0: there is none */
    uint64_t top_bytes;    /* of the axis of addresses */
    uint32_t *alive,
        alive_count; /* at the peak, of an alias chain its newest member; biggest first */
};

/* page.css, page.js: in the program by cmake/embed.cmake; terminated. */
extern const char ul_html_css[];
extern const char ul_html_js[];

/* markup.c: pieces of HTML */

/* With < > & and quotes escaped, and what moves or hides text made visible. */
void ul_page_escape(struct ul_page *page, const char *string);
/* Markup that holds no text of a plan. */
void ul_page_put(struct ul_page *page, const char *markup);
void ul_page_printf(struct ul_page *page, const char *format, ...) UL_PRINTF(2, 3);
/* A name in at most so many characters, cut in the middle, as text alone. */
void ul_page_cut(struct ul_page *page, const char *name, size_t columns);
/* The same as an element, with all of it in its title. */
void ul_page_name(struct ul_page *page, const char *name, size_t columns);
/* A line of the author's source, as "model.py:42" where it can be: text alone, and an element. */
void ul_page_source_text(struct ul_page *page, const char *source, size_t columns);
void ul_page_source(struct ul_page *page, const char *source);
/* 117,424,640 */
const char *ul_page_digits(struct ul_page *page, uint64_t number);
/* "111.98 MiB" */
const char *ul_page_size(struct ul_page *page, uint64_t bytes);
/* The same with its sign. */
const char *ul_page_change(struct ul_page *page, uint64_t old, uint64_t new);
/* "62.6 ms" of nanoseconds */
const char *ul_page_time(struct ul_page *page, uint64_t cost);
/* Two cells: in the page's unit, and in bytes. */
void ul_page_size_cells(struct ul_page *page, uint64_t bytes);
/* The box of a class, or of a row of the sum table. */
void ul_page_swatch(struct ul_page *page, const char *paint);
/* What a class, or a row, is filled with: "p3". */
const char *ul_page_paint(struct ul_page *page, uint32_t row);
/* "other activations"; and of a part of the process: "libraries' own" */
const char *ul_page_label(struct ul_page *page, uint32_t row);
const char *ul_page_part_label(uint32_t part);
/* A section's head; `finding` is what it says in a sentence, escaped by the caller, or NULL. */
void ul_page_begin(struct ul_page *page, uint32_t number, const char *title);
void ul_page_end(struct ul_page *page);
/* Begins a table that scrolls for itself; the heads are separated by '|', and those of numbers
 * begin with '#'. */
void ul_page_table(struct ul_page *page, const char *class, const char *heads);
void ul_page_table_end(struct ul_page *page);
/* The table below a picture. */
void ul_page_twin(struct ul_page *page, const char *id, const char *summary);
void ul_page_twin_end(struct ul_page *page);
/* The command that makes this plan, with what else it shall say, in a box of its own. */
void ul_page_command(struct ul_page *page, const char *more);

/* picture.c: pieces of SVG */

/* A coordinate, without needless digits. */
void ul_page_coordinate(struct ul_page *page, double number);
/* Marks of an axis of bytes from 0 to `top`, at most `wanted` of them: the step between two. */
double ul_page_step(double top, uint32_t wanted);
/* The axes of a picture over the positions: bytes to the left of it, positions below. */
void ul_page_byte_axis(struct ul_page *page, uint64_t top_bytes, uint32_t above, uint32_t height);
void ul_page_step_axis(struct ul_page *page);
/* Patterns that everything is filled with. */
void ul_page_patterns(struct ul_page *page);
/* The classes that there are, for pictures over the positions. */
void ul_page_legend(struct ul_page *page, bool has_holes);

/* users.c: who makes and uses a range */

/* Positions between two touches of it, the longest such stretch. */
uint32_t ul_page_idle(const struct ul_page *page, uint32_t range);
/* The step in words: operator, node, source line. */
void ul_page_put_step(struct ul_page *page, uint32_t position, size_t columns);
void ul_page_put_maker(struct ul_page *page, uint32_t range);
void ul_page_put_readers(struct ul_page *page, uint32_t range);

/* tried.c: the largest size that fits, for the verdict; and what was planned to find it. */
void ul_page_largest(struct ul_page *page);
void ul_page_tried(struct ul_page *page);

/* One file a section, in this order. */
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

/* data.c: the plan for the script, as JSON. */
void ul_page_data(struct ul_page *page);

#endif
