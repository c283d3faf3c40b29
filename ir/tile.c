/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks nests that move elements from one order in memory to another.
 *
 * Problem: where a load walks along one loop and the store along another, one of the two touches a
 * line of memory for each element, and the line is gone from the cache when its next element is
 * due. Method: both loops are cut into blocks, and the blocks' loops go innermost:
 *
 *      for i < 100: for j < 50:       for I < 2: for J < 4: for i < min(64, 100 - 64 I):
 *          y[50 i + j] = x[100 j + i]     for j < min(16, 50 - 16 J): y[...] = x[...]
 *
 * A block's lines of both sides fit the first cache, and whole lines are read. Only nests of
 * PARALLEL loops with nothing between them, whose body holds no loop, are touched: their iterations
 * may run in any order. Left undone: more than two dimensions at once. */
#include "ir/kernel_build.h"

enum {
    MAX_LOOPS = 16,
    OUTER_BLOCK = 64, /* along the loop that moves out: four lines of f32 at once */
    INNER_BLOCK = 16, /* along the innermost one: a line */
    FAR = 16,         /* elements: beyond it each is on a line of its own */
    NEAR = 2
};

struct nest {
    struct ul_kernel *kernel;
    uint32_t count;
    ul_ks loops[MAX_LOOPS];
    int64_t counts[MAX_LOOPS];
    uint32_t outer; /* the loop to block with the innermost one; UL_NONE: none found */
    bool *seen;     /* per expression: scratch */
};

static const struct ul_ks_data *stmt_of(const struct nest *nest, ul_ks id)
{
    return &nest->kernel->stmts[id];
}

/* ---- How far an index moves with a loop ---- */

/* An access that strides along the innermost loop and hardly along another asks for blocks. */
static void ask_index(struct nest *nest, ul_kx index)
{
    uint32_t last = nest->count - 1;
    int64_t factor;
    if (nest->outer != UL_NONE ||
        !ul_kx_factor(nest->kernel, index, stmt_of(nest, nest->loops[last])->var, &factor) ||
        (factor < FAR && factor > -FAR))
        return;
    for (uint32_t i = last; i-- > 0;) {
        if (nest->counts[i] < INNER_BLOCK ||
            !ul_kx_factor(nest->kernel, index, stmt_of(nest, nest->loops[i])->var, &factor) ||
            factor == 0 || factor > NEAR || factor < -NEAR)
            continue;
        nest->outer = i;
        return;
    }
}

static void ask_expr(struct nest *nest, ul_kx id)
{
    if (id == UL_NONE || nest->seen[id])
        return;
    const struct ul_kx_data expr = nest->kernel->exprs[id];
    nest->seen[id] = true;
    if (expr.op == UL_KX_INT || expr.op == UL_KX_FLOAT || expr.op == UL_KX_VAR)
        return;
    if (expr.op == UL_KX_LOAD)
        ask_index(nest, expr.a);
    ask_expr(nest, expr.a);
    if (ul_kx_operand_count(expr.op) >= 2)
        ask_expr(nest, expr.b);
    if (ul_kx_operand_count(expr.op) == 3)
        ask_expr(nest, expr.c);
}

/* ---- Nests ---- */

/* Collects the loop, and those that are alone in the one before; false where one cannot be
 * reordered. */
static bool nest_collect(struct nest *nest, ul_ks first)
{
    nest->count = 0;
    for (ul_ks id = first; stmt_of(nest, id)->kind == UL_KS_FOR; id = stmt_of(nest, id)->body) {
        const struct ul_ks_data *stmt = stmt_of(nest, id);
        if (nest->count == MAX_LOOPS || (stmt->flags & UL_FOR_PARALLEL) == 0 ||
            !ul_kx_is_int(nest->kernel, stmt->value, &nest->counts[nest->count]) ||
            stmt->body == UL_NONE)
            return false;
        nest->loops[nest->count++] = id;
        if (stmt_of(nest, stmt->body)->kind == UL_KS_FOR &&
            stmt_of(nest, stmt->body)->next != UL_NONE)
            return false;
    }
    return nest->count >= 2 && nest->counts[nest->count - 1] >= INNER_BLOCK;
}

