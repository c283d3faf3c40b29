/* SPDX-License-Identifier: Apache-2.0 */
/* Mean and inverse deviation of sets of elements, as the normalisations need them.
 *
 * Statistics are formed in two passes over the set, the second about the mean, which keeps its
 * digits where E[x^2] - E[x]^2 loses them; in f32, or f64 for f64. */
#ifndef UL_OPS_NORM_MOMENTS_H
#define UL_OPS_NORM_MOMENTS_H

#include "ir/ops/lanes.h"

struct ul_moments {
    struct ul_lanes lanes;
    ul_value_id x;
    enum ul_dtype dtype; /* the type they are computed in */
    uint32_t mask;       /* dimensions of the set */
    int64_t count;       /* elements of the set */
    int64_t group;       /* above 0: loop dimensions 1 and 2 are groups of so many channels and
                            the channel within */
    struct ul_lane_var mean;
    struct ul_lane_var spread; /* variance, or mean square */
};

/* Opens the lanes over everything but `mask`. */
void ul_moments_open(struct ul_moments *m, struct ul_lower *lower, ul_node_id node, uint32_t rank,
                     const int64_t *dims, uint32_t mask, int64_t group);
/* The element of the input at the loops' coordinates, which `index` receives. */
ul_kx ul_moments_load(const struct ul_moments *m, ul_kx *index);
void ul_moments_mean(struct ul_moments *m);
/* About the mean when `centred`, else about 0. */
void ul_moments_spread(struct ul_moments *m, bool centred);
/* Replaces spread by 1 / sqrt(spread + epsilon), for all lanes. */
void ul_moments_invert(struct ul_moments *m, double epsilon);

#endif
