/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of values of options, for tables of plans: "--dim N=1,2,4 --precision fp32,bf16". An
 * option's kind says whether it takes a list, or its row where a text may hold commas. */
#include "compile/options/option.h"

#include <string.h>

static bool takes_one(const struct ul_option *row)
{
    switch (row->kind) {
    case UL_OPTION_WORD:
    case UL_OPTION_SIZE:
    case UL_OPTION_NUMBER:
    case UL_OPTION_INTEGER:
    case UL_OPTION_POWER:
    case UL_OPTION_REAL:
    case UL_OPTION_POSITIVE:
        return true;
    case UL_OPTION_SIZES:
        return row->max == 1;
    case UL_OPTION_TEXT:
    case UL_OPTION_INPUT:
        return row->takes_list;
    case UL_OPTION_FLAG:
    case UL_OPTION_RESULT:
    case UL_OPTION_TEXTS:
    case UL_OPTION_PAIRS:
        return false;
    }
    return false;
}

/* Where the values begin: after the name of a dimension, which may hold commas. */
static const char *values_of(const struct ul_option *row, const char *value)
{
    const char *equals = row->kind == UL_OPTION_SIZES ? strrchr(value, '=') : NULL;
    return equals != NULL ? equals + 1 : value;
}

bool ul_option_is_list(const struct ul_option *row, const char *value)
{
    return value != NULL && takes_one(row) && strchr(values_of(row, value), ',') != NULL;
}

static enum ul_status check_new(const struct ul_axes *axes, const struct ul_axis *axis,
                                struct ul_diag *diag)
{
    for (uint32_t i = 0; i < axes->count; i++)
        if (axes->items[i].row == axis->row && strcmp(axes->items[i].label, axis->label) == 0)
            return ul_diag_set(diag, UL_USAGE, "--%s has two lists of values; give one",
                               axis->row->name);
    return UL_OK;
}

/* Adds one value, which the row must take and the axis must not have yet. */
static enum ul_status add_value(struct ul_axis *axis, struct ul_options *trial, const char *prefix,
                                const char *value, struct ul_diag *diag)
{
    struct ul_arena *arena = trial->arena;
    const char *set = ul_arena_printf(arena, "%s%s", prefix, value);
    if (*value == '\0')
        return ul_diag_set(diag, UL_USAGE, "--%s: the list of values has an empty one",
                           axis->row->name);
    if (ul_texts_have(&axis->values, value))
        return ul_diag_set(diag, UL_USAGE, "--%s: the list has %s twice", axis->row->name,
                           ul_option_shown(arena, value));
    UL_TRY(ul_option_restore(trial, axis->row, set, diag));
    ul_texts_add(arena, &axis->set, set);
    ul_texts_add(arena, &axis->values, value);
    return UL_OK;
}

enum ul_status ul_axes_add(struct ul_axes *axes, struct ul_options *trial,
                           const struct ul_option *row, const char *value, struct ul_diag *diag)
{
    struct ul_arena *arena = trial->arena;
    const char *values = values_of(row, value);
    const char *prefix = ul_arena_printf(arena, "%.*s", (int)(values - value), value);
    struct ul_axis axis = {.row = row, .label = row->name};
    UL_ASSERT(ul_option_is_list(row, value));
    if (values != value)
        axis.label = ul_arena_printf(arena, "%.*s", (int)(values - value - 1), value);
    UL_TRY(check_new(axes, &axis, diag));
    for (const char *at = values;; at++) {
        size_t length = strcspn(at, ",");
        UL_TRY(
            add_value(&axis, trial, prefix, ul_arena_printf(arena, "%.*s", (int)length, at), diag));
        at += length;
        if (*at == '\0')
            break;
    }
    UL_GROW(arena, axes->items, axes->count, axes->capacity);
    axes->items[axes->count++] = axis;
    return UL_OK;
}
