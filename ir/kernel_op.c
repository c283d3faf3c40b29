/* SPDX-License-Identifier: Apache-2.0 */
/* One row for each operation of expressions: how texts write it. */
#include "ir/kernel_text.h"

#include <string.h>

/* Levels are those of C. */
static const struct ul_kx_op_info ops[] = {
    [UL_KX_NEG] = {.name = "neg"},
    [UL_KX_NOT] = {.name = "!"},
    [UL_KX_BITNOT] = {.name = "not"},
    [UL_KX_ABS] = {.name = "abs"},
    [UL_KX_SQRT] = {.name = "sqrt"},
    [UL_KX_EXP] = {.name = "exp"},
    [UL_KX_EXPM1] = {.name = "expm1"},
    [UL_KX_LOG] = {.name = "log"},
    [UL_KX_LOG1P] = {.name = "log1p"},
    [UL_KX_SIN] = {.name = "sin"},
    [UL_KX_COS] = {.name = "cos"},
    [UL_KX_TAN] = {.name = "tan"},
    [UL_KX_ASIN] = {.name = "asin"},
    [UL_KX_ACOS] = {.name = "acos"},
    [UL_KX_ATAN] = {.name = "atan"},
    [UL_KX_SINH] = {.name = "sinh"},
    [UL_KX_COSH] = {.name = "cosh"},
    [UL_KX_TANH] = {.name = "tanh"},
    [UL_KX_ASINH] = {.name = "asinh"},
    [UL_KX_ACOSH] = {.name = "acosh"},
    [UL_KX_ATANH] = {.name = "atanh"},
    [UL_KX_ERF] = {.name = "erf"},
    [UL_KX_FLOOR] = {.name = "floor"},
    [UL_KX_CEIL] = {.name = "ceil"},
    [UL_KX_TRUNC] = {.name = "trunc"},
    [UL_KX_ROUND] = {.name = "round"},
    [UL_KX_ISNAN] = {.name = "isnan"},
    [UL_KX_ISINF] = {.name = "isinf"},
    [UL_KX_BITCAST] = {.name = "bitcast"},
    [UL_KX_CAST] = {.name = "cast"},
    [UL_KX_ROUND_TO] = {.name = "round_to"},
    [UL_KX_ADD] = {"add", "+", 6},
    [UL_KX_SUB] = {"sub", "-", 6},
    [UL_KX_MUL] = {"mul", "*", 7},
    [UL_KX_DIV] = {"div", "/", 7},
    [UL_KX_MOD] = {"mod", "%", 7},
    [UL_KX_FMOD] = {.name = "fmod"},
    [UL_KX_MIN] = {.name = "min"},
    [UL_KX_MAX] = {.name = "max"},
    [UL_KX_POW] = {.name = "pow"},
    [UL_KX_ATAN2] = {.name = "atan2"},
    [UL_KX_AND] = {"and", "&", 3},
    [UL_KX_OR] = {"or", "|", 1},
    [UL_KX_XOR] = {"xor", "^", 2},
    [UL_KX_SHL] = {"shl", "<<", 5},
    [UL_KX_SHR] = {"shr", ">>", 5},
    [UL_KX_LT] = {"lt", "<", 4},
    [UL_KX_LE] = {"le", "<=", 4},
    [UL_KX_EQ] = {"eq", "==", 4},
    [UL_KX_NE] = {"ne", "!=", 4},
    [UL_KX_INDEX] = {.name = "index"},
    [UL_KX_RANDOM] = {.name = "random"},
    [UL_KX_SELECT] = {.name = "select"},
    [UL_KX_FMA] = {.name = "fma"},
};

const struct ul_kx_op_info *ul_kx_op_get(enum ul_kx_op op)
{
    UL_ASSERT(op >= UL_KX_NEG && (size_t)op < sizeof ops / sizeof *ops);
    return &ops[op];
}

bool ul_kx_op_find(const char *name, size_t length, enum ul_kx_op *op)
{
    for (size_t i = UL_KX_NEG; i < sizeof ops / sizeof *ops; i++) {
        if (strlen(ops[i].name) == length && memcmp(ops[i].name, name, length) == 0) {
            *op = (enum ul_kx_op)i;
            return true;
        }
    }
    return false;
}
