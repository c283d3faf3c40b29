/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the attributes of TreeEnsemble, TreeEnsembleRegressor and TreeEnsembleClassifier into a
 * forest.
 *
 * The older two list nodes by the numbers of tree and node, in any order, and weights by the
 * numbers of a leaf. The newer one refers to children by index, and lists leaves apart from
 * nodes. */
#include "frontend/upgrade_ml_forest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Lists ---- */

static double *tensor_floats(const struct ul_old_node *node, const struct ul_tensor *tensor)
{
    uint64_t count = ul_type_elements(&tensor->type);
    double *floats = UL_NEW_ARRAY(node->builder->scratch, double, count);
    bool is_float = ul_dtype_get(tensor->type.dtype)->is_float;
    for (uint64_t i = 0; i < count; i++)
        floats[i] =
            is_float ? ul_tensor_get_float(tensor, i) : (double)ul_tensor_get_int(tensor, i);
    return floats;
}

bool ul_ml_read_floats(struct ul_old_node *node, const char *name, enum ul_dtype dtype,
                       struct ul_ml_list *list)
{
    const struct ul_attr *attr = ul_old_attr(node, name);
    *list = (struct ul_ml_list){0};
    if (attr == NULL)
        attr = ul_old_attr(node, ul_arena_printf(node->builder->scratch, "%s_as_tensor", name));
    if (attr == NULL)
        return true;
    if (attr->kind == UL_ATTR_FLOATS) {
        *list = (struct ul_ml_list){.count = attr->count, .floats = attr->floats};
        return true;
    }
    bool is_number = attr->kind == UL_ATTR_TENSOR && ul_dtype_is_computed(attr->tensor->type.dtype);
    if (!is_number || (attr->tensor->type.dtype == UL_F64 && dtype != UL_F64))
        return ul_old_problem(node, ul_arena_printf(node->builder->scratch,
                                                    "has %s of another type than its input", name));
    list->count = (int64_t)ul_type_elements(&attr->tensor->type);
    list->floats = tensor_floats(node, attr->tensor);
    return true;
}

static struct ul_ml_list read_ints(const struct ul_old_node *node, const char *name)
{
    struct ul_ml_list list = {0};
    list.ints = ul_ml_ints(node, name, &list.count);
    return list;
}

static bool lacks(struct ul_old_node *node, const char *name)
{
    return ul_old_invalid(node, ul_arena_printf(node->builder->scratch,
                                                "has no %s, or as many as it has of others", name));
}

/* Reads exactly `count` integers; false after an error. */
static bool need_ints(struct ul_old_node *node, const char *name, int64_t count,
                      struct ul_ml_list *list)
{
    *list = read_ints(node, name);
    return list->count == count || lacks(node, name);
}

static bool need_floats(struct ul_old_node *node, const char *name, enum ul_dtype dtype,
                        int64_t count, struct ul_ml_list *list)
{
    if (!ul_ml_read_floats(node, name, dtype, list))
        return false;
    return list->count == count || lacks(node, name);
}

/* ---- Entries ---- */

static int by_leaf(const void *a, const void *b)
{
    const struct ul_ml_entry *x = a, *y = b;
    if (x->leaf != y->leaf)
        return x->leaf < y->leaf ? -1 : 1;
    return x->target < y->target ? -1 : x->target > y->target;
}

/* Sorts the entries and gives each leaf its own. False after an error. */
static bool sort_entries(struct ul_old_node *node, struct ul_ml_forest *forest)
{
    for (uint32_t i = 0; i < forest->entry_count; i++) {
        const struct ul_ml_entry *entry = &forest->entries[i];
        const char *wrong = NULL;
        if (entry->target < 0 || entry->target >= forest->target_count)
            wrong = "has a weight for a target or class that there is not";
        else if (!isfinite(forest->dtype == UL_F32 ? (double)(float)entry->weight : entry->weight))
            wrong = "has a weight that is no finite number";
        else if (forest->nodes[entry->leaf].mode != UL_ML_LEAF)
            wrong = "has a weight for a node that is no leaf";
        if (wrong != NULL)
            return ul_old_invalid(node, wrong);
    }
    qsort(forest->entries, forest->entry_count, sizeof *forest->entries, by_leaf);
    for (uint32_t i = forest->entry_count; i-- > 0;) {
        struct ul_ml_node *leaf = &forest->nodes[forest->entries[i].leaf];
        leaf->first = i;
        leaf->count++;
    }
    return true;
}

