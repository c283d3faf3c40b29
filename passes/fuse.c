/* Groups: which nodes one kernel computes.
 *
 * Problem: a value that only the next node reads need not exist in memory. Method: nodes in order;
 * each is merged with the group of one producer after the other, the latest first, where the
 * result can be lowered (ir/lower.h), stays free of cycles and needs no more bytes:
 *
 *      Mul -> Relu -> Conv -> Add -> Relu -> ...
 *      [ in its loads ] [anchor] [ in its stores ]
 *
 * - at most one node is no map: the anchor;
 * - behind the anchor: elementwise nodes of exactly its output's shape;
 * - in front of it: cheap elementwise nodes that nothing else reads, one operand of full shape;
 * - maps alone: all results of one shape, and what is inlined is loaded about once per element;
 * - no way leads from the group out and back in, views included.
 * - what is a call of the target's library alone, stays one.
 * Bytes: inputs of a group may live longer than before only by as much as the values that vanish
 * (rule at `pays`); at the end the live sum is asked, and when it has grown all the
 * same, the grouping is made anew from neighbours only, or not at all.
 * The block's order then changes as little as possible: a group runs where its anchor stood.
 * Left undone: loops of two anchors; results of several shapes; random numbers inlined. */
#include "ir/op.h"
#include "ir/view.h"
#include "passes/passes_internal.h"

#include <string.h>

enum {
    MAX_NODES = 48,     /* of a group: lowering looks nodes up one by one */
    MAX_FRONT = 8,      /* nodes in front of an anchor: its loads repeat them */
    MAX_READERS = 7,    /* groups that are merged at once with the one they read */
    MAX_VISITS = 20000, /* of the search for a cycle; beyond it the merge is left alone */
    NEVER = 0x7FFFFFFF
};

struct group {
    uint32_t *members; /* positions in the block, ascending */
    uint32_t count;
};

struct fuse {
    struct ul_pass *pass;
    struct ul_graph *graph;
    struct ul_arena *scratch;
    const struct ul_block *block;
    bool neighbours_only;
    uint32_t *position;   /* per node: its place in the block; children: that of the owner */
    uint32_t *group_of;   /* per position */
    struct group *groups; /* by id; a group's id is the position of its first founder */
    uint32_t *user_begin; /* per position: its users in users[], as positions */
    uint32_t *users;
    uint32_t *alive_until; /* per value that is a base: last position in this block that needs it */
    bool *block_output;    /* per value: leaves the block */
    bool *call_escapes;    /* per value: scratch of is_call */
    uint32_t *seen;        /* per position, for searches */
    uint32_t seen_mark;
    bool *is_view; /* per position */
};

/* ---- Facts about nodes ---- */

static const struct ul_node *node_at(const struct fuse *fuse, uint32_t position)
{
    return &fuse->graph->nodes[fuse->block->nodes[position]];
}

static const struct ul_type *type_of(const struct fuse *fuse, ul_value_id value)
{
    return &fuse->graph->values[value].type;
}

static bool is_map(const struct ul_node *node)
{
    const struct ul_op_info *row = ul_op_get(node->op);
    return row->map != NULL || row->expression != NULL;
}

static bool is_elementwise(const struct ul_node *node)
{
    return (ul_op_get(node->op)->flags & UL_OP_ELEMENTWISE) != 0 && node->output_count == 1;
}

static bool can_join(const struct fuse *fuse, uint32_t position)
{
    const struct ul_node *node = node_at(fuse, position);
    return !fuse->is_view[position] &&
           (ul_op_get(node->op)->flags & (UL_OP_CONTROL | UL_OP_RANDOM)) == 0;
}

/* Worth computing again for each load. */
static bool is_cheap(const struct ul_node *node)
{
    static const char *const costly[] = {"exp", "log", "sin",  "cos", "tan",
                                         "erf", "pow", "sqrt", "mod", "tanh"};
    const struct ul_op_info *row = ul_op_get(node->op);
    if ((row->flags & UL_OP_COSTLY_MAP) != 0)
        return false;
    for (size_t i = 0; row->expression != NULL && i < sizeof costly / sizeof *costly; i++) {
        if (strstr(row->expression, costly[i]) != NULL)
            return false;
    }
    return true;
}

static bool same_dims(const struct ul_type *a, const struct ul_type *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0;
}

/* The position of the node of this block that makes `value` directly, or NEVER. */
static uint32_t maker(const struct fuse *fuse, ul_value_id value)
{
    if (value == UL_NONE || fuse->graph->values[value].kind != UL_VALUE_NODE)
        return NEVER;
    ul_node_id producer = fuse->graph->values[value].producer;
    bool here = &fuse->graph->blocks[fuse->graph->nodes[producer].parent] == fuse->block;
    return here ? fuse->position[producer] : NEVER;
}

