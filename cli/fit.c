/* Which options are for which targets. An option that a target has no use for is an error, not
 * silence: whoever gives it expects something of it. */
#include "cli/cli.h"
#include "codegen/target.h"

#include <string.h>

enum audience {
    FOR_ALL,
    FOR_HOSTS,    /* programs that a C compiler makes */
    FOR_MACHINES, /* plans made for a processor and its library */
    FOR_DEVICES
};

static enum audience audience_of(enum ul_cli_option_id id)
{
    static const enum audience rows[UL_CLI_OPTION_COUNT] = {
        [UL_CLI_CC] = FOR_HOSTS,           [UL_CLI_MARCH] = FOR_HOSTS,
        [UL_CLI_THREADS] = FOR_MACHINES,   [UL_CLI_ISA] = FOR_MACHINES,
        [UL_CLI_CONV] = FOR_MACHINES,      [UL_CLI_WORKSPACE] = FOR_DEVICES,
        [UL_CLI_WITH_CUDNN] = FOR_DEVICES, [UL_CLI_TF32] = FOR_DEVICES,
        [UL_CLI_NVCC] = FOR_DEVICES,
    };
    return rows[id];
}

static bool fits(enum ul_cli_option_id id, const struct ul_target *target)
{
    enum audience audience = audience_of(id);
    return audience == FOR_ALL || (audience == FOR_HOSTS && !target->is_device) ||
           (audience == FOR_MACHINES && target->has_threads) ||
           (audience == FOR_DEVICES && target->is_device);
}

/* The targets that an option is for: "c or cpu". */
static const char *fitting_targets(struct ul_arena *arena, enum ul_cli_option_id id)
{
    struct ul_text names;
    ul_text_init(&names, arena);
    for (uint32_t i = 0; i < ul_target_count(); i++) {
        if (fits(id, ul_target_at(i)))
            ul_text_printf(&names, "%s%s", names.length > 0 ? " or " : "", ul_target_at(i)->name);
    }
    return names.data;
}

static enum ul_status find_target(struct ul_cli_job *job)
{
    struct ul_text names;
    if (job->options.target == NULL)
        job->options.target = "cpu";
    if (ul_target_find(job->options.target) != NULL)
        return UL_OK;
    ul_text_init(&names, &job->keep);
    for (uint32_t i = 0; i < ul_target_count(); i++)
        ul_text_printf(&names, "%s%s",
                       i == 0                      ? ""
                       : i + 1 < ul_target_count() ? ", "
                                                   : " and ",
                       ul_target_at(i)->name);
    return ul_diag_set(&job->diag, UL_UNSUPPORTED,
                       "--target %s: this version of ullage has the targets %s",
                       job->options.target, names.data);
}

enum ul_status ul_cli_fit_target(struct ul_cli_job *job)
{
    bool is_default = job->options.target == NULL;
    UL_TRY(find_target(job));
    const struct ul_target *target = ul_target_find(job->options.target);
    for (int i = 0; i < UL_CLI_OPTION_COUNT; i++) {
        enum ul_cli_option_id id = (enum ul_cli_option_id)i;
        if (!job->options.given[id] || fits(id, target))
            continue;
        const char *others = fitting_targets(&job->keep, id);
        return ul_diag_set(
            &job->diag, UL_USAGE,
            "--%s is for target %s, and this is target %s%s; leave it out%s, or "
            "give --target %s",
            ul_cli_option_name(id), others, target->name, is_default ? " (the default)" : "",
            id == UL_CLI_CC ? " (--nvcc names the compiler of this one)" : "", others);
    }
    return UL_OK;
}

bool ul_cli_option_fits(const char *name, const struct ul_target *target)
{
    for (int i = 0; i < UL_CLI_OPTION_COUNT; i++) {
        enum ul_cli_option_id id = (enum ul_cli_option_id)i;
        if (strcmp(name, ul_cli_option_name(id)) == 0)
            return fits(id, target);
    }
    return true;
}
