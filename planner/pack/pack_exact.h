/* The drivers of the methods that take their time, as pack.c calls them. */
#ifndef UL_PACK_EXACT_H
#define UL_PACK_EXACT_H

#include "planner/pack/pack_internal.h"

enum { UL_PACK_EXACT_BUFFERS = 2000 };

/* pack_exact.c: an instance that cannot be brought into the search's form is returned as it came.
 */
void ul_pack_exact(const struct ul_pack_problem *problem, struct ul_pack_effort *effort);

/* pack_capacities.c: goes on until the target is met or that much work is done. */
void ul_pack_repair(const struct ul_pack_problem *problem, struct ul_pack_effort *effort,
                    uint64_t max_work);

#endif