/* ---- A group that is being tried ---- */

struct trial {
    uint32_t members[MAX_NODES]; /* positions, ascending */
    uint32_t count;
    uint32_t anchor; /* index of a member, or NEVER */
    uint32_t anchor_count;
    ul_value_id hang[MAX_NODES]; /* the anchor's output that it hangs on, or UL_NONE */
    bool front[MAX_NODES];       /* computed inside the anchor's loads */
};

static uint32_t member_index(const struct trial *trial, uint32_t position)
{
    for (uint32_t i = 0; i < trial->count; i++) {
        if (trial->members[i] == position)
            return i;
    }
    return NEVER;
}

/* Something outside of the trial reads the value. */
static bool escapes(const struct fuse *fuse, const struct trial *trial, ul_value_id value)
{
    uint32_t made_at = maker(fuse, value);
    if (fuse->block_output[value])
        return true;
    for (uint32_t u = fuse->user_begin[made_at]; u < fuse->user_begin[made_at + 1]; u++) {
        uint32_t user = fuse->users[u];
        if (member_index(trial, user) != NEVER)
            continue;
        const struct ul_node *node = node_at(fuse, user);
        if (node->block_count > 0)
            return true; /* may read it inside; counted as a reader of all outputs */
        for (uint32_t i = 0; i < node->input_count; i++) {
            if (node->inputs[i] == value)
                return true;
        }
    }
    return false;
}

static bool trial_add(const struct fuse *fuse, struct trial *trial, const struct group *group)
{
    uint32_t merged[MAX_NODES];
    uint32_t i = 0;
    uint32_t k = 0;
    if (trial->count + group->count > MAX_NODES)
        return false;
    while (i < trial->count || k < group->count) {
        bool old = k == group->count || (i < trial->count && trial->members[i] < group->members[k]);
        uint32_t at = i + k;
        merged[at] = old ? trial->members[i++] : group->members[k++];
    }
    trial->count += group->count;
    memcpy(trial->members, merged, trial->count * sizeof *merged);
    for (uint32_t m = 0; m < group->count; m++)
        trial->anchor_count += !is_map(node_at(fuse, group->members[m]));
    return trial->anchor_count <= 1;
}

/* The union of groups in order; false when it is too big or has two anchors. */
static bool trial_init(const struct fuse *fuse, struct trial *trial, const uint32_t *groups,
                       uint32_t count)
{
    trial->count = 0;
    trial->anchor_count = 0;
    trial->anchor = NEVER;
    for (uint32_t g = 0; g < count; g++) {
        if (!trial_add(fuse, trial, &fuse->groups[groups[g]]))
            return false;
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        if (!is_map(node_at(fuse, trial->members[i])))
            trial->anchor = i;
        trial->hang[i] = UL_NONE;
        trial->front[i] = false;
    }
    return true;
}

/* What `value` hangs on: the anchor's output itself, or what its maker in the group hangs on. */
static ul_value_id hangs_on(const struct fuse *fuse, const struct trial *trial, ul_value_id value)
{
    uint32_t index = member_index(trial, maker(fuse, value));
    if (index == NEVER)
        return UL_NONE;
    return index == trial->anchor ? value : trial->hang[index];
}

/* Nodes behind the anchor: elementwise, at the anchor's very index. */
static bool check_behind(const struct fuse *fuse, struct trial *trial)
{
    for (uint32_t i = 0; trial->anchor != NEVER && i < trial->count; i++) {
        const struct ul_node *node = node_at(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->input_count; k++) {
            ul_value_id input = node->inputs[k];
            ul_value_id hang = input == UL_NONE ? UL_NONE : hangs_on(fuse, trial, input);
            if (hang == UL_NONE)
                continue;
            if (i == trial->anchor || !is_elementwise(node) ||
                (trial->hang[i] != UL_NONE && trial->hang[i] != hang) ||
                !same_dims(type_of(fuse, input), type_of(fuse, node->outputs[0])) ||
                !same_dims(type_of(fuse, hang), type_of(fuse, node->outputs[0])))
                return false;
            trial->hang[i] = hang;
        }
    }
    if (trial->anchor == NEVER)
        return true;
    const struct ul_node *anchor = node_at(fuse, trial->members[trial->anchor]);
    bool combines = (ul_op_get(anchor->op)->flags & UL_OP_COMBINES) != 0;
    /* A Concat passes over what is in its place already. */
    for (uint32_t i = 0; anchor->op == UL_OP_Concat && i < anchor->input_count; i++)
        combines = combines || ul_concat_is_placed(fuse->graph, anchor, i);
    for (uint32_t i = 0; combines && i < trial->count; i++) {
        if (trial->hang[i] != UL_NONE)
            return false;
    }
    return true;
}

