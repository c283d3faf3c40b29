/* The methods of packing: first-fit in several orders, stopped early when one meets the bound;
 * repair of the best for large instances; and the exact search, which may also raise the bound.
 * All of them run from the cheapest to the dearest, and the best packing is kept. */
#include "planner/model/effort.h"
#include "planner/pack/pack_exact.h"
#include "planner/pack/pack_internal.h"

#include <string.h>

static uint64_t options_work(const struct ul_pack_options *options)
{
    return options->work_limit != 0 ? options->work_limit : UL_WORK_PACK;
}

static bool best_offer(struct ul_pack_best *best, uint64_t arena_bytes, const char *method)
{
    if (arena_bytes < best->arena_bytes) {
        uint64_t *swap = best->offset_bytes;
        best->offset_bytes = best->trial_bytes;
        best->trial_bytes = swap;
        best->arena_bytes = arena_bytes;
        best->method = method;
    }
    return best->arena_bytes <= best->target_bytes;
}

static bool effort_done(struct ul_pack_effort *effort, struct ul_pack_best *best,
                        const char *method)
{
    if (effort->found) {
        memcpy(best->offset_bytes, effort->offset_bytes,
               sizeof *best->offset_bytes * best->buffer_count);
        best->arena_bytes = effort->arena_bytes;
        best->method = method;
    }
    UL_ASSERT(best->arena_bytes >= effort->arena_bytes);
    effort->found = false;
    return effort->arena_bytes <= effort->target_bytes || ul_pack_exhausted(effort);
}

/* Small instances are searched, those too large for it repaired; in between, and where the search
 * does not see the instance as it is, repair comes first. */
static void efforts_run(struct ul_pack_job *job, struct ul_pack_effort *effort)
{
    enum { SMALL = 400 };
    static const uint64_t max_work = (uint64_t)480 << 20, a_little = 1u << 22;
    const struct ul_pack_problem *problem = job->problem;
    bool large = problem->buffer_count > UL_PACK_EXACT_BUFFERS;
    bool plain = true;
    for (uint32_t b = 0; b < problem->buffer_count; b++)
        plain = plain && !problem->buffers[b].pinned && problem->buffers[b].gap_count == 0;
    if (large || !plain || problem->buffer_count > SMALL) {
        uint64_t quarter = options_work(job->options) / 4;
        uint64_t allowed = quarter < a_little ? quarter : a_little;
        if (large)
            allowed = job->options->time_limit_seconds > 0 ? UINT64_MAX : max_work;
        ul_pack_repair(problem, effort, allowed);
        if (effort_done(effort, job->best, "repair"))
            return;
    }
    if (!large)
        ul_pack_exact(problem, effort);
    effort_done(effort, job->best, "exact search");
}

/* What goes on from the best so far. */
static struct ul_pack_effort effort_begin(struct ul_pack_job *job)
{
    struct ul_pack_best *best = job->best;
    memcpy(best->trial_bytes, best->offset_bytes, sizeof *best->trial_bytes * best->buffer_count);
    return (struct ul_pack_effort){.deadline_seconds = job->deadline_seconds,
                                   .capacity_bytes = job->options->capacity_bytes,
                                   .target_bytes = best->target_bytes,
                                   .work_limit = options_work(job->options),
                                   .arena_bytes = best->arena_bytes,
                                   .bound_bytes = job->problem->bound_bytes,
                                   .offset_bytes = best->trial_bytes};
}

static void effort_end(struct ul_pack_job *job, const struct ul_pack_effort *effort)
{
    UL_ASSERT(effort->bound_bytes >= job->problem->bound_bytes);
    job->problem->bound_bytes = effort->bound_bytes;
    job->result->work = effort->work;
    job->result->stopped_by_time = effort->stopped_by_time;
}

/* ---- The rows ---- */

void ul_pack_run_greedy(struct ul_pack_job *job)
{
    static const uint64_t max_work = 1u << 26; /* huge instances get fewer orders */
    uint64_t work = 0;
    for (uint32_t order = 0; order < UL_PACK_GREEDY_ORDERS && work < max_work; order++) {
        uint64_t arena_bytes = ul_pack_greedy(job->problem, order, job->best->trial_bytes, &work);
        if (best_offer(job->best, arena_bytes, ul_pack_greedy_name(order)) ||
            (job->deadline_seconds > 0 && ul_clock_seconds() >= job->deadline_seconds))
            return;
    }
}

void ul_pack_run_best(struct ul_pack_job *job)
{
    ul_pack_run_greedy(job);
    if (job->best->arena_bytes <= job->best->target_bytes)
        return;
    struct ul_pack_effort effort = effort_begin(job);
    efforts_run(job, &effort);
    effort_end(job, &effort);
}

/* First-fit is where it starts from: it has to improve on that or prove it. */
void ul_pack_run_exact(struct ul_pack_job *job)
{
    struct ul_pack_best *best = job->best;
    ul_pack_run_greedy(job);
    best->method = "exact search: first-fit meets the bound";
    if (best->arena_bytes <= best->target_bytes)
        return;
    uint64_t start = best->arena_bytes;
    if (job->problem->buffer_count <= UL_PACK_EXACT_BUFFERS) {
        struct ul_pack_effort effort = effort_begin(job);
        ul_pack_exact(job->problem, &effort);
        effort_done(&effort, best, "exact search");
        effort_end(job, &effort);
        if (best->arena_bytes == start)
            best->method = "exact search: nothing below first-fit";
    }
    if (best->arena_bytes == start && best->arena_bytes > job->problem->bound_bytes) {
        best->method = ul_method_get(UL_METHOD_PACK, UL_PACK_EXACT)->name;
        job->result->why_not = job->problem->buffer_count <= UL_PACK_EXACT_BUFFERS
                                   ? "it is out of work before it finds or proves a packing"
                                   : "there are too many buffers for it";
    }
}
