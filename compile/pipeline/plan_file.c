/* SPDX-License-Identifier: Apache-2.0 */
/* A plan from a file: its graph is built again from the options that the plan names, unless the
 * caller gives others; then the plan is mapped onto the program and checked. */
#include "compile/compile_internal.h"

#include <string.h>

/* The value of an option in the plan, or NULL. */
static const char *planned(const struct ul_compile *compile, const char *name)
{
    for (uint32_t i = 0; i < compile->plan_header.option_count; i++) {
        if (strcmp(compile->plan_header.options[i].name, name) == 0)
            return compile->plan_header.options[i].value;
    }
    return NULL;
}

/* ---- options given with the plan ---- */

/* With a plan, --pack none asks for its steps without any reuse of bytes. */
static bool is_unfolding(const struct ul_compile *compile, const struct ul_option *row)
{
    return strcmp(row->name, "pack") == 0 && compile->options.pack == UL_PACK_NONE;
}

/* Refuses options that only making a plan reads. */
static enum ul_status check_planning(struct ul_compile *compile)
{
    const struct ul_options *options = &compile->options.base;
    for (uint32_t i = 0; i < options->table->count; i++) {
        const struct ul_option *row = &options->table->rows[i];
        if (row->record == UL_RECORD_PLANNING && ul_option_is_given(options, row) &&
            !is_unfolding(compile, row))
            return ul_diag_set(
                &compile->diag, UL_USAGE,
                "--%s is for making a plan: it takes no --plan; leave one of them out", row->name);
    }
    return UL_OK;
}

/* The plan decides with which numbers the program computes: another choice may have the same bytes,
 * and would pass for the plan. */
static enum ul_status check_fixed(struct ul_compile *compile, const struct ul_option *row)
{
    const struct ul_options *options = &compile->options.base;
    struct ul_compile_options other = {.base = {.table = options->table, .arena = &compile->keep}};
    const char *value = planned(compile, row->name);
    const char *said = ul_option_said(options, row);
    if (row->kind == UL_OPTION_FLAG && value == NULL)
        return ul_diag_set(&compile->diag, UL_MISMATCH,
                           "the plan was made without --%s; leave the option out", row->name);
    if (value != NULL)
        UL_TRY(ul_option_restore(&other.base, row, value, &compile->diag));
    const char *own = ul_option_value(options, row, 0);
    const char *theirs = ul_option_value(&other.base, row, 0);
    bool is_open = value == NULL && row->kind != UL_OPTION_WORD;
    bool agrees = row->agrees != NULL ? row->agrees(own, theirs) : strcmp(own, theirs) == 0;
    if (is_open || agrees)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_MISMATCH,
                       "the plan was made with --%s %s, not %s; leave the option out", row->name,
                       ul_option_shown(&compile->keep, theirs),
                       ul_option_shown(&compile->keep, said != NULL ? said : own));
}

static enum ul_status check_all_fixed(struct ul_compile *compile)
{
    const struct ul_options *options = &compile->options.base;
    for (uint32_t i = 0; i < options->table->count; i++) {
        const struct ul_option *row = &options->table->rows[i];
        if (row->record == UL_RECORD_FIXED && ul_option_is_given(options, row))
            UL_TRY(check_fixed(compile, row));
    }
    return UL_OK;
}

/* ---- sizes ---- */

/* The plan's option for the same name as in "NAME=VALUE" (names may hold a '='), or NULL. */
static const char *planned_sizes(const struct ul_compile *compile, const char *option,
                                 const char *name)
{
    size_t length = strlen(name);
    for (uint32_t i = 0; i < compile->plan_header.option_count; i++) {
        const struct ul_report_option *other = &compile->plan_header.options[i];
        if (strcmp(other->name, option) == 0 && strncmp(other->value, name, length) == 0 &&
            other->value[length] == '=' && strchr(other->value + length + 1, '=') == NULL)
            return other->value;
    }
    return NULL;
}