static bool has_full_operand(const struct fuse *fuse, const struct ul_node *node)
{
    for (uint32_t i = 0; i < node->input_count; i++) {
        if (node->inputs[i] != UL_NONE &&
            same_dims(type_of(fuse, node->inputs[i]), type_of(fuse, node->outputs[0])))
            return true;
    }
    return false;
}

/* Makers of what the anchor reads, found backwards, must be cheap elementwise nodes. */
static bool check_front(const struct fuse *fuse, struct trial *trial)
{
    uint32_t count = 0;
    if (trial->anchor == NEVER)
        return true;
    for (uint32_t i = trial->count; i-- > 0;) {
        const struct ul_node *node = node_at(fuse, trial->members[i]);
        if (i != trial->anchor && !trial->front[i])
            continue;
        for (uint32_t k = 0; k < node->input_count; k++) {
            uint32_t made = member_index(trial, maker(fuse, node->inputs[k]));
            if (made == NEVER)
                continue;
            if (node->op == UL_OP_Concat && ul_concat_is_placed(fuse->graph, node, k))
                return false; /* it must be stored: the Concat passes over it */
            if (trial->front[made])
                continue;
            const struct ul_node *front = node_at(fuse, trial->members[made]);
            if (!is_elementwise(front) || !is_cheap(front) || !has_full_operand(fuse, front) ||
                trial->hang[made] != UL_NONE || ++count > MAX_FRONT ||
                escapes(fuse, trial, front->outputs[0]))
                return false;
            trial->front[made] = true;
        }
    }
    return true;
}

/* A map inlined into another: loaded at most about once per element. */
static bool loads_once(const struct fuse *fuse, const struct ul_node *user, ul_value_id value)
{
    const struct ul_node *made_by = &fuse->graph->nodes[fuse->graph->values[value].producer];
    uint64_t elements = ul_type_elements(type_of(fuse, value));
    uint64_t loads = 0;
    for (uint32_t i = 0; i < user->output_count; i++)
        loads += ul_type_elements(type_of(fuse, user->outputs[i]));
    if (is_elementwise(user))
        return same_dims(type_of(fuse, value), type_of(fuse, user->outputs[0]));
    return is_cheap(made_by) && loads <= elements;
}

/* Maps that are neither in front of the anchor nor behind it. With an anchor there must be none
 * but side chains that end in nodes behind it. */
static bool check_free(const struct fuse *fuse, const struct trial *trial)
{
    const struct ul_type *result = NULL;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = node_at(fuse, trial->members[i]);
        if (i == trial->anchor || trial->hang[i] != UL_NONE || trial->front[i])
            continue;
        for (uint32_t k = 0; k < node->output_count; k++) {
            ul_value_id output = node->outputs[k];
            if (!escapes(fuse, trial, output))
                continue;
            if (trial->anchor != NEVER ||
                (result != NULL && !same_dims(result, type_of(fuse, output))))
                return false;
            result = type_of(fuse, output);
        }
    }
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *user = node_at(fuse, trial->members[i]);
        if (i == trial->anchor || trial->front[i])
            continue;
        for (uint32_t k = 0; k < user->input_count; k++) {
            uint32_t made = member_index(trial, maker(fuse, user->inputs[k]));
            if (made != NEVER && made != trial->anchor && trial->hang[made] == UL_NONE &&
                !loads_once(fuse, user, user->inputs[k]))
                return false;
        }
    }
    return true;
}

/* ---- Cycles ---- */

static void seen_clear(struct fuse *fuse)
{
    fuse->seen_mark++;
}

static bool see(struct fuse *fuse, uint32_t group)
{
    if (fuse->seen[group] == fuse->seen_mark)
        return false;
    fuse->seen[group] = fuse->seen_mark;
    return true;
}

/* A way from the trial through other groups back into it. */
static bool has_cycle(struct fuse *fuse, const struct trial *trial)
{
    struct ul_arena *scratch = fuse->scratch;
    uint32_t *stack = NULL;
    uint32_t depth = 0;
    uint32_t capacity = 0;
    uint32_t visits = 0;
    uint32_t last = trial->members[trial->count - 1];
    seen_clear(fuse);
    const uint32_t *members = trial->members;
    uint32_t member_count = trial->count;
    bool inside = true;
    for (;;) {
        for (uint32_t m = 0; m < member_count; m++) {
            uint32_t from = members[m];
            for (uint32_t u = fuse->user_begin[from]; u < fuse->user_begin[from + 1]; u++) {
                uint32_t group = fuse->group_of[fuse->users[u]];
                if (member_index(trial, fuse->users[u]) != NEVER) {
                    if (!inside)
                        return true;
                    continue;
                }
                if (fuse->groups[group].members[0] > last || !see(fuse, group))
                    continue;
                UL_GROW(scratch, stack, depth, capacity);
                stack[depth++] = group;
            }
        }
        inside = false;
        if (depth == 0)
            return false;
        if (++visits > MAX_VISITS)
            return true;
        const struct group *next = &fuse->groups[stack[--depth]];
        members = next->members;
        member_count = next->count;
    }
}

