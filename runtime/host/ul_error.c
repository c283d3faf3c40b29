/* SPDX-License-Identifier: 0BSD */
/* Messages on standard error, and untrusted text made fit for them. */
#include "ul_internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

int ul_error(const struct ul_session *s, int exit_code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fflush(stdout);
    fprintf(stderr, "%s%s: error: ", s->has_line ? "\r\033[K" : "", s->program);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return exit_code;
}

int ul_out_of_memory(const struct ul_session *s, uint64_t size_bytes)
{
    char size[UL_SIZE_TEXT_BYTES];
    return ul_error(s, UL_EXIT_NO_FIT, "cannot get %s of memory", ul_size_text(size, size_bytes));
}

const char *ul_speed_text(char buffer[UL_SIZE_TEXT_BYTES], double per_second)
{
    snprintf(buffer, UL_SIZE_TEXT_BYTES, per_second < 10 ? "%.2g" : "%.0f", per_second);
    return buffer;
}

const char *ul_size_text(char buffer[UL_SIZE_TEXT_BYTES], uint64_t bytes)
{
    double mib = (double)bytes / 1048576.0;
    if (bytes < 1024)
        snprintf(buffer, UL_SIZE_TEXT_BYTES, "%" PRIu64 " byte%s", bytes, bytes == 1 ? "" : "s");
    else
        snprintf(buffer, UL_SIZE_TEXT_BYTES, "%.2f %s = %" PRIu64 " bytes",
                 mib < 1 ? mib * 1024 : mib, mib < 1 ? "KiB" : "MiB", bytes);
    return buffer;
}

const char *ul_shown(char buffer[UL_SHOWN_BYTES], const char *text)
{
    size_t used = 0;
    const unsigned char *at = (const unsigned char *)text;
    for (; *at != '\0' && used + 8 < UL_SHOWN_BYTES; at++) {
        if (*at >= 0x20 && *at < 0x7f && *at != '\\')
            buffer[used++] = (char)*at;
        else
            used += (size_t)snprintf(buffer + used, 5, "\\x%02x", *at);
    }
    memcpy(buffer + used, *at != '\0' ? "..." : "", *at != '\0' ? 4 : 1);
    return buffer;
}
