/* SPDX-License-Identifier: Apache-2.0 */
/* Counts the work of one call of a kernel, which a device profile turns into time: floating-point
 * operations, and operations by the unit that limits them (enum ul_work_kind), both by walking the
 * kernel's loops. A loop whose count is an expression has its greatest count; both branches of an
 * IF count.
 *
 * Method. A loop fills vector lanes when its iterations are independent, the loops inside are short
 * enough for a C compiler to unroll, and every access moves by 0 or 1 element a round, or by a few
 * where no function is called: then shuffles gather the lanes. Work in lanes counts as VECTOR or
 * SPECIAL, anything else as SCALAR: loads, stores and arithmetic count one each, affine indexes
 * nothing, since they stay in registers. A sum carried from round to round waits for itself.
 *
 *      for i (parallel): y[i] = exp(x[i]) + 1         VECTOR 3 (load, add, store), SPECIAL 1
 *      for i (reduce):   s = s + x[7 * i]             SCALAR 2 + CARRIED
 *
 * A contraction counts its products for the unit that its schedule uses, and packing as VECTOR;
 * transforms of operands count for each packed element.
 *
 * On a device each thread is a lane. It may have loops of its own, and sums are finished in lanes.
 * No branch is predicted, no rows share sets of a cache, contractions read their operands in place,
 * and attention counts the work of its tiles. */
#include "codegen/kernel/contract_internal.h"
#include "codegen/kernel/contract_window.h"
#include "codegen/kernel/lookup.h"
#include "codegen/kernel/profile.h"
#include "codegen/kernel/range.h"
#include "codegen/kernel/threads.h"
#include "ir/kernel_build.h"

/* By how much an index moves when the loop variable goes up by one; UNKNOWN: not constant. */
#define UNKNOWN INT64_MIN

/* In scalar operations: a function outside lanes; a value carried to the next round; a row of a
 * window's plane; a run of packed elements; a packed element that is picked from others; a cache
 * line of a matrix of which few elements are used; an access to a line that others of the same row
 * push out of the cache; and a branch that depends on data: half of the predictions are wrong,
 * which costs some 15 clocks. */
enum {
    SCALAR_SPECIAL = 12,
    CARRIED = 4,
    WINDOW_ROW = 40,
    PACKED_ROW = 64,
    PACKED_STRIDED = 6,
    SPARSE_LINE = 24,
    FAR_ACCESS = 48,
    BRANCH = 40
};

struct walk {
    const struct ul_kernel *kernel;
    struct ul_arena *scratch;
    struct ul_work *work;
    uint64_t *accesses; /* by buffer */
    int64_t *strides;   /* by variable, along the loop that is analysed */
    int64_t max_stride;
    bool vector;          /* inside a loop that fills lanes */
    bool is_set;          /* inside a value that is assigned to a variable */
    uint64_t row_columns; /* inside a contraction's epilogue: columns of a block; else 0 */
    const struct ul_threads *threads;
    bool on_device;
};

static void count(struct walk *walk, enum ul_work_kind kind, uint64_t operations)
{
    walk->work->counts[kind] = ul_size_add_saturating(walk->work->counts[kind], operations);
}

static void count_flops(struct walk *walk, uint64_t operations)
{
    walk->work->flop_count = ul_size_add_saturating(walk->work->flop_count, operations);
}

static void count_access(struct walk *walk, uint32_t buffer, uint64_t times)
{
    UL_ASSERT(buffer < walk->kernel->buffer_count);
    walk->accesses[buffer] = ul_size_add_saturating(walk->accesses[buffer], times);
}

/* ---- operands ---- */

/* Whether it is a function rather than an instruction; the runtime has lanes for these few, on
 * f32. */
static bool is_function(const struct ul_kx_data *expr)
{
    enum ul_kx_op op = expr->op;
    bool divides = op == UL_KX_MOD || op == UL_KX_FMOD;
    return (op >= UL_KX_EXP && op <= UL_KX_ERF) || op == UL_KX_POW || op == UL_KX_ATAN2 ||
           op == UL_KX_RANDOM || (divides && ul_dtype_get(expr->dtype)->is_float);
}

static bool has_lanes(const struct ul_kx_data *expr)
{
    return expr->dtype == UL_F32 && (expr->op == UL_KX_EXP || expr->op == UL_KX_LOG ||
                                     expr->op == UL_KX_TANH || expr->op == UL_KX_ERF);
}

/* ---- strides ---- */

static int64_t stride_of(const struct walk *walk, ul_kx id);

static int64_t stride_of_sum(const struct walk *walk, const struct ul_kx_data *expr)
{
    int64_t a = stride_of(walk, expr->a);
    int64_t b = stride_of(walk, expr->b);
    if (a == UNKNOWN || b == UNKNOWN)
        return UNKNOWN;
    uint64_t sum = (uint64_t)a + (expr->op == UL_KX_ADD ? (uint64_t)b : 0 - (uint64_t)b);
    return (int64_t)sum;
}