/* ---- The older form ---- */

/* A node by the numbers of its tree and itself. */
struct name {
    int64_t tree, node;
    uint32_t place;
};

static int by_name(const void *a, const void *b)
{
    const struct name *x = a, *y = b;
    if (x->tree != y->tree)
        return x->tree < y->tree ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

struct names {
    uint32_t count;
    struct name *sorted;
};

static bool find_node(struct ul_old_node *node, const struct names *names, int64_t tree, int64_t id,
                      uint32_t *place)
{
    struct name wanted = {.tree = tree, .node = id};
    const struct name *found =
        bsearch(&wanted, names->sorted, names->count, sizeof *names->sorted, by_name);
    if (found != NULL) {
        *place = found->place;
        return true;
    }
    return ul_old_invalid(node, ul_arena_printf(node->builder->scratch,
                                                "names node %lld of tree %lld, which "
                                                "there is not",
                                                (long long)id, (long long)tree));
}

/* Sorts the names of the nodes; the first listed node of a tree is its root. False after an
 * error. */
static bool sort_names(struct ul_old_node *node, const struct ul_ml_list *trees,
                       const struct ul_ml_list *ids, struct names *names,
                       struct ul_ml_forest *forest)
{
    struct ul_arena *scratch = node->builder->scratch;
    names->count = (uint32_t)ids->count;
    names->sorted = UL_NEW_ARRAY(scratch, struct name, names->count);
    forest->roots = UL_NEW_ARRAY(scratch, uint32_t, names->count);
    bool *is_first = UL_NEW_ARRAY(scratch, bool, names->count);
    for (uint32_t i = 0; i < names->count; i++)
        names->sorted[i] = (struct name){trees->ints[i], ids->ints[i], i};
    qsort(names->sorted, names->count, sizeof *names->sorted, by_name);
    for (uint32_t i = 0; i < names->count;) {
        uint32_t first = names->sorted[i].place, begin = i;
        for (; i < names->count && names->sorted[i].tree == names->sorted[begin].tree; i++) {
            if (i > begin && names->sorted[i].node == names->sorted[i - 1].node)
                return ul_old_invalid(node, "has a node twice");
            first = names->sorted[i].place < first ? names->sorted[i].place : first;
        }
        is_first[first] = true;
    }
    for (uint32_t i = 0; i < names->count; i++)
        if (is_first[i])
            forest->roots[forest->tree_count++] = i;
    return true;
}

static bool read_mode(struct ul_old_node *node, const char *mode, enum ul_ml_mode *out)
{
    static const char *const modes[] = {"BRANCH_LEQ", "BRANCH_LT",  "BRANCH_GTE", "BRANCH_GT",
                                        "BRANCH_EQ",  "BRANCH_NEQ", NULL,         "LEAF"};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        if (modes[i] == NULL || strcmp(mode, modes[i]) != 0)
            continue;
        *out = (enum ul_ml_mode)i;
        return true;
    }
    return ul_old_invalid(node, ul_arena_printf(node->builder->scratch, "has a node of mode %s",
                                                ul_quote(node->builder->scratch, mode)));
}

/* Sets the children of nodes; false after an error. */
static bool link_nodes(struct ul_old_node *node, const struct names *names,
                       const struct ul_ml_list *trees, struct ul_ml_forest *forest)
{
    struct ul_ml_list yes, no;
    if (!need_ints(node, "nodes_truenodeids", forest->node_count, &yes) ||
        !need_ints(node, "nodes_falsenodeids", forest->node_count, &no))
        return false;
    for (uint32_t i = 0; i < forest->node_count; i++) {
        struct ul_ml_node *info = &forest->nodes[i];
        if (info->mode != UL_ML_LEAF &&
            (!find_node(node, names, trees->ints[i], yes.ints[i], &info->yes) ||
             !find_node(node, names, trees->ints[i], no.ints[i], &info->no)))
            return false;
    }
    return true;
}