/* Other sizes make another graph, which no plan of this one fits. */
static enum ul_status check_sizes(struct ul_compile *compile, const char *option,
                                  const struct ul_named_sizes *given)
{
    const struct ul_options *options = &compile->options.base;
    const struct ul_option *row = ul_option_find(options->table, option);
    for (uint32_t i = 0; i < given->count; i++) {
        const char *own = planned_sizes(compile, option, given->items[i].name);
        const char *said = ul_option_value(options, row, i);
        if (own != NULL && strcmp(own, said) != 0)
            return ul_diag_set(&compile->diag, UL_MISMATCH,
                               "the plan was made with --%s %s, not %s; leave the option out, or "
                               "make another plan",
                               option, ul_option_shown(&compile->keep, own),
                               ul_option_shown(&compile->keep, said));
    }
    return UL_OK;
}

static bool has_name(const struct ul_named_sizes *list, const char *pair)
{
    for (uint32_t i = 0; i < list->count; i++) {
        size_t length = strlen(list->items[i].name);
        if (strncmp(list->items[i].name, pair, length) == 0 && pair[length] == '=')
            return true;
    }
    return false;
}

/* ---- options in the plan ---- */

/* The caller's own options, before the plan gives the others. */
struct own {
    bool dims, shapes, profile;
    bool rows[UL_OPTION_MAX];
};

static struct own own_options(const struct ul_compile_options *options)
{
    struct own own = {.dims = options->dims.count > 0,
                      .shapes = options->shapes.count > 0,
                      .profile = options->profile != NULL};
    for (uint32_t i = 0; i < options->base.table->count; i++)
        own.rows[i] = ul_option_is_given(&options->base, &options->base.table->rows[i]);
    return own;
}

/* The caller's options win. Shapes close dimensions and dimensions close shapes: if the caller
 * gives one, the plan does not give the other. */
static bool leaves_open(const struct ul_compile_options *options, const struct own *own,
                        const struct ul_option *row, const char *value)
{
    if (strcmp(row->name, "dim") == 0)
        return !own->shapes && !has_name(&options->dims, value);
    if (strcmp(row->name, "shape") == 0)
        return !own->dims && !has_name(&options->shapes, value);
    if (row->agrees != NULL)
        return !ul_option_is_set(&options->base, row);
    return !own->rows[row - options->base.table->rows];
}

/* Checks the form of the option in the plan: once, unless it takes several values, and printed as
 * `plan` does. Otherwise the plan would be read as something other than it shows. */
static enum ul_status check_form(struct ul_compile *compile, const struct ul_option *row,
                                 uint32_t index)
{
    const struct ul_saved *header = &compile->plan_header;
    const struct ul_report_option *option = &header->options[index];
    struct ul_arena *arena = &compile->keep;
    struct ul_compile_options alone = {.base = {.table = &ul_compile_option_table, .arena = arena}};
    bool is_list = row->kind == UL_OPTION_TEXTS || row->kind == UL_OPTION_PAIRS ||
                   row->kind == UL_OPTION_SIZES;
    for (uint32_t i = 0; i < index && !is_list; i++)
        if (strcmp(header->options[i].name, row->name) == 0)
            return ul_diag_set(&compile->diag, UL_MISMATCH, "option %s is there twice",
                               ul_quote(arena, row->name));
    if (row->record == UL_RECORD_NAME) /* it has no value */
        return UL_OK;
    struct ul_diag diag = {0};
    bool is_read = ul_option_restore(&alone.base, row, option->value, &diag) == UL_OK;
    if (!is_read)
        return ul_diag_set(&compile->diag, UL_INVALID, "in its options: %s", diag.text);
    const char *own = ul_option_value(&alone.base, row, 0);
    if (strcmp(own, option->value) == 0)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_MISMATCH, "option %s is %s, and a plan has %s of that",
                       ul_quote(arena, row->name), ul_quote(arena, option->value),
                       ul_quote(arena, own));
}

/* The device is known by name, or described in the plan: a path in a plan is not followed. */
static enum ul_status check_profile(struct ul_compile *compile)
{
    const char *name = planned(compile, "profile");
    bool is_known = name == NULL || ul_profile_find(name) != NULL ||
                    planned(compile, "profile-text") != NULL || compile->options.profile != NULL;
    if (is_known)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_MISMATCH,
                       "its profile %s is none that ullage profile --list knows, and the plan does "
                       "not hold it; make another plan",
                       ul_quote(&compile->keep, name));
}