static int64_t stride_of_product(const struct walk *walk, const struct ul_kx_data *expr)
{
    int64_t stride = stride_of(walk, expr->a);
    int64_t factor;
    if (stride == 0 && stride_of(walk, expr->b) == 0)
        return 0;
    if (stride == UNKNOWN || !ul_kx_is_int(walk->kernel, expr->b, &factor))
        return UNKNOWN;
    return (int64_t)((uint64_t)stride * (uint64_t)factor);
}

static int64_t stride_of(const struct walk *walk, ul_kx id)
{
    UL_ASSERT(id < walk->kernel->expr_count);
    const struct ul_kx_data *expr = &walk->kernel->exprs[id];
    if (expr->op == UL_KX_INT || expr->op == UL_KX_FLOAT)
        return 0;
    if (expr->op == UL_KX_VAR)
        return walk->strides[expr->var];
    if (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB)
        return stride_of_sum(walk, expr);
    if (expr->op == UL_KX_MUL)
        return stride_of_product(walk, expr);
    bool fixed = stride_of(walk, expr->a) == 0;
    fixed = fixed && (ul_kx_operand_count(expr->op) < 2 || stride_of(walk, expr->b) == 0);
    fixed = fixed && (ul_kx_operand_count(expr->op) < 3 || stride_of(walk, expr->c) == 0);
    return fixed ? 0 : UNKNOWN;
}

static bool moves_little(const struct walk *walk, ul_kx index)
{
    int64_t stride = stride_of(walk, index);
    return stride >= 0 && stride <= walk->max_stride;
}

/* A table that stays in a multiprocessor's cache costs its threads nothing, wherever they read
 * it. */
static bool is_small_table(const struct walk *walk, uint32_t buffer)
{
    enum { TABLE_BYTES = 4096 };
    const struct ul_buffer *table = &walk->kernel->buffers[buffer];
    return walk->on_device && table->role == UL_BUFFER_INPUT &&
           ul_buffer_bytes(table) <= TABLE_BYTES;
}

static bool loads_move_little(const struct walk *walk, ul_kx id)
{
    if (id == UL_NONE)
        return true;
    const struct ul_kx_data *expr = &walk->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return true;
    if (expr->op == UL_KX_LOAD)
        return moves_little(walk, expr->a) || is_small_table(walk, expr->var);
    return loads_move_little(walk, expr->a) &&
           (ul_kx_operand_count(expr->op) < 2 || loads_move_little(walk, expr->b)) &&
           (ul_kx_operand_count(expr->op) < 3 || loads_move_little(walk, expr->c));
}

static bool is_unrolled(const struct walk *walk, const struct ul_ks_data *stmt)
{
    int64_t rounds;
    return ul_kx_is_int(walk->kernel, stmt->value, &rounds) && rounds <= UL_UNROLLED_ROUNDS;
}

static bool calls_function(const struct ul_kernel *kernel, ul_kx id)
{
    if (id == UL_NONE || ul_kx_operand_count(kernel->exprs[id].op) == 0)
        return false;
    const struct ul_kx_data *expr = &kernel->exprs[id];
    return is_function(expr) || calls_function(kernel, expr->a) ||
           (ul_kx_operand_count(expr->op) >= 2 && calls_function(kernel, expr->b)) ||
           (ul_kx_operand_count(expr->op) == 3 && calls_function(kernel, expr->c));
}

static bool list_calls_function(const struct ul_kernel *kernel, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &kernel->stmts[id];
        if (calls_function(kernel, stmt->value) || list_calls_function(kernel, stmt->body) ||
            list_calls_function(kernel, stmt->orelse))
            return true;
    }
    return false;
}

/* Whether a list can run in lanes; learns the strides of the variables that it declares. */
static bool fills_lanes(struct walk *walk, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = walk->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &walk->kernel->stmts[id];
        if (stmt->kind == UL_KS_CONTRACT || stmt->kind == UL_KS_BREAK)
            return false;
        if (stmt->kind == UL_KS_FOR && !is_unrolled(walk, stmt) && !walk->on_device)
            return false;
        if (!loads_move_little(walk, stmt->value))
            return false;
        if (stmt->kind == UL_KS_STORE && !moves_little(walk, stmt->index))
            return false;
        if (!fills_lanes(walk, stmt->body) || !fills_lanes(walk, stmt->orelse))
            return false;
        if (stmt->kind == UL_KS_LET)
            walk->strides[stmt->var] = stride_of(walk, stmt->value);
        else if (stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_SET)
            walk->strides[stmt->var] = UNKNOWN; /* as an index */
    }
    return true;
}

/* Strides of the loop's own variables mean nothing to the loops inside. */
static void forget_strides(struct walk *walk, ul_ks first)
{
    for (ul_ks id = first; id != UL_NONE; id = walk->kernel->stmts[id].next) {
        const struct ul_ks_data *stmt = &walk->kernel->stmts[id];
        if (stmt->kind == UL_KS_LET || stmt->kind == UL_KS_VAR || stmt->kind == UL_KS_SET)
            walk->strides[stmt->var] = 0;
        if (stmt->body == UL_NONE && stmt->orelse == UL_NONE)
            continue;
        forget_strides(walk, stmt->body);
        forget_strides(walk, stmt->orelse);
    }
}

