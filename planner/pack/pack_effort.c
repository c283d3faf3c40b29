/* How long the packer's methods may go on. */
#include "planner/model/effort.h"
#include "planner/pack/pack_internal.h"

bool ul_pack_exhausted(struct ul_pack_effort *effort)
{
    UL_ASSERT(effort->work_limit > 0);
    if (effort->work >= effort->work_limit)
        return true;
    if (effort->deadline_seconds > 0 && ul_clock_seconds() >= effort->deadline_seconds)
        effort->stopped_by_time = true;
    return effort->stopped_by_time;
}
