/* The lane program as a process that is nobody's child. */
#ifndef FASTHVD_SPAWN_H
#define FASTHVD_SPAWN_H
/* Starts `program` with `control` as descriptor 3. 0, or an errno. */
int spawn_lane(const char *program, int control);
#endif
