/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a range of sizes into pieces whose programs have the same steps.
 *
 * A piece begins as the whole range. The program of its largest sizes is compared with those at its
 * other corners: with each size alone at its smallest, and with all of them. Where one has other
 * steps, bisection finds the first value from which on they are the same, and the piece is cut
 * there; often it is 1 that is cut off. Left undone: what only sizes in the middle have. They are
 * compared when the program is made, which is refused then. */
#include "compile/compile_internal.h"
#include "compile/sizes/sizes.h"

#include <string.h>

enum { MAX_PIECES = 16 };

struct finder {
    struct ul_compile *compile;
    const char *path;
    struct ul_size_pieces *pieces;
    uint32_t capacity;
};

/* ---- one piece ---- */

static int64_t *point_of(const struct finder *finder, const struct ul_program_size *piece)
{
    uint32_t count = finder->pieces->size_count;
    int64_t *point = UL_NEW_ARRAY(&finder->compile->keep, int64_t, count);
    for (uint32_t s = 0; s < count; s++)
        point[s] = piece[s].high;
    return point;
}

/* Whether the program at a point has the steps that it has with the piece's largest sizes. */
static enum ul_status compare(struct ul_size_instances *piece, const int64_t *point, bool *is_same)
{
    struct ul_size_instance instance = {.point = point};
    enum ul_status status = ul_size_instance_compile(piece, &instance);
    *is_same = status == UL_OK;
    return piece->differs ? UL_OK : status;
}

/* Finds the first value of a size from which on programs are those of the piece's largest sizes,
 * where that is not its smallest. */
static enum ul_status find_cut(struct ul_size_instances *piece, int64_t *point, uint32_t size,
                               int64_t *cut)
{
    const struct ul_program_size *range = &piece->sizes[size];
    int64_t without = 0, with = (range->high - range->low) / range->step;
    while (with - without > 1) {
        bool is_same;
        int64_t middle = without + (with - without) / 2;
        point[size] = range->low + middle * range->step;
        UL_TRY(compare(piece, point, &is_same));
        *(is_same ? &with : &without) = middle;
    }
    *cut = range->low + with * range->step;
    return UL_OK;
}

/* Looks for a size that the piece is cut by: `*size` is UL_NONE where there is none. */
static enum ul_status look(const struct finder *finder, struct ul_size_instances *piece,
                           uint32_t *size, int64_t *cut)
{
    uint32_t count = piece->size_count, open_count = 0;
    int64_t *point = point_of(finder, piece->sizes);
    bool is_same = true;
    for (*size = 0; *size < count; ++*size) {
        const struct ul_program_size *range = &piece->sizes[*size];
        point[*size] = range->low;
        open_count += range->low < range->high;
        if (range->low < range->high)
            UL_TRY(compare(piece, point, &is_same));
        if (!is_same)
            return find_cut(piece, point, *size, cut);
        point[*size] = range->high;
    }
    *size = UL_NONE;
    for (uint32_t s = 0; s < count; s++)
        point[s] = piece->sizes[s].low;
    if (open_count > 1)
        UL_TRY(compare(piece, point, &is_same));
    for (uint32_t s = 0; !is_same && *size == UL_NONE; s++)
        if (piece->sizes[s].low < piece->sizes[s].high) {
            *size = s;
            *cut = piece->sizes[s].low + piece->sizes[s].step;
        }
    return UL_OK;
}

static enum ul_status find_in(const struct finder *finder, const struct ul_program_size *sizes,
                              uint32_t *size, int64_t *cut)
{
    struct ul_compile base;
    struct ul_size_instances piece = {
        .compile = &base,
        .asked = finder->compile,
        .size_count = finder->pieces->size_count,
        .sizes = ul_arena_copy(&finder->compile->keep, sizes,
                               finder->pieces->size_count * sizeof *sizes)};
    ul_size_instance_init(finder->compile, point_of(finder, sizes), &base);
    piece.arena = &base.keep;
    base.largest = &base.graph;
    enum ul_status status = ul_compile_build_fixed(&base, finder->path);
    if (status == UL_OK)
        status = ul_size_instances_begin(&piece);
    if (status == UL_OK)
        status = look(finder, &piece, size, cut);
    if (status != UL_OK)
        finder->compile->diag = base.diag;
    ul_compile_done(&base);
    return status;
}

/* ---- all ---- */

static struct ul_program_size *add(struct finder *finder, const struct ul_program_size *sizes)
{
    struct ul_size_pieces *pieces = finder->pieces;
    struct ul_arena *keep = &finder->compile->keep;
    struct ul_program_size *own = ul_arena_copy(keep, sizes, pieces->size_count * sizeof *sizes);
    UL_GROW(keep, pieces->items, pieces->count, finder->capacity);
    pieces->items[pieces->count++] = own;
    return own;
}

/* Adds the pieces of a part of the range, smaller sizes first. */
static enum ul_status find_all(struct finder *finder, const struct ul_program_size *sizes)
{
    uint32_t size_count = finder->pieces->size_count;
    struct ul_program_size **parts =
        UL_NEW_ARRAY(&finder->compile->keep, struct ul_program_size *, MAX_PIECES + 1);
    uint32_t part_count = 0;
    parts[part_count++] = ul_arena_copy(&finder->compile->keep, sizes, size_count * sizeof *sizes);
    while (part_count > 0) {
        struct ul_program_size *part = parts[part_count - 1];
        uint32_t size;
        int64_t cut;
        UL_TRY(find_in(finder, part, &size, &cut));
        if (size == UL_NONE) {
            (void)add(finder, part);
            part_count--;
            continue;
        }
        if (finder->pieces->count + part_count == MAX_PIECES)
            return ul_diag_set(&finder->compile->diag, UL_UNSUPPORTED,
                               "the program has other steps at more than %d parts of the range of "
                               "sizes: give smaller ranges",
                               MAX_PIECES);
        struct ul_program_size *below =
            ul_arena_copy(&finder->compile->keep, part, size_count * sizeof *part);
        below[size].high = cut - below[size].step;
        part[size].low = cut;
        parts[part_count++] = below;
    }
    return UL_OK;
}

static enum ul_status find_pieces(struct ul_compile *compile, const char *path)
{
    struct finder finder = {.compile = compile, .path = path};
    struct ul_program_size *sizes;
    struct ul_size_pieces *found = UL_NEW(&compile->keep, struct ul_size_pieces);
    ul_size_list(compile, &sizes, &found->size_count);
    UL_ASSERT(found->size_count > 0);
    if (strcmp(path, "-") == 0)
        return ul_diag_set(&compile->diag, UL_USAGE,
                           "the model is read once for each size of a range: give a file");
    finder.pieces = found;
    if (compile->options.stop_after != NULL)
        (void)add(&finder, sizes);
    else
        UL_TRY(find_all(&finder, sizes));
    UL_ASSERT(found->count > 0);
    compile->pieces = found;
    return UL_OK;
}

enum ul_status ul_compile_find_pieces(struct ul_compile *compile, const char *path)
{
    if (compile->pieces != NULL || !ul_compile_has_ranges(&compile->options))
        return UL_OK;
    compile->pieces = compile->earlier != NULL ? compile->earlier->pieces : NULL;
    if (compile->pieces != NULL)
        return UL_OK; /* a trial of other options has those that the compile has found */
    ul_compile_progress(compile, "comparing programs of several sizes");
    enum ul_status status = find_pieces(compile, path);
    ul_compile_progress(compile, NULL);
    return status;
}