/* ---- counting ---- */

/* A row of a block's sums goes to as many lines, and the next rows go to the same ones. Where
 * channels are innermost, rows are a round number of bytes apart: they share few sets of a cache of
 * 64 by 8 lines, and push each other out. */
static void count_far(struct walk *walk, ul_kx index, uint32_t buffer, uint64_t times)
{
    enum { LINE = 64, SETS = 64, WAYS = 8 };
    int64_t stride = walk->row_columns > 0 ? stride_of(walk, index) : 0;
    if (stride == UNKNOWN || stride <= 0 || walk->on_device)
        return;
    uint64_t bytes =
        (uint64_t)stride * ul_dtype_get(walk->kernel->buffers[buffer].dtype)->size_bytes;
    uint64_t apart = bytes % LINE == 0 ? bytes / LINE : 1;
    apart &= 0 - apart; /* its largest power of two */
    uint64_t sets = apart < SETS ? SETS / apart : 1;
    if (walk->row_columns > sets * WAYS)
        count(walk, UL_WORK_SCALAR, ul_size_mul_saturating(times, FAR_ACCESS));
}

static void count_expr(struct walk *walk, ul_kx id, uint64_t times);

/* Instructions of an operation: a division keeps its unit busy; the smaller of two, and an integer
 * from a float, check for NaN and for the ends of the range, which quantizing has done before. */
static uint64_t instructions_of(const struct walk *walk, const struct ul_kx_data *expr)
{
    enum { DIVIDE = 4, COMPARE = 3, ROUND = 4, CONVERT = 12 };
    bool is_float = ul_dtype_get(expr->dtype)->is_float;
    if (expr->op == UL_KX_CAST &&
        ul_range_is_quantized(walk->kernel, (ul_kx)(expr - walk->kernel->exprs)))
        return 1;
    if (expr->op == UL_KX_CAST)
        return !is_float && ul_dtype_get(walk->kernel->exprs[expr->a].dtype)->is_float ? CONVERT
                                                                                       : 1;
    if (!is_float)
        return 1;
    if (expr->op == UL_KX_DIV)
        return DIVIDE;
    if (expr->op == UL_KX_ROUND)
        return ROUND;
    return expr->op == UL_KX_MIN || expr->op == UL_KX_MAX ? COMPARE : 1;
}

/* Outside lanes, the smaller or larger of two floats is a branch, and so is what is made from it.
 * Where a variable gathers it, the branch nearly always goes the same way, and the rest of the loop
 * hides instructions. */
static uint64_t scalar_instructions_of(const struct walk *walk, const struct ul_kx_data *expr)
{
    bool branches =
        ul_dtype_get(expr->dtype)->is_float && (expr->op == UL_KX_MIN || expr->op == UL_KX_MAX);
    if (walk->is_set)
        return 1;
    return branches && !walk->on_device ? BRANCH : instructions_of(walk, expr);
}

static void count_operation(struct walk *walk, const struct ul_kx_data *expr, uint64_t times)
{
    bool special = is_function(expr);
    bool floats = ul_dtype_get(expr->dtype)->is_float && expr->op != UL_KX_LOAD &&
                  expr->op != UL_KX_CAST && expr->op != UL_KX_SELECT;
    if (ul_kx_rounds_to_itself(expr))
        return;
    if (floats)
        count_flops(walk, expr->op == UL_KX_FMA ? ul_size_mul_saturating(times, 2) : times);
    bool is_long = expr->op == UL_KX_TANH || expr->op == UL_KX_ERF; /* about two of the others */
    if (special && walk->vector && has_lanes(expr))
        count(walk, UL_WORK_SPECIAL, is_long ? ul_size_mul_saturating(times, 2) : times);
    else if (special)
        count(walk, UL_WORK_SCALAR, ul_size_mul_saturating(times, SCALAR_SPECIAL));
    else if (walk->vector)
        count(walk, UL_WORK_VECTOR, ul_size_mul_saturating(times, instructions_of(walk, expr)));
    else
        count(walk, UL_WORK_SCALAR,
              ul_size_mul_saturating(times, scalar_instructions_of(walk, expr)));
}

static bool is_affine(const struct ul_kx_data *expr)
{
    return expr->dtype == UL_I64 &&
           (expr->op == UL_KX_ADD || expr->op == UL_KX_SUB || expr->op == UL_KX_MUL);
}

/* An index, without its affine parts. */
static void count_index(struct walk *walk, ul_kx id, uint64_t times)
{
    const struct ul_kx_data *expr = &walk->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    if (!is_affine(expr)) {
        count_expr(walk, id, times);
        return;
    }
    count_index(walk, expr->a, times);
    count_index(walk, expr->b, times);
}

