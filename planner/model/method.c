/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of methods as tables. */
#include "planner/model/method.h"

#include "base/base.h"

#define ORDER_ROW(constant, name, run, turns, needs, proves)                                       \
    {name, needs, proves, name ": no order below the file's"},
#define WORD(constant, name, needs, proves) {name, needs, proves, NULL},
#define ROW(constant, name, run, turns, needs, proves) {name, needs, proves, NULL},
static const struct ul_method orders[] = {UL_ORDER_METHODS(WORD, ORDER_ROW)};
static const struct ul_method remats[] = {UL_REMAT_METHODS(WORD, ROW)};
static const struct ul_method packs[] = {UL_PACK_METHODS(WORD, ROW)};
#undef ROW
#undef WORD
#undef ORDER_ROW

const struct ul_method *ul_method_get(enum ul_method_kind kind, uint32_t constant)
{
    static const struct {
        const struct ul_method *rows;
        uint32_t count;
    } kinds[] = {[UL_METHOD_ORDER] = {orders, UL_ORDER_COUNT},
                 [UL_METHOD_REMAT] = {remats, UL_REMAT_COUNT},
                 [UL_METHOD_PACK] = {packs, UL_PACK_COUNT}};
    UL_ASSERT(kind <= UL_METHOD_PACK && constant < kinds[kind].count);
    return &kinds[kind].rows[constant];
}