/* ---- Bytes ---- */

struct cost {
    uint32_t runs_at;        /* position, about */
    uint64_t extended_bytes; /* inputs that would end before it */
};

static uint32_t needed_at(const struct fuse *fuse, ul_value_id value)
{
    uint32_t made = maker(fuse, value);
    return made == NEVER ? 0 : made;
}

/* Where the group runs, and what its inputs then cost. */
static struct cost cost_of(const struct fuse *fuse, const struct trial *trial)
{
    struct cost cost = {0, 0};
    ul_value_id counted[4 * MAX_NODES];
    uint32_t counted_count = 0;
    cost.runs_at = trial->members[trial->anchor != NEVER ? trial->anchor : trial->count - 1];
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < trial->count; i++) {
            const struct ul_node *node = node_at(fuse, trial->members[i]);
            for (uint32_t k = 0; k < node->input_count; k++) {
                ul_value_id input = node->inputs[k];
                if (input == UL_NONE || member_index(trial, maker(fuse, input)) != NEVER)
                    continue;
                uint32_t made = needed_at(fuse, input);
                if (pass == 0) {
                    cost.runs_at = made > cost.runs_at ? made : cost.runs_at;
                    continue;
                }
                ul_value_id base = fuse->graph->values[input].view.base;
                bool outer = maker(fuse, base) == NEVER && fuse->block != fuse->graph->blocks;
                bool known = outer || fuse->graph->values[base].kind == UL_VALUE_WEIGHT ||
                             fuse->alive_until[base] >= cost.runs_at ||
                             counted_count == 4 * MAX_NODES;
                for (uint32_t c = 0; !known && c < counted_count; c++)
                    known = counted[c] == base;
                if (known)
                    continue;
                counted[counted_count++] = base;
                cost.extended_bytes += ul_value_bytes(fuse->graph, base);
            }
        }
    }
    return cost;
}

/* Nothing that needs a kernel stands between the first and the last member. */
static bool is_adjacent(const struct fuse *fuse, const struct trial *trial)
{
    for (uint32_t p = trial->members[0]; p < trial->members[trial->count - 1]; p++) {
        if (!fuse->is_view[p] && member_index(trial, p) == NEVER)
            return false;
    }
    return true;
}

/* The bytes around one step: what it reads, what it stores, less what it can store in place of an
 * operand that ends there. */
struct step_bytes {
    uint64_t read, stored, in_place;
};

/* An elementwise node at the index of the group's stores reads the value, and the anchor does not.
 */
static bool reads_at_store(const struct fuse *fuse, const struct trial *trial, ul_value_id value)
{
    bool found = false;
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = node_at(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->input_count; k++) {
            if (node->inputs[k] == UL_NONE ||
                fuse->graph->values[node->inputs[k]].view.base != value)
                continue;
            if (node->inputs[k] != value || !is_elementwise(node) || trial->front[i] ||
                (trial->anchor != NEVER && trial->hang[i] == UL_NONE) ||
                !same_dims(type_of(fuse, value), type_of(fuse, node->outputs[0])))
                return false;
            found = true;
        }
    }
    return found;
}

static struct step_bytes step_bytes_of(const struct fuse *fuse, const struct trial *trial)
{
    struct step_bytes bytes = {0, 0, 0};
    ul_value_id counted[4 * MAX_NODES];
    uint32_t counted_count = 0;
    uint32_t last = trial->members[trial->count - 1];
    uint64_t free_bytes = 0; /* of operands that end here, for stores of the same size */
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = node_at(fuse, trial->members[i]);
        for (uint32_t k = 0; k < node->input_count && counted_count < 4 * MAX_NODES; k++) {
            ul_value_id input = node->inputs[k];
            if (input == UL_NONE || member_index(trial, maker(fuse, input)) != NEVER)
                continue;
            ul_value_id base = fuse->graph->values[input].view.base;
            bool known = fuse->graph->values[base].kind == UL_VALUE_WEIGHT;
            for (uint32_t c = 0; !known && c < counted_count; c++)
                known = counted[c] == base;
            if (known)
                continue;
            counted[counted_count++] = base;
            uint64_t size_bytes = ul_value_bytes(fuse->graph, base);
            bool ends = fuse->alive_until[base] <= last &&
                        (maker(fuse, base) != NEVER || fuse->block == fuse->graph->blocks);
            bytes.read += size_bytes;
            if (ends && free_bytes == 0 && reads_at_store(fuse, trial, base))
                free_bytes = size_bytes;
        }
        for (uint32_t k = 0; k < node->output_count; k++) {
            uint64_t size_bytes = ul_value_bytes(fuse->graph, node->outputs[k]);
            if (!escapes(fuse, trial, node->outputs[k]))
                continue;
            bytes.stored += size_bytes;
            if (size_bytes == free_bytes)
                bytes.in_place = size_bytes;
        }
    }
    return bytes;
}