static void count_expr(struct walk *walk, ul_kx id, uint64_t times)
{
    if (id == UL_NONE)
        return;
    const struct ul_kx_data *expr = &walk->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0)
        return;
    count_operation(walk, expr, times);
    if (expr->op == UL_KX_LOAD) {
        count_access(walk, expr->var, times);
        count_far(walk, expr->a, expr->var, times);
        count_index(walk, expr->a, times);
        return;
    }
    count_expr(walk, expr->a, times);
    if (ul_kx_operand_count(expr->op) >= 2)
        count_expr(walk, expr->b, times);
    if (ul_kx_operand_count(expr->op) == 3)
        count_expr(walk, expr->c, times);
}

static void count_list(struct walk *walk, ul_ks first, uint64_t times);

static enum ul_work_kind product_kind(const struct ul_kernel *kernel,
                                      const struct ul_contract_plan *plan)
{
    const struct ul_contraction *contraction = plan->contraction;
    const struct ul_dtype_info *a = ul_dtype_get(kernel->buffers[contraction->a.buffer].dtype);
    const struct ul_dtype_info *b = ul_dtype_get(kernel->buffers[contraction->b.buffer].dtype);
    if (plan->schedule == UL_CONTRACT_PLAIN)
        return UL_WORK_SCALAR;
    if (plan->schedule == UL_CONTRACT_WINDOW)
        return UL_WORK_WINDOW;
    if (contraction->acc_dtype == UL_F64)
        return UL_WORK_MATMUL_F64;
    if (a->size_bytes == 1 && b->size_bytes == 1 && !a->is_float && !b->is_float)
        return UL_WORK_MATMUL_INT8;
    bool half = a->is_float && b->is_float && a->size_bytes <= 2 && b->size_bytes <= 2;
    return half ? UL_WORK_MATMUL_F16 : UL_WORK_MATMUL_F32;
}

static int64_t row_extent(const struct ul_contraction *contraction)
{
    int64_t row = contraction->extents[contraction->m_count + contraction->n_count - 1];
    return contraction->n_count > 0 && row > 0 ? row : 1;
}

static bool packs_b(const struct ul_contract_plan *plan)
{
    return plan->schedule == UL_CONTRACT_TILE && !plan->reads_b_in_place;
}

/* Whether neighbours in a row of b are apart in memory: every other pixel, a transposed matrix. */
static bool is_strided(const struct ul_contract_plan *plan)
{
    const struct ul_contract_dims *n = &plan->b_n;
    return n->count > 0 && plan->contraction->b.at.strides[n->carrier[n->count - 1]] > 1;
}

/* A vector holds more narrow elements. */
static uint64_t packed_vectors(const struct ul_contract_plan *plan, uint64_t elements)
{
    uint64_t at_once = (uint64_t)(plan->element_bytes / plan->packed_bytes);
    return at_once <= 1 ? elements : (elements + at_once - 1) / at_once;
}

/* Counts what goes through panels: elements, and their runs, which end with a row of the image or
 * with a block of columns. */
static void count_packing(struct walk *walk, const struct ul_contract_plan *plan, uint64_t times)
{
    uint64_t n = (uint64_t)plan->n;
    uint64_t k = ul_size_mul_saturating(times, (uint64_t)plan->k);
    uint64_t rows = n / (uint64_t)row_extent(plan->contraction);
    uint64_t block =
        (uint64_t)(plan->schedule == UL_CONTRACT_ROW ? plan->row_cols : plan->block_cols);
    uint64_t blocks = block == 0 ? 1 : (n + block - 1) / block;
    if (plan->schedule == UL_CONTRACT_PLAIN || plan->schedule == UL_CONTRACT_DOT || walk->on_device)
        return;
    if (plan->packs_a)
        count(walk, UL_WORK_VECTOR,
              packed_vectors(plan, ul_size_mul_saturating(
                                       blocks, ul_size_mul_saturating((uint64_t)plan->m, k))));
    if (!packs_b(plan))
        return;
    if (is_strided(plan))
        count(walk, UL_WORK_SCALAR,
              ul_size_mul_saturating(ul_size_mul_saturating(n, k), PACKED_STRIDED));
    else
        count(walk, UL_WORK_VECTOR, packed_vectors(plan, ul_size_mul_saturating(n, k)));
    if (plan->b_n.count > 1)
        count(walk, UL_WORK_SCALAR,
              ul_size_mul_saturating(ul_size_mul_saturating(rows + blocks - 1, k), PACKED_ROW));
}

/* Counts the operations of an expression once each, however often its result is used: a compiler
 * sees that they are the same. */
static void count_parts(struct walk *walk, ul_kx id, bool *seen, uint64_t times)
{
    const struct ul_kx_data *expr = &walk->kernel->exprs[id];
    if (ul_kx_operand_count(expr->op) == 0 || seen[id])
        return;
    seen[id] = true;
    count_operation(walk, expr, times);
    if (expr->op == UL_KX_LOAD) {
        count_access(walk, expr->var, times);
        return;
    }
    count_parts(walk, expr->a, seen, times);
    if (ul_kx_operand_count(expr->op) >= 2)
        count_parts(walk, expr->b, seen, times);
    if (ul_kx_operand_count(expr->op) == 3)
        count_parts(walk, expr->c, seen, times);
}