static bool read_nodes(struct ul_old_node *node, struct ul_ml_forest *forest)
{
    const struct ul_attr *modes = ul_old_attr(node, "nodes_modes");
    struct ul_ml_list values, features,
        missing = read_ints(node, "nodes_missing_value_tracks_true");
    int64_t count = forest->node_count;
    if (modes == NULL || modes->kind != UL_ATTR_STRINGS || modes->count != count)
        return lacks(node, "nodes_modes");
    if (!need_ints(node, "nodes_featureids", count, &features) ||
        !need_floats(node, "nodes_values", forest->dtype, count, &values))
        return false;
    if (missing.count != 0 && missing.count != count)
        return lacks(node, "nodes_missing_value_tracks_true");
    for (uint32_t i = 0; i < forest->node_count; i++) {
        struct ul_ml_node *info = &forest->nodes[i];
        if (!read_mode(node, modes->strings[i], &info->mode))
            return false;
        info->missing_is_true = missing.count > 0 && missing.ints[i] != 0;
        info->feature = features.ints[i];
        info->limit = values.floats[i];
    }
    return true;
}

/* Reads weights from attributes that begin with `kind`: class or target. */
static bool read_weights(struct ul_old_node *node, const char *kind, const struct names *names,
                         struct ul_ml_forest *forest)
{
    struct ul_arena *scratch = node->builder->scratch;
    struct ul_ml_list targets = read_ints(node, ul_arena_printf(scratch, "%s_ids", kind));
    struct ul_ml_list trees, nodes, weights;
    if (!need_ints(node, ul_arena_printf(scratch, "%s_treeids", kind), targets.count, &trees) ||
        !need_ints(node, ul_arena_printf(scratch, "%s_nodeids", kind), targets.count, &nodes) ||
        !need_floats(node, ul_arena_printf(scratch, "%s_weights", kind), forest->dtype,
                     targets.count, &weights))
        return false;
    forest->entry_count = (uint32_t)targets.count;
    forest->entries = UL_NEW_ARRAY(scratch, struct ul_ml_entry, forest->entry_count);
    for (uint32_t i = 0; i < forest->entry_count; i++) {
        struct ul_ml_entry *entry = &forest->entries[i];
        if (!find_node(node, names, trees.ints[i], nodes.ints[i], &entry->leaf))
            return false;
        entry->target = targets.ints[i];
        entry->weight = weights.floats[i];
    }
    return sort_entries(node, forest);
}

bool ul_ml_read_old(struct ul_old_node *node, const char *kind, struct ul_ml_forest *forest)
{
    struct ul_ml_list ids = read_ints(node, "nodes_nodeids"), trees;
    struct names names = {0};
    if (ids.count == 0)
        return ul_old_invalid(node, "has no trees");
    forest->node_count = (uint32_t)ids.count;
    forest->nodes = UL_NEW_ARRAY(node->builder->scratch, struct ul_ml_node, forest->node_count);
    return need_ints(node, "nodes_treeids", ids.count, &trees) && read_nodes(node, forest) &&
           sort_names(node, &trees, &ids, &names, forest) &&
           link_nodes(node, &names, &trees, forest) && read_weights(node, kind, &names, forest);
}

/* ---- The newer form ---- */

struct new_lists {
    struct ul_ml_list features, splits, modes, missing, yes, yes_leaf, no, no_leaf, members;
};

static bool read_new_lists(struct ul_old_node *node, enum ul_dtype dtype, struct new_lists *lists)
{
    lists->features = read_ints(node, "nodes_featureids");
    lists->missing = read_ints(node, "nodes_missing_value_tracks_true");
    int64_t count = lists->features.count;
    if (lists->missing.count != 0 && lists->missing.count != count)
        return lacks(node, "nodes_missing_value_tracks_true");
    return need_floats(node, "nodes_splits", dtype, count, &lists->splits) &&
           need_floats(node, "nodes_modes", dtype, count, &lists->modes) &&
           need_ints(node, "nodes_truenodeids", count, &lists->yes) &&
           need_ints(node, "nodes_trueleafs", count, &lists->yes_leaf) &&
           need_ints(node, "nodes_falsenodeids", count, &lists->no) &&
           need_ints(node, "nodes_falseleafs", count, &lists->no_leaf) &&
           ul_ml_read_floats(node, "membership_values", dtype, &lists->members);
}

