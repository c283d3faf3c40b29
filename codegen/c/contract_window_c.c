/* SPDX-License-Identifier: Apache-2.0 */
/* The C text of a contraction by windows over padded planes (codegen/kernel/contract_window.c). */
#include "codegen/c/contract_c.h"
#include "codegen/kernel/contract_window.h"

#include <inttypes.h>

/* One plane: rows of remainder `row`, columns of remainder `column`, at `offset` in the planes. */
static void put_plane(const struct ul_contract_out *out, uint32_t indent,
                      const struct ul_window *window, int64_t row, int64_t column, int64_t offset)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_operand *b = &plan->contraction->b;
    const struct ul_window_axis *rows = &window->axes[0], *columns = &window->axes[1];
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
    bool bytes = ul_contract_is_bytes(plan); /* the padding is written already */
    char end[32] = "";
    if (!bytes)
        snprintf(end, sizeof end, ", %" PRId64, window->pitch);
    ul_contract_line(out, indent + 1,
                     "%s_%s(t_panel + %" PRId64 " + t_r * %" PRId64 ", (const %s *)b%" PRIu32
                     ", t_b + %" PRId64 " * t_y + %" PRId64 " * t_x, %" PRId64 ", t_lo, t_hi%s);",
                     bytes ? "ul_pack_inside" : "ul_pack_row", bytes ? "u8" : plan->tag, offset,
                     window->pitch, bytes ? "uint8_t" : plan->type, b->buffer, rows->unit,
                     columns->unit, columns->unit * columns->step, end);
    ul_contract_line(out, indent, "}");
}

/* Where each tap reads: plane and distance; `offsets` are those of the planes. */
static void put_taps(const struct ul_contract_out *out, uint32_t indent,
                     const struct ul_window *window, const int64_t (*offsets)[UL_WINDOW_MAX_STEP])
{
    const struct ul_window_axis *rows = &window->axes[0], *columns = &window->axes[1];
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
        ul_contract_line(out, indent, "const %s *t_from = t_as;", plan->a_type);
    } else {
        ul_contract_line(out, indent, "const %s *t_from = (const %s *)b%" PRIu32 " + t_a;",
                         plan->a_type, plan->a_type, plan->contraction->a.buffer);
    }
}

/* All planes of a strip, and the elements that are read after them. */
static void put_planes(const struct ul_contract_out *out, uint32_t indent,
                       const struct ul_window *window, const int64_t (*offsets)[UL_WINDOW_MAX_STEP],
                       int64_t planes)
{
    const struct ul_contract_plan *plan = out->plan;
    const struct ul_window_axis *rows = &window->axes[0], *columns = &window->axes[1];
    if (ul_contract_is_bytes(plan))
        ul_contract_line(out, indent, "memset(t_panel, (uint8_t)%d, %" PRId64 ");",
                         (int)plan->contraction->b.outside,
                         planes * window->plane + UL_WINDOW_PAD_BYTES);
    for (int64_t row = 0; row < rows->step; row++)
        for (int64_t column = 0; column < columns->step; column++)
            if (rows->is_used[row] && columns->is_used[column])
                put_plane(out, indent, window, row, column, offsets[row][column]);
    if (ul_contract_is_bytes(plan))
        return;
    ul_contract_line(out, indent, "for (int64_t t_i = 0; t_i < %" PRId64 "; t_i++)",
                     UL_WINDOW_PAD_BYTES / plan->packed_bytes);
    ul_contract_line(out, indent, "    t_panel[%" PRId64 " + t_i] = 0;", planes * window->plane);
}

/* The epilogue row by row; or, where results are contiguous over rows, for the strip at once. */
static void put_results(const struct ul_contract_out *out, uint32_t indent,
                        const struct ul_window *window)
{
    int64_t columns = window->axes[1].count;
    char sums[64];
    if (ul_contract_closes_rows(out->plan)) {
        ul_contract_line(out, indent,
                         "const int64_t t_n = t_y0 * %" PRId64 ", t_cols = t_strip * %" PRId64 ";",
                         columns, columns);
        if (window->pitch > columns)
            ul_contract_line(out, indent,
                             "ul_close_rows_u32(t_sums, t_strip, %" PRId64 ", %" PRId64 ");",
                             columns, window->pitch);
        ul_contract_epilogue(out, indent, "t_sums", 0);
        return;
    }
    ul_contract_line(out, indent, "for (int64_t t_y = 0; t_y < t_strip; t_y++) {");
    ul_contract_line(out, indent + 1, "const int64_t t_n = (t_y0 + t_y) * %" PRId64 ";", columns);
    snprintf(sums, sizeof sums, "t_sums + t_y * %" PRId64, window->pitch);
    ul_contract_epilogue(out, indent + 1, sums, 0);
    ul_contract_line(out, indent, "}");
}

void ul_contract_window_print_c(const struct ul_contract_out *out, uint32_t indent)
{
    const struct ul_contract_plan *plan = out->plan;
    struct ul_window window;
    int64_t offsets[UL_WINDOW_MAX_STEP][UL_WINDOW_MAX_STEP] = {{0}}, planes = 0;
    bool fits = ul_window_read(plan, &window);
    UL_ASSERT(fits);
    const struct ul_window_axis *rows = &window.axes[0], *columns = &window.axes[1];
    for (int64_t row = 0; row < rows->step; row++)
        for (int64_t column = 0; column < columns->step; column++)
            if (rows->is_used[row] && columns->is_used[column])
                offsets[row][column] = planes++ * window.plane;
    put_taps(out, indent, &window, (const int64_t(*)[UL_WINDOW_MAX_STEP])offsets);
    if (ul_contract_closes_rows(plan))
        ul_contract_line(out, indent, "const int64_t t_m = 0, t_rows = 1;");
    else
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
    put_planes(out, indent + 1, &window, (const int64_t(*)[UL_WINDOW_MAX_STEP])offsets, planes);
    ul_contract_line(out, indent + 1,
                     "ul_taps_%s(t_sums, t_panel, t_taps, t_from, %" PRId64 ", t_strip * %" PRId64
                     ");",
                     plan->products, plan->k, window.pitch);
    put_results(out, indent + 1, &window);
    ul_contract_line(out, indent, "}");
}
