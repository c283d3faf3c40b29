/* SPDX-License-Identifier: Apache-2.0 */
/* The shape of a contraction for a schedule: merges dimensions, and chooses sizes of blocks.
 *
 * Problem: operands and epilogues index with several variables (batch, row, channel, kernel
 * position), while loops want one long contiguous run. Method: two neighbouring dimensions of a
 * class become one when every index that uses them has stride(outer) = extent(inner) *
 * stride(inner), and nothing else mentions them. Each user (an operand, the epilogue) is merged
 * separately, since packing and storing are separate loops.
 *
 * Blocks: a panel holds `depth` values of k for 192 bytes of columns. Up to MAX_DEPTH all of k is
 * one panel; above it k is cut into equal panels of about GOOD_DEPTH, and the sums of up to
 * MAX_ROWS rows wait in scratch meanwhile, never in the output, which the epilogue may read at the
 * same place. So scratch is at most 96 KiB of panel (or 48 KiB and 96 KiB of sums), about the size
 * of a second-level cache, and a panel is read again for every 8 rows. */
#include "codegen/kernel/contract_internal.h"
#include "ir/kernel_build.h"

#include <string.h>

#define MAX_DEPTH 512
#define GOOD_DEPTH 256
#define NARROW 2 /* panels of narrow integers are this many times deeper */
#define MAX_ROWS 512
#define ROW_BYTES 16384 /* sums of the row form: half of a usual first-level cache */
#define STREAM_BYTES                                                                               \
    ((int64_t)256 << 10) /* of b: above this, few rows stream it as it is in memory */
#define MIN_WORK 256     /* products below which plain loops are best */

struct walk {
    const struct ul_kernel *kernel;
    const struct ul_contraction *contraction;
    struct ul_arena *arena;
    struct ul_contract_uses *uses;
    ul_kx *let_of;       /* by variable: its expression, or UL_NONE */
    unsigned char *seen; /* by expression */
};

/* The contraction's dimension of a variable, or UL_CONTRACT_DIMS. */
static uint32_t dim_of(const struct ul_contraction *contraction, uint32_t var)
{
    uint32_t count = contraction->m_count + contraction->n_count + contraction->k_count;
    for (uint32_t d = 0; d < count; d++)
        if (contraction->vars[d] == var)
            return d;
    return UL_CONTRACT_DIMS;
}

/* Adds scale * x to `sum`; false when x is not affine in the contraction's variables. */
static bool add_affine(const struct walk *walk, ul_kx x, int64_t scale, struct ul_affine *sum,
                       uint32_t depth)
{
    const struct ul_kx_data *expr = &walk->kernel->exprs[x];
    int64_t factor;
    if (depth > 24)
        return false;
    switch ((int)expr->op) {
    case UL_KX_INT:
        return true;
    case UL_KX_VAR: {
        uint32_t d = dim_of(walk->contraction, expr->var);
        if (d < UL_CONTRACT_DIMS)
            sum->strides[d] += scale;
        else if (walk->let_of[expr->var] != UL_NONE)
            return add_affine(walk, walk->let_of[expr->var], scale, sum, depth + 1);
        return !walk->kernel->vars[expr->var].is_mutable;
    }
    case UL_KX_ADD:
    case UL_KX_SUB:
        return add_affine(walk, expr->a, scale, sum, depth + 1) &&
               add_affine(walk, expr->b, expr->op == UL_KX_ADD ? scale : -scale, sum, depth + 1);
    case UL_KX_MUL:
        if (ul_kx_is_int(walk->kernel, expr->b, &factor))
            return add_affine(walk, expr->a, scale * factor, sum, depth + 1);
        if (ul_kx_is_int(walk->kernel, expr->a, &factor))
            return add_affine(walk, expr->b, scale * factor, sum, depth + 1);
        return false;
    default:
        return false;
    }
}

static void use_expression(struct walk *walk, ul_kx x);

static void use_index(struct walk *walk, ul_kx index)
{
    struct ul_contract_uses *uses = walk->uses;
    struct ul_affine affine = {.base = UL_NONE};
    if (!add_affine(walk, index, 1, &affine, 0)) {
        use_expression(walk, index);
        return;
    }
    for (uint32_t d = 0; d < UL_CONTRACT_DIMS; d++)
        uses->is_mentioned[d] |= affine.strides[d] != 0;
    UL_GROW(walk->arena, uses->indexes, uses->count, uses->capacity);
    uses->indexes[uses->count++] = affine;
}