/* Counts what is computed from an operand's elements as they are packed, run by run of the
 * innermost of `dims`: in lanes where a run fills them. */
static void count_transform(struct walk *walk, const struct ul_contraction *contraction,
                            const struct ul_operand *operand, const struct ul_contract_dims *dims,
                            uint64_t times)
{
    uint32_t last = dims->count - 1;
    if (operand->transform == UL_NONE)
        return;
    if (dims->count > 0 && dims->extents[last] >= UL_UNROLLED_ROUNDS) {
        uint32_t var = contraction->vars[dims->carrier[last]];
        walk->max_stride =
            calls_function(walk->kernel, operand->transform) ? 1 : UL_UNROLLED_ROUNDS;
        walk->strides[var] = 1;
        walk->vector = loads_move_little(walk, operand->transform);
        walk->strides[var] = 0;
    }
    bool *seen = UL_NEW_ARRAY(walk->scratch, bool, walk->kernel->expr_count);
    count_parts(walk, operand->transform, seen, times);
    walk->vector = false;
}

/* An element is transformed each time that it is packed: a row of a for each block of columns, a
 * column of b for each block of rows whose sums wait; in plain loops for each product. */
static void count_transforms(struct walk *walk, const struct ul_contract_plan *plan, uint64_t times)
{
    const struct ul_contraction *contraction = plan->contraction;
    uint64_t m = (uint64_t)plan->m, n = (uint64_t)plan->n;
    uint64_t k = ul_size_mul_saturating(times, (uint64_t)plan->k);
    uint64_t of_a = n, of_b = m;
    if (plan->schedule == UL_CONTRACT_TILE) {
        of_a = (n + (uint64_t)plan->block_cols - 1) / (uint64_t)plan->block_cols;
        of_b = plan->depth == plan->k ? 1 : (m + (uint64_t)plan->rows - 1) / (uint64_t)plan->rows;
    } else if (plan->schedule == UL_CONTRACT_ROW) {
        of_a = (n + (uint64_t)plan->row_cols - 1) / (uint64_t)plan->row_cols;
        of_b = 1;
    }
    count_transform(walk, contraction, &contraction->a, &plan->a_k,
                    ul_size_mul_saturating(ul_size_mul_saturating(of_a, m), k));
    count_transform(walk, contraction, &contraction->b, &plan->b_n,
                    ul_size_mul_saturating(ul_size_mul_saturating(of_b, n), k));
}

/* Elements from one to the next along rows or k; 0: there is one. */
static uint64_t step_of(const struct ul_operand *operand, const struct ul_contract_dims *dims)
{
    int64_t step = dims->count == 0 ? 0 : operand->at.strides[dims->carrier[dims->count - 1]];
    return step < 0 ? (uint64_t)-step : (uint64_t)step;
}

/* Rows of a that are read in place while neither they nor k are contiguous: each k of a few rows
 * has lines of its own, which are read again for every block of columns (ConvTranspose). */
static void count_sparse(struct walk *walk, const struct ul_contract_plan *plan, uint64_t times)
{
    uint64_t line = 64 / (uint64_t)plan->element_bytes;
    uint64_t by_row = step_of(&plan->contraction->a, &plan->a_m);
    if (plan->schedule != UL_CONTRACT_TILE || plan->packs_a || by_row <= 1 || walk->on_device ||
        step_of(&plan->contraction->a, &plan->a_k) < line)
        return;
    uint64_t blocks =
        ((uint64_t)plan->n + (uint64_t)plan->block_cols - 1) / (uint64_t)plan->block_cols;
    uint64_t lines =
        by_row < line ? ((uint64_t)plan->m * by_row + line - 1) / line : (uint64_t)plan->m;
    lines = ul_size_mul_saturating(ul_size_mul_saturating(blocks, lines), (uint64_t)plan->k);
    count(walk, UL_WORK_SCALAR,
          ul_size_mul_saturating(ul_size_mul_saturating(lines, times), SPARSE_LINE));
}

static struct ul_window window_of(const struct ul_contract_plan *plan)
{
    struct ul_window window;
    bool fits = ul_window_read(plan, &window);
    UL_ASSERT(fits && window.pitch > 0 && plan->strips > 0);
    return window;
}

/* A window's input, copied strip by strip into planes with its padding. */
static void count_planes(struct walk *walk, const struct ul_contract_plan *plan, uint64_t times)
{
    struct ul_window window = window_of(plan);
    uint64_t planes = ul_size_mul_saturating(times, (uint64_t)ul_window_planes(&window));
    planes = ul_size_mul_saturating(planes, (uint64_t)plan->strips);
    uint64_t rows = (uint64_t)(window.plane / window.pitch);
    count(walk, UL_WORK_VECTOR, ul_size_mul_saturating(planes, (uint64_t)window.plane));
    count(walk, UL_WORK_SCALAR, ul_size_mul_saturating(planes, rows * WINDOW_ROW));
}