/* Two neighbouring steps against one: the live sum at the one is no larger than at the two. */
static bool step_bytes_fit(const struct fuse *fuse, const struct trial *trial,
                           const uint32_t *groups)
{
    struct trial first;
    struct trial second;
    if (!trial_init(fuse, &first, &groups[0], 1) || !trial_init(fuse, &second, &groups[1], 1) ||
        !check_behind(fuse, &first) || !check_behind(fuse, &second) || !check_front(fuse, &first) ||
        !check_front(fuse, &second))
        return false;
    struct step_bytes one = step_bytes_of(fuse, trial);
    struct step_bytes a = step_bytes_of(fuse, &first);
    struct step_bytes b = step_bytes_of(fuse, &second);
    /* What only the second reads is alive at the first too, but is left out there: that makes the
     * two look smaller than they are, never the one. */
    uint64_t first_sum = a.read + a.stored - a.in_place;
    uint64_t second_sum = b.read + b.stored - b.in_place;
    uint64_t max = first_sum > second_sum ? first_sum : second_sum;
    return one.read + one.stored - one.in_place <= max;
}

/* What the parts stored and would vanish must outweigh the inputs that live longer; and what still
 * leaves the group takes no more room, and no earlier, than before. */
static bool pays(const struct fuse *fuse, const struct trial *trial, const uint32_t *groups,
                 uint32_t count)
{
    struct trial alone;
    uint64_t vanished = 0;
    uint64_t stored = 0;
    uint64_t extended = 0;
    bool first_escapes = false;
    struct cost cost = cost_of(fuse, trial);
    for (uint32_t g = 0; g < count; g++) {
        if (!trial_init(fuse, &alone, &groups[g], 1))
            return false;
        struct cost before = cost_of(fuse, &alone);
        extended += before.extended_bytes;
        for (uint32_t i = 0; i < alone.count; i++) {
            const struct ul_node *node = node_at(fuse, alone.members[i]);
            for (uint32_t k = 0; k < node->output_count; k++) {
                ul_value_id output = node->outputs[k];
                uint64_t size_bytes = ul_value_bytes(fuse->graph, output);
                if (!escapes(fuse, &alone, output))
                    continue;
                if (!escapes(fuse, trial, output))
                    vanished += size_bytes;
                else if (g > 0 && (first_escapes || cost.runs_at < before.runs_at))
                    stored += size_bytes; /* with what the first stores, or earlier */
                else if (g == 0)
                    first_escapes = true;
            }
        }
    }
    if (cost.extended_bytes <= extended + vanished && stored <= vanished)
        return true;
    return count == 2 && is_adjacent(fuse, trial) && step_bytes_fit(fuse, trial, groups);
}

/* ---- Calls of a library ---- */

static bool is_call(const struct fuse *fuse, const struct trial *trial)
{
    const struct ul_passes_options *options = fuse->pass->options;
    ul_node_id nodes[MAX_NODES];
    for (uint32_t i = 0; i < trial->count; i++) {
        const struct ul_node *node = node_at(fuse, trial->members[i]);
        nodes[i] = fuse->block->nodes[trial->members[i]];
        for (uint32_t k = 0; k < node->output_count; k++) {
            if (node->outputs[k] != UL_NONE)
                fuse->call_escapes[node->outputs[k]] = escapes(fuse, trial, node->outputs[k]);
        }
    }
    return options->is_call(options->library, fuse->graph, nodes, trial->count, fuse->call_escapes,
                            NULL);
}

/* One of the groups is a call, and all of them together would be none. */
static bool loses_call(const struct fuse *fuse, const struct trial *trial, const uint32_t *groups,
                       uint32_t count)
{
    struct trial alone;
    if (fuse->pass->options->is_call == NULL || trial->anchor == NEVER)
        return false;
    for (uint32_t g = 0; g < count; g++) {
        if (trial_init(fuse, &alone, &groups[g], 1) && alone.anchor != NEVER &&
            is_call(fuse, &alone))
            return !is_call(fuse, trial);
    }
    return false;
}

/* ---- Merging ---- */

