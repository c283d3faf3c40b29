/* SPDX-License-Identifier: Apache-2.0 */
/* Fusing: what passes/fuse*.c share.
 *
 * Fusing goes block by block. A group is known by the position, in its block, of the first node
 * that founded it; positions are those of the block before it is put in order anew. A trial is a
 * union of groups; it is checked against the rules, one after the other, before it becomes a
 * group. */
#ifndef UL_FUSE_INTERNAL_H
#define UL_FUSE_INTERNAL_H

#include "ir/op.h"
#include "passes/shared/steps.h"

enum {
    UL_FUSE_NODES = 48, /* of a group: lowering looks nodes up one by one */
    UL_FUSE_NEVER = 0x7FFFFFFF
};

struct ul_fuse_group {
    uint32_t *members; /* positions in the block, ascending */
    uint32_t count;
    uint32_t runs_at; /* the member in whose place it runs */
};

struct ul_fuse {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_arena *scratch;
    struct ul_steps steps;
    struct ul_live *live; /* with every group so far */
    bool *escapes;        /* per value that a node of the last trial makes: is it needed outside? */
    uint32_t group_count; /* of all blocks so far */
    bool keeps_account;   /* the order so far is that of the account */
    bool neighbours_only; /* groups of nodes that stand side by side */

    /* The block, and what is known of it. */
    const struct ul_block *block;
    uint32_t *position;           /* per node: its position; of a nested node, its owner's */
    uint32_t *group_of;           /* per position */
    struct ul_fuse_group *groups; /* per position that founded one */
    uint32_t *user_begin;         /* per position: its users in users[], as positions */
    uint32_t *users;
    bool *block_output; /* per value: leaves the block */
    bool *is_view;      /* per position */
    uint32_t *seen;     /* per group, for searches */
    uint32_t seen_mark;
};

struct ul_fuse_trial {
    uint32_t members[UL_FUSE_NODES]; /* positions, ascending */
    uint32_t count;
    uint32_t anchor;                 /* index of the member that is no map, or UL_FUSE_NEVER */
    ul_value_id hang[UL_FUSE_NODES]; /* the anchor's output that it depends on, or UL_NONE */
    bool front[UL_FUSE_NODES];       /* computed inside the anchor's loads */
};

/* fuse_groups.c */

/* Every node of the block alone, and who reads what. */
void ul_fuse_begin_block(struct ul_fuse *fuse, ul_block_id block);
const struct ul_node *ul_fuse_node(const struct ul_fuse *fuse, uint32_t position);
/* The position of the node of this block that makes `value`, or UL_FUSE_NEVER. */
uint32_t ul_fuse_maker(const struct ul_fuse *fuse, ul_value_id value);
/* The union of groups; false when it is too large or has two anchors. */
bool ul_fuse_trial_init(const struct ul_fuse *fuse, struct ul_fuse_trial *trial,
                        const uint32_t *groups, uint32_t count);
/* The index of the member at `position`, or UL_FUSE_NEVER. */
uint32_t ul_fuse_member(const struct ul_fuse_trial *trial, uint32_t position);
/* Sets fuse->escapes for what the members make. */
void ul_fuse_mark_escapes(struct ul_fuse *fuse, const struct ul_fuse_trial *trial);
/* Makes the trial one group. */
void ul_fuse_join(struct ul_fuse *fuse, const struct ul_fuse_trial *trial, const uint32_t *groups,
                  uint32_t count, uint32_t runs_at);

/* fuse_rules.c: whether one kernel can compute the trial. Fills in `hang` and `front`. */
bool ul_fuse_is_legal(struct ul_fuse *fuse, struct ul_fuse_trial *trial);
/* One of the groups is a call of the target's library that is worth keeping, and all of them
 * together would be none. */
bool ul_fuse_loses_call(struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                        const uint32_t *groups, uint32_t count);

/* fuse_cycles.c: a path leads from the trial through other groups back into it. */
bool ul_fuse_has_cycle(struct ul_fuse *fuse, const struct ul_fuse_trial *trial);

/* fuse_bytes.c: merges the groups' steps in the account where that costs no byte, and says in whose
 * place the one step runs. False: it would cost some. */
bool ul_fuse_merge_bytes(struct ul_fuse *fuse, const struct ul_fuse_trial *trial,
                         const uint32_t *groups, uint32_t count, uint32_t *runs_at);

/* fuse_order.c: puts the block in order by groups, and numbers the groups in the graph. Sets
 * fuse->keeps_account to whether groups run one after the other as they were judged. */
void ul_fuse_reorder(struct ul_fuse *fuse);

#endif