/* Whether the body has only LET and STORE: its iterations have nothing in common. */
static bool nest_ask(struct nest *nest)
{
    ul_ks body = stmt_of(nest, nest->loops[nest->count - 1])->body;
    nest->outer = UL_NONE;
    for (ul_ks id = body; id != UL_NONE; id = stmt_of(nest, id)->next) {
        const struct ul_ks_data *stmt = stmt_of(nest, id);
        if (stmt->kind != UL_KS_LET && stmt->kind != UL_KS_STORE)
            return false;
        ask_expr(nest, stmt->value);
        if (stmt->kind == UL_KS_STORE)
            ask_index(nest, stmt->index);
    }
    return nest->outer != UL_NONE;
}

static ul_ks stmt_add(struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    UL_GROW(kernel->arena, kernel->stmts, kernel->stmt_count, kernel->stmt_capacity);
    kernel->stmts[kernel->stmt_count] = *stmt;
    return kernel->stmt_count++;
}

static uint32_t var_add(struct ul_kernel *kernel, int64_t count)
{
    UL_GROW(kernel->arena, kernel->vars, kernel->var_count, kernel->var_capacity);
    kernel->vars[kernel->var_count] =
        (struct ul_kernel_var){.dtype = UL_I64, .low = 0, .high = count - 1};
    return kernel->var_count++;
}

/* Makes the loop count blocks. Returns a loop over one block, which the caller puts into place: its
 * body begins with the old value of the loop's variable. */
static ul_ks split_loop(struct nest *nest, uint32_t index, int64_t block)
{
    struct ul_kernel *kernel = nest->kernel;
    int64_t count = nest->counts[index];
    int64_t blocks = (count + block - 1) / block;
    struct ul_ks_data inner = *stmt_of(nest, nest->loops[index]);
    struct ul_ks_data let = {.kind = UL_KS_LET,
                             .var = inner.var,
                             .index = UL_NONE,
                             .body = UL_NONE,
                             .orelse = UL_NONE,
                             .next = UL_NONE};
    uint32_t block_var = var_add(kernel, blocks);
    inner.var = var_add(kernel, block);
    ul_kx begin = ul_kx_muli(kernel, ul_kx_var(kernel, block_var), block);
    ul_kx left = ul_kx_sub(kernel, ul_kx_index_const(kernel, count), begin);
    inner.value = count % block == 0
                      ? ul_kx_index_const(kernel, block)
                      : ul_kx_binary(kernel, UL_KX_MIN, left, ul_kx_index_const(kernel, block));
    let.value = ul_kx_add(kernel, begin, ul_kx_var(kernel, inner.var));
    inner.next = UL_NONE;
    inner.body = stmt_add(kernel, &let);
    kernel->stmts[nest->loops[index]].var = block_var;
    kernel->stmts[nest->loops[index]].value = ul_kx_index_const(kernel, blocks);
    return stmt_add(kernel, &inner);
}

static void nest_block(struct nest *nest)
{
    struct ul_kernel *kernel = nest->kernel;
    uint32_t last = nest->count - 1;
    ul_ks body = stmt_of(nest, nest->loops[last])->body;
    ul_ks outer = split_loop(nest, nest->outer, OUTER_BLOCK);
    ul_ks inner = split_loop(nest, last, INNER_BLOCK);
    kernel->stmts[nest->loops[last]].body = outer;
    kernel->stmts[kernel->stmts[outer].body].next = inner;
    kernel->stmts[kernel->stmts[inner].body].next = body;
}

static void tile_list(struct nest *nest, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = stmt_of(nest, id)->next) {
        const struct ul_ks_data *stmt = stmt_of(nest, id);
        if (stmt->kind == UL_KS_FOR && nest_collect(nest, id)) {
            if (nest_ask(nest))
                nest_block(nest);
            continue;
        }
        if (stmt->kind == UL_KS_FOR || stmt->kind == UL_KS_IF) {
            ul_ks orelse = stmt->orelse;
            tile_list(nest, stmt->body);
            tile_list(nest, orelse);
        }
    }
}

void ul_ks_tile(struct ul_kernel *kernel)
{
    struct nest nest = {.kernel = kernel};
    nest.seen = UL_NEW_ARRAY(kernel->arena, bool, kernel->expr_count);
    tile_list(&nest, kernel->first);
}