static void use_expression(struct walk *walk, ul_kx x)
{
    const struct ul_kx_data *expr = &walk->kernel->exprs[x];
    if (walk->seen[x])
        return;
    walk->seen[x] = 1;
    if (expr->op == UL_KX_LOAD) {
        use_index(walk, expr->a);
        return;
    }
    if (expr->op == UL_KX_VAR) {
        uint32_t d = dim_of(walk->contraction, expr->var);
        if (d < UL_CONTRACT_DIMS)
            walk->uses->is_opaque[d] = walk->uses->is_mentioned[d] = true;
        else if (walk->let_of[expr->var] != UL_NONE)
            use_expression(walk, walk->let_of[expr->var]);
        walk->uses->mentions_acc |= expr->var == walk->contraction->acc;
        return;
    }
    uint32_t operands[] = {expr->a, expr->b, expr->c};
    for (uint32_t i = 0; i < ul_kx_operand_count(expr->op); i++)
        use_expression(walk, operands[i]);
}

static void use_statements(struct walk *walk, ul_ks first)
{
    for (ul_ks s = first; s != UL_NONE; s = walk->kernel->stmts[s].next) {
        const struct ul_ks_data *stmt = &walk->kernel->stmts[s];
        switch (stmt->kind) {
        case UL_KS_LET: /* counted where it is used; counted here too in case it is only declared */
            walk->let_of[stmt->var] = stmt->value;
            if (walk->kernel->vars[stmt->var].dtype != UL_I64)
                use_expression(walk, stmt->value);
            else
                use_index(walk, stmt->value);
            break;
        case UL_KS_STORE:
            use_index(walk, stmt->index);
            use_expression(walk, stmt->value);
            break;
        case UL_KS_SET:
        case UL_KS_VAR:
            use_expression(walk, stmt->value);
            break;
        case UL_KS_FOR:
        case UL_KS_IF:
            use_expression(walk, stmt->value);
            use_statements(walk, stmt->body);
            if (stmt->kind == UL_KS_IF)
                use_statements(walk, stmt->orelse);
            break;
        case UL_KS_CONTRACT:
        case UL_KS_BREAK:
            break;
        }
    }
}

static void use_operand(struct walk *walk, const struct ul_operand *operand)
{
    struct ul_contract_uses *uses = walk->uses;
    if (operand->transform != UL_NONE)
        use_expression(walk, operand->transform);
    for (uint32_t b = 0; b <= operand->bound_count; b++) {
        UL_GROW(walk->arena, uses->indexes, uses->count, uses->capacity);
        uses->indexes[uses->count++] = b == 0 ? operand->at : operand->bounds[b - 1].at;
    }
}

static bool mergeable(const struct ul_contract_uses *uses, uint32_t outer, uint32_t inner,
                      int64_t inner_extent)
{
    if (uses->is_opaque[outer] || uses->is_opaque[inner])
        return false;
    for (uint32_t i = 0; i < uses->count; i++)
        if (uses->indexes[i].strides[outer] != inner_extent * uses->indexes[i].strides[inner])
            return false;
    return true;
}

void ul_contract_merge(const struct ul_contraction *contraction,
                       const struct ul_contract_uses *uses, uint32_t first, uint32_t count,
                       struct ul_contract_dims *dims)
{
    memset(dims, 0, sizeof *dims);
    for (uint32_t d = first; d < first + count; d++) {
        if (contraction->extents[d] == 1)
            continue;
        uint32_t last = dims->count;
        if (last > 0 && mergeable(uses, dims->carrier[last - 1], d, contraction->extents[d])) {
            dims->carrier[last - 1] = d;
            dims->extents[last - 1] *= contraction->extents[d];
            continue;
        }
        dims->carrier[last] = d;
        dims->extents[last] = contraction->extents[d];
        dims->count++;
    }
    if (dims->count == 0) {
        dims->count = 1;
        dims->carrier[0] = first + count - 1;
        dims->extents[0] = 1;
    }
    UL_ASSERT(dims->count > 0 && dims->count <= UL_CONTRACT_DIMS);
}

static int64_t product(const struct ul_contraction *contraction, uint32_t first, uint32_t count)
{
    UL_ASSERT(first + count <= UL_CONTRACT_DIMS);
    uint64_t total = 1;
    for (uint32_t d = first; d < first + count; d++)
        total = ul_size_mul_or_die(total, (uint64_t)contraction->extents[d]);
    return (int64_t)total;
}

static bool is_plain(const struct ul_kernel *kernel, const struct ul_contraction *contraction,
                     const struct ul_operand *operand)
{
    return operand->transform == UL_NONE && operand->bound_count == 0 &&
           ul_operand_dtype(kernel, operand) == contraction->acc_dtype;
}

