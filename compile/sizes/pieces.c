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

static void add(struct finder *finder, const struct ul_program_size *sizes)
{
    struct ul_size_pieces *pieces = finder->pieces;
    UL_GROW(&finder->compile->keep, pieces->items, pieces->count, finder->capacity);
    pieces->items[pieces->count++] = sizes;
}

/* Parts of the range that are to be looked at, the next one last. */
struct parts {
    struct ul_program_size **items;
    uint32_t count;
};

static enum ul_status refuse(struct finder *finder, const char *why)
{
    return ul_diag_set(&finder->compile->diag, UL_UNSUPPORTED,
                       "%s than %d parts: give smaller ranges or sets", why, MAX_PIECES);
}

static struct ul_program_size *copy(struct finder *finder, const struct ul_program_size *sizes)
{
    return ul_arena_copy(&finder->compile->keep, sizes, finder->pieces->size_count * sizeof *sizes);
}

/* Begins with a part for each combination of what sets have. */
static enum ul_status begin(struct finder *finder, const struct ul_program_size *sizes,
                            struct parts *parts)
{
    uint64_t count = 1;
    for (uint32_t s = 0; s < finder->pieces->size_count; s++)
        count = ul_size_mul_saturating(count, sizes[s].value_count > 0 ? sizes[s].value_count : 1);
    if (count > MAX_PIECES)
        return refuse(finder, "sets of sizes have more combinations");
    for (uint64_t i = count; i-- > 0;) {
        struct ul_program_size *part = copy(finder, sizes);
        uint64_t rest = i;
        for (uint32_t s = finder->pieces->size_count; s-- > 0;) {
            if (sizes[s].value_count == 0)
                continue;
            part[s].low = part[s].high = sizes[s].values[rest % sizes[s].value_count];
            part[s].value_count = 0;
            part[s].values = NULL;
            rest /= sizes[s].value_count;
        }
        parts->items[parts->count++] = part;
    }
    return UL_OK;
}

/* Adds the pieces, smaller sizes first. */
static enum ul_status find_all(struct finder *finder, struct parts *parts)
{
    while (parts->count > 0) {
        struct ul_program_size *part = parts->items[parts->count - 1];
        uint32_t size = UL_NONE;
        int64_t cut = 0;
        if (ul_compile_has_ranges(&finder->compile->options))
            UL_TRY(find_in(finder, part, &size, &cut));
        if (size == UL_NONE) {
            add(finder, part);
            parts->count--;
            continue;
        }
        if (finder->pieces->count + parts->count == MAX_PIECES)
            return refuse(finder, "programs of the range have other steps in more");
        struct ul_program_size *below = copy(finder, part);
        below[size].high = cut - below[size].step;
        part[size].low = cut;
        parts->items[parts->count++] = below;
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
    struct parts parts = {
        .items = UL_NEW_ARRAY(&compile->keep, struct ul_program_size *, MAX_PIECES + 1)};
    if (compile->options.stop_after != NULL)
        add(&finder, sizes);
    else {
        UL_TRY(begin(&finder, sizes, &parts));
        UL_TRY(find_all(&finder, &parts));
    }
    UL_ASSERT(found->count > 0);
    compile->pieces = found;
    return UL_OK;
}

enum ul_status ul_compile_find_pieces(struct ul_compile *compile, const char *path)
{
    const struct ul_compile_options *options = &compile->options;
    if (compile->pieces != NULL ||
        (!ul_compile_has_ranges(options) && !ul_compile_has_sets(options)))
        return UL_OK;
    compile->pieces = compile->earlier != NULL ? compile->earlier->pieces : NULL;
    if (compile->pieces != NULL)
        return UL_OK; /* a trial of other options has those that the compile has found */
    ul_compile_progress(compile, "comparing programs of several sizes");
    enum ul_status status = find_pieces(compile, path);
    ul_compile_progress(compile, NULL);
    return status;
}
