/* SPDX-License-Identifier: Apache-2.0 */
/* Work, deadlines and random numbers of searches; splitmix64 (Steele, Lea and Flood, "Fast
 * Splittable Pseudorandom Number Generators", 2014). */
#include "planner/model/effort.h"

#include "base/base.h"

#include <time.h>

double ul_clock_seconds(void)
{
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

double ul_deadline_after(double seconds)
{
    UL_ASSERT(seconds >= 0);
    return seconds > 0 ? ul_clock_seconds() + seconds : 0;
}

double ul_deadline_left(double deadline_seconds)
{
    if (!(deadline_seconds > 0))
        return 0;
    double left = deadline_seconds - ul_clock_seconds();
    return left > 0 ? left : -1;
}

bool ul_effort_spent(struct ul_effort *effort)
{
    uint32_t every = effort->look_every > 0 ? effort->look_every : 1;
    UL_ASSERT(effort->deadline_seconds >= 0);
    if (effort->deadline_seconds > 0 && !effort->stopped_by_time && effort->looks++ % every == 0)
        effort->stopped_by_time = ul_clock_seconds() >= effort->deadline_seconds;
    return effort->stopped_by_time || effort->work >= effort->work_limit;
}

struct ul_effort_turn ul_effort_begin_turn(struct ul_effort *effort, uint32_t share)
{
    UL_ASSERT(share > 0 && effort->work_limit > 0);
    struct ul_effort_turn whole = {.work_limit = effort->work_limit,
                                   .deadline_seconds = effort->deadline_seconds};
    effort->work_limit = effort->work + (effort->work_limit - effort->work) / share;
    if (effort->deadline_seconds > 0) {
        double now = ul_clock_seconds();
        effort->deadline_seconds = now + (effort->deadline_seconds - now) / share;
    }
    return whole;
}

void ul_effort_end_turn(struct ul_effort *effort, struct ul_effort_turn whole)
{
    effort->work_limit = whole.work_limit;
    effort->deadline_seconds = whole.deadline_seconds;
    effort->stopped_by_time = false; /* that of the turn; the next look at the clock sets it */
}

uint64_t ul_seed_next(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

double ul_seed_unit(uint64_t *state)
{
    return ((double)(ul_seed_next(state) >> 11) + 0.5) / 9007199254740992.0;
}