static bool try_merge(struct fuse *fuse, const uint32_t *groups, uint32_t count)
{
    struct trial trial;
    if (!trial_init(fuse, &trial, groups, count) || !check_behind(fuse, &trial) ||
        !check_front(fuse, &trial) || !check_free(fuse, &trial) ||
        (fuse->neighbours_only && !is_adjacent(fuse, &trial)) ||
        !pays(fuse, &trial, groups, count) || has_cycle(fuse, &trial) ||
        loses_call(fuse, &trial, groups, count))
        return false;
    struct group merged = {
        ul_arena_copy(fuse->scratch, trial.members, trial.count * sizeof *trial.members),
        trial.count};
    for (uint32_t i = 0; i < trial.count; i++)
        fuse->group_of[trial.members[i]] = groups[0];
    fuse->groups[groups[0]] = merged;
    return true;
}

/* The group of `maker` and those of all that reads what it makes: one by one they would not pay,
 * since what is made would still be stored. Tried when the last reader comes up. */
static void merge_readers(struct fuse *fuse, uint32_t made, uint32_t position)
{
    uint32_t groups[MAX_READERS + 1];
    uint32_t count = 0;
    groups[count++] = fuse->group_of[made];
    for (uint32_t u = fuse->user_begin[made]; u < fuse->user_begin[made + 1]; u++) {
        uint32_t user = fuse->users[u];
        bool known = false;
        if (user > position || !can_join(fuse, user))
            return;
        for (uint32_t g = 0; g < count; g++)
            known = known || groups[g] == fuse->group_of[user];
        if (known)
            continue;
        if (count == MAX_READERS + 1)
            return;
        groups[count++] = fuse->group_of[user];
    }
    if (count > 2)
        (void)try_merge(fuse, groups, count);
}

static void merge_inputs(struct fuse *fuse, uint32_t position)
{
    const struct ul_node *node = node_at(fuse, position);
    uint32_t below = NEVER;
    for (uint32_t turn = 0; turn < node->input_count; turn++) {
        /* The latest maker that has not been tried yet. */
        uint32_t latest = NEVER;
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t made = maker(fuse, node->inputs[i]);
            if (made != NEVER && made < below && (latest == NEVER || made > latest))
                latest = made;
        }
        if (latest == NEVER)
            break;
        below = latest;
        uint32_t pair[2] = {fuse->group_of[latest], fuse->group_of[position]};
        if (can_join(fuse, latest) && pair[0] != pair[1] && !try_merge(fuse, pair, 2))
            merge_readers(fuse, latest, position);
    }
}

/* ---- The block ---- */

static void note_need(struct fuse *fuse, ul_value_id value, uint32_t position)
{
    ul_value_id base = fuse->graph->values[value].view.base;
    if (fuse->alive_until[base] < position)
        fuse->alive_until[base] = position;
}

/* Calls for each value that the node, or what is nested in it, reads. */
static void note_reads(struct fuse *fuse, ul_node_id id, uint32_t position, uint32_t *reads,
                       uint32_t *read_count)
{
    const struct ul_node *node = &fuse->graph->nodes[id];
    fuse->position[id] = position;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint32_t made = maker(fuse, node->inputs[i]);
        if (node->inputs[i] != UL_NONE)
            note_need(fuse, node->inputs[i], position);
        if (made == NEVER)
            continue;
        if (reads != NULL)
            reads[*read_count] = made;
        ++*read_count;
    }
    for (uint32_t b = 0; b < node->block_count; b++) {
        const struct ul_block *block = &fuse->graph->blocks[node->blocks[b]];
        for (uint32_t n = 0; n < block->node_count; n++)
            note_reads(fuse, block->nodes[n], position, reads, read_count);
        for (uint32_t i = 0; i < block->output_count; i++) {
            uint32_t made = maker(fuse, block->outputs[i]);
            note_need(fuse, block->outputs[i], position);
            if (made == NEVER || made == position)
                continue;
            if (reads != NULL)
                reads[*read_count] = made;
            ++*read_count;
        }
    }
}

/* What reads an input comes before the node whose output overwrites it (donate.c). */
static void note_overwrites(const struct fuse *fuse, uint32_t position, uint32_t *reads,
                            uint32_t *read_count)
{
    const struct ul_node *node = node_at(fuse, position);
    for (uint32_t i = 0; i < node->output_count; i++) {
        ul_value_id output = node->outputs[i];
        ul_value_id donor = output == UL_NONE ? UL_NONE : fuse->graph->values[output].donor;
        for (uint32_t p = 0; donor != UL_NONE && p < position; p++) {
            if (!ul_donate_reads(fuse->graph, fuse->block->nodes[p], donor))
                continue;
            if (reads != NULL)
                reads[*read_count] = p;
            ++*read_count;
        }
    }
}

