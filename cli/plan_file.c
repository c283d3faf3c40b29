/* The options in a plan.json: the graph that the plan is for is built again from them. */
#include "cli/cli.h"
#include "codegen/target.h"

#include <string.h>

/* The value of an option of the plan, or NULL. */
static const char *planned(const struct ul_cli_job *job, const char *name)
{
    for (uint32_t i = 0; i < job->plan_header.option_count; i++) {
        if (strcmp(job->plan_header.options[i].name, name) == 0)
            return job->plan_header.options[i].value;
    }
    return NULL;
}

/* What only the making of plans reads. */
static enum ul_status check_planning(struct ul_cli_job *job)
{
    static const enum ul_cli_option_id ids[] = {UL_CLI_ALIGN, UL_CLI_ORDER,      UL_CLI_REMAT,
                                                UL_CLI_PACK,  UL_CLI_TIME_LIMIT, UL_CLI_SEED,
                                                UL_CLI_SWEEP};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        if (job->options.given[ids[i]])
            return ul_diag_set(
                &job->diag, UL_USAGE,
                "--%s is for making a plan: it takes no --plan; leave one of them out",
                ul_cli_option_name(ids[i]));
    }
    return UL_OK;
}

/* What numbers the program computes with is the plan's: another choice may have the same bytes,
 * and would pass for the plan. */
static enum ul_status check_numbers(struct ul_cli_job *job)
{
    const char *precision = planned(job, "precision");
    const char *given = job->options.precision;
    precision = precision == NULL ? "fp32" : precision;
    if (given != NULL && strcmp(given, precision) != 0)
        return ul_diag_set(&job->diag, UL_MISMATCH,
                           "the plan was made with --precision %s, not %s; leave the option out",
                           precision, given);
    if (job->options.tf32 && planned(job, "tf32") == NULL)
        return ul_diag_set(&job->diag, UL_MISMATCH,
                           "the plan was made without --tf32; leave the option out");
    return UL_OK;
}

/* So is what a device's libraries compute, and the scratch that they do it in: with less of it they
 * take other algorithms, of other bits, in ranges of the same plan. */
static enum ul_status check_libraries(struct ul_cli_job *job)
{
    const struct ul_cli_options *options = &job->options;
    const char *workspace = planned(job, "workspace");
    const char *cudnn = planned(job, "with-cudnn");
    uint64_t given_bytes, planned_bytes;
    if (workspace != NULL && options->workspace != NULL &&
        ul_size_parse(options->workspace, &given_bytes) &&
        ul_size_parse(workspace, &planned_bytes) && given_bytes != planned_bytes)
        return ul_diag_set(&job->diag, UL_MISMATCH,
                           "the plan was made with --workspace %s, not %s; leave the option out",
                           workspace, options->workspace);
    if (cudnn != NULL && options->with_cudnn != NULL &&
        (strcmp(options->with_cudnn, "on") == 0 || strcmp(options->with_cudnn, "off") == 0) &&
        (strcmp(options->with_cudnn, "off") == 0) != (strcmp(cudnn, "off") == 0))
        return ul_diag_set(&job->diag, UL_MISMATCH,
                           "the plan was made with cuDNN %s, not %s; leave --with-cudnn out", cudnn,
                           options->with_cudnn);
    return UL_OK;
}

/* The option of the plan for the same name as in "NAME=VALUE" (names may hold a '='), or NULL. */
static const char *planned_pair(const struct ul_cli_job *job, const char *option, const char *pair)
{
    const char *equals = strrchr(pair, '=');
    size_t length = equals == NULL ? 0 : (size_t)(equals + 1 - pair);
    for (uint32_t i = 0; length > 0 && i < job->plan_header.option_count; i++) {
        const struct ul_report_option *other = &job->plan_header.options[i];
        if (strcmp(other->name, option) == 0 && strncmp(other->value, pair, length) == 0 &&
            strchr(other->value + length, '=') == NULL)
            return other->value;
    }
    return NULL;
}

/* A plan comes from anywhere: what could move a terminal's cursor is quoted. */
static const char *word(struct ul_arena *arena, const char *text)
{
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.,:/=+@%-";
    return strspn(text, plain) == strlen(text) ? text : ul_quote(arena, text);
}

