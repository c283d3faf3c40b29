/* SPDX-License-Identifier: Apache-2.0 */
/* What the emulated libraries share: handles, descriptors, and where a call reads and writes.
 * Anything that would be undefined on a device ends the program. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include "emulate.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <vector>

/* ---- handles: structures with a number `alive` ---- */

template <class T> bool handle_is_alive(const T *handle)
{
    return handle != NULL && handle->alive == T::ALIVE;
}

template <class T> void handle_open(T **handle)
{
    *handle = new T();
    (*handle)->alive = T::ALIVE;
    ul_emulate_take(T::HANDLE_BYTES);
}

/* false: there is no such handle. */
template <class T> bool handle_close(T *handle)
{
    if (!handle_is_alive(handle))
        return false;
    handle->alive = 0;
    ul_emulate_take(-(long)T::HANDLE_BYTES);
    delete handle;
    return true;
}

/* ---- memory of a call ---- */

struct extent {
    const char *name;
    const void *begin;
    size_t size_bytes; /* 0: there is none */
};

static inline bool extents_overlap(const struct extent &a, const struct extent &b)
{
    const char *a_begin = (const char *)a.begin, *b_begin = (const char *)b.begin;
    return a.size_bytes > 0 && b.size_bytes > 0 && a_begin < b_begin + b.size_bytes &&
           b_begin < a_begin + a.size_bytes;
}

/* Device memory, which is not that of `other`. */
static inline void need_extent(const char *call, const struct extent &extent,
                               const struct extent &other)
{
    char who[64];
    (void)snprintf(who, sizeof who, "%s: %s", call, extent.name);
    if (extent.size_bytes > 0)
        ul_emulate_need(extent.begin, extent.size_bytes, who);
    if (extents_overlap(extent, other))
        ul_emulate_fail("%s: %s overlaps %s", call, extent.name, other.name);
}

/* The residual may be the result itself; the workspace is apart from all. */
static inline void need_memory(const char *call, const std::vector<struct extent> &operands,
                               const struct extent &residual, const struct extent &result,
                               const struct extent &workspace)
{
    const struct extent none = {"", NULL, 0};
    ul_emulate_count_call();
    ul_emulate_count_operand(residual.begin, residual.size_bytes, false);
    ul_emulate_count_operand(result.begin, result.size_bytes, true);
    for (const struct extent &operand : operands) {
        ul_emulate_count_operand(operand.begin, operand.size_bytes, false);
        need_extent(call, operand, result);
        need_extent(call, operand, workspace);
    }
    need_extent(call, residual, residual.begin == result.begin ? none : result);
    need_extent(call, residual, workspace);
    need_extent(call, result, workspace);
    need_extent(call, workspace, none);
    if (workspace.size_bytes > 0 && (uintptr_t)workspace.begin % 256 != 0)
        ul_emulate_fail("%s: the workspace at %p is not a multiple of 256", call, workspace.begin);
}

#endif
