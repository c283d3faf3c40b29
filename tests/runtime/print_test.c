/* SPDX-License-Identifier: Apache-2.0 */
/* What --print says of outputs, where NaN must not look like a short answer. */
#include "ul_internal.h"

#include "test.h"

#include <math.h>
#include <string.h>

static void print(const float *values, char *text, size_t text_bytes)
{
    static const int64_t dims[] = {2, 10};
    struct ul_rt_tensor tensor = {
        .name = "y", .type = UL_TYPE_F32, .rank = 2, .dims = dims, .space = UL_SPACE_OUTPUT};
    struct ul_model model = {.output_count = 1, .outputs = &tensor};
    float copy[20];
    void *outputs[] = {copy};
    struct ul_session session = {.model = &model, .outputs = outputs};
    FILE *file = tmpfile();
    memcpy(copy, values, sizeof copy);
    tensor.size_bytes = sizeof copy;
    text[0] = '\0';
    CHECK(file != NULL);
    if (file == NULL)
        return;
    ul_print_outputs(&session, file);
    rewind(file);
    text[fread(text, 1, text_bytes - 1, file)] = '\0';
    fclose(file);
}

/* A trainer that takes some seconds for a sample must not print that it does 0 samples a second. */
static void check_speed(double per_second, const char *wanted)
{
    char buffer[UL_SIZE_TEXT_BYTES];
    CHECK(strcmp(ul_speed_text(buffer, per_second), wanted) == 0);
}

int main(void)
{
    check_speed(0.042, "0.042");
    check_speed(0.4, "0.4");
    check_speed(4.25, "4.2");
    check_speed(9.99, "10");
    check_speed(541.6, "542");
    char text[2000];
    float values[20];
    for (int i = 0; i < 20; i++)
        values[i] = i < 10 ? NAN : (float)i;
    print(values, text, sizeof text);
    CHECK(strstr(text, "row 0: all NaN\n") != NULL);
    CHECK(strstr(text, "10 elements are NaN or infinite\n") != NULL);
    CHECK(strstr(text, "row 1, largest at: 9 (19), 8 (18), 7 (17), 6 (16), 5 (15)\n") != NULL);
    for (int i = 0; i < 20; i++)
        values[i] = NAN;
    print(values, text, sizeof text);
    CHECK(strstr(text, "    all NaN\n") != NULL);
    CHECK(strstr(text, "largest at") == NULL);
    values[3] = -INFINITY;
    print(values, text, sizeof text);
    CHECK(strstr(text, "row 0, largest at: 3 (-inf)\n") != NULL);
    return TEST_RESULT();
}
