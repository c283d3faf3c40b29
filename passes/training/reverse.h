/* SPDX-License-Identifier: Apache-2.0 */
/* Reverse mode over some nodes of the outermost block: where gradients are collected, and the visit
 * of a node, whose rule (ir/gradient.h) gives its inputs their shares. The caller visits nodes from
 * the last to the first, and says where gradients begin and which are wanted. */
#ifndef UL_PASSES_REVERSE_H
#define UL_PASSES_REVERSE_H

#include "ir/gradient.h"
#include "passes/passes_internal.h"

struct ul_reverse {
    struct ul_pass *pass;
    struct ul_graph *graph;
    uint32_t known_count;   /* values that stood before anything was built */
    uint32_t visited_count; /* nodes that stood before the visit that is under way */
    ul_value_id *gradients; /* per value: so far; UL_NONE: none yet */
    uint32_t *shares;       /* per value: the number of shares that its gradient sums up so far */
    bool *wanted;           /* per value */
    bool *stops;          /* per value: nothing flows through what makes it; NULL: no such value */
    const char *suffix;   /* of the names of nodes */
    const char *asked_by; /* the node that wants gradients, for messages; NULL: training does */
    struct ul_gradient rule;
};

/* reverse.c */

/* Puts everything into the pass's scratch, with nothing wanted; the caller sets rule.build and
 * suffix. Must stay where it is: the rule points to it. */
void ul_reverse_init(struct ul_reverse *reverse, struct ul_pass *pass, uint32_t flags);
/* Forgets what was collected. */
void ul_reverse_clear(struct ul_reverse *reverse);
/* Floats that gradients are formed of. */
bool ul_reverse_takes(enum ul_dtype dtype);
/* What the node computes from wanted floats is wanted too; call it for nodes in their order. */
void ul_reverse_want(struct ul_reverse *reverse, ul_node_id node);
/* UL_UNSUPPORTED: something wanted depends on the node, and its row has no rule. */
enum ul_status ul_reverse_visit(struct ul_reverse *reverse, ul_node_id node) UL_MUST_CHECK;

#endif