static enum ul_status check_forms(struct ul_compile *compile)
{
    for (uint32_t i = 0; i < compile->plan_header.option_count; i++) {
        const char *name = compile->plan_header.options[i].name;
        const struct ul_option *row = ul_option_find(&ul_compile_option_table, name);
        if (row == NULL || row->record == UL_RECORD_NONE)
            return ul_diag_set(&compile->diag, UL_UNSUPPORTED, "option %s is not known",
                               ul_quote(&compile->keep, name));
        UL_TRY(check_form(compile, row, i));
    }
    return check_profile(compile);
}

static enum ul_status apply_options(struct ul_compile *compile)
{
    struct ul_compile_options *options = &compile->options;
    struct own own = own_options(options);
    for (uint32_t i = 0; i < compile->plan_header.option_count; i++) {
        const struct ul_report_option *option = &compile->plan_header.options[i];
        const struct ul_option *row = ul_option_find(options->base.table, option->name);
        bool is_back = row->record == UL_RECORD_CHOICE || row->record == UL_RECORD_FIXED;
        if (is_back && leaves_open(options, &own, row, option->value))
            UL_TRY(ul_option_restore(&options->base, row, option->value, &compile->diag));
    }
    if (own.profile) {
        options->profile_sha256 = NULL;
        options->profile_text = NULL;
    }
    return UL_OK;
}

/* Sets the plan's target, which a command may name too. */
static enum ul_status apply_target(struct ul_compile *compile)
{
    const struct ul_saved *header = &compile->plan_header;
    const char *given = compile->options.target;
    const struct ul_target *target = ul_target_find(header->target);
    if (given != NULL && strcmp(given, header->target) != 0)
        return ul_diag_set(&compile->diag, UL_USAGE, "the plan is for target %s, not for %s",
                           ul_quote(&compile->keep, header->target), given);
    compile->options.target = header->target;
    for (uint32_t i = 0; target != NULL && i < header->option_count; i++) {
        const struct ul_option *row =
            ul_option_find(&ul_compile_option_table, header->options[i].name);
        if (row != NULL && !ul_option_fits(row, target))
            return ul_diag_set(&compile->diag, UL_INVALID,
                               "the plan's option %s is not one of its target %s",
                               ul_quote(&compile->keep, row->name), target->traits.name);
    }
    return ul_compile_fit(compile);
}

static enum ul_status apply_header(struct ul_compile *compile)
{
    UL_TRY(apply_target(compile));
    UL_TRY(check_forms(compile));
    UL_TRY(check_sizes(compile, "dim", &compile->options.dims));
    UL_TRY(check_sizes(compile, "shape", &compile->options.shapes));
    UL_TRY(check_all_fixed(compile));
    return apply_options(compile);
}

enum ul_status ul_compile_read_header(struct ul_compile *compile)
{
    const char *path = compile->options.plan;
    struct ul_file file;
    UL_TRY(check_planning(compile));
    UL_TRY(ul_file_map(&file, &compile->keep, path, &compile->diag));
    enum ul_status status =
        ul_report_read_header(&compile->keep, (const char *)file.data, (size_t)file.size_bytes,
                              &compile->plan_header, &compile->diag);
    if (status == UL_OK)
        status = apply_header(compile);
    return ul_file_close(&file, path, status, &compile->diag);
}

/* ---- another model, other options ---- */

static bool is_other(const struct ul_onnx_model *model, const char *planned_sha256)
{
    return model->sha256[0] != '\0' && strcmp(model->sha256, planned_sha256) != 0;
}

/* The first of several models that is not the plan's; UL_NONE: none of those read so far. */
static uint32_t find_other(const struct ul_compile *compile)
{
    for (uint32_t r = 0; r < compile->root_count && r < compile->plan_header.model_count; r++) {
        const struct ul_compile *part = compile->roots[r].part;
        if (part != NULL && is_other(&part->model, compile->plan_header.models[r].sha256))
            return r;
    }
    return UL_NONE;
}

bool ul_compile_is_other_model(const struct ul_compile *compile)
{
    return compile->options.plan != NULL &&
           (find_other(compile) != UL_NONE ||
            is_other(&compile->model, compile->plan_header.model_sha256));
}

