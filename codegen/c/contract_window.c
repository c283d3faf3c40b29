/* One output channel over a window of few taps: depthwise convolution.
 *
 * A strip of the input is copied to scratch with its padding, so that every tap of every output
 * exists; a stride is taken out by sorting rows and columns into planes by their remainder. Then
 * output i of the strip, counted along the padded pitch, is the sum over taps of
 * weight * planes[i + offset(tap)]: one loop over long contiguous runs, without conditions.
 *
 *     stride 2:  x x x x x x     plane 0: x . x . x .     tap kx reads plane kx % 2
 *                                plane 1: . x . x . x     at distance kx / 2
 *
 * Each of the (at most two) axes has coordinate = base + step * n + its taps' distances; an
 * element lies at the operand's base + unit * (coordinate - base) summed over the axes.
 */
#include "codegen/kernel/contract_internal.h"

#include <inttypes.h>

#define MAX_STEP 4
#define STRIP_BYTES 32768 /* planes and sums of one strip: a usual first-level cache */
#define PAD_BYTES 256     /* sums are formed four vectors at a time */

struct axis {
    int64_t count;          /* outputs */
    int64_t step, unit;     /* see above */
    uint32_t bound;         /* of the operand, or its bound_count: none */
    int64_t min;            /* distance of the nearest tap */
    int64_t far;            /* distance of the farthest beyond it */
    int64_t reach;          /* the same, in outputs */
    bool is_used[MAX_STEP]; /* by remainder of the distance */
    int64_t distances[UL_CONTRACT_TAPS];
};

struct window {
    struct axis axes[2]; /* rows, columns */
    int64_t pitch, plane, strip;
};

static int64_t magnitude(int64_t a)
{
    return a < 0 ? -a : a;
}