/* Columns as the schedule computes them: in whole vectors of 64 bytes where it pads; in a window
 * along the padded pitch, so that no row has a rest. */
static uint64_t filled_columns(const struct ul_contract_plan *plan)
{
    uint64_t lanes = plan->element_bytes > 0 ? (uint64_t)(64 / plan->element_bytes) : 1;
    uint64_t n = (uint64_t)plan->n;
    if (plan->schedule == UL_CONTRACT_TILE)
        return (n + lanes - 1) / lanes * lanes;
    if (plan->schedule == UL_CONTRACT_WINDOW) {
        struct ul_window window = window_of(plan);
        return (uint64_t)(window.axes[0].count * window.pitch);
    }
    return n;
}

/* Counts the work on each of `outer` sums: in lanes where results and their addends are contiguous
 * along the last column. */
static void count_epilogue(struct walk *walk, const struct ul_contract_plan *plan, uint64_t outer)
{
    const struct ul_contraction *contraction = plan->contraction;
    uint32_t last = contraction->m_count + contraction->n_count;
    while (last > 0 && contraction->extents[last - 1] == 1)
        last--;
    if (last > 0)
        walk->strides[contraction->vars[last - 1]] = 1;
    walk->max_stride =
        list_calls_function(walk->kernel, contraction->epilogue) ? 1 : UL_UNROLLED_ROUNDS;
    walk->vector = fills_lanes(walk, contraction->epilogue) || walk->on_device;
    walk->row_columns =
        (uint64_t)(plan->block_cols > 0 && plan->block_cols < plan->n ? plan->block_cols : plan->n);
    count_list(walk, contraction->epilogue, outer);
    walk->vector = false;
    walk->row_columns = 0;
    if (last > 0)
        walk->strides[contraction->vars[last - 1]] = 0;
    forget_strides(walk, contraction->epilogue);
}

static void count_contraction(struct walk *walk, const struct ul_contraction *contraction,
                              uint64_t times)
{
    enum { SCALAR_PRODUCT = 8 }; /* two indexes, two loads, a product and a sum */
    struct ul_contract_plan plan;
    ul_contract_plan_init(&plan, walk->kernel, contraction, walk->scratch);
    uint64_t outer =
        ul_size_mul_saturating(times, ul_size_mul_saturating((uint64_t)plan.m, (uint64_t)plan.n));
    uint64_t products = ul_size_mul_saturating(outer, (uint64_t)plan.k);
    enum ul_work_kind kind = product_kind(walk->kernel, &plan);
    count_flops(walk, ul_size_mul_saturating(products, 2));
    uint64_t filled =
        ul_size_mul_saturating(ul_size_mul_saturating(times, (uint64_t)plan.m),
                               ul_size_mul_saturating(filled_columns(&plan), (uint64_t)plan.k));
    count(walk, kind, ul_size_mul_saturating(filled, kind == UL_WORK_SCALAR ? SCALAR_PRODUCT : 2));
    count_packing(walk, &plan, times);
    count_transforms(walk, &plan, times);
    count_sparse(walk, &plan, times);
    if (plan.schedule == UL_CONTRACT_WINDOW)
        count_planes(walk, &plan, times);
    count_access(walk, contraction->a.buffer, products);
    count_access(walk, contraction->b.buffer, products);
    if (plan.schedule == UL_CONTRACT_PLAIN)
        count_list(walk, contraction->epilogue, outer);
    else
        count_epilogue(walk, &plan, outer);
}

/* ---- attention on a device ---- */

/* Counts the pairs of a row and a column whose query sees their key. */
static uint64_t seen_pairs(const struct ul_attend *attend)
{
    enum { MAX_ROWS = 1 << 20 }; /* with more rows, all pairs count */
    int64_t rows = attend->queries, columns = attend->keys, pairs = 0;
    if (rows > MAX_ROWS)
        return ul_size_mul_saturating((uint64_t)rows, (uint64_t)columns);
    for (int64_t r = 0; r < rows; r++) {
        int64_t hidden = attend->is_turned ? r - attend->reach : columns - 1 - r - attend->reach;
        hidden = hidden < 0 ? 0 : hidden;
        pairs += hidden < columns ? columns - hidden : 0;
    }
    return (uint64_t)pairs;
}

static uint64_t extents_of(const struct ul_contraction *contraction, uint32_t first, uint32_t count)
{
    uint64_t product = 1;
    for (uint32_t d = first; d < first + count; d++)
        product = ul_size_mul_saturating(product, (uint64_t)contraction->extents[d]);
    return product;
}

static bool reads_half(const struct walk *walk, const struct ul_operand *operand)
{
    return ul_dtype_is_half(ul_operand_dtype(walk->kernel, operand));
}

/* Counts the elements that the products of each query with each key read. Returns the number of
 * terms of a product, and clears `is_half` where a side has more than 16 bits. */