/* The stride of the last merged dimension. */
static int64_t last_stride(const struct ul_affine *at, const struct ul_contract_dims *dims)
{
    UL_ASSERT(dims->count > 0);
    return at->strides[dims->carrier[dims->count - 1]];
}

static void collect_uses(struct ul_contract_plan *plan, const struct ul_kernel *kernel,
                         struct ul_arena *arena)
{
    const struct ul_contraction *contraction = plan->contraction;
    struct walk walk = {.kernel = kernel, .contraction = contraction, .arena = arena};
    walk.let_of = UL_NEW_ARRAY(arena, ul_kx, kernel->var_count);
    for (uint32_t v = 0; v < kernel->var_count; v++)
        walk.let_of[v] = UL_NONE;
    walk.seen = UL_NEW_ARRAY(arena, unsigned char, kernel->expr_count);
    walk.uses = &plan->a_uses;
    use_operand(&walk, &contraction->a);
    memset(walk.seen, 0, kernel->expr_count);
    walk.uses = &plan->b_uses;
    use_operand(&walk, &contraction->b);
    memset(walk.seen, 0, kernel->expr_count);
    walk.uses = &plan->epilogue_uses;
    use_statements(&walk, contraction->epilogue);
}

bool ul_contract_is_regular(const struct ul_contract_plan *plan)
{
    const struct ul_contraction *c = plan->contraction;
    for (uint32_t d = 0; d < c->m_count + c->n_count; d++) {
        const struct ul_contract_uses *other = d < c->m_count ? &plan->b_uses : &plan->a_uses;
        if (other->is_opaque[d])
            return false;
        for (uint32_t i = 0; i < other->count; i++)
            if (other->indexes[i].strides[d] != 0)
                return false;
    }
    return true;
}

static void set_type(struct ul_contract_plan *plan)
{
    static const struct {
        enum ul_dtype dtype;
        const char *tag, *type, *acc_type;
        int64_t bytes;
    } types[] = {
        {UL_F32, "f32", "float", "float", 4},      {UL_F64, "f64", "double", "double", 8},
        {UL_I32, "u32", "uint32_t", "int32_t", 4}, {UL_U32, "u32", "uint32_t", "uint32_t", 4},
        {UL_I64, "u64", "uint64_t", "int64_t", 8}, {UL_U64, "u64", "uint64_t", "uint64_t", 8},
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].dtype != plan->contraction->acc_dtype)
            continue;
        plan->tag = types[i].tag;
        plan->type = types[i].type;
        plan->acc_type = types[i].acc_type;
        plan->element_bytes = types[i].bytes;
        plan->block_cols = UL_CONTRACT_BLOCK_BYTES / types[i].bytes;
        return;
    }
    UL_ASSERT(plan->type != NULL); /* sums are f32, f64 or integers of 32 or 64 bits */
}

/* Whether rows of a can be multiplied in place. */
static bool reads_a_in_place(const struct ul_contract_plan *plan)
{
    if (plan->a_m.count > 1 || plan->a_k.count > 1)
        return false;
    if (plan->group == 1)
        return plan->a_plain;
    return ul_contract_stores_bytes(plan, &plan->contraction->a) &&
           plan->contraction->a.bound_count == 0 && plan->k % plan->group == 0 &&
           last_stride(&plan->contraction->a.at, &plan->a_k) == 1;
}

static void size_tiles(struct ul_contract_plan *plan)
{
    int64_t scale = plan->group > 1 ? NARROW : 1;
    plan->depth = plan->k;
    plan->rows = UL_CONTRACT_ROWS;
    if (plan->k > scale * MAX_DEPTH) {
        int64_t panels = (plan->k + scale * GOOD_DEPTH - 1) / (scale * GOOD_DEPTH);
        plan->depth = ul_round_up((plan->k + panels - 1) / panels, plan->group);
        plan->rows = plan->m < MAX_ROWS ? plan->m : MAX_ROWS;
    }
    plan->packs_a = !reads_a_in_place(plan);
    plan->reads_b_in_place = plan->m <= UL_CONTRACT_ROWS && plan->b_plain && plan->b_n.count == 1 &&
                             plan->b_k.count == 1 &&
                             last_stride(&plan->contraction->b.at, &plan->b_n) == 1;
    /* A vector may be stored past the last row of the panel; groups are interleaved as a whole. */
    int64_t groups = ul_round_up(plan->depth, plan->group) / plan->group;
    plan->panel_bytes = (groups + (plan->group == 1)) * UL_CONTRACT_BLOCK_BYTES;
    plan->sums_bytes = plan->rows * UL_CONTRACT_BLOCK_BYTES;
    if (plan->packs_a)
        plan->a_bytes =
            ul_round_up(UL_CONTRACT_ROWS * groups * plan->group * plan->packed_bytes, 64);
    UL_ASSERT(plan->depth > 0 && plan->rows > 0);
}