static int64_t gcd(int64_t a, int64_t b)
{
    a = magnitude(a);
    b = magnitude(b);
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The bound that moves with contraction dimension `n`; false when there is more than one. */
static bool find_bound(const struct ul_operand *b, uint32_t n, uint32_t *bound)
{
    *bound = b->bound_count;
    for (uint32_t i = 0; i < b->bound_count; i++) {
        if (b->bounds[i].at.strides[n] == 0)
            continue;
        if (*bound != b->bound_count)
            return false;
        *bound = i;
    }
    return true;
}

/* The axis that dimension `k` of the taps moves along; 2 when that is none or both. */
static uint32_t axis_of(const struct ul_operand *b, const struct window *window, uint32_t k,
                        int64_t row_stride)
{
    bool moves[2], is_free[2];
    for (uint32_t a = 0; a < 2; a++) {
        is_free[a] = window->axes[a].bound == b->bound_count;
        moves[a] = !is_free[a] && b->bounds[window->axes[a].bound].at.strides[k] != 0;
    }
    if (moves[0] || moves[1])
        return moves[0] && moves[1] ? 2 : moves[0] ? 0 : 1;
    if (is_free[0] && is_free[1])
        return magnitude(b->at.strides[k]) >= magnitude(row_stride) ? 0 : 1;
    return is_free[0] ? 0 : is_free[1] ? 1 : 2;
}

/* Step and unit of an axis along dimension `n` whose taps are the dimensions with
 * axis_by_k[k] == a; false when addresses do not follow the coordinate. */
static bool set_axis(const struct ul_contraction *c, struct axis *axis, uint32_t n, uint32_t a,
                     const uint32_t *axis_by_k, uint32_t first_k)
{
    const struct ul_operand *b = &c->b;
    int64_t stride = b->at.strides[n];
    if (axis->bound < b->bound_count) {
        const struct ul_affine *at = &b->bounds[axis->bound].at;
        axis->step = at->strides[n];
        if (axis->step < 1 || stride % axis->step != 0)
            return false;
        axis->unit = stride / axis->step;
        for (uint32_t k = 0; k < c->k_count; k++)
            if (axis_by_k[k] == a &&
                b->at.strides[first_k + k] != axis->unit * at->strides[first_k + k])
                return false;
        return axis->step <= MAX_STEP;
    }
    axis->unit = stride;
    for (uint32_t k = 0; k < c->k_count; k++)
        if (axis_by_k[k] == a)
            axis->unit = gcd(axis->unit, b->at.strides[first_k + k]);
    if (axis->unit == 0)
        return false;
    axis->step = stride / axis->unit;
    return axis->step >= 1 && axis->step <= MAX_STEP;
}

/* Distances of the taps along their axes, from which reach and remainders follow. */
static void set_taps(const struct ul_contract_plan *plan, struct window *window,
                     const uint32_t *axis_by_k, uint32_t first_k)
{
    const struct ul_contraction *c = plan->contraction;
    for (int64_t tap = 0; tap < plan->k; tap++) {
        int64_t rest = tap, sums[2] = {0, 0};
        for (uint32_t k = c->k_count; k-- > 0;) {
            int64_t extent = c->extents[first_k + k], value = rest % extent;
            rest /= extent;
            if (axis_by_k[k] < 2)
                sums[axis_by_k[k]] +=
                    value * (c->b.at.strides[first_k + k] / window->axes[axis_by_k[k]].unit);
        }
        for (uint32_t a = 0; a < 2; a++)
            window->axes[a].distances[tap] = sums[a];
    }
    for (uint32_t a = 0; a < 2; a++) {
        struct axis *axis = &window->axes[a];
        axis->min = axis->distances[0];
        for (int64_t tap = 1; tap < plan->k; tap++)
            if (axis->distances[tap] < axis->min)
                axis->min = axis->distances[tap];
        for (int64_t tap = 0; tap < plan->k; tap++) {
            int64_t distance = axis->distances[tap] - axis->min;
            axis->is_used[distance % axis->step] = true;
            axis->far = distance > axis->far ? distance : axis->far;
        }
        axis->reach = axis->far / axis->step;
    }
}

static int64_t planes_of(const struct axis *axis)
{
    int64_t count = 0;
    for (int64_t r = 0; r < axis->step; r++)
        count += axis->is_used[r];
    return count;
}

/* Sizes; false when not even one row fits. */
static bool set_strip(const struct ul_contract_plan *plan, struct window *window)
{
    const struct axis *rows = &window->axes[0], *columns = &window->axes[1];
    int64_t max = (STRIP_BYTES - 2 * PAD_BYTES) / plan->element_bytes;
    int64_t planes = planes_of(rows) * planes_of(columns);
    if (columns->count > max || columns->reach > max || rows->reach > max)
        return false;
    window->pitch = columns->count + columns->reach;
    /* planes * (strip + reach) * pitch + strip * pitch <= most */
    int64_t fit = (max / window->pitch - planes * rows->reach) / (planes + 1);
    if (fit < 1)
        return false;
    window->strip = fit < rows->count ? fit : rows->count;
    window->plane = (window->strip + rows->reach) * window->pitch;
    return true;
}

static bool read_window(const struct ul_contract_plan *plan, struct window *window)
{
    const struct ul_contraction *c = plan->contraction;
    const struct ul_contract_dims *n = &plan->b_n;
    uint32_t first_k = c->m_count + c->n_count, axis_by_k[UL_CONTRACT_DIMS];
    *window = (struct window){0};
    if (plan->m != 1 || plan->k > UL_CONTRACT_TAPS || n->count > 2 || c->b.transform != UL_NONE ||
        !plan->b_same || c->b.outside != 0)
        return false;
    uint32_t column = n->carrier[n->count - 1], row = n->carrier[0];
    window->axes[0] = (struct axis){.count = 1, .step = 1, .unit = 1, .bound = c->b.bound_count};
    window->axes[1].count = n->extents[n->count - 1];
    if (n->count == 2) {
        window->axes[0].count = n->extents[0];
        if (!find_bound(&c->b, row, &window->axes[0].bound))
            return false;
    }
    if (!find_bound(&c->b, column, &window->axes[1].bound))
        return false;
    uint32_t used = 0;
    for (uint32_t a = 0; a < 2; a++)
        used += window->axes[a].bound < c->b.bound_count ? 1 : 0;
    if (used != c->b.bound_count || (used == 2 && window->axes[0].bound == window->axes[1].bound))
        return false;
    for (uint32_t k = 0; k < c->k_count; k++) {
        axis_by_k[k] = 3;
        if (c->extents[first_k + k] == 1)
            continue;
        axis_by_k[k] =
            n->count == 1 ? 1 : axis_of(&c->b, window, first_k + k, c->b.at.strides[row]);
        if (axis_by_k[k] == 2)
            return false;
    }
    if (n->count == 2 && !set_axis(c, &window->axes[0], row, 0, axis_by_k, first_k))
        return false;
    if (!set_axis(c, &window->axes[1], column, 1, axis_by_k, first_k))
        return false;
    set_taps(plan, window, axis_by_k, first_k);
    return set_strip(plan, window);
}

/* Bytes of planes and of sums. */
static void set_bytes(struct ul_contract_plan *plan, const struct window *window)
{
    int64_t planes = planes_of(&window->axes[0]) * planes_of(&window->axes[1]);
    int64_t panel = planes * window->plane * plan->element_bytes + PAD_BYTES;
    int64_t sums = window->strip * window->pitch * plan->element_bytes + PAD_BYTES;
    plan->panel_bytes = (panel + 63) / 64 * 64;
    plan->sums_bytes = (sums + 63) / 64 * 64;
    plan->packs_a = !plan->a_plain || plan->a_k.count > 1 ||
                    plan->contraction->a.at.strides[plan->a_k.carrier[0]] != 1;
    plan->depth = plan->k;
    plan->strips = (window->axes[0].count + window->strip - 1) / window->strip;
    if (plan->packs_a)
        plan->a_bytes = (plan->k * plan->element_bytes + 63) / 64 * 64;
}

bool ul_contract_window_size(struct ul_contract_plan *plan)
{
    struct window window;
    if (!read_window(plan, &window))
        return false;
    set_bytes(plan, &window);
    return true;
}

/* One plane: rows of remainder `row`, columns of remainder `column`, at `offset` of the planes. */
static void put_plane(const struct ul_contract_out *out, uint32_t indent,
                      const struct window *window, int64_t row, int64_t column, int64_t offset)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand *b = &plan->contraction->b;
    const struct axis *rows = &window->axes[0], *columns = &window->axes[1];
    char base[24] = "0";
    ul_contract_line(out, indent, "for (int64_t t_r = 0; t_r < t_strip + %" PRId64 "; t_r++) {",
                     rows->reach);
    ul_contract_line(out, indent + 1, "int64_t t_lo = 0, t_hi = %" PRId64 ";", window->pitch);
    ul_contract_line(out, indent + 1,
                     "const int64_t t_y = %" PRId64 " + %" PRId64 " * (t_y0 + t_r), t_x = %" PRId64
                     ";",
                     rows->min + row, rows->step, columns->min + column);
    if (columns->bound < b->bound_count)
        ul_contract_line(out, indent + 1,
                         "ul_clip_run(&t_lo, &t_hi, t_bb%" PRIu32 " + t_x, %" PRId64 ", %" PRId64
                         ");",
                         columns->bound, columns->step, b->bounds[columns->bound].extent);
    else
        ul_contract_line(out, indent + 1, "t_hi = ul_run(t_hi, %" PRId64 ");",
                         columns->count + (columns->far - column) / columns->step);
    if (rows->bound < b->bound_count) {
        snprintf(base, sizeof base, "t_bb%" PRIu32, rows->bound);
        ul_contract_line(out, indent + 1,
                         "t_hi = %s + t_y >= 0 && %s + t_y < %" PRId64 " ? t_hi : 0;", base, base,
                         b->bounds[rows->bound].extent);
    } else {
        ul_contract_line(out, indent + 1, "t_hi = t_y <= %" PRId64 " ? t_hi : 0;",
                         rows->min + rows->far + rows->step * (rows->count - 1));
    }
    ul_contract_line(out, indent + 1,
                     "ul_pack_row_%s(t_panel + %" PRId64 " + t_r * %" PRId64
                     ", (const %s *)b%" PRIu32 ", t_b + %" PRId64 " * t_y + %" PRId64
                     " * t_x, %" PRId64 ", t_lo, t_hi, %" PRId64 ");",
                     plan->tag, offset, window->pitch, plan->type, b->buffer, rows->unit,
                     columns->unit, columns->unit * columns->step, window->pitch);
    ul_contract_line(out, indent, "}");
}

