/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes share. A pass is one function of this type and one row in passes.c. */
#ifndef UL_PASSES_INTERNAL_H
#define UL_PASSES_INTERNAL_H

#include "ir/build.h"
#include "ir/rewrite.h"
#include "passes/passes.h"

struct ul_pass {
    struct ul_graph *graph;
    struct ul_arena *scratch; /* reset after the pass */
    struct ul_diag *diag;
    const struct ul_passes_options *options;
    const struct ul_target_traits *traits; /* never NULL */
    uint32_t row;                          /* of the pipeline */
    /* The pipeline, for passes that ask what others would make. What the rows after this one, up to
     * fusion, make of a copy of the graph in the pass's scratch: as the options say, but without
     * joined products; nothing is checked or printed. And ul_passes_run. */
    enum ul_status (*dry_run)(const struct ul_pass *pass, const struct ul_graph *graph,
                              struct ul_graph *copy);
    enum ul_status (*run)(struct ul_graph *graph, struct ul_arena *scratch,
                          const struct ul_passes_options *options, struct ul_diag *diag);
};
typedef enum ul_status ul_pass_fn(struct ul_pass *pass);

ul_pass_fn ul_pass_infer, ul_pass_dce, ul_pass_cse, ul_pass_simplify, ul_pass_bnfold,
    ul_pass_pattern, ul_pass_windows, ul_pass_transposed, ul_pass_join, ul_pass_stem,
    ul_pass_filters, ul_pass_sink, ul_pass_parts, ul_pass_einsum, ul_pass_own, ul_pass_layout,
    ul_pass_views, ul_pass_concat, ul_pass_precision, ul_pass_donate, ul_pass_pool, ul_pass_again,
    ul_pass_fuse, ul_pass_split, ul_pass_select, ul_pass_inline, ul_pass_modes, ul_pass_loss,
    ul_pass_gradient, ul_pass_tiles, ul_pass_library, ul_pass_bits, ul_pass_inside,
    ul_pass_integers, ul_pass_nbits, ul_pass_quantize, ul_pass_no_float, ul_pass_packed,
    ul_pass_halves, ul_pass_derive, ul_pass_lora, ul_pass_weights, ul_pass_stop, ul_pass_once,
    ul_pass_phases, ul_pass_casts;

/* edit.c */

/* --no-pass was given for it. */
bool ul_pass_is_disabled(const struct ul_pass *pass, const char *name);
/* Turns a node's output, whose value is known, into a weight, and detaches it from the node. */
void ul_edit_make_weight(struct ul_graph *graph, ul_value_id value);
/* Removes a node whose outputs are known: those that are read (per value) become weights with
 * copies of what is known. */
void ul_edit_remove_known(struct ul_graph *graph, ul_node_id node, const bool *is_read);
/* A constant over `data`, which stays the graph's: one number when all elements are equal. */
const struct ul_tensor *ul_edit_tensor(struct ul_graph *graph, const struct ul_type *type,
                                       const unsigned char *data);
/* The same as a weight of numbers, row-major; and with `count` numbers along the first of `rank`
 * dimensions. */
ul_value_id ul_edit_add_array(struct ul_graph *graph, const char *name, const struct ul_type *type,
                              const double *numbers);
ul_value_id ul_edit_add_numbers(struct ul_graph *graph, const char *name, enum ul_dtype dtype,
                                const double *numbers, uint32_t count, uint32_t rank);
/* A state whose every element begins with this number; flags beside UL_VALUE_PERSISTENT. */
ul_value_id ul_edit_add_state(struct ul_graph *graph, const char *name, const struct ul_type *type,
                              uint32_t flags, double number);
/* Makes the value overwrite the state, as an output of the model. */
void ul_edit_add_next(struct ul_graph *graph, ul_value_id made, ul_value_id state);
/* Sets that are joined: at first each id in `parents` is a set by itself. The head of a set is its
 * least id. */
uint32_t ul_edit_find_head(uint32_t *parents, uint32_t id);
void ul_edit_join_heads(uint32_t *parents, uint32_t a, uint32_t b);
/* At most one dimension is more than 1. */
bool ul_edit_is_vector(const struct ul_type *type);
/* Its result has the elements of its input in their order, in other dimensions. */
bool ul_edit_is_reshape(ul_op_id op);
/* A node of the backward pass, or an update. */
bool ul_edit_is_backward(const struct ul_graph *graph, const struct ul_node *node);
/* The largest number of a group, or 0. */
uint32_t ul_edit_last_group(const struct ul_graph *graph);
/* Before views are known: whether elements lie densely, so that a reshape of the value is a
 * view. */
bool ul_edit_is_dense(const struct ul_graph *graph, ul_value_id value);
/* Bytes that a weight takes in the arena: none where its elements are all the same number. */
uint64_t ul_edit_weight_bytes(const struct ul_graph *graph, ul_value_id value);
/* Names of attributes that say the type of a result; NULL after the last (halves.c). */
extern const char *const ul_type_attributes[];
/* Per value one of the nodes that read it, or UL_NONE. */
ul_node_id *ul_edit_find_readers(const struct ul_graph *graph, struct ul_arena *arena);
/* The nodes of a block and of the blocks nested in it, in execution order. */
struct ul_node_list {
    uint32_t count, capacity;
    ul_node_id *nodes;
};
struct ul_node_list ul_edit_all_nodes(const struct ul_graph *graph, struct ul_arena *arena);
/* Nodes that read a value as it is or turned: through Identity, and through Transpose of a
 * matrix. */
struct ul_site {
    ul_node_id node;
    uint32_t input;
    bool turned;
};
struct ul_sites {
    struct ul_site *items;
    uint32_t count, capacity;
};
void ul_edit_find_sites(const struct ul_graph *graph, struct ul_arena *arena, ul_value_id value,
                        struct ul_sites *sites);