/* users[] by counting: for each position, the positions that read what it makes. */
static void find_users(struct fuse *fuse)
{
    const struct ul_block *block = fuse->block;
    uint32_t total = 0;
    for (uint32_t p = 0; p < block->node_count; p++)
        fuse->position[block->nodes[p]] = p;
    for (uint32_t p = 0; p < block->node_count; p++) {
        note_reads(fuse, block->nodes[p], p, NULL, &total);
        note_overwrites(fuse, p, NULL, &total);
    }
    uint32_t *reads = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    uint32_t *readers = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    uint32_t count = 0;
    fuse->users = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    fuse->user_begin = UL_NEW_ARRAY(fuse->scratch, uint32_t, (uint64_t)block->node_count + 2);
    for (uint32_t p = 0; p < block->node_count; p++) {
        uint32_t before = count;
        note_reads(fuse, block->nodes[p], p, reads, &count);
        note_overwrites(fuse, p, reads, &count);
        for (uint32_t i = before; i < count; i++) {
            readers[i] = p;
            fuse->user_begin[reads[i] + 2]++;
        }
    }
    for (uint32_t p = 0; p < block->node_count; p++)
        fuse->user_begin[p + 2] += fuse->user_begin[p + 1];
    for (uint32_t i = 0; i < count; i++)
        fuse->users[fuse->user_begin[reads[i] + 1]++] = readers[i];
}

/* Groups in an order in which each comes after what it needs, as near to the old one as can be: of
 * those that are ready, the one whose anchor (or last node) stood first. */
struct ready {
    uint32_t *heap; /* group ids by key */
    uint32_t *key;  /* per group */
    uint32_t count;
};

static void ready_push(struct ready *ready, uint32_t group)
{
    uint32_t at = ready->count++;
    while (at > 0 && ready->key[ready->heap[(at - 1) / 2]] > ready->key[group]) {
        ready->heap[at] = ready->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    ready->heap[at] = group;
}

static uint32_t ready_pop(struct ready *ready)
{
    uint32_t top = ready->heap[0];
    uint32_t moved = ready->heap[--ready->count];
    uint32_t at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= ready->count)
            break;
        if (child + 1 < ready->count &&
            ready->key[ready->heap[child + 1]] < ready->key[ready->heap[child]])
            child++;
        if (ready->key[ready->heap[child]] >= ready->key[moved])
            break;
        ready->heap[at] = ready->heap[child];
        at = child;
    }
    ready->heap[at] = moved;
    return top;
}

static uint32_t group_key(const struct fuse *fuse, const struct group *group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        if (!is_map(node_at(fuse, group->members[i])))
            return group->members[i];
    }
    return group->members[group->count - 1];
}

/* How many reads of each group come from other groups. */
static uint32_t *count_waits(const struct fuse *fuse)
{
    uint32_t *waits = UL_NEW_ARRAY(fuse->scratch, uint32_t, fuse->block->node_count);
    for (uint32_t p = 0; p < fuse->block->node_count; p++) {
        for (uint32_t u = fuse->user_begin[p]; u < fuse->user_begin[p + 1]; u++) {
            if (fuse->group_of[fuse->users[u]] != fuse->group_of[p])
                waits[fuse->group_of[fuse->users[u]]]++;
        }
    }
    return waits;
}

static void emit_group(struct fuse *fuse, const struct group *group, ul_node_id *out,
                       uint32_t *out_count, uint32_t *next_group)
{
    for (uint32_t i = 0; i < group->count; i++) {
        ul_node_id id = fuse->block->nodes[group->members[i]];
        fuse->graph->nodes[id].group = group->count > 1 ? *next_group : UL_NONE;
        out[(*out_count)++] = id;
    }
    *next_group += group->count > 1;
}

static void reorder(struct fuse *fuse, uint32_t *next_group)
{
    uint32_t total = fuse->block->node_count;
    uint32_t *waits = count_waits(fuse);
    struct ready ready = {UL_NEW_ARRAY(fuse->scratch, uint32_t, total),
                          UL_NEW_ARRAY(fuse->scratch, uint32_t, total), 0};
    ul_node_id *out = UL_NEW_ARRAY(fuse->scratch, ul_node_id, total);
    uint32_t out_count = 0;
    for (uint32_t p = 0; p < total; p++) {
        uint32_t group = fuse->group_of[p];
        if (fuse->groups[group].members[0] != p)
            continue;
        ready.key[group] = group_key(fuse, &fuse->groups[group]);
        if (waits[group] == 0)
            ready_push(&ready, group);
    }
    while (ready.count > 0) {
        const struct group *group = &fuse->groups[ready_pop(&ready)];
        emit_group(fuse, group, out, &out_count, next_group);
        for (uint32_t m = 0; m < group->count; m++) {
            uint32_t p = group->members[m];
            for (uint32_t u = fuse->user_begin[p]; u < fuse->user_begin[p + 1]; u++) {
                uint32_t other = fuse->group_of[fuse->users[u]];
                if (other != fuse->group_of[p] && --waits[other] == 0)
                    ready_push(&ready, other);
            }
        }
    }
    UL_ASSERT(out_count == total);
    if (total > 0)
        memcpy(fuse->block->nodes, out, total * sizeof *out);
}

