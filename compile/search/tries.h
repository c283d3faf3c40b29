/* SPDX-License-Identifier: Apache-2.0 */
/* What may be tried to make a plan smaller, one row for each. */
#ifndef UL_COMPILE_TRIES_H
#define UL_COMPILE_TRIES_H

#include "compile/compile_internal.h"

struct ul_alternatives;
enum ul_try_bits { UL_BITS_CHANGE, UL_BITS_KEPT, UL_BITS_KEPT_IN_F32 };
/* APPLIED: the plan has it, and the plan without it is tried. Under a budget that plan is made
 * smaller by other means, which says nothing about this one. OPEN, GIVEN: the caller gave the
 * option no value, or a value. */
enum ul_try_when { UL_TRY_ALWAYS, UL_TRY_APPLIED, UL_TRY_OPEN, UL_TRY_GIVEN };
struct ul_try {
    const char *kind;      /* its name in reports */
    const char *option;    /* the option for it */
    const char *value;     /* as in an edit */
    enum ul_try_bits bits; /* whether results keep their bits */
    enum ul_try_when when;
    bool (*applies)(const struct ul_compile *compile); /* NULL: always */
    /* Instead of `value`, makes edits number `index`; false: there are none. */
    bool (*edit)(const struct ul_compile *compile, const struct ul_option *option, uint32_t index,
                 struct ul_arena *arena, struct ul_option_edits *edits);
    /* Adds plans of other programs to the compile's ladder; NULL: the row is about options. */
    enum ul_status (*vary)(struct ul_alternatives *alternatives);
};
extern const struct ul_try ul_tries[]; /* the last row has no kind */
/* The edits of a row of options, from 0 on; false: there are none of that number. */
bool ul_try_edit(const struct ul_compile *compile, const struct ul_try *row, uint32_t index,
                 struct ul_arena *arena, struct ul_option_edits *edits);

#endif