/* Sizes that differ make another graph, of which a plan fits nothing. */
static enum ul_status check_sizes(struct ul_cli_job *job, const char *option,
                                  const struct ul_cli_list *given)
{
    for (uint32_t i = 0; i < given->count; i++) {
        const char *own = planned_pair(job, option, given->items[i]);
        if (own != NULL && strcmp(own, given->items[i]) != 0)
            return ul_diag_set(&job->diag, UL_MISMATCH,
                               "the plan was made with --%s %s, not %s; leave the option out, or "
                               "make another plan",
                               option, word(&job->keep, own), word(&job->keep, given->items[i]));
    }
    return UL_OK;
}

static bool has_name(const struct ul_cli_list *list, const char *pair)
{
    const char *equals = strrchr(pair, '=');
    size_t length = equals == NULL ? 0 : (size_t)(equals + 1 - pair);
    for (uint32_t i = 0; i < list->count; i++) {
        if (strncmp(list->items[i], pair, length) == 0)
            return true;
    }
    return false;
}

/* What the command line said itself stands. */
static enum ul_status apply_plan_options(struct ul_cli_job *job)
{
    const struct ul_report_header *header = &job->plan_header;
    struct ul_cli_options *options = &job->options;
    bool no_dims = options->dims.count == 0;
    bool no_shapes = options->shapes.count == 0;
    bool no_passes = options->no_passes.count == 0;
    bool own_profile = options->profile != NULL;
    bool no_splits = options->splits.count == 0;
    for (uint32_t i = 0; i < header->option_count; i++) {
        const struct ul_report_option *option = &header->options[i];
        if (strcmp(option->name, "dim") == 0) {
            if (no_shapes && !has_name(&options->dims, option->value))
                ul_cli_list_add(&job->keep, &options->dims, option->value);
        } else if (strcmp(option->name, "shape") == 0) {
            if (no_dims && !has_name(&options->shapes, option->value))
                ul_cli_list_add(&job->keep, &options->shapes, option->value);
        } else if (strcmp(option->name, "no-pass") == 0) {
            if (no_passes)
                ul_cli_list_add(&job->keep, &options->no_passes, option->value);
        } else if (strcmp(option->name, "split") == 0) {
            if (no_splits)
                ul_cli_list_add(&job->keep, &options->splits, option->value);
        } else if (strcmp(option->name, "keep-inputs") == 0) {
            options->keep_inputs = true;
        } else if (strcmp(option->name, "weights") == 0) {
            options->weights = options->weights != NULL ? options->weights : option->value;
        } else if (strcmp(option->name, "io") == 0) {
            options->io = options->io != NULL ? options->io : option->value;
        } else if (strcmp(option->name, "threads") == 0) {
            options->threads = options->threads != NULL ? options->threads : option->value;
        } else if (strcmp(option->name, "isa") == 0) {
            options->isa = options->isa != NULL ? options->isa : option->value;
        } else if (strcmp(option->name, "conv") == 0) {
            options->conv = options->conv != NULL ? options->conv : option->value;
        } else if (strcmp(option->name, "workspace") == 0) {
            options->workspace = options->workspace != NULL ? options->workspace : option->value;
        } else if (strcmp(option->name, "with-cudnn") == 0) {
            bool looks = options->with_cudnn == NULL || strcmp(options->with_cudnn, "auto") == 0;
            options->with_cudnn = looks ? option->value : options->with_cudnn;
        } else if (strcmp(option->name, "tf32") == 0) {
            options->tf32 = true;
        } else if (strcmp(option->name, "precision") == 0) {
            options->precision = options->precision != NULL ? options->precision : option->value;
        } else if (strcmp(option->name, "profile") == 0) {
            options->profile = own_profile ? options->profile : option->value;
        } else if (strcmp(option->name, "profile-sha256") == 0) {
            options->profile_sha256 = own_profile ? NULL : option->value;
        } else if (strcmp(option->name, "profile-text") == 0) {
            options->profile_text = own_profile ? NULL : option->value;
        } else if (strcmp(option->name, "const") != 0 && strcmp(option->name, "remat") != 0) {
            return ul_diag_set(&job->diag, UL_UNSUPPORTED, "option %s is not known",
                               ul_quote(&job->keep, option->name));
        }
    }
    return UL_OK;
}