enum ul_status ul_compile_report_other_model(struct ul_compile *compile)
{
    uint32_t other = find_other(compile);
    compile->diag = (struct ul_diag){0};
    if (other != UL_NONE)
        return ul_diag_set(&compile->diag, UL_MISMATCH,
                           "%s: has %s as its model %u, which is another file (SHA-256 %s) than %s",
                           compile->options.plan,
                           ul_quote(&compile->keep, compile->plan_header.models[other].file),
                           other + 1,
                           ul_quote(&compile->keep, compile->plan_header.models[other].sha256),
                           compile->roots[other].path);
    return ul_diag_set(&compile->diag, UL_MISMATCH, "%s: was made for another model (SHA-256 %s)",
                       compile->options.plan,
                       ul_quote(&compile->keep, compile->plan_header.model_sha256));
}

/* Whether the caller gives any option that changes the plan's graph. */
static bool says_of_graph(const struct ul_options *options)
{
    for (uint32_t i = 0; i < options->table->count; i++) {
        const struct ul_option *row = &options->table->rows[i];
        bool is_of_graph = row->record == UL_RECORD_CHOICE || row->record == UL_RECORD_NAME;
        if (is_of_graph && ul_option_said(options, row) != NULL)
            return true; /* restored options were not given */
    }
    return false;
}

/* The options with which the plan was made, as they are typed: "--dim N=1". */
static const char *options_text(struct ul_compile *compile)
{
    struct ul_text text;
    ul_text_init(&text, &compile->keep);
    for (uint32_t i = 0; i < compile->plan_header.option_count; i++) {
        const struct ul_report_option *option = &compile->plan_header.options[i];
        if (ul_option_find(&ul_compile_option_table, option->name)->commands == 0)
            continue; /* the profile itself matters, not how it was asked for */
        ul_text_printf(&text, "%s--%s", i == 0 ? "" : " ", option->name);
        if (option->value[0] == '\0')
            continue;
        ul_text_put(&text, " ");
        ul_text_put(&text, ul_option_shown(&compile->keep, option->value));
    }
    return compile->plan_header.option_count == 0 ? "no options" : text.data;
}

/* ---- the plan itself ---- */

static enum ul_status check_alignment(struct ul_compile *compile)
{
    uint64_t alignment = compile->plan.alignment_bytes;
    uint32_t calls = ul_program_call_align(compile->program);
    if (alignment < UL_PROGRAM_MIN_ALIGN_BYTES)
        return ul_diag_set(&compile->diag, UL_MISMATCH,
                           "its alignment is %llu bytes; elements need up to %d",
                           (unsigned long long)alignment, UL_PROGRAM_MIN_ALIGN_BYTES);
    if (alignment < calls)
        return ul_diag_set(&compile->diag, UL_MISMATCH,
                           "its alignment is %llu bytes; library calls need %u (--align)",
                           (unsigned long long)alignment, calls);
    return UL_OK;
}

/* Plans the steps without any reuse; `beside` keeps the plan's unit of a budget. */
static enum ul_status unfold(struct ul_compile *compile)
{
    struct ul_process_overhead overhead = ul_compile_overhead(compile, compile->program);
    UL_TRY(
        ul_plan_unfold(&compile->keep, compile->program->problem, &compile->plan, &compile->diag));
    compile->plan.bounded_bytes = ul_plan_bounded_bytes(&overhead, &compile->plan);
    compile->plan.smallest_budget_bytes = compile->plan.bounded_bytes;
    return UL_OK;
}

static enum ul_status read_plan(struct ul_compile *compile)
{
    const struct ul_problem *problem = compile->program->problem;
    UL_TRY(ul_report_read_plan(&compile->keep, &compile->plan_header, problem, &compile->plan,
                               &compile->diag));
    UL_TRY(ul_plan_check(&compile->scratch, problem, &compile->plan, &compile->diag));
    if (compile->options.pack == UL_PACK_NONE)
        UL_TRY(unfold(compile));
    ul_plan_drop_overhead(&compile->keep, problem, &compile->plan);
    return check_alignment(compile);
}