/* Sums of a run of columns, and a part of the rows of a when they cannot be read in place. */
static void size_row(struct ul_contract_plan *plan)
{
    int64_t max = ROW_BYTES / plan->element_bytes / plan->m;
    UL_ASSERT(max > 0);
    plan->rows = plan->m;
    plan->row_cols = plan->n < max ? plan->n : max;
    plan->sums_bytes = (plan->m * plan->row_cols * plan->element_bytes + 63) / 64 * 64;
    plan->depth = plan->k;
    plan->packs_a = !reads_a_in_place(plan);
    if (plan->packs_a) {
        plan->depth = plan->k < max ? plan->k : max / plan->group * plan->group;
        plan->a_bytes =
            ul_round_up(plan->m * ul_round_up(plan->depth, plan->group) * plan->packed_bytes, 64);
    }
}

/* Whether the operand's elements are stored as they are multiplied. */
static bool is_stored(const struct ul_contract_plan *plan, const struct ul_operand *operand,
                      bool is_plain)
{
    return is_plain || (ul_contract_stores_bytes(plan, operand) && operand->bound_count == 0);
}

static enum ul_contract_schedule choose(struct ul_contract_plan *plan)
{
    const struct ul_contraction *c = plan->contraction;
    bool b_stored = is_stored(plan, &c->b, plan->b_plain);
    bool both_plain = b_stored && is_stored(plan, &c->a, plan->a_plain);
    if (plan->k == 0 || !ul_contract_is_regular(plan))
        return UL_CONTRACT_PLAIN;
    if ((double)plan->m * (double)plan->n * (double)plan->k < MIN_WORK)
        return UL_CONTRACT_PLAIN;
    bool k_runs = plan->a_k.count == 1 && plan->b_k.count == 1 &&
                  last_stride(&c->a.at, &plan->a_k) == 1 && last_stride(&c->b.at, &plan->b_k) == 1;
    if ((plan->m == 1 || plan->n == 1) && both_plain && k_runs && plan->k >= 16)
        return UL_CONTRACT_DOT;
    int64_t column = last_stride(&c->b.at, &plan->b_n);
    if (plan->m == 1 && ul_contract_window_size(plan))
        return UL_CONTRACT_WINDOW;
    if (plan->m == 1 && column > 0 && column <= 4)
        return UL_CONTRACT_ROW;
    bool b_streams = b_stored && plan->b_n.count == 1 && plan->b_k.count == 1 && column == 1;
    int64_t stored_bytes = ul_contract_is_bytes(plan) ? 1 : plan->element_bytes;
    if (plan->m <= UL_CONTRACT_ROWS && b_streams && plan->n * plan->k > STREAM_BYTES / stored_bytes)
        return UL_CONTRACT_ROW;
    return UL_CONTRACT_TILE;
}

/* Whether the schedule multiplies narrow operands as such. */
static bool takes_narrow(const struct ul_contract_plan *plan)
{
    const struct ul_contraction *c = plan->contraction;
    switch (plan->schedule) {
    case UL_CONTRACT_TILE:
        return true;
    case UL_CONTRACT_ROW:
        return ul_contract_stores_bytes(plan, &c->b) && c->b.bound_count == 0 &&
               plan->b_n.count == 1 && plan->b_k.count == 1 &&
               last_stride(&c->b.at, &plan->b_n) == 1;
    case UL_CONTRACT_WINDOW:
    case UL_CONTRACT_DOT:
        return ul_contract_is_bytes(plan);
    case UL_CONTRACT_PLAIN:
        break;
    }
    return false;
}