/* Finds a child: leaves come after the nodes. */
static bool find_child(struct ul_old_node *node, const struct ul_ml_forest *forest,
                       int64_t branch_count, int64_t id, bool is_leaf, uint32_t *place)
{
    int64_t first = is_leaf ? branch_count : 0;
    int64_t count = is_leaf ? forest->node_count - branch_count : branch_count;
    if (id >= 0 && id < count) {
        *place = (uint32_t)(first + id);
        return true;
    }
    return ul_old_invalid(node, "names a node or a leaf that there is not");
}

/* The numbers of a member test end with a NaN; tests take them in the order of nodes. */
static bool take_members(struct ul_old_node *node, const struct ul_ml_list *members, uint32_t *at,
                         struct ul_ml_node *info)
{
    info->first = *at;
    while (*at < members->count && !isnan(members->floats[*at]))
        ++*at;
    info->count = *at - info->first;
    if (*at < members->count) {
        ++*at;
        return true;
    }
    return ul_old_invalid(node, "has fewer membership_values than nodes that test them");
}

static bool read_branches(struct ul_old_node *node, const struct new_lists *lists,
                          struct ul_ml_forest *forest)
{
    int64_t count = lists->features.count;
    uint32_t member = 0;
    for (int64_t i = 0; i < count; i++) {
        struct ul_ml_node *info = &forest->nodes[i];
        if (!(lists->modes.floats[i] >= UL_ML_LEQ && lists->modes.floats[i] <= UL_ML_MEMBER))
            return ul_old_invalid(node, "has a node of a mode that there is not");
        info->mode = (enum ul_ml_mode)lists->modes.floats[i];
        info->missing_is_true = lists->missing.count > 0 && lists->missing.ints[i] != 0;
        info->feature = lists->features.ints[i];
        info->limit = lists->splits.floats[i];
        if ((info->mode == UL_ML_MEMBER && !take_members(node, &lists->members, &member, info)) ||
            !find_child(node, forest, count, lists->yes.ints[i], lists->yes_leaf.ints[i] != 0,
                        &info->yes) ||
            !find_child(node, forest, count, lists->no.ints[i], lists->no_leaf.ints[i] != 0,
                        &info->no))
            return false;
    }
    forest->numbers = lists->members.floats;
    return true;
}

static bool read_leaves(struct ul_old_node *node, int64_t branch_count,
                        const struct ul_ml_list *targets, const struct ul_ml_list *weights,
                        struct ul_ml_forest *forest)
{
    forest->entry_count = (uint32_t)targets->count;
    forest->entries = UL_NEW_ARRAY(node->builder->scratch, struct ul_ml_entry, forest->entry_count);
    for (uint32_t i = 0; i < forest->entry_count; i++) {
        uint32_t leaf = (uint32_t)(branch_count + i);
        forest->nodes[leaf].mode = UL_ML_LEAF;
        forest->entries[i] = (struct ul_ml_entry){leaf, targets->ints[i], weights->floats[i]};
    }
    return sort_entries(node, forest);
}

static bool read_roots(struct ul_old_node *node, int64_t branch_count, struct ul_ml_forest *forest)
{
    struct ul_ml_list roots = read_ints(node, "tree_roots");
    if (roots.count == 0)
        return ul_old_invalid(node, "has no trees");
    forest->tree_count = (uint32_t)roots.count;
    forest->roots = UL_NEW_ARRAY(node->builder->scratch, uint32_t, forest->tree_count);
    for (uint32_t t = 0; t < forest->tree_count; t++)
        if (!find_child(node, forest, branch_count, roots.ints[t], false, &forest->roots[t]))
            return false;
    return true;
}

bool ul_ml_read_new(struct ul_old_node *node, struct ul_ml_forest *forest)
{
    struct new_lists lists = {0};
    struct ul_ml_list targets = read_ints(node, "leaf_targetids"), weights;
    if (!read_new_lists(node, forest->dtype, &lists) ||
        !need_floats(node, "leaf_weights", forest->dtype, targets.count, &weights))
        return false;
    int64_t branches = lists.features.count;
    forest->node_count = (uint32_t)(branches + targets.count);
    forest->nodes = UL_NEW_ARRAY(node->builder->scratch, struct ul_ml_node, forest->node_count);
    return read_leaves(node, branches, &targets, &weights, forest) &&
           read_branches(node, &lists, forest) && read_roots(node, branches, forest);
}