static uint64_t count_scores(struct walk *walk, const struct ul_contraction *score, uint64_t times,
                             bool *is_half)
{
    uint64_t m = extents_of(score, 0, score->m_count);
    uint64_t n = extents_of(score, score->m_count, score->n_count);
    uint64_t k = extents_of(score, score->m_count + score->n_count, score->k_count);
    *is_half = *is_half && reads_half(walk, &score->a) && reads_half(walk, &score->b);
    count_access(walk, score->a.buffer,
                 ul_size_mul_saturating(times, ul_size_mul_saturating(m, k)));
    count_access(walk, score->b.buffer,
                 ul_size_mul_saturating(times, ul_size_mul_saturating(n, k)));
    return k;
}

/* Where a mask hides pairs, the rows of one block may see all columns, and those of the mean block
 * fewer. */
static void note_longest(struct walk *walk, const struct ul_attend *attend)
{
    double all = (double)attend->queries * (double)attend->keys, seen = (double)seen_pairs(attend);
    double longest = seen > 0 && seen < all ? all / seen : 1;
    if (longest > walk->work->longest_block)
        walk->work->longest_block = longest;
}

/* Counts the work of its tiles (ir/kernel.h): products of all visible pairs, on tensor cores where
 * all operands have 16 bits, and a function of each. */
static void count_attend(struct walk *walk, const struct ul_attend *attend, uint64_t times)
{
    bool is_half = true, inside = walk->vector;
    uint64_t rounds = attend->rounds > 0 ? (uint64_t)attend->rounds : 1;
    uint64_t heads = ul_size_mul_saturating(times, rounds), terms = 0;
    uint64_t pairs = ul_size_mul_saturating(heads, seen_pairs(attend));
    for (uint32_t i = 0; i < ul_attend_scores(attend); i++) {
        uint64_t k = count_scores(walk, &attend->scores[i], heads, &is_half);
        terms += i == 0 || i >= attend->part_count ? k : 0; /* a key belongs to one part */
    }
    for (uint32_t i = 0; i < ul_attend_values(attend); i++) {
        const struct ul_contraction *value = &attend->values[i];
        is_half = is_half && reads_half(walk, &value->b);
        count_access(
            walk, value->b.buffer,
            ul_size_mul_saturating(heads, ul_size_mul_saturating((uint64_t)attend->keys,
                                                                 (uint64_t)value->extents[1])));
        terms += i == 0 || attend->has_shares ? (uint64_t)value->extents[1] : 0;
    }
    uint64_t operations = ul_size_mul_saturating(pairs, 2 * terms);
    count_flops(walk, operations);
    count(walk, is_half ? UL_WORK_MATMUL_F16 : UL_WORK_MATMUL_F32, operations);
    note_longest(walk, attend);
    bool is_exponent = attend->kind == UL_ATTEND_RESULT || attend->kind == UL_ATTEND_STATISTICS;
    if (is_exponent) /* otherwise the score has the computation */
        count(walk, UL_WORK_SPECIAL, pairs);
    walk->vector = true;
    bool *is_counted = UL_NEW_ARRAY(walk->scratch, bool, walk->kernel->expr_count);
    count_parts(walk, attend->score, is_counted, pairs);
    if (attend->factor != UL_NONE)
        count_parts(walk, attend->factor, is_counted, pairs);
    if (attend->has_shares)
        count_parts(walk, attend->share, is_counted, pairs);
    uint64_t rows = ul_size_mul_saturating(times, (uint64_t)attend->queries);
    for (uint32_t i = 0; i == 0 || (i == 1 && attend->has_shares); i++)
        count_list(walk, attend->values[i].epilogue,
                   ul_size_mul_saturating(rows, (uint64_t)attend->values[i].extents[1]));
    if (attend->has_norms)
        count_list(walk, attend->norms, rows);
    walk->vector = inside;
}

/* At most the greatest count of the loop; where it goes along a block of ir/tile.c, whose last one
 * may be shorter, the mean of the blocks. */
static uint64_t rounds_of(const struct ul_kernel *kernel, const struct ul_ks_data *stmt)
{
    uint64_t max = (uint64_t)kernel->vars[stmt->var].high + 1;
    const struct ul_kx_data *left = &kernel->exprs[stmt->value];
    int64_t all, block;
    if (left->op == UL_KX_MIN)
        left = &kernel->exprs[left->a];
    if (left->op != UL_KX_SUB || !ul_kx_is_int(kernel, left->a, &all) || all <= 0)
        return max;
    const struct ul_kx_data *begin = &kernel->exprs[left->b];
    if (begin->op != UL_KX_MUL || kernel->exprs[begin->a].op != UL_KX_VAR ||
        !ul_kx_is_int(kernel, begin->b, &block))
        return max;
    uint64_t blocks = (uint64_t)kernel->vars[kernel->exprs[begin->a].var].high + 1;
    uint64_t mean = ((uint64_t)all + blocks - 1) / blocks;
    return mean < max ? mean : max;
}

