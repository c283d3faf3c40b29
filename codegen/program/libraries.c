/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries of a target, which a compile opens and closes together. */
#include "codegen/program/library_internal.h"
#include "codegen/program/target.h"

enum ul_status ul_own_open(struct ul_arena *arena, const struct ul_program_options *options,
                           struct ul_target_library *library, struct ul_diag *diag)
{
    struct ul_own *own = UL_NEW(arena, struct ul_own);
    (void)diag;
    *own = (struct ul_own){.arena = arena, .thread_count = options->thread_count};
    library->context = own;
    return UL_OK;
}

bool ul_own_reopen(void *context, const struct ul_program_options *options)
{
    const struct ul_own *own = context;
    return own->thread_count == options->thread_count;
}

enum ul_status ul_libraries_open(struct ul_arena *arena, const struct ul_program_options *options,
                                 const struct ul_libraries **out, struct ul_diag *diag)
{
    const struct ul_target_library *const *wanted = options->target->libraries;
    uint32_t count = 0;
    while (wanted != NULL && wanted[count] != NULL)
        count++;
    *out = NULL;
    if (count == 0)
        return UL_OK;
    struct ul_libraries *libraries = UL_NEW(arena, struct ul_libraries);
    libraries->name = options->target->libraries_name;
    libraries->target = options->target;
    libraries->rows = UL_NEW_ARRAY(arena, struct ul_target_library, count);
    libraries->chosen_at_start = true;
    for (; libraries->count < count; libraries->count++) {
        struct ul_target_library *row = &libraries->rows[libraries->count];
        *row = *wanted[libraries->count];
        enum ul_status status = row->open != NULL ? row->open(arena, options, row, diag) : UL_OK;
        if (status != UL_OK) {
            ul_libraries_close(libraries);
            return status;
        }
        libraries->isa = libraries->isa == NULL ? row->isa : libraries->isa;
        libraries->march = libraries->march == NULL ? row->march : libraries->march;
        libraries->chosen_at_start = libraries->chosen_at_start && row->chosen_at_start;
        libraries->has_slopes = libraries->has_slopes || row->has_slopes;
        if (row->max_sums_bytes > libraries->max_sums_bytes)
            libraries->max_sums_bytes = row->max_sums_bytes;
    }
    *out = libraries;
    return UL_OK;
}

bool ul_libraries_reopen(const struct ul_libraries *libraries,
                         const struct ul_program_options *options)
{
    bool good = libraries->target == options->target;
    for (uint32_t i = 0; good && i < libraries->count; i++) {
        const struct ul_target_library *row = &libraries->rows[i];
        good = row->reopen != NULL && row->reopen(row->context, options);
    }
    return good;
}

void ul_libraries_close(const struct ul_libraries *libraries)
{
    for (uint32_t i = 0; i < libraries->count; i++) {
        if (libraries->rows[i].close != NULL)
            libraries->rows[i].close(libraries->rows[i].context);
    }
}