enum ul_status ul_compile_read_plan(struct ul_compile *compile)
{
    enum ul_status status = read_plan(compile);
    if (status == UL_OK) {
        /* the budget is the caller's, not that of the plan */
        struct ul_process_overhead overhead = ul_compile_overhead(compile, compile->program);
        ul_plan_judge(compile->program->problem, compile->options.budget_bytes, &overhead,
                      &compile->plan);
        return UL_OK;
    }
    if (ul_compile_is_other_model(compile))
        return ul_compile_report_other_model(compile);
    if ((status == UL_MISMATCH || status == UL_INVALID) && says_of_graph(&compile->options.base)) {
        const char *why = ul_arena_copy_string(&compile->keep, compile->diag.text);
        compile->diag = (struct ul_diag){0};
        status = ul_diag_set(&compile->diag, UL_MISMATCH,
                             "%s (the plan was made with %s; give the same, or make another)", why,
                             options_text(compile));
    }
    ul_diag_prefix(&compile->diag, compile->options.plan);
    return status;
}

/* A device is a profile by name, with the memory that the profile gives. */
static enum ul_status check_device(struct ul_compile *compile)
{
    const struct ul_saved *header = &compile->plan_header;
    const struct ul_profile *profile = &compile->profile;
    if (!header->has_device || (strcmp(header->device.name, profile->name) == 0 &&
                                header->device.memory_bytes == profile->memory_bytes))
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_MISMATCH,
                       "%s: \"device\" is not the plan's profile, %s, of %llu bytes",
                       compile->options.plan, ul_quote(&compile->keep, profile->name),
                       (unsigned long long)profile->memory_bytes);
}

enum ul_status ul_compile_check_said(struct ul_compile *compile, uint64_t sample_count,
                                     struct ul_report_words *words)
{
    struct ul_file file;
    UL_ASSERT(compile->options.plan != NULL && compile->json.length > 0);
    UL_TRY(check_device(compile));
    UL_TRY(ul_file_map(&file, &compile->keep, compile->options.plan, &compile->diag));
    const char *text = (const char *)file.data;
    size_t length = (size_t)file.size_bytes;
    enum ul_status status = ul_report_check_said(&compile->keep, text, length, &compile->json,
                                                 sample_count, words, &compile->diag);
    return ul_file_close(&file, compile->options.plan, status, &compile->diag);
}

/* Whether the plan gives each part of the process the bytes that this machine predicts. */
static bool is_predicted(const struct ul_saved *header, const struct ul_footprint *footprint)
{
    struct ul_saved own;
    ul_compile_describe_process(footprint, &own);
    return memcmp(own.process, header->process, sizeof own.process) == 0 &&
           own.process_peak_at_start == header->process_peak_at_start &&
           own.process_lacks == header->process_lacks;
}

enum ul_status ul_compile_check_process(struct ul_compile *compile)
{
    struct ul_footprint footprint;
    const struct ul_saved *header = &compile->plan_header;
    const struct ul_program *program = compile->program;
    UL_ASSERT(compile->options.plan != NULL && compile->plan.reserved_bytes != NULL);
    struct ul_plan plan = ul_plan_keep(&compile->keep, program->problem, &compile->plan);
    ul_footprint_count_overhead(program, ul_saved_is_whole(header));
    ul_plan_place_overhead(&compile->keep, program->problem, &plan);
    ul_footprint_count(program, &plan, ul_saved_is_whole(header), &footprint);
    if (header->process_bytes == footprint.total_bytes && !is_predicted(header, &footprint))
        return ul_diag_set(&compile->diag, UL_MISMATCH,
                           "%s: \"process\", \"process_peak_at_start\" or \"process_lacks\" is not "
                           "what makes up the %llu bytes here",
                           compile->options.plan, (unsigned long long)footprint.total_bytes);
    if (header->process_bytes >= footprint.total_bytes)
        return UL_OK;
    return ul_diag_set(&compile->diag, UL_MISMATCH,
                       "%s: \"process_bytes\" is %llu, and here the program takes %llu, with the "
                       "libraries of this machine; make another plan",
                       compile->options.plan, (unsigned long long)header->process_bytes,
                       (unsigned long long)footprint.total_bytes);
}