static void count_for(struct walk *walk, const struct ul_ks_data *stmt, uint64_t times)
{
    bool inside = walk->vector;
    struct ul_lookup lookup;
    if (walk->on_device && (stmt->flags & UL_FOR_ATTEND) != 0) {
        count_attend(walk, &walk->kernel->attends[stmt->contraction],
                     ul_size_mul_saturating(times, rounds_of(walk->kernel, stmt)));
        return;
    }
    walk->strides[stmt->var] = 1;
    walk->max_stride = list_calls_function(walk->kernel, stmt->body) ? 1 : UL_UNROLLED_ROUNDS;
    walk->vector =
        inside || ul_lookup_find(walk->kernel, stmt, &lookup) ||
        ((stmt->flags & (UL_FOR_PARALLEL | UL_FOR_ALONE)) != 0 && fills_lanes(walk, stmt->body));
    walk->strides[stmt->var] = 0;
    forget_strides(walk, stmt->body);
    count_list(walk, stmt->body, ul_size_mul_saturating(times, rounds_of(walk->kernel, stmt)));
    walk->vector = inside;
}

static void count_statement(struct walk *walk, ul_ks id, uint64_t times)
{
    const struct ul_ks_data *stmt = &walk->kernel->stmts[id];
    if (stmt->kind == UL_KS_CONTRACT) {
        count_contraction(walk, &walk->kernel->contractions[stmt->contraction], times);
        return;
    }
    if (stmt->kind == UL_KS_FOR) {
        count_for(walk, stmt, times);
        return;
    }
    walk->is_set = stmt->kind == UL_KS_SET;
    count_expr(walk, stmt->value, times);
    walk->is_set = false;
    if (stmt->kind == UL_KS_STORE) {
        count_access(walk, stmt->buffer, times);
        count_far(walk, stmt->index, stmt->buffer, times);
        count(walk, walk->vector ? UL_WORK_VECTOR : UL_WORK_SCALAR, times);
        count_index(walk, stmt->index, times);
    }
    if (stmt->kind == UL_KS_SET && !walk->vector)
        count(walk, UL_WORK_SCALAR, ul_size_mul_saturating(times, CARRIED));
    count_list(walk, stmt->body, times);
    count_list(walk, stmt->orelse, times);
}

/* The thread with the most items is waited for. */
static void count_region(struct walk *walk, ul_ks id, const struct ul_region *region,
                         uint64_t times)
{
    struct ul_work *work = walk->work;
    struct ul_work before = *work;
    uint64_t items = (uint64_t)region->item_count, product;
    UL_ASSERT(items > 0 && region->shares > 0);
    uint64_t longest = (items + region->shares - 1) / region->shares;
    count_statement(walk, id, times);
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++) {
        uint64_t all = work->counts[kind] - before.counts[kind];
        uint64_t own = ul_size_mul(all, longest, &product) ? (product + items - 1) / items
                                                           : all / items * longest;
        work->counts[kind] = before.counts[kind] + own;
        work->spared_counts[kind] = ul_size_add_saturating(work->spared_counts[kind], all - own);
    }
    work->region_count = ul_size_add_saturating(work->region_count, times);
}

static void count_list(struct walk *walk, ul_ks first, uint64_t times)
{
    for (ul_ks id = first; id != UL_NONE; id = walk->kernel->stmts[id].next) {
        const struct ul_region *region = walk->threads == NULL ? NULL : walk->threads->regions[id];
        if (region == NULL)
            count_statement(walk, id, times);
        else
            count_region(walk, id, region, times);
    }
}

void ul_kernel_count_work(const struct ul_kernel *kernel, const struct ul_threads *threads,
                          bool on_device, struct ul_arena *scratch, struct ul_work *work,
                          uint64_t *accesses)
{
    UL_ASSERT(threads == NULL || threads->count > 0);
    *work = (struct ul_work){.flop_count = 0};
    struct walk walk = {.kernel = kernel,
                        .threads = threads,
                        .on_device = on_device,
                        .scratch = scratch,
                        .work = work,
                        .accesses = accesses,
                        .strides = UL_NEW_ARRAY(scratch, int64_t, kernel->var_count)};
    count_list(&walk, kernel->first, 1);
}

double ul_statement_ns(const struct ul_kernel *kernel, ul_ks statement, struct ul_arena *scratch)
{
    UL_ASSERT(statement < kernel->stmt_count);
    const struct ul_profile *profile = ul_profile_find(UL_PROFILE_DEFAULT);
    struct ul_work work = {.flop_count = 0};
    struct walk walk = {.kernel = kernel,
                        .scratch = scratch,
                        .work = &work,
                        .accesses = UL_NEW_ARRAY(scratch, uint64_t, kernel->buffer_count),
                        .strides = UL_NEW_ARRAY(scratch, int64_t, kernel->var_count)};
    double ns = 0;
    count_statement(&walk, statement, 1);
    for (uint32_t kind = 0; kind < UL_WORK_KINDS; kind++)
        ns += (double)work.counts[kind] / profile->rates[kind];
    return ns;
}