/* Where each tap reads: plane and distance. `offsets` are those of the planes. */
static void put_taps(const struct ul_contract_out *out, uint32_t indent,
                     const struct window *window, const int64_t (*offsets)[MAX_STEP])
{
    const struct axis *rows = &window->axes[0], *columns = &window->axes[1];
    ul_contract_indent(out, indent);
    ul_text_printf(out->text, "static const int32_t t_taps[%" PRId64 "] = {", out->plan->k);
    for (int64_t tap = 0; tap < out->plan->k; tap++) {
        int64_t y = rows->distances[tap] - rows->min;
        int64_t x = columns->distances[tap] - columns->min;
        int64_t at = offsets[y % rows->step][x % columns->step] + y / rows->step * window->pitch +
                     x / columns->step;
        ul_text_printf(out->text, "%s%" PRId64, tap > 0 ? ", " : "", at);
    }
    ul_text_put(out->text, "};\n");
}

static void put_weights(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    if (plan->packs_a) {
        ul_contract_line(out, indent, "const int64_t t_kb = 0, t_ke = %" PRId64 ";", plan->k);
        ul_contract_pack_a(out, indent);
        ul_contract_line(out, indent, "const %s *t_from = t_as;", plan->type);
    } else {
        ul_contract_line(out, indent, "const %s *t_from = (const %s *)b%" PRIu32 " + t_a;",
                         plan->type, plan->type, plan->contraction->a.buffer);
    }
}