/* The plan's target, which a command may name as well. */
static enum ul_status apply_target(struct ul_cli_job *job)
{
    const struct ul_report_header *header = &job->plan_header;
    const char *given = job->options.target;
    const struct ul_target *target = ul_target_find(header->target);
    if (given != NULL && strcmp(given, header->target) != 0)
        return ul_diag_set(&job->diag, UL_USAGE, "the plan is for target %s, not for %s",
                           ul_quote(&job->keep, header->target), given);
    job->options.target = header->target;
    for (uint32_t i = 0; target != NULL && i < header->option_count; i++) {
        if (!ul_cli_option_fits(header->options[i].name, target))
            return ul_diag_set(&job->diag, UL_INVALID,
                               "the plan's option %s is not one of its target %s",
                               ul_quote(&job->keep, header->options[i].name), target->name);
    }
    return ul_cli_fit_target(job);
}

enum ul_status ul_cli_read_plan(struct ul_cli_job *job)
{
    const char *path = job->options.plan;
    struct ul_file file;
    UL_TRY(check_planning(job));
    UL_TRY(ul_file_map(&file, &job->keep, path, &job->diag));
    enum ul_status status =
        ul_report_read_header(&job->keep, (const char *)file.data, (size_t)file.size_bytes,
                              &job->plan_header, &job->diag);
    ul_file_unmap(&file);
    if (status == UL_OK)
        status = apply_target(job);
    if (status == UL_OK)
        status = check_sizes(job, "dim", &job->options.dims);
    if (status == UL_OK)
        status = check_sizes(job, "shape", &job->options.shapes);
    if (status == UL_OK)
        status = check_numbers(job);
    if (status == UL_OK)
        status = check_libraries(job);
    if (status == UL_OK)
        status = apply_plan_options(job);
    if (status != UL_OK)
        ul_diag_prefix(&job->diag, path);
    return status;
}

bool ul_cli_is_other_model(const struct ul_cli_job *job)
{
    return job->options.plan != NULL && job->loaded && job->model.sha256[0] != '\0' &&
           strcmp(job->plan_header.model_sha256, job->model.sha256) != 0;
}

enum ul_status ul_cli_report_other_model(struct ul_cli_job *job)
{
    job->diag = (struct ul_diag){0};
    return ul_diag_set(&job->diag, UL_MISMATCH, "%s: was made for another model (SHA-256 %s)",
                       job->options.plan, ul_quote(&job->keep, job->plan_header.model_sha256));
}

/* Whether the command says something itself of the graph that the plan is for. */
static bool has_own_options(const struct ul_cli_job *job)
{
    static const enum ul_cli_option_id ids[] = {UL_CLI_DIM,         UL_CLI_SHAPE,   UL_CLI_CONST,
                                                UL_CLI_NO_PASS,     UL_CLI_SPLIT,   UL_CLI_IO,
                                                UL_CLI_WEIGHTS,     UL_CLI_THREADS, UL_CLI_ISA,
                                                UL_CLI_KEEP_INPUTS, UL_CLI_CONV,    UL_CLI_PROFILE};
    bool has = false;
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++)
        has = has || job->options.given[ids[i]];
    return has;
}

const char *ul_cli_plan_options(struct ul_cli_job *job)
{
    struct ul_text text;
    if (!has_own_options(job))
        return NULL;
    ul_text_init(&text, &job->keep);
    for (uint32_t i = 0; i < job->plan_header.option_count; i++) {
        const struct ul_report_option *option = &job->plan_header.options[i];
        if (strncmp(option->name, "profile-", strlen("profile-")) == 0)
            continue; /* what the profile is, not how it was asked for */
        ul_text_printf(&text, "%s--%s", i == 0 ? "" : " ", option->name);
        if (option->value[0] == '\0')
            continue;
        ul_text_put(&text, " ");
        ul_text_put(&text, word(&job->keep, option->value));
    }
    return job->plan_header.option_count == 0 ? "no options" : text.data;
}
