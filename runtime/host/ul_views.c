/* SPDX-License-Identifier: 0BSD */
/* What a view covers, as contiguous pieces: the innermost dense dimensions make one piece. */
#include "ul_internal.h"

#define DIM_LIMIT 64

/* How many of the outer dimensions are outside of the dense part, whose elements are counted in
 * *inner. */
static uint32_t split(uint32_t rank, const int64_t *dims, const int64_t *strides, int64_t *inner)
{
    *inner = 1;
    while (rank > 0 && (dims[rank - 1] == 1 || strides[rank - 1] == *inner)) {
        *inner *= dims[rank - 1];
        rank--;
    }
    return rank;
}

void ul_view_visit(const struct ul_model *model, const struct ul_rt_view *view, ul_visit *visit,
                   void *context)
{
    const int64_t *dims = model->shapes + view->shape;
    const int64_t *strides = dims + view->rank;
    int64_t element_bytes = ul_type_find(view->type)->bytes;
    int64_t index[DIM_LIMIT] = {0};
    int64_t inner, at = 0;
    uint64_t count = ul_element_count(view->rank, dims);
    if (count == 0 || view->rank > DIM_LIMIT)
        return;
    uint32_t outer = split(view->rank, dims, strides, &inner);
    for (uint64_t left = count / (uint64_t)inner; left > 0; left--) {
        visit(context, view->offset_bytes + (uint64_t)(at * element_bytes),
              (uint64_t)(inner * element_bytes));
        for (uint32_t i = outer; i-- > 0;) {
            at += strides[i];
            if (++index[i] < dims[i])
                break;
            at -= strides[i] * dims[i];
            index[i] = 0;
        }
    }
}

void ul_view_extent(const struct ul_model *model, const struct ul_rt_view *view, uint64_t *begin,
                    uint64_t *end)
{
    const int64_t *dims = model->shapes + view->shape;
    const int64_t *strides = dims + view->rank;
    int64_t element_bytes = ul_type_find(view->type)->bytes;
    int64_t first = 0, last = 0; /* elements */
    *begin = *end = 0;
    if (ul_element_count(view->rank, dims) == 0)
        return;
    for (uint32_t i = 0; i < view->rank; i++) {
        int64_t reach = (dims[i] - 1) * strides[i];
        first += reach < 0 ? reach : 0;
        last += reach > 0 ? reach : 0;
    }
    *begin = view->offset_bytes + (uint64_t)(first * element_bytes);
    *end = view->offset_bytes + (uint64_t)((last + 1) * element_bytes);
}
