/* SPDX-License-Identifier: Apache-2.0 */
/* Computes rates from measured steps. A step takes the sum of its kinds of work, each at its rate,
 * and the overhead. So kinds are fitted one after the other, beginning with those that other steps
 * contain, and what is known is subtracted before the next is fitted. From several steps of a kind
 * the median is taken: a step that was disturbed, or with which a compiler was lucky, must not
 * decide. */
#include "compile/measure/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* A step's time without its overhead and its known work, at least a quarter of it. */
static double time_left(const struct ul_profile *profile, const struct ul_measured_step *step,
                        double step_ns, enum ul_work_kind kind)
{
    double left = step_ns - profile->overhead_ns;
    for (uint32_t k = 0; k < UL_WORK_KINDS; k++) {
        if (k != (uint32_t)kind && profile->rates[k] > 0)
            left -= (double)step->work->counts[k] / profile->rates[k];
    }
    return left > step_ns / 4 ? left : step_ns / 4;
}

static void fit_rate(struct ul_arena *arena, const struct ul_measured *measured,
                     enum ul_work_kind kind, struct ul_profile *profile)
{
    double *found = UL_NEW_ARRAY(arena, double, measured->step_count);
    uint32_t count = 0;
    for (uint32_t i = 0; i < measured->step_count; i++) {
        const struct ul_measured_step *step = &measured->steps[i];
        if (strcmp(step->label, ul_work_kind_name(kind)) == 0 && step->work->counts[kind] > 0)
            found[count++] =
                (double)step->work->counts[kind] / time_left(profile, step, step->min_ns, kind);
    }
    UL_ASSERT(count > 0);
    qsort(found, count, sizeof *found, compare_doubles);
    profile->rates[kind] = found[count / 2];
}

static bool is_memory(const struct ul_measured_step *step)
{
    return strcmp(step->label, "memory") == 0;
}

/* Attributes what the last steps take besides their products to bytes that no cache holds. */
static void fit_weights(const struct ul_measured *measured, struct ul_profile *profile)
{
    double rate = 0;
    for (uint32_t i = 0; i < measured->step_count; i++) {
        const struct ul_measured_step *step = &measured->steps[i];
        double found =
            (double)step->moved_bytes / time_left(profile, step, step->min_ns, UL_WORK_KINDS);
        if (!is_memory(step))
            rate = found > rate ? found : rate;
    }
    UL_ASSERT(rate > 0);
    profile->weights_rate = rate;
}

/* Whether a cache that holds the matrix still holds it after a run, judged by its speed: at least
 * twice that of memory, on average, since a lucky run may find it there. Otherwise only the levels
 * below that size count. */
static void fit_held(const struct ul_measured_step *step, struct ul_profile *profile)
{
    UL_ASSERT(strcmp(step->label, "held") == 0 && profile->weights_rate > 0);
    double rate =
        (double)step->moved_bytes / time_left(profile, step, step->mean_ns, UL_WORK_KINDS);
    if (rate >= 2 * profile->weights_rate)
        return;
    profile->held_weight_bytes = 1;
    for (uint32_t i = 0; i < profile->level_count; i++) {
        if (profile->levels[i].capacity_bytes < step->moved_bytes)
            profile->held_weight_bytes = profile->levels[i].capacity_bytes;
    }
}

/* Fits a level for each size of the memory program, from the fastest step of that size; a size that
 * is no slower than the one before joins its level. The geometric mean of two sizes separates their
 * levels. */
static void fit_levels(const struct ul_measured *measured, struct ul_profile *profile)
{
    uint32_t count = 0;
    uint64_t before = 0; /* the previous size */
    for (uint32_t i = 0; i < measured->step_count && is_memory(&measured->steps[i]);) {
        uint64_t moved = measured->steps[i].moved_bytes;
        double rate = 0;
        for (; i < measured->step_count && measured->steps[i].moved_bytes == moved; i++) {
            double busy = measured->steps[i].min_ns - profile->overhead_ns;
            double min = measured->steps[i].min_ns / 4;
            double found = (double)moved / (busy > min ? busy : min);
            rate = found > rate ? found : rate;
        }
        UL_ASSERT(moved > before);
        if (count > 0)
            profile->levels[count - 1].capacity_bytes =
                (uint64_t)sqrt((double)before * (double)moved);
        if (count == 0 || rate < 0.95 * profile->levels[count - 1].rate)
            profile->levels[count++].rate = rate;
        UL_ASSERT(count <= UL_PROFILE_LEVELS);
        before = moved;
    }
    profile->levels[count - 1].capacity_bytes = UINT64_MAX;
    profile->level_count = count;
}

/* What reading the clock between steps adds to each: steps of one element take that and their
 * overhead, which a run without the clock gives. It is subtracted from all measurements. */
static void leave_out_clock(const struct ul_measured *empty, double overhead_ns,
                            struct ul_measured *measured)
{
    double clock_ns = INFINITY;
    for (uint32_t i = 0; i < empty->step_count; i++)
        clock_ns = fmin(clock_ns, empty->steps[i].min_ns - overhead_ns);
    UL_ASSERT(clock_ns < INFINITY);
    for (uint32_t i = 0; clock_ns > 0 && i < measured->step_count; i++) {
        struct ul_measured_step *step = &measured->steps[i];
        step->min_ns = fmax(step->min_ns - clock_ns, step->min_ns / 2);
        step->mean_ns = fmax(step->mean_ns - clock_ns, step->mean_ns / 2);
    }
}

void ul_profile_fit(struct ul_arena *arena, struct ul_measured measured[UL_MEASURE_PROGRAMS],
                    struct ul_profile *profile)
{
    static const enum ul_work_kind order[] = {
        UL_WORK_VECTOR,     UL_WORK_SPECIAL,    UL_WORK_SCALAR,     UL_WORK_WINDOW,
        UL_WORK_MATMUL_F32, UL_WORK_MATMUL_F64, UL_WORK_MATMUL_F16, UL_WORK_MATMUL_INT8};
    const struct ul_measured *empty = &measured[UL_MEASURE_OVERHEAD];
    profile->overhead_ns = empty->run_ns / (double)empty->step_count;
    for (int i = 0; i < UL_MEASURE_OVERHEAD; i++)
        leave_out_clock(empty, profile->overhead_ns, &measured[i]);
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        fit_rate(arena, &measured[UL_MEASURE_RATES], order[i], profile);
    profile->rates[UL_WORK_MATMUL_TF32] = profile->rates[UL_WORK_MATMUL_F32];
    fit_levels(&measured[UL_MEASURE_MEMORY], profile);
    fit_weights(&measured[UL_MEASURE_MEMORY], profile);
    fit_held(&measured[UL_MEASURE_HELD].steps[0], profile);
}