void ul_contract_plan_init(struct ul_contract_plan *plan, const struct ul_kernel *kernel,
                           const struct ul_contraction *contraction, struct ul_arena *arena)
{
    memset(plan, 0, sizeof *plan);
    plan->contraction = contraction;
    uint32_t m = contraction->m_count, n = contraction->n_count, k = contraction->k_count;
    plan->m = product(contraction, 0, m);
    plan->n = product(contraction, m, n);
    plan->k = product(contraction, m + n, k);
    set_type(plan);
    collect_uses(plan, kernel, arena);
    plan->a_plain = is_plain(kernel, contraction, &contraction->a);
    plan->a_same = ul_operand_dtype(kernel, &contraction->a) == contraction->acc_dtype;
    plan->b_same = ul_operand_dtype(kernel, &contraction->b) == contraction->acc_dtype;
    plan->b_plain = is_plain(kernel, contraction, &contraction->b);
    ul_contract_merge(contraction, &plan->a_uses, 0, m, &plan->a_m);
    ul_contract_merge(contraction, &plan->a_uses, m + n, k, &plan->a_k);
    ul_contract_merge(contraction, &plan->b_uses, m, n, &plan->b_n);
    ul_contract_merge(contraction, &plan->b_uses, m + n, k, &plan->b_k);
    ul_contract_merge(contraction, &plan->epilogue_uses, 0, m, &plan->out_m);
    ul_contract_merge(contraction, &plan->epilogue_uses, m, n, &plan->out_n);
    ul_contract_narrow_find(plan, kernel);
    plan->schedule = choose(plan);
    ul_contract_narrow_set(plan, takes_narrow(plan));
    if (plan->schedule == UL_CONTRACT_TILE)
        size_tiles(plan);
    if (plan->schedule == UL_CONTRACT_ROW)
        size_row(plan);
}

/* The plan with valid numbers only: its pointers are dangling. */
static struct ul_contract_plan sized_plan(const struct ul_kernel *kernel,
                                          const struct ul_contraction *contraction)
{
    struct ul_arena arena;
    struct ul_contract_plan plan;
    ul_arena_init(&arena);
    ul_contract_plan_init(&plan, kernel, contraction, &arena);
    ul_arena_done(&arena);
    return plan;
}

uint64_t ul_contract_scratch_bytes(const struct ul_kernel *kernel,
                                   const struct ul_contraction *contraction)
{
    struct ul_contract_plan plan = sized_plan(kernel, contraction);
    uint64_t bytes = (uint64_t)(plan.panel_bytes + plan.sums_bytes + plan.a_bytes);
    UL_ASSERT(bytes <= UL_CONTRACT_SCRATCH_BYTES);
    return bytes;
}

static uint32_t order_of(const struct ul_contract_plan *plan)
{
    const struct ul_operand *b = &plan->contraction->b;
    switch (plan->schedule) {
    case UL_CONTRACT_TILE:
    case UL_CONTRACT_WINDOW:
        return UL_CONTRACT_IN_ORDER;
    case UL_CONTRACT_ROW:
        return b->bound_count > 0 && !(b->outside < 0) && !(b->outside > 0) ? UL_CONTRACT_SKIPPING
                                                                            : UL_CONTRACT_IN_ORDER;
    case UL_CONTRACT_DOT:
        return UL_CONTRACT_PARTIAL;
    case UL_CONTRACT_PLAIN:
        break;
    }
    return UL_CONTRACT_LOOSE;
}

uint32_t ul_contract_orders(const struct ul_kernel *kernel)
{
    struct ul_arena arena;
    uint32_t orders = 0;
    ul_arena_init(&arena);
    for (uint32_t i = 0; i < kernel->contraction_count; i++) {
        struct ul_contract_plan plan;
        if (!ul_dtype_get(kernel->contractions[i].acc_dtype)->is_float)
            continue;
        ul_contract_plan_init(&plan, kernel, &kernel->contractions[i], &arena);
        orders |= order_of(&plan);
        ul_arena_reset(&arena);
    }
    ul_arena_done(&arena);
    return orders;
}

enum ul_contract_reads ul_contract_reads_c(const struct ul_kernel *kernel,
                                           const struct ul_contraction *contraction)
{
    struct ul_contract_plan plan = sized_plan(kernel, contraction);
    switch (plan.schedule) {
    case UL_CONTRACT_TILE: /* a panel is packed, or its few sums formed, before results follow */
        return plan.depth == plan.k || plan.rows >= plan.m ? UL_CONTRACT_READS_COLUMN
                                                           : UL_CONTRACT_READS_ANY;
    case UL_CONTRACT_ROW:
        return UL_CONTRACT_READS_COLUMN;
    case UL_CONTRACT_WINDOW:
        return plan.strips == 1 ? UL_CONTRACT_READS_WHOLE : UL_CONTRACT_READS_ANY;
    case UL_CONTRACT_DOT:
    case UL_CONTRACT_PLAIN:
        break;
    }
    return UL_CONTRACT_READS_ANY;
}
