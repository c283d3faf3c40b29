/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that options have values that their rows take, and are for the target. An option that the
 * target cannot use is an error rather than ignored: whoever gives it expects an effect. */
#include "compile/compile_internal.h"

#include <inttypes.h>
#include <string.h>

bool ul_option_fits(const struct ul_option *row, const struct ul_target *target)
{
    switch (row->audience) {
    case UL_FOR_ALL:
        return true;
    case UL_FOR_COMPILER:
        return strcmp(row->name, target->compiler->option) == 0;
    case UL_FOR_MARCH:
        return target->compiler->takes_march;
    case UL_FOR_THREADS:
        return target->traits.has_threads;
    case UL_FOR_LAYOUTS:
        return target->traits.channels_last;
    case UL_FOR_LIBRARIES:
        return target->traits.finds_libraries;
    case UL_FOR_PLAIN:
        return !target->traits.has_threads && !target->traits.memory_is_separate;
    }
    return false;
}

/* The targets that can use an option: "c or cpu". */
static const char *fitting_targets(struct ul_arena *arena, const struct ul_option *row)
{
    struct ul_text names;
    ul_text_init(&names, arena);
    for (uint32_t i = 0; i < ul_target_count(); i++) {
        if (ul_option_fits(row, ul_target_at(i)))
            ul_text_printf(&names, "%s%s", names.length > 0 ? " or " : "",
                           ul_target_at(i)->traits.name);
    }
    return names.data;
}

/* A device that is known to be a graphics processor implies the target. */
static const struct ul_target *unnamed_target(const struct ul_compile_options *options)
{
    const struct ul_profile *device =
        options->device == NULL ? NULL : ul_profile_find(options->device);
    bool is_gpu = device != NULL && device->device.processors > 0;
    for (uint32_t i = 0; is_gpu && i < ul_target_count(); i++) {
        if (ul_target_at(i)->traits.finds_libraries)
            return ul_target_at(i);
    }
    return ul_target_default();
}

static enum ul_status find_target(struct ul_compile *compile)
{
    struct ul_nearest nearest = {.word = compile->options.target};
    const struct ul_option *row = ul_option_find(&ul_compile_option_table, "target");
    struct ul_text names;
    if (compile->options.target == NULL)
        compile->options.target = unnamed_target(&compile->options)->traits.name;
    if (ul_target_find(compile->options.target) != NULL)
        return UL_OK;
    ul_text_init(&names, &compile->keep);
    UL_ASSERT(row != NULL);
    ul_option_put_words(&names, row);
    ul_option_offer_words(&nearest, row);
    return ul_diag_set(&compile->diag, UL_UNSUPPORTED, "--target %s: expected %s%s",
                       ul_option_shown(&compile->keep, compile->options.target), names.data,
                       ul_nearest_text(&compile->keep, &nearest, ""));
}

bool ul_compile_has_budget(const struct ul_compile_options *options)
{
    return options->budget_bytes != 0 || options->device != NULL;
}

enum ul_status ul_compile_check_options(struct ul_compile *compile)
{
    const struct ul_options *options = &compile->options.base;
    for (uint32_t i = 0; i < options->table->count; i++)
        UL_TRY(ul_option_check(options, &options->table->rows[i], &compile->diag));
    return UL_OK;
}

enum ul_status ul_compile_fit(struct ul_compile *compile)
{
    const struct ul_options *options = &compile->options.base;
    bool is_named = compile->options.target != NULL;
    UL_TRY(ul_compile_check_options(compile));
    UL_TRY(find_target(compile));
    const struct ul_target *target = ul_target_find(compile->options.target);
    for (uint32_t i = 0; i < options->table->count; i++) {
        const struct ul_option *row = &options->table->rows[i];
        if (!ul_option_is_given(options, row) || ul_option_fits(row, target))
            continue;
        const char *others = fitting_targets(&compile->keep, row);
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--%s is for target %s, and this is target %s%s; leave it out%s%s%s, or "
                           "give --target %s",
                           row->name, others, target->traits.name,
                           is_named                        ? ""
                           : target == ul_target_default() ? " (the default)"
                                                           : " (as --device says)",
                           row->elsewhere != NULL ? " (" : "",
                           row->elsewhere != NULL ? row->elsewhere : "",
                           row->elsewhere != NULL ? ")" : "", others);
    }
    return UL_OK;
}

/* Multiplies by the numbers of sizes that these may have. */
static uint64_t count_points(const struct ul_named_sizes *named, uint64_t count)
{
    for (uint32_t i = 0; i < named->count; i++)
        for (uint32_t d = 0; d < named->items[i].rank; d++)
            if (named->items[i].value_count > 0)
                count = ul_size_mul_saturating(count, named->items[i].value_count);
            else if (named->items[i].spans[d] > 0)
                count = ul_size_mul_saturating(
                    count, (uint64_t)(named->items[i].spans[d] / named->items[i].steps[d]) + 1);
    return count;
}

/* Ranges of sizes do not go with these. */
static const char *range_misfit(const struct ul_compile *compile)
{
    const struct ul_compile_options *options = &compile->options;
    return options->train                 ? "--train"
           : options->spaces.count > 0    ? "--space"
           : ul_compile_offloads(options) ? "--offload"
                                          : NULL;
}

enum ul_status ul_compile_check_ranges(struct ul_compile *compile, bool is_shared)
{
    bool by_size = compile->options.offsets == UL_OFFSETS_SIZES;
    if (!ul_compile_has_ranges(&compile->options) && compile->largest == NULL && by_size)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "--offsets sizes: no size varies; give one a range, as in --dim N=1..8, "
                           "or leave it out");
    bool has_ranges = ul_compile_has_ranges(&compile->options);
    if (!has_ranges && !ul_compile_has_sets(&compile->options))
        return UL_OK;
    const struct ul_target *target = ul_target_find(compile->options.target);
    if (has_ranges && target->traits.memory_is_separate)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "target %s has no programs for a range of sizes: give each size one "
                           "value or a set, as in NAME=1,2,4, or give --target c or cpu",
                           target->traits.name);
    uint64_t points =
        count_points(&compile->options.dims, count_points(&compile->options.shapes, 1));
    if (points > UL_LIMIT_SIZE_POINTS)
        return ul_diag_set(&compile->diag, UL_UNSUPPORTED,
                           "the ranges have %" PRIu64 " combinations of sizes; a program may have "
                           "%d, each of which is compiled and compared: give smaller ranges",
                           points, UL_LIMIT_SIZE_POINTS);
    const char *with = is_shared ? "--shared" : range_misfit(compile);
    return with == NULL ? UL_OK
                        : ul_diag_set(&compile->diag, UL_USAGE,
                                      "a %s of sizes cannot be combined with %s: give each size "
                                      "one value",
                                      has_ranges ? "range" : "set", with);
}
