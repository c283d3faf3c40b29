/* SPDX-License-Identifier: Apache-2.0 */
/* Quantisation as expressions. */
#include "ir/ops/quant/quant.h"
#include "ir/kernel_build.h"

#include <math.h>

ul_kx ul_quantize_within(struct ul_kernel *kernel, ul_kx x, ul_kx zero, int64_t low, int64_t high)
{
    UL_ASSERT(low <= high);
    enum ul_dtype real = ul_kx_dtype(kernel, x);
    ul_kx min = ul_kx_number(kernel, real, (double)low);
    ul_kx max = ul_kx_number(kernel, real, (double)high);
    if (zero != UL_NONE) {
        ul_kx shift = ul_kx_cast(kernel, real, zero);
        min = ul_kx_binary(kernel, UL_KX_SUB, min, shift);
        max = ul_kx_binary(kernel, UL_KX_SUB, max, shift);
    }
    bool is_whole = ul_dtype_get(real)->is_integer;
    ul_kx rounded = is_whole ? x : ul_kx_unary(kernel, UL_KX_ROUND, x);
    rounded = ul_kx_binary(kernel, UL_KX_MAX, rounded, min);
    rounded = ul_kx_binary(kernel, UL_KX_MIN, rounded, max);
    ul_kx result = ul_kx_cast(kernel, UL_I32, rounded);
    return zero == UL_NONE ? result : ul_kx_binary(kernel, UL_KX_ADD, result, zero);
}

ul_kx ul_quantize(struct ul_kernel *kernel, ul_kx x, ul_kx zero, enum ul_dtype dtype)
{
    int64_t low = 0, high = 0;
    bool is_known = ul_dtype_range(dtype, &low, &high);
    UL_ASSERT(is_known);
    return ul_quantize_within(kernel, x, zero, low, high);
}

ul_kx ul_lower_load_scalar(struct ul_lower *lower, ul_value_id value)
{
    ul_kx index[UL_LIMIT_RANK];
    for (uint32_t d = 0; d < UL_LIMIT_RANK; d++)
        index[d] = ul_kx_index_const(lower->kernel, 0);
    return ul_lower_load(lower, value, index);
}

enum ul_status ul_quant_check_scales(const struct ul_infer *infer, uint32_t input,
                                     enum ul_quant_scales allowed)
{
    static const char *const words[] = {[UL_SCALES_FINITE] = "finite",
                                        [UL_SCALES_NOT_ZERO] = "finite and not 0",
                                        [UL_SCALES_ABOVE_ZERO] = "finite and above 0"};
    const struct ul_tensor *scales = ul_infer_tensor(infer, input);
    if (scales == NULL || !ul_dtype_get(scales->type.dtype)->is_float)
        return UL_OK;
    uint64_t count = ul_type_elements(&scales->type);
    count = scales->data == NULL && count > 0 ? 1 : count;
    for (uint64_t i = 0; i < count; i++) {
        double scale = ul_tensor_get_float(scales, i);
        bool fits = allowed == UL_SCALES_FINITE || scale > 0 ||
                    (allowed == UL_SCALES_NOT_ZERO && scale < 0);
        if (!fits || !isfinite(scale))
            return ul_infer_invalid(infer, "scale %llu is %g: scales are %s", (unsigned long long)i,
                                    scale, words[allowed]);
    }
    return UL_OK;
}