/* What such nodes read that make this value; the value itself, where none does. */
ul_value_id ul_edit_find_turned(const struct ul_graph *graph, ul_value_id value);
/* A name by which ul_edit_find_node finds the node again, or NULL. */
const char *ul_edit_name_node(const struct ul_graph *graph, ul_node_id node);
/* The node of that name, or that makes a value of that name; UL_NONE: there is none, or there are
 * several. */
ul_node_id ul_edit_find_node(const struct ul_graph *graph, const char *name);

/* Whether a name matches a pattern, where * is any text and ? any byte. */
bool ul_edit_matches(const char *pattern, const char *name);
bool ul_edit_matches_any(const char *const *patterns, uint32_t count, const char *name);

/* followers.c: elementwise nodes after a node whose results are made in another order. */

/* A constant with one number for each channel, in the order of what is made. */
typedef ul_value_id ul_followers_repeat_fn(void *context, ul_value_id value);
struct ul_followers {
    const uint32_t *uses;
    const ul_node_id *readers; /* per value: one of the nodes that read it */
    uint32_t known_count;      /* the values that these cover */
    int64_t channels;          /* axis 1 of the node's results */
    ul_followers_repeat_fn *repeat;
    void *context;
};
struct ul_followers ul_followers_new(const struct ul_graph *graph, struct ul_arena *arena,
                                     ul_followers_repeat_fn *repeat, void *context);
/* Adds nodes on `made` that do what the only readers of `*last` do, one after the other, and gives
 * their result; `*last` becomes what the last of those makes. */
ul_value_id ul_followers_move(const struct ul_followers *followers, struct ul_build *build,
                              ul_value_id *last, ul_value_id made);

/* cse.c: attributes of the same names and values, in the same order. */
bool ul_cse_attrs_equal(const struct ul_node *a, const struct ul_node *b);

/* fold.c */

/* Computes anew, as a program would, what nodes of the main block hold in 16 bits: nodes in their
 * order, whose results are known. `keep` owns the new tensors; where they cannot be computed within
 * the limits of folding, the old ones stay. */
void ul_fold_as_program(struct ul_pass *pass, const ul_node_id *nodes, uint32_t count,
                        struct ul_arena *keep);

/* fold_step.c */

/* A step whose operands are all known: the nodes of one group, or a single one. */
struct ul_fold_step {
    const ul_node_id *nodes;
    uint32_t count;
    const bool *escapes; /* per value: it is needed outside of its group */
    const struct ul_target_traits *traits;
};
/* The bytes that a value owns, from the arena at their first use; `bytes` has them per base. Those
 * of constants are only read. */
unsigned char *ul_fold_bytes_of(const struct ul_graph *graph, struct ul_arena *arena,
                                unsigned char **bytes, ul_value_id base);
/* Interprets the kernel of a step. False: that takes more than what is left of the work, or meets
 * an error. */
bool ul_fold_step(const struct ul_graph *graph, const struct ul_fold_step *step,
                  uint64_t *work_left, struct ul_arena *arena, unsigned char **bytes);

/* donate.c */

/* Whether the node, or a block in it, reads `base` or a view of it. */
bool ul_donate_reads(const struct ul_graph *graph, ul_node_id node, ul_value_id base);

/* unroll.c */

/* Whether it is a Loop with a known, small count that always runs all of it. */
bool ul_unroll_is_possible(const struct ul_graph *graph, ul_node_id loop);
/* A copy of the loop's body, before inference touches it; ended by ul_unroll_forget. */
ul_block_id ul_unroll_save(const struct ul_pass *pass, ul_node_id loop);
void ul_unroll_forget(struct ul_graph *graph, ul_block_id saved);
/* A block with a copy of the saved body for each round, whose outputs are the loop's. */
ul_block_id ul_unroll_rounds(const struct ul_pass *pass, ul_node_id loop, ul_block_id saved);

/* The same for a Scan along first axes. */
bool ul_unroll_scan_is_possible(const struct ul_graph *graph, ul_node_id scan);
ul_block_id ul_unroll_scan(const struct ul_pass *pass, ul_node_id scan);

/* inline.c */

/* Moves the nodes of a block that belongs to no node, or of a branch, in front of the node at `at`,
 * which then goes: its outputs are the block's. */
void ul_inline_block(const struct ul_pass *pass, ul_block_id block, uint32_t at,
                     ul_block_id branch);

/* scan.c */

/* Moves the scanned axes of the Scan at `at` to the front: those of its inputs, with Transposes
 * before it, before its body is inferred; those of its outputs, with Transposes after it,
 * afterwards. False: there is no such axis. */
bool ul_scan_axes_to_front(struct ul_graph *graph, ul_block_id block, uint32_t at, bool *changed);
bool ul_scan_axes_to_place(struct ul_graph *graph, ul_block_id block, uint32_t at, bool *changed);

/* views.c */

/* Per value, bits: its elements must lie densely in the order of its dimensions (at a block's
 * edge); it must own its bytes (the model's outputs). */
enum { UL_LAYOUT_ANY = 0, UL_LAYOUT_DENSE = 1, UL_LAYOUT_OWN = 2 };
uint32_t *ul_views_needs(const struct ul_graph *graph, struct ul_arena *arena);
/* Sets the views of all node outputs but those that are `fixed` (per value; NULL: none): in the
 * bytes of the node's input where `movements` and the row's hook allow it, else in bytes of their
 * own. */
void ul_views_compute(struct ul_graph *graph, const struct ul_node_list *order,
                      const uint32_t *needs, const bool *fixed, bool movements);

#endif