void ul_contract_window(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    struct window window;
    int64_t offsets[MAX_STEP][MAX_STEP] = {{0}}, planes = 0;
    bool fits = read_window(plan, &window);
    UL_ASSERT(fits);
    const struct axis *rows = &window.axes[0], *columns = &window.axes[1];
    for (int64_t row = 0; row < rows->step; row++)
        for (int64_t column = 0; column < columns->step; column++)
            if (rows->is_used[row] && columns->is_used[column])
                offsets[row][column] = planes++ * window.plane;
    put_taps(out, indent, &window, (const int64_t(*)[MAX_STEP])offsets);
    ul_contract_line(out, indent, "const int64_t t_m = 0, t_rows = 1, t_cols = %" PRId64 ";",
                     columns->count);
    ul_contract_line(out, indent, "(void)t_m;");
    put_weights(out, indent);
    if (plan->shares > 1) {
        ul_contract_line(out, indent,
                         "const int64_t t_last = ul_run(%" PRId64 ", t_share.end * %" PRId64 ");",
                         rows->count, window.strip);
        ul_contract_line(out, indent,
                         "for (int64_t t_y0 = t_share.begin * %" PRId64
                         "; t_y0 < t_last; t_y0 += %" PRId64 ") {",
                         window.strip, window.strip);
    } else {
        ul_contract_line(out, indent,
                         "for (int64_t t_y0 = 0; t_y0 < %" PRId64 "; t_y0 += %" PRId64 ") {",
                         rows->count, window.strip);
    }
    ul_contract_line(out, indent + 1,
                     "const int64_t t_strip = ul_run(%" PRId64 " - t_y0, %" PRId64 ");",
                     rows->count, window.strip);
    for (int64_t row = 0; row < rows->step; row++)
        for (int64_t column = 0; column < columns->step; column++)
            if (rows->is_used[row] && columns->is_used[column])
                put_plane(out, indent + 1, &window, row, column, offsets[row][column]);
    ul_contract_line(out, indent + 1, "for (int64_t t_i = 0; t_i < %" PRId64 "; t_i++)",
                     PAD_BYTES / plan->element_bytes);
    ul_contract_line(out, indent + 1, "    t_panel[%" PRId64 " + t_i] = 0;", planes * window.plane);
    ul_contract_line(out, indent + 1,
                     "ul_taps_%s(t_sums, t_panel, t_taps, t_from, %" PRId64 ", t_strip * %" PRId64
                     ");",
                     plan->tag, plan->k, window.pitch);
    ul_contract_line(out, indent + 1, "for (int64_t t_y = 0; t_y < t_strip; t_y++) {");
    ul_contract_line(out, indent + 2, "const int64_t t_n = (t_y0 + t_y) * %" PRId64 ";",
                     columns->count);
    char sums[64];
    snprintf(sums, sizeof sums, "t_sums + t_y * %" PRId64, window.pitch);
    ul_contract_epilogue(out, indent + 2, sums, 0);
    ul_contract_line(out, indent + 1, "}");
    ul_contract_line(out, indent, "}");
}
