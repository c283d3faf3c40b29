/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of a forest, which ullage's operator Trees walks.
 *
 * A row is a word and a limit. The word of a branch holds flags, then the feature that it asks for,
 * in feature_bits, then how far after the row its two children are, side by side: the second one is
 * taken where the feature is at most the limit. A leaf is a row that asks for nothing and stays
 * where it is; its limit holds its weight, or, bit for bit, the number of its row of weights. Rows
 * [0, trees) are the roots.
 *
 * Invariants (ul_infer_trees): children stand after their parents and inside the tables; features
 * are columns of x; no tree of eight is deeper than the entry of these says.
 */
#ifndef UL_IR_TREES_H
#define UL_IR_TREES_H

enum ul_tree_flag {
    UL_TREE_BRANCHES = 1u << 0,
    UL_TREE_MISSING = 1u << 1, /* a NaN takes the second child */
    UL_TREE_EQUAL = 1u << 2    /* the second child is for features equal to the limit */
};
enum {
    UL_TREE_FLAG_BITS = 3,
    UL_TREE_LANES = 8 /* trees that are walked side by side */
};

/* Inputs of Trees. */
enum {
    UL_TREES_X,      /* [rows, features], f32 or f64 */
    UL_TREES_WORDS,  /* u32 or u64 */
    UL_TREES_LIMITS, /* as many, of the type of x */
    UL_TREES_DEPTHS, /* i32: branches on the longest path through trees 8 k to 8 k + 7 */
    UL_TREES_WEIGHTS /* [rows, targets]; absent where leaves hold their weights */
};

#endif
