/* Standard output, and the line of progress. */
#define _DEFAULT_SOURCE /* TIOCGWINSZ */
#include "cli/cli.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

uint32_t ul_cli_columns(void)
{
    enum { MIN = 80, MAX = 1000 };
    struct winsize size = {.ws_col = 0};
    const char *said = getenv("COLUMNS");
    long columns = said != NULL ? strtol(said, NULL, 10) : 0;
    if (columns <= 0 && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0)
        columns = size.ws_col;
    return columns < MIN ? MIN : columns > MAX ? MAX : (uint32_t)columns;
}

void ul_cli_print(const struct ul_text *text)
{
    fwrite(text->data, 1, text->length, stdout);
    fflush(stdout);
}

void ul_cli_progress(void *context, const char *what)
{
    (void)context;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, what != NULL ? "\r\033[K%s ..." : "\r\033[K", what);
        fflush(stderr);
    }
}