static void fuse_block(struct fuse *fuse, ul_block_id id, uint32_t *next_group)
{
    struct ul_graph *graph = fuse->graph;
    fuse->block = &graph->blocks[id];
    uint32_t total = fuse->block->node_count;
    fuse->group_of = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    fuse->groups = UL_NEW_ARRAY(fuse->scratch, struct group, total);
    fuse->seen = UL_NEW_ARRAY(fuse->scratch, uint32_t, total);
    fuse->is_view = UL_NEW_ARRAY(fuse->scratch, bool, total);
    fuse->seen_mark = 0;
    memset(fuse->alive_until, 0, graph->value_count * sizeof *fuse->alive_until);
    for (uint32_t p = 0; p < total; p++) {
        fuse->group_of[p] = p;
        fuse->groups[p].members = UL_NEW(fuse->scratch, uint32_t);
        fuse->groups[p].members[0] = p;
        fuse->groups[p].count = 1;
        fuse->is_view[p] = ul_node_is_view(graph, fuse->block->nodes[p]);
    }
    for (uint32_t i = 0; i < fuse->block->output_count; i++) {
        fuse->block_output[fuse->block->outputs[i]] = true;
        note_need(fuse, fuse->block->outputs[i], NEVER);
    }
    for (uint32_t i = 0; i < fuse->block->input_count; i++)
        note_need(fuse, fuse->block->inputs[i], id == 0 ? 0 : NEVER);
    find_users(fuse);
    for (uint32_t p = 0; p < total; p++) {
        if (can_join(fuse, p))
            merge_inputs(fuse, p);
    }
    reorder(fuse, next_group);
}

static void fuse_all(struct ul_pass *pass, bool neighbours_only)
{
    struct ul_graph *graph = pass->graph;
    struct ul_arena scratch;
    uint32_t next_group = 0;
    ul_arena_init(&scratch);
    struct fuse fuse = {.pass = pass, .graph = graph, .neighbours_only = neighbours_only};
    fuse.scratch = &scratch;
    fuse.position = UL_NEW_ARRAY(&scratch, uint32_t, graph->node_count);
    fuse.alive_until = UL_NEW_ARRAY(&scratch, uint32_t, graph->value_count);
    fuse.block_output = UL_NEW_ARRAY(&scratch, bool, graph->value_count);
    fuse.call_escapes = UL_NEW_ARRAY(&scratch, bool, graph->value_count);
    for (uint32_t b = 0; b < graph->block_count; b++) {
        if (b == 0 || graph->blocks[b].owner != UL_NONE)
            fuse_block(&fuse, b, &next_group);
    }
    ul_arena_done(&scratch);
}

/* Order and groups as they were; `order` has the nodes of all blocks, one block after the other. */
static void restore(struct ul_graph *graph, const ul_node_id *order)
{
    for (uint32_t b = 0; b < graph->block_count; b++) {
        struct ul_block *block = &graph->blocks[b];
        for (uint32_t n = 0; n < block->node_count; n++) {
            block->nodes[n] = *order++;
            graph->nodes[block->nodes[n]].group = UL_NONE;
        }
    }
}

static uint64_t peak(struct ul_pass *pass)
{
    struct ul_node_list order = ul_edit_all_nodes(pass->graph, pass->scratch);
    return ul_live_peak(pass->graph, &order, pass->scratch);
}

enum ul_status ul_pass_fuse(struct ul_pass *pass)
{
    struct ul_graph *graph = pass->graph;
    ul_node_id *order = UL_NEW_ARRAY(pass->scratch, ul_node_id, graph->node_count);
    uint32_t count = 0;
    for (uint32_t b = 0; b < graph->block_count; b++) {
        for (uint32_t n = 0; n < graph->blocks[b].node_count; n++)
            order[count++] = graph->blocks[b].nodes[n];
    }
    uint64_t before = peak(pass);
    fuse_all(pass, false);
    if (peak(pass) <= before)
        return UL_OK;
    restore(graph, order);
    fuse_all(pass, true);
    if (peak(pass) > before)
        restore(graph, order);
    return UL_OK;
}
